"""Results with which an interrupted run continues: a file for each, and `inputs.json`.

Every file is written under a temporary name and renamed, so a kill at any moment leaves finished
pieces and leftovers, which are swept when the store is opened the next time.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from impact_gnn import _files
from impact_gnn._codec import decode, encode
from impact_gnn._version import __version__
from impact_gnn.checks import InputError, quoted

T = TypeVar("T")
INPUTS = "inputs.json"


@dataclass(frozen=True, eq=False)
class Store:
    """An open store; nobody else can open it before it is closed or its process ends."""

    directory: Path

    @classmethod
    @contextlib.contextmanager
    def open(
        cls, directory: Path, inputs: Mapping[str, Any], *, within: Path | None = None
    ) -> Iterator[Store]:
        """Open the store in a directory that is new, empty, or was begun with the same inputs.

        `inputs` is all that the results depend on, by name; `within` is a directory around the
        store that may hold nothing else before it is begun.
        """
        outer = within or directory
        file = directory / INPUTS
        now = encode({"impact_gnn": __version__, **inputs})
        # Before anything is created: a refused directory stays as it was.
        begins = not file.exists()
        if begins:
            _refuse_others(outer, directory)
        _files.require_plain(directory, directory=True)
        with _files.remove_empty_parents(directory / INPUTS), _files.locked(directory):
            if file.exists():
                # Results of other inputs must not be mixed with those of this run.
                _refuse_changes(outer, _files.read_json(file), now)
            _files.sweep(directory)
            if not file.exists():
                _files.write_json(file, now)
            try:
                yield cls(directory)
            except InputError:
                # refused before anything was done
                if begins and {*os.listdir(directory)} == {INPUTS, _files.LOCK}:
                    file.unlink()
                    (directory / _files.LOCK).unlink()
                raise

    def once(
        self,
        name: str,
        kind: type[T],
        make: Callable[[], T],
        *,
        valid: Callable[[T], bool] | None = None,
    ) -> T:
        """Return a stored result if it is still `valid`; otherwise compute and store it."""
        stored = self.get(name, kind)
        if stored is None or (valid is not None and not valid(stored)):
            self.put(name, make())
            # Read back, so that a continued run has exactly the values of an uninterrupted one.
            return self.once(name, kind, make)
        return stored

    def get(self, name: str, kind: type[T]) -> T | None:
        file = self.directory / f"{name}.json"
        if not file.exists():
            return None
        return decode(kind, _files.read_json(file, sealed=True), str(file))

    def put(self, name: str, value: Any) -> None:
        _files.write_json(self._writable(f"{name}.json"), encode(value), sealed=True)

    def forget(self, name: str) -> None:
        (self.directory / f"{name}.json").unlink(missing_ok=True)

    def array(self, name: str) -> np.ndarray | None:
        file = self.directory / f"{name}.npy"
        return _files.open_array(file, in_memory=True, sealed=True) if file.exists() else None

    def put_array(self, name: str, values: np.ndarray) -> None:
        _files.save_array(self._writable(f"{name}.npy"), values, sealed=True)

    def _writable(self, name: str) -> Path:
        """The path of an entry; refuses one behind a link."""
        path = self.directory / name
        _files.require_plain_below(self.directory, path)
        return path


def _refuse_others(outer: Path, directory: Path) -> None:
    """A run that was killed before it wrote its inputs leaves a lock and temporary files only."""
    if outer.exists() and not outer.is_dir():
        raise InputError(f"{outer} is a file; choose a directory for the results.")
    # What a run leaves that was killed before its inputs were written.
    ours = {_files.LOCK} if outer == directory else {directory.name}
    ours |= {folder.name for folder in _files.leftovers(outer, INPUTS)}
    if outer.exists() and {*os.listdir(outer)} - ours:
        raise InputError(
            f"{outer} exists and contains other files; choose a new or an empty directory."
        )
    if outer != directory:
        _refuse_others(directory, directory)


def _refuse_changes(outer: Path, before: Any, now: dict[str, Any]) -> None:
    if not isinstance(before, dict):
        before = {}
    changes = []
    for name in {**before, **now}:
        old = before.get(name)
        new = now.get(name)
        if old == new:
            continue
        # A digest says nothing to a reader.
        change = f"{name} was {quoted(old)} and is {quoted(new)} now"
        if re.fullmatch("[0-9a-f]{24}", str(new)):
            change = f"{name} has changed"
        changes.append(change)
    if changes:
        raise InputError(
            f"{outer} was started with other inputs ({'; '.join(changes)}); choose another place."
        )
