"""Where the inputs of one node come from: the nodes that each of its hops reaches, with their weights.

A hop is linear, so its row is the weighted sum of the rows of the nodes reached; weights sum to 1 if there are any. They
are found from the node's own edges outwards, whatever the size of the graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from impact_gnn.engines.base import time_table
from impact_gnn.graph import TemporalGraph
from impact_gnn.pipeline.explanation import OWN
from impact_gnn.pipeline.inputs import Inputs, snapshot_table
from impact_gnn.pipeline.method import Method
from impact_gnn.propagation.metapaths import Metapath, Walk, metapaths, path_name

Place: TypeAlias = tuple[str, int]
"""A node: its type and its position among the nodes of that type."""


@dataclass(frozen=True)
class Block:
    """One of the matrices that `Inputs.shown` gives, and the relations along which it comes; None where none is kept.

    The path is empty for what a node has of its own.
    """

    name: str
    kind: str
    path: Metapath | None = ()
    labels: bool = False


def blocks(inputs: Inputs, method: Method, count: int) -> list[Block]:
    """What `inputs.shown(method, ...)` gives, in its order; `count` are the feature hops among it."""
    graph, target = inputs.graph, inputs.graph.target
    out = [Block(OWN, target)] if graph.x is not None else []
    out += [Block("degrees", target, None)] if method.degrees else []
    if method.features:
        return out
    if inputs.squashed and graph.is_hetero:
        out += [Block(f"squashed message {k + 1}", target, None) for k in range(count - len(out))]
    else:
        out += [Block(_name(graph, path), path[0][0], path) for path in inputs.paths()]
    if method.labels:
        paths = metapaths(graph, min(inputs.length, 2), start=target)
        out += [Block(f"labels, {_name(graph, path)}", target, path, labels=True) for path in paths]
    return out


def _name(graph: TemporalGraph, path: Metapath) -> str:
    return path_name(path) if graph.is_hetero else f"hop {len(path)}"


@dataclass(frozen=True, eq=False)
class Reach:
    """The ways by which a node hears others, on the graph as it is shown to the node."""

    method: Method
    node: int
    walks: tuple[Walk, Walk]  # with time weights by edge, and without, for paths weighted at their ends
    label: np.ndarray
    kept: dict[str, np.ndarray | None]  # positions of the nodes that are there, by type; None for all

    @classmethod
    def of(cls, inputs: Inputs, method: Method, cutoff: int, node: int) -> Reach:
        """That of a node when labels are known before `cutoff`."""
        graph, view = inputs.graph, inputs.graph.masked(cutoff)
        last = seen = inputs.seen_in(method, cutoff, node)
        table: str | np.ndarray = method.weighting
        if last is not None and inputs.is_simple(method) and inputs.view.edge_time is None:
            table, last = snapshot_table(graph, method.weighting, last), None
        then, _ = inputs.as_of(graph, last, np.array([node]))
        kept = dict.fromkeys(graph.nodes) if last is None else graph.positions_upto(int(graph.times[last]))
        walks = Walk(then, [], table, inputs.engine), Walk(then, [], "plain", inputs.engine)
        return cls(method, node, walks, inputs.known_labels(view, method, seen), kept)

    def nodes(self, block: Block, without: Place | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Positions of the nodes whose features or labels the block brings, and their weights.

        With `without`, as if that node had no edges.
        """
        at_ends = self.method.ends and self.walks[0].graph.nodes[block.kind].time is not None
        walk, here = self.walks[at_ends], self.kept[self.walks[0].graph.target]
        start = self.node if here is None else int(np.searchsorted(here, self.node))
        index: np.ndarray = np.array([start])
        share: np.ndarray = np.ones(1)
        for triple in reversed(block.path or ()):
            operator = walk.operator(triple)
            edges = operator.csr.take(index)
            row = np.repeat(np.arange(len(index)), np.diff(edges.indptr))
            weight = operator.table[operator.target_period[index][row], operator.source_period[edges.indices]]
            weight = weight if edges.weight is None else weight * edges.weight
            if without is not None and without[0] == triple[0]:
                weight = np.where(self._back(triple[0], edges.indices) == without[1], 0.0, weight)
            total = np.bincount(row, weight, len(index))
            weight = _parts(weight * share[row], total[row])
            index, place = np.unique(edges.indices, return_inverse=True)
            share = np.bincount(place, weight, len(index))
        if at_ends:
            period, table = walk.graph.period_of(block.kind), time_table(walk.graph, self.method.weighting, block.kind)
            share = share * table[walk.graph.period[start], period[index]]
        index = self._back(block.kind, index)
        if block.labels:
            share = share * ((self.label[index] >= 0) & (index != self.node))
        if block.labels or at_ends:
            share = _parts(share, np.full(len(share), share.sum()))
        return index[share > 0], share[share > 0]

    def _back(self, kind: str, index: np.ndarray) -> np.ndarray:
        """Positions in the whole graph."""
        kept = self.kept[kind]
        return index if kept is None else kept[index]


def _parts(value: np.ndarray, total: np.ndarray) -> np.ndarray:
    return np.divide(value, total, out=np.zeros(len(value)), where=total > 0)
