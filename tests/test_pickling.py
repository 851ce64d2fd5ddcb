"""Graphs and fitted models survive pickles, deep copies and other processes."""

import copy
import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import impact_gnn as ig
from impact_gnn.estimators import Calibration, Pipeline
from impact_gnn.graph import graph_digest
from impact_gnn.graph.neighbourhood import neighbourhood

ROOT = Path(__file__).resolve().parents[1]
COPIES = {
    "pickle": lambda one: pickle.loads(pickle.dumps(one)),
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
}


@pytest.fixture(scope="module")
def graph():
    return ig.tsbm(num_nodes=200, num_times=6, num_labels=3, num_features=4, seed=0)


@pytest.fixture(scope="module")
def graphs(graph, tmp_path_factory):
    place = tmp_path_factory.mktemp("graphs")
    graph.save(place / "saved")
    np.savez(
        place / "archive.npz", x=graph.x, y=graph.y, time=graph.time, edge_index=graph.edge_index
    )
    articles = ig.load(ROOT / "examples" / "articles")
    articles.save(place / "articles")
    hetero = ig.load(ROOT / "examples" / "transfers")
    return {
        "in memory": graph,
        "of files": ig.load(place / "saved"),
        "archive": ig.load(place / "archive.npz"),
        "view": graph.masked(4),
        "columns": articles,
        "columns of files": ig.load(place / "articles"),
        "columns of a view": articles.masked(articles.infer_cutoff()),
        "hetero": hetero,
        "hetero, seen in the past": hetero.upto(hetero.times[-2]),
    }


@pytest.mark.parametrize("how", COPIES)
def test_copies_of_graphs_are_equal_and_frozen(graphs, how):
    for name, one in graphs.items():
        one.csr(next(iter(one.relations)))  # something was grouped before
        twin = COPIES[how](one)
        assert graph_digest(twin) == graph_digest(one), name
        assert repr(twin) == repr(one), name
        assert np.array_equal(twin.x, one.x), name
        assert np.array_equal(twin.times, one.times), name
        for part in (*twin.nodes.values(), *twin.relations.values()):
            arrays = [value for value in vars(part).values() if isinstance(value, np.ndarray)]
            assert not any(
                array.flags.writeable
                for array in arrays
                if array is not getattr(part, "known", None)
            ), name
        with pytest.raises(AttributeError, match="immutable"):
            twin.target = "other"
        with pytest.raises(TypeError):
            twin.nodes["other"] = None


MODELS = [
    ("sign", "pmp+labels"),
    ("trees", "labels"),
    ("prior", "features+smooth"),
    ("gcn", "center"),
    ("gat", "pmp"),
]


@pytest.mark.parametrize(("model", "method"), MODELS)
def test_copies_of_fitted_pipelines_predict_the_same(graph, model, method):
    p = Pipeline(model, method, cutoff=4, epochs=3, device="cpu").fit(graph)
    probabilities, size = p.predict_proba(graph), len(pickle.dumps(p))
    for how in ("pickle", "deepcopy"):
        twin = COPIES[how](p)
        assert np.array_equal(twin.predict_proba(graph), probabilities)
    assert size == len(pickle.dumps(p))
    assert size < 100_000  # weights, nothing of the graph that was last looked at
    both = COPIES["pickle"](ig.Ensemble([p], [1.0], Calibration(), np.full(3, 1 / 3)))
    assert np.abs(both.predict_proba(graph) - probabilities).max() < 1e-6


def test_a_graph_goes_to_another_process(graph):
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        assert pool.submit(graph_digest, graph).result() == graph_digest(graph)


@pytest.mark.parametrize("way", COPIES)
def test_a_part_of_a_graph_remembers_the_periods_of_the_whole(way):
    """Time weights depend on periods whose nodes are not in the part."""
    graph = ig.TemporalGraph(x=np.eye(5), time=np.arange(5), edge_index=[[1, 3], [2, 2]])
    part, position = neighbourhood(graph, np.array([2]), steps=1, both_ways=False)
    copied = COPIES[way](part)
    expected = ig.propagate(graph, weighting="pmp", hops=1)[0][2]
    for each in (part, copied):
        np.testing.assert_allclose(
            ig.propagate(each, weighting="pmp", hops=1)[0][position[0]], expected
        )
