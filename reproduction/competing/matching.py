"""Kernel mean matching.

Weights under which rows with labels look like the rows to predict (the second half of SR-GNN).

minimise ½ βᵀKβ − κᵀβ over β ≥ least, Σ_{i of class c} βᵢ = n_c

with K_ij = k(x_i, x_j) between the n rows and κ_i = n · mean_j k(x_i, reference_j): β brings the
mean of the rows in the kernel's space to that of the reference, without changing how much a class
counts. k is the mean of three RBF kernels exp(−γ|x − y|²). SR-GNN takes rows of personalised
PageRank for x, n columns each; here x are the hops that the model reads, the image of such rows
under the features, which any model has and which is as wide as the features only. They are scaled
so that two rows have a squared distance of 1 on average, whatever the number of columns, and
projected at random to `WIDTH` columns where there are more.

Solved by accelerated projected gradients, whose projection is exact (a simplex per class). Up to
`EXACT` rows K is made; beyond, random Fourier features stand for it, k(x, y) ≈ z(x)·z(y), and a
step costs n × their number.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from impact_gnn import checks

GAMMAS = (1.0, 0.1, 0.001)
LEAST = 0.2
WIDTH = 64
EXACT = 2000
FREQUENCIES = 128  # random Fourier features for each γ
STEPS, TOLERANCE = 500, 1e-6
MOST_REFERENCE = 20_000  # rows of the reference that a mean is taken over


def kernel_mean_matching(
    x: np.ndarray, reference: np.ndarray, labels: np.ndarray, *, least: float = LEAST, seed: int = 0
) -> np.ndarray:
    """β [n], of mean 1 in every class.

    Args:
        x: Rows with a label [n, f].
        reference: Rows that they shall look like [m, f].
        labels: Class of every row of `x` [n].
        least: Smallest weight.
        seed: Of random projections and frequencies.

    Examples:
        >>> x = np.array([[0.0], [1.0], [0.0], [1.0]])
        >>> kernel_mean_matching(x, np.array([[1.0]]), np.array([0, 0, 1, 1])).round(2)
        array([0.2, 1.8, 0.2, 1.8])
    """
    if not len(reference):
        return np.ones(len(x))
    rng = np.random.default_rng(seed)
    if len(reference) > MOST_REFERENCE:
        reference = reference[np.sort(rng.choice(len(reference), MOST_REFERENCE, replace=False))]
    x, reference = _scaled(x, reference, rng)
    if len(x) <= EXACT:
        matrix, pull = kernel(x, x), len(x) * kernel(x, reference).mean(1)
        largest, product = float(np.linalg.eigvalsh(matrix)[-1]), matrix.__matmul__
    else:
        checks.fits(
            f"Fourier features of {len(x):,} rows", 12 * FREQUENCIES * len(x), "leave out 'kmm'"
        )
        features = _fourier(x.shape[1], rng)
        z, mean = features(x), features(reference).mean(0)
        pull = len(x) * (z @ mean)
        largest, product = float(np.linalg.eigvalsh(z.T @ z)[-1]), lambda beta: z @ (beta @ z)
    return _solved(product, pull, largest, np.unique(labels, return_inverse=True)[1], least)


def kernel(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The mean over γ of exp(−γ|x − y|²) [n, m]."""
    square = (x * x).sum(1)[:, None] - 2 * (x @ y.T) + (y * y).sum(1)
    return np.mean([np.exp(-gamma * np.maximum(square, 0)) for gamma in GAMMAS], axis=0)


def _scaled(
    x: np.ndarray, reference: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Both with a mean squared distance of 1 between rows, in at most `WIDTH` columns."""
    both = np.concatenate([x, reference]).astype(np.float64)
    if both.shape[1] > WIDTH:
        both = both @ (rng.standard_normal((both.shape[1], WIDTH)) / np.sqrt(WIDTH))
    both -= both.mean(0)
    both /= np.sqrt(max(2 * (both * both).sum(1).mean(), 1e-12))
    return both[: len(x)], both[len(x) :]


def _fourier(width: int, rng: np.random.Generator) -> Callable[[np.ndarray], np.ndarray]:
    """X → z(x) with z(x)·z(y) ≈ k(x, y).

    Cosines along directions whose spread is that of each kernel's spectrum.
    """
    spread = np.repeat(np.sqrt(2 * np.array(GAMMAS)), FREQUENCIES)
    direction = rng.standard_normal((width, len(spread))) * spread
    phase = rng.uniform(0, 2 * np.pi, len(spread))
    return lambda x: (np.sqrt(2 / len(spread)) * np.cos(x @ direction + phase)).astype(np.float32)


def _solved(
    product: Callable[[np.ndarray], np.ndarray],
    pull: np.ndarray,
    largest: float,
    group: np.ndarray,
    least: float,
) -> np.ndarray:
    """Nesterov's steps of length 1 / largest eigenvalue, restarted where one goes uphill."""
    beta = ahead = np.ones(len(pull))
    momentum = 1.0
    for _ in range(STEPS):
        before, slope = beta, product(ahead) - pull
        beta = _projected(ahead - slope / largest, group, least)
        moved = beta - before
        if np.abs(moved).max() <= TOLERANCE:
            break
        momentum, last = (
            (1.0, 1.0) if slope @ moved > 0 else ((1 + np.sqrt(1 + 4 * momentum**2)) / 2, momentum)
        )
        ahead = beta + (last - 1) / momentum * moved
    return beta


def _projected(beta: np.ndarray, group: np.ndarray, least: float) -> np.ndarray:
    """The nearest weights of at least `least` whose mean is 1 in every group.

    Β − θ_g, cut off below.
    """
    out = np.empty_like(beta)
    for one in range(group.max() + 1):
        rows = np.flatnonzero(group == one)
        down = np.sort(beta[rows] - least)[::-1]
        # The k largest stay above: θ is what they have too much together, shared among them; k as
        # large as can be.
        shares = (np.cumsum(down) - (1 - least) * len(rows)) / np.arange(1, len(rows) + 1)
        theta = shares[np.flatnonzero(down > shares)[-1]]
        out[rows] = np.maximum(beta[rows] - theta, least)
    return out
