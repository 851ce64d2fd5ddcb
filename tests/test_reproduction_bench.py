"""The benchmarks run in small sizes, compare equal work, and report whether a goal was met."""

import io
import json

import numpy as np
import pytest
from rich.console import Console

from reproduction import bench
from reproduction.bench import (
    Goal,
    Report,
    best_of,
    hetero,
    layerwise,
    outofcore,
    passes,
    propagation,
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
