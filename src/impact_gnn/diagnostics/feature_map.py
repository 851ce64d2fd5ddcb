"""The map of the features in two dimensions: a sample of nodes, and class means by period."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from impact_gnn._array import group_moments
from impact_gnn.diagnostics.assumption import listed
from impact_gnn.diagnostics.view import View, sampled
from impact_gnn.statistics import Scale

FEATURE_MAPS = ("pca", "tsne")
MAX_CLASSES = 15  # classes with means, the largest ones; as many as in the paper
MAX_MEANS = 600  # means; of more, an even sample
MAX_ROWS = 100_000  # nodes that means are computed from


@dataclass(frozen=True)
class Places:
    """Coordinates [n, 2] with label and time of each; the label of a target node is −1."""

    place: list[list[float]]
    label: list[int]
    time: list[int]


@dataclass(frozen=True, repr=False)
class FeatureMap:
    """Nodes and class means in two dimensions."""

    projection: str
    explained: list[float]  # share of the variance along both axes; empty for t-SNE
    nodes: Places
    means: Places


def map_features(
    view: View, *, projection: str = "pca", sample: int = 1500, seed: int = 0
) -> FeatureMap | None:
    """Project a sample of nodes, and the means of the largest classes in every period.

    "pca" is linear, so that distances in the map are projected distances of the features.
    "tsne" preserves neighbourhoods only, and takes seconds. None without features.
    """
    from sklearn.decomposition import PCA  # importing both takes a second
    from sklearn.manifold import TSNE

    if not view.num_features:
        return None
    rng = np.random.default_rng(seed)
    nodes = sampled(view.masked.num_nodes, sample, rng)
    size = len(nodes)
    label, period, means = _class_means(view, rng)
    # Nodes first, then means [n + m, f]; scale and axes come from the nodes alone.
    points = np.concatenate([view.features(nodes), means]).astype(np.float64)
    points = Scale.fit(points[:size]).apply(points)
    width = min(2 if projection == "pca" else 30, *points[:size].shape)
    with np.errstate(invalid="ignore"):  # constant features have no variance to explain
        pca = PCA(width, svd_solver="full").fit(points[:size])
    place = pca.transform(points)
    if projection == "tsne":
        perplexity = min(30.0, max(1.0, (len(points) - 1) / 3))
        place = TSNE(perplexity=perplexity, init="pca", random_state=seed).fit_transform(place)
    # a second coordinate of zeros where there is one feature
    place = np.pad(place, ((0, 0), (0, 2 - min(2, place.shape[1]))))
    explained = np.nan_to_num(pca.explained_variance_ratio_) if projection == "pca" else ()
    return FeatureMap(
        projection=projection,
        explained=listed(explained),
        nodes=Places(
            listed(place[:size]), listed(view.label[nodes]), listed(view.masked.time[nodes])
        ),
        means=Places(listed(place[size:]), listed(label), listed(view.masked.times[period])),
    )


def _class_means(view: View, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Class, period and mean features of the largest classes in every period."""
    labelled = np.flatnonzero(view.label >= 0)
    largest = np.argsort(-np.bincount(view.label[labelled]), kind="stable")[:MAX_CLASSES]
    in_largest = labelled[np.isin(view.label[labelled], largest)]
    nodes = in_largest[sampled(len(in_largest), MAX_ROWS, rng)]
    # A code for every pair of period and class.
    num_labels = view.masked.num_labels
    code = view.masked.period[nodes].astype(np.int64) * num_labels + view.label[nodes]
    codes, index = np.unique(code, return_inverse=True)
    _, mean, _ = group_moments(view.features(nodes), index.astype(np.int32), len(codes))
    # An even sample of the codes.
    sample = np.linspace(0, len(codes) - 1, min(len(codes), MAX_MEANS)).astype(np.int64)
    sample = np.unique(sample)
    return codes[sample] % num_labels, codes[sample] // num_labels, mean[sample]
