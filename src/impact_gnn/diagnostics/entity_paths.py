"""Pairs of target nodes that share an entity, where no relation joins target nodes directly.

Along result - driver - result, node u is a neighbour of node v with the weight that propagation
along the metapath gives it: the mean over the entities of v, and over the nodes of each entity.
Pairs are counted by state (label and period) and never listed: an entity whose nodes have s states
costs s², however many nodes it has.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy import ndarray
from scipy import sparse

from impact_gnn import _native
from impact_gnn._array import safe_divide
from impact_gnn.graph import Relation, TemporalGraph, Triple
from impact_gnn.graph.csr import joined_ranges

MAX_PRODUCTS = 1 << 22  # pairs of states to count; beyond them, those of a sample of entities


@dataclass(frozen=True, eq=False)
class StatePairs:
    """Weights of neighbours by own state, neighbour's state and unit of the bootstrap [n]."""

    own: ndarray
    neighbour: ndarray
    unit: ndarray  # the entity, or the node itself for direct edges
    weight: ndarray  # negative where the pair of a node with itself is subtracted


@dataclass(frozen=True, eq=False)
class EntityPath:
    """A path of two relations, from the target type to entities and back."""

    name: str
    triples: tuple[Triple, Triple]
    to_entities: Relation
    to_nodes: Relation
    num_joining: int  # entities that join labelled nodes of different periods
    is_sampled: ndarray  # entities whose pairs are counted

    @classmethod
    def all_of(cls, masked: TemporalGraph, *, seed: int = 0) -> tuple[EntityPath, ...]:
        """Paths through other types, edges in both directions.

        The path with the most entities that join different periods comes first: it has most
        evidence.
        """
        target = masked.target
        relations = masked.both_ways()
        # Triples are (source type, relation, target type).
        used = [triple for triple in relations if relations[triple].num_edges]
        # Relations that lead from target nodes to entities.
        there = [triple for triple in used if triple[0] == target != triple[2]]
        entities = [triple[2] for triple in there]
        paths = []
        for first, second in itertools.product(there, used):
            if second[0] != first[2] or second[2] != target:
                continue
            # Types do not name a path where several relations lead to them.
            names = [target, first[2], target]
            if entities.count(first[2]) > 1:
                names = [target, first[1].removeprefix("rev_"), *second]
            num_joining, share = _measure(masked, relations[first], first[2])
            # The same seed for every path: its sample does not depend on the order of paths.
            rng = np.random.default_rng(seed)
            paths.append(
                cls(
                    name=" - ".join(names),
                    triples=(first, second),
                    to_entities=relations[first],
                    to_nodes=relations[second],
                    num_joining=num_joining,
                    is_sampled=rng.random(masked.nodes[first[2]].num_nodes) < share,
                )
            )
        return tuple(sorted(paths, key=lambda path: -path.num_joining))

    def pairs(self, state: ndarray, num_known: int) -> StatePairs:
        """Pairs of nodes by state [N]: below `num_known` with a label, −1 for not counted."""
        # Means over the nodes of an entity [entities, N], and over the entities of a node.
        shape = (len(self.is_sampled), len(state))
        gather = _mean(self.to_entities, shape, self.is_sampled, entity=1)
        spread = _mean(self.to_nodes, shape[::-1], self.is_sampled, entity=0)
        # Weights by entity and state: of labelled nodes, and of their neighbours [entities, S].
        nodes = np.flatnonzero(state >= 0)
        one_hot = sparse.coo_array(
            (np.ones(len(nodes)), (nodes, state[nodes])),
            shape=(len(state), int(state.max()) + 1),
        )
        # Both are [entities, S]; own states without a label are cut off.
        own = (spread.T @ one_hot)[:, :num_known].tocoo()
        neighbours = (gather @ one_hot).tocsr()
        # Outer product of both rows of every entity: each own state meets all neighbours' states.
        repeats = np.diff(neighbours.indptr)[own.row]
        place = joined_ranges(neighbours.indptr[own.row], repeats)
        weight = np.repeat(own.data, repeats) * neighbours.data[place]
        # A node is no neighbour of itself: spread[v, e]·gather[e, v] is the weight of v in its own
        # message through entity e.
        itself = (spread * gather.T).tocoo()
        same = state[itself.row]
        counted = (same >= 0) & (same < num_known)
        same = same[counted]
        own_state = np.repeat(own.col, repeats)
        entity = np.repeat(own.row, repeats)
        return StatePairs(
            own=np.append(own_state, same),
            neighbour=np.append(neighbours.indices[place], same),
            unit=np.append(entity, itself.col[counted]),
            weight=np.append(weight, -itself.data[counted]),
        )


def _measure(masked: TemporalGraph, to_entities: Relation, kind: str) -> tuple[int, float]:
    """Entities that join different periods, and the share of entities to count pairs of."""
    num_entities = masked.nodes[kind].num_nodes
    num_times = len(masked.times)
    # Edges of every entity.
    size = np.zeros(num_entities, np.int64)
    labelled = np.zeros(0, np.int64)  # entity and period of labelled nodes, as one number
    for part in _native.blocks(to_entities.edge_index, 1):
        source, target = to_entities.edge_index[:, part]
        size += np.bincount(target, minlength=num_entities)
        place = target.astype(np.int64) * num_times + masked.period[source]
        labelled = np.union1d(labelled, place[masked.label[source] >= 0])
    # Pairs of states, at most.
    states = np.minimum(size, (masked.num_labels + 1) * num_times)
    # May be above 1, and then all entities are counted.
    share = MAX_PRODUCTS / max(int(states @ states), to_entities.num_edges)
    periods_per_entity = np.bincount(labelled // num_times)
    return int(np.count_nonzero(periods_per_entity > 1)), share


def _mean(
    relation: Relation, shape: tuple[int, int], is_sampled: ndarray, *, entity: int
) -> sparse.csr_array:
    """Weighted mean over the in-edges [targets, sources]; row `entity` of the edges is sampled."""
    total = np.zeros(shape[0])
    parts = []
    for part in _native.blocks(relation.edge_index, 1):
        edges = relation.edge_index[:, part]
        weight = np.ones(edges.shape[1])
        if relation.weight is not None:
            weight = relation.weight[part]
        total += np.bincount(edges[1], weight, shape[0])
        # Source, target and weight of the sampled edges [3, e]; totals contain all edges.
        columns = np.vstack([edges, weight])
        parts.append(columns[:, is_sampled[edges[entity]]])
    source, target, weight = np.concatenate(parts, axis=1)
    target = target.astype(np.int64)
    source = source.astype(np.int64)
    # Where all weights are 0, so is the mean.
    mean = safe_divide(weight, total[target])
    return sparse.csr_array((mean, (target, source)), shape=shape)
