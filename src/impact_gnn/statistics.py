"""Columns to mean 0 and spread 1 (`Scale`), and differences with their intervals (`Estimate`).

Differences are paired: the same nodes, folds and seeds for both methods, so noise they share
    cancels.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from scipy import stats

from impact_gnn.checks import InputError

BLOCK = 1 << 20  # elements that are widened to float64 in one go
CONSTANT = 1e-7  # a column whose spread is at most this share of its largest magnitude: float32 knows no less
MOST = 1e6  # times the spread that a value may lie off the mean: what networks add up of such stays finite


@dataclass(frozen=True, eq=False)
class Scale:
    """The package's one standardiser: (x − mean) / scale by column, sums in float64.

    A column that is constant (its standard deviation is at most `CONSTANT` of its largest
    magnitude, or not finite) is moved to zero and keeps its scale, which is 1 then. What lies more
    than `MOST` spreads off is taken to lie there.

    Examples:
        >>> Scale.fit(np.array([[0.0, 7.0], [4.0, 7.0]])).apply(np.array([[6.0, 8.0]]))
        array([[2., 1.]])
    """

    mean: np.ndarray
    scale: np.ndarray

    @classmethod
    def fit(cls, values: np.ndarray | Iterable[np.ndarray]) -> Scale:
        """The scale of a matrix [n, f], or of blocks of its rows that come one after the other."""
        count, mean, squares, largest = 0, np.zeros(1), np.zeros(1), np.zeros(1)
        blocks = [values] if isinstance(values, np.ndarray) else values
        with np.errstate(invalid="ignore", over="ignore"):
            for part in (part for block in blocks for part in _parts(block)):
                wide = part.astype(np.float64)
                here, whole = wide.mean(0), count + len(part)
                largest = np.maximum(largest, np.abs(wide).max(0))
                wide -= here
                step = here - mean
                squares = squares + (wide * wide).sum(0) + step * step * (count * len(part) / whole)
                mean, count = mean + step * (len(part) / whole), whole
            if count == 0:
                raise InputError("there is no row to take a scale from; give at least one.")
            std = np.sqrt(squares / count)
        return cls(mean, np.where(np.isfinite(std) & (std > CONSTANT * largest), std, 1.0))

    def apply(self, values: np.ndarray) -> np.ndarray:
        """The rows in this scale; float64 stays float64, all else becomes float32."""
        out = np.empty(values.shape, np.float64 if values.dtype == np.float64 else np.float32)
        start = 0
        for part in _parts(values):
            out[start : start + len(part)] = np.clip((part - self.mean) / self.scale, -MOST, MOST)
            start += len(part)
        return out


def _parts(values: np.ndarray) -> Iterator[np.ndarray]:
    rows = max(1, BLOCK // max(1, values.shape[1]))
    return (values[start : start + rows] for start in range(0, len(values), rows))


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
        """Whether the interval leaves out zero."""
        return self.low > 0 or self.high < 0


def paired(ours: np.ndarray, theirs: np.ndarray, *, level: float = 0.95) -> Estimate:
    """Mean of the paired differences, with Student's interval: one pair per graph, or per node.

    Examples:
        >>> paired(np.array([0.5, 0.6, 0.7]), np.array([0.4, 0.4, 0.6]))
        +0.133 [-0.010, +0.277]
    """
    difference = np.asarray(ours, dtype=np.float64) - np.asarray(theirs, dtype=np.float64)
    if len(difference) < 2:
        raise InputError(
            f"a paired difference needs at least two pairs, {len(difference)} came; add graphs or nodes."
        )
    error = float(difference.std(ddof=1) / math.sqrt(len(difference)))
    return _estimate(float(difference.mean()), error, level, len(difference) - 1)


def combined(values: np.ndarray, errors: np.ndarray, *, level: float = 0.95) -> Estimate:
    """One estimate from several folds, each with its own standard error, that may truly differ from each other.

    Random effects (DerSimonian and Laird): weights 1/(s² + τ²) with τ² the variance between folds
    beyond what their errors explain. The interval is Hartung and Knapp's: Student's with folds − 1
    degrees of freedom where the folds disagree more than their errors say, the normal one where
    they agree.
    """
    value, error = np.asarray(values, dtype=np.float64), np.asarray(errors, dtype=np.float64)
    if len(value) == 0:
        raise InputError("there is nothing to combine; give at least one fold.")
    error = np.maximum(error, 1e-12)
    fixed = error**-2
    center = float((fixed * value).sum() / fixed.sum())
    spread = float((fixed * (value - center) ** 2).sum())
    scale = float(fixed.sum() - (fixed**2).sum() / fixed.sum())
    between = max(0.0, (spread - (len(value) - 1)) / scale) if scale > 0 else 0.0
    weight = 1 / (error**2 + between)
    mean = float((weight * value).sum() / weight.sum())
    plain_error = float(weight.sum() ** -0.5)
    if len(value) == 1 or between == 0:
        return _estimate(mean, plain_error, level, None)
    observed = math.sqrt(
        float((weight * (value - mean) ** 2).sum()) / ((len(value) - 1) * float(weight.sum()))
    )
    # Student's quantile suits the observed spread; it is capped so that three folds can still
    # decide something.
    quantile = min(
        float(stats.t.ppf(0.5 + level / 2, len(value) - 1)),
        2 * float(stats.norm.ppf(0.5 + level / 2)),
    )
    half = max(quantile * observed, float(stats.norm.ppf(0.5 + level / 2)) * plain_error)
    return Estimate(mean, max(observed, plain_error), mean - half, mean + half)


def _estimate(value: float, error: float, level: float, freedom: int | None) -> Estimate:
    law = stats.norm if freedom is None else stats.t(freedom)
    half = float(law.ppf(0.5 + level / 2)) * error
    return Estimate(value, error, value - half, value + half)
