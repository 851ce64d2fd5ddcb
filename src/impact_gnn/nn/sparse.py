"""The sparse product as a differentiable operation: forward M x, backward Mᵀ g.

In CPU memory both directions run the kernels of the engines, which compute the time weights from
one small integer per node. On other devices the normalised weights are written out once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from impact_gnn.checks import InputError
from impact_gnn.engines.memory import Memory
from impact_gnn.engines.operator import Operator
from impact_gnn.graph import TemporalGraph, Triple


class Propagation:
    """What spatial models are given in place of `edge_index`: `propagation(x)` is the message of every node.

    Examples:
        >>> from impact_gnn.data.tsbm import tsbm
        >>> g = tsbm(num_nodes=100, num_times=4, num_labels=2, num_features=3, seed=0)
        >>> propagation = Propagation.of(g, weighting="pmp")
        >>> propagation(torch.randn(100, 3, requires_grad=True))
        tensor([[...]], grad_fn=<_ProductBackward>)
    """

    version = 0  # of what it does, for those who remember; it changes where edges are edited

    def __init__(self, operator: Operator) -> None:
        if operator.csr.num_sources != operator.csr.num_targets:
            ends = f"{operator.csr.num_sources} to {operator.csr.num_targets} nodes"
            raise InputError(
                f"the operator leads from {ends}; layers need one from the nodes of a type to themselves."
            )
        self.operator = operator
        self._on_device: dict[torch.device, tuple[Tensor, Tensor, Tensor]] = {}

    @classmethod
    def of(
        cls,
        graph: TemporalGraph,
        relation: Triple | None = None,
        *,
        weighting: str | np.ndarray = "plain",
        norm: str = "mean",
        self_loop: bool = False,
    ) -> Propagation:
        """The propagation along a relation of a graph; arguments as in `Engine.operator`."""
        return cls(
            Memory().operator(graph, relation, weighting=weighting, norm=norm, self_loop=self_loop)
        )

    @property
    def num_nodes(self) -> int:
        return self.operator.csr.num_targets

    @property
    def table(self) -> np.ndarray:
        """The weighting table Ω [T, T]."""
        return self.operator.table

    @property
    def period(self) -> np.ndarray:
        """Position of every node's time among the times of the table [N]."""
        return self.operator.target_period

    @cached_property
    def edge_index(self) -> Tensor:
        """Edges source → target of positive weight [2, E], grouped by target, then the loops if there are any."""
        return torch.from_numpy(np.stack(self._edge_list[:2]))

    @cached_property
    def edge_weight(self) -> Tensor:
        """Ω·a of every edge in `edge_index`, not normalised [E] float32."""
        return torch.from_numpy(self._edge_list[2])

    def edges(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """`edge_index` and the log-weights [E, 1] that attention adds to its scores, on a device."""
        return self._edges_on(device)[:2]

    def __call__(self, x: Tensor) -> Tensor:
        """The message M x [N, f], in the type of x where that is float32 or float64, else float32."""
        if x.dtype not in (torch.float32, torch.float64):  # the kernels know no half precision
            x = x.float()
        return _Product.apply(x, self._kernels if x.device.type == "cpu" else self._written_out)

    def __repr__(self) -> str:
        loops = "".join(
            f", {name}=True" for name in ("self_loop", "balanced") if getattr(self.operator, name)
        )
        edges = self.operator.csr.num_edges
        return f"Propagation({self.num_nodes} nodes, {edges} edges, {self.operator.norm!r}{loops})"

    @cached_property
    def _edge_list(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        operator, csr = self.operator, self.operator.edges
        target = np.repeat(np.arange(csr.num_targets), np.diff(csr.indptr))
        source = csr.indices.astype(np.int64)
        weight = operator.table[
            operator.target_period[target], operator.source_period[source]
        ].astype(np.float32)
        if csr.weight is not None:
            weight = weight * csr.weight.astype(np.float32)
        if not (keep := weight > 0).all():
            source, target, weight = source[keep], target[keep], weight[keep]
        if operator.self_loop:
            loop = np.arange(csr.num_targets)
            source, target = np.concatenate([source, loop]), np.concatenate([target, loop])
            weight = np.concatenate([weight, np.ones(len(loop), np.float32)])
        return source, target, weight

    def _kernels(self, x: Tensor, transposed: bool) -> Tensor:
        """The kernels read and write the tensors' own memory."""
        product = self.operator.transpose_apply if transposed else self.operator.apply
        return torch.from_numpy(product(x.contiguous().numpy()))

    def _written_out(self, x: Tensor, transposed: bool) -> Tensor:
        """Σ over edges; in the backward direction messages flow from targets to sources."""
        edge_index, _, weight = self._edges_on(x.device)
        source, target = edge_index.flip(0) if transposed else edge_index
        return torch.zeros_like(x).index_add(0, target, x[source] * weight.to(x.dtype))

    def _edges_on(self, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
        """The edges, and the logarithms of their weights and the normalised weights [E, 1], on one device."""
        if device not in self._on_device:
            operator, (source, target) = self.operator, self.edge_index.numpy()
            scaled = (
                operator.row_scale[target]
                * self.edge_weight.numpy()
                * operator.column_scale[source]
            )
            log_weight, weight = (
                self.edge_weight.log()[:, None],
                torch.from_numpy(scaled.astype(np.float32))[:, None],
            )
            self._on_device[device] = (
                self.edge_index.to(device),
                log_weight.to(device),
                weight.to(device),
            )
        return self._on_device[device]


class _Product(Function):
    """M x, without keeping what every edge carried."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, by: Callable[[Tensor, bool], Tensor]) -> Tensor:
        ctx.by = by
        return by(x.detach(), False)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return ctx.by(grad, True), None
