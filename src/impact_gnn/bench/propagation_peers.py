"""What people use today for M·X on one machine, each in its best setting: weights normalised beforehand."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from impact_gnn.propagation.operator import Operator


class Peer(NamedTuple):
    """A function X → M·X of somebody else, and the operator that computes the same."""

    call: Callable[[np.ndarray], Any]
    same_as: Operator


def peers(operator: Operator, threads: int) -> dict[str, Peer]:
    """All peers, on `threads` cores, for an operator with norm "mean" and no self-loop.

    `T.SIGN` only knows the symmetric norm of the unweighted graph, and sorts the edges on each call.
    """
    import torch
    from torch_geometric import EdgeIndex
    from torch_geometric.data import Data
    from torch_geometric.transforms import SIGN

    torch.set_num_threads(threads)
    warnings.filterwarnings("ignore", message="Sparse (CSR tensor support is in beta|invariant checks)")
    csr = operator.csr
    target = np.repeat(np.arange(csr.num_targets, dtype=np.int32), np.diff(csr.indptr))
    weight = operator.table[operator.target_period[target], operator.source_period[csr.indices]]
    weight = (weight * operator.row_scale[target]).astype(np.float32)
    shape = csr.num_targets, csr.num_sources
    values = torch.from_numpy(weight)
    calls: dict[str, Callable[[np.ndarray], Any]] = {}

    for bits in (32, 64):
        kind = np.int32 if bits == 32 else np.int64
        border, index = (torch.from_numpy(part.astype(kind)) for part in (csr.indptr, csr.indices))
        matrix = torch.sparse_csr_tensor(border, index, values, shape)
        calls[f"torch CSR int{bits}"] = lambda x, matrix=matrix: (matrix @ torch.from_numpy(x)).numpy()  # type: ignore[misc]

    compressed = scipy.sparse.csr_matrix((weight, csr.indices, csr.indptr.astype(np.int32)), shape)
    calls["scipy CSR"] = lambda x: compressed @ x

    for bits in (32, 64):
        pair = np.stack([target, csr.indices]).astype(np.int32 if bits == 32 else np.int64)
        edge_index = EdgeIndex(torch.from_numpy(pair), sparse_size=shape, sort_order="row").fill_cache_()
        calls[f"PyG EdgeIndex int{bits}"] = lambda x, edge_index=edge_index: edge_index.matmul(  # type: ignore[misc]
            torch.from_numpy(x), values
        ).numpy()

    both = torch.from_numpy(np.stack([csr.indices, target]).astype(np.int64))

    def sign(x: np.ndarray) -> np.ndarray:
        return SIGN(1)(Data(x=torch.from_numpy(x), edge_index=both)).x1.numpy()

    unweighted = np.ones(operator.table.shape)
    symmetric = Operator(csr, unweighted, operator.source_period, operator.target_period, norm="sym")
    return {name: Peer(call, operator) for name, call in calls.items()} | {"PyG T.SIGN": Peer(sign, symmetric)}
