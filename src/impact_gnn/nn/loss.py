"""What a step of training costs: a loss of every row, and terms that look at more than single rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, log_softmax, softmax

from impact_gnn.checks import InputError


class Loss(Protocol):
    """What each row costs, [n], given its logits [n, C] and its label: a code [n] or probabilities [n, C]."""

    def __call__(self, logits: Tensor, target: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class CrossEntropy:
    """−Σ_c t_c log p_c; with `smoothing` s the target t is (1 − s)·t + s/C.

    Examples:
        >>> round(float(CrossEntropy()(torch.zeros(1, 4), torch.tensor([2]))), 4) == round(math.log(4), 4)
        True
    """

    smoothing: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.smoothing < 1:
            raise InputError(f"smoothing={self.smoothing} must be from 0 to below 1.")

    def __call__(self, logits: Tensor, target: Tensor) -> Tensor:
        return cross_entropy(logits, target, reduction="none", label_smoothing=self.smoothing)


@dataclass(frozen=True)
class LogCrossEntropy:
    """RevGAT's log(ε + ce) − log ε: its slope fades where the loss is large, so that wrong labels pull less."""

    epsilon: float = 1 - math.log(2)

    def __post_init__(self) -> None:
        if not self.epsilon > 0:
            raise InputError(f"epsilon={self.epsilon} must be above 0.")

    def __call__(self, logits: Tensor, target: Tensor) -> Tensor:
        return torch.log(self.epsilon + cross_entropy(logits, target, reduction="none")) - math.log(
            self.epsilon
        )


@dataclass(frozen=True, eq=False)
class Step:
    """One step of training as a term sees it.

    `rows` are the rows trained on, with their `logits` [n, C], what the model's last linear layer
    read (`hidden` [n, h]), `labels`, losses (`each`) and `weight`; `again(rows)` gives logits and
    hidden of any rows of the task, in training mode and with a gradient.
    """

    rows: Tensor
    logits: Tensor
    hidden: Tensor
    labels: Tensor
    each: Tensor
    weight: Tensor
    epoch: int
    again: Callable[[Tensor], tuple[Tensor, Tensor]]

    def drawn(self, rows: np.ndarray) -> Tensor:
        """As many of `rows` as the step has, at random."""
        picked = torch.randint(len(rows), (len(self.rows),))
        return torch.from_numpy(rows)[picked].to(self.rows.device)


class Term(Protocol):
    """A number that is added to the mean loss of a step; a frozen dataclass, whose fields tell one from another."""

    def __call__(self, step: Step) -> Tensor: ...


@dataclass(frozen=True, eq=False)
class Distillation:
    """weight · T² · mean KL(teacher^(1/T) ‖ model^(1/T)), over the step's rows and as many of `others`.

    `teacher` holds probabilities of all rows [N, C].
    """

    teacher: np.ndarray
    others: np.ndarray
    weight: float = 1.0
    temperature: float = 1.0

    def __call__(self, step: Step) -> Tensor:
        rows, logits = step.rows, step.logits
        if len(self.others):
            more = step.drawn(self.others)
            rows, logits = torch.cat([rows, more]), torch.cat([logits, step.again(more)[0]])
        given = torch.from_numpy(self.teacher)[rows.cpu()].to(rows.device).clamp(min=1e-8).log()
        taught = softmax(given / self.temperature, 1)
        apart = taught * (
            taught.clamp(min=1e-8).log() - log_softmax(logits.float() / self.temperature, 1)
        )
        return self.weight * self.temperature**2 * apart.sum(1).mean()


OPTIMIZERS: dict[str, type[torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "rmsprop": torch.optim.RMSprop,
    "sgd": torch.optim.SGD,
}


@dataclass(frozen=True)
class Schedule:
    """The learning rate of an epoch (the first is 1) as a part of the full one.

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
        if (
            self.warm_up < 0
            or not 0 < self.decay <= 1
            or (self.period is not None and self.period < 1)
        ):
            problem = f"warm_up={self.warm_up}, decay={self.decay}, period={self.period}"
            raise InputError(
                f"{problem} is no schedule; warm_up is 0 or more, decay in (0, 1], period 1 or more."
            )

    def __call__(self, epoch: int) -> float:
        warm = min(epoch / self.warm_up, 1.0) if self.warm_up else 1.0
        fall = (
            1.0
            if self.period is None
            else (1 + math.cos(math.pi * min((epoch - 1) / self.period, 1.0))) / 2
        )
        return float(warm * self.decay ** (epoch - 1) * fall)
