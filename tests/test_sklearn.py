"""scikit-learn conventions.

Options are stored unchanged, cloned, set and searched; models are copied.
"""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import ParameterGrid
from sklearn.utils import estimator_html_repr, get_tags
from sklearn.utils.validation import check_is_fitted

import impact_gnn as ig
from impact_gnn.backtesting import with_candidate
from impact_gnn.estimators import Candidate, Ensemble, Method, Pipeline

QUICK = {"cutoff": 5, "hidden": 8, "epochs": 4, "device": "cpu"}


@pytest.fixture(scope="module")
def graph():
    return ig.tsbm(num_nodes=300, num_times=6, num_labels=3, num_features=4, mean_degree=12, seed=0)


def test_options_are_stored_as_they_came():
    method = Method.parse("pmp")
    options = Pipeline(model="nonsense", method=method, metric="none", class_weight=7).get_params()
    assert options["method"] is method
    assert (options["model"], options["metric"], options["class_weight"]) == ("nonsense", "none", 7)
    assert options == clone(Pipeline(**options)).get_params()


def test_a_clone_is_not_fitted_and_fits_to_the_same(graph):
    p = Pipeline("sgc", "pmp+labels", **QUICK).fit(graph)
    twin = clone(p)
    assert twin.fitted is None
    assert p.fitted is not None
    assert np.array_equal(twin.fit(graph).predict_proba(graph), p.predict_proba(graph))


def test_other_options_forget_the_fit(graph):
    p = Pipeline(**QUICK).fit(graph)
    assert p.set_params() is p
    assert p.fitted is not None
    p.set_params(method="pmp")
    with pytest.raises(ig.InputError, match="has not been fitted"):
        p.predict(graph)
    with pytest.raises(ValueError, match="Invalid parameter 'methods'"):
        p.set_params(methods="pmp")
    with pytest.raises(ig.InputError, match="unknown part 'pmq'"):
        p.set_params(method="pmq").fit(graph)


def test_a_grid_of_options(graph):
    grid = ParameterGrid({"method": ["plain", "pmp"], "model": ["sgc", "linear"]})
    base = Pipeline(**QUICK)
    scores = [clone(base).set_params(**options).fit(graph).score(graph) for options in grid]
    assert len(scores) == 4
    assert all(0 <= score <= 1 for score in scores)
    assert base.get_params() == Pipeline(**QUICK).get_params()


def test_a_candidate_is_a_clone_with_other_options():
    pipeline = with_candidate(
        Pipeline("sgc", epochs=3), Candidate.parse("trees:pmp"), seed=7, cutoff=2
    )
    assert (
        pipeline.get_params()
        == Pipeline("trees", Method.parse("pmp"), 2, epochs=3, seed=7).get_params()
    )


def test_classes_are_in_the_users_coding(graph):
    names = ["cat", "dog", "owl"]
    named = ig.TemporalGraph(
        x=graph.x, y=graph.y, time=graph.time, edge_index=graph.edge_index, label_names=names
    )
    p = Pipeline(**QUICK)
    assert not hasattr(p, "classes_")
    with pytest.raises(NotFittedError):
        check_is_fitted(p)
    assert p.fit(named).classes_.tolist() == names
    assert Pipeline(**QUICK).fit(graph).classes_.tolist() == [0, 1, 2]
    check_is_fitted(p)


def test_a_matrix_and_a_target_are_refused_as_in_a_call_without_a_target(graph):
    p = Pipeline("prior", cutoff=5)
    table = pd.DataFrame({"x": [1.0, 2.0]})
    for values in ((table,), (table, [0, 1])):
        with pytest.raises(ig.InputError, match="graph is a DataFrame; pass a TemporalGraph"):
            p.fit(*values)
    with pytest.raises(ig.InputError, match="fit reads the labels of the graph; pass no y"):
        p.fit(graph, graph.y)
    assert p.fit(graph, None).fitted is not None


def test_codes_are_positions_in_classes(graph):
    named = ig.TemporalGraph(
        x=graph.x,
        y=graph.y,
        time=graph.time,
        edge_index=graph.edge_index,
        label_names=[5, 1, 3],
    )
    p = Pipeline(**QUICK).fit(named)
    expected = p.classes_[p.predict_proba(named).argmax(1)]
    assert np.array_equal(p.classes_[p.predict(named)], expected)
    ensemble = Ensemble.of(p)
    assert np.array_equal(ensemble.pipelines[0].classes_[ensemble.predict(named)], expected)


def test_tags_and_pages():
    p = Pipeline(method="pmp")
    assert is_classifier(p)
    tags = get_tags(p)
    assert not tags.target_tags.required
    assert not tags.input_tags.two_d_array
    assert "pmp" in estimator_html_repr(p)
    assert repr(p) == "Pipeline(model='sign', method='pmp')"
