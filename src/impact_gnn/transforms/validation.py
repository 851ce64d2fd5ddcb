"""Validated times and edges of PyG objects; later code does not check them again."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy import ndarray
from torch_geometric import EdgeIndex
from torch_geometric.data import Data, HeteroData

from impact_gnn import checks
from impact_gnn._array import periods
from impact_gnn.checks import InputError
from impact_gnn.graph import HOMOGENEOUS, Triple

Store: TypeAlias = Any
"""A storage of PyG: that of a `Data`, or of a node or edge type of a `HeteroData`."""

MAX_TIMES = 1 << 13  # more must be time stamps: their table would exceed half a gigabyte


@dataclass(frozen=True)
class Flow:
    """One relation whose both ends have a time; periods are positions in `times` of all types."""

    relation: Triple
    store: Store
    edge_index: torch.Tensor
    times: ndarray
    source_period: ndarray
    target_period: ndarray

    def nodes_per_time(self) -> ndarray:
        return np.bincount(self.source_period, minlength=len(self.times))


def flows(owner: str, data: Data | HeteroData, time: str) -> list[Flow]:
    """Return the relations of `data` that can be weighted.

    `num_nodes` is written where only the time shows it, so that edges may be removed safely.
    """
    pyg_object(owner, data)
    stores = node_stores(data)
    values = {
        kind: node_times(kind, store, time)
        for kind, store in stores.items()
        if store.get(time) is not None
    }
    if not values:
        # A likely name for the remedy, such as the node_year of OGB.
        keys = [key for key in chain(*stores.values()) if re.search("(?i)time|year", key)]
        remedy = (
            f"store one whole number per node as data.{time} "
            "or pass time= with the name of the attribute"
        )
        if keys:
            remedy = f"pass time={keys[0]!r}, which exists"
        raise InputError(f"no nodes have {time!r}; {remedy}.")
    for kind, own in values.items():
        if "x" not in stores[kind] and "num_nodes" not in stores[kind]:
            # PyG would otherwise guess the number from the edges, and lose nodes with them.
            stores[kind]["num_nodes"] = len(own)
    # One time line for all types: t_max is the last time of any of them.
    times, period = periods(np.concatenate(list(values.values())))
    if len(times) > MAX_TIMES:
        raise InputError(
            f"{time!r} has {len(times)} distinct values, more than the {MAX_TIMES} a table of "
            "times can hold; bin it first, for example by month or year."
        )
    # Periods of all types one after the other, split into types again.
    ends = np.cumsum(list(map(len, values.values())))
    parts = np.split(period, ends[:-1])
    period_of = dict(zip(values, parts, strict=True))
    usable = []
    untouched = []
    for relation, store in edge_stores(data).items():
        source, _, target = relation
        # A relation with an end without a time has no time difference to weight by.
        missing = [kind for kind in dict.fromkeys((source, target)) if kind not in values]
        if missing:
            names = " and ".join(missing)
            untouched.append(f"{'-'.join(relation)} ({names} without {time!r})")
            continue
        source_period = period_of[source]
        target_period = period_of[target]
        flow = Flow(
            relation=relation,
            store=store,
            edge_index=_edge_index(relation, store, len(source_period), len(target_period)),
            times=times,
            source_period=source_period,
            target_period=target_period,
        )
        usable.append(flow)
    if not usable:
        raise InputError(
            f"no relation has {time!r} at both ends ({checks.listing(untouched)}); "
            "add times to the other types."
        )
    return usable


def pyg_object(owner: str, data: object) -> None:
    """Refuse anything but `Data` and `HeteroData`."""
    if not isinstance(data, Data | HeteroData):
        raise InputError(
            f"{owner} takes a torch_geometric Data or HeteroData, not {type(data).__name__}."
        )


def node_stores(data: Data | HeteroData) -> dict[str, Store]:
    """Return node storages by type; the only type of a `Data` is called "node"."""
    if isinstance(data, HeteroData):
        return {kind: data[kind] for kind in data.node_types}
    return {"node": data.node_stores[0]}


def edge_stores(data: Data | HeteroData) -> dict[Triple, Store]:
    """Return edge storages by relation; the only relation of a `Data` is `HOMOGENEOUS`."""
    if isinstance(data, HeteroData):
        return {relation: data[relation] for relation in data.edge_types}
    return {HOMOGENEOUS: data.edge_stores[0]}


def node_times(kind: str, store: Store, time: str) -> ndarray:
    """Return the checked times of one node type."""
    value = store[time]
    if isinstance(value, dict):
        raise InputError(
            f"{time!r} is a dict by node type; "
            f"make a HeteroData and store each type's times as data[type].{time}."
        )
    name = f"{time!r} of {kind!r}"
    values = checks.whole_numbers(name, value)
    # The number of nodes, where something else than the time says it.
    size = len(values)
    if "x" in store:
        size = len(store["x"])
    elif "num_nodes" in store:
        size = store["num_nodes"]
    return checks.node_times(name, values, size)


def plain_tensor(edge_index: torch.Tensor) -> torch.Tensor:
    """Return `edge_index` as a tensor, without the order and symmetry of an `EdgeIndex`."""
    return edge_index.as_tensor() if isinstance(edge_index, EdgeIndex) else edge_index


def constructor_call(transform: Any) -> str:
    """Return `Name(option=value)` with the options that differ from their defaults."""
    values = {field: getattr(transform, field.name) for field in fields(transform)}
    options = [
        f"{field.name}={value!r}" for field, value in values.items() if value != field.default
    ]
    return f"{type(transform).__name__}({', '.join(options)})"


def _edge_index(relation: Triple, store: Store, num_source: int, num_target: int) -> torch.Tensor:
    name = f"edge_index of {'-'.join(relation)}"
    value = store.get("edge_index")
    is_sparse = any(store.get(key) is not None for key in ("adj_t", "adj"))
    if value is None and is_sparse:
        raise InputError(f"{name} is a sparse matrix; apply this transform before ToSparseTensor.")
    if not isinstance(value, torch.Tensor):
        raise InputError(f"{name} is {type(value).__name__}; pass a torch tensor [2, E].")
    edge_index = plain_tensor(value)
    checks.edges(name, edge_index, num_source, num_target)
    return edge_index
