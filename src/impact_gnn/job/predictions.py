"""Predictions as a table in the user's own words: ids, labels, probabilities, runners-up."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from impact_gnn.backtesting import FoldCheck
from impact_gnn.backtesting.forecast import forecast
from impact_gnn.engines import Engine
from impact_gnn.graph import TemporalGraph
from impact_gnn.job.unusual import Usual
from impact_gnn.pipeline import Ensemble, Inputs
from impact_gnn.report.summary import Noted, Predictions
from impact_gnn.report.tables import write_table

PLACES = ("", "second_", "third_")
"""Prefix of the columns of the predicted label and of the runners-up."""

BINS = 20  # of the probability
NOTED = 5  # nodes of a kind to look at first


def write_predictions(
    graph: TemporalGraph,
    model: Ensemble,
    path: Path,
    *,
    cutoff: int | str | None = None,
    inputs: dict[bool, Inputs] | None = None,
    engine: Engine | None = None,
    checks: Sequence[FoldCheck] = (),
) -> Predictions:
    r"""Writes one row per target node and says what they are like.

    Columns: `id`, `time` (the period's name), `label`, `probability`, then `second_label`,
        `second_probability`,
    `third_...` as far as there are classes, the most probable of the others first, and `set`: the
    labels that hold the truth with the probability stated in the summary, joined by "|" ("\|"
    within a name). Labels and ids are in the user's own coding; in a `.csv` (not in a `.raw.csv`)
    text that a spreadsheet would run as a formula stands behind an apostrophe. `checks` of a
    back-test give the accuracy to expect.
    """
    probability = model.predict_proba(graph, cutoff=cutoff, inputs=inputs, engine=engine)
    rows = model.targets(graph, cutoff=cutoff)
    at = model.fitted.cutoff if cutoff is None else graph.when(cutoff)
    shown = next(iter(inputs.values())).view if inputs else model.fitted.schema.adapted(graph, at)
    names = model.fitted.schema.label_names
    coded = np.arange(probability.shape[1]) if names is None else np.array(names)
    label, row = model.calibration.labels(probability, model.prior), np.arange(len(rows))
    confidence, first = probability[row, label], probability.copy()
    first[row, label] = np.inf
    order = np.argsort(-first, axis=1, kind="stable")
    columns: dict[str, Any] = {"id": graph.ids[rows], "time": _times(graph)[rows]}
    for place, prefix in enumerate(PLACES[: probability.shape[1]]):
        best = order[:, place]
        columns[f"{prefix}label"] = coded[best]
        # Nothing is certain; and a column that begins with 0 and 1 would be read as whole numbers.
        columns[f"{prefix}probability"] = (
            probability[row, best].astype(np.float64).round(6).clip(1e-6, 1 - 1e-6)
        )
    inside = model.calibration.sets(probability, label)
    texts = np.array([in_set(str(name)) for name in coded.tolist()])
    columns["set"] = [
        "|".join(texts[best[chosen[best]]]) for best, chosen in zip(order, inside, strict=True)
    ]
    write_table(columns, path)
    counts = np.bincount(label, minlength=probability.shape[1])
    shares = {str(name): int(count) for name, count in zip(coded.tolist(), counts, strict=True)}
    histogram = np.histogram(confidence, bins=BINS, range=(0, 1))[0].tolist()
    expected = forecast(checks, float(confidence.mean()), len(rows))
    sets = model.calibration.coverage, float(inside.sum(1).mean())
    noted = _noted(shown, columns, rows, label)
    return Predictions(
        path.name, len(rows), shares, float(confidence.mean()), histogram, expected, *sets, *noted
    )


def in_set(name: str) -> str:
    """A class's name in the column `set`."""
    return name.replace("\\", "\\\\").replace("|", "\\|")


def _noted(
    graph: TemporalGraph, columns: dict[str, Any], rows: np.ndarray, label: np.ndarray
) -> tuple[list[Noted], list[Noted]]:
    """Nodes to look at first: the least certain, and among the surest quarter those least like their class."""
    sure = columns["probability"]
    unsure = np.argsort(sure, kind="stable")[:NOTED]
    usual, away, unusual = Usual.of(graph), None, []
    if usual is not None:
        assert graph.x is not None
        said = np.full(graph.num_nodes, -1)
        said[rows] = label
        away = usual.distance(graph.x, rows, said)
        surest = np.flatnonzero(sure >= np.quantile(sure, 0.75))
        unusual = surest[np.argsort(-away[surest], kind="stable")[:NOTED]].tolist()

    def noted(row: int) -> Noted:
        who = [str(columns[name][row]) for name in ("id", "time", "label")]
        there = "second_label" in columns
        second = str(columns["second_label"][row]) if there else None
        probable = float(columns["second_probability"][row]) if there else None
        far = None if away is None or not np.isfinite(away[row]) else float(f"{away[row]:.4g}")
        return Noted(who[0], who[1], who[2], float(sure[row]), second, probable, far)

    return [noted(int(row)) for row in unsure], [noted(row) for row in unusual]


def _times(graph: TemporalGraph) -> np.ndarray:
    """For every node its time as a person calls it."""
    if graph.periods is None:
        return graph.time
    return np.array([graph.name_of(int(t)) for t in graph.times])[graph.period]
