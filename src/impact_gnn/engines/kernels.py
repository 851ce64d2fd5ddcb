"""The numba kernels of out_v = r_v · (Σ_u Ω[t_v, t_u]·a_vu·c_u·x_u + [loop] c_v·x_v).

Speed: the sums of up to 64 columns stay in registers over all edges of a row (`vectors`). Rows of
X are prefetched some edges before their use. An edge costs the reading of its source only: its
weight is looked up from the period of its source with the first columns, and reused for the others.

Determinism: one thread computes a number of the result, in an order that only the graph fixes. It
depends neither on the number of threads nor on the other columns. Sums of float16 and float32 rows
are in float32 for at most `TILE` edges, and those sums are added in float64.

The kernels release the GIL and run in ordinary threads (`_native.run`): no OpenMP, so they are safe
under Dask and after a fork. Arguments always have the same types (an empty array where there is
nothing), because numba compiles the whole kernel again for every new combination.
"""

# mypy: disallow-untyped-defs=False, check-untyped-defs=False
from __future__ import annotations

import numpy as np
from numba import njit

from impact_gnn.engines.vectors import (
    add,
    keep,
    multiply_add,
    pointer,
    prefetch,
    store,
    widened,
    zeros,
)

TILE = 256  # edges of a row handled together; also the longest sum in float32

PLAIN = 0
LOOK_UP = 1
KNOWN = 2
"""The factors of the edges of a tile: 1; to be looked up; in `factors`, looked up before."""


@njit(forceinline=True)
def _inverse(total):
    """1 / total, or 0 where nothing comes in."""
    return 1 / total if total > 0 else 0.0


@njit(forceinline=True)
def edge_weight(weight, e):
    """The weight of edge e; 1 where `weight` is empty."""
    return weight[e] if len(weight) else 1.0


@njit(nogil=True, cache=True)
def gather(rows, columns, csr, table, periods, row_scale, column_scale, self_loop, x, out, ahead):
    """Fill out[v, c] for v in range(*rows) and c in range(*columns).

    Args:
        rows: First and last row, the last excluded.
        columns: First and last column, the last excluded.
        csr: `indptr`, `indices`, `weight` (may be empty: weights 1).
        table: Ω as float32 (float64 for float64 rows), flat; may be empty: 1 everywhere.
        periods: Period of each source, period of each target, number of source periods.
        row_scale: r; may be empty: then rows are divided by their weight, which the kernel sums.
        column_scale: c, of the type of `table`; may be empty: 1 everywhere.
        self_loop: Whether v is a neighbour of itself, with weight 1.
        x: The rows as a flat array (float16 as uint16), and their stride in elements.
        out: Likewise.
        ahead: How many edges before its use a row is prefetched.
    """
    indptr, indices, weight = csr
    # Factors of the edges of a tile, and float64 sums of the columns of a heavy row.
    factor = np.empty(TILE, table.dtype)
    wide = np.empty(columns[1])
    one = table.dtype.type(1)
    num_edges = len(indices)
    # Whether there are weights of edges, a table and column scales.
    has = (len(weight) > 0, len(table) > 0, len(column_scale) > 0)
    kind = LOOK_UP if has[0] or has[1] or has[2] else PLAIN
    # From here on only pointers, see `vectors`.
    sums = pointer(wide)
    scale_of = pointer(column_scale)
    parts = (pointer(weight), pointer(table), scale_of, pointer(periods[0]), pointer(factor), sums)
    borders = pointer(indptr)
    target_period = pointer(periods[1])
    scales = pointer(row_scale)
    divide = len(row_scale) == 0
    values = (pointer(x[0]), x[1])
    rest = (pointer(indices), has, parts, values, (pointer(out[0]), out[1]))
    for v in range(rows[0], rows[1]):
        first = borders[v]
        end = borders[v + 1]
        heavy = end - first > TILE  # several tiles, whose sums are added in float64
        if heavy:
            for c in range(columns[0], columns[1]):
                sums[c] = 0
        loop_scale = scale_of[v] if has[2] else one
        # The sum of the weights so far, and the factor of the row where it is known beforehand.
        weight_sum = 1.0 if self_loop else 0.0
        scale = 1.0 if divide else scales[v]
        if divide and kind == PLAIN:
            weight_sum += end - first
            scale = _inverse(weight_sum)
        # Where the row of the flat table begins that belongs to the period of v.
        base = target_period[v] * periods[2]
        while True:
            last = min(first + TILE, end)
            step = ahead if last + ahead <= num_edges else 0  # no prefetch beyond the edges
            edges = first, last, v, heavy, last == end, self_loop, step, base
            how = kind
            c = columns[0]
            # Columns in blocks of 64, 16, 4 and 1.
            while c < columns[1]:
                # Each width is a type of its own, so each call is compiled for one width.
                block = how, c, edges, (one, loop_scale, scale, divide), weight_sum
                if c + 64 <= columns[1]:
                    weight_sum = _block(zeros(64, values[0]), block, *rest)
                    c += 64
                elif c + 16 <= columns[1]:
                    weight_sum = _block(zeros(16, values[0]), block, *rest)
                    c += 16
                elif c + 4 <= columns[1]:
                    weight_sum = _block(zeros(4, values[0]), block, *rest)
                    c += 4
                else:
                    weight_sum = _block(zeros(1, values[0]), block, *rest)
                    c += 1
                # The first columns looked up the factors; the others of the tile reuse them.
                if how == LOOK_UP:
                    how = KNOWN
                    if divide:
                        scale = _inverse(weight_sum)
            first = last
            if first == end:
                break
    keep(factor, wide)


@njit(nogil=True, cache=True)
def row_sums(rows, csr, table, periods, out):
    """Store the incoming weight Σ_u Ω[t_v, t_u]·a_vu in out[v] for v in range(*rows)."""
    indptr, indices, weight = csr
    source_period, target_period, num_periods = periods
    for v in range(rows[0], rows[1]):
        total = 0.0
        # Row of the flat table that belongs to the period of v.
        base = np.uintp(target_period[v]) * num_periods
        for e in range(indptr[v], indptr[v + 1]):
            factor = table[base + source_period[np.uintp(indices[e])]] if len(table) else 1.0
            total += factor * weight[e] if len(weight) else factor
        out[v] = total


@njit(nogil=True, cache=True)
def balanced(rows, csr, source_period, num_periods, out):
    """Store a_vu / Σ_w a_vw, over sources w of u's period, in out[e] for edges of `rows`."""
    indptr, indices, weight = csr
    # The sum of the row's weights per period; its edges clear it after the row.
    total = np.zeros(num_periods)
    # Three passes over the edges of a row: sum, divide, clear.
    for v in range(rows[0], rows[1]):
        for e in range(indptr[v], indptr[v + 1]):
            total[source_period[np.uintp(indices[e])]] += edge_weight(weight, e)
        for e in range(indptr[v], indptr[v + 1]):
            whole = total[source_period[np.uintp(indices[e])]]
            out[e] = edge_weight(weight, e) / whole if whole > 0 else 0.0
        for e in range(indptr[v], indptr[v + 1]):
            total[source_period[np.uintp(indices[e])]] = 0.0


@njit(forceinline=True)
def _block(total, block, source, has, parts, x, out):
    """Sum one tile of a row in the columns c, c + 1, ...; return the new `weight_sum`."""
    how, c, edges, scaling, weight_sum = block
    first, last, v, heavy, finished, self_loop, step, base = edges
    weight, table, column_scale, source_period, factors, sums = parts
    has_weight, has_table, has_scale = has
    one, loop_scale, row_scale, divide = scaling
    values, stride = x
    if how == PLAIN:
        # All factors are 1.
        for e in range(first, last):
            prefetch(values, np.int64(source[e + step]) * stride + c, total)
            total = add(total, values, np.int64(source[e]) * stride + c)
    elif how == LOOK_UP:
        # The first columns of a tile look up the factors, and store them for the others.
        for e in range(first, last):
            prefetch(values, np.int64(source[e + step]) * stride + c, total)
            u = np.int64(source[e])
            factor = table[base + source_period[u]] if has_table else one
            if has_weight:
                factor *= weight[e]
            if has_scale:
                factor *= column_scale[u]
            factors[e - first] = factor
            weight_sum += factor
            total = multiply_add(total, factor, values, u * stride + c)
    else:
        # The other columns of the tile.
        for e in range(first, last):
            prefetch(values, np.int64(source[e + step]) * stride + c, total)
            total = multiply_add(
                total, factors[e - first], values, np.int64(source[e]) * stride + c
            )
    # With one tile the scale of the row is known now; with more, after the last one.
    if how == LOOK_UP and divide:
        row_scale = _inverse(weight_sum)
    if self_loop and finished:
        # Once per row, with its last tile.
        total = multiply_add(total, loop_scale, values, v * stride + c)
    # A light row is stored; a heavy one is added to its sums, and stored after its last tile.
    where = v * out[1] + c
    if not heavy:
        store(out[0], where, total, row_scale)
    elif finished:
        store(out[0], where, widened(total, sums, c), row_scale)
    else:
        store(sums, c, widened(total, sums, c), 1.0)
    return weight_sum
