"""`update`: appends the nodes and edges of tables to a saved graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy import ndarray

from impact_gnn import _files
from impact_gnn._codec import encode
from impact_gnn.checks import InputError, guarded, listing, one_line, quoted
from impact_gnn.data.files import features_in, is_table, load, read_spec, tables_in
from impact_gnn.data.foreign_keys import Entity, distinct_values
from impact_gnn.data.ids import Ids
from impact_gnn.data.sources import Source
from impact_gnn.data.spec import EdgeTable, NodeTable, Spec, with_needed_columns
from impact_gnn.data.tables import EdgeRows, NodeRows, latest_parents
from impact_gnn.data.values import TableColumn, numbers_as_dates
from impact_gnn.encoding import Columns
from impact_gnn.encoding.kinds import COMMA, is_text, texts, whole
from impact_gnn.encoding.moments import all_match
from impact_gnn.graph import HOMOGENEOUS, Nodes, TemporalGraph, Triple, storage
from impact_gnn.graph.append import NewNodes, append
from impact_gnn.graph.parts import class_name
from impact_gnn.graph.periods import Periods, choose, exact_times

THOUSANDS = r"^[-+]?[1-9]\d{0,2},\d{3}$"  # a comma that need not be the decimal mark
_NOTHING = Source("nothing", lambda: pa.table({}))
"""Stands for a table that is not there: it has no new rows."""


def update(
    directory: str | Path,
    tables: str | Path,
    *,
    roles: str | Path | None = None,
) -> TemporalGraph:
    """Append the nodes and edges of tables to a saved graph, and return the graph.

    The directory grows in its place: its arrays are not written again, and an update that is killed
    or refused leaves the graph as it was. Edges may join new nodes and old ones. Periods and kinds
    of columns are those of the saved graph; new classes are added to its classes. New nodes come
    after all old ones, whatever their ids.

    Args:
        directory: Written by `TemporalGraph.save` or `impact convert`.
        tables: A folder of tables or a database, with the names and columns of the tables that the
            graph was made of. A table without new rows and a column of labels may be absent.
        roles: A `graph.toml` for the new tables, where roles have changed, or where the graph was
            not made of tables by `impact convert`.
    """
    root = _files.resolve(Path(directory))
    if not (root / storage.MANIFEST).is_file():
        raise InputError(f"{directory} is not a saved graph; create one with impact convert.")
    if not is_table(tables):
        raise InputError(f"{tables} is not a folder of tables; pass one with the new rows.")
    graph = load(root)
    if graph.cutoff is not None:
        raise InputError(
            f"{root} is saved with labels masked from {graph.name_of(graph.cutoff)} on; "
            "update the graph that it was made from."
        )
    spec = _spec_of(root, tables, roles)
    # A graph of one type has lost the names of its tables.
    spec = _named_like(graph, spec)
    present = tables_in(tables)
    files = [table.file for table in chain(spec.nodes.values(), spec.edges.values())]
    # Tables are found by their names without an ending.
    by_name = {file: present.get(file.split(".")[0], _NOTHING) for file in files}
    # Nothing to append at all.
    if all(source is _NOTHING for source in by_name.values()):
        raise InputError(f"{tables} has none of the tables {listing(files)}; pass new rows.")
    for kind, table in spec.nodes.items():
        by_name[table.file] = _extended(graph, spec, kind, by_name)
    matrices = {graph.target: features_in(Path(tables))}
    rows = {}
    for kind, table in spec.nodes.items():
        source = by_name[table.file]
        rows[kind] = _read_nodes(graph, kind, table, source, matrices.get(kind))
    label, names, num_labels = _joined_labels(graph, rows[graph.target])
    # Edges name old nodes and new ones.
    ends = {}
    for kind, table in spec.nodes.items():
        saved = graph.nodes[kind]
        ends[kind] = _joined_ids(saved, rows[kind], are_values=bool(table.values_of))
    edges = {}
    for triple, edge_table in spec.edges.items():
        source = by_name[edge_table.file]
        edges[triple] = _read_edges(graph, triple, source, edge_table, ends)
    timed = [kind for kind in rows if graph.nodes[kind].time is not None]
    untimed = [kind for kind in timed if rows[kind].time is None and rows[kind].size]
    # Several times: a row may refer to rows that have no time of their own either.
    for kind in untimed * len(untimed):
        keys = [_key_edges(graph, triple, edges, rows) for triple in spec.keys_of(kind)]
        rows[kind].period = latest_parents(rows[kind].size, keys)
    nodes = {}
    for kind, saved in graph.nodes.items():
        own_label = label
        if kind != graph.target:  # labels of other types have no names, and are not used
            own_label = np.full(rows[kind].size, -1)
        nodes[kind] = _new_nodes(saved, rows[kind], own_label)
    return append(root, nodes, edges, num_labels=num_labels, label_names=names)


def _spec_of(root: Path, tables: str | Path, roles: str | Path | None) -> Spec:
    """Return the roles of the columns: declared, of the tables of the saved graph, or guessed."""
    content = storage.read(root)["tables"]
    if roles is not None or content is None:
        return read_spec(tables, roles)
    with guarded(root / storage.MANIFEST):
        return Spec.restored(content)


def _named_like(graph: TemporalGraph, spec: Spec) -> Spec:
    """Return the spec with the graph's names of types and relations, which must be the same."""
    if not graph.is_hetero and len(spec.nodes) == len(spec.edges) == 1:
        (node,) = spec.nodes.values()
        (edge,) = spec.edges.values()
        return replace(spec, nodes={graph.target: node}, edges={HOMOGENEOUS: edge})
    _refuse_others("types", spec.nodes, graph.nodes)
    _refuse_others("relations", map("-".join, spec.edges), map("-".join, graph.relations))
    return spec


def _refuse_others(what: str, names: Iterable[str], saved_names: Iterable[str]) -> None:
    """Refuse names of types or relations that are not exactly those of the graph."""
    own = sorted(names)
    saved = sorted(saved_names)
    if own != saved:
        raise InputError(
            f"the tables have the {what} {listing(own)}, but the graph has "
            f"{listing(saved)}; pass the same tables, those without new rows empty."
        )


def _extended(graph: TemporalGraph, spec: Spec, kind: str, sources: Mapping[str, Source]) -> Source:
    """Return the table of a type with row numbers, and times of a parent, where it needs them."""
    table = spec.nodes[kind]
    source = sources[table.file]
    if source is _NOTHING or table.values_of:
        return source
    parents = {}
    for triple in spec.keys_of(kind):
        parent = spec.nodes[triple[0]]
        key = spec.edges[triple].source
        parents[key] = Entity(sources[parent.file], str(parent.id))
        needs_parent = table.time is not None and table.time.startswith(f"{key}.")
        if needs_parent and not parents[key].has_ids_in(source, key, share=1.0):
            raise InputError(
                f"the times of {source.name} are those of {parent.file}, but "
                "some of its rows belong to saved ones; "
                "convert all tables again, or add a column of times to all."
            )
    # Numbers after those of the saved rows.
    first_row = graph.nodes[kind].num_nodes
    return with_needed_columns(source, table.id, table.time, parents, first_row)


def _read_nodes(
    graph: TemporalGraph,
    kind: str,
    table: NodeTable,
    source: Source,
    matrix: ndarray | None,
) -> NodeRows:
    """Read new nodes; refuse columns that the saved ones lack, and the reverse."""
    saved = graph.nodes[kind]
    if table.values_of and source is not _NOTHING:
        source = distinct_values(source, table.values_of)
    features: list[str] = []
    if saved.columns is not None:
        features = saved.columns.table.column_names
    # A guess may take a feature for a label, if there are no labels yet.
    not_roles = [role for role, column in table.roles.items() if column in features]
    nothing: dict[str, Any] = dict.fromkeys(not_roles)
    table = replace(table, **nothing)
    names = source.names
    # No new rows of this type.
    if source is _NOTHING or source.table.num_rows == 0:
        return NodeRows(table.file, 0, [])
    # Labels of new nodes may be unknown still.
    if table.label not in names:
        table = replace(table, label=None)
    used = [*features, *table.roles.values()]
    missing = [name for name in used if name not in names]
    unknown = [name for name in names if name not in used and matrix is None]
    for problem, columns in (("lacks the columns", missing), ("has unknown columns", unknown)):
        if columns:
            raise InputError(
                f"{source.name} {problem} {listing(columns)}; the features of the graph are "
                f"{listing(features or ['none'])}, and roles are declared in graph.toml."
            )
    if saved.columns is not None:
        # The types of new rows alone may differ: "1.50" is no number where a saved row is a word.
        schema = saved.columns.table.schema
        source = source.as_written(field.name for field in schema if is_text(field.type))
    rows = NodeRows.read(source, table, matrix, None)
    # Without a column of times, rows have that of the nodes that they refer to.
    roles = ["ids"]
    if table.time:
        roles.append("time")
    for role in roles:
        if (getattr(rows, role) is None) != (getattr(saved, role) is None):
            raise InputError(
                f"only one of {source.name} and the graph has a column of {role}; "
                "pass tables like those that the graph was made of."
            )
    if rows.time is not None:
        rows.time, rows.period = _in_periods(rows.time, graph.periods)
    width = None if matrix is None else matrix.shape[1]
    if saved.columns is not None:
        rows.features = _columns_like(saved.columns, rows)
    elif width != saved.num_features:
        raise InputError(
            f"the features of {kind} are a matrix of {saved.num_features} columns in the graph; "
            "put a features.npy of this width, with a row per new node, next to the tables."
        )
    return rows


def _in_periods(time: ndarray, periods: Periods | None) -> tuple[ndarray, ndarray]:
    """Return times, as dates if the periods are of dates, and the periods they fall into."""
    rule = periods or "whole"
    time, _ = numbers_as_dates(time, rule)
    choose(time, None, rule)  # refuses another kind of time
    if periods is None:
        return time, time
    return time, periods.of(time)


def _columns_like(saved: Columns, rows: NodeRows) -> Columns:
    """Return the raw columns of new nodes with the kinds and types of the saved ones."""
    assert isinstance(rows.features, Columns)
    names = saved.table.column_names
    # Columns that the saved graph ignores are ignored here too.
    rows.declared_kinds = {name: saved.kinds.get(name, "ignore") for name in names}
    raw = rows.features.table
    table = rows.set_kinds(rows.features).table
    for number, field in enumerate(saved.table.schema):
        name = field.name
        column = table.column(name)
        if is_text(field.type):
            column = texts(name, column)
        else:
            _refuse_ambiguous_commas(TableColumn(raw.column(name), name, rows.name))
        # Numbers of another type are joined as floats below.
        with suppress(pa.ArrowException):
            column = column.cast(field.type)
        table = table.set_column(number, name, column)
        both = [saved.table.select([name]), table.select([name])]
        try:
            pa.concat_tables(both, promote_options="permissive")
        except pa.ArrowException as error:
            raise InputError(
                f"column '{name}' of {rows.name} has type {column.type}, but {field.type} in "
                f"the graph ({one_line(error)}); use the same kind of values."
            ) from None
    moment = None if saved.moment is None else rows.time
    return Columns(table, saved.kinds, moment=moment)


def _refuse_ambiguous_commas(column: TableColumn) -> None:
    """Refuse text like 1,234: saved numbers do not tell whether a comma was their decimal mark."""
    if not is_text(column.type):
        return
    text = pc.utf8_trim_whitespace(column.values)
    text = text.filter(pc.match_substring_regex(text, COMMA))
    if all_match(text, THOUSANDS):
        raise InputError(
            f"{column} has {text[0].as_py()!r}, which may be a fraction or thousands; "
            "write numbers with a decimal point and without commas."
        )


def _joined_labels(
    graph: TemporalGraph,
    rows: NodeRows,
) -> tuple[ndarray, list[Any] | None, int]:
    """Return the codes of new labels, and the names and number of all classes; new ones last."""
    codes = np.full(rows.size, -1)
    if rows.label is None or not rows.label_names:
        names = None if graph.label_names is None else list(map(encode, graph.label_names))
        return codes, names, graph.num_labels
    if graph.y is None:
        raise InputError(f"{rows.name} has labels, but the graph has none; drop the column.")
    if graph.label_names is None:
        if not all(isinstance(name, int) and name >= 0 for name in rows.label_names):
            raise InputError(
                f"{rows.name} has labels such as {quoted(rows.label_names[0])}, but those of the "
                f"graph are whole numbers from 0 on; use these."
            )
        # The last entry is for −1, an unknown label.
        code_of = np.array([*rows.label_names, -1])
        num_labels = max(graph.num_labels, 1 + max(rows.label_names))
        return code_of[rows.label], None, num_labels
    # Known classes keep their codes; new ones follow.
    all_names = list(graph.label_names)
    known = {class_name(name): code for code, name in enumerate(all_names)}
    codes_of_new = []
    for name in rows.label_names:
        code = known.setdefault(class_name(name), len(all_names))
        if code == len(all_names):
            all_names.append(name)
        codes_of_new.append(code)
    code_of = np.array([*codes_of_new, -1])
    return code_of[rows.label], list(map(encode, all_names)), len(all_names)


def _joined_ids(saved: Nodes, rows: NodeRows, *, are_values: bool) -> NodeRows:
    """Return what edges name nodes by: ids of saved and new nodes; refuse an id that is known.

    Nodes that are values of a column (`are_values`) occur again; only new values become nodes.
    """
    total = saved.num_nodes + rows.size
    if saved.ids is None:
        return replace(rows, ids=None, size=total)
    if saved.ids.dtype.kind not in "iuU":
        raise InputError(
            f"the saved ids of {rows.name} are {saved.ids.dtype}, to which tables cannot refer; "
            "save the graph with whole numbers or text as ids."
        )
    values = pa.array(saved.ids)
    # 64 bits where they fit: sums and differences of narrower ids would overflow.
    numbers = whole(values)
    if numbers is not None:
        values = numbers
    old = Ids(values)
    if rows.ids is None:  # there are no new ones
        return replace(rows, ids=old, size=total)
    if rows.ids.is_text and not old.is_text:
        raise InputError(
            f"the ids of {rows.name} are text, but those of the graph are whole numbers; "
            "use the same ids."
        )
    rows.ids = Ids(rows.ids.values.cast(old.values.type))
    # Rows are only appended: a saved node never changes.
    known = old.find(rows.ids.values) >= 0
    if are_values:
        rows.ids = Ids(rows.ids.values.filter(pa.array(~known)))
        rows.size = len(rows.ids.values)
        total = saved.num_nodes + rows.size
    elif known.any():
        name = rows.ids.values[int(known.argmax())].as_py()
        raise InputError(
            f"{known.sum():,} ids of {rows.name} are in the graph already, such as {name!r}; "
            "pass new nodes only."
        )
    # Saved nodes first, so that their positions do not change.
    all_ids = pa.concat_arrays([old.values, rows.ids.values])
    return replace(rows, ids=Ids(all_ids), size=total)


def _read_edges(
    graph: TemporalGraph,
    triple: Triple,
    source: Source,
    table: EdgeTable,
    ends: Mapping[str, NodeRows],
) -> dict[str, ndarray]:
    """Return the arrays of new edges; refuse others than the relation has."""
    saved = graph.relations[triple]
    if source is _NOTHING or source.table.num_rows == 0:
        return {}
    for role, column in table.roles.items():
        if column not in source.names:
            raise InputError(
                f"{source.name} has no column {column!r}, the {role} of an edge; add it."
            )
    for kind in (triple[0], triple[2]):
        if graph.nodes[kind].ids is None:
            raise InputError(
                f"{source.name} numbers rows of type {kind!r}, which may be saved or new ones; "
                "give the saved tables and the new ones a column of ids, and convert them again."
            )
    own_ends = (ends[triple[0]], ends[triple[2]])
    edges = EdgeRows.read(source, table, own_ends, None)
    arrays = {"edge_index": edges.index, "weight": edges.weight}
    if edges.time is not None:
        arrays["time"] = _in_periods(edges.time, graph.periods)[1]
    for name in ("weight", "time"):
        if (arrays.get(name) is None) != (getattr(saved, name) is None):
            raise InputError(
                f"{source.name} and the saved edges {'-'.join(triple)} do not both have a {name}; "
                f"pass edges like those of the graph."
            )
    # New positions have to fit into the type of the saved ones.
    largest = np.iinfo(saved.edge_index.dtype).max
    if max(end.size for end in own_ends) > largest:
        raise InputError(f"the graph stores up to {largest:,} nodes; save all tables anew.")
    return {name: values for name, values in arrays.items() if values is not None}


def _key_edges(
    graph: TemporalGraph,
    triple: Triple,
    edges: Mapping[Triple, Mapping[str, ndarray]],
    rows: Mapping[str, NodeRows],
) -> tuple[ndarray, ndarray | None]:
    """Return the edges from parents to new rows [2, E], and the periods of all parents."""
    source, _, target = triple
    parent, row = edges[triple].get("edge_index", np.empty((2, 0), np.int64))
    # New rows come after the saved ones.
    index = np.stack([parent, row - graph.nodes[target].num_nodes])
    period = graph.nodes[source].time
    parents = rows[source]
    if period is None or not parents.size:
        return index, period
    # The times of new parents may not be known yet.
    if parents.period is None:
        return index, None
    return index, np.concatenate([period, parents.period])


def _new_nodes(saved: Nodes, rows: NodeRows, label: ndarray) -> NewNodes:
    """Return the arrays of new nodes, one for each that the saved nodes have."""
    if rows.size == 0:
        return NewNodes(0, {})
    arrays: dict[str, Any] = {"y": label, "time": rows.period}
    if rows.time is not None:
        arrays["timestamp"] = exact_times(rows.time)
    if rows.ids is not None:
        arrays["ids"] = rows.ids.names
    columns = rows.features
    if not isinstance(columns, Columns):
        arrays["x"] = columns
        columns = None
    # Only arrays that the saved nodes have; all their rows must be there.
    wanted = {name: values for name, values in arrays.items() if getattr(saved, name) is not None}
    return NewNodes(rows.size, wanted, columns)
