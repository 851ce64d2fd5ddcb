"""`Pipeline`: fits one model with one method on labels of the past, and predicts recent nodes."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy import ndarray
from sklearn.base import BaseEstimator, ClassifierMixin, clone

from impact_gnn import checks
from impact_gnn._native import one_thread
from impact_gnn.checks import InputError
from impact_gnn.data.convert import GraphLike, as_temporal_graph
from impact_gnn.engines.engine import Engine, time_table
from impact_gnn.engines.hop import Hop, mapped_hop, position_blocks
from impact_gnn.engines.memory import as_engine
from impact_gnn.estimators import model_files
from impact_gnn.estimators.calibration import OutOfFold, best_temperature, clipped_log_loss
from impact_gnn.estimators.head import Head, HeadOptions, Shape, matrix
from impact_gnn.estimators.inputs import Inputs, NodeIndex, RowIndex
from impact_gnn.estimators.model_files import FitSettings, Fitted, Stage
from impact_gnn.estimators.model_table import MODELS, reads_graph, spec_of
from impact_gnn.estimators.network import NetworkHead
from impact_gnn.estimators.reach import Reach, engine_for
from impact_gnn.estimators.schema import Schema
from impact_gnn.estimators.user_model import Model, Own, model_name
from impact_gnn.graph import TemporalGraph
from impact_gnn.graph.neighbourhood import positions_of
from impact_gnn.label_shift import confusion_of
from impact_gnn.methods import Kind, Method, ModelKind, PriorEvidence, RowContext
from impact_gnn.metrics import METRICS, Scoring
from impact_gnn.nn import (
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
from impact_gnn.propagation.hops import own_relation
from impact_gnn.propagation.smoothing import CHOICES, Smoothing, correct_and_smooth, smoothing_paths
from impact_gnn.statistics import Scale

VALIDATION_SHARE = 0.1  # least share of the labels in the validation periods
STAGES = Reliable(stages=3)  # of a method with "stages"
# settings of a single labelled period, which leaves none for validation
FIRST_GUESS = FitSettings((), CHOICES[len(CHOICES) // 2], None)


@dataclass(frozen=True, eq=False)
class _FitData:
    """The inputs of all trainings of a fit; arrays have one entry per row of the task.

    `class_prior` is the class prior under which a head learns, label weights included.
    """

    view: TemporalGraph
    inputs: Inputs
    cutoff: int
    nodes: NodeIndex
    time: ndarray
    label: ndarray
    weight: ndarray | None
    class_prior: ndarray
    scoring: Scoring

    @property
    def labelled(self) -> RowIndex:
        return np.flatnonzero(self.label >= 0)

    @property
    def of_fitted(self) -> dict[str, Any]:
        """What a fit stores of its graph."""
        return {
            "cutoff": self.cutoff,
            "t_max": int(self.view.times[-1]),
            "schema": Schema.of(self.inputs.view),
        }


@dataclass(eq=False, repr=False)
class Pipeline(ClassifierMixin, BaseEstimator):
    """Weights, hops, alignment, model and training in one object with scikit-learn's verbs.

    It is an estimator of graphs, not of a matrix X: `clone`, `set_params` and `ParameterGrid` work,
    but tools that split X by rows do not (use `backtest` for cross-validation). Options are checked
    when `fit` is called.

    `fit` chooses the number of epochs (or trees) on the last labelled periods, as if they had to be
    predicted, then trains on all labelled periods. It never reads a label at or after the cutoff.

    Args:
        model: A head of `MODELS`: "sign" and other networks, "trees", "linear", "prior", or, on
            graphs of one node type, "gcn", "sage", "gat" or a user model: a module, copied and
            initialised anew for every fit, or a function `build(in_channels, out_channels)` that
            returns one. Its forward takes `(x, edge_index)` or `(x, edge_index, edge_weight)`:
            standardised features, and the method's time weights times those of the graph; it
            returns logits.
        method: The correction for the shift, for example "plain", "pmp+center" or "labels" (see
            `Method`).
        cutoff: Labels are known before it; by default `TemporalGraph.infer_cutoff`.
        hops: Steps along the edges; with several node types the longest metapath, at least in and
            back.
        undirected: Let messages run in both directions of every edge.
        hidden: Width of a network; by default the model's own.
        dropout: Share of hidden units left out in training; by default the model's own.
        epochs: Most epochs or trees; by default as many as a fixed amount of work allows.
        patience: Epochs or trees without a better score that end the search for their number; by
            default the model's own, and longer for parts that lower the score at first.
        lr: Learning rate of a network; by default the model's own.
        weight_decay: Weight decay.
        refit: Train on all labelled periods in the end, the validation periods included.
        metric: The metric that epochs, trees and smoothing are chosen by: a name of `METRICS`.
        class_weight: "balanced" to let all classes count the same in training; probabilities still
            follow their true proportions. None to let all labels count the same.
        seed: Seed of everything random.
        device: "auto", "cpu", "cuda" or "mps".

    Examples:
        >>> from impact_gnn.data.tsbm import tsbm
        >>> g = tsbm(num_nodes=400, num_times=5, num_labels=2, seed=0)
        >>> p = Pipeline(method="center+labels", cutoff=4, hidden=8, epochs=5).fit(g)
        >>> p.predict(g).shape == (80,), p.predict_proba(g).shape
        (True, (80, 2))
    """

    model: Model = "sign"
    method: str | Method = "plain"
    cutoff: int | str | None = None
    _: KW_ONLY
    hops: int = 2
    undirected: bool = True
    hidden: int | None = None
    dropout: float | None = None
    epochs: int | None = None
    patience: int | None = None
    lr: float | None = None
    weight_decay: float = 5e-4
    refit: bool = True
    metric: str = "accuracy"
    class_weight: str | None = None
    seed: int = 0
    device: str = "auto"
    fitted: Fitted | None = field(default=None, init=False)

    # -- scikit-learn's verbs

    def set_params(self, **params: Any) -> Pipeline:
        """Change options; a fit with other options is discarded."""
        if params:
            super().set_params(**params)
            self.fitted = None
        return self

    def checked(self) -> Pipeline:
        """Return this pipeline if its options are right, as far as that shows without a graph."""
        if isinstance(self.model, str) or not callable(self.model):
            checks.choice("model", self.model, MODELS)
        elif self.hidden is not None or self.dropout is not None:
            raise InputError(
                "hidden and dropout apply to built-in networks only; set them in your own model."
            )
        name = self.model if isinstance(self.model, str) else "a user model"
        refusal = self._method.refusal(spec_of(self.model).kind, name)
        if refusal is not None:
            raise InputError(f"{refusal}; change the method {str(self._method)!r} or the model.")
        checks.choice("metric", self.metric, METRICS)
        checks.seed(self.seed)
        if self.class_weight is not None:
            checks.choice("class_weight", self.class_weight, ("balanced",))
        return self

    def described(self) -> dict[str, Any]:
        """Return the options in the types of JSON; a user model by its name."""
        return self.get_params() | {"model": model_name(self.model), "method": str(self._method)}

    @property
    def classes_(self) -> ndarray:
        """The classes of the columns of `predict_proba`, in the user's own coding."""
        if self.fitted is None:
            raise AttributeError("classes_ exists after fit(graph) only.")
        names = self.fitted.schema.label_names or range(self.fitted.num_labels)
        return np.array(names)

    def __sklearn_is_fitted__(self) -> bool:
        return self.fitted is not None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.target_tags.required = False
        tags.no_validation = True
        return tags

    @property
    def _method(self) -> Method:
        return Method.of(self.method)

    @property
    def _reads_graph(self) -> bool:
        return reads_graph(self.model)

    @one_thread
    def fit(
        self,
        graph: GraphLike,
        y: None = None,
        *,
        inputs: Inputs | None = None,
        engine: Engine | None = None,
        settings: FitSettings | None = None,
    ) -> Pipeline:
        """Train on the labels before the cutoff.

        Args:
            graph: The graph, or PyG's `Data` or `HeteroData`; labels at or after the cutoff are
                masked first.
            y: Refused, because the graph has the labels; scikit-learn passes None.
            inputs: Hops of this graph and these options, computed before, to share work between
                pipelines.
            engine: Where to propagate.
            settings: Choices of an earlier fit (`fitted.settings`), on older labels of this graph.
                They replace the validation, which takes more than half of the time. Ignored where
                a part of the method needs validation rows.
        """
        self.checked()
        self.fitted = None
        graph = as_temporal_graph(graph)
        if y is not None:
            raise InputError("fit reads the labels of the graph; pass no y.")
        data = self._fit_data(graph, inputs, engine)
        # parts that adjust probabilities need more than the settings
        if settings is not None and not self._adjustments:
            fitted = self._train_with(data, settings)
        elif _split_for_validation(data.view) is not None:
            fitted = self._validate(data)
            if self.refit:  # for the rounds that were chosen
                rounds = fitted.settings.rounds
                fitted = replace(fitted, stages=self._train_on_all(data, rounds))
        else:
            fitted = self._train_with(data, FIRST_GUESS)
        # Tasks refer to all hops of the graph, and are not stored.
        stages = tuple(replace(stage, task=None) for stage in fitted.stages)
        self.fitted = replace(fitted, stages=stages)
        return self

    def _fit_data(
        self, graph: TemporalGraph, inputs: Inputs | None, engine: Engine | None
    ) -> _FitData:
        """Mask the graph, compute its inputs, and weight the labels."""
        view = self._masked(graph)
        assert view.cutoff is not None
        if graph.cutoff is None:  # folds of a back-test may have one class only
            checks.several_classes(view.label, view.name_of(view.cutoff))
        if inputs is None:
            inputs = self.inputs(view, engine)
        nodes = self.nodes_of(inputs)
        label = view.label[nodes]
        time = view.time[nodes]
        # By row of the task.
        known = label >= 0
        weight = None
        for part in self._method.parts:
            if part.label_weight is not None:
                weight = _product(part.label_weight(time, label), weight)
        # The class prior counts label weights, the scores do not.
        count = np.bincount(label[known], minlength=view.num_labels)
        prior = count / count.sum()
        scoring = Scoring(self.metric, tuple(prior.tolist()), self.class_weight == "balanced")
        if weight is not None:
            count = np.bincount(label[known], weight[known], view.num_labels)
        class_prior = count / count.sum()
        if scoring.balanced:
            weight = _product(scoring.weights(label), weight)
        return _FitData(
            view=view,
            inputs=inputs,
            cutoff=view.cutoff,
            nodes=nodes,
            time=time,
            label=label,
            weight=weight,
            class_prior=class_prior,
            scoring=scoring,
        )

    def _masked(self, graph: TemporalGraph) -> TemporalGraph:
        """Mask the labels from the cutoff on, by default the inferred one."""
        cutoff = graph.infer_cutoff() if self.cutoff is None else graph.when(self.cutoff)
        return graph.masked(cutoff)

    def _train_with(self, data: _FitData, settings: FitSettings) -> Fitted:
        """Train on all labels with known settings; without rounds, for as long as allowed."""
        score = settings.valid_score
        return Fitted(
            stages=self._train_on_all(data, settings.rounds or (None,)),
            smoothing=settings.smoothing if "smooth" in self._method else None,
            evidence=PriorEvidence(data.class_prior),
            valid_score=math.nan if score is None else score,
            **data.of_fitted,
        )

    def _train_on_all(self, data: _FitData, rounds: Sequence[int | None]) -> tuple[Stage, ...]:
        split = Split(data.labelled, np.empty(0, np.int64))
        return self._train(data, split, data.cutoff, rounds)

    def _validate(self, data: _FitData) -> Fitted:
        """Train without the last labelled periods, and choose by them.

        Inputs are computed as if the labels of these periods were unknown, so that the validation
        rows look like targets.
        """
        nodes = _split_for_validation(data.view)
        assert nodes is not None  # the caller has looked
        # Validation rows are targets of this earlier cutoff.
        cutoff = int(data.view.time[nodes.valid].min())
        # From positions in the graph to positions among the rows.
        train = np.searchsorted(data.nodes, nodes.train)
        valid = np.searchsorted(data.nodes, nodes.valid)
        count = STAGES.stages if "stages" in self._method else 1
        stages = self._train(data, Split(train, valid), cutoff, [None] * count)
        # Up to the one with the best validation score.
        best = int(np.nanargmax([stage.head.valid_score for stage in stages]))
        last = stages[best]
        smoothing = None
        if "smooth" in self._method:
            smoothing = self._best_smoothing(last, data, cutoff, valid)
        return Fitted(
            stages=stages[: best + 1],
            smoothing=smoothing,
            evidence=self._prior_evidence(data, last, valid),
            valid_score=last.head.valid_score,
            **data.of_fitted,
        )

    def _prior_evidence(self, data: _FitData, stage: Stage, valid: RowIndex) -> PriorEvidence:
        """Return the class prior, and for parts that adjust it the errors in validation."""
        prior = data.class_prior
        if not self._adjustments:
            return PriorEvidence(prior)
        # Of the validation rows, [n, num_labels].
        probabilities = stage.predict_proba(valid)
        truth = data.label[valid]
        predicted = probabilities.argmax(1)
        return PriorEvidence(
            prior=prior,
            confusion=confusion_of(predicted, truth, data.view.num_labels),
            temperature=best_temperature([OutOfFold(probabilities, truth, prior)]),
        )

    @property
    def _adjustments(self) -> list[Callable[..., ndarray]]:
        return [part.adjust for part in self._method.parts if part.adjust is not None]

    def _best_smoothing(
        self, stage: Stage, data: _FitData, cutoff: int, valid: RowIndex
    ) -> Smoothing:
        """Return the smoothing with the best log-loss, or score, on the validation rows."""
        base = self._smoothing_base(stage, data.inputs, cutoff, CHOICES)
        candidates = self._smoothed(base, data.inputs, cutoff, CHOICES, valid)
        truth = data.label[valid]
        if data.scoring.rule.by_log_loss:
            scores = [-clipped_log_loss(rows, truth) for rows in candidates]
        else:
            scores = [data.scoring.score(rows, truth) for rows in candidates]
        return CHOICES[int(np.argmax(scores))]

    def without_smoothing(self) -> Pipeline:
        """Return the fitted pipeline of the same method without "smooth": it shares the fit."""
        other = clone(self).set_params(method=self._method.without("smooth"))
        other.fitted = replace(self.require_fitted(), smoothing=None)
        return other

    @one_thread
    def predict_proba(
        self,
        graph: GraphLike,
        *,
        nodes: Any = None,
        cutoff: int | str | None = None,
        inputs: Inputs | None = None,
        engine: Engine | None = None,
    ) -> ndarray:
        """Return probabilities [n, num_labels] of the target nodes, in the order of `targets`.

        The graph may have grown since the fit: weights follow its new last time, and with a later
        `cutoff` the labels that have become known since are used by label hops and alignments.

        With `nodes`, ids of targets, rows are theirs in this order. They are computed from the
        neighbourhood of these nodes alone, or, with a warning, from the whole graph if a part of
        the method needs all nodes (`reach`); the result is the same.
        """
        schema = self.require_fitted().schema
        graph = as_temporal_graph(graph)
        period = self._target_period(graph, cutoff)
        node_index = self.targets(
            graph,
            nodes=nodes,
            cutoff=period,
        )
        # None: predictions are computed from the whole graph.
        part = None
        # A few nodes: only their neighbourhood is read, if the method allows it.
        if inputs is None and nodes is not None:
            part = self.reach(graph).part_of(graph, node_index)
        if part is not None:
            # Positions in the neighbourhood from here on.
            neighbours, node_index = part
            view = schema.adapted(neighbours, period)
            engine = engine_for(neighbours, engine)
            inputs = self.inputs(view, engine, predicted_nodes=node_index)
        elif inputs is None:
            inputs = self.inputs(schema.adapted(graph, period), engine)
        return self.predict_rows(inputs, period, node_index)

    @one_thread
    def predict_rows(self, inputs: Inputs, cutoff: int, nodes: NodeIndex) -> ndarray:
        """Return probabilities of some targets, by their positions in the graph of the inputs."""
        smoothed, unsmoothed = self.predict_variants(inputs, cutoff, nodes)
        return unsmoothed if smoothed is None else smoothed

    @one_thread
    def predict_variants(
        self, inputs: Inputs, cutoff: int, nodes: NodeIndex
    ) -> tuple[ndarray | None, ndarray]:
        """Return probabilities of some targets with smoothing, or None, and without it.

        The head predicts once for both.
        """
        fitted = self.require_fitted()
        stage = replace(fitted.stages[-1], task=self.task(inputs, cutoff))
        predicted = nodes
        if self._adjustments:  # by the predictions of all targets
            predicted = np.flatnonzero(inputs.graph.time >= cutoff)
        # From positions in the graph to rows of the task.
        rows = self._rows_of(predicted, inputs)
        smoothed = None
        if fitted.smoothing is not None:
            choices = [fitted.smoothing]
            base = self._smoothing_base(stage, inputs, cutoff, choices)
            # `base` is by node, [N, num_labels].
            unsmoothed = base[self.nodes_of(inputs)[rows]]
            smoothed = self._smoothed(base, inputs, cutoff, choices, rows)[0]
        else:
            unsmoothed = stage.predict_proba(rows)

        def adjusted(probabilities: ndarray) -> ndarray:
            for adjust in self._adjustments:
                probabilities = adjust(probabilities, unsmoothed, fitted.evidence)
            if predicted is not nodes:
                # From all targets back to the requested ones.
                probabilities = probabilities[predicted.searchsorted(nodes)]
            return probabilities

        return None if smoothed is None else adjusted(smoothed), adjusted(unsmoothed)

    def _rows_of(self, nodes: NodeIndex, inputs: Inputs) -> RowIndex:
        """Return the rows of some nodes in the task."""
        nodes_of_rows = self.nodes_of(inputs)
        rows = np.searchsorted(nodes_of_rows, nodes)
        if not np.array_equal(nodes_of_rows.take(rows, mode="clip"), nodes):
            raise InputError(
                "the inputs have no rows for some nodes to predict; "
                "pass inputs of a graph that is masked at the model's cutoff."
            )
        return rows

    def reach(self, graph: TemporalGraph) -> Reach:
        """Return how far in a graph the prediction of a node reads."""
        fitted = self.require_fitted()
        method = self._method
        network = spec_of(self.model).network
        whole_graph = [part.name for part in method.parts if part.reads_whole_graph]
        if fitted.smoothing is not None:
            whole_graph.append("smooth")
        if fitted.earlier and "labels" in method:  # soft labels of all nodes
            whole_graph.append("stages")
        if "snapshot" in method and graph.has_untimed_edges:  # by paths of any length
            whole_graph.append("snapshot")
        # A metapath leads at least to another type and back.
        steps = max(self.hops, 2) if graph.is_hetero else self.hops
        if "features" in method:
            steps = 0
        elif self._is_squashed and graph.is_hetero:
            # there and back in every iteration, after messages have reached all types
            steps = 2 * self.hops + len(graph.nodes)
        elif self._reads_graph and network is not None:
            # Alignments within a network need the statistics of all nodes.
            if network.layers is None or method.of_kind(Kind.ALIGNMENT):
                whole_graph.append(f"the model {model_name(self.model)!r}")
            steps = network.layers or 0
            if "labels" in method:  # the second run reads the probabilities of the first
                steps *= 2
        own_steps = [part.steps for part in method.parts if part.steps is not None]
        has_degrees = not fitted.schema.has_features(graph.target)  # in place of features
        return Reach(
            # Degrees in place of features count the edges one step further on.
            steps=max([steps + has_degrees, *own_steps]),
            both_ways=self.undirected or has_degrees or bool(own_steps),
            whole_graph=tuple(whole_graph),
        )

    def predict(
        self, graph: GraphLike, *, nodes: Any = None, cutoff: int | str | None = None
    ) -> ndarray:
        """Return the label of every target node that suits the metric, by default the likeliest.

        Labels are codes 0, 1, 2, ..., not elements of `classes_`, even where names of classes are
        numbers. For a graph with the classes of the fit, names are `classes_[predict(graph)]`.

        Codes are those of this graph: with more classes than in the fit, names are
        `np.array(graph.label_names)[predict(graph)]`. Where classes have names and the graph does
        not know them all, codes are the columns of `predict_proba`, as in `classes_`.
        `nodes` are as in `predict_proba`.
        """
        fitted = self.require_fitted()
        graph = as_temporal_graph(graph)
        probabilities = self.predict_proba(graph, nodes=nodes, cutoff=cutoff)
        label = fitted.scoring.labels(probabilities)
        return fitted.schema.class_codes(graph)[label]

    def score(
        self, graph: GraphLike, *, cutoff: int | str | None = None, metric: str = "accuracy"
    ) -> float:
        """Return accuracy, or another metric (higher is better), on the labelled target nodes.

        Nodes of classes that are new since the fit count as errors, with a warning.
        """
        scoring = self.require_fitted().scoring
        # The labels are those of the fitted metric, whichever metric scores them.
        tilt = scoring.rule.tilt
        return score_of(self, graph, cutoff, replace(scoring, metric=metric), tilt)

    def targets(
        self, graph: GraphLike, *, nodes: Any = None, cutoff: int | str | None = None
    ) -> NodeIndex:
        """Return the positions of the nodes to predict: time at or after the cutoff.

        With `nodes`, ids of such nodes, those of these nodes in this order.
        """
        graph = as_temporal_graph(graph)
        period = self._target_period(graph, cutoff)
        if nodes is None:
            return np.flatnonzero(graph.time >= period)
        positions = positions_of(graph, nodes)
        early = positions[graph.time[positions] < period]
        if len(early):
            own = graph.name_of(int(graph.time[early[0]]))
            raise InputError(
                f"node {graph.ids[early[0]]} is in period {own}, "
                f"but nodes from {graph.name_of(period)} on are predicted; pass only those."
            )
        return positions

    def _target_period(self, graph: TemporalGraph, cutoff: int | str | None) -> int:
        """Return the first period of targets; refuse one whose labels the fit has used."""
        fit_cutoff = self.require_fitted().cutoff
        if cutoff is None:
            return fit_cutoff
        period = graph.when(cutoff)
        if period < fit_cutoff:
            name = graph.name_of(fit_cutoff)
            in_training = (graph.time >= period) & (graph.time < fit_cutoff)
            raise InputError(
                f"cutoff={graph.name_of(period)} lies before {name}, the cutoff of the fit, so "
                f"{in_training.sum():,} of these nodes were available for training; "
                f"use a cutoff from {name} on, or retrain with the earlier one."
            )
        return period

    def stale(self, graph: GraphLike) -> str | None:
        """Return a sentence if the graph has periods that are newer than the fit, else None."""
        graph = as_temporal_graph(graph)
        t_max = self.require_fitted().t_max
        newer = graph.times[graph.times > t_max]
        if not len(newer):
            return None
        count = "1 period is" if len(newer) == 1 else f"{len(newer)} periods are"
        names = checks.listing([graph.name_of(int(time)) for time in newer])
        return (
            f"{count} newer than the fit, which ends at {graph.name_of(t_max)}: {names}; "
            f"the model was selected without them, so back-test again."
        )

    # -- disk

    def save(self, directory: str | Path, *, schema: bool = True) -> None:
        """Write weights (safetensors) and everything else (JSON), atomically.

        An ensemble saves one `schema` for all its pipelines.
        """
        model_files.write(self.require_fitted(), self.described(), Path(directory), schema=schema)

    @classmethod
    def load(
        cls, directory: str | Path, *, model: Own | None = None, schema: Schema | None = None
    ) -> Pipeline:
        """Return the pipeline that `save` wrote, with a schema that was saved elsewhere.

        A user model has to be passed as `model` again: files hold its weights, not its code.
        """
        return model_files.read(
            Path(directory),
            cls,
            model=model,
            schema=schema,
        )

    # -- inside

    def task(self, inputs: Inputs, cutoff: int, soft: ndarray | None = None) -> Task:
        """Return the inputs of the fitted head; `soft` are its `soft_labels`, by default new."""
        if soft is None:
            soft = self.soft_labels(inputs, cutoff)
        return self._stage_task(self.require_fitted().stages[-1], inputs, cutoff, soft)

    def soft_labels(self, inputs: Inputs, cutoff: int) -> ndarray | None:
        """Return the soft labels of earlier stages, inputs of the last; None without stages."""
        fitted = self.require_fitted()
        soft = None
        if "labels" not in self._method or self._reads_graph:
            return None
        for stage in fitted.earlier:
            task = self._stage_task(stage, inputs, cutoff, soft)
            # Known labels by row of the task.
            label = inputs.graph.masked(cutoff).label[self.nodes_of(inputs)]
            labelled = np.flatnonzero(label >= 0)
            probabilities = stage.head.predict_proba(task, np.arange(len(label)))
            soft = STAGES.soft_labels(label, labelled, fitted.num_labels, probabilities)
        return soft

    def _train(
        self, data: _FitData, split: Split, cutoff: int, rounds: Sequence[int | None]
    ) -> tuple[Stage, ...]:
        """Train one stage for each of `rounds`, with labels known before `cutoff`.

        Every stage receives the confident predictions of the stage before as pseudo-labels.
        """
        stages: list[Stage] = []
        weight = data.weight
        if weight is not None and weight[split.train].any():
            # Rows that do not count in the loss would only take time.
            split = replace(split, train=split.train[weight[split.train] > 0])
        lesson = Lesson(data.label, None, weight, split)
        # The rows to predict; in validation, those of the validation periods.
        is_reference = data.time >= cutoff
        if len(split.valid):
            is_reference &= data.time <= data.time[split.valid].max()
        reference = np.flatnonzero(is_reference)
        for num_rounds in rounds:
            task, scales = self._fit_task(data.inputs, cutoff, split.train, lesson.soft)
            context = RowContext(
                task=task,
                time=data.time,
                label=data.label,
                train=split.train,
                reference=reference,
                read=partial(_read, task),
                seed=self.seed,
            )
            # Weights of the method's parts are computed once, from the inputs of the first stage.
            if not stages:
                weight = self._row_weight(context, weight)
                lesson = replace(lesson, weight=weight)
            head = self._untrained_for(data, task, context)
            self._align(head, data.inputs, cutoff)
            head.fit(task, lesson, num_rounds)
            stage = Stage(head, scales, task)
            stages.append(stage)
            # The last stage has no successor.
            if len(stages) < len(rounds):
                lesson = STAGES.lesson(
                    label=data.label,
                    split=split,
                    num_labels=data.view.num_labels,
                    probability=stage.predict_proba(np.arange(len(data.label))),
                    weight=weight,
                )
        return tuple(stages)

    def _row_weight(self, context: RowContext, weight: ndarray | None) -> ndarray | None:
        """Multiply the weights of the training rows by those of the method's parts."""
        for part in self._method.parts:
            if part.row_weight is not None:
                # Weights of rows that are not trained on stay as they are.
                factor = np.ones(len(context.label))
                factor[context.train] = part.row_weight(context)
                weight = _product(factor, weight)
        return weight

    def inputs(
        self,
        graph: TemporalGraph,
        engine: Engine | None = None,
        *,
        predicted_nodes: NodeIndex | None = None,
    ) -> Inputs:
        """Return the inputs of a graph; pipelines that differ in method only may share them."""
        return Inputs(
            graph if graph.cutoff is not None else self._masked(graph),
            hops=self.hops,
            undirected=self.undirected,
            engine=as_engine(engine),
            squashed=self._is_squashed,  # by the same projections for every seed: fits share them
            predicted_nodes=predicted_nodes,
        )

    def compute_inputs(self, inputs: Inputs, *, validates: bool) -> None:
        """Compute the hops that a fit will read, so that forked processes share them."""
        view = inputs.view
        if self._reads_graph:
            return
        inputs.model_inputs(self._method, view.require_cutoff("inputs need"))
        if not validates:
            return
        nodes = _split_for_validation(view)
        if nodes is not None:
            cutoff = int(view.time[nodes.valid].min())
            inputs.model_inputs(self._method, cutoff)

    def shared_inputs(
        self,
        cache: dict[bool, Inputs],
        graph: TemporalGraph,
        engine: Engine | None = None,
        *,
        predicted_nodes: NodeIndex | None = None,
    ) -> Inputs:
        """Return the inputs of a graph from a cache of several pipelines, or add them to it."""
        if self._is_squashed not in cache:
            cache[self._is_squashed] = self.inputs(graph, engine, predicted_nodes=predicted_nodes)
        return cache[self._is_squashed]

    @property
    def _is_squashed(self) -> bool:
        return spec_of(self.model).kind is ModelKind.SQUASHED

    def __repr__(self) -> str:
        state = "" if self.fitted is None else f", fitted up to time {self.fitted.t_max}"
        return f"Pipeline(model={model_name(self.model)!r}, method={str(self.method)!r}{state})"

    def require_fitted(self) -> Fitted:
        """Return the fit; refuse a pipeline without one."""
        if self.fitted is None:
            raise InputError("this pipeline has not been fitted; call fit(graph) first.")
        return self.fitted

    def nodes_of(self, inputs: Inputs) -> NodeIndex:
        """Return the node of every row of the task."""
        return np.arange(inputs.graph.num_nodes) if self._reads_graph else inputs.row_nodes

    def untrained(
        self,
        shape: Shape,
        scoring: Scoring,
        terms: tuple[Term, ...] = (),
    ) -> Head:
        """Return an untrained head with this pipeline's options."""
        parts = self._method.parts
        # Options that pipeline and head have in common.
        own = self.get_params()
        names = [field.name for field in fields(HeadOptions) if field.name in own]
        options = HeadOptions(
            **{name: own[name] for name in names},
            terms=terms,
            training=tuple(part.training for part in parts if part.training is not None),
            patient=any(part.patient for part in parts),
            scoring=scoring,
        )
        return spec_of(self.model).make(shape, options)

    def _untrained_for(self, data: _FitData, task: Task, context: RowContext) -> Head:
        """Return an untrained head for the inputs of a training."""
        groups = [[0]]
        if not self._reads_graph:
            groups = data.inputs.groups(self._method)
        hops, label_hops = _widths(task)
        shape = Shape(hops, label_hops, data.view.num_labels, groups)
        terms = [part.loss_term(context) for part in self._method.parts if part.loss_term]
        used = tuple(term for term in terms if term is not None)
        return self.untrained(shape, data.scoring, used)

    def _align(self, head: Head, inputs: Inputs, cutoff: int) -> None:
        """Align the messages within a spatial network by the labels before `cutoff`."""
        alignments = self._method.of_kind(Kind.ALIGNMENT)
        if isinstance(head, NetworkHead) and self._reads_graph and alignments:
            view = inputs.graph.masked(cutoff)
            table = time_table(view, self._method.edge_weighting)
            layer = align_layer(alignments[0].name, view, table=table)
            head.set_alignment(layer)

    def _fit_task(
        self, inputs: Inputs, cutoff: int, rows: RowIndex, soft: ndarray | None
    ) -> tuple[Task, list[Scale]]:
        """Return the inputs of a training, scaled by its training rows, and the scales."""
        if self._reads_graph:
            scale = Scale.fit(_features_of(inputs)[rows])
            return self._graph_task(inputs, scale, cutoff), [scale]
        hops, label_hops = inputs.model_inputs(self._method, cutoff, soft)
        # Feature hops come first; only they are scaled.
        count = len(hops)
        loaded = inputs.engine.loaded([*hops, *label_hops])
        # Training rows, some at a time.
        blocks = [rows[positions] for positions in position_blocks(len(rows))]
        scales = [Scale.fit(map(hop.rows, blocks)) for hop in loaded[:count]]
        loaded[:count] = map(_scaled, loaded, scales)
        scaled = inputs.engine.loaded(loaded)
        return HopTask(scaled[:count], scaled[count:]), scales

    def _stage_task(self, stage: Stage, inputs: Inputs, cutoff: int, soft: ndarray | None) -> Task:
        """Return the inputs of a fitted stage; refuse a graph unlike the one of the fit."""
        self._align(stage.head, inputs, cutoff)
        if self._reads_graph:
            task: Task = self._graph_task(inputs, stage.scales[0], cutoff)
        else:
            hops, label_hops = inputs.model_inputs(self._method, cutoff, soft)
            # Another number of hops is refused below, with a sentence.
            if len(hops) == len(stage.scales):
                hops = list(map(_scaled, hops, stage.scales))
            task = HopTask(hops, label_hops)
        expected = (stage.head.shape.hops, stage.head.shape.label_hops)
        if _widths(task) != expected:
            raise InputError(
                f"the model was fitted with inputs of widths {expected}, "
                f"but this graph has {_widths(task)}; pass a graph with the same features."
            )
        return task

    def _graph_task(self, inputs: Inputs, scale: Scale, cutoff: int) -> GraphTask:
        method = self._method
        graph = inputs.graph
        network = spec_of(self.model).network
        assert network is not None
        operator = inputs.engine.operator(
            graph,
            own_relation(graph),
            weighting=method.edge_weighting,
            self_loop=network.self_loops,
        )
        label = graph.masked(cutoff).label if "labels" in method else None
        propagation = Propagation(operator)
        for part in method.parts:
            if part.propagation is not None:
                propagation = part.propagation(operator, self.seed)
        x = scale.apply(_features_of(inputs))
        # One more run reads the probabilities of the first in place of unknown labels.
        return GraphTask(x, propagation, label, graph.num_labels, reuse=1)

    def _smoothing_base(
        self, stage: Stage, inputs: Inputs, cutoff: int, choices: Sequence[Smoothing]
    ) -> ndarray:
        """Return the probabilities that smoothing starts from, zeros for nodes without any [N, Y].

        Without a correction, labelled nodes spread their labels and need no prediction.
        """
        nodes = self.nodes_of(inputs)
        shape = (inputs.graph.num_nodes, stage.head.shape.num_labels)
        base = np.zeros(shape, np.float32)
        rows = np.arange(len(nodes))
        if all(choice.smooth and not choice.correct for choice in choices):
            is_labelled = inputs.graph.masked(cutoff).is_labelled
            rows = np.flatnonzero(~is_labelled[nodes])
        # From rows to nodes.
        base[nodes[rows]] = stage.predict_proba(rows)
        return base

    def _smoothed(
        self,
        base: ndarray,
        inputs: Inputs,
        cutoff: int,
        choices: Sequence[Smoothing],
        rows: RowIndex,
    ) -> list[ndarray]:
        """Return probabilities of some rows after every smoothing, with labels before `cutoff`."""
        graph = inputs.graph.masked(cutoff)
        paths = smoothing_paths(graph, self._method.edge_weighting, inputs.engine)
        nodes = self.nodes_of(inputs)[rows]
        smoothed = correct_and_smooth(base, graph.label, paths, choices, inputs.engine)
        return [probabilities[nodes] for probabilities in smoothed]


def score_of(
    model: Any,
    graph: GraphLike,
    cutoff: int | str | None,
    scoring: Scoring,
    tilt: float,
) -> float:
    """Return the score of a fitted pipeline or ensemble, whose labels have this tilt."""
    graph = as_temporal_graph(graph)
    targets = model.targets(graph, cutoff=cutoff)
    recoded = model.fitted.schema.recode_labels(graph)
    is_known = graph.is_labelled[targets]
    if not is_known.any():
        raise InputError(
            "no target node has a label in this graph, so there is nothing to score against."
        )
    probabilities = model.predict_proba(graph, cutoff=cutoff)[is_known]
    # Labels in the coding of the fit, −1 for classes that it does not know.
    truth = recoded.label[targets][is_known]
    is_new = truth < 0
    if is_new.any():
        # New classes become further columns of probability 0.
        new_labels = graph.label[targets][is_known][is_new]
        classes, position = np.unique(new_labels, return_inverse=True)
        # Codes behind those of the known classes.
        truth[is_new] = probabilities.shape[1] + position
        names = graph.label_names or range(graph.num_labels)
        warnings.warn(
            f"{is_new.sum()} of {len(truth)} target nodes are in classes without labels "
            f"in training ({checks.listing([names[k] for k in classes])}); "
            "they count as errors.",
            stacklevel=3,
        )
        probabilities = np.pad(probabilities, [(0, 0), (0, len(classes))])
        no_prior = [0.0] * len(classes)
        scoring = replace(scoring, prior=(*scoring.prior, *no_prior))
    return scoring.score(probabilities, truth, tilt)


def _product(factor: ndarray, weight: ndarray | None) -> ndarray:
    """Multiply weights, None for weights of 1."""
    return factor if weight is None else factor * weight


def _scaled(hop: Hop, scale: Scale) -> Hop:
    def scaled(values: ndarray, _: Any) -> ndarray:
        return scale.apply(np.asarray(values, np.float32))

    return mapped_hop(hop, scaled, np.float32)


def _widths(task: Task) -> tuple[list[int], list[int]]:
    if isinstance(task, GraphTask):
        return [task.width], []
    assert isinstance(task, HopTask)
    return task.in_channels, task.label_channels


def _read(task: Task, rows: RowIndex) -> ndarray:
    """Return all that a model reads of some rows; of a graph, two hops of features."""
    if not isinstance(task, GraphTask):
        return matrix(task, rows)
    first = task.propagation(task.x)
    second = task.propagation(first)
    # [N, 3 f], of which the requested rows.
    return torch.cat([task.x, first, second], 1).numpy()[rows]


def _features_of(inputs: Inputs) -> ndarray:
    if inputs.graph.x is None:
        raise InputError("the graph has no features; use a model that takes hops as input.")
    return np.asarray(inputs.graph.x, np.float32)


def _split_for_validation(view: TemporalGraph) -> Split | None:
    """Return the nodes with labels; those of the last labelled periods are for validation.

    None if nothing could be learned before those.
    """
    num_periods = _num_validation_periods(view.time[view.is_labelled])
    split = split_rows(view, valid=num_periods)
    if not len(split.valid):
        return None
    is_known = view.has_known_label(int(view.time[split.valid].min()))
    train = split.train[is_known[split.train]]
    if not len(train):
        return None
    return Split(train, split.valid)


def _num_validation_periods(time: ndarray) -> int:
    """Return how many of the last labelled periods hold a tenth of the labels, but not all.

    Fewer are too noisy; with more, the choice suits a model that has learned from much less than
    the last one will.
    """
    # Labels of every labelled period, the oldest first.
    sizes = np.unique(time, return_counts=True)[1]
    # Labels of the last 1, 2, ... periods, and the first of these sums that is enough.
    newest = np.cumsum(sizes[::-1])
    enough = int(np.argmax(newest >= VALIDATION_SHARE * newest[-1]))
    return min(enough + 1, len(sizes) - 1)
