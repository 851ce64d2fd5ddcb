"""The one operation of this library, M = normalise(Ω[t_v, t_u]·a_vu), as a value that can be applied.

Nothing is stored per edge but its source (and its own weight, if it has one). Applying it to X, or its transpose
to a gradient, is one pass of the same kernel.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from impact_gnn import checks
from impact_gnn.checks import InputError
from impact_gnn.graph.csr import CSR
from impact_gnn.propagation.building import transposed
from impact_gnn.propagation.passes import Pass, check_csr, periods

NORMS = ("mean", "sym", "sum")
"""Weighted mean (rows sum to 1), D^-½ on both sides (D the weight that comes in), or the weighted sum."""


@dataclass(frozen=True, eq=False)
class Operator:
    """M = normalise(Ω[t_v, t_u]·a_vu), made once and applied to many X.

    With w_vu = Ω[t_v, t_u]·a_vu, and w_vv increased by 1 where `self_loop`, row v of the result is

    * "mean": Σ_u w_vu·x_u / Σ_u w_vu, zeros where no weight comes in;
    * "sym": Σ_u w_vu·x_u / √(D_v·D_u) with D_v = Σ_u w_vu, nothing from or to nodes where it is zero;
    * "sum": Σ_u w_vu·x_u.

    The same graph and X give the same bits whatever the number of threads, and the result of a column does not
    depend on the other columns. Sums are kept in float32 for up to 256 neighbours and in float64 beyond them
    and for X of float64.

    Args:
        csr: The edges by target.
        table: Ω [target periods, source periods], zero or more.
        source_period: For every source node its column of the table.
        target_period: For every target node its row of the table.
        norm: "mean", "sym" or "sum".
        self_loop: Adds a loop of weight 1 to every node; sources and targets must be the same nodes.

    Example:
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

    def __post_init__(self) -> None:
        settle(self)
        check_csr(self.csr)

    def apply(self, x: Any, out: np.ndarray | None = None, threads: int | None = None) -> np.ndarray:
        """M·X.

        Args:
            x: [sources, f] of float16, float32 or float64; rows may lie apart, as in a slice of columns.
            out: Where to write, [targets, f]; by default a new array of the type of `x`.
            threads: By default as many as there are cores.
        """
        return self._forward.apply(x, out, threads)

    def transpose_apply(self, x: Any, out: np.ndarray | None = None, threads: int | None = None) -> np.ndarray:
        """Mᵀ·X for `x` [targets, f]: the gradient of `apply`. The first call groups the edges by source."""
        return self._backward.apply(x, out, threads)

    def __matmul__(self, x: Any) -> np.ndarray:
        return self.apply(x)

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
        return np.where(self.in_weight > 0, inverse, 0.0)

    @cached_property
    def column_scale(self) -> np.ndarray:
        """What x_u is multiplied by before it is summed, in float64."""
        return self.row_scale if self.norm == "sym" else np.ones(self.csr.num_sources)

    @cached_property
    def _sums(self) -> Pass:
        table = None if (self.table == 1).all() else self.table
        return Pass(self.csr, table, self.source_period, self.target_period, np.empty(0), None, False)

    @cached_property
    def _forward(self) -> Pass:
        scales = self.row_scale, self.column_scale if self.norm == "sym" else None
        return replace(self._sums, row_scale=scales[0], column_scale=scales[1], self_loop=self.self_loop)

    @cached_property
    def _backward(self) -> Pass:
        return Pass(
            csr=transposed(self.csr),
            table=None if self._sums.table is None else self.table.T,
            source_period=self.target_period,
            target_period=self.source_period,
            row_scale=self.column_scale,
            column_scale=None if self.norm == "sum" else self.row_scale,
            self_loop=self.self_loop,
        )


def settle(operator: Any) -> None:
    """Checks the norm, table and periods of an operation that is being made, in memory or in files."""
    checks.choice("norm", operator.norm, NORMS)
    sources, targets = operator.csr.num_sources, operator.csr.num_targets
    if sources != targets and (operator.norm == "sym" or operator.self_loop):
        what = 'norm="sym"' if operator.norm == "sym" else "self_loop=True"
        raise InputError(
            f"{what} needs the same nodes as sources and targets, but there are {sources} sources and {targets} "
            f'targets; use norm="mean" without self-loops between different types.'
        )
    table = np.ascontiguousarray(checks.array("table", operator.table), dtype=np.float64)
    if table.ndim != 2 or not np.isfinite(table).all() or table.min(initial=0) < 0:
        raise InputError(f"table (shape {table.shape}) must be a matrix of finite weights of zero or more.")
    # Both periods in one type: the kernel is compiled for every new combination.
    most = max(table.shape)
    for name, value in (
        ("table", table),
        ("source_period", periods("source_period", operator.source_period, sources, table.shape[1], most)),
        ("target_period", periods("target_period", operator.target_period, targets, table.shape[0], most)),
    ):
        object.__setattr__(operator, name, value)
