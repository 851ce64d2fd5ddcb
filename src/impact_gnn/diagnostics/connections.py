"""Assumptions 3 and 4: do connections depend on the distance in time only, and fade alike for all labels?"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from impact_gnn.checks import InputError
from impact_gnn.connectivity import relative_connectivity
from impact_gnn.diagnostics.assumption import (
    HOLDS,
    NOT_TESTABLE,
    UNCERTAIN,
    VIOLATED,
    AssumptionCheck,
    AssumptionStatus,
    judge,
    listed,
)
from impact_gnn.diagnostics.models import GROUPS, Fits, PairCounts, Share
from impact_gnn.diagnostics.view import View

# Up to the first left unexplained an assumption counts as right, from the second on as wrong.
SEPARABLE, COMMON = (0.05, 0.15), (0.01, 0.05)
STILL = 0.02  # connections whose dependence on time is below this share do not depend on time
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
class Separability(AssumptionCheck):
    """How much of the time pattern of connections f(y, t)·g(y, ỹ, |t̃−t|) explains."""

    name = "separable connectivity"
    assumption = 3
    measure = "share of the time pattern of connections that f·g explains"

    symmetry: Share | None = (
        None  # the same share of that which g(y, ỹ, t̃−t) explains, with past and future apart
    )
    per_node: Share | None = (
        None  # connections counted per node of the neighbours' period, as GenPMP does
    )
    with_sides: Share | None = None  # past and future may differ
    steps: list[int] = field(default_factory=list)  # first time of every step [T]
    distances: list[int] = field(default_factory=list)  # between steps [D]
    # fitted, of every group of neighbours [D]
    g: dict[str, list[float]] = field(default_factory=dict)
    # Edges by own and neighbour's step, as shares [T, T].
    same_label: list[list[float]] = field(default_factory=list)
    different_label: list[list[float]] = field(default_factory=list)
    # share of neighbours of the same label, by own step
    alike: list[float | None] = field(default_factory=list)
    curves: list[Curve] = field(default_factory=list)  # the strongest pairs of labels


@dataclass(frozen=True, repr=False)
class Decay(AssumptionCheck):
    """How much of what f·g explains one decay h for all labels explains already; `of_all`, of the whole pattern."""

    name = "common decay"
    assumption = 4
    measure = "share of f·g that one decay for all labels explains"

    distances: list[int] = field(default_factory=list)
    h: list[float] = field(default_factory=list)
    of_all: Share | None = None


def separability(view: View, pairs: PairCounts | None, fits: Fits | None) -> Separability:
    """Weighted R² of P(y, t, ỹ, t̃) = f(y, t)·g(y, ỹ, |t̃−t|) against neighbours that do not depend on time.

    1 − Σ n_yt (P − f·g)² / Σ n_yt (P − P₀)², sampling noise taken out of both by a bootstrap of the
    nodes; ỹ stands for the own label, the one met most often, and the rest. Connections are taken
    in both directions.
    """
    if pairs is None or fits is None:
        why = (
            "Labels are known in fewer than three periods, so distances in time cannot be compared."
        )
        return Separability(NOT_TESTABLE, why if pairs else _missing(view))
    weight = pairs.counts.sum((1, 2, 3))
    g = (weight[:, None, None] * fits.g).sum(0) / weight.sum()
    same, different = pairs.counts[:, 0].sum(0), pairs.counts[:, 1:].sum((0, 1))
    series = (
        fits.share("separable", best="sided"),
        fits.share("sized"),
        fits.share("sided"),
        listed(pairs.steps),
        listed(fits.distances),
        {name: listed(part) for name, part in zip(GROUPS, g, strict=True)},
        listed(same / max(same.sum(), 1)),
        listed(different / max(different.sum(), 1)),
        listed(same.sum(1) / np.where((both := (same + different).sum(1)) > 0, both, np.nan)),
        _curves(view),
    )
    share, sided, sized = (fits.share(model).value for model in ("separable", "sided", "sized"))
    pattern = f"{share:.0%} of how connections vary with time follows from the distance in time"
    if sided > share + 0.1 and sided >= sized:
        pattern += f"; {sided:.0%} if past and future may differ"
    elif sized > share + 0.1:
        pattern += f"; {sized:.0%} when periods are weighed by their nodes, as GenPMP does"
    sentences = {
        HOLDS: f"Connectivity is separable: {pattern}.",
        UNCERTAIN: f"Connectivity is separable in part: {pattern}.",
        VIOLATED: f"Connectivity is not separable: only {pattern}.",
        NOT_TESTABLE: "Too few labelled neighbours to tell whether connectivity is separable.",
    }
    still = "Connections hardly depend on time, so there is nothing to correct for."
    unseen = "Too few labelled neighbours to see how connections depend on time."
    conclusion = _conclusion(fits, fits.share("separable"), SEPARABLE, sentences, still, unseen)
    return Separability(*(*conclusion, *series))


def decay(view: View, pairs: PairCounts | None, fits: Fits | None) -> Decay:
    """How much of what f·g(y, ỹ, Δ) explains is explained by f·a(y, ỹ)·h(Δ) already.

    The paper prints g equal for all pairs of labels; a(y, ỹ)·h(Δ) is what its argument needs.
    """
    if pairs is None or fits is None:
        why = "Labels are known in fewer than three periods, so no decay can be seen."
        return Decay(NOT_TESTABLE, why if pairs else _missing(view))
    series = listed(fits.distances), listed(fits.h), fits.share("decay")
    share = fits.share("decay", best="separable")
    explained = f"one decay explains {share.value:.0%} of what separate ones do"
    sentences = {
        HOLDS: f"All labels share one decay: {explained}.",
        UNCERTAIN: f"Labels differ a little in how their connections fade: {explained}.",
        VIOLATED: f"Labels differ in how their connections fade: {explained}.",
        NOT_TESTABLE: "Too few labelled neighbours to compare the decays of labels.",
    }
    still, unseen = (
        "Connections hardly depend on time.",
        "Too few labelled neighbours to see a decay.",
    )
    return Decay(*(*_conclusion(fits, share, COMMON, sentences, still, unseen), *series))


def _missing(view: View) -> str:
    return view.notes[0] if view.own is None else "No edge joins two nodes whose labels are known."


def _conclusion(
    fits: Fits,
    share: Share,
    bounds: tuple[float, float],
    sentences: dict[AssumptionStatus, str],
    still: str,
    unseen: str,
) -> tuple[AssumptionStatus, str, float | None, tuple[float, float] | None]:
    """AssumptionStatus, sentence, statistic and interval; `still` and `unseen` where time does not, or may not, matter."""
    # What depends on time at all: what `still` leaves, as a share of what is seen.
    left, half = fits.left["still"], 1.96 * float(np.std(fits.drawn["still"]))
    if left + half <= STILL * max(fits.seen, 1e-300):
        return HOLDS, still, None, None
    if left <= half:
        return NOT_TESTABLE, unseen, None, None
    status = judge(1 - share.value, 1 - share.high, 1 - share.low, small=bounds[0], large=bounds[1])
    return status, sentences[status], share.value, (share.low, share.high)


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
    strongest = [
        (kind, np.argsort(-np.where(kind, met, -1), kind="stable")) for kind in (alike, ~alike)
    ]
    chosen = [
        int(p) for kind, order in strongest for p in order[: MOST_PAIRS // 2] if kind[p] and met[p]
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
        out.append(
            Curve(
                own, neighbour, int(met[pair]), listed(times[shown]), listed(times), listed(share)
            )
        )
    return out
