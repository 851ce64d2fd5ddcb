"""Graphs from and to PyTorch Geometric: `Data`, `HeteroData`, and OGB's variant with dictionaries inside `Data`."""

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
    """The graph in a PyG object; tensors in CPU memory are shared, not copied.

    Args:
        data: A `Data` (homogeneous, or OGB's form with `edge_index_dict` and the like) or
            `HeteroData`.
        time: Name of the time attribute (`"time"`, `"node_year"`, ...), or the times themselves: a
            tensor [N] or [N, 1], or a dictionary of such by node type.
        label: Name of the label attribute.
        target: The type to classify; needed only if several types have labels and time.
        edge_time: Name of the attribute that says when edges came; by default `"edge_time"` where
            there is one.

    Examples:
        >>> data = Data(x=torch.eye(2), y=torch.tensor([0, 1]), edge_index=torch.tensor([[0], [1]]),
        ...             node_year=torch.tensor([[2019], [2020]]))
        >>> from_pyg(data, time="node_year")
        TemporalGraph(2 nodes, 1 edges, 2 features, 2 classes, times 2019..2020)
    """
    if isinstance(data, HeteroData):
        stores = {kind: dict(data[kind].items()) for kind in data.node_types}
        edges = {triple: dict(data[triple].items()) for triple in data.edge_types}
        sizes = {kind: data[kind].num_nodes for kind in data.node_types}
        return _hetero(stores, edges, sizes, time, label, target, edge_time)
    if not isinstance(data, Data):
        raise InputError(
            f"data is a {type(data).__name__}; give a torch_geometric Data or HeteroData."
        )
    if isinstance(getattr(data, "edge_index_dict", None), Mapping):
        return _from_dictionaries(data, time, label, target, edge_time)
    if data.edge_index is None:
        raise InputError("data has no edge_index; give edges as data.edge_index [2, E].")
    when = data.get(time) if isinstance(time, str) else time
    if when is None:
        names = [name for name, value in data.to_dict().items() if isinstance(value, torch.Tensor)]
        raise InputError(
            f"data has no attribute {time!r}; pass time=... as one of {listing(names)} to from_pyg."
        )
    edges = _relations({HOMOGENEOUS: data}, edge_time)[HOMOGENEOUS]
    given = {"x": data.x, "y": data.get(label), "time": when, "edge_index": edges["edge_index"]}
    given |= {"edge_weight": edges["weight"], "edge_time": edges["time"]}
    return TemporalGraph(**{name: _array(value, name) for name, value in given.items()})


def to_pyg(graph: TemporalGraph) -> Data | HeteroData:
    """The graph as PyG `Data`, or `HeteroData` where it has several types; arrays are copied."""
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


def _from_dictionaries(
    data: Data, time: Any, label: str, target: str | None, edge_time: str | None
) -> TemporalGraph:
    """OGB's heterogeneous `Data`: x_dict, y_dict, node_year, num_nodes_dict, edge_index_dict, edge_time_dict."""
    sizes = dict(data.num_nodes_dict) if "num_nodes_dict" in data else {}
    if isinstance(time, str):
        times = data.get(time) if data.get(time) is not None else data.get(f"{time}_dict")
        if not isinstance(times, Mapping):
            raise InputError(
                f"data has no dictionary called {time!r}; pass the name of the one that holds times."
            )
        time = times
    field = edge_time or "edge_time"
    came = data.get(f"{field}_dict") or {}
    edges = {
        triple: {"edge_index": value, field: came.get(triple)}
        for triple, value in data.edge_index_dict.items()
    }
    stores: dict[str, dict[str, Any]] = {kind: {} for kind in sizes}
    stores |= {kind: {} for source, _, goal in edges for kind in (source, goal)}
    for name in ("x", label):
        for kind, values in (data.get(f"{name}_dict") or {}).items():
            stores.setdefault(kind, {})[name] = values
    return _hetero(stores, edges, sizes, time, label, target, edge_time)


def _hetero(
    stores: Mapping[str, Mapping[str, Any]],
    edges: Mapping[Triple, Mapping[str, Any]],
    sizes: Mapping[str, int | None],
    time: Any,
    label: str,
    target: str | None,
    edge_time: str | None,
) -> TemporalGraph:
    nodes: dict[str, dict[str, Any]] = {}
    for kind, store in stores.items():
        when = (
            time.get(kind)
            if isinstance(time, Mapping)
            else store.get(time)
            if isinstance(time, str)
            else None
        )
        given = {"x": store.get("x"), "y": store.get(label), "time": when}
        nodes[kind] = {name: _array(value, f"{kind}.{name}") for name, value in given.items()} | {
            "num_nodes": sizes.get(kind)
        }
    if target is None:
        candidates = [
            kind
            for kind, part in nodes.items()
            if part["y"] is not None and part["time"] is not None
        ]
        if len(candidates) != 1:
            which = f"{listing(candidates)} all have them" if candidates else "no type has both"
            raise InputError(
                f"the type to classify needs labels and time, but {which}; pass target=... and time=... to from_pyg."
            )
        target = candidates[0]
    for triple, store in edges.items():
        if store.get("edge_index") is None:
            raise InputError(
                f"relation {'-'.join(triple)} has no edge_index; give its edges as [2, E]."
            )
    return TemporalGraph.hetero(nodes=nodes, edges=_relations(edges, edge_time), target=target)


def _relations(stores: Mapping[Triple, Any], edge_time: str | None) -> dict[Triple, dict[str, Any]]:
    """Edges with their weights and times; times by a name of the user's own must be somewhere."""
    names = {"edge_index": "edge_index", "weight": "edge_weight", "time": edge_time or "edge_time"}
    found = {
        triple: {part: _array(store.get(name), name) for part, name in names.items()}
        for triple, store in stores.items()
    }
    if edge_time is not None and all(part["time"] is None for part in found.values()):
        raise InputError(
            f"no edges have an attribute {edge_time!r}; pass edge_time=... as the one with their times."
        )
    return found


def _array(value: Any, name: str) -> Any:
    if isinstance(value, torch.Tensor) and value.layout != torch.strided:
        checks.fits(
            f"{name} without its sparse form",
            value.numel() * value.element_size(),
            "give fewer columns",
        )
    return None if value is None else checks.array(name, value)


def _tensor(values: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.array(values))
