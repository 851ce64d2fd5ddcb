"""The γ figure: how the gains depend on how fast connections fade.

For γ from .30 (a node hardly knows other times) to .85 (time hardly matters): the gain of every method over plain, and
of the second-moment methods over PMP alone, each with the standard error of the paired difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from impact_gnn import __version__, checks
from impact_gnn.checks import InputError
from impact_gnn.experiments import output
from impact_gnn.experiments.columns import chosen
from impact_gnn.experiments.runs import Progress, tasks, work_off
from impact_gnn.experiments.setting import MODELS, PROTOCOLS, Options, Row
from impact_gnn.experiments.table3 import summary

GAMMAS = tuple(round(0.30 + 0.05 * step, 2) for step in range(12))
COLUMNS = ("plain", "mmp", "pmp", "pmp+pny", "pmp+jjnorm", "center", "pmp+center+jjnorm")


def run(
    graphs: int = 20,
    *,
    gammas: Sequence[float] = GAMMAS,
    protocol: str = "released",
    models: Sequence[str] = MODELS,
    columns: Sequence[str] = COLUMNS,
    options: Options | None = None,
    out: Path | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Runs the figure and returns its numbers, ready for `write`; arguments as in `table3.run`.

    Example:
        >>> tiny = Options(num_nodes=200, epochs=2)
        >>> result = run(2, gammas=[0.5], models=["sgc"], columns=["plain", "pmp"], options=tiny, workers=1)
        >>> [row["title"] for row in result["rows"]]
        ['γ = 0.5']
    """
    if checks.whole_number("graphs", graphs) < 2:
        raise InputError(f"graphs={graphs} gives no standard error; take at least 2.")
    checks.choice("protocol", protocol, PROTOCOLS)
    for model in models:
        checks.choice("model", model, MODELS)
    for value in gammas:
        if not 0 <= value <= 1:
            raise InputError(f"gammas holds {value}; give numbers from 0 to 1.")
    options = Options() if options is None else options
    picked = chosen(columns)
    rows = [Row(f"gamma-{value:g}", f"γ = {value:g}", float(value)) for value in gammas]
    todo = tasks([protocol], rows, models, [column.name for column in picked], graphs, options)
    parts = work_off(todo, None if out is None else Path(out) / "parts", workers=workers, progress=progress)
    return {
        "experiment": "figure-gamma",
        "version": __version__,
        "settings": {
            "graphs": graphs,
            "num_nodes": options.num_nodes,
            "epochs": options.epochs,
            "protocol": protocol,
            "about": PROTOCOLS[protocol].about,
        },
        "rows": [summary(protocol, row, model, picked, parts) for model in models for row in rows],
        "seconds": sum(part["seconds"] for part in parts.values()),
    }


def write(result: dict[str, Any], directory: Path) -> list[Path]:
    """Writes figure-gamma.json, .csv, .md, .png, .svg and the accuracies of all graphs; returns the files."""
    return output.write("figure-gamma", result, Path(directory))
