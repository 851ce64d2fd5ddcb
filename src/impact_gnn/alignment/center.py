"""Centring and standardising per period, for all nodes and without labels."""

from __future__ import annotations

import numpy as np

from impact_gnn import checks
from impact_gnn._array import (
    Array,
    clipped_sqrt,
    convert_like,
    group_affine,
    periods,
    safe_divide,
    where,
)
from impact_gnn.alignment.sums import Moments, as_message


def center(message: Array, time: Array) -> Array:
    """Replace every period's mean message by the overall mean.

    M_v ← M_v − mean_t + mean. Justified where the label mix is the same in every period (Assumption
    1).

    Examples:
        >>> center(np.array([[0.0], [2.0], [10.0], [12.0]]), [0, 0, 1, 1]).ravel()
        array([5., 7., 5., 7.])
    """
    return center_by(message, *by_period(message, time))


def standardize(message: Array, time: Array) -> Array:
    """Centre, and scale columns of each period to their standard deviation within all periods.

    A column that is constant in a period, and a period with one node, are not scaled.

    Examples:
        >>> standardize(np.array([[0.0], [2.0], [10.0], [18.0]]), [0, 0, 1, 1]).ravel().round(2)
        array([ 4.58, 10.42, 4.58, 10.42])
    """
    return standardize_by(message, *by_period(message, time))


def by_period(message: Array, time: Array) -> tuple[Array, int]:
    """Return the period of every row and the number of periods, after checks."""
    node_time = checks.node_times("time", time)
    as_message(message, len(node_time))
    times, period = periods(node_time)
    # Signed: kernels read a negative group as none.
    return convert_like(period.astype(np.int32), message), len(times)


def center_by(message: Array, period: Array, num_periods: int) -> Array:
    """Apply `center` with precomputed periods."""
    return apply_center(message, period, Moments.of(message, period, num_periods))


def standardize_by(message: Array, period: Array, num_periods: int) -> Array:
    """Apply `standardize` with precomputed periods."""
    return apply_standardize(message, period, Moments.of(message, period, num_periods))


def apply_center(message: Array, period: Array, moments: Moments) -> Array:
    """Move rows to the overall mean by moments per period: the second pass of `center`."""
    # Ones [T] and the overall mean [T, f], in the library and on the device of the moments.
    scale = moments.count * 0 + 1
    goal = moments.mean * 0 + moments.overall()
    return group_affine(message, period, moments.mean, scale, goal)


def apply_standardize(message: Array, period: Array, moments: Moments) -> Array:
    """Move and scale rows by moments per period: the second pass of `standardize`."""
    # Degrees of freedom of every period [T].
    freedom = where(moments.count > 1, moments.count - 1, 0.0)
    # Variances of columns within all periods [f], and in each period [T, f].
    pooled = safe_divide(moments.squares.sum(0), freedom.sum())
    own = safe_divide(moments.squares, freedom[:, None])
    # Columns that are constant in a period keep scale 1.
    scale = clipped_sqrt(safe_divide(pooled, own, 1.0))
    goal = moments.mean * 0 + moments.overall()
    return group_affine(message, period, moments.mean, scale, goal)
