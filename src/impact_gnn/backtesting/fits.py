"""One fit of a back-test or of the final ensemble, as a task that any process can run."""

from __future__ import annotations

import contextlib
import os
import threading
import time as clock
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

import numpy as np
import torch
from sklearn.base import clone

from impact_gnn import checks, methods
from impact_gnn.checks import InputError
from impact_gnn.engines import Engine, Memory
from impact_gnn.engines.choose import job_needs
from impact_gnn.estimators import MODELS, FitSettings, Inputs, ModelSpec, Pipeline, spec_of
from impact_gnn.graph import TemporalGraph
from impact_gnn.methods import BUILTIN, Method, Part

BUILTIN_PARTS = frozenset(part.name for part in BUILTIN)
BUILTIN_MODELS = frozenset(MODELS)

MIN_PARALLEL_WORK = 5.0  # work units; below, starting processes takes as long as they save

_one_fit = threading.Lock()  # torch has one random state per process


def _unlock_in_child() -> None:
    """Replace the lock in a forked process: the thread that may hold it is not there."""
    global _one_fit
    _one_fit = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unlock_in_child)


@dataclass(eq=False)
class SharedGraph:
    """A masked graph and the hops that its fits share.

    A forked process has those of its parent; any other process computes its own.
    """

    graph: TemporalGraph
    engine: Engine
    key: str = field(default_factory=lambda: uuid4().hex)
    inputs: dict[bool, Inputs] = field(default_factory=dict)

    def __reduce__(self) -> tuple[Callable[..., SharedGraph], tuple[Any, ...]]:
        return _shared_in_this_process, (self.graph, self.key)


_latest: dict[str, SharedGraph] = {}  # the graph of the last task of this process


def _shared_in_this_process(graph: TemporalGraph, key: str) -> SharedGraph:
    """Return the graph that an earlier task has sent to this process, with its hops."""
    if key not in _latest:
        _latest.clear()
        _latest[key] = SharedGraph(graph, Memory(threads=1), key)
    return _latest[key]


@dataclass(frozen=True, eq=False)
class FitTask:
    """A pipeline to fit; `settings` are those of an earlier fit, `name` is for people.

    `parts` and `model` are registered from outside: another process does not know them.
    """

    pipeline: Pipeline
    settings: FitSettings | None
    name: str
    parts: tuple[Part, ...]
    model: ModelSpec | None

    @classmethod
    def of(cls, pipeline: Pipeline, settings: FitSettings | None, *, name: str) -> FitTask:
        """Create the task, with the parts and the model that other processes need."""
        model = pipeline.model
        is_registered = isinstance(model, str) and model not in BUILTIN_MODELS
        parts = Method.of(pipeline.method).parts
        return cls(
            pipeline=pipeline,
            settings=settings,
            name=name,
            parts=tuple(part for part in parts if part.name not in BUILTIN_PARTS),
            model=spec_of(model) if is_registered else None,
        )

    def fit(self, shared: SharedGraph) -> tuple[Pipeline, Inputs]:
        """Fit the pipeline; return it with the hops that it read."""
        for part in self.parts:
            if part.name not in methods.names():
                methods.register(part)
        if self.model is not None:
            MODELS.setdefault(str(self.pipeline.model), self.model)
        inputs = self.pipeline.shared_inputs(shared.inputs, shared.graph, shared.engine)
        return self.pipeline.fit(shared.graph, inputs=inputs, settings=self.settings), inputs


@dataclass(frozen=True, eq=False)
class FitResult:
    """A fit and its predictions for all targets, with and without smoothing."""

    pipeline: Pipeline
    probabilities: np.ndarray
    unsmoothed: np.ndarray
    settings: FitSettings
    seconds: float

    def without_smoothing(self) -> FitResult:
        """Return the result of the same method without "smooth": it shares the fit."""
        return replace(
            self, pipeline=self.pipeline.without_smoothing(), probabilities=self.unsmoothed
        )


@dataclass(frozen=True)
class FailedFit:
    """Why a candidate could not be fitted."""

    error: str


def prepare_fit(shared: SharedGraph, task: FitTask) -> None:
    """Compute the hops of a fit; where they cannot be computed, the fit will report the reason."""
    pipeline = task.pipeline
    with contextlib.suppress(InputError):
        inputs = pipeline.shared_inputs(shared.inputs, shared.graph, shared.engine)
        pipeline.compute_inputs(inputs, validates=task.settings is None)


def fit_and_predict(shared: SharedGraph, task: FitTask) -> FitResult:
    """Fit a pipeline and predict the targets."""
    start = clock.monotonic()
    with _one_fit:
        pipeline, inputs = task.fit(shared)
        cutoff = pipeline.require_fitted().cutoff
        targets = np.flatnonzero(shared.graph.time >= cutoff)
        smoothed, unsmoothed = pipeline.predict_variants(inputs, cutoff, targets)
    return FitResult(
        pipeline=pipeline,
        probabilities=unsmoothed if smoothed is None else smoothed,
        unsmoothed=unsmoothed,
        settings=pipeline.require_fitted().settings,
        seconds=clock.monotonic() - start,
    )


def try_fit(shared: SharedGraph, task: FitTask) -> FitResult | FailedFit:
    """As `fit_and_predict`, but without the fitted model; bad input is a result."""
    try:
        return replace(fit_and_predict(shared, task), pipeline=clone(task.pipeline))
    except InputError as error:
        return FailedFit(str(error))


def num_jobs(
    jobs: int | str, *, pipeline: Pipeline, graph: TemporalGraph, engine: Engine, work: float
) -> int:
    """Return how many fits run at once: `jobs`, or fewer where cores or memory do not allow it.

    "auto" takes as many as possible for searches of some work, and one for a user model or a GPU.
    """
    if check_jobs(jobs) == "auto":
        is_plain = isinstance(pipeline.model, str) and not torch.cuda.is_available()
        if not is_plain or work < MIN_PARALLEL_WORK:
            return 1
    elif jobs == 1:
        return 1
    most = engine.max_jobs(job_needs(graph, pipeline.hops)[0])
    return most if jobs == "auto" else min(int(jobs), most)


def check_jobs(jobs: int | str) -> int | str:
    """Return `jobs` if it is a whole number of at least 1, or "auto"."""
    is_number = isinstance(jobs, int) and not isinstance(jobs, bool) and jobs >= 1
    if jobs != "auto" and not is_number:
        raise InputError(
            f"jobs={checks.quoted(jobs)} is not valid; use a whole number of at least 1, or 'auto'."
        )
    return jobs
