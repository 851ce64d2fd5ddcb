"""GSMP and STAMP.

The mean over periods of the mean over their neighbours, in every hop or the first.
"""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import impact_gnn as ig
from impact_gnn.checks import InputError
from impact_gnn.engines import Memory
from impact_gnn.estimators import Method
from impact_gnn.nn import Propagation
from impact_gnn.weighting import FirstHop
from reproduction.hetero_tsbm import hetero_tsbm


def drawn(seed, weighted=False, nodes=25, edges=140):
    rng = np.random.default_rng(seed)
    ends = rng.integers(0, nodes, (2, edges))
    weight = rng.uniform(0.1, 2.0, edges) if weighted else None
    time = rng.integers(2000, 2005, nodes)
    return ig.TemporalGraph(
        x=rng.normal(size=(nodes, 3)), time=time, edge_index=ends, edge_weight=weight
    )


def mean_of_period_means(graph, x):
    """For every node.

    The (weighted) mean over its neighbours of a period, then the mean over the periods present.
    """
    out = np.zeros_like(x)
    weight = np.ones(graph.edge_index.shape[1]) if graph.edge_weight is None else graph.edge_weight
    edges = list(zip(*graph.edge_index, weight, strict=True))
    for v in range(graph.num_nodes):
        means = []
        for t in graph.times:
            neighbours = [(a, u) for u, target, a in edges if target == v and graph.time[u] == t]
            if neighbours:
                means.append(sum(a * x[u] for a, u in neighbours) / sum(a for a, _ in neighbours))
        if means:
            out[v] = sum(means) / len(means)
    return out


@given(seed=st.integers(0, 10**6), weighted=st.booleans())
def test_hops_are_means_of_the_means_of_periods(seed, weighted):
    graph = drawn(seed, weighted)
    first = mean_of_period_means(graph, graph.x)
    weightings = ("gsmp", FirstHop("gsmp"))
    gsmp, stamp = (ig.propagate(graph, weighting=weighting) for weighting in weightings)
    for result, expected in (
        (gsmp[0], first),
        (gsmp[1], mean_of_period_means(graph, first)),
        (stamp[0], first),
        (stamp[1], Memory().operator(graph).apply(first)),
    ):
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


def test_more_neighbours_of_one_period_alike_change_nothing():
    """Where a period's neighbours double, plain means move and these do not.

    The purpose of the method.
    """
    graph = drawn(1)
    late = np.flatnonzero(graph.time[graph.edge_index[0]] == 2004)
    ends = np.concatenate([graph.edge_index, graph.edge_index[:, late]], axis=1)
    more = ig.TemporalGraph(x=graph.x, time=graph.time, edge_index=ends)
    changes = {
        name: np.abs(
            ig.propagate(graph, weighting=name)[1] - ig.propagate(more, weighting=name)[1]
        ).max()
        for name in ("plain", "gsmp")
    }
    assert changes["gsmp"] < 1e-6 < 0.01 < changes["plain"]


@pytest.mark.parametrize("norm", ["mean", "sym", "sum"])
@pytest.mark.parametrize("self_loop", [False, True])
def test_backward_is_the_transpose_and_edges_are_those_of_the_product(norm, self_loop):
    graph = drawn(2, weighted=True)
    step = Propagation.of(graph, weighting="gsmp", norm=norm, self_loop=self_loop)
    dense = step.operator.apply(np.eye(graph.num_nodes))
    x = torch.tensor(graph.x, requires_grad=True)
    slope = torch.randn(x.shape, dtype=x.dtype)
    (step(x) * slope).sum().backward()
    np.testing.assert_allclose(x.grad, dense.T @ slope.numpy(), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(
        step._edge_product(torch.tensor(graph.x), False), dense @ graph.x, rtol=1e-5, atol=1e-6
    )
    rows = np.array([3, 0, 17])
    np.testing.assert_allclose(
        step.operator.apply_rows(graph.x, rows), (dense @ graph.x)[rows], rtol=1e-6, atol=1e-7
    )


def test_between_types_the_time_of_the_source_is_enough():
    """Authors have no time, but receive from papers that have one.

    Their own messages have no period.
    """
    graph = ig.TemporalGraph.hetero(
        nodes={
            "paper": {"x": [[1.0], [3.0], [8.0]], "time": [0, 0, 2]},
            "author": {"num_nodes": 1},
        },
        edges={("author", "writes", "paper"): [[0, 0, 0], [0, 1, 2]]},
        target="paper",
    ).undirected()
    name = "paper-rev_writes-author-writes-paper"
    for weighting in ("gsmp", FirstHop("gsmp")):
        np.testing.assert_allclose(
            ig.metapath_hops(graph, weighting=weighting)[name], 3 * [[5.0]], rtol=1e-6
        )
        with pytest.raises(InputError, match="is not a table over two times, which 'ends' needs"):
            ig.metapath_hops(graph, weighting=weighting, metapath_weighting="ends")


def test_stamp_is_for_the_first_relation_of_a_path():
    graph = hetero_tsbm(
        num_papers=60,
        num_authors=20,
        num_fields=8,
        num_institutions=4,
        num_times=5,
        num_labels=3,
        num_features=4,
        citations=300,
        writes=90,
        topics=60,
        affiliations=20,
        seed=0,
    ).undirected()
    result = ig.metapath_hops(graph, weighting=FirstHop("gsmp"), length=2)
    cites = ("paper", "cites", "paper")
    steps = [Memory().operator(graph, cites, weighting=name) for name in ("gsmp", "plain")]
    np.testing.assert_allclose(
        result["paper-cites-paper-cites-paper"], steps[1].apply(steps[0].apply(graph.x)), rtol=1e-5
    )


@pytest.mark.parametrize("text", ["gsmp+ends", "stamp+pny"])
def test_what_needs_a_table_is_refused(text):
    with pytest.raises(InputError, match="needs weights by two times"):
        Method.parse(text)
