"""Distances between messages of two periods: means, covariances and sliced W1."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy import ndarray

from impact_gnn import checks
from impact_gnn._array import Array, periods
from impact_gnn.checks import InputError


@dataclass(frozen=True, eq=False)
class Shift:
    """Distances [T] of every period's messages from those of the last one, in their unit.

    For normal messages mean² + second² is the squared Wasserstein-2 distance.
    """

    times: ndarray
    count: ndarray  # nodes per period; a distance between small samples is mostly noise
    mean: ndarray  # ‖μ_t − μ_last‖
    second: ndarray  # Bures distance between the covariances, √tr(A + B − 2(A^½BA^½)^½)
    sliced: ndarray  # W1 of projections, averaged over random directions


def shift(message: Array, time: Array, *, num_slices: int = 64, seed: int = 0) -> Shift:
    """Measure the distance of each period's messages from those of the last, without labels.

    `message` is [N, f], or [N] for scalars.

    Examples:
        >>> moved = shift([[0.0], [2.0], [1.0], [3.0]], [0, 0, 1, 1])
        >>> moved.mean, moved.second, moved.sliced
        (array([1., 0.]), array([0., 0.]), array([1., 0.]))
    """
    values = as_sample("message", message)
    times, period = periods(checks.node_times("time", time, len(values)))
    last = len(times) - 1
    directions = unit_directions(values.shape[1], num_slices, seed)
    # Messages of the last period [n, f]; it is the reference of all others.
    goal = values[period == last].astype(np.float64)
    # The root of the last period's covariance, for the Bures distance.
    eigenvalues, vectors = np.linalg.eigh(_covariance(goal))
    scaled = vectors * np.sqrt(eigenvalues.clip(0))
    root = scaled @ vectors.T
    # [n, slices], sorted once for all periods.
    goal_projections = sorted_projections(goal, directions)
    mean, second, sliced = np.zeros((3, len(times)))
    # The last period is at distance 0 from itself.
    for t in range(last):
        rows = values[period == t].astype(np.float64)
        step = rows.mean(0) - goal.mean(0)
        mean[t] = np.linalg.norm(step)
        covariance = _covariance(rows)
        # tr (A^½BA^½)^½; rounding may leave eigenvalues below 0.
        eigenvalues = np.linalg.eigvalsh(root @ covariance @ root)
        overlap = np.sqrt(eigenvalues.clip(0)).sum()
        # tr A + tr B: variances of columns are the diagonal of a covariance.
        variance = np.trace(covariance) + goal.var(0).sum()
        second[t] = math.sqrt(max(variance - 2 * overlap, 0.0))
        projections = sorted_projections(rows, directions)
        sliced[t] = np.mean(w1_by_column(projections, goal_projections))
    return Shift(
        times=times,
        count=np.bincount(period, minlength=len(times)),
        mean=mean,
        second=second,
        sliced=sliced,
    )


def w1_by_column(a: ndarray, b: ndarray) -> ndarray:
    """Compute W1 of two samples column by column; columns are sorted.

    `scipy.stats.wasserstein_distance` sorts again and takes one column at a time.
    """
    # Quantile functions are constant between these levels, in units of 1 / (len(a)·len(b)).
    end = len(a) * len(b)
    levels_a = np.arange(0, end + 1, len(b))
    levels_b = np.arange(0, end + 1, len(a))
    levels = np.union1d(levels_a, levels_b)
    width = np.diff(levels) / end
    # Quantiles that begin at every level, [columns, levels].
    begin = levels[:-1]
    quantiles_a = a.T[:, begin // len(b)]
    quantiles_b = b.T[:, begin // len(a)]
    return np.abs(quantiles_a - quantiles_b) @ width


def unit_directions(columns: int, num_slices: int, seed: int) -> ndarray:
    """Draw unit vectors as columns [f, num_slices]; for scalars there is one direction."""
    if num_slices < 1:
        raise InputError(f"num_slices={num_slices} must be at least 1.")
    if columns == 1:
        return np.ones((1, 1))
    drawn = np.random.default_rng(seed).standard_normal((columns, num_slices))
    # Normal vectors of length 1 are uniform on the sphere.
    return drawn / np.linalg.norm(drawn, axis=0)


def sorted_projections(values: ndarray, directions: ndarray) -> ndarray:
    """Project rows on directions; every column is sorted and contiguous."""
    projections = values.astype(np.float64, copy=False) @ directions
    # Sorted along the rows of the transpose [slices, n], which are contiguous.
    return np.sort(projections.T, axis=1).T


def as_sample(name: str, value: Array) -> ndarray:
    """Return vectors [n, f] or numbers [n] as a matrix, if they are finite and not empty."""
    sample = checks.array(name, value)
    if sample.ndim == 1:
        sample = sample[:, None]
    sample = checks.features(name, sample, None)
    if sample.size == 0:
        raise InputError(f"{name} is empty; pass at least one value.")
    return sample


def _covariance(values: ndarray) -> ndarray:
    # Divided by n, as `goal.var` in `shift` is.
    deviation = values - values.mean(0)
    return deviation.T @ deviation / len(values)
