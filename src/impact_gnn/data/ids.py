"""Ids of nodes as people have them, and finding them again wherever an edge names one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from impact_gnn.checks import InputError, distinct, fits
from impact_gnn.data.sources import canonical_numbers, usual_text
from impact_gnn.data.values import EXACT, decimals_as_numbers, no_gaps
from impact_gnn.encoding.kinds import is_number, is_text, texts, whole
from impact_gnn.encoding.moments import one_array
from impact_gnn.graph.csr import index_type

# edges whose ids are looked at together: text is copied, and the ids are hashed anew for each
MAX_ID_LENGTH = 4096  # characters
AT_ONCE = 1 << 25


@dataclass(frozen=True, eq=False)
class Ids:
    """The ids of nodes: found again wherever an edge names one."""

    values: pa.Array

    @classmethod
    def of(cls, column: pa.ChunkedArray, name: str, table: str) -> Ids:
        no_gaps(column, table, name, "give every node an id")
        exact(column, name, table)
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        column = decimals_as_numbers(name, column)
        numbered = whole(column)
        values = one_array(texts(name, column) if numbered is None else numbered)
        made = cls(values)
        if made.is_text:
            character_counts(values)  # while rows can still be named
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
    def _range(self) -> tuple[int, int]:
        """The smallest number, and how many there are from it to the largest."""
        known = np.asarray(self.values)
        return int(known.min()), int(known.max()) - int(known.min()) + 1

    @cached_property
    def _positions(self) -> np.ndarray:
        """For every number from the smallest id to the largest, where it is."""
        low, span = self._range
        out = np.full(span, -1, index_type(len(self.values)))
        out[np.asarray(self.values) - low] = np.arange(len(self.values), dtype=out.dtype)
        return out

    @cached_property
    def consecutive(self) -> bool:
        """Whether they count up from the first one."""
        if self.is_text:
            return False
        numbers = np.asarray(self.values)
        return bool(numbers[-1] - numbers[0] == len(numbers) - 1) and bool(
            (np.diff(numbers) == 1).all()
        )

    def order(self) -> np.ndarray | None:
        """Positions of the ids in increasing order, None where they are in it.

        Whole numbers by value, also among words: a word in a later row changes no order.
        """
        if self.consecutive:
            return None
        if self.is_text:
            number = pc.match_substring_regex(self.values, r"^(0|-?[1-9]\d{0,17})$")
            value = pc.if_else(number, self.values, pa.scalar(None, self.values.type))
            keys = {"number": value.cast(pa.int64()), "text": self.values}
            by = [(name, "ascending") for name in keys]
            order = np.asarray(pc.sort_indices(pa.table(keys), by))
        else:
            order = np.argsort(np.asarray(self.values), kind="stable")
        order = order.astype(np.int64)
        return None if (np.diff(order) > 0).all() else order

    def find(self, column: pa.Array) -> np.ndarray:
        """Positions of the nodes that a column names, −1 for those that are not there."""
        size, kind = len(self.values), index_type(len(self.values))
        low, span = (0, 0) if self.is_text else self._range
        if self.is_text or span > 8 * size + 1024:
            position = pc.index_in(column, value_set=self.values)
            return (
                pc.fill_null(position, -1).to_numpy(zero_copy_only=False).astype(kind, copy=False)
            )
        wanted = np.asarray(column)  # a table of all numbers in between is quicker than hashing
        inside = not len(wanted) or (wanted.min() >= low and wanted.max() < low + span)
        outside = None if inside else (wanted < low) | (wanted >= low + span)
        place = wanted if low == 0 else wanted - low
        place = place if outside is None else np.where(outside, 0, place)
        found = place.astype(kind) if self.consecutive else self._positions[place]
        if outside is not None:
            found[outside] = -1
        return found


def character_counts(column: pa.Array) -> np.ndarray:
    """Characters of every id; refuses a long one, because all are stored as wide as the longest."""
    lengths = np.asarray(pc.utf8_length(column))
    width = max(int(lengths.max(initial=0)), 1)
    row = int(lengths.argmax()) + 1 if len(lengths) else 0
    if width > MAX_ID_LENGTH:
        raise InputError(
            f"the id in row {row} has {width:,} characters, more than {MAX_ID_LENGTH:,}; "
            f"give that node a shorter id."
        )
    stored = f"{len(column):,} ids as wide as the longest, of {width:,} characters in row {row},"
    # Three times: some steps sort a copy.
    fits(stored, 3.0 * 4 * width * len(column), "give that node a shorter id")
    return lengths


def characters(column: pa.Array) -> np.ndarray:
    """Text as numpy's fixed-width characters, without a Python object for any of it."""
    lengths = character_counts(column)
    width = max(int(lengths.max(initial=0)), 1)
    out = np.zeros((len(column), width), np.uint32)
    for start in range(0, len(column), 1 << 18):
        part = column.slice(start, 1 << 18).cast(pa.large_binary())
        points = np.frombuffer(_joined(part).decode().encode("utf-32-le"), np.uint32)
        # Characters of all rows follow each other, as the places do that are true here.
        out[start : start + len(part)][
            np.arange(width) < lengths[start : start + len(part), None]
        ] = points
    return out.view(f"U{width}")[:, 0]


def _joined(part: pa.Array) -> bytes:
    """The bytes of all values, one after the other."""
    _, offsets, data = part.buffers()
    ends = np.frombuffer(offsets, np.int64)[part.offset : part.offset + len(part) + 1]
    return b"" if data is None else data[int(ends[0]) : int(ends[-1])].to_pybytes()


def exact(column: pa.ChunkedArray, name: str, file: str) -> None:
    """Refuses ids that have become floats and lost digits."""
    if (
        pa.types.is_floating(column.type)
        and (pc.max(pc.abs(column.cast(pa.float64()))).as_py() or 0)
        >= EXACT[column.type.bit_width // 8]
    ):
        mend = "read the column as text or whole numbers"
        raise InputError(
            f"column '{name}' of {file} holds {column.type} too large to tell ids apart; {mend}."
        )


def put_positions(
    column: pa.ChunkedArray, name: str, file: str, ids: Ids | int, nodes: str, out: np.ndarray
) -> None:
    """Writes the positions of the nodes that a column of edge ends names, −1 where they are not there.

    `ids` are those of the table `nodes`, or the number of its rows where it has none.
    """
    no_gaps(column, file, name, "name a node")
    if pa.types.is_dictionary(column.type):
        column = usual_text(pa.table({name: column})).column(0)
    exact(column, name, file)
    if not (is_number(column.type) or is_text(column.type)) and len(column):
        raise InputError(
            f"column '{name}' of {file} holds {column.type}, which cannot name a node; "
            "write ids as whole numbers or text."
        )
    column = decimals_as_numbers(name, column)
    if isinstance(ids, Ids) and ids.is_text and pa.types.is_floating(column.type):
        same = f"the ids of {nodes} are text; write ids the same way in both tables"
        raise InputError(f"column '{name}' of {file} holds {column.type}, {same}.")
    for start in range(0, len(column), AT_ONCE):
        part = column.slice(start, AT_ONCE)
        if is_text(part.type) and isinstance(ids, Ids):
            part = texts(name, part)
        elif isinstance(ids, int) or not ids.is_text:
            try:
                part = _whole(name, part)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                known = (
                    f"the ids of {nodes} are whole numbers; write ids the same way in both tables"
                )
                if isinstance(ids, int):
                    known = f"but no column of {nodes} was taken for ids; name it with id=..."
                raise InputError(
                    f"column '{name}' of {file} holds {column.type}, {known}."
                ) from None
        else:
            part = texts(name, part)
        found = _find(one_array(part), ids)
        out[start : start + len(found)] = found


def _find(part: pa.Array, ids: Ids | int) -> np.ndarray:
    """Positions of the nodes that a piece of a column names, −1 where they are not there."""
    if isinstance(ids, int):
        rows = np.asarray(part)
        return np.where((rows >= 0) & (rows < ids), rows, -1)
    if is_text(part.type) and not ids.is_text:
        return Ids(ids.values.cast(part.type)).find(part)  # 007 is not 7
    return ids.find(part)


def _whole(name: str, part: pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Whole numbers, also such as were written as text."""
    if not is_text(part.type):
        return part.cast(pa.int64())
    numbers = canonical_numbers(texts(name, part))
    if numbers is None:
        raise pa.ArrowInvalid("not whole numbers")
    return numbers
