"""Nodes of one class and period: where their means lie, how noisy those are, how far they drift."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from impact_gnn._array import group_moments

LEAST = 2  # nodes that it takes to know how noisy their mean is; smaller cells are left out
# Smallest variance within a class, as a share of the usual one: a class without noise must not decide alone.
LEAST_VARIANCE = 0.1


@dataclass(frozen=True, eq=False)
class Cells:
    """C cells in the order of class, then period."""

    label: np.ndarray  # [C]
    period: np.ndarray  # [C]
    count: np.ndarray  # nodes [C]
    weight: np.ndarray  # of a node: one over the variance within its class, usual variance 1 [C]
    mean: np.ndarray  # [C, f]
    noise: np.ndarray  # expected ‖mean − true mean‖² [C]
    redrawn_noise: np.ndarray  # what drawing the nodes once more adds to it [C]
    values: np.ndarray  # features in the order of the cells [n, f]
    start: np.ndarray  # where each cell begins in `values` [C]

    @classmethod
    def of(cls, label: np.ndarray, period: np.ndarray, values: np.ndarray) -> Cells:
        """The cells of at least `LEAST` nodes."""
        size = int(period.max()) + 1
        code, index, count = np.unique(label.astype(np.int64) * size + period, return_inverse=True, return_counts=True)
        kept = count >= LEAST
        number = np.where(kept, np.cumsum(kept) - 1, -1)[index]
        code, count = code[kept], count[kept]
        order = np.argsort(number, kind="stable")[np.count_nonzero(number < 0) :]
        values = np.ascontiguousarray(values[order])
        _, mean, squares = group_moments(values, number[order].astype(np.int32), len(count))
        total, own = squares.sum(1), code // size
        pooled = max(total.sum() / max((count - 1).sum(), 1), 1e-300)
        within = np.bincount(own, total) / np.maximum(np.bincount(own, count - 1), 1)
        weight = 1 / np.maximum(within / pooled, LEAST_VARIANCE)[own]
        noise = total / count / (count - 1), total / count**2
        return cls(own, code % size, count, weight, mean, *noise, values, np.cumsum(count) - count)

    def redrawn(self, rng: np.random.Generator) -> np.ndarray:
        """Means of the cells after drawing their nodes anew with replacement."""
        size = np.repeat(self.count, self.count)
        picked = np.repeat(self.start, self.count) + (rng.random(len(size)) * size).astype(np.int64)
        return np.add.reduceat(self.values[picked], self.start, axis=0, dtype=np.float64) / self.count[:, None]

    def classes(self, mean: np.ndarray, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Mean [Y, f], share of the weight [Y] and noise [Y] of every class that has cells."""
        _, own = np.unique(self.label, return_inverse=True)
        part = self.count / np.bincount(own, self.count)[own]
        middle = np.zeros((own.max() + 1, mean.shape[1]))
        np.add.at(middle, own, part[:, None] * mean)
        share = np.bincount(own, self.count * self.weight)
        return middle, share / share.sum(), np.bincount(own, part**2 * noise)

    def distance(self, mean: np.ndarray, noise: np.ndarray) -> float:
        """Mean squared distance of the classes from their common mean, noise taken out."""
        middle, share, unsure = self.classes(mean, noise)
        square = ((middle - share @ middle) ** 2).sum(1)
        return float((share * (square - unsure * (1 - 2 * share) - (share**2 * unsure).sum())).sum())

    def followed(self, first: int) -> bool:
        """Whether some class has a cell in period `first` or later and an earlier one."""
        return bool((self.label[1:] == self.label[:-1])[self.period[1:] >= first].any())

    def drift(self, mean: np.ndarray, noise: np.ndarray, first: int) -> float:
        """Mean squared distance of cells from the past of their class, over periods from `first` on."""
        square, weight = self._to_past(mean, noise)
        weight = np.where(self.period >= first, weight, 0)
        return float((weight * square).sum() / max(weight.sum(), 1e-300))

    def by_period(self, num_periods: int) -> np.ndarray:
        """Root mean squared distance from the past in every period; NaN where no class has a past."""
        square, weight = self._to_past(self.mean, self.noise)
        total = np.bincount(self.period, weight, num_periods)
        summed = np.bincount(self.period, weight * square, num_periods)
        return np.sqrt(np.maximum(np.divide(summed, total, out=np.full(num_periods, np.nan), where=total > 0), 0))

    def _to_past(self, mean: np.ndarray, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """‖μ_yt − μ_y,<t‖² less its noise, and what it counts: nothing where a class has no past."""
        before = self._running(self.count)
        many = np.maximum(before, 1)
        past = self._running(self.count[:, None] * mean) / many[:, None]
        square = ((mean - past) ** 2).sum(1) - noise - self._running(self.count**2 * noise) / many**2
        return square, np.where(before > 0, self.count * self.weight, 0)

    def _running(self, values: np.ndarray) -> np.ndarray:
        """Sums over the earlier cells of the same class."""
        total = np.cumsum(values, axis=0) - values
        return total - total[np.searchsorted(self.label, self.label)]  # labels are sorted: the first cell of each
