"""Relative connectivity (Algorithm 3): the neighbours of a node by label and time."""

from __future__ import annotations

import numpy as np

from impact_gnn import checks
from impact_gnn._array import Array, periods
from impact_gnn.checks import InputError
from impact_gnn.connectivity.counting import codes, count_pairs
from impact_gnn.connectivity.table import RelativeConnectivity

__all__ = ["FORMS", "RelativeConnectivity", "relative_connectivity"]

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
    """Estimate P(y, t, ỹ, t̃) = f(y, t)·g(y, ỹ, |t̃−t|): neighbours of nodes (y, t) by (ỹ, t̃).

    1. `counted`: P̂ = pairs (y,t) ← (ỹ,t̃) with both labels known, over all in-edges of the nodes
       (y,t).
    2. `g`: ĝ(y,ỹ,Δ) = Σ_t [P̂(y,t,ỹ,t+Δ) + P̂(y,t,ỹ,t−Δ)] / Σ_t [f̂(y,t) + f̂(y,t)] with
       f̂(y,t) = Σ_ỹ P̂(y,t,ỹ,t), so that Σ_ỹ ĝ(y,ỹ,0) = 1.
    3. `extended`: entries with t or t̃ at or after the cutoff are
       ĝ(y,ỹ,|t̃−t|) / Σ_y' Σ_t' ĝ(y,y',|t'−t|).

    "unbiased" counts each of the two f̂(y,t) only for those t for which t+Δ, or t−Δ, is a known
    time. Unlabelled neighbours of the past are distributed to the labels at the same (y, t, t̃). In
    `extended` the Δ that no two known times have (`unobserved`) are interpolated from the others,
    the counted entries of a row are scaled to the mass that ĝ gives the known times, and rows (y,
    t) without neighbours come from ĝ: every row sums to 1, except that a label without labelled
    neighbours has rows of zeros.

    "printed" is Algorithm 3 to the letter: the denominator also has terms with t−Δ before the first
    time, which the numerator cannot have, so ĝ is too small for Δ > 0; unobserved Δ stay zero, and
    rows of known times, with entries from counts and from ĝ, do not sum to 1.

    `edge_index` [2, E] runs source → target; `label` is −1 where unknown. Labels at or after the
    `cutoff` are never read. Every edge counts once for each time it is listed, self-loops included.

    Examples:
        >>> edge_index = np.array([[0, 1, 2, 3, 0, 2], [1, 0, 3, 2, 2, 0]])
        >>> label, time = [0, 0, 0, 0, -1], [0, 0, 1, 1, 2]
        >>> c = relative_connectivity(edge_index, label, time, num_labels=1, cutoff=2)
        >>> c.counted[0, :, 0]
        array([[0.66666667, 0.33333333, 0. ],
               [0.33333333, 0.66666667, 0. ],
               [0. , 0. , 0. ]])
        >>> c.g[0, 0], c.unobserved[0]
        (array([1. , 0.5, 0. ]), array([False, False, True]))
        >>> c.extended[0, 2]
        array([[0.25, 0.25, 0.5 ]])
    """
    checks.choice("form", form, FORMS)
    num_labels = checks.whole_number("num_labels", num_labels)
    cutoff = checks.whole_number("cutoff", cutoff)
    if num_labels < 1:
        raise InputError(f"num_labels={num_labels} must be at least 1; pass the number of classes.")
    moment = checks.whole_numbers("time", time)
    moment = checks.node_times("time", moment, len(moment))
    if len(moment) == 0:
        raise InputError("time is empty, so there are no nodes; pass one time per node.")
    known = checks.labels("label", label, len(moment))
    times, period = periods(moment)
    # Times before the cutoff; they are the first ones of `times`.
    num_known = int(np.searchsorted(times, cutoff))
    # Groups by distance take a few numbers for every two times.
    checks.fits(
        f"connectivity of {len(times):,} x {len(times):,} times",
        64 * len(times) ** 2,
        checks.FEWER_PERIODS,
    )
    # One number per node for its label and period [N]; later labels count as unknown.
    code = codes(known, period, num_labels=num_labels, num_times=len(times), num_known=num_known)
    pairs = count_pairs(edge_index, code, num_labels * len(times), len(times))
    if pairs.known.nnz == 0:
        raise InputError(
            f"no edge connects two nodes whose labels are known before cutoff={cutoff}, "
            "so there is nothing to count; choose a later cutoff or add labels."
        )
    return RelativeConnectivity(
        times=times, num_labels=num_labels, num_known=num_known, form=form, pairs=pairs
    )
