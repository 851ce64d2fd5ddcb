"""Predictions for past windows by a few candidates, as studies of calibration need them."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from impact_gnn.backtesting import Window, fold_of, with_candidate
from impact_gnn.backtesting.candidates import is_applicable
from impact_gnn.backtesting.folds import prior_before, prior_drift, truth_of, windows
from impact_gnn.backtesting.greedy import fold_weights
from impact_gnn.estimators import Candidate, Pipeline
from impact_gnn.estimators.calibration import OutOfFold
from impact_gnn.graph import TemporalGraph
from reproduction import data

CANDIDATES = ("trees:labels", "linear:labels", "trees:features+history")
MOST_WINDOWS = 4


def past_windows(
    names: Sequence[str] | None, root: Path
) -> Iterator[tuple[str, TemporalGraph, list[Window]]]:
    """Of every data set its name, its view before the targets, and its last windows."""
    for name in names or data.available(root):
        graph, cutoff = data.with_cutoff(name, root)
        view = graph.masked(cutoff)
        yield name, view, windows(view, MOST_WINDOWS)


def predicted(view: TemporalGraph, window: Window) -> OutOfFold:
    """The mean of a few candidates that learned from the labels before a window."""
    fold = fold_of(view, window)
    candidates = [one for one in map(Candidate.parse, CANDIDATES) if is_applicable(one, view)]
    targets = np.flatnonzero(fold.graph.time >= window.first)
    row = np.searchsorted(targets, fold.rows)
    probability = np.zeros((len(row), view.num_labels))
    for candidate in candidates:
        pipeline = with_candidate(Pipeline(), candidate, seed=0, cutoff=window.first)
        fitted = pipeline.fit(fold.graph)
        own = fitted.predict_proba(fold.graph)[row]
        probability[:, fold.classes] += own / len(candidates)
    return OutOfFold(
        probability=probability,
        truth=truth_of(view, window),
        prior=prior_before(view, window),
        drift=prior_drift(view, window.first),
    )


def weighted(folds: Sequence[OutOfFold]) -> list[OutOfFold]:
    """Folds, the oldest first, with the weights that calibrations of the product have."""
    weights = fold_weights(len(folds)) ** 2
    return [replace(fold, weight=float(w)) for fold, w in zip(folds, weights, strict=True)]
