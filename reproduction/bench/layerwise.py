"""Claim: aligning every layer's message costs little more than the plain GCN.

The paper's code needed 582 times (JJnorm) and 348 times (PNY) the plain GCN's time. Here all
methods train the same 2-layer network with `nn.fit` on the same graph, without validation.
"""

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import nn

import impact_gnn as ig
from impact_gnn.nn import (
    GCN,
    PNY,
    GraphTask,
    Propagation,
    Training,
    align_layer,
    fit,
    predict,
    split_rows,
)
from reproduction.bench import Clock, Goal, Report, one_core

METHODS = ("none", "center", "jjnorm", "pny", "pny-constant")
"""Names from `nn.ALIGNMENTS`, and "pny-constant": PNY whose maps have no gradient."""


@dataclass(frozen=True)
class Setting:
    """A graph, a network, and the largest ratios allowed.

    `amortised` compares median epochs, not whole trainings.
    """

    nodes: int = 2000
    mean_degree: float | None = None
    hidden: int = 16
    epochs: int = 200
    rounds: int = 3
    jjnorm: float = 1.5
    pny: float = 3.0
    amortised: bool = False


LARGE = Setting(200_000, 20.0, hidden=256, epochs=4, rounds=2, jjnorm=1.3, pny=2.0, amortised=True)


def layerwise(
    large: bool = False,
    methods: str = ",".join(METHODS),
    busy: bool = False,
    json: Path | None = None,
) -> Report:
    """A GCN with layer-wise alignment against the plain one.

    --large takes 200,000 nodes and hidden 256 instead of 2,000 and 16; --busy one core and its CPU
    time.
    """
    if busy:
        one_core()
    clock = time.process_time if busy else time.perf_counter
    return compare(LARGE if large else Setting(), tuple(methods.split(",")), clock).finish(json)


def compare(
    setting: Setting, methods: tuple[str, ...] = METHODS, clock: Clock = time.perf_counter
) -> Report:
    """Trains the network with every method and compares the times of the best rounds."""
    if "none" not in methods:
        raise ig.InputError(
            f"methods={methods} must hold 'none', which the others are compared with."
        )
    graph = ig.tsbm(
        setting.nodes, protocol="released", decay=0.6, mean_degree=setting.mean_degree, seed=0
    )
    view = graph.masked(int(graph.times[-2]))
    task = GraphTask(np.asarray(view.x), Propagation.of(view))
    rows, truth = np.flatnonzero(view.targets()), np.asarray(graph.y)

    def train(align: nn.Module | None, epochs: int) -> dict[str, float]:
        ends = [clock()]
        training = Training(
            epochs=epochs, seed=0, device="cpu", progress=lambda epoch: ends.append(clock())
        )
        result = fit(
            lambda: GCN(task.x.shape[1], view.num_labels, setting.hidden, align=align),
            task,
            np.asarray(view.y),
            split_rows(view, valid=0),
            training,
        )
        each = np.diff(ends)
        right = predict(result.model, task, rows).argmax(1) == truth[rows]
        epoch = float(np.median(each[1:] if len(each) > 1 else each))
        return {
            "seconds": float(each.sum()),
            "ms per epoch": 1e3 * epoch,
            "accuracy": float(right.mean()),
        }

    layers = {name: _layer(name, view) for name in methods}
    for layer in layers.values():  # compiles, and makes what is made once for a graph
        train(layer, 1)
    turns = [
        {name: train(layer, setting.epochs) for name, layer in layers.items()}
        for _ in range(setting.rounds)
    ]
    counted = "ms per epoch" if setting.amortised else "seconds"
    best = {
        name: min((turn[name] for turn in turns), key=lambda row: row[counted]) for name in methods
    }
    ratio = {name: row[counted] / best["none"][counted] for name, row in best.items()}
    asked = {"jjnorm": setting.jjnorm, "pny": setting.pny}
    return Report(
        f"{view.num_nodes:,} nodes, {view.edge_index.shape[1]:,} edges, hidden {setting.hidden}, "
        f"{counted} compared",
        [{"alignment": name, **row, "over plain": ratio[name]} for name, row in best.items()],
        [
            Goal(f"{name} over the plain GCN", -1, most, ratio[name])
            for name, most in asked.items()
            if name in ratio
        ],
    )


def _layer(name: str, view: ig.TemporalGraph) -> nn.Module | None:
    layer = align_layer(name.removesuffix("-constant"), view)
    if isinstance(layer, PNY):
        layer.exact_gradient = not name.endswith("-constant")
    return layer
