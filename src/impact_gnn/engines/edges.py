"""Edges grouped by target in files, within a cap on memory: one task per range of targets.

A first pass counts edges per bin of neighbouring targets. Bins are joined to ranges whose edges
fit into memory. For each range, a pass over all edges copies those into the range, sorts them as
`build_csr` does, and writes them to their place. Ranges are independent, so workers of a cluster
can share them. The price is one reading of the edge list per range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numba import njit

from impact_gnn import _files, _native, checks
from impact_gnn._native import plain_view
from impact_gnn.checks import InputError
from impact_gnn.graph.csr import CSR, build_csr, index_type, merged

BINS = 16  # targets fall into at most 2^16 bins; the edges of one bin must fit into memory
PIECE = 1 << 20  # edges per call of a kernel
WINDOW = 16  # pieces that are read before the pages of a mapped edge list are released

Piece: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Sources, targets and weights of some edges; the weights are empty where there are none."""


@dataclass(frozen=True, eq=False)
class StoredCSR(CSR):
    """A `CSR` mapped from `directory`, whose name is a digest of its content."""

    directory: Path = Path()

    @classmethod
    def open(cls, directory: Path) -> StoredCSR:
        meta = _files.read_json(directory / "csr.json", sealed=True)
        weight = None
        if meta["weighted"]:
            weight = _files.open_array(directory / "weight.npy", sealed=True)
        return cls(
            indptr=_files.open_array(directory / "indptr.npy", sealed=True),
            indices=_files.open_array(directory / "indices.npy", sealed=True),
            weight=weight,
            num_sources=meta["num_sources"],
            checked=True,
            directory=directory,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return StoredCSR.open, (self.directory,)


@dataclass(frozen=True, eq=False)
class EdgeList:
    """Unsorted edges source → target; `both` adds the reverse edges and merges parallel ones."""

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
        """Return the same list mapped from files, as it is sent to workers."""
        arrays: dict[str, Any] = {}
        for name in ("edge_index", "weight"):
            values = getattr(self, name)
            if values is not None and _native.file_of(values) is None:
                _files.save_array(directory / f"{name}.npy", values)
                arrays[name] = _files.open_array(directory / f"{name}.npy")
        return replace(self, **arrays)

    def windows(self) -> Iterator[list[Piece]]:
        """Yield all edges, `WINDOW` pieces at a time."""
        size = self.edge_index.shape[1]
        for begin in range(0, size, WINDOW * PIECE):
            end = min(begin + WINDOW * PIECE, size)
            yield [self._piece(slice(at, min(at + PIECE, end))) for at in range(begin, end, PIECE)]
            _native.release(self.edge_index, self.weight)

    def _piece(self, part: slice) -> Piece:
        ends = self.edge_index[:, part]
        if ends.dtype not in (np.int32, np.int64):
            ends = ends.astype(np.int64)
        weight = np.empty(0, np.float32)
        if self.weight is not None:
            weight = self.weight[part].astype(self.weight_dtype)
        return plain_view(ends[0]), plain_view(ends[1]), plain_view(weight)

    @property
    def weight_dtype(self) -> np.dtype:
        """The type of the stored weights."""
        if self.weight is None or self.weight.dtype.kind not in "iuf":
            return np.dtype(np.float32)
        return np.dtype(np.float64 if self.weight.dtype.itemsize > 4 else np.float32)

    def __reduce__(self) -> tuple[Any, ...]:
        files = [getattr(array, "filename", None) for array in (self.edge_index, self.weight)]
        return _open_list, (*files, self.num_sources, self.num_targets, self.both)


def _open_list(edge_index: str, weight: str | None, *sizes: Any) -> EdgeList:
    weights = None if weight is None else _files.open_array(Path(weight))
    return EdgeList(_files.open_array(Path(edge_index)), weights, *sizes)


@dataclass(frozen=True)
class Range:
    """Targets first .. last−1; their edges, at most `count`, are stored from `begin` on."""

    first: int
    last: int
    begin: int
    count: int


def ranges_of(edges: EdgeList, memory: int) -> list[Range]:
    """Split targets into ranges whose edges can be sorted within `memory`."""
    # A bin is a run of 2^shift targets.
    last_target = max(edges.num_targets, 1) - 1
    shift = max(0, last_target.bit_length() - BINS)
    edges_per_bin = _count_edges(edges, shift, (last_target >> shift) + 1)
    # Bytes per edge: the copy (target, source), the sorted edges (source, digits), and what a
    # merge copies. Bytes per row: its border and its count.
    edge_size = 4 + 3 * index_type(edges.num_sources).itemsize + 2
    if edges.weight is not None:
        edge_size += 3 * edges.weight_dtype.itemsize
    cost = np.cumsum(edges_per_bin * edge_size + (24 << shift))
    # Join bins as long as their cost fits; `paid` is the cost of all ranges before this one.
    first_bins = [0]
    paid = 0
    for number in range(1, len(cost)):
        if cost[number] - paid > memory:
            first_bins.append(number)
            paid = int(cost[number - 1])
    counts = np.add.reduceat(edges_per_bin, first_bins).tolist()
    borders = [number << shift for number in first_bins] + [edges.num_targets]
    ranges = []
    begin = 0
    for number, count in enumerate(counts):
        ranges.append(Range(borders[number], borders[number + 1], begin, count))
        begin += count
    return ranges


def _count_edges(edges: EdgeList, shift: int, num_bins: int) -> np.ndarray:
    """Count edges per bin of targets; refuse edges that point outside."""
    total = np.zeros(num_bins, np.int64)
    sizes = (edges.num_sources, edges.num_targets)
    num_read = 0
    for pieces in edges.windows():
        counts = np.zeros((len(pieces), num_bins), np.int64)
        wrong = np.full(len(pieces), -1)
        tasks = [
            (source, target, sizes, shift, edges.both, counts[k], wrong[k : k + 1])
            for k, (source, target, _) in enumerate(pieces)
        ]
        _native.run(_count_bins, tasks, None)
        for k in np.flatnonzero(wrong >= 0):
            source, target, _ = pieces[k]
            raise InputError(
                f"edge {num_read + k * PIECE + wrong[k]} runs from {source[wrong[k]]} to "
                f"{target[wrong[k]]}, but there are {sizes[0]} sources and {sizes[1]} targets "
                f"(from 0); remove the edge or add the node."
            )
        total += counts.sum(0)
        num_read += sum(len(source) for source, _, _ in pieces)
    return total


def sort_range(edges: EdgeList, part: Range, directory: Path) -> int:
    """Sort the edges into one range of targets into files, and return their number."""
    target = np.empty(part.count, np.uint32)  # relative to the range
    source = np.empty(part.count, index_type(edges.num_sources))
    weight = np.empty(0 if edges.weight is None else part.count, edges.weight_dtype)
    rows = (part.first, part.last)
    filled = 0
    for pieces in edges.windows():
        count = np.zeros(len(pieces), np.int64)
        tasks: list[tuple[Any, ...]] = [
            (*piece[:2], rows, edges.both, count[k : k + 1]) for k, piece in enumerate(pieces)
        ]
        _native.run(_count_range, tasks, None)
        # Each piece is copied behind those before it.
        places = filled + np.cumsum(count) - count
        tasks = [
            (*piece, rows, edges.both, place, target, source, weight)
            for piece, place in zip(pieces, places, strict=True)
        ]
        _native.run(_copy_range, tasks, None)
        filled += int(count.sum())
    csr = build_csr(
        source,
        target.view(np.int32),
        edges.num_sources,
        part.last - part.first,
        weight if len(weight) else None,
    )
    del target, source, weight
    if edges.both:
        csr = merged(csr)
    _write(directory / "indices.npy", part.begin, csr.indices)
    if csr.weight is not None:
        _write(directory / "weight.npy", part.begin, csr.weight)
    _write(directory / "indptr.npy", part.first + 1, csr.indptr[1:] + part.begin)
    return csr.num_edges


def sort_edges(
    edges: EdgeList,
    goal: Path,
    *,
    memory: int,
    share: Callable[[Callable[..., Any], Sequence[tuple[Any, ...]]], list[Any]],
) -> StoredCSR:
    """Sort edges by target into the directory `goal`, which appears when it is complete.

    Its name identifies the edges. One range takes at most `memory` bytes. `share` calls a function
    for every tuple of arguments, here or on workers.
    """
    if (goal / "csr.json").exists():
        return StoredCSR.open(goal)
    ranges = ranges_of(edges, memory)
    size = ranges[-1].begin + ranges[-1].count
    dtypes = {"indices": index_type(edges.num_sources)}
    if edges.weight is not None:
        dtypes["weight"] = edges.weight_dtype
    edge_size = sum(dtype.itemsize for dtype in dtypes.values())
    with _files.atomic_directory(goal, own_files=lambda path: None) as temporary:
        _files.require_space(temporary, size * edge_size + 8 * edges.num_targets)
        for name, dtype in dtypes.items():
            _files.create_array(temporary / f"{name}.npy", dtype, (size,))
        _files.create_array(temporary / "indptr.npy", np.int64, (edges.num_targets + 1,))
        edges = edges.saved(temporary / "unsorted")
        counts = share(sort_range, [(edges, part, temporary) for part in ranges])
        if sum(counts) < size:
            _close_gaps(temporary, ranges, counts, dtypes)
        _files.remove(temporary / "unsorted")
        for name in (*dtypes, "indptr"):
            _files.seal(temporary / f"{name}.npy")
        meta = {"num_sources": edges.num_sources, "weighted": edges.weight is not None}
        _files.write_json(temporary / "csr.json", meta, sealed=True)
    return StoredCSR.open(goal)


def _close_gaps(
    directory: Path, ranges: list[Range], counts: list[int], dtypes: dict[str, np.dtype]
) -> None:
    """Move ranges together that became smaller by merging edges."""
    begins = np.concatenate([[0], np.cumsum(counts)])
    for name, dtype in dtypes.items():
        path = directory / f"{name}.npy"
        old = _files.open_array(path)
        _files.create_array(directory / "merged.npy", dtype, (int(begins[-1]),))
        for part, begin, count in zip(ranges, begins, counts, strict=False):
            _write(directory / "merged.npy", begin, old[part.begin : part.begin + count])
        (directory / "merged.npy").replace(path)
    indptr = np.lib.format.open_memmap(directory / "indptr.npy", mode="r+")
    for part, begin in zip(ranges, begins, strict=False):
        indptr[part.first + 1 : part.last + 1] += begin - part.begin


def checked_list(edge_index: Any, weight: Any, num_sources: int, num_targets: int) -> EdgeList:
    """Build an edge list from arrays or paths of `.npy` files."""
    if isinstance(edge_index, (str, Path)):
        edge_index = _files.open_array(Path(edge_index))
    if isinstance(weight, (str, Path)):
        weight = _files.open_array(Path(weight))
    ends = edge_index if isinstance(edge_index, np.ndarray) else np.asarray(edge_index)
    if ends.ndim != 2 or len(ends) != 2 or ends.dtype.kind not in "iu":
        raise InputError(
            f"edges are {ends.dtype} of shape {ends.shape}; give whole numbers as two rows [2, E]."
        )
    if weight is not None:
        weight = checks.edge_weights("weight", weight, ends.shape[1])
    return EdgeList(ends, weight, num_sources, num_targets)


def _write(path: Path, begin: int, values: np.ndarray) -> None:
    """Write a part of an array in a file; several processes may write other parts."""
    array = np.lib.format.open_memmap(path, mode="r+")
    for rows in _native.blocks(values):
        array[begin + rows.start : begin + rows.stop] = values[rows]
        _native.release(array)


@njit(nogil=True, cache=True)
def _count_bins(source, target, sizes, shift, both, count, wrong):  # type: ignore[no-untyped-def]
    """Add edges to the bins of their targets; stop at the first that points outside."""
    for e in range(len(source)):
        s, t = source[e], target[e]
        if s < 0 or s >= sizes[0] or t < 0 or t >= sizes[1]:
            wrong[0] = e
            return
        count[t >> shift] += 1
        if both and s != t:
            count[s >> shift] += 1


@njit(nogil=True, cache=True)
def _count_range(source, target, rows, both, count):  # type: ignore[no-untyped-def]
    """Count the edges into a range of targets."""
    total = 0
    for e in range(len(source)):
        s, t = source[e], target[e]
        total += rows[0] <= t < rows[1]
        if both and s != t:
            total += rows[0] <= s < rows[1]
    count[0] = total


@njit(nogil=True, cache=True)
def _copy_range(  # type: ignore[no-untyped-def]
    source, target, weight, rows, both, at, row, indices, weights
):
    """Copy the edges into a range of targets from position `at` on; its first row is 0."""
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
