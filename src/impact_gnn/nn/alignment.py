"""Alignment as layers: `JJNorm`, `PNY`, `TimeCenter` and `TimeStandardize` for use inside any PyG model.

They hold no arithmetic of their own (that is `impact_gnn.alignment`) and no parameters. Who belongs together is
found once, when the layer is made, and kept in buffers that move with the model but stay out of its state_dict.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from impact_gnn import alignment
from impact_gnn.alignment import Communities
from impact_gnn.alignment.pny import Connectivity


class _Grouped(nn.Module):
    """A layer that knows the communities of a graph's nodes."""

    group: Tensor
    labelled: Tensor

    def __init__(self, label: Tensor, time: Tensor, target: Tensor) -> None:
        super().__init__()
        found = Communities.of(label, time, target, torch.empty(0))
        self.times, self.num_labels = found.times, found.num_labels
        self.register_buffer("group", found.group, persistent=False)
        self.register_buffer("labelled", found.labelled, persistent=False)

    @property
    def communities(self) -> Communities:
        """The grouping, on the layer's device."""
        return Communities(self.times, self.num_labels, self.group, self.labelled)

    def extra_repr(self) -> str:
        """Sizes for the repr."""
        return f"num_nodes={len(self.group)}, num_times={len(self.times)}, num_labels={self.num_labels}"


class JJNorm(_Grouped):
    """`alignment.jjnorm` on every message that passes; identity on target and unlabelled nodes.

    Args:
        label: Labels [N], −1 unknown; those of target nodes are not looked at.
        time: Integer time [N].
        target: Mask of the target nodes [N].

    Example:
        >>> norm = JJNorm(torch.tensor([0, 0, -1, -1]), torch.tensor([1, 1, 2, 2]), torch.tensor([0, 0, 1, 1]).bool())
        >>> norm(torch.tensor([[0.0], [2.0], [10.0], [14.0]])).flatten().tolist()
        [-1.0, 3.0, 10.0, 14.0]
        >>> norm
        JJNorm(num_nodes=4, num_times=2, num_labels=1)
    """

    def forward(self, message: Tensor) -> Tensor:
        """The message with every labelled period's spread made to fit the target's."""
        return alignment.jjnorm_by(message, self.communities)


class PNY(_Grouped):
    """`alignment.pny` on every message that passes; identity on target and unlabelled nodes.

    The coefficients of the covariances depend on the graph only and are computed once.

    Args:
        label: Labels [N], −1 unknown.
        time: Integer time [N].
        target: Mask of the target nodes [N].
        connectivity: The estimated relative connectivity.
        degree: Number of neighbours of every node [N]; by default equal for all.
        table: The weighting table the messages are made with; by default plain.
        map: "transport" or "eigen".
        exact_gradient: Differentiate the maps too; otherwise they count as constants, which is cheaper.
    """

    def __init__(
        self,
        label: Tensor,
        time: Tensor,
        target: Tensor,
        *,
        connectivity: Connectivity,
        degree: Tensor | None = None,
        table: np.ndarray | None = None,
        map: str = "transport",
        exact_gradient: bool = True,
    ) -> None:
        super().__init__(label, time, target)
        self.exact_gradient = exact_gradient
        self.weights = alignment.coefficients(self.communities, connectivity, degree, table)
        self.map = map

    def forward(self, message: Tensor, previous: Tensor) -> Tensor:
        """The message with every community's covariance mapped to the last time's; `previous` was aggregated."""
        return alignment.pny_by(
            message, previous, self.communities, self.weights, map=self.map, exact_gradient=self.exact_gradient
        )


class TimeCenter(nn.Module):
    """`alignment.center` on every message that passes; needs no labels and moves every node.

    Example:
        >>> TimeCenter(torch.tensor([0, 0, 1]))(torch.tensor([[0.0], [2.0], [7.0]])).flatten().tolist()
        [2.0, 4.0, 3.0]
    """

    period: Tensor

    def __init__(self, time: Tensor) -> None:
        super().__init__()
        period, self.num_periods = alignment.by_period(torch.empty(len(time), 0), time)
        self.register_buffer("period", period, persistent=False)

    def forward(self, message: Tensor) -> Tensor:
        """The message with every period's mean replaced by the overall mean."""
        return alignment.center_by(message, self.period, self.num_periods)

    def extra_repr(self) -> str:
        """Sizes for the repr."""
        return f"num_nodes={len(self.period)}, num_periods={self.num_periods}"


class TimeStandardize(TimeCenter):
    """`alignment.standardize` on every message that passes: centred and scaled per period."""

    def forward(self, message: Tensor) -> Tensor:
        """The message with every period's mean and spread replaced by the overall ones."""
        return alignment.standardize_by(message, self.period, self.num_periods)
