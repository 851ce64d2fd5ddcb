"""Models for several node types: SeHGNN reads a matrix per metapath, RpHGNN groups of matrices."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu

from impact_gnn.checks import InputError
from impact_gnn.nn.blocks import (
    Dropout,
    Hops,
    PReLU,
    encode_each,
    encoder,
    encoders,
    join_columns,
    mlp,
)

INPUT_DROPOUT = 0.1
FILTERS = 2  # weighted sums of hops that are learned per group


class SeHGNN(nn.Module):
    """Simple and efficient heterogeneous GNN: logits = MLP(fusion(encoded metapaths)).

    Every metapath's matrix (the features themselves are the path of no steps) has an encoder of its
    own. Then the metapaths of a node attend to each other:
    h_i = e_i + γ Σ_j softmax_j(q_i·k_j) v_j, with γ learned from zero, so that training begins
    without attention. Label metapaths are further metapaths, and together they have a branch of
    their own, whose logits are added at the end. The features are added once more before the last
    layers.

    After Yang, Yan, Pan, Ye, Fan: Simple and Efficient Heterogeneous Graph Neural Network, AAAI
    2023. The original has encoders of two layers, a branch of labels of four and batch norm
    ("sehgnn-original" of the studies). In back-tests on four graphs the first two lost .8 points on
    average to ours, and the norm made no difference (docs/models.md).

    `in_channels` are the columns of every metapath, the features themselves first.

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
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        # Label metapaths are encoded as feature metapaths are.
        widths = [*in_channels, *label_channels]
        self.input_dropout = Dropout(INPUT_DROPOUT)
        self.encode = encoders(widths, hidden, dropout)
        self.fuse = SemanticFusion(hidden)
        self.join = nn.Linear(len(widths) * hidden, hidden)
        self.residual = nn.Linear(in_channels[0], hidden)
        last = mlp([hidden, hidden, num_labels], dropout)
        self.classify = nn.Sequential(PReLU(), Dropout(dropout), last)
        self.label_branch: nn.Module | None = None
        if label_channels:
            self.label_branch = nn.Linear(sum(label_channels), num_labels)

    def forward(self, hops: Hops, label_hops: Hops = ()) -> Tensor:
        hops = list(map(self.input_dropout, hops))
        encoded = encode_each(self.encode, [*hops, *label_hops])
        # All metapaths of a node side by side [n, m, hidden], then mixed by attention.
        fused = self.fuse(torch.stack(encoded, dim=1))
        # Joined to one row [n, hidden]; the own features are added once more.
        joined = self.join(fused.flatten(1)) + self.residual(hops[0])
        logits = self.classify(joined)
        if self.label_branch is None:
            return logits
        return logits + self.label_branch(join_columns(*label_hops))


class SemanticFusion(nn.Module):
    """Attention among the metapaths e [n, m, width] of each node.

    e_i + γ Σ_j softmax_j(σ(q_i·k_j / √d)) v_j, where σ is a leaky ReLU, so that very negative
    scores do not exclude a metapath. Queries and keys have a quarter of the columns of values; they
    only rank a few metapaths.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        rank = max(width // 4, 1)
        self.query = nn.Linear(width, rank)
        self.key = nn.Linear(width, rank)
        self.value = nn.Linear(width, width)
        # Starts at zero: attention enters only as far as it helps.
        self.gamma = nn.Parameter(torch.zeros(1))

    def forward(self, encoded: Tensor) -> Tensor:
        query = self.query(encoded)
        # scores of all pairs of metapaths [n, m, m]
        scores = query @ self.key(encoded).mT / query.shape[-1] ** 0.5
        # Weights sum to 1 over the attended metapaths, [n, m, m].
        share = torch.softmax(leaky_relu(scores, 0.2), dim=-1)
        return encoded + self.gamma * (share @ self.value(encoded))


class RpHGNN(nn.Module):
    """Random-projection heterogeneous GNN, trained part: logits = MLP([g_1(hops) | ... ]).

    The K hops along a relation are a group of matrices, read by a `GroupEncoder` g. A matrix may be
    in several groups, as the node's own features are. Every label hop is a group of its own.

    After Hu, Hooi, He: Efficient Heterogeneous Graph Learning via Random Projection, 2024. The
    original's encoders have two layers; on AAN (1,631 labels, five seeds) one was better on
    validation.

    Args:
        in_channels: Columns of every matrix.
        groups: Positions of the matrices of every group; by default all are one group.

    Examples:
        >>> widths, groups = [5, 5, 5, 8, 8], [[0, 1, 2], [0, 3, 4]]
        >>> model = RpHGNN(widths, 10, hidden=16, groups=groups, label_channels=[10])
        >>> model([torch.randn(7, width) for width in widths], [torch.rand(7, 10)]).shape
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
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        count = len(in_channels)
        positions = [list(range(count))]
        if groups is not None:
            positions = [[int(k) for k in group] for group in groups]
        if set(chain(*positions)) != set(range(count)) or not all(positions):
            raise InputError(
                f"groups={positions} should name the positions 0 to {count - 1} of the matrices, "
                "each at least once, and hold one or more each."
            )
        widths = [*in_channels, *label_channels]
        # Label hops follow the feature matrices in the inputs, each as a group of one.
        self.groups = [*positions, *([k] for k in range(count, len(widths)))]
        self.input_dropout = Dropout(INPUT_DROPOUT)
        self.encode = nn.ModuleList()
        for group in self.groups:
            group_widths = [widths[k] for k in group]
            self.encode.append(GroupEncoder(group_widths, hidden, dropout))
        self.classify = mlp([hidden * len(self.groups), hidden, num_labels], dropout)

    def forward(self, hops: Hops, label_hops: Hops = ()) -> Tensor:
        inputs = [*map(self.input_dropout, hops), *label_hops]
        groups = [[inputs[k] for k in group] for group in self.groups]
        encoded = encode_each(self.encode, groups)
        return self.classify(join_columns(*encoded))


class GroupEncoder(nn.Module):
    """The encoder of one group: MLP(conv(hops)), where hops [n, f] are channels of a 1×1 kernel.

    So a filter is a learned weighted sum of hops, the same for all columns. Hops narrower than the
    widest are first mapped to its width; a single hop needs no convolution.
    """

    def __init__(self, in_channels: Sequence[int], hidden: int, share: float) -> None:
        super().__init__()
        count = len(in_channels)
        width = max(in_channels)
        self.widen = nn.ModuleList(
            nn.Identity() if w == width else nn.Linear(w, width) for w in in_channels
        )
        self.convolve: nn.Module = nn.Identity()
        if count > 1:
            self.convolve = nn.Conv1d(count, FILTERS, kernel_size=1)
            # Independent random filters might all ignore a hop.
            nn.init.orthogonal_(self.convolve.weight[:, :, 0])
            width *= FILTERS
        self.read = encoder(width, hidden, share)

    def forward(self, hops: Hops) -> Tensor:
        # [n, hops, width] → [n, filters, width] → [n, filters · width].
        widened = torch.stack(encode_each(self.widen, hops), dim=1)
        return self.read(self.convolve(widened).flatten(1))
