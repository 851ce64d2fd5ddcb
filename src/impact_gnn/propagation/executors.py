"""Who does the tasks of a run over files: an `Executor`, here the threads of this process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

import numpy as np

from impact_gnn.propagation import paging, slices
from impact_gnn.propagation.paging import Stored
from impact_gnn.propagation.plan import Plan
from impact_gnn.propagation.streaming import in_order

Tick: TypeAlias = Callable[[float], None]
Complete: TypeAlias = Callable[[int, int, Path | None], None]
"""Is told a slice, a hop, and the file if it has not been flushed to disk."""


class Executor(Protocol):
    """Who does the tasks of `slices`."""

    def cut(self, plan: Plan, x: np.ndarray, tick: Tick) -> list[bytes]:
        """Cuts X into slices; the checksums of its blocks."""

    def slices(self, plan: Plan, todo: list[tuple[int, int]], complete: Complete, tick: Tick) -> None:
        """Takes slices (number, last complete hop) to the end and tells `complete` of every slice of a hop."""

    def join(self, plan: Plan, hop: int, target: Stored, tick: Tick) -> None:
        """Joins the slices of a hop in the file `target`."""


@dataclass(frozen=True)
class Local:
    """The threads of this process."""

    threads: int | None = None

    def cut(self, plan: Plan, x: np.ndarray, tick: Tick) -> list[bytes]:
        """Blocks of rows, shared among threads."""
        ranges = slices.row_ranges(len(x), paging.block_rows(x))
        digests: list[bytes] = []
        for found in in_order(slices.cut_rows, ((plan, x, *each) for each in ranges), self.threads):
            digests += found
            tick(1 / len(ranges))
        return digests

    def slices(self, plan: Plan, todo: list[tuple[int, int]], complete: Complete, tick: Tick) -> None:
        """One slice after the other, each shared among threads."""
        for number, done in todo:
            for hop in slices.run_slice(plan, number, done, self.threads, tick):
                complete(number, hop, plan.slice_file(hop, number))

    def join(self, plan: Plan, hop: int, target: Stored, tick: Tick) -> None:
        """Blocks of rows, shared among threads."""
        ranges = slices.row_ranges(target.shape[0], paging.block_rows(target))
        for _ in in_order(slices.join_rows, ((plan, hop, target, *each) for each in ranges), self.threads):
            tick(1 / len(ranges))
