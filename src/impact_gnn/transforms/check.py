"""`check_delivery`: which layers of a model would ignore the time weights, or use them for something else."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch.nn import Module
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import MessagePassing

from impact_gnn import checks
from impact_gnn.transforms.attention import TimeGATConv, TimeGATv2Conv
from impact_gnn.transforms.delivery import DELIVERIES
from impact_gnn.transforms.door import edge_stores, pyg_object
from impact_gnn.transforms.probe import responses

CARRIER = {"weight": "edge_weight", "attention": "edge_attr"}
"""The attribute that carries the weights; drop and duplicate carry them in the edges themselves."""

SUMS = ("add", "sum", "SumAggregation()")
EXTREMES = ("max", "min", "MaxAggregation()", "MinAggregation()")
ALWAYS_NORMALISE = ("ARMAConv", "ChebConv", "MixHopConv", "SGConv", "SSGConv")
"""Layers that divide by degrees without an option `normalize` to turn it off."""


class DeliveryWarning(UserWarning):
    """A layer would not use the time weights as meant."""


@dataclass(frozen=True)
class Finding:
    """What was found about one layer.

    Attributes:
        layer: Name of the layer in the model, empty for a finding about the data.
        kind: "ignored", "partly", "aggregation", "normalised twice", "normalised", "learned", "not run",
            "no layers" or "no weights".
        message: The sentence of the warning.
        serious: Whether it was raised as a `DeliveryWarning`; the others are worth knowing.
    """

    layer: str
    kind: str
    message: str
    serious: bool = True


def check_delivery(
    model: Module,
    data: Data | HeteroData,
    call: Callable[[Data | HeteroData], object] | None = None,
    *,
    deliver: str | None = None,
) -> list[Finding]:
    """Warns, by layer name, when a message-passing layer of `model` would silently ignore the time weights.

    Without `call` the layers' signatures and options decide: a layer that takes no `edge_weight` (SAGEConv,
    GINConv, RGCNConv, HGTConv, ...), or GATConv with `edge_dim=None`, cannot use the weights. With `call` the
    model is run twice, in eval mode and without gradients, the second time with other weights, while every
    layer gets the features of the first run; a layer whose output stays the same has not received the weights.

    It also knows layers that take the weights and bend them: `aggr="mean"` divides Σ w·x by the number of
    edges, not by Σ w; `GCNConv` and its kin divide by the square roots of both degrees, and with row-normalised
    weights their self-loop counts as much as all neighbours together.

    Args:
        model: Any module with PyG layers inside.
        data: The graph as the transform left it.
        call: Runs the model on a graph, for example `lambda d: model(d.x, d.edge_index, d.edge_weight)`.
        deliver: How the weights were delivered. Where left out it is found from `data`: "weight" if there is
            an `edge_weight`, else "attention" if there is a float `edge_attr`, else "duplicate" if an edge is
            there twice. Say so if the graph has edge attributes of its own.

    Returns:
        All findings; the serious ones were also raised as `DeliveryWarning`.

    Example:
        >>> from torch_geometric.nn import GraphSAGE
        >>> data = Data(x=torch.ones(2, 4), edge_index=torch.tensor([[0], [1]]), edge_weight=torch.ones(1))
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("ignore", DeliveryWarning)
        ...     found = check_delivery(GraphSAGE(4, 8, num_layers=1), data)
        >>> print(found[0].layer, found[0].kind)
        convs.0 ignored
    """
    pyg_object("check_delivery", data)
    if deliver is None:
        deliver = _how_delivered(data)
    else:
        checks.choice("deliver", deliver, DELIVERIES)
    if deliver is None:
        found = [Finding("", "no weights", _NO_WEIGHTS)]
    else:
        layers = dict(_layers(model, data, deliver))
        if not layers:
            return [Finding("", "no layers", "no message-passing layer of PyG was found to check.", serious=False)]
        seen = responses(model, layers, call, data, deliver) if call is not None else {}
        found = [
            finding
            for name, layer in layers.items()
            for finding in (
                *(_observed(name, layer, seen[name], deliver, data) if seen else _declared(name, layer, deliver)),
                *_bent(name, layer, deliver, data),
            )
        ]
    for finding in found:
        if finding.serious:
            warnings.warn(finding.message, DeliveryWarning, stacklevel=2)
    return found


_NO_WEIGHTS = (
    "data has no edge_weight, no edge_attr and no repeated edge, so there are no time weights to deliver; "
    "apply MMP, PMP or GenPMP first, or pass deliver='drop' or 'duplicate' if that was done."
)


def _how_delivered(data: Data | HeteroData) -> str | None:
    stores = list(edge_stores(data).values())
    if any(store.get("edge_weight") is not None for store in stores):
        return "weight"
    attributes = [store.get("edge_attr") for store in stores]
    if any(isinstance(value, torch.Tensor) and value.is_floating_point() for value in attributes):
        return "attention"
    return "duplicate" if any(_repeats(store.get("edge_index")) for store in stores) else None


def _repeats(edge_index: torch.Tensor | None) -> bool:
    if edge_index is None or not edge_index.numel():
        return False
    source, target = edge_index.long()
    return len((source * (target.max() + 1) + target).unique()) < len(source)


def _layers(model: Module, data: Data | HeteroData, deliver: str) -> Iterator[tuple[str, MessagePassing]]:
    """Message-passing layers by name, without those that serve a relation that has no weights."""
    bare = [
        separator.join(relation)
        for relation, store in edge_stores(data).items()
        for separator in ("__", "___")  # to_hetero writes the first, HeteroConv the second
        if deliver in CARRIER and store.get(CARRIER[deliver]) is None and isinstance(data, HeteroData)
    ]
    for name, module in model.named_modules():
        inner = (child for child in module.modules() if child is not module)
        if (
            isinstance(module, MessagePassing)
            and not any(isinstance(child, MessagePassing) for child in inner)
            and not any(part.strip("<>") in bare for part in name.split("."))
        ):
            yield name or type(module).__name__, module


def _declared(name: str, layer: MessagePassing, deliver: str) -> Iterator[Finding]:
    """What the signature and options of a layer say about receiving the weights."""
    if deliver not in CARRIER:
        return
    carrier = CARRIER[deliver]
    takes = inspect.signature(layer.forward).parameters
    called = f"layer {name!r} ({type(layer).__name__})"
    if any(parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) for parameter in takes.values()):
        return
    if carrier not in takes and f"{carrier}_dict" not in takes:
        yield Finding(
            name, "ignored", f"{called} takes no {carrier} and would ignore the time weights; {_cure(takes)}."
        )
    elif deliver == "attention" and getattr(layer, "edge_dim", 0) is None and not _exact(layer):
        yield Finding(
            name,
            "ignored",
            f"{called} was built with edge_dim=None and would ignore the log-weights in edge_attr; "
            f"use time_attention(model), or deliver='duplicate'.",
        )


def _observed(
    name: str, layer: MessagePassing, seen: tuple[int, int], deliver: str, data: Data | HeteroData
) -> Iterator[Finding]:
    """What running the model showed: number of calls of the layer, and how many answered to the weights."""
    calls, answered = seen
    called = f"layer {name!r} ({type(layer).__name__})"
    carrier = CARRIER.get(deliver, "edge_index")
    takes = inspect.signature(layer.forward).parameters
    if not calls:
        yield Finding(name, "not run", f"{called} was not run by call, so nothing is known about it.", serious=False)
    elif not answered and deliver in CARRIER:
        cure = f"pass {carrier}=data.{carrier} to it" if carrier in takes else _cure(takes)
        yield Finding(name, "ignored", f"{called} ignores the time weights: its output stays when they change; {cure}.")
    elif not answered:
        yield Finding(
            name,
            "ignored",
            f"{called} ignores the time weights: its output stays when edges of data are {_CHANGED[deliver]}; pass "
            f"it the edge_index of the transformed data, and see that it neither coalesces nor takes a maximum.",
        )
    elif answered < calls:
        yield Finding(
            name,
            "partly",
            f"{called} used the time weights in {answered} of its {calls} calls; pass {carrier} in each of them.",
            serious=isinstance(data, Data),  # a layer shared by relations may well serve one without weights
        )


_CHANGED = {"drop": "dropped", "duplicate": "repeated"}


def _bent(name: str, layer: MessagePassing, deliver: str, data: Data | HeteroData) -> Iterator[Finding]:
    """Layers that take the weights and do not make the weighted mean of them."""
    called = f"layer {name!r} ({type(layer).__name__})"
    takes = inspect.signature(layer.forward).parameters
    if deliver == "duplicate" and layer.aggr in EXTREMES:
        yield Finding(
            name, "aggregation", f"{called} has aggr={layer.aggr!r}, which repeated edges do not change; use a mean."
        )
    learns = "edge_attr" in takes and not _exact(layer) and getattr(layer, "edge_dim", 0) is not None
    if deliver == "attention" and learns:
        yield Finding(
            name,
            "learned",
            f"{called} learns what to make of the log-weight in edge_attr; it is exact only in the layers of "
            f"time_attention.",
            serious=False,
        )
    if deliver != "weight" or "edge_weight" not in takes:
        return
    if layer.aggr is not None and layer.aggr not in SUMS:
        yield Finding(
            name,
            "aggregation",
            f"{called} has aggr={layer.aggr!r}, which is not the weighted mean (a mean divides Σ w·x by the number "
            f"of edges); build it with aggr='sum' and use normalize=True.",
        )
    if getattr(layer, "normalize", False) is True or type(layer).__name__ in ALWAYS_NORMALISE:
        twice = getattr(layer, "add_self_loops", False) is True and _rows_sum_to_one(data)
        yield Finding(
            name,
            "normalised twice" if twice else "normalised",
            f"{called} normalises by degree; with row-normalised weights its self-loop counts as much as all "
            f"neighbours together; use normalize=False in the transform or in the layer."
            if twice
            else f"{called} divides weights by the square roots of both degrees, so its message is not the weighted "
            f"mean; that is normalize=True in the transform and normalize=False in the layer.",
            serious=twice,
        )


def _cure(takes: object) -> str:
    names = list(takes)  # type: ignore[call-overload]
    if "edge_weight" in names:
        return "use deliver='weight' and pass edge_weight"
    if "edge_attr" in names:
        return "use deliver='attention' with time_attention(model), or deliver='duplicate'"
    return "use deliver='duplicate' (PMP, MMP) or 'drop' (MMP)"


def _exact(layer: MessagePassing) -> bool:
    return isinstance(layer, TimeGATConv | TimeGATv2Conv)


def _rows_sum_to_one(data: Data | HeteroData) -> bool:
    for store in edge_stores(data).values():
        weight = store.get("edge_weight")
        if weight is not None and len(weight):
            target = store.edge_index[1].long()
            total = torch.zeros(int(target.max()) + 1, dtype=weight.dtype, device=weight.device)
            total.index_add_(0, target, weight.detach().view(-1))
            total = total[total > 0]
            return bool(((total - 1).abs() < 1e-4).all()) and bool((weight < 0.999).any())
    return False
