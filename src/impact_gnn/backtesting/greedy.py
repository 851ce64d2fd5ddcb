"""Ensemble weights from out-of-fold predictions: greedy selection with replacement.

It starts from the mean of the few best that are nearly as good as the best one, then draws, one at
a time, the one that lowers the loss of the mean most. Starting from the best one alone follows the
noise of a few windows: asked of the past of ten graphs, it lost half a point more (`python -m
reproduction rules`). Newer folds count more. The loss is what the metric asks for (`Scoring.loss`);
to the log-loss only the probability of the true label matters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy import ndarray

from impact_gnn.estimators import Candidate

OLDER = 0.5  # what a fold counts, as a part of the next newer one
SOLVED = 0.2  # part of the greatest loss of a fold below which losses count as equal
START = 5  # candidates that the selection starts from at most
NEAR = 1.25  # times the best loss that these may have
# Of them with the same model: others are more different. On 14 past windows, this was .1 points
# more accurate than five of any model, and one per model no better.
MOST_OF_A_MODEL = 2
MAX_PICKS = 7  # weights are multiples of 1 / picks
MAX_MEMBERS = 6  # different candidates: each must be fitted and saved
MIN_GAIN = 1e-3  # share of the loss for which a further candidate is taken
SAME = 1e-3  # probabilities that differ by no more are the same


def fold_weights(count: int) -> ndarray:
    """What folds count, the oldest first; they sum to 1.

    Examples:
        >>> fold_weights(2).round(3).tolist()
        [0.333, 0.667]
    """
    weight = OLDER ** np.arange(count - 1, -1, -1)
    return weight / weight.sum()


def mean_fold_loss(losses: Sequence[float] | ndarray, weights: ndarray | None = None) -> float:
    """One loss for several folds: the geometric mean, so that no hard fold decides alone.

    Nor does a fold that is nearly solved: small losses count as a part of the greatest one.

    Examples:
        >>> mean_fold_loss([0.5, 2.0], np.array([0.5, 0.5]))
        1.0
    """
    if weights is None:
        weights = fold_weights(len(losses))
    least = max(SOLVED * max(losses), 1e-9)
    mean_log = weights @ np.log(np.maximum(losses, least))
    return float(np.exp(mean_log))


def greedy_weights(
    predictions: Sequence[Sequence[ndarray]],
    losses: Sequence[Callable[[ndarray], float]],
    fold_weights: ndarray | None = None,
    candidates: Sequence[Candidate] | None = None,
) -> ndarray:
    """Weights of candidates, which sum to 1, by greedy selection with replacement.

    Args:
        predictions: `predictions[k][j]` are those of candidate k for fold j, oldest fold first.
            Among equals, earlier candidates are preferred.
        losses: The loss of every fold.
        fold_weights: Weights of the folds; by default newer folds count more.
        candidates: The selection starts from one candidate a fit, and from two a model.

    Examples:
        >>> sure, unsure = np.array([0.9, 0.9, 0.1, 0.9]), np.array([0.4, 0.4, 0.9, 0.4])
        >>> losses = [lambda true: -np.log(true).mean()]
        >>> greedy_weights([[sure], [unsure], [1 - sure]], losses).round(2).tolist()
        [0.67, 0.33, 0.0]
    """

    def loss(total: Sequence[ndarray], count: int) -> float:
        by_fold = [judge(part / count) for judge, part in zip(losses, total, strict=True)]
        return mean_fold_loss(by_fold, fold_weights)

    def add(total: Sequence[ndarray], k: int) -> list[ndarray]:
        return [part + more for part, more in zip(total, predictions[k], strict=True)]

    single_losses = [loss(candidate, 1) for candidate in predictions]
    picks = _start(single_losses, predictions, candidates)
    total = [
        np.stack([predictions[k][j] for k in picks]).astype(np.float64).sum(0)
        for j in range(len(losses))
    ]
    best = loss(total, len(picks))
    while len(picks) < MAX_PICKS:
        allowed: Sequence[int] = range(len(predictions))
        if len(set(picks)) >= MAX_MEMBERS:
            allowed = sorted(set(picks))
        least, chosen = min((loss(add(total, k), len(picks) + 1), k) for k in allowed)
        required_gain = 0.0 if chosen in picks else MIN_GAIN
        if least > best * (1 - required_gain):
            break
        picks.append(chosen)
        total = add(total, chosen)
        best = least
    return np.bincount(picks, minlength=len(predictions)) / len(picks)


def _start(
    single_losses: Sequence[float],
    predictions: Sequence[Sequence[ndarray]],
    candidates: Sequence[Candidate] | None,
) -> list[int]:
    """The best single candidates: near the best loss, of different fits and models, not equal."""
    # Losses within MIN_GAIN count as equal, so that equals stay in their order.
    steps = np.round(np.log(np.maximum(single_losses, 1e-9)) / MIN_GAIN)
    picks: list[int] = []
    for k in np.argsort(steps, kind="stable").tolist():
        is_far = single_losses[k] > NEAR * min(single_losses)
        is_equal = any(_is_equal(predictions[k], predictions[j]) for j in picks)
        is_similar = candidates is not None and _is_similar(
            candidates[k], [candidates[j] for j in picks]
        )
        if not picks or not (is_far or is_equal or is_similar):
            picks.append(k)
        if len(picks) == START:
            break
    return picks


def _is_similar(candidate: Candidate, others: Sequence[Candidate]) -> bool:
    """Whether others have the same fit, or several have the same model."""
    # A candidate with and without smoothing is one fit.
    is_same_fit = candidate.smoothed(False) in [other.smoothed(False) for other in others]
    models = [other.model for other in others]
    return is_same_fit or models.count(candidate.model) >= MOST_OF_A_MODEL


def _is_equal(ours: Sequence[ndarray], theirs: Sequence[ndarray]) -> bool:
    pairs = zip(ours, theirs, strict=True)
    return all(np.allclose(a, b, atol=SAME) for a, b in pairs)
