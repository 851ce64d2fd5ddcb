"""Easy rows first: which of the rows to train on an epoch learns from."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from impact_gnn import checks
from impact_gnn.checks import InputError
from impact_gnn.nn import Run, Training
from impact_gnn.nn.training import evaluate

PACES = ("loss", "drop")


@dataclass(frozen=True)
class Curriculum:
    """After a warm-up on all rows, a share of every class is learned from.

    It grows until all rows are.

    With p = (epoch − warm_up − 1) / epochs the share is start + (1 − start)·p. Rows are ranked
    *within their class*: ranked all together, the classes learned first would keep all others out.
    What ranks a row is the moving average, over the epochs, of its loss without dropout. With
    `pace="loss"` those with the least come first (CLGNN: Wong, Yang, Fu, Yao: Loss-aware Curriculum
    Learning for Heterogeneous Graph Neural Networks, 2024); with "drop" rows are drawn without
    replacement with probability ∝ exp(how much their average fell in the last epoch) (LDHGNN: Wang,
    2024).

    Only epochs that learn from all rows may be chosen: those of the warm-up, and those from
    `whole_from` on, from where patience counts. So where few epochs are best the warm-up is all
    there is.

    Examples: >>> lessons = Curriculum(start=0.5, warm_up=2, epochs=10) >>>
    [round(lessons.share(epoch), 2) for epoch in (1, 3, 8, 13, 50)], lessons.whole_from ([1.0, 0.5,
    0.75, 1.0, 1.0], 13) >>> lessons.chosen(torch.tensor([0.3, 2.0, 5.0, 7.0]), torch.zeros(4),
    torch.tensor([0, 0, 1, 1]), 3) tensor([0, 2])
    """

    start: float = 0.5
    warm_up: int = 5
    epochs: int = 50
    pace: str = "loss"
    memory: float = 0.5

    def __post_init__(self) -> None:
        checks.choice("pace", self.pace, PACES)
        if not 0 < self.start <= 1:
            raise InputError(f"start={self.start} must be above 0 and at most 1.")
        for name in ("warm_up", "epochs"):
            if checks.whole_number(name, getattr(self, name)) < 1:
                raise InputError(
                    f"{name}={getattr(self, name)} of a curriculum must be at least 1."
                )
        if not 0 <= self.memory < 1:
            raise InputError(f"memory={self.memory} must be from 0 to below 1.")

    @classmethod
    def within(cls, epochs: int, pace: str = "loss") -> Curriculum:
        """A curriculum for that many epochs: a fifth is warm-up, and the share grows over half."""
        return cls(warm_up=max(1, epochs // 5), epochs=max(1, epochs // 2), pace=pace)

    @property
    def whole_from(self) -> int:
        """The first epoch from which on every row is learned from."""
        return 1 if self.start == 1 else self.warm_up + self.epochs + 1

    def share(self, epoch: int) -> float:
        """The share of every class that an epoch (the first is 1) learns from."""
        if epoch <= self.warm_up:
            return 1.0
        return min(self.start + (1 - self.start) * (epoch - self.warm_up - 1) / self.epochs, 1.0)

    def is_complete(self, epoch: int) -> bool:
        """Whether an epoch learns from all rows."""
        return self.share(epoch) == 1

    def choose(
        self, epoch: int, loss: Tensor, labels: Tensor, memory: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Positions of the rows to learn from, and the moving average of their losses."""
        average = loss if memory is None else self.memory * memory + (1 - self.memory) * loss
        if epoch <= self.warm_up:
            return torch.arange(len(loss), device=loss.device), average
        fallen = torch.zeros_like(average) if memory is None else memory - average
        return self.chosen(average, fallen, labels, epoch), average

    def chosen(self, average: Tensor, fallen: Tensor, label: Tensor, epoch: int) -> Tensor:
        """Positions of the rows that an epoch learns from, in order; random with "drop"."""
        ease = -average
        # the k largest of score + Gumbel noise are a draw of k without replacement
        if self.pace == "drop":
            ease = fallen - torch.empty_like(fallen).exponential_().log()
        order = torch.argsort(ease, descending=True, stable=True)
        # class after class, the easiest first in each
        order = order[torch.argsort(label[order], stable=True)]
        size = torch.bincount(label)
        place = (
            torch.arange(len(order), device=order.device) - (size.cumsum(0) - size)[label[order]]
        )
        most = torch.tensor(
            [math.ceil(self.share(epoch) * n) for n in size.tolist()], device=order.device
        )
        return order[place < most[label[order]]].sort().values


class CurriculumRun(Run):
    """A training whose epochs learn from the rows that a curriculum selects."""

    def __init__(self, curriculum: Curriculum, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.curriculum = curriculum
        self.first_complete = curriculum.whole_from
        self.memory: Tensor | None = None  # moving average of the losses

    def is_eligible(self, epoch: int) -> bool:
        return self.curriculum.is_complete(epoch)

    def select_rows(self, epoch: int) -> Tensor:
        if epoch >= self.first_complete:
            return self.train_rows
        labels = self.labels[self.train_rows]
        positions, self.memory = self.curriculum.choose(
            epoch, self.training_losses(), labels, self.memory
        )
        return self.train_rows[positions]

    def training_losses(self) -> Tensor:
        """Compute the losses of the training rows without dropout.

        Where labels are inputs, each half of the rows is evaluated with its own labels hidden.
        """
        losses = torch.zeros(len(self.train_rows), device=self.device)
        parts = 2 if self.training.hide_labels else 1
        for start in range(parts):
            rows = self.train_rows[start::parts]
            task = self.task.drawn(rows, 1.0)[0] if parts == 2 else self.task
            logits = evaluate(self.model, task, rows).float()
            losses[start::parts] = self.training.loss(logits, self.labels[rows])
        return losses


def with_curriculum(training: Training, curriculum: Curriculum) -> Training:
    """The same training with the rows of a curriculum."""
    return replace(training, run=partial(CurriculumRun, curriculum))
