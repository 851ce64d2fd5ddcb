"""`Finding`: what was measured about one assumption, how sure it is, and what that means in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

HOLDS, DOUBTFUL, FAILS, CANNOT_TELL = "holds", "doubtful", "fails", "cannot tell"
VERDICTS = (HOLDS, DOUBTFUL, FAILS, CANNOT_TELL)


@dataclass(frozen=True)
class Finding:
    """Evidence for one assumption.

    Attributes:
        name: Which assumption, in two words.
        assumption: Its number in the paper.
        measure: What the statistic is, in words.
        statistic: The number, or None where it could not be measured.
        interval: Its 95 % interval (low, high), or None.
        verdict: "holds", "doubtful", "fails" or "cannot tell".
        sentence: The verdict as one plain sentence.
        series: Plain data for plots and tables; whatever JSON can hold.

    Example:
        >>> Finding("label mix", 1, "distance", 0.021, (0.0, 0.04), HOLDS, "The mix is stable.")
        1 label mix: holds, distance 0.021 [0.000, 0.040]
    """

    name: str
    assumption: int
    measure: str
    statistic: float | None
    interval: tuple[float, float] | None
    verdict: str
    sentence: str
    series: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __repr__(self) -> str:
        return f"{self.assumption} {self.name}: {self.verdict}{self.numbers(', ' + self.measure + ' ')}"

    def numbers(self, before: str = "") -> str:
        """The statistic with its interval, empty where there is none."""
        if self.statistic is None:
            return ""
        around = "" if self.interval is None else f" [{self.interval[0]:.3f}, {self.interval[1]:.3f}]"
        return f"{before}{self.statistic:.3f}{around}"

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "name": self.name,
            "assumption": self.assumption,
            "measure": self.measure,
            "statistic": plain(self.statistic),
            "interval": plain(self.interval),
            "verdict": self.verdict,
            "sentence": self.sentence,
            "series": plain(self.series),
        }


def cannot_tell(name: str, assumption: int, measure: str, why: str, series: Mapping[str, Any] | None = None) -> Finding:
    """A finding about something that the graph does not show; `why` is its sentence."""
    return Finding(name, assumption, measure, None, None, CANNOT_TELL, why, plain(series or {}))


def judge(value: float, low: float, high: float, *, small: float, large: float) -> str:
    """A verdict on how far an assumption is violated, by two thresholds.

    | value | interval | verdict |
    |---|---|---|
    | any | from below `small` to above `large` | cannot tell |
    | at most `small` | ends below `large` | holds |
    | at least `large` | begins above `small` | fails |
    | otherwise | | doubtful |

    Example:
        >>> judge(0.02, 0.0, 0.06, small=0.05, large=0.15), judge(0.1, 0.01, 0.3, small=0.05, large=0.15)
        ('holds', 'cannot tell')
    """
    if low < small and high > large:
        return CANNOT_TELL
    if value <= small:
        return HOLDS
    return FAILS if value >= large else DOUBTFUL


def plain(value: Any) -> Any:
    """`value` in the types of JSON; what is not a finite number becomes None."""
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return float(f"{value:.6g}") if np.isfinite(value) else None
    return value
