"""What an engine is: few verbs, the same numbers wherever they are computed.

An engine makes the operation of a relation (`operator`), applies operations one after the other
(`hops`), keeps a graph as it was at a time or with its edges in both directions (`graph`), and
gives away places of their own (`child`). What comes out is a `Hop`: a matrix that is asked for
rows, whether it lies in memory or in files. Nothing above this floor asks an engine what kind it
is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np

from impact_gnn import _files, _native, checks
from impact_gnn import weighting as weights
from impact_gnn.checks import InputError
from impact_gnn.engines.operator import FLOATS, Operator
from impact_gnn.graph import TemporalGraph, Triple
from impact_gnn.graph.csr import CSR
from impact_gnn.weighting import Weighting

FEW = 0.5  # share of the nodes below which the last hop is computed for the rows asked for instead of for all

BLOCK = 1 << 16
"""Rows that are looked at together where a whole hop is gone through; the same on all engines, so sums agree."""


@runtime_checkable
class Hop(Protocol):
    """A matrix [N, f] that answers for rows: an array, slices of columns in files, or made from other hops."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype: ...

    def rows(self, index: np.ndarray) -> np.ndarray:
        """The rows at positions `index`, as an array of its own."""


class ArrayHop(np.ndarray):
    """A hop in memory: an ordinary array that can be asked for rows."""

    def rows(self, index: np.ndarray) -> np.ndarray:
        return np.asarray(self)[index]

    def __repr__(self) -> str:
        return repr(np.asarray(self))


class _LazyHop:
    """What hops that are not arrays share: `np.asarray`, slicing, length."""

    shape: tuple[int, int]
    dtype: np.dtype

    def rows(self, index: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> np.ndarray:
        return self.rows(np.arange(len(self))[index])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        values = self.rows(np.arange(len(self)))
        return values if dtype is None else values.astype(dtype, copy=False)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(shape={self.shape}, dtype={self.dtype})"


@dataclass(frozen=True, eq=False, repr=False)
class SlicedHop(_LazyHop):
    """A hop in files, one array per slice of columns; `key` says what was computed."""

    slices: tuple[np.ndarray, ...]
    key: str

    @property
    def shape(self) -> tuple[int, int]:  # type: ignore[override]
        return len(self.slices[0]), sum(part.shape[1] for part in self.slices)

    @property
    def dtype(self) -> np.dtype:  # type: ignore[override]
        return self.slices[0].dtype

    def rows(self, index: np.ndarray) -> np.ndarray:
        out = np.empty((len(index), self.shape[1]), self.dtype)
        begin = 0
        for part in self.slices:
            out[:, begin : begin + part.shape[1]] = part[index]
            _native.release(part)  # a page per row may have come in
            begin += part.shape[1]
        return out

    @classmethod
    def open(cls, files: Sequence[str], key: str) -> SlicedHop:
        return cls(tuple(_files.open_array(Path(file)) for file in files), key)

    def __reduce__(self) -> tuple[Any, ...]:
        return SlicedHop.open, ([str(part.filename) for part in self.slices], self.key)  # type: ignore[attr-defined]

    def columns(self, low: int, high: int) -> np.ndarray:
        """Columns low .. high−1 in memory."""
        out = np.empty((self.shape[0], high - low), self.dtype)
        begin = 0
        for part in self.slices:
            a, b = max(low, begin), min(high, begin + part.shape[1])
            if a < b:
                copy_columns(part[:, a - begin : b - begin], out[:, a - low : b - low])
            begin += part.shape[1]
        return out


@dataclass(frozen=True, eq=False, repr=False)
class MadeHop(_LazyHop):
    """A hop whose rows are made when they are asked for: `make(index)` gives rows [n, width] of type `dtype`.

    What is made of another hop says by `redo(values, index)` what it would show if that one held
    these values.
    """

    shape: tuple[int, int]
    dtype: np.dtype
    make: Callable[[np.ndarray], np.ndarray]
    redo: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None

    def rows(self, index: np.ndarray) -> np.ndarray:
        return self.make(np.asarray(index))


def as_hop(values: Any) -> Any:
    """An array as something that can be asked for rows; hops are passed through."""
    return values.view(ArrayHop) if type(values) is np.ndarray else values


def mapped_hop(
    hop: Any, change: Callable[[np.ndarray, np.ndarray], np.ndarray], dtype: Any = None
) -> MadeHop:
    """A hop whose rows are `change(rows of hop, their positions)`."""
    kind, redo = (
        np.dtype(dtype or hop.dtype),
        lambda values, index: change(redone(hop, values, index), index),
    )
    return MadeHop(hop.shape, kind, lambda index: change(hop.rows(index), index), redo)


def selected_hop(hop: Any, rows: np.ndarray) -> MadeHop:
    """The rows of a hop at positions `rows`, as a hop of their own."""
    shape, redo = (len(rows), hop.shape[1]), lambda values, index: redone(hop, values, rows[index])
    return MadeHop(shape, hop.dtype, lambda index: hop.rows(rows[index]), redo)


def redone(hop: Any, values: np.ndarray, index: np.ndarray) -> np.ndarray:
    """What a hop would show at `index` if these had come out of the engine there; statistics stay as they are."""
    return hop.redo(values, index) if isinstance(hop, MadeHop) and hop.redo else values


def position_blocks(num_rows: int) -> Iterator[np.ndarray]:
    """Positions 0 .. num_rows−1, `BLOCK` at a time."""
    for begin in range(0, num_rows, BLOCK):
        yield np.arange(begin, min(begin + BLOCK, num_rows))


@dataclass(frozen=True, eq=False)
class MadeColumns:
    """Features [N, f] that are made column by column of what `given` holds, such as the one-hot matrix of labels."""

    shape: tuple[int, int]
    dtype: np.dtype
    given: tuple[Any, ...]
    columns: Callable[[int, int], np.ndarray]  # columns low .. high−1 in memory, rows contiguous

    @property
    def key(self) -> str:
        return _files.digest(*self.given)


Features: TypeAlias = "np.ndarray | SlicedHop | MadeColumns"


def columns_of(x: Any, low: int, high: int, dtype: Any) -> np.ndarray:
    """Columns low .. high−1 of features in memory, rows contiguous, in type `dtype`."""
    if not isinstance(x, np.ndarray):
        return x.columns(low, high).astype(dtype, copy=False)
    if (low, high) == (0, x.shape[1]) and x.dtype == dtype and _native.mapping(x) is None:
        return np.ascontiguousarray(x)
    out = _native.aligned_empty((len(x), high - low), dtype)
    copy_columns(x[:, low:high], out)
    return out


def copy_columns(values: np.ndarray, out: np.ndarray) -> None:
    """Copies a matrix, giving back the pages of a mapped one as it goes."""
    for rows in _native.blocks(values):
        out[rows] = values[rows]


def checked_features(x: Any) -> Any:
    """`x` if it is a matrix of floats that an engine can propagate."""
    if isinstance(x, np.ndarray):
        if x.ndim != 2:
            raise InputError(f"x has shape {x.shape}; give a matrix [N, f] with one row per node.")
        if x.dtype not in FLOATS:
            raise InputError(
                f"x is of type {x.dtype}; give float16, float32 or float64 (x.astype(np.float32))."
            )
        return x
    if isinstance(x, MadeHop):
        return np.asarray(x)
    if not isinstance(x, SlicedHop | MadeColumns):
        raise InputError(f"x is a {type(x).__name__}; give an array [N, f].")
    return x


class Engine(ABC):
    """Where hops are computed and kept. Final implementations: `Memory`, `Disk`, `Dask`."""

    threads: int | None

    def __post_init__(self) -> None:
        if self.threads is not None and (not isinstance(self.threads, int) or self.threads < 1):
            raise InputError(
                f"threads={self.threads!r} must be a whole number of at least 1, or None for all cores."
            )

    # -- what differs
    # --------------------------------------------------------------------------------------

    @abstractmethod
    def csr(self, graph: TemporalGraph, relation: Triple) -> CSR:
        """A relation's edges grouped by target."""

    @abstractmethod
    def hops(
        self,
        operators: Sequence[Operator],
        x: Features,
        *,
        rows: np.ndarray | None = None,
        dtype: Any = None,
    ) -> list[Any]:
        """Hop k is `operators[k]` applied to hop k−1, the first one to `x`: a list of `Hop`s.

        Args:
            operators: Made by `operator`, each taking as many nodes as come out of the one before.
            x: [N, f].
            rows: The last hop is computed for these rows alone, in this order; by default for all.
            dtype: In which hops are kept, whatever the engine's own choice.
        """

    @abstractmethod
    def graph(
        self, graph: TemporalGraph, *, upto: int | None = None, undirected: bool = False
    ) -> TemporalGraph:
        """The graph as it was at the end of time `upto`, and/or with every edge in both directions."""

    @abstractmethod
    def empty(self, shape: tuple[int, int], dtype: Any) -> np.ndarray:
        """A new array of zeros that lives where this engine keeps things."""

    @abstractmethod
    def stored(self, array: np.ndarray) -> Any:
        """An array made by `empty`, filled by now, as a hop."""

    @abstractmethod
    def child(self, name: str) -> Engine:
        """An engine of the same kind with a place of its own."""

    @abstractmethod
    def clear(self) -> None:
        """Forgets what is kept in this engine's own place; hops from there must not be used any more."""

    @abstractmethod
    def fits(self, size: int) -> bool:
        """Whether `size` bytes may be held in memory for as long as something is trained on them."""

    # -- what is the same
    # ----------------------------------------------------------------------------------

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
        """The operation of one relation: M = normalise(Ω[t_v, t_u]·a_vu)·X.

        Args:
            graph: The graph.
            relation: Which relation; may be left out where there is only one.
            weighting: One of `weighting.NAMES`, a table [T, T] over `graph.times`, or a function
                that computes one. A table applies where both ends of the relation have a time,
                "gsmp" where sources have one; elsewhere edges count the same.
            norm: "mean" (weighted mean), "sym" (D^-½ on both sides) or "sum".
            self_loop: Adds a loop of weight 1 to every node (only where source and target are of
                one type).
            last: Shows the graph as it was at the end of this period, where edges came with their
                nodes: newer sources weigh nothing.
        """
        relation = graph.relation_name(relation)
        source, _, target = relation
        csr = self.csr(graph, relation)
        weighting = weights.at_hop(weighting, first=True)
        if isinstance(weighting, str):
            checks.choice("weighting", weighting, weights.NAMES)
        timed = [graph.nodes[kind].time is not None for kind in (source, target)]
        balanced = timed[0] and isinstance(weighting, str) and weighting in weights.BY_ROW
        table, before, here = (
            np.ones((1, 1)),
            np.zeros(csr.num_sources, np.uint8),
            np.zeros(csr.num_targets, np.uint8),
        )
        if all(timed):
            table = time_table(graph, weighting, source, last)
            before, here = graph.period_of(source), graph.period_of(target)
        elif balanced:
            table, before = np.ones((1, len(graph.times))), graph.period_of(source)
        return Operator(csr, table, before, here, norm=norm, self_loop=self_loop, balanced=balanced)

    def operators(
        self,
        hops: int,
        graph: TemporalGraph,
        relation: Triple | None = None,
        *,
        weighting: Weighting = "plain",
        **options: Any,
    ) -> list[Operator]:
        """The operator of every hop; the first may have a weighting of its own."""
        first = self.operator(graph, relation, weighting=weighting, **options)
        if hops < 2 or not isinstance(weighting, weights.FirstHop):
            return [first] * hops
        later = weights.at_hop(weighting, first=False)
        return [first] + [self.operator(graph, relation, weighting=later, **options)] * (hops - 1)

    def loaded(self, hops: Sequence[Any]) -> list[Any]:
        """The same hops, in memory if all of them fit there together; as float32, which is what is trained on."""
        if not self.fits(sum(4 * hop.shape[0] * hop.shape[1] for hop in hops)):
            return list(hops)
        return [as_hop(np.asarray(np.asarray(hop), np.float32)) for hop in hops]


def checked_start(operators: Sequence[Operator], x: Any) -> Any:
    """`x` as `checked_features`; refuses operations of which one takes other nodes than come out of the one before."""
    x = checked_features(x)
    num_rows = x.shape[0]
    for step, each in enumerate(operators):
        if each.csr.num_sources != num_rows:
            raise InputError(
                f"step {step + 1} of the path takes {each.csr.num_sources} nodes, but {num_rows} come out of the step "
                f"before; order the relations so that each begins where the last one ends."
            )
        num_rows = each.csr.num_targets
    return x


def time_table(
    graph: TemporalGraph,
    weighting: Weighting,
    source: str | None = None,
    last: int | None = None,
) -> np.ndarray:
    """The table of a weighting over `graph.times`; GenPMP counts nodes of type `source`.

    With `last`, that of the graph as it was at the end of this period: newer sources weigh nothing.
    """
    size = len(graph.times)
    weighting = weights.at_hop(weighting, first=True)
    if isinstance(weighting, str):
        name = "plain" if weighting in weights.BY_ROW else weighting
        weighting = weights.METHODS[checks.choice("weighting", name, weights.METHODS)]
    if isinstance(weighting, np.ndarray):
        table = np.asarray(weighting, dtype=np.float64)
    else:
        kind = graph.target if source is None else source
        counts = np.bincount(graph.period_of(kind), minlength=size)
        now = size if last is None else last + 1
        table = np.zeros((size, size))
        table[:now, :now] = weighting(graph.times[:now], counts[:now])
    if table.shape != (size, size) or not np.isfinite(table).all() or table.min() < 0:
        raise InputError(
            f"weighting is a table of shape {table.shape} for {size} times; give finite weights of zero or more [T, T]."
        )
    return table
