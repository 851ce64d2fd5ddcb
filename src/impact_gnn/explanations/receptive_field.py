"""The receptive field of one node: the nodes that each of its hops reads, with their weights.

A hop is linear: its row is the weighted sum of the rows of the nodes read. Weights sum to 1, or to
less where paths begin at nodes without incoming edges. They are computed from the node's own edges
outwards, so the size of the graph does not matter.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy import ndarray

from impact_gnn import methods
from impact_gnn.engines.engine import time_table
from impact_gnn.engines.operator import Operator
from impact_gnn.estimators.inputs import Inputs
from impact_gnn.estimators.schema import Schema
from impact_gnn.explanations.explanation import OWN
from impact_gnn.methods import Method
from impact_gnn.propagation.degrees import degree_names
from impact_gnn.propagation.metapaths import Metapath, Walk, metapaths, path_name
from impact_gnn.weighting import Weighting

TypedNode: TypeAlias = tuple[str, int]
"""The type of a node, and its index among the nodes of that type."""


@dataclass(frozen=True)
class Block:
    """One matrix of `Inputs.model_inputs`: values of nodes of type `kind`, along a path.

    The path ends in the target type. It is empty for a node's own values, and None where many
    paths are mixed.
    """

    name: str
    kind: str
    path: Metapath | None = ()
    labels: bool = False


def input_blocks(inputs: Inputs, method: Method, num_feature_hops: int) -> list[Block]:
    """Describe the matrices of `inputs.model_inputs(method, ...)`, in the same order."""
    graph = inputs.graph
    target = graph.target

    def name_of(path: Metapath) -> str:
        return path_name(path) if graph.is_hetero else f"hop {len(path)}"

    blocks = []
    for part in method.parts:
        if part.proportions is not None:
            names = ("recent class proportions", "last labels of entities")
            return [Block(name, target, labels=True) for name in names]
    if graph.x is not None:
        blocks.append(Block(OWN, target))
    for part in method.parts:
        if part.inputs is not None:
            blocks.append(Block(part.name, target))
    if "features" in method:
        return blocks
    if inputs.squashed and graph.is_hetero:
        count = num_feature_hops - len(blocks)
        # A squashed message mixes many paths and has none of its own.
        blocks += [Block(f"squashed message {k + 1}", target, None) for k in range(count)]
    else:
        for path in inputs.paths():
            blocks.append(Block(name_of(path), path[0][0], path))
    if "labels" in method:
        # Label hops have at most two steps.
        for path in metapaths(graph, min(inputs.max_path_length, 2), start=target):
            blocks.append(Block(f"labels, {name_of(path)}", target, path, labels=True))
    return blocks


def column_names(inputs: Inputs, schema: Schema, block: Block, width: int) -> list[str]:
    """Name the columns of a block in the user's own words."""
    nodes = inputs.view.nodes[block.kind]
    if block.labels:
        return [str(name) for name in schema.label_names or range(width)]
    if block.name in methods.names():
        names = methods.get(block.name).input_names
        if names is None:
            return [f"column {k}" for k in range(width)]
        return names(inputs.view.encoded())
    # Types without features receive degrees as features.
    if nodes.x is None:
        return degree_names(inputs.view)[:width]
    encoder = schema.encoders.get(block.kind)
    if encoder is None or encoder.is_of_matrix or block.path is None:
        return [f"feature {k}" for k in range(width)]
    return encoder.outputs


@dataclass(frozen=True, eq=False)
class ReceptiveField:
    """The paths that end at a node, on the part of the graph that is visible to it.

    Args:
        node_index: The node, among those of the target type.
        ends: The weighting by the times of a path's two ends; None for one edge by edge.
        weighted: Operators with time weights by edge.
        plain: Operators with plain weights.
        label: The known labels [N], or probabilities [N, Y] in their place.
        visible: By type, the indices of the visible nodes; None for all.
    """

    node_index: int
    ends: Weighting | None
    weighted: Walk
    plain: Walk
    label: ndarray
    visible: dict[str, ndarray | None]

    @classmethod
    def of(cls, inputs: Inputs, method: Method, node_index: int, label: ndarray) -> ReceptiveField:
        """Build the field of a target node, when these labels are known.

        On snapshots, those of earlier periods are visible to the node.
        """
        graph = inputs.graph
        run = inputs.snapshot_run(method, node_index)
        snapshot = inputs.snapshot(graph, method, run, np.array([node_index]))
        visible: dict[str, ndarray | None] = dict.fromkeys(graph.nodes)
        if snapshot.is_smaller_graph:
            visible.update(graph.positions_upto(int(graph.times[snapshot.period])))
        return cls(
            node_index=node_index,
            ends=method.edge_weighting if "ends" in method else None,
            weighted=Walk(
                snapshot.graph, [], method.edge_weighting, inputs.engine, snapshot.hidden_after
            ),
            plain=Walk(snapshot.graph, [], "plain", inputs.engine),
            label=snapshot.visible_label(label, graph),
            visible=visible,
        )

    def sources(self, block: Block, without: TypedNode | None = None) -> tuple[ndarray, ndarray]:
        """Return the indices and weights of the nodes that a block reads.

        With `without`, weights are those of a graph in which that node has no edges.
        """
        snapshot = self.weighted.graph
        # Types without times have no weight by the ends of a path.
        ends = self.ends if snapshot.nodes[block.kind].time is not None else None
        walk = self.weighted if ends is None else self.plain
        # Indices are positions in the snapshot up to the last step.
        visible = self.visible[snapshot.target]
        start = self.node_index
        if visible is not None:
            start = int(np.searchsorted(visible, start))
        index: ndarray = np.array([start])
        weight: ndarray = np.ones(1)
        # from the node backwards: the last relation of a path first
        for k, triple in reversed(list(enumerate(block.path or ()))):
            # The first hop (k = 0) may have its own weighting.
            operator = walk.operator(triple, k == 0)
            # In-edges of the nodes reached so far; row i belongs to index[i].
            edges = operator.csr.take(index)
            if without is not None and without[0] == triple[0]:
                is_removed = self._node_index(triple[0], edges.indices) == without[1]
                edge_weight = 1.0 if edges.weight is None else edges.weight
                edges = replace(edges, weight=np.where(is_removed, 0.0, edge_weight))
            # The same operator between the nodes that are read and those reached so far.
            sources, position = np.unique(edges.indices, return_inverse=True)
            part = replace(
                operator,
                csr=replace(edges, indices=position, num_sources=len(sources)),
                source_period=operator.source_period[sources],
                target_period=operator.target_period[index],
            )
            # A source passes on its weight in every row, times the weight of the row.
            weight = part.transpose_apply(weight[:, None])[:, 0]
            index = sources
        if ends is not None:
            table = time_table(snapshot, ends, block.kind)
            # Times of both ends: the explained node, and the nodes where paths begin.
            target_period = snapshot.period[start]
            source_period = snapshot.period_of(block.kind)[index]
            weight = weight * table[target_period, source_period]
        index = self._node_index(block.kind, index)
        if block.labels:
            # Only known labels count, and never the node's own.
            # Codes [n] with −1 for unknown, or probabilities [n, Y] with zeros for unknown.
            label = self.label[index]
            is_known = label >= 0 if label.ndim == 1 else label.any(1)
            weight = weight * (is_known & (index != self.node_index))
        # The message is a mean over what counts, so weights sum to 1 again.
        if block.labels or ends is not None:
            weight = weight / (weight.sum() or 1.0)
        return index[weight > 0], weight[weight > 0]

    def _node_index(self, kind: str, snapshot_index: ndarray) -> ndarray:
        visible = self.visible[kind]
        return snapshot_index if visible is None else visible[snapshot_index]


def changed_operator(operator: Operator, without: TypedNode | None, plain: bool) -> Operator:
    """Return the operator with plain weights, or with weights of 0 for the edges of a node."""
    csr = operator.csr
    if plain:
        return replace(operator, table=np.ones_like(operator.table), balanced=False)
    if without is None:
        return operator
    # Weights of edges into the node and out of it become 0; the structure stays.
    node_index = without[1]
    weight = np.ones(csr.num_edges, np.float32)
    if csr.weight is not None:
        weight = np.array(csr.weight)
    # Edges out of the node: it is their source.
    weight[csr.indices == node_index] = 0
    # Edges into the node: the entries of its row.
    weight[csr.indptr[node_index] : csr.indptr[node_index + 1]] = 0
    return replace(operator, csr=replace(csr, weight=weight))
