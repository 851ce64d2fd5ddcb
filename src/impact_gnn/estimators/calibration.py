"""Calibration: temperature, forecast class proportions, and prediction sets with 90 % coverage.

It is fitted on out-of-fold predictions of past periods; the sets follow from the calibrated
probabilities of the rows that are predicted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy import ndarray
from scipy.optimize import minimize_scalar

from impact_gnn.label_shift import TINY, reweighted, tempered
from impact_gnn.metrics import METRICS, Scoring, probability_of, tilted

DRIFT_STRENGTHS = (0.25, 0.5, 0.75, 1.0)  # candidates for the share of a forecast drift
TILTS = (0.0, 0.25, 0.5, 0.75, 1.0)  # candidates for the tilt of labels towards rare classes
DRIFT_ROWS = 10_000  # rows whose mean probability is compared with the forecast at most
DRIFT_STEPS = 11
SET_ROWS = 10_000  # that decide the threshold of prediction sets at most
MAX_HARM = 0.02  # relative increase of a fold's log-loss that a forecast of the prior may cost
CLEAR_HELP = 0.01  # relative decrease that it needs in the newest fold: equal losses prove nothing
MIN_HELP = 0.02  # relative decrease of the log-loss that it needs where there is a single fold
LOG_TEMPERATURES = (-1.4, 1.5)
# Chosen on 28 past windows of 13 data sets, each calibrated by the windows before it: the log-loss
# is 2.7 % lower than with a temperature alone, on 21 of 28, and never more than .5 % higher.
EVEN_SHARE = 0.01  # of the probability, spread evenly over the known classes
TEMPERATURE_PENALTY = 0.02  # times log(temperature)²: a few windows say little about the next one
BINS = 15
FINE_BINS = 60  # bins of a curve: a multiple of BINS and of 20
COVERAGE = 0.9


@dataclass(frozen=True)
class Calibration:
    """How to calibrate raw probabilities, and the threshold of prediction sets."""

    temperature: float = 1.0  # above 1 softens
    threshold: float = 0.0  # labels at least as probable form the set; 0 for all labels
    coverage: float = COVERAGE  # share of sets that contain the true label
    tilt: float = 0.0  # of labels towards rare classes, for metrics that need it
    bias: tuple[float, ...] = ()  # added to the log-probability of every class
    # the forecast drift of the class proportions since training, in logs, and the share applied
    drift: tuple[float, ...] = ()
    strength: float = 0.0
    even_share: float = 0.0  # of the probability, spread evenly: nodes may be unlike all before

    def apply(self, probability: ndarray, prior: ndarray) -> ndarray:
        """Calibrate rows that are predicted together; `prior` is the class prior in training."""
        bias = self.fixed_for(probability, prior).bias
        if bias:
            probability = reweighted(probability, np.exp(bias))
        probability = tempered(probability, self.temperature)
        if self.even_share:
            is_known = prior > 0
            probability *= 1 - self.even_share
            probability += self.even_share * is_known / is_known.sum()
        return probability

    def with_temperature(self, temperature: float) -> Calibration:
        """Return the calibration with another temperature, and an even share."""
        return replace(self, temperature=temperature, even_share=EVEN_SHARE)

    def with_drift(self, drift: ndarray | None, strength: float) -> Calibration:
        """Return the calibration for rows whose class proportions drift by `drift`, in logs."""
        if drift is None or strength == 0:
            return self
        return replace(self, drift=tuple(drift.tolist()), strength=strength)

    def for_fold(self, fold: OutOfFold) -> Calibration:
        """Return the calibration with the drift that was forecast for a fold."""
        return self.with_drift(fold.drift, self.strength)

    def fixed_for(self, probability: ndarray, prior: ndarray) -> Calibration:
        """Return the calibration with the bias that the drift means for these rows.

        It calibrates other rows in the same way, one by one. A model may have followed the drift
        already: the bias ends where the mean probability is nearest to the forecast proportions.
        """
        if not self.strength:
            return self
        drift = np.array(self.drift)
        forecast = prior * np.exp(drift)
        rows = probability[:: 1 + len(probability) // DRIFT_ROWS]
        shares = self.strength * np.linspace(0, 1, DRIFT_STEPS)
        # The cross-entropy of the forecast proportions and the mean probability, by share.
        distances = []
        for share in shares:
            mean = reweighted(rows, np.exp(share * drift)).mean(0)
            distances.append(-(forecast * np.log(np.maximum(mean, TINY))).sum())
        bias = shares[np.argmin(distances)] * drift
        return replace(self, bias=tuple(bias.tolist()), drift=(), strength=0.0)

    def covering(self, probability: ndarray, label: ndarray, weight: ndarray) -> Calibration:
        """Return the calibration with the threshold whose sets cover these calibrated rows.

        It is the highest one at which the sets contain `coverage` of the probability on average.
        Thresholds of past folds kept their coverage less well where targets are harder or easier.

        Args:
            probability: [n, Y].
            label: The predicted label of every row, which is always in its set.
            weight: Of the rows.

        Examples:
            >>> sure, unsure = [0.95, 0.05], [0.6, 0.4]
            >>> label, weight = np.array([0, 0]), np.ones(2)
            >>> rows = np.array([sure, unsure])
            >>> Calibration(coverage=0.8).covering(rows, label, weight).threshold
            0.4
        """
        step = 1 + len(probability) // SET_ROWS
        probability = probability[::step]
        label = label[::step]
        weight = weight[::step]
        # Every pair of a row and a class: those of predicted labels first, then by probability.
        rank = probability.astype(np.float64)
        rank[np.arange(len(label)), label] = np.inf
        order = np.argsort(-rank, axis=None, kind="stable")
        # The first pair at which the sets of all before it have enough of the probability.
        mass = (probability * weight[:, None]).ravel()[order]
        position = np.searchsorted(np.cumsum(mass), self.coverage * weight.sum())
        last = order[min(position, len(order) - 1)]
        return replace(self, threshold=min(float(rank.ravel()[last]), 1.0))

    def labels(self, probability: ndarray, prior: ndarray) -> ndarray:
        """Return the predicted label of every row, the one with the greatest p / prior^tilt."""
        return tilted(probability, prior, self.tilt).argmax(1)

    def sets(self, probability: ndarray, label: ndarray | None = None) -> ndarray:
        """Return the prediction set of every row as a mask [n, num_labels].

        It always contains the predicted `label`, by default the most probable one.
        """
        if label is None:
            label = probability.argmax(1)
        is_member = probability >= self.threshold
        is_member[np.arange(len(label)), label] = True
        return is_member


@dataclass(frozen=True, eq=False)
class OutOfFold:
    """Predictions of one fold: raw probabilities, true labels, training prior, weight.

    `drift` is the forecast change of the class proportions since training [Y], in logs.
    """

    probability: ndarray
    truth: ndarray
    prior: ndarray
    weight: float = 1.0
    drift: ndarray | None = None

    def of_known_classes(self) -> OutOfFold:
        """Return the rows whose class had training labels; all rows if there are none.

        No temperature can give the others a probability, but a high one would seem to.
        """
        rows = np.flatnonzero(self.prior[self.truth] > 0)
        if not len(rows):
            return self
        return replace(self, probability=self.probability[rows], truth=self.truth[rows])


@dataclass(frozen=True)
class _Correction:
    """A calibration, and the share of every fold's own forecast drift that it applies."""

    calibration: Calibration
    strength: float = 0.0

    def apply(self, fold: OutOfFold) -> ndarray:
        calibration = self.calibration.with_drift(fold.drift, self.strength)
        return calibration.apply(fold.probability, fold.prior)

    def loss(self, fold: OutOfFold) -> float:
        return clipped_log_loss(self.apply(fold), fold.truth)


def fit_calibration(
    folds: Sequence[OutOfFold],
    *,
    metric: str = "accuracy",
    coverage: float = COVERAGE,
    drift: ndarray | None = None,
) -> Calibration:
    """Choose the calibration with the best log-loss on the folds, and the tilt with the best score.

    A temperature is always fitted, and `EVEN_SHARE` of the probability is spread evenly. A share
    of the drift of the class proportions that was forecast from past labels is applied if that
    helps clearly in the newest fold (`CLEAR_HELP`) and on average, and harms no fold by more than
    `MAX_HARM`; with a single fold it must help by `MIN_HELP`. `drift` is the forecast for the rows
    to calibrate.

    (A bias per class, learned from the errors of past folds, was no better on later windows: see
    docs/results.md, "A bias per class". Class proportions that EM estimates from the predictions
    were worse.)
    """
    known = [fold.of_known_classes() for fold in folds]
    best = _fit_temperature(known, 0.0)
    uncorrected = np.array([best.loss(fold) for fold in known])
    best_loss = _mean_log(uncorrected, known)
    allowed = (1 + MAX_HARM) * uncorrected
    if len(folds) == 1:
        allowed = (1 - MIN_HELP) * uncorrected
    for strength in DRIFT_STRENGTHS:
        correction = _fit_temperature(known, strength)
        losses = np.array([correction.loss(fold) for fold in known])
        mean_loss = _mean_log(losses, known)
        is_harmless = (losses < allowed).all()
        helps_newest = losses[-1] < (1 - CLEAR_HELP) * uncorrected[-1]
        if is_harmless and helps_newest and mean_loss < best_loss:
            best = correction
            best_loss = mean_loss
    calibrated = [best.apply(fold) for fold in folds]
    return replace(
        best.calibration.with_drift(drift, best.strength),
        coverage=coverage,
        tilt=_best_tilt(calibrated, folds, metric),
    )


def _fit_temperature(folds: Sequence[OutOfFold], strength: float) -> _Correction:
    """The correction by a share of the forecast drift, with the temperature that suits it.

    A wrong prior looks like wrong confidence, so the temperature is fitted after the correction.
    """
    drifted = _Correction(Calibration(), strength)
    adjusted = [replace(fold, probability=drifted.apply(fold)) for fold in folds]
    temperature = best_temperature(adjusted)
    return _Correction(Calibration().with_temperature(temperature), strength)


def calibration_error(probability: ndarray, truth: ndarray, label: ndarray | None = None) -> float:
    """Expected calibration error: |confidence − accuracy| averaged over bins of the confidence.

    Examples:
        >>> calibration_error(np.array([[0.8, 0.2]] * 5), np.array([0, 0, 0, 0, 1])).__round__(6)
        0.0
    """
    errors = [
        part.share * abs(part.confidence - part.accuracy)
        for part in reliability(probability, truth, label)
    ]
    return float(sum(errors))


@dataclass(frozen=True)
class Bin:
    """Predictions of similar confidence: their share of all, mean confidence and accuracy."""

    share: float
    confidence: float
    accuracy: float


def reliability(
    probability: ndarray, truth: ndarray, label: ndarray | None = None, bins: int = BINS
) -> list[Bin]:
    """Return the non-empty bins of equal width by the confidence in `label`.

    Labels are by default the most probable ones.
    """
    if label is None:
        label = probability.argmax(1)
    confidence = probability_of(label, probability)
    is_right = label == truth
    bin_index = np.minimum((confidence * bins).astype(int), bins - 1)
    result = []
    for k in np.unique(bin_index):
        mask = bin_index == k
        result.append(
            Bin(
                share=float(mask.mean()),
                confidence=float(confidence[mask].mean()),
                accuracy=float(is_right[mask].mean()),
            )
        )
    return result


def confusion(truth: ndarray, label: ndarray) -> list[tuple[int, int, int]]:
    """Return (true label, predicted label, count) for every pair that occurs.

    Examples:
        >>> confusion(np.array([0, 1, 1]), np.array([1, 1, 1]))
        [(0, 1, 1), (1, 1, 2)]
    """
    pairs, count = np.unique(np.stack([truth, label]), axis=1, return_counts=True)
    return list(zip(*pairs.tolist(), count.tolist(), strict=True))


def best_temperature(folds: Sequence[OutOfFold]) -> float:
    """Return the temperature with the least log-loss; 1 if no fold has two known classes.

    It is nearer to 1 than the minimum, by `TEMPERATURE_PENALTY`.
    """
    folds = [fold for fold in folds if (fold.prior > 0).sum() > 1]
    if not folds:
        return 1.0

    def loss(log_temperature: float) -> float:
        calibration = Calibration().with_temperature(float(np.exp(log_temperature)))
        losses = [_Correction(calibration).loss(fold) for fold in folds]
        return _mean_log(losses, folds) + TEMPERATURE_PENALTY * log_temperature**2

    best = minimize_scalar(loss, bounds=LOG_TEMPERATURES, method="bounded", options={"xatol": 1e-3})
    return float(np.exp(best.x))


def _best_tilt(calibrated: Sequence[ndarray], folds: Sequence[OutOfFold], metric: str) -> float:
    """Return the tilt with the best score, the least of equals."""
    if METRICS[metric].tilt == 0:
        return 0.0

    def score(tilt: float) -> float:
        scores = [
            Scoring(metric, tuple(fold.prior)).score(rows, fold.truth, tilt)
            for rows, fold in zip(calibrated, folds, strict=True)
        ]
        return _average(scores, folds)

    return max(TILTS, key=score)


def _average(values: Sequence[float] | ndarray, folds: Sequence[OutOfFold]) -> float:
    return float(np.average(values, weights=[fold.weight for fold in folds]))


def clipped_log_loss(probability: ndarray, truth: ndarray) -> float:
    """Return the mean −log of the true label's probability, which counts as 1e-6 at least."""
    true_class = np.maximum(probability_of(truth, probability), 1e-6)
    return float(-np.log(true_class).mean())


def _mean_log(losses: Sequence[float] | ndarray, folds: Sequence[OutOfFold]) -> float:
    """Average the logarithms: a fold that is hard to predict must not decide alone."""
    return _average(np.log(np.maximum(losses, TINY)), folds)
