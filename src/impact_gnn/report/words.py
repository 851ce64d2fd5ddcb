"""Plain words: the three lines that matter, what a method does, how it was chosen, how to do it again."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from impact_gnn.report.figures import named
from impact_gnn.report.numbers import NONE, counted, finite, listed, number, percent, points, whole

PLAIN = "plain"

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


def names_of(summary: Mapping[str, Any]) -> list[str]:
    """Names of the labels in the order of their numbers, in the user's coding."""
    known = list((summary.get("predictions") or {}).get("labels") or {})
    size = len((summary.get("graph") or {}).get("label_counts") or ())
    return known if len(known) >= size else [str(k) for k in range(size)]


def rows_of(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows of the back-test; an empty list if there was none."""
    return list((summary.get("backtest") or {}).get("rows") or [])


def row_of(summary: Mapping[str, Any], method: str | None) -> dict[str, Any] | None:
    """The row of a method."""
    return next((row for row in rows_of(summary) if row.get("method") == method), None)


def full_rows(tested: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Rows of the candidates that were tried on every period and neither dropped nor failed."""
    folds = len(tested.get("folds") or ())
    rows = tested.get("rows") or []
    return [row for row in rows if not row.get("status") and len(row.get("by_fold") or ()) >= folds]


def headline(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The three lines that matter: what was chosen and why, what was predicted, how sure that is."""
    return [("Chosen", chosen(summary)), ("Predicted", predicted(summary)), ("How sure", how_sure(summary))]


def chosen(summary: Mapping[str, Any]) -> str:
    """The choice and its reason."""
    why = str(summary.get("why") or summary.get("choice") or "nothing was chosen").removeprefix("Chosen: ")
    return why.replace(" -", " −")


def predicted(summary: Mapping[str, Any]) -> str:
    """How many nodes got which labels, and where the table is."""
    found = summary.get("predictions") or {}
    count = finite(found.get("count"))
    if count is None:
        return "No predictions were made."
    where = f", in {found['file']}" if found.get("file") else ""
    text = f"{counted(int(count), 'node')} at or after {summary.get('cutoff', NONE)}{where}"
    labels = {str(k): v for k, v in (found.get("labels") or {}).items() if finite(v)}
    if count and labels:
        most = max(labels, key=lambda name: labels[name])
        text += f"; most often {named([most], 0)} ({percent(labels[most] / count, 0)})"
    return text + "."


def how_sure(summary: Mapping[str, Any]) -> str:
    """Accuracy in the back-test, and what the model itself says."""
    row, plain = row_of(summary, summary.get("choice")), row_of(summary, PLAIN)
    mean = (summary.get("predictions") or {}).get("mean_probability")
    own = "" if finite(mean) is None else f" The model's own probabilities average {percent(mean)}."
    if row is None or finite(row.get("accuracy")) is None:
        return f"Nothing was back-tested, so the accuracy to expect is unknown.{own}"
    folds = list((row.get("by_fold") or {}) or (summary.get("backtest") or {}).get("folds") or [])
    text = f"{percent(row['accuracy'])} were right in the back-test"
    if folds:
        text += f" on {listed([str(f) for f in sorted(folds, key=_order)])}"
    if plain is not None and row is not plain and finite(plain.get("accuracy")) is not None:
        text += f" (plain: {percent(plain['accuracy'])})"
    return f"{text}.{own}"


def parts(method: str | None) -> list[tuple[str, str]]:
    """What a method is made of, and what every part does.

    Example:
        >>> [name for name, _ in parts("pmp+labels")]
        ['pmp', 'labels']
    """
    return [(part, PARTS.get(part, "a correction of your own")) for part in str(method or PLAIN).split("+")]


def choice(summary: Mapping[str, Any]) -> list[str]:
    """How the choice came about, as sentences."""
    method = summary.get("choice") or PLAIN
    row, rows = row_of(summary, method), rows_of(summary)
    if not rows:
        return [chosen(summary)]
    out = []
    if method == PLAIN and not [row for row in full_rows(summary["backtest"]) if row.get("method") != PLAIN]:
        out.append(
            "A correction is taken only after it was tried on every period of the back-test. None was, so plain stays, "
            "whatever the differences above look like."
        )
    elif method == PLAIN:
        out.append(
            "A correction is taken only if its difference to plain lies above zero with its whole interval, widened "
            "for the number of candidates in the last round. None did, and a correction that does not pay for "
            "certain is not worth its risk."
        )
    else:
        out.append(
            f"{method} was taken because its difference to plain lies above zero with its whole interval, also after "
            "that was widened for the number of candidates in the last round."
        )
        by_fold = {k: v for k, v in ((row or {}).get("by_fold") or {}).items() if finite(v) is not None}
        if by_fold:
            better = sum(value > 0 for value in by_fold.values())
            shown = [f"{fold}: {points(by_fold[fold])}" for fold in sorted(by_fold, key=_order)]
            out.append(f"It was better in {better} of {counted(len(by_fold), 'period')} ({listed(shown, 8)}).")
        rivals = close_rivals(summary)
        if rivals:
            out.append(f"{listed(rivals)} did about as well; the back-test cannot tell them from the choice.")
    return [*out, *_advised(summary, method)]


def close_rivals(summary: Mapping[str, Any]) -> list[str]:
    """Other candidates, tried to the end, whose interval reaches the value of the choice."""
    row = row_of(summary, summary.get("choice"))
    value = finite(((row or {}).get("difference") or {}).get("value"))
    if value is None:
        return []
    tried = {row.get("method"): row.get("difference") or {} for row in full_rows(summary["backtest"])}
    reach = {str(method): finite(difference.get("high")) for method, difference in tried.items()}
    others = [method for method in reach if method not in (summary.get("choice"), PLAIN)]
    return [method for method in others if (high := reach[method]) is not None and high >= value]


def _advised(summary: Mapping[str, Any], method: str) -> list[str]:
    candidates = (summary.get("advice") or {}).get("candidates") or []
    order = [set(str(candidate.get("method")).split("+")) for candidate in candidates]
    wanted = set(method.split("+"))  # the same parts may be written in another order
    if wanted not in order:
        return []
    place, reason = order.index(wanted) + 1, candidates[order.index(wanted)].get("reason")
    because = f": {reason}" if reason and method != PLAIN else ""
    return [f"The diagnosis, made before anything was trained, had put it at place {place} of {len(order)}{because}."]


def shift(found: Mapping[str, Any]) -> list[str]:
    """What the measured shift of messages says, with the bound of the theorem."""
    methods = found.get("methods") or {}
    plain = methods.get(PLAIN) or {}
    before, out = finite(plain.get("overall")), []
    if before is not None:
        out.append(
            f"Messages of the labelled past lie {number(before, 2)} standard deviations from those of the targets "
            f"(sliced Wasserstein distance, sampling noise taken out; {found.get('path', 'messages')})."
        )
        left = {name: finite((one or {}).get("overall")) for name, one in methods.items() if name != PLAIN}
        rest = {name: after for name, after in left.items() if after is not None}
        if rest:
            best = min(rest, key=lambda name: rest[name])
            out.append(
                f"The smallest shift is left by {best}, {number(rest[best], 2)}."
                if rest[best] < before
                else "No correction makes it smaller."
            )
    theory = plain.get("classes") or {}
    bound = finite(theory.get("theorem_4_3"))
    if bound is not None:
        out.append(
            f"Inside a class, periods are {number(theory.get('measured'), 2)} apart. The paper's Theorem 4.3 allows "
            f"{number(bound, 2)} if the means agree; √(2V), which follows from the variance V alone, allows "
            f"{number(theory.get('equal_means'), 2)}. In truth the means differ by {number(theory.get('mean_gap'), 2)}."
        )
    return out


def facts(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What the graph is, in names and values."""
    graph = summary.get("graph") or {}
    kinds, relations = graph.get("num_nodes") or {}, graph.get("num_edges") or {}
    nodes = [whole(count) if len(kinds) == 1 else f"{whole(count)} {kind}" for kind, count in kinds.items()]
    out = [("nodes", ", ".join(nodes) or NONE)]
    for name, count in relations.items():
        across = finite((graph.get("cross_time_share") or {}).get(name))
        called = "edges" if len(relations) == 1 else f"edges {name}"
        out.append((called, whole(count) if across is None else f"{whole(count)}, {percent(across, 0)} across time"))
    features = graph.get("num_features")
    out.append(("features", "none" if features is None else whole(features)))
    counts = graph.get("label_counts") or []
    labelled, total = sum(graph.get("labelled_per_time") or []), sum(graph.get("nodes_per_time") or [])
    out.append(("labels", f"{len(counts)} classes; known for {whole(labelled)} of {whole(total)}"))
    times = graph.get("times") or []
    if times:
        out.append(("periods", f"{len(times)}, from {times[0]} to {times[-1]}"))
    out.append(("cutoff", f"{summary.get('cutoff', NONE)} (labels from there on were not read)"))
    return out


def command(summary: Mapping[str, Any]) -> str:
    """The command that does it all again; what the summary does not know stands in capitals.

    Example:
        >>> command({"cutoff": 2019, "options": {"folds": 3, "undirected": False, "candidates": ["pmp", "labels"]}})
        'impact run GRAPH --out DIR --cutoff 2019 --candidates pmp,labels --folds 3 --directed'
    """
    if summary.get("command"):
        return str(summary["command"])
    options = summary.get("options") or {}
    words = ["impact", "run", "GRAPH", "--out", "DIR"]
    if summary.get("cutoff") is not None:
        words += ["--cutoff", str(summary["cutoff"])]
    for name in ("model", "candidates", "folds", "seeds", "budget", "seed"):
        value = options.get(name)
        if value is not None and value != float("inf"):
            words += [f"--{name}", _option(name, value)]
    if options.get("undirected") is False:
        words.append("--directed")
    return shlex.join(words)


def options_of(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Names and values of all options."""
    return [(name, _shown(value)) for name, value in sorted((summary.get("options") or {}).items())]


def _shown(value: Any) -> str:
    if value is None or (isinstance(value, float) and finite(value) is None):
        return "none given"
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _option(name: str, value: Any) -> str:
    if name == "candidates" and not isinstance(value, str):
        return ",".join(map(str, value))
    return f"{value:g}s" if name == "budget" and finite(value) is not None else str(value)


def _order(fold: Any) -> tuple[bool, float | str]:
    """Folds by time; their names are text in JSON."""
    try:
        return False, float(fold)
    except ValueError:
        return True, str(fold)
