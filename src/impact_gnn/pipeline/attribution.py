"""`explain`: which inputs, features and neighbours made a fitted model say what it says of one node.

Every member says log-odds of the label against the runner-up, so contributions of all kinds of
model have one unit:

* trees: their Shapley values (TreeSHAP), which sum to the raw score;
* networks: slopes along the straight line from the mean of the labelled rows to the node's row,
  integrated in steps that are short near the mean, times (value − mean): for `linear` that is
  exact, for others the error is stated.

A member of weight w that says p and q of the two labels adds w·(p − q) to the difference of the
ensemble. Its contributions are scaled by w·(p − q) / log-odds, which is positive, and added to
those of the others; an average node, smoothing and calibration account for the rest.

A hop is a weighted sum over nodes, and so is its contribution: u adds slope · weight of u · (value
    of u − mean). Trees
have no slope: there, nodes that lie on the hop's side of the mean share what a column adds, by
    weight and distance.
What the model says without a node, or with plain weights, is computed from the node's own rows made
anew; statistics of alignments and calibration, degrees, other nodes' features and what smoothing
adds stay as they are.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch

from impact_gnn.checks import InputError, listing
from impact_gnn.data.given import GraphLike, as_temporal_graph
from impact_gnn.engines.engine import Engine
from impact_gnn.engines.hop import recompute
from impact_gnn.engines.operator import Operator
from impact_gnn.heads import Head, NetworkHead, model_name
from impact_gnn.heads.head import PriorHead
from impact_gnn.heads.trees import TreesHead
from impact_gnn.methods import Method
from impact_gnn.nn import GraphTask, HopTask, Propagation
from impact_gnn.pipeline.calibration import tempered
from impact_gnn.pipeline.ensemble import Ensemble
from impact_gnn.pipeline.explanation import (
    DEGREES,
    OWN,
    Feature,
    Neighbour,
    NodeExplanation,
    Part,
    Voice,
    position,
)
from impact_gnn.pipeline.inputs import Inputs
from impact_gnn.pipeline.pipeline import Pipeline
from impact_gnn.pipeline.reach import Block, Place, Reach, blocks
from impact_gnn.propagation.hops import own_relation

# of the line, for networks that read rows and for those that walk the whole graph
STEPS, WALKS = (
    256,
    32,
)
AVERAGE, SMOOTHING, CALIBRATION, GUESS = (
    "an average node",
    "smoothing",
    "calibration",
    "own first guess",
)
NOBODY = np.empty(0, np.int64), np.empty(0)


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
    """Why a fitted model gives a node its label; no label from the cutoff on is looked at.

    Args:
        model: Fitted.
        graph: As for `predict_proba`, and so are `cutoff` and `engine`.
        node: The id of a target node.
        label: The class to speak for, by default the predicted one; it is held against the most
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
    return Explainer(model, graph, cutoff=cutoff, engine=engine).explain(
        node, label=label, most=most
    )


class Explainer:
    """`explain` for several nodes: hops and predictions are made once; `inputs` are those that fits left behind."""

    def __init__(
        self,
        model: Pipeline | Ensemble,
        graph: GraphLike,
        *,
        cutoff: int | str | None = None,
        inputs: dict[bool, Inputs] | None = None,
        engine: Engine | None = None,
    ) -> None:
        self.model, self.graph = Ensemble.of(model), (graph := as_temporal_graph(graph))
        fitted = self.model.fitted
        self.cutoff = fitted.cutoff if cutoff is None else graph.when(cutoff)
        inputs = inputs or {}
        view = graph.masked(self.cutoff) if inputs else fitted.schema.adapted(graph, self.cutoff)
        self.names = [str(name) for name in fitted.schema.label_names or range(fitted.num_labels)]
        self.targets, self.members = self.model.targets(graph, cutoff=self.cutoff), list[_Member]()
        for pipeline, weight in zip(self.model.pipelines, self.model.weights, strict=True):
            shown = pipeline.shared_inputs(inputs, view, engine)
            said = pipeline.predict_proba(view, cutoff=self.cutoff, inputs=shown)
            self.members.append(_Member(pipeline, weight, shown, self.cutoff, said))
        self.members.sort(key=lambda one: -one.weight)
        self.total = np.sum(
            [one.weight * one.said.astype(np.float64) for one in self.members], axis=0
        )
        self.probability = self.model.calibration.apply(self.total, self.model.prior)
        self.label = next(iter(inputs.values())).graph.masked(self.cutoff).label

    def explain(self, node: Any, *, label: Any = None, most: int = 10) -> NodeExplanation:
        """That of one node; arguments as in the function."""
        graph, at = self.graph, position(self.graph, node)
        when, since = graph.name_of(int(graph.time[at])), graph.name_of(self.cutoff)
        if graph.time[at] < self.cutoff:
            raise InputError(
                f"node {node} is of {when}, but nodes from {since} on are predicted; name one of those."
            )
        row = int(np.searchsorted(self.targets, at))
        a, b = self._classes(row, label)
        voices, parts = list[Voice](), defaultdict[str, float](float)
        features: dict[tuple[str, str], Feature] = {}
        heard: dict[Place, list[Any]] = {}  # steps, weight, plain weight, contribution
        for member in self.members:
            voice, shown, scale = member.account(at, row, a, b)
            voices.append(voice)
            parts[AVERAGE] += voice.share * (
                voice.probability - voice.runner_up_probability - (voice.smoothing or 0)
            )
            for one in shown:
                name, adds = one.block.name, scale * one.adds
                parts[name] += float(adds.sum())
                parts[AVERAGE] -= float(adds.sum())
                for column, value, mean, more in zip(
                    one.names, one.values, one.means, adds, strict=True
                ):
                    known = features.setdefault(
                        (name, column), Feature(name, column, float(value), float(mean), 0.0)
                    )
                    features[name, column] = replace(
                        known, contribution=known.contribution + float(more)
                    )
                for u, weight, plain, more in zip(
                    one.nodes, one.weight, one.plain, scale * one.each, strict=True
                ):
                    steps = len(one.block.path or ())
                    heard.setdefault((one.block.kind, int(u)), [steps, float(weight), plain, 0.0])[
                        3
                    ] += float(more)
        if any(voice.smoothing is not None for voice in voices):
            parts[SMOOTHING] = sum(voice.share * (voice.smoothing or 0.0) for voice in voices)
        final, raw = self.probability[row], self.total[row]
        if abs(rest := float(final[a] - final[b] - raw[a] + raw[b])) > 1e-6:
            parts[CALIBRATION] = rest
        off = [one for one in voices if one.error > 0.01 * max(abs(one.log_odds), 1.0)]
        notes = [
            f"Contributions of {one.name} leave out {one.error:.2g} of its log-odds." for one in off
        ]
        whole = [member.name for member in self.members if not member.local]
        if whole:
            notes.append(
                f"{listing(whole)} mixes paths by projections, so little is said about neighbours."
            )
        timed = any(member.method.weighting != "plain" for member in self.members) and not whole
        return NodeExplanation(
            id=str(graph.ids[at]),
            kind=graph.target,
            period=when,
            cutoff=since,
            label=self.names[a],
            probability=float(final[a]),
            runner_up=self.names[b],
            runner_up_probability=float(final[b]),
            voices=voices,
            parts=[Part(name, value) for name, value in parts.items()],
            features=sorted(features.values(), key=lambda one: -abs(one.contribution))[:most],
            neighbours=[
                self._neighbour(
                    place, heard[place], None if whole else self._changed(at, row, a, without=place)
                )
                for place in sorted(heard, key=lambda place: -abs(heard[place][3]))[:most]
            ],
            plain=self._changed(at, row, a, plain=True) if timed else None,
            notes=notes,
        )

    def _classes(self, row: int, label: Any) -> tuple[int, int]:
        """The class that is spoken for and the one that it is held against."""
        if len(self.names) < 2:
            raise InputError("the model knows one class only, so there is nothing to explain.")
        if label is not None and str(label) not in self.names:
            raise InputError(
                f"label={label!r} is no class that the model knows; there are {listing(self.names)}."
            )
        predicted = self.model.calibration.labels(self.probability[[row]], self.model.prior)[0]
        a = int(predicted) if label is None else self.names.index(str(label))
        return a, int(
            np.where(np.arange(len(self.names)) == a, -1.0, self.probability[row]).argmax()
        )

    def _neighbour(self, place: Place, found: list[Any], without: float | None) -> Neighbour:
        (kind, index), part = place, self.graph.nodes[place[0]]
        name = str(index if part.ids is None else part.ids[index])
        period = None if part.time is None else self.graph.name_of(int(part.time[index]))
        label = self.label[index] if kind == self.graph.target else -1
        steps, weight, plain, adds = found
        said = None if label < 0 else self.names[label]
        return Neighbour(name, kind, period, said, steps, weight, plain, adds, without)

    def _changed(
        self, at: int, row: int, a: int, *, without: Place | None = None, plain: bool = False
    ) -> float | None:
        """The calibrated probability of class a after a change; nobody is looked at without himself."""
        if without == (self.graph.target, at):
            return None
        said = [member.weight * member.changed(at, row, without, plain) for member in self.members]
        before, after = tempered(
            np.stack([self.total[row], np.sum(said, 0)]), self.model.calibration.temperature
        )
        after *= self.probability[row] / before  # by the class shares that calibration has found
        return float(after[a] / after.sum())


class _Shown(NamedTuple):
    """An input of a node: contributions, values and means of its columns, and the nodes it comes from."""

    block: Block
    names: list[str]
    adds: np.ndarray
    values: np.ndarray
    means: np.ndarray
    nodes: np.ndarray
    weight: np.ndarray
    plain: list[float | None]
    each: np.ndarray


@dataclass(frozen=True, eq=False)
class _Member:
    """A fitted pipeline of the ensemble, what it is shown, and what it said of all targets."""

    pipeline: Pipeline
    weight: float
    inputs: Inputs
    cutoff: int
    said: np.ndarray
    _reaches: dict[tuple[int, bool], Reach] = field(default_factory=dict)

    @property
    def head(self) -> Head:
        return self.pipeline._fitted().head

    @property
    def method(self) -> Method:
        return Method.of(self.pipeline.method)

    @property
    def name(self) -> str:
        seed, name = self.pipeline.seed, f"{model_name(self.pipeline.model)}:{self.method}"
        return f"{name}, seed {seed}" if seed else name

    @property
    def local(self) -> bool:
        """Whether the rows of a node can be made anew from its own edges."""
        return all(block.path is not None for block in self.blocks) or isinstance(
            self.task, GraphTask
        )

    @cached_property
    def task(self) -> Any:
        return self.pipeline.task(self.inputs, self.cutoff, self.soft)

    @cached_property
    def soft(self) -> np.ndarray | None:
        """What earlier stages said of the rows."""
        return self.pipeline.taught(self.inputs, self.cutoff)

    @cached_property
    def label(self) -> np.ndarray:
        """The labels that are known [N], or what earlier stages said [N, Y]."""
        label = self.inputs.graph.masked(self.cutoff).label
        if self.soft is None:
            return label
        out = np.zeros((len(label), self.soft.shape[1]), np.float32)
        out[self.inputs.rows] = self.soft
        return out

    @cached_property
    def blocks(self) -> list[Block]:
        """Input matrices; of a network that walks the graph in two layers, the nodes at every distance."""
        if not isinstance(self.task, GraphTask):
            return blocks(self.inputs, self.method, len(self.task.hops))
        step = own_relation(self.inputs.graph)
        near = [Block(name, step[0], (step,) * k) for k, name in enumerate((OWN, "hop 1", "hop 2"))]
        return [*near, Block("further nodes", step[0], None)]

    @cached_property
    def mean(self) -> np.ndarray:
        """The mean of the labelled rows [columns], as the head reads them: hops were scaled to 0."""
        rows = np.flatnonzero(self.inputs.graph.masked(self.cutoff).label[self.inputs.rows] >= 0)
        means = [np.asarray(hop[rows]).mean(0, dtype=np.float64) for hop in self.task.label_hops]
        return np.concatenate([np.zeros(sum(self.task.in_channels)), *means])

    def place(self, at: int) -> np.ndarray:
        """The row of the task that stands for a node."""
        return np.searchsorted(self.pipeline.nodes_of(self.inputs), [at])

    def reach(self, at: int, plain: bool = False) -> Reach:
        if (at, plain) not in self._reaches:
            method = self.method.without(self.method.weighting, "ends") if plain else self.method
            self._reaches[at, plain] = Reach.of(self.inputs, method, self.cutoff, at, self.label)
        return self._reaches[at, plain]

    # -- contributions
    # ---------------------------------------------------------------------------------------

    def account(self, at: int, row: int, a: int, b: int) -> tuple[Voice, list[_Shown], float]:
        """What it said, the inputs with contributions to its log-odds, and what these count in probability."""
        look = self._over_graph if isinstance(self.task, GraphTask) else self._over_hops
        shown, usual, raw = look(at, a, b)
        p, q = self.head.predict_proba(self.task, self.place(at))[0][[a, b]].tolist()
        even = self.head.options.scoring.without_class_weights(
            np.full((1, self.head.shape.num_labels), 1.0)
        )[0]
        # where all classes counted the same, shares are put back
        moved = float(np.log(even[a] / even[b]))
        parts = [Part(one.block.name, float(one.adds.sum())) for one in shown]
        error = abs(raw - usual - sum(part.contribution for part in parts))
        first, second, log_odds = float(self.said[row, a]), float(self.said[row, b]), raw + moved
        fitted = self.pipeline._fitted()
        adjusted = any(part.adjust is not None for part in self.method.parts)
        after = fitted.smoothing is not None or adjusted
        smoothing = first - second - p + q if after else None
        voice = Voice(
            self.name, self.weight, first, second, log_odds, usual + moved, parts, error, smoothing
        )
        return (
            voice,
            shown,
            self.weight * ((p - q) / log_odds if abs(log_odds) > 1e-6 else (p + q) / 2),
        )

    def _over_hops(self, at: int, a: int, b: int) -> tuple[list[_Shown], float, float]:
        """Inputs, and the log-odds of the mean row and of the node's."""
        place, scales, end, shown = self.place(at), self.pipeline._fitted().scales, 0, []
        row = self.task.matrix(place)[0]
        adds, slope, usual, raw = _contributions(self.head, row, self.mean, a, b)
        for k, (block, hop) in enumerate(
            zip(self.blocks, [*self.task.hops, *self.task.label_hops], strict=True)
        ):
            part = slice(end, end := end + hop.shape[1])
            away = row[part] - self.mean[part]
            mean, spread = (
                (scales[k].mean, scales[k].scale) if k < len(scales) else (self.mean[part], 1.0)
            )
            (index, weight), each = NOBODY, np.empty(0)
            if block.path:
                index, weight = self.reach(at).nodes(block)
                values = self._values(block, self.reach(at), index)
                # Of labels the own one is left out by the reach already.
                seen = (
                    values if block.labels else recompute(hop, values, np.repeat(place, len(index)))
                )
                off = seen - self.mean[part]
                if slope is None:
                    share = weight[:, None] * np.maximum(off * np.sign(away), 0)
                    share = np.where(share.sum(0) > 0, share, weight[:, None])
                    each = (share / share.sum(0)) @ adds[part]
                else:
                    each = weight * (off @ slope[part])
            shown.append(
                self._shown(at, block, adds[part], away * spread + mean, mean, index, weight, each)
            )
        return shown, usual, raw

    def _over_graph(self, at: int, a: int, b: int) -> tuple[list[_Shown], float, float]:
        """The same of a network that walks the graph, by the features of all nodes at once."""
        assert isinstance(self.head, NetworkHead)
        model, scale, width = (
            self.head.model,
            self.pipeline._fitted().scales[0],
            self.task.x.shape[1],
        )
        assert model is not None
        x = self.task.model_input(model.to(self.task.x.device))
        # features were scaled to 0
        usual = torch.where(torch.arange(x.shape[1]) < width, 0, x.mean(0))
        odds, slope = list[float](), torch.zeros_like(x)
        for step, size in zip(*_line(WALKS), strict=True):
            moved = (usual + float(step) * (x - usual)).requires_grad_()
            said = model(moved, self.task.propagation)[at]
            odds.append((said[a] - said[b]).item())
            slope += torch.autograd.grad(said[a] - said[b], moved)[0] * float(size)
        adds, left, shown = (
            (slope * (x - usual)).double().numpy(),
            np.ones(len(x), bool),
            list[_Shown](),
        )
        for block in self.blocks:
            index, weight = (
                self.reach(at).nodes(block)
                if block.path is not None
                else (np.flatnonzero(left), NOBODY[1])
            )
            new = left[index]
            index, left[index] = index[new], False
            means, mean = x[index].numpy().mean(0) if len(index) else usual.numpy(), usual.numpy()
            labels = replace(
                block, name=GUESS if block.name == OWN else f"labels, {block.name}", labels=True
            )
            for what, values, middle, part in [
                (block, means[:width] * scale.scale + scale.mean, scale.mean, adds[index, :width]),
                (labels, means[width:], mean[width:], adds[index, width:]),
            ]:
                if part.any():
                    named = (
                        (index, weight[new], part.sum(1)) if block.path else (*NOBODY, NOBODY[1])
                    )
                    shown.append(self._shown(at, what, part.sum(0), values, middle, *named))
        return shown, odds[0], odds[-1]

    def _shown(self, at: int, block: Block, adds: np.ndarray, *rest: np.ndarray) -> _Shown:
        values, means, index, weight, each = rest
        plain: list[float | None] = [None] * len(index)
        if self.method.weighting != "plain" and block.path:
            found = dict(
                zip(
                    *(part.tolist() for part in self.reach(at, plain=True).nodes(block)),
                    strict=True,
                )
            )
            plain = [found.get(u, 0.0) for u in index.tolist()]
        return _Shown(
            block, self._names(block, len(adds)), adds, values, means, index, weight, plain, each
        )

    def _values(self, block: Block, reach: Reach, index: np.ndarray) -> np.ndarray:
        """What nodes bring: their features, or their label as zeros with a one."""
        if block.labels:
            told = reach.label[index]
            classes = np.arange(self.head.shape.num_labels)
            return told if told.ndim == 2 else (told[:, None] == classes).astype(np.float32)
        x = self.inputs.graph.nodes[block.kind].x
        assert x is not None  # paths begin at types with features
        return np.asarray(x[index], np.float32)

    def _names(self, block: Block, width: int) -> list[str]:
        schema, view = self.pipeline._fitted().schema, self.inputs.view
        encoder = schema.encoders.get(block.kind)
        if block.labels:
            return [str(name) for name in schema.label_names or range(width)]
        if (
            block.name != DEGREES
            and self.inputs.embed != "none"
            and view.nodes[block.kind].x is None
        ):
            return [f"place in the graph, {k + 1}" for k in range(width)]
        if block.name == DEGREES or view.nodes[block.kind].x is None:  # then they are the features
            ends = [(t, k) for t in view.relations for k in (0, 2) if t[k] == view.target]
            names = [f"log(1 + edges {'in' if k else 'out'}), {'-'.join(t)}" for t, k in ends]
            known = [
                f"{name}, to known labels"
                for (t, _), name in zip(ends, names, strict=True)
                if t[0] == t[2]
            ]
            return [*names, *(known or ["no edges to known labels"])][:width]
        if encoder is None or encoder.is_of_matrix or block.path is None:
            return [f"feature {k}" for k in range(width)]
        return encoder.outputs

    # -- changes
    # ---------------------------------------------------------------------------------------------

    def changed(
        self, at: int, row: int, without: Place | None = None, plain: bool = False
    ) -> np.ndarray:
        """Probabilities [num_labels] if a node had no edges, or all edges plain weights."""
        place, rows = self.place(at), list[torch.Tensor]()
        before = self.head.predict_proba(self.task, place)[0]
        if isinstance(self.task, GraphTask):
            operator = _changed_operator(self.task.propagation.operator, without, plain)
            after = self.head.predict_proba(self.task.over(Propagation(operator)), place)[0]
        else:
            for block, hop in zip(
                self.blocks, [*self.task.hops, *self.task.label_hops], strict=True
            ):
                values = hop[place]
                if block.path:
                    index, weight = self.reach(at, plain).nodes(block, without)
                    values = (weight @ self._values(block, self.reach(at, plain), index))[
                        None
                    ].astype(np.float32)
                    values = values if block.labels else recompute(hop, values, place)
                rows.append(torch.as_tensor(values))
            count = len(self.task.hops)
            after = self.head.predict_proba(HopTask(rows[:count], rows[count:]), np.array([0]))[0]
        out = np.maximum(self.said[row] - before + after.astype(np.float64), 0)
        return out / out.sum()


def _contributions(
    head: Head, row: np.ndarray, mean: np.ndarray, a: int, b: int
) -> tuple[np.ndarray, np.ndarray | None, float, float]:
    """What columns add to the log-odds of class a against b, by which slopes; log-odds of the mean and of the row."""
    if isinstance(head, TreesHead):
        assert head.booster is not None
        shapley = np.asarray(head.booster.predict(row[None], pred_contrib=True)).reshape(
            head.shape.num_labels, -1
        )
        raw, adds = (
            np.asarray(head.booster.predict(row[None], raw_score=True))[0],
            shapley[a] - shapley[b],
        )
        return adds[:-1], None, float(adds[-1]), float(raw[a] - raw[b])
    if isinstance(head, PriorHead):  # it says the same of all rows
        said = np.maximum(head.probabilities(HopTask([row[None]]), np.array([0]))[0], 1e-12)
        odds = float(np.log(said[a] / said[b]))
        return np.zeros(len(row)), np.zeros(len(row)), odds, odds
    if not isinstance(head, NetworkHead) or head.model is None:
        raise InputError(
            f"a {type(head).__name__} cannot be taken apart; explain a model of trees or a network."
        )
    steps, sizes = _line(STEPS)
    device, count = next(head.model.parameters()).device, len(head.shape.hops)
    line = torch.tensor(
        mean + steps[:, None] * (row - mean), dtype=torch.float32, device=device, requires_grad=True
    )
    split = line.split([*head.shape.hops, *head.shape.label_hops], dim=1)
    logits = head.model(split[:count], split[count:])
    along = logits[:, a] - logits[:, b]
    slope = sizes @ torch.autograd.grad(along.sum(), line)[0].double().cpu().numpy()
    return slope * (row - mean), slope, along[0].item(), along[-1].item()


def _line(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Places from 0 to 1, and what each counts: inside as the midpoints of √place do, nothing at the two ends."""
    middle = (np.arange(count) + 0.5) / count
    return np.r_[0.0, middle**2, 1.0], np.r_[0.0, middle / middle.sum(), 0.0]


def _changed_operator(operator: Operator, without: Place | None, plain: bool) -> Operator:
    """The operation with plain weights, or with weights of zero for the edges of a node."""
    csr = operator.csr
    if without is not None:
        weight = np.ones(csr.num_edges, np.float32) if csr.weight is None else np.array(csr.weight)
        weight[csr.indices == without[1]] = 0
        weight[csr.indptr[without[1]] : csr.indptr[without[1] + 1]] = 0
        csr = replace(csr, weight=weight)
    table = np.ones_like(operator.table) if plain else operator.table
    return replace(operator, csr=csr, table=table, balanced=operator.balanced and not plain)
