"""Claims about single passes over arrays: `jjnorm`, PMP weights and relative connectivity, each over a bare pass."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import impact_gnn as ig
from reproduction.bench import Goal, Report, best_of

PERIODS = 10


def jjnorm(nodes: int = 1_000_000, width: int = 128, rounds: int = 7, json: Path | None = None) -> Report:
    """JJnorm with 10 periods and 40 labels over a copy of the array."""
    rng = np.random.default_rng(0)
    message = rng.standard_normal((nodes, width), dtype=np.float32)
    label, time = rng.integers(0, 40, nodes), rng.integers(0, PERIODS, nodes)
    target = time >= PERIODS - 2
    groups = ig.alignment.Communities.of(label, time, target)
    calls = {
        "copy": message.copy,
        "jjnorm": lambda: ig.alignment.jjnorm(message, label, time, target=target),
        "jjnorm, groups made before": lambda: ig.alignment.jjnorm_by(message, groups),
    }
    return _over("copy", "jjnorm", 3.0, calls, rounds, f"{nodes:,} x {width} float32").finish(json)


def weights(nodes: int = 1_000_000, edges: int = 50_000_000, rounds: int = 5, json: Path | None = None) -> Report:
    """PMP weights of all edges over the two gathers times[source] and times[target]."""
    rng = np.random.default_rng(0)
    edge_index = rng.integers(0, nodes, (2, edges), dtype=np.int64)
    times = rng.integers(0, 50, nodes)
    period, table = times.astype(np.uint8), ig.weighting.pmp(np.arange(50))
    calls = {
        "two gathers": lambda: (times[edge_index[0]], times[edge_index[1]]),
        "PMP weights": lambda: ig.weighting.edge_weight(table, edge_index, period, period),
    }
    return _over("two gathers", "PMP weights", 3.0, calls, rounds, f"{edges:,} edges").finish(json)


def connectivity(
    nodes: int = 1_000_000, edges: int = 10_000_000, labels: int = 10, rounds: int = 15, json: Path | None = None
) -> Report:
    """Relative connectivity over a bare np.bincount of keys (state of target, state of source) made beforehand.

    Our pass runs on all cores and bincount on one, so on a busy machine the ratio tends towards that of CPU times.
    """
    rng = np.random.default_rng(0)
    edge_index = rng.integers(0, nodes, (2, edges))
    label, time = rng.integers(0, labels, nodes), rng.integers(0, PERIODS, nodes)
    state, states = label * PERIODS + time, labels * PERIODS
    keys = state[edge_index[1]] * states + state[edge_index[0]]

    def ours() -> ig.connectivity.RelativeConnectivity:
        return ig.connectivity.relative_connectivity(edge_index, label, time, num_labels=labels, cutoff=8)

    calls = {
        "np.bincount over keys": lambda: np.bincount(keys, minlength=states**2),
        "relative_connectivity": ours,
        "... and label_mass": lambda: ours().label_mass(np.ones((PERIODS, PERIODS))),
    }
    title = f"{edges:,} edges, {nodes:,} nodes, {labels} labels x {PERIODS} times"
    return _over("np.bincount over keys", "relative_connectivity", 2.0, calls, rounds, title).finish(json)


def _over(base: str, ours: str, most: float, calls: dict, rounds: int, title: str) -> Report:
    for call in calls.values():  # compiles
        call()
    best = best_of(calls, rounds)
    rows = [{"": name, "seconds": taken, f"over {base}": taken / best[base]} for name, taken in best.items()]
    return Report(title, rows, [Goal(f"{ours} over {base}", -1, most, best[ours] / best[base])])
