"""Validation of graphs: refusals and their sentences, and arbitrary garbage."""

import contextlib
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from graphs import CITES, WRITES, graph, hetero, parts
from impact_gnn.checks import InputError
from impact_gnn.graph import TemporalGraph


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"x": np.ones(6)},
            r"x has shape \(6,\); expected one row per node and one column per feature",
        ),
        ({"x": np.ones((5, 2))}, r"x has 5 rows for 6 nodes; pass one row per node"),
        (
            {"y": [0, 1]},
            r"y has 2 entries for 6 nodes; pass one per node, -1 for unknown",
        ),
        ({"time": np.zeros((6, 2))}, r"time has shape \(6, 2\); expected 1 dimension"),
        ({"time": 3}, r"time is a single value; pass one entry per node"),
        ({"time": None}, r"time is missing; pass one whole number per node"),
        (
            {"time": None, "x": None, "y": None},
            r"time is missing; pass one whole number per node",
        ),
        (
            {"time": [1, 1, 2, 2, 4, np.nan]},
            r"time is missing \(NaN\) at 1 of 6 positions, first at 5; fill",
        ),
        (
            {"time": [1, 1, 2, 2, 4, 4.5]},
            r"time must be whole numbers, but position 5 is 4.5; bin or round",
        ),
        ({"time": list("abcdef")}, r"time has dtype <U1; use whole numbers"),
        (
            {"time": np.array([1] * 6, object)},
            r"time is an array of Python objects; convert it",
        ),
        (
            {"time": np.array([2**63] * 6, np.uint64)},
            r"time contains 9223372036854775808, which does not fit",
        ),
        (
            {"time": [0, 0, 0, 0, -(2**62), 2**62]},
            r"time ranges from -\d+ to \d+, too wide for 64-bit differences; bin",
        ),
        ({"edge_index": None}, r"edge_index is missing; pass an array"),
        (
            {"edge_index": np.zeros((3, 2), int)},
            r"edge_index has shape \(3, 2\); .*two rows \[2, E\]; transpose it",
        ),
        (
            {"edge_index": [[0, 6], [1, 1]]},
            r"edge_index refers to a missing node: edge 1 has source 6, but",
        ),
        (
            {"edge_index": [[0, 1], [-1, 1]]},
            r"edge 0 has target -1, .*remove the edge or add the node",
        ),
        (
            {"edge_weight": [1.0]},
            r"weight of edge_index has shape \(1,\) for 6 edges; pass one weight per edge",
        ),
        (
            {"edge_weight": [1, 1, 1, 1, 1, -1]},
            r"weight of edge_index is negative \(-1.0\) at edge 5",
        ),
        (
            {"x": np.full((6, 2), np.nan)},
            r"x contains 12 NaN or infinite values \(column 0 has 6 of them, the first in",
        ),
        (
            {"y": [0, 1, 2, 0, 5, 1], "num_labels": 3},
            r"y is 5 at node 4, but there are 3 classes; labels run",
        ),
        (
            {"y": [0, 1, 2, 0, -3, 1]},
            r"y is -3 at node 4; use 0, 1, 2, ... for classes and -1 for unknown",
        ),
        (
            {"ids": ["a", "b", "c", "d", "e", "a"]},
            r"ids has 1 duplicate ids, first a \(2 times\); keep one row",
        ),
        ({"ids": [1, 2]}, r"ids has shape \(2,\) for 6 nodes; pass one id per node"),
        ({"num_labels": 2.5}, r"num_labels=2.5 is not a whole number"),
        ({"num_labels": -1, "y": None}, r"num_labels=-1 is out of range"),
        (
            {"label_names": ["a"]},
            r"y contains 2, but there are 1 classes; labels run from 0 to 0",
        ),
        (
            {"label_names": ["a", "b", "c"], "num_labels": 4},
            r"label_names has 3 names for 4 classes; pass one",
        ),
        (
            {"label_names": "abc"},
            r"label_names is a str; pass a list with one name per class",
        ),
        (
            {"label_names": 7},
            r"label_names is a int; pass a list with one name per class",
        ),
        (
            {"x": None, "y": None, "time": [], "edge_index": np.zeros((2, 0), int)},
            r"the graph has no nodes; pass at least one",
        ),
    ],
)
def test_bad_graphs_are_refused(changes, sentence):
    with pytest.raises(InputError, match=sentence):
        graph(**changes)


PAPER = {"time": [1, 2, 3]}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"nodes": {}}, r"nodes must be a mapping from node type to its arrays"),
        ({"nodes": [1]}, r"nodes must be a mapping"),
        ({"nodes": {1: PAPER}}, r"nodes must be a mapping"),
        (
            {"nodes": {"paper": [1]}, "edges": {CITES: [[0], [0]]}},
            r"nodes\['paper'\] is a list; pass a mapping",
        ),
        (
            {"nodes": {"paper": {"times": [1]}}},
            r"nodes\['paper'\] has unknown entries times; use x, y, time, ids",
        ),
        (
            {"nodes": {"paper": PAPER, "venue": {}}},
            r"nodes\['venue'\] has no size; pass num_nodes, x or time",
        ),
        (
            {"nodes": {"paper": {"num_nodes": 0}, "venue": {"num_nodes": 0}}},
            r"the graph has no nodes of type 'paper'; pass",
        ),
        (
            {"nodes": {"paper": PAPER, "venue": {"num_nodes": -1}}},
            r"the graph has no nodes of type 'venue'; pass",
        ),
        (
            {"nodes": {"paper": PAPER, "venue": {"num_nodes": 0, "time": [3]}}},
            r"venue.time has 1 entries for 0 nodes; pass one time per node",
        ),
        (
            {"nodes": {"paper": PAPER, "venue": {"num_nodes": "3"}}},
            r"venue.num_nodes='3' is not a whole number",
        ),
        (
            {"nodes": {"paper": PAPER, "venue": {"x": [1, 2]}}},
            r"venue.x has shape \(2,\); expected one row per node",
        ),
        (
            {"nodes": {"paper": {"num_nodes": 3}}, "edges": {CITES: [[0], [0]]}},
            r"the target type 'paper' has no time",
        ),
        (
            {"target": "book"},
            r"target='book' is not a node type; choose one of paper, author, venue",
        ),
        ({"target": ["paper"]}, r"target=\['paper'\] is not a node type"),
        ({"edges": {}}, r"edges is empty; pass at least one relation"),
        ({"edges": [CITES]}, r"edges is empty; pass at least one relation"),
        (
            {"edges": {"cites": [[0], [0]]}},
            r"'cites' does not name a relation; write \(source type, name, target",
        ),
        (
            {"edges": {("paper", "cites", "book"): [[0], [0]]}},
            r"does not name a relation; .*types among paper, author",
        ),
        ({"edges": {("paper", 3, "paper"): [[0], [0]]}}, r"does not name a relation"),
        (
            {"edges": {WRITES: [[2], [0]]}},
            r"author-writes-paper refers to a missing node: edge 0 has source 2, .* 2",
        ),
        (
            {"edges": {WRITES: ([[0], [0]], [-1.0])}},
            r"weight of author-writes-paper is negative",
        ),
        ({"num_labels": 1}, r"paper.y is 1 at node 1, but there are 1 classes"),
    ],
)
def test_bad_hetero_graphs_are_refused(options, sentence):
    with pytest.raises(InputError, match=sentence):
        hetero(**options)


SCALARS = st.one_of(
    [
        st.none(),
        st.booleans(),
        st.integers(-3, 9),
        st.integers(),
        st.floats(),
        st.text(max_size=3),
        st.binary(max_size=3),
        st.complex_numbers(),
        st.just(10**30),
        st.just({}),
    ]
)
LISTS = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4), max_leaves=12)
DTYPES = st.one_of(
    hnp.scalar_dtypes(),
    hnp.array_dtypes(max_size=2),
    st.sampled_from([np.dtype("i8"), np.dtype("f8"), np.dtype("f2"), np.dtype(">i4")]),
)
SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)
ARRAYS = st.one_of(
    DTYPES.flatmap(lambda dtype: hnp.arrays(dtype, SHAPES)),
    hnp.arrays(object, SHAPES, elements=SCALARS),
    st.just(np.zeros(6, "V3")),
)
TENSORS = hnp.arrays(
    st.sampled_from([np.int64, np.float32, np.uint8, np.bool_, np.complex64]),
    hnp.array_shapes(min_dims=0, max_side=3),
).map(torch.from_numpy)
GARBAGE = st.one_of(SCALARS, LISTS, ARRAYS, TENSORS)


def or_garbage(value):
    """Mostly valid values, so that checks of later arguments are reached."""
    return st.one_of(st.just(value), st.just(value), GARBAGE)


def valid_or_refused(make):
    """Any input gives a consistent graph or an InputError of one sentence."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        refusal = ""
        try:
            accepted = make()
        except InputError as error:
            refusal = str(error)
    if refusal:
        assert "\n" not in refusal
        assert refusal.endswith(".")
        return
    assert accepted.num_nodes == len(accepted.time) == accepted.counts.sum()
    assert accepted.time.dtype == np.int64
    assert accepted.x is None or (
        accepted.x.shape[0] == accepted.num_nodes and np.isfinite(accepted.x).all()
    )
    assert accepted.y is None or (accepted.y.min() >= -1 and accepted.y.max() < accepted.num_labels)
    for triple in accepted.relations:
        csr = accepted.csr(triple)
        assert csr.indptr[-1] == accepted.relations[triple].num_edges
    assert str(accepted.summary())
    assert repr(accepted)


@settings(max_examples=300)
@given(
    st.fixed_dictionaries(
        {
            "x": or_garbage(parts()["x"]),
            "y": or_garbage(parts()["y"]),
            "time": or_garbage(parts()["time"]),
            "edge_index": or_garbage(parts()["edge_index"]),
            "edge_weight": or_garbage(None),
            "num_labels": or_garbage(None),
            "ids": or_garbage(None),
            "label_names": or_garbage(None),
        }
    )
)
def test_garbage_gives_a_graph_or_a_refusal(arguments):
    valid_or_refused(lambda: TemporalGraph(**arguments))


NAMES = st.one_of(
    st.sampled_from(["paper", "author"]), st.integers(), st.text(max_size=2), st.none()
)


@settings(max_examples=200)
@given(
    or_garbage({"x": np.ones((3, 2)), "time": [1, 2, 3]}),
    st.one_of(
        st.dictionaries(
            st.one_of(st.sampled_from(["x", "y", "time", "ids", "num_nodes"]), NAMES),
            GARBAGE,
            max_size=3,
        ),
        st.just({"num_nodes": 2}),
        GARBAGE,
    ),
    st.one_of(
        st.dictionaries(
            st.one_of(st.just(WRITES), st.just(CITES), st.tuples(NAMES, NAMES, NAMES), NAMES),
            st.one_of(st.just([[0], [0]]), st.tuples(st.just([[0], [0]]), GARBAGE), GARBAGE),
            max_size=3,
        ),
        GARBAGE,
    ),
    st.one_of(st.just("paper"), GARBAGE),
)
def test_garbage_gives_a_hetero_graph_or_a_refusal(paper, author, edges, target):
    nodes = {"paper": paper, "author": author}
    valid_or_refused(lambda: TemporalGraph.hetero(nodes=nodes, edges=edges, target=target))


@settings(max_examples=100)
@given(GARBAGE)
def test_garbage_for_nodes_is_refused(garbage):
    with pytest.raises(InputError):
        TemporalGraph.hetero(nodes=garbage, edges={CITES: [[0], [0]]}, target="paper")


@pytest.mark.parametrize("time", ["-+5", "\u00b2", "0 1", ""])
def test_text_that_only_looks_like_a_number_is_no_time(time):
    with pytest.raises(InputError, match="is not a time of this graph"):
        graph().upto(time)
    assert graph().upto(" +2\x1f").times.max() == graph().upto(2).times.max()


@settings(max_examples=100)
@given(GARBAGE)
def test_garbage_for_a_view_is_refused_or_fits(garbage):
    g = graph()
    for view in (g.upto, g.masked, g.targets, g.with_features):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with contextlib.suppress(InputError):
                assert view(garbage) is not None


def test_tensors_are_taken_as_they_are():
    tensors = {name: torch.from_numpy(value) for name, value in parts().items()}
    g = TemporalGraph(**tensors)
    for name in ("x", "y", "time", "edge_index"):
        assert np.shares_memory(getattr(g, name), parts_of(tensors, name))
        np.testing.assert_array_equal(getattr(g, name), parts()[name])


def parts_of(tensors, name):
    return tensors[name].numpy()


def test_names_of_relations_that_collide_are_refused():
    nodes = {"a": {"num_nodes": 1}, "a-b": {"num_nodes": 1}, "t": {"time": [0], "y": [0]}}
    edges = {("a", "b-c", "t"): [[0], [0]], ("a-b", "c", "t"): [[0], [0]]}
    with pytest.raises(InputError, match="two relations have the name 'a-b-c-t'"):
        TemporalGraph.hetero(nodes=nodes, edges=edges, target="t")
