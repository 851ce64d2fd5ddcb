"""The only place that asks the library for less than its public calls: one operation, and hops over files both ways."""

from collections.abc import Sequence
from typing import Any

import numpy as np

import impact_gnn as ig
from impact_gnn.graph import Triple
from impact_gnn.propagation.labels import repeated_label_hops


def operation(graph: ig.TemporalGraph, relation: Triple | None = None, *, weighting: str = "plain") -> Any:
    """The operation M of one relation with row means; `.apply(x, out=None, threads=None)` gives M·x."""
    return ig.engines.Memory().operator(graph, relation, weighting=weighting)


def stored_hops(graph: ig.TemporalGraph, engine: Any, weighting: str, hops: int) -> Sequence[Any]:
    """Hops along edges in both directions, which are too many to be doubled in memory."""
    both = engine.graph(graph, undirected=True)
    return engine.hops([engine.operator(both, weighting=weighting)] * hops, both.x)


def stored_label_hops(
    graph: ig.TemporalGraph, engine: Any, weighting: str, label: np.ndarray, hops: int
) -> Sequence[Any]:
    """Label hops of given labels, along the edges that `stored_hops` has sorted."""
    both = engine.graph(graph, undirected=True)
    return repeated_label_hops(
        engine.operator(both, weighting=weighting), hops, label, graph.num_labels, engine
    )
