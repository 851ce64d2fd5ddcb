"""The models: shapes, equality with dense formulas, effects of time weights, invertible blocks."""

import numpy as np
import pytest
import torch
from torch_geometric.nn import GroupAddRev

import impact_gnn as ig
from impact_gnn.nn import (
    ALIGNMENTS,
    GAMLP,
    GAT,
    GCN,
    SAGE,
    SGC,
    SIGN,
    Align,
    Message,
    Propagation,
    TimeCenter,
    align_layer,
)
from impact_gnn.nn.sparse import _Product
from reproduction.competing.originals import OriginalGAMLP, ResidualMLP
from reproduction.competing.revgat import LinearRevGAT, RevGAT, _SomeEdges

CUTOFF = 4
WIDTHS, LABELS = (5, 5, 8), 3


@pytest.fixture(scope="module")
def view():
    g = ig.tsbm(
        num_nodes=150, num_times=5, num_labels=LABELS, num_features=4, mean_degree=12, seed=1
    )
    keep = g.edge_index[1] != 7  # node 7 has no neighbours
    weight = np.random.default_rng(0).uniform(0.5, 2, keep.sum()).astype(np.float32)
    return ig.TemporalGraph(
        x=g.x,
        y=g.y,
        time=g.time,
        edge_index=g.edge_index[:, keep],
        edge_weight=weight,
        num_labels=LABELS,
    ).masked(CUTOFF)


@pytest.fixture(scope="module")
def x(view):
    return torch.tensor(view.x)


SPATIAL = {
    "gcn": lambda align=None: GCN(4, LABELS, 8, align=align),
    "sage": lambda align=None: SAGE(4, LABELS, 8, align=align),
    "gat": lambda align=None: GAT(4, LABELS, 8, align=align),
    "revgat": lambda align=None: RevGAT(4, LABELS, 4, num_layers=4, heads=2, align=align),
    "linear-revgat": lambda align=None: LinearRevGAT(
        4, LABELS, 4, num_layers=4, heads=2, align=align
    ),
    "linear-revgat-paper": lambda align=None: LinearRevGAT(4, LABELS, 4, num_layers=2, align=align),
}
DECOUPLED = {
    "sgc": lambda labels: SGC(WIDTHS, LABELS, label_channels=labels),
    "sgc-mlp": lambda labels: SGC(WIDTHS, LABELS, hidden=6, label_channels=labels),
    "sign": lambda labels: SIGN(WIDTHS, LABELS, hidden=6, label_channels=labels),
    "gamlp-recursive": lambda labels: GAMLP(WIDTHS, LABELS, hidden=6, label_channels=labels),
    "gamlp-original": lambda labels: OriginalGAMLP(WIDTHS, LABELS, 6, label_channels=labels),
}


def build_model(build, *args):
    torch.manual_seed(0)
    return build(*args)


def dense(view, weighting, norm="mean", loop=False):
    """The matrix M, straight from its definition."""
    table = ig.weighting.table(weighting, view.times, view.counts)
    matrix = np.zeros((view.num_nodes, view.num_nodes))
    for (u, v), a in zip(view.edge_index.T, view.edge_weight, strict=True):
        matrix[v, u] += table[view.period[v], view.period[u]] * a
    matrix += np.eye(len(matrix)) * loop
    inside = matrix.sum(1)
    scale = np.divide(1, inside, out=np.zeros_like(inside), where=inside > 0)
    if norm == "sym":
        return torch.tensor(np.sqrt(scale)[:, None] * matrix * np.sqrt(scale))
    return torch.tensor(scale[:, None] * matrix if norm == "mean" else matrix)


# -- decoupled


@pytest.mark.parametrize("name", DECOUPLED)
@pytest.mark.parametrize("labels", [(), (LABELS, LABELS)])
def test_decoupled_models_take_any_rows(name, labels):
    model = build_model(DECOUPLED[name], labels).eval()
    hops = [torch.randn(9, width) for width in WIDTHS]
    label_hops = [torch.rand(9, width) for width in labels]
    out = model(hops, label_hops)
    assert out.shape == (9, LABELS)
    rows = torch.tensor([4, 0])
    part = model([h[rows] for h in hops], [h[rows] for h in label_hops])
    torch.testing.assert_close(part, out[rows])
    torch.testing.assert_close(
        build_model(DECOUPLED[name], labels).eval()(hops, label_hops), out, rtol=0, atol=0
    )
    if labels:
        moved = model(hops, [h + 1 for h in label_hops])
        assert not torch.allclose(moved, out)


@pytest.mark.parametrize("name", DECOUPLED)
def test_every_parameter_learns(name):
    model = build_model(DECOUPLED[name], (LABELS,)).train()
    model(
        [torch.randn(30, width) for width in WIDTHS], [torch.rand(30, LABELS)]
    ).square().sum().backward()
    assert all(p.grad is not None and bool(p.grad.abs().sum() > 0) for p in model.parameters())


@pytest.mark.parametrize("layers", [1, 2, 5])
def test_residual_mlp_is_its_formula(layers):
    torch.manual_seed(0)
    model, x = ResidualMLP(4, 6, 3, layers).eval(), torch.randn(9, 4)
    hidden = first = model.first(x)
    for (linear, norm), (prelu, _) in zip(model.middle, model.after, strict=True):
        hidden = prelu(norm((0.5 * hidden + 0.5 * first) @ linear.weight.T + linear.bias) + hidden)
    assert len(model.middle) == max(layers - 2, 0)
    torch.testing.assert_close(model(x), model.last(hidden))


@pytest.mark.parametrize("name", ["sign", "gamlp-recursive"])
def test_every_hop_counts(name):
    model = build_model(DECOUPLED[name], ()).eval()
    hops = [torch.randn(9, width) for width in WIDTHS]
    for k in range(len(WIDTHS)):
        moved = [h + (i == k) for i, h in enumerate(hops)]
        assert not torch.allclose(model(moved), model(hops)), k


def test_sgc_reads_the_last_hop_only():
    model = build_model(DECOUPLED["sgc"], ())
    hops = [torch.randn(9, width) for width in WIDTHS]
    assert torch.equal(model(hops), model([hops[0] + 1, hops[1] + 1, hops[2]]))


def test_gamlp_attention_is_a_mean_of_hops():
    """Hops that are all alike after their encoders come out unchanged, whatever the scores."""
    attend = GAMLP([4, 4, 4], 2, hidden=5).attend
    same = torch.randn(6, 5)
    torch.testing.assert_close(attend([same, same, same]), same)


# -- the sparse product


@pytest.mark.parametrize("norm", ["mean", "sym", "sum"])
@pytest.mark.parametrize("loop", [False, True])
def test_propagation_is_the_dense_product_both_ways(view, norm, loop):
    matrix = dense(view, "genpmp", norm, loop).double()
    propagation = Propagation.of(view, weighting="genpmp", norm=norm, self_loop=loop)
    x = torch.randn(view.num_nodes, 5, dtype=torch.float64, requires_grad=True)
    upstream = torch.randn(view.num_nodes, 5, dtype=torch.float64)
    out = propagation(x)
    torch.testing.assert_close(out, matrix @ x)
    (grad,) = torch.autograd.grad(out, x, upstream)
    torch.testing.assert_close(grad, matrix.T @ upstream)
    other = _Product.apply(x, propagation._edge_product)  # what other devices use
    torch.testing.assert_close(other, matrix @ x, rtol=1e-5, atol=1e-6)
    (grad,) = torch.autograd.grad(other, x, upstream)
    torch.testing.assert_close(grad, matrix.T @ upstream, rtol=1e-5, atol=1e-6)


def test_propagation_passes_gradcheck():
    g = ig.tsbm(num_nodes=12, num_times=3, num_labels=2, seed=0)
    x = torch.randn(12, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(Propagation.of(g, weighting="pmp"), (x,))


def test_propagation_of_half_precision_and_strided_input(view):
    propagation = Propagation.of(view)
    x = torch.randn(6, view.num_nodes).T
    torch.testing.assert_close(propagation(x), propagation(x.contiguous()))
    assert propagation(x.bfloat16()).dtype == torch.float32


def test_propagation_refuses_two_node_types():
    g = ig.TemporalGraph.hetero(
        nodes={"a": {"x": np.ones((2, 1)), "y": [0, 1], "time": [0, 1]}, "b": {"num_nodes": 3}},
        edges={("b", "to", "a"): [[0, 1, 2], [0, 1, 1]]},
        target="a",
    )
    with pytest.raises(ig.InputError, match="maps 3 to 2 nodes"):
        Propagation.of(g)


# -- spatial


@pytest.mark.parametrize("name", SPATIAL)
@pytest.mark.parametrize("align", ALIGNMENTS)
def test_spatial_models_train_with_every_alignment(view, x, name, align):
    model = build_model(SPATIAL[name], align_layer(align, view))
    propagation = Propagation.of(view, weighting="pmp", self_loop=True)
    out = model(x, propagation)
    assert out.shape == (view.num_nodes, LABELS)
    out.square().mean().backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())
    model.eval()
    again = build_model(SPATIAL[name], align_layer(align, view)).eval()
    assert all(
        torch.equal(a, b) for a, b in zip(again.parameters(), model.parameters(), strict=True)
    )
    again.load_state_dict(model.state_dict())  # batch norms after one step
    assert torch.equal(again(x, propagation), model(x, propagation))
    # alignments leave nothing in it
    assert set(model.state_dict()) == set(build_model(SPATIAL[name]).state_dict())


@pytest.mark.parametrize("name", SPATIAL)
def test_time_weights_change_the_output(view, x, name):
    model = build_model(SPATIAL[name]).eval()
    plain, weighted = (model(x, Propagation.of(view, weighting=w)) for w in ("plain", "pmp"))
    assert not torch.allclose(plain, weighted)
    assert not torch.allclose(plain, model(x, Propagation.of(view, weighting="mmp")))


@pytest.mark.parametrize("norm", ["mean", "sym"])
def test_gcn_is_the_dense_formula(view, x, norm):
    model = build_model(SPATIAL["gcn"]).eval()
    matrix = dense(view, "pmp", norm, loop=True).float()
    first, second = model.linears
    expected = second(matrix @ torch.relu(first(matrix @ x)))
    out = model(x, Propagation.of(view, weighting="pmp", norm=norm, self_loop=True))
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-5)


def test_gcn_aligns_every_message(view, x):
    center = TimeCenter(torch.tensor(view.time))
    model = build_model(SPATIAL["gcn"], center).eval()
    matrix = dense(view, "plain").float()
    first, second = model.linears
    expected = second(center(matrix @ torch.relu(first(center(matrix @ x)))))
    torch.testing.assert_close(model(x, Propagation.of(view)), expected, rtol=1e-4, atol=1e-5)


def test_sage_keeps_the_node_itself(view, x):
    model = build_model(SPATIAL["sage"]).eval()
    matrix = dense(view, "mmp").float()
    hidden = torch.relu(model.roots[0](x) + model.linears[0](matrix @ x))
    expected = model.roots[1](hidden) + model.linears[1](matrix @ hidden)
    torch.testing.assert_close(
        model(x, Propagation.of(view, weighting="mmp")), expected, rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("weighting", ["pmp", "mmp", "genpmp"])
def test_gat_is_a_naive_weighted_softmax(view, x, weighting):
    model = GAT(4, LABELS, num_layers=1, heads=2).eval()
    conv = model.layers[0].conv
    table = ig.weighting.table(weighting, view.times, view.counts)
    sent = conv.lin(x).view(-1, 2, LABELS)
    expected = torch.zeros(view.num_nodes, LABELS)
    for v in range(view.num_nodes):
        into = np.flatnonzero(view.edge_index[1] == v)
        source = view.edge_index[0][into]
        weight = torch.tensor(table[view.period[v], view.period[source]] * view.edge_weight[into])
        if not (weight > 0).any():
            continue
        score = (sent[source] * conv.att_src[0]).sum(-1) + (sent[v] * conv.att_dst[0]).sum(-1)
        strength = weight[:, None] * torch.exp(torch.nn.functional.leaky_relu(score, 0.2))
        expected[v] = ((strength / strength.sum(0))[:, :, None] * sent[source]).sum(0).mean(0)
    out = model(x, Propagation.of(view, weighting=weighting)) - model.layers[0].bias
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["revgat", "linear-revgat"])
@pytest.mark.parametrize("align", ["none", "pny"])
def test_reversible_blocks_invert_and_give_ordinary_gradients(view, x, name, align):
    model = build_model(SPATIAL[name], align_layer(align, view)).double()
    propagation = Propagation.of(view, weighting="pmp")
    block = model.blocks[0]
    assert isinstance(block, GroupAddRev)
    hidden = torch.randn(view.num_nodes, 8, dtype=torch.float64)
    mask = torch.rand(view.num_nodes, 4, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(
            block._inverse(block._forward(hidden, propagation, mask), propagation, mask), hidden
        )

    def gradients():
        torch.manual_seed(1)  # for dropout of units and edges
        return torch.autograd.grad(
            model(x.double(), propagation).square().sum(), list(model.parameters())
        )

    model = build_model(SPATIAL[name], align_layer(align, view)).double()
    reversible, buffers = gradients(), dict(model.named_buffers())
    counts = {value.item() for name, value in buffers.items() if name.endswith("tracked")}
    assert counts == {1}  # a block is computed three times, and counts once
    means = {
        name: value.clone() for name, value in buffers.items() if name.endswith("running_mean")
    }
    model = build_model(SPATIAL[name], align_layer(align, view)).double()
    for each in model.blocks:
        each.disable = True
        each.conv = None
        each.forward = each._forward  # without recomputation
    for a, b in zip(reversible, gradients(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-8)
    for key, value in means.items():
        torch.testing.assert_close(value, dict(model.named_buffers())[key])


def test_linear_revgat_of_two_layers_is_the_dense_formula(view, x):
    """The authors' model.

    An input and an output layer, each with a map of the node itself, no invertible block.
    """
    model = build_model(SPATIAL["linear-revgat-paper"]).eval()
    assert len(model.blocks) == 0
    first, last, matrix = model.encode, model.classify, dense(view, "genpmp").float()
    assert first.layer.linear.weight.shape == (12, 4)  # three heads of four
    hidden = matrix @ x @ first.layer.linear.weight.T + first.layer.bias + x @ first.root.weight.T
    hidden = torch.relu(hidden / (1 + 1e-5) ** 0.5)  # a batch norm before its first step
    expected = (
        matrix @ hidden @ last.layer.linear.weight.T + last.layer.bias + hidden @ last.root.weight.T
    )
    torch.testing.assert_close(
        model(x, Propagation.of(view, weighting="genpmp")), expected, rtol=1e-4, atol=1e-5
    )


def test_dropped_edges_are_a_share_and_stay_the_same(view):
    torch.manual_seed(0)
    propagation = Propagation.of(view, weighting="pmp")
    some = _SomeEdges(propagation, 0.3, torch.device("cpu"))
    edges, weights = some.edges(torch.device("cpu"))
    assert edges is some.edges(torch.device("cpu"))[0]
    assert edges.shape[1] / propagation.edge_index.shape[1] == pytest.approx(0.7, abs=0.05)
    edge_lists = (*propagation.edge_index.tolist(), propagation.edges(edges.device)[1].tolist())
    every = {(u, v): w for u, v, w in zip(*edge_lists, strict=True)}
    assert all(every[u, v] == w for u, v, w in zip(*edges.tolist(), weights.tolist(), strict=True))


def test_reversible_sizes_are_checked():
    with pytest.raises(ig.InputError, match="hidden=9 cannot be split into 2 groups"):
        LinearRevGAT(4, 2, hidden=9)
    with pytest.raises(ig.InputError, match="num_groups=1 must be at least 2"):
        LinearRevGAT(4, 2, hidden=8, num_groups=1)
    with pytest.raises(
        ig.InputError, match="num_layers=1 must be at least 2: an input and an output layer"
    ):
        RevGAT(4, 2, hidden=8, num_layers=1)
    with pytest.raises(ig.InputError, match="7 columns cannot be divided among 2 heads"):
        GAT(4, 2, hidden=7)


# -- messages


def test_the_first_message_is_cached_until_the_input_changes(view):
    calls = []

    class Counted(torch.nn.Module):
        def forward(self, message):
            calls.append(1)
            return message

    message, propagation = Message(Counted(), cache=True), Propagation.of(view)
    x = torch.randn(view.num_nodes, 3)
    first = message(x, propagation)
    assert message(x, propagation) is first
    assert len(calls) == 1
    x += 1
    assert not torch.equal(message(x, propagation), first)
    assert not torch.equal(
        message(x, Propagation.of(view, weighting="mmp")), message(x, propagation)
    )
    assert len(calls) == 4
    assert message(x.clone().requires_grad_(), propagation).requires_grad


def test_align_gives_previous_only_where_it_is_asked_for(view):
    message, previous = torch.randn(view.num_nodes, 3), torch.randn(view.num_nodes, 3)
    for name in ("center", "pny"):
        layer = align_layer(name, view)
        assert Align(layer).takes_previous == (name == "pny")
        expected = layer(message, previous) if name == "pny" else layer(message)
        assert torch.equal(Align(layer)(message, previous), expected)


def test_alignment_names_and_views_are_checked(view):
    with pytest.raises(
        ig.InputError, match="align='batchnorm' is not valid; choose one of 'none', 'center'"
    ):
        align_layer("batchnorm", view)
    with pytest.raises(ig.InputError, match=r"pass graph\.masked"):
        align_layer("center", ig.tsbm(num_nodes=50, seed=0))


# -- alignment as layers need it: fast, and with the right gradients


def pny_layer(view, x, width, dtype, **options):
    """A message, what was aggregated, and the layer; wide enough to matter, on few nodes."""
    rng = np.random.default_rng(0)
    mixing = rng.normal(size=(x.shape[1], width)) / 2
    previous = torch.tensor(
        np.tanh(view.x @ mixing) + 0.1 * rng.normal(size=(len(x), width)), dtype=dtype
    )
    layer = align_layer("pny", view)
    for name, value in options.items():
        setattr(layer, name, value)
    return layer, previous


def gradients(layer, previous, propagation):
    message = propagation(previous)
    message, previous = message.detach().requires_grad_(), previous.clone().requires_grad_()
    out = layer(message, previous)
    upstream = torch.from_numpy(np.random.default_rng(1).normal(size=out.shape)).to(out.dtype)
    return out.detach(), torch.autograd.grad(out, (message, previous), upstream, allow_unused=True)


def test_pny_in_float32_comes_near_float64(view, x):
    """The spectrum spans five orders of magnitude, as that of hidden layers does."""
    results = []
    for dtype in (torch.float32, torch.float64):
        layer, previous = pny_layer(view, x, 40, dtype)
        results.append(gradients(layer, previous, Propagation.of(view)))
    (single, single_grads), (double, double_grads) = results
    assert (single - double).norm() < 1e-4 * double.norm()
    for a, b in zip(single_grads, double_grads, strict=True):
        assert (a - b).norm() < 1e-3 * b.norm()


def test_constant_maps_change_the_gradient_only(view, x):
    propagation = Propagation.of(view)
    exact, constant = (
        gradients(*pny_layer(view, x, 6, torch.float64, exact_gradient=flag), propagation)
        for flag in (True, False)
    )
    assert torch.equal(exact[0], constant[0])
    # maps do not depend on the message itself
    torch.testing.assert_close(exact[1][0], constant[1][0])
    assert exact[1][1].abs().max() > 0
    assert constant[1][1] is None
