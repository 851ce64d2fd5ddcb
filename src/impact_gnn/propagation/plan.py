"""What a run over files will do and what it needs: slices of columns, files, memory and disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from impact_gnn._files import readable_size
from impact_gnn.checks import InputError
from impact_gnn.propagation import paging, steps
from impact_gnn.propagation.disk_operator import DiskOperator
from impact_gnn.propagation.operator import Operator
from impact_gnn.propagation.steps import Step
from impact_gnn.propagation.stored_csr import StoredCSR

ALLOWANCE = 64_000_000
"""Bytes beside the slice (buffers, periods) that count to the process itself; beyond them they count to the cap."""

VECTOR = 16
"""Slices are a multiple of so many columns where memory allows: the kernel's registers, a cache line of float32."""


@dataclass(frozen=True)
class Needs:
    """What a run takes. `memory` is the peak beyond the interpreter itself, `disk` the most that lies on disk."""

    slices: int
    columns: int
    memory: int
    disk: int

    def __str__(self) -> str:
        return (
            f"{self.slices} slices of {self.columns} columns, {readable_size(self.memory)} of memory, "
            f"{readable_size(self.disk)} of disk"
        )


@dataclass(frozen=True)
class Plan:
    """A run: hop k is `steps[path[k − 1]]` on hop k − 1, slice by slice; hop 0 is X, cut into slices.

    `columns` are the borders of the slices, `rows[k]` the number of nodes at hop k.
    """

    directory: Path
    steps: tuple[Step, ...]
    path: tuple[int, ...]
    columns: tuple[int, ...]
    rows: tuple[int, ...]
    dtype: np.dtype

    @property
    def num_slices(self) -> int:
        """Number of slices."""
        return len(self.columns) - 1

    @property
    def num_hops(self) -> int:
        """Number of hops."""
        return len(self.path)

    def slice_file(self, hop: int, number: int) -> Path:
        """Where a slice of a hop lies."""
        return self.directory / "slices" / str(hop) / f"{number:05d}.npy"

    def slice_shape(self, hop: int, number: int) -> tuple[int, int]:
        """The shape of a slice of a hop."""
        return self.rows[hop], self.columns[number + 1] - self.columns[number]

    def hop_file(self, hop: int) -> Path:
        """Where a hop's result lies."""
        return self.directory / f"hop-{hop}.npy"

    def hop_shape(self, hop: int) -> tuple[int, int]:
        """The shape of a hop."""
        return self.rows[hop], self.columns[-1]

    def work(self, hop: int, number: int) -> float:
        """About how many bytes are moved for a slice of a hop: the unit of progress."""
        edges = self.steps[self.path[hop - 1]].csr.num_edges
        return edges * (8 + self.slice_shape(hop, number)[1] * self.dtype.itemsize)


def num_nodes(operators: Sequence[Operator | DiskOperator], num_rows: int) -> tuple[int, ...]:
    """Nodes at every hop, the input first; refuses operations that do not fit together."""
    rows = [num_rows]
    for position, each in enumerate(operators):
        if each.csr.num_sources != rows[-1]:
            raise InputError(
                f"step {position + 1} takes {each.csr.num_sources} nodes, but {rows[-1]} come out of the step before; "
                f"order the relations so that each begins where the last one ends."
            )
        rows.append(each.csr.num_targets)
    return tuple(rows)


def beside(operators: Sequence[Operator | DiskOperator], dtype: np.dtype, threads: int) -> int:
    """Bytes that a run needs beside its slice: periods, scales, and buffers of every thread."""
    most = 0
    for each in operators:
        csr = each.csr
        largest = csr.largest_row if isinstance(csr, StoredCSR) else int(np.diff(csr.indptr).max(initial=0))
        edge = csr.indices.dtype.itemsize + (0 if csr.weight is None else csr.weight.dtype.itemsize)
        node = each.source_period.itemsize + (12 if each.norm == "sym" else 0)
        buffers = max(largest, steps.EDGES) * edge + 2 * paging.BLOCK
        most = max(most, csr.num_sources * node + threads * buffers)
    return most


def slice_borders(
    num_columns: int, largest: int, dtype: np.dtype, memory: int, extra: int, least: int = 1
) -> tuple[int, ...]:
    """Borders of the widest slices of which one, for `largest` nodes, fits into `memory` with `extra` beside it.

    Args:
        num_columns: Columns in all.
        largest: Most nodes of any hop.
        dtype: In which slices are kept.
        memory: The cap in bytes.
        extra: Bytes needed beside the slice, see `beside`.
        least: Make at least so many slices if there are enough columns.

    Example:
        >>> slice_borders(100, 1000, np.dtype(np.float32), 200_000, 0)
        (0, 48, 96, 100)
    """
    column = max(1, largest * dtype.itemsize)
    left = memory - max(0, extra - ALLOWANCE)
    width = left // column
    if width < 1:
        raise InputError(
            f"memory of {readable_size(memory)} is too small: {largest} nodes need at least "
            f"{readable_size(column + max(0, extra - ALLOWANCE))}; give more."
        )
    width = min(width, max(1, -(-num_columns // least)))
    for unit in (VECTOR, 4):
        if width >= unit:
            width = width // unit * unit
            break
    return (*range(0, num_columns, width), num_columns)


def block_rows(columns: tuple[int, ...], dtype: np.dtype) -> int:
    """Rows in a block of a step, so that the block of the result is a small buffer."""
    width = max(1, max(np.diff(columns), default=1))
    return int(max(64, min(steps.ROWS, paging.BLOCK // (width * dtype.itemsize))))


def disk_need(columns: int, rows: Sequence[int], dtype: np.dtype) -> int:
    """Most bytes of slices and results on disk at one time."""
    sizes = [size * columns * dtype.itemsize for size in rows]
    return max(sum(sizes), sum(sizes[1:]) + max(sizes[1:], default=0))
