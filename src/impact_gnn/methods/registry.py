"""The table of method parts, open to parts from outside."""

from __future__ import annotations

import re

from impact_gnn import checks
from impact_gnn.checks import InputError
from impact_gnn.methods.part import Kind, Part

_parts: dict[str, Part] = {}


def register(part: Part) -> Part:
    """Add a part to the table, so that methods can name it; return it.

    Examples:
        >>> import numpy as np
        >>> from impact_gnn.methods import Kind, Method, Part, register, unregister
        >>> def newest_only(times, counts):
        ...     return np.tile(times == times.max(), (len(times), 1)).astype(float)
        >>> part = register(Part("newest", Kind.WEIGHTING, "only the newest neighbours count",
        ...                      edge_weights=newest_only))
        >>> Method.parse("newest+labels")
        Method(newest+labels)
        >>> unregister("newest")
    """
    if not re.fullmatch(r"[a-z][a-z0-9-]*", part.name):
        raise InputError(
            f"{checks.quoted(part.name)} is not a valid name of a part; "
            f"use lower-case letters, digits and '-'."
        )
    if part.name in _parts:
        raise InputError(f"a part {part.name!r} already exists; choose another name.")
    _parts[part.name] = part
    return part


def unregister(name: str) -> None:
    """Remove a part that was registered."""
    get(name)
    del _parts[name]


def get(name: str) -> Part:
    """Return the part of this name; an unknown name is answered with the choices."""
    return _parts[checks.choice("part", name, _parts)]


def names(kind: Kind | None = None) -> list[str]:
    """Return the names of all parts, or of one kind, in the order of method names."""
    order = list(Kind)
    rows = [part for part in _parts.values() if kind in (None, part.kind)]
    ordered = sorted(rows, key=lambda part: order.index(part.kind))
    return [part.name for part in ordered]
