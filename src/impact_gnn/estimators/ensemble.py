"""`Ensemble`: the mean of several fitted pipelines, calibrated on what they said about the past; saved as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from impact_gnn import _files
from impact_gnn._codec import decode, encode
from impact_gnn._version import __version__
from impact_gnn.checks import InputError
from impact_gnn.data.convert import GraphLike, as_temporal_graph
from impact_gnn.engines.engine import Engine
from impact_gnn.estimators.calibration import Calibration
from impact_gnn.estimators.candidate import Candidate
from impact_gnn.estimators.inputs import Inputs
from impact_gnn.estimators.model_files import Fitted
from impact_gnn.estimators.pipeline import Pipeline
from impact_gnn.estimators.schema import Schema
from impact_gnn.estimators.user_model import Own

FORMAT = "impact-gnn ensemble"
VERSION = 3
ENSEMBLE = "ensemble.json"


@dataclass(frozen=True)
class Member:
    """A candidate and its share of the mean."""

    candidate: Candidate
    weight: float


@dataclass(frozen=True)
class EnsembleSpec:
    """What predicts in the end: one candidate, or a few with their weights, the heaviest first."""

    members: tuple[Member, ...]

    @classmethod
    def single(cls, candidate: Candidate) -> EnsembleSpec:
        return cls((Member(candidate, 1.0),))

    @property
    def candidates(self) -> list[Candidate]:
        return [member.candidate for member in self.members]

    @property
    def parts(self) -> set[str]:
        """Parts of the methods of all members."""
        return {part for candidate in self.candidates for part in str(candidate.method).split("+")}

    def __str__(self) -> str:
        if len(self.members) == 1:
            return str(self.members[0].candidate)
        return ", ".join(f"{member.weight:.0%} {member.candidate}" for member in self.members)


@dataclass(frozen=True, eq=False)
class Ensemble:
    """Fitted pipelines with weights that sum to 1, and how the mean of their probabilities is calibrated.

    Args:
        pipelines: Fitted on one graph, with one cutoff; seeds of a member share its weight.
        weights: What each counts.
        calibration: Of the mean.
        prior: Shares of the classes among the labels learned from.

    Examples:
        >>> from impact_gnn.data.tsbm import tsbm
        >>> g = tsbm(num_nodes=400, num_times=5, num_labels=2, seed=0)
        >>> members = [Pipeline(model, cutoff=4, epochs=5).fit(g) for model in ("sign", "trees")]
        >>> Ensemble(members, [0.5, 0.5], Calibration(), np.array([0.5, 0.5])).predict_proba(g).shape
        (80, 2)
    """

    pipelines: Sequence[Pipeline]
    weights: Sequence[float]
    calibration: Calibration
    prior: np.ndarray

    @classmethod
    def of(cls, model: Pipeline | Ensemble) -> Ensemble:
        """An ensemble itself; a fitted pipeline as one of a single member."""
        if isinstance(model, Ensemble):
            return model
        scoring = model.require_fitted().scoring
        return cls([model], [1.0], Calibration(tilt=scoring.rule.tilt), np.array(scoring.prior))

    @property
    def fitted(self) -> Fitted:
        """What the first pipeline knows of the graph: cutoff, last time, names of the labels."""
        fitted = self.pipelines[0].fitted
        assert fitted is not None
        return fitted

    def predict_proba(
        self,
        graph: GraphLike,
        *,
        cutoff: int | str | None = None,
        inputs: dict[bool, Inputs] | None = None,
        engine: Engine | None = None,
    ) -> np.ndarray:
        """Calibrated probabilities [n, num_labels] of the target nodes, in the order of `targets(graph)`.

        `inputs` are those that the fits left behind (`Pipeline.shared_inputs`), by default none.
        """
        graph = as_temporal_graph(graph)
        at = self.fitted.cutoff if cutoff is None else graph.when(cutoff)
        if not inputs:
            graph, inputs = self.fitted.schema.adapted(graph, at), {}
        total = np.zeros((len(self.targets(graph, cutoff=cutoff)), self.fitted.num_labels))
        for pipeline, weight in zip(self.pipelines, self.weights, strict=True):
            shown = pipeline.shared_inputs(inputs, graph.masked(at), engine)
            total += weight * pipeline.predict_proba(graph, cutoff=at, inputs=shown)
        return self.calibration.apply(total, self.prior)

    def predict(self, graph: GraphLike, *, cutoff: int | str | None = None) -> np.ndarray:
        """As `Pipeline.predict`."""
        graph = as_temporal_graph(graph)
        label = self.calibration.labels(self.predict_proba(graph, cutoff=cutoff), self.prior)
        return self.fitted.schema.class_codes(graph)[label]

    def targets(self, graph: GraphLike, *, cutoff: int | str | None = None) -> np.ndarray:
        """Positions of the nodes to predict: time at or after the cutoff."""
        return self.pipelines[0].targets(graph, cutoff=cutoff)

    def notes(self, graph: GraphLike, *, cutoff: int | str | None = None) -> list[str]:
        """What a person should know before predicting: periods, columns and classes that the fit had not seen."""
        graph = as_temporal_graph(graph)
        stale = self.pipelines[0].stale(graph)
        at = self.fitted.cutoff if cutoff is None else graph.when(cutoff)
        return [*([] if stale is None else [stale]), *self.fitted.schema.notes(graph, at)]

    def save(self, directory: str | Path, *, card: str | None = None) -> None:
        """Writes a folder per pipeline, the rest as JSON and a `card` as README.md, atomically, for `load`."""
        content = {
            "format": FORMAT,
            "version": VERSION,
            "impact_gnn": __version__,
            "weights": list(self.weights),
            "calibration": encode(self.calibration),
            "prior": self.prior.tolist(),
        }
        with _files.atomic_directory(Path(directory), _files.sealed_files) as temporary:
            for place, pipeline in enumerate(self.pipelines):
                pipeline.save(temporary / f"member-{place}", schema=False)
            self.fitted.schema.save(temporary)
            _files.write_json(temporary / ENSEMBLE, content)
            if card is not None:
                (temporary / "README.md").write_text(card, encoding="utf-8")
            _files.seal_folder(temporary)

    @classmethod
    def load(cls, directory: str | Path, *, model: Own | None = None) -> Ensemble:
        """The ensemble that `save` wrote, a single pipeline as one of one member; `model` as in `Pipeline.load`."""
        root = _files.resolve(Path(directory))
        if not (root / ENSEMBLE).exists():
            return cls.of(Pipeline.load(root, model=model))
        content = _files.described(root / ENSEMBLE, FORMAT, VERSION)
        _files.check_folder(root)
        weights = decode(list[float], content.get("weights"), "weights")
        schema = Schema.load(root)
        folders = [root / f"member-{place}" for place in range(len(weights))]
        pipelines = [Pipeline.load(folder, model=model, schema=schema) for folder in folders]
        calibration = decode(Calibration, content.get("calibration"), "calibration")
        prior = np.array(decode(list[float], content.get("prior"), "prior"))
        numbers = np.array([*weights, *prior])
        is_usable = bool(weights) and len(prior) == schema.num_labels
        if not is_usable or not (np.isfinite(numbers) & (numbers >= 0)).all():
            raise InputError(
                f"{root / ENSEMBLE} has unusable weights or class shares; save the model again."
            )
        return cls(pipelines, weights, calibration, prior)
