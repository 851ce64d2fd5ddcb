"""Metapaths: features and labels along every way of relations that ends in the target type.

A metapath is a sequence of relations, each beginning where the last one ends, such as paper → author → paper. Its
hop is the mean over the first relation, then over the second, and so on. Two ways to weight it by time:

* "edges", the paper's: Ω[t_v, t_u] on each relation whose both ends have a time, so nothing is corrected on the
  way paper → author → paper, because authors have none;
* "ends": Ω applies to the two ends of the whole path, M_vu ∝ Ω[t_v, t_u]·P_vu with P the product of the plain means
  and rows that sum to 1 (see `path_ends`).

Paths are walked as a tree, depth first: what paths have in common at their beginning is computed once, and
no more than one intermediate result per step is held.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from impact_gnn import checks
from impact_gnn.checks import InputError
from impact_gnn.graph import TemporalGraph
from impact_gnn.propagation import label_paths
from impact_gnn.propagation.engine import Engine
from impact_gnn.propagation.hops import time_table
from impact_gnn.propagation.path_ends import along_ends
from impact_gnn.propagation.path_walk import Path, Walk, path_name

METAPATH_WEIGHTINGS = ("edges", "ends")
"""Ω on each relation between types with a time, or once, on the two ends of the path."""

MOST_PATHS = 10_000
"""Metapaths that are listed at most; their number grows as a power of the length."""

Hops: TypeAlias = dict[str, np.ndarray]
"""One matrix [nodes of the target type, f] per metapath, by its name."""

__all__ = ["METAPATH_WEIGHTINGS", "metapath_hops", "metapath_label_hops", "metapaths", "path_name"]


def metapaths(graph: TemporalGraph, length: int = 2, *, start: str | None = None) -> list[Path]:
    """All sequences of 1 to `length` relations that end in the target type, each relation in the order walked.

    Shorter ones come first, then in the order of the graph's relations. Messages run along edges only: for ways
    in and back use `graph.undirected()`.

    Args:
        graph: The graph.
        length: Most relations in a path.
        start: The type at which paths begin; by default all types that have features.

    Example:
        >>> graph = TemporalGraph.hetero(
        ...     nodes={"paper": dict(x=np.ones((2, 4)), time=[0, 1]), "author": dict(num_nodes=1)},
        ...     edges={("author", "writes", "paper"): [[0, 0], [0, 1]]}, target="paper").undirected()
        >>> [path_name(path) for path in metapaths(graph, 2)]
        ['paper-rev_writes-author-writes-paper']
    """
    length = checks.whole_number("length", length)
    if length < 1:
        raise InputError(f"length={length} must be at least 1.")
    starts = _starts(graph, start)
    number = {relation: k for k, relation in enumerate(graph.relations)}
    ways: list[Path] = [()]
    found: list[Path] = []
    for _ in range(length):
        ways = [
            (relation, *way)
            for way in ways
            for relation in graph.relations
            if relation[2] == (way[0][0] if way else graph.target)
        ]
        new = [way for way in ways if way[0][0] in starts]
        found += sorted(new, key=lambda way: [number[relation] for relation in way])
        if len(ways) > MOST_PATHS:
            raise InputError(f"there are more than {MOST_PATHS:,} metapaths of length {length}; choose a shorter one.")
    names = [path_name(path) for path in found]
    if len(set(names)) < len(names):
        raise InputError("two metapaths have the same name; rename types or relations so that '-' does not mix them.")
    return found


def metapath_hops(
    graph: TemporalGraph,
    *,
    length: int = 2,
    weighting: str | np.ndarray = "plain",
    metapath_weighting: str = "edges",
    engine: Engine | None = None,
    start: str | None = None,
    x: Any = None,
) -> Hops:
    """Features along every metapath to the target type: a dict name → [N, f].

    The features of the target type themselves, the path of length 0, are not among them.

    Args:
        graph: The graph; usually `graph.undirected()`.
        length: Most relations in a path.
        weighting: Name of a method, or a table over `graph.times`.
        metapath_weighting: "edges" or "ends"; see the module. Paths from a type without time have no time at
            one end, and are weighted by "edges" in both.
        engine: `Memory()` by default; `Disk(directory)` keeps one directory per path, `<directory>-<name>`, and
            all give the same numbers.
        start: The type at which paths begin; by default all types that have features.
        x: Features of the type `start` (by default the target type) instead of the graph's own.

    Example:
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
        raise InputError(f"nodes of type {start!r} have no features; pass x=... or choose another start.")
    if start is not None and x is not None:
        x = checks.features("x", x, graph.nodes[start].num_nodes)
    if not paths:
        raise InputError(
            f"no metapath of up to {length} relations leads from a type with features to {graph.target!r}; use "
            f"graph.undirected() to let messages run both ways, or a greater length."
        )
    found: Hops = {}
    for kind in dict.fromkeys(path[0][0] for path in paths):
        own = [path for path in paths if path[0][0] == kind]
        values = graph.nodes[kind].x if x is None else x
        assert values is not None  # paths begin at types with features
        if metapath_weighting == "ends" and graph.nodes[kind].time is not None:
            table = time_table(graph, weighting, kind)
            made = along_ends(Walk(graph, own, "plain", engine), table, values, keep="ends")
        else:
            made = dict(Walk(graph, own, weighting, engine).hops(values))
        found.update({path_name(path): hop for path, hop in made.items()})
    return {path_name(path): found[path_name(path)] for path in paths}


def metapath_label_hops(
    view: TemporalGraph,
    *,
    length: int = 2,
    weighting: str | np.ndarray = "plain",
    metapath_weighting: str = "edges",
    engine: Engine | None = None,
    renormalize: bool = True,
) -> Hops:
    """Known labels along every metapath from the target type to itself, own label excluded: a dict name → [N, Y].

    Args:
        view: A view made by `masked(cutoff)`: only labels that it holds are used.
        length: 1 or 2; the way back to oneself is only known exactly up to there.
        weighting: Name of a method, or a table over `view.times`.
        metapath_weighting: "edges" or "ends", as in `metapath_hops`.
        engine: Where to compute; `Memory()` by default.
        renormalize: Divide by the labelled share, so that rows sum to 1 wherever a labelled node other than
            oneself is reached; otherwise they sum to that share.

    Example:
        >>> graph = TemporalGraph.hetero(
        ...     nodes={"paper": dict(y=[0, 1, -1], time=[0, 1, 2]), "author": dict(num_nodes=1)},
        ...     edges={("author", "writes", "paper"): [[0, 0, 0], [0, 1, 2]]}, target="paper").undirected()
        >>> metapath_label_hops(graph.masked(2))["paper-rev_writes-author-writes-paper"]
        array([[0. , 1. ],
               [1. , 0. ],
               [0.5, 0.5]], dtype=float32)
    """
    checks.choice("metapath_weighting", metapath_weighting, METAPATH_WEIGHTINGS)
    if view.cutoff is None:
        raise InputError("label metapaths need a view that hides the labels to predict; pass graph.masked(cutoff).")
    length = checks.whole_number("length", length)
    if length not in (1, 2):
        raise InputError(f"length={length} must be 1 or 2: beyond that the own label cannot be excluded exactly.")
    paths = metapaths(view, length, start=view.target)
    table = time_table(view, weighting) if metapath_weighting == "ends" else None
    walk = Walk(view, paths, "plain" if table is not None else weighting, engine)
    found = label_paths.label_hops_along(walk, table, renormalize)
    return {path_name(path): found[path] for path in paths}


def _starts(graph: TemporalGraph, start: str | None) -> Sequence[str]:
    if start is None:
        return [kind for kind, nodes in graph.nodes.items() if nodes.x is not None]
    return [checks.choice("start", start, tuple(graph.nodes))]
