"""From a graph to its hops: which operations, in which order, on which engine.

`operator` makes the one operation of a relation; `propagate` applies it again and again; `along` applies a list
of them, a metapath. The engine decides where that happens, never what comes out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from impact_gnn import checks
from impact_gnn import weighting as weights
from impact_gnn.checks import InputError
from impact_gnn.graph import TemporalGraph, Triple
from impact_gnn.propagation.engine import Engine
from impact_gnn.propagation.memory import Memory
from impact_gnn.propagation.operator import Operator


def operator(
    graph: TemporalGraph,
    relation: Triple | None = None,
    *,
    weighting: str | np.ndarray = "plain",
    norm: str = "mean",
    self_loop: bool = False,
) -> Operator:
    """The operation of one relation: M = normalise(Ω[t_v, t_u]·a_vu)·X.

    Args:
        graph: The graph.
        relation: Which relation; may be left out where there is only one.
        weighting: Name of a method in `weighting.METHODS`, or a table [T, T] over `graph.times`. It applies where
            both ends of the relation have a time; elsewhere edges count the same.
        norm: "mean" (weighted mean), "sym" (D^-½ on both sides) or "sum".
        self_loop: Adds a loop of weight 1 to every node (only where source and target are of one type).
    """
    csr = graph.csr(relation)
    source, _, target = next(iter(graph.relations)) if relation is None else relation
    if graph.nodes[source].time is None or graph.nodes[target].time is None:
        if isinstance(weighting, str):
            checks.choice("weighting", weighting, weights.METHODS)
        table = np.ones((1, 1))
        periods = np.zeros(csr.num_sources, np.uint8), np.zeros(csr.num_targets, np.uint8)
    else:
        table = time_table(graph, weighting, source)
        periods = graph.period_of(source), graph.period_of(target)
    return Operator(csr, table, *periods, norm=norm, self_loop=self_loop)


def time_table(graph: TemporalGraph, weighting: str | np.ndarray, source: str | None = None) -> np.ndarray:
    """The table of a method over `graph.times`, nodes of type `source` counted for GenPMP; a table is checked."""
    size = len(graph.times)
    if isinstance(weighting, str):
        source = graph.target if source is None else source
        return weights.table(weighting, graph.times, np.bincount(graph.period_of(source), minlength=size))
    table = np.asarray(weighting, dtype=np.float64)
    if table.shape != (size, size) or not np.isfinite(table).all() or table.min() < 0:
        raise InputError(
            f"weighting is a table of shape {table.shape} for {size} times; give finite weights of zero or more [T, T]."
        )
    return table


def propagate(
    graph: TemporalGraph,
    *,
    weighting: str | np.ndarray = "plain",
    hops: int = 2,
    engine: Engine | None = None,
    norm: str = "mean",
    self_loop: bool = False,
    relation: Triple | None = None,
    x: np.ndarray | None = None,
) -> list[np.ndarray]:
    """Hops 1 .. K of the features: M X, M² X, ... as a list of [N, f] arrays.

    Args:
        graph: The graph; `relation` must lead from the target type to itself.
        weighting: Name of a method, or a table over `graph.times`.
        hops: Number of hops K.
        engine: `Memory()` by default, `Disk(directory)` or `Dask(client)`; all give the same numbers.
        norm: "mean", "sym" or "sum".
        self_loop: Adds a loop of weight 1 to every node.
        relation: Which relation; may be left out where only one leads from the target type to itself.
        x: Features to propagate instead of the graph's own.

    Example:
        >>> from impact_gnn.data.tsbm import tsbm
        >>> g = tsbm(num_nodes=200, num_times=4, num_labels=2, seed=0)
        >>> [hop.shape for hop in propagate(g, weighting="pmp", hops=2)]
        [(200, 5), (200, 5)]
    """
    if hops < 1:
        raise InputError(f"hops={hops} must be at least 1.")
    relation = own_relation(graph, relation)
    # An engine that works on files describes the operation without loading its edges.
    make = getattr(engine, "operator", operator)
    made = make(graph, relation, weighting=weighting, norm=norm, self_loop=self_loop)
    return along([made] * hops, _features(graph, x), engine=engine)


def along(operators: Sequence[Operator], x: np.ndarray, *, engine: Engine | None = None) -> list[np.ndarray]:
    """`x` through a list of operations, each on the result of the one before: the hops of a metapath."""
    size = len(x)
    for step, each in enumerate(operators):
        if each.csr.num_sources != size:
            raise InputError(
                f"step {step + 1} of the path takes {each.csr.num_sources} nodes, but {size} come out of the step "
                f"before; order the relations so that each begins where the last one ends."
            )
        size = each.csr.num_targets
    return (Memory() if engine is None else engine).hops(operators, x)


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


def _features(graph: TemporalGraph, x: np.ndarray | None) -> np.ndarray:
    if x is not None:
        return checks.features("x", x, graph.num_nodes)
    if graph.x is None:
        raise InputError("the graph has no features to propagate; pass x=... or make the graph with features.")
    return graph.x
