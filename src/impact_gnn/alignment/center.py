"""Centring and standardising per period: no labels needed, everybody is moved."""

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
    """Every period's mean message is replaced by the overall mean.

    M_v ← M_v − mean_t + mean. Justified where the label mix is the same in every period (Assumption
    1).

    Examples:
        >>> center(np.array([[0.0], [2.0], [10.0], [12.0]]), [0, 0, 1, 1]).ravel()
        array([5., 7., 5., 7.])
    """
    return center_by(message, *by_period(message, time))


def standardize(message: Array, time: Array) -> Array:
    """`center`, and every column of a period is scaled to the standard deviation it has within periods overall.

    A column that is constant in a period, and a period with one node, keep their scale.

    Examples:
        >>> standardize(np.array([[0.0], [2.0], [10.0], [18.0]]), [0, 0, 1, 1]).ravel().round(2)
        array([ 4.58, 10.42, 4.58, 10.42])
    """
    return standardize_by(message, *by_period(message, time))


def by_period(message: Array, time: Array) -> tuple[Array, int]:
    """The period of every row and the number of periods, checked."""
    when = checks.node_times("time", time)
    as_message(message, len(when))
    times, period = periods(when)
    return like(period.astype(np.int32), message), len(times)


def center_by(message: Array, period: Array, num_periods: int) -> Array:
    """`center` with the periods made before."""
    return group_renormalize(message, period, period, num_periods, _center_tables, _center_pullback)


def standardize_by(message: Array, period: Array, num_periods: int) -> Array:
    """`standardize` with the periods made before."""
    return group_renormalize(
        message, period, period, num_periods, _standard_tables, _standard_pullback
    )


def apply_center(message: Array, period: Array, moments: Moments) -> Array:
    """Moves rows to the overall mean by given moments per period: the second pass of `center`."""
    return group_affine(
        message, period, *_center_tables(moments.count, moments.mean, moments.squares)
    )


def apply_standardize(message: Array, period: Array, moments: Moments) -> Array:
    """Moves and scales rows by given moments per period: the second pass of `standardize`."""
    return group_affine(
        message, period, *_standard_tables(moments.count, moments.mean, moments.squares)
    )


def _center_tables(count: Array, mean: Array, squares: Array) -> tuple[Array, Array, Array]:
    """Origin, scale and goal of every period."""
    return mean, count * 0 + 1, mean * 0 + Moments(count, mean, squares).overall()


def _center_pullback(
    count: np.ndarray,
    mean: np.ndarray,
    squares: np.ndarray,
    by_origin: np.ndarray,
    _: np.ndarray,
    by_goal: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    return by_origin + count[:, None] / max(count.sum(), 1) * by_goal.sum(0), np.zeros_like(squares)


def _standard_tables(count: Array, mean: Array, squares: Array) -> tuple[Array, Array, Array]:
    """Origin, scale and goal of every period; the scale is √(pooled variance / own variance)."""
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
    by_mean, _ = _center_pullback(count, mean, squares, by_origin, by_scale, by_goal)
    pooled, own = _variances(count, squares)
    scaled = own > 0
    half = 0.5 * np.where(scaled, by_scale * np.sqrt(pooled / np.where(scaled, own, 1.0)), 0.0)
    freedom = np.maximum(count - 1, 0.0).sum()
    by_pooled = half.sum(0) / np.where(pooled > 0, pooled * freedom, 1.0)
    return by_mean, by_pooled - half / np.where(scaled, squares, 1.0)


def _variances(count: Array, squares: Array) -> tuple[Array, Array]:
    """Variance of every column within periods overall [f], and in each period [T, f]."""
    freedom = where(count > 1, count - 1, 0.0)
    total = freedom.sum()
    return squares.sum(0) / where(total > 0, total, 1.0), squares / where(
        freedom > 0, freedom, 1.0
    )[:, None]
