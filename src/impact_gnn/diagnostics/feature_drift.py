"""Assumption 2: do the features of a class stay where they are?

What a model trained on the past meets in period t is the distance between the mean of a class in t
and its mean before t. It is compared with the distance between the classes; sampling noise is taken
out of both squares.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from impact_gnn._array import group_moments
from impact_gnn.diagnostics.assumption import (
    HOLDS,
    NOT_TESTABLE,
    UNCERTAIN,
    VIOLATED,
    AssumptionCheck,
    judge,
    listed,
)
from impact_gnn.diagnostics.view import View, recent, some
from impact_gnn.statistics import Scale

SMALL, LARGE = 0.4, 0.7  # up to SMALL features of a class count as steady, from LARGE on as moving
# Of more, a random sample is used.
MAX_ROWS = 20_000  # labelled nodes
MAX_NODES = 200_000  # nodes with or without a label
MAX_COLUMNS = 512
SHRINKAGE = 0.05  # of the covariance within classes towards a multiple of the identity
MIN_NODES = 2  # of a cell; the noise of the mean of fewer is unknown
# Variance within a class, as a share of the pooled one; a class without noise must not dominate.
MIN_VARIANCE = 0.1


@dataclass(frozen=True, repr=False)
class FeatureDrift(AssumptionCheck):
    """How far a class moves from its own past, in distances between classes."""

    name = "feature drift"
    assumption = 2
    measure = "drift of class means, as a multiple of the distance between classes"

    times: list[int] = field(default_factory=list)  # labelled periods
    # of every one; None where no class has a past
    drift: list[float | None] = field(default_factory=list)
    along_classes: float | None = None  # the drift in those directions only in which classes differ
    all_times: list[int] = field(default_factory=list)  # those of the targets too
    # Distance of the mean of all nodes of a period from that of the labelled ones; needs no labels.
    all_drift: list[float | None] = field(default_factory=list)


def feature_drift(view: View, *, replicates: int = 60, seed: int = 0) -> FeatureDrift:
    """Distance of classes from their own past, relative to the distance between classes.

    The root of drift² / distance², where drift² = Σ_yt w_y n_yt‖μ_yt − μ_y,<t‖² over the recent
    periods and distance² = Σ_y w_y n_y‖μ_y − μ‖², both as means and less the noise of the means.
    w_y is one over the variance within the class, so that classes with clear features count more.
    Columns are scaled to unit variance first. The interval is a bootstrap of nodes within classes and periods.

    Examples:
        >>> from impact_gnn.data.tsbm import tsbm
        >>> feature_drift(View.of(tsbm(num_nodes=1000, num_labels=4, feature_std=1, seed=0).masked(8)))
        2 feature drift: holds, drift of class means, as a multiple of the distance between classes
        0.1...
    """
    if not view.num_features:
        return FeatureDrift(NOT_TESTABLE, "The graph has no features.")
    if len(view.known) < 2:
        return FeatureDrift(
            NOT_TESTABLE, "Labels are known in one period only, so no drift can be seen."
        )
    rng = np.random.default_rng(seed)
    columns = some(view.num_features, MAX_COLUMNS, rng)
    rows = some(np.flatnonzero(view.label >= 0), MAX_ROWS, rng)
    x = view.features(rows, columns)
    scale = Scale.fit(x)
    scaled = scale.apply(x).astype(np.float32, copy=False)
    label, period = view.label[rows], np.searchsorted(view.known, view.masked.period[rows])
    cells = Cells.of(label, period, scaled)
    if len(np.unique(cells.label)) < 2:
        return FeatureDrift(
            NOT_TESTABLE, "Fewer than two classes have nodes enough to know their means."
        )
    first = len(view.known) - recent(len(view.known))
    if not cells.followed(first):
        why = "No class has nodes enough in a recent period and before it, so no drift can be seen."
        return FeatureDrift(NOT_TESTABLE, why)
    drift = cells.drift(cells.mean, cells.noise, first)
    distance = cells.distance(cells.mean, cells.noise)
    # Bootstrap of both [replicates, 2]; a replicate has the noise of the graph and its own.
    noise = cells.noise + cells.redrawn_noise
    means = [cells.redrawn(rng) for _ in range(replicates)]
    drawn = np.array(
        [(cells.drift(mean, noise, first), cells.distance(mean, noise)) for mean in means]
    )
    along = _along_classes(label, period, cells, scaled, first)
    everybody = some(view.masked.num_nodes, MAX_NODES, rng)
    away = _away(view, everybody, view.features(everybody, columns), scale, distance)
    by_period = cells.by_period(len(view.known)) / np.sqrt(max(distance, 1e-12))
    times = view.masked.times
    series: dict[str, Any] = {
        "times": listed(times[view.known]),
        "drift": listed(by_period),
        "along_classes": along,
        "all_times": listed(times),
        "all_drift": listed(away),
    }
    if distance <= 0 or np.quantile(drawn[:, 1], 0.05) <= 0:
        why = (
            "The features hardly tell the classes apart, "
            "so there is no distance to hold drift against."
        )
        return FeatureDrift(NOT_TESTABLE, why, **series)
    value = float(np.sqrt(max(0.0, drift) / distance))
    ratios = np.maximum(drawn[:, 0], 0) / drawn[:, 1].clip(1e-12)
    low, high = np.sqrt(np.quantile(ratios, [0.025, 0.975]))
    low = min(float(low), value)
    high = max(float(high), value)
    status = judge(value, low, high, small=SMALL, large=LARGE)
    move = f"a class moves from its past by {value:.2f} times the distance between classes"
    if along is not None and along < min(value / 2, SMALL):
        move += f" (only {along:.2f} where classes differ)"
    sentence = {
        HOLDS: f"The features of a class stay in place: {move}.",
        UNCERTAIN: f"The features of a class move somewhat: {move}.",
        VIOLATED: f"The features of a class drift: {move}.",
        NOT_TESTABLE: "Too few nodes per class and period, or too noisy features, "
        "to tell drift from noise.",
    }[status]
    return FeatureDrift(status, sentence, value, (low, high), **series)


def _along_classes(
    label: np.ndarray, period: np.ndarray, cells: Cells, scaled: np.ndarray, first: int
) -> float | None:
    """The statistic in the subspace of linear discriminant analysis, which linear models use."""
    # Covariance within cells [f, f], shrunk, and the map that whitens it.
    centred = cells.values - np.repeat(cells.mean, cells.count, axis=0).astype(np.float32)
    within = (centred.T @ centred / max(len(centred) - len(cells.count), 1)).astype(np.float64)
    usual = np.trace(within) / len(within)
    if usual <= 0:
        return None
    values, vectors = np.linalg.eigh(
        (1 - SHRINKAGE) * within + SHRINKAGE * usual * np.eye(len(within))
    )
    whitening = vectors / np.sqrt(values)
    # Directions in which the whitened class means differ [Y − 1, f].
    classes, share, _ = cells.classes(cells.mean, cells.noise)
    apart = np.sqrt(share)[:, None] * (classes - share @ classes) @ whitening
    axes = np.linalg.svd(apart, full_matrices=False)[2][: len(classes) - 1]
    turned = Cells.of(label, period, (scaled @ (whitening @ axes.T)).astype(np.float32))
    distance = turned.distance(turned.mean, turned.noise)
    if distance <= 0:
        return None
    return float(np.sqrt(max(0.0, turned.drift(turned.mean, turned.noise, first)) / distance))


def _away(view: View, rows: np.ndarray, x: np.ndarray, scale: Scale, distance: float) -> np.ndarray:
    """Distance of the mean of every period from that of the labelled nodes, in class distances."""
    count, mean, squares = group_moments(
        x, view.masked.period[rows].astype(np.int32), len(view.masked.times)
    )
    noise = (
        squares / np.maximum(count - 1, 1)[:, None] / np.maximum(count, 1)[:, None] / scale.scale**2
    ).sum(1)
    square = (scale.apply(mean) ** 2).sum(1) - noise
    return np.where(count > 1, np.sqrt(np.maximum(square, 0) / max(distance, 1e-12)), np.nan)


@dataclass(frozen=True, eq=False)
class Cells:
    """C cells of nodes of one class and period, sorted by class, then period."""

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
        """The cells of at least `MIN_NODES` nodes."""
        size = int(period.max()) + 1
        code, index, count = np.unique(
            label.astype(np.int64) * size + period, return_inverse=True, return_counts=True
        )
        is_large = count >= MIN_NODES
        # Cell of every node, −1 for nodes of small cells; then nodes sorted by cell.
        number = np.where(is_large, np.cumsum(is_large) - 1, -1)[index]
        code = code[is_large]
        count = count[is_large]
        order = np.argsort(number, kind="stable")[np.count_nonzero(number < 0) :]
        values = np.ascontiguousarray(values[order])
        _, mean, squares = group_moments(values, number[order].astype(np.int32), len(count))
        # Variance within classes, relative to the pooled one, gives the weights.
        total = squares.sum(1)
        own = code // size
        pooled = max(total.sum() / max((count - 1).sum(), 1), 1e-300)
        within = np.bincount(own, total) / np.maximum(np.bincount(own, count - 1), 1)
        weight = 1 / np.maximum(within / pooled, MIN_VARIANCE)[own]
        return cls(
            label=own,
            period=code % size,
            count=count,
            weight=weight,
            mean=mean,
            noise=total / count / (count - 1),
            redrawn_noise=total / count**2,
            values=values,
            start=np.cumsum(count) - count,
        )

    def redrawn(self, rng: np.random.Generator) -> np.ndarray:
        """Means of the cells after drawing their nodes anew with replacement."""
        size = np.repeat(self.count, self.count)
        picked = np.repeat(self.start, self.count) + (rng.random(len(size)) * size).astype(np.int64)
        return (
            np.add.reduceat(self.values[picked], self.start, axis=0, dtype=np.float64)
            / self.count[:, None]
        )

    def classes(
        self, mean: np.ndarray, noise: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
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
        return float(
            (share * (square - unsure * (1 - 2 * share) - (share**2 * unsure).sum())).sum()
        )

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
        unknown = np.full(num_periods, np.nan)
        mean = np.divide(summed, total, out=unknown, where=total > 0)
        return np.sqrt(np.maximum(mean, 0))

    def _to_past(self, mean: np.ndarray, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """‖μ_yt − μ_y,<t‖² less its noise, and what it counts: nothing where a class has no past."""
        before = self._running(self.count)
        many = np.maximum(before, 1)
        past = self._running(self.count[:, None] * mean) / many[:, None]
        square = (
            ((mean - past) ** 2).sum(1) - noise - self._running(self.count**2 * noise) / many**2
        )
        return square, np.where(before > 0, self.count * self.weight, 0)

    def _running(self, values: np.ndarray) -> np.ndarray:
        """Sums over the earlier cells of the same class."""
        total = np.cumsum(values, axis=0) - values
        # labels are sorted: the first cell of each
        return total - total[np.searchsorted(self.label, self.label)]
