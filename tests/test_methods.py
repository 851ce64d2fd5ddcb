"""The table of method parts: one row describes a part, from inside or outside the package."""

from pathlib import Path

import numpy as np
import pytest
import torch

import impact_gnn as ig
from impact_gnn import methods
from impact_gnn.engines.hop import mapped_hop
from impact_gnn.methods import Kind, Method, ModelKind, Needs, Part
from impact_gnn.methods.builtin import BUILTIN

CUTOFF = 4
OPTIONS = {"cutoff": CUTOFF, "hidden": 8, "epochs": 5, "device": "cpu"}
PAGE = Path(__file__).resolve().parents[1] / "docs" / "methods.md"


@pytest.fixture(scope="module")
def graph():
    return ig.tsbm(num_nodes=200, num_times=5, num_labels=3, num_features=4, seed=0)


@pytest.fixture
def registered():
    """Registers a part for the length of a test."""
    names = []

    def add(**row):
        part = methods.register(Part(name="mine", summary="a part of a test", **row))
        names.append(part.name)
        return part

    yield add
    for name in names:
        methods.unregister(name)


def newest_only(times, counts):
    return np.tile(times == times.max(), (len(times), 1)).astype(float)


def doubled(hops, context):
    assert (context.graph.label[context.graph.time >= CUTOFF] == -1).all()
    return [mapped_hop(hop, lambda values, index: 2 * values + index[:, None]) for hop in hops]


def node_number(graph, nodes):
    assert (graph.label[graph.time >= CUTOFF] == -1).all()
    return np.asarray(nodes, np.float32)[:, None]


def first_period_only(time, label):
    return (time == time.min()).astype(float)


def first_half(context):
    return (np.arange(len(context.train)) < len(context.train) / 2).astype(float)


def small_logits(context):
    return lambda step: 10 * step.logits.square().mean()


def more_epochs(training):
    from dataclasses import replace

    return replace(training, lr=10 * training.lr)


def uniform(probabilities, unsmoothed, evidence):
    return np.full_like(probabilities, 1 / len(evidence.prior))


HOOKS = {
    "edge_weights": (Kind.WEIGHTING, newest_only),
    "align": (Kind.ALIGNMENT, doubled),
    "inputs": (Kind.INPUT, node_number),
    "label_weight": (Kind.TRAINING, first_period_only),
    "row_weight": (Kind.TRAINING, first_half),
    "loss_term": (Kind.TRAINING, small_logits),
    "training": (Kind.TRAINING, more_epochs),
    "adjust": (Kind.PREDICTION, uniform),
}


@pytest.mark.parametrize("hook", HOOKS)
def test_a_part_from_outside_changes_predictions_and_is_saved(graph, registered, hook, tmp_path):
    torch.manual_seed(0)
    kind, function = HOOKS[hook]
    registered(kind=kind, **{hook: function})
    baseline, mine = (ig.Pipeline(method=name, **OPTIONS).fit(graph) for name in ("plain", "mine"))
    probabilities = mine.predict_proba(graph)
    assert not np.allclose(probabilities, baseline.predict_proba(graph), atol=1e-4)
    np.testing.assert_allclose(probabilities.sum(1), 1, atol=1e-5)
    mine.save(tmp_path / "model")
    loaded = ig.Pipeline.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(graph), probabilities)


def test_the_search_tries_a_part_that_has_a_rank(graph, registered):
    from impact_gnn.backtesting.candidates import neighbours_of
    from impact_gnn.estimators import Candidate

    registered(kind=Kind.WEIGHTING, edge_weights=newest_only, search_rank=0, prior_score=9.0)
    assert str(neighbours_of(Candidate.parse("labels"), graph)[0]) == "mine+labels"


@pytest.mark.parametrize(
    ("row", "method", "model", "sentence"),
    [
        ({"models": frozenset({ModelKind.TREES})}, "mine", "sign", "sign does not support 'mine'"),
        ({"requires": ("labels",)}, "mine", "sign", "has 'mine' without 'labels'; write 'labels"),
        ({"conflicts": {"labels": "why"}}, "mine+labels", "sign", "with 'labels': why; drop one"),
        ({"check": lambda method: "reason"}, "mine", "sign", "method 'mine' has 'mine', reason"),
    ],
)
def test_refusals_are_read_from_the_row(graph, registered, row, method, model, sentence):
    registered(kind=Kind.TRAINING, **row)
    with pytest.raises(ig.InputError, match=sentence):
        ig.Pipeline(model, method, **OPTIONS).fit(graph)


def test_needs_are_read_from_the_row(graph, registered):
    from impact_gnn.backtesting.candidates import is_applicable
    from impact_gnn.estimators import Candidate

    registered(kind=Kind.INPUT, needs=frozenset({Needs.UNTIMED_NEIGHBOURS}))
    assert not is_applicable(Candidate.parse("mine"), graph)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [("pmp", "a part 'pmp' already exists"), ("a+b", "'a[+]b' is not a valid name of a part")],
)
def test_names_are_free_and_plain(name, sentence):
    with pytest.raises(ig.InputError, match=sentence):
        methods.register(Part(name, Kind.INPUT, "nothing"))


def test_the_page_lists_every_part():
    rows = [f"| `{part.name}` | {part.kind.value} | {part.summary} |" for part in BUILTIN]
    listed = [
        line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")
    ]
    assert listed[: len(rows)] == rows


def test_methods_are_sets_of_parts_in_one_order():
    method = Method.parse("labels+PMP + center")
    assert str(method) == "pmp+center+labels" == str(method.with_parts("smooth").without("smooth"))
    assert method.weighting == "pmp"
    assert "labels" in method
    assert str(Method.parse("curriculum+drop").without("curriculum")) == "plain"


def test_window_trains_on_the_newest_third_of_the_labels():
    """Whole periods count, and unknown labels do not move the border."""
    time = np.array([1, 1, 1, 2, 2, 2, 3, 3, 3, 4])
    label = np.array([0, 1, 0, 1, 0, 1, 0, 1, 0, -1])
    assert methods.get("window").label_weight(time, label).tolist() == [0] * 3 + [0] * 3 + [1] * 4
