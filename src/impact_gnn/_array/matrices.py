"""Grouped matrix products in numpy: scatter matrices, and one linear map per group.

Rows are brought together by group, so that each group is one call of BLAS; products are made on deviations
from the group's own mean and added up in float64 block by block, so float32 storage loses nothing that counts.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from impact_gnn._array import kernels

BLOCK = 8192
"""Rows whose products are summed in the storage type before they go into the float64 total."""


def segments(group: np.ndarray, num_groups: int) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers sorted by group (negative groups left out), and where each group starts [G + 1]."""
    order = np.argsort(group, kind="stable")
    starts = np.searchsorted(group[order], np.arange(num_groups + 1))
    return order, starts


def pieces(group: np.ndarray, num_groups: int) -> Iterator[tuple[int, np.ndarray]]:
    """For every group its row numbers, in blocks of at most `BLOCK`."""
    order, starts = segments(group, num_groups)
    for g in np.flatnonzero(np.diff(starts)):
        for low in range(starts[g], starts[g + 1], BLOCK):
            yield int(g), order[low : min(low + BLOCK, starts[g + 1])]


def scatter(values: np.ndarray, group: np.ndarray, num_groups: int) -> np.ndarray:
    """See `_array.group_scatter`."""
    _, mean, _ = kernels.moments(values, group, num_groups)
    total = np.zeros((num_groups, values.shape[1], values.shape[1]))
    for g, rows in pieces(group, num_groups):
        deviation = (values[rows] - mean[g]).astype(values.dtype, copy=False)
        total[g] += deviation.T @ deviation
    return total


def scatter_gradient(values: np.ndarray, group: np.ndarray, mean: np.ndarray, grad: np.ndarray) -> np.ndarray:
    """dL/dx of `scatter`: (G_g + G_gᵀ)(x − mean_g); the mean's own share adds up to nothing."""
    out = np.zeros(values.shape, values.dtype)
    both = (grad + np.swapaxes(grad, 1, 2)).astype(values.dtype, copy=False)
    for g, rows in pieces(group, len(mean)):
        out[rows] = (values[rows] - mean[g]).astype(values.dtype, copy=False) @ both[g]
    return out


def apply(values: np.ndarray, group: np.ndarray, maps: np.ndarray, center: np.ndarray) -> np.ndarray:
    """See `_array.group_map`."""
    out = np.array(values, copy=True)
    turned = np.swapaxes(maps, 1, 2).astype(values.dtype, copy=False)
    for g, rows in pieces(group, len(maps)):
        deviation = (values[rows] - center[g]).astype(values.dtype, copy=False)
        out[rows] = deviation @ turned[g] + center[g]
    return out


def apply_gradient(
    grad: np.ndarray, values: np.ndarray, group: np.ndarray, maps: np.ndarray, center: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gradients of `apply` for its values, maps and centres."""
    back = np.array(grad, copy=True)
    straight = maps.astype(values.dtype, copy=False)
    grad_maps, grad_center = np.zeros(maps.shape), np.zeros(center.shape)
    for g, rows in pieces(group, len(maps)):
        piece = grad[rows]
        through = piece @ straight[g]
        back[rows] = through
        grad_maps[g] += piece.T @ (values[rows] - center[g]).astype(values.dtype, copy=False)
        grad_center[g] += piece.sum(0, dtype=np.float64) - through.sum(0, dtype=np.float64)
    return back, grad_maps, grad_center
