"""The time-stamped node data sets of OGB, read from where OGB's own package keeps them; nothing is downloaded.

`ogbn-arxiv` and `ogbn-mag` come from the compressed tables in `raw`, `ogbn-papers100M` from
`raw/data.npz`, whose features and edges stay where they are and are mapped into memory. The `ogb`
package is not needed for reading.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv

from impact_gnn import _files, checks
from impact_gnn.checks import InputError, guarded
from impact_gnn.data.archive import mapped
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
"""Folder (of several types) and file of the arrays of nodes, and as what they are read; labels may be missing (NaN)."""

BLOCK = 1 << 24  # bytes of text that are parsed in one go


@dataclass(frozen=True, eq=False)
class Official:
    """A data set with the split that its leaderboard uses: rows of the target type to learn from, choose by and score.

    `graph` has all labels: give methods `view()`. `cutoff` is the first time of the test rows.
    """

    graph: TemporalGraph
    train: np.ndarray
    valid: np.ndarray
    test: np.ndarray
    cutoff: int

    def view(self) -> TemporalGraph:
        """The graph without the labels of the test period."""
        return self.graph.masked(self.cutoff)


def load_ogb(name: str, root: str | Path) -> Official:
    """A data set of OGB from a local folder, with its official split by time.

    Read are OGB's raw files; where only PyG's processed file is there, it is opened by torch's
    restricted reader, which builds tensors and PyG's own containers and runs nothing. Other
    processed files are refused.

    Args:
        name: "ogbn-arxiv", "ogbn-mag" or "ogbn-papers100M".
        root: The folder given to OGB as `root`, or the data set's own folder in it.

    Examples:
        >>> load_ogb("ogbn-arxiv", "nowhere")
        Traceback (most recent call last):
        ...
        impact_gnn.checks.InputError: nowhere holds no ogbn-arxiv (looked for ogbn_arxiv/raw); ...
    """
    checks.choice("name", name, DATASETS)
    folder = _folder(name, Path(root))
    raw = folder / "raw"
    if (raw / "data.npz").is_file():
        x, time, edge_index = (
            mapped(raw / "data.npz", key) for key in ("node_feat", "node_year", "edge_index")
        )
        label = mapped(raw / "node-label.npz", "node_label")
        graph = TemporalGraph(
            x=x, y=label.reshape(-1), time=time.reshape(-1), edge_index=edge_index
        )
    elif (raw / "triplet-type-list.csv.gz").is_file():
        graph = _from_relations(raw)
    elif (raw / "edge.csv.gz").is_file():
        graph = TemporalGraph(
            **_node_arrays(raw, _size(raw / "num-node-list.csv.gz")), edge_index=_edges(raw)
        )
    else:
        graph = _from_processed(name, folder)
    place = folder / "split" / "time"
    place = place / graph.target if (place / graph.target).is_dir() else place
    train, valid, test = (
        _rows(place / f"{part}.csv.gz", graph.num_nodes) for part in ("train", "valid", "test")
    )
    return Official(
        graph,
        train,
        valid,
        test,
        _cutoff(graph.time[train], graph.time[valid], graph.time[test], place),
    )


def download_command(name: str, root: str | Path) -> str:
    """What fetches a data set; it asks before it does."""
    return (
        f"pip install 'impact-gnn[ogb]' && python -c \"from ogb.nodeproppred import NodePropPredDataset; "
        f"NodePropPredDataset('{name}', root='{root}')\""
    )


def _folder(name: str, root: Path) -> Path:
    plain = name.replace("-", "_")
    places = [
        root / plain,
        root / f"{plain}_pyg",
        root / f"{plain}_dgl",
        root / DATASETS[name],
        root,
    ]
    for place in places:
        if (place / "raw").is_dir() or (place / "processed").is_dir():
            return place
    raise InputError(
        f"{root} holds no {name} (looked for {plain}/raw); nothing is downloaded by itself, fetch it with "
        f"{download_command(name, root)}"
    )


def _from_relations(raw: Path) -> TemporalGraph:
    """Several types: a folder per relation, and per type that has features, a year or labels."""
    head, sizes = _table(raw / "num-node-dict.csv.gz", rows=2)[:2]
    nodes: dict[str, dict[str, Any]] = {
        kind: {"num_nodes": int(size), **_node_arrays(raw, int(size), kind)}
        for kind, size in zip(head, sizes, strict=True)
    }
    labelled = [kind for kind, part in nodes.items() if "y" in part]
    if len(labelled) != 1:
        raise InputError(
            f"{raw} has labels for {len(labelled)} types of node, one was expected; download it again."
        )
    edges: dict[Triple, np.ndarray] = {}
    for source, relation, target in _table(raw / "triplet-type-list.csv.gz"):
        folder = f"relations/{source}___{relation}___{target}"
        edges[source, relation, target] = _edges(_files.inside(raw, folder, directory=True))
    return TemporalGraph.hetero(nodes=nodes, edges=edges, target=labelled[0])


def _node_arrays(raw: Path, rows: int, kind: str | None = None) -> dict[str, Any]:
    """Features, years and labels of the only type of node, or those that there are of one of several."""
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


def _from_processed(name: str, folder: Path) -> TemporalGraph:
    """The graph in PyG's `geometric_data_processed.pt`, whose tensors are mapped into memory; needs torch.

    The file is a pickle, and pickles can run code when they are loaded.
    `torch.load(weights_only=True)` builds nothing but tensors, plain containers and classes that
    were named beforehand; named here are the four in which PyG keeps a graph. Anything else in the
    file is refused.
    """
    file = folder / "processed" / "geometric_data_processed.pt"
    if not file.is_file():
        raise InputError(
            f"{folder} has no raw files that can be read, and other processed files than PyG's are pickles, which "
            f"are never loaded; fetch the raw files again with {download_command(name, folder.parent)}"
        )
    import torch
    from torch_geometric.data import Data
    from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
    from torch_geometric.data.storage import GlobalStorage

    from impact_gnn.data.pyg import from_pyg

    allow = getattr(torch.serialization, "safe_globals", None)
    if allow is None:
        raise InputError(
            f"{file} can be read with torch 2.5 or later; install it, or restore the raw files."
        )
    try:
        with allow([Data, DataEdgeAttr, DataTensorAttr, GlobalStorage]):
            content = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # damaged archives and refused classes raise many kinds
        why = f"holds more than tensors, or is damaged, and is not loaded ({' '.join(str(error).split())[:160]})"
        raise InputError(f"{file} {why}; restore the raw files.") from None
    data = content[0] if isinstance(content, tuple) and content else content
    if not isinstance(data, Data):
        raise InputError(
            f"{file} holds no graph but a {type(data).__name__}; restore the raw files."
        )
    return from_pyg(data, time="node_year")


def _rows(file: Path, num_nodes: int) -> np.ndarray:
    with guarded(file):
        rows = np.concatenate(
            [np.empty(0, np.int64), *(block[0] for block in _blocks(file, np.dtype(np.int64)))]
        )
    if len(rows) == 0 or rows.min() < 0 or rows.max() >= num_nodes:
        raise InputError(
            f"{file} must name some of {num_nodes} nodes by position; download it again."
        )
    return rows


def _cutoff(train: np.ndarray, valid: np.ndarray, test: np.ndarray, place: Path) -> int:
    """The first time of the test rows, which must lie after all others: later code splits by time alone."""
    last, first = int(max(train.max(), valid.max())), int(test.min())
    if train.max() >= valid.min() or last >= first:
        why = f"test begins at {first}, the rest ends at {last}"
        raise InputError(f"the split in {place} does not follow time: {why}; download it again.")
    return first


def _size(path: Path) -> int:
    return int(matrix(path, np.int64, 1)[0, 0])


def _table(path: Path, rows: int = 1) -> list[list[str]]:
    """A small file as text, of at least so many rows."""
    with guarded(path), gzip.open(path, "rt", encoding="utf-8", newline="") as lines:
        content = [line.rstrip("\r\n").split(",") for line in lines if line.strip()]
    if len(content) < rows:
        raise InputError(f"{path} has too few rows; download it again.")
    return content


def matrix(path: Path, dtype: Any, rows: int, *, turned: bool = False) -> np.ndarray:
    """The numbers in a `.csv.gz` file of so many rows, [rows, columns] or `turned`; an empty field is NaN."""
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
        raise InputError(f"{path} has {done} rows where {rows} belong; download it again.")
    return out


def _blocks(path: Path, dtype: np.dtype) -> Iterator[np.ndarray]:
    """Consecutive rows as [columns, rows]."""
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
                    f"{path} has empty fields where whole numbers belong; download it again."
                )
            yield np.stack(
                [column.to_numpy(zero_copy_only=False) for column in batch.columns]
            ).astype(dtype)
