"""Centring and standardising per period, for all nodes and without labels."""

from __future__ import annotations

import numpy as np

from impact_gnn import checks
from impact_gnn._array import (
    Array,
    clipped_sqrt,
    group_affine,
    group_renormalize,
    like,
    periods,
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
    return like(period.astype(np.int32), message), len(times)


def center_by(message: Array, period: Array, num_periods: int) -> Array:
    """Apply `center` with precomputed periods."""
    return group_renormalize(message, period, period, num_periods, _center_tables, _center_pullback)


def standardize_by(message: Array, period: Array, num_periods: int) -> Array:
    """Apply `standardize` with precomputed periods."""
    return group_renormalize(
        message, period, period, num_periods, _standard_tables, _standard_pullback
    )


def apply_center(message: Array, period: Array, moments: Moments) -> Array:
    """Move rows to the overall mean by moments per period: the second pass of `center`."""
    tables = _center_tables(moments.count, moments.mean, moments.squares)
    return group_affine(message, period, *tables)


def apply_standardize(message: Array, period: Array, moments: Moments) -> Array:
    """Move and scale rows by moments per period: the second pass of `standardize`."""
    tables = _standard_tables(moments.count, moments.mean, moments.squares)
    return group_affine(message, period, *tables)


def _center_tables(count: Array, mean: Array, squares: Array) -> tuple[Array, Array, Array]:
    """Return origin, scale and goal of every period."""
    return mean, count * 0 + 1, mean * 0 + Moments(count, mean, squares).overall()


def _center_pullback(
    count: np.ndarray,
    mean: np.ndarray,
    squares: np.ndarray,
    by_origin: np.ndarray,
    _: np.ndarray,
    by_goal: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Return gradients of mean and squares; all rows contribute to the overall mean."""
    by_mean = by_origin + count[:, None] / max(count.sum(), 1) * by_goal.sum(0)
    return by_mean, np.zeros_like(squares)


def _standard_tables(count: Array, mean: Array, squares: Array) -> tuple[Array, Array, Array]:
    """Return origin, scale √(pooled variance / own variance) and goal of every period."""
    pooled, own = _variances(count, squares)
    scale = where(own > 0, clipped_sqrt(pooled / where(own > 0, own, 1.0)), 1.0)
    return mean, scale, mean * 0 + Moments(count, mean, squares).overall()


def _standard_pullback(
    count: np.ndarray,
    mean: np.ndarray,
    squares: np.ndarray,
    by_origin: np.ndarray,
    by_scale: np.ndarray,
    by_goal: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Return gradients of mean and squares, through the pooled and the own variance."""
    by_mean, _ = _center_pullback(count, mean, squares, by_origin, by_scale, by_goal)
    pooled, own = _variances(count, squares)
    scaled = own > 0
    # d scale = scale/2 · (d pooled / pooled − d own / own)
    half = 0.5 * np.where(scaled, by_scale * np.sqrt(pooled / np.where(scaled, own, 1.0)), 0.0)
    freedom = np.maximum(count - 1, 0.0).sum()
    by_pooled = half.sum(0) / np.where(pooled > 0, pooled * freedom, 1.0)
    return by_mean, by_pooled - half / np.where(scaled, squares, 1.0)


def _variances(count: Array, squares: Array) -> tuple[Array, Array]:
    """Return the variances of columns within all periods [f], and in each period [T, f]."""
    freedom = where(count > 1, count - 1, 0.0)
    total = freedom.sum()
    pooled = squares.sum(0) / where(total > 0, total, 1.0)
    return pooled, squares / where(freedom > 0, freedom, 1.0)[:, None]
