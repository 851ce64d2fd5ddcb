"""Edges grouped by target in files, within a cap on memory: one task per range of targets.

A first pass counts edges per bin of neighbouring targets. Bins are joined to ranges whose edges
fit into memory. For each range, a pass over all edges copies those into the range, sorts them as
`build_csr` does, and writes them to files of its own, which are joined in the end. Ranges are
independent, so workers of a cluster can share them. The price is one reading of the edge list per
range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

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


@dataclass(frozen=True)
class EdgeList:
    """Unsorted edges source → target in files, whose paths are sent to workers.

    `both_directions` adds the reverse edges behind the others, and merges parallel ones.
    """

    edge_index: Path
    weight: Path | None
    num_sources: int
    num_targets: int
    both_directions: bool = False

    def pieces(self) -> Iterator[tuple[ndarray, ndarray | None]]:
        """Yield ends [2, n] and weights of consecutive edges."""
        edge_index = _files.open_array(self.edge_index)
        weights = None if self.weight is None else _files.open_array(self.weight)
        # With `both_directions`, a second pass over the edges gives their reverses.
        for is_reverse in (False, True)[: 1 + self.both_directions]:
            for begin in range(0, edge_index.shape[1], PIECE):
                part = slice(begin, begin + PIECE)
                ends = edge_index[:, part].astype(np.int64)
                weight = None if weights is None else weights[part].astype(self.weight_dtype)
                if is_reverse:
                    # The reverse of a loop is the loop itself.
                    is_edge = ends[0] != ends[1]
                    ends = ends[::-1, is_edge]
                    weight = None if weight is None else weight[is_edge]
                yield ends, weight
                _native.release(edge_index, weights)

    @cached_property
    def weight_dtype(self) -> np.dtype | None:
        """The type of the stored weights, if there are any."""
        if self.weight is None:
            return None
        dtype = _files.open_array(self.weight).dtype
        is_wide = dtype.kind in "iuf" and dtype.itemsize > 4
        return np.dtype(np.float64 if is_wide else np.float32)


@dataclass(frozen=True)
class Range:
    """Targets first .. last−1, into which `count` edges lead before any are merged."""

    first: int
    last: int
    count: int


def ranges_of(edges: EdgeList, memory: int) -> list[Range]:
    """Split targets into ranges whose edges can be sorted within `memory`."""
    # A bin is a run of 2^shift targets.
    last_target = max(edges.num_targets, 1) - 1
    shift = max(0, last_target.bit_length() - BINS)
    # Edges by bin of targets.
    edges_per_bin = _count_edges(edges, shift, (last_target >> shift) + 1)
    # Bytes per edge: the copy (target, source), the sorted edges (source, digits), and what a
    # merge copies. Bytes per row: its border and its count.
    edge_size = 4 + 3 * index_type(edges.num_sources).itemsize + 2
    if edges.weight_dtype is not None:
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
    begins = [number << shift for number in first_bins]
    ends = [*begins[1:], edges.num_targets]
    return list(map(Range, begins, ends, counts))


def _count_edges(edges: EdgeList, shift: int, num_bins: int) -> ndarray:
    """Count edges per bin of targets; refuse edges that point outside."""
    total = np.zeros(num_bins, np.int64)
    # Upper limits of both ends, [2, 1].
    sizes = np.array([[edges.num_sources], [edges.num_targets]])
    for ends, _ in edges.pieces():
        is_outside = ((ends < 0) | (ends >= sizes)).any(0)
        if is_outside.any():
            # All earlier edges have been counted, so their sum is where this piece begins.
            first = int(is_outside.argmax())
            raise InputError(
                f"edge {total.sum() + first} runs from {ends[0, first]} to {ends[1, first]}, but "
                f"there are {edges.num_sources} sources and {edges.num_targets} targets (from 0); "
                f"remove the edge or add the node."
            )
        total += np.bincount(ends[1] >> shift, minlength=num_bins)
    return total


def sort_range(edges: EdgeList, part: Range, directory: Path) -> int:
    """Sort the edges into one range of targets into files, and return their number."""
    target = np.empty(part.count, np.int32)  # relative to the range
    source = np.empty(part.count, index_type(edges.num_sources))
    weight = None if edges.weight is None else np.empty(part.count, edges.weight_dtype)
    begin = 0
    for ends, weights in edges.pieces():
        is_inside = (ends[1] >= part.first) & (ends[1] < part.last)
        # In the order of the list, so the result equals `build_csr` of the whole.
        selected = np.flatnonzero(is_inside)
        place = slice(begin, begin + len(selected))
        source[place] = ends[0, selected]
        target[place] = ends[1, selected] - part.first
        if weight is not None and weights is not None:
            weight[place] = weights[selected]
        begin += len(selected)
    csr = build_csr(source, target, edges.num_sources, part.last - part.first, weight)
    # Before the merge, which copies the edges once more.
    del target, source, weight
    if edges.both_directions:
        csr = merged(csr)
    for name, values in csr_arrays(csr).items():
        _files.save_array(directory / f"{part.first}-{name}.npy", values)
    return csr.num_edges


def sort_edges(
    edges: EdgeList,
    directory: Path,
    *,
    memory: int,
    map_tasks: Callable[[Callable[..., Any], Sequence[tuple[Any, ...]]], Iterator[Any]],
) -> None:
    """Sort edges by target into files of a directory.

    One range takes at most `memory` bytes. `map_tasks` calls a function for every tuple of
    arguments, here or on workers.
    """
    ranges = ranges_of(edges, memory)
    dtypes = {"indices": index_type(edges.num_sources)}
    if edges.weight_dtype is not None:
        dtypes["weight"] = edges.weight_dtype
    # Twice: in files by range, and joined.
    edge_size = 2 * sum(dtype.itemsize for dtype in dtypes.values())
    size = sum(part.count for part in ranges)
    _files.require_space(directory, size * edge_size + 16 * edges.num_targets)
    parts = directory / "parts"
    counts = list(map_tasks(sort_range, [(edges, part, parts) for part in ranges]))
    # Where the edges of each range begin in the joined files.
    begins = np.cumsum([0, *counts])
    dtypes["indptr"] = np.dtype(np.int64)
    for name, dtype in dtypes.items():
        is_border = name == "indptr"
        # There is one border more than there are rows.
        length = 1 + edges.num_targets if is_border else begins[-1]
        with _files.atomic_array(directory / f"{name}.npy", dtype, (length,)) as joined:
            place = 0
            for part, begin in zip(ranges, begins.tolist(), strict=False):
                values = _files.open_array(parts / f"{part.first}-{name}.npy")
                # Borders count from the first edge of all; the last of a range begins the next one.
                shift = begin * is_border
                for rows in _native.blocks(values):
                    joined[place + rows.start : place + rows.stop] = values[rows] + shift
                    _native.release(joined)
                place += len(values) - is_border
    _files.remove(parts)
    describe_csr(directory, edges.num_sources, weighted=edges.weight is not None)


def csr_arrays(csr: CSR) -> dict[str, ndarray]:
    """Return the arrays of a CSR by name."""
    arrays = {"indptr": csr.indptr, "indices": csr.indices}
    if csr.weight is not None:
        arrays["weight"] = csr.weight
    return arrays


def describe_csr(directory: Path, num_sources: int, *, weighted: bool) -> None:
    """Write the file that completes a `StoredCSR`."""
    meta = {"num_sources": num_sources, "weighted": weighted}
    _files.write_json(directory / "csr.json", meta, sealed=True)
