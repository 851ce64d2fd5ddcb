"""Spectral embeddings.

Equal to the dense formula, independent of data after the cutoff, usable on later graphs.
"""

import numpy as np
import pytest

import impact_gnn as ig
from impact_gnn.estimators import Inputs, Pipeline
from reproduction.embedding import spectral, with_spectral_embedding

CUT = 2005


def author_graph(seed=0, late=True, n=120, width=None):
    """Papers that cite, and their authors.

    The last papers, their authors and edges can be left out.
    """
    rng = np.random.default_rng(seed)
    time = np.sort(2000 + np.arange(n) % 7)
    authors = 2 * n // 3
    y = rng.integers(0, 3, n)
    cites = np.stack([rng.integers(0, n, 4 * n), rng.integers(0, n, 4 * n)])
    writes = np.stack([rng.integers(0, authors, 3 * n), rng.integers(0, n, 3 * n)])
    x = rng.normal(size=(n, 3)).astype(np.float32) + np.eye(3, dtype=np.float32)[y]
    if not late:
        keep = (time < CUT).sum()
        time, y, x = time[:keep], y[:keep], x[:keep]
        cites = cites[:, (cites < keep).all(0)]
        writes = writes[:, writes[1] < keep]
    paper = {"time": time, "y": y} | ({} if width is None else {"x": x[:, :width]})
    return ig.TemporalGraph.hetero(
        nodes={"paper": paper, "author": {"num_nodes": authors}},
        edges={("paper", "cites", "paper"): cites, ("author", "writes", "paper"): writes},
        target="paper",
    )


def dense(graph, cutoff):
    """The matrix D^-½ A D^-½ of the past, edge by edge.

    Which nodes are in it; degrees and their mean.
    """
    start, papers = {"paper": 0, "author": graph.num_nodes}, graph.num_nodes
    total = papers + graph.nodes["author"].num_nodes
    matrix = np.zeros((total, total))
    for (source, _, target), relation in graph.relations.items():
        for u, v in relation.edge_index.T:
            ends = [(source, u), (target, v)]
            if all(kind != "paper" or graph.time[node] < cutoff for kind, node in ends):
                i, j = (start[kind] + node for kind, node in ends)
                matrix[i, j] += 1
                matrix[j, i] += 1
    there = np.flatnonzero(matrix.sum(1))
    matrix = matrix[np.ix_(there, there)]
    degree = matrix.sum(1)
    scale = (degree + degree.mean()) ** -0.5
    return scale[:, None] * matrix * scale, there, degree, degree.mean()


@pytest.mark.parametrize("n", [20, 120])  # solved as a whole, and by iteration
def test_it_is_the_dense_formula(n):
    graph = author_graph(n=n)
    matrix, there, degree, tau = dense(graph, CUT)
    value, vector = np.linalg.eigh(matrix)
    x = np.concatenate([*spectral(graph, CUT, width=5).values()])[there]
    expected = (vector / np.sqrt(degree + tau)[:, None])[:, ::-1][:, :5]
    expected /= np.sqrt((expected**2).mean(0))
    np.testing.assert_allclose(np.abs(x), np.abs(expected), atol=2e-4)
    # eigenvectors again, with the largest eigenvalues
    back = matrix @ (x * np.sqrt(degree + tau)[:, None])
    np.testing.assert_allclose(
        back, value[::-1][:5] * (x * np.sqrt(degree + tau)[:, None]), atol=2e-3
    )


def test_between_two_types_it_is_the_singular_value_decomposition():
    """Eigenvectors of a bipartite graph are pairs of singular vectors of the matrix between its
    sides.
    """
    rng = np.random.default_rng(0)
    writes = np.stack([rng.integers(0, 30, 200), rng.integers(0, 50, 200)])
    graph = ig.TemporalGraph.hetero(
        nodes={"paper": {"time": np.arange(50) % 4}, "author": {"num_nodes": 30}},
        edges={("author", "writes", "paper"): writes},
        target="paper",
    )
    between = np.zeros((50, 30))
    np.add.at(between, (writes[1], writes[0]), 1.0)
    rows, columns = between.sum(1), between.sum(0)
    tau = 2 * between.sum() / ((rows > 0).sum() + (columns > 0).sum())
    left, right = np.sqrt(rows + tau), np.sqrt(columns + tau)
    papers, singular, _ = np.linalg.svd(between / left[:, None] / right)
    embedded = spectral(graph, 4, width=4)
    paper, author = embedded["paper"] * left[:, None], embedded["author"] * right[:, None]
    ratio = (between / left[:, None] / right @ author) / paper
    np.testing.assert_allclose(np.median(ratio, 0), singular[:4], rtol=1e-4)
    unit = paper / np.linalg.norm(paper, axis=0)
    np.testing.assert_allclose(np.abs((unit * papers[:, :4]).sum(0)), 1, atol=1e-4)


def test_nothing_from_the_cutoff_on_moves_a_byte():
    """Later nodes and edges, and labels, do not change the embedding of earlier nodes."""
    whole, past = author_graph(), author_graph(late=False)
    after, before = spectral(whole, CUT), spectral(past, CUT)
    there = {
        "paper": np.arange(past.num_nodes),
        "author": np.unique(past.relations["author", "writes", "paper"].edge_index[0]),
    }
    for kind, nodes in there.items():
        assert after[kind][nodes].tobytes() == before[kind][nodes].tobytes()
    scrambled = spectral(ig.audit.scrambled(whole, CUT), CUT)
    assert all(after[kind].tobytes() == scrambled[kind].tobytes() for kind in after)
    assert np.abs(after["paper"][past.num_nodes :]).sum(1).all()  # later nodes have a place, too


def test_later_nodes_are_embedded_by_their_neighbours():
    graph = author_graph()
    x = spectral(graph, CUT, width=4)
    matrix, _, _, tau = dense(graph, CUT)
    value = np.linalg.eigvalsh(matrix)[::-1][:4]
    paper = int(np.flatnonzero(graph.time >= CUT)[0])
    total, count = np.zeros(4), 0
    for (source, _, target), relation in graph.relations.items():
        for u, v in relation.edge_index.T:
            for (kind, node), other in (((source, u), (target, v)), ((target, v), (source, u))):
                known = kind == "author" or graph.time[node] < CUT
                if (
                    other == ("paper", paper)
                    and known
                    and (kind != "author" or _writes_early(graph, node))
                ):
                    total, count = total + x[kind][node], count + 1
    np.testing.assert_allclose(
        x["paper"][paper], total / (value * (count + tau)), rtol=1e-3, atol=1e-4
    )


def _writes_early(graph, author):
    writes = graph.relations["author", "writes", "paper"].edge_index
    return bool((graph.time[writes[1][writes[0] == author]] < CUT).any())


def test_types_without_features_receive_some_and_others_retain_theirs():
    graph = author_graph(width=3)
    embedded = with_spectral_embedding(graph, CUT)
    np.testing.assert_array_equal(embedded.x, graph.x)
    np.testing.assert_array_equal(embedded.nodes["author"].x, spectral(graph, CUT)["author"])
    assert len(Inputs(embedded.masked(CUT)).paths()) > len(Inputs(graph.masked(CUT)).paths())


@pytest.mark.parametrize("model", ["sehgnn", "rphgnn", "sign", "trees"])
@pytest.mark.parametrize("width", [None, 3])
def test_pipelines_with_embeddings_depend_on_no_hidden_label(model, width):
    graph = author_graph(width=width)
    options = {"cutoff": CUT, "hidden": 8, "epochs": 4, "device": "cpu"}
    probabilities = []
    for each in (graph, ig.audit.scrambled(graph, CUT)):
        embedded = with_spectral_embedding(each, CUT)
        pipeline = Pipeline(model, "pmp+labels", **options).fit(embedded)
        probabilities.append(pipeline.predict_proba(embedded))
    np.testing.assert_array_equal(*probabilities)
