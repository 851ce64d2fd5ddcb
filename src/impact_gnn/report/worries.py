"""What could go wrong: every weakness that the evidence shows, as a sentence that says what follows from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from impact_gnn.report.figures import array, grid, named
from impact_gnn.report.numbers import counted, finite, listed, number, percent, whole
from impact_gnn.report.words import names_of, row_of, rows_of

FEW_FOLDS = 3
THIN = 20
"""Known labels below which a period or a class counts as thin."""

SILENT, UNSURE, OVERCONFIDENT, OTHER_MIX = 0.2, 0.5, 0.1, 0.2
"""Shares from which on they are worth a sentence."""

Summary = Mapping[str, Any]


def worries(summary: Summary) -> list[str]:
    """Sentences, the gravest kind first; the last says what no back-test can see."""
    found = [text for check in CHECKS for text in check(summary)]
    return [
        *found,
        "A back-test shows how the method did in the past. Something that happens for the first time in the periods "
        "to predict cannot be seen in it.",
    ]


def backtest(summary: Summary) -> Iterator[str]:
    """Nothing back-tested, time ran out, few folds, candidates that failed, folds that disagree."""
    tested, rows = summary.get("backtest") or {}, rows_of(summary)
    if not rows:
        yield "Nothing could be back-tested, so neither the accuracy nor the use of any correction is known."
        return
    if tested.get("finished") is False:
        yield (
            "Time ran out before the back-test was complete. A faster machine or a larger budget may try more "
            "and choose otherwise, so this choice may not repeat."
        )
    folds = len(tested.get("folds") or [])
    if 0 < folds < FEW_FOLDS:
        yield (
            f"The choice rests on {counted(folds, 'back-tested period')} only; how much periods differ from each "
            f"other can hardly be seen."
        )
    failed = [row["method"] for row in rows if str(row.get("status") or "").startswith("failed")]
    if failed:
        yield f"{listed(failed)} could not be fitted and {'was' if len(failed) == 1 else 'were'} left out."
    row = row_of(summary, summary.get("choice")) or {}
    signs = [value > 0 for value in (row.get("by_fold") or {}).values() if finite(value)]
    if row.get("difference") and signs and not all(signs):
        yield f"{row['method']} was better than plain in {sum(signs)} of {len(signs)} periods, not in all."


def horizon(summary: Summary) -> Iterator[str]:
    """Targets further ahead than the back-test looked, or after a gap."""
    graph, cutoff = summary.get("graph") or {}, finite(summary.get("cutoff"))
    times, labelled = array(graph.get("times")), array(graph.get("labelled_per_time"))
    if cutoff is None or len(times) != len(labelled) or not len(times):
        return
    ahead = times[times >= cutoff]
    if len(ahead) > 1:
        yield (
            f"There are {len(ahead)} periods to predict, from {ahead[0]:.0f} to {ahead[-1]:.0f}; the back-test looked "
            f"one period ahead. Expect later periods to be less certain."
        )
    known = np.flatnonzero((times < cutoff) & (labelled > 0))
    between = int((times < cutoff).sum() - known[-1] - 1) if len(known) else 0
    if between > 0:
        yield (
            f"The last {counted(between, 'period')} before the cutoff {'has' if between == 1 else 'have'} no labels, "
            f"so the model looks further ahead than the back-test did."
        )
    thin = [f"{times[k]:.0f}" for k in known[-5:] if labelled[k] < THIN]
    if thin:
        yield f"Recent periods with fewer than {THIN} known labels: {listed(thin)}."


def assumptions(summary: Summary) -> Iterator[str]:
    """What fails among the assumptions that the choice leans on, and what could not be told."""
    findings = (summary.get("diagnosis") or {}).get("findings") or []
    verdict = {finding.get("assumption"): finding.get("verdict") for finding in findings}
    used = set(str(summary.get("choice") or "plain").split("+"))
    moving = {"doubtful": "moves", "fails": "changes"}
    if verdict.get(1) in moving:
        text = f"The label mix {moving[verdict[1]]} from period to period; the mix of the predictions may lag behind."
        leaning = used & {"center", "standardize", "jjnorm"}
        if leaning:
            text += f" {listed(sorted(leaning))} supposes that it does not, and may remove what tells classes apart."
        yield text
    if verdict.get(2) in moving:
        text = "Features of a class drift; what was learnt from older periods may no longer fit."
        yield text if "recency" in used else f"{text} Candidates with recency let recent labels count more."
    if verdict.get(3) == "fails" and used & {"pmp", "genpmp", "pny"}:
        yield (
            f"{listed(sorted(used & {'pmp', 'genpmp', 'pny'}))} supposes that connections depend on the distance in "
            f"time only, which fails here; it was chosen because it paid in the back-test."
        )
    blind = [finding.get("name", "?") for finding in findings if finding.get("verdict") == "cannot tell"]
    if blind:
        yield f"Could not be judged on this graph: {listed(blind)}."


def targets(summary: Summary) -> Iterator[str]:
    """Targets that differ from what was seen: their features, their neighbours, the mix predicted for them."""
    diagnosis, cutoff = summary.get("diagnosis") or {}, finite(summary.get("cutoff"))
    by_number = {f.get("assumption"): f.get("series") or {} for f in diagnosis.get("findings") or []}
    drift = by_number.get(2, {})
    times, away = array(drift.get("all_times")), array(drift.get("all_drift"))
    if cutoff is not None and len(times) == len(away):
        begun = min(array(drift.get("times")), default=-np.inf)
        before, after = away[(times < cutoff) & (times >= begun)], away[times >= cutoff]
        if np.isfinite(before).any() and np.isfinite(after).any() and np.nanmax(after) > 1.2 * np.nanmax(before):
            yield (
                f"Features of the nodes to predict lie further from the labelled ones ({number(np.nanmax(after), 2)} "
                f"class distances) than those of any labelled period ({number(np.nanmax(before), 2)})."
            )
    silent = array((diagnosis.get("shift") or {}).get("silent"))
    if len(silent) and silent[-1] >= SILENT:
        yield f"{percent(silent[-1], 0)} of the nodes to predict have no neighbour that says anything about them."
    yield from _mix(summary, by_number.get(1, {}))


def _mix(summary: Summary, series: Mapping[str, Any]) -> Iterator[str]:
    mix = grid(series.get("mix"))
    counts = array(list(((summary.get("predictions") or {}).get("labels") or {}).values()))
    if mix.size and len(counts) == mix.shape[1] and counts.sum() > 0:
        away = 0.5 * float(np.abs(counts / counts.sum() - np.nan_to_num(mix[-1])).sum())
        if away >= OTHER_MIX:
            yield (
                f"The mix of the predicted labels differs by {percent(away, 0)} from that of the last labelled period. "
                f"That may be true, or a lean of the model."
            )


def predictions(summary: Summary) -> Iterator[str]:
    """Unsure or overconfident probabilities, labels that are rare or never predicted."""
    found = summary.get("predictions") or {}
    bins = array(found.get("probability_histogram"))
    if len(bins) and bins.sum() > 0:
        unsure = float(bins[: int(len(bins) * UNSURE)].sum() / bins.sum())
        if unsure >= 0.1:
            yield f"{percent(unsure, 0)} of the predictions have a probability below one half."
    accuracy = finite((row_of(summary, summary.get("choice")) or {}).get("accuracy"))
    mean = finite(found.get("mean_probability"))
    if accuracy is not None and mean is not None and mean - accuracy >= OVERCONFIDENT:
        yield (
            f"The probabilities average {percent(mean)}, but {percent(accuracy)} were right in the back-test: "
            f"the model is surer than it should be."
        )
    names, counts = names_of(summary), array((summary.get("graph") or {}).get("label_counts"))
    rare = [named(names, k) for k in np.flatnonzero(counts < THIN)]
    if rare:
        yield f"Labels with fewer than {THIN} known nodes are hard to learn: {listed(rare)}."
    never = [named([str(name)], 0) for name, count in (found.get("labels") or {}).items() if count == 0]
    if never and finite(found.get("count")):
        yield f"Never predicted for any of the {whole(found['count'])} nodes: {listed(never)}."


CHECKS: tuple[Callable[[Summary], Iterator[str]], ...] = (backtest, horizon, assumptions, targets, predictions)
