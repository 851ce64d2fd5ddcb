"""The page: a summary, its figures and its words put into the template."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from impact_gnn import _files
from impact_gnn.backtesting import Status
from impact_gnn.backtesting.ensemble import fold_weights
from impact_gnn.backtesting.outcome import leading
from impact_gnn.diagnostics import Diagnosis
from impact_gnn.diagnostics.models import Share
from impact_gnn.report import figures, numbers, words
from impact_gnn.report.numbers import number, percent
from impact_gnn.report.summary import RunSummary
from impact_gnn.report.worries import worries

MOST_ROWS = 10  # candidates that are shown at once, with the chosen and plain
MOST_LABELS = 12  # whose counts are shown at once; the others are one click away
ASSUMPTIONS = (
    "Every period has the same mix of labels.",
    "The features of a class do not depend on time.",
    "How often labels connect depends on the distance in time only.",
    "Connections of all labels fade in the same way.",
)
FILTERS = ("number", "whole", "percent", "points", "measured", "duration", "named")


def write_report(summary: RunSummary, path: Path) -> None:
    """Writes the report of a run: one HTML file that loads nothing from elsewhere."""
    with _files.atomic_file(path) as temporary:
        temporary.write_text(render(summary), encoding="utf-8")


def render(summary: RunSummary) -> str:
    """The report as text; the same summary gives the same bytes."""
    options: Any = {"undefined": StrictUndefined, "trim_blocks": True, "lstrip_blocks": True}
    environment = Environment(loader=FileSystemLoader(Path(__file__).parent), autoescape=True, **options)
    environment.filters |= {name: getattr(numbers, name) for name in FILTERS} | {"memory": _files.readable_size}
    tested, diagnosis = summary.backtest, summary.diagnosis
    order = np.argsort(-np.array(summary.graph.label_counts), kind="stable").tolist()
    labels = figures.Labels(list(summary.predictions.labels), order)
    # With nothing but plain tried in full, everything that was not dropped is shown at once.
    first = tested.full if len(tested.full) > 1 else [r for r in tested.rows if r.status in (Status.FULL, Status.PART)]
    first = leading(first, MOST_ROWS)
    rest = [row for row in tested.rows if row not in first]
    counts = sorted(summary.predictions.labels.items(), key=lambda pair: -pair[1])
    called = summary.graph.name
    drawn = [
        figures.label_mix(diagnosis.label_mix, labels, called),
        figures.feature_drift(diagnosis.feature_drift, diagnosis.cutoff, called),
        figures.separability(diagnosis.separability),
        figures.decay(diagnosis.decay, diagnosis.separability),
    ]
    shift, picture = diagnosis.shift, diagnosis.feature_map
    content = {
        "summary": summary,
        "words": words,
        "first": first,
        "rest": rest,
        "forest": figures.forest(first, summary.metric),
        "forest_rest": figures.forest(rest, summary.metric),
        "newest": tested.folds[::-1],
        "shares": numbers.listed([percent(x, 0) for x in fold_weights(len(tested.folds))[::-1]], MOST_ROWS),
        "trusted": [figures.reliability(tested.checks), figures.aging(tested.aging, _aged(summary))],
        "periods": figures.periods(summary.graph, summary.cutoff),
        "findings": list(zip(diagnosis.findings, ASSUMPTIONS, _extras(diagnosis), drawn, strict=True)),
        "pairs": figures.pair_curves(diagnosis.separability, labels, called),
        "shift_panels": [] if shift is None else figures.shift(shift, called),
        "feature_map": None if picture is None else figures.feature_map(picture, labels),
        "label_rows": (counts[:MOST_LABELS], counts[MOST_LABELS:]),
        "histogram": figures.histogram(summary.predictions.histogram),
        "worries": worries(summary),
    }
    return environment.get_template("template.html.j2").render(content)


def _aged(summary: RunSummary) -> str:
    """What the curve of accuracy against lag was measured on."""
    known = np.flatnonzero(summary.graph.labelled_per_time)
    until = summary.graph.names[max(known[-1] - max((one.lag for one in summary.backtest.aging), default=0), 0)]
    rest = "" if len(summary.choice.members) == 1 else " It is the first member of the choice by itself."
    return f"One model ({summary.choice.candidates[0]}), trained up to {until}, scored 1, 2, ... periods later.{rest}"


def _extras(diagnosis: Diagnosis) -> list[str]:
    """Further numbers of every finding, for those who ask for them."""
    out = ["", "", "", ""]
    if (test := diagnosis.label_mix.independence) is not None:
        chance = "p < 0.001" if test.p < 0.001 else f"p = {number(test.p)}"
        freedom = f"{test.freedom} degrees of freedom"
        out[0] = f"χ² = {number(test.chi2, 1)} with {freedom}, {chance}; Cramér's V = {number(test.cramers_v)}."
    if (along := diagnosis.feature_drift.along_classes) is not None:
        out[1] = f"Only in the directions in which classes differ: {number(along)}."
    separable = diagnosis.separability
    if separable.symmetry is not None and separable.per_node is not None:
        weighed = "explained when periods are weighed by their nodes (GenPMP)"
        out[2] = f"Past and future alike: {_share(separable.symmetry)}; {weighed}: {_share(separable.per_node)}."
    if diagnosis.decay.of_all is not None:
        out[3] = f"Of the whole time pattern, one decay explains {_share(diagnosis.decay.of_all)}."
    return out


def _share(share: Share) -> str:
    return f"{percent(share.value, 0)} ({percent(share.low, 0)} to {percent(share.high, 0)})"
