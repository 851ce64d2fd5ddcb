"""The model card of a saved model: data, selection, back-test, limitations and use."""

from __future__ import annotations

import re
from pathlib import Path

from impact_gnn._text import plain_template
from impact_gnn.estimators import MODELS
from impact_gnn.report.limitations import limitations
from impact_gnn.report.numbers import FILTERS
from impact_gnn.report.summary import RunSummary


def card(summary: RunSummary) -> str:
    """The card as Markdown; names of users are escaped. Nothing is predicted yet."""
    model = summary.options.model
    user_model = None if model in MODELS else model.rpartition("-")[0]
    template = plain_template(
        Path(__file__).with_name("card.md.j2"),
        md=_escape,
        **FILTERS,
    )
    return template.render(
        summary=summary,
        limitations=limitations(summary),
        user_model=user_model,
    )


def _escape(text: str) -> str:
    """Escape the markup of Markdown; the text becomes one line."""
    return re.sub(r"([\\`*_{}\[\]<>#|~!&$])", r"\\\1", " ".join(text.split()))
