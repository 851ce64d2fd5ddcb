"""Assumption 2: the features of a class do not depend on time.

A model trained on the past meets, in period t, the distance between the mean of a class in t and
its mean before t. It is compared with the distance between the classes; sampling noise is
subtracted from both squares.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy import ndarray

from impact_gnn._array import group_moments, safe_divide
from impact_gnn.diagnostics.assumption import NOT_TESTABLE, AssumptionCheck, conclude, listed
from impact_gnn.diagnostics.view import NodeIndex, View, recent, sampled
from impact_gnn.statistics import Scale

THRESHOLDS = (0.4, 0.7)  # the assumption holds up to the first, is violated from the second on
# Sizes of the random samples that are drawn from larger graphs.
MAX_LABELLED = 20_000  # labelled nodes
MAX_NODES = 200_000  # nodes with or without a label
MAX_COLUMNS = 512  # features
REPLICATES = 60  # of the bootstrap
MIN_NODES = 2  # of one class and period; the noise of the mean of fewer is unknown
# Variance within a class, as a share of the pooled one; a class without noise must not dominate.
MIN_VARIANCE = 0.1


@dataclass(frozen=True, repr=False)
class FeatureDrift(AssumptionCheck):
    """Drift of the classes from their own past, in units of the distance between classes."""

    name = "feature drift"
    assumption = 2
    measure = "drift of class means, as a multiple of the distance between classes"

    times: list[int] = field(default_factory=list)  # labelled periods
    # of every labelled period; None where no class has a past
    drift: list[float | None] = field(default_factory=list)
    all_times: list[int] = field(default_factory=list)  # all periods of the graph
    # distance of the mean of all nodes of a period from that of the labelled nodes, likewise
    all_drift: list[float | None] = field(default_factory=list)


def feature_drift(view: View) -> FeatureDrift:
    """Distance of classes from their own past, relative to the distance between classes.

    The root of drift² / distance², where drift² = Σ_yt w_y n_yt‖μ_yt − μ_y,<t‖² over the recent
    periods and distance² = Σ_y w_y n_y‖μ_y − μ‖², both as means and less the noise of the means.
    w_y is one over the variance within the class, so that classes with clear features count more.
    Columns are scaled to unit variance first. The interval is a bootstrap of nodes within classes
    and periods.

    Examples:
        >>> from impact_gnn.data.tsbm import tsbm
        >>> graph = tsbm(num_nodes=1000, num_labels=4, feature_std=1, seed=0)
        >>> feature_drift(View.of(graph.masked(8)))
        2 feature drift: holds, drift of class means, as a multiple of the distance between classes
        0.1...
    """
    if not view.num_features:
        return FeatureDrift(NOT_TESTABLE, "The graph has no features.")
    num_periods = len(view.labelled_periods)
    if num_periods < 2:
        return FeatureDrift(
            NOT_TESTABLE, "Labels are known in one period only, so drift cannot be measured."
        )
    rng = np.random.default_rng(view.seed)
    columns = sampled(view.num_features, MAX_COLUMNS, rng)
    labelled: NodeIndex = np.flatnonzero(view.label >= 0)
    nodes = labelled[sampled(len(labelled), MAX_LABELLED, rng)]
    x = view.features(nodes, columns)
    scale = Scale.fit(x)
    scaled = scale.apply(x).astype(np.float32, copy=False)
    # From positions among all periods to positions among the labelled ones [n].
    period = np.searchsorted(view.labelled_periods, view.masked.period[nodes])
    cells = Cells.of(view.label[nodes], period, scaled)
    # The first recent period, likewise.
    first = max(num_periods - recent(num_periods), 0)
    if len(np.unique(cells.label)) < 2:
        return FeatureDrift(NOT_TESTABLE, "Fewer than two classes have enough nodes for a mean.")
    drift_by_period = cells.drift_by_period(num_periods)
    if np.isnan(drift_by_period[first:]).all():
        return FeatureDrift(
            NOT_TESTABLE, "No class has enough nodes in a recent period and before it."
        )
    # Both are mean squares with the noise subtracted.
    drift = cells.drift(cells.mean, cells.noise, first)
    distance = cells.distance(cells.mean, cells.noise)
    # Bootstrap of both; a replicate has the noise of the graph and its own.
    noise = cells.noise + cells.redrawn_noise
    drawn_drift, drawn_distance = np.zeros((2, REPLICATES))
    for b in range(REPLICATES):
        mean = cells.redrawn(rng)
        drawn_drift[b] = cells.drift(mean, noise, first)
        drawn_distance[b] = cells.distance(mean, noise)
    # For the figure: all nodes by period, labelled or not.
    all_nodes: NodeIndex = sampled(view.masked.num_nodes, MAX_NODES, rng)
    all_x = view.features(all_nodes, columns)
    series: dict[str, Any] = {
        "times": listed(view.masked.times[view.labelled_periods]),
        "drift": listed(drift_by_period / np.sqrt(max(distance, 1e-12))),
        "all_times": listed(view.masked.times),
        "all_drift": listed(_drift_of_all(view, all_nodes, all_x, scale, distance)),
    }
    # Classes that do not even differ, here or in 5 % of the replicates, are no unit.
    if distance <= 0 or np.quantile(drawn_distance, 0.05) <= 0:
        why = "The features hardly separate the classes, so drift has no unit to compare with."
        return FeatureDrift(NOT_TESTABLE, why, **series)
    value = float(np.sqrt(max(0.0, drift) / distance))
    ratios = drawn_drift.clip(0) / drawn_distance.clip(1e-12)
    interval = np.sqrt(np.quantile(ratios, [0.025, 0.975]))
    size = f"a class drifts by {value:.2f} times the distance between classes"
    sentences = (
        f"The features of a class are stable: {size}.",
        f"The features of a class drift slightly: {size}.",
        f"The features of a class drift: {size}.",
        "Too few nodes per class and period, or too noisy features.",
    )
    return FeatureDrift(**conclude(value, interval, THRESHOLDS, sentences), **series)


def _drift_of_all(
    view: View, nodes: NodeIndex, x: ndarray, scale: Scale, distance: float
) -> ndarray:
    """Distance of the mean of every period from that of the labelled nodes, in class distances.

    `x` are the features of `nodes`, and `distance` is the squared one between classes.
    """
    period = view.masked.period[nodes].astype(np.int32)
    # Moments [T, f] of the values before scaling.
    count, mean, squares = group_moments(x, period, len(view.masked.times))
    # Variance of the scaled mean of a period, summed over the columns [T].
    variance = squares / np.maximum(count - 1, 1)[:, None]
    variance_of_mean = variance / np.maximum(count, 1)[:, None]
    noise = (variance_of_mean / scale.scale**2).sum(1)
    # Scaling moved the mean of the labelled nodes to 0, so this is the distance from it.
    square = (scale.apply(mean) ** 2).sum(1) - noise  # [T]
    drift = np.sqrt(np.maximum(square, 0) / max(distance, 1e-12))
    return np.where(count > 1, drift, np.nan)


@dataclass(frozen=True, eq=False)
class Cells:
    """C cells of nodes of one class and period, sorted by class, then period."""

    label: ndarray  # [C]
    period: ndarray  # [C]
    count: ndarray  # nodes [C]
    weight: ndarray  # of every node of a cell: 1 / relative variance within its class [C]
    mean: ndarray  # [C, f]
    noise: ndarray  # expected ‖mean − true mean‖² [C]
    redrawn_noise: ndarray  # the noise that the bootstrap adds [C]
    values: ndarray  # features in the order of the cells [n, f]
    start: ndarray  # where each cell begins in `values` [C]

    @classmethod
    def of(cls, label: ndarray, period: ndarray, values: ndarray) -> Cells:
        """The cells of at least `MIN_NODES` nodes."""
        num_periods = int(period.max()) + 1
        code = label.astype(np.int64) * num_periods + period
        # Nodes sorted by cell, without those of small cells.
        order = np.argsort(code, kind="stable")
        code, count = np.unique(code, return_counts=True)
        is_large = count >= MIN_NODES
        order = order[np.repeat(is_large, count)]
        code = code[is_large]
        count = count[is_large]
        values = np.ascontiguousarray(values[order])
        cell = np.repeat(np.arange(len(count), dtype=np.int32), count)
        _, mean, squares = group_moments(values, cell, len(count))
        # Sum of squared deviations over all columns, and degrees of freedom [C].
        total = squares.sum(1)
        freedom = count - 1
        # Variance within classes [Y], relative to the pooled one, gives the weights.
        label = code // num_periods
        pooled = max(total.sum() / max(freedom.sum(), 1), 1e-300)
        freedom_by_class = np.bincount(label, freedom)
        within = np.bincount(label, total) / np.maximum(freedom_by_class, 1)
        relative = np.maximum(within / pooled, MIN_VARIANCE)
        return cls(
            label=label,
            period=code % num_periods,
            count=count,
            weight=1 / relative[label],
            mean=mean,
            # Variance of a mean, s² / n with s² = total / (n − 1).
            noise=total / count / freedom,
            # Variance of a mean of n rows drawn with replacement, whose variance is total / n.
            redrawn_noise=total / count**2,
            values=values,
            start=np.cumsum(count) - count,
        )

    def redrawn(self, rng: np.random.Generator) -> ndarray:
        """Means of the cells after drawing their nodes again with replacement."""
        # For every row of `values`: the size and the start of its cell [n].
        size = np.repeat(self.count, self.count)
        start = np.repeat(self.start, self.count)
        # A random row of the same cell for each of its rows.
        offset = rng.random(len(size)) * size
        drawn = self.values[start + offset.astype(np.int64)]
        # Cells are contiguous in `values`, so `reduceat` sums each of them [C, f].
        total = np.add.reduceat(drawn, self.start, axis=0, dtype=np.float64)
        return total / self.count[:, None]

    def classes(self, mean: ndarray, noise: ndarray) -> tuple[ndarray, ndarray, ndarray]:
        """Mean [Y, f], share of the weight [Y] and noise [Y] of every class that has cells."""
        # From labels to positions among the classes that have cells.
        _, position = np.unique(self.label, return_inverse=True)
        # Share of a cell in the nodes of its class [C].
        share = self.count / np.bincount(position, self.count)[position]
        class_mean = np.zeros((position.max() + 1, mean.shape[1]))
        np.add.at(class_mean, position, share[:, None] * mean)
        weight = np.bincount(position, self.count * self.weight)
        # The noise of a weighted mean has squared weights.
        class_noise = np.bincount(position, share**2 * noise)
        return class_mean, weight / weight.sum(), class_noise

    def distance(self, mean: ndarray, noise: ndarray) -> float:
        """Mean squared distance of the classes from their common mean, less the noise."""
        class_mean, share, class_noise = self.classes(mean, noise)
        # Squared distance from the common mean of the classes, [Y].
        square = ((class_mean - share @ class_mean) ** 2).sum(1)
        # Its noise: the common mean contains every class with its share, so both are correlated.
        own_noise = class_noise * (1 - 2 * share)
        common_noise = (share**2 * class_noise).sum()
        return float((share * (square - own_noise - common_noise)).sum())

    def drift(self, mean: ndarray, noise: ndarray, first: int) -> float:
        """Mean squared distance of cells from the past of their class, from `first` on."""
        square, weight = self._square_to_past(mean, noise)
        weight = np.where(self.period >= first, weight, 0)
        total = (weight * square).sum()
        return float(total / max(weight.sum(), 1e-300))

    def drift_by_period(self, num_periods: int) -> ndarray:
        """Root mean squared distance from the past by period; NaN where no class has a past."""
        square, weight = self._square_to_past(self.mean, self.noise)
        total = np.bincount(self.period, weight, num_periods)
        summed = np.bincount(self.period, weight * square, num_periods)
        mean = safe_divide(summed, total, np.nan)
        return np.sqrt(np.maximum(mean, 0))

    def _square_to_past(self, mean: ndarray, noise: ndarray) -> tuple[ndarray, ndarray]:
        """‖μ_yt − μ_y,<t‖² less its noise [C], and its weight: 0 where a class has no past."""
        # Nodes of the class in earlier periods, [C].
        before = self._sum_before(self.count)
        divisor = np.maximum(before, 1)
        total = self._sum_before(self.count[:, None] * mean)
        past = total / divisor[:, None]
        # Noise of the past mean, in which a cell has the weight n / all nodes before.
        past_noise = self._sum_before(self.count**2 * noise) / divisor**2
        square = ((mean - past) ** 2).sum(1) - noise - past_noise
        return square, np.where(before > 0, self.count * self.weight, 0)

    def _sum_before(self, values: ndarray) -> ndarray:
        """Sums over the earlier cells of the same class, of values per cell [C, ...]."""
        # Over all cells before, of any class: cells are sorted by class, then period.
        total = np.cumsum(values, axis=0) - values
        # Without those of other classes, which end before the first cell of the own class.
        first_cell = np.searchsorted(self.label, self.label)
        return total - total[first_cell]
