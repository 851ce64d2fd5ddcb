"""Node ids, and the positions of the nodes that edges name by them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from impact_gnn.checks import InputError, distinct, fits
from impact_gnn.data.sources import canonical_numbers
from impact_gnn.data.values import EXACT, TableColumn, decimals_as_numbers
from impact_gnn.encoding.kinds import is_number, is_text, texts, whole
from impact_gnn.encoding.moments import decoded, one_array
from impact_gnn.graph.csr import index_type

MAX_ID_LENGTH = 4096  # characters
CHARACTER_ROWS = 1 << 16  # ids that become characters together
EDGES_AT_ONCE = 1 << 25  # edges whose ids are looked up together: text is copied


@dataclass(frozen=True, eq=False)
class Ids:
    """The distinct ids of nodes: whole numbers or text."""

    values: pa.Array

    @classmethod
    def of(cls, column: TableColumn) -> Ids:
        """Read a column of ids; missing, repeated and inexact ones are refused."""
        column.require_complete("give every node an id")
        _require_exact(column)
        values = decimals_as_numbers(column.name, decoded(column.values))
        integers = whole(values)
        ids = cls(one_array(texts(column.name, values) if integers is None else integers))
        if ids.is_text:
            _character_counts(ids.values)  # while rows can still be named
        # Consecutive numbers are distinct, which saves hashing them.
        if not ids.is_consecutive and pc.count_distinct(ids.values).as_py() != len(ids.values):
            distinct(str(column), ids.names)
        return ids

    @property
    def is_text(self) -> bool:
        return is_text(self.values.type)

    @property
    def names(self) -> np.ndarray:
        """The ids as numpy; text as fixed-width characters, never objects."""
        return characters(self.values) if self.is_text else np.asarray(self.values)

    @cached_property
    def is_consecutive(self) -> bool:
        """Whether they count up from the first one."""
        return not self.is_text and bool((np.diff(np.asarray(self.values)) == 1).all())

    @cached_property
    def _positions(self) -> np.ndarray:
        """The position of every number from the smallest id to the largest, −1 between ids."""
        numbers = np.asarray(self.values)
        low = numbers.min()
        out = np.full(int(numbers.max()) - int(low) + 1, -1, index_type(len(numbers)))
        out[numbers - low] = np.arange(len(numbers), dtype=out.dtype)
        return out

    def order(self) -> np.ndarray | None:
        """Return the positions that sort the ids, None if they are sorted.

        Whole numbers are sorted by value, also among words: a word in a later row changes no order.
        """
        if self.is_consecutive:
            return None
        if self.is_text:
            is_number = pc.match_substring_regex(self.values, r"^(0|-?[1-9]\d{0,17})$")
            numbers = pc.if_else(is_number, self.values, pa.scalar(None, self.values.type))
            keys = pa.table({"number": numbers.cast(pa.int64()), "text": self.values})
            by = [("number", "ascending"), ("text", "ascending")]
            order = np.asarray(pc.sort_indices(keys, by)).astype(np.int64)
        else:
            order = np.argsort(np.asarray(self.values), kind="stable")
        return None if (np.diff(order) > 0).all() else order

    def find(self, column: pa.Array) -> np.ndarray:
        """Return the positions of the nodes that a column names, −1 for unknown ids."""
        numbers = None if self.is_text else np.asarray(self.values)
        if numbers is None or int(numbers.max()) - int(numbers.min()) > 8 * len(numbers) + 1024:
            position = pc.fill_null(pc.index_in(column, value_set=self.values), -1)
            return position.to_numpy(zero_copy_only=False)
        # A table of all numbers in between is faster than hashing.
        wanted = np.asarray(column)
        inside = (wanted >= numbers.min()) & (wanted <= numbers.max())
        if inside.all():
            return self._positions[wanted - numbers.min()]
        positions = self._positions[np.where(inside, wanted - numbers.min(), 0)]
        positions[~inside] = -1
        return positions


def _character_counts(column: pa.Array) -> np.ndarray:
    """Count the characters of every id; refuse a long one, as all are stored that wide."""
    lengths = np.asarray(pc.utf8_length(column))
    row = int(lengths.argmax()) if len(lengths) else 0
    width = int(lengths.max(initial=1))
    if width > MAX_ID_LENGTH:
        raise InputError(
            f"the id in row {row + 1} has {width:,} characters, more than {MAX_ID_LENGTH:,}; "
            f"shorten it."
        )
    fits(
        f"{len(column):,} ids of up to {width:,} characters (row {row + 1})",
        3.0 * 4 * width * len(column),  # three copies: some steps sort one
        "shorten the longest id",
    )
    return lengths


def characters(column: pa.Array) -> np.ndarray:
    """Return text as numpy's fixed-width characters, without a Python object per value."""
    lengths = _character_counts(column)
    width = int(lengths.max(initial=1))
    out = np.zeros((len(column), width), np.uint32)
    for start in range(0, len(column), CHARACTER_ROWS):
        part = column.slice(start, CHARACTER_ROWS).cast(pa.string())
        rows = slice(start, start + len(part))
        joined = pc.binary_join(pa.ListArray.from_arrays([0, len(part)], part), "")[0].as_py()
        points = np.frombuffer(joined.encode("utf-32-le"), np.uint32)
        # Characters of all rows follow each other, as the true entries of the mask do.
        out[rows][np.arange(width) < lengths[rows, None]] = points
    return out.view(f"U{width}")[:, 0]


def _require_exact(column: TableColumn) -> None:
    """Refuse ids that have become floats and lost digits."""
    if not pa.types.is_floating(column.type):
        return
    largest = pc.max(pc.abs(column.values.cast(pa.float64()))).as_py() or 0
    if largest >= EXACT[column.type.bit_width // 8]:
        raise InputError(
            f"{column} has {column.type} values too large to be exact ids; "
            "read the column as text or whole numbers."
        )


def put_positions(column: TableColumn, ids: Ids | int, nodes: str, out: np.ndarray) -> None:
    """Write the positions of the nodes that a column of edge ends names, −1 for unknown ids.

    `ids` are those of the table `nodes`, or the number of its rows where it has none.
    """
    column.require_complete("enter an id")
    values = decoded(column.values)
    _require_exact(replace(column, values=values))
    kind = values.type
    if not (is_number(kind) or is_text(kind)) and len(values):
        raise InputError(
            f"{column} has type {kind}, which cannot be an id; use whole numbers or text."
        )
    values = decimals_as_numbers(column.name, values)
    is_text_id = isinstance(ids, Ids) and ids.is_text
    problem = f"but the ids of {nodes} are whole numbers; use the same ids in both tables"
    if isinstance(ids, int):
        problem = f"but no column of {nodes} was read as ids; choose one with id="
    if is_text_id and pa.types.is_floating(values.type):
        problem = f"but the ids of {nodes} are text; use the same ids in both tables"
        raise InputError(f"{column} has type {values.type}, {problem}.")
    for start in range(0, len(values), EDGES_AT_ONCE):
        part = values.slice(start, EDGES_AT_ONCE)
        positions = out[start : start + len(part)]
        if is_text_id or (isinstance(ids, Ids) and is_text(part.type)):
            text = texts(column.name, part)
            # 007 is not 7, so whole numbers are compared as text too
            positions[:] = Ids(ids.values.cast(text.type)).find(text)  # type: ignore[union-attr]
            continue
        numbers = _integers(column.name, part)
        if numbers is None:
            raise InputError(f"{column} has type {kind}, {problem}.")
        if isinstance(ids, Ids):
            positions[:] = ids.find(numbers)
        else:
            rows = np.asarray(numbers)
            positions[:] = np.where((rows >= 0) & (rows < ids), rows, -1)


def _integers(name: str, column: pa.ChunkedArray) -> pa.Array | None:
    """Return whole numbers, also if they are written as text; None for other values."""
    if is_text(column.type):
        return canonical_numbers(texts(name, column))
    try:
        return one_array(column.cast(pa.int64()))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
