"""What a model is shown of a graph: hops of features and labels, made once and shared by the candidates of a fold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from impact_gnn import _native, checks
from impact_gnn.checks import InputError
from impact_gnn.engines.engine import FEW_ROWS, Engine
from impact_gnn.engines.hop import ComputedHop, as_hop, selected_hop
from impact_gnn.engines.memory import Memory
from impact_gnn.engines.operator import Operator
from impact_gnn.graph import TemporalGraph
from impact_gnn.methods import HopContext, Method
from impact_gnn.propagation.degrees import degrees
from impact_gnn.propagation.embedding import EMBEDDINGS, spectral
from impact_gnn.propagation.hops import own_relation
from impact_gnn.propagation.labels import repeated_label_hops
from impact_gnn.propagation.metapaths import (
    Metapath,
    metapath_hops,
    metapath_label_hops,
    metapaths,
    path_name,
)
from impact_gnn.propagation.squashing import collected, squash

MOST_HOPS = 100
MOST_SNAPSHOTS = (
    64  # snapshots that are computed at most; with more periods, neighbouring ones share a snapshot
)


@dataclass(frozen=True, eq=False)
class Inputs:
    """The hops of a graph by method, computed when first asked for and kept.

    Labels enter only through `model_inputs(method, cutoff)`, and only those before that cutoff. Hops are
    shown for the nodes `rows` alone: those with a label, and all from the last labelled period on.

    Args:
        view: The graph made by `masked(cutoff)`.
        hops: Steps along the edges; between several node types the relations of a metapath, at
            least in and back.
        undirected: Let messages run in both directions of every edge.
        engine: Where to propagate.
        squashed: Between several node types, squash metapaths by random projections (RpHGNN)
            instead of keeping them apart; `hops` is then the number of iterations.
        seed: Of everything random: projections, and the lags at which snapshots are taken.
        embed: "spectral" to give types without features an embedding of the graph as it was before
            a cutoff.
        embedded: That cutoff, by default the view's own; of a fitted model the one of its fit.
    """

    view: TemporalGraph
    hops: int = 2
    undirected: bool = True
    engine: Engine = field(default_factory=Memory)
    squashed: bool = False
    seed: int = 0
    embed: str = "none"
    embedded: int | None = None
    graph: TemporalGraph = field(init=False)
    rows: np.ndarray = field(init=False)
    _kept: dict[tuple[object, ...], list[Any]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        view = self.view
        checks.seed(self.seed)
        if checks.at_least("hops", self.hops, 0) > MOST_HOPS:
            raise InputError(
                f"hops={self.hops} is more than {MOST_HOPS}, at which all nodes look alike; give 2 or 3."
            )
        view.hidden_from("inputs need")
        # Whatever is looked at later, as it was at some time or with fewer labels, is encoded in
        # one way.
        graph = view.encoded()
        if checks.choice("embed", self.embed, EMBEDDINGS) != "none":
            graph = self._with_embeddings(graph)
        graph = self.engine.graph(graph, undirected=self.undirected)
        object.__setattr__(self, "graph", graph)
        if graph.x is None and not self.paths():  # nor do others' features reach the nodes
            object.__setattr__(self, "graph", graph.with_features(degrees(view)))
        last = view.time[view.label >= 0].max()
        rows = np.flatnonzero((view.label >= 0) | (view.time >= last))
        what = f"probabilities of {len(rows):,} nodes and {view.num_labels:,} classes"
        checks.fits(what, 8 * len(rows) * view.num_labels, "merge rare classes")
        object.__setattr__(self, "rows", rows)

    def model_inputs(
        self, method: Method, cutoff: int, soft: np.ndarray | None = None
    ) -> tuple[list[Any], list[Any]]:
        """Feature hops and label hops of the nodes `rows`, when labels are known before `cutoff`.

        With `soft` label hops are made of these probabilities of the nodes `rows` [n, Y] instead of
        the labels.
        """
        if "snapshot" in method and self.embed != "none":
            reason = "which places nodes in the graph as it was before the cutoff"
            raise InputError(
                f"'snapshot' does not go with embed={self.embed!r}, {reason}; leave one of them out."
            )
        view = self.graph.masked(cutoff)
        own = self._own_columns(method, cutoff)
        if "features" in method:
            return own, []
        nodes = self._nodes(method)
        hops = self._raw(method, cutoff)
        for part in method.parts:
            if part.align is not None:
                context = HopContext(
                    graph=view,
                    nodes=nodes,
                    weighting=method.edge_weighting,
                    engine=self.engine,
                    relation_sizes=self._sizes(len(hops)),
                )
                hops = part.align(hops, context)
        if len(nodes) != len(self.rows):
            # all nodes were needed for the statistics only
            hops = [selected_hop(hop, self.rows) for hop in hops]
        label_hops: list[Any] = []
        if "labels" in method and soft is not None:
            label_hops = self._label_hops(view, method, soft)
        elif "labels" in method:
            label_hops = self._once(
                ("labels", *_hop_parts(method), cutoff), lambda: self._label_hops(view, method)
            )
        if not own and not hops and not label_hops:
            raise InputError(
                "the graph has no features and the method uses no labels; give features or add 'labels'."
            )
        return [*own, *hops], label_hops

    def groups(self, method: Method) -> list[list[int]]:
        """Positions of the feature hops that belong together: a homogeneous graph's all, else those of one relation.

        Squashed messages that went there and back are joined by the node's own features, of which
        they are means.
        """
        added = sum(part.inputs is not None for part in method.parts)
        own = [[k] for k in range((self.graph.x is not None) + added)]
        if "features" in method:
            return own
        count = len(self._raw(method.without("lags")))  # as many hops, without a cutoff
        if not self.graph.is_hetero:
            return [list(range(len(own) + count))]
        sizes = self._sizes(count)
        back = [False] * len(sizes)
        if self.squashed:
            back = [len(path) == 2 and self.graph.x is not None for path in collected(self.graph)]
        starts = np.cumsum([len(own), *sizes])[:-1].tolist()
        parts = zip(starts, sizes, back, strict=True)
        return own + [
            [0] * joined + list(range(start, start + size)) for start, size, joined in parts
        ]

    def _sizes(self, count: int) -> list[int]:
        """How many of `count` hops, one after the other, are of the same relation."""
        if not self.graph.is_hetero:
            return [count]
        if self.squashed:
            return [self.hops] * len(collected(self.graph))
        last = [path[-1] for path in self.paths()]
        return [last.count(triple) for triple in dict.fromkeys(last)]

    def features(self) -> Any:
        """The features alone, in float32."""
        x = self.graph.x
        if x is None:
            raise InputError("the graph has no features, so 'features' cannot be a method.")

        def read(index: np.ndarray) -> np.ndarray:
            values = np.asarray(x[self.rows[index]], np.float32)
            _native.release(x)
            return values

        return ComputedHop((len(self.rows), x.shape[1]), np.dtype(np.float32), read)

    def _with_embeddings(self, graph: TemporalGraph) -> TemporalGraph:
        if all(part.x is not None for part in graph.nodes.values()):
            return graph
        assert self.view.cutoff is not None
        x = spectral(graph, self.view.cutoff if self.embedded is None else self.embedded)
        nodes = {
            kind: replace(part, features=x[kind], ready=True)
            if part.x is None and x[kind].shape[1]
            else part
            for kind, part in graph.nodes.items()
        }
        return graph.with_parts(nodes, dict(graph.relations))

    def _own_columns(self, method: Method, cutoff: int) -> list[Any]:
        """What the model reads of a node alone: its features, and columns that parts add."""
        columns = [] if self.graph.x is None and "features" not in method else [self.features()]
        for part in method.parts:
            if part.inputs is not None:
                columns += self._once(
                    (part.name, cutoff), partial(self._added, part.inputs, cutoff)
                )
        return columns

    def _added(
        self, compute: Callable[[TemporalGraph, np.ndarray], np.ndarray], cutoff: int
    ) -> list[Any]:
        return [as_hop(compute(self.view.masked(cutoff), self.rows))]

    # -- paths

    @property
    def length(self) -> int:
        """Most relations of a path."""
        return max(self.hops, 2) if self.graph.is_hetero else self.hops

    def paths(self, start: str | None = None) -> list[Metapath]:
        """Ways from a type with features (or from `start`) to the target type, sorted by the relation they end in."""
        place = {triple: k for k, triple in enumerate(self.graph.relations)}
        return sorted(
            metapaths(self.graph, self.length, start=start), key=lambda path: place[path[-1]]
        )

    def _nodes(self, method: Method) -> np.ndarray:
        """The nodes whose hops are computed: `rows`, or all nodes.

        All are needed for the statistics of an alignment, and cost little more than `rows` where
        few are left out.
        """
        everybody = any(part.align is not None and part.all_nodes for part in method.parts)
        few = len(self.rows) < FEW_ROWS * self.graph.num_nodes
        return self.rows if few and not everybody else np.arange(self.graph.num_nodes)

    def _raw(self, method: Method, cutoff: int | None = None) -> list[Any]:
        for part in method.parts:
            if part.check_graph is not None:
                part.check_graph(self.graph)
        nodes = self._nodes(method)
        key = ("hops", *_hop_parts(method), cutoff if "lags" in method else None, len(nodes))
        return self._once(key, lambda: self._hops(method, cutoff, nodes))

    def _hops(self, method: Method, cutoff: int | None, nodes: np.ndarray) -> list[Any]:
        paths = self.paths()
        if not paths:
            return []

        def repeated(last: int | None, wanted: np.ndarray) -> list[Any]:
            then, position, steps = self._steps(self.graph, method, last, wanted, self.hops)
            part = None if len(position) == then.num_nodes else position
            assert then.x is not None  # paths begin at types with features
            hops = self.engine.hops(steps, then.x, rows=part, dtype=np.float32)
            return (
                hops
                if part is None
                else [*(selected_hop(hop, part) for hop in hops[:-1]), hops[-1]]
            )

        def along_metapaths(last: int | None, wanted: np.ndarray) -> list[Any]:
            then, position = self.as_of(self.graph, last, wanted)
            hops = metapath_hops(
                then,
                length=self.length,
                weighting=method.edge_weighting,
                metapath_weighting=_ends_or_edges(method),
                engine=self.engine,
                rows=None if len(position) == then.num_nodes else position,
                dtype=np.float32,
            )
            return [hops[path_name(path)] for path in paths]

        def squashed(last: int | None, wanted: np.ndarray) -> list[Any]:
            then, position = self.as_of(self.graph, last, wanted)
            width = max(
                part.x.shape[1]
                for part in (then.nodes[path[0][0]] for path in paths)
                if part.x is not None
            )
            messages = squash(
                then,
                iterations=self.hops,
                width=width if then.x is None else None,
                weighting=method.edge_weighting,
                seed=self.seed,
                engine=self.engine,
            )
            return [selected_hop(hop, position) for hops in messages.values() for hop in hops]

        make = repeated if self.is_simple(method) else along_metapaths
        if self.squashed and self.graph.is_hetero:
            make = squashed
        return self._over_time(method, cutoff, nodes, make)

    def _label_hops(
        self, view: TemporalGraph, method: Method, soft: np.ndarray | None = None
    ) -> list[Any]:
        """Label hops; on snapshots a node hears of its neighbours the labels from before its own time.

        With lags, what was known then is what lay as far back as the cutoff does today.
        """
        assert view.cutoff is not None
        label, length, count = view.label, min(self.length, 2), view.num_labels
        if soft is not None:
            label = np.zeros((view.num_nodes, count), np.float32)
            label[self.rows] = soft
        back = (
            len(view.times) - 1 - int(np.searchsorted(view.times, view.cutoff))
            if "lags" in method
            else 0
        )

        def known(last: int | None, then: TemporalGraph) -> np.ndarray:
            """Labels, or probabilities, of the nodes that were there, as far as they were known then."""
            if last is None:
                return label
            early = view.period.astype(np.int64) < last - back
            out = (
                np.where(early, label, -1)
                if label.ndim == 1
                else np.where(early[:, None], label, 0)
            )
            return out if then.num_nodes == view.num_nodes else out[view.period <= last]

        def repeated(last: int | None, wanted: np.ndarray) -> list[Any]:
            then, position, steps = self._steps(view, method, last, wanted, length)
            return repeated_label_hops(steps, known(last, then), count, self.engine, rows=position)

        def along_metapaths(last: int | None, wanted: np.ndarray) -> list[Any]:
            then, position = self.as_of(view, last, wanted)
            hops = metapath_label_hops(
                then,
                length=length,
                weighting=method.edge_weighting,
                metapath_weighting=_ends_or_edges(method),
                engine=self.engine,
                label=known(last, then),
            )
            return [selected_hop(hop, position) for hop in hops.values()]

        make = repeated if self.is_simple(method) else along_metapaths
        return self._over_time(method, view.cutoff, self.rows, make)

    def is_simple(self, method: Method) -> bool:
        """Whether hops are one operation again and again, which engines do best."""
        return not self.graph.is_hetero and "ends" not in method

    def _steps(
        self, graph: TemporalGraph, method: Method, last: int | None, wanted: np.ndarray, hops: int
    ) -> tuple[TemporalGraph, np.ndarray, list[Operator]]:
        """The operations of a homogeneous graph as it was in period `last`, after what `as_of` gives."""
        # edges came with their nodes: a table can hide them
        hidden = last if self.view.edge_time is None else None
        then, position = self.as_of(graph, None if hidden is not None else last, wanted)
        relation, weighting = own_relation(then), method.edge_weighting
        return (
            then,
            position,
            self.engine.operators(hops, then, relation, weighting=weighting, last=hidden),
        )

    def as_of(
        self, graph: TemporalGraph, last: int | None, wanted: np.ndarray
    ) -> tuple[TemporalGraph, np.ndarray]:
        """The graph as it was in period `last`, and where the nodes `wanted` are in it."""
        if last is None:
            return graph, wanted
        # From the edges as they were given: one that several were merged into weighs what it weighs
        # today.
        given = graph.with_parts(dict(graph.nodes), dict(self.view.relations))
        then = self.engine.graph(given, upto=int(graph.times[last]), undirected=self.undirected)
        # Earlier nodes keep their order, so a node's new position is the number of kept ones before
        # it.
        return then, (np.cumsum(graph.period <= last) - 1)[wanted]

    def _over_time(
        self,
        method: Method,
        cutoff: int | None,
        nodes: np.ndarray,
        make: Callable[[int | None, np.ndarray], list[Any]],
    ) -> list[Any]:
        """`make(None, nodes)`; or snapshots: a node's rows of `make(the period at which it is seen, such nodes)`."""
        if "snapshot" not in method:
            return make(None, nodes)
        out: list[np.ndarray] = []
        seen = self._seen_at(cutoff if "lags" in method else None)[nodes]
        for low, high in _runs(self.graph.counts, MOST_SNAPSHOTS):
            place = np.flatnonzero((seen >= low) & (seen <= high))
            if not len(place):
                continue
            hops = make(high, nodes[place])
            out = out or [self.engine.empty((len(nodes), hop.shape[1]), np.float32) for hop in hops]
            for whole, part in zip(out, hops, strict=True):
                whole[place] = part.rows(np.arange(len(place)))
                _native.release(whole)
        return [self.engine.stored(whole) for whole in out]

    def seen_in(self, method: Method, cutoff: int, node: int) -> int | None:
        """The period up to which the graph is shown to a node; None for all of it."""
        if "snapshot" not in method:
            return None
        seen = self._seen_at(cutoff if "lags" in method else None)[node]
        return next(
            high for low, high in _runs(self.graph.counts, MOST_SNAPSHOTS) if low <= seen <= high
        )

    def _seen_at(self, cutoff: int | None) -> np.ndarray:
        """The period at which a node is looked at: its own, or, given a cutoff, one that lies a target's lag later.

        Targets are seen today; how long after its own time that is for a target, drawn at random,
        is the lag of a labelled node. With a single period of targets there is no lag.
        """
        period = self.graph.period.astype(np.int64)
        if cutoff is None:
            return period
        today = len(self.graph.times) - 1
        target = self.graph.time >= cutoff
        lag = np.random.default_rng(self.seed).choice(today - period[target], len(period))
        return np.where(target, today, np.minimum(period + lag, today))

    def _once(self, key: tuple[object, ...], make: Callable[[], list[Any]]) -> list[Any]:
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]


def _ends_or_edges(method: Method) -> str:
    return "ends" if "ends" in method else "edges"


def _hop_parts(method: Method) -> tuple[object, ...]:
    """What hops depend on."""
    return method.weighting, "snapshot" in method, "lags" in method, "ends" in method


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
