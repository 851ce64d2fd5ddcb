"""All columns of the synthetic study trained at once on one graph: batched products instead of a loop over methods.

SGC is an MLP of one hidden layer on the aligned message of two hops; GCN is X ← σ(align(M X) W + b) twice. Columns
share nothing but shapes: the sum of their losses splits into its terms and Adam works element by element, so each is
trained as it would be alone. They begin with the same weights, and dropout leaves out the same units, so that
differences between columns are not differences of luck.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from impact_gnn.nn import Propagation
from reproduction.synthetic import Chain, Column, Options, Protocol, Sample, alignment, label_features

HIDDEN = 16
HOPS = 2


def predict(
    model: str, sample: Sample, columns: Sequence[Column], protocol: Protocol, options: Options
) -> dict[str, np.ndarray]:
    """For every column the predicted labels of the nodes without one."""
    networks = (SGCs if model == "sgc" else GCNs)(sample, columns, protocol)
    logits = networks.train_all(sample, options)
    return {c.name: logits[k][:, sample.num_known :].argmax(0).numpy() for k, c in enumerate(columns)}


class Networks(nn.Module):
    """One network per column: inputs [N, f], a hidden layer, and what joins it before the last layer [N, e].

    Where columns read unequally many numbers, the others' are filled up with zeros and have weights of zero, which
    then have no gradient and stay zero.
    """

    dropout = 0.0
    sigmoid = False
    units_first = False
    """The order in which the first layer's weights are drawn: that of the published runs, which differs."""

    def __init__(self, inputs: Sequence[Tensor], joined: Sequence[Tensor], num_labels: int, seed: int) -> None:
        super().__init__()
        weights = zip(
            *(
                _initial(seed, x.shape[1], more.shape[1], num_labels, self.units_first)
                for x, more in zip(inputs, joined, strict=True)
            ),
            strict=True,
        )
        first, first_bias, second, second_bias = (list(part) for part in weights)
        width, extra = (max(part.shape[1] for part in group) for group in (inputs, joined))
        self.inputs = torch.stack([_filled(x, width, 1) for x in inputs])
        self.joined = torch.stack([_filled(more, extra, 1) for more in joined])
        self.first = nn.Parameter(torch.stack([_filled(each, width, 0) for each in first]))
        self.first_bias = nn.Parameter(torch.stack(first_bias))
        self.second = nn.Parameter(torch.stack([_filled(each, HIDDEN + extra, 1) for each in second]))
        self.second_bias = nn.Parameter(torch.stack(second_bias))

    def forward(self, rows: int | None = None, mask: Tensor | None = None) -> Tensor:
        """Logits [C, Y, n] of the first n nodes (all by default); `mask` scales the hidden units that are kept."""
        hidden = self.hidden(rows, mask)
        if self.joined.shape[2]:
            hidden = torch.cat([hidden, self.joined[:, :rows]], 2)
        return torch.baddbmm(self.second_bias, self.second, hidden.mT)

    def hidden(self, rows: int | None, mask: Tensor | None) -> Tensor:
        """What the last layer reads of the first `rows` nodes, without `joined` [C, n, 16]."""
        return torch.relu(torch.baddbmm(self.first_bias, self.inputs[:, :rows], self.first))

    def train_all(self, sample: Sample, options: Options) -> Tensor:
        """Trains all columns on the known labels; returns the logits of all nodes [C, Y, N]."""
        assert sample.view.y is not None
        known = sample.num_known
        label = torch.tensor(sample.view.y[:known]).expand(len(self.inputs), -1)
        adam = torch.optim.Adam(self.parameters(), lr=options.lr, weight_decay=options.weight_decay, fused=True)
        generator = torch.Generator().manual_seed(sample.seed)
        kept, mask = 1.0 - self.dropout, None
        for _ in range(options.epochs):
            if self.dropout:
                mask = torch.rand(sample.view.num_nodes, HIDDEN, generator=generator).lt_(kept).div_(kept)
            logits = self(known, mask)
            loss = cross_entropy(logits.sigmoid() if self.sigmoid else logits, label, reduction="sum") / known
            adam.zero_grad()
            loss.backward()
            adam.step()
        with torch.no_grad():
            return self()


class SGCs(Networks):
    """An MLP on two hops; label hops are further columns of its inputs."""

    units_first = True

    def __init__(self, sample: Sample, columns: Sequence[Column], protocol: Protocol) -> None:
        nothing = torch.empty(sample.view.num_nodes, 0)
        inputs = sgc_features(sample, columns, protocol)
        super().__init__(inputs, [nothing] * len(columns), sample.view.num_labels, sample.seed)
        self.sigmoid = protocol.sigmoid


class GCNs(Networks):
    """Two layers with row means and alignment after each aggregation; label hops join the last layer."""

    def __init__(self, sample: Sample, columns: Sequence[Column], protocol: Protocol) -> None:
        names = list(dict.fromkeys(column.weighting for column in columns))
        propagations = {
            name: Propagation.of(sample.view, weighting=name, self_loop=protocol.self_loop) for name in names
        }
        aligns = [alignment(column, sample) for column in columns]
        x = torch.tensor(sample.view.x)
        messages = {name: one(x) for name, one in propagations.items()}
        inputs = [
            messages[column.weighting] if align is None else align(messages[column.weighting], x)
            for column, align in zip(columns, aligns, strict=True)
        ]
        super().__init__(inputs, [_labels(column, sample) for column in columns], sample.view.num_labels, sample.seed)
        self.dropout = protocol.dropout
        self.aligns: list[Chain | None] = aligns  # they hold no weights
        # Columns of one weighting are aggregated side by side, in one pass over the edges.
        self.groups = [
            (propagations[name], torch.tensor([k for k, column in enumerate(columns) if column.weighting == name]))
            for name in names
        ]
        self.order = torch.cat([members for _, members in self.groups]).argsort()

    def hidden(self, rows: int | None, mask: Tensor | None) -> Tensor:
        """The aligned second message."""
        hidden = super().hidden(None, None)
        if mask is not None:
            hidden = hidden * mask
        parts = []
        for propagation, members in self.groups:
            side_by_side = hidden[members].transpose(0, 1).reshape(hidden.shape[1], -1)
            parts.append(propagation(side_by_side).view(-1, len(members), HIDDEN).transpose(0, 1))
        message = torch.cat(parts)[self.order]
        if any(self.aligns):
            # Unbound once: the gradient of an index is a matrix of zeros as large as all columns together.
            each = zip(self.aligns, message.unbind(), hidden.unbind(), strict=True)
            message = torch.stack([one if align is None else align(one, before) for align, one, before in each])
        return message[:, :rows]


def sgc_features(sample: Sample, columns: Sequence[Column], protocol: Protocol) -> list[Tensor]:
    """What the MLP of every column reads, [N, f]: the aligned message of the last hop, and label hops.

    PNY speaks of one aggregation and is applied to each; the others to the last message, which is linear in x.
    """
    x, hops, out = torch.tensor(sample.view.x), {}, []
    for column in columns:
        if column.weighting not in hops:
            propagation = Propagation.of(
                sample.view, weighting=column.weighting, norm=protocol.sgc_norm, self_loop=protocol.self_loop
            )
            first = propagation(x)
            hops[column.weighting] = propagation, first, propagation(first)
        propagation, first, message = hops[column.weighting]
        align = alignment(column, sample)
        if align is not None and any(name.startswith("pny") for name in column.align):
            message = x
            for _ in range(HOPS):
                message = align(propagation(message), message)
        elif align is not None:
            message = align(message, first)
        out.append(torch.cat([message, _labels(column, sample)], 1))
    return out


def _labels(column: Column, sample: Sample) -> Tensor:
    if not column.label_hop:
        return torch.empty(sample.view.num_nodes, 0)
    return torch.from_numpy(label_features(column, sample))


def _initial(seed: int, width: int, extra: int, num_labels: int, units_first: bool) -> list[Tensor]:
    """Weights and biases as `nn.Linear` draws them, uniform within ±1/√(columns read); `extra` columns drawn last."""
    generator = torch.Generator().manual_seed(seed)

    def uniform(rows: int, columns: int, read: int) -> Tensor:
        return (torch.rand(rows, columns, generator=generator) * 2 - 1) / read**0.5

    first = uniform(HIDDEN, width, width).mT if units_first else uniform(width, HIDDEN, width)
    first_bias = uniform(1, HIDDEN, width)
    second, second_bias = uniform(num_labels, HIDDEN, HIDDEN + extra), uniform(num_labels, 1, HIDDEN + extra)
    return [first, first_bias, torch.cat([second, uniform(num_labels, extra, HIDDEN + extra)], 1), second_bias]


def _filled(values: Tensor, size: int, axis: int) -> Tensor:
    shape = list(values.shape)
    shape[axis] = size - shape[axis]
    return torch.cat([values, torch.zeros(shape)], axis)
