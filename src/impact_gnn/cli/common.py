"""What all commands share: how errors end, the engine to use, machine-readable output, words for durations.

Here and in the commands the library is imported where it is used, so that help and version come at
once.
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

FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130
KEPT = "what was finished is kept, run the command again to continue."

Kind = Annotated[
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
    """The engine that the options ask for; says what was estimated and chosen."""
    choice = ig.engines.choose(graph, kind, memory=memory, scheduler=scheduler, scratch=scratch)
    watcher.say(choice.sentence)
    return choice.engine


def guarded(work: Callable[[], None]) -> None:
    """Runs a command; what a user can mend ends with one sentence and exit code 2, a cluster that is gone with 1."""
    from impact_gnn.checks import DiskFull, WorkerLost

    try:
        work()
    except (ig.InputError, DiskFull) as error:
        _end(str(error), BAD_INPUT)
    except WorkerLost as error:
        _end(str(error), FAILED)
    except (MemoryError, RuntimeError) as error:
        said = " ".join(str(error).split()) or "no more could be had"
        if isinstance(error, RuntimeError) and not re.search(
            "not enough memory|allocate memory|bad_alloc", said
        ):
            raise
        mend = "give --memory, or fewer nodes, features, classes or periods (--period)"
        _end(f"memory ran out: {said[:200]}; {mend}; {KEPT}", BAD_INPUT)
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        _end(f"{error.strerror or error}{where}; {KEPT}", BAD_INPUT)
    except KeyboardInterrupt:
        errors.print(f"stopped; {KEPT}")
        sys.exit(INTERRUPTED)


def command(function: Callable[P, None]) -> Callable[P, None]:
    """A command that ends as `guarded` says; where its JSON cannot be written it does not begin."""

    @wraps(function)
    def ended(*args: P.args, **options: P.kwargs) -> None:
        def work() -> None:
            if isinstance(path := options.get("json"), Path):
                require_file(path)
            function(*args, **options)

        guarded(work)

    return ended


def _end(sentence: str, code: int) -> None:
    errors.print(Text.assemble(("error:", "bold red"), f" {sentence}"))
    sys.exit(code)


def require_file(path: Path) -> None:
    """Refuses a place where no file can be written, before any work is done."""
    from impact_gnn import _files

    _files.require_plain(path)


def write_json(path: Path | None, content: Any) -> None:
    """Writes `content`, dataclasses included, for machines if a path was given."""
    if path is not None:
        from impact_gnn import _files
        from impact_gnn._codec import encode

        _files.write_json(path, encode(content))


def seconds(text: str) -> float:
    """A duration in seconds from words such as "10m", "90s", "2h" or a plain number of seconds.

    Examples:
        >>> seconds("10m"), seconds("90"), seconds("1.5h")
        (600.0, 90.0, 5400.0)
    """
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([smh]?)\s*", text)
    if match is None or float(match[1]) <= 0:
        raise ig.InputError(f"{text!r} is not a duration; write for example 90s, 10m or 2h.")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]
