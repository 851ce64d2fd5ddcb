"""Graphs from tables: ids are joined, labels coded, times put into periods, features kept raw until they are encoded.

Everything here is done column by column in Arrow and numpy. Given a `spill` directory, features and edges go there
batch by batch, so that memory holds ids, times and labels only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc

from impact_gnn import _files, _native
from impact_gnn.checks import InputError, distinct, listing, shown
from impact_gnn.data.sources import Source, from_frame, give_back, usual_text
from impact_gnn.data.spec import EdgeTable, NodeTable, Spec, guess_edges, guess_nodes
from impact_gnn.encoding import Columns, guess_kind
from impact_gnn.encoding.kinds import is_number, is_text, texts
from impact_gnn.encoding.moments import from_numbers, moments, unit_of
from impact_gnn.graph import TemporalGraph, Triple
from impact_gnn.graph.csr import index_type
from impact_gnn.graph.periods import UNITS, Periods, choose

TOGETHER = 1 << 22  # edges that are joined with ids at a time when they are spilled
AT_ONCE = 1 << 25  # edges whose ids are looked at together: text is copied, and the ids are hashed anew for each
SOME = 50  # distinct numbers from which they may be seconds since 1970
EXACT = 1 << 53  # whole numbers that a float can tell apart
MOST_CLASSES = 1000  # different labels, beyond which a label that is different nearly everywhere is refused

Period = str | int | Periods


def from_tables(
    nodes: Any,
    edges: Any,
    *,
    target: str | None = None,
    id: str | Mapping[str, str] | None = None,
    time: str | Mapping[str, str] | None = None,
    label: str | None = None,
    columns: Mapping[str, Any] | None = None,
    edge_source: Any = None,
    edge_target: Any = None,
    edge_weight: Any = None,
    edge_time: Any = None,
    period: Period = "auto",
    cutoff: Any = None,
    dangling: str = "refuse",
    quiet: bool = False,
) -> TemporalGraph:
    """A graph from data frames: pandas, polars, pyarrow, DuckDB relations, Ibis, or mappings of columns.

    What a column is for is guessed from its name where it is not said, and printed; "" says that there is none. Columns
    without a role are features: numbers, categories, text, dates and lists of numbers, encoded by what is known before
    a cutoff.

    Args:
        nodes: A table with a row per node; for several types a mapping from their names to tables.
        edges: A table with a row per edge; for several types a mapping {(source type, name, target type): table}.
        target: The type to classify; by default the one with a label.
        id: Column of the nodes' ids; several types take a mapping by type here and below.
        time: Column of the nodes' times: dates, timestamps, ISO text, seconds since 1970, years, any numbers.
        label: Column of the labels of the type to classify; missing ones are unknown.
        columns: What feature columns are, if not what is guessed: "number", "category", "text", "date", "vector",
            "ignore". With several types a mapping by type.
        edge_source: Column of an edge's source; several relations take a mapping by relation here and below.
        edge_target: Column of its target.
        edge_weight: Column of its weight.
        edge_time: Column of its time.
        period: "auto", "year", "quarter", "month", "week", "day", "hour", a number of periods with equal counts,
            "whole" for whole numbers as they are, or the `periods` of another graph.
        cutoff: Where labels end, so that periods can be chosen with a border there.
        dangling: "refuse" or "drop" edges that name a node which is not there.
        quiet: Do not print what was guessed.

    Example:
        >>> papers = {"id": ["a", "b", "c"], "published": ["2019-05-02", "2020-07-01", "2021-03-09"],
        ...           "label": ["x", "y", None], "pages": [8, None, 12]}
        >>> g = from_tables(papers, {"source": ["b", "c"], "target": ["a", "b"]}, period="year", quiet=True)
        >>> g, g.ids.tolist(), g.masked("2021").y.tolist()
        (TemporalGraph(3 nodes, 2 edges, 2 features, 2 classes, times 2019..2021), ['a', 'b', 'c'], [0, 1, -1])
    """
    several = isinstance(nodes, Mapping) and any(map(_is_table, nodes.values()))
    given_nodes = {f"nodes[{kind!r}]": (kind, part) for kind, part in nodes.items()} if several else {}
    given_nodes = given_nodes or {"nodes": ("node", nodes)}
    frames = {kind: from_frame(name, part, indexed=True) for name, (kind, part) in given_nodes.items()}
    if target is not None and target not in frames:
        raise InputError(f"target={shown(target)} is not a node type; choose one of {listing(list(frames))}.")
    if not isinstance(edges, Mapping) or not all(isinstance(key, tuple) for key in edges):
        edges = {(next(iter(frames)), "to", next(iter(frames))): edges}
    for triple in edges:
        if len(triple) != 3 or triple[0] not in frames or triple[2] not in frames:
            wanted = f"write (source type, name, target type) with types among {listing(list(frames))}"
            raise InputError(f"{shown(triple)} does not name a relation; {wanted}.")
    links = {t: from_frame("-".join(map(str, t)) if len(edges) > 1 else "edges", edges[t]) for t in edges}

    def role(given: Any, key: Any, table: Source) -> Any:
        """What was named, by type or relation, or for every table that has such a column."""
        if isinstance(given, Mapping):
            return given.get(key)
        if not several or not given or given in table.head.column_names:
            return given
        group = frames if key in frames else links
        if not any(given in other.head.column_names for other in group.values()):
            raise InputError(f"no table has a column {shown(given)}; name one that is there.")
        return None

    found = {}
    for kind, table in frames.items():
        chosen = (columns or {}).get(kind) if several else columns
        roles = {"id": role(id, kind, table), "time": role(time, kind, table), "columns": chosen}
        if target in (None, kind):
            roles["label"] = role(label, kind, table)
        found[kind] = guess_nodes(kind, table, roles, labelled=target in (None, kind), alone=len(frames) == 1)
    relations = {}
    for triple, table in links.items():
        given = {"source": edge_source, "target": edge_target, "weight": edge_weight, "time": edge_time}
        roles = {name: role(value, triple, table) for name, value in given.items()}
        relations[triple] = guess_edges(table, roles | {"dangling": dangling}, (triple[0], triple[2]))
    labelled = [kind for kind, node in found.items() if node.label and node.time] or list(found)
    if target is None and len(labelled) > 1:
        raise InputError(f"{listing(labelled)} could all be classified; choose with target=...")
    spec = Spec(found, relations, target or labelled[0])
    reading = build(spec, [*frames.values(), *links.values()], period=period, cutoff=cutoff)
    if not quiet:
        print(reading)
    return reading.graph


def _is_table(value: Any) -> bool:
    return isinstance(value, Mapping) or hasattr(value, "columns")


@dataclass(frozen=True)
class Reading:
    """A graph, and in words what every column was taken for; print it."""

    graph: TemporalGraph
    notes: list[str]

    def __str__(self) -> str:
        return "\n".join(self.notes)


def build(
    spec: Spec, sources: list[Source], *, period: Period | None = None, cutoff: Any = None,
    features: np.ndarray | None = None, spill: Path | None = None,
) -> Reading:  # fmt: skip
    """The graph that a spec describes; `features` replace the feature columns of the type to classify.

    With `spill`, a directory, feature columns and edges are written there batch by batch and mapped.
    """
    tables = {source.name: source for source in sources}
    notes: list[str] = []
    nodes: dict[str, _Nodes] = {}
    for kind, node in spec.nodes.items():
        given = features if kind == spec.target else None
        nodes[kind] = _Nodes.read(tables[node.file], node, given, notes, spill and spill / f"nodes-{len(nodes)}.arrow")
    if nodes[spec.target].time is None:
        raise InputError(
            f"{spec.nodes[spec.target].file} has no column of times; name it with time=... or in graph.toml."
        )
    links: dict[Triple, _Edges] = {}
    for triple, edge in spec.edges.items():
        ends = nodes[triple[0]], nodes[triple[2]]
        links[triple] = _Edges.read(tables[edge.file], edge, ends, notes, spill and spill / f"edges-{len(links)}")
    rule = spec.period if period is None else period
    periods = _put_into_periods(spec, nodes, links, rule, cutoff, notes)
    parts = {kind: part.arrays() for kind, part in nodes.items()}
    common: dict[str, Any] = {"label_names": nodes[spec.target].label_names, "periods": periods}
    if len(nodes) == 1 and len(links) == 1:
        (part,), (link,) = parts.values(), links.values()
        del part["num_nodes"]
        return Reading(TemporalGraph(**part, **link.arrays("edge_"), **common), notes)
    relations = {triple: link.arrays() for triple, link in links.items()}
    return Reading(TemporalGraph.hetero(nodes=parts, edges=relations, target=spec.target, **common), notes)


# -- nodes -------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class _Nodes:
    """A node table as it is read: ids to join by, times and labels as they came, features as raw columns."""

    name: str
    size: int
    ids: Ids | None
    label: np.ndarray | None
    label_names: list[Any] | None
    time: np.ndarray | None
    features: np.ndarray | Columns | None
    period: np.ndarray | None = None

    @classmethod
    def read(
        cls, source: Source, spec: NodeTable, features: np.ndarray | None, notes: list[str], spill: Path | None
    ) -> _Nodes:
        roles = [column for column in (spec.id, spec.time, spec.label) if column]
        raw = source.table() if spill is None else _spilled(source, roles, spill)
        table = usual_text(raw)
        if table.num_rows == 0:
            raise InputError(f"{source.name} has no rows; give at least one node.")
        columns = {role: table.column(column) for role in ("id", "time", "label") if (column := getattr(spec, role))}
        said = [f"{role} from '{getattr(spec, role)}'" for role in columns]
        if spec.id is None:
            said.insert(0, f"rows numbered 0 to {table.num_rows - 1} as ids")
        notes.append(f"{source.name}: {', '.join(said)}")
        ids = None if spec.id is None else Ids.of(columns["id"], spec.id, source.name)
        label, names = _labels(columns["label"], spec.label, source.name) if spec.label else (None, None)
        time = times(columns["time"], spec.time, source.name) if spec.time else None
        zone = getattr(columns["time"].type, "tz", None) if spec.time else None
        if zone not in (None, "UTC"):
            mend = "if local days matter, give local times without a zone"
            notes.append(f"  {spec.time}: came in {zone}, is taken in UTC; {mend}")
        if features is None:
            kinds, others = {}, [name for name in table.column_names if name not in roles]
            for name in others:
                kind, why = spec.columns.get(name), "as said"
                if kind is None and pa.types.is_dictionary(raw.schema.field(name).type):
                    kind = "category"
                elif kind is None:
                    kind, why = guess_kind(name, table.column(name))
                notes.append(f"  {name}: " + (f"left out, {why}" if kind == "ignore" else kind))
                if kind != "ignore":
                    kinds[name] = kind
            if others:  # what is left out here may be known to a model
                moment = time if time is not None and time.dtype.kind == "M" else None
                features = Columns(table.select(others), kinds, moment, mapped=spill is not None)  # type: ignore[assignment]
        return cls(source.name, table.num_rows, ids, label, names, time, features)

    def arrays(self) -> dict[str, Any]:
        ids = self.ids.names if self.ids is not None else None
        return {"x": self.features, "y": self.label, "time": self.period, "ids": ids, "num_nodes": self.size}


def _spilled(source: Source, roles: list[str], path: Path) -> pa.Table:
    """The table with its features in a file, mapped; ids, times and labels in memory."""
    path.parent.mkdir(parents=True, exist_ok=True)
    kept: list[pa.RecordBatch] = []
    writer, schema = None, pa.schema([])
    with pa.OSFile(str(path), "wb") as sink:
        for batch in source.batches():
            if writer is None:
                schema = pa.schema([column for column in batch.schema if column.name not in roles])
                writer = pa.ipc.new_file(sink, schema)
            kept.append(batch.select(roles))
            writer.write_batch(batch.select(schema.names))
        if writer is None:
            raise InputError(f"{source.name} has no rows; give at least one node.")
        writer.close()
    table = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
    for name, column in zip(roles, pa.Table.from_batches(kept).columns, strict=True):
        table = table.append_column(name, column)
    return table


@dataclass(frozen=True, eq=False)
class Ids:
    """The ids of nodes: found again wherever an edge names one."""

    values: pa.Array
    where: str

    @classmethod
    def of(cls, column: pa.ChunkedArray, name: str, table: str) -> Ids:
        _no_gaps(column, table, name, "give every node an id")
        _exact(column, name, table)
        kind = column.type
        if pa.types.is_dictionary(kind):
            column, kind = column.cast(kind.value_type), kind.value_type
        values = (column.cast(pa.int64()) if _whole(column) else texts(name, column)) if kind != pa.int64() else column
        values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
        values = values if isinstance(values, pa.Array) else pa.concat_arrays(values.chunks)
        made = cls(values, table)
        if not made.consecutive and pc.count_distinct(values).as_py() != len(values):
            distinct(f"column '{name}' of {table}", made.names)
        return made

    @property
    def is_text(self) -> bool:
        return is_text(self.values.type)

    @property
    def names(self) -> np.ndarray:
        """The ids as numpy; text as fixed-width characters, never objects."""
        return characters(self.values) if self.is_text else np.asarray(self.values)

    @cached_property
    def _positions(self) -> np.ndarray:
        """For every number from the smallest id to the largest, where it is."""
        known = np.asarray(self.values)
        out = np.full(int(known.max()) - int(known.min()) + 1, -1, index_type(len(known)))
        out[known - known.min()] = np.arange(len(known), dtype=out.dtype)
        return out

    @cached_property
    def consecutive(self) -> bool:
        """Whether they count up from the first one."""
        if self.is_text:
            return False
        numbers = np.asarray(self.values)
        return bool(numbers[-1] - numbers[0] == len(numbers) - 1) and bool((np.diff(numbers) == 1).all())

    def find(self, column: pa.Array) -> np.ndarray:
        """Positions of the nodes that a column names, −1 for those that are not there."""
        size = len(self.values)
        kind = index_type(size)
        if self.is_text:
            position = pc.index_in(column, value_set=self.values)
            return pc.fill_null(position, -1).to_numpy(zero_copy_only=False).astype(kind, copy=False)
        wanted, known = np.asarray(column), np.asarray(self.values)
        low, span = int(known.min()), int(known.max()) - int(known.min()) + 1
        if span <= 8 * size + 1024:  # a table of all numbers in between is quicker than searching
            inside = not len(wanted) or (wanted.min() >= low and wanted.max() < low + span)
            outside = None if inside else (wanted < low) | (wanted >= low + span)
            place = wanted if low == 0 else wanted - low
            place = place if outside is None else np.where(outside, 0, place)
            found = place.astype(kind) if self.consecutive else self._positions[place]
            if outside is not None:
                found[outside] = -1
            return found
        order = np.argsort(known, kind="stable")
        place = np.minimum(np.searchsorted(known, wanted, sorter=order), size - 1)
        found = order[place].astype(kind)
        found[known[found] != wanted] = -1
        return found


def characters(column: pa.Array) -> np.ndarray:
    """Text as numpy's fixed-width characters, without a Python object for any of it."""
    lengths = np.asarray(pc.utf8_length(column))
    width = max(int(lengths.max(initial=0)), 1)
    out = np.zeros((len(column), width), np.uint32)
    for start in range(0, len(column), 1 << 18):
        part = column.slice(start, 1 << 18).cast(pa.large_binary())
        points = np.frombuffer(_joined(part).decode().encode("utf-32-le"), np.uint32)
        # Characters of all rows follow each other, as the places do that are true here.
        out[start : start + len(part)][np.arange(width) < lengths[start : start + len(part), None]] = points
    return out.view(f"U{width}")[:, 0]


def _joined(part: pa.Array) -> bytes:
    """The bytes of all values, one after the other."""
    _, offsets, data = part.buffers()
    ends = np.frombuffer(offsets, np.int64)[part.offset : part.offset + len(part) + 1]
    return b"" if data is None else data[int(ends[0]) : int(ends[-1])].to_pybytes()


def _whole(column: pa.ChunkedArray) -> bool:
    """Whether a column is whole numbers, also such that became floats because of a gap elsewhere."""
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        return False
    try:
        column.cast(pa.int64())
    except pa.ArrowInvalid:
        return False
    return True


def _exact(column: pa.ChunkedArray, name: str, file: str) -> None:
    """Refuses ids that have become floats and lost digits."""
    if pa.types.is_floating(column.type) and (pc.max(pc.abs(column.cast(pa.float64()))).as_py() or 0) >= EXACT:
        mend = "read the column as text or whole numbers"
        raise InputError(f"column '{name}' of {file} holds {column.type} too large to tell ids apart; {mend}.")


def _no_gaps(column: pa.Array | pa.ChunkedArray, file: str, name: str, mend: str) -> None:
    missing = pc.is_null(column, nan_is_null=True)
    count = pc.sum(missing).as_py() or 0
    if count:
        row = pc.index(missing, True).as_py() + 1
        raise InputError(f"column '{name}' of {file} is empty in {count} rows, first in row {row}; {mend}.")


def _labels(column: pa.ChunkedArray, name: str, file: str) -> tuple[np.ndarray, list[Any]]:
    """Labels as 0, 1, 2, ... with −1 for unknown, and the user's own names for them in sorted order."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    if column.null_count == len(column):
        return np.full(len(column), -1), []
    if not (is_number(kind) or is_text(kind) or pa.types.is_boolean(kind)):
        raise InputError(f"column '{name}' of {file} holds {kind}; give labels as numbers or text.")
    if pa.types.is_decimal(kind):
        column = column.cast(pa.float64())
    if pa.types.is_floating(column.type):  # whole numbers become floats where some are missing
        column = column.cast(pa.float64())
        known = pc.if_else(pc.is_nan(column), None, column)
        column = known.cast(pa.int64()) if _whole(known) else known
    coded = column.combine_chunks().dictionary_encode()
    coded = coded if isinstance(coded, pa.Array) else pa.concat_arrays(coded.chunks)
    values = coded.dictionary
    unknown = np.asarray(pc.is_null(values, nan_is_null=True))
    if pa.types.is_signed_integer(values.type):  # −1 is the customary mark for unknown
        unknown |= np.asarray(pc.equal(values, -1))
    seen = values.filter(pa.array(~unknown))
    labelled = len(column) - column.null_count
    if len(seen) > MOST_CLASSES and len(seen) > labelled / 2:
        such = f"{len(seen):,} different values in {labelled:,} labelled rows"
        raise InputError(f"column '{name}' of {file} has {such}; a label names a class, so name another column.")
    order = pc.sort_indices(seen)
    rank = np.full(len(values) + 1, -1)  # the last place is that of missing labels
    rank[np.flatnonzero(~unknown)[np.asarray(order)]] = np.arange(len(seen))
    code = np.asarray(pc.fill_null(coded.indices, len(values)))
    return rank[code], seen.take(order).to_pylist()


# -- edges -------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class _Edges:
    """An edge table as it is read: positions of both ends, weights and times."""

    name: str
    index: np.ndarray
    weight: np.ndarray | None
    time: np.ndarray | None
    period: np.ndarray | None = None

    @classmethod
    def read(
        cls, source: Source, spec: EdgeTable, ends: tuple[_Nodes, _Nodes], notes: list[str], spill: Path | None
    ) -> _Edges:
        said = [
            f"{role} from '{getattr(spec, role)}'"
            for role in ("source", "target", "weight", "time")
            if getattr(spec, role)
        ]
        notes.append(f"{source.name}: {', '.join(said)}")
        used = (spec.source, spec.target, spec.weight, spec.time)
        if unused := [name for name in source.head.column_names if name not in used]:
            notes.append(f"  {', '.join(unused)}: left out, edges have no features")
        if spill is None:
            made, dropped = cls._joined(source.table(), source.name, spec, ends)
        else:
            made, dropped = cls._spilled(source, spec, ends, spill)
        if dropped:
            notes.append(f"  {dropped:,} edges dropped that name a node which is not there")
        return made

    @classmethod
    def _joined(
        cls, table: pa.Table, file: str, spec: EdgeTable, ends: tuple[_Nodes, _Nodes], first: int = 0
    ) -> tuple[_Edges, int]:
        rows = table.num_rows
        kind = np.result_type(*(index_type(end.size) for end in ends))
        index, absent = np.empty((2, rows), kind), np.zeros(rows, bool)
        named = ("source", spec.source), ("target", spec.target)
        sides = [(table.column(column), column, file, ends[k], index[k]) for k, (_, column) in enumerate(named)]
        _native.run(_put_positions, sides, None)
        for side, (role, column) in enumerate(named):
            missing = index[side] < 0
            if missing.any() and spec.dangling == "refuse":
                row, nodes = int(missing.argmax()), ends[side].name
                value = table.column(column)[row].as_py()
                raise InputError(
                    f"{file} names {int(missing.sum())} times a {role} that is not in {nodes}, first {shown(value)} in "
                    f"row {first + row + 1}; add the node, remove the edge, or drop such edges with dangling = 'drop'."
                )
            absent |= missing
        weight = _number_column(table.column(spec.weight), spec.weight, file) if spec.weight else None
        time = times(table.column(spec.time), spec.time, file) if spec.time else None
        if absent.any():
            keep = np.flatnonzero(~absent)
            index = index[:, keep]
            weight, time = (None if values is None else values[keep] for values in (weight, time))
        return cls(file, index, weight, time), int(absent.sum())

    @classmethod
    def _spilled(cls, source: Source, spec: EdgeTable, ends: tuple[_Nodes, _Nodes], folder: Path) -> tuple[_Edges, int]:
        """The same in pieces, each joined by itself, in files."""
        pieces: dict[str, list[np.ndarray]] = {"index": [], "weight": [], "time": []}
        columns = [column for column in (spec.source, spec.target, spec.weight, spec.time) if column]
        dropped = first = 0
        held: list[pa.RecordBatch] = []

        def flush() -> None:
            nonlocal dropped, first
            table = pa.Table.from_batches(held, source.head.select(columns).schema if not held else None)
            part, lost = cls._joined(table, source.name, spec, ends, first)
            dropped, first = dropped + lost, first + table.num_rows
            held.clear()
            for name, kept in pieces.items():
                if (values := getattr(part, name)) is not None:
                    path = folder / f"{name}-{len(kept)}.npy"
                    _files.save_array(path, values)
                    kept.append(_files.open_array(path))
            give_back()

        for batch in source.batches():
            held.append(batch.select(columns))
            if sum(one.num_rows for one in held) >= TOGETHER:
                flush()
        if held or not pieces["index"]:
            flush()
        joined = {name: _concatenated(kept, folder / f"{name}.npy") for name, kept in pieces.items()}
        return cls(source.name, joined["index"], joined["weight"], joined["time"]), dropped  # type: ignore[arg-type]

    def arrays(self, prefix: str = "") -> dict[str, Any]:
        given = {f"{prefix}weight": self.weight, f"{prefix}time": self.period}
        return {"edge_index": self.index, **given}


def _concatenated(pieces: list[np.ndarray], path: Path) -> np.ndarray | None:
    """Arrays one after the other along their last axis, in a file."""
    if not pieces:
        return None
    shape = (*pieces[0].shape[:-1], sum(piece.shape[-1] for piece in pieces))
    if shape[-1] == 0:
        return np.empty(shape, pieces[0].dtype)
    out = _files.create_array(path, pieces[0].dtype, shape)
    begin = 0
    for piece in pieces:
        out[..., begin : begin + piece.shape[-1]] = piece
        begin += piece.shape[-1]
        _files.remove(Path(piece.filename))  # type: ignore[attr-defined]
    out.flush()
    return _files.open_array(path)


def _put_positions(column: pa.ChunkedArray, name: str, file: str, nodes: _Nodes, out: np.ndarray) -> None:
    """Writes the positions of the nodes that a column of edge ends names, −1 where they are not there."""
    _no_gaps(column, file, name, "name a node")
    if pa.types.is_dictionary(column.type):
        column = usual_text(pa.table({name: column})).column(0)
    _exact(column, name, file)
    if nodes.ids is not None and nodes.ids.is_text and pa.types.is_floating(column.type):
        same = f"the ids of {nodes.name} are text; write ids the same way in both tables"
        raise InputError(f"column '{name}' of {file} holds {column.type}, {same}.")
    for start in range(0, len(column), AT_ONCE):
        part = column.slice(start, AT_ONCE)
        if nodes.ids is None or not nodes.ids.is_text:
            try:
                part = part.cast(pa.int64())
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                known = f"the ids of {nodes.name} are whole numbers; write ids the same way in both tables"
                if nodes.ids is None:
                    known = (
                        f"but no column of {nodes.name} was taken for ids; name it with id=... (reset_index() first, "
                    )
                    known += "if it is the index of a frame)"
                raise InputError(f"column '{name}' of {file} holds {column.type}, {known}.") from None
        else:
            part = texts(name, part)
        part = part.combine_chunks() if isinstance(part, pa.ChunkedArray) else part
        found = np.asarray(part) if nodes.ids is None else nodes.ids.find(part)
        if nodes.ids is None:
            found = np.where((found >= 0) & (found < nodes.size), found, -1)
        out[start : start + len(found)] = found


def _number_column(column: pa.ChunkedArray, name: str, file: str) -> np.ndarray:
    _no_gaps(column, file, name, "fill it in")
    if not len(column):
        return np.empty(0)
    if not is_number(column.type):
        example = column[0].as_py() if len(column) else ""
        raise InputError(f"column '{name}' of {file} holds {column.type} such as {example!r}; give numbers.")
    out = column.to_numpy() if pa.types.is_integer(column.type) else column.cast(pa.float64()).to_numpy()
    if out.dtype.kind == "f" and not np.isfinite(out).all():
        row = int((~np.isfinite(out)).argmax()) + 1
        raise InputError(f"column '{name}' of {file} is infinite in row {row}; give a number.")
    return out


# -- time --------------------------------------------------------------------------------------------------


def times(column: pa.ChunkedArray, name: str, file: str) -> np.ndarray:
    """Times as they came: datetime64[us] of dates and text, otherwise numbers."""
    _no_gaps(column, file, name, "fill it in, or leave those rows out")
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if is_number(column.type) or not len(column):
        return _number_column(column, name, file)
    found = moments(column)
    if found is None and is_text(column.type):  # numbers written as text
        try:
            return pc.cast(column, pa.int64()).to_numpy()
        except pa.ArrowInvalid:
            pass
    if found is None:
        text = "" if not is_text(column.type) else _first_odd(column)
        raise InputError(
            f"column '{name}' of {file} holds {column.type}{text}; give dates (2021-07-01), timestamps or numbers."
        )
    return found


def _first_odd(column: pa.ChunkedArray) -> str:
    """The first text that is no date, for a sentence."""
    for row, value in enumerate(column.slice(0, 10_000).to_pylist()):
        if moments(pa.array([value])) is None:
            return f" such as {value[:40]!r} in row {row + 1}"
    return ""


def _put_into_periods(
    spec: Spec, nodes: dict[str, _Nodes], links: dict[Triple, _Edges], rule: Period, cutoff: Any, notes: list[str]
) -> Periods | None:
    """Chooses the periods by the type to classify, and puts all times into them."""
    main = nodes[spec.target]
    everything: list[_Nodes | _Edges] = [*nodes.values(), *links.values()]
    assert main.time is not None
    dated, unit = _dated(main.time, rule)
    if unit is not None:
        notes.append(f"time: whole numbers read as {unit}" + (" since 1970" if unit[0] != "Y" else ""))
    periods, sentence = choose(dated, None if main.label is None else main.label >= 0, rule, cutoff)
    notes.append(f"time: {sentence}")
    for part in everything:
        if part.time is None:
            continue
        values = dated if part is main else _like(part.time, unit, dated, part.name)
        if isinstance(part, _Nodes) and isinstance(part.features, Columns) and values.dtype.kind == "M":
            part.features = replace(part.features, moment=values)
        part.period = values if periods is None else periods.of(values)
    return periods


def _like(values: np.ndarray, unit: str | None, main: np.ndarray, where: str) -> np.ndarray:
    """Times of another table as those of the nodes to classify are, refused where they are of another kind."""
    if not len(values):
        return main[:0]
    own = None if values.dtype.kind == "M" else unit_of(values)
    if own is not None and own == unit:
        values = from_numbers(values, own)
    elif own is not None and main.dtype.kind != "M":
        raise InputError(f"the times of {where} look like {own}, those of the nodes are numbers such as {main[0]:g}.")
    if (values.dtype.kind == "M") != (main.dtype.kind == "M") or (values.dtype.kind == "M" and np.isnat(values).any()):
        kind = f"numbers that count {unit}" if unit else "dates" if main.dtype.kind == "M" else "numbers"
        raise InputError(
            f"the times of {where} are not all of the kind that the nodes have ({kind}); write them alike."
        )
    return values


def _dated(values: np.ndarray, rule: Period) -> tuple[np.ndarray, str | None]:
    """Numbers as dates where they count from 1970 or write one out, and which way."""
    if values.dtype.kind == "M" or rule == "whole" or (isinstance(rule, Periods) and not rule.dated):
        return values, None
    wrong = ~np.isfinite(values) if values.dtype.kind == "f" else np.zeros(1, bool)
    unit = None if wrong.any() or not len(values) else unit_of(values)
    asked = rule in UNITS or isinstance(rule, Periods)
    if unit is None or (unit[0] != "Y" and not asked and len(np.unique(values)) <= SOME):
        return values, None
    found = from_numbers(values, unit)
    return (values, None) if np.isnat(found).any() else (found, unit)
