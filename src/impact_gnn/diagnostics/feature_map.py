"""The 2-d map of the features: a sample of nodes, and the mean of every class and period, as in the paper's figure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from impact_gnn._array import group_moments
from impact_gnn.diagnostics.assumption import listed
from impact_gnn.diagnostics.view import View, some
from impact_gnn.statistics import Scale

FEATURE_MAPS = ("pca", "tsne")
MOST_CLASSES = 15  # whose means are shown: the largest, as many as the paper shows
# means shown, of more some are left out evenly; nodes they are taken from
MOST_MEANS, MOST_ROWS = (
    600,
    100_000,
)


@dataclass(frozen=True)
class Places:
    """Coordinates [n, 2] with label and time of each; the label of a target node is −1."""

    place: list[list[float]]
    label: list[int]
    time: list[int]


@dataclass(frozen=True, repr=False)
class FeatureMap:
    """Nodes and class means in two dimensions; `explained` is the share of the variance along both (PCA only)."""

    projection: str
    explained: list[float]
    nodes: Places
    means: Places


def map_features(
    view: View, *, projection: str = "pca", sample: int = 1500, seed: int = 0
) -> FeatureMap | None:
    """Two coordinates for a sample of nodes and for the means of the largest classes in every period.

    "pca" is linear: distances in the map are distances in the features, seen from the best side.
    "tsne" keeps neighbourhoods only, and takes seconds. None without features.
    """
    from sklearn.decomposition import PCA  # both take a second to import
    from sklearn.manifold import TSNE

    if not view.num_features:
        return None
    rng = np.random.default_rng(seed)
    rows = some(view.masked.num_nodes, sample, rng)
    size, (label, period, means) = len(rows), _means(view, rng)
    points = np.concatenate([view.features(rows), means]).astype(np.float64)
    points = Scale.fit(points[:size]).apply(points)
    width = min(2 if projection == "pca" else 30, *points[:size].shape)
    with np.errstate(invalid="ignore"):  # constant features have no variance to explain
        pca = PCA(width, svd_solver="full").fit(points[:size])
    place = pca.transform(points)
    if projection == "tsne":
        perplexity = min(30.0, max(1.0, (len(points) - 1) / 3))
        place = TSNE(perplexity=perplexity, init="pca", random_state=seed).fit_transform(place)
    place = np.pad(place, ((0, 0), (0, 2 - min(2, place.shape[1]))))
    explained = np.nan_to_num(pca.explained_variance_ratio_) if projection == "pca" else ()
    nodes = Places(listed(place[:size]), listed(view.label[rows]), listed(view.masked.time[rows]))
    centres = Places(listed(place[size:]), listed(label), listed(view.masked.times[period]))
    return FeatureMap(projection, listed(explained), nodes, centres)


def _means(view: View, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Class, period and mean features of the communities of the largest classes."""
    labelled = np.flatnonzero(view.label >= 0)
    largest = np.argsort(-np.bincount(view.label[labelled]), kind="stable")[:MOST_CLASSES]
    rows = some(labelled[np.isin(view.label[labelled], largest)], MOST_ROWS, rng)
    code = view.masked.period[rows].astype(np.int64) * view.masked.num_labels + view.label[rows]
    seen, index = np.unique(code, return_inverse=True)
    _, mean, _ = group_moments(view.features(rows), index.astype(np.int32), len(seen))
    kept = np.unique(np.linspace(0, len(seen) - 1, min(len(seen), MOST_MEANS)).astype(np.int64))
    return seen[kept] % view.masked.num_labels, seen[kept] // view.masked.num_labels, mean[kept]
