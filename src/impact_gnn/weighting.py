"""First-moment methods as tables: the weight of an edge depends only on its two times.

Each method *is* a table Ω[t_target, t_source] over the sorted distinct times, [T, T]. The message
is the weighted mean M_v = Σ_u Ω[t_v,t_u]·a_vu·x_u / Σ_u Ω[t_v,t_u]·a_vu; a node without any weight
gets zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
from numpy import ndarray

from impact_gnn import checks
from impact_gnn._array import (
    Array,
    convert_like,
    is_torch,
    lookup,
    safe_divide,
    to_numpy,
    where,
    xp,
)
from impact_gnn.checks import InputError


def plain(times: Array) -> ndarray:
    """Return the uncorrected mean: Ω = 1."""
    times = checks.sorted_times("times", times)
    return np.ones((len(times), len(times)))


def mmp(times: Array) -> ndarray:
    """Mono-directional message passing: Ω[t, t̃] = 1 if t̃ ≤ t, else 0 (Definition 4.2).

    Examples:
        >>> mmp([2019, 2020])
        array([[1., 0.],
               [1., 1.]])
    """
    times = checks.sorted_times("times", times)
    # Rows are target times, columns source times.
    return (times[None, :] <= times[:, None]).astype(np.float64)


def pmp(times: Array, *, same_time: str = "single", border: str = "both") -> ndarray:
    """Persistent message passing: neighbours at distances that exist on one side only count double.

    Algorithms 1 and 2 (the default): Ω[t, t̃] = 2 if |t̃−t| > min(t_max−t, t−t_min), else 1.
    Definition 4.1 (`same_time="double", border="upper"`): Ω = 2 if |t̃−t| > t_max−t or t̃ = t, else
    1.

    Args:
        times: The sorted distinct times; gaps and any origin are allowed.
        same_time: "single" gives neighbours of the same time weight 1, "double" weight 2.
        border: "both" looks at both ends of the time line, "upper" at t_max only.

    Examples:
        >>> pmp([0, 1, 2])
        array([[1., 2., 2.],
               [1., 1., 1.],
               [2., 2., 1.]])
    """
    times = checks.sorted_times("times", times)
    checks.choice("same_time", same_time, ("single", "double"))
    checks.choice("border", border, ("both", "upper"))
    # The largest distance that exists on both sides of a time.
    reach = times[-1] - times
    if border == "both":
        reach = np.minimum(reach, times - times[0])
    distance = _distance(times)
    # Beyond it only one side has neighbours, which stand in for the other.
    doubled = distance > reach[:, None]
    if same_time == "double":
        doubled |= distance == 0
    return np.where(doubled, 2.0, 1.0)


def genpmp(times: Array, counts: Array, *, cap: float | None = None) -> ndarray:
    """Generalised PMP: Ω[t, t̃] = P_tmax(Δ) / P_t(Δ) with Δ = |t̃−t|.

    P_s(Δ) is the share of nodes (or of edges into time s) at distance Δ from s; where there are
    none at (t, Δ) there is nothing to correct and Ω = 1.

    Args:
        times: The sorted distinct times.
        counts: Nodes per time [T] (node basis), or edges per target and source time [T, T] (edge
            basis).
        cap: Largest ratio allowed. Thin periods make ratios explode, and the variance of the
            message with their square.

    Examples:
        >>> genpmp([0, 1, 2], [1, 1, 2])
        array([[2.        , 1.        , 0.5       ],
               [0.33333333, 2.        , 0.33333333],
               [1.        , 1.        , 1.        ]])
    """
    times = checks.sorted_times("times", times)
    counted = checks.array("counts", counts)
    size = len(times)
    has_shape = counted.shape in ((size,), (size, size))
    is_numeric = counted.dtype.kind in "iuf"
    if not has_shape or not is_numeric or not ((counted >= 0) & np.isfinite(counted)).all():
        raise InputError(
            f"counts has shape {counted.shape} and dtype {counted.dtype} for {size} times; pass "
            "the non-negative number of nodes per time [T], or of edges per target and source "
            "time [T, T]."
        )
    if cap is not None and not cap > 0:
        raise InputError(f"cap={cap} must be above zero, or None for no cap.")
    # The position of each distance among the distinct ones, [T, T].
    distance = _distance(times)
    deltas, index = np.unique(distance, return_inverse=True)
    index = index.reshape(distance.shape)
    # Counts by time and distance, [T, D].
    by_distance = np.zeros((size, len(deltas)))
    target = np.arange(size)[:, None]
    # Counts [T] of source times serve every row; a table [T, T] is added as it is.
    np.add.at(by_distance, (target, index), counted)
    # All counts of a target time, [T, 1].
    total = by_distance.sum(1, keepdims=True)
    if total[-1] == 0:
        raise InputError(
            f"counts is zero at the last time ({times[-1]}), the reference of GenPMP; "
            "pass counts that reach it or use PMP."
        )
    # Ratios of the shares at the last time and at the own time.
    share = safe_divide(by_distance, total)
    # The share at the own target time of every pair's distance, [T, T].
    own = np.take_along_axis(share, index, axis=1)
    # `share[-1][index]` is the share of the same distance at the last time.
    table = safe_divide(share[-1][index], own, 1.0)
    return table if cap is None else np.minimum(table, cap)


def _distance(times: ndarray) -> ndarray:
    """Distance between target time (row) and source time (column), [T, T]."""
    return np.abs(times[None, :] - times[:, None])


TableFunction: TypeAlias = Callable[[ndarray, ndarray], ndarray]
"""`(times, nodes per time) → table [T, T]`."""

METHODS: Mapping[str, TableFunction] = MappingProxyType(
    {
        "plain": lambda times, counts: plain(times),
        "mmp": lambda times, counts: mmp(times),
        "pmp": lambda times, counts: pmp(times),
        "genpmp": genpmp,
    }
)
"""Every first-moment method by name: (times, nodes per time) → table."""

BY_ROW = ("gsmp",)
"""Weights 1/C_v(t_u) with C_v(s) the number of v's neighbours at time s.

They depend on the row and are no table, so engines compute them (`Operator.balanced`).
"""

NAMES = (*METHODS, *BY_ROW)
"""All weightings."""


@dataclass(frozen=True)
class FirstHop:
    """A weighting of the first hop; in later hops all neighbours count the same."""

    weighting: str


Weighting: TypeAlias = str | ndarray | TableFunction | FirstHop
"""A name of `NAMES`, a table [T, T], a function that computes one, or `FirstHop`."""


def at_hop(weighting: Weighting, *, first: bool) -> str | ndarray | TableFunction:
    """Return the weighting of the first hop, or of the later ones."""
    if not isinstance(weighting, FirstHop):
        return weighting
    return weighting.weighting if first else "plain"


def table(method: str, times: Array, counts: Array) -> ndarray:
    """Compute the table of the method called `method`; refuse an unknown name with the choices."""
    return METHODS[checks.choice("weighting", method, METHODS)](times, counts)


def edge_weight(
    table: ndarray, edge_index: Array, source_period: Array, target_period: Array
) -> Array:
    """Look up Ω for every edge, float32: `table[target_period[target], source_period[source]]`.

    Periods are positions of nodes' times among the sorted distinct ones; arrays are of numpy or
    torch.

    Examples:
        >>> period = np.array([0, 2], dtype=np.uint8)
        >>> edge_weight(pmp([0, 1, 2]), np.array([[0, 1], [1, 0]]), period, period)
        array([2., 2.], dtype=float32)
    """
    return lookup(table, target_period, source_period, edge_index[1], edge_index[0])


def normalize_rows(weight: Array, target: Array, num_targets: int) -> Array:
    """Divide weights by their sum per target, so that a weighted *sum* is the weighted mean.

    Examples:
        >>> normalize_rows(np.array([2.0, 1.0, 1.0], dtype=np.float32), np.array([0, 0, 1]), 2)
        array([0.6666667 , 0.33333334, 1.        ], dtype=float32)
    """
    if is_torch(weight) and (weight.requires_grad or weight.device.type != "cpu"):
        # Differentiable or not in CPU memory: sums by torch, in the tensor's own type.
        empty = xp(weight).zeros(num_targets, dtype=weight.dtype, device=weight.device)
        total = empty.index_add(0, target.long(), weight)
    else:
        # Sums in float64 by numpy, the same bits on every machine.
        values = to_numpy(weight)
        sums = np.bincount(to_numpy(target), values, num_targets)
        total = convert_like(sums.astype(values.dtype, copy=False), weight)
    # A target whose weights sum to 0 is divided by 1, and its edges keep weight 0.
    return weight / where(total == 0, 1.0, total)[target]
