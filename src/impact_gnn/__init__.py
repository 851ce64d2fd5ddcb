"""Classifies the recent nodes of graphs with timestamps, and corrects for shift over time.

Names are imported when they are first used, so that the array layers work without torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from impact_gnn._version import __version__ as __version__

if TYPE_CHECKING:
    from impact_gnn import (
        alignment,
        audit,
        bounds,
        connectivity,
        engines,
        integrations,
        methods,
        nn,
        transforms,
        weighting,
    )
    from impact_gnn.audit import audit_leakage
    from impact_gnn.backtesting import advise, backtest
    from impact_gnn.checks import InputError
    from impact_gnn.data.files import load
    from impact_gnn.data.networkx import from_networkx, to_networkx
    from impact_gnn.data.pyg import from_pyg, to_pyg
    from impact_gnn.data.tables import from_tables
    from impact_gnn.data.tsbm import tsbm, tsbm_model
    from impact_gnn.data.update import update
    from impact_gnn.diagnostics import diagnose
    from impact_gnn.estimators import Ensemble, Pipeline
    from impact_gnn.explanations import explain
    from impact_gnn.graph import TemporalGraph
    from impact_gnn.job.evaluate import evaluate
    from impact_gnn.job.watch import watch
    from impact_gnn.propagation.hops import propagate
    from impact_gnn.propagation.labels import label_hops
    from impact_gnn.propagation.metapaths import metapath_hops, metapath_label_hops, metapaths
    from impact_gnn.propagation.squashing import squash

__all__ = [
    "Ensemble",
    "InputError",
    "Pipeline",
    "TemporalGraph",
    "advise",
    "alignment",
    "audit",
    "audit_leakage",
    "backtest",
    "bounds",
    "connectivity",
    "diagnose",
    "engines",
    "evaluate",
    "explain",
    "from_networkx",
    "from_pyg",
    "from_tables",
    "integrations",
    "label_hops",
    "load",
    "metapath_hops",
    "metapath_label_hops",
    "metapaths",
    "methods",
    "nn",
    "propagate",
    "run",
    "squash",
    "to_networkx",
    "to_pyg",
    "transforms",
    "tsbm",
    "tsbm_model",
    "update",
    "watch",
    "weighting",
]

# everything else in `__all__` is a module
_HOMES = {
    "audit": ("audit_leakage",),
    "backtesting": ("advise", "backtest"),
    "checks": ("InputError",),
    "data.files": ("load",),
    "data.networkx": ("from_networkx", "to_networkx"),
    "data.pyg": ("from_pyg", "to_pyg"),
    "data.tables": ("from_tables",),
    "data.tsbm": ("tsbm", "tsbm_model"),
    "data.update": ("update",),
    "diagnostics": ("diagnose",),
    "graph": ("TemporalGraph",),
    "job": ("run",),
    "job.evaluate": ("evaluate",),
    "job.watch": ("watch",),
    "estimators": ("Ensemble", "Pipeline"),
    "explanations": ("explain",),
    "propagation.hops": ("propagate",),
    "propagation.labels": ("label_hops",),
    "propagation.metapaths": ("metapath_hops", "metapath_label_hops", "metapaths"),
    "propagation.squashing": ("squash",),
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = next((home for home, names in _HOMES.items() if name in names), None)
    module = importlib.import_module(f"{__name__}.{home or name}")
    return module if home is None else getattr(module, name)


def __dir__() -> list[str]:
    return __all__
