"""What a graph holds in one short text, so that kept work can be told from that of another graph."""

from __future__ import annotations

from impact_gnn import _files
from impact_gnn.graph.temporal import TemporalGraph


def graph_digest(graph: TemporalGraph) -> str:
    """The same text for the same nodes, edges, labels and names, wherever the arrays are.

    Example:
        >>> g = TemporalGraph(y=[0, 1], time=[0, 1], edge_index=[[0], [1]])
        >>> graph_digest(g) == graph_digest(g.with_labels([1, 1]))
        False
    """
    parts: list[object] = [graph.target, graph.num_labels, graph.label_names, graph.cutoff]
    for kind, node in graph.nodes.items():
        parts += [kind, node.num_nodes, node.x, node.y, node.time, node.ids]
    for triple, relation in graph.relations.items():
        # Edges may be stored with two rows far apart; row by row both are read in order.
        parts += [triple, *relation.edge_index, relation.weight]
    return _files.digest(*parts)
