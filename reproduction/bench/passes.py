"""Claims about single passes.

`jjnorm`, PMP weights and relative connectivity over a bare pass, and the generator.
"""

import time as clock
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import impact_gnn as ig
from impact_gnn.data.drawing import Draw
from impact_gnn.data.tsbm import PROTOCOLS, TSBM
from reproduction.bench import Goal, Report, best_of, peak_memory
from reproduction.write_tsbm import CHUNK, edge_chunks, write_tsbm

PERIODS = 10


def jjnorm(
    nodes: int = 1_000_000, width: int = 128, rounds: int = 7, json: Path | None = None
) -> Report:
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
    return _over(
        "copy", "jjnorm", 3.0, calls=calls, rounds=rounds, title=f"{nodes:,} x {width} float32"
    ).finish(json)


def weights(
    nodes: int = 1_000_000, edges: int = 50_000_000, rounds: int = 5, json: Path | None = None
) -> Report:
    """PMP weights of all edges, compared with two bare gathers of the times of both ends."""
    rng = np.random.default_rng(0)
    edge_index = rng.integers(0, nodes, (2, edges), dtype=np.int64)
    times = rng.integers(0, 50, nodes)
    period, table = times.astype(np.uint8), ig.weighting.pmp(np.arange(50))
    calls = {
        "two gathers": lambda: (times[edge_index[0]], times[edge_index[1]]),
        "PMP weights": lambda: ig.weighting.edge_weight(table, edge_index, period, period),
    }
    return _over(
        "two gathers", "PMP weights", 3.0, calls=calls, rounds=rounds, title=f"{edges:,} edges"
    ).finish(json)


def connectivity(
    nodes: int = 1_000_000,
    edges: int = 10_000_000,
    labels: int = 10,
    rounds: int = 15,
    json: Path | None = None,
) -> Report:
    """Relative connectivity, compared with a bare np.bincount of prepared keys.

    A key is the state of the target and that of the source.

    Our pass runs on all cores and bincount on one, so on a busy machine the ratio tends towards
    that of CPU times.
    """
    rng = np.random.default_rng(0)
    edge_index = rng.integers(0, nodes, (2, edges))
    label, time = rng.integers(0, labels, nodes), rng.integers(0, PERIODS, nodes)
    state, states = label * PERIODS + time, labels * PERIODS
    keys = state[edge_index[1]] * states + state[edge_index[0]]

    def ours() -> ig.connectivity.RelativeConnectivity:
        return ig.connectivity.relative_connectivity(
            edge_index, label, time, num_labels=labels, cutoff=8
        )

    calls = {
        "np.bincount over keys": lambda: np.bincount(keys, minlength=states**2),
        "relative_connectivity": ours,
        "... and label_mass": lambda: ours().label_mass(np.ones((PERIODS, PERIODS))),
    }
    title = f"{edges:,} edges, {nodes:,} nodes, {labels} labels x {PERIODS} times"
    return _over(
        "np.bincount over keys",
        "relative_connectivity",
        2.0,
        calls=calls,
        rounds=rounds,
        title=title,
    ).finish(json)


def _over(base: str, ours: str, most: float, calls: dict, rounds: int, title: str) -> Report:
    for call in calls.values():  # compiles
        call()
    best = best_of(calls, rounds)
    rows = [
        {"": name, "seconds": taken, f"over {base}": taken / best[base]}
        for name, taken in best.items()
    ]
    return Report(title, rows, [Goal(f"{ours} over {base}", -1, most, best[ours] / best[base])])


def tsbm(
    million_edges: str = "1,2,5,10,20", large: Path | None = None, json: Path | None = None
) -> Report:
    """The generator against N² sampling, and its growth.

    --large DIR writes 10 M nodes and 200 M edges to disk.
    """
    if large is not None:
        return _written(large).finish(json)
    rows: list[dict[str, Any]] = []
    goals = []
    for protocol in PROTOCOLS:
        model = ig.tsbm_model(protocol=protocol)
        best = best_of({"ours": model.sample, "dense": partial(dense, model)}, 6)
        rows.append(
            {
                "graph": f"N = 2000, {protocol}",
                "M edges/s": model.expected_edges / best["ours"] / 1e6,
            }
        )
        goals.append(Goal(f"dense N² over ours, {protocol}", 1, 1.0, best["dense"] / best["ours"]))
    for million in million_edges.split(","):
        model = ig.tsbm_model(num_nodes=int(million) * 50_000, mean_degree=20, num_features=1)
        seconds = best_of({"ours": partial(_consumed, model)}, 4)["ours"]
        rows.append(
            {"graph": f"{million} M edges", "M edges/s": model.expected_edges / seconds / 1e6}
        )
    first, last = (row["M edges/s"] for row in (rows[len(PROTOCOLS)], rows[-1]))
    goals.append(Goal("time per edge of the largest over the smallest", -1, 2.0, first / last))
    return Report("Sampling", rows, goals).finish(json)


def dense(model: TSBM) -> np.ndarray:
    """The edges as one would draw them with numpy: a coin for every pair."""
    rng = np.random.default_rng(0)
    label = rng.integers(model.num_labels, size=model.num_nodes)
    block = rng.integers(model.num_times, size=model.num_nodes) * model.num_labels + label
    coin = rng.random((model.num_nodes, model.num_nodes), dtype=np.float32)
    linked = coin < model.block_probability().astype(np.float32)[block[:, None], block[None, :]]
    if model.ordered:
        np.fill_diagonal(linked, False)
    else:
        linked = np.triu(linked, 1)
    source, target = np.nonzero(linked)
    return np.stack([np.concatenate([source, target]), np.concatenate([target, source])])


def _consumed(model: TSBM) -> int:
    return sum(chunk.shape[1] for chunk in edge_chunks(Draw(model, model.seed), CHUNK))


def _written(directory: Path) -> Report:
    model = ig.tsbm_model(num_nodes=10_000_000, num_features=8, mean_degree=20, protocol="released")
    before, start = peak_memory(), clock.perf_counter()
    write_tsbm(directory, model, memory="2GB")
    seconds = clock.perf_counter() - start
    size = sum(file.stat().st_size for file in directory.rglob("*.npy"))
    row = {
        "nodes": model.num_nodes,
        "seconds": seconds,
        "bytes": size,
        "peak": peak_memory(),
        "peak before": before,
    }
    return Report("Written to disk", [row])
