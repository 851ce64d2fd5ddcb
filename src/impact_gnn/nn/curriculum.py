"""Easy rows first: which rows count in which epoch, by their loss."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from impact_gnn import checks
from impact_gnn.checks import InputError

PACES = ("linear", "root", "geometric")


@dataclass(frozen=True)
class Curriculum:
    """Loss-aware curriculum: the easiest share of a step's rows counts, and the share grows until all do.

    With p = min((epoch − 1) / epochs, 1) and s = `start` the share is s + (1 − s)·p ("linear"),
    √(s² + (1 − s²)·p) ("root": hard rows come soon) or s^(1 − p) ("geometric": they come late). Rows are ranked by
    the loss that the model has on them in this very step, so nothing is kept between steps, and no row is looked at
    that the step would not have trained on anyway.

    In the spirit of Wong, Yang, Fu, Yao: Loss-aware Curriculum Learning for Heterogeneous Graph Neural Networks,
    2024, and of LDHGNN (Wang, 2024), which ranks by how much the loss fell rather than by the loss.

    Harder rows count `rest` until their turn comes; after `epochs` epochs every row counts in full.

    Examples:
        >>> lessons = Curriculum(start=0.5, epochs=10)
        >>> [round(lessons.share(epoch), 2) for epoch in (1, 6, 11, 50)]
        [0.5, 0.75, 1.0, 1.0]
        >>> lessons.weights(torch.tensor([0.3, 2.0, 0.1, 0.7]), epoch=1)
        tensor([1., 0., 1., 0.])
    """

    start: float = 0.5
    epochs: int = 50
    pace: str = "linear"
    rest: float = 0.0

    def __post_init__(self) -> None:
        checks.choice("pace", self.pace, PACES)
        if not 0 < self.start <= 1:
            raise InputError(f"start={self.start} must be above 0 and at most 1.")
        if checks.whole_number("epochs", self.epochs) < 1:
            raise InputError(f"epochs={self.epochs} of a curriculum must be at least 1.")
        if not 0 <= self.rest <= 1:
            raise InputError(f"rest={self.rest} must be from 0 to 1.")

    def share(self, epoch: int) -> float:
        """The share of rows that counts in full in an epoch (the first is 1)."""
        done = min((epoch - 1) / self.epochs, 1.0)
        if self.pace == "root":
            return math.sqrt(self.start**2 + (1 - self.start**2) * done)
        return self.start ** (1 - done) if self.pace == "geometric" else self.start + (1 - self.start) * done

    def weights(self, loss: Tensor, epoch: int) -> Tensor:
        """What each row of a step counts, given its loss [n]: 1 for the easiest share, `rest` for the others."""
        count = math.ceil(self.share(epoch) * len(loss))
        # Weights carry no gradient: the model cannot make a row easier by how it is weighted.
        weight = torch.full_like(loss, self.rest, requires_grad=False)
        weight[torch.argsort(loss.detach(), stable=True)[:count]] = 1
        return weight
