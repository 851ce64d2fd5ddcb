"""Correct and Smooth: spreads a model's errors, then its predictions, along time-weighted edges.

Correct: the errors at labelled nodes are spread, E ← α·S E + (1−α)·E₀, and added to the predictions
at their original size. Smooth: known labels and corrected predictions are spread in the same way. S
is the weighted mean over the neighbours; between several node types, over nodes of the target type
that are joined directly or through one node of another type. With class proportions instead of a
model this is label propagation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TypeAlias

import numpy as np
from numpy import ndarray

from impact_gnn._array import safe_divide
from impact_gnn.checks import InputError
from impact_gnn.engines.engine import Engine
from impact_gnn.engines.operator import Operator
from impact_gnn.graph import TemporalGraph
from impact_gnn.propagation.metapaths import Walk, metapaths
from impact_gnn.weighting import Weighting

STEPS = 10
Paths: TypeAlias = list[list[Operator]]


@dataclass(frozen=True)
class Smoothing:
    """The share of a node's error, and of its prediction, that comes from neighbours in a step."""

    correct: float
    smooth: float


CHOICES = tuple(Smoothing(a, b) for a in (0.0, 0.5, 0.8) for b in (0.5, 0.8))
"""The candidates of the selection on past periods."""


def smoothing_paths(graph: TemporalGraph, weighting: Weighting, engine: Engine) -> Paths:
    """Return operators from the target type to itself, directly or through another type.

    Refuses a graph whose predictions, a few times over, exceed the engine's memory.
    """
    # Four matrices of float32, [N, Y].
    size = 16 * graph.num_nodes * graph.num_labels
    if not engine.fits(size):
        raise InputError(
            f"smoothing needs {size / 1e9:.1f} GB of predictions in memory, more than this engine "
            "may use; raise the memory limit or drop 'smooth'."
        )
    # Two steps within the target type are left out: the repeated spreading takes them anyway.
    paths = [
        path
        for path in metapaths(graph, 2, start=graph.target)
        if len(path) == 1 or path[0][2] != graph.target
    ]
    if not paths:
        raise InputError(
            "no nodes of the target type are connected, directly or through one node; "
            "drop 'smooth'."
        )
    walk = Walk(graph, paths, weighting, engine)
    return [[walk.operator(relation) for relation in path] for path in paths]


def correct_and_smooth(
    base: ndarray, label: ndarray, paths: Paths, choices: Sequence[Smoothing], engine: Engine
) -> Iterator[ndarray]:
    """Yield probabilities [N, Y] after both steps for each smoothing.

    `label` [N] is −1 where it is unknown. Rows of `base` that are zero (nodes without predictions)
    only pass on what they receive. Choices with the same correction in a row share it.

    Examples:
        >>> from impact_gnn.engines.memory import Memory
        >>> chain = TemporalGraph(time=[0, 0, 1], edge_index=[[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> base, engine = np.full((3, 2), 0.5, np.float32), Memory()
        >>> paths, label = smoothing_paths(chain, "plain", engine), np.array([1, -1, -1])
        >>> smoothed = correct_and_smooth(base, label, paths, [Smoothing(0.5, 0.5)], engine)
        >>> next(smoothed).argmax(1).tolist()
        [1, 1, 1]
    """
    known = np.flatnonzero(label >= 0)
    # One-hot labels of the labelled nodes [n, Y].
    truth = np.eye(base.shape[1], dtype=np.float32)[label[known]]
    for correct, group in groupby(choices, key=lambda choice: choice.correct):
        corrected = base
        if correct:
            errors = np.zeros_like(base)
            # Errors exist at labelled nodes only; the others receive them from neighbours.
            errors[known] = truth - base[known]
            spread = _spread(errors, paths, correct, engine)
            corrected = _add_errors(base, errors, spread, known)
        for choice in group:
            values = corrected
            if choice.smooth:
                values = corrected.astype(np.float32, copy=True)
                # Labelled nodes spread their labels, others their corrected predictions.
                values[known] = truth
                values = _spread(values, paths, choice.smooth, engine)
            # Rows sum to 1; rows of zeros become uniform.
            total = values.sum(1, keepdims=True)
            yield safe_divide(values, total, 1 / values.shape[1])


def _add_errors(base: ndarray, errors: ndarray, spread: ndarray, known: ndarray) -> ndarray:
    """Add spread errors to the predictions, scaled to the mean size of the known errors."""
    # Spreading shrinks errors; each is scaled back to the mean size of the known ones.
    mean_size = np.float32(0)
    if len(known):
        mean_size = np.abs(errors[known]).sum(1).mean()
    # Σ_y |error| of every node, [N, 1]; traces of errors are dropped.
    size = np.abs(spread).sum(1, keepdims=True)
    spread *= safe_divide(mean_size, np.where(size > 1e-3, size, 0))
    corrected = np.maximum(base + spread, 0)
    # Nodes without a prediction stay zero: there is nothing to correct.
    is_predicted = base.sum(1, keepdims=True) > 0
    return np.where(is_predicted, corrected, base)


def _spread(start: ndarray, paths: Paths, share: float, engine: Engine) -> ndarray:
    """Repeat values ← share · (mean over paths and neighbours) + (1 − share) · start."""
    values = start
    # float32 throughout: an integer would make it float64.
    num_paths = np.float32(len(paths))
    for _ in range(STEPS):
        # The mean over the neighbours along each path [N, Y], then over the paths.
        total = np.zeros(start.shape, np.float32)
        for path in paths:
            hops = engine.hops(path, values, dtype=np.float32)
            total += np.asarray(hops[-1])
        values = share * (total / num_paths) + (1 - share) * start
    return values
