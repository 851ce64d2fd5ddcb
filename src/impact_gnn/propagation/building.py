"""Edges grouped by target, in parallel: a counting sort in two steps that keeps the order in which edges came.

First every edge goes to the bucket of its target's leading digits; then each bucket, small enough for the cache,
is sorted by the digits that are left. Edges can count in both directions without a doubled edge list. The result
depends on the edges alone, not on threads or pieces.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from impact_gnn import checks
from impact_gnn.checks import InputError
from impact_gnn.graph.csr import CSR
from impact_gnn.propagation import threads as pool
from impact_gnn.propagation.passes import plain_view

BUCKET_BITS = 9
"""At most about 2^9 buckets: enough to make them small, few enough to write to all of them at once."""

BUCKET_EDGES = 14
"""A bucket is worth its while from about 2^14 edges."""

PIECE = 1 << 20
"""Edges that one task reads."""


def build_csr(
    source: Any,
    target: Any,
    num_sources: int,
    num_targets: int,
    weight: Any = None,
    *,
    undirected: bool = False,
    threads: int | None = None,
) -> CSR:
    """The edges source → target as `CSR`, sources in 32 bits where they fit.

    Args:
        source: Where edges begin [E], in 0 .. num_sources−1.
        target: Where they end [E].
        num_sources: Number of nodes at which edges may begin.
        num_targets: Number of nodes at which edges may end: the rows.
        weight: One weight per edge [E], or None.
        undirected: Count every edge in both directions (a loop v → v once).
        threads: By default as many as there are cores.

    Example:
        >>> csr = build_csr(np.array([0, 2, 1]), np.array([1, 0, 1]), 3, 3, undirected=True)
        >>> csr.indptr, csr.indices
        (array([0, 2, 4, 5]), array([2, 1, 0, 1, 0], dtype=int32))
    """
    ends = _ends("source", source, num_sources), _ends("target", target, num_targets)
    if len(ends[0]) != len(ends[1]):
        raise InputError(f"there are {len(ends[0])} sources and {len(ends[1])} targets; give both for every edge.")
    if undirected and num_sources != num_targets:
        raise InputError(
            f"undirected edges need the same nodes at both ends, but there are {num_sources} sources and "
            f"{num_targets} targets; add the reverse relation instead."
        )
    weights = np.empty(0, np.float32)
    if weight is not None:
        given = checks.edge_weights("weight", weight, len(ends[0]))
        weights = plain_view(given.astype(np.float32) if given.dtype.itemsize < 4 else given)

    runs = [(*ends, False), (*ends[::-1], True)] if undirected else [(*ends, False)]
    pieces = [(begin, min(begin + PIECE, len(run[0])), *run) for run in runs for begin in range(0, len(run[0]), PIECE)]
    bits = min(BUCKET_BITS, (sum(len(run[0]) for run in runs) >> BUCKET_EDGES).bit_length())
    shift = min(16, max(0, (max(num_targets, 1) - 1).bit_length() - bits))
    buckets = (max(num_targets, 1) - 1 >> shift) + 1
    count = np.zeros((len(pieces), buckets), np.int64)
    pool.run(_count, [(*piece, shift, count[k]) for k, piece in enumerate(pieces)], threads)

    # Piece after piece within a bucket, bucket after bucket: where each piece's share of a bucket begins.
    ordered = np.cumsum(count.T.reshape(-1)).reshape(buckets, len(pieces))
    place = np.ascontiguousarray((ordered - count.T).T)
    border = np.concatenate([[0], ordered[:, -1]]) if pieces else np.zeros(buckets + 1, np.int64)
    num_edges = int(border[-1])
    indices = np.empty(num_edges, np.int32 if num_sources <= np.iinfo(np.int32).max else np.int64)
    low = np.empty(num_edges, np.uint16)
    placed = np.empty(num_edges if weight is not None else 0, weights.dtype)
    pool.run(
        _spread, [(*piece, shift, place[k], weights, indices, low, placed) for k, piece in enumerate(pieces)], threads
    )
    indptr = np.zeros(num_targets + 1, np.int64)
    tasks = [(border[b], border[b + 1], indptr[b << shift : (b + 1 << shift) + 1]) for b in range(buckets)]
    pool.run(_settle, [(*task, indices, low, placed) for task in tasks], threads)
    return CSR(indptr, indices, placed if weight is not None else None, num_sources)


def transposed(csr: CSR, threads: int | None = None) -> CSR:
    """The same edges turned round: grouped by source, targets in increasing order."""
    targets = np.arange(csr.num_targets, dtype=np.int32 if csr.num_targets <= np.iinfo(np.int32).max else np.int64)
    target = np.repeat(targets, np.diff(csr.indptr))
    return build_csr(target, csr.indices, csr.num_targets, csr.num_sources, csr.weight, threads=threads)


def _ends(name: str, value: Any, size: int) -> np.ndarray:
    out = checks.array(name, value)
    if out.ndim != 1 or out.dtype.kind not in "iu":
        raise InputError(f"{name} is {out.dtype} of shape {out.shape}; give one whole number per edge.")
    if out.dtype not in (np.int32, np.int64):
        out = out.astype(np.int64)
    if len(out) and (out.min() < 0 or out.max() >= size):
        at = int(np.flatnonzero((out < 0) | (out >= size))[0])
        raise InputError(f"{name} of edge {at} is {out[at]}, but there are {size} such nodes (0 to {size - 1}).")
    return plain_view(out)


@njit(nogil=True, cache=True)
def _count(begin, end, source, target, skip_loops, shift, count):  # type: ignore[no-untyped-def]
    for e in range(begin, end):
        if not (skip_loops and source[e] == target[e]):
            count[target[e] >> shift] += 1


@njit(nogil=True, cache=True)
def _spread(  # type: ignore[no-untyped-def]
    begin, end, source, target, skip_loops, shift, place, weight, indices, low, placed
):
    weighted = len(weight) > 0
    mask = (1 << shift) - 1
    for e in range(begin, end):
        if not (skip_loops and source[e] == target[e]):
            bucket = target[e] >> shift
            at = place[bucket]
            place[bucket] = at + 1
            indices[at] = source[e]
            low[at] = target[e] & mask
            if weighted:
                placed[at] = weight[e]


@njit(nogil=True, cache=True)
def _settle(begin, end, indptr, indices, low, placed):  # type: ignore[no-untyped-def]
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
