"""Assumptions 3 and 4: do connections depend on the distance in time only, and fade alike for all labels?"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from impact_gnn.checks import InputError
from impact_gnn.connectivity import relative_connectivity
from impact_gnn.diagnostics.finding import CANNOT_TELL, DOUBTFUL, FAILS, HOLDS, Finding, Verdict, judge, listed
from impact_gnn.diagnostics.models import Fits, Share
from impact_gnn.diagnostics.pairs import GROUPS, PairCounts
from impact_gnn.diagnostics.view import View

SEPARABLE_SMALL, SEPARABLE_LARGE = 0.05, 0.15
"""Up to the first left unexplained f·g counts as right, from the second on as wrong."""

COMMON_SMALL, COMMON_LARGE = 0.01, 0.05
"""The same for one decay."""

STILL = 0.02
"""Connections whose dependence on time is below this share do not depend on time."""

MOST_PAIRS, MOST_CURVES = 4, 8


@dataclass(frozen=True)
class Curve:
    """Relative connectivity of a pair of labels: one row of `share` per own time, a column per neighbour's time."""

    label: int
    neighbour: int
    edges: int
    own_times: list[int]
    neighbour_times: list[int]
    share: list[list[float]]


@dataclass(frozen=True, repr=False)
class Separability(Finding):
    """How much of the time pattern of connections f(y, t)·g(y, ỹ, |t̃−t|) explains.

    Attributes:
        symmetry: The same share among that which g(y, ỹ, t̃−t) explains, with past and future apart.
        per_node: Share explained when connections are counted per node of the neighbours' period, as GenPMP does.
        with_sides: Share explained when past and future may differ.
        steps: First time of every step [T].
        distances: Distances between steps [D].
        g: The fitted g of every group of neighbours [D].
        same_label: Edges by own and neighbour's step between equal labels, as shares [T, T].
        different_label: And between different ones.
        curves: The strongest pairs of labels.
    """

    name = "separable connectivity"
    assumption = 3
    measure = "share of the time pattern of connections that f·g explains"

    symmetry: Share | None = None
    per_node: Share | None = None
    with_sides: Share | None = None
    steps: list[int] = field(default_factory=list)
    distances: list[int] = field(default_factory=list)
    g: dict[str, list[float]] = field(default_factory=dict)
    same_label: list[list[float]] = field(default_factory=list)
    different_label: list[list[float]] = field(default_factory=list)
    curves: list[Curve] = field(default_factory=list)


@dataclass(frozen=True, repr=False)
class Decay(Finding):
    """How much of what f·g explains one decay h for all labels explains already; `of_all`, of the whole pattern."""

    name = "common decay"
    assumption = 4
    measure = "share of f·g that one decay for all labels explains"

    distances: list[int] = field(default_factory=list)
    h: list[float] = field(default_factory=list)
    of_all: Share | None = None


def separability(view: View, pairs: PairCounts | None, fits: Fits | None) -> Separability:
    """Weighted R² of P(y, t, ỹ, t̃) = f(y, t)·g(y, ỹ, |t̃−t|) against neighbours that do not depend on time.

    1 − Σ n_yt (P − f·g)² / Σ n_yt (P − P₀)², sampling noise taken out of both by a bootstrap of the nodes; ỹ stands
    for the own label, the one met most often, and the rest. Connections are taken in both directions.
    """
    if pairs is None or fits is None:
        why = "Labels are known in fewer than three periods, so distances in time cannot be compared."
        return Separability(CANNOT_TELL, why if pairs else _missing(view))
    weight = pairs.counts.sum((1, 2, 3))
    g = (weight[:, None, None] * fits.g).sum(0) / weight.sum()
    same, different = pairs.counts[:, 0].sum(0), pairs.counts[:, 1:].sum((0, 1))
    series = (
        fits.share("separable", best="sided"), fits.share("sized"), fits.share("sided"),
        listed(pairs.steps), listed(fits.distances), {name: listed(part) for name, part in zip(GROUPS, g, strict=True)},
        listed(same / max(same.sum(), 1)), listed(different / max(different.sum(), 1)), _curves(view),
    )  # fmt: skip
    if (verdict := _still(fits)) is not None:
        why = "Too few labelled neighbours to see how connections depend on time."
        still = "Connections hardly depend on time, so there is nothing to correct for."
        return Separability(verdict, still if verdict is HOLDS else why, None, None, *series)
    share = fits.share("separable")
    verdict = _judged(share, SEPARABLE_SMALL, SEPARABLE_LARGE)
    sentence = _separable_sentence(verdict, share.value, fits)
    return Separability(verdict, sentence, share.value, (share.low, share.high), *series)


def decay(view: View, pairs: PairCounts | None, fits: Fits | None) -> Decay:
    """How much of what f·g(y, ỹ, Δ) explains is explained by f·a(y, ỹ)·h(Δ) already.

    The paper prints g equal for all pairs of labels; a(y, ỹ)·h(Δ) is what its argument needs.
    """
    if pairs is None or fits is None:
        why = "Labels are known in fewer than three periods, so no decay can be seen."
        return Decay(CANNOT_TELL, why if pairs else _missing(view))
    series = listed(fits.distances), listed(fits.h), fits.share("decay")
    if (verdict := _still(fits)) is not None:
        why = "Too few labelled neighbours to see a decay."
        return Decay(verdict, "Connections hardly depend on time." if verdict is HOLDS else why, None, None, *series)
    share = fits.share("decay", best="separable")
    verdict = _judged(share, COMMON_SMALL, COMMON_LARGE)
    explained = f"one decay explains {share.value:.0%} of what separate ones do"
    sentence = {
        HOLDS: f"All labels share one decay: {explained}.",
        DOUBTFUL: f"Labels differ a little in how their connections fade: {explained}.",
        FAILS: f"Labels differ in how their connections fade: {explained}.",
        CANNOT_TELL: "Too few labelled neighbours to compare the decays of labels.",
    }[verdict]
    return Decay(verdict, sentence, share.value, (share.low, share.high), *series)


def _missing(view: View) -> str:
    return view.notes[0] if view.own is None else "No edge joins two nodes whose labels are known."


def _still(fits: Fits) -> Verdict | None:
    """The verdict where time hardly matters or cannot be seen to matter; None where it matters."""
    low, high = fits.moving()
    if low > 0 and high > STILL:
        return None
    return HOLDS if high <= STILL else CANNOT_TELL


def _judged(share: Share, small: float, large: float) -> Verdict:
    return judge(1 - share.value, 1 - share.high, 1 - share.low, small=small, large=large)


def _curves(view: View) -> list[Curve]:
    """Relative connectivity of the strongest pairs of labels at several times: the paper's figure."""
    label, classes = view.label, view.masked.num_labels
    try:
        connectivity = relative_connectivity(
            view.edges, label, view.masked.time, num_labels=classes, cutoff=view.cutoff
        )
    except InputError:  # nothing to count
        return []
    source, target = view.edges
    both = (label[source] >= 0) & (label[target] >= 0)
    met = np.bincount(label[target[both]] * classes + label[source[both]], minlength=classes**2)
    # The strongest pairs are nearly always of one label; two of each kind show more.
    alike = np.arange(classes**2) % (classes + 1) == 0
    chosen = [
        int(pair)
        for kind in (alike, ~alike)
        for pair in np.argsort(-np.where(kind, met, -1), kind="stable")[: MOST_PAIRS // 2]
        if kind[pair] and met[pair]
    ]
    times = view.masked.times[view.known]
    out = []
    for pair in chosen:
        own, neighbour = divmod(pair, classes)
        mine = view.masked.period[target[both & (label[target] == own)]]
        degree = np.bincount(mine, minlength=len(view.masked.times))[view.known]
        shown = np.sort(np.argsort(-degree, kind="stable")[:MOST_CURVES])
        shown = shown[degree[shown] > 0]
        share = [connectivity.row(own, int(t))[neighbour, view.known] for t in times[shown]]
        out.append(Curve(own, neighbour, int(met[pair]), listed(times[shown]), listed(times), listed(share)))
    return out


def _separable_sentence(verdict: Verdict, value: float, fits: Fits) -> str:
    share = f"{value:.0%} of how connections vary with time follows from the distance in time"
    sided, sized = fits.share("sided").value, fits.share("sized").value
    if sided > value + 0.1 and sided >= sized:
        share += f"; {sided:.0%} if past and future may differ"
    elif sized > value + 0.1:
        share += f"; {sized:.0%} when periods are weighed by their nodes, as GenPMP does"
    return {
        HOLDS: f"Connectivity is separable: {share}.",
        DOUBTFUL: f"Connectivity is separable in part: {share}.",
        FAILS: f"Connectivity is not separable: only {share}.",
        CANNOT_TELL: "Too few labelled neighbours to tell whether connectivity is separable.",
    }[verdict]
