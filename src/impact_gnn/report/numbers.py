"""Numbers and names as people read them; an unknown number is a dash."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from impact_gnn.metrics import Metric
from impact_gnn.statistics import Estimate

NONE = "–"  # stands where there is no number


def number(value: float | None, digits: int = 3) -> str:
    """With a fixed number of digits: 0.123."""
    if value is None:
        return NONE
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")  # no minus before 0.00


def whole(value: float) -> str:
    """A count: 12,345."""
    return f"{round(value):,}".replace("-", "−")


def percent(value: float | None, digits: int = 1) -> str:
    """A share: 12.3%."""
    return NONE if value is None else f"{value:.{digits}%}"


def interval(estimate: Estimate, digits: int = 1) -> str:
    """The interval of a share: 91.3-100.0%."""
    return f"{100 * estimate.low:.{digits}f}-{estimate.high:.{digits}%}"


def points(value: float | None) -> str:
    """A difference of two shares in percentage points, with its sign."""
    if value is None:
        return NONE
    rounded = round(100 * value, 1)
    return "0.0" if rounded == 0 else f"{rounded:+.1f}".replace("-", "−")


def gain_interval(gain: Estimate, metric: Metric) -> str:
    """A gain in the unit of the metric, with its interval."""
    return f"{points(gain.value)} {metric.unit} (95% CI {points(gain.low)} to {points(gain.high)})"


def measured(value: float | None, metric: Metric) -> str:
    """A score of a metric: a share, or a loss."""
    return percent(value) if metric.share else number(value)


def duration(seconds: float) -> str:
    """A time in the unit that suits it."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{int(seconds) // 60} min {int(seconds) % 60} s"
    return f"{int(seconds) // 3600} h {int(seconds) % 3600 // 60} min"


def listed(items: Sequence[object], most: int = 6) -> str:
    """Items as a phrase, the first few of many."""
    words = [str(item) for item in items]
    if len(words) > most:
        return f"{', '.join(words[:most])} and {len(words) - most} more"
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"


def counted(count: int, word: str) -> str:
    """A count with its noun: 1 period, 3 periods, 2 classes."""
    if count == 1:
        return f"1 {word}"
    return f"{count:,} {word}{'es' if word.endswith('s') else 's'}"


def named(label: str) -> str:
    """The user's name of a class; a number becomes "class 7"."""
    return f"class {label}" if label.lstrip("-").isdigit() else label


def period_named(name: str) -> str:
    """The user's name of a period; a number that is not a year becomes "period 8"."""
    return f"period {name}" if name.lstrip("-").isdigit() and len(name) != 4 else name


FILTERS: dict[str, Any] = {
    function.__name__: function
    for function in (
        number,
        whole,
        percent,
        interval,
        points,
        gain_interval,
        measured,
        duration,
        listed,
        counted,
        named,
        period_named,
    )
}
"""For templates, by name."""
