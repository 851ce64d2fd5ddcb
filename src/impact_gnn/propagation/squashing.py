"""Random-projection squashing: many hops over many relations at a cost that grows only linearly.

After Hu, Hooi and He, "Efficient Heterogeneous Graph Learning via Random Projection" (RpHGNN,
2024). Metapaths multiply with every step; here every type has one representation H of a fixed width
instead. An iteration has two parts.

Propagate, along every relation r from type a to type b:

    odd   O_r = M_r·H_a     one step, arrives at b
    even  E_r = M_r'·O_r    back along the same edges (r' is the reverse of r), arrives at a

Update: the messages that arrive at a type are squashed into its next representation,

    H_b ← Σ_m (message m)·R_m / √(number of messages),   entries of R_m ±√(3/width) with probability
    1/6 each, else 0.

R_m is drawn anew for every iteration. The authors scale the rows of every H to length 1; here the
result is linear in the features, as in the theory behind the corrections of this library. Messages
to the target type are collected per relation and iteration, before they are squashed.

A decision of ours: a type without features begins with the squashed messages from types that have
some, so that nothing but the graph's own features enters.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy import ndarray

from impact_gnn import checks
from impact_gnn.checks import InputError
from impact_gnn.engines.engine import Engine
from impact_gnn.engines.hop import Hop
from impact_gnn.engines.memory import as_engine
from impact_gnn.graph import TemporalGraph, Triple
from impact_gnn.propagation.metapaths import Metapath, Walk, blocks_of, path_name
from impact_gnn.weighting import Weighting


def squash(
    graph: TemporalGraph,
    *,
    iterations: int = 2,
    width: int | None = None,
    weighting: Weighting = "plain",
    seed: int = 0,
    engine: Engine | None = None,
) -> dict[str, list[Hop]]:
    """Compute the messages to the target type: a dict name → a matrix [N, width] per iteration.

    Names are those of the paths of an iteration's last message, one relation (odd) or there and
    back (even). The target type's own features are not included.

    Args:
        graph: The graph; use `graph.undirected()`, which adds the reverse relations `rev_...`. A
            relation of a type with itself is its own reverse. A relation without a reverse gives
            odd messages only.
        iterations: Number of iterations; the last one reaches 2·iterations steps far.
        width: Columns of all representations; by default as many as the target type has features.
            Features of another width are projected to it at random.
        weighting: Name of a method, or a table over `graph.times`, for relations between types with
            a time.
        seed: Seed of the projections; each depends on it, its iteration and the names of its
            message only.
        engine: Where to compute; `Memory()` by default.

    Examples:
        >>> graph = TemporalGraph.hetero(
        ...     nodes={"paper": dict(x=np.eye(3), time=[0, 1, 2]), "author": dict(num_nodes=2)},
        ...     edges={("author", "writes", "paper"): [[0, 0, 1], [0, 1, 2]]},
        ...     target="paper",
        ... ).undirected()
        >>> messages = squash(graph, iterations=2, weighting="pmp", seed=0)
        >>> {name: [hop.shape for hop in hops] for name, hops in messages.items()}
        {'author-writes-paper': [(3, 3), (3, 3)], 'paper-rev_writes-author-writes-paper': [(3, 3),
        (3, 3)]}
    """
    iterations = checks.at_least("iterations", iterations, 1)
    seed = checks.at_least("seed", seed, 0)
    if all(nodes.x is None for nodes in graph.nodes.values()):
        raise InputError(
            "the graph has no features to propagate; "
            "create it with features, or use with_features(x)."
        )
    if width is None:
        if graph.x is None:
            raise InputError(
                f"nodes of type {graph.target!r} have no features to infer the width from; "
                "pass width=..."
            )
        width = graph.x.shape[1]
    width = checks.at_least("width", width, 1)
    walk = Walk(graph, [], weighting, as_engine(engine))
    run = _Squashing(graph=graph, width=width, seed=seed, walk=walk)
    paths = collected(graph)
    if not paths:
        raise InputError(f"no relation leads to {graph.target!r}; use graph.undirected().")
    messages: dict[str, list[Hop]] = {path_name(path): [] for path in paths}
    state = run.initial_state()
    for iteration in range(1, iterations):
        # Messages are added as they come, so one of them is in memory at a time.
        sums = run.zeros(set(graph.nodes))
        for path, message in run.messages(state, messages_of(graph)):
            if path[-1][2] == graph.target:
                messages[path_name(path)].append(message)
            run.add(sums, path, message, messages_of(graph), iteration)
            del message  # before the next one is computed
        state = run.stored(sums)
    for path, message in run.messages(state, paths):  # the last iteration has no update
        messages[path_name(path)].append(message)
    return messages


def messages_of(graph: TemporalGraph) -> list[Metapath]:
    """List the messages of an iteration: every relation, and every relation there and back."""
    paths: list[Metapath] = []
    for relation in graph.relations:
        paths.append((relation,))
        reverse = reverse_of(graph, relation)
        if reverse is not None:
            paths.append((relation, reverse))
    return paths


def collected(graph: TemporalGraph) -> list[Metapath]:
    """List the messages to the target type."""
    return [path for path in messages_of(graph) if path[-1][2] == graph.target]


def reverse_of(graph: TemporalGraph, relation: Triple) -> Triple | None:
    """Return the relation along the reversed edges, as `undirected` names it; None without one."""
    source, name, target = relation
    for other in (f"rev_{name}", name.removeprefix("rev_")):
        if other != name and (target, other, source) in graph.relations:
            return target, other, source
    return relation if source == target else None


@dataclass(frozen=True, eq=False)
class _Squashing:
    """One run: the graph, its operators, and the projections."""

    graph: TemporalGraph
    width: int
    seed: int
    walk: Walk

    def messages(
        self, state: dict[str, Any], requested: Collection[Metapath]
    ) -> Iterator[tuple[Metapath, Hop]]:
        """Yield the requested paths with their messages; an even one continues its odd one."""
        for relation in dict.fromkeys(path[0] for path in requested):
            x = state[relation[0]]
            # Paths that share their first step.
            paths = [path for path in requested if path[0] == relation]
            walk = replace(self.walk, paths=paths)
            # Messages are added up, which needs more than 16 bits.
            yield from walk.hops(x, dtype=np.promote_types(x.dtype, np.float32))

    def initial_state(self) -> dict[str, Any]:
        """Return the first representations: features in the common width, or squashed messages."""
        graph = self.graph
        state: dict[str, Any] = {}
        for kind, nodes in graph.nodes.items():
            x = nodes.x
            if x is None:
                continue
            state[kind] = x
            if x.shape[1] != self.width:
                values = self.zeros({kind})
                projection = self.matrix(f"x-{kind}", x.shape[1], 0)
                _add_projected(values[kind], x, projection)
                state |= self.stored(values)
        # Types without features, in the order in which messages reach them.
        while True:
            new: list[Metapath] = [
                (relation,)
                for relation in graph.relations
                if relation[0] in state and relation[2] not in state
            ]
            if not new:
                break
            # The types that are reached in this round.
            sums = self.zeros({path[0][2] for path in new})
            for path, message in self.messages(state, new):
                self.add(sums, path, message, new, 0)
            state |= self.stored(sums)
        for kind, nodes in graph.nodes.items():
            if kind not in state:  # no message ever reaches it
                state[kind] = np.zeros((nodes.num_nodes, self.width), np.float32)
        return state

    def zeros(self, kinds: set[str]) -> dict[str, ndarray]:
        """Create a representation of zeros for each type."""
        zeros = {}
        for kind, nodes in self.graph.nodes.items():
            if kind in kinds:
                shape = (nodes.num_nodes, self.width)
                zeros[kind] = self.walk.engine.empty(shape, np.float32)
        return zeros

    def add(
        self,
        sums: dict[str, ndarray],
        path: Metapath,
        message: Hop,
        paths: list[Metapath],
        iteration: int,
    ) -> None:
        """Squash a message, one of `paths`, and add it to the next state of its last type."""
        kind = path[-1][2]
        projection = self.matrix(path_name(path), self.width, iteration)
        # The sum of `count` independent projections keeps the scale of one.
        count = sum(other[-1][2] == kind for other in paths)
        _add_projected(sums[kind], message, projection / np.sqrt(count))

    def stored(self, sums: dict[str, ndarray]) -> dict[str, Hop]:
        """Return the next representations, after all messages have been added."""
        return {kind: self.walk.engine.stored(values) for kind, values in sums.items()}

    def matrix(self, name: str, rows: int, iteration: int) -> ndarray:
        """Draw the projection [rows, width] of a message from seed, iteration and name."""
        # Seeded by name: other relations of the graph do not change a projection.
        rng = np.random.default_rng([self.seed, iteration, *name.encode()])
        # A sparse random projection keeps distances on average, and two thirds of it are zeros.
        share = [1 / 6, 2 / 3, 1 / 6]
        signs = rng.choice([-1.0, 0.0, 1.0], (rows, self.width), p=share)
        return signs * np.sqrt(3 / self.width)


def _add_projected(total: ndarray, message: Any, matrix: ndarray) -> None:
    """Add message @ matrix to the total, a block of rows at a time."""
    for rows, part in blocks_of(total):
        values = message[rows] if isinstance(message, ndarray) else message.rows(rows)
        part += values.astype(np.float64) @ matrix
