"""Numbers as people read them; what is missing or not a number becomes a dash."""

from __future__ import annotations

import math
from typing import Any

NONE = "–"
"""Stands where there is no number."""


def finite(value: Any) -> float | None:
    """`value` as a float, or None if it is none that can be shown.

    Example:
        >>> finite(1), finite(float("nan")), finite(None), finite("x")
        (1.0, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def number(value: Any, digits: int = 3) -> str:
    """With a fixed number of digits: 0.123.

    Example:
        >>> number(0.12345), number(None)
        ('0.123', '–')
    """
    known = finite(value)
    return NONE if known is None else f"{known:.{digits}f}".replace("-", "−")


def whole(value: Any) -> str:
    """A count: 12,345.

    Example:
        >>> whole(12345)
        '12,345'
    """
    known = finite(value)
    return NONE if known is None else f"{round(known):,}".replace("-", "−")


def percent(value: Any, digits: int = 1) -> str:
    """A share: 12.3%.

    Example:
        >>> percent(0.1234), percent(0.5, 0)
        ('12.3%', '50%')
    """
    known = finite(value)
    return NONE if known is None else f"{known:.{digits}%}"


def points(value: Any) -> str:
    """A difference of two shares in percentage points, with its sign: +1.2.

    Example:
        >>> points(0.0123), points(-0.0123), points(0)
        ('+1.2', '−1.2', '0.0')
    """
    known = finite(value)
    if known is None:
        return NONE
    rounded = round(100 * known, 1)
    return "0.0" if rounded == 0 else f"{rounded:+.1f}".replace("-", "−")


def duration(seconds: Any) -> str:
    """A time in the unit that suits it.

    Example:
        >>> duration(4.2), duration(130), duration(7500), duration(59.97), duration(3590)
        ('4.2 s', '2 min 10 s', '2 h 5 min', '60.0 s', '59 min 50 s')
    """
    known = finite(seconds)
    if known is None:
        return NONE
    if known < 60:
        return f"{known:.1f} s"
    if known < 3600:
        return f"{int(known) // 60} min {int(known) % 60} s"
    return f"{int(known) // 3600} h {int(known) % 3600 // 60} min"


def memory(size: Any) -> str:
    """Bytes in MB or GB.

    Example:
        >>> memory(734_003_200), memory(3_500_000_000)
        ('734 MB', '3.5 GB')
    """
    known = finite(size)
    if known is None:
        return NONE
    return f"{known / 1e6:.0f} MB" if known < 1e9 else f"{known / 1e9:.1f} GB"


def listed(items: list[str], most: int = 6) -> str:
    """Items as a phrase, the first few of many.

    Example:
        >>> listed(["a", "b", "c"]), listed(["a", "b", "c", "d"], 2), listed(["a"])
        ('a, b and c', 'a, b and 2 more', 'a')
    """
    if len(items) > most:
        return f"{', '.join(items[:most])} and {len(items) - most} more"
    return " and ".join([", ".join(items[:-1]), items[-1]]) if len(items) > 1 else "".join(items)


def counted(count: int, word: str) -> str:
    """A count with its noun.

    Example:
        >>> counted(1, "period"), counted(3, "period")
        ('1 period', '3 periods')
    """
    return f"{count:,} {word}{'' if count == 1 else 's'}"
