"""GAT layers that take a time weight exactly.

Attention with weights is α_e = w_e·exp(s_e) / Σ w·exp(s) = softmax(s + log w): the log-weight is added to the
score *after* the leaky ReLU. The edge path of PyG's own `GATConv` and `GATv2Conv` adds its edge features
before it and multiplies them by learned numbers, so a log-weight that goes through there is a hint, not a
weight. The layers here have the same parameters as PyG's and only treat the last column of `edge_attr` apart.
"""

from __future__ import annotations

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

    Takes the `edge_attr` that `deliver="attention"` writes: its last column is the log-weight and the columns
    before it, if any, are edge features as in `GATConv`, counted by `edge_dim`. Self-loops that the layer
    adds have weight 1.

    Example:
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
        score = alpha_j if alpha_i is None else alpha_i + alpha_j
        if features is not None:
            score = score + (self.lin_edge(features).view(-1, self.heads, self.out_channels) * self.att_edge).sum(-1)
        return _attention(self, leaky_relu(score, self.negative_slope) + bias, index, ptr, dim_size)


class TimeGATv2Conv(GATv2Conv):
    """`GATv2Conv` whose attention is multiplied by the time weight; `edge_attr` as in `TimeGATConv`.

    Example:
        >>> conv = TimeGATv2Conv(4, 8)
        >>> edge_index, log_weight = torch.tensor([[0, 1], [2, 2]]), torch.tensor([[0.0], [0.7]])
        >>> conv(torch.randn(3, 4), edge_index, log_weight).shape
        torch.Size([3, 8])
    """

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
        both = x_i + x_j
        if features is not None:
            both = both + self.lin_edge(features).view(-1, self.heads, self.out_channels)
        score = (leaky_relu(both, self.negative_slope) * self.att).sum(-1)
        return _attention(self, score + bias, index, ptr, dim_size)


def time_attention(model: Layer) -> Layer:
    """Turns every `GATConv` and `GATv2Conv` in `model` into its time-weighted twin, and returns the model.

    Layers are replaced in place and keep their very parameters, so an optimizer or a checkpoint stays valid.
    A model that is itself such a layer is not changed; its twin is returned. Pass `data.edge_attr` of
    `deliver="attention"` to the layers. Convert layers that were built for the other edge features only:
    `edge_dim` does not count the log-weight.

    Example:
        >>> from torch_geometric.nn import GAT
        >>> time_attention(GAT(16, 8, num_layers=2, out_channels=3)).convs
        ModuleList( (0): TimeGATConv(16, 8, heads=1) (1): TimeGATConv(8, 3, heads=1) )
    """
    return _converted(model, {})  # type: ignore[return-value]


def _converted(module: Module, done: dict[Module, Module]) -> Module:
    if module in done:  # a layer that is used in two places stays one layer
        return done[module]
    if type(module) is GATConv:
        done[module] = _twin(module, TimeGATConv(**_options(module)))
    elif type(module) is GATv2Conv:
        done[module] = _twin(module, TimeGATv2Conv(share_weights=module.share_weights, **_options(module)))
    else:
        done[module] = module
        for name, child in list(module._modules.items()):  # named_children would pass over a layer's second place
            twin = None if child is None else _converted(child, done)
            if twin is not child:
                module.add_module(name, twin)
    return done[module]


def _options(conv: Module) -> dict:
    names = "in_channels out_channels heads concat negative_slope dropout add_self_loops edge_dim fill_value residual"
    return {name: getattr(conv, name) for name in [*names.split(), "aggr", "flow"]} | {"bias": conv.bias is not None}


def _twin(conv: Module, twin: Module) -> Module:
    for name, child in conv.named_children():
        twin.add_module(name, child)
    for name, parameter in conv.named_parameters(recurse=False):
        twin.register_parameter(name, parameter)
    return twin.train(conv.training)


def _split(
    conv: GATConv | GATv2Conv, edge_attr: Tensor | None, target: Tensor, source: Tensor
) -> tuple[Tensor | None, Tensor]:
    """Edge features [E, edge_dim] and the additive score [E, 1]."""
    own = conv.edge_dim or 0
    columns = 0 if edge_attr is None else 1 if edge_attr.dim() == 1 else edge_attr.shape[1]
    if edge_attr is None or columns != own + 1:
        raise InputError(
            f"{conv} needs edge_attr with {own + 1} columns (edge_dim={conv.edge_dim} and the log-weight last) "
            f"but got {columns}; apply PMP(deliver='attention') and pass data.edge_attr, and do not count the "
            f"log-weight in edge_dim."
        )
    edge_attr = edge_attr.view(-1, columns)
    bias = edge_attr[:, -1:]
    if conv.add_self_loops:  # PyG has replaced all loops by its own, filled with its guess; ours have weight 1
        bias = torch.where((source == target).view(-1, 1), torch.zeros_like(bias), bias)
    return (edge_attr[:, :-1] if own else None), bias


def _attention(
    conv: GATConv | GATv2Conv, score: Tensor, index: Tensor, ptr: Tensor | None, dim_size: int | None
) -> Tensor:
    return dropout(softmax(score, index, ptr, dim_size), p=conv.dropout, training=conv.training)
