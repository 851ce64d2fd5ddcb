"""One operation with all that its pass over a slice of columns needs in files, block of rows after block of rows.

A block is a run of targets whose edges fit into a small buffer. The kernel is the one of `Operator`; it is shown
each block as if the whole were there (`seen_from`), so the numbers are the same to the last bit.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import TypeAlias

import numpy as np

from impact_gnn.graph.csr import CSR
from impact_gnn.propagation import kernels, paging, stored_csr
from impact_gnn.propagation import threads as pool
from impact_gnn.propagation.disk_operator import DiskOperator
from impact_gnn.propagation.operator import Operator
from impact_gnn.propagation.paging import InMemory, Open, Stored
from impact_gnn.propagation.passes import ahead
from impact_gnn.propagation.stored_csr import StoredCSR

Arrays: TypeAlias = tuple[np.ndarray, ...]

EDGES = 1 << 18
"""Edges in one block, unless a single target has more."""

ROWS = 1 << 14
"""Most rows in one block."""


@dataclass(frozen=True)
class Step:
    """An operation in files. Made by `prepare`; travels as paths."""

    csr: StoredCSR
    directory: Path
    norm: str
    self_loop: bool

    def apply(
        self,
        x: np.ndarray,
        out: Stored,
        threads: int | None = None,
        tick: Callable[[float], None] = lambda share: None,
    ) -> None:
        """M·X into the file `out` [targets, columns], for `x` [sources, columns] in memory and contiguous."""
        flat = x.reshape(-1).view(np.uint16) if x.dtype == np.float16 else x.reshape(-1)
        sums = np.float64 if x.dtype == np.float64 else np.float32
        table = self._table()
        column_scale = self._scale().astype(sums, copy=False) if self.norm == "sym" else np.empty(0, sums)
        source_period = self._array("source_period").whole()
        width, distance = x.shape[1], ahead(x)
        with contextlib.ExitStack() as stack:
            edges = Edges.opened(self, stack)
            scales = stack.enter_context(self._array("row_scale").opened())
            results = stack.enter_context(out.opened(write=True))
            rooms: SimpleQueue[dict[str, np.ndarray]] = SimpleQueue()
            workers = pool.available() if threads is None else threads
            for _ in range(workers):
                own = {"scale": np.empty(edges.most_rows), "out": np.empty(edges.most_rows * width, flat.dtype)}
                rooms.put(edges.room() | own)

            def run(number: int) -> None:
                room = rooms.get()
                try:
                    (first, last), csr, target_period = edges.block(number, room)
                    scale = seen_from(scales.read(first, last, room["scale"]), first)
                    part = room["out"][: (last - first) * width]
                    kernels.gather(
                        (first, last), (0, width), csr, table.reshape(-1).astype(sums, copy=False),
                        (source_period, target_period, table.shape[1] if table.size else 1), scale, column_scale,
                        self.self_loop, (flat, width), (seen_from(part, first * width), width), distance,
                    )  # fmt: skip
                    results.write(first, part.view(x.dtype).reshape(-1, width))
                finally:
                    rooms.put(room)
                tick(1 / edges.num_blocks)

            pool.run(run, [(number,) for number in range(edges.num_blocks)], threads)

    def _array(self, name: str) -> Stored:
        return paging.find(self.directory / f"{name}.npy")

    def _table(self) -> np.ndarray:
        """The table, empty where it is 1 everywhere."""
        table = self._array("table").whole()
        return np.empty((0, 1)) if (table == 1).all() else table

    def _scale(self) -> np.ndarray:
        return self._array("row_scale").whole()


@dataclass(frozen=True, eq=False)
class Edges:
    """The files of a step's edges, open, and its blocks: rows and edges at which they begin."""

    border: np.ndarray
    indptr: Open | InMemory
    indices: Open | InMemory
    weight: Open | InMemory | None
    target_period: Open | InMemory

    @classmethod
    def opened(cls, step: Step, stack: contextlib.ExitStack) -> Edges:
        """Opens the files until `stack` ends."""
        csr = step.csr
        files = [csr.indptr, csr.indices, csr.weight, step._array("target_period")]
        return cls(step._array("blocks").whole(), *(f and stack.enter_context(f.opened()) for f in files))  # type: ignore

    @property
    def num_blocks(self) -> int:
        """Number of blocks."""
        return len(self.border) - 1

    @property
    def most_rows(self) -> int:
        """Rows of the largest block."""
        return int(np.diff(self.border[:, 0]).max(initial=0))

    def room(self) -> dict[str, np.ndarray]:
        """Buffers into which any block can be read."""
        rows, most = np.diff(self.border, axis=0).max(0, initial=0)
        sizes = {"indptr": rows + 1, "indices": most, "weight": most, "target_period": rows}
        files = {name: getattr(self, name) for name in sizes}
        return {n: np.empty(sizes[n], f.array.dtype) for n, f in files.items() if f is not None}

    def block(self, number: int, room: dict[str, np.ndarray]) -> tuple[tuple[int, int], Arrays, np.ndarray]:
        """Rows, edges and target periods of a block, as the kernel wants them."""
        (first, begin), (last, end) = (tuple(map(int, border)) for border in self.border[number : number + 2])
        indptr = self.indptr.read(first, last + 1, room["indptr"])
        indices = self.indices.read(begin, end, room["indices"])
        weight = np.empty(0, np.float32)
        if self.weight is not None:
            weight = seen_from(self.weight.read(begin, end, room["weight"]), begin)
        target_period = self.target_period.read(first, last, room["target_period"])
        csr = seen_from(indptr, first), seen_from(indices, begin), weight
        return (first, last), csr, seen_from(target_period, first)


def seen_from(values: np.ndarray, first: int) -> np.ndarray:
    """A flat array in which `values` lie at positions `first` and after; what comes before must not be touched.

    Example:
        >>> int(seen_from(np.array([5, 6, 7]), 100)[102])
        7
    """
    return np.asarray(_Window(values, first))


class _Window:
    """What numpy needs to make an array of memory it does not own; it keeps this, and so `values`, alive."""

    def __init__(self, values: np.ndarray, first: int) -> None:
        self.values = values
        place = values.__array_interface__["data"][0] - first * values.itemsize
        shape, kind = (first + values.size,), values.dtype.str
        self.__array_interface__ = {"data": (place, False), "shape": shape, "typestr": kind, "version": 3}


def prepare(operator: Operator | DiskOperator, step: Step, most_rows: int = ROWS) -> None:
    """Writes what a step needs: edges that are only in memory, table, periods, blocks, scales of rows."""
    if isinstance(operator.csr, CSR):
        stored_csr.save(operator.csr, step.csr)
    for name in ("table", "source_period", "target_period"):
        paging.save(step.directory / f"{name}.npy", getattr(operator, name))
    paging.save(step.directory / "blocks.npy", np.array(list(_borders(step.csr, most_rows)), np.int64).reshape(-1, 2))
    _write_scales(step)


def _borders(csr: StoredCSR, most_rows: int) -> Iterator[tuple[int, int]]:
    """Where blocks of at most `most_rows` rows and `EDGES` edges (or one row) begin, and where the last ends."""
    yield 0, 0
    with csr.indptr.opened() as file:
        for first in range(0, csr.num_targets, most_rows):
            at = file.read(first, min(first + most_rows, csr.num_targets) + 1)
            row = 0
            while row < len(at) - 1:
                row = max(row + 1, int(np.searchsorted(at, at[row] + EDGES, side="right")) - 1)
                yield first + row, int(at[row])


def _write_scales(step: Step) -> None:
    """What the sum of each row is multiplied by, as `Operator.row_scale` has it."""
    out = paging.create(step.directory / "row_scale.npy", np.float64, (step.csr.num_targets,))
    table, source_period = step._table(), step._array("source_period").whole()
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(out.opened(write=True))
        edges = Edges.opened(step, stack)
        room = edges.room()
        total = np.empty(edges.most_rows)
        for number in range(edges.num_blocks):
            (first, last), csr, target_period = edges.block(number, room)
            columns = table.shape[1] if table.size else 1
            kernels.row_sums(
                (first, last), csr, table.reshape(-1), (source_period, target_period, columns), seen_from(total, first)
            )
            weight = total[: last - first] + (1.0 if step.self_loop else 0.0)
            file.write(first, row_scale(weight, step.norm))


def row_scale(weight: np.ndarray, norm: str) -> np.ndarray:
    """What the weighted sum of a row is multiplied by, given the weight that comes in."""
    if norm == "sum":
        return np.ones(len(weight))
    with np.errstate(divide="ignore"):
        inverse = 1 / (weight if norm == "mean" else np.sqrt(weight))
    return np.where(weight > 0, inverse, 0.0)
