"""The log-odds of one row, split over its columns: TreeSHAP, or integrated gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor

from impact_gnn.checks import InputError
from impact_gnn.estimators import NetworkHead
from impact_gnn.estimators.head import Head, PriorHead
from impact_gnn.estimators.trees import TreesHead

STEPS = 256  # of the integral for networks that read rows
TINY = 1e-12


class Question(NamedTuple):
    """Why a node receives one class (`label`) rather than another (`runner_up`).

    The node is `node_index` in the graph, and `target_index` among the targets.
    """

    node_index: int
    target_index: int
    label: int
    runner_up: int

    def difference(self, values: Any) -> Any:
        """Subtract the runner-up's value from the label's; classes are the last axis."""
        return values[..., self.label] - values[..., self.runner_up]

    def log_odds(self, probabilities: ndarray) -> Any:
        """Return the log-odds of the label against the runner-up."""
        floored = np.maximum(probabilities, TINY, dtype=np.float64)
        return self.difference(np.log(floored))


def split_columns(
    head: Head, row: ndarray, mean: ndarray, question: Question
) -> tuple[ndarray, ndarray | None, float]:
    """Split the log-odds of a row over its columns.

    Returns their contributions, their slopes (None for trees), and the error of the sum.
    """
    if isinstance(head, TreesHead):
        assert head.booster is not None
        # TreeSHAP of one row, flat; [classes, columns + 1], the last one is the expected score.
        shapley = np.asarray(head.booster.predict(row[None], pred_contrib=True))
        by_class = shapley.reshape(head.shape.num_labels, -1)[:, :-1]
        # [columns], label minus runner-up.
        return question.difference(by_class.T), None, 0.0
    if isinstance(head, PriorHead):
        return _split_mixture(head, row, mean, question)
    if not isinstance(head, NetworkHead) or head.model is None:
        raise InputError(f"a {type(head).__name__} cannot be explained; use trees or a network.")
    # A network reads the row as separate matrices: hops first, then label hops.
    model = head.model
    widths = [*head.shape.hops, *head.shape.label_hops]
    count = len(head.shape.hops)

    def log_odds(point: Tensor) -> Tensor:
        matrices = point[None].split(widths, dim=1)
        logits = model(matrices[:count], matrices[count:])[0]
        return question.difference(logits)

    # Both ends of the line along which slopes are averaged.
    device = next(model.parameters()).device
    start = torch.tensor(mean, dtype=torch.float32, device=device)
    end = torch.tensor(row, dtype=torch.float32, device=device)
    slopes, error = mean_slopes(log_odds, end, start, STEPS)
    # Integrated gradients: mean slope on the line times the distance [columns].
    return slopes * (row - mean), slopes, error


def _split_mixture(
    head: PriorHead, row: ndarray, mean: ndarray, question: Question
) -> tuple[ndarray, ndarray, float]:
    """Split the log-odds of a mixture: zeros where all rows have the same probabilities."""
    slopes = np.zeros(len(row))
    if head.reads_proportions:
        num_labels = head.shape.num_labels
        for label, sign in ((question.label, 1.0), (question.runner_up, -1.0)):
            # Of both hops the column of the class.
            columns = [label, num_labels + label]
            weights = np.array([1 - head.last_weight, head.last_weight])
            ends = np.maximum([weights @ row[columns], weights @ mean[columns]], TINY)
            # The mean slope of the logarithm between both ends, at equal ends its limit.
            slope = 1 / ends[0]
            if not np.isclose(*ends):
                slope = np.diff(np.log(ends))[0] / np.diff(ends)[0]
            slopes[columns] = sign * slope * weights
    return slopes * (row - mean), slopes, 0.0


def mean_slopes(
    log_odds: Callable[[Tensor], Tensor], x: Tensor, mean: Tensor, steps: int
) -> tuple[ndarray, float]:
    """Return the mean gradient on the line from the mean to x, and the error of the integral."""
    # Squares of the midpoints: steps are short near the mean.
    middle = (np.arange(steps) + 0.5) / steps
    slopes = torch.zeros_like(x, dtype=torch.float64)
    for position in middle.tolist():
        point = (mean + position**2 * (x - mean)).requires_grad_()
        gradient = torch.autograd.grad(log_odds(point), point)[0]
        # The line is run through as position², so a midpoint's weight is proportional to position.
        slopes += position / middle.sum() * gradient
    # Exact difference between both ends; what the integral misses is its error.
    with torch.no_grad():
        total = float(log_odds(x) - log_odds(mean.expand_as(x)))
    explained = float((slopes * (x - mean)).sum())
    return slopes.cpu().numpy(), total - explained


def share_by_side(weights: ndarray, offsets: ndarray, distance: ndarray) -> ndarray:
    """Return shares [nodes, columns] of the nodes on the same side of the mean as the row.

    Shares of a column sum to 1; where no node is on that side, they are the weights.
    """
    # Weight times distance on the row's side of the mean, 0 on the other side.
    by_weight = weights[:, None]
    share = by_weight * np.maximum(offsets * np.sign(distance), 0)
    # No node on that side: by weight alone.
    share = np.where(share.sum(0) > 0, share, by_weight)
    return share / share.sum(0)
