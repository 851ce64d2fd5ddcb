"""JJnorm: one scale per period that fits the variance of labelled messages to the targets'."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from impact_gnn._array import (
    Array,
    clipped_sqrt,
    convert_like,
    group_affine,
    safe_divide,
    to_numpy,
    where,
)
from impact_gnn.alignment.sums import Communities, Moments, as_message


@dataclass(frozen=True, eq=False)
class JJSums:
    """The sums over columns that JJnorm needs: merge those of column blocks, then `compute`.

    `within` and `between` are Σ‖M_v−μ_yt‖² and Σ n_yt‖μ_yt−μ_t‖² per period, `spread` is
    Σ‖M_v−mean‖² over the targets; `count` and `num_targets` are the numbers of rows behind them.
    """

    count: Array
    within: Array
    between: Array
    num_targets: Array
    spread: Array

    @classmethod
    def of(cls, moments: Moments, num_labels: int) -> JJSums:
        """Sum a block of columns, from the moments of all its rows grouped as in `Communities`."""
        # The last group are the targets, the others are [T, Y].
        size = moments.count[:-1].reshape(-1, num_labels)
        num_periods = len(size)
        # [T, Y, f], f being the columns of this block.
        mean = moments.mean[:-1].reshape(num_periods, num_labels, -1)
        # By period, over its labels and the columns of the block, [T, Y·f].
        squares = moments.squares[:-1].reshape(num_periods, -1)
        # Nodes [T] and means [T, f] of periods.
        count = size.sum(1)
        total = (size[:, :, None] * mean).sum(1)
        period_mean = safe_divide(total, count[:, None])
        # Squared distances of community means from them, [T, Y].
        distance = ((mean - period_mean[:, None]) ** 2).sum(2)
        return cls(
            count=count,
            within=squares.sum(1),
            between=(size * distance).sum(1),
            num_targets=moments.count[-1],
            spread=moments.squares[-1].sum(),
        )

    def merge(self, other: JJSums) -> JJSums:
        """Add the sums of two blocks of columns of the same rows."""
        # Counts are not added: the rows are the same.
        return replace(
            self,
            within=self.within + other.within,
            between=self.between + other.between,
            spread=self.spread + other.spread,
        )

    def compute(self) -> Array:
        """Return α per period: α² = (σ²_target − ν²_t)/σ²_t, zero where that is negative.

        It is 1 where it is undefined: with fewer than two labelled nodes or targets, or no variance
        within communities.
        """
        has_targets = self.num_targets > 1
        has_rows = self.count > 1
        measurable = has_rows & (self.within > 0) & has_targets
        # Variance of the targets, summed over columns.
        goal = self.spread / where(has_targets, self.num_targets - 1, 1.0)
        # Variances within and between communities of a period have the same divisor n − 1, [T].
        freedom = where(has_rows, self.count - 1, 1.0)
        between = self.between / freedom
        # Where α is undefined, 1 avoids 0 / 0 and its NaN gradient.
        within = where(measurable, self.within / freedom, 1.0)
        square = (goal - between) / within
        return where(measurable, clipped_sqrt(square), 1.0)


def jjnorm(message: Array, label: Array, time: Array, *, target: Array) -> Array:
    """Scale labelled communities about their means so that a period's variance fits the targets'.

    M_v ← μ_yt + α_t (M_v − μ_yt), α_t² = (σ²_target − ν²_t) / σ²_t, with σ²_target the total
    variance of the messages of all target nodes (no labels), ν²_t and σ²_t the variances between
    and within the communities of period t. Target nodes and unlabelled nodes pass unchanged; so do
    periods whose α is undefined (`JJSums`).

    Args:
        message: Messages [N, f]; numpy or torch (then differentiable).
        label: Labels [N], −1 unknown; labels of target nodes are not read.
        time: Integer time [N].
        target: Mask of the target nodes [N]; without any it is an `InputError`.

    Examples:
        >>> message = np.array([[0.0], [2.0], [10.0], [14.0]])
        >>> time = np.array([1, 1, 2, 2])
        >>> jjnorm(message, [0, 0, -1, -1], time, target=time == 2).ravel()
        array([-1., 3., 10., 14.])
    """
    communities = Communities.of(label, time, target, message)
    return jjnorm_by(as_message(message, len(communities.group)), communities)


def jjnorm_by(message: Array, communities: Communities) -> Array:
    """Apply `jjnorm` with precomputed communities."""
    moments = communities.moments(message)
    scale = JJSums.of(moments, communities.num_labels).compute()
    return apply_jjnorm(message, communities, moments, scale)


def apply_jjnorm(message: Array, communities: Communities, moments: Moments, scale: Array) -> Array:
    """Scale rows by precomputed moments and scales: the second pass over a message in files."""
    # The scale of a period for each of its communities [T·Y]; the last group are the targets.
    zeros = convert_like(np.zeros((1, communities.num_labels)), scale)
    by_label = (scale[:, None] + zeros).reshape(-1)
    mean = moments.mean[:-1]
    return group_affine(message, communities.labelled, mean, by_label, mean)


def jj_scales(message: Array, label: Array, time: Array, *, target: Array) -> dict[int, float]:
    """Return JJnorm's α for every period that has labelled nodes.

    Examples:
        >>> message, time = np.array([[0.0], [2.0], [10.0], [14.0]]), np.array([1, 1, 2, 2])
        >>> jj_scales(message, [0, 0, -1, -1], time, target=time == 2)
        {1: 2.0}
    """
    communities = Communities.of(label, time, target, message)
    moments = communities.moments(as_message(message, len(communities.group)))
    sums = JJSums.of(moments, communities.num_labels)
    scales = to_numpy(sums.compute())
    labelled = np.flatnonzero(to_numpy(sums.count))
    return {int(communities.times[t]): float(scales[t]) for t in labelled}
