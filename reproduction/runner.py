"""Many tasks, each written when it is done: a study that is interrupted goes on where it stopped.

A task's records go into a small JSON file named by a hash of its settings; a task whose file is
there is not run again. Processes of one thread each beat threads within a task: the matrices of one
generated graph are small.
"""

import hashlib
import json
import multiprocessing
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any

import torch

from impact_gnn.checks import InputError
from reproduction.results import Record, write_text

FORMAT = 3
"""Raised when results of earlier versions must not be taken up."""

Progress = Callable[[int, int, str], None]
"""Told tasks done, tasks in all, and what was done last."""


@dataclass(frozen=True)
class Task:
    """Work that can be repeated.

    `call()` gives its records, `settings` are all that they depend on.
    """

    title: str
    settings: Mapping[str, Any]
    call: Callable[[], list[Record]]

    def file(self, directory: Path) -> Path:
        digest = hashlib.sha256(
            json.dumps(self.stored_settings(), sort_keys=True).encode()
        ).hexdigest()[:12]
        return directory / f"{re.sub('[^a-zA-Z0-9.+-]+', '_', self.title)}-{digest}.json"

    def stored_settings(self) -> Any:
        """As JSON gives them back, which knows no tuples.

        Dataclasses as their fields, with their name.
        """

        def plain(value: Any) -> Any:
            known = is_dataclass(value) and not isinstance(value, type)
            return {type(value).__name__: asdict(value)} if known else str(value)

        return json.loads(json.dumps({"format": FORMAT, **self.settings}, default=plain))


def work_off(
    tasks: Sequence[Task], directory: Path, *, workers: int = 1, progress: Progress | None = None
) -> list[Record]:
    """The records of all tasks in order.

    Records in `directory` are read, new ones are stored there.

    With one worker everything stays in this process.
    """
    if workers < 1:
        raise InputError(f"workers={workers} must be at least 1.")
    done = {
        number: stored
        for number, task in enumerate(tasks)
        if (stored := _stored_records(task, directory)) is not None
    }
    todo = [number for number in range(len(tasks)) if number not in done]
    for number, records in _finished(
        [(number, tasks[number]) for number in todo], directory, workers
    ):
        done[number] = records
        if progress is not None:
            progress(len(done), len(tasks), tasks[number].title)
    return [record for number in range(len(tasks)) for record in done[number]]


def _finished(
    todo: Sequence[tuple[int, Task]], directory: Path, workers: int
) -> Iterator[tuple[int, list[Record]]]:
    if min(workers, len(todo)) <= 1:
        for number, task in todo:
            yield number, _run_and_keep(task, directory)
        return
    # Not forked: the threads of numba and torch would not survive it.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        min(workers, len(todo)), mp_context=context, initializer=end_with_parent
    ) as pool:
        running = {pool.submit(_run_and_keep, task, directory): number for number, task in todo}
        try:
            for future in as_completed(running):
                yield running[future], future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def end_with_parent() -> None:
    """A process of the pool would outlive a parent that was killed, and go on writing."""
    parent = multiprocessing.parent_process()
    assert parent is not None  # this runs in a child

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _run_and_keep(task: Task, directory: Path) -> list[Record]:
    records = task.call()
    content = {
        "settings": task.stored_settings(),
        "records": [asdict(record) for record in records],
    }
    write_text(task.file(directory), json.dumps(content, ensure_ascii=False))
    return records


def _stored_records(task: Task, directory: Path) -> list[Record] | None:
    path = task.file(directory)
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["settings"] == task.stored_settings():
            return [Record(**record) for record in content["records"]]
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{path} is damaged; remove it and run the command again.") from None
    raise InputError(f"{path} belongs to another study; choose a new directory.")


@contextmanager
def one_thread() -> Iterator[None]:
    """Results then do not depend on the number of cores, and processes do not fight for them."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
