"""Forecasts the accuracy on the targets before any of their labels is known."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import stats

from impact_gnn.backtesting.results import FoldCheck, HorizonScore
from impact_gnn.statistics import Estimate

USUAL = 0.04  # typical error of the forecast, which counts as `WORTH` further windows
WORTH = 2.0  # windows that this is worth when it is weighed against those measured
LEVEL = 0.9


def lost_per_period(lags: Sequence[HorizonScore]) -> Estimate:
    """Loss of accuracy per period of the forecast horizon: the slope of a weighted linear fit.

    Examples:
        >>> accuracies = {1: 0.8, 2: 0.78, 3: 0.76}
        >>> lost_per_period([HorizonScore(*one, 500) for one in accuracies.items()])
        +0.020 [-0.006, +0.046]
    """
    at, right, count = np.array([(one.horizon, one.accuracy, one.count) for one in lags], float).T
    weight = count / np.maximum(right * (1 - right), 1 / (count + 1))
    middle = np.average(at, weights=weight)
    spread = float((weight * (at - middle) ** 2).sum())
    value, error = -float((weight * (at - middle) * right).sum()) / spread, spread**-0.5
    return Estimate(value, error, value - 1.96 * error, value + 1.96 * error)


def forecast(checks: Sequence[FoldCheck], confidence: float, count: int) -> Estimate | None:
    """Expected accuracy on `count` targets with this mean confidence, and its 90 % interval.

    It averages the mean calibrated confidence on the targets and the accuracy on the newest fold.
    The first reacts to targets that are harder or easier, the second to overconfidence. The
    interval comes from the errors of the same rule on past folds, and is never narrower than the
    sampling error of `count` nodes.
    """
    if not checks:
        return None
    windows = len({one.window for one in checks})
    right = np.array([one.accuracy for one in checks])
    fold_confidence = np.array([one.confidence for one in checks])
    level = float(np.mean([one.fitted for one in checks if one.window == checks[-1].window]))
    value = float(np.clip(0.5 * confidence + 0.5 * level, 0, 1))
    # the level known then
    before = np.r_[right[0], right[:-1]] if windows > 1 else np.full(len(checks), level)
    missed = float(((right - 0.5 * (fold_confidence + before)) ** 2).sum())
    spread = (missed * windows / len(checks) + WORTH * USUAL**2) / (windows + WORTH)
    error = math.sqrt(spread + value * (1 - value) / max(count, 1))
    half = float(stats.t(windows + WORTH).ppf(0.5 + LEVEL / 2)) * error
    return Estimate(value, error, max(0.0, value - half), min(1.0, value + half))
