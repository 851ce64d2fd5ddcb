"""Spectral features of nodes from the graph before the cutoff, for types without features.

All nodes and all relations are one undirected graph with adjacency A, of which only edges count
whose ends (and own time, if they have one) lie before the cutoff. With d the degrees, τ their mean
and D = diag(d + τ), the columns are the leading eigenvectors of the walk, D⁻¹A x = λ x: the
truncated SVD of D^-½ A D^-½, scaled. Between two types, that is the SVD of the matrix between them.
Without τ each small component has an eigenvalue of one, and would fill the columns.

A node without an edge in that past gets the value of the equation: Σ a_vu x_u / (λ (d_v + τ)) over
neighbours that have an embedding. So nothing at or after the cutoff moves a node from before it, a
model that was fitted then can read any later graph, and labels are not used. (An edge between types
without a time counts where its ends are known before the cutoff: `TemporalGraph.known_before`.)
"""

from __future__ import annotations

from dataclasses import replace
from inspect import signature

import numpy as np
from scipy.sparse import csr_array, diags_array
from scipy.sparse.linalg import eigsh

from impact_gnn import checks
from impact_gnn.graph import TemporalGraph

ROUNDS = 2  # a new author is known by new papers, and these by authors from before the cutoff
MIN_EIGENVALUE = 1e-3  # smaller ones carry no information


def with_spectral_embedding(graph: TemporalGraph, cutoff: int) -> TemporalGraph:
    """Give types without features those of `spectral`, learned before the cutoff only.

    A back-test with older folds needs a graph for each of them.
    """
    nodes = dict(graph.nodes)
    for kind, x in spectral(graph, cutoff).items():
        # A past without edges gives no columns.
        if nodes[kind].x is None and x.shape[1]:
            nodes[kind] = replace(nodes[kind], features=x, ready=True)
    return graph.with_parts(nodes, dict(graph.relations))


def spectral(
    graph: TemporalGraph, cutoff: int, *, width: int = 64, seed: int = 0
) -> dict[str, np.ndarray]:
    """Embed the nodes of every type [n, columns], float32, with unit mean square in the past.

    Nodes without a path from the past are zero. There are fewer columns than `width` where the past
    is small.

    Args:
        graph: The graph; labels and features are not used.
        cutoff: Only edges before it count.
        width: The number of columns.
        seed: Of the first vector of the iteration, which changes the result by rounding only.

    Examples:
        >>> graph = TemporalGraph.hetero(
        ...     nodes={"paper": dict(time=[0, 0, 1, 1, 2]), "author": dict(num_nodes=3)},
        ...     edges={("author", "writes", "paper"): [[0, 0, 1, 1, 1], [0, 1, 2, 3, 4]]},
        ...     target="paper",
        ... )
        >>> x = spectral(graph, 2, width=2)
        >>> {kind: values.shape for kind, values in x.items()}, bool(np.allclose(x["author"][2], 0))
        ({'paper': (5, 2), 'author': (3, 2)}, True)
    """
    width = checks.at_least("width", width, 1)
    # Nodes with an edge in the past, and the adjacency among them.
    past = _adjacency(graph, graph.when(cutoff))
    nodes = np.flatnonzero(past.sum(1) > 0)
    past = past[nodes][:, nodes]
    # D^-½ A D^-½ and its leading eigenvectors, scaled to unit mean square.
    degree = past.sum(1)
    tau = 0.0
    if len(nodes):
        tau = degree.mean()
    scale = 1 / np.sqrt(degree + tau)
    symmetric = diags_array(scale) @ past @ diags_array(scale)
    eigenvalues, eigenvectors = _leading(symmetric, min(width, len(nodes)), seed)
    # From eigenvectors of D^-½ A D^-½ to those of the walk D⁻¹A.
    x = scale[:, None] * eigenvectors
    x /= np.sqrt((x**2).mean(0))
    # Newer nodes by the eigenvalue equation, from neighbours that have an embedding.
    adjacency = _adjacency(graph)
    embedded = np.zeros((adjacency.shape[0], len(eigenvalues)))
    # By position among the nodes of all types, [all nodes, columns].
    embedded[nodes] = x
    known = np.zeros(len(embedded), bool)
    known[nodes] = True
    for _ in range(ROUNDS):
        degree = adjacency @ known.astype(float)  # to known nodes
        new = np.flatnonzero(~known & (degree > 0))
        # λ differs by column, the degree by row.
        scale = eigenvalues * (degree[new, None] + tau)
        # Rows of unknown nodes are still zero.
        embedded[new] = adjacency[new] @ embedded / scale
        known[new] = True
    # Rows are split into types again.
    starts = _starts(graph)
    parts = np.split(embedded.astype(np.float32), starts[1:-1])
    return dict(zip(graph.nodes, parts, strict=True))


def _starts(graph: TemporalGraph) -> np.ndarray:
    """Return where the nodes of every type begin among those of all types, and their number."""
    sizes = [part.num_nodes for part in graph.nodes.values()]
    return np.cumsum([0, *sizes])


def _leading(matrix: csr_array, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the largest positive eigenvalues, largest first, and eigenvectors with fixed signs."""
    size = matrix.shape[0]
    if size <= max(2 * count, 64):  # too small for the iteration
        values, vectors = np.linalg.eigh(matrix.toarray())
    else:
        rng = np.random.default_rng(seed)
        first = rng.standard_normal(size)
        # Where the iteration has to restart, SciPy draws from `rng`; before 1.17 it had none.
        options = {}
        if "rng" in signature(eigsh).parameters:
            options["rng"] = rng
        values, vectors = eigsh(matrix, count, which="LA", v0=first, tol=1e-6, **options)
    # Largest first, and only those that carry information.
    order = np.argsort(-values)[:count]
    order = order[values[order] > MIN_EIGENVALUE]
    vectors = vectors[:, order]
    if size:
        # Signs of eigenvectors are arbitrary; the entry of the largest magnitude is made positive.
        largest = np.abs(vectors).argmax(0)
        vectors = vectors * np.sign(vectors[largest, np.arange(len(order))])
    return values[order], vectors


def _adjacency(graph: TemporalGraph, cutoff: int | None = None) -> csr_array:
    """Build the undirected adjacency of all nodes, type after type, from edges before a cutoff."""
    *begins, size = _starts(graph)
    starts = dict(zip(graph.nodes, begins, strict=True))
    shape = (size, size)
    adjacency = csr_array(shape)
    for (source, _, target), relation in graph.relations.items():
        ends = relation.edge_index
        is_known = np.ones(ends.shape[1], bool)
        if cutoff is not None:
            if relation.time is not None:
                is_known &= relation.time < cutoff
            # Both ends must be known before the cutoff.
            for kind, nodes in zip((source, target), ends, strict=True):
                known_nodes = graph.known_before(kind, cutoff)
                if known_nodes is not None:
                    is_known &= known_nodes[nodes]
        weight = np.ones(is_known.sum())
        if relation.weight is not None:
            weight = relation.weight[is_known].astype(np.float64)
        # Positions among the nodes of all types.
        rows = ends[0][is_known] + starts[source]
        columns = ends[1][is_known] + starts[target]
        one_way = csr_array((weight, (rows, columns)), shape)
        adjacency = adjacency + one_way + one_way.T
    return csr_array(adjacency)
