"""The benchmarks run in small sizes, compare equal work, and report whether a goal was met."""

import ast
import io
import json

import numpy as np
import pytest
import torch
from rich.console import Console

import impact_gnn as ig
from impact_gnn import methods
from impact_gnn.nn import SIGN, HopTask
from impact_gnn.nn.blocks import encode_each
from reproduction import bench
from reproduction.bench import (
    Goal,
    Report,
    best_of,
    costs,
    hetero,
    layerwise,
    outofcore,
    passes,
    propagation,
    search,
    startup,
    training,
)


@pytest.fixture(autouse=True)
def _memory_as_it_is(monkeypatch):
    monkeypatch.setattr(propagation, "keep_memory", lambda: None)


def test_report_says_what_was_met(tmp_path):
    console = Console(file=io.StringIO(), width=100)
    goals = [Goal("speed", 1, 2.0, 1.5), Goal("memory", -1, 3e8, 2e8)]
    Report("A title", [{"who": "we", "seconds": 0.25}, {"who": "they", "more": 1}], goals).finish(
        tmp_path / "r", console
    )
    text = console.file.getvalue()
    assert "speed: 1.5, asked at least 2, missed" in text
    assert "memory: 200,000,000, asked at most 300,000,000, met" in text
    saved = json.loads((tmp_path / "r").read_text())
    assert saved["met"] == [False, True]
    assert saved["machine"]["cores"] >= 1


def test_best_of_takes_turns_and_lets_the_slow_sit_out():
    order, now = [], iter(range(1000))
    best = best_of(
        {"a": lambda: order.append("a"), "b": lambda: order.append("b")},
        3,
        seconds=0.5,
        clock=now.__next__,
    )
    assert order == ["a", "b", "b", "a"]
    assert best == {"a": 1, "b": 1}


def test_propagation_against_peers(tmp_path):
    contest, growth = propagation.propagation(
        500, 4000, "16,128", 1, growth_to=10**6, plot=tmp_path / "growth.png"
    )
    names = {row["seconds"] for row in contest.rows}
    assert {
        "propagate, pmp",
        "roofline",
        "torch CSR int32",
        "torch CSR int64",
        "scipy CSR",
        "PyG T.SIGN",
    } < names
    error = next(goal for goal in contest.goals if goal.name == "relative error of float16")
    assert 1e-5 < error.reached < 1e-3
    assert error.met
    assert [row["edges"] for row in growth.rows] == [10**6]
    assert (tmp_path / "growth.png").read_bytes().startswith(b"\x89PNG")


def test_a_peer_that_computes_something_else_is_refused():
    with pytest.raises(AssertionError, match="nobody does not compute the same message"):
        propagation.same("nobody", np.ones((5, 2)), np.zeros((5, 2)))


def test_layerwise_compares_all_methods_with_the_plain_network():
    report = layerwise.compare(layerwise.Setting(nodes=120, hidden=4, epochs=3, rounds=2, pny=0.0))
    assert [row["alignment"] for row in report.rows] == list(layerwise.METHODS)
    assert report.rows[0]["over plain"] == 1
    assert [goal.met for goal in report.goals if "pny" in goal.name] == [False]


def test_out_of_core_in_fresh_processes():
    report = outofcore.outofcore(1000, 10_000, 16, rounds=1, dask=False)
    assert [row["engine"] for row in report.rows] == ["memory", "disk"]
    assert all(row["peak"] > 1e7 for row in report.rows)


def test_small_ones(monkeypatch):
    assert passes.jjnorm(1000, 8, 2).rows[0]["over copy"] == 1
    assert len(passes.weights(100, 1000, 2).rows) == 2
    assert passes.connectivity(100, 1000, 3, 2).goals[0].reached > 0
    assert [row["graph"] for row in passes.tsbm("1").rows][-1] == "1 M edges"
    sizes = {**hetero.MAG, "num_papers": 700_000, "num_labels": 3, "num_features": 4}
    monkeypatch.setattr(hetero, "MAG", sizes)
    assert [row["inputs"] for row in hetero.sehgnn_epoch(2, 20, 4).rows] == [
        "features",
        "features and labels",
    ]


def test_a_child_that_fails_is_one_sentence():
    with pytest.raises(bench.InputError, match=r"nobody failed: .*nowhere"):
        bench.in_process(
            outofcore.contest, "nobody", graph="/nowhere", work="/nowhere", cap=1, hops=1
        )


@pytest.fixture
def small_graph(tmp_path):
    """A saved graph under a root, as the graphs at hand are."""
    ig.tsbm(num_nodes=300, num_times=6, num_labels=2, feature_std=1, seed=0).save(
        tmp_path / "small"
    )
    return tmp_path


def test_every_part_of_the_search_benchmark(monkeypatch):
    def run(function, root, name, effort, jobs):
        return {"seconds": 30.0 / jobs, "CPU seconds": {"quick": 30.0, "normal": 90.0}[effort]}

    new_nodes = Report("new nodes", [], [Goal("first prediction", -1, 1.0, 0.5)])
    monkeypatch.setattr(search, "in_process", run)
    monkeypatch.setattr(search.newnodes, "newnodes", lambda *_, **__: new_nodes)
    report = search.search(graphs="aan,f1", compare="aan", normal="aan", busy="f1")
    runs = [(row["graph"], row["effort"], row["jobs"], row["machine"]) for row in report.rows]
    assert runs == [
        ("aan", "quick", 1, "alone"),
        ("aan", "quick", 2, "alone"),
        ("aan", "normal", 1, "alone"),
        ("f1", "quick", 1, "alone"),
        ("f1", "quick", 1, "busy"),
    ]
    assert {goal.name: (goal.reached, goal.met) for goal in report.goals} == {
        "CPU seconds, aan": (30, False),
        "two jobs, aan": (2, True),
        "CPU of normal over quick, aan": (3, True),
        "CPU seconds, f1": (30, True),
        "CPU with other work over alone, f1": (1, True),
        "first prediction": (0.5, True),
    }
    nothing = search.search(graphs="", compare="", normal="", busy="", new_nodes="")
    assert not nothing.rows
    assert not nothing.goals


def test_other_work_ends(monkeypatch):
    monkeypatch.setattr(search.os, "cpu_count", lambda: 2)
    with search.other_work() as processes:
        assert [process.poll() for process in processes] == [None, None]
    assert all(process.returncode < 0 for process in processes)


def test_costs_are_measured_and_estimated(small_graph, capsys):
    report = costs.costs(small_graph, "small", "smooth,linear:plain,sehgnn:labels")
    assert [row["candidate"] for row in report.rows] == ["smooth", "linear:plain"]
    assert all(row["CPU seconds"] > 0 and row["estimate"] > 0 for row in report.rows)
    assert report.goals[0].reached >= 1
    last = capsys.readouterr().out.splitlines()[-1]
    [(size, seconds)] = ast.literal_eval("{" + last + "}").values()
    assert size[1] == 300
    assert seconds[-1] is None


def test_startup_in_fresh_processes(monkeypatch, capsys):
    exec(startup.FIRST_PMP, {})
    assert len(capsys.readouterr().out.splitlines()) == len(startup.PARTS)
    monkeypatch.setattr(startup, "FIRST_PMP", "print(9, 9); print(1, 1); print(2, 2)")
    report = startup.startup(1)
    assert [row["process"] for row in report.rows if row["part"] == "all"] == [
        "impact --help",
        "import impact_gnn",
        "first PMP, kernels stored",
        "first PMP, no kernels stored",
    ]
    assert [goal.reached for goal in report.goals[2:]] == [3, 3]


def test_shares_and_variants_of_a_training(small_graph):
    settings = {"method": "labels", "epochs": 2, "rounds": 1}
    figures = training.measure("small", "sign", root=str(small_graph), **settings)
    shares = [value for figure, value in figures.items() if figure.startswith("share")]
    assert len(shares) == len(training.PARTS)
    assert all(0 < share < 1 for share in shares)
    assert figures["today"] == 1
    assert figures["no copies of weights"] > 0
    assert "recorded" not in methods.names()


def test_variants_of_a_training_give_the_same_numbers():
    rng = np.random.default_rng(0)
    hops = [rng.normal(size=(50, 4)).astype(np.float32) for _ in range(3)]
    task = HopTask(hops, [rng.normal(size=(50, 2)).astype(np.float32)])
    model = SIGN([4, 4, 4], 2, hidden=8, label_channels=[2], dropout=0.0)
    rows = torch.tensor([3, 1, 40])
    logits = training.JoinedTask.of(task).logits(model, rows)
    torch.testing.assert_close(logits, task.logits(model, rows))
    inputs = [torch.from_numpy(hop) for hop in hops]
    together = training.encode_together(model.branches[:3], inputs)
    for ours, theirs in zip(together, encode_each(model.branches[:3], inputs), strict=True):
        torch.testing.assert_close(ours, theirs)
