"""The model card of a run: what it says, that it is sealed with the model, and that names in it do no harm."""

from dataclasses import replace

import numpy as np
import pytest

import impact_gnn as ig
from impact_gnn.job.card import card
from impact_gnn.pipeline import Ensemble

RUN = {"cutoff": 4, "model": "linear", "candidates": ["plain", "pmp"], "folds": 1, "seeds": 1}


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    out = tmp_path_factory.mktemp("card") / "run"
    return ig.run(ig.tsbm(num_nodes=150, num_times=5, num_labels=2, num_features=3, seed=0), out, **RUN), out


def test_the_card_says_what_people_ask(done):
    summary, out = done
    text = (out / "model" / "README.md").read_text(encoding="utf-8")
    heads = [line for line in text.splitlines() if line.startswith("## ")]
    assert heads == [
        "## Data", "## What was chosen, and why", "## Back-test (accuracy)", "## Limits", "## Use", "## Made with",
    ]  # fmt: skip
    assert "- 150 nodes of type node" in text
    assert "- labels before 4 were known; nodes of node from then on are predicted" in text
    assert str(summary.backtest.decision).split(".")[0] in text
    check = summary.backtest.checks[0]
    assert f"| {check.window} | {check.count:,} | {check.score:.1%} | {check.plain_score:.1%} |" in text
    assert "are expected to be right, between" in text
    assert "The choice rests on a single window" in text
    assert f"impact_gnn {ig.__version__}" in text


def test_what_it_says_about_loading_works(done, monkeypatch):
    _, out = done
    code = (out / "model" / "README.md").read_text(encoding="utf-8").split("```")[1].removeprefix("python\n")
    monkeypatch.chdir(out)
    graph = ig.tsbm(num_nodes=150, num_times=5, num_labels=2, num_features=3, seed=0)
    graph.save(out / "next graph")
    names = {}
    exec(code, names)
    assert len(names["label"]) == len(names["node"]) == int((graph.time >= 4).sum())


def test_it_is_sealed_with_the_model(done):
    _, out = done
    file = out / "model" / "README.md"
    kept = file.read_bytes()
    file.write_bytes(kept + b"!")
    with pytest.raises(ig.InputError, match=r"README\.md is missing or has changed"):
        Ensemble.load(out / "model")
    file.write_bytes(kept)
    assert np.isfinite(Ensemble.load(out / "model").weights).all()


def test_names_of_users_do_no_harm(done):
    summary, _ = done
    evil = "<script>|[x](y)\n# a_b*"
    graph = replace(summary.graph, num_nodes={evil: 3}, num_edges={evil: 4}, target=evil, names=[evil] * 5, since=evil)
    own = replace(summary.options, model="MyNet-12345678")
    text = card(graph, own, summary.diagnosis, summary.backtest, summary.versions)
    assert "- 3 nodes of type \\<script\\>\\|\\[x\\](y) \\# a\\_b\\*\n" in text
    assert "<script>" not in text.replace("\\<script\\>", "")
    assert 'model = ig.Ensemble.load("model", model=...)  # your own MyNet' in text
    nothing = card(graph, own, summary.diagnosis, type(summary.backtest).nothing("quick"), {})
    assert "Nothing was back-tested." in nothing
