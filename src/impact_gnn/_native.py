"""Helpers of numba kernels and memory maps: threads, plain views, aligned arrays, page release."""

from __future__ import annotations

import ctypes
import functools
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
from numpy import ndarray
from threadpoolctl import threadpool_limits

CACHE_LINE = 64  # bytes fetched from memory at a time
UNLIMITED = 1 << 40  # bytes, or cores
ROOT = Path("/")
BLOCK_BYTES = 1 << 25  # bytes of a mapped array that are read before its pages are released


def available() -> int:
    """Return the number of cores that this process may use: at most OMP_NUM_THREADS, if set.

    A container may have a quota of CPU time, which is worth fewer cores than it sees.
    """
    cores = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    cores = min(cores, cpu_quota())
    # It may list a number for every level of nesting; the first one counts.
    limit = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    return min(cores, int(limit)) if limit.isdigit() and int(limit) else cores


def run(
    function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]], threads: int | None
) -> None:
    """Call `function(*task)` for every task in order, each in the next free thread.

    Ordinary threads and kernels without the GIL, no OpenMP: safe under Dask and after a fork.
    """
    # A single worker runs here: a thread for little work would cost more than it saves.
    workers = min(available() if threads is None else threads, len(tasks))
    if workers <= 1:
        for task in tasks:
            function(*task)
        return
    with ThreadPoolExecutor(workers) as pool:
        # Reading the results raises the exception of a task here.
        for _ in pool.map(lambda task: function(*task), tasks):
            pass


class _OneThread(ContextDecorator):
    """Run torch, BLAS and OpenMP in one thread, so that all machines add sums in one order.

    It may be entered again, and by several threads; the last to leave restores what was before.
    Numba kernels and `run` are not limited: their results do not depend on the number of threads.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.depth = 0
        self.limits: Any = None
        self.torch_threads = 1

    def __enter__(self) -> None:
        with self.lock:
            self.depth += 1
            if self.depth == 1:
                # BLAS and OpenMP here; torch has threads of its own, if it is imported at all.
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


def spans(cumulative: ndarray, most: int) -> ndarray:
    """Return borders of runs of rows with about `most` entries; `cumulative` counts entries.

    A row with more entries is a run of its own: spans([0, 1, 2, 50, 51, 52], 10) is [0, 2, 3, 5].
    """
    begin = int(cumulative[0])
    total = int(cumulative[-1])
    size = len(cumulative) - 1
    multiples = np.arange(begin + most, total, most)
    # The last row that begins within each multiple of `most` entries.
    borders = np.searchsorted(cumulative, multiples, side="right") - 1
    # A row that exceeds the limit alone gets a border before and behind it.
    heavy = np.flatnonzero(np.diff(cumulative) > most)
    return np.unique(np.r_[0, size, borders, heavy, heavy + 1].clip(0, size))


def aligned_empty(shape: tuple[int, int], dtype: Any) -> ndarray:
    """Allocate an array that begins on a cache line, so that its rows touch few lines."""
    dtype = np.dtype(dtype)
    size = shape[0] * shape[1] * dtype.itemsize
    buffer = np.empty(size + CACHE_LINE, np.uint8)
    # As many bytes as are missing to the next cache line.
    begin = -buffer.ctypes.data % CACHE_LINE
    return buffer[begin : begin + size].view(dtype).reshape(shape)


def plain_view(array: ndarray) -> ndarray:
    """Return a flat view for numba: contiguous, of no subclass, and typed as writable."""
    array = np.ascontiguousarray(array)
    return flat_view(array, array.size, array.dtype)


def flat_view(array: ndarray, size: int, dtype: np.dtype) -> ndarray:
    """Return `array`'s memory as a flat, writable array: read-only ones compile again."""
    buffer_type: Any = ctypes.c_char * (size * dtype.itemsize)
    memory = buffer_type.from_address(array.ctypes.data)
    memory._owner = array  # keeps it alive as long as the view
    return ndarray((size,), dtype, buffer=memory)


def mapping(array: ndarray) -> mmap.mmap | None:
    """Return the memory map of an array, or None; None as well for a private one.

    Changes of a private map are in its pages only, which must not be released.
    """
    base: Any = array
    # A view refers to the array that it was cut from; the last one owns the map.
    while isinstance(base, ndarray):
        if getattr(base, "mode", None) == "c":  # copy-on-write
            return None
        owner = getattr(base, "_mmap", None)
        if isinstance(owner, mmap.mmap):
            return owner
        base = base.base
    return None


def file_of(array: ndarray) -> str | None:
    """Return the `.npy` file that an array is mapped from, if it is all of that file."""
    name = getattr(array, "filename", None)
    pages = mapping(array)
    if name is None or pages is None:
        return None
    if not array.flags.c_contiguous or not str(name).endswith(".npy"):
        return None
    # Bytes from the beginning of the file to the first element.
    begin = array.ctypes.data - np.frombuffer(pages, np.uint8).ctypes.data
    begins_there = begin == array.offset  # type: ignore[attr-defined]
    if begins_there and begin + array.nbytes == os.path.getsize(name):
        return str(name)
    return None


def release(*arrays: ndarray | None) -> None:
    """Release the pages of mapped arrays from this process; the system may cache them."""
    for array in arrays:
        pages = None if array is None else mapping(array)
        if pages is not None and hasattr(pages, "madvise"):
            pages.madvise(mmap.MADV_DONTNEED)


def block_slices(array: ndarray, axis: int = 0) -> Iterator[slice]:
    """Yield slices along an axis of about `BLOCK_BYTES`."""
    length = array.shape[axis]
    # Entries along the axis, by the bytes of one.
    step = max(1, BLOCK_BYTES // max(1, array.nbytes // max(length, 1)))
    for begin in range(0, length, step):
        yield slice(begin, min(begin + step, length))


def blocks(array: ndarray, axis: int = 0) -> Iterator[slice]:
    """Yield `block_slices`, and release pages of a mapped array after each."""
    for part in block_slices(array, axis):
        yield part
        release(array)


def free_memory() -> int:
    """Return the bytes that this process may still allocate, by its limits and control group."""
    available = _number(Path("/proc/meminfo"), "MemAvailable")
    free = UNLIMITED if available is None else 1024 * available  # in KiB there
    free = min(free, _free_address_space())
    return max(min(free, free_in_groups()), 0)


def free_in_groups(root: Path = ROOT) -> int:
    """Return the bytes that the control groups of this process may still allocate."""
    free = UNLIMITED
    for group in control_groups("memory", root):
        # The names of version 2, then of version 1.
        for limit_name, used_name in (
            ("memory.max", "memory.current"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        ):
            limit = _number(group / limit_name)
            used = _number(group / used_name)
            if limit is not None and used is not None:
                # Pages of files count as used, but the system gives them back when needed.
                stat = group / "memory.stat"
                cache = _number(stat, "total_inactive_file") or _number(stat, "inactive_file") or 0
                free = min(free, limit - used + cache)
    return free


@functools.cache
def cpu_quota(root: Path = ROOT) -> int:
    """Return the cores that the control groups of this process may use, rounded up."""
    cores = [UNLIMITED]
    for group in control_groups("cpu", root):
        # One file in version 2, "max 100000" without a quota; two files in version 1.
        quotas = [group / "cpu.max"], [group / "cpu.cfs_quota_us", group / "cpu.cfs_period_us"]
        for files in quotas:
            words = " ".join(map(_text, files)).split()
            if len(words) == 2 and words[0].isdigit():
                cores.append(max(1, -(-int(words[0]) // int(words[1]))))
    return min(cores)


def control_groups(controller: str, root: Path = ROOT) -> Iterator[Path]:
    """Yield the folders of this process's control group and of those around it."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        # "0::/a/b" in version 2; in version 1, a line per controller such as "4:cpu,cpuacct:/a/b".
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        top = root / "sys/fs/cgroup"
        if controllers:
            top /= controller
        # A container may not see the folder, but only that at the top, which is its own.
        group = top / path.lstrip("/")
        yield from (folder for folder in (group, *group.parents) if folder.is_relative_to(top))


def _free_address_space() -> int:
    """Return the bytes below the limit of the address space (`ulimit -v`)."""
    try:
        import resource
    except ImportError:  # Windows
        return UNLIMITED
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    used = _number(Path("/proc/self/statm"))  # in pages
    if limit == resource.RLIM_INFINITY or used is None:
        return UNLIMITED
    return limit - used * mmap.PAGESIZE


def _number(path: Path, name: str | None = None) -> int | None:
    """Read a number in a system file, after `name` if given; None where there is none."""
    try:
        words = _text(path).replace(":", " ").split()
        return int(words[0] if name is None else words[words.index(name) + 1])
    except (ValueError, IndexError):
        return None


def _text(path: Path) -> str:
    """Read a system file; an empty text where there is none."""
    try:
        return path.read_text()
    except OSError:
        return ""
