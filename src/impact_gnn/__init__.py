"""Graph learning that stays right when the future is not like the past.

Names are fetched when they are first used, so that the array floor works without torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from impact_gnn import alignment, bounds, connectivity, nn, transforms, weighting
    from impact_gnn.checks import InputError
    from impact_gnn.data.files import load
    from impact_gnn.data.pyg import from_pyg, to_pyg
    from impact_gnn.data.tsbm import tsbm, tsbm_model
    from impact_gnn.graph import TemporalGraph

__version__ = "0.1.0"

__all__ = [
    "InputError",
    "TemporalGraph",
    "alignment",
    "bounds",
    "connectivity",
    "from_pyg",
    "load",
    "nn",
    "to_pyg",
    "transforms",
    "tsbm",
    "tsbm_model",
    "weighting",
]

_MODULES = ("alignment", "bounds", "connectivity", "nn", "transforms", "weighting")
_HOMES = {
    "InputError": "checks",
    "TemporalGraph": "graph",
    "from_pyg": "data.pyg",
    "load": "data.files",
    "to_pyg": "data.pyg",
    "tsbm": "data.tsbm",
    "tsbm_model": "data.tsbm",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
