"""The layers.

Same numbers as the functions, identity outside their rows, nothing in the state_dict.
"""

import numpy as np
import pytest
import torch
from torch_geometric.nn import GCNConv, Sequential

import impact_gnn as ig
from impact_gnn.nn import PNY, JJNorm, TimeCenter, TimeStandardize

CUTOFF = 4


@pytest.fixture
def graph():
    return ig.tsbm(num_nodes=200, num_times=5, num_labels=3, num_features=4, seed=1).masked(CUTOFF)


@pytest.fixture
def parts(graph):
    label, time = torch.from_numpy(np.array(graph.y)), torch.from_numpy(np.array(graph.time))
    return label, time, time >= CUTOFF


def connectivity(graph):
    return ig.connectivity.relative_connectivity(
        graph.edge_index, graph.y, graph.time, num_labels=graph.num_labels, cutoff=CUTOFF
    )


def layers(graph, parts):
    label, time, target = parts
    message = torch.randn(graph.num_nodes, 4, generator=torch.Generator().manual_seed(0))
    previous = torch.randn(graph.num_nodes, 4, generator=torch.Generator().manual_seed(1))
    estimate = connectivity(graph)
    m, p, y, t, o = (value.numpy() for value in (message, previous, label, time, target))
    return {
        "jjnorm": (JJNorm(*parts), (message,), ig.alignment.jjnorm(m, y, t, target=o)),
        "pny": (
            PNY(*parts, connectivity=estimate),
            (message, previous),
            ig.alignment.pny(m, p, y, t, target=o, connectivity=estimate),
        ),
        "center": (TimeCenter(time), (message,), ig.alignment.center(m, t)),
        "standardize": (TimeStandardize(time), (message,), ig.alignment.standardize(m, t)),
    }


@pytest.mark.parametrize("name", ["jjnorm", "pny", "center", "standardize"])
def test_layer_is_the_function(graph, parts, name):
    layer, inputs, expected = layers(graph, parts)[name]
    np.testing.assert_allclose(layer(*inputs).numpy(), expected, rtol=1e-4, atol=1e-5)
    assert layer.state_dict() == {}
    assert list(layer.parameters()) == []
    assert f"num_nodes={graph.num_nodes}" in repr(layer)


@pytest.mark.parametrize("name", ["jjnorm", "pny"])
def test_targets_and_unlabelled_pass_unchanged(graph, parts, name):
    label, time, target = parts
    hidden = label.clone()
    hidden[::7] = -1
    layer, inputs, _ = layers(graph, (hidden, time, target))[name]
    untouched = target | (hidden < 0)
    out = layer(*inputs)
    assert torch.equal(out[untouched], inputs[0][untouched])
    assert not torch.equal(out[~untouched], inputs[0][~untouched])


def test_inside_a_pyg_model(graph, parts):
    data = ig.to_pyg(graph)
    label, time, target = parts
    model = Sequential(
        "x, edge_index",
        [
            (GCNConv(4, 8), "x, edge_index -> x"),
            JJNorm(*parts),
            torch.nn.ReLU(),
            TimeCenter(time),
            torch.nn.Linear(8, 3),
        ],
    )
    loss = torch.nn.functional.cross_entropy(
        model(data.x.float(), data.edge_index)[~target], label[~target]
    )
    loss.backward()
    grads = [p.grad for p in model.parameters()]
    assert all(g is not None and torch.isfinite(g).all() for g in grads)
    assert set(model.state_dict()) == {
        "module_0.lin.weight",
        "module_0.bias",
        "module_4.weight",
        "module_4.bias",
    }


def test_pny_refuses_foreign_connectivity(graph, parts):
    estimate = connectivity(
        ig.tsbm(num_nodes=200, num_times=6, num_labels=3, seed=1).masked(CUTOFF)
    )
    with pytest.raises(ig.InputError, match="connectivity was estimated for other times"):
        PNY(*parts, connectivity=estimate)
