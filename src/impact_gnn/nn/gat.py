"""GAT: attention decides what a neighbour counts, the time weight multiplies it."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import elu

from impact_gnn.checks import InputError
from impact_gnn.nn.blocks import dropout
from impact_gnn.nn.messages import Align
from impact_gnn.nn.sparse import Propagation
from impact_gnn.transforms.attention import TimeGATConv


class GATLayer(nn.Module):
    """align(Σ_u α_vu W x_u) + b with α = softmax over the neighbours of leaky_relu(score) + log(Ω·a).

    The weight multiplies exp(score) exactly. Normalisations of the propagation do not matter: softmax has its own.

    Args:
        in_channels: Columns of the input.
        out_channels: Columns of the output: shared by the heads if `concat`, else every head has as many.
        heads: Number of attention heads.
        concat: Put the heads side by side (True) or take their mean.
        dropout: Share of attention coefficients left out in training.
        align: Alignment of the message.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        heads: int = 1,
        concat: bool = True,
        dropout: float = 0.0,
        align: nn.Module | None = None,
    ) -> None:
        super().__init__()
        if concat and out_channels % heads:
            raise InputError(f"{out_channels} columns cannot be shared by {heads} heads; choose a multiple of {heads}.")
        each = out_channels // heads if concat else out_channels
        self.conv = TimeGATConv(
            in_channels, each, heads=heads, concat=concat, dropout=dropout, add_self_loops=False, bias=False
        )
        self.align = Align(align)
        self.bias = nn.Parameter(torch.zeros(out_channels))

    def forward(self, x: Tensor, propagation: Propagation) -> Tensor:
        """The layer's output [N, out_channels]."""
        edge_index, log_weight = propagation.edges(x.device)
        message = self.conv(x, edge_index, log_weight)
        return self.align(message, self._aggregated(x) if self.align.takes_previous else x) + self.bias

    def _aggregated(self, x: Tensor) -> Tensor:
        """W x, of which the message is a weighted mean."""
        sent = self.conv.lin(x)
        return sent if self.conv.concat else sent.view(len(x), self.conv.heads, -1).mean(1)


class GAT(nn.Module):
    """Graph attention network whose attention is multiplied by the time weights; see `GATLayer`.

    Args:
        in_channels: Columns of the features.
        num_labels: Number of classes.
        hidden: Width of the hidden layers, shared by the heads.
        num_layers: Number of layers.
        heads: Attention heads of every layer; the last layer takes their mean.
        dropout: Share of hidden units and of attention coefficients left out in training.
        align: Alignment of every layer's message, such as `TimeCenter`, `JJNorm` or `PNY`.

    Example:
        >>> from impact_gnn.data.tsbm import tsbm
        >>> g = tsbm(num_nodes=100, num_times=4, num_labels=2, seed=0)
        >>> GAT(5, 2)(torch.tensor(g.x), Propagation.of(g, weighting="pmp", self_loop=True)).shape
        torch.Size([100, 2])
    """

    def __init__(
        self,
        in_channels: int,
        num_labels: int,
        hidden: int = 16,
        *,
        num_layers: int = 2,
        heads: int = 2,
        dropout: float = 0.5,
        align: nn.Module | None = None,
    ) -> None:
        super().__init__()
        widths = [in_channels, *[hidden] * (num_layers - 1), num_labels]
        self.dropout = dropout
        self.layers = nn.ModuleList(
            GATLayer(a, b, heads=heads, concat=k < num_layers - 1, dropout=dropout, align=align)
            for k, (a, b) in enumerate(pairwise(widths))
        )

    def forward(self, x: Tensor, propagation: Propagation) -> Tensor:
        """Logits [N, num_labels] of all nodes."""
        for k, layer in enumerate(self.layers):
            if k:
                x = dropout(elu(x), self.dropout, self.training)
            x = layer(x, propagation)
        return x
