"""Claim: 1,000 new nodes of a graph of 1 M nodes and 20 M edges are predicted within a second.

Loading does not count.

Every node is linked to nodes before it, drawn uniformly. The last nodes arrive as tables, in two
updates of a saved graph. A fresh process then loads graph and model, and predicts the nodes of the
second update.
"""

import csv
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import impact_gnn as ig
from impact_gnn import _files
from impact_gnn.estimators import Pipeline
from impact_gnn.graph import HOMOGENEOUS, storage
from reproduction.bench import Goal, Report, in_process, peak_memory

PERIODS, LABELS = 20, 10
NODES_AT_ONCE = 1 << 18
METHOD = "pmp+labels"


def newnodes(
    sizes: str = "1000000,10000000",
    degree: int = 20,
    width: int = 64,
    new: int = 1000,
    full: int = 1_000_000,
    place: Path | None = None,
    json: Path | None = None,
) -> Report:
    """New nodes of saved graphs.

    Seconds of update, loading and prediction; all nodes up to --full.
    """
    rows = []
    for size in map(int, sizes.split(",")):
        with tempfile.TemporaryDirectory(dir=place) as folder:
            in_process(write_graph, folder, size - 2 * new, degree, width)
            for number in (0, 1):
                write_tables(Path(folder), size - (2 - number) * new, new, degree, width)
                seconds = in_process(update, folder)
                if number == 0:
                    first_update = seconds
            row = in_process(predict, folder, new, 0)
            if size <= full:
                row |= in_process(predict, folder, new, 1)
        rows.append(
            {
                "nodes": size,
                "edges": size * degree,
                "first update": first_update["seconds"],
                "update": seconds["seconds"],
                **row,
            }
        )
    title = (
        f"{new:,} new nodes, {degree} edges a node, {width} features, sign:{METHOD}, 2 hops; "
        "seconds of wall time, peak memory of the process that predicts"
    )
    first = rows[0]
    goals = [Goal(f"first prediction, {first['nodes']:,} nodes", -1, 1.0, first["first call"])]
    return Report(title, rows, goals).finish(json)


def write_graph(folder: str, nodes: int, degree: int, width: int) -> dict[str, Any]:
    """Save a graph whose nodes are numbered, block by block."""
    rng = np.random.default_rng(0)
    with storage.writing(f"{folder}/graph", target="node", num_labels=LABELS) as writer:
        period = np.arange(nodes) * PERIODS // nodes
        label = np.where(period < PERIODS - 1, rng.integers(0, LABELS, nodes), -1)
        arrays = {"time": period, "y": label, "ids": np.arange(nodes)}
        place = writer.nodes("node", nodes, arrays)
        x = _files.create_array(place / "x.npy", np.float32, (nodes, width))
        place = writer.relation(HOMOGENEOUS, {})
        pairs = _files.create_array(place / "edge_index.npy", np.int32, (nodes * degree, 2))
        for begin in range(0, nodes, NODES_AT_ONCE):
            end = min(begin + NODES_AT_ONCE, nodes)
            x[begin:end] = rng.random((end - begin, width), dtype=np.float32)
            pairs[begin * degree : end * degree] = _links(rng, begin, end, degree)
        x.flush()
        pairs.flush()
    return {}


def _links(rng: np.random.Generator, begin: int, end: int, degree: int) -> np.ndarray:
    """Edges from nodes begin .. end−1 to nodes before them [n, 2]."""
    source = np.repeat(np.arange(begin, end), degree)
    target = (rng.random(len(source)) * np.maximum(source, 1)).astype(np.int64)
    return np.stack([source, target], 1)


def write_tables(folder: Path, begin: int, new: int, degree: int, width: int) -> None:
    """Write new nodes of the last period as tables."""
    rng = np.random.default_rng(begin)
    (folder / "new").mkdir(exist_ok=True)
    np.save(folder / "new" / "features.npy", rng.random((new, width), dtype=np.float32))
    nodes = [[node, PERIODS - 1, ""] for node in range(begin, begin + new)]
    edges = _links(rng, begin, begin + new, degree).tolist()
    for name, header, rows in (
        ("nodes", ["id", "time", "label"], nodes),
        ("edges", ["source", "target"], edges),
    ):
        with (folder / "new" / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([header, *rows])


def update(folder: str) -> dict[str, float]:
    return {"seconds": _seconds(lambda: ig.update(f"{folder}/graph", f"{folder}/new"))}


def predict(folder: str, new: int, everything: int) -> dict[str, float]:
    """Load a graph, predict its last nodes twice, or all.

    A model of a small graph is fitted before.
    """
    small = f"{folder}/small"
    if not Path(small).exists():
        width = int(ig.load(f"{folder}/graph").x.shape[1])  # type: ignore[union-attr]
        write_graph(small, 2000, 5, width)
        Pipeline("sign", METHOD, cutoff=PERIODS - 1, epochs=3).fit(ig.load(f"{small}/graph")).save(
            f"{small}/model"
        )
    model = Pipeline.load(f"{small}/model")
    model.predict_proba(ig.load(f"{small}/graph"), nodes=[1999])  # so that kernels are loaded
    graphs: list[ig.TemporalGraph] = []
    loading = _seconds(lambda: graphs.append(ig.load(f"{folder}/graph")))
    graph = graphs[0]
    if everything:
        return {"all nodes": _seconds(lambda: model.predict_proba(graph))}
    nodes = np.arange(graph.num_nodes - new, graph.num_nodes)
    spent = time.process_time()
    first = _seconds(lambda: model.predict_proba(graph, nodes=nodes))
    spent = time.process_time() - spent
    calls = [_seconds(lambda: model.predict_proba(graph, nodes=nodes)) for _ in range(2)]
    return {
        "loading": loading,
        "first call": first,
        "its CPU": spent,
        "later call": min(calls),
        "peak, GB": peak_memory() / 1e9,
    }


def _seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
