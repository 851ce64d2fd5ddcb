"""Degrees of target nodes as features."""

from __future__ import annotations

import numpy as np
from numpy import ndarray

from impact_gnn import _native
from impact_gnn.graph import TemporalGraph


def degree_columns(graph: TemporalGraph, nodes: ndarray) -> ndarray:
    """Return degrees of some nodes, and degrees that count edges to labelled nodes only."""
    to_labelled = degrees(graph, graph.label >= 0)
    return np.hstack([degrees(graph), to_labelled])[nodes]


def degrees(graph: TemporalGraph, among: ndarray | None = None) -> ndarray:
    """Compute log(1 + degree) of target nodes, in and out by relation [N, columns], float32.

    With `among`, a mask of target nodes, only edges whose other end is one of them count.
    """
    size = graph.num_nodes
    columns = []
    for (source, _, target), relation in graph.relations.items():
        # Row 0 of `edge_index` are sources, row 1 are targets.
        for row, kind, other_kind in ((0, source, target), (1, target, source)):
            if kind != graph.target:
                continue
            if among is not None and other_kind != graph.target:
                continue
            count = np.zeros(size, np.int64)
            nodes = relation.edge_index[row]
            neighbours = relation.edge_index[1 - row]
            for part in _native.blocks(nodes):
                counted = nodes[part]
                if among is not None:
                    # Edges whose other end is marked.
                    counted = counted[among[neighbours[part]]]
                count += np.bincount(counted, minlength=size)
            columns.append(np.log1p(count))
    # A graph without such relations has one column of zeros.
    return np.column_stack(columns or [np.zeros(size)]).astype(np.float32)


def degree_names(graph: TemporalGraph) -> list[str]:
    """Name the columns of `degree_columns`; without the last ones those of `degrees`."""
    names = []
    known = []
    for source, name, target in graph.relations:
        for kind, direction in ((source, "out"), (target, "in")):
            if kind == graph.target:
                names.append(f"log(1 + edges {direction}), {source}-{name}-{target}")
                if source == target:
                    known.append(f"{names[-1]}, to known labels")
    return names + (known or ["no edges to known labels"])
