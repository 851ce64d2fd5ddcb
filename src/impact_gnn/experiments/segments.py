"""The sparse product for many columns of the table at once, each with its own time weights.

What distinguishes weightings is a number per pair of periods. So the edges are kept once, grouped by the source's
period and then by target: sums over such a segment carry no weights at all, and a period's rows (200 nodes of 16
numbers) stay in the first cache while all targets are served. Measured on a graph of 2,000 nodes and 640,000 edges:
12 columns of 16 hidden units in 5.6 ms on one core, where one operator per weighting takes about 10.

Edges must come with their reverse, as in every graph of the block model: the transpose then is the same segments with
the tables turned.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from impact_gnn.experiments.segment_kernels import grouped, sums
from impact_gnn.graph import TemporalGraph
from impact_gnn.propagation.operator import Operator


@dataclass(frozen=True, eq=False)
class Segments:
    """Edges by (source period, target): `source[border[s, v] : border[s, v + 1]]`, counted from `first[s]`."""

    border: np.ndarray
    source: np.ndarray
    first: np.ndarray
    period: np.ndarray

    @classmethod
    def of(cls, graph: TemporalGraph) -> Segments:
        """The edges of a graph whose nodes are numbered in order of time."""
        period = graph.period.astype(np.int64)
        first = np.searchsorted(period, np.arange(len(graph.times) + 1))
        edges = graph.edge_index.astype(np.int64, copy=False)
        border, source = grouped(edges[0], edges[1], period, first)
        return cls(border, source, first, period)


class Product:
    """`product(h)` is M_c h_c for every block c, with M_c = normalise(Ω_c ⊙ A) as rows' means.

    Args:
        segments: The edges.
        operators: For every block the operator that it stands for (norm "mean").
    """

    def __init__(self, segments: Segments, operators: list[Operator]) -> None:
        self.segments = segments
        self.table = np.stack([one.table for one in operators]).astype(np.float32)
        self.turned = np.ascontiguousarray(self.table.transpose(0, 2, 1))
        scale = np.stack([one.row_scale for one in operators]).astype(np.float32)
        self.scale = torch.from_numpy(scale)[:, :, None]
        self.self_loop = operators[0].self_loop

    def __call__(self, h: Tensor) -> Tensor:
        """The messages [C, N, 16]; differentiable."""
        return _Product.apply(h, self)

    def sums(self, h: Tensor, *, turned: bool) -> Tensor:
        """Weighted sums over neighbours, or, `turned`, over those whose neighbour a node is."""
        table = self.turned if turned else self.table
        values = h.contiguous().numpy()
        out = np.empty_like(values)
        one = self.segments
        sums(one.border, one.source, one.first, one.period, table, self.self_loop, values, out)
        return torch.from_numpy(out)


class _Product(Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, product: Product) -> Tensor:
        ctx.product = product
        return product.sums(h.detach(), turned=False).mul_(product.scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return ctx.product.sums(grad * ctx.product.scale, turned=True), None
