"""Propagation of features: M X, M² X, ... on any engine."""

from __future__ import annotations

import numpy as np

from impact_gnn import checks
from impact_gnn.checks import InputError
from impact_gnn.engines.engine import Engine
from impact_gnn.engines.hop import Hop
from impact_gnn.engines.memory import as_engine
from impact_gnn.graph import TemporalGraph, Triple
from impact_gnn.weighting import Weighting


def propagate(
    graph: TemporalGraph,
    *,
    weighting: Weighting = "plain",
    hops: int = 2,
    engine: Engine | None = None,
    norm: str = "mean",
    self_loop: bool = False,
    relation: Triple | None = None,
    x: np.ndarray | None = None,
    rows: np.ndarray | None = None,
) -> list[Hop]:
    """Compute hops 1 .. K of the features: M X, M² X, ... as matrices [N, f].

    In memory they are arrays. In files they are `Hop`s: `hop.rows(index)` reads rows,
    `np.asarray(hop)` all of them.

    Args:
        graph: The graph; `relation` must lead from the target type to itself.
        weighting: Name of a method, or a table over `graph.times`.
        hops: Number of hops K.
        engine: `Memory()` by default, `Disk(directory)` or `Dask(client)`; all give the same
            numbers.
        norm: "mean", "sym" or "sum".
        self_loop: Adds a loop of weight 1 to every node.
        relation: Optional where only one leads from the target type to itself.
        x: Features to propagate instead of the graph's own.
        rows: Positions of the requested nodes, by default all: the last hop is computed for them
            only.

    Examples:
        >>> from impact_gnn.data.tsbm import tsbm
        >>> g = tsbm(num_nodes=200, num_times=4, num_labels=2, seed=0)
        >>> [hop.shape for hop in propagate(g, weighting="pmp", hops=2)]
        [(200, 5), (200, 5)]
    """
    hops = checks.at_least("hops", hops, 1)
    engine = as_engine(engine)
    relation = own_relation(graph, relation)
    values = graph.x if x is None else checks.features("x", x, graph.num_nodes)
    if values is None:
        raise InputError(
            "the graph has no features to propagate; pass x=... or create the graph with features."
        )
    # One operator for each hop; the first may have its own weighting.
    operators = engine.operators(
        hops, graph, relation, weighting=weighting, norm=norm, self_loop=self_loop
    )
    return engine.hops(operators, values, rows=rows)


def own_relation(graph: TemporalGraph, relation: Triple | None = None) -> Triple:
    """Return the relation from the target type to itself, by default the only one."""
    choices = [triple for triple in graph.relations if triple[0] == triple[2] == graph.target]
    if relation is None:
        if len(choices) != 1:
            names = checks.listing(["-".join(triple) for triple in choices]) or "none"
            raise InputError(
                f"hops need one relation from {graph.target!r} to itself, but there are: {names}; "
                "pass relation=..., or use metapaths."
            )
        return choices[0]
    if relation not in choices:
        raise InputError(
            f"relation {relation!r} does not connect {graph.target!r} nodes with each other."
        )
    return relation
