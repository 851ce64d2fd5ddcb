"""Label hops: the known labels of neighbours as features, a node's own label excluded exactly.

Of N nodes and Y classes, L is the one-hot matrix of known labels [N, Y], with zero rows where
unknown, and M the weighted mean over neighbours (`Operator`). The hops are M L and M² L. The share
of a node's own label is subtracted: M_vv L_v at one hop, (M²)_vv L_v at two - the return path
v → u → v, which exists wherever an edge has its reverse. Otherwise a model learns to copy the label
and fails where there is none.

A row whose remainder is below `ROUNDING` of the own label is zero; label hops are stored in double
precision, which keeps rounding errors far below that. Otherwise the remainder of a node that
receives only its own label would become a full label when the row is divided by its sum. The own
label is subtracted when rows are read.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import njit
from numpy import ndarray

from impact_gnn import _native
from impact_gnn._array import safe_divide
from impact_gnn._native import plain_view
from impact_gnn.checks import InputError
from impact_gnn.engines.engine import Engine
from impact_gnn.engines.hop import ComputedColumns, Hop, mapped_hop
from impact_gnn.engines.kernels import edge_weight
from impact_gnn.engines.memory import as_engine
from impact_gnn.engines.operator import Operator, kernel_arrays, row_blocks
from impact_gnn.graph import TemporalGraph
from impact_gnn.propagation.hops import own_relation
from impact_gnn.weighting import Weighting

ROUNDING = 1e-9  # a remainder up to this share of the subtracted label counts as zero
# Rows v are processed in blocks with about this many incoming edges. Each block costs one pass over
# all edges of the first operator.
RANGE_EDGES = 1 << 24


def label_hops(
    graph: TemporalGraph,
    *,
    weighting: Weighting = "plain",
    hops: int = 1,
    engine: Engine | None = None,
) -> list[Hop]:
    """Compute label proportions of neighbours at one or two hops without the own label.

    Returns a list of [N, Y] float32. Rows sum to 1 wherever a labelled neighbour exists.

    Args:
        graph: A view from `masked(cutoff)`: only its labels are used.
        weighting: Name of a method, or a table over `graph.times`.
        hops: 1 or 2; the return path is only known exactly up to there.
        engine: Where to compute; `Memory()` by default.

    Examples:
        >>> edges = [[0, 1, 1], [1, 0, 2]]
        >>> g = TemporalGraph(y=[0, 1, -1], time=[0, 1, 2], edge_index=edges).masked(2)
        >>> label_hops(g)[0]
        array([[0., 1.],
               [1., 0.],
               [0., 1.]], dtype=float32)
    """
    graph.require_cutoff("label hops need")
    if hops not in (1, 2):
        raise InputError(
            f"hops={hops} must be 1 or 2: beyond that a node's own label cannot be excluded "
            "exactly."
        )
    engine = as_engine(engine)
    operators = engine.operators(hops, graph, own_relation(graph), weighting=weighting)
    return engine.loaded(repeated_label_hops(operators, graph.label, graph.num_labels, engine))


def repeated_label_hops(
    operators: Sequence[Operator],
    label: ndarray,
    num_labels: int,
    engine: Engine,
    *,
    rows: ndarray | None = None,
) -> list[Hop]:
    """Return M L, M² L, ..., each with its own diagonal part removed afterwards.

    Corrected hops are not propagated.

    Args:
        operators: M for each hop.
        label: Codes [N], −1 where unknown, or probabilities [N, Y] with zero rows where unknown.
        num_labels: Y.
        engine: Where to compute.
        rows: The nodes to return, by default all.
    """
    known = label_columns(label, num_labels)
    # Coarser storage would leave more of the own label than `ROUNDING`.
    hops = engine.hops(operators, known, rows=rows, dtype=np.float64)
    # All nodes, or positions of the requested ones.
    index: Any = slice(None) if rows is None else rows
    own_label = label[index]
    has_labels = own_label.ndim == 2 or (own_label >= 0).any()
    corrected = []
    for k, hop in enumerate(hops, start=1):
        # Without known labels all shares are 0: there is nothing to subtract.
        share = np.zeros(len(own_label))
        if has_labels:
            share = own_share(operators[:k])[index]
        corrected.append(exclude_own_label(hop, own_label, share))
    return corrected


def label_columns(label: ndarray, num_labels: int) -> ComputedColumns:
    """Return known labels as one-hot rows, unknown ones as zeros; probabilities as they are."""

    def columns(low: int, high: int) -> ndarray:
        if label.ndim == 2:
            return label[:, low:high].astype(np.float64)
        one_hot = np.zeros((len(label), high - low))
        # Nodes whose label is one of these columns.
        rows = np.flatnonzero((label >= low) & (label < high))
        one_hot[rows, label[rows] - low] = 1
        return one_hot

    return ComputedColumns(
        shape=(len(label), num_labels),
        dtype=np.dtype(np.float64),
        sources=(label, num_labels),
        columns=columns,
    )


def exclude_own_label(hop: Hop, label: ndarray, own: ndarray) -> Hop:
    """Subtract the share `own` [N] of the own label, and renormalise rows; float32."""

    def subtract(values: ndarray, index: ndarray) -> ndarray:
        values = np.array(values, np.float64)
        # `values` are the rows at these positions.
        own_label = label[index]
        if label.ndim == 2:
            own_part = own[index, None] * own_label
            place: Any = ...  # all entries
        else:  # a code changes one column of its row
            rows = np.flatnonzero(own_label >= 0)
            own_part = own[index[rows]]
            place = (rows, own_label[rows])
        values[place] = np.maximum(values[place] - own_part, 0)
        # Divided by the labelled share of the message without the own label.
        total = values.sum(1, keepdims=True)
        # What is left may be a trace of the own label by rounding; whichever class it is, the
        # whole row is then left out.
        is_known = total > ROUNDING * own[index, None]
        values *= safe_divide(1.0, np.where(is_known, total, 0))
        return values.astype(np.float32)

    return mapped_hop(hop, subtract, np.float32)


def own_share(path: Sequence[Operator]) -> ndarray:
    """Return a node's weight in its own message: diag(M), or diag(M_last · M_first) of two steps.

    A return path v → u → v takes an edge v → u of the first operator and u → v of the last. The
    operators are means without added loops.
    """
    first = path[0]
    last = path[-1]
    is_mean = all(step.norm == "mean" and not step.self_loop for step in path)
    if len(path) > 2 or not is_mean or first.csr.num_sources != last.csr.num_targets:
        raise InputError(
            f"a path of {len(path)} steps cannot exclude the node's own label exactly; "
            "use one or two mean operators that start and end at the same type."
        )
    share = np.empty(last.csr.num_targets)
    for low, high in row_blocks(last.csr, RANGE_EDGES):
        # The scale of v stands outside of the sum over u.
        share[low:high] = _own_weight(path, low, high) * last.row_scale[low:high]
    return share


def _own_weight(path: Sequence[Operator], low: int, high: int) -> ndarray:
    """Sum the weights of the paths v → v for v = low .. high−1, without the scale of v."""
    if len(path) == 1:
        return _sum_loops(low, high, *_arrays(path[0]))
    first, last = path
    return _return_paths(first, last, low, high)


def _return_paths(first: Operator, last: Operator, low: int, high: int) -> ndarray:
    """Sum Σ_u w_last(u → v)·scale_u·w_first(v → u) for v = low .. high−1, in one pass over all u.

    The last operator's edges into v stay in memory with sorted sources. Each edge v → u of the
    first operator is looked up among them; no row of u is stored.
    """
    sums = np.zeros(high - low)
    # Edges, then (table, source periods, target periods).
    indptr, indices, weight, *last_periods = _arrays(last)
    last_edges = _sorted_rows(low, high, indptr, indices, weight)
    first_arrays = _arrays(first)
    scale = plain_view(first.row_scale)
    # Every thread has its own v, so no two add to the same sum.
    borders = np.linspace(0, high - low, _native.available() + 1)
    v_ranges = list(itertools.pairwise(borders.astype(np.int64)))
    for u_range in row_blocks(first.csr):
        arrays = (u_range, first_arrays, last_edges, tuple(last_periods), scale, sums)
        tasks = [(v_range, low, *arrays) for v_range in v_ranges]
        _native.run(_add_return_paths, tasks, None)
        _native.release(first.edges.indices, first.edges.weight)
    return sums


def _arrays(operator: Operator) -> tuple[ndarray, ...]:
    """Return edges, table and periods of an operator as the kernels below take them."""
    return (
        *kernel_arrays(operator.edges),
        np.ascontiguousarray(operator.table),
        plain_view(operator.source_period),
        plain_view(operator.target_period),
    )


@njit(nogil=True, cache=True)
def _sum_loops(  # type: ignore[no-untyped-def]
    low, high, indptr, indices, weight, table, source_period, target_period
):
    """Sum the weights of the edges v → v, for the rows v = low .. high−1."""
    out = np.zeros(high - low)
    for v in range(low, high):
        for e in range(indptr[v], indptr[v + 1]):
            if indices[e] == v:
                loop_weight = table[target_period[v], source_period[v]]
                out[v - low] += loop_weight * edge_weight(weight, e)
    return out


@njit(nogil=True, cache=True)
def _sorted_rows(low, high, indptr, indices, weight):  # type: ignore[no-untyped-def]
    """Copy rows low .. high−1 of a CSR with sources in increasing order, for lookups."""
    # Edges of the range, and borders relative to the first of them.
    begin = indptr[low]
    end = indptr[high]
    borders = indptr[low : high + 1] - begin
    sources = indices[begin:end].copy()
    weights = weight[begin:end].copy() if len(weight) else weight
    for row in range(high - low):
        a = borders[row]
        b = borders[row + 1]
        order = np.argsort(sources[a:b])
        sources[a:b] = sources[a:b][order]
        if len(weight):
            weights[a:b] = weights[a:b][order]
    return borders, sources, weights


@njit(nogil=True, cache=True)
def _add_return_paths(  # type: ignore[no-untyped-def]
    v_range, low, u_range, first_arrays, last_edges, last_periods, scale, sums
):
    """Add the paths v → u → v over u in `u_range`, for v − low in `v_range`.

    Threads share a block of u: each reads all edges and selects those of its own v, so that sums
    are in one order.
    """
    indptr, indices, weight, first_table, first_source, first_target = first_arrays
    borders, sources, weights = last_edges
    last_table, last_source, last_target = last_periods
    for u in range(u_range[0], u_range[1]):
        for e in range(indptr[u], indptr[u + 1]):
            v = np.int64(indices[e])
            row = v - low
            if row < v_range[0] or row >= v_range[1]:
                continue
            # All edges u → v of the last operator; a pair of nodes may have several.
            a = borders[row]
            b = borders[row + 1]
            # The first edge from u in the sorted row of v.
            at = a + np.searchsorted(sources[a:b], u)
            weight_last = 0.0
            while at < b and sources[at] == u:
                weight_last += edge_weight(weights, at)
                at += 1
            if weight_last > 0:
                weight_last *= last_table[last_target[v], last_source[u]]
                weight_first = first_table[first_target[u], first_source[v]]
                weight_first *= edge_weight(weight, e)
                # The path v → u → v: both weights, and the scale of u's mean.
                sums[row] += weight_last * weight_first * scale[u]
