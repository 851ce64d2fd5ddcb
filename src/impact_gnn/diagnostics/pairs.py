"""Connections counted by class and period of a node, and by group and period of its neighbour.

Groups instead of single labels have a tenth of the cells, and a tenth of the noise. Many periods are drawn together
into at most `MOST_PERIODS` steps of equal length.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from impact_gnn.diagnostics.view import View

GROUPS = ("same label", "strongest other label", "other labels")
MOST_PERIODS = 40


@dataclass(frozen=True, eq=False)
class PairCounts:
    """Edges into labelled nodes from nodes of periods that have labels, in both directions."""

    steps: np.ndarray  # first time of every step [T]
    width: int  # of a step in time
    strongest: np.ndarray  # for every class the label met most often besides its own [Y]
    num_nodes: np.ndarray  # of every step, labelled or not [T]
    # Edges by class, group, own step and neighbour's step [Y, 3, T, T]; neighbours without a label are handed to the
    # groups in the proportions seen among the others.
    counts: np.ndarray
    _cell: np.ndarray
    _target: np.ndarray
    _shape: tuple[int, int, int]

    @classmethod
    def of(cls, view: View) -> PairCounts | None:
        """The counts, or None where no edge joins two labelled nodes."""
        if view.own is None:
            return None
        label = view.label
        first, last = (int(view.masked.times[position]) for position in view.known[[0, -1]])
        width = -(-(last - first + 1) // MOST_PERIODS) if len(view.known) > MOST_PERIODS else 1
        filled = np.unique((view.masked.times[view.known] - first) // width)
        step = (view.masked.time - first) // width
        position = np.searchsorted(filled, step).clip(0, len(filled) - 1)
        inside = (filled[position] == step) & (view.masked.time <= last)
        source, target = view.edges
        kept = (label[target] >= 0) & inside[source]
        source, target = source[kept], target[kept]
        classes, size = view.masked.num_labels, len(filled)
        both = label[source] >= 0
        pair = label[target[both]] * classes + label[source[both]]
        met = np.bincount(pair, minlength=classes**2).reshape(classes, classes)
        if not met.any():
            return None
        other = np.where(np.eye(classes, dtype=bool), -1, met)
        strongest = np.where(other.max(1) > 0, other.argmax(1), -1)
        own = label[target]
        group = np.select([~both, label[source] == own, label[source] == strongest[own]], [3, 0, 1], 2)
        cell = ((own * 4 + group) * size + position[target]) * size + position[source]
        number = np.bincount(position[inside], minlength=size)
        counts = _handed_out(np.bincount(cell, minlength=classes * 4 * size * size), classes, size)
        return cls(first + filled * width, width, strongest, number, counts, cell, target, (classes, size, len(label)))

    def redrawn(self, rng: np.random.Generator) -> np.ndarray:
        """`counts` after drawing the nodes again, each with all its edges."""
        classes, size, nodes = self._shape
        weight = rng.poisson(1.0, nodes).astype(np.float64)
        counts = np.bincount(self._cell, weight[self._target], classes * 4 * size * size)
        return _handed_out(counts, classes, size)


def _handed_out(counts: np.ndarray, classes: int, size: int) -> np.ndarray:
    """[Y, 4, T, T] → [Y, 3, T, T]: neighbours of unknown label are shared out among the groups."""
    table = counts.reshape(classes, 4, size, size).astype(np.float64)
    known, unknown = table[:, :3], table[:, 3:]
    if not unknown.any():
        return known
    here, everywhere = known.sum(1, keepdims=True), known.sum((2, 3), keepdims=True)
    usual = everywhere / np.maximum(everywhere.sum(1, keepdims=True), 1e-300)
    share = np.divide(known, here, out=np.broadcast_to(usual, known.shape).copy(), where=here > 0)
    return known + share * unknown
