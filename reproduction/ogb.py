"""The time-stamped node data sets of OGB, read from a local folder; nothing is downloaded.

`ogbn-arxiv` and `ogbn-mag` come from the compressed tables in `raw`, `ogbn-papers100M` from
`raw/data.npz`, whose features and edges are mapped into memory. The `ogb` package is not needed.
"""

from __future__ import annotations

import gzip
import math
import shutil
import struct
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.csv

from impact_gnn import _files, checks
from impact_gnn.checks import InputError, guarded, listing
from impact_gnn.graph import TemporalGraph, Triple

DATASETS: Mapping[str, str] = MappingProxyType(
    {"ogbn-arxiv": "arxiv", "ogbn-mag": "mag", "ogbn-papers100M": "papers100M-bin"}
)
"""Names of data sets, and of the folders in their zip files."""

FIELDS: Mapping[str, tuple[str, str, type]] = MappingProxyType(
    {
        "x": ("node-feat", "node-feat.csv.gz", np.float32),
        "time": ("node-feat", "node_year.csv.gz", np.int64),
        "y": ("node-label", "node-label.csv.gz", np.float64),
    }
)
"""Folder (of several types), file and type of the arrays of nodes; missing labels are NaN."""

BLOCK = 1 << 24  # bytes of text that are parsed in one go
LOCAL_HEADER = 30  # bytes of a zip entry's header before its name
SMALL = 1 << 26  # bytes up to which compressed arrays are read into memory


@dataclass(frozen=True, eq=False)
class Official:
    """A data set with the split of its leaderboard: training, validation and test rows.

    `graph` has all labels; `view()` hides those of the test rows. `cutoff` is their first time.
    """

    graph: TemporalGraph
    train: np.ndarray
    valid: np.ndarray
    test: np.ndarray
    cutoff: int

    def view(self) -> TemporalGraph:
        """Return the graph without the labels of the test period."""
        return self.graph.masked(self.cutoff)


def load_ogb(name: str, root: str | Path) -> Official:
    """Read a data set of OGB from a local folder, with its official split by time.

    Only OGB's raw files are read: processed files are pickles.

    Args:
        name: "ogbn-arxiv", "ogbn-mag" or "ogbn-papers100M".
        root: The folder given to OGB as `root`, or the data set's own folder in it.

    Examples:
        >>> load_ogb("ogbn-arxiv", "nowhere")
        Traceback (most recent call last):
        ...
        impact_gnn.checks.InputError: nowhere contains no ogbn-arxiv (expected ogbn_arxiv/raw); ...
    """
    checks.choice("name", name, DATASETS)
    folder = _folder(name, Path(root))
    raw = folder / "raw"
    if (raw / "data.npz").is_file():
        graph = TemporalGraph(
            x=mapped(raw / "data.npz", "node_feat"),
            y=mapped(raw / "node-label.npz", "node_label").reshape(-1),
            time=mapped(raw / "data.npz", "node_year").reshape(-1),
            edge_index=mapped(raw / "data.npz", "edge_index"),
        )
    elif (raw / "triplet-type-list.csv.gz").is_file():
        graph = _from_relations(raw)
    else:
        num_nodes = _size(raw / "num-node-list.csv.gz")
        graph = TemporalGraph(**_node_arrays(raw, num_nodes), edge_index=_edges(raw))
    place = folder / "split" / "time"
    if (place / graph.target).is_dir():
        place = place / graph.target
    rows = {
        part: _rows(place / f"{part}.csv.gz", graph.num_nodes)
        for part in ("train", "valid", "test")
    }
    times = {part: graph.time[rows[part]] for part in rows}
    return Official(graph=graph, **rows, cutoff=_cutoff(times, place))


def download_command(name: str, root: str | Path) -> str:
    """Return the command that downloads a data set; it asks first."""
    return (
        "pip install 'impact-gnn[ogb]' && "
        'python -c "from ogb.nodeproppred import NodePropPredDataset; '
        f"NodePropPredDataset('{name}', root='{root}')\""
    )


def _folder(name: str, root: Path) -> Path:
    plain = name.replace("-", "_")
    for folder in (plain, f"{plain}_pyg", f"{plain}_dgl", DATASETS[name], ""):
        if (root / folder / "raw").is_dir():
            return root / folder
    raise InputError(
        f"{root} contains no {name} (expected {plain}/raw); nothing is downloaded automatically; "
        f"download it with {download_command(name, root)}"
    )


def _from_relations(raw: Path) -> TemporalGraph:
    """Read several types: a folder per relation, and per type with features, years or labels."""
    head, sizes = _table(raw / "num-node-dict.csv.gz", rows=2)[:2]
    nodes: dict[str, dict[str, Any]] = {
        kind: {"num_nodes": int(size), **_node_arrays(raw, int(size), kind)}
        for kind, size in zip(head, sizes, strict=True)
    }
    labelled = [kind for kind, part in nodes.items() if "y" in part]
    if len(labelled) != 1:
        raise InputError(
            f"{raw} has labels for {len(labelled)} node types instead of one; download it again."
        )
    edges: dict[Triple, np.ndarray] = {}
    for source, relation, target in _table(raw / "triplet-type-list.csv.gz"):
        folder = f"relations/{source}___{relation}___{target}"
        edges[source, relation, target] = _edges(_files.inside(raw, folder, directory=True))
    return TemporalGraph.hetero(nodes=nodes, edges=edges, target=labelled[0])


def _node_arrays(raw: Path, rows: int, kind: str | None = None) -> dict[str, Any]:
    """Read features, years and labels of the only type, or those available of one of several."""
    arrays: dict[str, Any] = {}
    for field, (folder, name, dtype) in FIELDS.items():
        file = raw / name if kind is None else _files.inside(raw, f"{folder}/{kind}/{name}")
        if kind is None or file.is_file():
            values = matrix(file, dtype, rows)
            arrays[field] = values if field == "x" else values[:, 0]
    return arrays


def _edges(place: Path) -> np.ndarray:
    return matrix(
        place / "edge.csv.gz", np.int64, _size(place / "num-edge-list.csv.gz"), turned=True
    )


def _rows(file: Path, num_nodes: int) -> np.ndarray:
    with guarded(file):
        rows = np.concatenate(
            [np.empty(0, np.int64), *(block[0] for block in _blocks(file, np.dtype(np.int64)))]
        )
    if len(rows) == 0 or rows.min() < 0 or rows.max() >= num_nodes:
        raise InputError(
            f"{file} must contain positions of the {num_nodes} nodes; download it again."
        )
    return rows


def _cutoff(times: Mapping[str, np.ndarray], place: Path) -> int:
    """Return the first time of the test rows, which must be later than all others."""
    last = int(max(times["train"].max(), times["valid"].max()))
    cutoff = int(times["test"].min())
    if times["train"].max() >= times["valid"].min() or last >= cutoff:
        raise InputError(
            f"the split in {place} does not follow time: test begins at {cutoff}, "
            f"the other nodes end at {last}; download it again."
        )
    return cutoff


def _size(path: Path) -> int:
    return int(matrix(path, np.int64, 1)[0, 0])


def _table(path: Path, rows: int = 1) -> list[list[str]]:
    """Read a small file as text, of at least that many rows."""
    with guarded(path), gzip.open(path, "rt", encoding="utf-8", newline="") as lines:
        content = [line.rstrip("\r\n").split(",") for line in lines if line.strip()]
    if len(content) < rows:
        raise InputError(f"{path} has too few rows; download it again.")
    return content


def matrix(path: Path, dtype: Any, rows: int, *, turned: bool = False) -> np.ndarray:
    """Read numbers of a `.csv.gz` file, [rows, columns] or `turned`; an empty field is NaN."""
    out, done = np.empty((0, 0), dtype), 0
    with guarded(path):
        for block in _blocks(path, np.dtype(dtype)):
            if done == 0:
                out = np.empty((len(block), rows) if turned else (rows, len(block)), dtype)
            stop = done + block.shape[1]
            if stop <= rows:
                (out if turned else out.T)[:, done:stop] = block
            done = stop
    if done != rows:
        raise InputError(f"{path} has {done} rows instead of {rows}; download it again.")
    return out


def _blocks(path: Path, dtype: np.dtype) -> Iterator[np.ndarray]:
    """Yield consecutive rows as [columns, rows]."""
    with gzip.open(path, "rt", encoding="ascii", newline="") as lines:
        first = lines.readline().strip()
    if not first:
        return
    kind = pa.from_numpy_dtype(dtype)
    names = [f"f{k}" for k in range(first.count(",") + 1)]
    with pa.input_stream(path, compression="gzip") as stream:
        reader = pyarrow.csv.open_csv(
            stream,
            read_options=pyarrow.csv.ReadOptions(
                column_names=names, block_size=BLOCK, use_threads=False
            ),
            convert_options=pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(names, kind)),
        )
        for batch in reader:
            if dtype.kind != "f" and any(column.null_count for column in batch.columns):
                raise InputError(
                    f"{path} has empty fields instead of whole numbers; download it again."
                )
            yield np.stack(
                [column.to_numpy(zero_copy_only=False) for column in batch.columns]
            ).astype(dtype)


def mapped(path: Path, name: str, *, small: int = SMALL) -> np.ndarray:
    """Map an array of an archive; a compressed one above `small` bytes is unpacked once.

    An array without compression is stored in the zip file as in a `.npy` file.
    """
    with guarded(path), zipfile.ZipFile(path) as archive:
        available = [entry.removesuffix(".npy") for entry in archive.namelist()]
        if name not in available:
            raise InputError(f"{path} has no array {name}; it has {listing(available)}.")
        entry = archive.getinfo(f"{name}.npy")
        if entry.compress_type == zipfile.ZIP_STORED:
            return _in_place(path, entry)
        if entry.file_size <= small:
            with np.load(path, allow_pickle=False) as arrays:
                return arrays[name]
        # the checksum in its name belongs to these bytes only
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
        np.lib.format.read_magic(file)
        # later versions of the header are for types with many fields, which a graph has none of
        shape, columns_first, dtype = np.lib.format.read_array_header_1_0(file)
        position = file.tell()
    if dtype.hasobject:
        raise InputError(
            f"{path} contains Python objects in {entry.filename}; they are never loaded."
        )
    if 0 in shape:
        return np.empty(shape, dtype)
    order: Literal["F", "C"] = "F" if columns_first else "C"
    flat = np.memmap(path, dtype, "r", offset=position, shape=(math.prod(shape),))
    return flat.reshape(shape, order=order)
