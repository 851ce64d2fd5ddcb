"""Writes graphs of the temporal stochastic block model to disk that are larger than memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from impact_gnn import _files
from impact_gnn._progress import Progress, watched
from impact_gnn.checks import InputError
from impact_gnn.data import drawing
from impact_gnn.data.drawing import Draw
from impact_gnn.data.tsbm import TSBM
from impact_gnn.graph import HOMOGENEOUS, storage

CHUNK = 1 << 22  # edges written in one go, where memory allows
FEATURES = 1 << 22  # feature values drawn together


def write_tsbm(
    directory: str | Path,
    model: TSBM,
    *,
    seed: int | None = None,
    memory: str | int = "2GB",
    progress: bool | Progress = False,
) -> None:
    """Write the graph `model.sample(seed)` to a directory, without all its edges in memory.

    The directory appears under its name when it is complete. Edges are stored in 32 bits where
    nodes allow it. `memory` bounds the arrays in memory at any moment; `progress` is as in `Disk`.

    Examples:
        >>> import tempfile
        >>> from impact_gnn.data.tsbm import tsbm_model
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model = tsbm_model(num_nodes=3000, mean_degree=10)
        ...     write_tsbm(folder + "/graph", model, memory="100MB")
    """
    report = watched(progress)
    directory = Path(directory)
    nodes, width = model.num_nodes, model.num_features
    blocks = model.num_labels * model.num_times
    # Memory besides a chunk of edges: measured, rounded up.
    fixed = 32 * nodes + 150 * blocks**2 + 12 * max(FEATURES, width) + (1 << 24)
    limit = _files.byte_size(memory)
    if limit < fixed:
        raise InputError(
            f"memory={memory!r} is too small for {nodes:,} nodes in {blocks:,} blocks; "
            f"use at least {_files.readable_size(fixed)}."
        )
    draw = Draw(model, model.seed if seed is None else seed)
    dtype = draw.pairs.members.dtype
    num_edges = 2 * int(draw.pairs.count.sum())
    existing = next(parent for parent in directory.absolute().parents if parent.exists())
    _files.require_space(existing, nodes * (4 * width + 16) + 2 * num_edges * dtype.itemsize)
    with storage.writing(directory, target="node", num_labels=model.num_labels) as writer:
        place = writer.nodes("node", nodes, {})
        x = _files.create_array(place / "x.npy", np.float32, (nodes, width))
        _write(x, feature_chunks(model, draw.label, draw.feature_seed))
        # In 64 bits, as a graph has them: opening the directory then copies nothing.
        for name, values, origin in (("y", draw.label, 0), ("time", draw.period, model.start)):
            array = _files.create_array(place / f"{name}.npy", np.int64, (nodes,))
            _write(array, [values.astype(np.int64) + origin])
        place = writer.relation(HOMOGENEOUS, {})
        edges = _files.create_array(place / "edge_index.npy", dtype, (num_edges, 2))
        done = 0
        for part in edge_chunks(draw, min(CHUNK, (limit - fixed) // (2 * dtype.itemsize))):
            _write(edges, [np.ascontiguousarray(part.T)], 2 * done)
            done += part.shape[1]
            report("edges", done, num_edges)


def _write(array: np.memmap, parts: Iterable[np.ndarray], first: int = 0) -> None:
    """Write values to the file of an array, from position `first` on.

    Pages of a memory map would count as ours, and a full disk would kill the process.
    """
    with open(str(array.filename), "r+b") as file:
        file.seek(array.offset + first * array.itemsize)
        for part in parts:
            file.write(part.data)


def feature_chunks(
    model: TSBM, label: np.ndarray, seed: np.random.SeedSequence
) -> Iterator[np.ndarray]:
    """Yield the features of all nodes, some rows at a time."""
    rng = np.random.default_rng(seed)
    rows = max(1, FEATURES // model.num_features)
    for first in range(0, len(label), rows):
        yield drawing.draw_features(model, label[first : first + rows], rng)


def edge_chunks(draw: Draw, size: int) -> Iterator[np.ndarray]:
    """Yield all edges in whole pieces: at most `size` edges, unless one piece has more."""
    ends = 2 * np.cumsum(draw.pairs.count)
    first = done = 0
    while first < len(ends):
        last = max(first + 1, int(np.searchsorted(ends, done + size, side="right")))
        yield draw.pairs.edges(first, last)
        first = last
        done = int(ends[last - 1])
