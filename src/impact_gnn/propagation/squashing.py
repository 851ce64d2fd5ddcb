"""Random-projection squashing: many hops over many relations at a cost that grows only linearly.

After Hu, Hooi and He, "Efficient Heterogeneous Graph Learning via Random Projection" (RpHGNN,
2024). Metapaths multiply with every step; here every type keeps one representation H of a fixed
width instead. An iteration has two parts.

Propagate, along every relation r from type a to type b:

    odd   O_r = M_r·H_a     one step, arrives at b
    even  E_r = M_r'·O_r    back along the same edges (r' is the reverse of r), arrives at a

Update: the messages that arrive at a type are squashed into its next representation,

    H_b ← Σ_m (message m)·R_m / √(number of messages),   entries of R_m ±√(3/width) with probability
    1/6 each, else 0.

R_m is drawn anew for every iteration. With `normalize` the rows of every H are brought to length 1,
as the authors do; without it the result is linear in the features, as the theory behind the
corrections of this library has it. What arrives at the target type is collected per relation and
iteration, before it is squashed.

A decision of ours: a type without features begins with the squashed messages from types that have
    something, so
nothing but the graph's own features enters.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from impact_gnn import _native, checks
from impact_gnn.checks import InputError
from impact_gnn.engines.engine import Engine
from impact_gnn.engines.hop import position_blocks
from impact_gnn.engines.memory import or_memory
from impact_gnn.graph import TemporalGraph, Triple
from impact_gnn.propagation.metapaths import Metapath, Walk, path_name
from impact_gnn.weighting import Weighting


def squash(
    graph: TemporalGraph,
    *,
    iterations: int = 2,
    width: int | None = None,
    weighting: Weighting = "plain",
    normalize: bool = False,
    seed: int = 0,
    engine: Engine | None = None,
) -> dict[str, list[Any]]:
    """What arrives at the target type, per relation: a dict name → one matrix [N, width] per iteration.

    Names are those of the paths of an iteration's last message, one relation (odd) or there and
    back (even). The target type's own features are not among them.

    Args:
        graph: The graph; use `graph.undirected()`, which adds the ways back `rev_...`. A relation
            of a type with itself is its own way back. A relation without a way back gives odd
            messages only.
        iterations: Number of iterations; the last one reaches 2·iterations steps far.
        width: Columns of all representations; by default as many as the target type has features.
            Features of another width are brought to it by a random projection of their own.
        weighting: Name of a method, or a table over `graph.times`, for relations between types with
            a time.
        normalize: Bring the rows of every representation to length 1; the result is then not linear
            in X.
        seed: Seed of the projections; each depends on it, its iteration and the names of its
            message only.
        engine: Where to compute; `Memory()` by default.

    Examples:
        >>> graph = TemporalGraph.hetero(
        ...     nodes={"paper": dict(x=np.eye(3), time=[0, 1, 2]), "author": dict(num_nodes=2)},
        ...     edges={("author", "writes", "paper"): [[0, 0, 1], [0, 1, 2]]}, target="paper").undirected()
        >>> found = squash(graph, iterations=2, weighting="pmp", seed=0)
        >>> {name: [hop.shape for hop in hops] for name, hops in found.items()}
        {'author-writes-paper': [(3, 3), (3, 3)], 'paper-rev_writes-author-writes-paper': [(3, 3),
        (3, 3)]}
    """
    iterations, seed = (
        checks.at_least("iterations", iterations, 1),
        checks.at_least("seed", seed, 0),
    )
    if all(nodes.x is None for nodes in graph.nodes.values()):
        raise InputError(
            "the graph has no features to propagate; make it with features, or use with_features(x)."
        )
    if width is None:
        if graph.x is None:
            raise InputError(
                f"nodes of type {graph.target!r} have no features to take the width from; pass width=..."
            )
        width = graph.x.shape[1]
    width = checks.at_least("width", width, 1)
    engine = or_memory(engine)
    work = _Squashing(graph, width, seed, normalize, Walk(graph, [], weighting, engine))
    wanted = collected(graph)
    if not wanted:
        raise InputError(f"no relation leads to {graph.target!r}; use graph.undirected().")
    out: dict[str, list[Any]] = {path_name(path): [] for path in wanted}
    state = work.begin()
    for iteration in range(iterations):
        last = iteration == iterations - 1
        update = {} if last else work.zeros(set(graph.nodes))
        for path, message in work.messages(state, wanted if last else messages_of(graph)):
            if path[-1][2] == graph.target:
                out[path_name(path)].append(message)
            if not last:
                work.add(update, path, message, messages_of(graph), iteration + 1)
            del message
        if not last:
            state = work.kept(update)
    return out


def messages_of(graph: TemporalGraph) -> list[Metapath]:
    """The messages of an iteration: every relation, and every relation there and back."""
    out: list[Metapath] = []
    for relation in graph.relations:
        back = reverse_of(graph, relation)
        out += [(relation,)] if back is None else [(relation,), (relation, back)]
    return out


def collected(graph: TemporalGraph) -> list[Metapath]:
    """Those that arrive at the target type."""
    return [path for path in messages_of(graph) if path[-1][2] == graph.target]


def reverse_of(graph: TemporalGraph, relation: Triple) -> Triple | None:
    """The relation along the same edges in the other direction, as `undirected` names it; None if there is none."""
    source, name, target = relation
    for other in (f"rev_{name}", name.removeprefix("rev_")):
        if other != name and (target, other, source) in graph.relations:
            return target, other, source
    return relation if source == target else None


@dataclass(frozen=True, eq=False)
class _Squashing:
    """One run: the graph, its operations, and the projections."""

    graph: TemporalGraph
    width: int
    seed: int
    normalize: bool
    walk: Walk

    def messages(
        self, state: dict[str, Any], wanted: Collection[Metapath]
    ) -> Iterator[tuple[Metapath, Any]]:
        """The wanted paths with their messages; an even one is made from its odd one."""
        for relation in self.graph.relations:
            # Odd, and even if there is a way back.
            paths = [path for path in messages_of(self.graph) if path[0] == relation]
            while paths and paths[-1] not in wanted:
                paths.pop()
            message = None
            for path in paths:
                message = self._step(path[-1], state[relation[0]] if message is None else message)
                if path in wanted:
                    yield path, message
            del message

    def begin(self) -> dict[str, Any]:
        """The first representations: features in the common width; where there are none, messages of those who have."""
        state: dict[str, Any] = {}
        for kind, nodes in self.graph.nodes.items():
            if nodes.x is None:
                continue
            state[kind] = nodes.x
            same = nodes.x.shape[1] == self.width
            if not same or self.normalize:
                values = self.zeros({kind})
                matrix = (
                    np.eye(self.width) if same else self.matrix(f"x-{kind}", nodes.x.shape[1], 0)
                )
                _add_projected(values[kind], nodes.x, matrix)
                state |= self.kept(values)
        while missing := {
            r[2] for r in self.graph.relations if r[0] in state and r[2] not in state
        }:
            update = self.zeros(missing)
            new: list[Metapath] = [
                (r,) for r in self.graph.relations if r[0] in state and r[2] in missing
            ]
            for path, message in self.messages(state, new):
                self.add(update, path, message, new, 0)
            state |= self.kept(update)
        for kind, nodes in self.graph.nodes.items():
            if kind not in state:  # nothing ever arrives there
                state[kind] = np.zeros((nodes.num_nodes, self.width), np.float32)
        return state

    def zeros(self, kinds: set[str]) -> dict[str, np.ndarray]:
        sizes = {kind: nodes.num_nodes for kind, nodes in self.graph.nodes.items() if kind in kinds}
        return {
            kind: self.walk.engine.empty((size, self.width), np.float32)
            for kind, size in sizes.items()
        }

    def add(
        self,
        update: dict[str, np.ndarray],
        path: Metapath,
        message: Any,
        among: list[Metapath],
        iteration: int,
    ) -> None:
        """Adds a squashed message, one of `among`, to the next representation of the type at which it arrives."""
        count = sum(each[-1][2] == path[-1][2] for each in among)
        matrix = self.matrix(path_name(path), self.width, iteration) / np.sqrt(count)
        _add_projected(update[path[-1][2]], message, matrix)

    def kept(self, update: dict[str, np.ndarray]) -> dict[str, Any]:
        """The next representations, when all messages have been added."""
        if self.normalize:
            for values in update.values():
                _normalize(values)
        return {kind: self.walk.engine.stored(values) for kind, values in update.items()}

    def matrix(self, name: str, rows: int, iteration: int) -> np.ndarray:
        """The projection of a message [rows, width], from the seed, the iteration and the message's name alone."""
        rng = np.random.default_rng([self.seed, iteration, *name.encode()])
        return rng.choice([-1.0, 0.0, 1.0], (rows, self.width), p=[1 / 6, 2 / 3, 1 / 6]) * np.sqrt(
            3 / self.width
        )

    def _step(self, relation: Triple, x: Any) -> Any:
        dtype = np.promote_types(x.dtype, np.float32)  # messages are summed up
        return self.walk.engine.hops([self.walk.operator(relation)], x, dtype=dtype)[0]


def _add_projected(total: np.ndarray, message: Any, matrix: np.ndarray) -> None:
    """Total += message @ matrix, a block of rows at a time."""
    for rows in position_blocks(len(total)):
        values = message[rows] if isinstance(message, np.ndarray) else message.rows(rows)
        total[rows[0] : rows[-1] + 1] += values.astype(np.float64) @ matrix
        _native.release(total)


def _normalize(values: np.ndarray) -> None:
    """Rows to length 1, a block at a time; rows of zeros stay."""
    for rows in position_blocks(len(values)):
        part = values[rows[0] : rows[-1] + 1]
        length = np.linalg.norm(part, axis=1, keepdims=True)
        np.divide(part, length, out=part, where=length > 0)
        _native.release(values)
