"""Competing methods that are terms of the loss.

What a model learns shall look the same, or err the same, whatever the time.

* `MomentDiscrepancy` ("cmd", the first half of SR-GNN): what the last layer reads of the rows
trained on and of the rows to predict has the same moments. It needs no labels of the latter, and a
step costs as much again. * `RiskVariance` ("vrex"; EERM with past periods as its environments): all
periods have the same mean loss. It is nearly free.

Adversarial alignment (DANN) and that of covariances (CORAL) are left out: the first two moments of
"cmd" are what CORAL matches, and a discriminator needs a schedule of its own for what five moments
do without one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from impact_gnn.nn import Step

MOMENTS = 5


def cmd(a: Tensor, b: Tensor, moments: int = MOMENTS) -> Tensor:
    """Central moment discrepancy of two samples.

    |E[a] − E[b]| + Σ_{j ≥ 2} |c_j(a) − c_j(b)|, column by column.

    c_j = E[(a − E[a])^j]. Linear in the rows.

    Examples: >>> a = torch.tensor([[0.0, 0.0], [1.0, 1.0]]) >>> float(cmd(a, a)), float(cmd(a, a +
    torch.tensor([3.0, 4.0]))) (0.0, 5.0)
    """
    means = a.mean(0), b.mean(0)
    total = torch.linalg.vector_norm(means[0] - means[1])
    a, b = a - means[0], b - means[1]
    for j in range(2, moments + 1):
        total = total + torch.linalg.vector_norm((a**j).mean(0) - (b**j).mean(0))
    return total


@dataclass(frozen=True, eq=False)
class MomentDiscrepancy:
    """weight · CMD₅ between the last layer's inputs of a step and of as many rows of `reference`.

    It is bounded by tanh first, so that high moments stay small.
    """

    reference: np.ndarray
    weight: float = 1.0

    def __call__(self, step: Step) -> Tensor:
        _, there = step.again(step.drawn(self.reference))
        return self.weight * cmd(torch.tanh(step.hidden.float()), torch.tanh(there.float()))


@dataclass(frozen=True, eq=False)
class RiskVariance:
    """weight · Var_t L_t, L_t the mean loss of the rows of period t in a step.

    Zero where there is one period only.
    """

    period: np.ndarray
    weight: float = 1.0

    def __call__(self, step: Step) -> Tensor:
        period = torch.from_numpy(self.period)[step.rows.cpu()].to(step.rows.device)
        there, place = torch.unique(period, return_inverse=True)
        zero = torch.zeros(len(there), dtype=step.losses.dtype, device=step.losses.device)
        total = zero.index_add(0, place, step.weight * step.losses)
        weight = zero.index_add(0, place, step.weight.to(zero.dtype))
        risks = (total / weight.clamp(min=1e-12))[weight > 0]
        return self.weight * risks.var(unbiased=False)
