"""Reads points in time: dates, timestamps, ISO text, months, quarters, seconds since 1970."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy import ndarray
from pyarrow import types

Column: TypeAlias = pa.Array | pa.ChunkedArray

STAMP = pa.timestamp("us")
MONTH = r"^(\d{4}-\d{2})$"
QUARTER = r"^(\d{{4}})-?[Qq]{}$"
SCALES = {
    "seconds": 1,
    "milliseconds": 10**3,
    "microseconds": 10**6,
    "nanoseconds": 10**9,
}
SINCE, UNTIL = 10**8, 10**10  # seconds since 1970 that are recognised: 1973 to 2286


def one_array(column: Column) -> pa.Array:
    """Return a column in one piece."""
    if isinstance(column, pa.Array):
        return column
    one = column.combine_chunks()
    # Arrow leaves several chunks where the offsets of text exceed 32 bits.
    return one if isinstance(one, pa.Array) else pa.concat_arrays(one.chunks)


def decoded(column: Column) -> Column:
    """Return a dictionary as its values, and views of text as text: these lack operations."""
    if types.is_string_view(column.type):
        return column.cast(pa.large_string())
    if not types.is_dictionary(column.type):
        return column
    if isinstance(column, pa.Array):
        # Arrow cannot cast a dictionary of views, but the values of the dictionary alone.
        return decoded(column.dictionary).take(column.indices)
    nothing = decoded(pa.array([], column.type.value_type))  # its type holds without chunks, too
    return pa.chunked_array(list(map(decoded, column.chunks)), nothing.type)


def is_text(kind: pa.DataType) -> bool:
    """Return whether a type is one of Arrow's texts."""
    return types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)


def all_match(text: Column, pattern: str) -> bool:
    """Return whether there is text, and all of it matches a regular expression."""
    return bool(pc.all(pc.match_substring_regex(text, pattern)).as_py())


def any_match(text: Column, pattern: str) -> bool:
    """Return whether some text matches a regular expression."""
    return bool(pc.any(pc.match_substring_regex(text, pattern)).as_py())


def moments(column: Column) -> ndarray | None:
    """Return dates, timestamps or ISO text as datetime64[us] in UTC; None for other columns.

    Missing values are NaT.

    Examples:
        >>> moments(pa.array(["2021-07-01", "2021-07-01T12:00:00+02:00"])).astype(str).tolist()
        ['2021-07-01T00:00:00.000000', '2021-07-01T10:00:00.000000']
        >>> moments(pa.array(["2021-Q3", "2021Q4"])).astype("M8[D]").astype(str).tolist()
        ['2021-07-01', '2021-10-01']
    """
    column = decoded(column)
    kind = column.type
    try:
        if types.is_timestamp(kind):
            # Nanoseconds may be cut off, but distant years must not wrap around.
            zoned = pa.timestamp("us", kind.tz)
            column = column.cast(zoned, safe=kind.unit != "ns").cast(STAMP)
        elif types.is_date(kind):
            column = column.cast(STAMP)
        elif is_text(kind):
            column = _from_text(column.cast(pa.string()))
        else:
            return None
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    return one_array(column).to_numpy(zero_copy_only=False).astype("M8[us]")


def _from_text(column: Column) -> pa.Array:
    text = pc.utf8_trim_whitespace(one_array(column))
    if any_match(text, r"^[-+]?\d+$"):
        raise pa.ArrowInvalid("whole numbers are no dates")  # Arrow would read 2021 as a date
    # Value by value: a part of a column is read as the whole column is.
    text = pc.replace_substring_regex(text, MONTH, r"\1-01")
    for quarter, month in enumerate(("01", "04", "07", "10"), start=1):
        text = pc.replace_substring_regex(text, QUARTER.format(quarter), rf"\1-{month}-01")
    text = pc.replace_substring_regex(text, r"^(\d{4}-\d{2}-\d{2}) (\d)", r"\1T\2")
    # Nanoseconds are cut off.
    text = pc.replace_substring_regex(text, r"(:\d\d\.\d{6})\d+", r"\1")
    text = pc.replace_substring_regex(text, " UTC$", "Z")  # as BigQuery writes it
    # Arrow casts text with a time zone and text without one in different ways.
    has_zone = pc.match_substring_regex(text, r"T.*(Z|[+-]\d{2}(:?\d{2})?)$")
    none = pa.scalar(None, text.type)
    utc = pa.timestamp("us", "UTC")
    zoned = pc.if_else(has_zone, text, none).cast(utc).cast(STAMP)
    local = pc.if_else(has_zone, none, text).cast(STAMP)
    return pc.coalesce(zoned, local)


def unit_of(values: ndarray) -> str | None:
    """Return the unit in which numbers count from 1970, or "YYYYMMDD", "YYYYMM"; None if neither.

    Examples:
        >>> [unit_of(np.array([number])) for number in (1_600_000_000, 20210701, 2019)]
        ['seconds', 'YYYYMMDD', None]
    """
    low = values.min()
    high = values.max()
    # The range of one unit does not overlap with that of the next.
    for unit, scale in SCALES.items():
        if low >= SINCE * scale and high < UNTIL * scale:
            return unit
    if low < 0 or high >= 10**8 or (values % 1).any():
        return None
    unit = "YYYYMM" if high < 10**6 else "YYYYMMDD"
    year, month, day = _digits(values, unit)
    is_year = (year >= 1800) & (year < 2200)
    is_month = (month >= 1) & (month <= 12)
    is_day = (day >= 1) & (day <= 31)
    return unit if (is_year & is_month & is_day).all() else None


def _digits(values: ndarray, unit: str) -> tuple[ndarray, ...]:
    """Return year, month and day of numbers YYYYMMDD, or YYYYMM with the first day."""
    whole = values.astype(np.int64)
    if unit == "YYYYMM":
        whole = 100 * whole + 1
    return whole // 10_000, whole // 100 % 100, whole % 100


def from_numbers(values: ndarray, unit: str) -> ndarray:
    """Return numbers in a unit of `unit_of` as datetime64[us]; impossible days become NaT."""
    values = values.astype(np.float64 if values.dtype.kind == "f" else np.int64)
    if unit in SCALES:
        scale = SCALES[unit]
        # Nanoseconds are divided, coarser units are multiplied.
        whole = values // 1_000 if scale == 10**9 else values * (10**6 // scale)
        return np.floor(whole).astype(np.int64).view("M8[us]")
    year, month, day = _digits(values, unit)
    # Months since January 1970.
    first = (12 * (year - 1970) + month - 1).astype("M8[M]")
    date = first.astype("M8[D]") + (day - 1)
    # February 30 has run into March, so its month differs.
    date[date.astype("M8[M]") != first] = "NaT"
    return date.astype("M8[us]")


def parse(text: str) -> np.datetime64 | None:
    """Return the date that a text writes, None if it is no date; a year is none."""
    out = moments(pa.array([text]))
    return None if out is None or np.isnat(out[0]) else out[0]
