"""How times are taken, and on what machine."""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import platform
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from impact_gnn.propagation import threads as pool

Call = Callable[[], Any]


def rounds(
    calls: dict[str, Call], most: int, seconds: float, clock: Callable[[], float] = time.perf_counter
) -> dict[str, list[float]]:
    """Times of each call; everybody runs before anybody runs again, beginning with another one every round.

    Args:
        calls: What to time, by name.
        most: How many rounds.
        seconds: Who has used more than this sits out, after two rounds at the earliest.
        clock: `time.perf_counter`, or `time.thread_time` to leave out what other processes take.
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    names = list(calls)
    for turn in range(most):
        begin = turn % len(names)
        for name in names[begin:] + names[:begin]:
            if turn < 2 or sum(times[name]) < seconds:
                times[name].append(timed(calls[name], clock))
    return times


def timed(call: Call, clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds on the clock that a call takes."""
    start = clock()
    call()
    return clock() - start


def keep_memory() -> None:
    """Tells glibc to keep freed memory, so that results are written to pages that exist; elsewhere no effect."""
    library = ctypes.util.find_library("c")
    if platform.system() == "Linux" and library:
        libc = ctypes.CDLL(library)
        if hasattr(libc, "mallopt"):
            trim_threshold, mmap_max = -1, -4
            libc.mallopt(mmap_max, 0)
            libc.mallopt(trim_threshold, 2**31 - 1)


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    cpu, info = platform.processor(), Path("/proc/cpuinfo")
    if info.exists():
        lines = info.read_text().splitlines()
        cpu = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), cpu)
    packages = {}
    for name in ("numpy", "scipy", "numba", "llvmlite", "torch", "torch_geometric"):
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            continue
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 0
    return {
        "cpu": cpu,
        "cores": pool.available(),
        "memory_gb": round(memory / 1e9, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        "packages": packages,
    }
