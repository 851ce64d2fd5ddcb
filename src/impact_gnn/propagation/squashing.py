"""Random-projection squashing: many hops over many relations at a cost that grows only linearly.

After Hu, Hooi and He, "Efficient Heterogeneous Graph Learning via Random Projection" (RpHGNN, 2024). Metapaths multiply
with every step; here every type keeps one representation H of a fixed width instead. An iteration has two parts.

Propagate, along every relation r from type a to type b:

    odd   O_r = M_r·H_a     one step, arrives at b
    even  E_r = M_r'·O_r    back along the same edges (r' is the reverse of r), arrives at a

Update: the messages that arrive at a type are squashed into its next representation,

    H_b ← Σ_m (message m)·R_m / √(number of messages),   R_m a fixed random matrix with entries N(0, 1/width).

What arrives at the target type is collected per relation and iteration, before it is squashed.

Two decisions of ours. The scale in the update is fixed, where the authors' code scales by the data, so the result is
linear in the features, as the corrections of this library need it. And a type without features begins with
the squashed messages from types that have something, so nothing but the graph's own features enters.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

import numpy as np

from impact_gnn import checks
from impact_gnn.checks import InputError
from impact_gnn.graph import TemporalGraph, Triple
from impact_gnn.propagation import stores
from impact_gnn.propagation.engine import Engine
from impact_gnn.propagation.hops import along
from impact_gnn.propagation.path_walk import Path, Walk, folder_name, path_name


def squash(
    graph: TemporalGraph,
    *,
    iterations: int = 2,
    width: int | None = None,
    weighting: str | np.ndarray = "plain",
    seed: int = 0,
    engine: Engine | None = None,
) -> dict[str, list[np.ndarray]]:
    """What arrives at the target type, per relation: a dict name → one matrix [N, width] per iteration.

    Names are those of the paths of an iteration's last message, one relation (odd) or there and back (even). The
    target type's own features are not among them.

    Args:
        graph: The graph; use `graph.undirected()`, which adds the ways back `rev_...`. A relation of a type with
            itself is its own way back. A relation without a way back gives odd messages only.
        iterations: Number of iterations; the last one reaches 2·iterations steps far.
        width: Columns of all representations; by default as many as the target type has features. Features of
            another width are brought to it by a random projection of their own.
        weighting: Name of a method, or a table over `graph.times`, for relations between types with a time.
        seed: Seed of the projections; each depends on it and on the names of its message only.
        engine: Where to compute; `Memory()` by default.

    Example:
        >>> graph = TemporalGraph.hetero(
        ...     nodes={"paper": dict(x=np.eye(3), time=[0, 1, 2]), "author": dict(num_nodes=2)},
        ...     edges={("author", "writes", "paper"): [[0, 0, 1], [0, 1, 2]]}, target="paper").undirected()
        >>> found = squash(graph, iterations=2, weighting="pmp", seed=0)
        >>> {name: [hop.shape for hop in hops] for name, hops in found.items()}
        {'author-writes-paper': [(3, 3), (3, 3)], 'paper-rev_writes-author-writes-paper': [(3, 3), (3, 3)]}
    """
    iterations, seed = checks.whole_number("iterations", iterations), checks.whole_number("seed", seed)
    if iterations < 1:
        raise InputError(f"iterations={iterations} must be at least 1.")
    if seed < 0:
        raise InputError(f"seed={seed} must be zero or more.")
    if all(nodes.x is None for nodes in graph.nodes.values()):
        raise InputError("the graph has no features to propagate; make it with features, or use with_features(x).")
    if width is None:
        if graph.x is None:
            raise InputError(f"nodes of type {graph.target!r} have no features to take the width from; pass width=...")
        width = graph.x.shape[1]
    width = checks.whole_number("width", width)
    if width < 1:
        raise InputError(f"width={width} must be at least 1.")
    work = _Squashing(graph, width, seed, Walk(graph, [], weighting, engine))
    if not work.collected():
        raise InputError(f"no relation leads to {graph.target!r}; use graph.undirected().")
    found: dict[str, list[np.ndarray]] = {path_name(path): [] for path in work.collected()}
    state = work.begin()
    for iteration in range(iterations):
        last = iteration == iterations - 1
        update = {} if last else work.empty_state(f"{iteration + 1}", set(graph.nodes))
        for path, message in work.messages(state, str(iteration), work.collected() if last else work.paths()):
            if path[-1][2] == graph.target:
                found[path_name(path)].append(message)
            if not last:
                work.add(update, path, message)
            del message
        if not last:
            state = {kind: stores.opened(store) for kind, store in update.items()}
    return found


def way_back(graph: TemporalGraph, relation: Triple) -> Triple | None:
    """The relation along the same edges in the other direction, as `undirected` names it; None if there is none.

    Example:
        >>> graph = TemporalGraph.hetero(
        ...     nodes={"paper": dict(time=[0, 1]), "author": dict(num_nodes=1)},
        ...     edges={("author", "writes", "paper"): [[0, 0], [0, 1]]}, target="paper").undirected()
        >>> way_back(graph, ("author", "writes", "paper"))
        ('paper', 'rev_writes', 'author')
    """
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
    walk: Walk
    _matrices: dict[str, np.ndarray] = field(default_factory=dict, repr=False)

    def paths(self) -> list[Path]:
        """The messages of an iteration: every relation, and every relation there and back."""
        found: list[Path] = []
        for relation in self.graph.relations:
            back = way_back(self.graph, relation)
            found += [(relation,)] if back is None else [(relation,), (relation, back)]
        return found

    def collected(self) -> list[Path]:
        """Those that arrive at the target type."""
        return [path for path in self.paths() if path[-1][2] == self.graph.target]

    def messages(
        self, state: dict[str, np.ndarray], iteration: str, wanted: Collection[Path]
    ) -> Iterator[tuple[Path, np.ndarray]]:
        """The wanted paths with their messages; an even one is made from its odd one."""
        for relation in self.graph.relations:
            back = way_back(self.graph, relation)
            odd: Path = (relation,)
            even: Path = () if back is None else (relation, back)
            if odd not in wanted and even not in wanted:
                continue
            message = self._step(odd, state[relation[0]], iteration)
            if odd in wanted:
                yield odd, message
            if even in wanted:
                yield even, self._step(even, message, iteration)
            del message

    def begin(self) -> dict[str, np.ndarray]:
        """The first representations: features in the common width; where there are none, messages of those who have."""
        state = {}
        for kind, nodes in self.graph.nodes.items():
            if nodes.x is None:
                continue
            if nodes.x.shape[1] == self.width:
                state[kind] = nodes.x
                continue
            store = self._zeros(f"x-{kind}", nodes.num_nodes)
            stores.add_projected(store, nodes.x, self.matrix(f"x-{kind}", nodes.x.shape[1]))
            state[kind] = stores.opened(store)
        rounds = 0
        while missing := {r[2] for r in self.graph.relations if r[0] in state and r[2] not in state}:
            update = self.empty_state(f"begin-{rounds}", missing)
            new: list[Path] = [(r,) for r in self.graph.relations if r[0] in state and r[2] in missing]
            for path, message in self.messages(state, f"begin-{rounds}", new):
                self.add(update, path, message, new)
            state = {**state, **{kind: stores.opened(store) for kind, store in update.items()}}
            rounds += 1
        for kind, nodes in self.graph.nodes.items():
            if kind not in state:  # nothing ever arrives there
                state[kind] = np.zeros((nodes.num_nodes, self.width), np.float32)
        return state

    def empty_state(self, name: str, kinds: set[str]) -> dict[str, stores.Store]:
        """Representations of zeros."""
        return {k: self._zeros(f"{name}-{k}", n.num_nodes) for k, n in self.graph.nodes.items() if k in kinds}

    def add(
        self, update: dict[str, stores.Store], path: Path, message: np.ndarray, among: list[Path] | None = None
    ) -> None:
        """Adds a squashed message, one of `among`, to the next representation of the type at which it arrives."""
        count = sum(each[-1][2] == path[-1][2] for each in (self.paths() if among is None else among))
        matrix = self.matrix(path_name(path), self.width) / np.sqrt(count)
        stores.add_projected(update[path[-1][2]], message, matrix)

    def matrix(self, name: str, rows: int) -> np.ndarray:
        """The projection of a message: N(0, 1/width) [rows, width], from the seed and the message's name alone."""
        if name not in self._matrices:
            rng = np.random.default_rng([self.seed, *name.encode()])
            self._matrices[name] = rng.standard_normal((rows, self.width)) / np.sqrt(self.width)
        return self._matrices[name]

    def _zeros(self, name: str, rows: int) -> stores.Store:
        place = self.walk.directory
        if place is not None:
            place = place.with_name(f"{place.name}-squash")
        return stores.zeros((rows, self.width), np.float32, place, folder_name(name))

    def _step(self, path: Path, x: np.ndarray, iteration: str) -> np.ndarray:
        within = getattr(self.walk.engine, "within", None)
        name = folder_name(f"squash-{iteration}-{path_name(path)}")
        engine = self.walk.engine if within is None else within(name)
        return along([self.walk.operator(path[-1])], x, engine=engine)[-1]
