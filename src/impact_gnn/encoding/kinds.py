"""The kinds of feature columns, and their values as each kind."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy import ndarray
from pyarrow import types

from impact_gnn.checks import InputError
from impact_gnn.encoding.moments import (
    Column,
    any_match,
    decoded,
    is_text,
    moments,
    one_array,
    parse,
)

OUTCOME = "outcome"
KINDS = ("number", "category", "text", "date", "vector", OUTCOME, "ignore")
"""A number or truth value, one of a few values, words, a date, a list of numbers, nothing.

An outcome, such as points or a position, is known only after the event: `history` alone reads it.
"""

MISSING = ("", "NA", "N/A", "#N/A", "NaN", "nan", "null", "NULL", r"\N")
"""Text that means missing, in a file and in a category."""

NUMBER = r"^[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?$"
FRACTION_ZEROS = r"(\.\d*[1-9])0+(Z?)$|\.0*(Z?)$"
COMMA = r"^[-+]?\d+,\d+$"
TICKS = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}  # of a duration, per second
LOOK = 10_000  # values that a guess is based on
MOSTLY = 0.8  # share of numbers from which a column of text was probably meant as numbers
WORDS = 3.0  # words in a value, on average, from which it is text
NAMELIKE = 0.5  # share of distinct values above which short text names things


def guess_kind(name: str, column: Column) -> tuple[str, str]:
    """Return the most likely kind of a column, and the reason if it is ignored.

    Examples:
        >>> guess_kind("age", pa.array([1, 2]))
        ('number', '')
        >>> guess_kind("ok", pa.array(["yes", "no", "yes", "no"]))
        ('category', '')
    """
    kind = column.type
    if column.null_count == len(column):
        return "ignore", "it is empty"
    if types.is_dictionary(kind):
        return "category", ""
    if is_number(kind) or types.is_boolean(kind) or types.is_duration(kind):
        # Numbers of rows are distinct too, but so are measurements: the name decides.
        is_serial = re.fullmatch(r"(?i)\s*|unnamed: \d+|index|(.*_)?id", name)
        if is_serial and types.is_integer(kind) and _distinct(column[:LOOK]) > NAMELIKE:
            return "ignore", "it numbers the rows"
        return "number", ""
    if types.is_date(kind) or types.is_timestamp(kind):
        return "date", ""
    if is_list(kind) and is_number(kind.value_type):
        return "vector", ""
    if not is_text(kind):
        return "ignore", f"its type is {kind}"
    # Text is a date, words, names of things, or else a category.
    values = column[:LOOK].drop_null()
    if len(values) == 0:
        return "category", ""
    if moments(values) is not None:
        return "date", ""
    words = pc.count_substring_regex(values, r"\S+")
    if pc.mean(words).as_py() >= WORDS:
        return "text", ""
    if _distinct(values) > NAMELIKE and len(values) > 20:
        return "ignore", "nearly every value is different"
    return "category", ""


def typed(column: Column) -> Column:
    """Return text as numbers or truth values if all its values are; other columns as they are.

    A word in another row has made text of such a column. Text with leading zeros names something.

    Examples:
        >>> columns = [["1", "2"], ["1", "2.5"], ["01", "2"], ["true"]]
        >>> [str(typed(pa.array(column)).type) for column in columns]
        ['int64', 'double', 'string', 'bool']
    """
    if not is_text(column.type):
        return column
    text = pc.utf8_trim_whitespace(column)
    if any_match(text, r"^-?0\d"):
        return column
    for kind in (pa.int64(), pa.float64(), pa.bool_()):
        try:
            return text.cast(kind)
        except pa.ArrowInvalid:
            continue
    return column


def count_misfits(name: str, kind: str, past: Column, later: Column) -> int:
    """Count `later` values that do not fit the kind of the `past` ones; missing ones fit."""
    later = later.drop_null()
    if kind in ("number", "date") and is_text(later.type):
        read = numbers if kind == "number" else dates
        return int(np.isnan(read(name, later)).sum())
    if kind == "vector" and is_list(later.type):
        # The most frequent length of past lists.
        width = pc.mode(pc.list_value_length(past))
        wanted = width[0]["mode"] if len(width) else None
        is_other = pc.not_equal(pc.list_value_length(later), wanted)
        return pc.sum(is_other).as_py() or 0
    if kind == "category":
        # Missing values are no category.
        distinct = texts(name, past).unique().to_pylist()
        known = {value_name(value) for value in distinct if value}
        counts = pc.value_counts(texts(name, later)).to_pylist()
        return sum(one["counts"] for one in counts if value_name(one["values"]) not in known)
    return 0


def _distinct(column: Column) -> float:
    return pc.count_distinct(column).as_py() / max(len(column), 1)


def is_number(kind: pa.DataType) -> bool:
    """Return whether a type is one of integers, floats or decimals."""
    return types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)


def is_list(kind: pa.DataType) -> bool:
    """Return whether a type is one of Arrow's lists."""
    return types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)


def numbers(name: str, column: Column) -> ndarray:
    """Return a column as floats; missing, infinite and non-numeric values are NaN."""
    column = decoded(column)
    kind = column.type
    if types.is_boolean(kind):
        column = column.cast(pa.uint8())
    elif types.is_duration(kind):  # in seconds, whatever its unit
        ticks = column.cast(pa.int64())
        ticks = ticks.cast(pa.float64(), safe=False)
        column = pc.divide(ticks, TICKS[kind.unit])
    elif types.is_null(kind) or types.is_decimal(kind):
        column = column.cast(pa.float64())
    elif is_text(kind):
        column = _numbers_in(pc.utf8_trim_whitespace(column))
    elif not is_number(kind):
        raise retyped(name, column, "a number")
    out = one_array(column).to_numpy(zero_copy_only=False)
    dtype = np.float32 if out.dtype in (np.float16, np.float32) else np.float64
    out = out.astype(dtype, copy=False)
    is_finite = np.isfinite(out)
    return out if is_finite.all() else np.where(is_finite, out, np.nan)


def _numbers_in(text: Column) -> Column:
    """Return numbers and truth values that are written as text, null for other text."""
    none = pa.scalar(None, text.type)
    # Other text becomes null here, because a cast of it would fail.
    number = pc.if_else(pc.match_substring_regex(text, NUMBER), text, none)
    number = pc.replace_substring_regex(number, r"^\+", "").cast(pa.float64())
    truths = pa.array(["false", "true"], text.type)
    # 0 for false, 1 for true, null for other text.
    truth = pc.index_in(pc.utf8_lower(text), value_set=truths)
    return pc.coalesce(number, truth.cast(pa.float64()))


def texts(name: str, column: Column) -> pa.Array:
    """Return a column as text; whole numbers have no point, so that 1 and 1.0 are one value."""
    column = decoded(column)
    kind = column.type
    # Value by value: a part of a column is read as the whole column is.
    try:
        text = one_array(column.cast(pa.large_string()))
        if types.is_temporal(kind) or types.is_decimal(kind):  # one text for all units
            text = pc.replace_substring_regex(text, FRACTION_ZEROS, r"\1\2\3")
        if types.is_temporal(kind):
            text = pc.replace_substring_regex(text, r" 00:00:00Z?$", "")
        if types.is_floating(kind):
            values = one_array(column)
            # Larger ones do not fit into 64 bits.
            fits_integer = pc.less(pc.abs(values), 2.0**62)
            is_whole = pc.equal(pc.floor(values), values)
            is_integer = pc.and_(fits_integer, is_whole)
            integers = pc.if_else(is_integer, values, None).cast(pa.int64())
            # Whole numbers without a point, the others as they were.
            text = pc.coalesce(integers.cast(pa.large_string()), text)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise retyped(name, column, "text") from None
    return text


def value_name(text: str) -> str:
    """Return a value of a category as text, the same for text, numbers and truth values.

    Examples:
        >>> [value_name(text) for text in ("TRUE", "1.0", "1e1", "007", " red ")]
        ['true', '1', '10', '007', 'red']
    """
    text = text.strip()
    if text in ("True", "False", "TRUE", "FALSE"):
        return text.lower()
    # Written as 1.0 or 1e1; up to 15 digits floats are exact.
    if re.fullmatch(r"-?[1-9]\d{0,14}\.0+|-?[1-9](\.\d+)?[eE]\+?\d", text):
        number = float(text)
        if number.is_integer():
            return str(int(number))
    return text


def number_name(text: str) -> str:
    """Return a number in one spelling, and other text as it is.

    Examples:
        >>> [number_name(text) for text in ("1.50", "+2", "1e5", "007", "red")]
        ['1.5', '2', '100000', '007', 'red']
    """
    # More digits than a float holds, or zeros in front, are names.
    has_zeros = re.match(r"[-+]?0\d", text)
    if len(text) > 15 or has_zeros or not re.match(NUMBER, text):
        return text
    return f"{float(text):.15g}"


def whole(column: Column) -> Column | None:
    """Return whole numbers as int64, also if gaps made them floats; None for other columns."""
    if not is_number(column.type) or types.is_decimal(column.type):
        return None
    try:
        return column.cast(pa.int64())
    except pa.ArrowInvalid:
        return None


def dates(name: str, column: Column) -> ndarray:
    """Return dates in days since 1970; missing values and text that is no date are NaN."""
    out = moments(column)
    if out is None and is_text(column.type):
        # Value by value: distinct texts are parsed once, and rows look up theirs.
        coded = one_array(column).dictionary_encode()
        parsed = [parse(text) for text in coded.dictionary.to_pylist()]
        # A missing value has no code; it looks up one more entry.
        code = pc.fill_null(coded.indices, len(parsed))
        out = np.array([*parsed, None], "M8[us]")[np.asarray(code)]
    if out is None:
        raise retyped(name, column, "a date")
    days = out.astype(np.int64) / 86_400e6  # from microseconds
    return np.where(np.isnat(out), np.nan, days)


def vectors(name: str, column: Column, width: int | None = None) -> ndarray:
    """Return lists of numbers of one length as a matrix; missing ones are NaN.

    With a `width`, lists of another length are missing.
    """
    if not is_list(column.type) or not is_number(column.type.value_type):
        raise retyped(name, column, "a list of numbers")
    column = one_array(column)
    if width is not None:
        # Missing lists do not fit either.
        fits = pc.fill_null(pc.equal(pc.list_value_length(column), width), False)
        column = pc.if_else(fits, column, pa.scalar(None, column.type))
    lengths = pc.list_value_length(column).drop_null().unique().to_pylist()
    if len(lengths) > 1:
        raise InputError(
            f"column '{name}' has lists of {len(lengths)} different lengths; "
            "use lists of the same length for all nodes."
        )
    if width is None:
        width = lengths[0] if lengths else 0
    present = np.flatnonzero(column.is_valid())
    out = np.full((len(column), width), np.nan, np.float32)
    # Values of all present lists one after the other, [present · width].
    values = numbers(name, pc.list_flatten(column.drop_null()))
    # float32 holds no larger numbers, and these count as wild anyway
    limit = float(np.finfo(np.float32).max)
    out[present] = values.clip(-limit, limit).reshape(len(present), width)
    return out


def parsed_numbers(column: Column, known: ndarray | None = None) -> tuple[pa.ChunkedArray, int]:
    """Return text as numbers, and how many other values become missing.

    A comma is the decimal mark where every number of the rows in the mask `known` (None for all)
    has one, or no mark at all. If no known row has a value, all rows decide.
    """
    text = pc.utf8_trim_whitespace(column.cast(pa.large_string()))
    # Text that means missing becomes null.
    is_missing = pc.is_in(text, pa.array(MISSING, text.type))
    text = pc.if_else(is_missing, None, text)
    visible = text if known is None else text.filter(pa.array(known))
    if visible.null_count == len(visible):
        visible = text
    if _has_decimal_commas(visible):
        text = pc.replace_substring(text, ",", ".")
    out = _numbers_in(text)
    lost = out.null_count - text.null_count
    return pa.chunked_array([one_array(out)]), lost


def _has_decimal_commas(text: Column) -> bool:
    """Return whether some numbers have a decimal comma and none a point."""
    with_point = text.filter(pc.match_substring(text, "."))
    return any_match(text, COMMA) and not any_match(with_point, NUMBER)


def looks_like_numbers(name: str, column: Column) -> str:
    """Return a sentence on the value that makes text of a column of numbers, "" if none does."""
    if not is_text(column.type):
        return ""
    # Missing values count as numbers below.
    text = pc.fill_null(pc.utf8_trim_whitespace(column), "0")
    if any_match(text, r"^[-+]?0\d"):  # these are codes
        return ""
    is_plain = pc.match_substring_regex(text, NUMBER)
    has_comma = pc.match_substring_regex(text, COMMA)
    is_number = pc.or_(is_plain, has_comma)
    num_missing = column.null_count
    # Values that are not missing, and numbers among them.
    known = len(text) - num_missing
    count = (pc.sum(is_number).as_py() or 0) - num_missing
    row = pc.index(is_plain, False).as_py()
    if row < 0 or count < max(MOSTLY * known, 2):
        return ""
    value = text[row].as_py()
    content = "has numbers" if count == known else "is mostly numbers"
    fix = "write a number or leave it empty"
    if has_comma[row].as_py():
        fix = f"write {value.replace(',', '.')} instead"
    return (
        f"column '{name}' {content}, but row {row + 1} is {value[:40]!r}; "
        f'{fix}, or declare the kind: columns = {{{name} = "number"}}'
    )


def retyped(name: str, column: Column, wanted: str) -> InputError:
    """Return the error for a column of another kind than wanted, with its first value."""
    try:
        first = column.drop_null()[:1].to_pylist()
    except (OverflowError, ValueError):  # a date that Python does not have
        first = []
    example = f" such as {str(first[0])[:40]!r}" if first else ""
    return InputError(
        f"column '{name}' has type {column.type}{example}, not {wanted}; "
        "fix the values or leave the column out."
    )
