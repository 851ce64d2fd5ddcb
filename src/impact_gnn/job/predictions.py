"""Predictions as a table in the user's own words: ids, labels, probabilities, runners-up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from impact_gnn import _files
from impact_gnn.checks import InputError
from impact_gnn.graph import TemporalGraph
from impact_gnn.pipeline import Pipeline

PLACES = ("", "second_", "third_")
"""Prefix of the columns of the most probable label and of the runners-up."""


def write_predictions(
    graph: TemporalGraph, pipeline: Pipeline, path: Path, *, cutoff: int | None = None
) -> dict[str, Any]:
    """Writes one row per target node and returns what a summary says about them.

    Columns: `id`, `time`, `label`, `probability`, then `second_label`, `second_probability`, `third_...` as far as
    there are classes. Labels and ids are in the user's own coding.
    """
    probability = pipeline.predict_proba(graph, cutoff=cutoff)
    rows = pipeline.targets(graph, cutoff=cutoff)
    assert pipeline.fitted is not None
    names = np.arange(probability.shape[1]) if pipeline.fitted.label_names is None else pipeline.fitted.label_names
    coded = np.array(names)
    order = np.argsort(-probability, axis=1, kind="stable")
    columns: dict[str, Any] = {"id": graph.ids[rows], "time": graph.time[rows]}
    for place, prefix in enumerate(PLACES[: probability.shape[1]]):
        best = order[:, place]
        columns[f"{prefix}label"] = coded[best]
        columns[f"{prefix}probability"] = probability[np.arange(len(rows)), best].astype(np.float64).round(6)
    table = pa.table(columns)
    with _files.atomic_file(path) as temporary:
        if path.suffix == ".parquet":
            pyarrow.parquet.write_table(table, temporary)
        elif path.suffix == ".csv":
            pyarrow.csv.write_csv(table, temporary)
        else:
            raise InputError(f"{path.name} should end in .csv or .parquet.")
    top = order[:, 0]
    counts = np.bincount(top, minlength=probability.shape[1])
    shares = {str(name): int(count) for name, count in zip(coded.tolist(), counts, strict=True)}
    confidence = probability.max(1)
    return {
        "file": path.name,
        "count": len(rows),
        "labels": shares,
        "mean_probability": float(confidence.mean()),
        "probability_histogram": np.histogram(confidence, bins=10, range=(0, 1))[0].tolist(),
    }
