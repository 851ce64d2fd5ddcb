"""Building blocks of several models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from impact_gnn import checks

Hops: TypeAlias = Sequence[Tensor]
"""One matrix [n, f_k] per hop."""


class Dropout(nn.Module):
    """Dropout that is about nine times as fast as `torch.nn.Dropout` on a CPU.

    Torch draws a float for every unit, which takes half of the time of training a SIGN of width 64.
    Here a byte is drawn: the share is rounded to 1/256, and the other units are scaled accordingly.

    Examples:
        >>> x = Dropout(0.5)(torch.ones(1000, 8))
        >>> sorted(set(x.flatten().tolist())), 0.9 < float(x.mean()) < 1.1
        ([0.0, 2.0], True)
    """

    def __init__(self, share: float = 0.5) -> None:
        super().__init__()
        self.share = share

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.share, self.training)

    def extra_repr(self) -> str:
        return f"{self.share:g}"


def dropout(x: Tensor, share: float, training: bool) -> Tensor:
    """Apply `Dropout` as a function."""
    # Of the 256 values of a byte, this many drop a unit.
    dropped = round(256 * share)
    if not training or share == 0:
        return x
    if x.device.type != "cpu" or not 0 < dropped < 256:
        return functional.dropout(x, share, training)
    # Each random 64-bit word serves eight units.
    size = x.numel()
    words = torch.empty((size + 7) // 8, dtype=torch.int64).random_(-(2**63), None)
    # The last word may have more bytes than are needed.
    byte = words.view(torch.uint8)[:size]
    byte = byte.view(x.shape).to(x.dtype)
    # 1 where byte >= dropped, else 0: on floats, this takes a third of a comparison's time.
    remains = byte.sub_(dropped - 1).clamp_(0, 1)
    # Scaled by the share that really remains, so that the mean is exact.
    return x * remains.mul_(256 / (256 - dropped))


class PReLU(nn.PReLU):
    """`torch.nn.PReLU` with one slope, in half of its time on a CPU.

    Torch computes its gradient value by value; two rectifiers are vectorised.

    Examples:
        >>> PReLU()(torch.tensor([-4.0, 2.0]))
        tensor([-1.,  2.], grad_fn=<SubBackward0>)
    """

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(x) - self.weight * functional.relu(-x)


class BatchNorm(nn.BatchNorm1d):
    """Batch norm that can be evaluated after a few steps, and that takes a batch of one row.

    Running statistics are the mean over the first ten steps and a moving mean from then on: torch's
    own begin at 0 and 1 and are still wrong after ten. They also normalise a single row in
    training, which has no variance. Where a layer is computed again in the backward pass,
    `tracks = False` prevents counting a step twice.

    Examples:
        >>> norm, x = BatchNorm(3), 5 + 2 * torch.randn(1000, 3)
        >>> torch.allclose(norm(x), norm.eval()(x), atol=1e-2)
        True
    """

    tracks = True

    def forward(self, x: Tensor) -> Tensor:
        uses_running = not self.training or len(x) < 2
        if uses_running or not self.tracks:
            # Running statistics, or those of the batch without counting a step.
            return functional.batch_norm(
                x,
                self.running_mean if uses_running else None,
                self.running_var if uses_running else None,
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
    return [] if build is None else [build(width)]


def mlp(widths: Sequence[int], share: float = 0.0, *, norm: str = "layer") -> nn.Sequential:
    """Build linear layers of these widths with a norm, ReLU and dropout between them.

    Examples:
        >>> mlp([5, 16, 3], 0.5)(torch.randn(7, 5)).shape
        torch.Size([7, 3])
    """
    layers: list[nn.Module] = []
    # The last layer has no norm and no activation.
    for first, second in pairwise(widths[:-1]):
        layers += [nn.Linear(first, second), *norms(norm, second), nn.ReLU(), Dropout(share)]
    return nn.Sequential(*layers, nn.Linear(widths[-2], widths[-1]))


def encoder(
    width: int, hidden: int, share: float, *, layers: int = 1, norm: str = "layer"
) -> nn.Sequential:
    """Build the layers that map one hop of `width` columns to the model's hidden width."""
    modules: list[nn.Module] = []
    for _ in range(layers):
        modules += [nn.Linear(width, hidden), *norms(norm, hidden), PReLU(), Dropout(share)]
        width = hidden
    return nn.Sequential(*modules)


def label_branch(
    label_channels: Sequence[int], hidden: int, num_labels: int, layers: int, share: float
) -> nn.Sequential | None:
    """Build the MLP from label hops to additional logits; None without label hops or layers."""
    if not label_channels or not layers:
        return None
    return mlp([sum(label_channels), *[hidden] * (layers - 1), num_labels], share)


class ResidualMLP(nn.Module):
    """An MLP with residuals: h ← dropout(σ(norm((h + h_0)/2 · W) + h)) in middle layers.

    `layers` counts all linear ones; with one or two there are no middle layers and this is `mlp`.

    Examples:
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
