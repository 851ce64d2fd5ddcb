"""Out-of-fold probabilities by candidate, fold and seed, and the scores that follow."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy import ndarray

from impact_gnn._store import Store
from impact_gnn.backtesting.greedy import fold_weights, mean_fold_loss
from impact_gnn.backtesting.results import BASELINE
from impact_gnn.estimators import Candidate
from impact_gnn.metrics import Scoring, log_loss, mean_and_error, probability_of
from impact_gnn.statistics import Estimate, combined


@dataclass(frozen=True)
class Unit:
    """One fit: a candidate, on a fold (by its window), with a seed."""

    candidate: Candidate
    fold: str
    seed: int = 0

    def __str__(self) -> str:
        name = f"{self.candidate}.fold{self.fold}.seed{self.seed}"
        return name.replace(":", ".").replace(" ", "_")


@dataclass(eq=False)
class Scores:
    """Out-of-fold probabilities of candidates for the labelled nodes of each fold, and scores.

    Rows after those of the labelled nodes are predictions for nodes of the window without a label.
    Folds are named by their window, oldest first. Probabilities are stored in float16, which is
    finer than their noise, for metrics by log-loss; ranks need float32. They are on disk, too, if
    there is a `store`. `scoring` is the metric of every fold, by default accuracy.
    """

    truth: dict[str, ndarray]
    store: Store | None = None
    predictions: dict[Unit, ndarray] = field(default_factory=dict)
    scoring: dict[str, Scoring] = field(default_factory=dict)

    def get(self, unit: Unit) -> ndarray | None:
        """The probabilities of a fit that was done before, in this run or an earlier one."""
        if unit not in self.predictions and self.store is not None:
            stored = self.store.array(f"fits/{unit}")
            if stored is not None:
                self.predictions[unit] = stored
        return self.predictions.get(unit)

    def put(self, unit: Unit, probabilities: ndarray) -> None:
        stored = probabilities.astype(np.float32)
        if self.scoring_of(unit.fold).rule.by_log_loss:
            stored = stored.astype(np.float16)
        self.predictions[unit] = stored
        if self.store is not None:
            self.store.put_array(f"fits/{unit}", stored)

    @property
    def folds(self) -> list[str]:
        return list(self.truth)

    def folds_of(self, candidate: Candidate) -> list[str]:
        """Folds on which a candidate was evaluated."""
        done = {unit.fold for unit in self.predictions if unit.candidate == candidate}
        return [fold for fold in self.folds if fold in done]

    def scoring_of(self, fold: str) -> Scoring:
        return self.scoring.get(fold, Scoring())

    # -- probabilities

    def probability(self, candidate: Candidate, fold: str) -> ndarray | None:
        """Mean over the seeds; None if the candidate was not evaluated on the fold."""
        by_seed = self._by_seed(candidate, fold)
        if not by_seed:
            return None
        num_labelled = len(self.truth[fold])
        return _mean([probabilities[:num_labelled] for probabilities in by_seed])

    def unlabelled_probability(self, candidate: Candidate, fold: str) -> ndarray:
        """The same for nodes of the fold's window that have no label."""
        num_labelled = len(self.truth[fold])
        by_seed = self._by_seed(candidate, fold)
        return _mean([probabilities[num_labelled:] for probabilities in by_seed])

    def true_class_probability(self, candidate: Candidate, fold: str) -> ndarray:
        """The probability of the true label of every node, as a mean over the seeds."""
        by_seed = self._by_seed(candidate, fold)
        truth = self.truth[fold]
        return _mean([probability_of(truth, probabilities) for probabilities in by_seed])

    def loss_inputs(self, candidate: Candidate, fold: str) -> ndarray:
        """What the loss of a fold reads: all probabilities, or only those of the true labels."""
        if self.scoring_of(fold).rule.by_log_loss:
            return self.true_class_probability(candidate, fold)
        probabilities = self.probability(candidate, fold)
        assert probabilities is not None
        return probabilities

    def _by_seed(self, candidate: Candidate, fold: str) -> list[ndarray]:
        return [
            probabilities
            for unit, probabilities in self.predictions.items()
            if unit.candidate == candidate and unit.fold == fold
        ]

    # -- scores

    def per_node_score(self, candidate: Candidate, fold: str, scoring: Scoring) -> ndarray:
        """A number per node of a fold, whose mean is the candidate's score."""
        probabilities = self.probability(candidate, fold)
        assert probabilities is not None
        tilt = self.scoring_of(fold).rule.tilt
        return scoring.each(probabilities, self.truth[fold], tilt)

    def accuracy(self, candidate: Candidate) -> float | None:
        """Weighted mean over the folds, newer ones counting more; None without a fold."""
        accuracies = []
        for fold in self.folds_of(candidate):
            scoring = Scoring("accuracy", self.scoring_of(fold).prior)
            accuracies.append(self.score(candidate, fold, scoring))
        if not accuracies:
            return None
        return float(np.dot(fold_weights(len(accuracies)), accuracies))

    def score(self, candidate: Candidate, fold: str, scoring: Scoring) -> float:
        return float(self.per_node_score(candidate, fold, scoring).mean())

    def by_fold(self, candidate: Candidate) -> dict[str, float]:
        """The score of every fold, as the metric is displayed."""
        scores = {}
        for fold in self.folds_of(candidate):
            scoring = self.scoring_of(fold)
            scores[fold] = scoring.rule.displayed(self.score(candidate, fold, scoring))
        return scores

    def fold_loss(self, candidate: Candidate, fold: str) -> float:
        """The loss that ranks candidates on a fold; infinite if it was not evaluated there."""
        by_seed = self._by_seed(candidate, fold)
        if not by_seed:
            return math.inf
        predictions = self.loss_inputs(candidate, fold)
        num_labels = by_seed[0].shape[1]
        return self.scoring_of(fold).loss(predictions, self.truth[fold], num_labels)

    def loss(self, candidate: Candidate) -> float | None:
        """Log-loss over the folds, newer ones counting more; None without a fold."""
        losses = []
        for fold in self.folds_of(candidate):
            num_labels = self._by_seed(candidate, fold)[0].shape[1]
            probability = self.true_class_probability(candidate, fold)
            losses.append(log_loss(probability, num_labels))
        return mean_fold_loss(losses) if losses else None

    def differences(
        self, candidate: Candidate, reference: Candidate = BASELINE
    ) -> dict[str, tuple[float, float]]:
        """Score minus the reference's in every fold that has both, and its standard error."""
        differences = {}
        reference_folds = self.folds_of(reference)
        for fold in self.folds_of(candidate):
            if fold in reference_folds:
                scoring = self.scoring_of(fold)
                ours = self.per_node_score(candidate, fold, scoring)
                theirs = self.per_node_score(reference, fold, scoring)
                differences[fold] = mean_and_error(ours, theirs)
        return differences

    def difference(
        self, candidate: Candidate, reference: Candidate = BASELINE, *, level: float = 0.95
    ) -> Estimate | None:
        """Score minus the reference's, paired by node, over all folds; None without common ones."""
        differences = self.differences(candidate, reference)
        if not differences:
            return None
        values, errors = np.array(list(differences.values())).T
        return combined(values, errors, level=level)

    def ranked(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        """Candidates from the least loss to the greatest, those with more folds first."""

        def rank(candidate: Candidate) -> tuple[int, float]:
            losses = [self.fold_loss(candidate, fold) for fold in self.folds_of(candidate)]
            return -len(losses), mean_fold_loss(losses) if losses else math.inf

        return sorted(dict.fromkeys(candidates), key=rank)


def _mean(by_seed: list[ndarray]) -> ndarray:
    return np.mean([probabilities.astype(np.float32) for probabilities in by_seed], axis=0)
