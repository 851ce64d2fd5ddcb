"""Renders the report: a summary, its figures and its sentences in the template."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from inspect import isfunction
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from impact_gnn import _files
from impact_gnn._codec import decode
from impact_gnn.backtesting import Status
from impact_gnn.backtesting.forecast import USUAL
from impact_gnn.backtesting.greedy import START, fold_weights
from impact_gnn.backtesting.results import leading
from impact_gnn.checks import InputError
from impact_gnn.report import figures, numbers, sentences
from impact_gnn.report.glossary import TermLinks
from impact_gnn.report.limitations import limitations
from impact_gnn.report.numbers import percent
from impact_gnn.report.summary import Evaluation, RunSummary

EVALUATION = "evaluation.json"

MAX_ROWS = 10  # candidates that are visible at once, with the selected ones and the baseline
MAX_LABELS = 12  # rows of classes that are visible at once; the others are one click away


def write_report(summary: RunSummary, path: Path) -> None:
    """Write the report of a run: one HTML file that loads nothing from elsewhere.

    The folder `figures/` next to it gets every figure as SVG. The page
    includes the results of `evaluate`, if there are any.
    """
    page_content = content(summary, _read_evaluation(summary, path.parent / EVALUATION))
    _files.require_plain(path)
    # The folder is replaced as a whole, and only if a report wrote all that it holds.
    with _files.atomic_directory(path.parent / "figures", _files.sealed_files) as folder:
        for figure in _find_figures(page_content.values()):
            (folder / f"{figure.name}.svg").write_text(figure.file, encoding="utf-8")
        _files.seal_folder(folder)
    with _files.atomic_file(path) as temporary:
        temporary.write_text(_render(page_content, files=True), encoding="utf-8")


def _read_evaluation(summary: RunSummary, path: Path) -> Evaluation | None:
    """The evaluation of the predictions of this summary, if there is one."""
    if not path.exists():
        return None
    try:
        evaluation = decode(Evaluation, _files.read_json(path, sealed=True), path.name)
    except InputError as error:
        raise InputError(
            f"{path} cannot be read ({error}); remove it, or evaluate again."
        ) from None
    return evaluation if evaluation.mark == summary.prediction_summary.mark else None


def render(
    summary: RunSummary, evaluation: Evaluation | None = None, *, files: bool = False
) -> str:
    """The report as HTML, byte by byte the same for the same summary; `files` links figures."""
    return _render(content(summary, evaluation), files)


def _render(page_content: dict[str, Any], files: bool) -> str:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        name: value for name, value in vars(numbers).items() if isfunction(value)
    }
    environment.filters["memory"] = _files.readable_size
    links = TermLinks()
    environment.filters["terms"] = links
    script = environment.get_template("script.js.j2").render()
    # the content security policy allows this script only
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.get_template("template.html.j2").render(
        page_content,
        files=files,
        glossary=links,
        script=Markup(script),  # noqa: S704 # nosec B704
        script_digest=digest,
    )


def _find_figures(parts: Any) -> Iterator[figures.Figure]:
    """All figures in nested lists."""
    for part in parts:
        if isinstance(part, figures.Figure):
            yield part
        elif isinstance(part, list | tuple):
            yield from _find_figures(part)


def content(summary: RunSummary, evaluation: Evaluation | None = None) -> dict[str, Any]:
    """Everything that the template needs: figures, rows of tables, sentences."""
    tested = summary.backtest
    diagnosis = summary.diagnosis
    labels = figures.Labels.of(summary)
    called = summary.graph.name
    visible = tested.full
    if len(visible) <= 1:  # only the baseline: include those that were not tried on every fold
        visible = [row for row in tested.rows if row.status in (Status.FULL, Status.PART)]
    first = leading(visible, MAX_ROWS)
    rest = [row for row in tested.rows if row not in first]
    counts = sorted(summary.prediction_summary.labels.items(), key=lambda pair: -pair[1])
    shift = diagnosis.shift
    check_figures = [
        figures.label_mix(diagnosis.label_mix, labels, called),
        figures.feature_drift(diagnosis.feature_drift, diagnosis.cutoff, called),
        figures.separability(diagnosis.separability),
        figures.decay(diagnosis.decay, diagnosis.separability),
    ]
    class_rows = sentences.classes(summary)
    return {
        "summary": summary,
        "evaluation": evaluation,
        "evaluation_figures": _evaluation_figures(summary, evaluation, labels),
        "sentences": sentences,
        "checks": sentences.named_checks(tested),
        "usual_error": USUAL,
        "start_members": START,
        "first": first,
        "rest": rest,
        "forest": figures.forest(first, summary.metric),
        "forest_rest": figures.forest(rest, summary.metric, "comparison-rest"),
        "time_corrections": figures.forest(
            tested.time_corrections, summary.metric, "time-corrections", "no correction"
        ),
        "newest": tested.folds[::-1],
        "fold_shares": [percent(x, 0) for x in fold_weights(len(tested.folds))[::-1]],
        "by_period": figures.by_period(tested.fold_checks, summary),
        "reliability": figures.reliability(tested.fold_checks),
        "confusion": figures.confusion(tested.fold_checks, labels),
        "by_horizon": figures.by_horizon(tested.by_horizon, _horizon_caption(summary)),
        "class_rows": (class_rows[:MAX_LABELS], class_rows[MAX_LABELS:]),
        "thresholds": sentences.by_threshold(summary),
        "change": figures.change(diagnosis, called),
        "periods": figures.periods(summary.graph, summary.cutoff),
        "assumption_checks": list(zip(diagnosis.findings, check_figures, strict=True)),
        "shift_panels": [] if shift is None else figures.shift(shift, called),
        "shift_keys": figures.SHIFT_KEYS,
        "label_rows": (counts[:MAX_LABELS], counts[MAX_LABELS:]),
        "histogram": figures.histogram(summary.prediction_summary.histogram),
        "limitations": limitations(summary),
    }


def _evaluation_figures(
    summary: RunSummary, evaluation: Evaluation | None, labels: figures.Labels
) -> list[figures.Figure | None]:
    """Figures of an evaluation; classes that the model does not know have a row of their own."""
    if evaluation is None:
        return []
    if evaluation.unknown:
        names = [*labels.names, "unknown to the model"]
        labels = figures.Labels(names, [*labels.order, len(labels.order)])
    return [
        figures.by_period([evaluation], summary, "evaluation-by-period"),
        figures.reliability([evaluation], "evaluation-reliability"),
        figures.confusion([evaluation], labels, "evaluation-confusion"),
    ]


def _horizon_caption(summary: RunSummary) -> str:
    """The model and the training periods of the curve of accuracy by horizon."""
    last_labelled = np.flatnonzero(summary.graph.labelled_per_time)[-1]
    longest = max((score.horizon for score in summary.backtest.by_horizon), default=0)
    until = summary.graph.names[max(last_labelled - longest, 0)]
    model = str(summary.choice.candidates[0])
    if len(summary.choice.members) > 1:
        model += ", the first member of the ensemble"
    return f"One model ({model}), trained up to {until} and evaluated 1, 2, ... periods later."
