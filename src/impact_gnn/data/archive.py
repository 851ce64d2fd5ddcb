"""Reads graphs from `.npz` archives.

An archive of one node type has `time`, `edge_index` and so on; one of several types has
`paper_time`, `num_authors` and one array `author_writes_paper` per relation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from impact_gnn.checks import InputError, guarded, listing
from impact_gnn.graph import TemporalGraph, Triple

Arrays = Mapping[str, np.ndarray]

ONE_TYPE = ("x", "y", "time", "edge_index", "edge_weight", "edge_time", "ids")
FIELDS = ("x", "y", "time", "ids")
COMMON = ("label_names", "num_labels")
NAMING = "name arrays <type>_time, <type>_x, num_<type>s and <source type>_<relation>_<target type>"


def read_archive(path: Path) -> TemporalGraph:
    """Read the graph of an archive; arrays with unknown names are not read."""
    with guarded(path), np.load(path, allow_pickle=False) as archive:
        label_names = None
        if "label_names" in archive:
            label_names = archive["label_names"]
            if label_names.ndim != 1:
                raise InputError(
                    f"{path}: label_names has shape {label_names.shape}; pass one name per class."
                )
            label_names = label_names.tolist()
        has_types = any(name.endswith("_time") and name != "_time" for name in archive)
        if has_types and "time" not in archive and "edge_index" not in archive:
            parts = _several_types(str(path), archive)
            return TemporalGraph.hetero(**parts, label_names=label_names)
        return TemporalGraph(**_one_type(str(path), archive), label_names=label_names)


def types_of(names: Iterable[str]) -> dict[str, str | None]:
    """Return the node types that arrays name, each with the array of its size or None.

    A type is the part before `_x`, `_y` or `_time`, unless that is the array of a relation; or the
    part after `num_`, which may be a plural.

    Examples:
        >>> types_of(["paper_x", "paper_time", "num_authors", "author_writes_paper"])
        {'paper': None, 'author': 'num_authors'}
    """
    names = sorted(names)
    parts = (name.rpartition("_") for name in names)
    types: dict[str, str | None] = {
        kind: None
        for kind, _, field in parts
        if field in ("x", "y", "time") and kind and kind not in names
    }
    for name in names:
        kind = name.removeprefix("num_")
        if kind == name or name in COMMON:
            continue
        singular = kind.removesuffix("s")
        used = singular in types or any(
            n.startswith(f"{singular}_") or n.endswith(f"_{singular}") for n in names
        )
        types[singular if kind not in types and singular and used else kind] = name
    return types


def relation_of(name: str, types: Iterable[str]) -> Triple | None:
    """Return the relation that an array is named after; None for another name.

    Examples:
        >>> relation_of("author_writes_paper", ["paper", "author"])
        ('author', 'writes', 'paper')
    """
    types = list(types)
    readings = [
        (source, name[len(source) + 1 : -len(target) - 1], target)
        for source in types
        for target in types
        if len(name) > len(source) + len(target) + 2
        and name.startswith(f"{source}_")
        and name.endswith(f"_{target}")
    ]
    if len(readings) > 1:
        raise InputError(
            f"array {name!r} can be read as {listing(['-'.join(triple) for triple in readings])}; "
            "rename the types so that no name is the beginning or end of another."
        )
    return readings[0] if readings else None


def _one_type(where: str, arrays: Arrays) -> dict[str, Any]:
    missing = [name for name in ("time", "edge_index") if name not in arrays]
    if missing:
        raise InputError(
            f"{where} has no array {listing(missing)}; "
            f"an archive needs time and edge_index, or for several node types {NAMING}."
        )
    return {name: arrays[name] for name in ONE_TYPE if name in arrays}


def _several_types(where: str, arrays: Arrays) -> dict[str, Any]:
    types = types_of(arrays)
    nodes: dict[str, dict[str, Any]] = {}
    for kind, size in types.items():
        names = {field: f"{kind}_{field}" for field in FIELDS}
        nodes[kind] = {field: arrays[name] for field, name in names.items() if name in arrays}
        if size is not None:
            nodes[kind]["num_nodes"] = _single(f"{size} of {where}", arrays[size])
    node_arrays = {f"{kind}_{field}" for kind in types for field in FIELDS}
    edges = {}
    for name in sorted(set(arrays) - node_arrays - {*COMMON, *types.values()}):
        triple = relation_of(name, types)
        if triple is not None:
            edges[triple] = {
                "edge_index": arrays[name],
                "weight": arrays.get(f"{name}_weight"),
                "time": arrays.get(f"{name}_time"),
            }
    if not edges:
        raise InputError(
            f"{where} contains no relation between its types {listing(list(types))}; {NAMING}."
        )
    parts = {"nodes": nodes, "edges": edges, "target": _target(where, nodes)}
    if "num_labels" in arrays:
        parts["num_labels"] = _single(f"num_labels of {where}", arrays["num_labels"])
    return parts


def _target(where: str, nodes: Mapping[str, Mapping[str, Any]]) -> str:
    timed = [kind for kind, part in nodes.items() if "time" in part]
    # Without any label, the only type with times is the one to classify.
    labelled = [kind for kind in timed if "y" in nodes[kind]] or timed
    if len(labelled) > 1:
        raise InputError(
            f"{where} has several types that could be classified, {listing(labelled)}; "
            "keep an array _y for one of them only."
        )
    return labelled[0]


def _single(name: str, values: np.ndarray) -> Any:
    if values.size != 1:
        raise InputError(f"{name} has shape {values.shape}; pass a single number.")
    return values.item()
