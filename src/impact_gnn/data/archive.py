"""`.npz` archives: which arrays make up a graph, and arrays mapped into memory where they lie.

An archive of one node type holds `time`, `edge_index` and so on; of several, `paper_time`,
`num_authors` and one array `author_writes_paper` per relation. An array stored without compression
lies in the zip file as it would in a `.npy` file, so `mapped` can map it; a large compressed one is
unpacked once, next to the archive.
"""

from __future__ import annotations

import shutil
import struct
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from impact_gnn import _files
from impact_gnn.checks import InputError, guarded, listing
from impact_gnn.graph import TemporalGraph, Triple

Arrays = Mapping[str, np.ndarray]

LOCAL_HEADER = 30  # bytes of a zip entry's header before its name
SMALL = 1 << 26  # compressed arrays up to that many bytes are simply read
ONE_TYPE = ("x", "y", "time", "edge_index", "edge_weight", "edge_time", "ids")
FIELDS = ("x", "y", "time", "ids")
COMMON = ("label_names", "num_labels")
MEND = "call arrays <type>_time, <type>_x, num_<type>s and <source type>_<relation>_<target type>"


def read_archive(path: Path) -> TemporalGraph:
    """The graph in an archive of one or of several node types; arrays with other names are not read."""
    with guarded(path), np.load(path, allow_pickle=False) as archive:
        typed = any(name.endswith("_time") and name != "_time" for name in archive)
        several = typed and "time" not in archive and "edge_index" not in archive
        parts = (_several_types if several else _one_type)(str(path), archive)
        if (names := archive.get("label_names")) is not None and names.ndim != 1:
            raise InputError(
                f"{path}: label_names has shape {names.shape}; give one name per class."
            )
        parts["label_names"] = None if names is None else names.tolist()
    return TemporalGraph.hetero(**parts) if several else TemporalGraph(**parts)


def types_of(names: Iterable[str]) -> dict[str, str | None]:
    """The node types that arrays speak of, each with the array that holds its size, if there is one.

    A type is what stands before `_x`, `_y` or `_time`, unless that is itself an array, a
    relation's; or what follows `num_`, where the plural may be meant.

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
    """The relation that an array `<source type>_<relation>_<target type>` holds; None for another name.

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
        shown = listing(["-".join(triple) for triple in readings])
        mend = "rename the types so that no name begins or ends another"
        raise InputError(f"array {name!r} can be read as {shown}; {mend}.")
    return readings[0] if readings else None


def _one_type(where: str, arrays: Arrays) -> dict[str, Any]:
    missing = [name for name in ("time", "edge_index") if name not in arrays]
    if missing:
        raise InputError(
            f"{where} has no array called {listing(missing)}; an archive needs time and edge_index, "
            f"or for several node types {MEND}."
        )
    return {name: arrays[name] for name in ONE_TYPE if name in arrays}


def _several_types(where: str, arrays: Arrays) -> dict[str, Any]:
    types = types_of(arrays)
    nodes: dict[str, dict[str, Any]] = {}
    for kind, size in types.items():
        nodes[kind] = {
            field: arrays[f"{kind}_{field}"] for field in FIELDS if f"{kind}_{field}" in arrays
        }
        if size is not None:
            nodes[kind]["num_nodes"] = _single(f"{size} of {where}", arrays[size])
    others = (
        set(arrays)
        - {f"{kind}_{field}" for kind in types for field in FIELDS}
        - {*types.values(), *COMMON}
    )
    relations = {
        name: triple for name in sorted(others) if (triple := relation_of(name, types)) is not None
    }
    if not relations:
        raise InputError(
            f"{where} holds no relation between its types {listing(list(types))}; {MEND}."
        )
    return {
        "nodes": nodes,
        "edges": {
            triple: {"edge_index": arrays[name]}
            | {part: arrays.get(f"{name}_{part}") for part in ("weight", "time")}
            for name, triple in relations.items()
        },
        "target": _target(where, nodes),
        "num_labels": _single(f"num_labels of {where}", arrays["num_labels"])
        if "num_labels" in arrays
        else None,
    }


def _target(where: str, nodes: Mapping[str, Mapping[str, Any]]) -> str:
    timed = [kind for kind, part in nodes.items() if "time" in part]
    labelled = [kind for kind in timed if "y" in nodes[kind]] or timed
    if len(labelled) > 1:
        several = f"several types that could be classified, {listing(labelled)}"
        raise InputError(f"{where} has {several}; keep _y for one of them.")
    return labelled[0]


def _single(name: str, values: np.ndarray) -> Any:
    if values.size != 1:
        raise InputError(f"{name} has shape {values.shape}; give a single number.")
    return values.item()


def mapped(path: Path, name: str, *, small: int = SMALL) -> np.ndarray:
    """The array `name` of an archive, mapped; compressed ones are read, or unpacked once if above `small` bytes."""
    with guarded(path), zipfile.ZipFile(path) as archive:
        available = [entry.removesuffix(".npy") for entry in archive.namelist()]
        if name not in available:
            raise InputError(f"{path} has no array called {name}; it has {listing(available)}.")
        entry = archive.getinfo(f"{name}.npy")
        if entry.compress_type == zipfile.ZIP_STORED:
            return _in_place(path, entry)
        if entry.file_size <= small:
            with np.load(path, allow_pickle=False) as arrays:
                return arrays[name]
        # of these bytes and no others
        goal = path.with_name(f"{path.stem}.{name}.{entry.CRC:08x}.npy")
        if not goal.exists():
            _files.require_space(path.parent, entry.file_size)
            with (
                _files.atomic_file(goal) as temporary,
                archive.open(entry) as source,
                temporary.open("wb") as out,
            ):
                shutil.copyfileobj(source, out, 1 << 22)
    return _files.open_array(goal)


def _in_place(path: Path, entry: zipfile.ZipInfo) -> np.ndarray:
    with path.open("rb") as file:
        file.seek(entry.header_offset)
        name_length, extra_length = struct.unpack("<HH", file.read(LOCAL_HEADER)[26:30])
        file.seek(entry.header_offset + LOCAL_HEADER + name_length + extra_length)
        version = np.lib.format.read_magic(file)
        read = (
            np.lib.format.read_array_header_1_0
            if version == (1, 0)
            else np.lib.format.read_array_header_2_0
        )
        shape, columns_first, dtype = read(file)
        position = file.tell()
    if dtype.hasobject:
        raise InputError(f"{path} holds Python objects in {entry.filename}; they are never loaded.")
    if 0 in shape:
        return np.empty(shape, dtype)
    order = "F" if columns_first else "C"
    return np.memmap(path, dtype, "r", offset=position, shape=shape, order=order)  # type: ignore[call-overload]
