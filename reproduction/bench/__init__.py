"""Benchmarks: functions that are commands and return a `Report`.

Each compares ratios taken within one run with a goal.

Contestants take turns round after round, so that a busy machine slows all of them; the best round
counts.
"""

import ctypes
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from impact_gnn.checks import InputError

Clock = Callable[[], float]


@dataclass(frozen=True)
class Goal:
    """A ratio and what was asked of it.

    A positive sign asks for at least that, a negative one for at most.
    """

    name: str
    sign: int
    asked: float
    reached: float

    @property
    def met(self) -> bool:
        return self.sign * (self.reached - self.asked) >= 0


@dataclass(frozen=True)
class Report:
    """A title with the setting, a row per contestant, and goals."""

    title: str
    rows: Sequence[Mapping[str, Any]]
    goals: Sequence[Goal] = ()

    def finish(self, file: Path | None, console: Console | None = None) -> "Report":
        """Prints the figures, and writes them for machines if a file was given."""
        console = console or Console(highlight=False)
        console.print(self.title)
        table = Table(*dict.fromkeys(name for row in self.rows for name in row))
        for row in self.rows:
            table.add_row(
                *(_formatted(row.get(str(column.header), "")) for column in table.columns)
            )
        console.print(table)
        for goal in self.goals:
            asked = f"{'at least' if goal.sign > 0 else 'at most'} {_formatted(goal.asked)}"
            console.print(
                f"{goal.name}: {_formatted(goal.reached)}, asked {asked}, "
                f"{'met' if goal.met else 'missed'}"
            )
        if file is not None:
            content = {
                **asdict(self),
                "met": [goal.met for goal in self.goals],
                "machine": machine(),
            }
            file.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        return self


def best_of(
    calls: Mapping[str, Callable[[], Any]],
    rounds: int,
    *,
    seconds: float = 60.0,
    clock: Clock = time.perf_counter,
) -> dict[str, float]:
    """The shortest time of each call.

    Who has used more than `seconds` sits out, after two rounds at the earliest.
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    names = list(calls)
    for turn in range(rounds):
        begin = turn % len(names)
        for name in names[begin:] + names[:begin]:
            if turn < 2 or sum(times[name]) < seconds:
                start = clock()
                calls[name]()
                times[name].append(clock() - start)
    return {name: min(taken) for name, taken in times.items()}


def in_process(
    function: Callable[..., Any],
    *arguments: str | float,
    path: Sequence[str] | None = None,
    **options: str | float,
) -> Any:
    """What a function of a module gives in a fresh process, whose peak memory is its own.

    `path` is its `sys.path`.
    """
    code = (
        f"import json, sys; from {function.__module__} import {function.__name__} as call; "
        "arguments, options = json.loads(sys.argv[1]); "
        "print(json.dumps(call(*arguments, **options)))"
    )
    call = [sys.executable, "-c", code, json.dumps([arguments, options])]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path if path is None else path))
    }
    done = subprocess.run(call, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise InputError(f"{arguments[0]} failed: {(done.stderr.splitlines() or ['killed'])[-1]}")
    return json.loads(done.stdout.splitlines()[-1])


def peak_memory() -> float:
    """The most memory this process has had, in bytes, as the kernel says."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024.0 * int(next(line.split()[1] for line in lines if line.startswith("VmHWM")))


def one_core() -> None:
    """Everybody on one core from now on, for CPU times on a machine that others use."""
    import torch

    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    torch.set_num_threads(1)


def keep_memory() -> None:
    """Tells glibc to keep freed memory, so that results are written to pages that exist.

    Elsewhere no effect.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        trim_threshold, mmap_max = -1, -4
        libc.mallopt(mmap_max, 0)
        libc.mallopt(trim_threshold, 2**31 - 1)


def machine() -> dict[str, Any]:
    names = [
        line
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    packages = {
        name: version(name) for name in ("numpy", "scipy", "numba", "torch", "torch_geometric")
    }
    return {
        "cpu": names[:1],
        "cores": len(os.sched_getaffinity(0)),
        "system": platform.platform(),
        **packages,
    }


def _formatted(value: Any) -> str:
    if not isinstance(value, float):
        return f"{value:,}" if isinstance(value, int) else str(value)
    return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.3g}"
