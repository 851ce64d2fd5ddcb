"""Claim: a graph of papers100M's shape fits on one small machine.

Every step really runs, each in a process of its own.

111 M nodes, 1.6 B edges with sources as a power law, 32 columns of float16 (columns are
independent: 128 cost four times as much), two hops of PMP within a cap, the second for the labelled
rows only, and those rows gathered.
"""

import shutil
import time
from pathlib import Path

import numpy as np

import impact_gnn as ig
from impact_gnn._native import release
from reproduction.bench import Report, in_process, peak_memory

NODES, EDGES, ROWS = 111_059_956, 1_615_685_872, 1_546_782
BLOCK = 1 << 22


def papers(
    place: Path, scale: float = 1.0, width: int = 32, cap: str = "12GB", json: Path | None = None
) -> Report:
    """Generates, sorts, propagates, gathers in PLACE, which needs 45 GB.

    Seconds, peak memory and disk of each step.
    """
    rows = []
    for step in ("generate", "sort", "propagate", "gather"):
        rows.append(
            {
                "step": step,
                **in_process(run_step, step, str(place), scale=scale, width=width, cap=cap),
            }
        )
        print(rows[-1], flush=True)
    shutil.rmtree(place)
    return Report(
        f"{scale:g} x papers100M, {width} columns of float16, cap {cap}", rows, []
    ).finish(json)


def run_step(step: str, place: str, scale: float, width: float, cap: str) -> dict[str, float]:
    root, start, nodes = Path(place), time.perf_counter(), int(NODES * scale)
    if step == "generate":
        root.mkdir(parents=True)
        rng = np.random.default_rng(0)
        draw = {
            "x": (
                np.float16,
                (nodes, int(width)),
                lambda size: rng.random((size, int(width)), np.float32),
            ),
            "time": (np.int16, (nodes,), lambda size: rng.integers(1990, 2020, size)),
            "edges": (np.int32, (2, int(EDGES * scale)), lambda size: _ends(rng, nodes, size)),
        }
        for name, (kind, shape, make) in draw.items():
            out = np.lib.format.open_memmap(
                root / f"{name}.npy", mode="w+", dtype=kind, shape=shape
            )
            for begin in range(0, max(shape), BLOCK):
                end = min(begin + BLOCK, max(shape))
                (out.T if name == "edges" else out)[begin:end] = make(end - begin)
                release(out)
    else:
        x, when, ends = (
            np.load(root / f"{name}.npy", mmap_mode="r") for name in ("x", "time", "edges")
        )
        graph, engine = (
            ig.TemporalGraph(x=x, time=when, edge_index=ends),
            ig.engines.Disk(root / "work", memory=cap),
        )
        operator = engine.operator(graph, weighting="pmp")
        if step != "sort":
            labelled = np.sort(
                np.random.default_rng(1).choice(nodes, int(ROWS * scale), replace=False)
            )
            hops = engine.hops([operator, operator], x, rows=labelled)
        if step == "gather":
            assert np.isfinite(np.asarray(hops[0])).all()
            assert np.isfinite(np.asarray(hops[1])).all()
    size = float(sum(file.stat().st_size for file in root.rglob("*.npy")))
    return {"seconds": time.perf_counter() - start, "peak": peak_memory(), "disk": size}


def _ends(rng: np.random.Generator, nodes: int, size: int) -> np.ndarray:
    popular = (nodes * rng.random(size, np.float32) ** 2).clip(max=nodes - 1)
    return np.stack([popular.astype(np.int32), rng.integers(0, nodes, size, np.int32)], 1)
