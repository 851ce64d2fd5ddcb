"""`run`: one call from a graph to predictions, the evidence for how they were made, and a page worth reading."""

from __future__ import annotations

import platform
import resource
import shutil
import sys
import time as clock
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch_geometric

from impact_gnn import checks
from impact_gnn._codec import encode
from impact_gnn._progress import Progress, Watcher, watched
from impact_gnn._store import Store
from impact_gnn._version import __version__
from impact_gnn.backtesting import Advice, Backtest, Decision, Reason, advise, backtest, varied
from impact_gnn.checks import InputError, TooShort
from impact_gnn.diagnostics import EMBEDDINGS, Diagnosis, diagnose
from impact_gnn.engines import Engine, Memory
from impact_gnn.graph import TemporalGraph, graph_digest
from impact_gnn.job.predictions import write_predictions
from impact_gnn.pipeline import Inputs, Method, Pipeline
from impact_gnn.report import write_report
from impact_gnn.report.summary import Cost, Fit, RunOptions, RunSummary, write_summary

TABLES = ("csv", "parquet")


def run(
    graph: TemporalGraph,
    out: str | Path,
    *,
    cutoff: int | None = None,
    model: str = "auto",
    candidates: Sequence[str | Method] | None = None,
    folds: int = 3,
    seeds: int = 2,
    budget: float | None = 600.0,
    hops: int = 2,
    undirected: bool = True,
    seed: int = 0,
    table: str = "csv",
    embedding: str = "pca",
    engine: Engine | None = None,
    progress: bool | Progress = False,
    command: str | None = None,
) -> RunSummary:
    """Check, diagnose, back-test, fit, predict, explain; writes everything into `out` and returns the summary.

    What is finished is kept in `out/work`; a run that was cut off and is started again with the same graph and
    options goes on from there.

    Args:
        graph: The graph.
        out: Directory for `summary.json`, the predictions, `report.html` and `model/`; new, empty or of this run.
        cutoff: Labels are known before it; by default the graph tells.
        model: "auto" (SIGN, or SeHGNN where there are several node types), or a name of `pipeline.MODELS`.
        candidates: Methods to back-test; by default those that the diagnosis advises.
        folds: Past periods to predict in the back-test.
        seeds: Most seeds per fold.
        budget: Seconds for the back-test; None for no bound.
        hops: Steps along the edges.
        undirected: Let messages run in both directions of every edge.
        seed: Seed of everything random.
        table: "csv" or "parquet" for the predictions.
        embedding: "pca" or "tsne", for the map of the features in the report.
        engine: Where to propagate; in memory by default. It never changes the result.
        progress: True for bars on the terminal, or a function called with stage, units done, units and a note.
        command: What was typed, for the report.
    """
    checks.choice("embedding", embedding, EMBEDDINGS)
    checks.choice("table", table, TABLES)
    for name, value in (("hops", hops), ("folds", folds), ("seeds", seeds)):
        if value < 1:
            raise InputError(f"{name}={value} must be at least 1.")
    cutoff = graph.infer_cutoff() if cutoff is None else checks.whole_number("cutoff", cutoff)
    view = graph.masked(cutoff)
    methods = None if candidates is None else tuple(Method.parse(str(one)) for one in candidates)
    bounds = folds, seeds, budget, hops, undirected, seed, table, embedding
    options = RunOptions(cutoff, model_for(graph, model), methods, *bounds)
    pipeline = Pipeline(options.model, cutoff=cutoff, hops=hops, undirected=undirected, seed=seed)
    with Store.open(Path(out) / "work", {"graph": graph_digest(view), **encode(options)}, within=Path(out)) as store:
        return _Run(view, Path(out), options, pipeline, engine or Memory(), watched(progress), store).summary(command)


def model_for(graph: TemporalGraph, model: str) -> str:
    """The model that "auto" stands for on this graph."""
    return model if model != "auto" else "sehgnn" if graph.is_hetero else "sign"


@dataclass
class _Run:
    """The stages of a run that has passed the door."""

    view: TemporalGraph
    out: Path
    options: RunOptions
    pipeline: Pipeline
    engine: Engine
    watcher: Watcher
    store: Store
    inputs: Inputs | None = None

    def summary(self, command: str | None) -> RunSummary:
        begun = clock.monotonic()
        for left in self.out.glob("*.tmp-*"):  # of a run that was killed while it wrote a result
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        graph = self.view.summary()
        self.watcher.say(str(graph))
        diagnosis = self.store.once("diagnosis", Diagnosis, self.diagnosis)
        advice = self.store.once("advice", Advice, lambda: advise(diagnosis, self.view))
        tested = self.store.once("backtest", Backtest, lambda: self.backtest(advice))
        engine, fitted = self.engine.child("fit"), (self.out / "model").exists()
        fit = self.store.once("fit", Fit, lambda: self.fit(tested.choice, engine), valid=fitted)
        self.watcher.say("predicting")
        pipeline, table = Pipeline.load(self.out / "model"), self.out / f"predictions.{self.options.table}"
        predictions = write_predictions(self.view, pipeline, table, inputs=self.inputs, engine=engine)
        engine.clear()
        cost = Cost(clock.monotonic() - begun, _peak_memory())
        parts = graph, self.options, command, diagnosis, advice, tested, fit, predictions, cost, _versions()
        summary = RunSummary(*parts)
        write_summary(summary, self.out / "summary.json")
        write_report(summary, self.out / "report.html")
        return summary

    def diagnosis(self) -> Diagnosis:
        self.watcher.say("diagnosing the shift")
        engine, options = self.engine.child("diagnosis"), self.options
        diagnosis = diagnose(
            self.view, embedding=options.embedding, seed=options.seed, engine=engine, progress=self.watcher
        )
        engine.clear()
        return diagnosis

    def backtest(self, advice: Advice) -> Backtest:
        self.watcher.say("back-testing corrections on the past")
        options = self.options
        try:
            return backtest(
                self.view, candidates=options.candidates or advice.methods, folds=options.folds, seeds=options.seeds,
                cutoff=options.cutoff, pipeline=self.pipeline, budget=options.budget, engine=self.engine,
                store=self.store, progress=self.watcher,
            )  # fmt: skip
        except TooShort:
            return Backtest([], Decision(Method(), Reason.TOO_SHORT), [], 0.0, False)

    def fit(self, method: Method, engine: Engine) -> Fit:
        self.watcher.say(f"fitting {method} on every label known")
        pipeline = varied(self.pipeline, method, seed=self.options.seed, cutoff=self.options.cutoff)
        self.inputs = pipeline.inputs(self.view, engine)  # the predictions need them too
        pipeline.fit(
            self.view,
            inputs=self.inputs,
            progress=lambda epoch: self.watcher("fit", epoch.epoch, 0, f"loss {epoch.loss:.3f}"),
        )
        self.watcher("fit", 1, 1)
        pipeline.save(self.out / "model")
        assert pipeline.fitted is not None
        score = pipeline.fitted.valid_score
        return Fit(method, pipeline.fitted.best_epoch, None if np.isnan(score) else score)


def _versions() -> dict[str, str]:
    parts = {"numpy": np.__version__, "torch": torch.__version__, "torch_geometric": torch_geometric.__version__}
    return {"impact_gnn": __version__, "python": platform.python_version(), **parts}


def _peak_memory() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
