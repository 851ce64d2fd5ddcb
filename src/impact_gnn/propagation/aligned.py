"""Alignment of hops that are files: two passes over blocks of rows with the sums that alignment uses in memory.

The first pass adds up moments per group (rows of a period, or communities), the second moves the rows by them. Where
the moments of all columns would not fit into memory, columns are taken a slice at a time; JJnorm's sums add up over
slices too.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from impact_gnn import _files, checks
from impact_gnn._array import periods
from impact_gnn.alignment import (
    Communities,
    JJSums,
    Moments,
    apply_center,
    apply_jjnorm,
    apply_standardize,
    center,
    jjnorm,
    standardize,
)
from impact_gnn.checks import InputError
from impact_gnn.propagation import job, paging
from impact_gnn.propagation.cluster import Cluster, Dask
from impact_gnn.propagation.disk import Disk
from impact_gnn.propagation.manifest import held
from impact_gnn.propagation.memory import Memory
from impact_gnn.propagation.paging import PAGE, Stored
from impact_gnn.propagation.room import nothing_lost, refuse_unless_room

METHODS = ("center", "standardize", "jjnorm")
TASKS_PER_THREAD = 4
MOMENT_BYTES = 64
"""Memory that the moments of one group and column take at most, with all that is made on the way."""

Mapper: TypeAlias = Callable[[Callable[..., Any], list[tuple[Any, ...]]], list[Any]]

_kernels = threading.Lock()
"""The grouped kernels use all cores themselves and must not be entered by two threads of a worker at once."""


def aligned(
    engine: Memory | Disk | Dask,
    message: Any,
    method: str,
    time: Any,
    *,
    label: Any = None,
    target: Any = None,
    name: str | None = None,
) -> np.ndarray:
    """`message` aligned by `method`, in memory or as a file `aligned/<name>.npy` in the engine's directory.

    Args:
        engine: `Memory` calls the functions of `alignment`; `Disk` and `Dask` make the same sums in blocks.
        message: A hop [N, f]: an array, a memory map as `hops` returns it, or the path of a `.npy` file.
        method: "center", "standardize" or "jjnorm".
        time: Integer time [N].
        label: For jjnorm: labels [N], −1 unknown; those of targets are not looked at.
        target: For jjnorm: mask of the target nodes [N].
        name: Of the file; by default the name of the message's file and the method.

    Example:
        >>> aligned(Memory(), np.array([[0.0], [2.0], [10.0], [12.0]]), "center", [0, 0, 1, 1])
        array([[5.],
               [7.],
               [5.],
               [7.]])
    """
    checks.choice("method", method, METHODS)
    if method == "jjnorm" and (label is None or target is None):
        raise InputError("jjnorm needs the labels and the mask of the target nodes; pass label=... and target=....")
    message = job.features(message)
    if isinstance(engine, Memory):
        if method == "jjnorm":
            return jjnorm(message, label, time, target=target)
        return {"center": center, "standardize": standardize}[method](message, time)
    groups = _groups(method, time, label, target)
    if len(groups.group) != len(message):
        raise InputError(f"message has {len(message)} rows for {len(groups.group)} nodes; give one row per node.")
    stored = paging.of(message)
    name = f"{'message' if stored is None else stored.path.stem}-{method}" if name is None else name
    with _working(engine) as (directory, mapper, tasks):
        refuse_unless_room(directory, message.nbytes)
        goal = directory / "aligned" / f"{name}.npy"
        goal.parent.mkdir(exist_ok=True)
        with contextlib.ExitStack() as stack:
            if stored is None:
                place = stack.enter_context(_files.atomic_file(goal.with_name(f"{name}-message.npy")))
                stored = paging.save(place, message)
            place = stack.enter_context(_files.atomic_file(goal.with_name(f"{name}-groups.npy")))
            rows = Rows(stored, paging.save(place, groups.group), groups, method)
            temporary = stack.enter_context(_files.atomic_file(goal))
            out = paging.create(temporary, message.dtype, message.shape)
            _two_passes(rows, out, _files.byte_size(engine.memory), mapper, tasks)
        for extra in ("message", "groups"):
            goal.with_name(f"{name}-{extra}.npy").unlink(missing_ok=True)
    return _files.open_array(goal)


@dataclass(frozen=True, eq=False)
class Groups:
    """The group of every row, −1 for none; for JJnorm the last one holds the targets."""

    group: np.ndarray
    count: int
    num_labels: int


@dataclass(frozen=True, eq=False)
class Rows:
    """A message in a file, with the groups of its rows."""

    message: Stored
    group: Stored
    groups: Groups
    method: str

    def blocks(self, first: int, last: int) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Blocks of rows with their groups; float16 is widened."""
        step = paging.block_rows(self.message)
        with self.message.opened() as file, self.group.opened() as groups:
            for begin in range(first, last, step):
                end = min(begin + step, last)
                rows = file.read(begin, end)
                yield begin, rows.astype(np.float32) if rows.dtype == np.float16 else rows, groups.read(begin, end)


def row_moments(rows: Rows, columns: tuple[int, int], first: int, last: int) -> Moments:
    """The first pass over a range of rows."""
    size = columns[1] - columns[0]
    total = Moments(np.zeros(rows.groups.count), *np.zeros((2, rows.groups.count, size)))
    for _, block, group in rows.blocks(first, last):
        with _kernels:
            total = total.update(np.ascontiguousarray(block[:, columns[0] : columns[1]]), group)
    return total


def move_rows(
    rows: Rows, out: Stored, columns: tuple[int, int], moments: Moments, scale: np.ndarray | None, first: int, last: int
) -> None:
    """The second pass over a range of rows, in a range of columns."""
    with out.opened(write=True) as file:
        for begin, block, group in rows.blocks(first, last):
            part = np.ascontiguousarray(block[:, columns[0] : columns[1]])
            with _kernels:
                moved = _moved(rows, part, group, moments, scale)
            if part.shape[1] < block.shape[1]:
                whole = file.read(begin, begin + len(block))
                whole[:, columns[0] : columns[1]] = moved
                moved = whole
            file.write(begin, moved)


def _moved(rows: Rows, block: np.ndarray, group: np.ndarray, moments: Moments, scale: np.ndarray | None) -> np.ndarray:
    if rows.method == "center":
        return apply_center(block, group, moments)
    if rows.method == "standardize":
        return apply_standardize(block, group, moments)
    assert scale is not None
    labelled = np.where(group == rows.groups.count - 1, np.int32(-1), group)
    communities = Communities(np.arange(len(scale)), rows.groups.num_labels, group, labelled)
    return apply_jjnorm(block, communities, moments, scale)


def _two_passes(rows: Rows, out: Stored, memory: int, mapper: Mapper, tasks: int) -> None:
    size, width = rows.message.shape
    step = max(1, min(width, memory // (MOMENT_BYTES * rows.groups.count)))
    pieces = [(a, min(a + step, width)) for a in range(0, width, step)]
    # Whole pages of rows, so that no two tasks write to one.
    share = -(-size // tasks // PAGE) * PAGE or PAGE
    ranges = [(a, min(a + share, size)) for a in range(0, size, share)]

    def moments_of(columns: tuple[int, int]) -> Moments:
        first, *rest = mapper(row_moments, [(rows, columns, *each) for each in ranges])
        for each in rest:
            first = first.merge(each)
        return first

    sums: JJSums | None = None
    last: dict[tuple[int, int], Moments] = {}
    for columns in pieces if rows.method == "jjnorm" else ():
        last = {columns: moments_of(columns)}
        own = JJSums.of(last[columns], rows.groups.num_labels)
        sums = own if sums is None else sums.merge(own)
    scale = None if sums is None else sums.compute()
    for columns in pieces:  # moments of several pieces do not fit into memory together: they are made again
        moments = last[columns] if columns in last and len(pieces) == 1 else moments_of(columns)
        mapper(move_rows, [(rows, out, columns, moments, scale, *each) for each in ranges])


def _groups(method: str, time: Any, label: Any, target: Any) -> Groups:
    if method == "jjnorm":
        communities = Communities.of(label, time, target)
        return Groups(communities.group, communities.num_groups, communities.num_labels)
    times, period = periods(checks.node_times("time", time))
    return Groups(period.astype(np.int32), len(times), 0)


@contextlib.contextmanager
def _working(engine: Disk | Dask) -> Iterator[tuple[Path, Mapper, int]]:
    """The engine's directory, its way to do tasks, and into how many to divide the work."""
    if engine.directory is None:
        raise InputError("aligned messages are files; give the engine a directory for them.")
    directory = Path(engine.directory).absolute()
    with held(directory), nothing_lost(directory):
        if isinstance(engine, Disk):
            yield directory, lambda function, tasks: [function(*task) for task in tasks], 1
            return
        with engine._connected() as client:
            threads = sum(client.nthreads().values())
            yield directory, Cluster(client, engine.retries).map, TASKS_PER_THREAD * max(1, threads)
