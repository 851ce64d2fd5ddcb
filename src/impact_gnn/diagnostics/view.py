"""What the diagnostics look at: one view of the graph without later labels, and its own edges in both directions.

Whatever is as large as the edges or the features is read in blocks or in samples, so that a graph
on disk stays there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from impact_gnn.checks import listing
from impact_gnn.data.drawing import WEYL, scramble
from impact_gnn.engines import Engine, or_memory
from impact_gnn.graph import TemporalGraph

BLOCK = 1 << 22  # edges looked at in one go
# that connections are counted on; of larger graphs the in-edges of a sample of nodes
MOST_EDGES = 1 << 22


@dataclass(frozen=True, eq=False)
class View:
    """A masked graph, and the edges among its target type as a homogeneous graph in both directions."""

    masked: TemporalGraph  # without labels at or after the cutoff
    # the target nodes with the edges among them, undirected; None where there are none
    own: TemporalGraph | None
    # of `own` without loops, those into a sample of nodes if there are many [2, E]
    edges: np.ndarray
    notes: tuple[str, ...]  # what was done to get there, in sentences

    @property
    def label(self) -> np.ndarray:
        """Known labels of the target nodes, −1 elsewhere."""
        return self.masked.label

    @property
    def num_features(self) -> int:
        return 0 if self.masked.x is None else self.masked.x.shape[1]

    def features(self, rows: np.ndarray, columns: np.ndarray | None = None) -> np.ndarray:
        """Features of some nodes in memory, in float32 or float64."""
        assert self.masked.x is not None
        x = self.masked.x if len(rows) == self.masked.num_nodes else self.masked.x[rows]
        x = x if columns is None or len(columns) == x.shape[1] else x[:, columns]
        return x.astype(np.float32) if x.dtype.itemsize < 4 else x

    @property
    def cutoff(self) -> int:
        return self.masked.hidden_from("a diagnosis needs")

    @property
    def known(self) -> np.ndarray:
        """Positions among the times of those periods that have labelled nodes."""
        return np.unique(self.masked.period[self.label >= 0])

    @classmethod
    def of(cls, masked: TemporalGraph, engine: Engine | None = None, *, seed: int = 0) -> View:
        """The view of a graph made by `masked(cutoff)`."""
        masked, cutoff = masked.encoded(), masked.hidden_from("a diagnosis needs")
        kind, none = masked.target, np.zeros((2, 0), np.int64)
        used = {
            t: part
            for t, part in masked.relations.items()
            if t[0] == t[2] == kind and part.num_edges
        }
        if not used:
            why = (
                f"No relation joins {kind!r} nodes with each other"
                if masked.is_hetero
                else "The graph has no edges"
            )
            return cls(masked, None, none, (f"{why}, so nothing can be said about connections.",))
        # One relation stays where it is; several are put together in memory.
        parts = list(used.values())
        edge_index = (
            parts[0].edge_index
            if len(parts) == 1
            else np.concatenate([p.edge_index for p in parts], axis=1)
        )
        weight = parts[0].weight
        if len(parts) > 1 and any(part.weight is not None for part in parts):
            weight = np.concatenate(
                [np.ones(p.num_edges, np.float32) if p.weight is None else p.weight for p in parts]
            )
        if all((source == target).all() for source, target in _blocks(edge_index)):
            return cls(
                masked,
                None,
                none,
                ("All edges are loops, so nothing can be said about connections.",),
            )
        notes = []
        if masked.is_hetero:
            skipped = [t for t in masked.relations if t not in used]
            notes.append(f"Connections are those of {listing(['-'.join(t) for t in used])}.")
            if skipped:
                notes.append(f"Left out: {listing(['-'.join(t) for t in skipped])}.")
        # Without the edges' times: connections are counted as they are today.
        own = TemporalGraph(
            y=masked.y,
            time=masked.time,
            edge_index=edge_index,
            edge_weight=weight,
            num_labels=masked.num_labels,
        )
        if not _has_reverses(edge_index):
            own = or_memory(engine).graph(own, undirected=True)
            notes.append("The edges have a direction; they were taken in both, as the paper does.")
        share = min(1.0, MOST_EDGES / own.edge_index.shape[1])
        chosen = np.random.default_rng(seed).random(masked.num_nodes) < share
        if share < 1:
            notes.append(f"Connections were counted at a random {share:.2%} of the nodes.")
        kept = [
            block[:, (block[0] != block[1]) & chosen[block[1]]] for block in _blocks(own.edge_index)
        ]
        return cls(masked, own.masked(cutoff), np.concatenate(kept, axis=1), tuple(notes))


def _blocks(edge_index: np.ndarray) -> Iterator[np.ndarray]:
    for start in range(0, edge_index.shape[1], BLOCK):
        yield np.asarray(edge_index[:, start : start + BLOCK])


def _has_reverses(edge_index: np.ndarray) -> bool:
    """Whether every edge has its reverse, as often as it is listed.

    Edges and their reverses are the same collection if sums of random numbers, one for every pair
    of ends by a hash, agree; that those of two different collections agree has a chance of 2^-64.
    """
    pairs = (
        (_hashed(source, target), _hashed(target, source)) for source, target in _blocks(edge_index)
    )
    return sum(int((forth - back).sum(dtype=np.uint64)) for forth, back in pairs) % (1 << 64) == 0


def _hashed(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """A number for every ordered pair."""
    return scramble((scramble(first.astype(np.uint64) + WEYL) ^ second.astype(np.uint64)) + WEYL)


def some(rows: np.ndarray | int, most: int, rng: np.random.Generator) -> np.ndarray:
    """All rows, or a random choice of `most` of them in their order."""
    size = rows if isinstance(rows, int) else len(rows)
    chosen = np.arange(size) if size <= most else np.sort(rng.choice(size, most, replace=False))
    return chosen if isinstance(rows, int) else rows[chosen]


def recent(num_periods: int) -> int:
    """How many of the last periods stand for what is to come: a third of them, at least five."""
    return max(5, num_periods // 3)
