"""The 2-d map of the features: a sample of nodes, and the mean of every class and period, as in the paper's figure."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np

from impact_gnn import checks
from impact_gnn._array import group_moments
from impact_gnn.checks import InputError
from impact_gnn.diagnostics.finding import plain
from impact_gnn.diagnostics.view import View

EMBEDDINGS = ("pca", "tsne")
MOST_CLASSES = 15
"""Classes whose means are shown: the largest, as many as the paper shows."""

MOST_MEANS = 600
"""Means shown at most; with more periods some are left out evenly."""


def feature_map(view: View, *, embedding: str = "pca", sample: int = 1500, seed: int = 0) -> dict[str, Any]:
    """Two coordinates for a sample of nodes and for the means of the largest classes in every period.

    "pca" is linear: distances in the map are distances in the features, seen from the best side. "tsne" keeps
    neighbourhoods only; it needs scikit-learn and takes seconds. Target nodes are in the map with label −1.

    Args:
        view: What is looked at.
        embedding: "pca" or "tsne".
        sample: Number of nodes.
        seed: Seed of the sample and of t-SNE.
    """
    checks.choice("embedding", embedding, EMBEDDINGS)
    x = view.features
    if x is None:
        return {}
    rng = np.random.default_rng(seed)
    size = min(sample, len(x))
    rows = np.sort(rng.choice(len(x), size, replace=False))
    label, period, means = _means(view, x)
    points = np.concatenate([x[rows], means]).astype(np.float64)
    points -= points[:size].mean(0)
    spread = points[:size].std(0)
    points *= np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > 0)
    place, explained = _pca(points, size, 2 if embedding == "pca" else 30)
    if embedding == "tsne":
        place = _tsne(place, seed)
    return plain(
        {
            "embedding": embedding,
            "explained": explained if embedding == "pca" else None,
            "nodes": {"place": place[:size], "label": view.label[rows], "time": view.masked.time[rows]},
            "means": {"place": place[size:], "label": label, "time": view.masked.times[period]},
        }
    )


def _means(view: View, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Class, period and mean features of the communities of the largest classes."""
    labelled = np.flatnonzero(view.label >= 0)
    largest = np.argsort(-np.bincount(view.label[labelled]), kind="stable")[:MOST_CLASSES]
    rows = labelled[np.isin(view.label[labelled], largest)]
    code = view.masked.period[rows].astype(np.int64) * view.masked.num_labels + view.label[rows]
    seen, index = np.unique(code, return_inverse=True)
    _, mean, _ = group_moments(x[rows], index.astype(np.int32), len(seen))
    kept = np.unique(np.linspace(0, len(seen) - 1, min(len(seen), MOST_MEANS)).astype(np.int64))
    return seen[kept] % view.masked.num_labels, seen[kept] // view.masked.num_labels, mean[kept]


def _pca(points: np.ndarray, size: int, width: int) -> tuple[np.ndarray, list[float]]:
    """Coordinates along the main directions of the first `size` points, and the variance each explains."""
    values, vectors = np.linalg.eigh(points[:size].T @ points[:size])
    order = np.argsort(-values)[:width]
    axes = vectors[:, order]
    axes *= np.where(axes[np.abs(axes).argmax(0), np.arange(axes.shape[1])] < 0, -1.0, 1.0)  # a sign that is fixed
    place = points @ axes
    if place.shape[1] < 2:
        place = np.pad(place, ((0, 0), (0, 2 - place.shape[1])))
    return place, (values[order][:2] / max(values.sum(), 1e-300)).tolist()


def _tsne(points: np.ndarray, seed: int) -> np.ndarray:
    if importlib.util.find_spec("sklearn") is None:
        raise InputError("embedding='tsne' needs scikit-learn, which is not installed; install it or use 'pca'.")
    from sklearn.manifold import TSNE

    perplexity = min(30.0, max(1.0, (len(points) - 1) / 3))
    return TSNE(perplexity=perplexity, init="pca", random_state=seed).fit_transform(points)
