"""What a study is made of: a problem whose answers are kept apart, rows of a table, and recipes that fit a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np

from impact_gnn.graph import TemporalGraph


@dataclass(frozen=True, eq=False)
class Problem:
    """A graph without the labels to be predicted, the nodes to predict, and a judge who knows the answers.

    Args:
        view: The graph; no label at or after its cutoff is in it.
        rows: The nodes that are scored.
    """

    view: TemporalGraph
    rows: np.ndarray
    _truth: np.ndarray = field(repr=False)

    @classmethod
    def of(cls, graph: TemporalGraph, cutoff: int) -> Problem:
        """The problem to predict all labels at or after `cutoff` from those before."""
        view = graph.masked(cutoff)
        assert graph.y is not None  # masked() refuses a graph without labels
        rows = np.flatnonzero((graph.time >= cutoff) & (graph.y >= 0))
        return cls(view, rows, graph.y[rows])

    @property
    def cutoff(self) -> int:
        """The first time to predict."""
        assert self.view.cutoff is not None
        return self.view.cutoff

    def hits(self, predicted: np.ndarray) -> np.ndarray:
        """For each of `rows` whether the label predicted for it is right."""
        return predicted == self._truth


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a fit gives: the labels of `problem.rows`, the score it was chosen by, and the epochs it took."""

    predicted: np.ndarray
    valid: float
    epochs: int


Kept: TypeAlias = dict[Any, Any]
"""What recipes want to keep from one fit to the next on the same problem, such as hops."""


class Recipe(Protocol):
    """How a model is made, trained and asked; a frozen dataclass, whose fields are its hyper-parameters."""

    def fit(self, problem: Problem, method: str, seed: int, kept: Kept, place: Path) -> Outcome:
        """Fits the model with a method.

        Args:
            problem: What to predict.
            method: As for `Pipeline`, for example "pmp+jjnorm".
            seed: Seed.
            kept: To keep what further fits on this problem can use.
            place: Directory for what is too large to keep.
        """


@dataclass(frozen=True)
class Row:
    """A row of the table: a model with a method, and what the paper says about it.

    Args:
        model: Rows of one model are compared with its row "plain".
        method: As for `Pipeline`.
        recipe: How it is fitted.
        published: Accuracy in the paper, valid and test; None if it has no such row.
    """

    model: str
    method: str
    recipe: Recipe
    published: tuple[float, float] | None = None


@dataclass(frozen=True)
class Study:
    """A data set with the rows to be run on it.

    Args:
        name: Its name on the command line.
        title: One line about data and split.
        load: From the root of the data (None where none is needed), a seed and other features (a `.npy` file, or
            None) to the problem.
        rows: The rows; the first of each model is "plain".
        seeds: How often each is run.
        notes: What a reader of the table must know.
        fresh: Whether every seed has a graph of its own.
        keep: Whether hops of all methods fit into memory together.
    """

    name: str
    title: str
    load: Callable[[Path | None, int, Path | None], Problem]
    rows: tuple[Row, ...]
    seeds: int
    notes: tuple[str, ...] = ()
    fresh: bool = False
    keep: bool = True


def rows_of(
    model: str,
    recipe: Recipe,
    methods: tuple[str, ...],
    published: dict[str, tuple[float, float]] | None = None,
) -> tuple[Row, ...]:
    """One model with several methods."""
    paper = published or {}
    return tuple(Row(model, method, recipe, paper.get(method)) for method in methods)
