r"""Models of relative connectivity, fitted to counts of edges, and how much each explains.

Neighbours are counted by group: groups have a tenth of the cells of single labels, and a tenth of
the noise.

Models are products, fitted by maximum likelihood of Poisson counts: every factor in turn is set to
match its own margin.

| model | P(y, t, k, t̃) |
|---|---|
| `still` | f(y, t)·a(y, k): the same for all neighbours' times |
| `decay` | f(y, t)·a(y, k)·h(\|t̃−t\|): Assumption 4 |
| `separable` | f(y, t)·g(y, k, \|t̃−t\|): Assumption 3 |
| `sided` | f(y, t)·g(y, k, t̃−t): past and future may differ |
| `sized` | f(y, t)·g(y, k, \|t̃−t\|)·n(t̃): separable per node of the neighbours' time |
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy import ndarray

from impact_gnn._array import safe_divide
from impact_gnn.diagnostics.entity_paths import EntityPath, StatePairs
from impact_gnn.diagnostics.view import View

GROUPS = ("same label", "strongest other label", "other labels")
MAX_STEPS = 40  # of equal length, into which more periods are merged
MODELS = ("still", "decay", "separable", "sided", "sized")
ROUNDING = 1e-9  # of a weight; a node has a weight of 1 in all
REPLICATES = 40  # of the bootstrap
MAX_ROUNDS = 200  # of fitting
TOLERANCE = 1e-6  # relative change of a factor at which fitting ends


@dataclass(frozen=True, eq=False)
class PairCounts:
    """Neighbours of labelled nodes in periods that have labels, in both directions.

    Direct edges count 1 each, neighbours along a path with their weight in its mean.
    """

    steps: ndarray  # first time of every step [T]
    width: int  # of a step in time
    strongest: ndarray  # for every class the label met most often besides its own [Y]
    num_nodes: ndarray  # of every step, labelled or not [T]
    # Neighbours by class, group, own step and neighbour's step [Y, 3, T, T]; neighbours without a
    # label are distributed over the groups in the proportions of the others.
    counts: ndarray
    _pairs: StatePairs
    _cell: ndarray  # of every pair of states: its flat index in [Y, 4, T, T]

    @classmethod
    def of(cls, view: View, path: EntityPath | None = None) -> PairCounts | None:
        """Count along direct edges or a path; None where nothing joins two labelled nodes."""
        label = view.label
        # Many periods are merged into steps of `width`; `filled` are the steps with labels [T].
        time = view.masked.time
        known_times = view.masked.times[view.labelled_periods]
        first = int(known_times[0])
        last = int(known_times[-1])
        width = 1
        if len(known_times) > MAX_STEPS:
            # Rounded up, so that there are at most `MAX_STEPS` steps.
            width = -(-(last - first + 1) // MAX_STEPS)
        filled = np.unique((known_times - first) // width)
        size = len(filled)
        # Of every node: its position among the filled steps, and whether it lies in one [N].
        step = (time - first) // width
        # `clip` keeps times outside a valid position; `is_inside` sorts them out.
        position = np.searchsorted(filled, step).clip(0, size - 1)
        is_inside = (filled[position] == step) & (time <= last)
        # State of every node inside: its label, or Y for unknown, and its step [N].
        classes = view.masked.num_labels
        state = np.where(label >= 0, label, classes) * size + position
        state[~is_inside] = -1
        num_known = classes * size
        pairs = _direct(view.edges, state, num_known)
        if path is not None:
            pairs = path.pairs(state, num_known)
        # Label of the node and of its neighbour; Y stands for an unknown one.
        own = pairs.own // size
        other = pairs.neighbour // size
        # Neighbours by own label and their label [Y, Y].
        is_labelled = other < classes
        met = np.zeros((classes, classes))
        pair = (own[is_labelled], other[is_labelled])
        np.add.at(met, pair, pairs.weight[is_labelled])
        if met.max() <= ROUNDING:
            return None
        # The strongest other class of every class, −1 for none [Y].
        np.fill_diagonal(met, -1)
        strongest = met.argmax(1)
        strongest[met.max(1) <= ROUNDING] = -1
        # Group of every neighbour: 0 same label, 1 strongest other, 2 others, 3 unknown.
        cases = [~is_labelled, other == own, other == strongest[own]]
        group = np.select(cases, [3, 0, 1], default=2)
        # Flat index of every pair in [Y, 4, T, T].
        place = (own, group, pairs.own % size, pairs.neighbour % size)
        cell = np.ravel_multi_index(place, (classes, 4, size, size))
        return cls(
            steps=first + filled * width,
            width=width,
            strongest=strongest,
            num_nodes=np.bincount(position[is_inside], minlength=size),
            counts=_table(cell, pairs.weight, (classes, 4, size, size)),
            _pairs=pairs,
            _cell=cell,
        )

    def redrawn(self, rng: np.random.Generator) -> ndarray:
        """`counts` after a Poisson bootstrap of the units, each with all its pairs.

        The units are nodes, or entities: their nodes have the same neighbours, and are no evidence
        of their own.
        """
        unit = self._pairs.unit
        # How often each unit is drawn, [units].
        draws = rng.poisson(1.0, int(unit.max()) + 1)
        weight = self._pairs.weight * draws[unit]
        classes, _, size, _ = self.counts.shape
        return _table(self._cell, weight, (classes, 4, size, size))


def _direct(edges: ndarray, state: ndarray, num_known: int) -> StatePairs:
    """Edges from nodes inside into labelled nodes."""
    # An edge runs from the neighbour to the node itself.
    source, target = edges
    own = state[target]
    neighbour = state[source]
    is_counted = (own >= 0) & (own < num_known) & (neighbour >= 0)
    return StatePairs(
        own=own[is_counted],
        neighbour=neighbour[is_counted],
        unit=target[is_counted],
        weight=np.ones(np.count_nonzero(is_counted)),
    )


def _table(cell: ndarray, weight: ndarray, shape: tuple[int, ...]) -> ndarray:
    """Weights by cell [Y, 3, T, T]; where subtraction leaves a rounding error, 0."""
    counts = np.bincount(cell, weight, math.prod(shape))
    counts = np.where(counts > ROUNDING, counts, 0)
    return _distribute_unknown(counts.reshape(shape))


def _distribute_unknown(table: ndarray) -> ndarray:
    """[Y, 4, T, T] → [Y, 3, T, T]: distribute neighbours of unknown label over the groups."""
    known = table[:, :3]
    unknown = table[:, 3:]
    if not unknown.any():
        return known
    # Proportions of the groups in a cell [Y, 3, T, T]; in an empty cell, those of the class.
    by_group = known.sum((2, 3), keepdims=True)
    usual = safe_divide(by_group, by_group.sum(1, keepdims=True))
    share = safe_divide(known, known.sum(1, keepdims=True), usual)
    return known + share * unknown


@dataclass(frozen=True)
class Share:
    """A share with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Fits:
    """Weighted sums of squared residuals of the neighbour shares, by model."""

    distances: ndarray  # the distinct |t̃ − t| [D]
    g: ndarray  # of the separable model [Y, 3, D]
    h: ndarray  # of the decay model [D], h(0) = 1
    left: dict[str, float]  # the sum by model, less the sampling noise
    drawn: dict[str, ndarray]  # the same for every replicate of the bootstrap [B]
    total: float  # the same sum of the shares themselves

    def share(self, model: str, *, best: str | None = None) -> Share:
        """Share of the residual of `still` that `model` explains.

        With `best`, the share of what `best` explains.
        """

        def explained(left: Mapping[str, Any]) -> ndarray:
            floor: Any = 0
            if best is not None:
                # No model of this kind can explain more than `best` leaves.
                floor = np.maximum(left[best], 0)
            whole = np.maximum(left["still"] - floor, 1e-300)
            unexplained = np.maximum(left[model] - floor, 0)
            return np.clip(1 - unexplained / whole, 0.0, 1.0)

        # The same formula serves the numbers and the replicates [B].
        value = float(explained(self.left))
        half = 1.96 * float(np.std(explained(self.drawn)))
        return Share(value, max(value - half, 0.0), min(value + half, 1.0))


def fit_models(pairs: PairCounts, *, seed: int = 0) -> Fits:
    """Fit all models; a bootstrap of the nodes separates noise from misfit."""
    layout = Layout.of(pairs)
    # Neighbours of a class in a step: the weights of squared shares, [Y, 1, T, 1].
    total = pairs.counts.sum((1, 3), keepdims=True)
    # Sums over the replicates of residuals and their squares, for the variance of every cell
    # [models, Y, 3, T, T], and the weighted sum of the squares of each replicate [models, B].
    shape = (len(MODELS), *pairs.counts.shape)
    sums = np.zeros(shape)
    squares = np.zeros(shape)
    raw = np.zeros((len(MODELS), REPLICATES))
    rng = np.random.default_rng(seed)
    for b in range(REPLICATES):
        counts = pairs.redrawn(rng)
        for m, model in enumerate(MODELS):
            residual = layout.residual(model, counts)
            sums[m] += residual
            residual **= 2
            squares[m] += residual
            raw[m, b] = (total * residual).sum()
    left = {}
    drawn = {}
    for m, model in enumerate(MODELS):
        # Variance of every residual over the replicates, from Σr² − (Σr)²/B: the noise of r².
        spread = np.maximum(squares[m] - sums[m] ** 2 / REPLICATES, 0)
        variance = spread / (REPLICATES - 1)
        noise = float((total * variance).sum())
        residual = layout.residual(model, pairs.counts)
        left[model] = float((total * residual**2).sum()) - noise
        # A replicate carries the noise of the graph and its own.
        drawn[model] = raw[m] - 2 * noise
    _, g = layout.fit("separable", pairs.counts)
    # The decay model has the same h for all classes and groups, times their proportions.
    _, decay = layout.fit("decay", pairs.counts)
    h = decay.sum((0, 1))
    # g sums to 1 over the groups at distance 0, and h is 1 there
    g_at_zero = g[..., :1].sum(1, keepdims=True)
    # Σ n·(count/n)² = Σ count²/n.
    squared_shares = safe_divide(pairs.counts**2, total)
    return Fits(
        distances=layout.distances,
        g=g / np.maximum(g_at_zero, 1e-300),
        h=h / max(h[0], 1e-300),
        left=left,
        drawn=drawn,
        total=float(squared_shares.sum()),
    )


@dataclass(frozen=True, eq=False)
class Layout:
    """Which cells share a factor: distances between steps, with and without sign."""

    distances: ndarray  # the distinct |t̃ − t| [D]
    distance: ndarray  # position of |t̃ − t| among them [T, T]
    signed: ndarray  # position of t̃ − t among its distinct values [T, T]
    num_nodes: ndarray  # of every step, relative to the mean [T]

    @classmethod
    def of(cls, pairs: PairCounts) -> Layout:
        # t̃ − t: rows are own steps, columns neighbours' steps.
        step = pairs.steps[None, :] - pairs.steps[:, None]
        distances, distance = np.unique(np.abs(step), return_inverse=True)
        _, signed = np.unique(step, return_inverse=True)
        return cls(
            distances=distances,
            distance=distance.reshape(step.shape),
            signed=signed.reshape(step.shape),
            num_nodes=pairs.num_nodes / pairs.num_nodes.mean(),
        )

    def residual(self, model: str, counts: ndarray) -> ndarray:
        """Observed less expected shares of the neighbours of a class in a step [Y, 3, T, T]."""
        residual = counts - self.expected(model, counts)
        return safe_divide(residual, counts.sum((1, 3), keepdims=True))

    def expected(self, model: str, counts: ndarray) -> ndarray:
        """Counts that the fitted model expects."""
        f, g = self.fit(model, counts)
        # [Y, 1, T, 1] · [Y, 3, T, T] · [T].
        by_steps = g[:, :, self.index(model)]
        return f[:, None, :, None] * by_steps * self.offset(model)

    def index(self, model: str) -> ndarray:
        """Position of the factor g that applies to two steps [T, T]."""
        if model == "still":
            # One factor for all pairs of steps.
            return np.zeros_like(self.distance)
        return self.signed if model == "sided" else self.distance

    def offset(self, model: str) -> ndarray:
        """Known factor of every neighbour's step [T]."""
        return self.num_nodes if model == "sized" else np.ones(len(self.num_nodes))

    def fit(self, model: str, counts: ndarray) -> tuple[ndarray, ndarray]:
        """Factors f [Y, T] and g [Y, 3, D] of f(y, t)·g(y, k, index)·offset(t̃), up to scale."""
        index = self.index(model)
        # Which pairs of steps have which distance [T, T, D].
        at = np.eye(int(index.max()) + 1)[index]
        # What is there from a step [T, D].
        reach = np.einsum("tsd,s->td", at, self.offset(model))
        # Margins by own step [Y, T], and by distance [Y, 3, D].
        f = rows = counts.sum((1, 3))
        columns = np.tensordot(counts, at, 2)
        is_common = model == "decay"
        if is_common:
            # One margin by distance for all classes and groups, [1, 1, D].
            columns = columns.sum((0, 1), keepdims=True)
        for _ in range(MAX_ROUNDS):
            # g matches the margin by distance, then f the margin by own step.
            total = f.sum(0, keepdims=True) if is_common else f
            # `total @ reach` [Y, D] is what f alone expects at every distance.
            g = safe_divide(columns, (total @ reach)[:, None, :])
            before = f
            f = safe_divide(rows, g.sum(1) @ reach.T)
            change = np.abs(f - before).max(initial=0.0)
            if change <= TOLERANCE * f.max(initial=0.0):
                break
        if is_common:
            # The groups of a class share a row in fixed proportions: [1, 1, D] to [Y, 3, D].
            by_group = counts.sum((2, 3), keepdims=True)
            by_class = counts.sum((1, 2, 3), keepdims=True)
            g = g * safe_divide(by_group, by_class)[..., 0]
        return f, g
