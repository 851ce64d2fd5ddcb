"""`evaluate`: compares the predictions of a run with labels that arrive later."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.stats import binomtest

from impact_gnn import _files
from impact_gnn._codec import encode
from impact_gnn.backtesting import BASELINE, PeriodScore, with_candidate
from impact_gnn.checks import InputError, guarded, listing
from impact_gnn.data.convert import GraphLike, as_temporal_graph
from impact_gnn.data.files import is_table, load
from impact_gnn.data.sources import file as table_in
from impact_gnn.data.spec import LABELS
from impact_gnn.data.values import floats_as_numbers
from impact_gnn.estimators import Ensemble, Own, Pipeline
from impact_gnn.estimators.calibration import (
    FINE_BINS,
    calibration_error,
    confusion,
    reliability,
)
from impact_gnn.graph import Periods, TemporalGraph
from impact_gnn.graph.parts import class_name
from impact_gnn.job.predictions import in_set
from impact_gnn.metrics import Scoring
from impact_gnn.report import read_summary, write_report
from impact_gnn.report.export import read_table
from impact_gnn.report.page import EVALUATION
from impact_gnn.report.summary import Evaluation, RunSummary
from impact_gnn.statistics import Estimate, paired

MIN_LABELS = 2  # labels that an evaluation needs
COLUMNS = ("id", "time", "label", "probability", "set")
# Class codes by name: two notations of the same classes.
TRUTH_VALUES = [{"0": 0, "1": 1}, {"false": 0, "true": 1}]


def evaluate(
    directory: str | Path,
    labels: str | Path | GraphLike,
    *,
    graph: str | Path | GraphLike | None = None,
    model: Own | None = None,
) -> Evaluation:
    """Compare the predictions of a run with labels that have arrived since; extends its report.

    Args:
        directory: Of the run.
        labels: The graph with its new labels, or its path, or the path of a table with the columns
            `id` and `label`.
        graph: With a table of labels, the graph of the run. The baseline is fitted on it as it
            would have been then, and compared with the selected ensemble on the same nodes.
        model: The user model of the run, if it has one.
    """
    root = Path(directory)
    summary = read_summary(root / "summary.json")
    predictions = _read_predictions(summary.predictions_file)
    ensemble = Ensemble.load(root / "model", model=model)
    classes = _class_codes(ensemble.fitted.schema.label_names, ensemble.fitted.num_labels)
    if isinstance(labels, str | Path) and is_label_table(labels):
        if classes in TRUTH_VALUES:
            classes = TRUTH_VALUES[0] | TRUTH_VALUES[1]
        known = _labels_of_table(labels)
        run_graph = None if graph is None else load_for(ensemble, graph)
    elif graph is not None:
        raise InputError(
            "labels is a graph, so that graph= would be ignored; pass one of them, "
            "or a table of labels with the columns 'id' and 'label'."
        )
    else:
        run_graph = load_for(ensemble, labels)
        known = _labels_of_graph(run_graph)

    # Predicted nodes whose label is known now.
    ids = _id_names(predictions["id"].to_pylist())
    rows = [row for row, name in enumerate(ids) if name in known]
    if len(rows) < MIN_LABELS:
        raise InputError(
            f"labels are known for {len(rows)} of the {len(ids)} predicted nodes; "
            "pass labels with their ids."
        )
    names = [ids[row] for row in rows]
    truth = {name: known[name] for name in names}
    _refuse_other_names(str(labels), set(truth.values()), classes)
    with guarded(summary.predictions_file):  # its cells may have been changed
        table = predictions.take(rows)
        evaluation = _evaluate_table(summary, classes, table, [known[name] for name in names])
    true_class = {name: classes[label] for name, label in truth.items() if label in classes}
    if run_graph is not None and true_class:
        own_model = summary.options.model if model is None else model
        comparison = _compare_with_baseline(
            summary,
            ensemble,
            baseline=summary.options.pipeline(own_model),
            graph=run_graph,
            true_class=true_class,
        )
        evaluation = replace(evaluation, **comparison)
    # Only a file of our own is replaced, which its seal shows.
    if (root / EVALUATION).exists():
        _files.read_json(root / EVALUATION, sealed=True)  # refuses to replace what is not ours
    _files.write_json(root / EVALUATION, encode(evaluation), sealed=True)
    with guarded(root / "summary.json"):
        write_report(summary, root / "report.html")
    return evaluation


def _read_predictions(path: Path) -> pa.Table:
    """The table of predictions of a run, with the columns that an evaluation needs."""
    table = read_table(path)
    missing = [name for name in COLUMNS if name not in table.column_names]
    if missing or not len(table):
        problem = "has no rows"
        if missing:
            problem = f"lacks the columns {listing(missing)}"
        raise InputError(f"{path} {problem}; run the same command again to restore it.")
    return table


def is_label_table(labels: str | Path) -> bool:
    """Whether labels come as one file of ids and labels, not with a graph."""
    return Path(labels).is_file() and table_in(Path(labels)) is not None


def periods_of(model: Ensemble, graph: str | Path) -> Periods | str | None:
    """The periods by which to read a graph for a fitted model; None where the graph has its own."""
    if not is_table(graph):
        return None
    return model.fitted.schema.periods or "whole"


def load_for(model: Ensemble, graph: str | Path | GraphLike) -> TemporalGraph:
    """A graph with the periods of a fitted model; a path is loaded first."""
    if not isinstance(graph, str | Path):
        return as_temporal_graph(graph)
    return load(
        graph,
        verify=True,
        period=periods_of(model, graph),
    )


def _id_names(values: Iterable[Any]) -> list[str]:
    """Ids as text, as for classes; but white space around an id is part of it."""
    return [
        value if isinstance(value, str) and value != value.strip() else class_name(value)
        for value in values
    ]


def _ids_of_graph(graph: TemporalGraph, nodes: np.ndarray) -> list[str]:
    # As a table of predictions has them: numpy would turn dates in nanoseconds into numbers.
    return _id_names(pa.array(graph.ids[nodes]).to_pylist())


def _class_codes(names: Sequence[Any] | None, count: int) -> dict[str, int]:
    """Codes of classes by their names as text: 7, 7.0 and "7" are the same."""
    return {class_name(name): code for code, name in enumerate(names or range(count))}


def _labels_of_table(path: str | Path) -> dict[str, str]:
    """Labels of a table by id, by the names of its columns; rows without a label are left out."""
    source = table_in(Path(path))
    assert source is not None
    table = source.as_written(source.names).table
    names = {name.lower(): name for name in table.column_names}
    present = [names[name] for name in LABELS if name in names]
    if "id" not in names or not present:
        raise InputError(
            f"{path} has the columns {listing(table.column_names)}; "
            "rename two of them to id and label."
        )
    table = pa.table([*map(floats_as_numbers, table.columns)], names=table.column_names)
    label = present[0]
    table = table.filter(pc.is_valid(table[label]))
    ids = _id_names(table[names["id"]].to_pylist())
    labels = map(class_name, table[label].to_pylist())
    rows = [(name, value) for name, value in zip(ids, labels, strict=True) if value]
    label_of = dict(rows)
    if len(label_of) < len(rows):
        raise InputError(f"{path} has duplicate ids; pass one label per id.")
    return label_of


def _labels_of_graph(graph: TemporalGraph) -> dict[str, str]:
    """Labels of the labelled nodes of a graph by id."""
    nodes = np.flatnonzero(graph.is_labelled)
    names = list(_class_codes(graph.label_names, graph.num_labels))
    ids = _ids_of_graph(graph, nodes)
    return {name: names[label] for name, label in zip(ids, graph.label[nodes], strict=True)}


def _refuse_other_names(where: str, labels: set[str], classes: Iterable[str]) -> None:
    """Refuse labels of which none is a class."""
    if labels & {*classes}:
        return
    by_folded_name = {name.casefold(): name for name in classes}
    for label in sorted(labels):
        name = by_folded_name.get(label.casefold())
        if name is not None:
            raise InputError(
                f"{where} has labels such as {label!r}, which the run calls {name!r}; they differ "
                "in case only, so use the spelling of the run."
            )
    raise InputError(
        f"none of the labels in {where} is a class of the run: its classes are "
        f"{listing([*classes])}, the labels are {listing(sorted(labels))}; use its names."
    )


def _evaluate_table(
    summary: RunSummary, classes: dict[str, int], table: pa.Table, truth: list[str]
) -> Evaluation:
    """Everything that follows from the table of predictions and the true labels."""
    # Class indices [n]; the next number stands for a class that the model does not know.
    unknown = max(classes.values()) + 1
    predicted_names = map(class_name, table["label"].to_pylist())
    predicted = np.array([classes.get(name, unknown) for name in predicted_names])
    true = np.array([classes.get(name, unknown) for name in truth])
    is_correct = predicted == true

    # Names of the classes as they are written in sets; None is in no set.
    set_names = [*map(in_set, summary.prediction_summary.labels), None]
    sets = [re.findall(r"(?:[^|\\]|\\.)+", text, re.S) for text in table["set"].to_pylist()]
    if not all(set_names[k] in names for k, names in zip(predicted, sets, strict=True)):
        raise InputError(
            f"{summary.prediction_summary.file} has predicted classes outside their own sets, "
            "so it was modified or comes from an older release; "
            "run the same command again to restore it."
        )
    is_covered = [set_names[k] in names for k, names in zip(true, sets, strict=True)]

    # Calibration of the predicted label as a problem of two classes: 0 is correct, 1 is wrong.
    confidence = table["probability"].to_numpy()
    two_classes = np.stack([confidence, 1 - confidence], axis=1)
    outcome = np.where(is_correct, 0, 1)
    predicts_correct = np.zeros(len(confidence), int)

    time_of_name = dict(zip(summary.graph.names, summary.graph.times, strict=True))
    time = np.array([time_of_name[str(name)] for name in table["time"].to_pylist()])
    periods = []
    for period in np.unique(time).tolist():
        hits = is_correct[time == period]
        periods.append(PeriodScore(period, len(hits), float(hits.mean()), None))
    return Evaluation(
        count=len(is_correct),
        unknown=int((true == unknown).sum()),
        accuracy=_wilson_interval(is_correct),
        confidence=float(confidence.mean()),
        error=calibration_error(two_classes, outcome, predicts_correct),
        coverage=float(np.mean(is_covered)),
        bins=reliability(two_classes, outcome, predicts_correct, FINE_BINS),
        confusion=confusion(true, predicted),
        periods=periods,
        gain=None,
        score=None,
        plain_score=None,
        mark=summary.prediction_summary.mark,
    )


def _wilson_interval(is_correct: np.ndarray) -> Estimate:
    """Accuracy with Wilson's 95 % interval, which stays between 0 and 1."""
    count = len(is_correct)
    share = float(is_correct.mean())
    interval = binomtest(int(is_correct.sum()), count).proportion_ci(method="wilson")
    return Estimate(
        value=share,
        error=float(np.sqrt(share * (1 - share) / count)),
        low=float(interval.low),
        high=float(interval.high),
    )


def _compare_with_baseline(
    summary: RunSummary,
    ensemble: Ensemble,
    *,
    baseline: Pipeline,
    graph: TemporalGraph,
    true_class: dict[str, int],
) -> dict[str, Any]:
    """Gain and scores against the baseline, fitted as it would have been at the time of the run.

    `true_class` has the nodes to compare on, by id; labels from the cutoff on are hidden from the
    fit.
    """
    options = summary.options
    last_time = summary.graph.times[-1]
    if graph.times[-1] > last_time:  # the run did not see later nodes
        graph = graph.upto(last_time)
    view = ensemble.fitted.schema.adapted(graph, options.cutoff)
    baseline = with_candidate(
        baseline,
        BASELINE,
        seed=options.seed,
        cutoff=options.cutoff,
    )
    baseline = baseline.fit(view)

    # Positions among the targets of the graph, for nodes of known class.
    target_ids = _ids_of_graph(graph, ensemble.targets(graph))
    position = {name: row for row, name in enumerate(target_ids)}
    comparable = [name for name in true_class if name in position]
    rows = [position[name] for name in comparable]
    true = np.array([true_class[name] for name in comparable])
    if len(rows) < MIN_LABELS:
        raise InputError(
            f"the graph contains only {len(rows)} of the labelled nodes; pass the graph of the run."
        )
    scoring = Scoring(options.metric, tuple(ensemble.prior.tolist()))
    probability = ensemble.predict_proba(graph)[rows]
    scores = scoring.each(probability, true, ensemble.calibration.tilt)
    baseline_probability = baseline.predict_proba(view)[rows]
    baseline_scores = scoring.each(baseline_probability, true)
    return {
        "gain": paired(scores, baseline_scores),
        "score": scoring.rule.displayed(float(scores.mean())),
        "plain_score": scoring.rule.displayed(float(baseline_scores.mean())),
    }
