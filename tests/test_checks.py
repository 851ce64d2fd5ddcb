"""Input checks: each accepts valid values and refuses the rest with one useful sentence."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import impact_gnn as ig
from impact_gnn import checks
from impact_gnn.checks import InputError


class Loud:
    """An object that cannot be converted to an array."""

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("not\nnow")


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (None, r"x is missing; pass an array"),
        (
            [[1, 2], [3]],
            r"x cannot be read as an array \(.*inhomogeneous.*\); pass a numpy array",
        ),
        (Loud(), r"x cannot be read as an array \(not now\); pass a numpy array"),
        (
            np.array([1, "a"], object),
            r"x is an array of Python objects; convert it to numbers or text with .astype",
        ),
        ([10**30], r"x is an array of Python objects"),
        ([{}], r"x is an array of Python objects"),
        (
            np.ma.masked_less([1, 2, 3], 2),
            r"x has 1 masked entries; fill or drop them first",
        ),
        (torch.ones(2, device="meta"), r"x cannot be read as an array"),
    ],
)
def test_array_refuses(value, sentence):
    with pytest.raises(InputError, match=sentence):
        checks.array("x", value)


def test_array_takes_tensors_and_foreign_byte_order():
    checked = checks.array("x", torch.ones(2, requires_grad=True))
    assert checked.tolist() == [1, 1]
    checked = checks.array("x", np.array([1, 2], ">i4"))
    assert checked.dtype.isnative
    assert checked.tolist() == [1, 2]
    assert checks.array("x", np.ma.array([1, 2])).tolist() == [1, 2]


def test_a_memory_map_is_not_copied(tmp_path):
    np.save(tmp_path / "x.npy", np.ones((4, 2), np.float32))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert np.shares_memory(checks.features("x", mapped, 4), mapped)


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (
            [0.0, 1.5],
            r"time must be whole numbers, but position 1 is 1.5; bin or round them first",
        ),
        ([0.0, np.inf], r"time must be whole numbers, but position 1 is inf"),
        (
            [np.nan, 1, np.nan],
            r"time is missing \(NaN\) at 2 of 3 positions, first at 0; fill in",
        ),
        ([[1, 2], [3, 4]], r"time has shape \(2, 2\); expected 1 dimension"),
        (7, r"time has shape \(\); expected 1 dimension"),
        ([True, False], r"time has dtype bool; use whole numbers"),
        (["a"], r"time has dtype <U1; use whole numbers"),
        ([1j], r"time has dtype complex128; use whole numbers"),
        (
            np.array(["2020-01-01"], "M8[D]"),
            r"time has dtype datetime64\[D\]; use whole numbers",
        ),
        (
            [2**63],
            r"time contains 9223372036854775808, which does not fit into a 64-bit integer; use "
            r"smaller",
        ),
        (
            [2.0**63],
            r"time contains 9.2\d+e\+18, which does not fit into a 64-bit integer",
        ),
        ([-(2.0**64)], r"which does not fit into a 64-bit integer"),
    ],
)
def test_whole_numbers_refuse(value, sentence):
    with pytest.raises(InputError, match=sentence):
        checks.whole_numbers("time", value)


@given(
    st.lists(st.integers(-(2**53), 2**53), max_size=20),
    st.sampled_from(["i8", "f8", ">i8", "column", "torch"]),
)
def test_whole_numbers_come_through_unchanged(values, form):
    if form == "column":
        values_in = np.array(values, np.int64).reshape(-1, 1)
    elif form == "torch":
        values_in = torch.tensor(values, dtype=torch.int64)
    else:
        values_in = np.array(values, form)
    checked = checks.whole_numbers("time", values_in)
    assert checked.dtype == np.int64
    assert checked.tolist() == values


@pytest.mark.parametrize("value", [3, 3.0, np.int8(3), np.float32(3), np.array(3), torch.tensor(3)])
def test_whole_number(value):
    checked = checks.whole_number("cutoff", value)
    assert checked == 3
    assert type(checked) is int


@pytest.mark.parametrize(
    "value", [2.5, np.nan, np.inf, -np.inf, "3", [3], True, 3j, np.datetime64("2020"), b"3"]
)
def test_whole_number_refuses(value):
    with pytest.raises(InputError, match=r"cutoff=.* is not a whole number; pass an integer"):
        checks.whole_number("cutoff", value)


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (
            np.ones(3),
            r"x has shape \(3,\); expected one row per node and one column per feature \[N, f\]",
        ),
        (np.ones((3, 1, 1)), r"x has shape \(3, 1, 1\); expected a matrix \[N, f\]"),
        (np.ones((2, 2)), r"x has 2 rows for 3 nodes; pass one row per node"),
        (np.ones((3, 2), complex), r"x has dtype complex128; use numbers"),
        (np.full((3, 2), "a"), r"x has dtype <U1; use numbers"),
        (
            np.zeros((3, 2), [("a", int)]),
            r"x has dtype \[\('a', '<i8'\)\]; use numbers",
        ),
    ],
)
def test_features_refuse(value, sentence):
    with pytest.raises(InputError, match=sentence):
        checks.features("x", value, 3)


@pytest.mark.parametrize("size", [10, checks.BLOCK])
def test_bad_features_are_located(size):
    x = np.ones((size, 3), np.float16)  # the larger one is looked at in three blocks
    x[4, 2] = x[size - 3, 2] = np.nan
    x[size - 2, 0] = np.inf
    sentence = (
        r"x contains 3 NaN or infinite values \(column 2 has 2 of them, the first in row "
        r"4\); fill or drop them"
    )
    with pytest.raises(InputError, match=sentence):
        checks.features("x", x, size)


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        ("f2", "f2"),
        ("f4", "f4"),
        ("f8", "f8"),
        ("i8", "f4"),
        ("?", "f4"),
        ("g", "f8"),
        (">f4", "f4"),
    ],
)
def test_types_of_features(dtype, expected):
    checked = checks.features("x", np.ones((3, 2), dtype), 3)
    assert checked.dtype == np.dtype(expected)
    assert checked.dtype.isnative


@pytest.mark.parametrize(
    ("value", "num_labels", "sentence"),
    [
        (
            [0, 1],
            None,
            r"y has 2 entries for 3 nodes; pass one per node, -1 for unknown",
        ),
        (
            [0, -2, 1],
            None,
            r"y is -2 at node 1; use 0, 1, 2, ... for classes and -1 for unknown",
        ),
        (
            [0, 1, 4],
            3,
            r"y is 4 at node 2, but there are 3 classes; labels run from 0 to 2",
        ),
        (
            [0, 10**9, 4],
            None,
            r"y is 1000000000 at node 1; number the classes 0, 1, 2, ... \(at most",
        ),
        ([0, 0.5, 4], None, r"y must be whole numbers, but position 1 is 0.5"),
        ([0, np.inf, 4], None, r"y must be whole numbers, but position 1 is inf"),
        ([True, False, True], None, r"y has dtype bool; use whole numbers"),
    ],
)
def test_labels_refuse(value, num_labels, sentence):
    with pytest.raises(InputError, match=sentence):
        checks.labels("y", value, 3, num_labels)


def test_missing_labels_are_unknown():
    assert checks.labels("y", [0.0, np.nan, 2.0], 3).tolist() == [0, -1, 2]
    assert checks.labels("y", np.array([[1], [-1]]), 2).tolist() == [1, -1]


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ([0, 1], r"time has 2 entries for 3 nodes; pass one time per node"),
        (
            [0, 2**62 + 2, -1],
            r"time ranges from -1 to 4611686018427387906, too wide for 64-bit differences; bin it",
        ),
    ],
)
def test_node_times_refuse(value, sentence):
    with pytest.raises(InputError, match=sentence):
        checks.node_times("time", value, 3)


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (
            np.zeros((3, 2), int),
            r"edges has shape \(3, 2\); expected sources and targets as two rows .*; transpose it",
        ),
        (
            np.zeros(4, int),
            r"edges has shape \(4,\); expected sources and targets as two rows \[2, E\]\.",
        ),
        (
            [[0, 1, 5], [0, 1, 2]],
            r"edges refers to a missing node: edge 2 has source 5, but there are 3 such nodes \(0 "
            r"to 2\); remove",
        ),
        (
            [[0, 1, 0], [0, -1, -2]],
            r"edge 1 has target -1, but there are 4 such nodes \(0 to 3\)",
        ),
        ([[0, 0], [4, 9]], r"edge 0 has target 4"),
        ([[0.5], [0]], r"edges must be whole numbers, but position 0 is 0.5"),
        ([["a"], ["b"]], r"edges has dtype <U1; use whole numbers"),
        ([[True], [False]], r"edges has dtype bool"),
        (np.array([[2**63], [0]], np.uint64), r"edge 0 has source 9223372036854775808"),
    ],
)
def test_edges_refuse(value, sentence):
    with pytest.raises(InputError, match=sentence):
        checks.edges("edges", value, 3, 4)


@pytest.mark.parametrize(
    ("dtype", "expected"), [("i4", "i4"), ("i8", "i8"), ("u1", "i8"), ("i2", "i8"), ("f8", "i8")]
)
def test_types_of_edges(dtype, expected):
    assert checks.edges("edges", np.array([[0], [1]], dtype), 3, 3).dtype == np.dtype(expected)


def test_no_edges_are_fine():
    for empty in ([[], []], np.zeros((2, 0), np.uint8), torch.zeros(2, 0)):
        assert checks.edges("edges", empty, 3, 3).shape == (2, 0)


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ([1.0], r"weight has shape \(1,\) for 2 edges; pass one weight per edge"),
        (
            [1.0, -0.5],
            r"weight is negative \(-0.5\) at edge 1; weights must be zero or more",
        ),
        ([1.0, np.nan], r"weight contains 1 NaN or infinite values \(the first in row 1\)"),
        (["a", "b"], r"weight has dtype <U1; use numbers"),
        ([1j, 1], r"weight has dtype complex128; use numbers"),
    ],
)
def test_edge_weights_refuse(value, sentence):
    with pytest.raises(InputError, match=sentence):
        checks.edge_weights("weight", value, 2)


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [("f2", "f4"), ("f4", "f4"), ("f8", "f8"), ("i8", "f4"), ("?", "f4"), ("g", "f8")],
)
def test_types_of_edge_weights(dtype, expected):
    assert checks.edge_weights("weight", np.ones((2, 1), dtype), 2).dtype == np.dtype(expected)


def test_distinct_names_the_first_that_repeats():
    checks.distinct("ids", np.array(["a", "b"]))
    with pytest.raises(
        InputError, match=r"ids has 3 duplicate ids, first z \(2 times\); keep one row per node"
    ):
        checks.distinct("ids", np.array(["c", "z", "z", "a", "a", "a"]))


def test_choice_lists_what_there_is():
    assert checks.choice("map", "eigen", ["eigen", "transport"]) == "eigen"
    for wrong in ("other", None, 3, ["eigen"]):
        with pytest.raises(
            InputError, match=r"map=.* is not valid; choose one of 'eigen', 'transport'"
        ):
            checks.choice("map", wrong, ["eigen", "transport"])


def test_listing_is_short():
    assert checks.listing([1, 2]) == "1, 2"
    assert checks.listing(list(range(9)), most=3) == "0, 1, 2 and 6 more"


@pytest.mark.parametrize(
    ("value", "sentence"), [(-1, "num_labels=-1 is out of range"), (2**40, "at most 16777216")]
)
def test_class_count_refuses(value, sentence):
    with pytest.raises(InputError, match=sentence):
        checks.class_count(value)


def test_refusals_are_one_sentence():
    with pytest.raises(InputError) as caught:
        checks.array("x", [[1, 2], [3]])
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(".")


def test_a_misspelt_option_is_refused_with_those_there_are(tmp_path):
    graph = ig.tsbm(num_nodes=60, num_times=4, num_labels=2, seed=0)
    with pytest.raises(
        ig.InputError, match=r"run has no option 'metrics'; choose among .*'metric'"
    ):
        ig.run(graph, tmp_path / "out", metrics="auroc")
    assert not (tmp_path / "out").exists()
    nodes = {"id": [1, 2], "time": [1, 2]}
    with pytest.raises(ig.InputError, match=r"from_tables has no option 'labels'; .*'label'"):
        ig.from_tables(nodes, {"source": [1], "target": [2]}, labels="topic")
