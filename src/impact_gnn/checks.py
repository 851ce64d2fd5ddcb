"""Input validation: every array a user passes is checked here, once.

An error says what is wrong, where, what was received and how to fix it; bad input raises nothing
but `InputError`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from impact_gnn import _native
from impact_gnn._array import periods, sorted_unique, to_numpy
from impact_gnn._text import mask_passwords, visible

# elements looked at in one go, so that checking a memory map does not load it whole
BLOCK = 1 << 22
# class numbers beyond this are taken for ids that were passed as labels by mistake
MAX_LABELS = 1 << 24
MAX_PERIODS = 10_000  # distinct times: methods hold tables [times, times]
MANY_PERIODS = 1_000  # from which on there should be several nodes in each
TABLES_OF_PERIODS = 8  # tables [times, times] of numbers of 8 bytes that are in memory together
FEWER_PERIODS = (
    "use fewer periods, for example with --period month, or period= of load and from_tables"
)
MAX_SPAN = 1 << 62  # widest range of times whose differences still fit into int64


class InputError(ValueError):
    """Input of a user cannot be used; the message is one sentence that says how to fix it."""

    def __init__(self, sentence: str) -> None:
        super().__init__(visible(mask_passwords(" ".join(sentence.splitlines()))))


class TooShort(InputError):  # noqa: N818
    """The labelled past is too short for a back-test."""


class DiskFull(RuntimeError):  # noqa: N818 - a state of the machine, not a mistake of the user's
    """The disk is full; the message says what is stored and how to continue."""


class WorkerLost(RuntimeError):  # noqa: N818
    """The workers of a cluster are lost; the message says what is stored and how to continue."""


def choice(name: str, value: object, allowed: Iterable[str]) -> str:
    """`value` if it is one of `allowed`, otherwise an `InputError` that lists them."""
    options = list(allowed)
    if not isinstance(value, str) or value not in options:
        raise InputError(
            f"{name}={quoted(value)} is not valid; choose one of {', '.join(map(repr, options))}."
        )
    return value


def keywords(function: str, options: Iterable[str], known: type) -> None:
    """Refuse keywords that a function does not have; `known` is the `TypedDict` of those it has."""
    names = list(known.__annotations__)
    for name in options:
        if name not in names:
            raise InputError(
                f"{function} has no option {name!r}; choose among {', '.join(map(repr, names))}."
            )


def array(name: str, value: Any) -> ndarray:
    """`value` as a numpy array that holds numbers, text or booleans, never Python objects."""
    if value is None:
        raise InputError(f"{name} is missing; pass an array.")
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise InputError(
            f"{name} has {np.ma.count_masked(value)} masked entries; fill or drop them first."
        )
    try:
        out = to_numpy(value)
    except MemoryError:
        raise
    except Exception as error:  # whatever __array__, numpy or torch make of what came
        raise InputError(
            f"{name} cannot be read as an array ({one_line(error)}); pass a numpy array."
        ) from None
    if out.dtype.hasobject:
        raise InputError(
            f"{name} is an array of Python objects; "
            "convert it to numbers or text with .astype first."
        )
    return out if out.dtype.isnative else out.astype(out.dtype.newbyteorder("="))


def whole_numbers(name: str, value: Any, *, ndim: int = 1) -> ndarray:
    """`value` as int64, refusing fractions, NaN, and numbers beyond the range of int64."""
    out = array(name, value)
    # OGB keeps years and labels as a column [N, 1]
    if ndim == 1 and out.ndim == 2 and out.shape[1] == 1:
        out = out[:, 0]
    if out.ndim != ndim:
        raise InputError(
            f"{name} has shape {out.shape}; expected {ndim} dimension{'s' if ndim > 1 else ''}."
        )
    if out.dtype == bool or out.dtype.kind not in "iuf":
        raise InputError(f"{name} has dtype {out.dtype}; use whole numbers.")
    if out.dtype.kind == "f":
        flat = out.reshape(-1)
        missing = np.flatnonzero(np.isnan(flat))
        if len(missing):
            where = f"{len(missing)} of {flat.size} positions, first at {missing[0]}"
            raise InputError(
                f"{name} is missing (NaN) at {where}; fill in these values or remove the rows."
            )
        fraction = np.flatnonzero(~np.isfinite(flat) | (flat != np.floor(flat)))
        if len(fraction):
            where = f"position {fraction[0]} is {flat[fraction[0]]}"
            raise InputError(f"{name} must be whole numbers, but {where}; bin or round them first.")
    if out.dtype.kind in "uf":
        # As Python number: the comparison must not overflow itself.
        largest = np.abs(out).max(initial=0).item()
        if largest > np.iinfo(np.int64).max:
            raise InputError(
                f"{name} contains {largest}, which does not fit into a 64-bit integer; "
                "use smaller values."
            )
    return out.astype(np.int64, copy=False)


def whole_number(name: str, value: Any) -> int:
    """`value` as one int, refusing fractions, text and whatever else is no single whole number."""
    if isinstance(value, int) and abs(value) > np.iinfo(np.int64).max:
        raise InputError(
            f"{name}={quoted(value)} does not fit into a 64-bit integer; use a smaller number."
        )
    out = array(name, value)
    is_number = out.ndim == 0 and out.dtype.kind in "iuf"
    if not is_number or not np.isfinite(out) or int(out) != out:
        raise InputError(f"{name}={quoted(value)} is not a whole number; pass an integer.")
    return int(out)


def features(name: str, value: Any, num_rows: int | None) -> ndarray:
    """`value` as a two-dimensional array of finite floats, one row per node."""
    out = array(name, value)
    if out.ndim != 2:
        wanted = "a matrix [N, f]"
        if out.ndim == 1:
            wanted = "one row per node and one column per feature [N, f]"
        raise InputError(f"{name} has shape {out.shape}; expected {wanted}.")
    if out.dtype.kind not in "iufb":
        raise InputError(f"{name} has dtype {out.dtype}; use numbers.")
    if num_rows is not None and len(out) != num_rows:
        raise InputError(f"{name} has {len(out)} rows for {num_rows} nodes; pass one row per node.")
    if out.dtype.kind != "f":
        parts = (out[part] for part in _native.blocks(out) if out.dtype.itemsize >= 4)
        # float32 holds whole numbers up to 2^24 exactly.
        is_exact = all(np.abs(part).max(initial=0) <= 1 << 24 for part in parts)
        out = out.astype(np.float32 if is_exact else np.float64)
    elif out.dtype.itemsize > 8:
        out = out.astype(np.float64)
    finite(name, out)
    return out


def finite(name: str, values: ndarray) -> None:
    """Refuses NaN and infinity, naming the worst column and how many there are."""
    matrix = values if values.ndim == 2 else values[:, None]
    bad = np.zeros(matrix.shape[1], np.int64)  # values of every column
    rows = max(1, BLOCK // max(1, len(bad)))
    first = None
    for start in range(0, len(matrix), rows):
        wrong = ~np.isfinite(matrix[start : start + rows])
        if wrong.any():
            if first is None:
                first = start + int(wrong.any(1).argmax())
            bad += wrong.sum(0)
        _native.release(values)
    if first is not None:
        column = ""
        if values.ndim == 2:
            column = f"column {bad.argmax()} has {bad.max()} of them, "
        where = f"({column}the first in row {first})"
        raise InputError(
            f"{name} contains {bad.sum()} NaN or infinite values {where}; fill or drop them first."
        )


def labels(name: str, value: Any, num_rows: int, num_labels: int | None = None) -> ndarray:
    """Labels as int64 in −1 .. num_labels−1; −1 is unknown, and so is a float NaN."""
    out = array(name, value)
    if out.dtype.kind == "f":
        # Data frames mark missing labels by NaN.
        out = np.where(np.isnan(out), -1, out)
    out = whole_numbers(name, out)
    if len(out) != num_rows:
        raise InputError(
            f"{name} has {len(out)} entries for {num_rows} nodes; pass one per node, "
            "-1 for unknown."
        )
    if out.min(initial=0) < -1:
        at = int((out < -1).argmax())
        raise InputError(
            f"{name} is {out[at]} at node {at}; use 0, 1, 2, ... for classes and -1 for unknown."
        )
    if num_labels is not None and out.max(initial=-1) >= num_labels:
        at = int((out >= num_labels).argmax())
        fix = f"there are {num_labels} classes; labels run from 0 to {num_labels - 1}"
        raise InputError(f"{name} is {out[at]} at node {at}, but {fix}.")
    if out.max(initial=-1) >= MAX_LABELS:
        at = int(out.argmax())
        fix = f"number the classes 0, 1, 2, ... (at most {MAX_LABELS} of them)"
        raise InputError(f"{name} is {out[at]} at node {at}; {fix}.")
    return out


def node_times(name: str, value: Any, num_rows: int | None = None) -> ndarray:
    """One whole-number time per node."""
    out = whole_numbers(name, value)
    if num_rows is not None and len(out) != num_rows:
        raise InputError(
            f"{name} has {len(out)} entries for {num_rows} nodes; pass one time per node."
        )
    if len(out) == 0:
        raise InputError(f"{name} is empty; pass at least one node.")
    _refuse_span(name, out)
    # Times so close together are few; others are counted.
    if int(out.max()) - int(out.min()) < MANY_PERIODS:
        return out
    count = len(sorted_unique(out))
    tables = f"tables of {count:,} x {count:,}"
    if count > MAX_PERIODS:
        size = f"{tables} would need {8 * count**2 / 2**30:,.1f} GiB"
        many = f"{name} has {count:,} distinct values, more than {MAX_PERIODS:,} periods ({size})"
        raise InputError(f"{many}; {FEWER_PERIODS}.")
    if count >= MANY_PERIODS and len(out) < 2 * count:
        raise InputError(
            f"{name} has {count:,} distinct values for {len(out):,} nodes, "
            f"so most periods have a single node; {FEWER_PERIODS}."
        )
    fits(f"{tables} periods", 8.0 * TABLES_OF_PERIODS * count**2, FEWER_PERIODS)
    return out


def timestamps(name: str, value: Any, time: ndarray | None) -> ndarray:
    """One exact time per node, in the same order as the periods."""
    if time is None:
        raise InputError(
            f"{name} has no effect without time; pass the period of every node as time."
        )
    out = np.asarray(array(name, value), np.float64)
    if out.shape != time.shape:
        raise InputError(f"{name} has shape {out.shape} for {len(time)} nodes; pass one per node.")
    if not np.isfinite(out).all():
        raise InputError(f"{name} is not finite at node {int(np.isfinite(out).argmin())}; fill it.")
    # Sorted by timestamp, periods may not decrease.
    if not (np.diff(time[np.argsort(out)]) < 0).any():
        return out
    # Nodes with the same timestamp may be in any order; sorting by both is slower.
    order = np.lexsort((time, out))
    later = np.diff(time[order]) < 0
    if later.any():
        # The first two neighbours in that order that contradict each other.
        first, second = order[int(later.argmax()) + np.arange(2)]
        raise InputError(
            f"{name} of node {first} is before that of node {second}, but its time is later "
            f"({time[first]} and {time[second]}); pass timestamps in the order of the times."
        )
    return out


def label_delay(value: Any) -> float:
    """How long after a node's own time its label becomes known."""
    if not is_number(value) or not 0 <= value < np.inf:
        raise InputError(f"label_delay={quoted(value)} must be a number of 0 or more.")
    return float(value)


def edges(name: str, value: Any, num_source: int, num_target: int) -> ndarray:
    """An edge list [2, E] of node positions, the first out-of-range edge named."""
    out = array(name, value)
    if out.ndim != 2 or out.shape[0] != 2:
        hint = "; transpose it" if out.ndim == 2 and out.shape[1] == 2 else ""
        raise InputError(
            f"{name} has shape {out.shape}; expected sources and targets as two rows [2, E]{hint}."
        )
    if out.dtype.kind not in "iu":
        out = whole_numbers(name, out, ndim=2)
    if out.shape[1] == 0:
        return out.astype(np.int64, copy=False)
    for ends, side, size in zip(out, ("source", "target"), (num_source, num_target), strict=True):
        parts = (ends[part] for part in _native.blocks(out, 1))
        if any(part.min() < 0 or part.max() >= size for part in parts):
            at = int(((ends < 0) | (ends >= size)).argmax())
            raise InputError(
                f"{name} refers to a missing node: edge {at} has {side} {ends[at]}, "
                f"but there are {size} such nodes (0 to {size - 1}); "
                "remove the edge or add the node."
            )
    return out if out.dtype in (np.int32, np.int64) else out.astype(np.int64)


def edge_weights(name: str, value: Any, num_edges: int) -> ndarray:
    """One finite, non-negative weight per edge."""
    out = array(name, value)
    if out.ndim == 2 and out.shape[1] == 1:
        out = out[:, 0]
    if out.ndim != 1 or len(out) != num_edges:
        raise InputError(
            f"{name} has shape {out.shape} for {num_edges} edges; pass one weight per edge."
        )
    if out.dtype.kind not in "iufb":
        raise InputError(f"{name} has dtype {out.dtype}; use numbers.")
    if out.dtype not in (np.float32, np.float64):
        out = out.astype(np.float64 if out.dtype.itemsize > 8 else np.float32)
    finite(name, out)
    if out.min(initial=0.0) < 0:
        at = int((out < 0).argmax())
        raise InputError(
            f"{name} is negative ({out[at]}) at edge {at}; weights must be zero or more."
        )
    smallest = out.min(initial=1.0, where=out > 0)
    if out.max(initial=0.0) > 1e30 or smallest < 1e-30:
        raise InputError(
            f"{name} exceeds the range 1e-30 to 1e30 of float32 sums; "
            "rescale it (only ratios matter)."
        )
    return out


def edge_times(name: str, value: Any, num_edges: int) -> ndarray:
    """One whole-number time per edge."""
    out = whole_numbers(name, value)
    if len(out) != num_edges:
        raise InputError(
            f"{name} has {len(out)} entries for {num_edges} edges; pass one time per edge."
        )
    return out


def mask(name: str, value: Any, num_rows: int) -> ndarray:
    """A boolean mask with one entry per node."""
    out = array(name, value)
    if out.dtype != bool or out.shape != (num_rows,):
        came = f"dtype {out.dtype} and shape {out.shape}"
        raise InputError(f"{name} has {came}; expected a boolean mask with {num_rows} entries.")
    return out


def fits(what: str, size: float, fix: str) -> None:
    """Refuses an allocation of `size` bytes that exceeds the free memory."""
    free = _native.free_memory()
    if size > free:
        raise InputError(
            f"{what} would need {size / 2**30:,.1f} GiB of memory, "
            f"but {free / 2**30:,.1f} GiB are free; {fix}."
        )


def sorted_times(name: str, value: Any) -> ndarray:
    """The distinct times of a graph, strictly increasing."""
    out = whole_numbers(name, value)
    if len(out) == 0:
        raise InputError(
            f"{name} is empty; pass the distinct times of the graph in increasing order."
        )
    if (out[1:] <= out[:-1]).any():
        raise InputError(f"{name} must be distinct and increasing; pass numpy.unique(time).")
    _refuse_span(name, out)
    fits(f"a table of {len(out):,} x {len(out):,} times", 16 * len(out) ** 2, FEWER_PERIODS)
    return out


def class_count(value: Any) -> int:
    """A number of classes, from 0 to `MAX_LABELS`."""
    count = whole_number("num_labels", value)
    if not 0 <= count <= MAX_LABELS:
        raise InputError(
            f"num_labels={count} is out of range; pass the number of classes, at most {MAX_LABELS}."
        )
    return count


def chronology(
    time: ndarray, label: ndarray | None, cutoff: int, called: Callable[[int], str] = str
) -> None:
    """Refuse a split with one period only, without a labelled past, or without targets."""
    times, _ = periods(time)
    if len(times) < 2:
        need = "a chronological split needs at least two periods"
        raise InputError(f"all nodes have the same time ({called(int(times[0]))}); {need}.")
    # Split as every method will split it.
    past = time < cutoff
    if past.all():
        last = called(int(times[-1]))
        raise InputError(
            f"no node is at or after cutoff={called(cutoff)} (the last time is {last}), "
            f"so there is nothing to predict; choose a cutoff of at most {last}."
        )
    if label is None or not (label[past] >= 0).any():
        fix = "choose a later cutoff or add labels"
        raise InputError(
            f"no node before cutoff={called(cutoff)} has a label, "
            f"so there is nothing to learn from; {fix}."
        )


def several_classes(label: ndarray, cutoff: str) -> None:
    """Refuse labels before a cutoff that are all of one class."""
    known = label[label >= 0]
    if len(known) and (known == known[0]).all():
        raise InputError(
            f"all {len(known):,} labels before cutoff={cutoff} are of one class, "
            "so all predictions "
            "would be equal; choose a later cutoff, or check that labels were read correctly."
        )


def at_least(name: str, value: object, least: int) -> int:
    """`value` as a whole number of at least `least`."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
        raise InputError(
            f"{name}={quoted(value)} is not valid; use a whole number of at least {least}."
        )
    return int(value)


def seed(value: object) -> int:
    """`value` as a seed that numpy and torch take."""
    return whole_number("seed", at_least("seed", value, 0))


def is_number(value: object) -> bool:
    """Whether `value` is a finite number and no boolean."""
    return (
        isinstance(value, int | float | np.number)
        and not isinstance(value, bool)
        and bool(np.isfinite(value))
    )


def share(name: str, value: Any, what: str = "valid") -> float:
    """`value` as a number from 0 to 1."""
    if not (is_number(value) and 0 <= value <= 1):
        raise InputError(f"{name}={quoted(value)} is not {what}; use a number from 0 to 1.")
    return float(value)


def regular(path: Path) -> Path:
    """`path`, unless it is a pipe, a socket or a device: to open one may take for ever."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise InputError(f"{path} is a pipe, a socket or a device; pass a regular file.")
    return path


@contextmanager
def guarded(path: Path) -> Iterator[None]:
    """Turns whatever a damaged file makes a reader raise into one sentence."""
    regular(path)
    try:
        yield
    except (InputError, DiskFull, WorkerLost):
        raise
    except MemoryError:
        raise InputError(
            f"{path} does not fit into memory, or its header is damaged; restore it."
        ) from None
    except Exception as error:  # readers of zip, npy, csv and parquet raise dozens of kinds
        reason = one_line(error) or type(error).__name__
        raise InputError(
            f"{path} cannot be read ({reason}); restore it or write it again."
        ) from None


def ids(name: str, value: Any) -> ndarray:
    """Names as numbers, dates or text that can be written to files and read back the same."""
    out = array(name, value)
    if out.dtype.kind == "S":
        with guarded(Path(name)):
            out = np.char.decode(out, "utf-8")
    if out.dtype.kind not in "biufUM":
        raise InputError(f"{name} has dtype {out.dtype}; use whole numbers or text.")
    if out.dtype.kind == "U" and out.dtype.itemsize:
        # numpy ends text at its last letter, so a NUL before it would be lost.
        letters = np.ascontiguousarray(out).view(np.uint32).reshape(*out.shape, -1)
        is_cut = (letters[..., :-1] == 0) & (letters[..., 1:] != 0)
        is_surrogate = (letters >= 0xD800) & (letters < 0xE000)
        if is_cut.any() or is_surrogate.any():
            raise InputError(
                f"{name} contains text with a NUL or a lone surrogate, which files cannot store; "
                "replace it."
            )
    return out


def distinct(name: str, values: ndarray) -> None:
    """Refuses repeated identifiers, naming the first one."""
    if len(sorted_unique(values)) != len(values):
        unique, first, count = np.unique(values, return_index=True, return_counts=True)
        # The repeated id that comes first in the data; others are put behind all rows.
        at = int(np.where(count > 1, first, len(values)).argmin())
        raise InputError(
            f"{name} has {len(values) - len(unique)} duplicate ids, "
            f"first {unique[at]!s} ({count[at]} times); keep one row per node."
        )


def quoted(value: object) -> str:
    """`value` for a sentence: its repr on one line, shortened."""
    text = mask_passwords(" ".join(repr(value).split()))
    return text if len(text) <= 80 else text[:77] + "..."


def listing(values: Sequence[object], most: int = 5) -> str:
    """`values` for a sentence: the first few, and how many more."""
    text = ", ".join(str(value) for value in values[:most])
    return text + (f" and {len(values) - most} more" if len(values) > most else "")


def _refuse_span(name: str, times: ndarray) -> None:
    if int(times.max()) - int(times.min()) > MAX_SPAN:
        ends = f"{times.min()} to {times.max()}"
        raise InputError(
            f"{name} ranges from {ends}, too wide for 64-bit differences; bin it first."
        )


def one_line(error: Exception) -> str:
    """The message of an error on one line."""
    return mask_passwords(" ".join(str(error).split()))[:200]
