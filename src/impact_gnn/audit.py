"""Leakage audit: target labels are permuted, and predictions of a clean trainer do not follow.

Every permutation is run twice. If a clean trainer is random, its runs can be paired in any other
way, and its predictions agree with a permuted label as often as with any other permutation. Both
are tests with an exact level.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy import ndarray
from scipy import stats

from impact_gnn._array import to_numpy
from impact_gnn.checks import InputError
from impact_gnn.graph import TemporalGraph

LEVEL = 0.01  # largest rate of false alarms
POWER = 0.9  # probability of detecting a leak of the stated size
DRAWS = 8
MIN_DRAWS = 5  # with fewer, the pairing test cannot be significant
PAIRINGS = 9999  # random pairings of runs
PERMUTATIONS = 1999  # random permutations of labels
MAX_ROWS = 2000  # rows of the permutation test


@dataclass(frozen=True)
class Leakage:
    """Changes of predictions when the target labels are permuted, and the p-value of no leak."""

    changed: float  # share of the predictions that differ between two permutations
    control: float  # and between two runs of the same one: a trainer need not be repeatable
    num_predictions: int
    draws: int
    p: float
    # Smallest share of target rows whose leak is detected with probability `POWER`.
    findable: float | None

    @property
    def leaked(self) -> bool:
        return self.p < LEVEL

    def __str__(self) -> str:
        evidence = (
            f"p = {self.p:.2g}; {self.draws} permutations of the target labels, each run twice: "
            f"{self.changed:.1%} of {self.num_predictions:,} predictions change between "
            f"permutations, {self.control:.1%} between identical runs"
        )
        if self.leaked:
            return f"Leak ({evidence}): labels from the cutoff on reach the trainer."
        if self.findable is None:
            return (
                f"No leak found ({evidence}). The smallest detectable leak is unknown, because the "
                "predictions are not classes."
            )
        return (
            f"No leak found ({evidence}). A leak of {self.findable:.1%} of the target rows would "
            f"be detected with {POWER:.0%} probability."
        )


def audit_leakage(
    fit_predict: Callable[[TemporalGraph], ndarray],
    graph: TemporalGraph,
    *,
    cutoff: int | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> Leakage:
    """Run a trainer twice on every permutation of the target labels, and compare predictions.

    Args:
        fit_predict: Takes a graph with all its labels and returns predictions, one row per target
            node, or per node: labels or probabilities.
        graph: A graph in which target nodes do have labels.
        cutoff: Nodes at or after it are targets; by default from the graph.
        draws: Permutations; more of them detect smaller leaks, and a choice between fewer models.
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
    if draws < MIN_DRAWS:
        raise InputError(
            f"draws={draws} is too few to distinguish a leak from chance; use {MIN_DRAWS} or more."
        )
    permuted = [scrambled(graph, cutoff, seed + draw) for draw in range(draws)]
    target = np.flatnonzero(graph.time >= cutoff)
    runs = []  # two per permutation
    for permuted_graph in permuted:
        for _ in range(2):
            predictions = to_numpy(fit_predict(permuted_graph))
            runs.append(_target_rows(predictions, target, graph.num_nodes))
    if len({values.shape for values in runs}) > 1:
        raise InputError(
            "fit_predict returned predictions of different shapes; "
            "return the same columns every time."
        )
    rng = np.random.default_rng(seed)
    p = _pairing_test(runs, rng)
    findable = None
    labels = [_predicted_labels(values, graph) for values in runs]
    known_labels = [label for label in labels if label is not None]
    if len(known_labels) == len(runs):
        truth = np.stack([graph.label[target] for graph in permuted])
        p_following, findable = _permutation_test(np.stack(known_labels), truth, rng)
        p = min(1.0, 2 * min(p, p_following))
    return Leakage(
        changed=_mean_difference(runs[::2], [*runs[2::2], runs[0]]),
        control=_mean_difference(runs[::2], runs[1::2]),
        num_predictions=len(target),
        draws=draws,
        p=p,
        findable=findable,
    )


def _mean_difference(runs: Sequence[ndarray], others: Sequence[ndarray]) -> float:
    """Return the mean share of rows that differ between pairs of runs."""
    shares = []
    for run, other in zip(runs, others, strict=True):
        is_changed = (run != other).any(1)
        shares.append(is_changed.mean())
    return float(np.mean(shares))


def scrambled(graph: TemporalGraph, cutoff: int, seed: int = 0) -> TemporalGraph:
    """Return the graph with the known labels at or after the cutoff permuted among their nodes."""
    label = np.full(graph.num_nodes, -1) if graph.y is None else np.array(graph.y)
    known = (graph.time >= cutoff) & (label >= 0)
    if len(np.unique(label[known])) < 2:
        raise InputError(
            f"nodes from cutoff={cutoff} on have fewer than two different labels, "
            "so nothing could leak."
        )
    label[known] = np.random.default_rng(seed).permutation(label[known])
    return graph.with_labels(label)


def _target_rows(values: ndarray, target: ndarray, num_nodes: int) -> ndarray:
    """Return predictions of the targets [n, columns]."""
    if not values.ndim or len(values) not in (len(target), num_nodes):
        raise InputError(
            f"fit_predict returned shape {values.shape} for {len(target)} targets; "
            "return one row per target."
        )
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise InputError("fit_predict returned predictions that are not finite; fix that first.")
    if len(values) != len(target):
        values = values[target]
    return values.reshape(len(target), -1)


def _predicted_labels(values: ndarray, graph: TemporalGraph) -> ndarray | None:
    """Return the predicted class of every row; None if predictions are something else."""
    if values.shape[1] > 1:
        return values.argmax(1) if values.shape[1] == graph.num_labels else None
    names = np.arange(graph.num_labels)
    if values.dtype.kind not in "iuf":
        names = np.array([str(name) for name in graph.label_names or ()])
        values = values.astype(str)
    is_match = values == names
    return is_match.argmax(1) if is_match.any(1).all() else None


def _pairing_test(runs: Sequence[ndarray], rng: np.random.Generator) -> float:
    """Return the share of random pairings that are as close as the pairs with the same labels."""
    has_probabilities = runs[0].dtype.kind == "f" and runs[0].shape[1] > 1
    distance = np.zeros((len(runs), len(runs)))
    for i, run in enumerate(runs):
        for j, other in enumerate(runs):
            difference = np.abs(run - other) if has_probabilities else run != other
            distance[i, j] = difference.mean()
    # The first order is that of the runs, in which neighbours are pairs.
    order = np.tile(np.arange(len(runs)), (1 + PAIRINGS, 1))
    order[1:] = rng.permuted(order[1:], axis=1)
    first = order[:, ::2]
    second = order[:, 1::2]
    within = distance[first, second].sum(1)
    is_as_close = within <= within[0] * (1 + 1e-9)
    return float(is_as_close.mean())


def _permutation_test(
    predicted: ndarray, label: ndarray, rng: np.random.Generator
) -> tuple[float, float]:
    """Return the p-value of predictions following their labels, and the smallest detectable share.

    The statistic is how much more often a class is predicted in the two runs of a draw than in
    those of other draws. Rows that are always predicted alike carry no information.
    """
    draws = len(label)
    num_labels = int(max(label.max(), predicted.max())) + 1
    is_known = label[0] >= 0
    varying = np.flatnonzero(is_known & (predicted != predicted[0]).any(0))
    rows = rng.permutation(varying)[:MAX_ROWS]
    # The frequency of each class in the two runs of a draw, [draws, rows, classes], minus its mean
    # over the other draws.
    one_hot = np.eye(num_labels)[predicted[:, rows]]
    frequency = one_hot.reshape(draws, 2, len(rows), num_labels).mean(1)
    excess = (frequency - frequency.mean(0)) * draws / (draws - 1)
    position = np.arange(len(rows))
    observed = 0.0
    chance = np.zeros(PERMUTATIONS)
    for draw_excess, draw_label in zip(excess, label[:, rows], strict=True):
        observed += draw_excess[position, draw_label].sum()
        copies = np.tile(draw_label, (PERMUTATIONS, 1))
        permuted = rng.permuted(copies, axis=1)
        chance += draw_excess[position, permuted].sum(1)
    num_as_large = int((chance >= observed - 1e-9).sum())
    p = (1 + num_as_large) / (1 + PERMUTATIONS)
    # A row that follows its label adds 1 − Σ share² in every draw. Enough rows must do so to exceed
    # the noise, and for permutations not to agree on all of them.
    count = int(is_known.sum())
    shares = np.bincount(label[0][is_known]) / count
    agreement = float((shares**2).sum())
    quantiles = stats.norm.isf(LEVEL / 2) + stats.norm.isf(1 - POWER)
    rows_for_noise = quantiles * chance.std() / (draws * (1 - agreement))
    rows_for_agreement = math.log(1 - POWER) / math.log(agreement)
    return p, min(1.0, math.ceil(max(rows_for_noise, rows_for_agreement)) / count)
