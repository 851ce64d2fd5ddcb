"""Assumptions 3 and 4: connections depend on the distance in time only, with one decay."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from impact_gnn._array import safe_divide
from impact_gnn.diagnostics.assumption import (
    HOLDS,
    NOT_TESTABLE,
    AssumptionCheck,
    conclude,
    listed,
)
from impact_gnn.diagnostics.connectivity_models import GROUPS, Fits, PairCounts, Share, fit_models
from impact_gnn.diagnostics.entity_paths import EntityPath
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

    path: str = ""  # from target nodes through entities to target nodes; empty for direct edges
    num_entities: int = 0  # that join labelled nodes of different periods
    # the same share of what g(y, ỹ, t̃−t) explains, in which past and future may differ
    symmetry: Share | None = None
    # connections counted per node of the neighbours' period, as GenPMP does
    per_node: Share | None = None
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


def check_connections(view: View) -> list[tuple[Separability, Decay]]:
    """Check assumptions 3 and 4 on direct edges, or along every path through entities."""
    if view.own is not None:
        return [_check(view, None)]
    checks = []
    for path in view.paths:
        if path.num_joining:
            connected, common = _check(view, path)
            connected = replace(connected, path=path.name, num_entities=path.num_joining)
            checks.append((connected, common))
    # The first note says why there are no connections.
    why = view.notes[0]
    return checks or [(Separability(NOT_TESTABLE, why), Decay(NOT_TESTABLE, why))]


def _check(view: View, path: EntityPath | None) -> tuple[Separability, Decay]:
    pairs = PairCounts.of(view, path)
    why = "Labels are known in fewer than three periods, so distances in time cannot be compared."
    if pairs is None:
        why = "Nothing joins two nodes whose labels are known."
    if pairs is None or len(pairs.steps) < 3:
        return Separability(NOT_TESTABLE, why), Decay(NOT_TESTABLE, why)
    fits = fit_models(pairs, seed=view.seed)
    name = "" if path is None else path.name
    return separability(pairs, fits, name), decay(fits, name)


def separability(pairs: PairCounts, fits: Fits, path: str = "") -> Separability:
    """Weighted R² of P(y, t, ỹ, t̃) = f(y, t)·g(y, ỹ, |t̃−t|) against a model without time.

    1 − Σ n_yt (P − f·g)² / Σ n_yt (P − P₀)², sampling noise subtracted from both by a
    bootstrap of the nodes, or of the entities of a path. ỹ stands for the own label, the strongest
    other label, and the rest. Connections are counted in both directions.
    """
    # Shares of the time pattern that three models explain.
    share = fits.share("separable").value
    sided = fits.share("sided").value
    sized = fits.share("sized").value
    pattern = f"the distance in time explains {share:.0%} of the time pattern of connections"
    # Another model is named only where it explains clearly more than the assumption.
    if sided > share + 0.1 and sided >= sized:
        pattern += f"; {sided:.0%} if past and future may differ"
    elif sized > share + 0.1:
        pattern += f"; {sized:.0%} if periods are weighted by their nodes, as in GenPMP"
    along, units = _words(path)
    sentences = (
        f"Connectivity{along} is separable: {pattern}.",
        f"Connectivity{along} is partly separable: {pattern}.",
        f"Connectivity{along} is not separable: {pattern}.",
        f"Too few {units} to test whether connectivity is separable.",
    )
    conclusion = _conclude(
        fits,
        fits.share("separable"),
        SEPARABLE,
        sentences,
        if_still=f"Connections{along} hardly depend on time, so no correction is needed.",
        if_unknown=f"Too few {units} to measure how connections depend on time.",
    )
    # Mean of g over the classes, weighted by their edges [groups, distances].
    weight = pairs.counts.sum((1, 2, 3))
    weighted = weight[:, None, None] * fits.g
    g = weighted.sum(0) / weight.sum()
    # Edges by own and neighbour's step [T, T]; group 0 has the same label, 1 and 2 other labels.
    same = pairs.counts[:, 0].sum(0)
    different = pairs.counts[:, 1:].sum((0, 1))
    total = (same + different).sum(1)
    # Steps without neighbours are NaN here, and None in the list.
    alike = safe_divide(same.sum(1), total, np.nan)
    return Separability(
        **conclusion,
        symmetry=fits.share("separable", best="sided"),
        per_node=fits.share("sized"),
        steps=listed(pairs.steps),
        distances=listed(fits.distances),
        g=dict(zip(GROUPS, listed(g), strict=True)),
        same_label=listed(same / max(same.sum(), 1)),
        different_label=listed(different / max(different.sum(), 1)),
        alike=listed(alike),
    )


def decay(fits: Fits, path: str = "") -> Decay:
    """How much of what f·g(y, ỹ, Δ) explains is explained by f·a(y, ỹ)·h(Δ) already.

    The paper prints g equal for all pairs of labels; a(y, ỹ)·h(Δ) is what its argument needs.
    """
    # Relative to what the separable model explains.
    share = fits.share("decay", best="separable")
    explained = f"one decay explains {share.value:.0%} of what separate decays explain"
    along, units = _words(path)
    sentences = (
        f"All classes share one decay{along}: {explained}.",
        f"The decay{along} differs slightly between classes: {explained}.",
        f"The decay{along} differs between classes: {explained}.",
        f"Too few {units} to compare the decays of classes.",
    )
    conclusion = _conclude(
        fits,
        share,
        COMMON,
        sentences,
        if_still=f"Connections{along} hardly depend on time.",
        if_unknown=f"Too few {units} to measure a decay.",
    )
    return Decay(
        **conclusion,
        distances=listed(fits.distances),
        h=listed(fits.h),
        of_all=fits.share("decay"),
    )


def _words(path: str) -> tuple[str, str]:
    """Where connections are counted, and what they are too few of."""
    if path:
        return f" along {path}", f"entities along {path}"
    return "", "labelled neighbours"


def _conclude(
    fits: Fits,
    share: Share,
    thresholds: tuple[float, float],
    sentences: tuple[str, str, str, str],
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
    # Below the threshold even at the upper end of the interval.
    if left + half <= STILL * max(fits.total, 1e-300):
        return {"status": HOLDS, "sentence": if_still}
    # Not distinguishable from noise.
    if left <= half:
        return {"status": NOT_TESTABLE, "sentence": if_unknown}
    # Thresholds are for the share that is not explained.
    unexplained = (1 - share.high, 1 - share.low)
    conclusion = conclude(1 - share.value, unexplained, thresholds, sentences)
    return conclusion | {"statistic": share.value, "interval": (share.low, share.high)}
