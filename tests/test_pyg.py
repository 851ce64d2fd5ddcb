"""Conversion from and to PyG: Data, HeteroData and OGB's dictionaries, with time by any name."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch_geometric.data import Data, HeteroData

import impact_gnn as ig
from impact_gnn.estimators import Calibration
from reproduction.hetero_tsbm import hetero_tsbm


def homogeneous():
    return Data(
        x=torch.randn(4, 3),
        y=torch.tensor([[0], [1], [-1], [2]]),
        edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]),
        edge_weight=torch.tensor([1.0, 2.0, 0.5]),
        node_year=torch.tensor([[2019], [2020], [2021], [2020]]),
    )


def heterogeneous():
    data = HeteroData()
    data["paper"].x = torch.randn(3, 2)
    data["paper"].y = torch.tensor([0, 1, -1])
    data["paper"].time = torch.tensor([1, 2, 3])
    data["author"].num_nodes = 2
    data["author", "writes", "paper"].edge_index = torch.tensor([[0, 1], [0, 2]])
    data["paper", "cites", "paper"].edge_index = torch.tensor([[1, 2], [0, 0]])
    data["paper", "cites", "paper"].edge_weight = torch.tensor([1.0, 3.0])
    return data


def test_data_round_trip():
    data = homogeneous()
    g = ig.from_pyg(data, time="node_year")
    assert g.y.tolist() == [0, 1, -1, 2]
    assert g.time.tolist() == [2019, 2020, 2021, 2020]
    back = ig.to_pyg(g)
    assert torch.equal(back.x, data.x)
    assert torch.equal(back.edge_index, data.edge_index)
    assert torch.equal(back.edge_weight, data.edge_weight)
    assert torch.equal(back.y, data.y.flatten())
    assert torch.equal(back.time, data.node_year.flatten())
    assert back.validate()


def test_memory_is_shared_one_way_and_copied_back():
    data = homogeneous()
    g = ig.from_pyg(data, time="node_year")
    assert np.shares_memory(g.x, data.x.numpy())
    ig.to_pyg(g).x.zero_()
    assert data.x.abs().sum() > 0


def test_hetero_round_trip():
    data = heterogeneous()
    g = ig.from_pyg(data)
    assert (g.target, g.num_nodes) == ("paper", 3)
    assert g.nodes["author"].time is None
    back = ig.to_pyg(g)
    assert back.node_types == data.node_types
    assert back.edge_types == data.edge_types
    assert torch.equal(back["paper"].time, data["paper"].time)
    assert back["author"].num_nodes == 2
    weight = back["paper", "cites", "paper"].edge_weight
    assert torch.equal(weight, data["paper", "cites", "paper"].edge_weight)


def test_times_of_edges_go_there_and_back():
    data, several = homogeneous(), heterogeneous()
    data.t = torch.tensor([2020, 2021, 2021])
    assert ig.from_pyg(data, time="node_year").edge_time is None
    g = ig.from_pyg(data, time="node_year", edge_time="t")
    assert torch.equal(ig.to_pyg(g).edge_time, data.t)
    assert ig.from_pyg(ig.to_pyg(g)).edge_time.tolist() == [2020, 2021, 2021]
    several["author", "writes", "paper"].t = torch.tensor([2, 3])
    back = ig.to_pyg(ig.from_pyg(several, edge_time="t"))
    assert back["author", "writes", "paper"].edge_time.tolist() == [2, 3]
    assert "edge_time" not in back["paper", "cites", "paper"]
    for source in (data, several):
        with pytest.raises(
            ig.InputError, match="no edges have an attribute 'when'; pass edge_time="
        ):
            ig.from_pyg(source, time="node_year" if source is data else "time", edge_time="when")


def test_time_can_be_passed_directly():
    data = homogeneous()
    assert ig.from_pyg(data, time=torch.tensor([1, 2, 3, 4])).times.tolist() == [1, 2, 3, 4]
    hetero = heterogeneous()
    g = ig.from_pyg(
        hetero, time={"paper": torch.tensor([[7], [8], [9]]), "author": torch.tensor([7, 8])}
    )
    assert g.nodes["author"].time.tolist() == [7, 8]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"node_year": None}, "data has no attribute 'node_year'; pass time="),
        ({"edge_index": None}, "data has no edge_index"),
        ({"node_year": torch.tensor([1.5, 1, 1, 1])}, "time must be whole numbers"),
        ({"y": torch.eye(4)}, "y has shape .4, 4.; expected 1 dimension"),
    ],
)
def test_refusals(change, sentence):
    fields = homogeneous().to_dict() | change
    with pytest.raises(ig.InputError, match=sentence):
        ig.from_pyg(Data(**fields), time="node_year")


def test_hetero_refusals():
    data = heterogeneous()
    with pytest.raises(ig.InputError, match="no type has both; pass target"):
        ig.from_pyg(data, time="year")
    data["author"].y, data["author"].time = torch.tensor([0, 1]), torch.tensor([0, 1])
    with pytest.raises(ig.InputError, match="paper, author all have them; pass target"):
        ig.from_pyg(data)
    assert ig.from_pyg(data, target="author").target == "author"
    with pytest.raises(
        ig.InputError, match="data is a dict; pass a torch_geometric Data or HeteroData"
    ):
        ig.from_pyg({})


@pytest.mark.parametrize("kind", ["Data", "HeteroData", "a class of the user's own"])
def test_whatever_takes_a_graph_takes_pyg(kind):
    if kind == "HeteroData":
        graph = hetero_tsbm(
            60,
            20,
            5,
            3,
            num_times=5,
            num_labels=2,
            citations=300,
            writes=90,
            topics=90,
            affiliations=20,
        )
    else:
        graph = ig.tsbm(num_nodes=120, num_times=5, num_labels=2, num_features=3, seed=0)
    data = ig.to_pyg(graph)
    if kind.startswith("a class"):
        data = type("Own", (Data,), {"__module__": "mine"})(**data.to_dict())
    p = ig.Pipeline("linear", "labels", cutoff=4, epochs=2).fit(data)
    expected = ig.Pipeline("linear", "labels", cutoff=4, epochs=2).fit(graph).predict_proba(graph)
    assert np.array_equal(p.predict_proba(data), expected)
    assert np.array_equal(p.predict(data), p.predict(graph))
    assert np.array_equal(p.targets(data), p.targets(graph))
    assert p.score(data) == p.score(graph)
    assert p.stale(data) is None
    both = ig.Ensemble([p], [1.0], Calibration(), np.array([0.5, 0.5]))
    assert np.array_equal(both.predict_proba(data), both.predict_proba(graph))
    assert np.array_equal(both.predict(data), both.predict(graph))
    assert both.notes(data) == both.notes(graph)
    if kind == "Data":
        assert str(ig.diagnose(data, 4)) == str(ig.diagnose(graph, 4))
        tested = [
            ig.backtest(
                each,
                candidates=["plain"],
                folds=1,
                cutoff=4,
                pipeline=ig.Pipeline("linear", epochs=1),
            )
            for each in (data, graph)
        ]
        assert tested[0].rows == tested[1].rows


def test_what_is_no_graph_is_one_sentence(tmp_path):
    frame = pd.DataFrame({"a": [1]})
    calls = [
        lambda: ig.Pipeline().fit(frame),
        lambda: ig.diagnose(frame),
        lambda: ig.backtest(frame),
        lambda: ig.run(frame, tmp_path / "r"),
    ]
    for call in calls:
        with pytest.raises(
            ig.InputError,
            match=r"graph is a DataFrame; pass a TemporalGraph \(from_tables, load\) or",
        ):
            call()
    two = heterogeneous()
    two["author"].y, two["author"].time = torch.tensor([0, 1]), torch.tensor([0, 1])
    with pytest.raises(
        ig.InputError, match=r"all have them; pass target=... and time=... to from_pyg"
    ):
        ig.Pipeline().fit(two)
