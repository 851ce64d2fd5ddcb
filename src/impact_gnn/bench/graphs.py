"""The graphs and matrices that the propagation benchmarks run on."""

from __future__ import annotations

import numpy as np

from impact_gnn.graph.csr import CSR
from impact_gnn.propagation.building import build_csr
from impact_gnn.propagation.passes import aligned_empty

PIECE = 1 << 22


def power_law(nodes: int, edges: int, exponent: float, seed: int) -> CSR:
    """A random graph: targets uniform, the number of edges from a source by a power law with `exponent`.

    Example:
        >>> csr = power_law(1000, 5000, 2.5, seed=0)
        >>> csr.num_edges, bool(np.bincount(csr.indices).max() > 100)
        (5000, True)
    """
    rng = np.random.default_rng(seed)
    share = 1 / (exponent - 1)  # the k-th most frequent source is drawn in proportion to k^-share
    name = rng.permutation(nodes).astype(np.int32)
    source, target = np.empty(edges, np.int32), np.empty(edges, np.int32)
    for begin in range(0, edges, PIECE):
        end = min(edges, begin + PIECE)
        rank = (nodes * rng.random(end - begin) ** (1 / (1 - share))).astype(np.int64)
        source[begin:end] = name[np.minimum(rank, nodes - 1)]
        target[begin:end] = rng.integers(0, nodes, end - begin, dtype=np.int32)
    return build_csr(source, target, nodes, nodes)


def near_in_time(nodes: int, edges: int, periods: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Sources and targets of links that decay over time, nodes numbered in order of time.

    Every period has the same number of nodes. A link reaches back a geometric number of periods: half of them
    stay within the period, a quarter go back one, and so on.
    """
    rng = np.random.default_rng(seed)
    each = nodes // periods
    target = rng.integers(0, each * periods, edges)
    back = np.maximum(target // each - (rng.geometric(0.5, edges) - 1), 0)
    return back * each + rng.integers(0, each, edges), target


def random_matrix(nodes: int, width: int, seed: int) -> np.ndarray:
    """Uniform float32 in −1 .. 1, beginning on a cache line."""
    x = aligned_empty((nodes, width), np.float32)
    np.random.default_rng(seed).random(out=x, dtype=np.float32)
    x *= 2
    x -= 1
    return x
