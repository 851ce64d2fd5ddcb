"""Heads: what turns hops into probabilities, each one file behind one interface (`Head`)."""

from impact_gnn.heads.base import Head, HeadOptions, Shape
from impact_gnn.heads.foreign import Model, Own, model_name
from impact_gnn.heads.models import (
    MODELS,
    ModelSpec,
    make_head,
    reads_graph,
    register_model,
    spec_of,
)
from impact_gnn.heads.network import Network, NetworkHead

__all__ = [
    "MODELS",
    "Head",
    "HeadOptions",
    "Model",
    "ModelSpec",
    "Network",
    "NetworkHead",
    "Own",
    "Shape",
    "make_head",
    "model_name",
    "reads_graph",
    "register_model",
    "spec_of",
]
