"""Metapaths: features and labels along every way of relations that ends in the target type.

A metapath is a sequence of relations, each beginning where the last one ends, such as paper →
author → paper. Its hop is the mean over the first relation, then over the second, and so on. Two
ways to weight it by time:

* "edges", the paper's: Ω[t_v, t_u] on each relation whose both ends have a time, so nothing is
  corrected on the way paper → author → paper, because authors have none;
* "ends": Ω applies to the two ends of the whole path,

      M_vu = Ω[t_v, t_u]·P_vu / Σ_w Ω[t_v, t_w]·P_vw

  with P the product of the plain means along the path. P is never made. With the table as a sum of
  products, Ω[t, s] = Σ_r left[t, r]·right[r, s], the weighted sum is Σ_r left[t_v, r] · (P ·
  (right[r, t_u]·x_u))_v: one walk per r.

Paths are out_of_fold as a tree, depth first: what paths have in common at their beginning is computed
    once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from impact_gnn import _native, checks
from impact_gnn.checks import InputError
from impact_gnn.engines.engine import Engine, time_table
from impact_gnn.engines.hop import ComputedColumns, columns_of, position_blocks, selected_hop
from impact_gnn.engines.memory import or_memory
from impact_gnn.engines.operator import Operator
from impact_gnn.graph import TemporalGraph, Triple
from impact_gnn.propagation.labels import label_columns, own_share, without_own
from impact_gnn.weighting import BY_ROW, Weighting, at_hop

METAPATH_WEIGHTINGS = ("edges", "ends")
"""Ω on each relation between types with a time, or once, on the two ends of the path."""

MOST_PATHS = (
    10_000  # metapaths that are listed at most; their number grows as a power of the length
)

MOST_GROWTH = 4.0
"""How much larger the terms of a sum may be than the sum: the factor by which their rounding errors grow."""

Metapath: TypeAlias = tuple[Triple, ...]
"""Relations in the order in which a message walks them."""

Hops: TypeAlias = dict[str, Any]
"""One matrix [nodes of the target type, f] per metapath, by its name; arrays, or hops in files."""

__all__ = [
    "METAPATH_WEIGHTINGS",
    "Metapath",
    "metapath_hops",
    "metapath_label_hops",
    "metapaths",
    "path_name",
]


def path_name(path: Metapath) -> str:
    """Types and relations from the first to the last.

    Examples:
        >>> path_name((("paper", "rev_writes", "author"), ("author", "writes", "paper")))
        'paper-rev_writes-author-writes-paper'
    """
    return "-".join(
        [path[0][0], *(part for _, relation, target in path for part in (relation, target))]
    )


def metapaths(graph: TemporalGraph, length: int = 2, *, start: str | None = None) -> list[Metapath]:
    """All sequences of 1 to `length` relations that end in the target type, each relation in the order out_of_fold.

    Shorter ones come first, then in the order of the graph's relations. Messages run along edges
    only: for prefixes in and back use `graph.undirected()`.

    Args:
        graph: The graph.
        length: Most relations in a path.
        start: The type at which paths begin; by default all types that have features.

    Examples:
        >>> graph = TemporalGraph.hetero(
        ...     nodes={"paper": dict(x=np.ones((2, 4)), time=[0, 1]), "author": dict(num_nodes=1)},
        ...     edges={("author", "writes", "paper"): [[0, 0], [0, 1]]}, target="paper").undirected()
        >>> [path_name(path) for path in metapaths(graph, 2)]
        ['paper-rev_writes-author-writes-paper']
    """
    length = checks.at_least("length", length, 1)
    with_features = [kind for kind, nodes in graph.nodes.items() if nodes.x is not None]
    starts = with_features if start is None else [checks.choice("start", start, tuple(graph.nodes))]
    number = {relation: k for k, relation in enumerate(graph.relations)}
    prefixes: list[Metapath] = [()]
    paths: list[Metapath] = []
    for _ in range(length):
        prefixes = [
            (relation, *path)
            for path in prefixes
            for relation in graph.relations
            if relation[2] == (path[0][0] if path else graph.target)
        ]
        new = [path for path in prefixes if path[0][0] in starts]
        paths += sorted(new, key=lambda path: [number[relation] for relation in path])
        if len(prefixes) > MOST_PATHS:
            raise InputError(
                f"there are more than {MOST_PATHS:,} metapaths of length {length}; choose a shorter one."
            )
    names = [path_name(path) for path in paths]
    if len(set(names)) < len(names):
        raise InputError(
            "two metapaths have the same name; rename types or relations so that '-' does not mix them."
        )
    return paths


def metapath_hops(
    graph: TemporalGraph,
    *,
    length: int = 2,
    weighting: Weighting = "plain",
    metapath_weighting: str = "edges",
    engine: Engine | None = None,
    start: str | None = None,
    x: Any = None,
    rows: np.ndarray | None = None,
    dtype: Any = None,
) -> Hops:
    """Features along every metapath to the target type: a dict name → [N, f].

    The features of the target type themselves, the path of length 0, are not among them.

    Args:
        graph: The graph; usually `graph.undirected()`.
        length: Most relations in a path.
        weighting: Name of a method, or a table over `graph.times`.
        metapath_weighting: "edges" or "ends"; see the module. Paths from a type without time have
            no time at one end, and are weighted by "edges" in both.
        engine: `Memory()` by default; all give the same numbers.
        start: The type at which paths begin; by default all types that have features.
        x: Features of the type `start` (by default the target type) instead of the graph's own.
        rows: Positions of the target nodes whose hops are wanted; by default all.
        dtype: In which hops are kept; by default that of the features.

    Examples:
        >>> graph = TemporalGraph.hetero(
        ...     nodes={"paper": dict(x=[[1.0], [3.0], [8.0]], time=[0, 1, 2]), "author": dict(num_nodes=1)},
        ...     edges={("author", "writes", "paper"): [[0, 0, 0], [0, 1, 2]]}, target="paper").undirected()
        >>> metapath_hops(graph, weighting="pmp")["paper-rev_writes-author-writes-paper"].ravel()
        array([4., 4., 4.])
        >>> metapath_hops(graph, weighting="pmp", metapath_weighting="ends")
        {'paper-rev_writes-author-writes-paper': array([[4.6],
                                                        [4. ],
                                                        [3.2]])}
    """
    checks.choice("metapath_weighting", metapath_weighting, METAPATH_WEIGHTINGS)
    if x is not None and start is None:
        start = graph.target
    paths = metapaths(graph, length, start=start)
    if start is not None and x is None and graph.nodes[start].x is None:
        raise InputError(
            f"nodes of type {start!r} have no features; pass x=... or choose another start."
        )
    if start is not None and x is not None:
        x = checks.features("x", x, graph.nodes[start].num_nodes)
    if not paths:
        raise InputError(
            f"no metapath of up to {length} relations leads from a type with features to {graph.target!r}; use "
            f"graph.undirected() to let messages run both ways, or a greater length."
        )
    engine = or_memory(engine)
    by_name: Hops = {}
    for kind in dict.fromkeys(path[0][0] for path in paths):
        own = [path for path in paths if path[0][0] == kind]
        values = graph.nodes[kind].x if x is None else x
        assert values is not None  # paths begin at types with features
        if metapath_weighting == "ends" and graph.nodes[kind].time is not None:
            walk = Walk(graph, own, "plain", engine)
            hops = along_ends(walk, ends_table(graph, weighting, kind), values)
            if rows is not None:
                hops = {path: selected_hop(hop, rows) for path, hop in hops.items()}
        else:
            hops = dict(Walk(graph, own, weighting, engine).hops(values, rows=rows, dtype=dtype))
        by_name.update({path_name(path): hop for path, hop in hops.items()})
    return {path_name(path): by_name[path_name(path)] for path in paths}


def metapath_label_hops(
    view: TemporalGraph,
    *,
    length: int = 2,
    weighting: Weighting = "plain",
    metapath_weighting: str = "edges",
    engine: Engine | None = None,
    renormalize: bool = True,
    label: np.ndarray | None = None,
) -> Hops:
    """Known labels along every metapath from the target type to itself, own label excluded: a dict name → [N, Y].

    Args:
        view: A view made by `masked(cutoff)`: only labels that it holds are used.
        length: 1 or 2; the way back to oneself is only known exactly up to there.
        weighting: Name of a method, or a table over `view.times`.
        metapath_weighting: "edges" or "ends", as in `metapath_hops`.
        engine: Where to compute; `Memory()` by default.
        renormalize: Divide by the labelled share, so that rows sum to 1 wherever a labelled node
            other than oneself is reached; otherwise they sum to that share.
        label: Codes [N], −1 where unknown, or probabilities [N, Y], zeros where unknown, in place
            of the view's labels.

    Examples:
        >>> graph = TemporalGraph.hetero(
        ...     nodes={"paper": dict(y=[0, 1, -1], time=[0, 1, 2]), "author": dict(num_nodes=1)},
        ...     edges={("author", "writes", "paper"): [[0, 0, 0], [0, 1, 2]]}, target="paper").undirected()
        >>> metapath_label_hops(graph.masked(2))["paper-rev_writes-author-writes-paper"]
        array([[0. , 1. ],
               [1. , 0. ],
               [0.5, 0.5]], dtype=float32)
    """
    checks.choice("metapath_weighting", metapath_weighting, METAPATH_WEIGHTINGS)
    view.hidden_from("label metapaths need")
    length = checks.whole_number("length", length)
    if length not in (1, 2):
        raise InputError(
            f"length={length} must be 1 or 2: beyond that the own label cannot be excluded exactly."
        )
    paths = metapaths(view, length, start=view.target)
    table = ends_table(view, weighting, view.target) if metapath_weighting == "ends" else None
    engine = or_memory(engine)
    walk = Walk(view, paths, "plain" if table is not None else weighting, engine)
    hops = dict(label_hops_along(walk, table, renormalize, view.label if label is None else label))
    loaded = engine.loaded([hops[path] for path in paths])
    return {path_name(path): hop for path, hop in zip(paths, loaded, strict=True)}


@dataclass(frozen=True, eq=False)
class Walk:
    """Metapaths that begin at one type and end at the target type, with the operation of each relation made once."""

    graph: TemporalGraph
    paths: Sequence[Metapath]
    weighting: Weighting
    engine: Engine
    last: int | None = None  # as of `Engine.operator`
    _operators: dict[Any, Operator] = field(default_factory=dict, repr=False)

    def operator(self, relation: Triple, first: bool = True) -> Operator:
        """The operation of a relation, as the first of a path or as a later one."""
        weighting = at_hop(self.weighting, first=first)
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
        rows: np.ndarray | None = None,
        engine: Engine | None = None,
        dtype: Any = None,
    ) -> Iterator[tuple[Metapath, Any]]:
        """Every path with the features `x` of its first type brought along it, in the order of the walk.

        Only `rows` of the target type are made if given; hops are kept by `engine` if that is
        another than the walk's.
        """
        number = {relation: k for k, relation in enumerate(self.graph.relations)}
        prefixes = {path[:k] for path in self.paths for k in range(1, len(path) + 1)}
        longer: dict[Metapath, list[Metapath]] = {}
        for prefix in sorted(prefixes, key=lambda path: [number[relation] for relation in path]):
            longer.setdefault(prefix[:-1], []).append(prefix)
        wanted = set(self.paths)
        keep = self.engine if engine is None else engine

        def visit(prefix: Metapath, values: Any) -> Iterator[tuple[Metapath, Any]]:
            for path in longer.get(prefix, []):
                leaf = path not in longer
                operator = self.operator(path[-1], len(path) == 1)
                hop = keep.hops([operator], values, rows=rows if leaf else None, dtype=dtype)[0]
                if path in wanted:
                    yield path, hop if leaf or rows is None else selected_hop(hop, rows)
                yield from visit(path, hop)
                del hop  # not to be held while the next one is made

        yield from visit((), x)


def weighted(x: Any, factor: np.ndarray, dtype: np.dtype) -> ComputedColumns:
    """Features whose rows are multiplied by a factor each."""

    def columns(low: int, high: int) -> np.ndarray:
        return columns_of(x, low, high, dtype) * factor[:, None].astype(dtype)

    given = x if isinstance(x, np.ndarray) else x.key
    return ComputedColumns(x.shape, dtype, (given, factor, dtype.str), columns)


def along_ends(walk: Walk, table: np.ndarray, x: Any) -> dict[Metapath, Any]:
    """`x` along every path of `walk`, which has plain weights and begins at a type with a time; Ω at the two ends."""
    left, right = factors(table)
    graph, engine = walk.graph, walk.engine
    source, target = graph.period_of(walk.paths[0][0][0]), graph.period
    weight = path_weight(walk, left, right)
    dtype = np.dtype(np.promote_types(x.dtype, np.float32))  # sums need more than 16 bits
    total = {path: engine.empty((graph.num_nodes, x.shape[1]), dtype) for path in walk.paths}
    for r in range(len(right)):
        if (left[:, r] == 0).all() or (right[r] == 0).all():
            continue
        scratch = engine.child(f"ends-{r}")
        for path, hop in walk.hops(weighted(x, right[r][source], dtype), engine=scratch):
            for rows in position_blocks(graph.num_nodes):
                total[path][rows[0] : rows[-1] + 1] += left[target[rows], r][:, None].astype(
                    dtype
                ) * hop.rows(rows)
                _native.release(total[path])
        scratch.clear()
    out = {}
    for path, sums in total.items():
        with np.errstate(divide="ignore"):
            inverse = np.where(weight[path] > 0, 1 / weight[path], 0.0).astype(dtype)
        for rows in position_blocks(graph.num_nodes):
            sums[rows[0] : rows[-1] + 1] *= inverse[rows, None]
            _native.release(sums)
        out[path] = engine.stored(sums)
    return out


def ends_table(graph: TemporalGraph, weighting: Weighting, kind: str) -> np.ndarray:
    """Ω between the times of nodes of type `kind` and of the target type."""
    weighting = at_hop(weighting, first=True)
    if isinstance(weighting, str) and weighting in BY_ROW:
        raise InputError(
            f"{weighting!r} is no table of two times, which 'ends' needs; weigh by 'edges'."
        )
    return time_table(graph, weighting, kind)


def path_weight(walk: Walk, left: np.ndarray, right: np.ndarray) -> dict[Metapath, np.ndarray]:
    """Σ_w Ω[t_v, t_w]·P_vw for every path and target node, in float64; exactly 0 where nothing has weight."""
    graph = walk.graph
    values = np.ascontiguousarray(right.T)[graph.period_of(walk.paths[0][0][0])]
    scratch, out = walk.engine.child("weights"), {}
    for path, hop in walk.hops(values, engine=scratch, dtype=np.float64):
        out[path] = np.empty(graph.num_nodes)
        for rows in position_blocks(graph.num_nodes):
            out[path][rows] = np.einsum("vr,vr->v", left[graph.period[rows]], hop.rows(rows))
    scratch.clear()
    return out


def label_hops_along(
    walk: Walk, table: np.ndarray | None, renormalize: bool, label: np.ndarray
) -> Iterator[tuple[Metapath, Any]]:
    """Labels along paths of one or two relations from the target type to itself, own label excluded: [N, Y] float32.

    A table is Ω for the two ends; the walk is plain then.
    """
    graph = walk.graph
    if not walk.paths:
        return
    known = label_columns(label, graph.num_labels)
    own = {
        path: own_share([walk.operator(step, k == 0) for k, step in enumerate(path)])
        for path in walk.paths
    }
    if table is None:
        hops = walk.hops(known)
    else:
        weight, mine = path_weight(walk, *factors(table)), np.diag(table)[graph.period]
        own = {
            path: np.divide(
                mine * share, weight[path], out=np.zeros_like(share), where=weight[path] > 0
            )
            for path, share in own.items()
        }
        hops = iter(along_ends(walk, table, known).items())
    for path, hop in hops:
        yield path, without_own(hop, label, own[path], renormalize)


def factors(table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`left` [T, R] and `right` [R, T] with left @ right = table, R as small as can be without loss.

    Equal columns, or equal rows, are grouped: nothing is subtracted, so nothing cancels. The
        singular vectors
    are taken where they need fewer terms and their terms stay within `MOST_GROWTH` of the table's
    entries.

    Examples:
        >>> from impact_gnn.weighting import pmp
        >>> left, right = factors(pmp(range(10)))
        >>> right.shape
        (6, 10)
        >>> factors(np.outer([1.0, 2.0, 3.0], [1.0, 4.0, 5.0]))[1].shape
        (1, 3)
    """
    size = len(table)
    columns, of_column = np.unique(table, axis=1, return_inverse=True)
    rows, of_row = np.unique(table, axis=0, return_inverse=True)
    if columns.shape[1] <= len(rows):
        best = (
            columns,
            (of_column.reshape(-1) == np.arange(columns.shape[1])[:, None]).astype(np.float64),
        )
    else:
        best = (of_row.reshape(-1, 1) == np.arange(len(rows))).astype(np.float64), rows
    u, s, v = np.linalg.svd(table)
    rank = int((s > s[0] * size * np.finfo(np.float64).eps).sum())
    if rank < len(best[1]):
        left, right = u[:, :rank] * s[:rank], v[:rank]
        if (np.abs(left) @ np.abs(right) <= MOST_GROWTH * table).all():
            return left, right
    return best
