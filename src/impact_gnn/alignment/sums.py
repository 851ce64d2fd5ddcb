"""Groups of nodes (`Communities`) and their additive moments (`Moments`)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from impact_gnn import checks
from impact_gnn._array import (
    Array,
    convert_like,
    group_moments,
    is_torch,
    periods,
    safe_divide,
)
from impact_gnn.checks import InputError


@dataclass(frozen=True, eq=False)
class Communities:
    """Nodes of one label and time, and the target nodes as a group of their own.

    `group` is period·num_labels + label for labelled nodes that are no targets, one last group for
    the targets, −1 for the rest. Built once from labels and times, then used for every message.
    """

    times: np.ndarray
    num_labels: int
    group: Array
    labelled: Array  # `group` with the targets left out

    @classmethod
    def of(
        cls, label: Array, time: Array, target: Array, reference: Array | None = None
    ) -> Communities:
        """Group nodes without reading target labels; arrays are in `reference`'s library."""
        node_time = checks.node_times("time", time)
        num_nodes = len(node_time)
        is_target = checks.mask("target", target, num_nodes)
        if not is_target.any():
            raise InputError("target marks no node; mark the nodes at or after the cutoff.")
        known = checks.array("label", label)
        # Labels of targets are blanked before anything reads them. Arrays of another type or size
        # are refused by the check that follows.
        if known.dtype.kind in "iuf" and known.size == num_nodes:
            known = known.reshape(-1).copy()
            known[is_target] = 0
        known = checks.labels("label", known, num_nodes)
        times, period = periods(node_time)
        # At least one, so that shapes stay valid without any label.
        num_labels = max(int(known.max()) + 1, 1)
        if len(times) * num_labels >= np.iinfo(np.int32).max:
            raise InputError(
                f"{len(times)} times and {num_labels} labels are too many communities; "
                "bin the times or merge labels."
            )
        # Community of every node; −1 for targets and without a label.
        labelled = (period.astype(np.int64) * num_labels + known).astype(np.int32)
        labelled[is_target | (known < 0)] = -1
        # Targets form one group after all others.
        group = labelled.copy()
        group[is_target] = len(times) * num_labels
        if reference is None:
            reference = time
        return cls(
            times=times,
            num_labels=num_labels,
            group=convert_like(group, reference),
            labelled=convert_like(labelled, reference),
        )

    @property
    def num_groups(self) -> int:
        return len(self.times) * self.num_labels + 1

    def moments(self, message: Array) -> Moments:
        return Moments.of(message, self.group, self.num_groups)


@dataclass(frozen=True, eq=False)
class Moments:
    """Count [G], mean [G, f] and sum of squared deviations [G, f] of groups of rows, in float64.

    Examples:
        >>> moments = Moments.of(np.array([[0.0], [2.0]]), np.array([0, 0]), 1)
        >>> moments.update(np.array([[7.0]]), np.array([0])).mean
        array([[3.]])
    """

    count: Array
    mean: Array
    squares: Array

    @classmethod
    def of(cls, values: Array, group: Array, num_groups: int) -> Moments:
        """Compute the moments of every group; negative groups are left out."""
        return cls(*group_moments(values, group, num_groups))

    def update(self, values: Array, group: Array) -> Moments:
        """Return the moments after more rows."""
        return self.merge(Moments.of(values, group, len(self.count)))

    def merge(self, other: Moments) -> Moments:
        """Return the moments of both sets of rows together."""
        count = self.count + other.count
        # The pairwise update of means and squares by Chan et al.: exact in any order of blocks.
        share = safe_divide(other.count, count)[:, None]
        step = other.mean - self.mean  # [G, f]
        between = step * step * self.count[:, None] * share
        squares = self.squares + other.squares + between
        return Moments(count, self.mean + step * share, squares)

    def overall(self) -> Array:
        """Return the mean [f] over all rows of all groups."""
        count = self.count.sum()
        total = (self.count[:, None] * self.mean).sum(0)
        return safe_divide(total, count)


def as_message(message: Array, num_nodes: int, name: str = "message") -> Array:
    """Return `message` if it is a matrix of floats with one row per node."""
    shape = tuple(getattr(message, "shape", ()))
    if len(shape) != 2 or shape[0] != num_nodes:
        raise InputError(
            f"{name} has shape {shape} for {num_nodes} nodes; pass one row per node [N, f]."
        )
    is_float_tensor = is_torch(message) and message.is_floating_point()
    if not is_float_tensor and message.dtype not in (np.float32, np.float64):
        raise InputError(f"{name} has dtype {message.dtype}; pass float32 or float64.")
    return message
