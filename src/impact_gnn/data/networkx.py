"""Graphs from and to NetworkX: attributes of nodes and edges are the columns of tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

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
    """The graph with the same nodes and edges; other attributes of nodes are features, as in `from_tables`.

    Examples:
        >>> import networkx as nx
        >>> g = nx.DiGraph([("b", "a"), ("c", "b")])
        >>> nx.set_node_attributes(g, {"a": 2019, "b": 2020, "c": 2021}, "year")
        >>> from_networkx(g, time="year", quiet=True)
        TemporalGraph(3 nodes, 2 edges, no features, 0 classes, times 2019..2021)
    """
    for given in ("id", "source", "target"):
        if any(given in part for _, part in graph.nodes(data=True)):
            raise InputError(
                f"a node has an attribute {given!r}, which names the node itself here; rename it."
            )
    names = list(graph.nodes)
    plain = {str: names, int: names}.get(type(names[0]) if names else str, list(map(str, names)))
    ends = list(graph.edges(data=True))
    place = dict(zip(names, plain, strict=True))
    nodes = {"id": plain} | _columns([part for _, part in graph.nodes(data=True)])
    edges = {"source": [place[a] for a, _, _ in ends], "target": [place[b] for _, b, _ in ends]}
    wanted = {name for name in (weight, edge_time) if name is not None}
    found = _columns([part for _, _, part in ends])
    edges |= {name: values for name, values in found.items() if name in wanted}
    return from_tables(
        nodes,
        edges,
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


def _columns(parts: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """A list per attribute, None where a node or edge has none."""
    names = dict.fromkeys(name for part in parts for name in part)
    return {str(name): [part.get(name) for part in parts] for name in names}


def to_networkx(graph: TemporalGraph) -> networkx.DiGraph:
    """A directed graph with `time`, `label` (by name, where known) and `x` on the nodes, `weight`, `time` on the edges.

    Nodes are called by their ids; those of several types by (type, id), and edges carry their
    `relation`.
    """
    import networkx as nx

    out = nx.MultiDiGraph() if graph.is_hetero else nx.DiGraph()
    called = {}
    for kind, part in graph.nodes.items():
        ids = (np.arange(part.num_nodes) if part.ids is None else part.ids).tolist()
        called[kind] = [(kind, one) for one in ids] if graph.is_hetero else ids
        about: list[dict[str, Any]] = [{} for _ in ids]
        for node, t in zip(about, [] if part.time is None else part.time.tolist(), strict=False):
            node["time"] = t if graph.periods is None else graph.name_of(t)
        for node, y in zip(about, [] if part.y is None else part.y.tolist(), strict=False):
            if y >= 0:
                node["label"] = y if graph.label_names is None else graph.label_names[y]
        for node, x in zip(about, [] if part.x is None else part.x, strict=False):
            node["x"] = x
        out.add_nodes_from(zip(called[kind], about, strict=True))
    for (source, name, target), relation in graph.relations.items():
        about = [{"relation": name} if graph.is_hetero else {} for _ in range(relation.num_edges)]
        for key in ("weight", "time"):
            values = getattr(relation, key)
            for edge, value in zip(about, [] if values is None else values.tolist(), strict=False):
                edge[key] = value
        ends = (
            [called[kind][k] for k in row]
            for kind, row in zip((source, target), relation.edge_index, strict=True)
        )
        out.add_edges_from(
            (a, b, edge) for (a, b), edge in zip(zip(*ends, strict=True), about, strict=True)
        )
    return out
