"""The part of a graph that predictions of some nodes read, and the positions of nodes by id."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy import ndarray

from impact_gnn.checks import InputError, listing
from impact_gnn.graph.parts import Nodes, Relation
from impact_gnn.graph.temporal import TemporalGraph


def neighbourhood(
    graph: TemporalGraph, nodes: ndarray, *, steps: int, both_ways: bool
) -> tuple[TemporalGraph, ndarray]:
    """Return the graph that some target nodes reach within `steps`, and their positions in it.

    All edges into a node are there (with `both_ways` all edges at it) unless it is `steps` away.
    Nodes and edges stay in order, and the timeline is that of the whole graph, so `steps` hops of
    the nodes are the same numbers. The cost is that of the edges, and of a byte per node.

    Examples:
        >>> edges = [[0, 1, 2, 3], [1, 2, 3, 4]]
        >>> g = TemporalGraph(time=[0, 1, 2, 3, 4], edge_index=edges)
        >>> part, positions = neighbourhood(g, np.array([3]), steps=2, both_ways=False)
        >>> part.ids.tolist(), positions.tolist(), part.times.tolist()
        ([1, 2, 3], [2], [0, 1, 2, 3, 4])
    """
    inside = {kind: np.zeros(part.num_nodes, bool) for kind, part in graph.nodes.items()}
    # The requested nodes are reached in 0 steps.
    inside[graph.target][nodes] = True
    before = {kind: np.zeros_like(mask) for kind, mask in inside.items()}
    edges = defaultdict(list)
    ends = [1, 0][: 1 + both_ways]  # the target of an edge, and its source
    for _ in range(steps):
        # Only nodes that were new in the last step are extended.
        newest = {kind: np.flatnonzero(inside[kind] & ~before[kind]) for kind in inside}
        before = {kind: mask.copy() for kind, mask in inside.items()}
        for triple, relation in graph.relations.items():
            for end in ends:
                other = 1 - end
                # Ends 0 and 1 of an edge have the types triple[0] and triple[2].
                edges_at = graph.edges_at(triple, end)
                incident = edges_at.at(newest[triple[2 * end]])
                edges[triple].append(incident)
                # The node at the other end is now inside.
                neighbours = relation.edge_index[other][incident]
                inside[triple[2 * other]][neighbours] = True
    positions = {}
    numbers = {}
    parts = {}
    for kind, nodes_of_type in graph.nodes.items():
        mask = inside[kind]
        # Engines need a node of every type that has one.
        mask[:1] |= not mask.any()
        positions[kind] = np.flatnonzero(mask)
        numbers[kind] = nodes_of_type.renumbered(positions[kind])
        parts[kind] = _taken(nodes_of_type, positions[kind])
    relations = {}
    for triple, relation in graph.relations.items():
        source, _, target = triple
        new_numbers = [numbers[source], numbers[target]]
        relations[triple] = _selected(relation, edges[triple], new_numbers)
    part = graph.with_parts(parts, relations)
    # Times are those of the whole graph, so that tables [T, T] do not change.
    part.__dict__.update(is_neighbourhood=True, timeline=graph.timeline)
    if graph.label_delay:
        part.__dict__["first_moments"] = graph.first_moments
    return part, np.searchsorted(positions[graph.target], nodes)


def _taken(nodes: Nodes, positions: ndarray) -> Nodes:
    """Return the nodes at some positions; raw columns without the rest of their table."""
    taken = nodes.take(positions)
    if nodes.columns is None:
        return taken
    return replace(taken, features=nodes.columns.copied(positions))


def _selected(relation: Relation, edges: Sequence[ndarray], numbers: Sequence[Any]) -> Relation:
    """Return the edges at some positions, each once and in their order, with new node numbers."""
    place = np.concatenate([np.empty(0, np.int64), *edges])
    place.sort()
    # Sorted, so that a repeat equals the one before it; many times as fast as np.unique.
    is_first = np.diff(place, prepend=-1) > 0
    place = place[is_first]
    ends = [new[end[place]] for new, end in zip(numbers, relation.edge_index, strict=True)]
    return relation.selected(np.stack(ends), place)


def positions_of(graph: TemporalGraph, node_ids: Any, kind: str | None = None) -> ndarray:
    """Return the positions of nodes among those of their type, by default the target type.

    Ids are those of the user, or positions where the nodes have none; 7 and "7" are one id.

    Examples:
        >>> g = TemporalGraph(time=[0, 1, 2], edge_index=[[], []], ids=["a", "b", "c"])
        >>> positions_of(g, ["c", "a"])
        array([2, 0])
    """
    kind = kind or graph.target
    ids = graph.nodes[kind].ids
    if ids is None:
        ids = np.arange(graph.nodes[kind].num_nodes)
    names = list(map(str, np.asarray(node_ids).reshape(-1).tolist()))
    if not names:
        raise InputError(f"no {kind} ids were passed; pass at least one.")
    wanted: list[Any] = names
    if ids.dtype.kind in "iu":
        wanted = [int(name) for name in names if re.fullmatch(r"-?\d+", name)]
        if len(wanted) == len(names):
            # Numbers as they are usually written: 07 is the id 7.
            names = list(map(str, wanted))
    # Only ids that are wanted become text.
    nodes = np.flatnonzero(np.isin(ids, wanted))
    position = dict(zip(map(str, ids[nodes]), nodes, strict=True))
    for name in names:
        if name not in position:
            examples = f"the {len(ids):,} ids look like {listing(ids[:3].tolist())}"
            raise InputError(f"no {kind} has the id {name!r}; {examples}.")
    return np.array([position[name] for name in names])
