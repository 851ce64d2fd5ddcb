"""Node ids, and the positions of the nodes that edges name by them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy import ndarray

from impact_gnn._array import sorted_unique
from impact_gnn.checks import InputError, distinct, fits
from impact_gnn.data.sources import canonical_numbers
from impact_gnn.data.values import EXACT, TableColumn, decimals_as_numbers
from impact_gnn.encoding.kinds import is_number, is_text, texts, whole
from impact_gnn.encoding.moments import decoded, one_array
from impact_gnn.graph.csr import index_type

MAX_ID_LENGTH = 4096  # characters
CHARACTER_ROWS = 1 << 16  # ids that become characters together


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
            _width(ids.values)  # while rows can still be named
        if ids.num_distinct() != len(ids.values):
            distinct(str(column), ids.names)
        return ids

    @property
    def is_text(self) -> bool:
        return is_text(self.values.type)

    @property
    def names(self) -> ndarray:
        """The ids as numpy; text as fixed-width characters, never objects."""
        return characters(self.values) if self.is_text else np.asarray(self.values)

    def num_distinct(self) -> int:
        if self.is_text:
            return int(pc.count_distinct(self.values).as_py())
        return len(sorted_unique(np.asarray(self.values)))  # faster than by hashing

    def order(self) -> ndarray | None:
        """Return the positions that sort the ids, None if they are sorted.

        Whole numbers are sorted by value, also among words: a word in a later row changes no order.
        """
        if self.is_text:
            # Up to 18 digits fit into 64 bits.
            is_number = pc.match_substring_regex(self.values, r"^(0|-?[1-9]\d{0,17})$")
            if not pc.any(is_number).as_py():
                return _unless_sorted(pc.array_sort_indices(self.values))
            # Words have no number and come last.
            numbers = pc.if_else(is_number, self.values, pa.scalar(None, self.values.type))
            keys = pa.table({"number": numbers.cast(pa.int64()), "text": self.values})
            by = [("number", "ascending"), ("text", "ascending")]
            return _unless_sorted(pc.sort_indices(keys, by))
        return _unless_sorted(np.argsort(np.asarray(self.values), kind="stable"))

    def find(self, column: pa.Array) -> ndarray:
        """Return the positions of the nodes that a column names, −1 for unknown ids."""
        if self._table is None:
            # By hashing.
            positions = pc.fill_null(pc.index_in(column, value_set=self.values), -1)
            return positions.to_numpy(zero_copy_only=False)
        # The first and the last entry stand for all numbers below and above the ids.
        below = int(np.asarray(self.values).min()) - 1
        above = below + (len(self._table) - 1)
        return self._table[np.clip(np.asarray(column), below, above) - below]

    @cached_property
    def _table(self) -> ndarray | None:
        """The position of every number from the smallest id to the largest, −1 between ids.

        It is faster than hashing; None for text, or if most numbers are no ids.
        """
        if self.is_text or not len(self.values):
            return None
        numbers = np.asarray(self.values)
        low = int(numbers.min())
        span = int(numbers.max()) - low
        # Two more numbers, below and above the ids, have to fit into 64 bits.
        limits = np.iinfo(np.int64)
        fits_table = limits.min < low and low + span < limits.max
        if span > 8 * len(numbers) + 1024 or not fits_table:
            return None
        # One entry per number, and one more below and above.
        out = np.full(span + 3, -1, index_type(len(numbers)))
        out[numbers - low + 1] = np.arange(len(numbers), dtype=out.dtype)
        return out


def _unless_sorted(order: pa.Array | ndarray) -> ndarray | None:
    order = np.asarray(order).astype(np.int64)
    return None if (np.diff(order) > 0).all() else order


def _width(column: pa.Array) -> int:
    """Return the length of the longest id; refuse a long one, as all are stored that wide."""
    lengths = np.asarray(pc.utf8_length(column))
    width = int(lengths.max(initial=1))
    row = 1 + int(lengths.argmax()) if len(lengths) else 0
    if width > MAX_ID_LENGTH:
        raise InputError(
            f"the id in row {row} has {width:,} characters, more than {MAX_ID_LENGTH:,}; "
            "shorten it."
        )
    fits(
        f"{len(column):,} ids of up to {width:,} characters (row {row})",
        3.0 * 4 * width * len(column),  # three copies: some steps sort one
        "shorten the longest id",
    )
    return width


def characters(column: pa.Array) -> ndarray:
    """Return text as numpy's fixed-width characters, some rows at a time."""
    out = np.empty(len(column), f"U{_width(column)}")
    for start in range(0, len(column), CHARACTER_ROWS):
        part = column.slice(start, CHARACTER_ROWS)
        out[start : start + len(part)] = part.to_pylist()
    return out


def _require_exact(column: TableColumn) -> None:
    """Refuse ids that have become floats and lost digits."""
    if not pa.types.is_floating(column.type):
        return
    sizes = pc.abs(column.values.cast(pa.float64()))
    if (pc.max(sizes).as_py() or 0) >= EXACT[column.type.bit_width // 8]:
        raise InputError(
            f"{column} has {column.type} values too large to be exact ids; "
            "read the column as text or whole numbers."
        )


def positions(column: TableColumn, ids: Ids | int, nodes: str) -> ndarray:
    """Return the positions of the nodes that a column of edge ends names, −1 for unknown ids.

    `ids` are those of the table `nodes`, or the number of its rows where it has none.
    """
    column.require_complete("enter an id")
    if not len(column.values):
        return np.empty(0, np.int64)
    column = replace(column, values=decoded(column.values))
    _require_exact(column)
    kind = column.type
    if not (is_number(kind) or is_text(kind)):
        raise InputError(
            f"{column} has type {kind}, which cannot be an id; use whole numbers or text."
        )
    values = decimals_as_numbers(column.name, column.values)
    problem = f"but no column of {nodes} was read as ids; choose one with id="
    if isinstance(ids, Ids):
        wanted = "text" if ids.is_text else "whole numbers"
        problem = f"but the ids of {nodes} are {wanted}; use the same ids in both tables"
        is_float = pa.types.is_floating(values.type)
        # 007 is not 7, so whole numbers are compared with text as text.
        if is_text(values.type) or (ids.is_text and not is_float):
            text = texts(column.name, values)
            return Ids(ids.values.cast(text.type)).find(text)
        numbers = None if ids.is_text else whole(values)
    else:
        numbers = whole(values)
        if is_text(values.type):
            numbers = canonical_numbers(texts(column.name, values))
    if numbers is None:
        raise InputError(f"{column} has type {kind}, {problem}.")
    if isinstance(ids, Ids):
        return ids.find(one_array(numbers))
    rows = np.asarray(numbers)
    # Without ids, numbers are rows of the table.
    return np.where((rows >= 0) & (rows < ids), rows, -1)
