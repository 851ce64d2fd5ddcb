"""The kernels of `segments`. A block is 16 columns wide: two AVX2 registers, one network's hidden units."""

# mypy: disallow-untyped-defs=False, check-untyped-defs=False
from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from impact_gnn.propagation.vectors import add, keep, multiply_add, pointer, store, zeros


@njit(nogil=True, cache=True)
def grouped(source, target, period, first):
    """Borders of the segments (source period, target), and the source of every edge, counted within its period."""
    periods, nodes = len(first) - 1, len(period)
    border = np.zeros((periods, nodes + 1), np.int64)
    for e in range(len(source)):
        border[period[source[e]], target[e] + 1] += 1
    total = 0
    for s in range(periods):
        for v in range(nodes + 1):
            total += border[s, v]
            border[s, v] = total
    place = border.copy()
    out = np.empty(len(source), np.int32)
    for e in range(len(source)):
        s, v = period[source[e]], target[e]
        out[place[s, v]] = source[e] - first[s]
        place[s, v] += 1
    return border, out


@njit(nogil=True, cache=True)
def sums(border, source, first, period, table, self_loop, h, out):
    """out[c, v] = Σ_u table[c, t_v, t_u]·h[c, u], plus h[c, v] where `self_loop`; blocks [C, N, 16]."""
    blocks, nodes, _ = h.shape
    one, loop = np.float32(1), np.float32(1 if self_loop else 0)
    rows, written, edge = pointer(h), pointer(out), pointer(source)
    for at in range(0, blocks * nodes * 16, 16):
        store(written, at, multiply_add(zeros(16, rows), loop, rows, at), one)
    apart = nodes * 16
    for c in range(0, blocks, 2):  # in pairs: an edge's source is looked up once for both
        alone = c + 1 == blocks
        for s in range(len(first) - 1):
            base = (c * nodes + first[s]) * 16
            for v in range(nodes):
                e, end = border[s, v], border[s, v + 1]
                weight = table[c, period[v], s]
                second = np.float32(0) if alone else table[c + 1, period[v], s]
                if e == end or (weight == 0 and second == 0):
                    continue
                at = (c * nodes + v) * 16
                if alone:
                    _one_block(rows, base, edge, e, end, written, at, weight)
                else:
                    _two_blocks(rows, base, edge, e, end, written, at, weight, second, apart)
    keep(h, out)


# Odd and even edges have sums of their own: an addition need not wait for the one before.


@njit(forceinline=True)
def _one_block(rows, base, edge, e, end, written, at, weight):
    odd, even = zeros(16, rows), zeros(16, rows)
    while e + 2 <= end:
        odd = add(odd, rows, base + np.int64(edge[e]) * 16)
        even = add(even, rows, base + np.int64(edge[e + 1]) * 16)
        e += 2
    if e < end:
        odd = add(odd, rows, base + np.int64(edge[e]) * 16)
    _add_to(written, at, weight, odd, even)


@njit(forceinline=True)
def _two_blocks(rows, base, edge, e, end, written, at, weight, second_weight, apart):
    odd, even, second_odd, second_even = zeros(16, rows), zeros(16, rows), zeros(16, rows), zeros(16, rows)
    while e + 2 <= end:
        i, j = base + np.int64(edge[e]) * 16, base + np.int64(edge[e + 1]) * 16
        odd = add(odd, rows, i)
        second_odd = add(second_odd, rows, i + apart)
        even = add(even, rows, j)
        second_even = add(second_even, rows, j + apart)
        e += 2
    if e < end:
        i = base + np.int64(edge[e]) * 16
        odd = add(odd, rows, i)
        second_odd = add(second_odd, rows, i + apart)
    _add_to(written, at, weight, odd, even)
    _add_to(written, at + apart, second_weight, second_odd, second_even)


@intrinsic
def _add_to(typing, array, position, factor, left, right):
    """array[position : position + width] += factor · (left + right)."""

    def generate(context, builder, signature, args):
        vector = left.of()
        where = builder.bitcast(builder.gep(args[0], [args[1]]), vector.as_pointer())
        before = builder.load(where)
        before.align = 4
        nothing = ir.Constant(vector, ir.Undefined)
        single = builder.insert_element(nothing, args[2], ir.Constant(ir.IntType(32), 0))
        factors = builder.shuffle_vector(single, nothing, ir.Constant(ir.VectorType(ir.IntType(32), left.width), None))
        kind = ir.FunctionType(vector, [vector] * 3)
        fused = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fmuladd.v{left.width}f32")
        after = builder.call(fused, [factors, builder.fadd(args[3], args[4]), before])
        builder.store(after, where).align = 4
        return context.get_dummy_value()

    return types.void(array, types.int64, types.float32, left, right), generate
