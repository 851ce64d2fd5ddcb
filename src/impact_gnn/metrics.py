"""Metrics by name, the labels that optimise them, and paired differences with standard errors.

A metric is a number per node: their mean is the score (higher is better), their variance over nodes
gives the score's standard error. For means over nodes, such as accuracy, these are the averaged
numbers; for others the influence of every node is added to the score (infinitesimal jackknife). So
differences are paired by node in the same way for all metrics.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy import ndarray
from scipy import stats

from impact_gnn import checks

FLOOR = 0.01  # share of the uniform distribution in every probability, against single large losses
TRACE = 1e-3  # weight of the log-loss in a score, to decide between equals


def log_loss(probability: ndarray, num_labels: int) -> float:
    """Compute the mean −log of the true label's probability [n], floored."""
    return float(-_floored_log(probability, num_labels).mean())


def _floored_log(probability: ndarray, num_labels: int) -> ndarray:
    floored = (1 - FLOOR) * probability + FLOOR / num_labels
    return np.log(floored)


def tilted(probability: ndarray, prior: ndarray, tilt: float) -> ndarray:
    """Return p_k / prior_k^tilt: rare classes gain; classes without training labels stay.

    Examples:
        >>> tilted(np.array([[0.8, 0.2]]), np.array([0.9, 0.1]), 1.0).round(2).tolist()
        [[0.89, 2.0]]
    """
    if tilt == 0 or not len(prior):
        return probability
    return probability * np.where(prior > 0, prior, 1.0) ** -tilt


def mean_and_error(ours: ndarray, theirs: ndarray) -> tuple[float, float]:
    """Return the mean paired difference of numbers per node, and its standard error."""
    difference = ours.astype(np.float64) - theirs
    size = len(difference)
    # A single node has no variance; 0.25 is the largest of a number between 0 and 1.
    variance = 0.25
    if size > 1:
        variance = difference.var(ddof=1) / size
    # Half a node is the least error that can be measured.
    error = math.sqrt(max(variance, 0.25 / size**2))
    return float(difference.mean()), error


class _Scored(NamedTuple):
    """What a metric reads: probabilities [n, K], labels [n], true labels [n], class prior [K]."""

    probability: ndarray
    label: ndarray
    truth: ndarray
    prior: ndarray

    @property
    def is_hit(self) -> ndarray:
        return self.label == self.truth

    @property
    def true_probability(self) -> ndarray:
        return probability_of(self.truth, self.probability)


# Each of the following returns a number per node [n], whose mean is the score.


def _hits(scored: _Scored) -> ndarray:
    return scored.is_hit.astype(np.float64)


def _logs(scored: _Scored) -> ndarray:
    true = scored.true_probability.astype(np.float64)
    return _floored_log(true, scored.probability.shape[1])


def probability_of(label: ndarray, probability: ndarray) -> ndarray:
    """Return the probability of every row's label [n], from those of all classes [n, K]."""
    return probability[np.arange(len(label)), label]


def _recalls(scored: _Scored) -> ndarray:
    """Return the mean recall of the classes that occur, plus the influence of each node."""
    truth = scored.truth
    # Nodes and recall by class, [largest class + 1].
    count = np.bincount(truth)
    recall = np.bincount(truth, scored.is_hit) / np.maximum(count, 1)
    # A node moves the recall of its own class only.
    influence = (scored.is_hit - recall[truth]) / count[truth]
    return _mean_of_classes(recall, influence, count)


def _mean_of_classes(score: ndarray, influence: ndarray, count: ndarray) -> ndarray:
    """Return the mean score of the classes that occur, plus the influence of each node."""
    num_classes = np.count_nonzero(count)
    # Times n: the mean over the nodes divides by n again, and the influences sum to 0.
    factor = len(influence) / num_classes
    return score.sum() / num_classes + factor * influence


def _f1s(scored: _Scored) -> ndarray:
    """Return the mean F1 of the classes that occur, plus the influence of each node.

    F1 = 2·hits / (nodes of the class + nodes with the label).
    """
    label = scored.label
    truth = scored.truth
    num_labels = scored.probability.shape[1]
    # Nodes by true class, the same plus nodes by predicted label, and F1: all [K].
    count = np.bincount(truth, minlength=num_labels)
    total = np.maximum(count + np.bincount(label, minlength=num_labels), 1)
    # Without nodes of a class there are no hits, and its F1 is 0.
    f1 = 2 * np.bincount(truth, scored.is_hit, num_labels) / total
    # A node enters the hits, the total of its class and the total of its label.
    own_influence = (2 * scored.is_hit - f1[truth]) / total[truth]
    influence = own_influence - f1[label] / total[label]
    return _mean_of_classes(f1, influence, count)


def _precisions(scored: _Scored) -> ndarray:
    """Return average precision: of two classes the rarer one's, otherwise the mean of classes."""
    probability, _, truth, prior = scored
    count = np.bincount(truth, minlength=probability.shape[1])
    classes = np.flatnonzero(count)
    if len(count) == 2:
        # The positive class is the rarer one among training labels, or here without a prior.
        first, second = prior if len(prior) else count
        rare = int(first >= second)
        if count[rare]:
            classes = np.array([rare])
    numbers = [_precision(probability[:, k], truth == k) for k in classes]
    return np.mean(numbers, axis=0)


def _precision(probability: ndarray, is_true: ndarray) -> ndarray:
    """Return average precision Σ precision at every true node / true nodes, plus influences.

    Equal probabilities share a rank.
    """
    # Positions by falling probability; negated values rise, as `searchsorted` needs.
    order = np.argsort(-probability)
    ordered = -probability[order]
    is_true = is_true[order]
    # The first and last position of the equal probabilities around every position.
    first = np.searchsorted(ordered, ordered)
    last = np.searchsorted(ordered, ordered, side="right") - 1
    # True nodes and all nodes up to the end of every node's tie.
    num_true = np.cumsum(is_true)[last]
    rank = last + 1
    precision = num_true / rank
    # The effect of one more node at a position on the precision of true nodes from its tie on:
    # a true node lifts them, another lowers them.
    lift = _sums_to_end(is_true * (1 - precision) / rank)[first]
    lowering = _sums_to_end(is_true * precision / rank)[first]
    total = is_true.sum()
    average = precision[is_true].sum() / total
    # Jackknife numbers: the score plus n times the influence of each node, in the nodes' order.
    influence = np.where(is_true, precision + lift - average, -lowering) / total
    numbers = np.empty(len(probability))
    numbers[order] = average + len(probability) * influence
    return numbers


def _sums_to_end(values: ndarray) -> ndarray:
    """Return the sum of the values from every position on."""
    return np.cumsum(values[::-1])[::-1]


def _briers(scored: _Scored) -> ndarray:
    """Return minus the squared distance between the probabilities and the true class."""
    # ‖p − one-hot‖² = Σ p_k² − 2·p_true + 1.
    wrong = (scored.probability.astype(np.float64) ** 2).sum(1)
    return 2 * scored.true_probability - 1 - wrong


def _rankings(scored: _Scored) -> ndarray:
    """Return the area under the ROC curve, one class against the others, as a mean of classes.

    Classes that all nodes or none have are left out; without any other, it is 1/2.
    """
    probability, _, truth, _ = scored
    classes = np.unique(truth)
    if len(classes) < 2:
        return np.full(len(truth), 0.5)
    numbers = [_ranking(probability[:, k], truth == k) for k in classes]
    return np.mean(numbers, axis=0)


def _ranking(probability: ndarray, is_true: ndarray) -> ndarray:
    """Return the probability that a true node is ranked above another, plus influences."""
    num_true = is_true.sum()
    num_other = len(is_true) - num_true
    # Nodes of the other kind below every node, half of equal ones: its rank among all nodes minus
    # that among its own kind.
    below = stats.rankdata(probability)
    for own_kind in (is_true, ~is_true):
        below[own_kind] -= stats.rankdata(probability[own_kind])
    # The share of the other kind that every node is on the right side of.
    placement = np.where(is_true, below / num_other, 1 - below / num_true)
    # The area, and how much each node moves it; jackknife numbers as in `_precision`.
    area = placement[is_true].mean()
    influence = (placement - area) / np.where(is_true, num_true, num_other)
    return area + len(probability) * influence


@dataclass(frozen=True)
class Metric:
    """A metric: numbers per node, and its display."""

    title: str
    each: Callable[[_Scored], ndarray]
    tilt: float = 0.0  # default tilt of labels towards rare classes
    by_log_loss: bool = False  # candidates are ranked by log-loss, which is finer than hits
    share: bool = True  # between 0 and 1, otherwise a loss that is displayed without its sign

    @property
    def unit(self) -> str:
        """The unit of a hundredth."""
        part = "points" if self.share else "hundredths"
        return part if self.title == "accuracy" else f"{part} of {self.title}"

    def displayed(self, score: float) -> float:
        """Return the score as it is displayed."""
        return score if self.share else -score


METRICS = {
    "accuracy": Metric("accuracy", _hits, by_log_loss=True),
    "macro-f1": Metric("macro-F1", _f1s, tilt=0.5),
    "balanced-accuracy": Metric("balanced accuracy", _recalls, tilt=1.0),
    "log-loss": Metric("log-loss", _logs, by_log_loss=True, share=False),
    "average-precision": Metric("average precision", _precisions),
    "auroc": Metric("AUROC", _rankings),
    "brier": Metric("Brier score", _briers, by_log_loss=True, share=False),
}


@dataclass(frozen=True)
class Scoring:
    """A metric for the predictions of a model.

    It depends on the class proportions of the training labels (`prior`), and on whether these were
    weighted so that all classes counted the same (`balanced`). Without a prior, labels are the most
    probable ones.

    Examples:
        >>> scoring = Scoring("balanced-accuracy", (0.9, 0.1))
        >>> probability = np.array([[0.8, 0.2], [0.95, 0.05]])
        >>> scoring.labels(probability).tolist(), scoring.score(probability, np.array([1, 0]))
        ([1, 0], 1.0)
    """

    metric: str = "accuracy"
    prior: tuple[float, ...] = ()
    balanced: bool = False

    def __post_init__(self) -> None:
        checks.choice("metric", self.metric, METRICS)

    @property
    def rule(self) -> Metric:
        return METRICS[self.metric]

    @property
    def counts_hits(self) -> bool:
        """Whether the score is the accuracy of the most probable labels."""
        return self.metric == "accuracy" and not self.balanced

    def weights(self, label: ndarray) -> ndarray:
        """Return weights of rows so that all classes count the same; 1 on average."""
        prior = np.array(self.prior)
        # A class without labels gets a finite weight that no row reads.
        divisor = np.where(prior > 0, prior, 1.0)
        weight = 1 / (np.count_nonzero(prior) * divisor)  # by class [K]
        # A label of −1 reads the last class in `weight[label]`, and is replaced by 1.
        return np.where(label >= 0, weight[label], 1.0)

    def without_class_weights(self, probability: ndarray) -> ndarray:
        """Multiply probabilities by the true class proportions, where all classes counted the same.

        A class without labels is assumed to be as rare as the rarest.
        """
        if not self.balanced:
            return probability
        prior = np.array(self.prior, probability.dtype)
        # [n, K] · [K], then every row is divided by its sum.
        weighted = probability * np.maximum(prior, prior[prior > 0].min())
        total = weighted.sum(1, keepdims=True)
        return weighted / np.maximum(total, np.finfo(weighted.dtype).tiny)

    def labels(self, probability: ndarray, tilt: float | None = None) -> ndarray:
        """Return the labels that optimise the metric."""
        if tilt is None:
            tilt = self.rule.tilt
        return tilted(probability, np.array(self.prior), tilt).argmax(1)

    def each(self, probability: ndarray, truth: ndarray, tilt: float | None = None) -> ndarray:
        """Return numbers per node, whose mean is the score."""
        labels = self.labels(probability, tilt)
        scored = _Scored(probability, labels, truth, np.array(self.prior))
        return self.rule.each(scored)

    def score(self, probability: ndarray, truth: ndarray, tilt: float | None = None) -> float:
        return float(self.each(probability, truth, tilt).mean())

    def finer(self, probability: ndarray, truth: ndarray) -> float:
        """Return the score minus a little log-loss, which improves before rare labels change."""
        loss = log_loss(probability_of(truth, probability), probability.shape[1])
        return self.score(probability, truth) - TRACE * loss

    def loss(self, probability: ndarray, truth: ndarray, num_labels: int) -> float:
        """Return the loss for ranking and blending candidates: log-loss, or 1 minus the score.

        `probability` is [n, K], or [n] of the true label for log-loss.
        """
        if not self.rule.by_log_loss:
            return 1 - (1 - FLOOR) * self.finer(probability, truth)
        if probability.ndim == 2:
            probability = probability_of(truth, probability)
        return log_loss(probability, num_labels)
