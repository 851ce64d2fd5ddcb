"""Claim: the block model is sampled in time proportional to its edges, and to disk within a memory cap.

    python benchmarks/tsbm.py                      against N² sampling, and growth from 1 M to 20 M edges
    python benchmarks/tsbm.py --large DIRECTORY    10 M nodes, 200 M edges to disk, with the peak memory

All figures are ratios taken within one run, except the sizes of the large graph. `--json FILE` keeps them.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from impact_gnn.data.tsbm import PROTOCOLS, TSBM, tsbm_model, write_tsbm


def best(task: Callable[[], object], rounds: int) -> float:
    """Shortest of some rounds, after one that compiles and warms up."""
    task()
    seconds = []
    for _ in range(rounds):
        begin = time.perf_counter()
        task()
        seconds.append(time.perf_counter() - begin)
    return min(seconds)


def dense(model: TSBM, seed: int) -> np.ndarray:
    """The edges as one would draw them with numpy: a coin for every pair."""
    rng = np.random.default_rng(seed)
    label = rng.integers(model.num_labels, size=model.num_nodes)
    period = rng.integers(model.num_times, size=model.num_nodes)
    block = period * model.num_labels + label
    coin = rng.random((model.num_nodes, model.num_nodes), dtype=np.float32)
    linked = coin < model.block_probability().astype(np.float32)[block[:, None], block[None, :]]
    if model.ordered:
        np.fill_diagonal(linked, False)
    else:
        linked = np.triu(linked, 1)
    source, target = np.nonzero(linked)
    return np.stack([np.concatenate([source, target]), np.concatenate([target, source])])


def against_dense() -> dict[str, dict[str, float]]:
    out = {}
    for protocol in PROTOCOLS:
        model = tsbm_model(protocol=protocol)
        ours, naive = best(model.sample, 20), best(partial(dense, model, 0), 5)
        edges = model.sample().edge_index.shape[1]
        out[protocol] = {"edges": edges, "milliseconds": 1e3 * ours, "dense_over_ours": naive / ours}
        print(f"N=2000 {protocol:9} {edges:9,} edges  {1e3 * ours:6.2f} ms   dense N² / ours {naive / ours:5.1f}")
    return out


def consume(model: TSBM) -> int:
    """Draws all edges, keeping none."""
    return sum(chunk.shape[1] for chunk in model.edge_chunks())


def growth() -> list[dict[str, float]]:
    out: list[dict[str, float]] = []
    for million in (1, 2, 5, 10, 20):
        model = tsbm_model(num_nodes=million * 50_000, mean_degree=20, num_features=1)
        seconds = best(partial(consume, model), 3)
        row = {"edges": model.expected_edges, "edges_per_second": model.expected_edges / seconds}
        row["time_per_edge_over_first"] = (out[0] if out else row)["edges_per_second"] / row["edges_per_second"]
        out.append(row)
        print(
            f"{million:3} M edges  {row['edges_per_second'] / 1e6:6.1f} M edges/s   "
            f"time per edge / that at 1 M {row['time_per_edge_over_first']:.2f}"
        )
    return out


def large(directory: Path) -> dict[str, float]:
    peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # noqa: E731
    before = peak()
    model = tsbm_model(num_nodes=10_000_000, num_features=8, mean_degree=20, protocol="released")
    begin = time.perf_counter()
    show = lambda done, total: print(f"\r{done / total:6.1%}", end="", file=sys.stderr)  # noqa: E731
    write_tsbm(directory, model, memory="2GB", progress=show)
    seconds = time.perf_counter() - begin
    edges = int(np.load(next(directory.rglob("edge_index.npy")), mmap_mode="r").shape[1])
    size = sum(file.stat().st_size for file in directory.rglob("*.npy"))
    print(
        f"\n{model.num_nodes:,} nodes, {edges:,} edges, {size / 1e9:.2f} GB on disk in {seconds:.0f} s; "
        f"peak memory {peak() / 1e6:.0f} MB, of which {before / 1e6:.0f} MB before the start"
    )
    return {"edges": edges, "bytes": size, "seconds": seconds, "peak_rss": peak(), "rss_before": before}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--large", type=Path, metavar="DIRECTORY")
    parser.add_argument("--json", type=Path, metavar="FILE")
    given = parser.parse_args()
    if given.large:
        found: dict[str, object] = {"large": large(given.large)}
    else:
        found = {"against_dense": against_dense(), "growth": growth()}
    if given.json:
        given.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
