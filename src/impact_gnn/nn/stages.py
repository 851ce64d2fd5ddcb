"""Training in stages: what one stage is confident of teaches the next (SeHGNN's stages, GAMLP's RLU)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from impact_gnn import checks
from impact_gnn.checks import InputError
from impact_gnn.nn.tasks import Split


@dataclass(frozen=True, eq=False)
class Lesson:
    """What a stage is taught: label, target probabilities and weight of every row, and which rows it learns from.

    `soft` [N, C] is what may be told of a row to its neighbours: its true label, or what the stage
    before believed; None for true labels alone.
    """

    label: np.ndarray
    target: np.ndarray | None
    weight: np.ndarray | None
    split: Split
    soft: np.ndarray | None = None


@dataclass(frozen=True)
class Reliable:
    """Which predictions are believed, in how many trainings, and how much they count.

    From the probability `threshold` on a row that has no label to learn from is believed. It then
    is learned from with its probabilities, made sharper by p^(1/temperature), as target: their
    cross-entropy has the gradient of the KL divergence from them. It counts `weight` times its
    largest probability, a labelled row 1; a weight of 0 keeps such rows out of the loss and in the
    label hops. With `distill` every row trained on also learns, with this weight, what the stage
    before said of it (self-distillation).

    SeHGNN: threshold .75, weight 10; GAMLP's RLU: threshold 0, weight .5, temperature .001.
    """

    stages: int = 3
    threshold: float = 0.75
    weight: float = 0.5
    temperature: float = 1.0
    distill: float = 0.0

    def __post_init__(self) -> None:
        if checks.whole_number("stages", self.stages) < 1:
            raise InputError(f"stages={self.stages} must be at least 1.")
        if not 0 <= self.threshold <= 1:
            raise InputError(f"threshold={self.threshold} must be from 0 to 1.")
        if not self.temperature > 0:
            raise InputError(f"temperature={self.temperature} must be above 0.")
        for name in ("weight", "distill"):
            if not getattr(self, name) >= 0:
                raise InputError(f"{name}={getattr(self, name)} must be at least 0.")

    def lesson(
        self,
        label: np.ndarray,
        split: Split,
        num_labels: int,
        probability: np.ndarray,
        weight: np.ndarray | None = None,
    ) -> Lesson:
        """What the next stage is taught, given the probabilities [N, C] of the one before.

        True labels of rows that are not trained on are never read. Rows to choose by may be told to
        their neighbours as predicted, but are not learned from.
        """
        soft = self.told(label, split.train, num_labels, probability)
        taught = (
            np.setdiff1d(np.flatnonzero(soft.any(1)), split.all)
            if self.weight
            else np.empty(0, np.int64)
        )
        known, counts = (
            np.array(label),
            np.ones(len(label), np.float32) if weight is None else np.array(weight),
        )
        known[taught] = probability[taught].argmax(1)
        counts[taught] = self.weight * probability[taught].max(1)
        target = np.array(soft)
        target[taught] = sharpened(soft[taught], self.temperature)
        return Lesson(
            known, target, counts, Split(np.concatenate([split.train, taught]), split.valid), soft
        )

    def told(
        self,
        label: np.ndarray,
        rows: np.ndarray,
        num_labels: int,
        probability: np.ndarray | None = None,
    ) -> np.ndarray:
        """The labels of `rows` as one-hot vectors, and of others the probabilities where they are believed; else 0."""
        soft = np.zeros((len(label), num_labels), np.float32)
        if probability is not None:
            extra = believed(probability, np.setdiff1d(np.arange(len(label)), rows), self.threshold)
            soft[extra] = probability[extra]
        soft[rows, label[rows]] = 1
        return soft


def believed(probability: np.ndarray, rows: np.ndarray, threshold: float) -> np.ndarray:
    """Those of `rows` whose most probable class has at least the threshold.

    Examples:
        >>> believed(np.array([[0.9, 0.1], [0.6, 0.4], [0.0, 1.0]]), np.array([0, 1]), 0.8)
        array([0])
    """
    return rows[probability[rows].max(1) >= threshold]


def sharpened(probability: np.ndarray, temperature: float) -> np.ndarray:
    """p^(1/temperature) [n, C], normalised; a small temperature leaves the most probable class alone.

    Examples:
        >>> sharpened(np.array([[0.5, 0.5], [0.8, 0.2]]), 0.5).round(3).tolist()
        [[0.5, 0.5], [0.941, 0.059]]
    """
    if temperature == 1 or not len(probability):
        return probability
    log = np.log(np.maximum(probability, 1e-12)) / temperature
    power = np.exp(log - log.max(1, keepdims=True))
    return (power / power.sum(1, keepdims=True)).astype(probability.dtype)
