"""The PyG transforms: right weights, unchanged input, all kinds of objects, clear refusals."""

import copy
import re

import numpy as np
import pytest
import torch
from torch_geometric import EdgeIndex
from torch_geometric.data import Data, HeteroData
from torch_geometric.data.datapipes import DatasetAdapter
from torch_geometric.nn import SimpleConv
from torch_geometric.transforms import Compose, ToUndirected

from impact_gnn.checks import InputError
from impact_gnn.transforms import MMP, PMP, ChronologicalSplit, GenPMP

TRANSFORMS = [
    MMP(),
    MMP(deliver="drop"),
    MMP(deliver="duplicate"),
    MMP(deliver="attention"),
    PMP(),
    PMP(same_time="double", border="upper"),
    PMP(normalize=True),
    PMP(deliver="duplicate"),
    PMP(deliver="attention"),
    GenPMP(),
    GenPMP(cap=1.5),
    GenPMP(deliver="attention"),
    ChronologicalSplit(2018, valid=2),
]


def graph(num_nodes=40, num_edges=300, seed=0, **more):
    rng = np.random.default_rng(seed)
    return Data(
        x=torch.from_numpy(rng.normal(size=(num_nodes, 3))).float(),
        y=torch.from_numpy(rng.integers(-1, 3, num_nodes)),
        time=torch.from_numpy(rng.choice([2010, 2011, 2014, 2017, 2018, 2020], num_nodes)),
        edge_index=torch.from_numpy(rng.integers(0, num_nodes, (2, num_edges))),
        **more,
    )


def hetero(seed=0):
    rng = np.random.default_rng(seed)
    data = HeteroData()
    data["paper"].x = torch.from_numpy(rng.normal(size=(30, 3))).float()
    data["paper"].y = torch.from_numpy(rng.integers(0, 3, 30))
    data["paper"].time = torch.from_numpy(rng.integers(2012, 2020, 30))
    data["patent"].num_nodes = 20
    data["patent"].time = torch.from_numpy(rng.permutation(20) % 10 + 2010)
    data["author"].num_nodes = 10
    for relation, sizes in {
        ("paper", "cites", "paper"): (30, 30),
        ("patent", "cites", "paper"): (20, 30),
        ("author", "writes", "paper"): (10, 30),
    }.items():
        data[relation].edge_index = torch.from_numpy(
            np.stack([rng.integers(0, size, 100) for size in sizes])
        )
    return data


def naive_omega(method, source_time, target_time, edge_index, times):
    """The definitions edge by edge."""
    first, last = min(times), max(times)
    out = []
    for u, v in edge_index.T.tolist():
        t, s = int(target_time[v]), int(source_time[u])
        if method == "mmp":
            out.append(1.0 if s <= t else 0.0)
        elif method == "pmp":
            out.append(2.0 if abs(s - t) > min(last - t, t - first) else 1.0)
        else:
            out.append(2.0 if abs(s - t) > last - t or s == t else 1.0)
    return torch.tensor(out)


def snapshot(data):
    """Every tensor by identity and by value."""
    stores = data.stores
    return [
        (id(store), key, value, copy.deepcopy(value))
        for store in stores
        for key, value in store.items()
    ]


METHODS = [
    ("mmp", MMP),
    ("pmp", PMP),
    ("definition", lambda: PMP(same_time="double", border="upper")),
]


@pytest.mark.parametrize(("method", "make"), METHODS)
def test_weights_follow_the_definition(method, make):
    data = graph()
    expected = naive_omega(method, data.time, data.time, data.edge_index, data.time.tolist())
    weighted = make()(data)
    assert torch.equal(weighted.edge_weight, expected)
    assert weighted.edge_weight.dtype == torch.float32
    assert weighted.edge_index is data.edge_index


def test_genpmp_follows_the_definition():
    data = graph()
    time, (source, target) = data.time.tolist(), data.edge_index.tolist()

    def share(t, delta):
        gaps = [abs(s - t) for s in time]
        return gaps.count(delta) / len(gaps)

    expected = [
        share(max(time), abs(time[u] - time[v])) / share(time[v], abs(time[u] - time[v]))
        for u, v in zip(source, target, strict=True)
    ]
    np.testing.assert_allclose(GenPMP()(data).edge_weight, expected, rtol=1e-6)
    np.testing.assert_allclose(
        GenPMP(cap=0.7)(data).edge_weight, np.minimum(expected, 0.7), rtol=1e-6
    )


def test_existing_weights_are_multiplied_and_column_shape_is_accepted():
    own = torch.rand(300, dtype=torch.float64)
    omega = PMP()(graph()).edge_weight
    for own_weight in (own, own.view(-1, 1)):
        weighted = PMP()(graph(edge_weight=own_weight)).edge_weight
        assert weighted.dtype == torch.float64
        assert torch.equal(weighted, omega.double() * own)
    counts = torch.arange(300)
    assert torch.equal(PMP()(graph(edge_weight=counts)).edge_weight, omega * counts)


def test_existing_weights_stay_differentiable():
    own = torch.rand(300, requires_grad=True)
    PMP()(graph(edge_weight=own)).edge_weight.sum().backward()
    assert torch.equal(own.grad, PMP()(graph()).edge_weight)


@pytest.mark.parametrize("make", [MMP, PMP, GenPMP])
def test_normalised_sum_is_the_weighted_mean(make):
    data = graph(edge_weight=torch.rand(300))
    weight = make()(data).edge_weight.double()
    source, target = data.edge_index
    expected = torch.zeros(40, 3, dtype=torch.float64)
    for v in range(40):
        inside = target == v
        if weight[inside].sum() > 0:
            expected[v] = (weight[inside, None] * data.x[source[inside]]).sum(0) / weight[
                inside
            ].sum()
    out = make(normalize=True)(data)
    message = SimpleConv(aggr="sum")(out.x, out.edge_index, out.edge_weight)
    torch.testing.assert_close(message.double(), expected, rtol=1e-5, atol=1e-6)
    # the trap that normalize avoids
    mean = SimpleConv(aggr="mean")(out.x, out.edge_index, make()(data).edge_weight)
    assert (mean.double() - expected).abs().max() > 0.1


@pytest.mark.parametrize("transform", TRANSFORMS, ids=repr)
@pytest.mark.parametrize(
    "make", [lambda: graph(edge_weight=torch.rand(300), edge_attr=torch.rand(300, 2)), hetero]
)
def test_input_is_never_mutated(transform, make):
    data = make()
    before = snapshot(data)
    keys = [sorted(store.keys()) for store in data.stores]
    out = transform(data)
    assert out is not data
    assert [sorted(store.keys()) for store in data.stores] == keys
    now = [(id(store), key, value) for store in data.stores for key, value in store.items()]
    for (store, key, value, original), (store_now, key_now, value_now) in zip(
        before, now, strict=True
    ):
        assert (store, key) == (store_now, key_now)
        assert value is value_now, f"{key} was replaced"
        same = (
            torch.equal(value, original) if isinstance(value, torch.Tensor) else value == original
        )
        assert same, f"{key} was changed in place"


@pytest.mark.parametrize("transform", TRANSFORMS, ids=repr)
def test_repr_is_the_constructor_call(transform):
    names = {cls.__name__: cls for cls in (MMP, PMP, GenPMP, ChronologicalSplit)}
    assert eval(repr(transform), names) == transform
    assert repr(PMP()) == "PMP()"
    assert repr(ChronologicalSplit(2018)) == "ChronologicalSplit(cutoff=2018)"


@pytest.mark.parametrize("transform", [PMP(), MMP(), GenPMP()], ids=repr)
def test_shift_of_time_changes_nothing(transform):
    data, later = graph(), graph()
    later.time = later.time - 5000
    assert torch.equal(transform(data).edge_weight, transform(later).edge_weight)


def test_ogb_column_and_other_attribute_name():
    data = graph()
    expected = PMP()(data).edge_weight
    data.node_year = data.time.view(-1, 1)
    del data.time
    assert torch.equal(PMP(time="node_year")(data).edge_weight, expected)
    with pytest.raises(
        InputError, match="no nodes have 'time'; pass time='node_year', which exists"
    ):
        PMP()(data)


def test_hetero_weights_relations_with_time_at_both_ends():
    data = hetero()
    out = PMP()(data)
    # one time line for all types
    times = data["paper"].time.tolist() + data["patent"].time.tolist()
    for relation in [("paper", "cites", "paper"), ("patent", "cites", "paper")]:
        source, target = data[relation[0]].time, data[relation[2]].time
        expected = naive_omega("pmp", source, target, data[relation].edge_index, times)
        assert torch.equal(out[relation].edge_weight, expected)
    assert set(out["author", "writes", "paper"].keys()) == {"edge_index"}


def test_hetero_genpmp_counts_the_source_type():
    data = hetero()
    out = GenPMP()(data)["patent", "cites", "paper"]
    patents, edge = data["patent"].time, 7
    u, v = out.edge_index[:, edge]
    t, delta = data["paper"].time[v], (data["patent"].time[u] - data["paper"].time[v]).abs()
    last = max(int(data["paper"].time.max()), int(patents.max()))
    share = [float(((patents - at).abs() == delta).float().mean()) for at in (last, t)]
    assert float(out.edge_weight[edge]) == pytest.approx(share[0] / share[1])


def test_compose_and_functional_names():
    composed = Compose([ToUndirected(), PMP(normalize=True), ChronologicalSplit(2018)])
    out = composed(graph())
    assert {"edge_weight", "train_mask", "val_mask", "test_mask"} <= set(out.keys())
    pipe = (
        DatasetAdapter([graph(seed=s) for s in range(3)])
        .pmp(normalize=True)
        .chronological_split(2018)
    )
    assert [data.edge_weight.shape for data in pipe] == [(300,)] * 3
    assert hasattr(DatasetAdapter([]), "mmp")
    assert hasattr(DatasetAdapter([]), "gen_pmp")


def test_edge_index_class_of_pyg_is_accepted():
    data = graph()
    expected = PMP(deliver="duplicate")(data).edge_index
    data.edge_index = EdgeIndex(data.edge_index, sparse_size=(40, 40))
    out = PMP(deliver="duplicate")(data)
    assert torch.equal(out.edge_index, expected)
    assert not isinstance(out.edge_index, EdgeIndex)


def test_number_of_nodes_survives_when_only_the_time_tells_it():
    data = Data(edge_index=torch.tensor([[0, 2], [1, 1]]), time=torch.tensor([0, 1, 2, 3]))
    out = MMP(deliver="drop")(data)
    assert out.edge_index.tolist() == [[0], [1]]
    assert out.num_nodes == 4


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: PMP(deliver="drop"), "PMP cannot use deliver='drop': its weights are 1 and 2"),
        (
            lambda: GenPMP(deliver="drop"),
            "GenPMP cannot use deliver='drop': its weights are ratios",
        ),
        (
            lambda: GenPMP(deliver="duplicate"),
            "repeated a whole number of times; use 'weight' or 'attention'.",
        ),
        (
            lambda: PMP(deliver="post"),
            "deliver='post' is not valid; choose one of 'weight', 'drop'",
        ),
        (
            lambda: MMP(deliver="drop", normalize=True),
            "normalize=True has no effect with deliver='drop'",
        ),
        (lambda: PMP(same_time="triple"), "same_time='triple' is not valid"),
        (lambda: PMP(border="lower"), "border='lower' is not valid"),
        (lambda: GenPMP(cap=0), "cap=0 must be above zero"),
        (lambda: ChronologicalSplit("2018"), "cutoff has dtype"),
        (lambda: ChronologicalSplit(2018.5), "cutoff must be whole numbers"),
        (lambda: ChronologicalSplit(2018, valid=-1), "valid=-1 must be zero or more periods"),
    ],
)
def test_options_are_refused_at_once(make, sentence):
    with pytest.raises(InputError, match=re.escape(sentence)):
        make()


def spoiled(**change):
    data = graph()
    for key, value in change.items():
        data[key] = value
    return data


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (torch.ones(3), "PMP takes a torch_geometric Data or HeteroData, not Tensor"),
        (spoiled(time=None), "no nodes have 'time'; store one whole number per node as data.time"),
        (spoiled(time=torch.ones(39)), "'time' of 'node' has 39 entries for 40 nodes"),
        (spoiled(time=torch.full((40,), 0.5)), "position 0 is 0.5"),
        (
            spoiled(time={"paper": torch.ones(40)}),
            "'time' is a dict by node type; make a HeteroData",
        ),
        (spoiled(time=3), "'time' of 'node' has shape ()"),
        (
            spoiled(edge_index=torch.tensor([[0], [40]])),
            "edge 0 has target 40, but there are 40 such nodes",
        ),
        (spoiled(edge_index=None), "edge_index of node-to-node is NoneType"),
        (
            spoiled(edge_index=None, adj_t=torch.eye(40).to_sparse()),
            "apply this transform before ToSparseTensor",
        ),
        (
            spoiled(edge_weight=torch.ones(299)),
            "edge_weight of node-to-node has shape (299,) for 300 edges",
        ),
        (spoiled(edge_weight=-torch.ones(300)), "is negative (-1.0) at edge 0"),
        (Data(x=torch.ones(0, 1), time=torch.ones(0)), "'time' of 'node' is empty"),
        (
            Data(time=torch.arange(9000), edge_index=torch.tensor([[0], [1]])),
            "has 9,000 distinct values for 9,000 nodes",
        ),
    ],
)
def test_bad_data_is_refused_with_a_sentence(data, sentence):
    with pytest.raises(InputError, match=re.escape(sentence)):
        PMP()(data)


def test_hetero_without_a_usable_relation_is_refused():
    data = hetero()
    del data["paper", "cites", "paper"], data["patent", "cites", "paper"]
    with pytest.raises(
        InputError, match=re.escape("no relation has 'time' at both ends (author-writes-paper")
    ):
        PMP()(data)


def test_genpmp_passes_over_a_relation_without_edges():
    assert GenPMP()(graph(num_edges=0)).edge_weight.shape == (0,)


# --- ChronologicalSplit


def test_split_is_by_time_and_label():
    data = graph(num_nodes=200)
    out = ChronologicalSplit(2018, valid=2)(data)
    time, labelled = data.time, data.y >= 0
    assert torch.equal(out.test_mask, time >= 2018)
    assert torch.equal(out.val_mask, labelled & ((time == 2014) | (time == 2017)))
    assert torch.equal(out.train_mask, labelled & (time < 2014))
    assert not (out.train_mask & out.val_mask).any()


def test_split_counts_labelled_periods_only_and_takes_ogb_columns():
    data = Data(
        y=torch.tensor([[0.0], [1.0], [float("nan")], [0.0]]),
        node_year=torch.tensor([[2000], [2001], [2002], [2003]]),
    )
    out = ChronologicalSplit(2003, time="node_year")(data)
    assert out.train_mask.tolist() == [True, False, False, False]
    assert out.val_mask.tolist() == [False, True, False, False]
    assert out.test_mask.tolist() == [False, False, False, True]


def test_split_without_validation():
    out = ChronologicalSplit(2018, valid=0)(graph())
    assert not out.val_mask.any()
    assert out.train_mask.any()


def test_split_hetero_marks_types_with_label_and_time():
    out = ChronologicalSplit(2018)(hetero())
    assert "train_mask" in out["paper"]
    assert "train_mask" not in out["patent"]
    assert torch.equal(out["paper"].test_mask, out["paper"].time >= 2018)


@pytest.mark.parametrize(
    ("data", "split", "sentence"),
    [
        (
            graph(),
            ChronologicalSplit(2010),
            "nodes of type 'node' cannot be split: no node before cutoff=2010",
        ),
        (graph(), ChronologicalSplit(2030), "no node is at or after cutoff=2030"),
        (
            graph(),
            ChronologicalSplit(2018, valid=4),
            "valid=4 uses all 4 labelled periods before cutoff=2018",
        ),
        (
            spoiled(y=torch.full((40,), -1)),
            ChronologicalSplit(2018),
            "no node before cutoff=2018 has a label",
        ),
        (spoiled(y=None), ChronologicalSplit(2018), "no nodes have both 'y' and 'time'"),
        (spoiled(y=torch.ones(40, 7)), ChronologicalSplit(2018), "'y' of 'node' has shape (40, 7)"),
        (
            [1, 2],
            ChronologicalSplit(2018),
            "ChronologicalSplit takes a torch_geometric Data or HeteroData, not list",
        ),
    ],
)
def test_split_refuses_what_cannot_be_learned(data, split, sentence):
    with pytest.raises(InputError, match=re.escape(sentence)):
        split(data)
