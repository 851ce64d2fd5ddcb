"""GCN, GraphSAGE and GAT with optional alignment of each message."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import elu, relu

from impact_gnn.checks import InputError
from impact_gnn.nn.align_layers import Align, Message
from impact_gnn.nn.blocks import dropout
from impact_gnn.nn.sparse import Propagation


class _Layered(nn.Module):
    """Base class: activation and dropout between layers; `step` computes layer k."""

    activation: Callable[[Tensor], Tensor] = staticmethod(relu)

    def __init__(
        self, in_channels: int, num_labels: int, hidden: int, num_layers: int, dropout: float
    ) -> None:
        super().__init__()
        self.dropout = dropout
        widths = [in_channels, *[hidden] * (num_layers - 1), num_labels]
        self.sizes = list(pairwise(widths))

    def forward(self, x: Tensor, propagation: Propagation) -> Tensor:
        for k in range(len(self.sizes)):
            if k:
                x = dropout(self.activation(x), self.dropout, self.training)
            x = self.step(k, x, propagation)
        return x

    def step(self, k: int, x: Tensor, propagation: Propagation) -> Tensor:
        """Compute layer k without its activation."""
        raise NotImplementedError


class _Convolution(_Layered):
    """Base class of GCN and GraphSAGE; root weights are drawn first, so that seeds stay valid."""

    has_root = False

    def __init__(
        self,
        in_channels: int,
        num_labels: int,
        hidden: int = 16,
        *,
        num_layers: int = 2,
        dropout: float = 0.5,
        align: nn.Module | None = None,
    ) -> None:
        super().__init__(in_channels, num_labels, hidden, num_layers, dropout)
        # The first layer reads the same features in every step, so its message is computed once.
        self.messages = nn.ModuleList(Message(align, cache=k == 0) for k in range(num_layers))
        if self.has_root:
            self.roots = nn.ModuleList(nn.Linear(a, b, bias=False) for a, b in self.sizes)
        self.linears = nn.ModuleList(nn.Linear(a, b) for a, b in self.sizes)

    def step(self, k: int, x: Tensor, propagation: Propagation) -> Tensor:
        return self.linears[k](self.messages[k](x, propagation))


class GCN(_Convolution):
    """Graph convolution: X ← σ(align(M X) W + b).

    M is the propagation's own: the row mean of the paper by default, D^-½ A D^-½ with `norm="sym"`.
    Messages are computed before the linear map, so that alignment applies to the paper's aggregated
    message; that of the first layer is computed once. `align` is a layer such as `TimeCenter`,
    `JJNorm` or `PNY`, used for every message.

    Examples:
        >>> from impact_gnn.data.tsbm import tsbm
        >>> g = tsbm(num_nodes=100, num_times=4, num_labels=2, seed=0)
        >>> GCN(5, 2)(torch.tensor(g.x), Propagation.of(g, weighting="pmp")).shape
        torch.Size([100, 2])
    """


class SAGE(_Convolution):
    """GraphSAGE: X ← σ(X W_root + align(M X) W + b), where M is a mean over neighbours.

    Examples:
        >>> from impact_gnn.data.tsbm import tsbm
        >>> g = tsbm(num_nodes=100, num_times=4, num_labels=2, seed=0)
        >>> SAGE(5, 2)(torch.tensor(g.x), Propagation.of(g, weighting="mmp")).shape
        torch.Size([100, 2])
    """

    has_root = True

    def step(self, k: int, x: Tensor, propagation: Propagation) -> Tensor:
        return self.roots[k](x) + super().step(k, x, propagation)


class GAT(_Layered):
    """Graph attention network whose attention is multiplied by the time weights; see `GATLayer`.

    The heads share the hidden width; the last layer takes their mean. `dropout` is of hidden units
    and of attention.

    Examples:
        >>> from impact_gnn.data.tsbm import tsbm
        >>> g = tsbm(num_nodes=100, num_times=4, num_labels=2, seed=0)
        >>> GAT(5, 2)(torch.tensor(g.x), Propagation.of(g, weighting="pmp", self_loop=True)).shape
        torch.Size([100, 2])
    """

    activation: Callable[[Tensor], Tensor] = staticmethod(elu)

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
        super().__init__(in_channels, num_labels, hidden, num_layers, dropout)
        self.layers = nn.ModuleList(
            GATLayer(a, b, heads=heads, concat=k < num_layers - 1, dropout=dropout, align=align)
            for k, (a, b) in enumerate(self.sizes)
        )

    def step(self, k: int, x: Tensor, propagation: Propagation) -> Tensor:
        return self.layers[k](x, propagation)


class GATLayer(nn.Module):
    """align(Σ_u α_vu W x_u) + b with α = softmax over neighbours of leaky_relu(score) + log(Ω·a).

    The weight multiplies exp(score) exactly. Normalisations of the propagation do not matter:
    softmax has its own.

    With `concat` the heads stand side by side and share `out_channels`, otherwise their mean is
    taken.
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
            raise InputError(
                f"{out_channels} columns cannot be divided among {heads} heads; "
                f"choose a multiple of {heads}."
            )
        # Imported here: PyG takes seconds, and no other layer needs it.
        from impact_gnn.transforms.attention import TimeGATConv

        self.conv = TimeGATConv(
            in_channels,
            out_channels // heads if concat else out_channels,
            heads=heads,
            concat=concat,
            dropout=dropout,
            # Self-loops belong to the propagation, where their weight is known.
            add_self_loops=False,
            bias=False,
        )
        self.align = Align(align)
        # Added after the alignment, so that this does not move it.
        self.bias = nn.Parameter(torch.zeros(out_channels))

    def forward(self, x: Tensor, propagation: Propagation) -> Tensor:
        edge_index, log_weight = propagation.edges(x.device)
        message = self.conv(x, edge_index, log_weight)
        if self.align.takes_previous:  # W x, of which the message is a weighted mean
            x = self.conv.lin(x)
            if not self.conv.concat:
                x = x.view(len(x), self.conv.heads, -1).mean(1)
        return self.align(message, x) + self.bias
