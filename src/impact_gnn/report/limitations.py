"""Limitations of a run: one sentence for every weakness that the evidence shows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from impact_gnn.backtesting import SelectionReason, Status
from impact_gnn.diagnostics import AssumptionStatus
from impact_gnn.report.figures import array
from impact_gnn.report.numbers import counted, listed, named, number, percent, whole
from impact_gnn.report.sentences import BASELINE_ONLY, gain_interval, improved, named_checks
from impact_gnn.report.summary import RunSummary

# Thresholds from which on there is a sentence.
FEW_LABELS = 20  # known labels of a period or a class, at least
SILENT = 0.2  # share of targets without messages
UNSURE = 0.1  # share of predictions with a probability below one half
OVERCONFIDENT = 0.1  # mean probability above the accuracy of the back-test
OTHER_MIX = 0.2  # difference of class proportions to the last labelled period
MISCALIBRATED = 0.05  # calibration error
WRONG_COVERAGE = 0.04  # difference to the coverage of the sets
WIDE = 0.15  # width of the interval of the expected accuracy


def limitations(summary: RunSummary) -> list[str]:
    """All limitations, the most serious kind first; the last is that of every back-test."""
    return [
        *tables(summary),
        *backtest(summary),
        *trust(summary),
        *horizon(summary),
        *assumptions(summary),
        *targets(summary),
        *predictions(summary),
        "A back-test shows how the method did in the past. Something that happens for the first "
        "time in the periods to predict cannot be seen in it.",
    ]


def tables(summary: RunSummary) -> Iterator[str]:
    """Columns that may have been misread."""
    for warning in summary.graph.warnings:
        yield f"A column may have been misread. {warning[:1].upper()}{warning[1:]}."


def backtest(summary: RunSummary) -> Iterator[str]:
    """Missing folds, an exhausted budget, failures, unknown classes, an uncertain gain."""
    tested, gain = summary.backtest, summary.backtest.selection.gain
    if not tested.rows:
        yield "Nothing could be back-tested, so neither the accuracy nor the use of any correction is known."
        return
    if not tested.finished:
        cut = [row.candidate for row in tested.rows if row.status in (Status.PART, Status.UNTRIED)]
        what = f"Not tried on every window: {listed(cut)}. " if cut else ""
        yield (
            f"The budget stopped the search before its work was done. {what}"
            "More time may choose otherwise, so this choice may not repeat."
        )
    if len(tested.folds) == 1:
        yield "The choice rests on a single window; how much windows differ from each other cannot be seen."
    failed = [row.candidate for row in tested.rows if row.status is Status.FAILED]
    if failed:
        yield f"{listed(failed)} could not be fitted and {'was' if len(failed) == 1 else 'were'} left out."
    new_classes = [
        f"{percent(check.unknown / check.count)} of {name}"
        for name, check in named_checks(tested)
        if check.unknown
    ]
    if new_classes:
        yield (
            "In classes of which no label was known by then, and so wrong for every candidate: "
            f"{listed(new_classes)}."
        )
    if tested.selection.reason is SelectionReason.BETTER and gain is not None and gain.low <= 0:
        doubt = (
            "it may be none at all" if gain.value > 0 else "the choice rests on its log-loss alone"
        )
        interval = gain_interval(gain, summary.metric)
        yield f"The gain over plain is not certain ({interval}): {doubt}."
    better = [
        summary.metric.displayed(check.score - check.plain_score) > 0
        for check in tested.fold_checks
    ]
    if summary.choice != BASELINE_ONLY and not all(better):
        where = "windows" if len(tested.folds) > 1 else "halves of the window"
        yield (
            f"The choice {improved(summary.metric)} than plain in {sum(better)} of {len(better)} "
            f"{where}, not in all."
        )


def trust(summary: RunSummary) -> Iterator[str]:
    """Miscalibrated probabilities, sets with another coverage, a wide forecast."""
    right, stated = summary.prediction_summary.accuracy, summary.prediction_summary.coverage
    error = summary.backtest.mean_check("error")
    if error is not None and error > MISCALIBRATED:
        yield (
            f"Even after calibration, probabilities were off by {percent(error)} on average in "
            "past windows; trust their order more than their size."
        )
    # The predicted label is always in its set, so that the coverage is at least the accuracy.
    wrong = [
        f"{percent(check.coverage, 0)} in {name}"
        for name, check in named_checks(summary.backtest)
        if abs(check.coverage - max(stated, check.accuracy)) > WRONG_COVERAGE
    ]
    if wrong:
        yield (
            f"Sets that are to hold the truth for {percent(stated, 0)} of the nodes held it for "
            f"{listed(wrong)}."
        )
    if right is not None and right.high - right.low > WIDE:
        between = f"between {percent(right.low, 0)} and {percent(right.high, 0)}"
        yield f"The accuracy to expect is known roughly only: {between}."


def horizon(summary: RunSummary) -> Iterator[str]:
    """Targets beyond the horizon of the back-test or after a gap, periods with few labels."""
    times, labelled = np.array(summary.graph.times), np.array(summary.graph.labelled_per_time)
    called = summary.graph.name
    ahead = times[times >= summary.cutoff]
    if summary.backtest.folds:
        tested = summary.backtest.ahead
        if len(ahead) > tested:
            yield (
                f"There are {len(ahead)} periods to predict, from {called(ahead[0])} to "
                f"{called(ahead[-1])}; the past is too short to look further than "
                f"{counted(tested, 'period')} ahead in the back-test. "
                "Expect later periods to be less certain."
            )
    known = np.flatnonzero((times < summary.cutoff) & (labelled > 0))
    between = int((times < summary.cutoff).sum() - known[-1] - 1)
    if between > 0:
        verb = "has" if between == 1 else "have"
        yield (
            f"The last {counted(between, 'period')} before the cutoff {verb} no labels, "
            "so the model looks further ahead than the back-test did."
        )
    thin = [called(times[k]) for k in known[-5:] if labelled[k] < FEW_LABELS]
    if thin:
        yield f"Recent periods with fewer than {FEW_LABELS} known labels: {listed(thin)}."


def assumptions(summary: RunSummary) -> Iterator[str]:
    """Edges without times, and assumptions that are violated or not testable."""
    if undated := summary.graph.undated_edges:
        which = "edges"
        if len(undated) < len(summary.graph.num_edges):
            which = f"the edges {listed(undated)}"
        yield (
            f"When {which} came is not known, so one between two old nodes is seen as if it had "
            "been there ever since both were: that is true of a citation, but where edges are made "
            "later (a follow, a transaction) the back-test saw some too early, which may flatter "
            "it, and a time for every edge settles it."
        )
    diagnosis, used = summary.diagnosis, summary.choice.parts
    moving = {AssumptionStatus.UNCERTAIN: "moves", AssumptionStatus.VIOLATED: "changes"}
    if diagnosis.label_mix.status in moving:
        verb = moving[diagnosis.label_mix.status]
        text = f"The label mix {verb} from period to period; the mix of the predictions may lag behind."
        leaning = sorted(used & {"center", "standardize", "jjnorm"})
        if leaning:
            text += f" {listed(leaning)} supposes that it does not, and may remove what tells classes apart."
        yield text
    if diagnosis.feature_drift.status in moving:
        text = "Features of a class drift; what was learnt from older periods may no longer fit."
        if "recency" not in used:
            text += " Candidates with recency let recent labels count more."
        yield text
    weighted = sorted(used & {"pmp", "genpmp", "pny"})
    if diagnosis.separability.status is AssumptionStatus.VIOLATED and weighted:
        yield (
            f"{listed(weighted)} supposes that connections depend on the distance in time only, "
            "which fails here; it was chosen because it paid in the back-test."
        )
    not_testable = [
        check.name for check in diagnosis.findings if check.status is AssumptionStatus.NOT_TESTABLE
    ]
    if not_testable:
        yield f"Could not be judged on this graph: {listed(not_testable)}."


def targets(summary: RunSummary) -> Iterator[str]:
    """Targets that differ from labelled nodes: features, neighbours, predicted class proportions."""
    drift, shift = summary.diagnosis.feature_drift, summary.diagnosis.shift
    times, away = array(drift.all_times), np.nan_to_num(array(drift.all_drift))
    if drift.times:
        is_past = (times < summary.cutoff) & (times >= drift.times[0])
        before = away[is_past].max()
        after = away[times >= summary.cutoff].max()
        if after > 1.2 * before > 0:
            yield (
                "Features of the nodes to predict lie further from the labelled ones "
                f"({number(after, 2)} class distances) than those of any labelled period "
                f"({number(before, 2)})."
            )
    if shift is not None and shift.silent[-1] >= SILENT:
        yield (
            f"{percent(shift.silent[-1], 0)} of the nodes to predict have no neighbour that says "
            "anything about them."
        )
    counts = array(list(summary.prediction_summary.labels.values()))
    last_mix = array(summary.diagnosis.label_mix.mix)[-1]
    difference = 0.5 * float(np.abs(counts / counts.sum() - last_mix).sum())
    if difference >= OTHER_MIX:
        yield (
            f"The mix of the predicted labels differs by {percent(difference, 0)} from that of the "
            "last labelled period. That may be true, or a lean of the model."
        )


def predictions(summary: RunSummary) -> Iterator[str]:
    """Unsure or overconfident probabilities, labels that are rare or never predicted."""
    result = summary.prediction_summary
    unsure = sum(result.histogram[: len(result.histogram) // 2]) / result.count
    if unsure >= UNSURE:
        yield f"{percent(unsure, 0)} of the predictions have a probability below one half."
    right = summary.backtest.mean_check("accuracy")
    if right is not None and result.mean_probability - right >= OVERCONFIDENT:
        yield (
            f"Calibrated probabilities average {percent(result.mean_probability)}, but "
            f"{percent(right)} were right in the back-test: either these nodes are easier, or the "
            "model is surer than it should be."
        )
    labels = zip(result.labels.items(), summary.graph.label_counts, strict=True)
    rare = [named(name) for (name, _), known in labels if known < FEW_LABELS]
    if rare:
        yield f"Labels with fewer than {FEW_LABELS} known nodes are hard to learn: {listed(rare)}."
    never = [named(name) for name, count in result.labels.items() if count == 0]
    if never:
        yield f"Never predicted for any of the {whole(result.count)} nodes: {listed(never)}."
