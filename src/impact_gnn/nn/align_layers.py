"""Alignment as layers for any PyG model; the arithmetic is in `impact_gnn.alignment`.

The layers have no parameters. Communities are buffers that move with the model but are not in its
state_dict.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor, nn

from impact_gnn import alignment, checks
from impact_gnn.alignment import Communities
from impact_gnn.alignment.pny import Connectivity
from impact_gnn.connectivity import relative_connectivity
from impact_gnn.graph import TemporalGraph
from impact_gnn.nn.sparse import Propagation


class _Grouped(nn.Module):
    """A layer that knows the communities of a graph's nodes."""

    group: Tensor
    labelled: Tensor

    def __init__(self, label: Tensor, time: Tensor, target: Tensor) -> None:
        super().__init__()
        # Grouped once: labels and times do not change during training.
        communities = Communities.of(label, time, target, torch.empty(0))
        self.times = communities.times
        self.num_labels = communities.num_labels
        # Buffers follow the model to its device, but a state_dict must fit other graphs.
        self.register_buffer("group", communities.group, persistent=False)
        self.register_buffer("labelled", communities.labelled, persistent=False)

    @property
    def communities(self) -> Communities:
        return Communities(self.times, self.num_labels, self.group, self.labelled)

    def extra_repr(self) -> str:
        sizes = f"num_nodes={len(self.group)}, num_times={len(self.times)}"
        return f"{sizes}, num_labels={self.num_labels}"


class JJNorm(_Grouped):
    """`alignment.jjnorm` on every message that passes; identity on target and unlabelled nodes.

    Examples:
        >>> label, time = torch.tensor([0, 0, -1, -1]), torch.tensor([1, 1, 2, 2])
        >>> norm = JJNorm(label, time, target=time == 2)
        >>> norm(torch.tensor([[0.0], [2.0], [10.0], [14.0]])).flatten().tolist()
        [-1.0, 3.0, 10.0, 14.0]
    """

    def forward(self, message: Tensor) -> Tensor:
        return alignment.jjnorm_by(message, self.communities)


class PNY(_Grouped):
    """`alignment.pny` on every message that passes; identity on target and unlabelled nodes.

    The coefficients of the covariances are computed once. With `exact_gradient` the maps are
    differentiated too; otherwise they count as constants, which is cheaper. All other arguments as
    in `alignment.pny`.
    """

    def __init__(
        self,
        label: Tensor,
        time: Tensor,
        target: Tensor,
        *,
        connectivity: Connectivity,
        degree: Tensor | None = None,
        table: ndarray | None = None,
        exact_gradient: bool = True,
    ) -> None:
        super().__init__(label, time, target)
        self.exact_gradient = exact_gradient
        # They depend on the graph only, not on the messages.
        self.weights = alignment.coefficients(self.communities, connectivity, degree, table)

    def forward(self, message: Tensor, previous: Tensor) -> Tensor:
        return alignment.pny_by(
            message,
            previous,
            self.communities,
            self.weights,
            exact_gradient=self.exact_gradient,
        )


class TimeCenter(nn.Module):
    """`alignment.center` on every message that passes; needs no labels and moves every node.

    Examples:
        >>> center = TimeCenter(torch.tensor([0, 0, 1]))
        >>> center(torch.tensor([[0.0], [2.0], [7.0]])).flatten().tolist()
        [2.0, 4.0, 3.0]
    """

    period: Tensor

    def __init__(self, time: Tensor) -> None:
        super().__init__()
        # An empty message [N, 0]: only its length and library matter here.
        period, self.num_periods = alignment.by_period(torch.empty(len(time), 0), time)
        self.register_buffer("period", period, persistent=False)

    def forward(self, message: Tensor) -> Tensor:
        return alignment.center_by(message, self.period, self.num_periods)

    def extra_repr(self) -> str:
        return f"num_nodes={len(self.period)}, num_periods={self.num_periods}"


class TimeStandardize(TimeCenter):
    """`alignment.standardize` on every message that passes: centred and scaled per period."""

    def forward(self, message: Tensor) -> Tensor:
        return alignment.standardize_by(message, self.period, self.num_periods)


class Align(nn.Module):
    """Calls any alignment as `align(message, previous)`, with or without `previous`.

    Examples:
        >>> align = Align(TimeCenter(torch.tensor([0, 1])))
        >>> align(torch.tensor([[0.0], [2.0]]), previous=None).flatten().tolist()
        [1.0, 1.0]
    """

    def __init__(self, layer: nn.Module | None) -> None:
        super().__init__()
        self.layer = layer
        self.takes_previous = False
        if layer is not None:
            # A second parameter is the representation that was aggregated.
            self.takes_previous = len(inspect.signature(layer.forward).parameters) > 1

    def forward(self, message: Tensor, previous: Tensor) -> Tensor:
        if self.layer is None:
            return message
        return self.layer(message, previous) if self.takes_previous else self.layer(message)


class Message(nn.Module):
    """The aligned message align(M x, x).

    With `cache` the message of the last input is stored: for a model's first layer, whose input is
    the same in every step. An input that needs a gradient is never cached.
    """

    def __init__(self, align: nn.Module | None = None, *, cache: bool = False) -> None:
        super().__init__()
        self.align = Align(align)
        self.cache = cache
        # Input, propagation and their versions; the message.
        self._cached: tuple[Any, ...] = (None, None, None, None)

    def forward(self, x: Tensor, propagation: Propagation) -> Tensor:
        # The message of an input that is trained changes in every step.
        if not self.cache or x.requires_grad:
            return self.align(propagation(x), x)
        # Torch counts changes in place in `_version`.
        versions = (x._version, propagation.version)
        cached_x, cached_propagation, cached_versions, _ = self._cached
        is_same = x is cached_x and propagation is cached_propagation
        if not is_same or versions != cached_versions:
            # A constant of the training: nothing flows back through the first message.
            with torch.no_grad():
                message = self.align(propagation(x), x)
            self._cached = (x, propagation, versions, message)
        return self._cached[-1]


def align_layer(
    name: str, graph: TemporalGraph, *, table: ndarray | None = None
) -> nn.Module | None:
    """Build the alignment called `name` for the nodes of a graph; None for "none".

    `graph` is a view from `masked(cutoff)`; `table` is the weighting of the messages, which only
    "pny" needs.

    Examples:
        >>> from impact_gnn.data.tsbm import tsbm
        >>> align_layer("jjnorm", tsbm(num_nodes=100, num_times=4, num_labels=2, seed=0).masked(3))
        JJNorm(num_nodes=100, num_times=4, num_labels=2)
    """
    build = ALIGNMENTS[checks.choice("align", name, ALIGNMENTS)]
    graph.require_cutoff("alignment needs")
    return build(graph, table)


def _tensors(graph: TemporalGraph) -> tuple[Tensor, Tensor, Tensor]:
    return torch.tensor(graph.y), torch.tensor(graph.time), torch.tensor(graph.targets())


def _pny(graph: TemporalGraph, table: ndarray | None) -> nn.Module:
    cutoff = graph.require_cutoff("pny needs")
    connectivity = relative_connectivity(
        graph.edge_index, graph.y, graph.time, num_labels=graph.num_labels, cutoff=cutoff
    )
    # In-edges of every node.
    degree = torch.from_numpy(np.diff(graph.csr().indptr))
    return PNY(*_tensors(graph), connectivity=connectivity, degree=degree, table=table)


Build: TypeAlias = Callable[[TemporalGraph, ndarray | None], nn.Module | None]

ALIGNMENTS: Mapping[str, Build] = {
    "none": lambda graph, table: None,
    "center": lambda graph, table: TimeCenter(torch.tensor(graph.time)),
    "standardize": lambda graph, table: TimeStandardize(torch.tensor(graph.time)),
    "jjnorm": lambda graph, table: JJNorm(*_tensors(graph)),
    "pny": _pny,
}
"""Every layer-wise alignment by name: (view, table) → layer."""
