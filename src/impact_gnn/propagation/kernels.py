"""The numba kernels of the one operation: out_v = r_v · (Σ_u Ω[t_v, t_u]·a_vu·c_u·x_u + [loop] c_v·x_v).

How it goes fast: the sums of up to 64 columns stay in registers over all edges of a row (`vectors`); rows of X
are asked for some edges before they are needed; an edge costs its source and nothing else, its weight being
looked up from the period of its source. What an edge counts is worked out for `TILE` edges at a time, before
the columns are touched, so a weighted sum costs hardly more than a plain one.

Deterministic: a number of the result is computed by one thread, in an order fixed by the graph alone. It does
not depend on the threads, nor on which other columns are computed with it. Sums of float16 and float32 rows are
kept in float32 for at most `TILE` edges, and those sums are added up in float64.

Compiled without the GIL and run from ordinary threads (`threads.run`): no OpenMP, so it is safe under Dask and
after a fork. Arguments are always of the same types (an empty array where there is nothing), because numba
compiles the whole kernel again for every new combination.
"""

# mypy: disallow-untyped-defs=False
from __future__ import annotations

import numpy as np
from numba import njit

from impact_gnn.propagation.vectors import add, keep, multiply_add, pointer, prefetch, store, widened, zeros

TILE = 256
"""Edges whose weights are worked out together; also the longest sum in float32."""


@njit(nogil=True, cache=True)
def gather(rows, columns, csr, table, periods, row_scale, column_scale, self_loop, x, out, ahead):
    """Fills out[v, c] for v in range(*rows) and c in range(*columns).

    Args:
        rows: First and last row, the last excluded.
        columns: First and last column, the last excluded.
        csr: `indptr`, `indices`, `weight` (may be empty: weights 1).
        table: Ω as float32 (float64 for float64 rows), flat; may be empty: 1 everywhere.
        periods: Period of each source, period of each target, number of source periods.
        row_scale: r.
        column_scale: c, of the type of `table`; may be empty: 1 everywhere.
        self_loop: Whether v is a neighbour of itself, with weight 1.
        x: The rows, flat, and the distance between their beginnings; float16 comes as uint16.
        out: Likewise.
        ahead: How many edges before its use a row is asked for.
    """
    indptr, indices, weight = csr
    given = len(weight) > 0, len(table) > 0, len(column_scale) > 0
    plain = not (given[0] or given[1] or given[2])
    factor = np.empty(TILE, table.dtype)
    one = table.dtype.type(1)
    wide = np.empty(columns[1])
    last_edge = len(indices) - 1
    # From here on only pointers, see `vectors`.
    parts = pointer(weight), pointer(table), pointer(column_scale)
    at, edge_source, factors, sums = pointer(indptr), pointer(indices), pointer(factor), pointer(wide)
    source_period, target_period, num_periods = pointer(periods[0]), pointer(periods[1]), periods[2]
    rows_in, rows_out = (pointer(x[0]), x[1]), (pointer(out[0]), out[1])
    scales = pointer(row_scale)
    for v in range(rows[0], rows[1]):
        first, end = at[v], at[v + 1]
        own = one if self_loop else one - one
        if self_loop and given[2]:
            own = parts[2][v]
        heavy = end - first > TILE
        if heavy:
            for c in range(columns[0], columns[1]):
                sums[c] = 0
        begun = True
        while begun or first < end:
            last = min(first + TILE, end)
            if not plain:
                base = target_period[v] * num_periods
                _factors(factors, first, last, edge_source, given, parts, source_period, base, one)
            edges = (first, last, v, plain, heavy, last == end, self_loop, ahead, last_edge)
            numbers = (own, scales[v], one)
            c = columns[0]
            while c + 64 <= columns[1]:
                _block(zeros(64, rows_in[0]), c, edges, numbers, edge_source, factors, rows_in, rows_out, sums)
                c += 64
            while c + 16 <= columns[1]:
                _block(zeros(16, rows_in[0]), c, edges, numbers, edge_source, factors, rows_in, rows_out, sums)
                c += 16
            while c + 4 <= columns[1]:
                _block(zeros(4, rows_in[0]), c, edges, numbers, edge_source, factors, rows_in, rows_out, sums)
                c += 4
            while c < columns[1]:
                _block(zeros(1, rows_in[0]), c, edges, numbers, edge_source, factors, rows_in, rows_out, sums)
                c += 1
            first = last
            begun = False
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


@njit(forceinline=True)
def _factors(factors, first, last, edge_source, given, parts, source_period, base, one):
    """What each edge of the tile counts: Ω[t_v, t_u] · a_vu · c_u."""
    weight, table, column_scale = parts
    if given[1]:
        for e in range(first, last):
            factors[e - first] = table[base + source_period[edge_source[e]]]
    else:
        for e in range(first, last):
            factors[e - first] = one
    if given[0]:
        for e in range(first, last):
            factors[e - first] *= weight[e]
    if given[2]:
        for e in range(first, last):
            factors[e - first] *= column_scale[edge_source[e]]


@njit(forceinline=True)
def _block(total, c, edges, numbers, edge_source, factors, rows_in, rows_out, sums):
    """One tile of one row in the columns c, c + 1, ... that `total` holds."""
    first, last, v, plain, heavy, finished, self_loop, ahead, last_edge = edges
    own, scale, one = numbers
    values, stride = rows_in
    if plain:
        for e in range(first, last):
            prefetch(values, np.int64(edge_source[min(e + ahead, last_edge)]) * stride + c, total)
            total = add(total, values, np.int64(edge_source[e]) * stride + c)
    else:
        for e in range(first, last):
            prefetch(values, np.int64(edge_source[min(e + ahead, last_edge)]) * stride + c, total)
            total = multiply_add(total, factors[e - first], values, np.int64(edge_source[e]) * stride + c)
    if self_loop and finished:
        total = multiply_add(total, own, values, v * stride + c)
    where = v * rows_out[1] + c
    if not heavy:
        store(rows_out[0], where, total, scale)
    elif finished:
        store(rows_out[0], where, widened(total, sums, c), scale)
    else:
        store(sums, c, widened(total, sums, c), 1.0)
