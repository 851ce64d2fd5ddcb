"""How far messages of the past lie from those of the targets, before and after each correction.

The past is what a model is trained on: labelled nodes, by period. The targets are all nodes at or after the cutoff,
taken together; no label of theirs is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from impact_gnn import alignment, bounds
from impact_gnn._array import group_moments
from impact_gnn.diagnostics.finding import plain
from impact_gnn.diagnostics.view import View
from impact_gnn.engines.memory import Memory
from impact_gnn.graph import Triple

WEIGHTINGS = ("plain", "mmp", "pmp", "genpmp")
ALIGNMENTS = ("center", "standardize", "jjnorm")
"""Alignments are measured on plain messages."""

MOST_VALUES, MOST_COLUMNS = 1 << 25, 64
"""Numbers and columns a matrix of messages may have; of wider features a random choice of columns is taken."""

MOST_PERIODS = 40
"""Periods that are measured: the last ones."""

PER_PERIOD, TARGETS, COMPARED = 400, 2000, 8
"""Nodes of a period and of the targets, and classes, that distances are measured on."""


@dataclass(frozen=True)
class MessageShift:
    """Distances to the targets' messages; the unit is the targets' standard deviation.

    Attributes:
        path: What the messages are, in words.
        times: Periods with labelled nodes, the last ones if there are many.
        count: Labelled nodes of every period.
        silent: Share of nodes without a message: in every period, and last among the targets.
        noise: Sliced W1 that the targets would have to a sample of themselves of each period's size.
        methods: Per method, by period: `mean`, `second` (Bures distance of covariances), `sliced` (sliced W1); over
            all periods: `overall` (mean of sliced W1, noise taken out, weighted by nodes), `separation` (share of
            the variance of labelled messages that lies between classes, chance taken out); and for classes against
            their last labelled period `classes`: measured W1, gap of means, and the bounds of the theorems.
    """

    path: str
    times: list[int]
    count: list[int]
    silent: list[float]
    noise: list[float]
    methods: Mapping[str, Mapping[str, Any]]

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return plain({name: getattr(self, name) for name in self.__dataclass_fields__})

    def __str__(self) -> str:
        lines = [f"{'':14}{'sliced W1':>10}{'mean':>8}{'spread':>8}{'separation':>12}{'class W1':>10}{'Thm 4.3':>9}"]
        for name, found in self.methods.items():
            parts = [found["overall"], _average(found["mean"], self.count), _average(found["second"], self.count)]
            theory = found["classes"] or {}
            lines.append(
                f"{name:14}{parts[0]:>10.3f}{parts[1]:>8.3f}{parts[2]:>8.3f}{_shown(found['separation']):>12}"
                f"{_shown(theory.get('measured')):>10}{_shown(theory.get('theorem_4_3')):>9}"
            )
        return "\n".join(lines)


def message_shift(view: View, *, hops: int = 1, seed: int = 0) -> MessageShift | None:
    """Mean, second moment and sliced W1 of every labelled period's messages to the targets', for every correction.

    Where no relation joins target nodes with each other, messages go to another type and back, and time weights,
    which need a time at both ends, are left out. None where there are no messages or no features.

    Args:
        view: What is looked at.
        hops: How often messages are passed on.
        seed: Seed of samples and directions.
    """
    path = _path(view)
    x = view.features
    if path is None or x is None:
        return None
    rng = np.random.default_rng(seed)
    most = min(MOST_COLUMNS, max(8, MOST_VALUES // len(x)))
    if x.shape[1] > most:
        x = x[:, np.sort(rng.choice(x.shape[1], most, replace=False))]
    sample = Sample.of(view, rng)
    found: dict[str, dict[str, Any]] = {}
    weightings, repeats = (WEIGHTINGS, hops) if view.own is not None else (("plain",), 1)
    graph = view.masked.undirected() if view.own is None else view.own
    x = np.ascontiguousarray(x, np.float32)
    for name in weightings:
        steps = [Memory().operator(graph, triple, weighting=name) for triple in path]
        message = np.asarray(Memory().hops(steps * repeats, x)[-1])
        found[name] = sample.measure(message, seed)
        if name == "plain":
            heard = np.asarray(message.any(1))
            noise = sample.noise(message, seed, rng)
            target = view.masked.targets()
            for other in ALIGNMENTS:
                if other == "jjnorm":
                    moved = alignment.jjnorm(message, view.label, view.masked.time, target=target)
                else:
                    moved = getattr(alignment, other)(message, view.masked.time)
                found[other] = sample.measure(moved, seed)
    count = sample.count
    for one in found.values():
        square = np.average(np.maximum(np.array(one["sliced"]) ** 2 - noise**2, 0), weights=count)
        one["overall"] = float(np.sqrt(square))
    ordered = {name: found[name] for name in (*weightings, *ALIGNMENTS)}
    silent = [float(1 - heard[rows].mean()) for rows in (*sample.everyone, sample.targets)]
    return MessageShift(
        path=_words(path, repeats),
        times=[int(t) for t in view.masked.times[view.known[-MOST_PERIODS:]]],
        count=[int(n) for n in count],
        silent=plain(silent),
        noise=plain(noise),
        methods=plain(ordered),
    )


@dataclass(frozen=True, eq=False)
class Sample:
    """Which nodes are measured: a few of every labelled period, and of the targets."""

    rows: np.ndarray
    group: np.ndarray
    label: np.ndarray
    everyone: list[np.ndarray]
    targets: np.ndarray

    @classmethod
    def of(cls, view: View, rng: np.random.Generator) -> Sample:
        """A random sample."""
        labelled = np.flatnonzero(view.label >= 0)
        period = view.masked.period[labelled]
        everyone = [labelled[period == t] for t in view.known[-MOST_PERIODS:]]
        targets = np.flatnonzero(view.masked.targets())
        parts = [_some(part, PER_PERIOD, rng) for part in everyone] + [_some(targets, TARGETS, rng)]
        rows = np.concatenate(parts)
        group = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        return cls(rows, group, view.label[rows], everyone, targets)

    @property
    def count(self) -> np.ndarray:
        """Labelled nodes of every period."""
        return np.array([len(part) for part in self.everyone])

    def measure(self, message: np.ndarray, seed: int) -> dict[str, Any]:
        """Distances of one kind of message, in units of the targets' standard deviation."""
        values = self._scaled(message)
        found = bounds.shift(values, self.group, num_slices=32, seed=seed)
        wide = np.sqrt(values.shape[1])
        past = slice(0, len(self.everyone))
        return {
            "mean": found.mean[past] / wide,
            "second": found.second[past] / wide,
            "sliced": found.sliced[past],
            "separation": self._separation(values),
            "classes": self._classes(values, seed),
        }

    def noise(self, message: np.ndarray, seed: int, rng: np.random.Generator) -> np.ndarray:
        """Sliced W1 between the targets and samples of them as large as those of the periods."""
        values = self._scaled(message)
        mine = values[self.group == len(self.everyone)]
        sizes = np.bincount(self.group)[:-1]
        distinct = np.unique(sizes)
        drawn = [mine[rng.integers(0, len(mine), size)] for size in distinct]
        group = np.repeat(np.arange(len(distinct) + 1), [*distinct, len(mine)])
        found = bounds.shift(np.concatenate([*drawn, mine]), group, num_slices=32, seed=seed)
        return found.sliced[np.searchsorted(distinct, sizes)]

    def _scaled(self, message: np.ndarray) -> np.ndarray:
        """The sampled messages; their targets have variance 1 per column on average."""
        values = message[self.rows].astype(np.float64)
        unit = np.sqrt(values[self.group == len(self.everyone)].var(0).mean())
        return values / (unit if unit > 0 else 1.0)

    def _separation(self, values: np.ndarray) -> float | None:
        labelled = self.group < len(self.everyone)
        part, label = values[labelled], self.label[labelled]
        count, mean, squares = group_moments(part, label.astype(np.int32), int(label.max()) + 1)
        within = squares.sum() / max(len(part) - np.count_nonzero(count), 1)
        between = (count[:, None] * (mean - part.mean(0)) ** 2).sum() - (np.count_nonzero(count) - 1) * within
        total = ((part - part.mean(0)) ** 2).sum() + within
        return float(max(between, 0.0) / total) if total > 0 else None

    def _classes(self, values: np.ndarray, seed: int) -> dict[str, float] | None:
        """Measured W1 of a class between its periods beside the bounds, averaged over the largest classes."""
        if len(self.everyone) < 2:
            return None
        last = (self.group == len(self.everyone) - 1).nonzero()[0]
        size = np.bincount(self.label[last])
        largest = np.argsort(-size, kind="stable")[:COMPARED]
        rows = (self.group < len(self.everyone)) & np.isin(self.label, largest[size[largest] > 1])
        if not rows.any():
            return None
        found = bounds.compare(
            values[rows], self.label[rows], self.group[rows], reference=len(self.everyone) - 1, num_slices=8, seed=seed
        )
        key = self.label[rows].astype(np.int64) * len(self.everyone) + self.group[rows]
        nodes = np.bincount(key, minlength=(int(self.label.max()) + 1) * len(self.everyone))
        weight = [nodes[row.label * len(self.everyone) + row.time] for row in found]
        if not sum(weight):
            return None
        names = ("measured", "mean_gap", "equal_means", "theorem_4_3", "trivial")
        return {name: float(np.average([getattr(row, name) for row in found], weights=weight)) for name in names}


def _path(view: View) -> tuple[Triple, ...] | None:
    """The relations that messages run along: among target nodes, or to another type and back."""
    if view.own is not None:
        return tuple(view.own.relations)
    graph = view.masked.undirected()
    for into in graph.relations:
        back = [out for out in graph.relations if out[0] == graph.target == into[2] and out[2] == into[0]]
        if into[0] != graph.target and back and graph.relations[into].num_edges:
            return (back[0], into)
    return None


def _words(path: tuple[Triple, ...], hops: int) -> str:
    if len(path) == 1:
        return f"messages of {hops} hop{'s' if hops > 1 else ''}, edges in both directions"
    return f"messages from {path[0][0]} to {path[0][2]} and back"


def _some(rows: np.ndarray, most: int, rng: np.random.Generator) -> np.ndarray:
    return rows if len(rows) <= most else np.sort(rng.choice(rows, most, replace=False))


def _average(values: list[float], count: list[int]) -> float:
    return float(np.average(values, weights=count))


def _shown(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
