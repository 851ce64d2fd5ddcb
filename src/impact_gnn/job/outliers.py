"""Outlier scores: distances of nodes from the labelled nodes of their class, by their features."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy import ndarray

from impact_gnn.graph import TemporalGraph
from impact_gnn.statistics import Scale, sample_rows

MAX_ROWS = 50_000  # labelled nodes to fit on
BLOCK = 1 << 16
QUANTILE = 0.99  # of the scores of labelled nodes, above which a node is an outlier


@dataclass(frozen=True, eq=False)
class OutlierScale:
    """Class means of the labelled nodes, and their typical distance from these.

    Examples:
        >>> from impact_gnn.data.tsbm import tsbm
        >>> view = tsbm(num_nodes=400, num_times=5, num_labels=2, seed=0).masked(4)
        >>> scale = OutlierScale.fit(view)
        >>> score = scale.score(view.x, np.flatnonzero(view.is_labelled), view.label)
        >>> round(float(np.median(score)), 6)
        1.0
    """

    scale: Scale
    means: ndarray  # of every class, after scaling; NaN for a class without labels [Y, f]
    typical: float  # median distance of labelled nodes from the mean of their class
    limit: float  # score above which a node is an outlier

    @classmethod
    def fit(cls, view: TemporalGraph) -> OutlierScale | None:
        """Fit on the known labels of a view; None without features, or if nothing varies."""
        nodes = sample_rows(np.flatnonzero(view.is_labelled), MAX_ROWS)
        if view.x is None or view.x.shape[1] == 0 or not len(nodes):
            return None
        x = np.asarray(view.x[nodes])
        label = view.label[nodes]
        scale = Scale.fit(x)
        scaled = scale.apply(x).astype(np.float64)
        # Class means [Y, f]: sums by class over counts.
        count = np.bincount(label, minlength=view.num_labels)
        sums = np.zeros((view.num_labels, x.shape[1]))
        np.add.at(sums, label, scaled)
        means = sums / np.where(count > 0, count, np.nan)[:, None]
        distance = _root_mean_square(scaled - means[label])
        typical = float(np.median(distance))
        if typical <= 0:
            return None
        limit = float(np.quantile(distance, QUANTILE)) / typical
        return cls(scale, means, typical, limit)

    def score(self, x: ndarray, nodes: ndarray, label: ndarray) -> ndarray:
        """Distances of `nodes` from their class, 1 for a typical one; `label` is of all nodes."""
        scores = np.empty(len(nodes))
        for start in range(0, len(nodes), BLOCK):
            block = nodes[start : start + BLOCK]
            scaled = self.scale.apply(np.asarray(x[block]))
            distance = _root_mean_square(scaled - self.means[label[block]])
            scores[start : start + BLOCK] = distance / self.typical
        return scores


def _root_mean_square(difference: ndarray) -> ndarray:
    """Return the root mean square over the features, [n]."""
    return np.sqrt(np.square(difference).mean(1))
