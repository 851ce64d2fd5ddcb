"""Files that are either whole or absent: atomic writing, checksums, arrays on disk.

Everything is written in a temporary folder next to its goal and renamed when it is complete, so a
crash, a full disk or `kill -9` leaves the old state. Arrays are `.npy`; pickles are never written
and never read.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import math
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import xxhash
from numpy import ndarray

from impact_gnn import _native
from impact_gnn.checks import DiskFull, InputError, listing, one_line, quoted, regular

LOCK = "impact-gnn.lock"
"""In directories that one process at a time works in; what else we write there is ours."""

TEMPORARY = re.compile(r"(.+)\.impact-([0-9a-f]{16})\.tmp", re.DOTALL)
"""Names of temporary folders: of what, and a random token."""

MARK = ".impact-gnn-temporary-"
"""With the same token, the name of an empty file in a temporary folder: we made it."""

OLD = ".impact-gnn-replaced"
SCRATCH = ".scratch"
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
LONGEST_NAME = 120
NO_NAMES = frozenset({"", ".", ".."})
CHUNK = 1 << 24
"""Bytes read in one go when a file is summed up."""

SEAL = b"\nimpact-gnn seal "
"""Separates the values of an array in a file from their digest; readers of `.npy` ignore both."""

SUMS = "sums.json"
"""In a folder that is sealed: the checksums of all its other files."""

# sealed arrays that this process has written, or read and found right
_known: set[tuple[int, ...]] = set()


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """A temporary file that becomes `path` when the block ends well and vanishes otherwise."""
    with temporary_place(path, directory=False) as temporary:
        yield temporary
        if path.exists():
            # A replaced file keeps its permissions.
            shutil.copymode(path, temporary)
        flush(temporary)
        os.replace(temporary, path)
        flush(path.absolute().parent)


@contextlib.contextmanager
def atomic_directory(
    path: Path, own_files: Callable[[Path], Collection[str] | None]
) -> Iterator[Path]:
    """A temporary directory that takes the place of `path` when the block ends well.

    An existing `path` is replaced only if all that it holds is among `own_files(path)`: the paths
    inside it that we wrote, or None where everything is ours. It is moved aside, checked once more
    (a user may have saved files meanwhile) and removed; after an error `_discard` puts it back.
    """
    path = _named_path(path)
    with temporary_place(path, directory=True) as temporary:
        _refuse_foreign(path, path, own_files)
        yield temporary
        for file in (*temporary.rglob("*"), temporary):
            flush(file)
        if os.path.lexists(path):
            old = temporary.with_name(OLD)
            os.replace(path, old)
            _refuse_foreign(path, old, own_files)
            shutil.copymode(old, temporary)
        os.replace(temporary, path)
        flush(path.parent)


def _refuse_foreign(
    path: Path, place: Path, own_files: Callable[[Path], Collection[str] | None]
) -> None:
    """Refuses the content of `path`, which lies at `place`, if we did not write all of it."""
    if os.path.lexists(place) and (place.is_symlink() or not place.is_dir()):
        raise InputError(f"{path} is not a directory; choose another name or move it away.")
    own = own_files(place)
    if own is None:
        return
    # Folders on the way to our files are ours as well.
    folders = {parent.as_posix() for name in own for parent in PurePosixPath(name).parents}
    ours = folders | {*own}
    for file in sorted(place.rglob("*")):
        name = file.relative_to(place).as_posix()
        if name not in ours or file.is_symlink():  # which we never write
            raise InputError(
                f"{path} exists and contains other files ({quoted(name)}); "
                "move them away, or choose a new or an empty directory."
            )


def _named_path(path: Path) -> Path:
    """The absolute path of an entry with a name of its own: "a/.." is the folder around "a"."""
    path = path.absolute()
    if path.name in NO_NAMES:
        path = path.resolve()
    if path.name in NO_NAMES:
        raise InputError(f"{path} cannot be replaced; choose a new folder inside it.")
    return path


def require_plain_below(root: Path, path: Path, *, directory: bool = False) -> None:
    """Refuses a path below `root` that leads through a link, or to anything but a file."""
    for parent in reversed(path.relative_to(root).parents[:-1]):
        require_plain(root / parent, directory=True)
    require_plain(path, directory=directory)


def require_plain(path: Path, *, directory: bool = False) -> None:
    """Refuses a link, a pipe, a device, or a file instead of a directory; nothing is fine."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise InputError(
            f"{path} cannot be written ({error.strerror}); choose another place."
        ) from None
    if (stat.S_ISDIR if directory else stat.S_ISREG)(mode):
        return
    kinds = {
        stat.S_IFREG: "a file",
        stat.S_IFDIR: "a directory",
        stat.S_IFLNK: "a symbolic link",
        stat.S_IFIFO: "a pipe",
        stat.S_IFSOCK: "a socket",
    }
    wanted = "directory" if directory else "file"
    raise InputError(
        f"{path} is {kinds.get(stat.S_IFMT(mode), 'a device')} instead of a {wanted}; "
        f"choose another name or move it away."
    )


@contextlib.contextmanager
def temporary_place(path: Path, *, directory: bool, kind: str = "") -> Iterator[Path]:
    """A name for a new file, or a new directory, on the disk of `path`; gone after the block.

    It lies in a folder `NAME.impact-TOKEN.tmp` that is locked while the block runs and holds an
    empty file with the same token. Such a folder without a lock was left by a killed writer and is
    removed. A file may have several writers, the last of which wins; a directory has one.
    """
    path = _named_path(path)
    require_plain(path, directory=directory)
    with remove_empty_parents(path), explain_disk_full(parent := _writable_parent(path)):
        folder, handle = _new_folder(parent, path.name + kind)
        try:
            others = [one for one in leftovers(parent, path.name + kind) if one != folder]
            # A folder whose lock cannot be taken belongs to a process that is still writing.
            living = [one for one in others if not _remove_leftover(one)]
            if living and directory:
                raise InputError(
                    f"another process is writing {path}; wait for it or choose another place."
                )
            temporary = folder / path.name
            if directory:
                temporary.mkdir()
            yield temporary
        finally:
            _discard(folder)  # with what was replaced, or what was not completed
            os.close(handle)


def _new_folder(parent: Path, name: str) -> tuple[Path, int]:
    """A temporary folder with its mark, and its lock."""
    while True:
        token = secrets.token_hex(8)
        folder = parent / f"{name}.impact-{token}.tmp"
        folder.mkdir(mode=0o700)
        try:
            handle = os.open(folder, os.O_RDONLY)
            _flock(handle)
            (folder / f"{MARK}{token}").touch(exist_ok=False)
            return folder, handle
        except FileNotFoundError:  # swept by another process before it was locked
            continue


def leftovers(parent: Path, name: str | None = None) -> list[Path]:
    """Temporary folders in `parent`: those of `name`, or of all names and below it, too."""
    folders = parent.rglob("*.tmp") if name is None else parent.glob("*.tmp")
    return [one for one in folders if _is_temporary(one, name)]


def _is_temporary(folder: Path, name: str | None = None) -> bool:
    """Whether a folder has a temporary name, and is empty or has the mark of that name."""
    match = TEMPORARY.fullmatch(folder.name)
    if match is None or match[1].removesuffix(SCRATCH) in NO_NAMES:
        return False
    if name is not None and match[1] != name:
        return False
    if folder.is_symlink() or not folder.is_dir():
        return False
    return (folder / f"{MARK}{match[2]}").is_file() or not any(folder.iterdir())


def _discard(folder: Path) -> None:
    """Removes what we put into a temporary folder, the mark last; anything else stays.

    An old state whose successor is missing goes back to its name. If that name is taken by somebody
    else, it stays where it is.
    """
    match = TEMPORARY.fullmatch(folder.name)
    assert match is not None
    goal = folder.with_name(match[1])
    names = (match[1], match[1].removesuffix(SCRATCH), OLD, f"{MARK}{match[2]}")
    assert not NO_NAMES & {*names}
    with contextlib.suppress(OSError):  # it is gone, or holds what is not ours
        # Killed between two renames: the old state has no name, so it gets its own back.
        if os.path.lexists(folder / OLD) and not os.path.lexists(goal):
            os.replace(folder / OLD, goal)
        elif os.path.lexists(folder / OLD) and (folder / match[1]).exists():
            return
        # Only names that we gave; the mark is the last, so an interrupted removal can be repeated.
        for name in names:
            remove(folder / name)
        folder.rmdir()


def exclusive_scratch(path: Path) -> contextlib.AbstractContextManager[Path]:
    """Yield a scratch directory for what `path` will hold; refuse other writers of `path`."""
    return temporary_place(path, directory=True, kind=SCRATCH)


@contextlib.contextmanager
def remove_empty_parents(path: Path) -> Iterator[None]:
    """Remove directories above `path` that the block created and that are empty after it."""
    missing = [each for each in path.absolute().parents if not each.exists()]
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # something is in them
            for each in missing:
                each.rmdir()


def resolve(path: Path) -> Path:
    """`path`, or where its content lies after a replacement that was cut off between two renames.

    Nothing is changed: the next writer puts it back.
    """
    parent = path.absolute().parent
    if not path.name or os.path.lexists(path) or not parent.is_dir():
        return path
    old = [folder / OLD for folder in leftovers(parent, path.name)]
    return next(filter(Path.is_dir, old), path)


def sweep(directory: Path) -> None:
    """Removes what killed writers left in a directory of ours and below it."""
    for folder in leftovers(directory):
        _remove_leftover(folder)


def _remove_leftover(folder: Path) -> bool:
    """Removes what a killed writer left; False if the writer is alive.

    Without locks nobody can tell, and it stays.
    """
    with contextlib.suppress(OSError):  # its writer has just finished
        handle = os.open(folder, os.O_RDONLY)
        try:
            if free := _flock(handle):
                _discard(folder)
            return free is not False
        finally:
            os.close(handle)
    return True


def write_json(path: Path, content: Any, *, sealed: bool = False) -> None:
    """Writes `content` as readable JSON, atomically; a `sealed` one with its digest."""
    if sealed:
        # The name is part of the seal: a file cannot be exchanged for another sealed one.
        content = {"seal": digest(json.dumps(content), *_mark(path)), "content": content}
    with atomic_file(path) as temporary:
        text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
        temporary.write_text(text + "\n", encoding="utf-8")


def read_json(path: Path, *, sealed: bool = False) -> Any:
    """Return the content of a JSON file; a `sealed` one is compared with its digest."""
    try:
        content = json.loads(regular(path).read_text(encoding="utf-8"))
        return _unsealed(path, content) if sealed else content
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); check the path.") from None
    except (ValueError, RecursionError) as error:  # bad bytes, bad JSON, numbers of absurd length
        raise InputError(
            f"{path} is not valid JSON ({error}); restore it or write it again."
        ) from None


def _unsealed(path: Path, content: Any) -> Any:
    """What the sealed JSON at `path` holds, if it is what was written there."""
    if not isinstance(content, dict):
        raise InputError(_changed(path))
    inner = content.get("content")
    if content.get("seal") != digest(json.dumps(inner), *_mark(path)):
        raise InputError(_changed(path))
    return inner


def read_description(path: Path, form: str, *versions: int) -> dict[str, Any]:
    """Return the description of a folder at `path`; refuse another format or version."""
    content = read_json(path) if path.is_file() else None
    if isinstance(content, dict) and "seal" in content:
        content = _unsealed(path, content)
    if not isinstance(content, dict) or content.get("format") != form:
        raise InputError(f"{path.parent} contains no {form}; pass the directory it was saved in.")
    if content.get("version") not in versions:
        raise InputError(
            f"{path.parent} has format version {quoted(content.get('version'))}, "
            "but this release reads "
            f"{listing(versions)}; write it again with this release."
        )
    return content


def open_array(path: Path, *, in_memory: bool = False, sealed: bool = False) -> ndarray:
    """The array in a `.npy` file, memory-mapped unless `in_memory`; pickled objects are refused.

    One that was `sealed` is held against its digest the first time that this process opens it.
    """
    try:
        values = np.load(regular(path), mmap_mode=None if in_memory else "r", allow_pickle=False)
    except OSError as error:
        raise InputError(
            f"{path} cannot be read ({error.strerror or error}); check the path."
        ) from None
    except Exception as error:  # numpy's header parser raises many kinds on damaged files
        raise InputError(
            f"{path} is not a usable .npy array ({one_line(error)}); restore it or write it again."
        ) from None
    if not isinstance(values, ndarray):  # numpy also opens .npz archives
        raise InputError(
            f"{path} is not a usable .npy array (it is an archive); restore it or write it again."
        )
    # Once per process and state of the file: reading all bytes at every opening would be slow.
    if sealed and (state := _state(path)) not in _known:
        end = SEAL + digest(values, *_mark(path)).encode()
        with path.open("rb") as file:
            file.seek(-min(len(end), state[-1]), os.SEEK_END)
            if file.read() != end:
                raise InputError(_changed(path))
        _known.add(state)
    return values


def seal(path: Path) -> None:
    """Puts the digest of an array behind it in its file."""
    end = SEAL + digest(open_array(path), *_mark(path)).encode()
    with path.open("ab") as file:
        file.write(end)
    _known.add(_state(path))


def _mark(path: Path) -> list[str]:
    """Return the final name of a file, and its folder's if that is a digest.

    They are part of a seal, so that no sealed file can take the place of another.
    """
    parts = [part for part in path.parts if not TEMPORARY.fullmatch(part)]
    has_digest = len(parts) > 1 and re.fullmatch("[0-9a-f]{24}", parts[-2])
    return parts[-2:] if has_digest else parts[-1:]


def _changed(path: Path) -> str:
    return (
        f"{path} has changed since it was written; remove {path.parent} and run the command again."
    )


def _state(path: Path) -> tuple[int, ...]:
    """What changes when somebody writes to a file, and stays when it gets another name."""
    status = path.stat()
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size


def seal_folder(folder: Path) -> None:
    """Writes down the checksums of all files in a folder."""
    sums = {}
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            sums[file.relative_to(folder).as_posix()] = checksum(file)
    write_json(folder / SUMS, sums, sealed=True)


def sealed_files(folder: Path) -> list[str]:
    """The files of a sealed folder that are as they were sealed; an unsealed one has none."""
    try:
        sums = _sums(folder)
        same = [name for name in sums if checksum(inside(folder, name)) == sums[name]]
    except (InputError, OSError):
        return []
    return [SUMS, *same]


def check_folder(folder: Path) -> None:
    """Refuses a folder in which a file has changed or is missing since it was sealed.

    Other files do not matter, but links, pipes and devices are refused.
    """
    for entry in folder.rglob("*"):
        require_plain(entry, directory=entry.is_dir())
    for name, wanted in _sums(folder).items():
        file = inside(folder, name)
        if not regular(file).is_file() or checksum(file) != wanted:
            raise InputError(
                f"{file} is missing or has changed since it was saved; restore it or save again."
            )


def _sums(folder: Path) -> dict[str, str]:
    sums = read_json(folder / SUMS, sealed=True)
    if not isinstance(sums, dict):
        raise InputError(_changed(folder / SUMS))
    return sums


def inside(folder: Path, name: object, *, directory: bool = False) -> Path:
    """Return the path of an entry that a file names; refuse links and paths out of the folder."""
    parts = PurePosixPath(name).parts if isinstance(name, str) else ()
    # Names come from files, which somebody else may have written.
    if not parts or ".." in parts or parts[0] == "/" or "\0" in str(name):
        raise InputError(
            f"{folder} refers to a path outside its directory ({quoted(name)}); "
            "it cannot be trusted."
        )
    path = folder / str(name)
    require_plain_below(folder, path, directory=directory)
    return path


@contextlib.contextmanager
def atomic_array(
    path: Path, dtype: Any, shape: tuple[int, ...], *, sealed: bool = True
) -> Iterator[np.memmap]:
    """A `.npy` file to be filled in place; it appears under its name when the block ends well."""
    with atomic_file(path) as temporary:
        array = create_array(temporary, dtype, shape)
        yield array
        array.flush()
        _native.release(array)
        if sealed:
            seal(temporary)


def require_space(directory: Path, need: int) -> None:
    """Refuses to begin what will not fit on the disk of `directory`."""
    free = shutil.disk_usage(directory).free
    if need > free:
        raise InputError(
            f"{directory} needs {readable_size(need)} more disk space, "
            f"but {readable_size(free)} are free; "
            f"free some space or choose another disk."
        )


@contextlib.contextmanager
def explain_disk_full(directory: Path) -> Iterator[None]:
    """Turns a full disk into one sentence; what is complete stays."""
    try:
        yield
    except Exception as error:
        code = getattr(error, "errno", None)
        match = re.search(r"os error (\d+)", str(error))  # as libraries in Rust have it
        if match:
            code = int(match[1])
        if code not in FULL:
            raise
        raise DiskFull(
            f"the disk of {directory} is full; "
            "completed work is stored: free some space and run the command again."
        ) from error


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Keep other processes out of `directory` while the block runs; a killed process unlocks it."""
    handle = _open_lock(directory)
    try:
        if _flock(handle) is False:
            raise InputError(
                f"another process is working in {directory}; "
                "wait for it or choose another directory."
            )
        # A lock on a file that has lost its name protects nothing.
        if not _is_at(handle, directory / LOCK):  # removed by another process meanwhile
            with locked(directory):
                yield
            return
        yield
    finally:
        os.close(handle)


def _open_lock(directory: Path) -> int:
    try:
        with explain_disk_full(directory):
            directory.mkdir(parents=True, exist_ok=True)
            require_plain(directory / LOCK)
            return os.open(directory / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise InputError(
            f"{directory} is not writable ({error.strerror}); choose another place."
        ) from None


def _is_at(handle: int, path: Path) -> bool:
    """Whether an open file still has its name."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def is_locked(directory: Path) -> bool:
    """Whether another process works in a directory; nothing is created."""
    lock = directory / LOCK
    if not lock.is_file():
        return False
    with lock.open("r+b") as file:
        return _flock(file.fileno()) is False


def _flock(handle: int) -> bool | None:
    """Lock an open file until it is closed.

    False if another process has locked it, None where the system has no locks.
    """
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:  # Windows
        return None
    except OSError as error:  # some network file systems have none
        return False if error.errno in (errno.EWOULDBLOCK, errno.EACCES) else None
    return True


def create_array(path: Path, dtype: np.dtype | type, shape: tuple[int, ...]) -> np.memmap:
    """A new `.npy` file of the given type and shape, opened for writing in place.

    Its disk space is taken at once, so a full disk is an error here and not a signal in the middle
    of a kernel.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    sizes = tuple(map(int, shape))  # numpy's own integers would be written into the header as calls
    array = np.lib.format.open_memmap(path, "w+", np.dtype(dtype), sizes)
    if hasattr(os, "posix_fallocate"):
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    return array


def save_array(path: Path, values: ndarray, *, sealed: bool = False) -> None:
    """Write an array as `.npy`, block by block; it appears when it is complete."""
    with atomic_array(path, values.dtype, values.shape, sealed=sealed) as out:
        for rows in _native.block_slices(values):
            out[rows] = values[rows]
            _native.release(out, values)


def append_rows(path: Path, rows: ndarray, begin: int) -> None:
    """Write rows behind the first `begin` rows of a `.npy` file, and the new shape into its header.

    The first rows are not touched: whoever has mapped them goes on, and a killed process leaves
    them as they were.
    """
    array = open_array(path)
    shape = (begin + len(rows), *array.shape[1:])
    header = io.BytesIO()
    description = np.lib.format.header_data_from_array_1_0(array) | {"shape": shape}
    np.lib.format.write_array_header_1_0(header, description)
    # The new header must be exactly as long as the old one, or rows would have to move.
    offset = getattr(array, "offset", None)
    if len(header.getvalue()) != offset or rows.dtype != array.dtype:
        raise InputError(f"{path} was not written by this release; save the graph again.")
    row_size = rows.itemsize * math.prod(shape[1:])
    with path.open("r+b") as file:
        # Rows first, then the header that counts them: a kill between both leaves the old shape.
        file.seek(offset + begin * row_size)
        file.write(np.ascontiguousarray(rows).data)
        file.truncate()  # a killed process may have written more
        file.flush()
        os.fsync(file.fileno())
        file.seek(0)
        file.write(header.getvalue())
    flush(path)


def digest(*parts: Any) -> str:
    """Return a short text that is the same for equal arrays and other parts."""
    total = hashlib.sha256()
    for part in parts:
        if not isinstance(part, ndarray):
            total.update(f"{type(part).__name__} {part!r};".encode())
            continue
        total.update(f"{part.dtype.str}{part.shape}".encode())
        part = np.atleast_1d(part)
        if part.dtype.hasobject:
            total.update(repr(part.tolist()).encode())
            continue
        # an edge list [2, E] is long in its second axis
        if part.ndim > 1 and part.shape[0] < part.shape[-1]:
            pieces = [part[:, columns] for columns in _native.block_slices(part, 1)]
        else:
            pieces = [part[rows] for rows in _native.block_slices(part)]
        # Hashing lets go of the GIL, so pieces are summed up side by side and their sums in order.
        with ThreadPoolExecutor(_native.available()) as pool:
            for piece in pool.map(_piece_digest, pieces):
                total.update(piece)
    return total.hexdigest()[:24]


def _piece_digest(values: ndarray) -> bytes:
    summed = xxhash.xxh3_128_digest(np.ascontiguousarray(values).view(np.uint8).data)
    _native.release(values)
    return summed


def checksum(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    digest = hashlib.sha256()
    with regular(path).open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def rows_checksum(values: ndarray, begin: int = 0) -> str:
    """SHA-256 of the bytes of the rows of an array from `begin` on."""
    digest = hashlib.sha256()
    rows = values[begin:]
    for part in _native.blocks(rows):
        digest.update(np.ascontiguousarray(rows[part]).view(np.uint8).data)
    return digest.hexdigest()


def byte_size(text: str | int) -> int:
    """A number of bytes from words such as "2GB", "512 MB" or a plain number.

    Examples:
        >>> byte_size("2GB"), byte_size("1.5 MB"), byte_size(10)
        (2000000000, 1500000, 10)
    """
    if isinstance(text, int) and text > 0:
        return text
    words = str(text).strip().upper().removesuffix("B")
    units = {"K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
    factor = units.get(words[-1:], 1)
    if factor > 1:
        words = words[:-1]
    try:
        size = int(float(words) * factor)
    except (ValueError, OverflowError):
        size = 0
    if size <= 0:
        raise InputError(f"{text!r} is not a memory size; use for example '2GB' or '500MB'.")
    return size


def readable_size(size: float) -> str:
    """A number of bytes in words."""
    from rich.filesize import decimal

    return decimal(int(size))


def _writable_parent(path: Path) -> Path:
    parent = path.absolute().parent
    try:
        parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{parent} cannot be created ({error.strerror}); choose another directory."
        ) from None
    if not os.access(parent, os.W_OK):
        raise InputError(f"{parent} is not writable; choose another directory.")
    return parent


def flush(path: Path) -> None:
    """Has the disk keep the bytes of a file, or the names in a directory."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove(path: Path) -> None:
    """Removes a file or a directory of ours, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def safe_name(name: str) -> str:
    """A name that is safe and short enough for a file, and its own where it had to be changed."""
    safe = re.sub("[^A-Za-z0-9_-]", "_", name)
    if safe == name and len(name) <= LONGEST_NAME:
        return name
    return f"{safe[:LONGEST_NAME]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
