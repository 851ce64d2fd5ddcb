"""Texts that may be printed: without passwords and without control characters."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Template


def mask_passwords(text: str, *, is_address: bool = False) -> str:
    """A text in which no address of a database has its password; an address may hold spaces.

    Examples:
        >>> mask_passwords("postgresql://ann:secret@host/db?sslpassword=x is down")
        'postgresql://ann:***@host/db?sslpassword=*** is down'
    """
    inner = "." if is_address else r"\S"
    end = "&" if is_address else r"&\s"
    # a user may contain @: ann@corp:secret@host
    text = re.sub(rf"(?s)(\b[a-zA-Z][\w+.-]*:/{{1,2}}[^\s:/]*):{inner}*@", r"\1:***@", text)
    if is_address and "://" in text:
        return re.sub(rf"([?&][\w-]+=)[^{end}]+", r"\1***", text)  # any option may be a secret
    named = r"[\w-]*(?:pass|pwd|pw\b|auth|secret|token|key|cred|sig\b|sas\b|connect)[\w-]*"
    return re.sub(rf"(?i)([?&]{named}=)[^{end}]+", r"\1***", text)


def visible(text: str) -> str:
    """A text whose control characters are written out, so that a terminal does not obey them."""
    odd = "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
    return re.sub(odd, lambda match: f"\\u{ord(match[0]):04x}", text)


def plain_template(
    path: Path, finalize: Callable[[object], str] | None = None, **filters: Callable[..., str]
) -> Template:
    """The template of a text file that is no HTML, with filters by their names.

    `finalize` changes every value that it prints.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # most commands write none

    environment = Environment(  # noqa: S701 # nosec B701 - nothing to escape as HTML
        loader=FileSystemLoader(path.parent),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
        finalize=finalize,
    )
    environment.filters |= filters
    return environment.get_template(path.name)
