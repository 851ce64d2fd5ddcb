"""How far nodes lie from what the model has learned from: their features against labelled nodes of the same class."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from impact_gnn.graph import TemporalGraph
from impact_gnn.statistics import Scale

MOST_ROWS = 50_000  # labelled nodes that are looked at
BLOCK = 1 << 16
FAR = 0.99  # share of the labelled nodes that lie nearer than what counts as far


@dataclass(frozen=True, eq=False)
class Usual:
    """Where the labelled nodes of every class lie, and how far from there they usually are.

    Examples:
        >>> from impact_gnn.data.tsbm import tsbm
        >>> view = tsbm(num_nodes=400, num_times=5, num_labels=2, seed=0).masked(4)
        >>> usual = Usual.of(view)
        >>> round(float(np.median(usual.distance(view.x, np.flatnonzero(view.label >= 0), view.label))), 6)
        1.0
    """

    scale: Scale
    means: np.ndarray  # of every class, in that scale; NaN where it has no label
    typical: float  # the median distance of labelled nodes from the mean of their class
    far: float  # the distance, as a multiple of it, that hardly any labelled node exceeds

    @classmethod
    def of(cls, view: TemporalGraph, seed: int = 0) -> Usual | None:
        """Of a view's known labels; None where it has no features, or nothing varies."""
        known = np.flatnonzero(view.label >= 0)
        if view.x is None or view.x.shape[1] == 0 or not len(known):
            return None
        if len(known) > MOST_ROWS:
            known = np.sort(np.random.default_rng(seed).choice(known, MOST_ROWS, replace=False))
        x, label = np.asarray(view.x[known]), view.label[known]
        scale = Scale.fit(x)
        scaled = scale.apply(x).astype(np.float64)
        count = np.bincount(label, minlength=view.num_labels)
        sums = np.zeros((view.num_labels, x.shape[1]))
        np.add.at(sums, label, scaled)
        means = sums / np.where(count > 0, count, np.nan)[:, None]
        away = np.sqrt(np.square(scaled - means[label]).mean(1))
        typical = float(np.median(away))
        return (
            cls(scale, means, typical, float(np.quantile(away, FAR)) / typical)
            if typical > 0
            else None
        )

    def distance(self, x: np.ndarray, rows: np.ndarray, label: np.ndarray) -> np.ndarray:
        """Of nodes from the labelled ones of their label, 1 for a usual one; `label` is of all nodes of `x`."""
        out = np.empty(len(rows))
        for start in range(0, len(rows), BLOCK):
            here = rows[start : start + BLOCK]
            away = self.scale.apply(np.asarray(x[here])) - self.means[label[here]]
            out[start : start + BLOCK] = np.sqrt(np.square(away).mean(1)) / self.typical
        return out
