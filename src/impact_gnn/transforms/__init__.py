"""PyTorch Geometric transforms: time weights, splits, and a check that layers use the weights."""

from impact_gnn.transforms.attention import TimeGATConv, TimeGATv2Conv, time_attention
from impact_gnn.transforms.check import DeliveryIssue, DeliveryWarning, check_delivery
from impact_gnn.transforms.split import ChronologicalSplit
from impact_gnn.transforms.weights import MMP, PMP, GenPMP, TimeWeights

__all__ = [
    "MMP",
    "PMP",
    "ChronologicalSplit",
    "DeliveryIssue",
    "DeliveryWarning",
    "GenPMP",
    "TimeGATConv",
    "TimeGATv2Conv",
    "TimeWeights",
    "check_delivery",
    "time_attention",
]
