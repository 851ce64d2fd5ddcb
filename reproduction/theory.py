"""Theorems 4.3, 4.4, 4.5 and the corollary: bounds on the distance between messages, and W1.

The theory takes scalar messages of one label. With equal means, |M| ≤ C and var(M) ≤ V it bounds
the Wasserstein-1 distance W1 between the messages of any two periods.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from impact_gnn import checks
from impact_gnn._array import Array
from impact_gnn.bounds import as_sample, sorted_projections, unit_directions, w1_by_column
from impact_gnn.checks import InputError


def w1(a: Array, b: Array) -> float:
    """Compute the exact Wasserstein-1 distance of two samples: ∫ |F_a(x) − F_b(x)| dx.

    Examples:
        >>> w1([0.0, 1.0], [0.0, 1.0, 2.0])
        0.5
    """
    for name, sample in (("a", a), ("b", b)):
        columns = as_sample(name, sample).shape[1]
        if columns != 1:
            raise InputError(
                f"{name} has {columns} columns; use numbers [n], or use sliced_w1 for vectors."
            )
    return sliced_w1(a, b)


def sliced_w1(a: Array, b: Array, *, num_slices: int = 64, seed: int = 0) -> float:
    """Compute the mean of W1 over random projections of both samples of vectors [n, f].

    Never above W1 of the vectors, zero only for equal distributions (with enough directions), and
    exact if f = 1.

    Examples:
        >>> sliced_w1([[0.0], [1.0]], [[2.0], [3.0]])
        2.0
    """
    left = as_sample("a", a)
    right = as_sample("b", b)
    if left.shape[1] != right.shape[1]:
        raise InputError(
            f"a has {left.shape[1]} columns and b {right.shape[1]}; "
            f"pass vectors of the same length."
        )
    directions = unit_directions(left.shape[1], num_slices, seed)
    distances = w1_by_column(
        sorted_projections(left, directions), sorted_projections(right, directions)
    )
    return float(np.mean(distances))


def theorem_4_3(C: float, V: float) -> float:
    """Return min(2C, 3·(4CV)^(1/3)) ≥ W1, for equal means, |M| ≤ C and variance at most V.

    The paper's proof: Chebyshev gives P(|M−M'| > ε) ≤ 8V/ε², so W1 ≤ ε + 16CV/ε², least at ε =
    2(4CV)^(1/3). 2C holds without any premise on means. `equal_means` is never larger.

    Examples:
        >>> theorem_4_3(C=1.0, V=1e-3)
        0.476...
    """
    _check(C=C, V=V)
    return min(2 * C, 3 * (4 * C * V) ** (1 / 3))


def theorem_4_4(C: float, tau: float, *, form: str = "printed") -> float:
    """Return τ√(8 log C) + 4 ≥ W1, for equal means, |M| ≤ C and sub-Gaussian messages.

    Sub-Gaussian means E exp(λ(M−μ)) ≤ exp(λ²τ²/2). The proof draws M and M' independently: M − M'
    is sub-Gaussian with τ√2, so P(|M−M'| > ε) ≤ 2exp(−ε²/8τ²) and W1 ≤ ε + 4C·exp(−ε²/8τ²).
    "printed" puts ε = τ√(8 log C), which needs C > 1 and leaves the constant 4 whatever the unit of
    the messages. "scale-free" puts ε = τ√(8 log(C/τ)) into the same line:
    W1 ≤ τ(√(8 log(C/τ)) + 4), which scales with the messages; 2C is used where it is smaller, and
    where C < τ. Sub-Gaussian with τ implies V ≤ τ², so that `equal_means(tau**2)` = √2·τ is smaller
    than both.

    Examples:
        >>> theorem_4_4(10.0, 0.1), theorem_4_4(10.0, 0.1, form="scale-free")
        (4.42..., 1.00...)
    """
    checks.choice("form", form, ("printed", "scale-free"))
    _check(C=C, tau=tau)
    if form == "printed":
        if C <= 1:
            raise InputError(
                f"C={C} does not exceed 1, as the printed Theorem 4.4 needs; use form='scale-free'."
            )
        return tau * math.sqrt(8 * math.log(C)) + 4
    if tau >= C:
        return 2 * C
    return min(2 * C, tau * (math.sqrt(8 * math.log(C / tau)) + 4))


def equal_means(V: float) -> float:
    """Return √(2V) ≥ W1, for messages with equal means and variance at most V.

    For independent M, M' with one mean, W1 ≤ E|M−M'| ≤ √E(M−M')² = √(var M + var M'). It needs no
    bound C, and is below Theorem 4.3 always: √(2V) < 3(4CV)^(1/3) where V < 1458·C², and |M| ≤ C
    itself makes V ≤ C².

    Examples:
        >>> equal_means(V=1e-3)
        0.044...
    """
    _check(V=V)
    return math.sqrt(2 * V)


@dataclass(frozen=True)
class Contraction:
    """The effect of one layer on distances between periods; see `layer_contraction`."""

    factor: float  # 1/G⁽ᵏ⁾ of Theorem 4.5: mass that moves between periods of the same label
    leak: float  # mass that moves between labels; the theorem supposes 0


def layer_contraction(extended: Array, table: Array) -> Contraction:
    """Compute the factor 1/G⁽ᵏ⁾ of Theorem 4.5 for P [Y, T, Y, T] and Ω [T, T], and its leak.

    With λ_yt = Ω[t,·]·P(y,t,·,·), scaled to sum 1, the message of (y,t) mixes the representations
    x_ỹt̃ by the weights λ_yt(ỹ,t̃). Between t and t' only λ_yt − λ_yt' has to move. Inside a label
    ỹ this costs at most G·W for each unit of mass, where W bounds W1 between periods before the
    layer; mass between labels costs up to R, the largest W1 between two representations. So, with
    the largest values over y, t, t',

        W1 after ≤ factor·G·W + leak·R.

    If PMP makes each label's mass the same in all periods then leak = 0 and this is the theorem,
    with the largest total variation between λ_yt and λ_yt' as the factor. States without weight are
    passed over. One thin state whose few neighbours are unlike any other's is enough for a factor
    near 1, as the theorem has it.

    Examples:
        >>> P = np.array([0.5, 0.5, 0.25, 0.75]).reshape(1, 2, 1, 2)
        >>> layer_contraction(P, np.ones((2, 2)))
        Contraction(factor=0.25, leak=0.0)
    """
    share = checks.array("extended", extended)
    omega = checks.array("table", table)
    is_square = share.ndim == 4 and share.shape[:2] == share.shape[2:]
    if not is_square or omega.shape != (share.shape[1],) * 2:
        raise InputError(
            f"extended has shape {share.shape} and table {omega.shape}; "
            f"pass [Y, T, Y, T] and [T, T] for the same times."
        )
    weight = share * omega[None, :, None, :].astype(np.float64)
    if not np.isfinite(weight).all() or weight.min(initial=0.0) < 0:
        raise InputError(
            "extended and table must be finite and not negative; "
            "remove what is not a share or weight."
        )
    # λ [Y, T, Y, T], zero where a state has no weight.
    total = weight.sum((2, 3), keepdims=True)
    mixture = np.divide(weight, total, out=np.zeros_like(weight), where=total > 0)
    has_weight = total[:, :, 0, 0] > 0
    factor = leak = 0.0
    for t in range(share.shape[1]):
        # Differences between t and all later periods, gains and losses per label ỹ.
        both = has_weight[:, t, None] & has_weight[:, t + 1 :]
        moved = mixture[:, t, None] - mixture[:, t + 1 :]
        gained = moved.clip(0).sum(-1)
        lost = (-moved).clip(0).sum(-1)
        within = np.minimum(gained, lost).sum(-1)
        between = (gained - lost).clip(0).sum(-1)
        factor = max(factor, float(within.max(where=both, initial=0.0)))
        leak = max(leak, float(between.max(where=both, initial=0.0)))
    # Rounding can pass 1 by a few bits.
    return Contraction(factor=min(factor, 1.0), leak=min(leak, 1.0))


def corollary(
    C: float, V: float, factors: Sequence[float], *, G: float = 1.0, tau: float | None = None
) -> float:
    """Return the bound after K layers: Π_k (G·factor_k) · min(Theorem 4.3, Theorem 4.4).

    C and V bound |M| and the variance of the first layer, `factors` are those of
    `layer_contraction` for k = 1 .. K−1 (the leak is taken to be zero, as in the paper), G is the
    Lipschitz constant of the functions between the layers. With the sub-Gaussian constant τ Theorem
    4.4 enters in its scale-free form.

    Examples:
        >>> corollary(C=1.0, V=1e-3, factors=[0.5, 0.5])
        0.119...
    """
    _check(G=G)
    for factor in factors:
        if not 0 <= factor <= 1:
            raise InputError(f"factors contains {factor}; a layer's factor lies between 0 and 1.")
    first = theorem_4_3(C, V)
    if tau is not None:
        first = min(first, theorem_4_4(C, tau, form="scale-free"))
    return first * math.prod(G * factor for factor in factors)


def _check(**values: float) -> None:
    """Refuse values that are not finite numbers above 0; a variance V may be 0."""
    for name, value in values.items():
        if not math.isfinite(value) or value < 0 or (value == 0 and name != "V"):
            limit = "of at least" if name == "V" else "above"
            raise InputError(f"{name}={value} must be a finite number {limit} 0.")


def eigen_map(source: np.ndarray, goal: np.ndarray) -> np.ndarray:
    """Compute the paper's map of PNY between covariances: U_goal Λ_goal^½ Λ^-½ Uᵀ.

    Eigenvalues are in ascending order and the largest entry of every eigenvector is positive; the
    paper leaves both open. `impact_gnn.alignment.pny` uses the transport map, which is unique.

    Examples:
        >>> eigen_map(np.diag([1.0, 4.0]), np.diag([4.0, 9.0]))
        array([[2. , 0. ],
               [0. , 1.5]])
    """
    roots, bases = [], []
    for covariance in (source, goal):
        values, vectors = np.linalg.eigh(covariance)
        largest = np.take_along_axis(vectors, np.abs(vectors).argmax(0)[None], 0)
        roots.append(np.sqrt(values))
        bases.append(vectors * np.sign(largest))
    return bases[1] * (roots[1] / roots[0]) @ bases[0].T
