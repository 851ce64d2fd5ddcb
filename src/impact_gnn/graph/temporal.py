"""`TemporalGraph`: nodes with a time, labels for the past, and relations; immutable."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from impact_gnn import _files, _native, checks
from impact_gnn._array import smallest_unsigned
from impact_gnn._codec import encode
from impact_gnn.checks import InputError, listing
from impact_gnn.encoding import Encoder
from impact_gnn.graph import storage
from impact_gnn.graph.csr import CSR, EdgesByNode, build_csr, earliest, merged
from impact_gnn.graph.graph_summary import GraphSummary
from impact_gnn.graph.parts import HOMOGENEOUS, Nodes, Relation, Triple, class_name, classes
from impact_gnn.graph.periods import Periods
from impact_gnn.graph.timeline import Timeline

SEVERAL = 3  # target nodes of an entity from which on it has a history
SETTINGS = ("target", "num_labels", "label_names", "cutoff", "periods", "label_delay")


class TemporalGraph:
    """A graph whose nodes carry a time; homogeneous, or `TemporalGraph.hetero`.

    All input is validated here, once. Arrays (numpy or memory maps) are not copied and are
    read-only. Methods never receive labels at or after a cutoff: they get the view
    `masked(cutoff)`, which does not contain them.

    Args:
        x: Features [N, f], raw `Columns` of a table, or None.
        y: Labels [N], −1 where unknown, or None.
        time: Integer time [N]; any integers, gaps allowed.
        edge_index: Edges source → target [2, E].
        edge_weight: One non-negative weight per edge [E], or None.
        edge_time: Time of every edge [E], in the units of `time`, or None if unknown.
        num_labels: Number of classes; by default the largest label plus one, or, of codes with wide
            gaps from 1000 on, as many as occur (`label_names` then holds the codes).
        ids: The user's own node names [N], carried through to predictions.
        label_names: The user's own coding of labels 0, 1, 2, ...
        periods: How times map to whole numbers and names; None for whole numbers as they are.

    Examples:
        >>> time = [2019, 2020, 2021]
        >>> g = TemporalGraph(x=np.eye(3), y=[0, 1, -1], time=time, edge_index=[[0, 1], [1, 2]])
        >>> g
        TemporalGraph(3 nodes, 2 edges, 3 features, 2 classes, times 2019..2021)
        >>> g.upto(2020).num_nodes
        2
    """

    nodes: Mapping[str, Nodes]
    relations: Mapping[Triple, Relation]
    target: str
    num_labels: int
    label_names: Sequence[Any] | None
    cutoff: int | None
    periods: Periods | None
    label_delay: float

    def __init__(
        self,
        *,
        x: Any = None,
        y: Any = None,
        time: Any,
        edge_index: Any,
        edge_weight: Any = None,
        edge_time: Any = None,
        num_labels: int | None = None,
        ids: Any = None,
        label_names: Sequence[Any] | None = None,
        periods: Periods | None = None,
    ) -> None:
        num_labels = None if num_labels is None else checks.class_count(num_labels)
        nodes = {"node": Nodes.checked("", {"x": x, "y": y, "time": time, "ids": ids}, num_labels)}
        arrays = {"edge_index": edge_index, "weight": edge_weight, "time": edge_time}
        relations = {HOMOGENEOUS: Relation.checked(HOMOGENEOUS, arrays, nodes, "edge_index")}
        nodes["node"], count, label_names = classes(nodes["node"], num_labels, label_names)
        self._set(
            nodes=nodes,
            relations=relations,
            target="node",
            num_labels=count,
            label_names=label_names,
            cutoff=None,
            periods=periods,
            label_delay=0.0,
        )

    @classmethod
    def hetero(
        cls,
        *,
        nodes: Mapping[str, Mapping[str, Any]],
        edges: Mapping[Triple, Any],
        target: str,
        num_labels: int | None = None,
        label_names: Sequence[Any] | None = None,
        periods: Periods | None = None,
        label_delay: float = 0.0,
    ) -> TemporalGraph:
        """A graph of several node types.

        Args:
            nodes: For each type a mapping with any of `x`, `y`, `time`, `timestamp`, `ids`,
                `num_nodes`. A timestamp is the exact time within the period `time`.
            edges: For each relation (source type, name, target type) its `edge_index`, or
                (`edge_index`, weight), or a mapping with `edge_index` and any of `weight`, `time`.
            target: The type to classify; it needs a time.
            num_labels: Number of classes of the target type.
            label_names: The user's own coding of labels 0, 1, 2, ...
            periods: How times became whole numbers; None for numbers as they are.
            label_delay: How long after a node's own time its label becomes known, in units of
                its timestamp (days if times are dates). History features wait that long.

        Examples:
            >>> g = TemporalGraph.hetero(
            ...     nodes={
            ...         "paper": dict(x=np.ones((2, 4)), y=[0, -1], time=[0, 1]),
            ...         "author": dict(num_nodes=1),
            ...     },
            ...     edges={("author", "writes", "paper"): [[0, 0], [0, 1]]}, target="paper")
            >>> g
            TemporalGraph(2 paper (target), 1 author, 2 author-writes-paper, 4 features, 1 classes,
            times 0..1)
        """
        if (
            not isinstance(nodes, Mapping)
            or not nodes
            or not all(isinstance(kind, str) and kind for kind in nodes)
        ):
            raise InputError(
                "nodes must be a mapping from node type to its arrays, with at least one type."
            )
        if not isinstance(edges, Mapping) or not edges:
            raise InputError(
                "edges is empty; "
                "pass at least one relation {(source type, name, target type): edges}."
            )
        num_labels = None if num_labels is None else checks.class_count(num_labels)
        if not isinstance(target, str) or target not in nodes:
            raise InputError(
                f"target={checks.quoted(target)} is not a node type; "
                f"choose one of {listing(list(nodes))}."
            )
        checked = {
            kind: Nodes.checked(
                kind, part, num_labels if kind == target else None, may_be_empty=kind != target
            )
            for kind, part in nodes.items()
        }
        if checked[target].time is None:
            raise InputError(
                f"the target type {target!r} has no time; pass nodes[{target!r}]['time']."
            )
        relations = {
            triple: Relation.checked(triple, arrays, checked) for triple, arrays in edges.items()
        }
        _refuse_equal_names(relations)
        checked[target], count, label_names = classes(checked[target], num_labels, label_names)
        out = cls.__new__(cls)
        out._set(
            nodes=checked,
            relations=relations,
            target=target,
            num_labels=count,
            label_names=label_names,
            cutoff=None,
            periods=periods,
            label_delay=checks.label_delay(label_delay),
        )
        return out

    # -- what is in it

    @property
    def x(self) -> np.ndarray | None:
        """Features of the target type [N, f]."""
        return self.nodes[self.target].x

    @property
    def y(self) -> np.ndarray | None:
        """Labels of the target type [N], −1 unknown."""
        return self.nodes[self.target].y

    @property
    def label(self) -> np.ndarray:
        """`y` of a graph that has labels, as every view does."""
        assert self.y is not None
        return self.y

    @property
    def time(self) -> np.ndarray:
        """Times of the target type [N]."""
        time = self.nodes[self.target].time
        assert time is not None  # checked on entry
        return time

    @property
    def timestamp(self) -> np.ndarray:
        """Exact times of the target type [N] (days if they are dates); `time` without such."""
        timestamp = self.nodes[self.target].timestamp
        return self.time.astype(np.float64) if timestamp is None else timestamp

    @property
    def ids(self) -> np.ndarray:
        """The user's names of the target nodes; their positions where none were given."""
        ids = self.nodes[self.target].ids
        return np.arange(self.num_nodes) if ids is None else ids

    @property
    def num_nodes(self) -> int:
        return self.nodes[self.target].num_nodes

    @property
    def is_hetero(self) -> bool:
        """Whether there is more than the one type and relation of a homogeneous graph."""
        return tuple(self.relations) != (HOMOGENEOUS,)

    @property
    def has_untimed_edges(self) -> bool:
        """Whether a relation joins two types without a time, and has none of its own."""
        return any(
            relation.time is None
            and self.nodes[triple[0]].time is None
            and self.nodes[triple[2]].time is None
            for triple, relation in self.relations.items()
        )

    @property
    def edge_index(self) -> np.ndarray:
        """Edges of a homogeneous graph [2, E]."""
        return self._only().edge_index

    @property
    def edge_weight(self) -> np.ndarray | None:
        """Edge weights of a homogeneous graph [E], or None."""
        return self._only().weight

    @property
    def edge_time(self) -> np.ndarray | None:
        """Times of the edges of a homogeneous graph [E], or None where they are not known."""
        return self._only().time

    @cached_property
    def timeline(self) -> Timeline:
        """The distinct times and the nodes per time; a neighbourhood has those of its graph."""
        return Timeline.of(
            {kind: part.time for kind, part in self.nodes.items() if part.time is not None}
        )

    @property
    def times(self) -> np.ndarray:
        """The sorted distinct times of all types that have one."""
        return self.timeline.times

    @cached_property
    def period(self) -> np.ndarray:
        """For every target node the position of its time in `times`."""
        return self.period_of(self.target)

    @property
    def counts(self) -> np.ndarray:
        """Nodes of the target type per time."""
        return self.timeline.counts[self.target]

    @cached_property
    def has_entity_history(self) -> bool:
        """Whether most entities of some type have `SEVERAL` target nodes, of different times."""
        for (source, _, target), relation in self.relations.items():
            if (source == self.target) == (target == self.target):
                continue
            # Target nodes first, then the entities at the other end.
            row, entity = relation.edge_index[:: 1 if source == self.target else -1]
            count = np.bincount(entity)
            # First and last time of the target nodes of every entity.
            first = np.full(len(count), np.inf)
            last = -first
            np.minimum.at(first, entity, self.timestamp[row])
            np.maximum.at(last, entity, self.timestamp[row])
            # Several nodes of one time are no history.
            has_several = (count >= SEVERAL) & (first < last)
            num_entities = max(np.count_nonzero(count), 1)
            if 2 * has_several.sum() >= num_entities:
                return True
        return False

    def period_of(self, kind: str) -> np.ndarray:
        """For every node of a timed type the position of its time in `times`."""
        time = self.nodes[kind].time
        if time is None:
            raise InputError(
                f"nodes of type {kind!r} have no time; pass one or leave the type unweighted."
            )
        if kind not in self._periods:
            # In the smallest type: kernels read a period for every edge.
            self._periods[kind] = np.searchsorted(self.times, time).astype(
                smallest_unsigned(len(self.times))
            )
            self._periods[kind].flags.writeable = False
        return self._periods[kind]

    def csr(self, relation: Triple | None = None) -> CSR:
        """The relation's edges grouped by target; computed once. `None` means the only relation."""
        relation = self.relation_name(relation)
        if relation not in self._csr:
            part = self.relations[relation]
            sizes = self.nodes[relation[0]].num_nodes, self.nodes[relation[2]].num_nodes
            self._csr[relation] = build_csr(
                part.edge_index[0], part.edge_index[1], *sizes, part.weight
            )
        return self._csr[relation]

    def edges_at(self, relation: Triple, end: int) -> EdgesByNode:
        """Edges of a relation by the node at one end: 0 (source) or 1 (target); computed once."""
        if (relation, end) not in self._edges_at:
            nodes = self.nodes[relation[2 * end]]
            ends = self.relations[relation].edge_index[end]
            self._edges_at[relation, end] = EdgesByNode.of(ends, nodes.num_nodes)
        return self._edges_at[relation, end]

    def cache_edges_at(self, relation: Triple, end: int, csr: CSR) -> None:
        """Remembers how the first edges of a relation are grouped, as a saved graph has them."""
        nodes = self.nodes[relation[2 * end]]
        ends = self.relations[relation].edge_index[end]
        self._edges_at[relation, end] = EdgesByNode.of(ends, nodes.num_nodes, csr)

    def cached_csr(self, relation: Triple) -> CSR | None:
        """The relation's edges grouped by target if that has been done, here or by an engine."""
        return self._csr.get(relation)

    def cache_csr(self, relation: Triple, csr: CSR) -> None:
        """Remembers the relation's edges as an engine has grouped them."""
        self._csr[relation] = csr

    def summary(self) -> GraphSummary:
        """Sizes, periods, labels per period, the share of edges across times, and edge times."""
        num_times = len(self.times)
        labels = np.full(self.num_nodes, -1) if self.y is None else self.y
        cross_time_share = {}
        edge_times = {}
        for triple, relation in self.relations.items():
            name = "-".join(triple)
            source_time = self.nodes[triple[0]].time
            target_time = self.nodes[triple[2]].time
            if source_time is not None and target_time is not None and relation.num_edges:
                source, target = relation.edge_index
                # block by block: edges may be in a file
                num_unequal = sum(
                    np.count_nonzero(source_time[source[block]] != target_time[target[block]])
                    for block in _native.blocks(relation.edge_index, 1)
                )
                cross_time_share[name] = num_unequal / relation.num_edges
            time = relation.time
            if time is not None and relation.num_edges:
                ends = (int(time.min()), int(time.max()))
                edge_times[name] = self.name_of(ends[0]), self.name_of(ends[1])
        return GraphSummary(
            num_nodes={kind: part.num_nodes for kind, part in self.nodes.items()},
            num_edges={"-".join(triple): part.num_edges for triple, part in self.relations.items()},
            num_features=self.nodes[self.target].num_features,
            target=self.target,
            times=self.times.tolist(),
            names=[self.name_of(time) for time in self.times.tolist()],
            nodes_per_time=self.counts.tolist(),
            labelled_per_time=np.bincount(self.period[labels >= 0], minlength=num_times).tolist(),
            label_counts=np.bincount(labels[labels >= 0], minlength=self.num_labels).tolist(),
            cutoff=self.cutoff,
            since=None if self.cutoff is None else self.name_of(self.cutoff),
            cross_time_share=cross_time_share,
            edge_times=edge_times,
            warnings=[
                warning
                for part in self.nodes.values()
                if part.columns is not None
                for warning in part.columns.warnings
            ],
        )

    # -- time

    def name_of(self, t: int) -> str:
        """The name of a time for users: "2021-Q3"."""
        return str(t) if self.periods is None else self.periods.name(t)

    def when(self, value: Any, name: str = "cutoff") -> int:
        """The time that a whole number, a date or the name of a period means.

        Examples:
            >>> months = Periods("month")
            >>> no_edges = np.zeros((2, 0), int)
            >>> g = TemporalGraph(time=[24252, 24258], edge_index=no_edges, periods=months)
            >>> g.when("2021-07-01"), g.when("2021-07"), g.name_of(24258)
            (24258, 24258, '2021-07')
        """
        text = isinstance(value, str) and not re.fullmatch(r"[-+]?[0-9]+", value.strip())
        # A whole number is a period of the graph if it can be one, otherwise a year, or a time that
        # was put into bins.
        if isinstance(value, float | np.integer | np.floating) and float(value).is_integer():
            value = int(value)
        foreign = (
            isinstance(value, int | float) and not self.times[0] - 1 <= value <= self.times[-1] + 1
        )
        if self.periods is not None and (
            text or foreign or isinstance(value, str | date | np.datetime64)
        ):
            return self.periods.cutoff(value)
        if text or isinstance(value, date | np.datetime64):
            such = f"{self.times[0]} to {self.times[-1]}"
            raise InputError(
                f"{name}={checks.quoted(value)} is not a time of this graph; "
                f"its times are numbers: {such}."
            )
        if isinstance(value, str):
            value = int(value.strip())
        return checks.whole_number(name, value)

    # -- views

    def upto(self, t: int | str) -> TemporalGraph:
        """The graph at the end of time `t`, inclusive: nodes up to then and edges among them.

        Of edges that carry a time, later ones are left out. Nodes without a time are kept. Edges
        between two such nodes are kept where both were known by then (`known_before`). `ids` holds
        the nodes' names, or their positions in this graph.
        """
        t = self.when(t, "t")
        # Nodes first: edges remain where both of their nodes do.
        keep = self.positions_upto(t)
        nodes = {
            kind: part if (k := keep[kind]) is None else part.take(k)
            for kind, part in self.nodes.items()
        }
        relations = {}
        numbers = self.numbers_upto(t, keep)
        for triple, part in self.relations.items():
            ends = [numbers[kind] for kind in (triple[0], triple[2])]
            relations[triple] = part.selected(*part.upto(t, ends))
        return self.with_parts(nodes, relations, upto=t)

    def positions_upto(self, t: int) -> dict[str, np.ndarray | None]:
        """Positions of the nodes up to time `t` by type; None for types without a time."""
        t = checks.whole_number("t", t)
        times = {kind: part.time for kind, part in self.nodes.items()}
        keep = {
            kind: None if time is None else np.flatnonzero(time <= t)
            for kind, time in times.items()
        }
        targets = keep[self.target]
        if targets is None or len(targets) == 0:
            raise InputError(
                f"no node is at or before time {t}; the first time is {self.times[0]}."
            )
        return keep

    def numbers_upto(
        self, t: int, keep: Mapping[str, np.ndarray | None]
    ) -> dict[str, np.ndarray | None]:
        """New numbers of the nodes by type, −1 for those whose edges are left out at time `t`.

        `keep` holds the positions of the nodes up to `t`. None where all stay.
        """
        numbers = {kind: part.renumbered(keep[kind]) for kind, part in self.nodes.items()}
        for source, _, target in self.relations:
            for kind in (source, target):
                if keep[source] is None and keep[target] is None and numbers[kind] is None:
                    # A node without a time stays, but loses its edges to others that were not known
                    # yet.
                    known = self.known_before(kind, t + 1)
                    if known is not None:
                        numbers[kind] = self.nodes[kind].renumbered(np.arange(len(known)))
                        numbers[kind][~known] = -1  # type: ignore[index]
        return numbers

    def masked(self, cutoff: int | str) -> TemporalGraph:
        """The view that methods receive: labels at or after `cutoff` are −1.

        Encoders are fitted on nodes before the cutoff (`known_before`), and only classes with a
        label before it remain (`with_visible_classes`; a view of a view keeps its classes). Refuses
        splits without a labelled past, without target nodes, or with one period only.
        """
        cutoff = self.when(cutoff)
        if not self.is_neighbourhood:
            # A neighbourhood may hold targets only; its graph was checked.
            checks.chronology(self.time, self.y, cutoff, self.name_of)
        nodes = {
            kind: part.masked(cutoff, self.known_before(kind, cutoff))
            for kind, part in self.nodes.items()
            if part.time is not None or part.features is not None
        }
        view = self._with_nodes(nodes, cutoff=cutoff)
        # A class that occurs only after the cutoff would tell that it exists.
        return view.with_visible_classes() if self.cutoff is None else view

    def known_before(self, kind: str, cutoff: int) -> np.ndarray | None:
        """Mask of the nodes of a type before the cutoff; None if all nodes without a time are.

        A node without a time is dated by its edges, by their own time or that of the other end: it
        exists as soon as one of them does. A node without such an edge is known if
        edges without a time lead from it to one that is.

        Examples:
            >>> g = TemporalGraph.hetero(
            ...     nodes={"paper": dict(time=[0, 1]), "author": dict(num_nodes=2)},
            ...     edges={("author", "writes", "paper"): [[0, 1], [0, 1]]}, target="paper")
            >>> g.known_before("author", 1).tolist(), g.known_before("author", 2)
            ([True, False], None)
        """
        time = self.nodes[kind].time
        if time is not None:
            return time < cutoff
        if cutoff not in self._known:
            self._known[cutoff] = self._reached_before(cutoff)
        return self._known[cutoff][kind]

    def _reached_before(self, cutoff: int) -> dict[str, np.ndarray | None]:
        """`known_before` of all types without a time."""
        untimed = [kind for kind, part in self.nodes.items() if part.time is None]
        sizes = [self.nodes[kind].num_nodes for kind in untimed]
        # All types without a time share one numbering; `first` is where a type begins.
        first = dict(zip(untimed, np.cumsum([0, *sizes]).tolist(), strict=False))
        known, comes_later = np.zeros((2, sum(sizes)), bool)
        # Edges without any time: they exist where both of their ends do.
        links: list[np.ndarray] = []
        for triple, relation in self.relations.items():
            kinds = (triple[0], triple[2])
            ends = relation.edge_index
            times = [self.nodes[kind].time for kind in kinds]
            if relation.time is None and all(time is None for time in times):
                links.append(ends + np.array([[first[kind]] for kind in kinds]))
                continue
            for part in _native.blocks(ends, 1):
                # An edge before the cutoff makes its ends known; a later one dates them.
                there = relation.before(cutoff, times, part)
                for kind, row in zip(kinds, ends, strict=True):
                    if kind in first:
                        known[first[kind] + row[part][there]] = True
                        comes_later[first[kind] + row[part]] = True
        # Nodes all of whose dated edges are later: nothing may pass through them.
        comes_later &= ~known
        if links:
            ends = np.concatenate(links, axis=1)
            source, target = ends[:, ~comes_later[ends].any(0)]
            edges = coo_array((np.ones(len(source), bool), (source, target)), (len(known),) * 2)
            # Undated edges carry knowledge to whole components of nodes.
            group = connected_components(edges, directed=False)[1]
            known = np.bincount(group, known)[group] > 0
        parts = np.split(known, np.cumsum(sizes)[:-1])
        return {
            kind: None if part.all() else part for kind, part in zip(untimed, parts, strict=True)
        }

    def require_cutoff(self, wants: str) -> int:
        """The cutoff of a view; any other graph is refused in the name of who `wants` one."""
        if self.cutoff is None:
            raise InputError(
                f"{wants} a view that masks the labels of targets; pass graph.masked(cutoff)."
            )
        return self.cutoff

    def targets(self, cutoff: int | str | None = None) -> np.ndarray:
        """Mask of the nodes to predict: time at or after the cutoff (by default the view's own)."""
        cutoff = self.cutoff if cutoff is None else cutoff
        if cutoff is None:
            raise InputError("this graph has no cutoff; pass one or use masked(cutoff).")
        return self.time >= self.when(cutoff)

    def horizon(self) -> int:
        """Number of periods that the targets of a view span, limited by the labelled past.

        At most a third of the labelled periods, and so few that half of the labels are older.
        """
        cutoff = self.require_cutoff("a horizon needs")
        labelled = len(np.unique(self.time[self.label >= 0]))
        return self.max_hidden_periods(min(int((self.times >= cutoff).sum()), labelled // 3))

    def max_hidden_periods(self, most: int) -> int:
        """How many last labelled periods (1 to `most`) can be hidden with half the labels left.

        Examples:
            >>> no_edges = np.zeros((2, 0), dtype=int)
            >>> graph = TemporalGraph(y=[0, 1, 0, 1, 0], time=[0, 0, 1, 2, 3], edge_index=no_edges)
            >>> graph.max_hidden_periods(8), graph.max_hidden_periods(1)
            (2, 1)
        """
        _, sizes = np.unique(self.time[self.label >= 0], return_counts=True)
        left = np.cumsum(sizes)[::-1][1:]  # labels, when the last 1, 2, ... periods are hidden
        is_enough = left[: max(most, 0)] >= sizes.sum() / 2
        return max(1, int(is_enough.sum()))

    def infer_cutoff(self) -> int:
        """The first time after the last label; the last time if every period has labels."""
        if self.y is None or not (self.y >= 0).any():
            raise InputError(
                "no node has a label, so no cutoff can be inferred; pass labels for the past."
            )
        last_label = int(self.time[self.y >= 0].max())
        # the target type's own times: another type may be newer
        later = self.time[self.time > last_label]
        if not len(later):
            return last_label
        return int(later.min())

    def undirected(self) -> TemporalGraph:
        """The graph with every edge in both directions; between two types as relation `rev_...`.

        One edge per ordered pair remains. Weights are added up and the earliest time is kept, so
        call `upto` before where weights of the past matter.
        """
        relations = self.both_ways()
        sorted_edges = {}
        for triple, part in relations.items():
            if triple[0] != triple[2]:
                continue
            # The reverse of a loop is the loop itself, which counts once.
            loop = part.edge_index[0] == part.edge_index[1]
            both = np.concatenate([part.edge_index, part.edge_index[::-1, ~loop]], axis=1)
            weight = part.weight
            if weight is not None:
                weight = np.concatenate([weight, weight[~loop]])
            size = self.nodes[triple[0]].num_nodes
            csr = merged(build_csr(both[0], both[1], size, size, weight))
            sorted_edges[triple] = csr
            nodes = np.arange(size, dtype=csr.indices.dtype)
            target = np.repeat(nodes, np.diff(csr.indptr))
            time = part.time
            if time is not None:
                time = earliest(csr, part.edge_index, time)
            relations[triple] = Relation(np.stack([csr.indices, target]), csr.weight, time)
        out = self.with_parts(dict(self.nodes), relations)
        # Merging has sorted the edges already.
        out._csr.update(sorted_edges)
        return out

    def both_ways(self) -> dict[Triple, Relation]:
        """The relations, and a reverse `rev_...` for each between two types that has none."""
        relations: dict[Triple, Relation] = {}
        for triple, part in self.relations.items():
            relations[triple] = part
            source, name, target = triple
            back = (target, f"rev_{name}", source)
            is_back = name.startswith("rev_") and (target, name[4:], source) in self.relations
            if source != target and back not in self.relations and not is_back:
                relations[back] = replace(part, edge_index=part.edge_index[::-1])
        return relations

    def with_parts(
        self,
        nodes: dict[str, Nodes],
        relations: dict[Triple, Relation],
        *,
        upto: int | None = None,
        **settings: Any,
    ) -> TemporalGraph:
        """A graph of parts that were checked before, with this one's target, classes and periods.

        `settings` replace those of this graph. `upto` is the last time, if the nodes were selected
        by time.
        """
        out = TemporalGraph.__new__(TemporalGraph)
        out._set(nodes, relations, **(self._settings() | settings))
        if self.is_neighbourhood:
            out.__dict__.update(is_neighbourhood=True, timeline=self.timeline.only(nodes, upto))
        return out

    def with_features(self, x: Any) -> TemporalGraph:
        """The same graph with other features for the target type, a row per node."""
        x = checks.features("x", x, self.num_nodes)
        part = replace(self.nodes[self.target], features=x, ready=False)
        return self._with_nodes({self.target: part})

    def encoded(self, encoders: Mapping[str, Encoder] | None = None) -> TemporalGraph:
        """The graph with features that models read, by encoders fitted elsewhere or the view's own.

        Raw columns become numbers, and numbers far off what is known before the cutoff are pulled
        in.
        """
        if all(part.features is None or part.ready for part in self.nodes.values()):
            return self
        fitted = encoders or {}
        return self._with_nodes(
            {kind: part.encoded(fitted.get(kind)) for kind, part in self.nodes.items()}
        )

    def with_labels(self, y: Any) -> TemporalGraph:
        """The same graph with other labels for the target type, −1 where unknown."""
        y = checks.labels("y", y, self.num_nodes, self.num_labels)
        return self._with_nodes({self.target: replace(self.nodes[self.target], y=y)})

    def only(self, kinds: Sequence[str], triples: Sequence[Triple]) -> TemporalGraph:
        """The graph of some of its types and relations, in this order."""
        nodes = {kind: self.nodes[kind] for kind in kinds}
        return self.with_parts(nodes, {triple: self.relations[triple] for triple in triples})

    def with_classes(self, names: Sequence[Any]) -> TemporalGraph:
        """The same graph with labels numbered by their position in `names`, −1 for others.

        Examples:
            >>> names, time = ["a", "b", "c"], [0, 1, 2]
            >>> edges = np.zeros((2, 0), dtype=int)
            >>> g = TemporalGraph(y=[0, 1, 2], time=time, edge_index=edges, label_names=names)
            >>> g.with_classes(["c", "a"]).y.tolist()
            [1, -1, 0]
        """
        if self.label_names is None or self.y is None:
            return self
        known = {class_name(name): place for place, name in enumerate(names)}
        return self.relabeled(
            [known.get(class_name(name), -1) for name in self.label_names], len(names), names
        )

    def visible_classes(self) -> np.ndarray:
        """Classes that have a visible label; without names, all numbers up to the largest one."""
        visible = np.flatnonzero(np.bincount(self.label[self.label >= 0]))
        if self.label_names is None:
            visible = np.arange(visible.max(initial=-1) + 1)
        return visible

    def with_visible_classes(self) -> TemporalGraph:
        """The same graph with its `visible_classes` alone; others occur in hidden labels only."""
        visible = self.visible_classes()
        if len(visible) == self.num_labels:
            return self
        # New number of every class, -1 for those that are not visible.
        code = np.full(self.num_labels, -1)
        code[visible] = np.arange(len(visible))
        names = None
        if self.label_names is not None:
            names = [self.label_names[k] for k in visible]
        return self.relabeled(code, len(visible), names)

    def relabeled(
        self, code: Sequence[int] | np.ndarray, num_labels: int, names: Sequence[Any] | None
    ) -> TemporalGraph:
        """With `code[k]` in the place of label k, and these classes."""
        part = self.nodes[self.target]
        if part.y is not None:
            # the last is that of −1
            part = replace(part, y=np.append(code, -1)[part.y].astype(np.int64))
        return self._with_nodes({self.target: part}, num_labels=num_labels, label_names=names)

    def _with_nodes(self, nodes: Mapping[str, Nodes], **settings: Any) -> TemporalGraph:
        """The same edges and times, with other nodes of some types and other settings."""
        out = self.with_parts({**self.nodes, **nodes}, dict(self.relations), **settings)
        out.__dict__.update(_csr=self._csr, _known=self._known, _edges_at=self._edges_at)
        return out

    def save(self, directory: str | Path, *, tables: Any = None) -> None:
        """Write the graph as a directory of `.npy` files with a manifest, atomically.

        `tables` are the roles of the columns of the tables that it was made of, for `update`.
        """
        with storage.writing(directory, **encode(self._settings()), tables=tables) as writer:
            for kind, part in self.nodes.items():
                arrays = {
                    "x": None if part.columns else part.x,
                    "y": part.y,
                    "time": part.time,
                    "timestamp": part.timestamp,
                    "ids": part.ids,
                }
                writer.nodes(kind, part.num_nodes, arrays, part.columns)
            for triple, relation in self.relations.items():
                writer.relation(
                    triple, {name: getattr(relation, name) for name in storage.EDGE_ARRAYS}
                )

    @classmethod
    def restored(cls, parts: dict[str, Any]) -> TemporalGraph:
        """Check the parts of a saved graph that `storage.read` returns, and build the graph."""
        cutoff = parts.pop("cutoff")
        edges_by_node = parts.pop("edges_by_node")
        del parts["tables"]
        graph = cls.hetero(**parts)
        for (triple, end), csr in edges_by_node.items():
            graph.cache_edges_at(triple, end, csr)
        return graph if cutoff is None else graph.masked(cutoff)

    # -- inside

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a TemporalGraph is immutable; create a new one to change {name}.")

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles hold the checked parts; edges are grouped again."""
        whole = None
        if self.is_neighbourhood:
            whole = self.timeline
        return _restored, (dict(self.nodes), dict(self.relations), self._settings(), whole)

    def __repr__(self) -> str:
        if self.is_hetero:
            mark = {self.target: " (target)"}
            parts = [
                f"{part.num_nodes:,} {kind}{mark.get(kind, '')}"
                for kind, part in self.nodes.items()
            ]
            parts += [
                f"{part.num_edges:,} {'-'.join(triple)}" for triple, part in self.relations.items()
            ]
        else:
            parts = [f"{self.num_nodes:,} nodes", f"{self.edge_index.shape[1]:,} edges"]
        parts += [
            f"{self.nodes[self.target].num_features or 'no'} features",
            f"{self.num_labels} classes",
        ]
        parts.append(
            f"times {self.name_of(int(self.times[0]))}..{self.name_of(int(self.times[-1]))}"
        )
        if self.cutoff is not None:
            parts.append(f"cutoff {self.name_of(self.cutoff)}")
        return f"TemporalGraph({', '.join(parts)})"

    def relation_name(self, relation: Triple | None) -> Triple:
        """A relation that exists; None means the only one."""
        if relation is None:
            if len(self.relations) > 1:
                raise InputError(
                    "pass relation=...; "
                    f"there are {listing(['-'.join(t) for t in self.relations])}."
                )
            return next(iter(self.relations))
        if relation not in self.relations:
            known = listing(["-".join(t) for t in self.relations])
            raise InputError(f"there is no relation {relation!r}; choose one of {known}.")
        return relation

    def _settings(self) -> dict[str, Any]:
        """All but nodes and relations, by name."""
        return {name: getattr(self, name) for name in SETTINGS}

    def _only(self) -> Relation:
        return self.relations[self.relation_name(None)]

    def _set(
        self, nodes: dict[str, Nodes], relations: dict[Triple, Relation], **settings: Any
    ) -> None:
        """Fill a new graph with parts that were checked before, and its `SETTINGS`."""
        names = settings["label_names"]
        self.__dict__.update(
            settings,
            label_names=None if names is None else tuple(names),
            nodes=MappingProxyType(nodes),
            relations=MappingProxyType(relations),
            _csr={},
            _periods={},
            _known={},
            _edges_at={},
        )

    is_neighbourhood = False
    """Whether it is a part of a graph, with the timeline of the whole (see `neighbourhood`)."""

    _csr: dict[Triple, CSR]
    _edges_at: dict[tuple[Triple, int], EdgesByNode]
    _known: dict[int, dict[str, np.ndarray | None]]
    _periods: dict[str, np.ndarray]


def _refuse_equal_names(relations: Iterable[Triple]) -> None:
    """Refuse relations that have the same name in the report or as a column."""
    for name, count in Counter(map("-".join, relations)).items():
        if count > 1:
            raise InputError(
                f"two relations have the name {name!r} when their parts are joined; rename one."
            )


def _restored(
    nodes: dict[str, Nodes],
    relations: dict[Triple, Relation],
    settings: dict[str, Any],
    whole: Timeline | None,
) -> TemporalGraph:
    """A graph from its parts, whose arrays a pickle has made writeable.

    Of a neighbourhood, `whole` is the timeline of the graph that it is a part of.
    """
    out = TemporalGraph.__new__(TemporalGraph)
    out._set(
        {kind: replace(part) for kind, part in nodes.items()},
        {triple: replace(part) for triple, part in relations.items()},
        **settings,
    )
    if whole is not None:
        out.__dict__.update(is_neighbourhood=True, timeline=whole)
    return out


def graph_digest(graph: TemporalGraph) -> str:
    """The same text for the same nodes, edges, labels and names, wherever the arrays are."""
    parts: list[object] = [getattr(graph, name) for name in SETTINGS]
    for kind, node in graph.nodes.items():
        features = node.columns.digest() if node.columns else node.features
        parts += [kind, node.num_nodes, features, node.y, node.time, node.timestamp, node.ids]
    for triple, relation in graph.relations.items():
        # Edges may be stored with two rows far apart; row by row both are read in order.
        parts += [triple, *relation.edge_index, relation.weight, relation.time]
    return _files.digest(*parts)
