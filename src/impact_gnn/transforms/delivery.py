"""Four ways to pass edge weights to a layer; see `docs/guide-start.md`.

Weights that the edges already have stay with them ("drop", "duplicate") or are multiplied in
("weight", "attention"). Duplicates differ from weights where dropout draws for each copy of
attention, a maximum or minimum ignores copies, and layers that add self-loops (GCNConv, GATConv)
replace all copies of a loop by one loop of weight 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.utils import select

from impact_gnn import checks, weighting
from impact_gnn.checks import InputError
from impact_gnn.transforms.validation import Flow, Store, plain_tensor

DELIVERIES = ("weight", "drop", "duplicate", "attention")


def deliver(flow: Flow, omega: Tensor, how: str, *, normalize: bool) -> None:
    """Write `omega` [E] into the storage of `flow` in the way called `how`."""
    if how == "weight":
        weight = combined(flow, omega)
        if normalize:
            weight = weighting.normalize_rows(weight, flow.edge_index[1], len(flow.target_period))
        flow.store["edge_weight"] = weight
    elif how == "drop":
        select_edges(flow.store, omega.nonzero().view(-1))
    elif how == "duplicate":
        position = torch.arange(len(omega), device=omega.device)
        # A weight of 0 drops an edge, a weight of 2 repeats it once.
        select_edges(flow.store, position.repeat_interleave(omega.round().long()))
    else:
        weight = combined(flow, omega)
        # An edge of weight 0 is removed, because its logarithm is not finite.
        positive = weight.nonzero().view(-1)
        select_edges(flow.store, positive)
        flow.store["edge_attr"] = _with_column(flow, weight[positive].log())


def combined(flow: Flow, omega: Tensor) -> Tensor:
    """Return Ω·a: `omega` times the weights that the edges already have."""
    own = flow.store.get("edge_weight")
    if own is None:
        return omega
    checks.edge_weights(f"edge_weight of {'-'.join(flow.relation)}", own, len(omega))
    own = torch.as_tensor(own, device=omega.device).view(-1)
    # Float weights keep their type; whole numbers become floats.
    return omega.to(own.dtype) * own if own.is_floating_point() else omega * own


def select_edges(store: Store, index: Tensor) -> None:
    """Replace edges and all edge-level attributes by those at `index`; repeats are allowed."""
    # Listed before anything changes: PyG recognises edge attributes by the number of edges.
    for key in edge_level(store):
        value = store[key]
        if isinstance(value, np.ndarray):
            store[key] = value[index.cpu().numpy()]
        elif key == "edge_index":
            # Its order or symmetry may be lost.
            store[key] = plain_tensor(value).index_select(1, index)
        else:
            store[key] = select(value, index, dim=0)


def edge_level(store: Store) -> list[str]:
    """List the attributes with one entry per edge, by PyG's own rule."""
    # With as many edges as nodes, PyG decides by the name, except for lists; here always.
    shared = "num_nodes" in store or "x" in store  # nodes and edges in one storage
    by_name = shared and store.num_nodes == store.num_edges
    return [key for key in store.edge_attrs() if not by_name or "edge" in key]


def _with_column(flow: Flow, column: Tensor) -> Tensor:
    attributes: Any = flow.store.get("edge_attr")
    if attributes is None:
        return column.view(-1, 1)
    is_table = isinstance(attributes, Tensor) and attributes.dim() in (1, 2)
    if not is_table or len(attributes) != len(column):
        raise InputError(
            f"edge_attr of {'-'.join(flow.relation)} must be a tensor [E] or [E, d] to take the "
            "log-weight as one more column; reshape it or use another delivery."
        )
    if attributes.is_floating_point():
        column = column.to(attributes.dtype)
    # [E, d] also where no edge is left.
    return torch.column_stack([attributes.to(column.dtype), column])
