"""Training in stages: confident predictions become soft labels (SeHGNN, GAMLP's RLU)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

from impact_gnn import checks
from impact_gnn.checks import InputError
from impact_gnn.nn.tasks import Split


@dataclass(frozen=True, eq=False)
class Lesson:
    """The targets of a stage: label, target probabilities and weight of every row, and the split.

    `soft` [N, C] are the soft labels for label hops: true labels, or confident predictions of the
    stage before; None for true labels only.
    """

    label: np.ndarray
    target: np.ndarray | None
    weight: np.ndarray | None
    split: Split
    soft: np.ndarray | None = None


@dataclass(frozen=True)
class Reliable:
    """How confident predictions become soft labels, in how many stages, and with what weight.

    An unlabelled row whose largest probability reaches `threshold` becomes a training row. Its
    target are its probabilities, sharpened by p^(1/temperature): their cross-entropy has the
    gradient of the KL divergence from them. Its weight is `weight` times its largest probability,
    that of a labelled row 1. With weight 0 such rows enter the label hops only. With `distill`
    every training row also learns, with this weight, its probabilities of the stage before
    (self-distillation).

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
        """Return the targets of the next stage, given the probabilities [N, C] of the last one.

        True labels of rows outside the training set are never read. Validation rows may enter label
        hops as predicted, but are not trained on.
        """
        # Inputs of the label hops [N, C]: true labels of training rows, confident predictions
        # elsewhere.
        soft = self.soft_labels(label, split.train, num_labels, probability)
        # Rows that become training rows by their predictions, if they have a weight in the loss.
        pseudo_labelled = np.empty(0, np.int64)
        if self.weight:
            # New training rows; validation rows are never trained on, however confident.
            pseudo_labelled = np.setdiff1d(np.flatnonzero(soft.any(1)), split.all)
        # Their label and weight: the most probable class, counted by how probable it is.
        new_label = np.array(label)
        new_label[pseudo_labelled] = probability[pseudo_labelled].argmax(1)
        new_weight = np.ones(len(label), np.float32) if weight is None else np.array(weight)
        new_weight[pseudo_labelled] = self.weight * probability[pseudo_labelled].max(1)
        # Only targets of the loss are sharpened; label hops read the probabilities as they are.
        target = np.array(soft)
        target[pseudo_labelled] = sharpened(soft[pseudo_labelled], self.temperature)
        return Lesson(
            label=new_label,
            target=target,
            weight=new_weight,
            split=Split(np.concatenate([split.train, pseudo_labelled]), split.valid),
            soft=soft,
        )

    def soft_labels(
        self,
        label: np.ndarray,
        rows: np.ndarray,
        num_labels: int,
        probability: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return one-hot labels of `rows`, confident probabilities of others, else zeros."""
        soft = np.zeros((len(label), num_labels), np.float32)
        if probability is not None:
            others = np.setdiff1d(np.arange(len(label)), rows)
            confident = confident_rows(probability, others, self.threshold)
            soft[confident] = probability[confident]
        # Last, so that a true label is never replaced by a prediction.
        soft[rows, label[rows]] = 1
        return soft


def confident_rows(probability: np.ndarray, rows: np.ndarray, threshold: float) -> np.ndarray:
    """Select those of `rows` whose most probable class has at least the threshold.

    Examples:
        >>> confident_rows(np.array([[0.9, 0.1], [0.6, 0.4], [0.0, 1.0]]), np.array([0, 1]), 0.8)
        array([0])
    """
    return rows[probability[rows].max(1) >= threshold]


def sharpened(probability: np.ndarray, temperature: float) -> np.ndarray:
    """Return p^(1/temperature) [n, C], normalised; a small temperature leaves one class.

    Examples:
        >>> sharpened(np.array([[0.5, 0.5], [0.8, 0.2]]), 0.5).round(3).tolist()
        [[0.5, 0.5], [0.941, 0.059]]
    """
    if temperature == 1 or not len(probability):
        return probability
    # Through logarithms: p^(1/temperature) would underflow at small temperatures.
    log = np.log(np.maximum(probability, 1e-12)) / temperature
    return softmax(log, axis=1).astype(probability.dtype)
