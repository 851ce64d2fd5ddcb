"""`Reach`: how far in a graph the prediction of a node reads, and the part that it reads."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

from numpy import ndarray

from impact_gnn.checks import listing
from impact_gnn.engines.engine import Engine
from impact_gnn.engines.memory import Memory, as_engine
from impact_gnn.estimators.inputs import NodeIndex
from impact_gnn.graph import TemporalGraph
from impact_gnn.graph.neighbourhood import neighbourhood


@dataclass(frozen=True)
class Reach:
    """How far the prediction of a node reads.

    Args:
        steps: Steps along the edges.
        both_ways: Against the direction of the edges, too.
        whole_graph: What reads all nodes, such as "center", whose means are those of all nodes of
            a period. With any, the prediction of a few nodes costs as much as that of all.
    """

    steps: int
    both_ways: bool
    whole_graph: tuple[str, ...] = ()

    @classmethod
    def joined(cls, members: Sequence[Reach]) -> Reach:
        """Return the reach of several models together."""
        names = [name for member in members for name in member.whole_graph]
        return cls(
            steps=max(member.steps for member in members),
            both_ways=any(member.both_ways for member in members),
            whole_graph=tuple(dict.fromkeys(names)),
        )

    @property
    def note(self) -> str | None:
        """A sentence if predictions of some nodes need the whole graph."""
        if not self.whole_graph:
            return None
        return (
            f"all nodes are computed, not the neighbourhood of the requested ones alone, because "
            f"the model uses {listing(self.whole_graph)}."
        )

    def part_of(
        self, graph: TemporalGraph, nodes: NodeIndex
    ) -> tuple[TemporalGraph, NodeIndex] | None:
        """Return what predictions of some nodes read, and the positions of the nodes in it.

        None, with a warning, if that is the whole graph.
        """
        if self.note is not None:
            warnings.warn(self.note, stacklevel=4)
            return None
        return neighbourhood(
            graph,
            nodes,
            steps=self.steps,
            both_ways=self.both_ways,
        )


def engine_for(part: TemporalGraph, engine: Engine | None) -> Engine:
    """Return the engine for a part of a graph: memory, unless its features take too much."""
    matrices = [node.features for node in part.nodes.values()]
    size = sum(matrix.size for matrix in matrices if isinstance(matrix, ndarray))
    chosen = as_engine(engine)
    return Memory() if chosen.fits(4 * size) else chosen
