"""How much is tried, counted in work and not in seconds: the same on every machine."""

from __future__ import annotations

from dataclasses import dataclass

from impact_gnn.graph import TemporalGraph
from impact_gnn.heads import NETWORKS, SPATIAL
from impact_gnn.pipeline import Candidate, Inputs
from impact_gnn.propagation.smoothing import CHOICES, STEPS


@dataclass(frozen=True)
class Effort:
    """How much work the search may do, on how many folds, and how many seeds the chosen are fitted with."""

    work: float  # units, about seconds on one core, on a graph of up to `SMALL` labels; more on larger ones
    folds: int
    seeds: int


EFFORTS = {"quick": Effort(20, 2, 1), "normal": Effort(80, 2, 2), "thorough": Effort(500, 3, 5)}
SMALL, GROWTH = 10_000, 0.75  # work grows as labels beyond SMALL to the power of GROWTH


@dataclass(frozen=True)
class Size:
    """What the cost of a fit depends on."""

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
        assert inputs.view.y is not None
        own = [] if graph.x is None else [graph.x.shape[1]]
        widths = own + [_width(graph, path[0][0]) for path in inputs.paths()]
        known = int((inputs.view.y >= 0).sum())
        edges = sum(relation.num_edges for relation in graph.relations.values())
        labels = len(inputs.paths(graph.target)) if graph.is_hetero else min(inputs.hops, 2)
        return cls(known, graph.num_nodes, edges, len(graph.times), graph.num_labels, sum(widths), len(widths), labels)

    def allowed(self, effort: Effort) -> float:
        return effort.work * max(1.0, self.rows / SMALL) ** GROWTH


def cost(candidate: Candidate, size: Size, model: str) -> float:
    """Units of work of a fit (choosing and refitting) and its hops; `model` is that of candidates without their own.

    The factors were read off measured fits of small and large graphs; they need be right to a factor of two only, for
    they say what else fits into an effort, not how long anything takes.
    """
    method, model = candidate.method, candidate.model or model
    columns = size.features if not method.features else size.features / max(size.hops, 1)
    if method.labels:
        columns += size.classes * size.label_hops
    snapshots = size.periods if method.snapshot else 1
    total = 1e-9 * size.edges * columns * snapshots
    if method.smooth:
        total += 4e-9 * len(CHOICES) * STEPS * (size.edges + size.nodes) * size.classes
    if model in SPATIAL:
        total += 200 * (6 * size.edges * columns + 12 * size.nodes * columns * NETWORKS[model].hidden) / 2e10
    elif model in NETWORKS:
        hidden, branches = NETWORKS[model].hidden, size.hops + (size.label_hops if method.labels else 0)
        visits = min(200 * size.rows, 1_000_000)
        total += visits * 6 * hidden * (columns + hidden * branches) / 2e10
        total *= SLOW.get(model, 1.0)
    elif model == "trees":
        total += 100 * size.classes * (1e-3 + 1e-9 * min(size.rows, 100_000) * max(50.0, 0.2 * columns))
    return total


SLOW = {"sehgnn": 6.0, "rphgnn": 3.0, "gamlp": 2.0}  # models whose steps cost more than their matrices say


def _width(graph: TemporalGraph, kind: str) -> int:
    x = graph.nodes[kind].x
    return 0 if x is None else x.shape[1]
