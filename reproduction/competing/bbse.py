"""Black-box shift estimation (Lipton et al. 2018): class proportions from a confusion matrix."""

from __future__ import annotations

import numpy as np
from scipy.optimize import nnls


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
    ratios, _ = nnls(
        np.vstack([joint, ridge * np.eye(len(joint))]),
        np.concatenate([shares, np.full(len(joint), ridge)]),
    )
    new = ratios * joint.sum(0)
    return new / new.sum()
