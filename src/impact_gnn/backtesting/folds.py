"""Walk-forward folds: the graph as it was, the labels that were known, the period that was to be predicted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from impact_gnn.checks import InputError, TooShort
from impact_gnn.engines import Engine, Memory
from impact_gnn.graph import TemporalGraph

LEAST_NODES = 20  # labelled, that a period needs to be worth a fold


@dataclass(frozen=True, eq=False)
class Fold:
    """One period to predict."""

    cutoff: int
    graph: TemporalGraph  # the past up to its end, labels of the period hidden
    rows: np.ndarray  # positions in `graph` of the period's labelled nodes
    truth: np.ndarray  # their labels


def fold_times(graph: TemporalGraph, count: int) -> list[int]:
    """The last `count` labelled periods before the view's cutoff that have enough labelled nodes and a past.

    Example:
        >>> from impact_gnn.data.tsbm import tsbm
        >>> fold_times(tsbm(num_nodes=500, num_times=6, num_labels=2, seed=0).masked(5), 3)
        [2, 3, 4]
    """
    if graph.cutoff is None or graph.y is None:
        raise InputError("a back-test needs a view that hides the labels to predict; pass graph.masked(cutoff).")
    if count < 1:
        raise InputError(f"folds={count} must be at least 1.")
    times, sizes = np.unique(graph.time[graph.y >= 0], return_counts=True)
    able = times[1:][sizes[1:] >= LEAST_NODES]
    if len(able) == 0:
        raise TooShort(
            f"no labelled period but the first has {LEAST_NODES} labelled nodes, so nothing can be back-tested; "
            f"use longer periods or add labels."
        )
    return [int(t) for t in able[-count:]]


def fold_at(graph: TemporalGraph, cutoff: int, engine: Engine | None = None) -> Fold:
    """The fold that predicts period `cutoff` of a view; the graph as it was then is made by the engine."""
    then = (engine or Memory()).graph(graph, upto=cutoff)
    assert then.y is not None
    rows = np.flatnonzero((then.time == cutoff) & (then.y >= 0))
    return Fold(cutoff, then.masked(cutoff), rows, np.array(then.y[rows]))
