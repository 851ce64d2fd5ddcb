"""Reads columns of tables as arrays: numbers, labels and times."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy import ndarray

from impact_gnn.checks import InputError
from impact_gnn.data.sources import canonical_numbers
from impact_gnn.encoding.kinds import is_number, is_text, texts, whole
from impact_gnn.encoding.moments import (
    all_match,
    decoded,
    from_numbers,
    moments,
    one_array,
    unit_of,
)
from impact_gnn.graph.parts import class_name
from impact_gnn.graph.periods import UNITS, Periods

MIN_DISTINCT_TIMES = 50  # with more distinct numbers, they may be seconds since 1970
MAX_CLASSES = 1000  # with more labels, a label that differs in most rows is refused

# the first whole number that a float cannot tell from its neighbours, by its bytes
EXACT = {2: 1 << 11, 4: 1 << 24, 8: 1 << 53}
MIN_YEAR = 1
MAX_YEAR = 9999
MAX_TIME = 1 << 61
PLACEHOLDERS = re.compile(r"[?.]|--?|-1|unknown|none|n/a|nan|null|missing|undefined|tbd")
"""Names of classes that may mean that the class is unknown."""

Period: TypeAlias = str | int | Periods


@dataclass(frozen=True, eq=False)
class TableColumn:
    """A column of a user's table, and the names by which errors mention it."""

    values: pa.ChunkedArray
    name: str
    file: str

    def __str__(self) -> str:
        return f"column '{self.name}' of {self.file}"

    @property
    def type(self) -> pa.DataType:
        return self.values.type

    def require_complete(self, fix: str) -> None:
        """Refuse missing values, and name the first row that has one."""
        missing = pc.is_null(self.values, nan_is_null=True)
        count = pc.sum(missing).as_py() or 0
        if count:
            row = pc.index(missing, True).as_py() + 1
            raise InputError(f"{self} is empty in {count} rows, first in row {row}; {fix}.")


def finite_numbers(column: TableColumn) -> ndarray:
    """Return finite numbers; missing and infinite ones are refused."""
    column.require_complete("fill it in")
    values = column.values
    if not len(values):
        return np.empty(0)
    if not is_number(values.type):
        example = values[0].as_py()
        raise InputError(f"{column} has type {values.type} (such as {example!r}); use numbers.")
    if pa.types.is_integer(values.type):
        return values.to_numpy()
    numbers = values.cast(pa.float64()).to_numpy()
    infinite = ~np.isfinite(numbers)
    if infinite.any():
        row = int(infinite.argmax()) + 1
        raise InputError(f"{column} is infinite in row {row}; use a finite number.")
    return numbers


def labels(column: TableColumn, unknown_names: Iterable[Any] = ()) -> tuple[ndarray, list[Any]]:
    """Return labels as 0, 1, 2, ... with −1 for unknown, and the sorted names of the classes.

    Missing and blank labels are unknown, and so are those named in `unknown_names`.
    """
    values = column.values
    labelled = len(values) - values.null_count
    if not labelled:
        return np.full(len(values), -1), []
    kind = values.type
    if not (is_number(kind) or is_text(kind) or pa.types.is_boolean(kind)):
        raise InputError(f"{column} has type {kind}; use numbers or text as labels.")
    values = floats_as_numbers(decimals_as_numbers(column.name, values))
    if pa.types.is_floating(values.type):  # whole numbers become floats where some are missing
        values = values.cast(pa.float64())
        # NaN is a missing label.
        values = pc.if_else(pc.is_nan(values), None, values)
        integers = whole(values)
        if integers is not None:
            values = integers
    # Names are compared once per class, not once per row.
    encoded = one_array(values).dictionary_encode()
    distinct = encoded.dictionary.to_pylist()
    unknown = {"", *map(class_name, unknown_names)}
    classes = [name for name in distinct if class_name(name) not in unknown]
    if len(classes) > MAX_CLASSES and len(classes) > labelled / 2:
        raise InputError(
            f"{column} has {len(classes):,} different values in {labelled:,} labelled rows; "
            "a label is the name of a class, so choose another column."
        )
    spellings: dict[str, Any] = {}
    for name in classes:
        # The first spelling of a class.
        other = spellings.setdefault(class_name(name), name)
        if other != name:
            raise InputError(
                f"{column} has the classes {other!r} and {name!r}, which differ in "
                "white space or in the spelling of a truth value; use one spelling."
            )
    classes.sort(key=_class_order)
    label_of = {name: label for label, name in enumerate(classes)}
    # The label of every distinct value; the last entry is that of missing values.
    distinct_labels = np.array([label_of.get(name, -1) for name in (*distinct, None)])
    codes = np.asarray(pc.fill_null(encoded.indices, len(distinct)))
    return distinct_labels[codes], classes


def floats_as_numbers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return text as floats where every value is written as a float: 1.0 and 2.5, but not 1.10.

    pandas writes whole numbers like this where some are missing. Other columns stay as they are.
    """
    if not is_text(column.type):
        return column
    text = pc.if_else(pc.equal(pc.utf8_trim_whitespace(column), ""), None, column)
    values = pc.unique(text).drop_null()
    # Looked at once per distinct value.
    if not all_match(values, r"^-?\d+\.\d+$"):
        return column
    # 1.10 is not how a float is written, so it is a name, such as a version.
    if any(repr(float(value)) != value for value in values.to_pylist()):
        return column
    return text.cast(pa.float64())


def decimals_as_numbers(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return decimals as whole numbers if all of them are, otherwise as text."""
    if not pa.types.is_decimal(column.type):
        return column
    text = texts(name, column)
    numbers = canonical_numbers(text)
    return pa.chunked_array([text if numbers is None else numbers])


def label_notes(column: pa.ChunkedArray, names: Iterable[Any]) -> list[str]:
    """Return lines on blank labels and on classes that may mean unknown."""
    lines = []
    if is_text(column.type):
        blank = pc.sum(pc.equal(pc.utf8_trim_whitespace(column), "")).as_py() or 0
        if blank:
            lines.append(f"  {blank:,} blank labels are unknown")
    doubtful = [name for name in names if PLACEHOLDERS.fullmatch(class_name(name).casefold())]
    if doubtful:
        verb = "is read as a class" if len(doubtful) == 1 else "are read as classes"
        lines.append(
            f"  warning: {', '.join(map(repr, doubtful))} {verb}; "
            "if it means that the class is unknown, "
            f"set unknown_label={doubtful!r}, or unknown = {doubtful!r} in graph.toml"
        )
    return lines


def _class_order(name: Any) -> tuple[bool, float, str]:
    """Sort numbers by value before words, also numbers that are written as text."""
    try:
        value = float(name)
    except ValueError:
        value = np.nan
    is_word = bool(np.isnan(value))
    return is_word, 0.0 if is_word else value, str(name)


def times(column: TableColumn) -> ndarray:
    """Return times as datetime64[us] if they are dates or text, otherwise as numbers."""
    column.require_complete("fill it in, or remove those rows")
    values = decoded(column.values)
    kind = values.type
    # An empty column has no values to tell its kind.
    if is_number(kind) or not len(values):
        return _numeric_times(replace(column, values=values))
    dates = moments(values)
    if dates is not None:
        year = dates.astype("M8[Y]").astype(np.int64) + 1970
        outside = (year < MIN_YEAR) | (year > MAX_YEAR)
        if outside.any():
            row = int(outside.argmax())
            raise InputError(
                f"{column} has the year {year[row]} in row {row + 1}; "
                f"use years from {MIN_YEAR} to {MAX_YEAR}."
            )
        return dates
    example = ""
    if is_text(kind):
        text = pc.utf8_trim_whitespace(values)
        # Whole numbers written as text; up to 18 digits fit into 64 bits.
        if all_match(text, r"^-?\d{1,18}$"):
            return pc.cast(text, pa.int64()).to_numpy()
        example = _first_non_date(values)
    if pa.types.is_temporal(kind):
        raise InputError(
            f"{column} has {kind} values outside the years {MIN_YEAR} to {MAX_YEAR}; "
            "correct those dates."
        )
    raise InputError(
        f"{column} has type {kind}{example}; use dates (2021-07-01), timestamps or numbers."
    )


def _numeric_times(column: TableColumn) -> ndarray:
    """Return times that are numbers, refusing those too large to be exact."""
    numbers = finite_numbers(column)
    # Floats beyond this are rounded; sums and differences of whole numbers beyond it wrap around.
    limit = MAX_TIME
    if pa.types.is_floating(column.type):
        limit = EXACT[column.type.bit_width // 8]
    low = float(numbers.min(initial=0))
    high = float(numbers.max(initial=0))
    if max(-low, high) >= limit:
        raise InputError(
            f"{column} has {column.type} values of {limit:g} or more, too large to "
            "be exact; subtract an offset first."
        )
    return numbers


def _first_non_date(column: pa.ChunkedArray) -> str:
    """Return a phrase on the first text that is not a date."""
    for row, value in enumerate(column.slice(0, 10_000).to_pylist()):
        if moments(pa.array([value])) is None:
            return f" such as {value[:40]!r} in row {row + 1}"
    return ""


def times_like(values: ndarray, unit: str | None, main: ndarray, file: str) -> ndarray:
    """Convert the times of another table to the kind that the classified nodes have.

    `unit` is the unit in which the numbers of the classified nodes count, if they were read as
    dates.
    """
    if not len(values):
        return main[:0]
    # Numbers of the same unit are converted as those of the nodes were.
    if values.dtype.kind != "M" and (own_unit := unit_of(values)) is not None:
        # The same unit as the nodes, whose numbers were read as dates.
        if own_unit == unit:
            values = from_numbers(values, own_unit)
        elif main.dtype.kind != "M" and unit_of(main) != own_unit:
            raise InputError(
                f"the times of {file} look like {own_unit}, "
                f"but those of the nodes are numbers such as {main[0]:g}; use one unit."
            )
    wants_dates = main.dtype.kind == "M"
    is_same_kind = wants_dates == (values.dtype.kind == "M")
    # NaT is not equal to itself.
    if is_same_kind and (values == values).all():
        return values
    kind = "dates" if wants_dates else "numbers"
    if unit:
        kind = f"numbers of {unit}"
    raise InputError(
        f"the times of {file} are not all of the same kind as those of the nodes ({kind}); "
        "use one kind, or no time there (time = '', edge_time='')."
    )


def numbers_as_dates(
    values: ndarray,
    rule: Period,
    others: Sequence[ndarray] = (),
) -> tuple[ndarray, str | None]:
    """Return numbers as dates and their unit, if they count from 1970 or write out a date.

    Few distinct numbers stay numbers, unless `others`, the times of other tables, have many
    distinct numbers in the same unit.
    """
    # Periods of an earlier graph decide: its numbers were not dates, so these are none.
    undated = isinstance(rule, Periods) and not rule.dated
    if values.dtype.kind == "M" or rule == "whole" or undated:
        return values, None
    unit = unit_of(values)
    if unit is None:
        return values, None
    if not (unit.startswith("Y") or rule in UNITS or isinstance(rule, Periods)):
        # Times of other tables that are numbers.
        numeric = (other for other in others if len(other) and other.dtype.kind != "M")
        same_unit = [values, *(other for other in numeric if unit_of(other) == unit)]
        if all(len(np.unique(times)) <= MIN_DISTINCT_TIMES for times in same_unit):
            return values, None
    dates = from_numbers(values, unit)
    if np.isnat(dates).any():
        return values, None
    return dates, unit
