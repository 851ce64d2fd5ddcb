"""The model card of a saved model: data, selection, back-test, limitations and use."""

from __future__ import annotations

import re
from typing import Any

from impact_gnn.backtesting import BacktestResult
from impact_gnn.diagnostics import Diagnosis
from impact_gnn.estimators import MODELS
from impact_gnn.graph import GraphSummary
from impact_gnn.report import limitations
from impact_gnn.report.numbers import counted, measured, percent, period_named
from impact_gnn.report.sentences import selected
from impact_gnn.report.summary import RunOptions, RunSummary


def card(
    graph: GraphSummary,
    options: RunOptions,
    diagnosis: Diagnosis,
    tested: BacktestResult,
    versions: dict[str, str],
) -> str:
    """The card as Markdown; names of users are escaped."""
    unknown: Any = None  # until the model is saved
    summary = RunSummary(
        graph=graph,
        options=options,
        command=None,
        diagnosis=diagnosis,
        advice=unknown,
        backtest=tested,
        fits=[],
        prediction_summary=unknown,
        explained=[],
        cost=unknown,
        versions=versions,
    )
    limits = [
        *limitations.backtest(summary),
        *limitations.horizon(summary),
        *limitations.assumptions(summary),
    ] or ["none that the evidence shows"]
    past = "There was no back-test."
    if tested.fold_checks:
        past = "The expected accuracy of the predictions is in the report and in `summary.json`."
    use = 'model = ig.Ensemble.load("model")'
    if options.model not in MODELS:
        class_name = options.model.rpartition("-")[0]
        use = f'model = ig.Ensemble.load("model", model=...)  # your own {class_name}'
    return "\n".join(
        [
            "# Model card",
            "",
            _escape(f"Class probabilities for the {graph.target} nodes of a temporal graph."),
            "",
            "## Data",
            "",
            *[f"- {_escape(line)}" for line in _data_lines(summary)],
            "",
            "## Selected model",
            "",
            _escape(selected(tested.selection)),
            "",
            f"## Back-test ({summary.metric.title})",
            "",
            *_fold_table(summary),
            "",
            past,
            "",
            "## Limitations",
            "",
            *[f"- {_escape(text)}" for text in limits],
            "",
            "## Use",
            "",
            "```python",
            "import impact_gnn as ig",
            "",
            use,
            'graph = ig.load("next graph")  # for tables also: period=model.fitted.schema.periods',
            "print(model.notes(graph))",
            "label, node = model.predict(graph), model.targets(graph)",
            "```",
            "",
            "## Versions",
            "",
            ", ".join(f"{name} {version}" for name, version in versions.items()),
            "",
        ]
    )


def _data_lines(summary: RunSummary) -> list[str]:
    """Sizes of the graph, and which labels were known."""
    graph = summary.graph
    lines = [f"{count:,} nodes of type {kind}" for kind, count in graph.num_nodes.items()]
    lines += [f"{count:,} edges {name}" for name, count in graph.num_edges.items()]
    periods = counted(len(graph.times), "period")
    lines.append(f"{periods}, from {graph.names[0]} to {graph.names[-1]}")
    lines.append(f"{len(graph.label_counts)} classes, {sum(graph.label_counts):,} known labels")
    lines.append(
        f"labels are known before {period_named(summary.since)}; "
        f"{graph.target} nodes from then on are predicted"
    )
    return lines


def _fold_table(summary: RunSummary) -> list[str]:
    """A row per fold with its scores, as Markdown; nothing without a fold."""
    if not summary.backtest.fold_checks:
        return []
    table = ["| window | nodes | score | baseline | accuracy |", "|---|---|---|---|---|"]
    for check in summary.backtest.fold_checks:
        cells = [
            _escape(check.window),
            f"{check.count:,}",
            measured(check.score, summary.metric),
            measured(check.plain_score, summary.metric),
            percent(check.accuracy),
        ]
        table.append(f"| {' | '.join(cells)} |")
    return table


def _escape(text: str) -> str:
    """Escape the markup of Markdown; the text becomes one line."""
    return re.sub(r"([\\`*_{}\[\]<>#|~!&$])", r"\\\1", " ".join(text.split()))
