"""RevGAT and linear RevGAT.

Deep networks of invertible blocks, whose memory does not grow with their depth.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import relu
from torch_geometric.nn import GroupAddRev

from impact_gnn.checks import InputError
from impact_gnn.nn.align_layers import Message
from impact_gnn.nn.blocks import dropout
from impact_gnn.nn.sparse import Propagation
from impact_gnn.nn.spatial import GATLayer
from reproduction.competing.originals import BatchNorm, norms


class _Rooted(nn.Module):
    """layer(x) + x W_root: what the neighbours say and what the node itself does."""

    def __init__(self, in_channels: int, out_channels: int, layer: nn.Module) -> None:
        super().__init__()
        self.layer, self.root = layer, nn.Linear(in_channels, out_channels, bias=False)

    def forward(self, x: Tensor, propagation: Propagation) -> Tensor:
        return self.layer(x, propagation) + self.root(x)


class _LinearLayer(nn.Module):
    """align(M x) W + b, or align(M (x W)) + b where W makes x narrower.

    Messages have as few columns as can be.
    """

    def __init__(self, in_channels: int, out_channels: int, align: nn.Module | None) -> None:
        super().__init__()
        self.first = in_channels > out_channels
        self.message = Message(align)
        self.linear = nn.Linear(in_channels, out_channels, bias=False)
        self.bias = nn.Parameter(torch.zeros(out_channels))

    def forward(self, x: Tensor, propagation: Propagation) -> Tensor:
        if self.first:
            return self.message(self.linear(x), propagation) + self.bias
        return self.linear(self.message(x, propagation)) + self.bias


class _Block(nn.Module):
    """norm → ReLU → dropout (mask from outside, to be used twice) → layer.

    What a block adds to one group.
    """

    def __init__(self, width: int, norm: str, layer: nn.Module) -> None:
        super().__init__()
        self.norm = nn.Sequential(*norms(norm, width))
        self.layer = layer

    def forward(self, x: Tensor, propagation: Propagation, mask: Tensor | None) -> Tensor:
        x = relu(self.norm(x))
        return self.layer(x if mask is None else x * mask, propagation)


class _SomeEdges:
    """The edges of a propagation without a share of them: the same ones whenever it is asked."""

    def __init__(self, propagation: Propagation, share: float, device: torch.device) -> None:
        edge_index, log_weight = propagation.edges(device)
        keep = torch.rand(edge_index.shape[1], device=device) >= share
        self.retained = edge_index[:, keep], log_weight[keep]

    def edges(self, device: torch.device) -> tuple[Tensor, Tensor]:
        return self.retained


class _Reversible(nn.Module):
    """An input layer, invertible blocks, norm, ReLU, dropout, an output layer.

    `num_layers` counts them all.

    A block is computed again in the backward pass. What is random in it is therefore drawn before,
    and batch norms count the first time only.
    """

    edge_dropout = 0.0

    def __init__(
        self,
        in_channels: int,
        num_labels: int,
        hidden: int,
        heads: int,
        num_layers: int,
        num_groups: int,
        norm: str,
        dropout: float,
        input_dropout: float,
        make_layer: Callable[[int, int, bool], nn.Module],
    ) -> None:
        super().__init__()
        if num_layers < 2:
            raise InputError(
                f"num_layers={num_layers} must be at least 2: an input and an output layer."
            )
        if hidden % num_groups:
            raise InputError(
                f"hidden={hidden} cannot be split into {num_groups} groups; choose a multiple."
            )
        if num_groups < 2:
            raise InputError(
                f"num_groups={num_groups} must be at least 2: one group cannot be inverted."
            )
        self.dropout, self.input_dropout = dropout, input_dropout
        self.width = width = heads * hidden // num_groups

        def layer(a: int, b: int, last: bool = False) -> nn.Module:
            return _Rooted(a, b, make_layer(a, b, last))

        def block() -> nn.Module:
            return GroupAddRev(
                nn.ModuleList(_Block(width, norm, layer(width, width)) for _ in range(num_groups))
            )

        self.encode = layer(in_channels, heads * hidden)
        self.blocks = nn.ModuleList(block() for _ in range(num_layers - 2))
        self.norm = nn.Sequential(*norms(norm, heads * hidden))
        self.classify = layer(heads * hidden, num_labels, last=True)

    def forward(self, x: Tensor, propagation: Propagation) -> Tensor:
        x = self.encode(
            dropout(x, self.input_dropout, self.training),
            self._visible_edges(propagation, x.device),
        )
        for block in self.blocks:
            # Inputs are recomputed from outputs in the backward pass, which mixed precision would
            # do inexactly.
            block.disable = torch.is_autocast_enabled(x.device.type)  # type: ignore[assignment]
            mask = None
            if self.training and self.dropout:
                mask = dropout(
                    torch.ones(len(x), self.width, dtype=x.dtype, device=x.device),
                    self.dropout,
                    True,
                )
            _track(block, True)
            x = block(x, self._visible_edges(propagation, x.device), mask)
            _track(block, False)
        x = dropout(relu(self.norm(x)), self.dropout, self.training)
        return self.classify(x, self._visible_edges(propagation, x.device))

    def _visible_edges(self, propagation: Propagation, device: torch.device) -> Any:
        share = self.edge_dropout if self.training else 0.0
        return _SomeEdges(propagation, share, device) if share else propagation


def _track(block: nn.Module, now: bool) -> None:
    for part in block.modules():
        if isinstance(part, BatchNorm):
            part.tracks = now


class RevGAT(_Reversible):
    """Reversible graph attention network.

    Blocks Y_i = X_i + f_i(Y_{i−1}) over groups of columns, f_i a GAT layer.

    The first and the last layer are ordinary ones; every layer has a linear map of the node itself
    besides. A head has `hidden` columns, so the width is heads·hidden, which the groups of a block
    share; they share a dropout mask.

    After Li, Müller, Ghanem, Koltun: Training Graph Neural Networks with 1000 Layers, ICML 2021.

    Args: num_layers: All layers, the first and the last included. edge_dropout: Share of the edges
    that a layer does not hear in a step. norm: "batch", "layer" or "none".

    Examples: >>> from impact_gnn.data.tsbm import tsbm >>> g = tsbm(num_nodes=100, num_times=4,
    num_labels=2, seed=0) >>> RevGAT(5, 2, hidden=16)(torch.tensor(g.x), Propagation.of(g,
    self_loop=True)).shape torch.Size([100, 2])
    """

    def __init__(
        self,
        in_channels: int,
        num_labels: int,
        hidden: int = 256,
        *,
        num_layers: int = 5,
        num_groups: int = 2,
        heads: int = 3,
        norm: str = "batch",
        dropout: float = 0.5,
        input_dropout: float = 0.25,
        edge_dropout: float = 0.3,
        align: nn.Module | None = None,
    ) -> None:
        # Attention has no dropout of its own: it could not be repeated when a block is inverted.
        super().__init__(
            in_channels,
            num_labels,
            hidden=hidden,
            heads=heads,
            num_layers=num_layers,
            num_groups=num_groups,
            norm=norm,
            dropout=dropout,
            input_dropout=input_dropout,
            make_layer=lambda a, b, last: GATLayer(a, b, heads=heads, concat=not last, align=align),
        )
        self.edge_dropout = edge_dropout


class LinearRevGAT(_Reversible):
    """RevGAT with its attention replaced by the propagation's weighted mean.

    F(X) = align(M X) W + X W_root + b.

    With `norm="mean"` the rows of M sum to one whatever the time weights are. The paper's model has
    two layers, an input and an output layer of 3 heads of 256, and so no invertible block. Without
    attention heads only say how wide it is.

    Examples: >>> from impact_gnn.data.tsbm import tsbm >>> g = tsbm(num_nodes=100, num_times=4,
    num_labels=2, seed=0) >>> LinearRevGAT(5, 2, hidden=16)(torch.tensor(g.x), Propagation.of(g,
    weighting="genpmp")).shape torch.Size([100, 2])
    """

    def __init__(
        self,
        in_channels: int,
        num_labels: int,
        hidden: int = 256,
        *,
        num_layers: int = 2,
        num_groups: int = 2,
        heads: int = 3,
        norm: str = "batch",
        dropout: float = 0.5,
        input_dropout: float = 0.25,
        align: nn.Module | None = None,
    ) -> None:
        super().__init__(
            in_channels,
            num_labels,
            hidden=hidden,
            heads=heads,
            num_layers=num_layers,
            num_groups=num_groups,
            norm=norm,
            dropout=dropout,
            input_dropout=input_dropout,
            make_layer=lambda a, b, last: _LinearLayer(a, b, align),
        )
