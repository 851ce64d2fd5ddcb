"""Assumption 1: every period has the same class proportions (label mix).

The statistic is the distance between the class proportions of a period and those of all earlier
periods, averaged over the last few labelled ones. The target period is the next in this row.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy import ndarray

from impact_gnn.diagnostics.assumption import NOT_TESTABLE, AssumptionCheck, conclude, listed
from impact_gnn.diagnostics.view import View, recent

THRESHOLDS = (0.05, 0.12)  # the assumption holds up to the first, is violated from the second on
# size of the bootstrap; with very many periods and labels it has fewer replicates
MOST_NUMBERS = 1 << 22


@dataclass(frozen=True, repr=False)
class LabelMix(AssumptionCheck):
    """Distance between the class proportions of a period and those of all earlier ones."""

    name = "label mix"
    assumption = 1
    measure = "change of class proportions from the past to a new period"

    times: list[int] = field(default_factory=list)  # labelled periods [T]
    mix: list[list[float]] = field(default_factory=list)  # share of every label in them [T, Y]
    # distance of every period but the first to all before [T − 1]
    to_past: list[float] = field(default_factory=list)
    noise: list[float] = field(default_factory=list)  # sampling noise of the distance [T − 1]


def label_mix(view: View) -> LabelMix:
    """Total variation distance of the label mix to the past, over the last labelled periods.

    TV_t = ½ Σ_y |p_t(y) − p_<t(y)|; its squares, less the sampling noise, are averaged with the
    labels as weights, and the root is taken. Noise and interval come from a bootstrap of the labels
    within periods.

    Examples:
        >>> from impact_gnn.data.tsbm import tsbm
        >>> label_mix(View.of(tsbm(num_nodes=1000, seed=0).masked(8)))
        1 label mix: holds, change of class ... 0.000 [0.000, 0.0...]
    """
    labelled = view.label >= 0
    # Labels by period [T, Y]; `row` is the position of a node's period among the labelled ones.
    row = np.searchsorted(view.labelled_periods, view.masked.period[labelled])
    size = max(view.masked.num_labels, 1)
    cell = row * size + view.label[labelled]
    counts = np.bincount(cell, minlength=len(view.labelled_periods) * size)
    counts = counts.reshape(-1, size)
    times = listed(view.masked.times[view.labelled_periods])
    mix = listed(_shares(counts))
    if len(counts) < 2:
        why = "Labels are known in one period only, so a change cannot be measured."
        return LabelMix(NOT_TESTABLE, why, times=times, mix=mix)
    if np.count_nonzero(counts.sum(0)) < 2:
        return LabelMix(NOT_TESTABLE, "There is only one class.", times=times, mix=mix)
    # Fewer replicates where the table of counts is large.
    replicates = min(200, max(50, MOST_NUMBERS // counts.size))
    rng = np.random.default_rng(view.seed)
    # Labels of a period drawn again from its own proportions, [B, T, Y].
    draws = (replicates, len(counts))
    drawn = rng.multinomial(counts.sum(1), _shares(counts), size=draws)
    # Sampling noise of TV²: as much as drawing the labels once more adds to it.
    to_past = _to_past(counts)
    drawn_square = (_to_past(drawn) ** 2).mean(0)
    noise = np.maximum(drawn_square - to_past**2, 0)
    value = _statistic(counts, noise, 1)
    # A replicate carries the noise of the graph and its own.
    replicated = [_statistic(replicate, noise, 2) for replicate in drawn]
    change = f"those of a new period differ by about {value:.0%} from the past"
    sentences = (
        f"Class proportions are stable: {change}.",
        f"Class proportions change slightly: {change}.",
        f"Class proportions change: {change}. Centring would remove class information.",
        "Too few labels per period to test whether class proportions change.",
    )
    interval = np.quantile(replicated, [0.025, 0.975]).tolist()
    return LabelMix(
        **conclude(value, interval, THRESHOLDS, sentences),
        times=times,
        mix=mix,
        to_past=listed(to_past),
        noise=listed(np.sqrt(noise)),
    )


def _shares(counts: ndarray) -> ndarray:
    return counts / np.maximum(counts.sum(-1, keepdims=True), 1)


def _to_past(counts: ndarray) -> ndarray:
    """TV of every period to all before it, [..., T − 1]; `counts` is [..., T, Y]."""
    # Labels up to a period, which are those before the next one.
    running = np.cumsum(counts, axis=-2)
    own = _shares(counts[..., 1:, :])
    past = _shares(running[..., :-1, :])
    return 0.5 * np.abs(own - past).sum(-1)


def _statistic(counts: ndarray, noise: ndarray, times: int) -> float:
    """Root mean square of TV over recent periods, less the noise `times` times."""
    last = slice(-recent(len(noise)), None)
    square = _to_past(counts)[last] ** 2 - times * noise[last]
    # Labels by period, without the first period, which has no past.
    weight = counts.sum(1)[1:][last]
    # Averaged before the root, so that noise of both signs cancels.
    mean = (weight * square).sum() / weight.sum()
    return float(np.sqrt(max(0.0, mean)))
