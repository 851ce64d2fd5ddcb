"""Losses per row, terms that look at more than single rows, optimizers and schedules."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from impact_gnn.checks import InputError


class Loss(Protocol):
    """The loss of each row [n] from logits [n, C] and targets, codes [n] or soft [n, C]."""

    def __call__(self, logits: Tensor, target: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class CrossEntropy:
    """−Σ_c t_c log p_c; with `smoothing` s the target t is (1 − s)·t + s/C.

    Examples:
        >>> loss = CrossEntropy()(torch.zeros(1, 4), torch.tensor([2]))
        >>> round(float(loss), 4) == round(math.log(4), 4)
        True
    """

    smoothing: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.smoothing < 1:
            raise InputError(f"smoothing={self.smoothing} must be from 0 to below 1.")

    def __call__(self, logits: Tensor, target: Tensor) -> Tensor:
        return cross_entropy(logits, target, reduction="none", label_smoothing=self.smoothing)


@dataclass(frozen=True, eq=False)
class Step:
    """One training step, as the argument of a term.

    `rows` are the training rows, with their `logits` [n, C], the inputs of the model's last linear
    layer (`hidden` [n, h]), `labels`, `losses` and `weight`; `again(rows)` computes logits and
    hidden of any rows of the task, in training mode and with a gradient.
    """

    rows: Tensor
    logits: Tensor
    hidden: Tensor
    labels: Tensor
    losses: Tensor
    weight: Tensor
    epoch: int
    again: Callable[[Tensor], tuple[Tensor, Tensor]]

    def drawn(self, rows: np.ndarray) -> Tensor:
        """Draw as many of `rows` as the step has."""
        positions = torch.randint(len(rows), (len(self.rows),))
        return torch.from_numpy(rows)[positions].to(self.rows.device)


class Term(Protocol):
    """A number that is added to the mean loss of a step; implemented as a frozen dataclass."""

    def __call__(self, step: Step) -> Tensor: ...


OPTIMIZERS: dict[str, type[torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "rmsprop": torch.optim.RMSprop,
    "sgd": torch.optim.SGD,
}


@dataclass(frozen=True)
class Schedule:
    """The learning rate of an epoch (the first is 1) as a share of the full one.

    min(epoch / warm_up, 1) · decay^(epoch − 1), and with `period` also (1 + cos(π·(epoch − 1) /
    period)) / 2, which falls to zero.

    Examples:
        >>> [round(Schedule(warm_up=2, decay=0.5)(epoch), 3) for epoch in (1, 2, 3)]
        [0.5, 0.5, 0.25]
    """

    warm_up: int = 0
    decay: float = 1.0
    period: int | None = None

    def __post_init__(self) -> None:
        is_valid = self.warm_up >= 0 and 0 < self.decay <= 1
        if not is_valid or (self.period is not None and self.period < 1):
            raise InputError(
                f"warm_up={self.warm_up}, decay={self.decay}, "
                f"period={self.period} is not a schedule; "
                f"warm_up is 0 or more, decay in (0, 1], period 1 or more."
            )

    def __call__(self, epoch: int) -> float:
        rate = self.decay ** (epoch - 1)
        if self.warm_up:
            rate = min(epoch / self.warm_up, 1.0) * rate
        if self.period is not None:
            rate *= (1 + math.cos(math.pi * min((epoch - 1) / self.period, 1.0))) / 2
        return float(rate)
