"""Metapaths: features and labels along every sequence of relations that ends in the target type.

A metapath is a sequence of relations, each beginning where the last one ends, such as paper →
author → paper. Its hop is the mean over the first relation, then over the second, and so on. It
can be weighted by time in two ways:

* "edges", the paper's: Ω[t_v, t_u] on each relation whose both ends have a time, so nothing is
  corrected along paper → author → paper, because authors have none;
* "ends": Ω applies to the two ends of the whole path,

      M_vu = Ω[t_v, t_u]·P_vu / Σ_w Ω[t_v, t_w]·P_vw

  with P the product of the plain means along the path. P is never computed. With the table as a sum
  of products, Ω[t, s] = Σ_r left[t, r]·right[r, s], the weighted sum is
  Σ_r left[t_v, r] · (P · (right[r, t_u]·x_u))_v: one propagation per r.

Paths are a tree, traversed depth first: common beginnings of paths are computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy import ndarray

from impact_gnn import _native, checks
from impact_gnn._array import safe_divide
from impact_gnn.checks import InputError
from impact_gnn.engines.engine import Engine, time_table
from impact_gnn.engines.hop import ComputedColumns, Hop, columns_of, position_blocks, selected_hop
from impact_gnn.engines.memory import as_engine
from impact_gnn.engines.operator import Operator
from impact_gnn.graph import TemporalGraph, Triple
from impact_gnn.propagation.labels import exclude_own_label, label_columns, own_share
from impact_gnn.weighting import BY_ROW, Weighting, at_hop

METAPATH_WEIGHTINGS = ("edges", "ends")
"""Ω on each relation between types with a time, or once, on the two ends of the path."""

MAX_PATHS = 10_000  # the number of metapaths grows as a power of their length

Metapath: TypeAlias = tuple[Triple, ...]
"""Relations in the order in which a message follows them."""

Hops: TypeAlias = dict[str, Hop]
"""One matrix [nodes of the target type, f] per metapath, by its name."""

__all__ = [
    "METAPATH_WEIGHTINGS",
    "Metapath",
    "metapath_hops",
    "metapath_label_hops",
    "metapaths",
    "path_name",
]


def path_name(path: Metapath) -> str:
    """Join types and relations from the first to the last.

    Examples:
        >>> path_name((("paper", "rev_writes", "author"), ("author", "writes", "paper")))
        'paper-rev_writes-author-writes-paper'
    """
    steps = [f"-{relation}-{target}" for _, relation, target in path]
    return path[0][0] + "".join(steps)


def metapaths(graph: TemporalGraph, length: int = 2, *, start: str | None = None) -> list[Metapath]:
    """List all sequences of 1 to `length` relations that end in the target type.

    Shorter ones come first, then in the order of the graph's relations. Messages follow edges in
    their direction only: for paths there and back use `graph.undirected()`.

    Args:
        graph: The graph.
        length: The largest number of relations in a path.
        start: The type at which paths begin; by default all types that have features.

    Examples:
        >>> graph = TemporalGraph.hetero(
        ...     nodes={"paper": dict(x=np.ones((2, 4)), time=[0, 1]), "author": dict(num_nodes=1)},
        ...     edges={("author", "writes", "paper"): [[0, 0], [0, 1]]},
        ...     target="paper",
        ... ).undirected()
        >>> [path_name(path) for path in metapaths(graph, 2)]
        ['paper-rev_writes-author-writes-paper']
    """
    length = checks.at_least("length", length, 1)
    starts = [kind for kind, nodes in graph.nodes.items() if nodes.x is not None]
    if start is not None:
        starts = [checks.choice("start", start, tuple(graph.nodes))]
    # Paths grow backwards from the target type: at their beginning, by the relations that lead
    # there.
    suffixes: list[Metapath] = [()]
    paths: list[Metapath] = []
    for _ in range(length):
        longer: list[Metapath] = []
        for path in suffixes:
            first_type = path[0][0] if path else graph.target
            leading = [relation for relation in graph.relations if relation[2] == first_type]
            longer += [(relation, *path) for relation in leading]
        suffixes = longer
        # Only paths from types that have something to propagate.
        new = [path for path in suffixes if path[0][0] in starts]
        paths += sorted(new, key=_relation_order(graph))
        if len(suffixes) > MAX_PATHS:
            raise InputError(
                f"there are more than {MAX_PATHS:,} metapaths of length {length}; "
                "choose a shorter one."
            )
    names = [path_name(path) for path in paths]
    if len(set(names)) < len(names):
        raise InputError(
            "two metapaths have the same name; "
            "rename types or relations so that '-' is unambiguous."
        )
    return paths


def _relation_order(graph: TemporalGraph) -> Callable[[Metapath], list[int]]:
    """Return a sort key: the positions of a path's relations in the graph."""
    number = {relation: k for k, relation in enumerate(graph.relations)}
    return lambda path: [number[relation] for relation in path]


def metapath_hops(
    graph: TemporalGraph,
    *,
    length: int = 2,
    weighting: Weighting = "plain",
    metapath_weighting: str = "edges",
    engine: Engine | None = None,
    rows: ndarray | None = None,
    dtype: Any = None,
) -> Hops:
    """Propagate features along every metapath to the target type: a dict name → [N, f].

    The features of the target type themselves, the path of length 0, are not included.

    Args:
        graph: The graph; usually `graph.undirected()`.
        length: The largest number of relations in a path.
        weighting: Name of a method, or a table over `graph.times`.
        metapath_weighting: "edges" or "ends"; see the module. Paths from a type without time have
            no time at one end, and are weighted by "edges" in both.
        engine: `Memory()` by default; all give the same numbers.
        rows: Positions of the requested target nodes; by default all.
        dtype: The type of the hops; by default that of the features.

    Examples:
        >>> graph = TemporalGraph.hetero(
        ...     nodes={
        ...         "paper": dict(x=[[1.0], [3.0], [8.0]], time=[0, 1, 2]),
        ...         "author": dict(num_nodes=1),
        ...     },
        ...     edges={("author", "writes", "paper"): [[0, 0, 0], [0, 1, 2]]},
        ...     target="paper",
        ... ).undirected()
        >>> metapath_hops(graph, weighting="pmp")["paper-rev_writes-author-writes-paper"].ravel()
        array([4., 4., 4.])
        >>> metapath_hops(graph, weighting="pmp", metapath_weighting="ends")
        {'paper-rev_writes-author-writes-paper': array([[4.6],
                                                        [4. ],
                                                        [3.2]])}
    """
    checks.choice("metapath_weighting", metapath_weighting, METAPATH_WEIGHTINGS)
    paths = metapaths(graph, length)
    if not paths:
        raise InputError(
            f"no metapath of up to {length} relations connects a type with features to "
            f"{graph.target!r}; use graph.undirected() to propagate both ways, or a larger length."
        )
    engine = as_engine(engine)
    hops: dict[Metapath, Hop] = {}
    for kind in dict.fromkeys(path[0][0] for path in paths):
        # All paths from one type share their features, and their common beginnings.
        own_paths = [path for path in paths if path[0][0] == kind]
        nodes = graph.nodes[kind]
        # Both ends have a time: Ω applies once, to the whole path.
        if metapath_weighting == "ends" and nodes.time is not None:
            walk = Walk(graph, own_paths, "plain", engine)
            by_ends, _ = along_ends(walk, ends_table(graph, weighting, kind), nodes.x)
            for path, hop in by_ends.items():
                hops[path] = hop if rows is None else selected_hop(hop, rows)
        else:
            # Ω applies to every relation whose two ends have a time.
            walk = Walk(graph, own_paths, weighting, engine)
            hops |= walk.hops(nodes.x, rows=rows, dtype=dtype)
    return {path_name(path): hops[path] for path in paths}


def metapath_label_hops(
    view: TemporalGraph,
    *,
    length: int = 2,
    weighting: Weighting = "plain",
    metapath_weighting: str = "edges",
    engine: Engine | None = None,
    label: ndarray | None = None,
) -> Hops:
    """Propagate known labels along metapaths from the target type to itself, own label excluded.

    Returns a dict name → [N, Y]. Rows sum to 1 wherever a labelled node other than oneself is
    reached.

    Args:
        view: A view from `masked(cutoff)`: only its labels are used.
        length: 1 or 2; return paths are only known exactly up to there.
        weighting: Name of a method, or a table over `view.times`.
        metapath_weighting: "edges" or "ends", as in `metapath_hops`.
        engine: Where to compute; `Memory()` by default.
        label: Codes [N], −1 where unknown, or probabilities [N, Y], zeros where unknown, in place
            of the view's labels.

    Examples:
        >>> graph = TemporalGraph.hetero(
        ...     nodes={"paper": dict(y=[0, 1, -1], time=[0, 1, 2]), "author": dict(num_nodes=1)},
        ...     edges={("author", "writes", "paper"): [[0, 0, 0], [0, 1, 2]]},
        ...     target="paper",
        ... ).undirected()
        >>> metapath_label_hops(graph.masked(2))["paper-rev_writes-author-writes-paper"]
        array([[0. , 1. ],
               [1. , 0. ],
               [0.5, 0.5]], dtype=float32)
    """
    checks.choice("metapath_weighting", metapath_weighting, METAPATH_WEIGHTINGS)
    view.require_cutoff("label metapaths need")
    length = checks.whole_number("length", length)
    if length not in (1, 2):
        raise InputError(
            f"length={length} must be 1 or 2: beyond that a node's own label cannot be excluded "
            "exactly."
        )
    paths = metapaths(view, length, start=view.target)
    if label is None:
        label = view.label
    known = label_columns(label, view.num_labels)
    engine = as_engine(engine)
    weights: dict[Metapath, ndarray] = {}
    if metapath_weighting == "ends":
        table = ends_table(view, weighting, view.target)
        walk = Walk(view, paths, "plain", engine)
        hops, weights = along_ends(walk, table, known)
        # The weight Ω[t_v, t_v] of a node in its own message [N].
        same_time = np.diag(table)[view.period]
    else:
        walk = Walk(view, paths, weighting, engine)
        hops = dict(walk.hops(known, dtype=np.float64))
    remaining = []
    for path in paths:
        operators = [walk.operator(step, k == 0) for k, step in enumerate(path)]
        # The share of the own label that came back along the path [N].
        own = own_share(operators)
        if path in weights:
            # The weight of the own label, Ω[t_v, t_v]·P_vv, is divided by the row's total as well.
            own = safe_divide(same_time * own, weights[path])
        remaining.append(exclude_own_label(hops[path], label, own))
    names = map(path_name, paths)
    return dict(zip(names, engine.loaded(remaining), strict=True))


@dataclass(frozen=True, eq=False)
class Walk:
    """Metapaths from one type to the target type, with one operator per relation."""

    graph: TemporalGraph
    paths: Sequence[Metapath]
    weighting: Weighting
    engine: Engine
    last: int | None = None  # as of `Engine.operator`
    _operators: dict[Any, Operator] = field(default_factory=dict, repr=False)

    def operator(self, relation: Triple, first: bool = True) -> Operator:
        """Return the operator of a relation, as the first of a path or as a later one."""
        weighting = at_hop(self.weighting, first=first)
        # Both positions share an operator unless the first hop has its own weighting.
        key = relation, first or weighting is self.weighting
        if key not in self._operators:
            self._operators[key] = self.engine.operator(
                self.graph, relation, weighting=weighting, last=self.last
            )
        return self._operators[key]

    def hops(
        self,
        x: Any,
        *,
        rows: ndarray | None = None,
        engine: Engine | None = None,
        dtype: Any = None,
    ) -> Iterator[tuple[Metapath, Hop]]:
        """Yield every path with the features `x` of its first type propagated along it.

        With `rows`, hops have these rows of the target type only. `engine`, by default the walk's,
        stores the hops.
        """
        # The tree of paths: every beginning of a path is a node, computed once.
        prefixes = {path[:k] for path in self.paths for k in range(1, len(path) + 1)}
        longer: dict[Metapath, list[Metapath]] = {}
        for prefix in sorted(prefixes, key=_relation_order(self.graph)):
            longer.setdefault(prefix[:-1], []).append(prefix)
        requested = set(self.paths)
        storage = self.engine if engine is None else engine

        def visit(prefix: Metapath, values: Any) -> Iterator[tuple[Metapath, Hop]]:
            for path in longer.get(prefix, []):
                operator = self.operator(path[-1], len(path) == 1)
                # Longer paths read all rows of their beginning.
                leaf_rows = None if path in longer else rows
                hop = storage.hops([operator], values, rows=leaf_rows, dtype=dtype)[0]
                if path in requested:
                    if rows is None or path not in longer:
                        yield path, hop
                    else:
                        yield path, selected_hop(hop, rows)
                yield from visit(path, hop)
                del hop  # before the next one is computed

        yield from visit((), x)


def weighted(x: Any, factor: ndarray, dtype: np.dtype) -> ComputedColumns:
    """Multiply the rows of features by a factor each."""

    def columns(low: int, high: int) -> ndarray:
        own_factor = factor[:, None].astype(dtype)
        return columns_of(x, low, high, dtype) * own_factor

    # What a file of this product is identified by.
    source = x if isinstance(x, ndarray) else x.key
    sources = (source, factor, dtype.str)
    return ComputedColumns(shape=x.shape, dtype=dtype, sources=sources, columns=columns)


def along_ends(
    walk: Walk, table: ndarray, x: Any
) -> tuple[dict[Metapath, Hop], dict[Metapath, ndarray]]:
    """Propagate `x` along the paths of a plain walk, with Ω between the two ends of each path.

    Returns hops and their total weights Σ_w Ω[t_v, t_w]·P_vw [N] by path, exactly 0 if none.
    """
    if not walk.paths:
        return {}, {}
    left, right = factors(table)
    graph = walk.graph
    engine = walk.engine
    source_period = graph.period_of(walk.paths[0][0][0])
    dtype = np.dtype(np.promote_types(x.dtype, np.float32))  # sums need more than 16 bits
    # One sum per path, [N, f]; arrays from an engine begin as zeros.
    shape = (graph.num_nodes, x.shape[1])
    sums = {path: engine.empty(shape, dtype) for path in walk.paths}
    # Σ_r left[t_v, r] · (P · (right[r, t_u]·x_u))_v
    for r in range(len(right)):
        # left[t_v, r] of every target node [N], and the nodes where it adds something.
        factor = left[graph.period, r].astype(dtype)
        nodes = np.flatnonzero(factor)
        # A propagation costs much.
        if not len(nodes) or not right[r].any():
            continue
        # Files of a summand are removed before the next one is computed.
        scratch = engine.child(f"ends-{r}")
        summand = weighted(x, right[r][source_period], dtype)
        for path, hop in walk.hops(summand, rows=nodes, engine=scratch, dtype=dtype):
            for rows in position_blocks(len(nodes)):
                sums[path][nodes[rows]] += factor[nodes[rows], None] * hop.rows(rows)
                _native.release(sums[path])
        scratch.clear()
    # Divided by Σ_w Ω[t_v, t_w]·P_vw, in float64.
    hops = {}
    weights = {}
    scratch = engine.child("weights")
    # All summands of the total weight at once, as columns [N, R].
    ones = np.ascontiguousarray(right.T)[source_period]
    for path, hop in walk.hops(ones, engine=scratch, dtype=np.float64):
        # Total weight of every node, [N].
        weights[path] = np.empty(graph.num_nodes)
        for rows, total in blocks_of(sums[path]):
            own_left = left[graph.period[rows]]
            weight = np.einsum("vr,vr->v", own_left, hop.rows(rows))
            total *= safe_divide(1.0, weight)[:, None].astype(dtype)
            weights[path][rows] = weight
        hops[path] = engine.stored(sums[path])
    scratch.clear()
    return hops, weights


def blocks_of(total: ndarray) -> Iterator[tuple[ndarray, ndarray]]:
    """Yield positions of rows, and these rows to be changed in place."""
    for rows in position_blocks(len(total)):
        yield rows, total[rows[0] : rows[-1] + 1]
        _native.release(total)


def ends_table(graph: TemporalGraph, weighting: Weighting, kind: str) -> ndarray:
    """Compute Ω between the times of nodes of type `kind` and of the target type."""
    weighting = at_hop(weighting, first=True)
    if isinstance(weighting, str) and weighting in BY_ROW:
        raise InputError(
            f"{weighting!r} is not a table over two times, which 'ends' needs; use 'edges'."
        )
    return time_table(graph, weighting, kind)


def factors(table: ndarray) -> tuple[ndarray, ndarray]:
    """Return `left` [T, R] and `right` [R, T] with left @ right = table and a small R.

    Equal columns, or equal rows, are grouped: nothing is subtracted, so nothing cancels.

    Examples:
        >>> from impact_gnn.weighting import pmp
        >>> left, right = factors(pmp(range(10)))
        >>> right.shape
        (6, 10)
    """
    # Tables of methods have few distinct rows or columns: take the fewer, or rows, for which
    # every target node is in one summand only.
    columns, column_index = np.unique(table, axis=1, return_inverse=True)
    rows, row_index = np.unique(table, axis=0, return_inverse=True)
    if columns.shape[1] < len(rows):
        # Column s of the identity's columns selects the distinct column that s equals.
        selection = np.eye(columns.shape[1])
        return columns, selection[:, column_index.reshape(-1)]
    selection = np.eye(len(rows))
    return selection[row_index.reshape(-1)], rows
