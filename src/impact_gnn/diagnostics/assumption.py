"""`AssumptionCheck`: the statistic of an assumption, its interval and its status."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

import numpy as np


class AssumptionStatus(str, Enum):
    """The result of an assumption check."""

    HOLDS = "holds"
    UNCERTAIN = "uncertain"
    VIOLATED = "violated"
    NOT_TESTABLE = "not testable"

    __str__ = str.__str__


# In the order of definition, which is also that of the sentences in `conclude`.
HOLDS, UNCERTAIN, VIOLATED, NOT_TESTABLE = AssumptionStatus


@dataclass(frozen=True, repr=False)
class AssumptionCheck:
    """Evidence for one assumption; subclasses add the series of their figures."""

    name: ClassVar[str]
    assumption: ClassVar[int]  # its number in the paper
    measure: ClassVar[str]  # description of the statistic

    status: AssumptionStatus
    sentence: str  # the status with its reason
    statistic: float | None = None  # None where it could not be measured
    interval: tuple[float, float] | None = None  # of 95 %

    @property
    def short(self) -> str:
        """Status and statistic."""
        if self.statistic is None:
            return str(self.status)
        return f"{self.status} {self.statistic:.3f}"

    def __repr__(self) -> str:
        text = f"{self.assumption} {self.name}: {self.status}"
        if self.statistic is not None:
            text += f", {self.measure} {self.statistic:.3f}"
        if self.interval is not None:
            low, high = self.interval
            text += f" [{low:.3f}, {high:.3f}]"
        return text


def judge(value: float, low: float, high: float, *, small: float, large: float) -> AssumptionStatus:
    """The status of an assumption; not testable if the interval contains both thresholds."""
    if low < small and high > large:
        return NOT_TESTABLE
    if value <= small:
        return HOLDS
    return VIOLATED if value >= large else UNCERTAIN


def conclude(
    value: float,
    interval: Sequence[float],
    thresholds: tuple[float, float],
    sentences: tuple[str, str, str, str],
) -> dict[str, Any]:
    """Status, sentence, statistic and interval of a check, by name.

    An assumption holds up to the first threshold, and is violated from the second on. There is a
    sentence for each status, in their order.
    """
    # Bootstrap quantiles may miss the value; the interval is widened to contain it.
    low = min(float(interval[0]), value)
    high = max(float(interval[1]), value)
    small, large = thresholds
    status = judge(value, low, high, small=small, large=large)
    sentence = dict(zip(AssumptionStatus, sentences, strict=True))[status]
    return {"status": status, "sentence": sentence, "statistic": value, "interval": (low, high)}


def listed(values: Any) -> list[Any]:
    """An array as lists of numbers with six digits; None for what is not finite."""
    if np.ndim(values) > 1:
        return [listed(part) for part in values]
    array = np.asarray(values)
    numbers = array.tolist()
    if array.dtype.kind != "f":
        return numbers
    return [float(f"{value:.6g}") if np.isfinite(value) else None for value in numbers]
