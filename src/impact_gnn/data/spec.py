"""`Spec`: the role of every table and column, read from `graph.toml` or guessed from names."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from impact_gnn._codec import decode, encode
from impact_gnn._text import plain_template, visible
from impact_gnn.checks import InputError, choice, guarded, listing, quoted
from impact_gnn.data.foreign_keys import (
    ENDS,
    KEY_ENDINGS,
    ROW,
    Entity,
    ForeignKey,
    find_entities,
    find_keys,
    plain_name,
    with_parent_column,
    with_row_numbers,
)
from impact_gnn.data.sources import UNNAMED, Source
from impact_gnn.data.values import TableColumn
from impact_gnn.encoding import KINDS, guess_kind
from impact_gnn.graph import HOMOGENEOUS, Triple
from impact_gnn.graph.parts import class_name

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
NOT_TEXT = ("nodes", "edges", "columns", "period", "label_delay", "unknown", "values_of")
"""Entries of `graph.toml` whose values may be other than text."""
DANGLING = ("refuse", "drop")
"""What happens to edges that name an unknown node."""


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
    """Columns of a table of edges."""

    source: str
    target: str
    weight: str | None = None
    time: str | None = None
    dangling: str = "refuse"
    role_names: ClassVar[tuple[str, ...]] = ("source", "target", "weight", "time")


@dataclass(frozen=True)
class Spec:
    """All tables, the type to classify, and the rule that puts times into periods."""

    nodes: dict[str, NodeTable]
    edges: dict[Triple, EdgeTable]
    target: str
    period: str | int = "auto"
    label_delay: float = 0.0
    # tables that have got a column of another table through a key, by file
    extended: dict[str, Source] = field(default_factory=dict)

    def content(self) -> dict[str, Any]:
        """Return the roles of the columns in the types of JSON, for `restored`."""
        return {
            "nodes": {
                kind: encode(replace(table, unknown=tuple(map(class_name, table.unknown))))
                for kind, table in self.nodes.items()
            },
            "edges": [[list(triple), encode(table)] for triple, table in self.edges.items()],
            "target": self.target,
        }

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
    kind: str, source: Source, named: Mapping[str, Any], *, labelled: bool, alone: bool = False
) -> NodeTable:
    """Guess the roles of the columns of a node table that are not `named`.

    The only date is the time of nodes with a label, or of the only type (`alone`). For other nodes
    it may be a birthday.
    """
    table = source.head
    columns = named.get("columns") or {}
    if not isinstance(columns, Mapping):
        raise InputError(f"columns={quoted(columns)} should be a mapping from column name to kind.")
    roles = _named_roles(named, NodeTable.role_names)
    used = [*filter(None, roles.values()), *columns]
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
        date = date or _only_date(table, free)
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
        columns=dict(columns),
    )


def _named_roles(named: Mapping[str, Any], roles: Iterable[str]) -> dict[str, Any]:
    """Return the columns that a user has named, "" for a role that no column has."""
    return {role: named[role] for role in roles if named.get(role) is not None}


def _check_columns(source: Source, columns: list[str]) -> None:
    """Refuse columns that a table lacks, or that are named twice."""
    names = source.head.column_names
    for column in columns:
        if column not in names:
            raise InputError(
                f"{source.name} has no column {quoted(column)}; it has {listing(names)}. "
                "Rename a column or add it."
            )
    if repeated := [name for name, count in Counter(columns).items() if count > 1]:
        raise InputError(f"column {listing(repeated)} of {source.name} has two roles; use it once.")


def _unknown_labels(where: str, value: Any) -> tuple[str | int | float, ...]:
    """Return the labels that mean unknown: one, or several in a list."""
    if value is None:
        return ()
    values = tuple(value) if isinstance(value, list | tuple | set) else (value,)
    for label in values:
        if not isinstance(label, str | int | float):
            raise InputError(
                f"{where}: {quoted(label)} cannot be an unknown_label; use text or numbers."
            )
    return values


def guess_edges(
    source: Source,
    named: Mapping[str, Any],
    ends: tuple[str, str] | None = None,
    types: Iterable[str] = (),
) -> EdgeTable:
    """Guess the roles of the columns of an edge table that are not `named`.

    Columns of its ends may have the names of the types of both `ends`, or of any two `types`.
    """
    names = source.head.column_names
    roles = _named_roles(named, EdgeTable.role_names)
    roles = {role: column for role, column in roles.items() if column or role not in EDGE_ENDS}
    _check_columns(source, list(set(filter(None, roles.values()))))
    if not {*EDGE_ENDS} <= roles.keys():
        pair = _columns_of_types(names, ends) or _end_columns(names, types)
        # An index without a name, as pandas writes it, is no end.
        titled = tuple(name for name in names if not name.startswith(UNNAMED))
        if pair is None and len(titled) == 2:
            pair = titled
        if pair is None:
            raise InputError(
                f"{source.name} has no columns source, target; it has {listing(names)}. "
                "Rename two columns, or set source=... and target=..."
            )
        roles = dict(zip(EDGE_ENDS, pair, strict=True)) | roles
    if roles["source"] == roles["target"]:
        raise InputError(
            f"column {roles['source']!r} of {source.name} cannot be both source and target; "
            "choose two columns."
        )
    free = [name for name in names if name not in (roles["source"], roles["target"])]
    for role, usual in (("weight", WEIGHTS), ("time", TIMES)):
        roles[role] = roles.get(role, _first_name(free, usual)) or None
    _check_columns(source, list(filter(None, roles.values())))
    dangling = choice("dangling", named.get("dangling", "refuse"), DANGLING)
    return EdgeTable(source.name, **roles, dangling=dangling)


def guess(where: str, sources: Mapping[str, Source], *, is_draft: bool = False) -> Spec:
    """Guess the spec of a folder or database; a draft may pick any type to classify."""
    if {"nodes", "edges"} <= sources.keys():
        node = guess_nodes("node", sources["nodes"], {}, labelled=True, alone=True)
        return Spec({"node": node}, {HOMOGENEOUS: guess_edges(sources["edges"], {})}, "node")
    types = {name: _singular(name) for name in sources}
    if len(sources) == 1:
        (name, source), *_ = sources.items()
        if (events := guess_events(types[name], source)) is not None:
            return events
    links = {}
    others = {}
    for name, source in sources.items():
        names = source.head.column_names
        other_types = [kind for other, kind in types.items() if other != name]
        # a table with ids of its own is one of events, not of edges
        is_link = _end_columns(names, other_types) and not _named_key(name, types[name], names)
        if is_link:
            links[name] = source
        else:
            others[name] = source
    tables = {types[name]: source for name, source in others.items()}
    spec = guess_by_keys(others, types)
    if spec is None:
        spec = _guess_unrelated(where, tables, links, is_draft=is_draft)
    spec = replace(spec, edges=spec.edges | _link_edges(links, spec.nodes, tables))
    target = spec.nodes[spec.target]
    if not is_draft and not (target.label and target.time):
        raise InputError(
            f"no table has a time and a label; create a {TOML} with impact init, "
            "and set them there."
        )
    return spec


def _guess_unrelated(
    where: str, tables: Mapping[str, Source], links: Mapping[str, Source], *, is_draft: bool
) -> Spec:
    """Guess the spec of tables of nodes that only tables of edges (`links`) relate."""
    if not tables or not links:
        name = "nodes"
        other = "a column 'id'"
        if tables:
            name = "edges"
            other = "two columns of node ids"
        raise InputError(
            f"{where} contains no table {name} (such as {name}.csv or {name}.parquet), "
            f"nor another with {other}; a graph needs nodes and edges, "
            f"or a {TOML} that declares the tables."
        )
    nodes = {
        kind: guess_nodes(kind, source, {}, labelled=True, alone=len(tables) == 1)
        for kind, source in tables.items()
    }
    candidates = [kind for kind, node in nodes.items() if node.label and node.time]
    if len(candidates) != 1 and not is_draft:
        subject = "no table has"
        if candidates:
            subject = f"{listing(candidates)} have"
        raise InputError(
            f"{subject} a time and a label, so the type to classify is ambiguous; "
            f"set it in a {TOML}."
        )
    timed = [kind for kind, node in nodes.items() if node.time]
    return Spec(nodes, {}, [*candidates, *timed, *nodes][0])


def guess_events(
    kind: str,
    source: Source,
    named: Mapping[str, Any] | None = None,
    entities: Mapping[str, Sequence[str]] | None = None,
) -> Spec | None:
    """Guess the spec of one table of events whose columns name entities; None without such.

    Args:
        kind: The type of the rows.
        source: The table.
        named: Roles of its columns, as in `guess_nodes`.
        entities: Columns by type of entity; by default they are guessed.
    """
    named = dict(named or {})
    names = source.head.column_names
    # Rows of events often have no ids; their numbers then name them.
    if "id" not in named:
        named["id"] = _guess_id(kind, names, source.head)
        ids = source.head.column(named["id"]) if named["id"] else []
        if len(ids) and pc.count_distinct(ids).as_py() < len(ids):
            named["id"] = None
    if named["id"] is None:
        source = with_row_numbers(source)
        named["id"] = ROW
    columns = named.get("columns") or {}
    if entities is None:
        time = named.get("time") or _first_name(names, TIMES)
        label = named.get("label") or _first_name(names, OWN_LABELS)
        used = {named["id"], time, label, *columns}
        free = [name for name in names if name not in used]
        entities = find_entities(source.head, free, by_values=True)
    keys = list(chain(*entities.values()))
    _check_columns(source, keys)
    # A key becomes edges, so it is no feature as well.
    named["columns"] = columns | dict.fromkeys(keys, "ignore")
    events = guess_nodes(kind, source, named, labelled=True, alone=True)
    if not keys or not events.time:
        return None
    return _with_entities(Spec({kind: events}, {}, kind, extended={source.name: source}), entities)


def _with_entities(spec: Spec, entities: Mapping[str, Sequence[str]]) -> Spec:
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
            # A row without a value has no such entity, so its edge is dropped.
            edges[kind, f"{spec.target}_{column}", spec.target] = EdgeTable(
                events.file,
                source=column,
                target=str(events.id),
                dangling="drop",
            )
    return replace(spec, nodes=nodes, edges=edges)


def _link_edges(
    links: Mapping[str, Source], nodes: Mapping[str, NodeTable], tables: Mapping[str, Source]
) -> dict[Triple, EdgeTable]:
    """Return the relations of tables that hold nothing but edges."""
    edges = {}
    for name, source in links.items():
        table = guess_edges(source, {}, None, tables)
        source_type, target_type = _end_types(source, table, nodes, tables)
        edges[source_type, name, target_type] = table
    return edges


def guess_by_keys(
    sources: Mapping[str, Source],
    types: Mapping[str, str],
    *,
    target: str | None = None,
    named: Mapping[str, Any] | None = None,
) -> Spec | None:
    """Guess the spec of tables that refer to each other by foreign keys; None without keys.

    The type to classify is the one with a label, otherwise the one with the most keys; `named` are
    roles of its columns. A table of events without a date takes that of the table that one of its
    keys leads to.
    """
    roles = dict(named or {})
    entities = {}
    for name, source in sources.items():
        if (id_column := _key_of_table(name, types[name], source)) is not None:
            words = (plain_name(types[name]), plain_name(name))
            entities[types[name]] = Entity(source, id_column, words)
    keys = find_keys(entities)
    if not keys:
        return None
    target = target or _events_of(entities, keys, roles.get("label"))
    times = {kind: _date_column(entity.source) for kind, entity in entities.items()}
    # The user's roles are those of the type to classify.
    times[target] = roles.pop("time", times[target])
    extended = {}
    for key in keys:
        # Events such as results have the date of their parent, such as a race.
        if key.table == target and times[key.parent] and not times[target]:
            events = entities[target]
            parent = entities[key.parent]
            times[target] = f"{key.column}.{times[key.parent]}"
            source = with_parent_column(events.source, key.column, parent, str(times[key.parent]))
            entities[target] = replace(events, source=source)
            extended[source.name] = source
    nodes = {}
    for kind, entity in entities.items():
        columns = {key.column: "ignore" for key in keys if key.table == kind}
        own_roles: dict[str, Any] = {"id": entity.id, "time": times[kind] or ""}
        if kind == target:
            columns |= roles.pop("columns", {})
            own_roles |= roles
        own_roles["columns"] = columns
        nodes[kind] = guess_nodes(kind, entity.source, own_roles, labelled=kind == target)
    edges = {}
    for key in keys:  # from the parent to the row
        child = entities[key.table]
        edges[key.parent, f"{key.table}_{key.column}", key.table] = EdgeTable(
            child.source.name, source=key.column, target=child.id, dangling="drop"
        )
    head = entities[target].source.head
    used = [*nodes[target].columns, *nodes[target].roles.values()]
    # what is named after a table but holds other values than its ids is no key
    free = [
        name
        for name in head.column_names
        if name not in used and not any(one.is_meant_by(name) for one in entities.values())
    ]
    without_table = find_entities(head, free, by_values=False)
    for name in chain(*without_table.values()):
        nodes[target].columns[name] = "ignore"
    return _with_entities(Spec(nodes, edges, target, extended=extended), without_table)


def _events_of(entities: Mapping[str, Entity], keys: list[ForeignKey], label: str | None) -> str:
    """Return the only type with a label, otherwise the one with the most keys."""
    label_names = [label] if label else LABELS
    labelled = [
        kind
        for kind, entity in entities.items()
        if _first_name(entity.source.head.column_names, label_names)
    ]
    if len(labelled) == 1:
        return labelled[0]
    num_keys = Counter(key.table for key in keys)
    return max(entities, key=lambda kind: (num_keys[kind], len(entities[kind].source.head)))


def _key_of_table(name: str, kind: str, source: Source) -> str | None:
    """Return the column of a table's own ids: named after the table, or any that is distinct."""
    names = source.head.column_names
    named = _named_key(name, kind, names) or _first_name(names, ["id"])
    return named or _guess_id(kind, names, source.head)


def _named_key(name: str, kind: str, columns: list[str]) -> str | None:
    """Return the column of ids that is named after its table."""
    wanted = {f"{plain_name(word)}{ending}" for word in (name, kind) for ending in KEY_ENDINGS}
    return next((column for column in columns if plain_name(column) in wanted), None)


def _date_column(source: Source) -> str | None:
    """Return the first column with a usual name of times that holds dates or years."""
    head = source.head
    for name in head.column_names:
        if name.lower() in TIMES and guess_kind(name, head.column(name))[0] == "date":
            return name
    return _first_name(head.column_names, ("year", "publication_year"))


def _end_types(
    source: Source,
    edges: EdgeTable,
    nodes: Mapping[str, NodeTable],
    tables: Mapping[str, Source],
) -> tuple[str, str]:
    """Return the node types of both ends of an edge table."""
    options = [_types_of(source, name, nodes, tables) for name in (edges.source, edges.target)]
    # Ends that fit several types are most likely of one type, as citations are.
    common = [kind for kind in options[0] if kind in options[1]]
    if len(common) == 1:
        options = [kinds if len(kinds) == 1 else common for kinds in options]
    if any(len(kinds) != 1 for kinds in options):
        raise InputError(
            f"the node types of the columns '{edges.source}' and '{edges.target}' of "
            f"{source.name} are ambiguous; set them in a {TOML}."
        )
    return options[0][0], options[1][0]


def _types_of(
    source: Source, column: str, nodes: Mapping[str, NodeTable], tables: Mapping[str, Source]
) -> list[str]:
    """Return the node types that a column may name: by its name, or those that have its values."""
    by_name = [kind for kind in nodes if _is_named_after(column, kind)]
    if by_name or len(nodes) == 1:
        return by_name[:1] or list(nodes)
    return [
        kind
        for kind, node in nodes.items()
        if node.id and Entity(tables[kind], node.id, ()).has_ids_in(source, column)
    ]


def _end_columns(names: list[str], types: Iterable[str]) -> tuple[str, ...] | None:
    """Return the two ends of an edge: a usual pair of names, or the names of two types."""
    stems = {re.sub(r"_(id|node)$", "", name.lower()): name for name in names}
    for source, target in ENDS:
        if source in stems and target in stems:
            return stems[source], stems[target]
    types = list(types)
    matching = [name for name in names if any(_is_named_after(name, kind) for kind in types)]
    return tuple(matching[:2]) if len(matching) >= 2 else None


def _columns_of_types(names: list[str], ends: tuple[str, str] | None) -> tuple[str, ...] | None:
    """Return the columns named after the types of both ends, where these differ."""
    columns = []
    for kind in ends or ():
        columns += [name for name in names if _is_named_after(name, kind)][:1]
    return tuple(columns) if len(set(columns)) == 2 else None


def _is_named_after(column: str, kind: str) -> bool:
    return column.lower() in (kind, f"{kind}_id", f"{kind}s")


def _first_name(names: list[str], wanted: Iterable[str]) -> str | None:
    """Return the first of the `wanted` names, in this spelling or in another case."""
    # Reversed: of several spellings, the first column wins.
    by_lower = {name.lower(): name for name in reversed(names)}
    spellings = (name if name in names else by_lower.get(name) for name in wanted)
    return next(filter(None, spellings), None)


def _guess_id(kind: str, names: list[str], table: pa.Table) -> str | None:
    """Return the column of ids: by its name, or the first one if all its texts differ."""
    named = _first_name(names, (f"{kind}_id", *IDS))
    if named is not None:
        return named
    candidates = [name for name in names if re.search(r"_id$|[a-z]I[dD]$|_ID$", name)]
    for name in names[:1]:
        # an index of a data frame has no name in a CSV
        if name.startswith(UNNAMED) or guess_kind(name, table.column(name))[0] == "ignore":
            candidates.append(name)
    for name in candidates:
        column = table.column(name)
        if pa.types.is_floating(column.type) or pa.types.is_nested(column.type):
            continue
        if pc.count_distinct(column, mode="all").as_py() == len(column):
            return name
    return None


def _only_date(table: pa.Table, names: list[str]) -> str | None:
    kinds = {name: guess_kind(name, table.column(name).slice(0, 1000))[0] for name in names}
    dates = [name for name, kind in kinds.items() if kind == "date"]
    return dates[0] if len(dates) == 1 else None


def _guess_label(table: pa.Table, names: list[str], time: str | None) -> str | None:
    """Return the only column of few values that is missing from some time on."""
    if time is None:
        return None
    candidates = []
    for name in names:
        column = table.column(name)
        if guess_kind(name, column)[0] not in ("category", "number"):
            continue
        if pc.count_distinct(column).as_py() > MAX_GUESSED_CLASSES:
            continue
        # Labels of the past are known, those of the newest rows are not.
        missing = pc.is_null(column)
        with suppress(pa.ArrowNotImplementedError):
            last_known = pc.max(table.column(time).filter(pc.invert(missing))).as_py()
            first_missing = pc.min(table.column(time).filter(missing)).as_py()
            if None not in (last_known, first_missing) and last_known <= first_missing:
                candidates.append(name)
    return candidates[0] if len(candidates) == 1 else None


def _singular(name: str) -> str:
    name = re.sub("ies$", "y", name.lower())
    if re.search("(tch|nch|rch|sh|ss|x)es$", name):  # matches, boxes
        return name[:-2]
    return re.sub("(?<![us])s$", "", name)  # not of status, class


# -- graph.toml


def read_toml(path: Path, sources: Mapping[str, Source]) -> Spec:
    """Read the spec in a `graph.toml`; roles that it leaves out are guessed."""
    with guarded(path):
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    _check_entries(path.name, content, ["target", "period", "label_delay", "nodes", "edges"])
    for section in ("nodes", "edges"):
        tables = content.get(section)
        is_section = isinstance(tables, dict) and tables
        if not is_section or not all(isinstance(entry, dict) for entry in tables.values()):
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
    nodes = {}
    extended = {}
    for kind, entry in content["nodes"].items():
        _check_entries(f"{path.name} [nodes.{kind}]", entry, [f.name for f in fields(NodeTable)])
        source = _source(path, entry, sources)
        if "values_of" in entry:
            nodes[kind] = _values_table(path, kind, source, entry["values_of"])
            continue
        if entry.get("id") == ROW and ROW not in source.head.column_names:
            source = with_row_numbers(source)
            sources = {**sources, source.name: source}
            extended[source.name] = source
        if (time := entry.get("time", "")) not in source.head.column_names and "." in time:
            source = _dated_by_parent(path, kind, time, content, sources)
            extended[source.name] = source
        nodes[kind] = guess_nodes(
            kind,
            source,
            entry,
            labelled=kind == target,
            alone=only is not None,
        )
    edges = {}
    for name, entry in content["edges"].items():
        where = f"{path.name} [edges.{name}]"
        allowed = ["source_type", "target_type", *(f.name for f in fields(EdgeTable))]
        _check_entries(where, entry, allowed)
        ends = (entry.get("source_type", only), entry.get("target_type", only))
        if not set(ends) <= set(types):
            raise InputError(
                f"{where} needs source_type and target_type, each one of {listing(types)}."
            )
        edges[ends[0], name, ends[1]] = guess_edges(_source(path, entry, sources), entry, ends)
    period = content.get("period", "auto")
    period = period if isinstance(period, int) else str(period)
    delay = content.get("label_delay", 0.0)
    return Spec(nodes, edges, target, period, label_delay=delay, extended=extended)


def _values_table(path: Path, kind: str, source: Source, columns: Any) -> NodeTable:
    """Return the type of the distinct values of some columns."""
    if not isinstance(columns, list) or not columns:
        raise InputError(
            f"{path.name} [nodes.{kind}]: values_of={quoted(columns)} should be a list of columns."
        )
    _check_columns(source, columns)
    return NodeTable(source.name, id="id", values_of=tuple(columns))


def _dated_by_parent(
    path: Path, kind: str, time: str, content: Mapping[str, Any], sources: Mapping[str, Source]
) -> Source:
    """Return a table with the time KEY.COLUMN of the table that one of its keys leads to."""
    key, _, column = time.partition(".")
    child = content["nodes"][kind]
    for edge in content["edges"].values():
        parent = content["nodes"].get(edge.get("source_type"), {})
        if edge.get("source") == key and edge.get("target_type") == kind and parent.get("id"):
            entity = Entity(_source(path, parent, sources), parent["id"], ())
            _check_columns(entity.source, [column])
            return with_parent_column(_source(path, child, sources), key, entity, column)
    raise InputError(
        f"{path.name} [nodes.{kind}]: time = {quoted(time)} needs a relation with "
        f"source = {quoted(key)} from a type with an id; add it under [edges]."
    )


def _source(path: Path, entry: Mapping[str, Any], sources: Mapping[str, Source]) -> Source:
    name = entry.get("file")
    for key, source in reversed(list(sources.items())):  # those with further columns come last
        if name in (key, source.name):
            return source
    available = listing([source.name for source in sources.values()]) or "none"
    raise InputError(
        f"{path.name} refers to a missing file {quoted(name)}; the files are {available}."
    )


def _check_entries(where: str, entry: Mapping[str, Any], known: list[str]) -> None:
    """Refuse unknown names, and values of a wrong type, in a table of `graph.toml`."""
    if unknown := [name for name in entry if name not in known]:
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
    return template.render(spec=spec, kinds=kinds, all_kinds=KINDS)


def _quote(value: str | int | None) -> str:
    """Return a value as TOML writes it."""
    if isinstance(value, int):
        return str(value)
    escaped = (value or "").replace("\\", "\\\\").replace('"', '\\"')
    escaped = re.sub(r"[\x00-\x1f\x7f]", lambda match: f"\\u{ord(match[0]):04x}", escaped)
    return f'"{escaped}"'
