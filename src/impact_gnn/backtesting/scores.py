"""Walk-forward probabilities by candidate, fold and seed, and what follows from them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from impact_gnn._store import Store
from impact_gnn.backtesting.ensemble import fold_weights, log_loss, overall
from impact_gnn.backtesting.outcome import PLAIN
from impact_gnn.pipeline import Candidate
from impact_gnn.statistics import Estimate, combined


@dataclass(frozen=True)
class Unit:
    """One fit: a candidate, on a fold (by its window), with a seed."""

    candidate: Candidate
    fold: str
    seed: int = 0

    def __str__(self) -> str:
        return f"{str(self.candidate).replace(':', '.')}.fold{self.fold}.seed{self.seed}"


@dataclass(eq=False)
class Scores:
    """What every candidate said about the labelled nodes of a fold; kept on disk too if there is a `store`.

    Probabilities are kept in float16, which is more than their noise. Folds are known by their window, oldest first.
    """

    truth: dict[str, np.ndarray]
    store: Store | None = None
    said: dict[Unit, np.ndarray] = field(default_factory=dict)

    def get(self, unit: Unit) -> np.ndarray | None:
        """The probabilities of a unit if it was done before, in this run or an earlier one."""
        if unit not in self.said and self.store and (kept := self.store.array(f"fits/{unit}")) is not None:
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
        return [said for unit, said in self.said.items() if (unit.candidate, unit.fold) == (candidate, fold)]

    def true(self, candidate: Candidate, fold: str) -> np.ndarray:
        """The candidate's probabilities of the true labels of a fold."""
        place = np.arange(len(self.truth[fold])), self.truth[fold]
        return np.mean([said[place].astype(np.float32) for said in self._by_seed(candidate, fold)], axis=0)

    def tried(self, candidate: Candidate) -> list[str]:
        """Folds that a candidate was tried on."""
        done = {unit.fold for unit in self.said if unit.candidate == candidate}
        return [fold for fold in self.folds if fold in done]

    def hits(self, candidate: Candidate, fold: str) -> np.ndarray:
        said = self.probability(candidate, fold)
        assert said is not None
        return said.argmax(1) == self.truth[fold]

    def accuracy(self, candidate: Candidate) -> float | None:
        """Weighted mean over the folds tried, newer ones counting more; None if nothing was done."""
        folds = self.tried(candidate)
        return _mean([float(self.hits(candidate, fold).mean()) for fold in folds]) if folds else None

    def fold_loss(self, candidate: Candidate, fold: str) -> float:
        """Log-loss in a fold; infinite if the candidate was not tried there."""
        tried = self._by_seed(candidate, fold)
        return log_loss(self.true(candidate, fold), tried[0].shape[1]) if tried else math.inf

    def loss(self, candidate: Candidate) -> float | None:
        """Log-loss over the folds tried, newer ones counting more."""
        folds = self.tried(candidate)
        return overall([self.fold_loss(candidate, fold) for fold in folds]) if folds else None

    def difference(self, candidate: Candidate, *, level: float = 0.95) -> Estimate | None:
        """Accuracy minus plain's, paired by node, combined over folds; None without a fold that has both."""
        by_fold = self.by_fold(candidate)
        return combined(*np.array(list(by_fold.values())).T, level=level) if by_fold else None

    def by_fold(self, candidate: Candidate) -> dict[str, tuple[float, float]]:
        """Accuracy minus plain's in every fold that has both, and its standard error."""
        both = [fold for fold in self.tried(candidate) if fold in self.tried(PLAIN)]
        return {fold: mean_and_error(self.hits(candidate, fold), self.hits(PLAIN, fold)) for fold in both}

    def ranked(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        """Candidates from the best log-loss to the worst, those tried on more folds first."""
        loss = {one: (-len(self.tried(one)), math.inf if (x := self.loss(one)) is None else x) for one in candidates}
        return sorted(loss, key=lambda one: loss[one])


def mean_and_error(ours: np.ndarray, theirs: np.ndarray) -> tuple[float, float]:
    """Mean paired difference of hits, and its standard error over nodes."""
    each = ours.astype(np.float64) - theirs
    variance = each.var(ddof=1) / len(each) if len(each) > 1 else 0.25
    # One node more or less right is the least that can be told apart.
    return float(each.mean()), math.sqrt(max(variance, 0.25 / len(each) ** 2))


def _mean(values: list[float]) -> float:
    return float(np.dot(fold_weights(len(values)), values))
