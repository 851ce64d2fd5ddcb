"""`evaluate`: when labels arrive, how right the forecast, the choice and the intervals of a run were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from impact_gnn import _files
from impact_gnn._codec import encode
from impact_gnn.backtesting import PLAIN, PeriodScore, varied
from impact_gnn.checks import InputError, listing
from impact_gnn.data.files import is_table, load
from impact_gnn.data.sources import file as table_in
from impact_gnn.data.spec import LABELS
from impact_gnn.graph import TemporalGraph
from impact_gnn.metrics import Scoring
from impact_gnn.pipeline import Ensemble, Pipeline
from impact_gnn.pipeline.calibration import FINE, Bin, calibration_error, confusion, reliability
from impact_gnn.report import read_summary, write_report
from impact_gnn.report.page import EVALUATION
from impact_gnn.report.summary import Evaluation, RunSummary
from impact_gnn.report.tables import harmless
from impact_gnn.statistics import Estimate, paired

LEAST = 2  # labels that it takes


def evaluate(
    directory: str | Path, labels: str | Path | TemporalGraph, *, graph: str | Path | TemporalGraph | None = None
) -> Evaluation:
    """Holds the predictions of a run against labels that have arrived since, and adds that to its report.

    Args:
        directory: Of the run.
        labels: The graph with its new labels, or where it lies, or a table with the columns `id` and `label`.
        graph: Where labels come as a table, the graph of the run: plain is fitted on it once more, as it would have
            been then, and the choice is held against it on the same nodes.
    """
    root = Path(directory)
    summary = read_summary(root / "summary.json")
    table = _predictions(root / summary.predicted.file)
    ids, model = table["id"], Ensemble.load(root / "model")
    source = None
    if not isinstance(labels, TemporalGraph) and Path(labels).is_file():
        source = table_in(Path(labels))
    if source is None:
        graph = given(labels, model)
        known, truth = _of_graph(graph)
    else:
        known, truth = _columns(source.table, str(labels))
        graph = None if graph is None else given(graph, model)
    known = _as_written(known, summary)
    place = pc.index_in(ids, value_set=known)
    found = pc.is_valid(place)
    if (count := pc.sum(found).as_py() or 0) < LEAST:
        raise InputError(f"{labels} has labels of {count} of the {len(ids)} nodes that were predicted; give those ids.")
    rows = np.flatnonzero(found.to_numpy(zero_copy_only=False))
    true = truth.take(place.drop_null())
    evaluation = _evaluated(summary, table.take(rows), true)
    if graph is not None:
        evaluation = _against_plain(evaluation, summary, model, graph, ids.take(rows), true)
    _files.write_json(root / EVALUATION, encode(evaluation), sealed=True)
    write_report(summary, root / "report.html")
    return evaluation


def given(graph: str | Path | TemporalGraph, model: Ensemble) -> TemporalGraph:
    """A graph, loaded with the model's periods if it is not yet."""
    if isinstance(graph, TemporalGraph):
        return graph
    return load(graph, verify=True, period=(model.fitted.schema.periods or "whole") if is_table(graph) else None)


def _as_written(ids: pa.Array, summary: RunSummary) -> pa.Array:
    """Ids as the table of predictions has them."""
    guarded = summary.predicted.file.endswith(".csv") and not summary.predicted.file.endswith(".raw.csv")
    return harmless(ids) if guarded else ids


def _predictions(path: Path) -> pa.Table:
    """The table of a run as text, but for the probabilities."""
    if path.suffix == ".parquet":
        table = pa.parquet.read_table(path)
    else:
        header = path.open(encoding="utf-8").readline()
        text = {
            name.strip('"\n'): pa.string()
            for name in header.split(",")
            if not name.strip('"\n').endswith("probability")
        }
        table = pa.csv.read_csv(
            path, convert_options=pa.csv.ConvertOptions(column_types=text, strings_can_be_null=False)
        )
    return pa.table(
        {
            n: c if n.endswith("probability") else _text(c)
            for n, c in zip(table.column_names, table.columns, strict=True)
        }
    )


def _text(column: Any) -> pa.Array:
    one = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return one.cast(pa.string())


def _columns(table: pa.Table, where: str) -> tuple[pa.Array, pa.Array]:
    """Ids and labels of a table, by the names of its columns; rows without a label are left out."""
    names = {name.lower(): name for name in table.column_names}
    label = next((names[one] for one in LABELS if one in names), None)
    if "id" not in names or label is None:
        raise InputError(f"{where} has the columns {listing(table.column_names)}; call two of them id and label.")
    kept = table.filter(pc.is_valid(table[label]))
    ids, labels = _text(kept[names["id"]]), _text(kept[label])
    filled = pc.not_equal(labels, "")
    ids, labels = ids.filter(filled), labels.filter(filled)
    if pc.count_distinct(ids).as_py() < len(ids):
        raise InputError(f"{where} names some ids more than once; give one label for every id.")
    return ids, labels


def _of_graph(graph: TemporalGraph) -> tuple[pa.Array, pa.Array]:
    """Ids and labels of the nodes of a graph that have one."""
    rows = np.flatnonzero(graph.label >= 0)
    names = np.arange(graph.num_labels) if graph.label_names is None else np.array(graph.label_names)
    return pa.array(graph.ids[rows].astype(str)), pa.array(names[graph.label[rows]].astype(str))


def _evaluated(summary: RunSummary, table: pa.Table, truth: pa.Array) -> Evaluation:
    """All that follows from the table of predictions alone."""
    names = pa.array(list(summary.predicted.labels))
    label = pc.index_in(table["label"], value_set=_as_written(names, summary)).to_numpy()
    true = pc.fill_null(pc.index_in(truth, value_set=names), len(names)).to_numpy()
    right = label == true
    said = table["probability"].to_numpy()
    bare = pc.utf8_ltrim(table["set"], "'")
    sets = pc.if_else(pc.equal(_as_written(bare, summary), table["set"]), bare, table["set"]).to_pylist()
    held = [own in each.split("|") for own, each in zip(truth.to_pylist(), sets, strict=True)]
    two = np.stack([said, 1 - said], axis=1)  # calibration asks how probable what was said was, and whether it came
    as_said = np.zeros(len(said), int)
    times = dict(zip(summary.graph.names, summary.graph.times, strict=True))
    time = np.array([times[one] for one in table["time"].to_pylist()])
    every = ((int(one), time == one) for one in np.unique(time))
    periods = [PeriodScore(one, int(at.sum()), float(right[at].mean()), None) for one, at in every]
    bins: list[Bin] = reliability(two, np.where(right, 0, 1), as_said, FINE)
    return Evaluation(
        len(right), int((true == len(names)).sum()), _share(right), float(said.mean()),
        calibration_error(two, np.where(right, 0, 1), as_said), float(np.mean(held)), bins, confusion(true, label),
        periods, None, None, None,
    )  # fmt: skip


def _share(right: np.ndarray) -> Estimate:
    """With Wilson's interval, which stays between 0 and 1."""
    n, p, z = len(right), float(right.mean()), 1.96
    middle, half = (p + z * z / (2 * n)), z * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    low, high = (float((middle + sign * half) / (1 + z * z / n)) for sign in (-1, 1))
    return Estimate(p, float(np.sqrt(p * (1 - p) / n)), max(low, 0.0), min(high, 1.0))


def _against_plain(
    found: Evaluation, summary: RunSummary, model: Ensemble, graph: TemporalGraph, ids: pa.Array, truth: pa.Array
) -> Evaluation:
    """With plain, fitted as it would have been then, on the same nodes; labels from the cutoff on stay hidden."""
    options = summary.options
    view = model.fitted.schema.adapted(graph, options.cutoff)
    base = Pipeline(
        options.model, hops=options.hops, undirected=options.undirected, metric=options.metric,
        class_weight=options.class_weight,
    )  # fmt: skip
    plain = varied(base, PLAIN, seed=options.seed, cutoff=options.cutoff).fit(view)
    names = pa.array(list(summary.predicted.labels))
    known = pc.index_in(truth, value_set=names)
    own = pa.array(graph.ids[model.targets(graph)].astype(str))
    place = pc.index_in(ids, value_set=_as_written(own, summary))
    both = pc.and_(pc.is_valid(known), pc.is_valid(place)).to_numpy(zero_copy_only=False)
    if both.sum() < LEAST:
        raise InputError(f"the graph has {both.sum()} of the nodes that labels came for; give the graph of the run.")
    rows, true = (np.asarray(one.filter(pa.array(both))) for one in (place, known))
    scoring = Scoring(options.metric, tuple(model.prior.tolist()))
    ours = scoring.each(model.predict_proba(graph)[rows], true, model.calibration.tilt)
    theirs = scoring.each(plain.predict_proba(view)[rows], true)
    shown = scoring.rule.shown
    scores = shown(float(ours.mean())), shown(float(theirs.mean()))
    return Evaluation(**vars(found) | {"gain": paired(ours, theirs), "score": scores[0], "plain_score": scores[1]})
