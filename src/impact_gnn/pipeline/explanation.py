"""`NodeExplanation`: why a node was given its label, in plain values and in the user's own words.

Contributions speak for the label against the runner-up. Those of the whole model are differences of
probability: with what is said of an average node, what smoothing adds and what calibration adds,
the parts sum to the difference between the two probabilities. Those of a member are differences of
raw scores (log-odds).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from impact_gnn.checks import InputError, listing
from impact_gnn.data.given import GraphLike, as_temporal_graph
from impact_gnn.data.pyg import to_pyg
from impact_gnn.graph import TemporalGraph

WIDTH = 80  # columns of a terminal
OWN, DEGREES = "own features", "degrees"


@dataclass(frozen=True)
class Part:
    """What one kind of input, or one step after the model, adds."""

    name: str
    contribution: float


@dataclass(frozen=True)
class Feature:
    """A column of an input: its value here, as the heaviest member reads it, and its mean over the labelled nodes."""

    part: str
    name: str
    value: float
    usual: float
    contribution: float


@dataclass(frozen=True)
class Neighbour:
    """A node whose features or label were heard.

    `weight` is its part of the message by which it is heard first, after `steps` edges, and
    `plain_weight` what that would be without time weights (None where the method has none).
    `without` is the probability of the label if it had no edges; None where that was not computed.
    """

    id: str
    kind: str
    period: str | None
    label: str | None
    steps: int
    weight: float
    plain_weight: float | None
    contribution: float
    without: float | None


@dataclass(frozen=True)
class Voice:
    """What a member of the ensemble said, before calibration, and why.

    The log-odds of the label against the runner-up are `usual` (of an average node) + `parts` (and,
    for networks, up to `error`, what the integral along the line from the average node leaves out).
    `smoothing` is what smoothing added to the difference of the two probabilities.
    """

    name: str
    share: float
    probability: float
    runner_up_probability: float
    log_odds: float
    usual: float
    parts: list[Part]
    error: float
    smoothing: float | None


@dataclass(frozen=True)
class NodeExplanation:
    """Why `id` was given `label` and not `runner_up`; see the module. `plain` is the probability with plain weights."""

    id: str
    kind: str
    period: str
    cutoff: str
    label: str
    probability: float
    runner_up: str
    runner_up_probability: float
    voices: list[Voice]
    parts: list[Part]
    features: list[Feature]
    neighbours: list[Neighbour]
    plain: float | None
    notes: list[str]

    def __str__(self) -> str:
        first = f"{self.label} {self.probability:.2f}, then {self.runner_up} {self.runner_up_probability:.2f}"
        tables: list[list[tuple[str, ...]]] = []
        if len(self.voices) > 1:
            said = [
                (f"{one.probability:.2f} to {one.runner_up_probability:.2f}", one)
                for one in self.voices
            ]
            tables.append([("Before calibration", f"{self.label} to {self.runner_up}")])
            tables[0] += [(f"{one.share:.0%} {one.name}", numbers) for numbers, one in said]
        together = Part("together", self.probability - self.runner_up_probability)
        parts = [(one.name, f"{one.contribution:+.3f}") for one in (*self.parts, together)]
        tables.append([("For " + self.label, "adds"), *parts])
        tables.append(
            [("Feature", "in", "value", "usually", "adds"), *map(_feature, self.features)]
        )
        head = ("Neighbour", "period", "label", "steps", "weight", "adds", "without")
        tables.append([head, *map(self._neighbour, self.neighbours)])
        notes = (
            []
            if self.plain is None
            else [f"With plain weights: {self.probability:.2f} -> {self.plain:.2f}"]
        )
        body = ["\n".join(_columns(table)) for table in tables if len(table) > 1]
        return "\n\n".join([f"{self.id} ({self.period}): {first}", *body, *notes, *self.notes])

    def _neighbour(self, one: Neighbour) -> tuple[str, ...]:
        name = one.id if one.kind == self.kind else f"{one.kind} {one.id}"
        name = "(itself)" if (one.id, one.kind) == (self.id, self.kind) else name
        weight = f"{one.weight:.3f}" + (
            "" if one.plain_weight is None else f" ({one.plain_weight:.3f})"
        )
        without = "" if one.without is None else f"-> {one.without:.2f}"
        return (
            name,
            one.period or "",
            one.label or "",
            str(one.steps),
            weight,
            f"{one.contribution:+.3f}",
            without,
        )

    def to_pyg(self, graph: GraphLike) -> Any:
        """A `torch_geometric.explain.Explanation` (`HeteroExplanation`) of the graph with masks of contributions.

        `node_mask` [N, 1] holds those of the strongest neighbours, and of its own features for the
        node itself; `edge_mask` [E] of an edge between such nodes that of the end further off, else
        0. Its `get_explanation_subgraph()` is what speaks for the label.
        """
        from torch_geometric.explain import Explanation, HeteroExplanation

        graph = as_temporal_graph(graph)
        out: Any = (HeteroExplanation if graph.is_hetero else Explanation).from_dict(
            to_pyg(graph).to_dict()
        )
        steps = {kind: np.full(part.num_nodes, -1) for kind, part in graph.nodes.items()}
        adds = {kind: np.zeros(part.num_nodes, np.float32) for kind, part in graph.nodes.items()}
        own = sum(part.contribution for part in self.parts if part.name == OWN)
        near = [(one.kind, one.id, one.steps, one.contribution) for one in self.neighbours]
        for kind, name, distance, value in [*near, (self.kind, self.id, 0, own)]:
            at = position(graph, name, kind)
            steps[kind][at], adds[kind][at] = distance, value
        for kind, values in adds.items():
            (out[kind] if graph.is_hetero else out).node_mask = torch.from_numpy(values[:, None])
        for (a, name, b), relation in graph.relations.items():
            u, v = relation.edge_index
            mask = np.where(steps[a][u] > steps[b][v], adds[a][u], adds[b][v])
            mask[(steps[a][u] < 0) | (steps[b][v] < 0) | (steps[a][u] == steps[b][v])] = 0
            (out[a, name, b] if graph.is_hetero else out).edge_mask = torch.from_numpy(mask)
        return out


def position(graph: TemporalGraph, node: Any, kind: str | None = None) -> int:
    """Where the node of this id is among those of its type, by default the target type."""
    kind = graph.target if kind is None else kind
    part = graph.nodes[kind]
    ids = np.arange(part.num_nodes) if part.ids is None else part.ids
    number = ids.dtype.kind in "iu" and str(node).lstrip("-").isdigit()
    found = np.flatnonzero(ids == int(node) if number else ids.astype(str) == str(node))
    if not len(found):
        such = f"ids of {part.num_nodes:,} nodes are such as {listing(ids[:3].tolist())}"
        raise InputError(f"there is no {kind} with the id {str(node)!r}; {such}.")
    return int(found[0])


def _feature(one: Feature) -> tuple[str, ...]:
    return one.name, one.part, f"{one.value:.4g}", f"{one.usual:.4g}", f"{one.contribution:+.3f}"


def _columns(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Rows as aligned columns, numbers to the right; the widest are cut until they fit into a terminal."""
    sizes = [max(map(len, column)) for column in zip(*rows, strict=True)]
    while 2 * len(sizes) + sum(sizes) > WIDTH and max(sizes) > 8:
        sizes[sizes.index(max(sizes))] -= 1
    right = [name in ("value", "usually", "adds", "steps", "weight", "without") for name in rows[0]]
    cut = [
        [
            text if len(text) <= n else f"{text[: n - 1]}…"
            for text, n in zip(row, sizes, strict=True)
        ]
        for row in rows
    ]
    cells = [
        [
            t.rjust(n) if to_right else t.ljust(n)
            for t, n, to_right in zip(row, sizes, right, strict=True)
        ]
        for row in cut
    ]
    return ["  " + "  ".join(row).rstrip() for row in cells]
