"""Metapath hops equal materialised path matrices; label metapaths exclude own and future labels."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sparse
from hypothesis import given, settings
from hypothesis import strategies as st

import impact_gnn as ig
from graphs import Counting
from impact_gnn import weighting as weights
from impact_gnn.engines import Disk
from impact_gnn.propagation.metapaths import (
    factors,
    metapath_hops,
    metapath_label_hops,
    metapaths,
    path_name,
)

METHODS = ["plain", "mmp", "pmp", "genpmp"]
CUTOFF = 5


def academic(seed, *, weighted=False, dtype=np.float64, num_labels=3, num_times=7):
    """A small undirected graph of papers (timed), authors and fields, the latter with features and
    no time.
    """
    rng = np.random.default_rng(seed)
    papers, authors, fields = 40, 15, 6
    time = rng.integers(0, num_times, papers)
    time[:2], time[2:4] = 0, num_times - 1
    y = rng.integers(0, num_labels, papers)
    y[rng.random(papers) < 0.2] = -1
    y[0], y[1] = num_labels - 1, 0
    edges = {
        ("author", "writes", "paper"): np.stack(
            [rng.integers(0, authors, 80), rng.integers(0, papers, 80)]
        ),
        ("paper", "cites", "paper"): rng.integers(0, papers, (2, 90)),
        ("paper", "topic", "field"): np.stack(
            [rng.integers(0, papers, 50), rng.integers(0, fields, 50)]
        ),
    }
    if weighted:
        edges = {triple: (ends, rng.random(ends.shape[1])) for triple, ends in edges.items()}
    return ig.TemporalGraph.hetero(
        nodes={
            "paper": {"x": rng.standard_normal((papers, 5)).astype(dtype), "y": y, "time": time},
            "author": {"num_nodes": authors},
            "field": {"num_nodes": fields, "x": rng.standard_normal((fields, 3)).astype(dtype)},
        },
        edges=edges,
        target="paper",
        num_labels=num_labels,
    ).undirected()


def table_of(graph, method, source):
    return weights.table(
        method, graph.times, np.bincount(graph.period_of(source), minlength=len(graph.times))
    )


def step_matrix(graph, relation, method):
    """The weighted mean over one relation as a matrix [targets, sources].

    The table where both ends have a time.
    """
    part = graph.relations[relation]
    source, target = part.edge_index
    value = np.ones(part.num_edges) if part.weight is None else part.weight.astype(float)
    ends = graph.nodes[relation[0]], graph.nodes[relation[2]]
    if ends[0].time is not None and ends[1].time is not None:
        table = table_of(graph, method, relation[0])
        value = (
            value
            * table[graph.period_of(relation[2])[target], graph.period_of(relation[0])[source]]
        )
    return rows_to_one(
        sparse.csr_matrix((value, (target, source)), (ends[1].num_nodes, ends[0].num_nodes))
    )


def rows_to_one(matrix):
    total = np.asarray(matrix.sum(1)).ravel()
    return sparse.diags(np.divide(1, total, out=np.zeros_like(total), where=total > 0)) @ matrix


def path_matrix(graph, path, method, mode):
    """The whole path as a matrix, by the definitions of the two ways to weight it."""
    timed = graph.nodes[path[0][0]].time is not None
    ends = mode == "ends" and timed
    whole = sparse.identity(graph.nodes[path[0][0]].num_nodes)
    for relation in path:
        whole = step_matrix(graph, relation, "plain" if ends else method) @ whole
    if ends:
        table = table_of(graph, method, path[0][0])
        whole = rows_to_one(
            whole.multiply(table[np.ix_(graph.period, graph.period_of(path[0][0]))]).tocsr()
        )
    return whole.toarray()


# -- which paths


def test_paths_in_a_fixed_order_from_types_with_features():
    names = [path_name(path) for path in metapaths(academic(0), 2)]
    assert names == [
        "paper-cites-paper",
        "field-rev_topic-paper",
        "paper-rev_writes-author-writes-paper",
        "paper-cites-paper-cites-paper",
        "paper-topic-field-rev_topic-paper",
        "field-rev_topic-paper-cites-paper",
    ]


def test_paths_can_begin_at_any_type_and_join():
    graph = academic(0)
    paths = metapaths(graph, 3, start="author")
    assert all(
        path[0][0] == "author" and path[-1][2] == "paper" and len(path) <= 3 for path in paths
    )
    assert all(a[2] == b[0] for path in paths for a, b in pairwise(path))
    # Every way of relations, by brute force.
    ways = [()]
    count = 0
    for _ in range(3):
        ways = [
            (*way, r)
            for way in ways
            for r in graph.relations
            if r[0] == (way[-1][2] if way else "author")
        ]
        count += sum(way[-1][2] == "paper" for way in ways)
    assert len(paths) == len(set(paths)) == count


# -- features


@settings(max_examples=12)
@given(
    seed=st.integers(0, 10**6),
    weighted=st.booleans(),
    method=st.sampled_from(METHODS),
    mode=st.sampled_from(["edges", "ends"]),
)
def test_equals_the_materialised_path_matrix(seed, weighted, method, mode):
    graph = academic(seed, weighted=weighted)
    hops = metapath_hops(graph, weighting=method, metapath_weighting=mode)
    assert list(hops) == [path_name(path) for path in metapaths(graph, 2)]
    for path in metapaths(graph, 2):
        expected = path_matrix(graph, path, method, mode) @ graph.nodes[path[0][0]].x
        error = hops[path_name(path)] - expected
        # In all three norms that matter: every entry, every row, and the whole.
        assert np.abs(error).max() <= 1e-13
        assert np.linalg.norm(error, axis=1).max() <= 1e-13
        assert np.linalg.norm(error) <= 1e-14 * max(np.linalg.norm(expected), 1) * len(error)


@pytest.mark.parametrize("mode", ["edges", "ends"])
def test_single_precision_error_is_that_of_single_precision(mode):
    graph = academic(1, dtype=np.float32)
    for name, hop in metapath_hops(
        graph, length=3, weighting="genpmp", metapath_weighting=mode
    ).items():
        path = next(p for p in metapaths(graph, 3) if path_name(p) == name)
        expected = path_matrix(graph, path, "genpmp", mode) @ graph.nodes[path[0][0]].x.astype(
            float
        )
        assert hop.dtype == np.float32
        assert np.linalg.norm(hop - expected) <= 3e-7 * np.linalg.norm(expected)
        assert np.abs(hop - expected).max() <= 2e-6


@pytest.mark.parametrize("mode", ["edges", "ends"])
def test_any_table_also_one_that_the_singular_vectors_factor(mode):
    graph = academic(2)
    rng = np.random.default_rng(0)
    late = rng.random(len(graph.times)) + 0.1
    for table in (np.outer(late, late[::-1]), np.tril(rng.random((7, 7))), rng.random((7, 7))):
        hops = metapath_hops(graph, weighting=table, metapath_weighting=mode)
        for path in metapaths(graph, 2, start="paper"):
            whole = sparse.identity(graph.num_nodes)
            for relation in path:
                step = step_matrix(graph, relation, "plain")
                if mode == "edges" and relation[0] == relation[2]:
                    part = graph.relations[relation]
                    s, t = part.edge_index
                    value = table[graph.period[t], graph.period[s]]
                    step = rows_to_one(sparse.csr_matrix((value, (t, s)), (graph.num_nodes,) * 2))
                whole = step @ whole
            if mode == "ends":
                whole = rows_to_one(
                    whole.multiply(table[np.ix_(graph.period, graph.period)]).tocsr()
                )
            np.testing.assert_allclose(
                hops[path_name(path)], whole @ graph.x, rtol=1e-11, atol=1e-12
            )


def test_one_step_between_timed_types_is_the_same_in_both_ways():
    graph = academic(3)
    by_edges = metapath_hops(graph, length=1, weighting="pmp")["paper-cites-paper"]
    by_ends = metapath_hops(graph, length=1, weighting="pmp", metapath_weighting="ends")[
        "paper-cites-paper"
    ]
    np.testing.assert_allclose(by_edges, by_ends, rtol=1e-12, atol=1e-14)


def test_only_the_ends_correct_a_way_through_untimed_nodes():
    graph = academic(4)
    name = "paper-rev_writes-author-writes-paper"
    plain = metapath_hops(graph)[name]
    assert np.array_equal(metapath_hops(graph, weighting="pmp")[name], plain)
    assert not np.allclose(
        metapath_hops(graph, weighting="pmp", metapath_weighting="ends")[name], plain
    )


def test_mmp_on_the_ends_receives_nothing_from_the_future():
    graph = academic(5)
    before = metapath_hops(graph, weighting="mmp", metapath_weighting="ends")
    changed = np.where((graph.time == 6)[:, None], 100.0, graph.x)
    changed_graph = graph.with_features(changed)
    after = metapath_hops(changed_graph, weighting="mmp", metapath_weighting="ends")
    for path in metapaths(graph, 2, start="paper"):
        name = path_name(path)
        hop = before[name]
        assert np.array_equal(hop[graph.time < 6], after[name][graph.time < 6])


def test_features_of_another_type():
    graph = academic(6)
    x = np.random.default_rng(0).standard_normal((15, 2))
    authors = replace(graph.nodes["author"], features=x, ready=True)
    graph = graph.with_parts({**graph.nodes, "author": authors}, dict(graph.relations))
    hops = metapath_hops(graph, weighting="pmp", metapath_weighting="ends")
    for path in metapaths(graph, 2, start="author"):
        np.testing.assert_allclose(
            hops[path_name(path)], path_matrix(graph, path, "pmp", "edges") @ x, atol=1e-13
        )


def test_shared_beginnings_are_computed_once():
    graph, engine = academic(7), Counting()
    metapath_hops(graph, length=3, engine=engine)
    prefixes = {path[:k] for path in metapaths(graph, 3) for k in range(1, len(path) + 1)}
    assert len(engine.calls) == len(prefixes) < sum(map(len, metapaths(graph, 3)))


@pytest.mark.parametrize("mode", ["edges", "ends"])
def test_some_rows_only(mode):
    graph, rows = academic(7), np.array([3, 0, 17])
    options = {"weighting": "pmp", "metapath_weighting": mode}
    some, whole = metapath_hops(graph, rows=rows, **options), metapath_hops(graph, **options)
    for name, hop in whole.items():
        np.testing.assert_allclose(np.asarray(some[name]), hop[rows], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("mode", ["edges", "ends"])
def test_disk_gives_the_same_bits(mode, tmp_path):
    graph = academic(8, dtype=np.float32, num_times=4)
    engine = Disk(tmp_path / "work", memory="4kB")
    options = {"weighting": "pmp", "metapath_weighting": mode}
    expected = metapath_hops(graph, **options)
    hops = metapath_hops(graph, engine=engine, **options)
    assert list(hops) == list(expected)
    assert all(np.array_equal(hops[name], hop) for name, hop in expected.items())
    labels = metapath_label_hops(graph.masked(3), length=1, **options)
    label_hops = metapath_label_hops(graph.masked(3), length=1, engine=engine, **options)
    assert all(np.array_equal(label_hops[name], hop) for name, hop in labels.items())
    # in the same place
    other = metapath_hops(graph, weighting="mmp", metapath_weighting=mode, engine=engine)
    for name, hop in metapath_hops(graph, weighting="mmp", metapath_weighting=mode).items():
        assert np.array_equal(other[name], hop)


# -- the factorisation


@given(
    seed=st.integers(0, 10**6),
    size=st.integers(1, 9),
    rank=st.integers(1, 4),
    kind=st.integers(0, 2),
)
def test_factors_give_the_table_back_without_cancellation(seed, size, rank, kind):
    rng = np.random.default_rng(seed)
    table = (
        rng.integers(0, 3, (size, size)).astype(float) if kind == 0 else rng.random((size, size))
    )
    if kind == 2:
        table = rng.random((size, rank)) @ rng.random((rank, size))
    left, right = factors(table)
    np.testing.assert_allclose(left @ right, table, atol=1e-12 * max(table.max(), 1))
    assert min(left.min(), right.min()) >= 0
    assert len(right) <= size


@pytest.mark.parametrize(("size", "terms"), [(2, 2), (10, 6), (20, 11), (11, 11)])
def test_pmp_needs_about_half_as_many_terms_as_an_even_number_of_periods(size, terms):
    left, right = factors(weights.pmp(np.arange(size)))
    assert len(right) == terms
    assert left.min() >= 0
    assert right.min() >= 0


# -- labels


@settings(max_examples=12)
@given(
    seed=st.integers(0, 10**6),
    weighted=st.booleans(),
    method=st.sampled_from(METHODS),
    mode=st.sampled_from(["edges", "ends"]),
)
def test_labels_equal_the_path_matrix_without_its_diagonal(seed, weighted, method, mode):
    view = academic(seed, weighted=weighted).masked(CUTOFF)
    hops = metapath_label_hops(view, weighting=method, metapath_weighting=mode)
    known = np.where(view.y[:, None] == np.arange(3), 1.0, 0.0)
    for path in metapaths(view, 2, start="paper"):
        matrix = path_matrix(view, path, method, mode)
        np.fill_diagonal(matrix, 0)
        expected = matrix @ known
        total = expected.sum(1, keepdims=True)
        expected = np.divide(expected, total, out=np.zeros_like(expected), where=total > 1e-9)
        np.testing.assert_allclose(hops[path_name(path)], expected, atol=1e-6)


@pytest.mark.parametrize("mode", ["edges", "ends"])
def test_the_own_label_never_changes_the_own_row(mode):
    graph = academic(11, weighted=True)
    options = {"weighting": "pmp", "metapath_weighting": mode}
    before = metapath_label_hops(graph.masked(CUTOFF), **options)
    for v in np.flatnonzero((graph.time < CUTOFF) & (graph.y >= 0)):
        y = np.array(graph.y)
        y[v] = (y[v] + 1) % 3
        after = metapath_label_hops(graph.with_labels(y).masked(CUTOFF), **options)
        for name, hop in before.items():
            np.testing.assert_allclose(after[name][v], hop[v], rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("mode", ["edges", "ends"])
def test_a_node_with_no_neighbour_but_itself_receives_nothing(mode):
    """Many ways lead back to the one paper of 300 authors.

    The remainder without it must be zero.
    """
    rng = np.random.default_rng(0)
    authors = np.arange(300)
    weight = rng.random(300)
    graph = ig.TemporalGraph.hetero(
        nodes={"paper": {"y": [1, 0, -1], "time": [0, 0, 1]}, "author": {"num_nodes": 301}},
        edges={("author", "writes", "paper"): (np.stack([authors, 0 * authors]), weight)},
        target="paper",
    ).undirected()
    hops = metapath_label_hops(graph.masked(1), weighting="pmp", metapath_weighting=mode)
    assert all((hop == 0).all() for hop in hops.values())


@pytest.mark.parametrize("mode", ["edges", "ends"])
def test_target_labels_are_never_used(mode):
    graph = academic(12)
    scrambled = np.where(
        graph.time >= CUTOFF, np.random.default_rng(0).integers(0, 3, graph.num_nodes), graph.y
    )
    one, other = (
        metapath_label_hops(g.masked(CUTOFF), weighting="pmp", metapath_weighting=mode)
        for g in (graph, graph.with_labels(scrambled))
    )
    assert all(np.array_equal(hop, other[name]) for name, hop in one.items())


# -- refusals


def test_refusals():
    graph = academic(0)
    with pytest.raises(
        ig.InputError, match="length=0 is not valid; use a whole number of at least 1"
    ):
        metapaths(graph, 0)
    with pytest.raises(ig.InputError, match="start='venue' is not valid"):
        metapaths(graph, 2, start="venue")
    with pytest.raises(ig.InputError, match="more than 10,000 metapaths of length 30"):
        metapaths(graph, 30)
    with pytest.raises(ig.InputError, match="metapath_weighting='nodes' is not valid"):
        metapath_hops(graph, metapath_weighting="nodes")
    with pytest.raises(ig.InputError, match="weighting is a table of shape"):
        metapath_hops(graph, weighting=np.ones((2, 2)), metapath_weighting="ends")
    with pytest.raises(ig.InputError, match=r"pass graph.masked\(cutoff\)"):
        metapath_label_hops(graph)
    with pytest.raises(ig.InputError, match="length=3 must be 1 or 2"):
        metapath_label_hops(graph.masked(CUTOFF), length=3)


def test_a_graph_without_a_way_is_refused_with_the_remedy():
    graph = ig.TemporalGraph.hetero(
        nodes={"paper": {"x": np.ones((2, 1)), "time": [0, 1]}, "author": {"num_nodes": 1}},
        edges={("author", "writes", "paper"): [[0, 0], [0, 1]]},
        target="paper",
    )
    with pytest.raises(
        ig.InputError, match=r"no metapath of up to 2 relations.*use graph.undirected\(\)"
    ):
        metapath_hops(graph)


def test_names_that_would_mix_two_paths_are_refused():
    ends = np.array([[0], [1]])
    graph = ig.TemporalGraph.hetero(
        nodes={"p": {"x": np.ones((2, 1)), "time": [0, 1]}},
        edges={("p", "a-p-b", "p"): ends, ("p", "a", "p"): ends, ("p", "b", "p"): ends},
        target="p",
    )
    with pytest.raises(ig.InputError, match="two metapaths have the same name"):
        metapath_hops(graph)
