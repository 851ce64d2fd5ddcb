"""Columns of tables as arrays: numbers, labels, times; gaps are refused by the row."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from impact_gnn.checks import InputError
from impact_gnn.encoding.kinds import is_number, is_text, whole
from impact_gnn.encoding.moments import from_numbers, moments, one_array, unit_of
from impact_gnn.graph.periods import UNITS, Periods

SOME = 50  # distinct numbers from which they may be seconds since 1970
MOST_CLASSES = (
    1000  # different labels, beyond which a label that is different nearly everywhere is refused
)

Period: TypeAlias = str | int | Periods


def no_gaps(column: pa.Array | pa.ChunkedArray, file: str, name: str, mend: str) -> None:
    """Refuses a column with missing values, naming the first row."""
    missing = pc.is_null(column, nan_is_null=True)
    count = pc.sum(missing).as_py() or 0
    if count:
        row = pc.index(missing, True).as_py() + 1
        raise InputError(
            f"column '{name}' of {file} is empty in {count} rows, first in row {row}; {mend}."
        )


def number_column(column: pa.ChunkedArray, name: str, file: str) -> np.ndarray:
    """Finite numbers, none missing."""
    no_gaps(column, file, name, "fill it in")
    if not len(column):
        return np.empty(0)
    if not is_number(column.type):
        such = f"{column.type} such as {column[0].as_py()!r}"
        raise InputError(f"column '{name}' of {file} holds {such}; give numbers.")
    out = (
        column.to_numpy()
        if pa.types.is_integer(column.type)
        else column.cast(pa.float64()).to_numpy()
    )
    if out.dtype.kind == "f" and not np.isfinite(out).all():
        row = int((~np.isfinite(out)).argmax()) + 1
        raise InputError(f"column '{name}' of {file} is infinite in row {row}; give a number.")
    return out


def labels(column: pa.ChunkedArray, name: str, file: str) -> tuple[np.ndarray, list[Any]]:
    """Labels as 0, 1, 2, ... with −1 for unknown, and the user's own names for them in sorted order."""
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
        numbered = whole(known)
        column = known if numbered is None else numbered
    coded = one_array(column).dictionary_encode()
    values = coded.dictionary
    unknown = np.asarray(pc.is_null(values, nan_is_null=True))
    if pa.types.is_signed_integer(values.type):  # −1 is the customary mark for unknown
        unknown |= np.asarray(pc.equal(values, -1))
    seen = values.filter(pa.array(~unknown))
    labelled = len(column) - column.null_count
    if len(seen) > MOST_CLASSES and len(seen) > labelled / 2:
        such = f"{len(seen):,} different values in {labelled:,} labelled rows"
        raise InputError(
            f"column '{name}' of {file} has {such}; a label names a class, so name another column."
        )
    names = seen.to_pylist()
    order = sorted(range(len(names)), key=lambda k: _in_order(names[k]))
    rank = np.full(len(values) + 1, -1)  # the last place is that of missing labels
    rank[np.flatnonzero(~unknown)[order]] = np.arange(len(names))
    code = np.asarray(pc.fill_null(coded.indices, len(values)))
    return rank[code], [names[k] for k in order]


def _in_order(name: Any) -> tuple[bool, float, str]:
    """Numbers, written as text or not, by value before words: a word elsewhere in the column changes no order."""
    try:
        value = float(name)
    except ValueError:
        value = np.nan
    return value != value, 0.0 if value != value else value, str(name)


def times(column: pa.ChunkedArray, name: str, file: str) -> np.ndarray:
    """Times as they came: datetime64[us] of dates and text, otherwise numbers."""
    no_gaps(column, file, name, "fill it in, or leave those rows out")
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if is_number(column.type) or not len(column):
        return number_column(column, name, file)
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


def like(values: np.ndarray, unit: str | None, main: np.ndarray, where: str) -> np.ndarray:
    """Times of another table as those of the nodes to classify are, refused where they are of another kind."""
    if not len(values):
        return main[:0]
    own = None if values.dtype.kind == "M" else unit_of(values)
    if own is not None and own == unit:
        values = from_numbers(values, own)
    elif own is not None and main.dtype.kind != "M":
        raise InputError(
            f"the times of {where} look like {own}, those of the nodes are numbers such as {main[0]:g}."
        )
    if (values.dtype.kind == "M") != (main.dtype.kind == "M") or (
        values.dtype.kind == "M" and np.isnat(values).any()
    ):
        kind = (
            f"numbers that count {unit}"
            if unit
            else "dates"
            if main.dtype.kind == "M"
            else "numbers"
        )
        raise InputError(
            f"the times of {where} are not all of the kind that the nodes have ({kind}); write them alike."
        )
    return values


def dated_by(values: np.ndarray, rule: Period) -> tuple[np.ndarray, str | None]:
    """Numbers as dates where they count from 1970 or write one out, and which way."""
    if (
        values.dtype.kind == "M"
        or rule == "whole"
        or (isinstance(rule, Periods) and not rule.dated)
    ):
        return values, None
    unit = unit_of(values)
    asked = rule in UNITS or isinstance(rule, Periods)
    if unit is None or (unit[0] != "Y" and not asked and len(np.unique(values)) <= SOME):
        return values, None
    found = from_numbers(values, unit)
    return (values, None) if np.isnat(found).any() else (found, unit)
