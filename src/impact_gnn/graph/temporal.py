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
from numpy import ndarray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from impact_gnn import _files, _native, checks
from impact_gnn._array import smallest_unsigned
from impact_gnn._codec import encode
from impact_gnn.checks import InputError, listing
from impact_gnn.encoding import Encoder
from impact_gnn.graph import storage
from impact_gnn.graph.csr import CSR, EdgesByNode, build_csr, earliest, index_type, merged
from impact_gnn.graph.graph_summary import GraphSummary
from impact_gnn.graph.parts import HOMOGENEOUS, Nodes, Relation, Triple, class_name, classes
from impact_gnn.graph.periods import Periods, exact_times
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
        if num_labels is not None:
            num_labels = checks.class_count(num_labels)
        nodes = {"node": Nodes.checked("", {"x": x, "y": y, "time": time, "ids": ids}, num_labels)}
        arrays = {"edge_index": edge_index, "weight": edge_weight, "time": edge_time}
        relations = {HOMOGENEOUS: Relation.checked(HOMOGENEOUS, arrays, nodes, "edge_index")}
        nodes["node"], count, label_names = classes(nodes["node"], num_labels, label_names)
        self._set(
            nodes,
            relations,
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
                its timestamp (days if times are dates). Labels that are not known at a cutoff yet
                are hidden like later ones, and history features wait that long.

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
        is_mapping = isinstance(nodes, Mapping) and len(nodes) > 0
        if not is_mapping or not all(isinstance(kind, str) and kind for kind in nodes):
            raise InputError(
                "nodes must be a mapping from node type to its arrays, with at least one type."
            )
        if not isinstance(edges, Mapping) or not edges:
            raise InputError(
                "edges is empty; "
                "pass at least one relation {(source type, name, target type): edges}."
            )
        if num_labels is not None:
            num_labels = checks.class_count(num_labels)
        if not isinstance(target, str) or target not in nodes:
            raise InputError(
                f"target={checks.quoted(target)} is not a node type; "
                f"choose one of {listing(list(nodes))}."
            )
        checked = {}
        for kind, part in nodes.items():
            if kind == target:
                checked[kind] = Nodes.checked(kind, part, num_labels)
            else:
                checked[kind] = Nodes.checked(kind, part, None, may_be_empty=True)
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
            checked,
            relations,
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
    def target_nodes(self) -> Nodes:
        """The nodes of the type to classify."""
        return self.nodes[self.target]

    @property
    def x(self) -> ndarray | None:
        """Features of the target type [N, f]."""
        return self.target_nodes.x

    @property
    def y(self) -> ndarray | None:
        """Labels of the target type [N], −1 unknown."""
        return self.target_nodes.y

    @property
    def is_labelled(self) -> ndarray:
        """Mask of the nodes of the target type whose label is known [N]."""
        return np.zeros(self.num_nodes, bool) if self.y is None else self.y >= 0

    @property
    def label(self) -> ndarray:
        """`y` of a graph that has labels, as every view does."""
        assert self.y is not None
        return self.y

    @property
    def time(self) -> ndarray:
        """Times of the target type [N]."""
        time = self.target_nodes.time
        assert time is not None  # checked on entry
        return time

    @property
    def timestamp(self) -> ndarray:
        """Exact times of the target type [N] (days if they are dates); `time` without such."""
        timestamp = self.target_nodes.timestamp
        return self.time.astype(np.float64) if timestamp is None else timestamp

    @property
    def ids(self) -> ndarray:
        """The user's names of the target nodes; their positions where none were given."""
        ids = self.target_nodes.ids
        return np.arange(self.num_nodes) if ids is None else ids

    @property
    def num_nodes(self) -> int:
        return self.target_nodes.num_nodes

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
    def edge_index(self) -> ndarray:
        """Edges of a homogeneous graph [2, E]."""
        return self._only().edge_index

    @property
    def edge_weight(self) -> ndarray | None:
        """Edge weights of a homogeneous graph [E], or None."""
        return self._only().weight

    @property
    def edge_time(self) -> ndarray | None:
        """Times of the edges of a homogeneous graph [E], or None where they are not known."""
        return self._only().time

    @cached_property
    def timeline(self) -> Timeline:
        """The distinct times and the nodes per time; a neighbourhood has those of its graph."""
        times = {kind: part.time for kind, part in self.nodes.items()}
        return Timeline.of(times)

    @property
    def times(self) -> ndarray:
        """The sorted distinct times of all types that have one."""
        return self.timeline.times

    @cached_property
    def period(self) -> ndarray:
        """For every target node the position of its time in `times`."""
        return self.period_of(self.target)

    @property
    def counts(self) -> ndarray:
        """Nodes of the target type per time."""
        return self.timeline.counts[self.target]

    @cached_property
    def has_entity_history(self) -> bool:
        """Whether most entities of some type have `SEVERAL` target nodes, of different times.

        Where every node has one such entity, as in a table with a key, an entity counts by its
        nodes: a few entities may have most of them.
        """
        for (source, _, target), relation in self.relations.items():
            if (source == self.target) == (target == self.target):
                continue
            # The positions of target nodes, and the entities at the other end.
            row, entity = relation.edge_index
            if target == self.target:
                row, entity = entity, row
            count = np.bincount(entity)
            # First and last time of the target nodes of every entity.
            first = np.full(len(count), np.inf)
            last = -first
            np.minimum.at(first, entity, self.timestamp[row])
            np.maximum.at(last, entity, self.timestamp[row])
            # Several nodes of one time are no history.
            has_several = (count >= SEVERAL) & (first < last)
            weight = np.minimum(count, 1)
            if np.bincount(row).max(initial=0) <= 1:
                weight = count
            if has_several.any() and 2 * weight[has_several].sum() >= weight.sum():
                return True
        return False

    def period_of(self, kind: str) -> ndarray:
        """For every node of a timed type the position of its time in `times`."""
        time = self.nodes[kind].time
        if time is None:
            raise InputError(
                f"nodes of type {kind!r} have no time; pass one or leave the type unweighted."
            )
        if kind not in self._periods:
            # In the smallest type: kernels read a period for every edge.
            dtype = smallest_unsigned(len(self.times))
            self._periods[kind] = np.searchsorted(self.times, time).astype(dtype)
            self._periods[kind].flags.writeable = False
        return self._periods[kind]

    def csr(self, relation: Triple | None = None) -> CSR:
        """The relation's edges grouped by target; computed once. `None` means the only relation."""
        relation = self.relation_name(relation)
        if relation not in self._csr:
            part = self.relations[relation]
            source, target = part.edge_index
            num_sources = self.nodes[relation[0]].num_nodes
            num_targets = self.nodes[relation[2]].num_nodes
            csr = build_csr(source, target, num_sources, num_targets, part.weight)
            self._csr[relation] = csr
        return self._csr[relation]

    def edges_at(self, relation: Triple, end: int) -> EdgesByNode:
        """Edges of a relation by the node at one end: 0 (source) or 1 (target); computed once."""
        if (relation, end) not in self._edges_at:
            self.cache_edges_at(relation, end)
        return self._edges_at[relation, end]

    def cache_edges_at(self, relation: Triple, end: int, csr: CSR | None = None) -> None:
        """Group edges by node; `csr` has the first ones as a saved graph has grouped them."""
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
        per_time = np.bincount(self.period[self.is_labelled], minlength=len(self.times))
        num_edges = {}
        cross_time_share = {}
        edge_times = {}
        for triple, relation in self.relations.items():
            name = "-".join(triple)
            num_edges[name] = relation.num_edges
            if not relation.num_edges:
                continue
            source_time = self.nodes[triple[0]].time
            target_time = self.nodes[triple[2]].time
            if source_time is not None and target_time is not None:
                num_unequal = 0
                # block by block: edges may be in a file
                for block in _native.blocks(relation.edge_index, 1):
                    source, target = relation.edge_index[:, block]
                    num_unequal += np.count_nonzero(source_time[source] != target_time[target])
                cross_time_share[name] = num_unequal / relation.num_edges
            time = relation.time
            if time is not None:
                first = self.name_of(int(time.min()))
                last = self.name_of(int(time.max()))
                edge_times[name] = (first, last)
        columns = [part.columns for part in self.nodes.values() if part.columns is not None]
        return GraphSummary(
            num_nodes={kind: part.num_nodes for kind, part in self.nodes.items()},
            num_edges=num_edges,
            num_features=self.target_nodes.num_features,
            target=self.target,
            times=self.times.tolist(),
            names=[self.name_of(time) for time in self.times.tolist()],
            nodes_per_time=self.counts.tolist(),
            labelled_per_time=per_time.tolist(),
            label_counts=self.label_counts().tolist(),
            cutoff=self.cutoff,
            since=None if self.cutoff is None else self.name_of(self.cutoff),
            cross_time_share=cross_time_share,
            edge_times=edge_times,
            warnings=[warning for part in columns for warning in part.warnings],
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
        value = getattr(value, "start_time", value)  # of a pandas period
        if isinstance(value, float | np.integer | np.floating) and float(value).is_integer():
            value = int(value)
        first = self.times[0]
        last = self.times[-1]
        # A whole number is a period of the graph if it can be one, otherwise a year, or a time that
        # was put into bins.
        is_foreign = isinstance(value, int | float) and not first - 1 <= value <= last + 1
        is_date = isinstance(value, date | np.datetime64)
        is_text = isinstance(value, str)
        if self.periods is not None and (is_foreign or is_date or is_text):
            return self.periods.cutoff(value)
        if is_text and re.fullmatch(r"[-+]?[0-9]+", value.strip()):
            value = int(value.strip())
        elif is_date or is_text:
            raise InputError(
                f"{name}={checks.quoted(value)} is not a time of this graph; "
                f"its times are numbers: {first} to {last}."
            )
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
        nodes = dict(self.nodes)
        for kind, positions in keep.items():
            if positions is not None:
                nodes[kind] = nodes[kind].take(positions)
        relations = {}
        numbers = self.numbers_upto(t, keep)
        for triple, part in self.relations.items():
            source, _, target = triple
            edge_index, place = part.upto(t, [numbers[source], numbers[target]])
            relations[triple] = part.selected(edge_index, place)
        return self.with_parts(nodes, relations, upto=t)

    def positions_upto(self, t: int) -> dict[str, ndarray | None]:
        """Positions of the nodes up to time `t` by type; None for types without a time."""
        t = checks.whole_number("t", t)
        keep: dict[str, ndarray | None] = dict.fromkeys(self.nodes)
        for kind, part in self.nodes.items():
            if part.time is not None:
                keep[kind] = np.flatnonzero(part.time <= t)
        if not (self.time <= t).any():
            raise InputError(
                f"no node is at or before time {t}; the first time is {self.times[0]}."
            )
        return keep

    def numbers_upto(self, t: int, keep: Mapping[str, ndarray | None]) -> dict[str, ndarray | None]:
        """New numbers of the nodes by type, −1 for those whose edges are left out at time `t`.

        `keep` holds the positions of the nodes up to `t`. None where all stay.
        """
        numbers = {kind: part.renumbered(keep[kind]) for kind, part in self.nodes.items()}
        # Types without a time that have edges to such types.
        untimed: set[str] = set()
        for source, _, target in self.relations:
            if keep[source] is None and keep[target] is None:
                untimed |= {source, target}
        for kind in untimed:
            # A node without a time stays, but loses its edges to others that were not known yet.
            known = self.known_before(kind, t + 1)
            if known is not None:
                number = np.arange(len(known), dtype=index_type(len(known)))
                numbers[kind] = np.where(known, number, number.dtype.type(-1))
        return numbers

    def masked(self, cutoff: int | str) -> TemporalGraph:
        """The view that methods receive: labels at or after `cutoff` are −1.

        So are earlier ones that are not known by then (`label_delay`). Encoders are fitted on nodes
        before the cutoff (`known_before`), and only classes with a label before it remain
        (`with_visible_classes`; a view of a view keeps its classes). Refuses splits without a
        labelled past, without target nodes, or with one period only.
        """
        cutoff = self.when(cutoff)
        over = self.is_over(cutoff)
        if not self.is_neighbourhood:
            # A neighbourhood may hold targets only; its graph was checked.
            # Of the labels, only which are known counts.
            y = np.where(self.is_labelled & over, 0, -1)
            checks.chronology(self.time, y, cutoff, self.name_of)
        nodes = {}
        for kind, part in self.nodes.items():
            if part.time is not None or part.features is not None:
                known = self.known_before(kind, cutoff)
                # Labels of other types are as old as their nodes.
                nodes[kind] = part.masked({self.target: over}.get(kind, known), known)
        # Rows of a fold have columns that targets lack, so a view decides for its folds.
        if self.cutoff is None and self.target in nodes:
            nodes[self.target] = nodes[self.target].with_late_outcomes()
        view = self._with_nodes(nodes, cutoff=cutoff)
        # A class that occurs only after the cutoff would tell that it exists.
        return view.with_visible_classes() if self.cutoff is None else view

    @property
    def label_known_at(self) -> ndarray:
        """The exact time at which the label of every target node becomes known [N]."""
        delay = self.label_delay
        if not delay:
            return self.timestamp
        known_at = self.timestamp + delay
        # A sum that is rounded down must not reveal a label in the moment it becomes known.
        return known_at + 4 * np.spacing(np.abs(known_at))

    def is_over(self, cutoff: int) -> ndarray:
        """Mask of the target nodes whose label is known before a period begins, if anyone has it.

        Their outcomes are known then, too.
        """
        is_past = self.time < cutoff
        if self.label_delay:
            is_past &= self.label_known_at < self.begin_of(cutoff)
        return is_past

    def has_known_label(self, cutoff: int) -> ndarray:
        """Mask of the target nodes with a label that is known before a period begins [N]."""
        return self.is_labelled & self.is_over(cutoff)

    def begin_of(self, t: int) -> float:
        """The exact time at which a period begins, in units of timestamps."""
        if self.target_nodes.timestamp is None:
            return t
        if self.periods is not None:
            return float(exact_times(np.array([self.periods.start(t)]))[0])
        # Only the nodes know how exact times and periods belong together.
        times, begins = self.first_moments
        return float(begins[np.searchsorted(times, t)])

    @cached_property
    def first_moments(self) -> tuple[ndarray, ndarray]:
        """The times of target nodes, and the earliest exact time from each on; infinite at the end.

        A neighbourhood has those of its graph.
        """
        times, position = np.unique(self.time, return_inverse=True)
        first = np.full(len(times) + 1, np.inf)
        np.minimum.at(first, position, self.timestamp)
        return times, np.minimum.accumulate(first[::-1])[::-1]

    def known_before(self, kind: str, cutoff: int) -> ndarray | None:
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

    def _reached_before(self, cutoff: int) -> dict[str, ndarray | None]:
        """`known_before` of all types without a time."""
        untimed = [kind for kind, part in self.nodes.items() if part.time is None]
        sizes = [self.nodes[kind].num_nodes for kind in untimed]
        # All types without a time share one numbering; `first` is where a type begins.
        borders = np.cumsum([0, *sizes]).tolist()
        first = dict(zip(untimed, borders, strict=False))
        known = np.zeros(sum(sizes), bool)
        comes_later = np.zeros_like(known)
        # Edges without any time: they exist where both of their ends do.
        links: list[ndarray] = []
        for triple, relation in self.relations.items():
            kinds = (triple[0], triple[2])
            ends = relation.edge_index
            times = [self.nodes[kind].time for kind in kinds]
            if relation.time is None and {*kinds} <= first.keys():
                begins = [first[kind] for kind in kinds]
                links.append(ends + np.array(begins)[:, None])
                continue
            for part in _native.blocks(ends, 1):
                # An edge before the cutoff makes its ends known; a later one dates them.
                there = relation.before(cutoff, times, part)
                for kind, row in zip(kinds, ends, strict=True):
                    if kind in first:
                        node = first[kind] + row[part]
                        known[node[there]] = True
                        comes_later[node] = True
        # Nodes all of whose dated edges are later: nothing may pass through them.
        comes_later &= ~known
        if links:
            ends = np.concatenate(links, axis=1)
            ends = ends[:, ~comes_later[ends].any(0)]
            values = np.ones(ends.shape[1], bool)
            edges = coo_array((values, tuple(ends)), (len(known), len(known)))
            # Undated edges carry knowledge to whole components of nodes.
            _, group = connected_components(edges, directed=False)
            known = np.bincount(group, known)[group] > 0
        out: dict[str, ndarray | None] = {}
        for kind, mask in zip(untimed, np.split(known, borders[1:-1]), strict=True):
            out[kind] = None if mask.all() else mask
        return out

    def require_cutoff(self, wants: str) -> int:
        """The cutoff of a view; any other graph is refused in the name of who `wants` one."""
        if self.cutoff is None:
            raise InputError(
                f"{wants} a view that masks the labels of targets; pass graph.masked(cutoff)."
            )
        return self.cutoff

    def targets(self, cutoff: int | str | None = None) -> ndarray:
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
        num_labelled = len(np.unique(self.time[self.is_labelled]))
        num_ahead = int((self.times >= cutoff).sum())
        return self.max_hidden_periods(min(num_ahead, num_labelled // 3))

    def max_hidden_periods(self, most: int) -> int:
        """How many last labelled periods (1 to `most`) can be hidden with half the labels left.

        Examples:
            >>> no_edges = np.zeros((2, 0), dtype=int)
            >>> graph = TemporalGraph(y=[0, 1, 0, 1, 0], time=[0, 0, 1, 2, 3], edge_index=no_edges)
            >>> graph.max_hidden_periods(8), graph.max_hidden_periods(1)
            (2, 1)
        """
        _, sizes = np.unique(self.time[self.is_labelled], return_counts=True)
        left = np.cumsum(sizes)[::-1][1:]  # labels, when the last 1, 2, ... periods are hidden
        is_enough = left[: max(most, 0)] >= sizes.sum() / 2
        return max(1, int(is_enough.sum()))

    def infer_cutoff(self) -> int:
        """The first time after the last label; the last time if every period has labels.

        With `label_delay` it is the first time at which that label was known. A view has its own.
        """
        if self.cutoff is not None:
            return self.cutoff
        labelled_times = self.time[self.is_labelled]
        if not len(labelled_times):
            raise InputError(
                "no node has a label, so no cutoff can be inferred; pass labels for the past: "
                "set label=..., or label = ... in graph.toml."
            )
        last_label = int(labelled_times.max())
        # the target type's own times: another type may be newer
        later = np.unique(self.time[self.time > last_label]).tolist()
        if self.label_delay:
            last_known = self.label_known_at[self.is_labelled].max()
            later = [t for t in later if self.begin_of(t) > last_known] or later
        return later[0] if later else last_label

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
            is_loop = part.edge_index[0] == part.edge_index[1]
            reverse = part.edge_index[::-1, ~is_loop]
            source, target = np.concatenate([part.edge_index, reverse], axis=1)
            weight = part.weight
            if weight is not None:
                weight = np.concatenate([weight, weight[~is_loop]])
            size = self.nodes[triple[0]].num_nodes
            csr = merged(build_csr(source, target, size, size, weight))
            sorted_edges[triple] = csr
            time = part.time
            if time is not None:
                time = earliest(csr, part.edge_index, time)
            relations[triple] = Relation(np.stack([csr.indices, csr.target]), csr.weight, time)
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
            # What this relation would be the reverse of.
            forth = (target, name.removeprefix("rev_"), source)
            is_back = name.startswith("rev_") and forth in self.relations
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
            if self.label_delay:
                out.__dict__["first_moments"] = self.first_moments
        return out

    def with_features(self, x: Any) -> TemporalGraph:
        """The same graph with other features for the target type, a row per node."""
        x = checks.features("x", x, self.num_nodes)
        part = replace(self.target_nodes, features=x, ready=False)
        return self._with_nodes({self.target: part})

    def encoded(self, encoders: Mapping[str, Encoder] | None = None) -> TemporalGraph:
        """The graph with features that models read, by encoders fitted elsewhere or the view's own.

        Raw columns become numbers, and numbers far off what is known before the cutoff are pulled
        in.
        """
        if all(part.features is None or part.ready for part in self.nodes.values()):
            return self
        fitted = encoders or {}
        nodes = {}
        for kind, part in self.nodes.items():
            nodes[kind] = part.encoded(fitted.get(kind))
        return self._with_nodes(nodes)

    def with_labels(self, y: Any) -> TemporalGraph:
        """The same graph with other labels for the target type, −1 where unknown."""
        y = checks.labels("y", y, self.num_nodes, self.num_labels)
        return self._with_nodes({self.target: replace(self.target_nodes, y=y)})

    def only(self, kinds: Sequence[str], triples: Sequence[Triple]) -> TemporalGraph:
        """The graph of some of its types and relations, in this order."""
        nodes = {kind: self.nodes[kind] for kind in kinds}
        relations = {triple: self.relations[triple] for triple in triples}
        return self.with_parts(nodes, relations)

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
        code = [known.get(class_name(name), -1) for name in self.label_names]
        return self.relabeled(code, len(names), names)

    def label_counts(self) -> ndarray:
        """Known labels by class [num_labels]."""
        if self.y is None:
            return np.zeros(self.num_labels, np.int64)
        return np.bincount(self.y[self.is_labelled], minlength=self.num_labels)

    def visible_classes(self) -> ndarray:
        """Classes that have a visible label; without names, all numbers up to the largest one."""
        visible = np.flatnonzero(self.label_counts())
        if self.label_names is None:
            visible = np.arange(visible.max(initial=-1) + 1)
        return visible

    def with_visible_classes(self) -> TemporalGraph:
        """The same graph with its `visible_classes` alone; others occur in hidden labels only."""
        visible = self.visible_classes()
        if len(visible) == self.num_labels:
            return self
        if self.label_names is not None:
            return self.with_classes([self.label_names[k] for k in visible])
        # New number of every class, −1 for those that are not visible.
        code = np.full(self.num_labels, -1)
        code[visible] = visible
        return self.relabeled(code, len(visible), None)

    def relabeled(
        self, code: Sequence[int] | ndarray, num_labels: int, names: Sequence[Any] | None
    ) -> TemporalGraph:
        """With `code[k]` in the place of label k, and these classes."""
        part = self.target_nodes
        if part.y is not None:
            # the last is that of −1
            y = np.append(code, -1)[part.y].astype(np.int64)
            part = replace(part, y=y)
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
                arrays = {name: getattr(part, name) for name in storage.NODE_ARRAYS[1:]}
                if not part.columns:
                    arrays["x"] = part.x
                writer.nodes(kind, part.num_nodes, arrays, part.columns)
            for triple, relation in self.relations.items():
                arrays = {name: getattr(relation, name) for name in storage.EDGE_ARRAYS}
                writer.relation(triple, arrays)

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
        parts = [f"{self.num_nodes:,} nodes"]
        if self.is_hetero:
            parts = [f"{part.num_nodes:,} {kind}" for kind, part in self.nodes.items()]
            parts[list(self.nodes).index(self.target)] += " (target)"
        for triple, relation in self.relations.items():
            name = "-".join(triple) if self.is_hetero else "edges"
            parts.append(f"{relation.num_edges:,} {name}")
        first = self.name_of(int(self.times[0]))
        last = self.name_of(int(self.times[-1]))
        parts += [
            f"{self.target_nodes.num_features or 'no'} features",
            f"{self.num_labels} classes",
            f"times {first}..{last}",
        ]
        if self.cutoff is not None:
            parts.append(f"cutoff {self.name_of(self.cutoff)}")
        return f"TemporalGraph({', '.join(parts)})"

    def relation_name(self, relation: Triple | None) -> Triple:
        """A relation that exists; None means the only one."""
        known = listing(list(map("-".join, self.relations)))
        if relation is None:
            if len(self.relations) > 1:
                raise InputError(f"pass relation=...; there are {known}.")
            return next(iter(self.relations))
        if relation not in self.relations:
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
        if settings["label_names"] is not None:
            settings["label_names"] = tuple(settings["label_names"])
        self.__dict__.update(
            settings,
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
    _known: dict[int, dict[str, ndarray | None]]
    _periods: dict[str, ndarray]


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
