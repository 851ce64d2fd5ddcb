"""Bounds of the paper equal their loops and are never violated by simulated messages."""

import itertools
import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import optimize, stats

import paper_connectivity as paper
from impact_gnn import bounds, weighting
from impact_gnn.checks import InputError
from impact_gnn.connectivity import relative_connectivity
from reproduction import bounds as theory_bounds
from reproduction import theory


def scalar_messages(seed):
    """Two samples with equal means, of very different shapes; returns them with their C and V."""
    rng = np.random.default_rng(seed)
    shapes = [
        lambda n: rng.normal(size=n),
        lambda n: rng.exponential(size=n),
        lambda n: rng.choice([-1.0, 1.0], n),
        lambda n: (rng.random(n) < 0.05) * 30.0,
        lambda n: rng.uniform(-1, 1, n) ** 3,
        np.zeros,
    ]
    samples = []
    for which in rng.choice(len(shapes), 2, replace=False):
        drawn = shapes[which](rng.integers(1, 200)) * 10 ** rng.uniform(-3, 3)
        samples.append(drawn - drawn.mean())
    offset = rng.normal()
    a, b = (sample + offset for sample in samples)
    return a, b, max(np.abs(a).max(), np.abs(b).max()), max(a.var(), b.var())


@pytest.mark.parametrize("seed", range(60))
def test_measured_distance_stays_below_theorem_4_3_and_equal_means(seed):
    a, b, C, V = scalar_messages(seed)
    measured = theory.w1(a, b)
    assert measured <= theory.equal_means(V) * (1 + 1e-9)
    assert measured <= theory.theorem_4_3(C, V)


@pytest.mark.parametrize("seed", range(60))
def test_equal_means_is_never_above_theorem_4_3(seed):
    *_, C, V = scalar_messages(seed)
    assert theory.equal_means(V) <= theory.theorem_4_3(C, V)
    # the largest variance that |M| <= C allows
    assert theory.equal_means(C * C) < theory.theorem_4_3(C, C * C)


def test_the_bounds_need_equal_means():
    a, b = np.array([-1e-3, 1e-3]), np.array([1 - 1e-3, 1 + 1e-3])
    V = a.var()
    assert theory.w1(a, b) > max(theory.equal_means(V), theory.theorem_4_3(1.001, V))


def test_theorem_4_3_is_the_best_choice_of_epsilon():
    C, V = 3.0, 0.01
    epsilon = np.linspace(1e-3, 3, 100_000)
    assert_allclose(theory.theorem_4_3(C, V), (epsilon + 16 * C * V / epsilon**2).min(), rtol=1e-6)
    assert theory.theorem_4_3(C, 1e6) == 2 * C
    assert theory.theorem_4_3(C, 0.0) == 0


# Samples that hold their distribution exactly and are sub-Gaussian with a known constant: sums of n
# signs ±s/n.
def signs(n, size):
    return np.array(
        [sum(draw) for draw in itertools.product([-size / n, size / n], repeat=n)]
    ), size / math.sqrt(n)


@pytest.mark.parametrize(
    "sizes", [(1, 1.0, 9, 2.0), (4, 5.0, 1, 2.0), (10, 30.0, 2, 8.0), (6, 0.03, 1, 0.01)]
)
def test_measured_distance_stays_below_theorem_4_4(sizes):
    (a, one), (b, other) = signs(*sizes[:2]), signs(*sizes[2:])
    C, tau = max(np.abs(a).max(), np.abs(b).max()), max(one, other)
    measured = theory.w1(a, b)
    assert 0 < measured <= theory.theorem_4_4(C, tau, form="scale-free")
    assert measured <= theory.equal_means(tau**2) <= theory.theorem_4_4(C, tau, form="scale-free")
    if C > 1:
        assert measured <= theory.theorem_4_4(C, tau)


def test_theorem_4_4_puts_its_epsilon_into_the_line_of_the_proof():
    C, tau = 50.0, 0.7

    def line(epsilon):
        return epsilon + 4 * C * math.exp(-(epsilon**2) / (8 * tau**2))

    assert_allclose(theory.theorem_4_4(C, tau), line(tau * math.sqrt(8 * math.log(C))))
    assert_allclose(
        theory.theorem_4_4(C, tau, form="scale-free"), line(tau * math.sqrt(8 * math.log(C / tau)))
    )


def test_only_the_scale_free_form_of_theorem_4_4_follows_the_unit():
    for C, tau in ((9.0, 0.5), (9.0, 8.0), (2.0, 3.0)):
        scaled = theory.theorem_4_4(100 * C, 100 * tau, form="scale-free")
        assert_allclose(scaled, 100 * theory.theorem_4_4(C, tau, form="scale-free"))
    assert theory.theorem_4_4(900.0, 50.0) < 0.9 * 100 * theory.theorem_4_4(9.0, 0.5)


# Theorem 4.5


def random_connectivity(seed, num_labels=3, size=4):
    rng = np.random.default_rng(seed)
    share = rng.random((num_labels, size, num_labels, size)) * (
        rng.random((num_labels, size, num_labels, size)) < 0.7
    )
    share[0, 1] = 0
    total = share.sum((2, 3), keepdims=True)
    return np.divide(share, total, out=np.zeros_like(share), where=total > 0), rng.random(
        (size, size)
    )


@pytest.mark.parametrize("seed", range(5))
def test_contraction_is_the_loop_over_all_pairs(seed):
    share, table = random_connectivity(seed)
    contraction = theory.layer_contraction(share, table)
    assert_allclose(
        (contraction.factor, contraction.leak), paper.contraction(share, table), atol=1e-14
    )


@pytest.mark.parametrize("seed", range(10))
def test_one_layer_stays_below_factor_and_leak(seed):
    # Representations x_yt are samples; the message of (y, t) is their mixture, weighed by the
    # connectivity.
    share, table = random_connectivity(seed)
    num_labels, size = share.shape[:2]
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(num_labels, 1, 1)) * 3 + 0.5 * rng.normal(size=(num_labels, size, 1))
    x = x + rng.exponential(size=(num_labels, size, 6))

    def distance(one, other):
        return stats.wasserstein_distance(x[one], x[other])

    states = list(itertools.product(range(num_labels), range(size)))
    before = max(distance((y, t), (y, s)) for y, t in states for s in range(size))
    widest = max(distance(one, other) for one in states for other in states)
    weight = share * table[None, :, None, :]
    contraction = theory.layer_contraction(share, table)
    for y, t in states:
        for s in range(t):
            if weight[y, t].sum() and weight[y, s].sum():
                here, there = (np.repeat(weight[y, i].ravel(), 6) for i in (t, s))
                after = stats.wasserstein_distance(x.ravel(), x.ravel(), here, there)
                assert after <= contraction.factor * before + contraction.leak * widest + 1e-12


def test_pmp_leaves_no_leak_where_every_distance_has_a_pair_and_plain_does():
    # Assumption 3 with the reach of g below the distance to both ends: t = 2, 3, 4 of 0..6
    # against each other.
    g = np.array([[[4.0, 2, 1], [1, 1, 1]], [[1, 0.5, 0.1], [5, 1, 1]]])
    share = np.zeros((2, 7, 2, 7))
    for y, t, z, s in itertools.product(range(2), range(7), range(2), range(7)):
        if abs(s - t) <= 2:
            share[y, t, z, s] = g[y, z, abs(s - t)]
    share[:, [0, 1, 5]] = 0  # and the last period, which only looks back
    table = weighting.pmp(np.arange(7), same_time="double", border="upper")
    assert theory.layer_contraction(share, table).leak < 1e-12
    assert theory.layer_contraction(share, np.ones((7, 7))).leak > 0.01


def test_contraction_takes_an_estimated_connectivity():
    rng = np.random.default_rng(0)
    c = relative_connectivity(
        rng.integers(0, 300, (2, 5000)),
        rng.integers(0, 3, 300),
        rng.integers(0, 5, 300),
        num_labels=3,
        cutoff=4,
    )
    contraction = theory.layer_contraction(c.extended, weighting.pmp(c.times))
    assert 0 < contraction.factor < 1
    assert 0 <= contraction.leak < contraction.factor


def test_corollary_multiplies_the_layers():
    base = theory.theorem_4_3(2.0, 0.1)
    assert_allclose(theory.corollary(2.0, 0.1, []), base)
    assert_allclose(theory.corollary(2.0, 0.1, [0.5, 0.25], G=2.0), base * 0.5)
    assert_allclose(
        theory.corollary(2.0, 0.1, [0.5], tau=1e-3),
        0.5 * theory.theorem_4_4(2.0, 1e-3, form="scale-free"),
    )
    assert_allclose(theory.corollary(2.0, 0.1, [0.5], tau=1e3), 0.5 * base)


# Measured distances


def transport(a, b):
    """W1 as the linear programme of optimal transport."""
    cost = np.abs(a[:, None] - b[None, :])
    rows = np.kron(np.eye(len(a)), np.ones(len(b)))
    columns = np.kron(np.ones(len(a)), np.eye(len(b)))
    mass = np.concatenate([np.full(len(a), 1 / len(a)), np.full(len(b), 1 / len(b))])
    return optimize.linprog(cost.ravel(), A_eq=np.vstack([rows, columns]), b_eq=mass).fun


@pytest.mark.parametrize("sizes", [(1, 1), (5, 5), (4, 7), (1, 6), (8, 3)])
def test_w1_is_the_cost_of_the_best_transport(sizes):
    rng = np.random.default_rng(sum(sizes))
    a, b = rng.normal(size=sizes[0]), np.round(rng.normal(size=sizes[1]), 1)
    assert_allclose(theory.w1(a, b), transport(a, b), atol=1e-9)
    assert_allclose(theory.w1(a, b), stats.wasserstein_distance(a, b), atol=1e-12)


def test_w1_is_a_metric_that_follows_unit_and_origin():
    rng = np.random.default_rng(0)
    a, b, c = rng.normal(size=20), rng.normal(size=33), rng.exponential(size=11)
    assert theory.w1(a, a) == 0
    assert_allclose(theory.w1(a, b), theory.w1(b, a))
    assert theory.w1(a, c) <= theory.w1(a, b) + theory.w1(b, c)
    assert_allclose(theory.w1(3 * a + 5, 3 * b + 5), 3 * theory.w1(a, b))
    assert_allclose(theory.w1(a, np.tile(a, 4)), 0, atol=1e-15)


def test_sliced_w1_is_below_the_distance_of_vectors_and_near_it_for_a_pure_shift():
    rng = np.random.default_rng(0)
    a = rng.normal(size=(400, 3))
    step = np.array([3.0, 4.0, 0.0])
    distance = theory.sliced_w1(a, a + step, num_slices=4000)
    # the mean of |cos| over the sphere in three dimensions is 1/2
    assert_allclose(distance, 5 / 2, rtol=0.03)
    assert theory.sliced_w1(a, a) == 0


def test_sliced_w1_of_scalars_is_exact_and_seeded():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(20, 1)), rng.normal(size=(31, 1))
    assert theory.sliced_w1(a, b) == theory.w1(a, b)
    wide = rng.normal(size=(20, 5)), rng.normal(size=(31, 5))
    assert theory.sliced_w1(*wide, seed=3) == theory.sliced_w1(*wide, seed=3)
    assert theory.sliced_w1(*wide, seed=3) != theory.sliced_w1(*wide, seed=4)


@pytest.fixture
def messages():
    rng = np.random.default_rng(0)
    time = np.concatenate([[2010, 2013, 2014], rng.choice([2010, 2013, 2014], 300)])
    label = rng.integers(-1, 3, len(time))
    return rng.normal(size=(len(time), 4)) * (time - 2008)[:, None] + time[:, None] % 7, label, time


def test_shift_finds_moments_of_normal_messages():
    rng = np.random.default_rng(0)
    time = np.repeat([0, 1], 20_000)
    message = rng.normal(size=(40_000, 2)).astype(np.float32)
    message[:20_000] = message[:20_000] * [2, 3] + [3, 4]
    shift = bounds.shift(message, time)
    assert_allclose(shift.mean, [5, 0], rtol=0.02)
    assert_allclose(shift.second, [math.hypot(2 - 1, 3 - 1), 0], rtol=0.02)
    assert_array_equal(shift.count, [20_000, 20_000])


def test_shift_against_each_period(messages):
    message, _, time = messages
    shift = bounds.shift(message, time)
    assert_array_equal(shift.times, [2010, 2013, 2014])
    assert shift.mean[2] == shift.second[2] == shift.sliced[2] == 0
    for t in (0, 1):
        mine, theirs = message[time == shift.times[t]], message[time == 2014]
        assert_allclose(shift.sliced[t], theory.sliced_w1(mine, theirs))
        assert_allclose(shift.mean[t], np.linalg.norm(mine.mean(0) - theirs.mean(0)))


def test_distances_do_not_depend_on_the_origin_of_time_or_the_order_of_nodes(messages):
    message, label, time = messages
    first, rows = bounds.shift(message, time), theory_bounds.compare(message, label, time)
    order = np.random.default_rng(1).permutation(len(time))
    for second, others in (
        (bounds.shift(message, time - 2000), theory_bounds.compare(message, label, time - 2000)),
        (
            bounds.shift(message[order], time[order]),
            theory_bounds.compare(message[order], label[order], time[order]),
        ),
    ):
        for name in ("mean", "second", "sliced"):
            assert_allclose(getattr(second, name), getattr(first, name), atol=1e-10)
        assert_allclose([row.measured for row in others], [row.measured for row in rows])
        assert_allclose([row.theorem_4_3 for row in others], [row.theorem_4_3 for row in rows])


def test_a_common_offset_shifts_no_period(messages):
    message, _, time = messages
    first, second = bounds.shift(message, time), bounds.shift(message + 100.0, time)
    for name in ("mean", "second", "sliced"):
        assert_allclose(getattr(second, name), getattr(first, name), atol=1e-9)


def test_compare_reports_measurement_and_bound(messages):
    message, label, time = messages
    rows = theory_bounds.compare(message, label, time)
    assert [(row.label, row.time) for row in rows] == [
        (y, t) for y in range(3) for t in (2010, 2013)
    ]
    for row in rows:
        assert 0 < row.measured <= row.mean_gap + row.equal_means
        assert row.equal_means <= row.theorem_4_3 <= row.trivial
        assert row.measured <= row.trivial


def test_bounds_hold_in_compare_once_the_means_agree(messages):
    message, label, time = messages
    centred = message.copy()
    for y, t in itertools.product(range(3), np.unique(time)):
        centred[(label == y) & (time == t)] -= centred[(label == y) & (time == t)].mean(0)
    for row in theory_bounds.compare(centred, label, time):
        assert row.mean_gap < 1e-12
        assert row.measured <= row.equal_means


def test_compare_leaves_out_unknown_labels_and_labels_without_the_reference():
    rows = theory_bounds.compare([0.0, 1.0, 2.0, 3.0, 9.0], [0, 0, 1, -1, -1], [0, 1, 0, 1, 2])
    assert [(row.label, row.time, row.measured) for row in rows] == [(0, 0, 1.0)]


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: theory.theorem_4_3(0, 1), "C=0 must be a finite number above 0"),
        (lambda: theory.theorem_4_3(1, -1), "V=-1 must be a finite number of at least 0"),
        (lambda: theory.equal_means(math.nan), "V=nan must be a finite number"),
        (lambda: theory.theorem_4_4(1.0, 0.1), "C=1.0 does not exceed 1.*use form='scale-free'"),
        (lambda: theory.theorem_4_4(2.0, 0.1, form="free"), "form='free' is not valid"),
        (lambda: theory.theorem_4_4(2.0, 0.0), "tau=0.0 must be"),
        (lambda: theory.corollary(1.0, 1.0, [1.5]), "factors contains 1.5"),
        (lambda: theory.corollary(1.0, 1.0, [], G=0), "G=0 must be"),
        (
            lambda: theory.layer_contraction(np.ones((2, 3, 2, 3)), np.ones((2, 2))),
            r"pass \[Y, T, Y, T\] and \[T, T\]",
        ),
        (
            lambda: theory.layer_contraction(-np.ones((1, 2, 1, 2)), np.ones((2, 2))),
            "finite and not negative",
        ),
        (lambda: theory.w1([], [1.0]), "a is empty"),
        (lambda: theory.w1([1.0], [np.nan]), "b contains 1 NaN"),
        (lambda: theory.w1(np.ones((2, 2)), [1.0]), "a has 2 columns.*use sliced_w1"),
        (lambda: theory.sliced_w1(np.ones((2, 2)), np.ones((2, 3))), "a has 2 columns and b 3"),
        (lambda: theory.sliced_w1([1.0], [1.0], num_slices=0), "num_slices=0 must be at least 1"),
        (lambda: bounds.shift([1.0, 2.0], [0]), "time has 1 entries for 2 nodes"),
        (lambda: theory_bounds.compare([1.0, 2.0], [-1, -1], [0, 1]), "label is -1 for every node"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(call, sentence):
    with pytest.raises(InputError, match=sentence):
        call()


def test_a_contraction_always_fits_the_corollary():
    # Periods that share no neighbour move all their mass, and rounding must not make that more than
    # all.
    rng = np.random.default_rng(0)
    for _ in range(50):
        share = np.zeros((1, 2, 1, 2))
        share[0, 0, 0, 0] = share[0, 1, 0, 1] = 1
        wide = np.zeros((1, 14, 1, 14))
        wide[0, 0, 0, :7], wide[0, 1, 0, 7:] = rng.random(7), rng.random(7)
        for P in (share, wide):
            contraction = theory.layer_contraction(P, np.ones(P.shape[1:4:2]))
            assert_allclose(contraction.factor, 1)
            assert theory.corollary(1.0, 0.1, [contraction.factor]) <= theory.theorem_4_3(1.0, 0.1)


# The risk of later rows


def two_samples(seed):
    """Messages of three classes, earlier and later.

    Other class proportions, moved and stretched.
    """
    rng = np.random.default_rng(seed)
    labels = [rng.choice(3, 90, p=shares) for shares in ([0.5, 0.3, 0.2], [0.2, 0.3, 0.5])]
    means = rng.normal(size=(3, 4)) * 2
    earlier, later = (
        means[y] + rng.normal(size=(90, 4)) * scale
        for y, scale in zip(labels, (1, 1.5), strict=True)
    )
    return earlier, labels[0], later + rng.normal(size=4) * rng.uniform(0, 3), labels[1]


@pytest.mark.parametrize("seed", range(20))
def test_risk_stays_below_its_bound(seed):
    samples = two_samples(seed)
    risk = theory_bounds.risk_bound(*samples, seed=seed)
    assert risk.gap <= risk.bound + 1e-9
    assert risk.gap == pytest.approx(risk.later - risk.earlier)
    assert risk.unseen == 0
    same = theory_bounds.risk_bound(*samples[:2], *samples[:2])
    assert (same.gap, same.bound) == pytest.approx((0, 0), abs=1e-12)


def test_risk_bound_is_the_loop():
    """Losses by softmax, distances by trying every pairing, slopes by differences."""
    rng = np.random.default_rng(3)
    y = np.repeat([0, 1], 4)
    earlier, later = rng.normal(size=(2, 8, 2)) + y[:, None] * 2
    later += 0.5
    risk = theory_bounds.risk_bound(earlier, y, later, y)
    means = np.stack([earlier[y == k].mean(0) for k in (0, 1)])
    around = earlier - means[y]
    covariance = 0.9 * around.T @ around / 8 + 0.1 * np.trace(around.T @ around / 8) / 2 * np.eye(2)
    weight = np.linalg.inv(covariance) @ means.T
    bias = np.log(0.5) - 0.5 * np.diag(means @ weight)

    def loss(x, k):
        logits = x @ weight + bias
        return -math.log(math.exp(logits[k]) / np.exp(logits).sum())

    for side, rows in (("earlier", earlier), ("later", later)):
        assert getattr(risk, side) == pytest.approx(
            np.mean([loss(x, k) for x, k in zip(rows, y, strict=True)])
        )
    moved = {"messages": 0.0, "logits": 0.0}
    for k in (0, 1):
        for space, slope in (
            ("messages", np.linalg.norm(weight[:, 0] - weight[:, 1])),
            ("logits", math.sqrt(2)),
        ):
            a, b = (
                rows[y == k] if space == "messages" else rows[y == k] @ weight
                for rows in (earlier, later)
            )
            pairings = (
                np.linalg.norm(a - b[list(p)], axis=1).mean()
                for p in itertools.permutations(range(4))
            )
            moved[space] += 0.5 * slope * min(pairings)
        steps = rng.normal(size=(200, 2, 2))
        slopes = [abs(loss(a, k) - loss(b, k)) / np.linalg.norm(a - b) for a, b in steps]
        assert max(slopes) <= np.linalg.norm(weight[:, 0] - weight[:, 1])
    assert (risk.messages, risk.logits) == pytest.approx((moved["messages"], moved["logits"]))
    assert risk.mix == 0


def test_rows_that_cannot_be_compared_are_left_out():
    earlier, y, later, other = two_samples(0)
    risk = theory_bounds.risk_bound(earlier, y, later, np.where(other == 2, 7, other))
    assert risk.unseen == pytest.approx((other == 2).mean())
    unknown = np.where(np.arange(90) % 3 == 0, -1, y)
    fewer = theory_bounds.risk_bound(earlier[unknown >= 0], unknown[unknown >= 0], later, other)
    assert theory_bounds.risk_bound(earlier, unknown, later, other) == fewer
    with pytest.raises(InputError, match="no class in common"):
        theory_bounds.risk_bound(earlier, y, later, other + 9)


def test_the_papers_map_of_pny_gives_the_goal():
    rng = np.random.default_rng(0)
    source, goal = (half @ half.T for half in rng.normal(size=(2, 3, 3)))
    turn = theory.eigen_map(source, goal)
    assert_allclose(turn @ source @ turn.T, goal, atol=1e-9)
