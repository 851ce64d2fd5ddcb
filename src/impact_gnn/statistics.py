"""Standardised columns (`Scale`), and paired differences with their intervals (`Estimate`).

Both methods of a difference have the same nodes, folds and seeds, so common noise cancels.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy import ndarray
from scipy import stats

from impact_gnn.checks import InputError

BLOCK = 1 << 20  # elements per conversion to float64
CONSTANT = 1e-7  # smallest standard deviation as a share of the magnitude: float32 has no less
MAX_DEVIATIONS = 1e6  # larger scaled values are clipped, so that sums in networks stay finite


@dataclass(frozen=True, eq=False)
class Scale:
    """The package's one standardiser: (x − mean) / scale by column, sums in float64.

    A column that is constant (its standard deviation is at most `CONSTANT` of its largest
    magnitude, or not finite) is centred and has scale 1. Values are clipped at `MAX_DEVIATIONS`
    standard deviations.

    Examples:
        >>> Scale.fit(np.array([[0.0, 7.0], [4.0, 7.0]])).apply(np.array([[6.0, 8.0]]))
        array([[2., 1.]])
    """

    mean: ndarray
    scale: ndarray

    @classmethod
    def fit(cls, values: ndarray | Iterable[ndarray]) -> Scale:
        """Fit the scale of a matrix [n, f], or of consecutive blocks of its rows."""
        # Of the rows so far: their number, and by column mean, squared deviations, largest |x|.
        count = 0
        mean = squares = largest = np.zeros(1)
        blocks = [values] if isinstance(values, ndarray) else values
        # A column with infinite values becomes NaN here, and gets scale 1 at the end.
        with np.errstate(invalid="ignore", over="ignore"):
            for part in chain.from_iterable(map(_parts, blocks)):
                # Mean and squared deviations of the part, merged with those so far.
                wide = part.astype(np.float64)
                part_mean = wide.mean(0)
                new_count = count + len(part)
                largest = np.maximum(largest, np.abs(wide).max(0))
                wide -= part_mean
                step = part_mean - mean
                # Chan et al.: the distance of both means adds to the squares of the union.
                between = step * step * (count * len(part) / new_count)
                squares = squares + (wide * wide).sum(0) + between
                mean = mean + step * (len(part) / new_count)
                count = new_count
            if count == 0:
                raise InputError("no rows to estimate a scale from; pass at least one.")
            # Divided by n, not n − 1.
            std = np.sqrt(squares / count)
        varies = np.isfinite(std) & (std > CONSTANT * largest)
        return cls(mean, np.where(varies, std, 1.0))

    def apply(self, values: ndarray) -> ndarray:
        """Scale rows; float64 stays float64, other types become float32."""
        dtype = np.float64 if values.dtype == np.float64 else np.float32
        scaled = np.empty(values.shape, dtype)
        start = 0
        for part in _parts(values):
            # In float64, as the mean is; the assignment below rounds to the type of the result.
            deviation = (part - self.mean) / self.scale
            rows = slice(start, start + len(part))
            scaled[rows] = np.clip(deviation, -MAX_DEVIATIONS, MAX_DEVIATIONS)
            start += len(part)
        return scaled


def _parts(values: ndarray) -> Iterator[ndarray]:
    # Rows of a block with about `BLOCK` elements, at least one where rows are very wide.
    rows = max(1, BLOCK // max(1, values.shape[1]))
    return (values[start : start + rows] for start in range(0, len(values), rows))


def sample_rows(rows: ndarray, most: int, seed: int = 0) -> ndarray:
    """Return sorted rows, or `most` of them at random, the same ones for every call."""
    if len(rows) <= most:
        return rows
    chosen = np.random.default_rng(seed).choice(rows, most, replace=False)
    return np.sort(chosen)


@dataclass(frozen=True)
class Estimate:
    """A number with its standard error and interval.

    Examples:
        >>> Estimate(0.031, 0.012, 0.007, 0.055)
        +0.031 [+0.007, +0.055]
    """

    value: float
    error: float
    low: float
    high: float

    def __repr__(self) -> str:
        return f"{self.value:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"

    @property
    def significant(self) -> bool:
        """Whether the interval excludes zero."""
        return self.low > 0 or self.high < 0


def paired(ours: ndarray, theirs: ndarray) -> Estimate:
    """Return the mean paired difference with Student's 95% interval: a pair per graph or node.

    Examples:
        >>> paired(np.array([0.5, 0.6, 0.7]), np.array([0.4, 0.4, 0.6]))
        +0.133 [-0.010, +0.277]
    """
    difference = np.subtract(ours, theirs, dtype=np.float64)
    size = len(difference)
    if size < 2:
        raise InputError(
            f"a paired difference needs at least two pairs, but got {size}; add graphs or nodes."
        )
    mean = float(difference.mean())
    error = float(difference.std(ddof=1) / math.sqrt(size))
    return _estimate(mean, error, stats.t(size - 1), 0.95)


def combined(values: ndarray, errors: ndarray, *, level: float = 0.95) -> Estimate:
    """Combine the estimates of several folds, whose true values may differ.

    Random effects (DerSimonian and Laird): weights 1/(s² + τ²) with τ² the variance between folds
    beyond what their errors explain. The interval is Hartung and Knapp's: Student's with folds − 1
    degrees of freedom where the folds disagree more than their errors say, the normal one where
    they agree.
    """
    value = np.asarray(values, np.float64)
    # An error of 0 would be an infinite weight.
    error = np.maximum(np.asarray(errors, np.float64), 1e-12)
    if not len(value):
        raise InputError("no folds to combine; pass at least one.")
    freedom = len(value) - 1
    # τ² from the weighted variance about the fixed-effects mean.
    fixed = error**-2
    total = fixed.sum()
    center = float((fixed * value).sum() / total)
    # Cochran's Q: folds − 1 on average if all folds have the same true value.
    variance = float((fixed * (value - center) ** 2).sum())
    # The divisor of DerSimonian and Laird; with one fold it is 0.
    scale = float(total - (fixed**2).sum() / total)
    between = 0.0
    if scale > 0:
        between = max(0.0, (variance - freedom) / scale)
    # The random-effects mean and its two standard errors.
    weight = 1 / (error**2 + between)
    total = float(weight.sum())
    mean = float((weight * value).sum() / total)
    plain_error = total**-0.5
    if freedom == 0 or between == 0:
        return _estimate(mean, plain_error, stats.norm, level)
    # Hartung and Knapp's error, from the spread of the folds about the mean.
    observed_variance = float((weight * (value - mean) ** 2).sum())
    observed = math.sqrt(observed_variance / (freedom * total))
    # Student's quantile suits the observed error; it is capped so that three folds can still
    # decide something.
    normal = float(stats.norm.ppf(0.5 + level / 2))
    student = float(stats.t.ppf(0.5 + level / 2, freedom))
    # Never narrower than the normal interval.
    half = max(min(student, 2 * normal) * observed, normal * plain_error)
    return Estimate(mean, max(observed, plain_error), mean - half, mean + half)


def _estimate(value: float, error: float, distribution: Any, level: float) -> Estimate:
    half = float(distribution.ppf(0.5 + level / 2)) * error
    return Estimate(value, error, value - half, value + half)
