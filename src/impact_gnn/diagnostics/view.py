"""What the diagnostics look at: one view of the graph without later labels, and its own edges in both directions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from impact_gnn.checks import listing
from impact_gnn.graph import TemporalGraph


@dataclass(frozen=True, eq=False)
class View:
    """A masked graph, and the edges among its target type as a homogeneous graph in both directions.

    Attributes:
        masked: The graph without labels at or after the cutoff.
        own: The target nodes with the edges among them, undirected and without loops; None where there are none.
        notes: What was done to get there, in sentences.
        from_past: Of the edges between different times as they were given, the share whose source is the older
            end; None where there are none. One half in an undirected graph.
    """

    masked: TemporalGraph
    own: TemporalGraph | None
    notes: tuple[str, ...]
    from_past: float | None

    @property
    def label(self) -> np.ndarray:
        """Known labels of the target nodes, −1 elsewhere."""
        assert self.masked.y is not None  # masked() refuses a graph without labels
        return self.masked.y

    @property
    def features(self) -> np.ndarray | None:
        """Features of the target nodes in float32 or float64; None where there are none."""
        x = self.masked.x
        if x is None or x.shape[1] == 0:
            return None
        return x.astype(np.float32) if x.dtype.itemsize < 4 else x

    @property
    def cutoff(self) -> int:
        """Labels are known before it."""
        assert self.masked.cutoff is not None  # views are made by masked()
        return self.masked.cutoff

    @property
    def known(self) -> np.ndarray:
        """Positions among the times of those periods that have labelled nodes."""
        return np.unique(self.masked.period[self.label >= 0])

    @classmethod
    def of(cls, masked: TemporalGraph) -> View:
        """The view of a graph made by `masked(cutoff)`."""
        assert masked.cutoff is not None
        kind = masked.target
        used = {t: part for t, part in masked.relations.items() if t[0] == t[2] == kind and part.num_edges}
        if not used:
            why = f"No relation joins {kind!r} nodes with each other" if masked.is_hetero else "The graph has no edges"
            return cls(masked, None, (f"{why}, so nothing can be said about connections.",), None)
        edge_index = np.concatenate([part.edge_index for part in used.values()], axis=1)
        weight = None
        if any(part.weight is not None for part in used.values()):
            parts = [np.ones(p.num_edges, np.float32) if p.weight is None else p.weight for p in used.values()]
            weight = np.concatenate(parts)
        proper = edge_index[0] != edge_index[1]
        edge_index, weight = edge_index[:, proper], None if weight is None else weight[proper]
        if not edge_index.shape[1]:
            return cls(masked, None, ("All edges are loops, so nothing can be said about connections.",), None)
        notes = []
        if masked.is_hetero:
            skipped = [t for t in masked.relations if t not in used]
            notes.append(f"Connections are those of {listing(['-'.join(t) for t in used])}.")
            if skipped:
                notes.append(f"Left out: {listing(['-'.join(t) for t in skipped])}.")
        step = masked.time[edge_index[0]] - masked.time[edge_index[1]]
        across = step != 0
        from_past = float((step[across] < 0).mean()) if across.any() else None
        directed = not _has_reverses(edge_index, masked.num_nodes)
        graph = TemporalGraph(
            y=masked.y, time=masked.time, edge_index=edge_index, edge_weight=weight,
            num_labels=masked.num_labels,
        )  # fmt: skip
        if directed:
            graph = graph.undirected()
            notes.append("The edges have a direction; they were taken in both, as the paper does.")
        return cls(masked, graph.masked(masked.cutoff), tuple(notes), from_past)


def _has_reverses(edge_index: np.ndarray, num_nodes: int) -> bool:
    """Whether every edge has its reverse, as often as it is listed."""
    source, target = edge_index.astype(np.int64, copy=False)
    if not np.array_equal(np.bincount(source, minlength=num_nodes), np.bincount(target, minlength=num_nodes)):
        return False  # spares the sort
    return bool(np.array_equal(np.sort(source * num_nodes + target), np.sort(target * num_nodes + source)))


def recent(num_periods: int) -> int:
    """How many of the last periods stand for what is to come: a third of them, at least five."""
    return max(5, num_periods // 3)
