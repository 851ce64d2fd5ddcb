"""Until `impact_gnn.engines.Engine` is there: its verbs on arrays in memory. To be deleted then."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from impact_gnn import checks
from impact_gnn.graph import TemporalGraph, Triple
from impact_gnn.propagation import memory
from impact_gnn.propagation.hops import operator


class Hop(np.ndarray):
    """An array that can be asked for rows."""

    def rows(self, index: np.ndarray) -> np.ndarray:
        """Some rows as an array in memory."""
        return np.asarray(self)[index]


class Engine(memory.Memory):
    """Hops in memory."""

    def operator(self, graph: TemporalGraph, relation: Triple | None = None, **options: Any) -> Any:
        """The operation of one relation."""
        return operator(graph, relation, **options)

    def hops(self, operators: Sequence[Any], x: np.ndarray, rows: np.ndarray | None = None) -> Any:
        """All hops."""
        x = np.ascontiguousarray(x, np.float32 if x.dtype.itemsize < 4 else None)
        return [hop.view(Hop) for hop in super().hops(operators, x)]

    def graph(self, graph: TemporalGraph, *, upto: int | None = None, undirected: bool = False) -> TemporalGraph:
        """The graph as of a time, and with edges both ways."""
        then = graph if upto is None else graph.upto(upto)
        return then.undirected() if undirected else then

    def child(self, name: str) -> Engine:
        """An engine with a place of its own."""
        return self

    def clear(self) -> None:
        """Frees what is kept."""


Memory = Engine


class Choice(NamedTuple):
    """An engine, and what was estimated and chosen."""

    engine: Engine
    sentence: str


def choose(
    graph: TemporalGraph,
    kind: str = "auto",
    *,
    memory: str | None = None,
    scheduler: str | None = None,
    scratch: Any = None,
) -> Choice:
    """The engine that the options of the command line ask for."""
    if checks.choice("engine", kind, ("auto", "memory", "disk", "dask")) in ("disk", "dask"):
        raise checks.InputError(f"engine={kind!r} cannot be used by this command yet; use memory.")
    return Choice(Engine(), "engine: memory")
