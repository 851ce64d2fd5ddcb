"""Three small operations on sparse matrices that scipy has no name for."""

from __future__ import annotations

import numpy as np
from scipy import sparse


def grouped(data: np.ndarray, row: np.ndarray, column: np.ndarray, shape: tuple[int, int]) -> sparse.csr_array:
    """A CSR matrix in which entries of the same place have been added up."""
    return sparse.coo_array((data, (row, column)), shape=shape).tocsr()


def divided(matrix: sparse.csr_array, divisor: np.ndarray) -> sparse.csr_array:
    """`matrix` with every row divided by its entry of `divisor`; zero where that is zero."""
    factor = np.divide(1.0, divisor, out=np.zeros(len(divisor)), where=divisor != 0)
    out = matrix.astype(np.float64)
    out.data *= np.repeat(factor, np.diff(out.indptr))
    return out


def interpolation(missing: np.ndarray, position: np.ndarray) -> sparse.csr_array:
    """The matrix that fills the missing entries along the last axis of an array [R, D], acting on [R·D, ·].

    A missing entry lies on the straight line between the nearest present ones, is held constant beyond the
    first and the last, and is zero in a row where all are missing.

    Args:
        missing: Boolean [R, D].
        position: Where the D entries stand, increasing.

    Example:
        >>> fill = interpolation(np.array([[False, True, False, True]]), np.array([0, 1, 4, 9]))
        >>> fill @ np.array([8.0, 0.0, 4.0, 0.0])
        array([8., 7., 4., 4.])
    """
    rows, size = missing.shape
    place = np.broadcast_to(np.arange(size), missing.shape)
    left = np.maximum.accumulate(np.where(missing, -1, place), axis=1)
    right = np.minimum.accumulate(np.where(missing, size, place)[:, ::-1], axis=1)[:, ::-1]
    some = left[:, -1:] >= 0
    left, right = np.where(left < 0, right, left), np.where(right == size, left, right)
    left, right = np.where(some, left, 0), np.where(some, right, 0)
    gap = position[right] - position[left]
    weight = np.where(gap > 0, (position - position[left]) / np.maximum(gap, 1), 0.0)
    at = np.arange(rows * size)
    base = at // size * size
    return grouped(
        np.concatenate([((1 - weight) * some).ravel(), (weight * some).ravel()]),
        np.concatenate([at, at]),
        np.concatenate([base + left.ravel(), base + right.ravel()]),
        (rows * size, rows * size),
    )
