"""Where hops are computed: `Memory`, `Disk` or `Dask`; all give the same numbers."""

from __future__ import annotations

from impact_gnn.propagation.cluster import Dask
from impact_gnn.propagation.disk import Disk
from impact_gnn.propagation.memory import Memory

__all__ = ["Dask", "Disk", "Memory"]
