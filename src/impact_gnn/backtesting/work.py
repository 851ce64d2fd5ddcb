"""How much is tried, counted in work and not in seconds: the same on every machine."""

from __future__ import annotations

from dataclasses import dataclass

from impact_gnn.graph import TemporalGraph
from impact_gnn.heads import NETWORKS, SPATIAL
from impact_gnn.heads.trees import ROWS, rounds_of
from impact_gnn.nn.editors import EDITORS
from impact_gnn.pipeline import STAGES, Candidate, Inputs
from impact_gnn.propagation.smoothing import CHOICES, STEPS


@dataclass(frozen=True)
class Effort:
    """How much work the search may do, on how many folds, and how many seeds the chosen are fitted with."""

    work: float  # units, about seconds on one core, on a graph of up to `SMALL` labels; more on larger ones
    folds: int
    seeds: int


EFFORTS = {"quick": Effort(30, 2, 1), "normal": Effort(120, 2, 2), "thorough": Effort(600, 3, 4)}
SMALL, GROWTH = 10_000, 0.5  # work grows as labels beyond SMALL to the power of GROWTH


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
        own = [] if graph.x is None else [graph.x.shape[1]]
        widths = own + [_width(graph, path[0][0]) for path in inputs.paths()]
        known = int((inputs.view.label >= 0).sum())
        edges = sum(relation.num_edges for relation in graph.relations.values())
        labels = len(inputs.paths(graph.target)) if graph.is_hetero else min(inputs.hops, 2)
        return cls(
            known,
            graph.num_nodes,
            edges,
            len(graph.times),
            graph.num_labels,
            sum(widths),
            len(widths),
            labels,
        )

    def allowed(self, effort: Effort) -> float:
        return effort.work * max(1.0, self.rows / SMALL) ** GROWTH


def cost(candidate: Candidate, size: Size, model: str) -> float:
    """Units of work of a fit (choosing and refitting) and its hops; `model` is that of candidates without their own.

    The factors were read off measured fits of small and large graphs; they need be right to a
    factor of two only, for they say what else fits into an effort, not how long anything takes.
    """
    method, model = candidate.method, candidate.model or model
    columns = size.features if not method.features else size.features / max(size.hops, 1)
    if method.labels:
        columns += size.classes * size.label_hops
    total = EACH + 1e-9 * size.edges * columns * (1 + 0.1 * size.periods * method.snapshot)
    if method.smooth:
        total += 2e-9 * (len(CHOICES) + 2) * STEPS * (size.edges + size.nodes) * size.classes
    if method.kmm:
        total += 1e-6 * size.rows * (MATCHED + columns)
    # how often a step asks the model
    fits = (1.0 + method.cmd + EDITORS * method.eerm) if model in NETWORKS else 1.0
    fits *= 1.5 if method.terms or method.kmm else 1.0  # which waits longer for a better score
    if model in NETWORKS:
        total += STEPS_OF_A_FIT * fits
    if model in SPATIAL:
        total += (
            fits
            * 30
            * (6 * size.edges * columns + 12 * size.nodes * columns * NETWORKS[model].hidden)
            / 2e10
        )
    elif model in NETWORKS:
        linear, hidden = model == "linear", NETWORKS[model].hidden
        branches = size.hops + (size.label_hops if method.labels else 0)
        weights = columns * size.classes if linear else hidden * (columns + hidden * branches)
        total += fits * min(200 * size.rows, 1_000_000) * 6 * weights / 8e10 * SLOW.get(model, 1.0)
    elif model == "trees":
        rows = min(size.rows, ROWS)
        trees = size.classes * min(100, 0.8 * rounds_of(rows, columns, size.classes))
        total += trees * (6e-4 + 7e-9 * rows * max(50.0, 0.2 * columns))
    return total * (STAGES.stages if method.stages else 1)


# what a fit costs on the smallest graph: hops and folds, and the steps of a network
EACH, STEPS_OF_A_FIT = (
    0.2,
    0.8,
)
MATCHED = 400  # what matching a row costs in columns read: some hundred steps over Fourier features
# models whose steps cost more than their matrices say
SLOW = {
    "sehgnn": 6.0,
    "rphgnn": 3.0,
    "gamlp": 2.0,
}


def _width(graph: TemporalGraph, kind: str) -> int:
    x = graph.nodes[kind].x
    return 0 if x is None else x.shape[1]
