"""Many small classifiers trained at once: one batched product for all of them instead of a Python loop.

The problems of a batch share nothing but their shapes: the sum of their losses splits into its terms, and Adam works
element by element, so each is trained as it would be alone. Matrices are [batch, columns, rows]: softmax then runs
along the long axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from impact_gnn.experiments.setting import HIDDEN, Options

PAD = -100
"""Label of a row that is there only because another problem of the batch is longer."""


def classify(
    train: Sequence[np.ndarray],
    label: Sequence[np.ndarray],
    test: Sequence[np.ndarray],
    seed: Sequence[int],
    *,
    num_labels: int,
    options: Options,
    sigmoid: bool = False,
) -> list[np.ndarray]:
    """Trains an MLP of one hidden layer on every problem; returns the logits [m_b, num_labels] of every `test`.

    Args:
        train: Features of the rows to learn from, [n_b, f] for problem b.
        label: Their labels.
        test: Features of the rows to predict, [m_b, f].
        seed: Seed of the initial weights of every problem: those with the same seed begin alike.
        num_labels: Number of classes.
        options: Epochs, learning rate, weight decay.
        sigmoid: Whether logits pass a sigmoid before the cross-entropy.
    """
    inputs, counts = _padded(train)
    target = torch.full((len(train), inputs.shape[2]), PAD)
    for b, known in enumerate(label):
        target[b, : len(known)] = torch.from_numpy(known)
    share = 1.0 / counts
    sizes = inputs.shape[1], HIDDEN, num_labels
    weights = [torch.stack(part).requires_grad_() for part in zip(*(initial(s, sizes) for s in seed), strict=True)]
    adam = torch.optim.Adam(weights, lr=options.lr, weight_decay=options.weight_decay, fused=True)
    for _ in range(options.epochs):
        logits = _forward(inputs, weights)
        loss = cross_entropy(logits.sigmoid() if sigmoid else logits, target, ignore_index=PAD, reduction="none")
        adam.zero_grad()
        (loss.sum(1) * share).sum().backward()
        adam.step()
    with torch.no_grad():
        found = _forward(_padded(test)[0], weights).mT.numpy()
    return [found[b, : len(rows)] for b, rows in enumerate(test)]


def initial(seed: int, sizes: tuple[int, int, int]) -> list[Tensor]:
    """Weights and biases as `nn.Linear` draws them, uniform within ±1/√(columns read): [out, in] and [out, 1]."""
    generator = torch.Generator().manual_seed(seed)
    out = []
    for width_in, width_out in pairwise(sizes):
        for width in (width_in, 1):
            out.append((torch.rand(width_out, width, generator=generator) * 2 - 1) / width_in**0.5)
    return out


def _forward(inputs: Tensor, weights: Sequence[Tensor]) -> Tensor:
    first, first_bias, second, second_bias = weights
    return torch.baddbmm(second_bias, second, torch.relu(torch.baddbmm(first_bias, first, inputs)))


def _padded(rows: Sequence[np.ndarray]) -> tuple[Tensor, Tensor]:
    """Matrices [n_b, f] as one tensor [batch, f, longest], zeros at the end, and their lengths."""
    counts = [len(part) for part in rows]
    out = torch.zeros(len(rows), rows[0].shape[1], max(counts))
    for b, part in enumerate(rows):
        out[b, :, : len(part)] = torch.from_numpy(np.ascontiguousarray(part.T))
    return out, torch.tensor(counts)
