"""Competing methods as parts.

Each changes predictions, is saved, and is refused where not applicable.
"""

import numpy as np
import pytest

import impact_gnn as ig
from impact_gnn.backtesting.candidates import is_applicable, neighbours_of
from impact_gnn.backtesting.effort import Size, cost
from impact_gnn.checks import InputError
from impact_gnn.estimators import Candidate, Pipeline
from impact_gnn.methods import Kind, Part, register, unregister

CUTOFF = 5
OPTIONS = {"cutoff": CUTOFF, "hidden": 8, "epochs": 5, "device": "cpu"}


@pytest.fixture(scope="module")
def graph():
    return ig.tsbm(
        num_nodes=240,
        num_times=6,
        num_labels=3,
        num_features=4,
        feature_std=1.0,
        mean_degree=6,
        seed=0,
    )


PARTS = [("sign", part) for part in ("kmm", "cmd", "vrex", "shift", "bbse", "gsmp", "stamp")]
PARTS += [
    ("trees", "kmm"),
    ("linear", "vrex"),
    ("gcn", "eerm"),
    ("sage", "eerm"),
    ("gcn", "cmd"),
    ("gcn", "gsmp"),
]


@pytest.mark.parametrize(("model", "part"), PARTS)
def test_every_part_changes_predictions_and_is_saved(graph, model, part, tmp_path):
    pipelines = {
        method: Pipeline(model, method, **OPTIONS).fit(graph) for method in ("plain", part)
    }
    probabilities = pipelines[part].predict_proba(graph)
    assert not np.allclose(probabilities, pipelines["plain"].predict_proba(graph), atol=1e-6)
    np.testing.assert_allclose(probabilities.sum(1), 1, atol=1e-5)
    np.testing.assert_array_equal(
        Pipeline(model, part, **OPTIONS).fit(graph).predict_proba(graph), probabilities
    )
    pipelines[part].save(tmp_path / "p")
    np.testing.assert_array_equal(Pipeline.load(tmp_path / "p").predict_proba(graph), probabilities)


@pytest.mark.parametrize(
    ("model", "method", "sentence"),
    [
        ("trees", "vrex", "trees does not support 'vrex', which is for a network over hops"),
        ("prior", "cmd", "prior does not support 'cmd'"),
        ("linear", "cmd", "linear does not support 'cmd'"),
        ("sign", "eerm", "sign does not support 'eerm', which is for a network over the graph;"),
        ("gcn", "stamp", "gcn does not support 'stamp'"),
        ("rphgnn", "stamp", "rphgnn does not support 'stamp'"),
        ("gat", "eerm", "'eerm' edits messages, which attention does not use; use gcn or sage"),
        ("sign", "shift+bbse", "combines 'bbse' with 'shift': both estimate the class proportions"),
        ("gcn", "eerm+labels", "combines 'eerm' with 'labels': edited graphs would contain"),
        ("gcn", "eerm+features", "gcn does not support 'features'"),
    ],
)
def test_impossible_combinations_are_refused(graph, model, method, sentence):
    with pytest.raises(InputError, match=sentence):
        Pipeline(model, method, **OPTIONS).fit(graph)


def test_bbse_needs_a_period_to_count_mistakes_in(graph):
    with pytest.raises(InputError, match="use 'shift'"):
        Pipeline("linear", "bbse", **OPTIONS | {"cutoff": 1}).fit(graph).predict_proba(graph)


@pytest.mark.parametrize("model", ["sign", "gcn"])
def test_the_reference_is_what_must_be_predicted(graph, model):
    """The validation periods while epochs are chosen, then all from the cutoff on."""
    contexts = []
    register(Part("spy", Kind.TRAINING, "records what a term sees", loss_term=contexts.append))
    try:
        Pipeline(model, "spy", **OPTIONS).fit(graph)
    finally:
        unregister("spy")
    periods = [np.unique(one.time[one.reference]).tolist() for one in contexts]
    assert periods == [[4], [5]]
    assert len(contexts[0].time) == (
        graph.num_nodes
        if model == "gcn"
        else len(Pipeline(model, **OPTIONS).inputs(graph).row_nodes)
    )


@pytest.mark.parametrize("part", ["shift", "bbse"])
def test_changed_class_proportions_are_estimated(part):
    """Overlapping classes whose proportions change from .8, .2 to .2, .8 after the cutoff."""
    rng = np.random.default_rng(0)
    time = np.repeat(np.arange(4), 500)
    y = (rng.random(2000) < np.where(time < 3, 0.2, 0.8)).astype(int)
    x = rng.normal(size=(2000, 2)) + 1.2 * y[:, None]
    graph = ig.TemporalGraph(x=x, y=y, time=time, edge_index=np.zeros((2, 0), int))
    plain, moved = (
        Pipeline("linear", f"features{more}", 3, lr=0.1).fit(graph) for more in ("", f"+{part}")
    )
    assert plain.predict_proba(graph)[:, 1].mean() < 0.65
    assert moved.predict_proba(graph)[:, 1].mean() == pytest.approx(0.8, abs=0.05)
    assert moved.score(graph) > plain.score(graph) + 0.03


def test_weights_of_kmm_are_multiplied(graph):
    """A head that learns only class proportions proves that class sums stay, with weights of
    recency too.
    """
    for rest in ("", "+recency"):
        shares = [
            Pipeline("prior", f"features{rest}{more}", **OPTIONS).fit(graph).predict_proba(graph)[0]
            for more in ("", "+kmm")
        ]
        if not rest:
            np.testing.assert_allclose(*shares, atol=1e-6)
        else:
            assert not np.allclose(*shares, atol=1e-6)


def test_the_search_tries_more_parts_with_more_effort_and_never_those_of_studies(graph):
    winner = Candidate.parse("labels")
    quick, normal = (neighbours_of(winner, graph, effort=effort) for effort in ("quick", "normal"))
    new = [one for one in normal if one not in quick]
    assert [one for one in normal if one in quick] == quick
    assert [str(one.method) for one in new] == ["labels+stages", "labels+shift", "gsmp+labels"]


@pytest.mark.parametrize(
    ("text", "can"),
    [
        ("cmd", True),
        ("linear:cmd", False),
        ("trees:vrex", False),
        ("trees:kmm+shift", True),
        ("gcn:eerm", True),
        ("sign:eerm", False),
        ("gcn:gsmp", True),
        ("gcn:stamp", False),
        ("prior:shift", False),
        ("stamp", True),
    ],
)
def test_which_candidates_are_applicable(graph, text, can):
    assert is_applicable(Candidate.parse(text), graph) == can
    if can and not text.startswith("prior"):
        candidate = Candidate.parse(text)
        Pipeline(candidate.model or "sign", candidate.method, **OPTIONS | {"epochs": 1}).fit(graph)


def test_without_edges_or_times_some_are_left_out():
    bare = ig.TemporalGraph(
        x=np.ones((4, 1)), y=[0, 1, 0, -1], time=[0, 1, 1, 2], edge_index=np.zeros((2, 0), int)
    )
    assert is_applicable(Candidate.parse("features+vrex+shift"), bare)
    assert not is_applicable(Candidate.parse("gsmp"), bare)


def test_parts_that_call_the_model_more_often_cost_more(graph):
    size = Size.of(Pipeline(**OPTIONS).inputs(graph))
    price = {
        text: cost(Candidate.parse(text), size, "sign")
        for text in ("plain", "vrex", "cmd", "gcn:plain", "gcn:eerm")
    }
    assert price["plain"] == cost(Candidate.parse("shift"), size, "sign")
    assert price["plain"] < price["vrex"] < price["cmd"]
    assert price["gcn:eerm"] > 3 * price["gcn:plain"]
