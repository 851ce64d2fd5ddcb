"""Room on the disk: asked for before a run begins, and missed in one sentence if it runs out."""

from __future__ import annotations

import contextlib
import errno
import shutil
from collections.abc import Iterator
from pathlib import Path

from impact_gnn._files import readable_size
from impact_gnn.checks import InputError


def refuse_unless_room(directory: Path, need: int) -> None:
    """Refuses to begin what will not fit on the disk."""
    free = shutil.disk_usage(directory).free
    if need > free:
        raise InputError(
            f"{directory} needs {readable_size(need)} more of disk, but {readable_size(free)} are free; "
            f"make room or choose another disk."
        )


@contextlib.contextmanager
def nothing_lost(directory: Path) -> Iterator[None]:
    """Turns a full disk into one sentence; what is complete stays."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise InputError(
            f"the disk of {directory} is full; what is complete is kept: make room and run the same again to go on."
        ) from error
