"""What callers may give where a graph is taken: a `TemporalGraph`, or a graph of PyTorch Geometric."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from impact_gnn.checks import InputError
from impact_gnn.graph import TemporalGraph

if TYPE_CHECKING:
    from torch_geometric.data import Data, HeteroData

GraphLike: TypeAlias = "TemporalGraph | Data | HeteroData"


def as_temporal_graph(graph: GraphLike) -> TemporalGraph:
    """The graph itself, or what `from_pyg` reads from PyG's `Data` or `HeteroData`, times being called "time"."""
    if isinstance(graph, TemporalGraph):
        return graph
    if not any(kind.__module__.startswith("torch_geometric.data") for kind in type(graph).__mro__):
        name = type(graph).__name__
        raise InputError(
            f"graph is a {name}; give a TemporalGraph (from_tables, load) or PyG's Data, HeteroData."
        )
    from impact_gnn.data.pyg import from_pyg  # torch is needed only now

    return from_pyg(graph)
