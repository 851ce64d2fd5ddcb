"""The law of engines: wherever hops are computed and aligned, the same numbers come out."""

import itertools

import numpy as np
import pytest

from impact_gnn.checks import InputError
from impact_gnn.graph import TemporalGraph
from impact_gnn.propagation.aligned import aligned
from impact_gnn.propagation.building import build_csr
from impact_gnn.propagation.cluster import Dask
from impact_gnn.propagation.disk import Disk
from impact_gnn.propagation.hops import operator
from impact_gnn.propagation.labels import label_hops
from impact_gnn.propagation.memory import Memory
from impact_gnn.propagation.operator import Operator
from places import quick_directory

NODES, WIDTH = 200, 21


@pytest.fixture(scope="module")
def client():
    """Workers that are threads of this process: they start at once."""
    distributed = pytest.importorskip("distributed")
    options = {"processes": False, "dashboard_address": ":0", "n_workers": 2, "threads_per_worker": 2}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as made:
        yield made


COLUMN = NODES * 8
ON_FILES = {
    "disk, all columns": lambda client, place: Disk(place, memory="1GB"),
    "disk, 16 columns": lambda client, place: Disk(place, memory=16 * COLUMN, threads=3),
    "disk, 4 columns": lambda client, place: Disk(place, memory=7 * COLUMN),
    "disk, 1 column": lambda client, place: Disk(place, memory=COLUMN),
    "dask": lambda client, place: Dask(client, place, memory=2 * 12 * COLUMN),
}
"""Engines that work in a directory, with slices of different widths."""

ENGINES = {
    "memory": lambda client, place: Memory(threads=1),
    **ON_FILES,
    "dask, no directory": lambda client, place: Dask(client),
}


@pytest.fixture(params=ENGINES)
def engine(request, client):
    with quick_directory() as place:
        yield ENGINES[request.param](client, place / "work")


@pytest.fixture(params=ON_FILES)
def on_files(request, client):
    with quick_directory() as place:
        yield ON_FILES[request.param](client, place / "work")


def edges(seed=0, hub=True):
    rng = np.random.default_rng(seed)
    target = rng.integers(0, NODES // 2, 3000)  # half of the nodes hear nothing
    if hub:
        target[::3] = 7  # longer than a tile of the kernel
    return rng.integers(0, NODES, 3000), target


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize(
    ("norm", "self_loop", "weighted"), [("mean", False, False), ("sym", True, True), ("sum", True, False)]
)
def test_hops_are_the_same_to_the_last_bit(engine, dtype, norm, self_loop, weighted):
    rng = np.random.default_rng(1)
    csr = build_csr(*edges(), NODES, NODES, rng.random(3000).astype(np.float32) if weighted else None)
    period = rng.integers(0, 3, NODES)
    steps = [Operator(csr, table, period, period, norm, self_loop) for table in (np.ones((3, 3)), rng.random((3, 3)))]
    path = [steps[0], steps[1], steps[0]]
    x = rng.normal(size=(NODES, WIDTH)).astype(dtype)
    wanted = Memory().hops(path, x)
    found = engine.hops(path, x)
    assert len(found) == 3
    for a, b in zip(found, wanted, strict=True):
        assert a.dtype == b.dtype == dtype
        np.testing.assert_array_equal(a, b)


def test_metapaths_are_the_same_to_the_last_bit(engine):
    """Nodes of one kind, then of another: 200, 30, 200, 90."""
    rng = np.random.default_rng(2)
    sizes = [NODES, 30, NODES, 90]
    path = []
    for sources, targets in itertools.pairwise(sizes):
        csr = build_csr(rng.integers(0, sources, 500), rng.integers(0, targets, 500), sources, targets)
        nothing = np.zeros(sources, np.uint8), np.zeros(targets, np.uint8)
        path.append(Operator(csr, np.ones((1, 1)), *nothing))
    x = rng.normal(size=(NODES, WIDTH)).astype(np.float32)
    for a, b in zip(engine.hops(path, x), Memory().hops(path, x), strict=True):
        np.testing.assert_array_equal(a, b)


def test_operators_of_engines_are_the_same(on_files):
    rng = np.random.default_rng(3)
    graph = TemporalGraph(
        x=rng.normal(size=(NODES, 5)).astype(np.float32),
        time=rng.integers(2000, 2004, NODES),
        edge_index=np.stack(edges()),
    )
    step = on_files.operator(graph, weighting="pmp", norm="sym", self_loop=True)
    wanted = Memory().hops([operator(graph, weighting="pmp", norm="sym", self_loop=True)] * 2, graph.x)
    for a, b in zip(on_files.hops([step] * 2, graph.x), wanted, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("method", ["center", "standardize", "jjnorm"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_alignment_is_the_same(on_files, method, dtype):
    """Sums are added up in another order, so the last bits of float64 may differ."""
    rng = np.random.default_rng(4)
    size = 6000  # more than one block of rows for each task
    time, label = rng.integers(0, 5, size), rng.integers(-1, 3, size)
    target = time == 4
    message = (rng.normal(size=(size, 9)) * (1 + time[:, None]) + label[:, None]).astype(dtype)
    wanted = aligned(Memory(), message, method, time, label=label, target=target)
    found = aligned(on_files, message, method, time, label=label, target=target)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, wanted, rtol=1e-6 if dtype == np.float32 else 1e-12, atol=1e-12)
    assert (np.abs(wanted - message) > 0.01).any()


def test_alignment_of_files(on_files):
    """A hop goes in as a file, columns are taken a few at a time where memory is small, the result is a file."""
    rng = np.random.default_rng(5)
    csr = build_csr(*edges(), NODES, NODES)
    time, label = rng.integers(0, 5, NODES), rng.integers(0, 40, NODES)
    target = time >= 4
    nothing = np.zeros(NODES, int)
    hop = on_files.hops([Operator(csr, np.ones((1, 1)), nothing, nothing)], rng.normal(size=(NODES, WIDTH)))[0]
    found = aligned(on_files, hop, "jjnorm", time, label=label, target=target)
    wanted = aligned(Memory(), np.array(hop), "jjnorm", time, label=label, target=target)
    np.testing.assert_allclose(found, wanted, rtol=1e-10)
    assert [file.name for file in (on_files.directory / "aligned").iterdir()] == ["hop-1-jjnorm.npy"]


def test_half_precision_files_can_be_aligned():
    rng = np.random.default_rng(6)
    time, message = rng.integers(0, 3, 500), rng.normal(size=(500, 6)).astype(np.float16)
    with quick_directory() as place:
        found = aligned(Disk(place / "work"), message, "center", time, name="mine")
        assert found.dtype == np.float16
        assert (place / "work" / "aligned" / "mine.npy").exists()
    np.testing.assert_allclose(found, aligned(Memory(), message.astype(np.float32), "center", time), atol=2e-3)


def test_alignment_refuses_what_it_cannot_do():
    message = np.zeros((4, 2), np.float32)
    with pytest.raises(ValueError, match="method='pny' is not known"):
        aligned(Memory(), message, "pny", [0, 0, 1, 1])
    with pytest.raises(ValueError, match="jjnorm needs the labels and the mask"):
        aligned(Memory(), message, "jjnorm", [0, 0, 1, 1])
    with quick_directory() as place, pytest.raises(ValueError, match="message has 4 rows for 3 nodes"):
        aligned(Disk(place), message, "center", [0, 0, 1])


@pytest.mark.parametrize(
    ("norm", "self_loop", "weighted"), [("mean", False, False), ("sym", True, True), ("sum", True, False)]
)
@pytest.mark.parametrize("renormalize", [True, False])
def test_label_hops_are_the_same(on_files, norm, self_loop, weighted, renormalize):
    """Own shares are added up in another order, so the last bits may differ."""
    rng = np.random.default_rng(5)
    source, target = edges()
    both = np.concatenate([[source, target], [target, source]], axis=1)  # every edge leads back, some are loops
    weight = rng.random(both.shape[1]) if weighted else None
    time, label = rng.integers(0, 5, NODES), rng.integers(-1, 4, NODES)
    graph = TemporalGraph(y=label, time=time, edge_index=both, edge_weight=weight, num_labels=4).masked(3)
    options = {"weighting": "pmp", "hops": 2, "norm": norm, "self_loop": self_loop, "renormalize": renormalize}
    for _ in range(2):  # the second time files are found
        found = label_hops(graph, engine=on_files, **options)
        for a, b in zip(found, label_hops(graph, **options), strict=True):
            assert isinstance(a, np.memmap)
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6 * np.abs(b).max())


def test_label_hops_in_ranges_of_few_edges(tmp_path, monkeypatch):
    """A range of targets holds a few hundred edges, so return paths lead out of the range and back."""
    rng = np.random.default_rng(6)
    source, target = edges()
    both = np.concatenate([[source, target], [target, source]], axis=1)
    graph = TemporalGraph(y=rng.integers(0, 4, NODES), time=rng.integers(0, 5, NODES), edge_index=both).masked(3)
    monkeypatch.setattr("impact_gnn.propagation.steps.EDGES", 100)
    engine = Disk(tmp_path / "work", memory="8kB")
    for a, b in zip(label_hops(graph, engine=engine, hops=2), label_hops(graph, hops=2), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_label_hops_of_other_labels_are_refused(tmp_path):
    graph = TemporalGraph(y=[0, 1, 0, 1], time=[0, 0, 1, 2], edge_index=[[0, 1, 2], [1, 2, 3]])
    label_hops(graph.masked(2), engine=Disk(tmp_path / "work"))
    with pytest.raises(InputError, match="another x"):
        label_hops(graph.masked(1), engine=Disk(tmp_path / "work"))
