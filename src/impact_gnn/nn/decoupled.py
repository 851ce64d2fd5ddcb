"""Models that read hops of any rows: Linear, SGC (last hop), SIGN (all hops), GAMLP (attention)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

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


class SGC(nn.Module):
    """Simple graph convolution: logits = f([M^K X, label hops]), f linear or (`hidden`) an MLP.

    Label hops are joined to the features. `in_channels` are the columns of the last hop, or of
    every hop.

    Examples:
        >>> SGC([5, 5, 5], 10, hidden=16)([torch.randn(7, 5) for _ in range(3)]).shape
        torch.Size([7, 10])
    """

    def __init__(
        self,
        in_channels: int | Sequence[int],
        num_labels: int,
        hidden: int | None = None,
        *,
        label_channels: Sequence[int] = (),
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        width = in_channels if isinstance(in_channels, int) else in_channels[-1]
        # Without a hidden width it is the original: one linear map.
        middle = [] if hidden is None else [hidden]
        widths = [width + sum(label_channels), *middle, num_labels]
        self.classify = mlp(widths, dropout, norm=False)

    def forward(self, hops: Hops, label_hops: Hops = ()) -> Tensor:
        return self.classify(join_columns(hops[-1], *label_hops))


class Linear(nn.Module):
    """Multinomial logistic regression on all hops and label hops; ignores `hidden` and `dropout`.

    Examples:
        >>> Linear([5, 5], 10)([torch.randn(7, 5) for _ in range(2)]).shape
        torch.Size([7, 10])
    """

    def __init__(
        self,
        in_channels: Sequence[int],
        num_labels: int,
        hidden: int | None = None,
        *,
        label_channels: Sequence[int] = (),
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.classify = nn.Linear(sum(in_channels) + sum(label_channels), num_labels)

    def forward(self, hops: Hops, label_hops: Hops = ()) -> Tensor:
        return self.classify(join_columns(*hops, *label_hops))


class SIGN(nn.Module):
    """Scalable inception: logits = MLP(σ([X W_0 | M X W_1 | ... | M^K X W_K])).

    `in_channels` are the columns of every hop, hop 0 (the features themselves) first. Label hops
    are further branches.

    Examples:
        >>> model = SIGN([5, 5, 8], 10, hidden=16, label_channels=[10])
        >>> model([torch.randn(7, width) for width in (5, 5, 8)], [torch.rand(7, 10)]).shape
        torch.Size([7, 10])
    """

    def __init__(
        self,
        in_channels: Sequence[int],
        num_labels: int,
        hidden: int = 256,
        *,
        label_channels: Sequence[int] = (),
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        # A label hop is one more branch, with an encoder of its own.
        widths = [*in_channels, *label_channels]
        self.branches = encoders(widths, hidden, dropout)
        self.classify = mlp([hidden * len(widths), hidden, num_labels], dropout)

    def forward(self, hops: Hops, label_hops: Hops = ()) -> Tensor:
        encoded = encode_each(self.branches, [*hops, *label_hops])
        return self.classify(join_columns(*encoded))


class GAMLP(nn.Module):
    """Graph attention MLP: logits = f(Σ_k α_k H_k) + MLP(labels), α a softmax over a node's hops.

    The score of hop k compares H_k with the weighted mean of the hops before it (the original's
    recursive attention). The features themselves are added to h = Σ_k α_k H_k once more (the
    residual). f has two layers. Label hops have a branch of their own, whose logits are added at
    the end; they hold known labels, and in later training stages confident predictions.

    After Zhang, Yin, Sheng et al.: Graph Attention Multi-Layer Perceptron, KDD 2022. The original
    reads labels nine hops away, through which a node reads its own label. Ours come from one and
    two hops, where paths back to the node are removed exactly (`propagation.labels`); further away
    that would need every closed path. The original has an f of six layers with residuals, encoders
    of two, a branch of labels of four and batch norm, for widths of 512 and more. At width 64 on
    AAN and the music graph none of them (4 layers in place of 6) was better on validation, mostly
    within noise, and all together were worse.

    `in_channels` are the columns of every hop, hop 0 (the features themselves) first.

    Examples:
        >>> model = GAMLP([5, 5, 5], 10, hidden=16, label_channels=[10])
        >>> model([torch.randn(7, 5) for _ in range(3)], [torch.rand(7, 10)]).shape
        torch.Size([7, 10])
    """

    def __init__(
        self,
        in_channels: Sequence[int],
        num_labels: int,
        hidden: int = 256,
        *,
        label_channels: Sequence[int] = (),
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        self.encode = encoders(in_channels, hidden, dropout)
        self.attend = HopAttention(hidden)
        # Attention may give the own features little weight; the residual keeps them in reach.
        self.residual = nn.Linear(in_channels[0], hidden)
        self.classify = nn.Sequential(
            PReLU(),
            Dropout(dropout),
            encoder(hidden, hidden, dropout),
            nn.Linear(hidden, num_labels),
        )
        self.label_branch: nn.Module | None = None
        if label_channels:
            self.label_branch = mlp([sum(label_channels), hidden, num_labels], dropout)

    def forward(self, hops: Hops, label_hops: Hops = ()) -> Tensor:
        attended = self.attend(encode_each(self.encode, hops))
        logits = self.classify(attended + self.residual(hops[0]))
        if self.label_branch is None:
            return logits
        return logits + self.label_branch(join_columns(*label_hops))


class HopAttention(nn.Module):
    """The weighted mean of the hops [n, width]; a hop is compared with the mean of those before."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.score = nn.Linear(2 * width, 1)

    def forward(self, hops: Hops) -> Tensor:
        mean = hops[0]
        scores: list[Tensor] = []
        for k, hop in enumerate(hops):
            # The score of this hop given the mean of those before it [n, 1].
            score = self.score(join_columns(mean, hop))
            scores.append(torch.sigmoid(score))
            # Shares of the hops so far [n, k], and their weighted sum [n, width].
            share = torch.softmax(join_columns(*scores), dim=1)
            hops_so_far = torch.stack([*hops[: k + 1]], dim=1)
            mean = torch.einsum("nk,nkf->nf", share, hops_so_far)
        return mean
