"""Assumption 4: do connections between all pairs of labels fade in the same way?"""

from __future__ import annotations

from impact_gnn.diagnostics.finding import CANNOT_TELL, DOUBTFUL, FAILS, HOLDS, Finding, cannot_tell, judge, plain
from impact_gnn.diagnostics.models import Fits
from impact_gnn.diagnostics.pairs import PairCounts
from impact_gnn.diagnostics.separability import STILL, missing
from impact_gnn.diagnostics.view import View

NAME = "common decay"
MEASURE = "share of f·g that one decay for all labels explains"
SMALL, LARGE = 0.01, 0.05
"""Up to `SMALL` left unexplained the decay counts as common, from `LARGE` on not."""


def decay(view: View, pairs: PairCounts | None, fits: Fits | None) -> Finding:
    """How much of what f·g(y, ỹ, Δ) explains is explained by f·a(y, ỹ)·h(Δ) already.

    The paper prints g equal for all pairs of labels; a(y, ỹ)·h(Δ) is what its argument needs. `series` holds h.
    """
    if pairs is None:
        return cannot_tell(NAME, 4, MEASURE, missing(view))
    if fits is None:
        why = "Labels are known in fewer than three periods, so no decay can be seen."
        return cannot_tell(NAME, 4, MEASURE, why)
    series = {"distances": fits.distances, "h": fits.h, "edges_at": fits.edges_at, "of_all": fits.share("decay")}
    low, high = fits.moving()
    if low <= 0 or high <= STILL:
        verdict = HOLDS if high <= STILL else CANNOT_TELL
        why = "Connections hardly depend on time." if high <= STILL else "Too few labelled neighbours to see a decay."
        return Finding(NAME, 4, MEASURE, None, None, verdict, why, plain(series))
    value, low, high = fits.share("decay", best="separable")
    verdict = judge(1 - value, 1 - high, 1 - low, small=SMALL, large=LARGE)
    return Finding(NAME, 4, MEASURE, value, (low, high), verdict, _sentence(verdict, value), plain(series))


def _sentence(verdict: str, value: float) -> str:
    share = f"one decay explains {value:.0%} of what separate ones do"
    return {
        HOLDS: f"All labels share one decay: {share}.",
        DOUBTFUL: f"Labels differ a little in how their connections fade: {share}.",
        FAILS: f"Labels differ in how their connections fade: {share}.",
        CANNOT_TELL: "Too few labelled neighbours to compare the decays of labels.",
    }[verdict]
