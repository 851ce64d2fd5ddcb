"""Does a trainer see what it must not? Labels of the target nodes are scrambled; predictions may not notice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from impact_gnn._array import to_numpy
from impact_gnn.checks import InputError
from impact_gnn.graph import TemporalGraph


@dataclass(frozen=True)
class Leakage:
    """How many predictions changed when the target labels were scrambled, and without cause."""

    changed: float  # share of the predictions
    # The share that changed when nothing was scrambled: a trainer that is not repeatable cannot be told from a leaking
    # one unless scrambling changes clearly more.
    control: float
    num_predictions: int

    @property
    def leaked(self) -> bool:
        noise = 3 * np.sqrt(max(self.control * (1 - self.control), 1e-12) / self.num_predictions)
        return self.changed > (self.control + noise if self.control > 0 else 0)

    def __str__(self) -> str:
        share = f"{self.changed:.1%} of {self.num_predictions:,} predictions changed when target labels were scrambled"
        if self.leaked:
            return f"Leak: {share} ({self.control:.1%} without it); labels at or after the cutoff reach the trainer."
        if self.control > 0:
            return (
                f"No leak seen, but the trainer is not repeatable ({self.control:.1%} of predictions change by "
                f"themselves, {self.changed:.1%} with scrambled labels); fix its seed to be sure."
            )
        return "No leak: predictions are identical with scrambled target labels."


def audit_leakage(
    fit_predict: Callable[[TemporalGraph], np.ndarray],
    graph: TemporalGraph,
    *,
    cutoff: int | None = None,
    seed: int = 0,
) -> Leakage:
    """Runs a trainer on the graph, again, and with scrambled target labels, and compares what it predicts.

    Args:
        fit_predict: Takes a graph (all its labels included, as a careless trainer would see them) and returns its
            predictions, one row per predicted node: labels or probabilities.
        graph: A graph in which target nodes do have labels.
        cutoff: Nodes at or after it are targets; by default the graph tells.
        seed: Seed of the scrambling.

    Example:
        >>> from impact_gnn.data.tsbm import tsbm
        >>> g = tsbm(num_nodes=100, num_times=4, num_labels=3, seed=0)
        >>> print(audit_leakage(lambda g: np.zeros(25), g, cutoff=3))
        No leak: predictions are identical with scrambled target labels.
        >>> audit_leakage(lambda g: g.y[g.time >= 3], g, cutoff=3).leaked
        True
    """
    cutoff = graph.infer_cutoff() if cutoff is None else cutoff
    graphs = graph, graph, scrambled(graph, cutoff, seed)
    outcomes = [to_numpy(fit_predict(each)) for each in graphs]
    if not all(values.ndim and len(values) for values in outcomes):
        raise InputError("fit_predict returned no predictions; return one row per target node.")
    first, repeated, changed = (values.reshape(len(values), -1) for values in outcomes)
    if not len(first) == len(repeated) == len(changed):
        raise InputError("fit_predict returned different numbers of predictions; return one row per target node.")
    if not first.shape == repeated.shape == changed.shape:
        raise InputError("fit_predict returned predictions of different shapes; return the same columns every time.")
    by_scrambling, by_itself = (float((first != other).any(1).mean()) for other in (changed, repeated))
    return Leakage(by_scrambling, by_itself, len(first))


def scrambled(graph: TemporalGraph, cutoff: int, seed: int = 0) -> TemporalGraph:
    """The graph with every known label at or after the cutoff replaced by another one."""
    if graph.y is None or graph.num_labels < 2:
        raise InputError("an audit needs labels of at least two classes to scramble.")
    known = (graph.time >= cutoff) & (graph.y >= 0)
    if not known.any():
        raise InputError(f"no node at or after cutoff={cutoff} has a label, so there is nothing that could leak.")
    shift = np.random.default_rng(seed).integers(1, graph.num_labels, graph.num_nodes)
    return graph.with_labels(np.where(known, (graph.y + shift) % graph.num_labels, graph.y))
