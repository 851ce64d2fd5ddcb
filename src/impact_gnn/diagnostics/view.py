"""The input of the diagnostics: a graph without later labels, and edges in both directions.

Arrays as large as the edges or the features are read in blocks or samples: graphs on disk stay there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from impact_gnn.checks import listing
from impact_gnn.data.drawing import WEYL, scramble
from impact_gnn.engines import Engine, or_memory
from impact_gnn.graph import TemporalGraph

BLOCK = 1 << 22  # edges that are read at once
MAX_EDGES = 1 << 22  # to count connections on; larger graphs: in-edges of a sample of nodes


@dataclass(frozen=True, eq=False)
class View:
    """A masked graph, and the undirected homogeneous graph of its target type."""

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
            reason = "The graph has no edges"
            if masked.is_hetero:
                reason = f"No relation joins {kind!r} nodes with each other"
            note = f"{reason}, so nothing can be said about connections."
            return cls(masked=masked, own=None, edges=none, notes=(note,))
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
            note = "All edges are loops, so nothing can be said about connections."
            return cls(masked=masked, own=None, edges=none, notes=(note,))
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
        share = min(1.0, MAX_EDGES / own.edge_index.shape[1])
        chosen = np.random.default_rng(seed).random(masked.num_nodes) < share
        if share < 1:
            notes.append(f"Connections were counted at a random {share:.2%} of the nodes.")
        edges = [
            block[:, (block[0] != block[1]) & chosen[block[1]]] for block in _blocks(own.edge_index)
        ]
        return cls(
            masked=masked,
            own=own.masked(cutoff),
            edges=np.concatenate(edges, axis=1),
            notes=tuple(notes),
        )


def _blocks(edge_index: np.ndarray) -> Iterator[np.ndarray]:
    for start in range(0, edge_index.shape[1], BLOCK):
        yield np.asarray(edge_index[:, start : start + BLOCK])


def _has_reverses(edge_index: np.ndarray) -> bool:
    """Whether every edge has its reverse, with the same multiplicity.

    Compares sums of hashes of all edges and of all reverses. Two different collections have the
    same sum with a probability of 2^-64.
    """
    pairs = (
        (_hashed(source, target), _hashed(target, source)) for source, target in _blocks(edge_index)
    )
    return sum(int((forth - back).sum(dtype=np.uint64)) for forth, back in pairs) % (1 << 64) == 0


def _hashed(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """A number for every ordered pair."""
    return scramble((scramble(first.astype(np.uint64) + WEYL) ^ second.astype(np.uint64)) + WEYL)


def some(rows: np.ndarray | int, most: int, rng: np.random.Generator) -> np.ndarray:
    """All rows, or a sorted random sample of `most` of them."""
    size = rows if isinstance(rows, int) else len(rows)
    chosen = np.arange(size) if size <= most else np.sort(rng.choice(size, most, replace=False))
    return chosen if isinstance(rows, int) else rows[chosen]


def recent(num_periods: int) -> int:
    """Number of the last periods that represent the future: a third, at least five."""
    return max(5, num_periods // 3)
