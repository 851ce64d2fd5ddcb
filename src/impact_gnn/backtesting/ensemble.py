"""From the walk-forward probabilities of many candidates to the weights of a few: greedy selection with replacement.

The best single candidate is taken first; then, one at a time, the one that lowers the log-loss of the mean most, until
none does. Newer folds count more. Only the probability of the true label matters to the log-loss, so that is all that
is looked at.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

OLDER = 0.5  # what a fold counts, as a part of the next newer one
PICKS = 12  # draws at most: weights are multiples of 1/draws
MEMBERS = 5  # different candidates at most: each must be fitted and kept
LEAST_GAIN = 1e-3  # share of the log-loss for which a further candidate is taken
FLOOR = 0.01  # share of the uniform distribution mixed into every probability: one bold error must not decide


def fold_weights(count: int) -> np.ndarray:
    """What folds count, the oldest first; they sum to 1.

    Example:
        >>> fold_weights(2).round(3).tolist()
        [0.333, 0.667]
    """
    weight = OLDER ** np.arange(count - 1, -1, -1)
    return weight / weight.sum()


def log_loss(probability: np.ndarray, num_labels: int) -> float:
    """Mean −log of the true label's probability [n], floored."""
    return float(-np.log((1 - FLOOR) * probability + FLOOR / num_labels).mean())


def overall(losses: Sequence[float], weights: np.ndarray | None = None) -> float:
    """One log-loss for several folds: their geometric mean, so that a fold that is hard for all does not decide alone.

    Example:
        >>> overall([0.5, 2.0], np.array([0.5, 0.5]))
        1.0
    """
    weight = fold_weights(len(losses)) if weights is None else weights
    return float(np.exp(weight @ np.log(np.maximum(losses, 1e-9))))


def blend(true: Sequence[Sequence[np.ndarray]], num_labels: int, weights: np.ndarray | None = None) -> np.ndarray:
    """Weights of candidates, which sum to 1; `true[k][j]` is candidate k's probability of the true label in fold j.

    Folds come oldest first and count as `weights` say, by default newer ones more; candidates come in the
    order in which they are preferred among equals. One that adds nothing gets 0.

    Example:
        >>> sure, unsure = np.array([0.9, 0.9, 0.1, 0.9]), np.array([0.4, 0.4, 0.9, 0.4])
        >>> blend([[sure], [unsure], [1 - sure]], 2).round(2).tolist()
        [0.67, 0.33, 0.0]
    """

    def loss(total: Sequence[np.ndarray], count: int) -> float:
        return overall([log_loss(part / count, num_labels) for part in total], weights)

    alone = [loss(each, 1) for each in true]
    picks = [next(k for k, value in enumerate(alone) if value <= min(alone) * (1 + LEAST_GAIN))]
    total, best = [np.array(part, np.float64) for part in true[picks[0]]], alone[picks[0]]
    while len(picks) < PICKS:
        able = range(len(true)) if len(set(picks)) < MEMBERS else sorted(set(picks))
        losses = {k: loss([a + b for a, b in zip(total, true[k], strict=True)], len(picks) + 1) for k in able}
        chosen = min(losses, key=lambda k: losses[k])
        if losses[chosen] > best * (1 - (LEAST_GAIN if chosen not in picks else 0.0)):
            break
        picks.append(chosen)
        total, best = [a + b for a, b in zip(total, true[chosen], strict=True)], losses[chosen]
    return np.bincount(picks, minlength=len(true)) / len(picks)
