"""The model card of a saved model: data, selection, back-test, limitations and use."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from impact_gnn._text import plain_template
from impact_gnn.backtesting import BacktestResult
from impact_gnn.diagnostics import Diagnosis
from impact_gnn.estimators import MODELS
from impact_gnn.graph import GraphSummary
from impact_gnn.report.limitations import limitations
from impact_gnn.report.numbers import FILTERS, period_named
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
    user_model = None if options.model in MODELS else options.model.rpartition("-")[0]
    template = plain_template(Path(__file__).with_name("card.md.j2"), md=_escape, **FILTERS)
    return template.render(
        graph=graph,
        since=period_named(summary.since),
        selected=str(tested.selection),
        metric=summary.metric,
        fold_checks=tested.fold_checks,
        limitations=limitations(summary),
        user_model=user_model,
        versions=versions,
    )


def _escape(text: str) -> str:
    """Escape the markup of Markdown; the text becomes one line."""
    return re.sub(r"([\\`*_{}\[\]<>#|~!&$])", r"\\\1", " ".join(text.split()))
