"""Walk-forward probabilities by candidate, fold and seed, and what follows from them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from impact_gnn._store import Store
from impact_gnn.backtesting.greedy import fold_weights, overall
from impact_gnn.backtesting.results import PLAIN
from impact_gnn.metrics import Scoring, log_loss, mean_and_error
from impact_gnn.pipeline import Candidate
from impact_gnn.statistics import Estimate, combined


@dataclass(frozen=True)
class Unit:
    """One fit: a candidate, on a fold (by its window), with a seed."""

    candidate: Candidate
    fold: str
    seed: int = 0

    def __str__(self) -> str:
        return f"{self.candidate}.fold{self.fold}.seed{self.seed}".replace(":", ".").replace(
            " ", "_"
        )


@dataclass(eq=False)
class Scores:
    """What every candidate said about the labelled nodes of a fold; kept on disk too if there is a `store`.

    Probabilities are kept in float16, which is more than their noise. Folds are known by their
    window, oldest first; `scoring` says what each is judged by, accuracy where it does not.
    """

    truth: dict[str, np.ndarray]
    store: Store | None = None
    said: dict[Unit, np.ndarray] = field(default_factory=dict)
    scoring: dict[str, Scoring] = field(default_factory=dict)

    def get(self, unit: Unit) -> np.ndarray | None:
        """The probabilities of a unit if it was done before, in this run or an earlier one."""
        if (
            unit not in self.said
            and self.store
            and (kept := self.store.array(f"fits/{unit}")) is not None
        ):
            self.said[unit] = kept
        return self.said.get(unit)

    def put(self, unit: Unit, probability: np.ndarray) -> None:
        self.said[unit] = probability.astype(np.float16)
        if self.store is not None:
            self.store.put_array(f"fits/{unit}", self.said[unit])

    @property
    def folds(self) -> list[str]:
        return list(self.truth)

    def probability(self, candidate: Candidate, fold: str) -> np.ndarray | None:
        """Mean over the seeds that were tried; None if none was."""
        tried = self._by_seed(candidate, fold)
        return np.mean([said.astype(np.float32) for said in tried], axis=0) if tried else None

    def _by_seed(self, candidate: Candidate, fold: str) -> list[np.ndarray]:
        return [
            said
            for unit, said in self.said.items()
            if (unit.candidate, unit.fold) == (candidate, fold)
        ]

    def judge(self, fold: str) -> Scoring:
        return self.scoring.get(fold, Scoring())

    def seen(self, candidate: Candidate, fold: str) -> np.ndarray:
        """What the loss of a fold looks at: the candidate's probabilities, or only those of the true labels."""
        if self.judge(fold).rule.by_log_loss:
            return self.true(candidate, fold)
        said = self.probability(candidate, fold)
        assert said is not None
        return said

    def true(self, candidate: Candidate, fold: str) -> np.ndarray:
        """The candidate's probabilities of the true labels of a fold."""
        place = np.arange(len(self.truth[fold])), self.truth[fold]
        return np.mean(
            [said[place].astype(np.float32) for said in self._by_seed(candidate, fold)], axis=0
        )

    def tried(self, candidate: Candidate) -> list[str]:
        """Folds that a candidate was tried on."""
        done = {unit.fold for unit in self.said if unit.candidate == candidate}
        return [fold for fold in self.folds if fold in done]

    def each(self, candidate: Candidate, fold: str, scoring: Scoring) -> np.ndarray:
        """Numbers per node of a fold, whose mean is the candidate's score."""
        said = self.probability(candidate, fold)
        assert said is not None
        return scoring.each(said, self.truth[fold], self.judge(fold).rule.tilt)

    def accuracy(self, candidate: Candidate) -> float | None:
        """Weighted mean over the folds tried, newer ones counting more; None if nothing was done."""
        right = {
            fold: Scoring("accuracy", self.judge(fold).prior) for fold in self.tried(candidate)
        }
        values = [float(self.each(candidate, fold, how).mean()) for fold, how in right.items()]
        return float(np.dot(fold_weights(len(values)), values)) if values else None

    def scores(self, candidate: Candidate) -> dict[str, float]:
        """In every fold tried, by the metric that candidates are judged by, as people read it."""
        judged = {fold: self.judge(fold) for fold in self.tried(candidate)}
        return {
            f: how.rule.displayed(float(self.each(candidate, f, how).mean()))
            for f, how in judged.items()
        }

    def fold_loss(self, candidate: Candidate, fold: str) -> float:
        """What a fold ranks by: log-loss, or the metric's; infinite if the candidate was not tried there."""
        tried = self._by_seed(candidate, fold)
        if not tried:
            return math.inf
        return self.judge(fold).loss(
            self.seen(candidate, fold), self.truth[fold], tried[0].shape[1]
        )

    def loss(self, candidate: Candidate) -> float | None:
        """Log-loss over the folds tried, newer ones counting more."""
        losses = [
            log_loss(self.true(candidate, fold), self._by_seed(candidate, fold)[0].shape[1])
            for fold in self.tried(candidate)
        ]
        return overall(losses) if losses else None

    def difference(self, candidate: Candidate, *, level: float = 0.95) -> Estimate | None:
        """Score minus plain's, paired by node, combined over folds; None without a fold that has both."""
        by_fold = self.by_fold(candidate)
        return combined(*np.array(list(by_fold.values())).T, level=level) if by_fold else None

    def by_fold(self, candidate: Candidate) -> dict[str, tuple[float, float]]:
        """Score minus plain's in every fold that has both, and its standard error."""
        both = {
            fold: self.judge(fold) for fold in self.tried(candidate) if fold in self.tried(PLAIN)
        }
        return {
            f: mean_and_error(self.each(candidate, f, how), self.each(PLAIN, f, how))
            for f, how in both.items()
        }

    def ranked(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        """Candidates from the least loss to the greatest, those tried on more folds first."""

        def rank(one: Candidate) -> tuple[int, float]:
            losses = [self.fold_loss(one, fold) for fold in self.tried(one)]
            return -len(losses), overall(losses) if losses else math.inf

        return sorted(dict.fromkeys(candidates), key=rank)
