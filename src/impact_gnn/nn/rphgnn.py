"""RpHGNN: hops are collected relation by relation; a convolution over the hops of a relation, then an MLP over all."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from impact_gnn.checks import InputError
from impact_gnn.nn.blocks import Dropout, mlp


class RpHGNN(nn.Module):
    """Random-projection heterogeneous GNN, the part that is trained: logits = MLP(Σ_r W_r · conv_r(hops of r)).

    What a relation has collected over K hops is K matrices. Each is encoded to the same width; the convolution has
    the hops as channels and a kernel of one, so that a filter is a learned weighted sum of hops, the same for all
    columns; a map per relation reads the filters side by side. Label hops are one more relation.

    After Hu, Hooi, He: Efficient Heterogeneous Graph Learning via Random Projection, 2024.

    Args:
        in_channels: Columns of every matrix, relation after relation.
        num_labels: Number of classes.
        hidden: Width.
        groups: Number of matrices of every relation, in the same order; by default all are one relation's.
        label_channels: Columns of every label hop.
        filters: Weighted sums of hops that are learned per relation.
        num_layers: Layers of the MLP at the end.
        dropout: Share of hidden units left out in training.
        input_dropout: Share of features left out in training.

    Example:
        >>> model = RpHGNN([5, 5, 5, 8, 8], 10, hidden=16, groups=[3, 2], label_channels=[10])
        >>> hops = [torch.randn(7, width) for width in (5, 5, 5, 8, 8)]
        >>> model(hops, [torch.rand(7, 10)]).shape
        torch.Size([7, 10])
    """

    def __init__(
        self,
        in_channels: Sequence[int],
        num_labels: int,
        hidden: int = 512,
        *,
        groups: Sequence[int] | None = None,
        label_channels: Sequence[int] = (),
        filters: int = 2,
        num_layers: int = 2,
        dropout: float = 0.5,
        input_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        sizes = [len(in_channels)] if groups is None else [int(size) for size in groups]
        if sum(sizes) != len(in_channels) or min(sizes, default=0) < 1:
            raise InputError(
                f"groups={sizes} make {sum(sizes)} matrices, but {len(in_channels)} are given; name the size of every "
                f"relation's group, one or more each."
            )
        self.sizes = [*sizes, *([len(label_channels)] if label_channels else [])]
        self.input_dropout = Dropout(input_dropout)
        widths = torch.tensor([*in_channels, *label_channels]).split(self.sizes)
        self.relations = nn.ModuleList(
            RelationEncoder(part.tolist(), hidden, filters=filters, dropout=dropout) for part in widths
        )
        self.classify = nn.Sequential(
            nn.LayerNorm(hidden),
            nn.PReLU(),
            Dropout(dropout),
            mlp([hidden] * num_layers + [num_labels], dropout),
        )

    def forward(self, hops: Sequence[Tensor], label_hops: Sequence[Tensor] = ()) -> Tensor:
        """Logits [n, num_labels] of any rows."""
        left = [*(self.input_dropout(values) for values in hops), *label_hops]
        if len(left) != sum(self.sizes):
            raise InputError(f"the model was made for {sum(self.sizes)} matrices, {len(left)} came.")
        total: Tensor | None = None
        for size, relation in zip(self.sizes, self.relations, strict=True):
            part, left = relation(left[:size]), left[size:]
            total = part if total is None else total + part
        return self.classify(total)


class RelationEncoder(nn.Module):
    """One relation: its hops [n, f_k] encoded, mixed by `filters` weighted sums over hops, and read by one map.

    Example:
        >>> RelationEncoder([5, 5, 8], 16)([torch.randn(7, 5), torch.randn(7, 5), torch.randn(7, 8)]).shape
        torch.Size([7, 16])
    """

    def __init__(self, in_channels: Sequence[int], hidden: int, *, filters: int = 2, dropout: float = 0.5) -> None:
        super().__init__()
        self.encode = nn.ModuleList(
            nn.Sequential(nn.Linear(width, hidden), nn.LayerNorm(hidden)) for width in in_channels
        )
        self.convolve = nn.Conv1d(len(in_channels), filters, kernel_size=1)
        self.read = nn.Sequential(nn.PReLU(), Dropout(dropout), nn.Linear(filters * hidden, hidden))

    def forward(self, hops: Sequence[Tensor]) -> Tensor:
        """What the relation says about every row [n, hidden]."""
        encoded = [encode(values) for encode, values in zip(self.encode, hops, strict=True)]
        return self.read(self.convolve(torch.stack(encoded, dim=1)).flatten(1))
