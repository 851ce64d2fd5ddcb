"""SGC: a classifier on the last hop alone."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from impact_gnn.nn.blocks import mlp


class SGC(nn.Module):
    """Simple graph convolution: logits = f([M^K X, label hops]), f linear or, with `hidden`, an MLP.

    Args:
        in_channels: Columns of the last hop, or of every hop (only the last counts).
        num_labels: Number of classes.
        hidden: Width of the hidden layer; None for a linear classifier.
        label_channels: Columns of every label hop; they are joined to the features.
        num_layers: Layers of the MLP.
        dropout: Share of hidden units left out in training.

    Example:
        >>> model = SGC([5, 5, 5], 10, hidden=16)
        >>> model([torch.randn(7, 5) for _ in range(3)]).shape
        torch.Size([7, 10])
    """

    def __init__(
        self,
        in_channels: int | Sequence[int],
        num_labels: int,
        hidden: int | None = None,
        *,
        label_channels: Sequence[int] = (),
        num_layers: int = 2,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        width = (in_channels if isinstance(in_channels, int) else in_channels[-1]) + sum(label_channels)
        middle = [] if hidden is None else [hidden] * (num_layers - 1)
        self.classify = mlp([width, *middle, num_labels], dropout, norm=False)

    def forward(self, hops: Sequence[Tensor], label_hops: Sequence[Tensor] = ()) -> Tensor:
        """Logits [n, num_labels] of any rows."""
        return self.classify(torch.cat([hops[-1], *label_hops], dim=1))
