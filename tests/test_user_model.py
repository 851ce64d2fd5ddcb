"""User models in a pipeline: their inputs, initialisation, back-test, saving and refusals."""

import copy
import functools
import pickle

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.nn import GATConv, GCNConv, SAGEConv
from torch_geometric.nn.models import GCN, GraphSAGE

import impact_gnn as ig
from impact_gnn._progress import watched
from impact_gnn.backtesting.search import Search
from impact_gnn.estimators import Candidate, Pipeline, model_name
from impact_gnn.estimators.user_model import UserNetwork
from impact_gnn.job.evaluate import evaluate
from impact_gnn.job.watch import watch

CUTOFF = 5
QUICK = {"cutoff": CUTOFF, "epochs": 6, "device": "cpu"}


@pytest.fixture(scope="module")
def graph():
    return ig.tsbm(num_nodes=300, num_times=6, num_labels=3, num_features=4, mean_degree=12, seed=0)


class Weighted(nn.Module):
    """A typical GNN, which records its inputs."""

    def __init__(self, in_channels=4, out_channels=3, hidden=8, dropout=0.0, cached=False):
        super().__init__()
        self.first, self.last = (
            GCNConv(in_channels, hidden, cached=cached),
            GCNConv(hidden, out_channels),
        )
        self.dropout, self.received = dropout, None

    def forward(self, x, edge_index, edge_weight=None):
        self.received = x, edge_index, edge_weight
        x = torch.relu(self.first(x, edge_index, edge_weight))
        return self.last(torch.dropout(x, self.dropout, self.training), edge_index, edge_weight)


class Unweighted(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = SAGEConv(4, 3)

    def forward(self, x, edge_index):
        self.received = x, edge_index
        return self.conv(x, edge_index)


def received_inputs(pipeline):
    return pipeline.fitted.head.model.module.received


@pytest.mark.parametrize("method", ["plain", "pmp", "mmp", "genpmp"])
def test_the_network_receives_plain_edges_with_the_weights_of_the_method(graph, method):
    p = Pipeline(Weighted(), method, undirected=False, **QUICK).fit(graph)
    x, edge_index, weight = received_inputs(p)
    table = ig.weighting.METHODS[method](graph.times, graph.counts)
    source, target = graph.edge_index
    expected = table[graph.period[target], graph.period[source]]
    order = np.lexsort(graph.edge_index[:, expected > 0])
    came = np.lexsort(edge_index.numpy())
    assert np.array_equal(edge_index.numpy()[:, came], graph.edge_index[:, expected > 0][:, order])
    assert np.allclose(weight.numpy()[came], expected[expected > 0][order], rtol=1e-6)
    assert x.shape == (300, 4)
    assert np.allclose(x.numpy()[graph.time < CUTOFF].mean(0), 0, atol=1e-5)


def test_weights_change_predictions(graph):
    probabilities = [
        Pipeline(Weighted(), method, **QUICK).fit(graph).predict_proba(graph)
        for method in ("plain", "pmp")
    ]
    assert np.abs(probabilities[0] - probabilities[1]).max() > 1e-3


@pytest.mark.parametrize("method", ["plain", "mmp", "recency", "smooth", "mmp+curriculum"])
def test_a_network_without_weights_takes_methods_that_have_none(graph, method):
    p = Pipeline(Unweighted(), method, undirected=False, **QUICK).fit(graph)
    source, target = graph.edge_index
    is_visible = (
        graph.time[source] <= graph.time[target] if "mmp" in method else np.ones(len(source), bool)
    )
    assert received_inputs(p)[1].shape[1] == is_visible.sum()
    assert p.predict_proba(graph).shape == (48, 3)


@pytest.mark.parametrize(
    "model",
    [
        GCN(4, 8, 2, 3),
        functools.partial(GCN, hidden_channels=8, num_layers=2),
        Weighted,
        lambda i, o: Weighted(i, o),
    ],
    ids=["PyG's model", "by name", "a class", "a function"],
)
def test_modules_and_functions_that_build_them(graph, model):
    fits = [Pipeline(model, "pmp", **QUICK).fit(graph) for _ in range(2)]
    probabilities = [p.predict_proba(graph) for p in fits]
    assert np.array_equal(probabilities[0], probabilities[1])
    other = Pipeline(model, "pmp", seed=1, **QUICK).fit(graph).predict_proba(graph)
    assert np.abs(other - probabilities[0]).max() > 1e-4


@pytest.mark.parametrize("network", [Weighted(), Unweighted()])
def test_the_inputs_of_a_compiled_network_are_recognised(network):
    takes = [
        UserNetwork(one, 3).takes_weight
        for one in (network, torch.compile(network, backend="eager"))
    ]
    assert takes == [isinstance(network, Weighted)] * 2


def test_nothing_that_a_module_has_learned_before_stays(graph):
    fresh, trained = Weighted(), Weighted()
    for parameter in trained.parameters():
        nn.init.constant_(parameter, 3.0)
    before = copy.deepcopy(trained.state_dict())
    probabilities = [
        Pipeline(one, **QUICK).fit(graph).predict_proba(graph) for one in (fresh, trained)
    ]
    assert np.array_equal(probabilities[0], probabilities[1])
    assert all(torch.equal(before[name], value) for name, value in trained.state_dict().items())


def test_a_cached_normalisation_is_not_that_of_another_graph(graph):
    grown = graph.upto(4).masked(4)
    plain, cached = (
        Pipeline(Weighted(cached=one), **QUICK | {"cutoff": 4}).fit(graph) for one in (False, True)
    )
    assert np.array_equal(plain.predict_proba(grown), cached.predict_proba(grown))


class OwnParameter(Weighted):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))


class ThirdArgument(Weighted):
    def forward(self, x, edge_index, edge_attr):
        return super().forward(x, edge_index)


class Pair(Weighted):
    def forward(self, x, edge_index):
        return x, edge_index


@pytest.mark.parametrize(
    ("model", "method", "sentence"),
    [
        (Unweighted(), "pmp", "forward of Unweighted accepts no weights; add edge_weight=None"),
        (Unweighted(), "gsmp", "forward of Unweighted accepts no weights"),
        (GraphSAGE(4, 8, 2, 3), "genpmp", "forward of GraphSAGE accepts no weights"),
        (
            Weighted(),
            "center",
            "a user model does not support 'center', which is for a network over hops",
        ),
        (Weighted(), "labels", "a user model does not support 'labels'"),
        (
            OwnParameter(),
            "plain",
            r"weights that cannot be reinitialised \(scale\); reset them in",
        ),
        (
            ThirdArgument(),
            "plain",
            r"takes \(x, edge_index, edge_attr\); it should take \(x, edge_index\) or",
        ),
        (Pair(), "plain", r"Pair returns a tuple; return logits, .* \[300, 3\]"),
        (Weighted(4, 2), "plain", r"returns a tensor of shape \(300, 2\); return logits"),
        (
            Weighted(7),
            "plain",
            r"failed on x of shape \(300, 4\).*build\(in_channels, out_channels\)",
        ),
        (GATConv(-1, 3), "plain", "has lazy layers"),
        (lambda i, o: None, "plain", "returned a NoneType; return a torch.nn.Module"),
        (3, "plain", "model=3 is not valid"),
    ],
)
def test_what_cannot_be_is_one_sentence(graph, model, method, sentence):
    with pytest.raises(ig.InputError, match=sentence):
        Pipeline(model, method, **QUICK).fit(graph)


def test_options_of_our_networks_are_refused(graph):
    with pytest.raises(ig.InputError, match="set them in your own model"):
        Pipeline(Weighted(), hidden=8, **QUICK).fit(graph)


def test_a_graph_without_edges_between_targets_is_refused():
    nodes = {"a": {"x": np.eye(4), "y": [0, 1, 0, -1], "time": [0, 1, 2, 3]}, "b": {"num_nodes": 1}}
    hetero = ig.TemporalGraph.hetero(
        nodes=nodes, edges={("b", "to", "a"): [[0, 0], [1, 2]]}, target="a"
    )
    with pytest.raises(ig.InputError, match="need one relation from 'a' to itself"):
        Pipeline(Weighted(), epochs=2).fit(hetero)


def test_a_loaded_user_model_predicts_the_same(graph, tmp_path):
    p = Pipeline(Weighted(hidden=5), "pmp", **QUICK).fit(graph)
    p.save(tmp_path / "m")
    back = Pipeline.load(tmp_path / "m", model=Weighted(hidden=5))
    assert np.array_equal(back.predict_proba(graph), p.predict_proba(graph))
    copied = pickle.loads(pickle.dumps(p))
    assert np.array_equal(copied.predict_proba(graph), p.predict_proba(graph))
    with pytest.raises(
        ig.InputError,
        match="a user model, Weighted, whose code is not stored; pass it again",
    ):
        Pipeline.load(tmp_path / "m")
    with pytest.raises(ig.InputError, match="trained with Weighted, not Unweighted"):
        Pipeline.load(tmp_path / "m", model=Unweighted())
    with pytest.warns(UserWarning, match="Weighted has different options or source code"):
        Pipeline.load(tmp_path / "m", model=Weighted(hidden=5, dropout=0.5))
    with (
        pytest.warns(UserWarning, match="different options"),
        pytest.raises(ig.InputError, match="cannot be read"),
    ):
        Pipeline.load(tmp_path / "m", model=Weighted(hidden=6))


def test_names_tell_networks_apart():
    def build(hidden):
        return lambda i, o: Weighted(i, o, hidden)

    assert model_name(Weighted()) == model_name(copy.deepcopy(Weighted()).eval())
    models = [
        Weighted(),
        Weighted(dropout=0.1),
        Weighted(hidden=9),
        build(8),
        build(9),
        functools.partial(Weighted),
    ]
    assert len({model_name(one) for one in models}) == len(models)
    assert model_name("sign") == "sign"


def test_backtest_of_a_user_model(graph, tmp_path):
    methods, pipeline = ["plain", "pmp", "genpmp"], Pipeline(Weighted(), **QUICK)
    tested = ig.backtest(
        graph, candidates=methods, folds=1, pipeline=pipeline, cutoff=CUTOFF, store=tmp_path / "s"
    )
    assert {str(row.candidate) for row in tested.full} == set(methods)
    assert len({row.loss for row in tested.rows}) == 3
    again = ig.backtest(
        graph, candidates=methods, folds=1, pipeline=pipeline, cutoff=CUTOFF, store=tmp_path / "s"
    )
    assert [row.loss for row in again.rows] == [row.loss for row in tested.rows]
    other = Pipeline(Weighted(dropout=0.5), **QUICK)
    with pytest.raises(ig.InputError, match="started with other inputs"):
        ig.backtest(
            graph, candidates=methods, folds=1, pipeline=other, cutoff=CUTOFF, store=tmp_path / "s"
        )


def test_the_search_tries_with_it_only_what_it_can_do(graph):
    search = Search(
        graph=graph.masked(CUTOFF),
        windows=[],
        candidates=None,
        effort="quick",
        seeds=1,
        pipeline=Pipeline(Weighted()),
        budget=None,
        refits=0,
        engine=ig.engines.Memory(),
        progress=watched(False),
        advice=None,
        jobs=1,
        store=None,
    )
    lines = [
        "plain",
        "pmp",
        "recency",
        "smooth",
        "center",
        "labels",
        "snapshot",
        "degrees",
        "gcn:center",
        "gcn:labels",
    ]
    applicable = [line for line in lines if search.is_applicable(Candidate.parse(line))]
    assert applicable == ["plain", "pmp", "recency", "smooth", "gcn:center", "gcn:labels"]


def test_a_run_with_a_user_model_resumes_and_predicts(graph, tmp_path):
    model, options = Weighted(), {"cutoff": CUTOFF, "candidates": ["pmp"], "folds": 1, "seeds": 1}
    done = ig.run(graph, tmp_path / "r", model=model, **options)
    assert done.options.model == model_name(model)
    assert "a user model" in (tmp_path / "r" / "report.html").read_text(encoding="utf-8")
    evaluation = evaluate(tmp_path / "r", graph, model=Weighted())
    assert evaluation.plain_score == pytest.approx(
        Pipeline(Weighted(), cutoff=CUTOFF).fit(graph).score(graph)
    )
    assert (
        watch(tmp_path / "r", graph, model=Weighted()).periods[0].count
        == done.prediction_summary.count
    )
    first = (tmp_path / "r" / "predictions.csv").read_bytes()
    ig.run(graph, tmp_path / "r", model=Weighted(), **options)
    assert (tmp_path / "r" / "predictions.csv").read_bytes() == first
    with pytest.raises(ig.InputError, match=r"model was 'Weighted-.* and is 'Weighted-"):
        ig.run(graph, tmp_path / "r", model=Weighted(dropout=0.5), **options)
    loaded = ig.Ensemble.load(tmp_path / "r" / "model", model=Weighted())
    assert loaded.predict_proba(graph).shape == (48, 3)
    with pytest.raises(ig.InputError, match="a user model, Weighted"):
        ig.Ensemble.load(tmp_path / "r" / "model")


def test_the_audit_of_a_user_model(graph):
    small = graph.upto(5)

    def clean(g):
        return Pipeline(Weighted(), "pmp", **QUICK | {"epochs": 2}).fit(g).predict(g)

    assert not ig.audit_leakage(clean, small, cutoff=CUTOFF, draws=5).leaked
