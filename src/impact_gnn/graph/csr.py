"""Edges grouped by target, in parallel: a counting sort in two steps that keeps the order in which edges came.

First every edge goes to the bucket of its target's leading digits; then each bucket, small enough
for the cache, is sorted by the digits that are left. The result depends on the edges alone, not on
threads or pieces.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numba import njit

from impact_gnn import _native, checks
from impact_gnn._native import plain_view
from impact_gnn.checks import InputError

BUCKET_BITS = 9  # at most about 2^9 buckets: enough to make them small, few enough to write to all of them at once
BUCKET_EDGES = 14  # a bucket is worth its while from about 2^14 edges
PIECE = 1 << 20  # edges that one task reads


@dataclass(frozen=True, eq=False)
class CSR:
    """Sources of the edges into target v: `indices[indptr[v]:indptr[v + 1]]`, with their weights if any.

    The arrays may be mapped from files. `checked` says that rows and sources point inside, because
    we made it.
    """

    indptr: np.ndarray
    indices: np.ndarray
    weight: np.ndarray | None
    num_sources: int
    checked: bool = field(default=False, repr=False)

    @property
    def num_targets(self) -> int:
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        return len(self.indices)

    def take(self, rows: np.ndarray) -> CSR:
        """The edges into the targets `rows` only, in that order."""
        size = self.indptr[rows + 1] - self.indptr[rows]
        indptr = np.concatenate([[0], np.cumsum(size)])
        # Position of every edge: where its row begins, plus its place within the row.
        place = np.repeat(self.indptr[rows] - indptr[:-1], size) + np.arange(indptr[-1])
        weight = None if self.weight is None else self.weight[place]
        return CSR(indptr, self.indices[place], weight, self.num_sources, self.checked)

    def transposed(self) -> CSR:
        """The same edges turned round: grouped by source, targets in increasing order."""
        targets = np.arange(self.num_targets, dtype=index_type(self.num_targets))
        target = np.repeat(targets, np.diff(self.indptr))
        return build_csr(target, self.indices, self.num_targets, self.num_sources, self.weight)


def index_type(size: int) -> np.dtype:
    """32 bits where positions below `size` fit, otherwise 64."""
    return np.dtype(np.int32 if size <= np.iinfo(np.int32).max else np.int64)


def build_csr(
    source: Any,
    target: Any,
    num_sources: int,
    num_targets: int,
    weight: Any = None,
    *,
    threads: int | None = None,
) -> CSR:
    """The edges source → target as `CSR`, sources in 32 bits where they fit.

    Args:
        source: Where edges begin [E], in 0 .. num_sources−1.
        target: Where they end [E].
        num_sources: Number of nodes at which edges may begin.
        num_targets: Number of nodes at which edges may end: the rows.
        weight: One weight per edge [E], or None.
        threads: By default as many as there are cores.

    Examples:
        >>> csr = build_csr(np.array([0, 2, 1]), np.array([1, 0, 1]), 3, 2)
        >>> csr.indptr, csr.indices
        (array([0, 1, 3]), array([2, 0, 1], dtype=int32))
    """
    sources, targets = _ends("source", source, num_sources), _ends("target", target, num_targets)
    if len(sources) != len(targets):
        raise InputError(
            f"there are {len(sources)} sources and {len(targets)} targets; give both for every edge."
        )
    weights = np.empty(0, np.float32)
    if weight is not None:
        given = checks.edge_weights("weight", weight, len(sources))
        weights = plain_view(given.astype(np.float32) if given.dtype.itemsize < 4 else given)

    num_edges = len(sources)
    pieces = [
        (begin, min(begin + PIECE, num_edges), sources, targets)
        for begin in range(0, num_edges, PIECE)
    ]
    bits = min(BUCKET_BITS, (num_edges >> BUCKET_EDGES).bit_length())
    shift = min(16, max(0, (max(num_targets, 1) - 1).bit_length() - bits))
    buckets = (max(num_targets, 1) - 1 >> shift) + 1
    count = np.zeros((len(pieces), buckets), np.int64)
    _native.run(_count, [(*piece, shift, count[k]) for k, piece in enumerate(pieces)], threads)

    # Piece after piece within a bucket, bucket after bucket: where each piece's share of a bucket
    # begins.
    ordered = np.cumsum(count.T.reshape(-1)).reshape(buckets, len(pieces))
    place = np.ascontiguousarray((ordered - count.T).T)
    border = np.concatenate([[0], ordered[:, -1]]) if pieces else np.zeros(buckets + 1, np.int64)
    indices = np.empty(num_edges, index_type(num_sources))
    low = np.empty(num_edges, np.uint16)
    placed = np.empty(num_edges if weight is not None else 0, weights.dtype)
    spread = [
        (*piece, shift, place[k], weights, indices, low, placed) for k, piece in enumerate(pieces)
    ]
    _native.run(_spread, spread, threads)
    indptr = np.zeros(num_targets + 1, np.int64)
    tasks = [
        (border[b], border[b + 1], indptr[b << shift : (b + 1 << shift) + 1])
        for b in range(buckets)
    ]
    _native.run(_sort_bucket, [(*task, indices, low, placed) for task in tasks], threads)
    return CSR(indptr, indices, placed if weight is not None else None, num_sources, checked=True)


def merged(csr: CSR) -> CSR:
    """One edge per source and target, weights added up, sources in increasing order within a row."""
    weight = np.empty(0, np.float32) if csr.weight is None else csr.weight.copy()
    indices, kept = plain_view(csr.indices).copy(), np.empty(csr.num_targets, np.int64)
    rows = list(pairwise(int(border) for border in _native.spans(csr.indptr, PIECE)))
    indptr = plain_view(csr.indptr)
    _native.run(_merge_rows, [(a, b, indptr, indices, weight, kept) for a, b in rows], None)
    borders = np.concatenate([[0], np.cumsum(kept)])
    if borders[-1] == csr.num_edges:
        return replace(csr, indices=indices, weight=None if csr.weight is None else weight)
    kept_edges = np.empty(borders[-1], indices.dtype)
    kept_weight = np.empty(borders[-1] if len(weight) else 0, weight.dtype)
    packed = [(a, b, indptr, borders, indices, weight, kept_edges, kept_weight) for a, b in rows]
    _native.run(_pack_rows, packed, None)
    return replace(
        csr,
        indptr=borders,
        indices=kept_edges,
        weight=None if csr.weight is None else kept_weight,
    )


def earliest(
    csr: CSR, edge_index: np.ndarray, time: np.ndarray, rows: tuple[int, int] | None = None
) -> np.ndarray:
    """The first time at which any of the edges that `merged` made one of was there, for the edges into `rows`.

    Args:
        csr: What `merged` made of `edge_index` in both directions.
        edge_index: The edges as they were given [2, E], each once.
        time: Their times [E].
        rows: First target and the one after the last; by default all of them.
    """
    first, last = rows or (0, csr.num_targets)
    begin, end = int(csr.indptr[first]), int(csr.indptr[last])
    out = np.full(end - begin, np.iinfo(np.int64).max)
    indptr, indices = (
        plain_view(csr.indptr[first : last + 1] - begin),
        plain_view(csr.indices[begin:end]),
    )
    for part in _native.blocks(edge_index, 1):
        ends = plain_view(edge_index[0, part]), plain_view(edge_index[1, part])
        _keep_earliest(*ends, plain_view(time[part]), first, indptr, indices, out)
        _native.release(time)
    return out


def _ends(name: str, value: Any, size: int) -> np.ndarray:
    out = checks.array(name, value)
    if out.ndim != 1 or out.dtype.kind not in "iu":
        raise InputError(
            f"{name} is {out.dtype} of shape {out.shape}; give one whole number per edge."
        )
    if out.dtype not in (np.int32, np.int64):
        out = out.astype(np.int64)
    if len(out) and (out.min() < 0 or out.max() >= size):
        at = int(np.flatnonzero((out < 0) | (out >= size))[0])
        raise InputError(
            f"{name} of edge {at} is {out[at]}, but there are {size} such nodes (0 to {size - 1})."
        )
    return plain_view(out)


@njit(nogil=True, cache=True)
def _count(begin, end, source, target, shift, count):  # type: ignore[no-untyped-def]
    for e in range(begin, end):
        count[target[e] >> shift] += 1


@njit(nogil=True, cache=True)
def _spread(begin, end, source, target, shift, place, weight, indices, low, placed):  # type: ignore[no-untyped-def]
    weighted = len(weight) > 0
    mask = (1 << shift) - 1
    for e in range(begin, end):
        bucket = target[e] >> shift
        at = place[bucket]
        place[bucket] = at + 1
        indices[at] = source[e]
        low[at] = target[e] & mask
        if weighted:
            placed[at] = weight[e]


@njit(nogil=True, cache=True)
def _sort_bucket(begin, end, indptr, indices, low, placed):  # type: ignore[no-untyped-def]
    """Sorts the edges begin .. end of one bucket by row, and fills in the borders of its rows."""
    rows = len(indptr) - 1
    place = np.zeros(rows + 1, np.int64)
    for e in range(begin, end):
        place[low[e] + 1] += 1
    place[0] = begin
    for row in range(rows):
        place[row + 1] += place[row]
        indptr[row + 1] = place[row + 1]
    unsorted = indices[begin:end].copy()
    weighted = len(placed) > 0
    weights = placed[begin:end].copy() if weighted else placed
    for e in range(begin, end):
        at = place[low[e]]
        place[low[e]] = at + 1
        indices[at] = unsorted[e - begin]
        if weighted:
            placed[at] = weights[e - begin]


@njit(nogil=True, cache=True)
def _merge_rows(first, last, indptr, indices, weight, kept):  # type: ignore[no-untyped-def]
    """Sorts the sources of rows first .. last−1 and moves distinct ones to the front of their row."""
    weighted = len(weight) > 0
    for v in range(first, last):
        begin, end = indptr[v], indptr[v + 1]
        if weighted:
            # stable: weights are added in the order given
            order = np.argsort(indices[begin:end], kind="mergesort")
            weight[begin:end] = weight[begin:end][order]
            indices[begin:end] = indices[begin:end][order]
        else:
            indices[begin:end].sort()
        at = begin - 1
        for e in range(begin, end):
            if e > begin and indices[e] == indices[at]:
                if weighted:
                    weight[at] += weight[e]
            else:
                at += 1
                indices[at] = indices[e]
                if weighted:
                    weight[at] = weight[e]
        kept[v] = at + 1 - begin


@njit(nogil=True, cache=True)
def _pack_rows(first, last, indptr, borders, indices, weight, packed, packed_weight):  # type: ignore[no-untyped-def]
    for v in range(first, last):
        for k in range(borders[v + 1] - borders[v]):
            packed[borders[v] + k] = indices[indptr[v] + k]
            if len(weight):
                packed_weight[borders[v] + k] = weight[indptr[v] + k]


@njit(nogil=True, cache=True)
def _keep_earliest(source, target, time, first, indptr, indices, out):  # type: ignore[no-untyped-def]
    for e in range(len(source)):
        for u, v in ((source[e], target[e]), (target[e], source[e])):
            row = v - first
            if 0 <= row < len(indptr) - 1:
                # Sources are in increasing order within a row.
                at = indptr[row] + np.searchsorted(indices[indptr[row] : indptr[row + 1]], u)
                out[at] = min(out[at], time[e])
