"""The back-test: candidates are tried on the user's own past, the same folds for all, and blended into one prediction.

First a handful of different ones on every fold, then rounds around the winners, until the effort's
work is done. What each said about the past is kept; the choice, its gain, its calibration all come
from that.
"""

from __future__ import annotations

import time as clock
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone

from impact_gnn import checks
from impact_gnn._progress import Progress, Watcher, duration, watched
from impact_gnn._store import Store
from impact_gnn.backtesting.candidates import (
    Advice,
    initial_candidates,
    is_applicable,
    neighbours_of,
)
from impact_gnn.backtesting.effort import EFFORTS, Size, cost
from impact_gnn.backtesting.folds import (
    Fold,
    Window,
    fold_of,
    lags_of,
    prior_before,
    truth_of,
    windows,
)
from impact_gnn.backtesting.greedy import START, blend
from impact_gnn.backtesting.results import (
    PLAIN,
    Backtest,
    CandidateResult,
    Lag,
    Status,
    uncalibrated,
)
from impact_gnn.backtesting.scores import Scores, Unit
from impact_gnn.backtesting.selection import EnsembleSelection
from impact_gnn.checks import InputError
from impact_gnn.data.given import GraphLike, as_temporal_graph
from impact_gnn.engines import Engine, or_memory
from impact_gnn.graph import TemporalGraph, graph_digest
from impact_gnn.methods import Method
from impact_gnn.metrics import Scoring
from impact_gnn.pipeline import Candidate, Inputs, Pipeline
from impact_gnn.statistics import combined

LEAST_FIRST = 4  # candidates that are tried whatever the work
FIRST_SHARE = 0.6  # of the work, for the handful
WINNERS = 3  # around which a round looks
ROUND = 6  # candidates in a round
MOST_LAGS = 8  # periods over which a model is watched growing old
HOPELESS = 0.1  # how much worse a loss on the newest fold may be than the best one's, to be tried on older folds


def backtest(
    graph: GraphLike,
    *,
    candidates: Sequence[str | Method | Candidate] | None = None,
    effort: str = "normal",
    folds: int | None = None,
    seeds: int = 1,
    cutoff: int | str | None = None,
    pipeline: Pipeline | None = None,
    metric: str | None = None,
    class_weight: str | None = None,
    budget: float | None = None,
    refits: int = 0,
    engine: Engine | None = None,
    advice: Advice | None = None,
    store: Store | str | Path | None = None,
    progress: bool | Progress = False,
) -> Backtest:
    """Tries candidates on the last labelled periods, as they would have been tried then, and chooses.

    Each fold is the graph up to the end of a window of past periods, as long as the time that
    targets span, with the window's labels hidden. What the candidates say about it is kept, and a
    few are blended so that the log-loss is least, or the metric best, newer folds counting more.
    What that gains over plain is measured on folds that the blend was not made by; where it gains
    nothing, plain is the choice.

    Args:
        graph: The graph, or PyG's `Data` or `HeteroData`.
        candidates: Such as "pmp+center" or "trees:labels", all of which are tried; "plain" is
            always among them. By default the search looks for them.
        effort: "quick", "normal" or "thorough": how much work the search may do, the same on every
            machine.
        folds: Windows to predict; by default the effort's.
        seeds: Seeds per fold, whose probabilities are averaged.
        cutoff: Labels are known before it; by default the graph tells.
        pipeline: Everything but the method, model and seed; by default `Pipeline()`.
        metric: What candidates are judged by, a name of `METRICS`; by default the pipeline's.
        class_weight: "balanced" to let all classes count the same in training; by default the
            pipeline's.
        budget: Seconds, with those of fits in the store, after which no fit is expected to end;
            None for no bound.
        refits: How often each chosen candidate will be fitted again, for which the budget leaves
            time.
        engine: Where to propagate; in memory by default.
        advice: Of a diagnosis; the search looks first at what it speaks for.
        store: Directory for finished fits, so that a run that was cut off continues.
        progress: True for bars on the terminal, or a function called with stage, work done,
            expected and a note.

    Examples:
        >>> from impact_gnn.data.tsbm import tsbm
        >>> g = tsbm(num_nodes=400, num_times=5, num_labels=2, seed=0)
        >>> b = backtest(g, candidates=["center"], folds=2, cutoff=4, pipeline=Pipeline(epochs=3, hidden=8))
        >>> [row.num_fits for row in b.rows], {str(one) for one in b.choice.candidates} <= {"plain", "center"}
        ([2, 2], True)
    """
    checks.choice("effort", effort, EFFORTS)
    if seeds < 1:
        raise InputError(f"seeds={seeds} must be at least 1.")
    graph = as_temporal_graph(graph)
    view = graph.masked(graph.infer_cutoff() if cutoff is None else cutoff)
    checks.several_classes(view.label, view.name_of(view.hidden_from("a back-test needs")))
    named = (
        None if candidates is None else list(dict.fromkeys([PLAIN, *map(Candidate.of, candidates)]))
    )
    folds = EFFORTS[effort].folds if folds is None else folds
    asked_for = {"metric": metric, "class_weight": class_weight}
    changed = {name: x for name, x in asked_for.items() if x is not None}
    pipeline = clone(pipeline or Pipeline()).set_params(**changed).checked()
    found = windows(view, folds)

    def race(opened: Store | None) -> Backtest:
        return Search(
            view,
            found,
            named,
            effort,
            seeds,
            pipeline,
            budget,
            refits,
            or_memory(engine),
            watched(progress),
            advice,
            opened,
        ).run()

    if isinstance(store, str | Path):
        asked: dict[str, Any] = {
            "candidates": named,
            "effort": effort,
            "folds": folds,
            "seeds": seeds,
        }
        asked |= {"graph": graph_digest(view), "pipeline": pipeline.described()}
        with Store.open(Path(store), asked) as opened:
            return race(opened)
    return race(store)


def varied(pipeline: Pipeline, candidate: Candidate, *, seed: int, cutoff: int) -> Pipeline:
    """The same pipeline, not fitted, with another method, model, seed and cutoff."""
    model = {} if candidate.model is None else {"model": candidate.model}
    return clone(pipeline).set_params(method=candidate.method, seed=seed, cutoff=cutoff, **model)


@dataclass(eq=False)
class Search:
    """The state of a back-test while it runs: what was tried, how it ended, how much work was done."""

    view: TemporalGraph
    windows: list[Window]
    named: list[Candidate] | None
    effort: str
    seeds: int
    pipeline: Pipeline
    budget: float | None
    refits: int
    engine: Engine
    progress: Watcher
    advice: Advice | None
    store: Store | None
    tried: list[Candidate] = field(default_factory=list)
    dropped: set[Candidate] = field(default_factory=set)
    failed: dict[Candidate, str] = field(default_factory=dict)
    work: float = 0.0
    out_of_time: bool = False

    @property
    def seconds(self) -> float:
        return clock.monotonic() - self.begun

    def run(self) -> Backtest:
        # on fits in the store
        spent = None if self.store is None else self.store.get("seconds", float)
        self.begun, self.before = clock.monotonic() - (spent or 0.0), self.progress.seconds
        self.scores = Scores(
            {str(window): truth_of(self.view, window) for window in self.windows},
            self.store,
            scoring={str(window): self.judge(window) for window in self.windows},
        )
        place = self.engine.child("size")
        self.size = Size.of(self.pipeline.inputs(self.view, place))
        place.clear()
        self.allowed = self.size.allowed(EFFORTS[self.effort])
        if self.named is not None:
            named = list(dict.fromkeys(map(self.own, self.named)))
            self.allowed = sum(map(self.cost, named))
            self.round(named, keep_all=True)
        else:
            applicable = [
                one for one in initial_candidates(self.view) if one == PLAIN or self.able(one)
            ]
            first = dict.fromkeys(map(self.with_smooth, applicable))
            self.round(
                self.affordable(list(first), FIRST_SHARE * self.allowed, LEAST_FIRST), keep_all=True
            )
            while batch := self.affordable(self.next(), self.allowed - self.work):
                self.round(batch, keep_all=False)
        selection = EnsembleSelection(self.scores, self.finalists(), self.windows, self.view)
        decision = selection.decision(self.out_of_time)
        choice = decision.choice
        weights = {member.candidate: member.weight for member in choice.members}
        rows = [self.trial(one, weights.get(one, 0.0)) for one in self.scores.ranked(self.tried)]
        tried = PLAIN in selection.finalists
        trust = (
            (selection.calibration(choice), selection.checks(choice))
            if tried
            else (uncalibrated(self.pipeline.metric), [])
        )
        aging = self.aging(choice.candidates[0]) if tried and not self.out_of_time else []
        folds, ahead = [str(window) for window in self.windows], self.view.horizon()
        cost = self.seconds, not self.out_of_time, self.effort, self.work
        self.progress("back-test", self.allowed, self.allowed)
        return Backtest(rows, decision, folds, ahead, *cost, *trust, aging)

    def judge(self, window: Window) -> Scoring:
        return Scoring(self.pipeline.metric, tuple(prior_before(self.view, window).tolist()))

    def cost(self, candidate: Candidate) -> float:
        return self.seeds * len(self.windows) * cost(candidate, self.size, self.alike)

    @property
    def alike(self) -> str:
        """The model of candidates that name none, or what a network of the user's own is most like."""
        return self.pipeline.model if isinstance(self.pipeline.model, str) else "gcn"

    def able(self, candidate: Candidate) -> bool:
        """Whether a candidate can be computed, by the pipeline's own model where it names none."""
        return is_applicable(candidate, self.view, self.pipeline.model)

    def own(self, candidate: Candidate) -> Candidate:
        """The candidate without a model where it names the pipeline's own: one thing has one name."""
        return Candidate(candidate.method) if candidate.model == self.pipeline.model else candidate

    def with_smooth(self, candidate: Candidate) -> Candidate:
        """The candidate smoothed, where that can be: its fit answers for the unsmoothed one too."""
        smoothed = self.own(candidate.smoothed())
        return smoothed if self.able(smoothed) else self.own(candidate)

    def affordable(
        self, wanted: Sequence[Candidate], work: float, least: int = 0
    ) -> list[Candidate]:
        """As many as the work allows, in order; what is too dear is passed over for what comes after it."""
        taken: list[Candidate] = []
        for one in wanted if not self.out_of_time else ():
            price = self.cost(one)
            if price <= work or len(taken) < least:
                taken.append(one)
                work -= price
        return taken

    def next(self) -> list[Candidate]:
        """A round: what differs in one thing from the winners so far, taken from each in turn."""
        winners = self.winners()
        found = [
            neighbours_of(each, self.view, self.advice, effort=self.effort) for each in winners
        ]
        lists = [[self.with_smooth(one) for one in each] for each in found]
        lists = [
            [one for one in each if one not in self.tried and self.able(one)] for each in lists
        ]
        mixed = [
            one
            for place in range(max(map(len, lists), default=0))
            for each in lists
            for one in each[place : place + 1]
        ]
        return list(dict.fromkeys(mixed))[:ROUND]

    def winners(self) -> list[Candidate]:
        """Members of the blend so far and the best by themselves, the heaviest first."""
        finalists = self.finalists()
        if not finalists:
            return []
        scores, classes = self.scores, self.view.num_labels
        said = [[scores.seen(one, fold) for fold in scores.folds] for one in finalists]
        losses = [
            partial(scores.judge(f).loss, truth=scores.truth[f], num_labels=classes)
            for f in scores.folds
        ]
        weights = blend(said, losses, fits=[one.smoothed(False) for one in finalists])
        members = [finalists[k] for k in np.argsort(-weights, kind="stable") if weights[k] > 0]
        return list(dict.fromkeys([*members, *finalists]))[:WINNERS]

    def finalists(self) -> list[Candidate]:
        """Candidates tried on every fold, the best first."""
        full = [
            one
            for one in self.tried
            if self.scores.tried(one) == self.scores.folds and one not in self.failed
        ]
        return self.scores.ranked(full)

    def round(self, batch: list[Candidate], *, keep_all: bool) -> None:
        """Fits every candidate on all folds, the newest first; the hops of a fold are made once.

        Unless all are kept, those that do much worse than the best on the newest fold are not tried
        on older ones.
        """
        twins = [
            one
            for one in (each.smoothed(False) for each in batch)
            if one == PLAIN or self.able(one)
        ]
        self.tried += [one for one in dict.fromkeys([*batch, *twins]) if one not in self.tried]
        left = list(batch)
        for window in reversed(self.windows):
            engine, fold, inputs = self.engine.child(f"fold-{window}"), None, dict[bool, Inputs]()
            for candidate in list(left):
                for seed in range(self.seeds):
                    unit = Unit(candidate, str(window), seed)
                    known = self.recall(unit)
                    if self.out_of_time or candidate in self.failed:
                        continue
                    done = min(max(self.work, self.spent() * self.allowed), 0.99 * self.allowed)
                    self.progress("back-test", done, self.allowed, f"{window}: {candidate}")
                    if not known:
                        fold = fold or fold_of(self.view, window, engine)
                        self.attempt(unit, fold, inputs, engine)
                    self.work += (
                        0.0
                        if self.out_of_time
                        else self.cost(candidate) / (self.seeds * len(self.windows))
                    )
            engine.clear()
            left = [one for one in left if one not in self.failed]
            if not keep_all and window == self.windows[-1]:
                hopeless = self.hopeless(left)
                for one in hopeless:
                    self.progress.say(
                        f"  {one}: far behind the best, not tried on older windows", detail=True
                    )
                self.dropped |= hopeless | {one.smoothed(False) for one in hopeless}
                left = [one for one in left if one not in hopeless]

    def recall(self, unit: Unit) -> bool:
        """Whether a unit was done before, in this run or an earlier one, with all that its fit answers for."""
        twin = replace(unit, candidate=unit.candidate.smoothed(False))
        return all(self.scores.get(one) is not None for one in (unit, twin))

    def hopeless(self, candidates: Sequence[Candidate]) -> set[Candidate]:
        """Those whose loss on the newest fold, smoothed or not, is far behind the best finalist's."""
        newest = self.scores.folds[-1]
        best = min((self.scores.fold_loss(one, newest) for one in self.finalists()), default=np.inf)

        def loss(one: Candidate) -> float:
            return min(self.scores.fold_loss(each, newest) for each in (one, one.smoothed(False)))

        return {one for one in candidates if loss(one) - best > HOPELESS}

    def attempt(self, unit: Unit, fold: Fold, inputs: dict[bool, Inputs], engine: Engine) -> None:
        """One fit, unless time is up; a candidate that fails is left out, the others go on."""
        if self.scores.said and self.spent() > 1:
            self.out_of_time = True
            self.progress.say("  time is up, no further candidate is tried", detail=True)
            return
        cutoff, begun = fold.window.first, clock.monotonic()
        pipeline = varied(
            self.pipeline, unit.candidate, seed=self.pipeline.seed + unit.seed, cutoff=cutoff
        )
        try:
            shown = pipeline.shared_inputs(inputs, fold.graph, engine)
            fitted = pipeline.fit(fold.graph, inputs=shown)
            said = {unit.candidate: fitted.predict_proba(fold.graph, inputs=shown)}
            if "smooth" in unit.candidate.method:
                plain = fitted.predict_proba(fold.graph, inputs=shown, smooth=False)
                said[unit.candidate.smoothed(False)] = plain
        except InputError as error:
            if unit.candidate.smoothed(False) == PLAIN:
                raise
            self.failed |= dict.fromkeys(
                [unit.candidate, unit.candidate.smoothed(False)], str(error)
            )
            self.progress.say(f"  {unit.candidate}: left out, {error}", detail=True)
            return
        place = np.searchsorted(pipeline.targets(fold.graph), fold.rows)
        for candidate, probability in said.items():
            # 0 for what nobody knew then
            full = np.zeros((len(place), self.view.num_labels), np.float32)
            full[:, fold.classes] = probability[place]
            self.scores.put(replace(unit, candidate=candidate), full)
            if unit.fold in self.scores.truth:  # and not the one that watches a model growing old
                loss = f"loss {self.scores.fold_loss(candidate, unit.fold):.4f}"
                took = duration(clock.monotonic() - begun)
                self.progress.say(f"  {unit.fold}: {candidate}, {loss}, {took}", detail=True)
        if self.store is not None:
            self.store.put("seconds", self.seconds)

    def spent(self) -> float:
        """Share of the budget that will be spent after one more fit and those that follow the search."""
        if self.budget is None:
            return 0.0
        # a smoothed one is its twin's fit
        fits = sum("smooth" not in unit.candidate.method for unit in self.scores.said)
        ahead = 1 + self.refits * min(START, len(self.tried))
        return (self.before + self.seconds * (1 + ahead / max(fits, 1))) / self.budget

    def aging(self, candidate: Candidate) -> list[Lag]:
        """One model, trained on the older half of the labels at least, and how right it is 1, 2, ... periods later."""
        window = Window.longest(self.view, MOST_LAGS)
        unit, engine = Unit(candidate, f"{window}.aging"), self.engine.child("aging")
        if self.scores.get(unit) is None:
            self.attempt(unit, fold_of(self.view, window, engine), {}, engine)
            engine.clear()
        said = self.scores.get(unit)
        if said is None:
            return []
        right = self.judge(window).labels(said) == truth_of(self.view, window)
        lag = lags_of(self.view, window)
        return [
            Lag(k, float(right[lag == k].mean()), int((lag == k).sum()))
            for k in np.unique(lag).tolist()
        ]

    def trial(self, candidate: Candidate, weight: float) -> CandidateResult:
        scores = self.scores
        found = scores.by_fold(candidate)
        by_fold = {fold: value for fold, (value, _) in found.items()}
        fits = sum(unit.candidate == candidate for unit in scores.said)
        difference = (
            None if candidate == PLAIN or not found else combined(*np.array(list(found.values())).T)
        )
        status = (
            Status.FULL
            if scores.tried(candidate) == scores.folds
            else Status.PART
            if fits
            else Status.UNTRIED
        )
        status = (
            Status.FAILED
            if candidate in self.failed
            else Status.DROPPED
            if candidate in self.dropped
            else status
        )
        parts = (
            scores.accuracy(candidate),
            scores.loss(candidate),
            difference,
            by_fold,
            fits,
            weight,
            status,
        )
        return CandidateResult(
            candidate, *parts, self.failed.get(candidate), scores.scores(candidate)
        )
