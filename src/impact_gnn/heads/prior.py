"""The classes' shares and nothing else: what label propagation starts from, and the least that can be known."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from impact_gnn.heads.base import Head
from impact_gnn.nn import Split, Task


class PriorHead(Head):
    """Every row gets the (weighted) shares of the classes among the rows learned from."""

    share: np.ndarray

    def fit(
        self, task: Task, label: np.ndarray, split: Split, *, weight: np.ndarray | None = None,
        rounds: int | None = None,
    ) -> None:  # fmt: skip
        counted = None if weight is None else weight[split.train]
        count = np.bincount(label[split.train], counted, self.shape.num_labels)
        self.share = (count / count.sum()).astype(np.float32)
        self.rounds = 1
        if len(split.valid):
            self.valid_score = self.options.scoring.score(self.honest(task, split.valid), label[split.valid])

    def probabilities(self, task: Task, rows: np.ndarray) -> np.ndarray:
        return np.tile(self.share, (len(rows), 1))

    def arrays(self) -> dict[str, np.ndarray]:
        return {"share": self.share}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        self.share = arrays["share"]
