"""Models that read the hops of several node types: SeHGNN one matrix per metapath, RpHGNN groups of matrices."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu

from impact_gnn.checks import InputError
from impact_gnn.nn.blocks import Dropout, encoder, label_branch, mlp


class SeHGNN(nn.Module):
    """Simple and efficient heterogeneous GNN: logits = MLP([h_1 | ... | h_m]) with h = fusion(encoded metapaths).

    Every metapath's matrix (the features themselves are the path of no steps) is encoded by a map
    of its own. Then the metapaths of a node look at each other: h_i = e_i + γ Σ_j
    softmax_j(q_i·k_j) v_j, with γ learned from zero, so that training begins with every metapath by
    itself. Label metapaths are further metapaths, and all of them together have a branch of their
    own, whose logits are added at the end.

    After Yang, Yan, Pan, Ye, Fan: Simple and Efficient Heterogeneous Graph Neural Network, AAAI
        2023. The original has
    encoder_layers=2, label_layers=4 and norm="batch" ("sehgnn-original" of pipelines). On past
    windows of four graphs the first two lost .8 points on average to the defaults, and the norm
    made no difference (docs/models.md).

    Args:
        in_channels: Columns of every metapath, the features themselves first.
        num_layers: Linear layers after the fusion.
        encoder_layers: Layers that encode a metapath.
        label_layers: Linear layers of the branch of labels; 0 for no such branch.
        norm: "batch", "layer" or "none", between the last layers.
        residual: Add the features once more before the last layers.

    Examples:
        >>> model = SeHGNN([5, 5, 8], 10, hidden=16, label_channels=[10])
        >>> model([torch.randn(7, width) for width in (5, 5, 8)], [torch.rand(7, 10)]).shape
        torch.Size([7, 10])
    """

    def __init__(
        self,
        in_channels: Sequence[int],
        num_labels: int,
        hidden: int = 512,
        *,
        label_channels: Sequence[int] = (),
        heads: int = 1,
        num_layers: int = 2,
        encoder_layers: int = 1,
        label_layers: int = 1,
        norm: str = "layer",
        residual: bool = True,
        dropout: float = 0.5,
        input_dropout: float = 0.1,
    ) -> None:
        super().__init__()
        widths = [*in_channels, *label_channels]
        self.input_dropout = Dropout(input_dropout)
        self.encode = nn.ModuleList(
            encoder(width, hidden, dropout, layers=encoder_layers) for width in widths
        )
        self.fuse = SemanticFusion(hidden, heads=heads)
        self.join = nn.Linear(len(widths) * hidden, hidden)
        self.residual = nn.Linear(in_channels[0], hidden) if residual else None
        last = mlp([hidden] * num_layers + [num_labels], dropout, norm=norm)
        self.classify = nn.Sequential(nn.PReLU(), Dropout(dropout), last)
        self.label_branch = label_branch(label_channels, hidden, num_labels, label_layers, dropout)

    def forward(self, hops: Sequence[Tensor], label_hops: Sequence[Tensor] = ()) -> Tensor:
        hops = [self.input_dropout(values) for values in hops]
        inputs = zip(self.encode, [*hops, *label_hops], strict=True)
        fused = self.fuse(torch.stack([encode(values) for encode, values in inputs], dim=1))
        joined = self.join(fused.flatten(1))
        if self.residual is not None:
            joined = joined + self.residual(hops[0])
        logits = self.classify(joined)
        return (
            logits
            if self.label_branch is None
            else logits + self.label_branch(torch.cat([*label_hops], dim=1))
        )


class SemanticFusion(nn.Module):
    """Attention among the metapaths of each node: e_i + γ Σ_j softmax_j(σ(q_i·k_j / √d)) v_j, over e [n, m, width].

    σ is a leaky ReLU: a metapath is not passed over because its score is very negative.
    Queries and keys have `narrower` times fewer columns than values; they only rank a few
    metapaths.
    """

    def __init__(self, width: int, *, heads: int = 1, narrower: int = 4) -> None:
        super().__init__()
        if heads < 1 or width % heads:
            raise InputError(
                f"{width} columns cannot be shared by {heads} heads; choose a divisor."
            )
        self.heads = heads
        rank = heads * max(width // heads // narrower, 1)
        self.query, self.key = nn.Linear(width, rank), nn.Linear(width, rank)
        self.value = nn.Linear(width, width)
        self.gamma = nn.Parameter(torch.zeros(1))

    def forward(self, encoded: Tensor) -> Tensor:
        layers = (self.query, self.key, self.value)  # [n, m, width] → [n, heads, m, width / heads]
        query, key, value = (
            layer(encoded).unflatten(-1, (self.heads, -1)).transpose(1, 2) for layer in layers
        )
        scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
        taken = torch.softmax(leaky_relu(scores, 0.2), dim=-1) @ value
        return encoded + self.gamma * taken.transpose(1, 2).flatten(2)


class RpHGNN(nn.Module):
    """Random-projection heterogeneous GNN, the part that is trained: logits = MLP([g_1(hops) | ... | g_m(hops)]).

    What a relation has collected over K hops is a group of matrices, read by a `GroupEncoder` g. A
    matrix may be in several groups, as the node's own features are. Every label hop is a group of
    its own.

    After Hu, Hooi, He: Efficient Heterogeneous Graph Learning via Random Projection, 2024. The
        original has
    encoder_layers=2; on AAN (1,631 labels, five seeds) one was better on validation.

    Args:
        in_channels: Columns of every matrix.
        groups: Positions of the matrices of every group; by default all are one group.
        filters: Weighted sums of hops that are learned per group.
        num_layers: Linear layers after the groups are joined.
        encoder_layers: Layers of the map of a group.
        norm: "batch", "layer" or "none", in all of them.

    Examples:
        >>> model = RpHGNN([5, 5, 5, 8, 8], 10, hidden=16, groups=[[0, 1, 2], [0, 3, 4]], label_channels=[10])
        >>> model([torch.randn(7, width) for width in (5, 5, 5, 8, 8)], [torch.rand(7, 10)]).shape
        torch.Size([7, 10])
    """

    def __init__(
        self,
        in_channels: Sequence[int],
        num_labels: int,
        hidden: int = 512,
        *,
        groups: Sequence[Sequence[int]] | None = None,
        label_channels: Sequence[int] = (),
        filters: int = 2,
        num_layers: int = 2,
        encoder_layers: int = 1,
        norm: str = "layer",
        dropout: float = 0.5,
        input_dropout: float = 0.1,
    ) -> None:
        super().__init__()
        count = len(in_channels)
        given = (
            [list(range(count))]
            if groups is None
            else [[int(k) for k in group] for group in groups]
        )
        if sorted({k for group in given for k in group}) != list(range(count)) or not all(given):
            named = f"groups={given} should name the positions 0 to {count - 1} of the matrices"
            raise InputError(f"{named}, each at least once, and hold one or more each.")
        self.groups = [*given, *([count + k] for k in range(len(label_channels)))]
        self.input_dropout = Dropout(input_dropout)
        widths = [*in_channels, *label_channels]
        self.encode = nn.ModuleList(
            GroupEncoder(
                [widths[k] for k in group],
                hidden,
                filters,
                dropout,
                layers=encoder_layers,
                norm=norm,
            )
            for group in self.groups
        )
        self.classify = mlp(
            [hidden * len(self.groups), *[hidden] * (num_layers - 1), num_labels],
            dropout,
            norm=norm,
        )

    def forward(self, hops: Sequence[Tensor], label_hops: Sequence[Tensor] = ()) -> Tensor:
        inputs = [*(self.input_dropout(values) for values in hops), *label_hops]
        if len(inputs) != (asked := 1 + max(map(max, self.groups))):
            raise InputError(f"the model was made for {asked} matrices, {len(inputs)} came.")
        read = (
            encode([inputs[k] for k in group])
            for group, encode in zip(self.groups, self.encode, strict=True)
        )
        return self.classify(torch.cat([*read], dim=1))


class GroupEncoder(nn.Module):
    """One group: MLP(conv(hops)), the convolution over raw hops [n, f] as channels with a kernel of one.

    So a filter is a learned weighted sum of hops, the same for all columns. Hops narrower than the
    widest are first brought to its width; a single hop needs no convolution.
    """

    def __init__(
        self,
        in_channels: Sequence[int],
        hidden: int,
        filters: int,
        share: float,
        *,
        layers: int,
        norm: str,
    ) -> None:
        super().__init__()
        count, width = len(in_channels), max(in_channels)
        self.widen = nn.ModuleList(
            nn.Identity() if w == width else nn.Linear(w, width) for w in in_channels
        )
        self.convolve: nn.Module = nn.Identity()
        if count > 1:
            self.convolve = nn.Conv1d(count, filters, kernel_size=1)
            # filters drawn apart might all pass over a hop
            nn.init.orthogonal_(self.convolve.weight[:, :, 0])
        read = width * (filters if count > 1 else 1)
        self.read = encoder(read, hidden, share, layers=layers, norm=norm)

    def forward(self, hops: Sequence[Tensor]) -> Tensor:
        same = [widen(values) for widen, values in zip(self.widen, hops, strict=True)]
        return self.read(self.convolve(torch.stack(same, dim=1)).flatten(1))
