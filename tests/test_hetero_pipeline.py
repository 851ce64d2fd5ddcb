"""Pipelines on graphs of several types.

No leak, same bits on disk, aligned metapaths, true snapshots.
"""

import numpy as np
import pytest

import impact_gnn as ig
from impact_gnn import alignment
from impact_gnn.alignment import pny as pny_function
from impact_gnn.estimators import Inputs, Method, Pipeline
from impact_gnn.propagation.metapaths import metapath_hops, metapath_label_hops, path_name
from impact_gnn.propagation.squashing import squash

CUTOFF, CUT = 5, 2005
QUICK = {"cutoff": CUT, "hidden": 8, "epochs": 6, "device": "cpu"}
MODELS = ("sehgnn", "rphgnn")
METHODS = [
    "plain",
    "pmp+center",
    "pmp+ends+labels",
    "genpmp+ends+standardize",
    "pmp+jjnorm",
    "snapshot+labels",
    "mmp+snapshot+ends+labels",
    "recency+curriculum",
    "features",
]


def build_graph(seed=0, n=150):
    """Papers that cite and share authors and a field.

    Fields have features, authors have neither features nor time.
    """
    rng = np.random.default_rng(seed)

    def edges(left, right, count):
        return np.stack([rng.integers(0, left, count), rng.integers(0, right, count)])

    y = rng.integers(0, 3, n)
    x = rng.normal(size=(n, 4)) + np.eye(3, 4)[y]
    return ig.TemporalGraph.hetero(
        nodes={
            "paper": {
                "x": x.astype(np.float32),
                "y": y,
                "time": 2000 + np.arange(n) % 7 - (np.arange(n) % 7 == 6),
            },
            "author": {"num_nodes": 30},
            "field": {"x": rng.normal(size=(9, 3)).astype(np.float32)},
        },
        edges={
            ("paper", "cites", "paper"): edges(n, n, 500),
            ("author", "writes", "paper"): edges(30, n, 300),
            ("field", "of", "paper"): edges(9, n, 200),
        },
        target="paper",
    )


@pytest.fixture(scope="module")
def graph():
    return build_graph()


@pytest.fixture(scope="module")
def shared(graph):
    """Inputs of the graph as it is and with scrambled target labels, nothing masked beforehand."""
    return {
        model: [(g, Pipeline(model).inputs(g)) for g in (graph, ig.audit.scrambled(graph, CUT))]
        for model in MODELS
    }


@pytest.mark.parametrize(
    ("model", "method"),
    [
        (model, method)
        for model in MODELS
        for method in METHODS
        if model != "rphgnn" or "ends" not in method
    ],
)
def test_target_labels_are_out_of_reach(shared, model, method):
    """The law: scrambled labels at or after the cutoff change no bit of any prediction."""
    results = [
        Pipeline(model, method, **QUICK).fit(g, inputs=inputs).predict_proba(g, inputs=inputs)
        for g, inputs in shared[model]
    ]
    assert np.array_equal(*results)
    assert np.isfinite(results[0]).all()
    np.testing.assert_allclose(results[0].sum(1), 1, atol=1e-5)


@pytest.mark.parametrize(
    ("model", "method"),
    [
        ("sehgnn", "pmp+ends+center+labels"),
        ("sehgnn", "features"),
        ("rphgnn", "pmp+jjnorm+labels"),
        ("rphgnn", "features"),
    ],
)
def test_saved_pipelines_predict_the_same_bits(graph, tmp_path, model, method):
    p = Pipeline(model, method, **QUICK).fit(graph)
    p.save(tmp_path / "model")
    back = Pipeline.load(tmp_path / "model")
    assert np.array_equal(p.predict_proba(graph), back.predict_proba(graph))
    assert back.described() == p.described()
    assert back.fitted.head.shape == p.fitted.head.shape


@pytest.mark.parametrize("model", MODELS)
def test_on_a_graph_of_one_type_too(model, tmp_path):
    g = ig.tsbm(num_nodes=200, num_times=6, num_labels=2, num_features=3, mean_degree=8, seed=0)
    p = Pipeline(model, "pmp+labels", **(QUICK | {"cutoff": 5})).fit(g)
    assert p.fitted.head.shape.groups == [[0, 1, 2]]
    p.save(tmp_path / "model")
    assert np.array_equal(p.predict_proba(g), Pipeline.load(tmp_path / "model").predict_proba(g))


# -- model inputs


def test_metapaths_are_inputs_grouped_by_their_last_relation(graph):
    inputs = Inputs(graph.masked(CUT))
    names = [path_name(path) for path in inputs.paths()]
    assert set(names) == set(metapath_hops(graph.undirected()))
    last = [path[-1][1] for path in inputs.paths()]
    assert last == sorted(last, key=["cites", "writes", "of"].index)
    hops, _ = inputs.model_inputs(Method.parse("pmp"), CUT)
    by_name = [
        [k + 1 for k, name in enumerate(last) if name == each] for each in ("cites", "writes", "of")
    ]
    assert inputs.groups(Method.parse("pmp")) == [[0], *by_name]
    assert len(hops) == len(names) + 1
    assert inputs.groups(Method.parse("features")) == [[0]]
    assert inputs.groups(Method.parse("pmp+degrees"))[:3] == [[0], [1], [k + 1 for k in by_name[0]]]
    expected = metapath_hops(graph.undirected(), weighting="pmp")
    for hop, name in zip(hops[1:], names, strict=True):
        np.testing.assert_array_equal(hop, expected[name])
    assert {hop.shape[1] for hop in hops} == {3, 4}


@pytest.mark.parametrize("text", ["pmp", "pmp+snapshot"])
def test_squashed_inputs_are_those_of_every_relation_and_iteration(graph, text):
    view, method = graph.masked(CUT), Method.parse(text)
    inputs = Pipeline("rphgnn", hops=3).inputs(view)
    hops, _ = inputs.model_inputs(method, CUT)
    squashed = squash(graph.undirected(), iterations=3, weighting="pmp")
    # What went there and back is joined by the features themselves.
    there_and_back = [name.count("-") == 4 for name in squashed]
    parts = [
        [0] * joined + [3 * k + 1, 3 * k + 2, 3 * k + 3] for k, joined in enumerate(there_and_back)
    ]
    assert inputs.groups(method) == [[0], *parts]
    assert sum(there_and_back) == 3
    expected = [hop for each in squashed.values() for hop in each]
    last = graph.time == graph.times[-1]  # the newest see the graph as it is, snapshot or not
    for hop, wanted in zip(hops[1:], expected, strict=True):
        np.testing.assert_array_equal(hop[last], wanted[last])
    same = all(np.array_equal(hop, wanted) for hop, wanted in zip(hops[1:], expected, strict=True))
    assert same != ("snapshot" in method)
    with pytest.raises(
        ig.InputError, match="rphgnn does not support 'ends', which is for a network over"
    ):
        Pipeline("rphgnn", "pmp+ends", cutoff=CUT).fit(graph)


def test_squashing_takes_many_hops_over_many_relations():
    """Metapaths of that length are too many to list; squashing does not need them."""
    graph = build_graph()
    cites = graph.relations["paper", "cites", "paper"]
    more = {("paper", f"cites{k}", "paper"): cites for k in range(4)}
    graph = graph.with_parts(dict(graph.nodes), dict(graph.relations) | more)
    method = Method.parse("plain")
    with pytest.raises(ig.InputError, match="more than 10,000 metapaths"):
        Pipeline("sehgnn", hops=6).inputs(graph.masked(CUT)).model_inputs(method, CUT)
    inputs = Pipeline("rphgnn", hops=6).inputs(graph.masked(CUT))
    hops, _ = inputs.model_inputs(method, CUT)
    assert len(hops) == 1 + 6 * (len(inputs.groups(method)) - 1)


@pytest.mark.parametrize("model", MODELS)
def test_nodes_that_no_features_reach_are_predicted_by_their_own(model):
    """Authors have no features, and directed edges lead only from them."""
    graph = build_graph()
    writes = ("author", "writes", "paper")
    graph = graph.with_parts(
        {kind: graph.nodes[kind] for kind in ("paper", "author")}, {writes: graph.relations[writes]}
    )
    fitted = Pipeline(model, undirected=False, **QUICK).fit(graph)
    assert np.isfinite(fitted.predict_proba(graph)).all()


def test_ends_weights_papers_that_share_an_author(graph):
    inputs, by_author = Inputs(graph.masked(CUT)), "paper-rev_writes-author-writes-paper"
    place = [path_name(path) for path in inputs.paths()].index(by_author) + 1
    plain, edges, ends = (
        inputs.model_inputs(Method.parse(text), CUT)[0][place]
        for text in ("plain", "pmp", "pmp+ends")
    )
    np.testing.assert_array_equal(plain, edges)  # authors have no time
    assert not np.allclose(edges, ends)
    expected = metapath_hops(graph.undirected(), weighting="pmp", metapath_weighting="ends")[
        by_author
    ]
    np.testing.assert_array_equal(ends, expected)


@pytest.mark.parametrize("method", ["center", "standardize", "jjnorm", "center+jjnorm"])
def test_every_metapath_is_aligned(graph, method):
    view = graph.masked(CUT)
    inputs = Inputs(view)
    raw, aligned = (
        inputs.model_inputs(Method.parse(text), CUT)[0] for text in ("pmp", f"pmp+{method}")
    )
    np.testing.assert_array_equal(raw[0], aligned[0])  # the features themselves are no message
    for before, after in zip(raw[1:], aligned[1:], strict=True):
        expected = before
        for name in method.split("+"):
            if name == "jjnorm":
                expected = alignment.jjnorm(expected, view.y, view.time, target=view.targets())
            else:
                expected = getattr(alignment, name)(expected, view.time)
        np.testing.assert_array_equal(after, expected)
        assert not np.allclose(before, after)
        if method == "center":
            after = np.asarray(after)
            means = [after[view.time == t].mean(0) for t in view.times]
            np.testing.assert_allclose(means, np.tile(after.mean(0), (len(means), 1)), atol=1e-5)


@pytest.mark.parametrize("text", ["pmp+snapshot+labels", "pmp+snapshot+ends+labels"])
def test_snapshots_show_every_node_the_graph_of_its_time(graph, text):
    view, method = graph.masked(CUT), Method.parse(text)
    inputs = Inputs(view)
    hops, label_hops = inputs.model_inputs(method, CUT)
    options = {"weighting": "pmp", "metapath_weighting": "ends" if "ends" in method else "edges"}
    for t in graph.times:
        then = view.undirected().upto(int(t))
        rows = np.flatnonzero(view.time == t)
        expected = metapath_hops(then, **options)
        for hop, path in zip(hops[1:], inputs.paths(), strict=True):
            np.testing.assert_array_equal(hop[rows], expected[path_name(path)][then.time == t])
        before = then.with_labels(np.where(then.time < t, then.y, -1))
        labels = metapath_label_hops(before, **options)
        for hop, wanted in zip(label_hops, labels.values(), strict=True):
            np.testing.assert_array_equal(hop[rows], wanted[then.time == t])


def test_newer_nodes_change_no_snapshot_of_older_ones(graph):
    """Through an author, too, a paper receives nothing from later papers."""
    method = Method.parse("pmp+snapshot")
    view = graph.masked(CUT)
    whole, _ = Inputs(view).model_inputs(method, CUT)
    past = graph.upto(2003)
    part, _ = Inputs(past.masked(2003)).model_inputs(method, 2003)
    for a, b in zip(whole, part, strict=True):
        np.testing.assert_array_equal(a[graph.time <= 2003], b)


def test_nothing_but_a_field_has_features(graph):
    nodes = {kind: {"x": part.x, "num_nodes": part.num_nodes} for kind, part in graph.nodes.items()}
    nodes["paper"] = {"y": graph.y, "time": graph.time}
    bare = ig.TemporalGraph.hetero(
        nodes=nodes,
        edges={triple: part.edge_index for triple, part in graph.relations.items()},
        target="paper",
    )
    for model in MODELS:
        p = Pipeline(model, "labels", **QUICK).fit(bare)
        positions = [k for group in p.fitted.head.shape.groups for k in group]
        assert positions == list(range(len(p.fitted.head.shape.hops)))
        assert p.predict_proba(bare).shape == ((graph.time >= CUT).sum(), 3)


def test_own_label_is_left_out_of_every_label_metapath(graph):
    """Another label of one paper changes inputs of others, never its own."""
    paper = int(np.flatnonzero(graph.time == 2001)[0])
    y = np.array(graph.y)
    y[paper] = (y[paper] + 1) % 3
    for text in ("labels", "pmp+ends+labels"):
        a, b = (
            Inputs(g.masked(CUT)).model_inputs(Method.parse(text), CUT)[1]
            for g in (graph, graph.with_labels(y))
        )
        assert len(a) == 4  # cites, cites twice, by author, by field
        for before, after in zip(a, b, strict=True):
            np.testing.assert_array_equal(before[paper], after[paper])
            assert not np.array_equal(before, after)


def test_one_hop_still_goes_in_and_back(graph):
    assert Inputs(graph.masked(CUT), hops=1).paths() == Inputs(graph.masked(CUT), hops=2).paths()


# -- refusals


def test_pny_is_refused_on_several_types_before_anything_is_propagated(graph):
    inputs = Inputs(graph.masked(CUT))
    with pytest.raises(ig.InputError, match="this graph has 3 types and 5 relations; use jjnorm"):
        inputs.model_inputs(Method.parse("pmp+pny"), CUT)
    assert not inputs._cache
    tested = ig.backtest(
        graph, candidates=["pny", "center"], folds=1, seeds=1, pipeline=Pipeline("sehgnn", **QUICK)
    )
    assert [row.error for row in tested.rows if str(row.method) == "pny"] == [
        "pny supports one node type with one relation, but this graph has 3 types and 5 relations; "
        "use jjnorm, which needs no connectivity."
    ]


def test_pny_is_refused_where_its_covariances_would_not_fit():
    rng = np.random.default_rng(0)
    n = 60
    wide = ig.TemporalGraph(
        x=rng.normal(size=(n, 600)).astype(np.float32),
        y=np.where(np.arange(n) == 0, 349, np.arange(n) % 2),
        time=np.arange(n) % 6,
        num_labels=350,
        edge_index=rng.integers(0, n, (2, 200)),
    )
    inputs = Inputs(wide.masked(CUTOFF))
    # 350 labels, 6 times, 600² numbers of 8 bytes
    with pytest.raises(
        ig.InputError, match=r"350·6 covariances of 600x600, 5\.6 GiB, more than its limit of 2 GiB"
    ):
        inputs.model_inputs(Method.parse("pny"), CUTOFF)
    assert not inputs._cache
    with pytest.raises(ig.InputError, match=r"5\.6 GiB"):
        pny_function(
            wide.x,
            wide.x,
            wide.y,
            wide.time,
            target=wide.time >= CUTOFF,
            connectivity=ig.connectivity.relative_connectivity(
                wide.edge_index, wide.y, wide.time, num_labels=350, cutoff=CUTOFF
            ),
        )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("ends", "has 'ends', which needs a weighting; add one such as 'pmp'"),
        ("snapshot+ends", "has 'ends', which needs a weighting"),
        ("pmp+ends+pny", "combines 'pny' with 'ends': pny uses weights by edge"),
        ("pmp+features+ends", "combines 'features' with 'ends'"),
        ("drop", "has 'drop' without 'curriculum'; write 'curriculum[+]drop'"),
    ],
)
def test_bad_methods(text, sentence):
    with pytest.raises(ig.InputError, match=sentence):
        Method.parse(text)


def test_methods_are_read_in_any_order():
    assert str(Method.parse("ends+center+PMP + curriculum")) == "pmp+center+ends+curriculum"
    assert Method.parse("pmp+center+ends+curriculum") == Method.parse("curriculum+ends+pmp+center")


@pytest.mark.parametrize("method", ["center", "standardize", "jjnorm+labels"])
def test_features_in_half_precision_can_be_aligned(method):
    rng = np.random.default_rng(0)
    n = 120
    graph = ig.TemporalGraph.hetero(
        nodes={
            "paper": {
                "x": rng.normal(size=(n, 3)).astype(np.float16),
                "y": rng.integers(0, 2, n),
                "time": np.arange(n) % 6,
            },
            "author": {"num_nodes": 20},
        },
        edges={
            ("author", "writes", "paper"): np.stack(
                [rng.integers(0, 20, 200), rng.integers(0, n, 200)]
            )
        },
        target="paper",
    )
    fitted = Pipeline(method=method, cutoff=5, hidden=4, epochs=2).fit(graph)
    assert np.isfinite(fitted.predict_proba(graph)).all()


@pytest.mark.parametrize("edges", [("a", "writes", "b"), ("b", "of", "a")])
def test_features_that_do_not_reach_the_nodes_leave_their_degrees(edges):
    """Only another type has features and no path leads from it to the nodes.

    Their inputs are degrees.
    """
    own = ig.tsbm(num_nodes=120, num_times=5, num_labels=2, mean_degree=8, seed=0)
    nodes = {
        "p": {"y": own.y, "time": own.time},
        "a": {"num_nodes": 3, "x": np.eye(3)},
        "b": {"num_nodes": 3},
    }
    relations = {("p", "cites", "p"): own.edge_index, edges: [[0, 1], [1, 2]]}
    g = ig.TemporalGraph.hetero(nodes=nodes, edges=relations, target="p")
    assert np.isfinite(
        ig.Pipeline("linear", "plain", cutoff=4, epochs=3).fit(g).predict_proba(g)
    ).all()


def test_joint_jjnorm_has_one_number_for_the_hops_of_a_relation():
    """As if the hops of a relation were one matrix side by side."""
    view = build_graph().masked(CUT)
    inputs = Inputs(view)
    raw = inputs.model_inputs(Method.parse("plain"), CUT)[0]
    joint, single = (
        inputs.model_inputs(Method.parse(text), CUT)[0] for text in ("jjnorm-joint", "jjnorm")
    )
    nodes = inputs.row_nodes
    expected = [np.asarray(raw[0].rows(np.arange(len(nodes))))]
    for group in inputs.groups(Method())[1:]:
        side = np.hstack([np.asarray(raw[k].rows(np.arange(len(nodes)))) for k in group])
        moved = alignment.jjnorm(
            side, view.label[nodes], view.time[nodes], target=view.targets()[nodes]
        )
        expected += np.split(moved, np.cumsum([raw[k].shape[1] for k in group])[:-1], axis=1)
    for hop, wanted in zip(joint, expected, strict=True):
        np.testing.assert_allclose(
            np.asarray(hop.rows(np.arange(len(nodes)))), wanted, rtol=1e-4, atol=1e-5
        )
    several = [k for group in inputs.groups(Method())[1:] if len(group) > 1 for k in group]
    assert several
    assert any(
        not np.allclose(joint[k].rows(np.arange(len(nodes))), single[k].rows(np.arange(len(nodes))))
        for k in several
    )


def test_fits_of_other_seeds_share_the_projections(graph):
    """Which fit comes first, in which process, must not change what the others read."""
    first, second = (
        Pipeline("rphgnn", cutoff=CUT, epochs=3, hidden=8, seed=seed) for seed in (0, 1)
    )
    view = graph.masked(CUT)
    shared = {}
    first.fit(view, inputs=first.shared_inputs(shared, view))
    alone = second.fit(view).predict_proba(graph)
    inputs = second.shared_inputs(shared, view)
    together = second.fit(view, inputs=inputs).predict_proba(graph)
    assert np.array_equal(alone, together)


def test_inputs_without_rows_for_the_nodes_to_predict_are_refused():
    g = ig.tsbm(num_nodes=300, num_times=7, num_labels=2, seed=0)
    hidden = g.with_labels(np.where((g.time >= 2) & (np.arange(300) % 2 == 0), -1, g.y))
    pipeline = Pipeline("linear", cutoff=3, epochs=3)
    inputs = pipeline.inputs(hidden.masked(6))
    pipeline.fit(hidden)
    with pytest.raises(ig.InputError, match="no rows for some nodes to predict"):
        pipeline.predict_proba(hidden, inputs=inputs)
