"""Models that read the hops of several node types: SeHGNN one matrix per metapath, RpHGNN one group per relation."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from impact_gnn.checks import InputError
from impact_gnn.nn.blocks import Dropout, encoder, mlp


class SeHGNN(nn.Module):
    """Simple and efficient heterogeneous GNN: logits = MLP([h_1 | ... | h_m]) with h = fusion(encoded metapaths).

    Every metapath's matrix (the features themselves are the path of no steps) is encoded by a map of its own. Then
    the metapaths of a node look at each other: h_i = e_i + γ Σ_j softmax_j(q_i·k_j) v_j, with γ learned from zero,
    so that training begins with every metapath by itself. Label metapaths are further metapaths.

    After Yang, Yan, Pan, Ye, Fan: Simple and Efficient Heterogeneous Graph Neural Network, AAAI 2023.

    `in_channels` are the columns of every metapath, the features themselves first; with `residual` the features are
    added once more before the last layers.

    Examples:
        >>> model = SeHGNN([5, 5, 8], 10, hidden=16, label_channels=[10])
        >>> model([torch.randn(7, width) for width in (5, 5, 8)], [torch.rand(7, 10)]).shape
        torch.Size([7, 10])
    """

    def __init__(
        self, in_channels: Sequence[int], num_labels: int, hidden: int = 512, *, label_channels: Sequence[int] = (),
        heads: int = 1, num_layers: int = 2, residual: bool = True, dropout: float = 0.5, input_dropout: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__()
        widths = [*in_channels, *label_channels]
        self.input_dropout = Dropout(input_dropout)
        self.encode = nn.ModuleList(encoder(width, hidden, dropout) for width in widths)
        self.fuse = SemanticFusion(hidden, heads=heads)
        self.join = nn.Linear(len(widths) * hidden, hidden)
        self.residual = nn.Linear(in_channels[0], hidden) if residual else None
        self.classify = nn.Sequential(nn.PReLU(), Dropout(dropout), mlp([hidden] * num_layers + [num_labels], dropout))

    def forward(self, hops: Sequence[Tensor], label_hops: Sequence[Tensor] = ()) -> Tensor:
        hops = [self.input_dropout(values) for values in hops]
        inputs = zip(self.encode, [*hops, *label_hops], strict=True)
        fused = self.fuse(torch.stack([encode(values) for encode, values in inputs], dim=1))
        joined = self.join(fused.flatten(1))
        if self.residual is not None:
            joined = joined + self.residual(hops[0])
        return self.classify(joined)


class SemanticFusion(nn.Module):
    """Attention among the metapaths of each node: e_i + γ Σ_j softmax_j(q_i·k_j / √d) v_j, over e [n, m, width].

    Queries and keys have `narrower` times fewer columns than values; they only rank a few metapaths.
    """

    def __init__(self, width: int, *, heads: int = 1, narrower: int = 4) -> None:
        super().__init__()
        if heads < 1 or width % heads:
            raise InputError(f"{width} columns cannot be shared by {heads} heads; choose a divisor.")
        self.heads = heads
        rank = heads * max(width // heads // narrower, 1)
        self.query, self.key = nn.Linear(width, rank), nn.Linear(width, rank)
        self.value = nn.Linear(width, width)
        self.gamma = nn.Parameter(torch.zeros(1))

    def forward(self, encoded: Tensor) -> Tensor:
        layers = (self.query, self.key, self.value)  # [n, m, width] → [n, heads, m, width / heads]
        query, key, value = (layer(encoded).unflatten(-1, (self.heads, -1)).transpose(1, 2) for layer in layers)
        scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
        taken = torch.softmax(scores, dim=-1) @ value
        return encoded + self.gamma * taken.transpose(1, 2).flatten(2)


class RpHGNN(nn.Module):
    """Random-projection heterogeneous GNN, the part that is trained: logits = MLP(Σ_r W_r · conv_r(hops of r)).

    What a relation has collected over K hops is K matrices. Each is encoded to the same width; the convolution has
    the hops as channels and a kernel of one, so that a filter is a learned weighted sum of hops, the same for all
    columns; a map per relation reads the filters side by side. Label hops are one more relation.

    After Hu, Hooi, He: Efficient Heterogeneous Graph Learning via Random Projection, 2024.

    `in_channels` are the columns of every matrix, relation after relation; `groups` the number of matrices of every
    relation, in the same order (by default all are one relation's); `filters` the sums that are learned per relation.

    Examples:
        >>> model = RpHGNN([5, 5, 5, 8, 8], 10, hidden=16, groups=[3, 2], label_channels=[10])
        >>> model([torch.randn(7, width) for width in (5, 5, 5, 8, 8)], [torch.rand(7, 10)]).shape
        torch.Size([7, 10])
    """

    def __init__(
        self, in_channels: Sequence[int], num_labels: int, hidden: int = 512, *, groups: Sequence[int] | None = None,
        label_channels: Sequence[int] = (), filters: int = 2, num_layers: int = 2, dropout: float = 0.5,
        input_dropout: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__()
        sizes = [len(in_channels)] if groups is None else [int(size) for size in groups]
        if sum(sizes) != len(in_channels) or min(sizes, default=0) < 1:
            problem = f"groups={sizes} make {sum(sizes)} matrices, but {len(in_channels)} are given"
            raise InputError(f"{problem}; name the size of every relation's group, one or more each.")
        self.sizes = [*sizes, *([len(label_channels)] if label_channels else [])]
        self.input_dropout = Dropout(input_dropout)
        widths = torch.tensor([*in_channels, *label_channels]).split(self.sizes)
        encoders = (RelationEncoder(part.tolist(), hidden, filters=filters, dropout=dropout) for part in widths)
        self.relations = nn.ModuleList(encoders)
        last = mlp([hidden] * num_layers + [num_labels], dropout)
        self.classify = nn.Sequential(nn.LayerNorm(hidden), nn.PReLU(), Dropout(dropout), last)

    def forward(self, hops: Sequence[Tensor], label_hops: Sequence[Tensor] = ()) -> Tensor:
        left = [*(self.input_dropout(values) for values in hops), *label_hops]
        if len(left) != sum(self.sizes):
            raise InputError(f"the model was made for {sum(self.sizes)} matrices, {len(left)} came.")
        total: Tensor | None = None
        for size, relation in zip(self.sizes, self.relations, strict=True):
            part, left = relation(left[:size]), left[size:]
            total = part if total is None else total + part
        return self.classify(total)


class RelationEncoder(nn.Module):
    """One relation: its hops [n, f_k] encoded, mixed by `filters` weighted sums over hops, and read by one map."""

    def __init__(self, in_channels: Sequence[int], hidden: int, *, filters: int = 2, dropout: float = 0.5) -> None:
        super().__init__()
        layers = (nn.Sequential(nn.Linear(width, hidden), nn.LayerNorm(hidden)) for width in in_channels)
        self.encode = nn.ModuleList(layers)
        self.convolve = nn.Conv1d(len(in_channels), filters, kernel_size=1)
        self.read = nn.Sequential(nn.PReLU(), Dropout(dropout), nn.Linear(filters * hidden, hidden))

    def forward(self, hops: Sequence[Tensor]) -> Tensor:
        encoded = [encode(values) for encode, values in zip(self.encode, hops, strict=True)]
        return self.read(self.convolve(torch.stack(encoded, dim=1)).flatten(1))
