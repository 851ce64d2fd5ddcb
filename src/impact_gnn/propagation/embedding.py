"""Features for node types that have none: where a node stands in the graph as it was before the cutoff.

All nodes and all relations are one undirected graph with adjacency A, of which only edges count
whose ends (and own time, if they have one) lie before the cutoff. With d the degrees, τ their mean
and D = diag(d + τ), the columns are the leading eigenvectors of the walk, D⁻¹A x = λ x: the
truncated SVD of D^-½ A D^-½, scaled. Between two types, that is the SVD of the matrix between them.
τ keeps small components, each of which has an eigenvalue of one without it, from being all that is
found.

A node without an edge in that past is given what the equation says of it: Σ a_vu x_u / (λ (d_v +
    τ)) over neighbours
that have an embedding. So nothing at or after the cutoff moves a node from before it, a model that
was fitted then can read any later graph, and no label is looked at. (An edge between types without a
time counts where its ends are known before the cutoff: `TemporalGraph.known_before`.)
"""

from __future__ import annotations

from inspect import signature

import numpy as np
from scipy.sparse import coo_array, csr_array, diags_array
from scipy.sparse.linalg import eigsh

from impact_gnn import checks
from impact_gnn.graph import TemporalGraph

EMBEDDINGS = ("none", "spectral")
ROUNDS = 2  # a new author is known by new papers, and these by those who were there before
LEAST = 1e-3  # eigenvalues below it say nothing


def spectral(
    graph: TemporalGraph, cutoff: int, *, width: int = 64, seed: int = 0
) -> dict[str, np.ndarray]:
    """The embedding of the nodes of every type [n, columns], float32; of unit mean square over those of the past.

    Nodes to which no way leads from the past are zero. There are fewer columns than `width` where
    the past is small.

    Args:
        graph: The graph; labels and features are not looked at.
        cutoff: Edges count before it.
        width: Columns.
        seed: Of the first vector of the iteration, which the result does not depend on but for
            rounding.

    Examples:
        >>> graph = TemporalGraph.hetero(
        ...     nodes={"paper": dict(time=[0, 0, 1, 1, 2]), "author": dict(num_nodes=3)},
        ...     edges={("author", "writes", "paper"): [[0, 0, 1, 1, 1], [0, 1, 2, 3, 4]]}, target="paper")
        >>> x = spectral(graph, 2, width=2)
        >>> {kind: values.shape for kind, values in x.items()}, bool(np.allclose(x["author"][2], 0))
        ({'paper': (5, 2), 'author': (3, 2)}, True)
    """
    width = checks.at_least("width", width, 1)
    early = _adjacency(graph, graph.when(cutoff))
    there = np.flatnonzero(early.sum(1) > 0)
    count = len(there)
    past = early[there][:, there]
    degree = past.sum(1)
    tau = degree.mean() if count else 0.0
    scale = 1 / np.sqrt(degree + tau)
    symmetric = diags_array(scale) @ past @ diags_array(scale)
    value, vector = _leading(symmetric, min(width, count), seed)
    x = scale[:, None] * vector
    x /= np.sqrt((x**2).mean(0))
    out = np.zeros((early.shape[0], len(value)))
    out[there] = x
    known = np.zeros(len(out), bool)
    known[there] = True
    later = _adjacency(graph)
    for _ in range(ROUNDS):
        heard = later @ known.astype(float)  # by how many, or how strongly
        new = np.flatnonzero(~known & (heard > 0))
        # those that are not known are still zero
        out[new] = later[new] @ out / (value * (heard[new, None] + tau))
        known[new] = True
    sizes = np.cumsum([part.num_nodes for part in graph.nodes.values()])[:-1]
    return dict(zip(graph.nodes, np.split(out.astype(np.float32), sizes), strict=True))


def _leading(matrix: csr_array, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The largest positive eigenvalues of a symmetric matrix and their vectors, signs fixed, largest first."""
    size = matrix.shape[0]
    if size <= max(2 * count, 64):  # where the iteration has no room, and the whole is small
        value, vector = np.linalg.eigh(matrix.toarray())
    else:
        rng = np.random.default_rng(seed)
        first = rng.standard_normal(size)
        # Where the iteration has to begin anew, SciPy draws from `rng`; before 1.17 it had none.
        drawn = {"rng": rng} if "rng" in signature(eigsh).parameters else {}
        value, vector = eigsh(matrix, count, which="LA", v0=first, tol=1e-6, **drawn)
    order = [k for k in np.argsort(-value)[:count] if value[k] > LEAST]
    value, vector = value[order], vector[:, order]
    largest = np.abs(vector).argmax(0) if size else 0
    return value, vector * np.sign(vector[largest, np.arange(len(order))])


def _adjacency(graph: TemporalGraph, cutoff: int | None = None) -> csr_array:
    """All nodes, type after type, and all edges in both directions; given a cutoff, edges from before it."""
    kinds, sizes = list(graph.nodes), [part.num_nodes for part in graph.nodes.values()]
    starts, total = dict(zip(kinds, np.cumsum([0, *sizes[:-1]]), strict=True)), sum(sizes)
    out = csr_array((total, total))
    for (source, _, target), relation in graph.relations.items():
        ends = relation.edge_index
        keep = np.ones(ends.shape[1], bool)
        if cutoff is not None:
            if relation.time is not None:
                keep &= relation.time < cutoff
            for kind, row in zip((source, target), ends, strict=True):
                if (known := graph.known_before(kind, cutoff)) is not None:
                    keep &= known[row]
        value = (
            np.ones(keep.sum())
            if relation.weight is None
            else relation.weight[keep].astype(np.float64)
        )
        place = ends[0][keep] + starts[source], ends[1][keep] + starts[target]
        one_way = coo_array((value, place), (total, total)).tocsr()
        out = out + one_way + one_way.T
    return csr_array(out)
