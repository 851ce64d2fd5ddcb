"""The scaler: the formula, blocks, constant columns of any magnitude, dtypes."""

import numpy as np
import pytest

import impact_gnn as ig
from impact_gnn.statistics import Scale


def test_it_is_the_formula_and_blocks_do_not_matter():
    x = np.random.default_rng(0).normal(3, 5, (1001, 4)).astype(np.float32)
    whole = Scale.fit(x)
    np.testing.assert_allclose(whole.mean, x.mean(0, dtype=np.float64), rtol=1e-12)
    np.testing.assert_allclose(whole.scale, x.std(0, dtype=np.float64), rtol=1e-12)
    parts = Scale.fit(x[a:b] for a, b in ((0, 1), (1, 400), (400, 1001)))
    np.testing.assert_allclose(parts.mean, whole.mean, rtol=1e-12)
    np.testing.assert_allclose(parts.scale, whole.scale, rtol=1e-12)
    out = whole.apply(x)
    assert out.dtype == np.float32
    np.testing.assert_allclose(out.mean(0), 0, atol=1e-6)
    np.testing.assert_allclose(out.std(0), 1, rtol=1e-5)


def test_many_rows_are_taken_in_pieces():
    x = np.arange(300_000, dtype=np.float64)[:, None] * np.ones(8)
    scale = Scale.fit(x)
    np.testing.assert_allclose(scale.scale, x.std(0), rtol=1e-12)
    assert scale.apply(x).dtype == np.float64
    np.testing.assert_allclose(scale.apply(x), (x - x.mean(0)) / x.std(0), atol=1e-12)


@pytest.mark.parametrize("size", [1e-12, 1.0, 1e8])
def test_the_threshold_follows_the_magnitude(size):
    rng = np.random.default_rng(0)
    noise = rng.normal(size=1000)
    x = np.stack(
        [np.full(1000, size), size * (1 + 1e-9 * noise), size * noise, np.zeros(1000)], axis=1
    )
    scale = Scale.fit(x).scale
    assert scale[0] == scale[1] == scale[3] == 1  # rounding is not spread
    np.testing.assert_allclose(scale[2], size, rtol=0.1)  # small numbers are numbers


def test_what_cannot_be_scaled():
    assert Scale.fit(np.array([[1.0, np.inf], [2.0, 1.0]])).scale[1] == 1
    assert Scale.fit(np.ones((3, 0))).apply(np.ones((2, 0))).shape == (2, 0)
    with pytest.raises(ig.InputError, match="no rows to estimate a scale from"):
        Scale.fit(np.ones((0, 3)))
