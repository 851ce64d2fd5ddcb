"""The engine for graphs whose features fit into memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy import ndarray

from impact_gnn import checks
from impact_gnn._array import sorted_unique
from impact_gnn._native import free_memory
from impact_gnn.checks import InputError
from impact_gnn.engines.engine import FEW_ROWS, Engine
from impact_gnn.engines.hop import Features, Hop, as_hop, columns_of
from impact_gnn.engines.operator import Operator
from impact_gnn.graph import TemporalGraph, Triple
from impact_gnn.graph.csr import CSR


@dataclass(frozen=True)
class Memory(Engine):
    """Hops as arrays in memory, computed by the numba kernel on `threads` cores (None: all).

    Examples:
        >>> edges = [[0, 1], [1, 2]]
        >>> chain = TemporalGraph(x=[[5.0], [0.0], [0.0]], time=[0, 0, 0], edge_index=edges)
        >>> Memory().hops([Memory().operator(chain)] * 2, chain.x)[-1].tolist()
        [[0.0], [0.0], [5.0]]
    """

    threads: int | None = None

    def csr(self, graph: TemporalGraph, relation: Triple) -> CSR:
        return graph.csr(relation)

    def _hops(
        self, operators: Sequence[Operator], x: Features, rows: ndarray | None, dtype: Any
    ) -> list[Hop]:
        values = columns_of(x, 0, x.shape[1], dtype or x.dtype)
        sources = None
        hops = []
        for operator, nodes in zip(operators, _needed_nodes(operators, rows), strict=True):
            if nodes is None:
                values = operator.apply(values, threads=self.threads)
            else:
                values = operator.apply_rows(values, nodes, self.threads, sources=sources)
            sources = nodes
            hop = values
            if rows is not None:
                # From the computed nodes to the requested rows, in their order.
                hop = values[rows if nodes is None else np.searchsorted(nodes, rows)]
            hops.append(as_hop(hop))
        return hops

    def graph(
        self, graph: TemporalGraph, *, upto: int | None = None, undirected: bool = False
    ) -> TemporalGraph:
        if upto is not None:
            graph = graph.upto(upto)
        return graph.undirected() if undirected else graph

    def empty(self, shape: tuple[int, int], dtype: Any) -> ndarray:
        return np.zeros(shape, dtype)

    def stored(self, array: ndarray) -> Hop:
        return as_hop(array)

    def child(self, name: str) -> Memory:
        return self

    def clear(self) -> None:
        pass

    def fits(self, size: int) -> bool:
        return True

    def max_jobs(self, size: int) -> int:
        from joblib import cpu_count  # it respects the CPU quota of a container

        return max(1, min(cpu_count(), free_memory() // max(size, 1)))


def _needed_nodes(operators: Sequence[Operator], rows: ndarray | None) -> list[ndarray | None]:
    """Return the nodes at which each hop is computed, increasing; None for all.

    All are computed where more than `FEW_ROWS` are needed: selecting would cost more than it saves.
    """
    if rows is None:
        return [None] * len(operators)
    # From the last hop backwards: the rows, and the nodes that later hops read.
    needed = [sorted_unique(rows)]
    for operator in operators[:0:-1]:
        nodes = needed[-1]
        if len(nodes) < FEW_ROWS * operator.csr.num_targets:
            is_read = np.zeros(operator.csr.num_sources, bool)
            is_read[nodes] = True
            is_read[operator.csr.take(nodes).indices] = True
            nodes = np.flatnonzero(is_read)
        needed.append(nodes)
    return [
        nodes if len(nodes) < FEW_ROWS * operator.csr.num_targets else None
        for operator, nodes in zip(operators, reversed(needed), strict=True)
    ]


def as_engine(engine: Engine | None) -> Engine:
    """Return the engine, or `Memory()` for None."""
    if engine is None:
        return Memory()
    if not isinstance(engine, Engine):
        known = "engines.Memory(), engines.Disk(directory) or engines.Dask(client)"
        raise InputError(
            f"engine={checks.quoted(engine)} is not an engine; pass {known}, or omit it."
        )
    return engine
