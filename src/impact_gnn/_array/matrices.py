"""Grouped matrix products in numpy: scatter matrices, and one linear map per group.

Wide rows are brought together by group, so that each group is a few calls of BLAS; narrow ones go
through one kernel. Products are made on deviations, subtracted in float64, and added up in float64
block by block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np
from numba import njit, prange

from impact_gnn._array import group_kernels

BLOCK = 8192  # rows whose products are summed in the storage type, before the float64 total
NARROW = 32  # columns up to which plain loops beat a call of BLAS for every group


def segments(group: np.ndarray, num_groups: int) -> tuple[np.ndarray, np.ndarray]:
    """Return row numbers sorted by group, and the start of each group ≥ 0, [G + 1]."""
    order = np.argsort(group, kind="stable")
    return order, np.searchsorted(group[order], np.arange(num_groups + 1))


def pieces(group: np.ndarray, num_groups: int) -> Iterator[tuple[int, np.ndarray]]:
    """Yield every group with its row numbers, in blocks of at most `BLOCK`."""
    order, starts = segments(group, num_groups)
    for g in np.flatnonzero(np.diff(starts)):
        for low in range(starts[g], starts[g + 1], BLOCK):
            yield int(g), order[low : min(low + BLOCK, starts[g + 1])]


def scatter(values: np.ndarray, group: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Σ (x − mean_g)(x − mean_g)ᵀ of every group [G, f, f]."""
    return _outer(values, mean, values, mean, group)


def scatter_gradient(
    values: np.ndarray, group: np.ndarray, mean: np.ndarray, grad: np.ndarray
) -> np.ndarray:
    """dL/dx of `scatter`: (G_g + G_gᵀ)(x − mean_g); the mean's own share adds up to nothing."""
    both = grad + np.swapaxes(grad, 1, 2)
    zeros = np.zeros(values.shape, values.dtype)
    return _mapped(values, group, both, mean, np.zeros(mean.shape), zeros)


def apply(
    values: np.ndarray, group: np.ndarray, maps: np.ndarray, center: np.ndarray
) -> np.ndarray:
    """`A_g (x − center_g) + center_g` row by row; rows with a negative group pass unchanged."""
    return _mapped(values, group, maps, center, center, _where_left_out(values, group))


def outer(left: np.ndarray, right: np.ndarray, group: np.ndarray, center: np.ndarray) -> np.ndarray:
    """Σ left (right − center_g)ᵀ of every group [G, f, f]."""
    return _outer(left, np.zeros(center.shape), right, center, group)


def _outer(
    left: np.ndarray,
    left_center: np.ndarray,
    right: np.ndarray,
    right_center: np.ndarray,
    group: np.ndarray,
) -> np.ndarray:
    width = left.shape[1]
    total = np.zeros((len(left_center), width, width))
    if width <= NARROW:
        _narrow_outer(left, left_center, right, *segments(group, len(total)), right_center, total)
        return total
    room = _room(left)
    for g, rows in pieces(group, len(total)):
        first = _deviations(left, rows, left_center[g], room[0])
        same = left is right and left_center is right_center
        second = first if same else _deviations(right, rows, right_center[g], room[1])
        total[g] += first.T @ second
    return total


def family_means(
    values: np.ndarray, group: np.ndarray, family: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of rows of every group's family [G], and their mean [G, f]."""
    count, mean = group_kernels.means(values, group, len(family))
    num_families = family.max() + 1
    size = np.zeros(num_families)
    total = np.zeros((num_families, values.shape[1]))
    np.add.at(size, family, count)
    np.add.at(total, family, count[:, None] * mean)
    return size[family], (total / np.maximum(size, 1)[:, None])[family]


def family_gradient(
    grad: np.ndarray, group: np.ndarray, maps: np.ndarray, family: np.ndarray, size: np.ndarray
) -> np.ndarray:
    """dL/dx of A_g (x − mean) + mean, the mean's own share spread over its family."""
    count, mean = group_kernels.means(grad, group, len(maps))
    summed = count[:, None] * mean
    rest = np.zeros((family.max() + 1, grad.shape[1]))
    np.add.at(rest, family, summed - np.einsum("gi,gij->gj", summed, maps))
    share = rest[family] / np.maximum(size, 1)[:, None]
    return _mapped(
        grad,
        group,
        np.swapaxes(maps, 1, 2),
        np.zeros(share.shape),
        share,
        _where_left_out(grad, group),
    )


def transport(
    lib: ModuleType,
    eigh: Callable[[Any], tuple[Any, Any]],
    narrow: Callable[[Any], Any],
    source: Any,
    goal: Any,
    source_floor: Any,
    goal_floor: Any,
) -> tuple[Any, tuple[Any, ...]]:
    """Compute `_array.spd_transport` and the inputs of its gradient; `lib` is numpy or torch."""
    # `narrow` casts to the type of the maps. It comes after the eigenvalues: those of Lᵀ Σ L span
    # twice as many orders of magnitude as those of Σ, while the maps are sums of positive parts
    # and lose nothing.
    values, basis = eigh(goal)
    raised = lib.maximum(values, goal_floor[..., None])
    half = basis * lib.sqrt(raised)[..., None, :]
    turned = lib.swapaxes(half, -1, -2)[..., None, :, :] @ source @ half[..., None, :, :]
    gamma, inner = eigh(turned)
    inner = narrow(inner)
    frame = narrow(half)[..., None, :, :] @ inner
    # γ_k = f_kᵀ Σ f_k is at least floor·‖f_k‖² where the eigenvalues of Σ are at least floor.
    least = source_floor[..., None] * (frame * frame).sum(-2)
    follows = narrow(gamma >= least)
    gamma = narrow(lib.maximum(gamma, least))
    scaled = frame / (gamma**0.25)[..., None, :]
    maps = scaled @ lib.swapaxes(scaled, -1, -2)
    return maps, (values, raised, basis, inner, gamma, frame, follows)


def _room(values: np.ndarray) -> np.ndarray:
    """Allocate two reusable blocks of rows: fresh memory costs more than filling it."""
    return np.empty((2, min(BLOCK, len(values)), values.shape[1]), values.dtype)


def _deviations(
    values: np.ndarray, rows: np.ndarray, center: np.ndarray, room: np.ndarray
) -> np.ndarray:
    """Compute values[rows] − center in the block `room`."""
    out = room[: len(rows)]
    _take(values, rows, center, out)
    return out


def _mapped(
    values: np.ndarray,
    group: np.ndarray,
    maps: np.ndarray,
    origin: np.ndarray,
    goal: np.ndarray,
    out: np.ndarray,
) -> np.ndarray:
    """Write A_g (x − origin_g) + goal_g into the rows of `out` that have a group."""
    turned = np.swapaxes(maps, 1, 2)
    if values.shape[1] <= NARROW:
        _narrow_map(values, group, np.ascontiguousarray(turned, np.float64), origin, goal, out)
        return out
    room = _room(values)
    turned = turned.astype(values.dtype, copy=False)
    for g, rows in pieces(group, len(maps)):
        deviation = _deviations(values, rows, origin[g], room[0])
        _put(np.matmul(deviation, turned[g], out=room[1, : len(rows)]), rows, goal[g], out)
    return out


def _where_left_out(values: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Create an array with the rows of negative groups; the others are not filled."""
    out = np.empty(values.shape, values.dtype)
    _put(values, np.flatnonzero(group < 0), np.zeros(values.shape[1]), out, True)
    return out


@njit(parallel=True, cache=True)
def _take(values, rows, center, out):  # type: ignore[no-untyped-def]
    columns = np.uint64(values.shape[1])
    for i in prange(len(rows)):
        row = np.uint64(rows[i])
        for j in range(columns):
            out[i, j] = values[row, j] - center[j]


@njit(parallel=True, cache=True)
def _put(block, rows, goal, out, by_row=False):  # type: ignore[no-untyped-def]
    # Row i of the block, or (by_row) the block's own row of the same number.
    columns = np.uint64(out.shape[1])
    for i in prange(len(rows)):
        row = np.uint64(rows[i])
        start = row if by_row else np.uint64(i)
        for j in range(columns):
            out[row, j] = block[start, j] + goal[j]


@njit(parallel=True, cache=True)
def _narrow_map(values, group, turned, origin, goal, out):  # type: ignore[no-untyped-def]
    # Columns of the maps are added up, so that the inner loop is over neighbours in memory and
    # vectorises.
    rows, width, parts = values.shape[0], np.uint64(values.shape[1]), group_kernels.MOST_PARTS
    for part in prange(parts):
        total = np.empty(values.shape[1])
        for i in range(rows * part // parts, rows * (part + 1) // parts):
            if group[i] >= 0:
                g = np.uint64(group[i])
                for a in range(width):
                    total[a] = goal[g, a]
                for b in range(width):
                    deviation = values[i, b] - origin[g, b]
                    for a in range(width):
                        total[a] += deviation * turned[g, b, a]
                for a in range(width):
                    out[i, a] = total[a]


@njit(parallel=True, cache=True)
def _narrow_outer(  # type: ignore[no-untyped-def]
    left, left_origin, right, order, starts, right_origin, total
):
    width = np.uint64(left.shape[1])
    for g in prange(total.shape[0]):
        h = np.uint64(g)
        deviation = np.empty(left.shape[1])
        for e in range(starts[g], starts[g + 1]):
            i = np.uint64(order[e])
            for b in range(width):
                deviation[b] = right[i, b] - right_origin[h, b]
            for a in range(width):
                value = left[i, a] - left_origin[h, a]
                for b in range(width):
                    total[h, a, b] += value * deviation[b]
