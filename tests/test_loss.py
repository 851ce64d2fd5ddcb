"""Losses, terms, schedules, optimisers, hidden labels and stages: which rows a step learns from."""

import math
import subprocess
import sys
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch.nn.functional import log_softmax, softmax

import impact_gnn as ig
from impact_gnn.nn import (
    GCN,
    SIGN,
    CrossEntropy,
    GraphTask,
    HopTask,
    Propagation,
    Split,
    Training,
    fit,
    predict,
    split_rows,
)
from impact_gnn.nn.loss import Step
from impact_gnn.nn.optimizer import Adam
from reproduction.competing import Consistency
from reproduction.competing.stages import Rlu, sharpened
from reproduction.hetero_tsbm import hetero_tsbm
from reproduction.losses import Distillation, LogCrossEntropy, RunByLoss, Schedule

CUTOFF, LABELS = 4, 3
CPU = Training(epochs=6, device="cpu", lr=0.05)


@pytest.fixture(scope="module")
def view():
    g = ig.tsbm(
        num_nodes=200, num_times=6, num_labels=LABELS, num_features=4, feature_std=1.0, seed=1
    )
    return g.masked(CUTOFF)


def build():
    return SIGN([4], LABELS, hidden=8)


def same(a, b):
    return all(torch.equal(a.state[name], b.state[name]) for name in a.state)


def trained(view, **options):
    return fit(build, HopTask([view.x]), view.y, split_rows(view), replace(CPU, **options))


# -- losses


def test_losses_are_their_formulas():
    logits, label = torch.randn(5, 3, dtype=torch.float64), torch.tensor([0, 2, 1, 1, 0])
    log_p = log_softmax(logits, 1)
    plain = -log_p[torch.arange(5), label]
    torch.testing.assert_close(CrossEntropy()(logits, label), plain)
    epsilon = 1 - math.log(2)
    torch.testing.assert_close(
        LogCrossEntropy()(logits, label), torch.log(epsilon + plain) - math.log(epsilon)
    )
    assert float(
        LogCrossEntropy()(torch.tensor([[100.0, 0.0]]), torch.tensor([0]))
    ) == pytest.approx(0, abs=1e-6)
    soft = softmax(torch.randn(5, 3, dtype=torch.float64), 1)
    torch.testing.assert_close(CrossEntropy()(logits, soft), -(soft * log_p).sum(1))


def test_soft_targets_that_are_certain_train_as_labels_do(view):
    sure = np.zeros((view.num_nodes, LABELS), np.float32)
    sure[view.y >= 0, view.y[view.y >= 0]] = 1
    args = build, HopTask([view.x]), view.y, split_rows(view), CPU
    a, b = fit(*args), fit(*args, target=sure)
    for name in a.state:
        torch.testing.assert_close(a.state[name], b.state[name], rtol=1e-4, atol=1e-6)
    sure[:] = 1 / LABELS
    assert not same(a, fit(*args, target=sure))


def test_another_loss_trains(view):
    result = trained(view, loss=LogCrossEntropy())
    assert result.history[-1].loss < result.history[0].loss
    assert not same(result, trained(view))


@pytest.mark.parametrize("optimizer", [Adam, torch.optim.RMSprop])
def test_optimizers_train(view, optimizer):
    whole = trained(view, optimizer=optimizer, lr=0.02)
    assert whole.history[-1].loss < whole.history[0].loss


def test_adam_is_that_of_torch_to_the_last_bit():
    def train(create):
        torch.manual_seed(0)
        network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
        idle = torch.nn.Parameter(torch.ones(2))  # without a gradient
        optimizer = create([*network.parameters(), idle], lr=0.05, weight_decay=0.1)
        for step in range(20):
            optimizer.param_groups[0]["lr"] = 0.05 / (1 + step)
            optimizer.zero_grad(set_to_none=True)
            network(torch.randn(16, 4)).square().mean().backward()
            optimizer.step()
        return [*network.parameters(), idle]

    expected = train(lambda *args, **options: torch.optim.Adam(*args, fused=True, **options))
    for weight, reference in zip(train(Adam), expected, strict=True):
        assert torch.equal(weight, reference)


def test_training_does_not_load_the_compiler_of_torch():
    code = """
import sys, impact_gnn as ig
g = ig.tsbm(num_nodes=200, num_times=4, num_labels=2, seed=0)
ig.Pipeline(cutoff=3, epochs=2, hidden=4).fit(g)
assert "torch._dynamo" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_schedules_are_their_formula_and_reach_the_optimizer(view):
    assert [Schedule(decay=0.5)(epoch) for epoch in (1, 2, 3)] == [1, 0.5, 0.25]
    assert [Schedule(warm_up=4)(epoch) for epoch in (1, 2, 4, 9)] == [0.25, 0.5, 1, 1]
    assert [round(Schedule(period=10)(epoch), 6) for epoch in (1, 6, 11, 99)] == [1, 0.5, 0, 0]
    # from the second epoch on the rate is 0
    frozen = trained(view, schedule=Schedule(period=1), epochs=3)
    assert same(trained(view, epochs=1), frozen)
    with pytest.raises(ig.InputError, match="is not a schedule"):
        Schedule(decay=0)


def test_the_epoch_is_chosen_by_loss_if_asked(view):
    result = trained(view, epochs=30, lr=0.2, run=RunByLoss)
    task, valid = HopTask([view.x]), split_rows(view).valid
    losses = []
    for epochs in range(1, 31):
        one = fit(
            build,
            task,
            view.y,
            Split(split_rows(view).train, valid[:0]),
            replace(CPU, epochs=epochs, lr=0.2),
        )
        probabilities = predict(one.model, task, valid)[np.arange(len(valid)), view.y[valid]]
        losses.append(-np.log(probabilities).mean())
    assert result.best_epoch == int(np.argmin(losses)) + 1
    assert result.valid_score == result.history[result.best_epoch - 1].score


# -- terms


def step_of(logits, others):
    """A step whose rows are the first ones; a second call gives the same logits."""
    rows = torch.arange(len(logits) // 2)
    return Step(
        rows,
        logits=logits[rows],
        hidden=logits[rows],
        labels=rows,
        losses=rows,
        weight=rows,
        epoch=1,
        again=lambda more: (logits[more], logits[more]),
    )


@dataclass(frozen=True, eq=False)
class Watching:
    """A term that adds nothing and records its inputs."""

    steps: list

    def __call__(self, step):
        more, hidden = step.again(torch.arange(5))
        self.steps.append((step, more.detach(), hidden.detach()))
        return step.logits.sum() * 0


def test_a_term_of_zero_changes_no_weight_and_sees_the_step(view):
    steps, split = [], split_rows(view)
    a, b = trained(view, terms=(Watching(steps),)), trained(view)
    # dropout draws again for a second call, so only the first step is the same
    assert a.history[0].loss == b.history[0].loss
    step, more, hidden = steps[0]
    assert step.rows.tolist() == split.train.tolist()
    assert step.labels.tolist() == view.y[split.train].tolist()
    assert step.hidden.shape == (len(split.train), 8)
    assert more.shape == (5, LABELS)
    assert hidden.shape == (5, 8)
    last = [part for part in a.model.modules() if isinstance(part, torch.nn.Linear)][-1]
    assert last.in_features == 8


def test_hidden_of_a_spatial_model_is_that_of_the_rows(view):
    steps, split = [], split_rows(view)
    task = GraphTask(view.x, Propagation.of(view))
    fit(
        lambda: GCN(4, LABELS, 8),
        task,
        view.y,
        split,
        replace(CPU, epochs=1, terms=(Watching(steps),)),
    )
    step, _, hidden = steps[0]
    assert step.hidden.shape == (len(split.train), 8)
    assert hidden.shape == (5, 8)


def test_distillation_is_the_divergence_from_the_teacher():
    torch.manual_seed(0)
    logits = torch.randn(8, LABELS, dtype=torch.float64)
    teacher = softmax(torch.randn(8, LABELS, dtype=torch.float64), 1).numpy()
    nobody = np.empty(0, np.int64)
    loss = float(
        Distillation(teacher, nobody, weight=2.0, temperature=3.0)(step_of(logits, nobody))
    )
    p = np.exp(np.log(teacher[:4]) / 3)
    p /= p.sum(1, keepdims=True)
    q = softmax(logits[:4] / 3, 1).numpy()
    assert loss == pytest.approx(2 * 9 * (p * np.log(p / q)).sum(1).mean(), rel=1e-5)
    own = softmax(logits, 1).numpy()
    assert float(Distillation(own, nobody)(step_of(logits, nobody))) == pytest.approx(0, abs=1e-6)


def test_consistency_is_zero_for_equal_certain_views_and_decreases(view):
    certain = torch.eye(LABELS).repeat(2, 1) * 1000
    assert float(Consistency(np.arange(3))(step_of(certain, None))) == pytest.approx(0, abs=1e-6)
    others = np.setdiff1d(np.arange(view.num_nodes), split_rows(view).all)
    a, b = (trained(view, epochs=30, terms=(Consistency(others, weight=w),)) for w in (0.0, 5.0))

    def spread(result):
        result.model.train()
        torch.manual_seed(0)
        with torch.no_grad():
            views = [
                softmax(HopTask([view.x]).logits(result.model, torch.from_numpy(others)), 1)
                for _ in range(20)
            ]
        return float(torch.stack(views).std(0).mean())

    assert spread(b) < spread(a)


# -- labels as inputs


def test_a_training_label_is_not_a_model_input(view):
    """In a step, the label of a training row is no input of the model."""
    split, received = split_rows(view), []

    class Recorder(GCN):
        def forward(self, x, propagation):
            if self.training:
                received.append(x[:, 4:].detach().clone())
            return super().forward(x, propagation)

    task = GraphTask(view.x, Propagation.of(view), np.where(view.time < 3, view.y, -1), LABELS)
    assert task.width == 4 + LABELS
    learned = []
    training = replace(CPU, hide_labels=0.5, terms=(RowsOf(learned),))
    fit(lambda: Recorder(task.width, LABELS, 8), task, view.y, split, training)
    assert len(learned) == CPU.epochs
    for rows, labels in zip(learned, received[::1], strict=False):
        assert not labels[rows].any()
        others = np.setdiff1d(split.train, rows)
        assert (labels[others].argmax(1).numpy() == view.y[others]).all()
    assert len({tuple(rows) for rows in learned}) == CPU.epochs  # another share every time


@dataclass(frozen=True, eq=False)
class RowsOf:
    rows: list

    def __call__(self, step):
        self.rows.append(step.rows.tolist())
        return step.logits.sum() * 0


def test_reuse_fills_in_what_is_not_known(view):
    received = []

    class Recorder(GCN):
        def forward(self, x, propagation):
            received.append(x[:, 4:].detach())
            return super().forward(x, propagation)

    model = Recorder(4 + LABELS, LABELS, 8).eval()
    known = np.where(view.time < 3, view.y, -1)
    task = GraphTask(view.x, Propagation.of(view), known, LABELS, reuse=1)
    with torch.no_grad():
        task.logits(model, torch.arange(3))
    first, second = received
    assert not first[known < 0].any()
    torch.testing.assert_close(second[known < 0].sum(1), torch.ones(int((known < 0).sum())))
    torch.testing.assert_close(second[known >= 0], first[known >= 0])


# -- stages in a pipeline


@pytest.fixture(scope="module")
def graphs():
    plain = ig.tsbm(
        num_nodes=400, num_times=6, num_labels=LABELS, num_features=4, feature_std=1.0, seed=3
    )
    papers = hetero_tsbm(
        num_papers=300, num_authors=100, num_times=6, num_labels=LABELS, num_features=4, seed=0
    )
    return {"sign": plain, "sehgnn": papers, "trees": plain, "gcn": plain}


@pytest.mark.parametrize("model", ["sign", "sehgnn", "trees", "gcn"])
@pytest.mark.parametrize("method", ["labels+stages", "stages"])
def test_stages_are_saved_and_ignore_hidden_labels(graphs, model, method, tmp_path):
    graph = graphs[model]
    options = {"cutoff": 5, "hidden": 8, "epochs": 8, "device": "cpu"}
    p = ig.Pipeline(model, method, **options).fit(graph)
    probabilities = p.predict_proba(graph)
    p.save(tmp_path / "m")
    np.testing.assert_allclose(
        ig.Pipeline.load(tmp_path / "m").predict_proba(graph), probabilities, rtol=1e-6
    )
    other = ig.Pipeline(model, method, **options).fit(ig.audit.scrambled(graph, 5))
    np.testing.assert_array_equal(other.predict_proba(ig.audit.scrambled(graph, 5)), probabilities)


def test_later_stages_are_taken_where_they_score_better(graphs):
    graph = graphs["sign"]
    p = ig.Pipeline("sign", "labels+stages", cutoff=5, hidden=16, epochs=30, device="cpu").fit(
        graph
    )
    once = ig.Pipeline("sign", "labels", cutoff=5, hidden=16, epochs=30, device="cpu").fit(graph)
    assert p.fitted.valid_score >= once.fitted.valid_score
    assert (len(p.fitted.earlier) == 0) == (p.fitted.valid_score == once.fitted.valid_score)


def test_confident_rows_get_soft_labels():
    probabilities = np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.5, 0.5]], np.float32)
    label, split = np.array([1, -1, -1, 0]), Split(np.array([0]), np.array([3]))
    lesson = Rlu(threshold=0.5, weight=2.0, temperature=0.5).lesson(label, split, 2, probabilities)
    assert lesson.split.train.tolist() == [0, 1, 2]  # row 3 is for choosing only
    assert lesson.label.tolist() == [1, 1, 0, 0]
    np.testing.assert_allclose(lesson.weight, [1, 1.6, 1.2, 1])
    np.testing.assert_allclose(lesson.soft, [[0, 1], *probabilities[1:]])
    np.testing.assert_allclose(lesson.target[:3], [[0, 1], *sharpened(probabilities[1:3], 0.5)])


def test_a_distilled_model_is_saved_with_its_teacher_on_every_engine(tmp_path):
    """Seeds with which a later stage did better.

    Of the model alone the next graph could not be predicted.
    """
    num_soft_labels = 0
    for seed in (3, 5, 7):
        graph = ig.tsbm(
            num_nodes=500, num_times=6, num_labels=3, num_features=4, feature_std=1.5, seed=seed
        )
        p = ig.Pipeline(
            "sign", "labels+stages", cutoff=5, hidden=16, epochs=40, device="cpu", seed=seed
        ).fit(graph)
        if not p.fitted.earlier:
            continue
        num_soft_labels += 1
        probabilities = p.predict_proba(graph)
        p.save(tmp_path / str(seed))
        again = ig.Pipeline.load(tmp_path / str(seed))
        assert len(again.fitted.earlier) == len(p.fitted.earlier)
        disk = ig.engines.Disk(tmp_path / f"scratch-{seed}", memory="1GB")
        np.testing.assert_allclose(
            again.predict_proba(graph, engine=disk), probabilities, rtol=1e-5, atol=1e-7
        )
    assert num_soft_labels
