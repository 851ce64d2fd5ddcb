"""Label hops: the known labels of neighbours as features, a node's own label excluded exactly.

With Y the one-hot matrix of known labels (zero rows where unknown) the hops are M Y and M² Y. What
a node would hear of itself is taken out: M_vv Y_v at one hop, (M²)_vv Y_v at two - the return path
v → u → v, which exists wherever an edge has its reverse. Without that a model learns to copy the
label and fails where there is none.

Hops are made in double precision, so that what is left of a node that hears nobody but itself is
1e-16 and not 1e-7, which a division by the labelled share would make a full label. The own label is
taken out when rows are asked for.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import njit

from impact_gnn import _native
from impact_gnn._native import plain_view
from impact_gnn.checks import InputError
from impact_gnn.engines.engine import Engine
from impact_gnn.engines.hop import ComputedColumns, mapped_hop, selected_hop
from impact_gnn.engines.memory import or_memory
from impact_gnn.engines.operator import Operator, row_blocks
from impact_gnn.graph import TemporalGraph
from impact_gnn.propagation.hops import own_relation
from impact_gnn.weighting import Weighting

NOTHING = 1e-9  # what is left of the own label's column, as a part of what was taken out, counts as zero up to here
# edges of the rows whose return paths are looked for in one pass over all edges
RANGE_EDGES = 1 << 24


def label_hops(
    graph: TemporalGraph,
    *,
    weighting: Weighting = "plain",
    hops: int = 1,
    engine: Engine | None = None,
    norm: str = "mean",
    self_loop: bool = False,
    renormalize: bool = True,
    relation: tuple[str, str, str] | None = None,
) -> list[Any]:
    """Shares of labels among the neighbours at one or two hops, own label excluded: a list of [N, Y] float32.

    Args:
        graph: A view made by `masked(cutoff)`: only labels that it holds are used.
        weighting: Name of a method, or a table over `graph.times`.
        hops: 1 or 2; the return path is only known exactly up to there.
        engine: Where to compute; `Memory()` by default.
        norm: "mean", "sym" or "sum".
        self_loop: As in `propagate`; the loop never carries a label.
        renormalize: Divide by the labelled share, so that rows sum to 1 wherever a labelled
            neighbour exists; otherwise they sum to that share.
        relation: As in `propagate`.

    Examples:
        >>> g = TemporalGraph(y=[0, 1, -1], time=[0, 1, 2], edge_index=[[0, 1, 1], [1, 0, 2]]).masked(2)
        >>> label_hops(g)[0]
        array([[0., 1.],
               [1., 0.],
               [0., 1.]], dtype=float32)
    """
    graph.hidden_from("label hops need")
    if hops not in (1, 2):
        raise InputError(
            f"hops={hops} must be 1 or 2: beyond that a node's own label cannot be excluded exactly."
        )
    engine = or_memory(engine)
    options = {"weighting": weighting, "norm": norm, "self_loop": self_loop}
    steps = engine.operators(hops, graph, own_relation(graph, relation), **options)  # type: ignore[arg-type]
    made = repeated_label_hops(
        steps, graph.label, graph.num_labels, engine, renormalize=renormalize
    )
    return engine.loaded(made)


def repeated_label_hops(
    steps: Sequence[Operator],
    label: np.ndarray,
    num_labels: int,
    engine: Engine,
    *,
    renormalize: bool = True,
    rows: np.ndarray | None = None,
) -> list[Any]:
    """One operation after the other on labels, own label excluded after each; for the nodes `rows`, or all.

    `label` holds codes [N], or probabilities [N, num_labels] with rows of zeros where nothing is
    known.
    """
    made = engine.hops(steps, label_columns(label, num_labels), rows=rows)
    shares = [own_share(steps[:k]) for k in range(1, len(steps) + 1)]
    if rows is not None:
        made = [*(selected_hop(hop, rows) for hop in made[:-1]), made[-1]]
        label, shares = label[rows], [own[rows] for own in shares]
    return [
        without_own(hop, label, own, renormalize) for hop, own in zip(made, shares, strict=True)
    ]


def label_columns(label: np.ndarray, num_labels: int) -> ComputedColumns:
    """Known labels as rows of zeros with a single one, unknown ones as zeros; probabilities as they are."""

    def columns(low: int, high: int) -> np.ndarray:
        if label.ndim == 2:
            return label[:, low:high].astype(np.float64)
        out = np.zeros((len(label), high - low))
        rows = np.flatnonzero((label >= low) & (label < high))
        out[rows, label[rows] - low] = 1
        return out

    return ComputedColumns(
        (len(label), num_labels), np.dtype(np.float64), (label, num_labels), columns
    )


def without_own(hop: Any, label: np.ndarray, own: np.ndarray, renormalize: bool) -> Any:
    """A label hop with the own label's share `own` [N] taken out, rows divided by what is left if asked; float32."""

    def change(values: np.ndarray, index: np.ndarray) -> np.ndarray:
        out, here = np.array(values, np.float64), label[index]
        if label.ndim == 2:
            taken = own[index, None] * here
            left = out - taken
            out = np.where(left > NOTHING * taken, left, 0)
        else:
            rows = np.flatnonzero(here >= 0)
            taken = own[index[rows]]
            left = out[rows, here[rows]] - taken
            out[rows, here[rows]] = np.where(left > NOTHING * taken, left, 0)
        if renormalize:
            share = out.sum(1, keepdims=True)
            out /= np.where(share > 0, share, 1)
        return out.astype(np.float32)

    return mapped_hop(hop, change, np.float32)


def own_share(path: Sequence[Operator]) -> np.ndarray:
    """diag(M) of one operation or diag(M″M′) of two: how much of itself a node hears, in float64."""
    first, last = path[0], path[-1]
    if len(path) > 2 or first.csr.num_sources != last.csr.num_targets:
        raise InputError(
            f"a path of {len(path)} steps cannot leave out the own label exactly; use one or two, and back."
        )
    out = np.empty(last.csr.num_targets)
    for low, high in row_blocks(last.csr, RANGE_EDGES):
        if len(path) == 1:
            out[low:high] = sum(_diagonal(last, low, high))
            continue
        back = first.column_scale[low:high] if first.norm == "sym" else 1.0
        out[low:high] = _return_paths(first, last, low, high) * last.row_scale[low:high] * back
        if last.self_loop:  # M = W + diag(added) on both sides
            (own, added), (own_last, added_last) = (
                _diagonal(first, low, high),
                _diagonal(last, low, high),
            )
            out[low:high] += own_last * added + own * added_last + added_last * added
    return out


def _diagonal(operator: Operator, low: int, high: int) -> tuple[Any, Any]:
    """What v = low .. high−1 hear of themselves: by edges of their own, and by the loop that the operation adds."""
    scale = operator.row_scale[low:high] * (
        operator.column_scale[low:high] if operator.norm == "sym" else 1.0
    )
    return _loops(low, high, *_arrays(operator)) * scale, scale if operator.self_loop else 0.0


def _return_paths(first: Operator, last: Operator, low: int, high: int) -> np.ndarray:
    """Σ_u w″_vu·scale_u·w′_uv for v = low .. high−1, the edges of all u in passing.

    The edges into v are held in memory with sorted sources. Each edge v → u of the first operation
    is then looked up among them; no row of u is held.
    """
    out = np.zeros(high - low)
    rows = _sorted_rows(low, high, *_arrays(last)[:3])
    there, back = _arrays(last)[3:], _arrays(first)
    parts = np.linspace(0, high - low, _native.available() + 1).astype(np.int64)
    scale = plain_view(first.row_scale)
    column = plain_view(last.column_scale) if last.norm == "sym" else np.empty(0)
    for begin, end in row_blocks(first.csr):
        tasks = [
            (a, b, low, begin, end, rows, there, back, scale, column, out)
            for a, b in itertools.pairwise(parts)
        ]
        _native.run(_returns, tasks, None)
        _native.release(first.edges.indices, first.edges.weight)
    return out


def _arrays(operator: Operator) -> tuple[np.ndarray, ...]:
    csr = operator.edges
    weight = np.ones(0, np.float32) if csr.weight is None else csr.weight
    arrays = csr.indptr, csr.indices, weight
    periods = operator.source_period, operator.target_period
    return (
        *map(plain_view, arrays),
        np.ascontiguousarray(operator.table),
        *map(plain_view, periods),
    )


@njit(nogil=True, cache=True)
def _loops(low, high, indptr, indices, weight, table, source_period, target_period):  # type: ignore[no-untyped-def]
    """Weight of the edges v → v, for the rows v = low .. high−1."""
    out = np.zeros(high - low)
    for v in range(low, high):
        for e in range(indptr[v], indptr[v + 1]):
            if indices[e] == v:
                out[v - low] += table[target_period[v], source_period[v]] * (
                    weight[e] if len(weight) else 1.0
                )
    return out


@njit(nogil=True, cache=True)
def _sorted_rows(low, high, indptr, indices, weight):  # type: ignore[no-untyped-def]
    """Rows low .. high−1 of a CSR with sources in increasing order, so that one can be looked up."""
    begin, end = indptr[low], indptr[high]
    borders = indptr[low : high + 1] - begin
    sources = indices[begin:end].copy()
    weights = weight[begin:end].copy() if len(weight) else weight
    for row in range(high - low):
        a, b = borders[row], borders[row + 1]
        order = np.argsort(sources[a:b])
        sources[a:b] = sources[a:b][order]
        if len(weight):
            weights[a:b] = weights[a:b][order]
    return borders, sources, weights


@njit(nogil=True, cache=True)
def _returns(from_row, to_row, low, begin, end, rows, there, back, scale, column, out):  # type: ignore[no-untyped-def]
    """Adds the ways v ← u ← v for the edges v → u into u = begin .. end−1; v − low is in from_row .. to_row−1.

    Threads share a block of u: each looks at all edges and takes those of its own v, and sums are
        made in one order.
    """
    borders, sources, weights = rows
    table, source_period, target_period = there
    indptr, indices, weight, back_table, back_source, back_target = back
    for u in range(begin, end):
        for e in range(indptr[u], indptr[u + 1]):
            v = np.int64(indices[e])
            row = v - low
            if row < from_row or row >= to_row:
                continue
            a, b = borders[row], borders[row + 1]
            at = a + np.searchsorted(sources[a:b], u)
            total = 0.0
            while at < b and sources[at] == u:
                total += weights[at] if len(weights) else 1.0
                at += 1
            if total > 0:
                total *= table[target_period[v], source_period[u]] * (
                    column[u] if len(column) else 1.0
                )
                home = back_table[back_target[u], back_source[v]] * (
                    weight[e] if len(weight) else 1.0
                )
                out[row] += total * home * scale[u]
