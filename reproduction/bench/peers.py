"""What people use today for M·X on one machine, and the least that a pass must do.

Each competitor is in its best setting.
"""

import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import scipy.sparse
import torch
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from torch_geometric import EdgeIndex
from torch_geometric.data import Data
from torch_geometric.transforms import SIGN

import impact_gnn as ig

Product = Callable[[np.ndarray], np.ndarray]


def peers(graph: ig.TemporalGraph, weighting: str, threads: int) -> dict[str, tuple[Product, str]]:
    """Products of other libraries on `threads` cores, and their norm.

    They are row means with normalised weights made beforehand.

    `T.SIGN` only knows the symmetric norm of the unweighted graph, and sorts the edges on each
    call.
    """
    torch.set_num_threads(threads)
    warnings.filterwarnings(
        "ignore", message="Sparse (CSR tensor support is in beta|invariant checks)"
    )
    csr = graph.csr()
    target = np.repeat(np.arange(csr.num_targets, dtype=np.int32), np.diff(csr.indptr))
    weight = ig.weighting.table(weighting, graph.times, graph.counts)[
        graph.period[target], graph.period[csr.indices]
    ]
    total = np.bincount(target, weight, csr.num_targets)[target]
    weight = np.divide(weight, total, out=np.zeros_like(weight), where=total > 0).astype(np.float32)
    shape, values = (csr.num_targets, csr.num_sources), torch.from_numpy(weight)
    products: dict[str, tuple[Product, str]] = {}
    for kind in (np.int32, np.int64):
        border, index = (torch.from_numpy(part.astype(kind)) for part in (csr.indptr, csr.indices))
        matrix = torch.sparse_csr_tensor(border, index, values, shape)
        pair = torch.from_numpy(np.stack([target, csr.indices]).astype(kind))
        edges = EdgeIndex(pair, sparse_size=shape, sort_order="row").fill_cache_()
        products[f"torch CSR {kind.__name__}"] = (
            lambda x, matrix=matrix: (matrix @ torch.from_numpy(x)).numpy(),
            "mean",
        )
        products[f"PyG EdgeIndex {kind.__name__}"] = (
            lambda x, edges=edges: edges.matmul(torch.from_numpy(x), values).numpy(),
            "mean",
        )
    compressed = scipy.sparse.csr_matrix((weight, csr.indices, csr.indptr.astype(np.int32)), shape)
    products["scipy CSR"] = lambda x: compressed @ x, "mean"
    both = torch.from_numpy(np.stack([csr.indices, target]).astype(np.int64))
    products["PyG T.SIGN"] = (
        lambda x: SIGN(1)(Data(x=torch.from_numpy(x), edge_index=both)).x1.numpy(),
        "sym",
    )
    return products


def roofline(graph: ig.TemporalGraph, x: np.ndarray, threads: int) -> float:
    """Adds up one number of every cache line that a pass over the edges reads, in its order."""
    csr = graph.csr()
    borders = np.linspace(0, csr.num_targets, 16 * threads + 1).astype(np.int64)
    step = 64 // x.dtype.itemsize

    def read(k: int) -> float:
        return _read(csr.indices[csr.indptr[borders[k]] : csr.indptr[borders[k + 1]]], x, step)

    with ThreadPoolExecutor(threads) as pool:
        return sum(pool.map(read, range(len(borders) - 1)))


@intrinsic
def _prefetch(typing, x, row, column):  # type: ignore[no-untyped-def]
    """Asks for the cache line of x[row, column].

    Without that, waiting for memory would be measured, not reading it.
    """

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        view = cgutils.create_struct_proxy(x)(context, builder, args[0])
        address = cgutils.get_item_pointer(
            context, builder, x, view, list(args[1:]), wraparound=False
        )
        address, number = builder.bitcast(address, cgutils.voidptr_t), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [address.type, number, number, number])
        call = builder.module.declare_intrinsic("llvm.prefetch", [address.type], kind)
        builder.call(call, [address, *(ir.Constant(number, value) for value in (0, 3, 1))])
        return context.get_dummy_value()

    return types.void(x, types.int64, types.int64), generate


@njit(nogil=True, cache=True, fastmath=True)
def _read(indices, x, step):  # type: ignore[no-untyped-def]
    total, last = 0.0, len(indices) - 1
    for e in range(len(indices)):
        row, later = np.uint32(indices[e]), np.int64(indices[min(e + 16, last)])
        for k in range(0, x.shape[1], step):
            _prefetch(x, later, k)  # type: ignore[call-arg]
            total += x[row, np.uint32(k)]
    return total
