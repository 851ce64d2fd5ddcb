"""Rivals that are terms of the loss: what a model learns shall look the same, or err the same, whatever the time.

* `MomentDiscrepancy` ("cmd", the first half of SR-GNN): what the last layer reads of the rows
  trained on and of the rows to predict has the same moments. It needs no labels of the latter, and
  a step costs as much again.
* `RiskVariance` ("vrex"; EERM with past periods as its environments): all periods have the same
  mean loss. It is nearly free.

Adversarial alignment (DANN) and that of covariances (CORAL) are left out: the first two moments of
"cmd" are what CORAL matches, and a discriminator needs a schedule of its own for what five moments
do without one.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from impact_gnn.checks import InputError
from impact_gnn.nn.editors import Editable, RiskEditors
from impact_gnn.nn.loss import Step, Term
from impact_gnn.nn.tasks import GraphTask, Task

MOMENTS = 5
TERMS = ("cmd", "vrex", "eerm")
"""Method parts that are terms."""


def terms_of(
    names: Collection[str], task: Task, period: np.ndarray, reference: np.ndarray
) -> tuple[Term, ...]:
    """The terms called so, for a task.

    Args:
        names: Some of `TERMS`.
        task: What is trained on.
        period: The period of every row of the task.
        reference: Rows whose distribution the model shall match: those to predict.
    """
    terms: list[Term] = []
    if "cmd" in names and len(reference):
        terms.append(MomentDiscrepancy(np.asarray(reference)))
    if "vrex" in names:
        terms.append(RiskVariance(np.asarray(period, np.int64)))
    if "eerm" in names:
        if not isinstance(task, GraphTask) or not isinstance(task.propagation, Editable):
            raise InputError(
                "'eerm' edits the graph, which models on hops do not see; use gcn or sage, or 'vrex'."
            )
        terms.append(RiskEditors.of(task.propagation))
    return tuple(terms)


def cmd(a: Tensor, b: Tensor, moments: int = MOMENTS) -> Tensor:
    """Central moment discrepancy of two samples: |E[a] − E[b]| + Σ_{j ≥ 2} |c_j(a) − c_j(b)|, column by column.

    c_j = E[(a − E[a])^j]. Linear in the rows.

    Examples:
        >>> a = torch.tensor([[0.0, 0.0], [1.0, 1.0]])
        >>> float(cmd(a, a)), float(cmd(a, a + torch.tensor([3.0, 4.0])))
        (0.0, 5.0)
    """
    means = a.mean(0), b.mean(0)
    total = torch.linalg.vector_norm(means[0] - means[1])
    a, b = a - means[0], b - means[1]
    for j in range(2, moments + 1):
        total = total + torch.linalg.vector_norm((a**j).mean(0) - (b**j).mean(0))
    return total


@dataclass(frozen=True, eq=False)
class MomentDiscrepancy:
    """weight · CMD₅ between the rows of a step and as many of `reference`, of what the last layer reads.

    It is bounded by tanh first, so that high moments stay small.
    """

    reference: np.ndarray
    weight: float = 1.0

    def __call__(self, step: Step) -> Tensor:
        _, there = step.again(step.drawn(self.reference))
        return self.weight * cmd(torch.tanh(step.hidden.float()), torch.tanh(there.float()))


@dataclass(frozen=True, eq=False)
class RiskVariance:
    """weight · Var_t L_t, L_t the mean loss of the rows of period t in a step; zero where there is one period only."""

    period: np.ndarray
    weight: float = 1.0

    def __call__(self, step: Step) -> Tensor:
        period = torch.from_numpy(self.period)[step.rows.cpu()].to(step.rows.device)
        there, place = torch.unique(period, return_inverse=True)
        zero = torch.zeros(len(there), dtype=step.each.dtype, device=step.each.device)
        total = zero.index_add(0, place, step.weight * step.each)
        weight = zero.index_add(0, place, step.weight.to(zero.dtype))
        risks = (total / weight.clamp(min=1e-12))[weight > 0]
        return self.weight * risks.var(unbiased=False)
