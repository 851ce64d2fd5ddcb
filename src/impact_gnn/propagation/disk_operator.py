"""`DiskOperator`: the one operation, described without loading its edges."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from impact_gnn import checks
from impact_gnn import weighting as weights
from impact_gnn._array import smallest_unsigned
from impact_gnn.checks import InputError
from impact_gnn.graph import TemporalGraph, Triple, saved
from impact_gnn.graph.temporal import Nodes, Relation
from impact_gnn.propagation import paging
from impact_gnn.propagation.operator import Operator, settle
from impact_gnn.propagation.stored_csr import StoredCSR


@dataclass(frozen=True, eq=False)
class DiskOperator:
    """What `Operator` is, with its edges in files; engines that work on files apply it.

    Args:
        csr: The edges by target, as `Disk.edges` makes them.
        table: Ω [target periods, source periods], zero or more.
        source_period: For every source node its column of the table.
        target_period: For every target node its row of the table.
        norm: "mean", "sym" or "sum".
        self_loop: Adds a loop of weight 1 to every node; sources and targets must be the same nodes.
    """

    csr: StoredCSR
    table: np.ndarray
    source_period: np.ndarray
    target_period: np.ndarray
    norm: str = "mean"
    self_loop: bool = False

    def __post_init__(self) -> None:
        settle(self)

    def load(self) -> Operator:
        """The same operation with its edges in memory."""
        rest = (self.table, self.source_period, self.target_period)
        return Operator(self.csr.load(), *rest, norm=self.norm, self_loop=self.self_loop)


def open_saved(directory: str | Path) -> TemporalGraph:
    """A saved graph whose arrays are mapped and not looked at: they were checked when it was saved."""
    parts = saved.read(directory)
    nodes = {kind: Nodes(**arrays) for kind, arrays in parts["nodes"].items()}
    relations = {triple: Relation(*arrays) for triple, arrays in parts["edges"].items()}
    rest = (parts["target"], parts["num_labels"], parts["label_names"], parts["cutoff"])
    return TemporalGraph._made(nodes, relations, *rest)


def time_part(
    graph: TemporalGraph, relation: Triple, weighting: str | np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Table, source periods and target periods of a relation; times are read in blocks.

    Where an end has no time, edges count the same.
    """
    source, _, target = relation
    ends = graph.nodes[source], graph.nodes[target]
    if ends[0].time is None or ends[1].time is None:
        if isinstance(weighting, str):
            checks.choice("weighting", weighting, weights.METHODS)
        return np.ones((1, 1)), np.zeros(ends[0].num_nodes, np.uint8), np.zeros(ends[1].num_nodes, np.uint8)
    timed = [part.time for part in graph.nodes.values() if part.time is not None]
    times = np.unique(np.concatenate([np.unique(block) for time in timed for block in _blocks(time)]))
    of_source = _periods(ends[0].time, times)
    of_target = of_source if source == target else _periods(ends[1].time, times)
    if isinstance(weighting, str):
        return weights.table(weighting, times, np.bincount(of_source, minlength=len(times))), of_source, of_target
    table = np.asarray(weighting, dtype=np.float64)
    if table.shape != (len(times), len(times)) or not np.isfinite(table).all() or table.min() < 0:
        raise InputError(
            f"weighting is a table of shape {table.shape} for {len(times)} times; give finite weights of zero or more "
            f"[T, T]."
        )
    return table, of_source, of_target


def _blocks(values: np.ndarray) -> Iterator[np.ndarray]:
    step = paging.block_rows(values)
    with paging.reading(values) as file:
        for first in range(0, len(values), step):
            yield file.read(first, min(first + step, len(values)))


def _periods(time: np.ndarray, times: np.ndarray) -> np.ndarray:
    out, first = np.empty(len(time), smallest_unsigned(len(times))), 0
    for block in _blocks(time):
        out[first : first + len(block)] = np.searchsorted(times, block)
        first += len(block)
    return out
