"""The grouped operations of `impact_gnn._array` in numpy.

For scatter matrices and linear maps, rows are brought together by group, so that each group is a
few calls of BLAS. Products are of deviations, subtracted in float64, and are added up in float64
block by block.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
from numpy import ndarray

from impact_gnn._array.group_kernels import group_affine, group_moments

__all__ = ["group_affine", "group_map", "group_moments", "group_scatter", "spd_transport"]

BLOCK = 8192  # rows whose products are summed in the storage type, before the float64 total


def group_scatter(values: ndarray, group: ndarray, num_groups: int) -> ndarray:
    """Compute `_array.group_scatter`."""
    _, mean, _ = group_moments(values, group, num_groups)
    width = values.shape[1]
    total = np.zeros((num_groups, width, width))
    for g, rows in _blocks(group, num_groups):
        # Subtracted in float64, multiplied in the storage type.
        deviation = (values[rows] - mean[g]).astype(values.dtype)
        total[g] += deviation.T @ deviation
    return total


def group_map(values: ndarray, group: ndarray, maps: ndarray, family: ndarray) -> ndarray:
    """Compute `_array.group_map`."""
    center = _family_means(values, group, family)
    out = np.array(values, order="C")
    # Rows are vectors: x Aᵀ in place of A x.
    turned = np.swapaxes(maps, 1, 2).astype(values.dtype, copy=False)
    for g, rows in _blocks(group, len(maps)):
        # Only the rows of this block: no copy of the whole matrix.
        deviation = (values[rows] - center[g]).astype(values.dtype)
        out[rows] = deviation @ turned[g] + center[g]
    return out


def _family_means(values: ndarray, group: ndarray, family: ndarray) -> ndarray:
    """Return the mean [G, f] over the rows of every group's family."""
    # [G] and [G, f]; then sums over the groups of a family.
    count, mean, _ = group_moments(values, group, len(family))
    size = np.bincount(family, count)
    total = np.zeros((len(size), values.shape[1]))
    np.add.at(total, family, count[:, None] * mean)
    family_mean = total / np.maximum(size, 1)[:, None]
    return family_mean[family]


def spd_transport(
    source: ndarray, goal: ndarray, floors: tuple[ndarray, ndarray], dtype: Any
) -> ndarray:
    """Compute `_array.spd_transport`."""
    maps, _ = transport(np, source, goal, floors, dtype)
    return maps


def transport(
    lib: ModuleType, source: Any, goal: Any, floors: tuple[Any, Any], dtype: Any
) -> tuple[Any, tuple[Any, ...]]:
    """Compute `_array.spd_transport` and the inputs of its gradient; `lib` is numpy or torch."""
    source_floor, goal_floor = floors
    # Γ = L Lᵀ with L = basis·√eigenvalues, which are raised to their floor.
    values, basis = lib.linalg.eigh(goal)
    raised = lib.maximum(values, goal_floor[..., None])
    half = basis * lib.sqrt(raised)[..., None, :]
    # One L for the K covariances of each goal, [..., 1, f, f].
    half = half[..., None, :, :]
    # Lᵀ Σ L, [..., K, f, f].
    turned = lib.swapaxes(half, -1, -2) @ source @ half
    gamma, inner = lib.linalg.eigh(turned)
    # From here on in the type of the maps, but not before: the eigenvalues of Lᵀ Σ L span twice as
    # many orders of magnitude as those of Σ, while maps are sums of positive parts.
    inner = lib.asarray(inner, dtype=dtype)
    # F = L V: its columns diagonalise Γ and Σ at once.
    frame = lib.asarray(half, dtype=dtype) @ inner
    # γ_k = f_kᵀ Σ f_k is at least floor·‖f_k‖² where the eigenvalues of Σ are at least floor.
    least = source_floor[..., None] * (frame * frame).sum(-2)
    # 1 where an eigenvalue is above its floor; floored ones have no gradient.
    follows = lib.asarray(gamma >= least, dtype=dtype)
    gamma = lib.asarray(lib.maximum(gamma, least), dtype=dtype)
    # A = F γ^-½ Fᵀ, from two factors with γ^-¼, so that it is symmetric.
    scaled = frame / (gamma**0.25)[..., None, :]
    maps = scaled @ lib.swapaxes(scaled, -1, -2)
    return maps, (values, raised, basis, inner, gamma, frame, follows)


def _blocks(group: ndarray, num_groups: int) -> Iterator[tuple[int, ndarray]]:
    """Yield every group with its row numbers, in blocks of at most `BLOCK`."""
    # Rows sorted by group; negative groups come first, before `starts[0]`.
    order = np.argsort(group, kind="stable")
    starts = np.searchsorted(group[order], np.arange(num_groups + 1))
    for g in np.flatnonzero(np.diff(starts)):
        rows = order[starts[g] : starts[g + 1]]
        for low in range(0, len(rows), BLOCK):
            yield int(g), rows[low : low + BLOCK]
