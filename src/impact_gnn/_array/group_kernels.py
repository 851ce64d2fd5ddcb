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
    values: np.ndarray, group: np.ndarray, num_groups: int, *, by_column: bool = True
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Compute `_array.group_moments`; with `by_column=False` squares are [G, 1], half the sums."""
    values = np.asarray(values)
    count, pivot = _first_rows(values, group, num_groups)
    size = np.maximum(count, 1)[:, None]
    parts = _parts(values, num_groups)
    if by_column:
        total, squares = _sums(values, group, pivot, parts)
        too_much = total**2
    else:
        if values.dtype == np.float32 and count.any():
            # One row for all groups stays in the first-level cache. A group far from it loses
            # digits of its spread, but no more than its numbers lost when they were rounded to
            # float32.
            pivot = np.median(pivot[count > 0], axis=0, keepdims=True)
        total, squares = _sums_of_rows(values, group, pivot, parts, num_groups)
        too_much = (total**2).sum(1, keepdims=True)
    mean = np.where(count[:, None] > 0, pivot + total / size, 0.0)
    return count, mean, np.maximum(squares - too_much / size, 0.0)


def means(values: np.ndarray, group: np.ndarray, num_groups: int) -> tuple[np.ndarray, np.ndarray]:
    """Return count [G] and mean [G, f] of each group, in float64; zero for an empty group."""
    return moments(values, group, num_groups, by_column=False)[:2]


def affine(
    values: np.ndarray, group: np.ndarray, origin: np.ndarray, scale: np.ndarray, goal: np.ndarray
) -> np.ndarray:
    """Compute `(values − origin[g])·scale[g] + goal[g]` by row (see `_array.group_affine`)."""
    values = np.asarray(values)
    if scale.ndim == 1:
        scale = scale[:, None]
    # By numpy, which requests huge pages; numba does not.
    out = np.empty(values.shape, values.dtype)
    _affine(values, group, origin, np.ascontiguousarray(scale), goal, out)
    return out


def affine_gradient(
    grad: np.ndarray,
    values: np.ndarray,
    moved: np.ndarray,
    scale: np.ndarray,
    group: np.ndarray,
    mean: np.ndarray,
    slope: np.ndarray,
    share: np.ndarray,
) -> np.ndarray:
    """Compute `grad·scale[moved] + slope[group]·(values − mean[group]) + share[group]`.

    Negative `moved` have scale 1, negative `group` no second and third part.
    """
    out = np.empty(values.shape, values.dtype)
    _affine_gradient(
        grad, values, moved, np.ascontiguousarray(scale), group, mean, slope, share, out
    )
    return out


def group_dot(
    left: np.ndarray, right: np.ndarray, group: np.ndarray, origin: np.ndarray
) -> tuple[np.ndarray, ...]:
    """Sum `left` and `left · (right − origin[g])` per group, both [G, f] in float64."""
    return _group_dot(left, right, group, origin, _parts(left, len(origin)))


def _parts(values: np.ndarray, num_groups: int) -> int:
    """Return the number of parts of rows; the sums of all parts are smaller than the values."""
    return max(1, min(MOST_PARTS, len(values) // (16 * max(num_groups, 1)), values.size // PART))


def lookup(
    table: np.ndarray, row: np.ndarray, column: np.ndarray, target: np.ndarray, source: np.ndarray
) -> np.ndarray:
    """`table[row[target], column[source]]` as float32."""
    out = np.empty(len(source), np.float32)
    _lookup(np.ascontiguousarray(table, dtype=np.float32), row, column, target, source, out)
    return out


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
    rows, columns = values.shape[0], np.uint64(values.shape[1])
    sums = np.zeros((2, parts, pivot.shape[0], pivot.shape[1]))
    for part in prange(parts):
        total, square = sums[0, part], sums[1, part]
        for i in range(rows * part // parts, rows * (part + 1) // parts):
            if group[i] >= 0:
                h = np.uint64(group[i])
                for j in range(columns):
                    deviation = np.float64(values[i, j]) - pivot[h, j]
                    total[h, j] += deviation
                    square[h, j] += deviation * deviation
    _add_up(sums)
    return sums[0, 0], sums[1, 0]


@njit(parallel=True, cache=True, fastmath={"reassoc", "contract"})
def _sums_of_rows(values, group, pivot, parts, num_groups):  # type: ignore[no-untyped-def]
    # "reassoc": the squares of a row may be added several at a time, without which the loop would
    # not vectorise.
    rows, columns, shared = values.shape[0], np.uint64(values.shape[1]), len(pivot) == 1
    totals = np.zeros((1, parts, num_groups, pivot.shape[1]))
    squares = np.zeros((1, parts, num_groups, 1))
    for part in prange(parts):
        total, square = totals[0, part], squares[0, part]
        for i in range(rows * part // parts, rows * (part + 1) // parts):
            if group[i] >= 0:
                h = np.uint64(group[i])
                origin = np.uint64(0) if shared else h
                whole = 0.0
                for j in range(columns):
                    deviation = np.float64(values[i, j]) - pivot[origin, j]
                    total[h, j] += deviation
                    whole += deviation * deviation
                square[h, 0] += whole
    _add_up(totals)
    _add_up(squares)
    return totals[0, 0], squares[0, 0]


@njit(parallel=True, cache=True)
def _group_dot(left, right, group, origin, parts):  # type: ignore[no-untyped-def]
    rows, columns = left.shape[0], np.uint64(left.shape[1])
    sums = np.zeros((2, parts, origin.shape[0], origin.shape[1]))
    for part in prange(parts):
        total, dot = sums[0, part], sums[1, part]
        for i in range(rows * part // parts, rows * (part + 1) // parts):
            if group[i] >= 0:
                h = np.uint64(group[i])
                for j in range(columns):
                    value = np.float64(left[i, j])
                    total[h, j] += value
                    dot[h, j] += value * (right[i, j] - origin[h, j])
    _add_up(sums)
    return sums[0, 0], sums[1, 0]


@njit(cache=True)
def _add_up(sums):  # type: ignore[no-untyped-def]
    """Adds the parts [:, 1:] to the first, in order."""
    for kind in range(sums.shape[0]):
        for part in range(1, sums.shape[1]):
            sums[kind, 0] += sums[kind, part]


@njit(parallel=True, cache=True)
def _affine(values, group, origin, scale, goal, out):  # type: ignore[no-untyped-def]
    columns = np.uint64(values.shape[1])
    shared = scale.shape[1] == 1
    for i in prange(values.shape[0]):
        g = np.uint64(max(group[i], 0))
        if group[i] < 0:
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
def _affine_gradient(  # type: ignore[no-untyped-def]
    grad, values, moved, scale, group, mean, slope, share, out
):
    columns = np.uint64(values.shape[1])
    shared = scale.shape[1] == 1
    for i in prange(values.shape[0]):
        g, m = np.uint64(max(group[i], 0)), np.uint64(max(moved[i], 0))
        if moved[i] < 0 and group[i] < 0:
            for j in range(columns):
                out[i, j] = grad[i, j]
        elif group[i] < 0:
            for j in range(columns):
                out[i, j] = grad[i, j] * (scale[m, 0] if shared else scale[m, j])
        elif moved[i] < 0:
            for j in range(columns):
                out[i, j] = grad[i, j] + (slope[g, j] * (values[i, j] - mean[g, j]) + share[g, j])
        elif shared:
            factor = scale[m, 0]
            for j in range(columns):
                out[i, j] = grad[i, j] * factor + (
                    slope[g, j] * (values[i, j] - mean[g, j]) + share[g, j]
                )
        else:
            for j in range(columns):
                out[i, j] = grad[i, j] * scale[m, j] + (
                    slope[g, j] * (values[i, j] - mean[g, j]) + share[g, j]
                )


@njit(parallel=True, cache=True)
def communities(label, target, period, num_labels, num_groups):  # type: ignore[no-untyped-def]
    """Return the groups of all rows and of non-targets, int32 (see `alignment.Communities`)."""
    group, labelled = np.empty(len(label), np.int32), np.empty(len(label), np.int32)
    # no branches: whether a node is a target, or has a label, cannot be foreseen
    for i in prange(len(label)):
        own = (
            np.int32(np.int64(period[i]) * num_labels + label[i]) if label[i] >= 0 else np.int32(-1)
        )
        labelled[i] = np.int32(-1) if target[i] else own
        group[i] = np.int32(num_groups - 1) if target[i] else own
    return group, labelled


@njit(cache=True)
def present(time, low, span):  # type: ignore[no-untyped-def]
    """Which of the numbers low .. low + span − 1 occur."""
    out = np.zeros(span, np.bool_)
    for i in range(len(time)):
        out[np.uint64(np.int64(time[i]) - low)] = True
    return out


@njit(cache=True)
def positions(time, low, table, out):  # type: ignore[no-untyped-def]
    """Write table[time − low]; differences are in 64 bits: small types would wrap around."""
    for i in range(len(time)):
        out[i] = table[np.uint64(np.int64(time[i]) - low)]


@njit(parallel=True, cache=True)
def _lookup(table, row, column, target, source, out):  # type: ignore[no-untyped-def]
    for e in prange(len(out)):
        out[e] = table[row[target[e]], column[source[e]]]
