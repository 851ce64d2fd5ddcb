"""`Ensemble`: the calibrated weighted mean of several fitted pipelines, saved as one model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

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
from impact_gnn.estimators.pipeline import Pipeline, score_of
from impact_gnn.estimators.reach import Reach, engine_for
from impact_gnn.estimators.schema import Schema
from impact_gnn.estimators.user_model import Own
from impact_gnn.graph import TemporalGraph
from impact_gnn.methods import PLAIN
from impact_gnn.metrics import Scoring

FORMAT = "impact-gnn ensemble"
VERSION = 4
ENSEMBLE = "ensemble.json"


@dataclass(frozen=True)
class Member:
    """A candidate and its weight in the ensemble."""

    candidate: Candidate
    weight: float


@dataclass(frozen=True)
class EnsembleSpec:
    """The candidates of an ensemble with their weights, the largest first."""

    members: tuple[Member, ...]

    @classmethod
    def single(cls, candidate: Candidate) -> EnsembleSpec:
        return cls((Member(candidate, 1.0),))

    @property
    def candidates(self) -> list[Candidate]:
        return [member.candidate for member in self.members]

    @property
    def parts(self) -> set[str]:
        """Parts of the methods of all members; "plain" for a method without any."""
        names = [candidate.method.names or (PLAIN,) for candidate in self.candidates]
        return set[str]().union(*names)

    @property
    def description(self) -> str:
        """A candidate, or "ensemble of 3 models" with its members."""
        if len(self.members) == 1:
            return str(self)
        return f"ensemble of {len(self.members)} models ({self})"

    def __str__(self) -> str:
        if len(self.members) == 1:
            return str(self.members[0].candidate)
        return ", ".join(f"{member.weight:.0%} {member.candidate}" for member in self.members)


@dataclass(frozen=True, eq=False)
class Ensemble:
    """Fitted pipelines with weights that sum to 1, and the calibration of their weighted mean.

    Args:
        pipelines: Fitted on one graph, with one cutoff; seeds of a member share its weight.
        weights: Of the pipelines.
        calibration: Of the mean.
        prior: The class prior of the training labels.

    Examples:
        >>> from impact_gnn.data.tsbm import tsbm
        >>> g = tsbm(num_nodes=400, num_times=5, num_labels=2, seed=0)
        >>> members = [Pipeline(model, cutoff=4, epochs=5).fit(g) for model in ("sign", "trees")]
        >>> ensemble = Ensemble(members, [0.5, 0.5], Calibration(), np.array([0.5, 0.5]))
        >>> ensemble.predict_proba(g).shape
        (80, 2)
    """

    pipelines: Sequence[Pipeline]
    weights: Sequence[float]
    calibration: Calibration
    prior: ndarray

    def __post_init__(self) -> None:
        has_prior = np.shape(self.prior) == (self.fitted.num_labels,)
        sums_to_one = np.isclose(sum(self.weights), 1)
        if not (isinstance(self.calibration, Calibration) and has_prior and sums_to_one):
            raise InputError(
                "an ensemble needs weights that sum to 1, a calibration such as Calibration(), "
                "and the share of every class as prior."
            )

    @classmethod
    def of(cls, model: Pipeline | Ensemble) -> Ensemble:
        """Return an ensemble unchanged, and a fitted pipeline as the only member of one."""
        if isinstance(model, Ensemble):
            return model
        scoring = model.require_fitted().scoring
        calibration = Calibration(tilt=scoring.rule.tilt)
        return cls([model], [1.0], calibration, np.array(scoring.prior))

    @property
    def fitted(self) -> Fitted:
        """The fit of the first pipeline, for what all share: cutoff, last time, schema."""
        return self.pipelines[0].require_fitted()

    def predict_proba(
        self,
        graph: GraphLike,
        *,
        nodes: Any = None,
        cutoff: int | str | None = None,
        engine: Engine | None = None,
    ) -> ndarray:
        """Return calibrated probabilities [n, num_labels] of the targets, in their order.

        `nodes` are as in `Pipeline.predict_proba`.
        """
        graph = as_temporal_graph(graph)
        period = self._target_period(graph, cutoff)
        requested = self.targets(
            graph,
            nodes=nodes,
            cutoff=cutoff,
        )
        predicted_nodes = part = None
        if nodes is not None:
            part = self.reach(graph).part_of(graph, requested)
        if part is not None:
            graph, predicted_nodes = part
            engine = engine_for(graph, engine)
            requested = predicted_nodes
        view = self.fitted.schema.adapted(graph, period)
        inputs: dict[bool, Inputs] = {}
        probabilities = []
        for pipeline in self.pipelines:
            shared = pipeline.shared_inputs(inputs, view, engine, predicted_nodes=predicted_nodes)
            probabilities.append(pipeline.predict_rows(shared, period, requested))
        return self.calibration.apply(self.mean_of(probabilities), self.prior)

    def mean_of(self, probabilities: Sequence[ndarray]) -> ndarray:
        """Return the weighted mean of the members' probabilities, each [n, num_labels]."""
        mean = np.zeros(probabilities[0].shape)
        for weight, member in zip(self.weights, probabilities, strict=True):
            mean += weight * member
        return mean

    def reach(self, graph: TemporalGraph) -> Reach:
        """Return how far in a graph the prediction of a node reads."""
        return Reach.joined([pipeline.reach(graph) for pipeline in self.pipelines])

    def _target_period(self, graph: TemporalGraph, cutoff: int | str | None) -> int:
        return self.fitted.cutoff if cutoff is None else graph.when(cutoff)

    def predict(
        self, graph: GraphLike, *, nodes: Any = None, cutoff: int | str | None = None
    ) -> ndarray:
        """As `Pipeline.predict`: codes 0, 1, 2, ..., not names of classes.

        For a graph with the classes of the fit, names are `pipelines[0].classes_[predict(graph)]`.
        """
        graph = as_temporal_graph(graph)
        probabilities = self.predict_proba(
            graph,
            nodes=nodes,
            cutoff=cutoff,
        )
        label = self.calibration.labels(probabilities, self.prior)
        return self.fitted.schema.class_codes(graph)[label]

    def score(
        self, graph: GraphLike, *, cutoff: int | str | None = None, metric: str = "accuracy"
    ) -> float:
        """As `Pipeline.score`."""
        scoring = Scoring(metric, tuple(self.prior.tolist()))
        return score_of(self, graph, cutoff, scoring, self.calibration.tilt)

    def targets(
        self, graph: GraphLike, *, nodes: Any = None, cutoff: int | str | None = None
    ) -> ndarray:
        """As `Pipeline.targets`."""
        return self.pipelines[0].targets(
            graph,
            nodes=nodes,
            cutoff=cutoff,
        )

    def notes(self, graph: GraphLike, *, cutoff: int | str | None = None) -> list[str]:
        """Return sentences about periods, columns and classes that are new since the fit."""
        graph = as_temporal_graph(graph)
        notes = self.fitted.schema.notes(graph, self._target_period(graph, cutoff))
        stale = self.pipelines[0].stale(graph)
        if stale is not None:
            notes = [stale, *notes]
        return notes

    def save(self, directory: str | Path, *, card: str | None = None) -> None:
        """Write a folder per pipeline, the rest as JSON and a `card` as README.md, atomically."""
        content = {
            "format": FORMAT,
            "version": VERSION,
            "impact_gnn": __version__,
            "weights": list(self.weights),
            "calibration": encode(self.calibration),
            "prior": self.prior.tolist(),
        }
        with _files.atomic_directory(Path(directory), _files.sealed_files) as temporary:
            for k, pipeline in enumerate(self.pipelines):
                pipeline.save(temporary / f"member-{k}", schema=False)
            self.fitted.schema.save(temporary)
            _files.write_json(temporary / ENSEMBLE, content)
            if card is not None:
                (temporary / "README.md").write_text(card, encoding="utf-8")
            _files.seal_folder(temporary)

    @classmethod
    def load(cls, directory: str | Path, *, model: Own | None = None) -> Ensemble:
        """Return the ensemble, or the single pipeline, that `save` wrote.

        `model` is the user model, as in `Pipeline.load`.
        """
        root = _files.resolve(Path(directory))
        if not (root / ENSEMBLE).exists():
            return cls.of(Pipeline.load(root, model=model))
        content = _files.read_description(root / ENSEMBLE, FORMAT, VERSION)
        _files.check_folder(root)
        weights = decode(list[float], content.get("weights"), "weights")
        schema = Schema.load(root)
        pipelines = [
            Pipeline.load(root / f"member-{k}", model=model, schema=schema)
            for k in range(len(weights))
        ]
        calibration = decode(Calibration, content.get("calibration"), "calibration")
        prior = np.array(decode(list[float], content.get("prior"), "prior"))
        has_right_sizes = bool(weights) and len(prior) == schema.num_labels
        numbers = np.array([*weights, *prior])
        are_shares = np.isfinite(numbers) & (numbers >= 0)
        if not has_right_sizes or not are_shares.all():
            raise InputError(
                f"{root / ENSEMBLE} has invalid weights or class proportions; save the model again."
            )
        return cls(pipelines, weights, calibration, prior)
