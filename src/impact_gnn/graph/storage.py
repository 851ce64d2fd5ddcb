"""Saves a graph as a directory of `.npy` files and one manifest, whole or not at all.

Layout:

* `manifest.json`: format version, and the size, dtype and SHA-256 of every array (of the rows of
  every update, see `append`);
* `nodes/<k>-<type>/`: those of `x.npy`, `y.npy`, `time.npy`, `timestamp.npy`, `ids.npy` that
  the type has;
* `edges/<k>-<relation>/`: likewise `edge_index.npy` (source and target of an edge next to each
  other, so that edges can be appended), `weight.npy`, `time.npy`; after an update also the
  positions of edges by their sources and targets (`BY_NODE`).

Reading maps the arrays into memory; nothing is copied until it is used. The manifest says how many
rows of a file count: more were left by an update that was killed.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy import ndarray

from impact_gnn import _files
from impact_gnn._codec import decode
from impact_gnn.checks import InputError, listing
from impact_gnn.encoding import Columns
from impact_gnn.graph.csr import CSR
from impact_gnn.graph.periods import Periods

MANIFEST = "manifest.json"
FORMAT = "impact-gnn graph"
VERSION = 4
COLUMNS = "columns.arrow"
OWN_NAME = re.compile(r"(nodes|edges)/[^/]+/([a-z_]+(-\d+)?\.npy|columns(-\d+)?\.arrow)")
SETTINGS = (
    "target",
    "num_labels",
    "label_names",
    "cutoff",
    "periods",
    "label_delay",
    "tables",  # the roles of the columns of the tables that it was made of, for `update`
)
NODE_ARRAYS = ("x", "y", "time", "timestamp", "ids")
EDGE_ARRAYS = ("edge_index", "weight", "time")
# Arrays of the CSR of the first edges, by the node at their end 0 and 1.
BY_NODE = (("source_borders", "source_edges"), ("target_borders", "target_edges"))


@dataclass(frozen=True)
class Writer:
    """Fills a directory that becomes a saved graph when the `writing` block ends.

    `nodes` and `relation` save arrays, and return the folder to which others may be added.
    """

    directory: Path
    manifest: dict[str, Any]

    def nodes(
        self,
        kind: str,
        num_nodes: int,
        arrays: Mapping[str, ndarray | None],
        columns: Columns | None = None,
    ) -> Path:
        """Add a node type with those of its arrays that are not None, and its raw columns."""
        name = f"nodes/{_folder_name(self.manifest['nodes'], kind)}"
        # The number of nodes is stored because a type may have no array at all.
        entry = {"num_nodes": int(num_nodes), "folder": name}
        folder = self._save_arrays(name, arrays)
        if columns is not None:
            folder.mkdir(parents=True, exist_ok=True)
            columns.save(folder / COLUMNS)
            entry["columns"] = [[f"{name}/{COLUMNS}", _files.checksum(folder / COLUMNS)]]
        self.manifest["nodes"][kind] = entry
        return folder

    def relation(
        self,
        triple: tuple[str, str, str],
        arrays: Mapping[str, ndarray | None],
    ) -> Path:
        """Add a relation with those of its arrays that are not None."""
        name = f"edges/{_folder_name(self.manifest['relations'], triple[1])}"
        self.manifest["relations"].append({"triple": list(triple), "folder": name})
        edge_index = arrays.get("edge_index")
        if edge_index is not None:
            # Stored as [E, 2]: new edges can then be appended to the file.
            arrays = {**arrays, "edge_index": edge_index.T}
        return self._save_arrays(name, arrays)

    def _save_arrays(self, folder_name: str, arrays: Mapping[str, ndarray | None]) -> Path:
        folder = self.directory / folder_name
        for name, values in arrays.items():
            if values is not None:
                _files.save_array(folder / f"{name}.npy", values)
        return folder


def _folder_name(entries: Collection[Any], name: str) -> str:
    return f"{len(entries)}-{re.sub('[^A-Za-z0-9_-]', '_', name)[:40]}"


@contextlib.contextmanager
def writing(
    directory: str | Path,
    *,
    target: str,
    num_labels: int,
    label_delay: float = 0.0,
    **settings: Any,
) -> Iterator[Writer]:
    """Yield a `Writer`; after the block, write the manifest and move all to `directory`.

    Other `SETTINGS` are in the types of JSON, and None by default.
    """
    with _files.atomic_directory(Path(directory), own_files=_own_files) as temporary:
        manifest: dict[str, Any] = {
            "format": FORMAT,
            "version": VERSION,
            **dict.fromkeys(SETTINGS),
            **settings,
            "target": target,
            "num_labels": int(num_labels),
            "label_delay": label_delay,
            "nodes": {},
            "relations": [],
            "arrays": {},
        }
        yield Writer(temporary, manifest)
        # Read back from the files, so that the manifest describes what is on the disk.
        for file in sorted(temporary.rglob("*.npy")):
            manifest["arrays"][file.relative_to(temporary).as_posix()] = array_entry(file)
        _files.write_json(temporary / MANIFEST, manifest, sealed=True)


def array_entry(file: Path) -> dict[str, Any]:
    """Return the entry of an array in the manifest; `sha256` lists its rows by update."""
    values = _files.open_array(file)
    return {
        "shape": list(values.shape),
        "dtype": values.dtype.str,
        "sha256": [[len(values), _files.rows_checksum(values)]],
    }


def _is_unchanged(values: ndarray, entry: dict[str, Any]) -> bool:
    """Tell whether the rows that the manifest lists are as they were written."""
    # Every update has its own checksum; rows before it are not read again when it is written.
    begin = 0
    for end, checksum in entry["sha256"]:
        if _files.rows_checksum(values[:end], begin) != checksum:
            return False
        begin = end
    return begin == len(values)


def _own_files(directory: Path) -> list[str]:
    """List the unchanged files of a saved graph by their paths in its folder."""
    try:
        manifest = _files.read_description(directory / MANIFEST, FORMAT, VERSION)
        unchanged = []
        for name, entry in manifest["arrays"].items():
            file = entry.get("file", name)
            path = _files.inside(directory, file)
            values = _files.open_array(path)[: entry["shape"][0]]
            # Only names that this package gives, with unchanged content.
            if OWN_NAME.fullmatch(file) and _is_unchanged(values, entry):
                unchanged.append(file)
        for entry in manifest["nodes"].values():
            for file, checksum in entry.get("columns", []):
                path = _files.inside(directory, file)
                if OWN_NAME.fullmatch(file) and _files.checksum(path) == checksum:
                    unchanged.append(file)
        return [MANIFEST, *unchanged]
    # What is not described as ours must not be deleted.
    except (InputError, OSError, KeyError, TypeError, AttributeError):
        return []


def read(
    directory: str | Path,
    *,
    verify: bool = False,
    manifest: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Read the parts of a saved graph, or those that a `manifest` lists which is not saved yet.

    They are `nodes`, `edges`, `edges_by_node` (positions of edges by relation and end), `target`,
    `num_labels`, `label_names`, `cutoff`, `periods`, `label_delay` and `tables` (the roles of the
    columns of the tables that it was made of). Shapes and dtypes are always compared with the
    manifest; with `verify` the checksums are too.
    """
    root = Path(directory)
    if manifest is None:
        manifest = _files.read_description(root / MANIFEST, FORMAT, VERSION)
    try:
        return _read_parts(root, manifest, verify)
    except InputError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise InputError(
            f"{root / MANIFEST} is damaged ({error!r}); save the graph again."
        ) from None


def _read_parts(root: Path, manifest: dict[str, Any], verify: bool) -> dict[str, Any]:
    arrays = _read_arrays(root, manifest, verify)
    edges = {}
    edges_by_node = {}
    for entry in manifest["relations"]:
        relation = _arrays_in(entry["folder"], arrays, EDGE_ARRAYS)
        if "edge_index" not in relation:
            raise InputError(
                f"{root} has no edges for relation {listing(entry['triple'])}; "
                "save the graph again."
            )
        triple = tuple(entry["triple"])
        # Back to [2, E]; the transposed view copies nothing.
        edges[triple] = relation | {"edge_index": relation["edge_index"].T}
        # Positions of edges by node, if an update has grouped them.
        for end, (borders, places) in enumerate(BY_NODE):
            grouped = _arrays_in(entry["folder"], arrays, (borders, places))
            if len(grouped) == 2:
                # The sources of this CSR are positions of edges.
                indices = grouped[places]
                num_sources = max(len(indices), 1)
                edges_by_node[triple, end] = CSR(grouped[borders], indices, None, num_sources)
    settings = {name: manifest[name] for name in SETTINGS}
    if settings["periods"] is not None:
        settings["periods"] = decode(Periods, settings["periods"], "periods")
    return {
        **settings,
        "nodes": _read_nodes(root, manifest, arrays, verify),
        "edges": edges,
        "edges_by_node": edges_by_node,
    }


def _read_arrays(root: Path, manifest: dict[str, Any], verify: bool) -> dict[str, ndarray]:
    """Map the arrays that the manifest lists, by their names."""
    arrays = {}
    for name, entry in manifest["arrays"].items():
        path = _files.inside(root, entry.get("file", name))
        # More rows than listed are left from an update that was killed.
        values = _files.open_array(path)[: entry["shape"][0]]
        # Always compared, even without `verify`: a wrong shape would fail far from here.
        if list(values.shape) != entry["shape"] or values.dtype.str != entry["dtype"]:
            raise InputError(
                f"{path} is {values.dtype.str} {list(values.shape)}, but the manifest says "
                f"{entry['dtype']} {entry['shape']}; restore the file or save the graph again."
            )
        if verify and not _is_unchanged(values, entry):
            raise _has_changed(path)
        arrays[name] = values
    return arrays


def _read_nodes(
    root: Path,
    manifest: dict[str, Any],
    arrays: dict[str, ndarray],
    verify: bool,
) -> dict[str, dict[str, Any]]:
    """The arrays and raw columns of every node type."""
    nodes: dict[str, dict[str, Any]] = {}
    for kind, entry in manifest["nodes"].items():
        nodes[kind] = _arrays_in(entry["folder"], arrays, NODE_ARRAYS)
        nodes[kind]["num_nodes"] = entry["num_nodes"]
        if "columns" in entry:
            paths = []
            for file, checksum in entry["columns"]:
                path = _files.inside(root, file)
                if verify and _files.checksum(path) != checksum:
                    raise _has_changed(path)
                paths.append(path)
            nodes[kind]["x"] = Columns.open(*paths)
    return nodes


def _has_changed(path: Path) -> InputError:
    return InputError(f"{path} has changed since it was saved (its checksum differs); restore it.")


def _arrays_in(
    folder: str,
    arrays: dict[str, ndarray],
    names: tuple[str, ...],
) -> dict[str, Any]:
    paths = {name: f"{folder}/{name}.npy" for name in names}
    return {name: arrays[path] for name, path in paths.items() if path in arrays}
