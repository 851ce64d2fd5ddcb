"""User models: modules over `x, edge_index` (and `edge_weight`), or functions that build one."""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.parameter import is_lazy

from impact_gnn import _files
from impact_gnn.checks import InputError, listing, one_line, quoted
from impact_gnn.nn import Propagation

Own: TypeAlias = Module | Callable[[int, int], Module]
"""A module that is copied and initialised for every fit, or `build(in_channels, out_channels)`."""

Model: TypeAlias = str | Own
"""A name of `MODELS`, or a user model."""

PLAIN_TYPES = (bool, int, float, str, tuple, list, type(None))


def model_name(model: Model) -> str:
    """Return a model's name in files; of a user model its class, and a digest of its source."""
    if isinstance(model, str):
        return model
    definition: Any = model
    if isinstance(model, Module):
        definition = type(model)
    elif isinstance(model, partial):
        definition = model.func
    description = [repr(model), _source(definition)]
    if isinstance(model, Module):
        kinds = dict.fromkeys(type(part) for part in model.modules())
        description += map(_source, kinds)
        for name, part in model.named_modules():  # a dropout, say, is missing in the repr
            description += [
                f"{name}.{text}"
                for text in _plain_values(vars(part))
                if not text.startswith(("training", "_cached"))
            ]
    elif inspect.isfunction(definition):  # sizes may come from outside the function
        closure = inspect.getclosurevars(definition)
        description += [repr(closure.nonlocals), repr(definition.__defaults__)]
        description += _plain_values(closure.globals)
    without_addresses = re.sub(r" at 0x[0-9a-f]+", "", "\n".join(description))
    digest = _files.digest(without_addresses)[:8]
    name = getattr(definition, "__name__", type(definition).__name__)
    return f"{name.strip('<>')}-{digest}"


@dataclass(frozen=True, eq=False)
class Builder:
    """Builds a user model for training, from the arguments of our networks."""

    model: Own

    def __call__(self, in_channels: int, out_channels: int, *options: Any, **ours: Any) -> Module:
        if isinstance(self.model, Module):
            return UserNetwork(_reinitialised(self.model), out_channels)
        return UserNetwork(_built(self.model, in_channels, out_channels), out_channels)


class UserNetwork(Module):
    """Adapts a user model to our training: it receives edges and weights, and returns logits.

    Columns beyond the number of classes are cut off: the past of a fold may have fewer classes than
    the network.
    """

    def __init__(self, module: Module, num_labels: int) -> None:
        super().__init__()
        self.module = module
        self.num_labels = num_labels
        self.takes_weight = _takes_weight(module)

    def forward(self, x: Tensor, propagation: Propagation) -> Tensor:
        name = type(self.module).__name__
        edge_index = propagation.edge_index.to(x.device)
        arguments = {}
        table = propagation.table
        if self.takes_weight:
            arguments["edge_weight"] = propagation.edge_weight.to(x.device)
        elif propagation.operator.balanced or not (table[table > 0] == 1).all():
            # Edges of weight 0 are left out, so a table of 0 and 1 needs no weights.
            raise InputError(
                f"the method weights edges, but forward of {name} accepts no weights; add "
                f"edge_weight=None and pass it to the layers (for attention: "
                f"transforms.TimeGATConv), or use a method without weights."
            )
        # A normalisation that layers have cached may be that of another graph.
        if not self.training:
            for part in self.module.modules():
                cached = [key for key in vars(part) if key.startswith("_cached")]
                vars(part).update(dict.fromkeys(cached))
        try:
            logits = self.module(x, edge_index, **arguments)
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            raise InputError(
                f"{name} failed on x of shape {tuple(x.shape)} and "
                f"{edge_index.shape[1]:,} edges ({one_line(error)}); if sizes differ, pass a "
                f"function build(in_channels, out_channels)."
            ) from error
        self._check(logits, len(x))
        return logits[:, : self.num_labels]

    def _check(self, logits: Any, num_nodes: int) -> None:
        """Refuse a result that is not a matrix of logits."""
        result = f"a {type(logits).__name__}"
        if isinstance(logits, Tensor):
            is_matrix = logits.dim() == 2 and len(logits) == num_nodes
            if is_matrix and logits.shape[1] >= self.num_labels:
                return
            result = f"a tensor of shape {tuple(logits.shape)}"
        raise InputError(
            f"{type(self.module).__name__} returns {result}; return logits, one row per node and "
            f"a column per class, [{num_nodes}, {self.num_labels}]."
        )


def _takes_weight(module: Module) -> bool:
    """Tell whether `forward` takes `edge_weight`, and passes it on (`supports_edge_weight`)."""
    module = getattr(module, "_orig_mod", module)  # a compiled one takes anything
    parameters = inspect.signature(module.forward).parameters
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    required = {
        parameter.name
        for parameter in parameters.values()
        if parameter.default is parameter.empty and parameter.kind not in variadic
    }
    if len(required - {"edge_weight"}) != 2:
        raise InputError(
            f"forward of {type(module).__name__} takes ({', '.join(parameters)}); it should take "
            f"(x, edge_index) or (x, edge_index, edge_weight)."
        )
    return "edge_weight" in parameters and bool(getattr(module, "supports_edge_weight", True))


def _built(build: Callable[..., Any], in_channels: int, out_channels: int) -> Module:
    """Call the user's function, with names of arguments where it has them."""
    sizes = {"in_channels": in_channels, "out_channels": out_channels}
    has_names = sizes.keys() <= inspect.signature(build).parameters.keys()
    module = build(**sizes) if has_names else build(in_channels, out_channels)
    if not isinstance(module, Module):
        raise InputError(
            f"{quoted(build)} returned a {type(module).__name__}; return a torch.nn.Module."
        )
    return module


def _reinitialised(module: Module) -> Module:
    """Copy a module with new weights, so that nothing it has learned from any labels remains."""
    name = type(module).__name__
    if any(is_lazy(parameter) for parameter in module.parameters()):
        raise InputError(
            f"{name} has lazy layers; pass in_channels, or build(in_channels, out_channels)."
        )
    new = copy.deepcopy(module)
    with torch.no_grad():
        for parameter in new.parameters():
            parameter.fill_(torch.nan)
        _reset(new)
    left = [key for key, parameter in new.named_parameters() if parameter.isnan().any()]
    if left:
        raise InputError(
            f"{name} has weights that cannot be reinitialised ({listing(left)}); reset them in "
            f"a method reset_parameters(), or pass a function build(in_channels, out_channels)."
        )
    return new


def _reset(module: Module) -> None:
    if hasattr(module, "reset_parameters"):
        module.reset_parameters()  # type: ignore[operator]
    else:
        for child in module.children():
            _reset(child)


def _source(definition: Any) -> str:
    """Return the source of the user's code, where available; torch's depends on its version."""
    try:
        if definition.__module__.startswith(("torch.", "torch_geometric.")):
            return ""
        return inspect.getsource(definition)
    except (OSError, TypeError, AttributeError):
        return ""


def _plain_values(values: Mapping[str, Any]) -> list[str]:
    return sorted(
        f"{name}={value!r}" for name, value in values.items() if isinstance(value, PLAIN_TYPES)
    )
