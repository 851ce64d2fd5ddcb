"""`evaluate`: when labels arrive, how right the forecast, the choice and the intervals of a run were."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from impact_gnn import _files
from impact_gnn._codec import encode
from impact_gnn.backtesting import BASELINE, PeriodScore, with_candidate
from impact_gnn.checks import InputError, guarded, listing
from impact_gnn.data.files import is_table, load
from impact_gnn.data.given import GraphLike, as_temporal_graph
from impact_gnn.data.sources import file as table_in
from impact_gnn.data.spec import LABELS
from impact_gnn.data.values import floats_as_numbers
from impact_gnn.graph import TemporalGraph
from impact_gnn.graph.parts import class_name
from impact_gnn.heads import Own
from impact_gnn.job.predictions import in_set
from impact_gnn.metrics import Scoring
from impact_gnn.pipeline import Ensemble, Pipeline
from impact_gnn.pipeline.calibration import (
    FINE_BINS,
    Bin,
    calibration_error,
    confusion,
    reliability,
)
from impact_gnn.report import read_summary, write_report
from impact_gnn.report.page import EVALUATION
from impact_gnn.report.summary import Evaluation, RunSummary
from impact_gnn.report.tables import read_table
from impact_gnn.statistics import Estimate, paired

LEAST = 2  # labels that it takes
COLUMNS = ("id", "time", "label", "probability", "set")


def evaluate(
    directory: str | Path,
    labels: str | Path | GraphLike,
    *,
    graph: str | Path | GraphLike | None = None,
    model: Own | None = None,
) -> Evaluation:
    """Holds the predictions of a run against labels that have arrived since, and adds that to its report.

    Args:
        directory: Of the run.
        labels: The graph with its new labels, or where it lies, or a table with the columns `id`
            and `label`.
        graph: Where labels come as a table, the graph of the run: plain is fitted on it once more,
            as it would have been then, and the choice is held against it on the same nodes.
        model: The network of one's own that the run was made with, if any.
    """
    root = Path(directory)
    summary = read_summary(root / "summary.json")
    table = _predictions(summary.predictions_file)
    fitted = Ensemble.load(root / "model", model=model)
    ids = _id_names(table["id"].to_pylist())
    if not isinstance(labels, str | Path) or not is_label_table(labels):
        graph = given(labels, fitted)
        known, truth = _of_graph(graph)
    else:
        source = table_in(Path(labels))
        assert source is not None
        table_as_written = source.as_written(source.head.column_names).table
        known, truth = _columns(table_as_written, str(labels))
        graph = None if graph is None else given(graph, fitted)
    place = pc.index_in(ids, value_set=known)
    found = pc.is_valid(place)
    if (count := pc.sum(found).as_py() or 0) < LEAST:
        raise InputError(
            f"{labels} has labels of {count} of the {len(ids)} nodes that were predicted; give those ids."
        )
    rows = np.flatnonzero(found.to_numpy(zero_copy_only=False))
    true = truth.take(place.drop_null())
    classes = _classes(fitted.fitted.schema.label_names, fitted.fitted.num_labels)
    _refuse_other_case(str(labels), true, classes)
    with guarded(summary.predictions_file):  # which somebody may have changed
        evaluation = _evaluated(summary, classes, table.take(rows), true)
    if graph is not None:
        known = pc.index_in(true, value_set=classes)
        evaluation = _against_plain(
            evaluation, summary, fitted, model, graph, ids.take(rows), known
        )
    if (root / EVALUATION).exists():
        _files.read_json(root / EVALUATION, sealed=True)  # refuses to replace what is not ours
    _files.write_json(root / EVALUATION, encode(evaluation), sealed=True)
    with guarded(root / "summary.json"):
        write_report(summary, root / "report.html")
    return evaluation


def _predictions(path: Path) -> pa.Table:
    """The table of predictions of a run, with the columns that an evaluation needs."""
    table = read_table(path)
    missing = [name for name in COLUMNS if name not in table.column_names]
    if missing or not len(table):
        what = f"has no column {listing(missing)}" if missing else "has no rows"
        raise InputError(f"{path} {what}; run the same again, which writes it anew.")
    return table


def is_label_table(labels: str | Path) -> bool:
    """Whether labels come as one file of ids and labels, not with a graph."""
    return Path(labels).is_file() and table_in(Path(labels)) is not None


def given(graph: str | Path | GraphLike, model: Ensemble) -> TemporalGraph:
    """A graph, loaded with the model's periods if it is not yet."""
    if not isinstance(graph, str | Path):
        return as_temporal_graph(graph)
    return load(
        graph,
        verify=True,
        period=(model.fitted.schema.periods or "whole") if is_table(graph) else None,
    )


def _names(values: Iterable[Any]) -> pa.Array:
    """Classes as text, by which they are met: 7, 7.0 and "7" are one."""
    return pa.array(map(class_name, values), pa.string())


def _id_names(values: Iterable[Any]) -> pa.Array:
    """Ids as text, as for classes; only white space counts here."""
    names = (
        value if isinstance(value, str) and value != value.strip() else class_name(value)
        for value in values
    )
    return pa.array(names, pa.string())


def _columns(table: pa.Table, where: str) -> tuple[pa.Array, pa.Array]:
    """Ids and labels of a table, by the names of its columns; rows without a label are left out."""
    names = {name.lower(): name for name in table.column_names}
    label = next((names[one] for one in LABELS if one in names), None)
    if "id" not in names or label is None:
        raise InputError(
            f"{where} has the columns {listing(table.column_names)}; call two of them id and label."
        )
    table = pa.table([*map(floats_as_numbers, table.columns)], names=table.column_names)
    kept = table.filter(pc.is_valid(table[label]))
    ids = _id_names(kept[names["id"]].to_pylist())
    labels = _names(kept[label].to_pylist())
    filled = pc.not_equal(labels, "")
    ids, labels = ids.filter(filled), labels.filter(filled)
    if pc.count_distinct(ids).as_py() < len(ids):
        raise InputError(f"{where} names some ids more than once; give one label for every id.")
    return ids, labels


def _of_graph(graph: TemporalGraph) -> tuple[pa.Array, pa.Array]:
    """Ids and labels of the nodes of a graph that have one."""
    rows = np.flatnonzero(graph.label >= 0)
    names = _classes(graph.label_names, graph.num_labels)
    return _id_names(graph.ids[rows].tolist()), names.take(pa.array(graph.label[rows]))


def _refuse_other_case(where: str, labels: pa.Array, classes: pa.Array) -> None:
    """Refuses labels of which none is a class, but all would be if upper and lower case were alike."""
    if pc.any(pc.is_in(labels, classes)).as_py():
        return
    folded = {name.casefold(): name for name in classes.to_pylist()}
    for label in pc.unique(labels).to_pylist():
        if label.casefold() in folded:
            known = folded[label.casefold()]
            raise InputError(
                f"{where} has labels such as {label!r}, which the run calls {known!r}; they differ "
                "in case only, so write them as the run does."
            )


def _classes(names: Sequence[Any] | None, count: int) -> pa.Array:
    return _names(range(count) if names is None else names)


def _evaluated(
    summary: RunSummary, names: pa.Array, table: pa.Table, truth: pa.Array
) -> Evaluation:
    """All that follows from the table of predictions alone; `names` are those of the model's classes."""
    label = pc.fill_null(
        pc.index_in(_names(table["label"].to_pylist()), value_set=names), len(names)
    ).to_numpy()
    true = pc.fill_null(pc.index_in(truth, value_set=names), len(names)).to_numpy()
    right = label == true
    said = table["probability"].to_numpy()
    # the last stands for classes that the model did not know
    shown = [
        *map(in_set, summary.predicted.labels),
        None,
    ]
    sets = [re.findall(r"(?:[^|\\]|\\.)+", one, re.S) for one in table["set"].to_pylist()]
    # also where it is no class at all
    if not all(shown[own] in each for own, each in zip(label, sets, strict=True)):
        what = (
            f"{summary.predicted.file} has labels that are not in their own sets, so it was changed"
        )
        raise InputError(
            f"{what} or is of an older release; run the same again, which writes it anew."
        )
    held = [shown[own] in each for own, each in zip(true, sets, strict=True)]
    # calibration asks how probable what was said was, and whether it came
    two = np.stack([said, 1 - said], axis=1)
    as_said = np.zeros(len(said), int)
    times = dict(zip(summary.graph.names, summary.graph.times, strict=True))
    time = np.array([times[str(one)] for one in table["time"].to_pylist()])
    every = ((int(one), time == one) for one in np.unique(time))
    periods = [PeriodScore(one, int(at.sum()), float(right[at].mean()), None) for one, at in every]
    bins: list[Bin] = reliability(two, np.where(right, 0, 1), as_said, FINE_BINS)
    return Evaluation(
        len(right),
        int((true == len(names)).sum()),
        _share(right),
        float(said.mean()),
        calibration_error(two, np.where(right, 0, 1), as_said),
        float(np.mean(held)),
        bins,
        confusion(true, label),
        periods,
        None,
        None,
        None,
        summary.predicted.mark,
    )


def _share(right: np.ndarray) -> Estimate:
    """With Wilson's interval, which stays between 0 and 1."""
    n, p, z = len(right), float(right.mean()), 1.96
    middle, half = (p + z * z / (2 * n)), z * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    low, high = (float((middle + sign * half) / (1 + z * z / n)) for sign in (-1, 1))
    return Estimate(p, float(np.sqrt(p * (1 - p) / n)), max(low, 0.0), min(high, 1.0))


def _against_plain(
    found: Evaluation,
    summary: RunSummary,
    model: Ensemble,
    own: Own | None,
    graph: TemporalGraph,
    ids: pa.Array,
    known: pa.Array,
) -> Evaluation:
    """With plain, fitted as it would have been then, on the same nodes; labels from the cutoff on stay hidden."""
    options, last = summary.options, summary.graph.times[-1]
    # what came since could not be seen
    graph = graph.upto(last) if graph.times[-1] > last else graph
    view = model.fitted.schema.adapted(graph, options.cutoff)
    base = Pipeline(
        options.model if own is None else own,
        hops=options.hops,
        undirected=options.undirected,
        embed=options.embed,
        metric=options.metric,
        class_weight=options.class_weight,
    )
    plain = with_candidate(base, BASELINE, seed=options.seed, cutoff=options.cutoff).fit(view)
    place = pc.index_in(ids, value_set=_id_names(graph.ids[model.targets(graph)].tolist()))
    both = pc.and_(pc.is_valid(known), pc.is_valid(place)).to_numpy(zero_copy_only=False)
    if both.sum() < LEAST:
        raise InputError(
            f"the graph has {both.sum()} of the nodes that labels came for; give the graph of the run."
        )
    rows, true = (np.asarray(one.filter(pa.array(both))) for one in (place, known))
    scoring = Scoring(options.metric, tuple(model.prior.tolist()))
    ours = scoring.each(model.predict_proba(graph)[rows], true, model.calibration.tilt)
    theirs = scoring.each(plain.predict_proba(view)[rows], true)
    shown = scoring.rule.displayed
    scores = shown(float(ours.mean())), shown(float(theirs.mean()))
    return Evaluation(
        **vars(found) | {"gain": paired(ours, theirs), "score": scores[0], "plain_score": scores[1]}
    )
