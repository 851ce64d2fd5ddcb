"""Graphs from and to NetworkX: attributes of nodes and edges are the columns of tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from impact_gnn.checks import InputError
from impact_gnn.data.tables import Period, from_tables
from impact_gnn.graph import TemporalGraph

if TYPE_CHECKING:
    import networkx


def from_networkx(
    graph: networkx.Graph,
    *,
    time: str | None = None,
    label: str | None = None,
    weight: str | None = None,
    edge_time: str | None = None,
    columns: dict[str, str] | None = None,
    period: Period = "auto",
    cutoff: Any = None,
    quiet: bool = False,
) -> TemporalGraph:
    """Convert a graph of NetworkX; attributes of nodes without a role are features.

    Examples:
        >>> import networkx as nx
        >>> g = nx.DiGraph([("b", "a"), ("c", "b")])
        >>> nx.set_node_attributes(g, {"a": 2019, "b": 2020, "c": 2021}, "year")
        >>> from_networkx(g, time="year", quiet=True)
        TemporalGraph(3 nodes, 2 edges, no features, 0 classes, times 2019..2021)
    """
    node_columns = _columns([attributes for _, attributes in graph.nodes(data=True)])
    for name in ("id", "source", "target"):
        if name in node_columns:
            raise InputError(
                f"a node has an attribute {name!r}, which is reserved for the node itself; "
                "rename it."
            )
    nodes = list(graph.nodes)
    ids = nodes
    if nodes and type(nodes[0]) not in (str, int):
        ids = list(map(str, nodes))
    id_of = dict(zip(nodes, ids, strict=True))
    edges = list(graph.edges(data=True))
    attributes = _columns([attributes for _, _, attributes in edges])
    edge_columns = {name: attributes[name] for name in attributes if name in (weight, edge_time)}
    edge_columns["source"] = [id_of[source] for source, _, _ in edges]
    edge_columns["target"] = [id_of[target] for _, target, _ in edges]
    return from_tables(
        {"id": ids} | node_columns,
        edge_columns,
        id="id",
        time=time,
        label=label,
        columns=columns,
        edge_source="source",
        edge_target="target",
        edge_weight=weight,
        edge_time=edge_time,
        period=period,
        cutoff=cutoff,
        quiet=quiet,
    )


def _columns(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Return a list per attribute, with None for a node or edge without it."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {str(name): [row.get(name) for row in rows] for name in names}


def to_networkx(graph: TemporalGraph) -> networkx.DiGraph:
    """Return a directed graph with attributes `time`, `label`, `x`, and `weight`, `time` of edges.

    Labels are named, unknown ones are left out. Nodes are called by their ids; those of several
    types by (type, id), and edges have an attribute `relation`. With several types, or parallel
    edges, it is a `MultiDiGraph`.
    """
    import networkx as nx

    out = nx.MultiDiGraph()
    if not graph.is_hetero and not _has_parallel_edges(graph.edge_index):
        out = nx.DiGraph()
    names: dict[str, list[Any]] = {}
    for kind, part in graph.nodes.items():
        ids = range(part.num_nodes) if part.ids is None else part.ids.tolist()
        names[kind] = [(kind, name) for name in ids] if graph.is_hetero else list(ids)
        columns: dict[str, Any] = {}
        if part.time is not None:
            columns["time"] = part.time.tolist()
            if graph.periods is not None:
                columns["time"] = [graph.name_of(time) for time in columns["time"]]
        if part.y is not None:
            # A label of −1 reads the last entry.
            classes = [*(graph.label_names or range(graph.num_labels)), None]
            columns["label"] = [classes[label] for label in part.y.tolist()]
        if part.x is not None:
            columns["x"] = part.x
        out.add_nodes_from(zip(names[kind], _attributes(columns, part.num_nodes), strict=True))
    for (source, name, target), relation in graph.relations.items():
        columns = {"weight": relation.weight, "time": relation.time}
        columns = {key: values.tolist() for key, values in columns.items() if values is not None}
        if graph.is_hetero:
            columns["relation"] = [name] * relation.num_edges
        sources = [names[source][node] for node in relation.edge_index[0]]
        targets = [names[target][node] for node in relation.edge_index[1]]
        attributes = _attributes(columns, relation.num_edges)
        out.add_edges_from(zip(sources, targets, attributes, strict=True))
    return out


def _has_parallel_edges(edge_index: Any) -> bool:
    pairs = set(zip(*edge_index.tolist(), strict=True))
    return len(pairs) < edge_index.shape[1]


def _attributes(columns: dict[str, Any], num_rows: int) -> list[dict[str, Any]]:
    """Return the attributes of every row that are not missing."""
    return [
        {name: values[row] for name, values in columns.items() if values[row] is not None}
        for row in range(num_rows)
    ]
