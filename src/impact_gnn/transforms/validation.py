"""Reading times and edges off a PyG object, checked once; behind this door nothing is checked again."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

import numpy as np
import torch
from torch_geometric import EdgeIndex
from torch_geometric.data import Data, HeteroData

from impact_gnn import checks
from impact_gnn._array import periods
from impact_gnn.checks import InputError
from impact_gnn.graph import HOMOGENEOUS, Triple

Store: TypeAlias = (
    Any  # of PyG: the one of a `Data`, or that of a node or edge type of a `HeteroData`
)
# more are taken for time stamps: the table over them would be above half a gigabyte
MAX_TIMES = 1 << 13


@dataclass(frozen=True)
class Flow:
    """One relation whose both ends have a time; periods are positions in `times`, those of all node types together."""

    relation: Triple
    store: Store
    edge_index: torch.Tensor
    times: np.ndarray
    source_period: np.ndarray
    target_period: np.ndarray

    def nodes_per_time(self) -> np.ndarray:
        return np.bincount(self.source_period, minlength=len(self.times))

    def edges_per_time(self) -> np.ndarray:
        """Edges per target and source time, [T, T]."""
        size = len(self.times)
        source, target = self.edge_index.cpu().numpy()
        key = self.target_period[target].astype(np.int64) * size + self.source_period[source]
        return np.bincount(key, minlength=size * size).reshape(size, size)


def flows(owner: str, data: Data | HeteroData, time: str) -> tuple[list[Flow], dict[Triple, str]]:
    """The relations of `data` that can be weighted, and for each other relation the reason why not.

    A `num_nodes` is written where nothing but the time tells it, so that edges may be removed
    safely.
    """
    pyg_object(owner, data)
    stores = node_stores(data)
    values = {
        kind: node_times(kind, store, time)
        for kind, store in stores.items()
        if store.get(time) is not None
    }
    if not values:
        like_time = [
            key for store in stores.values() for key in store if re.search("time|year", key.lower())
        ]
        mend = f"store one whole number per node as data.{time} or pass time= with the name of the attribute"
        mend = f"pass time={like_time[0]!r}, which is there" if like_time else mend
        raise InputError(f"no nodes carry {time!r}; {mend}.")
    for kind, own in values.items():
        if "x" not in stores[kind] and "num_nodes" not in stores[kind]:
            stores[kind]["num_nodes"] = len(own)
    times, period = periods(np.concatenate(list(values.values())))
    if len(times) > MAX_TIMES:
        many = f"{len(times)} distinct values, more than the {MAX_TIMES} a table of times can hold"
        raise InputError(f"{time!r} has {many}; bin it first, for example by month or year.")
    ends = np.cumsum([len(value) for value in values.values()])[:-1]
    period_of = dict(zip(values, np.split(period, ends), strict=True))
    usable, untouched = [], {}
    for relation, store in edge_stores(data).items():
        missing = [kind for kind in (relation[0], relation[2]) if kind not in values]
        if missing:
            untouched[relation] = f"{' and '.join(dict.fromkeys(missing))} without {time!r}"
            continue
        source, target = period_of[relation[0]], period_of[relation[2]]
        edge_index = _edge_index(relation, store, len(source), len(target))
        usable.append(Flow(relation, store, edge_index, times, source, target))
    if not usable:
        shown = checks.listing(
            [f"{'-'.join(relation)} ({reason})" for relation, reason in untouched.items()]
        )
        raise InputError(
            f"no relation has {time!r} at both ends ({shown}); add times to the other types."
        )
    return usable, untouched


def pyg_object(owner: str, data: object) -> None:
    """Refuses anything but `Data` and `HeteroData`."""
    if not isinstance(data, Data | HeteroData):
        raise InputError(
            f"{owner} takes a torch_geometric Data or HeteroData, not {type(data).__name__}."
        )


def node_stores(data: Data | HeteroData) -> dict[str, Store]:
    """Node storages by type; the only type of a `Data` is called "node"."""
    if isinstance(data, HeteroData):
        return {kind: data[kind] for kind in data.node_types}
    return {"node": data.node_stores[0]}


def edge_stores(data: Data | HeteroData) -> dict[Triple, Store]:
    """Edge storages by relation; the only relation of a `Data` is `HOMOGENEOUS`."""
    if isinstance(data, HeteroData):
        return {relation: data[relation] for relation in data.edge_types}
    return {HOMOGENEOUS: data.edge_stores[0]}


def node_times(kind: str, store: Store, time: str) -> np.ndarray:
    """The checked times of one node type."""
    value = store[time]
    if isinstance(value, dict):
        mend = f"make a HeteroData and store each type's times as data[type].{time}"
        raise InputError(f"{time!r} is a dict by node type; {mend}.")
    name = f"{time!r} of {kind!r}"
    values = checks.whole_numbers(name, value)
    size = (
        len(store["x"])
        if "x" in store
        else store["num_nodes"]
        if "num_nodes" in store
        else len(values)
    )
    return checks.node_times(name, values, size)


def plain_tensor(edge_index: torch.Tensor) -> torch.Tensor:
    """`edge_index` without what an `EdgeIndex` promises about its order and symmetry."""
    return edge_index.as_tensor() if isinstance(edge_index, EdgeIndex) else edge_index


def constructor_call(transform: Any) -> str:
    """`Name(option=value)` with the options that differ from their defaults: what to type to get it again."""
    values = ((field, getattr(transform, field.name)) for field in fields(transform))
    shown = ", ".join(
        f"{field.name}={value!r}" for field, value in values if value != field.default
    )
    return f"{type(transform).__name__}({shown})"


def _edge_index(relation: Triple, store: Store, num_source: int, num_target: int) -> torch.Tensor:
    name = f"edge_index of {'-'.join(relation)}"
    value = store.get("edge_index")
    if value is None and (store.get("adj_t") is not None or store.get("adj") is not None):
        raise InputError(
            f"{name} was turned into a sparse matrix; apply this transform before ToSparseTensor."
        )
    if not isinstance(value, torch.Tensor):
        raise InputError(f"{name} is {type(value).__name__}; give a torch tensor [2, E].")
    checks.edges(name, plain_tensor(value), num_source, num_target)
    return plain_tensor(value)
