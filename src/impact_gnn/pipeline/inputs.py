"""What a model is shown of a graph: hops of features and labels, made once and shared by the candidates of a fold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from impact_gnn import alignment
from impact_gnn import weighting as weights
from impact_gnn.checks import InputError
from impact_gnn.connectivity import relative_connectivity
from impact_gnn.graph import TemporalGraph, Triple
from impact_gnn.pipeline.method import Method
from impact_gnn.propagation.engine import Engine
from impact_gnn.propagation.hops import along, operator, time_table
from impact_gnn.propagation.labels import label_path
from impact_gnn.propagation.operator import Operator

MOST_SNAPSHOTS = 64
"""Snapshots that are computed at most; with more periods, neighbouring ones share a snapshot."""


@dataclass(frozen=True, eq=False)
class Inputs:
    """The hops of a graph by method, computed when first asked for and kept.

    Labels enter only through `shown(method, cutoff)`, and only those before that cutoff.

    Args:
        graph: The graph, whose labels at or after the last cutoff are hidden.
        hops: Steps along a relation of the target type with itself.
        undirected: Let messages run in both directions of every edge.
        engine: Where to propagate; `Memory()` by default.
    """

    graph: TemporalGraph
    hops: int = 2
    undirected: bool = True
    engine: Engine | None = None
    _kept: dict[tuple[object, ...], list[np.ndarray]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if self.undirected:
            object.__setattr__(self, "graph", self.graph.undirected())

    def shown(self, method: Method, cutoff: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Feature hops and label hops of every target-type node, when labels are known before `cutoff`."""
        if method.features:
            return [self.features()], []
        view = self.graph.masked(cutoff)
        if method.snapshot:
            hops = self._once(("snapshot", method.weighting), lambda: self._snapshots(method.weighting))
        else:
            hops = self._once(("hops", method.weighting), lambda: self._hops(method.weighting))
        for name in method.alignment:
            hops = self._aligned(name, hops, view, method.weighting)
        found: list[np.ndarray] = []
        if method.labels:
            key = ("labels", method.weighting, method.snapshot, cutoff)
            make = self._label_snapshots if method.snapshot else self._label_hops
            found = self._once(key, lambda: make(view, method.weighting))
        own = [] if self.graph.x is None else [self.graph.x]
        if not own and not hops and not found:
            raise InputError("the graph has no features and the method uses no labels; give features or add 'labels'.")
        return [np.asarray(values, dtype=np.float32) for values in (*own, *hops)], found

    def features(self) -> np.ndarray:
        """The features alone."""
        if self.graph.x is None:
            raise InputError("the graph has no features, so 'features' cannot be a method.")
        return np.asarray(self.graph.x, dtype=np.float32)

    # -- paths ---------------------------------------------------------------------------------------------

    def paths(self, kind: str | None = None) -> list[tuple[Triple, ...]]:
        """Ways from a type with features to the target type: own relations again and again, others in and back."""
        target = self.graph.target
        found: list[tuple[Triple, ...]] = []
        for triple in self.graph.relations:
            if triple[2] != target:
                continue
            if triple[0] == target:
                found += [(triple,) * k for k in range(1, self.hops + 1)]
            elif kind in (None, target):
                found += [(back, triple) for back in self.graph.relations if back[0] == target and back[2] == triple[0]]
            if triple[0] != target and kind is None and self.graph.nodes[triple[0]].x is not None:
                found.append((triple,))
        return found

    def _operators(self, path: Sequence[Triple], weighting: str | np.ndarray) -> list[Operator]:
        return [operator(self.graph, triple, weighting=weighting) for triple in path]

    def _along(self, weighting: str | np.ndarray) -> list[np.ndarray]:
        """One matrix per path, shorter paths being the beginnings of longer ones."""
        ends: dict[tuple[Triple, ...], np.ndarray] = {}
        for path in sorted(self.paths(), key=len, reverse=True):
            x = self.graph.nodes[path[0][0]].x
            if path in ends or x is None:
                continue
            steps = along(self._operators(path, weighting), np.asarray(x, np.float32), engine=self.engine)
            ends.update({path[: k + 1]: hop for k, hop in enumerate(steps)})
        return [ends[path] for path in self.paths() if path in ends]

    def _hops(self, weighting: str) -> list[np.ndarray]:
        return self._along(weighting)

    # -- snapshots -----------------------------------------------------------------------------------------

    def _snapshots(self, weighting: str) -> list[np.ndarray]:
        """Every node on the graph as it was at its own time; the newest nodes therefore on the graph as it is."""
        return self._by_snapshot(weighting, lambda table, last: self._along(table))

    def _label_snapshots(self, view: TemporalGraph, weighting: str) -> list[np.ndarray]:
        """Label hops on snapshots: of its neighbours a node hears the labels from before its own time."""
        assert view.y is not None
        label = view.y  # nothing at or after the cutoff is in it
        known_before = lambda last: np.where(self.graph.time < last, label, -1)  # noqa: E731
        return self._by_snapshot(weighting, lambda table, last: self._labels_along(known_before(last), table))

    def _by_snapshot(self, weighting: str, make: Callable[[np.ndarray, int], list[np.ndarray]]) -> list[np.ndarray]:
        out: list[np.ndarray] = []
        for low, high in _runs(self.graph.counts, MOST_SNAPSHOTS):
            found = make(snapshot_table(self.graph, weighting, high), int(self.graph.times[high]))
            rows = (self.graph.period >= low) & (self.graph.period <= high)
            out = out or [np.zeros_like(hop) for hop in found]
            for whole, part in zip(out, found, strict=True):
                whole[rows] = part[rows]
        return out

    # -- labels --------------------------------------------------------------------------------------------

    def _label_hops(self, view: TemporalGraph, weighting: str) -> list[np.ndarray]:
        assert view.y is not None
        return self._labels_along(view.y, weighting)

    def _labels_along(self, label: np.ndarray, weighting: str | np.ndarray) -> list[np.ndarray]:
        paths = [path for path in self.paths(self.graph.target) if len(path) <= 2]
        count = self.graph.num_labels
        return [label_path(self._operators(path, weighting), label, count, engine=self.engine) for path in paths]

    # -- alignment -----------------------------------------------------------------------------------------

    def _aligned(self, name: str, hops: list[np.ndarray], view: TemporalGraph, weighting: str) -> list[np.ndarray]:
        if name == "center":
            return [alignment.center(hop, view.time) for hop in hops]
        if name == "standardize":
            return [alignment.standardize(hop, view.time) for hop in hops]
        target = view.targets()
        if name == "jjnorm":
            return [alignment.jjnorm(hop, view.y, view.time, target=target) for hop in hops]
        if self.graph.is_hetero:
            raise InputError("pny needs a graph of one type, whose connectivity it estimates; use jjnorm.")
        assert view.cutoff is not None
        found = relative_connectivity(
            view.edge_index, view.y, view.time, num_labels=view.num_labels, cutoff=view.cutoff
        )
        degree, table = np.diff(view.csr().indptr), time_table(view, weighting)
        out, previous = [], view.x
        for hop in hops:
            before, previous = np.asarray(previous, hop.dtype), hop
            out.append(
                alignment.pny(
                    hop, before, view.y, view.time, target=target, connectivity=found, degree=degree, table=table
                )
            )
        return out

    def _once(self, key: tuple[object, ...], make: Callable[[], list[np.ndarray]]) -> list[np.ndarray]:
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]


def snapshot_table(graph: TemporalGraph, weighting: str, last: int) -> np.ndarray:
    """The table of the graph as it was at the end of period `last`: newer sources weigh nothing."""
    table = np.zeros((len(graph.times), len(graph.times)))
    now = last + 1
    table[:now, :now] = weights.table(weighting, graph.times[:now], graph.counts[:now])
    return table


def _runs(counts: np.ndarray, most: int) -> list[tuple[int, int]]:
    """Periods as (first, last) of at most `most` runs with about equally many nodes; the last ones stay single."""
    size = len(counts)
    if size <= most:
        return [(k, k) for k in range(size)]
    early = size - most // 2
    share = np.cumsum(counts[:early]) / max(counts[:early].sum(), 1)
    group = np.minimum((share * (most - most // 2)).astype(int), most - most // 2 - 1)
    starts = np.flatnonzero(np.r_[True, np.diff(group) > 0])
    runs = [(int(a), int(b) - 1) for a, b in zip(starts, [*starts[1:], early], strict=True)]
    return runs + [(k, k) for k in range(early, size)]
