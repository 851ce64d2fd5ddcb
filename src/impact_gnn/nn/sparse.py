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
from numpy import ndarray
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from impact_gnn.checks import InputError
from impact_gnn.engines.memory import Memory
from impact_gnn.engines.operator import Operator
from impact_gnn.graph import TemporalGraph, Triple


class Propagation:
    """The input of spatial models in place of `edge_index`: `propagation(x)` computes messages.

    Examples:
        >>> from impact_gnn.data.tsbm import tsbm
        >>> g = tsbm(num_nodes=100, num_times=4, num_labels=2, num_features=3, seed=0)
        >>> propagation = Propagation.of(g, weighting="pmp")
        >>> propagation(torch.randn(100, 3, requires_grad=True))
        tensor([[...]], grad_fn=<_ProductBackward>)
    """

    version = 0  # for caches of its results; it changes where edges are edited

    def __init__(self, operator: Operator) -> None:
        if operator.csr.num_sources != operator.csr.num_targets:
            raise InputError(
                f"the operator maps {operator.csr.num_sources} to {operator.csr.num_targets} "
                "nodes; layers need one from the nodes of a type to themselves."
            )
        self.operator = operator
        self._on_device: dict[torch.device, tuple[Tensor, Tensor, Tensor]] = {}

    @classmethod
    def of(
        cls,
        graph: TemporalGraph,
        relation: Triple | None = None,
        *,
        weighting: str | ndarray = "plain",
        norm: str = "mean",
        self_loop: bool = False,
    ) -> Propagation:
        """Build the propagation along a relation; arguments as in `Engine.operator`."""
        return cls(
            Memory().operator(graph, relation, weighting=weighting, norm=norm, self_loop=self_loop)
        )

    @property
    def num_nodes(self) -> int:
        return self.operator.csr.num_targets

    @property
    def table(self) -> ndarray:
        """The weighting table Ω [T, T]."""
        return self.operator.table

    @cached_property
    def edge_index(self) -> Tensor:
        """Edges source → target of positive weight [2, E], grouped by target, then self-loops."""
        return torch.from_numpy(np.stack(self._edge_list[:2]))

    @cached_property
    def edge_weight(self) -> Tensor:
        """Ω·a of every edge in `edge_index`, not normalised [E] float32."""
        return torch.from_numpy(self._edge_list[2])

    def edges(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return `edge_index` and the log-weights [E, 1] that attention adds to its scores."""
        return self._edges_on(device)[:2]

    def __call__(self, x: Tensor) -> Tensor:
        """Compute the message M x [N, f] in float64 if x has that type, else in float32."""
        if x.dtype not in (torch.float32, torch.float64):  # the kernels know no half precision
            x = x.float()
        product = self._kernel_product if x.device.type == "cpu" else self._edge_product
        return _Product.apply(x, product)

    def __repr__(self) -> str:
        operator = self.operator
        flags = [name for name in ("self_loop", "balanced") if getattr(operator, name)]
        options = "".join(f", {name}=True" for name in flags)
        edges = operator.csr.num_edges
        return f"Propagation({self.num_nodes} nodes, {edges} edges, {operator.norm!r}{options})"

    @cached_property
    def _edge_list(self) -> tuple[ndarray, ndarray, ndarray]:
        """Sources, targets and weights of all edges of positive weight, self-loops included."""
        operator = self.operator
        csr = operator.edges
        nodes = np.arange(csr.num_targets)
        # The target of every edge is its row.
        target = np.repeat(nodes, np.diff(csr.indptr))
        source = csr.indices.astype(np.int64)
        periods = operator.target_period[target], operator.source_period[source]
        weight = operator.table[periods].astype(np.float32)
        if csr.weight is not None:
            weight = weight * csr.weight.astype(np.float32)
        # An edge of weight zero is no edge: its log-weight would be -inf.
        positive = weight > 0
        source = source[positive]
        target = target[positive]
        weight = weight[positive]
        if operator.self_loop:
            source = np.append(source, nodes)
            target = np.append(target, nodes)
            weight = np.append(weight, np.ones(len(nodes), np.float32))
        return source, target, weight

    def _kernel_product(self, x: Tensor, transposed: bool) -> Tensor:
        """Compute M x or Mᵀ x in CPU memory; the kernels read and write the tensors' own memory."""
        product = self.operator.transpose_apply if transposed else self.operator.apply
        return torch.from_numpy(product(x.contiguous().numpy()))

    def _edge_product(self, x: Tensor, transposed: bool) -> Tensor:
        """Sum over edges; backward, messages flow from targets to sources."""
        edge_index, _, weight = self._edges_on(x.device)
        # The gradient of a sum over in-edges is a sum over out-edges, with the same weights.
        source, target = edge_index.flip(0) if transposed else edge_index
        # Messages [E, f] are added at the end of their edge.
        message = x[source] * weight.to(x.dtype)
        return torch.zeros_like(x).index_add(0, target, message)

    def _edges_on(self, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
        """Return edges, log-weights [E, 1] and normalised weights [E, 1] on a device."""
        if device not in self._on_device:
            source, target = self.edge_index.numpy()
            # Both scales of the normalisation are multiplied into the weight of each edge.
            row_scale = self.operator.row_scale[target]
            column_scale = self.operator.column_scale[source]
            normalised = (row_scale * self.edge_weight.numpy() * column_scale).astype(np.float32)
            self._on_device[device] = (
                self.edge_index.to(device),
                self.edge_weight.log()[:, None].to(device),
                torch.from_numpy(normalised)[:, None].to(device),
            )
        return self._on_device[device]


class _Product(Function):
    """M x, without storing the messages of edges."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, product: Callable[[Tensor, bool], Tensor]) -> Tensor:
        ctx.product = product
        return product(x.detach(), False)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return ctx.product(grad, True), None
