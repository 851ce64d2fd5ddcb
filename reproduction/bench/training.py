"""Claim: the training loop has no waste: no other way to run it saves 5 % of its CPU time.

The first training of a pipeline is recorded. It is profiled once, and some of its epochs are then
run in every variant, round after round.
"""

import cProfile
import math
import pstats
import time
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.nn import functional

from impact_gnn.estimators import Pipeline
from impact_gnn.graph import TemporalGraph
from impact_gnn.methods import Kind, Part, register, unregister
from impact_gnn.nn import HopTask, Run, blocks, decoupled, hetero
from reproduction.bench import Report, best_of, in_process
from reproduction.bench.search import graph_of

PARTS = {
    "input layers, forward": ("nn/blocks.py", "encode_each"),
    "backward": ("torch/_tensor.py", "backward"),
    "selection of rows": ("nn/tasks.py", "_select"),
    "validation": ("nn/training.py", "validate"),
    "copies of weights": ("nn/training.py", "copy_state"),
}
"""Parts of a training: file and function."""

BATCHES = (4096, 8192)
VALIDATED = 4  # every so many epochs


def training(
    root: Path = Path("../shared/data"),
    graphs: str = "aan,elife_hetero,nvd_hetero",
    models: str = "sign,sehgnn,sehgnn",
    method: str = "labels",
    epochs: int = 4,
    rounds: int = 5,
    json: Path | None = None,
) -> Report:
    """Shares of a training's CPU time, and CPU time of epochs in other ways over that of today."""
    options = {"root": str(root), "method": method, "epochs": epochs, "rounds": rounds}
    columns = {
        name: in_process(measure, name, model, **options)
        for name, model in zip(graphs.split(","), models.split(","), strict=True)
    }
    figures = dict.fromkeys(figure for column in columns.values() for figure in column)
    rows = [
        {"figure": figure, **{name: column.get(figure, "") for name, column in columns.items()}}
        for figure in figures
    ]
    title = f"training of {models} with {method}, one thread; {epochs} epochs, best of {rounds}"
    return Report(title, rows).finish(json)


def measure(
    name: str, model: str, *, root: str, method: str, epochs: int, rounds: int
) -> dict[str, float]:
    """Profile the first training of a pipeline, and time some epochs of it in every variant."""
    torch.set_num_threads(1)
    graph, cutoff = graph_of(name, Path(root))
    pipeline = Pipeline(model, f"{method}+recorded", cutoff=cutoff)
    arguments, options = recorded(pipeline, graph.masked(cutoff))
    build, task, labels, split, training = arguments
    profile = cProfile.Profile(time.process_time)
    profile.runcall(Run(*arguments, **options).result)
    stats: Any = pstats.Stats(profile)
    figures = {
        "training rows": len(split.train),
        "hops": len(task.hops) + len(task.label_hops),
        "CPU seconds": stats.total_tt,
    }
    for part, (file, function) in PARTS.items():
        seconds = sum(
            entry[3]  # with what it calls
            for (path, _, called), entry in stats.stats.items()
            if path.endswith(file) and called == function
        )
        figures[f"share of {part}"] = seconds / stats.total_tt

    def run(
        *, kind: type[Run] = Run, inputs: HopTask = task, batch: int | None = training.batch_size
    ) -> None:
        some = replace(training, epochs=epochs, patience=None, batch_size=batch)
        kind(build, inputs, labels, split, some, **options).result()

    def run_fused() -> None:
        with (
            patch.object(decoupled, "encode_each", encode_together),
            patch.object(hetero, "encode_each", encode_together),
        ):
            run()

    variants = {
        "today": run,
        "hops side by side, one selection": partial(run, inputs=JoinedTask.of(task)),
        "one input layer for hops of one width": run_fused,
        "no copies of weights": partial(run, kind=RunWithoutCopies),
        f"validation every {VALIDATED} epochs": partial(run, kind=RunWithFewValidations),
    }
    if training.batch_size is not None:  # else all rows are one batch
        variants |= {f"batches of {size}": partial(run, batch=size) for size in BATCHES}
    seconds_of = best_of(variants, rounds, seconds=math.inf, clock=time.process_time)
    for variant, seconds in seconds_of.items():
        figures[variant] = seconds / seconds_of["today"]
    return figures


def recorded(pipeline: Pipeline, view: TemporalGraph) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Fit a pipeline with the part "recorded"; return the arguments of its first training."""
    runs = []

    class Recorded(Run):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            runs.append((arguments, options))
            super().__init__(*arguments, **options)

    part = Part(
        "recorded",
        Kind.TRAINING,
        "records the training",
        training=lambda training: replace(training, run=Recorded),
    )
    register(part)
    try:
        pipeline.fit(view)
    finally:
        unregister("recorded")
    return runs[0]


class JoinedTask(HopTask):
    """All hops as columns of one matrix, so that a batch is one `index_select`."""

    @classmethod
    def of(cls, task: HopTask) -> "JoinedTask":
        joined = cls(task.hops, task.label_hops)
        joined.matrices = torch.cat([*joined.hops, *joined.label_hops], dim=1)
        return joined

    def to(self, device: torch.device) -> "JoinedTask":
        return self

    def _select(self, rows: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        widths = self.in_channels + self.label_channels
        hops = list(self.matrices.index_select(0, rows).split(widths, dim=1))
        return hops[: len(self.hops)], hops[len(self.hops) :]


class RunWithoutCopies(Run):
    """Copies the weights once: more than could be saved by copying those that still count."""

    def copy_state(self) -> dict[str, Tensor]:
        if self.states:
            return self.states[-1]
        return super().copy_state()


class RunWithFewValidations(Run):
    """Validates some epochs only, which changes the epoch that is chosen."""

    def validate(self, epoch: int) -> tuple[float, float]:
        if epoch % VALIDATED != 1:
            return math.nan, math.nan
        return super().validate(epoch)


def encode_together(layers: Iterable[nn.Module], hops: Iterable[Tensor]) -> list[Tensor]:
    """`encode_each`, with one batched layer for the first hops, which have the same width."""
    layers, hops = list(layers), list(hops)
    count = len(list(takewhile(lambda hop: hop.shape == hops[0].shape, hops)))
    linear, norm, activation, dropout = zip(*layers[:count], strict=True)
    # Weights [k, width, hidden]; all that belongs to a unit is [k, 1, hidden] or [k, 1, 1].
    weight = torch.stack([layer.weight for layer in linear]).mT
    bias, scale, shift, slope = (
        torch.stack([getattr(layer, name) for layer in kind])[:, None]
        for kind, name in (
            (linear, "bias"),
            (norm, "weight"),
            (norm, "bias"),
            (activation, "weight"),
        )
    )
    encoded = torch.baddbmm(bias, torch.stack(hops[:count]), weight)
    encoded = functional.layer_norm(encoded, encoded.shape[-1:]) * scale + shift
    encoded = functional.relu(encoded) - slope * functional.relu(-encoded)
    rest = blocks.encode_each(layers[count:], hops[count:])
    return [*dropout[0](encoded).unbind(0), *rest]
