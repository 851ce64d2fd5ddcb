"""R_te ≤ R_tr + W1 (section 2 of the paper) for a linear head, and its measured loss."""

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
    """Mean cross-entropy of a linear head on earlier and later rows, in nats; gap ≤ bound."""

    earlier: float
    later: float
    mix: float  # contribution of changed class proportions alone, at the earlier losses
    messages: float  # Σ_y π_y·L_y·W1_y, the bound for messages that moved within their class
    logits: float  # the same by the distance that the head's logits moved, whose loss has L = √2
    steepest: float  # the largest L_y
    unseen: float  # share of later rows whose class no earlier row has; they are left out

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
    """Fit a linear head to earlier messages and bound the growth of its loss on later ones.

    The head is a linear discriminant: softmax(xW + b), W = Σ⁻¹μ. For the class y, the gradient of
    its cross-entropy is Σ_j p_j (w_j − w_y), so the loss is Lipschitz with L_y = max_j ‖w_j − w_y‖
    and, with W1_y the distance between the earlier and the later messages of the class and π the
    later class proportions,

        R_later ≤ R_earlier + mix + Σ_y π_y·L_y·W1_y.

    The paper prints one W1 for all messages, which holds only while neither the proportions nor the
    meaning of the classes change. Losses and exact W1 are those of the same random rows, equally
    many on both sides, at most `most` of a class; so the inequality holds for these numbers, and
    small samples make it looser.

    Examples:
        >>> x, y = np.array([[0.0], [1.0], [4.0], [5.0]]), np.array([0, 0, 1, 1])
        >>> same, moved = risk_bound(x, y, x, y), risk_bound(x, y, x + 1, y)
        >>> same.gap, same.bound, 0 < moved.gap <= moved.bound
        (0.0, 0.0, True)
    """
    before = checks.features("earlier", earlier, None)
    after = checks.features("later", later, None)
    before_label = checks.labels("label", earlier_label, len(before))
    after_label = checks.labels("label", later_label, len(after))
    before = before[before_label >= 0]
    before_label = before_label[before_label >= 0]
    classes, code = np.unique(before_label, return_inverse=True)
    weight, bias = _head(before.astype(np.float64), code, len(classes))
    rng = np.random.default_rng(seed)
    # Per class: rows and mean losses of both sides, and the distances times Lipschitz constants.
    count, loss = np.zeros((2, 2, len(classes)))
    growth = np.zeros((2, len(classes)))
    lipschitz = np.zeros(len(classes))
    for k, label in enumerate(classes):
        before_rows = np.flatnonzero(before_label == label)
        after_rows = np.flatnonzero(after_label == label)
        count[:, k] = len(before_rows), len(after_rows)
        size = min(most, len(before_rows), len(after_rows))
        if not size:
            continue
        x = [
            before[rng.choice(before_rows, size, replace=False)],
            after[rng.choice(after_rows, size, replace=False)],
        ]
        logits = [side @ weight + bias for side in x]
        loss[:, k] = [(np.logaddexp.reduce(side, 1) - side[:, k]).mean() for side in logits]
        lipschitz[k] = np.linalg.norm(weight - weight[:, k : k + 1], axis=0).max()
        growth[:, k] = lipschitz[k] * _w1(*x), math.sqrt(2) * _w1(*logits)
    count *= count.min(0) > 0
    if not count.any():
        raise InputError(
            "earlier and later rows have no class in common; pass labels that both have."
        )
    before_share, after_share = count / count.sum(1, keepdims=True)
    messages, logit_growth = growth @ after_share
    return RiskBound(
        earlier=float(before_share @ loss[0]),
        later=float(after_share @ loss[1]),
        mix=float((after_share - before_share) @ loss[0]),
        messages=float(messages),
        logits=float(logit_growth),
        steepest=float(lipschitz.max()),
        unseen=float(1 - count[1].sum() / (after_label >= 0).sum()),
    )


def _w1(a: np.ndarray, b: np.ndarray) -> float:
    """Compute the exact distance of two samples of equally many vectors: the cheapest pairing."""
    cost = cdist(a, b)
    return float(cost[linear_sum_assignment(cost)].mean())


def _head(x: np.ndarray, y: np.ndarray, num_labels: int) -> tuple[np.ndarray, np.ndarray]:
    """Fit weights [f, Y] and biases [Y] of the linear discriminant."""
    count = np.bincount(y, minlength=num_labels)
    mean = np.stack([x[y == k].mean(0) for k in range(num_labels)])
    within = (x - mean[y]).T @ (x - mean[y]) / len(x)
    ridge = max(float(np.trace(within)) / len(within), 1e-12)
    shrunk = (1 - SHRINKAGE) * within + SHRINKAGE * ridge * np.eye(len(within))
    weight = np.linalg.solve(shrunk, mean.T)
    return weight, np.log(count / len(x)) - 0.5 * (mean.T * weight).sum(0)
