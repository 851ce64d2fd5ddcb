"""Where the inputs of one node come from: the nodes that each of its hops reaches, with their weights.

A hop is linear: its row is the weighted sum of the rows of the nodes reached. Weights sum to 1, or
    to less where ways
end at nodes that hear nobody. They are found from the node's own edges outwards, whatever the size
of the graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from impact_gnn.engines.engine import time_table
from impact_gnn.methods import Method
from impact_gnn.pipeline.explanation import DEGREES, OWN
from impact_gnn.pipeline.inputs import Inputs
from impact_gnn.propagation.metapaths import Metapath, Walk, metapaths, path_name
from impact_gnn.weighting import Weighting

Place: TypeAlias = tuple[str, int]
"""A node: its type and its position among the nodes of that type."""


@dataclass(frozen=True)
class Block:
    """One of the matrices that `Inputs.model_inputs` gives: what nodes of type `kind` have, along a path to the target type.

    The path is empty for what a node has of its own, and None where many ways are mixed.
    """

    name: str
    kind: str
    path: Metapath | None = ()
    labels: bool = False


def blocks(inputs: Inputs, method: Method, count: int) -> list[Block]:
    """What `inputs.model_inputs(method, ...)` gives, in its order; `count` are the feature hops among it."""
    graph, target = inputs.graph, inputs.graph.target

    def along(path: Metapath) -> str:
        return path_name(path) if graph.is_hetero else f"hop {len(path)}"

    out = [Block(OWN, target)] * (graph.x is not None) + [Block(DEGREES, target)] * (
        "degrees" in method
    )
    if "features" in method:
        return out
    if inputs.squashed and graph.is_hetero:
        out += [Block(f"squashed message {k + 1}", target, None) for k in range(count - len(out))]
    else:
        out += [Block(along(path), path[0][0], path) for path in inputs.paths()]
    paths = metapaths(graph, min(inputs.length, 2), start=target) if "labels" in method else []
    return out + [Block(f"labels, {along(path)}", target, path, labels=True) for path in paths]


@dataclass(frozen=True, eq=False)
class Reach:
    """The ways by which a node hears others, on the graph as it is shown to the node."""

    node: int
    ends: (
        Weighting | None
    )  # how paths are weighted by the times of their two ends; None for edge by edge
    walks: tuple[Walk, Walk]  # with time weights by edge, and with plain ones
    label: np.ndarray  # [N], or probabilities [N, Y] in its place
    # positions of the nodes that are shown, by type; None for all
    kept: dict[str, np.ndarray | None]

    @classmethod
    def of(cls, inputs: Inputs, method: Method, cutoff: int, node: int, label: np.ndarray) -> Reach:
        """That of a target node, when these labels are known before `cutoff`; on snapshots too it sees them all.

        Of guesses in place of labels, on snapshots, those about earlier periods.
        """
        graph, table = inputs.graph, method.edge_weighting
        last = inputs.seen_in(method, cutoff, node)
        if label.ndim == 2 and last is not None:
            until = np.searchsorted(graph.times, cutoff) if "lags" in method else last
            label = np.where(graph.period[:, None] < until, label, 0)
        hidden = last if inputs.is_simple(method) and inputs.view.edge_time is None else None
        last = None if hidden is not None else last
        then, _ = inputs.as_of(graph, last, np.array([node]))
        kept = (
            dict.fromkeys(graph.nodes)
            if last is None
            else graph.positions_upto(int(graph.times[last]))
        )
        walks = Walk(then, [], table, inputs.engine, hidden), Walk(then, [], "plain", inputs.engine)
        return cls(node, table if "ends" in method else None, walks, label, kept)

    def nodes(self, block: Block, without: Place | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Positions of the nodes whose features or labels a block brings, and weights; as if `without` had no edges."""
        then = self.walks[0].graph
        ends, here = (
            self.ends if then.nodes[block.kind].time is not None else None,
            self.kept[then.target],
        )
        start = self.node if here is None else int(np.searchsorted(here, self.node))
        index: np.ndarray = np.array([start])
        weight: np.ndarray = np.ones(1)
        for k, triple in reversed(list(enumerate(block.path or ()))):
            operator = self.walks[ends is not None].operator(triple, k == 0)
            edges = operator.csr.take(index)
            # the node at which an edge ends
            row = np.repeat(np.arange(len(index)), np.diff(edges.indptr))
            period = operator.source_period[edges.indices].astype(np.int64)
            each = np.ones(len(row)) if edges.weight is None else edges.weight
            if without is not None and without[0] == triple[0]:
                each = np.where(self._positions(triple[0], edges.indices) == without[1], 0.0, each)
            if operator.balanced:
                place = np.unique(row * operator.table.shape[1] + period, return_inverse=True)[1]
                each = _over(each, np.bincount(place, each)[place])
            each = each * operator.table[operator.target_period[index][row], period]
            each = _over(each * weight[row], np.bincount(row, each, len(index))[row])
            index, place = np.unique(edges.indices, return_inverse=True)
            weight = np.bincount(place, each, len(index))
        if ends is not None:
            table = time_table(then, ends, block.kind)
            weight = weight * table[then.period[start], then.period_of(block.kind)[index]]
        index = self._positions(block.kind, index)
        if block.labels:
            told = self.label[index]
            weight = weight * (
                (told >= 0 if told.ndim == 1 else told.any(1)) & (index != self.node)
            )
        if block.labels or ends is not None:
            weight = _over(weight, np.full(len(weight), weight.sum()))
        return index[weight > 0], weight[weight > 0]

    def _positions(self, kind: str, index: np.ndarray) -> np.ndarray:
        kept = self.kept[kind]
        return index if kept is None else kept[index]


def _over(value: np.ndarray, total: np.ndarray) -> np.ndarray:
    return np.divide(value, total, out=np.zeros(len(value)), where=total > 0)
