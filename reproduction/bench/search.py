"""Claim: `--effort quick` takes a minute of CPU time, and two jobs are faster than one.

Every run is a process of its own, so that its CPU time is its own; that of its jobs is included.
Work units are what the search counted: the ratio shows how far the cost model is off.
"""

import os
import resource
import tempfile
import time
from pathlib import Path

import numpy as np

import impact_gnn as ig
from reproduction import data
from reproduction.bench import Goal, Report, in_process

GOALS = {
    "aan": 15,
    "music_influence": 20,
    "scotus": 40,
    "elife_hetero": 60,
    "nvd_hetero": 60,
    "acl_hetero": 60,
    "ogbn_arxiv": 150,
    "f1_recent": 25,
    "f1": 40,
    "ratings": 90,
}
"""CPU seconds of quick; "ratings" is a table that is generated."""


def search(
    root: Path = Path("../shared/data"),
    graphs: str = ",".join(GOALS),
    effort: str = "quick",
    compare: str = "",
    json: Path | None = None,
) -> Report:
    """CPU seconds of runs by graph; --compare names graphs that are run with two jobs as well."""
    rows = []
    goals = []
    for name in graphs.split(","):
        row = in_process(timed_run, str(root), name, effort, 1)
        rows.append({"graph": name, "jobs": 1, **row})
        if effort == "quick" and name in GOALS:
            goals.append(Goal(f"CPU seconds, {name}", -1, GOALS[name], row["CPU seconds"]))
    for name in filter(None, compare.split(",")):
        one, two = (in_process(timed_run, str(root), name, effort, jobs) for jobs in (1, 2))
        rows.append({"graph": name, "jobs": 2, **two})
        goals.append(Goal(f"two jobs, {name}", 1, 1.7, one["seconds"] / two["seconds"]))
    title = f"impact run, effort {effort}, seed 0; {os.cpu_count()} cores"
    return Report(title, rows, goals).finish(json)


def timed_run(root: str, name: str, effort: str, jobs: int) -> dict[str, float]:
    """Run the main job on a graph whose target labels are masked."""
    if name == "ratings":
        graph, cutoff = ratings()
    else:
        graph, cutoff = data.with_cutoff(name, Path(root))
    cpu = _cpu_seconds()
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        view = graph.masked(cutoff)
        summary = ig.run(view, Path(folder, "run"), cutoff=cutoff, effort=effort, jobs=jobs)
    return {
        "seconds": time.monotonic() - start,
        "CPU seconds": _cpu_seconds() - cpu,
        "work units": summary.backtest.work,
        "nodes": graph.num_nodes,
    }


def ratings(rows: int = 100_000) -> tuple[ig.TemporalGraph, int]:
    """A log of ratings by users who arrive all the time; fewer and fewer items are liked."""
    rng = np.random.default_rng(0)
    time_of_row = np.sort(rng.integers(0, 365 * 4, rows))
    # users rate for a few months after their arrival
    arrival = np.sort(rng.integers(-90, 365 * 4, 2000))
    newest = np.searchsorted(arrival, time_of_row, side="right")
    user = np.maximum(newest - 1 - rng.geometric(1 / 120, rows), 0)
    item = (rng.pareto(1.2, rows) * 20).astype(int) % 4000
    taste = rng.normal(size=(2000, 4))
    quality = rng.normal(size=(4000, 4))
    score = (taste[user] * quality[item]).sum(1) / 2 + quality[item, 0] - 0.4 * time_of_row / 1460
    liked = score + rng.logistic(size=rows) > 0
    table = {
        "userId": user,
        "movieId": item,
        "date": np.datetime64("2015-01-01") + time_of_row,
        "liked": np.where(liked, "yes", "no"),
    }
    graph = ig.from_tables(table, label="liked", time="date", cutoff="2018-07-01", quiet=True)
    return graph, graph.when("2018-07-01")


def _cpu_seconds() -> float:
    """CPU time of this process and of those that it has waited for."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
