"""Extreme numbers in arrays.

Tiny, huge, far from zero, targets unlike the past; results stay finite and good.
"""

import re

import numpy as np
import pytest

import impact_gnn as ig
from impact_gnn._codec import encode
from impact_gnn.data.tsbm import tsbm
from impact_gnn.encoding import Encoder

BASE = tsbm(num_nodes=1500, num_labels=4, num_times=10, feature_std=1.0, seed=0)
CUT = int(BASE.times[-1])
PAST, TARGET = np.flatnonzero(BASE.time < CUT), np.flatnonzero(BASE.time >= CUT)


def with_values(x, rows, value):
    x = x.copy()
    x[rows, np.arange(len(rows)) % x.shape[1]] = value
    return x


DISTORTED = {
    "tiny": lambda x: x * 1e-9,
    "below float32": lambda x: x * 1e-200,
    "beyond float32": lambda x: x * 1e200,
    "far off zero": lambda x: x + 1e9,
    "outliers": lambda x: with_values(x, PAST[7:12], 1e30),
    "outliers beyond float32": lambda x: with_values(x, PAST[7:12], -1e300),
    "targets": lambda x: with_values(x, TARGET[:3], 1e36),
    "targets beyond float32": lambda x: with_values(x, TARGET[:3], 1e300),
}


def graph(x):
    return ig.TemporalGraph(x=x, y=BASE.y, time=BASE.time, edge_index=BASE.edge_index)


def fitted(g, model="linear", method="plain"):
    return ig.Pipeline(model, method, cutoff=CUT).fit(g)


@pytest.fixture(scope="module", params=["linear:plain", "trees:jjnorm", "sign:plain"])
def way(request):
    model, method = request.param.split(":")
    return model, method, fitted(graph(np.array(BASE.x)), model, method).score(BASE)


@pytest.mark.parametrize("name", DISTORTED)
def test_accuracy_stays_within_noise(way, name):
    model, method, clean = way
    g = graph(DISTORTED[name](np.array(BASE.x, np.float64)))
    pipeline = fitted(g, model, method)
    assert np.isfinite(pipeline.predict_proba(g)).all()
    assert pipeline.score(g) > clean - 0.05


def test_clean_numbers_are_the_very_same_array():
    view = graph(np.array(BASE.x)).masked(CUT)
    assert np.shares_memory(view.encoded().x, view.x)


def test_what_is_pulled_in_is_learned_from_the_past_only():
    x = np.array(BASE.x, np.float64) + 1e9
    other = x.copy()
    other[TARGET] = np.random.default_rng(0).normal(size=(len(TARGET), x.shape[1])) * 1e20
    with pytest.warns(UserWarning, match="lie far outside the range of the past"):
        changed = graph(other).masked(CUT).encoded().x
    assert np.array_equal(changed[PAST], graph(x).masked(CUT).encoded().x[PAST])


def test_a_saved_model_pulls_in_as_its_fit_did(tmp_path):
    x = np.array(BASE.x, np.float64) * 1e3 + 1e9
    pipeline = fitted(graph(x))
    pipeline.save(tmp_path / "model")
    again = ig.Pipeline.load(tmp_path / "model")
    assert np.array_equal(again.predict_proba(graph(x)), pipeline.predict_proba(graph(x)))
    # another past: were it learned from anew, targets would look different
    other = with_values(x, PAST, 5e8)
    first, second = (
        again.fitted.schema.adapted(graph(values), CUT).masked(CUT).encoded().x
        for values in (x, other)
    )
    assert np.array_equal(first[TARGET], second[TARGET])


def test_whole_numbers_that_float32_would_round_stay_exact():
    g = graph((np.array(BASE.x) * 100).astype(np.int64) + (1 << 40))
    assert g.x.dtype == np.float64
    assert len(np.unique(g.x)) > 100


def test_a_diagnosis_of_wild_numbers_is_finite():
    g = graph(with_values(np.array(BASE.x, np.float64), [*PAST[7:12], *TARGET[:3]], 1e300))
    numbers = re.findall(r"\b(?:inf|nan)\b", str(encode(ig.diagnose(g, CUT))))
    assert numbers == []


def test_columns_constant_in_the_past_may_move_a_little():
    x = np.ones((4, 1))
    x[3] = 3
    assert Encoder.of_matrix(x, np.arange(4) < 3).matrix(x) is x


def test_a_type_that_is_there_only_after_the_cutoff_is_read():
    nodes = {"p": {"y": [0, 1, -1], "time": [0, 1, 2]}, "a": {"x": [[1.0], [2.0]], "time": [2, 2]}}
    g = ig.TemporalGraph.hetero(nodes=nodes, edges={("a", "of", "p"): [[0, 1], [1, 2]]}, target="p")
    assert np.isfinite(ig.Pipeline("linear", cutoff=2, epochs=2).fit(g).predict_proba(g)).all()


@pytest.mark.parametrize("weight", [1e300, 1e-300])
def test_weights_that_float32_cannot_add_up_are_refused(weight):
    with pytest.raises(ig.InputError, match="only ratios matter"):
        ig.TemporalGraph(time=[0, 1], edge_index=[[0, 1], [1, 0]], edge_weight=[weight, 1.0])
