"""Deliveries carry the same weights, and check_delivery detects layers that ignore them."""

import copy
import inspect
import re
import warnings

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg
from torch.nn import Linear, Module, ModuleList
from torch_geometric.data import Data, HeteroData
from torch_geometric.utils import softmax

from impact_gnn.checks import InputError
from impact_gnn.transforms import (
    MMP,
    PMP,
    DeliveryWarning,
    GenPMP,
    TimeGATConv,
    TimeGATv2Conv,
    check_delivery,
    time_attention,
)

N, E, F = 30, 200, 4


def graph(seed=0, loops=True, **more):
    rng = np.random.default_rng(seed)
    edge_index = torch.from_numpy(rng.integers(0, N, (2, E)))
    if not loops:
        edge_index[1] = torch.where(
            edge_index[0] == edge_index[1], (edge_index[1] + 1) % N, edge_index[1]
        )
    return Data(
        x=torch.from_numpy(rng.normal(size=(N, F))).float(),
        time=torch.from_numpy(rng.integers(0, 5, N)),
        edge_index=edge_index,
        **more,
    )


def weighted_mean(data, weight):
    """Σ w·x / Σ w node by node."""
    source, target = data.edge_index
    out = torch.zeros(N, F)
    for v in range(N):
        w = weight[target == v]
        if w.sum() > 0:
            out[v] = (w[:, None] * data.x[source[target == v]]).sum(0) / w.sum()
    return out


def close(left, right):
    torch.testing.assert_close(left, right, rtol=1e-4, atol=1e-5)


# --- the four deliveries


@pytest.mark.parametrize("make", [MMP, PMP])
@pytest.mark.parametrize(
    "conv",
    [
        pyg.GCNConv(F, 6),
        pyg.GCNConv(F, 6, normalize=False),
        pyg.GraphConv(F, 6),
        pyg.TAGConv(F, 6),
        pyg.APPNP(2, 0.1),
    ],
    ids=str,
)
def test_duplicate_equals_weight_where_layers_take_weights(make, conv):
    data = graph(loops=False)
    by_weight, by_copy = make()(data), make(deliver="duplicate")(data)
    assert "edge_weight" not in by_copy
    close(conv(data.x, by_copy.edge_index), conv(data.x, data.edge_index, by_weight.edge_weight))


@pytest.mark.parametrize(("make", "how"), [(MMP, "drop"), (MMP, "duplicate"), (PMP, "duplicate")])
def test_mean_over_delivered_edges_is_the_weighted_mean(make, how):
    data = graph()
    out = make(deliver=how)(data)
    close(
        pyg.SimpleConv(aggr="mean")(data.x, out.edge_index),
        weighted_mean(data, make()(data).edge_weight),
    )


@pytest.mark.parametrize("make", [MMP, PMP])
def test_edges_own_weights_stay_with_their_copies(make):
    data = graph(edge_weight=torch.rand(E))
    out = make(deliver="duplicate")(data)
    weight = make(normalize=True)(data)
    total = pyg.SimpleConv(aggr="sum")
    ones = torch.ones(N, 1)
    mean = total(data.x, out.edge_index, out.edge_weight) / total(
        ones, out.edge_index, out.edge_weight
    ).clamp(min=1e-9)
    close(mean, total(data.x, data.edge_index, weight.edge_weight))


EDGE_CHANGING = [MMP(deliver="drop"), MMP(deliver="attention"), PMP(deliver="duplicate")]


@pytest.mark.parametrize("transform", EDGE_CHANGING, ids=repr)
def test_every_edge_attribute_follows(transform):
    number = torch.arange(E)
    data = graph(
        edge_attr=number.view(-1, 1).float(),
        edge_type=number,
        kind=number.numpy(),
        names=[str(i) for i in range(E)],
        title="a graph",
        towns=[str(i) for i in range(N)],
    )
    out = transform(data)
    edge_type = out.edge_type
    assert edge_type.numel() != E
    assert torch.equal(out.edge_index, data.edge_index[:, edge_type])
    assert torch.equal(out.edge_attr[:, 0], edge_type.float())
    assert out.kind.tolist() == edge_type.tolist()
    assert out.names == [str(int(i)) for i in edge_type]
    assert out.x is data.x
    assert out.title == "a graph"
    assert len(out.towns) == N


def test_lists_of_nodes_survive_when_edges_are_as_many():
    data = Data(
        x=torch.ones(3, 1),
        time=torch.tensor([0, 1, 2]),
        edge_index=torch.tensor([[0, 1, 2], [1, 2, 0]]),
        names=["a", "b", "c"],
        edge_names=["ab", "bc", "ca"],
    )
    out = MMP(deliver="drop")(data)
    assert out.names == ["a", "b", "c"]
    assert out.edge_names == ["ab", "bc"]
    assert out.time is data.time


def test_attention_writes_the_log_weight_as_last_column():
    data = graph(edge_attr=torch.rand(E, 2), edge_weight=torch.rand(E))
    weight = PMP()(data).edge_weight
    out = PMP(deliver="attention")(data)
    close(out.edge_attr, torch.cat([data.edge_attr, weight.log().view(-1, 1)], 1))
    alone = MMP(deliver="attention")(graph())
    assert alone.edge_attr.shape == (alone.num_edges, 1)
    assert torch.equal(alone.edge_index, MMP(deliver="drop")(graph()).edge_index)
    assert PMP(deliver="attention")(
        graph(edge_attr=torch.ones(E, dtype=torch.long))
    ).edge_attr.shape == (E, 2)
    with pytest.raises(
        InputError, match=re.escape("edge_attr of node-to-node must be a tensor [E] or [E, d]")
    ):
        PMP(deliver="attention")(graph(edge_attr=torch.ones(E, 2, 2)))


@pytest.mark.parametrize("attributes", [None, torch.ones(1), torch.ones(1, 3)])
def test_attention_may_drop_the_last_edge(attributes):
    data = Data(x=torch.ones(2, 1), time=torch.tensor([0, 1]), edge_attr=attributes)
    data.edge_index = torch.tensor([[1], [0]])
    out = MMP(deliver="attention")(data)
    assert out.edge_index.shape == (2, 0)
    width = 0 if attributes is None else attributes[0].numel()
    assert out.edge_attr.shape == (0, width + 1)


# --- exact attention


def naive_attention(conv, data, weight, features=None):
    """α = w·exp(s) / Σ w·exp(s) with one self-loop of weight 1, edge by edge, from the papers of
    GAT and GATv2.
    """
    source, target = data.edge_index.tolist()
    edges = [
        (u, v, float(w), k)
        for k, (u, v, w) in enumerate(zip(source, target, weight, strict=True))
        if u != v
    ]
    inputs = torch.zeros(E, 0) if features is None else features
    into = [[inputs[k] for u, v, _, k in edges if v == node] for node in range(N)]
    loop = [torch.stack(rows).mean(0) if rows else torch.zeros(inputs.shape[1]) for rows in into]
    edges += [(v, v, 1.0, None) for v in range(N)]
    heads, size = conv.heads, conv.out_channels
    v2 = isinstance(conv, pyg.GATv2Conv)
    left = (conv.lin_l if v2 else conv.lin)(data.x).view(N, heads, size)
    right = conv.lin_r(data.x).view(N, heads, size) if v2 else left
    out, total = torch.zeros(N, heads, size), torch.zeros(N, heads, 1)
    for u, v, w, k in edges:
        edge = torch.zeros(heads, size)
        if features is not None:
            edge = conv.lin_edge(loop[v] if k is None else inputs[k]).view(heads, size)
        if v2:
            score = (
                torch.nn.functional.leaky_relu(left[u] + right[v] + edge, 0.2) * conv.att[0]
            ).sum(-1)
        else:
            score = (left[u] * conv.att_src[0] + right[v] * conv.att_dst[0]).sum(-1)
            if features is not None:
                score = score + (edge * conv.att_edge[0]).sum(-1)
            score = torch.nn.functional.leaky_relu(score, 0.2)
        share = (w * score.exp()).view(heads, 1)
        out[v] += share * left[u]
        total[v] += share
    return (out / total).view(N, heads * size) + conv.bias


GATS = [pyg.GATConv, pyg.GATv2Conv]


@pytest.mark.parametrize("gat", GATS)
@pytest.mark.parametrize("make", [MMP, PMP, GenPMP])
def test_time_attention_is_the_weighted_softmax(gat, make):
    torch.manual_seed(0)
    data = graph()
    conv = time_attention(gat(F, 5, heads=2))
    out = make(deliver="attention")(data)
    close(
        conv(data.x, out.edge_index, out.edge_attr),
        naive_attention(conv, data, make()(data).edge_weight),
    )


@pytest.mark.parametrize("gat", GATS)
def test_time_attention_keeps_edge_features(gat):
    torch.manual_seed(0)
    data = graph(edge_attr=torch.rand(E, 3), loops=False)
    conv = time_attention(gat(F, 5, heads=2, edge_dim=3))
    out = PMP(deliver="attention")(data)
    expected = naive_attention(conv, data, PMP()(data).edge_weight, data.edge_attr)
    close(conv(data.x, out.edge_index, out.edge_attr), expected)


def test_duplicates_weight_the_attention_of_a_transformer():
    """Copies need no special layer: its own attention α becomes w·α / Σ w·α."""
    torch.manual_seed(0)
    data = graph()
    conv, weight = pyg.TransformerConv(F, 5), PMP()(data).edge_weight
    (source, target), alpha = conv(data.x, data.edge_index, return_attention_weights=True)[1]
    share = weight * alpha[:, 0]
    share = share / torch.zeros(N).index_add_(0, target, share)[target]
    expected = conv.lin_skip(data.x).index_add(
        0, target, share[:, None] * conv.lin_value(data.x)[source]
    )
    close(conv(data.x, PMP(deliver="duplicate")(data).edge_index), expected)


@pytest.mark.parametrize("gat", GATS)
def test_time_attention_equals_duplicates_and_learned_path_does_not(gat):
    torch.manual_seed(0)
    data = graph(loops=False)
    bias = PMP(deliver="attention")(data)
    conv = gat(F, 5, heads=3)
    expected = conv(data.x, PMP(deliver="duplicate")(data).edge_index)
    close(time_attention(conv)(data.x, bias.edge_index, bias.edge_attr), expected)
    learned = gat(F, 5, heads=3, edge_dim=1)
    learned.load_state_dict({**learned.state_dict(), **conv.state_dict()})
    assert (learned(data.x, bias.edge_index, bias.edge_attr) - expected).abs().max() > 1e-3


@pytest.mark.parametrize("gat", GATS)
@pytest.mark.parametrize(
    "options", [{}, {"concat": False, "residual": True, "bias": False}, {"dropout": 0.5}], ids=str
)
def test_weight_one_leaves_the_layer_as_it_was(gat, options):
    data = graph()
    conv = gat(F, 5, heads=2, **options)
    outputs = []
    for layer, attributes in ((conv, None), (time_attention(conv), torch.zeros(E, 1))):
        torch.manual_seed(3)
        outputs.append(layer(data.x, data.edge_index, attributes))
    close(*outputs)


@pytest.mark.parametrize("gat", GATS)
def test_between_two_node_types(gat):
    torch.manual_seed(0)
    conv = gat((F, 3), 5, add_self_loops=False)
    x = (torch.randn(6, F), torch.randn(2, 3))
    edge_index = torch.tensor([[0, 1, 2, 3, 4, 5], [0, 0, 0, 1, 1, 1]])
    weight = torch.tensor([1, 2, 1, 2, 2, 1])
    expected = conv(x, edge_index.repeat_interleave(weight, dim=1))
    close(time_attention(conv)(x, edge_index, weight.float().log()), expected)


def test_conversion_shares_parameters_and_leaves_the_rest():
    model = pyg.GAT(F, 8, num_layers=2, out_channels=3, dropout=0.5, norm="BatchNorm").eval()
    before = {name: id(value) for name, value in model.named_parameters()}
    first = model.convs[0]
    assert time_attention(model) is model
    assert {name: id(value) for name, value in model.named_parameters()} == before
    assert isinstance(model.convs[0], TimeGATConv)
    assert not model.convs[0].training
    assert type(first) is pyg.GATConv
    assert time_attention(model).convs[0] is model.convs[0]  # once is enough
    data = PMP(deliver="attention")(graph())
    close(
        *(
            m(data.x, data.edge_index, edge_attr=data.edge_attr)
            for m in (model, copy.deepcopy(model))
        )
    )
    assert pyg.GAT(F, 8, 2, 3, norm="BatchNorm").state_dict().keys() == model.state_dict().keys()


def test_a_layer_used_twice_stays_one_layer():
    conv = pyg.GATv2Conv(F, F)
    layers = time_attention(ModuleList([conv, conv, Linear(F, F)]))
    assert isinstance(layers[0], TimeGATv2Conv)
    assert layers[0] is layers[1]


def test_log_weight_can_be_learned():
    data = PMP(deliver="attention")(graph())
    bias = data.edge_attr.requires_grad_()
    TimeGATConv(F, 2)(data.x, data.edge_index, bias).pow(2).sum().backward()
    assert bias.grad.abs().sum() > 0


def test_time_layers_refuse_to_run_without_the_log_weight():
    data = PMP(deliver="attention")(graph())
    with pytest.raises(InputError, match=r"needs edge_attr with 1 columns .* but got 0; apply PMP"):
        TimeGATConv(F, 2)(data.x, data.edge_index)
    with pytest.raises(
        InputError,
        match=r"needs edge_attr with 2 columns .* do not count the log-weight in edge_dim",
    ):
        TimeGATv2Conv(F, 2, edge_dim=1)(data.x, data.edge_index, data.edge_attr)


# --- check_delivery: every layer of PyG

MLP = Linear(F, 6)
EDGE_MLP = Linear(1, F * 6)
RELATION = ("a", "to", "a")
META = (["a"], [RELATION])
LAYERS = {
    "AGNNConv": lambda: pyg.AGNNConv(),
    "APPNP": lambda: pyg.APPNP(2, 0.1),
    "ARMAConv": lambda: pyg.ARMAConv(F, 6),
    "CGConv": lambda: pyg.CGConv(F, 1),
    "ChebConv": lambda: pyg.ChebConv(F, 6, 2),
    "ClusterGCNConv": lambda: pyg.ClusterGCNConv(F, 6),
    "DNAConv": lambda: pyg.DNAConv(F),
    "EGConv": lambda: pyg.EGConv(F, 8),
    "EdgeConv": lambda: pyg.EdgeConv(Linear(2 * F, 6)),
    "FAConv": lambda: pyg.FAConv(F, normalize=False),  # with normalize=True it refuses weights
    "FastRGCNConv": lambda: pyg.FastRGCNConv(F, 6, 2),
    "FeaStConv": lambda: pyg.FeaStConv(F, 6),
    "FiLMConv": lambda: pyg.FiLMConv(F, 6, 2),
    "GATConv": lambda: pyg.GATConv(F, 6, edge_dim=1),
    "GATv2Conv": lambda: pyg.GATv2Conv(F, 6, edge_dim=1),
    "GCN2Conv": lambda: pyg.GCN2Conv(F, 0.5),
    "GCNConv": lambda: pyg.GCNConv(F, 6),
    "GENConv": lambda: pyg.GENConv(F, 6, edge_dim=1),
    "GINConv": lambda: pyg.GINConv(MLP),
    "GINEConv": lambda: pyg.GINEConv(MLP, edge_dim=1),
    "GMMConv": lambda: pyg.GMMConv(F, 6, 1, 2),
    "GatedGraphConv": lambda: pyg.GatedGraphConv(6, 2),
    "GeneralConv": lambda: pyg.GeneralConv(F, 6, in_edge_channels=1),
    "GraphConv": lambda: pyg.GraphConv(F, 6),
    "HANConv": lambda: pyg.HANConv(F, 6, META),
    "HEATConv": lambda: pyg.HEATConv(
        F,
        6,
        num_node_types=1,
        num_edge_types=2,
        edge_type_emb_dim=3,
        edge_dim=1,
        edge_attr_emb_dim=3,
    ),
    "HGTConv": lambda: pyg.HGTConv(F, 6, META),
    "LEConv": lambda: pyg.LEConv(F, 6),
    "LGConv": lambda: pyg.LGConv(),
    "MFConv": lambda: pyg.MFConv(F, 6),
    "MixHopConv": lambda: pyg.MixHopConv(F, 6),
    "NNConv": lambda: pyg.NNConv(F, 6, EDGE_MLP),
    "PDNConv": lambda: pyg.PDNConv(F, 6, 1, 4),
    "PNAConv": lambda: pyg.PNAConv(
        F, 6, ["mean"], ["identity"], torch.ones(5, dtype=torch.long), edge_dim=1
    ),
    "PointNetConv": lambda: pyg.PointNetConv(),
    "RGATConv": lambda: pyg.RGATConv(F, 6, 2, edge_dim=1),
    "RGCNConv": lambda: pyg.RGCNConv(F, 6, 2),
    "ResGatedGraphConv": lambda: pyg.ResGatedGraphConv(F, 6, edge_dim=1),
    "SAGEConv": lambda: pyg.SAGEConv(F, 6),
    "SGConv": lambda: pyg.SGConv(F, 6),
    "SSGConv": lambda: pyg.SSGConv(F, 6, 0.1),
    "SimpleConv": lambda: pyg.SimpleConv(),
    "SuperGATConv": lambda: pyg.SuperGATConv(F, 6),
    "TAGConv": lambda: pyg.TAGConv(F, 6),
    "TransformerConv": lambda: pyg.TransformerConv(F, 6, edge_dim=1),
    "WLConvContinuous": lambda: pyg.WLConvContinuous(),
}
TAKE_WEIGHT = [
    "APPNP",
    "ARMAConv",
    "ChebConv",
    "DNAConv",
    "FAConv",
    "GCN2Conv",
    "GCNConv",
    "GatedGraphConv",
    "GraphConv",
    "LEConv",
    "LGConv",
    "MixHopConv",
    "SGConv",
    "SSGConv",
    "SimpleConv",
    "TAGConv",
    "WLConvContinuous",
]


def run(conv, data):
    """Calls a layer of any signature with what `data` offers."""
    edge_type = torch.arange(data.num_edges) % 2
    offer = {
        "x": data.x.view(N, 1, F) if isinstance(conv, pyg.DNAConv) else data.x,
        "x_0": data.x,
        "pos": data.x[:, :3],
        "edge_index": data.edge_index,
        "edge_weight": data.get("edge_weight", torch.ones(data.num_edges)),
        "edge_attr": data.get("edge_attr", torch.zeros(data.num_edges, 1)),
        "edge_type": edge_type,
        "node_type": torch.zeros(N, dtype=torch.long),
        "x_dict": {"a": data.x},
        "edge_index_dict": {RELATION: data.edge_index},
    }
    return conv(
        **{key: offer[key] for key in inspect.signature(conv.forward).parameters if key in offer}
    )


def quiet(*args, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeliveryWarning)
        return check_delivery(*args, **options)


def kinds(findings):
    return {finding.kind for finding in findings}


def test_the_17_layers_of_pyg_that_take_a_weight():
    """If PyG adds a layer, or a weight to one, this fails."""
    taking = [
        name
        for name in pyg.conv.__all__
        if issubclass(getattr(pyg, name), pyg.MessagePassing)
        and "edge_weight" in inspect.signature(getattr(pyg, name).forward).parameters
    ]
    assert sorted(taking) == sorted(TAKE_WEIGHT)
    assert len(taking) == 17


@pytest.mark.parametrize("name", LAYERS)
def test_static_and_running_check_agree_on_edge_weight(name):
    torch.manual_seed(0)
    conv, data = LAYERS[name](), PMP()(graph())
    static, running = quiet(conv, data), quiet(conv, data, lambda d: run(conv, d))
    expected = name not in TAKE_WEIGHT
    assert ("ignored" in kinds(static)) == expected
    assert ("ignored" in kinds(running)) == expected


@pytest.mark.parametrize("name", LAYERS)
def test_static_and_running_check_agree_on_edge_attr(name):
    torch.manual_seed(0)
    conv, data = LAYERS[name](), PMP(deliver="attention")(graph())
    static, running = quiet(conv, data), quiet(conv, data, lambda d: run(conv, d))
    expected = "edge_attr" not in inspect.signature(conv.forward).parameters
    assert ("ignored" in kinds(static)) == expected
    assert ("ignored" in kinds(running)) == expected


@pytest.mark.parametrize("name", LAYERS)
def test_every_layer_receives_dropped_and_repeated_edges(name):
    torch.manual_seed(0)
    conv = LAYERS[name]()
    data = graph()
    assert "ignored" not in kinds(quiet(conv, data, lambda d: run(conv, d), deliver="drop"))
    repeated = quiet(conv, data, lambda d: run(conv, d), deliver="duplicate")
    extreme = conv.aggr in ("max", "min")
    assert ("ignored" in kinds(repeated)) == extreme
    assert ("aggregation" in kinds(repeated)) == extreme


# --- check_delivery: models


def test_warning_names_the_layer_and_the_remedy():
    model = pyg.GraphSAGE(F, 8, num_layers=2)
    with pytest.warns(DeliveryWarning) as caught:
        findings = check_delivery(model, PMP()(graph()))
    assert [str(item.message) for item in caught] == [finding.message for finding in findings]
    assert [finding.layer for finding in findings] == ["convs.0", "convs.1"]
    assert findings[0].message == (
        "layer 'convs.0' (SAGEConv) takes no edge_weight and would ignore the time weights; "
        "use deliver='duplicate' (PMP, MMP) or 'drop' (MMP)."
    )
    assert caught[0].filename == __file__


@pytest.mark.filterwarnings("error")
def test_silence_where_all_is_well():
    assert check_delivery(pyg.GraphSAGE(F, 8, 2), PMP(deliver="duplicate")(graph())) == []
    assert (
        check_delivery(pyg.GraphSAGE(F, 8, 2), MMP(deliver="drop")(graph()), deliver="drop") == []
    )
    assert check_delivery(pyg.GraphConv(F, 8), PMP(normalize=True)(graph())) == []
    model, data = time_attention(pyg.GAT(F, 8, 2)), PMP(deliver="attention")(graph())
    assert check_delivery(model, data) == []
    assert (
        check_delivery(model, data, lambda d: model(d.x, d.edge_index, edge_attr=d.edge_attr)) == []
    )


def test_gat_without_edge_dim_ignores_the_log_weight():
    with pytest.warns(
        DeliveryWarning, match="'convs.0' .GATConv. was built with edge_dim=None .* time_attention"
    ):
        check_delivery(pyg.GAT(F, 8, 1), PMP(deliver="attention")(graph()))
    with pytest.warns(
        DeliveryWarning,
        match=r"takes no edge_weight .* use deliver='attention' with time_attention",
    ):
        check_delivery(pyg.GAT(F, 8, 1), PMP()(graph()))
    with pytest.warns(
        DeliveryWarning, match=r"takes no edge_attr .* use deliver='weight' and pass edge_weight"
    ):
        check_delivery(pyg.GCN(F, 8, 1), PMP(deliver="attention")(graph()))


def test_mean_aggregation_and_double_normalisation():
    with pytest.warns(
        DeliveryWarning, match="aggr='mean', which is not the weighted mean .* normalize=True"
    ):
        check_delivery(pyg.GraphConv(F, 8, aggr="mean"), PMP()(graph()))
    with pytest.warns(
        DeliveryWarning, match="its self-loop counts as much as all neighbours together"
    ):
        check_delivery(pyg.GCNConv(F, 8), PMP(normalize=True)(graph()))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert check_delivery(pyg.GCNConv(F, 8), PMP()(graph())) == []
        assert (
            check_delivery(pyg.GCNConv(F, 8, normalize=False), PMP(normalize=True)(graph())) == []
        )


def test_self_loop_of_a_normalised_gcn_takes_half():
    """The claim behind the warning."""
    data = PMP(normalize=True)(graph(loops=False))
    conv = pyg.GCNConv(F, F, bias=False)
    torch.nn.init.eye_(conv.lin.weight)
    reached = data.edge_index[1].unique()
    mean = pyg.SimpleConv(aggr="sum")(data.x, data.edge_index, data.edge_weight)
    full = set(reached.tolist()) == set(range(N))
    assert full
    close(conv(data.x, data.edge_index, data.edge_weight), (data.x + mean) / 2)


class Forgetful(Module):
    """Two layers; the second does not get the weights."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = (
            pyg.GCNConv(F, 8, cached=True),
            pyg.GCNConv(8, 8),
            pyg.GCNConv(8, 2),
        )

    def forward(self, x, edge_index, edge_weight):
        return self.second(self.first(x, edge_index, edge_weight).relu(), edge_index)


def test_running_finds_the_layer_that_was_forgotten():
    model, data = Forgetful(), PMP()(graph())
    model.first(data.x, data.edge_index, data.edge_weight)  # fills the cache
    model.train()
    cache = model.first._cached_edge_index
    assert "ignored" not in kinds(quiet(model, data))  # the signature cannot know
    state = torch.get_rng_state()
    with pytest.warns(
        DeliveryWarning, match=r"'second' .* ignores .*; pass edge_weight=data.edge_weight"
    ):
        findings = check_delivery(model, data, lambda d: model(d.x, d.edge_index, d.edge_weight))
    assert {finding.layer: finding.kind for finding in findings} == {"second": "ignored"}
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training
    assert model.first.cached
    assert model.first._cached_edge_index is cache
    assert not any(layer._forward_hooks for layer in model.modules())


def test_model_is_left_as_it_was_when_call_fails():
    model, data = Forgetful().train(), PMP()(graph())
    with pytest.raises(ZeroDivisionError):
        check_delivery(model, data, lambda d: 1 / 0)
    assert model.training
    assert model.first.cached
    assert not any(layer._forward_hooks for layer in model.modules())


def test_running_finds_a_wrapper_that_drops_the_weights():
    model, data = pyg.DirGNNConv(pyg.GraphConv(F, 6)), PMP()(graph())
    assert quiet(model, data) == []
    findings = quiet(model, data, lambda d: model(d.x, d.edge_index))
    assert [finding.kind for finding in findings] == ["ignored", "ignored"]


def test_layer_called_twice_and_weighted_once():
    conv, data = pyg.GraphConv(F, F), PMP()(graph())
    with pytest.warns(DeliveryWarning, match="used the time weights in 1 of its 2 calls"):
        check_delivery(
            conv, data, lambda d: conv(conv(d.x, d.edge_index, d.edge_weight), d.edge_index)
        )


def test_model_that_holds_on_to_the_old_edges():
    data = graph()
    conv = pyg.SAGEConv(F, 6)
    with pytest.warns(
        DeliveryWarning, match="its output is the same when edges of data are repeated"
    ):
        check_delivery(conv, PMP(deliver="duplicate")(data), lambda d: conv(d.x, data.edge_index))


def test_custom_layer_is_judged_by_running():
    class Own(pyg.MessagePassing):
        def forward(self, x, edge_index, strength):
            return self.propagate(edge_index, x=x, strength=strength)

        def message(self, x_j, strength):
            return x_j * strength.view(-1, 1)

    conv, data = Own(), PMP()(graph())
    assert kinds(quiet(conv, data)) == {"ignored"}
    assert quiet(conv, data, lambda d: conv(d.x, d.edge_index, d.edge_weight)) == []


def hetero():
    data = HeteroData()
    data["paper"].x, data["author"].x = torch.randn(N, F), torch.randn(5, F)
    data["paper"].time = torch.arange(N) % 5
    data["paper", "cites", "paper"].edge_index = torch.randint(0, N, (2, E))
    data["author", "writes", "paper"].edge_index = torch.stack(
        [torch.randint(0, 5, (E,)), torch.randint(0, N, (E,))]
    )
    return data


@pytest.mark.filterwarnings("ignore:There exist node types")
def test_hetero_layers_of_unweighted_relations_are_not_blamed():
    torch.manual_seed(0)
    data = PMP()(hetero())
    cites, writes = ("paper", "cites", "paper"), ("author", "writes", "paper")
    model = pyg.HeteroConv({cites: pyg.GraphConv(F, 6), writes: pyg.SAGEConv(F, 6)})

    def call(d):
        return model(d.x_dict, d.edge_index_dict, edge_weight_dict={cites: d[cites].edge_weight})

    assert check_delivery(model, data) == []
    assert check_delivery(model, data, call) == []
    blamed = quiet(model, data, lambda d: model(d.x_dict, d.edge_index_dict))
    assert [finding.kind for finding in blamed] == ["ignored"]
    assert "cites" in blamed[0].layer
    sage = pyg.to_hetero(pyg.GraphSAGE(F, 6, 1), data.metadata(), aggr="sum")
    assert [finding.layer for finding in quiet(sage, data)] == ["convs.0.paper__cites__paper"]


@pytest.mark.filterwarnings("ignore:There exist node types")
def test_a_relation_is_known_by_its_whole_name():
    """The name of a relation without weights may end that of one with weights."""
    data = HeteroData()
    data["paper"].x, data["newspaper"].x = torch.randn(N, F), torch.randn(N, F)
    data["newspaper"].time = torch.arange(N) % 5
    data["newspaper", "to", "newspaper"].edge_index = torch.randint(0, N, (2, E))
    data["paper", "to", "newspaper"].edge_index = torch.randint(0, N, (2, E))
    model = pyg.HeteroConv({relation: pyg.SAGEConv(F, 6) for relation in data.edge_types})
    assert [finding.layer for finding in quiet(model, PMP()(data))] == [
        "convs.<newspaper___to___newspaper>"
    ]


@pytest.mark.parametrize(
    ("make", "how"), [(MMP, "drop"), (MMP, "duplicate"), (PMP, "duplicate"), (PMP, "attention")]
)
def test_hetero_deliveries_change_weighted_relations_only(make, how):
    data = hetero()
    out, weight = make(deliver=how)(data), make()(data)["paper", "cites", "paper"].edge_weight
    cites, writes = out["paper", "cites", "paper"], out["author", "writes", "paper"]
    assert cites.num_edges == (E if how == "attention" else int(weight.sum()))
    assert writes.edge_index is data["author", "writes", "paper"].edge_index
    assert list(writes.keys()) == ["edge_index"]


def test_own_whole_number_attributes_are_not_taken_for_log_weights():
    data = PMP(deliver="duplicate")(graph(edge_attr=torch.zeros(E, dtype=torch.long)))
    assert check_delivery(pyg.SAGEConv(F, 6), data) == []


def test_hgt_ignores_weights_and_counts_repeated_edges():
    data = hetero()
    model = pyg.HGTConv(F, 6, data.metadata())
    with pytest.warns(DeliveryWarning, match=r"'HGTConv' .HGTConv. takes no edge_weight"):
        check_delivery(model, PMP()(data))
    copies = PMP(deliver="duplicate")(data)
    assert check_delivery(model, copies, lambda d: model(d.x_dict, d.edge_index_dict)) == []


def test_data_without_weights():
    data = graph()
    data.edge_index = data.edge_index.unique(dim=1)
    with pytest.warns(
        DeliveryWarning,
        match="there are no time weights to deliver; apply MMP, PMP or GenPMP first",
    ):
        check_delivery(pyg.SAGEConv(F, 6), data)
    assert check_delivery(Linear(F, 2), PMP()(data)) == []
    with pytest.raises(InputError, match="deliver='letter' is not valid"):
        check_delivery(pyg.SAGEConv(F, 6), data, deliver="letter")
    with pytest.raises(
        InputError, match="check_delivery takes a torch_geometric Data or HeteroData, not dict"
    ):
        check_delivery(pyg.SAGEConv(F, 6), {})


def test_softmax_of_scores_plus_log_weight_is_the_weighted_softmax():
    """The identity the exact attention rests on."""
    score, weight, index = torch.randn(E), torch.rand(E), torch.randint(0, N, (E,))
    share = weight * softmax(score, index)
    total = torch.zeros(N).index_add_(0, index, share)
    close(softmax(score + weight.log(), index), share / total[index])
