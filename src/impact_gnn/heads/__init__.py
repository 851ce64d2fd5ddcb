"""Heads: what turns hops into probabilities, each one file behind one interface (`Head`)."""

from impact_gnn.heads.head import Head, HeadOptions, Shape
from impact_gnn.heads.model_table import (
    MODELS,
    ModelSpec,
    make_head,
    reads_graph,
    register_model,
    spec_of,
)
from impact_gnn.heads.network import Network, NetworkHead
from impact_gnn.heads.user_model import Model, Own, model_name

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
