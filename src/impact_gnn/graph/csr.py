"""Edges grouped by target: the form in which messages are summed.

A counting sort in two passes; the order of edges into one target is the order in which they were given, so
the result does not depend on anything but the input.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit


@dataclass(frozen=True, eq=False)
class CSR:
    """Sources of the edges into target v: `indices[indptr[v]:indptr[v + 1]]`, with their weights if any."""

    indptr: np.ndarray
    indices: np.ndarray
    weight: np.ndarray | None
    num_sources: int

    @property
    def num_targets(self) -> int:
        """Number of rows."""
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        """Number of stored edges."""
        return len(self.indices)


def build_csr(
    source: np.ndarray,
    target: np.ndarray,
    num_sources: int,
    num_targets: int,
    weight: np.ndarray | None = None,
) -> CSR:
    """The edges source → target as `CSR`, indices in 32 bits where they fit.

    Example:
        >>> csr = build_csr(np.array([0, 2, 1]), np.array([1, 0, 1]), 3, 2)
        >>> csr.indptr, csr.indices
        (array([0, 1, 3]), array([2, 0, 1], dtype=int32))
    """
    indptr = np.zeros(num_targets + 1, np.int64)
    np.cumsum(np.bincount(target, minlength=num_targets), out=indptr[1:])
    indices = np.empty(len(source), np.int32 if num_sources <= np.iinfo(np.int32).max else np.int64)
    if weight is None:
        _place(source, target, indptr[:-1].copy(), indices)
        return CSR(indptr, indices, None, num_sources)
    placed = np.empty(len(weight), np.float32 if weight.dtype.itemsize <= 4 else np.float64)
    _place_weighted(source, target, weight, indptr[:-1].copy(), indices, placed)
    return CSR(indptr, indices, placed, num_sources)


@njit(cache=True)
def _place(source, target, position, indices):  # type: ignore[no-untyped-def]
    for e in range(len(source)):
        row = target[e]
        indices[position[row]] = source[e]
        position[row] += 1


@njit(cache=True)
def _place_weighted(source, target, weight, position, indices, placed):  # type: ignore[no-untyped-def]
    for e in range(len(source)):
        row = target[e]
        indices[position[row]] = source[e]
        placed[position[row]] = weight[e]
        position[row] += 1
