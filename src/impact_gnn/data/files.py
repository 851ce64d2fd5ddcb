"""Graphs from files: a folder of CSV or Parquet tables, an `.npz` archive, or a saved graph directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from impact_gnn import _files
from impact_gnn.checks import InputError, distinct, features, guarded, listing
from impact_gnn.data.archive import read_archive
from impact_gnn.graph import HOMOGENEOUS, TemporalGraph, saved


def load(path: str | Path, *, verify: bool = False) -> TemporalGraph:
    """The graph in one of these.

    - a folder with `nodes.csv` or `nodes.parquet` (columns `id`, `time`, optionally `label`, and one column per
      feature, or a `features.npy` beside it) and `edges.csv` or `edges.parquet` (`source`, `target`, optionally
      `weight`); ids and labels may be numbers or text, an empty label is unknown;
    - an `.npz` archive with `time`, `edge_index` and optionally `x`, `y`, `edge_weight`, `ids`, `label_names`;
    - an `.npz` archive of several node types: `paper_time`, `paper_x`, `paper_y`, `num_authors`, and one array
      `author_writes_paper` per relation; the type with labels is the one to classify;
    - a directory written by `TemporalGraph.save`, whose arrays are mapped into memory, not read.

    `verify` holds the checksums of a saved directory against its files.
    """
    path = Path(path)
    if path.is_dir():
        if (path / saved.MANIFEST).exists():
            return _from_saved(path, verify)
        return _from_tables(path)
    if not path.exists():
        raise InputError(f"{path} does not exist; give a folder with nodes.csv and edges.csv, or an .npz file.")
    if path.suffix == ".npz":
        return read_archive(path)
    raise InputError(f"{path} is not a graph that can be read; give a folder, or an .npz file.")


def _from_saved(path: Path, verify: bool) -> TemporalGraph:
    parts = saved.read(path, verify=verify)
    common = {"num_labels": parts["num_labels"], "label_names": parts["label_names"]}
    if list(parts["edges"]) == [HOMOGENEOUS] and list(parts["nodes"]) == ["node"]:
        edge_index, weight = parts["edges"][HOMOGENEOUS]
        arrays = {name: value for name, value in parts["nodes"]["node"].items() if name != "num_nodes"}
        graph = TemporalGraph(**{"time": None, **arrays}, edge_index=edge_index, edge_weight=weight, **common)
    else:
        graph = TemporalGraph.hetero(nodes=parts["nodes"], edges=parts["edges"], target=parts["target"], **common)
    return graph if parts["cutoff"] is None else graph.masked(parts["cutoff"])


def _from_tables(folder: Path) -> TemporalGraph:
    nodes, nodes_file = _table(folder, "nodes", ("id", "time"))
    edges, edges_file = _table(folder, "edges", ("source", "target"))
    if nodes.num_rows == 0:
        raise InputError(f"{nodes_file} has no rows; give at least one node.")
    ids = nodes.column("id").combine_chunks()
    _no_gaps(ids, nodes_file, "id", "give every node an id")
    plain_ids = _numpy(ids, nodes_file, "id")
    distinct(f"column 'id' of {nodes_file}", plain_ids)
    y, names = _labels(nodes, nodes_file)
    return TemporalGraph(
        x=_features(folder, nodes, nodes_file),
        y=y,
        time=_number_column(nodes, "time", nodes_file),
        edge_index=np.stack([_positions(edges, side, edges_file, ids, nodes_file) for side in ("source", "target")]),
        edge_weight=_number_column(edges, "weight", edges_file) if "weight" in edges.column_names else None,
        ids=plain_ids,
        label_names=names,
    )


def _table(folder: Path, name: str, needed: tuple[str, str]) -> tuple[pa.Table, str]:
    """The table `name` with the columns `needed`, and the name of its file."""
    files = [folder / f"{name}.{suffix}" for suffix in ("csv", "parquet") if (folder / f"{name}.{suffix}").exists()]
    if not files:
        raise InputError(
            f"{folder} holds neither {name}.csv nor {name}.parquet; a graph folder needs nodes and edges, "
            f"or the manifest.json of a saved graph."
        )
    if len(files) > 1:
        raise InputError(f"{folder} holds both {files[0].name} and {files[1].name}; keep one of them.")
    file = files[0]
    with guarded(file):
        if file.suffix == ".parquet":
            table = pyarrow.parquet.read_table(file, memory_map=True)
        else:
            options = pyarrow.csv.ConvertOptions(null_values=[""], strings_can_be_null=True)
            table = pyarrow.csv.read_csv(file, convert_options=options)
        table.validate(full=True)  # text that is not UTF-8 would otherwise come up later
        columns = table.column_names
    repeated = sorted({column for column in columns if columns.count(column) > 1})
    if repeated:
        raise InputError(f"{file.name} has several columns called {listing(repeated)}; rename them.")
    missing = [column for column in needed if column not in columns]
    if missing:
        has = f"it has {listing(columns)}. Rename a column or add it"
        raise InputError(f"{file.name} has no column {listing(missing)}; {has}.")
    return table, file.name


def _no_gaps(column: pa.Array | pa.ChunkedArray, file: str, name: str, mend: str) -> None:
    if column.null_count:
        row = pc.index(pc.is_null(column), True).as_py() + 1
        raise InputError(f"column '{name}' of {file} is empty in {column.null_count} rows, first in row {row}; {mend}.")


def _numpy(column: pa.Array | pa.ChunkedArray, file: str, name: str) -> np.ndarray:
    """A column of numbers, booleans or text as numpy; text as fixed-width characters, never objects."""
    if pa.types.is_dictionary(column.type):
        column = pc.cast(column, column.type.value_type)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return np.array(column.to_pylist(), dtype=str)
    if _is_number(column) or pa.types.is_boolean(column.type):
        return np.asarray(column)
    raise InputError(f"column '{name}' of {file} holds {column.type}; give numbers or text.")


def _is_number(column: pa.Array | pa.ChunkedArray) -> bool:
    return pa.types.is_integer(column.type) or pa.types.is_floating(column.type)


def _number_column(table: pa.Table, name: str, file: str) -> np.ndarray:
    column = table.column(name)
    _no_gaps(column, file, name, "fill it in")
    if not _is_number(column):
        example = column[0].as_py() if len(column) else ""
        raise InputError(f"column '{name}' of {file} holds {column.type} such as {example!r}; give numbers.")
    return column.to_numpy()


def _labels(nodes: pa.Table, file: str) -> tuple[np.ndarray | None, list[Any] | None]:
    """Labels as 0, 1, 2, ... with −1 for unknown, and the user's own names for them in sorted order."""
    if "label" not in nodes.column_names:
        return None, None
    column = nodes.column("label").combine_chunks()
    if column.null_count == len(column):
        return np.full(len(column), -1), []
    known = ~np.asarray(pc.is_null(column, nan_is_null=True))
    values = _numpy(column.filter(pa.array(known)), file, "label")
    if values.dtype.kind == "f" and (values == np.floor(values)).all() and np.abs(values).max(initial=0) < 2**53:
        values = values.astype(np.int64)  # whole numbers that became floats because some labels are empty
    if values.dtype.kind == "i":  # −1 is the customary mark for unknown
        known[np.flatnonzero(known)[values == -1]] = False
        values = values[values != -1]
    names, code = np.unique(values, return_inverse=True)
    out = np.full(len(column), -1)
    out[known] = code
    return out, names.tolist()


def _positions(edges: pa.Table, side: str, file: str, ids: pa.Array, nodes_file: str) -> np.ndarray:
    """Positions of the nodes that a column of edge ends names."""
    column = edges.column(side).combine_chunks()
    _no_gaps(column, file, side, "name a node")
    if column.type != ids.type:
        try:
            column = pc.cast(column, ids.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise InputError(
                f"column '{side}' of {file} holds {column.type}, the ids of {nodes_file} are {ids.type}; "
                f"write ids the same way in both files."
            ) from None
    position = pc.index_in(column, value_set=ids)
    if position.null_count:
        row = pc.index(pc.is_null(position), True).as_py()
        raise InputError(
            f"{file} names {position.null_count} times a {side} that is not in {nodes_file}, "
            f"first {column[row].as_py()!r} in row {row + 1}; add the node or remove the edge."
        )
    return position.to_numpy(zero_copy_only=False).astype(np.int64)


def _features(folder: Path, nodes: pa.Table, file: str) -> np.ndarray | None:
    if (folder / "features.npy").exists():
        return features("features.npy", _files.open_array(folder / "features.npy"), nodes.num_rows)
    names = [name for name in nodes.column_names if name not in ("id", "time", "label")]
    if not names:
        return None
    out = np.empty((nodes.num_rows, len(names)), np.float32)
    for position, name in enumerate(names):
        column, where = nodes.column(name), f"column '{name}' of {file}"
        if not (_is_number(column) or pa.types.is_boolean(column.type)):
            raise InputError(f"{where} holds {column.type}, features must be numbers; remove or encode the column.")
        _no_gaps(column, file, name, "fill or drop them")
        with np.errstate(over="ignore"):
            out[:, position] = column.to_numpy()
        wrong = np.flatnonzero(~np.isfinite(out[:, position]))
        if len(wrong):
            first = f"first in row {wrong[0] + 1}; fill or drop them"
            raise InputError(f"{where} holds {len(wrong)} NaN or infinite values, {first}.")
    return out
