"""The kernels of the external counting sort: they look at edges once, in order, and release the GIL."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(nogil=True, cache=True)
def count(source, target, num_sources, num_targets, shift, undirected, count):  # type: ignore[no-untyped-def]
    """Adds edges to the bins of their ends; the first edge that points outside is returned, or −1."""
    for e in range(len(source)):
        if source[e] < 0 or source[e] >= num_sources or target[e] < 0 or target[e] >= num_targets:
            return e
        count[0, target[e] >> shift] += 1
        if undirected and source[e] != target[e]:
            count[1, source[e] >> shift] += 1
    return -1


@njit(nogil=True, cache=True)
def bucket_of(source, target, of_bin, shift, skip_loops):  # type: ignore[no-untyped-def]
    """The bucket of every edge, −1 for edges to be left out."""
    out = np.empty(len(target), np.int32)
    for e in range(len(target)):
        out[e] = -1 if skip_loops and source[e] == target[e] else of_bin[target[e] >> shift]
    return out


@njit(nogil=True, cache=True)
def order(key, num_groups):  # type: ignore[no-untyped-def]
    """Positions in the order of their keys (0 or more), and where each key begins among them; stable."""
    start = np.zeros(num_groups + 1, np.int64)
    for e in range(len(key)):
        if key[e] >= 0:
            start[key[e] + 1] += 1
    for g in range(num_groups):
        start[g + 1] += start[g]
    order = np.empty(start[num_groups], np.int32)
    place = start.copy()
    for e in range(len(key)):
        if key[e] >= 0:
            order[place[key[e]]] = e
            place[key[e]] += 1
    return start, order


@njit(nogil=True, cache=True)
def starts(row, num_rows):  # type: ignore[no-untyped-def]
    """Where each row begins once the edges are sorted."""
    start = np.zeros(num_rows + 1, np.int64)
    for e in range(len(row)):
        start[np.int64(row[e]) + 1] += 1
    for r in range(num_rows):
        start[r + 1] += start[r]
    return start


@njit(nogil=True, cache=True)
def place(row, values, place, out):  # type: ignore[no-untyped-def]
    """Puts every value where its row is, in order."""
    for e in range(len(row)):
        at = place[row[e]]
        out[at] = values[e]
        place[row[e]] = at + 1
