"""Weight tables equal the paper's loops; weights of edges and rows follow from them."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import paper
from impact_gnn import weighting
from impact_gnn.checks import InputError

TIMES = st.lists(st.integers(-60, 60), min_size=1, max_size=7, unique=True).map(sorted)


def drawn(times, seed, num_nodes=25, num_edges=60):
    rng = np.random.default_rng(seed)
    time = np.concatenate([times, rng.choice(times, num_nodes)])
    return time, rng.integers(0, len(time), (2, num_edges))


@given(TIMES)
def test_tables_follow_their_definitions(times):
    np.testing.assert_array_equal(weighting.plain(times), paper.plain_table(times))
    np.testing.assert_array_equal(weighting.mmp(times), paper.mmp_table(times))
    np.testing.assert_array_equal(weighting.pmp(times), paper.pmp_table(times))
    definition = weighting.pmp(times, same_time="double", border="upper")
    np.testing.assert_array_equal(definition, paper.pmp_definition_table(times))


@given(TIMES, st.integers(0, 1000))
def test_genpmp_counts_nodes_by_distance(times, seed):
    time, _ = drawn(times, seed)
    counts = [int((time == t).sum()) for t in times]
    np.testing.assert_allclose(weighting.genpmp(times, counts), paper.genpmp_table(times, time))


@given(TIMES, st.integers(0, 1000))
def test_genpmp_counts_edges_by_distance(times, seed):
    time, edge_index = drawn(times, seed)
    # something reaches the last time
    edge_index = np.concatenate([edge_index, [[0], [len(times) - 1]]], axis=1)
    period = np.searchsorted(times, time)
    counts = np.zeros((len(times), len(times)))
    np.add.at(counts, (period[edge_index[1]], period[edge_index[0]]), 1)
    np.testing.assert_allclose(
        weighting.genpmp(times, counts), paper.genpmp_edge_table(times, time, edge_index)
    )


@given(st.integers(1, 9), st.integers(1, 50), st.integers(-5, 5))
def test_genpmp_with_equal_counts_is_pmp_with_same_time_doubled(num_times, count, origin):
    times = np.arange(origin, origin + num_times)
    general = weighting.genpmp(times, np.full(num_times, count))
    doubled = weighting.pmp(times, same_time="double", border="both")
    ratio = general / doubled
    np.testing.assert_allclose(ratio, np.broadcast_to(ratio[:, :1], ratio.shape))


def test_cap_cuts():
    times, counts = [0, 1, 2, 3], [1, 50, 60, 70]
    free = weighting.genpmp(times, counts)
    capped = weighting.genpmp(times, counts, cap=3.0)
    assert free.max() > 3.0
    np.testing.assert_array_equal(capped, np.minimum(free, 3.0))


@given(TIMES, st.integers(0, 1000), st.sampled_from(sorted(weighting.METHODS)), st.booleans())
def test_message_is_the_weighted_mean(times, seed, method, weighted):
    time, edge_index = drawn(times, seed)
    rng = np.random.default_rng(seed)
    x, own = (
        rng.normal(size=(len(time), 3)),
        rng.uniform(0.1, 2.0, edge_index.shape[1]) if weighted else None,
    )
    period = np.searchsorted(times, time).astype(np.uint8)
    table = weighting.table(method, times, np.bincount(period, minlength=len(times)))
    weight = weighting.edge_weight(table, edge_index, period, period).astype(np.float64) * (
        1 if own is None else own
    )
    rows = weighting.normalize_rows(weight, edge_index[1], len(time))
    message = np.zeros_like(x)
    np.add.at(message, edge_index[1], rows[:, None] * x[edge_index[0]])
    expected = paper.weighted_mean_message(
        x, time=time, edge_index=edge_index, times=times, table=table, weight=own
    )
    np.testing.assert_allclose(message, expected, atol=1e-6)


@pytest.mark.parametrize("integer", [np.int32, np.int64])
def test_edge_weight_looks_up_target_row_source_column(xp, integer):
    table = np.arange(9.0).reshape(3, 3)
    edge_index = xp.array([[0, 1, 2], [2, 0, 2]], integer)
    period = xp.array([0, 1, 2], np.uint8)
    weight = weighting.edge_weight(table, edge_index, period, period)
    assert xp.owns(weight)
    np.testing.assert_array_equal(np.asarray(weight), np.array([6, 1, 8], np.float32))


def test_edge_weight_between_two_types():
    weight = weighting.edge_weight(
        np.array([[1.0, 2.0], [3.0, 4.0]]),
        np.array([[4, 0], [0, 1]]),
        np.array([0, 0, 0, 0, 1]),
        np.array([1, 0]),
    )
    np.testing.assert_array_equal(weight, [4, 1])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_normalized_rows_sum_to_one_in_the_input_dtype(xp, dtype):
    rng = np.random.default_rng(0)
    target = rng.integers(0, 50, 3000)
    raw_weight = xp.array(rng.uniform(0, 5, 3000), dtype)
    weight = weighting.normalize_rows(raw_weight, xp.array(target), 60)
    assert xp.owns(weight)
    assert np.asarray(weight).dtype == dtype
    total = np.bincount(target, np.asarray(weight), 60)
    tolerance = 1e-5 if dtype == np.float32 else 1e-13
    np.testing.assert_allclose(
        total, (np.bincount(target, minlength=60) > 0).astype(float), atol=tolerance
    )


def test_a_row_without_weight_stays_without(xp):
    weight = weighting.normalize_rows(xp.array([0.0, 0.0, 2.0]), xp.array([0, 0, 1]), 3)
    np.testing.assert_array_equal(np.asarray(weight), [0, 0, 1])


def test_normalize_rows_is_differentiable():
    weight = torch.rand(6, dtype=torch.float64, requires_grad=True) + 0.1
    target = torch.tensor([0, 0, 1, 2, 2, 2])
    assert torch.autograd.gradcheck(lambda w: weighting.normalize_rows(w, target, 4), weight)


def test_mmp_leaves_a_node_with_newer_neighbours_without_message():
    edge_index, period = np.array([[1, 2], [0, 0]]), np.array([0, 1, 1])
    weight = weighting.edge_weight(weighting.mmp([0, 1]), edge_index, period, period)
    np.testing.assert_array_equal(weighting.normalize_rows(weight, edge_index[1], 3), [0, 0])


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: weighting.table("ppm", [0], [1]),
            r"weighting='ppm' is not valid; choose one of 'plain', 'mmp'",
        ),
        (
            lambda: weighting.pmp([0, 1], same_time="triple"),
            r"same_time='triple' is not valid; .*'single', 'double'",
        ),
        (
            lambda: weighting.pmp([0, 1], border="lower"),
            r"border='lower' is not valid; .*'both', 'upper'",
        ),
        (lambda: weighting.plain([]), r"times is empty; pass the distinct times"),
        (
            lambda: weighting.mmp([1, 0]),
            r"times must be distinct and increasing; pass numpy.unique",
        ),
        (lambda: weighting.mmp([0, 0]), r"times must be distinct and increasing"),
        (lambda: weighting.mmp([0.5, 1]), r"times must be whole numbers, but position 0 is 0.5"),
        (
            lambda: weighting.pmp([-(2**62), 2**62 + 1]),
            r"times ranges from -\d+ to \d+, too wide.*bin it",
        ),
        (
            lambda: weighting.genpmp([0, 1], [1, 2, 3]),
            r"counts has shape \(3,\) .* for 2 times; pass the non-negative",
        ),
        (lambda: weighting.genpmp([0, 1], [1, -2]), r"counts .* pass the non-negative number"),
        (lambda: weighting.genpmp([0, 1], [1, np.nan]), r"counts .* pass the non-negative number"),
        (lambda: weighting.genpmp([0, 1], ["a", "b"]), r"counts has shape \(2,\) and dtype <U1"),
        (
            lambda: weighting.genpmp([0, 1], [[1, 2], [0, 0]]),
            r"counts is zero at the last time \(1\).*use PMP",
        ),
        (lambda: weighting.genpmp([0, 1], [1, 2], cap=0), r"cap=0 must be above zero, or None"),
        (lambda: weighting.genpmp([0, 1], [1, 2], cap=float("nan")), r"cap=nan must be above zero"),
    ],
)
def test_refusals(call, sentence):
    with pytest.raises(InputError, match=sentence):
        call()


def test_every_method_is_listed():
    assert set(weighting.METHODS) == {"plain", "mmp", "pmp", "genpmp"}
    with pytest.raises(TypeError):
        weighting.METHODS["mine"] = weighting.METHODS["plain"]
