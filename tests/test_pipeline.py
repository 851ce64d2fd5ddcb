"""Pipelines: the grammar of methods, no leak, predictions after saving, graphs that have grown."""

from dataclasses import replace

import numpy as np
import pytest

import impact_gnn as ig
from impact_gnn import nn
from impact_gnn.estimators import Ensemble, Inputs, Method, Pipeline
from impact_gnn.graph import Relation
from paper_propagation import message_matrix

CUTOFF = 5
QUICK = {"cutoff": CUTOFF, "hidden": 8, "epochs": 8, "device": "cpu"}
METHODS = [
    "plain",
    "pmp",
    "mmp",
    "genpmp",
    "center",
    "pmp+standardize",
    "jjnorm",
    "pny",
    "labels",
    "snapshot",
    "snapshot+labels",
    "recency",
    "window",
    "jjnorm-joint",
    "curriculum+drop",
    "labels+stages",
    "features",
    "pmp+center+jjnorm+labels",
]


@pytest.fixture(scope="module")
def graph():
    return ig.tsbm(num_nodes=300, num_times=6, num_labels=3, num_features=4, mean_degree=12, seed=0)


@pytest.fixture(scope="module")
def shared(graph):
    return Inputs(graph.masked(CUTOFF))


def dated(graph, seed=1):
    """The graph with every edge twice, the second time later than its nodes, and with weights."""
    rng, relations = np.random.default_rng(seed), {}
    for name, part in graph.relations.items():
        twice = np.tile(part.edge_index, 2)
        relations[name] = Relation(
            twice, rng.random(twice.shape[1]), rng.integers(0, 6, twice.shape[1])
        )
    return graph.with_parts(dict(graph.nodes), relations)


def hetero(seed=0):
    rng = np.random.default_rng(seed)
    n = 120
    return ig.TemporalGraph.hetero(
        nodes={
            "paper": {
                "x": rng.normal(size=(n, 3)),
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


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("PMP + center", "pmp+center"),
        ("plain+labels", "labels"),
        ("jjnorm+center", "center+jjnorm"),
        ("plain", "plain"),
    ],
)
def test_methods_are_read_in_any_order(text, same):
    assert str(Method.parse(text)) == same
    assert Method.parse(same) == Method.parse(text)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("pmq", "unknown part 'pmq'; join any of plain, mmp, pmp"),
        ("pmp+mmp", "two weightings, mmp and pmp"),
        ("pmp+pmp", "contains 'pmp' twice"),
        ("center+standardize", "combines 'center' with 'standardize': 'standardize' includes"),
        ("features+labels", "combines 'features' with 'labels': it corrects or adds messages"),
        ("", "unknown part ''"),
    ],
)
def test_bad_methods(graph, text, sentence):
    with pytest.raises(ig.InputError, match=sentence):
        Pipeline(method=text).fit(graph)


@pytest.mark.parametrize("method", METHODS)
def test_target_labels_are_out_of_reach(graph, shared, method):
    """The law: scrambled labels at or after the cutoff change no bit of any prediction."""
    scrambled = ig.audit.scrambled(graph, CUTOFF)
    results = [
        Pipeline(method=method, **QUICK).fit(g, inputs=inputs).predict_proba(g, inputs=inputs)
        for g, inputs in ((graph, shared), (scrambled, Inputs(scrambled.masked(CUTOFF))))
    ]
    assert np.array_equal(*results)
    assert np.isfinite(results[0]).all()
    np.testing.assert_allclose(results[0].sum(1), 1, atol=1e-5)


@pytest.mark.parametrize("model", ["sgc", "sign", "gamlp"])
def test_saved_pipelines_predict_the_same_bits(graph, tmp_path, model):
    p = Pipeline(model, "pmp+center+labels", **QUICK).fit(graph)
    p.save(tmp_path / "model")
    back = Pipeline.load(tmp_path / "model")
    assert np.array_equal(p.predict_proba(graph), back.predict_proba(graph))
    assert back.get_params() == p.get_params()
    weights = tmp_path / "model" / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x07")
    with pytest.raises(ig.InputError, match="missing or has changed since it was saved"):
        Pipeline.load(tmp_path / "model")


def test_score_uses_only_labelled_targets(graph):
    p = Pipeline(**QUICK).fit(graph)
    rows = p.targets(graph)
    assert np.array_equal(rows, np.flatnonzero(graph.time >= CUTOFF))
    expected = (p.predict(graph) == graph.y[rows]).mean()
    assert p.score(graph) == pytest.approx(expected)
    assert Ensemble.of(p).score(graph) == p.score(graph)
    with pytest.raises(ig.InputError, match="no target node has a label"):
        p.score(graph.masked(CUTOFF))


@pytest.mark.parametrize("verb", ["score", "predict", "predict_proba", "targets"])
def test_a_cutoff_before_that_of_the_fit_is_refused(graph, verb):
    p = Pipeline(**QUICK).fit(graph)
    trained_on = int(((graph.time >= 3) & (graph.time < CUTOFF)).sum())
    expected = (
        f"cutoff=3 lies before {CUTOFF}, the cutoff of the fit, so {trained_on} of these nodes "
        f"were available for training; use a cutoff from {CUTOFF} on, or retrain"
    )
    for model in (p, Ensemble.of(p)):
        with pytest.raises(ig.InputError, match=expected):
            getattr(model, verb)(graph, cutoff=3)
    assert p.score(graph, cutoff=CUTOFF) == p.score(graph)


@pytest.mark.parametrize("names", [None, ["?", "x", "y", "z"]])
def test_unknown_classes_count_as_wrong_with_a_warning(graph, names):
    rows = np.flatnonzero(graph.time >= CUTOFF)
    new, count = rows[::4], graph.num_labels
    y = np.array(graph.y) if names is None else graph.y + 1  # the name of the new class comes first
    y[new] = count if names is None else 0
    names = None if names is None else names[: count + 1]
    other = ig.TemporalGraph(
        x=graph.x, y=y, time=graph.time, edge_index=graph.edge_index, label_names=names
    )
    p = Pipeline(**QUICK).fit(other)
    is_known = ~np.isin(rows, new)
    right = (p.predict(other) == y[rows])[is_known].sum() / len(rows)
    called = str(count) if names is None else r"\?"
    sentence = (
        rf"{len(new)} of {len(rows)} target nodes are in classes without labels in "
        rf"training \({called}\); they count"
    )
    with pytest.warns(UserWarning, match=sentence):
        assert p.score(other) == pytest.approx(right)
    with pytest.warns(UserWarning, match=sentence) as caught:
        assert Ensemble.of(p).score(other) == pytest.approx(right)
    assert caught[0].filename == __file__
    first = 0 if names is None else 1
    recall = [(p.predict(other) == k + first)[graph.y[rows] == k].mean() for k in range(count)]
    with pytest.warns(UserWarning, match=sentence):
        assert 0 < p.score(other, metric="balanced-accuracy") < np.mean(recall)
    with pytest.warns(UserWarning, match=sentence):
        assert np.isfinite(p.score(other, metric="log-loss"))


def test_a_grown_graph_is_predicted_and_called_stale(graph):
    past = graph.upto(4)
    p = Pipeline(method="pmp", **(QUICK | {"cutoff": 4})).fit(past)
    assert p.stale(past) is None
    assert "1 period is newer than the fit, which ends at 4: 5" in p.stale(graph)
    assert len(p.predict(graph)) == (graph.time >= 4).sum()
    assert len(p.predict(graph, cutoff=5)) == (graph.time >= 5).sum()


def test_snapshots_show_every_node_the_graph_of_its_time(graph):
    inputs = Inputs(graph.masked(CUTOFF), hops=2)
    hops, _ = inputs.model_inputs(Method.parse("pmp+snapshot"), CUTOFF)
    for t in graph.times:
        then = graph.upto(int(t))
        expected = ig.propagate(then.undirected(), weighting="pmp", hops=2)
        rows = np.flatnonzero(graph.time == t)
        for hop, wanted in zip(hops[1:], expected, strict=True):
            np.testing.assert_allclose(hop[rows], wanted[then.time == t], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("changed", [3, 20, 50])
def test_with_many_periods_no_row_of_a_snapshot_reads_labels_of_its_own_or_later_periods(changed):
    g = ig.tsbm(num_nodes=900, num_times=90, num_labels=2, num_features=2, mean_degree=8, seed=0)
    method, cutoff = Method.parse("snapshot+labels"), 80
    label = np.where(g.time == changed, 1 - g.y, g.y)
    rows = g.time <= changed
    hops, after = (
        Inputs(graph.masked(cutoff)).model_inputs(method, cutoff)[1]
        for graph in (g, g.with_labels(label))
    )
    differs = [
        (np.asarray(hop) != np.asarray(other)).any(1)
        for hop, other in zip(hops, after, strict=True)
    ]
    assert not np.any(differs, axis=0)[rows].any()
    assert np.any(differs, axis=0)[~rows].any()


@pytest.mark.parametrize("undirected", [True, False])
def test_snapshots_do_not_see_edges_that_came_later(undirected):
    """The loop.

    For every time, the edges with both ends and their own time up to then, as a dense matrix.
    """
    g = dated(
        ig.tsbm(num_nodes=60, num_times=6, num_labels=2, num_features=3, mean_degree=4, seed=0)
    )
    hops, _ = Inputs(g.masked(CUTOFF), hops=2, undirected=undirected).model_inputs(
        Method.parse("genpmp+snapshot"), CUTOFF
    )
    (source, target), came = g.edge_index, g.edge_time
    for last, t in enumerate(g.times):
        there = (g.time[source] <= t) & (g.time[target] <= t) & (came <= t)
        assert (there != (np.maximum(g.time[source], g.time[target]) <= t)).any() == (t < 5)
        table = np.zeros((6, 6))
        table[: last + 1, : last + 1] = ig.weighting.genpmp(
            g.times[: last + 1], g.counts[: last + 1]
        )
        matrix = message_matrix(
            source[there],
            target=target[there],
            num_sources=60,
            num_targets=60,
            table=table,
            source_period=g.period,
            target_period=g.period,
            weight=g.edge_weight[there],
            undirected=undirected,
        )
        wanted, rows = g.x.astype(np.float64), g.time == t
        for hop in hops[1:]:
            wanted = matrix @ wanted
            np.testing.assert_allclose(np.asarray(hop)[rows], wanted[rows], rtol=1e-4, atol=1e-5)


def test_without_a_refit_inputs_keep_the_scale_the_model_was_trained_with(graph):
    """The last labelled period is not among the rows to train on, so its scale must not be used
    either.
    """
    shifted = graph.with_features(graph.x + 50 * (graph.time == CUTOFF - 1)[:, None])
    scales = {}
    for refit in (False, True):
        fitted = Pipeline(method="features", refit=refit, **QUICK).fit(shifted).fitted
        scales[refit] = fitted.scales[0].mean
    known = graph.time < CUTOFF
    np.testing.assert_allclose(
        scales[False], shifted.x[known & (graph.time < CUTOFF - 1)].mean(0), rtol=1e-5
    )
    np.testing.assert_allclose(scales[True], shifted.x[known].mean(0), rtol=1e-5)


def test_one_hop_through_another_type():
    g = hetero()
    p = Pipeline(method="center+labels", **QUICK).fit(g)
    assert p.predict_proba(g).shape == ((g.time >= CUTOFF).sum(), 2)
    assert p.inputs(g.masked(CUTOFF)).paths() == [
        (("paper", "rev_writes", "author"), ("author", "writes", "paper"))
    ]


def test_refusals(graph):
    with pytest.raises(ig.InputError, match="has not been fitted"):
        Pipeline().predict(graph)
    with pytest.raises(
        ig.InputError, match="model='gtn' is not valid; choose one of 'sign', 'sign-wide'"
    ):
        Pipeline("gtn").fit(graph)
    p = Pipeline(**QUICK).fit(graph)
    with pytest.raises(ig.InputError, match="was fitted with inputs of widths"):
        p.predict(graph.with_features(np.ones((300, 2))))


def test_patience_is_how_long_a_better_score_is_waited_for(graph, monkeypatch):
    """Epochs after the best one: as many as requested, of networks; trees stop after their own."""
    epochs = []
    train_epoch = nn.Run.train_epoch
    monkeypatch.setattr(
        nn.Run, "train_epoch", lambda run, epoch: epochs.append(epoch) or train_epoch(run, epoch)
    )
    for patience in (1, 7):
        epochs.clear()
        p = Pipeline(
            "sign", cutoff=CUTOFF, hidden=8, epochs=60, patience=patience, refit=False, device="cpu"
        )
        p.fit(graph)
        assert len(epochs) == min(60, p.fitted.rounds + patience)
    with pytest.raises(
        ig.InputError, match="patience=0 is not valid; use a whole number of at least 1"
    ):
        Pipeline("sign", cutoff=CUTOFF, patience=0).fit(graph)
    rounds = [
        Pipeline("trees", cutoff=CUTOFF, patience=k).fit(graph).fitted.rounds for k in (1, 60)
    ]
    assert rounds[0] <= rounds[1]


def test_settings_of_an_earlier_fit_replace_the_validation():
    graph = ig.tsbm(num_nodes=400, num_times=6, num_labels=2, seed=0)
    options = {"method": "labels+smooth", "cutoff": 5, "hidden": 8, "epochs": 20}
    first = Pipeline(**options).fit(graph)
    again = Pipeline(**options).fit(graph, settings=first.fitted.settings)
    assert again.fitted.settings == first.fitted.settings
    assert np.array_equal(again.predict_proba(graph), first.predict_proba(graph))
    unsmoothed = first.without_smoothing()
    assert str(unsmoothed.method) == "labels"
    labels = Pipeline(**options | {"method": "labels"}).fit(graph)
    assert np.array_equal(unsmoothed.predict_proba(graph), labels.predict_proba(graph))
    one_round = replace(first.fitted.settings, rounds=(1,))
    assert Pipeline(**options).fit(graph, settings=one_round).fitted.rounds == 1
