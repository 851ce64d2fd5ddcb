"""The one operation as naive loops: the oracle for the kernels."""

import numpy as np


def message_matrix(
    source,
    target,
    num_sources,
    num_targets,
    table,
    source_period,
    target_period,
    weight=None,
    norm="mean",
    self_loop=False,
    undirected=False,
):
    """normalise(Ω[t_v, t_u]·a_vu) as a dense matrix [targets, sources], edge by edge."""
    edges = list(
        zip(source, target, np.ones(len(source)) if weight is None else weight, strict=True)
    )
    if undirected:
        edges += [(v, u, a) for u, v, a in edges if u != v]
    matrix = np.zeros((num_targets, num_sources))
    for u, v, a in edges:
        matrix[v, u] += table[target_period[v], source_period[u]] * a
    if self_loop:
        for v in range(num_targets):
            matrix[v, v] += 1
    degree = [sum(row) for row in matrix]
    for v in range(num_targets):
        for u in range(num_sources):
            if norm == "mean":
                matrix[v, u] = matrix[v, u] / degree[v] if degree[v] > 0 else 0
            elif norm == "sym":
                both = degree[v] * degree[u]
                matrix[v, u] = matrix[v, u] / both**0.5 if both > 0 else 0
    return matrix


def grouped_by_target(source, target, num_targets, weight=None, undirected=False):
    """For every target the list of (source, weight) in input order.

    Reversed edges come after all others.
    """
    edges = list(
        zip(source, target, np.ones(len(source)) if weight is None else weight, strict=True)
    )
    if undirected:
        edges += [(v, u, a) for u, v, a in edges if u != v]
    rows = [[] for _ in range(num_targets)]
    for u, v, a in edges:
        rows[v].append((int(u), float(a)))
    return rows
