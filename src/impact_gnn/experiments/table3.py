"""Table 3: which correction helps on graphs of the temporal stochastic block model.

Every column is trained on the same graphs, and differences to "plain" come with the standard error of the
*difference*. Beside every published number stands what was measured and whether the two agree.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from impact_gnn import __version__, checks
from impact_gnn.checks import InputError
from impact_gnn.experiments import output, published, timing
from impact_gnn.experiments.columns import COLUMNS, Column, chosen
from impact_gnn.experiments.runs import Progress, Task, tasks, work_off
from impact_gnn.experiments.setting import GAMMA, MODELS, PROTOCOLS, ROW_NAMES, Options, Row
from impact_gnn.experiments.setting import row as named_row
from impact_gnn.statistics import paired

CONTRASTS = (
    ("pmp+pny", "pmp"),
    ("pmp+pny-oracle", "pmp"),
    ("pmp+jjnorm", "pmp"),
    ("pmp+center+jjnorm", "center"),
    ("standardize", "center"),
)
"""Second-moment methods against the first-moment method they build on."""


def run(
    graphs: int = 200,
    *,
    protocols: Sequence[str] = ("released",),
    rows: Sequence[str] = ROW_NAMES,
    models: Sequence[str] = MODELS,
    columns: Sequence[str] | None = None,
    gamma: float = GAMMA,
    options: Options | None = None,
    time_graphs: int = 3,
    out: Path | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Runs the table and returns it, ready for `write`.

    Args:
        graphs: Graphs per row, at least 2.
        protocols: Names of `PROTOCOLS`: "released", "text", "theory".
        rows: Names of `ROW_NAMES`.
        models: "sgc", "gcn".
        columns: Names of `COLUMNS`; all by default. "plain" is always there.
        gamma: γ of the row "fixed".
        options: Size of graphs and training.
        time_graphs: Graphs on which every method is timed alone; 0 for no time row.
        out: Directory in which parts are kept; a run with the same settings goes on where it stopped.
        workers: Processes; by default one per core.
        progress: Called with parts done, parts in all, and a title.

    Example:
        >>> tiny = Options(num_nodes=200, epochs=2)
        >>> result = run(2, rows=["fixed"], models=["sgc"], columns=["pmp"], options=tiny, time_graphs=0, workers=1)
        >>> result["rows"][0]["columns"]["pmp"]["graphs"]
        2
    """
    if checks.whole_number("graphs", graphs) < 2:
        raise InputError(f"graphs={graphs} gives no standard error; take at least 2.")
    for name, values, allowed in (
        ("protocol", protocols, PROTOCOLS), ("row", rows, ROW_NAMES), ("model", models, MODELS),
    ):  # fmt: skip
        for value in values:
            checks.choice(name, value, allowed)
    options = Options() if options is None else options
    picked = chosen(columns)
    names = [column.name for column in picked]
    made_rows = [named_row(name, gamma) for name in rows]
    todo = tasks(protocols, made_rows, models, names, graphs, options)
    parts = work_off(todo, None if out is None else Path(out) / "parts", workers=workers, progress=progress)
    result = {
        "experiment": "table3",
        "version": __version__,
        "settings": {
            "graphs": graphs,
            "gamma": gamma,
            "num_nodes": options.num_nodes,
            "epochs": options.epochs,
            "protocols": {name: PROTOCOLS[name].about for name in protocols},
        },
        "rows": [
            summary(protocol, row, model, picked, parts)
            for model in models for protocol in protocols for row in made_rows
        ],
        "seconds": sum(part["seconds"] for part in parts.values()),
    }  # fmt: skip
    result["agreement"] = agreements(result["rows"])
    result["time"] = {
        model: timing.run(model, picked, PROTOCOLS[protocols[0]], named_row("fixed", gamma), options, time_graphs)
        for model in models
        if time_graphs
    }
    return result


def write(result: dict[str, Any], directory: Path) -> list[Path]:
    """Writes table3.json, .csv, .md, .png, .svg and the accuracies of all graphs; returns the files."""
    return output.write("table3", result, Path(directory))


def summary(
    protocol: str, row: Row, model: str, columns: Sequence[Column], parts: dict[Task, dict[str, Any]]
) -> dict[str, Any]:
    """Means, errors and paired differences of one row and model."""
    mine = [part for task, part in parts.items() if (task.protocol, task.row, task.model) == (protocol, row, model)]
    accuracy = {c.name: np.array([a for part in mine for a in part["accuracy"][c.name]]) for c in columns}
    seconds = sum(part["seconds"] for part in mine)
    return {
        "protocol": protocol,
        "row": row.name,
        "title": row.title,
        "decay": row.decay,
        "model": model,
        "graphs": len(accuracy["plain"]),
        "seconds": seconds,
        "columns": {
            c.name: {
                **cell(accuracy[c.name], accuracy["plain"]),
                "title": c.title,
                "oracle": c.oracle,
                "ours": c.ours,
                # Columns are trained together, so what one of them took is its share.
                "seconds": seconds / len(columns),
            }
            for c in columns
        },
        "contrasts": [
            {"column": ours, "against": theirs, **difference(accuracy[ours], accuracy[theirs])}
            for ours, theirs in CONTRASTS
            if ours in accuracy and theirs in accuracy
        ],
        "accuracy": {name: values.tolist() for name, values in accuracy.items()},
    }


def cell(accuracy: np.ndarray, plain: np.ndarray) -> dict[str, Any]:
    """Mean, standard error and spread of a column, and its paired difference to plain."""
    spread = float(accuracy.std(ddof=1))
    return {
        "mean": float(accuracy.mean()),
        "se": spread / math.sqrt(len(accuracy)),
        "sd": spread,
        "graphs": len(accuracy),
        **difference(accuracy, plain),
    }


def difference(ours: np.ndarray, theirs: np.ndarray) -> dict[str, float]:
    """The mean of paired differences and its standard error."""
    found = paired(ours, theirs)
    return {"difference": found.value, "difference_se": found.error}


def agreements(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every published accuracy, and every published gain of PNY and JJnorm over PMP, beside ours."""
    found = []
    for row in rows:
        theirs = published.table3(row["row"], row["model"])
        for name, cell in row["columns"].items():
            if name in theirs:
                one = published.agreement(theirs[name], cell["mean"], error=cell["se"], spread=cell["sd"])
                found.append(_agreement(row, COLUMNS[name].title, one))
        for contrast in row["contrasts"]:
            ours, base = contrast["column"], contrast["against"]
            if ours in theirs and base in theirs:
                gain = theirs[ours] - theirs[base]
                one = published.agreement(
                    gain, contrast["difference"], error=contrast["difference_se"], spread=row["columns"][base]["sd"],
                    columns=2,
                )  # fmt: skip
                found.append(_agreement(row, f"{COLUMNS[ours].title} over {COLUMNS[base].title}", one))
    return found


def _agreement(row: dict[str, Any], what: str, found: published.Agreement) -> dict[str, Any]:
    place = {key: row[key] for key in ("protocol", "row", "model")}
    numbers = {key: getattr(found, key) for key in ("published", "measured", "allowed", "agrees", "sentence")}
    return {**place, "what": what, **numbers}
