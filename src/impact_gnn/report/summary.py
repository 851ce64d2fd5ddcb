"""`RunSummary`: options and results of a run, as one value that is stored in `summary.json`."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

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
from impact_gnn.report.numbers import period_named
from impact_gnn.statistics import Estimate

SCHEMA = 11  # version of the format of `summary.json`


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of a run; see `run`."""

    cutoff: int
    model: str
    candidates: tuple[Candidate, ...] | None = None
    effort: str = "normal"
    folds: int
    seeds: int
    budget: float | None = None
    metric: str = "accuracy"
    class_weight: str | None = None
    hops: int = 2
    undirected: bool = True
    seed: int = 0
    table: str = "csv"

    def pipeline(self, model: Model) -> Pipeline:
        """A new pipeline with these options; `model` is the named one, or the user's network."""
        return Pipeline(
            model,
            cutoff=self.cutoff,
            hops=self.hops,
            undirected=self.undirected,
            seed=self.seed,
            metric=self.metric,
            class_weight=self.class_weight,
        )


@dataclass(frozen=True)
class Fit:
    """A fitted member; its score is on validation labels, before it was fitted on these too."""

    candidate: Candidate
    weight: float
    seed: int
    rounds: int  # epochs or trees
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
    distance: float | None  # outlier score


@dataclass(frozen=True)
class PredictionSummary:
    """Predictions of a run, and their expected accuracy."""

    file: str  # name of the table
    count: int  # nodes that were classified
    labels: dict[str, int]  # number of predictions by class, in the user's coding
    mean_probability: float  # of the predicted class
    comparable_confidence: float  # the same for targets such as those with labels in the past
    histogram: list[int]  # predictions by probability, in equal bins from 0 to 1
    accuracy: Estimate | None  # expected accuracy with a 90 % interval
    coverage: float  # nominal coverage of the prediction sets
    threshold: float  # probability from which a class is in a set
    set_size: float  # mean number of classes in a set
    unsure: list[NodeToReview]  # the lowest probabilities
    unusual: list[NodeToReview]  # high probabilities with the highest outlier scores

    @property
    def mark(self) -> str:
        """Identifies these predictions."""
        return _files.digest(encode(self))


@dataclass(frozen=True)
class Evaluation:
    """Predictions of a run compared with labels that arrived later."""

    count: int  # nodes whose label is known now
    unknown: int  # of these in classes that the model does not know; they count as errors
    accuracy: Estimate
    confidence: float  # mean probability of the predicted class
    error: float  # expected calibration error
    coverage: float  # of the prediction sets
    bins: list[Bin]
    # as in `FoldCheck`; a class that the model does not know has the next number
    confusion: list[tuple[int, int, int]]
    periods: list[PeriodScore]
    # of the selected model over the baseline, in the run's metric; None without a graph
    gain: Estimate | None
    score: float | None  # in that metric, as people read it
    plain_score: float | None
    mark: str  # of the predictions that were evaluated


@dataclass(frozen=True)
class Cost:
    """Time and memory of a run; a resumed run counts from its restart."""

    seconds: float
    peak_memory_bytes: int


@dataclass(frozen=True, repr=False)
class RunSummary:
    """The result of `run`."""

    graph: GraphSummary
    options: RunOptions
    command: str | None  # the command line; None if it was called from Python
    diagnosis: Diagnosis
    advice: Advice
    backtest: BacktestResult
    fits: list[Fit]
    prediction_summary: PredictionSummary
    explained: list[NodeExplanation]  # explanations of a few predictions
    cost: Cost
    versions: dict[str, str]
    out: ClassVar[Path | None] = None  # its directory; not written, as directories move

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
        """The user's name of the cutoff."""
        return self.graph.since or str(self.cutoff)

    def located(self, out: Path) -> RunSummary:
        """This summary, with its directory."""
        object.__setattr__(self, "out", out)
        return self

    @property
    def report(self) -> Path:
        """The HTML report."""
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
        """Every candidate as a data frame, the best first: scores, difference, weight, status."""
        rows = self.backtest.rows
        columns: dict[str, Any] = {"candidate": [str(row.candidate) for row in rows]}
        for fold in self.backtest.folds[::-1]:
            columns[fold] = [row.scores.get(fold) for row in rows]
        columns["accuracy"] = [row.accuracy for row in rows]
        columns["loss"] = [row.loss for row in rows]
        for part, name in (("value", "minus_plain"), ("low", "low"), ("high", "high")):
            columns[name] = [getattr(row.difference, part, None) for row in rows]
        columns["weight"] = [row.weight for row in rows]
        columns["status"] = [row.ending for row in rows]
        return frame(columns)

    def _there(self, name: str) -> Path:
        if self.out is None:
            raise InputError(
                "this summary has no directory; create it with run(...) or read_summary(...)."
            )
        return self.out / name

    def __repr__(self) -> str:
        predictions = self.prediction_summary
        expected = ""
        if predictions.accuracy is not None:
            expected = f", expected accuracy {predictions.accuracy.value:.1%}"
        return (
            f"RunSummary({predictions.count:,} nodes from {period_named(self.since)} on "
            f"predicted by {self.choice}{expected})"
        )

    def _repr_html_(self) -> str:
        """The report for notebooks; in a frame, so that styles do not mix."""
        from impact_gnn.report.page import render  # the page is made of summaries

        style = "width: 100%; height: 60em; border: 0"
        return f'<iframe srcdoc="{html.escape(render(self))}" style="{style}"></iframe>'


def write_summary(summary: RunSummary, path: Path) -> None:
    """Writes a summary as JSON; `read_summary` gives an equal one."""
    _files.write_json(path, {"schema": SCHEMA} | encode(summary))


def read_summary(path: Path) -> RunSummary:
    """The summary that a run wrote."""
    content = _files.read_json(path)
    schema = content.pop("schema", None) if isinstance(content, dict) else None
    if schema != SCHEMA:
        raise InputError(
            f"{path} has schema {schema!r}, but this release reads {SCHEMA}; "
            "use the release that wrote it."
        )
    summary = decode(RunSummary, content, path.name).located(path.parent)
    if not re.fullmatch(r"[\w-]+(\.raw)?\.(csv|parquet)", file := summary.prediction_summary.file):
        raise InputError(
            f"{path} refers to the table {quoted(file)}, which is not a plain file name; "
            "restore it."
        )
    return summary
