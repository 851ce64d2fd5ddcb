"""Distance between messages of labelled nodes and of targets, before and after each correction.

Labelled nodes, by period, are the training set of a model. The targets are all nodes at or after
the cutoff together; none of their labels is used.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy import ndarray

from impact_gnn import alignment, bounds
from impact_gnn._array import group_moments, safe_divide
from impact_gnn.diagnostics.assumption import listed
from impact_gnn.diagnostics.view import NodeIndex, View, sampled
from impact_gnn.propagation.metapaths import Metapath, Walk, along_ends, ends_table

WEIGHTINGS = ("mmp", "pmp", "genpmp")
MAX_COLUMNS = 64  # of the features
MAX_NODES = 1 << 18  # whose messages alignments are computed from
MAX_ENDS = 1 << 22  # nodes times periods: weights by the ends of paths take a hop per period
MAX_PERIODS = 40  # the last ones
PER_PERIOD = 400  # nodes of a period to measure
MAX_TARGETS = 2000  # targets to measure


@dataclass(frozen=True)
class Distances:
    """Distances of one kind of messages to the targets, in their standard deviation."""

    mean: list[float]  # distance of the means, by period
    second: list[float]  # Bures distance of the covariances, by period
    sliced: list[float]  # sliced W1, by period
    overall: float  # mean of sliced W1 over periods, less the noise, weighted by nodes
    # share of the variance of labelled messages between classes, less the noise
    separation: float | None


@dataclass(frozen=True, repr=False)
class MessageShift:
    """Distances to the targets' messages, by correction."""

    path: str  # description of the messages
    times: list[int]  # periods with labelled nodes, the last ones if there are many
    count: list[int]  # labelled nodes of every period
    # share of nodes without a message: in every period, and last among the targets
    silent: list[float]
    # sliced W1 that the targets would have to a sample of themselves of each period's size
    noise: list[float]
    methods: dict[str, Distances]  # weightings, and alignments of plain messages

    def average(self, values: list[float]) -> float:
        """Mean over periods, weighted by their nodes."""
        return float(np.average(values, weights=self.count))

    def __str__(self) -> str:
        lines = [f"{'':14}{'sliced W1':>10}{'mean':>8}{'covar.':>8}{'separation':>12}"]
        for name, method in self.methods.items():
            separation = "" if method.separation is None else f"{method.separation:.3f}"
            moments = f"{self.average(method.mean):>8.3f}{self.average(method.second):>8.3f}"
            row = f"{name:14}{method.overall:>10.3f}{moments}{separation:>12}"
            lines.append(row.rstrip())
        return "\n".join(lines)


def message_shift(view: View, *, hops: int = 1) -> MessageShift | None:
    """Distances of every labelled period's messages to the targets', for every correction.

    Where no relation joins target nodes with each other, messages follow the first path through
    entities, and time weights depend on its two ends; they are left out on large graphs. None where
    there are no messages or no features.
    """
    if not view.num_features or (view.own is None and not view.paths):
        return None
    if view.own is not None:
        graph = view.own
        # One relation, followed `hops` times.
        path: Metapath = tuple(graph.relations) * hops
        description = f"messages of {hops} hop{'s' if hops > 1 else ''}, edges in both directions"
    else:
        graph = view.engine.graph(view.masked, undirected=True)
        # From target nodes to entities and back.
        path = view.paths[0].triples
        description = f"messages along {view.paths[0].name}"
    rng = np.random.default_rng(view.seed)
    assert view.masked.x is not None
    # Every step-th column, from a random one on: a view, also of a file.
    step = -(-view.num_features // MAX_COLUMNS)
    first = int(rng.integers(step))
    x = view.masked.x[:, first::step]
    sample = Sample.of(view, rng)
    dtype = np.float32 if x.dtype.itemsize < 4 else x.dtype  # alignments refuse half precision

    def messages(weighting: str, nodes: NodeIndex) -> ndarray:
        """Messages of some nodes; the last hop is not computed for others."""
        if view.own is None and weighting != "plain":
            # Weights depend on both ends of a path, so its hops are plain.
            walk = Walk(graph, [path], "plain", view.engine)
            by_ends, _ = along_ends(walk, ends_table(graph, weighting, graph.target), x)
            return np.asarray(by_ends[path].rows(nodes), dtype)
        walk = Walk(graph, [path], weighting, view.engine)
        by_edges = dict(walk.hops(x, rows=nodes, dtype=dtype))
        return np.asarray(by_edges[path])

    # Alignments are computed on more nodes than are measured; `position` finds these among them.
    further = sampled(view.masked.num_nodes, MAX_NODES, rng)
    nodes: NodeIndex = np.union1d(sample.nodes, further)
    position = np.searchsorted(nodes, sample.nodes)
    message = messages("plain", nodes)
    time = view.masked.time[nodes]
    is_target = view.masked.targets()[nodes]
    measured = message[position]
    noise = sample.noise(measured, rng)
    methods = {"plain": sample.measure(measured, noise)}
    # On large graphs weights by both ends are skipped: they cost a hop per period.
    if view.own is not None or view.masked.num_nodes * len(graph.times) <= MAX_ENDS:
        for name in WEIGHTINGS:
            methods[name] = sample.measure(messages(name, sample.nodes), noise)
    centred = alignment.center(message, time)
    methods["center"] = sample.measure(centred[position], noise)
    standardized = alignment.standardize(message, time)
    methods["standardize"] = sample.measure(standardized[position], noise)
    scaled = alignment.jjnorm(message, view.label[nodes], time, target=is_target)
    methods["jjnorm"] = sample.measure(scaled[position], noise)
    # Rows that are not all zero, and all rows, by group [G + 1]; the last are the targets.
    num_messages = np.bincount(sample.group, measured.any(1))
    num_nodes = np.bincount(sample.group)
    return MessageShift(
        path=description,
        times=listed(view.masked.times[view.labelled_periods[-MAX_PERIODS:]]),
        count=listed(sample.count),
        silent=listed(1 - num_messages / num_nodes),
        noise=listed(noise),
        methods=methods,
    )


@dataclass(frozen=True, eq=False)
class Sample:
    """The n measured nodes: samples of G labelled periods, and as last group of the targets."""

    nodes: NodeIndex  # [n]
    group: ndarray  # 0 to G − 1 for labelled periods, G for the targets [n]
    label: ndarray  # [n]
    count: ndarray  # all labelled nodes of every period, sampled or not [G]
    seed: int

    @classmethod
    def of(cls, view: View, rng: np.random.Generator) -> Sample:
        labelled = np.flatnonzero(view.label >= 0)
        period = view.masked.period[labelled]
        # Only the most recent labelled periods.
        by_period = [labelled[period == t] for t in view.labelled_periods[-MAX_PERIODS:]]
        parts = [part[sampled(len(part), PER_PERIOD, rng)] for part in by_period]
        targets = np.flatnonzero(view.masked.targets())
        parts.append(targets[sampled(len(targets), MAX_TARGETS, rng)])
        nodes = np.concatenate(parts)
        sizes = list(map(len, parts))
        return cls(
            nodes=nodes,
            group=np.repeat(np.arange(len(parts)), sizes),
            label=view.label[nodes],
            count=np.array(list(map(len, by_period))),
            seed=view.seed,
        )

    @property
    def last(self) -> int:
        """The group of the targets."""
        return len(self.count)

    def measure(self, message: ndarray, noise: ndarray) -> Distances:
        """Distances of the sampled messages [n, f] to those of the targets."""
        values = self._scaled(message)
        distance = bounds.shift(values, self.group, num_slices=32, seed=self.seed)
        # Distances of the means and covariances are sums over the columns; W1 is not.
        root = np.sqrt(values.shape[1])
        sliced = listed(distance.sliced[: self.last])
        # Noise is subtracted from squares; periods weigh as much as they have labelled nodes.
        squares = np.maximum(np.array(sliced) ** 2 - noise**2, 0)
        square = np.average(squares, weights=self.count)
        return Distances(
            mean=listed((distance.mean / root)[: self.last]),
            second=listed((distance.second / root)[: self.last]),
            sliced=sliced,
            overall=float(np.sqrt(square)),
            separation=self._separation(values),
        )

    def noise(self, message: ndarray, rng: np.random.Generator) -> ndarray:
        """Sliced W1 between the targets and samples of them of the size of each period's [G]."""
        targets = self._scaled(message)[self.group == self.last]
        # Sampled nodes of every labelled period [G]; the last group are the targets.
        sizes = np.bincount(self.group)[:-1]
        # One sample per distinct size, the targets themselves last.
        distinct, position = np.unique(sizes, return_inverse=True)
        samples = [rng.choice(targets, size) for size in distinct]
        samples.append(targets)
        group = np.repeat(np.arange(len(samples)), list(map(len, samples)))
        values = np.concatenate(samples)
        distance = bounds.shift(values, group, num_slices=32, seed=self.seed)
        # From distinct sizes back to the periods.
        return distance.sliced[position]

    def _scaled(self, message: ndarray) -> ndarray:
        """Messages whose targets have variance 1 per column on average."""
        values = np.asarray(message, np.float64)
        targets = values[self.group == self.last]
        # One unit for all columns, so that their relative sizes stay.
        unit = np.sqrt(targets.var(0).mean())
        return safe_divide(values, unit, values)

    def _separation(self, values: ndarray) -> float | None:
        """Share of the variance between classes (ω² of a one-way analysis of variance)."""
        is_labelled = self.group < self.last
        part = values[is_labelled]
        label = self.label[is_labelled].astype(np.int32)
        count, mean, squares = group_moments(part, label, int(label.max()) + 1)
        num_classes = np.count_nonzero(count)
        # Mean square within classes.
        within = squares.sum() / max(len(part) - num_classes, 1)
        overall_mean = part.mean(0)
        # Σ n_y ‖mean_y − mean‖² less what chance adds.
        between = (count[:, None] * (mean - overall_mean) ** 2).sum()
        between -= (num_classes - 1) * within
        total = ((part - overall_mean) ** 2).sum() + within
        if total <= 0:
            return None
        return float(max(between, 0.0) / total)
