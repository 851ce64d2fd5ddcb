"""The graph whose nodes carry a time: `TemporalGraph`, its parts, and its form on disk."""

from impact_gnn.graph.csr import CSR, build_csr
from impact_gnn.graph.graph_summary import GraphSummary
from impact_gnn.graph.parts import HOMOGENEOUS, Nodes, Relation, Triple
from impact_gnn.graph.periods import Periods
from impact_gnn.graph.temporal import TemporalGraph, graph_digest

__all__ = [
    "CSR",
    "HOMOGENEOUS",
    "GraphSummary",
    "Nodes",
    "Periods",
    "Relation",
    "TemporalGraph",
    "Triple",
    "build_csr",
    "graph_digest",
]
