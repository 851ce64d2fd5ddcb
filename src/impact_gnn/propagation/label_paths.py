"""Labels along metapaths, the own label left out.

A node would hear its own label back on the way v → u → v. What it would hear is known, D_v = diag(M)_v, and is taken
out of the column of its label. The walk is made in double precision, so that what is left of a node that hears
nobody but itself is 1e-16 and not 1e-7, which a division by the labelled share would make a full label.
"""

from __future__ import annotations

import numpy as np

from impact_gnn.propagation import paging, stores
from impact_gnn.propagation.own_label import own_share
from impact_gnn.propagation.path_ends import along_ends, double, factors, path_weight
from impact_gnn.propagation.path_walk import Path, Walk, folder_name, path_name

CHUNK = 1 << 28
"""Bytes of label columns, of the largest type, that are walked in one go in memory."""

NOTHING = 1e-9
"""What is left of the own label's column, as a part of what was taken out, counts as zero up to here."""


def label_hops_along(walk: Walk, table: np.ndarray | None, renormalize: bool) -> dict[Path, np.ndarray]:
    """Labels of the walk's graph along its paths, own label excluded: [N, Y] float32 for each.

    Args:
        walk: Paths of one or two relations from the target type to itself; plain ones if there is a table.
        table: Ω for the two ends; None where the relations are weighted themselves.
        renormalize: Divide rows by their sum.
    """
    graph = walk.graph
    assert graph.y is not None  # masked() refuses a graph without labels
    label, count = graph.y, graph.num_labels
    if not walk.paths:
        return {}
    own = own_shares(walk, table)
    place = walk.directory
    if place is not None:
        place = place.with_name(f"{place.name}-label-paths")
    out = {
        path: stores.zeros((graph.num_nodes, count), np.float32, place, folder_name(path_name(path)))
        for path in walk.paths
    }
    width = count if place is not None else _width(walk)
    for low in range(0, count, max(width, 1)):
        high = min(low + width, count)
        with double(walk).scratch() as work:
            known = _known(label, low, high, work)
            hops = work.hops(known) if table is None else iter(along_ends(work, table, known, keep=None).items())
            for path, hop in hops:
                _write_without_own(out[path], hop, label, own[path], low)
                del hop
            del known, hops
    for store in out.values():
        if renormalize:
            _renormalize(store)
    return {path: stores.opened(store) for path, store in out.items()}


def own_shares(walk: Walk, table: np.ndarray | None) -> dict[Path, np.ndarray]:
    """How much of itself a node hears along every path, in float64 [N]."""
    shares = {path: own_share([walk.loaded(relation) for relation in path]) for path in walk.paths}
    if table is None:
        return shares
    weight = path_weight(walk, *factors(table))
    mine = np.diag(table)[walk.graph.period]
    return {
        path: np.divide(mine * share, weight[path], out=np.zeros_like(share), where=weight[path] > 0)
        for path, share in shares.items()
    }


def _width(walk: Walk) -> int:
    largest = max(nodes.num_nodes for nodes in walk.graph.nodes.values())
    return max(8, CHUNK // (8 * largest))


def _known(label: np.ndarray, low: int, high: int, work: Walk) -> np.ndarray:
    """Columns low .. high−1 of the one-hot matrix of known labels, in double precision."""
    place = None if work.directory is None else work.directory.with_name(work.directory.name + "-x")
    out = stores.zeros((len(label), high - low), np.float64, place, "labels")
    for first, last in stores.blocks(out):
        rows = np.zeros((last - first, high - low))
        inside = np.flatnonzero((label[first:last] >= low) & (label[first:last] < high))
        rows[inside, label[first:last][inside] - low] = 1
        stores.write(out, first, rows)
    return stores.opened(out)


def _write_without_own(out: stores.Store, hop: np.ndarray, label: np.ndarray, own: np.ndarray, low: int) -> None:
    width = hop.shape[1]
    with paging.reading(hop) as file:
        for first, last in stores.blocks(hop):
            rows = np.array(file.read(first, last), np.float64)
            here = label[first:last]
            mine = np.flatnonzero((here >= low) & (here < low + width))
            taken = own[first:last][mine]
            left = rows[mine, here[mine] - low] - taken
            rows[mine, here[mine] - low] = np.where(left > NOTHING * taken, left, 0)
            if isinstance(out, np.ndarray):
                out[first:last, low : low + width] = rows
            else:
                stores.write(out, first, rows.astype(np.float32))


def _renormalize(store: stores.Store) -> None:
    with paging.reading(store) as now:
        for first, last in stores.blocks(store):
            rows = np.array(now.read(first, last), np.float64)
            share = rows.sum(1, keepdims=True)
            stores.write(store, first, (rows / np.where(share > 0, share, 1)).astype(np.float32))
