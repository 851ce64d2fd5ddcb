"""The input of the diagnostics: a graph without later labels, and edges in both directions.

Arrays as large as the edges or the features are read in blocks or samples: graphs on disk stay
there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy import ndarray

from impact_gnn import _native
from impact_gnn.checks import listing
from impact_gnn.data.drawing import WEYL, scramble
from impact_gnn.diagnostics.entity_paths import EntityPath
from impact_gnn.engines import Engine, as_engine
from impact_gnn.graph import Relation, TemporalGraph, Triple

NodeIndex: TypeAlias = ndarray
"""Positions among the nodes of the target type."""

MAX_PATHS = 6  # through entities
MAX_EDGES = 1 << 22  # to count connections on; larger graphs: in-edges of a sample of nodes
NO_CONNECTIONS = "so connections cannot be analysed."


@dataclass(frozen=True, eq=False)
class View:
    """A masked graph, and the undirected homogeneous graph of its target type."""

    masked: TemporalGraph  # without labels at or after the cutoff
    # the target type with the edges among its nodes, undirected; None where there are none
    own: TemporalGraph | None
    # of `own` without loops, those into a sample of nodes if there are many [2, E]
    edges: ndarray
    notes: tuple[str, ...]  # how the graph was read, in sentences
    engine: Engine
    seed: int  # of samples and bootstraps
    paths: tuple[EntityPath, ...] = ()  # that join target nodes where `own` is None

    @property
    def label(self) -> ndarray:
        """Known labels of the target type, −1 elsewhere."""
        return self.masked.label

    @property
    def num_features(self) -> int:
        return 0 if self.masked.x is None else self.masked.x.shape[1]

    def features(self, nodes: NodeIndex, columns: ndarray | None = None) -> ndarray:
        """Features of some nodes in memory, in float32 or float64."""
        x = self.masked.x
        assert x is not None
        if len(nodes) < self.masked.num_nodes:
            x = x[nodes]
        if columns is not None and len(columns) < x.shape[1]:
            x = x[:, columns]
        # Half precision is too coarse for sums.
        return x.astype(np.float32) if x.dtype.itemsize < 4 else x

    @property
    def cutoff(self) -> int:
        return self.masked.require_cutoff("a diagnosis needs")

    @cached_property
    def labelled_periods(self) -> ndarray:
        """Positions of the labelled periods among all times, in order."""
        return np.unique(self.masked.period[self.label >= 0])

    @classmethod
    def of(cls, masked: TemporalGraph, engine: Engine | None = None, *, seed: int = 0) -> View:
        """The view of a graph made by `masked(cutoff)`."""
        cutoff = masked.require_cutoff("a diagnosis needs")
        engine = as_engine(engine)
        # Raw columns become numbers, learned from what is known before the cutoff.
        masked = masked.encoded()
        # Relations among nodes of the target type that have edges.
        used = {
            triple: relation
            for triple, relation in masked.relations.items()
            if triple[0] == triple[2] == masked.target and relation.num_edges
        }
        if not used:
            reason = "The graph has no edges"
            if masked.is_hetero:
                reason = f"No relation joins {masked.target!r} nodes with each other"
            return cls._through_entities(masked, reason, engine, seed)
        edge_index, weight = _joined(list(used.values()))
        # Block by block: edges may be on disk.
        if all((source == target).all() for source, target in _blocks(edge_index)):
            return cls._through_entities(masked, "All edges are loops", engine, seed)
        notes = []
        if masked.is_hetero:
            skipped = [triple for triple in masked.relations if triple not in used]
            notes.append(f"Connections are those of {_names(used)}.")
            if skipped:
                notes.append(f"Ignored relations: {_names(skipped)}.")
        # Without the edges' times: connections are counted as they are today.
        own = TemporalGraph(
            y=masked.y,
            time=masked.time,
            edge_index=edge_index,
            edge_weight=weight,
            num_labels=masked.num_labels,
        )
        if not _has_reverses(edge_index):
            own = engine.graph(own, undirected=True)
            notes.append("Edges are directed; the diagnosis uses both directions, as in the paper.")
        # Nodes whose in-edges are counted [N].
        share = min(1.0, MAX_EDGES / own.edge_index.shape[1])
        is_sampled = np.random.default_rng(seed).random(masked.num_nodes) < share
        if share < 1:
            notes.append(f"Connections were counted at a random {share:.2%} of the nodes.")
        edges = []
        for block in _blocks(own.edge_index):
            source, target = block
            # Without loops, and only into sampled nodes.
            is_counted = (source != target) & is_sampled[target]
            edges.append(block[:, is_counted])
        return cls(
            masked=masked,
            own=own.masked(cutoff),
            edges=np.concatenate(edges, axis=1),
            notes=tuple(notes),
            engine=engine,
            seed=seed,
        )

    @classmethod
    def _through_entities(
        cls, masked: TemporalGraph, reason: str, engine: Engine, seed: int
    ) -> View:
        """The view of a graph whose target nodes meet only through other nodes, or not at all."""
        paths = EntityPath.all_of(masked, seed=seed)
        notes = [f"{reason}, {NO_CONNECTIONS}"]
        if any(path.num_joining for path in paths):
            notes = [f"{reason}; connections are those of nodes that share an entity."]
        if len(paths) > MAX_PATHS:
            notes.append(f"{len(paths) - MAX_PATHS} paths with fewer entities were left out.")
        paths = paths[:MAX_PATHS]
        for path in paths:
            if not path.num_joining:
                notes.append(f"Labelled pairs along {path.name} lie in one period each.")
            elif not path.is_sampled.all():
                share = path.is_sampled.mean()
                notes.append(f"Along {path.name}, a random {share:.2%} of the entities was used.")
        return cls(
            masked=masked,
            own=None,
            edges=np.zeros((2, 0), np.int64),
            notes=tuple(notes),
            engine=engine,
            seed=seed,
            paths=paths,
        )


def _joined(relations: list[Relation]) -> tuple[ndarray, ndarray | None]:
    """Edges and weights of several relations; a single one is not copied."""
    if len(relations) == 1:
        return relations[0].edge_index, relations[0].weight
    edge_index = np.concatenate([relation.edge_index for relation in relations], axis=1)
    if all(relation.weight is None for relation in relations):
        return edge_index, None
    weights = []
    for relation in relations:
        weight = relation.weight
        # An edge without a weight counts as 1.
        weights.append(np.ones(relation.num_edges, np.float32) if weight is None else weight)
    return edge_index, np.concatenate(weights)


def _names(triples: Iterable[Triple]) -> str:
    return listing(["-".join(triple) for triple in triples])


def _blocks(edge_index: ndarray) -> Iterator[ndarray]:
    for part in _native.blocks(edge_index, 1):
        yield edge_index[:, part]


def _has_reverses(edge_index: ndarray) -> bool:
    """Whether every edge has its reverse, with the same multiplicity.

    Compares sums of hashes of all edges and of all reverses. Two different collections have the
    same sum with a probability of 2^-64.
    """
    # Sums of uint64 wrap around, hence the comparison modulo 2⁶⁴.
    difference = 0
    for source, target in _blocks(edge_index):
        hashes = _hashed(source, target) - _hashed(target, source)
        difference += int(hashes.sum(dtype=np.uint64))
    return difference % (1 << 64) == 0


def _hashed(first: ndarray, second: ndarray) -> ndarray:
    """A number for every ordered pair."""
    scrambled = scramble(first.astype(np.uint64) + WEYL)
    return scramble((scrambled ^ second.astype(np.uint64)) + WEYL)


def sampled(size: int, most: int, rng: np.random.Generator) -> ndarray:
    """All positions below `size`, or a sorted random sample of `most` of them."""
    if size <= most:
        return np.arange(size)
    return np.sort(rng.choice(size, most, replace=False))


def recent(num_periods: int) -> int:
    """Number of the last periods that represent the future: a third, at least five."""
    return max(5, num_periods // 3)
