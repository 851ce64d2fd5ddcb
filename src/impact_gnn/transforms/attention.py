"""GAT layers that take a time weight exactly: w·exp(s) / Σ w·exp(s) = softmax(s + log w).

The log-weight is added to the score *after* the leaky ReLU. PyG's own layers add edge features
before it, times learned numbers: a log-weight that goes through there is a hint, not a weight.
"""

from __future__ import annotations

import inspect
from typing import TypeVar

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.functional import dropout, leaky_relu
from torch_geometric.nn import GATConv, GATv2Conv
from torch_geometric.utils import softmax

from impact_gnn.checks import InputError

Layer = TypeVar("Layer", bound=Module)


class TimeGATConv(GATConv):
    """`GATConv` whose attention is multiplied by the time weight: softmax(leaky_relu(s) + log w).

    The last column of `edge_attr` is the log-weight, as `deliver="attention"` writes it; columns
    before it are edge features as in `GATConv`, counted by `edge_dim`. Self-loops that the layer
    adds have weight 1.

    Examples:
        >>> conv = TimeGATConv(4, 8, heads=2)
        >>> edge_index, log_weight = torch.tensor([[0, 1], [2, 2]]), torch.tensor([[0.0], [0.7]])
        >>> conv(torch.randn(3, 4), edge_index, log_weight).shape
        torch.Size([3, 16])
    """

    def edge_update(
        self,
        alpha_j: Tensor,
        alpha_i: Tensor | None,
        edge_attr: Tensor | None,
        edge_index_i: Tensor,
        edge_index_j: Tensor,
        index: Tensor,
        ptr: Tensor | None,
        dim_size: int | None,
    ) -> Tensor:
        features, bias = _split(self, edge_attr, edge_index_i, edge_index_j)
        # [E, heads].
        score = alpha_j if alpha_i is None else alpha_i + alpha_j
        if features is not None:
            # [E, heads, out_channels].
            edges = self.lin_edge(features).view(-1, self.heads, self.out_channels)
            score = score + (edges * self.att_edge).sum(-1)
        # The bias [E, 1] is the same for all heads.
        attention = softmax(leaky_relu(score, self.negative_slope) + bias, index, ptr, dim_size)
        return dropout(attention, p=self.dropout, training=self.training)


class TimeGATv2Conv(GATv2Conv):
    """`GATv2Conv` with attention multiplied by the time weight; `edge_attr` as in `TimeGATConv`."""

    def edge_update(
        self,
        x_j: Tensor,
        x_i: Tensor,
        edge_attr: Tensor | None,
        edge_index_i: Tensor,
        edge_index_j: Tensor,
        index: Tensor,
        ptr: Tensor | None,
        dim_size: int | None,
    ) -> Tensor:
        features, bias = _split(self, edge_attr, edge_index_i, edge_index_j)
        # [E, heads, out_channels].
        both = x_i + x_j
        if features is not None:
            edges = self.lin_edge(features).view(-1, self.heads, self.out_channels)
            both = both + edges
        # [E, heads].
        score = (leaky_relu(both, self.negative_slope) * self.att).sum(-1)
        attention = softmax(score + bias, index, ptr, dim_size)
        return dropout(attention, p=self.dropout, training=self.training)


TWINS: dict[type[Module], type[Module]] = {GATConv: TimeGATConv, GATv2Conv: TimeGATv2Conv}


def time_attention(model: Layer) -> Layer:
    """Replace every `GATConv` and `GATv2Conv` in `model` by its time-weighted version.

    Layers are replaced in place with the same parameters, so an optimizer or a checkpoint stays
    valid. A model that is itself such a layer is not changed; its new version is returned.
    `edge_dim` does not count the log-weight.

    Examples:
        >>> from torch_geometric.nn import GAT
        >>> time_attention(GAT(16, 8, num_layers=2, out_channels=3)).convs
        ModuleList( (0): TimeGATConv(16, 8, heads=1) (1): TimeGATConv(8, 3, heads=1) )
    """
    # A layer that is used in two places stays one layer.
    modules = list(model.modules())
    twins = {module: _twin(module) for module in modules if type(module) in TWINS}
    for parent in modules:
        for name, child in parent._modules.items():
            if child in twins:
                parent.add_module(name, twins[child])
    return twins.get(model, model)  # type: ignore[return-value]


def _twin(conv: Module) -> Module:
    # The options with which the layer was built; PyG keeps each as an attribute.
    parameters = inspect.signature(type(conv)).parameters
    names = {*parameters, "aggr", "flow"} - {"bias", "kwargs"}
    options = {name: getattr(conv, name) for name in names}
    twin = TWINS[type(conv)](**options, bias=conv.bias is not None)
    for name, child in conv.named_children():
        twin.add_module(name, child)
    # The same parameters, not copies, so that an optimizer goes on with them.
    for name, parameter in conv.named_parameters(recurse=False):
        twin.register_parameter(name, parameter)
    return twin.train(conv.training)


def _split(
    conv: GATConv | GATv2Conv, edge_attr: Tensor | None, target: Tensor, source: Tensor
) -> tuple[Tensor | None, Tensor]:
    """Split edge attributes into features [E, edge_dim] and the additive score [E, 1]."""
    own = conv.edge_dim or 0
    columns = 0
    if edge_attr is not None:
        columns = 1 if edge_attr.dim() == 1 else edge_attr.shape[1]
    if edge_attr is None or columns != own + 1:
        raise InputError(
            f"{conv} needs edge_attr with {own + 1} columns (edge_dim={conv.edge_dim} and the "
            f"log-weight last) but got {columns}; apply PMP(deliver='attention') and pass "
            "data.edge_attr, and do not count the log-weight in edge_dim."
        )
    # [E] becomes [E, 1].
    edge_attr = edge_attr.view(-1, columns)
    bias = edge_attr[:, -1:]
    # PyG has replaced all loops by its own with other attributes; ours have weight 1.
    if conv.add_self_loops:
        is_loop = (source == target)[:, None]
        bias = torch.where(is_loop, 0.0, bias)
    return (edge_attr[:, :-1] if own else None), bias
