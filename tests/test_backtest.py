"""Back-tests: the past as it was, the same seeds for all, a choice only where the evidence supports one."""

import numpy as np
import pytest

import impact_gnn as ig
from impact_gnn.backtesting import Scores, Unit, fold_at, fold_times
from impact_gnn.nn import Diverged
from impact_gnn.pipeline import Pipeline
from impact_gnn.statistics import combined, paired

QUICK = Pipeline(hidden=8, epochs=6, device="cpu")


@pytest.fixture(scope="module")
def graph():
    return ig.tsbm(num_nodes=400, num_times=6, num_labels=2, num_features=4, mean_degree=12, seed=0)


def test_a_fold_is_the_past_as_it_was(graph):
    fold = fold_at(graph.masked(5), 3)
    assert fold.graph.times.max() == 3
    assert (fold.graph.y[fold.graph.time == 3] == -1).all()
    assert np.array_equal(fold.truth, graph.y[graph.time == 3])
    assert fold_times(graph.masked(5), 2) == [3, 4]


def test_labels_at_or_after_the_cutoff_never_matter(graph):
    options = {"candidates": ["center", "labels"], "folds": 2, "seeds": 1, "cutoff": 5, "pipeline": QUICK}
    a = ig.backtest(graph, **options).as_dict()
    b = ig.backtest(ig.audit.scrambled(graph, 5), **options).as_dict()
    assert a["rows"] == b["rows"]


def test_worse_half_is_dropped_but_never_plain(graph):
    outcome = ig.backtest(
        graph, candidates=["mmp", "features", "center", "labels", "pmp"], folds=2, seeds=1, cutoff=5, pipeline=QUICK
    )
    fits = {row.method: row.num_fits for row in outcome.rows}
    assert fits["plain"] == 2
    assert sorted(fits.values()).count(1) == len(fits) - sum(f == 2 for f in fits.values())
    assert any("dropped after round 1" in row.status for row in outcome.rows)
    assert outcome.finished


def test_a_diverging_candidate_fails_alone(graph, monkeypatch):
    real = Pipeline.fit

    def fit(self, *args, **options):
        if self.method == "center":
            raise Diverged("the loss became NaN in epoch 2")
        return real(self, *args, **options)

    monkeypatch.setattr(Pipeline, "fit", fit)
    outcome = ig.backtest(graph, candidates=["center", "labels"], folds=2, seeds=1, cutoff=5, pipeline=QUICK)
    status = {row.method: row.status for row in outcome.rows}
    assert status["center"] == "failed: the loss became NaN in epoch 2"
    assert status["labels"] == ""


def test_budget_stops_and_store_continues(graph, tmp_path):
    options = {"candidates": ["center", "labels"], "folds": 2, "seeds": 1, "cutoff": 5, "pipeline": QUICK}
    store = tmp_path / "fits"
    store.mkdir()
    short = ig.backtest(graph, budget=1e-9, store=store, **options)
    assert not short.finished
    assert short.choice == "plain"
    assert "Time ran out" in short.why
    whole = ig.backtest(graph, store=store, **options)
    fresh = ig.backtest(graph, **options)
    assert whole.as_dict()["rows"] == fresh.as_dict()["rows"]


def hits(rate, rng, size=400):
    return rng.random(size) < rate


def test_a_real_gain_is_chosen_and_noise_is_not():
    rng = np.random.default_rng(0)
    scores = Scores()
    for fold in (1, 2, 3):
        base = hits(0.6, rng)
        scores.put(Unit("plain", fold, 0), base)
        scores.put(Unit("good", fold, 0), base | hits(0.3, rng))
        scores.put(Unit("noise", fold, 0), np.where(hits(0.1, rng), ~base, base))
    assert scores.difference("good").low > 0
    assert not scores.difference("noise").significant or scores.difference("noise").value < 0


def test_folds_that_disagree_widen_the_interval():
    agree = combined(np.array([0.05, 0.05, 0.05]), np.array([0.01, 0.01, 0.01]))
    disagree = combined(np.array([0.15, 0.05, -0.05]), np.array([0.01, 0.01, 0.01]))
    assert agree.low > 0
    assert disagree.low < 0
    assert agree.value == pytest.approx(disagree.value)


def test_intervals_cover():
    """Of many 95 % intervals about 95 % hold the truth; a test that forgot the pairing would not get near."""
    rng = np.random.default_rng(1)
    inside = 0
    for _ in range(400):
        shared = rng.normal(size=30)
        estimate = paired(shared + 0.2 + 0.5 * rng.normal(size=30), shared)
        inside += estimate.low < 0.2 < estimate.high
    assert 0.92 < inside / 400 < 0.98


def test_refusals(graph):
    with pytest.raises(ig.InputError, match="nothing can be back-tested"):
        ig.backtest(graph, cutoff=1)
    with pytest.raises(ig.InputError, match="seeds=0 must be at least 1"):
        ig.backtest(graph, cutoff=5, seeds=0)
    with pytest.raises(ig.InputError, match="unknown part 'nope'"):
        ig.backtest(graph, cutoff=5, candidates=["nope"])
