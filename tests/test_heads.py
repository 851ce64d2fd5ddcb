"""All heads have one interface: same rows and weights, same validation rows, saved and restored."""

import numpy as np
import pytest

import impact_gnn as ig
from impact_gnn.estimators import (
    MODELS,
    HeadOptions,
    Inputs,
    Method,
    Pipeline,
    Shape,
    network,
    reads_graph,
    spec_of,
)
from impact_gnn.estimators.trees import LEAST_ROUNDS, MOST_ROUNDS, rounds_of
from impact_gnn.nn import HopTask, Lesson, Split

SPATIAL = [name for name in MODELS if reads_graph(name)]
OVER_HOPS = [name for name in MODELS if name not in (*SPATIAL, "prior")]


@pytest.fixture(scope="module")
def task():
    """Three classes separated by the first hop, and an uninformative label hop."""
    rng = np.random.default_rng(0)
    label = rng.integers(0, 3, 600)
    hop = rng.normal(size=(600, 5)).astype(np.float32)
    hop[np.arange(600), label] += 3
    return HopTask(
        [hop, rng.normal(size=(600, 2)).astype(np.float32)], [rng.random((600, 3), np.float32)]
    ), label


SPLIT = Split(np.arange(0, 300), np.arange(300, 450))
REST = np.arange(450, 600)


def fitted(name, task, label, split=SPLIT, weight=None, rounds=None):
    head = spec_of(name).make(
        Shape([5, 2], [3], 3, [[0, 1]]), HeadOptions(hidden=16, seed=1, device="cpu")
    )
    head.fit(task, Lesson(label, None, weight, split), rounds)
    return head


@pytest.mark.parametrize("name", OVER_HOPS)
def test_a_head_learns_reports_rounds_and_is_restored_from_arrays(name, task):
    hops, label = task
    head = fitted(name, hops, label)
    probabilities = head.probabilities(hops, REST)
    assert probabilities.shape == (150, 3)
    assert probabilities.sum(1) == pytest.approx(np.ones(150), abs=1e-4)
    if name != "sgc":  # which reads the last hop, and here that is noise
        assert (probabilities.argmax(1) == label[REST]).mean() > 0.8
        assert head.valid_score > 0.8
    assert head.rounds >= 1
    again = spec_of(name).make(head.shape, head.options)
    again.restore({key: np.array(value) for key, value in head.arrays().items()})
    assert np.allclose(again.probabilities(hops, REST), probabilities, atol=1e-6)
    assert np.array_equal(fitted(name, hops, label).probabilities(hops, REST), probabilities)


@pytest.mark.parametrize("name", ["linear", "trees", "prior"])
def test_labels_of_other_rows_are_out_of_reach_and_weights_count(name, task):
    hops, label = task
    hidden = np.where(np.arange(600) < 450, label, -1)
    probabilities = fitted(name, hops, hidden).probabilities(hops, REST)
    assert np.array_equal(probabilities, fitted(name, hops, label).probabilities(hops, REST))
    weight = np.where(label == 2, 1e-3, 1.0)
    weighted = fitted(name, hops, hidden, weight=weight).probabilities(hops, REST)
    assert weighted[:, 2].mean() < probabilities[:, 2].mean()


def test_explicit_rounds_are_used_unchanged(task):
    hops, label = task
    everything = Split(SPLIT.all, np.empty(0, np.int64))
    for name in ("trees", "sign"):
        assert fitted(name, hops, label, everything, rounds=7).rounds == 7


@pytest.mark.parametrize(
    ("num_rows", "batch"), [(2048, None), (2049, 1025), (5387, 1796), (300_000, 3000)]
)
def test_batches_of_an_epoch_are_equally_large(num_rows, batch, monkeypatch):
    trainings = []

    def fit(build, task, label, split, training, **options):
        trainings.append(training)
        raise InterruptedError

    monkeypatch.setattr(network.nn, "fit", fit)
    rows = np.zeros((num_rows, 1), np.float32)
    lesson = Lesson(np.zeros(num_rows, int), None, None, Split(np.arange(num_rows), np.arange(0)))
    head = spec_of("sign").make(Shape([1], [], 2, []), HeadOptions(device="cpu"))
    with pytest.raises(InterruptedError):
        head.fit(HopTask([rows]), lesson)
    assert trainings[0].batch_size == batch


def test_prior_predicts_the_class_proportions(task):
    hops, label = task
    probabilities = fitted("prior", hops, label).probabilities(hops, REST)
    assert probabilities[0] == pytest.approx(np.bincount(label[SPLIT.train]) / 300)


def test_rounds_of_boosting_are_bounded_by_work():
    assert rounds_of(100, 10, 3) == MOST_ROUNDS
    assert rounds_of(10**6, 1000, 100) == LEAST_ROUNDS


@pytest.mark.parametrize("model", SPATIAL)
@pytest.mark.parametrize(
    "method", ["labels", "plain", "pmp+smooth", "genpmp+center+smooth", "pmp+jjnorm", "pny"]
)
def test_spatial_networks_are_models_of_the_pipeline(model, method, tmp_path):
    graph = ig.tsbm(num_nodes=200, num_times=5, num_labels=2, num_features=3, mean_degree=8, seed=0)
    pipeline = Pipeline(model, method, cutoff=4, hidden=8, epochs=5, device="cpu").fit(graph)
    probabilities = pipeline.predict_proba(graph)
    assert probabilities.shape == ((graph.time == 4).sum(), 2)
    pipeline.save(tmp_path / "m")
    assert np.allclose(Pipeline.load(tmp_path / "m").predict_proba(graph), probabilities)
    scrambled = Pipeline(model, method, cutoff=4, hidden=8, epochs=5, device="cpu").fit(
        ig.audit.scrambled(graph, 4)
    )
    assert np.array_equal(scrambled.predict_proba(graph), probabilities)
    with pytest.raises(ig.InputError, match=f"{model} does not support 'snapshot'"):
        Pipeline(model, "snapshot", cutoff=4, epochs=1).fit(graph)


def test_degrees_count_edges_and_known_labels():
    graph = ig.TemporalGraph(
        x=np.zeros((5, 1)),
        y=[0, 1, 0, 1, 1],
        time=[0, 0, 1, 2, 2],
        edge_index=[[0, 1, 2, 3, 4], [2, 2, 3, 4, 0]],
    ).masked(2)
    inputs = Inputs(graph)
    (_, counted), _ = inputs.model_inputs(Method.parse("degrees+features"), 2)
    out, into, known_out, known_into = np.expm1(np.asarray(counted)).T.round()
    assert out.tolist() == [1, 1, 1, 1, 1]
    assert into.tolist() == [1, 0, 2, 1, 1]
    assert known_out.tolist() == [1, 1, 0, 0, 1]  # 2 → 3 and 3 → 4 end at targets
    assert known_into.tolist() == [0, 0, 2, 1, 0]
    (_, earlier), _ = inputs.model_inputs(Method.parse("degrees+features"), 1)
    # the label of node 2 is not known yet then
    assert np.expm1(np.asarray(earlier))[3, 3].round() == 0


def test_a_graph_without_features_uses_degrees():
    graph = ig.tsbm(num_nodes=300, num_times=5, num_labels=2, num_features=3, seed=0)
    bare = ig.TemporalGraph(y=graph.y, time=graph.time, edge_index=graph.edge_index)
    for model in ("sign", "trees", "linear"):
        assert Pipeline(model, cutoff=4, epochs=3).fit(bare).predict_proba(bare).shape[1] == 2
