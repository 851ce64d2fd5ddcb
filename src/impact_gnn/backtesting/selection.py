"""Selects an ensemble from out-of-fold predictions, and estimates its gain and calibration.

Every claim about the ensemble is measured on a fold that did not select it: for each fold, the
ensemble is selected again from the other folds, without the nodes that both folds share, and
calibrated by the other folds. With a single fold, two random halves of its nodes take the place of folds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from impact_gnn.backtesting.folds import (
    Window,
    learnable,
    prior_before,
    prior_drift,
    times_of,
)
from impact_gnn.backtesting.greedy import MIN_GAIN, fold_weights, greedy_weights, overall
from impact_gnn.backtesting.results import (
    BASELINE,
    FoldCheck,
    PeriodScore,
    Selection,
    SelectionReason,
)
from impact_gnn.backtesting.scores import Scores
from impact_gnn.estimators import Calibration, Candidate, EnsembleSpec, Member
from impact_gnn.estimators.calibration import (
    FINE_BINS,
    OutOfFold,
    calibration_error,
    confusion,
    fit_calibration,
    reliability,
)
from impact_gnn.graph import TemporalGraph
from impact_gnn.metrics import Scoring, mean_and_error
from impact_gnn.statistics import Estimate, combined


@dataclass(frozen=True, eq=False)
class Holdout:
    """Nodes that are left out together: those of a window, or half of them."""

    window: Window
    index: np.ndarray  # positions among the labelled nodes of the window
    time: np.ndarray

    def without_nodes_of(self, other: Holdout) -> Holdout:
        """The holdout without the nodes that another window has, too."""
        if self.window == other.window:
            return self
        return self.subset((self.time < other.window.first) | (self.time > other.window.last))

    def subset(self, mask: np.ndarray) -> Holdout:
        """The nodes that a mask over the holdout keeps."""
        return Holdout(self.window, self.index[mask], self.time[mask])


@dataclass(frozen=True, eq=False)
class CalibratedFold:
    """Predictions of a holdout, calibrated by the other holdouts."""

    probabilities: np.ndarray
    calibration: Calibration


@dataclass(frozen=True, eq=False)
class EnsembleSelection:
    """Selects among candidates that were evaluated on every fold; they come best first."""

    scores: Scores
    finalists: Sequence[Candidate]
    windows: Sequence[Window]
    graph: TemporalGraph

    @cached_property
    def holdouts(self) -> list[Holdout]:
        times = [times_of(self.graph, window) for window in self.windows]
        if len(times) > 1:
            return [
                Holdout(window, np.arange(len(time)), time)
                for window, time in zip(self.windows, times, strict=True)
            ]
        shuffled = np.random.default_rng(0).permutation(len(times[0]))
        halves = [np.sort(half) for half in np.array_split(shuffled, 2)]
        return [Holdout(self.windows[0], half, times[0][half]) for half in halves]

    @property
    def holdout_weights(self) -> np.ndarray:
        """Weights of the holdouts: newer windows count more, halves of one window the same."""
        if len(self.windows) == 1:
            return np.full(2, 0.5)
        return fold_weights(len(self.holdouts))

    @property
    def metric(self) -> str:
        return self.scores.scoring_of(str(self.windows[-1])).metric

    # -- selection

    def select(self, *, out_of_time: bool = False) -> Selection:
        """The ensemble, if it improves on folds that did not select it; otherwise the baseline."""
        others = [candidate for candidate in self.finalists if candidate != BASELINE]
        baseline = EnsembleSpec.single(BASELINE)
        if not others or BASELINE not in self.finalists:
            reason = SelectionReason.OUT_OF_TIME if out_of_time else SelectionReason.NONE_TRIED
            return Selection(baseline, reason, metric=self.metric)
        ensemble = self.select_members(self.holdouts)
        gains = np.array([self.gain_on(k) for k in range(len(self.holdouts))])
        gain = combined(*gains.T)
        if ensemble == baseline or self.is_no_better(gain):
            return Selection(
                ensemble=baseline,
                reason=SelectionReason.NONE_BETTER,
                best_single=others[0],
                gain=self.scores.difference(others[0]),
                num_folds=len(self.windows),
                metric=self.metric,
            )
        is_single = ensemble == EnsembleSpec.single(self.finalists[0])
        return Selection(
            ensemble=ensemble,
            reason=SelectionReason.BETTER,
            best_single=None if is_single else self.finalists[0],
            gain=gain,
            num_folds=len(self.windows),
            metric=self.metric,
        )

    def select_members(self, holdouts: Sequence[Holdout]) -> EnsembleSpec:
        """The ensemble selected by some holdouts, oldest first; simple candidates come first.

        Nodes of classes that no candidate can have learned by then are left out: on them the least
        confident candidate is the best.
        """
        holdouts = [holdout.subset(self.is_learnable(holdout)) for holdout in holdouts]
        candidates = sorted(self.finalists, key=lambda candidate: candidate.num_parts)
        weights = greedy_weights(
            predictions=[
                [self.loss_inputs(candidate, holdout) for holdout in holdouts]
                for candidate in candidates
            ],
            losses=[partial(self.loss, holdout) for holdout in holdouts],
            fold_weights=self._equal_weights(holdouts),
            fits=[candidate.smoothed(False) for candidate in candidates],
        )
        heaviest_first = np.argsort(-weights, kind="stable")
        return EnsembleSpec(
            tuple(
                Member(candidates[k], float(weights[k])) for k in heaviest_first if weights[k] > 0
            )
        )

    def _equal_weights(self, holdouts: Sequence[Holdout]) -> np.ndarray | None:
        """Equal weights for halves of a single window; None for the usual weights of folds."""
        if len(self.windows) > 1:
            return None
        return np.full(len(holdouts), 1 / len(holdouts))

    def gain_on(self, k: int) -> tuple[float, float]:
        """Score minus the baseline's on a holdout that did not select, and its standard error."""
        ours = self.per_node_score(k, self.calibrated_out_of_fold[k])
        return mean_and_error(ours, self.per_node_score(k, self.calibrated_baseline[k]))

    def is_no_better(self, gain: Estimate) -> bool:
        """Whether ensembles gain nothing on holdouts that did not select them.

        For accuracy the log-loss decides, which must be clearly smaller: hits are too coarse.
        """
        if self.metric != "accuracy":
            return gain.value <= 0
        ours, baseline = [], []
        for holdout, fold in zip(self.holdouts, self.out_of_fold, strict=True):
            mask = self.is_learnable(holdout)
            learnable_part = holdout.subset(mask)
            ours.append(self.loss(learnable_part, fold.probability[mask]))
            baseline.append(self.loss(learnable_part, self.loss_inputs(BASELINE, learnable_part)))
        weights = self.holdout_weights
        return overall(ours, weights) > (1 - MIN_GAIN) * overall(baseline, weights)

    # -- predictions without the fold that they are scored on

    @cached_property
    def out_of_fold(self) -> list[OutOfFold]:
        """Predictions for every holdout by the ensemble that the other holdouts select."""
        folds = []
        for k, holdout in enumerate(self.holdouts):
            others = [
                other.without_nodes_of(holdout) for j, other in enumerate(self.holdouts) if j != k
            ]
            folds.append(self.predict(k, self.select_members(others)))
        return folds

    @cached_property
    def calibrated_out_of_fold(self) -> list[CalibratedFold]:
        return calibrate_each_by_others(self.out_of_fold, self.metric)

    @cached_property
    def calibrated_baseline(self) -> list[CalibratedFold]:
        """The baseline on every holdout; only accuracy needs no calibration."""
        folds = self.predictions_of(EnsembleSpec.single(BASELINE))
        if self.metric == "accuracy":
            return [CalibratedFold(fold.probability, Calibration()) for fold in folds]
        return calibrate_each_by_others(folds, self.metric)

    def predictions_of(self, ensemble: EnsembleSpec) -> list[OutOfFold]:
        """Out-of-fold predictions of the selection; no fold has selected the baseline."""
        if ensemble != EnsembleSpec.single(BASELINE):
            return self.out_of_fold
        return [self.predict(k, ensemble) for k in range(len(self.holdouts))]

    def predict(self, k: int, ensemble: EnsembleSpec) -> OutOfFold:
        """Predictions of an ensemble for a holdout, with what calibration needs."""
        holdout = self.holdouts[k]
        return OutOfFold(
            probability=self.ensemble_probabilities(ensemble, holdout),
            truth=self.truth(holdout),
            prior=prior_before(self.graph, holdout.window),
            # Calibration ages faster than the order of candidates.
            weight=float(self.holdout_weights[k]) ** 2,
            drift=prior_drift(self.graph, holdout.window.first),
        )

    # -- calibration and checks

    def fit_calibration(self, ensemble: EnsembleSpec) -> Calibration:
        """The calibration of this ensemble, by its own predictions for all folds."""
        folds = [self.predict(k, ensemble) for k in range(len(self.holdouts))]
        drift = prior_drift(self.graph, self.graph.hidden_from("a calibration needs"))
        return fit_calibration(folds, metric=self.metric, drift=drift)

    def check_each_fold(self, ensemble: EnsembleSpec) -> list[FoldCheck]:
        """How an ensemble and its calibration, made without a fold, do on that fold."""
        folds = self.predictions_of(ensemble)
        calibrated = self.calibrated_out_of_fold
        if folds is not self.out_of_fold:
            calibrated = calibrate_each_by_others(folds, self.metric)
        final = self.fit_calibration(ensemble)
        return [
            self.check_fold(k, folds[k], calibrated[k], ensemble, final)
            for k in range(len(self.holdouts))
        ]

    def check_fold(
        self,
        k: int,
        fold: OutOfFold,
        calibrated: CalibratedFold,
        ensemble: EnsembleSpec,
        final: Calibration,
    ) -> FoldCheck:
        """Scores of one holdout; `final` is the calibration of the ensemble by all folds."""
        holdout, truth = self.holdouts[k], fold.truth
        probabilities, calibration = calibrated.probabilities, calibrated.calibration
        label = calibration.labels(probabilities, fold.prior)
        final_label = final.labels(self.ensemble_probabilities(ensemble, holdout), fold.prior)
        sets = calibration.sets(probabilities, label)
        row = np.arange(len(truth))
        baseline = self.calibrated_baseline[k]
        baseline_is_right = self.per_node_score(k, baseline, metric="accuracy")
        display = self.scoring_of(holdout).rule.displayed
        return FoldCheck(
            window=str(holdout.window),
            count=len(truth),
            unknown=int((fold.prior[truth] == 0).sum()),
            accuracy=float((label == truth).mean()),
            fitted=float((final_label == truth).mean()),
            plain=float(baseline_is_right.mean()),
            confidence=float(probabilities[row, label].mean()),
            error_before=calibration_error(fold.probability, truth),
            error=calibration_error(probabilities, truth, label),
            coverage=float(sets[row, truth].mean()),
            set_size=float(sets.sum(1).mean()),
            bins=reliability(probabilities, truth, label, FINE_BINS),
            score=display(float(self.per_node_score(k, calibrated).mean())),
            plain_score=display(float(self.per_node_score(k, baseline).mean())),
            confusion=confusion(truth, label),
            periods=score_periods(holdout.time, label == truth, baseline_is_right),
        )

    # -- values of one holdout

    def is_learnable(self, holdout: Holdout) -> np.ndarray:
        """Mask of nodes in classes with enough examples before the window; all if there are none."""
        mask = learnable(self.graph, holdout.window)[holdout.index]
        return mask if mask.any() else np.ones(len(mask), bool)

    def ensemble_probabilities(self, ensemble: EnsembleSpec, holdout: Holdout) -> np.ndarray:
        """The weighted mean of the members' probabilities."""
        weighted = [
            member.weight * self.probabilities_of(member.candidate, holdout)
            for member in ensemble.members
        ]
        return np.sum(weighted, axis=0)

    def probabilities_of(self, candidate: Candidate, holdout: Holdout) -> np.ndarray:
        probabilities = self.scores.probability(candidate, str(holdout.window))
        assert probabilities is not None
        return probabilities[holdout.index]

    def loss_inputs(self, candidate: Candidate, holdout: Holdout) -> np.ndarray:
        return self.scores.loss_inputs(candidate, str(holdout.window))[holdout.index]

    def truth(self, holdout: Holdout) -> np.ndarray:
        return self.scores.truth[str(holdout.window)][holdout.index]

    def scoring_of(self, holdout: Holdout) -> Scoring:
        return self.scores.scoring_of(str(holdout.window))

    def loss(self, holdout: Holdout, predictions: np.ndarray) -> float:
        scoring = self.scoring_of(holdout)
        return scoring.loss(predictions, self.truth(holdout), self.graph.num_labels)

    def per_node_score(self, k: int, fold: CalibratedFold, metric: str | None = None) -> np.ndarray:
        """A number per node of a holdout, whose mean is the score."""
        scoring = self.scoring_of(self.holdouts[k])
        if metric is not None:
            scoring = replace(scoring, metric=metric)
        return scoring.each(fold.probabilities, self.truth(self.holdouts[k]), fold.calibration.tilt)


def score_periods(
    time: np.ndarray, is_right: np.ndarray, baseline_is_right: np.ndarray
) -> list[PeriodScore]:
    """Accuracy of the ensemble and of the baseline in every period."""
    rows = []
    for period in np.unique(time):
        inside = time == period
        rows.append(
            PeriodScore(
                time=int(period),
                count=int(inside.sum()),
                accuracy=float(is_right[inside].mean()),
                plain=float(baseline_is_right[inside].mean()),
            )
        )
    return rows


def calibrate_each_by_others(folds: Sequence[OutOfFold], metric: str) -> list[CalibratedFold]:
    """Every fold's predictions, calibrated by the other folds."""
    calibrated = []
    for k, fold in enumerate(folds):
        others = [*folds[:k], *folds[k + 1 :]]
        calibration = fit_calibration(others, metric=metric, drift=fold.drift)
        probabilities = calibration.apply(fold.probability, fold.prior)
        calibrated.append(CalibratedFold(probabilities, calibration))
    return calibrated
