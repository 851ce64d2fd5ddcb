"""Training in stages: confident predictions become soft labels (SeHGNN, GAMLP's RLU)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy import ndarray

from impact_gnn.nn.tasks import Split


@dataclass(frozen=True, eq=False)
class Lesson:
    """The targets of a stage: label, target probabilities and weight of every row, and the split.

    `soft` [N, C] are the soft labels for label hops: true labels, or confident predictions of the
    stage before; None for true labels only.
    """

    label: ndarray
    target: ndarray | None
    weight: ndarray | None
    split: Split
    soft: ndarray | None = None


@dataclass(frozen=True)
class Reliable:
    """How confident predictions become soft labels, in how many stages, and with what weight.

    An unlabelled row whose largest probability reaches `threshold` becomes a training row. Its
    target are its probabilities: their cross-entropy has the gradient of the KL divergence from
    them. Its weight is `weight` times its largest probability, that of a labelled row 1.

    SeHGNN: threshold .75, weight 10; GAMLP's RLU: threshold 0, weight .5.
    """

    stages: int = 3
    threshold: float = 0.75
    weight: float = 0.5

    def lesson(
        self,
        label: ndarray,
        split: Split,
        num_labels: int,
        probability: ndarray,
        weight: ndarray | None = None,
    ) -> Lesson:
        """Return the targets of the next stage, given the probabilities [N, C] of the last one.

        True labels of rows outside the training set are never read. Validation rows may enter label
        hops as predicted, but are not trained on.
        """
        # Inputs of the label hops [N, C]: true labels of training rows, confident predictions
        # elsewhere.
        soft = self.soft_labels(label, split.train, num_labels, probability)
        # New training rows; validation rows are never trained on, however confident.
        pseudo_labelled = np.setdiff1d(np.flatnonzero(soft.any(1)), split.all)
        # Their label and weight: the most probable class, counted by how probable it is.
        new_label = np.array(label)
        new_label[pseudo_labelled] = probability[pseudo_labelled].argmax(1)
        new_weight = np.ones(len(label), np.float32)
        if weight is not None:
            new_weight = np.array(weight)
        new_weight[pseudo_labelled] = self.weight * probability[pseudo_labelled].max(1)
        return Lesson(
            label=new_label,
            target=soft,
            weight=new_weight,
            split=Split(np.concatenate([split.train, pseudo_labelled]), split.valid),
            soft=soft,
        )

    def soft_labels(
        self, label: ndarray, rows: ndarray, num_labels: int, probability: ndarray
    ) -> ndarray:
        """Return one-hot labels of `rows`, confident probabilities of others, else zeros."""
        soft = np.zeros((len(label), num_labels), np.float32)
        confident = probability.max(1) >= self.threshold
        soft[confident] = probability[confident]
        # Last, so that a true label is never replaced by a prediction.
        soft[rows] = np.eye(num_labels)[label[rows]]
        return soft
