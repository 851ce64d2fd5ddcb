"""What a back-test says: how every candidate did and ended, what was chosen, why, and how far it can be trusted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from impact_gnn.metrics import METRICS
from impact_gnn.pipeline import Calibration, Candidate, EnsembleSpec, Method
from impact_gnn.pipeline.calibration import Bin
from impact_gnn.statistics import Estimate

PLAIN = Candidate()  # what every candidate is held against
MOST_ROWS = 20  # of a table that is printed, besides the chosen and plain


class Status(str, Enum):
    """How a candidate ended."""

    FULL = "tried in full"
    PART = "stopped: out of time"
    UNTRIED = "not tried: out of time"
    DROPPED = "dropped after the newest fold"
    FAILED = "failed"


class SelectionReason(str, Enum):
    """Why something was chosen."""

    BETTER = "better"
    NONE_BETTER = "none better"
    NONE_TRIED = "none tried"
    OUT_OF_TIME = "out of time"
    TOO_SHORT = "too short"


@dataclass(frozen=True)
class CandidateResult:
    """How a candidate did."""

    candidate: Candidate
    # weighted mean over folds, newer ones counting more; None if it was never tried
    accuracy: float | None
    loss: float | None  # log-loss, geometric mean over folds, likewise
    difference: Estimate | None  # of the score to plain's, paired; None for plain itself
    by_fold: dict[str, float]  # the difference in every fold in which plain was tried too
    num_fits: int
    weight: float  # in the choice
    status: Status
    error: str | None = None  # where it failed: the sentence
    # in every fold tried, by the metric, as people read it
    scores: dict[str, float] = field(default_factory=dict)

    @property
    def method(self) -> Method:
        return self.candidate.method

    @property
    def ending(self) -> str:
        return f"failed: {self.error}" if self.status is Status.FAILED else self.status.value


@dataclass(frozen=True)
class Selection:
    """The choice: why, and what its reason rests on."""

    choice: EnsembleSpec
    reason: SelectionReason
    rival: Candidate | None = None  # the best single candidate, where it is not the choice itself
    gain: Estimate | None = (
        None  # of the choice over plain, on folds that it was not chosen by; or the rival's
    )
    num_folds: int = 0
    metric: str = "accuracy"  # that gains are in

    def __str__(self) -> str:
        if self.reason is SelectionReason.TOO_SHORT:
            return f"{self.choice}. The past is too short for a back-test: one labelled period at most is large enough."
        if self.reason is SelectionReason.NONE_TRIED:
            return f"{self.choice}. There was nothing else that could be tried."
        if self.gain is None:
            return f"{self.choice}. Time ran out before anything else was tried on the past."
        low, value, high = (
            f"{100 * part:+.1f}" for part in (self.gain.low, self.gain.value, self.gain.high)
        )
        folds = f"{self.num_folds} back-tested window{'s' if self.num_folds > 1 else ''}"
        unit, title = METRICS[self.metric].unit, METRICS[self.metric].title
        if self.reason is SelectionReason.NONE_BETTER:
            other = f"the best other, {self.rival}, differs by {value} {unit} (between {low} and {high})"
            if self.metric == "accuracy":
                return f"{self.choice}. Nothing had better probabilities in {folds}; {other}."
            left_out = f"What was chosen without a window had no better {title} in it, over {folds}"
            return f"{self.choice}. {left_out}; with hindsight {other}."
        if self.gain.value <= 0:
            right = f"as many are right as with plain, or fewer: {value} points, between {low} and {high}"
            return f"{self.choice}. Its probabilities are better than plain's in {folds}; {right}."
        sure = "" if self.gain.low > 0 else "likely "
        return f"{self.choice}. The gain over plain is {sure}{value} {unit}, between {low} and {high}, in {folds}."


@dataclass(frozen=True)
class PeriodScore:
    """How many labelled nodes of a period were right, and how many by plain."""

    time: int
    count: int
    accuracy: float
    plain: float | None  # None where plain was not asked


@dataclass(frozen=True)
class FoldCheck:
    """What the choice said about a past window before it knew the labels; it was chosen without that window."""

    window: str
    count: int  # labelled nodes
    unknown: int  # of these in classes of which no label could be seen then; they count as wrong
    accuracy: float
    fitted: float  # accuracy of the choice itself, which was made by this window too
    plain: float  # accuracy of plain
    confidence: float  # mean calibrated probability of the predicted label
    error_before: float  # expected calibration error, raw
    error: float  # and after calibration by the other windows
    coverage: float  # of the prediction sets, likewise
    set_size: float
    bins: list[Bin]  # reliability after calibration, in FINE bins
    score: float  # in the metric that was chosen by, as people read it
    plain_score: float
    # true label, predicted label, how often; what never happened is left out
    confusion: list[tuple[int, int, int]]
    periods: list[PeriodScore]


@dataclass(frozen=True)
class Lag:
    """How good predictions were so many periods after the last known label."""

    lag: int
    accuracy: float
    count: int


@dataclass(frozen=True)
class Backtest:
    """The outcome: a row per candidate from best to worst, the decision, and what it is worth."""

    rows: list[CandidateResult]
    decision: Selection
    folds: list[str]
    ahead: int  # labelled periods that a window spans
    seconds: float
    finished: bool
    effort: str
    work: float  # units done
    calibration: Calibration
    checks: list[FoldCheck]
    aging: list[Lag]

    @classmethod
    def nothing(cls, effort: str, metric: str = "accuracy") -> Backtest:
        """Of a past too short for any fold."""
        decision = Selection(EnsembleSpec.single(PLAIN), SelectionReason.TOO_SHORT, metric=metric)
        return cls([], decision, [], 0, 0.0, False, effort, 0.0, uncalibrated(metric), [], [])

    @property
    def metric(self) -> str:
        return self.decision.metric

    @property
    def choice(self) -> EnsembleSpec:
        return self.decision.choice

    def row(self, candidate: str | Method | Candidate) -> CandidateResult | None:
        """How a candidate did; None if it was not among them."""
        wanted = Candidate.of(candidate)
        return next((row for row in self.rows if row.candidate == wanted), None)

    @property
    def full(self) -> list[CandidateResult]:
        """Candidates that were tried on every fold."""
        return [row for row in self.rows if row.status is Status.FULL]

    def over(self, name: str) -> float | None:
        """A number of the checks as one, all nodes counting the same; None without a fold."""
        total = sum(check.count for check in self.checks)
        return (
            sum(check.count * getattr(check, name) for check in self.checks) / total
            if total
            else None
        )

    def __str__(self) -> str:
        shown = leading(self.rows, MOST_ROWS)
        width = max([len(str(row.candidate)) for row in shown], default=9)
        newest = self.folds[::-1]
        lines = [
            f"{'candidate':<{width}} {' '.join(f'{f:>8}' for f in newest)} {'log-loss':>8} {'minus plain':>26}  weight"
        ]
        for row in shown:
            scores = {fold: f"{score:.4f}" for fold, score in row.scores.items()}
            each = " ".join(f"{scores.get(fold, ''):>{max(8, len(fold))}}" for fold in newest)
            loss = "" if row.loss is None else f"{row.loss:.3f}"
            difference = "" if row.difference is None else repr(row.difference)
            weight = f"{row.weight:.0%}" if row.weight else ""
            numbers = f"{each} {loss:>8} {difference:>26}  {weight:<6}"
            ending = "" if row.status is Status.FULL else row.ending
            lines.append(f"{row.candidate!s:<{width}} {numbers} {ending}".rstrip())
        if len(shown) < len(self.rows):
            lines.append(
                f"... and {len(self.rows) - len(shown)} more that did worse or were not tried"
            )
        said = f"In every window, the newest first: {METRICS[self.metric].title}. Over all of them: log-loss, difference."
        return "\n".join([*lines, *([said] if newest else []), f"Chosen: {self.decision}"])


def uncalibrated(metric: str) -> Calibration:
    """Where no past window says anything: all labels in every set, and the metric's usual labels."""
    return Calibration(coverage=1.0, tilt=METRICS[metric].tilt)


def leading(rows: Sequence[CandidateResult], most: int) -> list[CandidateResult]:
    """The first `most` rows, and what is chosen and plain wherever they stand."""
    return [
        row
        for place, row in enumerate(rows)
        if place < most or row.weight or row.candidate == PLAIN
    ]
