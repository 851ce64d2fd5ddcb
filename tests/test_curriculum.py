"""Easy rows first: the share grows to all, only labelled rows to train on ever count, resuming changes nothing."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

import impact_gnn as ig
from impact_gnn.nn import SIGN, Curriculum, HopTask, Training, fit, split_rows
from impact_gnn.nn.curriculum import PACES

CUTOFF, LABELS = 4, 3
LESSONS = Curriculum(start=0.4, epochs=5)
CPU = Training(epochs=8, device="cpu", lr=0.05, curriculum=LESSONS)


@pytest.fixture(scope="module")
def graph():
    return ig.tsbm(num_nodes=200, num_times=6, num_labels=LABELS, num_features=4, feature_std=1.0, seed=1)


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
            out.register_hook(lambda grad: self.steps.append((rows.numpy(), grad.abs().sum(1).numpy())))
        return out


def watched(view, training, split=None):
    task = Watched([view.x])
    task.steps = []
    fit(build, task, view.y, split_rows(view) if split is None else split, training)
    return task.steps


# -- nothing hidden --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("refit", [False, True])
@pytest.mark.parametrize("batch_size", [None, 16])
def test_no_target_label_reaches_a_gradient(graph, view, refit, batch_size):
    """True labels of targets, scrambled and even handed over unmasked, change no bit of any weight."""
    training = replace(CPU, refit=refit, batch_size=batch_size)
    other = ig.audit.scrambled(graph, CUTOFF)
    found = [
        fit(build, HopTask([view.x]), y, split_rows(view), training)
        for y in (view.y, other.masked(CUTOFF).y, graph.y, other.y)
    ]
    assert all(same(found[0], each) for each in found[1:])
    assert not same(found[0], fit(build, HopTask([view.x]), view.y, split_rows(view), replace(training, seed=1)))


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


# -- easy first, all in the end --------------------------------------------------------------------------------


@pytest.mark.parametrize("pace", PACES)
def test_shares_grow_from_the_start_to_all_rows(pace):
    lessons = Curriculum(start=0.3, epochs=7, pace=pace)
    shares = [lessons.share(epoch) for epoch in range(1, 12)]
    assert shares[0] == pytest.approx(0.3)
    assert all(a < b for a, b in pairwise(shares[:8]))
    assert shares[7:] == [1.0] * 4


def test_paces_differ_as_they_say():
    at_half = {pace: Curriculum(start=0.2, epochs=10, pace=pace).share(6) for pace in PACES}
    assert at_half["geometric"] < at_half["linear"] < at_half["root"]


def test_rows_with_a_gradient_grow_to_all(view):
    split = split_rows(view)
    steps = watched(view, CPU, split)
    counted = [int((gradient > 0).sum()) for _, gradient in steps]
    size = len(split.train)
    assert counted == [int(np.ceil(LESSONS.share(epoch) * size)) for epoch in range(1, 9)]
    assert counted[0] < size == counted[-1]


def test_the_easiest_rows_count_and_the_rest_as_told():
    loss = torch.tensor([3.0, 0.1, 2.0, 0.5, 1.0], requires_grad=True)
    weight = Curriculum(start=0.6, epochs=2, rest=0.25).weights(loss, epoch=1)
    assert weight.tolist() == [0.25, 1, 0.25, 1, 1]
    assert not weight.requires_grad
    assert Curriculum(start=0.6, epochs=2).weights(loss, epoch=3).tolist() == [1] * 5


def test_start_of_one_is_no_curriculum(view):
    a, b = (
        fit(build, HopTask([view.x]), view.y, split_rows(view), replace(CPU, curriculum=lessons))
        for lessons in (Curriculum(start=1.0), None)
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


# -- resuming and the door -------------------------------------------------------------------------------------


def test_resuming_gives_the_same_bits_and_other_lessons_are_refused(view, tmp_path):
    split, task = split_rows(view), HopTask([view.x])
    training = replace(CPU, checkpoint=tmp_path / "run", checkpoint_every=3)
    fit(build, task, view.y, split, replace(training, epochs=3))
    resumed = fit(build, task, view.y, split, training)
    assert len(resumed.history) == 8
    assert same(resumed, fit(build, task, view.y, split, CPU))
    for other in (None, replace(LESSONS, epochs=6), replace(LESSONS, pace="root")):
        with pytest.raises(ig.InputError, match="belongs to another training"):
            fit(build, task, view.y, split, replace(training, curriculum=other))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"start": 0}, "start=0 must be above 0 and at most 1"),
        ({"epochs": 0}, "epochs=0 of a curriculum must be at least 1"),
        ({"pace": "slow"}, "pace='slow' is not known; choose one of 'linear', 'root', 'geometric'"),
        ({"rest": 2.0}, r"rest=2.0 must be from 0 to 1"),
    ],
)
def test_bad_options(options, sentence):
    with pytest.raises(ig.InputError, match=sentence):
        Curriculum(**options)
