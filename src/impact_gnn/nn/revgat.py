"""RevGAT and linear RevGAT: deep networks of invertible blocks, whose memory does not grow with their depth."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import relu
from torch_geometric.nn import GroupAddRev

from impact_gnn.checks import InputError
from impact_gnn.nn.alignment import Message
from impact_gnn.nn.blocks import dropout
from impact_gnn.nn.sparse import Propagation
from impact_gnn.nn.spatial import GATLayer


class _Block(nn.Module):
    """norm → ReLU → dropout (mask from outside, to be used twice) → layer: what a block adds to one group."""

    def __init__(self, width: int, layer: nn.Module) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.layer = layer

    def forward(self, x: Tensor, propagation: Propagation, mask: Tensor | None) -> Tensor:
        x = relu(self.norm(x))
        return self.layer(x if mask is None else x * mask, propagation)


class _LinearLayer(nn.Module):
    """align(M x) W + b."""

    def __init__(self, width: int, align: nn.Module | None) -> None:
        super().__init__()
        self.message = Message(align)
        self.linear = nn.Linear(width, width)

    def forward(self, x: Tensor, propagation: Propagation) -> Tensor:
        return self.linear(self.message(x, propagation))


class _Reversible(nn.Module):
    """Linear encoder, invertible blocks, norm and linear classifier."""

    def __init__(
        self, in_channels: int, num_labels: int, hidden: int, num_layers: int, num_groups: int, dropout: float,
        make_layer: Callable[[int], nn.Module],
    ) -> None:  # fmt: skip
        super().__init__()
        if hidden % num_groups:
            raise InputError(f"hidden={hidden} cannot be split into {num_groups} groups; choose a multiple.")
        if num_groups < 2:
            raise InputError(f"num_groups={num_groups} must be at least 2: one group cannot be inverted.")
        self.dropout = dropout
        self.width = width = hidden // num_groups
        self.encode = nn.Linear(in_channels, hidden)
        self.blocks = nn.ModuleList(
            GroupAddRev(nn.ModuleList(_Block(width, make_layer(width)) for _ in range(num_groups)))
            for _ in range(num_layers)
        )
        self.norm = nn.LayerNorm(hidden)
        self.classify = nn.Linear(hidden, num_labels)

    def forward(self, x: Tensor, propagation: Propagation) -> Tensor:
        x = self.encode(x)
        for block in self.blocks:
            # Inputs are recomputed from outputs in the backward pass, which mixed precision would do inexactly.
            block.disable = torch.is_autocast_enabled(x.device.type)  # type: ignore[assignment]
            mask = None
            if self.training and self.dropout:
                mask = dropout(torch.ones(len(x), self.width, dtype=x.dtype, device=x.device), self.dropout, True)
            x = block(x, propagation, mask)
        return self.classify(relu(self.norm(x)))


class RevGAT(_Reversible):
    """Reversible graph attention network: blocks Y_i = X_i + f_i(Y_{i−1}) over groups of columns, f_i a GAT layer.

    The groups share the width `hidden`, the heads the columns of a group. The groups of a block share a dropout mask.

    Examples:
        >>> from impact_gnn.data.tsbm import tsbm
        >>> g = tsbm(num_nodes=100, num_times=4, num_labels=2, seed=0)
        >>> RevGAT(5, 2, hidden=16)(torch.tensor(g.x), Propagation.of(g, self_loop=True)).shape
        torch.Size([100, 2])
    """

    def __init__(
        self, in_channels: int, num_labels: int, hidden: int = 256, *, num_layers: int = 3, num_groups: int = 2,
        heads: int = 2, dropout: float = 0.5, align: nn.Module | None = None,
    ) -> None:  # fmt: skip
        # Attention has no dropout of its own: it could not be repeated when a block is inverted.
        super().__init__(
            in_channels, num_labels, hidden, num_layers, num_groups, dropout,
            lambda width: GATLayer(width, width, heads=heads, align=align),
        )  # fmt: skip


class LinearRevGAT(_Reversible):
    """RevGAT with its attention replaced by the propagation's weighted mean: f(X) = align(M X) W + b.

    With `norm="mean"` the rows of M sum to one whatever the time weights are.

    Examples:
        >>> from impact_gnn.data.tsbm import tsbm
        >>> g = tsbm(num_nodes=100, num_times=4, num_labels=2, seed=0)
        >>> LinearRevGAT(5, 2, hidden=16)(torch.tensor(g.x), Propagation.of(g, weighting="genpmp")).shape
        torch.Size([100, 2])
    """

    def __init__(
        self, in_channels: int, num_labels: int, hidden: int = 256, *, num_layers: int = 3, num_groups: int = 2,
        dropout: float = 0.5, align: nn.Module | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            in_channels, num_labels, hidden, num_layers, num_groups, dropout,
            lambda width: _LinearLayer(width, align),
        )  # fmt: skip
