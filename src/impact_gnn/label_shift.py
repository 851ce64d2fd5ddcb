"""Label shift: the shares of the classes among targets, estimated without labels, and probabilities brought there.

Where only the shares move, p(x | y) being the same, a model's probabilities are mended by Bayes'
rule: p'(y | x) ∝ p(y | x)·new_y / prior_y. What is new is estimated by EM on the probabilities
(Saerens et al. 2002), or from how often a class is predicted and how it was mixed up on rows with
labels (BBSE, Lipton et al. 2018).
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import nnls


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


def bbse(confusion: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """The shares of the classes under which a classifier with this confusion predicts as it does.

    With C the shares of (predicted, true) among rows with labels and m those of predictions among
    the targets, C w = m has the ratios w = new / old of the shares of the classes. Solved with w ≥
    0 and, as C may be singular and is counted from n rows, with |w − 1|² / (n·Y) added: ratios of
    which nothing is known stay 1.

    Args:
        confusion: Counts [predicted class, true class], as `confusion_of` gives them.
        predicted: The predicted classes of the targets [m].

    Examples:
        >>> bbse(np.diag([5000.0, 5000.0]), np.array([0, 0, 0, 1])).round(2)
        array([0.75, 0.25])
    """
    count = confusion.sum()
    joint, ridge = confusion / count, np.sqrt(1 / (count * len(confusion)))
    shares = np.bincount(predicted, minlength=len(confusion)) / max(len(predicted), 1)
    found, _ = nnls(
        np.vstack([joint, ridge * np.eye(len(joint))]),
        np.concatenate([shares, np.full(len(joint), ridge)]),
    )
    new = found * joint.sum(0)
    return new / new.sum()


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
