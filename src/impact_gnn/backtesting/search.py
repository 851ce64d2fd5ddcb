"""The back-test: evaluates candidates on the same folds of the past, and selects an ensemble.

Different candidates are evaluated first, then neighbours of the best in rounds, until the search
budget is used. The selection, its gain and its calibration come from out-of-fold predictions.
"""

from __future__ import annotations

import time as clock
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain, product, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
from sklearn.base import clone

from impact_gnn import checks
from impact_gnn._progress import Progress, Watcher, duration, watched
from impact_gnn._store import Store
from impact_gnn.backtesting.candidates import (
    HOPELESS,
    UNCORRECTED,
    Advice,
    initial_candidates,
    is_applicable,
    is_network,
    neighbours_of,
    networks_are_behind,
    time_corrections,
)
from impact_gnn.backtesting.effort import EFFORTS, Size, allowed_work, cost
from impact_gnn.backtesting.fits import (
    FailedFit,
    FitResult,
    FitTask,
    SharedGraph,
    check_jobs,
    num_jobs,
    prepare_fit,
    try_fit,
)
from impact_gnn.backtesting.folds import (
    Fold,
    Window,
    fold_of,
    forecast_for_targets,
    horizons_of,
    prior_before,
    truth_of,
    windows,
)
from impact_gnn.backtesting.greedy import START, greedy_weights
from impact_gnn.backtesting.results import (
    BASELINE,
    LAST_LABELS,
    BacktestResult,
    CandidateResult,
    FoldCheck,
    HorizonScore,
    SimpleResult,
    Status,
    uncalibrated,
)
from impact_gnn.backtesting.scores import Scores, Unit
from impact_gnn.backtesting.selection import EnsembleSelection
from impact_gnn.checks import InputError
from impact_gnn.data.convert import GraphLike, as_temporal_graph
from impact_gnn.engines import Engine, as_engine
from impact_gnn.estimators import Candidate, FitSettings, Pipeline
from impact_gnn.estimators.user_model import model_name
from impact_gnn.graph import TemporalGraph, graph_digest
from impact_gnn.methods import Method
from impact_gnn.metrics import Scoring

if TYPE_CHECKING:
    from typing_extensions import Unpack  # in `typing` from Python 3.11 on

MIN_FIRST = 4  # initial candidates that are evaluated whatever the budget
FIRST_SHARE = 0.6  # of the budget, for initial candidates
WINNERS = 3  # whose neighbours a round evaluates
ROUND = 6  # candidates in a round
MAX_HORIZON = 8  # periods after the last label for which accuracy is measured


class BacktestKeywords(TypedDict, total=False):
    """The keywords of `backtest` about folds and scores; each is described there."""

    folds: int | None
    seeds: int
    metric: str | None
    class_weight: str | None
    budget: float | None
    refits: int
    advice: Advice | None


def backtest(
    graph: GraphLike,
    *,
    candidates: Sequence[str | Method | Candidate] | None = None,
    effort: str = "normal",
    cutoff: int | str | None = None,
    pipeline: Pipeline | None = None,
    engine: Engine | None = None,
    jobs: int | str = "auto",
    store: Store | str | Path | None = None,
    progress: bool | Progress = False,
    **options: Unpack[BacktestKeywords],
) -> BacktestResult:
    """Evaluates candidates on the last labelled periods, and selects an ensemble.

    Each fold is the graph up to the end of a window of past periods, as long as the time that
    targets span, with the window's labels masked. A few candidates are combined so that the
    log-loss, or the metric, is best; newer folds count more. The gain over the baseline is
    measured on folds that did not select the ensemble; without a gain, the baseline is selected.

    Args:
        graph: The graph, or PyG's `Data` or `HeteroData`.
        candidates: Such as "pmp+center" or "trees:labels", all of which are tried; "plain" is
            always among them. By default the search looks for them.
        effort: "quick", "normal" or "thorough": how much work the search may do, the same on every
            machine.
        cutoff: Labels are known before it; by default the graph tells.
        pipeline: Everything but the method, model and seed; by default `Pipeline()`.
        engine: Where to propagate; in memory by default. Fits run on its cluster, if it has one.
        jobs: Fits at once, each in a process with one thread; fewer where cores or memory do not
            allow it. "auto" takes all cores for longer searches. It never changes the result.
        store: Directory for finished fits, so that a run that was cut off continues.
        progress: True for bars on the terminal, or a function called with stage, work done,
            expected and a note.
        options: Further keywords.

            - `folds`: Windows to predict; by default the effort's.
            - `seeds`: Seeds per fold, whose probabilities are averaged; 1 by default.
            - `metric`: What candidates are judged by, a name of `METRICS`; by default the
              pipeline's.
            - `class_weight`: "balanced" to let all classes count the same in training; by default
              the pipeline's.
            - `budget`: Seconds, with those of fits in the store, after which no fit is expected to
              end; None for no bound.
            - `refits`: How often each chosen candidate will be fitted again, for which the budget
              leaves time.
            - `advice`: Of a diagnosis; the search looks first at what it speaks for.

    Examples:
        >>> from impact_gnn.data.tsbm import tsbm
        >>> g = tsbm(num_nodes=400, num_times=5, num_labels=2, seed=0)
        >>> small = Pipeline(epochs=3, hidden=8)
        >>> b = backtest(g, candidates=["center"], folds=2, cutoff=4, pipeline=small)
        >>> [len(row.scores) for row in b.rows]
        [2, 2]
        >>> {str(one) for one in b.choice.candidates} <= {"plain", "center"}
        True
    """
    checks.keywords("backtest", options, BacktestKeywords)
    checks.choice("effort", effort, EFFORTS)
    check_jobs(jobs)
    seeds = options.get("seeds", 1)
    if seeds < 1:
        raise InputError(f"seeds={seeds} must be at least 1.")
    graph = as_temporal_graph(graph)
    view = graph.masked(graph.infer_cutoff() if cutoff is None else cutoff)
    checks.several_classes(view.label, view.name_of(view.require_cutoff("a back-test needs")))
    wanted = None
    if candidates is not None:
        wanted = list(dict.fromkeys([BASELINE, *map(Candidate.of, candidates)]))
    num_folds = options.get("folds")
    if num_folds is None:
        num_folds = EFFORTS[effort].folds
    # None leaves the pipeline's own choice.
    scoring = {"metric": options.get("metric"), "class_weight": options.get("class_weight")}
    changed = {name: value for name, value in scoring.items() if value is not None}
    pipeline = clone(pipeline or Pipeline()).set_params(**changed).checked()
    search = Search(
        graph=view,
        windows=windows(view, num_folds),
        candidates=wanted,
        effort=effort,
        seeds=seeds,
        pipeline=pipeline,
        budget=options.get("budget"),
        refits=options.get("refits", 0),
        engine=as_engine(engine),
        jobs=jobs,
        progress=watched(progress),
        advice=options.get("advice"),
        store=store if isinstance(store, Store) else None,
    )
    if store is None or isinstance(store, Store):
        return search.run()
    inputs: dict[str, Any] = {
        "candidates": wanted,
        "effort": effort,
        "folds": num_folds,
        "seeds": seeds,
        "graph": graph_digest(view),
        "pipeline": pipeline.described(),
    }
    with Store.open(Path(store), inputs) as opened:
        return replace(search, store=opened).run()


def with_candidate(pipeline: Pipeline, candidate: Candidate, *, seed: int, cutoff: int) -> Pipeline:
    """The same pipeline, not fitted, with another method, model, seed and cutoff."""
    model = {} if candidate.model is None else {"model": candidate.model}
    return clone(pipeline).set_params(method=candidate.method, seed=seed, cutoff=cutoff, **model)


@dataclass(eq=False)
class Search:
    """The state of a back-test while it runs: what was evaluated, and the work done."""

    graph: TemporalGraph
    windows: list[Window]
    candidates: list[Candidate] | None  # None to search for them
    effort: str
    seeds: int
    pipeline: Pipeline
    budget: float | None
    refits: int
    engine: Engine
    jobs: int | str
    progress: Watcher
    advice: Advice | None
    store: Store | None
    evaluated: list[Candidate] = field(default_factory=list)
    dropped: set[Candidate] = field(default_factory=set)
    failed: dict[Candidate, str] = field(default_factory=dict)
    settings: dict[Unit, FitSettings] = field(default_factory=dict)
    work: float = 0.0
    out_of_time: bool = False

    def run(self) -> BacktestResult:
        """Evaluates candidates round by round, then selects."""
        self.prepare()
        if self.candidates is not None:
            named = map(self.without_own_model, self.candidates)
            candidates = list(dict.fromkeys([*named, *self.simplest]))
            self.allowed = sum(map(self.cost, candidates))
            self.evaluate(candidates, on_all_folds=True)
        else:
            self.search()
        selection = EnsembleSelection(self.scores, self.finalists(), self.windows, self.graph)
        return self.result(selection)

    def prepare(self) -> None:
        """Starts the clock, opens the scores and measures the graph."""
        spent_before = None if self.store is None else self.store.get("seconds", float)
        self.start = clock.monotonic() - (spent_before or 0.0)
        self.seconds_before = self.progress.seconds
        self.scores = Scores(
            {str(window): truth_of(self.graph, window) for window in self.windows},
            self.store,
            scoring={str(window): self.scoring_of(window) for window in self.windows},
        )
        scratch = self.engine.child("size")
        self.size = Size.of(self.pipeline.inputs(self.graph, scratch))
        scratch.clear()
        self.allowed = allowed_work(EFFORTS[self.effort], self.unit_cost(Unit(BASELINE, "")))

    def search(self) -> None:
        """Evaluates different candidates first, then neighbours of the best in rounds."""
        initial = filter(self.is_applicable, initial_candidates(self.graph))
        smoothed = dict.fromkeys(map(self.with_smoothing, initial))
        first = self.affordable(smoothed, FIRST_SHARE * self.allowed, at_least=MIN_FIRST)
        always = [*self.simplest, *self.corrections]
        if self.corrections and not {UNCORRECTED, UNCORRECTED.smoothed()} & set(first):
            always.append(UNCORRECTED)
        self.allowed += sum(map(self.cost, always))  # they do not shorten the search
        if self.budget is None:
            # In one batch, so that jobs have fits to go on with.
            self.evaluate([*first, *always], on_all_folds=True)
        else:
            self.evaluate(first, on_all_folds=True)
            self.evaluate(always, on_all_folds=True)
        while batch := self.affordable(self.next_round(), self.allowed - self.work):
            self.evaluate(batch, on_all_folds=False)

    def result(self, selection: EnsembleSelection) -> BacktestResult:
        """The rows of all candidates, the selection, its calibration and checks."""
        selected = selection.select(out_of_time=self.out_of_time)
        weights = {member.candidate: member.weight for member in selected.ensemble.members}
        calibration = uncalibrated(self.pipeline.metric)
        fold_checks: list[FoldCheck] = []
        by_horizon: list[HorizonScore] = []
        simplest: list[SimpleResult] = []
        if BASELINE in selection.finalists:
            simplest = selection.compare_simplest(selected.ensemble)
            calibration = selection.fit_calibration(selected.ensemble)
            fold_checks = selection.check_each_fold(selected.ensemble)
            if not self.out_of_time and self.effort != "quick":
                by_horizon = self.score_by_horizon(selected.ensemble.candidates[0])
        self.progress("back-test", self.allowed, self.allowed)
        return BacktestResult(
            rows=[
                self.candidate_result(candidate, weights.get(candidate, 0.0))
                for candidate in self.scores.ranked(self.evaluated)
            ],
            selection=selected,
            folds=[str(window) for window in self.windows],
            ahead=self.graph.horizon(),
            seconds=self.seconds,
            finished=not self.out_of_time,
            effort=self.effort,
            work=self.work,
            calibration=calibration,
            fold_checks=fold_checks,
            by_horizon=by_horizon,
            time_corrections=self.corrected_results(weights),
            simplest=simplest,
            prior_forecast=forecast_for_targets(self.graph),
        )

    def corrected_results(self, weights: Mapping[Candidate, float]) -> list[CandidateResult]:
        """Corrections for time, compared with the same model without any."""
        return [
            self.candidate_result(candidate, weights.get(candidate, 0.0), UNCORRECTED)
            for candidate in self.corrections
            if self.scores.differences(candidate, UNCORRECTED)
        ]

    # -- which candidates come next

    @property
    def simplest(self) -> list[Candidate]:
        """Candidates without a model, which no selection may be worse than."""
        return list(filter(self.is_applicable, [LAST_LABELS]))

    @cached_property
    def corrections(self) -> list[Candidate]:
        """Corrections for time, all of which a search evaluates."""
        return time_corrections(self.graph)

    def is_applicable(self, candidate: Candidate) -> bool:
        """Whether a candidate can be computed, by the pipeline's model where it names none.

        The baseline is evaluated in any case.
        """
        return candidate == BASELINE or is_applicable(candidate, self.graph, self.pipeline.model)

    def without_own_model(self, candidate: Candidate) -> Candidate:
        """The candidate without a model if it names the pipeline's own, so that it has one name."""
        if candidate.model == self.pipeline.model:
            return Candidate(candidate.method)
        return candidate

    def with_smoothing(self, candidate: Candidate) -> Candidate:
        """The candidate with "smooth" where applicable: one fit serves both variants."""
        smoothed = self.without_own_model(candidate.smoothed())
        if self.is_applicable(smoothed):
            return smoothed
        return self.without_own_model(candidate)

    def affordable(
        self, candidates: Iterable[Candidate], work: float, *, at_least: int = 0
    ) -> list[Candidate]:
        """Candidates within a work budget, in order; those too expensive are skipped."""
        if self.out_of_time:
            return []
        affordable: list[Candidate] = []
        for candidate in candidates:
            price = self.cost(candidate)
            if price <= work or len(affordable) < at_least:
                affordable.append(candidate)
                work -= price
        return affordable

    def cost(self, candidate: Candidate) -> float:
        """Work units of a candidate on all folds and seeds."""
        return self.seeds * len(self.windows) * self.unit_cost(Unit(candidate, ""))

    def unit_cost(self, unit: Unit) -> float:
        """Work units of one fit."""
        return cost(unit.candidate, self.size, self.pipeline.model)

    def next_round(self) -> list[Candidate]:
        """Candidates that differ in one thing from the best so far, taken from each in turn.

        Where networks are far behind cheaper models, no further one is tried.
        """
        model = model_name(self.pipeline.model)
        losses = {candidate: self.scores.loss(candidate) or 0.0 for candidate in self.finalists()}
        skips_networks = networks_are_behind(losses, model)
        options = []
        for winner in self.winners():
            neighbours = neighbours_of(winner, self.graph, self.advice, effort=self.effort)
            smoothed = map(self.with_smoothing, neighbours)
            options.append([one for one in smoothed if self.is_new(one)])
        in_turn = dict.fromkeys(chain.from_iterable(zip_longest(*options)))
        candidates = [
            candidate
            for candidate in in_turn
            if candidate is not None and not (skips_networks and is_network(candidate, model))
        ]
        return candidates[:ROUND]

    def is_new(self, candidate: Candidate) -> bool:
        """Whether a candidate can be evaluated and was not yet."""
        return candidate not in self.evaluated and self.is_applicable(candidate)

    def winners(self) -> list[Candidate]:
        """Members of the ensemble so far, the heaviest first, then the best single candidates."""
        scores = self.scores
        finalists = self.finalists()
        if not finalists:
            return []
        weights = greedy_weights(
            predictions=[
                [scores.loss_inputs(candidate, fold) for fold in scores.folds]
                for candidate in finalists
            ],
            losses=[
                partial(
                    scores.scoring_of(fold).loss,
                    truth=scores.truth[fold],
                    num_labels=self.graph.num_labels,
                )
                for fold in scores.folds
            ],
            candidates=finalists,
        )
        heaviest_first = np.argsort(-weights, kind="stable")
        members = [finalists[k] for k in heaviest_first if weights[k] > 0]
        return list(dict.fromkeys([*members, *finalists]))[:WINNERS]

    def finalists(self) -> list[Candidate]:
        """Candidates evaluated on every fold, the best first."""
        complete = [
            candidate
            for candidate in self.evaluated
            if self.scores.folds_of(candidate) == self.scores.folds and candidate not in self.failed
        ]
        return self.scores.ranked(complete)

    # -- evaluation

    def evaluate(self, batch: list[Candidate], *, on_all_folds: bool) -> None:
        """Fits every candidate on the folds, the newest first; hops of a fold are computed once.

        Unless `on_all_folds`, candidates far behind the best on the newest fold skip older folds.
        """
        unsmoothed = [candidate.smoothed(False) for candidate in batch]
        both = [*batch, *filter(self.is_applicable, unsmoothed)]
        self.evaluated = list(dict.fromkeys([*self.evaluated, *both]))
        remaining = list(batch)
        windows = self.windows if on_all_folds else self.windows[::-1]
        for window in windows:
            self.evaluate_fold(remaining, window)
            remaining = [candidate for candidate in remaining if candidate not in self.failed]
            if not on_all_folds and window == self.windows[-1]:
                remaining = self.drop_hopeless(remaining)

    def evaluate_fold(self, candidates: Sequence[Candidate], window: Window) -> None:
        """Fits candidates on one fold with all seeds, unless a store has them already."""
        pending = []
        for candidate, seed in product(candidates, range(self.seeds)):
            unit = Unit(candidate, str(window), seed)
            if self.is_stored(unit):
                self.work += self.unit_cost(unit)
            else:
                pending.append(unit)
        if self.num_jobs > 1 and self.budget is None:
            # Jobs end together if long fits start first; with a clock, the first are chosen.
            pending.sort(key=self.unit_cost, reverse=True)
        # Corrections for time are trained like the model without any, so they come after it.
        others = [unit for unit in pending if unit.candidate not in self.corrections]
        corrected = [unit for unit in pending if unit.candidate in self.corrections]
        self.fit_units([others, corrected], window, self.engine.child(f"fold-{window}"))

    def fit_units(self, batches: Sequence[list[Unit]], window: Window, engine: Engine) -> None:
        """Fits on one fold, those of a batch at once; results are stored in order."""
        if not any(batches) or self.out_of_time:
            return
        fold = fold_of(self.graph, window, engine)
        shared = SharedGraph(fold.graph, engine)
        for units in batches:
            self.fit_batch(units, fold, shared)
        engine.clear()

    def fit_batch(self, units: Sequence[Unit], fold: Fold, shared: SharedGraph) -> None:
        """Fits that need no result of each other."""
        results = self.engine.run_tasks(
            try_fit,
            shared,
            [self.fit_task(unit, fold.window) for unit in units],
            jobs=self.num_jobs,
            prepare=prepare_fit,
            starting=self.may_start,
        )
        for unit, result in zip(units, results, strict=False):
            self.put_result(unit, fold, result)
            self.work += self.unit_cost(unit)

    def fit_task(self, unit: Unit, window: Window) -> FitTask:
        """The fit of a unit, with settings of an older fold."""
        pipeline = with_candidate(
            self.pipeline,
            unit.candidate,
            seed=self.pipeline.seed + unit.seed,
            cutoff=window.first,
        )
        name = f"{unit.fold}: {unit.candidate}"
        return FitTask.of(pipeline, self.settings_before(unit), name=name)

    def may_start(self, task: FitTask) -> bool:
        """Reports that a fit starts; False if time is up."""
        if self.scores.predictions and self.spent_share() > 1:
            self.out_of_time = True
            self.progress.say("  time is up, no further candidate is evaluated", detail=True)
            return False
        done = max(self.work, self.spent_share() * self.allowed)
        self.progress("back-test", min(done, 0.99 * self.allowed), self.allowed, task.name)
        return True

    def drop_hopeless(self, candidates: list[Candidate]) -> list[Candidate]:
        """Drops candidates whose loss on the newest fold is far behind the best finalist's."""
        newest = self.scores.folds[-1]
        best = self.least_loss(self.finalists(), newest)
        remaining = []
        for candidate in candidates:
            variants = [candidate, candidate.smoothed(False)]
            if self.least_loss(variants, newest) - best <= HOPELESS:
                remaining.append(candidate)
                continue
            self.dropped |= set(variants)
            message = f"  {candidate}: far behind the best, not evaluated on older folds"
            self.progress.say(message, detail=True)
        return remaining

    def least_loss(self, candidates: Sequence[Candidate], fold: str) -> float:
        """The loss of the best candidate on a fold; infinite without any."""
        losses = [self.scores.fold_loss(candidate, fold) for candidate in candidates]
        return min(losses, default=np.inf)

    def is_stored(self, unit: Unit) -> bool:
        """Whether a fit was done before, in this run or an earlier one, for both variants."""
        unsmoothed = replace(unit, candidate=unit.candidate.smoothed(False))
        return all(self.scores.get(one) is not None for one in (unit, unsmoothed))

    def put_result(self, unit: Unit, fold: Fold, result: FitResult | FailedFit) -> None:
        """Stores the predictions of a fit; a candidate that fails is left out."""
        candidate = unit.candidate
        unsmoothed = candidate.smoothed(False)
        if isinstance(result, FailedFit):
            if unsmoothed == BASELINE:
                raise InputError(result.error)
            self.failed |= dict.fromkeys([candidate, unsmoothed], result.error)
            self.progress.say(f"  {candidate}: left out, {result.error}", detail=True)
            return
        self.settings[unit] = result.settings
        if self.store is not None:
            self.store.put(f"fits/{unit}", result.settings)
        is_scored = unit.fold in self.scores.truth  # not the one of accuracies by horizon
        nodes = fold.rows
        if is_scored:
            nodes = np.concatenate([fold.rows, fold.unlabelled])
        # From positions in the graph to rows of the result.
        targets = np.flatnonzero(fold.graph.time >= fold.window.first)
        row = np.searchsorted(targets, nodes)
        variants = {candidate: result.probabilities, unsmoothed: result.unsmoothed}
        for variant, probabilities in variants.items():
            # Classes that were unknown before the fold have probability 0.
            all_classes = np.zeros((len(row), self.graph.num_labels), np.float32)
            all_classes[:, fold.classes] = probabilities[row]
            self.scores.put(replace(unit, candidate=variant), all_classes)
            if is_scored:
                loss = self.scores.fold_loss(variant, unit.fold)
                took = duration(result.seconds)
                message = f"  {unit.fold}: {variant}, loss {loss:.4f}, {took}"
                self.progress.say(message, detail=True)
        if self.store is not None:
            self.store.put("seconds", self.seconds)

    @cached_property
    def num_jobs(self) -> int:
        """Fits that run at once."""
        return num_jobs(
            self.jobs,
            pipeline=self.pipeline,
            graph=self.graph,
            engine=self.engine,
            work=self.allowed,
        )

    # -- time

    @property
    def seconds(self) -> float:
        return clock.monotonic() - self.start

    def spent_share(self) -> float:
        """Share of the time budget that is spent after one more fit and the final fits."""
        if self.budget is None:
            return 0.0
        # A smoothed variant has no fit of its own.
        fits = sum("smooth" not in unit.candidate.method for unit in self.scores.predictions)
        fits_ahead = 1 + self.refits * min(START, len(self.evaluated))
        seconds_per_fit = self.seconds / max(fits, 1)
        expected = self.seconds_before + self.seconds + fits_ahead * seconds_per_fit
        return expected / self.budget

    # -- results

    def scoring_of(self, window: Window) -> Scoring:
        return Scoring(self.pipeline.metric, tuple(prior_before(self.graph, window).tolist()))

    def score_by_horizon(self, candidate: Candidate) -> list[HorizonScore]:
        """Accuracy 1, 2, ... periods after the last label of one model, trained on older labels."""
        window = Window.longest(self.graph, MAX_HORIZON)
        unit = Unit(candidate, f"{window}.horizon")
        engine = self.engine.child("horizon")
        if self.scores.get(unit) is None:
            self.fit_units([[unit]], window, engine)
        else:  # a continued run counts the work of its predecessor
            self.work += self.unit_cost(unit)
        probabilities = self.scores.get(unit)
        if probabilities is None:
            return []
        labels = self.scoring_of(window).labels(probabilities)
        is_right = labels == truth_of(self.graph, window)
        horizon = horizons_of(self.graph, window)
        return [
            HorizonScore(k, float(is_right[horizon == k].mean()), int((horizon == k).sum()))
            for k in np.unique(horizon).tolist()
        ]

    def candidate_result(
        self, candidate: Candidate, weight: float, reference: Candidate = BASELINE
    ) -> CandidateResult:
        differences = self.scores.differences(candidate, reference)
        overall_difference = None
        if candidate != reference:
            overall_difference = self.scores.difference(candidate, reference)
        return CandidateResult(
            candidate=candidate,
            accuracy=self.scores.accuracy(candidate),
            loss=self.scores.loss(candidate),
            difference=overall_difference,
            by_fold={fold: value for fold, (value, _) in differences.items()},
            weight=weight,
            status=self.status_of(candidate),
            error=self.failed.get(candidate),
            scores=self.scores.by_fold(candidate),
            settings=self.settings_of(candidate, self.scores.folds[-1]),
        )

    def settings_of(self, candidate: Candidate, fold: str) -> FitSettings | None:
        """The choices of the fit on a fold, by its smoothed variant if there is one."""
        smoothed = self.stored_settings(Unit(candidate.smoothed(), fold))
        return smoothed or self.stored_settings(Unit(candidate, fold))

    def settings_before(self, unit: Unit) -> FitSettings | None:
        """The choices of the same candidate on an older fold: they used no label of this one.

        Corrections for time are trained as long as the same model without any.
        """
        folds = self.scores.folds
        if unit.fold not in folds:
            return None
        for fold in reversed(folds[: folds.index(unit.fold)]):
            settings = self.stored_settings(replace(unit, fold=fold))
            if settings is not None:
                return settings
        if unit.candidate in self.corrections:
            return self.settings_of(UNCORRECTED, unit.fold)
        return None

    def stored_settings(self, unit: Unit) -> FitSettings | None:
        """The choices of a fit, in this run or an earlier one."""
        settings = self.settings.get(unit)
        if settings is None and self.store is not None:
            settings = self.store.get(f"fits/{unit}", FitSettings)
        return settings

    def status_of(self, candidate: Candidate) -> Status:
        if candidate in self.failed:
            return Status.FAILED
        if candidate in self.dropped:
            return Status.DROPPED
        folds = self.scores.folds_of(candidate)
        if folds == self.scores.folds:
            return Status.FULL
        return Status.PART if folds else Status.UNTRIED
