"""Claim: `--effort quick` takes a minute of CPU time, and two jobs are faster than one.

Every run is a process of its own, so that its CPU time is its own; that of its jobs is included.
Work units are what the search counted: the ratio shows how far the cost model is off.
Accuracy is compared by `python -m reproduction leaderboard`.
"""

import contextlib
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import impact_gnn as ig
from reproduction import data
from reproduction.bench import Goal, Report, in_process, newnodes

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

BEFORE = {
    "aan": 38,
    "music_influence": 39,
    "scotus": 82,
    "elife_hetero": 140,
    "nvd_hetero": 192,
    "acl_hetero": 180,
    "ogbn_arxiv": 464,
    "f1": 131,
    "ratings": 283,
}
"""CPU seconds of quick when issue 27 was written, before the search was made faster."""

BEFORE_BUSY = {"f1_recent": 359, "f1": 900, "ratings": 1665}
"""The same on a busy machine with as many threads as cores."""


def search(
    root: Path = Path("../shared/data"),
    graphs: str = ",".join(GOALS),
    compare: str = "scotus,elife_hetero,nvd_hetero",
    normal: str = "scotus",
    busy: str = "f1,ratings",
    new_nodes: str = "1000000",
    json: Path | None = None,
) -> Report:
    """CPU seconds of quick by graph; an empty option leaves its part out.

    --compare names graphs that are run with two jobs as well, --normal with effort normal, --busy
    while every core has other work, --new-nodes the size of the graph that gets 1,000 new nodes.
    """
    rows = []
    goals = []
    for name in dict.fromkeys(_split(",".join([graphs, compare, normal, busy]))):
        # The runs that are compared follow each other.
        alone = timed_row(root, name)
        rows.append(alone | {"before": BEFORE.get(name, "")})
        if name in GOALS:
            goals.append(Goal(f"CPU seconds, {name}", -1, GOALS[name], alone["CPU seconds"]))
        if name in _split(compare):
            row = timed_row(root, name, jobs=2)
            rows.append(row)
            goals.append(Goal(f"two jobs, {name}", 1, 1.7, alone["seconds"] / row["seconds"]))
        if name in _split(normal):
            row = timed_row(root, name, effort="normal")
            rows.append(row)
            ratio = row["CPU seconds"] / alone["CPU seconds"]
            goals.append(Goal(f"CPU of normal over quick, {name}", -1, 4, ratio))
        if name in _split(busy):
            with other_work():
                row = timed_row(root, name, machine="busy")
            rows.append(row | {"before": BEFORE_BUSY.get(name, "")})
            ratio = row["CPU seconds"] / alone["CPU seconds"]
            goals.append(Goal(f"CPU with other work over alone, {name}", -1, 1.2, ratio))
    if new_nodes:
        goals += newnodes.newnodes(new_nodes, full=0).goals
    title = f"impact run, seed 0; {os.cpu_count()} cores"
    return Report(title, rows, goals).finish(json)


def timed_row(
    root: Path, name: str, *, effort: str = "quick", jobs: int = 1, machine: str = "alone"
) -> dict[str, Any]:
    """The row of one run, in a process of its own."""
    setting = {"graph": name, "effort": effort, "jobs": jobs, "machine": machine}
    return setting | in_process(timed_run, str(root), name, effort, jobs)


def timed_run(root: str, name: str, effort: str, jobs: int) -> dict[str, float]:
    """Run the main job on a graph whose target labels are masked."""
    graph, cutoff = graph_of(name, Path(root))
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


def graph_of(name: str, root: Path) -> tuple[ig.TemporalGraph, int]:
    """A graph at hand or the generated one, and its cutoff."""
    if name == "ratings":
        return ratings()
    return data.with_cutoff(name, root)


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


@contextlib.contextmanager
def other_work() -> Iterator[list[subprocess.Popen[bytes]]]:
    """A process per core that never waits, for as long as this one runs or the block takes."""
    loop = f"import os\nwhile os.getppid() == {os.getpid()}: sum(range(100_000))"
    loops = [subprocess.Popen([sys.executable, "-c", loop]) for _ in range(os.cpu_count() or 1)]
    try:
        yield loops
    finally:
        for process in loops:
            process.kill()
            process.wait()


def _split(names: str) -> list[str]:
    return [name for name in names.split(",") if name]


def _cpu_seconds() -> float:
    """CPU time of this process and of those that it has waited for."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
