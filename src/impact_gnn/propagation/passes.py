"""One pass of the kernel over a matrix: the operation with everything it needs worked out, shared among threads."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from impact_gnn import checks
from impact_gnn._array import smallest_unsigned
from impact_gnn.checks import InputError
from impact_gnn.graph.csr import CSR
from impact_gnn.propagation import kernels
from impact_gnn.propagation import threads as pool

TASK = 1 << 23
"""Numbers read by one task: short enough to share the work evenly, long enough for its start not to count."""

SLICE = 64
"""Columns per task of a row so heavy that its columns are shared among threads."""

CACHE_LINE = 64
FLOATS = (np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64))


@dataclass(frozen=True, eq=False)
class Pass:
    """out_v = row_scale_v · (Σ_u table[t_v, t_u]·a_vu·column_scale_u·x_u + [self_loop] column_scale_v·x_v).

    Everything has been checked. `table` and `column_scale` are None where they are 1 everywhere.
    """

    csr: CSR
    table: np.ndarray | None
    source_period: np.ndarray
    target_period: np.ndarray
    row_scale: np.ndarray
    column_scale: np.ndarray | None
    self_loop: bool

    def apply(self, x: Any, out: np.ndarray | None = None, threads: int | None = None) -> np.ndarray:
        """The pass over `x` [sources, f], into `out` [targets, f] or a new array of the type of `x`."""
        x = _matrix("x", x, self.csr.num_sources, "source")
        shape = self.csr.num_targets, x.shape[1]
        out = aligned_empty(shape, x.dtype) if out is None else _writable(out, shape, x)
        if out.size == 0:
            return out
        table, column_scale = self._double if x.dtype == np.float64 else self._single
        rest = (
            self._edges, table, self._periods, self.row_scale, column_scale, self.self_loop, _flat(x), _flat(out),
            ahead(x),
        )  # fmt: skip
        pool.run(kernels.gather, [(*place, *rest) for place in self._places(x.shape[1])], threads)
        return out

    def row_sums(self) -> np.ndarray:
        """Σ_u table[t_v, t_u]·a_vu for every target v, in float64; scales and self-loops do not count."""
        out = np.empty(self.csr.num_targets)
        table = np.empty(0) if self.table is None else self.table.reshape(-1)
        tasks = [(rows, self._edges, table, self._periods, out) for rows, _ in self._places(8)]
        pool.run(kernels.row_sums, tasks, None)
        return out

    def _places(self, columns: int) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
        """The result cut into rows × columns of about equal work, of which threads take one after the other."""
        most = max(1, TASK // columns)
        borders = [int(border) for border in pool.spans(self.csr.indptr, most)]
        for first, last in pairwise(borders):
            heavy = last - first == 1 and self.csr.indptr[last] - self.csr.indptr[first] > most
            step = SLICE if heavy else columns
            for c in range(0, columns, step):
                yield (first, last), (c, min(columns, c + step))

    @cached_property
    def _edges(self) -> tuple[np.ndarray, ...]:
        weight = np.empty(0, np.float32) if self.csr.weight is None else self.csr.weight
        return plain_view(self.csr.indptr), plain_view(self.csr.indices), plain_view(weight)

    @cached_property
    def _periods(self) -> tuple[np.ndarray, np.ndarray, int]:
        return self.source_period, self.target_period, 1 if self.table is None else self.table.shape[1]

    @cached_property
    def _single(self) -> tuple[np.ndarray, np.ndarray]:
        return tuple(part.astype(np.float32) for part in self._double)  # type: ignore[return-value]

    @cached_property
    def _double(self) -> tuple[np.ndarray, np.ndarray]:
        nothing = np.empty(0)
        return (
            nothing if self.table is None else np.ascontiguousarray(self.table).reshape(-1),
            nothing if self.column_scale is None else self.column_scale,
        )


def ahead(x: np.ndarray) -> int:
    """How many edges before its use a row of `x` is asked for: narrow rows earlier, as they take less time."""
    return 32 if x.shape[1] * x.dtype.itemsize <= 2 * CACHE_LINE else 8


def aligned_empty(shape: tuple[int, int], dtype: Any) -> np.ndarray:
    """An array that begins on a cache line, so that its rows touch as few lines as they can."""
    dtype = np.dtype(dtype)
    size = shape[0] * shape[1] * dtype.itemsize
    room = np.empty(size + CACHE_LINE, np.uint8)
    begin = -room.ctypes.data % CACHE_LINE
    return room[begin : begin + size].view(dtype).reshape(shape)


def periods(name: str, value: Any, size: int, most: int, room: int) -> np.ndarray:
    """One period in 0 .. `most`−1 per node, in the smallest unsigned type that holds numbers below `room`."""
    out = checks.array(name, value)
    if out.shape != (size,) or out.dtype.kind not in "iu":
        raise InputError(f"{name} is {out.dtype} of shape {out.shape}; give one whole number for each of {size} nodes.")
    if size and (out.min() < 0 or out.max() >= most):
        at = int(np.flatnonzero((out < 0) | (out >= most))[0])
        raise InputError(f"{name} holds {out[at]} at node {at}, but the table has {most} such periods (from 0).")
    return plain_view(np.ascontiguousarray(out, dtype=smallest_unsigned(room)))


def check_csr(csr: CSR) -> None:
    """Refuses a CSR whose rows or sources point outside: the kernel does not look again."""
    at, indices = csr.indptr, csr.indices
    if at.ndim != 1 or len(at) == 0 or at.dtype != np.int64 or indices.dtype not in (np.int32, np.int64):
        raise InputError(
            f"csr has indptr {at.dtype} {at.shape} and indices {indices.dtype}; give int64 row borders "
            f"(one more than targets) and int32 or int64 sources, as build_csr does."
        )
    if at[0] != 0 or at[-1] != len(indices) or (np.diff(at) < 0).any():
        raise InputError("csr.indptr must rise from 0 to the number of edges; make it with build_csr.")
    if len(indices) and (indices.min() < 0 or indices.max() >= csr.num_sources):
        raise InputError(
            f"csr.indices run from {indices.min()} to {indices.max()} for {csr.num_sources} sources; "
            f"make it with build_csr."
        )
    if csr.weight is not None:
        checks.edge_weights("csr.weight", csr.weight, len(indices))


def _matrix(name: str, value: Any, rows: int, kind: str) -> np.ndarray:
    """`value` as a matrix of floats whose rows are contiguous, copied only if it is not."""
    out = checks.array(name, value)
    if out.ndim != 2 or len(out) != rows:
        raise InputError(f"{name} has shape {out.shape}; give a matrix with {rows} rows, one per {kind} node.")
    if out.dtype not in FLOATS:
        raise InputError(f"{name} is of type {out.dtype}; give float16, float32 or float64 (x.astype(np.float32)).")
    return out if _is_row_major(out) else np.ascontiguousarray(out, dtype=out.dtype.newbyteorder("="))


def _is_row_major(matrix: np.ndarray) -> bool:
    size = matrix.dtype.itemsize
    steady = matrix.strides[1] == size and matrix.strides[0] % size == 0 and matrix.strides[0] >= 0
    return steady and matrix.flags.aligned and matrix.dtype.isnative


def _writable(out: np.ndarray, shape: tuple[int, int], x: np.ndarray) -> np.ndarray:
    if not isinstance(out, np.ndarray) or out.shape != shape or out.dtype not in FLOATS:
        found = f"{getattr(out, 'dtype', type(out).__name__)} of shape {getattr(out, 'shape', None)}"
        raise InputError(f"out is {found}; give a float array of shape {shape}.")
    if not (out.flags.writeable and _is_row_major(out)) or np.shares_memory(out, x):
        raise InputError("out must be writable, with contiguous rows, and share no memory with x.")
    return out


def _flat(matrix: np.ndarray) -> tuple[np.ndarray, int]:
    """The memory of a matrix as one run of elements, and the distance between rows, as the kernel takes it."""
    dtype = np.dtype(np.uint16) if matrix.dtype == np.float16 else matrix.dtype
    stride = matrix.strides[0] // dtype.itemsize
    return _view(matrix, (len(matrix) - 1) * stride + matrix.shape[1], dtype), stride


def plain_view(array: np.ndarray) -> np.ndarray:
    """A flat array as numba likes it best: contiguous, of no subclass, and taken for writable."""
    array = np.ascontiguousarray(array)
    return _view(array, array.size, array.dtype)


def _view(array: np.ndarray, size: int, dtype: np.dtype) -> np.ndarray:
    """`array`'s memory as a flat array that numba takes for writable: read-only ones cost a compilation each."""
    memory: Any = (ctypes.c_char * (size * dtype.itemsize)).from_address(array.ctypes.data)
    memory._owner = array  # keeps it alive as long as the view
    return np.ndarray((size,), dtype, buffer=memory)
