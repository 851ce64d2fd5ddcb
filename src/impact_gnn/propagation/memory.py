"""The engine for graphs whose features fit into memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from impact_gnn.checks import InputError
from impact_gnn.propagation.operator import Operator


@dataclass(frozen=True)
class Memory:
    """Hops as arrays in memory, computed by the numba kernel on `threads` cores (None: all of them).

    Example:
        >>> from impact_gnn.graph import build_csr
        >>> chain = build_csr(np.array([0, 1]), np.array([1, 2]), 3, 3)
        >>> same = np.zeros(3, np.uint8)
        >>> step = Operator(chain, np.ones((1, 1)), same, same)
        >>> Memory().hops([step, step], np.array([[5.0], [0.0], [0.0]]))[-1]
        array([[0.],
               [0.],
               [5.]])
    """

    threads: int | None = None

    def __post_init__(self) -> None:
        if self.threads is not None and (not isinstance(self.threads, int) or self.threads < 1):
            raise InputError(f"threads={self.threads!r} must be a whole number of at least 1, or None for all cores.")

    def hops(self, operators: Sequence[Operator], x: np.ndarray) -> list[np.ndarray]:
        """Hop k is `operators[k]` applied to hop k−1, the first one to `x`."""
        found = []
        for operator in operators:
            x = operator.apply(x, threads=self.threads)
            found.append(x)
        return found
