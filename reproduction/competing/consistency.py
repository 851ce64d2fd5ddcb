"""RpHGNN's consistency loss: several views of a row should have the same prediction."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softmax

from impact_gnn.estimators.network import NetworkHead
from impact_gnn.nn import Lesson, Step, Task


@dataclass(frozen=True, eq=False)
class Consistency:
    """Several views of the same rows (other units dropped out) should say the same.

    Weight · mean ‖p_view − p̄‖².

    p̄ is the mean over the views, sharpened (p̄^(1/T), normalised) and not learned from. It needs
    no labels, so it looks at as many of the rows `others` as the step has.
    """

    others: np.ndarray
    views: int = 3
    weight: float = 0.6
    temperature: float = 0.5

    def __call__(self, step: Step) -> Tensor:
        rows = torch.cat([step.rows, step.drawn(self.others)]) if len(self.others) else step.rows
        views = torch.stack([softmax(step.again(rows)[0].float(), 1) for _ in range(self.views)])
        middle = views.detach().mean(0) ** (1 / self.temperature)
        middle = middle / middle.sum(1, keepdim=True).clamp(min=1e-12)
        return self.weight * (views - middle).square().sum(2).mean()


class ConsistentHead(NetworkHead):
    """A network that is trained with `Consistency` of the rows that are not trained on."""

    def fit(self, task: Task, lesson: Lesson, rounds: int | None = None) -> None:
        # Rows that are neither trained on nor validated.
        others = np.setdiff1d(np.arange(task.num_rows), lesson.split.all)
        self.options = replace(self.options, terms=(*self.options.terms, Consistency(others)))
        super().fit(task, lesson, rounds)
