"""Hops: the matrices that engines compute, in memory, in files, or computed on request.

Everything above the engines reads a hop by rows (`hop.rows(index)`) and never asks where it lies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy import ndarray

from impact_gnn import _files, _native

BLOCK = 1 << 16
"""Rows per block in passes over a whole hop; the same on all engines, so that sums agree."""

Change: TypeAlias = Callable[[ndarray, ndarray], ndarray]
"""A function of rows [n, f] and of their positions [n]."""


@runtime_checkable
class Hop(Protocol):
    """A matrix [N, f] that returns rows: an array, column slices in files, or computed rows."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype: ...

    def rows(self, index: ndarray) -> ndarray:
        """Return a new array with the rows at positions `index`."""


class ArrayHop(ndarray):
    """A hop in memory: an ordinary array with the method `rows`."""

    def rows(self, index: ndarray) -> ndarray:
        return np.asarray(self)[index]

    def __repr__(self) -> str:
        return repr(np.asarray(self))


class _LazyHop:
    """Conversion to arrays, slicing and length of hops that are not arrays."""

    shape: tuple[int, int]
    dtype: np.dtype

    def rows(self, index: ndarray) -> ndarray:
        raise NotImplementedError

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> ndarray:
        # Whatever the index is, it becomes positions of rows.
        return self.rows(np.arange(len(self))[index])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> ndarray:
        # numpy asks for the array in `np.asarray(hop)`; all rows are read.
        values = self[:]
        return values if dtype is None else values.astype(dtype, copy=False)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(shape={self.shape}, dtype={self.dtype})"


@dataclass(frozen=True, eq=False, repr=False)
class SlicedHop(_LazyHop):
    """A hop in files, one array per slice of columns; `key` identifies what was computed."""

    slices: tuple[ndarray, ...]
    key: str

    @property
    def shape(self) -> tuple[int, int]:  # type: ignore[override]
        num_columns = sum(part.shape[1] for part in self.slices)
        return len(self.slices[0]), num_columns

    @property
    def dtype(self) -> np.dtype:  # type: ignore[override]
        return self.slices[0].dtype

    def rows(self, index: ndarray) -> ndarray:
        values = np.empty((len(index), self.shape[1]), self.dtype)
        begin = 0
        for part in self.slices:
            end = begin + part.shape[1]
            values[:, begin:end] = part[index]
            _native.release(part)  # each row may have loaded a page
            begin = end
        return values

    @classmethod
    def open(cls, files: Sequence[str], key: str) -> SlicedHop:
        return cls(tuple(_files.open_array(Path(file)) for file in files), key)

    def __reduce__(self) -> tuple[Any, ...]:
        files = [str(part.filename) for part in self.slices]  # type: ignore[attr-defined]
        return SlicedHop.open, (files, self.key)

    def columns(self, low: int, high: int) -> ndarray:
        """Read columns low .. high−1 into memory."""
        values = np.empty((self.shape[0], high - low), self.dtype)
        begin = 0
        for part in self.slices:
            # The columns that this slice and the request have in common.
            overlap = part[:, max(low - begin, 0) : max(high - begin, 0)]
            # Where the common columns begin in the result.
            first = max(begin - low, 0)
            _copy_columns(overlap, values[:, first : first + overlap.shape[1]])
            begin += part.shape[1]
        return values


@dataclass(frozen=True, eq=False, repr=False)
class ComputedHop(_LazyHop):
    """A hop whose rows are computed on request: `compute(index)` returns rows of type `dtype`.

    A hop that derives from another one has `recompute(values, index)`: its rows if the original
    hop had these values.
    """

    shape: tuple[int, int]
    dtype: np.dtype
    compute: Callable[[ndarray], ndarray]
    recompute: Change | None = None

    def rows(self, index: ndarray) -> ndarray:
        return self.compute(np.asarray(index))


def as_hop(values: Any) -> Any:
    """Turn an array into a hop; hops are returned unchanged."""
    return values.view(ArrayHop) if type(values) is ndarray else values


def mapped_hop(hop: Any, change: Change, dtype: Any = None) -> ComputedHop:
    """Return the hop with rows `change(rows of hop, their positions)`."""
    return ComputedHop(
        shape=hop.shape,
        dtype=np.dtype(dtype or hop.dtype),
        compute=lambda index: change(hop.rows(index), index),
        # Through all changes since the engine, in their order.
        recompute=lambda values, index: change(recompute(hop, values, index), index),
    )


def selected_hop(hop: Any, rows: ndarray) -> ComputedHop:
    """Return the hop that consists of the rows at positions `rows` of another hop."""
    return ComputedHop(
        shape=(len(rows), hop.shape[1]),
        dtype=hop.dtype,
        # Positions among the selected rows become positions in the other hop.
        compute=lambda index: hop.rows(rows[index]),
        recompute=lambda values, index: recompute(hop, values, rows[index]),
    )


def recompute(hop: Any, values: ndarray, index: ndarray) -> ndarray:
    """Return the rows at `index` if the engine had computed `values` there.

    Statistics of alignments stay as they are.
    """
    if isinstance(hop, ComputedHop) and hop.recompute:
        return hop.recompute(values, index)
    return values


def position_blocks(num_rows: int) -> Iterator[ndarray]:
    """Yield the positions 0 .. num_rows−1, `BLOCK` at a time."""
    for begin in range(0, num_rows, BLOCK):
        yield np.arange(begin, min(begin + BLOCK, num_rows))


@dataclass(frozen=True, eq=False)
class ComputedColumns:
    """Features [N, f] computed by column from `sources`, such as one-hot labels.

    `columns(low, high)` returns columns low .. high−1 in memory, rows contiguous.
    """

    shape: tuple[int, int]
    dtype: np.dtype
    sources: tuple[Any, ...]
    columns: Callable[[int, int], ndarray]

    @property
    def key(self) -> str:
        return _files.digest(*self.sources)


Features: TypeAlias = "ndarray | SlicedHop | ComputedColumns"


def columns_of(x: Any, low: int, high: int, dtype: Any) -> ndarray:
    """Return columns low .. high−1 of features in memory, rows contiguous, in type `dtype`."""
    if not isinstance(x, ndarray):
        return x.columns(low, high).astype(dtype, copy=False)
    has_all_columns = (low, high) == (0, x.shape[1])
    # All columns of an array in memory are used as they are; kernels read rows in any order, so
    # a mapped array is copied.
    if has_all_columns and x.dtype == dtype and _native.mapping(x) is None:
        return np.ascontiguousarray(x)
    values = _native.aligned_empty((len(x), high - low), dtype)
    _copy_columns(x[:, low:high], values)
    return values


def _copy_columns(values: ndarray, out: ndarray) -> None:
    """Copy a matrix, and release the pages of a mapped one block by block."""
    for rows in _native.blocks(values):
        out[rows] = values[rows]
