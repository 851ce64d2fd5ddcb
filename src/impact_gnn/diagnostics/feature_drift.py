"""Assumption 2: do the features of a class stay where they are?

What a model trained on the past meets in period t is the distance between the mean of a class in t and its mean
before t. It is compared with the distance between the classes; sampling noise is taken out of both squares.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from impact_gnn._array import group_moments
from impact_gnn.diagnostics.cells import Cells
from impact_gnn.diagnostics.finding import CANNOT_TELL, DOUBTFUL, FAILS, HOLDS, Finding, judge, listed
from impact_gnn.diagnostics.view import View, recent, some
from impact_gnn.statistics import Scale

SMALL, LARGE = 0.4, 0.7  # up to SMALL features of a class count as steady, from LARGE on as moving
# Labelled nodes, nodes with or without label, and columns that are looked at; of more a random choice is taken.
MOST_ROWS, MOST_NODES, MOST_COLUMNS = 20_000, 200_000, 512
SHRINKAGE = 0.05  # how far the covariance within classes is drawn towards a multiple of the identity


@dataclass(frozen=True, repr=False)
class FeatureDrift(Finding):
    """How far a class moves from its own past, in distances between classes."""

    name = "feature drift"
    assumption = 2
    measure = "drift of class means, as a multiple of the distance between classes"

    times: list[int] = field(default_factory=list)  # labelled periods
    drift: list[float | None] = field(default_factory=list)  # of every one; None where no class has a past
    along_classes: float | None = None  # the drift in those directions only in which classes differ
    all_times: list[int] = field(default_factory=list)  # those of the targets too
    # Distance of the mean of all nodes of a period from that of the labelled ones; needs no labels.
    all_drift: list[float | None] = field(default_factory=list)


def feature_drift(view: View, *, replicates: int = 60, seed: int = 0) -> FeatureDrift:
    """Root of the ratio of two squared distances: of a class from its own past, and of the classes from each other.

    drift² = Σ_yt w_y n_yt‖μ_yt − μ_y,<t‖² over the recent periods and distance² = Σ_y w_y n_y‖μ_y − μ‖², as means
    and less what the sampling of the means gives; w_y is one over the variance within the class, so that classes
    with clear features count more. Columns are scaled to unit variance first. The interval is a bootstrap of nodes
    within classes and periods.

    Example:
        >>> from impact_gnn.data.tsbm import tsbm
        >>> feature_drift(View.of(tsbm(num_nodes=1000, num_labels=4, feature_std=1, seed=0).masked(8)))
        2 feature drift: holds, drift of class means, as a multiple of the distance between classes 0.1...
    """
    if not view.num_features:
        return FeatureDrift(CANNOT_TELL, "The graph has no features.")
    if len(view.known) < 2:
        return FeatureDrift(CANNOT_TELL, "Labels are known in one period only, so no drift can be seen.")
    rng = np.random.default_rng(seed)
    columns = some(view.num_features, MOST_COLUMNS, rng)
    rows = some(np.flatnonzero(view.label >= 0), MOST_ROWS, rng)
    x = view.features(rows, columns)
    scale = Scale.fit(x)
    scaled = scale.apply(x).astype(np.float32, copy=False)
    label, period = view.label[rows], np.searchsorted(view.known, view.masked.period[rows])
    cells = Cells.of(label, period, scaled)
    if len(np.unique(cells.label)) < 2:
        return FeatureDrift(CANNOT_TELL, "Fewer than two classes have nodes enough to know their means.")
    first = len(view.known) - recent(len(view.known))
    if not cells.followed(first):
        why = "No class has nodes enough in a recent period and before it, so no drift can be seen."
        return FeatureDrift(CANNOT_TELL, why)
    drift, distance = cells.drift(cells.mean, cells.noise, first), cells.distance(cells.mean, cells.noise)
    noise = cells.noise + cells.redrawn_noise
    means = [cells.redrawn(rng) for _ in range(replicates)]
    drawn = np.array([(cells.drift(mean, noise, first), cells.distance(mean, noise)) for mean in means])
    along = _along_classes(label, period, cells, scaled, first)
    everybody = some(view.masked.num_nodes, MOST_NODES, rng)
    away = _away(view, everybody, view.features(everybody, columns), scale, distance)
    by_period = cells.by_period(len(view.known)) / np.sqrt(max(distance, 1e-12))
    times = view.masked.times
    series = listed(times[view.known]), listed(by_period), along, listed(times), listed(away)
    if distance <= 0 or np.quantile(drawn[:, 1], 0.05) <= 0:
        why = "The features hardly tell the classes apart, so there is no distance to hold drift against."
        return FeatureDrift(CANNOT_TELL, why, None, None, *series)
    value = float(np.sqrt(max(0.0, drift) / distance))
    low, high = np.sqrt(np.quantile(np.maximum(drawn[:, 0], 0) / drawn[:, 1].clip(1e-12), [0.025, 0.975]))
    low, high = min(float(low), value), max(float(high), value)
    verdict = judge(value, low, high, small=SMALL, large=LARGE)
    move = f"a class moves from its past by {value:.2f} times the distance between classes"
    if along is not None and along < min(value / 2, SMALL):
        move += f" (only {along:.2f} where classes differ)"
    sentence = {
        HOLDS: f"The features of a class stay in place: {move}.",
        DOUBTFUL: f"The features of a class move somewhat: {move}.",
        FAILS: f"The features of a class drift: {move}.",
        CANNOT_TELL: "Too few nodes per class and period, or too noisy features, to tell drift from noise.",
    }[verdict]
    return FeatureDrift(verdict, sentence, value, (low, high), *series)


def _along_classes(label: np.ndarray, period: np.ndarray, cells: Cells, scaled: np.ndarray, first: int) -> float | None:
    """The statistic in the subspace of linear discriminant analysis: drift that a linear model would notice."""
    around = cells.values - np.repeat(cells.mean, cells.count, axis=0).astype(np.float32)
    within = (around.T @ around / max(len(around) - len(cells.count), 1)).astype(np.float64)
    usual = np.trace(within) / len(within)
    if usual <= 0:
        return None
    values, vectors = np.linalg.eigh((1 - SHRINKAGE) * within + SHRINKAGE * usual * np.eye(len(within)))
    whitening = vectors / np.sqrt(values)
    classes, share, _ = cells.classes(cells.mean, cells.noise)
    apart = np.sqrt(share)[:, None] * (classes - share @ classes) @ whitening
    axes = np.linalg.svd(apart, full_matrices=False)[2][: len(classes) - 1]
    turned = Cells.of(label, period, (scaled @ (whitening @ axes.T)).astype(np.float32))
    distance = turned.distance(turned.mean, turned.noise)
    if distance <= 0:
        return None
    return float(np.sqrt(max(0.0, turned.drift(turned.mean, turned.noise, first)) / distance))


def _away(view: View, rows: np.ndarray, x: np.ndarray, scale: Scale, distance: float) -> np.ndarray:
    """Distance of the mean of some nodes of every period from that of the labelled nodes, in class distances."""
    count, mean, squares = group_moments(x, view.masked.period[rows].astype(np.int32), len(view.masked.times))
    noise = (squares / np.maximum(count - 1, 1)[:, None] / np.maximum(count, 1)[:, None] / scale.scale**2).sum(1)
    square = (scale.apply(mean) ** 2).sum(1) - noise
    return np.where(count > 1, np.sqrt(np.maximum(square, 0) / max(distance, 1e-12)), np.nan)
