"""Metrics equal scikit-learn's, and their standard errors equal the bootstrap's."""

import csv
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup
from sklearn import metrics as oracle

import impact_gnn as ig
from impact_gnn.backtesting import (
    BASELINE,
    BacktestResult,
    Scores,
    Selection,
    SelectionReason,
    Unit,
)
from impact_gnn.estimators import (
    Candidate,
    Ensemble,
    EnsembleSpec,
    HeadOptions,
    Pipeline,
    Shape,
    spec_of,
)
from impact_gnn.estimators.calibration import OutOfFold, fit_calibration
from impact_gnn.metrics import FLOOR, METRICS, Scoring, mean_and_error, tilted
from impact_gnn.nn import SIGN, HopTask, Lesson, Split, Training, fit, predict
from impact_gnn.report import svg
from impact_gnn.statistics import Estimate


def drawn(seed, n, classes, digits=8):
    """Probabilities that know something of the truth; few digits make ties.

    Some classes may not be there.
    """
    rng = np.random.default_rng(seed)
    share = rng.dirichlet(np.full(classes, 0.7))
    truth = rng.choice(classes, n, p=share)
    raw = rng.dirichlet(np.ones(classes), n) + 0.6 * np.eye(classes)[truth] * rng.random((n, 1))
    return (raw / raw.sum(1, keepdims=True)).round(digits), truth, share


def expected(metric, probabilities, truth, share):
    there, guess = np.unique(truth), probabilities.argmax(1)
    if metric == "accuracy":
        return oracle.accuracy_score(truth, guess)
    if metric == "macro-f1":
        return oracle.f1_score(truth, guess, labels=there, average="macro", zero_division=0)
    if metric == "balanced-accuracy":
        return oracle.recall_score(truth, guess, labels=there, average="macro")
    if metric == "log-loss":
        floored = (1 - FLOOR) * probabilities + FLOOR / probabilities.shape[1]
        return np.log(floored[np.arange(len(truth)), truth]).mean()
    if metric == "brier":
        return -((probabilities - np.eye(probabilities.shape[1])[truth]) ** 2).sum(1).mean()
    if metric == "auroc":
        areas = [
            oracle.roc_auc_score(truth == k, probabilities[:, k]) for k in there if len(there) > 1
        ]
        return np.mean(areas) if areas else 0.5
    if probabilities.shape[1] == 2:
        rare = int(share[1] <= share[0])
        there = [rare] if rare in there else there
    return np.mean([oracle.average_precision_score(truth == k, probabilities[:, k]) for k in there])


@pytest.mark.parametrize("metric", METRICS)
@given(st.integers(0, 10**6), st.integers(1, 60), st.integers(1, 5), st.sampled_from([1, 8]))
def test_scores_are_those_of_scikit_learn(metric, seed, n, classes, digits):
    probabilities, truth, share = drawn(seed, n, classes, digits)
    scoring = Scoring(metric, tuple(share))
    each = scoring.each(probabilities, truth, tilt=0.0)
    assert each.shape == (n,)
    assert scoring.score(probabilities, truth, tilt=0.0) == pytest.approx(
        expected(metric, probabilities, truth, share), abs=1e-9
    )


def test_log_loss_is_scikit_learns_too():
    probabilities, truth, _ = drawn(0, 200, 3)
    floored = (1 - FLOOR) * probabilities + FLOOR / 3
    loss = oracle.log_loss(truth, floored / floored.sum(1, keepdims=True), labels=range(3))
    assert METRICS["log-loss"].displayed(
        Scoring("log-loss").score(probabilities, truth)
    ) == pytest.approx(loss, rel=1e-6)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("classes", [2, 4])
def test_the_error_of_a_difference_is_that_of_the_bootstrap(metric, classes):
    probabilities, truth, share = drawn(5, 600, classes)
    other = drawn(5, 600, classes)[0] ** 0.5 * np.random.default_rng(1).dirichlet(
        np.ones(classes), 600
    )
    other /= other.sum(1, keepdims=True)
    scoring, rng = Scoring(metric, tuple(share)), np.random.default_rng(0)
    value, error = mean_and_error(scoring.each(probabilities, truth), scoring.each(other, truth))
    assert value == pytest.approx(scoring.score(probabilities, truth) - scoring.score(other, truth))
    again = [
        scoring.score(probabilities[rows], truth[rows]) - scoring.score(other[rows], truth[rows])
        for rows in rng.integers(0, 600, (400, 600))
    ]
    assert error == pytest.approx(np.std(again), rel=0.15)


def test_labels_are_those_that_maximise_the_metric():
    probabilities, prior = np.array([[0.7, 0.25, 0.05]]), np.array([0.9, 0.1, 0.0])
    assert [Scoring(name, tuple(prior)).labels(probabilities)[0] for name in METRICS] == [
        *[0, 1, 1, 0, 0],
        *[0, 0],
    ]
    assert tilted(probabilities, prior, 0.5).argmax(1) == Scoring("macro-f1", tuple(prior)).labels(
        probabilities
    )
    assert (
        tilted(probabilities, prior, 1.0)[0, 2] == probabilities[0, 2]
    )  # a class without labels has no estimate


def test_balanced_weights_count_classes_equally_and_probabilities_are_corrected():
    scoring = Scoring(prior=(0.75, 0.25, 0.0), balanced=True)
    weight = scoring.weights(np.array([0, 0, 0, 1, -1]))
    assert weight.tolist() == pytest.approx([2 / 3, 2 / 3, 2 / 3, 2, 1])
    assert scoring.without_class_weights(np.array([[0.5, 0.5, 0.0]])) == pytest.approx(
        np.array([[0.75, 0.25, 0.0]])
    )
    plain = np.array([[0.5, 0.5]])
    assert Scoring(prior=(0.9, 0.1)).without_class_weights(plain) is plain


def test_an_unknown_metric_is_refused(fraud):
    with pytest.raises(
        ig.InputError, match="metric='f1' is not valid; choose one of 'accuracy', 'macro-f1'"
    ):
        Scoring("f1")
    with pytest.raises(ig.InputError, match="metric='auc' is not valid"):
        ig.Pipeline(metric="auc").fit(fraud)
    with pytest.raises(
        ig.InputError, match="class_weight='even' is not valid; choose one of 'balanced'"
    ):
        ig.Pipeline(class_weight="even").fit(fraud)


# -- learning

SPLIT = Split(np.arange(0, 500), np.arange(500, 900))


@pytest.fixture(scope="module")
def rare():
    """One row of twelve is positive; hops tell a part of them."""
    rng = np.random.default_rng(0)
    label = (rng.random(900) < 1 / 12).astype(int)
    hop = rng.normal(size=(900, 6)).astype(np.float32)
    hop[:, 0] += 1.5 * label
    share = np.bincount(label[:500]) / 500
    return HopTask([hop]), label, tuple(share)


@pytest.mark.parametrize("balanced", [False, True])
def test_the_network_of_the_epoch_with_the_best_metric_is_retained(rare, balanced):
    task, label, share = rare
    chosen = {}
    for metric in METRICS:
        scoring = Scoring(metric, share, balanced)
        training = Training(epochs=40, seed=1, device="cpu", scoring=scoring)
        weight = scoring.weights(label) if balanced else None
        result = fit(lambda: SIGN([6], 2, 16), task, label, SPLIT, training, sample_weight=weight)
        probabilities = scoring.without_class_weights(predict(result.model, task, SPLIT.valid))
        assert result.best_epoch == 1 + np.argmax([epoch.score for epoch in result.history])
        assert result.valid_score == pytest.approx(
            scoring.score(probabilities, label[SPLIT.valid]), abs=0.01
        )
        chosen[metric] = result.best_epoch
    assert len(set(chosen.values())) > 1


@pytest.mark.parametrize("metric", METRICS)
def test_trees_stop_by_the_metric(rare, metric):
    task, label, share = rare
    head = spec_of("trees").make(
        Shape([6], [], 2, [1]), HeadOptions(scoring=Scoring(metric, share))
    )
    head.fit(task, Lesson(label, None, None, SPLIT))
    by_log_loss = metric in ("accuracy", "log-loss")
    assert list(head.booster.best_score["valid_0"]) == ["multi_logloss" if by_log_loss else metric]
    probabilities = head.probabilities(task, SPLIT.valid)
    assert head.valid_score == pytest.approx(
        head.options.scoring.score(probabilities, label[SPLIT.valid])
    )


@pytest.fixture(scope="module")
def fraud():
    """Two classes, one node of twenty in the rare one."""
    g = ig.tsbm(num_nodes=3000, num_times=6, num_labels=20, num_features=5, mean_degree=20, seed=1)
    return ig.TemporalGraph(x=g.x, y=(g.y == 0).astype(int), time=g.time, edge_index=g.edge_index)


@pytest.mark.parametrize("model", ["linear", "trees", "prior"])
def test_balanced_classes_leave_probabilities_unbiased(fraud, model):
    options = {
        "model": model,
        "method": "labels" if model != "prior" else "plain",
        "cutoff": 5,
        "device": "cpu",
    }
    even = Pipeline(class_weight="balanced", metric="balanced-accuracy", **options).fit(fraud)
    usual = Pipeline(**options).fit(fraud)
    probabilities, expected = even.predict_proba(fraud), usual.predict_proba(fraud)
    assert probabilities.sum(1) == pytest.approx(np.ones(len(probabilities)), abs=1e-5)
    if model == "prior":
        assert probabilities == pytest.approx(expected, abs=1e-6)
        return
    assert not np.allclose(probabilities, expected)
    assert probabilities[:, 1].mean() == pytest.approx(0.05, abs=0.03)
    assert even.score(fraud, metric="log-loss") > usual.score(fraud, metric="log-loss") - 0.05
    assert (
        even.score(fraud, metric="balanced-accuracy")
        > usual.score(fraud, metric="balanced-accuracy") + 0.03
    )
    assert usual.score(fraud) == (usual.predict(fraud) == fraud.y[fraud.time >= 5]).mean()


def test_a_fitted_pipeline_keeps_its_metric(fraud, tmp_path):
    fitted = Pipeline(
        "linear", cutoff=5, epochs=20, metric="balanced-accuracy", class_weight="balanced"
    ).fit(fraud)
    fitted.save(tmp_path / "p")
    again = Pipeline.load(tmp_path / "p")
    assert again.described() == fitted.described()
    assert np.array_equal(again.predict(fraud), fitted.predict(fraud))
    assert np.array_equal(Ensemble.load(tmp_path / "p").predict(fraud), fitted.predict(fraud))


# -- selection


def test_candidates_are_ranked_by_the_metric():
    """One is confident and right on the frequent class, the other detects the rare one."""
    truth = np.repeat([0, 1], [90, 10])
    many, few = np.tile([0.99, 0.01], (100, 1)), np.where(truth[:, None] == [0, 1], 0.95, 0.05)
    few[:60] = [0.4, 0.6]
    order = {}
    for metric in METRICS:
        scores = Scores({"1": truth}, scoring={"1": Scoring(metric, (0.9, 0.1))})
        for candidate, probabilities in ((BASELINE, many), (Candidate.parse("labels"), few)):
            scores.put(Unit(candidate, "1"), probabilities)
        order[metric] = [
            str(one) for one in scores.ranked(unit.candidate for unit in scores.predictions)
        ]
        value, error = scores.differences(Candidate.parse("labels"))["1"]
        ours = scores.by_fold(Candidate.parse("labels"))["1"]
        theirs = scores.by_fold(BASELINE)["1"]
        assert METRICS[metric].displayed(value) == pytest.approx(ours - theirs)
        assert error > 0
    assert order["accuracy"] == order["log-loss"] == order["macro-f1"] == ["plain", "labels"]
    assert order["balanced-accuracy"] == order["average-precision"] == ["labels", "plain"]


def test_the_tilt_of_labels_is_fitted_to_the_past():
    rng = np.random.default_rng(0)
    folds = []
    for _ in range(2):
        truth = (rng.random(2000) < 0.05).astype(int)
        odds = 0.05 / 0.95 * np.exp(1.5 * rng.normal(size=2000) + 1.5 * 1.5 * truth - 1.125)
        probabilities = odds / (1 + odds)
        folds.append(
            OutOfFold(np.c_[1 - probabilities, probabilities], truth, np.array([0.95, 0.05]))
        )
    tilt = {metric: fit_calibration(folds, metric=metric).tilt for metric in METRICS}
    assert tilt["accuracy"] == tilt["log-loss"] == tilt["average-precision"] == 0
    assert 0 < tilt["macro-f1"] < tilt["balanced-accuracy"]
    assert (
        fit_calibration(folds, metric="macro-f1").temperature == fit_calibration(folds).temperature
    )


@pytest.fixture(scope="module")
def runs(fraud, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs")
    options = {
        "cutoff": 5,
        "candidates": ["trees:labels"],
        "model": "linear",
        "folds": 2,
        "seeds": 1,
    }
    asked = {"accuracy": None, "balanced-accuracy": "balanced"}
    with pytest.MonkeyPatch.context() as patch:
        # drawing takes most of the time
        patch.setattr(svg, "render", lambda *_: ("", Markup("<svg></svg>")))
        summaries = {
            m: ig.run(fraud, out / m, metric=m, class_weight=weight, **options)
            for m, weight in asked.items()
        }
    return out, summaries


def test_a_run_for_a_rare_class_finds_it(fraud, runs):
    out, summaries = runs
    truth = fraud.y[fraud.time >= 5]
    label = {metric: Ensemble.load(out / metric / "model").predict(fraud) for metric in summaries}
    scores = {metric: oracle.balanced_accuracy_score(truth, one) for metric, one in label.items()}
    assert scores["balanced-accuracy"] > scores["accuracy"] + 0.05
    tested = summaries["balanced-accuracy"].backtest
    assert tested.calibration.tilt > 0
    assert summaries["accuracy"].backtest.calibration.tilt == 0
    for check in summaries["accuracy"].backtest.fold_checks:
        assert (check.score, check.plain_score) == (check.accuracy, check.plain)


def test_the_table_has_the_labels_that_maximise_the_metric(fraud, runs):
    out, summaries = runs
    for metric, summary in summaries.items():
        model = Ensemble.load(out / metric / "model")
        probabilities, label = model.predict_proba(fraud), model.predict(fraud)
        with (out / metric / "predictions.csv").open() as file:
            rows = list(csv.DictReader(file))
        assert [int(row["label"]) for row in rows] == label.tolist()
        own = probabilities[np.arange(len(label)), label]
        assert [float(row["probability"]) for row in rows] == pytest.approx(own, abs=1e-6)
        assert all(
            row["label"] in row["set"].split("|") and row["second_label"] != row["label"]
            for row in rows
        )
        assert summary.prediction_summary.labels == {
            str(k): n for k, n in sorted(Counter(label.tolist()).items())
        }
        assert summary.prediction_summary.mean_probability == pytest.approx(own.mean())
    assert any(float(row["probability"]) < float(row["second_probability"]) for row in rows)


def test_the_report_names_the_metric(runs):
    out, summaries = runs
    text = (out / "balanced-accuracy" / "report.html").read_text(encoding="utf-8")
    named = [
        "difference to the baseline, points of balanced accuracy",
        "the most recent first: balanced accuracy, then",
    ]
    for words in (
        *named,
        "best candidates by balanced accuracy",
        "ranked by balanced accuracy",
        "Rare classes are favoured",
    ):
        assert words in text
    assert "balanced accuracy" not in (out / "accuracy" / "report.html").read_text(encoding="utf-8")
    assert "Columns: balanced accuracy per fold (" in str(summaries["balanced-accuracy"].backtest)


@pytest.mark.parametrize(
    ("metric", "sentence"),
    [
        (
            "macro-f1",
            "labels. Gain over the baseline: +2.0 points of macro-F1 (95% CI +1.0 to +3.0, 2 "
            "folds).",
        ),
        (
            "log-loss",
            "labels. Gain over the baseline: +2.0 hundredths of log-loss (95% CI +1.0 to +3.0",
        ),
        ("accuracy", "labels. Gain over the baseline: +2.0 points (95% CI +1.0 to +3.0"),
    ],
)
def test_the_decision_names_the_metric(metric, sentence):
    gain, labels = Estimate(0.02, 0.005, 0.01, 0.03), Candidate.parse("labels")
    assert str(
        Selection(
            EnsembleSpec.single(labels),
            reason=SelectionReason.BETTER,
            best_single=None,
            gain=gain,
            num_folds=2,
            metric=metric,
        )
    ).startswith(sentence)
    decision = str(
        Selection(
            EnsembleSpec.single(BASELINE),
            reason=SelectionReason.NONE_BETTER,
            best_single=labels,
            gain=gain,
            num_folds=2,
            metric=metric,
        )
    )
    assert f"differs by +2.0 {METRICS[metric].unit} (95% CI +1.0 to +3.0, 2 folds)." in decision


def test_without_a_back_test_labels_still_follow_the_metric():
    assert BacktestResult.without_folds("quick").calibration.tilt == 0.0
    short = BacktestResult.without_folds("quick", "balanced-accuracy")
    assert (short.metric, short.calibration.tilt) == ("balanced-accuracy", 1.0)
