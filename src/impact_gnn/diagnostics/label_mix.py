"""Assumption 1: is the mix of labels the same in every period?

What a model trained on the past meets in period t is the distance between the mix of t and the mix of all earlier
periods. The statistic is that distance, averaged over the last few labelled periods; the target period, whose mix
nobody knows, is the next in this row.
"""

from __future__ import annotations

import numpy as np
from scipy import special

from impact_gnn.diagnostics.finding import CANNOT_TELL, DOUBTFUL, FAILS, HOLDS, Finding, cannot_tell, judge, plain
from impact_gnn.diagnostics.view import View, recent

NAME = "label mix"
MEASURE = "share of labels that changes from the past to a new period"
SMALL, LARGE = 0.05, 0.12
"""Up to `SMALL` the mix counts as stable, from `LARGE` on as changing."""

MOST_NUMBERS = 1 << 22
"""Size of the bootstrap; with very many periods and labels it has fewer replicates."""


def label_mix(view: View, *, replicates: int = 200, seed: int = 0) -> Finding:
    """Distance between the label mix of a period and that of all earlier ones.

    TV_t = ½ Σ_y |p_t(y) − p_<t(y)|, squared and less what sampling adds to it; averaged over
    the last labelled periods, weighted by their labels, and the root taken. Noise and interval come from a bootstrap
    of the labels within periods. `series` also holds χ² and Cramér's V of the table of periods by labels.

    Example:
        >>> from impact_gnn.data.tsbm import tsbm
        >>> label_mix(View.of(tsbm(num_nodes=1000, seed=0).masked(8)))
        1 label mix: holds, share of labels ... 0.000 [0.000, 0.0...]
    """
    known = view.known
    counts = _table(view, known)
    series = {"times": view.masked.times[known], "labelled": counts.sum(1), "mix": _shares(counts)}
    if len(known) < 2:
        return cannot_tell(NAME, 1, MEASURE, "Labels are known in one period only, so no change can be seen.", series)
    if np.count_nonzero(counts.sum(0)) < 2:
        return cannot_tell(NAME, 1, MEASURE, "Only one class is seen, so there is no mix.", series)
    size = (min(replicates, max(50, MOST_NUMBERS // counts.size)), len(counts))
    drawn = np.random.default_rng(seed).multinomial(counts.sum(1), _shares(counts), size=size)
    noise = _noise(counts, drawn)
    value = _statistic(counts, noise, 1)
    # A replicate carries the noise of the graph and its own.
    low, high = (float(v) for v in np.quantile([_statistic(one, noise, 2) for one in drawn], [0.025, 0.975]))
    low, high = min(low, value), max(high, value)
    verdict = judge(value, low, high, small=SMALL, large=LARGE)
    series |= _to_last(counts) | {"to_past": _to_past(counts), "noise": np.sqrt(noise)} | _chi_square(counts)
    return Finding(NAME, 1, MEASURE, value, (low, high), verdict, _sentence(verdict, value), plain(series))


def _table(view: View, known: np.ndarray) -> np.ndarray:
    """Labelled nodes by period and label, [T known, Y]."""
    labelled = view.label >= 0
    row = np.searchsorted(known, view.masked.period[labelled])
    size = max(view.masked.num_labels, 1)
    return np.bincount(row * size + view.label[labelled], minlength=len(known) * size).reshape(len(known), size)


def _shares(counts: np.ndarray) -> np.ndarray:
    return counts / np.maximum(counts.sum(-1, keepdims=True), 1)


def _to_past(counts: np.ndarray) -> np.ndarray:
    """TV of every period to all before it, [..., T − 1]; `counts` is [..., T, Y]."""
    before = _shares(np.cumsum(counts, axis=-2)[..., :-1, :])
    return 0.5 * np.abs(_shares(counts[..., 1:, :]) - before).sum(-1)


def _noise(counts: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    """What sampling adds to TV² to the past, [T − 1]: as much as drawing the labels again adds once more."""
    return np.maximum((_to_past(drawn) ** 2).mean(0) - _to_past(counts) ** 2, 0)


def _statistic(counts: np.ndarray, noise: np.ndarray, times: int) -> float:
    """The mean over recent periods of TV to the past, with the noise taken out as often as it went in."""
    last = slice(-recent(len(noise)), None)
    square = _to_past(counts)[last] ** 2 - times * noise[last]
    weight = counts.sum(1)[1:][last]
    # Averaged before the root, so that noise of both signs cancels.
    return float(np.sqrt(max(0.0, (weight * square).sum() / weight.sum())))


def _to_last(counts: np.ndarray) -> dict[str, np.ndarray]:
    share = _shares(counts)
    return {"to_last": 0.5 * np.abs(share - share[-1]).sum(1)}


def _chi_square(counts: np.ndarray) -> dict[str, float]:
    """χ² of the table, its p-value, and Cramér's V with the part that chance gives taken out."""
    seen = counts[:, counts.sum(0) > 0]
    rows, columns = seen.shape
    if min(rows, columns) < 2:
        return {}
    total = seen.sum()
    expected = np.outer(seen.sum(1), seen.sum(0)) / total
    chi2 = float(((seen - expected) ** 2 / expected).sum())
    freedom = (rows - 1) * (columns - 1)
    excess = max(0.0, chi2 - freedom) / max(total - 1, 1)
    return {
        "chi2": chi2,
        "freedom": freedom,
        "p": float(special.chdtrc(freedom, chi2)),
        "cramers_v": float(np.sqrt(min(1.0, excess / min(rows - 1, columns - 1)))),
    }


def _sentence(verdict: str, value: float) -> str:
    share = f"{value:.0%} of the labels of a new period differ from the mix of the past"
    return {
        HOLDS: f"The label mix is stable: about {share}.",
        DOUBTFUL: f"The label mix moves: about {share}.",
        FAILS: f"The label mix changes: about {share}; centring would remove what tells classes apart.",
        CANNOT_TELL: "Too few labels per period to tell whether the label mix changes.",
    }[verdict]
