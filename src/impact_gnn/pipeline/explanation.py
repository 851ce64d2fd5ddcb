"""`NodeExplanation`: why a node was given its label, in plain values and in the user's own words.

Contributions speak for the label against the runner-up. Those of the whole model are differences of probability: with
what is said of an average node, what smoothing adds and what calibration adds, the parts sum to the difference between
the two probabilities. Those of a member are differences of raw scores (log-odds).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from impact_gnn.checks import InputError, listing
from impact_gnn.graph import TemporalGraph

WIDTH = 80  # columns of a terminal


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

    `weight` is its part of the message by which it is heard first, after `steps` edges, and `plain_weight` what that
    would be without time weights (None where the method has none). `without` is the probability of the label if it had
    no edges; None where that was not computed.
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

    The log-odds of the label against the runner-up are `usual` (of an average node) + `parts` (and, for networks, up
    to `error`, what the integral along the line from the average node leaves out). `smoothing` is what smoothing added
    to the difference of the two probabilities.
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
        against = f"{self.label} {self.probability:.2f}, then {self.runner_up} {self.runner_up_probability:.2f}"
        lines = [f"{self.id} ({self.period}): {against}"]
        if len(self.voices) > 1:
            said = [
                (f"{one.share:.0%} {one.name}", f"{one.probability:.2f} to {one.runner_up_probability:.2f}")
                for one in self.voices
            ]
            lines += ["", "What each model said, before calibration", *_columns(said)]
        difference = self.probability - self.runner_up_probability
        lines += ["", f"For {self.label}, against {self.runner_up}, in probability"]
        parts = [(one.name, f"{one.contribution:+.3f}") for one in self.parts]
        lines += _columns([*parts, ("together", f"{difference:+.3f}")])
        if self.features:
            rows = [
                (one.name, one.part, f"{one.value:.4g}", f"{one.usual:.4g}", f"{one.contribution:+.3f}")
                for one in self.features
            ]
            lines += ["", *_columns([("Strongest features", "in", "value", "usually", "adds"), *rows], texts=2)]
        if self.neighbours:
            head = ("Strongest neighbours", "period", "label", "steps", "weight", "adds", "without")
            lines += ["", *_columns([head, *map(self._row, self.neighbours)], texts=3)]
        if self.plain is not None:
            lines += ["", f"With plain weights: {self.probability:.2f} -> {self.plain:.2f}"]
        return "\n".join([*lines, *([""] if self.notes else []), *(f"note: {note}" for note in self.notes)])

    def _row(self, one: Neighbour) -> tuple[str, ...]:
        name = one.id if one.kind == self.kind else f"{one.kind} {one.id}"
        name = "(itself)" if (one.id, one.kind) == (self.id, self.kind) else name
        plain = "" if one.plain_weight is None else f" ({one.plain_weight:.3f})"
        without = "" if one.without is None else f"-> {one.without:.2f}"
        weight = f"{one.weight:.3f}{plain}"
        return name, one.period or "", one.label or "", str(one.steps), weight, f"{one.contribution:+.3f}", without

    def to_pyg(self, graph: TemporalGraph) -> Any:
        """A `torch_geometric.explain.Explanation` (`HeteroExplanation`) of the node and its strongest neighbours.

        `node_mask` [n, 1] holds contributions, the node's own features' for itself; `edge_mask` that of the end of an
        edge which is further off, 0 between ends at the same distance. `node_id` are positions in `graph`, whose edges
        among these nodes it has; the node itself is the first of its type.
        """
        import torch
        from torch_geometric.explain import Explanation, HeteroExplanation

        own = sum(part.contribution for part in self.parts if part.name == OWN)
        steps: dict[str, dict[int, tuple[int, float]]] = {kind: {} for kind in graph.nodes}
        steps[self.kind][position(graph, self.id, self.kind)] = 0, own
        for one in self.neighbours:
            steps[one.kind].setdefault(position(graph, one.id, one.kind), (one.steps, one.contribution))
        out = HeteroExplanation() if graph.is_hetero else Explanation()
        for kind, found in steps.items():
            store = out[kind] if graph.is_hetero else out
            index, part = np.array(list(found), np.int64), graph.nodes[kind]
            store.num_nodes, store.node_id = len(index), torch.from_numpy(index)
            store.node_mask = torch.tensor([[value] for _, value in found.values()]).reshape(-1, 1)
            if part.x is not None:
                store.x = torch.from_numpy(np.array(part.x[index], np.float32))
        for triple, relation in graph.relations.items():
            ends = [list(steps[kind]) for kind in (triple[0], triple[2])]
            inside = [np.isin(relation.edge_index[k], ends[k]) for k in range(2)]
            edges = relation.edge_index[:, inside[0] & inside[1]].T.tolist()
            met = [(steps[triple[0]][u], steps[triple[2]][v]) for u, v in edges]
            store = out[triple] if graph.is_hetero else out
            places = [[ends[k].index(edge[k]) for edge in edges] for k in range(2)]
            store.edge_index = torch.tensor(places, dtype=torch.int64)
            store.edge_mask = torch.tensor([0.0 if a[0] == b[0] else max(a, b)[1] for a, b in met])
        return out


OWN = "own features"


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


def _columns(rows: Sequence[tuple[str, ...]], texts: int = 1) -> list[str]:
    """Rows as aligned columns, the first `texts` of them to the left; what is too wide for a terminal is cut there."""
    sizes = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    while 2 * len(sizes) + sum(sizes) > WIDTH and max(sizes[:texts]) > 8:
        sizes[sizes.index(max(sizes[:texts]))] -= 1
    cut = [
        [text if len(text) <= size else f"{text[: size - 1]}…" for text, size in zip(row, sizes, strict=True)]
        for row in rows
    ]
    return [
        "  "
        + "  ".join(t.ljust(s) if k < texts else t.rjust(s) for k, (t, s) in enumerate(zip(row, sizes, strict=True)))
        for row in cut
    ]
