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

    def folds(self, method: Method) -> list[int]:
        """Folds in which both the method and plain were tried."""
        mine, theirs = ({unit.fold for unit in self.hits if unit.method == one} for one in (method, PLAIN))
        return sorted(mine & theirs)

    def difference(self, method: Method, *, level: float = 0.95) -> Estimate | None:
        """Accuracy minus plain's, paired by node and seed, combined over folds; None if never tried beside plain."""
        pairs = [self.fold_difference(method, fold) for fold in self.folds(method)]
        if not pairs:
            return None
        values, errors = np.array(pairs).T
        return combined(values, errors, level=level)

    def fold_difference(self, method: Method, fold: int) -> tuple[float, float]:
        """Accuracy minus plain's in one fold, and its standard error: nodes vary, and so do seeds."""
        mine, theirs = ({u.seed for u in self.hits if u.method == one and u.fold == fold} for one in (method, PLAIN))
        pairs = [(self.hits[Unit(method, fold, s)], self.hits[Unit(PLAIN, fold, s)]) for s in sorted(mine & theirs)]
        by_seed = np.array([ours.astype(np.float64) - plain for ours, plain in pairs])
        nodes = by_seed.mean(0)
        variance = nodes.var(ddof=1) / len(nodes) if len(nodes) > 1 else 0.25
        if len(by_seed) > 1:
            variance += by_seed.mean(1).var(ddof=1) / len(by_seed)
        # One node more or less right is the least that can be told apart.
        return float(nodes.mean()), math.sqrt(max(variance, 0.25 / len(nodes) ** 2))

    def ranked(self, methods: Iterable[Method]) -> list[Method]:
        """Methods from the best difference to the worst; plain counts as zero."""
        value = {m: 0.0 if m == PLAIN else d.value if (d := self.difference(m)) else -math.inf for m in methods}
        return sorted(value, key=lambda m: -value[m])
