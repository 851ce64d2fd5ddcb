"""Compute hops in memory, on disk within a cap, or on a Dask cluster, with the same numbers."""

from impact_gnn.engines.choose import EngineChoice, choose
from impact_gnn.engines.dask import Dask
from impact_gnn.engines.disk import Disk
from impact_gnn.engines.engine import Engine
from impact_gnn.engines.hop import Hop
from impact_gnn.engines.memory import Memory, as_engine
from impact_gnn.engines.operator import Operator

__all__ = [
    "Dask",
    "Disk",
    "Engine",
    "EngineChoice",
    "Hop",
    "Memory",
    "Operator",
    "as_engine",
    "choose",
]
