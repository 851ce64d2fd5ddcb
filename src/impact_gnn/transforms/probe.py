"""Runs a model twice, with two sets of weights, and tells which layers answer to them by themselves."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.data import Data, HeteroData

from impact_gnn.transforms.delivery import keep_edges
from impact_gnn.transforms.door import edge_stores

TOLERANCE = 1e-4
"""Relative change of an output below which it counts as the same: above rounding, far below any real change."""

Outputs = dict[str, list[Any]]


def responses(
    model: Module, layers: Mapping[str, Module], call: Callable[[Any], object], data: Data | HeteroData, deliver: str
) -> dict[str, tuple[int, int]]:
    """For every layer: how often it ran, and in how many of those runs its output changed with the weights.

    In the second run each layer's output is replaced by that of the first, so that a layer sees a change
    only if the weights reach it directly, not through the features that an earlier layer computed.
    """
    with _still(model, layers):
        first = _record(layers, call, copy.copy(data), {})
        second = _record(layers, call, _varied(data, deliver), first)
    return {
        name: (
            len(first[name]),
            sum(not _same(before, after) for before, after in zip(first[name], second[name], strict=False)),
        )
        for name in layers
    }


def _record(layers: Mapping[str, Module], call: Callable[[Any], object], data: Any, replay: Outputs) -> Outputs:
    outputs: Outputs = {name: [] for name in layers}

    def listener(name: str) -> Callable[..., Any]:
        def hook(module: Module, args: Any, output: Any) -> Any:
            outputs[name].append(output)
            earlier = replay.get(name, [])
            return earlier[len(outputs[name]) - 1] if len(outputs[name]) <= len(earlier) else None

        return hook

    handles = [layer.register_forward_hook(listener(name)) for name, layer in layers.items()]
    try:
        with torch.no_grad(), torch.random.fork_rng():
            torch.manual_seed(0)
            call(data)
    finally:
        for handle in handles:
            handle.remove()
    return outputs


@contextmanager
def _still(model: Module, layers: Mapping[str, Module]) -> Iterator[None]:
    """Eval mode and no caches for a while: a cached normalisation would answer for weights it never saw."""
    training = [(module, module.training) for module in model.modules()]
    cached = [
        (layer, key, value) for layer in layers.values() for key, value in vars(layer).items() if key[:7] == "_cached"
    ]
    using = [(layer, layer.cached) for layer in layers.values() if getattr(layer, "cached", False) is True]
    try:
        model.eval()
        for layer, key, _ in cached:
            setattr(layer, key, None)
        for layer, _ in using:
            layer.cached = False  # type: ignore[assignment]
        yield
    finally:
        for module, mode in training:
            module.training = mode
        for layer, key, value in cached:
            setattr(layer, key, value)
        for layer, value in using:
            layer.cached = value


def _varied(data: Data | HeteroData, deliver: str) -> Data | HeteroData:
    """A copy of `data` with other weights: perturbed numbers, or every other edge dropped or repeated."""
    out = copy.copy(data)
    generator = torch.Generator().manual_seed(1)
    for store in edge_stores(out).values():
        if deliver == "weight" and store.get("edge_weight") is not None:
            weight = store.edge_weight
            store["edge_weight"] = weight * _factors(weight, generator)
        elif deliver == "attention" and store.get("edge_attr") is not None:
            attributes = store.edge_attr.clone() if store.edge_attr.is_floating_point() else store.edge_attr.float()
            column = attributes if attributes.dim() == 1 else attributes[:, -1]
            column += _factors(column, generator).log()
            store["edge_attr"] = attributes
        elif deliver in ("drop", "duplicate"):
            position = torch.arange(store.num_edges, device=store.edge_index.device)
            even = position[::2]
            keep_edges(store, even if deliver == "drop" else torch.cat([position, even]))
    return out


def _factors(like: Tensor, generator: torch.Generator) -> Tensor:
    return (torch.rand(like.shape, generator=generator) * 1.5 + 0.25).to(like)


def _same(before: Any, after: Any) -> bool:
    if isinstance(before, Tensor):
        if before.shape != after.shape:
            return False
        if not before.is_floating_point():
            return torch.equal(before, after)
        scale = float(before.abs().max()) if before.numel() else 0.0
        return torch.allclose(before, after, rtol=0, atol=TOLERANCE * scale, equal_nan=True)
    if isinstance(before, Mapping):
        return all(_same(before[key], after[key]) for key in before)
    if isinstance(before, tuple | list):
        return all(_same(*pair) for pair in zip(before, after, strict=True))
    return True
