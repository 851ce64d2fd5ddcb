"""What an engine promises: the same hops, wherever they are computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from impact_gnn.propagation.operator import Operator


class Engine(Protocol):
    """Applies operations one after the other: hop k is operators[k] on hop k−1, hop −1 being `x`."""

    def hops(self, operators: Sequence[Operator], x: np.ndarray) -> list[np.ndarray]:
        """All hops, as arrays or memory maps."""
