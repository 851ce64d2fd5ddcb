"""Reads points in time: dates, timestamps, ISO text, months, quarters, seconds since 1970."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

STAMP = pa.timestamp("us")
MONTH = r"^(\d{4}-\d{2})$"
QUARTER = r"^(\d{{4}})-?[Qq]{}$"
SCALES = {"seconds": 1, "milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}
SINCE, UNTIL = 10**8, 10**10  # seconds since 1970 that are recognised: 1973 to 2286


def one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column in one piece."""
    if isinstance(column, pa.Array):
        return column
    one = column.combine_chunks()
    # Arrow leaves several chunks where the offsets of text exceed 32 bits.
    return one if isinstance(one, pa.Array) else pa.concat_arrays(one.chunks)


def decoded(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return a dictionary as its values, and views of text as text: these lack operations."""
    if pa.types.is_string_view(column.type):
        return column.cast(pa.large_string())
    if not pa.types.is_dictionary(column.type):
        return column
    if isinstance(column, pa.Array):
        # Arrow cannot cast a dictionary of views, but the values of the dictionary alone.
        return decoded(column.dictionary).take(column.indices)
    nothing = decoded(pa.array([], column.type.value_type))  # its type holds without chunks, too
    return pa.chunked_array(list(map(decoded, column.chunks)), nothing.type)


def is_text(kind: pa.DataType) -> bool:
    """Return whether a type is one of Arrow's texts."""
    return (
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def all_match(text: pa.Array | pa.ChunkedArray, pattern: str) -> bool:
    """Return whether there is text, and all of it matches a regular expression."""
    return bool(pc.all(pc.match_substring_regex(text, pattern)).as_py())


def any_match(text: pa.Array | pa.ChunkedArray, pattern: str) -> bool:
    """Return whether some text matches a regular expression."""
    return bool(pc.any(pc.match_substring_regex(text, pattern)).as_py())


def moments(column: pa.Array | pa.ChunkedArray) -> np.ndarray | None:
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
        if pa.types.is_timestamp(kind):
            # Nanoseconds may be cut off, but distant years must not wrap around.
            column = column.cast(pa.timestamp("us", kind.tz), safe=kind.unit != "ns").cast(STAMP)
        elif pa.types.is_date(kind):
            column = column.cast(STAMP)
        elif is_text(kind):
            column = _from_text(column.cast(pa.string()))
        else:
            return None
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    return one_array(column).to_numpy(zero_copy_only=False).astype("M8[us]")


def _from_text(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    text = pc.utf8_trim_whitespace(one_array(column))
    if any_match(text, r"^[-+]?\d+$"):
        raise pa.ArrowInvalid("whole numbers are no dates")  # Arrow would read 2021 as a date
    # Value by value: a part of a column is read as the whole column is.
    text = pc.replace_substring_regex(text, MONTH, r"\1-01")
    for quarter, month in enumerate(("01", "04", "07", "10"), start=1):
        text = pc.replace_substring_regex(text, QUARTER.format(quarter), rf"\1-{month}-01")
    text = pc.replace_substring_regex(text, r"^(\d{4}-\d{2}-\d{2}) (\d)", r"\1T\2")
    zoned = pc.match_substring_regex(text, r"T.*(Z|[+-]\d{2}(:?\d{2})?)$")
    # Arrow casts text with a time zone and text without one in different ways.
    with_zone = pc.if_else(zoned, text, pa.scalar(None, pa.string()))
    without = pc.if_else(zoned, pa.scalar(None, pa.string()), text)
    return pc.coalesce(with_zone.cast(pa.timestamp("us", "UTC")).cast(STAMP), without.cast(STAMP))


def unit_of(values: np.ndarray) -> str | None:
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
    if low < 0 or high >= 10**8:
        return None
    whole = values.astype(np.int64)
    if (whole != values).any():
        return None
    name = "YYYYMMDD"
    year = 10_000
    if high < 10**6:
        name = "YYYYMM"
        year = 100
        whole = 100 * whole + 1  # the first day of the month
    # Digits YYYYMMDD.
    month = whole // 100 % 100
    day = whole % 100
    is_date = (month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)
    return name if 1800 * year <= low and high < 2200 * year and is_date.all() else None


def from_numbers(values: np.ndarray, unit: str) -> np.ndarray:
    """Return numbers in a unit of `unit_of` as datetime64[us]; impossible days become NaT."""
    values = values.astype(np.float64 if values.dtype.kind == "f" else np.int64)
    if unit in SCALES:
        scale = SCALES[unit]
        # Nanoseconds are divided, coarser units are multiplied.
        whole = values // 1_000 if scale == 10**9 else values * (10**6 // scale)
        return np.floor(whole).astype(np.int64).view("M8[us]")
    whole = values.astype(np.int64)
    if unit == "YYYYMM":
        whole = 100 * whole + 1  # the first day of the month
    year = whole // 10_000
    month = whole // 100 % 100
    day = whole % 100
    # Months since January 1970.
    first = (12 * (year - 1970) + month - 1).astype("M8[M]")
    date = first.astype("M8[D]") + (day - 1)
    # February 30 has run into March, so its month differs.
    return np.where(date.astype("M8[M]") == first, date, np.datetime64("NaT")).astype("M8[us]")


def parse(text: str) -> np.datetime64 | None:
    """Return the date that a text writes, None if it is no date; a year is none."""
    out = moments(pa.array([text]))
    return None if out is None or np.isnat(out[0]) else out[0]
