"""A directory for tests that write many small files: in memory where the machine has one."""

import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def quick_directory():
    fast = Path("/dev/shm")
    directory = Path(tempfile.mkdtemp(dir=fast if fast.is_dir() else None))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
