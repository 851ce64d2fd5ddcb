"""`run`: one call from a graph to predictions, the evidence for how they were made, and a page worth reading."""

from __future__ import annotations

import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
import torch_geometric

from impact_gnn import checks
from impact_gnn._codec import encode
from impact_gnn._progress import Progress, Watcher, watched
from impact_gnn._store import Store
from impact_gnn._text import mask_passwords
from impact_gnn._version import __version__
from impact_gnn.backtesting import EFFORTS, Advice, BacktestResult, advise, backtest, with_candidate
from impact_gnn.backtesting.effort import SMALL
from impact_gnn.checks import InputError, TooShort
from impact_gnn.data.given import GraphLike, as_temporal_graph
from impact_gnn.diagnostics import EMBEDDINGS, Diagnosis, diagnose
from impact_gnn.engines import Engine, or_memory
from impact_gnn.graph import TemporalGraph, graph_digest
from impact_gnn.heads import Model, model_name, reads_graph
from impact_gnn.job.card import card
from impact_gnn.job.predictions import write_predictions
from impact_gnn.pipeline import (
    Candidate,
    Ensemble,
    Explainer,
    Inputs,
    Method,
    NodeExplanation,
    Pipeline,
)
from impact_gnn.pipeline.inputs import MOST_HOPS
from impact_gnn.report import write_report
from impact_gnn.report.summary import Cost, Fit, Predictions, RunOptions, RunSummary, write_summary

MOST = 1000  # folds, seeds: more are a slip of the finger
TABLES = ("csv", "raw.csv", "parquet")


def run(
    graph: GraphLike,
    out: str | Path,
    *,
    cutoff: int | str | None = None,
    model: Model = "auto",
    candidates: Sequence[str | Method | Candidate] | None = None,
    effort: str = "normal",
    folds: int | None = None,
    seeds: int | None = None,
    budget: float | None = None,
    metric: str = "accuracy",
    class_weight: str | None = None,
    hops: int = 2,
    undirected: bool = True,
    embed: str = "none",
    seed: int = 0,
    table: str = "csv",
    embedding: str = "pca",
    engine: Engine | None = None,
    progress: bool | Progress = False,
    command: str | None = None,
) -> RunSummary:
    """Check, diagnose, back-test, fit, predict, explain; writes everything into `out` and returns the summary.

    What is finished is kept in `out/work`; a run that was cut off and is started again with the
    same graph and options goes on from there, and so does one that its budget stopped and that is
    given more.

    Args:
        graph: The graph, or PyG's `Data` or `HeteroData`.
        out: Directory for `summary.json`, the predictions, `report.html` and `model/`; new, empty
            or of this run.
        cutoff: Labels are known before it, a time or a date; by default the graph tells.
        model: Of candidates that name none: "auto" (SIGN), a name of `pipeline.MODELS`, or a
            network of your own (see `Pipeline`).
        candidates: What to back-test, such as "pmp+labels" or "trees:labels"; by default the search
            looks for it.
        effort: "quick", "normal" or "thorough": how much work the search may do, the same on every
            machine.
        folds: Past windows to predict in the back-test; by default the effort's.
        seeds: Seeds that every chosen candidate is fitted with in the end; by default the effort's.
        budget: Seconds for all of it: the search ends in time for what follows, whatever the
            effort; None for no bound.
        metric: What is chosen by and labels suit: "accuracy", "macro-f1", "balanced-accuracy",
            "log-loss" or "average-precision" (of two classes, the rarer one's).
        class_weight: "balanced" to let all classes count the same in training.
        hops: Steps along the edges.
        undirected: Let messages run in both directions of every edge.
        embed: "spectral" to give node types without features an embedding of the graph before the
            cutoff, or "none".
        seed: Seed of everything random.
        table: "csv", "raw.csv" (ids that look like formulas stay as they are) or "parquet" for the
            predictions.
        embedding: "pca" or "tsne", for the map of the features in the report.
        engine: Where to propagate; in memory by default. It never changes the result.
        progress: True for bars on the terminal, or a function called with stage, units done, units
            and a note.
        command: What was typed, for the report.
    """
    checks.choice("effort", effort, EFFORTS)
    folds = EFFORTS[effort].folds if folds is None else folds
    checks.choice("embedding", embedding, EMBEDDINGS)
    checks.choice("table", table, TABLES)
    for name, value, most in (
        ("hops", hops, MOST_HOPS),
        ("folds", folds, MOST),
        ("seeds", seeds, MOST),
    ):
        if value is not None and checks.at_least(name, value, 1) > most:
            raise InputError(f"{name}={value} is more than {most:,}; give fewer.")
    if budget is not None and not 0 < budget < np.inf:
        raise InputError(f"budget={budget} is not a number of seconds; leave it out for no bound.")
    graph = as_temporal_graph(graph)
    cutoff = graph.infer_cutoff() if cutoff is None else graph.when(cutoff)
    view = graph.masked(cutoff)
    assert view.y is not None
    checks.several_classes(view.y, view.name_of(cutoff))
    if seeds is None:  # on a large graph seeds differ little, and a blend averages anyway
        seeds = EFFORTS[effort].seeds if (view.y >= 0).sum() <= SMALL else 1
    methods = None if candidates is None else tuple(map(Candidate.of, candidates))
    bounds = (
        effort,
        folds,
        seeds,
        budget,
        metric,
        class_weight,
        hops,
        undirected,
        embed,
        seed,
        table,
        embedding,
    )
    model = model_for(model)
    options = RunOptions(cutoff, model_name(model), methods, *bounds)
    pipeline = Pipeline(
        model,
        cutoff=cutoff,
        hops=hops,
        undirected=undirected,
        embed=embed,
        seed=seed,
        metric=metric,
        class_weight=class_weight,
    ).checked()
    asked = {"graph": graph_digest(view), **encode(options)}
    del asked["budget"]  # which only says how far to go
    with Store.open(Path(out) / "work", asked, within=Path(out)) as store:
        return _Run(
            view, Path(out), options, pipeline, or_memory(engine), watched(progress), store
        ).summary(None if command is None else mask_passwords(command))


def model_for(model: Model) -> Model:
    """The model that "auto" stands for."""
    return "sign" if isinstance(model, str) and model == "auto" else model


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
    # of the fits, which the predictions need too
    inputs: dict[bool, Inputs] = field(default_factory=dict)

    def summary(self, command: str | None) -> RunSummary:
        graph = self.view.summary()
        self.watcher.say(str(graph))
        diagnosis = self.store.once("diagnosis", Diagnosis, self.diagnosis)
        advice = self.store.once("advice", Advice, lambda: advise(diagnosis, self.view))
        tested = self.store.once(
            "backtest", BacktestResult, lambda: self.backtest(advice), valid=self.far_enough
        )
        engine, model_there = self.engine.child("fit"), (self.out / "model").exists()
        fits = self.store.once(
            "fit",
            list[Fit],
            lambda: self.fit(diagnosis, tested, engine),
            valid=lambda _: model_there,
        )
        self.watcher.say("predicting")
        own = None if isinstance(self.pipeline.model, str) else self.pipeline.model
        model, table = (
            Ensemble.load(self.out / "model", model=own),
            self.out / f"predictions.{self.options.table}",
        )
        predictions = write_predictions(
            self.view, model, table, inputs=self.inputs, engine=engine, checks=tested.fold_checks
        )
        explained = self.explained(model, predictions, engine)
        engine.clear()
        cost = Cost(self.watcher.seconds, _peak_memory())
        parts = (
            graph,
            self.options,
            command,
            diagnosis,
            advice,
            tested,
            fits,
            predictions,
            explained,
            cost,
            _versions(),
        )
        summary = RunSummary(*parts).located(self.out)
        write_summary(summary, self.out / "summary.json")
        write_report(summary, self.out / "report.html")
        return summary

    def explained(
        self, model: Ensemble, predicted: Predictions, engine: Engine
    ) -> list[NodeExplanation]:
        """Why the least certain node and the most unusual sure one were given their labels, where that is cheap."""
        # whose reasons take many walks over the graph
        walks = any(reads_graph(one.model) for one in model.pipelines)
        if walks and self.view.num_nodes > SMALL:
            return []
        self.watcher.say("explaining two predictions")
        try:
            explainer = Explainer(model, self.view, inputs=self.inputs, engine=engine)
            return [
                explainer.explain(one.id, most=5)
                for one in [*predicted.unsure[:1], *predicted.unusual[:1]]
            ]
        except InputError:  # one class, or a network of the user's own that cannot be taken apart
            return []

    def diagnosis(self) -> Diagnosis:
        self.watcher.say("diagnosing the shift")
        engine, options = self.engine.child("diagnosis"), self.options
        diagnosis = diagnose(
            self.view,
            embedding=options.embedding,
            seed=options.seed,
            engine=engine,
            progress=self.watcher,
        )
        engine.clear()
        return diagnosis

    def far_enough(self, tested: BacktestResult) -> bool:
        """Whether a back-test made before did all there was to do, or has used up the budget of this run too."""
        budget = self.store.get("budget", float) or 0.0
        return tested.finished or not tested.rows or budget >= (self.options.budget or np.inf)

    def backtest(self, advice: Advice) -> BacktestResult:
        self.watcher.say("back-testing on the past")
        for name in ("fit", "backtest"):  # which are of the back-test that is made anew
            self.store.forget(name)
        options = self.options
        self.store.put("budget", options.budget or 0.0)
        try:
            return backtest(
                self.view,
                candidates=options.candidates,
                effort=options.effort,
                folds=options.folds,
                cutoff=options.cutoff,
                pipeline=self.pipeline,
                budget=options.budget,
                refits=options.seeds,
                engine=self.engine,
                advice=advice,
                store=self.store,
                progress=self.watcher,
            )
        except TooShort:
            return BacktestResult.without_folds(options.effort, options.metric)

    def fit(self, diagnosis: Diagnosis, tested: BacktestResult, engine: Engine) -> list[Fit]:
        """Every member with every seed on all labels; seeds of a member share its weight."""
        choice, options = tested.choice, self.options
        self.watcher.say(f"fitting on every label known: {choice}")
        seeds = {
            member.candidate: 1 if _fixed(member.candidate) else options.seeds
            for member in choice.members
        }
        total = sum(seeds.values())
        pipelines: list[Pipeline] = []
        fits: list[Fit] = []
        for member in choice.members:
            for seed in range(options.seed, options.seed + seeds[member.candidate]):
                self.watcher("fit", len(fits), total, f"{member.candidate}, seed {seed}")
                pipeline = with_candidate(
                    self.pipeline, member.candidate, seed=seed, cutoff=options.cutoff
                )
                pipeline.fit(
                    self.view, inputs=pipeline.shared_inputs(self.inputs, self.view, engine)
                )
                assert pipeline.fitted is not None
                weight, score = member.weight / seeds[member.candidate], pipeline.fitted.valid_score
                pipelines.append(pipeline)
                rounds = pipeline.fitted.rounds
                fits.append(
                    Fit(member.candidate, weight, seed, rounds, None if np.isnan(score) else score)
                )
        self.watcher("fit", total, total)
        assert self.view.y is not None
        known = np.bincount(self.view.y[self.view.y >= 0], minlength=self.view.num_labels)
        weights = [fit.weight for fit in fits]
        about = card(self.view.summary(), options, diagnosis, tested, _versions())
        Ensemble(pipelines, weights, tested.calibration, known / known.sum()).save(
            self.out / "model", card=about
        )
        return fits


def _fixed(candidate: Candidate) -> bool:
    """Whether another seed gives the same: nothing is drawn."""
    return candidate.model == "prior"


def _versions() -> dict[str, str]:
    parts = {
        "numpy": np.__version__,
        "torch": torch.__version__,
        "torch_geometric": torch_geometric.__version__,
    }
    return {"impact_gnn": __version__, "python": platform.python_version(), **parts}


def _peak_memory() -> int:
    """Bytes of memory at the peak of this process; 0 where the system does not tell."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
