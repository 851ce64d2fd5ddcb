"""Claims: `Disk` stays within its memory and three times the time; a second worker helps `Dask`.

Every contestant is a fresh process. Times run from a saved graph that the page cache holds to hops,
with sorting the edges. Peak memory includes compiled code and the interpreter.
"""

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import impact_gnn as ig
from reproduction.bench import Goal, Report, in_process, peak_memory
from reproduction.bench.propagation import power_law


def outofcore(
    nodes: int = 1_000_000,
    edges: int = 20_000_000,
    width: int = 128,
    hops: int = 2,
    share: int = 8,
    rounds: int = 2,
    dask: bool = True,
    json: Path | None = None,
) -> Report:
    """Disk and Dask against memory.

    Time and peak memory; the cap is the size of X divided by --share.
    """
    cap = nodes * width * 4 // share
    names = ["memory", "disk", *(["dask 1", "dask 2"] if dask else [])]
    with tempfile.TemporaryDirectory() as place:
        _save(f"{place}/graph", nodes, edges, width)
        rows: list[dict[str, Any]] = [
            {
                "engine": name,
                **in_process(
                    contest,
                    name,
                    graph=f"{place}/graph",
                    work=f"{place}/{name}-{turn}",
                    cap=cap,
                    hops=hops,
                ),
            }
            for turn in range(rounds)
            for name in names
        ]

    best = {name: min(row["seconds"] for row in rows if row["engine"] == name) for name in names}
    peak = max(row["peak"] for row in rows if row["engine"] == "disk")
    goals = [
        Goal("peak over cap, bytes", -1, 3e8, peak - cap),
        Goal("time over memory", -1, 3.0, best["disk"] / best["memory"]),
    ]
    if dask:
        goals.append(Goal("two workers over one", 1, 1.6, best["dask 1"] / best["dask 2"]))
    title = f"{nodes:,} nodes, {edges:,} edges, {width} columns, {hops} hops, cap {cap:,} bytes"
    return Report(title, rows, goals).finish(json)


def contest(name: str, graph: str, work: str, cap: int, hops: int) -> dict[str, float]:
    """One contestant; it is loaded and compiled on a small graph before the clock starts."""
    small = f"{work}/small"
    _save(small, 1000, 10_000, 32)
    if name.startswith("dask"):
        from dask.distributed import Client, LocalCluster

        workers = int(name.split()[1])
        cluster = LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=":0")
        with cluster, Client(cluster) as client:
            for number in range(2):  # so that every worker has loaded its code
                _timed(ig.engines.Dask(client, f"{work}/warm-{number}", memory=10**6), small, hops)
            return _timed(ig.engines.Dask(client, f"{work}/hops", memory=cap), graph, hops)
    if name == "disk":
        _timed(ig.engines.Disk(f"{work}/warm", memory=10**6), small, hops)
        return _timed(ig.engines.Disk(f"{work}/hops", memory=cap), graph, hops)
    _timed(ig.engines.Memory(), small, hops)
    return _timed(ig.engines.Memory(), graph, hops)


def _timed(
    engine: ig.engines.Memory | ig.engines.Disk | ig.engines.Dask, graph: str, hops: int
) -> dict[str, float]:
    start, spent = time.perf_counter(), time.process_time()
    ig.propagate(ig.load(graph), weighting="pmp", hops=hops, engine=engine)
    return {
        "seconds": time.perf_counter() - start,
        "cpu": time.process_time() - spent,
        "peak": peak_memory(),
    }


def _save(directory: str, nodes: int, edges: int, width: int) -> None:
    x = np.random.default_rng(0).random((nodes, width), dtype=np.float32)
    power_law(nodes, edges).with_features(x).save(directory)
