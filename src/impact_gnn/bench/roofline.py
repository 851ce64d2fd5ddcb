"""The least that a pass must do: reading the rows of X."""

# mypy: disallow-untyped-defs=False, check-untyped-defs=False
from __future__ import annotations

from itertools import pairwise

import numpy as np
from numba import njit

from impact_gnn.graph.csr import CSR
from impact_gnn.propagation import passes
from impact_gnn.propagation import threads as pool
from impact_gnn.propagation.vectors import add, pointer, prefetch, store, zeros


def roofline(csr: CSR, x: np.ndarray, threads: int | None = None) -> None:
    """Reads the rows of `x` that a pass reads, in its order, with its prefetching, and adds them all into one sum.

    The number of columns must be a multiple of 16.
    """
    borders = [int(border) for border in pool.spans(csr.indptr, max(1, passes.TASK // x.shape[1]))]
    rest = csr.indptr, csr.indices, x.reshape(-1), x.shape[1], passes.ahead(x)
    pool.run(_read, [(*rows, *rest, np.empty(64, x.dtype)) for rows in pairwise(borders)], threads)


@njit(nogil=True, cache=True)
def _read(first, last, indptr, indices, x, columns, ahead, out):
    border, source, values = pointer(indptr), pointer(indices), pointer(x)
    total, narrow = zeros(64, values), zeros(16, values)
    for v in range(first, last):
        step = ahead if border[v + 1] + ahead <= len(indices) else 0
        c = 0
        while c + 64 <= columns:
            for e in range(border[v], border[v + 1]):
                prefetch(values, np.int64(source[e + step]) * columns + c, total)
                total = add(total, values, np.int64(source[e]) * columns + c)
            c += 64
        while c < columns:
            for e in range(border[v], border[v + 1]):
                prefetch(values, np.int64(source[e + step]) * columns + c, narrow)
                narrow = add(narrow, values, np.int64(source[e]) * columns + c)
            c += 16
    # Sums that nobody looks at would be left out by the compiler.
    store(pointer(out), 0, total, 1.0)
    store(pointer(out), 16, narrow, 1.0)
