"""Forecasts the class proportions of coming periods from the labels of past periods.

Every forecaster is a weighted mean of past proportions: all periods alike, recent periods more, or
a level with a damped trend. The one with the least walk-forward log-loss on the past is used, and
its walk-forward errors give intervals. There is one forecast for all target periods: forecasts for
each of them were no better on past windows (docs/results.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy import ndarray
from scipy import stats

DECAYS = (1.0, 0.95, 0.8, 0.5, 0.2)  # weight of a period relative to the next one
TREND_DECAYS = (0.8, 0.5)
DAMPING = 0.5  # share of the past trend that is expected to continue
PSEUDO_LABELS = 5.0  # that a thin period borrows from the whole past
MIN_PERIODS = 3  # labelled periods; with fewer, the past proportions are the forecast
LEVEL = 0.9  # of the intervals
# Typical error of a forecast as an angle, and the past windows that it counts as. Of five pairs,
# this covers 90 % on past windows of 13 data sets (`python -m reproduction forecasts`), and 88 to
# 98 % on six kinds of generated series.
USUAL = 0.04
WORTH = 1.0

Forecaster = Callable[[ndarray], ndarray]


@dataclass(frozen=True)
class PriorForecast:
    """Forecast class proportions of targets, with a 90 % interval for each."""

    proportions: list[float]
    low: list[float]
    high: list[float]


def forecast_prior(counts: ndarray, horizon: int) -> ndarray:
    """Forecast the class proportions [Y] of the `horizon` periods that follow.

    Args:
        counts: Labels per period and class [T, Y], oldest first; periods without any are skipped.
        horizon: Periods to predict together.

    Examples:
        >>> falling = np.array([[50, 50], [60, 40], [70, 30], [80, 20], [85, 15]])
        >>> forecast_prior(falling, 1).round(2).tolist()
        [0.82, 0.18]
        >>> forecast_prior(np.array([[30, 10], [29, 11], [31, 9]]), 1).round(2).tolist()
        [0.75, 0.25]
    """
    counts = labelled_periods(counts)
    return _best_forecaster(counts, horizon)(counts)


def forecast_interval(counts: ndarray, horizon: int, num_targets: int) -> PriorForecast:
    """Forecast the class proportions of coming targets, with intervals.

    The width comes from the errors of the same forecaster in the second half of the past, and from
    the sampling of the targets. Errors are measured as angles arcsin √p: there, the variance of a
    sample of n is 1 / 4n whatever the proportion.

    Args:
        counts: As in `forecast_prior`.
        horizon: Periods to predict together.
        num_targets: Nodes whose class proportions are predicted.

    Examples:
        >>> steady = np.array([[700, 300], [690, 310], [705, 295], [695, 305], [702, 298]])
        >>> interval = forecast_interval(steady, 1, 1000)
        >>> interval.low[1] < 0.3 < interval.high[1] < 0.4
        True
    """
    counts = labelled_periods(counts)
    forecaster = _best_forecaster(counts, horizon)
    forecast = forecaster(counts)
    squares = np.zeros(len(forecast))
    num_windows = 0.0
    for past, window in _walk_forward(counts, horizon):
        error = _angle(window / window.sum()) - _angle(forecaster(past))
        # Without what the sampling of the window explains; windows overlap.
        squares += (error**2 - 0.25 / window.sum()) / horizon
        num_windows += 1 / horizon
    variance = (np.maximum(squares, 0) + WORTH * USUAL**2) / (num_windows + WORTH)
    deviation = np.sqrt(variance + 0.25 / max(num_targets, 1))
    half = stats.t(num_windows + WORTH).ppf(0.5 + LEVEL / 2) * deviation
    angle = _angle(forecast)
    low = np.sin(np.maximum(angle - half, 0)) ** 2
    high = np.sin(np.minimum(angle + half, math.pi / 2)) ** 2
    return PriorForecast(forecast.tolist(), low.tolist(), high.tolist())


def _angle(proportion: ndarray) -> ndarray:
    return np.arcsin(np.sqrt(np.clip(proportion, 0, 1)))


def labelled_periods(counts: ndarray) -> ndarray:
    """The counts of periods with a label, in float64."""
    counts = np.asarray(counts, np.float64)
    return counts[counts.sum(1) > 0]


def _best_forecaster(counts: ndarray, horizon: int) -> Forecaster:
    choices = forecasters(horizon)
    if len(counts) < MIN_PERIODS:
        return choices[0]
    losses = [_walk_forward_loss(forecaster, counts, horizon) for forecaster in choices]
    return choices[int(np.argmin(losses))]


def _walk_forward(counts: ndarray, horizon: int) -> Iterator[tuple[ndarray, ndarray]]:
    """The counts known at every time of the second half, and the sum of those that followed."""
    for end in range(max(1, len(counts) // 2), len(counts)):
        yield counts[:end], counts[end : end + horizon].sum(0)


def forecasters(horizon: int) -> list[Forecaster]:
    """The forecasters, the simplest first: it wins where several are equally good."""
    levels: list[Forecaster] = [partial(_level, decay=decay) for decay in DECAYS]
    return levels + [partial(_trend, decay=decay, lag=horizon) for decay in TREND_DECAYS]


def _walk_forward_loss(forecaster: Forecaster, counts: ndarray, horizon: int) -> float:
    """Mean log-loss of forecasts for the second half of the past, each by what was known then."""
    losses = []
    for past, window in _walk_forward(counts, horizon):
        log_forecast = np.log(np.maximum(forecaster(past), 1e-6))
        losses.append(-(window * log_forecast).sum() / window.sum())
    return float(np.mean(losses))


def _level(counts: ndarray, decay: float) -> ndarray:
    """Proportions of all labels, a period counting `decay` times as much as the next one."""
    overall = counts.sum(0) / counts.sum()
    weight = decay ** np.arange(len(counts))[::-1]
    total = weight @ counts + PSEUDO_LABELS * overall
    return total / total.sum()


def _trend(counts: ndarray, decay: float, lag: int) -> ndarray:
    """The level, changed by a part of its change over the last `lag` periods."""
    level = _level(counts, decay)
    lag = min(lag, len(counts) - 1)
    if lag == 0:
        return level
    earlier = _level(counts[:-lag], decay)
    change = np.divide(level, earlier, out=np.ones_like(level), where=earlier > 0)
    forecast = level * change**DAMPING
    return forecast / forecast.sum()
