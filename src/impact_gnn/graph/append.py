"""Appends nodes and edges to a saved graph in its place; a killed process leaves the old graph.

Rows go behind those of the `.npy` files, which are not written again. The new manifest, which says
how many rows count, replaces the old one last, after a check of the graph that it describes. Raw
columns go to a file for every update. An array that cannot grow (ids that are wider than before) is
written to a new file.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from impact_gnn import _files, _native
from impact_gnn.encoding import Columns
from impact_gnn.graph import storage
from impact_gnn.graph.csr import EdgesByNode, index_type
from impact_gnn.graph.parts import Triple
from impact_gnn.graph.temporal import TemporalGraph

MOST_LATER = 0.25  # later edges, as a share of the grouped ones, from which all are grouped again


@dataclass(frozen=True, eq=False)
class NewNodes:
    """Nodes of one type to append: an array for each that the saved type has, or raw columns."""

    num_nodes: int
    arrays: Mapping[str, ndarray]
    columns: Columns | None = None


def append(
    directory: Path,
    nodes: Mapping[str, NewNodes],
    edges: Mapping[Triple, Mapping[str, ndarray]],
    *,
    num_labels: int,
    label_names: Sequence[Any] | None,
) -> TemporalGraph:
    """Append nodes by type and edges by relation, set the classes, and return the graph."""
    with _files.exclusive_scratch(directory) as scratch:
        update = _Update(directory, scratch)
        manifest = update.manifest
        for kind, new in nodes.items():
            entry = manifest["nodes"][kind]
            for name, rows in new.arrays.items():
                update.append_rows(f"{entry['folder']}/{name}.npy", rows)
            if new.columns is not None and new.num_nodes:
                update.add_columns(entry, new.columns)
            # Only in the new manifest: readers of the old one go on with fewer rows.
            entry["num_nodes"] += new.num_nodes
        for entry in manifest["relations"]:
            for name, rows in edges.get(tuple(entry["triple"]), {}).items():
                if name == "edge_index":
                    # Stored as [E, 2], an edge per row.
                    rows = rows.T
                update.append_rows(f"{entry['folder']}/{name}.npy", rows)
            update.group_edges(entry)
        manifest.update(num_labels=num_labels, label_names=label_names)
        return update.finish()


@dataclass(frozen=True, eq=False)
class _Update:
    """One update: the new manifest, and files that get their names when everything is written."""

    directory: Path
    scratch: Path
    manifest: dict[str, Any] = field(init=False)
    new_files: dict[str, Path] = field(default_factory=dict)
    old_files: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        path = self.directory / storage.MANIFEST
        manifest = _files.read_description(path, storage.FORMAT, storage.VERSION)
        object.__setattr__(self, "manifest", manifest)

    def append_rows(self, name: str, rows: ndarray) -> None:
        """Append rows to an array, in its place unless its values become wider."""
        if not len(rows):
            return
        entry = self.manifest["arrays"][name]
        dtype = np.dtype(entry["dtype"])
        # Rows that count; a killed update may have left more in the file.
        begin = entry["shape"][0]
        path = _files.inside(self.directory, entry.get("file", name))
        stored = np.ascontiguousarray(rows, dtype)
        # Longer or larger ids need wider entries, which cannot be appended to the old file.
        if dtype.kind in "Uiu" and not np.array_equal(stored, rows):
            old = _files.open_array(path)[:begin]
            # The file is written again with wider entries, under another name.
            self._replace(name, np.concatenate([old.astype(rows.dtype), rows]))
            return
        _files.append_rows(path, stored, begin)
        end = begin + len(rows)
        entry["shape"][0] = end
        entry["sha256"].append([end, _files.rows_checksum(stored)])

    def add_columns(self, entry: dict[str, Any], columns: Columns) -> None:
        """Add a file with the raw columns of new nodes."""
        stem, suffix = storage.COLUMNS.split(".")
        name = f"{entry['folder']}/{stem}-{len(entry['columns'])}.{suffix}"
        path = self._new_file(name)
        columns.save(path)
        entry["columns"].append([name, _files.checksum(path)])

    def group_edges(self, entry: dict[str, Any]) -> None:
        """Group all edges of a relation by node if there are many that are not, and memory."""
        folder = entry["folder"]
        name = f"{folder}/edge_index.npy"
        num_edges = self._num_rows(name)
        # One entry per grouped edge; none before the first grouping.
        _, places = storage.BY_NODE[0]
        num_grouped = self._num_rows(f"{folder}/{places}.npy")
        # A position per edge; without grouping, predictions are slower, not wrong.
        needed = index_type(num_edges).itemsize * num_edges
        fits = needed < _native.free_memory() // 2
        if num_edges - num_grouped <= MOST_LATER * num_grouped or not fits:
            return
        file = self.manifest["arrays"][name].get("file", name)
        path = _files.inside(self.directory, file)
        ends = _files.open_array(path)[:num_edges].T
        # Ends 0 and 1 are sources and targets.
        for end, (borders, places) in enumerate(storage.BY_NODE):
            nodes = self.manifest["nodes"][entry["triple"][2 * end]]
            csr = EdgesByNode.of(ends[end], nodes["num_nodes"]).csr
            self._replace(f"{folder}/{borders}.npy", csr.indptr)
            self._replace(f"{folder}/{places}.npy", csr.indices)

    def _num_rows(self, name: str) -> int:
        """Return the rows of an array that count; 0 without the array."""
        entry = self.manifest["arrays"].get(name)
        return 0 if entry is None else entry["shape"][0]

    def _replace(self, name: str, values: ndarray) -> None:
        """Write an array to a file of another name than the present one."""
        entry = self.manifest["arrays"].get(name)
        file = name
        if entry is not None:
            present = entry.get("file", name)
            self.old_files.append(present)
            # Never the present name: whoever has mapped that file still reads it.
            number = 1 + int(Path(present).stem.partition("-")[2] or 0)
            file = f"{name.removesuffix('.npy')}-{number}.npy"
        path = self._new_file(file)
        _files.save_array(path, values)
        self.manifest["arrays"][name] = storage.array_entry(path) | {"file": file}

    def _new_file(self, name: str) -> Path:
        # A folder for each, because files of different folders may have one name.
        path = self.scratch / str(len(self.new_files)) / Path(name).name
        path.parent.mkdir()
        self.new_files[name] = path
        return path

    def finish(self) -> TemporalGraph:
        """Give new files their names, replace the manifest, and remove what it no longer lists.

        A graph that is refused leaves the old one as it was.
        """
        for name, path in self.new_files.items():
            _files.flush(path)
            goal = _files.inside(self.directory, name)
            os.replace(path, goal)
            _files.flush(goal.parent)
        try:
            graph = TemporalGraph.restored(storage.read(self.directory, manifest=self.manifest))
        except BaseException:
            self._remove(self.new_files)
            raise
        # The moment at which the update exists; all files that it lists are on the disk by now.
        _files.write_json(self.directory / storage.MANIFEST, self.manifest, sealed=True)
        self._remove(self.old_files)
        return graph

    def _remove(self, names: Iterable[str]) -> None:
        for name in names:
            _files.remove(_files.inside(self.directory, name))
