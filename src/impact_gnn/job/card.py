"""The model card: what a saved model was made of, why it was chosen, how good it was, its limits, how to use it."""

from __future__ import annotations

import re
from typing import Any

from impact_gnn.backtesting import BacktestResult
from impact_gnn.diagnostics import Diagnosis
from impact_gnn.graph import Summary
from impact_gnn.pipeline import MODELS
from impact_gnn.report import limitations
from impact_gnn.report.numbers import counted, measured, percent
from impact_gnn.report.summary import RunOptions, RunSummary


def card(
    graph: Summary,
    options: RunOptions,
    diagnosis: Diagnosis,
    tested: BacktestResult,
    versions: dict[str, str],
) -> str:
    """The card as Markdown; names that users gave are shown as they are, whatever they hold."""
    later: Any = None  # what is known after the model was saved
    summary = RunSummary(
        graph, options, None, diagnosis, later, tested, [], later, [], later, versions
    )
    limits = [
        *limitations.backtest(summary),
        *limitations.horizon(summary),
        *limitations.assumptions(summary),
    ]
    data = [f"{count:,} nodes of type {kind}" for kind, count in graph.num_nodes.items()]
    data += [f"{count:,} edges {name}" for name, count in graph.num_edges.items()]
    data.append(
        f"{counted(len(graph.times), 'period')}, from {graph.names[0]} to {graph.names[-1]}"
    )
    data.append(f"{len(graph.label_counts)} classes, {sum(graph.label_counts):,} known labels")
    data.append(
        f"labels before {summary.since} were known; nodes of {graph.target} from then on are predicted"
    )
    rows = ["| window | nodes | score | plain | accuracy |", "|---|---|---|---|---|"]
    for one in tested.fold_checks:
        scores = (
            measured(one.score, summary.metric),
            measured(one.plain_score, summary.metric),
            percent(one.accuracy),
        )
        rows.append(f"| {' | '.join([_plain(one.window), f'{one.count:,}', *scores])} |")
    past = "What to expect of the nodes predicted with it is in the report, and in `summary.json`."
    past = past if tested.fold_checks else "Nothing was back-tested."
    use = 'model = ig.Ensemble.load("model")'
    if options.model not in MODELS:
        use = f'model = ig.Ensemble.load("model", model=...)  # your own {options.model.rpartition("-")[0]}'
    return "\n".join(
        [
            "# Model card",
            "",
            _plain(f"Probabilities of classes for the {graph.target} nodes of a graph in time."),
            "",
            "## Data",
            "",
            *[f"- {_plain(line)}" for line in data],
            "",
            "## What was chosen, and why",
            "",
            _plain(str(tested.selection)),
            "",
            f"## Back-test ({summary.metric.title})",
            "",
            *(rows if tested.fold_checks else []),
            "",
            past,
            "",
            "## Limits",
            "",
            *[f"- {_plain(text)}" for text in limits or ["none that the evidence shows"]],
            "",
            "## Use",
            "",
            "```python",
            "import impact_gnn as ig",
            "",
            use,
            'graph = ig.load("next graph")  # of tables also: period=model.fitted.schema.periods',
            "print(model.notes(graph))",
            "label, node = model.predict(graph), model.targets(graph)",
            "```",
            "",
            "## Made with",
            "",
            ", ".join(f"{name} {version}" for name, version in versions.items()),
            "",
        ]
    )


def _plain(text: str) -> str:
    """A text that Markdown shows as it is, in one line."""
    return re.sub(r"([\\`*_{}\[\]<>#|~!&$])", r"\\\1", " ".join(text.split()))
