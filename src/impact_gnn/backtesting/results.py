"""The results of a back-test: candidates, the selection and its reason, and checks per fold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from impact_gnn.backtesting.prior_forecast import PriorForecast
from impact_gnn.estimators import Calibration, Candidate, EnsembleSpec, FitSettings, Method
from impact_gnn.estimators.calibration import Bin
from impact_gnn.metrics import METRICS
from impact_gnn.statistics import Estimate

BASELINE = Candidate()
CLASS_PRIOR = Candidate(model="prior")  # the forecast class proportions, the same for every node
LAST_LABELS = Candidate.parse("prior:last")  # the last known labels of the entities of a node
MAX_ROWS = 20  # of a printed table, besides the selected and the baseline


class Status(str, Enum):
    """The state of a candidate after the search."""

    FULL = "evaluated on all folds"
    PART = "stopped: out of time"
    UNTRIED = "not evaluated: out of time"
    DROPPED = "dropped after the newest fold"
    FAILED = "failed"


class SelectionReason(str, Enum):
    """Why the ensemble or the baseline was selected."""

    BETTER = "better"
    NONE_BETTER = "none better"
    CLASS_PRIOR = "no better than the class prior"
    LAST_LABELS = "no better than the last labels"
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
    weight: float  # in the choice
    status: Status
    error: str | None = None  # where it failed: the sentence
    # in every fold tried, by the metric, as people read it
    scores: dict[str, float] = field(default_factory=dict)
    settings: FitSettings | None = None  # choices on the newest fold, for the final fits

    @property
    def method(self) -> Method:
        return self.candidate.method

    @property
    def ending(self) -> str:
        return f"failed: {self.error}" if self.status is Status.FAILED else self.status.value


@dataclass(frozen=True)
class Selection:
    """The selected ensemble, and why it was selected."""

    ensemble: EnsembleSpec
    reason: SelectionReason
    best_single: Candidate | None = None  # the best single candidate, if it is not the ensemble
    # over the baseline, on folds that did not select it; that of `best_single` if none was better
    gain: Estimate | None = None
    num_folds: int = 0
    metric: str = "accuracy"  # of the gain

    def __str__(self) -> str:
        return f"{self.ensemble.description}. {self.explanation}"

    @property
    def explanation(self) -> str:
        """The reason of the selection, with its gain."""
        if self.reason is SelectionReason.TOO_SHORT:
            return (
                "The history is too short for a back-test: "
                "at most one labelled period is large enough."
            )
        if self.reason is SelectionReason.NONE_TRIED:
            return "No other candidate is applicable."
        if self.reason is SelectionReason.CLASS_PRIOR:
            return (
                "On past folds no model was better than the forecast class proportions alone, "
                "so these are predicted for every node."
            )
        if self.reason is SelectionReason.LAST_LABELS:
            return (
                "On past folds no model was better than the last known labels of the entities of a "
                "node, so these are predicted."
            )
        if self.gain is None:
            return "The budget ended before any other candidate was complete."
        metric = METRICS[self.metric]
        low = _in_hundredths(self.gain.low)
        high = _in_hundredths(self.gain.high)
        folds = "1 fold" if self.num_folds == 1 else f"{self.num_folds} folds"
        interval = (
            f"{_in_hundredths(self.gain.value)} {metric.unit} (95% CI {low} to {high}, {folds})"
        )
        if self.reason is SelectionReason.NONE_BETTER:
            better = "lower log-loss" if self.metric == "accuracy" else f"better {metric.title}"
            return (
                f"No ensemble had a {better} on folds that did not select it; "
                f"the best other candidate, {self.best_single}, differs by {interval}."
            )
        if self.gain.value <= 0:
            return f"Selected for its lower log-loss, not for its accuracy: {interval}."
        likely = "" if self.gain.low > 0 else ", not significant"
        return f"Gain over the baseline: {interval}{likely}."


def _in_hundredths(share: float) -> str:
    rounded = round(100 * share, 1) + 0.0  # no minus before 0.0
    return f"{rounded:+.1f}".replace("-", "−")


@dataclass(frozen=True)
class PeriodScore:
    """Accuracy of the ensemble and of the baseline in one period."""

    time: int
    count: int
    accuracy: float
    plain: float | None  # None if the baseline was not evaluated


@dataclass(frozen=True)
class FoldCheck:
    """Out-of-fold results of one window: the ensemble was selected on the other folds."""

    window: str
    count: int  # labelled nodes
    unknown: int  # of these in classes without earlier labels; they count as errors
    accuracy: float
    fitted: float  # accuracy of the final ensemble, which this window helped to select
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
    # share of the window's nodes that have a label, by their confidence in bins of equal width
    labelled: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class HorizonScore:
    """Accuracy at a forecast horizon: that many periods after the last known label."""

    horizon: int
    accuracy: float
    count: int


@dataclass(frozen=True)
class SimpleResult:
    """Scores on past windows of a prediction without a model, or of the selection."""

    name: str  # "majority class", "selected model", or a candidate
    loss: float | None  # log-loss, geometric mean over folds, newer ones counting more
    score: float | None  # weighted mean over folds, by the metric, as people read it
    newest_score: float | None  # of the newest fold


@dataclass(frozen=True)
class BacktestResult:
    """The result of a back-test: a row per candidate from best to worst, and the selection."""

    rows: list[CandidateResult]
    selection: Selection
    folds: list[str]
    ahead: int  # labelled periods that a window spans
    seconds: float
    finished: bool
    effort: str
    work: float  # work units done
    calibration: Calibration
    fold_checks: list[FoldCheck]
    by_horizon: list[HorizonScore]
    # corrections for time; their differences are to the same model without a correction
    time_corrections: list[CandidateResult] = field(default_factory=list)
    # the simplest predictions, and the selection as the last one
    simplest: list[SimpleResult] = field(default_factory=list)
    prior_forecast: PriorForecast | None = None  # None without folds

    @classmethod
    def without_folds(cls, effort: str, metric: str = "accuracy") -> BacktestResult:
        """The result for a history that is too short for any fold."""
        baseline = EnsembleSpec.single(BASELINE)
        return cls(
            rows=[],
            selection=Selection(baseline, SelectionReason.TOO_SHORT, metric=metric),
            folds=[],
            ahead=0,
            seconds=0.0,
            finished=False,
            effort=effort,
            work=0.0,
            calibration=uncalibrated(metric),
            fold_checks=[],
            by_horizon=[],
        )

    @property
    def metric(self) -> str:
        return self.selection.metric

    @property
    def choice(self) -> EnsembleSpec:
        """The selected ensemble."""
        return self.selection.ensemble

    def row(self, candidate: str | Method | Candidate) -> CandidateResult | None:
        """How a candidate did; None if it was not among them."""
        wanted = Candidate.of(candidate)
        return next((row for row in self.rows if row.candidate == wanted), None)

    @property
    def full(self) -> list[CandidateResult]:
        """Candidates that were tried on every fold."""
        return [row for row in self.rows if row.status is Status.FULL]

    def mean_check(self, name: str) -> float | None:
        """A number of the fold checks, averaged over all nodes; None without a fold."""
        total = sum(check.count for check in self.fold_checks)
        if not total:
            return None
        return sum(check.count * getattr(check, name) for check in self.fold_checks) / total

    def __str__(self) -> str:
        rows = leading(self.rows, MAX_ROWS)
        width = max([len(str(row.candidate)) for row in rows], default=9)
        newest_first = self.folds[::-1]
        numbers = range(len(newest_first), 0, -1)
        folds = " ".join(f"fold {k:<2}" for k in numbers)
        header = f"{'candidate':<{width}} {folds} log-loss weight minus baseline"
        lines = [header]
        for row in rows:
            by_fold = " ".join(
                f"{row.scores[fold]:7.4f}" if fold in row.scores else " " * 7
                for fold in newest_first
            )
            loss = "" if row.loss is None else f"{row.loss:.3f}"
            difference = "" if row.difference is None else repr(row.difference)
            weight = f"{row.weight:.0%}" if row.weight else ""
            status = "" if row.status is Status.FULL else row.ending
            line = (
                f"{row.candidate!s:<{width}} {by_fold} {loss:>8} {weight:>6} {difference} {status}"
            )
            lines.append(line.rstrip())
        if len(rows) < len(self.rows):
            num_more = len(self.rows) - len(rows)
            lines.append(f"... and {num_more} more with a higher loss or untested")
        if newest_first:
            title = METRICS[self.metric].title
            named = ", ".join([f"{k}: {fold}" for k, fold in enumerate(self.folds, 1)][::-1])
            lines.append(f"Columns: {title} per fold ({named}); the others over all folds.")
        lines.append(f"Selected: {self.selection}")
        return "\n".join(lines)


def uncalibrated(metric: str) -> Calibration:
    """Without past windows: all labels in every set, and the metric's usual labels."""
    return Calibration(coverage=1.0, tilt=METRICS[metric].tilt)


def leading(rows: Sequence[CandidateResult], most: int) -> list[CandidateResult]:
    """The first `most` rows, and what is chosen and plain wherever they stand."""
    return [
        row
        for place, row in enumerate(rows)
        if place < most or row.weight or row.candidate == BASELINE
    ]
