"""Claim: aligning every layer's message costs little more than the plain GCN.

The paper's code needed 582 times (JJnorm) and 348 times (PNY) the plain GCN's time. Here all methods train the same
2-layer network with `nn.fit` on the same graph, with the same kernels, one after the other and round after round;
the best round counts, and only ratios within a run are claims. Epochs are trained without validation.

On a machine that others use at the same time, `busy=True` counts CPU time; `benchmarks/layerwise.py --busy` also
keeps everybody on one thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from torch import nn

from impact_gnn.bench.timing import machine
from impact_gnn.checks import InputError
from impact_gnn.data.tsbm import tsbm
from impact_gnn.graph import TemporalGraph
from impact_gnn.nn import GCN, PNY, GraphTask, Propagation, Training, align_layer, fit, predict, split_rows

METHODS = ("none", "center", "jjnorm", "pny", "pny-constant")
"""Names from `nn.ALIGNMENTS`, and "pny-constant": PNY whose maps count as constants in the backward pass."""


@dataclass(frozen=True)
class Setting:
    """A graph, a network, and the largest ratios allowed.

    `amortised` compares median epochs, the first one left out: for settings that train a few epochs and stand for
    many. Otherwise whole trainings are compared, with all that is done once.
    """

    name: str
    nodes: int
    mean_degree: float | None
    hidden: int
    epochs: int
    rounds: int
    jjnorm: float
    pny: float
    amortised: bool = False


SMALL = Setting("small", 2000, None, hidden=16, epochs=200, rounds=3, jjnorm=1.5, pny=3.0)
LARGE = Setting("large", 200_000, 20.0, hidden=256, epochs=4, rounds=2, jjnorm=1.3, pny=2.0, amortised=True)


def run(
    setting: Setting = SMALL, *, methods: tuple[str, ...] = METHODS, busy: bool = False, seed: int = 0
) -> dict[str, Any]:
    """Trains a 2-layer GCN on a TSBM graph with every method and compares the times.

    Args:
        setting: `SMALL`, `LARGE`, or one of your own.
        methods: Some of `METHODS`; "none", the plain GCN, must be among them.
        busy: Whether to count CPU time instead of the clock on the wall.
        seed: Seed of graph and training.

    Returns:
        `machine`, `setup`, per method the `seconds` of its best round (whole and per epoch), the `ratio` to the plain
        GCN and the `accuracy` on the nodes at or after the cutoff; `goals` with what was reached.
    """
    if "none" not in methods:
        raise InputError(f"methods={methods} must hold 'none', which the others are compared with.")
    graph = tsbm(
        setting.nodes, protocol="released", decay=0.6, mean_degree=setting.mean_degree, seed=seed
    )  # fmt: skip
    view = graph.masked(int(graph.times[-2]))
    assert view.x is not None  # the TSBM has features
    task = GraphTask(view.x, Propagation.of(view))
    contest = _Contest(graph, view, task, setting.hidden, time.process_time if busy else time.perf_counter, seed)
    layers = {name: _layer(name, view) for name in methods}
    for layer in layers.values():  # compiles, and makes what is made once for a graph
        contest.train(layer, epochs=1)
    turns = [
        {name: contest.train(layer, setting.epochs) for name, layer in layers.items()} for _ in range(setting.rounds)
    ]
    found = {}
    for name in methods:
        best = min((turn[name] for turn in turns), key=lambda row: row["seconds"])
        per_epoch = min(turn[name]["seconds_per_epoch"] for turn in turns)
        found[name] = {**best, "seconds_per_epoch": per_epoch}
    compared = "seconds_per_epoch" if setting.amortised else "seconds"
    for row in found.values():
        row["ratio"] = row[compared] / found["none"][compared]
    return {
        "machine": machine(),
        "setup": {"setting": setting.name, "nodes": view.num_nodes, "edges": int(view.edge_index.shape[1])}
        | {"hidden": setting.hidden, "epochs": setting.epochs, "compared": compared, "seed": seed}
        | {"clock": "cpu" if busy else "wall"},
        "methods": found,
        "goals": _goals(found, setting),
    }


def show(result: dict[str, Any], console: Console | None = None) -> None:
    """Prints the figures as tables."""
    console = console or Console()
    setup = result["setup"]
    what = f"{setup['nodes']:,} nodes, {setup['edges']:,} edges, hidden {setup['hidden']}, {setup['epochs']} epochs"
    console.print(f"{what} ({setup['clock']} clock)", highlight=False)
    table = Table("alignment", "seconds", "ms per epoch", "ratio", "accuracy")
    for name, row in result["methods"].items():
        numbers = f"{row['seconds']:.2f}", f"{1e3 * row['seconds_per_epoch']:.1f}", f"{row['ratio']:.2f}"
        table.add_row(name, *numbers, f"{row['accuracy']:.3f}")
    console.print(table)
    for goal in result["goals"]:
        met = "[green]met" if goal["met"] else "[red]not met"
        console.print(f"{goal['goal']}: asked {goal['sign']} {goal['asked']}, found {goal['found']:.2f}, {met}")


@dataclass(frozen=True, eq=False)
class _Contest:
    """What all methods share."""

    graph: TemporalGraph
    view: TemporalGraph
    task: GraphTask
    hidden: int
    clock: Callable[[], float]
    seed: int

    def train(self, align: nn.Module | None, epochs: int) -> dict[str, float]:
        """One training: its seconds, those of its median epoch after the first, and the accuracy on the targets."""
        labels, truth = self.view.y, self.graph.y
        assert labels is not None and truth is not None  # noqa: PT018 - the TSBM has labels
        ends = [self.clock()]
        training = Training(
            epochs=epochs, seed=self.seed, device="cpu", progress=lambda epoch: ends.append(self.clock())
        )
        result = fit(
            lambda: GCN(self.task.x.shape[1], self.view.num_labels, self.hidden, align=align),
            self.task, labels, split_rows(self.view, valid=0), training,
        )  # fmt: skip
        rows = np.flatnonzero(self.view.targets())
        right = predict(result.model, self.task, rows).argmax(1) == truth[rows]
        each = np.diff(ends)
        return {
            "seconds": float(each.sum()),
            "seconds_per_epoch": float(np.median(each[1:] if len(each) > 1 else each)),
            "accuracy": float(right.mean()),
        }


def _layer(name: str, view: TemporalGraph) -> nn.Module | None:
    layer = align_layer(name.removesuffix("-constant"), view)
    if isinstance(layer, PNY):
        layer.exact_gradient = not name.endswith("-constant")
    return layer


def _goals(found: dict[str, dict[str, float]], setting: Setting) -> list[dict[str, Any]]:
    asked = {"jjnorm": setting.jjnorm, "pny": setting.pny}
    return [
        {"goal": f"time of {name} against the plain GCN, {setting.name}", "sign": "<=", "asked": most}
        | {"found": found[name]["ratio"], "met": found[name]["ratio"] <= most}
        for name, most in asked.items()
        if name in found
    ]
