"""Predictions as a table in the user's own words: ids, labels, probabilities, runners-up."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from impact_gnn import _files
from impact_gnn.backtesting import FoldCheck
from impact_gnn.backtesting.forecast import forecast
from impact_gnn.checks import InputError
from impact_gnn.engines import Engine
from impact_gnn.graph import TemporalGraph
from impact_gnn.pipeline import Ensemble, Inputs
from impact_gnn.report.summary import Predictions

PLACES = ("", "second_", "third_")
"""Prefix of the columns of the predicted label and of the runners-up."""


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
    """Writes one row per target node and says what they are like.

    Columns: `id`, `time` (the period's name), `label`, `probability`, then `second_label`, `second_probability`,
    `third_...` as far as there are classes, the most probable of the others first, and `set`: the labels that hold the
    truth with the probability stated in the summary, joined by "|". Labels and ids are in the user's own coding; in a
    `.csv` (not in a `.raw.csv`) text that a spreadsheet would run as a formula stands behind an apostrophe.
    `checks` of a back-test give the accuracy to expect.
    """
    if path.suffix not in (".csv", ".parquet"):
        raise InputError(f"{path.name} should end in .csv, .raw.csv or .parquet.")
    probability = model.predict_proba(graph, cutoff=cutoff, inputs=inputs, engine=engine)
    rows = model.targets(graph, cutoff=cutoff)
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
        columns[f"{prefix}probability"] = probability[row, best].astype(np.float64).round(6).clip(1e-6, 1 - 1e-6)
    inside = model.calibration.sets(probability, label)
    texts = np.array([str(name) for name in coded.tolist()])
    columns["set"] = ["|".join(texts[best[chosen[best]]]) for best, chosen in zip(order, inside, strict=True)]
    table = pa.table(columns)
    if path.suffix == ".csv" and not path.name.endswith(".raw.csv"):
        table = pa.table(
            {name: _harmless(column) for name, column in zip(table.column_names, table.columns, strict=True)}
        )
    write = pyarrow.csv.write_csv if path.suffix == ".csv" else pyarrow.parquet.write_table
    with _files.atomic_file(path) as temporary:
        write(table, temporary)
    counts = np.bincount(label, minlength=probability.shape[1])
    shares = {str(name): int(count) for name, count in zip(coded.tolist(), counts, strict=True)}
    histogram = np.histogram(confidence, bins=10, range=(0, 1))[0].tolist()
    expected = forecast(checks, float(confidence.mean()), len(rows))
    sets = model.calibration.coverage, float(inside.sum(1).mean())
    return Predictions(path.name, len(rows), shares, float(confidence.mean()), histogram, expected, *sets)


def _harmless(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if not pa.types.is_string(column.type):
        return column
    begins, number = r"^[=+\-@\t\r]", r"^[+-]?[0-9.,]+$"
    runs = pc.and_not(pc.match_substring_regex(column, begins), pc.match_substring_regex(column, number))
    return pc.if_else(runs, pc.binary_join_element_wise("'", column, ""), column)


def _times(graph: TemporalGraph) -> np.ndarray:
    """For every node its time as a person calls it."""
    if graph.periods is None:
        return graph.time
    return np.array([graph.name_of(int(t)) for t in graph.times])[graph.period]
