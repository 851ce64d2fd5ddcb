"""`Pipeline`: from a graph with labels for the past to predictions for the recent nodes, and back from disk."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin

from impact_gnn import checks
from impact_gnn._native import one_thread
from impact_gnn.checks import InputError
from impact_gnn.data.convert import GraphLike, as_temporal_graph
from impact_gnn.engines.engine import Engine, time_table
from impact_gnn.engines.hop import mapped_hop, position_blocks
from impact_gnn.engines.memory import or_memory
from impact_gnn.estimators import model_files
from impact_gnn.estimators.calibration import OutOfFold, best_temperature
from impact_gnn.estimators.head import Head, HeadOptions, Shape, matrix
from impact_gnn.estimators.inputs import Inputs
from impact_gnn.estimators.model_files import Fitted, Stage
from impact_gnn.estimators.model_table import MODELS, make_head, reads_graph, spec_of
from impact_gnn.estimators.network import NetworkHead
from impact_gnn.estimators.schema import Schema
from impact_gnn.estimators.user_model import Model, Own, model_name
from impact_gnn.graph import TemporalGraph
from impact_gnn.label_shift import confusion_of
from impact_gnn.methods import Kind, Method, ModelKind, PriorEvidence, RowContext
from impact_gnn.metrics import METRICS, Scoring
from impact_gnn.nn import (
    Epoch,
    GraphTask,
    HopTask,
    Lesson,
    Propagation,
    Reliable,
    Split,
    Task,
    Term,
    align_layer,
    split_rows,
)
from impact_gnn.propagation.embedding import EMBEDDINGS
from impact_gnn.propagation.hops import own_relation
from impact_gnn.propagation.smoothing import CHOICES, Smoothing, correct_and_smooth, smoothing_paths
from impact_gnn.statistics import Scale, paired

CHOOSING = 0.1  # share of the labels to choose by
CLASS_WEIGHTS = ("balanced",)
STAGES = Reliable(stages=3)  # of a method with "stages"


@dataclass(frozen=True, eq=False)
class _FitData:
    """What all trainings of a fit share. A row is a position among `nodes`."""

    view: TemporalGraph
    inputs: Inputs
    cutoff: int
    nodes: np.ndarray
    time: np.ndarray
    label: np.ndarray
    weight: np.ndarray | None
    scoring: Scoring
    progress: Callable[[Epoch], None] | None

    @property
    def labelled_times(self) -> np.ndarray:
        return np.unique(self.time[self.label >= 0])


@dataclass(frozen=True, eq=False)
class _Validated:
    """What the validation rows decide: for how many rounds to train, and which corrections follow.

    `learner` is the pipeline to train: this one, or one without parts that did not improve it.
    """

    learner: Pipeline
    stages: list[Stage]
    smoothing: Smoothing | None
    evidence: PriorEvidence
    valid_score: float

    @property
    def rounds(self) -> list[int]:
        return [stage.head.rounds for stage in self.stages]


class Pipeline(ClassifierMixin, BaseEstimator):
    """Weights, hops, alignment, model and training in one object with scikit-learn's verbs.

    It is an estimator of graphs, not of a matrix X: `clone`, `set_params` and `ParameterGrid` work,
    what cuts X into
    rows does not (`backtest` takes the place of cross-validation). Options are checked when `fit`
    is called.

    `fit` chooses the number of epochs (or trees) on the last labelled periods, as if they had to be
    predicted, then trains on all labelled periods. No label at or after the cutoff is ever within
    its reach.

    Args:
        model: A head of `MODELS`: "sign" and other networks, "trees", "linear", "prior", or, on
            graphs of one node type, "gcn", "sage", "gat", "revgat", "revgat-linear" or a network of
            your own: a module, copied and drawn anew for every fit, or a function
            `build(in_channels, out_channels)` that makes one. Its forward takes `(x, edge_index)`
            or `(x, edge_index, edge_weight)`: standardised features, and the method's time weights
            times those of the graph; it returns logits.
        method: What is done about the shift, for example "plain", "pmp+center" or "labels" (see
            `Method`).
        cutoff: Labels are known before it; by default the graph tells
            (`TemporalGraph.infer_cutoff`).
        hops: Steps along the edges; with several node types the longest metapath, at least in and
            back.
        undirected: Let messages run in both directions of every edge.
        embed: "spectral" to give node types without features an embedding of the graph before the
            cutoff, or "none".
        hidden: Width of a network; by default the model's own.
        dropout: Share of hidden units left out in training; by default the model's own.
        epochs: Most epochs or trees; by default as many as a fixed amount of work allows.
        patience: Epochs or trees without a better score that end the search for their number; by
            default the model's own, and longer for parts of a method that hold the score back at
            first.
        lr: Learning rate of a network; by default the model's own.
        weight_decay: Weight decay.
        half_life: With "recency", labels this much older than the newest count half; in units of
            time.
        refit: Train on all labelled periods in the end, the one chosen by included.
        metric: What epochs, trees and smoothing are chosen by, and labels suit: a name of
            `METRICS`.
        class_weight: "balanced" to let all classes count the same in training; probabilities still
            follow their true shares. None to let all labels count the same.
        seed: Seed of everything random.
        device: "auto", "cpu", "cuda" or "mps".

    Examples:
        >>> from impact_gnn.data.tsbm import tsbm
        >>> g = tsbm(num_nodes=400, num_times=5, num_labels=2, seed=0)
        >>> p = Pipeline(method="center+labels", cutoff=4, hidden=8, epochs=5).fit(g)
        >>> p.predict(g).shape == (80,), p.predict_proba(g).shape
        (True, (80, 2))
    """

    def __init__(
        self,
        model: Model = "sign",
        method: str | Method = "plain",
        cutoff: int | str | None = None,
        *,
        hops: int = 2,
        undirected: bool = True,
        embed: str = "none",
        hidden: int | None = None,
        dropout: float | None = None,
        epochs: int | None = None,
        patience: int | None = None,
        lr: float | None = None,
        weight_decay: float = 5e-4,
        half_life: float | None = None,
        refit: bool = True,
        metric: str = "accuracy",
        class_weight: str | None = None,
        seed: int = 0,
        device: str = "auto",
    ) -> None:
        self.model = model
        self.method = method
        self.cutoff = cutoff
        self.hops = hops
        self.undirected = undirected
        self.embed = embed
        self.hidden = hidden
        self.dropout = dropout
        self.epochs = epochs
        self.patience = patience
        self.lr = lr
        self.weight_decay = weight_decay
        self.half_life = half_life
        self.refit = refit
        self.metric = metric
        self.class_weight = class_weight
        self.seed = seed
        self.device = device
        self.fitted: Fitted | None = None

    # -- scikit-learn's verbs

    def set_params(self, **params: Any) -> Pipeline:
        """Changes options; what was fitted with others is forgotten."""
        if params:
            super().set_params(**params)
            self.fitted = None
        return self

    def checked(self) -> Pipeline:
        """This pipeline, if all its options that can be checked without a graph are right."""
        if isinstance(self.model, str) or not callable(self.model):
            checks.choice("model", self.model, MODELS)
        elif self.hidden is not None or self.dropout is not None:
            raise InputError(
                "hidden and dropout are options of our networks; build yours with them."
            )
        name = self.model if isinstance(self.model, str) else "a user model"
        if refusal := self._method.refusal(spec_of(self.model).kind, name):
            raise InputError(f"{refusal}; change the method {str(self._method)!r} or the model.")
        checks.choice("metric", self.metric, METRICS)
        checks.choice("embed", self.embed, EMBEDDINGS)
        if self.class_weight is not None:
            checks.choice("class_weight", self.class_weight, CLASS_WEIGHTS)
        return self

    def described(self) -> dict[str, Any]:
        """The options in the types of JSON, for files; a network of one's own by its name."""
        return self.get_params() | {"model": model_name(self.model), "method": str(self._method)}

    @property
    def classes_(self) -> np.ndarray:
        """The classes that columns of `predict_proba` stand for, in the user's own coding."""
        if self.fitted is None:
            raise AttributeError("a pipeline has classes_ after fit(graph).")
        names = self.fitted.schema.label_names
        return np.arange(self.fitted.num_labels) if names is None else np.array(names)

    def __sklearn_is_fitted__(self) -> bool:
        return self.fitted is not None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.target_tags.required, tags.no_validation = (
            False,
            False,
            True,
        )
        return tags

    @property
    def _method(self) -> Method:
        return Method.of(self.method)

    @one_thread
    def fit(
        self,
        graph: GraphLike,
        *,
        inputs: Inputs | None = None,
        engine: Engine | None = None,
        progress: Callable[[Epoch], None] | None = None,
    ) -> Pipeline:
        """Trains on the labels before the cutoff.

        Args:
            graph: The graph, or PyG's `Data` or `HeteroData`; labels at or after the cutoff are
                hidden before anything looks at them.
            inputs: Hops made before, of this graph and these options, to share work between
                pipelines.
            engine: Where to propagate.
            progress: Called after every epoch.
        """
        self.checked()
        self.fitted = None
        data = self._fit_data(as_temporal_graph(graph), inputs, engine, progress)
        has_validation = len(data.labelled_times) > 1
        validate = self._validate if has_validation else self._without_validation
        validated = validate(data)
        stages = validated.stages
        if self.refit and has_validation:
            stages = validated.learner._train(
                data, _all_labelled(data), data.cutoff, validated.rounds
            )
        *earlier, last = (replace(stage, task=None) for stage in stages)
        self.fitted = Fitted(
            head=last.head,
            scales=last.scales,
            smoothing=validated.smoothing,
            cutoff=data.cutoff,
            t_max=int(data.view.times[-1]),
            schema=Schema.of(data.inputs.view),
            rounds=validated.rounds[-1],
            valid_score=validated.valid_score,
            earlier=tuple(earlier),
            evidence=validated.evidence,
        )
        return self

    def _fit_data(
        self,
        graph: TemporalGraph,
        inputs: Inputs | None,
        engine: Engine | None,
        progress: Callable[[Epoch], None] | None,
    ) -> _FitData:
        """Masks the graph, computes its inputs, and weights the labels."""
        cutoff = graph.infer_cutoff() if self.cutoff is None else graph.when(self.cutoff)
        view = graph.masked(cutoff)
        if graph.cutoff is None:  # folds of a back-test may have one class only
            checks.several_classes(view.label, view.name_of(cutoff))
        inputs = self.inputs(view, engine) if inputs is None else inputs
        nodes = self.nodes_of(inputs)
        label, time = view.label[nodes], view.time[nodes]
        prior = np.bincount(label[label >= 0], minlength=view.num_labels) / (label >= 0).sum()
        scoring = Scoring(self.metric, tuple(prior.tolist()), self.class_weight == "balanced")
        weight = self._label_weight(time, label)
        if scoring.balanced:
            weight = scoring.weights(label) * (1 if weight is None else weight)
        return _FitData(
            view=view,
            inputs=inputs,
            cutoff=cutoff,
            nodes=nodes,
            time=time,
            label=label,
            weight=weight,
            scoring=scoring,
            progress=progress,
        )

    def _label_weight(self, time: np.ndarray, label: np.ndarray) -> np.ndarray | None:
        """What every row counts by the parts of the method; None for all the same."""
        weight = None
        for part in self._method.parts:
            if part.label_weight is not None:
                factor = part.label_weight(time, label, self.half_life)
                weight = factor if weight is None else weight * factor
        return weight

    def _class_prior(self, data: _FitData) -> np.ndarray:
        """The class prior under which a head learns, label weights included."""
        weight = self._label_weight(data.time, data.label)
        known = data.label >= 0
        counted = None if weight is None else weight[known]
        count = np.bincount(data.label[known], counted, data.view.num_labels)
        return count / count.sum()

    def _without_validation(self, data: _FitData) -> _Validated:
        """Trains on a single labelled period, where there is nothing to choose by."""
        stages = self._train(data, _all_labelled(data), data.cutoff, [None])
        smoothing = CHOICES[len(CHOICES) // 2] if "smooth" in self._method else None
        return _Validated(
            learner=self,
            stages=stages,
            smoothing=smoothing,
            evidence=PriorEvidence(self._class_prior(data)),
            valid_score=math.nan,
        )

    def _validate(self, data: _FitData) -> _Validated:
        """Trains without the last labelled periods, and chooses by them.

        Inputs are computed as if the labels of these periods were unknown, so that the validation
        rows look like targets.
        """
        label = data.label
        nodes = split_rows(data.view, valid=_choosing(data.time[label >= 0]))
        split = Split(
            np.searchsorted(data.nodes, nodes.train), np.searchsorted(data.nodes, nodes.valid)
        )
        cutoff = int(data.view.time[nodes.valid].min())
        learner, stages = self, self._best_stages(data, split, cutoff)
        optional = [part.name for part in self._method.parts if part.must_improve]
        if optional:
            method = self._method.without(*optional)
            other = Pipeline(**self.get_params() | {"method": method})
            others = other._best_stages(data, split, cutoff)
            if not _is_more_accurate(stages[-1], others[-1], label, split.valid):
                learner, stages = other, others
        last = stages[-1]
        assert last.task is not None
        smoothing, score = None, last.head.valid_score
        if "smooth" in self._method:
            smoothing, score = self._chosen_smoothing(
                last.head, last.task, data.inputs, cutoff, split.valid, label
            )
        return _Validated(
            learner=learner,
            stages=stages,
            smoothing=smoothing,
            evidence=self._prior_evidence(data, last, split.valid),
            valid_score=score,
        )

    def _prior_evidence(self, data: _FitData, stage: Stage, valid: np.ndarray) -> PriorEvidence:
        """The class prior, and for parts that adjust it what the validation rows say."""
        prior = self._class_prior(data)
        if all(part.adjust is None for part in self._method.parts):
            return PriorEvidence(prior)
        assert stage.task is not None
        probabilities, truth = stage.head.predict_proba(stage.task, valid), data.label[valid]
        return PriorEvidence(
            prior=prior,
            confusion=confusion_of(probabilities.argmax(1), truth, data.view.num_labels),
            temperature=best_temperature([OutOfFold(probabilities, truth, prior)]),
        )

    def _best_stages(self, data: _FitData, split: Split, cutoff: int) -> list[Stage]:
        """The stages up to the one with the best validation score."""
        count = STAGES.stages if "stages" in self._method else 1
        stages = self._train(data, split, cutoff, [None] * count)
        return stages[: 1 + int(np.nanargmax([stage.head.valid_score for stage in stages]))]

    @one_thread
    def predict_proba(
        self,
        graph: GraphLike,
        *,
        cutoff: int | str | None = None,
        inputs: Inputs | None = None,
        engine: Engine | None = None,
        smooth: bool = True,
    ) -> np.ndarray:
        """Probabilities [n, num_labels] of the target nodes, in the order of `targets(graph)`.

        The graph may have grown since the fit: weights follow its new last time, and with a later
        `cutoff` the
        labels that have become known since are used by label hops and alignments. `smooth=False`
        gives what a method with "smooth" would say without it.
        """
        fitted, graph = self.require_fitted(), as_temporal_graph(graph)
        at = self._at(graph, cutoff)
        if inputs is None:
            inputs = self.inputs(fitted.schema.adapted(graph, at), engine)
        task = self.task(inputs, at)
        targets = np.searchsorted(self.nodes_of(inputs), self.targets(graph, cutoff=at))
        adjustments = [part.adjust for part in self._method.parts if part.adjust is not None]
        is_smoothed = fitted.smoothing is not None and smooth
        unsmoothed = np.empty(0)
        if adjustments or not is_smoothed:
            unsmoothed = fitted.head.predict_proba(task, targets)
        probabilities = unsmoothed
        if fitted.smoothing is not None and is_smoothed:
            choices = [fitted.smoothing]
            probabilities = self._smoothed(fitted.head, task, inputs, at, choices, targets)[0]
        for adjust in adjustments:
            probabilities = adjust(probabilities, unsmoothed, fitted.evidence)
        return probabilities

    def predict(self, graph: GraphLike, *, cutoff: int | str | None = None) -> np.ndarray:
        """The label of every target node that suits the metric: for accuracy the most probable one.

        It is numbered as in this graph. Columns of `predict_proba` are the classes that the fit has
        seen, and so is this where classes have names and the graph does not know them all
        (`fitted.schema.label_names`).
        """
        fitted, graph = self.require_fitted(), as_temporal_graph(graph)
        return fitted.schema.numbers(graph)[
            fitted.scoring.labels(self.predict_proba(graph, cutoff=cutoff))
        ]

    def score(
        self, graph: GraphLike, *, cutoff: int | str | None = None, metric: str = "accuracy"
    ) -> float:
        """Accuracy, or another metric (higher is better), on the target nodes whose true label the graph holds.

        Nodes of classes that the fit has never seen count as wrong, and a warning says how many
        they are.
        """
        fitted, graph = self.require_fitted(), as_temporal_graph(graph)
        at = self._at(graph, cutoff)
        label, coded, rows = graph.y, fitted.schema.coded(graph).y, self.targets(graph, cutoff=at)
        if label is None or coded is None or not (label[rows] >= 0).any():
            raise InputError(
                "no target node has a label in this graph, so there is nothing to score against."
            )
        known = label[rows] >= 0
        said, truth, scoring = (
            self.predict_proba(graph, cutoff=at)[known],
            coded[rows][known],
            fitted.scoring,
        )
        if (new := truth < 0).any():
            classes, place = np.unique(label[rows][known][new], return_inverse=True)
            truth[new] = said.shape[1] + place
            called = checks.listing(
                [int(k) if graph.label_names is None else graph.label_names[k] for k in classes]
            )
            what = f"{new.sum()} of {len(truth)} target nodes are in classes of which the fit saw no label ({called})"
            warnings.warn(f"{what}; they count as wrong.", stacklevel=2)
            said = np.pad(said, [(0, 0), (0, len(classes))])
            scoring = replace(scoring, prior=(*scoring.prior, *[0.0] * len(classes)))
        return replace(scoring, metric=metric).score(said, truth, scoring.rule.tilt)

    def targets(self, graph: GraphLike, *, cutoff: int | str | None = None) -> np.ndarray:
        """Positions of the nodes to predict: time at or after the cutoff."""
        graph = as_temporal_graph(graph)
        return np.flatnonzero(graph.time >= self._at(graph, cutoff))

    def _at(self, graph: TemporalGraph, cutoff: int | str | None) -> int:
        """The period from which on nodes are targets; refuses one whose labels the fit has used."""
        fit_cutoff = self.require_fitted().cutoff
        if cutoff is None:
            return fit_cutoff
        period = graph.when(cutoff)
        if period < fit_cutoff:
            in_training = int(((graph.time >= period) & (graph.time < fit_cutoff)).sum())
            raise InputError(
                f"cutoff={graph.name_of(period)} lies before {graph.name_of(fit_cutoff)}, the cutoff "
                f"of the fit, so {in_training:,} of these nodes were available for training; "
                f"use a cutoff from {graph.name_of(fit_cutoff)} on, or retrain with the earlier one."
            )
        return period

    def stale(self, graph: GraphLike) -> str | None:
        """A sentence if the graph has periods that the fit had not seen, otherwise None."""
        graph = as_temporal_graph(graph)
        newer = graph.times[graph.times > self.require_fitted().t_max]
        if len(newer) == 0:
            return None
        names, until = (
            [graph.name_of(int(t)) for t in newer],
            graph.name_of(self.require_fitted().t_max),
        )
        count = "1 period is" if len(newer) == 1 else f"{len(newer)} periods are"
        return (
            f"{count} newer than the fit, which knew time up to {until}: {checks.listing(names)}; the choice of "
            f"method was made without them, so back-test again."
        )

    # -- disk

    def save(self, directory: str | Path, *, schema: bool = True) -> None:
        """Writes weights (safetensors) and everything else (JSON), atomically; `load` gives the same predictions.

        An ensemble keeps one `schema` for all its pipelines.
        """
        model_files.write(self.require_fitted(), self.described(), Path(directory), schema=schema)

    @classmethod
    def load(
        cls, directory: str | Path, *, model: Own | None = None, schema: Schema | None = None
    ) -> Pipeline:
        """The pipeline that `save` wrote, with a schema that was kept elsewhere.

        One with a network of your own needs that `model` again: files hold its weights, not its
        code.
        """
        return model_files.read(Path(directory), cls, model=model, schema=schema)

    # -- inside

    def task(self, inputs: Inputs, cutoff: int, soft: np.ndarray | None = None) -> Task:
        """What the fitted head is shown of a graph; `soft` is what it was `taught`, asked for if it is not given."""
        fitted, soft = (
            self.require_fitted(),
            self.soft_labels(inputs, cutoff) if soft is None else soft,
        )
        self._align(fitted.head, inputs, cutoff)
        return self._shown(inputs, cutoff, fitted.scales, fitted.head.shape, soft)

    def soft_labels(self, inputs: Inputs, cutoff: int) -> np.ndarray | None:
        """What earlier stages said, which the fitted head hears in place of labels; None where there were none."""
        fitted, soft = self.require_fitted(), None
        uses_soft_labels = "labels" in self._method and not reads_graph(self.model)
        for stage in fitted.earlier if uses_soft_labels else ():
            task = self._shown(inputs, cutoff, stage.scales, stage.head.shape, soft)
            self._align(stage.head, inputs, cutoff)
            label = inputs.graph.masked(cutoff).label[self.nodes_of(inputs)]
            said = stage.head.predict_proba(task, np.arange(len(label)))
            soft = STAGES.soft_labels(label, np.flatnonzero(label >= 0), fitted.num_labels, said)
        return soft

    def _train(
        self, data: _FitData, split: Split, cutoff: int, rounds: Sequence[int | None]
    ) -> list[Stage]:
        """A training for each of `rounds`, with labels known before `cutoff`.

        Every stage receives the confident predictions of the stage before as pseudo-labels.
        """
        stages: list[Stage] = []
        weight = data.weight
        lesson = Lesson(data.label, None, weight, split)
        # The rows to predict; in validation, those of the validation periods.
        until = data.time[split.valid].max() if len(split.valid) else data.time.max()
        reference = np.flatnonzero((data.time >= cutoff) & (data.time <= until))
        for length in rounds:
            task, scales = self._task(data.inputs, cutoff, split.train, lesson.soft)
            context = RowContext(
                task=task,
                time=data.time,
                label=data.label,
                train=split.train,
                reference=reference,
                read=partial(_read, task),
                seed=self.seed,
            )
            if not stages:
                weight = self._row_weight(context, weight)
                lesson = replace(lesson, weight=weight)
            terms = [part.loss_term(context) for part in self._method.parts if part.loss_term]
            head = self._head(data, task, cutoff, tuple(term for term in terms if term is not None))
            head.fit(
                task,
                lesson.label,
                lesson.split,
                weight=lesson.weight,
                rounds=length,
                target=lesson.target,
            )
            stages.append(Stage(head, scales, task))
            if len(stages) < len(rounds):
                probabilities = head.predict_proba(task, np.arange(len(data.label)))
                lesson = STAGES.lesson(
                    data.label, split, data.view.num_labels, probabilities, weight
                )
        return stages

    def _row_weight(self, context: RowContext, weight: np.ndarray | None) -> np.ndarray | None:
        """`weight`, times what parts say of the rows to train on by what the model reads."""
        for part in self._method.parts:
            if part.row_weight is not None:
                size = len(context.label)
                weight = np.ones(size) if weight is None else np.array(weight, np.float64)
                weight[context.train] *= part.row_weight(context)
        return weight

    def inputs(self, graph: TemporalGraph, engine: Engine | None = None) -> Inputs:
        """The hops of a graph as this pipeline makes them; may be shared by pipelines that differ in method only."""
        if graph.cutoff is None:
            graph = graph.masked(
                graph.infer_cutoff() if self.cutoff is None else graph.when(self.cutoff)
            )
        return Inputs(
            graph,
            hops=self.hops,
            undirected=self.undirected,
            engine=or_memory(engine),
            squashed=self._is_squashed,
            seed=self.seed,
            embed=self.embed,
            embedded=None if self.fitted is None else self.fitted.cutoff,
        )

    def shared_inputs(
        self, kept: dict[bool, Inputs], graph: TemporalGraph, engine: Engine | None = None
    ) -> Inputs:
        """As `inputs`, taken from what other pipelines of this graph have left in `kept`, or made and left there."""
        squashed = self._is_squashed
        if squashed not in kept:
            kept[squashed] = self.inputs(graph, engine)
        return kept[squashed]

    @property
    def _is_squashed(self) -> bool:
        return spec_of(self.model).kind is ModelKind.SQUASHED

    def __repr__(self) -> str:
        state = "" if self.fitted is None else f", fitted up to time {self.fitted.t_max}"
        return f"Pipeline(model={model_name(self.model)!r}, method={str(self.method)!r}{state})"

    def require_fitted(self) -> Fitted:
        if self.fitted is None:
            raise InputError("this pipeline has not been fitted; call fit(graph) first.")
        return self.fitted

    def nodes_of(self, inputs: Inputs) -> np.ndarray:
        """The node of every row of the task."""
        return np.arange(inputs.graph.num_nodes) if reads_graph(self.model) else inputs.rows

    def untrained(
        self,
        shape: Shape,
        scoring: Scoring,
        progress: Callable[[Epoch], None] | None = None,
        terms: tuple[Term, ...] = (),
    ) -> Head:
        """A head of this pipeline's options that has learned nothing yet."""
        parts = self._method.parts
        options = HeadOptions(
            hidden=self.hidden,
            dropout=self.dropout,
            epochs=self.epochs,
            patience=self.patience,
            lr=self.lr,
            weight_decay=self.weight_decay,
            seed=self.seed,
            device=self.device,
            terms=terms,
            training=tuple(part.training for part in parts if part.training is not None),
            patient=any(part.patient for part in parts),
            scoring=scoring,
            progress=progress,
        )
        return make_head(self.model, shape, options)

    def _head(self, data: _FitData, task: Task, cutoff: int, terms: tuple[Term, ...]) -> Head:
        groups = [[0]] if reads_graph(self.model) else data.inputs.groups(self._method)
        shape = Shape(*_widths(task), data.view.num_labels, groups)
        head = self.untrained(shape, data.scoring, data.progress, terms)
        self._align(head, data.inputs, cutoff)
        return head

    def _align(self, head: Head, inputs: Inputs, cutoff: int) -> None:
        """A spatial network's messages are aligned within it, by what is known of this graph before `cutoff`."""
        alignments = self._method.of_kind(Kind.ALIGNMENT)
        if isinstance(head, NetworkHead) and reads_graph(self.model) and alignments:
            view = inputs.graph.masked(cutoff)
            table = time_table(view, self._method.edge_weighting)
            head.aligned(align_layer(alignments[0].name, view, table=table))

    def _task(
        self, inputs: Inputs, cutoff: int, rows: np.ndarray, soft: np.ndarray | None = None
    ) -> tuple[Task, list[Scale]]:
        """What the head learns from when labels are known before `cutoff`, scaled by the rows it learns from."""
        if reads_graph(self.model):
            x = _features_of(inputs)
            scale = Scale.fit(x[rows])
            return self._graph_task(inputs, scale, cutoff), [scale]
        hops, label_hops = inputs.model_inputs(self._method, cutoff, soft)
        count = len(hops)
        loaded = inputs.engine.loaded([*hops, *label_hops])
        parts = [rows[part] for part in position_blocks(len(rows))]
        scales = [Scale.fit(hop.rows(part) for part in parts) for hop in loaded[:count]]
        scaled = inputs.engine.loaded([*_scaled(loaded[:count], scales), *loaded[count:]])
        return HopTask(scaled[:count], scaled[count:]), scales

    def _shown(
        self,
        inputs: Inputs,
        cutoff: int,
        scales: list[Scale],
        shape: Shape,
        soft: np.ndarray | None = None,
    ) -> Task:
        """What a fitted head is shown of a graph, which must look like the one of the fit."""
        if reads_graph(self.model):
            task: Task = self._graph_task(inputs, scales[0], cutoff)
        else:
            hops, label_hops = inputs.model_inputs(self._method, cutoff, soft)
            scaled = hops if len(hops) != len(scales) else _scaled(hops, scales)
            task = HopTask(scaled, label_hops)
        if _widths(task) != (shape.hops, shape.label_hops):
            fitted, given = (shape.hops, shape.label_hops), _widths(task)
            raise InputError(
                f"the model was fitted with inputs of widths {fitted}, this graph gives {given}."
            )
        return task

    def _graph_task(self, inputs: Inputs, scale: Scale, cutoff: int) -> GraphTask:
        method, graph = self._method, inputs.graph
        network = spec_of(self.model).network
        assert network is not None
        operator = inputs.engine.operator(
            graph,
            own_relation(graph),
            weighting=method.edge_weighting,
            self_loop=network.self_loops,
        )
        label = graph.masked(cutoff).label if "labels" in method else None
        hooks = [part.propagation for part in method.parts if part.propagation is not None]
        propagation = hooks[0](operator, self.seed) if hooks else Propagation(operator)
        x = scale.apply(_features_of(inputs))
        return GraphTask(x, propagation, label, graph.num_labels, reuse=1)

    def _chosen_smoothing(
        self,
        head: Head,
        task: Task,
        inputs: Inputs,
        cutoff: int,
        valid: np.ndarray,
        label: np.ndarray,
    ) -> tuple[Smoothing, float]:
        """The smoothing with the best log-loss, or score, on the rows to choose by, and its score there."""
        tried = self._smoothed(head, task, inputs, cutoff, CHOICES, valid)
        place, scoring = (np.arange(len(valid)), label[valid]), head.options.scoring
        scores = [scoring.score(one, label[valid]) for one in tried]
        logs = [np.log(np.maximum(one[place], 1e-6)).mean() for one in tried]
        best = int(np.argmax(logs if scoring.rule.by_log_loss else scores))
        return CHOICES[best], scores[best]

    def _smoothed(
        self,
        head: Head,
        task: Task,
        inputs: Inputs,
        cutoff: int,
        choices: Sequence[Smoothing],
        wanted: np.ndarray,
    ) -> list[np.ndarray]:
        """Probabilities of the rows `wanted` after every smoothing, when labels are known before `cutoff`."""
        rows, graph = self.nodes_of(inputs), inputs.graph.masked(cutoff)
        along = smoothing_paths(graph, self._method.edge_weighting, inputs.engine)
        base = np.zeros((graph.num_nodes, head.shape.num_labels), np.float32)
        base[rows] = head.predict_proba(task, np.arange(len(rows)))
        return [
            one[rows[wanted]]
            for one in correct_and_smooth(base, graph.label, along, choices, inputs.engine)
        ]


def _scaled(hops: list[Any], scales: list[Scale]) -> list[Any]:
    def scaled(hop: Any, scale: Scale) -> Any:
        return mapped_hop(
            hop, lambda values, index: scale.apply(np.asarray(values, np.float32)), np.float32
        )

    return [scaled(hop, scale) for hop, scale in zip(hops, scales, strict=True)]


def _widths(task: Task) -> tuple[list[int], list[int]]:
    if isinstance(task, GraphTask):
        return [task.width], []
    assert isinstance(task, HopTask)
    return task.in_channels, task.label_channels


def _read(task: Task, rows: np.ndarray) -> np.ndarray:
    """All that a model reads of some rows; of a graph, two hops of features."""
    if not isinstance(task, GraphTask):
        return matrix(task, rows)
    first = task.propagation(task.x)
    return torch.cat([task.x, first, task.propagation(first)], 1).numpy()[rows]


def _all_labelled(data: _FitData) -> Split:
    return Split(np.flatnonzero(data.label >= 0), np.empty(0, np.int64))


def _features_of(inputs: Inputs) -> np.ndarray:
    if inputs.graph.x is None:
        raise InputError("the graph has no features; use a model that reads hops.")
    return np.asarray(inputs.graph.x, np.float32)


def _is_more_accurate(ours: Stage, theirs: Stage, label: np.ndarray, rows: np.ndarray) -> bool:
    """Whether one is right on more of the rows than another, by more than the standard error of that."""

    def hits(stage: Stage) -> np.ndarray:
        assert stage.task is not None
        return stage.head.predict_proba(stage.task, rows).argmax(1) == label[rows]

    gain = paired(hits(ours), hits(theirs)) if len(rows) > 1 else None
    return gain is not None and gain.value > gain.error


def _choosing(time: np.ndarray) -> int:
    """How many of the last labelled periods to choose by: those that hold a tenth of the labels, but not all.

    Fewer are too noisy; with more, what is chosen suits a model that has learned from much less
    than the last one will.
    """
    sizes = np.unique(time, return_counts=True)[1]
    enough = int(np.argmax(np.cumsum(sizes[::-1]) >= CHOOSING * sizes.sum()))
    return min(enough + 1, len(sizes) - 1)
