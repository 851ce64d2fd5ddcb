"""`Head`, a model that maps rows of hops to probabilities; and `PriorHead`, the simplest one."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy import ndarray
from scipy.optimize import minimize_scalar

from impact_gnn import checks
from impact_gnn.metrics import Scoring, probability_of
from impact_gnn.nn import HopTask, Lesson, Task, Term, Training

MOST_OF_LAST = 0.99  # of a mixture: no class becomes impossible


@dataclass(frozen=True)
class Shape:
    """The columns of every hop and label hop, the classes, and which hops belong together."""

    hops: list[int]
    label_hops: list[int]
    num_labels: int
    groups: list[list[int]]

    @property
    def columns(self) -> int:
        return sum(self.hops) + sum(self.label_hops)


@dataclass(frozen=True)
class HeadOptions:
    """How a head is fitted; a head ignores options it does not have, and `None` is its default."""

    hidden: int | None = None
    dropout: float | None = None
    epochs: int | None = None
    patience: int | None = None
    lr: float | None = None
    weight_decay: float = 5e-4
    seed: int = 0
    device: str = "auto"
    terms: tuple[Term, ...] = ()
    training: tuple[Callable[[Training], Training], ...] = ()  # changes of how networks are trained
    patient: bool = False  # scores may fall before they rise, so early stopping waits longer
    scoring: Scoring = field(default_factory=Scoring)

    def __post_init__(self) -> None:
        for name in ("hidden", "epochs", "patience"):
            value = getattr(self, name)
            if value is not None:
                checks.at_least(name, value, 1)
        if self.dropout is not None:
            checks.share("dropout", self.dropout)


PICKLED = ("shape", "rounds", "valid_score", "network")
"""Attributes in a pickle, besides the options and the learned arrays."""


class Head(ABC):
    """Probabilities from the hops of a row.

    `fit` with validation rows chooses the number of `rounds` (epochs, trees) by the options'
    `scoring`; otherwise it learns for a given number. Learned weights are saved as arrays.
    """

    def __init__(self, shape: Shape, options: HeadOptions) -> None:
        checks.fits(
            f"weights of {shape.columns:,} inputs and {shape.num_labels:,} classes",
            16 * shape.columns * max(shape.num_labels, options.hidden or 0),
            "merge rare classes, drop 'labels' or use fewer hidden units",
        )
        self.shape = shape
        self.options = options
        self.rounds = 0
        self.valid_score = math.nan

    @abstractmethod
    def fit(self, task: Task, lesson: Lesson, rounds: int | None = None) -> None:
        """Learn from the training rows of a task; a lesson has an entry for every row.

        Networks learn the lesson's target probabilities, if it has any, in place of its labels.
        """

    @abstractmethod
    def probabilities(self, task: Task, rows: ndarray) -> ndarray:
        """Return probabilities [n, num_labels], under the class weights of the training."""

    def predict_proba(self, task: Task, rows: ndarray) -> ndarray:
        """Return probabilities [n, num_labels], corrected for class weights."""
        return self.options.scoring.without_class_weights(self.probabilities(task, rows))

    @abstractmethod
    def arrays(self) -> dict[str, ndarray]:
        """Return the learned weights."""

    @abstractmethod
    def restore(self, arrays: Mapping[str, ndarray]) -> None:
        """Restore the learned weights from `arrays`."""

    def validation_score(self, task: Task, lesson: Lesson, rows: ndarray) -> float:
        """Return the score on rows with labels."""
        probabilities = self.predict_proba(task, rows)
        return self.options.scoring.score(probabilities, lesson.label[rows])

    def __getstate__(self) -> dict[str, Any]:
        """Return the content of a saved file: nothing of a graph."""
        state = {name: value for name, value in vars(self).items() if name in PICKLED}
        state["options"] = replace(self.options, terms=(), training=())
        return state | {"arrays": self.arrays()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        arrays = state.pop("arrays")
        vars(self).update(state)
        self.restore(arrays)


def matrix(task: Task, rows: ndarray) -> ndarray:
    """Concatenate all hops of some rows, float32."""
    assert isinstance(task, HopTask)  # heads that read a matrix do not read graphs
    return task.matrix(rows)


class PriorHead(Head):
    """The (weighted) class proportions of the training rows, for all rows.

    With smoothing, this is label propagation. With the part "last", every row has its own class
    proportions: recent ones mixed with the last labels of its entities. The weight of the latter
    has the least log-loss on the training rows.
    """

    share: ndarray
    last_weight = 0.0

    @property
    def reads_proportions(self) -> bool:
        """Whether the inputs are class proportions, without any features."""
        return bool(self.shape.label_hops) and not self.shape.hops

    def fit(self, task: Task, lesson: Lesson, rounds: int | None = None) -> None:
        train = lesson.split.train
        weight = None if lesson.weight is None else lesson.weight[train]
        count = np.bincount(lesson.label[train], weight, self.shape.num_labels)
        self.share = (count / count.sum()).astype(np.float32)
        if self.reads_proportions:
            self.last_weight = self._best_weight(task, train, lesson.label[train])
        self.rounds = 1
        if len(lesson.split.valid):
            self.valid_score = self.validation_score(task, lesson, lesson.split.valid)

    def _best_weight(self, task: Task, rows: ndarray, label: ndarray) -> float:
        """Return the weight of the last labels with the least log-loss on some rows."""
        recent, last = np.split(matrix(task, rows).astype(np.float64), 2, axis=1)
        recent_truth = probability_of(label, recent)
        last_truth = probability_of(label, last)

        def loss(weight: float) -> float:
            return -float(np.log((1 - weight) * recent_truth + weight * last_truth).mean())

        return float(minimize_scalar(loss, bounds=(0, MOST_OF_LAST), method="bounded").x)

    def probabilities(self, task: Task, rows: ndarray) -> ndarray:
        if self.reads_proportions:
            return self.mixed(matrix(task, rows))
        return np.tile(self.share, (len(rows), 1))

    def mixed(self, columns: ndarray) -> ndarray:
        """Mix recent proportions and those of the last labels, side by side [n, 2 num_labels]."""
        recent, last = np.split(columns, 2, axis=1)
        return (1 - self.last_weight) * recent + self.last_weight * last

    def predict_proba(self, task: Task, rows: ndarray) -> ndarray:
        """Return probabilities; those of the part "last" do not depend on class weights."""
        if self.reads_proportions:
            return self.probabilities(task, rows)
        return super().predict_proba(task, rows)

    def arrays(self) -> dict[str, ndarray]:
        return {"share": self.share, "last_weight": np.array([self.last_weight])}

    def restore(self, arrays: Mapping[str, ndarray]) -> None:
        self.share = arrays["share"]
        if "last_weight" in arrays:
            self.last_weight = float(arrays["last_weight"][0])
