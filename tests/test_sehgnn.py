"""The heterogeneous models: any rows, every metapath counts, the fusion is the formula, groups are held together."""

import numpy as np
import pytest
import torch
from torch.nn.functional import conv1d

import impact_gnn as ig
from impact_gnn.nn import HopTask, RpHGNN, SeHGNN, Split, Training, fit, predict
from impact_gnn.nn.hetero import RelationEncoder, SemanticFusion

WIDTHS, LABELS = (5, 5, 8), 3
BUILD = {
    "sehgnn": lambda labels: SeHGNN(WIDTHS, LABELS, hidden=8, label_channels=labels, dropout=0.1),
    "sehgnn-heads": lambda labels: SeHGNN(
        WIDTHS, LABELS, hidden=8, label_channels=labels, heads=2, num_layers=1, residual=False
    ),
    "rphgnn": lambda labels: RpHGNN(WIDTHS, LABELS, hidden=8, groups=[2, 1], label_channels=labels, dropout=0.1),
    "rphgnn-one-group": lambda labels: RpHGNN(WIDTHS, LABELS, hidden=8, label_channels=labels, filters=3),
}


def made(name, labels=()):
    torch.manual_seed(0)
    return BUILD[name](labels).eval()


def inputs(labels=(), rows=9):
    torch.manual_seed(1)
    return [torch.randn(rows, width) for width in WIDTHS], [torch.rand(rows, width) for width in labels]


@pytest.mark.parametrize("name", BUILD)
@pytest.mark.parametrize("labels", [(), (LABELS, LABELS)])
def test_rows_are_computed_apart_from_each_other(name, labels):
    model, (hops, label_hops) = made(name, labels), inputs(labels)
    out = model(hops, label_hops)
    assert out.shape == (9, LABELS)
    rows = torch.tensor([4, 0])
    part = model([h[rows] for h in hops], [h[rows] for h in label_hops])
    torch.testing.assert_close(part, out[rows])
    assert torch.equal(made(name, labels)(hops, label_hops), out)


@pytest.mark.parametrize("name", BUILD)
def test_every_metapath_counts_and_every_parameter_learns(name):
    model, (hops, label_hops) = made(name, (LABELS,)), inputs((LABELS,))
    with torch.no_grad():
        for gamma in (m.gamma for m in model.modules() if isinstance(m, SemanticFusion)):
            gamma.fill_(0.5)
    out = model(hops, label_hops)
    everything = [*hops, *label_hops]
    for k in range(len(everything)):
        moved = [values + torch.randn_like(values) * (i == k) for i, values in enumerate(everything)]
        assert not torch.allclose(model(moved[:3], moved[3:]), out), k
    model.train()
    model(hops, label_hops).square().sum().backward()
    # Bias of the key: the same for all metapaths, so the softmax does not see it.
    learning = {n for n, p in model.named_parameters() if p.grad is not None and bool(p.grad.abs().sum() > 0)}
    assert {n for n, _ in model.named_parameters()} - learning <= {"fuse.key.bias"}


@pytest.mark.parametrize("heads", [1, 2])
def test_fusion_is_the_formula(heads):
    torch.manual_seed(0)
    fuse, encoded = SemanticFusion(8, heads=heads), torch.randn(6, 4, 8)
    torch.testing.assert_close(fuse(encoded), encoded)  # γ is zero at first
    torch.nn.init.constant_(fuse.gamma, 0.7)
    query, key, value = fuse.query(encoded), fuse.key(encoded), fuse.value(encoded)
    expected = encoded.clone()
    for v in range(6):
        for i in range(4):
            for part in range(heads):
                small, large = (slice(part * w // heads, (part + 1) * w // heads) for w in (query.shape[-1], 8))
                scores = torch.stack([query[v, i, small] @ key[v, j, small] for j in range(4)])
                share = torch.softmax(scores / query[v, i, small].numel() ** 0.5, 0)
                expected[v, i, large] += 0.7 * (share[:, None] * value[v, :, large]).sum(0)
    torch.testing.assert_close(fuse(encoded), expected)


def test_a_relation_is_a_convolution_over_its_hops():
    torch.manual_seed(0)
    relation, (hops, _) = RelationEncoder(WIDTHS, 6, filters=2).eval(), inputs()
    encoded = torch.stack([encode(h) for encode, h in zip(relation.encode, hops, strict=True)], 1)
    mixed = conv1d(encoded, relation.convolve.weight, relation.convolve.bias)
    by_hand = torch.einsum("ok,nkf->nof", relation.convolve.weight[:, :, 0], encoded)
    torch.testing.assert_close(mixed, by_hand + relation.convolve.bias[:, None])
    torch.testing.assert_close(relation(hops), relation.read(mixed.flatten(1)))


def test_relations_meet_only_after_their_own_encoders():
    """With all but one relation's map at zero, the other relation's hops say nothing."""
    model, (hops, _) = made("rphgnn"), inputs()
    torch.nn.init.zeros_(model.relations[1].read[-1].weight)
    assert torch.equal(model(hops), model([*hops[:2], hops[2] + 1]))
    assert not torch.allclose(model(hops), model([hops[0], hops[1] + torch.randn_like(hops[1]), hops[2]]))


def test_groups_and_heads_are_checked():
    with pytest.raises(ig.InputError, match=r"groups=\[2, 2\] make 4 matrices, but 3 are given"):
        RpHGNN(WIDTHS, LABELS, groups=[2, 2])
    with pytest.raises(ig.InputError, match=r"groups=\[3, 0\] make 3 matrices.*one or more each"):
        RpHGNN(WIDTHS, LABELS, groups=[3, 0])
    with pytest.raises(ig.InputError, match="made for 3 matrices, 2 came"):
        made("rphgnn")(inputs()[0][:2])
    with pytest.raises(ig.InputError, match="8 columns cannot be shared by 3 heads"):
        SeHGNN(WIDTHS, LABELS, hidden=8, heads=3)


@pytest.mark.parametrize("name", ["sehgnn", "rphgnn"])
def test_what_only_one_metapath_knows_is_learned(name):
    rng = np.random.default_rng(0)
    y = rng.integers(0, LABELS, 1200)
    hops = [rng.normal(size=(1200, width)).astype(np.float32) for width in WIDTHS]
    hops[2][:, :LABELS] += 3 * np.eye(LABELS, dtype=np.float32)[y]  # the best possible guess is right for 97 %
    task, rows = HopTask(hops), np.arange(1200)
    training = Training(epochs=40, lr=0.01, device="cpu")
    result = fit(lambda: BUILD[name](()), task, y, Split(rows[:400], rows[400:600]), training)
    assert (predict(result.model, task, rows[600:]).argmax(1) == y[600:]).mean() > 0.85
