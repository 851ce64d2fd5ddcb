"""Builds graphs from tables: joins ids, codes labels, bins times; features stay raw columns.

Everything is done column by column in Arrow and numpy. With a `spill` directory, features and
edges are written there batch by batch, so that memory holds ids, times and labels only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc
from numpy import ndarray

from impact_gnn import _files, _native, checks
from impact_gnn.checks import InputError, listing, quoted
from impact_gnn.data.foreign_keys import distinct_values, kind_of
from impact_gnn.data.ids import Ids, positions
from impact_gnn.data.sources import ROWS, Source, from_frame, plain_text, release_memory
from impact_gnn.data.spec import (
    EDGE_ENDS,
    EdgeTable,
    NodeTable,
    Spec,
    guess_by_keys,
    guess_edges,
    guess_events,
    guess_nodes,
    refuse_misread,
)
from impact_gnn.data.values import (
    Period,
    finite_numbers,
    floats_as_numbers,
    label_notes,
    labels,
    numbers_as_dates,
    times,
    times_like,
)
from impact_gnn.encoding import Columns
from impact_gnn.encoding.kinds import OUTCOME, is_text, looks_like_numbers, parsed_numbers
from impact_gnn.encoding.moments import one_array
from impact_gnn.graph import HOMOGENEOUS, TemporalGraph, Triple
from impact_gnn.graph.csr import index_type
from impact_gnn.graph.periods import Periods, choose, exact_times

if TYPE_CHECKING:
    from typing_extensions import Unpack  # in `typing` from Python 3.11 on

MOST_STEPS = 1000  # keys one after the other along which rows are dated
EDGES_AT_ONCE = 1 << 22  # edges that are joined with ids, and sorted, together on disk
MOST_TEXT = 1 << 31  # bytes, from which on positions in a text column need 64 bits

Key = TypeVar("Key")


class ColumnRoles(TypedDict, total=False):
    """The keywords of `from_tables` that name columns; each is described there."""

    id: str | Mapping[str, str] | None
    time: str | Mapping[str, str] | None
    label: str | None
    unknown_label: Any
    columns: Mapping[str, Any] | None
    edge_source: str | Mapping[Triple, str] | None
    edge_target: str | Mapping[Triple, str] | None
    edge_weight: str | Mapping[Triple, str] | None
    edge_time: str | Mapping[Triple, str] | None
    edge_columns: Mapping[Any, Any] | None


def from_tables(
    nodes: Any,
    edges: Any = None,
    *,
    entities: Mapping[str, Sequence[str]] | None = None,
    target: str | None = None,
    period: Period = "auto",
    cutoff: Any = None,
    dangling: str = "refuse",
    label_delay: float = 0.0,
    quiet: bool = False,
    **roles: Unpack[ColumnRoles],
) -> TemporalGraph:
    """Build a graph from data frames of any library that narwhals supports, or mappings of columns.

    Roles of columns that are not named are guessed from their names, and printed; "" means that
    there is no such column. Columns without a role are features: numbers, categories, text, dates
    and lists of numbers. They are encoded by what is known before a cutoff.

    Nodes are sorted by id (`graph.ids`), columns by name, edges by target and source: the order of
    a table changes nothing. Rows without ids stay in their order.

    Args:
        nodes: A table with a row per node; for several types a mapping from their names to tables.
        edges: A table with a row per edge; for several types a mapping {(source type, name, target
            type): table}. None for tables of events: columns that name entities become
            relations. They hold the ids of another table, or have none (userId, home_team).
        entities: Of one table of events: its columns that name entities, by type of entity, such
            as {"team": ["home_team", "away_team"]}; by default they are guessed.
        target: The type to classify; by default the one with a label.
        period: "auto", "year", "quarter", "month", "week", "day", "hour", a number of periods with
            equal counts, "whole" for whole numbers as they are, or the `periods` of another graph.
        cutoff: Where labels end, so that periods can be chosen with a border there.
        dangling: "refuse" or "drop" edges that name a node which is not there.
        label_delay: How long after a row's own time its label becomes known, in days if times are
            dates. History features wait that long.
        quiet: Do not print what was guessed.
        roles: The roles of columns, all of them keywords.

            - `id`: Column of the nodes' ids; several types take a mapping by type here and below.
            - `time`: Column of the nodes' times: dates, timestamps, ISO text, seconds since 1970,
              years, any numbers.
            - `label`: Column of the labels of the type to classify; missing and blank ones are
              unknown.
            - `unknown_label`: A label, or a list of labels, that means that the class is not known.
              −1 is a class like any other, unless it is named here.
            - `columns`: Kinds of feature columns that should not be guessed: "number", "category",
              "text", "date", "vector", "outcome" (known only after the event), "ignore". With
              several types a mapping by type.
            - `edge_source`: Column of an edge's source; several relations take a mapping by
              relation here and below.
            - `edge_target`, `edge_weight`, `edge_time`: Columns of its target, weight and time.
            - `edge_columns`: Kinds of further columns of the edges, such as {"amount": "number"}.
              Every edge becomes a node with these features as well, between its two ends.

    Examples:
        >>> papers = {
        ...     "id": ["a", "b", "c"],
        ...     "published": ["2019-05-02", "2020-07-01", "2021-03-09"],
        ...     "label": ["x", "y", None],
        ...     "pages": [8, None, 12],
        ... }
        >>> links = {"source": ["b", "c"], "target": ["a", "b"]}
        >>> g = from_tables(papers, links, period="year", quiet=True)
        >>> g, g.ids.tolist(), g.masked("2021").y.tolist()
        (TemporalGraph(3 nodes, 2 edges, 2 features, 2 classes, times 2019..2021), ['a', 'b', 'c'],
        [0, 1, -1])
        >>> ratings = {
        ...     "userId": [1, 1, 2, 2],
        ...     "movieId": [7, 8, 7, 8],
        ...     "time": [2019, 2020, 2020, 2021],
        ...     "label": [0, 1, 1, None],
        ... }
        >>> sorted(from_tables(ratings, quiet=True).nodes)
        ['event', 'movie', 'user']
    """
    checks.keywords("from_tables", roles, ColumnRoles)
    edge_roles = {name: roles.get(f"edge_{name}") for name in (*EdgeTable.role_names, "columns")}
    named = {name: roles.get(name) for name in (*NodeTable.role_names, "columns")}
    named["unknown"] = roles.get("unknown_label")
    if edges is None:
        of_edges = [name for name in roles if name.startswith("edge_")]
        if of_edges:
            raise InputError(
                f"{listing(of_edges)} has no effect without edges; "
                "pass tables of edges, or put them into a folder with a graph.toml."
            )
        spec = _event_spec(nodes, entities, target=target, named=named)
    elif entities is not None:
        raise InputError("entities are columns of a table of events; leave out edges.")
    else:
        spec = _graph_spec(
            nodes,
            edges,
            target=target,
            named=named,
            edge_roles=edge_roles,
            dangling=dangling,
        )
    spec = replace(spec, label_delay=label_delay)
    reading = build(spec, period=period, cutoff=cutoff)
    if not quiet:
        print("\n".join(reading.notes))
    return reading.graph


def _graph_spec(
    nodes: Any,
    edges: Any,
    *,
    target: str | None,
    named: Mapping[str, Any],
    edge_roles: Mapping[str, Any],
    dangling: str,
) -> Spec:
    """Return the spec of tables of nodes and of edges, with roles that the user has named."""
    columns = named["columns"] or {}
    title = "nodes[{!r}]"
    # A single table is that of the only type.
    if not _has_types(nodes):
        nodes = {"node": nodes}
        columns = {"node": columns}
        title = "nodes"
    node_sources = {}
    for kind, table in nodes.items():
        node_sources[kind] = from_frame(title.format(kind), table, indexed=True)
    if target is not None and target not in node_sources:
        raise InputError(
            f"target={quoted(target)} is not a node type; "
            f"choose one of {listing(list(node_sources))}."
        )
    edge_sources = _edge_sources(edges, list(node_sources))
    node_tables = {}
    for kind, source in node_sources.items():
        # Any type may have the labels, unless one was named.
        is_candidate = target in (None, kind)
        roles = {role: _role(named[role], kind, node_sources) for role in NodeTable.role_names}
        roles["columns"] = columns.get(kind)
        if is_candidate:
            roles["unknown"] = named["unknown"]
        else:
            # Only the type to classify has labels.
            del roles["label"]
        alone = len(node_sources) == 1
        node_tables[kind] = guess_nodes(kind, source, roles, labelled=is_candidate, alone=alone)
    edge_tables = {}
    declared = edge_roles["columns"] or {}
    for triple, source in edge_sources.items():
        names = EdgeTable.role_names
        roles = {role: _role(edge_roles[role], triple, edge_sources) for role in names}
        roles["columns"] = declared
        # By relation, or of the only one.
        if set(declared) <= set(edge_sources):
            roles["columns"] = declared.get(triple)
        roles["dangling"] = dangling
        edge_tables[triple] = guess_edges(source, roles, (triple[0], triple[2]))
    sources = chain(node_sources.values(), edge_sources.values())
    by_file = {source.name: source for source in sources}
    target = target or _only_candidate(node_tables)
    return Spec(node_tables, edge_tables, target, sources=by_file).with_edge_columns()


def _event_spec(
    nodes: Any,
    entities: Mapping[str, Sequence[str]] | None,
    *,
    target: str | None,
    named: Mapping[str, Any],
) -> Spec:
    """Return the spec of tables of events, with roles that the user has named."""
    roles = {role: value for role, value in named.items() if value is not None}
    columns = entities or {}
    if not isinstance(columns, Mapping) or str in map(type, columns.values()):
        raise InputError(
            f"entities={quoted(entities)} should be lists of columns by type, "
            "such as {'user': ['userId']}."
        )
    # Several tables are joined by keys; a single one has columns that name entities.
    if _has_types(nodes):
        if entities is not None:
            raise InputError("entities are columns of a single table; leave them out.")
        sources = {kind: from_frame(kind, table, indexed=True) for kind, table in nodes.items()}
        types = {kind: kind for kind in nodes}
        spec = guess_by_keys(sources, types, target=target, named=roles)
    else:
        sources = {"nodes": from_frame("nodes", nodes, indexed=True)}
        spec = guess_events(target or "event", sources["nodes"], roles, entities)
    if spec is None:
        refuse_misread(sources)
        raise InputError(
            "no time column, or no column of entity ids, was recognised; pass edges, or set "
            "them with time=... and entities={'user': ['userId']}."
        )
    return spec


def _has_types(nodes: Any) -> bool:
    """Return whether nodes are a mapping from types to tables."""
    if not isinstance(nodes, Mapping):
        return False
    # Values of one table's mapping are columns, and have no columns themselves.
    return any(isinstance(table, Mapping) or hasattr(table, "columns") for table in nodes.values())


def _only_candidate(tables: Mapping[str, NodeTable]) -> str:
    """Return the only type that can be classified."""
    labelled = [kind for kind, table in tables.items() if table.label and table.time]
    candidates = labelled or list(tables)
    if len(candidates) > 1:
        raise InputError(
            f"{listing(candidates)} could all be classified; choose one with target=..."
        )
    return candidates[0]


def _edge_sources(edges: Any, types: list[str]) -> dict[Triple, Source]:
    """Return the edge tables by relation."""
    # A single table is that of the only relation.
    if not isinstance(edges, Mapping) or not all(isinstance(key, tuple) for key in edges):
        edges = {(types[0], "to", types[0]): edges}
    sources = {}
    for triple, table in edges.items():
        if len(triple) != 3 or triple[0] not in types or triple[2] not in types:
            raise InputError(
                f"{quoted(triple)} does not name a relation; "
                f"write (source type, name, target type) with types among {listing(types)}."
            )
        name = "edges"
        if len(edges) > 1:
            name = "-".join(map(str, triple))
        sources[triple] = from_frame(name, table)
    return sources


def _role(column: Any, key: Key, sources: Mapping[Key, Source]) -> Any:
    """Return the column that a user named for one table, or for all tables that have it."""
    if isinstance(column, Mapping):
        return column.get(key)
    if not column or len(sources) == 1 or column in sources[key].names:
        return column
    if not any(column in source.names for source in sources.values()):
        raise InputError(f"no table has a column {quoted(column)}; choose an existing one.")
    return None


@dataclass(frozen=True)
class Reading:
    """A graph, lines that describe how every column was read, and the roles of the columns."""

    graph: TemporalGraph
    notes: list[str]
    spec: Spec | None = None


def build(
    spec: Spec,
    *,
    period: Period | None = None,
    cutoff: Any = None,
    features: ndarray | None = None,
    spill: Path | None = None,
) -> Reading:
    """Build the graph that a spec describes; `features` replace those of the type to classify.

    With `spill`, a directory, feature columns and edges are written there batch by batch and
    mapped.
    """
    nodes: dict[str, NodeRows] = {}
    for kind, node_table in spec.nodes.items():
        # A matrix of features belongs to the type to classify.
        matrix = features if kind == spec.target else None
        path = spill and spill / f"nodes-{len(nodes)}.arrow"
        source = spec.sources[node_table.file]
        # Entities without a table of their own are the distinct values of columns.
        if node_table.values_of:
            source = distinct_values(source, node_table.values_of)
        nodes[kind] = NodeRows.read(source, node_table, matrix, path)
    _refuse_misplaced_outcomes(spec)
    main = nodes[spec.target]
    if main.time is None:
        raise InputError(f"{main.name} has no time column; set it with time=... or in graph.toml.")
    if main.label is None:
        main.notes.append("  label: none; set label=..., or label = ... in graph.toml")
    links: dict[Triple, EdgeRows] = {}
    node_files = {table.file for table in spec.nodes.values()}
    for triple, edge_table in spec.edges.items():
        source = spec.sources[edge_table.file]
        ends = (nodes[triple[0]], nodes[triple[2]])
        folder = spill and spill / f"edges-{len(links)}"
        links[triple] = EdgeRows.read(source, edge_table, ends, folder)
        if edge_table.file not in node_files:
            links[triple].notes += _unused_columns(source, edge_table)
        else:
            ends[1].reasons[edge_table.source] = f"it becomes a relation to {triple[0]}"
    tables: list[NodeRows | EdgeRows] = [*nodes.values(), *links.values()]
    rule = spec.period if period is None else period
    periods, time_notes = _assign_periods(main, tables, rule, cutoff)
    _date_by_keys(spec, nodes, links)
    used = node_files | {table.file for table in spec.edges.values()}
    unused = [f"{name}: not used" for name in spec.sources if name not in used]
    target = spec.target
    # A graph of one type has the names of `TemporalGraph(...)`, whatever the tables are called.
    if len(nodes) == 1 and len(links) == 1:
        target, _, _ = HOMOGENEOUS
        (link,) = links.values()
        nodes = {target: main}
        links = {HOMOGENEOUS: link}
    node_arrays = {kind: part.arrays() for kind, part in nodes.items()}
    edge_arrays = {triple: part.arrays() for triple, part in links.items()}
    graph = TemporalGraph.hetero(
        nodes=node_arrays,
        edges=edge_arrays,
        target=target,
        label_names=main.label_names,
        periods=periods,
        label_delay=spec.label_delay,
    )
    graph, misfit_notes = _with_kinds(graph, list(nodes.values()), cutoff)
    notes = [note for table in tables for note in table.notes]
    return Reading(graph, [*notes, *unused, *time_notes, *misfit_notes], spec)


def _date_by_keys(
    spec: Spec, nodes: Mapping[str, NodeRows], links: Mapping[Triple, EdgeRows]
) -> None:
    """Date rows without a time by what their keys refer to."""
    untimed = [kind for kind, part in nodes.items() if part.period is None]
    # Again and again: a row may refer to rows that have no time of their own either.
    for _ in range(MOST_STEPS):
        is_settled = True
        for kind in untimed:
            keys = [(links[triple].index, nodes[triple[0]].period) for triple in spec.keys_of(kind)]
            before, after = nodes[kind].period, latest_parents(nodes[kind].size, keys)
            nodes[kind].period = after
            is_settled &= after is None or np.array_equal(after, before)  # type: ignore[arg-type]
        if is_settled:
            break


def _refuse_misplaced_outcomes(spec: Spec) -> None:
    """Refuse outcomes of other types than the target, and those that edges are made of."""
    for kind, table in spec.nodes.items():
        if kind != spec.target and OUTCOME in table.columns.values():
            raise InputError(
                f"{table.file} has columns of the kind {OUTCOME!r}, which only the type to "
                f"classify, {spec.target!r}, may have; choose another kind or 'ignore'."
            )
    main = spec.nodes[spec.target]
    outcomes = {name for name, kind in main.columns.items() if kind == OUTCOME}
    for (_, name, _), edges in spec.edges.items():
        used = outcomes.intersection([edges.source, edges.target, edges.weight, edges.time])
        if edges.file == main.file and used:
            raise InputError(
                f"column {min(used)!r} of {main.file} is known only after the event, but edges "
                f"{name!r} are made of it, which all models read; remove these edges (in "
                "graph.toml) or the column."
            )


def _assign_periods(
    main: NodeRows,
    tables: list[NodeRows | EdgeRows],
    rule: Period,
    cutoff: Any,
) -> tuple[Periods | None, list[str]]:
    """Choose periods by the type to classify, set those of all tables, and describe the choice."""
    assert main.time is not None
    notes = []
    # Times of all other tables, for the choice of a unit.
    others = [table.time for table in tables if table.time is not None and table is not main]
    # All tables are read by the unit that the type to classify has.
    main_time, unit = numbers_as_dates(main.time, rule, others)
    if unit is not None:
        since = "" if unit.startswith("Y") else " since 1970"
        notes.append(f"time: whole numbers read as {unit}{since}")
    is_labelled = None if main.label is None else main.label >= 0
    periods, sentence = choose(main_time, is_labelled, rule, cutoff)
    notes.append(f"time: {sentence}")
    for table in tables:
        if table.time is None:
            continue
        time = main_time
        if table is not main:
            time = times_like(table.time, unit, main_time, table.name)
        # Period numbers, or whole numbers that are their own periods.
        table.period = time if periods is None else periods.of(time)
        if table is main and periods is not None:
            # History features need the time within a period.
            main.timestamp = exact_times(time)
        is_dated = time.dtype.kind == "M"
        if is_dated and isinstance(table, NodeRows) and isinstance(table.features, Columns):
            # Dates of feature columns are counted from the node's own date.
            table.features = replace(table.features, moment=time)
    return periods, notes


def latest_parents(
    size: int,
    keys: Sequence[tuple[ndarray, ndarray | None]],
) -> ndarray | None:
    """Return the periods of rows without a time; None if nothing that they refer to has one.

    A row comes no earlier than all nodes that its keys refer to. Without any, it counts as the
    latest.

    Args:
        size: The number of rows.
        keys: For every key its edges (parent, row) [2, E], and the periods of the parents.
    """
    dated = [(index, period) for index, period in keys if period is not None and index.size]
    if not dated:
        return None
    latest = max(int(period.max()) for _, period in dated)
    earliest = min(int(period.min()) for _, period in dated)
    out = np.full(size, earliest)
    has_parent = np.zeros(size, bool)
    for (parent, row), period in dated:
        np.maximum.at(out, row, period[parent])
        has_parent[row] = True
    return np.where(has_parent, out, latest)


def _with_kinds(
    graph: TemporalGraph,
    tables: list[NodeRows],
    cutoff: Any,
) -> tuple[TemporalGraph, list[str]]:
    """Set the kind of every feature column, and describe later rows that do not fit.

    Kinds are guessed from rows known before the cutoff, or before the one that the labels imply:
    the targets change no kind. They are the same in every fold and in a saved graph.
    """
    inferred: int | None = None
    if graph.is_labelled.any():
        inferred = graph.infer_cutoff()
    if cutoff is not None:
        inferred = graph.when(cutoff)
    misfits: list[str] = []
    nodes = dict(graph.nodes)
    for kind, table in zip(graph.nodes, tables, strict=True):
        part = graph.nodes[kind]
        if part.columns is None:
            continue
        known = None if inferred is None else graph.known_before(kind, inferred)
        columns = part.columns.before(known)
        features = table.set_kinds(columns)
        nodes[kind] = replace(part, features=features)
        if inferred is None or known is None:
            continue
        since = graph.name_of(inferred)
        later = f"rows from {since} on"
        if part.time is None:
            later = f"rows that are not linked to anything before {since}"
        sentences = [columns.misfits(name, kind, later) for name, kind in features.kinds.items()]
        misfits += [f"{table.name}: {sentence}" for sentence in sentences if sentence]
    return graph.with_parts(nodes, dict(graph.relations)), misfits


# -- nodes


@dataclass(eq=False)
class NodeRows:
    """A node table as it is read: ids, times and labels as arrays, features as raw columns."""

    name: str
    size: int
    notes: list[str]
    ids: Ids | None = None
    label: ndarray | None = None
    label_names: list[Any] | None = None
    time: ndarray | None = None
    period: ndarray | None = None
    timestamp: ndarray | None = None
    features: ndarray | Columns | None = None
    # kinds of columns that the user or the column's type determines
    declared_kinds: dict[str, str] = field(default_factory=dict)
    # sentences on text columns that hold mostly numbers; "" for others
    almost_numbers: dict[str, str] = field(default_factory=dict)
    # why columns are ignored that are not declared so
    reasons: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(
        cls,
        source: Source,
        spec: NodeTable,
        features: ndarray | None,
        spill: Path | None,
    ) -> NodeRows:
        roles = list(spec.roles.values())
        # As numbers, 007 and 7 would be one id, class or category.
        categories = [name for name, kind in spec.columns.items() if kind == "category"]
        source = source.as_written([spec.id, spec.label, *categories])
        raw = source.table if spill is None else _spill_features(source, roles, spill)
        if raw.num_rows == 0:
            raise InputError(f"{source.name} has no rows; pass at least one node.")
        columns = spec.columns_of(plain_text(raw))
        origins = spec.origins
        if spec.id is None:
            origins = f"rows numbered 0 to {raw.num_rows - 1} as ids, {origins}"
        nodes = cls(source.name, raw.num_rows, source.description(origins))
        if "id" in columns:
            nodes.ids = Ids.of(columns["id"])
        if "label" in columns:
            nodes.label, nodes.label_names = labels(columns["label"], spec.unknown)
            nodes.notes += label_notes(columns["label"].values, nodes.label_names)
        if "time" in columns:
            nodes.time = times(columns["time"])
            zone = getattr(columns["time"].type, "tz", None)
            if zone not in (None, "UTC"):
                nodes.notes.append(
                    f"  {spec.time}: converted from {zone} to UTC; "
                    "if local days matter, use local times without a time zone"
                )
        nodes._read_features(raw.drop_columns(roles), spec, features, spill)
        return nodes

    def _read_features(
        self,
        raw: pa.Table,
        spec: NodeTable,
        features: ndarray | None,
        spill: Path | None,
    ) -> None:
        """Set the features, and sort all rows by id and columns by name.

        Nothing behind this depends on how a table was sorted.
        """
        order = None if self.ids is None else self.ids.order()
        if order is not None and self.ids is not None:
            # Rows of all arrays in the order of the ids.
            self.ids = Ids(self.ids.values.take(pa.array(order)))
            if self.label is not None:
                self.label = self.label[order]
            if self.time is not None:
                self.time = self.time[order]
        names = raw.column_names
        if features is not None:
            if names:
                self.notes.append(f"  {', '.join(names)}: ignored, features.npy replaces them")
            # another number of rows is refused later
            if order is not None and len(features) == len(order):
                features = _rows_in_order(features, order, spill)
            self.features = features
            return
        if not names:
            return
        table = plain_text(raw)
        for name in names:
            if pa.types.is_dictionary(raw.schema.field(name).type):
                self.declared_kinds[name] = "category"
            if name not in spec.columns:
                self.almost_numbers[name] = looks_like_numbers(name, table[name])
        self.declared_kinds |= spec.columns
        # Columns that are ignored stay in the table: a model may know them.
        table = table.select(sorted(names))
        if order is not None:
            table = _table_in_order(table, order, spill)
        self.features = Columns(table, {}, mapped=spill is not None)

    def set_kinds(self, columns: Columns) -> Columns:
        """Return the columns with the kind of each, declared or guessed from known rows."""
        table = columns.table
        kinds = {}
        warnings = []
        for name in table.column_names:
            kind = self.declared_kinds.get(name)
            reason = self.reasons.get(name, "as declared")
            if kind is None:
                kind, reason = columns.guess_kind(name)
            if kind == "ignore":
                self.notes.append(f"  {name}: ignored, {reason}")
            else:
                self.notes.append(f"  {name}: {kind}")
                kinds[name] = kind
            if kind == "number" and is_text(table.schema.field(name).type):
                # Only known rows decide whether a comma is the decimal mark.
                values, lost = parsed_numbers(table[name], columns.known)
                table = table.set_column(table.column_names.index(name), name, values)
                if lost and name in self.declared_kinds:
                    self.notes.append(
                        f"    {lost:,} values that are not numbers are read as missing"
                    )
            elif self.almost_numbers.get(name):
                warnings.append(f"{self.name}: {self.almost_numbers[name]}")
        self.notes += [f"  warning: {warning}" for warning in warnings]
        # The mask of known rows is for these guesses only; views set their own.
        return replace(columns, table=table, kinds=kinds, known=None, warnings=tuple(warnings))

    @property
    def key(self) -> Ids | int:
        """What edges name nodes by: ids, or the number of rows."""
        return self.size if self.ids is None else self.ids

    def arrays(self) -> dict[str, Any]:
        return {
            "x": self.features,
            "y": self.label,
            "time": self.period,
            "timestamp": self.timestamp,
            "ids": None if self.ids is None else self.ids.names,
            "num_nodes": self.size,
        }


def _spill_features(source: Source, roles: list[str], path: Path) -> pa.Table:
    """Return the table with its features mapped from a file; `roles` stay in memory."""
    path.parent.mkdir(parents=True, exist_ok=True)
    batches = source.batches()
    first = next(batches, None)
    if first is None:
        return source.head
    # Ids, times and labels are needed whole; features are only read in blocks.
    schema = pa.schema([column for column in first.schema if column.name not in roles])
    role_batches: list[pa.RecordBatch] = []
    with pa.ipc.new_file(str(path), schema) as writer:
        for batch in chain([first], batches):
            role_batches.append(batch.select(roles))
            writer.write_batch(batch.select(schema.names))
    table = _map_table(path)
    role_table = pa.Table.from_batches(role_batches)
    # Roles are columns behind the features again.
    for name in roles:
        table = table.append_column(name, role_table.column(name))
    return table


def _map_table(path: Path) -> pa.Table:
    return pa.ipc.open_file(pa.memory_map(str(path))).read_all()


def _table_in_order(table: pa.Table, order: ndarray, spill: Path | None) -> pa.Table:
    """Return rows at the positions `order`; with `spill`, in a file that replaces that one."""
    if spill is None:
        # One column after the other: Arrow would join the batches of all of them first.
        columns = [_column_in_order(column, order) for column in table.columns]
        return pa.table(columns, names=table.column_names)
    path = spill.with_suffix(".sorted.arrow")
    with pa.ipc.new_file(str(path), table.schema) as writer:
        for piece in _pieces_in_order(table, order):
            writer.write_table(piece)
            release_memory()
    _files.remove(spill)
    return _map_table(path)


def _column_in_order(column: pa.ChunkedArray, order: ndarray) -> pa.Array:
    if pa.types.is_string(column.type) and column.nbytes > MOST_TEXT:
        column = column.cast(pa.large_string())
    return one_array(column).take(pa.array(order))


def _pieces_in_order(table: pa.Table, order: ndarray) -> Iterator[pa.Table]:
    """Yield rows at the positions `order`, taken batch by batch: Arrow would join all batches."""
    batches = table.to_batches()
    # One after the last row of every batch.
    ends = np.cumsum([batch.num_rows for batch in batches])
    for begin in range(0, len(order), ROWS):
        rows = order[begin : begin + ROWS]
        # Rows in increasing order, so that each batch is read once.
        ascending = np.argsort(rows)
        borders = np.searchsorted(rows, ends[:-1], sorter=ascending)
        # the wanted rows of every batch
        by_batch = np.split(rows[ascending], borders)
        parts = []
        for batch, end, wanted in zip(batches, ends, by_batch, strict=True):
            if len(wanted):
                begin_of_batch = end - batch.num_rows
                parts.append(batch.take(pa.array(wanted - begin_of_batch)))
        # Back from increasing order to the requested one.
        piece = pa.Table.from_batches(parts).combine_chunks()
        yield piece.take(pa.array(np.argsort(ascending)))


def _rows_in_order(features: ndarray, order: ndarray, spill: Path | None) -> ndarray:
    """Return the rows of a matrix at the positions `order`; with `spill`, in a file."""
    if spill is None:
        return np.asarray(features[order])
    path = spill.with_suffix(".npy")
    out = _files.create_array(path, features.dtype, features.shape)
    for part in _native.block_slices(out):
        out[part] = features[order[part]]
        _native.release(features)
    out.flush()
    return _files.open_array(path)


# -- edges


@dataclass(eq=False)
class EdgeRows:
    """An edge table as it is read: positions of both ends [2, E], weights and times [E]."""

    name: str
    notes: list[str]
    index: ndarray
    weight: ndarray | None = None
    time: ndarray | None = None
    period: ndarray | None = None

    @classmethod
    def read(
        cls,
        source: Source,
        spec: EdgeTable,
        ends: tuple[NodeRows, NodeRows],
        folder: Path | None,
    ) -> EdgeRows:
        notes = source.description(spec.origins)
        source = source.as_written([spec.source, spec.target])
        edges, num_rows = _read_edges(source, spec, ends, folder)
        if len(edges) < num_rows:
            notes.append(f"  {num_rows - len(edges):,} edges to missing nodes were dropped")
        return cls(source.name, notes, **sort_edges(edges, folder))

    def arrays(self) -> dict[str, Any]:
        return {"edge_index": self.index, "weight": self.weight, "time": self.period}


def _unused_columns(source: Source, spec: EdgeTable) -> list[str]:
    """Return a line on columns of an edge table that are ignored, and how to use them."""
    unused = [name for name in source.names if name not in spec.roles.values()]
    if not unused:
        return []
    kinds = {name: kind_of(source.head, name) for name in unused}
    declared = [f'"{name}" = "{kind}"' for name, kind in kinds.items() if kind != "ignore"]
    advice = ""
    if declared:
        advice = (
            f"; to use them as features, declare columns = {{{', '.join(declared)}}} "
            "of this relation in graph.toml, or edge_columns="
        )
    return [f"  {', '.join(unused)}: ignored{advice}"]


def _read_edges(
    source: Source,
    spec: EdgeTable,
    ends: tuple[NodeRows, NodeRows],
    folder: Path | None,
) -> tuple[ndarray, int]:
    """Return edges as records [E], and the number of rows; with a folder, mapped from a file."""
    if folder is None:
        return _join(source.table, spec, ends, 0), source.table.num_rows
    folder.mkdir(parents=True)
    path = folder / "edges"
    num_rows = 0
    # No edges: its type holds where the table has no rows.
    edges = _join(source.head.slice(0, 0), spec, ends, 0)
    with path.open("wb") as file:
        for batch in source.batches():
            part = _join(pa.Table.from_batches([batch]), spec, ends, num_rows)
            if num_rows and part.dtype != edges.dtype:
                raise InputError(
                    f"the times of {source.name} are dates in some rows and numbers in others; "
                    "use one kind."
                )
            edges = part
            file.write(edges.tobytes())
            num_rows += batch.num_rows
    # An empty file cannot be mapped.
    if path.stat().st_size:
        edges = np.memmap(path, edges.dtype, mode="r")
    return edges, num_rows


def _join(
    table: pa.Table,
    spec: EdgeTable,
    ends: tuple[NodeRows, NodeRows],
    first_row: int,
) -> ndarray:
    """Return edges as records of the positions of their ends, their weights and times [E].

    `first_row` is the number of the table's first row in its file.
    """
    if spec.dangling == "drop":  # missing ends as well as unknown ones
        present = map(pc.is_valid, table.select([spec.source, spec.target]).columns)
        table = plain_text(table).filter(pc.and_(*present))  # which views of text do not support
    columns = spec.columns_of(table)
    both_ends = list(zip(EDGE_ENDS, ends, strict=True))
    arrays = dict.fromkeys(EDGE_ENDS, np.empty(0))

    def look_up(role: str, end: NodeRows) -> None:
        column = columns[role]
        if end.ids is not None and not end.ids.is_text:
            # Gaps make floats of whole numbers.
            column = replace(column, values=floats_as_numbers(column.values))
        position = positions(column, end.key, end.name)
        arrays[role] = position.astype(index_type(end.size), copy=False)

    # Both ends in threads: Arrow's lookups release Python's lock.
    _native.run(look_up, both_ends, None)
    for role, end in both_ends:
        missing = arrays[role] < 0
        if missing.any() and spec.dangling == "refuse":
            row = int(missing.argmax())
            value = columns[role].values[row].as_py()
            raise InputError(
                f"{spec.file} has {int(missing.sum())} edges whose {role} is not in {end.name}, "
                f"first {quoted(value)} in row {first_row + row + 1}; add the node, "
                "remove the edge, or drop such edges with dangling = 'drop'."
            )
    if "weight" in columns:
        arrays["weight"] = finite_numbers(columns["weight"])
        checks.edge_weights(f"weight of {spec.file}", arrays["weight"], table.num_rows)
    if "time" in columns:
        arrays["time"] = times(columns["time"])
    # One record per edge, so that sorting moves an edge as a whole.
    fields = [(name, values.dtype) for name, values in arrays.items()]
    edges = np.empty(table.num_rows, fields)
    for name, values in arrays.items():
        edges[name] = values
    has_both_ends = (edges["source"] >= 0) & (edges["target"] >= 0)
    return edges if has_both_ends.all() else edges[has_both_ends]


def sort_edges(edges: ndarray, folder: Path | None) -> dict[str, ndarray]:
    """Return the arrays of edges sorted by target, source, time and weight.

    With a folder, arrays are files in it, and edges are sorted in ranges of targets that have
    about `EDGES_AT_ONCE` edges.
    """
    num_targets = 1 + int(edges["target"].max(initial=0))
    borders = [0, num_targets]
    if folder is not None:
        counts = np.zeros(num_targets + 1, np.int64)  # the first entry stays 0
        for part in _native.blocks(edges):
            # Edges into every target.
            counts[1:] += np.bincount(edges["target"][part], minlength=num_targets)
        # Borders of ranges of targets.
        borders = _native.spans(np.cumsum(counts), EDGES_AT_ONCE).tolist()
    index_type = np.result_type(edges["source"], edges["target"])
    arrays = {"index": _new_array(folder, "index", index_type, (2, len(edges)))}
    minor = (edges.dtype.names or ())[2:]  # weight and time
    for name in minor:
        arrays[name] = _new_array(folder, name, edges.dtype[name], (len(edges),))
    begin = 0
    for low, high in pairwise(borders):
        rows = edges
        # Every range reads all edges and takes its own.
        if len(borders) > 2:
            parts = (edges[part] for part in _native.blocks(edges))
            rows = np.concatenate([_into(part, low, high) for part in parts])
        # Target and source as one number: sorting one key is faster than two.
        num_sources = int(rows["source"].max(initial=0)) + 1
        pair = rows["target"].astype(np.int64) * num_sources + rows["source"]
        if minor:
            # The last key of `lexsort` counts first.
            order = np.lexsort([*(rows[name] for name in minor), pair])
            rows = rows[order]
            pair = pair[order]
        else:
            pair.sort()  # several times as fast as sorting positions
        end = begin + len(pair)
        # Row 0 are sources, row 1 targets.
        arrays["index"][1, begin:end], arrays["index"][0, begin:end] = np.divmod(pair, num_sources)
        for name in minor:
            arrays[name][begin:end] = rows[name]
        begin = end
    return arrays


def _into(edges: ndarray, low: int, high: int) -> ndarray:
    """Return the edges into the targets low .. high−1."""
    target = edges["target"]
    return edges[(target >= low) & (target < high)]


def _new_array(folder: Path | None, name: str, dtype: Any, shape: tuple[int, ...]) -> ndarray:
    """Return an array to fill, in memory or in a file."""
    if folder is None or 0 in shape:
        return np.empty(shape, dtype)
    return _files.create_array(folder / f"{name}.npy", dtype, shape)
