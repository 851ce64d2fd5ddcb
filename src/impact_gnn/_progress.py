"""How far a long piece of work is: one signature for everybody who works and everybody who watches.

Work that takes long is given a `Progress` and calls it with the stage it is in, units done, units in all (0 where
nobody knows) and a note. `Terminal` draws bars of it; a test or a notebook passes a function of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeAlias

Progress: TypeAlias = Callable[[str, float, float, str], None]


class Watcher:
    """A `Progress` that takes lines too; this one hands progress to a function, if any, and drops the lines."""

    def __init__(self, progress: Progress | None = None) -> None:
        self.progress = progress

    def __call__(self, stage: str, done: float, total: float, note: str = "") -> None:
        if self.progress is not None:
            self.progress(stage, done, total, note)

    def say(self, line: str) -> None:
        """A line that stays; user data in it is not markup."""


def watched(progress: bool | Progress) -> Watcher:
    """What an option `progress=True` (bars on the terminal), `False` or a function of the user's stands for."""
    if isinstance(progress, Watcher):
        return progress
    return Terminal() if progress is True else Watcher(progress or None)


class Counter:
    """Counts units of one stage; threads may share it."""

    def __init__(self, progress: Progress, stage: str, total: float) -> None:
        self.progress, self.stage, self.total, self.done = progress, stage, total, 0.0
        self._lock = threading.Lock()

    def advance(self, units: float = 1, note: str = "") -> None:
        with self._lock:
            self.done += units
            self.progress(self.stage, self.done, self.total, note)


class Terminal(Watcher):
    """A bar per stage on standard error, and lines above the bars; used as a `Progress`, closed as a context."""

    def __init__(self, console: Any = None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bars

        self.console = Console(stderr=True) if console is None else console
        columns = TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
        shown = self.console.is_terminal or self.console.is_jupyter  # a log file gets lines only
        note = TextColumn("{task.fields[note]}", markup=False)
        self._bars = Bars(*columns, note, console=self.console, transient=True, disable=not shown)
        self._tasks: dict[str, Any] = {}

    def __call__(self, stage: str, done: float, total: float, note: str = "") -> None:
        if stage not in self._tasks:
            self._bars.start()
            self._tasks[stage] = self._bars.add_task(stage, total=total or None, note=note)
        self._bars.update(self._tasks[stage], completed=done, total=total or None, note=note)
        if total and done >= total:
            self._bars.remove_task(self._tasks.pop(stage))
            if not self._tasks:
                self._bars.stop()

    def say(self, line: str) -> None:
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *error: object) -> None:
        self._bars.stop()
