"""Claims: `Disk` keeps to its cap and takes at most three times the in-memory time; `Dask` gains from a second worker.

One graph is saved once. Every contestant is a fresh process. Times run from files that the page cache holds to hops:
edges are sorted and applied, in memory or within an eighth of the size of X. Peak memory includes compiled code and
the interpreter.
"""

import tempfile
import time
from pathlib import Path

import numpy as np

import impact_gnn as ig
from reproduction.bench import Goal, Report, in_process, peak_memory

PERIODS = 10


def outofcore(
    nodes: int = 1_000_000, edges: int = 20_000_000, width: int = 128, hops: int = 2, share: int = 8, rounds: int = 2,
    dask: bool = True, json: Path | None = None,
) -> Report:  # fmt: skip
    """Disk and Dask against memory: time and peak memory; the cap is the size of X divided by --share."""
    cap = nodes * width * 4 // share
    names = ["memory", "disk", *(["dask 1", "dask 2"] if dask else [])]
    with tempfile.TemporaryDirectory() as place:
        save_graph(Path(place) / "graph", nodes, edges, width)
        rows = [
            {"engine": name, **in_process(contest, name, f"{place}/graph", f"{place}/{name}-{turn}", cap, hops)}
            for turn in range(rounds)
            for name in names
        ]

    def best(name: str, what: str) -> float:
        return min(float(row[what]) for row in rows if row["engine"] == name)

    peak = max(float(row["peak"]) for row in rows if row["engine"] == "disk")
    goals = [
        Goal("peak over cap, bytes", -1, 3e8, peak - cap),
        Goal("time over memory", -1, 3.0, best("disk", "seconds") / best("memory", "seconds")),
    ]
    if dask:
        ratio = best("dask 1", "seconds") / best("dask 2", "seconds")
        goals.append(Goal("two workers over one", 1, 1.6, ratio))
    title = f"{nodes:,} nodes, {edges:,} edges, {width} columns, {hops} hops, cap {cap:,} bytes"
    return Report(title, rows, goals).finish(json)


def save_graph(directory: Path, nodes: int, edges: int, width: int) -> None:
    """Writes a random graph whose sources follow a power law."""
    rng = np.random.default_rng(0)
    rank = rng.permutation(nodes)
    source = rank[np.minimum(nodes * rng.random(edges) ** 3, nodes - 1).astype(np.int64)]
    ends = np.stack([source, rng.integers(0, nodes, edges)])
    x = rng.random((nodes, width), dtype=np.float32)
    ig.TemporalGraph(x=x, time=rng.integers(0, PERIODS, nodes), edge_index=ends).save(directory)


def contest(name: str, graph: str, work: str, cap: int, hops: int) -> dict[str, float]:
    """One contestant: everything is loaded and compiled on a small graph before the clock starts."""
    small = Path(work) / "small"
    save_graph(small, 1000, 10_000, 32)
    if name.startswith("dask"):
        from dask.distributed import Client, LocalCluster

        workers = int(name.split()[1])
        with (
            LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=":0") as cluster,
            Client(cluster) as client,
        ):
            for number in range(2):  # so that every worker has loaded its code
                _timed(ig.engines.Dask(client, f"{work}/warm-{number}", memory=10**6), small, hops)
            return _timed(ig.engines.Dask(client, f"{work}/hops", memory=cap), Path(graph), hops)
    on_disk = name == "disk"
    _timed(ig.engines.Disk(f"{work}/warm", memory=10**6) if on_disk else ig.engines.Memory(), small, hops)
    engine = ig.engines.Disk(f"{work}/hops", memory=cap) if on_disk else ig.engines.Memory()
    return _timed(engine, Path(graph), hops)


def _timed(engine: ig.engines.Memory | ig.engines.Disk | ig.engines.Dask, graph: Path, hops: int) -> dict[str, float]:
    start, spent = time.perf_counter(), time.process_time()
    ig.propagate(ig.load(graph), weighting="pmp", hops=hops, engine=engine)
    taken = {"seconds": time.perf_counter() - start, "cpu": time.process_time() - spent}
    return {**taken, "peak": peak_memory()}
