"""Label hops of graphs that do not fit into memory: labels, hops and shares in files, within the engine's memory.

What a node hears of itself at two hops is Σ_u M_vu·M_uv. For a range of targets v whose edges fit into memory, all
edges are read once in passing, and those that lead back from such a v are looked up in its row.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numba import njit

from impact_gnn import _files
from impact_gnn.propagation import paging
from impact_gnn.propagation import threads as pool
from impact_gnn.propagation.disk_operator import DiskOperator
from impact_gnn.propagation.operator import Operator
from impact_gnn.propagation.own_label import loops, one_hot, sorted_rows, without_self
from impact_gnn.propagation.paging import Stored
from impact_gnn.propagation.room import nothing_lost, refuse_unless_room
from impact_gnn.propagation.steps import Edges, Step, prepare
from impact_gnn.propagation.stored_csr import StoredCSR, described

EDGE_BYTES = 32
"""Memory that an edge of the range under way takes at most: source and weight, and both again while they are sorted."""


@runtime_checkable
class FileEngine(Protocol):
    """An engine that works in a directory: `Disk`, or `Dask` with a shared one."""

    @property
    def directory(self) -> str | Path | None:
        """Where its files are."""

    @property
    def memory(self) -> str | int:
        """What it may take."""

    def operator(
        self, graph: Any, relation: Any = None, *, weighting: Any = ..., norm: str = ..., self_loop: bool = ...
    ) -> Operator | DiskOperator:
        """The operation of a relation, edges in files."""

    def within(self, name: str) -> FileEngine:
        """The same engine in another directory."""

    def hops(self, operators: Sequence[Any], x: Any) -> list[np.ndarray]:
        """Hops in files."""


def stored_label_hops(
    engine: FileEngine,
    made: Operator | DiskOperator,
    label: np.ndarray,
    num_labels: int,
    *,
    hops: int,
    renormalize: bool,
) -> list[np.ndarray]:
    """What `label_hops` gives, as memory maps of files in `<directory>-labels`; a rerun continues."""
    inner = engine.within("labels/hops")
    assert inner.directory is not None
    place = Path(inner.directory).absolute().parent
    place.mkdir(parents=True, exist_ok=True)
    goals = [place / f"label-hop-{k}{'' if renormalize else '-unscaled'}.npy" for k in range(1, hops + 1)]
    with nothing_lost(place):
        refuse_unless_room(place, 4 * len(label) * num_labels)
        known = _written(place / "known.npy", label, num_labels)
        found = inner.hops([made] * hops, _files.open_array(known.path))  # refuses other labels or operations
        csr = made.csr if isinstance(made.csr, StoredCSR) else described(made.csr, place / "own" / "edges")
        step = Step(csr, place / "own", made.norm, made.self_loop)
        prepare(made, step)
        for k, (hop, goal) in enumerate(zip(found, goals, strict=True), start=1):
            own = OwnShare(step, k, _files.byte_size(engine.memory))
            _leave_out(hop, label, num_labels, own, renormalize, goal)
    return [_files.open_array(goal) for goal in goals]


def _written(path: Path, label: np.ndarray, num_labels: int) -> Stored:
    """Known labels as a file of zeros with single ones."""
    with _files.atomic_file(path) as temporary:
        out = paging.create(temporary, np.float32, (len(label), num_labels))
        step = paging.block_rows(out)
        with out.opened(write=True) as file:
            for first in range(0, len(label), step):
                file.write(first, one_hot(np.asarray(label[first : first + step]), num_labels))
    return paging.find(path)


def _leave_out(
    hop: np.ndarray, label: np.ndarray, num_labels: int, own: OwnShare, renormalize: bool, goal: Path
) -> None:
    with _files.atomic_file(goal) as temporary:
        out = paging.create(temporary, np.float32, hop.shape)
        step = paging.block_rows(out)
        with out.opened(write=True) as file, paging.reading(hop) as heard:
            for low, high, share in own.ranges():
                for first in range(low, high, step):
                    last = min(first + step, high)
                    known = one_hot(np.asarray(label[first:last]), num_labels)
                    mine = share[first - low : last - low]
                    file.write(first, without_self(heard.read(first, last), known, mine, renormalize))


class OwnShare:
    """diag(M) or diag(M²) of a step in files, range of rows after range of rows.

    Args:
        step: The operation.
        hops: 1 or 2.
        memory: What a range may take.
    """

    def __init__(self, step: Step, hops: int, memory: int) -> None:
        self.step, self.hops = step, hops
        self.most = max(memory // EDGE_BYTES, 1)
        self.table = step._array("table").whole()
        self.source_period = step._array("source_period").whole()
        self.target_period = step._array("target_period").whole()

    def ranges(self) -> Iterator[tuple[int, int, np.ndarray]]:
        """First row, last row and the shares of the rows between, in float64."""
        with contextlib.ExitStack() as stack:
            edges = Edges.opened(self.step, stack)
            scales = stack.enter_context(self.step._array("row_scale").opened())
            for low, high in self._borders(edges):
                rows = self._rows(edges, low, high)
                scale = scales.read(low, high)
                scale = scale**2 if self.step.norm == "sym" else scale
                own = loops(low, *rows, self.table, self.source_period, self.target_period) * scale
                added = scale if self.step.self_loop else 0.0
                if self.hops == 1:
                    yield low, high, own + added
                else:
                    ordered = rows[0], *sorted_rows(*rows)
                    trips = self._trips(edges, scales, low, high, ordered) * scale
                    yield low, high, trips + 2 * own * added + added * added

    def _borders(self, edges: Edges) -> list[tuple[int, int]]:
        """Runs of whole blocks with at most `most` edges, or of one block."""
        out, begin = [], 0
        for block in range(1, edges.num_blocks + 1):
            ahead = edges.border[min(block + 1, edges.num_blocks), 1] - edges.border[begin, 1]
            if block == edges.num_blocks or ahead > self.most:
                out.append((int(edges.border[begin, 0]), int(edges.border[block, 0])))
                begin = block
        return out

    def _rows(self, edges: Edges, low: int, high: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The edges into rows low .. high−1."""
        indptr = edges.indptr.read(low, high + 1)
        begin, end = int(indptr[0]), int(indptr[-1])
        weight = np.ones(0, np.float32) if edges.weight is None else edges.weight.read(begin, end)
        return indptr - begin, edges.indices.read(begin, end), weight

    def _trips(self, edges: Edges, scales: Any, low: int, high: int, rows: tuple[np.ndarray, ...]) -> np.ndarray:
        """Σ_u w_vu·scale_u·w_uv for v in the range: the edges of all u in passing."""
        out = np.zeros(high - low)
        periods = self.table, self.source_period, self.target_period
        for number in range(edges.num_blocks):
            (first, begin), (last, end) = (tuple(map(int, at)) for at in edges.border[number : number + 2])
            scale = scales.read(first, last)
            scale = scale**2 if self.step.norm == "sym" else scale
            indptr = edges.indptr.read(first, last + 1) - begin
            weight = np.ones(0, np.float32) if edges.weight is None else edges.weight.read(begin, end)
            block = indptr, edges.indices.read(begin, end), weight
            rest = (low, first), rows, block, *periods, scale, out
            parts = np.linspace(0, len(out), pool.available() + 1).astype(np.int64)
            pool.run(_returns, [(a, b, *rest) for a, b in itertools.pairwise(parts)], None)
        return out


@njit(nogil=True, cache=True)
def _returns(  # type: ignore[no-untyped-def]
    from_row, to_row, starts, rows, block, table, source_period, target_period, scale, out
):
    """Adds the ways v ← u ← v for the edges v → u of a block of rows u; v is in the range of sorted `rows`.

    Of the range, only rows from_row .. to_row−1 are taken, so that threads share a block: each looks at all edges and
    takes those of its own v, and sums are made in one order.
    """
    low, first = starts
    indptr, indices, weight = rows
    back_indptr, back_indices, back_weight = block
    for place in range(len(back_indptr) - 1):
        u = first + place
        for e in range(back_indptr[place], back_indptr[place + 1]):
            v = back_indices[e]
            row = v - low
            if row < from_row or row >= to_row:
                continue
            begin, end = indptr[row], indptr[row + 1]
            at = begin + np.searchsorted(indices[begin:end], u)
            there = 0.0
            while at < end and indices[at] == u:
                there += weight[at] if len(weight) else 1.0
                at += 1
            if there > 0:
                back = table[target_period[u], source_period[v]] * (back_weight[e] if len(back_weight) else 1.0)
                out[row] += there * table[target_period[v], source_period[u]] * back * scale[place]
