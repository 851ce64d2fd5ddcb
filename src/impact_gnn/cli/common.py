"""Shared by all commands: exit codes, option groups, JSON output.

Commands import the library inside functions, so that `--help` and `--version` answer at once.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from textwrap import wrap
from typing import Any, get_type_hints

from rich.console import Console
from rich.text import Text
from typer.core import TyperGroup

import impact_gnn as ig
from impact_gnn._text import mask_passwords, visible


class SafeConsole(Console):
    """Prints names of files and classes as they are: no markup, no control characters.

    Long lines are wrapped at words on a terminal, and not at all in a file or pipe.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(
            highlight=False,
            markup=False,
            **options,
        )

    def print(self, *parts: Any, **options: Any) -> None:
        options["soft_wrap"] = not self.is_terminal
        for part in parts:
            if isinstance(part, str | Text):  # not the control sequences of progress bars
                part = part.copy() if isinstance(part, Text) else Text(part)
                part.plain = visible(mask_passwords(part.plain))
                if self.is_terminal and not part.spans:
                    part.plain = "\n".join(map(self._wrapped, part.plain.split("\n")))
            super().print(part, **options)

    def _wrapped(self, line: str) -> str:
        """Break a long line into lines that are aligned with its last column."""
        last_column = re.sub(r"^(.*\s{2,}|\s*)", "", line)
        indent = min(len(line) - len(last_column), self.width // 2)
        lines = wrap(
            line,
            self.width,
            subsequent_indent=" " * indent,
            break_on_hyphens=False,
        )
        return "\n".join(lines)


console = SafeConsole()
errors = SafeConsole(stderr=True)

FAILED = 1
BAD_INPUT = 2
INTERRUPTED = 130
OUT_OF_MEMORY = "not enough memory|allocate memory|bad_alloc"  # in messages of torch
GLOBAL_OPTIONS = ("--quiet", "--verbose")
RESUME_HINT = "finished work is stored; run the command again to continue."


def guarded(work: Callable[[], None]) -> None:
    """Run a command: errors that users can fix exit with code 2, a lost cluster with 1."""
    from impact_gnn.checks import DiskFull, WorkerLost

    try:
        work()
    except (ig.InputError, DiskFull) as error:
        _end(str(error), BAD_INPUT)
    except WorkerLost as error:
        _end(str(error), FAILED)
    # Torch reports a lack of memory as a RuntimeError; others are bugs.
    except (MemoryError, RuntimeError) as error:
        message = " ".join(str(error).split()) or "no more is available"
        if isinstance(error, RuntimeError) and not re.search(OUT_OF_MEMORY, message):
            raise
        fix = "set --memory, or use fewer nodes, features, classes or periods (--period)"
        _end(f"memory ran out: {message[:200]}; {fix}; {RESUME_HINT}", BAD_INPUT)
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        _end(f"{error.strerror or error}{where}; {RESUME_HINT}", BAD_INPUT)
    except KeyboardInterrupt:
        errors.print(f"stopped; {RESUME_HINT}")
        sys.exit(INTERRUPTED)


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Wrap a command by `guarded`, and let its parameters that are option groups become options.

    A parameter whose type is a dataclass of `options` is replaced by the fields of that class. A
    JSON path that cannot be written is refused before any work.
    """
    # Typer reads signatures, so that a group must look like its fields.
    hints = get_type_hints(function, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    parameters: list[Parameter] = []
    for parameter in signature(function).parameters.values():
        if parameter.name in groups:
            parameters += _options_of(groups[parameter.name])
        else:
            parameters.append(_keyword(parameter.name, hints[parameter.name], parameter.default))

    @wraps(function)
    def wrapper(**options: Any) -> None:
        def work() -> None:
            if options.get("json") is not None:
                require_file(options["json"])
            for name, group in groups.items():
                values = {field.name: options.pop(field.name) for field in fields(group)}
                options[name] = group(**values)
            function(**options)

        guarded(work)

    wrapper.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {one.name: one.annotation for one in parameters}
    return wrapper


def _options_of(group: Any) -> list[Parameter]:
    """The fields of an option group as parameters in its section of the help."""
    hints = get_type_hints(group, include_extras=True)
    for field in fields(group):
        hints[field.name].__metadata__[0].rich_help_panel = group.title
    return [_keyword(field.name, hints[field.name], field.default) for field in fields(group)]


def _keyword(name: str, annotation: Any, default: Any) -> Parameter:
    return Parameter(
        name,
        Parameter.KEYWORD_ONLY,
        annotation=annotation,
        default=default,
    )


class CommandGroup(TyperGroup):
    """Accepts the global options after a command, too."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        # stable sort: the global options first, everything else in its order
        return super().parse_args(ctx, sorted(args, key=lambda a: a not in GLOBAL_OPTIONS))


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
