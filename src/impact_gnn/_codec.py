"""Dataclasses as JSON and back, by their type hints alone.

An `Enum` is its value, a class with `parse` (such as `Method`) its text, a tuple a list; keys of a
`dict` become text. NaN and infinity have no place in JSON: what is not known is `None`.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from enum import Enum
from typing import Any, TypeVar

import numpy as np

from impact_gnn.checks import InputError, quoted

T = TypeVar("T")


def encode(value: Any) -> Any:
    """`value` in the types of JSON."""
    if isinstance(value, Enum):
        return value.value
    # Such a class reads its own text back, so it is stored as text.
    if hasattr(type(value), "parse"):
        return str(value)
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
        return {name: encode(getattr(value, name)) for name in names}
    if isinstance(value, dict):
        return {str(key): encode(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [encode(part) for part in value]
    return value.item() if isinstance(value, np.generic) else value


def decode(kind: type[T], data: Any, where: str = "it") -> T:
    """Return the value that `encode` received, by a hint such as `dict[int, float]`.

    `where` names the place in refusals.
    """
    return _decode(kind, data, where)


def _decode(kind: Any, data: Any, where: str) -> Any:
    origin = typing.get_origin(kind)
    inner = typing.get_args(kind)
    if kind is Any or kind is None:
        return data
    # The only unions in our files are of a type with None.
    if origin in (typing.Union, types.UnionType):
        if data is None:
            return None
        present = [one for one in inner if one is not type(None)]
        return _decode(present[0], data, where)
    if origin in (list, tuple):
        _expect(isinstance(data, list), "a list", data, where)
        # A tuple has a type for every entry, a list or tuple[T, ...] one for all.
        kinds = inner
        if origin is list or inner[-1] is Ellipsis:
            kinds = inner[:1] * len(data)
        _expect(len(kinds) == len(data), f"a list of {len(kinds)}", data, where)
        places = [f"{where}[{k}]" for k in range(len(data))]
        return origin(map(_decode, kinds, data, places))
    if origin is dict:
        _expect(isinstance(data, dict), "an object", data, where)
        parts = {}
        for name, part in data.items():
            # The keys of an object in JSON are text.
            key = int(name) if inner[0] is int else _decode(inner[0], name, f"a name in {where}")
            parts[key] = _decode(inner[1], part, f"{where}.{name}")
        return parts
    if hasattr(kind, "parse"):
        return kind.parse(data)
    if issubclass(kind, Enum):
        values = [one.value for one in kind]
        _expect(data in values, f"one of {values}", data, where)
        return kind(data)
    if dataclasses.is_dataclass(kind):
        make: Any = kind
        hints = _hints(make)
        is_complete = isinstance(data, dict) and hints.keys() == data.keys()
        _expect(is_complete, f"an object with {sorted(hints)}", data, where)
        fields = {name: _decode(hints[name], data[name], f"{where}.{name}") for name in data}
        return make(**fields)
    # JSON writes 1.0 as 1, and a bool is an int in Python but not in our files.
    fits = isinstance(data, int | float if kind is float else kind)
    is_stray_bool = isinstance(data, bool) and kind is not bool
    _expect(fits and not is_stray_bool, f"of type {kind.__name__}", data, where)
    return kind(data)


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    """Return the types of the fields of a dataclass."""
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def _expect(fits: bool, wanted: str, data: Any, where: str) -> None:
    if not fits:
        raise InputError(
            f"{where} is {quoted(data)} but should be {wanted}; "
            "restore the file or create it again."
        )
