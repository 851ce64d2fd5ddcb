"""Shared by all commands: exit codes, the choice of the engine, JSON output, durations.

Commands import the library inside functions, so that `--help` and `--version` answer at once.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec

import typer
from rich.console import Console
from rich.text import Text

import impact_gnn as ig
from impact_gnn._text import mask_passwords, visible

if TYPE_CHECKING:
    from impact_gnn._progress import Watcher


class SafeConsole(Console):
    """Prints names of files and classes as they are: no markup, no control characters."""

    def print(self, *parts: str | Text, **options: Any) -> None:
        for part in parts:
            text = part.copy() if isinstance(part, Text) else Text(part)
            text.plain = visible(mask_passwords(text.plain))
            super().print(text, **options)


console = SafeConsole(highlight=False, soft_wrap=True, markup=False)
errors = SafeConsole(stderr=True, highlight=False, soft_wrap=True, markup=False)

P = ParamSpec("P")

FAILED = 1
BAD_INPUT = 2
INTERRUPTED = 130
OUT_OF_MEMORY = "not enough memory|allocate memory|bad_alloc"  # in messages of torch
RESUME_HINT = "what was finished is kept, run the command again to continue."

EngineName = Annotated[
    str, typer.Option("--engine", help="auto, memory, disk or dask: where to propagate.")
]
Memory = Annotated[
    str | None, typer.Option(help="Memory to stay within, such as 4GB; by default what is free.")
]
Scheduler = Annotated[str | None, typer.Option(help="HOST:PORT of a running Dask scheduler.")]
Scratch = Annotated[
    Path | None, typer.Option(help="Directory for what disk and dask keep on files.")
]


def engine_option(
    watcher: Watcher,
    graph: ig.TemporalGraph,
    kind: str,
    memory: str | None,
    scheduler: str | None,
    scratch: Path | None,
) -> ig.engines.Engine:
    """Choose the engine for the options, and report the estimate behind the choice."""
    choice = ig.engines.choose(graph, kind, memory=memory, scheduler=scheduler, scratch=scratch)
    watcher.say(choice.sentence)
    return choice.engine


def guarded(work: Callable[[], None]) -> None:
    """Run a command: errors that users can fix exit with code 2, a lost cluster with 1."""
    from impact_gnn.checks import DiskFull, WorkerLost

    try:
        work()
    except (ig.InputError, DiskFull) as error:
        _end(str(error), BAD_INPUT)
    except WorkerLost as error:
        _end(str(error), FAILED)
    except (MemoryError, RuntimeError) as error:
        message = " ".join(str(error).split()) or "no more could be had"
        if isinstance(error, RuntimeError) and not re.search(OUT_OF_MEMORY, message):
            raise
        fix = "give --memory, or fewer nodes, features, classes or periods (--period)"
        _end(f"memory ran out: {message[:200]}; {fix}; {RESUME_HINT}", BAD_INPUT)
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        _end(f"{error.strerror or error}{where}; {RESUME_HINT}", BAD_INPUT)
    except KeyboardInterrupt:
        errors.print(f"stopped; {RESUME_HINT}")
        sys.exit(INTERRUPTED)


def command(function: Callable[P, None]) -> Callable[P, None]:
    """Wrap a command by `guarded`; a JSON path that cannot be written is refused first."""

    @wraps(function)
    def wrapper(*args: P.args, **options: P.kwargs) -> None:
        def work() -> None:
            path = options.get("json")
            if isinstance(path, Path):
                require_file(path)
            function(*args, **options)

        guarded(work)

    return wrapper


def _end(sentence: str, code: int) -> None:
    errors.print(Text.assemble(("error:", "bold red"), f" {sentence}"))
    sys.exit(code)


def require_file(path: Path) -> None:
    """Refuse a path where no file can be written, before any work is done."""
    from impact_gnn import _files

    _files.require_plain(path)


def write_json(path: Path | None, content: Any) -> None:
    """Write `content`, dataclasses included, as JSON if there is a path."""
    if path is not None:
        from impact_gnn import _files
        from impact_gnn._codec import encode

        _files.write_json(path, encode(content))


def seconds(text: str) -> float:
    """Parse a duration such as "10m", "90s", "2h" or a plain number of seconds.

    Examples:
        >>> seconds("10m"), seconds("90"), seconds("1.5h")
        (600.0, 90.0, 5400.0)
    """
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([smh]?)\s*", text)
    if match is None or float(match[1]) <= 0:
        raise ig.InputError(f"{text!r} is not a duration; write for example 90s, 10m or 2h.")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]
