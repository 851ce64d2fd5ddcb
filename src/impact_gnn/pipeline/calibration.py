"""Probabilities that mean what they say: temperature, the classes' new shares, and sets that hold the truth.

All of it is learned from walk-forward predictions: what was said about past periods before their
labels were known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar

from impact_gnn.label_shift import TINY, ratio, reweighted, saerens, tempered
from impact_gnn.metrics import METRICS, Scoring, tilted

STRENGTHS = (0.0, 0.5, 1.0)  # of the correction for shifted class shares, from which one is chosen
TILTS = (0.0, 0.25, 0.5, 0.75, 1.0)  # of labels towards rare classes, likewise
EM_STEPS = 50
BINS = 15
FINE_BINS = 60  # bins for a curve; they join to BINS and to twenty
COVERAGE = 0.9


@dataclass(frozen=True)
class Calibration:
    """How raw probabilities become calibrated ones, and from which probability on a label is in a prediction set."""

    temperature: float = 1.0  # above 1 takes certainty away
    shift: float = 0.0  # strength of the correction for class shares, 0 for none
    threshold: float = 0.0  # labels at least as probable form the set; 0 puts all labels into it
    coverage: float = COVERAGE  # share of truths that sets are to hold
    tilt: float = 0.0  # of labels towards rare classes, where the metric asks for it

    def apply(self, probability: np.ndarray, prior: np.ndarray) -> np.ndarray:
        """Calibrated probabilities of rows that are predicted together; `prior` are the shares learned from."""
        scaled = tempered(probability, self.temperature)
        return scaled if self.shift == 0 else shifted(scaled, prior, self.shift)

    def labels(self, probability: np.ndarray, prior: np.ndarray) -> np.ndarray:
        """The predicted label of every row: the most probable one, or, tilted, that of the greatest p / prior^tilt."""
        return tilted(probability, prior, self.tilt).argmax(1)

    def sets(self, probability: np.ndarray, label: np.ndarray | None = None) -> np.ndarray:
        """Which labels are in the prediction set of every row [n, num_labels], the predicted one always.

        `label` are the predicted ones, by default the most probable.
        """
        inside = probability >= self.threshold
        inside[np.arange(len(inside)), probability.argmax(1) if label is None else label] = True
        return inside


@dataclass(frozen=True, eq=False)
class OutOfFold:
    """Walk-forward predictions of one fold: raw probabilities, the truth, the shares learned from, what it counts."""

    probability: np.ndarray
    truth: np.ndarray
    prior: np.ndarray
    weight: float = 1.0


def shifted(probability: np.ndarray, prior: np.ndarray, strength: float = 1.0) -> np.ndarray:
    """Probabilities for rows whose classes have other shares than `prior`, those shares found by EM (Saerens et al.).

    Nothing but the rows' own probabilities is looked at. `strength` below 1 goes part of the way.
    """
    # a class never seen could otherwise not come back
    base = np.maximum(prior, 1 / (10 * max(len(probability), 1)))
    base = base / base.sum()
    share = saerens(probability, base, steps=EM_STEPS, tolerance=0.0)
    return reweighted(probability, ratio(share, base) ** strength)


def fit_calibration(
    folds: Sequence[OutOfFold], *, metric: str = "accuracy", coverage: float = COVERAGE
) -> Calibration:
    """The calibration with the best log-loss on walk-forward predictions, and labels with the best score.

    The correction for class shares is taken only where it helps in every fold: on one of two it may
        be chance.
    """
    temperature = best_temperature(folds)
    plain = [_loss(tempered(fold.probability, temperature), fold.truth) for fold in folds]
    best = Calibration(temperature)
    best_loss = _mean(plain, folds)
    for strength in STRENGTHS[1:]:
        one = Calibration(temperature, strength)
        losses = [_loss(one.apply(fold.probability, fold.prior), fold.truth) for fold in folds]
        if (
            all(now < before for now, before in zip(losses, plain, strict=True))
            and _mean(losses, folds) < best_loss
        ):
            best, best_loss = one, _mean(losses, folds)
    calibrated = [best.apply(fold.probability, fold.prior) for fold in folds]
    threshold, tilt = _threshold(calibrated, folds, coverage), _tilt(calibrated, folds, metric)
    return Calibration(best.temperature, best.shift, threshold, coverage, tilt)


def calibration_error(
    probability: np.ndarray, truth: np.ndarray, label: np.ndarray | None = None
) -> float:
    """Expected calibration error: |confidence − accuracy| averaged over bins of the confidence.

    Examples:
        >>> calibration_error(np.array([[0.8, 0.2]] * 5), np.array([0, 0, 0, 0, 1])).__round__(6)
        0.0
    """
    return float(
        sum(
            row.share * abs(row.confidence - row.accuracy)
            for row in reliability(probability, truth, label)
        )
    )


@dataclass(frozen=True)
class Bin:
    """Predictions of about the same confidence: their share of all, mean confidence, and how many were right."""

    share: float
    confidence: float
    accuracy: float


def reliability(
    probability: np.ndarray, truth: np.ndarray, label: np.ndarray | None = None, bins: int = BINS
) -> list[Bin]:
    """Equal bins of the confidence that have any predictions; `label` are those, by default the most probable."""
    label = probability.argmax(1) if label is None else label
    confidence, right = probability[np.arange(len(label)), label], label == truth
    place = np.minimum((confidence * bins).astype(int), bins - 1)
    inside = [place == k for k in range(bins)]
    return [
        Bin(float(one.mean()), float(confidence[one].mean()), float(right[one].mean()))
        for one in inside
        if one.any()
    ]


def confusion(truth: np.ndarray, label: np.ndarray) -> list[tuple[int, int, int]]:
    """True label, predicted label and how often they met, for pairs that did.

    Examples:
        >>> confusion(np.array([0, 1, 1]), np.array([1, 1, 1]))
        [(0, 1, 1), (1, 1, 2)]
    """
    pairs, count = np.unique(np.stack([truth, label]), axis=1, return_counts=True)
    return [(int(a), int(b), int(n)) for a, b, n in zip(*pairs, count, strict=True)]


def best_temperature(folds: Sequence[OutOfFold]) -> float:
    """That with the least log-loss."""

    def loss(log_temperature: float) -> float:
        return _mean(
            [_loss(tempered(f.probability, np.exp(log_temperature)), f.truth) for f in folds], folds
        )

    return float(
        np.exp(
            minimize_scalar(loss, bounds=(-0.7, 1.5), method="bounded", options={"xatol": 1e-3}).x
        )
    )


def _threshold(
    calibrated: Sequence[np.ndarray], folds: Sequence[OutOfFold], coverage: float
) -> float:
    """The weighted quantile of the true labels' probabilities that leaves out 1 − coverage of them."""
    score = np.concatenate(
        [p[np.arange(len(p)), fold.truth] for p, fold in zip(calibrated, folds, strict=True)]
    )
    weight = np.concatenate(
        [np.full(len(fold.truth), fold.weight / len(fold.truth)) for fold in folds]
    )
    order = np.argsort(score)
    below = np.cumsum(weight[order]) / weight.sum()
    return float(score[order][min(int(np.searchsorted(below, 1 - coverage)), len(score) - 1)])


def _tilt(calibrated: Sequence[np.ndarray], folds: Sequence[OutOfFold], metric: str) -> float:
    """The tilt with the best score, the least of equals."""
    if METRICS[metric].tilt == 0:
        return 0.0
    pairs = [
        (p, Scoring(metric, tuple(fold.prior)), fold)
        for p, fold in zip(calibrated, folds, strict=True)
    ]
    weights = [fold.weight for fold in folds]
    scores = [
        np.average([how.score(p, fold.truth, tilt) for p, how, fold in pairs], weights=weights)
        for tilt in TILTS
    ]
    return TILTS[int(np.argmax(scores))]


def _loss(probability: np.ndarray, truth: np.ndarray) -> float:
    return float(-np.log(np.maximum(probability[np.arange(len(truth)), truth], 1e-6)).mean())


def _mean(losses: Sequence[float], folds: Sequence[OutOfFold]) -> float:
    """Of the logarithms: a fold that was hard to predict must not decide alone."""
    return float(
        np.average(np.log(np.maximum(losses, TINY)), weights=[fold.weight for fold in folds])
    )
