"""Losses and learning rates of competing methods: RevGAT's loss, distillation, schedules."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, log_softmax, softmax

from impact_gnn.checks import InputError
from impact_gnn.nn import Run, Step


@dataclass(frozen=True)
class LogCrossEntropy:
    """RevGAT's log(ε + ce) − log ε: wrong labels pull less, as its slope fades with the loss."""

    epsilon: float = 1 - math.log(2)

    def __post_init__(self) -> None:
        if not self.epsilon > 0:
            raise InputError(f"epsilon={self.epsilon} must be above 0.")

    def __call__(self, logits: Tensor, target: Tensor) -> Tensor:
        loss = cross_entropy(logits, target, reduction="none")
        return torch.log(self.epsilon + loss) - math.log(self.epsilon)


@dataclass(frozen=True, eq=False)
class Distillation:
    """weight · T² · mean KL(teacher^(1/T) ‖ model^(1/T)), over the step's rows and some `others`.

    `teacher` holds probabilities of all rows [N, C]. As many of `others` are drawn as the step has.
    """

    teacher: np.ndarray
    others: np.ndarray
    weight: float = 1.0
    temperature: float = 1.0

    def __call__(self, step: Step) -> Tensor:
        rows = step.rows
        logits = step.logits
        if len(self.others):
            more = step.drawn(self.others)
            rows = torch.cat([rows, more])
            logits = torch.cat([logits, step.again(more)[0]])
        teacher = torch.from_numpy(self.teacher)[rows.cpu()].to(rows.device)
        target = softmax(teacher.clamp(min=1e-8).log() / self.temperature, 1)
        model_log = log_softmax(logits.float() / self.temperature, 1)
        divergence = target * (target.clamp(min=1e-8).log() - model_log)
        return self.weight * self.temperature**2 * divergence.sum(1).mean()


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


class RunByLoss(Run):
    """A training whose best epoch has the least loss on the validation rows."""

    def criterion(self, logits: Tensor, truth: Tensor, score: float) -> float:
        return -float(self.training.loss(logits.float(), truth).mean())
