"""The synthetic study's two networks, `nn.SGC` and `nn.GCN`, trained on one graph with one method.

Methods begin with the same weights, and dropout leaves out the same units, so that differences
between columns are not differences of luck.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from impact_gnn.nn import GCN, SGC, Propagation
from reproduction.synthetic import Column, Options, Protocol, Sample, alignment, label_features

HIDDEN = 16
HOPS = 2


class JoinedGCN(GCN):
    """The 2-layer GCN whose last layer also reads label hops, and whose dropout is given as a mask.

    It is given the aligned message of the first layer, `messages[0](x, propagation)`: nothing in it
    is learned.
    """

    def forward(  # type: ignore[override]
        self, message: Tensor, propagation: Propagation, labels: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        hidden = torch.relu(self.linears[0](message))
        hidden = hidden if mask is None else hidden * mask
        return self.linears[1](torch.cat([self.messages[1](hidden, propagation), labels], 1))


def sgc_features(sample: Sample, column: Column, protocol: Protocol) -> Tensor:
    """What SGC reads, [N, f]: the aligned message of the last hop, and label hops.

    PNY speaks of one aggregation and is applied to each; the others to the last message, which is
    linear in x.
    """
    propagation = Propagation.of(
        sample.view,
        weighting=column.edge_weighting,
        norm=protocol.sgc_norm,
        self_loop=protocol.self_loop,
    )
    align, message = alignment(column, sample), torch.tensor(sample.view.x)
    every_hop = any(name.startswith("pny") for name in column.align)
    for hop in range(HOPS):
        before, message = message, propagation(message)
        if align is not None and (every_hop or hop == HOPS - 1):
            message = align(message, before)
    return torch.cat([message, label_features(column, sample)], 1)


def logits(
    model: str, sample: Sample, column: Column, protocol: Protocol, options: Options
) -> Tensor:
    """Trains a network on the known labels; returns the logits of all nodes [N, Y]."""
    view, known = sample.view, sample.num_known
    label = torch.tensor(view.y)[:known]
    generator = torch.Generator().manual_seed(sample.seed)
    keep_probability = 1.0 - (protocol.dropout if model == "gcn" else 0.0)
    network: nn.Module
    if model == "sgc":
        features = sgc_features(sample, column, protocol)
        network = SGC(features.shape[1], view.num_labels, HIDDEN)
    else:
        x, labels = torch.tensor(view.x), label_features(column, sample)
        propagation = Propagation.of(
            view, weighting=column.edge_weighting, self_loop=protocol.self_loop
        )
        network = JoinedGCN(x.shape[1], view.num_labels, HIDDEN, align=alignment(column, sample))
        network.linears[1] = nn.Linear(HIDDEN + labels.shape[1], view.num_labels)
        message = network.messages[0](x, propagation)
    _draw_weights(network, sample.seed, units_first=model == "sgc")

    def forward(rows: int | None = None, mask: Tensor | None = None) -> Tensor:
        return (
            network([features[:rows]])
            if model == "sgc"
            else network(message, propagation, labels, mask)[:rows]
        )

    adam = torch.optim.Adam(
        network.parameters(), lr=options.lr, weight_decay=options.weight_decay, fused=True
    )
    for _ in range(options.epochs):
        mask = None
        if keep_probability < 1:
            mask = (
                torch.rand(view.num_nodes, HIDDEN, generator=generator)
                .lt_(keep_probability)
                .div_(keep_probability)
            )
        out = forward(known, mask)
        adam.zero_grad()
        cross_entropy(
            out.sigmoid() if model == "sgc" and protocol.sigmoid else out, label
        ).backward()
        adam.step()
    with torch.no_grad():
        return forward()


def _draw_weights(network: nn.Module, seed: int, *, units_first: bool) -> None:
    """Weights and biases as `nn.Linear` draws them, uniform within ±1/√(columns read).

    The order is that of the published runs: unit by unit in SGC's first layer and input by input in
    the GCN's, and what
    the last layer reads of label hops at the end.
    """
    generator = torch.Generator().manual_seed(seed)

    def uniform(rows: int, columns: int, read: int) -> Tensor:
        return (torch.rand(rows, columns, generator=generator) * 2 - 1) / read**0.5

    first, last = (layer for layer in network.modules() if isinstance(layer, nn.Linear))
    read, joined, count = first.in_features, last.in_features, last.out_features
    with torch.no_grad():
        first.weight.copy_(
            uniform(HIDDEN, read, read) if units_first else uniform(read, HIDDEN, read).mT
        )
        first.bias.copy_(uniform(HIDDEN, 1, read)[:, 0])
        last.weight[:, :HIDDEN] = uniform(count, HIDDEN, joined)
        last.bias.copy_(uniform(count, 1, joined)[:, 0])
        last.weight[:, HIDDEN:] = uniform(count, joined - HIDDEN, joined)
