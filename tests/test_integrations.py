"""Outputs for other tools.

The model card, experiment trackers, time weights in mini-batches of PyG.
"""

import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch_geometric.utils import k_hop_subgraph

import impact_gnn as ig
from impact_gnn.integrations import FILES, flat, log_to_mlflow, log_to_wandb
from impact_gnn.job.card import card
from impact_gnn.transforms import MMP, PMP, GenPMP


@pytest.fixture(scope="module")
def graph():
    return ig.tsbm(num_nodes=150, num_times=5, num_labels=2, num_features=3, seed=0)


@pytest.fixture(scope="module")
def done(graph, tmp_path_factory):
    """A run, which takes PyG's graphs as all do."""
    out, options = (
        tmp_path_factory.mktemp("done") / "run",
        {"candidates": ["pmp"], "folds": 1, "seeds": 1},
    )
    return ig.run(ig.to_pyg(graph), out, cutoff=4, model="linear", **options), out


def test_run_takes_pyg(graph, done):
    assert done[0].prediction_summary.count == int((graph.time >= 4).sum())


# -- the card


def test_the_model_card_has_its_sections_and_figures(done):
    summary, out = done
    text = (out / "model" / "README.md").read_text(encoding="utf-8")
    heads = [line for line in text.splitlines() if line.startswith("## ")]
    assert heads == [
        "## Data",
        "## Selected model",
        "## Back-test (accuracy)",
        "## Limitations",
        "## Use",
        "## Versions",
    ]
    assert "- 150 nodes of type node" in text
    assert "- labels are known before period 4; node nodes from then on are predicted" in text
    assert str(summary.backtest.selection).split(".")[0] in text
    check = summary.backtest.fold_checks[0]
    assert (
        f"| {check.window} | {check.count:,} | {check.score:.1%} | {check.plain_score:.1%} |"
        in text
    )
    assert "The expected accuracy of the predictions is in the report" in text
    assert "The selection is based on a single fold" in text
    assert f"impact_gnn {ig.__version__}" in text


def test_the_loading_code_of_the_model_card_runs(graph, done, monkeypatch):
    _, out = done
    code = (
        (out / "model" / "README.md")
        .read_text(encoding="utf-8")
        .split("```")[1]
        .removeprefix("python\n")
    )
    monkeypatch.chdir(out)
    graph.save(out / "next graph")
    names = {}
    exec(code, names)
    assert len(names["label"]) == len(names["node"]) == int((graph.time >= 4).sum())


def test_the_model_card_is_sealed_with_the_model(done):
    _, out = done
    file = out / "model" / "README.md"
    content = file.read_bytes()
    file.write_bytes(content + b"!")
    with pytest.raises(ig.InputError, match=r"README\.md is missing or has changed"):
        ig.Ensemble.load(out / "model")
    file.write_bytes(content)
    assert np.isfinite(ig.Ensemble.load(out / "model").weights).all()


def test_names_of_users_do_no_harm(done):
    summary, _ = done
    evil = "<script>|[x](y)\n# a_b*"
    graph = replace(
        summary.graph,
        num_nodes={evil: 3},
        num_edges={evil: 4},
        target=evil,
        names=[evil] * 5,
        since=evil,
    )
    own = replace(summary.options, model="MyNet-12345678")
    unpredicted = replace(summary, graph=graph, options=own, prediction_summary=None)
    text = card(unpredicted)
    assert "- 3 nodes of type \\<script\\>\\|\\[x\\](y) \\# a\\_b\\*\n" in text
    assert "<script>" not in text.replace("\\<script\\>", "")
    assert 'model = ig.Ensemble.load("model", model=...)  # your own MyNet' in text
    untested = type(summary.backtest).without_folds("quick")
    nothing = card(replace(unpredicted, backtest=untested, versions={}))
    assert "There was no back-test." in nothing


# -- trackers


def test_a_run_as_names_and_numbers(done):
    summary, _ = done
    params, metrics = flat(summary)
    assert params["model"] == "linear"
    assert params["candidates"] == ["pmp"]
    assert params["choice"] == str(summary.choice)
    assert metrics["backtest.accuracy"] == summary.backtest.mean_check("accuracy")
    assert metrics["expected_accuracy.low"] == summary.prediction_summary.accuracy.low
    assert metrics["gain.value"] == summary.backtest.selection.gain.value
    assert all(type(value) is float for value in metrics.values())


def test_results_are_logged_to_mlflow(done, monkeypatch):
    summary, out = done
    logged = []
    calls = ("log_params", "log_metrics", "log_artifact")
    fake = SimpleNamespace(
        **{name: lambda value, name=name: logged.append((name, value)) for name in calls}
    )
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    log_to_mlflow(summary)
    params, metrics = flat(summary)
    assert logged == [("log_params", params), ("log_metrics", metrics)]
    log_to_mlflow(summary, out)
    assert logged[4:] == [("log_artifact", str(out / name)) for name in FILES]
    assert all((out / name).is_file() for name in FILES)


@pytest.mark.parametrize("active", [True, False])
def test_results_are_logged_to_wandb(done, monkeypatch, active):
    summary, out = done
    config, logged, saved = {}, {}, []
    run = SimpleNamespace(
        config=config, log=logged.update, save=lambda path, **how: saved.append((path, how))
    )
    fake = SimpleNamespace(run=run if active else None, init=lambda: run)
    monkeypatch.setitem(sys.modules, "wandb", fake)
    log_to_wandb(summary, out)
    assert (config, logged) == flat(summary)
    assert saved == [(str(out / name), {"base_path": str(out), "policy": "now"}) for name in FILES]


@pytest.mark.parametrize("log", [log_to_mlflow, log_to_wandb])
def test_a_tracker_that_is_not_there(done, monkeypatch, log):
    name = log.__name__.removeprefix("log_to_")
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ig.InputError, match=f"{name} is not installed; run `pip install {name}`"):
        log(done[0])


# -- mini-batches: no pyg-lib here, so batches are cut by hand, as NeighborLoader would


@pytest.mark.parametrize("transform", [MMP(), PMP(), GenPMP(), PMP(normalize=True)], ids=repr)
def test_weights_of_a_batch_are_those_of_the_whole_graph(transform):
    data = ig.to_pyg(ig.tsbm(num_nodes=150, num_times=6, num_labels=2, num_features=3, seed=0))
    weighted = transform(data)
    nodes, edges, _, edge_mask = k_hop_subgraph(
        torch.arange(5), 1, data.edge_index, relabel_nodes=True
    )
    batch = weighted.subgraph(nodes)
    weight = {
        tuple(pair): w
        for pair, w in zip(data.edge_index.T.tolist(), weighted.edge_weight.tolist(), strict=True)
    }
    assert 0 < batch.num_edges < data.num_edges
    assert [
        weight[tuple(pair)] for pair in nodes[batch.edge_index].T.tolist()
    ] == batch.edge_weight.tolist()
    assert [weight[tuple(pair)] for pair in nodes[edges].T.tolist()] == weighted.edge_weight[
        edge_mask
    ].tolist()


def test_within_a_batch_only_mmp_is_the_same():
    data = ig.to_pyg(ig.tsbm(num_nodes=150, num_times=6, num_labels=2, num_features=3, seed=0))
    old = data.time < 3  # the last time of the graph is not among them
    for transform, same in ((MMP(), True), (PMP(), False), (GenPMP(), False)):
        before, after = transform(data).subgraph(old), transform(data.subgraph(old))
        assert torch.equal(before.edge_index, after.edge_index)
        assert torch.allclose(before.edge_weight, after.edge_weight) == same
