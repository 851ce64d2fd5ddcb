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

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy import ndarray
from torch import Tensor

from impact_gnn.checks import InputError, listing
from impact_gnn.data.convert import GraphLike, as_temporal_graph
from impact_gnn.engines.engine import Engine
from impact_gnn.engines.hop import Hop, recompute
from impact_gnn.estimators import Ensemble, Fitted, Inputs, NetworkHead, Pipeline, model_name
from impact_gnn.explanations.columns import (
    Question,
    mean_slopes,
    share_by_side,
    split_columns,
)
from impact_gnn.explanations.explanation import (
    OWN,
    Feature,
    Neighbour,
    NodeExplanation,
    Part,
    Voice,
)
from impact_gnn.explanations.receptive_field import (
    Block,
    ReceptiveField,
    TypedNode,
    changed_operator,
    column_names,
    input_blocks,
)
from impact_gnn.graph.neighbourhood import positions_of
from impact_gnn.methods import Method
from impact_gnn.nn import GraphTask, HopTask, Propagation
from impact_gnn.propagation.hops import own_relation
from impact_gnn.statistics import Scale

STEPS = 32  # of the integral for networks that read the whole graph

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


class InputContribution(NamedTuple):
    """Contributions of one input matrix of a member to its log-odds, by column and by node.

    `nodes` are index, weight and contribution of the nodes that the row is computed from; none for
    the node's own values.
    """

    block: Block
    features: list[Feature]
    nodes: list[tuple[int, float, float]]

    @property
    def total(self) -> float:
        return sum(feature.contribution for feature in self.features)


class MemberExplanation(NamedTuple):
    """A member's contributions to its log-odds, and their factor to those of the ensemble."""

    voice: Voice
    inputs: list[InputContribution]
    scale: float


class Explainer:
    """`explain` for several nodes: hops and predictions are computed once.

    `inputs` are those that fits left behind (`Pipeline.shared_inputs`), by default none, and
    `probabilities` are predictions of the ensemble's members for all targets, if they are known.
    """

    def __init__(
        self,
        model: Pipeline | Ensemble,
        graph: GraphLike,
        *,
        cutoff: int | str | None = None,
        inputs: dict[bool, Inputs] | None = None,
        probabilities: Sequence[ndarray] = (),
        engine: Engine | None = None,
    ) -> None:
        self.model = Ensemble.of(model)
        self.graph = as_temporal_graph(graph)
        fitted = self.model.fitted
        self.cutoff = fitted.cutoff if cutoff is None else self.graph.when(cutoff)
        self.names = list(map(str, fitted.schema.label_names or range(fitted.num_labels)))
        self.targets = self.model.targets(self.graph, cutoff=cutoff)
        if inputs:
            view = self.graph.masked(self.cutoff)
        else:
            # A graph without inputs of a fit may have other columns than the model.
            view = fitted.schema.adapted(self.graph, self.cutoff)
            inputs = {}
        known = iter(probabilities)
        members = []
        for pipeline, weight in zip(self.model.pipelines, self.model.weights, strict=True):
            own = pipeline.shared_inputs(inputs, view, engine)
            predicted = next(known, None)
            if predicted is None:
                predicted = pipeline.predict_proba(view, cutoff=self.cutoff, inputs=own)
            members.append(_Member(pipeline, weight, own, self.cutoff, predicted))
        # The member with the largest weight is the one whose values are shown.
        self.members = sorted(members, key=lambda member: -member.weight)
        # [targets, num_labels]: the weighted mean of the members, before and after calibration
        weighted = [member.weight * member.probabilities for member in self.members]
        self.mean = np.asarray(np.sum(weighted, axis=0, dtype=np.float64))
        self.calibration = self.model.calibration.fixed_for(self.mean, self.model.prior)
        self.calibrated = self.calibration.apply(self.mean, self.model.prior)

    def explain(self, node: Any, *, label: Any = None, most: int = 10) -> NodeExplanation:
        """Explain the prediction for one node; arguments as in the function."""
        graph = self.graph
        node_index = int(positions_of(graph, node)[0])
        period = graph.name_of(int(graph.time[node_index]))
        cutoff = graph.name_of(self.cutoff)
        if graph.time[node_index] < self.cutoff:
            raise InputError(
                f"node {node} is in period {period}, "
                f"but only nodes from {cutoff} on are predicted; "
                "choose one of those."
            )
        question = self._question(node_index, label)
        members = [member.explain(question) for member in self.members]
        voices = [member.voice for member in members]
        notes = []
        for voice in voices:
            # Errors above one percent are stated.
            if voice.error > 0.01 * max(abs(voice.log_odds), 1.0):
                omitted = f"omit {voice.error:.2g} of its log-odds"
                notes.append(f"Contributions of {voice.name} {omitted}.")
        mixing = [member.name for member in self.members if not member.is_local]
        if mixing:
            notes.append(
                f"{listing(mixing)} mixes paths by projections, "
                "so neighbours are not attributed exactly."
            )
        plain = None
        # Only where time weights exist, and rows of a node can be computed again.
        if not mixing and any(member.method.weighting != "plain" for member in self.members):
            plain = self.predict_changed(question, plain=True)
        probabilities = self.calibrated[question.target_index]
        return NodeExplanation(
            id=str(graph.ids[node_index]),
            kind=graph.target,
            period=period,
            cutoff=cutoff,
            label=self.names[question.label],
            probability=float(probabilities[question.label]),
            runner_up=self.names[question.runner_up],
            runner_up_probability=float(probabilities[question.runner_up]),
            voices=voices,
            parts=self._parts(members, question),
            features=_largest_features(members, most),
            neighbours=self._neighbours(members, question, most, can_remove=not mixing),
            plain=plain,
            notes=notes,
        )

    def _question(self, node_index: int, label: Any) -> Question:
        """Compare the label, by default the predicted one, with the most probable other one."""
        if len(self.names) < 2:
            raise InputError("the model has one class only, so there is nothing to explain.")
        # `targets` are sorted node positions.
        target_index = int(np.searchsorted(self.targets, node_index))
        probabilities = self.calibrated[[target_index]]
        if label is None:
            predicted = self.model.calibration.labels(probabilities, self.model.prior)
            explained = int(predicted[0])
        elif str(label) in self.names:
            explained = self.names.index(str(label))
        else:
            raise InputError(
                f"label={label!r} is not a class of the model; "
                f"its classes are {listing(self.names)}."
            )
        # The runner-up is the most probable class besides the explained one.
        probabilities[0, explained] = -1.0
        return Question(node_index, target_index, explained, int(probabilities.argmax()))

    def _parts(self, members: list[MemberExplanation], question: Question) -> list[Part]:
        """Sum the members' contributions to the difference of the two probabilities."""
        before = float(question.difference(self.mean[question.target_index]))
        after = float(question.difference(self.calibrated[question.target_index]))
        parts = defaultdict[str, float](float, {AVERAGE: 0.0})
        for _, inputs, scale in members:
            for source in inputs:
                parts[source.block.name] += scale * source.total
        for voice, _, _ in members:
            if voice.smoothing is not None:
                parts[SMOOTHING] += voice.share * voice.smoothing
        # What inputs and smoothing do not add comes from an average node.
        parts[AVERAGE] = before - sum(parts.values())
        # Smaller differences are rounding.
        if abs(after - before) > 1e-6:
            parts[CALIBRATION] = after - before
        return [Part(name, contribution) for name, contribution in parts.items()]

    def _neighbours(
        self,
        members: list[MemberExplanation],
        question: Question,
        most: int,
        *,
        can_remove: bool,
    ) -> list[Neighbour]:
        """Return the nodes with the largest contributions."""
        # Sum over members and inputs, in units of the ensemble's probabilities.
        contributions = defaultdict[TypedNode, float](float)
        # by node: its weight in the first message that contains it, and that message
        messages: dict[TypedNode, tuple[float, _Member, Block]] = {}
        for member, explanation in zip(self.members, members, strict=True):
            for source in explanation.inputs:
                for index, weight, contribution in source.nodes:
                    node = (source.block.kind, index)
                    contributions[node] += explanation.scale * contribution
                    # Members come by falling weight, so the first message is the heaviest member's.
                    messages.setdefault(node, (weight, member, source.block))
        neighbours = []
        for node in _largest(contributions, most):
            kind, index = node
            nodes = self.graph.nodes[kind]
            weight, member, block = messages[node]
            without = period = label = None
            if can_remove and node != (self.graph.target, question.node_index):
                without = self.predict_changed(question, without=node)
            if nodes.time is not None:
                period = self.graph.name_of(int(nodes.time[index]))
            # Only target nodes have labels; −1 is unknown.
            if kind == self.graph.target and member.known_label[index] >= 0:
                label = self.names[member.known_label[index]]
            neighbour = Neighbour(
                id=str(index if nodes.ids is None else nodes.ids[index]),
                kind=kind,
                period=period,
                label=label,
                steps=len(block.path or ()),
                weight=weight,
                plain_weight=member.plain_weight(question.node_index, block, index),
                contribution=contributions[node],
                without=without,
            )
            neighbours.append(neighbour)
        return neighbours

    def predict_changed(
        self, question: Question, *, without: TypedNode | None = None, plain: bool = False
    ) -> float:
        """Return the calibrated probability of the label without a node or with plain weights."""
        changed = [
            member.weight * member.predict_changed(question, without, plain)
            for member in self.members
        ]
        calibrated = self.calibration.apply(np.sum(changed, 0)[None], self.model.prior)
        return float(calibrated[0, question.label])


def _largest(contributions: Mapping[Any, float], most: int) -> list[Any]:
    return sorted(contributions, key=lambda key: -abs(contributions[key]))[:most]


def _largest_features(members: list[MemberExplanation], most: int) -> list[Feature]:
    """Return the columns with the largest contributions, as the first member reads them."""
    first: dict[tuple[str, str], Feature] = {}
    contributions = defaultdict[tuple[str, str], float](float)
    for _, inputs, scale in members:
        for source in inputs:
            for feature in source.features:
                key = (feature.part, feature.name)
                first.setdefault(key, feature)
                contributions[key] += scale * feature.contribution
    return [
        replace(first[key], contribution=contributions[key])
        for key in _largest(contributions, most)
    ]


@dataclass(frozen=True, eq=False)
class _Member:
    """A fitted pipeline of the ensemble, its inputs and its probabilities for all targets."""

    pipeline: Pipeline
    weight: float
    inputs: Inputs
    cutoff: int
    probabilities: ndarray
    _fields: dict[tuple[int, bool], ReceptiveField] = field(default_factory=dict)

    @property
    def fitted(self) -> Fitted:
        return self.pipeline.require_fitted()

    @property
    def method(self) -> Method:
        return Method.of(self.pipeline.method)

    @property
    def name(self) -> str:
        seed = self.pipeline.seed
        name = f"{model_name(self.pipeline.model)}:{self.method}"
        return f"{name}, seed {seed}" if seed else name

    @cached_property
    def task(self) -> Any:
        return self.pipeline.task(self.inputs, self.cutoff, self.soft_labels)

    @cached_property
    def soft_labels(self) -> ndarray | None:
        """Probabilities of the rows by earlier stages [rows, Y], None without stages."""
        return self.pipeline.soft_labels(self.inputs, self.cutoff)

    @cached_property
    def known_label(self) -> ndarray:
        """The labels [N] before the cutoff, -1 for others."""
        return self.inputs.graph.masked(self.cutoff).label

    @cached_property
    def input_label(self) -> ndarray:
        """What label hops read: the known labels [N], or probabilities of earlier stages [N, Y]."""
        if self.soft_labels is None:
            return self.known_label
        # From rows of the task [rows, Y] to nodes [N, Y]; other nodes have no probabilities.
        shape = (len(self.known_label), self.soft_labels.shape[1])
        probabilities = np.zeros(shape, np.float32)
        probabilities[self.inputs.row_nodes] = self.soft_labels
        return probabilities

    @property
    def reads_graph(self) -> bool:
        return isinstance(self.task, GraphTask)

    @cached_property
    def blocks(self) -> list[Block]:
        """The input matrices; for a network that reads the graph, the nodes by distance."""
        if not self.reads_graph:
            return input_blocks(self.inputs, self.method, len(self.task.hops))
        step = own_relation(self.inputs.graph)
        kind = step[0]
        names = (OWN, "hop 1", "hop 2")
        near = [Block(name, kind, (step,) * distance) for distance, name in enumerate(names)]
        return [*near, Block("further nodes", kind, None)]

    @property
    def is_local(self) -> bool:
        """Whether the rows of a node can be computed from its own edges."""
        return self.reads_graph or all(block.path is not None for block in self.blocks)

    @property
    def matrices(self) -> list[tuple[Block, Any]]:
        """The blocks of a model that reads rows, each with its matrix."""
        hops = [*self.task.hops, *self.task.label_hops]
        return list(zip(self.blocks, hops, strict=True))

    @cached_property
    def mean_row(self) -> ndarray:
        """The mean of the labelled rows [columns]; hops were scaled to a mean of 0."""
        # Rows whose label is known; only label hops have a mean other than 0.
        row_index = np.flatnonzero(self.known_label[self.inputs.row_nodes] >= 0)
        means = [np.zeros(sum(self.task.in_channels))]
        for hop in self.task.label_hops:
            labelled = np.asarray(hop[row_index])
            means.append(labelled.mean(0, dtype=np.float64))
        return np.concatenate(means)

    def row_index(self, node_index: int) -> ndarray:
        """The row of the task that belongs to a node, as an array of length 1."""
        # Rows of the task are in the order of node positions.
        return np.searchsorted(self.pipeline.nodes_of(self.inputs), [node_index])

    def receptive_field(self, node_index: int, plain: bool = False) -> ReceptiveField:
        key = (node_index, plain)
        if key not in self._fields:
            method = self.method.without(self.method.weighting, "ends") if plain else self.method
            self._fields[key] = ReceptiveField.of(self.inputs, method, node_index, self.input_label)
        return self._fields[key]

    def plain_weight(self, node_index: int, block: Block, source: int) -> float | None:
        """Return a source's weight without time weights; None where the method has none."""
        if self.method.weighting == "plain":
            return None
        # A source may be reached along several paths; their weights add up.
        index, weights = self.receptive_field(node_index, plain=True).sources(block)
        return float(weights[index == source].sum())

    # -- contributions

    def explain(self, question: Question) -> MemberExplanation:
        """Split the log-odds of the member over its inputs."""
        split = self._split_graph if self.reads_graph else self._split_row
        inputs, error = split(question)
        parts = [Part(source.block.name, source.total) for source in inputs]
        # The two probabilities after and before smoothing and adjustments; both differ by what
        # these steps added.
        classes = [question.label, question.runner_up]
        final = self.probabilities[question.target_index]
        probability, runner_up_probability = final[classes].tolist()
        raw = self._predict_row(question.node_index)
        p, q = raw[classes].tolist()
        smoothing = None
        is_adjusted = any(part.adjust is not None for part in self.method.parts)
        if is_adjusted or self.fitted.smoothing is not None:
            smoothing = probability - runner_up_probability - p + q
        log_odds = float(question.log_odds(raw))
        # Log-odds = those of an average node + contributions of the inputs + error.
        voice = Voice(
            name=self.name,
            share=self.weight,
            probability=probability,
            runner_up_probability=runner_up_probability,
            log_odds=log_odds,
            usual=log_odds - error - sum(part.contribution for part in parts),
            parts=parts,
            error=abs(error),
            smoothing=smoothing,
        )
        # The slope of probabilities over log-odds, at 0 its limit: it turns contributions to
        # log-odds into contributions to p − q.
        slope = (p + q) / 2
        if abs(log_odds) > 1e-6:
            slope = (p - q) / log_odds
        return MemberExplanation(voice, inputs, self.weight * slope)

    def _predict_row(self, node_index: int) -> ndarray:
        return self.fitted.head.predict_proba(self.task, self.row_index(node_index))[0]

    def _split_row(self, question: Question) -> tuple[list[InputContribution], float]:
        """Split the log-odds of a row over its columns, and those of hops over nodes."""
        node_index = question.node_index
        row_index = self.row_index(node_index)
        # All matrices of the row side by side, [columns].
        row = self.task.matrix(row_index)[0]
        by_column, slopes, error = split_columns(self.fitted.head, row, self.mean_row, question)
        # Every block is a range of the row's columns; hops are split further, over nodes.
        inputs = []
        end = 0
        # Feature hops were scaled, label hops were not.
        for (block, hop), scale in itertools.zip_longest(self.matrices, self.fitted.scales):
            columns = slice(end, end + hop.shape[1])
            end = columns.stop
            mean = self.mean_row[columns]
            nodes = []
            if block.path:
                index, weights = self.receptive_field(node_index).sources(block)
                values = self._node_values(block, node_index, index)
                offsets = _block_rows(block, hop, values, row_index) - mean  # [nodes, columns]
                # Trees: nodes share a column's contribution. Networks: slope · weight · offset.
                if slopes is None:
                    shares = share_by_side(weights, offsets, row[columns] - mean)
                    by_node = shares @ by_column[columns]
                else:
                    by_node = weights * (offsets @ slopes[columns])
                nodes = _rows(index, weights, by_node)
            features = self._features(block, by_column[columns], row[columns], mean, scale)
            inputs.append(InputContribution(block, features, nodes))
        return inputs, error

    def _split_graph(self, question: Question) -> tuple[list[InputContribution], float]:
        """Split the log-odds of a network that reads the graph over the features of all nodes."""
        head = self.fitted.head
        assert isinstance(head, NetworkHead)
        assert head.model is not None
        model = head.model.to(self.task.x.device)
        x = self.task.model_input(model)
        num_features = self.task.x.shape[1]
        # features were scaled to a mean of 0, labels were not
        mean = x.mean(0)
        mean[:num_features] = 0

        def log_odds(point: Tensor) -> Tensor:
            return question.difference(model(point, self.task.propagation)[question.node_index])

        # [N, columns]: the prediction of one node depends on rows of all nodes.
        slopes, error = mean_slopes(log_odds, x, mean, STEPS)
        by_node = slopes * (x - mean).double().numpy()  # [N, columns]
        usual = mean.numpy()
        remaining = np.ones(len(x), bool)  # nodes that no nearer block contains
        inputs = []
        for block in self.blocks:
            # A block without a path takes all nodes that are left.
            index = np.flatnonzero(remaining)
            weights: ndarray = np.empty(0)
            if block.path is not None:
                index, weights = self.receptive_field(question.node_index).sources(block)
                # Nodes of a nearer block are not counted again.
                weights = weights[remaining[index]]
                index = index[remaining[index]]
            remaining[index] = False
            label_name = OWN_PSEUDO_LABEL if block.name == OWN else f"labels, {block.name}"
            labels = replace(block, name=label_name, labels=True)
            for part, columns, scale in (
                (block, slice(num_features), self.fitted.scales[0]),
                (labels, slice(num_features, None), None),
            ):
                contributions = by_node[index, columns]
                if not contributions.any():
                    continue
                # The block's features are shown as the mean of its nodes [columns].
                row = x[index].mean(0).numpy()[columns]
                features = self._features(part, contributions.sum(0), row, usual[columns], scale)
                nodes = []
                # Nodes are named only along paths, not those further off, nor the node itself.
                if block.path:
                    nodes = _rows(index, weights, contributions.sum(1))
                inputs.append(InputContribution(part, features, nodes))
        return inputs, error

    def _features(
        self,
        block: Block,
        contributions: ndarray,
        values: ndarray,
        usual: ndarray,
        scale: Scale | None,
    ) -> list[Feature]:
        """Describe the columns of a block, with the values of a row and their means.

        With the scale of the columns, both are shown in the units of the data.
        """
        if scale is not None:
            values = values * scale.scale + scale.mean
            usual = usual * scale.scale + scale.mean
        names = column_names(self.inputs, self.fitted.schema, block, len(contributions))
        rows = _rows(values, usual, contributions)
        features = []
        for name, (value, mean, contribution) in zip(names, rows, strict=True):
            feature = Feature(
                part=block.name,
                name=name,
                value=value,
                usual=mean,
                contribution=contribution,
            )
            features.append(feature)
        return features

    def _node_values(self, block: Block, node_index: int, index: ndarray) -> ndarray:
        """Return what a block reads of nodes: features, probabilities, or one-hot labels."""
        if not block.labels:
            x = self.inputs.graph.nodes[block.kind].x
            assert x is not None  # paths begin at types with features
            return np.asarray(x[index], np.float32)
        # Soft labels are rows of probabilities already; codes become one-hot rows.
        label = self.receptive_field(node_index).label[index]
        if label.ndim == 2:
            return label
        return np.eye(self.fitted.num_labels, dtype=np.float32)[label]

    # -- changes

    def predict_changed(
        self, question: Question, without: TypedNode | None = None, plain: bool = False
    ) -> ndarray:
        """Return probabilities [num_labels] if a node had no edges, or with plain weights."""
        node_index = question.node_index
        row_index = self.row_index(node_index)
        if self.reads_graph:
            operator = changed_operator(self.task.propagation.operator, without, plain)
            task = self.task.over(Propagation(operator))
        else:
            task = self._changed_row(node_index, without, plain)
            row_index = np.array([0])
        after = self.fitted.head.predict_proba(task, row_index)[0].astype(np.float64)
        # Smoothing and adjustments add what they added before the change.
        added = self.probabilities[question.target_index] - self._predict_row(node_index)
        # The sum may fall below 0 or miss 1.
        changed = np.maximum(after + added, 0)
        return changed / changed.sum()

    def _changed_row(self, node_index: int, without: TypedNode | None, plain: bool) -> HopTask:
        row_index = self.row_index(node_index)
        rows = []
        for block, hop in self.matrices:
            row = np.asarray(hop[row_index])
            if block.path:
                index, weights = self.receptive_field(node_index, plain).sources(block, without)
                # The message without the node or with plain weights [f], aligned and scaled again.
                mean = weights @ self._node_values(block, node_index, index)
                row = _block_rows(block, hop, mean[None], row_index)
            rows.append(row)
        # A task of this one row: hops first, then label hops.
        count = len(self.task.hops)
        return HopTask(rows[:count], rows[count:])


def _rows(*columns: ndarray) -> list[Any]:
    return list(zip(*(column.tolist() for column in columns), strict=True))


def _block_rows(block: Block, hop: Hop, values: ndarray, row_index: ndarray) -> ndarray:
    """Return what the model reads of a row if the engine had computed one of `values` there."""
    values = values.astype(np.float32)
    if block.labels:  # the receptive field leaves out the own label already
        return values
    return recompute(hop, values, np.repeat(row_index, len(values)))
