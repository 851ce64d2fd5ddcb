"""The heterogeneous models.

Any rows, every metapath counts, fusion equals its formula, groups stay separate.
"""

import numpy as np
import pytest
import torch
from torch.nn.functional import leaky_relu

import impact_gnn as ig
from impact_gnn.nn import HopTask, RpHGNN, SeHGNN, Split, Training, fit, predict
from impact_gnn.nn.hetero import GroupEncoder, SemanticFusion
from reproduction.competing.originals import BatchNorm, OriginalSeHGNN, mlp

WIDTHS, LABELS = (5, 5, 8), 3
BUILD = {
    "sehgnn": lambda labels: SeHGNN(WIDTHS, LABELS, hidden=8, label_channels=labels, dropout=0.1),
    "sehgnn-original": lambda labels: OriginalSeHGNN(WIDTHS, LABELS, 8, label_channels=labels),
    "rphgnn": lambda labels: RpHGNN(
        WIDTHS, LABELS, hidden=8, groups=[[0, 1], [0, 2]], label_channels=labels, dropout=0.1
    ),
    "rphgnn-single-hops": lambda labels: RpHGNN(
        WIDTHS, LABELS, hidden=8, groups=[[0], [1], [2]], label_channels=labels
    ),
    "rphgnn-one-group": lambda labels: RpHGNN(WIDTHS, LABELS, hidden=8, label_channels=labels),
}


def build_model(name, labels=()):
    torch.manual_seed(0)
    return BUILD[name](labels).eval()


def inputs(labels=(), rows=9):
    torch.manual_seed(1)
    return [torch.randn(rows, width) for width in WIDTHS], [
        torch.rand(rows, width) for width in labels
    ]


@pytest.mark.parametrize("name", BUILD)
@pytest.mark.parametrize("labels", [(), (LABELS, LABELS)])
def test_rows_are_computed_apart_from_each_other(name, labels):
    model, (hops, label_hops) = build_model(name, labels), inputs(labels)
    out = model(hops, label_hops)
    assert out.shape == (9, LABELS)
    rows = torch.tensor([4, 0])
    part = model([h[rows] for h in hops], [h[rows] for h in label_hops])
    torch.testing.assert_close(part, out[rows])
    assert torch.equal(build_model(name, labels)(hops, label_hops), out)


@pytest.mark.parametrize("name", BUILD)
def test_every_metapath_counts_and_every_parameter_learns(name):
    model, (hops, label_hops) = build_model(name, (LABELS,)), inputs((LABELS,))
    with torch.no_grad():
        for gamma in (m.gamma for m in model.modules() if isinstance(m, SemanticFusion)):
            gamma.fill_(0.5)
    out = model(hops, label_hops)
    everything = [*hops, *label_hops]
    for k in range(len(everything)):
        moved = [
            values + torch.randn_like(values) * (i == k) for i, values in enumerate(everything)
        ]
        assert not torch.allclose(model(moved[:3], moved[3:]), out), k
    model.train()
    model(hops, label_hops).square().sum().backward()
    # Bias of the key: the same for all metapaths, so the softmax does not see it.
    learning = {
        n
        for n, p in model.named_parameters()
        if p.grad is not None and bool(p.grad.abs().sum() > 0)
    }
    assert {n for n, _ in model.named_parameters()} - learning <= {"fuse.key.bias"}


def test_fusion_is_the_formula():
    torch.manual_seed(0)
    fuse, encoded = SemanticFusion(8), torch.randn(6, 4, 8)
    torch.testing.assert_close(fuse(encoded), encoded)  # γ is zero at first
    torch.nn.init.constant_(fuse.gamma, 0.7)
    query, key, value = fuse.query(encoded), fuse.key(encoded), fuse.value(encoded)
    expected = encoded.clone()
    for v in range(6):
        for i in range(4):
            scores = torch.stack([query[v, i] @ key[v, j] for j in range(4)])
            share = torch.softmax(leaky_relu(scores / query[v, i].numel() ** 0.5, 0.2), 0)
            expected[v, i] += 0.7 * (share[:, None] * value[v]).sum(0)
    torch.testing.assert_close(fuse(encoded), expected)


def test_a_group_is_a_convolution_over_its_raw_hops():
    torch.manual_seed(0)
    group = GroupEncoder([4, 4, 4], 6, 0.5).eval()
    hops = [torch.randn(9, 4) for _ in range(3)]
    mixed = torch.zeros(9, 2, 4)
    for filter_ in range(2):
        mixed[:, filter_] = group.convolve.bias[filter_]
        for k in range(3):
            mixed[:, filter_] += group.convolve.weight[filter_, k, 0] * hops[k]
    torch.testing.assert_close(group(hops), group.read(mixed.flatten(1)))


def test_groups_meet_only_after_their_own_encoders_and_own_features_are_in_several():
    """A group reads its own hops and nothing else.

    Without its columns in the last layers it has no effect.
    """
    model, (hops, _) = build_model("rphgnn"), inputs()
    with torch.no_grad():
        model.classify[0].weight[:, 8:] = 0  # the second group's
    assert torch.equal(model(hops), model([*hops[:2], hops[2] + torch.randn_like(hops[2])]))
    for k in (0, 1):
        moved = [h + torch.randn_like(h) * (i == k) for i, h in enumerate(hops)]
        assert not torch.allclose(model(hops), model(moved))
    model = build_model("rphgnn")
    with torch.no_grad():
        model.classify[0].weight[:, :8] = 0
    assert torch.equal(model(hops), model([hops[0], hops[1] + torch.randn_like(hops[1]), hops[2]]))
    assert not torch.allclose(model(hops), model([hops[0] + torch.randn_like(hops[0]), *hops[1:]]))


def test_every_label_hop_is_a_group_of_its_own():
    assert BUILD["rphgnn"]((LABELS, LABELS)).groups == [[0, 1], [0, 2], [3], [4]]


@pytest.mark.parametrize("name", ["sehgnn-original", "rphgnn-single-hops"])
def test_batches_of_one_row_are_trained_on(name):
    model, (hops, label_hops) = BUILD[name]((LABELS,)).train(), inputs((LABELS,), rows=1)
    out = model(hops, label_hops)
    assert torch.isfinite(out).all()
    out.sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


def test_batch_norm_knows_its_rows_after_one_step_and_can_look_away():
    torch.manual_seed(0)
    norm, x = BatchNorm(3), 7 + 3 * torch.randn(400, 3)
    trained = norm(x)
    torch.testing.assert_close(norm.eval()(x), trained, rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(norm.running_mean, x.mean(0))
    before = norm.running_mean.clone()
    norm.train().tracks = False
    torch.testing.assert_close(norm(x + 1), trained, rtol=1e-4, atol=1e-4)
    assert torch.equal(norm.running_mean, before)
    norm.tracks = True
    norm(x + 1)
    torch.testing.assert_close(norm.running_mean, before + 0.5)  # the mean of two steps
    for _ in range(200):
        norm(x + 1)
    torch.testing.assert_close(norm.running_mean, before + 1)  # the first is forgotten


def test_groups_and_heads_are_checked():
    with pytest.raises(
        ig.InputError, match=r"groups=\[\[0, 1\]\] should name the positions 0 to 2 of the matrices"
    ):
        RpHGNN(WIDTHS, LABELS, groups=[[0, 1]])
    with pytest.raises(ig.InputError, match=r"hold one or more each"):
        RpHGNN(WIDTHS, LABELS, groups=[[0, 1, 2], []])
    with pytest.raises(
        ig.InputError, match="norm='group' is not valid; choose one of 'batch', 'layer', 'none'"
    ):
        mlp([4, 3, 2], 0.5, norm="group")


@pytest.mark.parametrize("name", ["sehgnn", "rphgnn"])
def test_what_only_one_metapath_knows_is_learned(name):
    rng = np.random.default_rng(0)
    y = rng.integers(0, LABELS, 1200)
    hops = [rng.normal(size=(1200, width)).astype(np.float32) for width in WIDTHS]
    # the best possible guess is right for 97 %
    hops[2][:, :LABELS] += 3 * np.eye(LABELS, dtype=np.float32)[y]
    task, rows = HopTask(hops), np.arange(1200)
    training = Training(epochs=40, lr=0.01, device="cpu")
    result = fit(lambda: BUILD[name](()), task, y, Split(rows[:400], rows[400:600]), training)
    assert (predict(result.model, task, rows[600:]).argmax(1) == y[600:]).mean() > 0.85
