"""What a column may be taken for, and reading its values as that."""

from __future__ import annotations

import re
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from impact_gnn.checks import InputError
from impact_gnn.encoding.moments import is_text, moments, one_array

KINDS = ("number", "category", "text", "date", "vector", "ignore")
"""A number (or truth value), one of a few values, words, a date, a list of numbers (an embedding), nothing."""

MISSING = ("", "NA", "N/A", "#N/A", "NaN", "nan", "null", "NULL")
"""Text that says that there is nothing, in a file and in a category."""

NUMBER = r"^[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?$"
COMMA = r"^[-+]?\d+,\d+$"
LOOK = 10_000  # values that a guess looks at
MOSTLY = 0.8  # share of numbers from which a column of text was probably meant as such
WORDS = 3.0  # words in a value, on average, from which it is text
NAMELIKE = (
    0.5  # share of distinct values above which short text names things and says little about them
)

Column: TypeAlias = pa.Array | pa.ChunkedArray


def guess_kind(name: str, column: Column) -> tuple[str, str]:
    """What a column is most likely meant as, and why if it is left out.

    Examples:
        >>> guess_kind("age", pa.array([1, 2])), guess_kind("ok", pa.array(["yes", "no", "yes", "no"]))
        (('number', ''), ('category', ''))
    """
    kind = column.type
    if column.null_count == len(column):
        return "ignore", "it is empty"
    if pa.types.is_dictionary(kind):
        return "category", ""
    if is_number(kind) or pa.types.is_boolean(kind) or pa.types.is_duration(kind):
        serial = name.strip() == "" or re.fullmatch(r"(?i)unnamed: \d+|index|(.*_)?id", name)
        if serial and pa.types.is_integer(kind) and _distinct(column.slice(0, LOOK)) > NAMELIKE:
            return "ignore", "it numbers the rows"
        return "number", ""
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return "date", ""
    if is_list(kind):
        return ("vector", "") if is_number(kind.value_type) else ("ignore", f"it holds {kind}")
    if not is_text(kind):
        return "ignore", f"it holds {kind}"
    seen = column.slice(0, LOOK).drop_null()
    if len(seen) == 0:
        return "category", ""
    if moments(seen) is not None:
        return "date", ""
    if pc.mean(pc.count_substring_regex(seen, r"\S+")).as_py() >= WORDS:
        return "text", ""
    if _distinct(seen) > NAMELIKE and len(seen) > 20:
        return "ignore", "nearly every value is different"
    return "category", ""


def typed(column: Column) -> Column:
    """Text of which every value is a number, or a truth value, as such; other columns as they are.

    So a column means the same whether or not a word elsewhere has made text of all of it. Text with
    leading zeros names something.

    Examples:
        >>> [str(typed(pa.array(values)).type) for values in (["1", "2"], ["1", "2.5"], ["01", "2"], ["true"])]
        ['int64', 'double', 'string', 'bool']
    """
    if not is_text(column.type):
        return column
    text = pc.utf8_trim_whitespace(column)
    if pc.any(pc.match_substring_regex(text, r"^-?0\d")).as_py():
        return column
    for kind in (pa.int64(), pa.float64(), pa.bool_()):
        try:
            return text.cast(kind)
        except pa.ArrowInvalid:
            continue
    return column


def count_misfits(name: str, kind: str, past: Column, later: Column) -> int:
    """How many `later` values are not of the kind that the `past` ones are; missing ones fit."""
    later = later.drop_null()
    if kind in ("number", "date") and is_text(later.type):
        values = numbers(name, later) if kind == "number" else dates(name, later)
        return int(np.isnan(values).sum())
    if kind == "vector" and is_list(later.type):
        width = pc.mode(pc.list_value_length(past))
        wanted = width[0]["mode"] if len(width) else None
        return int(pc.sum(pc.not_equal(pc.list_value_length(later), wanted)).as_py() or 0)
    if kind == "category":
        known = {value_name(value) for value in texts(name, past).unique().to_pylist() if value}
        counts = pc.value_counts(texts(name, later)).to_pylist()
        return sum(one["counts"] for one in counts if value_name(one["values"]) not in known)
    return 0


def _distinct(column: Column) -> float:
    return pc.count_distinct(column).as_py() / max(len(column), 1)


def is_number(kind: pa.DataType) -> bool:
    """Whole, broken or decimal."""
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def is_list(kind: pa.DataType) -> bool:
    """Any of Arrow's kinds of lists."""
    return (
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def numbers(name: str, column: Column) -> np.ndarray:
    """A column as floats, NaN where it is missing; infinity, and text that is no number, count as missing."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if pa.types.is_boolean(kind):
        column = column.cast(pa.uint8())
    elif pa.types.is_duration(kind):  # in seconds, whatever its unit
        units = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
        column = pc.divide(column.cast(pa.int64()).cast(pa.float64(), safe=False), units[kind.unit])
    elif pa.types.is_null(kind) or pa.types.is_decimal(kind):
        column = column.cast(pa.float64())
    elif is_text(kind):
        column = _numbers_in(pc.utf8_trim_whitespace(column))
    elif not is_number(kind):
        raise retyped(name, column, "a number")
    out = (
        column.to_numpy(zero_copy_only=False) if isinstance(column, pa.Array) else column.to_numpy()
    )
    if out.dtype not in (np.float32, np.float64):
        out = out.astype(np.float32 if out.dtype == np.float16 else np.float64)
    return out if np.isfinite(out).all() else np.where(np.isfinite(out), out, np.nan)


def _numbers_in(text: Column) -> Column:
    """Numbers and truth values that are written as text; null where there is none."""
    none = pa.scalar(None, text.type)
    number = pc.if_else(pc.match_substring_regex(text, NUMBER), text, none)
    number = pc.replace_substring_regex(number, r"^\+", "").cast(pa.float64())
    small = pc.utf8_lower(text)
    is_truth = pc.is_in(small, value_set=pa.array(["true", "false"], text.type))
    truth = pc.equal(small, pa.scalar("true", text.type)).cast(pa.float64())
    return pc.coalesce(number, pc.if_else(is_truth, truth, pa.scalar(None, pa.float64())))


def texts(name: str, column: Column) -> pa.Array:
    """A column as text, whatever it holds; whole numbers without a point, so that 1 and 1.0 are one value."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    # Value by value, so that a piece of a column reads as the whole of it does.
    try:
        text = one_array(column.cast(pa.large_string()))
        if pa.types.is_temporal(kind):  # one text, whatever the unit
            text = pc.replace_substring_regex(text, r"(\.\d*?)0+(Z?)$", r"\1\2")
            text = pc.replace_substring_regex(text, r"\.(Z?)$", r"\1")
            text = pc.replace_substring_regex(text, r" 00:00:00Z?$", "")
        if pa.types.is_floating(kind):
            column = one_array(column)
            numbered = whole(pc.if_else(_is_whole(column), column, None))
            assert numbered is not None
            text = pc.coalesce(numbered.cast(pa.large_string()), text)
        if pa.types.is_decimal(kind):
            text = pc.replace_substring_regex(text, r"(\.\d*?)0+$", r"\1")
            text = pc.replace_substring_regex(text, r"\.$", "")
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise retyped(name, column, "text") from None
    return text


def _is_whole(column: pa.Array) -> pa.Array:
    """Which floats are whole numbers that int64 holds."""
    inside = pc.less(pc.abs(column), 2.0**62)
    return pc.and_(inside, pc.equal(pc.floor(column), column))


def value_name(text: str) -> str:
    """A value of a category as one text, whether it came as text, a number or a truth value.

    Examples:
        >>> [value_name(text) for text in ("True", "1.0", "1e1", "007", " red ")]
        ['true', '1', '10', '007', 'red']
    """
    text = text.strip()
    if text in ("True", "False"):
        return text.lower()
    if re.fullmatch(r"-?[1-9]\d{0,14}\.0+|-?[1-9](\.\d+)?[eE]\+?\d", text):
        number = float(text)
        return str(int(number)) if number.is_integer() else text
    return text


def whole(column: Column) -> Column | None:
    """Whole numbers as int64, also such that became floats because of a gap elsewhere; None for other columns."""
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        return None
    try:
        return pc.cast(column, pa.int64())
    except pa.ArrowInvalid:
        return None


def dates(name: str, column: Column) -> np.ndarray:
    """A column of dates in days since 1970, NaN where it is missing or text that is no date."""
    out = moments(column)
    if out is None and is_text(column.type):  # value by value
        coded = one_array(column).dictionary_encode()
        each = [moments(pa.array([value])) for value in coded.dictionary.to_pylist()]
        known = np.array(
            [np.datetime64("NaT") if one is None else one[0] for one in each], "M8[us]"
        )
        place = np.asarray(pc.fill_null(coded.indices, len(known)))
        out = np.append(known, np.datetime64("NaT"))[place]
    if out is None:
        raise retyped(name, column, "a date")
    return np.where(np.isnat(out), np.nan, out.astype(np.int64) / 86_400e6)


def vectors(name: str, column: Column, width: int | None = None) -> np.ndarray:
    """A column of lists of numbers, all of one length, as a matrix; missing ones are NaN.

    Given a `width`, lists of another length are missing.
    """
    if not is_list(column.type) or not is_number(column.type.value_type):
        raise retyped(name, column, "a list of numbers")
    column = one_array(column)
    if width is not None:
        fits = pc.fill_null(pc.equal(pc.list_value_length(column), width), False)
        column = pc.if_else(fits, column, pa.scalar(None, column.type))
    lengths = pc.unique(pc.list_value_length(column).drop_null())
    if len(lengths) > 1:
        raise InputError(
            f"column '{name}' holds lists of {len(lengths)} lengths; give all nodes as many numbers."
        )
    if width is None:
        width = lengths[0].as_py() if len(lengths) else 0
    present = np.flatnonzero(np.asarray(column.is_valid()))
    out = np.full((len(column), width), np.nan, np.float32)
    # float32 holds no more, and what is that large counts as wild anyway
    most = float(np.finfo(np.float32).max)
    values = np.clip(numbers(name, pc.list_flatten(column.drop_null())), -most, most)
    out[present] = values.reshape(len(present), width)
    return out


def parsed_numbers(column: Column, known: np.ndarray | None = None) -> tuple[pa.ChunkedArray, int]:
    """Text as numbers, and how many values are none and become missing.

    A comma is the decimal mark where every number of the rows in the mask `known` (None for all)
    has one, or no mark at all.
    """
    text = pc.utf8_trim_whitespace(column.cast(pa.large_string()))
    text = pc.if_else(pc.is_in(text, pa.array(MISSING, pa.large_string())), None, text)
    if _has_decimal_commas(text if known is None else text.filter(pa.array(known))):
        text = pc.replace_substring(text, ",", ".")
    out = _numbers_in(text)
    lost = out.null_count - text.null_count
    return out if isinstance(out, pa.ChunkedArray) else pa.chunked_array([out]), lost


def _has_decimal_commas(text: Column) -> bool:
    """Whether some numbers have a decimal comma and none a point."""
    with_comma = pc.any(pc.match_substring_regex(text, COMMA)).as_py()
    plain = pc.match_substring_regex(text, NUMBER)
    return bool(with_comma) and not pc.any(pc.and_(plain, pc.match_substring(text, "."))).as_py()


def looks_like_numbers(name: str, column: Column) -> str:
    """What keeps a column of text that is mostly numbers from being one, as a sentence; or nothing."""
    if not is_text(column.type):
        return ""
    text = pc.utf8_trim_whitespace(column)
    commas, plain = (pc.match_substring_regex(text, one) for one in (COMMA, NUMBER))
    counts = [pc.sum(one).as_py() or 0 for one in (commas, plain)]
    known = len(text) - text.null_count
    if pc.any(pc.match_substring_regex(text, r"^[-+]?0\d")).as_py():  # these are codes
        return ""
    if counts[0] > 0 and sum(counts) >= MOSTLY * known:
        row = pc.index(commas, True).as_py()
        value = text[row].as_py()
        fix = f"write {value.replace(',', '.')} instead"
    elif counts[1] >= max(MOSTLY * known, 2) and counts[1] < known:
        row = pc.index(pc.fill_null(plain, True), False).as_py()
        value = text[row].as_py()
        fix = "write a number or nothing"
    else:
        return ""
    most = "holds numbers" if sum(counts) == known else "is mostly numbers"
    what = f"column '{name}' {most}, but row {row + 1} is {value[:40]!r}"
    return f'{what}; {fix}, or say that it is one: columns = {{{name} = "number"}}'


def retyped(name: str, column: Column, wanted: str) -> InputError:
    """The sentence for values that are not what they should be, with the first one that shows it."""
    try:
        first = column.drop_null()[:1].to_pylist()
    except (OverflowError, ValueError):  # a date that Python does not have
        first = []
    such = f" such as {str(first[0])[:40]!r}" if first else ""
    return InputError(
        f"column '{name}' holds {column.type}{such}, not {wanted}; mend the values or leave the column out."
    )
