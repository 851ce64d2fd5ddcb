"""Column slices: the tasks by which file engines compute hops.

A slice of columns goes through all hops without reading the others. It must fit into memory; edges
and results stream through in blocks of rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from impact_gnn import _files, _native
from impact_gnn.checks import InputError
from impact_gnn.engines.edges import StoredCSR
from impact_gnn.engines.hop import SlicedHop, columns_of
from impact_gnn.engines.operator import Operator

# The width of slices is a multiple of the first of these that memory allows: the kernel sums that
# many columns at a time, and 16 of float32 are a cache line.
COLUMN_UNITS = (16, 4, 1)
OPERATOR_OPTIONS = ("norm", "self_loop", "balanced")  # fields of an operator besides its arrays
BLOCK_EDGES = 1 << 23  # edges that are read before their pages are released


@dataclass(frozen=True)
class StoredOperator:
    """An operator whose arrays are in `folder`, and whose edges are a `StoredCSR` in `edges`.

    Workers receive both paths, because a path in a file may have been changed by somebody else.
    """

    folder: Path
    edges: Path
    options: dict[str, Any]  # values of `OPERATOR_OPTIONS` by name

    def open(self) -> Operator:
        """Return the operator; its arrays are mapped from the files."""
        csr = StoredCSR.open(self.edges)
        operator = Operator(
            csr=csr,
            table=np.array(self._array("table")),
            source_period=self._array("source"),
            target_period=self._array("target"),
            **self.options,
        )
        # Stored values fill the operator's cached properties, or each task would compute them.
        if operator.balanced:
            vars(operator)["edges"] = replace(csr, weight=self._array("weight"))
        if operator.norm == "sym":
            vars(operator)["row_scale"] = self._array("scale")
        return operator

    def _array(self, name: str) -> ndarray:
        return _files.open_array(self.folder / f"{name}.npy", sealed=True)


@dataclass(frozen=True, eq=False)
class Job:
    """Hops to compute by slices: hop k is `operators[k - 1]` applied to hop k − 1; hop 0 is `x`.

    Slice k has the columns from `column_borders[k]` to before `column_borders[k + 1]`. Hop k has
    `num_nodes[k]` nodes; of the last hop only `rows` are computed, unless that is None. Jobs are
    sent to workers.
    """

    directory: Path
    key: str
    operators: tuple[StoredOperator, ...]
    x: Any
    num_nodes: tuple[int, ...]
    rows: ndarray | None
    column_borders: tuple[int, ...]
    dtype: np.dtype
    threads: int | None

    @property
    def num_slices(self) -> int:
        return len(self.column_borders) - 1

    def file(self, hop: int, slice_index: int) -> Path:
        return self.directory / f"{hop}-{slice_index:05d}.npy"

    def rows_of(self, hop: int) -> ndarray | None:
        """Return the nodes for which a hop is computed; None for all, as in every hop but the last.

        The next hop reads rows of any node.
        """
        return self.rows if hop == len(self.operators) else None

    def shape(self, hop: int, slice_index: int) -> tuple[int, int]:
        rows = self.rows_of(hop)
        num_rows = self.num_nodes[hop] if rows is None else len(rows)
        low, high = self.column_borders[slice_index : slice_index + 2]
        return num_rows, high - low

    def missing(self) -> list[tuple[int, int]]:
        """List hop and slice of the files that do not exist, slice by slice."""
        return [
            (hop, slice_index)
            for slice_index in range(self.num_slices)
            for hop in range(1, len(self.num_nodes))
            if not self.file(hop, slice_index).exists()
        ]

    def hop(self, hop: int) -> SlicedHop:
        """Return a hop from the files of its slices."""
        slices = tuple(
            _files.open_array(self.file(hop, slice_index), sealed=True)
            for slice_index in range(self.num_slices)
        )
        return SlicedHop(slices, f"{self.key}-{hop}")


def run_slice(job: Job, slice_index: int) -> None:
    """Take one slice of columns through all hops, except for hops that exist already."""
    for hop, stored in enumerate(job.operators, start=1):
        # A file has its name only when it is complete, so an existing one is not computed again.
        goal = job.file(hop, slice_index)
        if goal.exists():
            continue
        if hop == 1:
            low, high = job.column_borders[slice_index : slice_index + 2]
            values = columns_of(job.x, low, high, job.dtype)
        else:
            # The file of the hop before has the columns of this slice only.
            x = _files.open_array(job.file(hop - 1, slice_index), sealed=True)
            values = columns_of(x, 0, x.shape[1], job.dtype)
        operator = stored.open()
        with _files.atomic_array(goal, job.dtype, job.shape(hop, slice_index)) as result:
            _apply(operator, values, job.rows_of(hop), result, job.threads)
        del values, operator  # before the next ones are read


def _apply(
    operator: Operator,
    x: ndarray,
    rows: ndarray | None,
    out: ndarray,
    threads: int | None,
) -> None:
    """Write M·X, or some rows of it, into a file by blocks, whose edges are read and released."""
    csr = operator.edges
    # Edges before each row of the result, by which rows are cut into blocks.
    edges_before = csr.indptr
    if rows is not None:
        num_edges = csr.indptr[rows + 1] - csr.indptr[rows]
        edges_before = np.append(0, np.cumsum(num_edges))
    for first, last in pairwise(_native.spans(edges_before, BLOCK_EDGES).tolist()):
        # Both are positions in `out`, and so in `rows`.
        if rows is None:
            operator.apply(x, out, threads, (first, last))
        else:
            out[first:last] = operator.apply_rows(x, rows[first:last], threads)
        _native.release(csr.indptr, csr.indices, csr.weight, out)


def slice_borders(
    num_columns: int, num_rows: int, dtype: np.dtype, memory: int, min_slices: int = 1
) -> tuple[int, ...]:
    """Return the borders of the widest slices of `num_rows` rows that fit into `memory`.

    There are about `min_slices` of them or more, so that all workers are busy.

    Examples:
        >>> slice_borders(100, 1000, np.dtype(np.float32), 200_000)
        (0, 48, 96, 100)
    """
    # Bytes of one column.
    column_size = max(1, num_rows * dtype.itemsize)
    width = memory // column_size
    if width < 1:
        raise InputError(
            f"the memory limit is too small: {num_rows:,} nodes need at least "
            f"{_files.readable_size(column_size)} for one column, plus the edges; raise it."
        )
    # Rounded up, so there may be fewer slices than requested.
    width = min(width, max(1, -(-num_columns // min_slices)))
    unit = next(unit for unit in COLUMN_UNITS if unit <= width)
    width -= width % unit
    # Without columns there is one slice, which is empty.
    return (*range(0, max(num_columns, 1), width), num_columns)
