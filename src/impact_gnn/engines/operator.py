"""The propagation operator M = normalise(Ω[t_v, t_u]·a_vu).

Nothing is stored per edge but its source (and its own weight, if it has one). Applying it to X, or
its transpose to a gradient, is one pass of the same kernel. Its arrays may be mapped from files: a
pass over some rows reads only those.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy import ndarray

from impact_gnn import _native, checks
from impact_gnn._array import safe_divide, smallest_unsigned
from impact_gnn._native import CACHE_LINE, aligned_empty, plain_view
from impact_gnn.checks import InputError
from impact_gnn.engines import kernels
from impact_gnn.graph.csr import CSR

NORMS = ("mean", "sym", "sum")
"""Weighted mean (rows sum to 1), D^-½ on both sides (D: incoming weight), or the weighted sum."""

TASK = 1 << 23
"""Numbers read per task: few enough to balance threads, enough to hide the cost of its start."""

SLICE = 64  # columns per task of a row with so many edges that threads share its columns

FLOATS = (np.float16, np.float32, np.float64)


@dataclass(frozen=True, eq=False)
class Operator:
    """M = normalise(Ω[t_v, t_u]·a_vu), built once and applied to many X.

    With w_vu = Ω[t_v, t_u]·a_vu (divided by Σ a_vw over the sources w of the time t_u where
    `balanced`), and w_vv increased by 1 where `self_loop`, row v of the result is

    * "mean": Σ_u w_vu·x_u / Σ_u w_vu, zeros where no weight comes in;
    * "sym": Σ_u w_vu·x_u / √(D_v·D_u) with D_v = Σ_u w_vu, without nodes where it is zero;
    * "sum": Σ_u w_vu·x_u.

    The same graph and X give the same bits whatever the number of threads, and the result of a
    column does not depend on the other columns. Sums are in float32 for up to 256 neighbours, and
    in float64 beyond them and for X of float64.

    Args:
        csr: The edges by target.
        table: Ω [target periods, source periods], zero or more.
        source_period: For every source node its column of the table.
        target_period: For every target node its row of the table.
        norm: "mean", "sym" or "sum".
        self_loop: Adds a loop of weight 1 to every node; sources and targets must be the same
            nodes.
        balanced: Within a row all periods of sources count the same, however many sources they
            have: GSMP.

    Examples:
        >>> from impact_gnn.graph import build_csr
        >>> csr = build_csr(np.array([0, 1, 2]), np.array([1, 2, 2]), 3, 3)
        >>> late_counts_twice = np.array([[1.0, 2.0], [1.0, 2.0]])
        >>> period = np.array([0, 0, 1])
        >>> m = Operator(csr, late_counts_twice, period, period)
        >>> m.apply(np.array([[3.0], [6.0], [9.0]]))
        array([[0.],
               [3.],
               [8.]])
    """

    csr: CSR
    table: ndarray
    source_period: ndarray
    target_period: ndarray
    norm: str = "mean"
    self_loop: bool = False
    balanced: bool = False

    def __post_init__(self) -> None:
        checks.choice("norm", self.norm, NORMS)
        sources = self.csr.num_sources
        targets = self.csr.num_targets
        if sources != targets and (self.norm == "sym" or self.self_loop):
            option = 'norm="sym"' if self.norm == "sym" else "self_loop=True"
            raise InputError(
                f"{option} needs the same nodes as sources and targets, but there are {sources} "
                f'sources and {targets} targets; use norm="mean" without self-loops between '
                f"different types."
            )
        table = np.ascontiguousarray(checks.array("table", self.table), dtype=np.float64)
        is_valid = np.isfinite(table) & (table >= 0)
        if table.ndim != 2 or not is_valid.all():
            raise InputError(
                f"table (shape {table.shape}) must be a matrix of finite weights of zero or more."
            )
        # Both periods in one type: the kernel is compiled for every new combination.
        dtype = smallest_unsigned(max(table.shape))
        source_period = _periods("source_period", self.source_period, sources, table.shape[1])
        target_period = _periods("target_period", self.target_period, targets, table.shape[0])
        object.__setattr__(self, "table", table)
        object.__setattr__(self, "source_period", source_period.astype(dtype, copy=False))
        object.__setattr__(self, "target_period", target_period.astype(dtype, copy=False))

    def apply(
        self,
        x: Any,
        out: ndarray | None = None,
        threads: int | None = None,
        rows: tuple[int, int] | None = None,
    ) -> ndarray:
        """Compute M·X.

        Args:
            x: [sources, f] of float16, float32 or float64.
            out: The result's array, [targets, f]; by default a new one of the type of `x`.
            threads: By default as many as there are cores.
            rows: First and last target (excluded) to compute; by default all.
        """
        return self._forward.apply(x, out, threads, rows)

    def transpose_apply(self, x: Any) -> ndarray:
        """Compute Mᵀ·X for `x` [targets, f], the gradient of `apply`.

        The first call groups the edges by source.
        """
        return self._backward.apply(x)

    def apply_rows(
        self,
        x: ndarray,
        rows: ndarray,
        threads: int | None = None,
        *,
        sources: ndarray | None = None,
    ) -> ndarray:
        """Compute the rows `rows` of M·X at the cost of their own edges.

        With `sources`, increasing positions, `x` has the rows of these nodes only.
        """
        row_scale = np.empty(0)
        # The kernel divides by the weights itself, unless a loop is added afterwards.
        if self.norm != "mean" or self.self_loop:
            row_scale = self.row_scale[rows]
        # The same pass over the edges of these rows; loops are added below.
        part = replace(
            self._forward,
            csr=self.edges.take(rows),
            target_period=self.target_period[rows],
            row_scale=row_scale,
            self_loop=False,
        )
        own = rows
        if sources is not None:
            part = part.between(sources)
            own = np.searchsorted(sources, rows)
        result = part.apply(x, threads=threads)
        # The kernel reads the loop of row v at x_v, which is x[own[v]] here.
        if self.self_loop:
            # [rows, f], from scales in float64.
            loop = (self.row_scale * self.column_scale)[rows, None] * x[own]
            result += loop.astype(result.dtype)
        return result

    @cached_property
    def edges(self) -> CSR:
        """The edges with weights, except for those of the table: `csr`, balanced if requested."""
        if not self.balanced:
            return self.csr
        weight = self.balance(np.empty(self.csr.num_edges, self.weight_dtype))
        return replace(self.csr, weight=weight)

    @property
    def weight_dtype(self) -> np.dtype:
        """The type of the weights of edges."""
        if self.csr.weight is None:
            return np.dtype(np.float32)
        return self.csr.weight.dtype

    def balance(self, out: ndarray) -> ndarray:
        """Fill `out` with a_vu / Σ a_vw over the sources w of the time t_u, for every edge."""
        csr = self.csr
        for rows in row_blocks(csr):
            kernels.balanced(
                rows,
                kernel_arrays(csr),
                plain_view(self.source_period),
                self.table.shape[1],
                plain_view(out),
            )
            _native.release(csr.indices, csr.weight, out)
        return out

    @property
    def in_weight(self) -> ndarray:
        """The incoming weight of every target, self-loop included: Σ_u w_vu, in float64."""
        return self._sums.row_sums() + float(self.self_loop)

    @cached_property
    def row_scale(self) -> ndarray:
        """The factor of the weighted sum of row v, in float64."""
        if self.norm == "sum":
            return np.ones(self.csr.num_targets)
        total = self.in_weight
        if self.norm == "sym":
            # The other half of the power is the scale of the column.
            total = np.sqrt(total)
        # A node without incoming weight has the factor 0.
        return safe_divide(1.0, total)

    @cached_property
    def column_scale(self) -> ndarray:
        """The factor of x_u before the sum, in float64."""
        return self.row_scale if self.norm == "sym" else np.ones(self.csr.num_sources)

    @cached_property
    def _sums(self) -> _Pass:
        """The pass without scales and self-loops."""
        table = self.table
        if (table == 1).all():
            # Without a table the kernel looks up no weights.
            table = np.empty((0, 0))
        return _Pass(
            csr=self.edges,
            table=table,
            source_period=self.source_period,
            target_period=self.target_period,
            row_scale=np.empty(0),
            column_scale=np.empty(0),
            self_loop=False,
        )

    @cached_property
    def _forward(self) -> _Pass:
        """The pass of `apply`."""
        forward = replace(self._sums, self_loop=self.self_loop)
        if self.norm == "mean":
            # The kernel sums the weights.
            return forward
        if self.norm == "sym":
            forward = replace(forward, column_scale=self.column_scale)
        return replace(forward, row_scale=self.row_scale)

    @cached_property
    def _backward(self) -> _Pass:
        column_scale = np.empty(0)
        if self.norm != "sum":
            column_scale = self.row_scale
        return _Pass(
            csr=self.edges.transposed(),
            table=self._sums.table.T,
            source_period=self.target_period,
            target_period=self.source_period,
            # Transposed, rows and columns change places, and so do their scales.
            row_scale=self.column_scale,
            column_scale=column_scale,
            self_loop=self.self_loop,
        )


@dataclass(frozen=True, eq=False)
class _Pass:
    """One pass of the kernel over checked arrays.

    out_v = row_scale_v · (Σ_u table[t_v, t_u]·a_vu·column_scale_u·x_u
                           + [self_loop] column_scale_v·x_v)

    `table` and `column_scale` are empty where they are 1 everywhere. Where `row_scale` is empty,
    rows are divided by their incoming weight, self-loop included.
    """

    csr: CSR
    table: ndarray
    source_period: ndarray
    target_period: ndarray
    row_scale: ndarray
    column_scale: ndarray
    self_loop: bool

    def apply(
        self,
        x: Any,
        out: ndarray | None = None,
        threads: int | None = None,
        rows: tuple[int, int] | None = None,
    ) -> ndarray:
        x = _matrix(x, self.csr.num_sources)
        shape = self.csr.num_targets, x.shape[1]
        if out is None:
            out = aligned_empty(shape, x.dtype)
        _check_writable(out, shape, x)
        # The kernel takes the address of the first element, which is missing here.
        if out.size == 0:
            return out
        table, column_scale = self._factors(x.dtype == np.float64)
        shared = (
            kernel_arrays(self.csr),
            table,
            self._periods,
            plain_view(self.row_scale),
            column_scale,
            self.self_loop,
            # Memory and row stride of both matrices.
            _flat(x),
            _flat(out),
            prefetch_distance(x),
        )
        tiles = self._tiles(x.shape[1], rows or (0, shape[0]))
        tasks = [(*tile, *shared) for tile in tiles]
        _native.run(kernels.gather, tasks, threads)
        return out

    def between(self, sources: ndarray) -> _Pass:
        """Return the pass that reads a row of x for each of these sources, and no others."""
        # Sources by their places among the rows of x, in the type that the kernel knows.
        indices = self.csr.indices
        position = np.searchsorted(sources, indices).astype(indices.dtype)
        column_scale = self.column_scale
        if len(column_scale):
            column_scale = column_scale[sources]
        return replace(
            self,
            csr=replace(self.csr, indices=position, num_sources=len(sources)),
            source_period=self.source_period[sources],
            column_scale=column_scale,
        )

    def row_sums(self) -> ndarray:
        """Compute Σ_u table[t_v, t_u]·a_vu for every target v, in float64, without scales."""
        # Without weights the sum is the number of edges.
        if not self.table.size and self.csr.weight is None:
            return np.diff(self.csr.indptr).astype(np.float64)
        sums = np.empty(self.csr.num_targets)
        shared = (kernel_arrays(self.csr), plain_view(self.table), self._periods, sums)
        for block in row_blocks(self.csr):
            # Tiles as for 8 columns: summing weights takes less time per edge than summing rows.
            tasks = [(rows, *shared) for rows, _ in self._tiles(8, block)]
            _native.run(kernels.row_sums, tasks, None)
            _native.release(self.csr.indices, self.csr.weight)
        return sums

    def _tiles(
        self, columns: int, rows: tuple[int, int]
    ) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
        """Cut the result into (rows, columns) of about equal work, one per task of a thread."""
        # Edges of a task; an edge reads one row of x.
        max_edges = max(1, TASK // columns)
        # Borders of the requested rows only; positions below are relative to rows[0].
        indptr = self.csr.indptr[rows[0] : rows[1] + 1]
        for low, high in pairwise(_native.spans(indptr, max_edges).tolist()):
            # One row with very many edges is cut by columns, or one thread would end long after the
            # others.
            is_heavy = high - low == 1 and indptr[high] - indptr[low] > max_edges
            step = SLICE if is_heavy else columns
            for begin in range(0, columns, step):
                end = min(columns, begin + step)
                yield (rows[0] + low, rows[0] + high), (begin, end)

    def _factors(self, double: bool) -> tuple[ndarray, ndarray]:
        """The flat table and the column scale, in the type of the sums."""
        table = plain_view(self.table)
        if double:
            return table, self.column_scale
        return table.astype(np.float32), self._single_column_scale

    @cached_property
    def _single_column_scale(self) -> ndarray:
        return self.column_scale.astype(np.float32)

    @property
    def _periods(self) -> tuple[ndarray, ndarray, int]:
        source_period = plain_view(self.source_period)
        return source_period, plain_view(self.target_period), self.table.shape[1]


def kernel_arrays(csr: CSR) -> tuple[ndarray, ...]:
    """Row borders, sources and weights (empty where there are none) as the kernels take them."""
    weight = np.empty(0, np.float32) if csr.weight is None else csr.weight
    return plain_view(csr.indptr), plain_view(csr.indices), plain_view(weight)


def row_blocks(csr: CSR, edges: int = 1 << 24) -> Iterator[tuple[int, int]]:
    """Yield runs of rows with about `edges` edges, for releasing mapped pages in between."""
    yield from pairwise(_native.spans(csr.indptr, edges).tolist())


def prefetch_distance(x: ndarray) -> int:
    """Return how many edges ahead a row of `x` is prefetched; narrow rows take less time."""
    return 32 if x.shape[1] * x.dtype.itemsize <= 2 * CACHE_LINE else 8


def _periods(name: str, value: Any, size: int, num_periods: int) -> ndarray:
    periods = checks.array(name, value)
    if periods.shape != (size,) or periods.dtype.kind not in "iu":
        raise InputError(
            f"{name} is {periods.dtype} of shape {periods.shape}; "
            f"pass one whole number for each of {size} nodes."
        )
    # Minimum and maximum first: they need no memory, and periods may be mapped from a file.
    if size and (periods.min() < 0 or periods.max() >= num_periods):
        node = int(np.argmax((periods < 0) | (periods >= num_periods)))
        raise InputError(
            f"{name} is {periods[node]} at node {node}, "
            f"but the table has {num_periods} such periods (from 0)."
        )
    return periods


def _matrix(value: Any, num_rows: int) -> ndarray:
    """Return features as a contiguous array; a copy only if `value` is not."""
    x = checks.array("x", value)
    if x.ndim != 2 or len(x) != num_rows:
        raise InputError(
            f"x has shape {x.shape}; pass a matrix with {num_rows} rows, one per source node."
        )
    check_float(x)
    return np.require(x, x.dtype.newbyteorder("="), ["C", "A"])


def check_float(x: ndarray) -> None:
    """Refuse features of a type that the kernel cannot sum."""
    if x.dtype not in FLOATS:
        raise InputError(
            f"x has dtype {x.dtype}; pass float16, float32 or float64 (x.astype(np.float32))."
        )


def _check_writable(out: ndarray, shape: tuple[int, int], x: ndarray) -> None:
    if not isinstance(out, ndarray) or out.shape != shape or out.dtype not in FLOATS:
        dtype = getattr(out, "dtype", type(out).__name__)
        raise InputError(
            f"out is {dtype} of shape {np.shape(out)}; use a float array of shape {shape}."
        )
    if not out.flags.carray or np.shares_memory(out, x):
        raise InputError("out must be writable, contiguous, and share no memory with x.")


def _flat(matrix: ndarray) -> tuple[ndarray, int]:
    """Return a matrix as the kernel takes it: its memory as a flat array, and its row stride."""
    flat = plain_view(matrix)
    # Numba has no half precision; the kernel converts.
    if matrix.dtype == np.float16:
        flat = flat.view(np.uint16)
    return flat, matrix.shape[1]
