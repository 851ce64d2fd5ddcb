"""The kernel equals naive loops: same bits for any threads and slices, exact adjoint."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from impact_gnn.checks import InputError
from impact_gnn.engines import Memory
from impact_gnn.engines import operator as passes
from impact_gnn.engines.operator import NORMS, Operator
from impact_gnn.graph import CSR, TemporalGraph, build_csr
from impact_gnn.graph.csr import merged
from paper_propagation import grouped_by_target, message_matrix

TOLERANCE = {np.float16: 2e-3, np.float32: 2e-6, np.float64: 1e-13}


def a_graph(num_sources=30, num_targets=30, edges=120, periods=4, seed=0, hub=0):
    """Random edges (targets 0 and 1 have none), periods and table.

    `hub` more edges end at target 2.
    """
    rng = np.random.default_rng(seed)
    source = rng.integers(0, num_sources, edges + hub)
    target = np.concatenate([rng.integers(2, num_targets, edges), np.full(hub, 2)])
    table = rng.random((periods, periods)) * (rng.random((periods, periods)) < 0.8)
    return {
        "source": source,
        "target": target,
        "num_sources": num_sources,
        "num_targets": num_targets,
        "table": table,
        "source_period": rng.integers(0, periods, num_sources),
        "target_period": rng.integers(0, periods, num_targets),
    }


def operator_of(graph, weight=None, **options):
    csr = build_csr(*(graph[k] for k in ("source", "target", "num_sources", "num_targets")), weight)
    return Operator(csr, graph["table"], graph["source_period"], graph["target_period"], **options)


def features(graph, columns=7, dtype=np.float64, seed=1):
    return (
        np.random.default_rng(seed).standard_normal((graph["num_sources"], columns)).astype(dtype)
    )


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("self_loop", [False, True])
@pytest.mark.parametrize("norm", NORMS)
def test_apply_is_the_naive_sum(norm, self_loop, weighted, dtype):
    graph = a_graph(hub=700)
    weight = np.random.default_rng(2).random(820).astype(np.float32) if weighted else None
    x = features(graph, 85, dtype)
    result = operator_of(graph, weight, norm=norm, self_loop=self_loop).apply(x)
    matrix = message_matrix(**graph, weight=weight, norm=norm, self_loop=self_loop)
    want = matrix @ x.astype(np.float64)
    assert result.dtype == dtype
    scale = np.abs(matrix) @ np.abs(x.astype(np.float64))
    assert (np.abs(result - want) <= TOLERANCE[dtype] * (scale + 1e-3)).all()
    if not self_loop:
        assert not result[:2].any()  # nothing comes in: zeros, not NaN


@settings(max_examples=150, deadline=None)
@given(
    sizes=st.tuples(st.integers(1, 12), st.integers(1, 12)),
    square=st.booleans(),
    edges=st.integers(0, 60),
    columns=st.integers(1, 22),
    norm=st.sampled_from(NORMS),
    self_loop=st.booleans(),
    weighted=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_random_graphs(sizes, square, edges, columns, norm, self_loop, weighted, seed):
    rng = np.random.default_rng(seed)
    num_sources, num_targets = (sizes[0], sizes[0]) if square else sizes
    same = num_sources == num_targets
    norm, self_loop = norm if same else "mean", self_loop and same
    graph = a_graph(num_sources, max(num_targets, 1), 0, periods=3, seed=seed)
    graph |= {
        "source": rng.integers(0, num_sources, edges),
        "target": rng.integers(0, num_targets, edges),
    }
    weight = rng.integers(0, 3, edges).astype(np.float32) if weighted else None
    x = features(graph, columns, seed=seed)
    options = {"norm": norm, "self_loop": self_loop}
    result = operator_of(graph, weight, **options).apply(x)
    matrix = message_matrix(**graph, weight=weight, **options)
    np.testing.assert_allclose(result, matrix @ x, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("task", [1 << 6, 1 << 12, 1 << 23])
def test_same_bits_for_any_number_of_threads(monkeypatch, task, dtype):
    graph = a_graph(200, 200, 3000, hub=1500)
    x = features(graph, 133, dtype)
    one = operator_of(graph).apply(x, threads=1)
    monkeypatch.setattr(passes, "TASK", task)
    for threads in (1, 2, 3, 7):
        assert np.array_equal(operator_of(graph).apply(x, threads=threads), one)


def test_columns_do_not_depend_on_each_other():
    graph = a_graph(hub=400)
    operator, x = operator_of(graph), features(graph, 101, np.float32)
    whole = operator.apply(x)
    for begin, end in ((0, 1), (3, 8), (17, 90), (100, 101)):
        assert np.array_equal(operator.apply(x[:, begin:end]), whole[:, begin:end])


def test_a_table_of_ones_is_no_table():
    graph = a_graph(hub=400)
    x = features(graph, 20, np.float32)
    ones = operator_of(graph | {"table": np.ones((4, 4))})
    unit_weights = operator_of(graph | {"table": np.ones((4, 4))}, np.ones(520, np.float32))
    assert np.array_equal(ones.apply(x), unit_weights.apply(x))


@pytest.mark.parametrize("self_loop", [False, True])
@pytest.mark.parametrize("norm", NORMS)
def test_transpose_is_the_adjoint(norm, self_loop):
    graph = a_graph(hub=300)
    operator = operator_of(
        graph, np.random.default_rng(5).random(420), norm=norm, self_loop=self_loop
    )
    x, g = features(graph, 9), features(graph, 9, seed=7)
    assert np.vdot(operator.apply(x), g) == pytest.approx(
        np.vdot(x, operator.transpose_apply(g)), rel=1e-12
    )
    matrix = operator.apply(np.eye(30))
    np.testing.assert_allclose(
        operator.transpose_apply(np.eye(30)), matrix.T, rtol=1e-13, atol=1e-15
    )


def test_adjoint_is_exact_on_whole_numbers():
    graph = a_graph(20, 11, 90) | {"table": np.arange(16.0).reshape(4, 4)}
    operator = operator_of(graph, norm="sum")
    rng = np.random.default_rng(3)
    x = rng.integers(-9, 9, (20, 33)).astype(np.float32)
    g = rng.integers(-9, 9, (11, 33)).astype(np.float32)
    assert np.vdot(operator.apply(x), g) == np.vdot(x, operator.transpose_apply(g))


def test_rectangular_relation():
    graph = a_graph(num_sources=9, num_targets=40)
    x = features(graph)
    np.testing.assert_allclose(operator_of(graph).apply(x), message_matrix(**graph) @ x, rtol=1e-13)


def test_mean_of_a_constant_is_the_constant_where_weight_comes_in():
    graph = a_graph()
    operator = operator_of(graph)
    result = operator.apply(np.full((30, 3), 2.5))
    np.testing.assert_allclose(result[operator.in_weight > 0], 2.5, rtol=1e-15)
    assert not result[operator.in_weight == 0].any()


def test_many_periods_and_wide_indices():
    graph = a_graph(300, 300, 2000, periods=300)
    operator = operator_of(graph)
    wide = CSR(operator.csr.indptr, operator.csr.indices.astype(np.int64), None, 300)
    x = features(graph, 5)
    assert operator.source_period.dtype == np.uint16
    np.testing.assert_allclose(
        operator.apply(x), message_matrix(**graph) @ x, rtol=1e-12, atol=1e-14
    )
    again = Operator(wide, graph["table"], graph["source_period"], graph["target_period"])
    assert np.array_equal(again.apply(x), operator.apply(x))


def test_long_sums_do_not_lose_small_terms():
    """A million neighbours: in float32 alone the sum of 0.1 would be off by a percent."""
    size = 1_000_000
    csr = build_csr(np.zeros(size, np.int32), np.zeros(size, np.int32), 1, 1)
    operator = Operator(csr, np.ones((1, 1)), np.zeros(1, int), np.zeros(1, int), norm="sum")
    tenth = np.float32(0.1)
    assert operator.apply(np.array([[tenth]]))[0, 0] == pytest.approx(size * float(tenth), rel=3e-6)


@pytest.mark.parametrize(
    "kind", ["read-only", "fortran", "strided rows", "strided columns", "big-endian"]
)
def test_any_layout_gives_the_same(kind, tmp_path):
    graph = a_graph()
    operator, x = operator_of(graph), features(graph, 6, np.float32)
    if kind == "read-only":
        np.save(tmp_path / "x.npy", x)
        stored = np.load(tmp_path / "x.npy", mmap_mode="r")
    elif kind == "fortran":
        stored = np.asfortranarray(x)
    elif kind == "strided rows":
        stored = np.repeat(x, 2, axis=0)[::2]
    elif kind == "strided columns":
        stored = np.repeat(x, 2, axis=1)[:, ::2]
    else:
        stored = x.astype(">f4")
    assert np.array_equal(operator.apply(stored), operator.apply(x))


def test_out_is_filled_and_must_be_contiguous():
    graph = a_graph()
    operator, x = operator_of(graph), features(graph, 6, np.float32)
    out = np.full((30, 6), np.nan, np.float32)
    assert operator.apply(x, out=out) is out
    assert np.array_equal(out, operator.apply(x))
    with pytest.raises(InputError, match="out must be writable, contiguous"):
        operator.apply(x, out=np.empty((30, 20), np.float32)[:, 4:10])
    half = x.astype(np.float16)
    more = operator.apply(half, out=np.empty((30, 6), np.float32))
    np.testing.assert_allclose(more, operator.apply(half.astype(np.float32)), rtol=1e-6)


def test_empty_things():
    nothing = build_csr(np.empty(0, int), np.empty(0, int), 3, 4)
    operator = Operator(nothing, np.ones((1, 1)), np.zeros(3, int), np.zeros(4, int))
    assert operator.apply(np.ones((3, 2))).tolist() == [[0, 0]] * 4
    assert operator.apply(np.ones((3, 0))).shape == (4, 0)
    assert operator.transpose_apply(np.ones((4, 2))).tolist() == [[0, 0]] * 3
    nobody = build_csr(np.empty(0, int), np.empty(0, int), 0, 0)
    assert Operator(nobody, np.ones((1, 1)), np.empty(0, int), np.empty(0, int)).apply(
        np.ones((0, 2))
    ).shape == (0, 2)


def test_memory_applies_one_after_the_other():
    graph = a_graph()
    operator, x = operator_of(graph), features(graph)
    first, second = Memory(threads=2).hops([operator, operator], x)
    assert np.array_equal(first, operator.apply(x))
    assert np.array_equal(second, operator.apply(first))


@pytest.mark.parametrize("weighted", [False, True])
def test_csr_keeps_the_order_of_edges(weighted):
    rng = np.random.default_rng(0)
    source, target = rng.integers(0, 5000, (2, 2345))
    target[::50] = source[::50]
    weight = rng.random(2345) if weighted else None
    csr = build_csr(source, target, 5000, 5000, weight)
    assert csr.indices.dtype == np.int32
    for v, row in enumerate(grouped_by_target(source, target, 5000, weight)):
        begin, end = csr.indptr[v : v + 2]
        assert csr.indices[begin:end].tolist() == [u for u, _ in row]
        if weighted:
            assert csr.weight[begin:end].tolist() == [a for _, a in row]
    assert (csr.weight is None) != weighted


def test_transposed_twice_is_sorted_by_source():
    graph = a_graph(hub=50)
    csr = operator_of(graph, np.arange(170, dtype=np.float32)).csr
    twice = csr.transposed().transposed()
    assert np.array_equal(twice.indptr, csr.indptr)
    for v in range(30):
        row = slice(*csr.indptr[v : v + 2])
        order = np.argsort(csr.indices[row], kind="stable")
        assert np.array_equal(twice.indices[row], csr.indices[row][order])
        assert np.array_equal(twice.weight[row], csr.weight[row][order])


@given(st.integers(0, 2**32 - 1), st.booleans())
def test_merged_keeps_one_edge_per_pair(seed, weighted):
    rng = np.random.default_rng(seed)
    nodes, edges = int(rng.integers(1, 12)), int(rng.integers(0, 80))
    source, target = rng.integers(0, nodes, (2, edges))
    weight = rng.integers(1, 5, edges).astype(np.float32) if weighted else None
    csr = merged(build_csr(source, target, nodes, nodes, weight))
    dense = np.zeros((nodes, nodes))
    np.add.at(dense, (target, source), 1 if weight is None else weight)
    for v in range(nodes):
        row = slice(*csr.indptr[v : v + 2])
        assert csr.indices[row].tolist() == np.flatnonzero(dense[v]).tolist()
        if weighted:
            assert csr.weight[row].tolist() == dense[v][dense[v] > 0].tolist()


@given(st.integers(0, 2**32 - 1), st.sampled_from(NORMS), st.booleans())
def test_rows_alone_are_rows_of_the_whole(seed, norm, self_loop):
    graph = a_graph(seed=seed, hub=300)
    operator, x = operator_of(graph, norm=norm, self_loop=self_loop), features(graph, 5)
    rows = np.random.default_rng(seed).integers(0, 30, 7)
    np.testing.assert_allclose(
        operator.apply_rows(x, rows), operator.apply(x)[rows], rtol=1e-12, atol=1e-14
    )


@given(st.integers(0, 2**32 - 1), st.sampled_from(NORMS), st.booleans(), st.integers(1, 4))
def test_hops_of_few_rows_are_rows_of_all_hops(seed, norm, self_loop, hops):
    """In memory only nodes are computed that later hops read."""
    rng = np.random.default_rng(seed)
    graph = TemporalGraph(time=rng.integers(0, 3, 90), edge_index=rng.integers(0, 90, (2, 110)))
    weighting = rng.choice(["plain", "pmp", "gsmp"])
    options = {"weighting": weighting, "norm": norm, "self_loop": self_loop}
    operators = [Memory().operator(graph, **options)] * hops
    x = rng.normal(size=(90, 5))
    rows = rng.integers(0, 90, 3)
    some = Memory().hops(operators, x, rows=rows)
    for hop, whole in zip(some, Memory().hops(operators, x), strict=True):
        np.testing.assert_allclose(hop, whole[rows], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"norm": "max"}, "norm='max' is not valid"),
        (
            {"norm": "sym"},
            "needs the same nodes as sources and targets, but there are 5 sources and 8 targets",
        ),
        ({"self_loop": True}, "self_loop=True needs the same nodes"),
        ({"table": -np.ones((4, 4))}, "finite weights of zero or more"),
        ({"table": np.ones(4)}, r"table \(shape \(4,\)\) must be a matrix"),
        ({"source_period": np.zeros(4, int)}, "one whole number for each of 5 nodes"),
        (
            {"target_period": np.full(8, 4)},
            "target_period is 4 at node 0, but the table has 4 such periods",
        ),
    ],
)
def test_operator_refuses(change, message):
    graph = a_graph(5, 8)
    csr = build_csr(graph["source"], graph["target"], 5, 8)
    parts = {"csr": csr} | {k: graph[k] for k in ("table", "source_period", "target_period")}
    if "csr" in change:
        parts["target_period"] = np.zeros(1, int)
    with pytest.raises(InputError, match=message):
        Operator(**(parts | change))


def test_apply_refuses():
    operator = operator_of(a_graph())
    x = np.ones((30, 2))
    with pytest.raises(
        InputError, match=r"x has shape \(3, 2\); pass a matrix with 30 rows, one per source node"
    ):
        operator.apply(np.ones((3, 2)))
    with pytest.raises(InputError, match="x has dtype int64; pass float16, float32 or float64"):
        operator.apply(np.ones((30, 2), int))
    with pytest.raises(InputError, match="share no memory with x"):
        operator.apply(x, out=x)
    with pytest.raises(
        InputError,
        match=r"out is float64 of shape \(30, 3\); use a float array of shape \(30, 2\)",
    ):
        operator.apply(x, out=np.ones((30, 3)))
    with pytest.raises(InputError, match="threads=0 must be a whole number of at least 1"):
        Memory(threads=0)


def test_build_csr_refuses():
    with pytest.raises(
        InputError, match=r"target of edge 1 is 2, but there are 2 such nodes \(0 to 1\)"
    ):
        build_csr(np.array([0, 1]), np.array([0, 2]), 2, 2)
    with pytest.raises(InputError, match="got 1 sources and 2 targets"):
        build_csr(np.array([0]), np.array([0, 1]), 2, 2)
    with pytest.raises(InputError, match=r"source has dtype float64 and shape \(1,\)"):
        build_csr(np.array([0.5]), np.array([0]), 2, 2)
