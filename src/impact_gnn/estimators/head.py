"""What a head is: fitted on rows of hops with a few rows to choose by, it gives probabilities; and the least head."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from impact_gnn import checks
from impact_gnn.metrics import Scoring
from impact_gnn.nn import Epoch, HopTask, Split, Task, Term, Training


@dataclass(frozen=True)
class Shape:
    """What a head is made for: columns of every hop and label hop, classes, and which hops belong together."""

    hops: list[int]
    label_hops: list[int]
    num_labels: int
    groups: list[list[int]]

    @property
    def columns(self) -> int:
        return sum(self.hops) + sum(self.label_hops)


@dataclass(frozen=True)
class HeadOptions:
    """How a head is fitted; each head takes what it knows. `None` leaves the choice to the head."""

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
    progress: Callable[[Epoch], None] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        for name in ("hidden", "epochs", "patience"):
            if (value := getattr(self, name)) is not None:
                checks.at_least(name, value, 1)
        if self.dropout is not None:
            checks.share("dropout", self.dropout)


# in a pickle, with the options and what was learned
KEPT = (
    "shape",
    "rounds",
    "valid_score",
    "network",
)


class Head(ABC):
    """Probabilities from the hops of a row.

    `fit` with rows to choose by finds out how long to learn (`rounds`: epochs, trees); given
    `rounds` it learns that long; how long is best the options' `scoring` tells. What was learned
    goes to disk and back as arrays.
    """

    def __init__(self, shape: Shape, options: HeadOptions) -> None:
        what = f"weights of {shape.columns:,} inputs and {shape.num_labels:,} classes"
        width = max(shape.num_labels, options.hidden or 0)
        checks.fits(
            what,
            16 * shape.columns * width,
            "merge rare classes, leave out 'labels' or take fewer hidden units",
        )
        self.shape, self.options = shape, options
        self.rounds = 0
        self.valid_score = math.nan

    @abstractmethod
    def fit(
        self,
        task: Task,
        label: np.ndarray,
        split: Split,
        *,
        weight: np.ndarray | None = None,
        rounds: int | None = None,
        target: np.ndarray | None = None,
    ) -> None:
        """Learns from the rows `split.train`; `label` and `weight` have an entry for every row of the task.

        Networks learn the probabilities `target` [N, num_labels], if given, in place of the labels.
        """

    @abstractmethod
    def probabilities(self, task: Task, rows: np.ndarray) -> np.ndarray:
        """[n, num_labels], float32, as the weights of the rows taught it."""

    def predict_proba(self, task: Task, rows: np.ndarray) -> np.ndarray:
        """As `probabilities`, whatever the rows of a class counted."""
        return self.options.scoring.without_class_weights(self.probabilities(task, rows))

    @abstractmethod
    def arrays(self) -> dict[str, np.ndarray]:
        """What was learned."""

    @abstractmethod
    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Takes what `arrays` gave."""

    def __getstate__(self) -> dict[str, Any]:
        """A pickle holds what a file would: nothing of a graph, and nobody to tell of progress."""
        rest = {name: value for name, value in vars(self).items() if name in KEPT}
        return rest | {
            "options": replace(self.options, progress=None, terms=(), training=()),
            "arrays": self.arrays(),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update({name: state[name] for name in state if name != "arrays"})
        self.restore(state["arrays"])


def matrix(task: Task, rows: np.ndarray) -> np.ndarray:
    """All hops of some rows side by side, float32."""
    assert isinstance(task, HopTask)  # heads that ask for a matrix are never given a whole graph
    return task.matrix(rows)


class PriorHead(Head):
    """The (weighted) shares of the classes among the rows learned from, for all rows; label propagation begins so."""

    share: np.ndarray

    def fit(
        self,
        task: Task,
        label: np.ndarray,
        split: Split,
        *,
        weight: np.ndarray | None = None,
        rounds: int | None = None,
        target: np.ndarray | None = None,
    ) -> None:
        counted = None if weight is None else weight[split.train]
        count = np.bincount(label[split.train], counted, self.shape.num_labels)
        self.share = (count / count.sum()).astype(np.float32)
        self.rounds = 1
        if len(split.valid):
            self.valid_score = self.options.scoring.score(
                self.predict_proba(task, split.valid), label[split.valid]
            )

    def probabilities(self, task: Task, rows: np.ndarray) -> np.ndarray:
        return np.tile(self.share, (len(rows), 1))

    def arrays(self) -> dict[str, np.ndarray]:
        return {"share": self.share}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        self.share = arrays["share"]
