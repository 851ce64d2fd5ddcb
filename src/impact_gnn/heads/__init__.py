"""Heads: what turns hops into probabilities, each one file behind one interface (`Head`)."""

from impact_gnn.heads.base import Head, HeadOptions, PriorHead, Shape
from impact_gnn.heads.foreign import Builder, Model, Own, is_spatial, model_name
from impact_gnn.heads.network import NETWORKS, SPATIAL, Network, NetworkHead
from impact_gnn.heads.trees import TreesHead

HEADS = (*NETWORKS, "trees", "prior")


def make_head(model: Model, shape: Shape, options: HeadOptions) -> Head:
    """The head of this name or with this network, not fitted."""
    if not isinstance(model, str):
        return NetworkHead(
            type(model).__name__, shape, options, Network(Builder(model), hidden=128, spatial=True)
        )
    if model in NETWORKS:
        return NetworkHead(model, shape, options, NETWORKS[model])
    return (TreesHead if model == "trees" else PriorHead)(shape, options)


__all__ = [
    "HEADS",
    "NETWORKS",
    "SPATIAL",
    "Head",
    "HeadOptions",
    "Model",
    "NetworkHead",
    "Own",
    "Shape",
    "is_spatial",
    "make_head",
    "model_name",
]
