"""The paper's own numbers, and whether ours agree with them.

The paper gives means over 200 graphs without standard errors, and drew new graphs for every column. Its error is
therefore taken to be that of 200 graphs with the spread that we measure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

GRAPHS = 200
ERRORS = 2.0
"""Standard errors of the difference within which two means are said to agree."""


def _row(plain: float, mmp: float, pmp: float, pny: float, jjnorm: float) -> Mapping[str, float]:
    # The published PNY was told the truth, so the oracle is its counterpart; the estimate stands beside it.
    found = {"plain": plain, "mmp": mmp, "pmp": pmp, "pmp+pny": pny, "pmp+pny-oracle": pny, "pmp+jjnorm": jjnorm}
    return MappingProxyType(found)


TABLE3: Mapping[tuple[str, str], Mapping[str, float]] = MappingProxyType(
    {
        ("fixed", "sgc"): _row(0.2243, 0.15, 0.2653, 0.2758, 0.2777),
        ("fixed", "gcn"): _row(0.2035, 0.1439, 0.2245, 0.2178, 0.2311),
        ("random", "sgc"): _row(0.1331, 0.1063, 0.1854, 0.1832, 0.1862),
        ("random", "gcn"): _row(0.1298, 0.1022, 0.1565, 0.1613, 0.1609),
    }
)
"""Accuracy by row and model; "random" was run with decay 0 within a label."""

TIME: Mapping[str, Mapping[str, float]] = MappingProxyType(
    {"sgc": _row(0.325, 0.315, 0.303, 1.178, 0.538), "gcn": _row(0.771, 0.728, 0.773, 268.5, 448.81)}
)
"""Seconds for 200 epochs on one graph."""

TABLE1: Mapping[tuple[str, bool], float] = MappingProxyType(
    {
        ("chronological", False): 0.5682,
        ("chronological", True): 0.5580,
        ("random", False): 0.6302,
        ("random", True): 0.6387,
    }
)
"""SeHGNN on ogbn-mag by split and whether the time is embedded."""


def table3(row: str, model: str) -> Mapping[str, float]:
    """The published accuracies that a row stands beside; both random rows have the same ones."""
    return TABLE3["random" if row.startswith("random") else "fixed", model]


@dataclass(frozen=True)
class Agreement:
    """A published number beside ours."""

    published: float
    measured: float
    allowed: float
    agrees: bool

    @property
    def sentence(self) -> str:
        """What can be said of the two."""
        gap = self.measured - self.published
        words = "agrees" if self.agrees else "differs"
        return (
            f"published {self.published:.4f}, measured {self.measured:.4f}: {words} "
            f"({gap:+.4f}, {ERRORS:g} standard errors are {self.allowed:.4f})"
        )


def agreement(published: float, measured: float, *, error: float, spread: float, columns: int = 1) -> Agreement:
    """Whether two means agree within `ERRORS` standard errors of their difference.

    Args:
        published: The paper's number, an accuracy or a difference of two.
        measured: Ours.
        error: Standard error of ours.
        spread: Standard deviation of an accuracy between graphs, from which the paper's error is taken.
        columns: 2 where the number is a difference of two columns, which the paper drew on different graphs.

    Example:
        >>> print(agreement(0.2243, 0.2189, error=0.0104, spread=0.078).sentence)
        published 0.2243, measured 0.2189: agrees (-0.0054, 2 standard errors are 0.0235)
        >>> agreement(0.50, 0.60, error=0.01, spread=0.05).agrees
        False
    """
    allowed = ERRORS * math.hypot(error, spread * math.sqrt(columns / GRAPHS))
    return Agreement(published, measured, allowed, abs(measured - published) <= allowed)
