"""Fitted pipelines and their files: weights as safetensors, the rest as JSON; no pickle."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import safetensors.numpy
import torch
from numpy import ndarray

from impact_gnn import _files, checks
from impact_gnn._codec import decode, encode
from impact_gnn._version import __version__
from impact_gnn.checks import InputError
from impact_gnn.estimators.head import Head, Shape
from impact_gnn.estimators.model_table import MODELS
from impact_gnn.estimators.schema import Schema, arrays_below
from impact_gnn.estimators.user_model import Own, model_name
from impact_gnn.methods import PriorEvidence
from impact_gnn.metrics import Scoring
from impact_gnn.nn import Task
from impact_gnn.propagation.smoothing import Smoothing
from impact_gnn.statistics import Scale

if TYPE_CHECKING:
    from impact_gnn.estimators.pipeline import Pipeline

FORMAT = "impact-gnn pipeline"
VERSION = 8
PIPELINE = "pipeline.json"
WEIGHTS = "weights.safetensors"


@dataclass(frozen=True, eq=False)
class Stage:
    """One training: the head and the scales of its inputs; its task exists in memory only."""

    head: Head
    scales: list[Scale]
    task: Task | None = None

    def predict_proba(self, rows: ndarray) -> ndarray:
        """Return the head's probabilities [n, num_labels] for rows of the task."""
        assert self.task is not None
        return self.head.predict_proba(self.task, rows)


@dataclass(frozen=True)
class FitSettings:
    """The choices of a validation: the rounds of every stage, and the smoothing."""

    rounds: tuple[int, ...]
    smoothing: Smoothing | None
    valid_score: float | None  # of the model before smoothing; None without validation rows


@dataclass(frozen=True, eq=False)
class Fitted:
    """The result of a fit; it has several stages for a method with "stages" only."""

    stages: tuple[Stage, ...]
    smoothing: Smoothing | None
    cutoff: int
    t_max: int
    schema: Schema
    valid_score: float
    evidence: PriorEvidence

    @property
    def head(self) -> Head:
        return self.stages[-1].head

    @property
    def scales(self) -> list[Scale]:
        return self.stages[-1].scales

    @property
    def earlier(self) -> tuple[Stage, ...]:
        """The stages before the last."""
        return self.stages[:-1]

    @property
    def rounds(self) -> int:
        return self.head.rounds

    @property
    def settings(self) -> FitSettings:
        """The choices of this fit, with which another one needs no validation."""
        return FitSettings(
            rounds=tuple(stage.head.rounds for stage in self.stages),
            smoothing=self.smoothing,
            valid_score=None if math.isnan(self.valid_score) else self.valid_score,
        )

    @property
    def num_labels(self) -> int:
        return self.head.shape.num_labels

    @property
    def scoring(self) -> Scoring:
        return self.head.options.scoring


def write(fitted: Fitted, params: dict[str, Any], directory: Path, *, schema: bool) -> None:
    """Write a fit and the options of its pipeline, atomically."""
    last = fitted.stages[-1]
    arrays: dict[str, ndarray] = {}
    for number, stage in enumerate([last, *fitted.earlier]):
        prefix = _stage_prefix(number)
        for name, array in stage.head.arrays().items():
            arrays[f"{prefix}model.{name}"] = array
        for k, scale in enumerate(stage.scales):
            arrays[f"{prefix}scale.{k}.mean"] = scale.mean
            arrays[f"{prefix}scale.{k}.std"] = scale.scale
    for name, value in vars(fitted.evidence).items():
        if value is not None:
            arrays[f"evidence.{name}"] = np.asarray(value, np.float64)
    content = {
        "format": FORMAT,
        "version": VERSION,
        "impact_gnn": __version__,
        "torch": torch.__version__,
        "params": params | {"cutoff": fitted.cutoff},
        "shape": encode(last.head.shape),
        "stages": len(fitted.stages),
        "valid_score": None if math.isnan(fitted.valid_score) else fitted.valid_score,
    }
    for name in ("scoring", "smoothing", "cutoff", "t_max", "rounds"):
        content[name] = encode(getattr(fitted, name))
    with _files.atomic_directory(directory, own_files=_files.sealed_files) as temporary:
        contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        safetensors.numpy.save_file(contiguous, temporary / WEIGHTS)
        _files.write_json(temporary / PIPELINE, content)
        if schema:  # otherwise the folder around this one is sealed as a whole
            fitted.schema.save(temporary)
            _files.seal_folder(temporary)


def read(root: Path, kind: type[Pipeline], *, model: Own | None, schema: Schema | None) -> Pipeline:
    """Return the fitted pipeline that `write` saved; see `Pipeline.load`."""
    if (root / "ensemble.json").is_file():
        raise InputError(f"{root} contains an ensemble; use Ensemble.load.")
    content = _files.read_description(root / PIPELINE, FORMAT, VERSION)
    if schema is None:  # the folder of an ensemble was checked as a whole
        _files.check_folder(root)
    with checks.guarded(root):
        params = content["params"]
        if params["model"] not in MODELS:
            params |= {"model": _user_model(params["model"], model, root)}
        arrays = safetensors.numpy.load_file(root / WEIGHTS)
        pipeline = kind(**params).checked()
        scoring = decode(Scoring, content["scoring"], "scoring")
        shape = decode(Shape, content["shape"], "shape")
        last, *earlier = (
            _read_stage(pipeline.untrained(shape, scoring), arrays, _stage_prefix(number))
            for number in range(content["stages"])
        )
        last.head.rounds = content["rounds"]
        schema = schema or Schema.load(root)
        if schema.num_labels != shape.num_labels:
            raise InputError(
                f"{root} has weights for {shape.num_labels} classes and a schema for "
                f"{schema.num_labels}; save the model again."
            )
        score = content["valid_score"]
        smoothing = content["smoothing"]
        if smoothing is not None:
            smoothing = decode(Smoothing, smoothing, "smoothing")
        pipeline.fitted = Fitted(
            stages=(*earlier, last),
            smoothing=smoothing,
            cutoff=content["cutoff"],
            t_max=content["t_max"],
            schema=schema,
            valid_score=math.nan if score is None else score,
            evidence=PriorEvidence(
                prior=arrays["evidence.prior"],
                confusion=arrays.get("evidence.confusion"),
                temperature=arrays["evidence.temperature"].item(),
            ),
        )
        return pipeline


def _stage_prefix(number: int) -> str:
    """Return the beginning of the names of a stage's arrays; the last stage has number 0."""
    return f"stage{number}." if number else ""


def _read_stage(head: Head, arrays: dict[str, ndarray], prefix: str) -> Stage:
    head.restore(arrays_below(f"{prefix}model.", arrays))
    scales: list[Scale] = []
    while f"{prefix}scale.{len(scales)}.mean" in arrays:
        name = f"{prefix}scale.{len(scales)}"
        scales.append(Scale(arrays[f"{name}.mean"], arrays[f"{name}.std"]))
    return Stage(head, scales)


def _user_model(saved_name: str, model: Own | None, root: Path) -> Own:
    """Return the user model if it can be the one that was saved under a name."""
    saved_class = saved_name.rpartition("-")[0]
    if model is None:
        raise InputError(
            f"{root} was trained with a user model, {saved_class}, whose code is not stored; "
            f"pass it again: load({str(root)!r}, model=...)."
        )
    name = model_name(model)
    name_of_class = name.rpartition("-")[0]
    if name_of_class != saved_class:
        raise InputError(
            f"{root} was trained with {saved_class}, not {name_of_class}; pass {saved_class}."
        )
    if name != saved_name:
        warnings.warn(
            f"{saved_class} has different options or source code than when {root} was saved; "
            f"its predictions may differ.",
            stacklevel=5,
        )
    return model
