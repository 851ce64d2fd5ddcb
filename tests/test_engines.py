"""All engines compute the same numbers: hops, label hops and whole pipelines."""

import itertools
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import impact_gnn as ig
from impact_gnn import _native
from impact_gnn.engines import Dask, Disk, Memory, Operator, choose
from impact_gnn.engines.engine import Engine
from impact_gnn.engines.hop import Hop
from impact_gnn.estimators.inputs import Inputs
from impact_gnn.graph import TemporalGraph, build_csr
from impact_gnn.methods import Kind, Method, names
from impact_gnn.weighting import METHODS as WEIGHTINGS
from places import quick_directory
from reproduction.hetero_tsbm import hetero_tsbm

NODES, WIDTH = 200, 21
ALIGNMENTS = names(Kind.ALIGNMENT)
COLUMN = NODES * 8


@pytest.fixture(scope="module")
def client():
    """Workers that are threads of this process: they start at once."""
    distributed = pytest.importorskip("distributed")
    options = {
        "processes": False,
        "dashboard_address": ":0",
        "n_workers": 2,
        "threads_per_worker": 2,
    }
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as connected:
        yield connected


ENGINES = {
    "memory, one thread": lambda client, place: Memory(threads=1),
    "disk, all columns": lambda client, place: Disk(place, memory="1GB"),
    "disk, 16 columns": lambda client, place: Disk(
        place, memory=17 * COLUMN + 9 * NODES, threads=3
    ),
    "disk, 1 column": lambda client, place: Disk(place, memory=COLUMN + 9 * NODES),
    "dask": lambda client, place: Dask(client, place, memory=2 * 12 * COLUMN),
    "dask, no directory": lambda client, place: Dask(client),
}


@pytest.fixture(params=ENGINES)
def engine(request, client):
    with quick_directory() as place:
        yield ENGINES[request.param](client, place / "work")


def edges(seed=0):
    rng = np.random.default_rng(seed)
    target = rng.integers(0, NODES // 2, 3000)  # half of the nodes have no neighbours
    target[::3] = 7  # longer than a tile of the kernel
    return rng.integers(0, NODES, 3000), target


def same(hops, wanted):
    for a, b in zip(hops, wanted, strict=True):
        assert isinstance(a, Hop)
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


# -- hops


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize(
    ("norm", "self_loop", "weighted"),
    [("mean", False, False), ("sym", True, True), ("sum", True, False)],
)
def test_hops_are_the_same_to_the_last_bit(engine, dtype, norm, self_loop, weighted):
    rng = np.random.default_rng(1)
    csr = build_csr(
        *edges(), NODES, NODES, rng.random(3000).astype(np.float32) if weighted else None
    )
    period = rng.integers(0, 3, NODES)
    steps = [
        Operator(
            csr,
            table=table,
            source_period=period,
            target_period=period,
            norm=norm,
            self_loop=self_loop,
        )
        for table in (np.ones((3, 3)), rng.random((3, 3)))
    ]
    path = [steps[0], steps[1], steps[0]]
    x = rng.normal(size=(NODES, WIDTH)).astype(dtype)
    wanted = Memory().hops(path, x)
    assert len(wanted) == 3
    same(engine.hops(path, x), wanted)


def test_between_types_too(engine):
    """Nodes of one kind, then of another: 200, 30, 200, 90."""
    rng = np.random.default_rng(2)
    path = []
    for sources, targets in itertools.pairwise([NODES, 30, NODES, 90]):
        csr = build_csr(
            rng.integers(0, sources, 500), rng.integers(0, targets, 500), sources, targets
        )
        nothing = np.zeros(sources, np.uint8), np.zeros(targets, np.uint8)
        path.append(Operator(csr, np.ones((1, 1)), *nothing))
    x = rng.normal(size=(NODES, WIDTH)).astype(np.float32)
    same(engine.hops(path, x), Memory().hops(path, x))
    with pytest.raises(
        ig.InputError, match="step 2 of the path expects 200 nodes, but gets 90 from"
    ):
        engine.hops([path[2], path[0]], x)


@pytest.mark.parametrize("share", [0.1, 0.9, 1.0])  # all of them in another order, too
@pytest.mark.parametrize(("norm", "self_loop"), [("mean", False), ("sym", True), ("sum", True)])
def test_the_last_hop_of_some_rows(engine, share, norm, self_loop):
    rng = np.random.default_rng(3)
    graph = TemporalGraph(
        x=rng.normal(size=(NODES, 5)),
        time=rng.integers(2000, 2004, NODES),
        edge_index=np.stack(edges()),
    )
    rows = rng.permutation(NODES)[: int(share * NODES)]
    options = {"weighting": "pmp", "norm": norm, "self_loop": self_loop}
    for some, whole in zip(
        ig.propagate(graph, engine=engine, rows=rows, **options),
        ig.propagate(graph, **options),
        strict=True,
    ):
        assert some.shape == (len(rows), 5)
        np.testing.assert_allclose(np.asarray(some), whole[rows], rtol=1e-12, atol=1e-14)


def test_views_of_files_are_not_taken_for_the_files(engine, tmp_path):
    """Rows of a file in another order, or a part of them.

    Workers must not read the file instead.
    """
    rng = np.random.default_rng(6)
    np.save(tmp_path / "x.npy", rng.normal(size=(2 * NODES, 5)))
    np.save(tmp_path / "edges.npy", np.stack([np.stack(edges()), np.stack(edges(1))]))
    x, ends = (np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in ("x", "edges"))
    for values, pairs in (
        (x[:NODES], ends[0]),
        (x[NODES:], ends[1]),
        (x[:NODES][::-1], ends[0][::-1]),
    ):
        graph = TemporalGraph(x=values, time=np.arange(NODES) % 3, edge_index=pairs)
        same(ig.propagate(graph, engine=engine), ig.propagate(graph))


def test_a_graph_outlives_the_engine_that_sorted_it(engine, tmp_path):
    graph = ig.tsbm(num_nodes=NODES, num_times=4, num_labels=3, seed=0)
    first = Disk(tmp_path / "first")
    first.operator(graph)
    first.clear()
    same(
        ig.propagate(graph, engine=engine),
        ig.propagate(ig.tsbm(num_nodes=NODES, num_times=4, num_labels=3, seed=0)),
    )


def test_a_hop_is_asked_for_rows(engine):
    graph = ig.tsbm(num_nodes=NODES, num_times=4, num_labels=3, seed=0)
    index = np.array([7, 7, 0, 199])
    for hop, wanted in zip(ig.propagate(graph, engine=engine), ig.propagate(graph), strict=True):
        np.testing.assert_array_equal(hop.rows(index), wanted[index])
        np.testing.assert_array_equal(hop[3:9], wanted[3:9])
        assert len(hop) == NODES


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize(("weighted", "dated"), [(True, False), (False, True), (True, True)])
def test_graphs_in_both_directions_and_as_they_were(engine, directed, weighted, dated):
    rng = np.random.default_rng(4)
    ends = np.stack(edges())
    size = 3000 if directed else 6000
    graph = TemporalGraph(
        x=rng.normal(size=(NODES, 3)).astype(np.float32),
        y=rng.integers(-1, 3, NODES),
        time=rng.integers(0, 5, NODES),
        edge_index=ends if directed else np.concatenate([ends, ends[::-1]], 1),
        edge_weight=rng.random(size) if weighted else None,
        edge_time=rng.integers(0, 5, size) if dated else None,
    )
    for options in ({"undirected": True}, {"upto": 2}, {"upto": 3, "undirected": True}):
        built, wanted = engine.graph(graph, **options), Memory().graph(graph, **options)
        np.testing.assert_array_equal(built.edge_index, wanted.edge_index)
        assert (built.edge_weight is None) == (wanted.edge_weight is None)
        if weighted:
            np.testing.assert_allclose(built.edge_weight, wanted.edge_weight)
        for name in ("x", "y", "time", "ids", "edge_time"):
            np.testing.assert_array_equal(getattr(built, name), getattr(wanted, name))
        np.testing.assert_allclose(
            engine.operator(built).apply(built.x), Memory().operator(wanted).apply(wanted.x)
        )


# -- label hops


@pytest.mark.parametrize("weighted", [False, True])
def test_label_hops_are_the_same(engine, weighted):
    rng = np.random.default_rng(5)
    source, target = edges()
    # every edge leads back, some are loops
    both = np.concatenate([[source, target], [target, source]], axis=1)
    weight = rng.random(both.shape[1]) if weighted else None
    time, label = rng.integers(0, 5, NODES), rng.integers(-1, 4, NODES)
    graph = TemporalGraph(y=label, time=time, edge_index=both, edge_weight=weight, num_labels=4)
    options = {"weighting": "pmp", "hops": 2}
    for cutoff in (3, 2):  # other labels in the same place
        hops = ig.label_hops(graph.masked(cutoff), engine=engine, **options)
        same(hops, ig.label_hops(graph.masked(cutoff), **options))


# -- every method, the whole way

PARTS = ["", "labels", "snapshot", "snapshot+labels"]
EVERY_METHOD = [
    "+".join(filter(None, parts))
    for parts in itertools.product(WEIGHTINGS, ["", *ALIGNMENTS], PARTS)
] + [
    "features",
    "pmp+ends",
    "pmp+ends+labels",
    "mmp+ends+snapshot+labels",
    "genpmp+jjnorm+ends+labels",
    "gsmp+center",
    "gsmp+snapshot+labels",
    "stamp+labels",
    "stamp+jjnorm+snapshot+labels",
]


@pytest.fixture(scope="module")
def homogeneous():
    return ig.tsbm(num_nodes=240, num_times=5, num_labels=3, num_features=6, seed=0)


@pytest.fixture(scope="module")
def several_types():
    sizes = {"num_papers": 150, "num_authors": 90, "num_fields": 20, "num_institutions": 10}
    edges = {"citations": 600, "writes": 300, "topics": 300, "affiliations": 100}
    return hetero_tsbm(**sizes, **edges, num_times=4, num_labels=3, num_features=6, seed=0)


def laws_hold(graph, methods, place, squashed=False):
    cutoff = int(graph.times[-2])
    view = graph.masked(cutoff)
    engine = Disk(place, memory=60_000)
    shared = Inputs(view, squashed=squashed), Inputs(view, engine=engine, squashed=squashed)
    for text in methods:
        method = Method.parse(text)
        memory, disk = (inputs.model_inputs(method, cutoff) for inputs in shared)
        for hops, wanted in zip(disk, memory, strict=True):
            for a, b in zip(hops, wanted, strict=True):
                np.testing.assert_allclose(
                    np.asarray(a), np.asarray(b), rtol=1e-6, atol=1e-7, err_msg=text
                )
                assert np.isfinite(np.asarray(a)).all()


def test_every_method_gives_the_same_hops(homogeneous):
    with quick_directory() as place:
        laws_hold(homogeneous, EVERY_METHOD, place / "work")


def test_every_method_gives_the_same_hops_between_types(several_types):
    with quick_directory() as place:
        methods = [
            text
            for text in EVERY_METHOD
            if "pny" not in text and "mmp" not in text and "pmp+c" not in text
        ]
        laws_hold(
            several_types,
            [text for text in methods if not text.startswith("genpmp+s")],
            place / "work",
        )


def test_squashed_hops_are_the_same(several_types):
    with quick_directory() as place:
        laws_hold(
            several_types, ["pmp", "pmp+center+snapshot", "labels"], place / "work", squashed=True
        )


@pytest.mark.parametrize("several", [False, True])
def test_snapshots_of_edges_with_times_are_the_same(homogeneous, several_types, several):
    graph, rng = several_types if several else homogeneous, np.random.default_rng(0)
    dated = {
        name: replace(part, time=rng.integers(0, len(graph.times), part.num_edges))
        for name, part in graph.relations.items()
    }
    with quick_directory() as place:
        laws_hold(
            graph.with_parts(dict(graph.nodes), dated), ["pmp", "snapshot+labels"], place / "work"
        )


@pytest.mark.parametrize(
    "method", ["plain", "pmp+center+labels", "snapshot+labels", "pmp+jjnorm", "pny", "stamp+labels"]
)
def test_pipelines_predict_the_same(homogeneous, client, method):
    options = {"method": method, "cutoff": 3, "epochs": 3, "hidden": 8}
    wanted = ig.Pipeline(**options).fit(homogeneous).predict_proba(homogeneous)
    with quick_directory() as place:
        for engine in (Disk(place / "a", memory=30_000), Dask(client, place / "b", memory="1MB")):
            fitted = ig.Pipeline(**options).fit(homogeneous, engine=engine)
            np.testing.assert_array_equal(fitted.predict_proba(homogeneous, engine=engine), wanted)


@pytest.mark.parametrize("model", ["sehgnn", "rphgnn"])
def test_pipelines_between_types_predict_the_same(several_types, model):
    options = {
        "model": model,
        "method": "pmp+labels",
        "cutoff": int(several_types.times[-2]),
        "epochs": 3,
        "hidden": 8,
    }
    wanted = ig.Pipeline(**options).fit(several_types).predict_proba(several_types)
    with quick_directory() as place:
        engine = Disk(place / "work", memory=50_000)
        fitted = ig.Pipeline(**options).fit(several_types, engine=engine)
        np.testing.assert_array_equal(fitted.predict_proba(several_types, engine=engine), wanted)


def test_few_labelled_nodes_are_enough():
    """Hops are computed for labelled nodes and targets only; their numbers are the same."""
    graph = ig.tsbm(num_nodes=400, num_times=5, num_labels=3, seed=1)
    label = np.where((np.arange(400) % 10 == 0) | (graph.time == 4), graph.y, -1)
    few = graph.with_labels(label)
    inputs = Inputs(few.masked(4))
    hops, _ = inputs.model_inputs(Method.parse("pmp"), 4)
    assert hops[-1].shape[0] == len(inputs.row_nodes) < 200
    wanted = ig.propagate(few.undirected(), weighting="pmp")
    np.testing.assert_allclose(
        np.asarray(hops[-1]), wanted[-1][inputs.row_nodes], rtol=1e-5, atol=1e-6
    )


# -- choosing


def test_auto_takes_memory_where_it_fits_and_disk_otherwise(homogeneous, tmp_path):
    assert isinstance(choose(homogeneous).engine, Memory)
    chosen = choose(homogeneous, memory="10kB", scratch=tmp_path / "scratch")
    assert isinstance(chosen.engine, Disk)
    assert "engine disk, cap 10.0 kB" in chosen.sentence
    with pytest.raises(ig.InputError, match="needs --scheduler HOST:PORT"):
        choose(homogeneous, "dask", scratch=tmp_path)
    with pytest.raises(ig.InputError, match="a scheduler has no effect with engine"):
        choose(homogeneous, scheduler="here:1")
    with pytest.raises(ig.InputError, match="engine='gpu' is not valid"):
        choose(homogeneous, "gpu")


ASKED = {
    "propagate": lambda g, **engine: ig.propagate(g, **engine),
    "label_hops": lambda g, **engine: ig.label_hops(g.masked(2), **engine),
    "Pipeline.fit": lambda g, **engine: ig.Pipeline(cutoff=2).fit(g, **engine),
    "diagnose": lambda g, **engine: ig.diagnose(g, 2, **engine),
    "backtest": lambda g, **engine: ig.backtest(g, cutoff=2, **engine),
    "run": lambda g, **engine: ig.run(g, "never", cutoff=2, **engine),
}


@pytest.mark.parametrize("asked", ASKED)
def test_the_name_of_an_engine_is_no_engine(homogeneous, asked):
    with pytest.raises(
        ig.InputError,
        match=r"engine='disk' is not an engine; pass engines.Memory\(\), engines.Disk",
    ):
        ASKED[asked](homogeneous, engine="disk")


def test_engines_are_abstract_or_final():
    assert Engine.__abstractmethods__
    for kind in (Memory, Disk, Dask):
        assert not kind.__abstractmethods__


def test_import_changes_no_environment_variable_and_kernels_leave_torch_threads_alone():
    code = (
        "import os\nbefore = dict(os.environ)\n"
        "import impact_gnn as ig\nprint(before == dict(os.environ))\n"
        "g = ig.tsbm(num_nodes=300, num_times=5, num_labels=2, seed=0)\n"
        "ig.Pipeline('sign', 'pmp+jjnorm', cutoff=4, epochs=2, hidden=4).fit(g)\n"
        "import torch\nprint(torch.get_num_threads())"
    )
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == ["True", "1"]


@pytest.mark.parametrize(("asked", "most"), [("1", 1), ("2,1", 2), ("0", 1000), ("one", 1000)])
def test_threads_are_at_most_as_many_as_the_user_asks_for(asked, most, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", asked)
    assert 1 <= _native.available() <= most


CONTROL_GROUPS = {
    # a service with a quota of 1.5 cores and 3 GB, in a slice of 1 GB
    "version 2": {
        "proc/self/cgroup": "0::/slice/service\n",
        "sys/fs/cgroup/slice/cpu.max": "max 100000\n",
        "sys/fs/cgroup/slice/memory.max": "1000000000\n",
        "sys/fs/cgroup/slice/memory.current": "600000000\n",
        "sys/fs/cgroup/slice/memory.stat": "anon 1\ninactive_file 200000000\n",
        "sys/fs/cgroup/slice/service/cpu.max": "150000 100000\n",
        "sys/fs/cgroup/slice/service/memory.max": "3000000000\n",
        "sys/fs/cgroup/slice/service/memory.current": "500000000\n",
    },
    # a container that sees its own group at the top, and not under its name
    "version 1": {
        "proc/self/cgroup": "4:memory:/docker/1\n1:cpu,cpuacct:/docker/1\n0::/\n",
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "150000\n",
        "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "1000000000\n",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": "600000000\n",
        "sys/fs/cgroup/memory/memory.stat": "inactive_file 1\ntotal_inactive_file 200000000\n",
    },
}


@pytest.mark.parametrize("version", CONTROL_GROUPS)
def test_limits_of_the_own_control_group_and_those_around_it(version, tmp_path):
    for name, content in CONTROL_GROUPS[version].items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    assert _native.cpu_quota(tmp_path) == 2
    assert _native.free_in_groups(tmp_path) == 600_000_000


@pytest.mark.parametrize("groups", [None, "0::/\n", "1:cpu:/\n0::/\n"])
def test_without_limits_of_control_groups(groups, tmp_path):
    if groups is not None:
        (tmp_path / "proc/self").mkdir(parents=True)
        (tmp_path / "proc/self/cgroup").write_text(groups)
    assert _native.cpu_quota(tmp_path) == _native.free_in_groups(tmp_path) == _native.UNLIMITED
