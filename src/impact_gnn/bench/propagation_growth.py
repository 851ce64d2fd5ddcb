"""How the time of a pass grows with the graph, and what the order of nodes does to it."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from impact_gnn import _files
from impact_gnn.bench.graphs import near_in_time, power_law, random_matrix
from impact_gnn.bench.timing import rounds, timed
from impact_gnn.checks import InputError
from impact_gnn.propagation.building import build_csr
from impact_gnn.propagation.operator import Operator
from impact_gnn.weighting import pmp

SIZES = (10**6, 2 * 10**6, 5 * 10**6, 10**7, 2 * 10**7, 5 * 10**7, 10**8, 2 * 10**8)
DEGREE = 20
PERIODS = 10


def growth(most: int, *, width: int = 16, turns: int = 3, seed: int = 0) -> list[dict[str, float]]:
    """Nanoseconds per edge of a PMP pass (best of `turns`) from a million edges up to `most`, 20 edges a node."""
    found = []
    for edges in (size for size in SIZES if size <= most):
        nodes = edges // DEGREE
        period = np.random.default_rng(seed).integers(0, PERIODS, nodes)
        operator = Operator(power_law(nodes, edges, 2.5, seed), pmp(np.arange(PERIODS)), period, period)
        x, out = random_matrix(nodes, width, seed), random_matrix(nodes, width, seed)
        times = [timed(lambda: operator.apply(x, out)) for _ in range(turns + 1)]  # noqa: B023
        found.append({"edges": edges, "nodes": nodes, "width": width, "ns_per_edge": min(times) / edges * 1e9})
    return found


def draw_growth(rows: Sequence[dict[str, float]], path: Path) -> None:
    """Nanoseconds per edge against the size of the graph, as a plot in `path` (.png or .svg)."""
    if find_spec("matplotlib") is None:
        raise InputError("a plot needs matplotlib; pip install matplotlib.")
    from matplotlib.figure import Figure  # no pyplot: it keeps figures alive and asks for a display

    figure = Figure(figsize=(6, 3.4), layout="constrained")
    axis = figure.subplots()
    axis.plot([row["edges"] for row in rows], [row["ns_per_edge"] for row in rows], marker="o", color="tab:blue")
    axis.set(xscale="log", xlabel="edges", ylabel="ns per edge", ylim=(0, None))
    axis.set_title(f"One hop with PMP weights, {rows[0]['width']:.0f} columns, {DEGREE} edges a node", fontsize=10)
    axis.grid(alpha=0.3)
    with _files.atomic_file(path) as temporary:
        figure.savefig(temporary, format=path.suffix[1:] or "png", dpi=130)


def node_order(nodes: int, edges: int, *, width: int = 128, turns: int = 5, seed: int = 0) -> list[dict[str, float]]:
    """How much faster a pass is with nodes in order of time than in random order, where links decay over time.

    The more periods there are, the fewer nodes each holds, and neighbours in time become neighbours in memory.
    """
    found = []
    mixed = np.random.default_rng(seed).permutation(nodes)
    for periods in (10, 100, 1000, 10_000):
        source, target = near_in_time(nodes, edges, periods, seed)
        nothing = np.zeros(nodes, np.uint8)
        by_time, at_random = (
            Operator(build_csr(begin, end, nodes, nodes), np.ones((1, 1)), nothing, nothing)
            for begin, end in ((source, target), (mixed[source], mixed[target]))
        )
        x, out = random_matrix(nodes, width, seed), random_matrix(nodes, width, seed)
        calls = {"by time": lambda: by_time.apply(x, out), "at random": lambda: at_random.apply(x, out)}  # noqa: B023
        best = {name: min(times) for name, times in rounds(calls, turns, 60.0).items()}
        found.append({"periods": periods, "speedup": best["at random"] / best["by time"]})
    return found
