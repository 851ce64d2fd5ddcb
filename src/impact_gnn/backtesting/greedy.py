"""From the walk-forward probabilities of many candidates to the weights of a few: greedy selection with replacement.

It starts from the mean of the few best that are nearly as good as the best one, then draws, one at
a time, the one that lowers the loss of the mean most. Starting from the best one alone follows the
noise of a few windows: asked of the past of ten graphs, it lost half a point more (`python -m
reproduction rules`). Newer folds count more. The loss is what the metric asks for (`Scoring.loss`);
to the log-loss only the probability of the true label matters.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import numpy as np

OLDER = 0.5  # what a fold counts, as a part of the next newer one
# how many it starts from at most, and how much worse than the best loss they may be
START, NEAR = (
    5,
    1.25,
)
PICKS = 7  # draws at most: weights are multiples of 1/draws
MEMBERS = 6  # different candidates at most: each must be fitted and kept
LEAST_GAIN = 1e-3  # share of the loss for which a further candidate is taken
SAME = 1e-3  # probabilities that differ by no more are the same


def fold_weights(count: int) -> np.ndarray:
    """What folds count, the oldest first; they sum to 1.

    Examples:
        >>> fold_weights(2).round(3).tolist()
        [0.333, 0.667]
    """
    weight = OLDER ** np.arange(count - 1, -1, -1)
    return weight / weight.sum()


def overall(losses: Sequence[float], weights: np.ndarray | None = None) -> float:
    """One loss for several folds: their geometric mean, so that a fold that is hard for all does not decide alone.

    Examples:
        >>> overall([0.5, 2.0], np.array([0.5, 0.5]))
        1.0
    """
    weight = fold_weights(len(losses)) if weights is None else weights
    return float(np.exp(weight @ np.log(np.maximum(losses, 1e-9))))


def blend(
    said: Sequence[Sequence[np.ndarray]],
    losses: Sequence[Callable[[np.ndarray], float]],
    weights: np.ndarray | None = None,
    fits: Sequence[Hashable] | None = None,
) -> np.ndarray:
    """Weights of candidates, which sum to 1; `said[k][j]` is what candidate k said in fold j, `losses[j]` judges it.

    Folds come oldest first and count as `weights` say, by default newer ones more. Candidates come
    in the order in which they are preferred among equals; of those that rest on one of `fits`, or
    say the same, one is started from. One that adds nothing gets 0.

    Examples:
        >>> sure, unsure = np.array([0.9, 0.9, 0.1, 0.9]), np.array([0.4, 0.4, 0.9, 0.4])
        >>> blend([[sure], [unsure], [1 - sure]], [lambda true: -np.log(true).mean()]).round(2).tolist()
        [0.67, 0.33, 0.0]
    """

    def loss(total: Sequence[np.ndarray], count: int) -> float:
        return overall(
            [judge(part / count) for judge, part in zip(losses, total, strict=True)], weights
        )

    picks = _start([loss(each, 1) for each in said], said, fits)
    total = [
        np.stack([said[k][j] for k in picks]).astype(np.float64).sum(0) for j in range(len(losses))
    ]
    best = loss(total, len(picks))
    while len(picks) < PICKS:
        able = range(len(said)) if len(set(picks)) < MEMBERS else sorted(set(picks))
        tried = {
            k: loss([a + b for a, b in zip(total, said[k], strict=True)], len(picks) + 1)
            for k in able
        }
        chosen = min(tried, key=lambda k: tried[k])
        if tried[chosen] > best * (1 - (LEAST_GAIN if chosen not in picks else 0.0)):
            break
        picks.append(chosen)
        total, best = [a + b for a, b in zip(total, said[chosen], strict=True)], tried[chosen]
    return np.bincount(picks, minlength=len(said)) / len(picks)


def _start(
    alone: Sequence[float], said: Sequence[Sequence[np.ndarray]], fits: Sequence[Hashable] | None
) -> list[int]:
    """The best by themselves, each of another fit, none that says the same as one before."""
    steps = np.round(np.log(np.maximum(alone, 1e-9)) / LEAST_GAIN)  # equals keep their order
    picks: list[int] = []
    for k in np.argsort(steps, kind="stable").tolist():
        near = alone[k] <= NEAR * min(alone) or not picks
        new = fits is None or fits[k] not in [fits[j] for j in picks]
        same = any(
            all(np.allclose(a, b, atol=SAME) for a, b in zip(said[k], said[j], strict=True))
            for j in picks
        )
        if near and new and not same and len(picks) < START:
            picks.append(k)
    return picks
