"""From the walk-forward probabilities of many candidates to the weights of a few: greedy selection with replacement.

It starts from the mean of the few best that are nearly as good as the best one, then draws, one at a time, the one that
lowers the log-loss of the mean most. Starting from the best one alone follows the noise of a few windows: asked of the
past of ten graphs, it lost half a point more (`python -m reproduction rules`). Newer folds count more. Only the
probability of the true label matters to the log-loss, so that is all that is looked at.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

OLDER = 0.5  # what a fold counts, as a part of the next newer one
START, NEAR = 5, 1.25  # how many it starts from at most, and how much worse than the best log-loss they may be
PICKS = 7  # draws at most: weights are multiples of 1/draws
MEMBERS = 6  # different candidates at most: each must be fitted and kept
LEAST_GAIN = 1e-3  # share of the log-loss for which a further candidate is taken
SAME = 1e-3  # probabilities that differ by no more are the same
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


def blend(
    true: Sequence[Sequence[np.ndarray]], num_labels: int, weights: np.ndarray | None = None,
    fits: Sequence[Hashable] | None = None,
) -> np.ndarray:  # fmt: skip
    """Weights of candidates, which sum to 1; `true[k][j]` is candidate k's probability of the true label in fold j.

    Folds come oldest first and count as `weights` say, by default newer ones more. Candidates come in the order in
    which they are preferred among equals; of those that rest on one of `fits`, or say the same, one is started from.
    One that adds nothing gets 0.

    Example:
        >>> sure, unsure = np.array([0.9, 0.9, 0.1, 0.9]), np.array([0.4, 0.4, 0.9, 0.4])
        >>> blend([[sure], [unsure], [1 - sure]], 2).round(2).tolist()
        [0.67, 0.33, 0.0]
    """

    def loss(total: Sequence[np.ndarray], count: int) -> float:
        return overall([log_loss(part / count, num_labels) for part in total], weights)

    picks = _start([loss(each, 1) for each in true], true, fits)
    total = [np.stack([true[k][j] for k in picks]).astype(np.float64).sum(0) for j in range(len(true[0]))]
    best = loss(total, len(picks))
    while len(picks) < PICKS:
        able = range(len(true)) if len(set(picks)) < MEMBERS else sorted(set(picks))
        losses = {k: loss([a + b for a, b in zip(total, true[k], strict=True)], len(picks) + 1) for k in able}
        chosen = min(losses, key=lambda k: losses[k])
        if losses[chosen] > best * (1 - (LEAST_GAIN if chosen not in picks else 0.0)):
            break
        picks.append(chosen)
        total, best = [a + b for a, b in zip(total, true[chosen], strict=True)], losses[chosen]
    return np.bincount(picks, minlength=len(true)) / len(picks)


def _start(alone: Sequence[float], true: Sequence[Sequence[np.ndarray]], fits: Sequence[Hashable] | None) -> list[int]:
    """The best by themselves, each of another fit, none that says the same as one before."""
    steps = np.round(np.log(np.maximum(alone, 1e-9)) / LEAST_GAIN)  # equals keep their order
    picks: list[int] = []
    for k in np.argsort(steps, kind="stable").tolist():
        near = alone[k] <= NEAR * min(alone) or not picks
        new = fits is None or fits[k] not in [fits[j] for j in picks]
        same = any(all(np.allclose(a, b, atol=SAME) for a, b in zip(true[k], true[j], strict=True)) for j in picks)
        if near and new and not same and len(picks) < START:
            picks.append(k)
    return picks
