"""History features: what happened to the entities of a row strictly before the row's own time.

Rows are the target nodes; their entities are the nodes of other types that they are linked to. A
*role* is one way from a row to entities: a relation, a path of two relations, an edge to another
row, or the one entity that all rows share. Each relation is a role of its own, so a team at home
and the same team away have different histories. Dated rows of other types (the visits of a
customer) have roles as well: the target rows read what these have written to their entities.

One pass in order of time aggregates a value per entity. All rows of one time are read before any
of them is written, so equal times never see each other.

Labels of targets are known up to the cutoff only. A row of the past therefore reads labels as of
the beginning of its period, so that training rows resemble the rows to predict. (Hiding labels for
several periods, as for targets of a longer horizon, did not lower the log-loss of past folds.)

Aggregates of a team do not know how strong its opponents were. A running model does: the log-odds
of a row are an intercept plus the strengths of its entities in their roles, and each known label
moves all of them by what they did not explain, as ratings in chess do. An entity of a type with two
roles also has a rating, which counts for it in the first role and against it in the second.
"""

# mypy: disallow-untyped-defs=False, check-untyped-defs=False
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, product
from typing import TypeAlias

import numpy as np
from numba import njit
from numpy import ndarray

from impact_gnn import checks
from impact_gnn._array import sorted_unique
from impact_gnn.graph import TemporalGraph, Triple
from impact_gnn.graph.csr import build_csr
from impact_gnn.graph.parts import Nodes, Relation, edge_type

# In distinct times at which an entity had rows; for the role that all rows share, in periods.
HALF_LIVES = (3.0, 12.0)
SHRINKAGE = 4.0  # labels of an entity that count as much as the overall class proportions
MOST_COLUMNS = 8  # numeric features of a type that are aggregated: the first ones
MOST_FANOUT = 2.0  # entities per entity, on average, up to which a path of two relations is used
# Of the running model, in squared log-odds: the variance of a strength before the first label, and
# what every new time of the entity adds. Of the variances .1, .3 and 1, the last had the lowest
# mean log-loss of trees on four kinds of drawn tables. The drift is between the best ones for slow
# and for fast changes (.0003 and .001), by the log-loss of the running model alone.
FIRST_VARIANCE = 1.0
DRIFT = 0.0005
NEVER = -1.0  # in place of the logarithm of a time span where there is no earlier row
EVERYTHING = "all rows"
WINDOWS = ("whole past", *(f"half-life {half_life:g}" for half_life in HALF_LIVES))
RECENT = 1  # position in `WINDOWS` of the shortest half-life

# Columns of `_aggregate`. Sum and weight of the whole past, which does not decay, come last; those
# of the other windows follow.
LOW, HIGH, LAST_TIME, LAST_TOTAL, LAST_COUNT, SQUARES, TOTAL, COUNT = range(8)


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of a row and an entity [P]."""

    row: ndarray
    entity: ndarray

    def select(self, mask: ndarray) -> Pairs:
        return Pairs(self.row[mask], self.entity[mask])

    def by_time(self, time: ndarray) -> tuple[ndarray, ndarray, ndarray]:
        """Return rows, entities and the rows' times in order of the time of every row [N]."""
        key = time[self.row]
        # Stable: of equal times, the order of the pairs decides.
        order = np.argsort(key, kind="stable")
        return self.row[order], self.entity[order], key[order]


@dataclass(frozen=True, eq=False)
class Role:
    """One way from rows to entities: rows read the entities of `reads`, and write to `writes`.

    `writer` is the type of the rows that write, if they are not of the target type.
    """

    name: str
    reads: Pairs
    writes: Pairs
    num_entities: int
    writer: str | None = None


Links: TypeAlias = dict[str, dict[str, Pairs]]
"""Pairs of rows and entities by type of entity, and by relation."""

Aggregator: TypeAlias = Callable[[ndarray], ndarray]
"""Aggregates a value per row [N] over the earlier rows of the entities [n, aggregates]."""


@dataclass(frozen=True, eq=False)
class History:
    """The history of some rows of a view; labels from its cutoff on are not in it.

    Args:
        graph: The view.
        nodes: The rows whose columns are requested, each once [n].
    """

    graph: TemporalGraph
    nodes: ndarray

    @property
    def timestamp(self) -> ndarray:
        """The exact time of every row of the graph [N]."""
        return self.graph.timestamp

    @cached_property
    def label_time(self) -> ndarray:
        """The exact time before which labels are known to each row [N].

        It is the first one in the row's own period, and for targets the first one of all targets.
        So a row of the past knows as little of its own period as a target does.
        """
        graph = self.graph
        cutoff = graph.require_cutoff("history features need")
        cutoff_period = int(np.searchsorted(graph.times, cutoff))
        # All targets share the cutoff as their period: none knows a label of another.
        period = np.minimum(graph.period.astype(np.int64), cutoff_period)
        first = np.full(cutoff_period + 1, np.inf)
        np.minimum.at(first, period, self.timestamp)
        return first[period]

    @cached_property
    def links(self) -> Links:
        """The pairs of all relations between rows and entities."""
        return _links_of(self.graph)

    def columns(self) -> dict[str, ndarray]:
        """Return all columns by name."""
        # How long no label has been known, at least: it grows with the forecast horizon.
        newest = self._log_time_since(self.label_time[self.nodes])
        columns = {"log time since the newest known label": newest}
        label = self.graph.label
        # Labels before the own time of every row of the graph, and those known to the nodes.
        writes = self._everything.writes.select(self.graph.is_labelled)
        before_rows = self._aggregator(
            self._everything,
            self.timestamp,
            np.arange(len(label)),
            writes,
            self.graph.label_known_at,
        )
        known_to_nodes = self._over_known(self._everything, self.graph.is_labelled)
        excess = {}
        for k, name in self._classes():
            is_class = (label == k).astype(np.float64)
            # What was to be expected of a row: the class proportion of recent rows before it.
            expected = self._proportions(before_rows, is_class)[RECENT]
            excess[name] = is_class - expected
            proportions = self._proportions(known_to_nodes, is_class)
            for window, values in zip(WINDOWS, proportions, strict=True):
                columns[f"{EVERYTHING}: proportion of {name}, {window}"] = values
        columns |= self._running_columns()
        for name, value in self._edge_numbers.items():
            columns[name] = value[self.nodes]
        for role in roles_of(self.graph, self.links):
            own_columns: Iterator[tuple[str, ndarray]]
            if role.writer is None:
                own_columns = chain(
                    self._row_columns(role),
                    self._label_columns(role, excess),
                    self._number_columns(role),
                    self._outcome_columns(role),
                )
            else:
                own_columns = self._writer_columns(role, role.writer)
            for name, values in own_columns:
                columns[f"{role.name}: {name}"] = values
        return columns

    def recent_and_last_labels(self) -> list[ndarray]:
        """Return class proportions of recent labels, and of the last labels of entities [n, Y].

        Of an entity in a relation, labels of its newest time with a known label count; entities
        count the same. Rows without any have the recent proportions.
        """
        known_to_nodes = self._over_known(self._everything, self.graph.is_labelled)
        classes = range(self.graph.num_labels)
        is_class = [(self.graph.label == k).astype(np.float64) for k in classes]
        recent = [self._proportions(known_to_nodes, one)[RECENT] for one in is_class]
        size = len(self.nodes)
        # By requested node: its entities with a label, and the sums of their proportions.
        count = np.zeros(size)
        total = np.zeros((self.graph.num_labels, size))
        for by_relation in self.links.values():
            for pairs in by_relation.values():
                position, group, group_of_label, row = self._last_groups(pairs)
                count += np.bincount(position, minlength=size)
                group_size = np.bincount(group_of_label)
                for k in classes:
                    proportion = np.bincount(group_of_label, is_class[k][row]) / group_size
                    total[k] += np.bincount(position, proportion[group], size)
        last = np.where(count > 0, total / np.maximum(count, 1), recent)
        return [np.stack(recent, axis=1), last.T]

    def _last_groups(self, pairs: Pairs) -> tuple[ndarray, ndarray, ndarray, ndarray]:
        """Return for every entity of a node its last known labels, a group of one time.

        Returns the positions of the nodes and their groups, one per pair with a known label, then
        the groups of all labels, and their rows.
        """
        position = np.full(self.graph.num_nodes, -1)
        position[self.nodes] = np.arange(len(self.nodes))
        reads = pairs.select(position[pairs.row] >= 0)
        writes = pairs.select(self.graph.label[pairs.row] >= 0)
        read_time = self.label_time[reads.row]
        write_time = self.graph.label_known_at[writes.row]
        # Entity and time as one number, in order of time within an entity.
        times = np.unique(np.concatenate([read_time, write_time]))
        keys = writes.entity * len(times) + np.searchsorted(times, write_time)
        groups, group_of_label = np.unique(keys, return_inverse=True)
        read_keys = reads.entity * len(times) + np.searchsorted(times, read_time)
        # The last group strictly before the read; it may be of another entity, or none.
        group = np.searchsorted(groups, read_keys) - 1
        is_own = group >= 0
        is_own[is_own] = groups[group[is_own]] // len(times) == reads.entity[is_own]
        return position[reads.row[is_own]], group[is_own], group_of_label, writes.row

    @cached_property
    def _everything(self) -> Role:
        """The role that all rows share."""
        rows = np.arange(self.graph.num_nodes)
        shared = Pairs(rows, np.zeros_like(rows))
        return Role(EVERYTHING, shared, shared, 1)

    def _classes(self) -> list[tuple[int, str]]:
        """Return codes and names of all classes but the first, which the others determine."""
        names = self.graph.label_names or range(self.graph.num_labels)
        return [(k, f"class {name}") for k, name in enumerate(names)][1:]

    def _running_columns(self) -> dict[str, ndarray]:
        """Return the log-odds of the classes against the first one by the running model."""
        graph = self.graph
        strengths, num_strengths = _strengths_of(graph, self.links)
        variance = np.full(num_strengths, FIRST_VARIANCE)
        # Requested rows read, with their positions in the result; labelled rows write.
        position = np.arange(len(self.nodes))
        reads = Pairs(self.nodes, position).by_time(self.label_time)
        labelled = np.flatnonzero(graph.label >= 0)
        # Only the order and the times are used: a row writes to the strengths of its entities.
        row, _, time = Pairs(labelled, labelled).by_time(self.graph.label_known_at)
        writes = (row, time, graph.label.astype(np.int64))
        logits = np.zeros((len(position), graph.num_labels))
        _run_model(reads, writes, strengths, variance, logits)
        columns = {}
        for k, name in self._classes():
            log_odds = logits[:, k] - logits[:, 0]
            columns[f"{EVERYTHING}: log-odds of {name} by running strengths"] = log_odds
        return columns

    def _row_columns(self, role: Role) -> Iterator[tuple[str, ndarray]]:
        """Yield the number of earlier rows, and how long ago they were."""
        # The value is the time itself: its extremes are the last and the first time.
        earlier = self._over_rows(role)(self._written_at(role))
        for window, count in zip(WINDOWS, _windowed(earlier)[1], strict=True):
            yield f"log earlier rows, {window}", np.log1p(count)
        yield "log time since the last row", self._log_time_since(earlier[:, HIGH])
        yield "log time since the first row", self._log_time_since(earlier[:, LOW])

    def _label_columns(
        self, role: Role, excess: Mapping[str, ndarray]
    ) -> Iterator[tuple[str, ndarray]]:
        """Yield how much more often than expected the entity's rows were of a class.

        Few labels count as none: the excess is shrunk towards 0.
        """
        over_labels = self._over_known(role, self.graph.is_labelled)
        # Again with the time as the value, now over rows whose label is known.
        known = over_labels(self.timestamp)
        yield "log known labels", np.log1p(known[:, COUNT])
        yield "log time since the last known label", self._log_time_since(known[:, HIGH])
        for name, values in excess.items():
            known = over_labels(values)
            # [windows, n] each.
            sums, weights = _windowed(known)
            for window, shrunk in zip(WINDOWS, sums / (weights + SHRINKAGE), strict=True):
                yield f"excess of {name}, {window}", shrunk
            yield f"excess of {name}, last time", _mean_of_last(known)

    def _number_columns(self, role: Role) -> Iterator[tuple[str, ndarray]]:
        """Yield aggregates of numeric features over earlier rows.

        Without earlier rows they are those of the row's own value.
        """
        over_rows = self._over_rows(role)
        for feature, value in (self._own_numbers | self._edge_numbers).items():
            # The own value says "no change", where zero would look like an extreme.
            yield from _aggregates_of(feature, over_rows(value), value[self.nodes])

    def _outcome_columns(self, role: Role) -> Iterator[tuple[str, ndarray]]:
        """Yield aggregates of the columns that are known after the event, as late as its label.

        Without earlier rows they are the mean over all rows before.
        """
        for column, (value, is_known, usual) in enumerate(self._outcomes):
            past = self._over_known(role, is_known)(value)
            yield from _aggregates_of(f"outcome {column}", past, usual)

    @cached_property
    def _outcomes(self) -> list[tuple[ndarray, ndarray, ndarray]]:
        """Of every outcome the values [N], which are known [N], and what is usual [n]."""
        outcomes = self.graph.target_nodes.outcomes
        if outcomes is None:
            return []
        result = []
        for column in outcomes.T.astype(np.float64):
            is_known = np.isfinite(column)
            value = np.where(is_known, column, 0.0)
            usual = _recent_mean(self._over_known(self._everything, is_known)(value))
            result.append((value, is_known, usual))
        return result

    def _writer_columns(self, role: Role, kind: str) -> Iterator[tuple[str, ndarray]]:
        """Yield what earlier rows of another type say of the entities.

        Without earlier rows, numbers are the mean over all rows of that type before.
        """
        yield from self._row_columns(role)
        rows = np.arange(self.graph.num_nodes)
        written = np.arange(self.graph.nodes[kind].num_nodes)
        reads = Pairs(rows, np.zeros_like(rows))
        everything = Role(EVERYTHING, reads, Pairs(written, np.zeros_like(written)), 1, kind)
        over_rows, over_all = self._over_rows(role), self._over_rows(everything)
        for column, value in _numbers_of(self.graph.nodes[kind]):
            usual = _recent_mean(over_all(value))
            yield from _aggregates_of(f"feature {column}", over_rows(value), usual)

    @cached_property
    def _own_numbers(self) -> dict[str, ndarray]:
        """The first numeric features of all rows by name [N]."""
        own = self.graph.nodes[self.graph.target]
        return {f"feature {column}": value for column, value in _numbers_of(own)}

    @cached_property
    def _edge_numbers(self) -> dict[str, ndarray]:
        """Means of the numeric columns of the edges of every row, by name [N]; 0 without edges."""
        means = {}
        size = self.graph.num_nodes
        edge_types = list(map(edge_type, self.graph.relations))
        for kind, by_relation in self.links.items():
            if kind not in edge_types:
                continue
            for name, pairs in by_relation.items():
                count = np.maximum(np.bincount(pairs.row, minlength=size), 1)
                for column, value in _numbers_of(self.graph.nodes[kind]):
                    total = np.bincount(pairs.row, value[pairs.entity], size)
                    means[f"{name} feature {column}"] = total / count
        return means

    def _proportions(self, over_labels: Aggregator, is_class: ndarray) -> ndarray:
        """Return the proportion of a class in every window [windows, n]."""
        # Laplace smoothing: one more label, spread evenly over the classes.
        sums, weights = _windowed(over_labels(is_class))
        return (sums + 1 / self.graph.num_labels) / (weights + 1)

    def _log_time_since(self, since: ndarray) -> ndarray:
        """Return log(1 + time from `since` to the node's own) [n]."""
        span = self.timestamp[self.nodes] - since
        logarithm = np.log1p(np.maximum(span, 0))
        # Infinite where there is no earlier row.
        return np.where(np.isfinite(span), logarithm, NEVER)

    def _over_rows(self, role: Role) -> Aggregator:
        """Aggregate over all rows before the own time of a node."""
        written_at = self._written_at(role)
        return self._aggregator(role, self.timestamp, self.nodes, role.writes, written_at)

    def _written_at(self, role: Role) -> ndarray:
        """Return the time of every row of the type that writes, as exact as that of the targets."""
        nodes = self.graph.nodes[role.writer or self.graph.target]
        assert nodes.time is not None  # only dated types write
        if self.graph.target_nodes.timestamp is None:
            return nodes.time.astype(np.float64)
        if nodes.timestamp is not None:
            return nodes.timestamp
        # Only the period is known: the row is there when it is over.
        times, position = np.unique(nodes.time, return_inverse=True)
        return np.array([self.graph.begin_of(time + 1) for time in times.tolist()])[position]

    def _over_known(self, role: Role, is_known: ndarray) -> Aggregator:
        """Aggregate over rows in a mask [N], from the moment when their label is known."""
        writes = role.writes.select(is_known[role.writes.row])
        known_at = self.graph.label_known_at
        return self._aggregator(role, self.label_time, self.nodes, writes, known_at)

    def _aggregator(
        self,
        role: Role,
        read_time: ndarray,
        nodes: ndarray,
        writes: Pairs,
        write_time: ndarray,
    ) -> Aggregator:
        """Return the function that aggregates what `nodes` read at their time; times are [N]."""
        # Position among the requested nodes, −1 for all others [N].
        position = np.full(self.graph.num_nodes, -1)
        position[nodes] = np.arange(len(nodes))
        # Reads of the requested nodes only; every row writes, requested or not.
        is_requested = position[role.reads.row] >= 0
        row, entity, time = role.reads.select(is_requested).by_time(read_time)
        # Windows decay with every new time of an entity, those of all rows with every period.
        clock = self._written_at(role)
        if role.name == EVERYTHING:
            clock = self.graph.period_of(role.writer or self.graph.target).astype(np.float64)
        reads = (position[row], entity, time)
        sorted_writes = writes.by_time(write_time)
        # The whole past has an infinite half-life.
        half_lives = np.array([np.inf, *HALF_LIVES])
        # Of sum and weight of every window.
        decay = np.repeat(0.5 ** (1 / half_lives), 2)

        def aggregate(value: ndarray) -> ndarray:
            # One row of aggregates per requested node, at first those of nothing. `decay` has an
            # entry for each of the columns from `TOTAL` on.
            out = np.zeros((len(nodes), TOTAL + len(decay)))
            out[:, LOW] = np.inf
            out[:, [HIGH, LAST_TIME]] = -np.inf
            _aggregate(reads, sorted_writes, (value, clock, decay), role.num_entities, out)
            return out

        return aggregate


def history_columns(graph: TemporalGraph, nodes: ndarray) -> ndarray:
    """Return the history of some rows of a view [n, columns], float32."""
    width = len(history_names(graph))
    what = f"{width:,} history features of {len(nodes):,} nodes"
    checks.fits(what, 8 * width * len(nodes), "leave out 'history' or merge rare classes")
    rows, position = np.unique(nodes, return_inverse=True)  # each read once
    columns = list(History(graph, rows).columns().values())
    return np.column_stack(columns).astype(np.float32)[position]


def recent_and_last_labels(graph: TemporalGraph, nodes: ndarray) -> list[ndarray]:
    """Return class proportions of recent labels, and of the last labels of a row's entities.

    Each is [n, num_labels] in float32, of labels that are known at the beginning of the row's
    period.
    """
    rows, position = np.unique(nodes, return_inverse=True)  # each read once
    proportions = History(graph, rows).recent_and_last_labels()
    return [values.astype(np.float32)[position] for values in proportions]


def history_names(graph: TemporalGraph) -> list[str]:
    """Name the columns of `history_columns`; the types and classes of a graph determine them."""
    # Without edges and requested nodes only the expectation of every row is computed.
    nothing = np.empty((2, 0), np.int64)
    relations = dict.fromkeys(graph.relations, Relation(nothing))
    unlinked = graph.with_parts(dict(graph.nodes), relations)
    return list(History(unlinked, nothing[0]).columns())


def _numbers_of(part: Nodes) -> Iterator[tuple[int, ndarray]]:
    """Yield the first numeric features of a type, with their positions."""
    if part.x is not None and part.numbers is not None:
        for column in part.numbers[:MOST_COLUMNS].tolist():
            yield column, np.asarray(part.x[:, column], np.float64)


def _links_of(graph: TemporalGraph) -> Links:
    """Return the pairs of all relations between rows and entities."""
    links: Links = {}
    for triple, relation in graph.relations.items():
        # One end is a row, the other an entity.
        if triple[::2].count(graph.target) == 1:
            kind, direct = _linked(graph.target, triple, relation)
            pairs = _known_pairs(graph, direct, kind, relation, slice(None))
            links.setdefault(kind, {})["-".join(triple)] = pairs
    return links


def roles_of(graph: TemporalGraph, links: Links) -> list[Role]:
    """Return the roles of a graph, which depend on its types and relations only.

    Two relations with one type of entities give four roles: a team at home reads its earlier
    matches at home, and those away.
    """
    roles = []
    for triple, relation in graph.relations.items():
        if triple[0] == triple[2] == graph.target:
            # Both directions: each end of an edge reads the other as its entity.
            one_way = relation.edge_index
            both = Pairs(*np.hstack([one_way, one_way[::-1]]))
            # The edge of every pair, for its time.
            edges = np.tile(np.arange(relation.num_edges), 2)
            reads = _known_pairs(graph, both, graph.target, relation, edges)
            # An entity is a row here, and each row writes to itself only.
            rows = np.arange(graph.num_nodes)
            roles.append(Role("-".join(triple), reads, Pairs(rows, rows), len(rows)))
    for kind, by_relation in links.items():
        size = graph.nodes[kind].num_nodes
        for (name, reads), (other, writes) in product(by_relation.items(), repeat=2):
            title = name if name == other else f"{name}, earlier {other}"
            roles.append(Role(title, reads, writes, size))
        for name, direct in by_relation.items():
            roles += _two_step_roles(graph, name, direct, kind)
            roles += _writer_roles(graph, name, direct, kind)
    return roles


def _writer_roles(graph: TemporalGraph, name: str, direct: Pairs, kind: str) -> Iterator[Role]:
    """Yield a role for every dated type whose rows are linked to the entities of type `kind`."""
    for triple, relation, other, links in _further_relations(graph, kind):
        time = graph.nodes[other].time
        if time is None:
            continue
        writes = Pairs(links.entity, links.row)
        if relation.time is not None:
            writes = writes.select(relation.time <= time[writes.row])
        title = f"{name}, earlier {'-'.join(triple)}"
        yield Role(title, direct, writes, graph.nodes[kind].num_nodes, other)


def _strengths_of(graph: TemporalGraph, links: Links) -> tuple[tuple[ndarray, ...], int]:
    """Return the strengths of every row as `_run_model` reads them, and the number of strengths.

    Strength 0 is the intercept; then every relation has a strength per entity, and so have two
    relations together. Several entities of a row in one relation count as their mean.
    """
    rows = np.arange(graph.num_nodes)
    # Row, strength and weight of the intercept, and then of every relation.
    parts = [(rows, np.zeros_like(rows), np.ones(len(rows)))]
    num_strengths = 1
    for kind, by_relation in links.items():
        terms = [{name: 1} for name in by_relation]
        if len(by_relation) == 2:
            # The rating: for the first relation, against the second.
            terms.append(dict(zip(by_relation, (1, -1), strict=True)))
        for term in terms:
            for name, sign in term.items():
                pairs = by_relation[name]
                share = sign / np.bincount(pairs.row)[pairs.row]
                parts.append((pairs.row, num_strengths + pairs.entity, share))
            num_strengths += graph.nodes[kind].num_nodes
    row, strength, weight = map(np.concatenate, zip(*parts, strict=True))
    order = np.argsort(row, kind="stable")
    begin = np.searchsorted(row[order], np.arange(len(rows) + 1))
    return (begin, strength[order], weight[order]), num_strengths


def _two_step_roles(graph: TemporalGraph, name: str, direct: Pairs, kind: str) -> Iterator[Role]:
    """Yield the roles that lead from a row through its entity of type `kind` to another type."""
    for triple, relation, other, links in _further_relations(graph, kind):
        # For every direct pair, the edges of its entity by their positions in the relation.
        num_edges = relation.num_edges
        by_entity = build_csr(
            np.arange(num_edges), links.row, num_edges, graph.nodes[kind].num_nodes
        )
        edges = by_entity.take(direct.entity)
        # A row is repeated for every edge of its entity.
        row = np.repeat(direct.row, np.diff(edges.indptr))
        pairs = Pairs(row, links.entity[edges.indices])
        pairs = _known_pairs(graph, pairs, other, relation, edges.indices)
        # A path through a hub mixes unrelated entities; its role stays, without pairs, so that
        # columns agree. Rows from the cutoff on do not decide.
        is_past = graph.time < graph.require_cutoff("history columns need")
        num_pairs = np.count_nonzero(is_past[pairs.row])
        num_direct = np.count_nonzero(is_past[direct.row])
        if num_pairs > MOST_FANOUT * num_direct:
            pairs = Pairs(pairs.row[:0], pairs.entity[:0])
        title = f"{name}, {'-'.join(triple)}"
        yield Role(title, pairs, pairs, graph.nodes[other].num_nodes)


def _further_relations(
    graph: TemporalGraph, kind: str
) -> Iterator[tuple[Triple, Relation, str, Pairs]]:
    """Yield the relations between a type and types other than the target, with their `_linked`."""
    for triple, relation in graph.relations.items():
        ends = {triple[0], triple[2]}
        if kind in ends and graph.target not in ends and len(ends) == 2:
            yield (triple, relation, *_linked(kind, triple, relation))


def _linked(kind: str, triple: Triple, relation: Relation) -> tuple[str, Pairs]:
    """Return the other type of a relation, and its edges as pairs of a node of `kind` and it."""
    source, target = np.asarray(relation.edge_index)
    if triple[2] == kind:
        return triple[0], Pairs(target, source)
    return triple[2], Pairs(source, target)


def _known_pairs(
    graph: TemporalGraph, pairs: Pairs, kind: str, relation: Relation, edges: ndarray | slice
) -> Pairs:
    """Return every pair once, in order, without links and entities that are newer than the row."""
    # Times of the rows, one per pair.
    own = graph.time[pairs.row]
    is_late = np.zeros(len(own), bool)
    if relation.time is not None:
        is_late |= relation.time[edges] > own
    if (time := graph.nodes[kind].time) is not None:
        is_late |= time[pairs.entity] > own
    size = graph.nodes[kind].num_nodes
    known = pairs.select(~is_late)
    # A pair as one number, so that sorting and removing repeats is one step.
    key = known.row.astype(np.int64) * size + known.entity
    return Pairs(*np.divmod(sorted_unique(key), size))


@njit(nogil=True, cache=True)
def _aggregate(reads, writes, values, num_entities, out):
    """Fill out[position] with aggregates of the values written to the entities before a read.

    Args:
        reads: Position in `out`, entity and time of every read, in order of time.
        writes: Row, entity and time of every write, in order of time.
        values: Value and clock of every row, and the factors by which the sums and weights of the
            windows decay when the clock of an entity moves on.
        num_entities: Number of entities.
        out: [n, aggregates], prepared with the aggregates of nothing.
    """
    position, read_entity, read_time = reads
    write_row, write_entity, write_time = writes
    value, clock, decay = values
    # Aggregates of every entity so far.
    state = np.zeros((num_entities, out.shape[1]))
    state[:, LOW] = np.inf
    state[:, HIGH] = -np.inf
    state[:, LAST_TIME] = -np.inf
    # The next write; reads and writes are both in order of time.
    w = 0
    for r in range(len(position)):
        # Strictly before: rows of one time never see each other.
        while w < len(write_row) and write_time[w] < read_time[r]:
            one = state[write_entity[w]]
            x = value[write_row[w]]
            now = clock[write_row[w]]
            # A new time of this entity: its last time starts afresh, and windows decay once.
            if now != one[LAST_TIME]:
                one[LAST_TIME] = now
                one[LAST_TOTAL] = 0.0
                one[LAST_COUNT] = 0.0
                for k in range(len(decay)):
                    one[TOTAL + k] *= decay[k]
            one[SQUARES] += x * x
            one[LOW] = min(one[LOW], x)
            one[HIGH] = max(one[HIGH], x)
            one[LAST_TOTAL] += x
            one[LAST_COUNT] += 1
            # Sums and weights of the windows alternate.
            for k in range(TOTAL, len(one), 2):
                one[k] += x
                one[k + 1] += 1
            w += 1
        _merge(state[read_entity[r]], out[position[r]])


@njit(nogil=True, cache=True)
def _run_model(reads, writes, strengths, variance, out):
    """Fill out[position] [n, classes] with the logits of rows at the times of their reads.

    A label is one noisy measurement of each strength: it moves the strength by its variance times
    the error, and lowers the variance. (That is Glicko, a Kalman filter without covariances.)

    Args:
        reads: Row, position in `out` and time of every read, in order of time.
        writes: Row and time of every label, in order of time, and the labels of all rows.
        strengths: Begin of every row in the next two: its strengths, and their weights.
        variance: Of every strength, at first.
        out: Zeros.
    """
    read_row, position, read_time = reads
    write_row, write_time, label = writes
    begin, index, weight = strengths
    strength = np.zeros((len(variance), out.shape[1]))
    last_time = np.full(len(variance), -np.inf)
    # Of every label [writes, classes].
    error = np.zeros((len(write_row), out.shape[1]))
    # The next write; reads and writes are both in order of time.
    w = 0
    for r in range(len(read_row)):
        while w < len(write_row) and write_time[w] < read_time[r]:
            # Labels of one time predict each other nothing: all errors before any update.
            now = write_time[w]
            end = w
            while end < len(write_row) and write_time[end] == now:
                row = write_row[end]
                logit = error[end]
                for k in range(begin[row], begin[row + 1]):
                    s = index[k]
                    logit += weight[k] * strength[s]
                    if last_time[s] != now:
                        last_time[s] = now
                        variance[s] += DRIFT
                    # 1/4 bounds the information p (1 - p) of a label.
                    variance[s] /= 1 + variance[s] * weight[k] ** 2 / 4
                # The error in place of the logits: the one-hot label minus the probabilities.
                odds = np.exp(logit - logit.max())
                error[end] = -odds / odds.sum()
                error[end, label[row]] += 1
                end += 1
            for u in range(w, end):
                row = write_row[u]
                for k in range(begin[row], begin[row + 1]):
                    s = index[k]
                    strength[s] += variance[s] * weight[k] * error[u]
            w = end
        row = read_row[r]
        for k in range(begin[row], begin[row + 1]):
            out[position[r]] += weight[k] * strength[index[k]]


@njit(nogil=True, cache=True)
def _merge(one, total):
    """Add the aggregates of an entity to those of the other entities of a row."""
    # Of several entities, those with the newest time count as the last.
    if one[LAST_TIME] > total[LAST_TIME]:
        total[LAST_TIME] = one[LAST_TIME]
        total[LAST_TOTAL] = 0.0
        total[LAST_COUNT] = 0.0
    if one[LAST_TIME] == total[LAST_TIME]:
        total[LAST_TOTAL] += one[LAST_TOTAL]
        total[LAST_COUNT] += one[LAST_COUNT]
    total[LOW] = min(total[LOW], one[LOW])
    total[HIGH] = max(total[HIGH], one[HIGH])
    # Sums add up over the entities of a row.
    for k in range(SQUARES, len(total)):
        total[k] += one[k]


def _aggregates_of(name: str, past: ndarray, otherwise: ndarray) -> Iterator[tuple[str, ndarray]]:
    """Yield what the aggregates of a number say; `otherwise` [n] where there is no earlier row."""
    has_past = past[:, COUNT] > 0
    # [windows, n] each; the whole past comes first.
    sums, weights = _windowed(past)
    means = sums / np.where(weights > 0, weights, 1)
    # By sums of squares; rounding may leave it a little below zero.
    variance = past[:, SQUARES] / np.maximum(past[:, COUNT], 1) - means[0] ** 2
    aggregates = {
        "least": past[:, LOW],
        "largest": past[:, HIGH],
        "last": _mean_of_last(past),
    }
    columns = {f"{aggregate} of {name}": values for aggregate, values in aggregates.items()}
    for window, mean in zip(WINDOWS, means, strict=True):
        columns[f"mean of {name}, {window}"] = mean
    for title, values in columns.items():
        yield title, np.where(has_past, values, otherwise)
    yield f"deviation of {name}", np.sqrt(np.maximum(variance, 0))


def _mean_of_last(aggregates: ndarray) -> ndarray:
    """Return the mean value at the last time; 0 where there is none."""
    return aggregates[:, LAST_TOTAL] / np.maximum(aggregates[:, LAST_COUNT], 1)


def _recent_mean(aggregates: ndarray) -> ndarray:
    """Return the mean in which older rows count less [n]; 0 where there is none."""
    sums, weights = _windowed(aggregates)
    return sums[RECENT] / np.maximum(weights[RECENT], 1)


def _windowed(aggregates: ndarray) -> tuple[ndarray, ndarray]:
    """Return sums and weights of all windows [windows, n], in the order of `WINDOWS`."""
    sums = aggregates[:, TOTAL::2]
    weights = aggregates[:, COUNT::2]
    return sums.T, weights.T
