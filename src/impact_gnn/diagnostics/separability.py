"""Assumption 3: does the mix of neighbours depend on the two times through their distance only?"""

from __future__ import annotations

from typing import Any

import numpy as np

from impact_gnn.checks import InputError
from impact_gnn.connectivity import relative_connectivity
from impact_gnn.diagnostics.finding import CANNOT_TELL, DOUBTFUL, FAILS, HOLDS, Finding, cannot_tell, judge, plain
from impact_gnn.diagnostics.models import Fits
from impact_gnn.diagnostics.pairs import GROUPS, PairCounts
from impact_gnn.diagnostics.view import View

NAME = "separable connectivity"
MEASURE = "share of the time pattern of connections that f·g explains"
SMALL, LARGE = 0.05, 0.15
"""Up to `SMALL` left unexplained f·g counts as right, from `LARGE` on as wrong."""

STILL = 0.02
"""Connections whose dependence on time is below this share do not depend on time."""

MOST_PAIRS = 4
MOST_CURVES = 8


def separability(view: View, pairs: PairCounts | None, fits: Fits | None) -> Finding:
    """Weighted R² of P(y, t, ỹ, t̃) = f(y, t)·g(y, ỹ, |t̃−t|) against neighbours that do not depend on time.

    1 − Σ n_yt (P − f·g)² / Σ n_yt (P − P₀)², sampling noise taken out of both by a bootstrap of the nodes; ỹ stands
    for the own label, the one met most often, and the rest. Connections are taken in both directions.

    `series` holds: `symmetry`, the same share among that which g(y, ỹ, t̃−t) explains, with past and future apart;
    `per_node`, the share explained when P is counted per node of the neighbours' period, as GenPMP does; the fitted
    g; same-label and different-label connectivity by both times; and the curves of the strongest pairs of labels.
    """
    if pairs is None:
        return cannot_tell(NAME, 3, MEASURE, missing(view))
    if fits is None:
        why = "Labels are known in fewer than three periods, so distances in time cannot be compared."
        return cannot_tell(NAME, 3, MEASURE, why, {"from_past": view.from_past})
    series = _series(view, pairs, fits)
    low, high = fits.moving()
    if low <= 0 or high <= STILL:
        verdict = HOLDS if high <= STILL else CANNOT_TELL
        return Finding(NAME, 3, MEASURE, None, None, verdict, _still(verdict), plain(series))
    value, low, high = fits.share("separable")
    verdict = judge(1 - value, 1 - high, 1 - low, small=SMALL, large=LARGE)
    sentence = _sentence(verdict, value, fits)
    return Finding(NAME, 3, MEASURE, value, (low, high), verdict, sentence, plain(series))


def missing(view: View) -> str:
    """Why there are no counts."""
    return view.notes[0] if view.own is None else "No edge joins two nodes whose labels are known."


def _series(view: View, pairs: PairCounts, fits: Fits) -> dict[str, Any]:
    weight = pairs.counts.sum((1, 2, 3))
    g = (weight[:, None, None] * fits.g).sum(0) / weight.sum()
    same, different = pairs.counts[:, 0].sum(0), pairs.counts[:, 1:].sum((0, 1))
    return {
        "symmetry": fits.share("separable", best="sided"),
        "per_node": fits.share("sized"),
        "with_sides": fits.share("sided"),
        "from_past": view.from_past,
        "steps": pairs.steps,
        "step_width": pairs.width,
        "distances": fits.distances,
        "edges_at": fits.edges_at,
        "g": dict(zip(GROUPS, g, strict=True)),
        "same_label": same / max(same.sum(), 1),
        "different_label": different / max(different.sum(), 1),
        "curves": _curves(view),
    }


def _curves(view: View) -> list[dict[str, Any]]:
    """ĝ of the strongest pairs of labels, and their relative connectivity at several times: the paper's figure."""
    assert view.own is not None
    label, classes = view.label, view.masked.num_labels
    try:
        found = relative_connectivity(
            view.own.edge_index, label, view.masked.time, num_labels=classes, cutoff=view.cutoff
        )
    except InputError:  # nothing to count
        return []
    source, target = view.own.edge_index
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
        degree = np.bincount(view.masked.period[target[both & (label[target] == own)]], minlength=len(found.times))
        shown = np.sort(np.argsort(-degree[view.known], kind="stable")[:MOST_CURVES])
        shown = shown[degree[view.known][shown] > 0]
        out.append(
            {
                "label": own,
                "neighbour": neighbour,
                "edges": int(met[pair]),
                "distances": found.deltas,
                "g": found.pair(own, neighbour),
                "own_times": times[shown],
                "neighbour_times": times,
                "share": [found.row(own, int(t))[neighbour, view.known] for t in times[shown]],
            }
        )
    return out


def _still(verdict: str) -> str:
    if verdict == HOLDS:
        return "Connections hardly depend on time, so there is nothing to correct for."
    return "Too few labelled neighbours to see how connections depend on time."


def _sentence(verdict: str, value: float, fits: Fits) -> str:
    share = f"{value:.0%} of how connections vary with time follows from the distance in time"
    sided, sized = fits.share("sided")[0], fits.share("sized")[0]
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
