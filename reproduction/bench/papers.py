"""Claim: a graph of papers100M's shape fits on one small machine; every step really run, each a process of its own.

111 M nodes, 1.6 B edges with sources as a power law, 32 columns of float16 (columns are independent: 128 cost four
times as much), two hops of PMP within a cap, the second for the labelled rows only, and those rows gathered.
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
    place: Path, scale: float = 1.0, width: int = 32, cap: str = "12GB", keep: bool = False, json: Path | None = None
) -> Report:
    """Generates, sorts, propagates, gathers in PLACE, which needs 45 GB; seconds, peak memory and disk of each step."""
    rows = []
    for step in ("generate", "sort", "propagate", "gather"):
        rows.append({"step": step, **in_process(run_step, step, str(place), scale, width, cap)})
        print(rows[-1], flush=True)
    if not keep:
        shutil.rmtree(place)
    return Report(f"{scale:g} x papers100M, {width} columns of float16, cap {cap}", rows, []).finish(json)


def run_step(step: str, place: str, scale: float, width: float, cap: str) -> dict[str, float]:
    root, start = Path(place), time.perf_counter()
    nodes, edges = int(NODES * scale), int(EDGES * scale)
    if step == "generate":
        _generate(root, nodes, edges, int(width))
    else:
        names = ("x", "time", "edges")
        x, when, ends = (np.load(root / f"{name}.npy", mmap_mode="r") for name in names)
        graph, engine = ig.TemporalGraph(x=x, time=when, edge_index=ends), ig.engines.Disk(root / "work", memory=cap)
        operator = engine.operator(graph, weighting="pmp")
        if step != "sort":
            labelled = np.sort(np.random.default_rng(1).choice(nodes, int(ROWS * scale), replace=False))
            hops = engine.hops([operator, operator], x, rows=labelled)
        if step == "gather":
            assert np.isfinite(hops[0].rows(labelled)).all()
            assert np.isfinite(hops[1].rows(np.arange(len(labelled)))).all()
    size = float(sum(file.stat().st_size for file in root.rglob("*.npy")))
    return {"seconds": time.perf_counter() - start, "peak": peak_memory(), "disk": size}


def _generate(root: Path, nodes: int, edges: int, width: int) -> None:
    """Mapped arrays, filled block by block."""
    root.mkdir(parents=True)
    rng = np.random.default_rng(0)
    shapes = {"x": (np.float16, (nodes, width)), "time": (np.int16, (nodes,)), "edges": (np.int32, (2, edges))}
    for name, (kind, shape) in shapes.items():
        out = np.lib.format.open_memmap(root / f"{name}.npy", mode="w+", dtype=kind, shape=shape)
        for begin in range(0, max(shape), BLOCK):
            part = slice(begin, min(begin + BLOCK, max(shape)))
            size = part.stop - part.start
            if name == "x":
                out[part] = rng.random((size, width), np.float32)
            elif name == "time":
                out[part] = rng.integers(1990, 2020, size)
            else:
                out[0, part] = (nodes * rng.random(size, np.float32) ** 2).clip(max=nodes - 1)
                out[1, part] = rng.integers(0, nodes, size, np.int32)
            release(out)
