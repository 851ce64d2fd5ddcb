"""Search budgets in machine-independent work units."""

from __future__ import annotations

import math
from dataclasses import dataclass

from impact_gnn.estimators import Candidate, Inputs, Model, ModelSpec, spec_of
from impact_gnn.estimators.trees import ROWS, rounds_of
from impact_gnn.graph import TemporalGraph
from impact_gnn.methods import ModelKind


@dataclass(frozen=True)
class Effort:
    """What a search may spend: in fits of the baseline, folds, and seeds of final networks."""

    fits: float
    folds: int
    seeds: int


# On eight past windows of six graphs, two seeds were .2 points more accurate than one, four .3.
EFFORTS = {"quick": Effort(6, 2, 1), "normal": Effort(24, 2, 3), "thorough": Effort(120, 3, 4)}
SMALL = 10_000  # labels or nodes up to which seeds and explanations are cheap
LEAST_FIT = 0.7  # work of a fit of the baseline, at least: small graphs are searched further


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
        # Features of the nodes themselves, and of the type where every path begins.
        widths = [_width(graph, path[0][0]) for path in inputs.paths()]
        if graph.x is not None:
            widths.append(graph.x.shape[1])
        edges = sum(relation.num_edges for relation in graph.relations.values())
        labels = len(inputs.paths(graph.target)) if graph.is_hetero else min(inputs.hops, 2)
        return cls(
            rows=int(inputs.view.is_labelled.sum()),
            nodes=graph.num_nodes,
            edges=edges,
            periods=len(graph.times),
            classes=graph.num_labels,
            features=sum(widths),
            hops=len(widths),
            label_hops=labels,
        )


def allowed_work(effort: Effort, baseline: float) -> float:
    """Work units of a search; `baseline` is the cost of one fit of the baseline."""
    return effort.fits * (LEAST_FIT + baseline)


# Seconds on one core, fitted to the fits of quick runs on twelve graphs (`bench costs`).
EACH = 0.07  # a fit on the smallest graph
EACH_NETWORK = 0.15  # and its training steps
HOP = 2e-10  # an edge and a column; candidates with the same weights share their hops
PASS = 5e-4  # a propagation with weights by both ends, whatever its size
SMOOTHING = 2e-8  # an edge or node and a class, for all settings of the smoothing
MULTIPLY_ADD = 7.5e-11  # a weight and a row, forward and backward
UNIT = 4e-9  # a hidden unit and a row: norm, activation and dropout
INPUT = 1.1e-9  # an input column and a row of a linear model
EPOCHS = 28  # of a network on few rows, in validation and refit, with early stopping
LINEAR_EPOCHS = 50
MOST_ROWS_READ = 1.5e6  # by all steps of a training
MESSAGE = 4e-10  # an edge and a column of a network over the graph
GRAPH_EPOCHS = 70
TREE = 1e-5
TREE_VALUE = 3e-9  # a row and a column of a tree
TREE_PREDICTION = 1e-9  # a node
USER_MODEL_COSTS_AS = "gcn"


def cost(candidate: Candidate, size: Size, model: Model) -> float:
    """Work units of a fit (validation and refit) and its hops; `model` is the default model.

    A unit is about a second on one core. A test compares the costs with measured fits.
    """
    if not isinstance(model, str):
        model = USER_MODEL_COSTS_AS
    method = candidate.method
    spec = spec_of(candidate.model or model)
    columns = float(size.features)
    reads_graph = spec.network is not None and spec.network.reads_graph
    if "features" in method or reads_graph:
        columns /= max(size.hops, 1)
    if "labels" in method:
        columns += size.classes * size.label_hops
    # A snapshot is a part of the graph; weights by both ends need up to a pass per period.
    passes_per_period = 0.0
    if "snapshot" in method:
        passes_per_period += 0.1
    if "ends" in method:
        passes_per_period += 0.5
    passes = 1 + size.periods * passes_per_period
    total = EACH + HOP * size.edges * columns * passes
    if "ends" in method:
        total += PASS * size.periods * size.hops
    if "smooth" in method:
        total += SMOOTHING * (size.edges + size.nodes) * size.classes
    if spec.network is not None:
        total += spec.cost * _network_cost(spec, size, columns, "labels" in method)
    elif spec.kind is ModelKind.TREES:
        rows = min(size.rows, ROWS)
        rounds = min(100, 0.8 * rounds_of(rows, columns, size.classes))
        values = rows * max(50.0, 0.2 * columns)  # trees see a sample of many columns
        per_tree = TREE + TREE_VALUE * values + TREE_PREDICTION * size.nodes
        total += size.classes * rounds * per_tree
    return total * math.prod(part.cost for part in method.parts)


def _network_cost(spec: ModelSpec, size: Size, columns: float, label_hops: bool) -> float:
    """Work units of training a network over so many input columns."""
    assert spec.network is not None
    hidden = spec.network.hidden
    if spec.network.reads_graph:
        messages = MESSAGE * size.edges * (columns + hidden)
        layers = size.nodes * hidden * (MULTIPLY_ADD * columns + UNIT)
        return EACH_NETWORK + GRAPH_EPOCHS * (messages + layers)
    if spec.kind is ModelKind.LINEAR:
        rows_read = min(LINEAR_EPOCHS * size.rows, MOST_ROWS_READ)
        return rows_read * columns * (MULTIPLY_ADD * size.classes + INPUT)
    branches = size.hops + (size.label_hops if label_hops else 0)
    weights = hidden * (columns + hidden * branches)
    rows_read = min(EPOCHS * size.rows, MOST_ROWS_READ)
    per_row = MULTIPLY_ADD * weights + UNIT * hidden * (branches + 1)
    return EACH_NETWORK + rows_read * per_row


def _width(graph: TemporalGraph, kind: str) -> int:
    x = graph.nodes[kind].x
    return 0 if x is None else x.shape[1]
