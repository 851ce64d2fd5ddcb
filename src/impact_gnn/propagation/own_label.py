"""What a node would hear of its own label along a path, and how it is taken out of a label hop."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import njit, prange

from impact_gnn.propagation.operator import Operator


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
        return loops(0, *_arrays(last)) * last.row_scale * last.column_scale + added
    back = _arrays(first)
    ordered = sorted_rows(*back[:3])
    scale = first.row_scale * last.column_scale
    arguments = (*_arrays(last), back[0], *ordered, *back[3:], scale)
    trips = _round_trips(*arguments) * last.row_scale * first.column_scale
    if not last.self_loop:
        return trips
    own = loops(0, *_arrays(last)) * last.row_scale * last.column_scale
    return trips + 2 * own * added + added**2


def _arrays(made: Operator) -> tuple[np.ndarray, ...]:
    csr = made.csr
    weight = np.ones(0, np.float32) if csr.weight is None else csr.weight
    return csr.indptr, csr.indices, weight, made.table, made.source_period, made.target_period


@njit(parallel=True, nogil=True, cache=True)
def loops(first, indptr, indices, weight, table, source_period, target_period):  # type: ignore[no-untyped-def]
    """Weight of the edges v → v, for the rows of v = first, first + 1, ..."""
    out = np.zeros(len(indptr) - 1)
    for row in prange(len(out)):
        v = first + row
        for e in range(indptr[row], indptr[row + 1]):
            if indices[e] == v:
                out[row] += table[target_period[v], source_period[v]] * (weight[e] if len(weight) else 1.0)
    return out


@njit(parallel=True, nogil=True, cache=True)
def sorted_rows(indptr, indices, weight):  # type: ignore[no-untyped-def]
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
