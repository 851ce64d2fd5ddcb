"""Renders the report: the template, with figures and sentences of a summary."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

import matplotlib as mpl
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure

from impact_gnn import _files, methods
from impact_gnn._codec import decode
from impact_gnn.backtesting.forecast import USUAL, lost_per_period
from impact_gnn.backtesting.greedy import START, fold_weights
from impact_gnn.checks import InputError
from impact_gnn.estimators import MODELS
from impact_gnn.report import figures, numbers, sentences, svg
from impact_gnn.report.glossary import TermLinks
from impact_gnn.report.limitations import limitations
from impact_gnn.report.summary import Evaluation, RunSummary

EVALUATION = "evaluation.json"


def write_report(summary: RunSummary, path: Path) -> None:
    """Write the report of a run: one HTML file that loads nothing from elsewhere.

    The folder `figures/` next to it gets every figure as SVG. The page
    includes the results of `evaluate`, if there are any.
    """
    drawings: dict[str, str] = {}
    evaluation = _read_evaluation(summary, path.parent / EVALUATION)
    page = render(summary, evaluation, drawings)
    _files.require_plain(path)
    # The folder is replaced as a whole, and only if a report wrote all that it holds.
    with _files.atomic_directory(path.parent / "figures", _files.sealed_files) as folder:
        for name, drawing in drawings.items():
            (folder / f"{name}.svg").write_text(drawing, encoding="utf-8")
        _files.seal_folder(folder)
    with _files.atomic_file(path) as temporary:
        temporary.write_text(page, encoding="utf-8")


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
    summary: RunSummary,
    evaluation: Evaluation | None = None,
    drawings: dict[str, str] | None = None,
) -> str:
    """The report as HTML, byte by byte the same for the same summary.

    With `drawings` it links the files of its figures, whose content goes there by name.
    """
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    links = TermLinks()

    def draw(figure: Figure, name: str, title: str) -> Markup:
        file, drawing = svg.render(figure, title)
        if drawings is not None:
            drawings[name] = file
        return drawing

    environment.filters |= numbers.FILTERS | {
        "memory": _files.readable_size,
        "terms": links,
        "draw": draw,
    }
    environment.globals |= {
        "figures": figures,
        "sentences": sentences,
        "methods": methods,
        "models": MODELS,
        "fold_weights": fold_weights,
        "lost_per_period": lost_per_period,
        "vars": vars,
        "usual_error": USUAL,
        "start_members": START,
        "files": drawings is not None,
        "glossary": links,
    }
    script = environment.get_template("script.js.j2").render()
    # the content security policy allows this script only
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    with mpl.rc_context(svg.STYLE):
        return environment.get_template("template.html.j2").render(
            summary=summary,
            evaluation=evaluation,
            limitations=limitations(summary),
            script=Markup(script),  # noqa: S704 # nosec B704
            script_digest=digest,
        )
