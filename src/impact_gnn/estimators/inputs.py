"""`Inputs`: the hops of features and labels that models read, computed once per fold.

A graph passes through three stages: the *view* is the user's graph with labels masked from the
cutoff on; `Inputs.graph` is the view with encoded features and edges in the directions of messages;
a *snapshot* is that graph as it was in a period. *Today* is the last period.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy import ndarray

from impact_gnn import _native, checks
from impact_gnn.checks import InputError
from impact_gnn.engines.engine import FEW_ROWS, Engine
from impact_gnn.engines.hop import ComputedHop, Hop, as_hop, selected_hop
from impact_gnn.engines.memory import Memory
from impact_gnn.engines.operator import Operator
from impact_gnn.graph import TemporalGraph
from impact_gnn.methods import HopContext, Method, Part
from impact_gnn.propagation.degrees import degrees
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

NodeIndex: TypeAlias = ndarray
"""Positions of nodes in the graph, among the nodes of their type."""

RowIndex: TypeAlias = ndarray
"""Positions among the rows that a model reads."""

Period: TypeAlias = int  # position in `graph.times`
Run: TypeAlias = tuple[Period, Period]  # first and last of consecutive periods
Time: TypeAlias = int  # value as in `graph.time`; a cutoff is one

OWN_FEATURES = 0  # position of the node's own features among the feature hops
MOST_HOPS = 100
MOST_SNAPSHOTS = 64  # with more periods, consecutive ones share a snapshot


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The graph as it was in a period (None for today), and the positions of some nodes in it.

    There are two kinds. Where a table of weights can hide later edges, `graph` is the whole graph;
    otherwise it is a smaller one without later nodes and edges (`Inputs.snapshot` decides).

    Args:
        graph: The whole or the smaller graph.
        node_index: The nodes that read this snapshot, by their positions in its `graph`.
        period: The last visible period.
        labels_before: The first period whose nodes read this snapshot: only labels of earlier
            nodes are visible to them.
        is_smaller_graph: Whether nodes have other positions than in the whole graph.
    """

    graph: TemporalGraph
    node_index: NodeIndex
    period: Period | None
    labels_before: Period | None
    is_smaller_graph: bool = False

    @property
    def hidden_after(self) -> Period | None:
        """Nodes after this period have weight 0 in messages; None if there are no such nodes."""
        return None if self.is_smaller_graph else self.period

    @property
    def node_index_or_all(self) -> NodeIndex | None:
        """The positions of the nodes; None for all nodes, as engines take `rows`."""
        return None if len(self.node_index) == self.graph.num_nodes else self.node_index

    def visible_label(self, label: ndarray, whole: TemporalGraph) -> ndarray:
        """Return labels [N], or probabilities [N, Y]; −1, or zeros, where not known then.

        Nodes are those of the whole graph, before and after.
        """
        if self.labels_before is None:
            return label
        visible = np.array(label)
        is_known = whole.is_over(int(whole.times[self.labels_before]))
        visible[~is_known] = -1 if label.ndim == 1 else 0
        return visible


@dataclass(frozen=True, eq=False)
class Inputs:
    """The hops of a graph by method, computed on request and cached.

    Labels enter only through `model_inputs(method, cutoff)`, and only those before that cutoff.
    Row k of all matrices belongs to node `row_nodes[k]`. Rows are the nodes with a label and all
    nodes from the last labelled period on, or `predicted_nodes` alone.

    Args:
        view: The graph, from `masked(cutoff)`.
        hops: Steps along the edges; between several node types the relations of a metapath, at
            least in and back.
        undirected: Let messages run in both directions of every edge.
        engine: Where to propagate.
        squashed: Between several node types, squash metapaths by random projections (RpHGNN)
            instead of storing each; `hops` is then the number of iterations.
        predicted_nodes: Positions of the nodes that a fitted model predicts, if those are all it
            reads; in any order, as often as the user asks for them.
    """

    view: TemporalGraph
    hops: int = 2
    undirected: bool = True
    engine: Engine = field(default_factory=Memory)
    squashed: bool = False
    predicted_nodes: NodeIndex | None = None
    graph: TemporalGraph = field(init=False)
    row_nodes: NodeIndex = field(init=False)
    _cache: dict[tuple[object, ...], list[Hop]] = field(
        default_factory=dict, init=False, repr=False
    )

    def __post_init__(self) -> None:
        view = self.view
        if checks.at_least("hops", self.hops, 0) > MOST_HOPS:
            raise InputError(
                f"hops={self.hops} is more than {MOST_HOPS}, which averages over most of the "
                "graph; use 2 or 3."
            )
        view.require_cutoff("inputs need")
        # Encoded once: snapshots and views with fewer labels have the same features.
        graph = self.engine.graph(view.encoded(), undirected=self.undirected)
        object.__setattr__(self, "graph", graph)
        # Without any features that reach the target nodes, models read their degrees.
        if graph.x is None and not self._sources():
            object.__setattr__(self, "graph", graph.with_features(degrees(view)))
        if self.predicted_nodes is None:
            last = view.time[view.label >= 0].max()
            row_nodes = np.flatnonzero((view.label >= 0) | (view.time >= last))
        else:
            # Each once and in order: if there are as many as nodes, row k is node k.
            row_nodes = np.unique(self.predicted_nodes)
        what = f"probabilities of {len(row_nodes):,} nodes and {view.num_labels:,} classes"
        checks.fits(what, 8 * len(row_nodes) * view.num_labels, "merge rare classes")
        object.__setattr__(self, "row_nodes", row_nodes)

    def model_inputs(
        self, method: Method, cutoff: Time, soft: ndarray | None = None
    ) -> tuple[list[Hop], list[Hop]]:
        """Return feature hops and label hops of `row_nodes`, with labels known before `cutoff`.

        `cutoff` may be earlier than the view's own: validation hides more labels. With `soft`,
        label hops are computed from these probabilities of the rows [n, Y] instead of the labels.
        """
        for part in method.parts:
            if part.proportions is not None:
                return [], self._proportions(part, cutoff)
        own = self._own_columns(method, cutoff)
        # The part "features" stands for a node's own features alone.
        if "features" in method:
            return own, []
        masked_graph = self.graph.masked(cutoff)
        hops = self._aligned_hops(method, masked_graph)
        label_hops: list[Hop] = []
        # Soft labels differ from stage to stage, so their hops are not cached.
        if "labels" in method and soft is not None:
            label_hops = self._label_hops(masked_graph, method, soft)
        elif "labels" in method:
            key = ("labels", *_hop_parts(method), cutoff)
            label_hops = self._cached(key, lambda: self._label_hops(masked_graph, method))
        if not own and not hops and not label_hops:
            raise InputError(
                "the graph has no features and the method uses no labels; "
                "pass features or add 'labels'."
            )
        return [*own, *hops], label_hops

    def _own_columns(self, method: Method, cutoff: Time) -> list[Hop]:
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
                    # From the view: the user's edges, without reverses.
                    values = part.inputs(self.view.encoded().masked(cutoff), self.row_nodes)
                    self._cache[key] = [as_hop(values)]
                columns += self._cache[key]
        return columns

    def _proportions(self, part: Part, cutoff: Time) -> list[Hop]:
        """Return the class proportions that a part reads instead of features and messages."""
        hook = part.proportions
        assert hook is not None
        view = self.view.masked(cutoff)
        # Parts read labels, so matrices are cached by cutoff.
        return self._cached(
            (part.name, cutoff), lambda: list(map(as_hop, hook(view, self.row_nodes)))
        )

    def _features(self, x: Any) -> Hop:
        """Return the features of the rows, in float32."""

        def read(index: RowIndex) -> ndarray:
            # From rows of the model to nodes of the graph.
            values = np.asarray(x[self.row_nodes[index]], np.float32)
            _native.release(x)
            return values

        return ComputedHop((len(self.row_nodes), x.shape[1]), np.dtype(np.float32), read)

    def _aligned_hops(self, method: Method, masked_graph: TemporalGraph) -> list[Hop]:
        """Return the feature hops of the rows after all alignments."""
        nodes = self._hop_nodes(method)
        hops = self._feature_hops(method)
        for part in method.parts:
            # Nodes to predict have no labels: an alignment of labelled nodes does nothing to them.
            is_needed = self.predicted_nodes is None or not part.labelled_only
            if part.align is not None and is_needed:
                context = HopContext(
                    graph=masked_graph,
                    nodes=nodes,
                    weighting=method.edge_weighting,
                    engine=self.engine,
                    relation_sizes=self._relation_sizes(len(hops)),
                )
                hops = part.align(hops, context)
        if len(nodes) != len(self.row_nodes):
            # All nodes were needed for the statistics only.
            hops = [selected_hop(hop, self.row_nodes) for hop in hops]
        return hops

    def groups(self, method: Method) -> list[list[int]]:
        """Return the positions of feature hops that belong together, those of one relation.

        On a homogeneous graph all belong together. Squashed messages of a round trip are joined by
        the node's own features, of which they are means.
        """
        if any(part.proportions is not None for part in method.parts):
            return []
        num_added = sum(part.inputs is not None for part in method.parts)
        # Every matrix of the node's own columns is a group of its own; hops follow them.
        groups = [[k] for k in range((self.graph.x is not None) + num_added)]
        if "features" in method:
            return groups
        num_hops = len(self._feature_hops(method))
        first = len(groups)
        if not self.graph.is_hetero:
            return [list(range(first + num_hops))]
        # No features reach the target nodes.
        if not num_hops:
            return groups
        sizes = self._relation_sizes(num_hops)
        round_trips = [False] * len(sizes)
        if self.squashed and self.graph.x is not None:
            # Two steps lead there and back.
            round_trips = [len(path) == 2 for path in collected(self.graph)]
        for size, is_round_trip in zip(sizes, round_trips, strict=True):
            group = list(range(first, first + size))
            if is_round_trip:
                group.insert(0, OWN_FEATURES)
            groups.append(group)
            first += size
        return groups

    def _relation_sizes(self, num_hops: int) -> list[int]:
        """Return the number of hops per last relation, in hop order; they sum to `num_hops`."""
        if not self.graph.is_hetero:
            return [num_hops]
        if self.squashed:
            return [self.hops] * len(collected(self.graph))
        # Paths are sorted by their last relation, so those of one relation are neighbours.
        last = [path[-1] for path in self.paths()]
        return [last.count(triple) for triple in dict.fromkeys(last)]

    # -- paths

    @property
    def max_path_length(self) -> int:
        """Largest number of relations in a path."""
        return max(self.hops, 2) if self.graph.is_hetero else self.hops

    def paths(self, start: str | None = None) -> list[Metapath]:
        """Return paths from types with features, or `start`, to the target type.

        They are sorted by their last relation.
        """
        position = {triple: k for k, triple in enumerate(self.graph.relations)}
        paths = metapaths(self.graph, self.max_path_length, start=start)
        return sorted(paths, key=lambda path: position[path[-1]])

    def _sources(self) -> set[str]:
        """Return the types with features at which paths begin, without listing the paths."""
        starts: set[str] = set()
        reached = {self.graph.target}
        # One step backwards from all types that were reached by the step before.
        for _ in range(checks.at_least("hops", self.max_path_length, 1)):
            reached = {triple[0] for triple in self.graph.relations if triple[2] in reached}
            starts |= reached
        return {kind for kind in starts if self.graph.nodes[kind].x is not None}

    def is_simple(self, method: Method) -> bool:
        """Tell whether one operator is applied repeatedly, which engines do best."""
        return not self.graph.is_hetero and "ends" not in method

    def _hop_nodes(self, method: Method) -> NodeIndex:
        """Return the nodes whose hops are computed: `row_nodes`, or all nodes.

        All are needed for the statistics of an alignment, and cost little more than `row_nodes`
        where few are left out.
        """
        needs_all = any(part.align is not None and part.all_nodes for part in method.parts)
        if needs_all or len(self.row_nodes) >= FEW_ROWS * self.graph.num_nodes:
            return np.arange(self.graph.num_nodes)
        return self.row_nodes

    def _feature_hops(self, method: Method) -> list[Hop]:
        """Return the feature hops of `_hop_nodes(method)` before alignments."""
        for part in method.parts:
            if part.check_graph is not None:
                part.check_graph(self.graph)
        if not self._sources():
            return []
        nodes = self._hop_nodes(method)
        key = ("hops", *_hop_parts(method), nodes is self.row_nodes)
        compute = self._repeated_hops if self.is_simple(method) else self._metapath_hops
        if self.squashed and self.graph.is_hetero:
            compute = self._squashed_hops
        on_snapshot = partial(compute, method)
        return self._cached(key, lambda: self._over_time(self.graph, method, nodes, on_snapshot))

    def _repeated_hops(self, method: Method, snapshot: Snapshot) -> list[Hop]:
        x = snapshot.graph.x
        assert x is not None  # paths begin at types with features
        operators = self._operators(method, snapshot, self.hops)
        return self.engine.hops(operators, x, rows=snapshot.node_index_or_all, dtype=np.float32)

    def _metapath_hops(self, method: Method, snapshot: Snapshot) -> list[Hop]:
        hops = metapath_hops(
            snapshot.graph,
            length=self.max_path_length,
            weighting=method.edge_weighting,
            metapath_weighting=_ends_or_edges(method),
            engine=self.engine,
            rows=snapshot.node_index_or_all,
            dtype=np.float32,
        )
        return [hops[path_name(path)] for path in self.paths()]

    def _squashed_hops(self, method: Method, snapshot: Snapshot) -> list[Hop]:
        width = None
        if snapshot.graph.x is None:
            # The widest features from which paths begin.
            width = max(snapshot.graph.nodes[kind].num_features or 0 for kind in self._sources())
        messages = squash(
            snapshot.graph,
            iterations=self.hops,
            width=width,
            weighting=method.edge_weighting,
            engine=self.engine,
        )
        return [
            selected_hop(hop, snapshot.node_index) for hops in messages.values() for hop in hops
        ]

    def _label_hops(
        self, masked_graph: TemporalGraph, method: Method, soft: ndarray | None = None
    ) -> list[Hop]:
        """Return label hops of `row_nodes`, from labels or from probabilities of the rows.

        On snapshots, a node reads labels of earlier periods. Where a run of periods shares a
        snapshot (`_runs`), these are the periods before the run.
        """
        length = min(self.max_path_length, 2)
        label = masked_graph.label
        if soft is not None:
            # From rows [n, Y] to nodes [N, Y]; nodes without a row have no probabilities.
            label = np.zeros((masked_graph.num_nodes, masked_graph.num_labels), np.float32)
            label[self.row_nodes] = soft

        def visible_label(snapshot: Snapshot) -> ndarray:
            visible = snapshot.visible_label(label, masked_graph)
            if not snapshot.is_smaller_graph:
                return visible
            # A smaller graph has the nodes up to its period, in their order.
            return visible[masked_graph.period <= snapshot.period]

        def repeated(snapshot: Snapshot) -> list[Hop]:
            return repeated_label_hops(
                self._operators(method, snapshot, length),
                visible_label(snapshot),
                masked_graph.num_labels,
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
                label=visible_label(snapshot),
            )
            return [selected_hop(hop, snapshot.node_index) for hop in hops.values()]

        compute = repeated if self.is_simple(method) else along_metapaths
        return self._over_time(masked_graph, method, self.row_nodes, compute)

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
        self, graph: TemporalGraph, method: Method, run: Run | None, nodes: NodeIndex
    ) -> Snapshot:
        """Return the graph as it was at the end of a run of periods, with the positions of nodes.

        Without a run it is today's graph.
        """
        first, last = run or (None, None)
        # Edges without times come with their nodes, so a table of weights can hide them.
        if last is None or (self.is_simple(method) and self.view.edge_time is None):
            return Snapshot(graph, nodes, last, labels_before=first)
        # From the user's edges: where several were merged, the merged one has today's weight.
        original = graph.with_parts(dict(graph.nodes), dict(self.view.relations))
        earlier = self.engine.graph(
            original, upto=int(graph.times[last]), undirected=self.undirected
        )
        # Nodes stay in order, so a new position is the number of visible nodes before it.
        position = np.cumsum(graph.period <= last) - 1
        return Snapshot(earlier, position[nodes], last, labels_before=first, is_smaller_graph=True)

    def _over_time(
        self,
        graph: TemporalGraph,
        method: Method,
        nodes: NodeIndex,
        compute: Callable[[Snapshot], list[Hop]],
    ) -> list[Hop]:
        """Return hops of today's graph, or hops whose rows come from the snapshot of their node."""
        if "snapshot" not in method:
            return compute(self.snapshot(graph, method, None, nodes))
        results: list[ndarray] = []
        period = self.graph.period[nodes]
        for run in _runs(self.graph.counts, MOST_SNAPSHOTS):
            first, last = run
            # Positions in `nodes`, not in the graph.
            in_run = np.flatnonzero((period >= first) & (period <= last))
            if not len(in_run):
                continue
            # A run of periods shares the snapshot of its last one.
            hops = compute(self.snapshot(graph, method, run, nodes[in_run]))
            if not results:
                shapes = [(len(nodes), hop.shape[1]) for hop in hops]
                results = [self.engine.empty(shape, np.float32) for shape in shapes]
            for result, hop in zip(results, hops, strict=True):
                # The hop has one row per node of this snapshot, in the same order.
                result[in_run] = hop.rows(np.arange(len(in_run)))
                _native.release(result)
        return [self.engine.stored(result) for result in results]

    def snapshot_run(self, method: Method, node: int) -> Run | None:
        """Return the run of periods whose snapshot a node reads; None for today's graph."""
        if "snapshot" not in method:
            return None
        runs = _runs(self.graph.counts, MOST_SNAPSHOTS)
        return next(run for run in runs if run[0] <= self.graph.period[node] <= run[1])

    def _cached(self, key: tuple[object, ...], compute: Callable[[], list[Hop]]) -> list[Hop]:
        if key not in self._cache:
            self._cache[key] = compute()
        return self._cache[key]


def _ends_or_edges(method: Method) -> str:
    return "ends" if "ends" in method else "edges"


def _hop_parts(method: Method) -> tuple[object, ...]:
    """Return the parts that hops depend on, as a key."""
    return method.weighting, "snapshot" in method, "ends" in method


def _runs(counts: ndarray, most: int) -> list[Run]:
    """Group periods into at most `most` runs of about equally many nodes.

    The last periods stay single.
    """
    size = len(counts)
    if size <= most:
        return [(k, k) for k in range(size)]
    # Half of the snapshots are the last periods alone; earlier periods share the others.
    num_early = size - most // 2
    num_groups = most - most // 2
    # The share of nodes up to every early period decides its group.
    share = np.cumsum(counts[:num_early]) / max(counts[:num_early].sum(), 1)
    group = np.minimum((share * num_groups).astype(int), num_groups - 1)
    # The first period of every group.
    borders = [*np.flatnonzero(np.diff(group, prepend=-1)).tolist(), num_early]
    runs = [(first, end - 1) for first, end in itertools.pairwise(borders)]
    return runs + [(k, k) for k in range(num_early, size)]
