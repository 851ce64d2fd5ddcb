"""Columns of tables as arrays: numbers, labels, times; gaps are refused by the row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from impact_gnn.checks import InputError
from impact_gnn.data.sources import canonical_numbers
from impact_gnn.encoding.kinds import is_number, is_text, texts, whole
from impact_gnn.encoding.moments import from_numbers, moments, one_array, unit_of
from impact_gnn.graph.parts import class_name
from impact_gnn.graph.periods import UNITS, Periods

SOME = 50  # distinct numbers from which they may be seconds since 1970
MOST_CLASSES = (
    1000  # different labels, beyond which a label that is different nearly everywhere is refused
)

# whole numbers that a float can tell apart, by its bytes
EXACT = {2: 1 << 11, 4: 1 << 24, 8: 1 << 53}
YEARS_FROM, YEARS_TO = 1, 9999
YEARS = f"{YEARS_FROM} to {YEARS_TO}"
MAX_TIME = 1 << 61
DOUBTFUL = (
    "?",
    "-",
    "--",
    "-1",
    ".",
    "unknown",
    "none",
    "n/a",
    "nan",
    "null",
    "missing",
    "undefined",
    "tbd",
)
"""Names of classes that may be meant to say that the class is not known."""

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


def labels(
    column: pa.ChunkedArray, name: str, file: str, unknown_names: Iterable[Any] = ()
) -> tuple[np.ndarray, list[Any]]:
    """Labels as 0, 1, 2, ... with −1 for unknown, and the user's own names for them in sorted order.

    Missing and blank labels are unknown, and so are those that are called as one of `unknown_names`.
    """
    kind = column.type
    if column.null_count == len(column):
        return np.full(len(column), -1), []
    if not (is_number(kind) or is_text(kind) or pa.types.is_boolean(kind)):
        raise InputError(f"column '{name}' of {file} holds {kind}; give labels as numbers or text.")
    column = floats_as_numbers(decimals_as_numbers(name, column))
    if pa.types.is_floating(column.type):  # whole numbers become floats where some are missing
        column = column.cast(pa.float64())
        known = pc.if_else(pc.is_nan(column), None, column)
        numbered = whole(known)
        column = known if numbered is None else numbered
    coded = one_array(column).dictionary_encode()
    values = coded.dictionary
    marks = {"", *map(class_name, unknown_names)}
    unknown = np.array([class_name(value) in marks for value in values.to_pylist()], bool)
    unknown |= np.asarray(pc.is_null(values, nan_is_null=True))
    seen = values.filter(pa.array(~unknown))
    labelled = len(column) - column.null_count
    if len(seen) > MOST_CLASSES and len(seen) > labelled / 2:
        such = f"{len(seen):,} different values in {labelled:,} labelled rows"
        raise InputError(
            f"column '{name}' of {file} has {such}; a label names a class, so name another column."
        )
    names = seen.to_pylist()
    spelled: dict[str, Any] = {}
    for one in names:
        if (other := spelled.setdefault(class_name(one), one)) != one:
            raise InputError(
                f"column '{name}' of {file} has the classes {other!r} and {one!r}, which differ in "
                "white space or in how a truth value is written; write them alike."
            )
    order = sorted(range(len(names)), key=lambda k: _in_order(names[k]))
    rank = np.full(len(values) + 1, -1)  # the last place is that of missing labels
    rank[np.flatnonzero(~unknown)[order]] = np.arange(len(names))
    code = np.asarray(pc.fill_null(coded.indices, len(values)))
    return rank[code], [names[k] for k in order]


def floats_as_numbers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Text as floats where all of it is what a float is written as: 1.0 and 2.5, but not 1.10.

    So pandas writes whole numbers where some are missing. Other columns stay as they are.
    """
    if not is_text(column.type):
        return column
    text = pc.if_else(pc.equal(pc.utf8_trim_whitespace(column), ""), None, column)
    values = pc.unique(text).drop_null()
    if not len(values) or not pc.all(pc.match_substring_regex(values, r"^-?\d+\.\d+$")).as_py():
        return column
    is_same = all(repr(float(value)) == value for value in values.to_pylist())
    return text.cast(pa.float64()) if is_same else column


def decimals_as_numbers(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Decimals as whole numbers where all are such, otherwise as text; other columns as they are."""
    if not pa.types.is_decimal(column.type):
        return column
    text = texts(name, column)
    numbers = canonical_numbers(text)
    return pa.chunked_array([text if numbers is None else numbers])


def label_notes(column: pa.ChunkedArray, names: list[Any]) -> list[str]:
    """What a person may want to know about how labels were read, as lines."""
    lines = []
    if is_text(column.type):
        blank = pc.sum(pc.equal(pc.utf8_trim_whitespace(column), "")).as_py() or 0
        if blank:
            lines.append(f"  {blank:,} blank labels are unknown")
    doubtful = [name for name in names if class_name(name).casefold() in DOUBTFUL]
    if doubtful:
        named = ", ".join(map(repr, doubtful))
        are = "is taken for a class" if len(doubtful) == 1 else "are taken for classes"
        how = f"unknown_label={doubtful!r}, in graph.toml unknown = {doubtful!r}"
        lines.append(f"  warning: {named} {are}; if the class is not known there, say {how}")
    return lines


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
        numbers = number_column(column, name, file)
        # floats beyond are rounded, and sums and differences of whole numbers beyond wrap around
        most = EXACT[column.type.bit_width // 8] if pa.types.is_floating(column.type) else MAX_TIME
        if len(numbers) and max(-float(numbers.min()), float(numbers.max())) >= most:
            raise InputError(
                f"column '{name}' of {file} holds {column.type} of {most:g} or more, too large to "
                "tell times apart; subtract a beginning first."
            )
        return numbers
    found = moments(column)
    if found is None and is_text(column.type):  # numbers written as text
        text = pc.utf8_trim_whitespace(column)
        if pc.all(pc.match_substring_regex(text, r"^-?\d{1,18}$")).as_py():
            return pc.cast(text, pa.int64()).to_numpy()
    if found is None and pa.types.is_temporal(column.type):
        raise InputError(
            f"column '{name}' of {file} holds {column.type} beyond the years {YEARS}; "
            "correct those dates."
        )
    if found is not None:
        year = found.astype("M8[Y]").astype(np.int64) + 1970
        far = (year < YEARS_FROM) | (year > YEARS_TO)
        if far.any():
            row = int(far.argmax())
            raise InputError(
                f"column '{name}' of {file} is in the year {year[row]} in row {row + 1}; "
                f"give the years {YEARS}."
            )
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
    elif own is not None and main.dtype.kind != "M" and unit_of(main) != own:
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


def dated_by(
    values: np.ndarray, rule: Period, others: Sequence[np.ndarray] = ()
) -> tuple[np.ndarray, str | None]:
    """Numbers as dates where they count from 1970 or write one out, and which way.

    Few different numbers are taken as they are, unless `others`, the times of other tables, are many
    and count in the same way.
    """
    if (
        values.dtype.kind == "M"
        or rule == "whole"
        or (isinstance(rule, Periods) and not rule.dated)
    ):
        return values, None
    unit = unit_of(values)
    asked = rule in UNITS or isinstance(rule, Periods)
    alike = [other for other in others if len(other) and other.dtype.kind != "M"]
    alike = [values, *(other for other in alike if unit_of(other) == unit)]
    many = any(len(np.unique(each)) > SOME for each in alike)
    if unit is None or (unit[0] != "Y" and not asked and not many):
        return values, None
    found = from_numbers(values, unit)
    return (values, None) if np.isnat(found).any() else (found, unit)
