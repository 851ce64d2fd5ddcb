"""Files that may be damaged: whatever their readers raise becomes one sentence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from impact_gnn.checks import InputError

T = TypeVar("T")


def guarded(path: Path, read: Callable[[], T]) -> T:
    """What `read` gives; whatever a damaged file makes a reader raise becomes one sentence."""
    try:
        return read()
    except InputError:
        raise
    except MemoryError:
        raise InputError(f"{path} does not fit into memory, or its header is damaged; restore it.") from None
    except Exception as error:  # readers of zip, npy, csv and parquet raise dozens of kinds
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise InputError(f"{path} cannot be read ({reason}); restore it or write it again.") from None
