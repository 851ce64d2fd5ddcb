"""Edges grouped by target in files, within a cap on memory: one task per range of targets.

A first pass counts edges per bin of neighbouring targets; bins are joined to ranges whose edges fit
into memory. For each range all edges are gone through, those into the range are taken, sorted as
`build_csr` does and written to their place. Ranges know nothing of each other, so workers of a
cluster can share them. The price is one reading of the edge list per range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit

from impact_gnn import _files, _native, checks
from impact_gnn._native import plain_view
from impact_gnn.checks import InputError, listing
from impact_gnn.graph.csr import CSR, build_csr, index_type, merged

BINS = 16  # targets fall into at most 2^16 bins; the edges of one bin are always held in memory
PIECE = 1 << 20  # edges that one thread looks at in one go
WINDOW = 16  # pieces that are looked at before pages of a mapped edge list are given back


@dataclass(frozen=True, eq=False)
class StoredCSR(CSR):
    """A `CSR` mapped from `directory`, whose name tells its content."""

    directory: Path = Path()

    @classmethod
    def open(cls, directory: Path) -> StoredCSR:
        meta = _files.read_json(directory / "csr.json", sealed=True)
        names = ("indptr", "indices", "weight") if meta["weighted"] else ("indptr", "indices")
        indptr, indices, *weight = (
            _files.open_array(directory / f"{name}.npy", sealed=True) for name in names
        )
        return cls(
            indptr, indices, weight[0] if weight else None, meta["num_sources"], True, directory
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return StoredCSR.open, (self.directory,)


@dataclass(frozen=True, eq=False)
class EdgeList:
    """Edges source → target as they were given; `both` counts each in both directions and keeps one per pair."""

    edge_index: np.ndarray
    weight: np.ndarray | None
    num_sources: int
    num_targets: int
    both: bool = False

    def key(self) -> str:
        return _files.digest(
            self.edge_index, self.weight, self.num_sources, self.num_targets, self.both
        )

    def saved(self, directory: Path) -> EdgeList:
        """The same list whose arrays are mapped from files, which is how it travels to workers."""
        parts = {"edge_index": self.edge_index, "weight": self.weight}
        for name, values in parts.items():
            if values is not None and _native.file_of(values) is None:
                _files.save_array(directory / f"{name}.npy", values)
                parts[name] = _files.open_array(directory / f"{name}.npy")
        edge_index = parts["edge_index"]
        assert edge_index is not None
        return EdgeList(edge_index, parts["weight"], self.num_sources, self.num_targets, self.both)

    def windows(self) -> Iterator[list[tuple[np.ndarray, np.ndarray, np.ndarray]]]:
        """Pieces (sources, targets, weights or nothing), some at a time."""
        size = self.edge_index.shape[1]
        for begin in range(0, size, WINDOW * PIECE):
            places = [
                slice(a, min(a + PIECE, size))
                for a in range(begin, min(begin + WINDOW * PIECE, size), PIECE)
            ]
            yield [
                (_numbers(self.edge_index[0, e]), _numbers(self.edge_index[1, e]), self._weights(e))
                for e in places
            ]
            _native.release(self.edge_index, self.weight)

    def _weights(self, part: slice) -> np.ndarray:
        return (
            np.empty(0, np.float32)
            if self.weight is None
            else plain_view(self.weight[part].astype(self.real))
        )

    @property
    def real(self) -> np.dtype:
        """The type in which weights are kept."""
        wide = (
            self.weight is not None
            and self.weight.dtype.kind in "iuf"
            and self.weight.dtype.itemsize > 4
        )
        return np.dtype(np.float64 if wide else np.float32)

    def __reduce__(self) -> tuple[Any, ...]:
        names = [getattr(part, "filename", None) for part in (self.edge_index, self.weight)]
        return _open_list, (*names, self.num_sources, self.num_targets, self.both)


@dataclass(frozen=True)
class Range:
    """Targets first .. last−1, whose edges go to the places from `begin` on, `count` of them at most."""

    first: int
    last: int
    begin: int
    count: int


def ranges_of(edges: EdgeList, memory: int) -> list[Range]:
    """Ranges of targets whose edges can be sorted within `memory`; refuses edges that point outside."""
    shift = max(0, (max(edges.num_targets, 1) - 1).bit_length() - BINS)
    bins = (max(edges.num_targets, 1) - 1 >> shift) + 1
    total, seen = np.zeros(bins, np.int64), 0
    sizes = edges.num_sources, edges.num_targets
    for pieces in edges.windows():
        counts = np.zeros((len(pieces), bins), np.int64)
        wrong = np.full(len(pieces), -1)
        tasks = [
            (s, t, sizes, shift, edges.both, counts[k], wrong[k : k + 1])
            for k, (s, t, _) in enumerate(pieces)
        ]
        _native.run(_count, tasks, None)
        for k in np.flatnonzero(wrong >= 0):
            source, target = (int(part[wrong[k]]) for part in pieces[k][:2])
            raise InputError(
                f"edge {seen + k * PIECE + wrong[k]} runs from {source} to {target}, but there are {sizes[0]} sources "
                f"and {sizes[1]} targets (from 0); remove the edge or add the node."
            )
        total += counts.sum(0)
        seen += sum(len(piece[0]) for piece in pieces)
    # Taken (target, source), sorted (source, digits), and what a merge copies; a row costs its
    # border and its count.
    edge = (
        4
        + 3 * index_type(edges.num_sources).itemsize
        + 2
        + (0 if edges.weight is None else 3 * edges.real.itemsize)
    )
    cost = np.cumsum(total * edge + (24 << shift))
    group = np.zeros(bins, np.int64)
    begin = 0
    for number in range(1, bins):
        group[number] = group[number - 1]
        if cost[number] - begin > memory:
            group[number], begin = group[number] + 1, int(cost[number - 1])
    firsts = np.flatnonzero(np.diff(group, prepend=-1))
    border = np.concatenate([[0], np.cumsum(np.add.reduceat(total, firsts))])
    rows = [*(firsts << shift).tolist(), edges.num_targets]
    return [
        Range(rows[k], rows[k + 1], int(border[k]), int(border[k + 1] - border[k]))
        for k in range(len(firsts))
    ]


def sort_range(edges: EdgeList, part: Range, directory: Path) -> int:
    """Sorts the edges into one range of targets into the files of `directory`; how many there are is returned."""
    taken = [np.empty(part.count, np.uint32), np.empty(part.count, index_type(edges.num_sources))]
    weight = np.empty(0 if edges.weight is None else part.count, edges.real)
    at = 0
    for pieces in edges.windows():
        count = np.zeros(len(pieces), np.int64)
        rows = part.first, part.last
        tasks = [(s, t, rows, edges.both, count[k : k + 1]) for k, (s, t, _) in enumerate(pieces)]
        _native.run(_matching, tasks, None)
        places = at + np.cumsum(count) - count
        _native.run(
            _take,
            [(*p, rows, edges.both, places[k], *taken, weight) for k, p in enumerate(pieces)],
            None,
        )
        at += int(count.sum())
    csr = build_csr(
        taken[1],
        taken[0].view(np.int32),
        edges.num_sources,
        part.last - part.first,
        weight if len(weight) else None,
    )
    del taken, weight
    csr = merged(csr) if edges.both else csr
    for name, values in (("indices", csr.indices), ("weight", csr.weight)):
        if values is not None:
            _write(directory / f"{name}.npy", part.begin, values)
    _write(directory / "indptr.npy", part.first + 1, csr.indptr[1:] + part.begin)
    return csr.num_edges


def sort_edges(
    edges: EdgeList,
    goal: Path,
    *,
    memory: int,
    share: Callable[[Callable[..., Any], Sequence[tuple[Any, ...]]], list[Any]],
) -> StoredCSR:
    """The edges by target, in files of `goal`, whose name tells what is sorted; it appears when they are complete.

    One range takes `memory` bytes at most. `share` calls a function for every tuple of arguments,
    here or on workers.
    """
    if (goal / "csr.json").exists():
        return StoredCSR.open(goal)
    ranges = ranges_of(edges, memory)
    size = ranges[-1].begin + ranges[-1].count if ranges else 0
    kinds = {"indices": index_type(edges.num_sources)} | (
        {} if edges.weight is None else {"weight": edges.real}
    )
    with _files.atomic_directory(goal, own_files=lambda path: None) as temporary:
        _files.require_space(
            temporary, size * sum(kind.itemsize for kind in kinds.values()) + 8 * edges.num_targets
        )
        for name, kind in kinds.items():
            _files.create_array(temporary / f"{name}.npy", kind, (size,))
        _files.create_array(temporary / "indptr.npy", np.int64, (edges.num_targets + 1,))
        edges = edges.saved(temporary / "given")
        counts = share(sort_range, [(edges, part, temporary) for part in ranges])
        if sum(counts) < size:
            _close_gaps(temporary, ranges, counts, kinds)
        _files.remove(temporary / "given")
        for name in (*kinds, "indptr"):
            _files.seal(temporary / f"{name}.npy")
        meta = {"num_sources": edges.num_sources, "weighted": edges.weight is not None}
        _files.write_json(temporary / "csr.json", meta, sealed=True)
    return StoredCSR.open(goal)


def _close_gaps(
    directory: Path, ranges: list[Range], counts: list[int], kinds: dict[str, np.dtype]
) -> None:
    """Moves ranges together that have become smaller by merging edges."""
    begins = np.concatenate([[0], np.cumsum(counts)])
    for name, kind in kinds.items():
        path, smaller = directory / f"{name}.npy", directory / f"{name}-merged.npy"
        old = _files.open_array(path)
        new = _files.create_array(smaller, kind, (int(begins[-1]),))
        for part, begin, count in zip(ranges, begins, counts, strict=False):
            for rows in _native.blocks(old[part.begin : part.begin + count]):
                new[begin + rows.start : begin + rows.stop] = old[
                    part.begin + rows.start : part.begin + rows.stop
                ]
                _native.release(new)
        smaller.replace(path)
    for part, begin in zip(ranges, begins, strict=False):
        indptr = np.lib.format.open_memmap(directory / "indptr.npy", mode="r+")
        indptr[part.first + 1 : part.last + 1] += begin - part.begin


def edges_from_tables(
    files: Sequence[str | Path], goal: Path
) -> tuple[np.ndarray, np.ndarray | None]:
    """The edges of CSV or Parquet tables with whole-number columns source, target, perhaps weight, in mapped files."""
    import pyarrow as pa
    import pyarrow.dataset

    weighted = {}
    for file in map(Path, files):
        if not file.exists() or file.suffix not in (".csv", ".parquet"):
            raise InputError(
                f"{file} does not exist or is neither .csv nor .parquet; give tables of edges."
            )
        names = _opened(file, None).schema.names
        missing = [name for name in ("source", "target") if name not in names]
        if missing:
            raise InputError(
                f"{file} has no column {listing(missing)}; it has {listing(names)}. Rename a column."
            )
        weighted[file] = "weight" in names
    if len(set(weighted.values())) > 1:
        without = next(file for file, has in weighted.items() if not has)
        raise InputError(
            f"{without} has no column 'weight', others have; give weights in all files or in none."
        )
    some = any(weighted.values())
    kinds = {"source": pa.int64(), "target": pa.int64()} | (
        {"weight": pa.float64()} if some else {}
    )
    tables = {file: _opened(file, pa.schema(kinds)) for file in weighted}
    size = 0
    for file, table in tables.items():
        with checks.guarded(file):
            size += table.count_rows()
    edge_index = _files.create_array(goal / "edge_index.npy", np.int64, (2, size))
    weight = _files.create_array(goal / "weight.npy", np.float32, (size,)) if some else None
    columns = [*edge_index, *([] if weight is None else [weight])]
    at = 0
    for file, table in tables.items():
        with checks.guarded(file):
            for batch in table.to_batches(batch_size=PIECE):
                for name, out, column in zip(kinds, columns, batch.columns, strict=True):
                    if column.null_count:
                        raise InputError(
                            f"column '{name}' of {file} has gaps; give one number per edge."
                        )
                    out[at : at + len(column)] = column.to_numpy(zero_copy_only=False)
                at += batch.num_rows
    return edge_index, weight


def _opened(file: Path, schema: Any) -> Any:
    import pyarrow.dataset

    with checks.guarded(file):
        return pyarrow.dataset.dataset(file, schema=schema, format=file.suffix[1:])


def checked_list(edge_index: Any, weight: Any, num_sources: int, num_targets: int) -> EdgeList:
    """An edge list from arrays or paths of `.npy` files."""
    edge_index = (
        _files.open_array(Path(edge_index)) if isinstance(edge_index, (str, Path)) else edge_index
    )
    weight = _files.open_array(Path(weight)) if isinstance(weight, (str, Path)) else weight
    ends = edge_index if isinstance(edge_index, np.ndarray) else np.asarray(edge_index)
    if ends.ndim != 2 or len(ends) != 2 or ends.dtype.kind not in "iu":
        raise InputError(
            f"edges are {ends.dtype} of shape {ends.shape}; give whole numbers as two rows [2, E]."
        )
    if weight is not None:
        weight = checks.edge_weights("weight", weight, ends.shape[1])
    return EdgeList(ends, weight, num_sources, num_targets)


def _open_list(
    edge_index: str, weight: str | None, num_sources: int, num_targets: int, both: bool
) -> EdgeList:
    arrays = [
        None if name is None else _files.open_array(Path(name)) for name in (edge_index, weight)
    ]
    return EdgeList(arrays[0], arrays[1], num_sources, num_targets, both)  # type: ignore[arg-type]


def _numbers(ends: np.ndarray) -> np.ndarray:
    return plain_view(ends if ends.dtype in (np.int32, np.int64) else ends.astype(np.int64))


def _write(path: Path, begin: int, values: np.ndarray) -> None:
    """Writes to a part of an array in a file; parts may be written by several processes."""
    array = np.lib.format.open_memmap(path, mode="r+")
    for rows in _native.block_slices(values):
        array[begin + rows.start : begin + rows.stop] = values[rows]
        _native.release(array)


@njit(nogil=True, cache=True)
def _count(source, target, sizes, shift, both, count, wrong):  # type: ignore[no-untyped-def]
    """Adds edges to the bins of their targets; the first that points outside is told."""
    for e in range(len(source)):
        s, t = source[e], target[e]
        if s < 0 or s >= sizes[0] or t < 0 or t >= sizes[1]:
            wrong[0] = e
            return
        count[t >> shift] += 1
        if both and s != t:
            count[s >> shift] += 1


@njit(nogil=True, cache=True)
def _matching(source, target, rows, both, count):  # type: ignore[no-untyped-def]
    total = 0
    for e in range(len(source)):
        s, t = source[e], target[e]
        total += rows[0] <= t < rows[1]
        if both and s != t:
            total += rows[0] <= s < rows[1]
    count[0] = total


@njit(nogil=True, cache=True)
def _take(source, target, weight, rows, both, at, row, indices, weights):  # type: ignore[no-untyped-def]
    """Appends the edges into a range of targets, counted from its first."""
    for e in range(len(source)):
        s, t = source[e], target[e]
        if rows[0] <= t < rows[1]:
            row[at] = t - rows[0]
            indices[at] = s
            if len(weight):
                weights[at] = weight[e]
            at += 1
        if both and s != t and rows[0] <= s < rows[1]:
            row[at] = s - rows[0]
            indices[at] = t
            if len(weight):
                weights[at] = weight[e]
            at += 1
