"""Assumptions 3 and 4: connections depend on the distance in time only, with one decay."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

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
from impact_gnn.diagnostics.connectivity_models import GROUPS, Fits, PairCounts, Share
from impact_gnn.diagnostics.view import View

# An assumption holds up to the first unexplained share, and is violated from the second on.
SEPARABLE = (0.05, 0.15)
COMMON = (0.01, 0.05)
STILL = 0.02  # share of variation by time below which connections do not depend on time


@dataclass(frozen=True, repr=False)
class Separability(AssumptionCheck):
    """How much of the time pattern of connections f(y, t)·g(y, ỹ, |t̃−t|) explains."""

    name = "separable connectivity"
    assumption = 3
    measure = "share of the time pattern of connections that f·g explains"

    # the same share of what g(y, ỹ, t̃−t) explains, in which past and future may differ
    symmetry: Share | None = None
    # connections counted per node of the neighbours' period, as GenPMP does
    per_node: Share | None = None
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


@dataclass(frozen=True, repr=False)
class Decay(AssumptionCheck):
    """How much of what f·g explains one decay h for all labels explains already."""

    name = "common decay"
    assumption = 4
    measure = "share of f·g that one decay for all classes explains"

    distances: list[int] = field(default_factory=list)
    h: list[float] = field(default_factory=list)
    of_all: Share | None = None  # share of the whole time pattern


def separability(view: View, pairs: PairCounts | None, fits: Fits | None) -> Separability:
    """Weighted R² of P(y, t, ỹ, t̃) = f(y, t)·g(y, ỹ, |t̃−t|) against a model without time.

    1 − Σ n_yt (P − f·g)² / Σ n_yt (P − P₀)², sampling noise subtracted from both by a
    bootstrap of the nodes. ỹ stands for the own label, the strongest other label, and the rest.
    Connections are counted in both directions.
    """
    if pairs is None or fits is None:
        why = (
            "Labels are known in fewer than three periods, so distances in time cannot be compared."
        )
        return Separability(NOT_TESTABLE, why if pairs else _missing(view))
    share = fits.share("separable").value
    sided = fits.share("sided").value
    sized = fits.share("sized").value
    pattern = f"the distance in time explains {share:.0%} of the time pattern of connections"
    if sided > share + 0.1 and sided >= sized:
        pattern += f"; {sided:.0%} if past and future may differ"
    elif sized > share + 0.1:
        pattern += f"; {sized:.0%} if periods are weighted by their nodes, as in GenPMP"
    sentences = {
        HOLDS: f"Connectivity is separable: {pattern}.",
        UNCERTAIN: f"Connectivity is partly separable: {pattern}.",
        VIOLATED: f"Connectivity is not separable: {pattern}.",
        NOT_TESTABLE: "Too few labelled neighbours to test whether connectivity is separable.",
    }
    conclusion = _conclude(
        fits,
        fits.share("separable"),
        SEPARABLE,
        sentences,
        if_still="Connections hardly depend on time, so no correction is needed.",
        if_unknown="Too few labelled neighbours to measure how connections depend on time.",
    )
    # Mean of g over the classes, weighted by their edges [groups, distances].
    weight = pairs.counts.sum((1, 2, 3))
    g = (weight[:, None, None] * fits.g).sum(0) / weight.sum()
    # Edges by own and neighbour's step [T, T].
    same = pairs.counts[:, 0].sum(0)
    different = pairs.counts[:, 1:].sum((0, 1))
    total = (same + different).sum(1)
    return Separability(
        **conclusion,
        symmetry=fits.share("separable", best="sided"),
        per_node=fits.share("sized"),
        with_sides=fits.share("sided"),
        steps=listed(pairs.steps),
        distances=listed(fits.distances),
        g={name: listed(group) for name, group in zip(GROUPS, g, strict=True)},
        same_label=listed(same / max(same.sum(), 1)),
        different_label=listed(different / max(different.sum(), 1)),
        alike=listed(same.sum(1) / np.where(total > 0, total, np.nan)),
    )


def decay(view: View, pairs: PairCounts | None, fits: Fits | None) -> Decay:
    """How much of what f·g(y, ỹ, Δ) explains is explained by f·a(y, ỹ)·h(Δ) already.

    The paper prints g equal for all pairs of labels; a(y, ỹ)·h(Δ) is what its argument needs.
    """
    if pairs is None or fits is None:
        why = "Labels are known in fewer than three periods, so no decay can be measured."
        return Decay(NOT_TESTABLE, why if pairs else _missing(view))
    share = fits.share("decay", best="separable")
    explained = f"one decay explains {share.value:.0%} of what separate decays explain"
    sentences = {
        HOLDS: f"All classes share one decay: {explained}.",
        UNCERTAIN: f"The decay of connections differs slightly between classes: {explained}.",
        VIOLATED: f"The decay of connections differs between classes: {explained}.",
        NOT_TESTABLE: "Too few labelled neighbours to compare the decays of classes.",
    }
    conclusion = _conclude(
        fits,
        share,
        COMMON,
        sentences,
        if_still="Connections hardly depend on time.",
        if_unknown="Too few labelled neighbours to measure a decay.",
    )
    return Decay(
        **conclusion,
        distances=listed(fits.distances),
        h=listed(fits.h),
        of_all=fits.share("decay"),
    )


def _missing(view: View) -> str:
    return view.notes[0] if view.own is None else "No edge joins two nodes whose labels are known."


def _conclude(
    fits: Fits,
    share: Share,
    bounds: tuple[float, float],
    sentences: dict[AssumptionStatus, str],
    *,
    if_still: str,
    if_unknown: str,
) -> dict[str, Any]:
    """Status, sentence, statistic and interval of a check, by name.

    The sentences `if_still` and `if_unknown` are for connections that do not depend on time, or
    that are too few to tell.
    """
    # Variation by time: what the model without time leaves unexplained, with its 95 % interval.
    left = fits.left["still"]
    half = 1.96 * float(np.std(fits.drawn["still"]))
    if left + half <= STILL * max(fits.total, 1e-300):
        return {"status": HOLDS, "sentence": if_still}
    if left <= half:
        return {"status": NOT_TESTABLE, "sentence": if_unknown}
    status = judge(1 - share.value, 1 - share.high, 1 - share.low, small=bounds[0], large=bounds[1])
    return {
        "status": status,
        "sentence": sentences[status],
        "statistic": share.value,
        "interval": (share.low, share.high),
    }
