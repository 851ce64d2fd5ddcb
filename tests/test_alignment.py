"""Alignments equal the paper's loops, reach the promised moments, and skip small groups."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import paper
from impact_gnn import alignment
from impact_gnn._array import group_map, group_scatter
from impact_gnn.alignment.pny import transport_maps
from impact_gnn.checks import InputError


@dataclass(frozen=True)
class Dense:
    """A fixed relative connectivity, P[y, t, ỹ, t̃]."""

    times: np.ndarray
    relative: np.ndarray

    @property
    def num_labels(self):
        return len(self.relative)

    def label_mass(self, table):
        return np.einsum("ts,ytzs->ytz", table, self.relative)


@dataclass(frozen=True)
class Case:
    """Random messages, labels and times; communities may be empty or hold one node."""

    message: np.ndarray
    previous: np.ndarray
    label: np.ndarray
    time: np.ndarray
    target: np.ndarray
    degree: np.ndarray
    connectivity: Dense
    table: np.ndarray

    @classmethod
    def drawn(cls, seed, num_nodes=24, num_times=4, num_labels=3, width=3):
        rng = np.random.default_rng(seed)
        times = np.sort(rng.choice(np.arange(-20, 20), num_times, replace=False))
        time = np.concatenate([times, rng.choice(times, num_nodes)])
        target = time >= times[rng.integers(1, num_times)]
        label = np.where(rng.random(len(time)) < 0.15, -1, rng.integers(0, num_labels, len(time)))
        relative = rng.uniform(0.01, 1, (num_labels, num_times, num_labels, num_times))
        relative /= relative.sum((2, 3), keepdims=True)
        mixing = np.eye(width) + np.tri(width) * rng.uniform(-0.5, 0.5, (width, width))
        return cls(
            message=rng.normal(size=(len(time), width)) + time[:, None] / 10,
            previous=rng.normal(size=(len(time), width)) @ mixing,
            label=label,
            time=time,
            target=target,
            degree=rng.integers(1, 9, len(time)),
            connectivity=Dense(times, relative),
            table=rng.uniform(0.5, 2, (num_times, num_times)),
        )


CASES = st.builds(
    Case.drawn,
    seed=st.integers(0, 10**6),
    num_nodes=st.integers(1, 30),
    num_times=st.integers(2, 5),
    num_labels=st.integers(1, 4),
    width=st.integers(1, 4),
)


# -- without labels


@given(CASES)
def test_center_and_standardize_are_the_loops(xp, case):
    for fast, slow in [
        (alignment.center, paper.center),
        (alignment.standardize, paper.standardize),
    ]:
        result = fast(xp.array(case.message), case.time)
        assert xp.owns(result)
        np.testing.assert_allclose(np.asarray(result), slow(case.message, case.time), atol=1e-9)


@given(CASES)
def test_after_center_all_periods_have_the_overall_mean(case):
    moved = alignment.center(case.message, case.time)
    for t in np.unique(case.time):
        np.testing.assert_allclose(moved[case.time == t].mean(0), case.message.mean(0), atol=1e-9)


@given(CASES)
def test_after_standardize_all_periods_have_one_spread(case):
    moved = alignment.standardize(case.message, case.time)
    spreads = [
        moved[case.time == t].std(0, ddof=1)
        for t in np.unique(case.time)
        if (case.time == t).sum() > 1
    ]
    for spread in spreads:
        np.testing.assert_allclose(spread, spreads[0], rtol=1e-6)


@given(CASES)
def test_center_and_standardize_twice_is_once(case):
    for function in (alignment.center, alignment.standardize):
        once = function(case.message, case.time)
        np.testing.assert_allclose(function(once, case.time), once, atol=1e-8)


def test_a_period_with_one_node_moves_to_the_overall_mean(xp):
    message = xp.array([[0.0], [2.0], [10.0]])
    for function in (alignment.center, alignment.standardize):
        assert np.asarray(function(message, [0, 0, 1]))[2, 0] == pytest.approx(4.0)


def test_a_constant_column_keeps_its_scale(xp):
    message = xp.array([[1.0, 0.1], [2.0, 0.1], [5.0, 0.3], [9.0, 0.3]])
    moved = np.asarray(alignment.standardize(message, [0, 0, 1, 1]))
    np.testing.assert_allclose(moved[:, 1], 0.2)
    assert moved[:2, 0].std() == pytest.approx(moved[2:, 0].std())


def test_a_period_that_is_constant_stays_so(xp):
    moved = np.asarray(alignment.standardize(xp.array([[3.0], [3.0], [5.0], [9.0]]), [0, 0, 1, 1]))
    np.testing.assert_allclose(moved[:2], 5.0)
    # pooled over both, one of them without spread
    np.testing.assert_allclose(moved[3] - moved[2], 4.0 / np.sqrt(2))


def test_one_period_is_left_alone(xp):
    message = np.random.default_rng(0).normal(size=(5, 2))
    for function in (alignment.center, alignment.standardize):
        np.testing.assert_allclose(np.asarray(function(xp.array(message), [7] * 5)), message)


# -- JJnorm


@given(CASES)
def test_jjnorm_is_the_loop(xp, case):
    result = alignment.jjnorm(xp.array(case.message), case.label, case.time, target=case.target)
    assert xp.owns(result)
    expected = paper.jjnorm(case.message, case.label, case.time, case.target)
    np.testing.assert_allclose(np.asarray(result), expected, atol=1e-8)
    scales = alignment.jj_scales(xp.array(case.message), case.label, case.time, target=case.target)
    assert scales == pytest.approx(
        paper.jj_scales(case.message, case.label, case.time, case.target)
    )


@given(st.integers(0, 10**6))
def test_after_jjnorm_labelled_periods_have_the_targets_variance(seed):
    rng = np.random.default_rng(seed)
    time, label = np.repeat([0, 1, 2, 3], 30), np.tile([0, 1, 2], 40)
    message = rng.normal(size=(120, 3)) * (1 + time[:, None]) + 0.2 * label[:, None]
    moved = alignment.jjnorm(message, label, time, target=time == 3)
    goal = message[time == 3].var(0, ddof=1).sum()
    for t in (0, 1, 2):
        assert moved[time == t].var(0, ddof=1).sum() == pytest.approx(goal)
        for y in (0, 1, 2):
            at = (time == t) & (label == y)
            np.testing.assert_allclose(moved[at].mean(0), message[at].mean(0), atol=1e-12)


def test_classes_further_apart_than_the_target_is_wide_collapse_to_their_means(xp):
    message = [[0.0], [2.0], [100.0], [102.0], [5.0], [6.0]]
    time, label, target = (
        [0, 0, 0, 0, 1, 1],
        [0, 0, 1, 1, -1, -1],
        np.array([0, 0, 0, 0, 1, 1], bool),
    )
    moved = alignment.jjnorm(xp.array(message), label, time, target=target)
    np.testing.assert_allclose(np.asarray(moved)[:, 0], [1, 1, 101, 101, 5, 6])
    assert alignment.jj_scales(xp.array(message), label, time, target=target) == {0: 0.0}


@pytest.mark.parametrize(
    ("message", "label", "time", "target", "why"),
    [
        (
            [[1.0], [5.0], [9.0]],
            [0, -1, -1],
            [0, 1, 1],
            [0, 1, 1],
            "one labelled node in the period",
        ),
        (
            [[1.0], [4.0], [5.0], [9.0]],
            [0, 1, -1, -1],
            [0, 0, 1, 1],
            [0, 0, 1, 1],
            "communities of one node",
        ),
        (
            [[3.0], [3.0], [5.0], [9.0]],
            [0, 0, -1, -1],
            [0, 0, 1, 1],
            [0, 0, 1, 1],
            "no spread in the period",
        ),
        ([[1.0], [4.0], [9.0]], [0, 0, -1], [0, 0, 1], [0, 0, 1], "one target"),
        (
            [[1.0], [4.0], [5.0], [9.0]],
            [-1, -1, -1, -1],
            [0, 0, 1, 1],
            [0, 0, 1, 1],
            "no label at all",
        ),
    ],
)
def test_what_cannot_be_measured_is_left_alone(xp, message, label, time, target, why):
    mask = np.array(target, bool)
    moved = alignment.jjnorm(xp.array(message), label, time, target=mask)
    np.testing.assert_array_equal(np.asarray(moved), message, err_msg=why)
    assert set(alignment.jj_scales(xp.array(message), label, time, target=mask).values()) <= {1.0}


def test_targets_without_spread_collapse_the_past(xp):
    message = xp.array([[1.0], [4.0], [9.0], [9.0]])
    moved = alignment.jjnorm(
        message, [0, 0, -1, -1], [0, 0, 1, 1], target=np.array([0, 0, 1, 1], bool)
    )
    np.testing.assert_allclose(np.asarray(moved)[:, 0], [2.5, 2.5, 9, 9])


def test_unlabelled_and_target_nodes_pass_bit_by_bit(xp):
    case = Case.drawn(4, num_nodes=60)
    still = case.target | (case.label < 0)
    for moved in (
        alignment.jjnorm(xp.array(case.message), case.label, case.time, target=case.target),
        moved_by_pny(xp, case),
    ):
        np.testing.assert_array_equal(np.asarray(moved)[still], case.message[still])
        assert (np.asarray(moved)[~still] != case.message[~still]).any(1).all()


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int64, np.float64])
@pytest.mark.parametrize("column", [False, True])
def test_labels_of_targets_are_never_looked_at(xp, dtype, column):
    case = Case.drawn(7, num_nodes=50)
    label = np.where(case.label < 0, 0, case.label)
    expected = np.asarray(
        alignment.jjnorm(xp.array(case.message), label, case.time, target=case.target)
    )
    other = np.where(case.target, 250 if dtype != np.int16 else -99, label).astype(dtype)
    if dtype == np.float64:
        other[case.target] = [np.nan, np.inf, 0.5, *([1e300] * (case.target.sum() - 3))]
    other = other[:, None] if column else other  # OGB stores labels as a column
    result = alignment.jjnorm(
        xp.array(case.message), xp.array(other), xp.array(case.time), target=case.target
    )
    np.testing.assert_array_equal(np.asarray(result), expected)


# -- PNY


def moved_by_pny(xp, case, degree=True, table=True):
    return alignment.pny(
        xp.array(case.message),
        xp.array(case.previous),
        case.label,
        case.time,
        target=case.target,
        connectivity=case.connectivity,
        degree=case.degree if degree else None,
        table=case.table if table else None,
        map="transport",
    )


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.booleans(), st.booleans())
def test_pny_is_the_loop(xp, seed, degree, table):
    case = Case.drawn(seed, num_nodes=40, num_labels=2)
    known = case.label[~case.target]
    assume(
        min((known == 0).sum(), (known == 1).sum()) > 6
    )  # the loop has no lower bound for eigenvalues
    result = moved_by_pny(xp, case, degree=degree, table=table)
    assert xp.owns(result)
    expected = paper.pny(
        case.message,
        previous=case.previous,
        label=case.label,
        time=case.time,
        target=case.target,
        relative=case.connectivity.relative,
        times=case.connectivity.times,
        degree=case.degree if degree else np.ones(len(case.time)),
        table=case.table if table else np.ones_like(case.table),
        make_map=paper.transport_map,
    )
    np.testing.assert_allclose(np.asarray(result), expected, rtol=1e-5, atol=1e-5)


def transports(mixed):
    return transport_maps(mixed, mixed[:, -1], mixed)


def covariances(seed, labels=2, times=3, width=4):
    half = np.random.default_rng(seed).normal(size=(labels, times, width, width))
    return half @ np.swapaxes(half, -1, -2) + 0.05 * np.eye(width)


@given(st.integers(0, 10**6), st.integers(1, 6))
def test_the_map_gives_the_last_times_covariance(xp, seed, width):
    mixed = covariances(seed, width=width)
    maps = np.asarray(transports(xp.array(mixed)))
    mapped = maps @ mixed @ np.swapaxes(maps, -1, -2)
    np.testing.assert_allclose(
        mapped, np.broadcast_to(mixed[:, -1:], mixed.shape), rtol=1e-6, atol=1e-7
    )


@given(st.integers(0, 10**6))
def test_transport_is_symmetric_positive_and_moves_least(seed):
    mixed = covariances(seed)
    least = transports(mixed)
    np.testing.assert_allclose(least, np.swapaxes(least, -1, -2), atol=1e-9)
    assert np.linalg.eigvalsh(least).min() > 0
    np.testing.assert_allclose(least[:, -1], np.broadcast_to(np.eye(4), (2, 4, 4)), atol=1e-6)

    def cost(maps):  # E‖Ax − x‖² for x of covariance Σ
        step = maps - np.eye(4)
        return np.trace(step @ mixed @ np.swapaxes(step, -1, -2), axis1=-2, axis2=-1)

    by_eigenvectors = [[paper.eigen_map(one, own[-1]) for one in own] for own in mixed]
    assert (cost(least) <= cost(np.array(by_eigenvectors)) + 1e-9).all()


@given(st.integers(0, 10**6), st.floats(0.01, 100))
def test_covariances_that_differ_by_a_factor_are_scaled_by_its_root(seed, factor):
    sigma = covariances(seed, labels=1, times=1)[0, 0]
    maps = transports(np.stack([sigma, factor * sigma])[None])
    np.testing.assert_allclose(maps[0, 0], np.sqrt(factor) * np.eye(4), atol=1e-6 * np.sqrt(factor))


@given(st.integers(0, 10**6), st.integers(0, 3), st.floats(-12, 12))
def test_singular_covariances_give_no_nan(xp, seed, rank, exponent):
    half = np.random.default_rng(seed).normal(size=(2, 3, 4, rank))
    mixed = half @ np.swapaxes(half, -1, -2) * 10.0**exponent
    maps = np.asarray(transports(xp.array(mixed)))
    assert np.isfinite(maps).all()
    if rank == 0:
        np.testing.assert_array_equal(maps, np.broadcast_to(np.eye(4), maps.shape))


def test_on_a_shared_subspace_the_covariance_is_still_mapped(xp):
    inner = covariances(3, width=2)
    basis = np.linalg.qr(np.random.default_rng(0).normal(size=(4, 2)))[0]
    mixed = basis @ inner @ basis.T
    maps = np.asarray(transports(xp.array(mixed)))
    mapped = maps @ mixed @ np.swapaxes(maps, -1, -2)
    np.testing.assert_allclose(
        mapped, np.broadcast_to(mixed[:, -1:], mixed.shape), rtol=1e-4, atol=1e-4
    )
    assert np.linalg.svd(maps)[1].min() > 0.01  # what has no spread is not crushed to a point


@pytest.mark.parametrize("width", [5, 40])
def test_maps_and_scatter_matrices_are_those_of_loops_over_rows(width):
    rng = np.random.default_rng(0)
    values = rng.normal(size=(90, width))
    group = rng.integers(-1, 3, 90).astype(np.int32)
    maps = rng.normal(size=(3, width, width))
    family = np.array([0, 1, 0])
    mapped = values.copy()
    scatter = np.zeros((3, width, width))
    for row, g in enumerate(group):
        if g >= 0:
            relatives = (group >= 0) & (family[group] == family[g])
            center = values[relatives].mean(0)
            mapped[row] = maps[g] @ (values[row] - center) + center
            deviation = values[row] - values[group == g].mean(0)
            scatter[g] += np.outer(deviation, deviation)
    np.testing.assert_allclose(group_map(values, group, maps, family), mapped, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(group_scatter(values, group, 3), scatter, rtol=1e-9, atol=1e-9)


def test_covariances_unknown_at_either_end_leave_messages_alone(xp):
    case = Case.drawn(2, num_nodes=60, num_times=4, num_labels=3)
    relative = case.connectivity.relative.copy()
    relative[0, -1] = 0  # label 0: nothing known at the last time
    relative[1, 0] = 0  # label 1: nothing known at the first time
    case = Case(**{**case.__dict__, "connectivity": Dense(case.connectivity.times, relative)})
    moved = np.asarray(moved_by_pny(xp, case))
    first = case.time == case.connectivity.times[0]
    known = (case.label >= 0) & ~case.target
    still = ~known | (case.label == 0) | ((case.label == 1) & first)
    np.testing.assert_allclose(moved[still], case.message[still], rtol=1e-12)
    assert (moved[~still] != case.message[~still]).any(1).all()


def test_degenerate_graphs_give_finite_messages(xp):
    base = Case.drawn(1, num_nodes=12)
    n = len(base.time)
    # one labelled node
    for change in (
        {"previous": np.ones_like(base.previous)},  # no spread at all
        {"previous": np.where([True, False, True], base.previous, 1.0)},  # a constant column
        {"label": np.where(np.arange(n) == int(np.flatnonzero(~base.target)[0]), 0, -1)},
        {"label": np.full(n, -1)},  # none
        {"label": np.zeros(n, int)},  # one label
        {"target": np.arange(n) == int(base.time.argmax())},  # one target
        {"degree": np.zeros(n)},  # no node has a neighbour
    ):
        case = Case(**{**base.__dict__, **change})
        assert np.isfinite(np.asarray(moved_by_pny(xp, case))).all(), change


def exact(rng, num_rows, covariance):
    """Rows whose sample mean is zero and whose sample covariance is exactly `covariance`."""
    rows = rng.normal(size=(num_rows, len(covariance)))
    rows -= rows.mean(0)
    whitened = rows @ np.linalg.inv(np.linalg.cholesky(np.cov(rows.T))).T
    return whitened @ np.linalg.cholesky(covariance).T


@given(st.integers(0, 10**6))
@settings(max_examples=15)
def test_messages_with_the_promised_covariance_get_the_last_times(seed):
    rng = np.random.default_rng(seed)
    num_labels, times, size = 2, np.array([0, 1, 3, 4]), 12
    relative = rng.uniform(0.05, 1, (num_labels, 4, num_labels, 4))
    relative /= relative.sum((2, 3), keepdims=True)
    label, time = np.tile(np.repeat([0, 1], size), 4), np.repeat(times, 2 * size)
    target = time == 4
    previous = rng.normal(size=(len(time), 3)) @ rng.normal(size=(3, 3))
    table = rng.uniform(0.5, 2, (4, 4))
    sigma_x = [paper.label_covariance(previous, label, target, y) for y in range(num_labels)]
    degree = np.ones((num_labels, 4))
    message = np.zeros_like(previous)
    for y in range(num_labels):
        for i, t in enumerate(times):
            sigma = paper.message_covariance(
                relative, table=table, covariance=sigma_x, degree=degree, y=y, t=i
            )
            message[(label == y) & (time == t)] = exact(rng, size, sigma) + y
    moved = alignment.pny(
        message,
        previous,
        label,
        time,
        target=target,
        connectivity=Dense(times, relative),
        table=table,
    )
    for y in range(num_labels):
        goal = paper.message_covariance(
            relative, table=table, covariance=sigma_x, degree=degree, y=y, t=3
        )
        for t in times[:-1]:
            part = moved[(label == y) & (time == t)]
            np.testing.assert_allclose(np.cov(part.T), goal, rtol=1e-4, atol=1e-4 * np.trace(goal))
            np.testing.assert_allclose(part.mean(0), y, atol=1e-9)


def simulated(seed=0, num_nodes=12000, width=3):
    """A graph with P ∝ a(y, ỹ)·h(Δ), degrees that fall with time, and features of mean zero."""
    rng = np.random.default_rng(seed)
    num_labels, num_times = 2, 4
    label, time = rng.integers(0, num_labels, num_nodes), rng.integers(0, num_times, num_nodes)
    spread = np.array([[1.0, 0.2, 0.1], [0.1, 0.3, 1.2]])
    previous = rng.normal(size=(num_nodes, width)) * spread[label]
    likes = np.array([[0.8, 0.2], [0.3, 0.7]])
    # by label of the source: the mix changes with t
    decay = np.array([[1.0, 0.6, 0.3, 0.1], [1.0, 0.3, 0.5, 0.2]])
    distance = np.abs(np.arange(num_times)[:, None] - np.arange(num_times)[None, :])
    sources, targets = [], []
    pools = {
        (y, t): np.flatnonzero((label == y) & (time == t))
        for y in range(num_labels)
        for t in range(num_times)
    }
    for (y, t), members in pools.items():
        chance = (likes[y][:, None] * decay[:, distance[t]]).ravel()
        degree = 14 - 3 * t
        drawn = rng.choice(num_labels * num_times, (len(members), degree), p=chance / chance.sum())
        neighbour = np.empty(drawn.shape, int)
        for state in range(num_labels * num_times):
            at = drawn == state
            neighbour[at] = rng.choice(pools[divmod(state, num_times)], at.sum())
        sources.append(neighbour.ravel())
        targets.append(np.repeat(members, degree))
    edge_index = np.stack([np.concatenate(sources), np.concatenate(targets)])
    message = np.zeros_like(previous)
    np.add.at(message, edge_index[1], previous[edge_index[0]])
    degree = np.bincount(edge_index[1], minlength=num_nodes)
    return message / degree[:, None], previous, label, time, edge_index, degree


def test_on_a_simulated_graph_messages_get_the_covariance_of_the_last_time():
    from impact_gnn.connectivity import relative_connectivity

    message, previous, truth, time, edge_index, degree = simulated()
    target = time == 3
    label = np.where(target, -1, truth)
    estimate = relative_connectivity(edge_index, label, time, num_labels=2, cutoff=3)
    moved = alignment.pny(
        message, previous, label, time, target=target, connectivity=estimate, degree=degree
    )
    for y in range(2):
        goal = np.cov(message[target & (truth == y)].T)  # the truth, which no method sees
        size = np.linalg.norm(goal)
        for t in range(3):
            at = (time == t) & (truth == y)
            before, after = np.cov(message[at].T), np.cov(moved[at].T)
            assert np.linalg.norm(before - goal) > 0.25 * size
            assert np.linalg.norm(after - goal) < 0.12 * size


# -- sums that add up


@given(CASES, st.integers(0, 30))
def test_moments_of_row_blocks_add_up(xp, case, cut):
    communities = alignment.Communities.of(
        case.label, case.time, case.target, xp.array(case.message)
    )
    message, size = xp.array(case.message), communities.num_groups
    whole = communities.moments(message)
    first = alignment.Moments.of(message[:cut], communities.group[:cut], size)
    parts = first.update(message[cut:], communities.group[cut:])
    swapped = alignment.Moments.of(message[cut:], communities.group[cut:], size).merge(first)
    for combined in (parts, swapped):
        for name in ("count", "mean", "squares"):
            np.testing.assert_allclose(
                np.asarray(getattr(combined, name)),
                np.asarray(getattr(whole, name)),
                rtol=1e-9,
                atol=1e-11,
            )


@given(CASES, st.integers(0, 4))
def test_jjsums_of_column_blocks_add_up(xp, case, cut):
    communities = alignment.Communities.of(
        case.label, case.time, case.target, xp.array(case.message)
    )
    message = xp.array(case.message)

    def sums(block):
        return alignment.JJSums.of(communities.moments(block), communities.num_labels)

    parts = sums(message[:, :cut]).merge(sums(message[:, cut:]))
    np.testing.assert_allclose(
        np.asarray(parts.compute()), np.asarray(sums(message).compute()), rtol=1e-9
    )


def test_a_precomputed_grouping_gives_the_same(xp):
    case = Case.drawn(11, num_nodes=50)
    message = xp.array(case.message)
    communities = alignment.Communities.of(case.label, case.time, case.target, message)
    expected = alignment.jjnorm(message, case.label, case.time, target=case.target)
    np.testing.assert_array_equal(
        np.asarray(alignment.jjnorm_by(message, communities)), np.asarray(expected)
    )
    period = alignment.by_period(message, case.time)
    np.testing.assert_array_equal(
        np.asarray(alignment.center_by(message, *period)),
        np.asarray(alignment.center(message, case.time)),
    )


# -- refusals

MESSAGE, LABELS, TIMES = np.ones((3, 2)), [0, 1, -1], [0, 0, 1]
MASK = np.array([False, False, True])
FLAT = Dense(np.array([0, 1]), np.full((2, 2, 2, 2), 0.25))


def refused_pny(
    message=MESSAGE, previous=MESSAGE, connectivity=FLAT, degree=None, table=None, map="transport"
):
    options = {"connectivity": connectivity, "degree": degree, "table": table, "map": map}
    return alignment.pny(message, previous, LABELS, TIMES, target=MASK, **options)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: alignment.center(MESSAGE, [0, 1]),
            r"message has shape \(3, 2\) for 2 nodes; pass one row per node",
        ),
        (lambda: alignment.center(MESSAGE[:, 0], TIMES), r"message has shape \(3,\) for 3 nodes"),
        (lambda: alignment.center([[1.0]], [0]), r"message has shape \(\) for 1 nodes"),
        (
            lambda: alignment.center(np.ones((3, 2), int), TIMES),
            r"message has dtype int64; pass float32 or float64",
        ),
        (
            lambda: alignment.center(np.ones((3, 2), np.float16), TIMES),
            r"message has dtype float16; pass float32",
        ),
        (
            lambda: alignment.center(MESSAGE.astype(">f8"), TIMES),
            r"message has dtype >f8; pass float32",
        ),
        (
            lambda: alignment.center(torch.ones(3, 2).int(), TIMES),
            r"message has dtype torch.int32; pass float32",
        ),
        (
            lambda: alignment.center(MESSAGE, [0, 0.5, 1]),
            r"time must be whole numbers, but position 1 is 0.5",
        ),
        (lambda: alignment.center(MESSAGE, 3), r"time has shape \(\)"),
        (lambda: alignment.center(np.ones((0, 2)), []), r"time is empty; pass at least one node"),
        (
            lambda: alignment.jjnorm(MESSAGE, LABELS, TIMES, target=~MASK & MASK),
            r"target marks no node; mark",
        ),
        (
            lambda: alignment.jjnorm(MESSAGE, LABELS, TIMES, target=[0, 0, 1]),
            r"target has dtype int64 .* boolean mask",
        ),
        (
            lambda: alignment.jjnorm(MESSAGE, LABELS, TIMES, target=MASK[:2]),
            r"shape \(2,\); expected a boolean mask",
        ),
        (
            lambda: alignment.jjnorm(MESSAGE, [0, 1], TIMES, target=MASK),
            r"label has 2 entries for 3 nodes",
        ),
        (
            lambda: alignment.jjnorm(MESSAGE, [0, -7, 0], TIMES, target=MASK),
            r"label is -7 at node 1; use 0, 1, 2",
        ),
        (
            lambda: alignment.jjnorm(MESSAGE, ["a", "b", "c"], TIMES, target=MASK),
            r"label has dtype <U1; use whole",
        ),
        (
            lambda: alignment.jjnorm(MESSAGE[:2], LABELS, TIMES, target=MASK),
            r"message has shape \(2, 2\) for 3 nodes",
        ),
        (
            lambda: refused_pny(map="shift"),
            r"map='shift' is not valid; choose one of 'transport'",
        ),
        (
            lambda: refused_pny(previous=MESSAGE[:, :1]),
            r"previous has shape \(3, 1\), message \(3, 2\); pass the re",
        ),
        (lambda: refused_pny(previous=None), r"previous has shape \(\) for 3 nodes"),
        (
            lambda: refused_pny(degree=[1, 2]),
            r"degree has shape \(2,\) for 3 nodes; pass one number per node",
        ),
        (
            lambda: refused_pny(degree=["a", "b", "c"]),
            r"degree has shape \(3,\) .* pass one number per node",
        ),
        (
            lambda: refused_pny(table=np.ones((3, 3))),
            r"table has shape \(3, 3\) for 2 times; pass one row and column",
        ),
        (
            lambda: refused_pny(connectivity=Dense(np.array([0, 2]), FLAT.relative)),
            r"was estimated for other times",
        ),
        (
            lambda: refused_pny(connectivity=Dense(FLAT.times, FLAT.relative[:1, :, :1])),
            r"label has 2 classes, but connectivity has 1; estimate it with all",
        ),
        (
            lambda: alignment.refuse_unless_fits(349, 10, 512),
            r"PNY needs 349·10 covariances of 512x512, 6.8 GiB, more than its limit of 2 GiB; use "
            r"jjnorm",
        ),
    ],
)
def test_refusals(call, sentence):
    with pytest.raises(InputError, match=sentence):
        call()


def test_too_many_communities_are_refused():
    label = np.array([2**23, 0] + [0] * 300)
    with pytest.raises(
        InputError, match=r"302 times and 8388609 labels are too many communities; bin the times"
    ):
        alignment.Communities.of(label, np.arange(302), np.arange(302) > 300)
