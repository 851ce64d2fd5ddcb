"""`Spec`: which table and column of a person's data is what; guessed from names and values, or read from a file."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from impact_gnn._text import visible
from impact_gnn.checks import InputError, choice, guarded, listing, quoted
from impact_gnn.data.sources import UNNAMED, Source
from impact_gnn.encoding import KINDS, guess_kind
from impact_gnn.encoding.kinds import texts
from impact_gnn.graph import HOMOGENEOUS, Triple

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
LABELS = ("label", "class", "y", "target")
ENDS = (
    ("source", "target"),
    ("src", "dst"),
    ("from", "to"),
    ("citing", "cited"),
    ("follower", "followed"),
    ("sender", "receiver"),
    ("head", "tail"),
    ("u", "v"),
)
WEIGHTS = ("weight", "w")
FEW = 100  # classes that a column may have to be taken for a label by its gaps
DANGLING = ("refuse", "drop")
"""What happens to edges that name a node which is not there."""


@dataclass(frozen=True)
class NodeTable:
    """Columns of a table of nodes; without `id` rows are numbered.

    `columns` says what features are, if not guessed; `unknown` which labels mean that the class is
    not known.
    """

    file: str
    id: str | None = None
    time: str | None = None
    label: str | None = None
    unknown: tuple[str | int | float, ...] = ()
    columns: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class EdgeTable:
    """Columns of a table of edges."""

    file: str
    source: str
    target: str
    weight: str | None = None
    time: str | None = None
    dangling: str = "refuse"


@dataclass(frozen=True)
class Spec:
    """All tables; the type to classify; the rule that makes periods of times."""

    nodes: dict[str, NodeTable]
    edges: dict[Triple, EdgeTable]
    target: str
    period: str | int = "auto"


# -- guessing


def guess_nodes(
    kind: str, source: Source, given: Mapping[str, Any], *, labelled: bool, alone: bool = False
) -> NodeTable:
    """Roles of the columns of a node table; `given` holds those that were named.

    The only date is the time of nodes with a label, or of the only type (`alone`); of others it may
    be a birthday.
    """
    table = source.head
    names = table.column_names
    columns = given.get("columns") or {}
    if not isinstance(columns, Mapping):
        raise InputError(
            f"columns={quoted(columns)} should be a mapping from names of columns to kinds."
        )
    for column in [given.get(role) for role in ("id", "time", "label")] + list(columns):
        _refuse_absent(source.name, column, names)
    for column, meant in columns.items():
        choice(f"the kind of column '{column}'", meant, KINDS)
    named = [given[role] for role in ("id", "time", "label") if given.get(role)]
    if twice := [
        name for name in dict.fromkeys([*named, *columns]) if [*named, *columns].count(name) > 1
    ]:
        raise InputError(
            f"column {listing(twice)} of {source.name} is named for two things; name it once."
        )
    roles: dict[str, str | None] = {}

    def left() -> list[str]:
        return [name for name in names if name not in [*named, *columns, *roles.values()]]

    def take(role: str, guessed: Callable[[list[str]], str | None]) -> None:
        roles[role] = (given[role] or None) if given.get(role) is not None else guessed(left())

    take("id", lambda names: _id_column(kind, names, table))
    take("time", lambda names: _named(names, TIMES))
    date = roles["time"] or (_only_date(table, left()) if labelled else None)
    if labelled:
        take("label", lambda names: _named(names, LABELS) or _unknown_lately(table, names, date))
    if given.get("time") is None and (alone or roles.get("label")):
        roles["time"] = date
    unknown = unknown_labels(source.name, given.get("unknown"))
    return NodeTable(source.name, **roles, unknown=unknown, columns=dict(columns))


def unknown_labels(where: str, value: Any) -> tuple[str | int | float, ...]:
    """Labels that mean that the class is not known: one, or several in a list."""
    if value is None:
        return ()
    values = tuple(value) if isinstance(value, list | tuple | set) else (value,)
    if odd := [one for one in values if not isinstance(one, str | int | float)]:
        raise InputError(
            f"{where}: {quoted(odd[0])} cannot be a label that means unknown; give text or numbers."
        )
    return values


def guess_edges(
    source: Source,
    given: Mapping[str, Any],
    ends: tuple[str, str] | None = None,
    types: Iterable[str] = (),
) -> EdgeTable:
    """Roles of the columns of an edge table; its ends may be named after their types, or any two `types`."""
    names = source.head.column_names
    for role in ("source", "target", "weight", "time"):
        _refuse_absent(source.name, given.get(role), names)
    columns = [given.get("source"), given.get("target")]
    if None in columns:
        titled = [name for name in names if not name.startswith(UNNAMED)]
        pair = (
            _by_type(names, ends)
            or _pair(names, types)
            or (tuple(titled) if len(titled) == 2 else ())
        )
        if len(pair) < 2:
            has = f"it has {listing(names)}. Rename columns, or name the two ends"
            raise InputError(f"{source.name} has no columns source, target; {has}.")
        columns = [one or other for one, other in zip(columns, pair, strict=True)]
    if columns[0] == columns[1]:
        raise InputError(
            f"column {columns[0]!r} of {source.name} cannot be both ends of an edge; name two columns."
        )
    left = [name for name in names if name not in columns]
    about = {"weight": WEIGHTS, "time": TIMES}
    weight, time = (
        _named(left, usual) if given.get(role) is None else given[role] or None
        for role, usual in about.items()
    )
    used = [name for name in (*columns, weight, time) if name]
    if twice := [name for name in dict.fromkeys(used) if used.count(name) > 1]:
        raise InputError(
            f"column {listing(twice)} of {source.name} is named for two things; name it once."
        )
    dangling = choice("dangling", given.get("dangling", "refuse"), DANGLING)
    return EdgeTable(source.name, str(columns[0]), str(columns[1]), weight, time, dangling)


def guess(where: str, sources: Mapping[str, Source], *, first: bool = False) -> Spec:
    """The spec of a folder or database that has none; a `first` one may leave open which type is to be classified."""
    if {"nodes", "edges"} <= sources.keys():
        node = guess_nodes("node", sources["nodes"], {}, labelled=True, alone=True)
        return Spec({"node": node}, {HOMOGENEOUS: guess_edges(sources["edges"], {})}, "node")
    kinds = {name: _singular(name) for name in sources}
    links = {
        name: source
        for name, source in sources.items()
        if _pair(source.head.column_names, [kind for other, kind in kinds.items() if other != name])
    }
    tables = {kinds[name]: source for name, source in sources.items() if name not in links}
    if not tables or not links:
        name, other = (
            ("edges", "a pair of columns that name nodes") if tables else ("nodes", "a column 'id'")
        )
        raise InputError(
            f"{where} holds no table {name} (such as {name}.csv or {name}.parquet), nor another with {other}; a graph "
            f"needs nodes and edges, or a {TOML} that says which is which."
        )
    alone = len(tables) == 1
    nodes = {
        kind: guess_nodes(kind, source, {}, labelled=True, alone=alone)
        for kind, source in tables.items()
    }
    edges = {}
    for name, source in links.items():
        table = guess_edges(source, {}, None, tables)
        fitting = [
            _types_of(source, column, nodes, tables) for column in (table.source, table.target)
        ]
        both = [kind for kind in fitting[0] if kind in fitting[1]]
        fitting = [both if len(kinds) > 1 and len(both) == 1 else kinds for kinds in fitting]
        if any(len(kinds) != 1 for kinds in fitting):
            what = f"columns '{table.source}' and '{table.target}' of {source.name}"
            raise InputError(f"it is not clear which nodes the {what} name; say it in a {TOML}.")
        edges[fitting[0][0], name, fitting[1][0]] = table
    labelled = [kind for kind, node in nodes.items() if node.label and node.time]
    if first and len(labelled) != 1:
        labelled = [*labelled, *(kind for kind, node in nodes.items() if node.time), *nodes][:1]
    if len(labelled) != 1:
        came = f"{listing(labelled)} have" if labelled else "no table has"
        raise InputError(
            f"{came} a time and a label, so the type to classify is not clear; say it in a {TOML}."
        )
    return Spec(nodes, edges, labelled[0])


def _types_of(
    source: Source, column: str, nodes: Mapping[str, NodeTable], tables: Mapping[str, Source]
) -> list[str]:
    """The node types that a column may name: by its name, or those that have its values."""
    by_name = [kind for kind in nodes if _names(column, kind)]
    if by_name or len(nodes) == 1:
        return by_name[:1] or list(nodes)
    found = []
    head = source.as_written([column]).head
    values = texts(column, head.column(column).slice(0, 1000).drop_null())
    for kind, node in nodes.items():
        if node.id is None:
            continue
        ids = tables[kind].as_written([node.id]).table.column(node.id)
        if pc.all(pc.is_in(values, pc.unique(texts(node.id, ids)))).as_py():
            found.append(kind)
    return found


def _pair(names: Iterable[str], types: Iterable[str]) -> tuple[str, ...] | None:
    """The two columns that are the ends of an edge: a customary pair of names, or the names of two types."""
    names, types = list(names), list(types)
    lower = {re.sub(r"_(id|node)$", "", name.lower()): name for name in names}
    for a, b in ENDS:
        if a in lower and b in lower:
            return lower[a], lower[b]
    meant = [name for name in names if any(_names(name, kind) for kind in types)]
    return tuple(meant[:2]) if len(meant) >= 2 else None


def _by_type(names: list[str], ends: tuple[str, str] | None) -> tuple[str, ...] | None:
    """The columns named after the types of the two ends, where these differ."""
    found = [next((name for name in names if _names(name, kind)), None) for kind in ends or ()]
    return None if not found or None in found or found[0] == found[1] else tuple(map(str, found))


def _names(column: str, kind: str) -> bool:
    return column.lower() in (kind, f"{kind}_id", f"{kind}s")


def _named(names: Iterable[str], wanted: Iterable[str]) -> str | None:
    """The first of the `wanted` names that is there; exactly so, or else in another case."""
    names = list(names)
    lower = {name.lower(): name for name in reversed(names)}
    there = (name if name in names else lower.get(name) for name in wanted)
    return next((name for name in there if name is not None), None)


def _id_column(kind: str, names: list[str], table: pa.Table) -> str | None:
    """The column that tells nodes apart: by its name, or the first of text that is different everywhere."""
    named = _named(names, (f"{kind}_id", *IDS))
    ends = [name for name in names if re.search(r"_id$|[a-z]I[dD]$|_ID$", name)]
    # Text that is different everywhere, or the index of a data frame, which has no name in a CSV.
    first = [
        name
        for name in names[:1]
        if name.startswith(UNNAMED) or guess_kind(name, table.column(name))[0] == "ignore"
    ]
    for name in ([named] if named else []) + ends + first:
        column = table.column(name)
        comparable = not pa.types.is_floating(column.type) and not pa.types.is_nested(column.type)
        if name == named or (
            comparable and pc.count_distinct(column, mode="all").as_py() == len(column)
        ):
            return name
    return None


def _only_date(table: pa.Table, names: list[str]) -> str | None:
    dates = [
        name for name in names if guess_kind(name, table.column(name).slice(0, 1000))[0] == "date"
    ]
    return dates[0] if len(dates) == 1 else None


def _unknown_lately(table: pa.Table, names: list[str], time: str | None) -> str | None:
    """The only column of few values that is known up to some time and missing from then on: what labels look like."""
    found = []
    for name in names if time is not None else ():
        column, missing = table.column(name), pc.is_null(table.column(name))
        if not 0 < column.null_count < len(column) or guess_kind(name, column)[0] not in (
            "category",
            "number",
        ):
            continue
        when = table.column(time)
        try:
            ends = (
                pc.max(when.filter(pc.invert(missing))).as_py(),
                pc.min(when.filter(missing)).as_py(),
            )
        except pa.ArrowNotImplementedError:
            continue
        if None not in ends and ends[0] <= ends[1] and pc.count_distinct(column).as_py() <= FEW:
            found.append(name)
    return found[0] if len(found) == 1 else None


def _singular(name: str) -> str:
    name = name.lower()
    return name[:-3] + "y" if name.endswith("ies") else name[:-1] if name.endswith("s") else name


def _refuse_absent(table: str, column: Any, names: list[str]) -> None:
    if column and column not in names:
        raise InputError(
            f"{table} has no column {quoted(column)}; it has {listing(names)}. Rename a column or add it."
        )


# -- graph.toml


def read_toml(path: Path, sources: Mapping[str, Source]) -> Spec:
    """The spec in a `graph.toml`; what it leaves out is guessed."""
    with guarded(path):
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    _refuse_unknown(path.name, content, ("target", "period", "nodes", "edges"))
    parts = {}
    for floor in ("nodes", "edges"):
        part = content.get(floor)
        if (
            not isinstance(part, dict)
            or not part
            or not all(isinstance(entry, dict) for entry in part.values())
        ):
            raise InputError(
                f"{path.name} has no [{floor}.NAME] table; write one for each table of {floor}."
            )
        parts[floor] = part
    only = next(iter(parts["nodes"])) if len(parts["nodes"]) == 1 else None
    target = content.get("target", only)
    if target not in parts["nodes"]:
        types = listing(list(parts["nodes"]))
        raise InputError(
            f"{path.name}: target={quoted(target)} is no node type; choose of {types}."
        )
    nodes, edges = {}, {}
    for kind, entry in parts["nodes"].items():
        _refuse_unknown(f"{path.name} [nodes.{kind}]", entry, [f.name for f in fields(NodeTable)])
        roles: Any = {"labelled": kind == target, "alone": only is not None}
        nodes[kind] = guess_nodes(kind, _source(path, entry, sources), entry, **roles)
    for name, entry in parts["edges"].items():
        where = f"{path.name} [edges.{name}]"
        _refuse_unknown(
            where, entry, ["source_type", "target_type", *(f.name for f in fields(EdgeTable))]
        )
        ends = [entry.get(role, only) for role in ("source_type", "target_type")]
        if not all(end in nodes for end in ends):
            raise InputError(
                f"{where} needs source_type and target_type; choose of {listing(list(nodes))}."
            )
        kinds = str(ends[0]), str(ends[1])
        edges[kinds[0], name, kinds[1]] = guess_edges(_source(path, entry, sources), entry, kinds)
    period = content.get("period", "auto")
    return Spec(nodes, edges, str(target), period if isinstance(period, int) else str(period))


def _source(path: Path, entry: Mapping[str, Any], sources: Mapping[str, Source]) -> Source:
    name = entry.get("file")
    for key, source in sources.items():
        if name in (key, source.name):
            return source
    there = listing([source.name for source in sources.values()]) or "none"
    raise InputError(
        f"{path.name} names the file {quoted(name)}, which is not there; there are {there}."
    )


def _refuse_unknown(where: str, entry: Mapping[str, Any], known: Iterable[str]) -> None:
    known = list(known)
    unknown = [name for name in entry if name not in known]
    if unknown:
        raise InputError(f"{where} has unknown entries {listing(unknown)}; use {', '.join(known)}.")
    for name, value in entry.items():
        free = ("nodes", "edges", "columns", "period", "unknown")
        if name not in free and not isinstance(value, str):
            raise InputError(f"{where}: {name}={quoted(value)} should be text in quotes.")
    if not isinstance(entry.get("columns", {}), dict):
        raise InputError(f"{where}: columns should be a table of names and kinds.")


def write_toml(spec: Spec, explained: Mapping[str, Mapping[str, tuple[str, str]]]) -> str:
    """A `graph.toml` with comments; `explained` holds what every feature column is taken for, and why."""
    lines = [
        "# Which table and column is what. Change what was guessed wrong, delete what should be guessed anew.",
        "",
    ]
    lines += [f"target = {_quote(spec.target)}  # the type to classify; it needs a time and labels"]
    lines += [
        f"period = {_quote(spec.period)}  # auto, year, quarter, month, week, day, hour, whole, or a number"
    ]
    for kind, node in spec.nodes.items():
        lines += ["", f"[nodes.{_quote(kind)}]", f"file = {_quote(node.file)}"]
        for role, absent in (("id", "rows are numbered"), ("time", "none"), ("label", "none")):
            column = getattr(node, role)
            lines.append(f"{role} = {_quote(column)}" if column else f'{role} = ""  # {absent}')
        lines += ["", f"[nodes.{_quote(kind)}.columns]  # {', '.join(KINDS)}"]
        for column, (meant, why) in explained[kind].items():
            lines.append(
                f"{_quote(column)} = {_quote(meant)}"
                + (f"  # {visible(' '.join(why.split()))}" if why else "")
            )
    for (source_type, name, target_type), edge in spec.edges.items():
        lines += ["", f"[edges.{_quote(name)}]", f"file = {_quote(edge.file)}"]
        lines += [f"source = {_quote(edge.source)}", f"source_type = {_quote(source_type)}"]
        lines += [f"target = {_quote(edge.target)}", f"target_type = {_quote(target_type)}"]
        for role in ("weight", "time"):
            column = getattr(edge, role)
            lines.append(f"{role} = {_quote(column)}" if column else f'{role} = ""  # none')
        lines.append(
            f"dangling = {_quote(edge.dangling)}  # or drop: edges that name a node which is not there"
        )
    return "\n".join(lines) + "\n"


def _quote(value: str | int) -> str:
    if isinstance(value, int):
        return str(value)
    plain = value.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + re.sub(r"[\x00-\x1f\x7f]", lambda match: f"\\u{ord(match[0]):04x}", plain) + '"'
