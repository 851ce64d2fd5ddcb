"""Seeds of fuzz tests: a few fixed ones, or new ones for `FUZZ_MINUTES` minutes (`make fuzz`)."""

import os
import secrets
import time
from collections.abc import Iterator

MINUTES = float(os.environ.get("FUZZ_MINUTES", "0"))
TESTS = 21
"""About so many fuzz tests share the minutes."""


def seeds(count: int, first: int = 0) -> Iterator[int]:
    yield from range(first, first + count)
    end = time.monotonic() + 60 * MINUTES / TESTS
    while time.monotonic() < end:
        seed = secrets.randbits(40)
        print(f"seed {seed}")  # pytest shows it where the test fails
        yield seed
