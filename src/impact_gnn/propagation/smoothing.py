"""Correct and Smooth: a model's errors, then its predictions, walk along the edges - with time weights, on any engine.

Correct: what was wrong at the nodes with a known label is spread, E ← α·S E + (1−α)·E₀, and added
    to the predictions
at the size that errors had. Smooth: known labels and corrected predictions are spread in the same
way. S is the weighted mean over the neighbours; between several node types, over nodes of the
target type that are joined directly or through one node of another type. From shares of the classes
instead of a model this is label propagation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from impact_gnn.checks import InputError
from impact_gnn.engines.engine import Engine
from impact_gnn.engines.operator import Operator
from impact_gnn.graph import TemporalGraph
from impact_gnn.propagation.metapaths import metapaths
from impact_gnn.weighting import Weighting

STEPS = 10
Ways: TypeAlias = "list[list[Operator]]"


@dataclass(frozen=True)
class Smoothing:
    """How much of a node's error, and then of its prediction, comes from its neighbours in every step; 0 for none."""

    correct: float
    smooth: float


CHOICES = tuple(Smoothing(a, b) for a in (0.0, 0.5, 0.8) for b in (0.5, 0.8))
"""What is chosen from on past periods."""


def ways(graph: TemporalGraph, weighting: Weighting, engine: Engine) -> Ways:
    """The operations that lead from the target type to itself: directly, or in through another type and back.

    Refuses a graph whose predictions, a few times over, are more than the engine may hold in
    memory.
    """
    size = 16 * graph.num_nodes * graph.num_labels
    if not engine.fits(size):
        raise InputError(
            f"smoothing holds {size / 1e9:.1f} GB of predictions in memory, more than this engine may take; give more "
            f"memory or drop 'smooth'."
        )
    through = [
        path
        for path in metapaths(graph, 2, start=graph.target)
        if len(path) == 1 or path[0][2] != graph.target
    ]
    if not through:
        raise InputError(
            "no edges lead from a target node to another, directly or through one node; drop 'smooth'."
        )
    made = {
        triple: engine.operator(graph, triple, weighting=weighting)
        for path in through
        for triple in path
    }
    return [[made[triple] for triple in path] for path in through]


def correct_and_smooth(
    base: np.ndarray, label: np.ndarray, along: Ways, choices: Sequence[Smoothing], engine: Engine
) -> Iterator[np.ndarray]:
    """Probabilities [N, Y] after both steps, for one smoothing after the other; what they share is computed once.

    `label` [N] is −1 where it must not be seen. Rows of `base` that are zero (nodes that nobody
    predicts) only pass on what they hear.

    Examples:
        >>> from impact_gnn.engines.memory import Memory
        >>> chain = TemporalGraph(time=[0, 0, 1], edge_index=[[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> base, engine = np.full((3, 2), 0.5, np.float32), Memory()
        >>> along, label = ways(chain, "plain", engine), np.array([1, -1, -1])
        >>> [out.argmax(1).tolist() for out in correct_and_smooth(base, label, along, [Smoothing(0.5, 0.5)], engine)]
        [[1, 1, 1]]
    """
    known = np.flatnonzero(label >= 0)
    truth = np.zeros((len(known), base.shape[1]), np.float32)
    truth[np.arange(len(known)), label[known]] = 1
    before, start = None, base
    for one in choices:
        if one.correct != before:
            start = (
                _corrected(base, known, truth, along, one.correct, engine) if one.correct else base
            )
            before = one.correct
        out = start
        if one.smooth:
            out = start.astype(np.float32, copy=True)
            out[known] = truth
            out = _spread(out, along, one.smooth, engine)
        total = out.sum(1, keepdims=True)
        yield np.divide(out, total, out=np.full_like(out, 1 / out.shape[1]), where=total > 0)


def _corrected(
    base: np.ndarray,
    known: np.ndarray,
    truth: np.ndarray,
    along: Ways,
    share: float,
    engine: Engine,
) -> np.ndarray:
    """Errors at the known labels spread, and added to the predictions at the size that errors have."""
    wrong = np.zeros_like(base)
    wrong[known] = truth - base[known]
    usual = np.abs(wrong[known]).sum(1).mean() if len(known) else 0.0
    spread = _spread(wrong, along, share, engine)
    size = np.abs(spread).sum(1, keepdims=True)
    spread *= np.divide(usual, size, out=np.zeros_like(size), where=size > 1e-3)
    return np.where(base.sum(1, keepdims=True) > 0, np.clip(base + spread, 0, None), base)


def _spread(start: np.ndarray, along: Ways, share: float, engine: Engine) -> np.ndarray:
    out = start
    for _ in range(STEPS):
        heard = _mean([engine.hops(path, out, dtype=np.float32)[-1] for path in along])
        out = share * heard + (1 - share) * start
    return out


def _mean(hops: Sequence[Any]) -> np.ndarray:
    total = np.array(hops[0], np.float32)
    for hop in hops[1:]:
        total += np.asarray(hop)
    return total / np.float32(len(hops))
