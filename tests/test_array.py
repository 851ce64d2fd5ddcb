"""Grouped sums equal loops, in numpy and torch alike; gradients; accuracy in float32."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from impact_gnn import _array, alignment
from impact_gnn._array import torch_groups
from libraries import Library

SIZES = st.tuples(st.integers(0, 30), st.integers(0, 5), st.integers(1, 6), st.integers(0, 10**6))


def rows(size):
    num_rows, width, num_groups, seed = size
    rng = np.random.default_rng(seed)
    return (
        rng.normal(size=(num_rows, width)),
        rng.integers(-1, num_groups, num_rows).astype(np.int32),
        rng,
    )


def moments_loop(values, group, num_groups):
    count, mean, squares = np.zeros(num_groups), np.zeros((num_groups, values.shape[1])), None
    squares = np.zeros_like(mean)
    for g in range(num_groups):
        inside = [values[i].astype(np.float64) for i in range(len(values)) if group[i] == g]
        count[g] = len(inside)
        if inside:
            mean[g] = sum(inside) / len(inside)
            squares[g] = sum((row - mean[g]) ** 2 for row in inside)
    return count, mean, squares


def as_on_a_device(monkeypatch):
    monkeypatch.setattr(torch_groups, "_shares_memory", lambda values: False)


@pytest.fixture(params=["numpy", "torch", "torch operations"])
def xp(request, monkeypatch):
    """numpy, then both ways a tensor can take.

    The numba kernels, or plain torch operations as on a GPU.
    """
    if request.param == "torch operations":
        as_on_a_device(monkeypatch)
    return Library(request.param.split()[0])


@pytest.fixture(params=["kernels", "operations"])
def path(request, monkeypatch):
    """The two ways of a tensor."""
    if request.param == "operations":
        as_on_a_device(monkeypatch)


@given(SIZES)
def test_group_moments_is_the_loop(xp, size):
    values, group, _ = rows(size)
    moments = _array.group_moments(xp.array(values), xp.array(group), size[2])
    for one, other in zip(moments, moments_loop(values, group, size[2]), strict=True):
        assert xp.owns(one)
        np.testing.assert_allclose(np.asarray(one), other, atol=1e-12)


@given(SIZES, st.booleans())
def test_group_affine_is_the_loop(xp, size, per_column):
    values, group, rng = rows(size)
    origin, goal = rng.normal(size=(2, size[2], size[1]))
    scale = rng.normal(size=(size[2], size[1]) if per_column else size[2])
    result = _array.group_affine(*(xp.array(a) for a in (values, group, origin, scale, goal)))
    expected = values.copy()
    for i, g in enumerate(group):
        if g >= 0:
            expected[i] = (values[i] - origin[g]) * scale[g] + goal[g]
    assert xp.owns(result)
    np.testing.assert_allclose(np.asarray(result), expected, atol=1e-12)


@given(SIZES)
def test_group_scatter_is_the_loop(xp, size):
    values, group, _ = rows(size)
    result = np.asarray(_array.group_scatter(xp.array(values), xp.array(group), size[2]))
    _, mean, _ = moments_loop(values, group, size[2])
    expected = np.zeros((size[2], size[1], size[1]))
    for i, g in enumerate(group):
        if g >= 0:
            expected[g] += np.outer(values[i] - mean[g], values[i] - mean[g])
    np.testing.assert_allclose(result, expected, atol=1e-12)


@given(SIZES)
def test_group_map_is_the_loop(xp, size):
    values, group, rng = rows(size)
    maps, family = rng.normal(size=(size[2], size[1], size[1])), np.arange(size[2]) // 2
    result = _array.group_map(*(xp.array(a) for a in (values, group, maps)), family)
    expected = values.copy()
    for i, g in enumerate(group):
        if g >= 0:
            mean = values[(group >= 0) & (group // 2 == g // 2)].mean(0)
            expected[i] = maps[g] @ (values[i] - mean) + mean
    np.testing.assert_allclose(np.asarray(result), expected, atol=1e-12)


def test_long_groups_are_whole():
    """Rows of a group are multiplied in blocks of thousands."""
    values, group, rng = rows((30_000, 4, 3, 1))
    maps = rng.normal(size=(3, 4, 4))
    scatter = _array.group_scatter(values, group, 3)
    mapped = _array.group_map(values, group, maps, np.arange(3))
    for g in range(3):
        part = values[group == g]
        deviation = part - part.mean(0)
        np.testing.assert_allclose(scatter[g], deviation.T @ deviation)
        np.testing.assert_allclose(mapped[group == g], deviation @ maps[g].T + part.mean(0))


@given(st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=40))
def test_periods_are_unique_and_inverse(time):
    times, period = _array.periods(np.array(time))
    np.testing.assert_array_equal(times, np.unique(time))
    np.testing.assert_array_equal(times[period], time)


def test_periods_of_a_small_integer_type_do_not_wrap():
    times, period = _array.periods(np.array([127, -128, 0], np.int8))
    assert times.tolist() == [-128, 0, 127]
    assert period.tolist() == [2, 0, 1]


@pytest.mark.parametrize(
    ("size", "dtype"), [(1, np.uint8), (256, np.uint8), (257, np.uint16), (65537, np.uint32)]
)
def test_smallest_unsigned(size, dtype):
    assert _array.smallest_unsigned(size) == dtype


def test_clipped_sqrt_has_no_nan_gradient():
    value = torch.tensor([-1.0, 0.0, 4.0], dtype=torch.float64, requires_grad=True)
    result = _array.clipped_sqrt(value)
    result.sum().backward()
    assert result.tolist() == [0.0, 0.0, 2.0]
    assert value.grad.tolist() == [0.0, 0.0, 0.25]


# -- gradients


def gradcheck(function, inputs):
    """One random direction per input.

    A parallel kernel on this little data costs only its overhead.
    """
    return torch.autograd.gradcheck(function, inputs, fast_mode=True)


def leaf(*shape, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape)).requires_grad_()


GROUP = torch.tensor([0, 2, -1, 0, 2, 0, 1, -1, 2], dtype=torch.int32)
LABEL = torch.tensor([0, 1, 0, 1, -1, 0, 1, 1, 0, 0, 1, -1, 0, 1, -1, -1, -1])
TIME = torch.tensor([3, 3, 3, 3, 3, 5, 5, 5, 5, 6, 6, 6, 6, 6, 9, 9, 9])
TARGET = TIME >= 9


def test_gradient_of_group_moments(path):
    assert gradcheck(lambda x: _array.group_moments(x, GROUP, 4)[1:], leaf(9, 3))


@pytest.mark.parametrize("scale", [(4,), (4, 3)])
def test_gradient_of_group_affine(path, scale):
    inputs = leaf(9, 3), leaf(4, 3, seed=1), leaf(*scale, seed=2), leaf(4, 3, seed=3)
    assert gradcheck(lambda x, a, b, c: _array.group_affine(x, GROUP, a, b, c), inputs)


def test_gradient_of_group_scatter(path):
    assert gradcheck(lambda x: _array.group_scatter(x, GROUP, 4), leaf(9, 3))


def test_gradient_of_group_map(path):
    inputs = leaf(9, 3), leaf(4, 3, 3, seed=1)
    assert gradcheck(lambda x, a: _array.group_map(x, GROUP, a, np.array([0, 1, 0, 1])), inputs)


@pytest.mark.parametrize("function", [alignment.center, alignment.standardize])
def test_gradient_of_alignment_without_labels(path, function):
    assert gradcheck(lambda x: function(x, TIME), leaf(17, 2))


def test_gradient_of_jjnorm(path):
    assert gradcheck(lambda x: alignment.jjnorm(x, LABEL, TIME, target=TARGET), leaf(17, 2))


def test_gradient_of_pny(path):
    rng = np.random.default_rng(3)
    communities = alignment.Communities.of(LABEL, TIME, TARGET, torch.empty(0))
    weights = rng.uniform(0.1, 1.0, (2, 4, 2))

    def moved(message, previous):
        return alignment.pny_by(message, previous, communities, weights)

    assert gradcheck(moved, (leaf(17, 3, seed=1), leaf(17, 3, seed=2)))


def test_gradient_of_pny_is_finite_where_a_covariance_is_unknown():
    communities = alignment.Communities.of(LABEL, TIME, TARGET, torch.empty(0))
    weights = np.random.default_rng(3).uniform(0.1, 1.0, (2, 4, 2))
    weights[0, 1] = 0.0  # nothing known of label 0 in the second period
    message, previous = leaf(17, 3, seed=1), leaf(17, 3, seed=2)
    alignment.pny_by(message, previous, communities, weights).square().sum().backward()
    assert torch.isfinite(message.grad).all()
    assert torch.isfinite(previous.grad).all()


# -- float32 far from zero


@pytest.fixture
def far():
    """float32 messages with mean 1e4 and standard deviation 0.1.

    Squares alone would lose every digit.
    """
    rng = np.random.default_rng(5)
    num_nodes = 6000
    label, time = rng.integers(0, 3, num_nodes), rng.integers(0, 5, num_nodes)
    message = (1e4 + 0.1 * rng.normal(size=(num_nodes, 4)) * (1 + 0.3 * time[:, None])).astype(
        np.float32
    )
    return message, label, time, time >= 4


def test_moments_lose_nothing_in_float32(xp, far):
    message, _, time, _ = far
    moments = _array.group_moments(xp.array(message), xp.array(time.astype(np.int32)), 5)
    wide = message.astype(np.float64)
    for g in range(5):
        part = wide[time == g]
        np.testing.assert_allclose(np.asarray(moments[1])[g], part.mean(0), rtol=1e-12)
        np.testing.assert_allclose(
            np.asarray(moments[2])[g], ((part - part.mean(0)) ** 2).sum(0), rtol=1e-9
        )


@pytest.mark.parametrize("far_apart", [1e2, 1e4])
def test_scales_of_communities_far_apart_are_as_good_as_their_numbers(xp, far_apart):
    """Labels `far_apart` standard deviations from each other, one of them an outlier in the very
    first row.
    """
    rng = np.random.default_rng(0)
    label, time = rng.integers(0, 3, 3000), rng.integers(0, 4, 3000)
    message = (far_apart * label[:, None] + rng.normal(size=(3000, 5))).astype(np.float32)
    message[0] = 1e6
    scales = alignment.jj_scales(xp.array(message), label, time, target=time >= 3)
    single = np.asarray(alignment.jjnorm(xp.array(message), label, time, target=time >= 3))
    double = alignment.jjnorm(message.astype(np.float64), label, time, target=time >= 3)
    expected = alignment.jj_scales(message.astype(np.float64), label, time, target=time >= 3)
    np.testing.assert_allclose(list(scales.values()), list(expected.values()), rtol=1e-9)
    np.testing.assert_allclose(single, double, rtol=1e-6, atol=1e-6 * far_apart)


def test_scatter_is_taken_about_the_unrounded_mean(xp):
    values = (1e5 + 0.0039 + 0.05 * np.random.default_rng(0).normal(size=(4000, 2))).astype(
        np.float32
    )
    result = _array.group_scatter(xp.array(values), xp.array(np.zeros(4000, np.int32)), 1)
    np.testing.assert_allclose(
        np.asarray(result)[0], np.cov(values.T.astype(np.float64)) * 3999, rtol=1e-4, atol=1e-4
    )


def test_scales_lose_nothing_in_float32(xp, far):
    message, label, time, target = far
    single = alignment.jj_scales(xp.array(message), label, time, target=target)
    double = alignment.jj_scales(message.astype(np.float64), label, time, target=target)
    assert single.keys() == double.keys() == {0, 1, 2, 3}
    np.testing.assert_allclose(list(single.values()), list(double.values()), rtol=1e-9)


def test_results_are_within_a_rounding_in_float32(xp, far):
    message, label, time, target = far
    communities = alignment.Communities.of(label, time, target, xp.array(message))
    weights = np.random.default_rng(0).uniform(0.2, 1.0, (3, 5, 3))
    spacing = float(np.spacing(np.float32(1e4)))
    wide = message.astype(np.float64)
    wide_communities = alignment.Communities.of(label, time, target)
    for result, expected in [
        (alignment.center(xp.array(message), time), alignment.center(wide, time)),
        (alignment.standardize(xp.array(message), time), alignment.standardize(wide, time)),
        (
            alignment.jjnorm_by(xp.array(message), communities),
            alignment.jjnorm_by(wide, wide_communities),
        ),
        (
            alignment.pny_by(xp.array(message), xp.array(message), communities, weights),
            alignment.pny_by(wide, wide, wide_communities, weights),
        ),
    ]:
        assert np.asarray(result).dtype == np.float32
        assert np.abs(np.asarray(result) - expected).max() < 1.01 * spacing


def test_an_outlier_in_the_first_row_does_not_spoil_the_sums(xp):
    values = np.random.default_rng(0).normal(size=(1000, 1))
    values[0] = 1e7
    _, _, squares = _array.group_moments(xp.array(values), xp.array(np.zeros(1000, np.int32)), 1)
    np.testing.assert_allclose(
        np.asarray(squares)[0], ((values - values.mean()) ** 2).sum(), rtol=1e-10
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_tensors_keep_their_type(dtype):
    message = torch.randn(17, 3, generator=torch.Generator().manual_seed(0)).to(dtype)
    communities = alignment.Communities.of(LABEL, TIME, TARGET, message)
    for moved in (
        alignment.center(message, TIME),
        alignment.standardize(message, TIME),
        alignment.jjnorm(message, LABEL, TIME, target=TARGET),
        alignment.pny_by(message, message, communities, np.ones((2, 4, 2))),
    ):
        assert moved.dtype == dtype
        assert torch.isfinite(moved).all()


def test_sums_do_not_depend_on_the_number_of_threads(far, monkeypatch):
    message, label, time, target = far
    wide = np.tile(message, (1, 40))
    results = []
    for threads in ("1", "4"):
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        results.append(alignment.jjnorm(wide, label, time, target=target))
    np.testing.assert_array_equal(results[0], results[-1])
