"""Dropout by bytes: rate, scale and gradient; layers by name."""

import pytest
import torch
from torch import nn

from impact_gnn.nn.blocks import Dropout, dropout, mlp


@pytest.mark.parametrize("share", [0.05, 0.1, 0.5, 0.8])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_rate_is_dropped_and_the_mean_is_preserved(share, dtype):
    torch.manual_seed(0)
    x = torch.full((501, 403), 3.0, dtype=dtype)  # not a multiple of eight
    out = dropout(x, share, True)
    assert out.dtype == dtype
    assert (out == 0).double().mean() == pytest.approx(share, abs=1 / 512 + 0.004)
    assert float(out.mean()) == pytest.approx(3.0, rel=0.02)
    assert len(out.unique()) == 2


def test_units_are_left_out_independently():
    torch.manual_seed(1)
    retained = (dropout(torch.ones(4000, 64), 0.5, True) > 0).double()
    correlation = torch.corrcoef(retained.T) - torch.eye(64)
    assert correlation.abs().max() < 5 / 4000**0.5


def test_gradients_flow_through_retained_units():
    x = torch.ones(100, 7, requires_grad=True)
    out = dropout(x, 0.5, True)
    out.sum().backward()
    assert torch.equal(x.grad, out.detach())


def test_nothing_is_left_out_when_not_training():
    layer = Dropout(0.5).eval()
    x = torch.randn(5, 3)
    assert layer(x) is x
    assert dropout(x, 0.0, True) is x
    assert not dropout(x, 1.0, True).any()
    assert str(layer) == "Dropout(0.5)"


def test_the_same_seed_gives_the_same_bits():
    outs = []
    for _ in range(2):
        torch.manual_seed(3)
        outs.append(dropout(torch.ones(50, 9), 0.3, True))
    assert torch.equal(*outs)


def test_mlp_has_the_layers_it_is_asked_for():
    assert [type(layer) for layer in mlp([4, 2])] == [nn.Linear]
    assert [type(layer) for layer in mlp([4, 3, 2], 0.5)] == [
        nn.Linear,
        nn.LayerNorm,
        nn.ReLU,
        Dropout,
        nn.Linear,
    ]
    assert not any(isinstance(layer, nn.LayerNorm) for layer in mlp([4, 3, 3, 2], norm=False))
