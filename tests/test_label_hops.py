"""Label hops exclude the own label exactly, ignore target labels and have the right sums."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import impact_gnn as ig
from impact_gnn.engines import Disk, Memory
from impact_gnn.propagation.labels import label_hops, own_share
from impact_gnn.propagation.metapaths import metapath_label_hops
from impact_gnn.weighting import FirstHop

CUTOFF = 3


def random_graph(seed, weighted=False):
    rng = np.random.default_rng(seed)
    n, e = 30, 120
    time = rng.integers(0, 5, n)
    time[:2], time[2:4] = 0, 4
    edges = rng.integers(0, n, (2, e))
    # reverses, loops and duplicates
    edges = np.concatenate([edges, edges[::-1, : e // 2], edges[:, :10]], axis=1)
    y = rng.integers(0, 3, n)
    y[rng.random(n) < 0.2] = -1
    y[0] = 1
    weight = rng.random(edges.shape[1]) if weighted else None
    return ig.TemporalGraph(y=y, time=time, edge_index=edges, edge_weight=weight, num_labels=3)


def naive(view, method, hops):
    """A dense M; for every node its own label is removed from Y before its row is computed."""
    power = np.eye(view.num_nodes)
    for step in Memory().operators(hops, view, weighting=method):
        power = step.apply(np.eye(view.num_nodes)) @ power
    out = np.zeros((view.num_nodes, view.num_labels))
    for v in range(view.num_nodes):
        for u in range(view.num_nodes):
            if u != v and view.y[u] >= 0:
                out[v, view.y[u]] += power[v, u]
        if out[v].sum() > 1e-9:
            out[v] /= out[v].sum()
    return out


@given(
    seed=st.integers(0, 10**6),
    weighted=st.booleans(),
    method=st.sampled_from(["plain", "mmp", "pmp", "genpmp", "gsmp", FirstHop("gsmp")]),
)
def test_equals_leaving_the_own_label_out(seed, weighted, method):
    view = random_graph(seed, weighted).masked(CUTOFF)
    for hop, hop_values in enumerate(label_hops(view, weighting=method, hops=2), start=1):
        expected = naive(view, method=method, hops=hop)
        np.testing.assert_allclose(hop_values, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("storage", ["float16", "float32"])
def test_coarse_storage_does_not_return_the_own_label(tmp_path, storage):
    """A third of a label, rounded, is not what is subtracted; the rest would become a label."""
    edges = [[1, 2, 3], [0, 0, 0]]
    graph = ig.TemporalGraph(y=[-1, 1, -1, -1, 0, 0], time=[0, 0, 0, 2, 0, 1], edge_index=edges)
    engine = Disk(tmp_path / "hops", storage=storage)
    for hop in label_hops(graph.undirected().masked(2), hops=2, engine=engine):
        assert hop[1].tolist() == [0, 0]
    # The same between types: three papers of one author, one of which has a label.
    graph = ig.TemporalGraph.hetero(
        nodes={"paper": {"y": [1, -1, -1, 0], "time": [0, 0, 2, 1]}, "author": {"num_nodes": 1}},
        edges={("author", "writes", "paper"): [[0, 0, 0], [0, 1, 2]]},
        target="paper",
    )
    for ends in ("edges", "ends"):
        hops = metapath_label_hops(
            graph.undirected().masked(2),
            metapath_weighting=ends,
            engine=Disk(tmp_path / ends, storage=storage),
        )
        assert [np.asarray(hop)[0].tolist() for hop in hops.values()] == [[0, 0]]


@pytest.mark.parametrize("weight", [1.0, 1e6, 1e9, 1e12])
def test_a_heavy_way_back_to_oneself_does_not_reveal_the_own_label(weight):
    """Both classes of neighbours count alike, or neither does, whatever the own label is."""

    def hop(own):
        graph = ig.TemporalGraph.hetero(
            nodes={"p": {"y": [own, 0, 1, -1], "time": [0, 0, 0, 1]}, "q": {"num_nodes": 2}},
            edges={("q", "z", "p"): ([[0, 1, 1, 1], [0, 0, 1, 2]], np.array([weight, 1, 1, 1]))},
            target="p",
        )
        (only,) = metapath_label_hops(graph.undirected().masked(1)).values()
        return only[0]

    np.testing.assert_allclose(hop(0), hop(1), atol=1e-5)
    assert hop(0)[0] == pytest.approx(hop(0)[1], abs=1e-5)


def test_flipping_the_own_label_changes_nothing_for_oneself():
    g = random_graph(3)
    for v in np.flatnonzero((g.time < CUTOFF) & (g.y >= 0)):
        y = np.array(g.y)
        y[v] = (y[v] + 1) % 3
        other = ig.TemporalGraph(y=y, time=g.time, edge_index=g.edge_index, num_labels=3)
        for a, b in zip(
            label_hops(g.masked(CUTOFF), hops=2),
            label_hops(other.masked(CUTOFF), hops=2),
            strict=True,
        ):
            np.testing.assert_allclose(a[v], b[v], atol=1e-6)


def test_target_labels_are_out_of_reach():
    g = random_graph(4)
    scrambled = np.where(
        g.time >= CUTOFF, np.random.default_rng(0).integers(0, 3, g.num_nodes), g.y
    )
    other = ig.TemporalGraph(y=scrambled, time=g.time, edge_index=g.edge_index, num_labels=3)
    for a, b in zip(
        label_hops(g.masked(CUTOFF), hops=2), label_hops(other.masked(CUTOFF), hops=2), strict=True
    ):
        assert np.array_equal(a, b)


def test_refusals():
    g = random_graph(5)
    with pytest.raises(ig.InputError, match="need a view that masks the labels of targets"):
        label_hops(g)
    with pytest.raises(ig.InputError, match="hops=3 must be 1 or 2"):
        label_hops(g.masked(CUTOFF), hops=3)


@pytest.mark.parametrize("options", [{"norm": "sym"}, {"norm": "sum"}, {"self_loop": True}])
def test_only_means_exclude_the_own_label(options):
    step = Memory().operator(random_graph(6), **options)
    with pytest.raises(ig.InputError, match="use one or two mean operators"):
        own_share([step])
