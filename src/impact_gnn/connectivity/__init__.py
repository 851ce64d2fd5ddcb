"""Relative connectivity (Algorithm 3): who the neighbours of a node are, by label and time."""

from __future__ import annotations

import numpy as np

from impact_gnn import checks
from impact_gnn._array import Array, periods
from impact_gnn.checks import InputError
from impact_gnn.connectivity.counting import codes, count_pairs
from impact_gnn.connectivity.table import DENSE_BYTES, RelativeConnectivity

__all__ = ["DENSE_BYTES", "FORMS", "RelativeConnectivity", "relative_connectivity"]

FORMS = ("unbiased", "printed")


def relative_connectivity(
    edge_index: Array,
    label: Array,
    time: Array,
    *,
    num_labels: int,
    cutoff: int,
    form: str = "unbiased",
) -> RelativeConnectivity:
    """Estimates P(y, t, ỹ, t̃) = f(y, t)·g(y, ỹ, |t̃−t|), the mix of neighbours of nodes with label y and time t.

    1. `counted`: P̂ = pairs (y,t) ← (ỹ,t̃) with both labels known, over all in-edges of the nodes
        (y,t).
    2. `g`: ĝ(y,ỹ,Δ) = Σ_t [P̂(y,t,ỹ,t+Δ) + P̂(y,t,ỹ,t−Δ)] / Σ_t [f̂(y,t) + f̂(y,t)], f̂(y,t) = Σ_ỹ
       P̂(y,t,ỹ,t), so that Σ_ỹ ĝ(y,ỹ,0) = 1.
    3. `extended`: entries with t or t̃ at or after the cutoff are ĝ(y,ỹ,|t̃−t|) / Σ_y' Σ_t'
        ĝ(y,y',|t'−t|).

    "unbiased" gives each of the two f̂(y,t) only to those t for which t+Δ, or t−Δ, is a known time.
    Unlabelled neighbours of the past are handed to the labels found at the same (y, t, t̃). In
    `extended` the Δ that no two known times have (`unobserved`) are interpolated from the others,
    the counted entries of a row are scaled to the mass that ĝ gives the known times, and rows (y,
    t) without neighbours are drawn from ĝ: every row sums to 1, except that a label never seen with
    a labelled neighbour has rows of zeros.

    "printed" is Algorithm 3 to the letter: the denominator also holds terms with t−Δ before the
    first time, which the numerator cannot have, so ĝ falls short for Δ > 0; unobserved Δ stay zero,
    and rows of known times, made of counted and drawn entries, do not sum to 1.

    `edge_index` [2, E] runs source → target; `label` is −1 where unknown. Labels at or after the
    `cutoff` are set aside before anything is read. Every edge counts once for each time it is
    listed, self-loops included.

    Examples:
        >>> edge_index = np.array([[0, 1, 2, 3, 0, 2], [1, 0, 3, 2, 2, 0]])
        >>> c = relative_connectivity(edge_index, [0, 0, 0, 0, -1], [0, 0, 1, 1, 2], num_labels=1, cutoff=2)
        >>> c.counted[0, :, 0]
        array([[0.66666667, 0.33333333, 0. ],
               [0.33333333, 0.66666667, 0. ],
               [0. , 0. , 0. ]])
        >>> c.g[0, 0], c.unobserved[0]
        (array([1. , 0.5, 0. ]), array([False, False, True]))
        >>> c.row(label=0, time=2)
        array([[0.25, 0.25, 0.5 ]])
    """
    checks.choice("form", form, FORMS)
    num_labels = checks.whole_number("num_labels", num_labels)
    cutoff = checks.whole_number("cutoff", cutoff)
    if num_labels < 1:
        raise InputError(f"num_labels={num_labels} leaves no class; give the number of classes.")
    moment = checks.whole_numbers("time", time)
    moment = checks.node_times("time", moment, len(moment))
    if len(moment) == 0:
        raise InputError("time is empty, so there are no nodes; give one time per node.")
    known = checks.labels("label", label, len(moment))
    times, period = periods(moment)
    num_known = int(np.searchsorted(times, cutoff))
    # What is grouped by distance holds a few numbers for every two times.
    checks.fits(
        f"connectivity of {len(times):,} x {len(times):,} times",
        64 * len(times) ** 2,
        checks.FEWER_PERIODS,
    )
    code = codes(known, period, num_labels=num_labels, num_times=len(times), num_known=num_known)
    pairs = count_pairs(edge_index, code, num_labels * len(times), len(times))
    if pairs.known.nnz == 0:
        problem = f"no edge joins two nodes whose labels are known before cutoff={cutoff}, so there is nothing to count"
        raise InputError(f"{problem}; choose a later cutoff or add labels.")
    return RelativeConnectivity(
        times=times, num_labels=num_labels, num_known=num_known, form=form, pairs=pairs
    )
