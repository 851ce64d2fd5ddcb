"""`Inputs`: the hops of features and labels that models read, computed once per fold.

A graph passes through three stages: the *view* is the user's graph with labels masked from the
cutoff on; `Inputs.graph` is the view with encoded features and edges in the directions of messages;
a *snapshot* is that graph as it was in a period.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from impact_gnn import _native, checks
from impact_gnn.checks import InputError
from impact_gnn.engines.engine import FEW_ROWS, Engine
from impact_gnn.engines.hop import ComputedHop, Hop, as_hop, selected_hop
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

NodeIndex: TypeAlias = np.ndarray
"""Positions of nodes in the graph, among the nodes of their type."""

RowIndex: TypeAlias = np.ndarray
"""Positions among the rows that a model reads."""

MOST_HOPS = 100
MOST_SNAPSHOTS = 64  # with more periods, neighbouring ones share a snapshot


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The graph as it was in a period (None for today), and the positions of some nodes in it.

    Where edges have no times of their own, the graph may still have later ones: `hidden_after` is
    then the period after which the weights of edges are 0.
    """

    graph: TemporalGraph
    node_index: NodeIndex
    period: int | None
    hidden_after: int | None

    @property
    def rows(self) -> NodeIndex | None:
        """The positions of the nodes; None for all nodes."""
        return None if len(self.node_index) == self.graph.num_nodes else self.node_index


@dataclass(frozen=True, eq=False)
class Inputs:
    """The hops of a graph by method, computed on request and cached.

    Labels enter only through `model_inputs(method, cutoff)`, and only those before that cutoff.
    Models read the nodes `rows` alone: those with a label, and all from the last labelled period
    on; or the targets `only`.

    Args:
        view: The graph, from `masked(cutoff)`.
        hops: Steps along the edges; between several node types the relations of a metapath, at
            least in and back.
        undirected: Let messages run in both directions of every edge.
        engine: Where to propagate.
        squashed: Between several node types, squash metapaths by random projections (RpHGNN)
            instead of storing each; `hops` is then the number of iterations.
        seed: Of everything random: projections, and the lags at which snapshots are taken.
        embed: "spectral" to give types without features an embedding of the graph as it was before
            a cutoff.
        embedded: That cutoff, by default the view's own; of a fitted model the one of its fit.
        only: Positions of the targets that a fitted model predicts, if those are all it reads; in
            any order, as often as the user asks for them.
    """

    view: TemporalGraph
    hops: int = 2
    undirected: bool = True
    engine: Engine = field(default_factory=Memory)
    squashed: bool = False
    seed: int = 0
    embed: str = "none"
    embedded: int | None = None
    only: NodeIndex | None = None
    graph: TemporalGraph = field(init=False)
    rows: NodeIndex = field(init=False)
    _cache: dict[tuple[object, ...], list[Hop]] = field(
        default_factory=dict, init=False, repr=False
    )

    def __post_init__(self) -> None:
        view = self.view
        checks.seed(self.seed)
        if checks.at_least("hops", self.hops, 0) > MOST_HOPS:
            raise InputError(
                f"hops={self.hops} is more than {MOST_HOPS}, "
                "which averages over most of the graph; "
                f"use 2 or 3."
            )
        view.require_cutoff("inputs need")
        # Encoded once: snapshots and views with fewer labels have the same features.
        graph = view.encoded()
        if checks.choice("embed", self.embed, EMBEDDINGS) != "none":
            graph = self._with_embeddings(graph)
        graph = self.engine.graph(graph, undirected=self.undirected)
        object.__setattr__(self, "graph", graph)
        if graph.x is None and not self.paths():  # nor do others' features reach the nodes
            object.__setattr__(self, "graph", graph.with_features(degrees(view)))
        if self.only is None:
            last = view.time[view.label >= 0].max()
            rows = np.flatnonzero((view.label >= 0) | (view.time >= last))
        else:
            rows = np.unique(self.only)  # sorted: as many rows as nodes are all nodes in order
        what = f"probabilities of {len(rows):,} nodes and {view.num_labels:,} classes"
        checks.fits(what, 8 * len(rows) * view.num_labels, "merge rare classes")
        object.__setattr__(self, "rows", rows)

    def _with_embeddings(self, graph: TemporalGraph) -> TemporalGraph:
        """Give the types without features an embedding."""
        if all(part.x is not None for part in graph.nodes.values()):
            return graph
        cutoff = self.view.cutoff if self.embedded is None else self.embedded
        assert cutoff is not None
        nodes = dict(graph.nodes)
        for kind, x in spectral(graph, cutoff).items():
            # A past without edges gives no columns.
            if nodes[kind].x is None and x.shape[1]:
                nodes[kind] = replace(
                    nodes[kind],
                    features=x,
                    ready=True,
                )
        return graph.with_parts(nodes, dict(graph.relations))

    def model_inputs(
        self, method: Method, cutoff: int, soft: np.ndarray | None = None
    ) -> tuple[list[Hop], list[Hop]]:
        """Return feature hops and label hops of `rows`, with labels known before `cutoff`.

        With `soft`, label hops are computed from these probabilities of the rows [n, Y] instead of
        the labels.
        """
        if "snapshot" in method and self.embed != "none":
            raise InputError(
                f"'snapshot' cannot be combined with embed={self.embed!r}, which embeds the "
                f"graph as it was before the cutoff; drop one of them."
            )
        own = self._own_columns(method, cutoff)
        if "features" in method:
            return own, []
        view = self.graph.masked(cutoff)
        hops = self._aligned_hops(method, cutoff, view)
        label_hops: list[Hop] = []
        # Soft labels differ from stage to stage, so their hops are not cached.
        if "labels" in method and soft is not None:
            label_hops = self._label_hops(view, method, soft)
        elif "labels" in method:
            key = ("labels", *_hop_parts(method), cutoff)
            label_hops = self._cached(key, lambda: self._label_hops(view, method))
        if not own and not hops and not label_hops:
            raise InputError(
                "the graph has no features and the method uses no labels; "
                "pass features or add 'labels'."
            )
        return [*own, *hops], label_hops

    def _own_columns(self, method: Method, cutoff: int) -> list[Hop]:
        """Return what the model reads of a node alone: features, and columns that parts add."""
        columns: list[Hop] = []
        if self.graph.x is not None:
            columns.append(self._features(self.graph.x))
        elif "features" in method:
            raise InputError(
                "the graph has no features, so the method 'features' is not applicable."
            )
        for part in method.parts:
            if part.inputs is not None:
                # Parts may read labels, so columns are cached by cutoff.
                key = (part.name, cutoff)
                if key not in self._cache:
                    values = part.inputs(self.view.encoded().masked(cutoff), self.rows)
                    self._cache[key] = [as_hop(values)]
                columns += self._cache[key]
        return columns

    def _features(self, x: Any) -> Hop:
        """Return the features of the rows, in float32."""

        def read(index: RowIndex) -> np.ndarray:
            # From rows of the model to nodes of the graph.
            values = np.asarray(x[self.rows[index]], np.float32)
            _native.release(x)
            return values

        return ComputedHop((len(self.rows), x.shape[1]), np.dtype(np.float32), read)

    def _aligned_hops(self, method: Method, cutoff: int, view: TemporalGraph) -> list[Hop]:
        """Return the feature hops of the rows after all alignments."""
        nodes = self._nodes(method)
        hops = self._feature_hops(method, cutoff)
        for part in method.parts:
            # Targets alone are predicted: an alignment that moves only labelled nodes does nothing.
            is_needed = self.only is None or not part.labelled_only
            if part.align is not None and is_needed:
                context = HopContext(
                    graph=view,
                    nodes=nodes,
                    weighting=method.edge_weighting,
                    engine=self.engine,
                    relation_sizes=self._relation_sizes(len(hops)),
                )
                hops = part.align(hops, context)
        if len(nodes) != len(self.rows):
            # All nodes were needed for the statistics only.
            hops = [selected_hop(hop, self.rows) for hop in hops]
        return hops

    def groups(self, method: Method) -> list[list[int]]:
        """Return the positions of feature hops that belong together, those of one relation.

        On a homogeneous graph all belong together. Squashed messages that went there and back are
        joined by the node's own features, of which they are means.
        """
        num_added = sum(part.inputs is not None for part in method.parts)
        # Every matrix of the node's own columns is a group of its own.
        own = [[k] for k in range((self.graph.x is not None) + num_added)]
        if "features" in method:
            return own
        count = len(self._feature_hops(method.without("lags"), None))  # as many hops as with lags
        if not self.graph.is_hetero:
            return [list(range(len(own) + count))]
        sizes = self._relation_sizes(count)
        returns = [False] * len(sizes)
        if self.squashed and self.graph.x is not None:
            # Two steps lead there and back.
            returns = [len(path) == 2 for path in collected(self.graph)]
        groups = own
        end = len(own)
        for size, goes_back in zip(sizes, returns, strict=True):
            # Position 0 are the node's own features.
            groups.append([0] * goes_back + list(range(end, end + size)))
            end += size
        return groups

    def _relation_sizes(self, count: int) -> list[int]:
        """Return how many of `count` hops, one after the other, are of the same relation."""
        if not self.graph.is_hetero:
            return [count]
        if self.squashed:
            return [self.hops] * len(collected(self.graph))
        # Paths are sorted by their last relation, so those of one relation are neighbours.
        last = [path[-1] for path in self.paths()]
        return [last.count(triple) for triple in dict.fromkeys(last)]

    # -- paths

    @property
    def length(self) -> int:
        """Most relations of a path."""
        return max(self.hops, 2) if self.graph.is_hetero else self.hops

    def paths(self, start: str | None = None) -> list[Metapath]:
        """Return paths from types with features, or `start`, to the target, by last relation."""
        position = {triple: k for k, triple in enumerate(self.graph.relations)}
        paths = metapaths(self.graph, self.length, start=start)
        return sorted(paths, key=lambda path: position[path[-1]])

    def is_simple(self, method: Method) -> bool:
        """Tell whether one operator is applied repeatedly, which engines do best."""
        return not self.graph.is_hetero and "ends" not in method

    def _nodes(self, method: Method) -> NodeIndex:
        """Return the nodes whose hops are computed: `rows`, or all nodes.

        All are needed for the statistics of an alignment, and cost little more than `rows` where
        few are left out.
        """
        needs_all = any(part.align is not None and part.all_nodes for part in method.parts)
        if needs_all or len(self.rows) >= FEW_ROWS * self.graph.num_nodes:
            return np.arange(self.graph.num_nodes)
        return self.rows

    def _feature_hops(self, method: Method, cutoff: int | None) -> list[Hop]:
        """Return the feature hops of `_nodes(method)` before alignments."""
        for part in method.parts:
            if part.check_graph is not None:
                part.check_graph(self.graph)
        if not self.paths():
            return []
        nodes = self._nodes(method)
        # Hops depend on the cutoff only through the lags.
        key = ("hops", *_hop_parts(method), cutoff if "lags" in method else None, len(nodes))
        compute = self._repeated_hops if self.is_simple(method) else self._metapath_hops
        if self.squashed and self.graph.is_hetero:
            compute = self._squashed_hops
        return self._cached(
            key,
            lambda: self._over_time(
                self.graph, method, cutoff, nodes, lambda snapshot: compute(method, snapshot)
            ),
        )

    def _repeated_hops(self, method: Method, snapshot: Snapshot) -> list[Hop]:
        x = snapshot.graph.x
        assert x is not None  # paths begin at types with features
        operators = self._operators(method, snapshot, self.hops)
        return self.engine.hops(operators, x, rows=snapshot.rows, dtype=np.float32)

    def _metapath_hops(self, method: Method, snapshot: Snapshot) -> list[Hop]:
        hops = metapath_hops(
            snapshot.graph,
            length=self.length,
            weighting=method.edge_weighting,
            metapath_weighting=_ends_or_edges(method),
            engine=self.engine,
            rows=snapshot.rows,
            dtype=np.float32,
        )
        return [hops[path_name(path)] for path in self.paths()]

    def _squashed_hops(self, method: Method, snapshot: Snapshot) -> list[Hop]:
        width = None
        if snapshot.graph.x is None:
            # The widest features from which paths begin.
            starts = [snapshot.graph.nodes[path[0][0]].x for path in self.paths()]
            width = max(x.shape[1] for x in starts if x is not None)
        messages = squash(
            snapshot.graph,
            iterations=self.hops,
            width=width,
            weighting=method.edge_weighting,
            seed=self.seed,
            engine=self.engine,
        )
        return [
            selected_hop(hop, snapshot.node_index) for hops in messages.values() for hop in hops
        ]

    def _label_hops(
        self, view: TemporalGraph, method: Method, soft: np.ndarray | None = None
    ) -> list[Hop]:
        """Return label hops; on snapshots they read labels from before the node's own time.

        With lags, labels were known up to as long before as the cutoff lies before today.
        """
        assert view.cutoff is not None
        length = min(self.length, 2)
        label = view.label
        if soft is not None:
            # From rows [n, Y] to nodes [N, Y]; nodes without a row have no probabilities.
            label = np.zeros((view.num_nodes, view.num_labels), np.float32)
            label[self.rows] = soft
        lag = 0
        if "lags" in method:
            # Periods between the cutoff and the last one, as positions in `times`.
            lag = len(view.times) - 1 - int(np.searchsorted(view.times, view.cutoff))

        def known_label(snapshot: Snapshot) -> np.ndarray:
            """Return labels [n], or probabilities [n, Y], that were known then."""
            if snapshot.period is None:
                return label
            # Periods of nodes and of the snapshot are positions in `times`.
            is_early = view.period.astype(np.int64) < snapshot.period - lag
            # Transposed, so that the mask [N] serves codes [N] and probabilities [N, Y].
            known = np.where(is_early, label.T, -1 if label.ndim == 1 else 0).T
            # A smaller graph has the nodes up to its period, in their order.
            if snapshot.graph.num_nodes == view.num_nodes:
                return known
            return known[view.period <= snapshot.period]

        def repeated(snapshot: Snapshot) -> list[Hop]:
            return repeated_label_hops(
                self._operators(method, snapshot, length),
                known_label(snapshot),
                view.num_labels,
                self.engine,
                rows=snapshot.node_index,
            )

        def along_metapaths(snapshot: Snapshot) -> list[Hop]:
            hops = metapath_label_hops(
                snapshot.graph,
                length=length,
                weighting=method.edge_weighting,
                metapath_weighting=_ends_or_edges(method),
                engine=self.engine,
                label=known_label(snapshot),
            )
            return [selected_hop(hop, snapshot.node_index) for hop in hops.values()]

        compute = repeated if self.is_simple(method) else along_metapaths
        return self._over_time(view, method, view.cutoff, self.rows, compute)

    def _operators(self, method: Method, snapshot: Snapshot, hops: int) -> list[Operator]:
        return self.engine.operators(
            hops,
            snapshot.graph,
            own_relation(snapshot.graph),
            weighting=method.edge_weighting,
            last=snapshot.hidden_after,
        )

    # -- snapshots

    def snapshot(
        self, graph: TemporalGraph, method: Method, period: int | None, nodes: NodeIndex
    ) -> Snapshot:
        """Return the graph as it was in a period (None for today), with the positions of nodes."""
        # Edges without times come with their nodes, so a table of weights can hide them.
        if period is None or (self.is_simple(method) and self.view.edge_time is None):
            return Snapshot(graph, nodes, period, hidden_after=period)
        # From the user's edges: where several were merged, the merged one has today's weight.
        original = graph.with_parts(dict(graph.nodes), dict(self.view.relations))
        earlier = self.engine.graph(
            original, upto=int(graph.times[period]), undirected=self.undirected
        )
        # Nodes stay in order, so a new position is the number of earlier nodes before it.
        position = np.cumsum(graph.period <= period) - 1
        return Snapshot(earlier, position[nodes], period, hidden_after=None)

    def _over_time(
        self,
        graph: TemporalGraph,
        method: Method,
        cutoff: int | None,
        nodes: NodeIndex,
        compute: Callable[[Snapshot], list[Hop]],
    ) -> list[Hop]:
        """Return the hops of today's graph, or, on snapshots, a node's rows of its snapshot."""
        if "snapshot" not in method:
            return compute(self.snapshot(graph, method, None, nodes))
        results: list[np.ndarray] = []
        # By position in `nodes`.
        observed = self._observed_in(method, cutoff)[nodes]
        for first, last in _runs(self.graph.counts, MOST_SNAPSHOTS):
            # Positions in `nodes`, not in the graph.
            rows = np.flatnonzero((observed >= first) & (observed <= last))
            if not len(rows):
                continue
            # A run of periods shares the snapshot of its last one.
            hops = compute(self.snapshot(graph, method, last, nodes[rows]))
            if not results:
                shapes = [(len(nodes), hop.shape[1]) for hop in hops]
                results = [self.engine.empty(shape, np.float32) for shape in shapes]
            for result, hop in zip(results, hops, strict=True):
                # The hop has one row per node of this snapshot, in the same order.
                result[rows] = hop.rows(np.arange(len(rows)))
                _native.release(result)
        return [self.engine.stored(result) for result in results]

    def snapshot_period(self, method: Method, cutoff: int, node: int) -> int | None:
        """Return the period of the snapshot that a node reads; None for today's graph."""
        if "snapshot" not in method:
            return None
        observed = self._observed_in(method, cutoff)[node]
        runs = _runs(self.graph.counts, MOST_SNAPSHOTS)
        return next(last for first, last in runs if first <= observed <= last)

    def _observed_in(self, method: Method, cutoff: int | None) -> np.ndarray:
        """Return the period in which each node is observed: its own, or, with lags, a later one.

        Targets are observed today. The lag of a labelled node is that of a random target. With a
        single period of targets there is no lag.
        """
        period = self.graph.period.astype(np.int64)
        if "lags" not in method or cutoff is None:
            return period
        today = len(self.graph.times) - 1
        is_target = self.graph.time >= cutoff
        generator = np.random.default_rng(self.seed)
        # A lag in periods for every node, drawn from those of the targets.
        lag = generator.choice(today - period[is_target], len(period))
        return np.where(is_target, today, np.minimum(period + lag, today))

    def _cached(self, key: tuple[object, ...], compute: Callable[[], list[Hop]]) -> list[Hop]:
        if key not in self._cache:
            self._cache[key] = compute()
        return self._cache[key]


def _ends_or_edges(method: Method) -> str:
    return "ends" if "ends" in method else "edges"


def _hop_parts(method: Method) -> tuple[object, ...]:
    """Return the parts that hops depend on, as a key."""
    return method.weighting, "snapshot" in method, "lags" in method, "ends" in method


def _runs(counts: np.ndarray, most: int) -> list[tuple[int, int]]:
    """Group periods into at most `most` runs (first, last) of about equally many nodes.

    The last periods stay single.
    """
    size = len(counts)
    if size <= most:
        return [(k, k) for k in range(size)]
    # Half of the snapshots are the last periods alone; earlier periods share the others.
    num_early = size - most // 2
    num_groups = most - most // 2
    # by early period: the share of nodes up to it, and so its group
    share = np.cumsum(counts[:num_early]) / max(counts[:num_early].sum(), 1)
    group = np.minimum((share * num_groups).astype(int), num_groups - 1)
    # The first period of every group.
    borders = [*np.flatnonzero(np.diff(group, prepend=-1)).tolist(), num_early]
    runs = [(first, end - 1) for first, end in itertools.pairwise(borders)]
    return runs + [(k, k) for k in range(num_early, size)]
