"""From a graph to its hops: M X, M² X, ... on any engine."""

from __future__ import annotations

from typing import Any

import numpy as np

from impact_gnn import checks
from impact_gnn.checks import InputError
from impact_gnn.engines.engine import Engine
from impact_gnn.engines.hop import selected_hop
from impact_gnn.engines.memory import or_memory
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
) -> list[Any]:
    """Hops 1 .. K of the features: M X, M² X, ... as a list of matrices [N, f] that can be asked for rows.

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
        relation: Which relation; may be left out where only one leads from the target type to
            itself.
        x: Features to propagate instead of the graph's own.
        rows: Positions of the nodes whose hops are wanted, by default all: the last hop is computed
            for them only.

    Examples:
        >>> from impact_gnn.data.tsbm import tsbm
        >>> g = tsbm(num_nodes=200, num_times=4, num_labels=2, seed=0)
        >>> [hop.shape for hop in propagate(g, weighting="pmp", hops=2)]
        [(200, 5), (200, 5)]
    """
    hops = checks.at_least("hops", hops, 1)
    engine = or_memory(engine)
    relation = own_relation(graph, relation)
    values = graph.x if x is None else checks.features("x", x, graph.num_nodes)
    if values is None:
        raise InputError(
            "the graph has no features to propagate; pass x=... or make the graph with features."
        )
    steps = engine.operators(
        hops, graph, relation, weighting=weighting, norm=norm, self_loop=self_loop
    )
    made = engine.hops(steps, values, rows=rows)
    return made if rows is None else [*(selected_hop(hop, rows) for hop in made[:-1]), made[-1]]


def own_relation(graph: TemporalGraph, relation: Triple | None = None) -> Triple:
    """The relation from the target type to itself, by default the only one there is."""
    able = [triple for triple in graph.relations if triple[0] == triple[2] == graph.target]
    if relation is None:
        if len(able) != 1:
            names = checks.listing(["-".join(triple) for triple in able]) if able else "none"
            raise InputError(
                f"hops need one relation from {graph.target!r} to itself, there are: {names}; pass relation=..., or "
                f"use metapaths."
            )
        return able[0]
    if relation not in able:
        raise InputError(f"relation {relation!r} does not lead from {graph.target!r} to itself.")
    return relation
