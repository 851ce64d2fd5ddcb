"""What predictions are judged by: metrics by name, the labels that suit them, and what a difference is worth.

A metric is a number per node: their mean is the score (higher is better), their spread over nodes
    the score's standard
error. For means over nodes, such as accuracy, they are what is averaged; for others the influence
of every node is added to the score (infinitesimal jackknife). So differences are paired by node in
the same way for all metrics.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from impact_gnn import checks

FLOOR = 0.01  # share of the uniform distribution mixed into every probability: one bold error must not decide
TRACE = 1e-3  # of the log-loss in a score where it decides between equals


def log_loss(probability: np.ndarray, num_labels: int) -> float:
    """Mean −log of the true label's probability [n], floored."""
    return float(-np.log((1 - FLOOR) * probability + FLOOR / num_labels).mean())


def tilted(probability: np.ndarray, prior: np.ndarray, tilt: float) -> np.ndarray:
    """p_k / prior_k^tilt: rare classes are drawn nearer; one without any label learned from is left alone.

    Examples:
        >>> tilted(np.array([[0.8, 0.2]]), np.array([0.9, 0.1]), 1.0).round(2).tolist()
        [[0.89, 2.0]]
    """
    return (
        probability
        if tilt == 0 or not len(prior)
        else probability * np.where(prior > 0, prior, 1.0) ** -tilt
    )


def mean_and_error(ours: np.ndarray, theirs: np.ndarray) -> tuple[float, float]:
    """Mean paired difference of numbers per node, and its standard error."""
    each = ours.astype(np.float64) - theirs
    variance = each.var(ddof=1) / len(each) if len(each) > 1 else 0.25
    # One node more or less right is the least that can be told apart.
    return float(each.mean()), math.sqrt(max(variance, 0.25 / len(each) ** 2))


# -- a number per node, from probabilities [n, K], labels [n], the truth [n] and the classes' shares
# -----------------


def _hits(
    probability: np.ndarray, label: np.ndarray, truth: np.ndarray, prior: np.ndarray
) -> np.ndarray:
    return (label == truth).astype(np.float64)


def _logs(
    probability: np.ndarray, label: np.ndarray, truth: np.ndarray, prior: np.ndarray
) -> np.ndarray:
    return np.log(
        (1 - FLOOR) * _true(probability, truth).astype(np.float64) + FLOOR / probability.shape[1]
    )


def _true(probability: np.ndarray, truth: np.ndarray) -> np.ndarray:
    return probability[np.arange(len(truth)), truth]


def _recalls(
    probability: np.ndarray, label: np.ndarray, truth: np.ndarray, prior: np.ndarray
) -> np.ndarray:
    """Mean of the recalls of the classes that are there."""
    count, hit = np.bincount(truth), label == truth
    recall = np.bincount(truth, hit) / np.maximum(count, 1)
    there = (count > 0).sum()
    return recall.sum() / there + len(truth) / there * (hit - recall[truth]) / count[truth]


def _f1s(
    probability: np.ndarray, label: np.ndarray, truth: np.ndarray, prior: np.ndarray
) -> np.ndarray:
    """Mean of F1 = 2·hits / (nodes of the class + nodes with the label), of the classes that are there."""
    classes, hit = probability.shape[1], label == truth
    count = np.bincount(truth, minlength=classes)
    total = np.maximum(count + np.bincount(label, minlength=classes), 1)
    f1 = np.where(count > 0, 2 * np.bincount(truth, hit, classes) / total, 0.0)
    there = (count > 0).sum()
    moved = (2 * hit - f1[truth]) / total[truth] - f1[label] / total[label]
    return f1.sum() / there + len(truth) / there * moved


def _precisions(
    probability: np.ndarray, label: np.ndarray, truth: np.ndarray, prior: np.ndarray
) -> np.ndarray:
    """Average precision: of two classes the rarer one's, otherwise the mean over those that are there."""
    count = np.bincount(truth, minlength=probability.shape[1])
    wanted = np.flatnonzero(count)
    if len(count) == 2:
        rare = int(np.subtract(*(prior if len(prior) else count)) >= 0)
        wanted = np.array([rare]) if count[rare] else wanted
    return np.mean([_precision(probability[:, k], truth == k) for k in wanted], axis=0)


def _precision(said: np.ndarray, true: np.ndarray) -> np.ndarray:
    """Average precision Σ precision at every true node / true nodes; ties come together."""
    order = np.argsort(-said)
    first, last = _runs(said[order])
    right, ranked = np.cumsum(true[order])[last], last + 1  # as far as the end of every node's tie
    precision, mine = right / ranked, true[order]
    # What one more node at a place does to the precision of the true nodes from its tie on.
    lifted, lowered = (_after(mine * part / ranked, first) for part in (1 - precision, precision))
    total = true.sum()
    average = precision[mine].sum() / total
    moved = np.where(mine, precision + lifted - average, -lowered) / total
    out = np.empty(len(said))
    out[order] = average + len(said) * moved
    return out


def _runs(ordered: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First and last place of the equal values around every place."""
    new = np.r_[True, ordered[1:] != ordered[:-1]]
    start = np.flatnonzero(new)
    place = np.cumsum(new) - 1
    return start[place], np.r_[start[1:], len(ordered)][place] - 1


def _after(values: np.ndarray, place: np.ndarray) -> np.ndarray:
    """Sums from a place to the end."""
    return np.cumsum(values[::-1])[::-1][place]


@dataclass(frozen=True)
class Metric:
    """How predictions are judged: numbers per node, and what people are told."""

    title: str
    each: Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray], np.ndarray]
    tilt: float = 0.0  # of labels towards rare classes, where the past does not say better
    by_log_loss: bool = (
        False  # whether candidates are ranked and blended by log-loss, which is finer than hits
    )
    share: bool = True  # between 0 and 1, otherwise a loss that is displayed without its sign

    @property
    def unit(self) -> str:
        """Of a hundredth."""
        part = "points" if self.share else "hundredths"
        return part if self.title == "accuracy" else f"{part} of {self.title}"

    def displayed(self, score: float) -> float:
        """As people read it."""
        return score if self.share else -score


METRICS = {
    "accuracy": Metric("accuracy", _hits, by_log_loss=True),
    "macro-f1": Metric("macro-F1", _f1s, tilt=0.5),
    "balanced-accuracy": Metric("balanced accuracy", _recalls, tilt=1.0),
    "log-loss": Metric("log-loss", _logs, by_log_loss=True, share=False),
    "average-precision": Metric("average precision", _precisions),
}


@dataclass(frozen=True)
class Scoring:
    """A metric, for the predictions of a model.

    It depends on the shares that the classes had among the labels learned from, and on whether
    these were weighted so that all classes counted the same.

    Examples:
        >>> scoring = Scoring("balanced-accuracy", (0.9, 0.1))
        >>> said = np.array([[0.8, 0.2], [0.95, 0.05]])
        >>> scoring.labels(said).tolist(), scoring.score(said, np.array([1, 0]))
        ([1, 0], 1.0)
    """

    metric: str = "accuracy"
    prior: tuple[
        float, ...
    ] = ()  # empty where nobody knows; labels are the most probable ones then
    balanced: bool = False

    def __post_init__(self) -> None:
        checks.choice("metric", self.metric, METRICS)

    @property
    def rule(self) -> Metric:
        return METRICS[self.metric]

    @property
    def counts_hits(self) -> bool:
        """Whether nothing counts but how often the most probable label is right."""
        return self.metric == "accuracy" and not self.balanced

    def weights(self, label: np.ndarray) -> np.ndarray:
        """What rows of known labels count when all classes are to count the same; 1 on average."""
        share = np.array(self.prior)
        return np.where(
            label >= 0, 1 / ((share > 0).sum() * np.where(share > 0, share, 1.0))[label], 1.0
        )

    def without_class_weights(self, probability: np.ndarray) -> np.ndarray:
        """Probabilities of a head: where all classes counted the same, their true shares are put back.

        A class without labels is taken to be as rare as the rarest.
        """
        if not self.balanced:
            return probability
        share = np.array(self.prior, probability.dtype)
        back = probability * np.maximum(share, share[share > 0].min())
        return back / np.maximum(back.sum(1, keepdims=True), np.finfo(back.dtype).tiny)

    def labels(self, probability: np.ndarray, tilt: float | None = None) -> np.ndarray:
        """The labels that suit the metric."""
        return tilted(
            probability, np.array(self.prior), self.rule.tilt if tilt is None else tilt
        ).argmax(1)

    def each(
        self, probability: np.ndarray, truth: np.ndarray, tilt: float | None = None
    ) -> np.ndarray:
        """Numbers per node, whose mean is the score."""
        return self.rule.each(
            probability, self.labels(probability, tilt), truth, np.array(self.prior)
        )

    def score(self, probability: np.ndarray, truth: np.ndarray, tilt: float | None = None) -> float:
        return float(self.each(probability, truth, tilt).mean())

    def finer(self, probability: np.ndarray, truth: np.ndarray) -> float:
        """The score and a trace of the log-loss: learning shows before the first label of a rare class does."""
        return self.score(probability, truth) - TRACE * log_loss(
            _true(probability, truth), probability.shape[1]
        )

    def loss(self, probability: np.ndarray, truth: np.ndarray, num_labels: int) -> float:
        """What candidates are ranked and blended by: log-loss, or how far the score is from 1.

        `probability` is [n, K], or [n], of the true label, where only that matters.
        """
        if not self.rule.by_log_loss:
            return 1 - (1 - FLOOR) * self.finer(probability, truth)
        return log_loss(
            probability if probability.ndim == 1 else _true(probability, truth), num_labels
        )
