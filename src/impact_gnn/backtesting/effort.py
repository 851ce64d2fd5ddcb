"""Search budgets in machine-independent work units."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from impact_gnn.estimators import Candidate, Inputs, ModelSpec, spec_of
from impact_gnn.estimators.trees import ROWS, rounds_of
from impact_gnn.graph import TemporalGraph
from impact_gnn.methods import ModelKind
from impact_gnn.propagation.smoothing import CHOICES, STEPS


@dataclass(frozen=True)
class Effort:
    """Work units of the search, number of folds, and number of seeds of every final fit."""

    work: float  # units, about seconds on one core; more on graphs of more than `SMALL` labels
    folds: int
    seeds: int


EFFORTS = {"quick": Effort(30, 2, 1), "normal": Effort(120, 2, 2), "thorough": Effort(600, 3, 4)}
SMALL, GROWTH = 10_000, 0.35  # work grows as labels beyond SMALL to the power of GROWTH


@dataclass(frozen=True)
class Size:
    """The sizes that determine the cost of a fit."""

    rows: int  # labelled nodes
    nodes: int
    edges: int
    periods: int
    classes: int
    features: int  # columns of all hops
    hops: int
    label_hops: int

    @classmethod
    def of(cls, inputs: Inputs) -> Size:
        graph = inputs.graph
        own = [] if graph.x is None else [graph.x.shape[1]]
        widths = own + [_width(graph, path[0][0]) for path in inputs.paths()]
        known = int((inputs.view.label >= 0).sum())
        edges = sum(relation.num_edges for relation in graph.relations.values())
        labels = len(inputs.paths(graph.target)) if graph.is_hetero else min(inputs.hops, 2)
        return cls(
            rows=known,
            nodes=graph.num_nodes,
            edges=edges,
            periods=len(graph.times),
            classes=graph.num_labels,
            features=sum(widths),
            hops=len(widths),
            label_hops=labels,
        )

    def allowed(self, effort: Effort) -> float:
        return effort.work * max(1.0, self.rows / SMALL) ** GROWTH


def cost(candidate: Candidate, size: Size, model: str) -> float:
    """Work units of a fit (validation and refit) and its hops; `model` is the default model.

    The factors come from measured fits on small and large graphs. They are accurate to a factor of
    two, which is enough to decide what fits into an effort.
    """
    method, spec = candidate.method, spec_of(candidate.model or model)
    columns = size.features if "features" not in method else size.features / max(size.hops, 1)
    if "labels" in method:
        columns += size.classes * size.label_hops
    snapshots = 1 + 0.1 * size.periods * ("snapshot" in method)
    total = EACH + 1e-9 * size.edges * columns * snapshots
    if "smooth" in method:
        total += 2e-9 * (len(CHOICES) + 2) * STEPS * (size.edges + size.nodes) * size.classes
    if spec.network is not None:
        total += EACH_NETWORK + _network_cost(spec, size, columns, "labels" in method)
    elif spec.kind is ModelKind.TREES:
        rows = min(size.rows, ROWS)
        trees = size.classes * min(100, 0.8 * rounds_of(rows, columns, size.classes))
        total += trees * (6e-4 + 7e-9 * rows * max(50.0, 0.2 * columns))
    return total * math.prod(part.cost for part in method.parts)


def _network_cost(spec: ModelSpec, size: Size, columns: float, label_hops: bool) -> float:
    """Units of work of training a network over so many input columns."""
    assert spec.network is not None
    hidden = spec.network.hidden
    if spec.network.reads_graph:
        return 30 * (6 * size.edges * columns + 12 * size.nodes * columns * hidden) / 2e10
    branches = size.hops + (size.label_hops if label_hops else 0)
    weights = hidden * (columns + hidden * branches)
    if spec.kind is ModelKind.LINEAR:
        weights = columns * size.classes
    # rows that are read while the number of epochs is chosen and in the final training
    rows_read = min(200 * size.rows, float(np.clip(50 * size.rows, 1e6, 2e6)))
    return rows_read * 6 * weights / 8e10 * spec.cost


EACH = 0.2  # work of a fit on the smallest graph: hops and folds
EACH_NETWORK = 0.8  # and of the training steps of a network


def _width(graph: TemporalGraph, kind: str) -> int:
    x = graph.nodes[kind].x
    return 0 if x is None else x.shape[1]
