"""The interface of engines: the same operations and the same numbers wherever they are computed.

An engine builds the operator of a relation (`operator`), applies operators one after the other
(`hops`), stores a graph as of a time or with its edges in both directions (`graph`), and has
child engines with directories of their own (`child`). The results are `Hop`s. No caller asks an
engine what kind it is.
"""

from __future__ import annotations

import functools
import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy import ndarray

from impact_gnn import checks
from impact_gnn import weighting as weights
from impact_gnn.checks import InputError
from impact_gnn.engines.hop import (
    ComputedColumns,
    ComputedHop,
    Features,
    Hop,
    SlicedHop,
    as_hop,
)
from impact_gnn.engines.operator import Operator, check_float
from impact_gnn.engines.processes import can_fork, run_forked, run_spawned
from impact_gnn.graph import TemporalGraph, Triple
from impact_gnn.graph.csr import CSR
from impact_gnn.weighting import Weighting

FEW_ROWS = 0.5
"""Share of the nodes below which the last hop is computed for the requested rows only."""


def checked_features(x: Any) -> Any:
    """Return `x` if it is a matrix of floats that an engine can propagate."""
    if isinstance(x, ComputedHop):
        return np.asarray(x)
    if isinstance(x, SlicedHop | ComputedColumns):
        return x
    if not isinstance(x, ndarray):
        raise InputError(f"x is a {type(x).__name__}; pass an array [N, f].")
    if x.ndim != 2:
        raise InputError(f"x has shape {x.shape}; pass a matrix [N, f] with one row per node.")
    check_float(x)
    return x


class Engine(ABC):
    """Computes and stores hops. Final implementations: `Memory`, `Disk`, `Dask`."""

    threads: int | None

    def __post_init__(self) -> None:
        is_count = isinstance(self.threads, int) and self.threads > 0
        if self.threads is not None and not is_count:
            raise InputError(
                f"threads={self.threads!r} must be a whole number of at least 1, "
                f"or None for all cores."
            )

    # Each engine implements:

    @abstractmethod
    def csr(self, graph: TemporalGraph, relation: Triple) -> CSR:
        """Group the edges of a relation by target."""

    @abstractmethod
    def _hops(
        self, operators: Sequence[Operator], x: Features, rows: ndarray | None, dtype: Any
    ) -> list[Hop]:
        """Compute `hops` of checked features, for at least one operator."""

    @abstractmethod
    def graph(
        self, graph: TemporalGraph, *, upto: int | None = None, undirected: bool = False
    ) -> TemporalGraph:
        """Return the graph as of the end of time `upto`, and/or with edges in both directions."""

    @abstractmethod
    def empty(self, shape: tuple[int, int], dtype: Any) -> ndarray:
        """Create an array of zeros in this engine's storage."""

    @abstractmethod
    def stored(self, array: ndarray) -> Hop:
        """Return an array from `empty`, after it was filled, as a hop."""

    @abstractmethod
    def child(self, name: str) -> Engine:
        """Return an engine of the same kind with its own storage."""

    @abstractmethod
    def clear(self) -> None:
        """Remove what this engine stored; its hops must not be used after that."""

    @abstractmethod
    def fits(self, size: int) -> bool:
        """Tell whether `size` bytes may stay in memory during training."""

    @abstractmethod
    def max_jobs(self, size: int) -> int:
        """Return how many fits may run at once whose graph and hops take `size` bytes each."""

    # Engines share:

    def run_tasks(
        self,
        function: Callable[[Any, Any], Any],
        shared: Any,
        tasks: Sequence[Any],
        *,
        jobs: int,
        prepare: Callable[[Any, Any], None] = lambda shared, task: None,
        starting: Callable[[Any], bool] = lambda task: True,
    ) -> Iterator[Any]:
        """Yield `function(shared, task)` for every task, in order, computing `jobs` at a time.

        Several jobs run in processes, forked where that is possible.

        Args:
            function: Called in any process; a single job runs in this one.
            shared: The argument that all tasks have in common.
            tasks: The other argument of each.
            jobs: Tasks at a time.
            prepare: Called in this process before a task is forked, to compute what it shares
                with later ones; tasks that were forked before go on meanwhile.
            starting: Called before a task starts; False ends the work after those under way.
        """
        work = functools.partial(function, shared)
        if jobs == 1:
            yield from map(work, itertools.takewhile(starting, tasks))
        elif can_fork():
            ready = functools.partial(prepare, shared)
            yield from run_forked(work, tasks, jobs=jobs, prepare=ready, starting=starting)
        else:
            yield from run_spawned(work, tasks, jobs=jobs, starting=starting)

    def hops(
        self,
        operators: Sequence[Operator],
        x: Features,
        *,
        rows: ndarray | None = None,
        dtype: Any = None,
    ) -> list[Hop]:
        """Compute hops: `operators[k]` is applied to hop k−1, the first operator to `x`.

        Args:
            operators: From `operator`; the targets of each are the sources of the next.
            x: [N, f].
            rows: The hops have these rows only, in this order, by default all. Several operators
                must then lead from nodes of one type to themselves.
            dtype: The type of the stored hops; by default the engine chooses.
        """
        x = checked_start(operators, x)
        return self._hops(operators, x, rows, dtype) if operators else []

    def operator(
        self,
        graph: TemporalGraph,
        relation: Triple | None = None,
        *,
        weighting: Weighting = "plain",
        norm: str = "mean",
        self_loop: bool = False,
        last: int | None = None,
    ) -> Operator:
        """Build the operator of one relation: M = normalise(Ω[t_v, t_u]·a_vu)·X.

        Args:
            graph: The graph.
            relation: Optional for a graph with one relation.
            weighting: One of `weighting.NAMES`, a table [T, T] over `graph.times`, or a function
                that computes one. A table applies where both ends of the relation have a time,
                "gsmp" where sources have one; elsewhere edges count the same.
            norm: "mean" (weighted mean), "sym" (D^-½ on both sides) or "sum".
            self_loop: Adds a loop of weight 1 to every node (only where source and target are of
                one type).
            last: Restricts the table to the graph as of the end of this period: newer sources have
                weight zero.
        """
        relation = graph.relation_name(relation)
        source, _, target = relation
        csr = self.csr(graph, relation)
        weighting = weights.at_hop(weighting, first=True)
        if isinstance(weighting, str):
            checks.choice("weighting", weighting, weights.NAMES)
        # A table needs times at both ends; balancing only those of the sources.
        has_source_time = graph.nodes[source].time is not None
        has_target_time = graph.nodes[target].time is not None
        balanced = has_source_time and isinstance(weighting, str) and weighting in weights.BY_ROW
        # By default one period for all nodes, whose weight is 1.
        table = np.ones((1, 1))
        source_period = np.zeros(csr.num_sources, np.uint8)
        target_period = np.zeros(csr.num_targets, np.uint8)
        if has_source_time and has_target_time:
            table = time_table(graph, weighting, source, last)
            source_period = graph.period_of(source)
            target_period = graph.period_of(target)
        elif balanced:
            table = np.ones((1, len(graph.times)))
            source_period = graph.period_of(source)
        return Operator(
            csr=csr,
            table=table,
            source_period=source_period,
            target_period=target_period,
            norm=norm,
            self_loop=self_loop,
            balanced=balanced,
        )

    def operators(
        self,
        hops: int,
        graph: TemporalGraph,
        relation: Triple | None = None,
        *,
        weighting: Weighting = "plain",
        **options: Any,
    ) -> list[Operator]:
        """Build the operator of each hop; the weighting may differ at the first hop."""
        first = self.operator(graph, relation, weighting=weighting, **options)
        # The same object for every hop: engines store and apply it once.
        if hops < 2 or not isinstance(weighting, weights.FirstHop):
            return [first] * hops
        later = weights.at_hop(weighting, first=False)
        second = self.operator(graph, relation, weighting=later, **options)
        return [first] + [second] * (hops - 1)

    def loaded(self, hops: Sequence[Hop]) -> list[Hop]:
        """Load hops into memory as float32, the type for training, if all of them fit."""
        size = sum(4 * math.prod(hop.shape) for hop in hops)
        # All or none, so that training has one way of reading rows.
        if not self.fits(size):
            return list(hops)
        return [as_hop(np.asarray(hop, np.float32)) for hop in hops]


def checked_start(operators: Sequence[Operator], x: Any) -> Any:
    """Return `checked_features(x)`; refuse operators whose sources are not the targets before."""
    x = checked_features(x)
    num_rows = x.shape[0]
    for step, operator in enumerate(operators, start=1):
        csr = operator.csr
        if csr.num_sources != num_rows:
            raise InputError(
                f"step {step} of the path expects {csr.num_sources} nodes, "
                f"but gets {num_rows} from the step before; "
                "order the relations so that each begins where the last one ends."
            )
        num_rows = csr.num_targets
    return x


def time_table(
    graph: TemporalGraph,
    weighting: Weighting,
    source: str | None = None,
    last: int | None = None,
) -> ndarray:
    """Compute the table of a weighting over `graph.times`; GenPMP counts nodes of type `source`.

    With `last`, the table of the graph as of the end of this period: newer sources weigh zero.
    """
    size = len(graph.times)
    weighting = weights.at_hop(weighting, first=True)
    if isinstance(weighting, str):
        name = "plain" if weighting in weights.BY_ROW else weighting
        weighting = weights.METHODS[checks.choice("weighting", name, weights.METHODS)]
    if isinstance(weighting, ndarray):
        table = np.asarray(weighting, dtype=np.float64)
    else:
        kind = graph.target if source is None else source
        counts = graph.timeline.counts[kind]
        # The table of the past has no rows or columns for later periods.
        now = size if last is None else last + 1
        table = np.zeros((size, size))
        table[:now, :now] = weighting(graph.times[:now], counts[:now])
    is_valid = np.isfinite(table) & (table >= 0)
    if table.shape != (size, size) or not is_valid.all():
        raise InputError(
            f"weighting is a table of shape {table.shape} for {size} times; "
            f"use finite weights of zero or more [T, T]."
        )
    return table
