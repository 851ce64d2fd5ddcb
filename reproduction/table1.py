"""Table 1's question: what does a chronological split cost, and does a model gain from being told the time?

The paper compares two splits with different test nodes. Here both are scored on the *same* late nodes and trained on
equally many, so that the difference is that of training on the past instead of on nodes of any time:

* half of the labelled nodes at or after the cutoff are scored (drawn anew for every seed);
* "chronological" trains on labelled nodes before the cutoff, "random" on as many from all that are not scored.

The time is told as 20 sines and cosines beside the features, which are propagated with them.
"""

from __future__ import annotations

import time as clock
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

import impact_gnn as ig
from impact_gnn import checks
from impact_gnn.checks import InputError
from impact_gnn.nn import SIGN, HopTask, Split, Training, fit, predict
from reproduction import data, published
from reproduction.operation import operation
from reproduction.results import ExtraTable, Record, Table
from reproduction.runner import Progress, work_off
from reproduction.synthetic import CUTOFF, GAMMA

EMBEDDED = 20
HOPS = 2
SPLITS = ("chronological", "random")
CONTRASTS = (
    ("random", "chronological"),
    ("random, time told", "chronological, time told"),
    ("chronological, time told", "chronological"),
    ("random, time told", "random"),
)


@dataclass(frozen=True)
class Model:
    """The SIGN that is trained; `most_rows` is the most nodes it is trained on, `num_nodes` those of a TSBM graph."""

    hidden: int = 64
    epochs: int = 100
    lr: float = 0.01
    most_rows: int = 20_000
    num_nodes: int = 2000


@dataclass(frozen=True)
class SeedTask:
    """Both splits, with and without the time, on the nodes of one seed."""

    name: str
    root: str | None
    seed: int
    model: Model

    @property
    def title(self) -> str:
        return f"{self.name}, seed {self.seed}"

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that the scores depend on; a data file counts by its place and size."""
        size = None if self.root is None else data.path_of(self.name, Path(self.root)).stat().st_size
        return {"study": "table1", "bytes": size, **asdict(self)}

    def run(self) -> list[Record]:
        """Four scores on the same nodes."""
        graph, cutoff = _graph(self.name, self.root, self.seed, self.model.num_nodes)
        train, test = rows_of(graph, cutoff, self.seed, self.model.most_rows)
        return [self._score(graph, split, train[split], test, told) for split in SPLITS for told in (False, True)]

    def _score(
        self, graph: ig.TemporalGraph, split: str, train: np.ndarray, test: np.ndarray, told: bool
    ) -> Record:  # fmt: skip
        start = clock.process_time()
        x, y = np.asarray(graph.x), np.asarray(graph.y)
        x = np.hstack([x, time_embedding(graph.time)]) if told else x
        task = HopTask([x, *hops_of(graph, x)])
        label = np.full(graph.num_nodes, -1)
        label[train] = y[train]  # the model sees no other label
        training = Training(epochs=self.model.epochs, lr=self.model.lr, seed=self.seed, device="cpu")
        build = partial(SIGN, task.in_channels, graph.num_labels, self.model.hidden)
        result = fit(build, task, label, Split(train, np.empty(0, np.int64)), training)
        score = float((predict(result.model, task, test).argmax(1) == y[test]).mean())
        column = split + (", time told" if told else "")
        return Record("table1", "SIGN", self.name, column, self.seed, score, clock.process_time() - start)


def table1(
    seeds: int,
    out: Path,
    *,
    names: Sequence[str] | None = None,
    root: Path | None = None,
    model: Model | None = None,
    progress: Progress | None = None,
) -> Table:
    """Runs the comparison; every seed has its own scored nodes, training nodes and weights (and graph, for "tsbm").

    `names` are "tsbm" and names of `data.CUTOFFS`. Real graphs that are not under `root` are skipped, and said to be.
    """
    if checks.whole_number("seeds", seeds) < 2:
        raise InputError(f"seeds={seeds} gives no standard error; take at least 2, better 5.")
    wanted = [checks.choice("data", name, ("tsbm", *data.CUTOFFS)) for name in names or ("tsbm", *data.CUTOFFS)]
    there = [
        name for name in wanted if name == "tsbm" or (root is not None and data.path_of(name, root).is_file())
    ]  # fmt: skip
    if not there:
        raise InputError(f"none of {', '.join(wanted)} is there; name the folder of the real graphs with --root.")
    tasks = [
        SeedTask(name, None if name == "tsbm" else str(root), seed, model or Model())
        for name in there for seed in range(seeds)
    ]  # fmt: skip
    records = work_off(tasks, out / "parts", progress=progress)
    notes = [f"{name} was skipped: {_absent(name, root)}" for name in wanted if name not in there]
    paper = [f"{value:.4f}" for value in published.TABLE1.values()]
    return Table(
        "table1", "Table 1's question: what does a chronological split cost, and does telling the time help?",
        f"SIGN, {seeds} seeds. Both splits train on equally many nodes and are scored on the same late nodes; "
        f"chronological training sees earlier nodes only, random training nodes of any time.",
        records, CONTRASTS, notes=notes,
        extras=[ExtraTable("The paper: SeHGNN on ogbn-mag", list(published.TABLE1), [paper])],
    )  # fmt: skip


def time_embedding(time: np.ndarray, size: int = EMBEDDED) -> np.ndarray:
    """Sines and cosines of the time since the first one, wavelengths from 2π to 10,000·2π [N, size].

    Example:
        >>> time_embedding(np.array([2001, 2002]), 4).round(2)
        array([[0. , 0. , 1. , 1. ],
               [0.84, 0.01, 0.54, 1. ]], dtype=float32)
    """
    since = (time - time.min()).astype(np.float64)
    angle = since[:, None] / 10_000 ** (np.arange(size // 2) * 2 / size)
    return np.hstack([np.sin(angle), np.cos(angle)]).astype(np.float32)


def rows_of(
    graph: ig.TemporalGraph, cutoff: int, seed: int, most: int
) -> tuple[dict[str, np.ndarray], np.ndarray]:  # fmt: skip
    """Rows to train on under either split, equally many, and the rows to score, which neither trains on."""
    assert graph.y is not None
    rng = np.random.default_rng(seed)
    labelled = np.flatnonzero(graph.y >= 0)
    late = labelled[graph.time[labelled] >= cutoff]
    early = labelled[graph.time[labelled] < cutoff]
    test = np.sort(rng.permutation(late)[: len(late) // 2])
    others = np.setdiff1d(labelled, test)
    size = min(len(early), most)
    picked = {"chronological": rng.permutation(early)[:size], "random": rng.permutation(others)[:size]}
    return {split: np.sort(rows) for split, rows in picked.items()}, test


def hops_of(graph: ig.TemporalGraph, x: np.ndarray) -> list[np.ndarray]:
    """Row means over neighbours; where the only relations lead to another type and back, over both steps."""
    if not graph.is_hetero:
        return [np.asarray(hop) for hop in ig.propagate(graph, x=x, hops=HOPS)]
    away, back = sorted(graph.relations, key=lambda triple: triple[0] != graph.target)
    steps, hops = [operation(graph, away), operation(graph, back)], [x]
    for _ in range(HOPS):
        hops.append(steps[1].apply(steps[0].apply(hops[-1])))
    return hops[1:]


@lru_cache(maxsize=1)
def _graph(name: str, root: str | None, seed: int, num_nodes: int) -> tuple[ig.TemporalGraph, int]:
    if root is None:
        return ig.tsbm(num_nodes, decay=GAMMA, protocol="released", seed=seed).undirected(), CUTOFF
    return data.load(name, Path(root), joined=True).undirected(), data.CUTOFFS[name]


def _absent(name: str, root: Path | None) -> str:
    return "no directory of real graphs was given." if root is None else f"{data.path_of(name, root)} is not there."
