"""Does a trainer see what it must not? Labels of the target nodes are permuted; predictions may not notice.

Every permutation is run twice. Whatever a clean trainer does by chance, its runs could be paired in
any other way, and its predictions meet a permuted label as often as any other permutation; both are
tests whose level is exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from impact_gnn._array import to_numpy
from impact_gnn.checks import InputError
from impact_gnn.graph import TemporalGraph

# how often a clean trainer is accused at most; how surely a leak of the stated size is found
LEVEL, POWER = (
    0.01,
    0.9,
)
# with fewer, even a plain leak could be chance in how the runs are paired
DRAWS, LEAST_DRAWS = (
    8,
    5,
)
# drawn to see what chance does, over so many rows
PAIRINGS, PERMUTATIONS, MOST_ROWS = (
    9999,
    1999,
    2000,
)


@dataclass(frozen=True)
class Leakage:
    """What predictions do when the target labels are permuted, and how likely that is if they do not see them."""

    changed: float  # share of the predictions that differ between two permutations
    control: float  # and between two runs of the same one: a trainer need not be repeatable
    num_predictions: int
    draws: int
    p: float  # how often chance alone gives as much or more
    # share of target rows that is found with probability `POWER`, if predictions follow them
    findable: float | None

    @property
    def leaked(self) -> bool:
        return self.p < LEVEL

    def __str__(self) -> str:
        seen = (
            f"p = {self.p:.2g}; {self.draws} permutations of the target labels, each run twice: {self.changed:.1%} of "
            f"{self.num_predictions:,} predictions change with them, {self.control:.1%} by themselves"
        )
        if self.leaked:
            return f"Leak ({seen}): labels at or after the cutoff reach the trainer."
        if self.findable is None:
            return f"No leak found ({seen}). How small one could be cannot be said of predictions that name no classes."
        found = f"would have been found with {POWER:.0%} probability"
        return f"No leak found ({seen}). One of {self.findable:.1%} of the target rows {found}."


def audit_leakage(
    fit_predict: Callable[[TemporalGraph], np.ndarray],
    graph: TemporalGraph,
    *,
    cutoff: int | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> Leakage:
    """Runs a trainer twice on every permutation of the target labels, and compares what it predicts.

    Args:
        fit_predict: Takes a graph (all its labels included, as a careless trainer would see them)
            and returns its predictions, one row per target node, or per node: labels or
            probabilities.
        graph: A graph in which target nodes do have labels.
        cutoff: Nodes at or after it are targets; by default the graph tells.
        draws: Permutations; more of them find smaller leaks, and a choice between fewer models.
        seed: Seed of the permutations.

    Examples:
        >>> from impact_gnn.data.tsbm import tsbm
        >>> g = tsbm(num_nodes=100, num_times=4, num_labels=3, seed=0)
        >>> audit_leakage(lambda g: np.zeros(25), g, cutoff=3).leaked
        False
        >>> audit_leakage(lambda g: g.y[g.time >= 3], g, cutoff=3).leaked
        True
    """
    cutoff = graph.infer_cutoff() if cutoff is None else cutoff
    if draws < LEAST_DRAWS:
        raise InputError(
            f"draws={draws} is too few to tell a leak from chance; give {LEAST_DRAWS} or more."
        )
    graphs = [scrambled(graph, cutoff, seed + draw) for draw in range(draws)]
    target = np.flatnonzero(graph.time >= cutoff)
    runs = [
        _rows(to_numpy(fit_predict(each)), target, graph.num_nodes)
        for each in graphs
        for _ in range(2)
    ]
    if len({values.shape for values in runs}) > 1:
        raise InputError(
            "fit_predict returned predictions of different shapes; return the same columns every time."
        )
    changed, control = (
        float(np.mean([(a != b).any(1).mean() for a, b in zip(runs[::2], other, strict=True)]))
        for other in ([*runs[2::2], runs[0]], runs[1::2])
    )
    rng = np.random.default_rng(seed)
    p, findable = _paired(runs, rng), None
    predicted = [label for values in runs if (label := _labels(values, graph)) is not None]
    if len(predicted) == len(runs):
        truth = np.stack([each.y[target] for each in graphs if each.y is not None])
        followed, findable = _followed(np.stack(predicted), truth, rng)
        p = min(1.0, 2 * min(p, followed))
    return Leakage(changed, control, len(target), draws, p, findable)


def scrambled(graph: TemporalGraph, cutoff: int, seed: int = 0) -> TemporalGraph:
    """The graph with the known labels at or after the cutoff permuted among their nodes."""
    label = np.full(graph.num_nodes, -1) if graph.y is None else np.array(graph.y)
    known = (graph.time >= cutoff) & (label >= 0)
    if len(np.unique(label[known])) < 2:
        raise InputError(
            f"nodes at or after cutoff={cutoff} have no two labels, so there is nothing that could leak."
        )
    label[known] = np.random.default_rng(seed).permutation(label[known])
    return graph.with_labels(label)


def _rows(values: np.ndarray, target: np.ndarray, num_nodes: int) -> np.ndarray:
    """Predictions of the targets [n, columns]."""
    if not values.ndim or len(values) not in (len(target), num_nodes):
        raise InputError(
            f"fit_predict returned shape {values.shape} for {len(target)} targets; return a row for each."
        )
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise InputError("fit_predict returned predictions that are not finite; mend that first.")
    return (values if len(values) == len(target) else values[target]).reshape(len(target), -1)


def _labels(values: np.ndarray, graph: TemporalGraph) -> np.ndarray | None:
    """The predicted class of every row; None if predictions are something else."""
    if values.shape[1] > 1:
        return values.argmax(1) if values.shape[1] == graph.num_labels else None
    numbers = values.dtype.kind in "iuf"
    names = (
        np.arange(graph.num_labels)
        if numbers
        else np.array([str(name) for name in graph.label_names or ()])
    )
    match = (values if numbers else values.astype(str)) == names
    return match.argmax(1) if match.any(1).all() else None


def _paired(runs: Sequence[np.ndarray], rng: np.random.Generator) -> float:
    """How often runs paired at random are as near to each other as those with the same labels, which come in pairs."""
    # of other predictions it counts how many differ
    shares = runs[0].dtype.kind == "f" and runs[0].shape[1] > 1
    distance = np.array(
        [[np.abs(a - b).mean() if shares else (a != b).mean() for b in runs] for a in runs],
        np.float64,
    )
    order = np.tile(np.arange(len(runs)), (1 + PAIRINGS, 1))
    order[1:] = rng.permuted(order[1:], axis=1)
    within = distance[order[:, ::2], order[:, 1::2]].sum(1)
    return float((within <= within[0] * (1 + 1e-9)).mean())


def _followed(
    predicted: np.ndarray, label: np.ndarray, rng: np.random.Generator
) -> tuple[float, float]:
    """How often other permutations meet the predictions as often as their own does, and the least share to be found.

    What counts is how much more often a class is said in the two runs of a draw than in those of
        other draws: rows
    that are always predicted alike say nothing, whatever their label.
    """
    draws, classes, known = len(label), int(max(label.max(), predicted.max())) + 1, label[0] >= 0
    rows = rng.permutation(np.flatnonzero(known & (predicted != predicted[0]).any(0)))[:MOST_ROWS]
    said = np.eye(classes)[predicted[:, rows]].reshape(draws, 2, len(rows), classes).mean(1)
    excess, place = (said - said.mean(0)) * draws / (draws - 1), np.arange(len(rows))
    observed, chance = 0.0, np.zeros(PERMUTATIONS)
    for one, own in zip(excess, label[:, rows], strict=True):
        observed += one[place, own].sum()
        chance += one[place, rng.permuted(np.tile(own, (PERMUTATIONS, 1)), axis=1)].sum(1)
    p = float(1 + (chance >= observed - 1e-9).sum()) / (1 + PERMUTATIONS)
    # A row that follows its label adds 1 − Σ share² in every draw; enough rows must, to stand out
    # from the noise, and for permutations not to agree on all of them.
    count = int(known.sum())
    alike = float(((np.bincount(label[0][known]) / count) ** 2).sum())
    noise = (
        (stats.norm.isf(LEVEL / 2) + stats.norm.isf(1 - POWER))
        * chance.std()
        / (draws * (1 - alike))
    )
    apart = math.log(1 - POWER) / math.log(alike)
    return p, min(1.0, math.ceil(max(noise, apart)) / count)
