"""Losses per row, and terms that look at more than single rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

# Below it torch's softmax is not vectorised on CPUs: its `cross_entropy` takes three times as long.
FEW_CLASSES = 16


class Loss(Protocol):
    """The loss of each row [n] from logits [n, C] and targets, codes [n] or soft [n, C]."""

    def __call__(self, logits: Tensor, target: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class CrossEntropy:
    """−Σ_c t_c log p_c.

    Examples:
        >>> round(float(CrossEntropy()(torch.zeros(1, 4), torch.tensor([2]))), 4)
        1.3863
    """

    def __call__(self, logits: Tensor, target: Tensor) -> Tensor:
        if target.ndim == 1 and logits.shape[1] < FEW_CLASSES:
            chosen = logits.gather(1, target[:, None])[:, 0]
            return torch.logsumexp(logits, dim=1) - chosen
        return cross_entropy(logits, target, reduction="none")


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
