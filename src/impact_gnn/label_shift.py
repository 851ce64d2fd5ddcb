"""Label shift: the shares of the classes among targets, estimated without labels, and probabilities brought there.

Where only the shares move, p(x | y) being the same, a model's probabilities are mended by Bayes'
rule: p'(y | x) ∝ p(y | x)·new_y / prior_y. The new prior is estimated by EM on the probabilities
(Saerens et al. 2002).
"""

from __future__ import annotations

import numpy as np

TINY = 1e-12


def saerens(
    probabilities: np.ndarray, prior: np.ndarray, *, steps: int = 1000, tolerance: float = 1e-9
) -> np.ndarray:
    """The shares of the classes among the rows that make them most probable: new_y ← mean_i p'_i(y), by EM.

    Args:
        probabilities: [n, Y], of a model that learned under the shares `prior`.
        prior: [Y]; a class of which nothing was learned keeps the share 0.
        steps: Most steps of EM, each of which adds to the likelihood.
        tolerance: Steps end when no share moves further.

    Examples:
        >>> certain = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
        >>> saerens(certain, np.array([0.5, 0.5]))
        array([0.75, 0.25])
    """
    new = np.asarray(prior, np.float64)
    for _ in range(steps if len(probabilities) else 0):
        before, new = new, reweighted(probabilities, ratio(new, prior)).mean(0)
        if np.abs(new - before).max() <= tolerance:
            break
    return new


def confusion_of(predicted: np.ndarray, labels: np.ndarray, num_labels: int) -> np.ndarray:
    """Counts [predicted class, true class] of rows whose label is known."""
    count = np.bincount(predicted * num_labels + labels, minlength=num_labels * num_labels)
    return count.reshape(num_labels, num_labels).astype(np.float64)


def ratio(new: np.ndarray, prior: np.ndarray) -> np.ndarray:
    """new_y / prior_y, 0 for classes of which nothing was learned."""
    return np.divide(new, prior, out=np.zeros(len(prior)), where=np.asarray(prior) > 0)


def reweighted(probabilities: np.ndarray, by: np.ndarray) -> np.ndarray:
    """p'(y | x) ∝ p(y | x)·by_y [n, Y]; a row that nothing is left of stays as it was.

    Examples:
        >>> reweighted(np.array([[0.5, 0.5]]), np.array([0.9, 0.1]))
        array([[0.9, 0.1]])
    """
    out = probabilities * by
    total = out.sum(1, keepdims=True)
    return np.where(total > 0, out / np.where(total > 0, total, 1), probabilities)


def tempered(probability: np.ndarray, temperature: float) -> np.ndarray:
    """Probabilities to the power 1/temperature, rows summing to 1 again.

    Examples:
        >>> tempered(np.array([[0.9, 0.1]]), 2.0).round(2).tolist()
        [[0.75, 0.25]]
    """
    logs = np.log(np.maximum(probability.astype(np.float64), TINY)) / temperature
    powers = np.exp(logs - logs.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)
