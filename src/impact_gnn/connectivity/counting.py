"""Counting pairs in one pass over the edges; Algorithm 3 needs nothing else of a graph.

A node whose label is known has the *state* label·T + period, one of S = Y·T; other nodes get the
code S + period. Counted are pairs (code of target, code of source).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy import ndarray
from scipy import sparse

from impact_gnn import _native, checks
from impact_gnn._array import Array
from impact_gnn.checks import InputError
from impact_gnn.graph.csr import index_type

HISTOGRAM_CELLS = 1 << 24  # largest dense histogram (128 MB); beyond, sums are sparse
PRIVATE_CELLS = 1 << 18  # largest histogram per thread; a larger one would not stay in its cache
EDGE_BLOCK = 1 << 24  # edges per block of the sparse sums
PART = 1 << 16  # edges below which a part is not worth a thread
MAX_CODES = 1 << 31  # combinations of label and time
_BLOCK = 2048


@dataclass(frozen=True, eq=False)
class Pairs:
    """Edges between states, and edges into states from nodes whose label is unknown."""

    known: sparse.csr_array  # by state of target and of source, CSR [S, S]
    unknown: sparse.csr_array  # by state of target and period of source, CSR [S, T]


def count_pairs(edge_index: Array, code: ndarray, num_states: int, num_times: int) -> Pairs:
    """Count edges to nodes of known label by the state of the target and the code of the source.

    Examples:
        Two labels and two times; node 3 has no known label and period 1.

        >>> code = np.array([0, 1, 2, 5], dtype=np.uint8)
        >>> pairs = count_pairs(np.array([[0, 2, 3], [1, 1, 1]]), code, 4, 2)
        >>> pairs.known.toarray()[1], pairs.unknown.toarray()[1]
        (array([1, 0, 1, 0]), array([0, 1]))
    """
    source, target = _rows(edge_index, len(code))
    # Codes with a known label (S), then codes of unlabelled nodes (T).
    width = num_states + num_times
    if width * width > HISTOGRAM_CELLS:
        checks.edges("edge_index", edge_index, len(code), len(code))
        return _count_sparsely(source, target, code, num_states, num_times)
    # Whole numbers add up the same in any order, so the number of threads cannot change the result.
    parts = 1
    if width * width <= PRIVATE_CELLS:
        parts = min(_native.available(), 1 + len(source) // PART)
    # One flat histogram [width, width] per part; half of the memory below 2³¹ edges.
    dtype = index_type(len(source))
    counts = np.zeros((parts, width * width), dtype)
    outside = np.zeros((parts, 1), bool)
    sources = np.array_split(source, parts)
    targets = np.array_split(target, parts)
    split = zip(sources, targets, counts, outside, strict=True)
    tasks = [(code, width, *part) for part in split]
    _native.run(_count_edges, tasks, None)
    # Checked again for the sentence that names the edge.
    if outside.any():
        checks.edges("edge_index", edge_index, len(code), len(code))
    total = counts.sum(0, dtype=dtype).reshape(width, width)
    # Rows of targets without a known label are dropped.
    return _split(sparse.csr_array(total[:num_states], dtype=np.int64))


def _count_sparsely(
    source: ndarray, target: ndarray, code: ndarray, num_states: int, num_times: int
) -> Pairs:
    """Count blocks of edges by sparse sums."""
    total = sparse.csr_array((num_states, num_states + num_times), dtype=np.int64)
    for start in range(0, len(source), EDGE_BLOCK):
        block = slice(start, start + EDGE_BLOCK)
        # Rows are states of targets, columns codes of sources.
        row = code[target[block]]
        column = code[source[block]]
        is_known = row < num_states
        ones = np.ones(np.count_nonzero(is_known), np.int64)
        pairs = (row[is_known], column[is_known])
        # Entries of the same place are added.
        total += sparse.csr_array((ones, pairs), shape=total.shape)
    return _split(total)


def _split(counts: sparse.csr_array) -> Pairs:
    """Split counts by code of the source [S, S + T] into those of known and unknown labels."""
    num_states = counts.shape[0]
    return Pairs(known=counts[:, :num_states], unknown=counts[:, num_states:])


def _rows(edge_index: Array, num_nodes: int) -> tuple[ndarray, ndarray]:
    """Return contiguous sources and targets; the counting pass checks their range."""
    edges = checks.array("edge_index", edge_index)
    has_shape = edges.ndim == 2 and len(edges) == 2
    # Anything but int32 or int64 [2, E] is converted, or refused with a reason.
    if not has_shape or edges.dtype not in (np.int32, np.int64):
        edges = checks.edges("edge_index", edge_index, num_nodes, num_nodes)
        edges = edges.astype(np.int64, copy=False)
    source, target = map(np.ascontiguousarray, edges)
    return source, target


@njit(cache=True, nogil=True)
def _count_edges(code, width, source, target, counts, outside):  # type: ignore[no-untyped-def]
    # Three short loops over a block that stays in the first-level cache (range, keys, counts) keep
    # the reads of one from waiting for the writes of another: 1.7 times the speed of one loop that
    # does all three.
    nodes = np.uint64(len(code))
    keys = np.empty(_BLOCK, np.uint32)
    for start in range(0, len(source), _BLOCK):
        size = min(_BLOCK, len(source) - start)
        src = source[start : start + size]
        tgt = target[start : start + size]
        largest = np.uint64(0)
        for i in range(size):  # a negative number, read as unsigned, is larger than any node
            largest = max(largest, np.uint64(src[i]), np.uint64(tgt[i]))
        if largest >= nodes:
            outside[0] = True
            return
        for i in range(size):
            # State of the target, code of the source, and their cell in the flat histogram.
            row = np.uint32(code[np.uint64(tgt[i])])
            column = np.uint32(code[np.uint64(src[i])])
            keys[i] = row * np.uint32(width) + column
        for i in range(size):
            counts[keys[i]] += 1


def codes(
    label: ndarray, period: ndarray, *, num_labels: int, num_times: int, num_known: int
) -> ndarray:
    """Compute label·T + period per node, or S + period where the label is unknown.

    A label is unknown where it is −1 and in every period from `num_known` on. The result has the
    smallest unsigned type.
    """
    size = (num_labels + 1) * num_times
    if size > MAX_CODES:
        raise InputError(
            f"{num_labels} labels × {num_times} times are too many combinations to count "
            f"(at most {MAX_CODES}); bin the times or merge labels."
        )
    # Labels from the cutoff on are hidden before they are read.
    past_label = np.where(period < num_known, label, -1)
    if past_label.max(initial=-1) >= num_labels:
        node = int(np.argmax(past_label >= num_labels))
        raise InputError(
            f"label is {label[node]} at node {node}, but there are {num_labels} classes; "
            f"labels run from 0 to {num_labels - 1}."
        )
    # An unknown label is class number Y, which gives the codes from S = Y·T on.
    past_label[past_label < 0] = num_labels
    return (past_label * num_times + period).astype(np.min_scalar_type(size - 1))
