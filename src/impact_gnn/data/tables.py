"""Graphs from tables: ids are joined, labels coded, times put into periods, features kept raw until they are encoded.

Everything here is done column by column in Arrow and numpy. Given a `spill` directory, features and
edges go there batch by batch, so that memory holds ids, times and labels only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc

from impact_gnn import _files, _native, checks
from impact_gnn.checks import InputError, listing, quoted
from impact_gnn.data.ids import Ids, put_positions
from impact_gnn.data.sources import ROWS, Source, from_frame, give_back, usual_text
from impact_gnn.data.spec import EdgeTable, NodeTable, Spec, guess_edges, guess_nodes
from impact_gnn.data.values import (
    Period,
    dated_by,
    label_notes,
    labels,
    like,
    number_column,
    times,
)
from impact_gnn.encoding import Columns
from impact_gnn.encoding.kinds import is_text, looks_like_numbers, parsed_numbers
from impact_gnn.graph import HOMOGENEOUS, TemporalGraph, Triple
from impact_gnn.graph.csr import index_type
from impact_gnn.graph.periods import Periods, choose

TOGETHER = 1 << 22  # edges that are joined with ids at a time when they are spilled


def from_tables(
    nodes: Any,
    edges: Any,
    *,
    target: str | None = None,
    id: str | Mapping[str, str] | None = None,
    time: str | Mapping[str, str] | None = None,
    label: str | None = None,
    unknown_label: Any = None,
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

    What a column is for is guessed from its name where it is not said, and printed; "" says that
    there is none. Columns without a role are features: numbers, categories, text, dates and lists
    of numbers, encoded by what is known before a cutoff. What they are is guessed from rows before it.

    Nodes come in the order of their ids (`graph.ids`), columns in that of their names, edges by
    target and source: the order of a table changes nothing. Rows without ids stay in their order.

    Args:
        nodes: A table with a row per node; for several types a mapping from their names to tables.
        edges: A table with a row per edge; for several types a mapping {(source type, name, target
            type): table}.
        target: The type to classify; by default the one with a label.
        id: Column of the nodes' ids; several types take a mapping by type here and below.
        time: Column of the nodes' times: dates, timestamps, ISO text, seconds since 1970, years,
            any numbers.
        label: Column of the labels of the type to classify; missing and blank ones are unknown.
        unknown_label: A label, or a list of labels, that means that the class is not known. −1 is a
            class like any other, unless it is named here.
        columns: What feature columns are, if not what is guessed: "number", "category", "text",
            "date", "vector", "ignore". With several types a mapping by type.
        edge_source: Column of an edge's source; several relations take a mapping by relation here
            and below.
        edge_target: Column of its target.
        edge_weight: Column of its weight.
        edge_time: Column of its time.
        period: "auto", "year", "quarter", "month", "week", "day", "hour", a number of periods with
            equal counts, "whole" for whole numbers as they are, or the `periods` of another graph.
        cutoff: Where labels end, so that periods can be chosen with a border there.
        dangling: "refuse" or "drop" edges that name a node which is not there.
        quiet: Do not print what was guessed.

    Examples:
        >>> papers = {"id": ["a", "b", "c"], "published": ["2019-05-02", "2020-07-01", "2021-03-09"],
        ...           "label": ["x", "y", None], "pages": [8, None, 12]}
        >>> g = from_tables(papers, {"source": ["b", "c"], "target": ["a", "b"]}, period="year", quiet=True)
        >>> g, g.ids.tolist(), g.masked("2021").y.tolist()
        (TemporalGraph(3 nodes, 2 edges, 2 features, 2 classes, times 2019..2021), ['a', 'b', 'c'],
        [0, 1, -1])
    """
    several = isinstance(nodes, Mapping) and any(
        isinstance(part, Mapping) or hasattr(part, "columns") for part in nodes.values()
    )
    given_nodes = (
        {f"nodes[{kind!r}]": (kind, part) for kind, part in nodes.items()} if several else {}
    )
    given_nodes = given_nodes or {"nodes": ("node", nodes)}
    frames = {
        kind: from_frame(name, part, indexed=True) for name, (kind, part) in given_nodes.items()
    }
    if target is not None and target not in frames:
        raise InputError(
            f"target={quoted(target)} is not a node type; choose one of {listing(list(frames))}."
        )
    if not isinstance(edges, Mapping) or not all(isinstance(key, tuple) for key in edges):
        edges = {(next(iter(frames)), "to", next(iter(frames))): edges}
    for triple in edges:
        if len(triple) != 3 or triple[0] not in frames or triple[2] not in frames:
            wanted = (
                f"write (source type, name, target type) with types among {listing(list(frames))}"
            )
            raise InputError(f"{quoted(triple)} does not name a relation; {wanted}.")
    links = {
        t: from_frame("-".join(map(str, t)) if len(edges) > 1 else "edges", edges[t]) for t in edges
    }

    def role(given: Any, key: Any, table: Source) -> Any:
        """What was named, by type or relation, or for every table that has such a column."""
        if isinstance(given, Mapping):
            return given.get(key)
        if not several or not given or given in table.head.column_names:
            return given
        group = frames if key in frames else links
        if not any(given in other.head.column_names for other in group.values()):
            raise InputError(f"no table has a column {quoted(given)}; name one that is there.")
        return None

    found = {}
    for kind, table in frames.items():
        chosen = (columns or {}).get(kind) if several else columns
        roles = {"id": role(id, kind, table), "time": role(time, kind, table), "columns": chosen}
        if target in (None, kind):
            roles |= {"label": role(label, kind, table), "unknown": unknown_label}
        found[kind] = guess_nodes(
            kind, table, roles, labelled=target in (None, kind), alone=len(frames) == 1
        )
    relations = {}
    for triple, table in links.items():
        given = {
            "source": edge_source,
            "target": edge_target,
            "weight": edge_weight,
            "time": edge_time,
        }
        roles = {name: role(value, triple, table) for name, value in given.items()}
        relations[triple] = guess_edges(
            table, roles | {"dangling": dangling}, (triple[0], triple[2])
        )
    labelled = [kind for kind, node in found.items() if node.label and node.time] or list(found)
    if target is None and len(labelled) > 1:
        raise InputError(f"{listing(labelled)} could all be classified; choose with target=...")
    spec = Spec(found, relations, target or labelled[0])
    reading = build(spec, [*frames.values(), *links.values()], period=period, cutoff=cutoff)
    if not quiet:
        print(reading)
    return reading.graph


@dataclass(frozen=True)
class Reading:
    """A graph, and in words what every column was taken for; print it."""

    graph: TemporalGraph
    notes: list[str]

    def __str__(self) -> str:
        return "\n".join(self.notes)


def build(
    spec: Spec,
    sources: list[Source],
    *,
    period: Period | None = None,
    cutoff: Any = None,
    features: np.ndarray | None = None,
    spill: Path | None = None,
) -> Reading:
    """The graph that a spec describes; `features` replace the feature columns of the type to classify.

    With `spill`, a directory, feature columns and edges are written there batch by batch and
    mapped.
    """
    tables = {source.name: source for source in sources}
    nodes: dict[str, _Nodes] = {}
    for kind, node in spec.nodes.items():
        given = features if kind == spec.target else None
        nodes[kind] = _Nodes.read(
            tables[node.file], node, given, spill and spill / f"nodes-{len(nodes)}.arrow"
        )
    if nodes[spec.target].time is None:
        raise InputError(
            f"{spec.nodes[spec.target].file} has no column of times; name it with time=... or in graph.toml."
        )
    links: dict[Triple, _Edges] = {}
    for triple, edge in spec.edges.items():
        ends = nodes[triple[0]], nodes[triple[2]]
        links[triple] = _Edges.read(
            tables[edge.file], edge, ends, spill and spill / f"edges-{len(links)}"
        )
    rule = spec.period if period is None else period
    time_notes: list[str] = []
    periods = _put_into_periods(spec, nodes, links, rule, cutoff, time_notes)
    alone = len(nodes) == 1 and len(links) == 1
    graph = TemporalGraph.hetero(
        nodes={"node" if alone else kind: part.arrays() for kind, part in nodes.items()},
        edges={HOMOGENEOUS if alone else triple: link.arrays() for triple, link in links.items()},
        target="node" if alone else spec.target,
        label_names=nodes[spec.target].label_names,
        periods=periods,
    )
    graph, misfits = _with_kinds(graph, list(nodes.values()), cutoff)
    parts: list[_Nodes | _Edges] = [*nodes.values(), *links.values()]
    notes = [note for part in parts for note in part.notes]
    return Reading(graph, [*notes, *time_notes, *misfits])


def _with_kinds(
    graph: TemporalGraph, parts: list[_Nodes], cutoff: Any
) -> tuple[TemporalGraph, list[str]]:
    """The graph with a kind for every feature column, and sentences about later rows that do not fit.

    Kinds are guessed from rows known before the cutoff, or before the one that the labels imply:
    what targets hold changes no kind. They are the same in every fold and in a saved graph.
    """
    at: int | None = None
    if graph.y is not None and (graph.y >= 0).any():
        at = graph.infer_cutoff()
    if cutoff is not None:
        with suppress(InputError):  # whoever cuts there is told
            at = graph.when(cutoff)
    misfits: list[str] = []
    typed = dict(graph.nodes)
    for (kind, node), part in zip(graph.nodes.items(), parts, strict=True):
        columns = node.columns
        if columns is None:
            continue
        known = None if at is None else graph.known_before(kind, at)
        columns = columns.before(known)
        kinds, warnings, table = {}, [], columns.table
        for place, name in enumerate(table.column_names):
            taken_for, why = part.declared.get(name), "as said"
            if taken_for is None:
                taken_for, why = columns.guess_kind(name)
            if taken_for == "ignore":
                part.notes.append(f"  {name}: left out, {why}")
            else:
                part.notes.append(f"  {name}: {taken_for}")
                kinds[name] = taken_for
            if taken_for == "number" and is_text(table.schema.field(place).type):
                values, lost = parsed_numbers(table[name], known)
                table = table.set_column(place, name, values)
                if lost and name in part.declared:
                    part.notes.append(f"    {lost:,} values that are no numbers count as missing")
            elif name in part.odd:
                warnings.append(f"{part.name}: {part.odd[name]}")
            if at is not None and known is not None:
                later = f"rows from {graph.name_of(at)} on"
                if node.time is None:
                    later = f"rows that are not linked to anything before {graph.name_of(at)}"
                if sentence := columns.misfits(name, taken_for, later):
                    misfits.append(f"{part.name}: {sentence}")
        part.notes += [f"  warning: {warning}" for warning in warnings]
        made = replace(columns, table=table, kinds=kinds, known=None, warnings=tuple(warnings))
        typed[kind] = replace(node, features=made)
    return graph.with_parts(typed, dict(graph.relations)), misfits


# -- nodes


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
    declared: dict[str, str]  # kinds of columns that were named, or that their type tells
    odd: dict[str, str]  # what keeps columns from being numbers
    notes: list[str]
    period: np.ndarray | None = None

    @classmethod
    def read(
        cls,
        source: Source,
        spec: NodeTable,
        features: np.ndarray | None,
        spill: Path | None,
    ) -> _Nodes:
        roles = [column for column in (spec.id, spec.time, spec.label) if column]
        source = source.as_written([spec.id, spec.label])
        raw = source.table if spill is None else _spilled(source, roles, spill)
        notes: list[str] = []
        table = usual_text(raw)
        if table.num_rows == 0:
            raise InputError(f"{source.name} has no rows; give at least one node.")
        columns = {
            role: table.column(column)
            for role in ("id", "time", "label")
            if (column := getattr(spec, role))
        }
        said = [f"{role} from '{getattr(spec, role)}'" for role in columns]
        if spec.id is None:
            said.insert(0, f"rows numbered 0 to {table.num_rows - 1} as ids")
        notes.append(f"{source.name}: {', '.join(said)}")
        ids = None if spec.id is None else Ids.of(columns["id"], spec.id, source.name)
        label, names = (
            labels(columns["label"], spec.label, source.name, spec.unknown)
            if spec.label
            else (None, None)
        )
        time = times(columns["time"], spec.time, source.name) if spec.time else None
        zone = getattr(columns["time"].type, "tz", None) if spec.time else None
        if zone not in (None, "UTC"):
            mend = "if local days matter, give local times without a zone"
            notes.append(f"  {spec.time}: came in {zone}, is taken in UTC; {mend}")
        if spec.label:
            notes += label_notes(columns["label"], names or [])
        others = [name for name in table.column_names if name not in roles]
        if features is not None and others:
            notes.append(f"  {', '.join(others)}: left out, features.npy takes their place")
        declared = {
            name: "category"
            for name in others
            if pa.types.is_dictionary(raw.schema.field(name).type)
        }
        odd = {
            name: sentence
            for name in others
            if name not in spec.columns and (sentence := looks_like_numbers(name, table[name]))
        }
        # Rows in the order of their ids, columns in that of their names: nothing behind this
        # depends on how a table was sorted.
        order = None if ids is None else ids.order()
        if order is not None and ids is not None:
            ids = Ids(ids.values.take(pa.array(order)))
            label, time = (None if part is None else part[order] for part in (label, time))
        if features is not None:
            if order is not None and len(features) == len(order):  # others are refused later
                features = _rows_in_order(features, order, spill)
        elif others:  # what is left out here may be known to a model
            table = table.select(sorted(others))
            if order is not None:
                table = _table_in_order(table, order, spill)
            moment = time if time is not None and time.dtype.kind == "M" else None
            features = Columns(table, {}, moment, mapped=spill is not None)  # type: ignore[assignment]
        return cls(
            name=source.name,
            size=raw.num_rows,
            ids=ids,
            label=label,
            label_names=names,
            time=time,
            features=features,
            declared=declared | spec.columns,
            odd=odd if isinstance(features, Columns) else {},
            notes=notes,
        )

    @property
    def key(self) -> Ids | int:
        """What edges name nodes by: ids, or how many rows are numbered."""
        return self.size if self.ids is None else self.ids

    def arrays(self) -> dict[str, Any]:
        ids = self.ids.names if self.ids is not None else None
        return {
            "x": self.features,
            "y": self.label,
            "time": self.period,
            "ids": ids,
            "num_nodes": self.size,
        }


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


def _table_in_order(table: pa.Table, order: np.ndarray, spill: Path | None) -> pa.Table:
    """The rows of a table at the positions `order`; with `spill` in a file that takes the place of that one."""
    batches = table.to_batches()
    ends = np.cumsum([batch.num_rows for batch in batches])

    def pieces() -> Iterator[pa.Table]:
        for begin in range(0, len(order), ROWS):
            rows = order[begin : begin + ROWS]
            batch = np.searchsorted(ends, rows, side="right")
            # Batch by batch: Arrow would join all of them to take rows from several.
            place = np.argsort(batch, kind="stable")
            runs = np.split(place, np.flatnonzero(np.diff(batch[place])) + 1)
            taken = [
                batches[k].take(pa.array(rows[run] - (ends[k] - batches[k].num_rows)))
                for run in runs
                for k in [batch[run[0]]]
            ]
            together = pa.Table.from_batches(taken, table.schema).combine_chunks()
            yield together.take(pa.array(np.argsort(place)))

    if spill is None:
        return pa.concat_tables(pieces()) if len(order) else table
    path = spill.with_suffix(".sorted.arrow")
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        for piece in pieces():
            writer.write_table(piece)
            give_back()
    _files.remove(spill)
    return pa.ipc.open_file(pa.memory_map(str(path))).read_all()


def _rows_in_order(features: np.ndarray, order: np.ndarray, spill: Path | None) -> np.ndarray:
    """The rows of a matrix at the positions `order`; with `spill` in a file."""
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
class _Edges:
    """An edge table as it is read: positions of both ends, weights and times."""

    name: str
    index: np.ndarray
    weight: np.ndarray | None
    time: np.ndarray | None
    notes: list[str] = field(default_factory=list)
    period: np.ndarray | None = None

    @classmethod
    def read(
        cls,
        source: Source,
        spec: EdgeTable,
        ends: tuple[_Nodes, _Nodes],
        spill: Path | None,
    ) -> _Edges:
        roles = {
            role: column
            for role in ("source", "target", "weight", "time")
            if (column := getattr(spec, role))
        }
        notes = [
            f"{source.name}: "
            + ", ".join(f"{role} from '{column}'" for role, column in roles.items())
        ]
        if unused := [name for name in source.head.column_names if name not in roles.values()]:
            notes.append(f"  {', '.join(unused)}: left out, edges have no features")
        source = source.as_written([spec.source, spec.target])
        if spill is None:
            made, dropped = cls._joined(source.table, source.name, spec, ends)
        else:
            made, dropped = cls._spilled(source, spec, ends, spill)
        if dropped:
            notes.append(f"  {dropped:,} edges dropped that name a node which is not there")
        return replace(made.in_order(spill), notes=notes)

    def in_order(self, folder: Path | None) -> _Edges:
        """The edges sorted by target, source, time and weight; in pieces and in files, given a folder."""
        if folder is None or self.index.shape[1] <= TOGETHER:
            return self._sorted()
        counts = np.zeros(int(self.index[1].max()) + 1, np.int64)
        for part in _native.blocks(self.index, 1):
            counts += np.bincount(self.index[1, part], minlength=len(counts))
        # Ranges of targets whose edges can be sorted together.
        borders = _native.spans(np.concatenate([[0], np.cumsum(counts)]), TOGETHER).tolist()
        pieces = _Pieces(folder / "sorted")
        for low, high in pairwise(borders):
            inside = []
            for part in _native.blocks(self.index, 1):
                target = self.index[1, part]
                inside.append(part.start + np.flatnonzero((target >= low) & (target < high)))
            pieces.add(self._at(np.concatenate(inside))._sorted())
        return pieces.joined(self.name)

    def _sorted(self) -> _Edges:
        source, target = self.index
        minor = [values for values in (self.weight, self.time) if values is not None]
        pair = target.astype(np.int64) * (int(source.max(initial=0)) + 1) + source
        steps = np.diff(pair)
        if (steps > 0).all() or (not minor and (steps >= 0).all()):
            return self
        return self._at(np.lexsort((*minor, pair)))

    def _at(self, places: np.ndarray) -> _Edges:
        weight, time = (
            None if values is None else values[places] for values in (self.weight, self.time)
        )
        return replace(self, index=self.index[:, places], weight=weight, time=time)

    @classmethod
    def _joined(
        cls,
        table: pa.Table,
        file: str,
        spec: EdgeTable,
        ends: tuple[_Nodes, _Nodes],
        first: int = 0,
    ) -> tuple[_Edges, int]:
        rows = table.num_rows
        kind = np.result_type(*(index_type(end.size) for end in ends))
        index, absent = np.empty((2, rows), kind), np.zeros(rows, bool)
        named = ("source", spec.source), ("target", spec.target)
        sides = [
            (table.column(name), name, file, ends[k].key, ends[k].name, index[k])
            for k, (_, name) in enumerate(named)
        ]
        _native.run(put_positions, sides, None)
        for side, (role, column) in enumerate(named):
            missing = index[side] < 0
            if missing.any() and spec.dangling == "refuse":
                row, nodes = int(missing.argmax()), ends[side].name
                value = table.column(column)[row].as_py()
                raise InputError(
                    f"{file} names {int(missing.sum())} times a {role} that is not in {nodes}, first {quoted(value)} in "
                    f"row {first + row + 1}; add the node, remove the edge, or drop such edges with dangling = 'drop'."
                )
            absent |= missing
        weight = (
            number_column(table.column(spec.weight), spec.weight, file) if spec.weight else None
        )
        if weight is not None:  # while rows can still be named
            checks.edge_weights(f"weight of {file}", weight, rows)
        time = times(table.column(spec.time), spec.time, file) if spec.time else None
        if absent.any():
            keep = np.flatnonzero(~absent)
            index = index[:, keep]
            weight, time = (None if values is None else values[keep] for values in (weight, time))
        return cls(file, index, weight, time), int(absent.sum())

    @classmethod
    def _spilled(
        cls, source: Source, spec: EdgeTable, ends: tuple[_Nodes, _Nodes], folder: Path
    ) -> tuple[_Edges, int]:
        """The same in pieces, each joined by itself, in files."""
        pieces = _Pieces(folder)
        columns = [
            column for column in (spec.source, spec.target, spec.weight, spec.time) if column
        ]
        dropped = first = 0
        held: list[pa.RecordBatch] = []

        def flush() -> None:
            nonlocal dropped, first
            table = pa.Table.from_batches(
                held, source.head.select(columns).schema if not held else None
            )
            part, lost = cls._joined(table, source.name, spec, ends, first)
            dropped, first = dropped + lost, first + table.num_rows
            held.clear()
            pieces.add(part)
            give_back()

        for batch in source.batches():
            held.append(batch.select(columns))
            if sum(one.num_rows for one in held) >= TOGETHER:
                flush()
        if held or not pieces.arrays["index"]:
            flush()
        return pieces.joined(source.name), dropped

    def arrays(self) -> dict[str, Any]:
        return {"edge_index": self.index, "weight": self.weight, "time": self.period}


class _Pieces:
    """Edges in files, piece after piece."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.arrays: dict[str, list[np.ndarray]] = {"index": [], "weight": [], "time": []}

    def add(self, part: _Edges) -> None:
        for name, stored in self.arrays.items():
            if (values := getattr(part, name)) is not None:
                path = self.folder / f"{name}-{len(stored)}.npy"
                _files.save_array(path, values)
                stored.append(_files.open_array(path))

    def joined(self, name: str) -> _Edges:
        """All of them."""
        whole = {
            role: _concatenated(stored, self.folder / f"{role}.npy")
            for role, stored in self.arrays.items()
        }
        return _Edges(name, **whole)  # type: ignore[arg-type]


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


def _put_into_periods(
    spec: Spec,
    nodes: dict[str, _Nodes],
    links: dict[Triple, _Edges],
    rule: Period,
    cutoff: Any,
    notes: list[str],
) -> Periods | None:
    """Chooses the periods by the type to classify, and puts all times into them."""
    main = nodes[spec.target]
    everything: list[_Nodes | _Edges] = [*nodes.values(), *links.values()]
    assert main.time is not None
    others = [part.time for part in everything if part.time is not None and part is not main]
    dated, unit = dated_by(main.time, rule, others)
    if unit is not None:
        notes.append(
            f"time: whole numbers read as {unit}" + (" since 1970" if unit[0] != "Y" else "")
        )
    periods, sentence = choose(dated, None if main.label is None else main.label >= 0, rule, cutoff)
    notes.append(f"time: {sentence}")
    for part in everything:
        if part.time is None:
            continue
        values = dated if part is main else like(part.time, unit, dated, part.name)
        if (
            isinstance(part, _Nodes)
            and isinstance(part.features, Columns)
            and values.dtype.kind == "M"
        ):
            part.features = replace(part.features, moment=values)
        part.period = values if periods is None else periods.of(values)
    return periods
