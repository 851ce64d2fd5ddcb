"""Kernels that release the GIL, shared among ordinary threads."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np


def available() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run(function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]], threads: int | None) -> None:
    """Calls `function(*task)` for every task, each taken by the next free thread, in the order given.

    Example:
        >>> done = []
        >>> run(done.append, [(1,), (2,)], threads=1)
        >>> done
        [1, 2]
    """
    workers = min(available() if threads is None else threads, len(tasks))
    if workers <= 1:
        for task in tasks:
            function(*task)
        return
    with ThreadPoolExecutor(workers) as pool:
        for _ in pool.map(lambda task: function(*task), tasks):
            pass


def spans(cumulative: np.ndarray, most: int) -> np.ndarray:
    """Borders of runs of rows that hold about `most` of what `cumulative` (n + 1, increasing) counts.

    A row that alone holds more is a run of its own.

    Example:
        >>> spans(np.array([0, 1, 2, 50, 51, 52]), 10)
        array([0, 2, 3, 5])
    """
    total, size = int(cumulative[-1]), len(cumulative) - 1
    borders = np.searchsorted(cumulative, np.arange(most, total, most), side="right") - 1
    heavy = np.flatnonzero(np.diff(cumulative) > most)
    return np.unique(np.concatenate([[0, size], borders, heavy, heavy + 1]).clip(0, size))
