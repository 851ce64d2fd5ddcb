"""Limitations of a run: one sentence for every weakness that the evidence shows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from impact_gnn.backtesting import SelectionReason, Status
from impact_gnn.diagnostics import AssumptionStatus
from impact_gnn.report.figures import array
from impact_gnn.report.numbers import (
    counted,
    gain_interval,
    interval,
    listed,
    named,
    number,
    percent,
    period_named,
    whole,
)
from impact_gnn.report.sentences import BASELINE_ONLY, improved, named_checks
from impact_gnn.report.summary import RunSummary

# Thresholds from which on there is a sentence.
FEW_LABELS = 20  # known labels of a period or a class, at least
SILENT = 0.2  # share of targets without messages
UNSURE = 0.1  # share of predictions with a probability below one half
OVERCONFIDENT = 0.1  # mean probability above the accuracy of the back-test
OTHER_MIX = 0.2  # difference of class proportions to the last labelled period
MISCALIBRATED = 0.05  # calibration error
WRONG_COVERAGE = 0.04  # difference to the nominal coverage of the sets
WIDE = 0.15  # width of the interval of the expected accuracy


def limitations(summary: RunSummary) -> list[str]:
    """All limitations, the most serious kind first; the last is that of every back-test."""
    return [
        *tables(summary),
        *backtest(summary),
        *accuracy(summary),
        *horizon(summary),
        *assumptions(summary),
        *targets(summary),
        *predictions(summary),
        "A back-test measures past performance. "
        "It cannot anticipate what happens for the first time after the cutoff.",
    ]


def tables(summary: RunSummary) -> Iterator[str]:
    """Columns that may have been misread."""
    for warning in summary.graph.warnings:
        yield f"A column may have been misread. {warning[:1].upper()}{warning[1:]}."


def backtest(summary: RunSummary) -> Iterator[str]:
    """Missing folds, an exhausted budget, failures, unknown classes, an uncertain gain."""
    tested = summary.backtest
    gain = tested.selection.gain
    if not tested.rows:
        yield "No back-test was possible, so the accuracy and the use of corrections are unknown."
        return
    if not tested.finished:
        cut = [row.candidate for row in tested.rows if row.status in (Status.PART, Status.UNTRIED)]
        skipped = f" Not evaluated on all folds: {listed(cut)}." if cut else ""
        yield (
            f"The time budget ended before the search was complete.{skipped} "
            "A rerun with more time may select other models."
        )
    if len(tested.folds) == 1:
        yield "The selection is based on a single fold, so the variation across folds is unknown."
    failed = [row.candidate for row in tested.rows if row.status is Status.FAILED]
    if failed:
        verb = "were"
        if len(failed) == 1:
            verb = "was"
        yield f"{listed(failed)} could not be fitted and {verb} excluded."
    new_classes = [
        f"{percent(check.unknown / check.count)} of {name}"
        for name, check in named_checks(tested)
        if check.unknown
    ]
    if new_classes:
        yield (
            "Nodes of classes without earlier labels count as errors for every candidate: "
            f"{listed(new_classes)}."
        )
    if tested.selection.reason is SelectionReason.BETTER and gain is not None and gain.low <= 0:
        conclusion = "The gain over the baseline is not significant"
        if gain.value <= 0:
            conclusion = "The selection rests on log-loss alone; there is no gain in the score"
        yield f"{conclusion}: {gain_interval(gain, summary.metric)}."
    is_better = [
        summary.metric.displayed(check.score - check.plain_score) > 0
        for check in tested.fold_checks
    ]
    if summary.choice != BASELINE_ONLY and not all(is_better):
        where = "halves of the fold"
        if len(tested.folds) > 1:
            where = "folds"
        yield (
            f"The selected model {improved(summary.metric)} than the baseline in only "
            f"{sum(is_better)} of {len(is_better)} {where}."
        )


def accuracy(summary: RunSummary) -> Iterator[str]:
    """Miscalibrated probabilities, sets with another coverage, a wide forecast."""
    forecast = summary.prediction_summary.accuracy
    coverage = summary.prediction_summary.coverage
    error = summary.backtest.mean_check("error")
    if error is not None and error > MISCALIBRATED:
        yield (
            f"Even after calibration, the calibration error on past folds is {percent(error)}. "
            "Use the probabilities for ranking rather than as exact values."
        )
    # The predicted class is always in its set, so the coverage is at least the accuracy.
    wrong = [
        f"{percent(check.coverage, 0)} in {name}"
        for name, check in named_checks(summary.backtest)
        if abs(check.coverage - max(coverage, check.accuracy)) > WRONG_COVERAGE
    ]
    if wrong:
        yield f"Prediction sets with {percent(coverage, 0)} nominal coverage had {listed(wrong)}."
    if forecast is not None and forecast.high - forecast.low > WIDE:
        yield f"The expected accuracy is imprecise: 90% interval {interval(forecast, 0)}."


def horizon(summary: RunSummary) -> Iterator[str]:
    """Targets beyond the horizon of the back-test or after a gap, periods with few labels."""
    times = np.array(summary.graph.times)
    labelled = np.array(summary.graph.labelled_per_time)
    called = summary.graph.name
    ahead = times[times >= summary.cutoff]
    tested = summary.backtest.ahead
    if summary.backtest.folds and len(ahead) > tested:
        yield (
            f"There are {len(ahead)} periods to predict, from {period_named(called(ahead[0]))} to "
            f"{period_named(called(ahead[-1]))}, but the history allows a back-test of "
            f"{counted(tested, 'period')} ahead only. Later periods are less certain."
        )
    known = np.flatnonzero((times < summary.cutoff) & (labelled > 0))
    gap = int((times < summary.cutoff).sum() - known[-1] - 1)
    if gap > 0:
        verb = "have"
        if gap == 1:
            verb = "has"
        yield (
            f"The last {counted(gap, 'period')} before the cutoff {verb} no labels, "
            "so the forecast horizon is longer than in the back-test."
        )
    sparse = [called(times[k]) for k in known[-5:] if labelled[k] < FEW_LABELS]
    if sparse:
        yield f"Recent periods with fewer than {FEW_LABELS} labels: {listed(sparse)}."


def assumptions(summary: RunSummary) -> Iterator[str]:
    """Edges without times, and assumptions that are violated or not testable."""
    if undated := summary.graph.undated_edges:
        which = "Edges"
        if len(undated) < len(summary.graph.num_edges):
            which = f"Edges of {listed(undated)}"
        yield (
            f"{which} have no timestamps. The back-test assumes that an edge exists as soon as "
            "both of its nodes do. If edges form later (follows, transactions), the back-test is "
            "too optimistic; a time for every edge fixes this."
        )
    diagnosis = summary.diagnosis
    used = summary.choice.parts
    not_constant = (AssumptionStatus.UNCERTAIN, AssumptionStatus.VIOLATED)
    if diagnosis.label_mix.status in not_constant:
        sentence = "Class proportions change over time; those of the predictions may lag behind."
        aligned = sorted(used & {"center", "standardize", "jjnorm"})
        if aligned:
            sentence += (
                f" {listed(aligned)} assumes constant proportions and may remove class information."
            )
        yield sentence
    if diagnosis.feature_drift.status in not_constant:
        sentence = (
            "The features of a class drift, so older periods may no longer be representative."
        )
        if "recency" not in used:
            sentence += " Candidates with recency give recent labels more weight."
        yield sentence
    weighted = sorted(used & {"pmp", "genpmp", "pny"})
    if diagnosis.separability.status is AssumptionStatus.VIOLATED and weighted:
        yield (
            f"{listed(weighted)} assumes that connections depend only on the distance in time. "
            "This is violated here; it was selected because it helped in the back-test."
        )
    not_testable = [
        check.name for check in diagnosis.findings if check.status is AssumptionStatus.NOT_TESTABLE
    ]
    if not_testable:
        yield f"Not testable on this graph: {listed(not_testable)}."


def targets(summary: RunSummary) -> Iterator[str]:
    """Targets that differ from labelled nodes: features, neighbours, predicted proportions."""
    drift = summary.diagnosis.feature_drift
    shift = summary.diagnosis.shift
    times = array(drift.all_times)
    distance = np.nan_to_num(array(drift.all_drift))
    if drift.times:
        is_past = (times < summary.cutoff) & (times >= drift.times[0])
        before = distance[is_past].max()
        after = distance[times >= summary.cutoff].max()
        if after > 1.2 * before > 0:
            yield (
                f"Features of the targets differ more from the labelled nodes "
                f"({number(after, 2)} class distances) than those of any labelled period "
                f"({number(before, 2)})."
            )
    if shift is not None and shift.silent[-1] >= SILENT:
        yield f"{percent(shift.silent[-1], 0)} of the targets receive no message from neighbours."
    counts = array(list(summary.prediction_summary.labels.values()))
    last_mix = array(summary.diagnosis.label_mix.mix)[-1]
    difference = 0.5 * float(np.abs(counts / counts.sum() - last_mix).sum())
    if difference >= OTHER_MIX:
        yield (
            f"The predicted class proportions differ by {percent(difference, 0)} from those of the "
            "last labelled period. This is either a real change or a bias of the model."
        )


def predictions(summary: RunSummary) -> Iterator[str]:
    """Unsure or overconfident probabilities, classes that are rare or never predicted."""
    result = summary.prediction_summary
    unsure = sum(result.histogram[: len(result.histogram) // 2]) / result.count
    if unsure >= UNSURE:
        yield f"{percent(unsure, 0)} of the predictions have a probability below 50%."
    past_accuracy = summary.backtest.mean_check("accuracy")
    if past_accuracy is not None and result.mean_probability - past_accuracy >= OVERCONFIDENT:
        yield (
            f"The mean calibrated probability is {percent(result.mean_probability)}, but the "
            f"accuracy in the back-test was {percent(past_accuracy)}: either the targets are "
            "easier, or the model is overconfident."
        )
    labels = zip(result.labels.items(), summary.graph.label_counts, strict=True)
    rare = [named(name) for (name, _), known in labels if known < FEW_LABELS]
    if rare:
        yield f"Classes with fewer than {FEW_LABELS} labels are hard to learn: {listed(rare)}."
    never = [named(name) for name, count in result.labels.items() if count == 0]
    if never:
        yield f"Classes predicted for none of the {whole(result.count)} targets: {listed(never)}."
