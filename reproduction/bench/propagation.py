"""Claim: `ig.propagate` is twice as fast as other libraries, and close to what memory allows."""

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import impact_gnn as ig
from reproduction.bench import Goal, Report, best_of, keep_memory, one_core

PERIODS = 10
DEGREE = 20
PIECE = 1 << 22
GROWTH = tuple(size * 10**power for power in (6, 7, 8) for size in (1, 2, 5))


def propagation(
    nodes: int = 1_000_000,
    edges: int = 20_000_000,
    widths: str = "16,64,128,256",
    rounds: int = 5,
    peers: bool = True,
    busy: bool = False,
    growth_to: int = 0,
    order: bool = False,
    plot: Path | None = None,
    json: Path | None = None,
) -> list[Report]:
    """One hop against torch, scipy, PyG and a gather-only roofline.

    --growth-to N also times graphs up to N edges (drawn into --plot), --order what sorting nodes by
    time brings; --busy gives everybody one core and counts CPU time.
    """
    if plot is not None and not growth_to:
        raise ig.InputError(
            "--plot draws the growth, but none is measured; add --growth-to 200000000."
        )
    keep_memory()
    if busy:
        one_core()
    columns = [int(width) for width in widths.split(",")]
    reports = [_contest(power_law(nodes, edges), columns, rounds, peers, busy).finish(json)]
    if growth_to:
        reports.append(
            Report(f"Growth, 16 columns, {DEGREE} edges a node", growth(growth_to)).finish(None)
        )
        if plot is not None:
            from reproduction import plots

            plots.write(plots.growth(reports[-1].rows), plot)
    if order:
        reports.append(
            Report("Nodes by time against random order", _order(nodes, edges // 2)).finish(None)
        )
    return reports


def power_law(nodes: int, edges: int, exponent: float = 2.5, seed: int = 0) -> ig.TemporalGraph:
    """A random graph in 10 periods.

    Targets uniform, the number of edges from a source by a power law.
    """
    rng = np.random.default_rng(seed)
    share = 1 / (exponent - 1)  # the k-th most frequent source is drawn in proportion to k^-share
    name = rng.permutation(nodes).astype(np.int32)
    ends = np.empty((2, edges), np.int32)
    for first in range(0, edges, PIECE):
        size = min(edges - first, PIECE)
        rank = (nodes * rng.random(size) ** (1 / (1 - share))).astype(np.int64)
        ends[0, first : first + size] = name[np.minimum(rank, nodes - 1)]
        ends[1, first : first + size] = rng.integers(0, nodes, size, dtype=np.int32)
    return ig.TemporalGraph(
        time=np.random.default_rng(seed).integers(0, PERIODS, nodes), edge_index=ends
    )


def growth(most: int, rounds: int = 4) -> list[dict[str, float]]:
    """Nanoseconds per edge of a PMP pass over 16 columns, from a million edges up to `most`."""
    rows = []
    for edges in (size for size in GROWTH if size <= most):
        step = ig.engines.Memory().operator(power_law(edges // DEGREE, edges), weighting="pmp")
        x, out = _matrix(edges // DEGREE, 16), _matrix(edges // DEGREE, 16)
        taken = best_of({"pmp": lambda: step.apply(x, out)}, rounds)["pmp"]
        rows.append({"edges": edges, "ns per edge": taken / edges * 1e9})
    return rows


def same(name: str, ours: np.ndarray, theirs: np.ndarray) -> None:
    """A peer that computes something else is no peer."""
    if ours.shape != theirs.shape or not np.allclose(
        ours[::997], theirs[::997], rtol=1e-3, atol=1e-4
    ):
        raise AssertionError(f"{name} does not compute the same message.")


def _contest(
    graph: ig.TemporalGraph, widths: list[int], rounds: int, with_peers: bool, busy: bool
) -> Report:
    from reproduction.bench.peers import peers, roofline

    threads = len(os.sched_getaffinity(0))
    engine, step = (
        ig.engines.Memory(threads=threads),
        ig.engines.Memory().operator(graph, weighting="pmp"),
    )
    others = peers(graph, "pmp", threads) if with_peers else {}
    rows: dict[str, dict[str, Any]] = {}
    goals = []
    for width in widths:
        x, out = _matrix(graph.num_nodes, width), _matrix(graph.num_nodes, width)

        def hop(data: ig.TemporalGraph, weighting: str = "pmp", norm: str = "mean") -> np.ndarray:
            return np.asarray(
                ig.propagate(data, weighting=weighting, hops=1, norm=norm, engine=engine)[0]
            )

        # checked once, on input
        full, half = (
            graph.with_features(x),
            graph.with_features(x.astype(np.float16)),
        )
        calls: dict[str, Callable[[], Any]] = {
            "propagate, plain": lambda: hop(full, "plain"),
            "propagate, pmp": lambda: hop(full),
            "propagate, pmp, float16": lambda: hop(half),
            "operation, pmp": lambda: step.apply(x, out, threads),
            "roofline": lambda: roofline(graph, x, threads),
        }
        for name, (product, norm) in others.items():
            same(
                name, np.asarray(product(x)), hop(full, "pmp" if norm == "mean" else "plain", norm)
            )
            calls[name] = partial(product, x)
        best = best_of(
            calls, rounds, seconds=12.0, clock=time.process_time if busy else time.perf_counter
        )
        for name, taken in best.items():
            rows.setdefault(name, {"seconds": name})[f"f = {width}"] = taken
        ours = best["propagate, pmp"]
        if others:
            fastest = min(others, key=lambda name: best[name])
            goals.append(
                Goal(f"speed against {fastest}, f = {width}", 1, 2.0, best[fastest] / ours)
            )
        goals.append(
            Goal(f"PMP against plain, f = {width}", -1, 1.1, ours / best["propagate, plain"])
        )
        if width == 128:
            share = best["roofline"] / best["operation, pmp"]
            goals.append(Goal("share of the roofline, f = 128", 1, 0.8, share))
            goals.append(
                Goal("float16 against float32", 1, 1.5, ours / best["propagate, pmp, float16"])
            )
            exact = hop(full)
            off = np.linalg.norm(hop(half).astype(np.float32) - exact) / np.linalg.norm(exact)
            goals.append(Goal("relative error of float16", -1, 1e-3, float(off)))
    title = f"{graph.num_nodes:,} nodes, {graph.edge_index.shape[1]:,} edges, {threads} threads"
    return Report(title, list(rows.values()), goals)


def _order(nodes: int, edges: int) -> list[dict[str, float]]:
    """How much faster a pass is with nodes in order of time than in random order.

    Links decay over time.

    The more periods there are, the fewer nodes each holds, and neighbours in time become neighbours
    in memory. A link reaches back a geometric number of periods: half of them stay within the
    period, a quarter go back one, and so on.
    """
    rows = []
    for periods in (10, 100, 1000, 10_000):
        rng = np.random.default_rng(0)
        each = nodes // periods
        target = rng.integers(0, each * periods, edges)
        back = np.maximum(target // each - (rng.geometric(0.5, edges) - 1), 0)
        ends, mixed = (
            np.stack([back * each + rng.integers(0, each, edges), target]),
            rng.permutation(nodes),
        )
        now = np.zeros(nodes, np.int64)
        graphs = [
            ig.TemporalGraph(time=now, edge_index=each_way) for each_way in (ends, mixed[ends])
        ]
        steps = [ig.engines.Memory().operator(graph) for graph in graphs]
        x, out = _matrix(nodes, 128), _matrix(nodes, 128)
        calls = {
            name: lambda step=step: step.apply(x, out)
            for name, step in zip("ab", steps, strict=True)
        }
        best = best_of(calls, 5)
        rows.append({"periods": periods, "times as fast": best["b"] / best["a"]})
    return rows


def _matrix(nodes: int, width: int) -> np.ndarray:
    """Uniform float32 around zero.

    It begins on a cache line, so that rows touch as few of them as they can.
    """
    room = np.empty(nodes * width + 16, np.float32)
    begin = -room.ctypes.data % 64 // 4
    x = room[begin : begin + nodes * width].reshape(nodes, width)
    np.random.default_rng(0).random(out=x, dtype=np.float32)
    return np.subtract(x, 0.5, out=x)
