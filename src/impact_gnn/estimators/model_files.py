"""What a fit leaves behind, and its folder: weights as safetensors, everything else as JSON; no code, no pickle."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import safetensors.numpy
import torch

from impact_gnn import _files, checks
from impact_gnn._codec import decode, encode
from impact_gnn._version import __version__
from impact_gnn.checks import InputError
from impact_gnn.estimators.head import Head, Shape
from impact_gnn.estimators.model_table import MODELS
from impact_gnn.estimators.schema import Schema
from impact_gnn.estimators.user_model import Own, model_name
from impact_gnn.methods import PriorEvidence
from impact_gnn.metrics import Scoring
from impact_gnn.nn import Task
from impact_gnn.propagation.smoothing import Smoothing
from impact_gnn.statistics import Scale

if TYPE_CHECKING:
    from impact_gnn.estimators.pipeline import Pipeline

FORMAT = "impact-gnn pipeline"
VERSION = 7
PIPELINE, WEIGHTS = "pipeline.json", "weights.safetensors"


@dataclass(frozen=True, eq=False)
class Stage:
    """One training: the head and how its inputs are scaled; what it was shown is known while it is fitted."""

    head: Head
    scales: list[Scale]
    task: Task | None = None


@dataclass(frozen=True, eq=False)
class Fitted:
    """What fitting leaves behind: the fitted head, how inputs are scaled, and what the graph was like."""

    head: Head
    scales: list[Scale]
    smoothing: Smoothing | None
    cutoff: int
    t_max: int
    schema: Schema
    rounds: int
    valid_score: float
    earlier: tuple[Stage, ...]  # the stages before the last, in a method with "stages"
    evidence: PriorEvidence

    @property
    def num_labels(self) -> int:
        return self.head.shape.num_labels

    @property
    def scoring(self) -> Scoring:
        return self.head.options.scoring


def write(fitted: Fitted, params: dict[str, Any], directory: Path, *, schema: bool) -> None:
    """Writes a fit and the options of its pipeline, atomically."""
    arrays: dict[str, np.ndarray] = {}
    for place, stage in enumerate([Stage(fitted.head, fitted.scales), *fitted.earlier]):
        of = f"stage{place}." if place else ""  # the last one has no number
        arrays |= {f"{of}model.{name}": value for name, value in stage.head.arrays().items()}
        for k, scale in enumerate(stage.scales):
            arrays |= {f"{of}scale.{k}.mean": scale.mean, f"{of}scale.{k}.std": scale.scale}
    for name, value in vars(fitted.evidence).items():
        if value is not None:
            arrays[f"evidence.{name}"] = np.asarray(value, np.float64)
    content = {
        "format": FORMAT,
        "version": VERSION,
        "impact_gnn": __version__,
        "torch": torch.__version__,
        "params": params | {"cutoff": fitted.cutoff},
        "shape": encode(fitted.head.shape),
        "stages": 1 + len(fitted.earlier),
        "valid_score": None if math.isnan(fitted.valid_score) else fitted.valid_score,
    } | {
        name: encode(getattr(fitted, name))
        for name in ("scoring", "smoothing", "cutoff", "t_max", "rounds")
    }
    with _files.atomic_directory(directory, own_files=_files.sealed_files) as temporary:
        kept = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        safetensors.numpy.save_file(kept, temporary / WEIGHTS)
        _files.write_json(temporary / PIPELINE, content)
        if schema:  # otherwise the folder around this one is sealed, with all that is in it
            fitted.schema.save(temporary)
            _files.seal_folder(temporary)


def read(root: Path, kind: type[Pipeline], *, model: Own | None, schema: Schema | None) -> Pipeline:
    """The fitted pipeline that `write` kept; see `Pipeline.load`."""
    if (root / "ensemble.json").is_file():
        raise InputError(f"{root} holds an ensemble; use Ensemble.load.")
    content = _files.described(root / PIPELINE, FORMAT, VERSION)
    if schema is None:  # whoever keeps it elsewhere has looked at the whole folder
        _files.check_folder(root)
    with checks.guarded(root):
        params = content["params"]
        if params["model"] not in MODELS:
            params |= {"model": _own(params["model"], model, root)}
        arrays, made = safetensors.numpy.load_file(root / WEIGHTS), kind(**params).checked()
        scoring, shape = (
            decode(Scoring, content["scoring"], "scoring"),
            decode(Shape, content["shape"], "shape"),
        )

        def stage(of: str) -> Stage:
            head, start = made.untrained(shape, scoring), f"{of}model."
            head.restore(
                {
                    name.removeprefix(start): array
                    for name, array in arrays.items()
                    if name.startswith(start)
                }
            )
            count = sum(
                name.startswith(f"{of}scale.") and name.endswith(".mean") for name in arrays
            )
            scale = (f"{of}scale.{k}" for k in range(count))
            return Stage(
                head, [Scale(arrays[f"{one}.mean"], arrays[f"{one}.std"]) for one in scale]
            )

        last, *earlier = (stage(f"stage{k}." if k else "") for k in range(content["stages"]))
        smoothing = (
            None
            if content["smoothing"] is None
            else decode(Smoothing, content["smoothing"], "smoothing")
        )
        score = math.nan if content["valid_score"] is None else content["valid_score"]
        evidence = PriorEvidence(
            prior=arrays["evidence.prior"],
            confusion=arrays.get("evidence.confusion"),
            temperature=arrays["evidence.temperature"].item(),
        )
        last.head.rounds, schema = content["rounds"], schema or Schema.load(root)
        if schema.num_labels != shape.num_labels:
            raise InputError(
                f"{root} has weights of {shape.num_labels} classes and a schema of "
                f"{schema.num_labels}; save the model again."
            )
        made.fitted = Fitted(
            head=last.head,
            scales=last.scales,
            smoothing=smoothing,
            cutoff=content["cutoff"],
            t_max=content["t_max"],
            schema=schema,
            rounds=last.head.rounds,
            valid_score=score,
            earlier=tuple(earlier),
            evidence=evidence,
        )
        return made


def _own(name: str, model: Own | None, root: Path) -> Own:
    """The user's network, if it can be the one that was saved under a name."""
    called = name.rpartition("-")[0]
    if model is None:
        mend = f"pass it again: load({str(root)!r}, model=...)"
        raise InputError(
            f"{root} was made with a network of your own, {called}, whose code is not in it; {mend}."
        )
    if (given := model_name(model)).rpartition("-")[0] != called:
        raise InputError(
            f"{root} was made with {called}, not with {given.rpartition('-')[0]}; pass that one."
        )
    if given != name:
        changed = f"{called} has other options or another source than when {root} was saved"
        warnings.warn(f"{changed}; its predictions may differ.", stacklevel=5)
    return model
