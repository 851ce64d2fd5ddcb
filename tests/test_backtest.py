"""Back-tests: the past as it was, the same seeds for all, a choice only where the evidence supports one."""

from dataclasses import dataclass

import numpy as np
import pytest

import impact_gnn as ig
from impact_gnn.backtesting import Reason, Scores, Status, Unit
from impact_gnn.backtesting.folds import fold_at, fold_times
from impact_gnn.checks import TooShort
from impact_gnn.engines import Memory
from impact_gnn.nn import Diverged
from impact_gnn.pipeline import Method, Pipeline
from impact_gnn.statistics import combined, paired

QUICK = Pipeline(hidden=8, epochs=6, device="cpu")
PLAIN, CENTER, LABELS = Method(), Method.parse("center"), Method.parse("labels")


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
    a, b = ig.backtest(graph, **options), ig.backtest(ig.audit.scrambled(graph, 5), **options)
    assert (a.rows, a.decision) == (b.rows, b.decision)


def test_worse_half_is_dropped_but_never_plain(graph):
    outcome = ig.backtest(
        graph, candidates=["mmp", "features", "center", "labels", "pmp"], folds=2, seeds=1, cutoff=5, pipeline=QUICK
    )
    fits = {row.method: row.num_fits for row in outcome.rows}
    assert fits[PLAIN] == 2
    assert sorted(fits.values()).count(1) == len(fits) - sum(f == 2 for f in fits.values())
    dropped = [row for row in outcome.rows if row.status is Status.DROPPED]
    assert dropped
    assert {row.ending for row in dropped} == {"dropped after round 1"}
    assert outcome.finished


def test_a_diverging_candidate_fails_alone(graph, monkeypatch):
    real = Pipeline.fit

    def fit(self, *args, **options):
        if str(self.method) == "center":
            raise Diverged("the loss became NaN in epoch 2")
        return real(self, *args, **options)

    monkeypatch.setattr(Pipeline, "fit", fit)
    outcome = ig.backtest(graph, candidates=["center", "labels"], folds=2, seeds=1, cutoff=5, pipeline=QUICK)
    assert outcome.row(CENTER).status is Status.FAILED
    assert outcome.row(CENTER).ending == "failed: the loss became NaN in epoch 2"
    assert outcome.row(LABELS).status is Status.FULL
    alone = ig.backtest(graph, candidates=["center"], folds=2, seeds=1, cutoff=5, pipeline=QUICK)
    assert alone.decision.reason is Reason.NONE_TRIED


OPTIONS = {"candidates": ["center", LABELS], "folds": 2, "seeds": 1, "cutoff": 5, "pipeline": QUICK}


def test_a_budget_stops_early_and_the_result_says_so(graph):
    short = ig.backtest(graph, budget=1e-9, **OPTIONS)
    assert not short.finished
    assert short.choice == PLAIN
    assert short.decision.reason is Reason.OUT_OF_TIME
    assert "Chosen: plain. Time ran out" in str(short)
    assert short.row(LABELS).ending == "not tried: out of time"


def test_a_back_test_that_was_cut_off_continues(graph, tmp_path):
    def killing(stage, done, total, note):
        assert stage == "back-test"
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ig.backtest(graph, store=tmp_path, progress=killing, **OPTIONS)
    kept = sorted(file.name for file in (tmp_path / "fits").iterdir())
    assert kept == ["center.fold4.seed0.npy", "plain.fold4.seed0.npy"]
    before = (tmp_path / "fits" / kept[0]).stat().st_mtime_ns
    assert ig.backtest(graph, store=tmp_path, **OPTIONS).rows == ig.backtest(graph, **OPTIONS).rows
    assert (tmp_path / "fits" / kept[0]).stat().st_mtime_ns == before
    for change in ({"folds": 1}, {"seeds": 2}, {"budget": 9.0}, {"candidates": ["center"]}):
        with pytest.raises(ig.InputError, match=f"begun with other inputs .{next(iter(change))} was"):
            ig.backtest(graph, store=tmp_path, **OPTIONS | change)
    with pytest.raises(ig.InputError, match="graph has other contents"):
        ig.backtest(graph.with_labels(1 - graph.y), store=tmp_path, **OPTIONS)


def test_every_fold_has_an_engine_of_its_own_that_is_cleared(graph):
    """The engine is asked for the graph as it was, per fold, and freed when the fold's fits are done."""
    events = []

    @dataclass(frozen=True)
    class Recording(Memory):
        name: str = ""

        def child(self, name):
            return Recording(name=name)

        def graph(self, graph, *, upto=None, undirected=False):
            events.append((self.name, "undirected" if undirected else upto))
            return super().graph(graph, upto=upto, undirected=undirected)

        def clear(self):
            events.append((self.name, "clear"))

    assert ig.backtest(graph, engine=Recording(), **OPTIONS).rows == ig.backtest(graph, **OPTIONS).rows
    assert events == [(f"fold-{t}", event) for t in (4, 3) for event in (t, "undirected", "clear")]


def hits(rate, rng, size=400):
    return rng.random(size) < rate


def test_a_real_gain_is_chosen_and_noise_is_not():
    rng = np.random.default_rng(0)
    scores = Scores()
    for fold in (1, 2, 3):
        base = hits(0.6, rng)
        scores.put(Unit(PLAIN, fold, 0), base)
        scores.put(Unit(LABELS, fold, 0), base | hits(0.3, rng))
        scores.put(Unit(CENTER, fold, 0), np.where(hits(0.1, rng), ~base, base))
    assert scores.difference(LABELS).low > 0
    assert not scores.difference(CENTER).significant or scores.difference(CENTER).value < 0


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
    with pytest.raises(TooShort, match="nothing can be back-tested"):
        ig.backtest(graph, cutoff=1)
    with pytest.raises(ig.InputError, match="seeds=0 must be at least 1"):
        ig.backtest(graph, cutoff=5, seeds=0)
    with pytest.raises(ig.InputError, match="unknown part 'nope'"):
        ig.backtest(graph, cutoff=5, candidates=["nope"])
