"""Predictions of some nodes: the same numbers as for all nodes, from their neighbourhood alone."""

import warnings

import numpy as np
import pytest

import impact_gnn as ig
from impact_gnn.engines import Disk, Memory
from impact_gnn.estimators import MODELS, Calibration, Ensemble, Pipeline
from impact_gnn.graph import Relation
from impact_gnn.graph.neighbourhood import positions_of
from impact_gnn.methods import Kind, Method, ModelKind, Part, registry

QUICK = {"cutoff": 4, "hidden": 8, "epochs": 3, "device": "cpu"}
ONE_OF_KIND = {
    ModelKind.HOPS: "sign",
    ModelKind.SQUASHED: "rphgnn",
    ModelKind.GRAPH: "sage",
    ModelKind.LINEAR: "linear",
    ModelKind.TREES: "trees",
    ModelKind.PRIOR: "prior",
}


def dated(graph, seed=1):
    """The graph with every edge twice, the second time later than its nodes, and with weights."""
    rng = np.random.default_rng(seed)
    relations = {}
    for name, part in graph.relations.items():
        twice = np.tile(part.edge_index, 2)
        relations[name] = Relation(
            twice, rng.random(twice.shape[1]), rng.integers(0, 7, twice.shape[1])
        )
    return graph.with_parts(dict(graph.nodes), relations)


def several_types(seed=0, n=150):
    """Papers with authors (nothing known), fields (features) and reviews (features and a time)."""
    rng = np.random.default_rng(seed)

    def edges(left, right, count):
        return np.stack([rng.integers(0, left, count), rng.integers(0, right, count)])

    y = rng.integers(0, 3, n)
    return ig.TemporalGraph.hetero(
        nodes={
            "paper": {"x": rng.normal(size=(n, 4)) + np.eye(3, 4)[y], "y": y, "time": time_of(n)},
            "author": {"num_nodes": 60},
            "field": {"x": rng.normal(size=(9, 3))},
            "review": {"x": rng.normal(size=(50, 2)), "time": rng.integers(0, 9, 50)},
        },
        edges={
            ("paper", "cites", "paper"): edges(n, n, 150),
            ("author", "writes", "paper"): edges(60, n, 200),
            ("field", "of", "paper"): edges(9, n, 60),
            ("review", "about", "paper"): edges(50, n, 70),
        },
        target="paper",
    )


def time_of(n):
    """Periods 0 to 6, all before those of the last nodes."""
    return np.arange(n) * 7 // n


def one_type(n=300, **options):
    return ig.tsbm(
        num_nodes=n,
        num_times=7,
        num_labels=3,
        num_features=4,
        mean_degree=2,
        seed=0,
        **options,
    )


GRAPHS = {"one type": one_type(), "dated": dated(one_type()), "several types": several_types()}


def method_with(name):
    """The smallest method with a part."""
    others = [*registry.get(name).requires, *(["pmp"] if name == "ends" else [])]
    return Method.join([*others, name])


def fitted(graph, model, method, **options):
    """A model of the past of the graph, so that the graph has grown since."""
    return Pipeline(model, method, **QUICK | options).fit(graph.upto(5))


def check_law(model, graph, engine=None, **options):
    """Predictions of some nodes are rows of the predictions of all."""
    everything = model.predict_proba(graph, engine=engine, **options)
    targets = model.targets(graph, **options)
    rows = np.random.default_rng(0).permutation(len(targets))[:3]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        some = model.predict_proba(graph, nodes=graph.ids[targets[rows]], engine=engine, **options)
    np.testing.assert_allclose(some, everything[rows], rtol=1e-4, atol=1e-6)
    notes = [str(warning.message) for warning in caught if "all nodes" in str(warning.message)]
    assert bool(notes) == bool(model.reach(graph).whole_graph)
    return some


def applicable():
    """Every part with a model of every kind that takes it, on every graph that it fits."""
    for name in registry.names():
        part = registry.get(name)
        for kind, model in ONE_OF_KIND.items():
            if kind not in part.models:
                continue
            for place in GRAPHS:
                several = place == "several types"
                is_alien = MODELS[model].several_types and not several
                if several:
                    is_alien = kind is ModelKind.GRAPH
                if not is_alien and name != {True: "pny", False: "ends"}[several]:
                    yield name, model, place


@pytest.mark.parametrize(("name", "model", "place"), list(applicable()))
def test_every_part_with_every_kind_of_model(name, model, place):
    check_law(fitted(GRAPHS[place], model, method_with(name)), GRAPHS[place])


@pytest.mark.parametrize("place", GRAPHS)
@pytest.mark.parametrize("model", sorted(MODELS))
def test_every_model(model, place):
    several = place == "several types"
    spec = MODELS[model]
    if spec.several_types != several and (spec.several_types or spec.kind is ModelKind.GRAPH):
        pytest.skip("the model is for other graphs")
    method = "plain" if spec.kind is ModelKind.PRIOR else "pmp+labels+recency"
    check_law(fitted(GRAPHS[place], model, method), GRAPHS[place])


@pytest.mark.parametrize("place", GRAPHS)
@pytest.mark.parametrize(
    "method", ["genpmp+labels", "gsmp+snapshot+labels", "center", "labels+smooth", "degrees"]
)
def test_on_files(place, method, tmp_path):
    graph = GRAPHS[place]
    model = fitted(graph, "sign", method)
    some = check_law(model, graph, engine=Disk(tmp_path / "disk"))
    np.testing.assert_allclose(some, check_law(model, graph, engine=Memory()), rtol=1e-4)


@pytest.mark.parametrize("hops", [1, 3])
@pytest.mark.parametrize("undirected", [True, False])
@pytest.mark.parametrize("place", GRAPHS)
def test_hops_and_directions(place, undirected, hops):
    for method in ("pmp+labels", "degrees"):
        options = {"hops": hops, "undirected": undirected}
        check_law(fitted(GRAPHS[place], "linear", method, **options), GRAPHS[place])


@pytest.mark.parametrize("undirected", [True, False])
def test_degrees_in_place_of_features(undirected):
    graph = one_type()
    bare = ig.TemporalGraph(y=graph.y, time=graph.time, edge_index=graph.edge_index)
    check_law(fitted(bare, "linear", "plain", undirected=undirected), bare)


def test_a_later_cutoff_and_classes_with_names():
    names = [f"class {k}" for k in range(3)]
    graph = one_type()
    graph = ig.TemporalGraph(
        x=graph.x, y=graph.y, time=graph.time, edge_index=graph.edge_index, label_names=names
    )
    check_law(fitted(graph, "linear", "pmp+labels"), graph, cutoff=6)


def test_raw_columns():
    rng = np.random.default_rng(0)
    papers = {
        "id": [f"p{k}" for k in range(200)],
        "time": time_of(200) + 2000,
        "label": rng.choice(["a", "b"], 200),
        "pages": np.where(rng.random(200) < 0.1, np.nan, rng.normal(size=200)),
        "venue": rng.choice(["x", "y", "z"], 200),
        "title": rng.choice(["red house", "blue sea", "green field of grass"], 200),
    }
    ends = rng.choice(papers["id"], (2, 300))
    graph = ig.from_tables(papers, {"source": ends[0], "target": ends[1]}, quiet=True)
    model = Pipeline("linear", "pmp+labels", **QUICK | {"cutoff": 2004}).fit(graph.upto(2005))
    some = check_law(model, graph)
    last = graph.ids[graph.time == 2006]
    assert model.predict_proba(graph, nodes=last[:2].tolist()).shape == (2, 2)
    assert some.dtype == model.predict_proba(graph).dtype


def test_what_reads_the_whole_graph_is_named():
    graph = GRAPHS["one type"]

    def names(method, model="sign", **options):
        return fitted(graph, model, method, **options).reach(graph).whole_graph

    assert names("pmp+jjnorm+labels+snapshot+degrees") == ()
    assert names("pmp+center+labels") == ("center",)
    assert names("smooth+shift") == ("shift", "smooth")
    assert names("labels+stages") in [("stages",), ()]  # () if the first stage is the best
    assert names("jjnorm", "sage") == ("the model 'sage'",)
    model = fitted(graph, "sign", "center")
    some = model.targets(graph)[:2]
    with pytest.warns(
        UserWarning, match="^all nodes are computed, .* because the model uses center"
    ):
        model.predict_proba(graph, nodes=some)


def test_a_part_from_outside_is_taken_to_read_the_whole_graph():
    def share_of_class(view, nodes):
        return np.full((len(nodes), 1), (view.label == 0).mean(), np.float32)

    registry.register(Part("share", Kind.INPUT, "a share", inputs=share_of_class))
    try:
        graph = GRAPHS["one type"]
        model = fitted(graph, "linear", "share")
        assert model.reach(graph).whole_graph == ("share",)
        check_law(model, graph)
    finally:
        registry.unregister("share")


def test_edges_between_types_without_a_time():
    """Snapshots depend on paths of any length, so they read the whole graph."""
    graph = several_types()
    links = np.random.default_rng(1).integers(0, 60, (2, 50))
    relations = dict(graph.relations) | {("author", "knows", "author"): Relation(links)}
    graph = graph.with_parts(dict(graph.nodes), relations)
    snapshots = fitted(graph, "linear", "snapshot+labels")
    assert snapshots.reach(graph).whole_graph == ("snapshot",)
    check_law(snapshots, graph)
    check_law(fitted(graph, "linear", "labels"), graph)


@pytest.mark.parametrize("second", ["trees", "gcn", "sign"])
def test_ensembles(second):
    graph = GRAPHS["one type"]
    method = "center" if second == "sign" else "labels"
    members = [fitted(graph, "sign", "pmp+labels"), fitted(graph, second, method)]
    calibration = Calibration(temperature=1.5, bias=(0.1, 0.0, -0.2))
    ensemble = Ensemble(members, [0.7, 0.3], calibration, np.array([0.2, 0.3, 0.5]))
    check_law(ensemble, graph)
    targets = ensemble.targets(graph)
    for model in (ensemble, members[0]):
        some = model.predict(graph, nodes=targets[:4])
        np.testing.assert_array_equal(some, model.predict(graph)[:4])
    assert bool(ensemble.reach(graph).whole_graph) == (second == "sign")


def test_earlier_inputs_are_reused_for_some_nodes():
    graph = GRAPHS["one type"]
    model = fitted(graph, "sign", "center+shift")
    inputs = model.inputs(model.fitted.schema.adapted(graph, 4))
    targets = model.targets(graph)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        some = model.predict_proba(graph, nodes=targets[[9, 3]], inputs=inputs)
    np.testing.assert_array_equal(some, model.predict_proba(graph, inputs=inputs)[[9, 3]])


@pytest.mark.parametrize(
    ("nodes", "sentence"),
    [
        ([299, 300], "^no node has the id '300'; the 300 ids look like 0, 1, 2"),
        (["299", "x"], "^no node has the id 'x'"),
        ([], "^no node ids were passed; pass at least one"),
        ([299, 0], "^node 0 is in period 0, but nodes from 4 on are predicted; pass only those"),
    ],
)
def test_nodes_that_cannot_be_predicted(nodes, sentence):
    graph = GRAPHS["one type"]
    model = fitted(graph, "prior", "plain")
    with pytest.raises(ig.InputError, match=sentence):
        model.predict_proba(graph, nodes=nodes)


@pytest.mark.parametrize("ids", [None, np.arange(9)[::-1] * 5 - 7, [f"n{k}" for k in range(9)]])
def test_positions_of_ids(ids):
    graph = ig.TemporalGraph(time=np.arange(9), edge_index=[[], []], ids=ids)
    for wanted in ([3], [8, 0, 8], np.arange(9)):
        names = graph.ids[wanted]
        np.testing.assert_array_equal(positions_of(graph, names), wanted)
        np.testing.assert_array_equal(positions_of(graph, [str(name) for name in names]), wanted)
    with pytest.raises(ig.InputError, match=r"no node has the id '1\.5'"):
        positions_of(graph, [1.5])


def test_requested_nodes_may_come_in_any_order_and_repeatedly():
    """Two nodes that cite each other are their whole neighbourhood: as many rows as nodes."""
    rng = np.random.default_rng(0)
    pairs = np.arange(60).reshape(-1, 2)
    y = rng.integers(0, 2, 60)
    graph = ig.TemporalGraph(
        x=rng.normal(size=(60, 3)) + y[:, None],
        y=y,
        time=np.arange(60) // 10,
        edge_index=np.concatenate([pairs, pairs[:, ::-1]]).T,
    )
    fitted = Pipeline("linear", hops=1, cutoff=4, epochs=20).fit(graph)
    ensemble = Ensemble.of(fitted)
    expected = dict(zip(fitted.targets(graph), fitted.predict_proba(graph), strict=True))
    for nodes in ([41], [40, 41], [41, 40], [41, 41], [45, 41, 40, 45]):
        rows = np.array([expected[node] for node in nodes])
        np.testing.assert_allclose(fitted.predict_proba(graph, nodes=nodes), rows, atol=1e-6)
        np.testing.assert_allclose(ensemble.predict_proba(graph, nodes=nodes), rows, atol=1e-6)
