"""Label hops: the known labels of neighbours as features, a node's own label excluded exactly.

With Y the one-hot matrix of known labels (zero rows where unknown) the hops are M Y and M² Y. What a node would
hear of itself is taken out: M_vv Y_v at one hop, (M²)_vv Y_v at two - the return path v → u → v, which exists
wherever an edge has its reverse. Without that a model learns to copy the label and fails where there is none.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import njit, prange

from impact_gnn.checks import InputError
from impact_gnn.graph import TemporalGraph
from impact_gnn.propagation.engine import Engine
from impact_gnn.propagation.hops import along, operator, own_relation
from impact_gnn.propagation.operator import Operator


def label_hops(
    graph: TemporalGraph,
    *,
    weighting: str | np.ndarray = "plain",
    hops: int = 1,
    engine: Engine | None = None,
    norm: str = "mean",
    self_loop: bool = False,
    renormalize: bool = True,
    relation: tuple[str, str, str] | None = None,
) -> list[np.ndarray]:
    """Shares of labels among the neighbours at one or two hops, own label excluded: a list of [N, Y] float32.

    Args:
        graph: A view made by `masked(cutoff)`: only labels that it holds are used.
        weighting: Name of a method, or a table over `graph.times`.
        hops: 1 or 2; the return path is only known exactly up to there.
        engine: Where to compute; `Memory()` by default.
        norm: "mean", "sym" or "sum".
        self_loop: As in `propagate`; the loop never carries a label.
        renormalize: Divide by the labelled share, so that rows sum to 1 wherever a labelled neighbour exists;
            otherwise they sum to that share.
        relation: As in `propagate`.

    Example:
        >>> g = TemporalGraph(y=[0, 1, -1], time=[0, 1, 2], edge_index=[[0, 1, 1], [1, 0, 2]]).masked(2)
        >>> label_hops(g)[0]
        array([[0., 1.],
               [1., 0.],
               [0., 1.]], dtype=float32)
    """
    if graph.cutoff is None:
        raise InputError("label hops need a view that hides the labels to predict; pass graph.masked(cutoff).")
    if hops not in (1, 2):
        raise InputError(f"hops={hops} must be 1 or 2: beyond that a node's own label cannot be excluded exactly.")
    assert graph.y is not None  # masked() refuses a graph without labels
    made = operator(graph, own_relation(graph, relation), weighting=weighting, norm=norm, self_loop=self_loop)
    known = one_hot(graph.y, graph.num_labels)
    found = along([made] * hops, known, engine=engine)
    return [without_self(hop, known, own_share([made] * k), renormalize) for k, hop in enumerate(found, start=1)]


def label_path(
    path: Sequence[Operator],
    label: np.ndarray,
    num_labels: int,
    *,
    renormalize: bool = True,
    engine: Engine | None = None,
) -> np.ndarray:
    """The label hop along a path of one or two operations that ends where it begins, such as paper-author-paper."""
    if len(path) not in (1, 2):
        raise InputError(f"a label path of {len(path)} steps cannot leave out the own label exactly; use one or two.")
    known = one_hot(label, num_labels)
    return without_self(along(path, known, engine=engine)[-1], known, own_share(path), renormalize)


def one_hot(label: np.ndarray, num_labels: int) -> np.ndarray:
    """Known labels as rows of zeros with a single one; unknown as zeros."""
    out = np.zeros((len(label), num_labels), np.float32)
    rows = np.flatnonzero(label >= 0)
    out[rows, label[rows]] = 1
    return out


def without_self(hop: np.ndarray, known: np.ndarray, own: np.ndarray, renormalize: bool) -> np.ndarray:
    """A label hop with the own label's share `own` [N] taken out, rows divided by what is left if asked."""
    out = np.array(hop, dtype=np.float32)
    rows, columns = np.nonzero(known)
    exact = out[rows, columns] - own[rows].astype(np.float32)
    # What is left of a node that hears nobody but itself is rounding, and would be blown up by the division.
    out[rows, columns] = np.where(exact > 1e-6 * np.maximum(own[rows], 1e-30), exact, 0)
    if renormalize:
        share = out.sum(1, keepdims=True, dtype=np.float64)
        out /= np.where(share > 0, share, 1).astype(np.float32)
    return out


def own_share(path: Sequence[Operator]) -> np.ndarray:
    """diag(M) of one operation or diag(M″M′) of two: how much of itself a node hears, in float64."""
    first, last = path[0], path[-1]
    added = last.row_scale * last.column_scale if last.self_loop else 0.0
    if len(path) == 1:
        return _loops(*_arrays(last)) * last.row_scale * last.column_scale + added
    back = _arrays(first)
    ordered = _sorted_rows(*back[:3])
    scale = first.row_scale * last.column_scale
    arguments = (*_arrays(last), back[0], *ordered, *back[3:], scale)
    trips = _round_trips(*arguments) * last.row_scale * first.column_scale
    if not last.self_loop:
        return trips
    loops = _loops(*_arrays(last)) * last.row_scale * last.column_scale
    return trips + 2 * loops * added + added**2


def _arrays(made: Operator) -> tuple[np.ndarray, ...]:
    csr = made.csr
    weight = np.ones(0, np.float32) if csr.weight is None else csr.weight
    return csr.indptr, csr.indices, weight, made.table, made.source_period, made.target_period


@njit(parallel=True, nogil=True, cache=True)
def _loops(indptr, indices, weight, table, source_period, target_period):  # type: ignore[no-untyped-def]
    """Weight of the edges v → v."""
    out = np.zeros(len(indptr) - 1)
    for v in prange(len(out)):
        for e in range(indptr[v], indptr[v + 1]):
            if indices[e] == v:
                out[v] += table[target_period[v], source_period[v]] * (weight[e] if len(weight) else 1.0)
    return out


@njit(parallel=True, nogil=True, cache=True)
def _sorted_rows(indptr, indices, weight):  # type: ignore[no-untyped-def]
    """The rows of a CSR with sources in increasing order, so that one can be looked up."""
    sources, weights = indices.copy(), weight.copy()
    for v in prange(len(indptr) - 1):
        low, high = indptr[v], indptr[v + 1]
        order = np.argsort(indices[low:high])
        sources[low:high] = indices[low:high][order]
        if len(weight):
            weights[low:high] = weight[low:high][order]
    return sources, weights


@njit(parallel=True, nogil=True, cache=True)
def _round_trips(  # type: ignore[no-untyped-def]
    indptr, indices, weight, table, source_period, target_period,
    back_indptr, back_indices, back_weight, back_table, back_source_period, back_target_period, scale,
):  # fmt: skip
    """Σ_u w_vu·w′_uv·scale_u: the way v ← u ← v; the second operation's sources are sorted within rows."""
    out = np.zeros(len(indptr) - 1)
    for v in prange(len(out)):
        for e in range(indptr[v], indptr[v + 1]):
            u = indices[e]
            low, high = back_indptr[u], back_indptr[u + 1]
            at = low + np.searchsorted(back_indices[low:high], v)
            total = 0.0
            while at < high and back_indices[at] == v:
                total += back_weight[at] if len(back_weight) else 1.0
                at += 1
            if total > 0:
                here = table[target_period[v], source_period[u]] * (weight[e] if len(weight) else 1.0)
                out[v] += here * back_table[back_target_period[u], back_source_period[v]] * total * scale[u]
    return out
