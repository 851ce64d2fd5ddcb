"""Numba kernels behind `impact_gnn._array`: numpy arrays in, numpy arrays out.

All are deterministic: rows are cut into parts by the shape alone and the parts' sums are added in
order, so the number of threads does not change a bit of the result. Sums are in float64 whatever
the storage type. Positions are unsigned inside loops: numba would otherwise test each for being
negative, and not vectorise.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from numba import njit
from numpy import ndarray

from impact_gnn import _native

MOST_PARTS = 16  # of rows, that can be summed at the same time
PART = 1 << 16  # elements below which a part is not worth a thread


def group_moments(
    values: ndarray, group: ndarray, num_groups: int
) -> tuple[ndarray, ndarray, ndarray]:
    """Compute `_array.group_moments`."""
    values = np.asarray(values)
    count, pivot = _first_rows(values, group, num_groups)
    # Empty groups are divided by 1; their pivot and sums are 0, and so is their mean.
    size = np.maximum(count, 1)[:, None]
    # Sums of deviations from the first row of a group, and of their squares.
    total, squares = _sum_parts(_add_deviations, (values, group, pivot))
    mean = pivot + total / size
    # Σ(x − mean)² = Σd² − (Σd)²/n for deviations d from the pivot; not below 0.
    squares = squares - total**2 / size
    return count, mean, np.maximum(squares, 0.0)


def group_affine(
    values: ndarray, group: ndarray, origin: ndarray, scale: ndarray, goal: ndarray
) -> ndarray:
    """Compute `_array.group_affine` for tables [G, f]."""
    values = np.asarray(values)
    # By numpy, which requests huge pages; numba does not.
    out = np.empty(values.shape, values.dtype)
    scale = np.ascontiguousarray(np.broadcast_to(scale, origin.shape))
    _run_parts(_affine, (values, group, (origin, scale, goal), out))
    return out


def group_dot(left: ndarray, right: ndarray, group: ndarray, origin: ndarray) -> ndarray:
    """Sum `left` and `left · (right − origin[g])` per group, [2, G, f] in float64."""
    return _sum_parts(_add_products, (left, group, origin, right))


def lookup(
    table: ndarray, row: ndarray, column: ndarray, target: ndarray, source: ndarray
) -> ndarray:
    """Compute `table[row[target[e]], column[source[e]]]` for every edge e."""
    out = np.empty(len(source), table.dtype)
    _run_parts(_lookup, (table, row, column, target, source, out))
    return out


def _run_parts(kernel: Callable[..., None], arrays: tuple[Any, ...]) -> None:
    """Call `kernel((first, last), *arrays)` for parts of the rows of the last array, in threads."""
    out = arrays[-1]
    # Parts depend on the shape alone, not on the number of threads.
    spans = _spans(len(out), out.size // PART)
    _native.run(kernel, [(span, *arrays) for span in spans], None)


def _sum_parts(kernel: Callable[..., None], arrays: tuple[ndarray, ...]) -> ndarray:
    """Return two sums per group [2, G, f] that `kernel` adds up; see `_add_deviations`."""
    values, _, origin, *_ = arrays
    # Few enough parts that their sums are smaller than the values.
    rows_per_part = 16 * max(len(origin), 1)
    parts = min(len(values) // rows_per_part, values.size // PART)
    spans = _spans(len(values), parts)
    # [parts, 2, G, f]: every part has its own sums, so threads do not share memory.
    sums = np.zeros((len(spans), 2, *origin.shape))
    tasks = [(span, *arrays, part) for span, part in zip(spans, sums, strict=True)]
    _native.run(kernel, tasks, None)
    # In the order of the parts, for the same bits in every run.
    for part in sums[1:]:
        sums[0] += part
    return sums[0]


def _spans(num_rows: int, parts: int) -> list[tuple[int, int]]:
    """Return the first row and the one after the last, for each of 1 to `MOST_PARTS` parts."""
    parts = min(max(1, parts), MOST_PARTS)
    borders = [num_rows * part // parts for part in range(parts + 1)]
    return list(pairwise(borders))


@njit(cache=True)
def _first_rows(values, group, num_groups):  # type: ignore[no-untyped-def]
    # Size of every group, and its first row: sums of deviations from it do not cancel if the mean
    # is far from zero.
    count = np.zeros(num_groups)
    pivot = np.zeros((num_groups, values.shape[1]))
    for i in range(len(group)):
        g = group[i]
        if g >= 0:
            if count[g] == 0:
                pivot[g] = values[i]
            count[g] += 1
    return count, pivot


@njit(cache=True, nogil=True)
def _add_deviations(rows, values, group, pivot, sums):  # type: ignore[no-untyped-def]
    columns = np.uint64(values.shape[1])
    total = sums[0]
    square = sums[1]
    for i in range(rows[0], rows[1]):
        if group[i] >= 0:
            g = np.uint64(group[i])
            for j in range(columns):
                deviation = np.float64(values[i, j]) - pivot[g, j]
                total[g, j] += deviation
                square[g, j] += deviation * deviation


@njit(cache=True, nogil=True)
def _add_products(rows, left, group, origin, right, sums):  # type: ignore[no-untyped-def]
    columns = np.uint64(left.shape[1])
    total = sums[0]
    dot = sums[1]
    for i in range(rows[0], rows[1]):
        if group[i] >= 0:
            g = np.uint64(group[i])
            for j in range(columns):
                value = np.float64(left[i, j])
                total[g, j] += value
                dot[g, j] += value * (right[i, j] - origin[g, j])


@njit(cache=True, nogil=True)
def _affine(rows, values, group, tables, out):  # type: ignore[no-untyped-def]
    origin, scale, goal = tables
    columns = np.uint64(values.shape[1])
    for i in range(rows[0], rows[1]):
        # Also valid without a group, since unsigned numbers cannot be −1.
        g = np.uint64(max(group[i], 0))
        if group[i] < 0:
            for j in range(columns):
                out[i, j] = values[i, j]
        else:
            for j in range(columns):
                scaled = (values[i, j] - origin[g, j]) * scale[g, j]
                out[i, j] = scaled + goal[g, j]


@njit(cache=True, nogil=True)
def _lookup(edges, table, row, column, target, source, out):  # type: ignore[no-untyped-def]
    for e in range(edges[0], edges[1]):
        out[e] = table[row[target[e]], column[source[e]]]
