"""`check_delivery`: finds layers of a model that ignore or change the time weights.

Signatures declare what a layer takes; running the model with two sets of weights observes it.
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
from torch_geometric.utils import coalesce, scatter

from impact_gnn import checks
from impact_gnn.transforms.attention import TimeGATConv, TimeGATv2Conv
from impact_gnn.transforms.delivery import DELIVERIES, select_edges
from impact_gnn.transforms.validation import edge_stores, plain_tensor, pyg_object

# "drop" and "duplicate" change the edges themselves.
CARRIER = {"weight": "edge_weight", "attention": "edge_attr"}
CHANGED = {"drop": "dropped", "duplicate": "repeated"}
SUMS = ("add", "sum", "SumAggregation()")
EXTREMES = ("max", "min", "MaxAggregation()", "MinAggregation()")
TOLERANCE = 1e-4  # relative change of an output that counts as rounding
NO_WEIGHTS = (
    "data has no edge_weight, no edge_attr and no repeated edge, so there are no time weights to "
    "deliver; apply MMP, PMP or GenPMP first, or pass deliver='drop' or 'duplicate' if that was "
    "done."
)


class DeliveryWarning(UserWarning):
    """A layer would not use the time weights as intended."""


@dataclass(frozen=True)
class DeliveryIssue:
    """An issue of a layer, or of the data, of which a `DeliveryWarning` warns.

    `kind` is "ignored", "partly", "aggregation", "normalised twice" or "no weights".
    """

    layer: str
    kind: str
    message: str


def check_delivery(
    model: Module,
    data: Data | HeteroData,
    call: Callable[[Any], object] | None = None,
    *,
    deliver: str | None = None,
) -> list[DeliveryIssue]:
    """Warn of message-passing layers of `model` that would silently ignore the time weights.

    Without `call` the layers' signatures and options decide. With `call` the model is run twice, in
    eval mode and without gradients, the second time with other weights, while every layer gets the
    features of the first run; a layer whose output stays the same has not received the weights.
    Layers that take the weights and change them are also reported: a mean divides Σ w·x by the
    number of edges, and a self-loop may count as much as all neighbours together.

    Args:
        model: Any module with PyG layers inside.
        data: The graph as the transform left it.
        call: Runs the model on a graph, for example `lambda d: model(d.x, d.edge_index,
            d.edge_weight)`.
        deliver: How the weights were delivered. By default "weight" if there is an `edge_weight`,
            else "attention" if there is a float `edge_attr`, else "duplicate" if an edge is there
            twice. Pass it if the graph has edge attributes of its own.

    Examples:
        >>> from torch_geometric.nn import GraphConv
        >>> edge_index = torch.tensor([[0], [1]])
        >>> data = Data(x=torch.ones(2, 4), edge_index=edge_index, edge_weight=torch.ones(1))
        >>> check_delivery(GraphConv(4, 8), data)
        []
    """
    pyg_object("check_delivery", data)
    if deliver is not None:
        checks.choice("deliver", deliver, DELIVERIES)
    deliver = deliver or _infer_delivery(data)
    issues = [DeliveryIssue("", "no weights", NO_WEIGHTS)]
    if deliver is not None:
        issues = list(_issues(model, data, call, deliver))
    for issue in issues:
        warnings.warn(issue.message, DeliveryWarning, stacklevel=2)
    return issues


def _issues(
    model: Module, data: Data | HeteroData, call: Callable[[Any], object] | None, deliver: str
) -> Iterator[DeliveryIssue]:
    layers = dict(_layers(model, data, deliver))
    responses = {}
    if call is not None:
        responses = _responses(model, layers, call, data, deliver)
    for name, layer in layers.items():
        examined = _ExaminedLayer(name, layer, deliver)
        if responses:
            yield from examined.observed(*responses[name], data)
        else:
            yield from examined.declared()
        yield from examined.changed_weights(data)


def _infer_delivery(data: Data | HeteroData) -> str | None:
    stores = list(edge_stores(data).values())
    if any(store.get("edge_weight") is not None for store in stores):
        return "weight"
    attributes = [store.get("edge_attr") for store in stores]
    if any(isinstance(value, Tensor) and value.is_floating_point() for value in attributes):
        return "attention"
    for store in stores:
        if store.get("edge_index") is not None:
            edge_index = plain_tensor(store.edge_index)
            # Some edge is there more than once.
            if coalesce(edge_index).shape[1] < edge_index.shape[1]:
                return "duplicate"
    return None


def _layers(
    model: Module, data: Data | HeteroData, deliver: str
) -> Iterator[tuple[str, MessagePassing]]:
    """Yield innermost message-passing layers by name, except for relations without weights."""
    unweighted: list[str] = []
    if deliver in CARRIER and isinstance(data, HeteroData):
        for relation, store in edge_stores(data).items():
            if store.get(CARRIER[deliver]) is None:
                # Names of to_hetero and of HeteroConv.
                unweighted += ["__".join(relation), "___".join(relation)]
    for name, module in model.named_modules():
        # A wrapper such as HeteroConv contains the layers that do the work; those are examined.
        passing = [child for child in module.modules() if isinstance(child, MessagePassing)]
        # HeteroConv writes the name of a relation between < and >.
        parts = [part.strip("<>") for part in name.split(".")]
        if passing == [module] and not set(parts) & set(unweighted):
            yield name or type(module).__name__, module


@dataclass(frozen=True, eq=False)
class _ExaminedLayer:
    """One layer under examination."""

    name: str
    layer: MessagePassing
    deliver: str

    @property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        return inspect.signature(self.layer.forward).parameters

    @property
    def is_exact(self) -> bool:
        return isinstance(self.layer, TimeGATConv | TimeGATv2Conv)

    @property
    def remedy(self) -> str:
        if "edge_weight" in self.parameters:
            return "use deliver='weight' and pass edge_weight"
        if "edge_attr" in self.parameters:
            return "use deliver='attention' with time_attention(model), or deliver='duplicate'"
        return "use deliver='duplicate' (PMP, MMP) or 'drop' (MMP)"

    def issue(self, kind: str, sentence: str) -> DeliveryIssue:
        message = f"layer {self.name!r} ({type(self.layer).__name__}) {sentence}"
        return DeliveryIssue(self.name, kind, message)

    def declared(self) -> Iterator[DeliveryIssue]:
        """Check by signature and options whether the layer receives the weights."""
        carrier = CARRIER.get(self.deliver)
        kinds = {parameter.kind for parameter in self.parameters.values()}
        # A signature with *args or **kwargs says nothing; only a run can tell.
        takes_anything = kinds & {
            inspect.Parameter.VAR_POSITIONAL,
            inspect.Parameter.VAR_KEYWORD,
        }
        if carrier is None or takes_anything:
            return
        has_edge_dim = getattr(self.layer, "edge_dim", 0) is not None
        if carrier not in self.parameters and f"{carrier}_dict" not in self.parameters:
            yield self.issue(
                "ignored", f"takes no {carrier} and would ignore the time weights; {self.remedy}."
            )
        elif self.deliver == "attention" and not has_edge_dim and not self.is_exact:
            yield self.issue(
                "ignored",
                "was built with edge_dim=None and would ignore the log-weights in edge_attr; "
                "use time_attention(model), or deliver='duplicate'.",
            )

    def observed(
        self, calls: int, responses: int, data: Data | HeteroData
    ) -> Iterator[DeliveryIssue]:
        """Check by the number of calls of the layer, and of those that responded to the weights."""
        carrier = CARRIER.get(self.deliver, "edge_index")
        if calls and not responses:
            change = "they change"
            # What helps depends on how weights are delivered.
            remedy = self.remedy
            if self.deliver in CHANGED:
                change = f"edges of data are {CHANGED[self.deliver]}"
                remedy = (
                    "pass it the edge_index of the transformed data, "
                    "and check that it neither coalesces nor takes a maximum"
                )
            elif carrier in self.parameters:
                remedy = f"pass {carrier}=data.{carrier} to it"
            yield self.issue(
                "ignored",
                f"ignores the time weights: its output is the same when {change}; {remedy}.",
            )
        elif responses < calls and isinstance(data, Data):
            # In HeteroData a layer shared by relations may serve one without weights.
            yield self.issue(
                "partly",
                f"used the time weights in {responses} of its {calls} calls; "
                f"pass {carrier} in each of them.",
            )

    def changed_weights(self, data: Data | HeteroData) -> Iterator[DeliveryIssue]:
        """Check whether a layer that takes the weights computes the weighted mean."""
        layer = self.layer
        aggr = layer.aggr
        if self.deliver == "duplicate" and aggr in EXTREMES:
            yield self.issue(
                "aggregation", f"has aggr={aggr!r}, which repeated edges do not change; use a mean."
            )
        # Layers that take no edge_weight have been reported already.
        if self.deliver != "weight" or "edge_weight" not in self.parameters:
            return
        if aggr is not None and aggr not in SUMS:
            yield self.issue(
                "aggregation",
                f"has aggr={aggr!r}, which is not the weighted mean "
                "(a mean divides Σ w·x by the number of edges); "
                "build it with aggr='sum' and use normalize=True.",
            )
        normalises = getattr(layer, "normalize", True) is True  # SGConv has no option
        adds_loops = getattr(layer, "add_self_loops", False) is True
        if normalises and adds_loops and _rows_sum_to_one(data):
            yield self.issue(
                "normalised twice",
                "normalises by degree; with row-normalised weights its self-loop counts as much "
                "as all neighbours together; use normalize=False in the transform or in the layer.",
            )


def _rows_sum_to_one(data: Data | HeteroData) -> bool:
    """Whether the weights of a relation were normalised to means."""
    for store in edge_stores(data).values():
        weight = store.get("edge_weight")
        if weight is not None and len(weight):
            # Sums of the weights into every node; 1 everywhere means that they were normalised.
            target = store.edge_index[1].long()
            total = scatter(weight.detach().view(-1), target)
            error = (total[total > 0] - 1).abs()
            # Where every node has one edge, weights of 1 are no sign of normalisation.
            if (error < 1e-4).all() and (weight < 0.999).any():
                return True
    return False


def _responses(
    model: Module,
    layers: Mapping[str, Module],
    call: Callable[[Any], object],
    data: Data | HeteroData,
    deliver: str,
) -> dict[str, tuple[int, int]]:
    """Count the calls of every layer, and those whose output changed with the weights.

    In the second run each layer's output is replaced by that of the first. So an output changes
    only if the weights reach the layer directly, not through the features of an earlier layer.
    """
    with _evaluation_mode(model, layers):
        # Once as it is, once with other weights and the first outputs in place of the new ones.
        first = _record(layers, call, copy.copy(data), {})
        second = _record(layers, call, _with_other_weights(data, deliver), first)
    counts = {}
    for name in layers:
        # The second run may call a layer less often.
        pairs = zip(first[name], second[name], strict=False)
        changed = [not _is_same(before, after) for before, after in pairs]
        counts[name] = (len(first[name]), sum(changed))
    return counts


def _record(
    layers: Mapping[str, Module],
    call: Callable[[Any], object],
    data: Any,
    replay: Mapping[str, list[Any]],
) -> dict[str, list[Any]]:
    """Record the outputs of every layer by call; those of `replay` are passed on instead."""
    outputs: dict[str, list[Any]] = {name: [] for name in layers}
    earlier = {name: iter(replay.get(name, [])) for name in layers}

    def record(name: str, module: Module, args: Any, output: Any) -> Any:
        outputs[name].append(output)
        # A hook that returns None leaves the output as it is.
        return next(earlier[name], None)

    handles = []
    for name, layer in layers.items():
        handles.append(layer.register_forward_hook(partial(record, name)))
    try:
        # Both runs begin with the caller's random state.
        with torch.no_grad(), torch.random.fork_rng():
            call(data)
    finally:
        for handle in handles:
            handle.remove()
    return outputs


@contextmanager
def _evaluation_mode(model: Module, layers: Mapping[str, Module]) -> Iterator[None]:
    """Set eval mode and disable caches, which would return results of other weights."""
    changes: list[tuple[Module, str, Any]] = [
        (module, "training", False) for module in model.modules()
    ]
    for layer in layers.values():
        cached = [key for key in vars(layer) if key.startswith("_cached")]
        changes += [(layer, key, None) for key in cached]
        if getattr(layer, "cached", False) is True:
            changes.append((layer, "cached", False))
    before = [(module, key, getattr(module, key)) for module, key, _ in changes]
    try:
        for change in changes:
            setattr(*change)
        yield
    finally:
        for change in before:
            setattr(*change)


def _with_other_weights(data: Data | HeteroData, deliver: str) -> Data | HeteroData:
    """Copy `data` with perturbed weights, or with every other edge dropped or repeated."""
    changed = copy.copy(data)
    for store in edge_stores(changed).values():
        if deliver == "weight" and store.get("edge_weight") is not None:
            store["edge_weight"] = store.edge_weight * _factors(store.edge_weight)
        elif deliver == "attention" and store.get("edge_attr") is not None:
            attributes = store.edge_attr.clone()
            if not attributes.is_floating_point():
                attributes = attributes.float()
            # A view: the log-weight is changed in place.
            column = attributes if attributes.dim() == 1 else attributes[:, -1]
            column += _factors(column).log()
            store["edge_attr"] = attributes
        elif deliver in ("drop", "duplicate"):
            position = torch.arange(store.num_edges, device=store.edge_index.device)
            # Every other edge is dropped, or is there once more.
            even = position[::2]
            select_edges(store, even if deliver == "drop" else torch.cat([position, even]))
    return changed


def _factors(like: Tensor) -> Tensor:
    """Return distinct numbers from .25 to 1.75, from multiples of the golden ratio."""
    steps = torch.arange(1, like.numel() + 1, dtype=torch.float64)
    fractions = (steps * 0.6180339887498949) % 1
    return (fractions * 1.5 + 0.25).view(like.shape).to(like)


def _is_same(before: Any, after: Any) -> bool:
    if isinstance(before, Tensor):
        if before.shape != after.shape:
            return False
        if not before.is_floating_point():
            return torch.equal(before, after)
        # Rounding is judged by the largest output.
        scale = float(before.abs().max()) if before.numel() else 0.0
        return torch.allclose(before, after, rtol=0, atol=TOLERANCE * scale, equal_nan=True)
    if isinstance(before, Mapping):
        return all(_is_same(before[key], after[key]) for key in before)
    if isinstance(before, tuple | list):
        return all(_is_same(*pair) for pair in zip(before, after, strict=True))
    return True
