"""Table 4: how the cost of every method grows, compared with the paper's formulas.

It grows with nodes, edges, columns and communities.

One size is doubled at a time, the others stay at `BASE`. A slope is that of log(time) over
log(size), by least squares: 1 for what grows in proportion, 0 for what does not grow. The formula's
own slope is taken over the same sizes with all constants one, as a formula of several terms has no
single power. CPU time of one thread, the median of some rounds in which all methods take turns.
"""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure

import impact_gnn as ig
from impact_gnn import alignment
from impact_gnn.engines import Memory
from reproduction.bench import Clock, Report
from reproduction.runner import Progress, one_thread

WEIGHTINGS = ("plain", "mmp", "pmp", "genpmp")


@dataclass(frozen=True)
class Size:
    """Of a random graph; `side` labels and as many times make side² communities."""

    nodes: int = 50_000
    edges: int = 1_000_000
    columns: int = 32
    side: int = 10

    @property
    def communities(self) -> int:
        return self.side**2


@dataclass(frozen=True)
class Axis:
    """What is varied; `of` is its size as it stands in the formulas."""

    title: str
    sizes: Sequence[Size]
    of: Callable[[Size], int]


BASE = Size()
AXES = (
    Axis("N", [replace(BASE, nodes=25_000 << k) for k in range(5)], lambda size: size.nodes),
    Axis("|E|", [replace(BASE, edges=250_000 << k) for k in range(5)], lambda size: size.edges),
    Axis("f", [replace(BASE, columns=8 << k) for k in range(5)], lambda size: size.columns),
    Axis(
        "|Y||T|",
        [replace(BASE, side=side) for side in (4, 6, 10, 16, 24)],
        lambda size: size.communities,
    ),
)

Formula = Callable[[Size], float]
FORMULAS: Mapping[str, tuple[str, Formula]] = {
    **{f"{name}, weights": ("|E|", lambda s: s.edges) for name in WEIGHTINGS[1:]},
    **{f"{name}, message": ("|E|f", lambda s: s.edges * s.columns) for name in WEIGHTINGS},
    "jjnorm": ("Nf", lambda s: s.nodes * s.columns),
    "pny, connectivity": (
        "N_c² + (N+|E|)f",
        lambda s: s.communities**2 + (s.nodes + s.edges) * s.columns,
    ),
    "pny, maps": (
        "f²(N_c f + N_c² + N)",
        lambda s: s.columns**2 * (s.communities * s.columns + s.communities**2 + s.nodes),
    ),
}
"""The paper's formula for one layer (K = 1, N_c = |Y||T|), in words and as a function.

PNY's row of the table is split: the connectivity is estimated once (the appendix gives its cost),
the maps are made in every layer. Its term |E|f is the message itself.
"""


def calls_of(size: Size, seed: int = 0) -> dict[str, Callable[[], Any]]:
    """What is timed on a random graph; all that does not belong to a method is made before."""
    rng = np.random.default_rng(seed)
    label, moment = rng.integers(0, size.side, (2, size.nodes))
    moment[: size.side] = np.arange(size.side)  # no period is empty
    x = rng.standard_normal((size.nodes, size.columns), dtype=np.float32)
    graph = ig.TemporalGraph(
        x=x,
        y=label,
        time=moment,
        edge_index=rng.integers(0, size.nodes, (2, size.edges), dtype=np.int32),
    )
    period, times, counts = graph.period.astype(np.uint8), graph.times, graph.counts
    cutoff = int(times[-1])
    target, known = moment >= cutoff, np.where(moment >= cutoff, -1, label)
    tables = {name: ig.weighting.table(name, times, counts) for name in WEIGHTINGS}
    steps = {name: Memory(threads=1).operator(graph, weighting=name) for name in WEIGHTINGS}
    message, groups = steps["pmp"].apply(x), alignment.Communities.of(known, moment, target)
    degree = np.diff(graph.csr().indptr)

    def connectivity() -> np.ndarray:
        estimate = ig.connectivity.relative_connectivity(
            graph.edge_index, known, moment, num_labels=size.side, cutoff=cutoff
        )
        return alignment.coefficients(groups, estimate, degree, tables["pmp"])

    def weights(name: str) -> Callable[[], Any]:
        """The table is made anew: it belongs to the method's cost, small as it is."""
        return lambda: ig.weighting.edge_weight(
            ig.weighting.table(name, times, counts), graph.edge_index, period, period
        )

    mixed = connectivity()
    return {
        **{f"{name}, weights": weights(name) for name in WEIGHTINGS[1:]},
        **{f"{name}, message": partial(step.apply, x) for name, step in steps.items()},
        "jjnorm": lambda: alignment.jjnorm_by(message, groups),
        "pny, connectivity": connectivity,
        "pny, maps": lambda: alignment.pny_by(message, x, groups, mixed),
    }


def medians(
    calls: Mapping[str, Callable[[], Any]], rounds: int, clock: Clock = time.process_time
) -> dict[str, float]:
    """The median time of every call over rounds in which they take turns, after a warm-up."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(rounds + 1):
        for name, call in calls.items():
            start = clock()
            call()
            if turn:
                taken[name].append(clock() - start)
    return {name: statistics.median(times) for name, times in taken.items()}


def slope(sizes: Sequence[float], values: Sequence[float]) -> float:
    """The power by which values grow with sizes, by least squares of logarithms.

    Examples:
        >>> round(slope([1, 2, 4], [3, 12, 48]), 6)
        2.0
    """
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


Curves = dict[str, dict[str, list[float]]]
"""Seconds by axis and method, a number for every size of the axis."""


def measured(
    rounds: int = 5, axes: Sequence[Axis] = AXES, progress: Progress | None = None
) -> Curves:
    """Times of all methods along all axes."""
    curves: Curves = {}
    done, total = 0, sum(len(axis.sizes) for axis in axes)
    with one_thread():
        for axis in axes:
            for size in axis.sizes:
                for name, seconds in medians(calls_of(size), rounds).items():
                    curves.setdefault(axis.title, {}).setdefault(name, []).append(seconds)
                done += 1
                if progress is not None:
                    progress(done, total, f"{axis.title} = {axis.of(size):,}")
    return curves


def report(curves: Curves, axes: Sequence[Axis] = AXES) -> Report:
    """A row per method: formula, milliseconds at the base, and the slope along each axis.

    Next to each slope is that of the formula.
    """
    rows = []
    for name, (words, formula) in FORMULAS.items():
        row: dict[str, Any] = {"": name, "paper": f"O({words})"}
        for axis in axes:
            sizes = [axis.of(size) for size in axis.sizes]
            ours, theirs = (
                slope(sizes, curves[axis.title][name]),
                slope(sizes, list(map(formula, axis.sizes))),
            )
            row[axis.title] = f"{ours:.2f} ({abs(theirs):.2f})"
            if axis.title == "f":
                row["ms at f = " + str(sizes[len(sizes) // 2])] = (
                    1e3 * curves[axis.title][name][len(sizes) // 2]
                )
        rows.append(row)
    title = (
        "Slopes in log-log, in brackets the formula's over the same sizes; around N = "
        f"{BASE.nodes:,}, |E| = {BASE.edges:,}, f = {BASE.columns}, |Y||T| = {BASE.communities}, "
        "one thread, one layer."
    )
    return Report(title, rows)


def picture(curves: Curves, axes: Sequence[Axis] = AXES) -> Figure:
    """Milliseconds over size, a panel for every axis.

    MMP and PMP cost what GenPMP does and are left out.
    """
    figure = Figure(figsize=(12, 3.6), layout="constrained")
    panels = figure.subplots(1, len(axes), sharey=True, squeeze=False)[0]
    for panel, axis in zip(panels, axes, strict=True):
        for name in (name for name in FORMULAS if not name.startswith(("mmp", "pmp"))):
            values = [1e3 * seconds for seconds in curves[axis.title][name]]
            panel.plot(
                [axis.of(size) for size in axis.sizes], values, marker="o", markersize=3, label=name
            )
        panel.set(xscale="log", yscale="log", xlabel=axis.title)
        ticks = [axis.of(size) for size in axis.sizes]
        panel.set_xticks(
            ticks,
            [f"{tick / 1000:g}k" if tick >= 10_000 else str(tick) for tick in ticks],
            fontsize=7,
        )
        panel.minorticks_off()
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("milliseconds")
    panels[-1].legend(fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure
