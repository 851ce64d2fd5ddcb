"""Fits run in several processes or on a cluster, with the same result to the last bit."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import joblib
import numpy as np
import pytest

import impact_gnn as ig
from impact_gnn import _native
from impact_gnn.backtesting.candidates import initial_candidates
from impact_gnn.backtesting.fits import num_jobs
from impact_gnn.checks import InputError, WorkerLost
from impact_gnn.methods import Kind, Part, register, unregister

CANDIDATES = ["labels", "trees:labels", "linear:plain", "doubled"]
needs_two_cores = pytest.mark.skipif(joblib.cpu_count() < 2, reason="one core runs one job")


@pytest.fixture(scope="module")
def graph():
    return ig.tsbm(num_nodes=500, num_times=6, num_labels=3, feature_std=1, seed=0)


@pytest.fixture(scope="module")
def part_from_outside():
    """A weighting that other processes know only because the task brings it along."""
    register(
        Part(
            "doubled",
            Kind.WEIGHTING,
            "newer neighbours count double",
            edge_weights=lambda times, counts: 1.0 + (times[None, :] > times[:, None]),
        )
    )
    yield
    unregister("doubled")


def search(graph, jobs, **options):
    options = {"candidates": CANDIDATES, "folds": 2, "pipeline": ig.Pipeline(epochs=8), **options}
    return ig.backtest(graph, cutoff=5, jobs=jobs, **options)


def assert_same(ours, theirs):
    assert ours.selection == theirs.selection
    assert ours.calibration == theirs.calibration
    assert ours.rows == theirs.rows


@pytest.fixture(scope="module")
def in_one_process(graph, part_from_outside):
    return search(graph, jobs=1)


@needs_two_cores
def test_processes_do_not_change_a_back_test(graph, in_one_process):
    assert {len(row.scores) for row in in_one_process.rows} == {2}
    assert_same(in_one_process, search(graph, jobs=2))


@pytest.mark.usefixtures("without_page")
@needs_two_cores
def test_processes_do_not_change_a_run(graph, tmp_path):
    tables = []
    for jobs in (1, 2):
        out = tmp_path / str(jobs)
        ig.run(graph, out, cutoff=5, candidates=["labels", "trees:labels"], seeds=2, jobs=jobs)
        tables.append((out / "predictions.csv").read_bytes())
    assert tables[0] == tables[1]


def kill_this_process(marker: Path) -> None:
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture
def deadly(tmp_path):
    """A part that kills the process of its first fit."""
    marker = tmp_path / "killed"
    here = os.getpid()

    def kill_once(time, label):
        if os.getpid() != here:
            kill_this_process(marker)
        return np.ones(len(time))

    register(Part("deadly", Kind.TRAINING, "kills a process", label_weight=kill_once))
    yield marker
    unregister("deadly")


@needs_two_cores
def test_a_killed_process_is_survived(graph, deadly):
    candidates = ["labels", "deadly"]
    one = search(graph, jobs=1, candidates=candidates)
    assert not deadly.exists()
    assert_same(one, search(graph, jobs=2, candidates=candidates))
    assert deadly.exists()


def test_a_task_that_always_kills_its_process_ends_with_a_sentence():
    def kill(shared, task):
        os.kill(os.getpid(), signal.SIGKILL)

    tasks = ig.engines.Memory().run_tasks(kill, None, [1, 2], jobs=2)
    with pytest.raises(WorkerLost, match=r"killed 3 times.*--jobs 1"):
        list(tasks)


def test_work_ends_when_no_task_may_start():
    started = []

    def may_start(task):
        started.append(task)
        return task < 3

    def add(shared, task):
        return shared + task

    tasks = ig.engines.Memory().run_tasks(add, 10, range(9), jobs=1, starting=may_start)
    assert list(tasks) == [10, 11, 12]
    assert started == [0, 1, 2, 3]


@pytest.fixture(scope="module")
def client():
    """Two workers of one thread each, which are processes."""
    distributed = pytest.importorskip("distributed")
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    with (
        distributed.LocalCluster(**options, silence_logs=50) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def test_the_search_runs_on_a_cluster(graph, tmp_path, in_one_process, client):
    engine = ig.engines.Dask(client, tmp_path)
    pids = set(client.run(os.getpid).values())
    on_cluster = search(graph, jobs=2, engine=engine)
    assert pids == set(client.run(os.getpid).values())
    assert_same(in_one_process, on_cluster)


@needs_two_cores
def test_rounds_of_a_search_do_not_depend_on_where_fits_run(tmp_path, client):
    """Which candidates come next depends on all results before."""
    graph = ig.tsbm(num_nodes=1500, num_times=6, num_labels=2, feature_std=1, seed=0)
    small = ig.Pipeline(epochs=2, hidden=8)
    options = {"candidates": None, "effort": "quick", "folds": 1, "pipeline": small}
    one = search(graph, jobs=1, **options)
    initial = {str(candidate) for candidate in initial_candidates(graph.masked(5))}
    assert len({str(row.candidate.smoothed(False)) for row in one.rows} - initial) > 6
    assert_same(one, search(graph, jobs=2, **options))
    engine = ig.engines.Dask(client, tmp_path)
    assert_same(one, search(graph, jobs=2, engine=engine, **options))


def test_a_worker_of_a_cluster_is_killed_during_a_fit(graph, deadly, tmp_path, client):
    candidates = ["labels", "deadly"]
    pids = set(client.run(os.getpid).values())
    engine = ig.engines.Dask(client, tmp_path / "work")
    on_cluster = search(graph, jobs=2, candidates=candidates, engine=engine)
    assert deadly.exists()
    assert len(pids & set(client.run(os.getpid).values())) < 2
    assert_same(search(graph, jobs=1, candidates=candidates), on_cluster)


def kill_once(marker, task):
    kill_this_process(marker)
    return task


def test_what_only_a_killed_worker_had_is_sent_again(tmp_path, client):
    engine = ig.engines.Dask(client, tmp_path / "work")
    marker = tmp_path / "killed"
    # The task runs where the marker was sent.
    assert list(engine.run_tasks(kill_once, marker, [7], jobs=2)) == [7]
    assert marker.exists()


class TwoCores(ig.engines.Memory):
    def max_jobs(self, size: int) -> int:
        return 2


def test_the_number_of_jobs(graph):
    options = {"pipeline": ig.Pipeline(), "graph": graph, "engine": TwoCores()}
    assert num_jobs("auto", work=1, **options) == 1
    assert num_jobs("auto", work=1000, **options) == 2
    assert num_jobs(1, work=1000, **options) == 1
    assert num_jobs(8, work=10, **options) == 2
    own = {**options, "pipeline": ig.Pipeline(model=lambda inputs, outputs: None)}
    assert num_jobs("auto", work=1000, **own) == 1
    on_disk = {**options, "engine": ig.engines.Disk("unused")}
    assert num_jobs(8, work=1000, **on_disk) == 1


@pytest.mark.parametrize("jobs", [0, -1, "many", 1.5, True])
def test_refused_numbers_of_jobs(graph, jobs):
    with pytest.raises(InputError, match=r"jobs=.* use a whole number of at least 1, or 'auto'"):
        search(graph, jobs=jobs, candidates=["labels"])


def test_memory_bounds_the_number_of_jobs():
    assert ig.engines.Memory().max_jobs(1 << 50) == 1
    assert ig.engines.Memory().max_jobs(1) == joblib.cpu_count()


@pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux only")
def test_each_of_several_processes_has_one_thread(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    tasks = ig.engines.Memory().run_tasks(lambda *_: _native.available(), None, [1, 2], jobs=2)
    assert list(tasks) == [1, 1]
    assert "OMP_NUM_THREADS" not in os.environ


def is_running(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rsplit(")", 1)[1].split()[0] != "Z"


@pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux only")
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL])
def test_processes_end_with_their_parent(tmp_path, ending):
    code = """
import os, sys, time
from pathlib import Path
from impact_gnn.engines import Memory

def wait(folder, task):
    Path(folder, str(os.getpid())).touch()
    time.sleep(600)

if __name__ == "__main__":
    list(Memory().run_tasks(wait, sys.argv[1], [1, 2, 3], jobs=2))
"""
    parent = subprocess.Popen([sys.executable, "-c", code, tmp_path], stderr=subprocess.DEVNULL)
    wait_until(lambda: len(list(tmp_path.iterdir())) == 2)
    parent.send_signal(ending)
    assert parent.wait(timeout=60) != 0
    pids = [int(file.name) for file in tmp_path.iterdir()]
    wait_until(lambda: not any(map(is_running, pids)))


def wait_until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_an_error_of_a_task_is_raised_here():
    def divide(shared, task):
        return shared / task

    with pytest.raises(ZeroDivisionError):
        list(ig.engines.Memory().run_tasks(divide, 6, [3, 0, 2], jobs=2))


@needs_two_cores
def test_a_fit_of_another_thread_does_not_block_processes(graph):
    """A lock that a thread holds while a process is forked is never released there."""
    in_fit = threading.Event()
    may_end = threading.Event()

    def wait_in_fit(time, label):
        if threading.current_thread() is thread:
            in_fit.set()
            assert may_end.wait(timeout=120)
        return np.ones(len(time))

    register(Part("waiting", Kind.TRAINING, "waits", label_weight=wait_in_fit))
    thread = threading.Thread(target=search, args=(graph, 1), kwargs={"candidates": ["waiting"]})
    try:
        thread.start()
        assert in_fit.wait(timeout=120)
        rows = search(graph, jobs=2, candidates=["linear:plain"]).rows
        assert {len(row.scores) for row in rows} == {2}
    finally:
        may_end.set()
        thread.join()
        unregister("waiting")


def run_in_pool(jobs):
    return list(ig.engines.Memory().run_tasks(divmod, 7, [2, 3], jobs=jobs))


def test_a_process_of_a_pool_runs_tasks():
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply(run_in_pool, (2,)) == [(3, 1), (2, 1)]


@pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux only")
def test_an_interrupt_in_the_middle_of_many_forks_is_not_lost():
    code = """
import itertools, os, signal, threading
from impact_gnn.engines import Memory

big = [object() for _ in range(3_000_000)]  # forks take long
threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
results = Memory().run_tasks(lambda shared, task: task, None, range(100_000), jobs=2)
for result in results:
    pass
"""
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
        assert b"KeyboardInterrupt" in done.stderr
