"""Edges grouped by target: a counting sort that keeps the order in which edges came."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numba import njit
from numpy import ndarray
from scipy.sparse import csr_array

from impact_gnn import _native, checks
from impact_gnn._native import plain_view
from impact_gnn.checks import InputError


@dataclass(frozen=True, eq=False)
class CSR:
    """Sources of the edges into target v: `indices[indptr[v]:indptr[v + 1]]`, with weights if any.

    The arrays may be mapped from files. Create one with `build_csr`, which checks the edges: the
    kernels trust that rows and sources point inside.
    """

    indptr: ndarray
    indices: ndarray
    weight: ndarray | None
    num_sources: int

    @property
    def num_targets(self) -> int:
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        return len(self.indices)

    def take(self, rows: ndarray) -> CSR:
        """The edges into the targets `rows` only, in that order."""
        # Edges of every requested row.
        begin = self.indptr[rows]
        size = self.indptr[rows + 1] - begin
        indptr = np.append(0, np.cumsum(size))
        place = joined_ranges(begin, size)
        weight = None if self.weight is None else self.weight[place]
        return CSR(indptr, self.indices[place], weight, self.num_sources)

    @property
    def target(self) -> ndarray:
        """The target of every edge [E], which is its row."""
        rows = np.arange(self.num_targets, dtype=index_type(self.num_targets))
        return np.repeat(rows, np.diff(self.indptr))

    def transposed(self) -> CSR:
        """The same edges turned round: grouped by source, targets in increasing order."""
        return build_csr(self.target, self.indices, self.num_targets, self.num_sources, self.weight)


@dataclass(frozen=True, eq=False)
class EdgesByNode:
    """Positions of edges by the node at one end: a CSR of the first edges, later ones sorted."""

    csr: CSR
    later_nodes: ndarray
    later_edges: ndarray

    @classmethod
    def of(cls, ends: ndarray, num_nodes: int, csr: CSR | None = None) -> EdgesByNode:
        """Group the edges with these ends [E]; `csr` is that of the first nodes and edges.

        Examples:
            >>> edges = EdgesByNode.of(np.array([1, 0, 1]), 2)
            >>> edges.at(np.array([1]))
            array([0, 2], dtype=int32)
        """
        if csr is None:
            csr = positions_by_target(ends, num_nodes)
        # Edges behind those of the CSR were appended later.
        later = np.asarray(ends[csr.num_edges :])
        order = np.argsort(later, kind="stable")
        # Positions in the whole list of edges.
        places = (order + csr.num_edges).astype(index_type(len(ends)))
        return cls(csr, later[order], places)

    def at(self, nodes: ndarray) -> ndarray:
        """Return the positions of all edges at some nodes."""
        # Nodes that were appended later have no row in the CSR.
        first = self.csr.take(nodes[nodes < self.csr.num_targets]).indices
        # Later edges of a node follow each other.
        begin = np.searchsorted(self.later_nodes, nodes)
        end = np.searchsorted(self.later_nodes, nodes, side="right")
        place = joined_ranges(begin, end - begin)
        return np.append(first, self.later_edges[place])


def joined_ranges(begin: ndarray, size: ndarray) -> ndarray:
    """Positions begin[k] .. begin[k] + size[k] − 1 for every k, one range behind the other.

    Examples:
        >>> joined_ranges(np.array([7, 0]), np.array([2, 3]))
        array([7, 8, 0, 1, 2])
    """
    # A position is the begin of its range, plus its place less that of the range.
    place = np.cumsum(size) - size
    return np.repeat(begin - place, size) + np.arange(size.sum())


def index_type(size: int) -> np.dtype:
    """32 bits where positions below `size` fit, otherwise 64."""
    fits = size <= np.iinfo(np.int32).max
    return np.dtype(np.int32 if fits else np.int64)


def build_csr(
    source: Any, target: Any, num_sources: int, num_targets: int, weight: Any = None
) -> CSR:
    """The edges source → target as `CSR`, sources in 32 bits where they fit.

    Args:
        source: Where edges begin [E], in 0 .. num_sources−1.
        target: Where they end [E].
        num_sources: Number of nodes at which edges may begin.
        num_targets: Number of nodes at which edges may end: the rows.
        weight: One weight per edge [E], or None.

    Examples:
        >>> csr = build_csr(np.array([0, 2, 1]), np.array([1, 0, 1]), 3, 2)
        >>> csr.indptr, csr.indices
        (array([0, 1, 3]), array([2, 0, 1], dtype=int32))
    """
    sources = _edge_ends("source", source, num_sources)
    targets = _edge_ends("target", target, num_targets)
    if len(sources) != len(targets):
        raise InputError(
            f"got {len(sources)} sources and {len(targets)} targets; pass both for every edge."
        )
    indptr = np.zeros(num_targets + 1, np.int64)
    indices = np.empty(len(sources), index_type(num_sources))
    unsorted = np.empty(0, np.float32)
    if weight is not None:
        unsorted = checks.edge_weights("weight", weight, len(sources))
        # The kernels take float32 and float64.
        if unsorted.dtype.itemsize < 4:
            unsorted = unsorted.astype(np.float32)
    weights = np.empty_like(unsorted, subok=False)
    # One pass in one thread: as fast as a parallel bucket sort on two cores.
    edges = (sources, targets, plain_view(unsorted))
    _group_by_target(edges, indptr, indices, weights)
    return CSR(indptr, indices, None if weight is None else weights, num_sources)


def positions_by_target(target: Any, num_targets: int) -> CSR:
    """The positions of the edges that end at each node: a CSR whose sources are positions."""
    targets = _edge_ends("target", target, num_targets)
    indptr = np.zeros(num_targets + 1, np.int64)
    indices = np.empty(len(targets), index_type(len(targets)))
    none = np.empty(0, np.float32)
    # An array of the positions would take as much memory as the result.
    _group_by_target((none, targets, none), indptr, indices, none)
    return CSR(indptr, indices, None, max(len(targets), 1))


def merged(csr: CSR) -> CSR:
    """One edge per source and target, weights added up, sources increasing within a row."""
    # scipy adds up the values of equal sources; without weights, of one byte each.
    values = np.zeros(csr.num_edges, np.int8)
    if csr.weight is not None:
        values = csr.weight.copy()
    # scipy refuses a matrix without columns.
    shape = (csr.num_targets, max(csr.num_sources, 1))
    # It changes its arrays in place.
    arrays = (values, csr.indices.copy(), csr.indptr.copy())
    matrix = csr_array(arrays, shape=shape)
    matrix.sum_duplicates()
    return replace(
        csr,
        indptr=matrix.indptr.astype(np.int64),
        indices=matrix.indices.astype(csr.indices.dtype),
        weight=None if csr.weight is None else matrix.data,
    )


def earliest(
    csr: CSR, edge_index: ndarray, time: ndarray, rows: tuple[int, int] | None = None
) -> ndarray:
    """The earliest time of the edges that `merged` made one of, for the edges into `rows`.

    Args:
        csr: What `merged` made of `edge_index` in both directions.
        edge_index: The edges as they were before [2, E], each once.
        time: Their times [E].
        rows: First target and the one after the last; by default all of them.
    """
    first, last = rows or (0, csr.num_targets)
    begin = int(csr.indptr[first])
    end = int(csr.indptr[last])
    # Later than any time, until an edge is found.
    out = np.full(end - begin, np.iinfo(np.int64).max)
    # Borders relative to the first edge of these rows.
    indptr = plain_view(csr.indptr[first : last + 1] - begin)
    indices = plain_view(csr.indices[begin:end])
    for block in _native.blocks(edge_index, 1):
        source, target = edge_index[:, block]
        edges = (plain_view(source), plain_view(target), plain_view(time[block]))
        _keep_earliest(edges, first, indptr, indices, out)
        _native.release(time)
    return out


def _edge_ends(name: str, value: Any, size: int) -> ndarray:
    out = checks.array(name, value)
    if out.ndim != 1 or out.dtype.kind not in "iu":
        raise InputError(
            f"{name} has dtype {out.dtype} and shape {out.shape}; pass one whole number per edge."
        )
    if out.dtype not in (np.int32, np.int64):
        out = out.astype(np.int64)
    if len(out) and (out.min() < 0 or out.max() >= size):
        is_wrong = (out < 0) | (out >= size)
        at = int(is_wrong.argmax())
        raise InputError(
            f"{name} of edge {at} is {out[at]}, but there are {size} such nodes (0 to {size - 1})."
        )
    return plain_view(out)


@njit(nogil=True, cache=True)
def _group_by_target(edges, indptr, indices, weights):  # type: ignore[no-untyped-def]
    """Counts the edges of every row, then puts every edge at the next place of its row.

    Without sources, the position of the edge is put there.
    """
    source, target, weight = edges
    # Edges of every row, one place further on; the running sum is where rows begin.
    for e in range(len(target)):
        indptr[target[e] + 1] += 1
    for row in range(len(indptr) - 1):
        indptr[row + 1] += indptr[row]
    # The next free place of every row.
    place = indptr[:-1].copy()
    for e in range(len(target)):
        row = target[e]
        indices[place[row]] = e
        if len(source):
            indices[place[row]] = source[e]
        if len(weight):
            weights[place[row]] = weight[e]
        place[row] += 1


@njit(nogil=True, cache=True)
def _keep_earliest(edges, first, indptr, indices, out):  # type: ignore[no-untyped-def]
    """Lowers the time of every merged edge to that of each edge, in both directions."""
    source, target, time = edges
    for e in range(len(source)):
        for u, v in ((source[e], target[e]), (target[e], source[e])):
            row = v - first
            # Rows outside of the requested ones are skipped.
            if 0 <= row < len(indptr) - 1:
                # Sources are in increasing order within a row.
                begin = indptr[row]
                at = begin + np.searchsorted(indices[begin : indptr[row + 1]], u)
                out[at] = min(out[at], time[e])
