"""`watch`: from a grown graph alone, without any new label, whether the model of a run should be fitted again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from impact_gnn.backtesting.forecast import lost_per_period
from impact_gnn.data.given import GraphLike
from impact_gnn.engines import Engine
from impact_gnn.graph import TemporalGraph
from impact_gnn.heads import Own
from impact_gnn.job.evaluate import given
from impact_gnn.job.unusual import Usual
from impact_gnn.pipeline import Ensemble
from impact_gnn.report import read_summary
from impact_gnn.report.numbers import counted, percent
from impact_gnn.report.summary import RunSummary

LEAST = 20  # nodes of a period that say something
NEW_LABELS = 0.1  # share of the labels learned from, from which on new ones are worth a fit
STRANGE = 2.0  # times as many unusual nodes as any labelled period of the past had
MOVED = 1.5  # times the largest change of the label mix in the past


@dataclass(frozen=True)
class Watched:
    """A period as the model sees it."""

    period: str
    count: int
    confidence: float  # mean probability of the predicted labels
    expected: float | None  # share that is expected to be right; None where nothing was back-tested
    # share of nodes that lie far from what was learned; None without features
    unusual: float | None
    mix: float  # share of predicted labels that differ from the labels learned from


@dataclass(frozen=True)
class Watch:
    """Whether to fit again, and why; without a reason the model may stay."""

    periods: list[Watched]
    reasons: list[str]

    @property
    def refit(self) -> bool:
        return bool(self.reasons)

    def __str__(self) -> str:
        rows = [
            f"{'period':>12} {'nodes':>9} {'sure':>7} {'expected':>9} {'unusual':>8} {'mix moved':>10}"
        ]
        for one in self.periods:
            shares = f"{one.confidence:>7.1%} {_cell(one.expected):>9} {_cell(one.unusual):>8} {one.mix:>10.1%}"
            rows.append(f"{one.period:>12} {one.count:>9,} {shares}")
        if not self.reasons:
            return "\n".join(
                [*rows, "Keep the model: nothing in the new data speaks for fitting it again."]
            )
        return "\n".join([*rows, "Fit again:", *(f"- {reason}" for reason in self.reasons)])


def watch(
    directory: str | Path,
    graph: str | Path | GraphLike,
    *,
    model: Own | None = None,
    engine: Engine | None = None,
) -> Watch:
    """Looks at every period from the cutoff of a run on, in the graph as it is now; no label of these is read.

    Reasons to fit again: periods later than the run could look ahead, in which the model is
        expected to be right less
    often than the run's forecast allows; more nodes that lie far from what was learned, or another
    mix of predicted labels, than the past ever showed; enough new labels to learn from (they are
    counted, not read). A `model` of one's own, with which the run was made, is given again.
    """
    root = Path(directory)
    summary, fitted = (
        read_summary(root / "summary.json"),
        Ensemble.load(root / "model", model=model),
    )
    graph, cutoff = given(graph, fitted), summary.cutoff
    view = fitted.fitted.schema.adapted(graph, cutoff)
    probability, rows = fitted.predict_proba(graph, engine=engine), fitted.targets(graph)
    label = np.full(view.num_nodes, -1)
    label[rows] = fitted.calibration.labels(probability, fitted.prior)
    sure, period = probability[np.arange(len(rows)), label[rows]], graph.period[rows]
    usual = Usual.of(view)
    periods = []
    for place in np.unique(period).tolist():
        here = period == place
        shares = np.bincount(label[rows[here]], minlength=len(fitted.prior)) / here.sum()
        far = None if usual is None else _far(usual, view, rows[here], label)
        confidence = float(sure[here].mean())
        name = graph.name_of(int(graph.times[place]))
        lag = 1 + int(place) - int(np.searchsorted(graph.times, cutoff))
        periods.append(
            Watched(
                name,
                int(here.sum()),
                confidence,
                _expected(summary, confidence, lag),
                far,
                float(0.5 * np.abs(shares - fitted.prior).sum()),
            )
        )
    new = int(((graph.label >= 0) & (graph.time >= cutoff)).sum()) if graph.y is not None else 0
    known = int((view.label >= 0).sum())
    past = 0.0 if usual is None else max(_past_far(usual, view), default=0.0)
    return Watch(periods, list(_reasons(summary, periods, new, known, past)))


def _expected(summary: RunSummary, confidence: float, lag: int) -> float | None:
    """As `forecast`, with the level of the newest past window lowered by what a model of this age had lost."""
    checks = summary.backtest.fold_checks
    if not checks:
        return None
    level = float(np.mean([one.fitted for one in checks if one.window == checks[-1].window]))
    lags, further = summary.backtest.by_horizon, max(0, lag - max(summary.backtest.ahead, 1))
    # a model does not learn by waiting
    lost = max(lost_per_period(lags).value, 0.0) if len(lags) > 1 else 0.0
    return float(np.clip(0.5 * confidence + 0.5 * (level - further * lost), 0, 1))


def _far(usual: Usual, view: TemporalGraph, rows: np.ndarray, label: np.ndarray) -> float:
    assert view.x is not None
    return float((usual.distance(view.x, rows, label) > usual.far).mean())


def _past_far(usual: Usual, view: TemporalGraph) -> Iterator[float]:
    """The share of unusual nodes in every labelled period that is large enough."""
    for place in np.unique(view.period[view.label >= 0]):
        rows = np.flatnonzero((view.period == place) & (view.label >= 0))
        if len(rows) >= LEAST:
            yield _far(usual, view, rows, view.label)


def _reasons(
    summary: RunSummary, periods: list[Watched], new: int, known: int, past_far: float
) -> Iterator[str]:
    forecast, changes = summary.predicted.accuracy, summary.diagnosis.label_mix.to_past
    for one in periods:
        if one.count < LEAST:
            continue
        if forecast is not None and one.expected is not None and one.expected < forecast.low:
            below = f"below the {percent(forecast.low)} that the run's forecast allowed"
            yield f"In {one.period} {percent(one.expected)} are expected to be right, {below}."
        if one.unusual is not None and one.unusual > max(STRANGE * past_far, 0.05):
            yield (
                f"In {one.period} {percent(one.unusual)} of the nodes lie far from all that was learned from; in no "
                f"labelled period were it more than {percent(past_far)}."
            )
        if changes and one.mix > max(MOVED * max(changes), 0.1):
            moved = f"the mix of predicted labels differs by {percent(one.mix)} from the labels learned from"
            yield f"In {one.period} {moved}; in the past periods differed by {percent(max(changes))} at most."
    if new >= max(NEW_LABELS * known, LEAST):
        yield f"{counted(new, 'label')} came since; the model learned from {counted(known, 'label')}."


def _cell(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"
