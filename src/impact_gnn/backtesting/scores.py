"""Scores by method, fold and seed; paired differences with intervals; what they support."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from impact_gnn import _files
from impact_gnn.statistics import Estimate, combined

PLAIN = "plain"


@dataclass(frozen=True)
class Unit:
    """One fit: a method, on a fold, with a seed."""

    method: str
    fold: int
    seed: int


@dataclass(frozen=True, eq=False)
class Scores:
    """Which nodes of a fold were classified rightly, for every unit done; kept on disk too if there is a `store`.

    A store that was begun with other data or options must not be given: its name should tell them apart.
    """

    store: Path | None = None
    hits: dict[Unit, np.ndarray] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def get(self, unit: Unit) -> np.ndarray | None:
        """The hits of a unit if it was done before, in this run or an earlier one."""
        if unit not in self.hits and self.store is not None and (file := self._file(unit)).is_file():
            self.hits[unit] = _files.open_array(file, in_memory=True)
        return self.hits.get(unit)

    def put(self, unit: Unit, hits: np.ndarray) -> None:
        """Remembers the hits of a unit."""
        self.hits[unit] = hits
        if self.store is not None:
            with _files.atomic_file(self._file(unit)) as temporary, temporary.open("wb") as file:
                np.save(file, hits, allow_pickle=False)

    def accuracy(self, method: str, fold: int | None = None) -> float:
        """Mean accuracy over folds (or in one fold) and seeds; NaN if nothing was done."""
        found = [
            float(hits.mean()) for unit, hits in self.hits.items()
            if unit.method == method and fold in (None, unit.fold)
        ]  # fmt: skip
        return float(np.mean(found)) if found else math.nan

    def folds(self, method: str) -> list[int]:
        """Folds in which both the method and plain were tried."""
        return sorted(
            {u.fold for u in self.hits if u.method == method} & {u.fold for u in self.hits if u.method == PLAIN}
        )

    def difference(self, method: str, *, level: float = 0.95) -> Estimate | None:
        """Accuracy minus plain's, paired by node and seed, combined over folds; None if never tried beside plain."""
        folds = self.folds(method)
        if not folds:
            return None
        pairs = [self._fold_difference(method, fold) for fold in folds]
        values, errors = (np.array(part) for part in zip(*pairs, strict=True))
        return combined(values, errors, level=level)

    def fold_difference(self, method: str, fold: int) -> float:
        """Accuracy minus plain's in one fold."""
        return self._fold_difference(method, fold)[0]

    def _fold_difference(self, method: str, fold: int) -> tuple[float, float]:
        """Value and standard error: nodes vary, and so do seeds."""
        seeds = sorted(
            {u.seed for u in self.hits if u.method == method and u.fold == fold}
            & {u.seed for u in self.hits if u.method == PLAIN and u.fold == fold}
        )
        by_seed = np.array(
            [self.hits[Unit(method, fold, s)].astype(np.float64) - self.hits[Unit(PLAIN, fold, s)] for s in seeds]
        )
        nodes = by_seed.mean(0)
        variance = nodes.var(ddof=1) / len(nodes) if len(nodes) > 1 else 0.25
        if len(seeds) > 1:
            variance += by_seed.mean(1).var(ddof=1) / len(seeds)
        # One node more or less right is the least that can be told apart.
        return float(nodes.mean()), float(math.sqrt(max(variance, 0.25 / len(nodes) ** 2)))

    def _file(self, unit: Unit) -> Path:
        assert self.store is not None
        return self.store / f"{unit.method}.fold{unit.fold}.seed{unit.seed}.npy"


def ranked(scores: Scores, methods: Iterable[str]) -> list[str]:
    """Methods from the best difference to the worst; plain counts as zero."""
    value = {m: 0.0 if m == PLAIN else d.value if (d := scores.difference(m)) else -math.inf for m in methods}
    return sorted(value, key=lambda m: -value[m])
