"""Degrees of target nodes as features."""

from __future__ import annotations

import numpy as np

from impact_gnn import _native
from impact_gnn.graph import TemporalGraph


def degree_columns(graph: TemporalGraph, nodes: np.ndarray) -> np.ndarray:
    """Degrees of some nodes, and degrees that count edges to labelled nodes only."""
    return np.hstack([degrees(graph), degrees(graph, graph.label >= 0)])[nodes]


def degrees(graph: TemporalGraph, among: np.ndarray | None = None) -> np.ndarray:
    """log(1 + edges) of every target node, in and out by relation [N, columns], float32.

    With `among`, a mask of target nodes, only edges whose other end is one of them.
    """
    columns = []
    for (source, _, target), relation in graph.relations.items():
        for row, (kind, other) in enumerate(((source, target), (target, source))):
            if kind != graph.target or (among is not None and other != graph.target):
                continue
            count, ends = np.zeros(graph.num_nodes, np.int64), relation.edge_index
            for part in _native.blocks(ends[row]):
                near = ends[row][part]
                near = near if among is None else near[among[ends[1 - row][part]]]
                count += np.bincount(near, minlength=graph.num_nodes)
            columns.append(np.log1p(count))
    return np.column_stack(columns or [np.zeros(graph.num_nodes)]).astype(np.float32)
