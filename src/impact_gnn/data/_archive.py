"""Which arrays of an `.npz` archive make up a graph: the convention for names, one type of node or several."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from impact_gnn.checks import InputError, listing
from impact_gnn.graph import TemporalGraph, Triple

ONE_TYPE = ("x", "y", "time", "edge_index", "edge_weight", "ids", "label_names")
"""Names in an archive of one type; others are ignored. `time` and `edge_index` are needed."""

FIELDS = ("x", "y", "time", "ids")
COMMON = ("label_names", "num_labels")
WEIGHT = "_weight"
MEND = "call arrays <type>_time, <type>_x, num_<type>s and <source type>_<relation>_<target type>"


def graph_of(where: str, names: Iterable[str], read: Callable[[list[str]], Mapping[str, np.ndarray]]) -> TemporalGraph:
    """The graph in an archive with arrays of these names.

    Args:
        where: The archive, for error messages.
        names: All that is in it.
        read: Gives the arrays of the names it is asked for; no others are read.
    """
    there = set(names)
    typed = sorted(name for name in there if name.endswith("_time") and name != "_time")
    if "time" in there or "edge_index" in there or not typed:
        return _one_type(where, read(sorted(there.intersection(ONE_TYPE))))
    return _several_types(where, there, read)


def types_of(names: Iterable[str]) -> dict[str, str | None]:
    """The node types that arrays speak of, each with the array that holds its size, if there is one.

    A type is what stands before `_x`, `_y` or `_time`, or what follows `num_`, where the plural may be meant.

    Example:
        >>> types_of(["paper_x", "paper_time", "num_authors", "author_writes_paper"])
        {'paper': None, 'author': 'num_authors'}
    """
    names = sorted(names)
    parts = (name.rpartition("_") for name in names)
    found: dict[str, str | None] = {kind: None for kind, _, field in parts if field in ("x", "y", "time") and kind}
    for name in names:
        kind = name.removeprefix("num_")
        if kind == name or name in COMMON:
            continue
        one = kind.removesuffix("s")
        spoken_of = one in found or any(n.startswith(f"{one}_") or n.endswith(f"_{one}") for n in names)
        found[one if kind not in found and one and spoken_of else kind] = name
    return found


def relation_of(name: str, types: Iterable[str]) -> Triple | None:
    """The relation that an array `<source type>_<relation>_<target type>` holds; None for another name.

    Example:
        >>> relation_of("author_writes_paper", ["paper", "author"])
        ('author', 'writes', 'paper')
    """
    types = list(types)
    readings = [
        (source, name[len(source) + 1 : -len(target) - 1], target)
        for source in types
        for target in types
        if len(name) > len(source) + len(target) + 2 and name.startswith(f"{source}_") and name.endswith(f"_{target}")
    ]
    if len(readings) > 1:
        raise InputError(
            f"array {name!r} can be read as {listing(['-'.join(triple) for triple in readings])}; "
            f"rename the types so that no name begins or ends another."
        )
    return readings[0] if readings else None


def _one_type(where: str, found: Mapping[str, np.ndarray]) -> TemporalGraph:
    missing = [name for name in ("time", "edge_index") if name not in found]
    if missing:
        raise InputError(
            f"{where} has no array called {listing(missing)}; an archive needs time and edge_index, "
            f"or for several node types {MEND}."
        )
    arrays: dict[str, Any] = dict(found)
    return TemporalGraph(**arrays | {"label_names": _label_names(where, found)})


def _several_types(where: str, names: set[str], read: Callable[[list[str]], Mapping[str, np.ndarray]]) -> TemporalGraph:
    types = types_of(names)
    fields = {f"{kind}_{field}": (kind, field) for kind in types for field in FIELDS if f"{kind}_{field}" in names}
    sizes = {name: kind for kind, name in types.items() if name is not None}
    rest = names - set(fields) - set(sizes) - set(COMMON)
    relations = {name: triple for name in sorted(rest) if (triple := relation_of(name, types)) is not None}
    if not relations:
        raise InputError(f"{where} holds no relation between its types {listing(list(types))}; {MEND}.")
    weights = {name: name + WEIGHT for name in relations if name + WEIGHT in names}
    found = read(sorted({*fields, *sizes, *relations, *weights.values(), *names.intersection(COMMON)}))
    nodes: dict[str, dict[str, Any]] = {kind: {} for kind in types}
    for name, (kind, field) in fields.items():
        nodes[kind][field] = found[name]
    for name, kind in sizes.items():
        nodes[kind]["num_nodes"] = _single(f"{name} of {where}", found[name])
    return TemporalGraph.hetero(
        nodes=nodes,
        edges={triple: (found[name], found.get(weights.get(name, ""))) for name, triple in relations.items()},
        target=_target(where, nodes),
        num_labels=_single(f"num_labels of {where}", found["num_labels"]) if "num_labels" in found else None,
        label_names=_label_names(where, found),
    )


def _target(where: str, nodes: Mapping[str, Mapping[str, Any]]) -> str:
    """The type to classify: the one with labels and time."""
    timed = [kind for kind, part in nodes.items() if "time" in part]
    labelled = [kind for kind in timed if "y" in nodes[kind]] or timed
    if len(labelled) > 1:
        raise InputError(
            f"{where} has several types that could be classified, {listing(labelled)}; keep _y for one of them."
        )
    return labelled[0]


def _single(name: str, values: np.ndarray) -> Any:
    if values.size != 1:
        raise InputError(f"{name} has shape {values.shape}; give a single number.")
    return values.item()


def _label_names(where: str, found: Mapping[str, np.ndarray]) -> list[Any] | None:
    names = found.get("label_names")
    if names is None:
        return None
    if names.ndim != 1:
        raise InputError(f"{where}: label_names has shape {names.shape}; give one name per class.")
    return names.tolist()
