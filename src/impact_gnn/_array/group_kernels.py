"""Numba kernels behind `impact_gnn._array`: numpy arrays in, numpy arrays out.

All are deterministic: rows are cut into parts by the shape alone and the parts' sums are added in
order, so the number of threads does not change a bit of the result. Sums are in float64 whatever
the storage type. Positions are unsigned inside loops: numba would otherwise test each for being
negative, and not vectorise.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange

MOST_PARTS = 16  # of rows, that can be summed at the same time
PART = 1 << 16  # elements below which a part is not worth a thread


def moments(
    values: np.ndarray, group: np.ndarray, num_groups: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Compute `_array.group_moments`."""
    values = np.asarray(values)
    count, pivot = _first_rows(values, group, num_groups)
    size = np.maximum(count, 1)[:, None]
    total, squares = _sums(values, group, pivot, _parts(values, num_groups))
    mean = np.where(count[:, None] > 0, pivot + total / size, 0.0)
    return count, mean, np.maximum(squares - total**2 / size, 0.0)


def affine(
    values: np.ndarray, group: np.ndarray, origin: np.ndarray, scale: np.ndarray, goal: np.ndarray
) -> np.ndarray:
    """Compute `_array.group_affine` for tables [G, f]."""
    values = np.asarray(values)
    # By numpy, which requests huge pages; numba does not.
    out = np.empty(values.shape, values.dtype)
    _affine(values, group, (origin, np.ascontiguousarray(scale), goal), out)
    return out


def group_dot(
    left: np.ndarray, right: np.ndarray, group: np.ndarray, origin: np.ndarray
) -> tuple[np.ndarray, ...]:
    """Sum `left` and `left · (right − origin[g])` per group, both [G, f] in float64."""
    return _group_dot(left, right, group, origin, _parts(left, len(origin)))


def _parts(values: np.ndarray, num_groups: int) -> int:
    """Return the number of parts of rows; the sums of all parts are smaller than the values."""
    return max(1, min(MOST_PARTS, len(values) // (16 * max(num_groups, 1)), values.size // PART))


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


@njit(parallel=True, cache=True)
def _sums(values, group, pivot, parts):  # type: ignore[no-untyped-def]
    rows = values.shape[0]
    columns = np.uint64(values.shape[1])
    sums = np.zeros((2, parts, pivot.shape[0], pivot.shape[1]))
    for part in prange(parts):
        total = sums[0, part]
        square = sums[1, part]
        for i in range(rows * part // parts, rows * (part + 1) // parts):
            if group[i] >= 0:
                g = np.uint64(group[i])
                for j in range(columns):
                    deviation = np.float64(values[i, j]) - pivot[g, j]
                    total[g, j] += deviation
                    square[g, j] += deviation * deviation
    _add_parts(sums)
    return sums[0, 0], sums[1, 0]


@njit(parallel=True, cache=True)
def _group_dot(left, right, group, origin, parts):  # type: ignore[no-untyped-def]
    rows = left.shape[0]
    columns = np.uint64(left.shape[1])
    sums = np.zeros((2, parts, origin.shape[0], origin.shape[1]))
    for part in prange(parts):
        total = sums[0, part]
        dot = sums[1, part]
        for i in range(rows * part // parts, rows * (part + 1) // parts):
            if group[i] >= 0:
                g = np.uint64(group[i])
                for j in range(columns):
                    value = np.float64(left[i, j])
                    total[g, j] += value
                    dot[g, j] += value * (right[i, j] - origin[g, j])
    _add_parts(sums)
    return sums[0, 0], sums[1, 0]


@njit(cache=True)
def _add_parts(sums):  # type: ignore[no-untyped-def]
    """Add the parts [:, 1:] to the first, in order."""
    for kind in range(sums.shape[0]):
        for part in range(1, sums.shape[1]):
            sums[kind, 0] += sums[kind, part]


@njit(parallel=True, cache=True)
def _affine(values, group, tables, out):  # type: ignore[no-untyped-def]
    origin, scale, goal = tables
    columns = np.uint64(values.shape[1])
    for i in prange(values.shape[0]):
        g = np.uint64(max(group[i], 0))
        if group[i] < 0:
            for j in range(columns):
                out[i, j] = values[i, j]
        else:
            for j in range(columns):
                out[i, j] = (values[i, j] - origin[g, j]) * scale[g, j] + goal[g, j]


@njit(parallel=True, cache=True)
def lookup(table, row, column, target, source):  # type: ignore[no-untyped-def]
    """Compute `table[row[target[e]], column[source[e]]]` for every edge e."""
    out = np.empty(len(source), table.dtype)
    for e in prange(len(out)):
        out[e] = table[row[target[e]], column[source[e]]]
    return out
