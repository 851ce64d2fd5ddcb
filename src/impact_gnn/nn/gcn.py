"""GCN: linear map of the message, layer by layer."""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn
from torch.nn.functional import relu

from impact_gnn.nn.blocks import dropout
from impact_gnn.nn.messages import Message
from impact_gnn.nn.sparse import Propagation


class GCN(nn.Module):
    """Graph convolution: X ← σ(align(M X) W + b).

    M is the propagation's own: the row mean of the paper by default, D^-½ A D^-½ with `norm="sym"`. Messages are
    made before the linear map, so that their alignment sees what the paper calls the aggregated message; that of
    the first layer is made once.

    Args:
        in_channels: Columns of the features.
        num_labels: Number of classes.
        hidden: Width of the hidden layers.
        num_layers: Number of layers.
        dropout: Share of hidden units left out in training.
        align: Alignment of every layer's message, such as `TimeCenter`, `JJNorm` or `PNY`.

    Example:
        >>> import torch
        >>> from impact_gnn.data.tsbm import tsbm
        >>> g = tsbm(num_nodes=100, num_times=4, num_labels=2, seed=0)
        >>> GCN(5, 2)(torch.tensor(g.x), Propagation.of(g, weighting="pmp")).shape
        torch.Size([100, 2])
    """

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
        super().__init__()
        widths = [in_channels, *[hidden] * (num_layers - 1), num_labels]
        self.dropout = dropout
        self.messages = nn.ModuleList(Message(align, keep=k == 0) for k in range(num_layers))
        self.linears = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))

    def forward(self, x: Tensor, propagation: Propagation) -> Tensor:
        """Logits [N, num_labels] of all nodes."""
        for k, (message, linear) in enumerate(zip(self.messages, self.linears, strict=True)):
            if k:
                x = dropout(relu(x), self.dropout, self.training)
            x = linear(message(x, propagation))
        return x
