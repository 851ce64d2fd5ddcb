"""`Spec`: the role of every table and column, read from `graph.toml` or guessed from names."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from impact_gnn._codec import decode, encode
from impact_gnn._text import plain_template, visible
from impact_gnn.checks import InputError, choice, guarded, listing, quoted
from impact_gnn.data.foreign_keys import (
    ENDS,
    KEY_ENDINGS,
    ROW,
    Entities,
    Entity,
    ForeignKey,
    find_entities,
    find_keys,
    kind_of,
    may_be_id,
    plain_name,
    with_parent_column,
    with_row_numbers,
)
from impact_gnn.data.sources import UNNAMED, Source, Tables
from impact_gnn.data.values import TableColumn, times
from impact_gnn.encoding import KINDS
from impact_gnn.encoding.kinds import OUTCOME, any_match, is_text
from impact_gnn.graph import HOMOGENEOUS, Triple
from impact_gnn.graph.parts import class_name, edge_type

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover
    import tomli as tomllib

TOML = "graph.toml"
IDS = ("id", "node", "node_id", "uuid", "key", "name", "index")
TIMES = (
    "time",
    "date",
    "datetime",
    "timestamp",
    "created_at",
    "created",
    "published",
    "published_at",
    "publication_date",
    "year",
    "publication_year",
    "month",
    "day",
    "period",
)
OWN_LABELS = ("label", "class", "y")
LABELS = (*OWN_LABELS, "target")  # of an edge, the target is an end
WEIGHTS = ("weight", "w")
MAX_GUESSED_CLASSES = 100  # classes of a column that is taken for a label by its gaps
EDGE_ENDS = ("source", "target")
DATE_LIKE = (
    r"(?i)^\s*([a-z]{3},? )?(\d{4}[-/. ]\d\d?[-/. ]\d\d?|[a-z]{3,9} \d\d?,? [\d:+ ]*\d{4}|"
    r"\d\d?[-/. ](\d\d?|[a-z]{3,9})[-/. ](\d\d){1,2})([\sT,]+\d.*)?$"
)
"""Text that looks like a date, also like one that is not read."""
NOT_TEXT = ("nodes", "edges", "columns", "period", "label_delay", "unknown", "values_of")
"""Entries of `graph.toml` whose values may be other than text."""
DANGLING = ("refuse", "drop")
"""What happens to edges that name an unknown node."""

NamedRoles: TypeAlias = Mapping[str, Any]
"""The roles that a user has named, and the column of each; "" for none."""

EntityColumns: TypeAlias = Mapping[str, Sequence[str]]
"""Columns of a table of events by the type of entity that they name."""


@dataclass(frozen=True)
class TableSpec:
    """The roles of a table's columns."""

    file: str
    role_names: ClassVar[tuple[str, ...]]

    @property
    def roles(self) -> dict[str, str]:
        """The column of every role that one has."""
        columns = {role: getattr(self, role) for role in self.role_names}
        return {role: column for role, column in columns.items() if column}

    @property
    def origins(self) -> str:
        """Where the roles come from, as a phrase."""
        return ", ".join(f"{role} from '{column}'" for role, column in self.roles.items())

    def columns_of(self, table: pa.Table) -> dict[str, TableColumn]:
        """Return the columns of a table by their roles."""
        return {
            role: TableColumn(table.column(name), name, self.file)
            for role, name in self.roles.items()
        }


@dataclass(frozen=True)
class NodeTable(TableSpec):
    """Columns of a table of nodes; without `id`, rows are numbered.

    `columns` are kinds of features that are not guessed; `unknown` are labels that mean that the
    class is not known. With `values_of` the nodes are the distinct values of these columns: they
    have no table of their own.
    """

    id: str | None = None
    time: str | None = None
    label: str | None = None
    unknown: tuple[str | int | float, ...] = ()
    columns: dict[str, str] = field(default_factory=dict)
    values_of: tuple[str, ...] = ()
    role_names: ClassVar[tuple[str, ...]] = ("id", "time", "label")


@dataclass(frozen=True)
class EdgeTable(TableSpec):
    """Columns of a table of edges; `columns` are the kinds of those that become features."""

    source: str
    target: str
    weight: str | None = None
    time: str | None = None
    dangling: str = "refuse"
    columns: dict[str, str] = field(default_factory=dict)
    role_names: ClassVar[tuple[str, ...]] = ("source", "target", "weight", "time")


@dataclass(frozen=True)
class Spec:
    """All tables, the type to classify, and the rule that puts times into periods."""

    nodes: dict[str, NodeTable]
    edges: dict[Triple, EdgeTable]
    target: str
    period: str | int = "auto"
    label_delay: float = 0.0
    # all tables by file, some with a further column
    sources: dict[str, Source] = field(default_factory=dict)

    def keys_of(self, kind: str) -> list[Triple]:
        """Return the relations that are keys of the rows of a type."""
        table = self.nodes[kind]
        return [
            triple
            for triple, edges in self.edges.items()
            if (triple[2], edges.file, edges.target) == (kind, table.file, table.id)
        ]

    def with_edge_columns(self) -> Spec:
        """Return the spec with a type for every edge table with `columns`: a node for every edge.

        Its features are these columns, and two relations lead to it from the ends of the edge.
        The edges themselves stay.
        """
        nodes = dict(self.nodes)
        edges = dict(self.edges)
        sources = dict(self.sources)
        for (source_type, name, target_type), table in self.edges.items():
            if not table.columns:
                continue
            source = with_row_numbers(sources[table.file])
            kind = edge_type((source_type, name, target_type))
            if kind in nodes:
                raise InputError(
                    f"columns of the edges {name!r} become the type {kind!r}, which exists; "
                    "rename the relation."
                )
            others = [column for column in source.names if column not in (ROW, table.time)]
            columns = dict.fromkeys(others, "ignore") | table.columns
            roles = {"id": ROW, "time": table.time or "", "columns": columns}
            nodes[kind] = guess_nodes(kind, source, roles, labelled=False)
            for end, column in ((source_type, table.source), (target_type, table.target)):
                to_edge = EdgeTable(table.file, column, ROW, dangling=table.dangling)
                edges[end, f"{name}_{column}", kind] = to_edge
            edges[source_type, name, target_type] = replace(table, columns={})
            sources[table.file] = source
        return replace(self, nodes=nodes, edges=edges, sources=sources)

    def content(self) -> dict[str, Any]:
        """Return the roles of the columns in the types of JSON, for `restored`."""
        nodes = {}
        for kind, table in self.nodes.items():
            unknown = tuple(map(class_name, table.unknown))
            nodes[kind] = replace(table, unknown=unknown)
        # Lists of pairs: a name in JSON is a text, and a relation has three.
        content = {"nodes": nodes, "edges": list(self.edges.items()), "target": self.target}
        return encode(content)

    @classmethod
    def restored(cls, content: Any) -> Spec:
        """Return the spec of a `content`."""
        nodes = decode(dict[str, NodeTable], content["nodes"], "nodes")
        edges: dict[Triple, EdgeTable] = {}
        for (source, name, target), table in content["edges"]:
            edges[source, name, target] = decode(EdgeTable, table, "edges")
        return cls(nodes, edges, content["target"])


# -- guessing


def guess_nodes(
    kind: str,
    source: Source,
    named: NamedRoles,
    *,
    labelled: bool,
    alone: bool = False,
) -> NodeTable:
    """Guess the roles of the columns of a node table that are not `named`.

    The only date is the time of nodes with a label, or of the only type (`alone`). For other nodes
    it may be a birthday.
    """
    table = source.head
    columns = _column_kinds(named)
    roles = _named_roles(named, NodeTable)
    used = [*roles.values(), *columns]
    for role, name in roles.items():
        if name in columns:
            raise InputError(
                f"column {name} of {source.name} has two roles, {role} and {columns[name]} (of "
                f"columns); use it once. In {TOML}, delete one of these lines."
            )
    _check_columns(source, used)
    for column, column_kind in columns.items():
        choice(f"the kind of column '{column}'", column_kind, KINDS)
    # A column has one role: every guess takes its column from those that are left.
    free = [name for name in table.column_names if name not in used]
    roles.setdefault("id", _guess_id(kind, free, table))
    free = [name for name in free if name != roles["id"]]
    roles.setdefault("time", _first_name(free, TIMES))
    free = [name for name in free if name != roles["time"]]
    date = roles["time"]
    if labelled:
        date = date or _only_date(table.slice(0, 1000).select(free))
        # The label may be recognised by the date from which on it is missing.
        roles.setdefault("label", _first_name(free, LABELS) or _guess_label(table, free, date))
    if named.get("time") is None and (alone or roles.get("label")):
        roles["time"] = date
    return NodeTable(
        source.name,
        id=roles["id"] or None,
        time=roles["time"] or None,
        label=roles.get("label") or None,
        unknown=_unknown_labels(source.name, named.get("unknown")),
        columns=columns,
    )


def _column_kinds(named: NamedRoles) -> dict[str, str]:
    columns = named.get("columns") or {}
    if not isinstance(columns, Mapping):
        raise InputError(f"columns={quoted(columns)} should be a mapping from column name to kind.")
    return dict(columns)


def _named_roles(named: NamedRoles, table: type[TableSpec]) -> dict[str, Any]:
    """Return the columns that a user has named, "" for a role that no column has."""
    return {role: named[role] for role in table.role_names if named.get(role) is not None}


def _check_columns(source: Source, columns: Iterable[str | None]) -> None:
    """Refuse columns that a table lacks, or that are named twice."""
    names = source.names
    uses = Counter(columns)
    for column in uses:
        if column not in (*names, None, ""):
            raise InputError(
                f"{source.name} has no column {quoted(column)}; it has {listing(names)}. "
                "Rename a column or add it; write its name as text in quotes."
            )
    repeated = [column for column in uses if column and uses[column] > 1]
    if repeated:
        raise InputError(f"column {listing(repeated)} of {source.name} has two roles; use it once.")


def _unknown_labels(where: str, value: Any) -> tuple[str | int | float, ...]:
    """Return the labels that mean unknown: one, or several in a list."""
    if value is None:
        return ()
    values = (value,)
    if isinstance(value, list | tuple | set):
        values = tuple(value)
    for label in values:
        if not isinstance(label, str | int | float):
            raise InputError(
                f"{where}: {quoted(label)} cannot be an unknown_label; use text or numbers."
            )
    return values


def guess_edges(source: Source, named: NamedRoles, ends: Sequence[str] = ()) -> EdgeTable:
    """Guess the roles of the columns of an edge table that are not `named`.

    Columns of its ends may have the names of the types of both `ends`.
    """
    names = source.names
    roles = _named_roles(named, EdgeTable)
    _check_columns(source, set(roles.values()))
    if not all(map(roles.get, EDGE_ENDS)):
        pair = _columns_of_types(names, ends) or _end_columns(names)
        # An index without a name, as pandas writes it, is no end.
        titled = [name for name in names if not name.startswith(UNNAMED)]
        if not pair and len(titled) == 2:
            pair = titled
        if not pair:
            raise InputError(
                f"{source.name} has no columns source, target; it has {listing(names)}. "
                "Rename two columns of the header (its first row), or set source=... and target=..."
            )
        for end, column in zip(EDGE_ENDS, pair, strict=True):
            roles[end] = roles.get(end) or column
    if roles["source"] == roles["target"]:
        raise InputError(
            f"column {roles['source']!r} of {source.name} cannot be both source and target; "
            "choose two columns."
        )
    free = [name for name in names if name not in (roles["source"], roles["target"])]
    roles.setdefault("weight", _first_name(free, WEIGHTS))
    roles.setdefault("time", _first_name(free, TIMES))
    if roles["time"] is None:  # an edge is not known before its date
        date = _only_date(source.head.select(free))
        # Every edge has a time or none: a date with gaps is another one.
        if date and not source.head.column(date).null_count:
            roles["time"] = date
    _check_columns(source, roles.values())
    roles = {role: column or None for role, column in roles.items()}
    dangling = choice("dangling", named.get("dangling", "refuse"), DANGLING)
    return EdgeTable(source.name, **roles, dangling=dangling, columns=_column_kinds(named))


def guess(where: str, sources: Tables, *, is_draft: bool = False) -> Spec:
    """Guess the spec of a folder or database; a draft may pick any type to classify."""
    if {"nodes", "edges"} <= sources.keys():
        node = guess_nodes("node", sources["nodes"], {}, labelled=True, alone=True)
        edges = {HOMOGENEOUS: guess_edges(sources["edges"], {})}
        return Spec({"node": node}, edges, "node", sources=_by_file(sources))
    types = _type_names(sources)
    spec = None
    if len(sources) == 1:
        ((name, source),) = sources.items()
        spec = guess_events(types[name], source)
    if spec is not None:
        return spec
    spec = guess_by_keys(sources, types, is_draft=is_draft)
    if spec is None:
        refuse_misread(sources)
        raise InputError(
            f"{where} contains no table nodes (such as nodes.csv or nodes.parquet), "
            "nor tables that refer to each other; a graph needs nodes and edges, "
            f"or a {TOML} that declares the tables."
        )
    target = spec.nodes[spec.target]
    if not is_draft and not (target.label and target.time):
        raise InputError(
            f"no table has a time and a label; create a {TOML} with impact init, "
            "and set them there."
        )
    return spec


def refuse_misread(sources: Tables) -> None:
    """Refuse tables in which no roles are recognised without a header or with unreadable dates."""
    for source in sources.values():
        names = source.names
        if re.fullmatch(r"[-+.\d\s]+", "".join(names)):
            raise InputError(
                f"all column names of {source.name} are numbers ({listing(names)}), so its header "
                "may be missing; name the columns, such as source, target, time and label."
            )
        for name in names:
            column = source.head[name]
            if is_text(column.type) and any_match(column, DATE_LIKE):
                # Gaps are allowed: it may be a birthday.
                times(TableColumn(pc.fill_null(column, "2000-01-01"), name, source.name))


def _by_file(sources: Tables) -> dict[str, Source]:
    return {source.name: source for source in sources.values()}


def _type_names(tables: Iterable[str]) -> dict[str, str]:
    """Return the node type of every table: its name in singular, unless two tables share it."""
    types = {name: _singular(name) for name in tables}
    counts = Counter(types.values())
    shared = [name for name in types if counts[types[name]] > 1]
    return types | {name: name for name in shared}


def guess_events(
    kind: str,
    source: Source,
    named: NamedRoles | None = None,
    entities: EntityColumns | None = None,
) -> Spec | None:
    """Guess the spec of one table of events whose columns name entities; None without such.

    Args:
        kind: The type of the rows.
        source: The table.
        named: Roles of its columns, as in `guess_nodes`.
        entities: Columns by type of entity; by default they are guessed.
    """
    named = dict(named or {})
    names = source.names
    # Rows of events often have no ids; their numbers then name them.
    if "id" not in named:
        named["id"] = _distinct_id(kind, names, source.head)
    if named["id"] is None:
        source = with_row_numbers(source)
        named["id"] = ROW
    columns = _column_kinds(named)
    if entities is None:
        time = named.get("time") or _first_name(names, TIMES)
        label = named.get("label") or _first_name(names, OWN_LABELS)
        used = {named["id"], time, label, *columns}
        free = [name for name in names if name not in used]
        entities = find_entities(source.head, free, by_values=True)
    keys = list(chain(*entities.values()))
    _check_columns(source, keys)
    # A key becomes edges, so it is no feature as well. (An outcome that is a key is refused later.)
    ignored = [key for key in keys if columns.get(key) != OUTCOME]
    named["columns"] = columns | dict.fromkeys(ignored, "ignore")
    events = guess_nodes(kind, source, named, labelled=True, alone=True)
    if not keys or not events.time:
        return None
    rows = Spec({kind: events}, {}, kind, sources={source.name: source})
    return _with_entities(rows, entities)


def _with_entities(spec: Spec, entities: EntityColumns) -> Spec:
    """Return the spec with a type for every entity that only the columns of the target name."""
    events = spec.nodes[spec.target]
    nodes = dict(spec.nodes)
    edges = dict(spec.edges)
    for entity, columns in entities.items():
        kind = entity
        if kind in spec.nodes:  # the rows have that name
            kind = f"{entity}_entity"
        nodes[kind] = NodeTable(events.file, id="id", values_of=tuple(columns))
        for column in columns:
            triple = (kind, f"{spec.target}_{column}", spec.target)
            # A row without a value has no such entity, so its edge is dropped.
            edges[triple] = EdgeTable(events.file, column, str(events.id), dangling="drop")
    return replace(spec, nodes=nodes, edges=edges)


def guess_by_keys(
    sources: Tables,
    types: Mapping[str, str],
    *,
    target: str | None = None,
    named: NamedRoles | None = None,
    is_draft: bool = False,
) -> Spec | None:
    """Guess the spec of tables that refer to each other by foreign keys; None without keys.

    The type to classify is the one with a label, otherwise the one with the most keys. A table
    without ids and label that has two keys holds edges.

    Args:
        sources: The tables by name.
        types: The node type of every table.
        target: The type to classify.
        named: Roles of columns: those of the type to classify, or mappings by type.
        is_draft: Pick any of several types with a label.
    """
    named = named or {}
    entities = _entities(sources, types, _by_type(named.get("id")))
    if target not in (None, *entities):
        raise InputError(
            f"target={quoted(target)} is not a table; choose one of {listing(list(entities))}."
        )
    # Edges of outcomes would tell every model of them.
    outcomes = _outcomes_in(named)
    keys = find_keys(entities, outcomes)
    label = named.get("label")
    links = _links(entities, keys, label)
    events = [] if target is None else [target]
    if target is None and not _any_label(entities, links, label):
        events = [kind for kind in links if _may_be_events(entities[kind].source, links[kind])]
    for kind in events:
        keys += [key for key in links.pop(kind, ()) if key not in keys]
    others = {kind: entity for kind, entity in entities.items() if kind not in links}
    # A table without ids needs keys, unless it is the only one.
    with_keys = {key.table for key in keys}
    nodes = dict(others)
    for kind, entity in others.items():
        if entity.id == ROW and kind not in with_keys and len(others) > 1:
            del nodes[kind]
    if not nodes or not (keys or links):
        return None
    target = target or _events_of(nodes, keys, label, is_draft=is_draft)
    if isinstance(named.get("id"), str):
        nodes[target] = _with_id(nodes[target], named["id"])
        keys = find_keys({**entities, **nodes}, outcomes)
    own_keys = [key for key in keys if key.table in nodes]
    spec = _key_spec(nodes, own_keys, target, named)
    spec = replace(spec, sources=_by_file(sources) | spec.sources)
    names = {kind: name for name, kind in types.items()}
    for kind, (first, second) in links.items():
        ends = {"source": first.column, "target": second.column}
        table = guess_edges(sources[names[kind]], ends)
        spec.edges[first.parent, names[kind], second.parent] = table
    return spec


def _outcomes_in(named: NamedRoles) -> set[str]:
    """Return the columns that are declared as outcomes, for one type or by type."""
    columns = named.get("columns")
    if not isinstance(columns, Mapping):
        return set()
    by_type = [kinds for kinds in columns.values() if isinstance(kinds, Mapping)]
    declared = chain(columns.items(), *(kinds.items() for kinds in by_type))
    return {name for name, kind in declared if kind == OUTCOME}


def _links(
    entities: Entities, keys: list[ForeignKey], label: str | None
) -> dict[str, list[ForeignKey]]:
    """Return the keys of tables that hold nothing but edges: two, or a usual pair of names."""
    links = {}
    pairs = {kind: _end_columns(entity.source.names) for kind, entity in entities.items()}
    with_ids = [kind for kind in entities if entities[kind].id != ROW]
    # Without any ids, edges number the rows of the table that is none of edges.
    parent_types = with_ids or [kind for kind in entities if not pairs[kind]]
    parents = {kind: entities[kind] for kind in parent_types}
    for kind, entity in entities.items():
        pair = pairs[kind]
        free = [name for name in entity.source.names if name not in pair]
        if kind in with_ids or _label_column(free, label):
            continue
        own = [key for key in keys if key.table == kind]
        if pair:
            types = _end_types(entity.source, pair, parents)
            own = [ForeignKey(kind, *end) for end in zip(pair, types, strict=True)]
        if len(own) == 2:
            links[kind] = own
    return links


def _any_label(entities: Entities, links: Iterable[str], label: str | None) -> bool:
    """Return whether a table has labels, by a name or by gaps at the end."""
    for kind, entity in entities.items():
        if kind in links:
            continue
        if _label_column(entity.source.names, label):
            return True
        if guess_nodes("", entity.source, {}, labelled=True, alone=True).label:
            return True
    return False


def _may_be_events(source: Source, keys: list[ForeignKey]) -> bool:
    """Return whether edges have a time and further columns, as ratings and messages have."""
    time = _own_time(source)
    used = [ROW, time, *(key.column for key in keys)]
    return time is not None and any(name not in used for name in source.names)


def _entities(
    sources: Tables, types: Mapping[str, str], ids: Mapping[str, str]
) -> dict[str, Entity]:
    """Return every table with its ids; rows without ids are numbered, and no key refers to them."""
    # Before ids are known, tables are known by their words.
    entities = {}
    for name, source in sources.items():
        entities[types[name]] = Entity(source, "", _words_of(name, types[name]))
    tables = list(entities.items())
    for kind, table in tables:
        others = [other for _, other in tables if other is not table]
        column = ids.get(kind) or _own_key(kind, table, others)
        if column is None:
            entities[kind] = Entity(with_row_numbers(table.source), ROW)
        else:
            entities[kind] = _with_id(table, column)
    return entities


def _words_of(name: str, kind: str) -> tuple[str, ...]:
    """Return the words by which columns refer to a table."""
    plain = plain_name(name)
    return plain_name(kind), plain, plain.removesuffix("s")


def _with_id(entity: Entity, column: str) -> Entity:
    _check_columns(entity.source, [column])
    return replace(entity, id=column)


def _by_type(value: Any) -> Mapping[str, Any]:
    """Return what a user has named by type; nothing where one name is for the type to classify."""
    return value if isinstance(value, Mapping) else {}


def _key_spec(
    entities: dict[str, Entity], keys: list[ForeignKey], target: str, named: NamedRoles
) -> Spec:
    """Return the spec of tables of nodes that refer to each other by keys."""
    time_columns = _times_of_types(entities, keys, target, named)
    nodes = {}
    for kind, entity in entities.items():
        roles = _roles_of_type(named, kind, is_target=kind == target)
        own_keys = [key.column for key in keys if key.table == kind]
        roles["columns"] = dict.fromkeys(own_keys, "ignore") | _column_kinds(roles)
        roles |= {"id": entity.id, "time": time_columns[kind] or ""}
        nodes[kind] = guess_nodes(kind, entity.source, roles, labelled=kind == target)
    edges = {}
    for key in keys:  # from the parent to the row
        child = entities[key.table]
        triple = (key.parent, f"{key.table}_{key.column}", key.table)
        edges[triple] = EdgeTable(child.source.name, key.column, child.id, dangling="drop")
    sources = {entity.source.name: entity.source for entity in entities.values()}
    head = entities[target].source.head
    events = nodes[target]
    used = [*events.columns, *events.roles.values()]
    free = [name for name in head.column_names if name not in used]
    # what is named after a table but holds other values than its ids is no key
    for entity in entities.values():
        free = [name for name in free if not entity.match(name)]
    without_table = find_entities(head, free, by_values=False)
    events.columns.update(dict.fromkeys(chain(*without_table.values()), "ignore"))
    return _with_entities(Spec(nodes, edges, target, sources=sources), without_table)


def _times_of_types(
    entities: dict[str, Entity], keys: list[ForeignKey], target: str, named: NamedRoles
) -> dict[str, str | None]:
    """Return the columns of times by type; events without one get that of a parent as a column."""
    events = entities[target]
    dates = _columns_of_kind(events.source.head, "date")
    time = _roles_of_type(named, target, is_target=True).get("time")
    if time is None:
        time = _own_time(events.source)
    is_dated = time in (None, *dates)
    name = time
    if time is None and not dates:
        parents = {key.column: entities[key.parent] for key in keys if key.table == target}
        key, name, is_dated = _time_through_key(events.source, parents)
        if name is not None:
            time = f"{key}.{name}"
            source = with_parent_column(events.source, key, parents[key], name)
            entities[target] = replace(events, source=source)
    by_type = _by_type(named.get("time"))
    # Rows that refer to the events may come later, as payments do.
    later = [key.table for key in keys if key.parent == target]
    columns: dict[str, str | None] = {}
    for kind, entity in entities.items():
        # Times of other types are of the same kind: dates, or numbers of the same name.
        own = _time_column(entity.source, "date")
        # Of rows that do not refer to events, the only date may be a birthday.
        if own is None and kind in later:
            own = _only_date(entity.source.head)
        if not is_dated:
            own = _first_name(_columns_of_kind(entity.source.head, "number"), [name or ""])
        columns[kind] = by_type.get(kind) or own
    columns[target] = time
    return columns


def _own_time(source: Source) -> str | None:
    """Return the column of times of events: of a usual name, or the only date."""
    named = _time_column(source, "date") or _time_column(source, "number")
    return named or _only_date(source.head)


def _only_date(table: pa.Table) -> str | None:
    dates = _columns_of_kind(table, "date")
    return dates[0] if len(dates) == 1 else None


def _time_through_key(events: Source, parents: Entities) -> tuple[str, str | None, bool]:
    """Return a key, the column of its parent's times, if there is one, and whether it is a date.

    Of several parents, that with the latest times: a review comes after the order, which comes
    after the product was created.
    """
    for kind in ("date", "number"):
        named = {key: _time_column(parent.source, kind) for key, parent in parents.items()}
        if not any(named.values()):
            continue
        # Average time, key, and the column of times.
        options: list[tuple[float, str, str | None]] = []
        for key, parent in parents.items():
            time = named[key]
            columns = [time] if time else []
            if time is None and kind == "date":
                columns = _columns_of_kind(parent.source.head, kind)
            if len(columns) == 1:
                time = columns[0]
            for column in columns:
                joined = with_parent_column(events, key, parent, column).head
                values = joined.columns[-1].drop_null()
                with suppress(InputError):  # dates that cannot be times
                    exact = times(TableColumn(values, column, parent.source.name))
                    average = exact.astype(np.float64).sum() / max(len(exact), 1)
                    options.append((average, key, time))
        _, key, time = max(options, key=itemgetter(0), default=(0.0, "", None))
        return key, time, kind == "date"
    return "", None, False


def _roles_of_type(named: NamedRoles, kind: str, *, is_target: bool) -> dict[str, Any]:
    """Return the roles that a user has named for one type."""
    roles = {}
    for role, value in named.items():
        entries = _by_type(value)
        # Kinds of columns are a mapping themselves.
        if entries and (role != "columns" or any(map(_by_type, entries.values()))):
            value = entries.get(kind)
        elif not is_target:
            value = None
        if value is not None:
            roles[role] = value
    return roles


def _events_of(
    entities: Entities, keys: list[ForeignKey], label: str | None, *, is_draft: bool
) -> str:
    """Return the type with a label, of several or none the one with the most keys or a date."""
    labelled = [kind for kind in entities if _label_column(entities[kind].source.names, label)]
    num_keys = Counter(key.table for key in keys)

    def rank(kind: str) -> tuple[int, bool, int]:
        source = entities[kind].source
        has_time = _time_column(source, "date", "number") is not None
        return num_keys[kind], has_time, len(source.head)

    first, *rest = sorted(labelled or entities, key=rank, reverse=True)
    # The number of rows decides between types without a label only.
    is_tie = bool(rest) and rank(first)[:2] == rank(rest[0])[:2]
    if labelled and is_tie and not is_draft:
        raise InputError(
            f"{listing(labelled)} have a label, so the type to classify is ambiguous; "
            f"set it in a {TOML}, or with target=..."
        )
    return first


def _label_column(names: list[str], label: str | None) -> str | None:
    return _first_name(names, [label] if label else LABELS)


def _own_key(kind: str, table: Entity, others: list[Entity]) -> str | None:
    """Return the column of a table's own ids: named after the table, or any that is distinct."""
    head = table.source.head
    free = head.column_names
    named = _named_key(table.words, free, head)
    if named is not None or _end_columns(free):
        return named
    # A column that names another table is no id, even if its values differ by chance.
    for other in others:
        free = [column for column in free if not other.match(column)]
    return _distinct_id(kind, free, head)


def _named_key(words: Sequence[str], names: list[str], table: pa.Table) -> str | None:
    """Return the column of ids that is named after its table."""
    usual = [f"{word}{ending}" for ending in KEY_ENDINGS for word in words]
    named = _first_name(names, [*usual, "id"])
    # A column with the very name of the table may also be something else.
    same = _first_name(names, words)
    if named is None and _is_distinct(table, same):
        return same
    return named


def _distinct_id(kind: str, names: list[str], table: pa.Table) -> str | None:
    """Return the column of ids, if all of them differ."""
    column = _guess_id(kind, names, table)
    return column if _is_distinct(table, column) else None


def _columns_of_kind(table: pa.Table, *kinds: str) -> list[str]:
    """Return the columns of some kinds."""
    return [name for name in table.column_names if kind_of(table, name) in kinds]


def _time_column(source: Source, *kinds: str) -> str | None:
    """Return the column of some kinds that has a usual name of times."""
    return _first_name(_columns_of_kind(source.head, *kinds), TIMES)


def _end_types(source: Source, ends: Sequence[str], entities: Entities) -> list[str]:
    """Return the node types of both ends of an edge table: those that have their values."""
    options = [list(entities)] * 2
    if len(entities) > 1:
        options = [
            [kind for kind, entity in entities.items() if entity.has_ids_in(source, column)]
            for column in ends
        ]
    # Ends that fit several types are most likely of one type, as citations are.
    common = [kind for kind in options[0] if kind in options[1]]
    types = []
    for kinds in options:
        if len(kinds) != 1:
            kinds = common
        if len(kinds) != 1:
            raise InputError(
                f"the node types of the columns '{ends[0]}' and '{ends[1]}' of "
                f"{source.name} are ambiguous; set them in a {TOML}."
            )
        types += kinds
    return types


def _end_columns(names: list[str]) -> list[str]:
    """Return the two ends of an edge, if a usual pair of names is among the columns."""
    stems = {re.sub(r"(id|node)$", "", plain_name(name)): name for name in names}
    for source, target in ENDS:
        if source in stems and target in stems:
            return [stems[source], stems[target]]
    return []


def _columns_of_types(names: list[str], ends: Iterable[str]) -> list[str]:
    """Return the columns named after the types of both ends, where these differ."""
    columns = []
    for kind in ends:
        wanted = [f"{kind}{ending}" for ending in ("", "s", *KEY_ENDINGS)]
        columns += [name for name in names if _first_name([name], wanted)][:1]
    return columns if len(set(columns)) == 2 else []


def _first_name(names: list[str], wanted: Iterable[str]) -> str | None:
    """Return the first of the `wanted` names, in this spelling or in one like it (createdAt)."""
    # Reversed: of several spellings, the first column wins.
    by_plain = {plain_name(name): name for name in reversed(names)}
    for name in wanted:
        if name in names:
            return name
        if by_plain.get(plain_name(name)):
            return by_plain[plain_name(name)]
    return None


def _is_distinct(table: pa.Table, name: str | None) -> bool:
    """Whether all values of a column differ, and can be ids."""
    if name is None:
        return False
    column = table.column(name)
    return may_be_id(column) and pc.count_distinct(column, mode="all").as_py() == len(column)


def _guess_id(kind: str, names: list[str], table: pa.Table) -> str | None:
    """Return the column of ids: by its name, or the first one if all its texts differ."""
    named = _named_key([kind], names, table) or _first_name(names, IDS)
    if named is not None:
        return named
    candidates = [name for name in names if re.search(r"_id$|[a-z]I[dD]$|_ID$", name)]
    for name in names[:1]:
        # an index of a data frame has no name in a CSV
        if name.startswith(UNNAMED) or kind_of(table, name) == "ignore":
            candidates.append(name)
    return next((name for name in candidates if _is_distinct(table, name)), None)


def _guess_label(table: pa.Table, names: list[str], time: str | None) -> str | None:
    """Return the only column of few values that is missing from some time on."""
    if not time:
        return None
    candidates = []
    moments = table.column(time)
    for name in names:
        column = table.column(name)
        if kind_of(table, name) not in ("category", "number"):
            continue
        if pc.count_distinct(column).as_py() > MAX_GUESSED_CLASSES:
            continue
        # Labels of the past are known, those of the newest rows are not.
        with suppress(pa.ArrowNotImplementedError):
            last_known = pc.max(moments.filter(pc.is_valid(column))).as_py()
            first_missing = pc.min(moments.filter(pc.is_null(column))).as_py()
            if None not in (last_known, first_missing) and last_known <= first_missing:
                candidates.append(name)
    return candidates[0] if len(candidates) == 1 else None


def _singular(name: str) -> str:
    name = re.sub("(?<!mov)(?<!cook)(?<!ser)ies$", "y", name.lower())
    if re.search("(tch|nch|rch|sh|ss|x)es$", name):  # matches, boxes
        return name[:-2]
    return re.sub("(?<![us])(?<!serie)s$", "", name)  # not of status, class, series


# -- graph.toml


def read_toml(path: Path, tables: Tables) -> Spec:
    """Read the spec in a `graph.toml`; roles that it leaves out are guessed."""
    with guarded(path):
        content = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    _check_entries(path.name, content, ["target", "period", "label_delay", "nodes", "edges"])
    for section in ("nodes", "edges"):
        entries = content.get(section)
        # A section without tables, or with values outside of them.
        if not isinstance(entries, dict) or {*map(type, entries.values())} != {dict}:
            raise InputError(
                f"{path.name} has no [{section}.NAME] table; write one for each table of {section}."
            )
    # With a single type, files need not repeat its name.
    types = list(content["nodes"])
    only = types[0] if len(types) == 1 else None
    target = content.get("target", only)
    if target not in types:
        raise InputError(
            f"{path.name}: target={quoted(target)} is not a node type; use one of {listing(types)}."
        )
    end_types = ["source_type", "target_type"]
    for section, table, further in (("nodes", NodeTable, []), ("edges", EdgeTable, end_types)):
        names = further + [one.name for one in fields(table)]
        for name, entry in content[section].items():
            _check_entries(f"{path.name} [{section}.{name}]", entry, names)
            entry["file"] = _file_of(path, entry.get("file"), tables)
    sources = _by_file(tables)
    nodes = _declared_nodes(path, content, target, sources)
    edges = {}
    for name, entry in content["edges"].items():
        ends = [entry.get(end, only) for end in end_types]
        if not set(ends) <= set(types):
            raise InputError(
                f"{path.name} [edges.{name}] needs source_type and target_type, "
                f"each one of {listing(types)}."
            )
        edges[ends[0], name, ends[1]] = guess_edges(sources[entry["file"]], entry, ends)
    period = content.get("period", "auto")
    if not isinstance(period, int):
        period = str(period)
    delay = content.get("label_delay", 0.0)
    spec = Spec(nodes, edges, target, period, label_delay=delay, sources=sources)
    return spec.with_edge_columns()


def _declared_nodes(
    path: Path, content: Mapping[str, Any], target: str, sources: dict[str, Source]
) -> dict[str, NodeTable]:
    """Return the node tables of a `graph.toml`; tables in `sources` get columns that they need."""
    declared = content["nodes"]
    nodes = {}
    for kind, entry in declared.items():
        source = sources[entry["file"]]
        if "values_of" in entry:
            nodes[kind] = _values_table(path, kind, source, entry["values_of"])
            continue
        parents = {}
        for edge in content["edges"].values():
            parent = declared.get(edge.get("source_type"), {})
            if edge.get("target_type") == kind and parent.get("id"):
                parents[edge.get("source")] = Entity(sources[parent["file"]], parent["id"])
        source = with_needed_columns(source, entry.get("id"), entry.get("time"), parents)
        sources[entry["file"]] = source
        is_target = kind == target
        alone = len(declared) == 1
        nodes[kind] = guess_nodes(kind, source, entry, labelled=is_target, alone=alone)
    return nodes


def _values_table(path: Path, kind: str, source: Source, columns: Any) -> NodeTable:
    """Return the type of the distinct values of some columns."""
    if not isinstance(columns, list) or not columns:
        raise InputError(
            f"{path.name} [nodes.{kind}]: values_of={quoted(columns)} should be a list of columns."
        )
    _check_columns(source, columns)
    return NodeTable(source.name, id="id", values_of=tuple(columns))


def with_needed_columns(
    source: Source,
    id_column: str | None,
    time: str | None,
    parents: Entities,
    first_row: int = 0,
) -> Source:
    """Return a table with the row numbers and the parent's times that its roles name.

    Args:
        source: The table.
        id_column: Its column of ids; `ROW` for row numbers.
        time: Its column of times; KEY.COLUMN for those of the parent that a key leads to.
        parents: The parent of every key.
        first_row: The number of the first row.
    """
    if id_column == ROW:
        source = with_row_numbers(source, first_row)
    key, dot, column = (time or "").partition(".")
    if not dot or time in source.names:
        return source
    if key not in parents:
        raise InputError(
            f"{source.name}: time = {quoted(time)} needs a relation with "
            f"source = {quoted(key)} from a type with an id; add it under [edges]."
        )
    _check_columns(parents[key].source, [column])
    return with_parent_column(source, key, parents[key], column)


def _file_of(path: Path, name: Any, tables: Tables) -> str:
    """Return the file that a `graph.toml` names, with its ending or without."""
    for key, source in tables.items():
        if name in (key, source.name):
            return source.name
    available = listing([source.name for source in tables.values()]) or "none"
    raise InputError(
        f"{path.name} refers to a missing file {quoted(name)}; the files are {available}."
    )


def _check_entries(where: str, entry: Mapping[str, Any], known: list[str]) -> None:
    """Refuse unknown names, and values of a wrong type, in a table of `graph.toml`."""
    unknown = [name for name in entry if name not in known]
    if unknown:
        raise InputError(f"{where} has unknown entries {listing(unknown)}; use {', '.join(known)}.")
    for name, value in entry.items():
        if name == "columns" and not isinstance(value, dict):
            raise InputError(f"{where}: columns should be a table of column names and kinds.")
        if name not in NOT_TEXT and not isinstance(value, str):
            raise InputError(f"{where}: {name}={quoted(value)} should be text in quotes.")


def write_toml(spec: Spec, kinds: Mapping[str, Mapping[str, tuple[str, str]]]) -> str:
    """Return a `graph.toml` with comments; `kinds` has the kind of every feature, and why."""
    template = plain_template(
        Path(__file__).with_name("graph.toml.j2"),
        toml=_quote,
        visible=lambda text: visible(" ".join(text.split())),
    )
    # One of these may be the label that no name shows.
    of_target = kinds.get(spec.target, {}).items()
    head = spec.sources[spec.nodes[spec.target].file].head
    few_values = [
        name
        for name, (kind, _) in of_target
        # Of numbers, two values such as 0 and 1.
        if kind == "category" or (kind == "number" and pc.count_distinct(head[name]).as_py() == 2)
    ]
    return template.render(spec=spec, kinds=kinds, all_kinds=KINDS, few_values=few_values)


def _quote(value: str | int | None) -> str:
    """Return a value as TOML writes it."""
    if isinstance(value, int):
        return str(value)
    escaped = (value or "").replace("\\", "\\\\").replace('"', '\\"')
    escaped = re.sub(r"[\x00-\x1f\x7f]", lambda match: f"\\u{ord(match[0]):04x}", escaped)
    return f'"{escaped}"'
