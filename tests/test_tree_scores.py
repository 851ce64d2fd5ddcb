"""Scores of trees are LightGBM's own, to the last bit."""

import lightgbm
import numpy as np
import pytest

from impact_gnn.estimators.tree_scores import MAX_LEAVES, ROWS_AT_ONCE, TreeScores


def booster_of(x, y, rounds, **parameters):
    options = {
        "objective": "multiclass",
        "num_class": int(y.max()) + 1,
        "num_leaves": MAX_LEAVES,
        "verbosity": -1,
        "num_threads": 1,
        **parameters,
    }
    return lightgbm.train(options, lightgbm.Dataset(x, y), rounds)


@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.parametrize("leaves", [2, 5, 8])
def test_scores_are_those_of_lightgbm(classes, leaves):
    rng = np.random.default_rng(leaves)
    # Rounded values: many rows lie exactly at a threshold or equal others.
    x = np.round(rng.normal(size=(ROWS_AT_ONCE + 300, 7)), 1).astype(np.float32)
    y = np.digitize(x[:, 0] + x[:, 1] * x[:, 2], np.linspace(-0.7, 0.7, classes - 1))
    booster = booster_of(x, y, 30, num_leaves=leaves)
    scores = TreeScores.of(booster.model_to_string())(x, classes)
    assert np.array_equal(scores, booster.predict(x, raw_score=True))
    assert len(np.unique(scores)) > classes


def test_rows_between_numbers_of_float32_go_to_the_same_side():
    # Neighbouring numbers: the threshold between them is no float32.
    x = np.float32(1) + np.arange(64, dtype=np.float32)[:, None] * np.spacing(np.float32(1))
    y = np.arange(64) % 8 // 4
    booster = booster_of(x, y, 20, min_data_in_leaf=1, min_data_in_bin=1)
    scores = TreeScores.of(booster.model_to_string())(x, 2)
    assert np.array_equal(scores, booster.predict(x, raw_score=True))


def test_trees_without_a_split_have_the_same_score_for_all_rows():
    x = np.zeros((50, 2), np.float32)
    y = np.arange(50) % 3
    booster = booster_of(x, y, 4)
    scores = TreeScores.of(booster.model_to_string())(x, 3)
    assert np.array_equal(scores, booster.predict(x, raw_score=True))
    assert not np.ptp(scores, axis=0).any()


def test_only_the_requested_rounds_count():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 3)).astype(np.float32)
    booster = booster_of(x, (x[:, 0] > 0).astype(int), 10)
    text = booster.model_to_string(num_iteration=4)
    expected = booster.predict(x, raw_score=True, num_iteration=4)
    assert np.array_equal(TreeScores.of(text)(x, 2), expected)
