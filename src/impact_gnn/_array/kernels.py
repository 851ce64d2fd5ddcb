"""Numba kernels behind `impact_gnn._array`: numpy arrays in, numpy arrays out.

All are deterministic: threads share columns or rows, never a sum, so the number of threads does not
change a bit of the result. Sums are kept in float64 whatever the storage type.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange

COLUMNS = 64
"""Columns that one thread accumulates at a time: a row's piece fills whole cache lines."""


def moments(values: np.ndarray, group: np.ndarray, num_groups: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Count, mean and sum of squared deviations of the rows of each group (see `_array.group_moments`)."""
    values = np.asarray(values)
    count, first = _first_rows(group, num_groups)
    pivot = np.zeros((num_groups, values.shape[1]))
    filled = count > 0
    pivot[filled] = values[first[filled]]
    total, square = _moment_sums(values, group, pivot, COLUMNS)
    size = np.maximum(count, 1)[:, None]
    return count.astype(np.float64), pivot + total / size, np.maximum(square - total * total / size, 0.0)


def affine(
    values: np.ndarray, group: np.ndarray, origin: np.ndarray, scale: np.ndarray, goal: np.ndarray
) -> np.ndarray:
    """`(values − origin[g])·scale[g] + goal[g]` row by row (see `_array.group_affine`)."""
    values = np.asarray(values)
    out = np.empty(values.shape, values.dtype)
    if scale.ndim == 1:
        scale = scale[:, None]
    _affine(values, group, origin, np.ascontiguousarray(scale), goal, out)
    return out


def group_dot(left: np.ndarray, right: np.ndarray, group: np.ndarray, origin: np.ndarray) -> tuple[np.ndarray, ...]:
    """Per group: the sum of `left` and the sum of `left · (right − origin[g])`, both [G, f] in float64."""
    return _group_dot(left, right, group, origin, COLUMNS)


def lookup(
    table: np.ndarray, row: np.ndarray, column: np.ndarray, target: np.ndarray, source: np.ndarray
) -> np.ndarray:
    """`table[row[target], column[source]]` as float32."""
    out = np.empty(len(source), np.float32)
    _lookup(np.ascontiguousarray(table, dtype=np.float32), row, column, target, source, out)
    return out


@njit(cache=True)
def _first_rows(group, num_groups):  # type: ignore[no-untyped-def]
    count = np.zeros(num_groups, np.int64)
    first = np.zeros(num_groups, np.int64)
    for i in range(len(group)):
        g = group[i]
        if g >= 0:
            if count[g] == 0:
                first[g] = i
            count[g] += 1
    return count, first


@njit(parallel=True, cache=True)
def _moment_sums(values, group, pivot, width):  # type: ignore[no-untyped-def]
    # Deviations from a row of the same group: no cancellation when the mean is far from zero.
    columns = values.shape[1]
    total = np.zeros(pivot.shape)
    square = np.zeros(pivot.shape)
    for block in prange((columns + width - 1) // width):
        low = block * width
        high = min(columns, low + width)
        for i in range(values.shape[0]):
            g = group[i]
            if g >= 0:
                for j in range(low, high):
                    deviation = np.float64(values[i, j]) - pivot[g, j]
                    total[g, j] += deviation
                    square[g, j] += deviation * deviation
    return total, square


@njit(parallel=True, cache=True)
def _group_dot(left, right, group, origin, width):  # type: ignore[no-untyped-def]
    columns = left.shape[1]
    total = np.zeros(origin.shape)
    dot = np.zeros(origin.shape)
    for block in prange((columns + width - 1) // width):
        low = block * width
        high = min(columns, low + width)
        for i in range(left.shape[0]):
            g = group[i]
            if g >= 0:
                for j in range(low, high):
                    value = np.float64(left[i, j])
                    total[g, j] += value
                    dot[g, j] += value * (right[i, j] - origin[g, j])
    return total, dot


@njit(parallel=True, cache=True)
def _affine(values, group, origin, scale, goal, out):  # type: ignore[no-untyped-def]
    columns = values.shape[1]
    shared = scale.shape[1] == 1
    for i in prange(values.shape[0]):
        g = group[i]
        if g < 0:
            for j in range(columns):
                out[i, j] = values[i, j]
        elif shared:
            factor = scale[g, 0]
            for j in range(columns):
                out[i, j] = (values[i, j] - origin[g, j]) * factor + goal[g, j]
        else:
            for j in range(columns):
                out[i, j] = (values[i, j] - origin[g, j]) * scale[g, j] + goal[g, j]


@njit(parallel=True, cache=True)
def _lookup(table, row, column, target, source, out):  # type: ignore[no-untyped-def]
    for e in prange(len(out)):
        out[e] = table[row[target[e]], column[source[e]]]
