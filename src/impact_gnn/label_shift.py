"""Label shift: class proportions of targets, estimated without labels, and adjusted probabilities.

Where only the proportions change, p(x | y) being the same, Bayes' rule corrects a model's
probabilities: p'(y | x) ∝ p(y | x)·new_y / prior_y. The new prior is estimated by EM on the
probabilities (Saerens et al. 2002).
"""

from __future__ import annotations

import numpy as np
from numpy import ndarray
from scipy.special import softmax

from impact_gnn._array import safe_divide

TINY = 1e-12


def saerens(
    probabilities: ndarray, prior: ndarray, *, steps: int = 1000, tolerance: float = 1e-9
) -> ndarray:
    """Estimate the class proportions of rows by maximum likelihood: new_y ← mean_i p'_i(y), by EM.

    Args:
        probabilities: [n, Y], of a model that was trained with the proportions `prior`.
        prior: [Y]; a class without training labels stays 0.
        steps: The largest number of EM steps.
        tolerance: Steps end when no proportion changes by more.

    Examples:
        >>> certain = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
        >>> saerens(certain, np.array([0.5, 0.5]))
        array([0.75, 0.25])
    """
    new = np.asarray(prior, np.float64)
    # Without rows there is nothing to estimate from.
    if not len(probabilities):
        return new
    for _ in range(steps):
        before = new
        # E step: probabilities under the current proportions [n, Y]. M step: their mean [Y].
        new = reweighted(probabilities, ratio(new, prior)).mean(0)
        if np.abs(new - before).max() <= tolerance:
            break
    return new


def confusion_of(predicted: ndarray, labels: ndarray, num_labels: int) -> ndarray:
    """Count [predicted class, true class] of rows whose label is known."""
    # By numpy: this layer is imported where scikit-learn may not be installed.
    counts = np.zeros((num_labels, num_labels))
    np.add.at(counts, (predicted, labels), 1)
    return counts


def ratio(new: ndarray, prior: ndarray) -> ndarray:
    """Return new_y / prior_y, 0 for classes without training labels."""
    return safe_divide(new, np.asarray(prior))


def reweighted(probabilities: ndarray, by: ndarray) -> ndarray:
    """Return p'(y | x) ∝ p(y | x)·by_y [n, Y]; rows whose products are all zero stay.

    Examples:
        >>> reweighted(np.array([[0.5, 0.5]]), np.array([0.9, 0.1]))
        array([[0.9, 0.1]])
    """
    weighted = probabilities * by
    total = weighted.sum(1, keepdims=True)
    return safe_divide(weighted, total, probabilities)


def tempered(probability: ndarray, temperature: float) -> ndarray:
    """Return probabilities to the power 1/temperature, with rows that sum to 1.

    Examples:
        >>> tempered(np.array([[0.9, 0.1]]), 2.0).round(2).tolist()
        [[0.75, 0.25]]
    """
    # Floored, because log 0 is not finite.
    floored = np.maximum(probability.astype(np.float64), TINY)
    return softmax(np.log(floored) / temperature, axis=1)
