"""Table 2: which correction helps on real graphs and on a heterogeneous block model.

`studies` lists what is run.
"""

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Protocol

import numpy as np

import impact_gnn as ig
from impact_gnn import checks
from reproduction import data, published
from reproduction.results import Record, Table, packed
from reproduction.runner import Progress, Task, work_off


@dataclass(frozen=True, eq=False)
class Problem:
    """A graph without the labels to predict, the nodes to predict, and a judge with the answers."""

    view: ig.TemporalGraph
    rows: np.ndarray
    # numbered as in the view; classes that it cannot see come last
    truth: np.ndarray = field(repr=False)

    @classmethod
    def of(cls, graph: ig.TemporalGraph, cutoff: int) -> "Problem":
        """The problem to predict all labels at or after `cutoff` from those before."""
        view = graph.masked(cutoff)
        assert graph.y is not None  # masked() refuses a graph without labels
        rows = np.flatnonzero((graph.time >= cutoff) & (graph.y >= 0))
        code = np.arange(graph.num_labels)
        if graph.label_names is not None:
            known = np.unique(graph.y[(graph.time < cutoff) & (graph.y >= 0)])
            code[[*known, *np.setdiff1d(code, known)]] = np.arange(graph.num_labels)
        return cls(view, rows, code[graph.y[rows]])

    def hits(self, predicted: np.ndarray) -> np.ndarray:
        """For each of `rows` whether the label predicted for it is right."""
        return predicted == self.truth

    def identity(self) -> str:
        """What tells one graph from another, so that a run is not taken for one on other data."""
        digest = hashlib.sha256(repr(self.view).encode())
        some = np.linspace(0, self.view.num_nodes - 1, min(self.view.num_nodes, 256)).astype(
            np.int64
        )
        for values in (self.view.time, self.view.y, self.view.x):
            if values is not None:
                digest.update(np.ascontiguousarray(values[some]).tobytes())
        return digest.hexdigest()[:16]


@dataclass(frozen=True, eq=False)
class ProblemResult:
    """What a fit gives: the labels of `problem.rows`, and the accuracy it was chosen by."""

    predicted: np.ndarray
    valid: float


class Recipe(Protocol):
    """How a model is made, trained and asked.

    A frozen dataclass, whose fields are its hyper-parameters.
    """

    def fit(self, problem: Problem, method: str, seed: int, place: Path) -> ProblemResult:
        """Fits with a method such as "pmp+jjnorm".

        What is too large for memory goes into the directory `place`.
        """


@dataclass(frozen=True)
class Row:
    """A model with a method.

    Rows of one model are compared with its row "plain", which comes first.
    """

    model: str
    method: str
    recipe: Recipe


def rows_of(model: str, recipe: Recipe, methods: Sequence[str]) -> tuple[Row, ...]:
    return tuple(Row(model, method, recipe) for method in methods)


@dataclass(frozen=True)
class Study:
    """A data set with the rows to be run on it.

    `load` leads from the root of the data (None where none is given) and a seed to a graph and its
    cutoff; `fresh` says whether every seed has a graph of its own.
    """

    name: str
    title: str
    load: Callable[[Path | None, int], tuple[ig.TemporalGraph, int]]
    rows: tuple[Row, ...]
    seeds: int
    notes: tuple[str, ...] = ()
    fresh: bool = False


@lru_cache(maxsize=1)
def problem_of(study: Study, root: Path | None, features: Path | None, number: int) -> Problem:
    """The problem of graph `number`, kept until another one is asked for."""
    graph, cutoff = study.load(root, number)
    return Problem.of(
        graph if features is None else graph.with_features(data.mapped(features)), cutoff
    )


def run_row(study: Study, row: Row, seed: int, problem: Problem, place: Path) -> list[Record]:
    """The accuracy of a row on the period to choose by, and on that to predict."""
    start = time.process_time()
    result = row.recipe.fit(problem, row.method, seed, place)
    hits, seconds = problem.hits(result.predicted), time.process_time() - start
    shared = "" if study.fresh else packed(hits)
    return [
        Record(
            study=study.name,
            section=row.model,
            row="valid",
            column=row.method,
            seed=seed,
            score=result.valid,
            seconds=0.0,
        ),
        Record(
            study=study.name,
            section=row.model,
            row="test",
            column=row.method,
            seed=seed,
            score=float(hits.mean()),
            seconds=seconds,
            hits=shared,
        ),
    ]


def table2(
    study: Study,
    out: Path,
    *,
    root: Path | None = None,
    seeds: int | None = None,
    models: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    features: Path | None = None,
    progress: Progress | None = None,
) -> Table:
    """Runs a study; the same call goes on where it stopped.

    `models` and `methods` are some of the study's, "plain" always among them; `features` is a
    `.npy` file whose rows replace the features.
    """
    count = study.seeds if seeds is None else checks.whole_number("seeds", seeds)
    if count < 2:
        raise ig.InputError(f"seeds={count} gives no standard error; use at least 2.")
    study = replace(study, rows=_picked(study, models, methods))
    records: list[Record] = []
    # Seed after seed, so that a graph that belongs to one seed is drawn once; a study that is
    # stopped has all rows.
    for seed in range(count):
        problem = problem_of(study, root, features, seed if study.fresh else 0)
        tasks = []
        for row in study.rows:
            settings = {"study": study.name, "row": row, "seed": seed, "data": problem.identity()}
            call = partial(run_row, study, row, seed, problem=problem, place=out / "disk")
            tasks.append(
                Task(f"{study.name}, {row.model}, {row.method}, seed {seed}", settings, call)
            )
        records += work_off(tasks, out / "parts", progress=progress)
    paper = {
        (model, row, method): numbers[k]
        for (name, model), rows in published.TABLE2.items()
        if name == study.name
        for method, numbers in rows.items()
        for k, row in enumerate(("valid", "test"))
    }
    about = (
        f"{count} {'graphs' if study.fresh else 'seeds'}, {len(problem.rows):,} nodes scored. "
        "Epochs were chosen on the last labelled period (valid). Intervals are over "
        f"{'graphs' if study.fresh else 'seeds and scored nodes'}."
    )
    title = f"Table 2: {study.title}"
    return Table(
        name=f"table2-{study.name}",
        title=title,
        about=about,
        records=records,
        published=paper,
        notes=study.notes,
    )


def _picked(
    study: Study, models: Sequence[str] | None, methods: Sequence[str] | None
) -> tuple[Row, ...]:
    for each in models or ():
        checks.choice("model", each, dict.fromkeys(row.model for row in study.rows))
    for each in methods or ():
        checks.choice("method", each, dict.fromkeys(row.method for row in study.rows))
    return tuple(
        row
        for row in study.rows
        if (models is None or row.model in models)
        and (methods is None or row.method in (*methods, "plain"))
    )
