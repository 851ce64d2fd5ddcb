"""What could go wrong: every weakness that the evidence shows, as a sentence that says what follows from it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from impact_gnn.backtesting import SelectionReason, Status
from impact_gnn.diagnostics import AssumptionStatus
from impact_gnn.report.figures import array
from impact_gnn.report.numbers import counted, listed, named, number, percent, points, whole
from impact_gnn.report.sentences import KEPT, checked, improved
from impact_gnn.report.summary import RunSummary

THIN = 20  # known labels below which a period or a class counts as thin
# shares from which on they are worth a sentence
SILENT, UNSURE, OVERCONFIDENT, OTHER_MIX = (
    0.2,
    0.1,
    0.1,
    0.2,
)
# likewise: calibration error, coverage amiss, width of the forecast
MISCALIBRATED, MISSED, WIDE = (
    0.05,
    0.04,
    0.15,
)


def limitations(summary: RunSummary) -> list[str]:
    """Sentences, the gravest kind first; the last says what no back-test can see."""
    new = (
        "Something that happens for the first time in the periods to predict cannot be seen in it."
    )
    past = f"A back-test shows how the method did in the past. {new}"
    kinds = tables, backtest, trust, horizon, assumptions, targets, predictions
    return [*(text for kind in kinds for text in kind(summary)), past]


def tables(summary: RunSummary) -> Iterator[str]:
    """Columns that were probably meant otherwise than they were read."""
    for warning in summary.graph.warnings:
        yield f"A column may have been misread. {warning[:1].upper()}{warning[1:]}."


def backtest(summary: RunSummary) -> Iterator[str]:
    """Nothing back-tested, a budget that stopped it, one window, failures, classes nobody knew, a gain in doubt."""
    tested, gain = summary.backtest, summary.backtest.selection.gain
    if not tested.rows:
        yield "Nothing could be back-tested, so neither the accuracy nor the use of any correction is known."
        return
    if not tested.finished:
        cut = [row.candidate for row in tested.rows if row.status in (Status.PART, Status.UNTRIED)]
        what = f"Not tried on every window: {listed(cut)}. " if cut else ""
        more = "More time may choose otherwise, so this choice may not repeat."
        yield f"The budget stopped the search before its work was done. {what}{more}"
    if len(tested.folds) == 1:
        yield "The choice rests on a single window; how much windows differ from each other cannot be seen."
    failed = [row.candidate for row in tested.rows if row.status is Status.FAILED]
    if failed:
        yield f"{listed(failed)} could not be fitted and {'was' if len(failed) == 1 else 'were'} left out."
    if new := [
        f"{percent(one.unknown / one.count)} of {name}"
        for name, one in checked(tested)
        if one.unknown
    ]:
        yield f"In classes of which no label was known by then, and so wrong for every candidate: {listed(new)}."
    if tested.selection.reason is SelectionReason.BETTER and gain is not None and gain.low <= 0:
        interval = f"{points(gain.value)} {summary.metric.unit}, between {points(gain.low)} and {points(gain.high)}"
        doubt = (
            "it may be none at all" if gain.value > 0 else "the choice rests on its log-loss alone"
        )
        yield f"The gain over plain is not certain ({interval}): {doubt}."
    better = [
        summary.metric.displayed(one.score - one.plain_score) > 0 for one in tested.fold_checks
    ]
    if summary.choice != KEPT and not all(better):
        where = "windows" if len(tested.folds) > 1 else "halves of the window"
        yield f"The choice {improved(summary.metric)} than plain in {sum(better)} of {len(better)} {where}, not in all."


def trust(summary: RunSummary) -> Iterator[str]:
    """Probabilities and sets that did not keep their word in the past, and a forecast that says little."""
    right, stated = summary.prediction_summary.accuracy, summary.prediction_summary.coverage
    if (error := summary.backtest.mean_check("error") or 0.0) > MISCALIBRATED:
        after = f"Even after calibration, probabilities were off by {percent(error)} on average in past windows"
        yield f"{after}; trust their order more than their size."
    # The predicted label is always in its set, so sets hold the truth as often as predictions are
    # right at least.
    found = [(f"{percent(x.coverage, 0)} in {name}", x) for name, x in checked(summary.backtest)]
    if amiss := [text for text, x in found if abs(x.coverage - max(stated, x.accuracy)) > MISSED]:
        yield f"Sets that are to hold the truth for {percent(stated, 0)} of the nodes held it for {listed(amiss)}."
    if right is not None and right.high - right.low > WIDE:
        between = f"between {percent(right.low, 0)} and {percent(right.high, 0)}"
        yield f"The accuracy to expect is known roughly only: {between}."


def horizon(summary: RunSummary) -> Iterator[str]:
    """Targets further ahead than the back-test looked, or after a gap."""
    times, labelled = np.array(summary.graph.times), np.array(summary.graph.labelled_per_time)
    called = summary.graph.name
    ahead = times[times >= summary.cutoff]
    if summary.backtest.folds:
        looked = summary.backtest.ahead
        if len(ahead) > looked:
            later = f"the past is too short to look further than {counted(looked, 'period')} ahead in the back-test"
            far = f"There are {len(ahead)} periods to predict, from {called(ahead[0])} to {called(ahead[-1])}"
            yield f"{far}; {later}. Expect later periods to be less certain."
    known = np.flatnonzero((times < summary.cutoff) & (labelled > 0))
    between = int((times < summary.cutoff).sum() - known[-1] - 1)
    if between > 0:
        gap = f"The last {counted(between, 'period')} before the cutoff {'has' if between == 1 else 'have'} no labels"
        yield f"{gap}, so the model looks further ahead than the back-test did."
    thin = [called(times[k]) for k in known[-5:] if labelled[k] < THIN]
    if thin:
        yield f"Recent periods with fewer than {THIN} known labels: {listed(thin)}."


def assumptions(summary: RunSummary) -> Iterator[str]:
    """Edges seen early, what fails among the assumptions that the choice leans on, and what could not be told."""
    if undated := summary.graph.undated_edges:
        which = (
            "edges"
            if len(undated) == len(summary.graph.num_edges)
            else f"the edges {listed(undated)}"
        )
        yield (
            f"When {which} came is not known, so one between two old nodes is seen as if it had been there ever since "
            "both were: that is true of a citation, but where edges are made later (a follow, a transaction) the "
            "back-test saw some too early, which may flatter it, and a time for every edge settles it."
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
        yield (
            text
            if "recency" in used
            else f"{text} Candidates with recency let recent labels count more."
        )
    weighted = sorted(used & {"pmp", "genpmp", "pny"})
    if diagnosis.separability.status is AssumptionStatus.VIOLATED and weighted:
        text = f"{listed(weighted)} supposes that connections depend on the distance in time only, which fails here"
        yield f"{text}; it was chosen because it paid in the back-test."
    blind = [
        finding.name
        for finding in diagnosis.findings
        if finding.status is AssumptionStatus.NOT_TESTABLE
    ]
    if blind:
        yield f"Could not be judged on this graph: {listed(blind)}."


def targets(summary: RunSummary) -> Iterator[str]:
    """Targets that differ from what was seen: their features, their neighbours, the mix predicted for them."""
    drift, shift = summary.diagnosis.feature_drift, summary.diagnosis.shift
    times, away = array(drift.all_times), np.nan_to_num(array(drift.all_drift))
    if drift.times:
        seen = (times < summary.cutoff) & (times >= drift.times[0])
        before, after = away[seen].max(), away[times >= summary.cutoff].max()
        if after > 1.2 * before > 0:
            further = f"lie further from the labelled ones ({number(after, 2)} class distances)"
            yield f"Features of the nodes to predict {further} than those of any labelled period ({number(before, 2)})."
    if shift is not None and shift.silent[-1] >= SILENT:
        yield f"{percent(shift.silent[-1], 0)} of the nodes to predict have no neighbour that says anything about them."
    counts = array(list(summary.prediction_summary.labels.values()))
    other = 0.5 * float(
        np.abs(counts / counts.sum() - array(summary.diagnosis.label_mix.mix)[-1]).sum()
    )
    if other >= OTHER_MIX:
        mix = f"The mix of the predicted labels differs by {percent(other, 0)} from that of the last labelled period"
        yield f"{mix}. That may be true, or a lean of the model."


def predictions(summary: RunSummary) -> Iterator[str]:
    """Unsure or overconfident probabilities, labels that are rare or never predicted."""
    result = summary.prediction_summary
    unsure = sum(result.histogram[: len(result.histogram) // 2]) / result.count
    if unsure >= UNSURE:
        yield f"{percent(unsure, 0)} of the predictions have a probability below one half."
    right = summary.backtest.mean_check("accuracy")
    if right is not None and result.mean_probability - right >= OVERCONFIDENT:
        said = f"Calibrated probabilities average {percent(result.mean_probability)}, but {percent(right)} were right"
        yield f"{said} in the back-test: either these nodes are easier, or the model is surer than it should be."
    labels = zip(result.labels.items(), summary.graph.label_counts, strict=True)
    rare = [named(name) for (name, _), known in labels if known < THIN]
    if rare:
        yield f"Labels with fewer than {THIN} known nodes are hard to learn: {listed(rare)}."
    never = [named(name) for name, count in result.labels.items() if count == 0]
    if never:
        yield f"Never predicted for any of the {whole(result.count)} nodes: {listed(never)}."
