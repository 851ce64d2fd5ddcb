"""`run`: from a graph to predictions, the evidence behind them and a report, in one call."""

from __future__ import annotations

import itertools
import platform
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
import torch

from impact_gnn import _files, checks
from impact_gnn._codec import encode
from impact_gnn._progress import Progress, Watcher, watched
from impact_gnn._store import Store
from impact_gnn._text import mask_passwords
from impact_gnn._version import __version__
from impact_gnn.backtesting import EFFORTS, Advice, BacktestResult, advise, backtest, with_candidate
from impact_gnn.backtesting.effort import SMALL, Size, cost
from impact_gnn.backtesting.fits import (
    FitResult,
    FitTask,
    SharedGraph,
    check_jobs,
    fit_and_predict,
    num_jobs,
    prepare_fit,
)
from impact_gnn.backtesting.forecast import labelled_weights
from impact_gnn.checks import InputError, TooShort
from impact_gnn.data.convert import GraphLike, as_temporal_graph
from impact_gnn.diagnostics import Diagnosis, diagnose
from impact_gnn.engines import Engine, as_engine
from impact_gnn.estimators import (
    Candidate,
    Ensemble,
    Inputs,
    Method,
    Model,
    Pipeline,
    model_name,
    reads_graph,
)
from impact_gnn.estimators.inputs import MOST_HOPS
from impact_gnn.explanations import Explainer, NodeExplanation
from impact_gnn.graph import TemporalGraph, graph_digest
from impact_gnn.job.card import card
from impact_gnn.job.predictions import write_predictions
from impact_gnn.metrics import probability_of
from impact_gnn.report import write_report
from impact_gnn.report.summary import (
    Cost,
    Fit,
    PredictionSummary,
    RunOptions,
    RunSummary,
    write_summary,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack  # in `typing` from Python 3.11 on

MOST = 1000  # folds or seeds; a larger number is a typing error
MIN_TARGETS = 100  # that decide about the prediction sets of later ones
TABLES = ("csv", "raw.csv", "parquet")


class RunKeywords(TypedDict, total=False):
    """The keywords of `run` that change its result; each is described there."""

    cutoff: int | str | None
    model: Model
    candidates: Sequence[str | Method | Candidate] | None
    effort: str
    folds: int | None
    seeds: int | None
    budget: float | None
    metric: str
    class_weight: str | None
    hops: int
    undirected: bool
    seed: int
    table: str


def run(
    graph: GraphLike,
    out: str | Path,
    *,
    engine: Engine | None = None,
    jobs: int | str = "auto",
    progress: bool | Progress = False,
    command: str | None = None,
    **options: Unpack[RunKeywords],
) -> RunSummary:
    """Check, diagnose, back-test, fit, predict and explain; writes into `out`, returns the summary.

    Finished stages are stored in `out/work`. An interrupted run that is started again with the same
    graph and options continues from there, and so does one that gets a larger budget.

    Args:
        graph: The graph, or PyG's `Data` or `HeteroData`.
        out: Directory for `summary.json`, the predictions, `report.html` and `model/`; new, empty
            or of this run.
        engine: Where to propagate; in memory by default. It never changes the result.
        jobs: Fits at once, each in a process with one thread; "auto" takes all cores for longer
            searches, as far as memory allows. It never changes the result.
        progress: True for bars on the terminal, or a function called with stage, units done, units
            and a note.
        command: What was typed, for the report.
        options: The options of the result, all of them keywords; `summary.options` holds them.

            - `cutoff`: Labels are known before it, a time or a date; by default the graph tells.
            - `model`: Of candidates that name none: "auto" (SIGN), a name of `pipeline.MODELS`, or
              a network of your own (see `Pipeline`).
            - `candidates`: What to back-test, such as "pmp+labels" or "trees:labels"; by default
              the search looks for it.
            - `effort`: "quick", "normal" (default) or "thorough": how much work the search may do,
              the same on every machine.
            - `folds`: Past windows to predict in the back-test; by default the effort's.
            - `seeds`: Seeds that every chosen network is fitted with in the end; by default the
              effort's.
            - `budget`: Seconds for all of it: the search ends in time for what follows, whatever
              the effort; None for no bound.
            - `metric`: What is chosen by and labels suit: "accuracy" (default), "macro-f1",
              "balanced-accuracy", "log-loss", "average-precision" (of two classes, the rarer
              one's), "auroc" or "brier".
            - `class_weight`: "balanced" to let all classes count the same in training.
            - `hops`: Steps along the edges, 2 by default.
            - `undirected`: Let messages run in both directions of every edge, as by default.
            - `seed`: Seed of everything random, 0 by default.
            - `table`: "csv" (default), "raw.csv" (ids that look like formulas stay as they are) or
              "parquet" for the predictions.
    """
    _check_options(options)
    check_jobs(jobs)
    graph = as_temporal_graph(graph)
    cutoff = options.get("cutoff")
    view = graph.masked(graph.infer_cutoff() if cutoff is None else graph.when(cutoff))
    model = model_for(options.get("model", "auto"))
    resolved = _resolve_options(options, view, model_name(model))
    pipeline = resolved.pipeline(model).checked()
    identity = {"graph": graph_digest(view), **encode(resolved)}
    del identity["budget"]  # a larger budget continues the same run
    directory = Path(out)
    with Store.open(directory / "work", identity, within=directory) as store:
        stages = _Stages(
            view=view,
            out=directory,
            options=resolved,
            pipeline=pipeline,
            engine=as_engine(engine),
            jobs=jobs,
            watcher=watched(progress),
            store=store,
        )
        return stages.run(None if command is None else mask_passwords(command))


def _check_options(options: RunKeywords) -> None:
    """Refuse unknown keywords and values outside their range, before the graph is looked at."""
    checks.keywords("run", options, RunKeywords)
    checks.choice("effort", options.get("effort", "normal"), EFFORTS)
    checks.choice("table", options.get("table", "csv"), TABLES)
    for name, most in (("hops", MOST_HOPS), ("folds", MOST), ("seeds", MOST)):
        value = options.get(name)
        if value is not None and checks.at_least(name, value, 1) > most:
            raise InputError(f"{name}={value} is more than {most:,}; use fewer.")
    budget = options.get("budget")
    if budget is not None and not 0 < budget < np.inf:
        raise InputError(f"budget={budget} is not a number of seconds; omit it for no limit.")


def _resolve_options(options: RunKeywords, view: TemporalGraph, model: str) -> RunOptions:
    """The options with the values of this graph and effort for those that were left out."""
    cutoff = view.cutoff
    assert cutoff is not None
    checks.several_classes(view.label, view.name_of(cutoff))
    resolved: dict[str, Any] = {**options, "cutoff": cutoff, "model": model}
    effort = EFFORTS[options.get("effort", "normal")]
    if options.get("folds") is None:
        resolved["folds"] = effort.folds
    if options.get("seeds") is None:
        # on a large graph seeds differ little, and an ensemble averages anyway
        is_small = view.is_labelled.sum() <= SMALL
        resolved["seeds"] = effort.seeds if is_small else 1
    candidates = options.get("candidates")
    if candidates is not None:
        resolved["candidates"] = tuple(map(Candidate.of, candidates))
    return RunOptions(**resolved)


def model_for(model: Model) -> Model:
    """The model that "auto" stands for."""
    return "sign" if isinstance(model, str) and model == "auto" else model


@dataclass
class _Stages:
    """The stages of a run whose options are valid."""

    view: TemporalGraph
    out: Path
    options: RunOptions
    pipeline: Pipeline
    engine: Engine
    jobs: int | str
    watcher: Watcher
    store: Store
    # model inputs of the fits, reused for the predictions; by whether hops are squashed
    inputs: dict[bool, Inputs] = field(default_factory=dict)
    # probabilities of the targets, by member and of the ensemble, if this process fitted the model
    member_probabilities: list[np.ndarray] = field(default_factory=list)
    probability: np.ndarray | None = None

    def run(self, command: str | None) -> RunSummary:
        """Run the stages that are not stored yet, then write the summary and the report."""
        graph = self.view.summary()
        self.watcher.say(str(graph))
        diagnosis = self.store.once("diagnosis", Diagnosis, self.diagnose)
        advice = self.store.once("advice", Advice, lambda: advise(diagnosis, self.view))
        tested = self.store.once(
            "backtest", BacktestResult, lambda: self.backtest(advice), valid=self.is_complete
        )
        unknown: Any = None
        summary = RunSummary(
            graph=graph,
            options=self.options,
            command=command,
            diagnosis=diagnosis,
            advice=advice,
            backtest=tested,
            fits=[],
            prediction_summary=unknown,
            explained=[],
            cost=unknown,
            versions=_versions(),
        )
        # Files of a stage lie in a folder of their own, which is cleared with it.
        engine = self.engine.child("fit")
        has_model = (self.out / "model").exists()
        fits = self.store.once(
            "fit",
            list[Fit],
            lambda: self.fit(summary, engine),
            valid=lambda _: has_model,
        )
        self.watcher.say("predicting")
        user_model = None if isinstance(self.pipeline.model, str) else self.pipeline.model
        model = Ensemble.load(self.out / "model", model=user_model)
        prediction_summary = self.predict(model, tested, engine)
        explained = self.explain(model, prediction_summary, engine)
        engine.clear()
        finished = replace(
            summary,
            fits=fits,
            prediction_summary=prediction_summary,
            explained=explained,
            cost=Cost(self.watcher.seconds, _peak_memory()),
        ).located(self.out)
        with self.own_file(self.out / "summary.json") as path:
            write_summary(finished, path)
        write_report(finished, self.out / "report.html")
        return finished

    def predict(self, model: Ensemble, tested: BacktestResult, engine: Engine) -> PredictionSummary:
        """Write the table of predictions."""
        with self.own_file(self.out / f"predictions.{self.options.table}") as path:
            return write_predictions(
                self.view,
                model,
                path,
                view=self.view,
                engine=engine,
                probability=self.probability,
                checks=tested.fold_checks,
            )

    @contextmanager
    def own_file(self, path: Path) -> Iterator[Path]:
        """Let a block write a file; refuse to replace one that this run did not write.

        The block may take minutes, so the file is compared again when it is complete.
        """
        # checksums of what this run wrote: the old file, and the new one if a kill comes between
        known = self.store.get(path.stem, list[str]) or []
        _refuse_changed(path, known)
        with _files.atomic_file(path) as temporary:
            yield temporary
            _refuse_changed(path, known)
            checksum = _files.checksum(temporary)
            self.store.put(path.stem, [*known, checksum])
        self.store.put(path.stem, [checksum])

    def explain(
        self, model: Ensemble, predictions: PredictionSummary, engine: Engine
    ) -> list[NodeExplanation]:
        """Explain the least certain node and the confident one with the highest outlier score.

        Large graphs are skipped where a network propagates by itself: that takes many passes.
        """
        propagates = any(reads_graph(pipeline.model) for pipeline in model.pipelines)
        if propagates and self.view.num_nodes > SMALL:
            return []
        self.watcher.say("explaining two predictions")
        try:
            explainer = Explainer(
                model,
                self.view,
                inputs=self.inputs,
                probabilities=self.member_probabilities,
                engine=engine,
            )
            return [
                explainer.explain(node.id, most=5)
                for node in [*predictions.unsure[:1], *predictions.unusual[:1]]
            ]
        except InputError:  # one class, or a user model that cannot be decomposed
            return []

    def diagnose(self) -> Diagnosis:
        """Check the assumptions and measure the shift."""
        self.watcher.say("diagnosing the shift")
        engine = self.engine.child("diagnosis")
        diagnosis = diagnose(
            self.view,
            seed=self.options.seed,
            engine=engine,
            progress=self.watcher,
        )
        engine.clear()
        return diagnosis

    def is_complete(self, tested: BacktestResult) -> bool:
        """Whether a stored back-test is finished, or already had the budget of this run."""
        budget = self.store.get("budget", float) or 0.0
        return tested.finished or not tested.rows or budget >= (self.options.budget or np.inf)

    def backtest(self, advice: Advice) -> BacktestResult:
        """Back-test on the past; without folds if the past is too short."""
        self.watcher.say("back-testing on the past")
        for name in ("fit", "backtest"):  # stored results of an earlier, smaller budget
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
                jobs=self.jobs,
                advice=advice,
                store=self.store,
                progress=self.watcher,
            )
        except TooShort:
            return BacktestResult.without_folds(options.effort, options.metric)

    def fit(self, summary: RunSummary, engine: Engine) -> list[Fit]:
        """Fit every member on all labels, networks with every seed; these share its weight."""
        tested = summary.backtest
        choice = tested.choice
        options = self.options
        self.watcher.say(f"fitting on all labels: {choice}")
        # Weights by candidate and seed: seeds of a member are averaged, so they divide its weight.
        weights: dict[tuple[Candidate, int], float] = {}
        for member in choice.members:
            num_seeds = options.seeds if self.is_network(member.candidate) else 1
            for seed in range(options.seed, options.seed + num_seeds):
                weights[member.candidate, seed] = member.weight / num_seeds
        results = self.fit_members(list(weights), tested, engine)
        fits = [
            Fit(
                candidate=candidate,
                weight=weight,
                seed=seed,
                rounds=result.settings.rounds[-1],
                valid_score=result.settings.valid_score,
            )
            for ((candidate, seed), weight), result in zip(weights.items(), results, strict=True)
        ]
        counts = self.view.label_counts()
        ensemble = Ensemble(
            pipelines=[result.pipeline for result in results],
            weights=[fit.weight for fit in fits],
            calibration=tested.calibration,
            prior=counts / counts.sum(),
        )
        self.member_probabilities = [result.probabilities for result in results]
        ensemble = self.calibrated_for_targets(ensemble, tested)
        ensemble.save(self.out / "model", card=card(summary))
        return fits

    def calibrated_for_targets(self, ensemble: Ensemble, tested: BacktestResult) -> Ensemble:
        """Fix what depends on all targets, so that later predictions of single nodes are the same.

        That is the shift of class proportions, and the threshold of the prediction sets.
        """
        mean = ensemble.mean_of(self.member_probabilities)
        fixed = ensemble.calibration.fixed_for(mean, ensemble.prior)
        probability = fixed.apply(mean, ensemble.prior)
        self.probability = probability
        # Without folds, probabilities are not calibrated; few targets say little about later ones.
        if tested.fold_checks and len(probability) >= MIN_TARGETS:
            label = fixed.labels(probability, ensemble.prior)
            confidence = probability_of(label, probability)
            weight = labelled_weights(tested.fold_checks, confidence)
            fixed = fixed.covering(probability, label, weight)
        return replace(ensemble, calibration=fixed)

    def is_network(self, candidate: Candidate) -> bool:
        """Whether a candidate is trained in epochs, from weights that a seed draws.

        Trees change little with the seed, the class prior does not.
        """
        return (candidate.model or self.pipeline.model) not in ("trees", "prior")

    def fit_members(
        self, units: Sequence[tuple[Candidate, int]], tested: BacktestResult, engine: Engine
    ) -> list[FitResult]:
        """Fit candidates with their seeds on all labels; smoothed variants share a fit."""
        size = Size.of(self.pipeline.shared_inputs(self.inputs, self.view, engine))
        model = self.pipeline.model
        is_small = self.view.is_labelled.sum() <= SMALL
        tasks: dict[tuple[Candidate, int], FitTask] = {}
        # Jobs end together if long fits start first.
        for candidate, seed in sorted(units, key=lambda unit: -cost(unit[0], size, model)):
            # Without smoothing it is the same fit, whose last step is left out below.
            if candidate != candidate.smoothed() and (candidate.smoothed(), seed) in units:
                continue
            row = tested.row(candidate)
            # On small graphs, epochs of networks are chosen again by the newest labels. On past
            # windows, ensembles gained .3 points there, and most lost .1 on larger graphs.
            settings = None
            if row is not None and not (is_small and self.is_network(candidate)):
                settings = row.settings
            tasks[candidate, seed] = FitTask.of(
                with_candidate(self.pipeline, candidate, seed=seed, cutoff=self.options.cutoff),
                settings=settings,
                name=f"{candidate}, seed {seed}",
            )
        started = itertools.count()

        def starting(task: FitTask) -> bool:
            self.watcher("fit", next(started), len(tasks), task.name)
            return True

        results = self.engine.run_tasks(
            fit_and_predict,
            SharedGraph(self.view, engine, inputs=self.inputs),
            list(tasks.values()),
            jobs=num_jobs(
                self.jobs,
                pipeline=self.pipeline,
                graph=self.view,
                engine=self.engine,
                work=tested.work,
            ),
            prepare=prepare_fit,
            starting=starting,
        )
        fitted = dict(zip(tasks, results, strict=True))
        self.watcher("fit", len(tasks), len(tasks))
        members = []
        for candidate, seed in units:
            member = fitted.get((candidate, seed))
            if member is None:
                member = fitted[candidate.smoothed(), seed].without_smoothing()
            members.append(member)
        return members


def _refuse_changed(path: Path, checksums: list[str]) -> None:
    """Refuse a file with another content than those that this run wrote."""
    _files.require_plain(path)
    if path.exists() and _files.checksum(path) not in checksums:
        raise InputError(f"{path} was not written by this run or was modified since; move it away.")


def _versions() -> dict[str, str]:
    return {
        "impact_gnn": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "torch": torch.__version__,
        "torch_geometric": version("torch_geometric"),
    }


def _peak_memory() -> int:
    """Bytes of memory at the peak of this process; 0 where the system does not tell."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
