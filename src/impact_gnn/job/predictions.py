"""Writes the table of predictions: ids, labels, probabilities and prediction sets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from impact_gnn.backtesting import FoldCheck
from impact_gnn.backtesting.forecast import comparable_confidence, forecast
from impact_gnn.engines import Engine
from impact_gnn.estimators import Ensemble
from impact_gnn.graph import TemporalGraph
from impact_gnn.job.outliers import OutlierScale
from impact_gnn.report.export import write_table
from impact_gnn.report.summary import NodeToReview, PredictionSummary

PREFIXES = ("", "second_", "third_")  # of the columns of the most probable labels

BINS = 20  # of the probability
TO_REVIEW = 5  # nodes of a kind


def write_predictions(
    graph: TemporalGraph,
    model: Ensemble,
    path: Path,
    *,
    nodes: Sequence[Any] | None = None,
    cutoff: int | str | None = None,
    view: TemporalGraph | None = None,
    engine: Engine | None = None,
    probability: ndarray | None = None,
    checks: Sequence[FoldCheck] = (),
) -> PredictionSummary:
    r"""Write one row per target node, or per id in `nodes`, and summarize the predictions.

    Columns: `id`, `time` (the period's name), `label`, `probability`; `second_label`,
    `second_probability`, `third_...` as far as there are classes, by probability; and `set`: the
    prediction set with the coverage of the summary, its labels joined by "|" ("\|" within a name).
    Labels and ids are in the user's coding. In a `.csv` (not in a `.raw.csv`) text that a
    spreadsheet would run as a formula gets an apostrophe in front. `checks` of a back-test give
    the expected accuracy. `probability` is the model's prediction, if it is known already.
    Outliers are looked for in `view`, the masked graph of the fit, or among all target nodes.
    """
    if probability is None:
        probability = model.predict_proba(graph, nodes=nodes, cutoff=cutoff, engine=engine)
    targets = model.targets(graph, nodes=nodes, cutoff=cutoff)
    label = model.calibration.labels(probability, model.prior)
    row = np.arange(len(targets))
    confidence = probability[row, label]

    # Classes of every row by probability, the predicted one first [n, Y].
    # The metric may suit another class than the most probable one.
    ranking = probability.copy()
    ranking[row, label] = np.inf
    order = np.argsort(-ranking, axis=1, kind="stable")

    class_names = model.pipelines[0].classes_
    columns: dict[str, Any] = {
        "id": graph.ids[targets],
        "time": _period_names(graph, targets),
        **_label_columns(probability, order, class_names),
    }
    in_sets = model.calibration.sets(probability, label)
    columns["set"] = _set_column(in_sets, order, class_names)
    write_table(columns, path)

    if view is None and nodes is None:
        time = model.fitted.cutoff if cutoff is None else graph.when(cutoff)
        view = model.fitted.schema.adapted(graph, time)
    comparable = comparable_confidence(checks, confidence)
    unsure, unusual = _nodes_to_review(view, columns, targets, label)
    counts = np.bincount(label, minlength=probability.shape[1]).tolist()
    histogram, _ = np.histogram(confidence, bins=BINS, range=(0, 1))
    return PredictionSummary(
        file=path.name,
        count=len(targets),
        labels=dict(zip(map(str, class_names.tolist()), counts, strict=True)),
        mean_probability=float(confidence.mean()),
        histogram=histogram.tolist(),
        comparable_confidence=comparable,
        accuracy=forecast(checks, comparable, len(targets)),
        coverage=model.calibration.coverage,
        threshold=model.calibration.threshold,
        set_size=float(in_sets.sum(1).mean()),
        unsure=unsure,
        unusual=unusual,
    )


def _label_columns(
    probability: ndarray, order: ndarray, class_names: ndarray
) -> dict[str, ndarray]:
    """The first labels by the order of classes [n, Y], and their probabilities."""
    columns = {}
    row = np.arange(len(probability))
    for rank, prefix in enumerate(PREFIXES[: probability.shape[1]]):
        best = order[:, rank]
        rounded = probability[row, best].astype(np.float64).round(6)
        columns[f"{prefix}label"] = class_names[best]
        # Nothing is certain; and a column that begins with 0 and 1 would be read as whole numbers.
        columns[f"{prefix}probability"] = rounded.clip(1e-6, 1 - 1e-6)
    return columns


def _set_column(in_sets: ndarray, order: ndarray, class_names: ndarray) -> list[str]:
    """The classes of every set [n, Y] in the order of their probabilities."""
    # Names may contain the mark that separates them.
    names = np.array([in_set(str(name)) for name in class_names.tolist()])
    return [
        "|".join(names[ranked[inside[ranked]]])
        for ranked, inside in zip(order, in_sets, strict=True)
    ]


def in_set(name: str) -> str:
    """A class's name in the column `set`."""
    return name.replace("\\", "\\\\").replace("|", "\\|")


def _nodes_to_review(
    graph: TemporalGraph | None, columns: dict[str, Any], nodes: ndarray, label: ndarray
) -> tuple[list[NodeToReview], list[NodeToReview]]:
    """The least certain nodes, and the largest outliers among the most certain quarter."""
    confidence = columns["probability"]
    unsure = np.argsort(confidence, kind="stable")[:TO_REVIEW].tolist()
    outliers = []
    scores = np.full(len(nodes), np.nan)
    if graph is not None and (scale := OutlierScale.fit(graph)) is not None:
        assert graph.x is not None
        label_of_node = np.full(graph.num_nodes, -1)
        label_of_node[nodes] = label
        scores = scale.score(graph.x, nodes, label_of_node)
        surest = np.flatnonzero(confidence >= np.quantile(confidence, 0.75))
        largest_first = np.argsort(-scores[surest], kind="stable")
        outliers = surest[largest_first[:TO_REVIEW]].tolist()

    def node(row: int) -> NodeToReview:
        second_label = second_probability = None
        if "second_label" in columns:
            second_label = str(columns["second_label"][row])
            second_probability = float(columns["second_probability"][row])
        return NodeToReview(
            id=str(columns["id"][row]),
            time=str(columns["time"][row]),
            label=str(columns["label"][row]),
            probability=float(confidence[row]),
            second_label=second_label,
            second_probability=second_probability,
            distance=float(f"{scores[row]:.4g}") if np.isfinite(scores[row]) else None,
        )

    return [node(row) for row in unsure], [node(row) for row in outliers]


def _period_names(graph: TemporalGraph, nodes: ndarray) -> ndarray:
    """The names of the periods of nodes; times without names stay numbers."""
    time = graph.time[nodes]
    if graph.periods is None:
        return time
    times, period = np.unique(time, return_inverse=True)
    return np.array([graph.name_of(int(one)) for one in times])[period]
