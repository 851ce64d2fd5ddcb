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
from impact_gnn.engines import Engine
from impact_gnn.graph import TemporalGraph
from impact_gnn.pipeline import Inputs, Pipeline
from impact_gnn.report.summary import Predictions

PLACES = ("", "second_", "third_")
"""Prefix of the columns of the most probable label and of the runners-up."""


def write_predictions(
    graph: TemporalGraph,
    pipeline: Pipeline,
    path: Path,
    *,
    cutoff: int | None = None,
    inputs: Inputs | None = None,
    engine: Engine | None = None,
) -> Predictions:
    """Writes one row per target node and says what they are like.

    Columns: `id`, `time`, `label`, `probability`, then `second_label`, `second_probability`, `third_...` as far as
    there are classes. Labels and ids are in the user's own coding.
    """
    if path.suffix not in (".csv", ".parquet"):
        raise InputError(f"{path.name} should end in .csv or .parquet.")
    probability = pipeline.predict_proba(graph, cutoff=cutoff, inputs=inputs, engine=engine)
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
    write = pyarrow.csv.write_csv if path.suffix == ".csv" else pyarrow.parquet.write_table
    with _files.atomic_file(path) as temporary:
        write(pa.table(columns), temporary)
    counts = np.bincount(order[:, 0], minlength=probability.shape[1])
    shares = {str(name): int(count) for name, count in zip(coded.tolist(), counts, strict=True)}
    confidence = probability.max(1)
    histogram = np.histogram(confidence, bins=10, range=(0, 1))[0].tolist()
    return Predictions(path.name, len(rows), shares, float(confidence.mean()), histogram)
