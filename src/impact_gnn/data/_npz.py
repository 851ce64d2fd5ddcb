"""Arrays inside an `.npz` archive, mapped into memory where they lie in it.

An `.npz` is a zip file. Where an array was stored without compression its numbers lie in the archive as they would
in a `.npy` file, so they can be mapped. A large compressed one is unpacked once, piece by piece, into a `.npy` file
beside the archive.
"""

from __future__ import annotations

import shutil
import struct
import zipfile
from pathlib import Path

import numpy as np

from impact_gnn import _files
from impact_gnn._files import require_space as refuse_unless_room
from impact_gnn.checks import InputError, listing
from impact_gnn.data._reading import guarded

LOCAL_HEADER = 30
"""Bytes of a zip entry's header before its name."""

SMALL = 1 << 26
"""Compressed arrays up to that many bytes are simply read."""

CHUNK = 1 << 22


def names(path: Path) -> list[str]:
    """Names of the arrays in an archive."""

    def read() -> list[str]:
        with zipfile.ZipFile(path) as archive:
            return [name.removesuffix(".npy") for name in archive.namelist()]

    return guarded(path, read)


def mapped(path: Path, name: str, *, small: int = SMALL) -> np.ndarray:
    """The array `name` of an archive, mapped; compressed ones are read, or unpacked beside it where they are large.

    Args:
        path: The archive.
        name: The array.
        small: Compressed arrays of at most that many bytes are read into memory.
    """
    return guarded(path, lambda: _mapped(path, name, small))


def _mapped(path: Path, name: str, small: int) -> np.ndarray:
    with zipfile.ZipFile(path) as archive:
        if f"{name}.npy" not in archive.namelist():
            raise InputError(f"{path} has no array called {name}; it has {listing(names(path))}.")
        entry = archive.getinfo(f"{name}.npy")
        if entry.compress_type == zipfile.ZIP_STORED:
            return _in_place(path, entry)
        if entry.file_size <= small:
            with np.load(path, allow_pickle=False) as arrays:
                return arrays[name]
        goal = path.with_name(f"{path.stem}.{name}.{entry.CRC:08x}.npy")  # of these bytes and no others
        if not goal.exists():
            refuse_unless_room(path.parent, entry.file_size)
            with _files.atomic_file(goal) as temporary, archive.open(entry) as source, temporary.open("wb") as out:
                shutil.copyfileobj(source, out, CHUNK)
    return _files.open_array(goal)


def _in_place(path: Path, entry: zipfile.ZipInfo) -> np.ndarray:
    with path.open("rb") as file:
        file.seek(entry.header_offset)
        header = file.read(LOCAL_HEADER)
        name_length, extra_length = struct.unpack("<HH", header[26:30])
        file.seek(entry.header_offset + LOCAL_HEADER + name_length + extra_length)
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, columns_first, dtype = read(file)
        position = file.tell()
    if dtype.hasobject:
        raise InputError(f"{path} holds Python objects in {entry.filename}; they are never loaded.")
    if 0 in shape:
        return np.empty(shape, dtype)
    order = "F" if columns_first else "C"
    return np.memmap(path, dtype, "r", offset=position, shape=shape, order=order)  # type: ignore[call-overload]
