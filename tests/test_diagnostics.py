"""Assumption checks.

Planted violations change their own status, hidden labels change nothing, small graphs do not fail.
"""

import json
from dataclasses import replace

import numpy as np
import pytest

from impact_gnn import _native
from impact_gnn._codec import decode, encode
from impact_gnn.backtesting import Advice, advise
from impact_gnn.backtesting.candidates import THROUGH
from impact_gnn.checks import InputError
from impact_gnn.data.tsbm import tsbm
from impact_gnn.diagnostics import (
    AssumptionStatus,
    Diagnosis,
    connectivity_models,
    diagnose,
    entity_paths,
)
from impact_gnn.diagnostics import view as views
from impact_gnn.diagnostics.assumption import NOT_TESTABLE, VIOLATED, judge, listed
from impact_gnn.diagnostics.connectivity_models import MODELS, Layout, PairCounts, Share, fit_models
from impact_gnn.diagnostics.feature_drift import Cells, feature_drift
from impact_gnn.diagnostics.label_mix import label_mix
from impact_gnn.diagnostics.message_shift import message_shift
from impact_gnn.diagnostics.view import View
from impact_gnn.graph import TemporalGraph
from impact_gnn.propagation.metapaths import metapath_hops, path_name

CUTOFF = 8


def sound(seed=0, **changes):
    """A graph on which every assumption holds, by construction."""
    return tsbm(
        **{
            "num_nodes": 1600,
            "num_labels": 4,
            "feature_std": 1.0,
            "mean_degree": 30,
            "seed": seed,
            **changes,
        }
    )


def rebuilt(graph, **changes):
    parts = {"x": graph.x, "y": graph.y, "time": graph.time, "edge_index": graph.edge_index}
    return TemporalGraph(**{**parts, **changes}, num_labels=graph.num_labels)


def statuses(diagnosis):
    return [finding.status for finding in diagnosis.findings]


def ranked(diagnosis, graph):
    return [str(method) for method in advise(diagnosis, graph).methods]


@pytest.fixture(scope="module")
def graph():
    return sound()


@pytest.fixture(scope="module")
def diagnosis(graph):
    return diagnose(graph, CUTOFF)


# -- the assumptions


@pytest.mark.parametrize("protocol", ["text", "released"])
def test_a_graph_generated_by_the_assumptions_passes_all_of_them(protocol):
    result = diagnose(sound(seed=3, protocol=protocol), CUTOFF)
    assert statuses(result) == ["holds"] * 4


def test_drifting_class_proportions_are_detected(graph):
    rng = np.random.default_rng(0)
    later = graph.time / 9
    y = np.where(rng.random(graph.num_nodes) < 0.7 * later, 0, graph.y)
    result = label_mix(View.of(rebuilt(graph, y=y).masked(CUTOFF)))
    assert result.status == "violated"
    assert result.statistic == pytest.approx(_true_distance(later), abs=0.06)
    assert result.interval[0] < result.statistic < result.interval[1]


def _true_distance(later):
    """Mean over periods 3 ..

    7 of the distance between the mix of t and of all before, four equal labels at first.
    """
    first = [0.25 + 0.75 * 0.7 * later[t * 160] for t in range(8)]
    return np.mean([first[t] - np.mean(first[:t]) for t in range(3, 8)])


def test_feature_drift_is_detected_and_measured(graph):
    direction = np.ones(graph.x.shape[1]) / np.sqrt(graph.x.shape[1])
    moved = graph.x + np.outer(graph.time.astype(float), direction)
    result = feature_drift(View.of(rebuilt(graph, x=moved).masked(CUTOFF)))
    assert result.status == "violated"
    assert result.interval[0] > 0.7
    assert (
        np.diff(np.array(result.drift[1:], float)) > 0
    ).all()  # the longer the past, the farther away


def test_neighbours_that_depend_on_the_direction_of_time_are_detected():
    graph = sound(seed=5, same=0.24, different=0.6)
    source, target = graph.edge_index
    # A label meets higher labels in its future and lower ones in its past, which no g(y, ỹ, |Δ|)
    # can say.
    step = (graph.time[source] - graph.time[target]) * (graph.y[source] - graph.y[target])
    sided = rebuilt(graph, edge_index=graph.edge_index[:, step >= 0])
    before, after = diagnose(graph, CUTOFF), diagnose(sided, CUTOFF)
    assert before.separability.status == "holds"
    assert before.separability.symmetry.value > 0.99
    assert after.separability.status == "violated"
    assert after.separability.symmetry.high < 0.9
    assert "if past and future may differ" in after.separability.sentence
    assert statuses(after)[:2] == ["holds", "holds"]
    first, then = ranked(before, graph), ranked(after, sided)
    assert then.index("snapshot") < first.index("snapshot")


def test_connections_that_change_with_the_period_fail_separability(graph):
    # Late nodes are linked at their own time only, early ones as before.
    source, target = graph.edge_index
    late = np.maximum(graph.time[source], graph.time[target]) >= 4
    remaining = ~late | (graph.time[source] == graph.time[target])
    result = diagnose(
        rebuilt(graph, edge_index=graph.edge_index[:, remaining]), CUTOFF
    ).separability
    assert result.status == "violated"


def test_growth_is_explained_by_the_sizes_of_periods():
    graph = sound(num_nodes=3000)
    rng = np.random.default_rng(1)
    keep = np.flatnonzero(rng.random(graph.num_nodes) < 0.6 ** (9 - graph.time))
    position = np.full(graph.num_nodes, -1)
    position[keep] = np.arange(len(keep))
    edges = position[graph.edge_index]
    edges = edges[:, (edges >= 0).all(0)]
    small = TemporalGraph(x=graph.x[keep], y=graph.y[keep], time=graph.time[keep], edge_index=edges)
    result = diagnose(small, CUTOFF)
    assert result.separability.status in ("uncertain", "violated")
    assert result.separability.per_node.value > result.separability.statistic + 0.05
    methods = ranked(replace(result, shift=None), small)
    assert methods.index("genpmp") < methods.index("pmp")


@pytest.mark.parametrize(
    ("decay", "expected"), [(0.6, "holds"), ("random-zero-diagonal", "violated")]
)
def test_labels_with_different_decay_are_detected(decay, expected):
    result = diagnose(
        tsbm(num_nodes=1500, protocol="released", feature_std=1.0, decay=decay, seed=2), CUTOFF
    )
    assert result.decay.status == expected
    assert result.separability.status == "holds"


def test_only_the_planted_violation_flips(graph, diagnosis):
    rng = np.random.default_rng(0)
    y = np.where(rng.random(graph.num_nodes) < 0.08 * graph.time, 0, graph.y)
    # Features follow the new labels, so that Assumption 2 keeps holding.
    means = np.stack([graph.x[graph.y == label].mean(0) for label in range(4)])
    x = means[y] + rng.normal(size=graph.x.shape)
    assert statuses(diagnosis)[:2] == ["holds", "holds"]
    assert statuses(diagnose(rebuilt(graph, x=x, y=y), CUTOFF))[:2] == ["violated", "holds"]


# -- the numbers behind them


def test_decay_of_the_generator_is_recovered():
    fits = fit_models(PairCounts.of(View.of(sound(decay=0.6, num_nodes=3000).masked(CUTOFF))))
    np.testing.assert_allclose(fits.h[:5], 0.6 ** np.arange(5), atol=0.03)


def test_fitted_models_reproduce_their_margins(graph):
    pairs = PairCounts.of(View.of(graph.masked(CUTOFF)))
    layout = Layout.of(pairs)
    for model in MODELS:
        expected = layout.expected(model, pairs.counts)
        np.testing.assert_allclose(expected.sum((1, 3)), pairs.counts.sum((1, 3)), rtol=1e-4)
    expected = layout.expected("separable", pairs.counts)
    for number in range(len(layout.distances)):
        is_there = layout.distance == number
        near = expected[..., is_there].sum(-1)
        np.testing.assert_allclose(near, pairs.counts[..., is_there].sum(-1), rtol=1e-3)


def test_pair_counts_equal_a_loop_over_the_edges():
    graph = sound(num_nodes=200, mean_degree=5).masked(CUTOFF)
    pairs = PairCounts.of(View.of(graph))
    counts = np.zeros((4, 3, 8, 8))
    for source, target in graph.edge_index.T:
        own, other = graph.y[target], graph.y[source]
        if own < 0 or other < 0:
            continue
        group = 2
        if other == pairs.strongest[own]:
            group = 1
        if other == own:
            group = 0
        counts[own, group, graph.time[target], graph.time[source]] += 1
    np.testing.assert_array_equal(pairs.counts, counts)


def test_neighbours_without_a_label_are_shared_out(graph):
    hidden = np.where(np.random.default_rng(0).random(graph.num_nodes) < 0.4, -1, graph.y)
    pairs = PairCounts.of(View.of(rebuilt(graph, y=hidden).masked(CUTOFF)))
    inside = (hidden[graph.edge_index[1]] >= 0) & (graph.time[graph.edge_index] < CUTOFF).all(0)
    assert pairs.counts.sum() == pytest.approx(inside.sum())
    assert fit_models(pairs).share("separable").value > 0.97


def test_many_periods_are_drawn_together():
    graph = sound(num_times=100, num_nodes=2000, decay=0.95)
    pairs = PairCounts.of(View.of(graph.masked(90)))
    assert len(pairs.steps) <= 40
    assert pairs.width == 3
    assert (np.diff(pairs.steps) == 3).all()


@pytest.mark.parametrize("num_periods", [3, 4, 5, 6])
def test_drift_is_measured_where_the_last_labelled_period_is_too_small(num_periods):
    """One node of each class in the last labelled period, 20 in the periods before it."""
    last = num_periods - 1
    time = np.concatenate([np.repeat(np.arange(last), 40), [last] * 2, [num_periods] * 5])
    label = np.where(time < num_periods, np.arange(len(time)) % 2, -1)
    x = 3 * label[:, None] + np.random.default_rng(0).normal(size=(len(time), 3))
    graph = TemporalGraph(x=x, y=label, time=time, edge_index=[[0], [1]])
    result = feature_drift(View.of(graph.masked(num_periods)))
    assert result.status == "holds"
    assert result.drift[-1] is None


def test_drift_of_cells_equals_a_loop():
    rng = np.random.default_rng(0)
    label, period = rng.integers(0, 3, 300), rng.integers(0, 4, 300)
    values = rng.normal(size=(300, 2)) + label[:, None] + 0.5 * period[:, None]
    cells = Cells.of(label, period, values)
    flat = replace(cells, weight=np.ones(len(cells.count)))
    total = nodes = 0.0
    for y in range(3):
        for t in range(1, 4):
            new, old = values[(label == y) & (period == t)], values[(label == y) & (period < t)]
            groups = [values[(label == y) & (period == s)] for s in range(t)]
            noise = new.var(0, ddof=1).sum() / len(new)
            noise += sum(len(g) * g.var(0, ddof=1).sum() for g in groups) / len(old) ** 2
            total += len(new) * (((new.mean(0) - old.mean(0)) ** 2).sum() - noise)
            nodes += len(new)
    assert flat.drift(flat.mean, flat.noise, 0) == pytest.approx(total / nodes)


def test_noise_is_taken_out_of_drift_and_distance():
    rng = np.random.default_rng(1)
    drifts, distances = [], []
    for _ in range(80):
        label, period = rng.integers(0, 3, 150), rng.integers(0, 4, 150)
        cells = Cells.of(label, period, rng.normal(size=(150, 3)))
        drifts.append(cells.drift(cells.mean, cells.noise, 0))
        distances.append(cells.distance(cells.mean, cells.noise))
    for values in (drifts, distances):  # no drift, no classes: zero on average
        assert abs(np.mean(values)) < 4 * np.std(values) / np.sqrt(len(values))


def test_intervals_cover_the_truth_of_no_change():
    covered = sum(label_mix(_random_labels(seed)).interval[0] <= 0.03 for seed in range(30))
    assert covered >= 27


def _random_labels(seed):
    rng = np.random.default_rng(seed)
    y, time = rng.integers(0, 3, 3000), rng.integers(0, 9, 3000)
    return View.of(TemporalGraph(y=y, time=time, edge_index=np.zeros((2, 0), int)).masked(8))


@pytest.mark.parametrize(
    ("value", "low", "high", "expected"),
    [
        (0.0, 0.0, 0.04, "holds"),
        (0.04, 0.0, 0.11, "holds"),
        (0.08, 0.06, 0.11, "uncertain"),
        (0.3, 0.06, 0.5, "violated"),
        (0.3, 0.0, 0.5, "not testable"),
    ],
)
def test_statuses_follow_from_value_and_interval(value, low, high, expected):
    assert judge(value, low, high, small=0.05, large=0.12) == expected


# -- messages


def test_centring_removes_the_shift_of_means(diagnosis):
    methods = diagnosis.shift.methods
    assert list(methods) == ["plain", "mmp", "pmp", "genpmp", "center", "standardize", "jjnorm"]
    assert np.max(methods["center"].mean) < 0.1 * np.max(methods["plain"].mean) + 0.02
    assert methods["center"].overall <= methods["plain"].overall


def test_large_graphs_are_looked_at_in_blocks_and_samples(graph, diagnosis, monkeypatch):
    monkeypatch.setattr(_native, "BLOCK_BYTES", 16_000)
    assert diagnose(graph, CUTOFF) == diagnosis
    monkeypatch.setattr(views, "MAX_EDGES", graph.edge_index.shape[1] // 2)
    result = diagnose(graph, CUTOFF)
    assert result.notes[-1].startswith("Connections were counted at a random 50")
    assert result.separability.status == result.decay.status == "holds"


def test_reverse_edges_are_matched_in_any_order(graph):
    rng = np.random.default_rng(0)
    shuffled = graph.edge_index[:, rng.permutation(graph.edge_index.shape[1])]
    assert not diagnose(rebuilt(graph, edge_index=shuffled), CUTOFF).notes
    turned = shuffled.copy()
    turned[:, 0] = turned[::-1, 0]  # one edge twice, its reverse not at all
    assert "directed" in diagnose(rebuilt(graph, edge_index=turned), CUTOFF).notes[0]


def test_nodes_without_a_message_are_counted(graph):
    lonely = graph.edge_index[:, (graph.time[graph.edge_index] != 3).all(0)]
    shift = diagnose(rebuilt(graph, edge_index=lonely), CUTOFF).shift
    assert shift.silent[3] == 1.0
    assert len(shift.silent) == len(shift.times) + 1


# -- laws


def test_hidden_labels_change_nothing(graph, diagnosis):
    rng = np.random.default_rng(0)
    scrambled = rebuilt(graph, y=np.where(graph.time >= CUTOFF, rng.permutation(graph.y), graph.y))
    other = diagnose(scrambled, CUTOFF)
    assert other == diagnosis
    assert advise(other, scrambled) == advise(diagnosis, graph)


def test_known_labels_do_change_something(graph, diagnosis):
    y = np.where(graph.time < CUTOFF, np.random.default_rng(0).permutation(graph.y), graph.y)
    assert diagnose(rebuilt(graph, y=y), CUTOFF) != diagnosis


def test_the_same_seed_gives_the_same_result(graph, diagnosis):
    assert diagnose(graph, CUTOFF) == diagnosis


def test_direction_of_edges_does_not_matter_and_is_noted(graph, diagnosis):
    # nodes are in order of time
    forward = graph.edge_index[:, graph.edge_index[0] < graph.edge_index[1]]
    result = diagnose(rebuilt(graph, edge_index=forward), CUTOFF)
    assert result.separability.statistic == pytest.approx(
        diagnosis.separability.statistic, abs=0.01
    )
    assert any("directed" in note for note in result.notes)
    assert not diagnosis.notes


def test_times_may_be_shifted(graph, diagnosis):
    result = diagnose(rebuilt(graph, time=graph.time + 2000), CUTOFF + 2000)
    assert [f.statistic for f in result.findings] == [f.statistic for f in diagnosis.findings]


def test_cutoff_comes_from_the_graph(graph):
    masked = graph.masked(6)
    assert diagnose(masked).cutoff == 6
    assert diagnose(rebuilt(graph, y=np.where(graph.time < 5, graph.y, -1))).cutoff == 5


def stored(value):
    return json.loads(json.dumps(encode(value), allow_nan=False))


def test_everything_is_json_and_back(diagnosis, graph):
    assert decode(Diagnosis, stored(diagnosis)) == diagnosis
    assert decode(Advice, stored(advise(diagnosis, graph))) == advise(diagnosis, graph)


def test_text_names_every_assumption_and_method(diagnosis):
    text = str(diagnosis)
    for finding in diagnosis.findings:
        assert f"{finding.assumption} {finding.name}" in text
        assert f"{finding.name:24}{finding.status}" in text
        assert finding.sentence.endswith(".")
    assert "jjnorm" in text
    assert max(map(len, text.splitlines())) <= 110


def test_arrays_are_stored_with_six_digits_and_none_for_the_unknown():
    assert listed(np.array([[1 / 3, np.nan], [2.0, np.inf]])) == [[0.333333, None], [2.0, None]]
    assert listed(np.array([3, 4])) == [3, 4]


def test_progress_reaches_the_end(graph):
    events = []
    diagnose(graph, CUTOFF, progress=lambda *event: events.append(event[:3]))
    assert events == [("diagnosis", k, 5) for k in range(1, 6)]


# -- thin graphs


def test_no_edges(graph):
    result = diagnose(rebuilt(graph, edge_index=np.zeros((2, 0), int)), CUTOFF)
    assert statuses(result) == ["holds", "holds", "not testable", "not testable"]
    assert result.shift is None
    assert "no edges" in result.separability.sentence


def test_loops_only(graph):
    loops = np.tile(np.arange(graph.num_nodes), (2, 1))
    assert statuses(diagnose(rebuilt(graph, edge_index=loops), CUTOFF))[2:] == [
        "not testable",
        "not testable",
    ]


def test_no_features(graph):
    result = diagnose(rebuilt(graph, x=None), CUTOFF)
    assert result.feature_drift.status == "not testable"
    assert result.shift is None
    assert result.separability.status == "holds"
    assert "plain" in ranked(result, rebuilt(graph, x=None))


@pytest.mark.parametrize("labelled", [(7,), (3, 7)])
def test_few_labelled_periods(graph, labelled):
    y = np.where(np.isin(graph.time, labelled), graph.y, -1)
    result = diagnose(rebuilt(graph, y=y), CUTOFF)
    assert statuses(result)[2:] == ["not testable", "not testable"]
    assert statuses(result)[:2] == (["not testable"] * 2 if len(labelled) == 1 else ["holds"] * 2)
    assert result.shift is not None


def test_one_class(graph):
    result = diagnose(rebuilt(graph, y=np.zeros(graph.num_nodes, int)), CUTOFF)
    assert statuses(result)[:2] == ["not testable", "not testable"]


def test_few_nodes():
    rng = np.random.default_rng(0)
    for seed in range(8):
        size = int(rng.integers(3, 12))
        time = np.arange(size) % 4
        graph = TemporalGraph(
            x=rng.normal(size=(size, int(rng.integers(1, 4)))),
            y=rng.integers(-1, 3, size).clip(0 if size < 5 else -1),
            time=time,
            edge_index=rng.integers(0, size, (2, int(rng.integers(0, 20)))),
        )
        result = diagnose(graph, int(time.max()), seed=seed)
        assert decode(Diagnosis, stored(result)) == result
        assert "plain" in ranked(result, graph)


def test_constant_and_half_precision_features(graph):
    flat = diagnose(rebuilt(graph, x=np.ones((graph.num_nodes, 2))), CUTOFF)
    assert flat.feature_drift.status == "not testable"
    assert decode(Diagnosis, stored(flat)) == flat
    half = diagnose(rebuilt(graph, x=graph.x.astype(np.float16)), CUTOFF)
    assert half.feature_drift.status == "holds"


def test_a_graph_of_one_period_is_refused(graph):
    with pytest.raises(InputError, match="at least two periods"):
        diagnose(rebuilt(graph, time=np.zeros(graph.num_nodes, int)), 1)


# -- several types


def hetero(graph, own):
    authors = 300
    rng = np.random.default_rng(0)
    writes = np.stack(
        [rng.integers(0, authors, 2 * graph.num_nodes), np.repeat(np.arange(graph.num_nodes), 2)]
    )
    edges = {("author", "writes", "paper"): writes}
    if own:
        edges[("paper", "cites", "paper")] = graph.edge_index
    nodes = {
        "paper": {"x": graph.x, "y": graph.y, "time": graph.time},
        "author": {"num_nodes": authors},
    }
    return TemporalGraph.hetero(
        nodes=nodes, edges=edges, target="paper", num_labels=graph.num_labels
    )


def test_own_relations_of_a_hetero_graph_are_used(graph, diagnosis):
    result = diagnose(hetero(graph, own=True), CUTOFF)
    assert result.separability.statistic == diagnosis.separability.statistic
    assert any("Ignored relations: author-writes-paper" in note for note in result.notes)


def test_without_own_relations_paths_through_entities_are_used(graph):
    mixed = hetero(graph, own=False)
    result = diagnose(mixed, CUTOFF)
    # authors are drawn at random
    assert statuses(result) == ["holds"] * 4
    assert "Connections along paper - author - paper hardly depend" in result.separability.sentence
    assert "along paper - author - paper" in result.decay.sentence
    assert result.notes[0].startswith("No relation joins 'paper' nodes with each other; ")
    assert not result.other_paths
    assert list(result.shift.methods)[:4] == ["plain", "mmp", "pmp", "genpmp"]
    assert result.shift.path == "messages along paper - author - paper"
    methods = ranked(result, mixed)
    assert "center+labels" in methods
    # weights by edge would change nothing
    assert {method for method in methods if "mp" in method} == set(THROUGH)
    assert "snapshot" in methods  # papers of one author come and go
    assert not any("ends" in method for method in ranked(result, graph))


def events(num_rows=300, *, num_users=40, weighted=True, seed=0):
    """Rows with a user and two shops in roles, who are active for a while; some have no label."""
    rng = np.random.default_rng(seed)
    time = np.sort(rng.integers(0, 10, num_rows))
    rows = np.arange(num_rows)
    user = (time * num_users // 14 + rng.integers(0, num_users // 3, num_rows)) % num_users
    buys = {"edge_index": np.stack([user, rows])}
    if weighted:
        buys["weight"] = rng.uniform(0.5, 2, num_rows)
    # a row may have several sellers, or none, or one twice
    sells = np.stack([rng.integers(0, 20, num_rows), rng.integers(0, num_rows, num_rows)])
    sells = np.concatenate([sells, sells[:, :30]], axis=1)
    returns = np.stack([rng.integers(0, 20, 100), rng.integers(0, num_rows, 100)])
    y = np.where(rng.random(num_rows) < 0.2, -1, rng.integers(0, 4, num_rows))
    return TemporalGraph.hetero(
        nodes={
            "row": {"x": rng.normal(size=(num_rows, 3)), "y": y, "time": time},
            "user": {"num_nodes": num_users},
            "shop": {"num_nodes": 20},
            "day": {"num_nodes": 10},
        },
        edges={
            ("user", "buys", "row"): buys,
            ("shop", "sells", "row"): sells,
            ("shop", "returns", "row"): returns,
            ("day", "of", "row"): np.stack([time, rows]),
        },
        target="row",
        num_labels=4,
    )


def looped_counts(graph, path, strongest):
    """Weights of neighbours along a path by loops over all pairs of its edges."""
    relations = graph.undirected().relations
    counts = np.zeros((4, 4, 8, 8))
    steps = []
    for relation in (relations[triple] for triple in path.triples):
        weight = np.ones(relation.num_edges)
        if relation.weight is not None:
            weight = relation.weight
        total = np.bincount(relation.edge_index[1], weight)
        share = weight / total[relation.edge_index[1]]
        steps.append(list(zip(*relation.edge_index, share, strict=True)))
    for source, entity, first in steps[0]:
        for same_entity, target, second in steps[1]:
            own, other = graph.label[target], graph.label[source]
            if entity != same_entity or source == target or own < 0:
                continue
            if graph.time[source] >= CUTOFF:
                continue
            group = {own: 0, strongest[own]: 1, -1: 3}.get(other, 2)
            counts[own, group, graph.time[target], graph.time[source]] += first * second
    return counts


@pytest.mark.parametrize("weighted", [True, False])
def test_counts_along_paths_equal_a_loop_over_pairs(weighted):
    masked = events(weighted=weighted).masked(CUTOFF)
    view = View.of(masked)
    names = [path.name for path in view.paths]
    assert "row - user - row" in names
    assert "row - sells - shop - returns - row" in names
    for path in view.paths:
        pairs = PairCounts.of(view, path)
        counts = looped_counts(masked, path, pairs.strongest)
        expected = connectivity_models._distribute_unknown(counts)
        np.testing.assert_allclose(pairs.counts, expected, atol=1e-12)
        # cells that only a node itself is in are exactly empty
        np.testing.assert_array_equal(pairs.counts > 0, expected > 0)


def test_pairs_of_a_large_entity_are_not_listed():
    """Half a billion pairs of one entity, and a node has a weight of 1 less its own."""
    size = 30_000
    graph = TemporalGraph.hetero(
        nodes={
            "row": {"y": np.arange(size) % 2, "time": np.arange(size) * 10 // size},
            "user": {"num_nodes": 1},
        },
        edges={("user", "buys", "row"): np.stack([np.zeros(size, int), np.arange(size)])},
        target="row",
    )
    view = View.of(graph.masked(CUTOFF))
    counts = PairCounts.of(view, view.paths[0]).counts
    labelled = size * 8 // 10
    assert counts.sum() == pytest.approx(labelled * (labelled - 1) / size)


def test_labels_hidden_by_the_cutoff_do_not_change_paths():
    graph = events()
    y = np.where(graph.time >= CUTOFF, np.random.default_rng(1).integers(0, 4, 300), graph.y)
    scrambled = graph.with_parts(
        {**graph.nodes, "row": replace(graph.nodes["row"], y=y)}, graph.relations
    )
    first, other = (diagnose(one, CUTOFF) for one in (graph, scrambled))
    assert first == other
    assert advise(first, graph) == advise(other, scrambled)


def test_paths_are_compared_and_those_within_a_period_left_out():
    result = diagnose(events(3000, num_users=300), CUTOFF)
    assert result.separability.path == "row - user - row"
    assert result.separability.num_entities > 100
    assert len(result.other_paths) == 4
    assert "Labelled pairs along row - day - row lie in one period each." in result.notes
    assert "row - sells - shop - sells - row" in str(result)
    dated = events(num_users=300)
    relation = ("day", "of", "row")
    days = diagnose(dated.with_parts(dated.nodes, {relation: dated.relations[relation]}), CUTOFF)
    assert statuses(days)[2:] == ["not testable"] * 2
    assert days.notes[-1] == "Labelled pairs along row - day - row lie in one period each."
    assert days.shift.path == "messages along row - day - row"


def test_paths_with_many_states_are_sampled(monkeypatch):
    graph = events(3000, num_users=300)
    monkeypatch.setattr(entity_paths, "MAX_PRODUCTS", 10_000)
    result = diagnose(graph, CUTOFF)
    assert any("Along row - user - row, a random" in note for note in result.notes)
    assert diagnose(graph, CUTOFF) == result


def test_decay_through_entities_is_recovered():
    """Entities live for two periods: pairs are of the same period or of neighbouring ones."""
    graph = events(4000, num_users=2000, weighted=False)
    time = graph.time
    rows = np.arange(4000)
    user = 200 * (time - rows % 2) + 200 + rows // 2 % 100
    nodes = {"row": graph.nodes["row"], "user": replace(graph.nodes["user"], num_nodes=2400)}
    relation = replace(graph.relations["user", "buys", "row"], edge_index=np.stack([user, rows]))
    result = diagnose(graph.with_parts(nodes, {("user", "buys", "row"): relation}), CUTOFF)
    assert statuses(result)[2:] == ["holds"] * 2
    # Rows by user and period; pairs by period weigh 1 / rows of the user.
    count = np.zeros((2400, 10))
    np.add.at(count, (user, time), 1)
    weighted = count / np.maximum(count.sum(1, keepdims=True), 1)
    pairs = (weighted.T @ count - np.diag(weighted.sum(0)))[:CUTOFF, :CUTOFF]
    ratio = np.diag(pairs, 1).mean() / np.diag(pairs).mean()
    assert result.decay.h[0] == 1
    assert result.decay.h[1] == pytest.approx(ratio, rel=0.1)
    assert max(result.decay.h[2:]) == 0


def test_messages_along_a_path_are_those_of_the_metapath():
    graph = events(2000, num_users=200).masked(CUTOFF)
    view = View.of(graph)
    shift = message_shift(view)
    path = path_name(view.paths[0].triples)
    both = graph.undirected()
    for name in ("plain", "pmp"):
        hop = metapath_hops(both, weighting=name, metapath_weighting="ends")[path]
        late = hop[graph.targets()]
        unit = np.sqrt(late.var(0).mean())
        early = hop[(graph.label >= 0) & (graph.time == 2)]
        distance = np.linalg.norm(early.mean(0) - late.mean(0)) / unit / np.sqrt(3)
        assert shift.methods[name].mean[2] == pytest.approx(distance, rel=1e-3)


# -- advice


def with_statuses(diagnosis, **status_by_check):
    """`diagnosis` with some statuses replaced, and no measured shift."""
    changed = {
        name: replace(getattr(diagnosis, name), status=AssumptionStatus(with_statuses))
        for name, with_statuses in status_by_check.items()
    }
    return replace(diagnosis, shift=None, **changed)


def test_plain_is_a_candidate_and_none_comes_twice(diagnosis, graph):
    methods = ranked(diagnosis, graph)
    assert "plain" in methods
    assert len(set(methods)) == len(methods)


def test_centring_leads_where_the_mix_is_stable_and_trails_where_it_changes(diagnosis, graph):
    stable = ranked(with_statuses(diagnosis, label_mix="holds"), graph)
    changing = ranked(with_statuses(diagnosis, label_mix="violated"), graph)
    assert stable.index("center") < stable.index("plain") < changing.index("center")
    assert stable.index("center+labels") < stable.index("labels")
    assert changing.index("labels") < changing.index("center+labels")
    assert changing.index("plain") < changing.index("jjnorm")
    assert changing.index("labels") < changing.index("plain")
    assert changing.index("recency") < changing.index("plain") < stable.index("recency")
    assert set(stable) == set(changing)  # evidence orders, it does not prune


def test_old_labels_are_forgotten_sooner_where_features_drift(diagnosis, graph):
    violated = replace(diagnosis.feature_drift, status=VIOLATED)
    drifting = ranked(replace(diagnosis, feature_drift=violated), graph)
    stable = ranked(diagnosis, graph)
    for method in ("recency-fast", "window"):
        assert drifting.index(method) < drifting.index("plain")
        assert stable.index(method) > stable.index("plain")


def test_snapshots_rank_higher_where_past_and_future_differ(diagnosis, graph):
    sided = replace(diagnosis.separability, symmetry=Share(0.7, 0.65, 0.75))
    alike = ranked(diagnosis, graph)
    differ = ranked(replace(diagnosis, separability=sided), graph)
    assert differ.index("snapshot") < alike.index("snapshot")
    assert differ.index("snapshot") < differ.index("plain") < alike.index("snapshot")


def test_nothing_known_ranks_the_paper_s_first_choice_above_plain(diagnosis, graph):
    names = ("label_mix", "feature_drift", "separability", "decay")
    unknown = {
        name: type(getattr(diagnosis, name))(NOT_TESTABLE, "Nobody knows.") for name in names
    }
    methods = ranked(replace(diagnosis, shift=None, **unknown), graph)
    assert methods.index("pmp") < methods.index("plain") < methods.index("mmp")


def test_a_correction_that_mixes_classes_gets_no_credit(diagnosis, graph):
    methods = dict(diagnosis.shift.methods)
    for name, overall, separation in (("plain", 0.5, 0.4), ("pmp", 0.1, 0.4), ("genpmp", 0.1, 0.1)):
        methods[name] = replace(methods[name], overall=overall, separation=separation)
    advice = advise(replace(diagnosis, shift=replace(diagnosis.shift, methods=methods)), graph)
    reasons = {str(candidate.method): candidate.reason for candidate in advice.candidates}
    assert "removes 80% of the shift" in reasons["pmp"]
    assert "mixes the classes" in reasons["genpmp"]
    assert "mixes" not in reasons["pmp"]


def test_the_choice_is_explained(diagnosis, graph):
    advice = advise(diagnosis, graph)
    assert advice.explanation.startswith(f"{advice.candidates[0].method} comes first: ")
    assert "only the back-test decides" in advice.explanation
    assert "label mix: holds" in advice.explanation
    assert str(advice).count("\n") == len(advice.candidates) + 2


def test_without_edges_features_lead(graph):
    bare = rebuilt(graph, edge_index=np.zeros((2, 0), int))
    methods = ranked(diagnose(bare, CUTOFF), bare)
    assert set(methods) == {"plain", "features", "recency", "recency-fast", "window"}
    assert methods[0] == "features"


def test_pny_is_for_small_graphs_only(diagnosis, graph):
    wide = rebuilt(graph, x=np.zeros((graph.num_nodes, 500), np.float32))
    assert "pmp+pny" in ranked(diagnosis, graph)
    assert not any("pny" in method for method in ranked(diagnosis, wide))
