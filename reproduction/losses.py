"""Losses of competing methods: RevGAT's logarithm of the cross-entropy, and distillation."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, log_softmax, softmax

from impact_gnn.checks import InputError
from impact_gnn.nn import Step


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
