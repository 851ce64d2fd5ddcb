"""`RunSummary`: everything a run was told and found out, as one value that goes to `summary.json` and back."""

from __future__ import annotations

import html
from dataclasses import dataclass
from pathlib import Path

from impact_gnn import _files
from impact_gnn._codec import decode, encode
from impact_gnn.backtesting import Advice, Backtest
from impact_gnn.checks import InputError
from impact_gnn.diagnostics import Diagnosis
from impact_gnn.graph import Summary
from impact_gnn.metrics import METRICS, Metric
from impact_gnn.pipeline import Candidate, Choice
from impact_gnn.statistics import Estimate

SCHEMA = 4  # number of the form of `summary.json`; another form gets another number


@dataclass(frozen=True)
class RunOptions:
    """What a run was told; see `run`."""

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
    seed: int
    table: str
    embedding: str


@dataclass(frozen=True)
class Fit:
    """A fitted member: epochs or trees, and its score on the last labelled periods before it was trained on them."""

    candidate: Candidate
    weight: float
    seed: int
    rounds: int
    valid_score: float | None


@dataclass(frozen=True)
class Predictions:
    """What was predicted."""

    file: str  # name of the table
    count: int  # nodes that were classified
    labels: dict[str, int]  # how many got every label, in the user's coding
    mean_probability: float  # of the predicted label
    histogram: list[int]  # predictions by probability, in ten bins from 0 to 1
    accuracy: Estimate | None  # how many will be right, before anybody knows; with a 90 % interval
    coverage: float  # share of prediction sets that are to hold the truth
    set_size: float  # labels in a set on average


@dataclass(frozen=True)
class Cost:
    """What the run took. A run that was cut off counts what was done since it was started again."""

    seconds: float
    peak_memory_bytes: int


@dataclass(frozen=True)
class RunSummary:
    """What `run` returns and writes."""

    graph: Summary
    options: RunOptions
    command: str | None  # what was typed; None if it was called from Python
    diagnosis: Diagnosis
    advice: Advice
    backtest: Backtest
    fits: list[Fit]
    predictions: Predictions
    cost: Cost
    versions: dict[str, str]

    @property
    def choice(self) -> Choice:
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
        raise InputError(f"{path} has schema {schema!r}, this release reads {SCHEMA}; use the release that wrote it.")
    return decode(RunSummary, content, path.name)
