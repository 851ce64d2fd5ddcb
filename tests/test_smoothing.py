"""Correct and Smooth equals its definition with dense matrices, on every engine."""

import numpy as np
import pytest

import impact_gnn as ig
from impact_gnn.engines import Disk, Memory
from impact_gnn.estimators import Pipeline
from impact_gnn.propagation.smoothing import STEPS, Smoothing, correct_and_smooth, smoothing_paths


def naive(base, label, mean, correct, smooth):
    """E ← α S E + (1−α) E₀ from the errors, added at their usual size.

    Then the same from labels and predictions.
    """

    def spread(start, share):
        out = start
        for _ in range(STEPS):
            out = share * mean @ out + (1 - share) * start
        return out

    known = label >= 0
    truth = np.eye(base.shape[1])[label[known]]
    if correct:
        wrong = np.zeros_like(base)
        wrong[known] = truth - base[known]
        usual = np.abs(wrong[known]).sum(1).mean()
        error = spread(wrong, correct)
        size = np.abs(error).sum(1, keepdims=True)
        base = np.clip(
            base + np.where(size > 1e-3, usual * error / np.maximum(size, 1e-12), 0), 0, None
        )
    if smooth:
        base = base.copy()
        base[known] = truth
        base = spread(base, smooth)
    return base / base.sum(1, keepdims=True)


@pytest.fixture(scope="module")
def graph():
    return ig.tsbm(
        num_nodes=120, num_times=5, num_labels=3, num_features=2, mean_degree=6, seed=0
    ).undirected()


def dense_mean(graph, weighting):
    """The row mean with time weights, from loops over the edges."""
    weight = np.zeros((graph.num_nodes, graph.num_nodes))
    table = ig.weighting.table(weighting, graph.times, graph.counts)
    for source, target in graph.edge_index.T:
        weight[target, source] += table[graph.period[target], graph.period[source]]
    total = weight.sum(1, keepdims=True)
    return np.divide(weight, total, out=np.zeros_like(weight), where=total > 0)


@pytest.mark.parametrize("weighting", ["plain", "pmp", "genpmp"])
@pytest.mark.parametrize(
    "smoothing", [Smoothing(0.8, 0.5), Smoothing(0.0, 0.8), Smoothing(0.5, 0.0)]
)
def test_against_the_definition(graph, weighting, smoothing):
    rng = np.random.default_rng(0)
    base = rng.dirichlet(np.ones(3), graph.num_nodes).astype(np.float32)
    label = np.where(graph.time < 4, graph.y, -1)
    along = smoothing_paths(graph, weighting, Memory())
    (got,) = correct_and_smooth(base, label, along, [smoothing], Memory())
    wanted = naive(
        base.astype(np.float64),
        label,
        dense_mean(graph, weighting),
        smoothing.correct,
        smoothing.smooth,
    )
    assert np.allclose(got, wanted, atol=1e-5)


def test_engines_agree_and_choices_share_work(graph, tmp_path):
    base = np.full((graph.num_nodes, 3), 1 / 3, np.float32)
    label = np.where(graph.time < 4, graph.y, -1)
    choices = [Smoothing(0.0, 0.5), Smoothing(0.5, 0.5), Smoothing(0.5, 0.8)]
    disk = Disk(tmp_path, memory="50MB")
    ours = list(
        correct_and_smooth(base, label, smoothing_paths(graph, "pmp", Memory()), choices, Memory())
    )
    theirs = list(
        correct_and_smooth(base, label, smoothing_paths(graph, "pmp", disk), choices, disk)
    )
    for a, b, one in zip(ours, theirs, choices, strict=True):
        assert np.allclose(a, b, atol=1e-6)
        assert np.array_equal(
            a,
            next(
                correct_and_smooth(
                    base, label, smoothing_paths(graph, "pmp", Memory()), [one], Memory()
                )
            ),
        )


def test_between_types_neighbours_are_met_through_others():
    """Two papers of one author, one labelled.

    It changes the other; a paper without authors retains its prediction.
    """
    graph = ig.TemporalGraph.hetero(
        nodes={
            "paper": {"x": np.zeros((3, 1)), "y": [1, -1, -1], "time": [0, 1, 1]},
            "author": {"num_nodes": 1},
        },
        edges={("author", "writes", "paper"): [[0, 0], [0, 1]]},
        target="paper",
    ).undirected()
    base = np.full((3, 2), 0.5, np.float32)
    label = np.array([1, -1, -1])
    (out,) = correct_and_smooth(
        base, label, smoothing_paths(graph, "plain", Memory()), [Smoothing(0.5, 0.5)], Memory()
    )
    assert out[1, 1] > 0.8
    assert out[2] == pytest.approx([0.5, 0.5])


def test_known_labels_help_and_hidden_ones_never_matter():
    graph = ig.tsbm(
        num_nodes=800,
        num_times=6,
        num_labels=3,
        num_features=2,
        feature_std=4,
        mean_degree=20,
        seed=1,
    )
    plain, smooth = (
        Pipeline("linear", method, cutoff=5, epochs=20).fit(graph)
        for method in ("features", "features+smooth")
    )
    assert smooth.score(graph) > plain.score(graph) + 0.1
    unsmoothed = smooth.without_smoothing().predict_proba(graph)
    assert np.array_equal(unsmoothed, plain.predict_proba(graph))
    hidden = ig.audit.scrambled(graph, 5)
    again = Pipeline("linear", "features+smooth", cutoff=5, epochs=20).fit(hidden)
    assert np.array_equal(again.predict_proba(hidden), smooth.predict_proba(graph))


def test_arguments_that_do_not_fit_are_refused_first(graph, tmp_path):
    with pytest.raises(
        ig.InputError, match="of predictions in memory, more than this engine may use"
    ):
        smoothing_paths(graph, "plain", Disk(tmp_path, memory="1kB"))


def test_unconnected_targets_are_refused_and_a_graph_without_edges_is_not():
    nodes = {
        "a": {"x": np.ones((4, 1)), "y": [0, 1, 0, 1], "time": [0, 0, 1, 1]},
        "b": {"num_nodes": 2},
    }
    apart = ig.TemporalGraph.hetero(nodes=nodes, edges={("b", "of", "b"): [[0], [1]]}, target="a")
    with pytest.raises(ig.InputError, match="no nodes of the target type are connected"):
        Pipeline("linear", "smooth", cutoff=1, epochs=1).fit(apart).predict_proba(apart)
    lone = ig.TemporalGraph(**nodes["a"], edge_index=np.zeros((2, 0), int))
    assert Pipeline("linear", "smooth", cutoff=1, epochs=1).fit(lone).predict_proba(lone).shape == (
        2,
        2,
    )
