"""Time weights on the two ends of a path: M_vu = Ω[t_v, t_u]·P_vu / Σ_w Ω[t_v, t_w]·P_vw.

P is the product of the plain means along the path; it is never made. With the table as a sum of products,
Ω[t, s] = Σ_r left[t, r]·right[r, s], the weighted sum is

    Σ_u Ω[t_v, t_u]·P_vu·x_u = Σ_r left[t_v, r] · (P · (right[r, t_u]·x_u))_v,

one walk per r. Grouping sources whose columns of Ω are equal is such a sum: `right` then says who is in group r.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from impact_gnn.propagation import stores
from impact_gnn.propagation.path_walk import Path, Walk, folder_name, path_name

MOST_GROWTH = 4.0
"""How much larger the terms of a sum may be than the sum: the factor by which their rounding errors grow."""


def along_ends(walk: Walk, table: np.ndarray, x: np.ndarray, *, keep: str | None) -> dict[Path, np.ndarray]:
    """`x` along every path of `walk`, made with plain weights, the table applied to the two ends.

    Args:
        walk: Paths from a type with a time.
        table: Ω [T, T].
        x: Features of the first type.
        keep: On an engine with files, results go to `<directory>-<keep>`; None keeps them in the walk's own place.
    """
    left, right = factors(table)
    graph, first = walk.graph, walk.paths[0][0][0]
    source, target = graph.period_of(first), graph.period
    weight = path_weight(walk, left, right)
    place = walk.directory
    if place is not None and keep is not None:
        place = place.with_name(f"{place.name}-{keep}")
    dtype = np.promote_types(x.dtype, np.float32)  # sums need more than 16 bits
    total = {
        path: stores.zeros((graph.num_nodes, x.shape[1]), dtype, place, folder_name(path_name(path)))
        for path in walk.paths
    }
    for r in range(len(right)):
        if (left[:, r] == 0).all() or (right[r] == 0).all():
            continue
        with walk.scratch() as work:
            scaled = stores.scaled(x, right[r][source], work.directory, f"x-{r}")
            for path, hop in work.hops(scaled):
                stores.add(total[path], hop, left[target, r])
                del hop
            del scaled
    out = {}
    for path, sums in total.items():
        with np.errstate(divide="ignore"):
            inverse = np.where(weight[path] > 0, 1 / weight[path], 0.0)
        stores.scale(sums, inverse)
        out[path] = stores.opened(sums)
    return out


def path_weight(walk: Walk, left: np.ndarray, right: np.ndarray) -> dict[Path, np.ndarray]:
    """Σ_w Ω[t_v, t_w]·P_vw for every path and target node, in float64; exactly 0 where nothing has weight."""
    graph, first = walk.graph, walk.paths[0][0][0]
    rows = np.ascontiguousarray(right.T)[graph.period_of(first)]
    out = {}
    with double(walk).scratch() as work:
        for path, hop in work.hops(rows):
            out[path] = np.einsum("vr,vr->v", left[graph.period], np.asarray(hop))
    return out


def double(walk: Walk) -> Walk:
    """The same walk, whose engine keeps hops in 64 bits."""
    if not hasattr(walk.engine, "storage"):
        return walk
    return replace(walk, engine=replace(walk.engine, storage="float64"))  # type: ignore[type-var]


def factors(table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`left` [T, R] and `right` [R, T] with left @ right = table, R as small as can be without loss.

    Equal columns, or equal rows, are grouped: nothing is subtracted, so nothing cancels. The singular vectors
    are taken where they need fewer terms and their terms stay within `MOST_GROWTH` of the table's entries.

    Example:
        >>> from impact_gnn.weighting import pmp
        >>> left, right = factors(pmp(range(10)))
        >>> right.shape
        (6, 10)
        >>> factors(np.outer([1.0, 2.0, 3.0], [1.0, 4.0, 5.0]))[1].shape
        (1, 3)
    """
    size = len(table)
    columns, of_column = np.unique(table, axis=1, return_inverse=True)
    rows, of_row = np.unique(table, axis=0, return_inverse=True)
    if columns.shape[1] <= len(rows):
        best = columns, (of_column.reshape(-1) == np.arange(columns.shape[1])[:, None]).astype(np.float64)
    else:
        best = (of_row.reshape(-1, 1) == np.arange(len(rows))).astype(np.float64), rows
    u, s, v = np.linalg.svd(table)
    rank = int((s > s[0] * size * np.finfo(np.float64).eps).sum())
    if rank < len(best[1]):
        left, right = u[:, :rank] * s[:rank], v[:rank]
        if (np.abs(left) @ np.abs(right) <= MOST_GROWTH * table).all():
            return left, right
    return best
