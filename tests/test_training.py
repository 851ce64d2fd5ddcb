"""The training loop.

Hidden labels have no effect, resuming changes nothing, the best epoch is retained.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import impact_gnn as ig
from impact_gnn.nn import (
    GAMLP,
    GCN,
    SGC,
    SIGN,
    Diverged,
    GraphTask,
    HopTask,
    Propagation,
    Split,
    Training,
    fit,
    predict,
    split_rows,
)
from impact_gnn.propagation.hops import propagate
from reproduction.competing.stages import Rlu, fit_stages

CUTOFF, LABELS = 4, 3
CPU = Training(epochs=12, device="cpu", lr=0.05)


def graph(scramble=False):
    g = ig.tsbm(
        num_nodes=200, num_times=6, num_labels=LABELS, num_features=4, feature_std=1.0, seed=1
    )
    y = np.array(g.y)
    if scramble:
        late = g.time >= CUTOFF
        y[late] = np.random.default_rng(0).integers(0, LABELS, late.sum())
    return ig.TemporalGraph(
        x=g.x, y=y, time=g.time, edge_index=g.edge_index, num_labels=LABELS
    ).masked(CUTOFF)


@pytest.fixture(scope="module")
def view():
    return graph()


@pytest.fixture(scope="module")
def split(view):
    return split_rows(view)


def build():
    return SIGN([4], LABELS, hidden=8)


def graph_task(view):
    return GraphTask(view.x, Propagation.of(view, weighting="pmp"))


def gcn():
    return GCN(4, LABELS, 8)


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


# -- hidden labels


def test_split_holds_out_the_last_labelled_periods_only(view):
    for valid, first in ((0, 4), (1, 3), (2, 2)):
        split = split_rows(view, valid=valid)
        assert set(view.time[split.train]) == set(range(first))
        assert set(view.time[split.valid]) == set(range(first, CUTOFF))
        assert (view.y[split.all] >= 0).all()


def test_split_skips_periods_without_labels():
    g = ig.TemporalGraph(
        y=[0, 1, -1, 1, 0], time=[1, 2, 3, 5, 6], edge_index=np.zeros((2, 0), dtype=int)
    )
    split = split_rows(g.masked(5))  # period 3 has no label, 5 and 6 are hidden
    assert split.train.tolist() == [0]
    assert split.valid.tolist() == [1]
    with pytest.raises(
        ig.InputError, match="valid=2 of 2 labelled periods before the cutoff 5 leaves none"
    ):
        split_rows(g.masked(5), valid=2)
    with pytest.raises(ig.InputError, match=r"pass graph\.masked"):
        split_rows(g)


def test_true_labels_of_targets_change_nothing(view):
    other = graph(scramble=True)
    training = replace(CPU, epochs=5)
    a, b = (fit(gcn, graph_task(g), g.y, split_rows(g), training) for g in (view, other))
    assert same(a.state, b.state)


def test_labels_outside_the_split_change_nothing(view, split):
    """Even if a caller passes them by mistake."""
    leaked = np.array(view.y)
    leaked[leaked < 0] = 1
    task = HopTask([view.x])
    a, b = (fit(build, task, y, split, CPU) for y in (view.y, leaked))
    assert same(a.state, b.state)


# -- the loop


@pytest.mark.parametrize("kind", ["hops", "batches", "graph"])
def test_training_learns_and_repeats_bit_by_bit(view, split, kind):
    task, make = (graph_task(view), gcn) if kind == "graph" else (HopTask([view.x]), build)
    training = replace(CPU, batch_size=32 if kind == "batches" else None)
    before = torch.get_rng_state()
    result, again = (fit(make, task, view.y, split, training) for _ in range(2))
    assert torch.equal(before, torch.get_rng_state())
    assert same(result.state, again.state)
    assert [e.loss for e in result.history] == [e.loss for e in again.history]
    assert result.history[-1].loss < result.history[0].loss
    assert result.valid_score == max(e.score for e in result.history)
    assert result.history[result.best_epoch - 1].score == result.valid_score
    other = fit(make, task, view.y, split, replace(training, seed=1))
    assert not same(result.state, other.state)


def test_result_is_the_model_of_the_best_epoch(view, split):
    task = HopTask([view.x])
    result = fit(build, task, view.y, split, CPU)
    guessed = predict(result.model, task, split.valid).argmax(1)
    assert (guessed == view.y[split.valid]).mean() == pytest.approx(result.valid_score)
    fresh = build()
    fresh.load_state_dict(result.state)
    np.testing.assert_array_equal(predict(fresh, task), predict(result.model, task))
    np.testing.assert_allclose(
        predict(result.model, task, batch_size=7), predict(result.model, task), rtol=1e-5
    )


def test_patience_stops_early(view, split):
    result = fit(build, HopTask([view.x]), view.y, split, replace(CPU, epochs=100, patience=3))
    assert len(result.history) == result.best_epoch + 3 < 100


def test_without_validation_rows_the_last_epoch_is_retained(view):
    epochs = []
    training = replace(CPU, epochs=4, patience=1, progress=epochs.append)
    result = fit(build, HopTask([view.x]), view.y, split_rows(view, valid=0), training)
    assert result.best_epoch == 4 == len(result.history)
    assert math.isnan(result.valid_score)
    assert [e.epoch for e in epochs] == [1, 2, 3, 4]


def test_sample_weight_zero_is_the_same_as_leaving_out(view, split):
    task = HopTask([view.x])
    half = split.train[::2]
    weight = np.zeros(view.num_nodes)
    weight[half] = 3
    a = fit(lambda: SGC(4, LABELS), task, view.y, split, CPU, sample_weight=weight)
    b = fit(lambda: SGC(4, LABELS), task, view.y, Split(half, split.valid), CPU)
    for name in a.state:
        torch.testing.assert_close(a.state[name], b.state[name], rtol=1e-4, atol=1e-5)


def test_divergence_names_the_epoch(view, split):
    huge = HopTask([np.array(view.x) * 1e30])
    with pytest.raises(Diverged, match=r"epoch \d+; lower lr"):
        fit(lambda: SGC(4, LABELS, hidden=8), huge, view.y, split, replace(CPU, lr=1e10))
    assert issubclass(Diverged, ig.InputError)


def test_memory_maps_are_read_by_rows(view, split, tmp_path):
    np.save(tmp_path / "x.npy", view.x)
    mapped = HopTask([np.load(tmp_path / "x.npy", mmap_mode="r")])
    assert isinstance(mapped.hops[0], np.memmap)
    training = replace(CPU, batch_size=50, epochs=3)
    a, b = (fit(build, task, view.y, split, training) for task in (mapped, HopTask([view.x])))
    assert same(a.state, b.state)


class CountedHop:
    """A hop that is not in memory and records requested rows."""

    def __init__(self, values):
        self.values, self.shape, self.asked = values, values.shape, []

    def rows(self, index):
        self.asked.append(index)
        return self.values[index]


@pytest.mark.parametrize("batches_in_a_run", [2, None])
@pytest.mark.parametrize("batch_size", [16, None])
def test_hops_in_files_are_read_in_long_runs_and_train_the_same(
    view, split, monkeypatch, batch_size, batches_in_a_run
):
    labels = np.eye(LABELS, dtype=np.float32)[view.y]
    hop, label_hop = CountedHop(view.x), CountedHop(labels)
    size, run = batch_size or len(split.train), len(view.y)
    if batches_in_a_run:
        run = batches_in_a_run * size
        monkeypatch.setattr("impact_gnn.nn.training.RUN_BYTES", 4 * (4 + LABELS) * run + 1)
    training = replace(CPU, batch_size=batch_size, epochs=3, lr=0.01)
    tasks = HopTask([hop], [label_hop]), HopTask([view.x], [labels])
    assert tasks[0].in_files
    assert not tasks[1].in_files
    a, b = (
        fit(
            lambda: SGC(4, LABELS, 8, label_channels=[LABELS], dropout=0.5),
            t,
            view.y,
            split,
            training,
        )
        for t in tasks
    )
    assert same(a.state, b.state)
    # and the rows to choose by, which fit into one view
    per_epoch = math.ceil(len(split.train) / run) + 1
    assert len(hop.asked) == len(label_hop.asked) == 3 * per_epoch
    assert all((np.diff(index) > 0).all() for index in hop.asked)
    hop.asked.clear()
    rows = np.array([7, 3, 3, 150, 0])
    np.testing.assert_array_equal(
        predict(a.model, tasks[0], rows, batch_size=2),
        predict(b.model, tasks[1], rows, batch_size=2),
    )
    if not batches_in_a_run:
        assert [list(index) for index in hop.asked] == [[0, 3, 7, 150]]


def test_loaded_rows_have_the_requested_order(view):
    rows = torch.tensor([7, 3, 3, 150, 0])
    task = HopTask([CountedHop(view.x)], [CountedHop(view.x[:, :2])]).loaded(rows)
    assert not task.in_files
    np.testing.assert_array_equal(task.hops[0], view.x[rows])
    np.testing.assert_array_equal(task.label_hops[0], view.x[rows, :2])


# -- RLU


def label_task(view, soft_labels):
    def make(soft):
        soft_labels.append(soft)
        hop = propagate(view, x=soft, hops=1)[0]
        return HopTask([view.x], [hop])

    return make


def gamlp():
    return GAMLP([4], LABELS, hidden=8, label_channels=[LABELS])


def test_stages_learn_from_confident_predictions_and_no_hidden_label(view, split):
    runs = []
    for g in (view, graph(scramble=True)):
        soft_labels = []
        staged = fit_stages(
            gamlp,
            make_task=label_task(g, soft_labels),
            labels=g.y,
            split=split,
            num_labels=LABELS,
            training=CPU,
            reliable=Rlu(stages=3, threshold=0.7),
        )
        runs.append((staged, soft_labels))
    (staged, soft_labels), (other, _) = runs
    assert same(staged.result.state, other.result.state)
    assert len(staged.stages) == len(soft_labels) == 3
    assert staged.result.valid_score == max(r.valid_score for r in staged.stages)
    others = np.setdiff1d(np.arange(view.num_nodes), split.train)
    assert not soft_labels[0][others].any()  # stage 0 has true labels only
    first = predict(staged.stages[0].model, label_task(view, [])(soft_labels[0]))
    rows = others[first[others].max(1) >= 0.7]
    assert 0 < len(rows) < len(others)
    np.testing.assert_array_equal(
        np.flatnonzero(soft_labels[1][others].any(1)), np.searchsorted(others, rows)
    )
    np.testing.assert_allclose(soft_labels[1][rows], first[rows], rtol=1e-5)
    for soft in soft_labels:
        assert (soft[split.train].argmax(1) == view.y[split.train]).all()


def test_stages_refit_on_all_labelled_rows(view, split):
    soft_labels = []
    training = replace(CPU, epochs=4)
    staged = fit_stages(
        gamlp,
        make_task=label_task(view, soft_labels),
        labels=view.y,
        split=split,
        num_labels=LABELS,
        training=training,
        refit=True,
        reliable=Rlu(stages=2),
    )
    assert len(soft_labels) == 2 + staged.stage + 1
    assert (soft_labels[-1][split.all].argmax(1) == view.y[split.all]).all()
    assert predict(staged.result.model, staged.task).shape == (view.num_nodes, LABELS)


def test_reliable_is_checked():
    for wrong, words in (
        ({"stages": 0}, "stages=0 must be at least 1"),
        ({"threshold": -0.1}, r"threshold=-0.1 must be from 0 to 1"),
        ({"temperature": 0.0}, r"temperature=0.0 must be above 0"),
        ({"distill": -1.0}, "distill=-1.0 must be at least 0"),
        ({"weight": -1.0}, "weight=-1.0 must be at least 0"),
    ):
        with pytest.raises(ig.InputError, match=words):
            Rlu(**wrong)


# -- refusals


def test_options_are_checked():
    for wrong, words in (
        ({"device": "tpu"}, "device='tpu' is not valid; choose one of 'auto'"),
        ({"epochs": 0}, "epochs=0 must be at least 1"),
        ({"batch_size": 0}, "batch_size=0 must be at least 1"),
        ({"lr": -1.0}, "lr=-1.0 must be at least 0"),
        ({"lr": math.nan}, "lr=nan must be at least 0"),
    ):
        with pytest.raises(ig.InputError, match=words):
            Training(**wrong)


def test_inputs_are_checked(view, split):
    task = HopTask([view.x])
    nobody = np.empty(0, np.int64)
    with pytest.raises(ig.InputError, match="no training rows"):
        fit(build, task, view.y, Split(nobody, nobody), CPU)
    with pytest.raises(ig.InputError, match="of the split has no label"):
        fit(build, task, view.y, Split(np.arange(view.num_nodes), nobody), CPU)
    with pytest.raises(ig.InputError, match="overlap"):
        fit(build, task, view.y, Split(split.train, split.train[:1]), CPU)
    with pytest.raises(
        ig.InputError, match="batch_size has no effect for a model on the whole graph"
    ):
        fit(gcn, graph_task(view), view.y, split, replace(CPU, batch_size=10))
    with pytest.raises(ig.InputError, match="sample_weight must be 200 finite numbers"):
        fit(build, task, view.y, split, CPU, sample_weight=np.ones(3))
    with pytest.raises(ig.InputError, match=r"have \[2, 3\] rows"):
        HopTask([np.ones((3, 1)), np.ones((2, 1))])
    with pytest.raises(ig.InputError, match="hops is empty"):
        HopTask([])
    with pytest.raises(ig.InputError, match="x has 3 rows, the propagation 200 nodes"):
        GraphTask(np.ones((3, 4)), graph_task(view).propagation)


def test_an_epoch_is_chosen_by_the_mean_over_the_last_ones(view):
    """The best epoch is the argmax of the running mean of the scores."""
    split, task = split_rows(view), HopTask([view.x])
    training = Training(epochs=12, lr=0.3, device="cpu", average_over=4)
    result = fit(
        lambda: SIGN([view.x.shape[1]], view.num_labels, hidden=8), task, view.y, split, training
    )
    scores = np.array([epoch.score for epoch in result.history])
    means = [scores[max(0, k - 3) : k + 1].mean() for k in range(12)]
    assert result.best_epoch == 1 + int(np.argmax(means))
    assert result.valid_score == scores[result.best_epoch - 1]


def test_weights_are_means_over_the_last_epochs(view):
    split, task = Split(np.flatnonzero(view.y >= 0), np.empty(0, int)), HopTask([view.x])

    def build():
        return SIGN([view.x.shape[1]], view.num_labels, hidden=8)

    after = [fit(build, task, view.y, split, replace(CPU, epochs=k)).state for k in (2, 3, 4)]
    averaged = fit(build, task, view.y, split, replace(CPU, epochs=4, average_over=3)).state
    for name, value in averaged.items():
        assert torch.allclose(value, torch.stack([state[name] for state in after]).mean(0))
