"""Back-tests.

Folds without future data, windows as long as the target periods, unbiased gains of a selection.
"""

import importlib
import itertools
from dataclasses import dataclass, replace

import numpy as np
import pytest

import impact_gnn as ig
from impact_gnn.backtesting import (
    BASELINE,
    Scores,
    Selection,
    SelectionReason,
    Status,
    Unit,
    fold_of,
    windows,
)
from impact_gnn.backtesting.candidates import (
    UNCORRECTED,
    initial_candidates,
    is_applicable,
    is_network,
    neighbours_of,
    networks_are_behind,
    time_corrections,
)
from impact_gnn.backtesting.effort import EFFORTS, Size, allowed_work, cost
from impact_gnn.backtesting.folds import Window, horizons_of, majority_before, truth_of
from impact_gnn.backtesting.forecast import forecast, labelled_shares, labelled_weights
from impact_gnn.backtesting.greedy import greedy_weights
from impact_gnn.backtesting.results import CLASS_PRIOR, LAST_LABELS, FoldCheck
from impact_gnn.backtesting.selection import EnsembleSelection
from impact_gnn.checks import TooShort
from impact_gnn.engines import Disk, Memory
from impact_gnn.estimators import Candidate, EnsembleSpec, Pipeline
from impact_gnn.graph import graph_digest
from impact_gnn.metrics import Scoring, log_loss
from impact_gnn.nn import Diverged
from impact_gnn.statistics import Estimate, combined, paired

QUICK = Pipeline(hidden=8, epochs=6, device="cpu")
CENTER, LABELS, TREES = (
    Candidate.parse("center"),
    Candidate.parse("labels"),
    Candidate.parse("trees:labels"),
)


@pytest.fixture(scope="module")
def graph():
    return ig.tsbm(num_nodes=400, num_times=6, num_labels=2, num_features=4, mean_degree=12, seed=0)


# -- folds


def test_a_fold_is_the_past_as_it_was(graph):
    fold = fold_of(graph.masked(5), Window(2, 3))
    assert fold.graph.times.max() == 3
    assert fold.graph.cutoff == 2
    assert (fold.graph.y[fold.graph.time >= 2] == -1).all()
    truth = truth_of(graph.masked(5), Window(2, 3))
    assert np.array_equal(truth, graph.y[(graph.time == 2) | (graph.time == 3)])
    assert len(fold.rows) == len(truth)
    assert sorted(set(horizons_of(graph.masked(5), Window(2, 3)).tolist())) == [1, 2]


@pytest.mark.parametrize("known", [True, False])
def test_edges_that_came_after_a_window_matter_only_where_their_time_is_not_known(graph, known):
    """Edges added between old nodes in the last period: the back-test gives the same bits."""
    options = {
        "candidates": ["snapshot+labels", "trees:degrees+labels+smooth"],
        "folds": 2,
        "cutoff": 5,
    }
    old, outcomes = np.flatnonzero(graph.time < 3), []
    for seed in (0, 1):
        late = np.random.default_rng(seed).choice(old, (2, 500))
        ends = np.concatenate([graph.edge_index, late], axis=1)
        came = (
            np.concatenate([graph.time[graph.edge_index].max(0), np.full(500, 5)])
            if known
            else None
        )
        timed = ig.TemporalGraph(
            x=graph.x, y=graph.y, time=graph.time, edge_index=ends, edge_time=came
        )
        tested = ig.backtest(timed, pipeline=QUICK, **options)
        outcomes.append((tested.rows, tested.choice, tested.fold_checks))
    assert (outcomes[0] == outcomes[1]) == known


@pytest.mark.parametrize("names", [None, ["a-late", "x", "y"]])
def test_a_class_that_came_later_is_not_known_in_a_fold_and_counts_as_wrong(graph, names):
    shift = names is not None  # the name of the late class comes first
    late = (graph.time == 4) & (np.arange(400) % 3 == 0)
    y = np.where(late, 0 if shift else 2, graph.y + shift)
    arrays = {"x": graph.x, "time": graph.time, "edge_index": graph.edge_index}
    without = ig.TemporalGraph(y=graph.y, label_names=names and names[1:], **arrays)
    with_it = ig.TemporalGraph(y=y, label_names=names, **arrays)
    folds = [fold_of(g.masked(5), Window(4, 4)) for g in (without, with_it)]
    assert graph_digest(folds[0].graph) == graph_digest(folds[1].graph)
    assert folds[1].classes.tolist() == ([1, 2] if shift else [0, 1])
    tested = ig.backtest(with_it, candidates=["labels"], folds=2, cutoff=5, pipeline=QUICK)
    last, first = tested.fold_checks[1], tested.fold_checks[0]
    assert (first.unknown, last.unknown) == (0, late.sum())
    assert last.accuracy * last.count <= last.count - last.unknown + 1e-6
    assert np.isfinite([row.loss for row in tested.rows]).all()


@pytest.mark.parametrize(("cutoff", "length"), [(11, 1), (10, 2), (9, 3), (6, 2), (3, 1)])
def test_windows_are_as_long_as_the_targets_time_where_the_past_allows(cutoff, length):
    """Twelve periods: with few labelled ones a window is a third of them at most."""
    graph = ig.tsbm(num_nodes=1200, num_times=12, num_labels=2, num_features=2, seed=0).masked(
        cutoff
    )
    assert graph.horizon() == length
    folds = windows(graph, 2)
    assert [one.last - one.first + 1 for one in folds] == [length] * len(folds)
    assert folds[-1].last == cutoff - 1
    assert max(t for t in (Window.longest(graph, 8).last,)) == cutoff - 1


def test_half_of_the_labels_stay_older_than_the_newest_window():
    # seven thin periods, a thick one, targets
    time = np.repeat(np.arange(10), [5, 5, 5, 5, 5, 5, 5, 200, 40, 40])
    graph = ig.TemporalGraph(
        y=np.arange(len(time)) % 2, time=time, edge_index=np.zeros((2, 0), int)
    ).masked(8)
    assert graph.horizon() == 1
    with pytest.raises(ig.InputError, match="a horizon needs a view"):
        ig.TemporalGraph(y=[0, 1], time=[0, 1], edge_index=np.zeros((2, 0), int)).horizon()


# -- the search

OPTIONS = {"candidates": ["center", LABELS], "folds": 2, "cutoff": 5, "pipeline": QUICK}


def test_labels_at_or_after_the_cutoff_never_matter(graph):
    options = {
        "candidates": ["center", "trees:labels+smooth"],
        "folds": 2,
        "cutoff": 5,
        "pipeline": QUICK,
    }
    a, b = ig.backtest(graph, **options), ig.backtest(ig.audit.scrambled(graph, 5), **options)
    assert replace(a, seconds=0) == replace(b, seconds=0)
    assert {str(row.candidate) for row in a.rows} == {
        "plain",
        "center",
        "trees:labels+smooth",
        "trees:labels",
    }


def test_the_search_is_the_same_every_time_and_stays_within_its_work(graph):
    options = {"cutoff": 5, "effort": "quick", "pipeline": QUICK}
    a, b = ig.backtest(graph, **options), ig.backtest(graph, **options)
    assert replace(a, seconds=0) == replace(b, seconds=0)
    assert a.finished
    # the comparison of time corrections comes on top of the search
    view = graph.masked(5)
    size = Size.of(QUICK.inputs(view))
    corrections = [UNCORRECTED, *time_corrections(view)]
    on_top = 2 * sum(cost(one, size, "sign") for one in corrections)
    assert a.work <= allowed_work(EFFORTS["quick"], cost(BASELINE, size, "sign")) + on_top
    models = {row.candidate.model for row in a.rows}
    assert {None, "trees", "linear", "prior", "gcn"} <= models
    assert sum(row.weight for row in a.rows) == pytest.approx(1)
    assert [row.loss for row in a.full] == sorted(row.loss for row in a.full)


def test_a_smoothed_candidate_reuses_the_unsmoothed_fit(graph):
    both = ig.backtest(graph, **OPTIONS | {"candidates": ["labels+smooth"]})
    alone = ig.backtest(graph, **OPTIONS | {"candidates": ["labels"]})
    assert both.row("labels").loss == alone.row("labels").loss
    assert len(both.row("labels").scores) == 2


def test_a_diverging_candidate_fails_alone(graph, monkeypatch):
    real = Pipeline.fit

    def fit(self, *args, **options):
        if str(self.method) == "center":
            raise Diverged("the loss became NaN in epoch 2")
        return real(self, *args, **options)

    monkeypatch.setattr(Pipeline, "fit", fit)
    outcome = ig.backtest(graph, **OPTIONS)
    assert outcome.row(CENTER).status is Status.FAILED
    assert outcome.row(CENTER).ending == "failed: the loss became NaN in epoch 2"
    assert outcome.row("labels").status is Status.FULL
    alone = ig.backtest(graph, **OPTIONS | {"candidates": ["center"]})
    assert alone.selection.reason is SelectionReason.NONE_TRIED
    assert alone.choice == EnsembleSpec.single(BASELINE)


def test_named_candidates_that_cannot_be_fitted_are_reported(graph):
    outcome = ig.backtest(graph, **OPTIONS | {"candidates": ["gcn:snapshot", "labels"]})
    assert outcome.row("gcn:snapshot").status is Status.FAILED
    assert "gcn does not support 'snapshot'" in outcome.row("gcn:snapshot").ending
    assert outcome.row("labels").status is Status.FULL


def test_one_class_is_refused_before_anything_is_fitted():
    graph = ig.tsbm(num_nodes=200, num_times=5, num_labels=2, num_features=3, mean_degree=6, seed=0)
    same = ig.TemporalGraph(
        x=graph.x, y=np.zeros(200, int), time=graph.time, edge_index=graph.edge_index
    )
    for attempt in (
        lambda: ig.backtest(same, candidates=["linear:plain"], folds=1, cutoff=4, pipeline=QUICK),
        lambda: ig.Pipeline("linear", cutoff=4).fit(same),
    ):
        with pytest.raises(ig.InputError, match="labels before cutoff=4 are of one class"):
            attempt()


def test_a_budget_stops_early_and_the_result_says_so(graph):
    short = ig.backtest(graph, budget=1e-9, **OPTIONS)
    assert not short.finished
    assert short.choice == EnsembleSpec.single(BASELINE)
    assert short.selection.reason is SelectionReason.OUT_OF_TIME
    assert "Selected: plain. The budget ended" in str(short)
    assert short.row(LABELS).ending == "not evaluated: out of time"


def test_a_back_test_that_was_cut_off_continues(graph, tmp_path):
    calls = []

    def killing(stage, done, total, note):
        assert stage == "back-test"
        assert 0 <= done <= total
        calls.append(note)
        if len(calls) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ig.backtest(graph, store=tmp_path, progress=killing, **OPTIONS)
    stored = sorted(file.name for file in (tmp_path / "fits").glob("*.npy"))
    assert stored == ["center.fold3.seed0.npy", "plain.fold3.seed0.npy"]
    before = (tmp_path / "fits" / stored[0]).stat().st_mtime_ns
    whole = ig.backtest(graph, **OPTIONS)
    assert replace(ig.backtest(graph, store=tmp_path, **OPTIONS), seconds=0) == replace(
        whole, seconds=0
    )
    assert (tmp_path / "fits" / stored[0]).stat().st_mtime_ns == before
    changes = ({"folds": 1}, {"seeds": 2}, {"effort": "quick"}, {"candidates": ["center"]})
    for change in changes:
        with pytest.raises(
            ig.InputError, match=f"started with other inputs .{next(iter(change))} was"
        ):
            ig.backtest(graph, store=tmp_path, **OPTIONS | change)
    with pytest.raises(ig.InputError, match="graph has changed"):
        ig.backtest(graph.with_labels(1 - graph.y), store=tmp_path, **OPTIONS)


def test_every_fold_has_an_engine_of_its_own_that_is_cleared(graph):
    """Each fold gets an engine for its past graph, which is freed when the fold's fits are
    done.
    """
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

    assert (
        ig.backtest(graph, engine=Recording(), **OPTIONS).rows == ig.backtest(graph, **OPTIONS).rows
    )
    folds = [event for event in events if event[0].startswith("fold-")]
    assert folds == [(f"fold-{t}", event) for t in (3, 4) for event in (t, "undirected", "clear")]
    assert [event for name, event in events if name == "horizon"][-1] == "clear"


@pytest.mark.parametrize("kind", ["homogeneous", "no features", "no edges", "hetero"])
def test_everything_the_search_may_try_can_be_fitted(graph, kind):
    """All initial candidates and their neighbours can be fitted, on every kind of graph."""
    if kind == "no features":
        graph = ig.TemporalGraph(y=graph.y, time=graph.time, edge_index=graph.edge_index)
    if kind == "no edges":
        graph = ig.TemporalGraph(
            x=graph.x, y=graph.y, time=graph.time, edge_index=np.zeros((2, 0), int)
        )
    if kind == "hetero":
        papers = {"x": graph.x, "y": graph.y, "time": graph.time}
        writes = np.stack([np.arange(len(graph.y)) % 37, np.arange(len(graph.y))])
        graph = ig.TemporalGraph.hetero(
            nodes={"paper": papers, "author": {"num_nodes": 37}},
            edges={("author", "writes", "paper"): writes},
            target="paper",
        )
    view = graph.masked(5)
    offered = [
        one for first in initial_candidates(view) for one in (first, *neighbours_of(first, view))
    ]
    assert BASELINE in offered
    assert any(one.model == "rphgnn" for one in offered) == (kind == "hetero")
    named = [one for one in dict.fromkeys(offered) if one.model not in ("gat", "sehgnn")][::3]
    outcome = ig.backtest(
        graph, candidates=named, folds=1, cutoff=5, pipeline=Pipeline(hidden=4, epochs=2)
    )
    assert {row.error for row in outcome.rows} == {None}
    assert not is_applicable(Candidate.parse("gcn:snapshot"), view)


# -- the selection


def test_the_ensemble_beats_its_members_and_leaves_out_noise():
    rng = np.random.default_rng(0)
    first, second = (np.where(rng.random(2000) < 0.7, 0.9, 0.05) for _ in range(2))
    noise = np.full(2000, 0.1)
    weights = greedy_weights([[first], [second], [noise]], [lambda true: log_loss(true, 10)])
    assert weights[2] == 0
    assert weights[:2] == pytest.approx([0.5, 0.5], abs=0.1)
    mixed = weights[0] * first + weights[1] * second
    assert log_loss(mixed, 10) < min(log_loss(first, 10), log_loss(second, 10))


def test_among_equals_the_simplest_is_taken():
    rng = np.random.default_rng(0)
    same = rng.random(500)
    assert greedy_weights(
        [[same], [same + 1e-5], [same]], [lambda true: log_loss(true, 2)]
    ).tolist() == [
        1,
        0,
        0,
    ]


def test_the_ensemble_starts_from_two_candidates_of_a_model():
    rng = np.random.default_rng(0)
    linear = ["linear:plain", "linear:labels", "linear:pmp", "linear:mmp", "linear:center"]
    candidates = [Candidate.parse(name) for name in [*linear, "trees:plain"]]
    noise = 0.01 * rng.random((6, 500))
    # The last one is a little worse than the rest; all have nearly the same errors.
    predictions = [[0.6 + noise[k]] for k in range(5)] + [[0.55 + noise[5]]]
    losses = [lambda true: log_loss(true, 2)]

    def members(candidates):
        return np.flatnonzero(greedy_weights(predictions, losses, candidates=candidates)).tolist()

    assert 5 not in members(None)
    of_a_model = members(candidates)
    assert 5 in of_a_model
    assert len(of_a_model) == 3


@pytest.fixture(scope="module")
def large():
    return ig.tsbm(num_nodes=3000, num_times=6, num_labels=2, num_features=1, mean_degree=2, seed=0)


def scores_by_accuracy(rates, rng, graph):
    """Scores of candidates with these accuracies in the windows 1, 2, 3."""
    scores = Scores({str(fold): graph.y[graph.time == fold] for fold in (1, 2, 3)})
    for candidate, rate in rates.items():
        for fold, truth in scores.truth.items():
            guess = np.where(rng.random(len(truth)) < rate, truth, 1 - truth)
            probabilities = np.full((len(truth), 2), 0.2)
            probabilities[np.arange(len(truth)), guess] = 0.8
            scores.put(Unit(candidate, fold), probabilities)
    return scores


def selection_of(scores, candidates, graph):
    return EnsembleSelection(
        scores, scores.ranked(candidates), [Window(k, k) for k in (1, 2, 3)], graph.masked(5)
    )


def test_a_gain_is_measured_on_folds_that_were_not_used_for_selection(graph, large):
    rng = np.random.default_rng(0)
    rates = {BASELINE: 0.6, LABELS: 0.75, CENTER: 0.4}
    scores = scores_by_accuracy(rates, rng, large)
    selection = selection_of(scores, rates, large)
    decision = selection.select()
    assert decision.reason is SelectionReason.BETTER
    assert decision.ensemble.members[0].candidate == LABELS
    assert decision.gain.low > 0
    assert decision.gain.value == pytest.approx(0.15, abs=0.05)
    checks = selection.check_each_fold(decision.ensemble)
    assert [check.window for check in checks] == ["1", "2", "3"]
    assert all(check.error < 0.08 for check in checks)
    # If the held-out fold were used, many useless candidates would seem to gain.
    many = {BASELINE: 0.6} | {
        Candidate.parse(f"{a}+{b}"): 0.55
        for a in ("pmp", "mmp", "genpmp")
        for b in ("center", "jjnorm", "labels", "recency")
    }
    gains = []
    for seed in range(8):
        scores = scores_by_accuracy(many, np.random.default_rng(seed), graph)
        useless = selection_of(scores, many, graph)
        gain = useless.score_difference(useless.calibrated_out_of_fold, useless.calibrated_baseline)
        gains.append(gain.value)
    assert np.mean(gains) < 0.08


def test_the_baseline_is_selected_where_nothing_helps(large):
    rates = {BASELINE: 0.8, LABELS: 0.3}
    decision = selection_of(
        scores_by_accuracy(rates, np.random.default_rng(0), large), rates, large
    ).select()
    assert decision.ensemble == EnsembleSpec.single(BASELINE)
    assert decision.reason is SelectionReason.NONE_BETTER
    assert (
        "No ensemble had a lower log-loss on folds that did not select it; the best other "
        "candidate, labels, differs by −" in str(decision)
    )


def test_a_single_window_is_split_in_halves(graph):
    outcome = ig.backtest(graph, **OPTIONS | {"folds": 1})
    assert [check.window for check in outcome.fold_checks] == ["4", "4"]
    assert sum(check.count for check in outcome.fold_checks) == (graph.time == 4).sum()


def past_check(window, accuracy, **changes):
    """A past window of a model with 70 % confidence."""
    fold_check = FoldCheck(
        window=window,
        count=500,
        unknown=0,
        accuracy=accuracy,
        fitted=accuracy,
        plain=0.5,
        confidence=0.7,
        error_before=0.0,
        error=0.0,
        coverage=0.9,
        set_size=1.0,
        bins=[],
        score=accuracy,
        plain_score=0.5,
        confusion=[],
        periods=[],
    )
    return replace(fold_check, **changes)


def test_the_forecast_interval_covers_the_future_accuracy():
    """Nine of ten intervals cover the future, if it varies as much as past windows do."""
    rng = np.random.default_rng(0)
    inside = 0
    for _ in range(500):
        level = 0.7 + 0.05 * rng.normal(size=4)
        checks = [past_check(f"{k}", right) for k, right in enumerate(level[:3])]
        expected = forecast(checks, 0.7, 2000)
        inside += expected.low <= level[3] <= expected.high
    assert 0.85 < inside / 500 < 0.99
    assert forecast([], 0.7, 10) is None


def test_every_confidence_keeps_a_weight():
    """Shares of labelled nodes that are rounded to 0 leave nothing to average."""
    labelled = labelled_shares(np.full(20, 0.95), np.full(2000, 0.55), 1000.0)
    checks = [past_check("1", 0.5, labelled=labelled)]
    weights = labelled_weights(checks, np.array([0.55, 0.95, 0.05]))
    assert (weights > 0).all()
    assert weights[1] > 0.5 > weights[0]
    assert (labelled_weights([], np.ones(3)) == 1).all()


def test_folds_that_disagree_widen_the_interval():
    agree = combined(np.array([0.05, 0.05, 0.05]), np.array([0.01, 0.01, 0.01]))
    disagree = combined(np.array([0.15, 0.05, -0.05]), np.array([0.01, 0.01, 0.01]))
    assert agree.low > 0
    assert disagree.low < 0
    assert agree.value == pytest.approx(disagree.value)


def test_paired_intervals_have_their_coverage():
    """About 95 % of 95 % intervals cover the truth; unpaired ones would be far off."""
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
    with pytest.raises(ig.InputError, match="model='nope' is not valid"):
        ig.backtest(graph, cutoff=5, candidates=["nope:labels"])
    with pytest.raises(ig.InputError, match="effort='huge' is not valid"):
        ig.backtest(graph, cutoff=5, effort="huge")


def test_windows_that_overlap_share_no_node_when_one_is_left_out(large):
    view = large.masked(5)
    scores = Scores({str(w): truth_of(view, w) for w in (Window(1, 2), Window(2, 3))})
    for fold, truth in scores.truth.items():
        scores.put(Unit(BASELINE, fold), np.eye(2)[truth])
    first, second = EnsembleSelection(
        scores, [BASELINE], [Window(1, 2), Window(2, 3)], view
    ).holdouts
    assert set(first.without_nodes_of(second).time) == {1}
    assert set(second.without_nodes_of(first).time) == {3}


def test_a_selection_by_log_loss_claims_no_gain_in_accuracy(large):
    """An ensemble may have a lower log-loss at the same accuracy; its text says so."""
    decision = Selection(
        EnsembleSpec.single(LABELS),
        SelectionReason.BETTER,
        None,
        Estimate(-0.01, 0.01, -0.03, 0.01),
        2,
    )
    assert "Selected for its lower log-loss, not for its accuracy" in str(decision)
    assert "Gain" not in str(decision)


def test_two_spellings_of_a_candidate_are_one_candidate(graph):
    outcome = ig.backtest(
        graph, candidates=["sign:labels", "labels", "sign:plain"], folds=1, cutoff=5, pipeline=QUICK
    )
    assert [str(row.candidate) for row in outcome.rows].count("labels") == 1
    assert len(outcome.rows) == 2


def test_every_head_gives_the_same_on_disk(graph, tmp_path):
    """Hops in files, models over hops and over the graph, smoothing: the engine changes nothing."""
    names = [
        "trees:labels+smooth",
        "gcn:pmp+smooth",
        "linear:snapshot+labels",
        "prior:features+smooth",
    ]
    options = {"candidates": names, "folds": 1, "cutoff": 5, "pipeline": QUICK}
    inside, outside = (
        ig.backtest(graph, **options),
        ig.backtest(graph, engine=Disk(tmp_path, memory="20MB"), **options),
    )
    assert [row.error for row in outside.rows] == [None] * len(outside.rows)
    for row in inside.rows:
        assert outside.row(row.candidate).loss == pytest.approx(row.loss, abs=1e-3)


def test_the_search_answers_whether_corrections_for_time_help():
    graph = ig.tsbm(num_nodes=1200, num_times=8, num_labels=4, protocol="released", seed=0)
    result = ig.backtest(graph, effort="quick", cutoff=6, pipeline=QUICK)
    methods = [str(row.method) for row in result.time_corrections]
    assert methods == ["mmp", "pmp", "genpmp", "pmp+jjnorm", "center"]
    reference = result.row("linear:plain")
    for row in result.time_corrections:
        assert row.candidate.model == "linear"
        assert row.difference is not None
        paired = [row.scores[fold] - reference.scores[fold] for fold in result.folds]
        assert list(row.by_fold.values()) == pytest.approx(paired)
        # they are candidates like any other
        assert result.row(row.candidate) is not None
        # trained as long as the model without any
        assert row.settings.rounds == reference.settings.rounds


def test_corrections_apply_along_paths_through_nodes_without_a_time():
    graph = ig.TemporalGraph.hetero(
        nodes={
            "paper": {"x": np.eye(4), "y": [0, 1, 0, 1], "time": [0, 1, 2, 3]},
            "author": {"num_nodes": 2},
        },
        edges={("author", "writes", "paper"): [[0, 0, 1, 1], [0, 1, 2, 3]]},
        target="paper",
    )
    names = [str(one) for one in time_corrections(graph.masked(3))]
    assert names[:2] == ["linear:mmp+ends", "linear:pmp+ends"]
    alone = ig.TemporalGraph(x=np.eye(4), y=[0, 1, 0, 1], time=[0, 1, 2, 3], edge_index=[[], []])
    assert time_corrections(alone.masked(3)) == []


@pytest.fixture(scope="module")
def drifting():
    """Features without information, and a class whose proportion falls from 60 % to 10 %."""
    rng = np.random.default_rng(0)
    time = np.repeat(np.arange(12), 150)
    share = np.linspace(0.6, 0.1, 12)[time]
    return ig.TemporalGraph(
        x=rng.normal(size=(len(time), 4)).astype(np.float32),
        y=(rng.random(len(time)) < share).astype(int),
        time=time,
        edge_index=rng.integers(0, len(time), (2, 3000)),
    )


def selection_by(view, predictions):
    """The selection by predictions, each a function of the labels of a window."""
    folds = windows(view, 2)
    truth = {str(window): truth_of(view, window) for window in folds}
    scores = Scores(truth)
    for candidate, predict in predictions.items():
        for fold, label in truth.items():
            share = predict(label)
            scores.put(Unit(candidate, fold), np.stack([1 - share, share], axis=1))
    return EnsembleSelection(scores, list(predictions), folds, view)


def test_a_selection_below_the_class_prior_is_never_returned(drifting):
    rng = np.random.default_rng(0)

    def noise(label):
        return rng.choice([0.1, 0.9], len(label))

    candidates = [BASELINE, LABELS]
    search = selection_by(drifting.masked(10), dict.fromkeys(candidates, noise))
    selection = search.select()
    assert selection.reason is SelectionReason.CLASS_PRIOR
    # The class prior is not the candidate whose gain was measured.
    assert selection.gain is None
    assert str(selection.ensemble) == "prior:plain"
    assert "no model was better than the forecast class proportions" in str(selection)
    # What is predicted is what was compared: the forecast, neither sharpened nor softened.
    calibration = search.fit_calibration(selection.ensemble)
    assert (calibration.temperature, calibration.strength) == (1, 1)
    checks = search.check_each_fold(selection.ensemble)
    assert checks[-1].accuracy > 0.7


def test_the_class_prior_is_selected_unless_a_selection_is_more_accurate_in_the_newest_fold():
    """In the older window the forecast class is the wrong one, in the newest one it is right."""
    rng = np.random.default_rng(0)
    share = np.repeat([0.7, 0.25, 0.2, 0.2], [6, 2, 2, 2])
    time = np.repeat(np.arange(12), 150)
    graph = ig.TemporalGraph(
        y=(rng.random(len(time)) < share[time]).astype(int),
        time=time,
        edge_index=rng.integers(0, len(time), (2, 3000)),
    )

    def selection_for(*accuracies):
        # Windows follow each other, the oldest first, for every candidate.
        accuracy_of_window = itertools.cycle(accuracies)

        def unsure(label):
            is_right = rng.random(len(label)) < next(accuracy_of_window)
            return np.where(is_right == label, 0.505, 0.495)

        candidates = dict.fromkeys([BASELINE, LABELS], unsure)
        return selection_by(graph.masked(10), candidates).select()

    # More accurate on average of the windows, but not in the newest one.
    assert selection_for(0.8, 0.6).reason is SelectionReason.CLASS_PRIOR
    # More accurate in both windows, and as unsure.
    assert selection_for(0.8, 0.95).reason is not SelectionReason.CLASS_PRIOR


def test_seeds_and_epochs_of_final_fits(drifting, tmp_path, monkeypatch):
    """Networks have all seeds and, on small graphs, epochs by the newest labels; trees have one."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(drifting.num_nodes, 4)).astype(np.float32)
    x[:, 0] += 2 * drifting.y
    graph = drifting.with_features(x)
    options = {"cutoff": 10, "candidates": ["linear:plain", "trees:plain"], "seeds": None}
    module = importlib.import_module("impact_gnn.job.run")
    for most, expected_seeds in ((10_000, [0, 1, 2]), (0, [0])):
        monkeypatch.setattr(module, "SMALL", most)
        summary = ig.run(graph, tmp_path / str(most), **options)
        earlier = {row.candidate: row.settings.rounds[-1] for row in summary.backtest.rows}
        seeds = {}
        has_new_rounds = False
        for fit in summary.fits:
            seeds.setdefault(fit.candidate.model, []).append(fit.seed)
            has_new_rounds |= fit.rounds != earlier[fit.candidate]
            if fit.candidate.model == "trees":
                assert fit.rounds == earlier[fit.candidate]
        assert seeds.pop("trees") == [0]
        assert seeds
        assert all(of_model == expected_seeds for of_model in seeds.values())
        assert has_new_rounds == (most > 0)


def test_last_labels_of_entities_are_a_candidate_and_a_floor(tmp_path):
    """Labels of an entity stay: no model without the part is as good, and the report says so."""
    rng = np.random.default_rng(0)
    time = np.repeat(np.arange(8), 150)
    entity = rng.integers(0, 100, len(time))
    stays = rng.random(len(time)) < 0.9
    y = np.where(stays, (entity * 7919) % 2, rng.integers(0, 2, len(time)))
    graph = ig.TemporalGraph.hetero(
        nodes={
            "row": {"x": rng.normal(size=(len(time), 2)), "y": y, "time": time},
            "entity": {"num_nodes": 100},
        },
        edges={("entity", "has", "row"): np.stack([entity, np.arange(len(time))])},
        target="row",
    )
    summary = ig.run(graph, tmp_path, cutoff=7, candidates=["trees:features"], seeds=1)
    tested = summary.backtest
    assert tested.row("prior:last").status is Status.FULL
    assert LAST_LABELS in tested.choice.candidates
    assert tested.selection.reason in (SelectionReason.LAST_LABELS, SelectionReason.BETTER)
    majority, prior, last, selected = tested.simplest
    names = [row.name for row in tested.simplest]
    assert names == ["majority class", "prior:plain", "prior:last", "selected model"]
    assert majority.loss is None
    assert majority.newest_score < 0.6
    assert last.loss < 0.8 * prior.loss
    assert last.newest_score > 0.8
    assert selected.loss <= 1.01 * last.loss
    # What was selected is saved, and predicts.
    probabilities = ig.Ensemble.load(tmp_path / "model").predict_proba(graph.masked(7))
    assert (probabilities.argmax(1) == graph.y[graph.time >= 7]).mean() > 0.8


@pytest.mark.parametrize("simple", ["prior:plain", "prior:last"])
def test_a_selection_below_the_simplest_predictions_is_never_returned(drifting, simple):
    rng = np.random.default_rng(0)

    def noise(label):
        return rng.choice([0.2, 0.8], len(label))

    def knows(label):
        return np.where(rng.random(len(label)) < 0.9, 0.1 + 0.8 * label, 0.5)

    predictions = dict.fromkeys([BASELINE, LABELS], noise)
    if simple == "prior:last":
        predictions[LAST_LABELS] = knows
    search = selection_by(drifting.masked(10), predictions)
    assert search.is_better(
        EnsembleSpec.single(Candidate.parse(simple)), EnsembleSpec.single(BASELINE)
    )
    selection = search.select()
    assert str(selection.ensemble) == simple
    assert selection.gain is None
    *others, selected = search.compare_simplest(selection.ensemble)
    assert others[-1].name == simple
    # What is predicted is what was compared.
    assert selected.loss == others[-1].loss
    calibration = search.fit_calibration(selection.ensemble)
    assert (calibration.temperature, calibration.strength) == (1, 1)


def test_below_the_majority_class_any_lower_loss_is_enough(drifting):
    """80 of 150 labels are of the first class in every period: both predictions know little."""
    y = (np.arange(drifting.num_nodes) % 150 >= 80).astype(int)
    view = ig.TemporalGraph(y=y, time=drifting.time, edge_index=drifting.edge_index).masked(10)
    baseline, prior = (EnsembleSpec.single(one) for one in (BASELINE, CLASS_PRIOR))

    def selection_with(share_of_second):
        def unsure(label):
            return np.full(len(label), share_of_second)

        return selection_by(view, {BASELINE: unsure, LABELS: unsure})

    for share, is_below in ((0.505, True), (0.495, False)):
        search = selection_with(share)
        folds = search.calibrated_folds(baseline)
        losses = [search.overall_loss(each) for each in (folds, search.calibrated_folds(prior))]
        # The loss of the class proportions is lower, but not clearly.
        assert 0.99 < losses[1] / losses[0] < 1
        assert search.is_below_majority(folds) == is_below
        assert search.is_better(prior, baseline) == is_below


def test_the_majority_class_is_that_of_the_last_labelled_periods(drifting):
    """Of all labels before period 8 most are of the second class, of the newest ones the first."""
    y = np.where(drifting.time < 6, 1, 0)
    view = ig.TemporalGraph(y=y, time=drifting.time, edge_index=drifting.edge_index).masked(10)
    window = windows(view, 1)[0]
    assert (window.first, view.horizon()) == (8, 2)
    assert np.bincount(y[view.time < 8]).argmax() == 1
    assert majority_before(view, window) == 0
    hidden = view.with_labels(np.where(np.isin(view.time, (6, 7)), -1, view.label))
    assert majority_before(hidden, window) == 1


def test_predicted_class_proportions_follow_the_forecast(drifting, tmp_path):
    ig.run(drifting, tmp_path, cutoff=10, candidates=["prior:plain", "trees:plain"], seeds=1)
    probabilities = ig.Ensemble.load(tmp_path / "model").predict_proba(drifting.masked(10))
    labels = drifting.y[drifting.time < 10]
    truth = drifting.y[drifting.time >= 10]
    assert labels.mean() > 0.35
    assert probabilities[:, 1].mean() == pytest.approx(truth.mean(), abs=0.08)


def test_candidates_are_compared_under_the_forecast_class_proportions(drifting):
    """One separates classes by the old proportions, one knows only the new ones."""
    rng = np.random.default_rng(1)

    def separates(label):
        odds = np.exp(rng.normal(2 * label - 1, 1)) * 0.6 / 0.4
        return odds / (1 + odds)

    def follows(label):
        return np.full(len(label), label.mean())

    predictions = {BASELINE: follows, LABELS: separates}
    selection = selection_by(drifting.masked(10), predictions)
    raw, _ = selection.select_under_drift(selection.holdouts, 0.0)
    weights = {one.candidate: one.weight for one in raw.members}
    chosen = selection.select_members(selection.holdouts)
    assert {one.candidate: one.weight for one in chosen.members}[LABELS] > weights.get(LABELS, 0)


# -- networks that are far behind


def test_half_lives_of_recency_and_the_training_window_are_swapped(graph):
    """From a winner with one of them, the others are neighbours."""
    weights = {"recency", "recency-fast", "window"}
    for name in sorted(weights):
        winner = Candidate.parse(f"trees:labels+{name}")
        methods = {str(one.method) for one in neighbours_of(winner, graph.masked(5))}
        assert {f"labels+{other}" for other in weights - {name}} | {"labels"} <= methods


def test_networks_are_behind_if_the_best_of_them_is_far_from_the_best_other():
    losses = {LABELS: 0.9, BASELINE: 0.8, TREES: 0.6}
    assert networks_are_behind(losses, "sign")
    assert not networks_are_behind(losses, "trees")  # then candidates without a model are trees
    assert not networks_are_behind({**losses, CENTER: 0.65}, "sign")
    assert not networks_are_behind({BASELINE: 0.8}, "sign")
    assert is_network(BASELINE, "the user's own")
    assert not is_network(UNCORRECTED, "sign")


def test_a_search_tries_no_further_network_where_they_learn_nothing():
    rng = np.random.default_rng(0)
    label = rng.integers(0, 2, 400)
    table = ig.TemporalGraph(
        x=rng.normal(size=(400, 3)) + 3 * label[:, None],
        y=label,
        time=np.arange(400) % 6,
        edge_index=np.zeros((2, 0), np.int64),  # smoothing would learn for the network
    )
    no_learning = Pipeline(hidden=4, lr=1e-9, epochs=6, device="cpu")
    tested = ig.backtest(table, effort="normal", cutoff=5, folds=2, pipeline=no_learning, jobs=1)
    assert networks_are_behind({row.candidate: row.loss for row in tested.full}, "sign")
    first = initial_candidates(table.masked(5))
    later = [row.candidate for row in tested.rows if row.candidate not in first]
    assert later
    assert not any(is_network(candidate, "sign") for candidate in later)


def test_ranks_are_stored_exactly():
    """Probabilities above .9998 are all 1 in half precision."""
    probability = np.array([1e-6, 3e-6, 1e-5, 4e-5])
    rows = np.stack([1 - probability, probability], axis=1)
    truth = np.array([0, 0, 1, 1])
    unit = Unit(BASELINE, "1")
    scores = Scores({"1": truth}, scoring={"1": Scoring("auroc", (0.5, 0.5))})
    scores.put(unit, rows)
    assert scores.by_fold(BASELINE)["1"] == 1
