"""`check_delivery`: which layers of a model would ignore the time weights, or use them for something else.

What a layer says (its signature and options) is read off it; what it does is seen by running the model twice, with two
sets of weights.
"""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import MessagePassing

from impact_gnn import checks
from impact_gnn.transforms.attention import TimeGATConv, TimeGATv2Conv
from impact_gnn.transforms.delivery import DELIVERIES, keep_edges
from impact_gnn.transforms.door import edge_stores, pyg_object

CARRIER = {"weight": "edge_weight", "attention": "edge_attr"}
"""The attribute that carries the weights; drop and duplicate carry them in the edges themselves."""

CHANGED = {"drop": "dropped", "duplicate": "repeated"}
SUMS = ("add", "sum", "SumAggregation()")
EXTREMES = ("max", "min", "MaxAggregation()", "MinAggregation()")
ALWAYS_NORMALISE = ("ARMAConv", "ChebConv", "MixHopConv", "SGConv", "SSGConv")
"""Layers that divide by degrees without an option `normalize` to turn it off."""

TOLERANCE = 1e-4
"""Relative change of an output below which it counts as the same: above rounding, far below any real change."""

NO_WEIGHTS = (
    "data has no edge_weight, no edge_attr and no repeated edge, so there are no time weights to deliver; "
    "apply MMP, PMP or GenPMP first, or pass deliver='drop' or 'duplicate' if that was done."
)


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
        deliver: How the weights were delivered. Where left out `data` tells: "weight" if there is
            an `edge_weight`, else "attention" if there is a float `edge_attr`, else "duplicate" if an edge is
            there twice. Say so if the graph has edge attributes of its own.

    Returns:
        All findings; the serious ones were also raised as `DeliveryWarning`.

    Example:
        >>> from torch_geometric.nn import GraphSAGE
        >>> data = Data(x=torch.ones(2, 4), edge_index=torch.tensor([[0], [1]]), edge_weight=torch.ones(1))
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("ignore", DeliveryWarning)
        ...     findings = check_delivery(GraphSAGE(4, 8, num_layers=1), data)
        >>> print(findings[0].layer, findings[0].kind)
        convs.0 ignored
    """
    pyg_object("check_delivery", data)
    if deliver is None:
        deliver = _how_delivered(data)
    else:
        checks.choice("deliver", deliver, DELIVERIES)
    if deliver is None:
        findings = [Finding("", "no weights", NO_WEIGHTS)]
    else:
        layers = dict(_layers(model, data, deliver))
        if not layers:
            return [Finding("", "no layers", "no message-passing layer of PyG was found to check.", serious=False)]
        runs = _responses(model, layers, call, data, deliver) if call is not None else {}
        findings = []
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

    def finding(self, kind: str, sentence: str, *, serious: bool = True) -> Finding:
        """A finding about this layer; the sentence goes on after its name."""
        return Finding(self.name, kind, f"layer {self.name!r} ({type(self.layer).__name__}) {sentence}", serious)

    def declared(self) -> Iterator[Finding]:
        """What the signature and options of the layer say about receiving the weights."""
        carrier = CARRIER.get(self.deliver)
        anything = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        if carrier is None or any(parameter.kind in anything for parameter in self.takes.values()):
            return
        if carrier not in self.takes and f"{carrier}_dict" not in self.takes:
            yield self.finding("ignored", f"takes no {carrier} and would ignore the time weights; {self.cure}.")
        elif self.deliver == "attention" and getattr(self.layer, "edge_dim", 0) is None and not self.exact:
            yield self.finding(
                "ignored",
                "was built with edge_dim=None and would ignore the log-weights in edge_attr; "
                "use time_attention(model), or deliver='duplicate'.",
            )

    def observed(self, calls: int, answered: int, data: Data | HeteroData) -> Iterator[Finding]:
        """What running the model showed: number of calls of the layer, and how many answered to the weights."""
        carrier = CARRIER.get(self.deliver, "edge_index")
        if not calls:
            yield self.finding("not run", "was not run by call, so nothing is known about it.", serious=False)
        elif not answered and self.deliver in CARRIER:
            cure = f"pass {carrier}=data.{carrier} to it" if carrier in self.takes else self.cure
            yield self.finding("ignored", f"ignores the time weights: its output stays when they change; {cure}.")
        elif not answered:
            yield self.finding(
                "ignored",
                f"ignores the time weights: its output stays when edges of data are {CHANGED[self.deliver]}; pass it "
                f"the edge_index of the transformed data, and see that it neither coalesces nor takes a maximum.",
            )
        elif answered < calls:
            yield self.finding(
                "partly",
                f"used the time weights in {answered} of its {calls} calls; pass {carrier} in each of them.",
                serious=isinstance(data, Data),  # a layer shared by relations may well serve one without weights
            )

    def bent(self, data: Data | HeteroData) -> Iterator[Finding]:
        """What a layer that takes the weights makes of them, where that is not the weighted mean."""
        layer, aggr = self.layer, self.layer.aggr
        if self.deliver == "duplicate" and aggr in EXTREMES:
            yield self.finding("aggregation", f"has aggr={aggr!r}, which repeated edges do not change; use a mean.")
        learns = "edge_attr" in self.takes and not self.exact and getattr(layer, "edge_dim", 0) is not None
        if self.deliver == "attention" and learns:
            yield self.finding(
                "learned",
                "learns what to make of the log-weight in edge_attr; it is exact only in the layers of time_attention.",
                serious=False,
            )
        if self.deliver != "weight" or "edge_weight" not in self.takes:
            return
        if aggr is not None and aggr not in SUMS:
            yield self.finding(
                "aggregation",
                f"has aggr={aggr!r}, which is not the weighted mean (a mean divides Σ w·x by the number of edges); "
                f"build it with aggr='sum' and use normalize=True.",
            )
        if getattr(layer, "normalize", False) is True or type(layer).__name__ in ALWAYS_NORMALISE:
            if getattr(layer, "add_self_loops", False) is True and _rows_sum_to_one(data):
                yield self.finding(
                    "normalised twice",
                    "normalises by degree; with row-normalised weights its self-loop counts as much as all "
                    "neighbours together; use normalize=False in the transform or in the layer.",
                )
            else:
                yield self.finding(
                    "normalised",
                    "divides weights by the square roots of both degrees, so its message is not the weighted mean; "
                    "that is normalize=True in the transform and normalize=False in the layer.",
                    serious=False,
                )


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


def _record(
    layers: Mapping[str, Module], call: Callable[[Any], object], data: Any, replay: Mapping[str, list[Any]]
) -> dict[str, list[Any]]:
    """The outputs of every layer, call by call; those of `replay` are passed on in their place."""
    outputs: dict[str, list[Any]] = {name: [] for name in layers}

    def listener(name: str) -> Callable[..., Any]:
        def hook(module: Module, args: Any, output: Any) -> Any:
            outputs[name].append(output)
            earlier = replay.get(name, [])
            return earlier[len(outputs[name]) - 1] if len(outputs[name]) <= len(earlier) else None

        return hook

    handles = [layer.register_forward_hook(listener(name)) for name, layer in layers.items()]
    try:
        with torch.no_grad(), torch.random.fork_rng():  # both runs begin with the caller's random state
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
    for store in edge_stores(out).values():
        if deliver == "weight" and store.get("edge_weight") is not None:
            weight = store.edge_weight
            store["edge_weight"] = weight * _factors(weight)
        elif deliver == "attention" and store.get("edge_attr") is not None:
            attributes = store.edge_attr.clone() if store.edge_attr.is_floating_point() else store.edge_attr.float()
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
    golden = 0.6180339887498949
    steps = torch.arange(1, like.numel() + 1, dtype=torch.float64).view(like.shape)
    return ((steps * golden) % 1 * 1.5 + 0.25).to(like)


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
