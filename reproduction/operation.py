"""The only place that asks the library for less than its public calls: one operation, and hops over files both ways."""

from collections.abc import Sequence
from typing import Any

import numpy as np

import impact_gnn as ig
from impact_gnn.graph import Triple


def operation(graph: ig.TemporalGraph, relation: Triple | None = None, *, weighting: str = "plain") -> Any:
    """The operation M of one relation with row means; `.apply(x, out=None, threads=None)` gives M·x."""
    from impact_gnn.propagation.hops import operator  # will be: ig.engines.Memory().operator(...)

    return operator(graph, relation, weighting=weighting)


def stored_hops(graph: ig.TemporalGraph, engine: Any, weighting: str, hops: int) -> Sequence[Any]:
    """Hops by a `Disk` engine along edges in both directions, which are too many to be doubled in memory."""
    step = engine.operator(graph, weighting=weighting, undirected=True)
    return engine.hops([step] * hops, graph.x)


def stored_label_hops(
    graph: ig.TemporalGraph, engine: Any, weighting: str, label: np.ndarray, hops: int, name: str
) -> Sequence[Any]:
    """Label hops of given labels by a `Disk` engine, along the edges that `stored_hops` has sorted."""
    from impact_gnn.propagation.stored_labels import stored_label_hops as on_disk

    step = engine.operator(graph, weighting=weighting, undirected=True)
    return on_disk(engine.within(name), step, label, graph.num_labels, hops=hops, renormalize=True)
