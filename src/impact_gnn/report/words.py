"""Plain words: the three lines that matter, what a method does, how it was chosen, how to run it once more."""

from __future__ import annotations

import shlex

from impact_gnn.backtesting import Reason
from impact_gnn.diagnostics import MessageShift
from impact_gnn.pipeline import Method
from impact_gnn.report.numbers import counted, listed, named, number, percent, points, whole
from impact_gnn.report.summary import RunSummary

PLAIN = Method()

PARTS = {
    "plain": "messages are averaged over neighbours as they come, whatever their time; nothing is corrected",
    "mmp": "neighbours younger than the node itself are not heard, so that old nodes look like recent ones",
    "pmp": "neighbours are weighted by time so that old nodes meet the same mix of distances as the newest do",
    "genpmp": "as PMP, with the weights estimated for every pair of periods from the graph itself",
    "center": "the mean message of every period is removed",
    "standardize": "messages of every period are brought to mean 0 and variance 1",
    "jjnorm": "messages of every class and period are scaled to the spread that the targets have",
    "pny": "messages of every class and period are turned so that their covariance is that of the newest period",
    "labels": "known labels of neighbours are passed along as further features (never a node's own)",
    "snapshot": "every labelled node is seen on the graph as it was at its own time",
    "lags": "and as long after its own time as the nodes to predict are seen after theirs",
    "ends": "the weights go by the two ends of a path through nodes that have no time",
    "recency": "recent labels count more in training",
    "curriculum": "training begins with the labels that are easy to learn",
    "features": "the edges are not used at all",
}


def headline(summary: RunSummary) -> list[tuple[str, str]]:
    """The three lines that matter: what was chosen and why, what was predicted, how sure that is."""
    chosen = str(summary.backtest.decision).replace(" -", " −")
    result = summary.predictions
    most = max(result.labels, key=lambda name: result.labels[name])
    predicted = (
        f"{counted(result.count, 'node')} at or after {summary.cutoff}, in {result.file}; "
        f"most often {named(most)} ({percent(result.labels[most] / result.count, 0)})."
    )
    row, plain = summary.backtest.row(summary.choice), summary.backtest.row(PLAIN)
    sure = "Nothing was back-tested, so the accuracy to expect is unknown."
    if row is not None and plain is not None:
        other = "" if summary.choice == PLAIN else f" (plain: {percent(plain.accuracy)})"
        sure = f"{percent(row.accuracy)} were right in the back-test on {listed(sorted(row.by_fold))}{other}."
    sure += f" The model's own probabilities average {percent(result.mean_probability)}."
    return [("Chosen", chosen), ("Predicted", predicted), ("How sure", sure)]


def parts(method: Method) -> list[tuple[str, str]]:
    """What a method is made of, and what every part does."""
    return [(part, PARTS[part]) for part in str(method).split("+")]


def choice(summary: RunSummary) -> list[str]:
    """How the choice came about, as sentences."""
    decision, row = summary.backtest.decision, summary.backtest.row(summary.choice)
    if row is None:
        return [str(decision)]
    if decision.reason is Reason.BETTER:
        better = sum(value > 0 for value in row.by_fold.values())
        shown = [f"{fold}: {points(value)}" for fold, value in sorted(row.by_fold.items())]
        rule = "its difference to plain lies above zero with its whole interval, also after that was widened"
        out = [f"{decision.method} was taken because {rule} for the number of candidates in the last round."]
        out.append(f"It was better in {better} of {counted(len(shown), 'period')} ({listed(shown, 8)}).")
        # Others, tried to the end, whose interval reaches the value of the choice.
        value = 0.0 if row.difference is None else row.difference.value
        others = [(one.method, one.difference) for one in summary.backtest.full if one is not row]
        if rivals := [method for method, gain in others if gain is not None and gain.high >= value]:
            out.append(f"{listed(rivals)} did about as well; the back-test cannot tell them from the choice.")
    elif decision.reason is Reason.NONE_BETTER:
        rule = "its difference to plain lies above zero with its whole interval, widened for the number of candidates"
        risk = "None did, and a correction that does not pay for certain is not worth its risk."
        out = [f"A correction is taken only if {rule} in the last round. {risk}"]
    else:
        rule = "A correction is taken only after it was tried on two periods of the back-test at least."
        out = [f"{rule} None was, so plain stays, whatever the differences above look like."]
    methods = summary.advice.methods
    if summary.choice in methods:
        place = methods.index(summary.choice)
        because = "" if summary.choice == PLAIN else f": {summary.advice.candidates[place].reason}"
        before = "The diagnosis, made before anything was trained, had put it"
        out.append(f"{before} at place {place + 1} of {len(methods)}{because}.")
    return out


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


def facts(summary: RunSummary) -> list[tuple[str, str]]:
    """What the graph is, in names and values."""
    graph = summary.graph
    alone = len(graph.num_nodes) == 1
    out = [("nodes", ", ".join(whole(n) if alone else f"{whole(n)} {kind}" for kind, n in graph.num_nodes.items()))]
    for name, count in graph.num_edges.items():
        across = graph.cross_time_share.get(name)
        shown = whole(count) if across is None else f"{whole(count)}, {percent(across, 0)} across time"
        out.append(("edges" if len(graph.num_edges) == 1 else f"edges {name}", shown))
    labelled, total = sum(graph.labelled_per_time), sum(graph.nodes_per_time)
    return [
        *out,
        ("features", "none" if graph.num_features is None else whole(graph.num_features)),
        ("labels", f"{len(graph.label_counts)} classes; known for {whole(labelled)} of {whole(total)}"),
        ("periods", f"{len(graph.times)}, from {graph.times[0]} to {graph.times[-1]}"),
        ("cutoff", f"{summary.cutoff} (labels from there on were not read)"),
    ]


def command(summary: RunSummary) -> str:
    """What was typed, or would have been; what the summary does not know stands in capitals."""
    if summary.command is not None:
        return summary.command
    options = summary.options
    words = ["impact", "run", "GRAPH", "--out", "DIR", "--cutoff", str(options.cutoff), "--model", options.model]
    if options.candidates is not None:
        words += ["--candidates", ",".join(map(str, options.candidates))]
    words += ["--folds", str(options.folds), "--seeds", str(options.seeds)]
    if options.budget is not None:
        words += ["--budget", f"{options.budget:g}s"]
    words += ["--hops", str(options.hops), "--seed", str(options.seed)]
    return shlex.join(words if options.undirected else [*words, "--directed"])


def options_of(summary: RunSummary) -> list[tuple[str, str]]:
    """Names and values of all options."""
    values = vars(summary.options) | {"candidates": ", ".join(map(str, summary.options.candidates or ())) or None}
    return [(name, "none given" if value is None else str(value)) for name, value in sorted(values.items())]
