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
from typing import Any

import numpy as np

from impact_gnn import _files, _native
from impact_gnn.checks import InputError
from impact_gnn.graph.csr import CSR, build_csr, index_type, merged

BINS = 16  # targets fall into at most 2^16 bins; the edges of one bin must fit into memory
PIECE = 1 << 18  # edges that are read at a time


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

    def pieces(self) -> Iterator[tuple[int, np.ndarray, np.ndarray | None]]:
        """Yield the number of a first edge, and ends [2, n] and weights of the edges from there."""
        for begin in range(0, self.edge_index.shape[1], PIECE):
            part = slice(begin, begin + PIECE)
            ends = self.edge_index[:, part].astype(np.int64)
            weight = None
            if self.weight is not None:
                weight = self.weight[part].astype(self.weight_dtype)
            yield begin, ends, weight
            _native.release(self.edge_index, self.weight)

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


def _in_both_directions(
    ends: np.ndarray, weight: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray | None]:
    """Put the reverse of every edge behind it, except for loops."""
    # Edge and reverse take turns; a loop has no reverse.
    is_edge = np.ones(2 * ends.shape[1], bool)
    is_edge[1::2] = ends[0] != ends[1]
    both = np.stack([ends, ends[::-1]], 2).reshape(2, -1)[:, is_edge]
    return both, None if weight is None else np.repeat(weight, 2)[is_edge]


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
    # Edges of every range, and the targets at which ranges begin.
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
    sizes = np.array([[edges.num_sources], [edges.num_targets]])
    for begin, ends, weight in edges.pieces():
        is_outside = ((ends < 0) | (ends >= sizes)).any(0)
        if is_outside.any():
            first = int(is_outside.argmax())
            raise InputError(
                f"edge {begin + first} runs from {ends[0, first]} to {ends[1, first]}, but there "
                f"are {edges.num_sources} sources and {edges.num_targets} targets (from 0); "
                f"remove the edge or add the node."
            )
        if edges.both:
            ends, _ = _in_both_directions(ends, weight)
        total += np.bincount(ends[1] >> shift, minlength=num_bins)
    return total


def sort_range(edges: EdgeList, part: Range, directory: Path) -> int:
    """Sort the edges into one range of targets into files, and return their number."""
    target = np.empty(part.count, np.int32)  # relative to the range
    source = np.empty(part.count, index_type(edges.num_sources))
    weight = None if edges.weight is None else np.empty(part.count, edges.weight_dtype)
    begin = 0
    for _, ends, weights in edges.pieces():
        if edges.both:
            ends, weights = _in_both_directions(ends, weights)
        # The order of the list is kept, so the result equals `build_csr` of the whole.
        selected = np.flatnonzero((ends[1] >= part.first) & (ends[1] < part.last))
        place = slice(begin, begin + len(selected))
        source[place] = ends[0, selected]
        target[place] = ends[1, selected] - part.first
        if weight is not None and weights is not None:
            weight[place] = weights[selected]
        begin += len(selected)
    csr = build_csr(source, target, edges.num_sources, part.last - part.first, weight)
    # Before the merge, which copies the edges once more.
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
    share: Callable[[Callable[..., Any], Sequence[tuple[Any, ...]]], Iterator[Any]],
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
        # Workers receive paths, never arrays.
        edges = edges.saved(temporary / "unsorted")
        counts = list(share(sort_range, [(edges, part, temporary) for part in ranges]))
        # Merged edges leave gaps at the ends of their ranges.
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


def _write(path: Path, begin: int, values: np.ndarray) -> None:
    """Write a part of an array in a file; several processes may write other parts."""
    array = np.lib.format.open_memmap(path, mode="r+")
    for rows in _native.blocks(values):
        array[begin + rows.start : begin + rows.stop] = values[rows]
        _native.release(array)
