"""What a back-test says: how every candidate did and ended, what was chosen, and why."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from impact_gnn.pipeline import Method
from impact_gnn.statistics import Estimate

PLAIN = Method()  # what every candidate is held against


class Status(str, Enum):
    """How a candidate ended."""

    FULL = "tried in full"
    PART = "stopped: out of time"
    UNTRIED = "not tried: out of time"
    DROPPED = "dropped"
    FAILED = "failed"


class Reason(str, Enum):
    """Why a method was chosen."""

    BETTER = "better"
    NONE_BETTER = "none better"
    NONE_TRIED = "none tried"
    OUT_OF_TIME = "out of time"
    TOO_SHORT = "too short"


@dataclass(frozen=True)
class Trial:
    """How a candidate did."""

    method: Method
    accuracy: float | None  # mean over folds and seeds; None if it was never tried
    difference: Estimate | None  # to plain, paired; None for plain itself
    by_fold: dict[int, float]  # the difference in every fold in which plain was tried too
    num_fits: int
    status: Status
    after_round: int | None = None  # where it was dropped: the round after which
    error: str | None = None  # where it failed: the sentence

    @property
    def ending(self) -> str:
        if self.status is Status.DROPPED:
            return f"dropped after round {self.after_round}"
        return f"failed: {self.error}" if self.status is Status.FAILED else self.status.value


@dataclass(frozen=True)
class Decision:
    """The choice: why, and what its reason rests on."""

    method: Method
    reason: Reason
    rival: Method | None = None  # the correction that came closest where none was better
    gain: Estimate | None = None  # of the choice, or the rival, over plain; its interval widened for the finalists
    num_folds: int = 0

    def __str__(self) -> str:
        if self.reason is Reason.TOO_SHORT:
            return f"{self.method}. The past is too short for a back-test: one labelled period at most is large enough."
        if self.reason is Reason.NONE_TRIED:
            return f"{self.method}. There was no correction that could be tried."
        if self.gain is None:
            return f"{self.method}. Time ran out before any correction was tried on two periods."
        low, value, high = (f"{100 * part:+.1f}" for part in (self.gain.low, self.gain.value, self.gain.high))
        points = f"{value} points (between {low} and {high})"
        if self.reason is Reason.BETTER:
            folds = f"{self.num_folds} back-tested period{'s' if self.num_folds > 1 else ''}"
            return f"{self.method}, {points} over plain in {folds}."
        return f"{self.method}. No correction is better with confidence; the best, {self.rival}, differs by {points}."


@dataclass(frozen=True)
class Backtest:
    """The outcome: a row per candidate from best to worst, and the decision."""

    rows: list[Trial]
    decision: Decision
    folds: list[int]
    seconds: float
    finished: bool

    @property
    def choice(self) -> Method:
        return self.decision.method

    def row(self, method: Method) -> Trial | None:
        """How a candidate did; None if it was not among them."""
        return next((row for row in self.rows if row.method == method), None)

    @property
    def full(self) -> list[Trial]:
        """Candidates that were tried on every fold and neither dropped nor failed."""
        return [row for row in self.rows if row.status is Status.FULL]

    def __str__(self) -> str:
        lines = [f"{'method':<20} {'accuracy':>8} {'minus plain':>26}  fits"]
        for row in self.rows:
            accuracy = "" if row.accuracy is None else f"{row.accuracy:.4f}"
            difference = "" if row.difference is None else repr(row.difference)
            lines.append(f"{row.method!s:<20} {accuracy:>8} {difference:>26}  {row.num_fits:<4} {row.ending}")
        return "\n".join([*lines, f"Chosen: {self.decision}"])
