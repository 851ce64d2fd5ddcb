"""The table of models: what each reads and costs; other packages can register more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from impact_gnn import checks, nn
from impact_gnn.checks import InputError
from impact_gnn.estimators.head import Head, HeadOptions, PriorHead, Shape
from impact_gnn.estimators.network import Network, NetworkHead
from impact_gnn.estimators.trees import TreesHead
from impact_gnn.estimators.user_model import Builder, Model
from impact_gnn.methods import ModelKind


@dataclass(frozen=True)
class ModelSpec:
    """One row of the table of models.

    Args:
        summary: What it is, for the report and the docs.
        kind: What it reads; method parts say which kinds can take them.
        make: Returns an untrained head.
        network: Of a neural network, its layers and training.
        cost: Factor on the estimated cost of a training step.
        several_types: It is for graphs of several node types only.
    """

    summary: str
    kind: ModelKind
    make: Callable[[Shape, HeadOptions], Head]
    network: Network | None = None
    cost: float = 1.0
    several_types: bool = False

    @classmethod
    def of_network(
        cls, summary: str, network: Network, *, cost: float = 1.0, several_types: bool = False
    ) -> ModelSpec:
        """Return the row of a neural network."""

        def make(shape: Shape, options: HeadOptions) -> Head:
            return NetworkHead(network, shape, options)

        return cls(
            summary=summary,
            kind=network.kind,
            make=make,
            network=network,
            cost=cost,
            several_types=several_types,
        )


MODELS: dict[str, ModelSpec] = {
    "sign": ModelSpec.of_network(
        "a neural network over the features and all hops side by side", Network(nn.SIGN)
    ),
    "sign-wide": ModelSpec.of_network(
        "a wide neural network over the features and all hops side by side",
        Network(nn.SIGN, hidden=256, lr=0.003),
    ),
    "sign-light": ModelSpec.of_network(
        "a neural network with little dropout over the features and all hops side by side",
        Network(nn.SIGN, dropout=0.2, lr=0.003),
    ),
    "sgc": ModelSpec.of_network("a neural network over the last hop alone", Network(nn.SGC)),
    "gamlp": ModelSpec.of_network(
        "a neural network that learns a weight of every hop for every node",
        Network(nn.GAMLP),
        cost=1.5,
    ),
    "sehgnn": ModelSpec.of_network(
        "a neural network with attention over metapaths",
        Network(nn.SeHGNN),
        cost=2.0,
        several_types=True,
    ),
    "rphgnn": ModelSpec.of_network(
        "a neural network over randomly projected metapaths",
        Network(nn.RpHGNN, kind=ModelKind.SQUASHED),
        cost=8.0,
        several_types=True,
    ),
    "linear": ModelSpec.of_network(
        "a linear model of the features and all hops",
        Network(nn.Linear, kind=ModelKind.LINEAR, dropout=0.0),
    ),
    "gcn": ModelSpec.of_network(
        "a graph convolutional network",
        Network(nn.GCN, kind=ModelKind.GRAPH, hidden=128, self_loops=True, layers=2),
    ),
    "sage": ModelSpec.of_network(
        "GraphSAGE: a network over a node and the mean of its neighbours",
        Network(nn.SAGE, kind=ModelKind.GRAPH, hidden=128, layers=2),
    ),
    "gat": ModelSpec.of_network(
        "a graph attention network",
        Network(nn.GAT, kind=ModelKind.GRAPH, hidden=128, self_loops=True, layers=2),
        cost=12.0,
    ),
    "trees": ModelSpec(
        "boosted trees over the features and all hops side by side", ModelKind.TREES, TreesHead
    ),
    "prior": ModelSpec(
        "class proportions of past labels, without features", ModelKind.PRIOR, PriorHead
    ),
}
"""All models by name."""


def register_model(name: str, spec: ModelSpec) -> None:
    """Add a model to the table, so that candidates can name it."""
    if name in MODELS:
        raise InputError(f"a model {name!r} already exists; choose another name.")
    MODELS[name] = spec


def spec_of(model: Model) -> ModelSpec:
    """Return the row of a model."""
    if isinstance(model, str):
        return MODELS[checks.choice("model", model, MODELS)]
    network = Network(Builder(model), kind=ModelKind.USER, hidden=128)
    return ModelSpec.of_network("a user model", network)


def reads_graph(model: Model) -> bool:
    """Tell whether a model reads the whole graph at once, not hops of rows."""
    network = spec_of(model).network
    return network is not None and network.reads_graph
