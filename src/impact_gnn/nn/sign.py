"""SIGN: every hop has a linear map of its own, an MLP reads them side by side."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from impact_gnn.nn.blocks import Dropout, mlp


class SIGN(nn.Module):
    """Scalable inception: logits = MLP(σ([X W_0 | M X W_1 | ... | M^K X W_K])); label hops are further branches.

    Args:
        in_channels: Columns of every hop, hop 0 (the features themselves) first.
        num_labels: Number of classes.
        hidden: Width of every branch and of the MLP.
        label_channels: Columns of every label hop.
        num_layers: Layers of the MLP after the branches.
        dropout: Share of hidden units left out in training.

    Example:
        >>> model = SIGN([5, 5, 8], 10, hidden=16, label_channels=[10])
        >>> hops = [torch.randn(7, width) for width in (5, 5, 8)]
        >>> model(hops, [torch.randn(7, 10)]).shape
        torch.Size([7, 10])
    """

    def __init__(
        self,
        in_channels: Sequence[int],
        num_labels: int,
        hidden: int = 256,
        *,
        label_channels: Sequence[int] = (),
        num_layers: int = 2,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        widths = [*in_channels, *label_channels]
        self.branches = nn.ModuleList(
            nn.Sequential(nn.Linear(width, hidden), nn.LayerNorm(hidden), nn.PReLU(), Dropout(dropout))
            for width in widths
        )
        self.classify = mlp([hidden * len(widths), *[hidden] * (num_layers - 1), num_labels], dropout)

    def forward(self, hops: Sequence[Tensor], label_hops: Sequence[Tensor] = ()) -> Tensor:
        """Logits [n, num_labels] of any rows."""
        inputs = zip(self.branches, [*hops, *label_hops], strict=True)
        return self.classify(torch.cat([branch(values) for branch, values in inputs], dim=1))
