"""What a model is shown of a graph: hops of features and labels, made once and shared by the candidates of a fold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from impact_gnn import alignment
from impact_gnn import weighting as weights
from impact_gnn.alignment.pny import refuse_unless_fits
from impact_gnn.checks import InputError
from impact_gnn.connectivity import relative_connectivity
from impact_gnn.graph import TemporalGraph, Triple
from impact_gnn.pipeline.method import Method
from impact_gnn.propagation.engine import Engine
from impact_gnn.propagation.hops import along, operator, time_table
from impact_gnn.propagation.labels import label_path
from impact_gnn.propagation.metapaths import metapath_hops, metapath_label_hops, metapaths, path_name
from impact_gnn.propagation.squashing import squash

MOST_SNAPSHOTS = 64
"""Snapshots that are computed at most; with more periods, neighbouring ones share a snapshot."""


@dataclass(frozen=True, eq=False)
class Inputs:
    """The hops of a graph by method, computed when first asked for and kept.

    Labels enter only through `shown(method, cutoff)`, and only those before that cutoff.

    Args:
        graph: The graph, whose labels at or after the last cutoff are hidden.
        hops: Steps along the edges; between several node types the relations of a metapath, at least in and back.
        undirected: Let messages run in both directions of every edge.
        engine: Where to propagate; `Memory()` by default.
        squashed: Between several node types, squash metapaths by random projections (RpHGNN) instead of keeping
            them apart; `hops` is then the number of iterations.
    """

    graph: TemporalGraph
    hops: int = 2
    undirected: bool = True
    engine: Engine | None = None
    squashed: bool = False
    _kept: dict[tuple[object, ...], list[np.ndarray]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        graph = self.graph.undirected() if self.undirected else self.graph
        if graph.x is not None and graph.x.dtype == np.float16:  # which alignments refuse
            graph = graph.with_features(np.asarray(graph.x, np.float32))
        object.__setattr__(self, "graph", graph)

    def shown(self, method: Method, cutoff: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Feature hops and label hops of every target-type node, when labels are known before `cutoff`."""
        if method.features:
            return [self.features()], []
        view = self.graph.masked(cutoff)
        hops = self._raw(method, cutoff)
        for name in method.alignment:
            hops = self._aligned(name, hops, view, method.weighting)
        found: list[np.ndarray] = []
        if method.labels:
            found = self._once(("labels", *_way(method), cutoff), lambda: self._label_hops(view, method))
        own = [] if self.graph.x is None else [self.graph.x]
        if not own and not hops and not found:
            raise InputError("the graph has no features and the method uses no labels; give features or add 'labels'.")
        return [np.asarray(values, dtype=np.float32) for values in (*own, *hops)], found

    def groups(self, method: Method) -> list[int]:
        """How many of the feature hops belong together: a homogeneous graph's all, else those of one relation."""
        own = [] if self.graph.x is None else [1]
        if method.features:
            return own
        method = replace(method, lags=False)  # as many hops, without a cutoff
        if not self.graph.is_hetero:
            return [sum(own) + len(self._raw(method))]
        if self.squashed:
            return own + [self.hops] * (len(self._raw(method)) // self.hops)
        last = [path[-1] for path in self.paths()]
        return own + [last.count(triple) for triple in dict.fromkeys(last)]

    def features(self) -> np.ndarray:
        """The features alone."""
        if self.graph.x is None:
            raise InputError("the graph has no features, so 'features' cannot be a method.")
        return np.asarray(self.graph.x, dtype=np.float32)

    # -- paths ---------------------------------------------------------------------------------------------

    @property
    def _length(self) -> int:
        return max(self.hops, 2) if self.graph.is_hetero else self.hops

    def paths(self, start: str | None = None) -> list[tuple[Triple, ...]]:
        """Ways from a type with features (or from `start`) to the target type, sorted by the relation they end in."""
        place = {triple: k for k, triple in enumerate(self.graph.relations)}
        return sorted(metapaths(self.graph, self._length, start=start), key=lambda path: place[path[-1]])

    def _raw(self, method: Method, cutoff: int | None = None) -> list[np.ndarray]:
        if "pny" in method.alignment:
            self._refuse_pny()
        if method.ends and self.squashed and self.graph.is_hetero:
            raise InputError("'ends' weighs whole paths, which rphgnn does not keep; use sehgnn, or leave out 'ends'.")
        key = ("hops", *_way(method), cutoff if method.lags else None)
        return self._once(key, lambda: self._hops(method, cutoff))

    def _hops(self, method: Method, cutoff: int | None) -> list[np.ndarray]:
        paths = self.paths()
        if not paths:
            return []

        def repeated(last: int | None) -> list[np.ndarray]:
            made = operator(self.graph, weighting=self._weighting(method, last))
            return along([made] * self.hops, np.asarray(self.graph.x, np.float32), engine=self.engine)

        def along_metapaths(last: int | None) -> list[np.ndarray]:
            then = self.graph if last is None else self.graph.upto(int(self.graph.times[last]))
            found = metapath_hops(
                then, length=self._length, weighting=method.weighting, metapath_weighting=_mode(method),
                engine=self.engine,
            )  # fmt: skip
            return [found[path_name(path)] for path in paths]

        def squashed(last: int | None) -> list[np.ndarray]:
            then = self.graph if last is None else self.graph.upto(int(self.graph.times[last]))
            width = max(part.x.shape[1] for part in (then.nodes[path[0][0]] for path in paths) if part.x is not None)
            found = squash(
                then, iterations=self.hops, width=width if then.x is None else None, weighting=method.weighting,
                engine=self.engine,
            )  # fmt: skip
            return [hop for hops in found.values() for hop in hops]

        if self._simple(method):
            return self._over_time(method, cutoff, repeated)
        chosen = squashed if self.squashed and self.graph.is_hetero else along_metapaths
        return self._over_time(method, cutoff, chosen)

    def _label_hops(self, view: TemporalGraph, method: Method) -> list[np.ndarray]:
        """Label hops; on snapshots a node hears of its neighbours the labels from before its own time.

        With lags, what was known then is what lay as far back as the cutoff does today.
        """
        assert view.y is not None  # nothing at or after the cutoff is in it
        assert view.cutoff is not None
        label, length, count = view.y, min(self._length, 2), view.num_labels
        back = len(view.times) - 1 - int(np.searchsorted(view.times, view.cutoff)) if method.lags else 0

        def known(last: int | None) -> np.ndarray:
            return label if last is None else np.where(view.period.astype(np.int64) < last - back, label, -1)

        def repeated(last: int | None) -> list[np.ndarray]:
            made = operator(view, weighting=self._weighting(method, last))
            return [label_path([made] * k, known(last), count, engine=self.engine) for k in range(1, length + 1)]

        def along_metapaths(last: int | None) -> list[np.ndarray]:
            then = view if last is None else view.with_labels(known(last)).upto(int(view.times[last]))
            found = metapath_label_hops(
                then, length=length, weighting=method.weighting, metapath_weighting=_mode(method), engine=self.engine
            )
            return list(found.values())

        return self._over_time(method, view.cutoff, repeated if self._simple(method) else along_metapaths)

    def _simple(self, method: Method) -> bool:
        """Whether hops are one operation again and again, which engines do best."""
        return not self.graph.is_hetero and not method.ends

    def _weighting(self, method: Method, last: int | None) -> str | np.ndarray:
        return method.weighting if last is None else snapshot_table(self.graph, method.weighting, last)

    def _over_time(
        self, method: Method, cutoff: int | None, make: Callable[[int | None], list[np.ndarray]]
    ) -> list[np.ndarray]:
        """`make(None)`; or snapshots: every node's rows of `make(the period at which it is seen)`."""
        if not method.snapshot:
            return make(None)
        out: list[np.ndarray] = []
        period, seen = self.graph.period, self._seen_at(cutoff if method.lags else None)
        for low, high in _runs(self.graph.counts, MOST_SNAPSHOTS):
            rows = np.flatnonzero((seen >= low) & (seen <= high))
            if not len(rows):
                continue
            found = make(high)
            out = out or [np.zeros((self.graph.num_nodes, hop.shape[1]), hop.dtype) for hop in found]
            position = np.cumsum(period <= high) - 1  # where a node is among those up to then
            for whole, part in zip(out, found, strict=True):
                whole[rows] = part[rows if len(part) == len(whole) else position[rows]]
        return out

    def _seen_at(self, cutoff: int | None) -> np.ndarray:
        """The period at which a node is looked at: its own, or, given a cutoff, one that lies a target's lag later.

        Targets are seen today; how long after its own time that is for a target, drawn at random, is the lag of a
        labelled node. With a single period of targets there is no lag.
        """
        period = self.graph.period.astype(np.int64)
        if cutoff is None:
            return period
        today = len(self.graph.times) - 1
        target = self.graph.time >= cutoff
        lag = np.random.default_rng(0).choice(today - period[target], len(period))
        return np.where(target, today, np.minimum(period + lag, today))

    # -- alignment -----------------------------------------------------------------------------------------

    def _aligned(self, name: str, hops: list[np.ndarray], view: TemporalGraph, weighting: str) -> list[np.ndarray]:
        if name == "center":
            return [alignment.center(hop, view.time) for hop in hops]
        if name == "standardize":
            return [alignment.standardize(hop, view.time) for hop in hops]
        target = view.targets()
        if name == "jjnorm":
            return [alignment.jjnorm(hop, view.y, view.time, target=target) for hop in hops]
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

    def _refuse_pny(self) -> None:
        """Before anything is propagated: PNY knows graphs of one type, and holds a covariance per label and time."""
        if self.graph.is_hetero:
            kinds, ways = len(self.graph.nodes), len(self.graph.relations)
            raise InputError(
                f"pny estimates how one node type connects with itself, but this graph has {kinds} types and {ways} "
                f"relations; use jjnorm, which needs no connectivity."
            )
        if self.graph.x is not None:
            refuse_unless_fits(self.graph.num_labels, len(self.graph.times), self.graph.x.shape[1])

    def _once(self, key: tuple[object, ...], make: Callable[[], list[np.ndarray]]) -> list[np.ndarray]:
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]


def _mode(method: Method) -> str:
    return "ends" if method.ends else "edges"


def _way(method: Method) -> tuple[object, ...]:
    """What hops depend on."""
    return method.weighting, method.snapshot, method.lags, method.ends


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
