"""Selects an ensemble from out-of-fold predictions, and estimates its gain and calibration.

Every claim about the ensemble is measured on a fold that did not select it: for each fold, the
ensemble is selected again from the other folds, without the nodes that both folds share, and
calibrated by the other folds. With a single fold, two random halves of its nodes take the place of
folds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TypeAlias

import numpy as np
from numpy import ndarray

from impact_gnn.backtesting.folds import (
    Window,
    learnable,
    majority_before,
    prior_before,
    prior_drift,
    times_of,
    unlabelled_in,
)
from impact_gnn.backtesting.forecast import labelled_shares
from impact_gnn.backtesting.greedy import MIN_GAIN, fold_weights, greedy_weights, mean_fold_loss
from impact_gnn.backtesting.results import (
    BASELINE,
    CLASS_PRIOR,
    LAST_LABELS,
    FoldCheck,
    PeriodScore,
    Selection,
    SelectionReason,
    SimpleResult,
)
from impact_gnn.backtesting.scores import Scores
from impact_gnn.estimators import Calibration, Candidate, EnsembleSpec, Member
from impact_gnn.estimators.calibration import (
    FINE_BINS,
    MAX_HARM,
    OutOfFold,
    calibration_error,
    confusion,
    fit_calibration,
    reliability,
)
from impact_gnn.graph import TemporalGraph
from impact_gnn.label_shift import reweighted
from impact_gnn.metrics import Scoring, log_loss, mean_and_error
from impact_gnn.statistics import Estimate, combined

DRIFT_STRENGTHS = (0.5, 1.0)  # shares of the forecast drift of class proportions
CLEAR_GAIN = 0.01  # relative decrease of a loss that a simpler prediction must achieve

MAJORITY = "majority class"
BASELINE_ALONE = EnsembleSpec.single(BASELINE)
PRIOR_ALONE = EnsembleSpec.single(CLASS_PRIOR)
LAST_ALONE = EnsembleSpec.single(LAST_LABELS)
# Predictions without a model, and the reason why one of them is selected.
SIMPLEST = {
    PRIOR_ALONE: SelectionReason.CLASS_PRIOR,
    LAST_ALONE: SelectionReason.LAST_LABELS,
}
# Ensembles that are not selected by folds, so every fold can evaluate them.
FIXED = (BASELINE_ALONE, *SIMPLEST)

WindowIndex: TypeAlias = ndarray
"""Positions among the labelled nodes of a window, the order of its truth and predictions."""


@dataclass(frozen=True, eq=False)
class Holdout:
    """Labelled nodes that are left out together: those of a window, or a random half of them."""

    window: Window
    index: WindowIndex  # [n]
    time: ndarray  # [n]

    def without_nodes_of(self, other: Holdout) -> Holdout:
        """The holdout without the nodes that another window has, too."""
        # Two halves of one window share no nodes.
        if self.window == other.window:
            return self
        return self.subset((self.time < other.window.first) | (self.time > other.window.last))

    def subset(self, nodes: ndarray) -> Holdout:
        """Some nodes of the holdout, by a mask over them or by their positions among them."""
        return Holdout(self.window, self.index[nodes], self.time[nodes])


@dataclass(frozen=True, eq=False)
class CalibratedFold:
    """Calibrated predictions of a holdout, and their calibration."""

    probabilities: ndarray
    calibration: Calibration


@dataclass(frozen=True, eq=False)
class EnsembleSelection:
    """Selects an ensemble by holdouts; the argument `k` of methods is a position in `holdouts`."""

    scores: Scores
    finalists: Sequence[Candidate]  # evaluated on every fold, the best first
    windows: Sequence[Window]  # oldest first
    graph: TemporalGraph
    # of ensembles that no fold selects
    _calibrated: dict[EnsembleSpec, list[CalibratedFold]] = field(
        default_factory=dict, init=False, repr=False
    )

    @cached_property
    def holdouts(self) -> list[Holdout]:
        """One per window, oldest first; two random halves of a single window."""
        holdouts = []
        for window in self.windows:
            time = times_of(self.graph, window)
            holdouts.append(Holdout(window, np.arange(len(time)), time))
        if len(holdouts) > 1:
            return holdouts
        whole = holdouts[0]
        shuffled = np.random.default_rng(0).permutation(len(whole.time))
        return [whole.subset(np.sort(half)) for half in np.array_split(shuffled, 2)]

    @cached_property
    def drifts(self) -> dict[Window, ndarray]:
        """The forecast drift of class proportions for every window, by the labels before it."""
        return {window: prior_drift(self.graph, window.first) for window in self.windows}

    @property
    def holdout_weights(self) -> ndarray:
        return self.weights_of(len(self.holdouts))

    def weights_of(self, count: int) -> ndarray:
        """Weights of some holdouts: newer windows count more, halves of one window the same."""
        if len(self.windows) == 1:
            return np.full(count, 1 / count)
        return fold_weights(count)

    @property
    def metric(self) -> str:
        return self.scores.scoring_of(str(self.windows[-1])).metric

    # -- selection

    def select(self, *, out_of_time: bool = False) -> Selection:
        """The ensemble, if it improves on folds that did not select it; otherwise the baseline.

        If one of the simplest predictions is clearly better, neither is selected.
        """
        selection = self.select_model(out_of_time=out_of_time)
        # Without the baseline no calibration and no checks follow.
        if BASELINE not in self.finalists:
            return selection
        selected = selection.ensemble
        better = [one for one in self.simplest if self.is_better(one, selected)]
        if selected in self.simplest:
            better.append(selected)
        if not better:
            return selection
        simple = min(better, key=lambda one: self.overall_loss(self.calibrated_folds(one)))
        # The gain is that of an ensemble that is not selected.
        return replace(selection, ensemble=simple, reason=SIMPLEST[simple], gain=None)

    def select_model(self, *, out_of_time: bool) -> Selection:
        """The ensemble or the baseline."""
        others = [candidate for candidate in self.finalists if candidate != BASELINE]
        if not others or BASELINE not in self.finalists:
            reason = SelectionReason.OUT_OF_TIME if out_of_time else SelectionReason.NONE_TRIED
            return Selection(BASELINE_ALONE, reason, metric=self.metric)
        ensemble = self.select_members(self.holdouts)
        gain = self.score_difference(self.calibrated_out_of_fold, self.calibrated_baseline)
        if ensemble == BASELINE_ALONE or self.is_no_better(gain):
            return Selection(
                ensemble=BASELINE_ALONE,
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
        """The ensemble selected by some holdouts, oldest first.

        Where class proportions drift, candidates would be ranked by the proportions that they
        learned. If that lowers the newest loss clearly and harms none, they are compared under the
        forecast proportions.
        Nodes of classes that no candidate can have learned by then are left out: on them the least
        confident candidate is the best.
        """
        holdouts = [holdout.subset(self.is_learnable(holdout)) for holdout in holdouts]
        ensemble, losses = self.select_under_drift(holdouts, 0.0)
        weights = self.weights_of(len(holdouts))
        for strength in DRIFT_STRENGTHS:
            other, other_losses = self.select_under_drift(holdouts, strength)
            is_harmless = (other_losses <= (1 + MAX_HARM) * losses).all()
            helps_newest = other_losses[-1] < (1 - CLEAR_GAIN) * losses[-1]
            is_better = mean_fold_loss(other_losses, weights) < mean_fold_loss(losses, weights)
            if is_harmless and helps_newest and is_better:
                ensemble, losses = other, other_losses
        return ensemble

    def select_under_drift(
        self, holdouts: Sequence[Holdout], strength: float
    ) -> tuple[EnsembleSpec, ndarray]:
        """The ensemble by predictions with a share of the forecast drift, and its losses."""
        # Of equal candidates the first is selected, so simple ones come first.
        candidates = sorted(
            dict.fromkeys([*self.finalists, CLASS_PRIOR]),
            key=lambda candidate: candidate.num_parts,
        )
        # By candidate c and holdout k: `predictions[c][k]`.
        predictions = [
            [self.loss_inputs(candidate, holdout, strength) for holdout in holdouts]
            for candidate in candidates
        ]
        weights = greedy_weights(
            predictions=predictions,
            losses=[partial(self.loss, holdout) for holdout in holdouts],
            fold_weights=self.weights_of(len(holdouts)),
            candidates=candidates,
        )
        heaviest_first = np.argsort(-weights, kind="stable")
        selected = [c for c in heaviest_first if weights[c] > 0]
        losses = []
        for k, holdout in enumerate(holdouts):
            blended = np.sum([weights[c] * predictions[c][k] for c in selected], axis=0)
            losses.append(self.loss(holdout, blended))
        members = tuple(Member(candidates[c], float(weights[c])) for c in selected)
        return EnsembleSpec(members), np.array(losses)

    def score_difference(
        self, folds: Sequence[CalibratedFold], others: Sequence[CalibratedFold]
    ) -> Estimate:
        """The score of predictions for all holdouts minus that of others, combined."""
        # Of every holdout: the difference and its standard error [holdouts, 2].
        differences = [
            mean_and_error(self.per_node_score(k, fold), self.per_node_score(k, other))
            for k, (fold, other) in enumerate(zip(folds, others, strict=True))
        ]
        return combined(*np.array(differences).T)

    def is_no_better(self, gain: Estimate) -> bool:
        """Whether ensembles gain nothing on holdouts that did not select them.

        For accuracy the log-loss decides, which must be clearly smaller: numbers of correct
        predictions are too coarse.
        """
        if self.metric != "accuracy":
            return gain.value <= 0
        baseline = self.predictions_of(BASELINE_ALONE)
        # Under the class proportions that suit the baseline best: those learned, or forecast ones.
        loss, strength = min(
            (self.drifted_loss(baseline, strength), strength)
            for strength in (0.0, *DRIFT_STRENGTHS)
        )
        return self.drifted_loss(self.out_of_fold, strength) > (1 - MIN_GAIN) * loss

    def drifted_loss(self, folds: Sequence[OutOfFold], strength: float) -> float:
        """Log-loss on nodes whose classes could be learned, with a share of the forecast drift."""
        drifted = []
        for fold in folds:
            calibration = Calibration().with_drift(fold.drift, strength)
            probabilities = calibration.apply(fold.probability, fold.prior)
            drifted.append(CalibratedFold(probabilities, calibration))
        return self.overall_loss(drifted)

    def learnable_loss(self, k: int, probabilities: ndarray) -> float:
        """Log-loss on nodes of a holdout whose classes could be learned."""
        mask = self.is_learnable(self.holdouts[k])
        truth = self.truth(self.holdouts[k])[mask]
        true_class = probabilities[mask][np.arange(len(truth)), truth]
        return log_loss(true_class, self.graph.num_labels)

    @property
    def simplest(self) -> list[EnsembleSpec]:
        """Predictions without a model that can be selected."""
        return [
            ensemble
            for ensemble in SIMPLEST
            if ensemble == PRIOR_ALONE or ensemble.candidates[0] in self.finalists
        ]

    def is_better(self, simple: EnsembleSpec, ensemble: EnsembleSpec) -> bool:
        """Whether a simpler prediction has a clearly lower loss.

        Its score must not be lower in the newest holdout: a forecast that failed long ago, before
        the proportions began to drift, says little. Where the ensemble is less accurate than the
        majority class there, any lower loss is enough: the labels of the forecast proportions are
        those of the majority class, unless these proportions are about to change.
        """
        ours = self.calibrated_folds(ensemble)
        theirs = self.calibrated_folds(simple)
        required_gain = 0.0 if self.is_below_majority(ours) else CLEAR_GAIN
        if self.overall_loss(theirs) >= (1 - required_gain) * self.overall_loss(ours):
            return False
        newest = len(self.holdouts) - 1
        score = self.per_node_score(newest, ours[newest]).mean()
        return bool(score <= self.per_node_score(newest, theirs[newest]).mean())

    def is_below_majority(self, folds: Sequence[CalibratedFold]) -> bool:
        """Whether predictions are less accurate than the majority class on the newest holdout."""
        if self.metric != "accuracy":
            return False
        newest = len(self.holdouts) - 1
        majority = self.majority_folds[newest]
        accuracy = self.per_node_score(newest, folds[newest]).mean()
        return bool(accuracy < self.per_node_score(newest, majority).mean())

    @cached_property
    def majority_folds(self) -> list[CalibratedFold]:
        """The majority class of the last labelled periods before every holdout, as certain."""
        one_hot = np.eye(self.graph.num_labels)
        return [
            CalibratedFold(
                probabilities=one_hot[[majority_before(self.graph, one.window)] * len(one.index)],
                calibration=Calibration(),
            )
            for one in self.holdouts
        ]

    def compare_simplest(self, ensemble: EnsembleSpec) -> list[SimpleResult]:
        """Scores of the simplest predictions on all holdouts, and of the selection as the last."""
        majority = self.simple_result(MAJORITY, self.majority_folds)
        # A certain class has an infinite loss and no ranks, but an accuracy.
        majority = replace(majority, loss=None)
        if self.metric != "accuracy":
            majority = replace(majority, score=None, newest_score=None)
        others = [self.simple_result(str(one), self.calibrated_folds(one)) for one in self.simplest]
        selected = self.simple_result("selected model", self.calibrated_folds(ensemble))
        return [majority, *others, selected]

    def simple_result(self, name: str, folds: Sequence[CalibratedFold]) -> SimpleResult:
        """Loss and scores of predictions for all holdouts."""
        scores = [float(self.per_node_score(k, fold).mean()) for k, fold in enumerate(folds)]
        display = self.scoring_of(self.holdouts[-1]).rule.displayed
        return SimpleResult(
            name=name,
            loss=self.overall_loss(folds),
            score=display(float(self.holdout_weights @ scores)),
            newest_score=display(scores[-1]),
        )

    def overall_loss(self, folds: Sequence[CalibratedFold]) -> float:
        """Log-loss on nodes whose classes could be learned, over all holdouts."""
        losses = [self.learnable_loss(k, fold.probabilities) for k, fold in enumerate(folds)]
        return mean_fold_loss(losses, self.holdout_weights)

    # -- predictions without the fold that they are scored on

    @cached_property
    def out_of_fold(self) -> list[OutOfFold]:
        """Predictions for every holdout by the ensemble that the other holdouts select."""
        folds = []
        for k, holdout in enumerate(self.holdouts):
            others = [
                other.without_nodes_of(holdout) for other in self.holdouts if other is not holdout
            ]
            folds.append(self.predict(k, self.select_members(others)))
        return folds

    @cached_property
    def calibrated_out_of_fold(self) -> list[CalibratedFold]:
        return calibrate_each_by_others(self.out_of_fold, self.metric)

    @cached_property
    def calibrated_baseline(self) -> list[CalibratedFold]:
        """The baseline on every holdout; only accuracy needs no calibration."""
        folds = self.predictions_of(BASELINE_ALONE)
        if self.metric == "accuracy":
            return [CalibratedFold(fold.probability, Calibration()) for fold in folds]
        return calibrate_each_by_others(folds, self.metric)

    def calibrated_folds(self, ensemble: EnsembleSpec) -> list[CalibratedFold]:
        """Predictions of the selection, every fold calibrated by the others."""
        if ensemble not in FIXED:
            return self.calibrated_out_of_fold
        if ensemble not in self._calibrated:
            self._calibrated[ensemble] = self._calibrate(ensemble)
        return self._calibrated[ensemble]

    def _calibrate(self, ensemble: EnsembleSpec) -> list[CalibratedFold]:
        folds = self.predictions_of(ensemble)
        if ensemble not in SIMPLEST:
            return calibrate_each_by_others(folds, self.metric)
        # They need no calibration but the forecast of the class proportions.
        return [calibrated_by(Calibration().with_drift(fold.drift, 1.0), fold) for fold in folds]

    def predictions_of(self, ensemble: EnsembleSpec) -> list[OutOfFold]:
        """Out-of-fold predictions of the selection.

        The baseline and the simplest are fixed; other ensembles are selected again per holdout.
        """
        if ensemble not in FIXED:
            return self.out_of_fold
        return [self.predict(k, ensemble) for k in range(len(self.holdouts))]

    def predict(self, k: int, ensemble: EnsembleSpec) -> OutOfFold:
        """Predictions of an ensemble for a holdout, with what calibration needs."""
        holdout = self.holdouts[k]
        return OutOfFold(
            probability=self.ensemble_probabilities(ensemble, holdout),
            truth=self.truth(holdout),
            prior=prior_before(self.graph, holdout.window),
            # Squared, because an old calibration is worth less than an old ranking of candidates.
            weight=float(self.holdout_weights[k]) ** 2,
            drift=self.drifts[holdout.window],
        )

    # -- calibration and checks

    def fit_calibration(self, ensemble: EnsembleSpec) -> Calibration:
        """The calibration of this ensemble, by its own predictions for all folds."""
        folds = [self.predict(k, ensemble) for k in range(len(self.holdouts))]
        drift = prior_drift(self.graph, self.graph.require_cutoff("a calibration needs"))
        calibration = fit_calibration(folds, metric=self.metric, drift=drift)
        if ensemble in SIMPLEST:
            calibration = Calibration().with_drift(drift, 1.0)
        # Few targets cannot decide the threshold of their sets: it is that of the newest fold.
        newest = calibrated_by(calibration.for_fold(folds[-1]), folds[-1])
        return replace(calibration, threshold=newest.calibration.threshold)

    def check_each_fold(self, ensemble: EnsembleSpec) -> list[FoldCheck]:
        """Scores of every holdout, by an ensemble and a calibration from the other ones."""
        folds = self.predictions_of(ensemble)
        calibrated = self.calibrated_folds(ensemble)
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
        holdout = self.holdouts[k]
        truth = fold.truth
        probabilities = calibrated.probabilities
        calibration = calibrated.calibration
        label = calibration.labels(probabilities, fold.prior)
        # The selected ensemble, which this holdout helped to select and to calibrate.
        final = final.for_fold(fold)
        final_probabilities = final.apply(
            self.ensemble_probabilities(ensemble, holdout), fold.prior
        )
        final_label = final.labels(final_probabilities, fold.prior)
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
            labelled=self.labelled_by_confidence(
                holdout, ensemble, final, final_probabilities.max(1)
            ),
        )

    def labelled_by_confidence(
        self, holdout: Holdout, ensemble: EnsembleSpec, final: Calibration, labelled: ndarray
    ) -> list[float]:
        """Share of a window's nodes that have a label, by the confidence of the final ensemble.

        `labelled` is this confidence on the holdout.
        """
        num_unlabelled = len(unlabelled_in(self.graph, holdout.window))
        if not num_unlabelled or CLASS_PRIOR in ensemble.candidates:
            return []
        prior = prior_before(self.graph, holdout.window)
        unlabelled = final.apply(self.unlabelled_probabilities(ensemble, holdout), prior).max(1)
        # The holdout is a part of the window, and the unlabelled nodes are a sample.
        share = len(holdout.index) / len(self.scores.truth[str(holdout.window)])
        return labelled_shares(labelled, unlabelled, share * num_unlabelled / len(unlabelled))

    # -- values of one holdout

    def is_learnable(self, holdout: Holdout) -> ndarray:
        """Mask of nodes in classes with enough examples before the window; all without any."""
        mask = learnable(self.graph, holdout.window)[holdout.index]
        return mask if mask.any() else np.ones(len(mask), bool)

    def ensemble_probabilities(self, ensemble: EnsembleSpec, holdout: Holdout) -> ndarray:
        """The weighted mean of the members' probabilities."""
        weighted = [
            member.weight * self.probabilities_of(member.candidate, holdout)
            for member in ensemble.members
        ]
        return np.sum(weighted, axis=0)

    def unlabelled_probabilities(self, ensemble: EnsembleSpec, holdout: Holdout) -> ndarray:
        """The same for nodes of the window that have no label."""
        fold = str(holdout.window)
        return np.average(
            [self.scores.unlabelled_probability(one, fold) for one in ensemble.candidates],
            axis=0,
            weights=[member.weight for member in ensemble.members],
        )

    def probabilities_of(self, candidate: Candidate, holdout: Holdout) -> ndarray:
        if candidate == CLASS_PRIOR:
            return np.tile(prior_before(self.graph, holdout.window), (len(holdout.index), 1))
        probabilities = self.scores.probability(candidate, str(holdout.window))
        assert probabilities is not None
        return probabilities[holdout.index]

    def loss_inputs(self, candidate: Candidate, holdout: Holdout, strength: float) -> ndarray:
        """What the loss reads, with a share of the forecast drift of class proportions.

        For metrics by log-loss, probabilities of the true class [n], otherwise of all [n, Y].
        """
        if strength == 0 and candidate != CLASS_PRIOR:
            return self.scores.loss_inputs(candidate, str(holdout.window))[holdout.index]
        factor = np.exp(strength * self.drifts[holdout.window])
        drifted = reweighted(self.probabilities_of(candidate, holdout), factor)
        if self.scoring_of(holdout).rule.by_log_loss:
            return drifted[np.arange(len(drifted)), self.truth(holdout)]
        return drifted

    def truth(self, holdout: Holdout) -> ndarray:
        return self.scores.truth[str(holdout.window)][holdout.index]

    def scoring_of(self, holdout: Holdout) -> Scoring:
        return self.scores.scoring_of(str(holdout.window))

    def loss(self, holdout: Holdout, predictions: ndarray) -> float:
        scoring = self.scoring_of(holdout)
        return scoring.loss(predictions, self.truth(holdout), self.graph.num_labels)

    def per_node_score(self, k: int, fold: CalibratedFold, metric: str | None = None) -> ndarray:
        """A number per node of a holdout [n], whose mean is the score."""
        scoring = self.scoring_of(self.holdouts[k])
        if metric is not None:
            scoring = replace(scoring, metric=metric)
        return scoring.each(fold.probabilities, self.truth(self.holdouts[k]), fold.calibration.tilt)


def score_periods(
    time: ndarray, is_right: ndarray, baseline_is_right: ndarray
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
        calibrated.append(calibrated_by(calibration, fold))
    return calibrated


def calibrated_by(calibration: Calibration, fold: OutOfFold) -> CalibratedFold:
    """A fold's predictions by a calibration, and the threshold of their sets."""
    calibration = calibration.fixed_for(fold.probability, fold.prior)
    probabilities = calibration.apply(fold.probability, fold.prior)
    label = calibration.labels(probabilities, fold.prior)
    weight = np.ones(len(label))
    return CalibratedFold(probabilities, calibration.covering(probabilities, label, weight))
