"""R_te ≤ R_tr + W1 (section 2 of the paper) for one linear head: what moved messages can add to its loss, and do."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from impact_gnn import checks
from impact_gnn._array import Array
from impact_gnn.checks import InputError

SHRINKAGE = 0.1  # of the covariance towards a multiple of the identity


@dataclass(frozen=True)
class RiskBound:
    """Mean cross-entropy of a linear head on earlier and later rows, in nats; gap ≤ bound always."""

    earlier: float
    later: float
    mix: float  # what the change of the classes' shares alone adds, at the earlier losses
    messages: (
        float  # Σ_y π_y·L_y·W1_y, the most that messages which moved within their class can add
    )
    logits: float  # the same by the distance that the head's logits moved, whose loss has L = √2
    steepest: float  # the largest L_y
    unseen: float  # share of the later rows whose class no earlier row has; they are left out

    @property
    def gap(self) -> float:
        return self.later - self.earlier

    @property
    def bound(self) -> float:
        return self.mix + min(self.messages, self.logits)


def risk_bound(
    earlier: Array,
    earlier_label: Array,
    later: Array,
    later_label: Array,
    *,
    most: int = 200,
    seed: int = 0,
) -> RiskBound:
    """Fits a linear head to earlier messages and bounds how much its loss can grow on later ones.

    The head is a linear discriminant: softmax(xW + b), W = Σ⁻¹μ. For the class y, the gradient of
        its cross-entropy is
    Σ_j p_j (w_j − w_y), so the loss is Lipschitz with L_y = max_j ‖w_j − w_y‖ and, with W1_y the
    distance between the earlier and the later messages of the class and π the later shares of the
    classes,

        R_later ≤ R_earlier + mix + Σ_y π_y·L_y·W1_y.

    The paper prints one W1 for all messages, which holds only while neither the shares nor the
    meaning of the classes change. Losses and exact W1 are those of the same random rows, equally
    many on both sides, at most `most` of a class; so the inequality holds for the numbers given,
    and small samples make it looser.

    Examples:
        >>> x, y = np.array([[0.0], [1.0], [4.0], [5.0]]), np.array([0, 0, 1, 1])
        >>> same, moved = risk_bound(x, y, x, y), risk_bound(x, y, x + 1, y)
        >>> same.gap, same.bound, 0 < moved.gap <= moved.bound
        (0.0, 0.0, True)
    """
    before, after = (
        checks.features(name, x, None) for name, x in (("earlier", earlier), ("later", later))
    )
    own, other = (
        checks.labels("label", earlier_label, len(before)),
        checks.labels("label", later_label, len(after)),
    )
    before, own = before[own >= 0], own[own >= 0]
    classes, y = np.unique(own, return_inverse=True)
    weight, bias = _head(before.astype(np.float64), y, len(classes))
    rng, moved, steepest = (
        np.random.default_rng(seed),
        np.zeros((2, len(classes))),
        np.zeros(len(classes)),
    )
    count, loss = np.zeros((2, 2, len(classes)))  # of earlier and later rows
    for k, label in enumerate(classes):
        sides = [np.flatnonzero(values == label) for values in (own, other)]
        count[:, k] = [len(rows) for rows in sides]
        size = min(most, *map(len, sides))
        if size:
            x = [
                part[rng.choice(rows, size, replace=False)]
                for part, rows in zip((before, after), sides, strict=True)
            ]
            logits = [part @ weight + bias for part in x]
            loss[:, k] = [(np.logaddexp.reduce(z, 1) - z[:, k]).mean() for z in logits]
            steepest[k] = np.linalg.norm(weight - weight[:, k : k + 1], axis=0).max()
            moved[:, k] = steepest[k] * _w1(*x), math.sqrt(2) * _w1(*logits)
    count *= count.min(0) > 0
    if not count.any():
        raise InputError(
            "earlier and later rows have no class in common; give labels that both have."
        )
    first, last = count / count.sum(1, keepdims=True)
    mix, unseen = (last - first) @ loss[0], 1 - count[1].sum() / (other >= 0).sum()
    return RiskBound(
        *map(float, (first @ loss[0], last @ loss[1], mix, *(moved @ last), steepest.max(), unseen))
    )


def _w1(a: np.ndarray, b: np.ndarray) -> float:
    """The exact distance of two samples of equally many vectors: the cheapest way to pair them off."""
    cost = cdist(a, b)
    return float(cost[linear_sum_assignment(cost)].mean())


def _head(x: np.ndarray, y: np.ndarray, num_labels: int) -> tuple[np.ndarray, np.ndarray]:
    """Weights [f, Y] and biases [Y] of the linear discriminant."""
    count = np.bincount(y, minlength=num_labels)
    mean = np.stack([x[y == k].mean(0) for k in range(num_labels)])
    within = (x - mean[y]).T @ (x - mean[y]) / len(x)
    ridge = max(float(np.trace(within)) / len(within), 1e-12)
    weight = np.linalg.solve(
        (1 - SHRINKAGE) * within + SHRINKAGE * ridge * np.eye(len(within)), mean.T
    )
    return weight, np.log(count / len(x)) - 0.5 * (mean.T * weight).sum(0)
