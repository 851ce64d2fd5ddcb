"""The engine for graphs whose features fit into memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from impact_gnn import checks
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
        self, operators: Sequence[Operator], x: Features, rows: np.ndarray | None, dtype: Any
    ) -> list[Hop]:
        values = columns_of(x, 0, x.shape[1], dtype or x.dtype)
        hops = []
        for step, operator in enumerate(operators, start=1):
            is_last = step == len(operators)
            if rows is None:
                values = operator.apply(values, threads=self.threads)
                hops.append(as_hop(values))
            elif is_last and len(rows) < FEW_ROWS * operator.csr.num_targets:
                # No later hop reads the other rows.
                hops.append(as_hop(operator.apply_rows(values, rows, self.threads)))
            else:
                values = operator.apply(values, threads=self.threads)
                hops.append(as_hop(values[rows]))
        return hops

    def graph(
        self, graph: TemporalGraph, *, upto: int | None = None, undirected: bool = False
    ) -> TemporalGraph:
        if upto is not None:
            graph = graph.upto(upto)
        return graph.undirected() if undirected else graph

    def empty(self, shape: tuple[int, int], dtype: Any) -> np.ndarray:
        return np.zeros(shape, dtype)

    def stored(self, array: np.ndarray) -> Hop:
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
