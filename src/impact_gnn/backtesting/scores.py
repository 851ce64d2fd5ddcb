"""Scores by method, fold and seed, and their paired differences with intervals."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from impact_gnn._store import Store
from impact_gnn.backtesting.outcome import PLAIN
from impact_gnn.pipeline import Method
from impact_gnn.statistics import Estimate, combined


@dataclass(frozen=True)
class Unit:
    """One fit: a method, on a fold, with a seed."""

    method: Method
    fold: int
    seed: int

    def __str__(self) -> str:
        return f"{self.method}.fold{self.fold}.seed{self.seed}"


@dataclass(frozen=True, eq=False)
class Scores:
    """Which nodes of a fold were classified rightly, for every unit done; kept on disk too if there is a `store`."""

    store: Store | None = None
    hits: dict[Unit, np.ndarray] = field(default_factory=dict)

    def get(self, unit: Unit) -> np.ndarray | None:
        """The hits of a unit if it was done before, in this run or an earlier one."""
        if unit not in self.hits and self.store and (kept := self.store.array(f"fits/{unit}")) is not None:
            self.hits[unit] = kept
        return self.hits.get(unit)

    def put(self, unit: Unit, hits: np.ndarray) -> None:
        self.hits[unit] = hits
        if self.store is not None:
            self.store.put_array(f"fits/{unit}", hits)

    def accuracy(self, method: Method) -> float | None:
        """Mean accuracy over folds and seeds; None if nothing was done."""
        shares = [float(hits.mean()) for unit, hits in self.hits.items() if unit.method == method]
        return float(np.mean(shares)) if shares else None

    def difference(self, method: Method, *, level: float = 0.95) -> Estimate | None:
        """Accuracy minus plain's, paired by node and seed, combined over folds; None without a fold that has both."""
        by_fold = self.by_fold(method)
        return combined(*np.array(list(by_fold.values())).T, level=level) if by_fold else None

    def by_fold(self, method: Method) -> dict[int, tuple[float, float]]:
        """Accuracy minus plain's in every fold that has both, and its standard error: nodes vary, and so do seeds."""
        by_fold: dict[int, list[np.ndarray]] = {}
        for unit, hits in self.hits.items():
            plain = self.hits.get(Unit(PLAIN, unit.fold, unit.seed))
            if unit.method == method and plain is not None:
                by_fold.setdefault(unit.fold, []).append(hits.astype(np.float64) - plain)
        return {fold: _mean_and_error(np.array(by_seed)) for fold, by_seed in sorted(by_fold.items())}

    def ranked(self, methods: Iterable[Method]) -> list[Method]:
        """Methods from the best difference to the worst; plain counts as zero."""
        value = {m: 0.0 if m == PLAIN else d.value if (d := self.difference(m)) else -math.inf for m in methods}
        return sorted(value, key=lambda m: -value[m])


def _mean_and_error(by_seed: np.ndarray) -> tuple[float, float]:
    nodes = by_seed.mean(0)
    variance = nodes.var(ddof=1) / len(nodes) if len(nodes) > 1 else 0.25
    if len(by_seed) > 1:
        variance += by_seed.mean(1).var(ddof=1) / len(by_seed)
    # One node more or less right is the least that can be told apart.
    return float(nodes.mean()), math.sqrt(max(variance, 0.25 / len(nodes) ** 2))
