"""The one operation of this library, M = normalise(Ω[t_v, t_u]·a_vu), as a value that can be applied.

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

from impact_gnn import _native, checks
from impact_gnn._array import smallest_unsigned
from impact_gnn._native import CACHE_LINE, aligned_empty, flat_view, plain_view
from impact_gnn.checks import InputError
from impact_gnn.engines import kernels
from impact_gnn.graph.csr import CSR

NORMS = ("mean", "sym", "sum")
"""Weighted mean (rows sum to 1), D^-½ on both sides (D the weight that comes in), or the weighted sum."""

TASK = 1 << 23
"""Numbers read by one task: short enough to share the work evenly, long enough for its start not to count."""

SLICE = 64  # columns per task of a row so heavy that its columns are shared among threads

FLOATS = (np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64))


@dataclass(frozen=True, eq=False)
class Operator:
    """M = normalise(Ω[t_v, t_u]·a_vu), made once and applied to many X.

    With w_vu = Ω[t_v, t_u]·a_vu (divided by Σ a_vw over the sources w of the time t_u where
    `balanced`), and w_vv increased by 1 where `self_loop`, row v of the result is

    * "mean": Σ_u w_vu·x_u / Σ_u w_vu, zeros where no weight comes in;
    * "sym": Σ_u w_vu·x_u / √(D_v·D_u) with D_v = Σ_u w_vu, nothing from or to nodes where it is
    zero; * "sum": Σ_u w_vu·x_u.

    The same graph and X give the same bits whatever the number of threads, and the result of a
    column does not depend on the other columns. Sums are kept in float32 for up to 256 neighbours
    and in float64 beyond them and for X of float64.

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
    table: np.ndarray
    source_period: np.ndarray
    target_period: np.ndarray
    norm: str = "mean"
    self_loop: bool = False
    balanced: bool = False

    def __post_init__(self) -> None:
        checks.choice("norm", self.norm, NORMS)
        sources, targets = self.csr.num_sources, self.csr.num_targets
        if sources != targets and (self.norm == "sym" or self.self_loop):
            what = 'norm="sym"' if self.norm == "sym" else "self_loop=True"
            raise InputError(
                f"{what} needs the same nodes as sources and targets, but there are {sources} sources and {targets} "
                f'targets; use norm="mean" without self-loops between different types.'
            )
        table = np.ascontiguousarray(checks.array("table", self.table), dtype=np.float64)
        if table.ndim != 2 or not np.isfinite(table).all() or table.min(initial=0) < 0:
            raise InputError(
                f"table (shape {table.shape}) must be a matrix of finite weights of zero or more."
            )
        # Both periods in one type: the kernel is compiled for every new combination.
        smallest = smallest_unsigned(max(table.shape))
        object.__setattr__(self, "table", table)
        for name, size, most in (
            ("source", sources, table.shape[1]),
            ("target", targets, table.shape[0]),
        ):
            value = _periods(f"{name}_period", getattr(self, f"{name}_period"), size, most).astype(
                smallest, copy=False
            )
            object.__setattr__(self, f"{name}_period", value)
        _check_csr(self.csr)

    # -- applying
    # ------------------------------------------------------------------------------------------

    def apply(
        self,
        x: Any,
        out: np.ndarray | None = None,
        threads: int | None = None,
        rows: tuple[int, int] | None = None,
    ) -> np.ndarray:
        """M·X.

        Args:
            x: [sources, f] of float16, float32 or float64; rows may lie apart, as in a slice of
                columns.
            out: Where to write, [targets, f]; by default a new array of the type of `x`.
            threads: By default as many as there are cores.
            rows: First and last target (excluded) to compute, others stay as they are; by default
                all.
        """
        return self._forward.apply(x, out, threads, rows)

    def transpose_apply(
        self, x: Any, out: np.ndarray | None = None, threads: int | None = None
    ) -> np.ndarray:
        """Mᵀ·X for `x` [targets, f]: the gradient of `apply`. The first call groups the edges by source."""
        return self._backward.apply(x, out, threads, None)

    def __matmul__(self, x: Any) -> np.ndarray:
        return self.apply(x)

    def apply_rows(self, x: np.ndarray, rows: np.ndarray, threads: int | None = None) -> np.ndarray:
        """Rows `rows` of M·X, at the cost of their own edges only."""
        scale = np.empty(0) if self.norm == "mean" and not self.self_loop else self.row_scale[rows]
        part = replace(
            self._forward,
            csr=self.edges.take(rows),
            target_period=self.target_period[rows],
            row_scale=scale,
            self_loop=False,
        )
        out = part.apply(x, None, threads, None)
        # the kernel looks for the loop of row v at x_v, which is x[rows[v]] here
        if self.self_loop:
            out += ((self.row_scale * self.column_scale)[rows, None] * x[rows]).astype(out.dtype)
        return out

    # -- its parts
    # -----------------------------------------------------------------------------------------

    @cached_property
    def edges(self) -> CSR:
        """The edges with all of their weight that is not the table's: `csr`, balanced if asked."""
        if not self.balanced:
            return self.csr
        weight = np.empty(
            self.csr.num_edges, np.float32 if self.csr.weight is None else self.csr.weight.dtype
        )
        return replace(self.csr, weight=self.balance(weight))

    def balance(self, out: np.ndarray) -> np.ndarray:
        """Fills `out` with a_vu / Σ a_vw over the sources w of the time t_u, for every edge of `csr`."""
        csr = self.csr
        weight = np.empty(0, np.float32) if csr.weight is None else csr.weight
        rest = (
            tuple(map(plain_view, (csr.indptr, csr.indices, weight))),
            plain_view(self.source_period),
        )
        for rows in row_blocks(csr):
            _native.run(
                kernels.balanced, [(rows, *rest, self.table.shape[1], plain_view(out))], None
            )
            _native.release(csr.indices, csr.weight, out)
        return out

    @cached_property
    def in_weight(self) -> np.ndarray:
        """The weight that comes in at every target, self-loop included: Σ_u w_vu, in float64."""
        return self._sums.row_sums() + (1.0 if self.self_loop else 0.0)

    @cached_property
    def row_scale(self) -> np.ndarray:
        """What the weighted sum of row v is multiplied by, in float64."""
        if self.norm == "sum":
            return np.ones(self.csr.num_targets)
        with np.errstate(divide="ignore"):
            inverse = 1 / (self.in_weight if self.norm == "mean" else np.sqrt(self.in_weight))
        inverse[self.in_weight <= 0] = 0.0
        del self.__dict__["in_weight"]  # eight bytes a node that are rarely asked for
        return inverse

    @cached_property
    def column_scale(self) -> np.ndarray:
        """What x_u is multiplied by before it is summed, in float64."""
        return self.row_scale if self.norm == "sym" else np.ones(self.csr.num_sources)

    @cached_property
    def _sums(self) -> _Pass:
        table = None if (self.table == 1).all() else self.table
        return _Pass(
            self.edges, table, self.source_period, self.target_period, np.empty(0), None, False
        )

    @cached_property
    def _forward(self) -> _Pass:
        """A weighted mean divides by weights it sums up on the way; only "sym" and "sum" need scales beforehand."""
        scale = np.empty(0) if self.norm == "mean" else self.row_scale
        column = self.column_scale if self.norm == "sym" else None
        return replace(self._sums, row_scale=scale, column_scale=column, self_loop=self.self_loop)

    @cached_property
    def _backward(self) -> _Pass:
        return _Pass(
            csr=self.edges.transposed(),
            table=None if self._sums.table is None else self.table.T,
            source_period=self.target_period,
            target_period=self.source_period,
            row_scale=self.column_scale,
            column_scale=None if self.norm == "sum" else self.row_scale,
            self_loop=self.self_loop,
        )


@dataclass(frozen=True, eq=False)
class _Pass:
    """out_v = row_scale_v · (Σ_u table[t_v, t_u]·a_vu·column_scale_u·x_u + [self_loop] column_scale_v·x_v).

    Everything has been checked. `table` and `column_scale` are None where they are 1 everywhere.
    Where `row_scale` is empty, rows are divided by the weight that comes in, self-loop included.
    """

    csr: CSR
    table: np.ndarray | None
    source_period: np.ndarray
    target_period: np.ndarray
    row_scale: np.ndarray
    column_scale: np.ndarray | None
    self_loop: bool

    def apply(
        self, x: Any, out: np.ndarray | None, threads: int | None, rows: tuple[int, int] | None
    ) -> np.ndarray:
        x = _matrix("x", x, self.csr.num_sources, "source")
        shape = self.csr.num_targets, x.shape[1]
        out = aligned_empty(shape, x.dtype) if out is None else _writable(out, shape, x)
        if out.size == 0:
            return out
        table, column_scale = self._double if x.dtype == np.float64 else self._single
        rest = (
            self._edges,
            table,
            self._periods,
            plain_view(self.row_scale),
            column_scale,
            self.self_loop,
            _flat(x),
            _flat(out),
            ahead(x),
        )
        places = self._places(x.shape[1], rows or (0, shape[0]))
        _native.run(kernels.gather, [(*place, *rest) for place in places], threads)
        return out

    def row_sums(self) -> np.ndarray:
        """Σ_u table[t_v, t_u]·a_vu for every target v, in float64; scales and self-loops do not count."""
        if self.table is None and self.csr.weight is None:
            return np.diff(self.csr.indptr).astype(np.float64)
        out = np.empty(self.csr.num_targets)
        table = np.empty(0) if self.table is None else np.ascontiguousarray(self.table).reshape(-1)
        rest = self._edges, table, self._periods, out
        for first, last in row_blocks(self.csr):
            _native.run(
                kernels.row_sums,
                [(rows, *rest) for rows, _ in self._places(8, (first, last))],
                None,
            )
            _native.release(self.csr.indices, self.csr.weight)
        return out

    def _places(
        self, columns: int, rows: tuple[int, int]
    ) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
        """The result cut into rows × columns of about equal work, of which threads take one after the other."""
        most = max(1, TASK // columns)
        indptr = self.csr.indptr[rows[0] : rows[1] + 1]
        for low, high in pairwise(int(border) for border in _native.spans(indptr, most)):
            heavy = high - low == 1 and indptr[high] - indptr[low] > most
            step = SLICE if heavy else columns
            for c in range(0, columns, step):
                yield (rows[0] + low, rows[0] + high), (c, min(columns, c + step))

    @cached_property
    def _edges(self) -> tuple[np.ndarray, ...]:
        weight = np.empty(0, np.float32) if self.csr.weight is None else self.csr.weight
        return plain_view(self.csr.indptr), plain_view(self.csr.indices), plain_view(weight)

    @cached_property
    def _periods(self) -> tuple[np.ndarray, np.ndarray, int]:
        columns = 1 if self.table is None else self.table.shape[1]
        return plain_view(self.source_period), plain_view(self.target_period), columns

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


def row_blocks(csr: CSR, edges: int = 1 << 24) -> Iterator[tuple[int, int]]:
    """Runs of rows with about `edges` edges, after which pages of mapped arrays may be given back."""
    yield from pairwise(int(border) for border in _native.spans(csr.indptr, edges))


def ahead(x: np.ndarray) -> int:
    """How many edges before its use a row of `x` is asked for: narrow rows earlier, as they take less time."""
    return 32 if x.shape[1] * x.dtype.itemsize <= 2 * CACHE_LINE else 8


def _periods(name: str, value: Any, size: int, most: int) -> np.ndarray:
    out = checks.array(name, value)
    if out.shape != (size,) or out.dtype.kind not in "iu":
        raise InputError(
            f"{name} is {out.dtype} of shape {out.shape}; give one whole number for each of {size} nodes."
        )
    if size and (out.min() < 0 or out.max() >= most):
        at = int(np.flatnonzero((out < 0) | (out >= most))[0])
        raise InputError(
            f"{name} holds {out[at]} at node {at}, but the table has {most} such periods (from 0)."
        )
    return out


def _check_csr(csr: CSR) -> None:
    """Refuses a CSR whose rows or sources point outside: the kernel does not look again."""
    if csr.checked:
        return
    at, indices = csr.indptr, csr.indices
    if (
        at.ndim != 1
        or len(at) == 0
        or at.dtype != np.int64
        or indices.dtype not in (np.int32, np.int64)
    ):
        raise InputError(
            f"csr has indptr {at.dtype} {at.shape} and indices {indices.dtype}; give int64 row borders "
            f"(one more than targets) and int32 or int64 sources, as build_csr does."
        )
    if at[0] != 0 or at[-1] != len(indices) or (np.diff(at) < 0).any():
        raise InputError(
            "csr.indptr must rise from 0 to the number of edges; make it with build_csr."
        )
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
        raise InputError(
            f"{name} has shape {out.shape}; give a matrix with {rows} rows, one per {kind} node."
        )
    if out.dtype not in FLOATS:
        raise InputError(
            f"{name} is of type {out.dtype}; give float16, float32 or float64 (x.astype(np.float32))."
        )
    return (
        out if _is_row_major(out) else np.ascontiguousarray(out, dtype=out.dtype.newbyteorder("="))
    )


def _is_row_major(matrix: np.ndarray) -> bool:
    size = matrix.dtype.itemsize
    steady = matrix.strides[1] == size and matrix.strides[0] % size == 0 and matrix.strides[0] >= 0
    return steady and matrix.flags.aligned and matrix.dtype.isnative


def _writable(out: np.ndarray, shape: tuple[int, int], x: np.ndarray) -> np.ndarray:
    if not isinstance(out, np.ndarray) or out.shape != shape or out.dtype not in FLOATS:
        got = f"{getattr(out, 'dtype', type(out).__name__)} of shape {getattr(out, 'shape', None)}"
        raise InputError(f"out is {got}; give a float array of shape {shape}.")
    if not (out.flags.writeable and _is_row_major(out)) or np.shares_memory(out, x):
        raise InputError("out must be writable, with contiguous rows, and share no memory with x.")
    return out


def _flat(matrix: np.ndarray) -> tuple[np.ndarray, int]:
    """The memory of a matrix as one run of elements, and the distance between rows, as the kernel takes it."""
    dtype = np.dtype(np.uint16) if matrix.dtype == np.float16 else matrix.dtype
    stride = matrix.strides[0] // dtype.itemsize
    return flat_view(matrix, (len(matrix) - 1) * stride + matrix.shape[1], dtype), stride
