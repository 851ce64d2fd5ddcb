"""Edge lists that are read in chunks, as often as needed: arrays, `.npy`, CSV and Parquet files.

Tables need whole-number columns `source` and `target` and may have a column `weight`. The order of edges is the
order of the files and of their rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np

from impact_gnn import _files, checks
from impact_gnn.checks import InputError, listing
from impact_gnn.propagation import paging

CHUNK = 1 << 17
"""Edges in one chunk; checksums depend on it."""

Chunk: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray | None]
"""Sources, targets and weights (or None) of consecutive edges."""


class Edges(Protocol):
    """An edge list that can be read again and again."""

    @property
    def weight_type(self) -> np.dtype | None:
        """float32 or float64, or None where edges have no weights."""

    def chunks(self) -> Iterator[Chunk]:
        """The edges in order, `CHUNK` at a time, but for the last."""


@dataclass(frozen=True, eq=False)
class EdgeArrays:
    """Edges [2, E] and their weights [E], in memory or mapped from files."""

    edge_index: np.ndarray
    weight: np.ndarray | None = None

    @property
    def weight_type(self) -> np.dtype | None:
        """float64 for float64 weights, float32 for others."""
        return None if self.weight is None else _weight_type(self.weight.dtype)

    def chunks(self) -> Iterator[Chunk]:
        """The edges in order."""
        source, target = self.edge_index
        size = len(source)
        with paging.reading(source) as sources, paging.reading(target) as targets:
            if self.weight is None:
                for a in range(0, size, CHUNK):
                    yield sources.read(a, min(a + CHUNK, size)), targets.read(a, min(a + CHUNK, size)), None
                return
            with paging.reading(self.weight) as weights:
                for a in range(0, size, CHUNK):
                    b = min(a + CHUNK, size)
                    weight = weights.read(a, b).astype(self.weight_type, copy=False)
                    yield sources.read(a, b), targets.read(a, b), weight


@dataclass(frozen=True)
class EdgeTables:
    """Edges in CSV or Parquet files with whole-number columns source, target and, if `weighted`, weight."""

    files: tuple[Path, ...]
    weighted: bool

    @property
    def weight_type(self) -> np.dtype | None:
        """Tables hold their weights in any type; they are kept as float32."""
        return np.dtype(np.float32) if self.weighted else None

    def chunks(self) -> Iterator[Chunk]:
        """The edges in order, over all files."""
        waiting: list[Chunk] = []
        for file in self.files:
            for batch in _batches(file):
                waiting.append(_columns(file, batch, self.weighted))
                if sum(len(part[0]) for part in waiting) >= CHUNK:
                    whole = _joined(waiting)
                    full = len(whole[0]) // CHUNK * CHUNK
                    yield from (_part(whole, a, a + CHUNK) for a in range(0, full, CHUNK))
                    waiting = [_part(whole, full, len(whole[0]))]
        if sum(len(part[0]) for part in waiting):
            yield _joined(waiting)


def edges_of(value: Any, weight: Any = None) -> Edges:
    """An edge list from an array [2, E], a file or several of them.

    Args:
        value: An array; or the path of a `.npy` [2, E], a `.csv` or a `.parquet` file; or a list of paths of tables.
        weight: For arrays and `.npy` files: one weight per edge, as an array or the path of a `.npy`.
    """
    if isinstance(value, (str, Path)):
        value = Path(value)
        value = _files.open_array(value) if value.suffix == ".npy" else [value]
    if isinstance(value, np.ndarray):
        return _from_array(value, weight)
    if not isinstance(value, Sequence) or not value or not all(isinstance(file, (str, Path)) for file in value):
        raise InputError("edges must be an array [2, E], a file (.npy, .csv, .parquet) or a list of files; give one.")
    if weight is not None:
        raise InputError("weights of edges in tables belong into a column called 'weight'; leave weight out.")
    files = tuple(Path(file) for file in value)
    return EdgeTables(files, _weighted(files))


def _from_array(edge_index: np.ndarray, weight: Any) -> EdgeArrays:
    if edge_index.ndim != 2 or edge_index.shape[0] != 2 or edge_index.dtype.kind not in "iu":
        raise InputError(
            f"edges are {edge_index.dtype} of shape {edge_index.shape}; give whole numbers, sources and targets as two "
            f"rows [2, E]."
        )
    if isinstance(weight, (str, Path)):
        weight = _files.open_array(Path(weight))
    if weight is not None:
        weight = checks.array("weight", weight)
        if weight.shape != (edge_index.shape[1],) or weight.dtype.kind not in "iufb":
            raise InputError(
                f"weight is {weight.dtype} of shape {weight.shape} for {edge_index.shape[1]} edges; "
                f"give one number per edge."
            )
    return EdgeArrays(edge_index, weight)


def _weight_type(dtype: np.dtype) -> np.dtype:
    return np.dtype(np.float64 if dtype.itemsize > 8 or dtype == np.float64 else np.float32)


def _weighted(files: tuple[Path, ...]) -> bool:
    """Whether all files have weights; refuses files without sources and targets, and some with and some without."""
    having = []
    for file in files:
        names = _names(file)
        missing = [name for name in ("source", "target") if name not in names]
        if missing:
            raise InputError(f"{file} has no column {listing(missing)}; it has {listing(names)}. Rename a column.")
        having.append("weight" in names)
    if len(set(having)) > 1:
        raise InputError(
            f"{files[having.index(True)]} has a column 'weight', {files[having.index(False)]} has none; "
            f"give weights in all files or in none."
        )
    return having[0]


def _names(file: Path) -> list[str]:
    """Column names of a table."""
    if not file.is_file():
        raise InputError(f"{file} does not exist; give .csv or .parquet files of edges.")
    if file.suffix == ".parquet":
        import pyarrow.parquet

        return _guarded(file, lambda: pyarrow.parquet.ParquetFile(file).schema_arrow.names)
    if file.suffix == ".csv":
        with file.open(encoding="utf-8", errors="replace") as lines:
            return [name.strip().strip('"') for name in lines.readline().rstrip("\r\n").split(",")]
    raise InputError(f"{file} is neither .csv, .parquet nor .npy; give edges in one of these.")


def _batches(file: Path) -> Iterator[Any]:
    """Record batches of a table, a few megabytes each."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    wanted = [name for name in ("source", "target", "weight") if name in _names(file)]
    if file.suffix == ".parquet":
        reader = iter(
            _guarded(
                file,
                lambda: pyarrow.parquet.ParquetFile(file, pre_buffer=False).iter_batches(
                    CHUNK, columns=wanted, use_threads=False
                ),
            )
        )
    else:
        types = {"source": pa.int64(), "target": pa.int64(), "weight": pa.float64()}
        reader = iter(
            _guarded(
                file,
                lambda: pyarrow.csv.open_csv(
                    file,
                    read_options=pyarrow.csv.ReadOptions(block_size=paging.BLOCK, use_threads=False),
                    convert_options=pyarrow.csv.ConvertOptions(column_types=types, include_columns=wanted),
                ),
            )
        )
    while (batch := _guarded(file, lambda: next(reader, None))) is not None:
        yield batch


def _columns(file: Path, batch: Any, weighted: bool) -> Chunk:
    out = []
    for name in ("source", "target"):
        column = batch.column(batch.schema.get_field_index(name))
        if column.null_count or not str(column.type).startswith(("int", "uint")):
            raise InputError(f"column '{name}' of {file} holds {column.type} or gaps; give the number of a node.")
        out.append(column.to_numpy(zero_copy_only=False).astype(np.int64, copy=False))
    if not weighted:
        return out[0], out[1], None
    column = batch.column(batch.schema.get_field_index("weight"))
    if column.null_count:
        raise InputError(f"column 'weight' of {file} has gaps; give one number per edge.")
    return out[0], out[1], column.to_numpy(zero_copy_only=False).astype(np.float32)


def _joined(parts: list[Chunk]) -> Chunk:
    source, target = (np.concatenate([part[k] for part in parts]) for k in (0, 1))
    weights = [part[2] for part in parts if part[2] is not None]
    return source, target, np.concatenate(weights) if weights else None


def _part(chunk: Chunk, first: int, last: int) -> Chunk:
    source, target, weight = chunk
    return source[first:last], target[first:last], None if weight is None else weight[first:last]


def _guarded(file: Path, read: Any) -> Any:
    try:
        return read()
    except InputError:
        raise
    except Exception as error:  # readers of csv and parquet raise dozens of kinds
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise InputError(f"{file} cannot be read ({reason}); edges need whole-number columns source, target.") from None
