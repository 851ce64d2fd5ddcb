"""Forecasts of class proportions: one for a window, or one for each of its periods.

Both are made of the labels before a past window and scored on the labels in it; no label of a
target is read. The forecast for a period comes from the forecaster that was best so many periods
ahead.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from impact_gnn.backtesting.folds import (
    MAX_DRIFT,
    Window,
    labels_by_period,
    times_of,
    windows,
)
from impact_gnn.backtesting.prior_forecast import (
    MIN_PERIODS,
    Forecaster,
    forecast_interval,
    forecast_prior,
    forecasters,
    labelled_periods,
)
from impact_gnn.estimators.calibration import clipped_log_loss, fit_calibration
from impact_gnn.graph import TemporalGraph
from reproduction.past_folds import MOST_WINDOWS, past_windows, predicted, weighted
from reproduction.results import ExtraTable, Table

TINY = 1e-6


def forecast_by_period(counts: np.ndarray, horizon: int) -> list[np.ndarray]:
    """Forecast the class proportions of each of the coming periods.

    Args:
        counts: Labels per period and class [T, Y], oldest first.
        horizon: Coming periods.
    """
    counts = labelled_periods(counts)
    forecasts = []
    for step in range(1, horizon + 1):
        choices = forecasters(step)
        if len(counts) >= MIN_PERIODS:
            choices.sort(key=lambda one: _loss_at(one, counts, step))
        forecasts.append(choices[0](counts))
    return forecasts


def _loss_at(forecaster: Forecaster, counts: np.ndarray, step: int) -> float:
    """The mean log-loss so many periods ahead, in the second half of the past."""
    losses = [
        log_loss(counts[end + step - 1], forecaster(counts[:end]))
        for end in range(max(1, len(counts) // 2), len(counts) - step + 1)
    ]
    return float(np.mean(losses or [0.0]))


def log_loss(counts: np.ndarray, forecast: np.ndarray) -> float:
    """The mean log-loss of a forecast for counted labels [Y]."""
    return float(-(counts @ np.log(np.maximum(forecast, TINY))) / counts.sum())


def scores_of(view: TemporalGraph, window: Window) -> tuple[float, float, float]:
    """Scores of the forecasts for a window.

    Log-loss by one forecast and by one for each period, and the share of classes whose interval
    contains their proportion.
    """
    before = labels_by_period(view, window.first)
    until = labels_by_period(view, int(view.times[-1]) + 1)
    inside = labelled_periods(until[window.contains(view.times)])
    one = log_loss(inside.sum(0), forecast_prior(before, view.horizon()))
    by_period = [
        log_loss(counts, forecast)
        for counts, forecast in zip(inside, forecast_by_period(before, len(inside)), strict=True)
    ]
    interval = forecast_interval(before, view.horizon(), int(inside.sum()))
    truth = inside.sum(0) / inside.sum()
    is_covered = (interval.low <= truth) & (truth <= interval.high)
    return one, float(np.average(by_period, weights=inside.sum(1))), float(is_covered.mean())


def adjusted_losses(view: TemporalGraph) -> list[tuple[float, float, float]]:
    """Log-losses of predictions for every past window but the oldest, and the share in use.

    Predictions are calibrated by the older windows, then adjusted by one forecast of the class
    proportions, or each row by that of its own period.
    """
    past = windows(view, MOST_WINDOWS)
    folds = [predicted(view, window) for window in past]
    result = []
    for k in range(1, len(past)):
        fold = folds[k]
        calibration = fit_calibration(weighted(folds[:k]), drift=fold.drift)
        one = calibration.apply(fold.probability, fold.prior)
        time = times_of(view, past[k])
        counts = labels_by_period(view, past[k].first)
        periods = np.unique(time)
        by_period = one.copy()
        for period, proportions in zip(
            periods, forecast_by_period(counts, len(periods)), strict=True
        ):
            rows = time == period
            known = fold.prior > 0
            ratio = np.divide(proportions, fold.prior, out=np.ones_like(fold.prior), where=known)
            drift = np.clip(np.log(ratio), -MAX_DRIFT, MAX_DRIFT)
            own = calibration.with_drift(drift, calibration.strength)
            by_period[rows] = own.apply(fold.probability[rows], fold.prior)
        losses = [clipped_log_loss(rows, fold.truth) for rows in (one, by_period)]
        result.append((losses[0], losses[1], calibration.strength))
    return result


def adjusted(names: Sequence[str] | None, *, root: Path) -> Table:
    """A line per past window in which the forecast of class proportions is in use."""
    lines = []
    changes = []
    for name, view, past in past_windows(names, root):
        for window, losses in zip(past[1:], adjusted_losses(view), strict=True):
            one, by_period, strength = losses
            if strength:
                changes.append(by_period / one - 1)
                values = [f"{value:.4f}" for value in losses]
                change = f"{100 * changes[-1]:+.2f}"
                lines.append([name, str(window), *values, change])
    lines.append(["mean change, %", "", "", "", "", f"{100 * np.mean(changes or [0.0]):+.2f}"])
    columns = (
        "data set",
        "window",
        "one forecast",
        "one per period",
        "share in use",
        "change, %",
    )
    return Table(
        "adjusted",
        "Predictions adjusted by forecasts of class proportions",
        (adjusted_losses.__doc__ or "").split("\n\n")[1].replace("\n", " "),
        [],
        extras=[ExtraTable("Log-loss in past windows", columns, lines)],
    )


def forecasts(names: Sequence[str] | None, *, root: Path) -> Table:
    """A line per data set whose windows have several periods."""
    lines = []
    changes = []
    coverages = []
    for name, view, past in past_windows(names, root):
        if view.horizon() == 1:
            continue
        one, by_period, coverage = np.transpose([scores_of(view, window) for window in past])
        change = by_period / one - 1
        changes += change.tolist()
        coverages += coverage.tolist()
        by_window = ", ".join(f"{100 * value:+.1f}" for value in change)
        losses = [f"{one.mean():.4f}", f"{by_period.mean():.4f}"]
        periods = str(view.horizon())
        lines.append([name, periods, *losses, by_window, f"{coverage.mean():.2f}"])
    mean = f"{100 * np.mean(changes):+.2f}"
    worse = f"higher in {sum(value > 0 for value in changes)}"
    better = f"lower in {sum(value < 0 for value in changes)} of {len(changes)}"
    covered = f"{np.mean(coverages):.2f}"
    lines.append(["mean change, %", "", "", mean, f"{worse}, {better}", covered])
    columns = (
        "data set",
        "periods",
        "one forecast",
        "one per period",
        "change by window, %",
        "coverage of 90 % intervals",
    )
    return Table(
        "forecasts",
        "Forecasts of class proportions",
        (__doc__ or "").split("\n\n")[1].replace("\n", " "),
        [],
        extras=[ExtraTable("Log-loss of class proportions in past windows", columns, lines)],
    )
