"""Pipelines on several node types: whose features reach whom."""

import numpy as np
import pytest

import impact_gnn as ig


@pytest.mark.parametrize("edges", [("a", "writes", "b"), ("b", "of", "a")])
def test_features_that_do_not_reach_the_nodes_leave_their_degrees(edges):
    """Only another type has features and no way leads from it to the nodes: they are seen by their edges."""
    own = ig.tsbm(num_nodes=120, num_times=5, num_labels=2, mean_degree=8, seed=0)
    nodes = {"p": {"y": own.y, "time": own.time}, "a": {"num_nodes": 3, "x": np.eye(3)}, "b": {"num_nodes": 3}}
    relations = {("p", "cites", "p"): own.edge_index, edges: [[0, 1], [1, 2]]}
    g = ig.TemporalGraph.hetero(nodes=nodes, edges=relations, target="p")
    assert np.isfinite(ig.Pipeline("linear", "plain", cutoff=4, epochs=3).fit(g).predict_proba(g)).all()
