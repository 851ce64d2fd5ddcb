"""GAMLP: every node decides for itself how much each hop counts."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from impact_gnn import checks
from impact_gnn.nn.blocks import Dropout, mlp

ATTENTIONS = ("recursive", "jk")


class GAMLP(nn.Module):
    """Graph attention MLP: h = Σ_k α_k H_k with α = softmax over the node's own hops, logits = MLP(h) + MLP(labels).

    The score of hop k compares H_k with a reference: for "recursive" attention the weighted mean of the hops
    before it, for "jk" (jumping knowledge) what an MLP makes of all hops together. The features themselves are
    added to h once more (the residual). Label hops have a branch of their own, whose logits are added at the end;
    they hold known labels, and in later stages of `fit_stages` reliable predictions.

    Args:
        in_channels: Columns of every hop, hop 0 (the features themselves) first.
        num_labels: Number of classes.
        hidden: Width.
        attention: "recursive" or "jk".
        label_channels: Columns of every label hop.
        num_layers: Layers of the MLP after the attention.
        residual: Whether the features are added to the attended hops.
        dropout: Share of hidden units left out in training.

    Example:
        >>> model = GAMLP([5, 5, 5], 10, hidden=16, attention="jk", label_channels=[10])
        >>> model([torch.randn(7, 5) for _ in range(3)], [torch.rand(7, 10)]).shape
        torch.Size([7, 10])
    """

    def __init__(
        self,
        in_channels: Sequence[int],
        num_labels: int,
        hidden: int = 256,
        *,
        attention: str = "recursive",
        label_channels: Sequence[int] = (),
        num_layers: int = 2,
        residual: bool = True,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        checks.choice("attention", attention, ATTENTIONS)
        self.encode = nn.ModuleList(
            nn.Sequential(nn.Linear(width, hidden), nn.LayerNorm(hidden), nn.PReLU(), Dropout(dropout))
            for width in in_channels
        )
        kind = RecursiveAttention if attention == "recursive" else JumpingAttention
        self.attend = kind(len(in_channels), hidden)
        self.residual = nn.Linear(in_channels[0], hidden) if residual else None
        self.classify = nn.Sequential(nn.PReLU(), Dropout(dropout), mlp([*[hidden] * num_layers, num_labels], dropout))
        self.label_branch = mlp([sum(label_channels), hidden, num_labels], dropout) if label_channels else None

    def forward(self, hops: Sequence[Tensor], label_hops: Sequence[Tensor] = ()) -> Tensor:
        """Logits [n, num_labels] of any rows."""
        encoded = [layer(values) for layer, values in zip(self.encode, hops, strict=True)]
        mixed = self.attend(encoded)
        if self.residual is not None:
            mixed = mixed + self.residual(hops[0])
        logits = self.classify(mixed)
        return logits if self.label_branch is None else logits + self.label_branch(torch.cat([*label_hops], dim=1))


class RecursiveAttention(nn.Module):
    """Hop k is scored against the weighted mean of hops 0 .. k−1 (hop 0 against itself)."""

    def __init__(self, num_hops: int, width: int) -> None:
        super().__init__()
        self.num_hops = num_hops
        self.score = nn.Linear(2 * width, 1)

    def forward(self, hops: Sequence[Tensor]) -> Tensor:
        """The attended mean of the hops [n, width]."""
        reference = hops[0]
        scores: list[Tensor] = []
        for k, hop in enumerate(hops):
            scores.append(torch.sigmoid(self.score(torch.cat([reference, hop], dim=1))))
            reference = weighted_mean(scores, hops[: k + 1])
        return reference


class JumpingAttention(nn.Module):
    """Every hop is scored against one reference made of all hops."""

    def __init__(self, num_hops: int, width: int) -> None:
        super().__init__()
        self.reference = mlp([num_hops * width, width, width], norm=False)
        self.score = nn.Linear(2 * width, 1)

    def forward(self, hops: Sequence[Tensor]) -> Tensor:
        """The attended mean of the hops [n, width]."""
        reference = self.reference(torch.cat([*hops], dim=1))
        scores = [torch.sigmoid(self.score(torch.cat([reference, hop], dim=1))) for hop in hops]
        return weighted_mean(scores, hops)


def weighted_mean(scores: Sequence[Tensor], hops: Sequence[Tensor]) -> Tensor:
    """Σ_k softmax(scores)_k · hop_k."""
    share = torch.softmax(torch.cat([*scores], dim=1), dim=1)
    return torch.einsum("nk,nkf->nf", share, torch.stack([*hops], dim=1))
