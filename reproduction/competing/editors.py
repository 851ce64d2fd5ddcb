"""EERM in its own form.

K editors change the graph so that a model's risks differ, the model learns to err the same.

The model minimises Var_k L_k + β · mean_k L_k over the risks L_k on the K edited graphs. The
editors are taught by REINFORCE: what they drew becomes more probable with the variance that came of
it. The paper's editors hold K·n² logits, one for every pair of nodes; these hold one for every edge
that may be dropped, and for `NEW` edges a node that may be added: half of them to nodes at two
steps, half to any node. In every graph each node has `FLIPS` edits.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from impact_gnn.checks import InputError
from impact_gnn.engines.operator import Operator
from impact_gnn.graph.csr import CSR, build_csr
from impact_gnn.nn import Propagation, Step

EDITORS = 3
NEW = 4  # edges a node that may be added
FLIPS = 1  # edits a node
LEARNING_RATE = 0.01  # of the editors


class Editable(Propagation):
    """A propagation whose edges may be edited for a while.

    `with propagation.edited(weight): ...`.
    """

    def __init__(self, operator: Operator, seed: int = 0) -> None:
        super().__init__(operator)
        self.seed = seed
        self._edited: Propagation | None = None

    @cached_property
    def candidates(self) -> CSR:
        """The edges, and those that may be added, of weight 0."""
        csr, rng = self.operator.csr, np.random.default_rng(self.seed)
        target = np.repeat(np.arange(csr.num_targets), NEW)
        source = rng.integers(0, csr.num_sources, len(target))
        near = _step(csr, _step(csr, target, rng), rng)
        near_by = (np.arange(len(target)) % 2 == 0) & (near >= 0) & (near != target)
        source = np.where(near_by, near, source)
        own = np.repeat(np.arange(csr.num_targets), np.diff(csr.indptr))
        own_weight = np.ones(csr.num_edges, np.float32) if csr.weight is None else csr.weight
        weight = np.concatenate([own_weight, np.zeros(len(target), own_weight.dtype)])
        ends = np.concatenate([csr.indices, source]), np.concatenate([own, target])
        return build_csr(*ends, csr.num_sources, csr.num_targets, weight)

    def edges(self, device: torch.device) -> tuple[Tensor, Tensor]:
        raise InputError("'eerm' edits messages, which attention does not use; use gcn or sage.")

    @contextmanager
    def edited(self, weight: np.ndarray) -> Iterator[None]:
        """For a while every candidate edge has another weight."""
        csr = replace(self.candidates, weight=weight)
        self._edited, self.version = Propagation(replace(self.operator, csr=csr)), self.version + 1
        try:
            yield
        finally:
            self._edited, self.version = None, self.version + 1

    def __call__(self, x: Tensor) -> Tensor:
        return super().__call__(x) if self._edited is None else self._edited(x)


def _step(csr: CSR, nodes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A neighbour of each node at random; −1 where there is none, or no node."""
    degree = np.where(nodes < 0, 0, csr.indptr[nodes + 1] - csr.indptr[nodes])
    place = csr.indptr[nodes] + (rng.random(len(nodes)) * degree).astype(np.int64)
    return np.where(
        degree > 0, csr.indices[np.minimum(place, csr.num_edges - 1)] if csr.num_edges else -1, -1
    )


@dataclass(eq=False)
class Editor:
    """One editor: logits of the candidate edges of a graph, by target, and what teaches it."""

    candidates: CSR
    logits: Tensor = field(init=False)
    row: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.row = np.repeat(
            np.arange(self.candidates.num_targets), np.diff(self.candidates.indptr)
        )
        self.logits = torch.zeros(self.candidates.num_edges, requires_grad=True)
        self.optimizer = torch.optim.Adam([self.logits], lr=LEARNING_RATE)

    def draw(self) -> tuple[np.ndarray, Tensor]:
        """Weights of the candidates with `FLIPS` edits of every node, and their log-probability.

        Edits are drawn from the softmax over a node's candidates, without replacement, by Gumbel's
        trick.
        """
        # The FLIPS largest of logit + noise in every row: edges are grouped by row, and sorted
        # within it.
        noisy = self.logits.detach().numpy() - np.log(
            -np.log(torch.rand(len(self.logits)).numpy().clip(1e-12, 1 - 1e-7))
        )
        order, borders = np.lexsort((-noisy, self.row)), self.candidates.indptr
        first = borders[:-1, None] + np.arange(FLIPS)
        picked = order[first[first < borders[1:, None]]]
        weight = np.array(self.candidates.weight)
        weight[picked] = np.where(weight[picked] > 0, 0, 1)
        return weight, self.log_probability()[torch.from_numpy(picked)].mean()

    def log_probability(self) -> Tensor:
        row = torch.from_numpy(self.row)
        total = torch.zeros(self.candidates.num_targets).index_add(0, row, self.logits.exp())
        return self.logits - total.log()[row]

    def learn(self, log_probability: Tensor, reward: Tensor) -> None:
        """One step of REINFORCE."""
        self.optimizer.zero_grad()
        (-reward * log_probability).backward()
        self.optimizer.step()


@dataclass(frozen=True, eq=False)
class RiskEditors:
    """Var_k L_k + β · mean_k L_k in place of the mean loss of a step, for models on a whole graph.

    The editors learn in every step, from the same graphs as the model.
    """

    propagation: Editable
    editors: tuple[Editor, ...]
    beta: float = 1.0

    @classmethod
    def of(cls, propagation: Editable) -> RiskEditors:
        """The editors of the graph that a task is made with, all of them indifferent."""
        return cls(propagation, tuple(Editor(propagation.candidates) for _ in range(EDITORS)))

    def __call__(self, step: Step) -> Tensor:
        risks, drawn, whole = [], [], step.weight.sum().clamp(min=1e-12)
        for editor in self.editors:
            weight, log_probability = editor.draw()
            with self.propagation.edited(weight):
                logits, _ = step.again(step.rows)
            each = cross_entropy(logits.float(), step.labels, reduction="none")
            risks.append((step.weight * each).sum() / whole)
            drawn.append(log_probability)
        variance, mean = torch.stack(risks).var(unbiased=False), torch.stack(risks).mean()
        for editor, log_probability in zip(self.editors, drawn, strict=True):
            editor.learn(log_probability, variance.detach())
        return variance + self.beta * mean - (step.weight * step.losses).sum() / whole
