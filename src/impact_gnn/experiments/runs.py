"""Many runs, each written when it is done: a study that is interrupted goes on where it stopped.

A `Task` is one model on some graphs of one row. Its result is a small file named by its content; tasks whose file is
there are not run again. Tasks are worked off by processes with one thread each, which beats threads within a task:
the matrices of one graph are small.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numba
import torch

from impact_gnn import _files
from impact_gnn.checks import InputError
from impact_gnn.experiments import gcn, sgc
from impact_gnn.experiments.columns import COLUMNS
from impact_gnn.experiments.sample import draw
from impact_gnn.experiments.setting import PROTOCOLS, Options, Row

Progress = Callable[[int, int, str], None]
"""Called with tasks done, tasks in all, and what was done last."""

CHUNK = {"sgc": 8, "gcn": 4}
"""Graphs of one task: enough to be worth a batch, few enough to lose little when interrupted."""

FORMAT = 2
"""Raised when results of earlier versions must not be taken up."""

PREDICT = {"sgc": sgc.predict, "gcn": gcn.predict}


@dataclass(frozen=True)
class Task:
    """One model on the graphs first .. last−1 of a row."""

    protocol: str
    row: Row
    model: str
    columns: tuple[str, ...]
    first: int
    last: int
    options: Options

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that the result depends on."""
        return {"format": FORMAT, **asdict(self), "columns": list(self.columns)}

    @property
    def key(self) -> str:
        """Name of its file."""
        digest = hashlib.sha256(json.dumps(self.settings, sort_keys=True).encode()).hexdigest()[:12]
        return f"{self.protocol}-{self.row.name}-{self.model}-{self.first:04d}-{self.last:04d}-{digest}"

    @property
    def title(self) -> str:
        """For progress."""
        return f"{self.model.upper()}, {self.row.title}, {self.protocol}, graphs {self.first}-{self.last - 1}"


def tasks(
    protocols: Sequence[str], rows: Sequence[Row], models: Sequence[str], columns: Sequence[str], graphs: int,
    options: Options,
) -> list[Task]:  # fmt: skip
    """All tasks of a study, rows in turns: one that is stopped has about as many graphs of each."""
    return [
        Task(protocol, row, model, tuple(columns), first, min(first + CHUNK[model], graphs), options)
        for model in models
        for first in range(0, graphs, CHUNK[model])
        for protocol in protocols
        for row in rows
    ]


def work_off(
    todo: Sequence[Task], directory: Path | None, *, workers: int | None = None, progress: Progress | None = None
) -> dict[Task, dict[str, Any]]:
    """The results of all tasks, taken from `directory` where they are there and kept there when they are new.

    Args:
        todo: The tasks.
        directory: Where results are kept; None to keep nothing.
        workers: Processes; by default one per core, 1 to stay in this process.
        progress: Called after every task.
    """
    if workers is not None and workers < 1:
        raise InputError(f"workers={workers} must be at least 1.")
    if directory is None:
        with tempfile.TemporaryDirectory() as place:
            return work_off(todo, Path(place), workers=workers, progress=progress)
    found = {task: result for task in todo if (result := _kept(task, directory)) is not None}
    open_tasks = [task for task in todo if task not in found]
    workers = min(workers or os.cpu_count() or 1, max(len(open_tasks), 1))
    for task, result in _results(open_tasks, directory, workers):
        found[task] = result
        if progress is not None:
            progress(len(found), len(todo), task.title)
    return {task: found[task] for task in todo}


def run_task(task: Task) -> dict[str, Any]:
    """The accuracy of every column on every graph of a task, and the seconds of one core that it took."""
    protocol = PROTOCOLS[task.protocol]
    columns = [COLUMNS[name] for name in task.columns]
    with one_thread():
        start = time.process_time()  # with one thread the same as the clock's on an idle machine
        samples = [
            draw(protocol, task.row, task.model, seed, task.options.num_nodes) for seed in range(task.first, task.last)
        ]
        predicted = PREDICT[task.model](samples, columns, protocol, task.options)
        accuracy = {
            name: [sample.accuracy(labels) for sample, labels in zip(samples, found, strict=True)]
            for name, found in predicted.items()
        }
        return {"settings": task.settings, "accuracy": accuracy, "seconds": time.process_time() - start}


def _results(open_tasks: Sequence[Task], directory: Path, workers: int) -> Iterator[tuple[Task, dict[str, Any]]]:
    if workers == 1:
        for task in open_tasks:
            yield task, _run_and_keep(task, directory)
        return
    # Not forked: the threads of numba and torch would not survive it.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_end_with_parent) as pool:
        running = {pool.submit(_run_and_keep, task, directory): task for task in open_tasks}
        try:
            for future in as_completed(running):
                yield running[future], future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _end_with_parent() -> None:
    """A process of the pool would outlive a parent that was killed, and go on writing."""
    parent = multiprocessing.parent_process()
    assert parent is not None  # this runs in a child

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _run_and_keep(task: Task, directory: Path) -> dict[str, Any]:
    result = run_task(task)
    _files.write_json(directory / f"{task.key}.json", result)
    return result


def _kept(task: Task, directory: Path) -> dict[str, Any] | None:
    path = directory / f"{task.key}.json"
    if not path.is_file():
        return None
    result = _files.read_json(path)
    # JSON knows no tuples, so both sides are compared as it writes them.
    if result.get("settings") != json.loads(json.dumps(task.settings)):
        raise InputError(f"{path} belongs to another study; choose a new directory.")
    return result


@contextmanager
def one_thread() -> Iterator[None]:
    """Results then do not depend on the number of cores, and processes do not fight for them."""
    before = torch.get_num_threads(), numba.get_num_threads()
    torch.set_num_threads(1)
    numba.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        numba.set_num_threads(before[1])
