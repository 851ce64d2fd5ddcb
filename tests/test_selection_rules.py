"""Selection rules on the past of a run: select by older windows, score on the newest."""

import numpy as np
import pytest

import impact_gnn as ig
from impact_gnn.backtesting import BASELINE
from impact_gnn.estimators import EnsembleSpec
from impact_gnn.estimators.calibration import OutOfFold
from reproduction import class_bias, forecasts, rules


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


def test_forecasts_for_each_period_are_compared_with_one(folder):
    """Proportions that fall by the same amount: later periods of a window have smaller ones."""
    falling = np.array([[40 + 5 * k, 60 - 5 * k] for k in range(10)]) * 100
    near, far = forecasts.forecast_by_period(falling[:8], 2)
    assert far[1] <= near[1] < 0.3
    assert forecasts.log_loss(np.array([3, 1]), np.array([0.75, 0.25])) == pytest.approx(
        0.5623, 1e-3
    )
    table = forecasts.forecasts(["small"], root=folder / "graphs")
    # Targets of this graph span one period only.
    assert [line[0] for line in table.extras[0].lines] == ["mean change, %"]


def test_rows_are_adjusted_by_the_forecast_of_their_period():
    """Proportions fall by a tenth of the labels a period, and the only feature says little."""
    rng = np.random.default_rng(0)
    time = np.repeat(np.arange(14), 300)
    y = (rng.random(len(time)) < np.linspace(0.9, 0.05, 14)[time]).astype(int)
    x = y[:, None] + rng.normal(size=(len(time), 1))
    graph = ig.TemporalGraph(x=x, y=y, time=time, edge_index=rng.integers(0, len(time), (2, 500)))
    losses = forecasts.adjusted_losses(graph.masked(12))
    assert len(losses) == 3
    one, by_period, share = losses[-1]
    assert share > 0
    assert by_period == pytest.approx(one, rel=0.05)
    assert by_period != one


def test_a_bias_per_class_is_learned_from_older_windows_and_shrunk(folder):
    rng = np.random.default_rng(0)
    truth = (rng.random(4000) < 0.2).astype(int)
    half = OutOfFold(np.full((4000, 2), 0.5), truth, np.array([0.5, 0.5]))
    free, shrunk = (class_bias.fit_bias([half], penalty) for penalty in (1e-6, 1.0))
    assert free[0] - free[1] == pytest.approx(np.log(4), abs=0.1)
    assert 0 < shrunk[0] - shrunk[1] < 0.5
    table = class_bias.class_bias(["small"], root=folder / "graphs")
    first, *_, mean, better = table.extras[0].lines
    assert first[:2] == ["small", "3"]
    assert float(first[3]) > 0
    assert mean[3] == "+0.00"
    assert better[3] == "0"
