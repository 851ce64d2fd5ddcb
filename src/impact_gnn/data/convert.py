"""Converts the graphs that callers pass: a `TemporalGraph`, or a graph of PyTorch Geometric."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from impact_gnn.checks import InputError
from impact_gnn.graph import TemporalGraph

if TYPE_CHECKING:
    from torch_geometric.data import Data, HeteroData

GraphLike: TypeAlias = "TemporalGraph | Data | HeteroData"


def as_temporal_graph(graph: GraphLike) -> TemporalGraph:
    """Return the graph itself, or convert PyG's `Data` or `HeteroData` by `from_pyg`.

    The times of a PyG graph are its attribute `time`.
    """
    if isinstance(graph, TemporalGraph):
        return graph
    if not any(base.__module__.startswith("torch_geometric.data") for base in type(graph).__mro__):
        raise InputError(
            f"graph is a {type(graph).__name__}; "
            "pass a TemporalGraph (from_tables, load) or PyG's Data, HeteroData."
        )
    from impact_gnn.data.pyg import from_pyg  # torch is needed only now

    return from_pyg(graph)
