"""The three kinds of task of a run over files: cut X into slices, take a slice through all hops, join the slices.

Each reads and writes files named by the plan and keeps little in memory, so it can run anywhere the files are seen.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np

from impact_gnn.propagation import paging
from impact_gnn.propagation import threads as pool
from impact_gnn.propagation.paging import PAGE, TEMPORARY, Stored
from impact_gnn.propagation.passes import aligned_empty
from impact_gnn.propagation.plan import Plan


def row_ranges(size: int, step: int, most: int | None = None) -> list[tuple[int, int]]:
    """Ranges of rows for tasks: whole steps, and whole pages of any file, so that no two tasks write to one page.

    Example:
        >>> row_ranges(100_000, 8192)
        [(0, 32768), (32768, 65536), (65536, 98304), (98304, 100000)]
        >>> row_ranges(100_000, 8192, most=2)
        [(0, 57344), (57344, 100000)]
    """
    unit = max(step, PAGE)  # both are powers of two
    step = unit * max(4, 0 if most is None else -(-size // (unit * most)))
    return [(first, min(first + step, size)) for first in range(0, size, step)]


def cut_rows(plan: Plan, x: np.ndarray | Stored, first: int, last: int, durable: bool = False) -> list[bytes]:
    """Copies rows of X into the files of the slices; the checksums of the blocks are returned.

    With `durable` the task also waits for the disk, while others go on.
    """
    step = paging.block_rows(x)
    digests = []
    with ExitStack() as stack:
        file = stack.enter_context(paging.reading(x))
        out = [
            stack.enter_context(paging.find(plan.slice_file(0, number)).opened(write=True))
            for number in range(plan.num_slices)
        ]
        for begin in range(first, last, step):
            rows = file.read(begin, min(begin + step, last))
            digests.append(paging.digest(rows))
            for number, each in enumerate(out):
                each.write(begin, rows[:, plan.columns[number] : plan.columns[number + 1]])
        for each in out if durable else ():
            os.fsync(each.handle)
    return digests


def run_slice(
    plan: Plan,
    number: int,
    done: int,
    threads: int | None = None,
    tick: Callable[[float], None] = lambda units: None,
) -> Iterator[int]:
    """Takes slice `number` from hop `done` to the last; every hop is told as soon as it is on disk."""
    width = plan.slice_shape(0, number)[1]
    room = aligned_empty((max(plan.rows[done:-1], default=0), width), plan.dtype)
    for hop in range(done + 1, plan.num_hops + 1):
        x = room[: plan.rows[hop - 1]]
        _load(paging.find(plan.slice_file(hop - 1, number)), x, threads)
        target = plan.slice_file(hop, number)
        units = plan.work(hop, number)
        with _whole_or_absent(target) as temporary:
            out = paging.create(temporary, plan.dtype, plan.slice_shape(hop, number))
            plan.steps[plan.path[hop - 1]].apply(x, out, threads, lambda share: tick(share * units))  # noqa: B023
        yield hop


def whole_slice(plan: Plan, number: int, done: int, threads: int) -> int:
    """`run_slice` as one task; the number of the slice is returned."""
    for hop in run_slice(plan, number, done, threads):
        flush(plan.slice_file(hop, number))
    return number


def join_rows(plan: Plan, hop: int, target: Stored, first: int, last: int, durable: bool = False) -> None:
    """Puts rows of all slices of a hop side by side into the file `target`."""
    step = paging.block_rows(target)
    with ExitStack() as stack:
        out = stack.enter_context(target.opened(write=True))
        parts = [
            stack.enter_context(paging.find(plan.slice_file(hop, number)).opened()) for number in range(plan.num_slices)
        ]
        whole = np.empty((min(step, last - first), plan.columns[-1]), plan.dtype)
        for begin in range(first, last, step):
            end = min(begin + step, last)
            for number, part in enumerate(parts):
                whole[: end - begin, plan.columns[number] : plan.columns[number + 1]] = part.read(begin, end)
            out.write(begin, whole[: end - begin])
        if durable:
            os.fsync(out.handle)


def flush(path: Path) -> None:
    """Waits until a file is safely on disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


@contextmanager
def _whole_or_absent(path: Path) -> Iterator[Path]:
    """`_files.atomic_file` that does not wait for the disk: the manifest does, before it mentions the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f"{path.name}{TEMPORARY}", dir=path.parent)
    os.close(handle)
    try:
        yield Path(name)
        os.replace(name, path)
    finally:
        Path(name).unlink(missing_ok=True)


def _load(stored: Stored, out: np.ndarray, threads: int | None) -> None:
    """Reads a whole slice, in pieces shared among threads."""
    step = max(1, paging.BLOCK // max(1, stored.row_bytes))
    with stored.opened() as file:
        pieces = [(a, min(a + step, len(out))) for a in range(0, len(out), step)]
        pool.run(lambda a, b: file.read(a, b, out[a:b]), pieces, threads)
