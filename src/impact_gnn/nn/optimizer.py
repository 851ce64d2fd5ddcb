"""Adam without `torch.optim.Optimizer`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim.adam import adam


class Adam:
    """torch's Adam, with one kernel for all weights: a small network has many of few entries.

    The class of torch imports torch's compiler on first use, which takes longer than all trainings
    on a small graph. Its results are the same to the last bit.

    Args:
        parameters: The weights to change.
        lr: The learning rate; `param_groups` holds it, for schedules.
        weight_decay: The weight decay.
    """

    def __init__(
        self, parameters: Iterable[Tensor], *, lr: float, weight_decay: float = 0.0
    ) -> None:
        self.parameters = list(parameters)
        self.param_groups: list[dict[str, Any]] = [{"lr": lr}]
        self.weight_decay = weight_decay
        # By parameter: running means of gradients and of their squares, and the number of steps.
        self.means = [torch.zeros_like(weight) for weight in self.parameters]
        self.squares = [torch.zeros_like(weight) for weight in self.parameters]
        self.steps = [torch.zeros((), device=weight.device) for weight in self.parameters]

    def zero_grad(self, *, set_to_none: bool = True) -> None:
        """Forget the gradients."""
        for weight in self.parameters:
            weight.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Change every weight that has a gradient."""
        used = [k for k, weight in enumerate(self.parameters) if weight.grad is not None]
        gradients = [weight.grad for weight in self.parameters if weight.grad is not None]
        adam(
            [self.parameters[k] for k in used],
            gradients,
            [self.means[k] for k in used],
            [self.squares[k] for k in used],
            max_exp_avg_sqs=[],
            state_steps=[self.steps[k] for k in used],
            fused=True,
            amsgrad=False,
            beta1=0.9,
            beta2=0.999,
            lr=self.param_groups[0]["lr"],
            weight_decay=self.weight_decay,
            eps=1e-8,
            maximize=False,
        )
