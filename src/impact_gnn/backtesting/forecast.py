"""Forecasts the accuracy on the targets before any of their labels is known."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy import ndarray
from scipy import stats

from impact_gnn.backtesting.results import FoldCheck, HorizonScore
from impact_gnn.statistics import Estimate

# Root mean square error of the forecast on 13 data sets; it counts as `WORTH` further windows.
USUAL = 0.05
WORTH = 2.0  # windows that this is worth when it is weighed against those measured
LEVEL = 0.9
CONFIDENCE_BINS = 10
PSEUDO_NODES = 10.0  # with the overall share of labels, that a thin bin borrows


def lost_per_period(lags: Sequence[HorizonScore]) -> Estimate:
    """Loss of accuracy per period of the forecast horizon: the slope of a weighted linear fit.

    Examples:
        >>> accuracies = {1: 0.8, 2: 0.78, 3: 0.76}
        >>> lost_per_period([HorizonScore(*one, 500) for one in accuracies.items()])
        +0.020 [-0.006, +0.046]
    """
    rows = [(one.horizon, one.accuracy, one.count) for one in lags]
    horizon, accuracy, count = np.array(rows, float).T
    # The inverse of the binomial variance; an accuracy of 0 or 1 has one, too.
    weight = count / np.maximum(accuracy * (1 - accuracy), 1 / (count + 1))
    deviation = horizon - np.average(horizon, weights=weight)
    spread = float((weight * deviation**2).sum())
    loss = -float((weight * deviation * accuracy).sum()) / spread
    error = spread**-0.5
    half = 1.96 * error
    return Estimate(loss, error, loss - half, loss + half)


def labelled_shares(labelled: ndarray, unlabelled: ndarray, scale: float) -> list[float]:
    """Share of nodes that have a label, by confidence in bins of equal width.

    Args:
        labelled: The confidence of nodes with a label.
        unlabelled: The confidence of nodes without one, or of a sample of them.
        scale: Nodes that one of the sample stands for.

    Examples:
        >>> shares = labelled_shares(np.array([0.95] * 90), np.array([0.05] * 60), 2.0)
        >>> round(shares[0], 3), round(shares[-1], 3)
        (0.033, 0.943)
    """
    edges = np.linspace(0, 1, CONFIDENCE_BINS + 1)
    count, _ = np.histogram(labelled, edges)
    sampled, _ = np.histogram(unlabelled, edges)
    total = count + scale * sampled
    overall = count.sum() / total.sum()
    # None is 0: targets of every confidence count.
    shares = (count + PSEUDO_NODES * overall) / (total + PSEUDO_NODES)
    return shares.tolist()


def labelled_weights(checks: Sequence[FoldCheck], confidence: ndarray) -> ndarray:
    """Weights with which targets resemble the labelled nodes of the newest fold.

    Accuracy is known for labelled nodes only, and often these are the easier ones. A target counts
    by how often past nodes of its confidence had a label.
    """
    labelled = checks[-1].labelled if checks else []
    if not labelled:
        return np.ones(len(confidence))
    bin_index = np.minimum((confidence * len(labelled)).astype(int), len(labelled) - 1)
    return np.array(labelled)[bin_index]


def comparable_confidence(checks: Sequence[FoldCheck], confidence: ndarray) -> float:
    """Mean confidence of targets such as the labelled nodes of the newest fold."""
    return float(np.average(confidence, weights=labelled_weights(checks, confidence)))


def trust_in_confidence(checks: Sequence[FoldCheck]) -> float:
    """The weight of the confidence in a forecast; the rest is that of the newest fold's accuracy.

    Each counts by how well it would have forecast the newest fold.
    """
    newest = checks[-1]
    older = checks[-2:][0]  # with a single check the newest one
    if newest.window == older.window:
        return 0.5
    errors = np.array([newest.confidence, older.accuracy]) - newest.accuracy
    precision = 1 / (errors**2 + USUAL**2)
    return float(precision[0] / precision.sum())


def expected_accuracy(checks: Sequence[FoldCheck], confidence: float, level: float) -> float:
    """Weighted mean of the confidence on targets and the accuracy level of the past."""
    trust = trust_in_confidence(checks)
    mean = trust * confidence + (1 - trust) * level
    return float(np.clip(mean, 0, 1))


def forecast(checks: Sequence[FoldCheck], confidence: float, count: int) -> Estimate | None:
    """Expected accuracy on `count` targets with this mean confidence, and its 90 % interval.

    It averages the mean calibrated confidence on the targets and the accuracy on the newest fold.
    The first reacts to targets that are harder or easier, the second to overconfidence. The
    interval comes from the errors of their mean on past folds, and is never narrower than the
    sampling error of `count` nodes.
    """
    if not checks:
        return None
    num_windows = len({check.window for check in checks})
    accuracy = np.array([check.accuracy for check in checks])
    fold_confidence = np.array([check.confidence for check in checks])
    level = newest_level(checks)
    # The level that was known before every fold.
    level_before = np.full(len(checks), level)
    if num_windows > 1:
        level_before = np.r_[accuracy[0], accuracy[:-1]]
    value = expected_accuracy(checks, confidence, level)
    missed = accuracy - 0.5 * (fold_confidence + level_before)
    # Halves of one window count as one.
    squares = float((missed**2).sum()) * num_windows / len(checks)
    spread = (squares + WORTH * USUAL**2) / (num_windows + WORTH)
    sampling = value * (1 - value) / max(count, 1)
    error = math.sqrt(spread + sampling)
    half = float(stats.t(num_windows + WORTH).ppf(0.5 + LEVEL / 2)) * error
    return Estimate(value, error, max(0.0, value - half), min(1.0, value + half))


def newest_level(checks: Sequence[FoldCheck]) -> float:
    """Accuracy of the final ensemble on the newest window, which may have two halves."""
    newest = [check.fitted for check in checks if check.window == checks[-1].window]
    return float(np.mean(newest))
