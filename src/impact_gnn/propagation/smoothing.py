"""Correct and Smooth: a model's errors, then its predictions, walk along the edges - with time weights, on any engine.

Correct: what was wrong at the nodes with a known label is spread, E ← α·S E + (1−α)·E₀, and added to the predictions
at the size that errors had. Smooth: known labels and corrected predictions are spread in the same way. S is the
weighted mean over the neighbours; between several node types, over nodes of the target type that are joined directly
or through one node of another type. From shares of the classes instead of a model this is label propagation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from impact_gnn.checks import InputError
from impact_gnn.engines.base import Engine
from impact_gnn.engines.operator import Operator
from impact_gnn.graph import TemporalGraph
from impact_gnn.propagation.metapaths import metapaths

STEPS = 10
Ways: TypeAlias = "list[list[Operator]]"


@dataclass(frozen=True)
class Smoothing:
    """How much of a node's error, and then of its prediction, comes from its neighbours in every step; 0 for none."""

    correct: float
    smooth: float


CHOICES = tuple(Smoothing(a, b) for a in (0.0, 0.5, 0.8) for b in (0.2, 0.5, 0.8))
"""What is chosen from on past periods."""


def ways(graph: TemporalGraph, weighting: str, engine: Engine) -> Ways:
    """The operations that lead from the target type to itself: directly, or in through another type and back."""
    through = [path for path in metapaths(graph, 2, start=graph.target) if len(path) == 1 or path[0][2] != graph.target]
    if not through:
        raise InputError("no edges lead from a target node to another, directly or through one node; drop 'smooth'.")
    made = {triple: engine.operator(graph, triple, weighting=weighting) for path in through for triple in path}
    return [[made[triple] for triple in path] for path in through]


def correct_and_smooth(
    base: np.ndarray, label: np.ndarray, along: Ways, smoothing: Smoothing, engine: Engine
) -> np.ndarray:
    """Probabilities [N, Y] after both steps; `label` [N] is −1 where it must not be seen.

    Rows of `base` that are zero (nodes that nobody predicts) only pass on what they hear.

    Example:
        >>> from impact_gnn.engines.memory import Memory
        >>> chain = TemporalGraph(time=[0, 0, 1], edge_index=[[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> base, engine = np.full((3, 2), 0.5, np.float32), Memory()
        >>> along, label = ways(chain, "plain", engine), np.array([1, -1, -1])
        >>> out = correct_and_smooth(base, label, along, Smoothing(0.5, 0.5), engine)
        >>> out.argmax(1).tolist()
        [1, 1, 1]
    """
    known = np.flatnonzero(label >= 0)
    truth = np.zeros((len(known), base.shape[1]), np.float32)
    truth[np.arange(len(known)), label[known]] = 1
    if smoothing.correct:
        wrong = np.zeros_like(base)
        wrong[known] = truth - base[known]
        usual = np.abs(wrong[known]).sum(1).mean() if len(known) else 0.0
        spread = _spread(wrong, along, smoothing.correct, engine)
        size = np.abs(spread).sum(1, keepdims=True)
        spread *= np.divide(usual, size, out=np.zeros_like(size), where=size > 1e-3)
        base = np.where(base.sum(1, keepdims=True) > 0, np.clip(base + spread, 0, None), base)
    if smoothing.smooth:
        start = base.astype(np.float32, copy=True)
        start[known] = truth
        base = _spread(start, along, smoothing.smooth, engine)
    total = base.sum(1, keepdims=True)
    return np.divide(base, total, out=np.full_like(base, 1 / base.shape[1]), where=total > 0)


def _spread(start: np.ndarray, along: Ways, share: float, engine: Engine) -> np.ndarray:
    if not engine.fits(4 * start.nbytes):
        size = f"{4 * start.nbytes / 1e9:.1f} GB"
        raise InputError(f"smoothing holds {size} of predictions in memory, more than this engine may take; drop it.")
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
