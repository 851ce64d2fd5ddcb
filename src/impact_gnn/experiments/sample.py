"""One graph of an experiment: what methods are shown (`view`), and the truth they are scored by (`graph`)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from impact_gnn.data.tsbm import TSBM, tsbm_model
from impact_gnn.experiments.setting import CUTOFF, NUM_TIMES, Protocol, Row
from impact_gnn.graph import TemporalGraph


@dataclass(frozen=True, eq=False)
class Sample:
    """A graph with all its labels, the block model behind it, and its number among the graphs of a row."""

    model: TSBM
    graph: TemporalGraph
    seed: int

    @cached_property
    def view(self) -> TemporalGraph:
        """The graph without the labels to be predicted."""
        return self.graph.masked(CUTOFF)

    @cached_property
    def train(self) -> np.ndarray:
        """Numbers of the labelled nodes, the first ones: nodes are numbered in order of time."""
        return np.flatnonzero(~self.view.targets())

    @cached_property
    def test(self) -> np.ndarray:
        """Numbers of the nodes to be predicted."""
        return np.flatnonzero(self.view.targets())

    @property
    def x(self) -> np.ndarray:
        """Features."""
        assert self.graph.x is not None  # the block model draws them
        return self.graph.x

    def known(self) -> np.ndarray:
        """Labels of `train`."""
        assert self.view.y is not None
        return self.view.y[self.train]

    def accuracy(self, predicted: np.ndarray) -> float:
        """Share of the nodes `test` whose label was predicted."""
        assert self.graph.y is not None
        return float((predicted == self.graph.y[self.test]).mean())


def draw(protocol: Protocol, row: Row, model: str, seed: int, num_nodes: int) -> Sample:
    """Graph number `seed` of a row; with one seed, rows differ in their edges only and models in the noise."""
    made = tsbm_model(
        num_nodes, NUM_TIMES, decay=row.decay, protocol=protocol.graphs, feature_std=protocol.noise(model), seed=seed
    )
    return Sample(made, made.sample(), seed)
