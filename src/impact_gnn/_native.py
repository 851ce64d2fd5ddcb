"""What numba kernels and memory maps ask of Python: threads, plain views, aligned arrays, pages given back."""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ContextDecorator
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

CACHE_LINE = 64  # bytes fetched from memory at a time
UNLIMITED = 1 << 40  # bytes
BLOCK_BYTES = 1 << 25  # bytes of a mapped array that are looked at before its pages are given back


def available() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run(
    function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]], threads: int | None
) -> None:
    """Calls `function(*task)` for every task, each taken by the next free thread, in the order given.

    Ordinary threads and kernels without the GIL, no OpenMP: safe under Dask and after a fork.
    """
    workers = min(available() if threads is None else threads, len(tasks))
    if workers <= 1:
        for task in tasks:
            function(*task)
        return
    with ThreadPoolExecutor(workers) as pool:
        for _ in pool.map(lambda task: function(*task), tasks):
            pass


class _OneThread(ContextDecorator):
    """Torch, BLAS and OpenMP work in one thread, so that sums are added in one order on every machine.

    It may be entered again, and by several threads; the last to leave restores what was before.
    Numba kernels and `run` are not limited: their results do not depend on the number of threads.
    """

    def __init__(self) -> None:
        self.lock, self.depth = threading.Lock(), 0
        self.limits: Any = None
        self.torch_threads = 1

    def __enter__(self) -> None:
        with self.lock:
            self.depth += 1
            if self.depth == 1:
                self.limits = threadpool_limits(1)
                if torch := sys.modules.get("torch"):
                    self.torch_threads = torch.get_num_threads()
                    torch.set_num_threads(1)

    def __exit__(self, *error: object) -> None:
        with self.lock:
            self.depth -= 1
            if self.depth == 0:
                if torch := sys.modules.get("torch"):
                    torch.set_num_threads(self.torch_threads)
                self.limits.restore_original_limits()


one_thread = _OneThread()


def spans(cumulative: np.ndarray, most: int) -> np.ndarray:
    """Borders of runs of rows that hold about `most` of what `cumulative` (n + 1, increasing) counts.

    A row that alone holds more is a run of its own: spans([0, 1, 2, 50, 51, 52], 10) is [0, 2, 3,
        5].
    """
    begin, total, size = int(cumulative[0]), int(cumulative[-1]), len(cumulative) - 1
    borders = np.searchsorted(cumulative, np.arange(begin + most, total, most), side="right") - 1
    heavy = np.flatnonzero(np.diff(cumulative) > most)
    return np.unique(np.concatenate([[0, size], borders, heavy, heavy + 1]).clip(0, size))


def aligned_empty(shape: tuple[int, int], dtype: Any) -> np.ndarray:
    """An array that begins on a cache line, so that its rows touch as few lines as they can."""
    dtype = np.dtype(dtype)
    size = shape[0] * shape[1] * dtype.itemsize
    buffer = np.empty(size + CACHE_LINE, np.uint8)
    begin = -buffer.ctypes.data % CACHE_LINE
    return buffer[begin : begin + size].view(dtype).reshape(shape)


def plain_view(array: np.ndarray) -> np.ndarray:
    """A flat array as numba likes it best: contiguous, of no subclass, and taken for writable."""
    array = np.ascontiguousarray(array)
    return flat_view(array, array.size, array.dtype)


def flat_view(array: np.ndarray, size: int, dtype: np.dtype) -> np.ndarray:
    """`array`'s memory as a flat array that numba takes for writable: read-only ones cost a compilation each."""
    memory: Any = (ctypes.c_char * (size * dtype.itemsize)).from_address(array.ctypes.data)
    memory._owner = array  # keeps it alive as long as the view
    return np.ndarray((size,), dtype, buffer=memory)


def mapping(array: np.ndarray) -> mmap.mmap | None:
    """The memory map that an array looks at, None where it lies in memory of its own."""
    base: Any = array
    while isinstance(base, np.ndarray):
        owner = getattr(base, "_mmap", None)
        if isinstance(owner, mmap.mmap):
            return owner
        base = base.base
    return base if isinstance(base, mmap.mmap) else None


def file_of(array: np.ndarray) -> str | None:
    """The `.npy` file that an array is mapped from, if it shows all of that file and in its order; otherwise None."""
    name, pages = getattr(array, "filename", None), mapping(array)
    if (
        name is None
        or pages is None
        or not array.flags.c_contiguous
        or not str(name).endswith(".npy")
    ):
        return None
    begin = array.ctypes.data - np.frombuffer(pages, np.uint8).ctypes.data
    begins_there = begin == array.offset  # type: ignore[attr-defined]
    if begins_there and begin + array.nbytes == os.path.getsize(name):
        return str(name)
    return None


def release(*arrays: np.ndarray | None) -> None:
    """Gives the pages of mapped arrays back: they stay in files and in the system's cache, not in this process."""
    for array in arrays:
        if (
            array is not None
            and (pages := mapping(array)) is not None
            and hasattr(pages, "madvise")
        ):
            pages.madvise(mmap.MADV_DONTNEED)


def block_slices(array: np.ndarray, axis: int = 0) -> Iterator[slice]:
    """Runs along an axis of about `BLOCK_BYTES`."""
    length = array.shape[axis]
    step = max(1, BLOCK_BYTES // max(1, array.nbytes // max(length, 1)))
    for begin in range(0, length, step):
        yield slice(begin, min(begin + step, length))


def blocks(array: np.ndarray, axis: int = 0) -> Iterator[slice]:
    """As `block_slices`; pages of a mapped array are given back after each."""
    for part in block_slices(array, axis):
        yield part
        release(array)


def free_memory() -> int:
    """Bytes that this process may still allocate, within its limits and its control group's."""
    available = _number(Path("/proc/meminfo"), "MemAvailable")
    free = UNLIMITED if available is None else 1024 * available
    free = min(free, _free_address_space())
    group = Path("/sys/fs/cgroup")
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        most, now = _number(group / limit), _number(group / used)
        if most is not None and now is not None:
            cache = _number(group / Path(limit).parent / "memory.stat", "inactive_file") or 0
            free = min(free, most - now + cache)
    return max(free, 0)


def _free_address_space() -> int:
    """Bytes left below the limit of the address space (`ulimit -v`)."""
    try:
        import resource
    except ImportError:  # Windows
        return UNLIMITED
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    used = _number(Path("/proc/self/statm"))
    if limit == resource.RLIM_INFINITY or used is None:
        return UNLIMITED
    return limit - used * mmap.PAGESIZE


def _number(path: Path, name: str | None = None) -> int | None:
    """A number in a file of the system's, behind `name` if given; None where there is none."""
    try:
        words = path.read_text().replace(":", " ").split()
        return int(words[0] if name is None else words[words.index(name) + 1])
    except (OSError, ValueError, IndexError):
        return None
