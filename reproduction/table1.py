"""Table 1: what a chronological split costs, and whether a model gains from the time as an input.

The paper compares two splits with different test nodes. Here both are scored on the *same* late
nodes, half of those that have a label, and trained on equally many: "chronological" on nodes before
the cutoff, "random" on any that are not scored. The time is told as 20 sines and cosines beside the
features, which are propagated with them.

The model is SIGN, or SeHGNN on graphs of several types: one matrix per metapath of up to two
relations, no label
metapaths and one stage, where the paper's has labels and four stages.
"""

import time as clock
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

import numpy as np

import impact_gnn as ig
from impact_gnn import checks
from impact_gnn.nn import SIGN, HopTask, SeHGNN, Split, Training, fit, predict
from reproduction import data, published
from reproduction.recipes import standardized
from reproduction.results import ExtraTable, Record, Table
from reproduction.runner import Progress, Task, work_off
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


MODELS = {"sign": "SIGN", "sehgnn": "SeHGNN"}
DATA = {
    "sign": ("tsbm", *data.CUTOFFS),
    "sehgnn": ("aan", "acl_hetero", "elife_hetero", "arxiv_cs_hetero"),
}


@dataclass(frozen=True)
class Model:
    """What is trained, on at most `most_rows` nodes; a TSBM graph has `num_nodes`."""

    name: str = "sign"
    hidden: int = 64
    epochs: int = 100
    lr: float = 0.01
    most_rows: int = 20_000
    num_nodes: int = 2000
    standardize: bool = True  # sines are of another size than most features, and drown them


def run_seed(name: str, root: Path | None, seed: int, model: Model) -> list[Record]:
    """Both splits, with and without the time, scored on the same nodes."""
    graph, cutoff = _graph(name, root, seed, model)
    y, (train, test) = np.asarray(graph.y), rows_of(graph, cutoff, seed, model.most_rows)
    records = []
    for split in SPLITS:
        for with_time in (False, True):
            start, x = clock.process_time(), np.asarray(graph.x)
            x = np.hstack([x, time_embedding(graph.time)]) if with_time else x
            hops = [x, *(hops_of(graph, x) if model.name == "sign" else metapaths_of(graph, x))]
            hops = standardized(hops, train[split]) if model.standardize else hops
            task = HopTask(hops)
            label = np.full(graph.num_nodes, -1)
            label[train[split]] = y[train[split]]  # the model sees no other label
            training = Training(epochs=model.epochs, lr=model.lr, seed=seed, device="cpu")
            make = SIGN if model.name == "sign" else SeHGNN
            build = partial(make, task.in_channels, graph.num_labels, model.hidden)
            result = fit(build, task, label, Split(train[split], np.empty(0, np.int64)), training)
            score = float((predict(result.model, task, test).argmax(1) == y[test]).mean())
            column, seconds = (
                split + (", time told" if with_time else ""),
                clock.process_time() - start,
            )
            records.append(
                Record(
                    study="table1",
                    section=MODELS[model.name],
                    row=name,
                    column=column,
                    seed=seed,
                    score=score,
                    seconds=seconds,
                )
            )
    return records


def table1(
    seeds: int,
    out: Path,
    *,
    names: Sequence[str] | None = None,
    root: Path | None = None,
    model: Model | None = None,
    progress: Progress | None = None,
) -> Table:
    """Runs the comparison.

    Every seed has its own scored nodes, training nodes and weights (and graph, for "tsbm").

    `names` are among `DATA` of the model. Real graphs that are not under `root` are skipped, and
    said to be.
    """
    if checks.whole_number("seeds", seeds) < 2:
        raise ig.InputError(f"seeds={seeds} gives no standard error; use at least 2, better 5.")
    model, tasks = model or Model(), []
    possible = DATA[checks.choice("model", model.name, MODELS)]
    wanted = [checks.choice("data", name, possible) for name in names or possible]
    there = data.at_hand(wanted, root)
    for name in there:
        place = None if name == "tsbm" else root
        size = None if place is None else data.path_of(name, place).stat().st_size
        for seed in range(seeds):
            settings = {
                "study": "table1",
                "data": name,
                "bytes": size,
                "seed": seed,
                "model": model,
            }
            tasks.append(
                Task(f"{name}, seed {seed}", settings, partial(run_seed, name, place, seed, model))
            )
    records = work_off(tasks, out / "parts", progress=progress)
    missing = [name for name in wanted if name not in there]
    notes = [
        f"{name} was skipped: it is not in the folder of real graphs ({root})." for name in missing
    ]
    paper = [f"{value:.4f}" for value in published.TABLE1.values()]
    return Table(
        name="table1",
        title="Table 1's question: what does a chronological split cost, "
        "and does telling the time help?",
        about=f"{MODELS[model.name]}, {model.epochs} epochs, {seeds} seeds. Both splits train on "
        "equally many nodes and are scored on the same late nodes; chronological training sees "
        "earlier nodes only, random training nodes of any time.",
        records=records,
        contrasts=CONTRASTS,
        notes=notes,
        extras=[ExtraTable("The paper: SeHGNN on ogbn-mag", list(published.TABLE1), [paper])],
    )


def time_embedding(time: np.ndarray, size: int = EMBEDDED) -> np.ndarray:
    """Sines and cosines of the time since the first, of wavelengths 2π to 10,000·2π [N, size]."""
    since = (time - time.min()).astype(np.float64)
    angle = since[:, None] / 10_000 ** (np.arange(size // 2) * 2 / size)
    return np.hstack([np.sin(angle), np.cos(angle)]).astype(np.float32)


def rows_of(
    graph: ig.TemporalGraph, cutoff: int, seed: int, most: int
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Equally many rows to train on under either split, and other rows to score."""
    rng, labelled = np.random.default_rng(seed), np.flatnonzero(np.asarray(graph.y) >= 0)
    late = labelled[graph.time[labelled] >= cutoff]
    early = labelled[graph.time[labelled] < cutoff]
    test = np.sort(rng.permutation(late)[: len(late) // 2])
    others = np.setdiff1d(labelled, test)
    size = min(len(early), most)
    picked = {
        "chronological": rng.permutation(early)[:size],
        "random": rng.permutation(others)[:size],
    }
    return {split: np.sort(rows) for split, rows in picked.items()}, test


def hops_of(graph: ig.TemporalGraph, x: np.ndarray) -> list[np.ndarray]:
    """Row means over neighbours.

    Where the only relations lead to another type and back, over both steps.
    """
    if not graph.is_hetero:
        return [np.asarray(hop) for hop in ig.propagate(graph, x=x, hops=HOPS)]
    away, back = sorted(graph.relations, key=lambda triple: triple[0] != graph.target)
    steps, hops = (
        [ig.engines.Memory().operator(graph, away), ig.engines.Memory().operator(graph, back)],
        [x],
    )
    for _ in range(HOPS):
        hops.append(steps[1].apply(steps[0].apply(hops[-1])))
    return hops[1:]


def metapaths_of(graph: ig.TemporalGraph, x: np.ndarray) -> list[np.ndarray]:
    """Row means along every metapath of up to two relations."""
    hops = ig.metapath_hops(graph.with_features(x), length=HOPS)
    return [np.asarray(hop, np.float32) for hop in hops.values()]


@lru_cache(maxsize=1)
def _graph(name: str, root: Path | None, seed: int, model: Model) -> tuple[ig.TemporalGraph, int]:
    if root is None:
        return ig.tsbm(
            model.num_nodes, decay=GAMMA, protocol="released", seed=seed
        ).undirected(), CUTOFF
    cutoff = {**data.CUTOFFS, **data.FURTHER_CUTOFFS}[name]
    if name == "aan" and model.name == "sehgnn":
        return data.aan_with_authors(name, root).undirected(), cutoff
    return data.load(name, root, joined=True).undirected(), cutoff
