"""Table 1's question: what does a chronological split cost, and does a model gain from being told the time?

The paper compares two splits with different test nodes. Here both are scored on the *same* late nodes and trained on
equally many, so that the difference is that of training on the past instead of on nodes of any time:

* half of the labelled nodes at or after the cutoff are scored (drawn anew for every seed);
* "chronological" trains on labelled nodes before the cutoff, "random" on as many from all that are not scored.

The time is told as 20 sines and cosines beside the features, which are propagated with them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from impact_gnn import __version__, checks
from impact_gnn.checks import InputError
from impact_gnn.data.tsbm import tsbm
from impact_gnn.experiments import output, real
from impact_gnn.experiments.runs import Progress
from impact_gnn.experiments.setting import CUTOFF, GAMMA
from impact_gnn.nn import SIGN, HopTask, Split, Training, fit, predict
from impact_gnn.statistics import paired

EMBEDDED = 20
LEAST_SEEDS = 5
SPLITS = ("chronological", "random")


@dataclass(frozen=True)
class Model:
    """The SIGN that is trained; `most_rows` is the most nodes it is trained on."""

    hidden: int = 64
    epochs: int = 100
    lr: float = 0.01
    most_rows: int = 20_000


def run(
    seeds: int = LEAST_SEEDS,
    *,
    data: Sequence[str] | None = None,
    root: Path | None = None,
    model: Model | None = None,
    num_nodes: int = 2000,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Runs the comparison and returns it, ready for `write`.

    Args:
        seeds: Repetitions, each with its own scored nodes, training nodes and weights (and graph, for "tsbm").
        data: "tsbm" and names of `real.LOADERS`; by default all that are there.
        root: Directory of the real graphs; they are skipped, and said to be, where it is not there.
        model: Size and training of the model.
        num_nodes: Nodes of a TSBM graph.
        progress: Called with runs done, runs in all, and a title.

    Example:
        >>> result = run(2, data=["tsbm"], model=Model(hidden=4, epochs=2), num_nodes=200)
        >>> [(row["split"], row["time_embedding"]) for row in result["rows"]]
        [('chronological', False), ('chronological', True), ('random', False), ('random', True)]
    """
    if checks.whole_number("seeds", seeds) < 2:
        raise InputError(f"seeds={seeds} gives no standard error; take at least 2, better {LEAST_SEEDS}.")
    for name in data or ():
        checks.choice("data", name, ("tsbm", *real.LOADERS))
    there = ["tsbm", *(real.names(Path(root)) if root is not None else [])]
    wanted = ["tsbm", *real.LOADERS] if data is None else list(data)
    model = Model() if model is None else model
    chosen = [name for name in wanted if name in there]
    rows: list[dict[str, Any]] = []
    contrasts: list[dict[str, Any]] = []
    for number, name in enumerate(chosen):
        scores: dict[tuple[str, bool], list[float]] = {(split, told): [] for split in SPLITS for told in (False, True)}
        for seed, problem in enumerate(_problems(name, root, seeds, num_nodes)):
            sizes = _one_seed(problem, seed, model, scores)
            if progress is not None:
                progress(number * seeds + seed + 1, len(chosen) * seeds, f"{name}, seed {seed}")
        rows += [_row(name, split, told, values, sizes) for (split, told), values in scores.items()]
        contrasts += _contrasts(name, scores)
    return {
        "experiment": "table1",
        "version": __version__,
        "settings": {"seeds": seeds, "hidden": model.hidden, "epochs": model.epochs, "embedded": EMBEDDED},
        "rows": rows,
        "contrasts": contrasts,
        "skipped": [_absent(name, root) for name in wanted if name not in there],
    }


def write(result: dict[str, Any], directory: Path) -> list[Path]:
    """Writes table1.json, .csv, .md, .png and .svg; returns the files."""
    return output.write("table1", result, Path(directory))


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


def _problems(name: str, root: Path | None, seeds: int, num_nodes: int) -> Iterator[real.Problem]:
    """The problem for every seed: a new graph of the block model, or always the same real one."""
    if name == "tsbm":
        for seed in range(seeds):
            yield real.of_graph(tsbm(num_nodes, decay=GAMMA, protocol="released", seed=seed), CUTOFF)
        return
    assert root is not None  # only data sets that are there are asked for
    problem = real.load(name, Path(root))
    for _ in range(seeds):
        yield problem


def _one_seed(
    problem: real.Problem, seed: int, model: Model, scores: dict[tuple[str, bool], list[float]]
) -> tuple[int, int]:
    """Adds the four scores of a seed; returns the numbers of nodes trained on and scored."""
    train, test = rows_of(problem, seed, model.most_rows)
    for told in (False, True):
        x = np.hstack([problem.x, time_embedding(problem.time)]) if told else problem.x
        task = HopTask([x, *problem.hops(x)])
        for split in SPLITS:
            label = np.full(len(problem.y), -1)
            label[train[split]] = problem.y[train[split]]  # the model sees no other label
            result = fit(
                lambda widths=task.in_channels: SIGN(widths, problem.num_labels, model.hidden),  # type: ignore[misc]
                task, label, Split(train[split], np.empty(0, np.int64)),
                Training(epochs=model.epochs, lr=model.lr, seed=seed, device="cpu"),
            )  # fmt: skip
            guessed = predict(result.model, task, test).argmax(1)
            scores[split, told].append(float((guessed == problem.y[test]).mean()))
    return len(train["random"]), len(test)


def rows_of(problem: real.Problem, seed: int, most: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Rows to train on under either split, equally many, and the rows to score, which neither trains on."""
    rng = np.random.default_rng(seed)
    labelled = np.flatnonzero(problem.y >= 0)
    late = labelled[problem.time[labelled] >= problem.cutoff]
    early = labelled[problem.time[labelled] < problem.cutoff]
    test = np.sort(rng.permutation(late)[: len(late) // 2])
    others = np.setdiff1d(labelled, test)
    size = min(len(early), most)
    picked = {"chronological": rng.permutation(early)[:size], "random": rng.permutation(others)[:size]}
    return {split: np.sort(rows) for split, rows in picked.items()}, test


def _row(name: str, split: str, told: bool, values: Sequence[float], sizes: tuple[int, int]) -> dict[str, Any]:
    return {
        "data": name,
        "split": split,
        "time_embedding": told,
        "mean": float(np.mean(values)),
        "se": float(np.std(values, ddof=1)) / math.sqrt(len(values)),
        "seeds": len(values),
        "train": sizes[0],
        "test": sizes[1],
        "scores": list(values),
    }


def _contrasts(name: str, scores: dict[tuple[str, bool], list[float]]) -> list[dict[str, Any]]:
    """What the split costs, and what telling the time gains under either; same nodes, graphs and seeds."""
    pairs = (
        ("random − chronological", ("random", False), ("chronological", False)),
        ("random − chronological, time told", ("random", True), ("chronological", True)),
        ("time told − not told, chronological", ("chronological", True), ("chronological", False)),
        ("time told − not told, random", ("random", True), ("random", False)),
    )
    found = []
    for what, one, other in pairs:
        estimate = paired(np.array(scores[one]), np.array(scores[other]))
        numbers = {"difference": estimate.value, "difference_se": estimate.error}
        found.append({"data": name, "what": what, **numbers, "low": estimate.low, "high": estimate.high})
    return found


def _absent(name: str, root: Path | None) -> str:
    if root is None:
        return f"{name} was skipped: no directory of real graphs was given."
    return f"{name} was skipped: {Path(root) / name / (name + '.npz')} is not there."
