"""Graphs from files and databases: tables, `.npz` archives and saved graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from impact_gnn import _files, checks
from impact_gnn._text import mask_passwords
from impact_gnn.checks import InputError, guarded, listing, regular
from impact_gnn.data import sources
from impact_gnn.data.archive import read_archive
from impact_gnn.data.spec import IDS, TOML, Spec, guess, read_toml, write_toml
from impact_gnn.data.tables import Period, Reading, build
from impact_gnn.encoding import guess_kind
from impact_gnn.graph import TemporalGraph, storage

FEATURES = "features.npy"


def load(
    path: str | Path,
    *,
    verify: bool = False,
    period: Period | None = None,
    cutoff: Any = None,
    roles: str | Path | None = None,
) -> TemporalGraph:
    """Load a graph from one of these places.

    - a folder of tables: CSV (also .gz), Parquet (also a sub-folder of such), with a `graph.toml`
      that says which table and column is what, or with names by which that can be guessed:
      `nodes.csv` with `id`, `time`, `label`, and features, `edges.csv` with `source`, `target`,
      `weight`, `time`; a `features.npy` replaces the feature columns;
    - a database: "duckdb:FILE" or a URL of SQLAlchemy, with tables as in a folder;
    - an `.npz` archive with `time`, `edge_index` and optionally `x`, `y`, `edge_weight`,
      `edge_time`, `ids`, `label_names`, or one of several node types: `paper_time`, `paper_x`,
      `paper_y`, `num_authors`, and one array `author_writes_paper` per relation; the type with
      labels is the one to classify;
    - a directory written by `TemporalGraph.save`, whose arrays are mapped into memory, not read.

    Args:
        path: The place.
        verify: Compare the files of a saved directory with their checksums.
        period: Of tables: the rule that puts times into periods, as in `from_tables`; by default
            that of `graph.toml`, or "auto".
        cutoff: Of tables: where labels end, so that periods can be chosen with a border there.
        roles: Of tables: a `graph.toml` in another place.
    """
    return read(path, verify=verify, period=period, cutoff=cutoff, roles=roles).graph


def read(
    path: str | Path,
    *,
    verify: bool = False,
    period: Period | None = None,
    cutoff: Any = None,
    roles: str | Path | None = None,
    features: np.ndarray | None = None,
    spill: Path | None = None,
) -> Reading:
    """Load a graph, and describe how every column was read.

    `features` replace those of the type to classify, row by row as in its table or arrays. `spill`
    is a directory for tables that need not be in memory.
    """
    if not sources.is_database(str(path)):
        path = _files.resolve(Path(path))
    root = Path(path)
    if is_table(path):
        spec = read_spec(path, roles)
        if features is None:
            features = features_in(root)
        return build(spec, period=period, cutoff=cutoff, features=features, spill=spill)
    if period is not None or roles is not None:
        raise InputError(
            f"{root} is not a folder of tables, so periods and column roles have no effect; "
            "omit them."
        )
    graph = _read_arrays(root, verify)
    return Reading(graph if features is None else graph.with_features(features), [])


def read_spec(path: str | Path, roles: str | Path | None = None) -> Spec:
    """Return the tables of a folder or database, and the role of every column."""
    tables = tables_in(path)
    toml = Path(path, TOML) if roles is None else Path(roles)
    if toml.is_file():
        return read_toml(toml, tables)
    if roles is not None:
        raise InputError(f"{toml} does not exist; create one with impact init.")
    return guess(mask_passwords(str(path), is_address=True), tables)


def features_in(folder: Path) -> np.ndarray | None:
    """Return the matrix of features in a folder of tables."""
    if not (folder / FEATURES).exists():
        return None
    return checks.features(FEATURES, _files.open_array(folder / FEATURES), None)


def _read_arrays(path: Path, verify: bool) -> TemporalGraph:
    """Load a saved graph or an archive."""
    if path.is_dir() and regular(path / storage.MANIFEST):
        return TemporalGraph.restored(storage.read(path, verify=verify))
    if not path.exists():
        raise InputError(
            f"{path} does not exist; pass a folder with nodes.csv and edges.csv, or an .npz file."
        )
    if path.suffix != ".npz":
        raise InputError(f"{path} is not a readable graph; pass a folder or an .npz file.")
    return read_archive(path)


def is_table(path: str | Path) -> bool:
    """Return whether a path is a folder of tables or a database, and not arrays."""
    root = Path(path)
    has_tables = root.is_dir() and not (root / storage.MANIFEST).exists()
    return has_tables or sources.is_database(str(path))


def tables_in(path: str | Path) -> dict[str, sources.Source]:
    """Return the tables of a folder or database by their names without suffix."""
    if sources.is_database(str(path)):
        return sources.database(str(path))
    return sources.files(Path(path))


def convert_graph(
    path: str | Path,
    out: Path,
    *,
    memory: str | int = "2GB",
    period: Period | None = None,
    cutoff: Any = None,
    roles: str | Path | None = None,
) -> Reading:
    """Save a graph to `out`; tables that are large for `memory` are read through files there."""
    tables = tables_in(path) if is_table(path) else {}
    size = sum(source.size for source in tables.values())
    is_streamed = 4 * size > _files.byte_size(memory)
    with _files.exclusive_scratch(out) as scratch:
        reading = read(
            path,
            verify=True,
            period=period,
            cutoff=cutoff,
            roles=roles,
            spill=scratch if is_streamed else None,
        )
        content = None if reading.spec is None else reading.spec.content()
        reading.graph.save(out, tables=content)
        return Reading(load(out), reading.notes) if is_streamed else reading


def read_ids(path: Path) -> list[str]:
    """Read ids of nodes: the lines of a file, or the column of ids in a CSV or Parquet table."""
    source = sources.file(path)
    names = [] if source is None else source.names
    column = next((name for wanted in IDS for name in names if name.lower() == wanted), None)
    if source is not None and column is not None:
        values = source.as_written([column]).table.column(column).to_pylist()
    elif len(names) > 1:
        raise InputError(
            f"{path} has no id column, only {listing(names)}; rename the one with ids to 'id'."
        )
    else:
        with guarded(path):
            values = regular(path).read_text(encoding="utf-8-sig").splitlines()
    ids = [str(value).strip() for value in values if value is not None]
    return list(dict.fromkeys(name for name in ids if name))


def first_toml(path: str | Path) -> str:
    """Return a `graph.toml` with comments for tables that have none."""
    tables = tables_in(path)
    spec = guess(mask_passwords(str(path), is_address=True), tables, is_draft=True)
    heads = {source.name: source.head for source in tables.values()}
    kinds = {}
    for kind, node in spec.nodes.items():
        if node.values_of:
            continue
        head = heads[node.file]
        features = [name for name in head.column_names if name not in node.roles.values()]
        kinds[kind] = {name: guess_kind(name, head.column(name)) for name in features}
        for name, column_kind in node.columns.items():
            kinds[kind][name] = (column_kind, "names other nodes")
    return write_toml(spec, kinds)
