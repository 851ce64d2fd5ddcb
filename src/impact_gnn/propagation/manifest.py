"""The manifest of a run over files: what it was begun with, and what is complete.

It is replaced atomically and only names what is whole on disk. A run in a directory that was begun with something
else is refused; one with the same inputs goes on where the last one ended.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from impact_gnn import _files
from impact_gnn.checks import InputError, listing
from impact_gnn.propagation.paging import TEMPORARY

NAME = "manifest.json"
FORMAT = "impact-gnn hops"
VERSION = 1
LOCK = "lock"
INTERVAL = 1.0
"""Seconds of work that a crash may cost."""

OURS = (NAME, LOCK, "edges", "operators", "slices", "aligned")
"""Names that may be in a directory of ours; others are hops (`hop-1.npy`, ...)."""


class Manifest:
    """What `directory` was begun with (`inputs`), its slices (`columns`), and how far it is.

    `x` is the checksum of X once it is cut into slices, `done[s]` the last complete hop of slice s.
    """

    def __init__(self, directory: Path, content: dict[str, Any]) -> None:
        self.directory, self.content = directory, content
        self.unflushed: list[Path] = []
        self.written = time.monotonic()

    @classmethod
    def open(cls, directory: Path, inputs: dict[str, Any]) -> Manifest:
        """The manifest of a run with these inputs; a new one where there is none, a refusal where they differ."""
        path = directory / NAME
        if not path.exists():
            return cls(directory, {"format": FORMAT, "version": VERSION, "inputs": inputs})
        content = _files.read_json(path)
        if not isinstance(content, dict) or content.get("format") != FORMAT or content.get("version") != VERSION:
            raise InputError(f"{path} was not written by this release; choose another directory.")
        differing = _differences(content.get("inputs"), inputs)
        if differing:
            raise InputError(
                f"{directory} was begun with other inputs or options ({listing(differing, 3)}); choose another "
                f"directory, or delete it to begin again."
            )
        return cls(directory, content)

    @property
    def columns(self) -> tuple[int, ...] | None:
        """Borders of the slices, None before they are chosen."""
        found = self.content.get("columns")
        return None if found is None else tuple(found)

    @property
    def x(self) -> str | None:
        """The checksum of X, None before it is known."""
        return self.content.get("x")

    def done(self, number: int) -> int:
        """The last complete hop of a slice."""
        return self.content.get("done", {}).get(str(number), 0)

    @property
    def begun(self) -> bool:
        """Whether operations are prepared and slices chosen."""
        return self.columns is not None

    def begin(self, columns: tuple[int, ...]) -> None:
        """Operations are prepared for slices with these borders."""
        self.content["columns"] = list(columns)
        self._write()

    def cut(self, checksum: str) -> None:
        """X has been cut into slices."""
        self.content["x"] = checksum
        self._write()

    def complete(self, number: int, hop: int, file: Path | None = None) -> None:
        """A slice has come as far as `hop`; `file` has to be flushed before that is written down.

        That takes as long as the disk takes, so it is done about once a second.
        """
        self.content.setdefault("done", {})[str(number)] = hop
        if file is not None:
            self.unflushed.append(file)
        if time.monotonic() - self.written > INTERVAL:
            self.checkpoint()

    def checkpoint(self) -> None:
        """Writes down what is complete."""
        for file in self.unflushed:
            with file.open("rb") as handle:
                os.fsync(handle.fileno())
        self.unflushed.clear()
        self._write()

    def finish(self) -> None:
        """All hops are complete."""
        self.content["finished"] = True
        self._write()

    @property
    def finished(self) -> bool:
        """Whether all hops are complete."""
        return bool(self.content.get("finished"))

    def _write(self) -> None:
        _files.write_json(self.directory / NAME, self.content)
        self.written = time.monotonic()


@contextlib.contextmanager
def held(directory: Path) -> Iterator[None]:
    """Keeps other processes out of `directory`, refuses one with foreign files, removes what a crash left behind.

    The lock goes with the process, also if it is killed.
    """
    if directory.is_file():
        raise InputError(f"{directory} is a file; choose a directory.")
    foreign = [] if not directory.exists() else sorted(p.name for p in directory.iterdir() if not _is_ours(p.name))
    if foreign and not (directory / NAME).exists():
        raise InputError(f"{directory} holds other files ({listing(foreign, 3)}); choose a new or an empty directory.")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        handle = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise
        raise InputError(f"{directory} cannot be written to ({error.strerror}); choose another place.") from None
    try:
        _lock(handle, directory)
        for left in [*directory.glob(f"*{TEMPORARY}*"), *directory.glob(f"edges/*{TEMPORARY}*")]:
            shutil.rmtree(left) if left.is_dir() else left.unlink(missing_ok=True)
        for left in directory.glob(f"slices/*/*{TEMPORARY}*"):
            left.unlink(missing_ok=True)
        yield
    finally:
        os.close(handle)


def _lock(handle: int, directory: Path) -> None:
    try:
        import fcntl
    except ImportError:  # not on Windows
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            raise InputError(f"another process is working in {directory}; wait for it or choose another.") from None
        # Some network file systems have no locks; then nobody is kept out.


def _is_ours(name: str) -> bool:
    return name in OURS or TEMPORARY in name or (name.startswith("hop-") and name.endswith(".npy"))


def _differences(before: Any, now: Any, where: str = "") -> list[str]:
    """Where two nested structures differ, in words."""
    if isinstance(before, dict) and isinstance(now, dict):
        keys = [*before, *(key for key in now if key not in before)]
        return [d for key in keys for d in _differences(before.get(key), now.get(key), f"{where} {key}".strip())]
    if isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        pairs = enumerate(zip(before, now, strict=True))
        return [d for k, pair in pairs for d in _differences(*pair, f"{where} {k}".strip())]
    if before == now:
        return []
    if isinstance(before, str) and len(before) == 64:
        return [f"{where}: its checksum differs"]
    return [f"{where}: {before!r} then, {now!r} now"]
