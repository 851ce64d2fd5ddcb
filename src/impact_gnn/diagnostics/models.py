r"""Models of relative connectivity, fitted to counts, and how much of what is seen each of them explains.

All are products, fitted by maximum likelihood of Poisson counts: every factor is set in turn to make its own margin
fit. The margins are small, so a fit costs nothing; only the residuals look at every cell.

| model | P(y, t, k, t̃) |
|---|---|
| `still` | f(y, t)·a(y, k): the same for all neighbours' times |
| `decay` | f(y, t)·a(y, k)·h(\|t̃−t\|): Assumption 4 |
| `separable` | f(y, t)·g(y, k, \|t̃−t\|): Assumption 3 |
| `sided` | f(y, t)·g(y, k, t̃−t): past and future may differ |
| `sized` | f(y, t)·g(y, k, \|t̃−t\|)·n(t̃): separable for every single node of the neighbours' time |
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from impact_gnn.diagnostics.pairs import PairCounts

MODELS = ("still", "decay", "separable", "sided", "sized")
ROUNDS, CLOSE = 200, 1e-6
"""Rounds of fitting at most, and the largest relative change of a factor that ends them earlier."""


@dataclass(frozen=True)
class Share:
    """A share with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Fits:
    """What every model leaves unexplained: weighted sums of squared residuals of the neighbour shares.

    Attributes:
        distances: The distinct |t̃ − t| [D].
        g: Fitted g of the separable model [Y, 3, D].
        h: Fitted h of the decay model [D], h(0) = 1.
        left: Per model the sum with sampling noise taken out.
        drawn: Per model the same for every replicate of the bootstrap [B].
        seen: The same sum of the shares themselves.
    """

    distances: np.ndarray
    g: np.ndarray
    h: np.ndarray
    left: dict[str, float]
    drawn: dict[str, np.ndarray]
    seen: float

    def share(self, model: str, base: str = "still", best: str | None = None) -> Share:
        """How much of what `base` leaves unexplained `model` explains, with its interval.

        With `best` given, of that part only which `best` explains.
        """
        value = self._share({name: np.array([left]) for name, left in self.left.items()}, model, base, best)[0]
        drawn = self._share(self.drawn, model, base, best)
        half = 1.96 * float(np.std(drawn))
        return Share(float(value), float(max(value - half, 0.0)), float(min(value + half, 1.0)))

    def moving(self) -> tuple[float, float]:
        """Interval of what depends on time at all: what `still` leaves, as a share of what is seen."""
        half = 1.96 * float(np.std(self.drawn["still"]))
        whole = max(self.seen, 1e-300)
        return (self.left["still"] - half) / whole, (self.left["still"] + half) / whole

    @staticmethod
    def _share(left: dict[str, np.ndarray], model: str, base: str, best: str | None) -> np.ndarray:
        floor = np.zeros_like(left[base]) if best is None else np.maximum(left[best], 0)
        whole = np.maximum(left[base] - floor, 1e-300)
        return np.clip(1 - np.maximum(left[model] - floor, 0) / whole, 0.0, 1.0)


def fit_models(pairs: PairCounts, *, replicates: int = 40, seed: int = 0) -> Fits:
    """All models on the counts, with a bootstrap of the nodes that tells noise from misfit."""
    layout = Layout.of(pairs)
    weight = pairs.counts.sum((1, 3))
    sums = {model: np.zeros(pairs.counts.shape) for model in MODELS}
    squares = {model: np.zeros(pairs.counts.shape) for model in MODELS}
    raw: dict[str, list[float]] = {model: [] for model in MODELS}
    rng = np.random.default_rng(seed)
    for _ in range(replicates):
        counts = pairs.redrawn(rng)
        for model in MODELS:
            residual = layout.residual(model, counts)
            sums[model] += residual
            squares[model] += residual**2
            raw[model].append(_weighted(residual, weight))
    left, drawn = {}, {}
    for model in MODELS:
        variance = np.maximum(squares[model] - sums[model] ** 2 / replicates, 0) / max(replicates - 1, 1)
        noise = float((weight[:, None, :, None] * variance).sum())
        left[model] = _weighted(layout.residual(model, pairs.counts), weight) - noise
        # A replicate carries the noise of the graph and its own.
        drawn[model] = np.array(raw[model]) - 2 * noise
    g, h = layout.separable(pairs.counts)[1], layout.decay(pairs.counts)[2]
    total = pairs.counts.sum((1, 3), keepdims=True)
    seen = float(np.divide(pairs.counts**2, total, out=np.zeros_like(pairs.counts), where=total > 0).sum())
    return Fits(layout.distances, g, h / max(h[0], 1e-300), left, drawn, seen)


def _weighted(residual: np.ndarray, weight: np.ndarray) -> float:
    return float((weight[:, None, :, None] * residual**2).sum())


@dataclass(frozen=True, eq=False)
class Layout:
    """Which cells share a factor: distances between steps, with and without sign."""

    distances: np.ndarray
    distance: np.ndarray
    signed: np.ndarray
    num_nodes: np.ndarray

    @classmethod
    def of(cls, pairs: PairCounts) -> Layout:
        """The layout of the steps of `pairs`."""
        step = pairs.steps[None, :] - pairs.steps[:, None]
        distances, distance = np.unique(np.abs(step), return_inverse=True)
        _, signed = np.unique(step, return_inverse=True)
        size = (len(pairs.steps),) * 2
        nodes = pairs.num_nodes / pairs.num_nodes.mean()
        return cls(distances, distance.reshape(size), signed.reshape(size), nodes)

    def residual(self, model: str, counts: np.ndarray) -> np.ndarray:
        """Share of neighbours seen less share expected, of all neighbours of a class in a step [Y, 3, T, T]."""
        expected = self.expected(model, counts)
        total = counts.sum((1, 3))[:, None, :, None]
        return np.divide(counts - expected, total, out=np.zeros_like(counts), where=total > 0)

    def expected(self, model: str, counts: np.ndarray) -> np.ndarray:
        """Counts that the fitted model expects."""
        if model == "still":
            a = counts.sum((2, 3))
            f = counts.sum((1, 3)) / np.maximum(a.sum(1, keepdims=True) * counts.shape[3], 1e-300)
            return np.broadcast_to(f[:, None, :, None] * a[:, :, None, None], counts.shape)
        if model == "decay":
            f, a, h = self.decay(counts)
            return f[:, None, :, None] * a[:, :, None, None] * h[self.distance]
        index = self.signed if model == "sided" else self.distance
        offset = self.num_nodes if model == "sized" else np.ones(len(index))
        f, g = self.separable(counts, index, offset)
        return f[:, None, :, None] * g[:, :, index] * offset

    def separable(
        self, counts: np.ndarray, index: np.ndarray | None = None, offset: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Factors f [Y, T] and g [Y, 3, D] of f(y, t)·g(y, k, index)·offset(t̃)."""
        index = self.distance if index is None else index
        reach = self._reach(index, offset)
        rows, columns = counts.sum((1, 3)), self.by_distance(counts, index)
        f = rows
        for _ in range(ROUNDS):
            g = _ratio(columns, (f @ reach)[:, None, :])
            before, f = f, _ratio(rows, g.sum(1) @ reach.T)
            if _converged(before, f):
                break
        scale = np.maximum(g[..., 0].sum(1), 1e-300)[:, None] if index is self.distance else np.ones((len(f), 1))
        return f * scale, g / scale[:, None]

    def decay(self, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Factors f [Y, T], a [Y, 3] and h [D] of f(y, t)·a(y, k)·h(|t̃ − t|)."""
        reach = self._reach(self.distance, None)
        rows, a = counts.sum((1, 3)), counts.sum((2, 3))
        columns = self.by_distance(counts).sum((0, 1))
        a = a / np.maximum(a.sum(1, keepdims=True), 1e-300)  # the groups share a row in fixed proportions
        h = np.ones(len(self.distances))
        for _ in range(ROUNDS):
            f = _ratio(rows, np.broadcast_to(reach @ h, rows.shape))
            before, h = h, _ratio(columns, f.sum(0) @ reach)
            if _converged(before, h):
                break
        return _ratio(rows, np.broadcast_to(reach @ h, rows.shape)), a, h

    def by_distance(self, counts: np.ndarray, index: np.ndarray | None = None) -> np.ndarray:
        """Counts summed over pairs of steps of equal distance [Y, 3, D]."""
        index = self.distance if index is None else index
        cells = np.zeros((index.size, int(index.max()) + 1))
        cells[np.arange(index.size), index.ravel()] = 1
        return counts.reshape(*counts.shape[:2], -1) @ cells

    def _reach(self, index: np.ndarray, offset: np.ndarray | None) -> np.ndarray:
        """Steps (or their offsets) that lie at every distance from a step [T, D]."""
        out = np.zeros((len(index), int(index.max()) + 1))
        weight = np.broadcast_to(1.0 if offset is None else offset, index.shape)
        np.add.at(out, (np.arange(len(index))[:, None], index), weight)
        return out


def _ratio(count: np.ndarray, expected: np.ndarray) -> np.ndarray:
    expected = np.broadcast_to(expected, count.shape)
    return np.divide(count, expected, out=np.zeros(count.shape), where=expected > 0)


def _converged(before: np.ndarray, now: np.ndarray) -> bool:
    return bool((np.abs(now - before) <= CLOSE * now.max(initial=0.0)).all())
