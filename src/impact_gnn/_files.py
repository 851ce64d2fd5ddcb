"""Files that are either whole or absent: atomic writing, checksums, arrays on disk, memory sizes in words.

Everything is written under a temporary name beside its goal and renamed when it is complete, so a crash, a
full disk or `kill -9` leaves the old state. Arrays are `.npy`; pickles are never written and never read.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from impact_gnn.checks import InputError

CHUNK = 1 << 24
"""Bytes read in one go when a file is summed up."""


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """A temporary name beside `path`; it becomes `path` when the block ends well and vanishes otherwise."""
    parent = _writable_parent(path)
    handle, name = tempfile.mkstemp(prefix=f"{path.name}.tmp-", dir=parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o644)
        _flush(temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_directory(path: Path, may_replace: Callable[[Path], bool]) -> Iterator[Path]:
    """A temporary directory beside `path` that takes its place when the block ends well.

    An existing `path` is replaced only if it is empty or `may_replace(path)` agrees that it is ours.
    """
    if path.is_file():
        raise InputError(f"{path} is a file; choose a directory name that is free.")
    if path.is_dir() and any(path.iterdir()) and not may_replace(path):
        raise InputError(f"{path} exists and holds other files; choose a new or an empty directory.")
    parent = _writable_parent(path)
    temporary = Path(tempfile.mkdtemp(prefix=f"{path.name}.tmp-", dir=parent))
    try:
        yield temporary
        temporary.chmod(0o755)
        for file in temporary.rglob("*"):
            _flush(file)
        old = temporary.with_name(temporary.name + "-old")
        if path.exists():
            os.replace(path, old)
        os.replace(temporary, path)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_json(path: Path, content: Any, *, allow_nan: bool = True) -> None:
    """Writes `content` as readable JSON, atomically."""
    with atomic_file(path) as temporary:
        text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=allow_nan)
        temporary.write_text(text + "\n", encoding="utf-8")


def read_json(path: Path) -> Any:
    """The content of a JSON file, or an `InputError` that names it."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); check the path.") from None
    except (ValueError, RecursionError) as error:  # bad bytes, bad JSON, numbers of absurd length
        raise InputError(f"{path} is not valid JSON ({error}); restore it or write it again.") from None


def open_array(path: Path, *, in_memory: bool = False) -> np.ndarray:
    """The array in a `.npy` file, memory-mapped unless `in_memory`; pickled objects are refused."""
    try:
        values = np.load(path, mmap_mode=None if in_memory else "r", allow_pickle=False)
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror or error}); check the path.") from None
    except Exception as error:  # numpy's header parser raises many kinds on damaged files
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{path} is not a usable .npy array ({reason}); restore it or write it again.") from None
    if not isinstance(values, np.ndarray):  # numpy also opens .npz archives
        raise InputError(f"{path} is not a usable .npy array (it is an archive); restore it or write it again.")
    return values


def create_array(path: Path, dtype: np.dtype | type, shape: tuple[int, ...]) -> np.memmap:
    """A new `.npy` file of the given type and shape, opened for writing in place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return np.lib.format.open_memmap(path, mode="w+", dtype=np.dtype(dtype), shape=shape)


def save_array(path: Path, values: np.ndarray) -> None:
    """Writes an array as `.npy`, without pickling."""
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, np.ascontiguousarray(values), allow_pickle=False)


def checksum(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def digest(*parts: object) -> str:
    """SHA-256 over arrays (in blocks, so that a memory map is not loaded whole) and anything with a `repr`.

    Example:
        >>> digest(np.array([1, 2]), "a") == digest(np.array([1, 3]), "a"), digest(np.array(1)) == digest(np.array(2))
        (False, False)
    """
    total = hashlib.sha256()
    for part in parts:
        if not isinstance(part, np.ndarray):
            total.update(repr(part).encode() + b"\0")
            continue
        total.update(f"{part.dtype.str}{part.shape}".encode())
        flat = np.atleast_1d(part)
        rows = max(1, CHUNK // max(1, flat[:1].nbytes))
        for start in range(0, len(flat), rows):
            total.update(flat[start : start + rows].tobytes())
    return f"sha256:{total.hexdigest()}"


def byte_size(text: str | int) -> int:
    """A number of bytes from words such as "2GB", "512 MB" or a plain number.

    Example:
        >>> byte_size("2GB"), byte_size("1.5 MB"), byte_size(10)
        (2000000000, 1500000, 10)
    """
    if isinstance(text, int) and text > 0:
        return text
    words = str(text).strip().upper().removesuffix("B")
    units = {"K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
    factor = units.get(words[-1:], 1)
    try:
        size = int(float(words[:-1] if factor > 1 else words) * factor)
    except (ValueError, OverflowError):
        size = 0
    if size <= 0:
        raise InputError(f"{text!r} is not an amount of memory; write for example '2GB' or '500MB'.")
    return size


def readable_size(size: float) -> str:
    """A number of bytes in words.

    Example:
        >>> readable_size(2_500_000)
        '2.5 MB'
    """
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def _writable_parent(path: Path) -> Path:
    parent = path.absolute().parent
    try:
        parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{parent} cannot be created ({error.strerror}); choose another place.") from None
    if not os.access(parent, os.W_OK):
        raise InputError(f"{parent} cannot be written to; choose another place.")
    return parent


def _flush(path: Path) -> None:
    if path.is_file():
        with path.open("rb") as file:
            os.fsync(file.fileno())
