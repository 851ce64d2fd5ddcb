"""A graph as a directory of `.npy` files and one manifest, whole or absent.

Layout: `manifest.json` (format version, sizes, types and a SHA-256 for every array),
    `nodes/<k>-<type>/` with
`x.npy`, `y.npy`, `time.npy`, `ids.npy` where the type has them, `edges/<k>-<relation>/` with
`edge_index.npy`, `weight.npy`, `time.npy` likewise. Reading maps the arrays into memory; nothing is
copied until it is used.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from impact_gnn import _files
from impact_gnn._codec import decode
from impact_gnn.checks import InputError, listing
from impact_gnn.encoding import Columns
from impact_gnn.graph.periods import Periods

MANIFEST = "manifest.json"
FORMAT = "impact-gnn graph"
VERSION = 3
OLDER = (1, 2)  # versions that are read too
COLUMNS = "columns.arrow"
OWN_NAME = re.compile(r"(nodes|edges)/[^/]+/([a-z_]+\.npy|columns\.arrow)")
NODE_ARRAYS = ("x", "y", "time", "ids")
EDGE_ARRAYS = ("edge_index", "weight", "time")


@dataclass(frozen=True)
class Writer:
    """Fills a directory that becomes a saved graph when the `writing` block ends.

    `nodes` and `relation` take arrays that are in memory, and tell in which folder others may be
    made.
    """

    directory: Path
    manifest: dict[str, Any] = field(default_factory=dict)

    def nodes(
        self,
        kind: str,
        num_nodes: int,
        arrays: Mapping[str, np.ndarray | None],
        columns: Columns | None = None,
    ) -> Path:
        """Adds a node type with those of its arrays that are not None, and its raw columns if it has such."""
        folder = f"nodes/{_named(self.manifest['nodes'], kind)}"
        self.manifest["nodes"][kind] = {"num_nodes": int(num_nodes), "folder": folder}
        place = self._saved(folder, arrays)
        if columns is not None:
            place.mkdir(parents=True, exist_ok=True)
            columns.save(place / COLUMNS)
            self.manifest["nodes"][kind]["columns"] = _files.checksum(place / COLUMNS)
        return place

    def relation(
        self, triple: tuple[str, str, str], arrays: Mapping[str, np.ndarray | None]
    ) -> Path:
        """Adds a relation with those of its arrays that are not None."""
        folder = f"edges/{_named(self.manifest['relations'], triple[1])}"
        self.manifest["relations"].append({"triple": list(triple), "folder": folder})
        return self._saved(folder, arrays)

    def _saved(self, folder: str, arrays: Mapping[str, np.ndarray | None]) -> Path:
        for name, values in arrays.items():
            if values is not None:
                _files.save_array(self.directory / folder / f"{name}.npy", values)
        return self.directory / folder


def _named(others: Collection[Any], name: str) -> str:
    return f"{len(others)}-{re.sub('[^A-Za-z0-9_-]', '_', name)[:40]}"


@contextlib.contextmanager
def writing(
    directory: str | Path,
    *,
    target: str,
    num_labels: int,
    label_names: list[Any] | None = None,
    cutoff: int | None = None,
    periods: Any = None,
) -> Iterator[Writer]:
    """A `Writer` for `directory`; checksums and manifest are added and the name taken when the block ends."""
    with _files.atomic_directory(Path(directory), own_files=_own_files) as temporary:
        head = {
            "format": FORMAT,
            "version": VERSION,
            "target": target,
            "num_labels": int(num_labels),
        }
        head |= {"label_names": label_names, "cutoff": cutoff, "periods": periods}
        writer = Writer(temporary, head | {"nodes": {}, "relations": [], "arrays": {}})
        yield writer
        for file in sorted(temporary.rglob("*.npy")):
            values = _files.open_array(file)
            entry = {
                "shape": list(values.shape),
                "dtype": values.dtype.str,
                "sha256": _files.checksum(file),
            }
            writer.manifest["arrays"][file.relative_to(temporary).as_posix()] = entry
        _files.write_json(temporary / MANIFEST, writer.manifest, sealed=True)


def is_saved(directory: Path) -> bool:
    """Whether `directory` holds a saved graph."""
    try:
        _files.described(directory / MANIFEST, FORMAT, VERSION, *OLDER)
    except InputError:
        return False
    return True


def _own_files(directory: Path) -> list[str]:
    """The files of a saved graph by their paths in its folder; none where there is no such graph.

    The manifest of an older version has no seal, so it does not say what may be replaced.
    """
    try:
        manifest = _files.described(directory / MANIFEST, FORMAT, VERSION)
        nodes = manifest["nodes"].values()
        columns = [f"{entry['folder']}/{COLUMNS}" for entry in nodes if "columns" in entry]
        return [MANIFEST, *filter(OWN_NAME.fullmatch, [*manifest["arrays"], *columns])]
    except (InputError, KeyError, TypeError, AttributeError):
        return []


def read(directory: str | Path, *, verify: bool = False) -> dict[str, Any]:
    """The parts of a saved graph: `nodes`, `edges`, `target`, `num_labels`, `label_names`, `cutoff`, `periods`.

    Sizes and types are always held against the manifest; with `verify` the checksums are too.
    """
    root = Path(directory)
    manifest = _files.described(root / MANIFEST, FORMAT, VERSION, *OLDER)
    try:
        parts = _parts(root, manifest, verify)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"{root / MANIFEST} is damaged ({error!r}); save the graph again."
        ) from None
    return parts


def _parts(root: Path, manifest: dict[str, Any], verify: bool) -> dict[str, Any]:
    arrays = {}
    for name, entry in manifest["arrays"].items():
        path = _files.inside(root, name)
        values = _files.open_array(path)
        if list(values.shape) != entry["shape"] or values.dtype.str != entry["dtype"]:
            raise InputError(
                f"{path} holds {values.dtype.str} {list(values.shape)}, the manifest says {entry['dtype']} "
                f"{entry['shape']}; restore the file or save the graph again."
            )
        if verify and _files.checksum(path) != entry["sha256"]:
            raise InputError(
                f"{path} has changed since it was saved (its checksum differs); restore it."
            )
        arrays[name] = values
    nodes: dict[str, dict[str, Any]] = {}
    for kind, entry in manifest["nodes"].items():
        nodes[kind] = {
            "num_nodes": entry["num_nodes"],
            **_under(arrays, entry["folder"], NODE_ARRAYS),
        }
        if "columns" in entry:
            path = _files.inside(root, entry["folder"]) / COLUMNS
            if verify and _files.checksum(path) != entry["columns"]:
                raise InputError(
                    f"{path} has changed since it was saved (its checksum differs); restore it."
                )
            nodes[kind]["x"] = Columns.open(path)
    edges = {}
    for entry in manifest["relations"]:
        parts = _under(arrays, entry["folder"], EDGE_ARRAYS)
        if "edge_index" not in parts:
            raise InputError(
                f"{root} has no edges for relation {listing(entry['triple'])}; save the graph again."
            )
        edges[tuple(entry["triple"])] = parts
    keep = ("target", "num_labels", "label_names", "cutoff")
    periods = decode(Periods, manifest["periods"], "periods") if manifest.get("periods") else None
    return {
        "nodes": nodes,
        "edges": edges,
        "periods": periods,
        **{name: manifest[name] for name in keep},
    }


def _under(
    arrays: dict[str, np.ndarray], folder: str, names: tuple[str, ...]
) -> dict[str, np.ndarray]:
    return {
        name: arrays[f"{folder}/{name}.npy"] for name in names if f"{folder}/{name}.npy" in arrays
    }
