"""Sentences and table rows of the report: predictions, selection, expected accuracy, options."""

from __future__ import annotations

import shlex
from collections import Counter
from dataclasses import dataclass

from impact_gnn import methods
from impact_gnn.backtesting import BASELINE, BacktestResult, FoldCheck, SelectionReason
from impact_gnn.backtesting.forecast import USUAL, lost_per_period
from impact_gnn.backtesting.greedy import START
from impact_gnn.diagnostics import MessageShift
from impact_gnn.estimators import MODELS, EnsembleSpec, Member
from impact_gnn.graph import GraphSummary
from impact_gnn.metrics import Metric
from impact_gnn.report.numbers import (
    counted,
    listed,
    measured,
    named,
    number,
    percent,
    points,
    whole,
)
from impact_gnn.report.summary import Evaluation, RunSummary
from impact_gnn.statistics import Estimate

BASELINE_ONLY = EnsembleSpec.single(BASELINE)  # no correction, and no other model
TOLERATED_LOSS = 0.02  # of accuracy, before a model is retrained


def headline(summary: RunSummary) -> list[tuple[str, str, str]]:
    """Title, short form and sentence of the predictions, the selection, the expected accuracy."""
    predictions = summary.prediction_summary
    most = max(predictions.labels, key=lambda name: predictions.labels[name])
    share = percent(predictions.labels[most] / predictions.count, 0)
    candidates = summary.choice.candidates
    model = str(candidates[0]) if len(candidates) == 1 else f"{len(candidates)} models averaged"
    accuracy = "not known"
    details = "Nothing was back-tested, so the accuracy to expect is unknown."
    if predictions.accuracy is not None:
        accuracy = f"{percent(predictions.accuracy.value, 0)} right"
        details = _expected_accuracy(summary, predictions.accuracy)
    return [
        (
            "Predicted",
            counted(predictions.count, "node"),
            f"Most often {named(most)} ({share}); one row each in {predictions.file}.",
        ),
        ("By what", model, str(summary.backtest.selection).replace(" -", " −")),
        ("How right it will be", accuracy, details),
    ]


def _expected_accuracy(summary: RunSummary, accuracy: Estimate) -> str:
    """The interval of the expected accuracy, with the scores of every fold."""
    predictions = summary.prediction_summary
    metric = summary.metric
    # Fold by fold: a mean would hide that they differ, and match no other number on the page.
    scores = []
    for name, check in named_checks(summary.backtest):
        baseline = ""
        if summary.choice != BASELINE_ONLY:
            baseline = f" (plain: {measured(check.plain_score, metric)})"
        scores.append(f"{measured(check.score, metric)}{baseline} in {name}")
    verb = "were right" if metric.title == "accuracy" else f"was the {metric.title}"
    return (
        f"Expected, between {percent(accuracy.low, 0)} and {percent(accuracy.high, 0)}. "
        f"In the back-test {listed(scores)} {verb}. "
        f"Sets of {number(predictions.set_size, 1)} labels on average hold the truth "
        f"for {percent(predictions.coverage, 0)}."
    )


def named_checks(tested: BacktestResult) -> list[tuple[str, FoldCheck]]:
    """Checks of all folds with their names, newest first; a single fold has two halves."""
    checks = tested.fold_checks
    suffixes = [""] * len(checks)
    if len(tested.folds) < len(checks):
        suffixes = [" (one half)", " (other half)"]
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


def parts(chosen: EnsembleSpec) -> list[tuple[str, str]]:
    """Method parts of an ensemble, each with its summary."""
    used = [methods.get(name) for name in methods.names() if name in chosen.parts]
    return [(part.name, part.summary) for part in used]


def choice(summary: RunSummary) -> list[str]:
    """How the ensemble was selected, and how certain its gain is."""
    tested = summary.backtest
    selection = tested.selection
    metric = summary.metric
    gain = selection.gain
    if selection.reason is SelectionReason.TOO_SHORT:
        return [str(selection)]
    if gain is None:
        when = ""
        if selection.reason is SelectionReason.OUT_OF_TIME:
            when = " before the budget was spent"
        return [
            f"Nothing beside plain was tried on every window{when}, so plain stays, "
            "whatever the table shows."
        ]
    interval = gain_interval(gain, metric)
    by = "log-loss" if metric.by_log_loss else metric.title
    held_out = "for each window the blend was made anew from the others"
    if len(tested.folds) == 1:
        held_out = (
            "there is one window only, so each half of its nodes was predicted by the blend "
            "that the other half made"
        )
    how = (
        f"The blend starts from the mean of the best by {by}, at most {START} that are nearly as "
        f"good as the best one; then, one at a time, whichever improved the {by} of the mean most "
        "was drawn, a few times at most. A window counts half as much as the next newer one. "
        f"What this gains was measured on windows left out: {held_out}. What to try was found with "
        "all windows, so that the best may still look a little better than it is."
    )
    if selection.reason is SelectionReason.NONE_BETTER:
        return [
            how,
            f"On those, nothing had a better {by} than plain, so plain is kept. "
            f"The {metric.title} of the best other, {selection.best_single}, differs from plain's "
            f"by {interval}.",
        ]
    ensemble = str(summary.choice) if len(summary.choice.members) == 1 else "this blend"
    if gain.value <= 0:
        certainty = (
            f"We use {ensemble} for its probabilities, whose log-loss on windows left out was "
            "smaller than plain's. It is not more often right: the difference to plain is "
            f"{interval}."
        )
    elif gain.low <= 0:
        certainty = f"We use {ensemble}; the gain over plain is likely {interval}. "
        if metric.title == "accuracy":
            certainty += (
                "What was seen is a smaller log-loss on windows left out; that it is also more "
                "often right is not certain."
            )
        else:
            certainty += "It is not certain."
    else:
        certainty = (
            f"We use {ensemble}; the gain over plain is {interval}: "
            "above zero with its whole interval."
        )
    gains = {
        name: metric.displayed(check.score - check.plain_score)
        for name, check in named_checks(tested)
    }
    num_better = sum(value > 0 for value in gains.values())
    by_fold = listed([f"{name}: {points(value)}" for name, value in gains.items()], 8)
    sentences = [
        how,
        f"{certainty} It {improved(metric)} in {num_better} of {len(gains)}, newest first "
        f"({by_fold}).",
    ]
    advised = summary.advice.methods
    first = summary.choice.candidates[0].method
    if first in advised:
        rank = advised.index(first)
        sentences.append(
            f"The diagnosis, made before anything was trained, had put {first} at place {rank + 1} "
            f"of {len(advised)}: {summary.advice.candidates[rank].reason}."
        )
    return sentences


def gain_interval(gain: Estimate, metric: Metric) -> str:
    """A gain in the unit of the metric, with its interval."""
    return f"{points(gain.value)} {metric.unit}, between {points(gain.low)} and {points(gain.high)}"


def improved(metric: Metric) -> str:
    """The verb phrase for a better ensemble."""
    return "was more often right" if metric.title == "accuracy" else f"had a better {metric.title}"


def trust(summary: RunSummary) -> list[str]:
    """The expected accuracy, the calibration and the prediction sets, as sentences."""
    result = summary.prediction_summary
    tested = summary.backtest
    calibration = tested.calibration
    right = result.accuracy
    if right is None:
        return [
            "No past window was predicted, so nothing is known about how right the predictions are."
        ]
    coverages = sorted(check.coverage for check in tested.fold_checks)
    direction = "less" if calibration.temperature > 1 else "more"
    shares = ", and corrected for the new shares of the labels" if calibration.shift else ""
    tilt = ""
    if calibration.tilt:
        tilt = (
            f"Labels lean towards rare ones: where p / share^{calibration.tilt:g}, not p, "
            "is greatest. "
        )
    return [
        f"{percent(right.value)} of the predictions are expected to be right, between "
        f"{percent(right.low)} and {percent(right.high)} (90% interval). Half of that is what the "
        f"probabilities of the nodes to predict say ({percent(result.mean_probability)} on "
        "average), half how many were right in the newest past window. The interval follows from "
        "how far past windows lay from what the same rule says about them; as they are few, a "
        f"usual {100 * USUAL:.0f} points count too.",
        f"{tilt}Probabilities were made {direction} sure "
        f"(temperature {number(calibration.temperature, 2)}){shares}. In the past they were off by "
        f"{percent(tested.mean_check('error_before'))} on average before and "
        f"{percent(tested.mean_check('error'))} after, calibrated by the other windows.",
        f"A set holds every label with a probability of {number(calibration.threshold, 2)} or "
        f"more, {number(result.set_size, 1)} on average, and is to hold the truth for "
        f"{percent(result.coverage, 0)} of the nodes. In past windows it did for "
        f"{percent(coverages[0], 0)} to {percent(coverages[-1], 0)}.",
    ]


def by_horizon(summary: RunSummary) -> str:
    """The loss of accuracy by forecast horizon, and the retraining interval that follows."""
    lags = summary.backtest.by_horizon
    if len(lags) < 2:
        return "The past is too short to see how a model ages; fit again whenever a period's labels come."
    span = f"over {counted(len(lags), 'period')} after its last label"
    slope = lost_per_period(lags)
    if slope.low <= 0:
        change = f"{points(-slope.value)} points a period, between {points(-slope.high)} and {points(-slope.low)}"
        return f"No loss with age can be told from chance {span} ({change}); fit again when new labels are worth it."
    loss = f"{100 * slope.value:.1f} points a period (between {100 * slope.low:.1f} and {100 * slope.high:.1f})"
    every = max(1, int(TOLERATED_LOSS / slope.value))
    again = f"fit again every {counted(every, 'period')}"
    return f"A model lost {loss} {span}. To lose no more than {100 * TOLERATED_LOSS:.0f} points, {again}."


def describe_evaluation(summary: RunSummary, evaluation: Evaluation) -> list[str]:
    """Accuracy of the forecast, the probabilities, the sets and the selection, as sentences."""
    result, metric = summary.prediction_summary, summary.metric
    right = evaluation.accuracy
    accuracy = (
        f"Labels of {whole(evaluation.count)} of the {whole(result.count)} predicted nodes are "
        f"known now; {percent(right.value)} were right "
        f"(between {percent(right.low)} and {percent(right.high)})."
    )
    forecast = result.accuracy
    if forecast is not None:
        ending = "held"
        if right.value < forecast.low:
            ending = "was too high"
        elif right.value > forecast.high:
            ending = "was too low"
        accuracy += (
            f" The forecast {ending}: {percent(forecast.value)}, "
            f"between {percent(forecast.low)} and {percent(forecast.high)}."
        )
    sentences = [accuracy]
    if evaluation.unknown:
        sentences.append(
            f"{percent(evaluation.unknown / evaluation.count)} are in classes that the model had "
            "never seen; they count as wrong."
        )
    before = summary.backtest.mean_check("error")
    past = "" if before is None else f" (in past windows: {percent(before)})"
    sentences.append(
        f"Probabilities averaged {percent(evaluation.confidence)} and were off by "
        f"{percent(evaluation.error)} on average{past}. "
        f"Sets that were to hold the truth for {percent(result.coverage, 0)} held it for "
        f"{percent(evaluation.coverage)}."
    )
    gain = evaluation.gain
    score = measured(evaluation.score, metric)
    if gain is None:
        sentences.append(
            "Whether the choice was right is not known: "
            "that takes the graph (--graph), to fit plain on it."
        )
    elif summary.choice == BASELINE_ONLY:
        sentences.append(f"Plain was the choice ({score}).")
    else:
        outcome = "can not be told from plain"
        if gain.low > 0:
            outcome = "paid"
        elif gain.high < 0:
            outcome = "did not pay"
        sentences.append(
            f"The choice {outcome}: {score} against {measured(evaluation.plain_score, metric)} of "
            f"plain, fitted as it would have been then ({gain_interval(gain, metric)})."
        )
    return sentences


@dataclass(frozen=True)
class ClassRow:
    """Counts of a label, and its recall and precision in the back-test."""

    name: str
    known: int
    tested: int
    recall: float | None
    precision: float | None
    predicted: int


def classes(summary: RunSummary) -> list[ClassRow]:
    """A row for every label, those with the most known nodes first."""
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


def abstain(summary: RunSummary) -> list[tuple[float, float, float | None, float | None]]:
    """Threshold of the probability, share of predictions above it, accuracy of these.

    The accuracy is that of the newest fold, then that of all folds.
    """
    counts, checks = summary.prediction_summary.histogram, summary.backtest.fold_checks
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


def shift(measured: MessageShift) -> list[str]:
    """The measured shift of messages, with the bound of the theorem."""
    plain = measured.methods["plain"]
    left = {
        name: method.overall for name, method in measured.methods.items() if method is not plain
    }
    best = min(left, key=lambda name: left[name])
    smallest = f"The smallest shift is left by {best}, {number(left[best], 2)}."
    out = [
        f"Messages of the labelled past lie {number(plain.overall, 2)} standard deviations from those of the targets "
        f"(sliced Wasserstein distance, sampling noise taken out; {measured.path}).",
        smallest if left[best] < plain.overall else "No correction makes it smaller.",
    ]
    if (theory := plain.classes) is not None:
        out.append(
            f"Inside a class, periods are {number(theory.measured, 2)} apart. The paper's Theorem 4.3 allows "
            f"{number(theory.theorem_4_3, 2)} if the means agree; √(2V), which follows from the variance V alone, "
            f"allows {number(theory.equal_means, 2)}. In truth the means differ by {number(theory.mean_gap, 2)}."
        )
    return out


def edge_times(graph: GraphSummary) -> str:
    """Whether edges have times, and which edges a back-test used."""
    unknown = graph.undated_edges
    if not unknown:
        return "known; back-tests saw the graph as it was"
    some = f" for {listed(unknown)}" if len(unknown) < len(graph.num_edges) else ""
    return f"not known{some}; back-tests saw an edge as soon as both its nodes were there"


def facts(summary: RunSummary) -> list[tuple[str, str]]:
    """Names and values that describe the graph."""
    graph = summary.graph
    nodes = [f"{whole(count)} {node_type}" for node_type, count in graph.num_nodes.items()]
    if len(nodes) == 1:
        nodes = [whole(count) for count in graph.num_nodes.values()]
    rows = [("nodes", ", ".join(nodes))]
    for relation, count in graph.num_edges.items():
        name = "edges" if len(graph.num_edges) == 1 else f"edges {relation}"
        value = whole(count)
        across = graph.cross_time_share.get(relation)
        if across is not None:
            value += f", {percent(across, 0)} across time"
        rows.append((name, value))
    if any(graph.num_edges.values()):
        rows.append(("edge times", edge_times(graph)))
    labelled, total = sum(graph.labelled_per_time), sum(graph.nodes_per_time)
    return [
        *rows,
        ("features", "none" if graph.num_features is None else whole(graph.num_features)),
        (
            "labels",
            f"{len(graph.label_counts)} classes; known for {whole(labelled)} of {whole(total)}",
        ),
        ("periods", f"{len(graph.times)}, from {graph.names[0]} to {graph.names[-1]}"),
        ("cutoff", f"{summary.since} (labels from there on were not read)"),
    ]


def command(summary: RunSummary) -> str:
    """The command of the run; from Python, an equivalent one with unknown values in capitals."""
    if summary.command is not None:
        return summary.command
    options = summary.options
    words = ["impact", "run", "GRAPH", "--out", "DIR"]
    words += ["--cutoff", summary.since, "--model", options.model]
    if options.candidates is not None:
        words += ["--candidates", ",".join(map(str, options.candidates))]
    words += ["--effort", options.effort]
    words += ["--folds", str(options.folds), "--seeds", str(options.seeds)]
    if options.budget is not None:
        words += ["--budget", f"{options.budget:g}s"]
    if options.metric != "accuracy":
        words += ["--metric", options.metric]
    if options.class_weight is not None:
        words += ["--class-weight", options.class_weight]
    words += ["--hops", str(options.hops), "--seed", str(options.seed)]
    if options.embed != "none":
        words += ["--embed", options.embed]
    if not options.undirected:
        words.append("--directed")
    return shlex.join(words)


def options_of(summary: RunSummary) -> list[tuple[str, str]]:
    """Names and values of all options."""
    values = vars(summary.options) | {
        "candidates": ", ".join(map(str, summary.options.candidates or ())) or None
    }
    values["cutoff"] = summary.since
    return [
        (name, "none given" if value is None else str(value))
        for name, value in sorted(values.items())
    ]
