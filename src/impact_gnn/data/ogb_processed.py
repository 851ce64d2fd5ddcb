"""PyG's processed files of OGB data sets, opened by torch's restricted reader.

The file is a pickle, and pickles can run code when they are loaded. `torch.load(weights_only=True)` builds nothing
but tensors, plain containers and classes that were named beforehand; named here are the four in which PyG keeps a
graph. Anything else in the file is refused.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch_geometric.data import Data
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.storage import GlobalStorage

from impact_gnn.checks import InputError
from impact_gnn.data.pyg import from_pyg
from impact_gnn.graph import TemporalGraph

ALLOWED = (Data, DataEdgeAttr, DataTensorAttr, GlobalStorage)


def read(file: Path) -> TemporalGraph:
    """The graph in `geometric_data_processed.pt`; its tensors are mapped into memory."""
    allow = getattr(torch.serialization, "safe_globals", None)
    if allow is None:
        raise InputError(f"{file} can be read with torch 2.5 or later; install it, or restore the raw files.")
    try:
        with allow(list(ALLOWED)):
            content = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # damaged archives and refused classes raise many kinds
        reason = " ".join(str(error).split())[:160]
        raise InputError(
            f"{file} holds more than tensors, or is damaged, and is not loaded ({reason}); restore the raw files."
        ) from None
    data = content[0] if isinstance(content, tuple) and content else content
    if not isinstance(data, Data):
        raise InputError(f"{file} holds no graph but a {type(data).__name__}; restore the raw files.")
    return from_pyg(data, time="node_year")
