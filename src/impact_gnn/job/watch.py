"""`watch`: decides from new nodes, without their labels, whether to retrain a model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from impact_gnn.backtesting.forecast import (
    comparable_confidence,
    expected_accuracy,
    lost_per_period,
    newest_level,
)
from impact_gnn.data.convert import GraphLike
from impact_gnn.engines import Engine
from impact_gnn.estimators import Ensemble, Own
from impact_gnn.graph import TemporalGraph
from impact_gnn.job.evaluate import load_for
from impact_gnn.job.outliers import OutlierScale
from impact_gnn.metrics import probability_of
from impact_gnn.report import read_summary
from impact_gnn.report.numbers import counted, interval, percent, period_named
from impact_gnn.report.summary import RunSummary

MIN_NODES = 20  # periods with fewer nodes give no reason
NEW_LABELS = 0.1  # new labels, as a share of those trained on, that are worth retraining
MAX_OUTLIERS = 2.0  # share of outliers, as a multiple of the largest in a labelled period
MAX_MIX_CHANGE = 1.5  # change of the label mix, as a multiple of the largest in the past


@dataclass(frozen=True)
class WatchedPeriod:
    """The predictions of a model for one period."""

    period: str
    count: int
    confidence: float  # mean probability of the predicted labels
    expected: float | None  # expected accuracy; None without a back-test
    unusual: float | None  # share of outliers; None without features
    mix: float  # share of predicted labels that differs from the training labels


@dataclass(frozen=True)
class Watch:
    """Whether to retrain, and the reasons."""

    periods: list[WatchedPeriod]
    reasons: list[str]

    @property
    def refit(self) -> bool:
        return bool(self.reasons)

    def __str__(self) -> str:
        lines = [
            f"{'period':>12} {'nodes':>9} {'confidence':>11} "
            f"{'expected accuracy':>18} {'outliers':>9} {'class shift':>12}"
        ]
        lines += [
            f"{row.period:>12} {row.count:>9,} {row.confidence:>11.1%} "
            f"{percent(row.expected):>18} {percent(row.unusual):>9} {row.mix:>12.1%}"
            for row in self.periods
        ]
        if self.reasons:
            lines += ["Retrain:", *(f"- {reason}" for reason in self.reasons)]
        else:
            lines.append("No reason to retrain.")
        return "\n".join(lines)


def watch(
    directory: str | Path,
    graph: str | Path | GraphLike,
    *,
    model: Own | None = None,
    engine: Engine | None = None,
) -> Watch:
    """Compare every period from the cutoff of a run on with the past; reads none of its labels.

    Reasons to retrain: the expected accuracy of a period is below the interval of the run's
    forecast; a period has more outliers, or another mix of predicted labels, than the past ever
    had; there are enough new labels to learn from (they are counted, not read).

    Args:
        directory: Of the run.
        graph: The graph as it is now, or its path.
        model: The user model of the run, if it has one.
        engine: Where to propagate; in memory by default.
    """
    root = Path(directory)
    summary = read_summary(root / "summary.json")
    ensemble = Ensemble.load(root / "model", model=model)
    graph = load_for(ensemble, graph)
    cutoff = summary.cutoff
    view = ensemble.fitted.schema.adapted(graph, cutoff)
    outlier_scale = OutlierScale.fit(view)

    # Predictions of all targets; `label` is indexed by node, the others by row.
    probability = ensemble.predict_proba(graph, engine=engine)
    nodes = ensemble.targets(graph)
    label = np.full(view.num_nodes, -1)
    label[nodes] = ensemble.calibration.labels(probability, ensemble.prior)
    confidence = probability_of(label[nodes], probability)
    period = graph.period[nodes]

    first_period = int(np.searchsorted(graph.times, cutoff))
    rows = []
    for index in np.unique(period).tolist():
        inside = np.flatnonzero(period == index)
        members = nodes[inside]
        counts = np.bincount(label[members], minlength=len(ensemble.prior))
        change = counts / len(members) - ensemble.prior
        comparable = comparable_confidence(summary.backtest.fold_checks, confidence[inside])
        rows.append(
            WatchedPeriod(
                period=graph.name_of(int(graph.times[index])),
                count=len(members),
                confidence=float(confidence[inside].mean()),
                expected=_expected_accuracy(summary, comparable, 1 + index - first_period),
                unusual=_outlier_share(outlier_scale, view, members, label),
                mix=0.5 * float(np.abs(change).sum()),  # the total variation distance
            )
        )
    # Counting labels reads none of their values.
    num_new = int((graph.is_labelled & (graph.time >= cutoff)).sum())
    num_known = int(view.is_labelled.sum())
    past_outliers = max(_past_outlier_shares(outlier_scale, view), default=0.0)
    return Watch(rows, list(_reasons(summary, rows, num_new, num_known, past_outliers)))


def _expected_accuracy(summary: RunSummary, confidence: float, horizon: int) -> float | None:
    """The run's forecast, lowered by what a model of this age lost in the back-test."""
    result = summary.backtest
    checks = result.fold_checks
    if not checks:
        return None
    loss = 0.0
    if len(result.by_horizon) > 1:
        loss = max(lost_per_period(result.by_horizon).value, 0.0)  # age never helps
    periods_beyond = max(0, horizon - max(result.ahead, 1))
    # The newest fold already includes the loss of as many periods as it spans.
    return expected_accuracy(checks, confidence, newest_level(checks) - periods_beyond * loss)


def _outlier_share(
    scale: OutlierScale | None, view: TemporalGraph, nodes: np.ndarray, label: np.ndarray
) -> float | None:
    """The share of outliers; None without features."""
    if scale is None or view.x is None:
        return None
    return float((scale.score(view.x, nodes, label) > scale.limit).mean())


def _past_outlier_shares(scale: OutlierScale | None, view: TemporalGraph) -> Iterator[float]:
    """The share of outliers in every labelled period that is large enough."""
    for index in np.unique(view.period[view.is_labelled]):
        nodes = np.flatnonzero(view.is_labelled & (view.period == index))
        share = _outlier_share(scale, view, nodes, view.label)
        if share is not None and len(nodes) >= MIN_NODES:
            yield share


def _reasons(
    summary: RunSummary,
    periods: list[WatchedPeriod],
    num_new: int,
    num_known: int,
    past_outliers: float,
) -> Iterator[str]:
    forecast = summary.prediction_summary.accuracy
    past_change = max(summary.diagnosis.label_mix.to_past, default=None)
    for row in periods:
        if row.count < MIN_NODES:
            continue
        period = period_named(row.period).capitalize()
        if forecast is not None and row.expected is not None and row.expected < forecast.low:
            yield (
                f"{period}: the expected accuracy is {percent(row.expected)}, "
                f"below the 90% interval of the run's forecast ({interval(forecast)})."
            )
        if row.unusual is not None and row.unusual > max(MAX_OUTLIERS * past_outliers, 0.05):
            yield (
                f"{period}: {percent(row.unusual)} of the nodes are outliers; "
                f"the maximum of a labelled period is {percent(past_outliers)}."
            )
        if past_change is not None and row.mix > max(MAX_MIX_CHANGE * past_change, 0.1):
            yield (
                f"{period}: the predicted class proportions differ by {percent(row.mix)} from the "
                f"training labels; the maximum between past periods is {percent(past_change)}."
            )
    if num_new >= max(NEW_LABELS * num_known, MIN_NODES):
        yield (
            f"{counted(num_new, 'new label')} since the run, "
            f"which trained on {counted(num_known, 'label')}."
        )
