"""Selection rules on the past of a run: select by older windows, score on the newest."""

import numpy as np
import pytest

import impact_gnn as ig
from impact_gnn.backtesting import BASELINE
from impact_gnn.estimators import EnsembleSpec
from reproduction import rules


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A saved graph, and a run on it with two windows."""
    root = tmp_path_factory.mktemp("rules")
    g = ig.tsbm(num_nodes=500, num_times=7, num_labels=3, num_features=4, mean_degree=15, seed=0)
    g.with_labels(np.where(g.time < 6, g.y, -1)).save(root / "graphs" / "small")
    names = ["linear:plain", "linear:labels+smooth", "trees:labels"]
    ig.run(
        g,
        root / "runs" / "small-quick",
        cutoff=6,
        candidates=names,
        folds=2,
        seeds=1,
        model="linear",
    )
    return root


def test_every_rule_is_scored_on_a_window_it_did_not_see(folder):
    table = rules.rules(folder / "runs", root=folder / "graphs")
    chosen, foretold = table.extras
    assert chosen.lines[0][0] == "small-quick"
    scores = [float(value) for value in chosen.lines[0][2:]]
    assert len(scores) == len(rules.RULES) + 2
    assert max(scores[:-1]) <= 1
    assert all(float(value) >= 0 for value in foretold.lines[0][1:])
    assert chosen.lines[-1][0] == "mean regret, points"


def test_labels_of_the_newest_window_do_not_change_the_selection(folder):
    past = rules.Past.of(folder / "runs" / "small-quick", "small", folder / "graphs")
    before = {name: rule(past.older()) for name, rule in rules.RULES.items()}
    newest = str(past.windows[-1])
    past.scores.truth[newest] = (past.scores.truth[newest] + 1) % 3
    assert {name: rule(past.older()) for name, rule in rules.RULES.items()} == before
    assert past.accuracy(EnsembleSpec.single(BASELINE)) < 0.7


def test_a_folder_without_runs_is_refused(folder, tmp_path):
    with pytest.raises(ig.InputError, match="contains no finished run"):
        rules.rules(tmp_path, root=folder / "graphs")
