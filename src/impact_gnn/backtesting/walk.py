"""The back-test: every candidate is tried on the user's own past, the same folds and seeds for all."""

from __future__ import annotations

import time as clock
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from impact_gnn.backtesting.folds import Fold, fold_at, fold_times
from impact_gnn.backtesting.scores import PLAIN, Scores, Unit, ranked
from impact_gnn.checks import InputError
from impact_gnn.graph import TemporalGraph
from impact_gnn.nn import Diverged
from impact_gnn.pipeline import Inputs, Method, Pipeline
from impact_gnn.statistics import Estimate

CANDIDATES = (
    "plain", "pmp", "mmp", "genpmp", "center", "standardize", "jjnorm", "pmp+center", "pmp+jjnorm", "labels",
    "pmp+labels", "center+labels", "snapshot", "snapshot+labels", "recency", "labels+recency", "features",
)  # fmt: skip
"""Candidates of a back-test unless others are named."""

LEAST_LEFT = 3
"""Candidates, plain included, that no round goes below."""

MARGIN = 1.4
"""How much longer than on average so far the fits of the next round are taken to last."""

LEVEL = 0.95
"""Confidence with which the chosen method must be better than plain, all finalists together."""


@dataclass(frozen=True)
class Row:
    """How a candidate did: accuracy, paired difference to plain, in how many folds and seeds, and how it ended."""

    method: str
    accuracy: float
    difference: Estimate | None
    by_fold: dict[int, float]
    num_fits: int
    status: str


@dataclass(frozen=True)
class Backtest:
    """The outcome: a row per candidate from best to worst, the choice, and why in words."""

    rows: list[Row]
    choice: str
    why: str
    folds: list[int]
    seconds: float
    finished: bool

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        rows = [
            {
                "method": row.method,
                "accuracy": row.accuracy,
                "difference": None if row.difference is None else vars(row.difference),
                "by_fold": {str(fold): value for fold, value in row.by_fold.items()},
                "fits": row.num_fits,
                "status": row.status,
            }
            for row in self.rows
        ]
        return {**{k: v for k, v in vars(self).items() if k != "rows"}, "rows": rows}

    def __str__(self) -> str:
        lines = [f"{'method':<20} {'accuracy':>8} {'minus plain':>26}  fits"]
        for row in self.rows:
            shown = "" if row.difference is None or row.method == PLAIN else repr(row.difference)
            lines.append(f"{row.method:<20} {row.accuracy:>8.4f} {shown:>26}  {row.num_fits:<4} {row.status}")
        return "\n".join([*lines, self.why])


def backtest(
    graph: TemporalGraph,
    *,
    candidates: Sequence[str] = CANDIDATES,
    folds: int = 3,
    seeds: int = 2,
    cutoff: int | None = None,
    pipeline: Pipeline | None = None,
    budget: float | None = None,
    store: Path | None = None,
    progress: Callable[[int, int, str], None] | None = None,
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
        store: Directory for finished fits, so that a run that was cut off continues.
        progress: Called with fits done, fits expected in all, and what is being done.

    Example:
        >>> from impact_gnn.data.tsbm import tsbm
        >>> g = tsbm(num_nodes=400, num_times=5, num_labels=2, seed=0)
        >>> b = backtest(g, candidates=["center"], folds=2, seeds=1, cutoff=4, pipeline=Pipeline(epochs=3, hidden=8))
        >>> [row.num_fits for row in b.rows], b.choice in ("plain", "center")
        ([2, 2], True)
    """
    return _Run(graph, candidates, folds, seeds, cutoff, pipeline or Pipeline(), budget, store, progress).outcome()


class _Run:
    """The state of a back-test while it runs."""

    def __init__(
        self,
        graph: TemporalGraph,
        candidates: Sequence[str],
        folds: int,
        seeds: int,
        cutoff: int | None,
        pipeline: Pipeline,
        budget: float | None,
        store: Path | None,
        progress: Callable[[int, int, str], None] | None,
    ) -> None:
        if seeds < 1:
            raise InputError(f"seeds={seeds} must be at least 1.")
        self.view = graph.masked(graph.infer_cutoff() if cutoff is None else cutoff)
        self.times = fold_times(self.view, folds)
        self.methods = list(dict.fromkeys([PLAIN, *(str(Method.parse(text)) for text in candidates)]))
        self.alive, self.dropped = list(self.methods), dict.fromkeys(self.methods, "")
        self.seeds, self.pipeline, self.budget, self.progress = seeds, pipeline, budget, progress
        self.scores = Scores(store)
        self.took: list[float] = []
        self.start, self.done, self.out_of_time = clock.monotonic(), 0, False

    def outcome(self) -> Backtest:
        rounds = [[(self.times[-1], 0)]]
        if len(self.times) > 1:
            rounds.append([(fold, 0) for fold in self.times[-2::-1]])
        rounds += [[(fold, seed) for fold in reversed(self.times)] for seed in range(1, self.seeds)]
        for number, units in enumerate(rounds):
            self.round(units, later=rounds[number + 1 :], first=number == 0)
            if self.out_of_time:
                break
            if number < len(rounds) - 1:
                self.halve(number + 1, len(rounds[number + 1]))
        return self.verdict()

    def round(self, units: list[tuple[int, int]], later: list[list[tuple[int, int]]], first: bool) -> None:
        """Fits every candidate that is left on some folds and seeds; the hops of a fold are made once."""
        expected = self.done + len(units) * len(self.alive)
        left = len(self.alive)
        for following in later:
            left = max(2, (left + 1) // 2)
            expected += len(following) * left
        for fold_time, seed in units:
            fold, inputs = None, None
            for method in list(self.alive):
                unit = Unit(method, fold_time, seed)
                if self.scores.get(unit) is None and first and method != PLAIN and self.over_half():
                    self.alive.remove(method)  # what is left of the budget belongs to those tried already
                    self.dropped[method] = "not tried: out of time"
                    continue
                if self.scores.get(unit) is None and not self.out_of_time:
                    if fold is None or inputs is None:
                        fold = fold_at(self.view, fold_time)
                        inputs = self.pipeline.inputs(fold.graph)
                    self.attempt(unit, fold, inputs)
                self.done += 1
                if self.progress is not None:
                    self.progress(self.done, expected, f"period {fold_time}, seed {seed}: {method}")

    def attempt(self, unit: Unit, fold: Fold, inputs: Inputs) -> None:
        """One fit, unless there is no time left for it; a candidate that fails is dropped, the others go on."""
        expected = clock.monotonic() - self.start + self.usual()
        if self.budget is not None and expected > self.budget and self.scores.hits:
            self.out_of_time = True
            return
        begun = clock.monotonic()
        options = self.pipeline.get_params() | {"method": unit.method, "seed": unit.seed, "cutoff": fold.cutoff}
        try:
            fitted = Pipeline(**options).fit(fold.graph, inputs=inputs)
            probability = fitted.predict_proba(fold.graph, inputs=inputs)
        except (Diverged, InputError) as error:
            if unit.method == PLAIN:
                raise
            self.alive.remove(unit.method)
            self.dropped[unit.method] = f"failed: {error}"
            return
        place = {row: k for k, row in enumerate(fitted.targets(fold.graph))}
        predicted = probability.argmax(1)[[place[row] for row in fold.rows]]
        self.scores.put(unit, predicted == fold.truth)
        self.took.append(clock.monotonic() - begun)

    def usual(self) -> float:
        """Seconds that a fit usually takes."""
        return median(self.took) if self.took else 0.0

    def over_half(self) -> bool:
        """Whether half of the budget is used up and there is something to choose from."""
        used = clock.monotonic() - self.start
        tried = len({unit.method for unit in self.scores.hits})
        return self.budget is not None and used > self.budget / 2 and tried >= LEAST_LEFT

    def halve(self, number: int, next_fits: int) -> None:
        """Drops the worse half of what is left, or more if the time left is too short; never plain."""
        order = [method for method in ranked(self.scores, self.alive) if method != PLAIN]
        keep = (len(order) + 1) // 2
        if self.budget is not None:
            left = self.budget - (clock.monotonic() - self.start)
            each = MARGIN * next_fits * sum(self.took) / max(len(self.took), 1)
            keep = min(keep, int(left / max(each, 1e-9)) - 1)
        survivors = {PLAIN, *order[: max(LEAST_LEFT - 1, keep)]}
        for method in [m for m in self.alive if m not in survivors]:
            self.alive.remove(method)
            self.dropped[method] = f"dropped after round {number}"

    def verdict(self) -> Backtest:
        enough = min(2, len(self.times))
        finalists = [m for m in self.alive if m != PLAIN and len(self.scores.folds(m)) >= enough]
        level = 1 - (1 - LEVEL) / max(len(finalists), 1)
        judged = {m: self.scores.difference(m, level=level) for m in finalists}
        better = {m: d for m, d in judged.items() if d is not None and d.low > 0}
        if better:
            choice = max(better, key=lambda m: better[m].value)
            count = len(self.scores.folds(choice))
            why = f"Chosen: {choice}, {_points(better[choice])} over plain in {count} back-tested periods."
        elif judged:
            best, gain = max(((m, d) for m, d in judged.items() if d is not None), key=lambda pair: pair[1].value)
            choice = PLAIN
            why = (
                f"Chosen: plain. No correction is better with confidence; the best, {best}, differs by {_points(gain)}."
            )
        else:
            choice, why = PLAIN, "Chosen: plain. Time ran out before any correction was tried on two periods."
        rows = [self.row(method) for method in ranked(self.scores, self.methods)]
        seconds = clock.monotonic() - self.start
        return Backtest(rows, choice, why, self.times, seconds, not self.out_of_time)

    def row(self, method: str) -> Row:
        folds = self.scores.folds(method)
        fits = sum(unit.method == method for unit in self.scores.hits)
        difference = None if not folds or method == PLAIN else self.scores.difference(method)
        by_fold = {fold: self.scores.fold_difference(method, fold) for fold in folds}
        status = self.dropped[method]
        if not status and folds != self.times:
            status = "stopped: out of time" if fits else "not tried: out of time"
        return Row(method, self.scores.accuracy(method), difference, by_fold, fits, status)


def _points(gain: Estimate) -> str:
    return f"{100 * gain.value:+.1f} points (between {100 * gain.low:+.1f} and {100 * gain.high:+.1f})"
