"""Claims about graphs of ogbn-mag's size.

Metapaths fit into 12 GB, or into 2 GB with `Disk`; what an epoch costs.
"""

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import impact_gnn as ig
from reproduction.bench import Goal, Report, best_of, in_process, peak_memory
from reproduction.hetero_tsbm import MAG, hetero_tsbm, scaled

CUTOFF = 2019
CONTESTANTS = ("memory", "disk", "disk-float16", "memory-ends", "disk-ends", "memory-labels")
TRAIN_ROWS = 629_571


def metapaths(
    scale: float = 0.1,
    cap: str = "2GB",
    only: str = ",".join(CONTESTANTS),
    place: Path | None = None,
    json: Path | None = None,
) -> Report:
    """All metapaths to papers of up to two relations, with PMP.

    --scale is in units of ogbn-mag's nodes and edges.

    The graph is saved once, with the ways back. Every contestant is a process of its own: in memory
    and on disk, Ω on the edges or on the two ends; label metapaths; on disk in 16 bits, with the
    error that this makes.
    """
    with tempfile.TemporaryDirectory(dir=place) as folder:
        names = ["generate", *only.split(",")]
        rows: list[dict[str, Any]] = [
            {
                "": name,
                **in_process(
                    contest,
                    name,
                    graph=f"{folder}/graph",
                    work=f"{folder}/{name}",
                    scale=scale,
                    cap=cap,
                ),
            }
            for name in names
        ]
    most = {"memory": 12e9, "disk": 2.3e9}
    goals = [
        Goal(f"peak of {row['']}, bytes", -1, most[row[""]], row["peak"])
        for row in rows
        if row[""] in most
    ]
    return Report(f"Metapaths, {scale:g} x ogbn-mag, cap {cap}", rows, goals).finish(json)


def contest(name: str, graph: str, work: str, scale: float, cap: str) -> dict[str, float]:
    start = time.perf_counter()
    if name == "generate":
        hetero_tsbm(**scaled(MAG, scale), seed=0).undirected().save(graph)
        return _cost(start)
    weighting = "ends" if name.endswith("-ends") else "edges"
    if name == "memory-labels":
        hops = ig.metapath_label_hops(ig.load(graph).masked(CUTOFF), weighting="pmp")
        return _cost(start) | {"paths": len(hops)}
    engine = None
    if name.startswith("disk"):
        engine = ig.engines.Disk(
            work, memory=cap, storage="float16" if name.endswith("float16") else None
        )
    hops = ig.metapath_hops(
        ig.load(graph), weighting="pmp", metapath_weighting=weighting, engine=engine
    )
    row = _cost(start) | {"paths": len(hops)}
    if name == "disk-float16":
        exact = ig.metapath_hops(
            ig.load(graph), weighting="pmp", engine=ig.engines.Disk(f"{work}-exact", memory=cap)
        )
        row["relative error"] = max(
            _error(np.asarray(hops[path]), np.asarray(exact[path])) for path in hops
        )
    return row


def sehgnn_epoch(
    steps: int = 12, batch: int = 10_000, hidden: int = 512, json: Path | None = None
) -> Report:
    """What an epoch of SeHGNN costs at ogbn-mag's size, on random hops of the right shapes."""
    import torch
    from torch.nn.functional import cross_entropy

    from impact_gnn.nn import HopTask, SeHGNN

    papers, classes, width = MAG["num_papers"], MAG["num_labels"], MAG["num_features"]
    rng = np.random.default_rng(0)
    hops = [rng.random((papers, width), dtype=np.float32) for _ in range(5)]
    labels = torch.from_numpy(rng.integers(0, classes, papers))
    rows = []
    for name, count in (("features", 0), ("features and labels", 3)):
        task = HopTask(
            hops, [rng.random((papers, classes), dtype=np.float32) for _ in range(count)]
        )
        model = SeHGNN(
            task.in_channels, classes, hidden, label_channels=task.label_channels
        ).train()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

        def step() -> None:
            picked = torch.randint(0, TRAIN_ROWS, (batch,))
            optimizer.zero_grad(set_to_none=True)
            cross_entropy(task.logits(model, picked), labels[picked]).backward()
            optimizer.step()

        seconds = best_of({name: step}, steps, seconds=float("inf"))[name]
        rows.append(
            {"inputs": name, "a step": seconds, "an epoch": seconds * -(-TRAIN_ROWS // batch)}
        )
    return Report(f"SeHGNN, hidden {hidden}, steps of {batch:,} rows, seconds", rows).finish(json)


def _cost(start: float) -> dict[str, float]:
    return {
        "seconds": time.perf_counter() - start,
        "cpu": time.process_time(),
        "peak": peak_memory(),
    }


def _error(rough: np.ndarray, exact: np.ndarray) -> float:
    return float(np.linalg.norm(rough.astype(np.float32) - exact) / np.linalg.norm(exact))
