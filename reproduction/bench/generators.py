"""Claim: the block model is sampled in time proportional to its edges, and to disk within a memory cap."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import numpy as np

import impact_gnn as ig
from impact_gnn.data.tsbm import PROTOCOLS, TSBM, write_tsbm
from reproduction.bench import Goal, Report, best_of, peak_memory


def tsbm(million_edges: str = "1,2,5,10,20", large: Path | None = None, json: Path | None = None) -> Report:
    """The generator against N² sampling, and its growth; --large DIR writes 10 M nodes and 200 M edges to disk."""
    if large is not None:
        return _written(large).finish(json)
    rows, goals = [], []
    for protocol in PROTOCOLS:
        model = ig.tsbm_model(protocol=protocol)
        best = best_of({"ours": model.sample, "dense": partial(dense, model)}, 6)
        rows.append({"graph": f"N = 2000, {protocol}", "M edges/s": model.expected_edges / best["ours"] / 1e6})
        goals.append(Goal(f"dense N² over ours, {protocol}", 1, 1.0, best["dense"] / best["ours"]))
    for million in million_edges.split(","):
        model = ig.tsbm_model(num_nodes=int(million) * 50_000, mean_degree=20, num_features=1)
        seconds = best_of({"ours": partial(_consumed, model)}, 4)["ours"]
        rows.append({"graph": f"{million} M edges", "M edges/s": model.expected_edges / seconds / 1e6})
    first, last = (row["M edges/s"] for row in (rows[len(PROTOCOLS)], rows[-1]))
    goals.append(Goal("time per edge of the largest over the smallest", -1, 2.0, float(first) / float(last)))
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
    return sum(chunk.shape[1] for chunk in model.edge_chunks())


def _written(directory: Path) -> Report:
    model = ig.tsbm_model(num_nodes=10_000_000, num_features=8, mean_degree=20, protocol="released")
    before, start = peak_memory(), time.perf_counter()
    write_tsbm(directory, model, memory="2GB")
    seconds = time.perf_counter() - start
    size = sum(file.stat().st_size for file in directory.rglob("*.npy"))
    row = {"nodes": model.num_nodes, "seconds": seconds, "bytes": size, "peak": peak_memory(), "peak before": before}
    return Report("Written to disk", [row])
