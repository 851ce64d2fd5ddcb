"""The page: a summary, its figures and its words put into the template."""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from impact_gnn import _files
from impact_gnn._codec import decode
from impact_gnn.backtesting import Status
from impact_gnn.backtesting.greedy import fold_weights
from impact_gnn.backtesting.results import leading
from impact_gnn.checks import InputError
from impact_gnn.diagnostics import Diagnosis
from impact_gnn.diagnostics.models import Share
from impact_gnn.report import figures, numbers, sentences
from impact_gnn.report.limitations import limitations
from impact_gnn.report.numbers import number, percent
from impact_gnn.report.summary import Evaluation, RunSummary
from impact_gnn.report.tables import write_table

EVALUATION = "evaluation.json"
FIGURES = "manifest.json"
"""In the folder of figures: the names of all files that a report wrote there."""

FIGURE = r"[a-z0-9][a-z0-9-]*\.(svg|csv)"
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
    """Writes the report of a run: one HTML file that loads nothing from elsewhere.

    Beside it, in `figures/`, goes every figure as SVG and its numbers as CSV. Where labels have
    been held against the predictions (`evaluate`), that is on the page too.
    """
    shown = content(summary, _evaluation(summary, path.parent / EVALUATION))
    drawn, folder = list(_figures(shown.values())), path.parent / "figures"
    names = {f"{figure.name}.{ending}" for figure in drawn for ending in ("svg", "csv")}
    before = _listed_figures(folder)
    for name in sorted({*names, *before}):
        _refuse_foreign_figure(folder / name, before)
    # With the new names before they are written, so that none is forgotten after a kill.
    _files.write_json(folder / FIGURES, dict.fromkeys([*before, *sorted(names)]), sealed=True)
    for figure in drawn:
        with _files.atomic_file(folder / f"{figure.name}.svg") as temporary:
            temporary.write_text(figure.file, encoding="utf-8")
        write_table(figure.data, folder / f"{figure.name}.csv")
    with _files.atomic_file(path) as temporary:
        temporary.write_text(_page(shown, files=True), encoding="utf-8")
    for name in before.keys() - names:
        if (folder / name).is_file() and not (folder / name).is_symlink():
            (folder / name).unlink()
    checksums = {name: _files.checksum(folder / name) for name in sorted(names)}
    _files.write_json(folder / FIGURES, checksums, sealed=True)


def _refuse_foreign_figure(path: Path, listed: dict[str, str | None]) -> None:
    """Refuses to replace a file that no report wrote, or that has changed since."""
    if not os.path.lexists(path):
        return
    if path.name not in listed:
        raise InputError(f"{path} is not a figure of this run; move it away.")
    expected = listed[path.name]  # None if a report was killed while it wrote the figure
    is_plain = path.is_file() and not path.is_symlink()
    if expected is not None and is_plain and _files.checksum(path) != expected:
        raise InputError(f"{path} has changed since the report wrote it; move it away.")


def _listed_figures(folder: Path) -> dict[str, str | None]:
    """The figures that a report before this one wrote, with their checksums."""
    _files.require_plain(folder, directory=True)
    if not os.path.lexists(folder / FIGURES):
        return {}
    _files.require_plain(folder / FIGURES)
    figures = _files.read_json(folder / FIGURES, sealed=True)
    if not isinstance(figures, dict) or not all(re.fullmatch(FIGURE, name) for name in figures):
        raise InputError(f"{folder / FIGURES} lists what is no figure; move {folder} away.")
    return figures


def _evaluation(summary: RunSummary, path: Path) -> Evaluation | None:
    """What came true of the predictions of this summary, if labels have been held against them."""
    if not path.exists():
        return None
    try:
        found = decode(Evaluation, _files.read_json(path, sealed=True), path.name)
    except InputError as error:
        raise InputError(
            f"{path} cannot be used ({error}); remove it, or evaluate again."
        ) from None
    return found if found.mark == summary.prediction_summary.mark else None


def render(
    summary: RunSummary, evaluation: Evaluation | None = None, *, files: bool = False
) -> str:
    """The report as text; the same summary gives the same bytes. `files` are linked where they lie beside it."""
    return _page(content(summary, evaluation), files)


def _page(shown: dict[str, Any], files: bool) -> str:
    options: Any = {"undefined": StrictUndefined, "trim_blocks": True, "lstrip_blocks": True}
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, **options
    )
    environment.filters |= {name: getattr(numbers, name) for name in FILTERS} | {
        "memory": _files.readable_size
    }
    script = environment.get_template("script.js.j2").render()
    digest = base64.b64encode(
        hashlib.sha256(script.encode()).digest()
    ).decode()  # the browser runs nothing else
    shown = shown | {"files": files, "script": Markup(script), "script_digest": digest}  # noqa: S704 # nosec B704
    return environment.get_template("template.html.j2").render(shown)


def _figures(parts: Any) -> Iterator[figures.Figure]:
    """All figures in what a page shows, however deep."""
    for part in parts:
        if isinstance(part, figures.Figure):
            yield part
        elif isinstance(part, list | tuple):
            yield from _figures(part)


def content(summary: RunSummary, evaluation: Evaluation | None = None) -> dict[str, Any]:
    """What the page shows: figures, rows of tables, sentences."""
    tested, diagnosis = summary.backtest, summary.diagnosis
    labels = figures.Labels.of(summary)
    # With nothing but plain tried in full, everything that was not dropped is shown at once.
    first = (
        tested.full
        if len(tested.full) > 1
        else [r for r in tested.rows if r.status in (Status.FULL, Status.PART)]
    )
    first = leading(first, MOST_ROWS)
    rest = [row for row in tested.rows if row not in first]
    counts = sorted(summary.prediction_summary.labels.items(), key=lambda pair: -pair[1])
    called = summary.graph.name
    drawn = [
        figures.label_mix(diagnosis.label_mix, labels, called),
        figures.feature_drift(diagnosis.feature_drift, diagnosis.cutoff, called),
        figures.separability(diagnosis.separability),
        figures.decay(diagnosis.decay, diagnosis.separability),
    ]
    shift, picture = diagnosis.shift, diagnosis.feature_map
    by_label, known_now = sentences.classes(summary), labels
    if evaluation is not None and evaluation.unknown:
        known_now = figures.Labels(
            [*labels.names, "unknown to the model"], [*labels.order, len(labels.order)]
        )
    return {
        "summary": summary,
        "evaluation": evaluation,
        "evaluated": []
        if evaluation is None
        else [
            figures.by_period([evaluation], called, "true-by-period"),
            figures.reliability([evaluation], "true-reliability"),
            figures.confusion([evaluation], known_now, "true-confusion"),
        ],
        "sentences": sentences,
        "first": first,
        "rest": rest,
        "forest": figures.forest(first, summary.metric),
        "forest_rest": figures.forest(rest, summary.metric, "comparison-rest"),
        "newest": tested.folds[::-1],
        "shares": numbers.listed(
            [percent(x, 0) for x in fold_weights(len(tested.folds))[::-1]], MOST_ROWS
        ),
        "trusted": [
            figures.by_period(tested.fold_checks, called),
            figures.reliability(tested.fold_checks),
        ],
        "confusion": figures.confusion(tested.fold_checks, labels),
        "by_horizon": figures.by_horizon(tested.by_horizon, _aged(summary)),
        "class_rows": (by_label[:MOST_LABELS], by_label[MOST_LABELS:]),
        "abstain": sentences.abstain(summary),
        "change": figures.change(diagnosis, called),
        "periods": figures.periods(summary.graph, summary.cutoff),
        "findings": list(
            zip(diagnosis.findings, ASSUMPTIONS, _extras(diagnosis), drawn, strict=True)
        ),
        "pairs": figures.pair_curves(diagnosis.separability, labels, called),
        "shift_panels": [] if shift is None else figures.shift(shift, called),
        "feature_map": None if picture is None else figures.feature_map(picture, labels),
        "label_rows": (counts[:MOST_LABELS], counts[MOST_LABELS:]),
        "histogram": figures.histogram(summary.prediction_summary.histogram),
        "limitations": limitations(summary),
    }


def _aged(summary: RunSummary) -> str:
    """What the curve of accuracy against lag was measured on."""
    known = np.flatnonzero(summary.graph.labelled_per_time)
    until = summary.graph.names[
        max(known[-1] - max((one.horizon for one in summary.backtest.by_horizon), default=0), 0)
    ]
    rest = (
        ""
        if len(summary.choice.members) == 1
        else " It is the first member of the choice by itself."
    )
    return f"One model ({summary.choice.candidates[0]}), trained up to {until}, scored 1, 2, ... periods later.{rest}"


def _extras(diagnosis: Diagnosis) -> list[str]:
    """Further numbers of every finding, for those who ask for them."""
    out = ["", "", "", ""]
    if (test := diagnosis.label_mix.independence) is not None:
        chance = "p < 0.001" if test.p < 0.001 else f"p = {number(test.p)}"
        freedom = f"{test.freedom} degrees of freedom"
        out[0] = (
            f"χ² = {number(test.chi2, 1)} with {freedom}, {chance}; Cramér's V = {number(test.cramers_v)}."
        )
    if (along := diagnosis.feature_drift.along_classes) is not None:
        out[1] = f"Only in the directions in which classes differ: {number(along)}."
    separable = diagnosis.separability
    if separable.symmetry is not None and separable.per_node is not None:
        weighed = "explained when periods are weighed by their nodes (GenPMP)"
        out[2] = (
            f"Past and future alike: {_share(separable.symmetry)}; {weighed}: {_share(separable.per_node)}."
        )
    if diagnosis.decay.of_all is not None:
        out[3] = f"Of the whole time pattern, one decay explains {_share(diagnosis.decay.of_all)}."
    return out


def _share(share: Share) -> str:
    return f"{percent(share.value, 0)} ({percent(share.low, 0)} to {percent(share.high, 0)})"
