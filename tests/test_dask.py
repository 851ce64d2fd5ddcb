"""Work on a cluster.

Workers that die or leave, shared directories, and only paths and numbers as messages.
"""

import builtins
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from typer.testing import CliRunner

import impact_gnn as ig
from impact_gnn.checks import InputError, WorkerLost
from impact_gnn.cli import app
from impact_gnn.engines import Dask, Disk, Memory, Operator
from impact_gnn.engines.dask import connected
from impact_gnn.graph import TemporalGraph, build_csr
from places import quick_directory

distributed = pytest.importorskip("distributed")


def step_of(nodes=5000, edges=400_000, seed=0):
    rng = np.random.default_rng(seed)
    csr = build_csr(*rng.integers(0, nodes, (2, edges)), nodes, nodes)
    period = rng.integers(0, 3, nodes)
    return Operator(csr, rng.random((3, 3)), period, period)


@pytest.fixture
def place():
    with quick_directory() as directory:
        yield directory


def test_a_worker_is_killed_in_the_middle(place):
    """Two workers that are processes; tasks of the killed one run again."""
    step = step_of()
    x = np.random.default_rng(1).normal(size=(5000, 128)).astype(np.float32)
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    with (
        distributed.LocalCluster(**options, silence_logs=50) as cluster,
        distributed.Client(cluster) as client,
    ):
        workers = client.run(os.getpid)
        killed = []

        def kill(stage, done, total, note=""):
            if stage == "propagating" and done > 0.2 * total and not killed:
                killed.append(next(iter(workers.values())))
                os.kill(killed[0], signal.SIGKILL)

        engine = Dask(client, place / "work", memory=5000 * 4 * 20, progress=kill)
        hops = engine.hops([step, step], x)
        assert killed
        assert set(client.run(os.getpid).values()) != set(workers.values())
    for a, b in zip(hops, Memory().hops([step, step], x), strict=True):
        np.testing.assert_array_equal(np.asarray(a), b)


@pytest.fixture(scope="module")
def client():
    options = {
        "processes": False,
        "dashboard_address": ":0",
        "n_workers": 1,
        "threads_per_worker": 2,
    }
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as connected:
        yield connected


def test_only_paths_and_numbers_travel_and_sorting_is_shared(place, client, monkeypatch):
    rng = np.random.default_rng(1)
    graph = TemporalGraph(
        x=rng.normal(size=(5000, 64)).astype(np.float32),
        time=np.arange(5000) % 3,
        edge_index=rng.integers(0, 5000, (2, 400_000)),
    )
    sent = []
    submit = client.submit

    def watched(function, *arguments, **options):
        sent.append((function.__name__, len(pickle.dumps((function, arguments)))))
        return submit(function, *arguments, **options)

    monkeypatch.setattr(client, "submit", watched)
    engine = Dask(client, place / "work", memory="4MB")
    both = engine.graph(graph, undirected=True)
    engine.hops([engine.operator(both)], both.x)
    names = [name for name, _ in sent]
    assert names.count("sort_range") > 4
    assert names.count("run_slice") >= 4
    assert max(size for _, size in sent) < 4000


def test_a_failing_task_is_done_again(client, place):
    def fails_once(path):
        if not path.exists():
            path.write_text("seen")
            raise RuntimeError("a cosmic ray")
        return 7

    assert list(Dask(client, place).map_tasks(fails_once, [(place / "a",), (place / "b",)])) == [
        7,
        7,
    ]

    def fails(path):
        raise RuntimeError("a broken disk")

    with pytest.raises(RuntimeError, match="a broken disk"):
        list(Dask(client, place).map_tasks(fails, [(place / "c",)]))


def wait_for_end(folder, task):
    (folder / f"begun-{task}").touch()
    while not (folder / "end").exists():
        time.sleep(0.01)


def test_an_interrupt_cancels_what_has_not_begun(client, place):
    def starting(task):
        if task == 6:
            raise KeyboardInterrupt
        return True

    tasks = Dask(client).run_tasks(wait_for_end, place, range(9), jobs=8, starting=starting)
    try:
        with pytest.raises(KeyboardInterrupt):
            list(tasks)
        # A cancelled task that has not begun is forgotten by the worker a moment later.
        time.sleep(1)
    finally:
        (place / "end").touch()
    client.submit(int, pure=False).result(timeout=60)
    assert len(list(place.glob("begun-*"))) <= 2  # threads of the worker


def test_anything_but_a_client_of_a_scheduler_is_refused(place):
    with pytest.raises(InputError, match=r"client is a str; pass a dask.distributed.Client"):
        Dask("tcp://127.0.0.1:1", place / "work")
    with pytest.raises(InputError, match=r"no scheduler answers at tcp://127\.0\.0\.1:1"):
        connected("tcp://127.0.0.1:1", patience=1)


def test_workers_must_see_the_directory(place, client, monkeypatch):
    from impact_gnn.engines import dask

    monkeypatch.setattr(dask, "_is_directory", lambda path: False)
    with pytest.raises(
        InputError, match=r"is not visible to .* on a file system that all workers share"
    ):
        Dask(client, place / "work").hops([step_of(100, 500)], np.ones((100, 3), np.float32))


def test_a_cluster_without_workers_is_refused(place):
    options = {"processes": False, "dashboard_address": ":0", "n_workers": 0}
    with (
        distributed.LocalCluster(**options) as cluster,
        distributed.Client(cluster) as client,
        pytest.raises(InputError, match="the cluster has no workers"),
    ):
        Dask(client, place).hops([step_of(100, 500)], np.ones((100, 3), np.float32))


def test_workers_that_leave_for_good_end_the_work_with_a_sentence(place):
    options = {
        "n_workers": 1,
        "threads_per_worker": 1,
        "dashboard_address": ":0",
        "silence_logs": 50,
    }
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        engine = Dask(client, place, patience=3)

        def leave():
            time.sleep(1)
            cluster.scale(0)

        threading.Thread(target=leave).start()
        with pytest.raises(WorkerLost, match="no worker of the cluster has answered for 3 seconds"):
            list(engine.map_tasks(time.sleep, [(30,)] * 3))


@pytest.fixture(scope="module")
def started():
    """`dask scheduler` and `dask worker` as processes; all of them are killed in the end."""
    processes = []

    def start(*arguments, **options):
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, **options}
        processes.append(
            subprocess.Popen(
                [sys.executable, "-m", "dask", *map(str, arguments), "--no-dashboard"], **quiet
            )
        )
        return processes[-1]

    yield start
    for process in processes:
        process.kill()


def free_address():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


@pytest.mark.parametrize(
    ("signal_name", "sentence"),
    [
        ("SIGKILL", "the connection to the scheduler was lost|has not answered"),
        ("SIGSTOP", "has not answered for 3 seconds"),
    ],
)
def test_a_scheduler_that_dies_or_falls_silent_ends_the_work_with_a_sentence(
    place, started, signal_name, sentence
):
    address = free_address()
    scheduler = started("scheduler", "--host", address)
    worker = started("worker", address, "--nthreads", 1, "--no-nanny")
    with distributed.Client(address, timeout=60) as client:
        client.wait_for_workers(1, timeout=60)

    def strike(stage, done, total, note=""):
        if done == 1:
            scheduler.send_signal(getattr(signal, signal_name))

    x, step = np.ones((2000, 64), np.float32), step_of(2000, 50_000)
    client = connected(address, patience=3)
    with pytest.raises(WorkerLost, match=sentence):
        Dask(client, place / "work", memory=2000 * 4 * 6, patience=3, progress=strike).hops(
            [step, step], x
        )
    client.close(timeout=1)
    worker.kill()  # a task that it still writes would meet its successor's
    worker.wait()
    np.testing.assert_array_equal(  # a scheduler without that one's work goes on with what is there
        Memory().hops([step, step], x)[1],
        np.asarray(Disk(place / "work", memory=2000 * 4 * 6).hops([step, step], x)[1]),
    )


def test_without_dask_the_sentence_says_what_to_install(monkeypatch):
    plain = builtins.__import__

    def missing(name, *rest, **options):
        if name == "distributed":
            raise ImportError(name)
        return plain(name, *rest, **options)

    monkeypatch.delitem(sys.modules, "distributed")
    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(InputError, match=r"pip install 'impact-gnn\[distributed\]'"):
        connected("tcp://127.0.0.1:1")


@pytest.mark.usefixtures("without_page")
def test_the_main_job_on_a_cluster_of_processes_survives_the_death_of_a_worker(tmp_path, started):
    """The three commands of docs/tutorial-cluster.md.

    One of the two workers is killed while the job runs.
    """
    address = free_address()
    ig.tsbm(num_nodes=400, num_times=6, num_labels=2, num_features=4, seed=0).save(
        tmp_path / "graph"
    )
    options = ["--cutoff", "5", "--candidates", "pmp+labels", "--folds", "1", "--seeds", "1"]
    options += ["--model", "linear"]
    started("scheduler", "--host", address, cwd=tmp_path)
    workers = [
        started("worker", address, "--nthreads", 1, "--no-nanny", cwd=tmp_path) for _ in range(2)
    ]
    with distributed.Client(address, timeout=60) as client:
        client.wait_for_workers(2, timeout=60)
    scratch = tmp_path / "scratch"
    job = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "impact_gnn",
            "run",
            "graph",
            "--out",
            "cluster",
            "--engine",
            "dask",
            "--scheduler",
            address,
            "--scratch",
            scratch,
            "--memory",
            "100kB",
            *options,
        ],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while job.poll() is None and not list(scratch.rglob("*.npy")):
        time.sleep(0.05)
    workers[0].kill()
    _, stderr = job.communicate(timeout=240)
    assert job.returncode == 0, stderr
    alone = ["run", tmp_path / "graph", "--out", tmp_path / "alone", "--engine", "memory"]
    done = CliRunner().invoke(app, [*map(str, alone), *options])
    assert done.exit_code == 0, done.output
    tables = [(tmp_path / out / "predictions.csv").read_bytes() for out in ("cluster", "alone")]
    assert tables[0] == tables[1]
