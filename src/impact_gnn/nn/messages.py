"""The message of a layer: aggregated neighbours, aligned if asked."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
import torch
from torch import Tensor, nn

from impact_gnn import checks
from impact_gnn.checks import InputError
from impact_gnn.connectivity import relative_connectivity
from impact_gnn.graph import TemporalGraph
from impact_gnn.nn.alignment import PNY, JJNorm, TimeCenter, TimeStandardize
from impact_gnn.nn.sparse import Propagation


class Align(nn.Module):
    """One call, `align(message, previous)`, for every alignment; those of one argument are not given `previous`.

    Example:
        >>> time = torch.tensor([0, 0, 1])
        >>> message = torch.tensor([[0.0], [2.0], [7.0]])
        >>> Align(TimeCenter(time))(message, previous=message).flatten().tolist()
        [2.0, 4.0, 3.0]
        >>> Align(None)(message, message) is message
        True
    """

    def __init__(self, layer: nn.Module | None) -> None:
        super().__init__()
        self.layer = layer
        self.takes_previous = layer is not None and len(inspect.signature(layer.forward).parameters) > 1

    def forward(self, message: Tensor, previous: Tensor) -> Tensor:
        """The aligned message; `previous` is what was aggregated."""
        if self.layer is None:
            return message
        return self.layer(message, previous) if self.takes_previous else self.layer(message)


class Message(nn.Module):
    """align(M x, x): what the neighbours say, aligned.

    Args:
        align: A layer such as `TimeCenter`, `JJNorm` or `PNY`, or None.
        keep: Remember the message of the last input. For a model's first layer, whose input does not change from
            step to step; an input that needs a gradient is never remembered.
    """

    def __init__(self, align: nn.Module | None = None, *, keep: bool = False) -> None:
        super().__init__()
        self.align = Align(align)
        self.keep = keep
        self._last: tuple[Tensor, int, Propagation, Tensor] | None = None

    def forward(self, x: Tensor, propagation: Propagation) -> Tensor:
        """The message of every node [N, f]."""
        if not self.keep or x.requires_grad:
            return self.align(propagation(x), x)
        if self._last is not None:
            known, version, through, message = self._last
            if known is x and version == x._version and through is propagation:
                return message
        with torch.no_grad():
            message = self.align(propagation(x), x)
        self._last = (x, x._version, propagation, message)
        return message


def align_layer(name: str, graph: TemporalGraph, *, table: np.ndarray | None = None) -> nn.Module | None:
    """The alignment called `name` for the nodes of a graph; None for "none".

    Args:
        name: One of `ALIGNMENTS`.
        graph: A view made by `masked(cutoff)`; no label at or after the cutoff is in it.
        table: The weighting table the messages are made with (only "pny" asks for it); by default plain.

    Example:
        >>> from impact_gnn.data.tsbm import tsbm
        >>> align_layer("jjnorm", tsbm(num_nodes=100, num_times=4, num_labels=2, seed=0).masked(3))
        JJNorm(num_nodes=100, num_times=4, num_labels=2)
    """
    make = ALIGNMENTS[checks.choice("align", name, ALIGNMENTS)]
    if graph.cutoff is None or graph.y is None:
        raise InputError("alignment needs a view that hides the labels to predict; pass graph.masked(cutoff).")
    return make(graph, table)


def _tensors(graph: TemporalGraph) -> tuple[Tensor, Tensor, Tensor]:
    return torch.tensor(graph.y), torch.tensor(graph.time), torch.tensor(graph.targets())


def _pny(graph: TemporalGraph, table: np.ndarray | None) -> nn.Module:
    assert graph.cutoff is not None  # checked by align_layer
    found = relative_connectivity(
        graph.edge_index, graph.y, graph.time, num_labels=graph.num_labels, cutoff=graph.cutoff
    )
    degree = torch.from_numpy(np.diff(graph.csr().indptr))
    return PNY(*_tensors(graph), connectivity=found, degree=degree, table=table)


ALIGNMENTS: Mapping[str, Callable[[TemporalGraph, np.ndarray | None], nn.Module | None]] = MappingProxyType(
    {
        "none": lambda graph, table: None,
        "center": lambda graph, table: TimeCenter(torch.tensor(graph.time)),
        "standardize": lambda graph, table: TimeStandardize(torch.tensor(graph.time)),
        "jjnorm": lambda graph, table: JJNorm(*_tensors(graph)),
        "pny": _pny,
    }
)
"""Every layer-wise alignment by name: (view, table) → layer."""
