"""`explain`: which inputs, features and neighbours led a fitted model to its prediction for a node.

Every member of an ensemble has log-odds of the label against the runner-up, so contributions of all
kinds of model have one unit:

* trees: Shapley values (TreeSHAP), which sum to the raw score;
* networks: integrated gradients, that is slopes along the straight line from the mean of the
  labelled rows to the node's row, in steps that are short near the mean, times (value − mean). This
  is exact for `linear`; for other networks the error is stated.

A member of weight w with probabilities p and q of the two labels adds w·(p − q) to the difference
of the ensemble. Its contributions are scaled by w·(p − q) / log-odds, which is positive, and summed
over the members. An average node, smoothing and calibration account for the rest.

A hop is a weighted sum over nodes, and so is its contribution: node u adds slope · weight of u ·
(value of u − mean). Trees have no slope: nodes on the hop's side of the mean share a column's
contribution, by weight and distance.

The prediction without a node, or with plain weights, is computed from new rows of the explained
node. Statistics of alignments and calibration, degrees, other nodes' features and the effect of
smoothing stay as they are.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch

from impact_gnn.checks import InputError, listing
from impact_gnn.data.convert import GraphLike, as_temporal_graph
from impact_gnn.engines.engine import Engine
from impact_gnn.engines.hop import recompute
from impact_gnn.engines.operator import Operator
from impact_gnn.estimators import Head, NetworkHead, model_name
from impact_gnn.estimators.calibration import tempered
from impact_gnn.estimators.ensemble import Ensemble
from impact_gnn.estimators.head import PriorHead
from impact_gnn.estimators.inputs import Inputs
from impact_gnn.estimators.pipeline import Pipeline
from impact_gnn.estimators.trees import TreesHead
from impact_gnn.explanations.explanation import (
    DEGREES,
    OWN,
    Feature,
    Neighbour,
    NodeExplanation,
    Part,
    Voice,
    node_index_of,
)
from impact_gnn.explanations.receptive_field import Block, ReceptiveField, TypedNode, input_blocks
from impact_gnn.methods import Method
from impact_gnn.nn import GraphTask, HopTask, Propagation
from impact_gnn.propagation.hops import own_relation

ROW_STEPS = 256
"""Steps of the integral for networks that read rows."""

GRAPH_STEPS = 32
"""Steps of the integral for networks that read the whole graph."""

AVERAGE = "an average node"
SMOOTHING = "smoothing"
CALIBRATION = "calibration"
OWN_PSEUDO_LABEL = "own first guess"


def explain(
    model: Pipeline | Ensemble,
    graph: GraphLike,
    node: Any,
    *,
    label: Any = None,
    cutoff: int | str | None = None,
    engine: Engine | None = None,
    most: int = 10,
) -> NodeExplanation:
    """Explain a prediction of a fitted model; labels from the cutoff on are not used.

    Args:
        model: Fitted.
        graph: As for `predict_proba`, and so are `cutoff` and `engine`.
        node: The id of a target node.
        label: The class to explain, by default the predicted one; it is compared with the most
            probable other one.
        cutoff: Labels are known before it.
        engine: Where to propagate.
        most: Features and neighbours that are named at most.

    Examples:
        >>> from impact_gnn.data.tsbm import tsbm
        >>> g = tsbm(num_nodes=400, num_times=5, num_labels=2, seed=0)
        >>> p = Pipeline("linear", "pmp", cutoff=4, epochs=5).fit(g)
        >>> [part.name for part in explain(p, g, p.targets(g)[0]).parts]
        ['an average node', 'own features', 'hop 1', 'hop 2']
    """
    explainer = Explainer(model, graph, cutoff=cutoff, engine=engine)
    return explainer.explain(node, label=label, most=most)


class _Contrast(NamedTuple):
    """The class to explain, and the class that it is compared with."""

    label: int
    runner_up: int

    def difference(self, values: Any) -> Any:
        """Subtract the runner-up's value from the label's; classes are the last axis."""
        return values[..., self.label] - values[..., self.runner_up]


@dataclass(frozen=True, eq=False)
class InputContribution:
    """Contributions of one input matrix to the log-odds, by column and by node.

    Args:
        block: The input matrix.
        columns: Names of its columns.
        contributions: By column.
        values: The node's values, in the units of the data.
        means: Means over the labelled nodes, in the same units.
        node_index: The nodes that the node's row is computed from; none for its own values.
        weights: Their weights in the row.
        plain_weights: Their weights without time weights; None where the method has none.
        node_contributions: By node.
    """

    block: Block
    columns: list[str]
    contributions: np.ndarray
    values: np.ndarray
    means: np.ndarray
    node_index: np.ndarray
    weights: np.ndarray
    plain_weights: list[float | None]
    node_contributions: np.ndarray


class _Message(NamedTuple):
    """How a neighbour first reaches the explained node."""

    steps: int
    weight: float
    plain_weight: float | None


class _Totals:
    """Contributions of all members to the difference of probabilities, summed."""

    def __init__(self) -> None:
        self.parts = defaultdict[str, float](float)
        # by (part, column): the contribution; the feature as the first member reads it
        self.columns = defaultdict[tuple[str, str], float](float)
        self.features: dict[tuple[str, str], Feature] = {}
        # by node: the contribution; the first message that contains it
        self.nodes = defaultdict[TypedNode, float](float)
        self.messages: dict[TypedNode, _Message] = {}

    def add(self, source: InputContribution, scale: float) -> None:
        """Add the contributions of a member's input, in units of probability."""
        block = source.block
        contributions = scale * source.contributions
        self.parts[block.name] += float(contributions.sum())
        self.parts[AVERAGE] -= float(contributions.sum())
        for column, value, mean, contribution in zip(
            source.columns, source.values, source.means, contributions, strict=True
        ):
            key = (block.name, column)
            feature = Feature(
                part=block.name,
                name=column,
                value=float(value),
                usual=float(mean),
                contribution=0.0,
            )
            self.features.setdefault(key, feature)
            self.columns[key] += float(contribution)
        for node_index, weight, plain_weight, contribution in zip(
            source.node_index,
            source.weights,
            source.plain_weights,
            scale * source.node_contributions,
            strict=True,
        ):
            node = (block.kind, int(node_index))
            message = _Message(len(block.path or ()), float(weight), plain_weight)
            self.messages.setdefault(node, message)
            self.nodes[node] += float(contribution)

    def largest_features(self, most: int) -> list[Feature]:
        """Return the columns with the largest contributions."""
        return [
            replace(self.features[key], contribution=contribution)
            for key, contribution in _largest(self.columns, most)
        ]


def _largest(contributions: dict[Any, float], most: int) -> list[tuple[Any, float]]:
    return sorted(contributions.items(), key=lambda item: -abs(item[1]))[:most]


class Explainer:
    """`explain` for several nodes: hops and predictions are computed once.

    `inputs` are those that fits left behind (`Pipeline.shared_inputs`), by default none.
    """

    def __init__(
        self,
        model: Pipeline | Ensemble,
        graph: GraphLike,
        *,
        cutoff: int | str | None = None,
        inputs: dict[bool, Inputs] | None = None,
        engine: Engine | None = None,
    ) -> None:
        self.model = Ensemble.of(model)
        self.graph = as_temporal_graph(graph)
        fitted = self.model.fitted
        self.cutoff = fitted.cutoff if cutoff is None else self.graph.when(cutoff)
        self.names = [str(name) for name in fitted.schema.label_names or range(fitted.num_labels)]
        self.targets = self.model.targets(self.graph, cutoff=self.cutoff)
        inputs = inputs or {}
        view = (
            self.graph.masked(self.cutoff)
            if inputs
            else fitted.schema.adapted(self.graph, self.cutoff)
        )
        self.members: list[_Member] = []
        for pipeline, weight in zip(self.model.pipelines, self.model.weights, strict=True):
            shared = pipeline.shared_inputs(inputs, view, engine)
            member = _Member(
                pipeline=pipeline,
                weight=weight,
                inputs=shared,
                cutoff=self.cutoff,
                probabilities=pipeline.predict_proba(view, cutoff=self.cutoff, inputs=shared),
            )
            self.members.append(member)
        self.members.sort(key=lambda member: -member.weight)
        # [targets, num_labels]: the weighted mean of the members, before and after calibration
        self.mean = np.sum(
            [member.weight * member.probabilities.astype(np.float64) for member in self.members],
            axis=0,
        )
        self.calibrated = self.model.calibration.apply(self.mean, self.model.prior)
        self.known_label = next(iter(inputs.values())).graph.masked(self.cutoff).label

    def explain(self, node: Any, *, label: Any = None, most: int = 10) -> NodeExplanation:
        """Explain the prediction for one node; arguments as in the function."""
        graph = self.graph
        node_index = node_index_of(graph, node)
        period = graph.name_of(int(graph.time[node_index]))
        cutoff = graph.name_of(self.cutoff)
        if graph.time[node_index] < self.cutoff:
            raise InputError(
                f"node {node} is of {period}, but nodes from {cutoff} on are predicted; "
                "name one of those."
            )
        target_index = int(np.searchsorted(self.targets, node_index))
        contrast = self._contrast(target_index, label)
        voices, totals = self._contributions(node_index, target_index, contrast)

        mixing = [member.name for member in self.members if not member.is_local]
        neighbours = []
        for typed_node, contribution in _largest(totals.nodes, most):
            without = None
            if not mixing and typed_node != (graph.target, node_index):
                without = self._predict_changed(
                    node_index, target_index, contrast.label, without=typed_node
                )
            neighbours.append(
                self._neighbour(typed_node, totals.messages[typed_node], contribution, without)
            )
        plain = None
        if not mixing and any(member.method.weighting != "plain" for member in self.members):
            plain = self._predict_changed(node_index, target_index, contrast.label, plain=True)
        probabilities = self.calibrated[target_index]
        return NodeExplanation(
            id=str(graph.ids[node_index]),
            kind=graph.target,
            period=period,
            cutoff=cutoff,
            label=self.names[contrast.label],
            probability=float(probabilities[contrast.label]),
            runner_up=self.names[contrast.runner_up],
            runner_up_probability=float(probabilities[contrast.runner_up]),
            voices=voices,
            parts=[Part(name, value) for name, value in totals.parts.items()],
            features=totals.largest_features(most),
            neighbours=neighbours,
            plain=plain,
            notes=_notes(voices, mixing),
        )

    def _contributions(
        self, node_index: int, target_index: int, contrast: _Contrast
    ) -> tuple[list[Voice], _Totals]:
        """Return the members' explanations, and the sums of their contributions."""
        voices = []
        totals = _Totals()
        for member in self.members:
            voice, sources, scale = member.contributions(node_index, target_index, contrast)
            voices.append(voice)
            # What inputs and smoothing do not add comes from an average node.
            totals.parts[AVERAGE] += voice.share * (
                voice.probability - voice.runner_up_probability - (voice.smoothing or 0)
            )
            for source in sources:
                totals.add(source, scale)
        if any(voice.smoothing is not None for voice in voices):
            totals.parts[SMOOTHING] = sum(
                voice.share * (voice.smoothing or 0.0) for voice in voices
            )
        label, runner_up = contrast
        before = self.mean[target_index]
        after = self.calibrated[target_index]
        added = float(after[label] - after[runner_up] - before[label] + before[runner_up])
        if abs(added) > 1e-6:
            totals.parts[CALIBRATION] = added
        return voices, totals

    def _contrast(self, target_index: int, label: Any) -> _Contrast:
        """Compare the label, by default the predicted one, with the most probable other one."""
        if len(self.names) < 2:
            raise InputError("the model knows one class only, so there is nothing to explain.")
        if label is None:
            rows = self.calibrated[[target_index]]
            explained = int(self.model.calibration.labels(rows, self.model.prior)[0])
        elif str(label) in self.names:
            explained = self.names.index(str(label))
        else:
            raise InputError(
                f"label={label!r} is no class that the model knows; "
                f"there are {listing(self.names)}."
            )
        others = self.calibrated[target_index].copy()
        others[explained] = -1.0
        return _Contrast(explained, int(others.argmax()))

    def _neighbour(
        self, node: TypedNode, message: _Message, contribution: float, without: float | None
    ) -> Neighbour:
        kind, index = node
        part = self.graph.nodes[kind]
        label = self.known_label[index] if kind == self.graph.target else -1
        return Neighbour(
            id=str(index if part.ids is None else part.ids[index]),
            kind=kind,
            period=None if part.time is None else self.graph.name_of(int(part.time[index])),
            label=None if label < 0 else self.names[label],
            steps=message.steps,
            weight=message.weight,
            plain_weight=message.plain_weight,
            contribution=contribution,
            without=without,
        )

    def _predict_changed(
        self,
        node_index: int,
        target_index: int,
        label: int,
        *,
        without: TypedNode | None = None,
        plain: bool = False,
    ) -> float:
        """Return the calibrated probability of a label without a node or with plain weights."""
        changed = [
            member.weight * member.predict_changed(node_index, target_index, without, plain)
            for member in self.members
        ]
        before, after = tempered(
            np.stack([self.mean[target_index], np.sum(changed, 0)]),
            self.model.calibration.temperature,
        )
        # the factors of the classes that calibration applied before the change
        after *= self.calibrated[target_index] / before
        return float(after[label] / after.sum())


def _notes(voices: list[Voice], mixing: list[str]) -> list[str]:
    notes = [
        f"Contributions of {voice.name} leave out {voice.error:.2g} of its log-odds."
        for voice in voices
        if voice.error > 0.01 * max(abs(voice.log_odds), 1.0)
    ]
    if mixing:
        notes.append(
            f"{listing(mixing)} mixes paths by projections, so little is said about neighbours."
        )
    return notes


@dataclass(frozen=True, eq=False)
class _Member:
    """A fitted pipeline of the ensemble, its inputs and its probabilities for all targets."""

    pipeline: Pipeline
    weight: float
    inputs: Inputs
    cutoff: int
    probabilities: np.ndarray
    _fields: dict[tuple[int, bool], ReceptiveField] = field(default_factory=dict)

    @property
    def head(self) -> Head:
        return self.pipeline._fitted().head

    @property
    def method(self) -> Method:
        return Method.of(self.pipeline.method)

    @property
    def name(self) -> str:
        seed = self.pipeline.seed
        name = f"{model_name(self.pipeline.model)}:{self.method}"
        return f"{name}, seed {seed}" if seed else name

    @property
    def is_local(self) -> bool:
        """Whether the rows of a node can be computed from its own edges."""
        return isinstance(self.task, GraphTask) or all(
            block.path is not None for block in self.blocks
        )

    @cached_property
    def task(self) -> Any:
        return self.pipeline.task(self.inputs, self.cutoff, self.soft_labels)

    @cached_property
    def soft_labels(self) -> np.ndarray | None:
        """Probabilities of the rows by earlier stages [rows, Y], None without stages."""
        return self.pipeline.taught(self.inputs, self.cutoff)

    @cached_property
    def known_label(self) -> np.ndarray:
        """The known labels [N], or probabilities of earlier stages [N, Y]."""
        label = self.inputs.graph.masked(self.cutoff).label
        if self.soft_labels is None:
            return label
        probabilities = np.zeros((len(label), self.soft_labels.shape[1]), np.float32)
        probabilities[self.inputs.rows] = self.soft_labels
        return probabilities

    @cached_property
    def blocks(self) -> list[Block]:
        """The input matrices; for a network that reads the graph, the nodes by distance."""
        if not isinstance(self.task, GraphTask):
            return input_blocks(self.inputs, self.method, len(self.task.hops))
        step = own_relation(self.inputs.graph)
        kind = step[0]
        names = (OWN, "hop 1", "hop 2")
        near = [Block(name, kind, (step,) * distance) for distance, name in enumerate(names)]
        return [*near, Block("further nodes", kind, None)]

    @property
    def matrices(self) -> list[tuple[Block, Any]]:
        """The blocks of a model that reads rows, each with its matrix."""
        hops = [*self.task.hops, *self.task.label_hops]
        return list(zip(self.blocks, hops, strict=True))

    @cached_property
    def mean_row(self) -> np.ndarray:
        """The mean of the labelled rows [columns]; hops were scaled to a mean of 0."""
        labels = self.inputs.graph.masked(self.cutoff).label[self.inputs.rows]
        row_index = np.flatnonzero(labels >= 0)
        label_means = [
            np.asarray(hop[row_index]).mean(0, dtype=np.float64) for hop in self.task.label_hops
        ]
        return np.concatenate([np.zeros(sum(self.task.in_channels)), *label_means])

    def row_index(self, node_index: int) -> np.ndarray:
        """The row of the task that belongs to a node, as an array of length 1."""
        return np.searchsorted(self.pipeline.nodes_of(self.inputs), [node_index])

    def receptive_field(self, node_index: int, plain: bool = False) -> ReceptiveField:
        key = (node_index, plain)
        if key not in self._fields:
            method = self.method.without(self.method.weighting, "ends") if plain else self.method
            self._fields[key] = ReceptiveField.of(
                self.inputs, method, self.cutoff, node_index, self.known_label
            )
        return self._fields[key]

    # -- contributions

    def contributions(
        self, node_index: int, target_index: int, contrast: _Contrast
    ) -> tuple[Voice, list[InputContribution], float]:
        """Return the member's explanation, its inputs, and their factor to probabilities."""
        if isinstance(self.task, GraphTask):
            sources, mean_log_odds, raw = self._graph_contributions(node_index, contrast)
        else:
            sources, mean_log_odds, raw = self._row_contributions(node_index, contrast)
        scoring = self.head.options.scoring
        uniform = scoring.without_class_weights(np.full((1, self.head.shape.num_labels), 1.0))[0]
        # Training with class weights moves log-odds; the class prior moves them back.
        label, runner_up = contrast
        prior_log_odds = float(np.log(uniform[label] / uniform[runner_up]))
        log_odds = raw + prior_log_odds

        parts = [Part(one.block.name, float(one.contributions.sum())) for one in sources]
        probability, runner_up_probability = self.probabilities[
            target_index, [label, runner_up]
        ].tolist()
        # the probabilities of the head, before smoothing and adjustments
        p, q = self.head.predict_proba(self.task, self.row_index(node_index))[
            0, [label, runner_up]
        ].tolist()
        smoothing = None
        is_adjusted = any(part.adjust is not None for part in self.method.parts)
        if is_adjusted or self.pipeline._fitted().smoothing is not None:
            smoothing = probability - runner_up_probability - p + q
        voice = Voice(
            name=self.name,
            share=self.weight,
            probability=probability,
            runner_up_probability=runner_up_probability,
            log_odds=log_odds,
            usual=mean_log_odds + prior_log_odds,
            parts=parts,
            error=abs(raw - mean_log_odds - sum(part.contribution for part in parts)),
            smoothing=smoothing,
        )
        # the slope of probabilities over log-odds, at 0 its limit
        slope = (p - q) / log_odds if abs(log_odds) > 1e-6 else (p + q) / 2
        return voice, sources, self.weight * slope

    def _row_contributions(
        self, node_index: int, contrast: _Contrast
    ) -> tuple[list[InputContribution], float, float]:
        """Return the inputs of a model of rows, and the log-odds of the mean and of the node."""
        row_index = self.row_index(node_index)
        row = self.task.matrix(row_index)[0]
        by_column = _column_contributions(self.head, row, self.mean_row, contrast)
        scales = self.pipeline._fitted().scales
        sources = []
        end = 0
        for k, (block, hop) in enumerate(self.matrices):
            start = end
            end += hop.shape[1]
            columns = slice(start, end)
            mean = self.mean_row[columns]
            distance = row[columns] - mean
            adds = by_column.contributions[columns]
            index: np.ndarray = np.empty(0, np.int64)
            weights: np.ndarray = np.empty(0)
            shares: np.ndarray = np.empty(0)
            if block.path:
                index, weights = self.receptive_field(node_index).sources(block)
                values = self._node_values(block, self.receptive_field(node_index), index)
                if not block.labels:  # the receptive field leaves out the own label already
                    values = recompute(hop, values, np.repeat(row_index, len(index)))
                offsets = values - mean  # [nodes, columns]
                if by_column.slopes is None:
                    shares = _share_by_side(weights, offsets, distance) @ adds
                else:
                    shares = weights * (offsets @ by_column.slopes[columns])
            # feature hops were scaled, label hops were not
            unit: np.ndarray | float = 1.0
            if k < len(scales):
                mean = scales[k].mean
                unit = scales[k].scale
            sources.append(
                InputContribution(
                    block=block,
                    columns=self._column_names(block, len(adds)),
                    contributions=adds,
                    values=distance * unit + mean,
                    means=mean,
                    node_index=index,
                    weights=weights,
                    plain_weights=self._plain_weights(node_index, block, index),
                    node_contributions=shares,
                )
            )
        return sources, by_column.mean_log_odds, by_column.log_odds

    def _graph_contributions(
        self, node_index: int, contrast: _Contrast
    ) -> tuple[list[InputContribution], float, float]:
        """Return the same for a network that reads the graph, by the features of all nodes."""
        x, mean, contributions, log_odds = self._integrate_over_graph(node_index, contrast)
        scale = self.pipeline._fitted().scales[0]
        num_features = self.task.x.shape[1]
        remaining = np.ones(len(x), bool)  # nodes that no nearer block contains
        sources = []
        for block in self.blocks:
            if block.path is None:
                index = np.flatnonzero(remaining)
                weights: np.ndarray = np.empty(0)
            else:
                index, weights = self.receptive_field(node_index).sources(block)
                weights = weights[remaining[index]]
                index = index[remaining[index]]
            remaining[index] = False
            values = x[index].mean(0) if len(index) else mean
            features = (
                block,
                slice(num_features),
                values[:num_features] * scale.scale + scale.mean,
                scale.mean,
            )
            label_name = OWN_PSEUDO_LABEL if block.name == OWN else f"labels, {block.name}"
            labels = (
                replace(block, name=label_name, labels=True),
                slice(num_features, None),
                values[num_features:],
                mean[num_features:],
            )
            # nodes are named only along paths, not those further off, nor the node itself
            named = index if block.path else index[:0]
            for part, columns, part_values, part_means in (features, labels):
                adds = contributions[index, columns]
                if not adds.any():
                    continue
                sources.append(
                    InputContribution(
                        block=part,
                        columns=self._column_names(part, adds.shape[1]),
                        contributions=adds.sum(0),
                        values=part_values,
                        means=part_means,
                        node_index=named,
                        weights=weights[: len(named)],
                        plain_weights=self._plain_weights(node_index, part, named),
                        node_contributions=adds.sum(1)[: len(named)],
                    )
                )
        return sources, log_odds[0], log_odds[-1]

    def _integrate_over_graph(
        self, node_index: int, contrast: _Contrast
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[float]]:
        """Return x [N, columns], its mean row, contributions [N, columns], and log-odds by step."""
        assert isinstance(self.head, NetworkHead)
        model = self.head.model
        assert model is not None
        x = self.task.model_input(model.to(self.task.x.device))
        # features were scaled to a mean of 0, labels were not
        is_feature = torch.arange(x.shape[1]) < self.task.x.shape[1]
        mean = torch.where(is_feature, 0, x.mean(0))
        log_odds = []
        slope = torch.zeros_like(x)
        for position, weight in zip(*_integration_points(GRAPH_STEPS), strict=True):
            point = (mean + float(position) * (x - mean)).requires_grad_()
            difference = contrast.difference(model(point, self.task.propagation)[node_index])
            log_odds.append(difference.item())
            slope += torch.autograd.grad(difference, point)[0] * float(weight)
        contributions = (slope * (x - mean)).double().numpy()
        return x.numpy(), mean.numpy(), contributions, log_odds

    def _plain_weights(
        self, node_index: int, block: Block, index: np.ndarray
    ) -> list[float | None]:
        """Return the nodes' weights without time weights; None where the method has none."""
        if self.method.weighting == "plain" or not block.path:
            return [None] * len(index)
        sources, weights = self.receptive_field(node_index, plain=True).sources(block)
        weight_of = dict(zip(sources.tolist(), weights.tolist(), strict=True))
        return [weight_of.get(source, 0.0) for source in index.tolist()]

    def _node_values(
        self, block: Block, receptive_field: ReceptiveField, index: np.ndarray
    ) -> np.ndarray:
        """Return what a block reads of nodes: features, probabilities, or one-hot labels."""
        if not block.labels:
            x = self.inputs.graph.nodes[block.kind].x
            assert x is not None  # paths begin at types with features
            return np.asarray(x[index], np.float32)
        label = receptive_field.label[index]
        if label.ndim == 2:
            return label
        return (label[:, None] == np.arange(self.head.shape.num_labels)).astype(np.float32)

    def _column_names(self, block: Block, width: int) -> list[str]:
        schema = self.pipeline._fitted().schema
        view = self.inputs.view
        if block.labels:
            return [str(name) for name in schema.label_names or range(width)]
        has_features = view.nodes[block.kind].x is not None
        if block.name != DEGREES and not has_features and self.inputs.embed != "none":
            return [f"place in the graph, {k + 1}" for k in range(width)]
        if block.name == DEGREES or not has_features:  # then degrees are the features
            return self._degree_names()[:width]
        encoder = schema.encoders.get(block.kind)
        if encoder is None or encoder.is_of_matrix or block.path is None:
            return [f"feature {k}" for k in range(width)]
        return encoder.outputs

    def _degree_names(self) -> list[str]:
        view = self.inputs.view
        names = []
        known = []
        for triple in view.relations:
            source, _, target = triple
            for kind, direction in ((source, "out"), (target, "in")):
                if kind == view.target:
                    name = f"log(1 + edges {direction}), {'-'.join(triple)}"
                    names.append(name)
                    if source == target:
                        known.append(f"{name}, to known labels")
        return names + (known or ["no edges to known labels"])

    # -- changes

    def predict_changed(
        self,
        node_index: int,
        target_index: int,
        without: TypedNode | None = None,
        plain: bool = False,
    ) -> np.ndarray:
        """Return probabilities [num_labels] if a node had no edges, or with plain weights."""
        row_index = self.row_index(node_index)
        before = self.head.predict_proba(self.task, row_index)[0]
        if isinstance(self.task, GraphTask):
            operator = _changed_operator(self.task.propagation.operator, without, plain)
            task = self.task.over(Propagation(operator))
            after = self.head.predict_proba(task, row_index)[0]
        else:
            rows = []
            receptive_field = self.receptive_field(node_index, plain)
            for block, hop in self.matrices:
                row = hop[row_index]
                if block.path:
                    index, weights = receptive_field.sources(block, without)
                    mean = weights @ self._node_values(block, receptive_field, index)
                    row = mean[None].astype(np.float32)
                    if not block.labels:
                        row = recompute(hop, row, row_index)
                rows.append(torch.as_tensor(row))
            count = len(self.task.hops)
            after = self.head.predict_proba(HopTask(rows[:count], rows[count:]), np.array([0]))[0]
        # Smoothing and adjustments add what they added before the change.
        changed = np.maximum(
            self.probabilities[target_index] - before + after.astype(np.float64), 0
        )
        return changed / changed.sum()


class _ColumnContributions(NamedTuple):
    """Contributions of the columns of a row, their slopes, and the log-odds of mean and row."""

    contributions: np.ndarray
    slopes: np.ndarray | None  # None for trees
    mean_log_odds: float
    log_odds: float


def _column_contributions(
    head: Head, row: np.ndarray, mean: np.ndarray, contrast: _Contrast
) -> _ColumnContributions:
    """Split the log-odds of a row over its columns."""
    if isinstance(head, TreesHead):
        assert head.booster is not None
        raw = np.asarray(head.booster.predict(row[None], raw_score=True))[0]
        shapley = np.asarray(head.booster.predict(row[None], pred_contrib=True))
        # [columns + 1]: the last one is the expected score
        adds = contrast.difference(shapley.reshape(head.shape.num_labels, -1).T)
        return _ColumnContributions(
            contributions=adds[:-1],
            slopes=None,
            mean_log_odds=float(adds[-1]),
            log_odds=float(contrast.difference(raw)),
        )
    if isinstance(head, PriorHead):  # all rows have the same probabilities
        probabilities = np.maximum(
            head.probabilities(HopTask([row[None]]), np.array([0]))[0], 1e-12
        )
        log_odds = float(np.log(probabilities[contrast.label] / probabilities[contrast.runner_up]))
        zeros = np.zeros(len(row))
        return _ColumnContributions(zeros, slopes=zeros, mean_log_odds=log_odds, log_odds=log_odds)
    if not isinstance(head, NetworkHead) or head.model is None:
        raise InputError(
            f"a {type(head).__name__} cannot be taken apart; explain a model of trees or a network."
        )
    positions, weights = _integration_points(ROW_STEPS)
    # [points, columns]: the line from the mean to the row
    line = torch.tensor(
        mean + positions[:, None] * (row - mean),
        dtype=torch.float32,
        device=next(head.model.parameters()).device,
        requires_grad=True,
    )
    matrices = line.split([*head.shape.hops, *head.shape.label_hops], dim=1)
    count = len(head.shape.hops)
    # [points]: the log-odds along the line
    log_odds_at = contrast.difference(head.model(matrices[:count], matrices[count:]))
    gradients = torch.autograd.grad(log_odds_at.sum(), line)[0].double().cpu().numpy()
    slopes = weights @ gradients
    return _ColumnContributions(
        contributions=slopes * (row - mean),
        slopes=slopes,
        mean_log_odds=log_odds_at[0].item(),
        log_odds=log_odds_at[-1].item(),
    )


def _integration_points(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return positions from 0 to 1 and their weights: squared midpoints, and ends of weight 0."""
    middle = (np.arange(count) + 0.5) / count
    return np.r_[0.0, middle**2, 1.0], np.r_[0.0, middle / middle.sum(), 0.0]


def _share_by_side(weights: np.ndarray, offsets: np.ndarray, distance: np.ndarray) -> np.ndarray:
    """Return shares [nodes, columns] of the nodes on the same side of the mean as the row.

    Shares of a column sum to 1; where no node is on that side, they are the weights.
    """
    share = weights[:, None] * np.maximum(offsets * np.sign(distance), 0)
    share = np.where(share.sum(0) > 0, share, weights[:, None])
    return share / share.sum(0)


def _changed_operator(operator: Operator, without: TypedNode | None, plain: bool) -> Operator:
    """Return the operator with plain weights, or with weights of 0 for the edges of a node."""
    csr = operator.csr
    if without is not None:
        node_index = without[1]
        weight = np.ones(csr.num_edges, np.float32) if csr.weight is None else np.array(csr.weight)
        weight[csr.indices == node_index] = 0
        weight[csr.indptr[node_index] : csr.indptr[node_index + 1]] = 0
        csr = replace(csr, weight=weight)
    if not plain:
        return replace(operator, csr=csr)
    return replace(operator, csr=csr, table=np.ones_like(operator.table), balanced=False)
