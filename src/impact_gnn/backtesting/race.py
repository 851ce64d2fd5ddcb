"""The back-test: every candidate is tried on the user's own past, the same folds and seeds for all."""

from __future__ import annotations

import time as clock
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from impact_gnn._progress import Progress, watched
from impact_gnn._store import Store
from impact_gnn.backtesting.candidates import CANDIDATES
from impact_gnn.backtesting.folds import Fold, fold_at, fold_times
from impact_gnn.backtesting.outcome import PLAIN, Backtest, Decision, Reason, Status, Trial
from impact_gnn.backtesting.scores import Scores, Unit
from impact_gnn.checks import InputError
from impact_gnn.engines import Engine, Memory
from impact_gnn.graph import TemporalGraph, graph_digest
from impact_gnn.nn import Diverged
from impact_gnn.pipeline import Inputs, Method, Pipeline

LEAST_LEFT = 3  # candidates, plain included, that no round goes below
MARGIN = 1.4  # how much longer than on average so far the fits of the next round are taken to last
LEVEL = 0.95  # confidence with which the chosen method must be better than plain, all finalists together


def backtest(
    graph: TemporalGraph,
    *,
    candidates: Sequence[str | Method] = CANDIDATES,
    folds: int = 3,
    seeds: int = 2,
    cutoff: int | None = None,
    pipeline: Pipeline | None = None,
    budget: float | None = None,
    engine: Engine | None = None,
    store: Store | str | Path | None = None,
    progress: bool | Progress = False,
) -> Backtest:
    """Tries candidates on the last labelled periods, as they would have been tried then, and chooses.

    Each fold is the graph up to one of the last labelled periods, with that period's labels hidden; the score is
    the accuracy on it. Candidates are tried in rounds (the last fold; all folds; all folds with further seeds), and
    after each round the worse half is dropped, never plain. A correction is chosen only if it was tried on
    two folds at least and its difference to plain, with an interval widened for the number of finalists, lies above
    zero.

    Args:
        graph: The graph.
        candidates: Methods such as "pmp+center"; "plain" is always among them.
        folds: Number of periods to predict.
        seeds: Most seeds per fold.
        cutoff: Labels are known before it; by default the graph tells.
        pipeline: Everything but the method and seed; by default `Pipeline()`.
        budget: Seconds after which no further fit is begun; None for no bound.
        engine: Where to propagate; in memory by default.
        store: Directory for finished fits, so that a run that was cut off continues.
        progress: True for bars on the terminal, or a function called with stage, fits done, expected and a note.

    Example:
        >>> from impact_gnn.data.tsbm import tsbm
        >>> g = tsbm(num_nodes=400, num_times=5, num_labels=2, seed=0)
        >>> b = backtest(g, candidates=["center"], folds=2, seeds=1, cutoff=4, pipeline=Pipeline(epochs=3, hidden=8))
        >>> [row.num_fits for row in b.rows], str(b.choice) in ("plain", "center")
        ([2, 2], True)
    """
    if seeds < 1:
        raise InputError(f"seeds={seeds} must be at least 1.")
    view = graph.masked(graph.infer_cutoff() if cutoff is None else cutoff)
    methods = list(dict.fromkeys([PLAIN, *(Method.parse(str(one)) for one in candidates)]))
    times, pipeline = fold_times(view, folds), pipeline or Pipeline()
    start = view, times, seeds, pipeline, budget, engine or Memory(), watched(progress), methods
    if isinstance(store, str | Path):
        asked: dict[str, Any] = {"candidates": methods, "folds": folds, "seeds": seeds, "budget": budget}
        asked |= {"graph": graph_digest(view), "pipeline": pipeline.get_params()}
        with Store.open(Path(store), asked) as opened:
            return Race(*start, Scores(opened), list(methods)).run()
    return Race(*start, Scores(store), list(methods)).run()


def varied(pipeline: Pipeline, method: Method, *, seed: int, cutoff: int) -> Pipeline:
    """The same pipeline, not fitted, with another method, seed and cutoff."""
    return Pipeline(**pipeline.get_params() | {"method": str(method), "seed": seed, "cutoff": cutoff})


@dataclass(eq=False)
class Race:
    """The state of a back-test while it runs: who is left, how the others ended, how long fits took."""

    view: TemporalGraph
    times: list[int]
    seeds: int
    pipeline: Pipeline
    budget: float | None
    engine: Engine
    progress: Progress
    methods: list[Method]
    scores: Scores
    alive: list[Method]
    dropped: dict[Method, int] = field(default_factory=dict)
    failed: dict[Method, str] = field(default_factory=dict)
    took: list[float] = field(default_factory=list)
    begun: float = field(default_factory=clock.monotonic)
    done: int = 0
    out_of_time: bool = False

    def run(self) -> Backtest:
        rounds = [[(self.times[-1], 0)], *([[(fold, 0) for fold in self.times[-2::-1]]] if self.times[1:] else [])]
        rounds += [[(fold, seed) for fold in reversed(self.times)] for seed in range(1, self.seeds)]
        for number, units in enumerate(rounds):
            self.round(units, later=rounds[number + 1 :], first=number == 0)
            if self.out_of_time:
                break
            if number < len(rounds) - 1:
                self.halve(number + 1, len(rounds[number + 1]))
        rows = [self.trial(method) for method in self.scores.ranked(self.methods)]
        finished = not self.out_of_time and all(row.status is not Status.UNTRIED for row in rows)
        return Backtest(rows, self.decision(), self.times, clock.monotonic() - self.begun, finished)

    def round(self, units: list[tuple[int, int]], later: list[list[tuple[int, int]]], first: bool) -> None:
        """Fits every candidate that is left on some folds and seeds; the hops of a fold are made once."""
        expected, left = self.done + len(units) * len(self.alive), len(self.alive)
        for following in later:
            left = max(2, (left + 1) // 2)
            expected += len(following) * left
        for time, seed in units:
            engine, fold, inputs = self.engine.child(f"fold-{time}"), None, None
            for method in list(self.alive):
                unit = Unit(method, time, seed)
                known = self.scores.get(unit) is not None
                half_used = self.budget is not None and clock.monotonic() - self.begun > self.budget / 2
                enough = len({one.method for one in self.scores.hits}) >= LEAST_LEFT
                if not known and first and method != PLAIN and half_used and enough:
                    self.alive.remove(method)  # what is left of the budget belongs to those tried already
                    continue
                if not known and not self.out_of_time:
                    if fold is None or inputs is None:
                        fold = fold_at(self.view, time, engine)
                        inputs = self.pipeline.inputs(fold.graph, engine)
                    self.attempt(unit, fold, inputs)
                self.done += 1
                self.progress("back-test", self.done, expected, f"period {time}, seed {seed}: {method}")
            engine.clear()

    def attempt(self, unit: Unit, fold: Fold, inputs: Inputs) -> None:
        """One fit, unless there is no time left for it; a candidate that fails is dropped, the others go on."""
        begun = clock.monotonic()
        usual = median(self.took) if self.took else 0.0
        if self.budget is not None and begun - self.begun + usual > self.budget and self.scores.hits:
            self.out_of_time = True
            return
        try:
            pipeline = varied(self.pipeline, unit.method, seed=self.pipeline.seed + unit.seed, cutoff=fold.cutoff)
            probability = pipeline.fit(fold.graph, inputs=inputs).predict_proba(fold.graph, inputs=inputs)
        except (Diverged, InputError) as error:
            if unit.method == PLAIN:
                raise
            self.alive.remove(unit.method)
            self.failed[unit.method] = str(error)
            return
        place = np.searchsorted(pipeline.targets(fold.graph), fold.rows)
        self.scores.put(unit, probability.argmax(1)[place] == fold.truth)
        self.took.append(clock.monotonic() - begun)

    def halve(self, number: int, next_fits: int) -> None:
        """Drops the worse half of what is left, or more if the time left is too short; never plain."""
        order = [method for method in self.scores.ranked(self.alive) if method != PLAIN]
        keep = (len(order) + 1) // 2
        if self.budget is not None:
            left = self.budget - (clock.monotonic() - self.begun)
            each = MARGIN * next_fits * sum(self.took) / max(len(self.took), 1)
            keep = min(keep, int(left / max(each, 1e-9)) - 1)
        survivors = {PLAIN, *order[: max(LEAST_LEFT - 1, keep)]}
        self.dropped |= {method: number for method in self.alive if method not in survivors}
        self.alive = [method for method in self.alive if method in survivors]

    def decision(self) -> Decision:
        """The best finalist whose interval, widened for the number of finalists, lies above zero; otherwise plain."""
        enough = min(2, len(self.times))
        finalists = [m for m in self.alive if m != PLAIN and len(self.scores.by_fold(m)) >= enough]
        level = 1 - (1 - LEVEL) / max(len(finalists), 1)
        gains = {m: gain for m in finalists if (gain := self.scores.difference(m, level=level)) is not None}
        better = {m: gain for m, gain in gains.items() if gain.low > 0}
        if not gains:
            late = set(self.methods) - {PLAIN, *self.failed}
            return Decision(PLAIN, Reason.OUT_OF_TIME if late else Reason.NONE_TRIED)
        best = max(better or gains, key=lambda m: gains[m].value)
        basis = gains[best], len(self.scores.by_fold(best))
        if better:
            return Decision(best, Reason.BETTER, None, *basis)
        return Decision(PLAIN, Reason.NONE_BETTER, best, *basis)

    def trial(self, method: Method) -> Trial:
        by_fold = {fold: value for fold, (value, _) in self.scores.by_fold(method).items()}
        fits = sum(unit.method == method for unit in self.scores.hits)
        difference = None if method == PLAIN else self.scores.difference(method)
        status = Status.FULL if list(by_fold) == self.times else Status.PART if fits else Status.UNTRIED
        status = Status.FAILED if method in self.failed else Status.DROPPED if method in self.dropped else status
        ending = status, self.dropped.get(method), self.failed.get(method)
        return Trial(method, self.scores.accuracy(method), difference, by_fold, fits, *ending)
