"""Arrays in `.npy` files, read and written by plain calls in pieces.

Pages of a memory map count as memory of the process as soon as they are touched. Here a piece of a file is
copied into a buffer of the caller's, so what a process takes is what it asked for.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from impact_gnn import _files
from impact_gnn.checks import InputError
from impact_gnn.propagation.streaming import in_order

PAGE = 4096
"""Headers fill one page, so that rows begin on a page and tasks of different machines never share one."""

BLOCK = 1 << 22
"""About how many bytes are read, hashed and written in one go."""

TEMPORARY = ".tmp-"
"""Marks names of files that are not complete, as in `_files.atomic_file`."""


@dataclass(frozen=True)
class Stored:
    """An array in a file: its rows lie one after the other from `position` on."""

    path: Path
    dtype: np.dtype
    shape: tuple[int, ...]
    position: int

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return math.prod(self.shape[1:]) * self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of the whole array."""
        return self.shape[0] * self.row_bytes

    @contextlib.contextmanager
    def opened(self, *, write: bool = False) -> Iterator[Open]:
        """The file, open for reading or also for writing."""
        try:
            handle = os.open(self.path, os.O_RDWR if write else os.O_RDONLY)
        except OSError as error:
            raise InputError(f"{self.path} cannot be opened ({error.strerror}); check the path.") from None
        try:
            yield Open(self, handle)
        finally:
            os.close(handle)

    def whole(self) -> np.ndarray:
        """All rows, in memory."""
        with self.opened() as file:
            return file.read(0, self.shape[0])


@dataclass(frozen=True)
class Open:
    """A `Stored` array whose file is open; threads may share it."""

    array: Stored
    handle: int

    def read(self, first: int, last: int, out: np.ndarray | None = None) -> np.ndarray:
        """Rows first .. last−1, into the beginning of `out` (contiguous, of the same type) if given."""
        array = self.array
        shape = (last - first, *array.shape[1:])
        out = np.empty(shape, array.dtype) if out is None else out.reshape(-1)[: math.prod(shape)].reshape(shape)
        room = memoryview(_bytes(out))
        position, done = array.position + first * array.row_bytes, 0
        while done < len(room):
            count = os.preadv(self.handle, [room[done:]], position + done)
            if count == 0:
                raise InputError(f"{array.path} ends before its last row; restore it or write it again.")
            done += count
        return out

    def write(self, first: int, rows: np.ndarray) -> None:
        """Writes rows from row `first` on."""
        rows = np.ascontiguousarray(rows, dtype=self.array.dtype)
        write_at(self.handle, rows, self.array.position + first * self.array.row_bytes)


@dataclass(frozen=True)
class InMemory:
    """An array in memory that is read like an open file."""

    array: np.ndarray

    def read(self, first: int, last: int, out: np.ndarray | None = None) -> np.ndarray:
        """Rows first .. last−1; a view, `out` is not needed."""
        return self.array[first:last]


def write_at(handle: int, data: np.ndarray, position: int) -> None:
    """Writes all bytes of a contiguous array at a position of a file."""
    room, done = memoryview(_bytes(data)), 0
    while done < len(room):
        done += os.pwrite(handle, room[done:], position + done)


def create(path: Path, dtype: Any, shape: tuple[int, ...]) -> Stored:
    """A new `.npy` file of zeros, to be filled by rows; a file of that name is replaced."""
    dtype = np.dtype(dtype)
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": tuple(map(int, shape))}
    text = repr(header).encode("latin1")
    length = PAGE - len(np.lib.format.magic(1, 0)) - 2
    path.parent.mkdir(parents=True, exist_ok=True)
    out = Stored(path, dtype, header["shape"], PAGE)  # type: ignore[arg-type]
    path.unlink(missing_ok=True)
    with path.open("xb") as file:
        file.write(np.lib.format.magic(1, 0) + length.to_bytes(2, "little") + text.ljust(length - 1) + b"\n")
        file.truncate(PAGE + out.nbytes)
    return out


def save(path: Path, values: np.ndarray) -> Stored:
    """Writes an array that is in memory."""
    out = create(path, values.dtype, values.shape)
    with out.opened(write=True) as file:
        file.write(0, values)
    return out


def find(path: Path) -> Stored:
    """The array in a `.npy` file; its size is held against its header."""
    mapped = _files.open_array(path)  # looks at the header only
    found = of(mapped)
    if found is None:  # an array without elements is not mapped
        return Stored(path, mapped.dtype, mapped.shape, 0)
    return found


def of(array: np.ndarray) -> Stored | None:
    """Where a memory-mapped array, or a view of one, lies in its file; None for arrays that are in memory."""
    owner: Any = array
    while owner is not None and getattr(owner, "_mmap", None) is None:
        owner = getattr(owner, "base", None)
    if owner is None or owner.filename is None or not array.flags.c_contiguous or not array.dtype.isnative:
        return None
    begin = owner.offset - owner.offset % mmap.ALLOCATIONGRANULARITY
    base = np.frombuffer(owner._mmap, np.uint8).__array_interface__["data"][0]
    return Stored(Path(owner.filename), array.dtype, array.shape, begin + array.__array_interface__["data"][0] - base)


@contextlib.contextmanager
def reading(array: np.ndarray | Stored) -> Iterator[Open | InMemory]:
    """`array` to be read in pieces, from its file where it has one."""
    stored = array if isinstance(array, Stored) else of(array)
    if stored is None:
        yield InMemory(array)  # type: ignore[arg-type]
        return
    with stored.opened() as file:
        yield file


def block_rows(array: np.ndarray | Stored) -> int:
    """Rows of about `BLOCK` bytes: a power of two that depends on the length of a row alone."""
    row = math.prod(array.shape[1:]) * array.dtype.itemsize
    return 1 << max(0, (BLOCK // max(row, 1)).bit_length() - 1) if row < BLOCK else 1


def digest(data: np.ndarray) -> bytes:
    """SHA-256 of an array's bytes."""
    return hashlib.sha256(_bytes(np.ascontiguousarray(data))).digest()


def combined(digests: Iterator[bytes] | list[bytes], *what: object) -> str:
    """One checksum from those of the pieces and from what they are pieces of (types, shapes, options)."""
    total = hashlib.sha256(repr(what).encode())
    for each in digests:
        total.update(each)
    return total.hexdigest()


def checksum(array: np.ndarray | Stored) -> str:
    """The checksum of an array, read in blocks of rows; the same for one in memory and in a file."""
    step, size = block_rows(array), array.shape[0]
    with reading(array) as file:
        pieces = ((a, min(a + step, size)) for a in range(0, size, step))
        digests = list(in_order(lambda a, b: digest(file.read(a, b)), pieces))
    return joint_checksum(digests, array)


def _bytes(values: np.ndarray) -> Any:
    """The bytes of a contiguous array, without a copy."""
    return values.reshape(-1).view(np.uint8)


def joint_checksum(digests: list[bytes], array: np.ndarray | Stored) -> str:
    """The checksum of an array from those of its blocks of `block_rows`."""
    return combined(digests, array.dtype.str, tuple(array.shape))
