"""Graphs from and to PyTorch Geometric: `Data` and `HeteroData`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data, HeteroData

from impact_gnn import checks
from impact_gnn.checks import InputError, listing
from impact_gnn.graph import HOMOGENEOUS, TemporalGraph, Triple


def from_pyg(
    data: Data | HeteroData,
    *,
    time: Any = "time",
    label: str = "y",
    target: str | None = None,
    edge_time: str | None = None,
) -> TemporalGraph:
    """Convert a graph of PyG; tensors in CPU memory are shared, not copied.

    Args:
        data: A `Data` or `HeteroData`.
        time: Name of the time attribute (`"time"`, `"node_year"`, ...), or the times themselves: a
            tensor [N] or [N, 1], or a dictionary of such by node type.
        label: Name of the label attribute.
        target: The type to classify; needed only if several types have labels and time.
        edge_time: Name of the attribute that says when edges came; by default `"edge_time"` where
            there is one.

    Examples:
        >>> data = Data(
        ...     x=torch.eye(2),
        ...     y=torch.tensor([0, 1]),
        ...     edge_index=torch.tensor([[0], [1]]),
        ...     node_year=torch.tensor([[2019], [2020]]),
        ... )
        >>> from_pyg(data, time="node_year")
        TemporalGraph(2 nodes, 1 edges, 2 features, 2 classes, times 2019..2020)
    """
    if isinstance(data, HeteroData):
        return _from_hetero(data, time, label, target, edge_time)
    if not isinstance(data, Data):
        raise InputError(
            f"data is a {type(data).__name__}; pass a torch_geometric Data or HeteroData."
        )
    if data.edge_index is None:
        raise InputError("data has no edge_index; pass edges as data.edge_index [2, E].")
    when = data.get(time) if isinstance(time, str) else time
    if when is None:
        names = [name for name, value in data.to_dict().items() if isinstance(value, torch.Tensor)]
        raise InputError(
            f"data has no attribute {time!r}; pass time=... to from_pyg, one of {listing(names)}."
        )
    edges = _relations({HOMOGENEOUS: data}, edge_time)[HOMOGENEOUS]
    return TemporalGraph(
        x=_array(data.x, "x"),
        y=_array(data.get(label), "y"),
        time=_array(when, "time"),
        edge_index=edges["edge_index"],
        edge_weight=edges["weight"],
        edge_time=edges["time"],
    )


def to_pyg(graph: TemporalGraph) -> Data | HeteroData:
    """Return the graph as PyG `Data`, or `HeteroData` for several types; arrays are copied."""
    data = HeteroData() if graph.is_hetero else Data()
    for kind, part in graph.nodes.items():
        store: Any = data[kind] if graph.is_hetero else data
        store.num_nodes = part.num_nodes
        for name in ("x", "y", "time"):
            if getattr(part, name) is not None:
                store[name] = _tensor(getattr(part, name))
    for triple, relation in graph.relations.items():
        store = data[triple] if graph.is_hetero else data
        store.edge_index = _tensor(relation.edge_index).long()
        for name in ("weight", "time"):
            if getattr(relation, name) is not None:
                store[f"edge_{name}"] = _tensor(getattr(relation, name))
    return data


def _from_hetero(
    data: HeteroData,
    time: Any,
    label: str,
    target: str | None,
    edge_time: str | None,
) -> TemporalGraph:
    nodes: dict[str, dict[str, Any]] = {}
    for kind in data.node_types:
        store = data[kind]
        times = None
        if isinstance(time, str):
            times = store.get(time)
        elif isinstance(time, Mapping):
            times = time.get(kind)
        nodes[kind] = {
            "x": _array(store.get("x"), f"{kind}.x"),
            "y": _array(store.get(label), f"{kind}.y"),
            "time": _array(times, f"{kind}.time"),
            "num_nodes": store.num_nodes,
        }
    if target is None:
        candidates = [
            kind
            for kind, part in nodes.items()
            if part["y"] is not None and part["time"] is not None
        ]
        if len(candidates) != 1:
            which = "no type has both"
            if candidates:
                which = f"{listing(candidates)} all have them"
            raise InputError(
                f"the node type to classify needs labels and times, but {which}; "
                "pass target=... and time=... to from_pyg."
            )
        target = candidates[0]
    for triple in data.edge_types:
        if data[triple].get("edge_index") is None:
            raise InputError(
                f"relation {'-'.join(triple)} has no edge_index; pass its edges as [2, E]."
            )
    edges = _relations({triple: data[triple] for triple in data.edge_types}, edge_time)
    return TemporalGraph.hetero(nodes=nodes, edges=edges, target=target)


def _relations(stores: Mapping[Triple, Any], edge_time: str | None) -> dict[Triple, dict[str, Any]]:
    """Return edges with weights and times; refuse a name of times that no relation has."""
    names = {"edge_index": "edge_index", "weight": "edge_weight", "time": edge_time or "edge_time"}
    relations = {
        triple: {part: _array(store.get(name), name) for part, name in names.items()}
        for triple, store in stores.items()
    }
    if edge_time is not None and all(part["time"] is None for part in relations.values()):
        raise InputError(
            f"no edges have an attribute {edge_time!r}; pass edge_time=... with the name of theirs."
        )
    return relations


def _array(value: Any, name: str) -> Any:
    if isinstance(value, torch.Tensor) and value.layout != torch.strided:
        checks.fits(
            f"{name} as a dense matrix",
            value.numel() * value.element_size(),
            "use fewer columns",
        )
    return None if value is None else checks.array(name, value)


def _tensor(values: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.array(values))
