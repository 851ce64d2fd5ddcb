"""How far messages of the past lie from those of the targets, before and after each correction.

The past is what a model is trained on: labelled nodes, by period. The targets are all nodes at or
after the cutoff, taken together; none of their labels is used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np

from impact_gnn import alignment, bounds
from impact_gnn._array import group_moments
from impact_gnn.diagnostics.assumption import listed
from impact_gnn.diagnostics.view import View, some
from impact_gnn.engines import Engine, or_memory
from impact_gnn.graph import TemporalGraph, Triple

WEIGHTINGS = ("mmp", "pmp", "genpmp")
MAX_COLUMNS = 64  # of the features
MAX_NODES = 1 << 18  # whose messages alignments are computed from
MAX_PERIODS = 40  # the last ones
PER_PERIOD = 400  # nodes of a period to measure
MAX_TARGETS = 2000  # targets to measure
MAX_CLASSES = 8  # classes to compare over time
PER_CLASS = 100  # nodes of a class on either side whose risks are compared


@dataclass(frozen=True)
class ClassDistance:
    """W1 between messages of a class and of its last labelled period, and bounds by theorems."""

    measured: float
    mean_gap: float
    equal_means: float
    theorem_4_3: float
    trivial: float


@dataclass(frozen=True)
class Distances:
    """Of one kind of messages, in the targets' standard deviation."""

    mean: list[float]  # distance of the means, by period
    second: list[float]  # Bures distance of the covariances, by period
    sliced: list[float]  # sliced W1, by period
    overall: float  # mean of sliced W1 over periods, noise taken out, weighted by nodes
    # share of the variance of labelled messages between classes, chance taken out
    separation: float | None
    # classes at different times; None where there is one labelled period
    classes: ClassDistance | None


@dataclass(frozen=True)
class Risk:
    """Loss of a linear head on the last labelled period; see `bounds.risk_bound`."""

    gap: float  # how much higher it is there
    mix: float  # what the changed shares of the classes add
    bound: float  # what they, and the shift of messages within classes, can add at most

    def __str__(self) -> str:
        holds = "holds" if self.gap <= self.bound + 1e-9 else "does not hold"
        moved = f"bound {self.bound:.3f}, {self.mix:.3f} of it by the label mix"
        return f"risk gap on the last labelled period {self.gap:.3f}, {moved} ({holds})"


@dataclass(frozen=True, repr=False)
class MessageShift:
    """Distances to the targets' messages, by correction."""

    path: str  # what the messages are, in words
    times: list[int]  # periods with labelled nodes, the last ones if there are many
    count: list[int]  # labelled nodes of every period
    # share of nodes without a message: in every period, and last among the targets
    silent: list[float]
    # sliced W1 that the targets would have to a sample of themselves of each period's size
    noise: list[float]
    methods: dict[str, Distances]  # weightings, and alignments of plain messages
    risk: Risk | None = None  # of plain messages; None where there is one labelled period

    def average(self, values: list[float]) -> float:
        """Mean over periods, weighted by their nodes."""
        return float(np.average(values, weights=self.count))

    def __str__(self) -> str:
        lines = [
            f"{'':14}{'sliced W1':>10}{'mean':>8}{'spread':>8}"
            f"{'separation':>12}{'class W1':>10}{'Thm 4.3':>9}"
        ]
        for name, method in self.methods.items():
            separation = "" if method.separation is None else f"{method.separation:.3f}"
            within = ""
            if method.classes is not None:
                within = f"{method.classes.measured:>10.3f}{method.classes.theorem_4_3:>9.3f}"
            moments = f"{self.average(method.mean):>8.3f}{self.average(method.second):>8.3f}"
            row = f"{name:14}{method.overall:>10.3f}{moments}{separation:>12}{within}"
            lines.append(row.rstrip())
        if self.risk is not None:
            lines.append(str(self.risk))
        return "\n".join(lines)


def message_shift(
    view: View, *, hops: int = 1, seed: int = 0, engine: Engine | None = None
) -> MessageShift | None:
    """Distances of every labelled period's messages to the targets', for every correction.

    Where no relation joins target nodes with each other, messages go to another type and back, and
    time weights, which need a time at both ends, are left out. None where there are no messages or
    no features.
    """
    if not view.num_features:
        return None
    engine = or_memory(engine)
    graph = engine.graph(view.masked, undirected=True) if view.own is None else view.own
    path = tuple(graph.relations) if view.own is not None else _there_and_back(graph)
    if path is None:
        return None
    rng = np.random.default_rng(seed)
    assert view.masked.x is not None
    step = -(-view.num_features // MAX_COLUMNS)
    # every so many columns: a view, also of a file
    x = view.masked.x[:, int(rng.integers(step)) :: step]
    sample = Sample.of(view, rng)
    weightings, repeats = (WEIGHTINGS, hops) if view.own is not None else ((), 1)
    dtype = np.float32 if x.dtype.itemsize < 4 else x.dtype  # alignments refuse half precision

    def messages(weighting: str, nodes: np.ndarray) -> np.ndarray:
        """Of some nodes; the last hop need not be computed for others."""
        steps = [engine.operator(graph, triple, weighting=weighting) for triple in path]
        return np.asarray(engine.hops(steps * repeats, x, rows=nodes, dtype=dtype)[-1])

    nodes = np.union1d(sample.rows, some(view.masked.num_nodes, MAX_NODES, rng))
    message, place = messages("plain", nodes), np.searchsorted(nodes, sample.rows)
    time, target = view.masked.time[nodes], view.masked.targets()[nodes]
    aligned: dict[str, Callable[[], np.ndarray]] = {
        "center": lambda: alignment.center(message, time),
        "standardize": lambda: alignment.standardize(message, time),
        "jjnorm": lambda: alignment.jjnorm(message, view.label[nodes], time, target=target),
    }
    noise = sample.noise(message[place], seed, rng)
    methods = {"plain": sample.measure(message[place], noise, seed)}
    methods |= {
        name: sample.measure(messages(name, sample.rows), noise, seed) for name in weightings
    }
    methods |= {
        name: sample.measure(align()[place], noise, seed) for name, align in aligned.items()
    }
    silent = 1 - np.bincount(sample.group, message[place].any(1)) / np.bincount(sample.group)
    words = f"messages from {path[0][0]} to {path[0][2]} and back"
    if len(path) == 1:
        words = f"messages of {hops} hop{'s' if hops > 1 else ''}, edges in both directions"
    times = listed(view.masked.times[view.known[-MAX_PERIODS:]])
    return MessageShift(
        path=words,
        times=times,
        count=listed(sample.count),
        silent=listed(silent),
        noise=listed(noise),
        methods=methods,
        risk=sample.risk(message[place], seed),
    )


@dataclass(frozen=True, eq=False)
class Sample:
    """The nodes to measure: some of every labelled period and, as the last group, of the targets."""

    rows: np.ndarray
    group: np.ndarray
    label: np.ndarray
    count: np.ndarray

    @classmethod
    def of(cls, view: View, rng: np.random.Generator) -> Sample:
        labelled = np.flatnonzero(view.label >= 0)
        period = view.masked.period[labelled]
        everyone = [labelled[period == t] for t in view.known[-MAX_PERIODS:]]
        parts = [some(part, PER_PERIOD, rng) for part in everyone]
        parts.append(some(np.flatnonzero(view.masked.targets()), MAX_TARGETS, rng))
        rows = np.concatenate(parts)
        group = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        return cls(rows, group, view.label[rows], np.array([len(part) for part in everyone]))

    @property
    def last(self) -> int:
        return len(self.count)

    def measure(self, message: np.ndarray, noise: np.ndarray, seed: int) -> Distances:
        """Distances of the sampled messages of one kind, in units of the targets' standard deviation."""
        values = self._scaled(message)
        apart = bounds.shift(values, self.group, num_slices=32, seed=seed)
        # Distances of the means and covariances are sums over the columns; W1 is not.
        root = np.sqrt(values.shape[1])
        sliced = listed(apart.sliced[: self.last])
        square = np.average(np.maximum(np.array(sliced) ** 2 - noise**2, 0), weights=self.count)
        return Distances(
            mean=listed((apart.mean / root)[: self.last]),
            second=listed((apart.second / root)[: self.last]),
            sliced=sliced,
            overall=float(np.sqrt(square)),
            separation=self._separation(values),
            classes=self._classes(values, seed),
        )

    def noise(self, message: np.ndarray, seed: int, rng: np.random.Generator) -> np.ndarray:
        """Sliced W1 between the targets and samples of them as large as those of the periods."""
        mine = self._scaled(message)[self.group == self.last]
        sizes = np.bincount(self.group)[:-1]
        distinct = np.unique(sizes)
        drawn = [mine[rng.integers(0, len(mine), size)] for size in distinct]
        group = np.repeat(np.arange(len(distinct) + 1), [*distinct, len(mine)])
        apart = bounds.shift(np.concatenate([*drawn, mine]), group, num_slices=32, seed=seed)
        return apart.sliced[np.searchsorted(distinct, sizes)]

    def risk(self, message: np.ndarray, seed: int) -> Risk | None:
        """Risk of a head of the earlier labelled periods on the last one; no target is used."""
        sides = [self.group < self.last - 1, self.group == self.last - 1]
        if not np.isin(self.label[sides[1]], self.label[sides[0]]).any():
            return None
        (earlier, own), (later, other) = ((message[rows], self.label[rows]) for rows in sides)
        risk = bounds.risk_bound(earlier, own, later, other, most=PER_CLASS, seed=seed)
        return Risk(risk.gap, risk.mix, risk.bound)

    def _scaled(self, message: np.ndarray) -> np.ndarray:
        """Messages whose targets have variance 1 per column on average."""
        values = np.asarray(message, np.float64)
        unit = np.sqrt(values[self.group == self.last].var(0).mean())
        return values / (unit if unit > 0 else 1.0)

    def _separation(self, values: np.ndarray) -> float | None:
        labelled = self.group < self.last
        part, label = values[labelled], self.label[labelled]
        count, mean, squares = group_moments(part, label.astype(np.int32), int(label.max()) + 1)
        within = squares.sum() / max(len(part) - np.count_nonzero(count), 1)
        between = (count[:, None] * (mean - part.mean(0)) ** 2).sum() - (
            np.count_nonzero(count) - 1
        ) * within
        total = ((part - part.mean(0)) ** 2).sum() + within
        return float(max(between, 0.0) / total) if total > 0 else None

    def _classes(self, values: np.ndarray, seed: int) -> ClassDistance | None:
        """W1 of a class between its periods and its bounds, averaged over the largest classes."""
        size = np.bincount(self.label[self.group == self.last - 1])
        largest = np.argsort(-size, kind="stable")[:MAX_CLASSES]
        rows = (self.group < self.last) & np.isin(self.label, largest[size[largest] > 1])
        if self.last < 2 or not rows.any():
            return None
        compared = bounds.compare(
            values[rows], self.label[rows], self.group[rows], num_slices=8, seed=seed
        )
        nodes = Counter(zip(self.label[rows].tolist(), self.group[rows].tolist(), strict=True))
        weight = [nodes[one.label, one.time] for one in compared]
        if not sum(weight):
            return None
        table = [[getattr(one, field.name) for field in fields(ClassDistance)] for one in compared]
        return ClassDistance(*(float(mean) for mean in np.average(table, axis=0, weights=weight)))


def _there_and_back(graph: TemporalGraph) -> tuple[Triple, ...] | None:
    """Relations from the target type to another and back."""
    for into in graph.relations:
        back = [
            out
            for out in graph.relations
            if out[0] == graph.target == into[2] and out[2] == into[0]
        ]
        if into[0] != graph.target and back and graph.relations[into].num_edges:
            return (back[0], into)
    return None
