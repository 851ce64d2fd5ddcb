"""`explain`: which inputs, features and neighbours made a fitted model say what it says of one node.

Every member says log-odds of the label against the runner-up, so contributions of all kinds of model are in one unit:

* trees: their Shapley values (TreeSHAP), which sum to the raw score;
* networks: gradients along the straight line from the mean of the labelled rows to the node's row, integrated in
  `STEPS` steps. For `linear` this is coefficient x (value - mean), exactly; for others the error is stated.

A member of weight w that says p and q of the two labels adds w·(p - q) to the difference of the ensemble. As
p - q = (p + q)·tanh(log-odds / 2) has the sign of the log-odds, its contributions are scaled by w·(p - q) / log-odds, and
those of all members are added. An average node, smoothing and calibration account for the rest.

A hop is a weighted sum over nodes, and so is its contribution: u adds slope x weight of u x (value of u - mean). Trees
have no slope; there, the nodes that lie on the same side of the mean as the hop share what a column adds, by how much
they weigh and how far they lie off. What the model says without a node, or with plain weights, is computed anew from the
node's own rows; statistics of alignments, what smoothing adds and other nodes' features stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from impact_gnn.checks import InputError, listing
from impact_gnn.engines.base import Engine, position_blocks, redone
from impact_gnn.engines.operator import Operator
from impact_gnn.graph import TemporalGraph
from impact_gnn.heads import Head, NetworkHead
from impact_gnn.heads.trees import TreesHead
from impact_gnn.nn import GraphTask, HopTask, Propagation
from impact_gnn.pipeline.calibration import tempered
from impact_gnn.pipeline.ensemble import Ensemble
from impact_gnn.pipeline.explanation import OWN, Feature, Neighbour, NodeExplanation, Part, Voice, position
from impact_gnn.pipeline.inputs import Inputs, degree_columns
from impact_gnn.pipeline.method import Candidate
from impact_gnn.pipeline.pipeline import Pipeline
from impact_gnn.pipeline.reach import Block, Place, Reach, blocks
from impact_gnn.propagation.hops import own_relation

STEPS = 64
AVERAGE, SMOOTHING, CALIBRATION = "an average node", "smoothing", "calibration"


def explain(
    model: Pipeline | Ensemble, graph: TemporalGraph, node: Any, *, label: Any = None, cutoff: int | str | None = None,
    engine: Engine | None = None, most: int = 10,
) -> NodeExplanation:  # fmt: skip
    """Why a fitted model gives a node its label, or why (not) another one; labels from the cutoff on are never looked at.

    Args:
        model: Fitted.
        graph: As for `predict_proba`.
        node: The id of a target node.
        label: The class to speak for; by default the predicted one. It is held against the most probable other one.
        cutoff: As for `predict_proba`.
        engine: Where to propagate.
        most: Features and neighbours that are named at most.

    Example:
        >>> from impact_gnn.data.tsbm import tsbm
        >>> g = tsbm(num_nodes=400, num_times=5, num_labels=2, seed=0)
        >>> p = Pipeline("linear", "pmp", cutoff=4, epochs=5).fit(g)
        >>> [part.name for part in explain(p, g, p.targets(g)[0]).parts]
        ['an average node', 'own features', 'hop 1', 'hop 2']
    """
    return Explainer(model, graph, cutoff=cutoff, engine=engine).explain(node, label=label, most=most)


class Explainer:
    """`explain` for several nodes of one graph: hops and predictions are made once.

    `inputs` are those that fits left behind (`Pipeline.shared_inputs`), by default none.
    """

    def __init__(
        self, model: Pipeline | Ensemble, graph: TemporalGraph, *, cutoff: int | str | None = None,
        inputs: dict[bool, Inputs] | None = None, engine: Engine | None = None,
    ) -> None:  # fmt: skip
        self.model = Ensemble.of(model)
        fitted = self.model.fitted
        self.cutoff = fitted.cutoff if cutoff is None else graph.when(cutoff)
        kept = {} if inputs is None else inputs
        view = graph.masked(self.cutoff) if kept else fitted.schema.adapted(graph, self.cutoff)
        names = range(fitted.num_labels) if fitted.schema.label_names is None else fitted.schema.label_names
        self.names = [str(name) for name in names]
        self.graph, self.targets = graph, self.model.targets(graph, cutoff=self.cutoff)
        self.members: list[_Member] = []
        total = np.zeros((len(self.targets), fitted.num_labels))
        for pipeline, weight in zip(self.model.pipelines, self.model.weights, strict=True):
            shown = pipeline.shared_inputs(kept, view, engine)
            said = pipeline.predict_proba(view, cutoff=self.cutoff, inputs=shown)
            total += weight * said
            self.members.append(_Member(pipeline, weight, shown, self.cutoff, self.targets, said))
        self.members.sort(key=lambda one: -one.weight)
        self.total, self.probability = total, self.model.calibration.apply(total, self.model.prior)

    def explain(self, node: Any, *, label: Any = None, most: int = 10) -> NodeExplanation:
        """That of one node; arguments as in the function."""
        graph, at = self.graph, position(self.graph, node)
        when, since = graph.name_of(int(graph.time[at])), graph.name_of(self.cutoff)
        if graph.time[at] < self.cutoff:
            raise InputError(f"node {node} is of {when}, but nodes from {since} on are predicted; name one of those.")
        row = int(np.searchsorted(self.targets, at))
        a, b = self._classes(row, label)
        parts, features, heard = {AVERAGE: 0.0}, dict[tuple[str, str], Feature](), dict[Place, float]()
        voices, notes = [], []
        for member in self.members:
            voice, columns, nodes, scale = member.account(at, row, a, b)
            voices.append(voice)
            scale *= member.weight
            for part in voice.parts:
                parts[part.name] = parts.get(part.name, 0.0) + scale * part.contribution
            for one in columns:
                known = features.get((one.part, one.name), replace(one, contribution=0.0))
                more = known.contribution + scale * one.contribution
                features[one.part, one.name] = replace(known, contribution=more)
            for place, value in nodes.items():
                heard[place] = heard.get(place, 0.0) + scale * value
            smoothing = member.weight * (voice.smoothing or 0.0)
            if voice.smoothing is not None:
                parts[SMOOTHING] = parts.get(SMOOTHING, 0.0) + smoothing
            said = voice.probability - voice.runner_up_probability
            parts[AVERAGE] += member.weight * said - smoothing - scale * sum(part.contribution for part in voice.parts)
            if voice.error > 0.01 * max(abs(voice.log_odds), 1.0):
                notes.append(f"the contributions of {voice.name} are off by {voice.error:.2g} of log-odds in all.")
        final, raw = self.probability[row], self.total[row]
        if abs(rest := float(final[a] - final[b] - raw[a] + raw[b])) > 1e-9:
            parts[CALIBRATION] = rest
        whole = [member.pipeline.model for member in self.members if not member.local]
        if whole:
            notes.append(f"{listing(whole)} squashes paths by projections, so nothing is said about neighbours there.")
        strongest = sorted(heard, key=lambda place: -abs(heard[place]))[:most]
        timed = any(member.pipeline.method.weighting != "plain" for member in self.members)
        return NodeExplanation(
            id=str(graph.ids[at]), kind=graph.target, period=when, cutoff=since,
            label=self.names[a], probability=float(final[a]),
            runner_up=self.names[b], runner_up_probability=float(final[b]), voices=voices,
            parts=[Part(name, float(value)) for name, value in parts.items()],
            features=sorted(features.values(), key=lambda one: -abs(one.contribution))[:most],
            neighbours=[self._neighbour(place, heard[place], at, row, a) for place in strongest],
            plain=self._changed(at, row, a, plain=True) if timed and not whole else None, notes=notes,
        )  # fmt: skip

    def _classes(self, row: int, label: Any) -> tuple[int, int]:
        """The class that is spoken for and the one that it is held against."""
        if label is None:
            a = int(self.model.calibration.labels(self.probability, self.model.prior)[row])
        elif str(label) in self.names:
            a = self.names.index(str(label))
        else:
            raise InputError(f"label={label!r} is no class that the model knows; there are {listing(self.names)}.")
        if len(self.names) < 2:
            raise InputError("the model knows one class only, so there is nothing to explain.")
        others = self.probability[row].copy()
        others[a] = -1
        return a, int(others.argmax())

    def _neighbour(self, place: Place, contribution: float, at: int, row: int, a: int) -> Neighbour:
        (kind, index), first = place, self.members[0]
        part, view = self.graph.nodes[kind], first.inputs.graph
        label = int(view.masked(self.cutoff).label[index]) if kind == view.target else -1
        found = next(filter(None, (member.weight_of(at, place) for member in self.members)))
        own = (kind, index) == (self.graph.target, at) or not all(member.local for member in self.members)
        return Neighbour(
            id=str(index if part.ids is None else part.ids[index]), kind=kind,
            period=None if part.time is None else self.graph.name_of(int(part.time[index])),
            label=None if label < 0 else self.names[label], steps=found[0], weight=found[1], plain_weight=found[2],
            contribution=float(contribution), without=None if own else self._changed(at, row, a, without=place),
        )  # fmt: skip

    def _changed(self, at: int, row: int, a: int, *, without: Place | None = None, plain: bool = False) -> float:
        """The calibrated probability of class a after a change; class shares that calibration found stay."""
        total = sum(member.weight * member.changed(at, row, without=without, plain=plain) for member in self.members)
        temperature = self.model.calibration.temperature
        shift = self.probability[row] / tempered(self.total[[row]], temperature)[0]
        new = tempered(np.asarray(total)[None], temperature)[0] * shift
        return float(new[a] / new.sum())


@dataclass(frozen=True, eq=False)
class _Member:
    """A fitted pipeline of the ensemble, what it is shown, and what it said of all targets."""

    pipeline: Pipeline
    weight: float
    inputs: Inputs
    cutoff: int
    targets: np.ndarray
    said: np.ndarray

    @property
    def head(self) -> Head:
        return self.pipeline._fitted().head

    @property
    def name(self) -> str:
        alike = str(Candidate(self.pipeline.method, self.pipeline.model))
        return alike if self.pipeline.seed == 0 else f"{alike}, seed {self.pipeline.seed}"

    @property
    def local(self) -> bool:
        """Whether the rows of a node can be made anew from its own edges."""
        return not (self.inputs.squashed and self.inputs.graph.is_hetero)

    @cached_property
    def task(self) -> Any:
        fitted = self.pipeline._fitted()
        return self.pipeline._shown(self.inputs, self.cutoff, fitted.scales, fitted.head.shape)

    @cached_property
    def blocks(self) -> list[Block]:
        """Input matrices; of a network that walks the graph, the nodes at each distance."""
        if isinstance(self.task, GraphTask):
            step = own_relation(self.inputs.graph)
            hops = [Block(f"hop {k}", step[0], (step,) * k) for k in range(1, 3)]
            return [Block(OWN, step[0]), *hops, Block("further nodes", step[0], None)]
        return blocks(self.inputs, self.pipeline.method, len(self.task.hops))

    @cached_property
    def mean(self) -> np.ndarray:
        """The mean of the labelled rows [columns], as the head reads them: hops were scaled to 0."""
        rows = np.flatnonzero(self.inputs.graph.masked(self.cutoff).label[self.inputs.rows] >= 0)
        sums = [
            sum(np.asarray(hop[rows[part]], np.float64).sum(0) for part in position_blocks(len(rows)))
            for hop in self.task.label_hops
        ]
        return np.concatenate([np.zeros(sum(self.task.in_channels)), *(one / max(len(rows), 1) for one in sums)])

    def reach(self, at: int, plain: bool = False) -> Reach:
        method = self.pipeline.method
        return Reach.of(
            self.inputs, replace(method, weighting="plain", ends=False) if plain else method, self.cutoff, at
        )

    def weight_of(self, at: int, place: Place) -> tuple[int, float, float | None] | None:
        """Steps to a node, its weight in the message by which it is heard first, and that without time weights."""
        for block in sorted((one for one in self.blocks if one.path), key=lambda one: len(one.path or ())):
            index, weight = self.reach(at).nodes(block)
            if block.kind == place[0] and (here := index == place[1]).any():
                plain = None
                if self.pipeline.method.weighting != "plain":
                    index, without = self.reach(at, plain=True).nodes(block)
                    plain = float(without[index == place[1]].sum())
                return len(block.path or ()), float(weight[here][0]), plain
        return None

    # -- contributions ---------------------------------------------------------------------------------------

    def account(self, at: int, row: int, a: int, b: int) -> tuple[Voice, list[Feature], dict[Place, float], float]:
        """What it said and why; features and nodes with contributions to the log-odds, and what those are scaled by."""
        place = int(np.searchsorted(self.pipeline._rows(self.inputs), at))
        honest = self.head.honest(self.task, np.array([place]))[0].astype(np.float64)
        spatial = isinstance(self.task, GraphTask)
        by_block, usual, raw, nodes = (self._over_graph if spatial else self._over_hops)(at, place, a, b)
        even = self.head.options.scoring.honest(np.full((1, len(honest)), 1 / len(honest)))[0]
        moved = float(np.log(even[a] / even[b]))  # by putting back the classes' shares
        parts = [Part(block.name, float(values.sum())) for block, values, _, _ in by_block]
        features = [
            Feature(block.name, name, float(value), float(mean), float(adds))
            for block, values, shown, means in by_block
            for name, value, mean, adds in zip(self._names(block, len(values)), shown, means, values, strict=True)
        ]
        log_odds, difference = raw + moved, float(honest[a] - honest[b])
        scale = difference / log_odds if abs(log_odds) > 1e-6 else float(honest[a] + honest[b]) / 2
        smoothing = None
        if self.pipeline._fitted().smoothing is not None:
            smoothing = float(self.said[row, a] - self.said[row, b]) - difference
        voice = Voice(
            self.name, self.weight, float(self.said[row, a]), float(self.said[row, b]), log_odds, usual + moved, parts,
            abs(raw - usual - sum(part.contribution for part in parts)), smoothing,
        )  # fmt: skip
        return voice, features, nodes, scale

    def _over_hops(self, at: int, place: int, a: int, b: int) -> tuple[list[Any], float, float, dict[Place, float]]:
        """Blocks with the contributions, values and means of their columns; log-odds of the mean, of the node; nodes."""
        row = self.task.matrix(np.array([place]))[0]
        adds, slope, usual, raw = _contributions(self.head, row, self.mean, a, b)
        scales, reach = self.pipeline._fitted().scales, self.reach(at)
        by_block, nodes, end = [], dict[Place, float](), 0
        hops = [*self.task.hops, *self.task.label_hops]
        for k, (block, hop) in enumerate(zip(self.blocks, hops, strict=True)):
            part = slice(end, end := end + hop.shape[1])
            scale = scales[k] if k < len(scales) else None
            shown = row[part] if scale is None else row[part] * scale.scale + scale.mean
            by_block.append((block, adds[part], shown, self.mean[part] if scale is None else scale.mean))
            if not block.path:
                continue
            index, weight = reach.nodes(block)
            off = redone(hop, self._values(block, reach, index), np.full(len(index), place)) - self.mean[part]
            if slope is not None:
                each = weight * (off @ slope[part])
            else:
                share = weight[:, None] * np.maximum(off * np.sign(row[part] - self.mean[part]), 0)
                share = np.where(share.sum(0) > 0, share, weight[:, None])
                each = share / np.maximum(share.sum(0), 1e-300) @ adds[part]
            for u, value in zip(index.tolist(), each.tolist(), strict=True):
                nodes[block.kind, u] = nodes.get((block.kind, u), 0.0) + value
        return by_block, usual, raw, nodes

    def _over_graph(self, at: int, place: int, a: int, b: int) -> tuple[list[Any], float, float, dict[Place, float]]:
        """The same for a network that walks the graph: contributions of the features of all nodes, by distance."""
        assert isinstance(self.head, NetworkHead)
        assert self.head.model is not None
        x, total, ends = self.task.x, torch.zeros_like(self.task.x), []
        model = self.head.model.to(x.device)
        for step in (0.0, *((k + 0.5) / STEPS for k in range(STEPS)), 1.0):
            moved = (step * x).requires_grad_()
            said = model(moved, self.task.propagation)[at]
            if step in (0.0, 1.0):
                ends.append(float((said[a] - said[b]).detach()))
            else:
                total += torch.autograd.grad(said[a] - said[b], moved)[0] / STEPS
        adds, scale = (total * x).double().numpy(), self.pipeline._fitted().scales[0]
        left, by_block = np.ones(len(x), bool), []
        for block in self.blocks:
            index = np.flatnonzero(left) if block.path is None else self.reach(at).nodes(block)[0]
            index = index[left[index]]
            left[index] = False
            values = adds[index].sum(0)
            if len(index) and (block.path is not None or values.any()):
                by_block.append((block, values, x[index].numpy().mean(0) * scale.scale + scale.mean, scale.mean))
        each = adds.sum(1)
        each[at] = 0.0
        kind = self.inputs.graph.target
        near = [u for block in self.blocks if block.path for u in self.reach(at).nodes(block)[0].tolist()]
        return by_block, *ends, {(kind, u): float(each[u]) for u in near if each[u]}  # type: ignore[return-value]

    def _values(self, block: Block, reach: Reach, index: np.ndarray) -> np.ndarray:
        """What the nodes reached bring: their features, or their label as a row of zeros with a one."""
        if block.labels:
            return (reach.label[index, None] == np.arange(self.head.shape.num_labels)).astype(np.float32)
        return np.asarray(self.inputs.graph.nodes[block.kind].x[index], np.float32)  # type: ignore[index]

    def _names(self, block: Block, width: int) -> list[str]:
        view, schema = self.inputs.view, self.pipeline._fitted().schema
        if block.labels:
            return [str(name) for name in schema.label_names or range(width)]
        if block.name == "degrees" or (block.path is not None and view.nodes[block.kind].x is None):
            return [
                f"log(1 + edges {('out', 'in')[row]}{' to known labels' if known else ''}), {'-'.join(triple)}"
                for known in (False, True)
                for triple, row in degree_columns(view, known)
            ][:width]
        encoder = schema.encoders.get(block.kind)
        named = encoder is not None and not encoder.is_of_matrix and block.path is not None
        return encoder.outputs if named and encoder is not None else [f"feature {k}" for k in range(width)]

    # -- changes ---------------------------------------------------------------------------------------------

    def changed(self, at: int, row: int, *, without: Place | None = None, plain: bool = False) -> np.ndarray:
        """Probabilities [num_labels] if a node had no edges, or all edges plain weights; what smoothing adds stays."""
        place = int(np.searchsorted(self.pipeline._rows(self.inputs), at))
        before = self.head.honest(self.task, np.array([place]))[0]
        if isinstance(self.task, GraphTask):
            operator = _changed_operator(self.task.propagation.operator, without, plain)
            after = self.head.honest(GraphTask(self.task.x, Propagation(operator)), np.array([at]))[0]
        else:
            after = self.head.honest(self._changed_rows(at, place, without, plain), np.array([0]))[0]
        out = np.maximum(self.said[row] - before + after.astype(np.float64), 0)
        return out / out.sum()

    def _changed_rows(self, at: int, place: int, without: Place | None, plain: bool) -> HopTask:
        reach, rows, here = self.reach(at, plain), [], np.array([place])
        hops = [*self.task.hops, *self.task.label_hops]
        for block, hop in zip(self.blocks, hops, strict=True):
            if block.name == "degrees" and without is not None:
                values = self.inputs.degrees_without(at, self.cutoff, without)
                rows.append(redone(hop, values[None], here))
            elif not block.path:
                rows.append(hop[here])
            else:
                index, weight = reach.nodes(block, without)
                values = weight @ self._values(block, reach, index)
                rows.append(redone(hop, values[None].astype(np.float32), here))
        count = len(self.task.hops)
        made = [torch.as_tensor(np.asarray(values), dtype=torch.float32) for values in rows]
        return HopTask(made[:count], made[count:])


def _contributions(
    head: Head, row: np.ndarray, mean: np.ndarray, a: int, b: int
) -> tuple[np.ndarray, np.ndarray | None, float, float]:
    """What the columns of a row add to its log-odds of class a against b, by which slope, and log-odds of mean and row."""
    if isinstance(head, TreesHead):
        assert head.booster is not None
        shapley = np.asarray(head.booster.predict(row[None], pred_contrib=True)).reshape(head.shape.num_labels, -1)
        raw = np.asarray(head.booster.predict(row[None], raw_score=True))[0]
        adds = shapley[a] - shapley[b]
        return adds[:-1], None, float(adds[-1]), float(raw[a] - raw[b])
    if not isinstance(head, NetworkHead):  # shares of the classes, whatever the row
        said = head.probabilities(HopTask([row[None]]), np.array([0]))[0].astype(np.float64)
        odds = float(np.log(np.maximum(said[a], 1e-12) / np.maximum(said[b], 1e-12)))
        return np.zeros(len(row)), np.zeros(len(row)), odds, odds
    assert head.model is not None
    device = next(head.model.parameters()).device
    steps = np.concatenate([[0.0], (np.arange(STEPS) + 0.5) / STEPS, [1.0]])
    line = torch.tensor(mean + steps[:, None] * (row - mean), dtype=torch.float32, device=device, requires_grad=True)
    widths = head.shape.hops, head.shape.label_hops
    split = list(line.split([*widths[0], *widths[1]], dim=1))
    said = head.model(split[: len(widths[0])], split[len(widths[0]) :])
    odds = said[:, a] - said[:, b]
    slope = torch.autograd.grad(odds.sum(), line)[0][1:-1].double().mean(0).cpu().numpy()
    return slope * (row - mean), slope, float(odds[0].detach()), float(odds[-1].detach())


def _changed_operator(operator: Operator, without: Place | None, plain: bool) -> Operator:
    """The operation with plain weights, or with weights of zero for the edges of a node."""
    csr, table = operator.csr, np.ones_like(operator.table) if plain else operator.table
    if without is not None:
        weight = np.ones(csr.num_edges, np.float32) if csr.weight is None else csr.weight.astype(np.float32)
        weight[csr.indices == without[1]] = 0
        weight[csr.indptr[without[1]] : csr.indptr[without[1] + 1]] = 0
        csr = replace(csr, weight=weight)
    return replace(operator, csr=csr, table=table)
