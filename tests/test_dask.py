"""Hops on a cluster: workers may die, must see the directory, and get nothing but paths and numbers."""

import builtins
import os
import pickle
import signal
import sys

import numpy as np
import pytest

from impact_gnn.checks import InputError
from impact_gnn.propagation.building import build_csr
from impact_gnn.propagation.cluster import Cluster, Dask
from impact_gnn.propagation.memory import Memory
from impact_gnn.propagation.operator import Operator
from places import quick_directory

distributed = pytest.importorskip("distributed")


def step_of(nodes=5000, edges=400_000, seed=0):
    rng = np.random.default_rng(seed)
    csr = build_csr(*rng.integers(0, nodes, (2, edges)), nodes, nodes)
    period = rng.integers(0, 3, nodes)
    return Operator(csr, rng.random((3, 3)), period, period)


@pytest.fixture
def place():
    with quick_directory() as made:
        yield made


def test_a_worker_is_killed_in_the_middle(place):
    """Two workers that are processes; what the killed one was doing is done again."""
    step = step_of()
    x = np.random.default_rng(1).normal(size=(5000, 128)).astype(np.float32)
    np.save(place / "x.npy", x)
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    with distributed.LocalCluster(**options, silence_logs=50) as cluster, distributed.Client(cluster) as client:
        workers = client.run(os.getpid)
        killed = []

        def kill(what, share):
            if "slices" in what and share > 0.2 and not killed:
                killed.append(next(iter(workers.values())))
                os.kill(killed[0], signal.SIGKILL)

        engine = Dask(client, place / "work", memory=5000 * 4 * 20, progress=kill)
        found = engine.hops([step, step], place / "x.npy")
        assert killed
        assert set(client.run(os.getpid).values()) != set(workers.values())
    for a, b in zip(found, Memory().hops([step, step], x), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.fixture(scope="module")
def client():
    options = {"processes": False, "dashboard_address": ":0", "n_workers": 1, "threads_per_worker": 2}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as made:
        yield made


def test_only_paths_and_numbers_travel(place, client, monkeypatch):
    step, sent = step_of(), []
    x = np.random.default_rng(1).normal(size=(5000, 64)).astype(np.float32)
    np.save(place / "x.npy", x)
    submit = client.submit

    def watched(function, *arguments, **options):
        sent.append(len(pickle.dumps((function, arguments))))
        return submit(function, *arguments, **options)

    monkeypatch.setattr(client, "submit", watched)
    Dask(client, place / "work").hops([step], np.load(place / "x.npy", mmap_mode="r"))
    assert sent
    assert max(sent) < 4000


def test_a_failing_task_is_done_again(client, place):
    def fails_once(path):
        if not path.exists():
            path.write_text("seen")
            raise RuntimeError("a cosmic ray")
        return 7

    assert Cluster(client, retries=1).map(fails_once, [(place / "a",), (place / "b",)]) == [7, 7]
    with pytest.raises(RuntimeError, match="cosmic ray"):
        Cluster(client, retries=0).map(fails_once, [(place / "c",)])


def test_a_scheduler_may_be_named_by_its_address(place):
    step = step_of(100, 500)
    x = np.ones((100, 3), np.float32)
    options = {"processes": False, "dashboard_address": ":0", "n_workers": 1, "protocol": "tcp"}
    with distributed.LocalCluster(**options) as cluster:
        found = Dask(cluster.scheduler_address, place / "work").hops([step], x)
    np.testing.assert_array_equal(found[0], Memory().hops([step], x)[0])
    with pytest.raises(InputError, match=r"client is a int; give a .* or a scheduler's address"):
        Dask(7)


def test_workers_must_see_the_directory(place, client, monkeypatch):
    from impact_gnn.propagation import cluster

    monkeypatch.setattr(cluster, "_sees", lambda path: False)
    with pytest.raises(InputError, match=r"is not seen by .* on a file system that all workers share"):
        Dask(client, place / "work").hops([step_of(100, 500)], np.ones((100, 3), np.float32))


def test_a_cluster_without_workers_is_refused(place):
    options = {"processes": False, "dashboard_address": ":0", "n_workers": 0}
    with (
        distributed.LocalCluster(**options) as cluster,
        distributed.Client(cluster) as client,
        pytest.raises(InputError, match="the cluster has no workers"),
    ):
        Dask(client, place).hops([step_of(100, 500)], np.ones((100, 3), np.float32))


def test_without_dask_the_sentence_says_what_to_install(place, monkeypatch):
    plain = builtins.__import__

    def missing(name, *rest, **options):
        if name == "distributed":
            raise ImportError(name)
        return plain(name, *rest, **options)

    monkeypatch.delitem(sys.modules, "distributed")
    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(InputError, match=r"pip install 'impact-gnn\[distributed\]'"):
        Dask("tcp://127.0.0.1:1", place).hops([step_of(100, 500)], np.ones((100, 3), np.float32))
