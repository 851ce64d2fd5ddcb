"""`Head`, a model that maps rows of hops to probabilities; and `PriorHead`, the simplest one."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy import ndarray

from impact_gnn import checks
from impact_gnn.metrics import Scoring
from impact_gnn.nn import HopTask, Lesson, Task, Term, Training


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

    With smoothing, this is label propagation.
    """

    share: ndarray

    def fit(self, task: Task, lesson: Lesson, rounds: int | None = None) -> None:
        train = lesson.split.train
        weight = None if lesson.weight is None else lesson.weight[train]
        count = np.bincount(lesson.label[train], weight, self.shape.num_labels)
        self.share = (count / count.sum()).astype(np.float32)
        self.rounds = 1
        if len(lesson.split.valid):
            self.valid_score = self.validation_score(task, lesson, lesson.split.valid)

    def probabilities(self, task: Task, rows: ndarray) -> ndarray:
        return np.tile(self.share, (len(rows), 1))

    def arrays(self) -> dict[str, ndarray]:
        return {"share": self.share}

    def restore(self, arrays: Mapping[str, ndarray]) -> None:
        self.share = arrays["share"]
