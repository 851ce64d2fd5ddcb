"""The 2-layer GCN: all columns are trained together on one graph, so that they share its edges and caches.

X ← σ(align(M X) W + b), M a row mean. The first message does not change and is made once. Columns share the initial
weights and the units that dropout leaves out, so that differences between them are not differences of luck.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from impact_gnn.experiments.columns import Chain, Column, alignment, label_features
from impact_gnn.experiments.sample import Sample
from impact_gnn.experiments.segments import Product, Segments
from impact_gnn.experiments.setting import HIDDEN, Options, Protocol
from impact_gnn.propagation.hops import operator


def predict(
    samples: Sequence[Sample], columns: Sequence[Column], protocol: Protocol, options: Options
) -> dict[str, list[np.ndarray]]:
    """For every column the predicted labels of the nodes `test` of every graph."""
    found: dict[str, list[np.ndarray]] = {column.name: [] for column in columns}
    for sample in samples:
        logits = train(Networks(sample, columns, protocol), sample, protocol, options)
        for column, values in zip(columns, logits, strict=True):
            found[column.name].append(values[:, sample.test].argmax(0).numpy())
    return found


def train(networks: Networks, sample: Sample, protocol: Protocol, options: Options) -> Tensor:
    """Trains all columns; returns their logits for all nodes, [C, Y, N]."""
    known = len(sample.train)
    label = torch.from_numpy(sample.known()).expand(networks.num_columns, -1)
    adam = torch.optim.Adam(networks.parameters(), lr=options.lr, weight_decay=options.weight_decay, fused=True)
    generator = torch.Generator().manual_seed(sample.seed)
    kept = 1.0 - protocol.dropout
    mask = None
    for _ in range(options.epochs):
        if protocol.dropout:
            mask = torch.rand(sample.view.num_nodes, HIDDEN, generator=generator).lt_(kept).div_(kept)
        loss = cross_entropy(networks(known, mask), label, reduction="sum") / known  # columns do not meet
        adam.zero_grad()
        loss.backward()
        adam.step()
    with torch.no_grad():
        return networks()


class Networks(nn.Module):
    """One GCN per column.

    Args:
        sample: The graph.
        columns: The methods.
        protocol: Self-loops or not.
    """

    def __init__(self, sample: Sample, columns: Sequence[Column], protocol: Protocol) -> None:
        super().__init__()
        view = sample.view
        known = {
            name: operator(view, weighting=name, norm="mean", self_loop=protocol.self_loop)
            for name in {column.weighting for column in columns}
        }
        operators = [known[column.weighting] for column in columns]
        first = {name: torch.from_numpy(one.apply(sample.x)) for name, one in known.items()}
        x = torch.tensor(sample.x)
        aligns = [alignment(column, sample, one.table) for column, one in zip(columns, operators, strict=True)]
        with torch.no_grad():
            messages = [
                first[column.weighting] if align is None else align(first[column.weighting], x)
                for column, align in zip(columns, aligns, strict=True)
            ]
        self.num_columns = len(columns)
        self.aligns: list[Chain | None] = aligns  # they hold no weights
        self.product = Product(Segments.of(view), operators)
        self.message = torch.stack(messages)
        self.labels = {
            c: torch.from_numpy(label_features(column, sample).T.copy())
            for c, column in enumerate(columns)
            if column.label_hop
        }
        draws = _Draws(sample.seed, len(columns))
        read = torch.full((len(columns), 1, 1), float(HIDDEN))
        for c in self.labels:
            read[c] += view.num_labels
        self.first = nn.Parameter(draws.next(sample.x.shape[1], HIDDEN) / sample.x.shape[1] ** 0.5)
        self.first_bias = nn.Parameter(draws.next(1, HIDDEN) / sample.x.shape[1] ** 0.5)
        self.second = nn.Parameter(draws.next(view.num_labels, HIDDEN) / read.sqrt())
        self.second_bias = nn.Parameter(draws.next(view.num_labels, 1) / read.sqrt())
        more = draws.next(view.num_labels, view.num_labels) / read.sqrt()
        self.label_weight = nn.ParameterDict({str(c): nn.Parameter(more[c].clone()) for c in self.labels})

    def forward(self, first: int | None = None, mask: Tensor | None = None) -> Tensor:
        """Logits [C, Y, n] of the first n nodes (all by default); `mask` scales the hidden units that are kept."""
        hidden = torch.relu(torch.baddbmm(self.first_bias, self.message, self.first))
        if mask is not None:
            hidden = hidden * mask
        message = self._aligned(self.product(hidden), hidden)[:, :first]
        logits = torch.baddbmm(self.second_bias, self.second, message.mT)
        if not self.labels:
            return logits
        parts = list(logits.unbind())
        for c, labels in self.labels.items():
            parts[c] = parts[c] + self.label_weight[str(c)] @ labels[:, :first]
        return torch.stack(parts)

    def _aligned(self, message: Tensor, hidden: Tensor) -> Tensor:
        if not any(self.aligns):
            return message
        # Unbound once: the gradient of an index is a matrix of zeros as large as all columns together.
        parts = zip(self.aligns, message.unbind(), hidden.unbind(), strict=True)
        return torch.stack([one if align is None else align(one, previous) for align, one, previous in parts])


class _Draws:
    """Numbers uniform in ±1, the same for every column."""

    def __init__(self, seed: int, num_columns: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.num_columns = num_columns

    def next(self, rows: int, columns: int) -> Tensor:
        """The next matrix, repeated for every column of the table."""
        return (torch.rand(rows, columns, generator=self.generator) * 2 - 1).repeat(self.num_columns, 1, 1)
