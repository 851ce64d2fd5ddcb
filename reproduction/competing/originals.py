"""Layers and models as published, which were no better than the smaller ones of `impact_gnn.nn`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from torch import Tensor, nn
from torch.nn import functional

from impact_gnn import checks
from impact_gnn.nn import GAMLP, SeHGNN
from impact_gnn.nn.blocks import Dropout, PReLU
from impact_gnn.nn.decoupled import HopAttention
from impact_gnn.nn.hetero import SemanticFusion


class BatchNorm(nn.BatchNorm1d):
    """Batch norm that can be evaluated after a few steps, and that takes a batch of one row.

    Running statistics are the mean over the first ten steps and a moving mean from then on: torch's
    own begin at 0 and 1 and are still wrong after ten. They also normalise a single row in
    training, which has no variance. Where a layer is computed again in the backward pass,
    `tracks = False` prevents counting a step twice.

    Examples:
        >>> import torch
        >>> norm, x = BatchNorm(3), 5 + 2 * torch.randn(1000, 3)
        >>> torch.allclose(norm(x), norm.eval()(x), atol=1e-2)
        True
    """

    tracks = True

    def forward(self, x: Tensor) -> Tensor:
        uses_running = not self.training or len(x) < 2
        if uses_running or not self.tracks:
            # Running statistics, or those of the batch without counting a step.
            statistics: tuple[Tensor | None, Tensor | None] = (None, None)
            if uses_running:
                statistics = (self.running_mean, self.running_var)
            return functional.batch_norm(
                x,
                *statistics,
                weight=self.weight,
                bias=self.bias,
                training=not uses_running,
                eps=self.eps,
            )
        assert self.num_batches_tracked is not None
        # A plain mean over the first ten steps, an exponential one after them.
        self.momentum = max(0.1, 1 / (1 + int(self.num_batches_tracked)))
        return super().forward(x)


NORMS: dict[str, Callable[[int], nn.Module] | None] = {
    "batch": BatchNorm,
    "layer": nn.LayerNorm,
    "none": None,
}


def norms(name: str, width: int) -> list[nn.Module]:
    """Build the norm of this name in `NORMS`: a list of one layer, or of none."""
    build = NORMS[checks.choice("norm", name, NORMS)]
    if build is None:
        return []
    return [build(width)]


def encoder(
    width: int, hidden: int, share: float, *, layers: int = 1, norm: str = "layer"
) -> nn.Sequential:
    """Build the layers that map one hop of `width` columns to the model's hidden width."""
    modules: list[nn.Module] = []
    for _ in range(layers):
        modules += [
            nn.Linear(width, hidden),
            *norms(norm, hidden),
            PReLU(),
            Dropout(share),
        ]
        width = hidden
    return nn.Sequential(*modules)


def mlp(widths: Sequence[int], share: float, *, norm: str) -> nn.Sequential:
    """Build linear layers of these widths with a norm, ReLU and dropout between them."""
    layers: list[nn.Module] = []
    for first, second in pairwise(widths[:-1]):
        layers += [
            nn.Linear(first, second),
            *norms(norm, second),
            nn.ReLU(),
            Dropout(share),
        ]
    return nn.Sequential(*layers, nn.Linear(widths[-2], widths[-1]))


def label_branch(
    label_channels: Sequence[int], hidden: int, num_labels: int, layers: int, share: float
) -> nn.Sequential | None:
    """Build the MLP from label hops to additional logits; None without label hops."""
    if not label_channels:
        return None
    return mlp([sum(label_channels), *[hidden] * (layers - 1), num_labels], share, norm="layer")


class ResidualMLP(nn.Module):
    """An MLP with residuals: h ← dropout(σ(norm((h + h_0)/2 · W) + h)) in middle layers.

    `layers` counts all linear ones; with one or two there are no middle layers.

    Examples:
        >>> import torch
        >>> ResidualMLP(5, 16, 3, layers=4)(torch.randn(7, 5)).shape
        torch.Size([7, 3])
    """

    def __init__(
        self,
        width: int,
        hidden: int,
        out: int,
        layers: int,
        share: float = 0.0,
        *,
        norm: str = "layer",
    ) -> None:
        super().__init__()
        count = max(layers - 2, 0)
        # A single layer is `last` alone.
        self.first: nn.Module = nn.Identity()
        if layers > 1:
            self.first = encoder(width, hidden, share, norm=norm)
            width = hidden
        self.middle = nn.ModuleList()
        self.after = nn.ModuleList()
        for _ in range(count):
            self.middle.append(nn.Sequential(nn.Linear(hidden, hidden), *norms(norm, hidden)))
            self.after.append(nn.Sequential(PReLU(), Dropout(share)))
        self.last = nn.Linear(width, out)

    def forward(self, x: Tensor) -> Tensor:
        hidden = first = self.first(x)
        for layer, after in zip(self.middle, self.after, strict=True):
            # Half of every layer's input is the first layer, so that depth does not blur it.
            hidden = after(layer(0.5 * hidden + 0.5 * first) + hidden)
        return self.last(hidden)


class OriginalGAMLP(GAMLP):
    """GAMLP with encoders of two layers, a head of six, a branch of labels of four, batch norm.

    Residuals of the head begin with the third layer.
    """

    def __init__(
        self,
        in_channels: Sequence[int],
        num_labels: int,
        hidden: int = 512,
        *,
        label_channels: Sequence[int] = (),
        num_layers: int = 6,
        dropout: float = 0.5,
    ) -> None:
        nn.Module.__init__(self)
        self.encode = nn.ModuleList(
            encoder(width, hidden, dropout, layers=2, norm="batch") for width in in_channels
        )
        self.attend = HopAttention(hidden)
        self.residual = nn.Linear(in_channels[0], hidden)
        last = ResidualMLP(
            hidden,
            hidden,
            num_labels,
            num_layers,
            dropout,
            norm="batch",
        )
        self.classify = nn.Sequential(
            PReLU(),
            Dropout(dropout),
            last,
        )
        self.label_branch = label_branch(
            label_channels,
            hidden,
            num_labels,
            4,
            dropout,
        )


class OriginalSeHGNN(SeHGNN):
    """SeHGNN with encoders of two layers, a branch of labels of four, and batch norm."""

    def __init__(
        self,
        in_channels: Sequence[int],
        num_labels: int,
        hidden: int = 512,
        *,
        label_channels: Sequence[int] = (),
        dropout: float = 0.5,
    ) -> None:
        nn.Module.__init__(self)
        widths = [*in_channels, *label_channels]
        self.input_dropout = Dropout(0.1)
        self.encode = nn.ModuleList(
            encoder(width, hidden, dropout, layers=2, norm="layer") for width in widths
        )
        self.fuse = SemanticFusion(hidden)
        self.join = nn.Linear(len(widths) * hidden, hidden)
        self.residual = nn.Linear(in_channels[0], hidden)
        last = mlp([hidden, hidden, num_labels], dropout, norm="batch")
        self.classify = nn.Sequential(
            PReLU(),
            Dropout(dropout),
            last,
        )
        self.label_branch = label_branch(
            label_channels,
            hidden,
            num_labels,
            4,
            dropout,
        )
