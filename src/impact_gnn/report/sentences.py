"""Sentences and table rows of the report that the terminal prints too, or that take counting."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from impact_gnn._text import plain_template
from impact_gnn.backtesting import BASELINE, BacktestResult, CandidateResult, FoldCheck, Status
from impact_gnn.backtesting.candidates import networks_are_behind
from impact_gnn.backtesting.results import leading
from impact_gnn.estimators import Candidate, EnsembleSpec
from impact_gnn.metrics import METRICS, Metric
from impact_gnn.report.figures import array
from impact_gnn.report.numbers import FILTERS, gain_interval, named, percent
from impact_gnn.report.summary import Evaluation, RunSummary

BASELINE_ONLY = EnsembleSpec.single(BASELINE)  # no correction, and no other model
TOO_GOOD = 0.99  # accuracy on past windows that asks for another look at the columns
SIMPLEST = {
    "majority class": "majority class of the last labelled periods",
    "prior:plain": "forecast class proportions",
    "prior:last": "last known labels of entities",
}
MOST_PROPORTIONS = 3  # forecast class proportions in a sentence
MAX_ROWS = 10  # candidates that are visible at once, with the selected ones and the baseline


def named_checks(tested: BacktestResult) -> list[tuple[str, FoldCheck]]:
    """Checks of all folds with their names, newest first; a single fold has two halves."""
    checks = tested.fold_checks
    names = [check.window for check in checks]
    if len(tested.folds) < len(checks):
        names = [f"{names[0]} (first half)", f"{names[1]} (second half)"]
    return list(zip(names, checks, strict=True))[::-1]


def candidate_rows(tested: BacktestResult) -> tuple[list[CandidateResult], list[CandidateResult]]:
    """The first rows of the table of candidates, and all others."""
    visible = tested.full
    if len(visible) <= 1:  # only the baseline: include those that were not tried on every fold
        visible = [row for row in tested.rows if row.status in (Status.FULL, Status.PART)]
    first = leading(visible, MAX_ROWS)
    return first, [row for row in tested.rows if row not in first]


def skips_networks(summary: RunSummary) -> bool:
    """Whether the search stopped trying networks because cheaper models were far ahead."""
    if summary.options.candidates is not None:  # the user's choice: all of them were tried
        return False
    rows = summary.backtest.full
    losses = {row.candidate: row.loss for row in rows if row.loss is not None}
    return networks_are_behind(losses, summary.options.model)


def gains_by_fold(summary: RunSummary) -> list[tuple[str, float]]:
    """Gain of the selected model over the baseline in every fold, newest first."""
    return [
        (name, summary.metric.displayed(check.score - check.plain_score))
        for name, check in named_checks(summary.backtest)
    ]


def improved(metric: Metric) -> str:
    """The verb phrase for a better model."""
    return "was more accurate" if metric.title == "accuracy" else f"had a better {metric.title}"


def describe_evaluation(summary: RunSummary, evaluation: Evaluation) -> list[str]:
    """Accuracy of the predictions, the forecast, the sets and the selection, as sentences."""
    template = plain_template(Path(__file__).with_name("evaluation.txt.j2"), **FILTERS)
    return template.render(
        summary=summary,
        evaluation=evaluation,
        has_baseline_only=summary.choice == BASELINE_ONLY,
    ).splitlines()


@dataclass(frozen=True)
class ClassRow:
    """Counts of a class, and its recall and precision in the back-test."""

    name: str
    known: int
    tested: int
    recall: float | None
    precision: float | None
    predicted: int


def classes(summary: RunSummary) -> list[ClassRow]:
    """A row for every class, those with the most labels first."""
    labels = summary.prediction_summary.labels
    counts = np.zeros((len(labels), len(labels)), int)  # [true, predicted]
    for check in summary.backtest.fold_checks:
        for true, label, count in check.confusion:
            counts[true, label] += count
    rows = [
        ClassRow(
            name=name,
            known=summary.graph.label_counts[k],
            tested=int(counts[k].sum()),
            recall=_ratio(counts[k, k], counts[k].sum()),
            precision=_ratio(counts[k, k], counts[:, k].sum()),
            predicted=predicted,
        )
        for k, (name, predicted) in enumerate(labels.items())
    ]
    return sorted(rows, key=lambda row: -row.known)


def _ratio(part: float, whole: float) -> float | None:
    """A share; None of nothing."""
    return float(part / whole) if whole else None


def by_threshold(summary: RunSummary) -> list[tuple[float, float, float | None, float | None]]:
    """Threshold of the probability, share of predictions above it, accuracy of these.

    The accuracy is that of the newest fold, then that of all folds.
    """
    counts = summary.prediction_summary.histogram
    checks = summary.backtest.fold_checks
    newest = [check for check in checks if check.window == checks[-1].window]
    rows = []
    for k in range(len(counts)):
        threshold = k / len(counts)
        share = sum(counts[k:]) / summary.prediction_summary.count
        accuracy = _accuracy_above(threshold, newest)
        accuracy_of_all = _accuracy_above(threshold, checks)
        rows.append((threshold, share, accuracy, accuracy_of_all))
    return rows


def _accuracy_above(threshold: float, checks: list[FoldCheck]) -> float | None:
    """Accuracy of the predictions with at least this probability; None if there are none."""
    bins = [
        (check.count * part.share, part.accuracy)
        for check in checks
        for part in check.bins
        if part.confidence >= threshold
    ]
    weight, accuracy = array(bins).reshape(-1, 2).T
    return _ratio(weight @ accuracy, weight.sum())


def command(summary: RunSummary) -> str:
    """The command of the run, or its call from Python."""
    if summary.command is not None:
        return summary.command
    candidates = summary.options.candidates
    values = vars(summary.options) | {"cutoff": summary.since}
    if candidates is not None:
        values["candidates"] = [str(candidate) for candidate in candidates]
    arguments = [f"{name}={value!r}" for name, value in values.items() if value is not None]
    return f"impact_gnn.run(graph, out, {', '.join(arguments)})"


def time_corrections(tested: BacktestResult) -> str:
    """The answer to the question whether corrections for time help on this graph."""
    gains = {
        row.method: row.difference for row in tested.time_corrections if row.difference is not None
    }
    if not gains:
        return (
            "Not known: no correction was evaluated, because the candidates were chosen by hand, "
            "time was up, or no edges lead to the nodes to predict."
        )
    title = METRICS[tested.metric].title
    best, gain = max(gains.items(), key=lambda pair: pair[1].value)
    difference = gain_interval(gain, METRICS[tested.metric])
    if gain.low > 0:
        return f"Yes: {best} improves {title} by {difference}."
    if gain.value <= 0:
        return f"No: no correction improves {title}; the best is {best}, {difference}."
    return (
        f"Not clearly: no correction improves {title} by more than its uncertainty; "
        f"the best is {best}, {difference}."
    )


def doubt_accuracy(tested: BacktestResult) -> str:
    """A warning if past windows were predicted too well to be true; "" otherwise."""
    accuracy = tested.mean_check("accuracy")
    if accuracy is None or accuracy < TOO_GOOD:
        return ""
    return (
        f"{accuracy:.1%} of the past labels were predicted out of fold. Features that are known "
        'after the event only would explain this: declare such columns as "outcome".'
    )


def compare_simplest(tested: BacktestResult) -> str:
    """What did better on past windows: the selection, or a prediction without a model."""
    majority, *others, selected = tested.simplest
    for row in others:
        if tested.choice.candidates == [Candidate.parse(row.name)]:
            return f"No model was better than the {SIMPLEST[row.name]}, so these are predicted."
    best = min(others, key=lambda row: row.loss or 0.0)
    comparison = "lower" if (selected.loss or 0.0) < (best.loss or 0.0) else "higher"
    sentence = (
        f"The selected model has a {comparison} log-loss than the best prediction without a model, "
        f"the {SIMPLEST[best.name]}."
    )
    # Only accuracy has a score of the majority class.
    if (selected.newest_score or 0.0) < (majority.newest_score or 0.0):
        sentence += " It is less accurate than the majority class in the most recent fold."
    return sentence


def forecast_proportions(summary: RunSummary) -> list[str]:
    """The largest forecast class proportions with their intervals."""
    forecast = summary.backtest.prior_forecast
    assert forecast is not None
    rows = zip(
        summary.prediction_summary.labels,
        forecast.proportions,
        forecast.low,
        forecast.high,
        strict=True,
    )
    largest = sorted(rows, key=lambda row: -row[1])[:MOST_PROPORTIONS]
    return [
        f"{named(name)} {percent(value, 0)} ({100 * low:.0f}-{percent(high, 0)})"
        for name, value, low, high in largest
    ]
