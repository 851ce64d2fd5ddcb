"""Graphs from files and databases: a folder of tables, an `.npz` archive, a saved graph, a database."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from impact_gnn import _files, checks
from impact_gnn.checks import InputError, regular
from impact_gnn.data import sources as places
from impact_gnn.data.archive import read_archive
from impact_gnn.data.spec import TOML, Spec, guess, read_toml, write_toml
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
    """The graph in one of these.

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
        path: Where it lies.
        verify: Hold the checksums of a saved directory against its files.
        period: Of tables: how times become periods, as in `from_tables`; by default what
            `graph.toml` says, or "auto".
        cutoff: Of tables: where labels end, so that periods can be chosen with a border there.
        roles: Of tables: a `graph.toml` that lies elsewhere.
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
    block: int = places.BLOCK,
) -> Reading:
    """As `load`, with what every column was taken for.

    `features` replace those of the type to classify, row by row as in its table or arrays. `spill`
    is a directory for what need not be in memory; `block` is how many bytes of a CSV are read
    together, which changes nothing else.
    """
    if not places.is_database(str(path)):
        path = _files.resolve(Path(path))
    root = Path(path)
    if not is_table(path):
        if period is not None or roles is not None:
            raise InputError(
                f"{root} is no table, so periods and roles cannot be chosen; leave them out."
            )
        if root.is_dir() and regular(root / storage.MANIFEST):
            return Reading(_with_features(_from_saved(root, verify), features), [])
        if not root.exists():
            raise InputError(
                f"{root} does not exist; give a folder with nodes.csv and edges.csv, or an .npz file."
            )
        if root.suffix == ".npz":
            return Reading(_with_features(read_archive(root), features), [])
        raise InputError(f"{root} is not a graph that can be read; give a folder, or an .npz file.")
    spec, sources = described(path, roles, block=block)
    if features is None and root.is_dir() and (root / FEATURES).exists():
        features = checks.features(FEATURES, _files.open_array(root / FEATURES), None)
    return build(
        spec, list(sources.values()), period=period, cutoff=cutoff, features=features, spill=spill
    )


def _with_features(graph: TemporalGraph, features: np.ndarray | None) -> TemporalGraph:
    return graph if features is None else graph.with_features(features)


def is_table(path: str | Path) -> bool:
    """Whether a path is a folder of tables or a database, and not arrays."""
    root = Path(path)
    return places.is_database(str(path)) or (
        root.is_dir() and not (root / storage.MANIFEST).exists()
    )


def _tables(path: str | Path, block: int = places.BLOCK) -> dict[str, places.Source]:
    if places.is_database(str(path)):
        return places.database(str(path))
    return places.files(Path(path), block=block)


def described(
    path: str | Path, roles: str | Path | None = None, *, block: int = places.BLOCK
) -> tuple[Spec, dict[str, places.Source]]:
    """The tables of a folder or database, and what they are: as written in a `graph.toml`, or guessed."""
    sources = _tables(path, block)
    toml = Path(path) / TOML if roles is None else Path(roles)
    if roles is not None and not toml.is_file():
        raise InputError(f"{toml} does not exist; impact init writes one.")
    return (read_toml(toml, sources) if toml.is_file() else guess(str(path), sources)), sources


def converted(
    path: str | Path,
    out: Path,
    *,
    memory: str | int = "2GB",
    period: Period | None = None,
    cutoff: Any = None,
    roles: str | Path | None = None,
) -> Reading:
    """Reads a graph and saves it to `out`; tables that are large for `memory` go through files beside it."""
    large = sum(source.size for source in _tables(path).values()) if is_table(path) else 0
    streamed = 4 * large > _files.byte_size(memory)
    with _files.alone(out) as scratch:
        found = read(
            path,
            verify=True,
            period=period,
            cutoff=cutoff,
            roles=roles,
            spill=scratch if streamed else None,
        )
        found.graph.save(out)
        return Reading(load(out), found.notes) if streamed else found


def first_toml(path: str | Path) -> str:
    """A `graph.toml` for tables that have none, with comments."""
    sources = _tables(path)
    spec = guess(str(path), sources, first=True)
    by_name = {source.name: source for source in sources.values()}
    explained = {}
    for kind, node in spec.nodes.items():
        table = by_name[node.file].head
        left = [name for name in table.column_names if name not in (node.id, node.time, node.label)]
        explained[kind] = {name: guess_kind(name, table.column(name)) for name in left}
    return write_toml(spec, explained)


def _from_saved(path: Path, verify: bool) -> TemporalGraph:
    parts = storage.read(path, verify=verify)
    cutoff = parts.pop("cutoff")
    graph = TemporalGraph.hetero(**parts)
    return graph if cutoff is None else graph.masked(cutoff)
