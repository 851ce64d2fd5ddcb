"""How far a long piece of work is: a bar with an estimate, or a function of the caller's."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeAlias

Watcher: TypeAlias = bool | Callable[[str, float], None]
"""True for a bar on the terminal, or a function that is given what is being done and which share is done."""


class Progress:
    """Counts units of work and tells `watcher`; threads may share it.

    Example:
        >>> with Progress(lambda what, share: print(what, share), total=4) as progress:
        ...     progress.stage("sorting")
        ...     progress.advance(1)
        sorting 0.0
        sorting 0.25
    """

    def __init__(self, watcher: Watcher, total: float) -> None:
        self.watcher, self.total, self.done, self.what = watcher, max(total, 1e-9), 0.0, ""
        self.lock = threading.Lock()
        self.bar: Any = None

    def __enter__(self) -> Progress:
        if self.watcher is True:
            from rich.console import Console
            from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn()
            self.bar = Bar(*columns, console=Console(stderr=True))
            self.bar.start()
            self.task = self.bar.add_task("", total=self.total)
        return self

    def __exit__(self, *error: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def stage(self, what: str) -> None:
        """What is being done from now on."""
        self.what = what
        self.advance(0)

    def advance(self, units: float) -> None:
        """So much more is done."""
        with self.lock:
            self.done = min(self.total, self.done + units)
            if self.bar is not None:
                self.bar.update(self.task, completed=self.done, description=self.what)
            elif callable(self.watcher):
                self.watcher(self.what, self.done / self.total)
