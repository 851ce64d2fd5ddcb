"""A network of the user's own: any module over `x, edge_index` (and `edge_weight`), or a function that builds one."""

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
"""A module that is copied and drawn anew for every fit, or `build(in_channels, out_channels)`."""

Model: TypeAlias = str | Own
"""A name of `MODELS`, or a user model."""

PLAIN_VALUES = (bool, int, float, str, tuple, list, type(None))


def model_name(model: Model) -> str:
    """What a model is called in files: a network of one's own by its class, and a digest of its options and source."""
    if isinstance(model, str):
        return model
    thing: Any = (
        type(model)
        if isinstance(model, Module)
        else model.func
        if isinstance(model, partial)
        else model
    )
    said = [repr(model), _source(thing)]
    if isinstance(model, Module):
        said += [_source(kind) for kind in dict.fromkeys(type(part) for part in model.modules())]
        for name, part in model.named_modules():  # a dropout, say, is seen in no repr
            said += [
                f"{name}.{text}"
                for text in _plain(vars(part))
                if not text.startswith(("training", "_cached"))
            ]
    elif inspect.isfunction(thing):  # sizes may come from around it
        around = inspect.getclosurevars(thing)
        said += [repr(around.nonlocals), repr(thing.__defaults__), *_plain(around.globals)]
    digest = _files.digest(re.sub(r" at 0x[0-9a-f]+", "", "\n".join(said)))[:8]
    return f"{getattr(thing, '__name__', type(thing).__name__).strip('<>')}-{digest}"


@dataclass(frozen=True, eq=False)
class Builder:
    """Makes a network of one's own ready for training, from the arguments of our networks."""

    model: Own

    def __call__(self, in_channels: int, out_channels: int, *options: Any, **ours: Any) -> Module:
        model = self.model
        module = (
            _drawn(model) if isinstance(model, Module) else _built(model, in_channels, out_channels)
        )
        return Foreign(module, out_channels)


class Foreign(Module):
    """What stands between a network of one's own and the training: plain edges and their weights, logits of all nodes.

    More columns than classes are cut off: a past window may know fewer classes than the network was
    made for.
    """

    def __init__(self, module: Module, num_labels: int) -> None:
        super().__init__()
        self.module, self.num_labels, self.takes_weight = module, num_labels, _takes_weight(module)

    def forward(self, x: Tensor, propagation: Propagation) -> Tensor:
        name = type(self.module).__name__
        edge_index, weight = (
            propagation.edge_index.to(x.device),
            propagation.edge_weight.to(x.device),
        )
        table = propagation.table
        weighted = propagation.operator.balanced or not (table[table > 0] == 1).all()
        if not self.takes_weight and weighted:  # edges of weight 0 are not there at all
            raise InputError(
                f"the method weights edges, but forward of {name} takes no weights; add edge_weight=None and pass it "
                f"on to the layers (of attention: transforms.TimeGATConv), or take a method without such weights."
            )
        # a normalisation that layers have cached may be that of another graph
        if not self.training:
            for part in self.module.modules():
                vars(part).update({key: None for key in vars(part) if key.startswith("_cached")})
        try:
            out = self.module(
                x, edge_index, **({"edge_weight": weight} if self.takes_weight else {})
            )
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            what = f"{name} cannot be run on x of shape {tuple(x.shape)} and {edge_index.shape[1]:,} edges"
            mend = "where sizes differ, give a function build(in_channels, out_channels)"
            raise InputError(f"{what} ({one_line(error)}); {mend}.") from error
        if (
            not isinstance(out, Tensor)
            or out.dim() != 2
            or len(out) != len(x)
            or out.shape[1] < self.num_labels
        ):
            came = (
                f"a tensor of shape {tuple(out.shape)}"
                if isinstance(out, Tensor)
                else f"a {type(out).__name__}"
            )
            wanted = f"one row per node and a column per class, [{len(x)}, {self.num_labels}]"
            raise InputError(f"{name} returns {came}; return logits, {wanted}.")
        return out[:, : self.num_labels]


def _takes_weight(module: Module) -> bool:
    """Whether `forward` takes `edge_weight`, and, as PyG's models say themselves, passes it on."""
    module = getattr(module, "_orig_mod", module)  # a compiled one takes anything
    parameters = inspect.signature(module.forward).parameters
    single = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = [p.name for p in parameters.values() if p.default is p.empty and p.kind not in single]
    if len(needed) - ("edge_weight" in needed) != 2:
        takes = f"forward of {type(module).__name__} takes ({', '.join(parameters)})"
        raise InputError(
            f"{takes}; it should take (x, edge_index) or (x, edge_index, edge_weight)."
        )
    return "edge_weight" in parameters and bool(getattr(module, "supports_edge_weight", True))


def _built(build: Callable[..., Any], in_channels: int, out_channels: int) -> Module:
    """What a function makes for these sizes; by name, where it knows the names."""
    sizes = {"in_channels": in_channels, "out_channels": out_channels}
    named = sizes.keys() <= inspect.signature(build).parameters.keys()
    module = build(**sizes) if named else build(in_channels, out_channels)
    if not isinstance(module, Module):
        raise InputError(
            f"{quoted(build)} made a {type(module).__name__}; return a torch.nn.Module."
        )
    return module


def _drawn(module: Module) -> Module:
    """A copy with new weights: nothing that the module has learned before, from whatever labels, may stay."""
    name = type(module).__name__
    if any(is_lazy(parameter) for parameter in module.parameters()):
        raise InputError(
            f"{name} has layers of unknown size; give in_channels, or build(in_channels, out_channels)."
        )
    made = copy.deepcopy(module)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.fill_(torch.nan)
        _reset(made)
    if left := [key for key, parameter in made.named_parameters() if bool(parameter.isnan().any())]:
        mend = "draw them in a method reset_parameters(), or give a function build(in_channels, out_channels)"
        raise InputError(
            f"{name} has weights that nothing draws anew for a fit ({listing(left)}); {mend}."
        )
    return made


def _reset(module: Module) -> None:
    if hasattr(module, "reset_parameters"):
        module.reset_parameters()  # type: ignore[operator]
    else:
        for child in module.children():
            _reset(child)


def _source(thing: Any) -> str:
    """The source of the user's own code; that of torch changes with its version, and some cannot be had."""
    try:
        return (
            ""
            if thing.__module__.startswith(("torch.", "torch_geometric."))
            else inspect.getsource(thing)
        )
    except (OSError, TypeError, AttributeError):
        return ""


def _plain(values: Mapping[str, Any]) -> list[str]:
    return sorted(
        f"{name}={value!r}" for name, value in values.items() if isinstance(value, PLAIN_VALUES)
    )
