"""What all commands share: errors, progress, machine-readable output, words for durations."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from impact_gnn import _files
from impact_gnn.checks import InputError

console = Console(highlight=False, soft_wrap=True)
errors = Console(stderr=True, highlight=False, soft_wrap=True)

BAD_INPUT = 2
INTERRUPTED = 130


def guarded(work: Callable[[], None]) -> None:
    """Runs a command; what a user can mend becomes one sentence and exit code 2, without a traceback."""
    try:
        work()
    except InputError as error:
        errors.print(f"[bold red]error:[/] {_escaped(str(error))}")
        sys.exit(BAD_INPUT)
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        errors.print(
            f"[bold red]error:[/] {_escaped((error.strerror or str(error)) + where)}; what was finished is kept, "
            f"run the command again to continue."
        )
        sys.exit(BAD_INPUT)
    except KeyboardInterrupt:
        errors.print("stopped; what was finished is kept, run the command again to continue.")
        sys.exit(INTERRUPTED)


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[int, int, str], None]]:
    """A progress bar to be told (done, expected in all, what is being done)."""
    columns = (
        TextColumn(title),
        BarColumn(24),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[now]}"),
    )
    with Progress(*columns, console=errors, transient=True) as bar:
        task = bar.add_task(title, total=None, now="")

        def update(done: int, total: int, now: str = "") -> None:
            bar.update(task, completed=done, total=total, now=now)

        yield update


def write_json(path: Path | None, content: Any) -> None:
    """Writes `content` for machines if a path was given."""
    if path is not None:
        _files.write_json(path, content)


def seconds(text: str) -> float:
    """A duration in seconds from words such as "10m", "90s", "2h" or a plain number of seconds.

    Example:
        >>> seconds("10m"), seconds("90"), seconds("1.5h")
        (600.0, 90.0, 5400.0)
    """
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([smh]?)\s*", text)
    if match is None or float(match[1]) <= 0:
        raise InputError(f"{text!r} is not a duration; write for example 90s, 10m or 2h.")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]


def _escaped(text: str) -> str:
    return text.replace("[", r"\[")
