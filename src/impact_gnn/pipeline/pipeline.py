"""`Pipeline`: from a graph with labels for the past to predictions for the recent nodes, and back from disk."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin

from impact_gnn import checks
from impact_gnn._native import one_thread
from impact_gnn.checks import InputError
from impact_gnn.data.given import GraphLike, as_graph
from impact_gnn.engines.base import Engine, mapped_hop, position_blocks, time_table
from impact_gnn.engines.memory import or_memory
from impact_gnn.graph import TemporalGraph
from impact_gnn.heads import (
    HEADS,
    Head,
    HeadOptions,
    Model,
    NetworkHead,
    Shape,
    is_spatial,
    make_head,
    model_name,
)
from impact_gnn.heads.base import matrix
from impact_gnn.heads.foreign import Own
from impact_gnn.heads.network import SQUASHED
from impact_gnn.label_shift import confusion_of
from impact_gnn.matching import kernel_mean_matching
from impact_gnn.metrics import METRICS, Scoring
from impact_gnn.nn import (
    Editable,
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
    terms_of,
)
from impact_gnn.pipeline import saved
from impact_gnn.pipeline.calibration import Walked, best_temperature
from impact_gnn.pipeline.inputs import Inputs
from impact_gnn.pipeline.method import EDITED, Method
from impact_gnn.pipeline.saved import Fitted, Shares, Stage
from impact_gnn.pipeline.schema import Schema
from impact_gnn.propagation.embedding import EMBEDDINGS
from impact_gnn.propagation.hops import own_relation
from impact_gnn.propagation.smoothing import CHOICES, Smoothing, correct_and_smooth, ways
from impact_gnn.statistics import Scale, paired

CHOOSING = 0.1  # share of the labels to choose by
CLASS_WEIGHTS = ("balanced",)
STAGES = Reliable(stages=3)  # of a method with "stages"
MODELS = HEADS
"""What turns hops into probabilities, by name."""


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
    # --------------------------------------------------------------------------------

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
        self._refuse_parts()
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

    @property
    def _pace(self) -> str | None:
        """Of the curriculum."""
        return None if not self._method.curriculum else "drop" if self._method.drop else "loss"

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
        graph = as_graph(graph)
        cutoff = graph.infer_cutoff() if self.cutoff is None else graph.when(self.cutoff)
        view = graph.masked(cutoff)
        if graph.cutoff is None:  # folds of a back-test may have one class only
            checks.several_classes(view.label, view.name_of(cutoff))
        inputs = self.inputs(view, engine) if inputs is None else inputs
        rows = self._rows(inputs)  # from here on a node is known by its place among them
        label, time = view.label[rows], view.time[rows]
        labelled = np.unique(time[label >= 0])
        weight = self._recency(time, label) if self._method.recency else None
        prior = np.bincount(label[label >= 0], minlength=view.num_labels) / (label >= 0).sum()
        shares = self._learned_shares(label, weight, view.num_labels)
        scoring = Scoring(self.metric, tuple(prior.tolist()), self.class_weight == "balanced")
        if scoring.balanced:
            weight = scoring.weights(label) * (1 if weight is None else weight)
        if self._method.bbse and len(labelled) == 1:
            raise InputError(
                "'bbse' counts mistakes in a labelled period held out, and there is one only; use 'shift'."
            )
        rounds: list[int | None] = [None]
        valid_score, smoothing = math.nan, None

        learner = self

        def learned(
            who: Pipeline, split: Split, before: int, rounds: Sequence[int | None]
        ) -> list[Stage]:
            return who._stages(inputs, before, label, split, weight, scoring, rounds, progress)

        if len(labelled) > 1:
            chosen_rows = split_rows(view, valid=_choosing(time[label >= 0]))
            split = Split(
                np.searchsorted(rows, chosen_rows.train), np.searchsorted(rows, chosen_rows.valid)
            )
            # Rows to choose by must look like targets, so inputs are made as if their labels were
            # unknown.
            before = int(view.time[chosen_rows.valid].min())

            def chosen(who: Pipeline) -> list[Stage]:
                stages = learned(
                    who, split, before, [None] * (STAGES.stages if self._method.stages else 1)
                )
                return stages[: 1 + int(np.nanargmax([stage.head.valid_score for stage in stages]))]

            stages = chosen(self)
            if self._method.curriculum:  # it must pay for itself
                without = replace(self._method, curriculum=False, drop=False)
                others = chosen(one := Pipeline(**self.get_params() | {"method": without}))
                if not _right_more_often(stages[-1], others[-1], label, split.valid):
                    stages, learner = others, one
            last, rounds = stages[-1], [stage.head.rounds for stage in stages]
            valid_score = last.head.valid_score
            assert last.task is not None
            if shares is not None:
                found, truth = last.head.honest(last.task, split.valid), label[split.valid]
                counts = (
                    confusion_of(found.argmax(1), truth, view.num_labels)
                    if self._method.bbse
                    else None
                )
                shares = Shares(
                    shares.prior, counts, best_temperature([Walked(found, truth, shares.prior)])
                )
            if self._method.smooth:
                choose = last.head, last.task, inputs, before, split.valid, label
                smoothing, valid_score = self._chosen_smoothing(*choose)
        elif self._method.smooth:
            smoothing = CHOICES[len(CHOICES) // 2]
        if self.refit or len(labelled) == 1:
            stages = learned(
                learner, Split(np.flatnonzero(label >= 0), np.empty(0, np.int64)), cutoff, rounds
            )
        # rows of the graph stay with the graph
        *earlier, last = (replace(stage, task=None) for stage in stages)
        done, schema = (
            last.head.rounds if rounds[-1] is None else rounds[-1],
            Schema.of(inputs.view),
        )
        self.fitted = Fitted(
            last.head,
            last.scales,
            smoothing,
            cutoff,
            int(view.times[-1]),
            schema,
            done,
            valid_score,
            tuple(earlier),
            shares,
        )
        return self

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
        fitted, graph = self._fitted(), as_graph(graph)
        at = self._at(graph, cutoff)
        if inputs is None:
            inputs = self.inputs(fitted.schema.adapted(graph, at), engine)
        task = self.task(inputs, at)
        targets = np.searchsorted(self._rows(inputs), self.targets(graph, cutoff=at))
        smoothed = None
        if fitted.smoothing is not None and smooth:
            smoothed = self._smoothed(fitted.head, task, inputs, at, [fitted.smoothing], targets)[0]
            if fitted.shares is None:
                return smoothed
        said = fitted.head.honest(task, targets)
        return (
            said
            if fitted.shares is None
            else fitted.shares.applied(said if smoothed is None else smoothed, said)
        )

    def predict(self, graph: GraphLike, *, cutoff: int | str | None = None) -> np.ndarray:
        """The label of every target node that suits the metric: for accuracy the most probable one.

        It is numbered as in this graph. Columns of `predict_proba` are the classes that the fit has
        seen, and so is this where classes have names and the graph does not know them all
        (`fitted.schema.label_names`).
        """
        fitted, graph = self._fitted(), as_graph(graph)
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
        fitted, graph = self._fitted(), as_graph(graph)
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
        graph = as_graph(graph)
        return np.flatnonzero(graph.time >= self._at(graph, cutoff))

    def _at(self, graph: TemporalGraph, cutoff: int | str | None) -> int:
        """The period from which on nodes are targets; refuses one whose labels the fit has used."""
        fit_cutoff = self._fitted().cutoff
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
        graph = as_graph(graph)
        newer = graph.times[graph.times > self._fitted().t_max]
        if len(newer) == 0:
            return None
        names, until = [graph.name_of(int(t)) for t in newer], graph.name_of(self._fitted().t_max)
        count = "1 period is" if len(newer) == 1 else f"{len(newer)} periods are"
        return (
            f"{count} newer than the fit, which knew time up to {until}: {checks.listing(names)}; the choice of "
            f"method was made without them, so back-test again."
        )

    # -- disk
    # ------------------------------------------------------------------------------------------------

    def save(self, directory: str | Path, *, schema: bool = True) -> None:
        """Writes weights (safetensors) and everything else (JSON), atomically; `load` gives the same predictions.

        An ensemble keeps one `schema` for all its pipelines.
        """
        saved.write(self._fitted(), self.described(), Path(directory), schema=schema)

    @classmethod
    def load(
        cls, directory: str | Path, *, model: Own | None = None, schema: Schema | None = None
    ) -> Pipeline:
        """The pipeline that `save` wrote, with a schema that was kept elsewhere.

        One with a network of your own needs that `model` again: files hold its weights, not its
            code.
        """
        return saved.read(Path(directory), cls, model=model, schema=schema)

    # -- inside
    # ----------------------------------------------------------------------------------------------

    def task(self, inputs: Inputs, cutoff: int, soft: np.ndarray | None = None) -> Task:
        """What the fitted head is shown of a graph; `soft` is what it was `taught`, asked for if it is not given."""
        fitted, soft = self._fitted(), self.taught(inputs, cutoff) if soft is None else soft
        self._align(fitted.head, inputs, cutoff)
        return self._shown(inputs, cutoff, fitted.scales, fitted.head.shape, soft)

    def taught(self, inputs: Inputs, cutoff: int) -> np.ndarray | None:
        """What earlier stages said, which the fitted head hears in place of labels; None where there were none."""
        fitted, soft = self._fitted(), None
        hears = self._method.labels and not is_spatial(self.model)
        for stage in fitted.earlier if hears else ():
            task = self._shown(inputs, cutoff, stage.scales, stage.head.shape, soft)
            self._align(stage.head, inputs, cutoff)
            label = inputs.graph.masked(cutoff).label[self._rows(inputs)]
            said = stage.head.honest(task, np.arange(len(label)))
            soft = STAGES.told(label, np.flatnonzero(label >= 0), fitted.num_labels, said)
        return soft

    def _stages(
        self,
        inputs: Inputs,
        cutoff: int,
        label: np.ndarray,
        split: Split,
        weight: np.ndarray | None,
        scoring: Scoring,
        rounds: Sequence[int | None],
        progress: Callable[[Epoch], None] | None,
    ) -> list[Stage]:
        """A training for each of `rounds` when labels are known before `cutoff`, each taught by the one before."""
        stages: list[Stage] = []
        lesson = Lesson(label, None, weight, split)
        time = inputs.view.time[self._rows(inputs)]
        # Those to predict; while epochs are chosen, those of the periods to choose by.
        until = time[split.valid].max() if len(split.valid) else time.max()
        reference = np.flatnonzero((time >= cutoff) & (time <= until))
        for length in rounds:
            task, scales = self._task(inputs, cutoff, split.train, lesson.soft)
            if self._method.kmm and not stages:
                weight = self._matched(task, label, split.train, reference, weight)
                lesson = replace(lesson, weight=weight)
            terms = terms_of(self._method.terms, task, time, reference)
            head = self._head(task, inputs, cutoff, scoring, progress, terms)
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
                said = head.honest(task, np.arange(len(label)))
                lesson = STAGES.lesson(label, split, inputs.view.num_labels, said, weight)
        return stages

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
            squashed=self.model in SQUASHED,
            seed=self.seed,
            embed=self.embed,
            embedded=None if self.fitted is None else self.fitted.cutoff,
        )

    def shared_inputs(
        self, kept: dict[bool, Inputs], graph: TemporalGraph, engine: Engine | None = None
    ) -> Inputs:
        """As `inputs`, taken from what other pipelines of this graph have left in `kept`, or made and left there."""
        squashed = self.model in SQUASHED
        if squashed not in kept:
            kept[squashed] = self.inputs(graph, engine)
        return kept[squashed]

    def __repr__(self) -> str:
        state = "" if self.fitted is None else f", fitted up to time {self.fitted.t_max}"
        return f"Pipeline(model={model_name(self.model)!r}, method={str(self.method)!r}{state})"

    def _fitted(self) -> Fitted:
        if self.fitted is None:
            raise InputError("this pipeline has not been fitted; call fit(graph) first.")
        return self.fitted

    def _rows(self, inputs: Inputs) -> np.ndarray:
        """The nodes that a row of the task stands for."""
        return np.arange(inputs.graph.num_nodes) if is_spatial(self.model) else inputs.rows

    def untrained(
        self,
        shape: Shape,
        scoring: Scoring,
        progress: Callable[[Epoch], None] | None = None,
        terms: tuple[Term, ...] = (),
    ) -> Head:
        """A head of this pipeline's options that has learned nothing yet."""
        options = HeadOptions(
            self.hidden,
            self.dropout,
            self.epochs,
            self.patience,
            self.lr,
            self.weight_decay,
            self.seed,
            self.device,
            self._pace,
            terms,
            bool(self._method.terms or self._method.kmm),
            scoring,
            progress,
        )
        return make_head(self.model, shape, options)

    def _head(
        self,
        task: Task,
        inputs: Inputs,
        cutoff: int,
        scoring: Scoring,
        progress: Callable[[Epoch], None] | None,
        terms: tuple[Term, ...],
    ) -> Head:
        groups = [[0]] if is_spatial(self.model) else inputs.groups(self._method)
        head = self.untrained(
            Shape(*_widths(task), inputs.view.num_labels, groups), scoring, progress, terms
        )
        self._align(head, inputs, cutoff)
        return head

    def _align(self, head: Head, inputs: Inputs, cutoff: int) -> None:
        """A spatial network's messages are aligned within it, by what is known of this graph before `cutoff`."""
        if isinstance(head, NetworkHead) and is_spatial(self.model) and self._method.alignment:
            view, weighting = inputs.graph.masked(cutoff), self._method.weighting
            head.aligned(
                align_layer(self._method.alignment[0], view, table=time_table(view, weighting))
            )

    def _task(
        self, inputs: Inputs, cutoff: int, rows: np.ndarray, soft: np.ndarray | None = None
    ) -> tuple[Task, list[Scale]]:
        """What the head learns from when labels are known before `cutoff`, scaled by the rows it learns from."""
        if is_spatial(self.model):
            x = _features_of(inputs)
            scale = Scale.fit(x[rows])
            return self._graph_task(inputs, scale, cutoff), [scale]
        hops, label_hops = inputs.shown(self._method, cutoff, soft)
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
        if is_spatial(self.model):
            task: Task = self._graph_task(inputs, scales[0], cutoff)
        else:
            hops, label_hops = inputs.shown(self._method, cutoff, soft)
            scaled = hops if len(hops) != len(scales) else _scaled(hops, scales)
            task = HopTask(scaled, label_hops)
        if _widths(task) != (shape.hops, shape.label_hops):
            fitted, given = (shape.hops, shape.label_hops), _widths(task)
            raise InputError(
                f"the model was fitted with inputs of widths {fitted}, this graph gives {given}."
            )
        return task

    def _graph_task(self, inputs: Inputs, scale: Scale, cutoff: int) -> GraphTask:
        method, own = self._method, not isinstance(self.model, str)
        most = 0 if own else 1  # messages of other layers are out of reach
        # a network of one's own may be made for so many columns and no more
        told = method.labels and not own
        on_hops = method.snapshot or method.ends or method.features or method.joint
        if (method.labels and own) or len(method.alignment) > most or on_hops:
            more = "" if own else "one alignment, 'labels', "
            known = f"a weighting, {more}'recency', 'curriculum', 'stages' and 'smooth'"
            name = "a network of your own" if own else self.model
            raise InputError(f"{name} takes {known}, not {str(method)!r}.")
        if method.weighting == "stamp":
            raise InputError(
                "layers of a network on the graph share their weights, so 'stamp' has no place; use 'gsmp'."
            )
        graph = inputs.graph
        # GraphSAGE has a term of its own for the node itself, others their loops
        loops = self.model in (
            "gcn",
            "gat",
        )
        operator = inputs.engine.operator(
            graph, own_relation(graph), weighting=method.weighting, self_loop=loops
        )
        label = graph.masked(cutoff).label if told else None
        propagation = Editable(operator, self.seed) if method.eerm else Propagation(operator)
        return GraphTask(
            scale.apply(_features_of(inputs)), propagation, label, graph.num_labels, reuse=1
        )

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
        rows, graph = self._rows(inputs), inputs.graph.masked(cutoff)
        along = ways(graph, self._method.weighting, inputs.engine)
        base = np.zeros((graph.num_nodes, head.shape.num_labels), np.float32)
        base[rows] = head.honest(task, np.arange(len(rows)))
        return [
            one[rows[wanted]]
            for one in correct_and_smooth(base, graph.label, along, choices, inputs.engine)
        ]

    def _refuse_parts(self) -> None:
        """Refuses parts of the method that the model cannot take."""
        method, model = (
            self._method,
            self.model if isinstance(self.model, str) else "a network of your own",
        )
        if method.terms and model in ("trees", "prior"):
            raise InputError(
                f"{model} has no loss to add {method.terms[0]!r} to, which is for networks."
            )
        if method.cmd and model == "linear":
            raise InputError(
                "a linear model has no hidden units whose moments 'cmd' could compare; use a network."
            )
        if method.eerm and model not in EDITED:
            raise InputError(
                f"'eerm' edits the graph that {' or '.join(EDITED)} walk, not {model}; use 'vrex'."
            )

    def _learned_shares(
        self, label: np.ndarray, weight: np.ndarray | None, num_labels: int
    ) -> Shares | None:
        """The shares of classes under which a head learns."""
        method, known = self._method, label >= 0
        if not (method.shift or method.bbse):
            return None
        count = np.bincount(label[known], None if weight is None else weight[known], num_labels)
        return Shares(count / count.sum(), None)

    def _matched(
        self,
        task: Task,
        label: np.ndarray,
        train: np.ndarray,
        reference: np.ndarray,
        weight: np.ndarray | None,
    ) -> np.ndarray:
        """Weights under which the rows to train on look like the reference."""
        if isinstance(task, GraphTask):
            first = task.propagation(task.x)
            read = torch.cat([task.x, first, task.propagation(first)], 1).numpy().__getitem__
        else:
            read = partial(matrix, task)
        size = 8 * (len(train) + len(reference)) * sum(map(sum, _widths(task)))
        checks.fits("rows to match", size, "leave out 'kmm'")
        out = np.ones(len(label)) if weight is None else np.array(weight, np.float64)
        out[train] *= kernel_mean_matching(
            read(train), read(reference), label[train], seed=self.seed
        )
        return out

    def _recency(self, time: np.ndarray, label: np.ndarray) -> np.ndarray:
        labelled = time[label >= 0]
        age = (labelled.max() - time).clip(0)
        half_life = self.half_life
        if half_life is not None and not (checks.is_number(half_life) and half_life > 0):
            raise InputError(f"half_life={checks.shown(half_life)} must be a number above 0.")
        if half_life is None:  # a third of the labelled span
            half_life = max(1.0, float(labelled.max() - np.quantile(labelled, 0.05)) / 3)
        return 0.5 ** (age / half_life)


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


def _features_of(inputs: Inputs) -> np.ndarray:
    if inputs.graph.x is None:
        raise InputError("the graph has no features; use a model that reads hops.")
    return np.asarray(inputs.graph.x, np.float32)


def _right_more_often(ours: Stage, theirs: Stage, label: np.ndarray, rows: np.ndarray) -> bool:
    """Whether one is right on more of the rows than another, by more than the standard error of that."""

    def hits(stage: Stage) -> np.ndarray:
        assert stage.task is not None
        return stage.head.honest(stage.task, rows).argmax(1) == label[rows]

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
