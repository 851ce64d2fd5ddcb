"""Bounds of the paper: W1 of a label's messages (Theorem 4.3), and the risk of a linear head."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from impact_gnn import checks
from impact_gnn._array import Array
from impact_gnn.bounds import as_sample, sorted_projections, unit_directions, w1_by_column
from impact_gnn.checks import InputError

SHRINKAGE = 0.1  # of the covariance towards a multiple of the identity


@dataclass(frozen=True)
class Comparison:
    """Measured distance of one label's messages between two periods, and its bounds.

    All are means over the same directions. `measured` cannot exceed `mean_gap + equal_means`; the
    bounds alone hold if the means agree (`mean_gap` = 0), which is the premise of the theory.
    """

    label: int
    time: int
    measured: float  # W1
    mean_gap: float  # |mean − mean of the reference|
    trivial: float  # 2C
    theorem_4_3: float  # min(2C, 3·(4CV)^(1/3)), with C and V as measured in the two samples
    equal_means: float  # √(2V)


def compare(
    message: Array, label: Array, time: Array, *, num_slices: int = 16, seed: int = 0
) -> list[Comparison]:
    """Compare every label's messages of a period with those of the last period that has labels.

    The theory is about scalar messages; vectors [N, f] are projected on random directions, each a
    scalar message. Nodes with label −1 are left out, so pass labels masked at the cutoff.

    Examples:
        >>> for row in compare([0.0, 2.0, -1.0, 3.0], [0, 0, 0, 0], [0, 0, 1, 1]):
        ...     bounds = round(row.equal_means, 3), row.theorem_4_3
        ...     print(row.time, row.measured, row.mean_gap, *bounds)
        0 1.0 0.0 2.828 6.0
    """
    values = as_sample("message", message)
    known = checks.labels("label", label, len(values))
    moment = checks.node_times("time", time, len(values))
    if not (known >= 0).any():
        raise InputError(
            "label is -1 for every node, so there is no label to compare; "
            "pass the labels of the past."
        )
    last = int(moment[known >= 0].max())
    directions = unit_directions(values.shape[1], num_slices, seed)
    comparisons = []
    for y in np.unique(known[known >= 0]):
        projections = {
            int(t): sorted_projections(values[(known == y) & (moment == t)], directions)
            for t in np.unique(moment[known == y])
        }
        goal = projections.pop(last, None)
        if goal is not None:
            for t, projected in projections.items():
                comparisons.append(_comparison(int(y), t, projected, goal))
    return comparisons


def _comparison(label: int, time: int, projected: np.ndarray, goal: np.ndarray) -> Comparison:
    """Compare sorted projections [n, directions] of one label at two times."""
    # |M| ≤ C and variance at most V, per direction.
    C = np.maximum(np.abs(projected).max(0), np.abs(goal).max(0)).clip(np.finfo(float).tiny)
    V = np.maximum(projected.var(0), goal.var(0))
    pairs = zip(C.tolist(), V.tolist(), strict=True)
    theorem_4_3 = [min(2 * c, 3 * (4 * c * v) ** (1 / 3)) for c, v in pairs]
    return Comparison(
        label=label,
        time=time,
        measured=float(np.mean(w1_by_column(projected, goal))),
        mean_gap=float(np.mean(np.abs(projected.mean(0) - goal.mean(0)))),
        trivial=float(np.mean(2 * C)),
        theorem_4_3=float(np.mean(theorem_4_3)),
        equal_means=float(np.mean(np.sqrt(2 * V))),
    )


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
