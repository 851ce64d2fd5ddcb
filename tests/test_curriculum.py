"""Curriculum learning: the share of rows grows to all, and only labelled training rows count."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

import impact_gnn as ig
import impact_gnn.estimators.pipeline
from impact_gnn.nn import (
    GCN,
    SIGN,
    GraphTask,
    HopTask,
    Propagation,
    Split,
    Training,
    fit,
    split_rows,
)
from reproduction.competing.curriculum import PACES, Curriculum, with_curriculum

CUTOFF, LABELS = 4, 3
LESSONS = Curriculum(start=0.4, warm_up=2, epochs=4)
CPU = with_curriculum(Training(epochs=9, device="cpu", lr=0.05), LESSONS)


@pytest.fixture(scope="module")
def graph():
    return ig.tsbm(
        num_nodes=200, num_times=6, num_labels=LABELS, num_features=4, feature_std=1.0, seed=1
    )


@pytest.fixture(scope="module")
def view(graph):
    return graph.masked(CUTOFF)


def build():
    return SIGN([4], LABELS, hidden=8)


def same(a, b):
    return all(torch.equal(a.state[name], b.state[name]) for name in a.state)


class Watched(HopTask):
    """Remembers which rows the model was trained on, and which had a gradient."""

    def logits(self, model, rows):
        out = super().logits(model, rows)
        if model.training:
            out.register_hook(
                lambda grad: self.steps.append((rows.numpy(), grad.abs().sum(1).numpy()))
            )
        return out


def watched(view, training, split=None):
    task = Watched([view.x])
    task.steps = []
    fit(build, task, view.y, split_rows(view) if split is None else split, training)
    return task.steps


# -- nothing hidden


@pytest.mark.parametrize("batch_size", [None, 16])
def test_no_target_label_reaches_a_gradient(graph, view, batch_size):
    """True labels of targets, scrambled or even unmasked, change no bit of any weight."""
    training = replace(CPU, batch_size=batch_size)
    other = ig.audit.scrambled(graph, CUTOFF)
    results = [
        fit(build, HopTask([view.x]), y, split_rows(view), training)
        for y in (view.y, other.masked(CUTOFF).y, graph.y, other.y)
    ]
    assert all(same(results[0], each) for each in results[1:])
    assert not same(
        results[0],
        fit(build, HopTask([view.x]), view.y, split_rows(view), replace(training, seed=1)),
    )


@pytest.mark.parametrize("batch_size", [None, 16])
def test_only_labelled_rows_to_train_on_enter_the_loss(view, batch_size):
    split = split_rows(view)
    steps = watched(view, replace(CPU, batch_size=batch_size), split)
    assert steps
    for rows, _ in steps:
        assert np.isin(rows, split.train).all()
        assert (view.y[rows] >= 0).all()
        assert (view.time[rows] < CUTOFF).all()


def test_labels_to_choose_by_change_no_gradient(view):
    split = split_rows(view)
    moved = np.array(view.y)
    moved[split.valid] = (moved[split.valid] + 1) % LABELS
    a, b = (fit(build, HopTask([view.x]), y, split, CPU) for y in (view.y, moved))
    assert [e.loss for e in a.history] == [e.loss for e in b.history]


# -- easy first, all in the end


def test_shares_are_all_in_the_warm_up_and_grow_from_the_start_to_all_rows():
    lessons = Curriculum(start=0.3, warm_up=3, epochs=7)
    shares = [lessons.share(epoch) for epoch in range(1, 14)]
    assert shares[:4] == [1, 1, 1, pytest.approx(0.3)]
    assert all(a < b for a, b in pairwise(shares[3:11]))
    assert shares[10:] == [1.0] * 3
    assert lessons.whole_from == 11


@pytest.mark.parametrize("pace", PACES)
def test_rows_learned_from_grow_to_all_in_every_class(view, pace):
    split = split_rows(view)
    steps = watched(view, with_curriculum(CPU, replace(LESSONS, pace=pace)), split)
    assert [len(rows) for rows, _ in steps[:2]] == [len(split.train)] * 2
    assert len(steps[2][0]) < len(split.train)
    sizes = np.bincount(view.y[split.train])
    for epoch, (rows, gradient) in enumerate(steps, start=1):
        expected = [int(np.ceil(LESSONS.share(epoch) * n)) for n in sizes]
        assert np.bincount(view.y[rows], minlength=LABELS).tolist() == expected
        assert (gradient > 0).all()


def naive_easiest(average, label, share):
    """The rows of every class, one class after the other, sorted by their loss."""
    chosen = []
    for each in np.unique(label):
        rows = np.flatnonzero(label == each)
        chosen += rows[np.argsort(average[rows], kind="stable")][
            : int(np.ceil(share * len(rows)))
        ].tolist()
    return sorted(chosen)


def test_the_easiest_of_every_class_come_first():
    rng = np.random.default_rng(0)
    average, label = rng.random(60), rng.integers(0, 4, 60)
    average[label == 3] += 10  # a class that is not learned yet is not left out
    lessons = Curriculum(start=0.3, warm_up=1, epochs=10)
    for epoch in (2, 5, 9):
        chosen = lessons.chosen(torch.tensor(average), torch.zeros(60), torch.tensor(label), epoch)
        assert chosen.tolist() == naive_easiest(average, label, lessons.share(epoch))


def test_rows_are_drawn_by_how_much_their_loss_fell():
    """Without replacement.

    Of two, the one that fell by 2 more is drawn e² times as often as the other.
    """
    torch.manual_seed(0)
    lessons = Curriculum(start=0.5, warm_up=1, epochs=10, pace="drop")
    fallen, label = torch.tensor([0.0, 2.0]), torch.tensor([0, 0])
    drawn = [lessons.chosen(torch.zeros(2), fallen, label, 2).tolist() for _ in range(4000)]
    assert all(len(rows) == 1 for rows in drawn)
    odds = drawn.count([1]) / drawn.count([0])
    assert odds == pytest.approx(np.exp(2), rel=0.15)


def test_only_epochs_with_all_rows_are_chosen_and_patience_counts_from_the_end(view):
    split, task = split_rows(view), HopTask([view.x])
    # nothing is learned, so the first epoch stays the best
    training = replace(CPU, epochs=60, patience=2, lr=0.0)
    result = fit(build, task, view.y, split, training)
    assert result.best_epoch == 1  # of the warm-up
    assert len(result.history) == LESSONS.whole_from - 1 + 2
    for seed in range(8):
        result = fit(build, task, view.y, split, replace(CPU, epochs=12, seed=seed))
        allowed = [each for each in result.history if LESSONS.share(each.epoch) == 1]
        best = max(allowed, key=lambda each: each.score)
        assert result.best_epoch == best.epoch
    hidden = [each for each in result.history if LESSONS.share(each.epoch) < 1]
    assert [each.epoch for each in hidden] == [3, 4, 5, 6]


def test_without_validation_the_last_epoch_has_all_rows(view):
    rows = Split(split_rows(view).all, np.empty(0, np.int64))
    steps = watched(view, CPU, rows)
    assert len(steps) == CPU.epochs
    assert len(steps[-1][0]) == len(rows.train)


def test_a_curriculum_longer_than_the_training_keeps_its_last_epoch(view):
    training = with_curriculum(replace(CPU, epochs=3), Curriculum(epochs=50))
    assert fit(build, HopTask([view.x]), view.y, split_rows(view), training).best_epoch == 3


def test_start_of_one_is_no_curriculum(view):
    without = Training(epochs=9, device="cpu", lr=0.05)
    a, b = (
        fit(build, HopTask([view.x]), view.y, split_rows(view), training)
        for training in (with_curriculum(without, Curriculum(start=1.0)), without)
    )
    assert same(a, b)
    assert not same(a, fit(build, HopTask([view.x]), view.y, split_rows(view), CPU))


def test_curriculum_multiplies_sample_weights(view):
    split = split_rows(view)
    weight = np.ones(view.num_nodes)
    weight[split.train[::2]] = 0
    task = Watched([view.x])
    task.steps = []
    fit(build, task, view.y, split, CPU, sample_weight=weight)
    for rows, gradient in task.steps:
        assert not gradient[weight[rows] == 0].any()


class Stop(Exception):  # noqa: N818 - it stands for Ctrl-C
    pass


def stop_after(epochs):
    def progress(epoch):
        if epoch.epoch == epochs:
            raise Stop

    return progress


# -- resuming and input validation


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"start": 0}, "start=0 must be above 0 and at most 1"),
        ({"epochs": 0}, "epochs=0 of a curriculum must be at least 1"),
        ({"warm_up": 0}, "warm_up=0 of a curriculum must be at least 1"),
        ({"pace": "slow"}, "pace='slow' is not valid; choose one of 'loss', 'drop'"),
        ({"memory": 1.0}, r"memory=1.0 must be from 0 to below 1"),
    ],
)
def test_bad_options(options, sentence):
    with pytest.raises(ig.InputError, match=sentence):
        Curriculum(**options)


def test_rows_of_a_graph_are_ranked_without_their_own_label(view):
    received = []

    class Asked(GraphTask):
        def logits(self, model, rows):
            if not model.training and view.time[rows].max() < CUTOFF - 1:
                received.append((rows.numpy(), self.labels[rows].numpy()))
            return super().logits(model, rows)

        def drawn(self, rows, share):
            task, hidden = super().drawn(rows, share)
            task.__class__ = Asked
            return task, hidden

    split = split_rows(view)
    task = Asked(view.x, Propagation.of(view), view.masked(CUTOFF - 1).y, LABELS)
    fit(lambda: GCN(task.width, LABELS, 8), task, view.y, split, replace(CPU, hide_labels=0.5))
    epochs = LESSONS.whole_from - 1
    assert len(received) == 2 * epochs
    assert all((labels == -1).all() for _, labels in received)
    for a, b in zip(received[::2], received[1::2], strict=True):
        np.testing.assert_array_equal(np.sort(np.concatenate([a[0], b[0]])), split.train)
