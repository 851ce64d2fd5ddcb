"""Points in time as people write them: dates, timestamps with zones, ISO text, months, quarters, seconds since 1970."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

STAMP = pa.timestamp("us")
MONTH, QUARTER = r"^(\d{4}-\d{2})$", r"^(\d{{4}})-?[Qq]{}$"
SCALES = {"seconds": 1, "milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}
SINCE, UNTIL = 10**8, 10**10  # seconds since 1970 that are taken for such: 1973 to 2286


def one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column in one piece."""
    if isinstance(column, pa.Array):
        return column
    one = column.combine_chunks()
    return one if isinstance(one, pa.Array) else pa.concat_arrays(one.chunks)


def is_text(kind: pa.DataType) -> bool:
    """Any of Arrow's kinds of text."""
    return (
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def moments(column: pa.Array | pa.ChunkedArray) -> np.ndarray | None:
    """Dates, timestamps or ISO text as datetime64[us] in UTC, NaT where missing; None if it is nothing of the kind.

    Examples:
        >>> moments(pa.array(["2021-07-01", "2021-07-01T12:00:00+02:00"])).astype(str).tolist()
        ['2021-07-01T00:00:00.000000', '2021-07-01T10:00:00.000000']
        >>> moments(pa.array(["2021-Q3", "2021Q4"])).astype("M8[D]").astype(str).tolist()
        ['2021-07-01', '2021-10-01']
    """
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    try:
        if pa.types.is_timestamp(kind):
            # Nanoseconds may be cut off, but years far away must not wrap around.
            column = column.cast(pa.timestamp("us", kind.tz), safe=kind.unit != "ns").cast(STAMP)
        elif pa.types.is_date(kind):
            column = column.cast(STAMP)
        elif is_text(kind):
            column = _from_text(column.cast(pa.string()))
        else:
            return None
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    out = (
        column.to_numpy(zero_copy_only=False) if isinstance(column, pa.Array) else column.to_numpy()
    )
    return out.astype("M8[us]")


def _from_text(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    text = pc.utf8_trim_whitespace(one_array(column))
    if pc.any(pc.match_substring_regex(text, r"^[-+]?\d+$")).as_py():
        raise pa.ArrowInvalid("whole numbers are no dates")  # Arrow would read 2021 as a date
    # Value by value, so that a piece of a column reads as the whole of it does.
    text = pc.replace_substring_regex(text, MONTH, r"\1-01")
    for quarter, month in enumerate(("01", "04", "07", "10"), start=1):
        text = pc.replace_substring_regex(text, QUARTER.format(quarter), rf"\1-{month}-01")
    text = pc.replace_substring_regex(text, r"^(\d{4}-\d{2}-\d{2}) (\d)", r"\1T\2")
    zoned = pc.match_substring_regex(text, r"T.*(Z|[+-]\d{2}(:?\d{2})?)$")
    with_zone = pc.if_else(zoned, text, pa.scalar(None, pa.string()))
    without = pc.if_else(zoned, pa.scalar(None, pa.string()), text)
    return pc.coalesce(with_zone.cast(pa.timestamp("us", "UTC")).cast(STAMP), without.cast(STAMP))


def unit_of(values: np.ndarray) -> str | None:
    """The unit in which whole or broken numbers count from 1970, or "YYYYMMDD", "YYYYMM"; None if they look otherwise.

    Examples:
        >>> unit_of(np.array([1_600_000_000])), unit_of(np.array([20210701])), unit_of(np.array([2019, 2021]))
        ('seconds', 'YYYYMMDD', None)
    """
    low, high = values.min(), values.max()
    for unit, scale in SCALES.items():
        if low >= SINCE * scale and high < UNTIL * scale:
            return unit
    if low < 0 or high >= 10**8:
        return None
    whole = values.astype(np.int64)
    if (whole != values).any():
        return None
    month = whole % 100 if high < 10**6 else whole // 100 % 100
    day = np.ones_like(whole) if high < 10**6 else whole % 100
    calendar = (month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)
    for name, digits in (("YYYYMMDD", 10_000), ("YYYYMM", 100)):
        if 1800 * digits <= low and high < 2200 * digits and calendar.all():
            return name
    return None


def from_numbers(values: np.ndarray, unit: str) -> np.ndarray:
    """Numbers in a unit of `unit_of` as datetime64[us]; a day that does not exist becomes NaT."""
    values = values.astype(np.float64 if values.dtype.kind == "f" else np.int64)
    if unit in SCALES:
        scale = SCALES[unit]
        whole = values // 1_000 if scale == 10**9 else values * (10**6 // scale)
        return np.floor(whole).astype(np.int64).view("M8[us]")
    whole = values.astype(np.int64)
    year, month = (
        (whole // 10_000, whole // 100 % 100) if unit == "YYYYMMDD" else (whole // 100, whole % 100)
    )
    first = (12 * (year - 1970) + month - 1).astype("M8[M]")
    date = first.astype("M8[D]") + (whole % 100 - 1 if unit == "YYYYMMDD" else 0)
    return np.where(date.astype("M8[M]") == first, date, np.datetime64("NaT")).astype("M8[us]")


def parse(text: str) -> np.datetime64 | None:
    """One date as text, None if it is none; a year is none."""
    if re.fullmatch(r"\s*[-+]?\d+\s*", text):
        return None
    out = moments(pa.array([text]))
    return None if out is None or np.isnat(out[0]) else out[0]
