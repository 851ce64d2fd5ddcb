"""The graph: its content, its views, and that it is immutable."""

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphs import CITES, WRITES, graph, hetero, parts
from impact_gnn.checks import InputError
from impact_gnn.data.files import load
from impact_gnn.encoding import Columns
from impact_gnn.graph import HOMOGENEOUS, TemporalGraph, build_csr, graph_digest
from impact_gnn.graph.csr import EdgesByNode
from impact_gnn.graph.neighbourhood import neighbourhood


def test_attributes():
    g = graph(
        edge_weight=[1, 2, 3, 4, 5, 6], ids=list("abcdef"), label_names=["red", "green", "blue"]
    )
    assert (g.num_nodes, g.num_labels, g.target, g.cutoff, g.is_hetero) == (
        6,
        3,
        "node",
        None,
        False,
    )
    assert g.times.tolist() == [1, 2, 4]
    assert g.period.tolist() == [0, 0, 1, 1, 2, 2]
    assert g.period.dtype == np.uint8
    assert g.counts.tolist() == [2, 2, 2]
    assert g.ids.tolist() == list("abcdef")
    assert g.label_names == ("red", "green", "blue")
    assert g.edge_weight.tolist() == [1, 2, 3, 4, 5, 6]
    assert list(g.relations) == [HOMOGENEOUS]
    assert repr(g) == "TemporalGraph(6 nodes, 6 edges, 2 features, 3 classes, times 1..4)"


def test_a_graph_may_have_no_features_no_labels_and_no_edges():
    g = TemporalGraph(time=[3, 1], edge_index=[[], []])
    assert (g.x, g.y, g.num_labels, g.edge_weight) == (None, None, 0, None)
    assert g.ids.tolist() == [0, 1]
    assert g.csr().num_edges == 0
    assert "no features, 0 classes" in repr(g)
    assert "features  none" in str(g.summary())


def test_times_of_all_types_count_and_untimed_types_say_so():
    g = hetero()
    assert g.is_hetero
    assert g.times.tolist() == [1, 2, 3, 9]
    assert g.period_of("author").tolist() == [0, 3]
    assert g.counts.tolist() == [1, 1, 1, 0]
    with pytest.raises(
        InputError,
        match=r"nodes of type 'venue' have no time; pass one or leave the type unweighted",
    ):
        g.period_of("venue")
    with pytest.raises(
        InputError, match=r"pass relation=...; there are author-writes-paper, paper-in-venue"
    ):
        _ = g.edge_index
    with pytest.raises(
        InputError,
        match=r"there is no relation \('a', 'b', 'c'\); choose one of author-writes-paper",
    ):
        g.csr(("a", "b", "c"))


def test_summary_counts():
    summary = graph(y=[0, 1, 2, -1, -1, -1]).summary()
    assert summary.nodes_per_time == [2, 2, 2]
    assert summary.labelled_per_time == [2, 1, 0]
    assert summary.label_counts == [1, 1, 1]
    assert summary.cross_time_share == {"node-to-node": 0.5}
    text = str(summary)
    assert "edges     6 node-to-node, 50.0% between different periods, without timestamps" in text
    assert "labels    3 classes (3 with labels), 3 of 6 nodes" in text
    assert json.loads(json.dumps(summary.__dict__))["times"] == [1, 2, 4]


def test_summary_says_when_edges_came():
    summary = hetero(
        edges={WRITES: {"edge_index": [[0], [0]], "time": [7]}, CITES: [[0], [1]]}
    ).summary()
    assert summary.edge_times == {"author-writes-paper": ("7", "7")}
    assert summary.undated_edges == ["paper-cites-paper"]
    assert "edges     1 author-writes-paper, 0.0% between different periods, dated 7 to 7" in str(
        summary
    )


def test_a_long_summary_is_shortened():
    text = str(TemporalGraph(time=range(40), edge_index=[[], []]).summary())
    assert "..." in text
    assert len(text.splitlines()) < 24


def test_a_graph_is_frozen():
    arguments = parts(edge_weight=np.ones(6), ids=np.arange(6))
    g = TemporalGraph(**arguments)
    with pytest.raises(
        AttributeError, match=r"a TemporalGraph is immutable; create a new one to change target"
    ):
        g.target = "other"
    with pytest.raises(TypeError):
        g.nodes["node"] = None
    with pytest.raises(TypeError):
        g.relations[HOMOGENEOUS] = None
    with pytest.raises(AttributeError):
        g.nodes["node"].x = None
    for view in (g, g.upto(2), g.masked(2), g.undirected(), g.with_features(np.ones((6, 1)))):
        node, relation = view.nodes["node"], view.relations[HOMOGENEOUS]
        for array in (node.x, node.y, node.time, node.ids, relation.edge_index, relation.weight):
            assert not array.flags.writeable
            with pytest.raises(ValueError, match="read-only"):
                array[...] = 0
    for value in arguments.values():
        assert value.flags.writeable  # the user's own arrays stay the user's


@given(st.integers(1, 8), st.integers(0, 30), st.booleans(), st.integers(0, 10**6))
def test_csr_holds_the_edges_in_their_order(num_nodes, num_edges, weighted, seed):
    rng = np.random.default_rng(seed)
    edge_index = rng.integers(0, num_nodes, (2, num_edges))
    weight = rng.random(num_edges).astype(np.float32) if weighted else None
    csr = build_csr(edge_index[0], edge_index[1], num_nodes, num_nodes, weight)
    assert (csr.num_targets, csr.num_edges, csr.num_sources) == (num_nodes, num_edges, num_nodes)
    assert csr.indices.dtype == np.int32
    for v in range(num_nodes):
        into = np.flatnonzero(edge_index[1] == v)
        row = slice(csr.indptr[v], csr.indptr[v + 1])
        assert csr.indices[row].tolist() == edge_index[0, into].tolist()
        if weighted:
            assert csr.weight[row].tolist() == weight[into].tolist()
    assert (csr.weight is None) == (not weighted)


def test_appended_edges_beyond_32_bits():
    first = build_csr(np.array([0]), np.array([0]), 1, 1)
    edges = EdgesByNode(first, np.array([0]), np.array([2**31]))
    assert edges.at(np.array([0])).tolist() == [0, 2**31]
    assert EdgesByNode.of(np.array([0, 0]), 1, first).at(np.array([0])).dtype == np.int32


def test_csr_is_built_once_and_shared_by_views_with_the_same_edges():
    g = graph(edge_weight=np.ones(6, np.float16))
    assert g.csr() is g.csr(HOMOGENEOUS)
    assert g.masked(2).csr() is g.csr()
    assert g.with_features(np.ones((6, 1))).csr() is g.csr()
    assert g.upto(2).csr() is not g.csr()
    assert g.csr().weight.dtype == np.float32


# -- views


def test_upto_is_inclusive_and_keeps_names():
    past = graph(edge_weight=[1, 2, 3, 4, 5, 6], num_labels=5).upto(2)
    assert past.time.tolist() == [1, 1, 2, 2]
    assert past.x.tolist() == parts()["x"][:4].tolist()
    assert past.y.tolist() == [0, 1, 2, 0]
    assert past.edge_index.tolist() == [[0, 1, 2], [1, 2, 0]]
    assert past.edge_weight.tolist() == [1, 2, 3]
    assert past.times.tolist() == [1, 2]
    assert past.num_labels == 5
    assert past.ids.tolist() == [0, 1, 2, 3]


def test_upto_renumbers_and_remembers_positions_through_two_steps():
    g = TemporalGraph(time=[5, 1, 3, 1], edge_index=[[1, 2, 3, 0], [2, 3, 1, 1]])
    once = g.upto(3)
    assert once.ids.tolist() == [1, 2, 3]
    assert once.edge_index.tolist() == [[0, 1, 2], [1, 2, 0]]
    twice = once.upto(1)
    assert twice.ids.tolist() == [1, 3]
    assert twice.edge_index.tolist() == [[1], [0]]
    assert twice.ids.tolist() == g.upto(1).ids.tolist()
    named = TemporalGraph(time=[5, 1], edge_index=[[], []], ids=["new", "old"]).upto(2)
    assert named.ids.tolist() == ["old"]


def test_upto_beyond_the_end_is_everything_and_before_the_start_is_refused():
    assert graph().upto(99).edge_index.tolist() == parts()["edge_index"].tolist()
    with pytest.raises(InputError, match=r"no node is at or before time 0; the first time is 1"):
        graph().upto(0)
    with pytest.raises(InputError, match=r"t=2.5 is not a whole number"):
        graph().upto(2.5)


def test_upto_keeps_untimed_types_and_cuts_timed_ones():
    past = hetero().upto(2)
    assert {kind: part.num_nodes for kind, part in past.nodes.items()} == {
        "paper": 2,
        "author": 1,
        "venue": 1,
    }
    assert past.relations[WRITES].edge_index.tolist() == [[0], [0]]
    assert past.relations[("paper", "in", "venue")].edge_index.tolist() == [[0, 1], [0, 0]]
    assert past.times.tolist() == [1, 2]


def test_upto_may_leave_a_type_empty():
    g = hetero(
        nodes={"paper": {"time": [1, 2]}, "author": {"time": [9]}}, edges={WRITES: [[0], [1]]}
    )
    past = g.upto(2)
    assert past.nodes["author"].num_nodes == 0
    assert past.csr(WRITES).num_edges == 0
    assert past.times.tolist() == [1, 2]


@pytest.mark.parametrize("columns", [False, True])
def test_a_type_without_nodes_is_saved_encoded_and_left_out_of_neighbourhoods(tmp_path, columns):
    x = Columns(pa.table({"age": [3.0]}), {"age": "number"}) if columns else np.ones((1, 2))
    past = hetero(
        nodes={"paper": {"y": [0, 1, 0], "time": [1, 2, 3]}, "author": {"x": x, "time": [3]}},
        edges={WRITES: [[0], [2]]},
    ).upto(2)
    past.save(tmp_path / "past")
    read = load(tmp_path / "past", verify=True)
    assert repr(read) == repr(past)
    assert read.encoded().nodes["author"].num_nodes == 0
    view = read.masked(2).undirected()
    part, _ = neighbourhood(view, np.array([1]), steps=2, both_ways=True)
    assert part.nodes["author"].num_nodes == 0


def test_upto_leaves_out_edges_that_came_later():
    g = graph(edge_time=[4, 1, 2, 3, 4, -7], edge_weight=[1, 2, 3, 4, 5, 6])
    assert g.edge_time.dtype == np.int64
    past = g.upto(2)
    # 0 → 1 came at 4, though both are there from 1 on
    assert past.edge_index.tolist() == [
        [1, 2],
        [2, 0],
    ]
    assert (past.edge_weight.tolist(), past.edge_time.tolist()) == ([2, 3], [1, 2])
    # before both of its nodes were: odd, not refused
    assert g.upto(4).edge_index.tolist() == g.edge_index.tolist()
    assert (
        g.masked(4).edge_time.tolist()
        == g.with_labels(g.y).edge_time.tolist()
        == g.edge_time.tolist()
    )
    with pytest.raises(ValueError, match="read-only"):
        past.edge_time[0] = 5


def test_edges_with_a_time_between_nodes_without():
    nodes = {"paper": {"time": [1, 2, 3]}, "venue": {"num_nodes": 2}}
    edges = {
        ("venue", "near", "venue"): {"edge_index": [[0, 1], [1, 0]], "time": [1, 3]},
        CITES: ([[1], [0]], [2.0]),
    }
    past = hetero(nodes=nodes, edges=edges).undirected().upto(2)
    assert past.relations["venue", "near", "venue"].time.tolist() == [1, 1]
    assert past.relations[CITES].time is None
    assert past.relations[CITES].weight.tolist() == [2, 2]


@pytest.mark.parametrize(
    ("edges", "sentence"),
    [
        (
            {"edge_index": [[0], [0]], "time": [1, 2]},
            "time of author-writes-paper has 2 entries for 1 edges; pass one",
        ),
        (
            {"edge_index": [[0], [0]], "time": [0.5]},
            "time of author-writes-paper must be whole numbers",
        ),
        ({"edge_index": [[0], [0]], "time": [np.nan]}, r"is missing \(NaN\) at 1 of 1 positions"),
        (
            {"edge_index": [[0], [0]], "times": [1]},
            "have unknown entries times; use edge_index, weight, time",
        ),
        ({"time": [1]}, "author-writes-paper is missing; pass an array"),
    ],
)
def test_bad_edge_times_are_refused(edges, sentence):
    with pytest.raises(InputError, match=sentence):
        hetero(edges={WRITES: edges})


def test_the_digest_knows_edge_times():
    digests = [
        graph_digest(graph(edge_time=time))
        for time in (None, [1, 1, 2, 2, 4, 4], [1, 1, 2, 2, 4, 5])
    ]
    assert len(set(digests)) == 3


def test_masked_hides_labels_at_and_after_the_cutoff():
    g = graph()
    view = g.masked(2)
    assert view.y.tolist() == [0, 1, -1, -1, -1, -1]
    assert g.y.tolist() == [0, 1, 2, 0, 1, 1]
    assert (view.cutoff, view.num_labels) == (2, 2)
    assert view.targets().tolist() == [False, False, True, True, True, True]
    assert "cutoff 2" in repr(view)
    assert "cutoff    2" in str(view.summary())
    assert view.masked(4).y.tolist() == view.y.tolist()  # hidden labels stay hidden
    for derived in (view.undirected(), view.with_features(np.ones((6, 1))), view.upto(2)):
        assert derived.cutoff == 2
        assert (derived.y[derived.targets()] == -1).all()


def test_a_view_has_the_visible_classes():
    """By name, at any position; a class without a name is its number.

    A view of a view retains its own.
    """
    named = graph(y=[2, 3, 2, 0, 1, 1], label_names=["a", "b", "c", "d", "e"])
    view = named.masked(4)
    assert (view.label_names, view.num_labels, view.y.tolist()) == (
        ("a", "c", "d"),
        3,
        [1, 2, 1, 0, -1, -1],
    )
    assert view.masked(2).label_names == view.label_names
    assert view.masked(2).with_visible_classes().label_names == ("c", "d")
    assert named.label_names == ("a", "b", "c", "d", "e")
    numbered = graph(y=[0, 2, 2, 0, 4, 1], num_labels=9).masked(4)
    assert (numbered.num_labels, numbered.y.tolist()) == (3, [0, 2, 2, 0, -1, -1])


def test_the_truth_is_not_reachable_from_a_masked_view():
    hidden = np.array([0, 0, 0, 0, 77, 77])
    view = graph(y=hidden).masked(4)
    visited, todo = set(), [view]
    while todo:
        thing = todo.pop()
        if id(thing) in visited:
            continue
        visited.add(id(thing))
        if isinstance(thing, np.ndarray):
            assert not (thing == 77).any()
            todo.append(thing.base)
        elif hasattr(thing, "items"):
            todo.extend(thing.values())
        elif isinstance(thing, (list, tuple)):
            todo.extend(thing)
        elif hasattr(thing, "__dict__"):
            todo.extend(vars(thing).values())
    assert len(visited) > 8


def test_masked_hides_labels_of_other_timed_types_too():
    nodes = {"paper": {"y": [0, 1, 1], "time": [1, 2, 3]}, "author": {"y": [0, 1], "time": [1, 3]}}
    view = hetero(nodes=nodes, edges={WRITES: [[0], [0]]}).masked(3)
    assert view.nodes["author"].y.tolist() == [0, -1]


@pytest.mark.parametrize(
    ("changes", "cutoff", "sentence"),
    [
        (
            {"time": [3] * 6},
            3,
            r"all nodes have the same time \(3\); a chronological split needs at least two periods",
        ),
        (
            {},
            5,
            r"no node is at or after cutoff=5 \(the last time is 4\), .* choose a cutoff of at "
            r"most 4",
        ),
        (
            {},
            1,
            r"no node before cutoff=1 has a label, so there is nothing to learn from; choose a "
            r"later cutoff",
        ),
        ({"y": [-1, -1, 0, 0, 0, 0]}, 2, r"no node before cutoff=2 has a label"),
        ({"y": None}, 2, r"no node before cutoff=2 has a label"),
        ({}, 2.5, r"cutoff=2.5 is not a whole number; pass an integer"),
        ({}, "July", r"cutoff='July' is not a time of this graph; its times are numbers: 1 to"),
        ({}, None, r"cutoff is missing"),
    ],
)
def test_a_split_that_cannot_be_learned_from_is_refused(changes, cutoff, sentence):
    with pytest.raises(InputError, match=sentence):
        graph(**changes).masked(cutoff)


def test_targets_need_a_cutoff():
    assert graph().targets(4).tolist() == [False] * 4 + [True] * 2
    with pytest.raises(
        InputError, match=r"this graph has no cutoff; pass one or use masked\(cutoff\)"
    ):
        graph().targets()


@pytest.mark.parametrize(
    ("label", "cutoff"),
    [
        ([0, 1, 2, 0, 1, 1], 4),
        ([0, 1, 2, 0, -1, -1], 4),
        ([0, 1, -1, -1, -1, -1], 2),
        ([-1, 0, -1, -1, 1, -1], 4),
    ],
)
def test_infer_cutoff(label, cutoff):
    assert graph(y=label).infer_cutoff() == cutoff
    assert graph(y=label).masked(cutoff).targets().any()


def test_infer_cutoff_looks_at_the_target_type_only():
    nodes = {"paper": {"y": [0, 1, 1], "time": [1, 2, 3]}, "author": {"time": [9]}}
    g = hetero(nodes=nodes, edges={WRITES: [[0], [0]]})
    assert g.infer_cutoff() == 3
    assert g.masked(g.infer_cutoff()).targets().sum() == 1


@pytest.mark.parametrize("label", [None, [-1] * 6])
def test_infer_cutoff_needs_labels(label):
    with pytest.raises(
        InputError,
        match=r"no node has a label, so no cutoff can be inferred; pass labels for the past",
    ):
        graph(y=label).infer_cutoff()


def pairs(edge_index, weight=None):
    weight = np.ones(edge_index.shape[1]) if weight is None else weight
    return sorted(zip(*edge_index.tolist(), weight.tolist(), strict=True))


def test_undirected_has_every_edge_once_in_both_directions():
    g = TemporalGraph(time=[0, 1, 2], edge_index=[[0, 1, 1, 2], [1, 0, 2, 2]])
    assert pairs(g.undirected().edge_index) == [
        (0, 1, 1),
        (1, 0, 1),
        (1, 2, 1),
        (2, 1, 1),
        (2, 2, 1),
    ]
    once = g.undirected()
    assert pairs(once.undirected().edge_index) == pairs(once.edge_index)


def test_undirected_adds_weights_up():
    weight = np.array([1, 2, 4, 8], np.float32)
    g = TemporalGraph(time=[0, 1, 2], edge_index=[[0, 1, 1, 2], [1, 0, 2, 2]], edge_weight=weight)
    result = g.undirected()
    assert pairs(result.edge_index, result.edge_weight) == [
        (0, 1, 3),
        (1, 0, 3),
        (1, 2, 4),
        (2, 1, 4),
        (2, 2, 8),
    ]
    assert result.edge_weight.dtype == np.float32


def test_undirected_keeps_the_earliest_time():
    """So that an undirected graph without weights is cut as its edges would have been."""
    rng = np.random.default_rng(0)
    ends, came = rng.integers(0, 12, (2, 200)), rng.integers(0, 9, 200)
    g = TemporalGraph(time=rng.integers(0, 4, 12), edge_index=ends, edge_time=came)
    both = g.undirected()
    first = {}
    for u, v, t in zip(*ends.tolist(), came.tolist(), strict=True):
        for pair in ((u, v), (v, u)):
            first[pair] = min(first.get(pair, 99), t)
    assert (
        dict(zip(zip(*both.edge_index.tolist(), strict=True), both.edge_time.tolist(), strict=True))
        == first
    )
    for t in (3, 5, 8):
        assert both.upto(t).edge_index.tolist() == g.upto(t).undirected().edge_index.tolist()
        assert both.upto(t).edge_time.tolist() == g.upto(t).undirected().edge_time.tolist()


def test_undirected_between_types_adds_the_way_back_once():
    result = hetero(edges={WRITES: [[0, 1, 1], [0, 1, 2]], CITES: [[0], [1]]}).undirected()
    back = ("paper", "rev_writes", "author")
    assert list(result.relations) == [WRITES, back, CITES]
    assert result.relations[back].edge_index.tolist() == [[0, 1, 2], [0, 1, 1]]
    assert result.relations[CITES].num_edges == 2
    assert set(result.undirected().relations) == set(result.relations)


def test_with_features_changes_the_target_type_only():
    g = hetero()
    result = g.with_features(np.zeros((3, 7), np.float32))
    assert result.x.shape == (3, 7)
    assert g.x.shape == (3, 2)
    with pytest.raises(InputError, match=r"x has 2 rows for 3 nodes"):
        g.with_features(np.zeros((2, 7)))
