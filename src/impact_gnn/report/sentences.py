"""Sentences and table rows of the report that the terminal prints too, or that take counting."""

from __future__ import annotations

import shlex
from collections import Counter
from dataclasses import dataclass

from impact_gnn import methods
from impact_gnn.backtesting import BASELINE, BacktestResult, FoldCheck, Selection
from impact_gnn.backtesting.forecast import lost_per_period
from impact_gnn.estimators import MODELS, EnsembleSpec, Member
from impact_gnn.metrics import METRICS, Metric
from impact_gnn.report.numbers import (
    counted,
    gain_interval,
    interval,
    measured,
    percent,
    points,
    whole,
)
from impact_gnn.report.summary import Evaluation, RunSummary

BASELINE_ONLY = EnsembleSpec.single(BASELINE)  # no correction, and no other model
TOLERATED_LOSS = 0.02  # of accuracy, before a model is retrained


def selected(selection: Selection) -> str:
    """The selected model and its gain over the baseline."""
    return str(selection).replace(" -", " −")


def named_checks(tested: BacktestResult) -> list[tuple[str, FoldCheck]]:
    """Checks of all folds with their names, newest first; a single fold has two halves."""
    checks = tested.fold_checks
    suffixes = [""] * len(checks)
    if len(tested.folds) < len(checks):
        suffixes = [" (first half)", " (second half)"]
    named_folds = [
        (check.window + suffix, check) for check, suffix in zip(checks, suffixes, strict=True)
    ]
    return named_folds[::-1]


def members(summary: RunSummary) -> list[tuple[Member, str]]:
    """Members of the selected ensemble with a description of their models."""
    rows = []
    for member in summary.choice.members:
        spec = MODELS.get(member.candidate.model or summary.options.model)
        rows.append((member, "a user model" if spec is None else spec.summary))
    return rows


def parts(ensemble: EnsembleSpec) -> list[tuple[str, str]]:
    """Method parts of an ensemble, each with its summary."""
    used = [methods.get(name) for name in methods.names() if name in ensemble.parts]
    return [(part.name, part.summary) for part in used]


def gains_by_fold(summary: RunSummary) -> list[tuple[str, float]]:
    """Gain of the selected model over the baseline in every fold, newest first."""
    return [
        (name, summary.metric.displayed(check.score - check.plain_score))
        for name, check in named_checks(summary.backtest)
    ]


def improved(metric: Metric) -> str:
    """The verb phrase for a better model."""
    return "was more accurate" if metric.title == "accuracy" else f"had a better {metric.title}"


def by_horizon(summary: RunSummary) -> str:
    """The loss of accuracy by forecast horizon, and the retraining interval that follows."""
    scores = summary.backtest.by_horizon
    if len(scores) < 2:
        reason = "the history is too short"
        if summary.backtest.effort == "quick":
            reason = "this requires effort normal or thorough"
        return f"The accuracy by forecast horizon was not measured: {reason}."
    span = f"over a horizon of {counted(len(scores), 'period')}"
    slope = lost_per_period(scores)
    if slope.low <= 0:
        change = f"{points(-slope.value)} points per period"
        limits = f"95% CI {points(-slope.high)} to {points(-slope.low)}"
        return (
            f"Accuracy shows no significant loss {span} ({change}, {limits}). "
            "Retrain when enough new labels are available."
        )
    loss = f"{100 * slope.value:.1f} points per period"
    limits = f"95% CI {100 * slope.low:.1f} to {100 * slope.high:.1f}"
    every = max(1, int(TOLERATED_LOSS / slope.value))
    return (
        f"Accuracy falls by {loss} {span} ({limits}). To lose at most "
        f"{100 * TOLERATED_LOSS:.0f} points, retrain every {counted(every, 'period')}."
    )


def describe_evaluation(summary: RunSummary, evaluation: Evaluation) -> list[str]:
    """Accuracy of the predictions, the forecast, the sets and the selection, as sentences."""
    result = summary.prediction_summary
    metric = summary.metric
    accuracy = evaluation.accuracy
    forecast = result.accuracy
    sentences = [
        f"Labels are now known for {whole(evaluation.count)} of the {whole(result.count)} "
        f"predicted nodes. Accuracy: {percent(accuracy.value)} (95% CI {interval(accuracy)})."
    ]
    if forecast is not None:
        position = "within"
        if accuracy.value < forecast.low:
            position = "below"
        elif accuracy.value > forecast.high:
            position = "above"
        sentences.append(
            f"This is {position} the forecast of {percent(forecast.value)} "
            f"(90% interval {interval(forecast)})."
        )
    if evaluation.unknown:
        sentences.append(
            f"{percent(evaluation.unknown / evaluation.count)} of these nodes are in classes that "
            "the model does not know; they count as errors."
        )
    past_error = summary.backtest.mean_check("error")
    past = "" if past_error is None else f" ({percent(past_error)} on past folds)"
    sentences.append(
        f"Mean confidence: {percent(evaluation.confidence)}. "
        f"Calibration error: {percent(evaluation.error)}{past}. "
        f"Coverage of the prediction sets: {percent(evaluation.coverage)} "
        f"(nominal {percent(result.coverage, 0)})."
    )
    sentences.append(_selection_outcome(summary, evaluation, metric))
    return sentences


def _selection_outcome(summary: RunSummary, evaluation: Evaluation, metric: Metric) -> str:
    """Whether the selected model was better than the baseline on the new labels."""
    gain = evaluation.gain
    score = f"{metric.title} {measured(evaluation.score, metric)}"
    if gain is None:
        return "Add --graph to compare with the baseline, which must be fitted on the graph."
    if summary.choice == BASELINE_ONLY:
        return f"The baseline was selected ({score})."
    comparison = "not significantly different from the baseline"
    if gain.low > 0:
        comparison = "better than the baseline"
    elif gain.high < 0:
        comparison = "worse than the baseline"
    return (
        f"The selected model is {comparison}: {score}, baseline "
        f"{measured(evaluation.plain_score, metric)}, gain {gain_interval(gain, metric)}."
    )


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
    num_true = Counter[int]()
    num_predicted = Counter[int]()
    num_correct = Counter[int]()
    for check in summary.backtest.fold_checks:
        for true, label, count in check.confusion:
            num_true[true] += count
            num_predicted[label] += count
            num_correct[true] += count * (true == label)
    rows = [
        ClassRow(
            name=name,
            known=summary.graph.label_counts[k],
            tested=num_true[k],
            recall=num_correct[k] / num_true[k] if num_true[k] else None,
            precision=num_correct[k] / num_predicted[k] if num_predicted[k] else None,
            predicted=predicted,
        )
        for k, (name, predicted) in enumerate(summary.prediction_summary.labels.items())
    ]
    return sorted(rows, key=lambda row: -row.known)


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
        accuracies = _accuracy_above(threshold, newest), _accuracy_above(threshold, checks)
        rows.append((threshold, share, *accuracies))
    return rows


def _accuracy_above(threshold: float, checks: list[FoldCheck]) -> float | None:
    """Accuracy of the predictions with at least this probability; None if there are none."""
    total = 0.0
    correct = 0.0
    for check in checks:
        for part in check.bins:
            if part.confidence >= threshold:
                total += check.count * part.share
                correct += check.count * part.share * part.accuracy
    return correct / total if total else None


def command(summary: RunSummary) -> str:
    """The command of the run; from Python, an equivalent one with unknown values in capitals."""
    if summary.command is not None:
        return summary.command
    options = summary.options
    values = {
        "out": "DIR",
        "cutoff": summary.since,
        "model": options.model,
        "candidates": ",".join(map(str, options.candidates or ())),
        "effort": options.effort,
        "folds": options.folds,
        "seeds": options.seeds,
        "budget": f"{options.budget:g}s" if options.budget else "",
        "metric": options.metric,
        "class-weight": options.class_weight,
        "hops": options.hops,
        "seed": options.seed,
        "embed": options.embed,
    }
    defaults = {"metric": "accuracy", "embed": "none"}
    words = ["impact", "run", "GRAPH"]
    for name, value in values.items():
        if value not in ("", None, defaults.get(name)):
            words += [f"--{name}", str(value)]
    if not options.undirected:
        words.append("--directed")
    return shlex.join(words)


def option_values(summary: RunSummary) -> list[tuple[str, str]]:
    """Names and values of all options."""
    values = vars(summary.options) | {
        "candidates": ", ".join(map(str, summary.options.candidates or ())) or None,
        "cutoff": summary.since,
    }
    return [
        (name, "not set" if value is None else str(value)) for name, value in sorted(values.items())
    ]


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
    metric = METRICS[tested.metric]
    best, gain = max(gains.items(), key=lambda pair: pair[1].value)
    difference = gain_interval(gain, metric)
    if gain.low > 0:
        return f"Yes: {best} improves {metric.title} by {difference}."
    if gain.value <= 0:
        return f"No: no correction improves {metric.title}; the best is {best}, {difference}."
    return (
        f"Not clearly: no correction improves {metric.title} by more than its uncertainty; "
        f"the best is {best}, {difference}."
    )
