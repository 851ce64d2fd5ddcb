"""Calibrated probabilities, prediction sets with their coverage, and saved ensembles."""

import json
from dataclasses import replace

import numpy as np
import pytest

import impact_gnn as ig
from impact_gnn.backtesting.prior_forecast import forecast_interval, forecast_prior
from impact_gnn.estimators import Calibration, Ensemble, Pipeline
from impact_gnn.estimators.calibration import (
    OutOfFold,
    best_temperature,
    calibration_error,
    fit_calibration,
    reliability,
    tempered,
)
from impact_gnn.metrics import Scoring


def drawn(rng, size=4000, classes=4, sharpness=1.0, share=None):
    """Labels, and their true probabilities, sharpened (above 1) or softened."""
    share = np.ones(classes) / classes if share is None else np.asarray(share)
    truth = rng.choice(classes, size, p=share)
    evidence = rng.normal(size=(size, classes))
    evidence[np.arange(size), truth] += 1.5
    logs = 1.5 * evidence + np.log(np.ones(classes) / classes)
    honest = np.exp(logs) / np.exp(logs).sum(1, keepdims=True)
    return tempered(honest, 1 / sharpness), truth


def test_temperature_is_recovered_and_errors_vanish():
    rng = np.random.default_rng(0)
    folds = [OutOfFold(*drawn(rng, sharpness=2.5), np.ones(4) / 4) for _ in range(2)]
    fitted = fit_calibration(folds)
    assert fitted.temperature == pytest.approx(2.5, rel=0.1)
    probability, truth = drawn(rng, sharpness=2.5)
    assert calibration_error(probability, truth) > 0.08
    assert calibration_error(fitted.apply(probability, np.ones(4) / 4), truth) < 0.03


def test_prediction_sets_have_their_coverage():
    rng = np.random.default_rng(2)
    covered = []
    for _ in range(20):
        fitted = fit_calibration(
            [
                OutOfFold(*drawn(rng, 1000), np.ones(4) / 4),
                OutOfFold(*drawn(rng, 1000), np.ones(4) / 4),
            ]
        )
        probability, truth = drawn(rng, 1000)
        calibrated = fitted.apply(probability, np.ones(4) / 4)
        label = calibrated.argmax(1)
        sets = fitted.covering(calibrated, label, np.ones(1000)).sets(calibrated)
        covered.append(sets[np.arange(1000), truth].mean())
    assert np.mean(covered) == pytest.approx(0.9, abs=0.01)
    assert Calibration(threshold=0.99).sets(np.array([[0.5, 0.5]])).sum() == 1
    assert Calibration().sets(np.array([[0.5, 0.5]])).all()


def test_a_fold_that_counts_more_decides_more():
    rng = np.random.default_rng(3)
    old, new = drawn(rng, sharpness=4.0), drawn(rng, sharpness=1.0)
    prior = np.ones(4) / 4
    even = fit_calibration([OutOfFold(*old, prior), OutOfFold(*new, prior)]).temperature
    recent = fit_calibration([OutOfFold(*old, prior, 0.1), OutOfFold(*new, prior, 0.9)]).temperature
    assert 1 < recent < even


def test_reliability_adds_up():
    probability, truth = drawn(np.random.default_rng(4))
    bins = reliability(probability, truth)
    assert sum(one.share for one in bins) == pytest.approx(1)
    assert sum(one.share * one.accuracy for one in bins) == pytest.approx(
        (probability.argmax(1) == truth).mean()
    )


@pytest.fixture(scope="module")
def graph():
    return ig.tsbm(num_nodes=300, num_times=5, num_labels=2, num_features=3, mean_degree=8, seed=0)


def test_an_ensemble_is_the_calibrated_mean_and_comes_back_from_disk(graph, tmp_path):
    members = [
        Pipeline(model, method, cutoff=4, epochs=5).fit(graph)
        for model, method in (("sign", "plain"), ("trees", "labels+smooth"), ("rphgnn", "plain"))
    ]
    calibration = Calibration(1.7, 0.5, 0.2)
    prior = np.array([0.3, 0.7])
    ensemble = Ensemble(members, [0.5, 0.25, 0.25], calibration, prior)
    probabilities = ensemble.predict_proba(graph)
    mean = sum(
        w * one.predict_proba(graph) for w, one in zip([0.5, 0.25, 0.25], members, strict=True)
    )
    assert np.allclose(probabilities, calibration.apply(mean, prior), atol=1e-6)
    ensemble.save(tmp_path / "model")
    loaded = Ensemble.load(tmp_path / "model")
    assert np.allclose(loaded.predict_proba(graph), probabilities, atol=1e-6)
    assert loaded.calibration == calibration
    truth = graph.y[ensemble.targets(graph)]
    assert loaded.score(graph) == pytest.approx((loaded.predict(graph) == truth).mean())
    loss = loaded.score(graph, metric="log-loss")
    assert loss == pytest.approx(Scoring("log-loss").score(probabilities, truth), abs=1e-5)
    members[0].save(tmp_path / "single")
    single = Ensemble.load(tmp_path / "single")
    assert np.allclose(single.predict_proba(graph), members[0].predict_proba(graph))


@pytest.mark.parametrize(
    ("weights", "calibration", "prior"),
    [
        ([1.0], None, np.ones(2)),
        ([1.0], Calibration(), None),
        ([0.9], Calibration(), np.ones(2)),
        ([1.0], Calibration(), np.ones(3)),
    ],
)
def test_an_ensemble_refuses_what_it_cannot_predict_with(graph, weights, calibration, prior):
    members = [Pipeline("prior", cutoff=4).fit(graph)]
    with pytest.raises(ig.InputError, match="needs weights that sum to 1, a calibration such as"):
        Ensemble(members, weights, calibration, prior)


def test_refusals_of_damaged_models(graph, tmp_path):
    Ensemble([Pipeline(cutoff=4, epochs=1).fit(graph)], [1.0], Calibration(), np.ones(2)).save(
        tmp_path / "m"
    )
    file = tmp_path / "m" / "ensemble.json"
    good = json.loads(file.read_text())
    for change, words in (
        ({"version": 99}, "format version 99"),
        ({"format": "x"}, "contains no impact-gnn ensemble"),
    ):
        file.write_text(json.dumps(good | change))
        with pytest.raises(ig.InputError, match=words):
            Ensemble.load(tmp_path / "m")
    file.write_text(json.dumps(good | {"weights": "no"}))
    with pytest.raises(ig.InputError, match=r"ensemble.json is missing or has changed"):
        Ensemble.load(tmp_path / "m")


def drifting_fold(rng, share, prior, forecast, rows=2000):
    """Predictions for the proportions `prior`, of rows in which class 1 has `share`."""
    truth = (rng.random(rows) < share).astype(int)
    score = rng.normal(truth, 2.0)  # weak evidence
    odds = np.exp((score - 0.5) / 4) * prior / (1 - prior)
    probability = np.stack([1 / (1 + odds), odds / (1 + odds)], axis=1)
    base = np.array([1 - prior, prior])
    drift = np.log(np.array([1 - forecast, forecast]) / base)
    return OutOfFold(probability, truth, base, drift=drift)


def test_a_forecast_of_the_class_proportions_is_used_where_it_helps():
    rng = np.random.default_rng(0)
    folds = [drifting_fold(rng, 0.3, 0.5, 0.32), drifting_fold(rng, 0.2, 0.45, 0.21)]
    target = drifting_fold(rng, 0.1, 0.4, 0.11)
    calibration = fit_calibration(folds, drift=target.drift)
    assert calibration.strength > 0.5
    share = calibration.apply(target.probability, target.prior)[:, 1].mean()
    assert share == pytest.approx(0.1, abs=0.03)
    without = replace(calibration, strength=0.0)
    assert without.apply(target.probability, target.prior)[:, 1].mean() > 0.25


@pytest.mark.parametrize(
    ("newest", "count"),
    [((0.4, 0.4, 0.4), 2), ((0.4, 0.4, 0.1), 2), ((0.4, 0.4, 0.35), 1)],
    ids=["no drift", "wrong forecast", "one fold"],
)
def test_a_forecast_that_does_not_help_is_not_used(newest, count):
    rng = np.random.default_rng(1)
    folds = [drifting_fold(rng, 0.3, 0.5, 0.32), drifting_fold(rng, *newest)]
    calibration = fit_calibration(folds[-count:], drift=folds[0].drift)
    assert calibration.strength == 0


def test_a_drift_that_the_model_has_followed_is_not_applied_twice():
    rng = np.random.default_rng(3)
    folds = [drifting_fold(rng, 0.3, 0.5, 0.32), drifting_fold(rng, 0.2, 0.45, 0.21)]
    target = drifting_fold(rng, 0.1, 0.4, 0.11)
    calibration = fit_calibration(folds, drift=target.drift)
    # A model that knows the new proportions although the training prior was another.
    aware = drifting_fold(rng, 0.1, 0.11, 0.11)
    share = calibration.apply(aware.probability, target.prior)[:, 1].mean()
    assert share == pytest.approx(0.11, abs=0.03)
    fixed = calibration.fixed_for(target.probability, target.prior)
    np.testing.assert_array_equal(
        fixed.apply(target.probability[:5], target.prior),
        calibration.apply(target.probability, target.prior)[:5],
    )


def test_forecasts_of_proportions_follow_a_trend_and_ignore_noise():
    rng = np.random.default_rng(2)
    falling = [rng.multinomial(400, [1 - share, share]) for share in np.linspace(0.6, 0.15, 12)]
    assert forecast_prior(np.array(falling), 2)[1] == pytest.approx(0.13, abs=0.06)
    noisy = [rng.multinomial(30, [0.7, 0.3]) for _ in range(12)]
    assert forecast_prior(np.array(noisy), 2)[1] == pytest.approx(0.3, abs=0.06)
    assert forecast_prior(np.array([[3, 1]]), 2).tolist() == [0.75, 0.25]


@pytest.mark.parametrize(
    ("step", "trend", "size", "horizon"),
    [(0.0, 0.0, 300, 1), (0.1, 0.0, 300, 1), (0.1, 0.0, 300, 3), (0.05, -0.08, 1000, 2)],
)
def test_intervals_of_forecast_proportions_cover_drifting_series(step, trend, size, horizon):
    """Log-odds of a class are a random walk, with or without a trend; all classes count."""
    rng = np.random.default_rng(0)
    covered, width = [], []
    for _ in range(300):
        log_odds = rng.normal(0, step, (14 + horizon, 3))
        log_odds[:, 0] += trend
        share = np.exp(np.cumsum(log_odds, 0) + np.array([0.0, 0.5, 1.0]))
        share /= share.sum(1, keepdims=True)
        counts = np.array([rng.multinomial(size, one) for one in share])
        interval = forecast_interval(counts[:14], horizon, size * horizon)
        truth = counts[14:].sum(0) / counts[14:].sum()
        covered += ((interval.low <= truth) & (truth <= interval.high)).tolist()
        width += (np.array(interval.high) - interval.low).tolist()
    assert 0.85 < np.mean(covered) < 0.995
    assert np.mean(width) < 0.35


def test_the_interval_of_a_short_past_is_wide():
    short = forecast_interval(np.array([[30, 10]]), 1, 100)
    longer = forecast_interval(np.array([[30, 10]] * 12), 1, 100)
    for interval in (short, longer):
        assert interval.proportions == pytest.approx([0.75, 0.25])
        assert 0 <= interval.low[1] < 0.25 < interval.high[1] <= 1
    assert short.high[1] - short.low[1] > 2 * (longer.high[1] - longer.low[1])
    never = forecast_interval(np.array([[40, 0]] * 12), 1, 100)
    assert never.low[1] == 0


def test_a_forecast_that_hardly_changes_a_fold_is_not_applied():
    """Equal losses prove nothing: without a clear gain on past folds, targets are not shifted."""
    rng = np.random.default_rng(0)
    truth = (rng.random(400) < 0.3).astype(int)
    probability = np.where(rng.random((400, 1)) < 0.5, [0.6, 0.4], [0.4, 0.6])
    drift = np.array([1e-3, -1e-3])
    fold = OutOfFold(probability, truth, np.array([0.5, 0.5]), drift=drift)
    calibration = fit_calibration([fold, fold], drift=np.array([1.0, -1.0]))
    assert calibration.strength == 0


def test_folds_with_one_known_class_say_nothing_about_the_temperature():
    """Every temperature has the same loss there; an optimiser returns any."""
    certain = OutOfFold(np.tile([1.0, 0.0], (50, 1)), np.zeros(50, int), np.array([1.0, 0.0]))
    assert best_temperature([certain]) == 1
    rng = np.random.default_rng(0)
    sharp = OutOfFold(*drawn(rng, sharpness=2.5), np.ones(4) / 4)
    assert best_temperature([certain, sharp]) == best_temperature([sharp])


def test_no_known_class_is_excluded():
    """A class that a model considers impossible may come back; a class without labels cannot."""
    rng = np.random.default_rng(0)
    probability, truth = drawn(rng)
    prior = np.array([1, 1, 1, 0]) / 3
    fold = OutOfFold(probability, np.minimum(truth, 2), prior)
    certain = np.tile([1.0, 0.0, 0.0, 0.0], (5, 1))
    calibrated = fit_calibration([fold, fold]).apply(certain, prior)
    assert np.allclose(calibrated[:, 1:3], 0.01 / 3, atol=1e-4)
    assert np.allclose(calibrated[:, 3], 0, atol=1e-4)
    assert np.allclose(calibrated.sum(1), 1)
    # without folds nothing is calibrated
    assert np.array_equal(Calibration().apply(certain, prior).round(9), certain)


def test_nodes_of_new_classes_do_not_soften_the_others():
    rng = np.random.default_rng(0)
    probability, truth = drawn(rng, 2000)
    prior = np.array([1, 1, 1, 0]) / 3
    known = np.pad(probability[:, :3] / probability[:, :3].sum(1, keepdims=True), [(0, 0), (0, 1)])
    everything = OutOfFold(known, truth, prior)
    assert (truth == 3).any()
    among_known = OutOfFold(known[truth < 3], truth[truth < 3], prior)
    assert fit_calibration([everything]).temperature == fit_calibration([among_known]).temperature


def test_sets_contain_the_coverage_of_the_probability():
    rng = np.random.default_rng(0)
    probability = rng.dirichlet(np.ones(5), 400)
    label = probability.argmax(1)
    weight = rng.random(400)
    fitted = Calibration(coverage=0.8).covering(probability, label, weight)
    mass = (probability * fitted.sets(probability, label)).sum(1)
    assert np.average(mass, weights=weight) == pytest.approx(0.8, abs=0.01)
    # where predicted labels alone have more, sets have one label
    sure = np.tile([0.95, 0.05], (10, 1))
    alone = Calibration().covering(sure, np.zeros(10, int), np.ones(10))
    assert alone.sets(sure).sum() == 10
