"""Run by `make test-without-torch` in an environment that has no torch.

The array layers import and work there.
"""

import importlib
import importlib.util
import pkgutil
import sys

import numpy as np

import impact_gnn as ig

NEED_TORCH = (
    "nn",
    "estimators",
    "transforms",
    "data.pyg",
    "_array.torch_groups",
    "explanations",
    "backtesting",
    "job",
    "integrations",
)
"""These and the command line with its report may need torch; all else imports without it."""

COMMAND_LINE = ("cli", "__main__", "report")

assert importlib.util.find_spec("torch") is None, "torch is installed here, so this proves nothing"

heavy = tuple(f"impact_gnn.{name}" for name in (*NEED_TORCH, *COMMAND_LINE))
modules = [
    m.name
    for m in pkgutil.walk_packages(ig.__path__, "impact_gnn.", onerror=lambda name: None)
    if not m.name.startswith(heavy)
]
for name in modules:
    importlib.import_module(name)
assert "torch" not in sys.modules

g = ig.tsbm(num_nodes=300, num_times=5, num_labels=3, seed=0).masked(4)
table = ig.weighting.pmp(g.times)
weight = ig.weighting.edge_weight(table, g.edge_index, g.period, g.period)
estimate = ig.connectivity.relative_connectivity(
    g.edge_index, g.y, g.time, num_labels=g.num_labels, cutoff=4
)
aligned = ig.alignment.jjnorm(ig.alignment.center(g.x, g.time), g.y, g.time, target=g.targets())
assert np.isfinite(aligned).all()
assert np.isfinite(estimate.g).all()
assert weight.shape == (g.edge_index.shape[1],)
try:
    _ = ig.nn
except ImportError:
    pass
else:
    raise AssertionError("impact_gnn.nn should need torch")
print(f"{len(modules)} passed, 0 failed")
