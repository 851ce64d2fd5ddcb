"""Links between two kinds of nodes that prefer their own label and times that are near, drawn as coins are thrown.

A node i has a label and a period. A pair (i, j) is linked with probability

    base · γ^|period_i − period_j|,   base = same where the labels are equal, different elsewhere.

There are (labels · periods)² pairs of blocks, too many where labels are many. But only two bases occur. So all pairs
of two *periods* are thrown with `different` and those of equal labels are put aside; the pairs of equal labels
are then thrown label by label with `same`. Every pair has its own probability, and the work is that of the links.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from impact_gnn.checks import InputError
from impact_gnn.data import _sampling
from impact_gnn.data._sampling import EDGES_PER_PIECE, Pieces


@dataclass(frozen=True, eq=False)
class Side:
    """Nodes of one kind: for each its label and its period."""

    label: np.ndarray
    period: np.ndarray

    def __len__(self) -> int:
        return len(self.label)

    def sizes(self, labels: int, periods: int) -> np.ndarray:
        """Nodes per label and period [Y, T]."""
        key = self.label.astype(np.int64) * periods + self.period
        return np.bincount(key, minlength=labels * periods).reshape(labels, periods)


@dataclass(frozen=True, eq=False)
class Links:
    """The law of one relation, and the graph's nodes on its two sides.

    Args:
        name: Of the relation, for refusals.
        rows: Nodes on the one side.
        columns: Nodes on the other side; the very same object for links within one kind, each unordered pair once.
        num_labels: Number of labels Y.
        num_times: Number of periods T.
        expected: Expected number of links.
        homophily: Expected share of links between nodes of one label.
        decay: γ.
    """

    name: str
    rows: Side
    columns: Side
    num_labels: int
    num_times: int
    expected: int
    homophily: float
    decay: float

    @property
    def within(self) -> bool:
        """Whether links are within one kind."""
        return self.rows is self.columns

    def bases(self) -> tuple[float, float]:
        """(same, different): the probabilities of a link at the same period that give the expected numbers."""
        decay = self.decays()
        ours, theirs = (side.sizes(self.num_labels, self.num_times) for side in (self.rows, self.columns))
        equal = float(np.einsum("ys,st,yt->", ours, decay, theirs, dtype=np.float64, optimize=True))
        pairs = float(ours.sum(0) @ decay @ theirs.sum(0))
        unequal = pairs - equal
        if self.within:  # no node with itself, every pair once
            equal, unequal = (equal - len(self.rows)) / 2, unequal / 2
        share = self.homophily if self.num_labels > 1 else 1.0
        found = []
        for what, number, room in (
            ("of one label", share * self.expected, equal),
            ("of different labels", (1 - share) * self.expected, unequal),
        ):
            if number > room:
                raise InputError(
                    f"{self.name}={self.expected:,} cannot be reached: {number:,.0f} links between nodes {what} are "
                    f"wanted where {max(room, 0):,.0f} are possible; give fewer links, more nodes or a decay nearer 1."
                )
            found.append(number / room if room > 0 else 0.0)
        return found[0], found[1]

    def decays(self) -> np.ndarray:
        """γ^|Δ| [T, T]; 0⁰ = 1, so that the same period is kept."""
        steps = np.arange(self.num_times)
        return float(self.decay) ** np.abs(np.subtract.outer(steps, steps))

    def draw(self, seed: np.random.SeedSequence) -> np.ndarray:
        """The links [2, E] as (row node, column node)."""
        same, different = self.bases()
        apart, alike = seed.spawn(2)
        nobody = np.zeros(len(self.rows), np.int64), np.zeros(len(self.columns), np.int64)
        found = self._blockwise(different, *nobody, 1, apart)
        found = found[:, self.rows.label[found[0]] != self.columns.label[found[1]]]
        own = self._blockwise(same, self.rows.label, self.columns.label, self.num_labels, alike)
        return np.concatenate([found, own], axis=1)

    def _blockwise(
        self, base: float, row_group: np.ndarray, column_group: np.ndarray, groups: int, seed: np.random.SeedSequence
    ) -> np.ndarray:
        """Pairs of equal group, a block being the nodes of a group and period."""
        times = self.num_times
        members, sizes = [], []
        for side, group in ((self.rows, row_group), (self.columns, column_group))[: 1 if self.within else 2]:
            block = group.astype(np.int64) * times + side.period
            members.append(np.argsort(block, kind="stable"))
            sizes.append(np.bincount(block, minlength=groups * times))
        offset = np.concatenate([[0], np.cumsum(np.concatenate(sizes))])
        group, row, column = (part.ravel() for part in np.indices((groups, times, times)))
        if self.within:
            once = row <= column
            group, row, column = group[once], row[once], column[once]
        first, second = group * times + row, group * times + column
        chance = base * self.decays()[row, column]
        pairs = sizes[0][first] * sizes[-1][second]
        if self.within:
            pairs = np.where(first == second, sizes[0][first] * (sizes[0][first] - 1) // 2, pairs)
        else:
            second = second + groups * times  # blocks of the other side are numbered on
        work = _cut(first, second, pairs, chance)
        state = np.uint64(seed.generate_state(1, np.uint64)[0])
        count = _sampling.count_edges(work, state)
        nodes = np.concatenate(members)
        both = _sampling.draw_edges(work, count, 0, len(count), nodes, offset, False, state)
        return both[:, ::2]  # each pair is drawn in both directions, side by side


def _cut(row: np.ndarray, column: np.ndarray, pairs: np.ndarray, chance: np.ndarray) -> Pieces:
    """Pairs of blocks whose links have a chance, in pieces of about equal work."""
    keep = (pairs > 0) & (chance >= np.finfo(np.float64).tiny)
    row, column, pairs, chance = row[keep], column[keep], pairs[keep], chance[keep]
    parts = np.maximum(1, np.ceil(pairs * chance / EDGES_PER_PIECE).astype(np.int64))
    origin = np.repeat(np.arange(len(parts)), parts)
    step = -(-pairs // parts)
    start = (np.arange(len(origin)) - np.repeat(np.cumsum(parts) - parts, parts)) * step[origin]
    stop = np.minimum(start + step[origin], pairs[origin])
    return Pieces(row[origin].astype(np.int32), column[origin].astype(np.int32), start, stop, chance[origin])
