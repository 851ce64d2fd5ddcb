"""Kernel mean matching: the quadratic programme equals scipy's, and its weights obey their laws."""

import numpy as np
import pytest
from scipy.optimize import minimize

from reproduction.competing import matching
from reproduction.competing.matching import GAMMAS, kernel, kernel_mean_matching


def drawn(rows=40, moved=1.0, seed=0, columns=3):
    rng = np.random.default_rng(seed)
    x, labels = rng.normal(size=(rows, columns)), rng.integers(0, 3, rows)
    return x, rng.normal(size=(rows // 2, columns)) + moved, labels


def naive_programme(x, reference):
    """K and κ one pair after the other, rows scaled so that two of them are at squared distance 1
    on average.
    """
    both = np.concatenate([x, reference])
    distances = [((a - b) ** 2).sum() for a in both for b in both]
    both = both / np.sqrt(np.mean(distances))
    x, reference = both[: len(x)], both[len(x) :]

    def k(a, b):
        return np.mean([np.exp(-gamma * ((a - b) ** 2).sum()) for gamma in GAMMAS])

    matrix = np.array([[k(a, b) for b in x] for a in x])
    pull = np.array([len(x) / len(reference) * sum(k(a, b) for b in reference) for a in x])
    return matrix, pull


def value(beta, matrix, pull):
    return 0.5 * beta @ matrix @ beta - pull @ beta


@pytest.mark.parametrize("seed", range(4))
def test_weights_solve_the_programme_as_scipy_does(seed):
    x, reference, labels = drawn(seed=seed)
    matrix, pull = naive_programme(x, reference)
    sums = [
        {"type": "eq", "fun": lambda b, c=c: b[labels == c].sum() - (labels == c).sum()}
        for c in range(3)
    ]
    wanted = minimize(
        value,
        np.ones(len(x)),
        (matrix, pull),
        "SLSQP",
        lambda b, k, p: k @ b - p,
        bounds=[(0.2, None)] * len(x),
        constraints=sums,
        options={"maxiter": 1000, "ftol": 1e-12},
    )
    assert wanted.success
    beta = kernel_mean_matching(x, reference, labels)
    assert value(beta, matrix, pull) == pytest.approx(wanted.fun, abs=1e-4)
    # there was something to gain
    assert value(beta, matrix, pull) < value(np.ones(len(x)), matrix, pull) - 0.1
    assert beta.min() >= 0.2 - 1e-12
    for c in range(3):
        assert beta[labels == c].mean() == pytest.approx(1)


def test_rows_that_are_the_reference_keep_their_weight():
    x, _, labels = drawn()
    np.testing.assert_allclose(kernel_mean_matching(x, x, labels), 1, atol=1e-4)
    np.testing.assert_array_equal(kernel_mean_matching(x, x[:0], labels), 1)


def test_neither_order_nor_units_matter():
    x, reference, labels = drawn()
    beta, order = (
        kernel_mean_matching(x, reference, labels),
        np.random.default_rng(1).permutation(len(x)),
    )
    weights = kernel_mean_matching(x[order] * 100 + 3, reference[::-1] * 100 + 3, labels[order])
    np.testing.assert_allclose(weights, beta[order], atol=1e-2)


def test_the_mean_moves_to_the_reference():
    x, reference, labels = drawn(rows=300, moved=0.5)
    beta = kernel_mean_matching(x, reference, labels)
    before = np.linalg.norm(x.mean(0) - reference.mean(0))
    assert np.linalg.norm((beta[:, None] * x).mean(0) - reference.mean(0)) < 0.4 * before


def test_fourier_features_stand_for_the_kernel(monkeypatch):
    x, reference, labels = drawn(rows=1000, moved=0.5)
    exact = kernel_mean_matching(x, reference, labels)
    monkeypatch.setattr(matching, "EXACT", 10)
    weights = kernel_mean_matching(x, reference, labels)
    scaled = matching._scaled(x, reference, np.random.default_rng(0))
    matrix, pull = kernel(scaled[0], scaled[0]), 1000 * kernel(*scaled).mean(1)
    best, start = (value(beta, matrix, pull) for beta in (exact, np.ones(1000)))
    assert value(weights, matrix, pull) < best + 0.1 * (start - best)
    z = matching._fourier(3, np.random.default_rng(0))(scaled[0])
    assert np.abs(z @ z.T - matrix).max() < 0.2
    assert not np.array_equal(weights, kernel_mean_matching(x, reference, labels, seed=1))
    np.testing.assert_array_equal(weights, kernel_mean_matching(x, reference, labels))


def test_wide_rows_are_projected():
    x, reference, labels = drawn(columns=300)
    beta = kernel_mean_matching(x, reference, labels)
    assert beta.std() > 0.05
    assert beta.min() >= 0.2 - 1e-12
