"""Competing methods that are loss terms.

Moments, risks over periods, edited graphs; compared with loops.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

import impact_gnn as ig
from impact_gnn.engines import Memory
from impact_gnn.nn import GCN, GraphTask, Propagation
from impact_gnn.nn.loss import Step
from reproduction.competing.editors import EDITORS, FLIPS, NEW, Editable, Editor, RiskEditors
from reproduction.competing.terms import MomentDiscrepancy, RiskVariance, cmd


def naive_cmd(a, b, moments=5):
    total = 0.0
    for j in range(1, moments + 1):
        square = 0.0
        for c in range(a.shape[1]):
            means = a[:, c].mean(), b[:, c].mean()
            if j == 1:
                square += (means[0] - means[1]) ** 2
                continue
            here, there = (
                sum((v - m) ** j for v in x[:, c]) / len(x)
                for x, m in zip((a, b), means, strict=True)
            )
            square += (here - there) ** 2
        total += square**0.5
    return total


def test_moments_are_those_of_the_loop():
    rng = np.random.default_rng(0)
    a, b = rng.uniform(-1, 1, (17, 3)), rng.uniform(-1, 0.5, (9, 3))
    assert float(cmd(torch.tensor(a), torch.tensor(b))) == pytest.approx(naive_cmd(a, b))


def test_laws_of_the_discrepancy():
    torch.manual_seed(0)
    a, b = torch.rand(50, 4), torch.rand(30, 4)
    assert float(cmd(a, a)) == 0
    # the norm of (.5, .5, .5, .5)
    assert float(cmd(a, a + 0.5)) == pytest.approx(0.5 * 2, rel=1e-4)
    assert float(cmd(a, b)) == pytest.approx(
        float(cmd(b[torch.randperm(30)], a[torch.randperm(50)])), rel=1e-5
    )
    equal = a.clone().requires_grad_()
    cmd(equal, a).backward()
    assert torch.isfinite(equal.grad).all()  # a norm has no gradient at zero; torch returns 0


def a_step(rows=40, again=None, epoch=1, seed=0):
    torch.manual_seed(seed)
    logits, hidden = (
        torch.randn(rows, 3, requires_grad=True),
        torch.randn(rows, 4, requires_grad=True),
    )
    labels, weight = torch.randint(3, (rows,)), torch.rand(rows)
    each = cross_entropy(logits, labels, reduction="none")
    return Step(
        torch.arange(rows),
        logits=logits,
        hidden=hidden,
        labels=labels,
        losses=each,
        weight=weight,
        epoch=epoch,
        again=again or (lambda rows: None),
    )


def test_the_term_compares_what_is_read_of_both():
    there = torch.randn(100, 4)
    step = a_step(again=lambda rows: (None, there[rows]))
    term, asked = MomentDiscrepancy(np.arange(60, 100), 2.0), []
    step = replace(step, again=lambda rows: asked.append(rows) or (None, there[rows]))
    penalty = term(step)
    assert len(asked[0]) == 40
    assert asked[0].min() >= 60
    wanted = naive_cmd(
        torch.tanh(step.hidden).detach().double().numpy(),
        torch.tanh(there[asked[0]]).double().numpy(),
    )
    assert float(penalty.detach()) == pytest.approx(2 * wanted, rel=1e-4)
    penalty.backward()
    assert step.hidden.grad.abs().sum() > 0


def test_the_variance_is_over_mean_risks_of_periods():
    step, period = a_step(), np.repeat([5, 2, 9], [10, 25, 5])
    risks = [
        float((step.weight * step.losses)[at].sum() / step.weight[at].sum())
        for at in (torch.arange(10), torch.arange(10, 35), torch.arange(35, 40))
    ]
    assert float(RiskVariance(period, 3.0)(step)) == pytest.approx(3 * np.var(risks), rel=1e-5)
    assert float(RiskVariance(np.zeros(40, int))(step)) == 0
    equal = replace(step, losses=torch.ones(40))
    assert float(RiskVariance(period)(equal)) == pytest.approx(0, abs=1e-10)
    # a period that does not count
    some = replace(step, weight=torch.where(torch.arange(40) < 10, 0.0, 1.0))
    assert float(RiskVariance(period)(some)) == pytest.approx(
        np.var([float(step.losses[10:35].mean()), float(step.losses[35:].mean())]), rel=1e-5
    )


def graph():
    return ig.tsbm(
        num_nodes=60,
        num_times=4,
        num_labels=3,
        num_features=5,
        feature_std=1.0,
        mean_degree=6,
        seed=0,
    )


def editable(g, **options):
    return Editable(Memory().operator(g.undirected(), **options))


def test_without_edits_it_is_the_propagation():
    g = graph()
    for options in ({}, {"self_loop": True, "weighting": "pmp"}, {"weighting": "gsmp"}):
        plain = Propagation(editable(g, **options).operator)
        step, x = editable(g, **options), torch.tensor(g.x)
        assert torch.equal(step(x), plain(x))
        with step.edited(np.array(step.candidates.weight)):  # new edges of weight 0
            torch.testing.assert_close(step(x), plain(x))
        assert torch.equal(step(x), plain(x))


def test_edits_drop_and_add_edges_of_every_node():
    step = editable(graph())
    candidates = step.candidates
    assert candidates.num_edges == step.operator.csr.num_edges + NEW * 60
    editor = Editor(candidates)
    torch.manual_seed(0)
    weight, log_probability = editor.draw()
    changed = np.flatnonzero(weight != candidates.weight)
    np.testing.assert_array_equal(np.bincount(editor.row[changed], minlength=60), FLIPS)
    size = np.diff(candidates.indptr)
    # all alike in the beginning
    assert float(log_probability) == pytest.approx(-np.log(size).mean(), rel=1e-5)
    dense = np.zeros((60, 60))
    for v in range(60):
        for e in range(candidates.indptr[v], candidates.indptr[v + 1]):
            dense[v, candidates.indices[e]] += weight[e]
    dense /= np.maximum(dense.sum(1, keepdims=True), 1e-12)
    x = torch.tensor(graph().x)
    with step.edited(weight):
        np.testing.assert_allclose(step(x), dense @ x.numpy(), rtol=1e-5, atol=1e-6)


def test_drawing_follows_the_logits():
    editor = Editor(editable(graph()).candidates)
    favourite = editor.candidates.indptr[:-1]
    editor.logits.data[torch.from_numpy(favourite)] = 50.0
    torch.manual_seed(0)
    weight, log_probability = editor.draw()
    np.testing.assert_array_equal(np.flatnonzero(weight != editor.candidates.weight), favourite)
    assert float(log_probability) == pytest.approx(0, abs=1e-6)


def test_what_was_rewarded_becomes_more_probable():
    editor = Editor(editable(graph()).candidates)
    torch.manual_seed(0)
    weight, log_probability = editor.draw()
    editor.learn(log_probability, torch.tensor(0.3))
    picked = weight != editor.candidates.weight
    assert (
        editor.log_probability().detach().numpy()[picked]
        > -np.log(np.diff(editor.candidates.indptr))
    ).all()


def test_a_step_is_the_paper_s_objective():
    g = graph()
    step_of = editable(g)
    torch.manual_seed(0)
    model = GCN(5, 3, dropout=0.0)
    task = GraphTask(g.x, step_of)
    rows, labels = torch.arange(30), torch.tensor(g.y[:30])
    risks = []

    def again(rows):
        logits = task.logits(model, rows)
        risks.append(float(cross_entropy(logits, labels)))
        return logits, None

    logits = task.logits(model, rows)
    each = cross_entropy(logits, labels, reduction="none")
    step = Step(
        rows,
        logits=logits,
        hidden=logits,
        labels=labels,
        losses=each,
        weight=torch.ones(30),
        epoch=1,
        again=again,
    )
    term = RiskEditors.of(step_of)
    total = each.mean() + term(step)
    assert len(risks) == EDITORS
    assert np.std(risks) > 0  # the first layer does not remember another graph
    assert float(total) == pytest.approx(np.var(risks) + np.mean(risks), rel=1e-4)
    assert torch.equal(task.logits(model, rows), logits)
    total.backward()
    assert all(p.grad is not None for p in model.parameters())
    assert all(editor.logits.abs().sum() > 0 for editor in term.editors)
