"""Counting pairs: one pass over the edges, of which everything else is arithmetic.

A node whose label is known has the *state* label·T + period, one of S = Y·T. A node whose label is unknown
still has a period, and gets the code S + period. The counts of (code of target, code of source) hold all
that Algorithm 3 asks of a graph.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import get_num_threads, njit, prange
from scipy import sparse

from impact_gnn import checks
from impact_gnn._array import Array
from impact_gnn.checks import InputError

HISTOGRAM_CELLS = 1 << 24
"""Up to so many pairs of codes a dense histogram counts (128 MB while it runs); beyond, sparse sums do."""

PRIVATE_CELLS = 1 << 18
"""Up to so many cells every thread keeps a histogram of its own; a larger one would not stay in its cache."""

EDGE_BLOCK = 1 << 24
"""Edges that the sparse sums take at a time."""


@dataclass(frozen=True, eq=False)
class Pairs:
    """Edges between states, and edges into states from nodes whose label is unknown.

    Attributes:
        known: Edges by state of target and of source, CSR [S, S].
        unknown: Edges into a state from nodes of unknown label, by their period, CSR [S, T].
    """

    known: sparse.csr_array
    unknown: sparse.csr_array


def count_pairs(edge_index: Array, code: np.ndarray, num_states: int, num_times: int) -> Pairs:
    """Counts every edge whose target has a known label by the state of the target and the code of the source.

    Args:
        edge_index: Edges source → target, [2, E]; refused if one points outside the graph.
        code: Per node its state, or S + period where the label is unknown; smallest unsigned type.
        num_states: S.
        num_times: T.

    Example:
        >>> code = np.array([0, 1, 2, 5], dtype=np.uint8)  # two labels, two times; node 3: unknown, period 1
        >>> pairs = count_pairs(np.array([[0, 2, 3], [1, 1, 1]]), code, 4, 2)
        >>> pairs.known.toarray()[1], pairs.unknown.toarray()[1]
        (array([1, 0, 1, 0]), array([0, 1]))
    """
    source, target = _rows(edge_index, len(code))
    width = num_states + num_times
    if width * width <= HISTOGRAM_CELLS:
        parts = get_num_threads() if width * width <= PRIVATE_CELLS else 1
        counts, inside = _histogram(source, target, code, width, parts)
        if not inside:
            checks.edges("edge_index", edge_index, len(code), len(code))
        table = counts.sum(0).reshape(width, width) if parts > 1 else counts.reshape(width, width)
        return Pairs(
            known=sparse.csr_array(table[:num_states, :num_states]),
            unknown=sparse.csr_array(table[:num_states, num_states:]),
        )
    checks.edges("edge_index", edge_index, len(code), len(code))
    total = sparse.csr_array((num_states, width), dtype=np.int64)
    for start in range(0, len(source), EDGE_BLOCK):
        block = slice(start, start + EDGE_BLOCK)
        row, column = code[target[block]], code[source[block]]
        kept = row < num_states
        ones = np.ones(int(kept.sum()), np.int64)
        total += sparse.coo_array((ones, (row[kept], column[kept])), shape=total.shape).tocsr()
    return Pairs(known=total[:, :num_states].tocsr(), unknown=total[:, num_states:].tocsr())


def _rows(edge_index: Array, num_nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Sources and targets, contiguous; the range is left to the counting pass, which reads every edge anyway."""
    edges = checks.array("edge_index", edge_index)
    if edges.ndim != 2 or edges.shape[0] != 2 or edges.dtype not in (np.int32, np.int64):
        edges = checks.edges("edge_index", edge_index, num_nodes, num_nodes).astype(np.int64, copy=False)
    return np.ascontiguousarray(edges[0]), np.ascontiguousarray(edges[1])


@njit(parallel=True, cache=True)
def _histogram(source, target, code, width, parts):  # type: ignore[no-untyped-def]
    # Whole numbers add up the same in any order, so the number of threads cannot change the result.
    counts = np.zeros((parts, width * width), np.int64)
    outside = np.zeros(parts, np.int64)
    nodes = len(code)
    for part in prange(parts):
        low = len(source) * part // parts
        high = len(source) * (part + 1) // parts
        for e in range(low, high):
            s = np.int64(source[e])
            t = np.int64(target[e])
            if s < 0 or t < 0 or s >= nodes or t >= nodes:
                outside[part] += 1
            else:
                counts[part, np.int64(code[t]) * width + np.int64(code[s])] += 1
    return counts, outside.sum() == 0


def codes(label: np.ndarray, period: np.ndarray, num_labels: int, num_times: int) -> np.ndarray:
    """Per node label·T + period, or S + period where the label is −1, in the smallest unsigned type.

    Example:
        >>> codes(np.array([1, -1]), np.array([0, 1], dtype=np.uint8), 2, 2)
        array([2, 5], dtype=uint8)
    """
    size = (num_labels + 1) * num_times
    if size >= 1 << 31:
        raise InputError(
            f"{num_labels} labels × {num_times} times are too many pairs to tell apart (at most 2³¹); "
            f"bin the times or merge labels."
        )
    row = np.where(label < 0, num_labels, label)
    return (row * num_times + period).astype(np.min_scalar_type(max(size - 1, 0)))
