"""PyTorch Geometric transforms: time weights in one line, for `Data` and `HeteroData`, and whether layers use them."""

from impact_gnn.transforms.attention import TimeGATConv, TimeGATv2Conv, time_attention
from impact_gnn.transforms.check import DeliveryIssue, DeliveryWarning, check_delivery
from impact_gnn.transforms.split import ChronologicalSplit
from impact_gnn.transforms.weights import MMP, PMP, GenPMP, RelationSummary, Summary, TimeWeights

__all__ = [
    "MMP",
    "PMP",
    "ChronologicalSplit",
    "DeliveryIssue",
    "DeliveryWarning",
    "GenPMP",
    "RelationSummary",
    "Summary",
    "TimeGATConv",
    "TimeGATv2Conv",
    "TimeWeights",
    "check_delivery",
    "time_attention",
]
