"""`check_delivery`: which layers of a model would ignore the time weights, or use them for something else.

What a layer says is read off its signature; what it does is seen by running the model with two sets
of weights.
"""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import coalesce

from impact_gnn import checks
from impact_gnn.transforms.attention import TimeGATConv, TimeGATv2Conv
from impact_gnn.transforms.delivery import DELIVERIES, keep_edges
from impact_gnn.transforms.validation import edge_stores, plain_tensor, pyg_object

# drop and duplicate change the edges themselves
CARRIER = {
    "weight": "edge_weight",
    "attention": "edge_attr",
}
CHANGED = {"drop": "dropped", "duplicate": "repeated"}
SUMS = ("add", "sum", "SumAggregation()")
EXTREMES = ("max", "min", "MaxAggregation()", "MinAggregation()")
# divide by degrees without an option
ALWAYS_NORMALISE = (
    "ARMAConv",
    "ChebConv",
    "MixHopConv",
    "SGConv",
    "SSGConv",
)
TOLERANCE = 1e-4  # relative change of an output that counts as none: above rounding, far below any real change
NO_WEIGHTS = (
    "data has no edge_weight, no edge_attr and no repeated edge, so there are no time weights to deliver; "
    "apply MMP, PMP or GenPMP first, or pass deliver='drop' or 'duplicate' if that was done."
)


class DeliveryWarning(UserWarning):
    """A layer would not use the time weights as meant."""


@dataclass(frozen=True)
class DeliveryIssue:
    """What was found about a layer, or without one about the data; the serious ones are raised as `DeliveryWarning`.

    `kind` is "ignored", "partly", "aggregation", "normalised twice", "normalised", "learned", "not
    run", "no layers" or "no weights".
    """

    layer: str
    kind: str
    message: str
    serious: bool = True


def check_delivery(
    model: Module,
    data: Data | HeteroData,
    call: Callable[[Any], object] | None = None,
    *,
    deliver: str | None = None,
) -> list[DeliveryIssue]:
    """Warns, by layer name, when a message-passing layer of `model` would silently ignore the time weights.

    Without `call` the layers' signatures and options decide. With `call` the model is run twice, in
    eval mode and without gradients, the second time with other weights, while every layer gets the
    features of the first run; a layer whose output stays the same has not received the weights.
    Layers that take the weights and bend them are also known: a mean divides Σ w·x by the number of
    edges, `GCNConv` and its kin by the roots of both degrees.

    Args:
        model: Any module with PyG layers inside.
        data: The graph as the transform left it.
        call: Runs the model on a graph, for example `lambda d: model(d.x, d.edge_index,
            d.edge_weight)`.
        deliver: How the weights were delivered. Where left out `data` tells: "weight" if there is
            an `edge_weight`, else "attention" if there is a float `edge_attr`, else "duplicate" if
            an edge is there twice. Say so if the graph has edge attributes of its own.

    Examples:
        >>> from torch_geometric.nn import GraphConv
        >>> data = Data(x=torch.ones(2, 4), edge_index=torch.tensor([[0], [1]]), edge_weight=torch.ones(1))
        >>> check_delivery(GraphConv(4, 8), data)
        []
    """
    pyg_object("check_delivery", data)
    deliver = (
        _how_delivered(data) if deliver is None else checks.choice("deliver", deliver, DELIVERIES)
    )
    findings = []
    if deliver is None:
        findings.append(DeliveryIssue("", "no weights", NO_WEIGHTS))
    else:
        layers = dict(_layers(model, data, deliver))
        if not layers:
            return [
                DeliveryIssue(
                    "",
                    "no layers",
                    "no message-passing layer of PyG was found to check.",
                    serious=False,
                )
            ]
        runs = _responses(model, layers, call, data, deliver) if call is not None else {}
        for name, layer in layers.items():
            subject = _Subject(name, layer, deliver)
            findings += subject.observed(*runs[name], data) if runs else subject.declared()
            findings += subject.bent(data)
    for finding in findings:
        if finding.serious:
            warnings.warn(finding.message, DeliveryWarning, stacklevel=2)
    return findings


def _how_delivered(data: Data | HeteroData) -> str | None:
    stores = list(edge_stores(data).values())
    if any(store.get("edge_weight") is not None for store in stores):
        return "weight"
    attributes = [store.get("edge_attr") for store in stores]
    if any(isinstance(value, Tensor) and value.is_floating_point() for value in attributes):
        return "attention"
    edges = [
        plain_tensor(store.edge_index) for store in stores if store.get("edge_index") is not None
    ]
    return (
        "duplicate" if any(coalesce(index).shape[1] < index.shape[1] for index in edges) else None
    )


def _layers(
    model: Module, data: Data | HeteroData, deliver: str
) -> Iterator[tuple[str, MessagePassing]]:
    """Message-passing layers by name, without those that serve a relation that has no weights."""
    bare = [
        separator.join(relation)
        for relation, store in edge_stores(data).items()
        for separator in ("__", "___")  # to_hetero writes the first, HeteroConv the second
        if deliver in CARRIER
        and store.get(CARRIER[deliver]) is None
        and isinstance(data, HeteroData)
    ]
    for name, module in model.named_modules():
        inner = (child for child in module.modules() if child is not module)
        innermost = isinstance(module, MessagePassing) and not any(
            isinstance(child, MessagePassing) for child in inner
        )
        if innermost and not any(part.strip("<>") in bare for part in name.split(".")):
            yield name or type(module).__name__, module


@dataclass(frozen=True, eq=False)
class _Subject:
    """One layer under examination."""

    name: str
    layer: MessagePassing
    deliver: str

    @property
    def takes(self) -> Mapping[str, inspect.Parameter]:
        return inspect.signature(self.layer.forward).parameters

    @property
    def exact(self) -> bool:
        return isinstance(self.layer, TimeGATConv | TimeGATv2Conv)

    @property
    def cure(self) -> str:
        if "edge_weight" in self.takes:
            return "use deliver='weight' and pass edge_weight"
        if "edge_attr" in self.takes:
            return "use deliver='attention' with time_attention(model), or deliver='duplicate'"
        return "use deliver='duplicate' (PMP, MMP) or 'drop' (MMP)"

    def finding(self, kind: str, sentence: str, *, serious: bool = True) -> DeliveryIssue:
        return DeliveryIssue(
            self.name,
            kind,
            f"layer {self.name!r} ({type(self.layer).__name__}) {sentence}",
            serious,
        )

    def declared(self) -> Iterator[DeliveryIssue]:
        """What the signature and options of the layer say about receiving the weights."""
        carrier = CARRIER.get(self.deliver)
        anything = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        if carrier is None or any(parameter.kind in anything for parameter in self.takes.values()):
            return
        if carrier not in self.takes and f"{carrier}_dict" not in self.takes:
            yield self.finding(
                "ignored", f"takes no {carrier} and would ignore the time weights; {self.cure}."
            )
        elif (
            self.deliver == "attention"
            and getattr(self.layer, "edge_dim", 0) is None
            and not self.exact
        ):
            why = "was built with edge_dim=None and would ignore the log-weights in edge_attr"
            yield self.finding(
                "ignored", f"{why}; use time_attention(model), or deliver='duplicate'."
            )

    def observed(
        self, calls: int, answered: int, data: Data | HeteroData
    ) -> Iterator[DeliveryIssue]:
        """What running the model showed: number of calls of the layer, and how many answered to the weights."""
        carrier = CARRIER.get(self.deliver, "edge_index")
        if not calls:
            yield self.finding(
                "not run", "was not run by call, so nothing is known about it.", serious=False
            )
        elif not answered:
            change = (
                "they change"
                if self.deliver in CARRIER
                else f"edges of data are {CHANGED[self.deliver]}"
            )
            cure = f"pass {carrier}=data.{carrier} to it" if carrier in self.takes else self.cure
            if self.deliver in CHANGED:
                hint = "see that it neither coalesces nor takes a maximum"
                cure = f"pass it the edge_index of the transformed data, and {hint}"
            yield self.finding(
                "ignored", f"ignores the time weights: its output stays when {change}; {cure}."
            )
        elif answered < calls:
            share = f"used the time weights in {answered} of its {calls} calls"
            # a layer shared by relations may well serve one without weights
            serious = isinstance(data, Data)
            yield self.finding(
                "partly", f"{share}; pass {carrier} in each of them.", serious=serious
            )

    def bent(self, data: Data | HeteroData) -> Iterator[DeliveryIssue]:
        """What a layer that takes the weights makes of them, where that is not the weighted mean."""
        layer, aggr = self.layer, self.layer.aggr
        if self.deliver == "duplicate" and aggr in EXTREMES:
            yield self.finding(
                "aggregation", f"has aggr={aggr!r}, which repeated edges do not change; use a mean."
            )
        learns = (
            "edge_attr" in self.takes
            and not self.exact
            and getattr(layer, "edge_dim", 0) is not None
        )
        if self.deliver == "attention" and learns:
            why = "learns what to make of the log-weight in edge_attr; it is exact only in the layers of time_attention."
            yield self.finding("learned", why, serious=False)
        if self.deliver != "weight" or "edge_weight" not in self.takes:
            return
        if aggr is not None and aggr not in SUMS:
            why = "which is not the weighted mean (a mean divides Σ w·x by the number of edges)"
            cure = "build it with aggr='sum' and use normalize=True"
            yield self.finding("aggregation", f"has aggr={aggr!r}, {why}; {cure}.")
        if (
            getattr(layer, "normalize", False) is not True
            and type(layer).__name__ not in ALWAYS_NORMALISE
        ):
            return
        if getattr(layer, "add_self_loops", False) is True and _rows_sum_to_one(data):
            why = "its self-loop counts as much as all neighbours together"
            cure = "use normalize=False in the transform or in the layer"
            why = f"normalises by degree; with row-normalised weights {why}; {cure}."
            yield self.finding("normalised twice", why)
        else:
            why = "divides weights by the square roots of both degrees, so its message is not the weighted mean"
            cure = "that is normalize=True in the transform and normalize=False in the layer"
            yield self.finding("normalised", f"{why}; {cure}.", serious=False)


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


def _responses(
    model: Module,
    layers: Mapping[str, Module],
    call: Callable[[Any], object],
    data: Data | HeteroData,
    deliver: str,
) -> dict[str, tuple[int, int]]:
    """For every layer: how often it ran, and in how many of those runs its output changed with the weights.

    In the second run each layer's output is replaced by that of the first, so that a layer sees a
    change only if the weights reach it directly, not through the features that an earlier layer
    computed.
    """
    with _still(model, layers):
        first = _record(layers, call, copy.copy(data), {})
        second = _record(layers, call, _varied(data, deliver), first)
    pairs = {name: zip(first[name], second[name], strict=False) for name in layers}
    return {
        name: (len(first[name]), sum(not _same(*pair) for pair in pairs[name])) for name in layers
    }


def _record(
    layers: Mapping[str, Module],
    call: Callable[[Any], object],
    data: Any,
    replay: Mapping[str, list[Any]],
) -> dict[str, list[Any]]:
    """The outputs of every layer, call by call; those of `replay` are passed on in their place."""
    outputs: dict[str, list[Any]] = {name: [] for name in layers}

    def listen(name: str, module: Module, args: Any, output: Any) -> Any:
        outputs[name].append(output)
        earlier = replay.get(name, [])
        return earlier[len(outputs[name]) - 1] if len(outputs[name]) <= len(earlier) else None

    handles = [layer.register_forward_hook(partial(listen, name)) for name, layer in layers.items()]
    try:
        # both runs begin with the caller's random state
        with (
            torch.no_grad(),
            torch.random.fork_rng(),
        ):
            call(data)
    finally:
        for handle in handles:
            handle.remove()
    return outputs


@contextmanager
def _still(model: Module, layers: Mapping[str, Module]) -> Iterator[None]:
    """Eval mode and no caches for a while: a cached normalisation would answer for weights it never saw."""
    changes: list[tuple[Module, str, Any]] = [
        (module, "training", False) for module in model.modules()
    ]
    for layer in layers.values():
        changes += [(layer, key, None) for key in vars(layer) if key.startswith("_cached")]
        changes += [(layer, "cached", False)] if getattr(layer, "cached", False) is True else []
    before = [(module, key, getattr(module, key)) for module, key, _ in changes]
    try:
        for change in changes:
            setattr(*change)
        yield
    finally:
        for change in before:
            setattr(*change)


def _varied(data: Data | HeteroData, deliver: str) -> Data | HeteroData:
    """A copy of `data` with other weights: perturbed numbers, or every other edge dropped or repeated."""
    out = copy.copy(data)
    for store in edge_stores(out).values():
        if deliver == "weight" and store.get("edge_weight") is not None:
            store["edge_weight"] = store.edge_weight * _factors(store.edge_weight)
        elif deliver == "attention" and store.get("edge_attr") is not None:
            attributes = (
                store.edge_attr.clone()
                if store.edge_attr.is_floating_point()
                else store.edge_attr.float()
            )
            column = attributes if attributes.dim() == 1 else attributes[:, -1]
            column += _factors(column).log()
            store["edge_attr"] = attributes
        elif deliver in ("drop", "duplicate"):
            position = torch.arange(store.num_edges, device=store.edge_index.device)
            even = position[::2]
            keep_edges(store, even if deliver == "drop" else torch.cat([position, even]))
    return out


def _factors(like: Tensor) -> Tensor:
    """Numbers from .25 to 1.75, no two alike: multiples of the golden ratio, of which the whole part is left out."""
    steps = torch.arange(1, like.numel() + 1, dtype=torch.float64).view(like.shape)
    return ((steps * 0.6180339887498949) % 1 * 1.5 + 0.25).to(like)


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
