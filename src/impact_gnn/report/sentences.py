"""Plain words: the lines that matter first, what the choice does, how it was made, how far to trust it."""

from __future__ import annotations

import shlex
from collections import Counter
from dataclasses import dataclass

from impact_gnn import methods
from impact_gnn.backtesting import BASELINE, BacktestResult, FoldCheck, SelectionReason
from impact_gnn.backtesting.forecast import USUAL, lost_per_period
from impact_gnn.backtesting.greedy import START
from impact_gnn.diagnostics import MessageShift
from impact_gnn.graph import Summary
from impact_gnn.heads import MODELS
from impact_gnn.metrics import Metric
from impact_gnn.pipeline import EnsembleSpec, Member
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

KEPT = EnsembleSpec.single(BASELINE)  # no correction, and no other model
TOLERATED = 0.02  # of accuracy that may be lost before a model is fitted again


def headline(summary: RunSummary) -> list[tuple[str, str, str]]:
    """What matters first: what was predicted, by what, how right it will be; each with its shortest form, if any."""
    chosen = str(summary.backtest.selection).replace(" -", " −")
    result, tested, metric = summary.prediction_summary, summary.backtest, summary.metric
    members = summary.choice.candidates
    most = max(result.labels, key=lambda name: result.labels[name])
    share = f"Most often {named(most)} ({percent(result.labels[most] / result.count, 0)})"
    predicted = f"{share}; one row each in {result.file}."
    sure, big = "Nothing was back-tested, so the accuracy to expect is unknown.", "not known"
    if (right := result.accuracy) is not None:
        # Window by window: one mean would hide that they differ, and agree with no other number on
        # the page.
        past = [
            (measured(one.score, metric), measured(one.plain_score, metric), name)
            for name, one in checked(tested)
        ]
        other = "" if summary.choice == KEPT else " (plain: {1})"
        each = listed([f"{{0}}{other} in {{2}}".format(*one) for one in past])
        what = "were right" if metric.title == "accuracy" else f"was the {metric.title}"
        big = f"{percent(right.value, 0)} right"
        sure = f"Expected, between {percent(right.low, 0)} and {percent(right.high, 0)}. In the back-test {each} {what}. "
        held = f"labels on average hold the truth for {percent(result.coverage, 0)}"
        sure += f"Sets of {number(result.set_size, 1)} {held}."
    return [
        ("Predicted", counted(result.count, "node"), predicted),
        (
            "By what",
            f"{len(members)} models averaged" if len(members) > 1 else str(members[0]),
            chosen,
        ),
        ("How right it will be", big, sure),
    ]


def checked(tested: BacktestResult) -> list[tuple[str, FoldCheck]]:
    """Past windows with their names, newest first; halves of a single one are told apart."""
    halves = (
        [" (one half)", " (other half)"]
        if len(tested.folds) < len(tested.fold_checks)
        else [""] * len(tested.fold_checks)
    )
    return [(one.window + half, one) for one, half in zip(tested.fold_checks, halves, strict=True)][
        ::-1
    ]


def members(summary: RunSummary) -> list[tuple[Member, str]]:
    """Members of the choice, and what the model of each is."""

    def described(member: Member) -> str:
        spec = MODELS.get(member.candidate.model or summary.options.model)
        return "a user model" if spec is None else spec.summary

    return [(member, described(member)) for member in summary.choice.members]


def parts(chosen: EnsembleSpec) -> list[tuple[str, str]]:
    """What the methods of a choice are made of, and what every part does."""
    used = [methods.get(name) for name in methods.names() if name in chosen.parts]
    return [(part.name, part.summary) for part in used]


def choice(summary: RunSummary) -> list[str]:
    """How the choice came about, what is certain about it and what is not, as sentences."""
    tested, decision = summary.backtest, summary.backtest.selection
    if decision.reason is SelectionReason.TOO_SHORT:
        return [str(decision)]
    if (gain := decision.gain) is None:
        why = (
            " before the budget was spent" if decision.reason is SelectionReason.OUT_OF_TIME else ""
        )
        return [
            f"Nothing beside plain was tried on every window{why}, so plain stays, whatever the table shows."
        ]
    metric, hits = summary.metric, summary.metric.title == "accuracy"
    interval = (
        f"{points(gain.value)} {metric.unit}, between {points(gain.low)} and {points(gain.high)}"
    )
    by = "log-loss" if metric.by_log_loss else metric.title
    left = "for each window the blend was made anew from the others"
    if len(tested.folds) == 1:
        left = "there is one window only, so each half of its nodes was predicted by the blend that the other half made"
    how = (
        f"The blend starts from the mean of the best by {by}, at most {START} that are nearly as good as the best "
        f"one; then, one at a time, whichever improved the {by} of the mean most was drawn, a few times at most. A "
        "window counts half as much as the next newer one. "
        f"What this gains was measured on windows left out: {left}. What to try was found with all windows, so that "
        "the best may still look a little better than it is."
    )
    if decision.reason is SelectionReason.NONE_BETTER:
        kept = f"On those, nothing had a better {by} than plain, so plain is kept."
        rival = f"The {metric.title} of the best other, {decision.best_single},"
        return [how, f"{kept} {rival} differs from plain's by {interval}."]
    what = str(summary.choice) if len(summary.choice.members) == 1 else "this blend"
    if gain.value <= 0:
        sure = f"We use {what} for its probabilities, whose log-loss on windows left out was smaller than plain's. "
        sure += f"It is not more often right: the difference to plain is {interval}."
    elif gain.low <= 0:
        seen = "What was seen is a smaller log-loss on windows left out; that it is also more often right is not certain."
        sure = f"We use {what}; the gain over plain is likely {interval}. {seen if hits else 'It is not certain.'}"
    else:
        sure = (
            f"We use {what}; the gain over plain is {interval}: above zero with its whole interval."
        )
    better = [
        (name, metric.displayed(one.score - one.plain_score)) for name, one in checked(tested)
    ]
    shown = listed([f"{name}: {points(value)}" for name, value in better], 8)
    sure += f" It {improved(metric)} in {sum(value > 0 for _, value in better)} of {len(better)}, newest first"
    out = [how, f"{sure} ({shown})."]
    methods, first = summary.advice.methods, summary.choice.candidates[0].method
    if first in methods:
        place = methods.index(first)
        before = (
            f"The diagnosis, made before anything was trained, had put {first} at place {place + 1}"
        )
        out.append(f"{before} of {len(methods)}: {summary.advice.candidates[place].reason}.")
    return out


def improved(metric: Metric) -> str:
    """What a better choice did."""
    return "was more often right" if metric.title == "accuracy" else f"had a better {metric.title}"


def trust(summary: RunSummary) -> list[str]:
    """What may be expected of the predictions, and what that rests on, as sentences."""
    result, tested, learned = (
        summary.prediction_summary,
        summary.backtest,
        summary.backtest.calibration,
    )
    if (right := result.accuracy) is None:
        return [
            "No past window was predicted, so nothing is known about how right the predictions are."
        ]
    held = sorted(one.coverage for one in tested.fold_checks)
    to = "less" if learned.temperature > 1 else "more"
    shares = ", and corrected for the new shares of the labels" if learned.shift else ""
    tilt = ""
    if learned.tilt:
        tilt = (
            f"Labels lean towards rare ones: where p / share^{learned.tilt:g}, not p, is greatest. "
        )
    return [
        f"{percent(right.value)} of the predictions are expected to be right, between {percent(right.low)} and "
        f"{percent(right.high)} (90% interval). Half of that is what the probabilities of the nodes to predict say "
        f"({percent(result.mean_probability)} on average), half how many were right in the newest past "
        "window. The interval follows from how far past windows lay from what the same rule says about them; as they "
        f"are few, a usual {100 * USUAL:.0f} points count too.",
        f"{tilt}Probabilities were made {to} sure (temperature {number(learned.temperature, 2)}){shares}. In the past "
        f"they were off by {percent(tested.mean_check('error_before'))} on average before and "
        f"{percent(tested.mean_check('error'))} after, calibrated by the other windows.",
        f"A set holds every label with a probability of {number(learned.threshold, 2)} or more, "
        f"{number(result.set_size, 1)} on average, and is to hold the truth for {percent(result.coverage, 0)} of the "
        f"nodes. In past windows it did for {percent(held[0], 0)} to {percent(held[-1], 0)}.",
    ]


def by_horizon(summary: RunSummary) -> str:
    """How fast a model loses, and so how often it should be fitted again."""
    lags = summary.backtest.by_horizon
    if len(lags) < 2:
        return "The past is too short to see how a model ages; fit again whenever a period's labels come."
    seen = f"over {counted(len(lags), 'period')} after its last label"
    slope = lost_per_period(lags)
    if slope.low <= 0:
        change = f"{points(-slope.value)} points a period, between {points(-slope.high)} and {points(-slope.low)}"
        return f"No loss with age can be told from chance {seen} ({change}); fit again when new labels are worth it."
    loss = f"{100 * slope.value:.1f} points a period (between {100 * slope.low:.1f} and {100 * slope.high:.1f})"
    every = max(1, int(TOLERATED / slope.value))
    again = f"fit again every {counted(every, 'period')}"
    return (
        f"A model lost {loss} {seen}. To lose no more than {100 * TOLERATED:.0f} points, {again}."
    )


def describe_evaluation(summary: RunSummary, found: Evaluation) -> list[str]:
    """How right the forecast, the probabilities, the sets and the choice were, as sentences."""
    result, right, metric = summary.prediction_summary, found.accuracy, summary.metric
    known = (
        f"Labels of {whole(found.count)} of the {whole(result.count)} predicted nodes are known now"
    )
    out = [
        f"{known}; {percent(right.value)} were right (between {percent(right.low)} and {percent(right.high)})."
    ]
    if (said := result.accuracy) is not None:
        held = (
            "held"
            if said.low <= right.value <= said.high
            else "was too high"
            if right.value < said.low
            else "was too low"
        )
        between = f"{percent(said.value)}, between {percent(said.low)} and {percent(said.high)}"
        out[0] += f" The forecast {held}: {between}."
    if found.unknown:
        out.append(
            f"{percent(found.unknown / found.count)} are in classes that the model had never seen; they count as wrong."
        )
    before = summary.backtest.mean_check("error")
    past = "" if before is None else f" (in past windows: {percent(before)})"
    out.append(
        f"Probabilities averaged {percent(found.confidence)} and were off by {percent(found.error)} on average{past}. "
        f"Sets that were to hold the truth for {percent(result.coverage, 0)} held it for {percent(found.coverage)}."
    )
    if (gain := found.gain) is None:
        return [
            *out,
            "Whether the choice was right is not known: that takes the graph (--graph), to fit plain on it.",
        ]
    interval = (
        f"{points(gain.value)} {metric.unit}, between {points(gain.low)} and {points(gain.high)}"
    )
    scores = (
        f"{measured(found.score, metric)} against {measured(found.plain_score, metric)} of plain"
    )
    if summary.choice == KEPT:
        return [*out, f"Plain was the choice ({measured(found.score, metric)})."]
    outcome = (
        "paid" if gain.low > 0 else "did not pay" if gain.high < 0 else "can not be told from plain"
    )
    return [
        *out,
        f"The choice {outcome}: {scores}, fitted as it would have been then ({interval}).",
    ]


@dataclass(frozen=True)
class ClassRow:
    """How a label did in past windows, and how often it is predicted now."""

    name: str
    known: int
    tested: int
    found: float | None
    precise: float | None
    predicted: int


def classes(summary: RunSummary) -> list[ClassRow]:
    """A row for every label, those with the most known nodes first."""
    tested, given, right = (Counter[int]() for _ in range(3))
    for one in summary.backtest.fold_checks:
        for true, label, count in one.confusion:
            tested[true] += count
            given[label] += count
            right[true] += count * (true == label)
    rows = [
        ClassRow(
            name,
            summary.graph.label_counts[k],
            tested[k],
            right[k] / tested[k] if tested[k] else None,
            right[k] / given[k] if given[k] else None,
            predicted,
        )
        for k, (name, predicted) in enumerate(summary.prediction_summary.labels.items())
    ]
    return sorted(rows, key=lambda row: -row.known)


def abstain(summary: RunSummary) -> list[tuple[float, float, float | None, float | None]]:
    """Least probability, share of predictions that have it, how many such were right in the newest and all windows."""
    counts, checks = summary.prediction_summary.histogram, summary.backtest.fold_checks
    newest = [one for one in checks if one.window == checks[-1].window]

    def right(windows: list[FoldCheck], least: float) -> float | None:
        sure = [
            (one.count * each.share, each)
            for one in windows
            for each in one.bins
            if each.confidence >= least
        ]
        total = sum(weight for weight, _ in sure)
        return sum(weight * each.accuracy for weight, each in sure) / total if total else None

    steps = [
        (place / len(counts), sum(counts[place:]) / summary.prediction_summary.count)
        for place in range(len(counts))
    ]
    return [(least, kept, right(newest, least), right(checks, least)) for least, kept in steps]


def shift(measured: MessageShift) -> list[str]:
    """What the measured shift of messages says, with the bound of the theorem."""
    plain = measured.methods["plain"]
    left = {name: one.overall for name, one in measured.methods.items() if one is not plain}
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


def edge_times(graph: Summary) -> str:
    """Whether it is known when edges came, and what a back-test saw."""
    unknown = graph.undated_edges
    if not unknown:
        return "known; back-tests saw the graph as it was"
    some = f" for {listed(unknown)}" if len(unknown) < len(graph.num_edges) else ""
    return f"not known{some}; back-tests saw an edge as soon as both its nodes were there"


def facts(summary: RunSummary) -> list[tuple[str, str]]:
    """What the graph is, in names and values."""
    graph = summary.graph
    alone = len(graph.num_nodes) == 1
    out = [
        (
            "nodes",
            ", ".join(
                whole(n) if alone else f"{whole(n)} {kind}" for kind, n in graph.num_nodes.items()
            ),
        )
    ]
    for name, count in graph.num_edges.items():
        across = graph.cross_time_share.get(name)
        shown = (
            whole(count) if across is None else f"{whole(count)}, {percent(across, 0)} across time"
        )
        out.append(("edges" if len(graph.num_edges) == 1 else f"edges {name}", shown))
    if any(graph.num_edges.values()):
        out.append(("edge times", edge_times(graph)))
    labelled, total = sum(graph.labelled_per_time), sum(graph.nodes_per_time)
    return [
        *out,
        ("features", "none" if graph.num_features is None else whole(graph.num_features)),
        (
            "labels",
            f"{len(graph.label_counts)} classes; known for {whole(labelled)} of {whole(total)}",
        ),
        ("periods", f"{len(graph.times)}, from {graph.names[0]} to {graph.names[-1]}"),
        ("cutoff", f"{summary.since} (labels from there on were not read)"),
    ]


def command(summary: RunSummary) -> str:
    """What was typed, or would have been; what the summary does not know stands in capitals."""
    if summary.command is not None:
        return summary.command
    options = summary.options
    words = [
        "impact",
        "run",
        "GRAPH",
        "--out",
        "DIR",
        "--cutoff",
        summary.since,
        "--model",
        options.model,
    ]
    if options.candidates is not None:
        words += ["--candidates", ",".join(map(str, options.candidates))]
    words += [
        "--effort",
        options.effort,
        "--folds",
        str(options.folds),
        "--seeds",
        str(options.seeds),
    ]
    if options.budget is not None:
        words += ["--budget", f"{options.budget:g}s"]
    if options.metric != "accuracy":
        words += ["--metric", options.metric]
    if options.class_weight is not None:
        words += ["--class-weight", options.class_weight]
    words += ["--hops", str(options.hops), "--seed", str(options.seed)]
    if options.embed != "none":
        words += ["--embed", options.embed]
    return shlex.join(words if options.undirected else [*words, "--directed"])


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
