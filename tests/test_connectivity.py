"""Relative connectivity equals the paper's loops and handles missing labels."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import paper_connectivity as paper
from impact_gnn import weighting
from impact_gnn.checks import InputError
from impact_gnn.connectivity import FORMS, counting, relative_connectivity

CASES = {
    "plain": {"times": [0, 1, 2, 3, 4], "cutoff": 4},
    "two target periods": {"times": [0, 1, 2, 3, 4], "cutoff": 3},
    "gaps": {"times": [-7, 2, 3, 5, 12], "cutoff": 6},
    "no target": {"times": [0, 1, 2], "cutoff": 9},
    "unlabelled past": {"times": [0, 1, 2, 3], "cutoff": 3, "unlabelled": 0.4},
    "rare labels": {
        "times": [0, 1, 2, 3, 4],
        "cutoff": 4,
        "num_labels": 7,
        "num_nodes": 14,
        "num_edges": 20,
    },
    "no meeting of the same time": {"times": [0, 1, 2, 3], "cutoff": 3, "same_time": False},
}


def graph(
    times, cutoff, num_labels=3, num_nodes=40, num_edges=150, unlabelled=0.0, same_time=True, seed=0
):
    rng = np.random.default_rng(seed)
    time = np.concatenate([times, rng.choice(times, num_nodes - len(times))])
    label = rng.integers(0, num_labels, num_nodes)
    label[rng.random(num_nodes) < unlabelled] = -1
    edge_index = rng.integers(0, num_nodes, (2, num_edges))
    if not same_time:
        edge_index = edge_index[:, time[edge_index[0]] != time[edge_index[1]]]
    return edge_index, label, time, {"num_labels": num_labels, "cutoff": cutoff}


@pytest.fixture(params=CASES.values(), ids=CASES.keys())
def case(request):
    return graph(**request.param)


@pytest.fixture(params=FORMS)
def form(request):
    return request.param


def shares(edge_index, label, time, options, form):
    count = paper.handed_out if form == "unbiased" else paper.counted
    return count(edge_index, label, time, options["num_labels"], options["cutoff"])


def test_counts_are_the_papers(case, form):
    edge_index, label, time, options = case
    c = relative_connectivity(edge_index, label, time, **options, form=form)
    expected = paper.counted(edge_index, label, time, options["num_labels"], options["cutoff"])
    assert_allclose(c.counted, expected, atol=1e-14)
    assert_array_equal(c.times, np.unique(time))


def test_g_is_the_papers(case, form):
    edge_index, label, time, options = case
    c = relative_connectivity(edge_index, label, time, **options, form=form)
    g, missing = paper.g(shares(*case, form), c.times, options["cutoff"], form)
    assert_allclose(c.g, g, atol=1e-12)
    assert_array_equal(c.unobserved, missing)
    assert_array_equal(c.deltas, np.unique(np.abs(np.subtract.outer(c.times, c.times))))


def test_extension_is_the_papers(case, form):
    edge_index, label, time, options = case
    c = relative_connectivity(edge_index, label, time, **options, form=form)
    assert_allclose(
        c.extended,
        paper.extended(shares(*case, form), c.times, options["cutoff"], form),
        atol=1e-12,
    )


def test_label_mass_is_the_sum_over_the_dense_array(case, form):
    edge_index, label, time, options = case
    c = relative_connectivity(edge_index, label, time, **options, form=form)
    extended = c.extended
    table = np.random.default_rng(1).random((len(c.times), len(c.times)))
    for omega in (table, weighting.pmp(c.times), weighting.mmp(c.times) ** 2):
        assert_allclose(c.label_mass(omega), np.einsum("ts,ytzs->ytz", omega, extended), atol=1e-13)


def test_both_ways_of_counting_agree(case):
    edge_index, label, time, options = case
    few, times = options["num_labels"], len(np.unique(time))
    # labels without nodes: too many for a histogram, none in the counts
    many = counting.HISTOGRAM_CELLS // times**2
    dense = relative_connectivity(edge_index, label, time, **options).pairs
    blocks = relative_connectivity(edge_index, label, time, **options | {"num_labels": many}).pairs
    assert_array_equal(dense.known.toarray(), blocks.known[: few * times, : few * times].toarray())
    assert_array_equal(dense.unknown.toarray(), blocks.unknown[: few * times].toarray())
    assert blocks.known.sum() == dense.known.sum()


def test_many_edges_in_many_blocks_and_threads(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    rng = np.random.default_rng(0)
    code = rng.integers(0, 12, 1000).astype(np.uint8)
    edge_index = rng.integers(0, 1000, (2, 2 * counting.PART + 1)).astype(np.int32)
    pairs = counting.count_pairs(edge_index, code, 9, 3)
    expected = np.zeros((12, 12), np.int64)
    np.add.at(expected, (code[edge_index[1]], code[edge_index[0]]), 1)
    assert_array_equal(pairs.known.toarray(), expected[:9, :9])
    assert_array_equal(pairs.unknown.toarray(), expected[:9, 9:])


def test_rows_sum_to_one_where_anything_is_known(case):
    edge_index, label, time, options = case
    c = relative_connectivity(edge_index, label, time, **options)
    total = c.extended.sum((2, 3))
    known = c.g.any((1, 2))
    assert known.any()
    assert_allclose(total[known], 1, atol=1e-12)
    assert (total[~known] == 0).all()


def test_counted_rows_sum_to_the_share_of_neighbours_with_a_known_label():
    edge_index, label, time, options = graph([0, 1, 2], 2, unlabelled=0.3)
    c = relative_connectivity(edge_index, label, time, **options)
    known = (label >= 0) & (time < 2)
    for y in range(3):
        for t in (0, 1):
            into = known[edge_index[1]] & (label[edge_index[1]] == y) & (time[edge_index[1]] == t)
            assert_allclose(c.counted[y, t].sum(), known[edge_index[0, into]].mean())


def separable(g, nodes, times, cutoff):
    """A graph whose counts are exactly nodes[y,t]·g[y,ỹ,Δ], so that assumption 3 holds without
    noise.
    """
    num_labels = len(g)
    states = [(y, t) for y in range(num_labels) for t in times]
    edges = [
        (j, i)
        for i, (y, t) in enumerate(states)
        for j, (z, s) in enumerate(states)
        for _ in range(nodes[y][times.index(t)] * g[y][z][abs(s - t)])
    ]
    label, time = (np.array(part) for part in zip(*states, strict=True))
    return np.array(edges).T, label, time, {"num_labels": num_labels, "cutoff": cutoff}


@pytest.fixture
def exact():
    g = np.array([[[6, 4, 3, 2, 2], [2, 2, 1, 1, 1]], [[1, 1, 0, 0, 0], [9, 6, 5, 1, 1]]])
    return g, separable(g, [[1, 2, 1, 3, 1], [2, 1, 1, 1, 2]], [0, 1, 2, 3, 4], 4)


def test_unbiased_recovers_g_and_printed_falls_short(exact):
    g, (edge_index, label, time, options) = exact
    truth = g / g[:, :, 0].sum(1)[:, None, None]
    unbiased = relative_connectivity(edge_index, label, time, **options).g
    printed = relative_connectivity(edge_index, label, time, **options, form="printed").g
    assert_allclose(unbiased[:, :, :4], truth[:, :, :4], rtol=1e-12)
    assert_allclose(printed[:, :, 0], truth[:, :, 0], rtol=1e-12)
    there = truth[:, :, 1:4] > 0
    assert (printed[:, :, 1:4][there] < 0.9 * truth[:, :, 1:4][there]).all()


def test_extension_is_exact_where_assumption_3_is(exact):
    # The largest distance cannot be observed; here g is constant from the one before, as the
    # extension supposes.
    g, (edge_index, label, time, options) = exact
    c = relative_connectivity(edge_index, label, time, **options)
    assert c.unobserved[:, -1].all()
    assert not c.unobserved[:, :-1].any()
    for y in range(2):
        for t in range(5):
            truth = np.array([[g[y, z, abs(s - t)] for s in range(5)] for z in range(2)])
            assert_allclose(c.extended[y, t], truth / truth.sum(), rtol=1e-12)


def test_missing_labels_do_not_bend_g(exact):
    # Every edge source gets a twin of the same time; in period 1 the twins have no label.
    g, (edge_index, label, time, options) = exact
    nodes = len(label)
    doubled = np.concatenate([edge_index, edge_index + np.array([[nodes], [0]])], axis=1)
    twin = np.where(time == 1, -1, label)
    c = relative_connectivity(doubled, np.concatenate([label, twin]), np.tile(time, 2), **options)
    assert_allclose(c.g[:, :, :4], (g / g[:, :, 0].sum(1)[:, None, None])[:, :, :4], rtol=1e-12)


def test_gaps_are_bridged_by_interpolation():
    # Times 0, 1, 4 and the target 6: distances 2 and 5, 6 are unobserved, 1, 3, 4 observed.
    g = np.zeros((1, 1, 7), int)
    g[0, 0] = [8, 6, 5, 4, 2, 2, 2]
    edge_index, label, time, options = separable(g, [[1, 1, 1, 1]], [0, 1, 4, 6], 6)
    c = relative_connectivity(edge_index, label, time, **options)
    assert_array_equal(c.deltas, [0, 1, 2, 3, 4, 5, 6])
    assert_array_equal(c.unobserved[0], [False, False, True, False, False, True, True])
    assert_allclose(c.extended[0, 3, 0], np.array([2, 2, 5, 8]) / 17)


def test_labels_at_or_after_the_cutoff_are_never_read(case, form):
    edge_index, label, time, options = case
    first = relative_connectivity(edge_index, label, time, **options, form=form)
    scrambled = np.where(
        time < options["cutoff"], label, np.random.default_rng(5).integers(-1, 1000, len(label))
    )
    second = relative_connectivity(edge_index, scrambled, time, **options, form=form)
    assert_array_equal(first.counted, second.counted)
    assert_array_equal(first.extended, second.extended)


def test_shifting_all_times_changes_nothing(case, form):
    edge_index, label, time, options = case
    first = relative_connectivity(edge_index, label, time, **options, form=form)
    moved = dict(options, cutoff=options["cutoff"] + 1990)
    second = relative_connectivity(edge_index, label, time + 1990, **moved, form=form)
    assert_array_equal(first.g, second.g)
    assert_array_equal(first.extended, second.extended)


def test_renaming_nodes_and_shuffling_edges_changes_nothing(case, form):
    edge_index, label, time, options = case
    rng = np.random.default_rng(3)
    order = rng.permutation(len(label))
    place = np.argsort(order)
    shuffled = place[edge_index][:, rng.permutation(edge_index.shape[1])]
    first = relative_connectivity(edge_index, label, time, **options, form=form)
    second = relative_connectivity(shuffled, label[order], time[order], **options, form=form)
    assert_array_equal(first.extended, second.extended)


def test_renaming_labels_renames_the_result(case, form):
    edge_index, label, time, options = case
    names = np.random.default_rng(3).permutation(options["num_labels"])
    first = relative_connectivity(edge_index, label, time, **options, form=form)
    second = relative_connectivity(
        edge_index, np.where(label < 0, -1, names[label]), time, **options, form=form
    )
    assert_allclose(second.extended[names][:, :, names], first.extended, atol=1e-14)


def test_torch_tensors_and_other_integers_are_read():
    torch = pytest.importorskip("torch")
    edge_index, label, time, options = graph([0, 1, 2], 2)
    first = relative_connectivity(edge_index, label, time, **options).extended
    tensors = (torch.from_numpy(part) for part in (edge_index, label, time))
    assert_array_equal(relative_connectivity(*tensors, **options).extended, first)
    for other in (
        edge_index.astype(np.int32),
        edge_index.astype(np.uint16),
        np.asfortranarray(edge_index),
    ):
        assert_array_equal(relative_connectivity(other, label, time, **options).extended, first)


@pytest.fixture(scope="module")
def large():
    rng = np.random.default_rng(0)
    nodes, labels, times = 20_000, 1000, 20
    time = rng.integers(0, times, nodes)
    label = rng.integers(0, labels, nodes)
    edge_index = rng.integers(0, nodes, (2, 200_000))
    return relative_connectivity(edge_index, label, time, num_labels=labels, cutoff=18)


def test_many_labels_stay_sparse(large):
    assert large.pairs.known.nnz < 200_000
    mass = large.label_mass(np.ones((20, 20)))
    assert mass.shape == (1000, 20, 1000)
    assert_allclose(mass.sum(2), 1)


@pytest.mark.parametrize("name", ["counted", "extended"])
def test_dense_arrays_that_do_not_fit_are_refused(large, name):
    with pytest.raises(
        InputError,
        match=rf"{name} would need 3,052 MiB for 1000 labels and 20 times.* bin the times",
    ):
        getattr(large, name)


def test_nothing_is_read_from_an_edge_that_points_outside():
    edge_index, label, time, options = graph([0, 1, 2], 2)
    for wrong, at in ((-1, 3), (40, 149)):
        bad = edge_index.copy()
        bad[1, at] = wrong
        with pytest.raises(InputError, match=rf"edge {at} has target {wrong}, but there are 40"):
            relative_connectivity(bad, label, time, **options)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"form": "exact"}, "form='exact' is not valid; choose one of 'unbiased', 'printed'"),
        ({"num_labels": 0}, "num_labels=0 must be at least 1"),
        ({"num_labels": 2}, "but there are 2 classes"),
        ({"num_labels": 2.5}, "num_labels=2.5 is not a whole number"),
        ({"cutoff": "2018"}, "cutoff='2018' is not a whole number"),
        ({"cutoff": 0}, "no edge connects two nodes whose labels are known before cutoff=0"),
        ({"time": []}, "time is empty"),
        ({"time": [0, 1]}, "label has 40 entries for 2 nodes"),
        ({"label": [0, 1]}, "label has 2 entries for 40 nodes"),
        ({"edge_index": np.zeros((3, 2), int)}, r"edge_index has shape \(3, 2\); .*transpose it"),
        ({"edge_index": np.full((2, 1), 0.5)}, "edge_index must be whole numbers"),
        ({"edge_index": np.zeros((2, 0), int)}, "no edge connects two nodes"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(change, sentence):
    edge_index, label, time, options = graph([0, 1, 2], 2)
    with pytest.raises(InputError, match=sentence):
        relative_connectivity(
            **({"edge_index": edge_index, "label": label, "time": time} | options | change)
        )


def test_questions_about_what_is_not_there_are_refused():
    edge_index, label, time, options = graph([0, 1, 2], 2)
    c = relative_connectivity(edge_index, label, time, **options)
    assert repr(c).startswith("RelativeConnectivity(3 labels, 3 times of which 2 known")
    with pytest.raises(InputError, match=r"shape \(2, 2\); use finite weights \[3, 3\]"):
        c.label_mass(np.ones((2, 2)))
