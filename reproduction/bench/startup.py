"""Claim: the command, the import and the first transform of a fresh process keep nobody waiting."""

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from reproduction.bench import Goal, Report

FIRST_PMP = """
import time
start = time.perf_counter(), time.process_time()
import torch
from torch_geometric.data import Data
libraries = time.perf_counter(), time.process_time()
from impact_gnn.transforms import PMP
imported = time.perf_counter(), time.process_time()
edge_index = torch.randint(1000, (2, 5000))
data = PMP()(Data(edge_index=edge_index, time=torch.arange(1000) // 100))
assert len(data.edge_weight) == 5000
done = time.perf_counter(), time.process_time()
for (wall, cpu), (wall_before, cpu_before) in (
    (libraries, start), (imported, libraries), (done, imported)
):
    print(wall - wall_before, cpu - cpu_before)
"""
PARTS = ("torch and PyG", "import of transforms", "first PMP()(data)")


def startup(rounds: int = 5, json: Path | None = None) -> Report:
    """Seconds of fresh processes, best of --rounds.

    The goal for the first PMP covers what a process does that has imported torch and PyG: without
    them there is no `Data` to transform.
    """
    rows = []
    goals = []
    for name, code, asked in (
        ("impact --help", ["-m", "impact_gnn", "--help"], 0.2),
        ("import impact_gnn", ["-c", "import impact_gnn"], 0.5),
    ):
        runs = [fresh_process(code) for _ in range(rounds)]
        rows.append({"process": name, "part": "all", **best(runs)})
        goals.append(Goal(f"{name}, seconds", -1, asked, rows[-1]["seconds"]))
    with tempfile.TemporaryDirectory() as folder:
        fresh_process(["-c", FIRST_PMP], cache=folder)
        # Numba compiles again where its folder is new.
        new_folders = [f"{folder}/{number}" for number in range(rounds)]
        for name, caches in (
            ("first PMP, kernels stored", [folder] * rounds),
            ("first PMP, no kernels stored", new_folders),
        ):
            runs = [fresh_process(["-c", FIRST_PMP], cache=cache) for cache in caches]
            rows.append({"process": name, "part": "all", **best(runs)})
            ours = 0.0
            for position, part in enumerate(PARTS):
                printed = [run["printed"].splitlines()[position].split() for run in runs]
                seconds = [
                    {"seconds": float(wall), "CPU seconds": float(cpu)} for wall, cpu in printed
                ]
                rows.append({"process": name, "part": part, **best(seconds)})
                if part != PARTS[0]:
                    ours += rows[-1]["seconds"]
            goals.append(Goal(f"{name}, seconds beside torch and PyG", -1, 2.0, ours))
    return Report(f"fresh processes, best of {rounds}", rows, goals).finish(json)


def fresh_process(arguments: list[str], *, cache: str | None = None) -> dict[str, Any]:
    """Wall and CPU seconds of a Python process, and what it prints; its numba cache is `cache`."""
    environment = dict(os.environ)
    if cache is not None:
        environment["NUMBA_CACHE_DIR"] = cache
    spent = _children_cpu()
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, *arguments], check=True, capture_output=True, text=True, env=environment
    )
    return {
        "seconds": time.perf_counter() - start,
        "CPU seconds": _children_cpu() - spent,
        "printed": done.stdout,
    }


def best(runs: list[dict[str, Any]]) -> dict[str, float]:
    """The least seconds and CPU seconds of several runs."""
    return {name: min(run[name] for run in runs) for name in ("seconds", "CPU seconds")}


def _children_cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
