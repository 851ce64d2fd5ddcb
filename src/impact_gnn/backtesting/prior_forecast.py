"""Forecasts the class proportions of coming periods from the labels of past periods.

Every forecaster is a weighted mean of past proportions: all periods alike, recent periods more, or
a level with a damped trend. The one with the least walk-forward log-loss on the past is used.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy import ndarray

DECAYS = (1.0, 0.95, 0.8, 0.5, 0.2)  # weight of a period relative to the next one
TREND_DECAYS = (0.8, 0.5)
DAMPING = 0.5  # share of the past trend that is expected to continue
PSEUDO_LABELS = 5.0  # that a thin period borrows from the whole past
MIN_PERIODS = 3  # labelled periods; with fewer, the past proportions are the forecast

Forecaster = Callable[[ndarray], ndarray]


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
    counts = np.asarray(counts, np.float64)
    counts = counts[counts.sum(1) > 0]
    forecasters = _forecasters(horizon)
    if len(counts) < MIN_PERIODS:
        return forecasters[0](counts)
    losses = [_walk_forward_loss(forecaster, counts, horizon) for forecaster in forecasters]
    return forecasters[int(np.argmin(losses))](counts)


def _forecasters(horizon: int) -> list[Forecaster]:
    """The forecasters, the simplest first: it wins where several are equally good."""
    levels: list[Forecaster] = [partial(_level, decay=decay) for decay in DECAYS]
    return levels + [partial(_trend, decay=decay, lag=horizon) for decay in TREND_DECAYS]


def _walk_forward_loss(forecaster: Forecaster, counts: ndarray, horizon: int) -> float:
    """Mean log-loss of forecasts for the second half of the past, each by what was known then."""
    losses = []
    for end in range(max(1, len(counts) // 2), len(counts)):
        window = counts[end : end + horizon].sum(0)
        log_forecast = np.log(np.maximum(forecaster(counts[:end]), 1e-6))
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
