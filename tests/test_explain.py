"""Explanations.

Contributions sum to the prediction, hops split over nodes, changes equal those of a changed graph.
"""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import impact_gnn as ig
from impact_gnn._codec import decode, encode
from impact_gnn.cli import app
from impact_gnn.engines.hop import recompute
from impact_gnn.estimators import Calibration, Ensemble, Method, Pipeline
from impact_gnn.explanations import Explainer, NodeExplanation, explain
from impact_gnn.explanations.attribution import Question
from reproduction.hetero_tsbm import hetero_tsbm

CUT = 4
HOMOGENEOUS = [
    "plain",
    "pmp+center+labels+degrees",
    "mmp+standardize+labels",
    "genpmp+jjnorm+snapshot+labels",
    "pmp+snapshot+labels",
    "pmp+ends+labels",
    "pny",
    "features",
    "recency+labels+smooth",
    "stamp+labels",
    "gsmp+snapshot+labels",
]
HETERO = [
    "pmp+labels",
    "pmp+ends+center+labels",
    "genpmp+snapshot+ends+labels",
    "degrees+features+history",
    "stamp+labels",
]


@pytest.fixture(scope="module")
def graph():
    g = ig.tsbm(num_nodes=240, num_times=6, num_labels=3, num_features=4, mean_degree=6, seed=0)
    return ig.TemporalGraph(
        x=g.x,
        y=g.y,
        time=g.time,
        edge_index=g.edge_index,
        ids=[f"P{k}" for k in range(240)],
        label_names=["a", "b", "c"],
    )


@pytest.fixture(scope="module")
def papers():
    sizes = {
        "num_papers": 120,
        "num_authors": 60,
        "num_fields": 12,
        "num_institutions": 5,
        "num_times": 6,
    }
    edges = {"citations": 400, "writes": 250, "topics": 200, "affiliations": 60}
    return hetero_tsbm(**sizes, num_labels=3, num_features=4, **edges, seed=1)


def fitted(graph, model, method, **options):
    return Pipeline(model, method, cutoff=CUT, hidden=8, epochs=8, device="cpu", **options).fit(
        graph
    )


def other_nodes(explanation):
    """Neighbours without the node itself, which paths there and back reach."""
    return [
        one
        for one in explanation.neighbours
        if (one.kind, one.id) != (explanation.kind, explanation.id)
    ]


def without_edges(graph, kind, node):
    """The same graph where a node has no edges."""
    remaining = {}
    for (source, name, target), relation in graph.relations.items():
        u, v = relation.edge_index
        stays = ~((u == node) & (source == kind) | (v == node) & (target == kind))
        remaining[source, name, target] = replace(
            relation, edge_index=relation.edge_index[:, stays]
        )
    return graph.with_parts(dict(graph.nodes), remaining)


@pytest.mark.parametrize(
    ("model", "bound"),
    [
        ("linear", 1e-5),
        ("trees", 1e-9),
        ("sign", 0.02),
        ("gamlp", 0.02),
        ("gcn", 0.02),
        ("gat", 0.02),
        ("gcn:labels", 0.02),
    ],
)
def test_contributions_sum_to_the_log_odds_and_in_all_to_the_difference_of_probabilities(
    graph, model, bound
):
    model, _, more = model.partition(":")
    method = f"pmp+{more}".rstrip("+") if model in ("gcn", "gat") else "pmp+labels"
    p = fitted(graph, model, method, class_weight="balanced")
    probabilities, targets = p.predict_proba(graph), p.targets(graph)
    explainer = Explainer(p, graph)
    for row in (0, 7, 31):
        explanation = explainer.explain(f"P{targets[row]}")
        (voice,) = explanation.voices
        first, second = ("abc".index(name) for name in (explanation.label, explanation.runner_up))
        assert voice.log_odds == pytest.approx(
            np.log(probabilities[row, first] / probabilities[row, second]), abs=1e-4
        )
        total = voice.usual + sum(part.contribution for part in voice.parts)
        assert total == pytest.approx(voice.log_odds, abs=voice.error + 1e-9)
        assert voice.error < bound
        difference = explanation.probability - explanation.runner_up_probability
        assert difference == pytest.approx(
            probabilities[row, first] - probabilities[row, second], abs=1e-6
        )
        assert sum(part.contribution for part in explanation.parts) == pytest.approx(
            difference, abs=1e-6
        )


def test_a_linear_model_is_its_coefficients_times_the_distance_from_the_mean(graph):
    p = fitted(graph, "linear", "pmp+center+labels")
    explainer = Explainer(p, graph)
    at = int(p.targets(graph)[3])
    explanation = explainer.explain(f"P{at}", most=1000)
    weight = p.fitted.head.model.classify.weight.detach().double().numpy()
    a, b = "abc".index(explanation.label), "abc".index(explanation.runner_up)
    (member,) = explainer.members
    row = member.task.matrix(member.row_index(at))[0].astype(np.float64)
    rows = np.flatnonzero(graph.masked(CUT).y[member.inputs.row_nodes] >= 0)
    expected = (weight[a] - weight[b]) * (row - member.task.matrix(rows).astype(np.float64).mean(0))
    scale = (explanation.probability - explanation.runner_up_probability) / explanation.voices[
        0
    ].log_odds
    widths = np.cumsum([0, 4, 4, 4, 3, 3])
    names = ["own features", "hop 1", "hop 2", "labels, hop 1", "labels, hop 2"]
    for part, low, high in zip(explanation.voices[0].parts, widths[:-1], widths[1:], strict=True):
        assert part.name == names.pop(0)
        assert part.contribution == pytest.approx(expected[low:high].sum(), abs=1e-5)
        named = {
            one.name: one.contribution for one in explanation.features if one.part == part.name
        }
        columns = (
            list("abc") if part.name.startswith("labels") else [f"feature {k}" for k in range(4)]
        )
        assert [named[name] for name in columns] == pytest.approx(
            scale * expected[low:high], abs=1e-5
        )


@pytest.mark.parametrize("method", HOMOGENEOUS)
@pytest.mark.parametrize("model", ["linear", "trees"])
def test_rows_consist_of_reached_nodes_and_hops_split_over_them(graph, model, method):
    split_is_whole(fitted(graph, model, method), graph)


@pytest.mark.parametrize("cutoff", [50, 51])
def test_periods_that_share_a_snapshot_are_explained_as_they_are_predicted(cutoff):
    """With more than 64 periods, a snapshot may serve the last labelled and the first targets."""
    graph = ig.tsbm(num_nodes=900, num_times=90, num_labels=2, mean_degree=8, seed=0)
    options = {"cutoff": cutoff, "epochs": 8, "device": "cpu"}
    split_is_whole(Pipeline("linear", "snapshot+labels", **options).fit(graph), graph)


@pytest.mark.parametrize("method", HETERO)
def test_metapaths_split_over_the_nodes_at_their_beginning(papers, method):
    split_is_whole(fitted(papers, "linear", method), papers)


@pytest.mark.parametrize(
    "method", ["labels+stages", "pmp+ends+labels+stages", "snapshot+labels+stages"]
)
def test_predictions_of_earlier_stages_split_over_their_nodes(method):
    num_soft_labels = 0
    for seed in range(12):
        sizes = {
            "num_nodes": 300,
            "num_times": 6,
            "num_labels": 3,
            "num_features": 4,
            "feature_std": 2.0,
        }
        graph = ig.tsbm(**sizes, seed=seed)
        p = Pipeline("linear", method, cutoff=5, epochs=20, device="cpu", seed=seed).fit(graph)
        if p.fitted.earlier:
            num_soft_labels += 1
            split_is_whole(p, graph)
            (member,) = Explainer(p, graph).members
            late = np.flatnonzero(graph.time >= 5)
            assert (member.input_label[late].sum(1) > 0).any()  # predictions of targets are inputs
    assert num_soft_labels


def split_is_whole(p, graph):
    explainer = Explainer(p, graph)
    (member,) = explainer.members
    for row in (0, 11):
        at = int(explainer.targets[row])
        # A row computed from its own edges gives the prediction of the engine's row.
        question = Question(at, row, label=0, runner_up=1)
        assert member.predict_changed(question) == pytest.approx(
            member.probabilities[row], abs=1e-5
        )
        begin = 0
        hops = [*member.task.hops, *member.task.label_hops]
        for one, hop in zip(member.explain(question).inputs, hops, strict=True):
            columns = slice(begin, begin := begin + hop.shape[1])
            if not one.block.path or not one.nodes:
                continue
            _, weights, contributions = zip(*one.nodes, strict=True)
            silent = 1 - sum(weights)  # of paths that end at a node without neighbours
            assert -1e-9 < silent < 1
            rest = 0.0
            if p.model == "linear":
                first, second = p.fitted.head.model.classify.weight.detach().numpy()[:2, columns]
                nothing = (
                    recompute(hop, np.zeros((1, hop.shape[1]), np.float32), member.row_index(at))
                    - member.mean_row[columns]
                )
                rest = (
                    silent * float((nothing @ (first - second))[0]) if not one.block.labels else 0.0
                )
            assert sum(contributions) + rest == pytest.approx(one.total, abs=1e-4)


@pytest.mark.parametrize(
    ("model", "method"),
    [
        ("linear", "plain"),
        ("trees", "pmp+labels"),
        ("trees", "mmp+snapshot+labels"),
        ("sign", "pmp+ends"),
        ("sage", "pmp"),
        ("linear", "stamp+labels"),
        ("gcn", "gsmp"),
        ("gcn", "pmp+labels"),
    ],
)
def test_without_a_neighbour_equals_the_prediction_without_its_edges(graph, model, method):
    p = fitted(graph, model, method)
    explanation = explain(p, graph, f"P{p.targets(graph)[5]}", most=4)
    for one in other_nodes(explanation):
        probabilities = p.predict_proba(without_edges(graph, "node", int(one.id[1:])))[5]
        assert one.without == pytest.approx(probabilities["abc".index(explanation.label)], abs=1e-5)


def test_without_a_node_of_any_type_along_metapaths(papers):
    p = fitted(papers, "linear", "pmp+ends+labels")
    explanation = explain(p, papers, p.targets(papers)[2], most=3)
    for one in other_nodes(explanation):
        probabilities = p.predict_proba(without_edges(papers, one.kind, int(one.id)))[2]
        assert one.without == pytest.approx(probabilities[int(explanation.label)], abs=1e-5)


@pytest.mark.parametrize(
    ("model", "rest"), [("linear", "+labels"), ("trees", "+snapshot+labels"), ("gcn", "")]
)
@pytest.mark.parametrize("weighting", ["pmp", "gsmp"])
def test_with_plain_weights_equals_the_prediction_from_plain_hops(graph, model, weighting, rest):
    p = fitted(graph, model, f"{weighting}{rest}")
    explanation = explain(p, graph, f"P{p.targets(graph)[5]}")
    p.method = Method.parse(f"plain{rest}")
    assert explanation.plain == pytest.approx(
        p.predict_proba(graph)[5, "abc".index(explanation.label)], abs=1e-5
    )
    assert all(one.plain_weight is not None for one in explanation.neighbours)
    assert explain(p, graph, f"P{p.targets(graph)[5]}").plain is None


def test_an_ensemble_adds_up_its_members_smoothing_and_calibration(graph):
    members = [
        fitted(graph, "linear", "pmp"),
        fitted(graph, "trees", "labels+smooth"),
        fitted(graph, "prior", "plain"),
    ]
    model = Ensemble(members, [0.3, 0.5, 0.2], Calibration(1.4, 0.5), np.array([0.3, 0.3, 0.4]))
    probabilities, at = model.predict_proba(graph)[9], int(model.targets(graph)[9])
    explainer = Explainer(model, graph)
    explanation = explainer.explain(f"P{at}")
    unchanged = Question(
        at, 9, *("abc".index(name) for name in (explanation.label, explanation.runner_up))
    )
    assert explainer.predict_changed(unchanged) == pytest.approx(explanation.probability, abs=1e-6)
    assert [voice.name for voice in explanation.voices] == [
        "trees:labels+smooth",
        "linear:pmp",
        "prior:plain",
    ]
    assert explanation.probability == pytest.approx(probabilities.max())
    difference = explanation.probability - explanation.runner_up_probability
    assert sum(part.contribution for part in explanation.parts) == pytest.approx(
        difference, abs=1e-9
    )
    assert {"smoothing", "calibration"} < {part.name for part in explanation.parts}
    assert explanation.voices[2].parts == [] or all(
        part.contribution == 0 for part in explanation.voices[2].parts
    )
    other = explain(model, graph, explanation.id, label=explanation.runner_up)
    assert (other.label, other.runner_up) == (explanation.runner_up, explanation.label)
    assert other.parts[-1].contribution == pytest.approx(-explanation.parts[-1].contribution)


@pytest.mark.parametrize("method", ["labels+smooth", "pmp+center+snapshot+labels+degrees"])
def test_labels_from_the_cutoff_on_change_no_explanation(graph, method):
    p = fitted(graph, "trees", method)
    node = f"P{p.targets(graph)[5]}"
    hidden = graph.y.copy()
    late = np.flatnonzero(graph.time >= CUT)
    hidden[late] = np.random.default_rng(0).permutation(hidden[late])
    explanation = explain(p, graph, node)
    assert explanation == explain(p, graph.with_labels(hidden), node)
    known = {f"P{k}": "abc"[graph.y[k]] if graph.time[k] < CUT else None for k in range(240)}
    assert [one.label for one in explanation.neighbours] == [
        known[one.id] for one in explanation.neighbours
    ]


def test_projections_are_not_split_and_a_note_says_so(papers):
    p = fitted(papers, "rphgnn", "pmp+labels")
    explanation = explain(p, papers, p.targets(papers)[0])
    assert "mixes paths by projections" in explanation.notes[-1]
    assert explanation.plain is None
    assert all(one.without is None for one in explanation.neighbours)
    assert explanation == explain(p, ig.to_pyg(papers), p.targets(papers)[0])


def test_explanations_use_the_names_of_the_user():
    rng = np.random.default_rng(0)
    nodes = pd.DataFrame(
        {
            "id": [f"paper {k}" for k in range(120)],
            "created": pd.date_range("2020-01-01", periods=120, freq="3D").astype(str),
            "pages": rng.integers(1, 30, 120),
            "venue": rng.choice(["ACL", "EMNLP"], 120),
            "topic": [*np.where(rng.random(100) < 0.5, "law", "art"), *[None] * 20],
        }
    )
    edges = pd.DataFrame(
        {"source": rng.choice(nodes["id"], 400), "target": rng.choice(nodes["id"], 400)}
    )
    g = ig.from_tables(
        nodes, edges, time="created", label="topic", id="id", period="month", quiet=True
    )
    p = Pipeline("linear", "pmp+labels+degrees", epochs=5).fit(g)
    text = str(explain(p, g, "paper 119", most=40))
    assert text.startswith("paper 119 (2020-12): ")
    for word in (
        "pages",
        "venue = ACL",
        "law",
        "art",
        "labels, hop 1",
        "log(1 + edges in), node",
        "Without time weights",
    ):
        assert word in text
    assert max(map(len, text.splitlines())) <= 80
    with pytest.raises(
        ig.InputError,
        match=r"^no node has the id 'paper 500'; the 120 ids look like",
    ):
        explain(p, g, "paper 500")
    with pytest.raises(
        ig.InputError,
        match="node paper 3 is in period 2020-01, but only nodes from 2020-11 on are predicted",
    ):
        explain(p, g, "paper 3")
    with pytest.raises(
        ig.InputError, match="label='tax' is not a class of the model; its classes are art, law"
    ):
        explain(p, g, "paper 119", label="tax")


def test_the_command_explains_a_run_and_json_comes_back(graph, tmp_path):
    graph.save(tmp_path / "g")
    p = fitted(graph, "trees", "pmp+labels")
    Ensemble.of(p).save(tmp_path / "out" / "model")
    first, second = (f"P{k}" for k in p.targets(graph)[:2])
    asked = [
        "explain",
        tmp_path / "out",
        tmp_path / "g",
        "--node",
        first,
        "--node",
        second,
        "--json",
        tmp_path / "e.json",
    ]
    done = CliRunner().invoke(app, [str(one) for one in asked])
    assert done.exit_code == 0, done.output
    expected = [explain(p, graph, node) for node in (first, second)]
    assert all(str(one) in done.output for one in expected)
    read = decode(list[NodeExplanation], json.loads((tmp_path / "e.json").read_text()))
    assert read == expected == decode(list[NodeExplanation], encode(expected))
    wrong = CliRunner().invoke(
        app, ["explain", str(tmp_path / "out" / "model"), str(tmp_path / "g"), "--node", "P999"]
    )
    assert wrong.exit_code == 2
    assert "no node has the id 'P999'" in wrong.output
