"""`RunSummary`: everything a run was told and found out, as one value that goes to `summary.json` and back."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from impact_gnn import _files
from impact_gnn._codec import decode, encode
from impact_gnn.backtesting import Advice, BacktestResult, PeriodScore
from impact_gnn.checks import InputError, quoted
from impact_gnn.diagnostics import Diagnosis
from impact_gnn.estimators import Candidate, EnsembleSpec, Model, Pipeline
from impact_gnn.estimators.calibration import Bin
from impact_gnn.explanations import NodeExplanation
from impact_gnn.graph import GraphSummary
from impact_gnn.metrics import METRICS, Metric
from impact_gnn.report.export import frame, read_frame
from impact_gnn.statistics import Estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SCHEMA = 7  # number of the form of `summary.json`; another form gets another number


@dataclass(frozen=True)
class RunOptions:
    """Options of a run; see `run`."""

    cutoff: int
    model: str
    candidates: tuple[Candidate, ...] | None
    effort: str
    folds: int
    seeds: int
    budget: float | None
    metric: str
    class_weight: str | None
    hops: int
    undirected: bool
    embed: str
    seed: int
    table: str
    feature_map: str  # projection of the map of the features

    def pipeline(self, model: Model) -> Pipeline:
        """A new pipeline with these options; `model` is the named one, or the user's network."""
        return Pipeline(
            model,
            cutoff=self.cutoff,
            hops=self.hops,
            undirected=self.undirected,
            embed=self.embed,
            seed=self.seed,
            metric=self.metric,
            class_weight=self.class_weight,
        )


@dataclass(frozen=True)
class Fit:
    """A fitted member: epochs or trees, and its score on the last labelled periods before it was trained on them."""

    candidate: Candidate
    weight: float
    seed: int
    rounds: int
    valid_score: float | None


@dataclass(frozen=True)
class NodeToReview:
    """A node that a person should look at."""

    id: str
    time: str
    label: str
    probability: float
    second_label: str | None
    second_probability: float | None
    distance: float | None  # of its features from labelled nodes of its label, 1 for a usual one


@dataclass(frozen=True)
class PredictionSummary:
    """What was predicted."""

    file: str  # name of the table
    count: int  # nodes that were classified
    labels: dict[str, int]  # how many got every label, in the user's coding
    mean_probability: float  # of the predicted label
    histogram: list[int]  # predictions by probability, in equal bins from 0 to 1
    accuracy: Estimate | None  # how many will be right, before anybody knows; with a 90 % interval
    coverage: float  # share of prediction sets that are to hold the truth
    set_size: float  # labels in a set on average
    unsure: list[NodeToReview]  # the least certain
    unusual: list[NodeToReview]  # of the surest those least like labelled nodes of their label

    @property
    def mark(self) -> str:
        """By which other predictions are told from these."""
        return _files.digest(encode(self))


@dataclass(frozen=True)
class Evaluation:
    """What came true of a run's predictions."""

    count: int  # nodes whose label is known now
    unknown: int  # of these in classes that the model did not know; they count as wrong
    accuracy: Estimate  # share that was right
    confidence: float  # mean probability of the predicted label
    error: float  # expected calibration error
    coverage: float  # share of the sets that hold the truth
    bins: list[Bin]
    # as in `FoldCheck`; what the model did not know has the next number
    confusion: list[tuple[int, int, int]]
    periods: list[PeriodScore]
    # of the choice over plain, in the run's metric; None where no graph was given
    gain: Estimate | None
    score: float | None  # in that metric, as people read it
    plain_score: float | None
    mark: str  # of the predictions that it is about


@dataclass(frozen=True)
class Cost:
    """What the run took. A run that was cut off counts what was done since it was started again."""

    seconds: float
    peak_memory_bytes: int


@dataclass(frozen=True, repr=False)
class RunSummary:
    """What `run` returns and writes."""

    graph: GraphSummary
    options: RunOptions
    command: str | None  # what was typed; None if it was called from Python
    diagnosis: Diagnosis
    advice: Advice
    backtest: BacktestResult
    fits: list[Fit]
    prediction_summary: PredictionSummary
    explained: list[NodeExplanation]  # why a few nodes were given their labels
    cost: Cost
    versions: dict[str, str]
    out: ClassVar[Path | None] = None  # where it lies; not written, as folders move

    @property
    def choice(self) -> EnsembleSpec:
        return self.backtest.choice

    @property
    def metric(self) -> Metric:
        return METRICS[self.options.metric]

    @property
    def cutoff(self) -> int:
        return self.options.cutoff

    @property
    def since(self) -> str:
        """The cutoff as a person calls it."""
        return self.graph.since or str(self.cutoff)

    def located(self, out: Path) -> RunSummary:
        """This summary, which knows its folder from now on."""
        object.__setattr__(self, "out", out)
        return self

    @property
    def report(self) -> Path:
        """The page for people."""
        return self._there("report.html")

    @property
    def predictions(self) -> Any:
        """The table of predictions as a data frame."""
        return read_frame(self.predictions_file)

    @property
    def predictions_file(self) -> Path:
        """The table of predictions in the folder of the run; a link out of it is refused."""
        file = self._there(self.prediction_summary.file)
        if file.is_symlink():
            raise InputError(f"{file} is a symbolic link; put the table itself there.")
        return file

    def leaderboard(self) -> Any:
        """Every candidate as a data frame, the best first: scores, difference to plain, weight, how it ended."""
        rows = self.backtest.rows
        columns: dict[str, Any] = {"candidate": [str(row.candidate) for row in rows]}
        columns |= {
            fold: [row.scores.get(fold) for row in rows] for fold in self.backtest.folds[::-1]
        }
        columns |= {name: [getattr(row, name) for row in rows] for name in ("accuracy", "loss")}
        for part, name in (("value", "minus_plain"), ("low", "low"), ("high", "high")):
            columns[name] = [
                None if row.difference is None else getattr(row.difference, part) for row in rows
            ]
        columns |= {"weight": [row.weight for row in rows], "status": [row.ending for row in rows]}
        return frame(columns)

    def plot_comparison(self) -> Axes:
        """Every candidate's difference to plain, with its interval."""
        return self._plotted(lambda draw: draw.forest(self.backtest.rows, self.metric))

    def plot_periods(self) -> Axes:
        """How many were right in every period of the past windows."""
        return self._plotted(
            lambda draw: draw.by_period(self.backtest.fold_checks, self.graph.name)
        )

    def plot_confusion(self) -> Axes:
        """What labels were taken for in the past windows."""
        return self._plotted(
            lambda draw: draw.confusion(self.backtest.fold_checks, draw.Labels.of(self))
        )

    def plot_reliability(self) -> Axes:
        """How many predictions were right, by their probability."""
        return self._plotted(lambda draw: draw.reliability(self.backtest.fold_checks))

    def plot_confidence(self) -> Axes:
        """How sure the predictions are."""
        return self._plotted(lambda draw: draw.histogram(self.prediction_summary.histogram))

    def plot_aging(self) -> Axes:
        """How right a model is so many periods after its last label."""
        return self._plotted(lambda draw: draw.by_horizon(self.backtest.by_horizon))

    def plot_change(self) -> Axes:
        """What changed over time."""
        return self._plotted(lambda draw: draw.change(self.diagnosis, self.graph.name))

    def _plotted(self, draw: Callable[[Any], Any]) -> Axes:
        """A figure of the report on pyplot's axes, which notebooks show."""
        from matplotlib import pyplot

        from impact_gnn.report import figures, svg  # figures are made of summaries

        asked = svg.CANVAS.set(pyplot.figure)
        try:
            figure = draw(figures)
        finally:
            svg.CANVAS.reset(asked)
        if figure is None:
            raise InputError(
                "there is nothing to draw: the back-test had too little to measure it."
            )
        return figure.alone()

    def _there(self, name: str) -> Path:
        if self.out is None:
            raise InputError(
                "this summary does not know its folder; get it by run(...) or read_summary(...)."
            )
        return self.out / name

    def __repr__(self) -> str:
        predictions = self.prediction_summary
        expected = ""
        if predictions.accuracy is not None:
            expected = f", {predictions.accuracy.value:.1%} expected to be right"
        return (
            f"RunSummary({predictions.count:,} nodes at or after {self.since} "
            f"predicted by {self.choice}{expected})"
        )

    def _repr_html_(self) -> str:
        """The report, for notebooks; in a frame, so that its style and theirs do not meet."""
        from impact_gnn.report.page import render  # the page is made of summaries

        return f'<iframe srcdoc="{html.escape(render(self))}" style="width: 100%; height: 60em; border: 0"></iframe>'


def write_summary(summary: RunSummary, path: Path) -> None:
    """Writes a summary as JSON; `read_summary` gives an equal one."""
    _files.write_json(path, {"schema": SCHEMA} | encode(summary))


def read_summary(path: Path) -> RunSummary:
    """The summary that a run wrote."""
    content = _files.read_json(path)
    schema = content.pop("schema", None) if isinstance(content, dict) else None
    if schema != SCHEMA:
        raise InputError(
            f"{path} has schema {schema!r}, this release reads {SCHEMA}; use the release that wrote it."
        )
    summary = decode(RunSummary, content, path.name).located(path.parent)
    if not re.fullmatch(r"[\w-]+(\.raw)?\.(csv|parquet)", file := summary.prediction_summary.file):
        raise InputError(
            f"{path} names the table {quoted(file)}, which is no plain file name; restore it."
        )
    return summary
