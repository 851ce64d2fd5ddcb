"""Heads: what turns hops into probabilities, each one file behind one interface (`Head`)."""

from impact_gnn.heads.base import Head, HeadOptions, PriorHead, Shape
from impact_gnn.heads.network import NETWORKS, SPATIAL, NetworkHead
from impact_gnn.heads.trees import TreesHead

HEADS = (*NETWORKS, "trees", "prior")


def make_head(name: str, shape: Shape, options: HeadOptions) -> Head:
    """The head of this name, not fitted."""
    if name in NETWORKS:
        return NetworkHead(name, shape, options)
    return (TreesHead if name == "trees" else PriorHead)(shape, options)


__all__ = ["HEADS", "NETWORKS", "SPATIAL", "Head", "HeadOptions", "NetworkHead", "Shape", "make_head"]
