"""`Columns`: the raw feature columns of a node table, encoded once the known rows are fixed."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc
from numpy import ndarray

from impact_gnn import _files
from impact_gnn._codec import decode
from impact_gnn.checks import guarded
from impact_gnn.encoding import kinds
from impact_gnn.encoding.kinds import OUTCOME
from impact_gnn.encoding.moments import one_array

if TYPE_CHECKING:
    from impact_gnn.encoding.encoder import Encoder

BLOCK = 1 << 14  # rows that are encoded together
LEAST_LATER = 20  # rows after the cutoff that can tell that a column is known late
MOST_KNOWN = 0.5  # share of the rows before it
MAX_CACHED_ROWS = 1_000_000  # rows
CACHE_LOCK = threading.Lock()
NOTE = b"impact-gnn"


@dataclass(frozen=True, eq=False)
class Block:
    """Some rows of `Columns`: values by column name, and the rows' positions in the table."""

    table: pa.Table
    rows: ndarray
    whole: Columns

    @property
    def moment(self) -> ndarray | None:
        """The nodes' own times."""
        return None if self.whole.moment is None else self.whole.moment[self.rows]

    def column(self, name: str) -> pa.Array:
        return one_array(self.table.column(name))

    def cached(self, name: str, compute: Callable[[pa.Array], Any]) -> Any:
        """Return `compute` of a column, row by row; computed once if the table is small."""
        if self.whole.table.num_rows > MAX_CACHED_ROWS:
            return compute(self.column(name))
        cache = self.whole.cache
        with CACHE_LOCK:  # blocks are encoded in threads
            if name not in cache:
                cache[name] = compute(one_array(self.whole.table.column(name)))
        # Rows of the whole table, not of this view.
        return cache[name][self.rows]


@dataclass(frozen=True, eq=False)
class Columns:
    """Raw columns of nodes; `x` encodes them by an encoder that is fitted on `known` rows.

    A view with other rows or another cutoff has an encoder of its own, so that no row after a
    cutoff changes features before it.

    Args:
        table: A column per feature, a row per node (of the whole table, of which this may be a
            view).
        kinds: The kind of every column, in the order of the features.
        moment: The nodes' own times as datetime64[us], from which dates are counted; None if they
            have no dates.
        rows: Rows of this view in increasing order; None for all.
        known: Mask over this view's rows that an encoder may learn from; None for all.
        over: Mask over those whose outcome is known; None for all.
        mapped: Whether the table is mapped from a file, as its features should then be.
        warnings: Sentences on columns that may have been misread.
    """

    table: pa.Table
    kinds: dict[str, str]
    moment: ndarray | None = None
    rows: ndarray | None = None
    known: ndarray | None = None
    over: ndarray | None = None
    mapped: bool = False
    warnings: tuple[str, ...] = ()
    cache: dict[str, Any] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return self.table.num_rows if self.rows is None else len(self.rows)

    def take(self, positions: ndarray) -> Columns:
        """Return the view of the rows at increasing positions."""
        rows = positions if self.rows is None else self.rows[positions]
        masks = {"known": self.known, "over": self.over}
        taken = {name: mask[positions] for name, mask in masks.items() if mask is not None}
        return replace(self, rows=rows, **taken)

    def copied(self, positions: ndarray) -> Columns:
        """Return the rows at increasing positions without the rest of the table."""
        view = self.take(positions)
        moment = None if self.moment is None else self.moment[view.rows]
        table = self.table.take(pa.array(view.rows))
        return replace(view, table=table, moment=moment, rows=None, mapped=False, cache={})

    def before(self, known: ndarray | None, over: ndarray | None = None) -> Columns:
        """Return the same rows with other masks of rows to learn from; None for all."""
        # The same rows share an encoder; None is equal to None.
        pairs = ((known, self.known), (over, self.over))
        is_same = all(np.array_equal(*pair) for pair in pairs)  # type: ignore[arg-type]
        return self if is_same else replace(self, known=known, over=over)

    def with_late_outcomes(self) -> Columns:
        """Return columns that most known rows have, and no later one, as outcomes.

        Such as the scores of matches that are still to be played: no target could have them.
        """
        if self.known is None or (~self.known).sum() < LEAST_LATER:
            return self
        sentences = {}
        for name, kind in self.kinds.items():
            column = self.table.column(name)
            if kind in ("ignore", OUTCOME) or not column.null_count:
                continue
            is_present = np.asarray(pc.is_valid(column))
            if self.rows is not None:
                is_present = is_present[self.rows]
            share = is_present[self.known].mean()
            if share >= MOST_KNOWN and not is_present[~self.known].any():
                sentences[name] = (
                    f"column '{name}': {share:.0%} of the rows before the cutoff have it, and none "
                    "of the later ones; it is read as an outcome, known after the event only"
                )
        if not sentences:
            return self
        late = self.kinds | dict.fromkeys(sentences, OUTCOME)
        return replace(self, kinds=late, warnings=(*self.warnings, *sentences.values()))

    def guess_kind(self, name: str) -> tuple[str, str]:
        """Guess the kind of a column by its known values, with the reason if it is ignored."""
        column = self.table.column(name)
        is_present = np.asarray(pc.is_valid(column))
        reason = "it is empty"
        if self.known is not None:
            # A column is judged by what is known before the cutoff.
            is_present = is_present & self.known
            reason = "it is empty before the cutoff"
        rows = np.flatnonzero(is_present)
        if not len(rows):
            return "ignore", reason
        # Evenly spread over the table, not only its first rows.
        if len(rows) > kinds.LOOK:
            places = np.linspace(0, len(rows) - 1, kinds.LOOK)
            rows = rows[places.astype(np.int64)]
        sample = column.take(pa.array(rows))
        return kinds.guess_kind(name, kinds.typed(sample))

    def misfits(self, name: str, kind: str, later: str) -> str:
        """Return a sentence on unknown rows that do not fit the kind of a column, "" if all fit."""
        assert self.known is not None
        column = self.table.column(name)
        if kind == "number" and kinds.is_number(column.type):
            return ""
        past = column.filter(pa.array(self.known))
        rest = column.filter(pa.array(~self.known))
        count = kinds.count_misfits(name, kind, past, rest)
        if not count:
            return ""
        problems = {
            "number": "are not numbers; they are read as missing",
            "date": "are not dates; they are read as missing",
            "vector": "are lists of another length; they are read as missing",
            "category": "have a value that no earlier row has; it is read as unknown",
        }
        return f"column '{name}': {count:,} of {len(rest):,} {later} {problems[kind]}"

    @cached_property
    def encoder(self) -> Encoder:
        """The encoder, fitted on the known rows."""
        from impact_gnn.encoding.encoder import Encoder

        return Encoder.fit(self)

    @cached_property
    def x(self) -> ndarray:
        """The features [N, f], float32."""
        return self.encoder.encode(self)

    def spans(self) -> list[slice]:
        """Return all rows in blocks."""
        size = len(self)
        return [slice(start, min(start + BLOCK, size)) for start in range(0, size, BLOCK)]

    def sample(self, size: int) -> Block:
        """Return known rows, at random if there are more than `size`."""
        known = np.arange(len(self))
        if self.known is not None:
            known = np.flatnonzero(self.known)
        if len(known) > size:
            # A fixed seed: the encoder is the same in every fit.
            drawn = np.random.default_rng(0).choice(known, size, replace=False)
            known = np.sort(drawn)
        # From positions in this view to rows of the table.
        rows = known if self.rows is None else self.rows[known]
        table = self.table
        if len(rows) < table.num_rows:
            table = table.take(pa.array(rows))
        return Block(table, rows, self)

    def block(self, span: slice) -> Block:
        """Return consecutive rows of this view."""
        rows = np.arange(span.start, span.stop)
        if self.rows is not None:
            rows = self.rows[span]
        # a slice copies nothing, and rows are then taken from near ones only
        table = self.table[rows[0] : rows[-1] + 1]
        if len(rows) < table.num_rows:
            table = table.take(pa.array(rows - rows[0]))
        return Block(table, rows, self)

    def digest(self) -> str:
        """Return a digest of the values, kinds and known rows."""
        # In blocks of fixed size: the chunks of the table do not change the digest.
        parts = []
        for block in map(self.block, self.spans()):
            buffers = map(_buffers, block.table.columns)
            parts.append(_files.digest(*buffers, block.moment))
        schema = self.table.schema.to_string()
        return _files.digest(parts, self.kinds, schema, self.known, self.over)

    def save(self, path: Path) -> None:
        """Write the view as an Arrow file, which `open` maps."""
        schema = self.table.schema
        place = ""
        if self.moment is not None:
            # longer than any name, so it is free
            place = max(schema.names, key=len, default="") + "_moment"
            schema = schema.append(pa.field(place, pa.timestamp("us")))
        note = json.dumps({"kinds": self.kinds, "moment": place, "warnings": self.warnings})
        with (
            pa.OSFile(str(path), "wb") as sink,
            pa.ipc.new_file(sink, schema.with_metadata({NOTE: note})) as writer,
        ):
            for block in map(self.block, self.spans()):
                arrays = [one_array(column) for column in block.table.columns]
                if block.moment is not None:
                    arrays.append(pa.array(block.moment))
                writer.write_table(pa.table(arrays, schema=schema))

    @classmethod
    def open(cls, path: Path, *later: Path) -> Columns:
        """Map the file that `save` wrote, and files with later rows of the same columns."""
        if later:
            # Files of later updates have further rows of the same columns.
            parts = [cls.open(one) for one in (path, *later)]
            moment = None
            if parts[0].moment is not None:
                moment = np.concatenate([part.moment for part in parts])
            # whole numbers and floats of one column become floats
            tables = [part.table for part in parts]
            table = pa.concat_tables(tables, promote_options="permissive")
            return replace(parts[0], table=table, moment=moment, cache={})
        with guarded(path):
            table = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
            note = json.loads(table.schema.metadata[NOTE])
            by_name = decode(dict[str, str], note["kinds"], path.name)
            sentences = note.get("warnings", [])
            warnings = decode(tuple[str, ...], sentences, path.name)
            moment = None
            place = note["moment"]
            if place:
                moment = table.column(place).to_numpy().astype("M8[us]")
                table = table.drop_columns([place])
        table = table.replace_schema_metadata(None)
        return cls(table, by_name, moment, mapped=True, warnings=warnings)


def _buffers(column: pa.ChunkedArray) -> ndarray:
    """Return the bytes of a column, whatever the offsets of its chunks."""
    sink = pa.BufferOutputStream()
    batch = pa.record_batch([one_array(column)], names=[""])
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return np.frombuffer(sink.getvalue(), np.uint8)
