"""Progress of long work: one signature for those who report it and those who display it.

Long work receives a `Progress` and calls it with the stage, units done, units in total (0 if
unknown) and a note. `Terminal` draws bars of it; a test or a notebook passes a
function of its own.
"""

from __future__ import annotations

import threading
import time as clock
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from impact_gnn._text import visible

if TYPE_CHECKING:
    from typing_extensions import Self

Progress: TypeAlias = Callable[[str, float, float, str], None]

EVERY = 20.0  # seconds between two lines about how far a stage is, where no bar can be drawn


class Watcher:
    """A `Progress` that takes lines too; this one passes progress to a function and drops lines."""

    def __init__(self, progress: Progress | None = None) -> None:
        self.progress = progress
        self._begun = clock.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds since the start; time limits include the reading of data."""
        return clock.monotonic() - self._begun

    def __call__(self, stage: str, done: float, total: float, note: str = "") -> None:
        if self.progress is not None:
            self.progress(stage, done, total, note)

    def say(self, line: str, *, detail: bool = False) -> None:
        """Print a line that stays; a `detail` only in verbose mode."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass


def watched(progress: bool | Progress) -> Watcher:
    """Return the watcher for an option `progress`: True (bars), False, or the user's function."""
    if isinstance(progress, Watcher):
        return progress
    return Terminal() if progress is True else Watcher(progress or None)


class Counter:
    """Counts units of one stage; threads may share it."""

    def __init__(self, progress: Progress, stage: str, total: float) -> None:
        self.progress = progress
        self.stage = stage
        self.total = total
        self.done = 0
        self._lock = threading.Lock()

    def advance(self, note: str = "") -> None:
        with self._lock:
            self.done += 1
            self.progress(self.stage, self.done, self.total, note)


class Terminal(Watcher):
    """Lines on standard error, and below them a bar for every stage under way; closed as a context.

    Where no bar can be drawn (a log file, a dumb terminal, a notebook) a line says now and then how
    far a stage is.
    """

    def __init__(self, console: Any = None, *, verbose: bool = False) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bars

        super().__init__()
        self.console = Console(stderr=True) if console is None else console
        self.verbose = verbose
        self.draws = self.console.is_terminal and not (
            self.console.is_dumb_terminal or self.console.is_jupyter
        )
        name, text = (
            TextColumn(f"{{task.{part}}}", markup=False) for part in ("description", "fields[text]")
        )
        self._bars = Bars(
            name, BarColumn(20), text, console=self.console, transient=True, disable=not self.draws
        )
        self._stages: dict[str, Any] = {}  # those under way, the outermost first

    def __call__(self, stage: str, done: float, total: float, note: str = "") -> None:
        now = clock.monotonic()
        if stage not in self._stages:
            self._bars.start()
            self._stages[stage] = self._bars.add_task(
                stage, total=None, text="", begun=now, printed=now
            )
        # what began within this stage is over, even if it failed
        while next(reversed(self._stages)) != stage:
            self._close()
        task = self._bars.tasks[-1]
        left = (
            f"{duration((now - task.fields['begun']) * (total - done) / done)} left"
            if done and total
            else ""
        )
        # A stage of unknown length has no share and no end.
        share = f"{done / total:.0%}" if total else ""
        text = visible(", ".join(filter(None, [share, left, note])))
        # The last unit closes the bar; nobody has to say so.
        over = bool(total) and done >= total
        tells = not self.draws and not over and now - task.fields["printed"] >= EVERY
        self._bars.update(
            task.id,
            completed=done,
            total=total or None,
            text=text,
            printed=now if tells else task.fields["printed"],
        )
        if tells:
            self.say(f"{stage}: {text}")
        if over:
            self._close()

    def say(self, line: str, *, detail: bool = False) -> None:
        if self.verbose or not detail:
            self.console.print(visible(line), markup=False, highlight=False, soft_wrap=True)

    def __exit__(self, *error: object) -> None:
        while self._stages:
            self._close()

    def _close(self) -> None:
        """Takes the innermost stage's bar away."""
        # Stages are nested, so the innermost is the newest.
        self._bars.remove_task(self._stages.popitem()[1])
        if self.draws and not self._stages:
            self._bars.stop()


def duration(seconds: float) -> str:
    """Roughly how long, in words.

    Examples:
        >>> duration(0.2), duration(75), duration(600)
        ('1 s', '75 s', '10 min')
    """
    return f"{max(seconds, 1):.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
