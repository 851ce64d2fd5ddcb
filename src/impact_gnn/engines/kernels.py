"""The numba kernels of the one operation: out_v = r_v · (Σ_u Ω[t_v, t_u]·a_vu·c_u·x_u + [loop] c_v·x_v).

How it goes fast: the sums of up to 64 columns stay in registers over all edges of a row
    (`vectors`); rows of X
are asked for some edges before they are needed; an edge costs its source and nothing else, its
weight being looked up from the period of its source while the first columns are summed, and kept
for the others.

Deterministic: a number of the result is computed by one thread, in an order fixed by the graph
    alone. It does
not depend on the threads, nor on which other columns are computed with it. Sums of float16 and
float32 rows are kept in float32 for at most `TILE` edges, and those sums are added up in float64.

Compiled without the GIL and run from ordinary threads (`_native.run`): no OpenMP, so it is safe
under Dask and after a fork. Arguments are always of the same types (an empty array where there is
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

PLAIN, LOOK_UP, KNOWN = 0, 1, 2
"""What the edges of a tile count: one each; to be looked up; in `factors`, looked up before."""


@njit(nogil=True, cache=True)
def gather(rows, columns, csr, table, periods, row_scale, column_scale, self_loop, x, out, ahead):
    """Fills out[v, c] for v in range(*rows) and c in range(*columns).

    Args:
        rows: First and last row, the last excluded.
        columns: First and last column, the last excluded.
        csr: `indptr`, `indices`, `weight` (may be empty: weights 1).
        table: Ω as float32 (float64 for float64 rows), flat; may be empty: 1 everywhere.
        periods: Period of each source, period of each target, number of source periods.
        row_scale: r; may be empty: then rows are divided by their weight, which is summed up on the
            way.
        column_scale: c, of the type of `table`; may be empty: 1 everywhere.
        self_loop: Whether v is a neighbour of itself, with weight 1.
        x: The rows, flat, and the distance between their beginnings; float16 comes as uint16.
        out: Likewise.
        ahead: How many edges before its use a row is asked for.
    """
    indptr, indices, weight = csr
    factor, wide = np.empty(TILE, table.dtype), np.empty(columns[1])
    one = table.dtype.type(1)
    num_edges = len(indices)
    given = len(weight) > 0, len(table) > 0, len(column_scale) > 0
    kind = LOOK_UP if given[0] or given[1] or given[2] else PLAIN
    # From here on only pointers, see `vectors`.
    sums, factors = pointer(wide), pointer(factor)
    parts = (
        pointer(weight),
        pointer(table),
        pointer(column_scale),
        pointer(periods[0]),
        factors,
        sums,
    )
    borders, target_period, scales = pointer(indptr), pointer(periods[1]), pointer(row_scale)
    divide = len(row_scale) == 0
    values, result = (pointer(x[0]), x[1]), (pointer(out[0]), out[1])
    source = pointer(indices)
    rest = source, given, parts, values, result
    for v in range(rows[0], rows[1]):
        first, end = borders[v], borders[v + 1]
        heavy = end - first > TILE
        if heavy:
            for c in range(columns[0], columns[1]):
                sums[c] = 0
        own = parts[2][v] if given[2] else one
        # The weight that has come in so far, and what the row is multiplied by where that is known
        # beforehand.
        heard, scale = (1.0 if self_loop else 0.0), 1.0
        if not divide:
            scale = scales[v]
        elif kind == PLAIN:
            heard += end - first
            scale = 1 / heard if heard > 0 else 0.0
        base = target_period[v] * periods[2]
        while True:
            last = min(first + TILE, end)
            step = ahead if last + ahead <= num_edges else 0
            edges = first, last, v, heavy, last == end, self_loop, step, base
            how, c = kind, columns[0]
            while c < columns[1]:
                if c + 64 <= columns[1]:
                    heard = _block(
                        zeros(64, values[0]), how, c, edges, (one, own, scale, divide), heard, *rest
                    )
                    c += 64
                elif c + 16 <= columns[1]:
                    heard = _block(
                        zeros(16, values[0]), how, c, edges, (one, own, scale, divide), heard, *rest
                    )
                    c += 16
                elif c + 4 <= columns[1]:
                    heard = _block(
                        zeros(4, values[0]), how, c, edges, (one, own, scale, divide), heard, *rest
                    )
                    c += 4
                else:
                    heard = _block(
                        zeros(1, values[0]), how, c, edges, (one, own, scale, divide), heard, *rest
                    )
                    c += 1
                if how == LOOK_UP:
                    how = KNOWN
                    if divide:
                        scale = 1 / heard if heard > 0 else 0.0
            first = last
            if first == end:
                break
    keep(factor, wide)


@njit(nogil=True, cache=True)
def row_sums(rows, csr, table, periods, out):
    """The weight that comes in at v, Σ_u Ω[t_v, t_u]·a_vu, into out[v] for v in range(*rows)."""
    indptr, indices, weight = csr
    source_period, target_period, num_periods = periods
    for v in range(rows[0], rows[1]):
        total = 0.0
        base = np.uintp(target_period[v]) * num_periods
        for e in range(indptr[v], indptr[v + 1]):
            factor = table[base + source_period[np.uintp(indices[e])]] if len(table) else 1.0
            total += factor * weight[e] if len(weight) else factor
        out[v] = total


@njit(nogil=True, cache=True)
def balanced(rows, csr, source_period, num_periods, out):
    """a_vu / Σ_w a_vw over the sources w of u's period, into out[e] for the edges e of v in range(*rows)."""
    indptr, indices, weight = csr
    # of the row at hand, by period; cleared after it by the same edges
    total = np.zeros(num_periods)
    for v in range(rows[0], rows[1]):
        for e in range(indptr[v], indptr[v + 1]):
            total[source_period[np.uintp(indices[e])]] += weight[e] if len(weight) else 1.0
        for e in range(indptr[v], indptr[v + 1]):
            whole = total[source_period[np.uintp(indices[e])]]
            out[e] = (weight[e] if len(weight) else 1.0) / whole if whole > 0 else 0.0
        for e in range(indptr[v], indptr[v + 1]):
            total[source_period[np.uintp(indices[e])]] = 0.0


@njit(forceinline=True)
def _block(total, how, c, edges, scale, heard, source, given, parts, x, out):
    """One tile of one row in the columns c, c + 1, ... that `total` holds; returns `heard` with its weights added."""
    first, last, v, heavy, finished, self_loop, step, base = edges
    weight, table, column_scale, source_period, factors, sums = parts
    one, own, row_scale, divide = scale
    values, stride = x
    if how == PLAIN:
        for e in range(first, last):
            prefetch(values, np.int64(source[e + step]) * stride + c, total)
            total = add(total, values, np.int64(source[e]) * stride + c)
    elif how == LOOK_UP:
        for e in range(first, last):
            u, later = np.int64(source[e]), np.int64(source[e + step])
            prefetch(values, later * stride + c, total)
            factor = table[base + source_period[u]] if given[1] else one
            if given[0]:
                factor *= weight[e]
            if given[2]:
                factor *= column_scale[u]
            factors[e - first] = factor
            heard += factor
            total = multiply_add(total, factor, values, u * stride + c)
    else:
        for e in range(first, last):
            prefetch(values, np.int64(source[e + step]) * stride + c, total)
            total = multiply_add(
                total, factors[e - first], values, np.int64(source[e]) * stride + c
            )
    if how == LOOK_UP and divide:
        row_scale = 1 / heard if heard > 0 else 0.0
    if self_loop and finished:
        total = multiply_add(total, own, values, v * stride + c)
    where = v * out[1] + c
    if not heavy:
        store(out[0], where, total, row_scale)
    elif finished:
        store(out[0], where, widened(total, sums, c), row_scale)
    else:
        store(sums, c, widened(total, sums, c), 1.0)
    return heard
