"""Kills, full disks, second writers and spent budgets never leave half a result."""

import contextlib
import itertools
import json
import os
import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import impact_gnn as ig
from commands import here
from impact_gnn import _files, _progress
from impact_gnn.backtesting import EFFORTS, search
from impact_gnn.backtesting.effort import Effort
from impact_gnn.estimators import Ensemble, Pipeline
from impact_gnn.graph import graph_digest

# of all events; with IMPACT_KILLS=all, all
KILLS = {
    "convert": 8,
    "predict": 8,
    "disk": 10,
    "run": 14,
}
pytestmark = pytest.mark.usefixtures("without_page")
SMALL = {"model": "linear", "candidates": ["prior:plain"], "folds": 1, "seeds": 1}
GENERATED = ["--nodes", "500", "--mean-degree", "10"]
QUICK = ["--model", "linear", "--candidates", "prior:plain", "--folds", "1", "--seeds", "1"]


@pytest.fixture(scope="module")
def graph():
    return ig.tsbm(num_nodes=80, num_times=4, num_labels=2, num_features=2, mean_degree=6, seed=0)


def test_killed_before_any_change_of_a_file_nothing_is_lost(tmp_path):
    every = os.environ.get("IMPACT_KILLS") == "all"
    cases = [f"{name}:{0 if every else sample}" for name, sample in KILLS.items()]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    script = Path(__file__).parent / "killed_run.py"
    done = subprocess.run(
        [sys.executable, script, tmp_path, *cases],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    reports = [line for line in done.stdout.splitlines() if ": killed " in line]
    print("\n".join(reports))
    assert len(reports) == len(KILLS)


@contextlib.contextmanager
def full_at(size):
    """No file may grow beyond that many bytes: writing fails half way, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture(scope="module")
def compiled_generator(tmp_path_factory):
    """numba caches what it compiles, and would fail itself where no file may grow."""
    here("generate", "--out", tmp_path_factory.mktemp("compiled") / "g", *GENERATED)


@pytest.mark.usefixtures("compiled_generator")
@pytest.mark.parametrize("size", [0, 200, 1200, 3000])
def test_a_full_disk_is_one_sentence_and_complete_files_remain(graph, tmp_path, size):
    graph.save(tmp_path / "g")
    plain, out = tmp_path / "plain", tmp_path / "out"
    assert here("run", tmp_path / "g", "--out", plain, *QUICK).exit_code == 0
    commands = {
        "run": ["run", tmp_path / "g", "--out", out, *QUICK],
        "report": ["report", plain],
        "predict": ["predict", plain / "model", tmp_path / "g", "--out", plain / "predictions.csv"],
        "parquet": ["predict", plain / "model", tmp_path / "g", "--out", plain / "p.parquet"],
        "convert": ["convert", tmp_path / "g", "--out", tmp_path / "h"],
        "generate": ["generate", "--out", tmp_path / "i", *GENERATED],
        "json": ["check", tmp_path / "g", "--json", tmp_path / "c.json"],
    }
    before = {path.name: path.read_bytes() for path in plain.iterdir() if path.is_file()}
    failed = set()
    for name, words in commands.items():
        with full_at(size):
            done = here(*words)
        if done.exit_code:
            assert done.exit_code == 2, done.stdout
            assert (
                "is full; completed work is stored: free some space and run the command again."
                in done.stderr
            ), name
            assert done.stderr.count("error:") == 1
            failed.add(name)
    assert failed == set(commands) if size < 1200 else "run" in failed
    assert {name: (plain / name).read_bytes() for name in before} == before
    assert not list(tmp_path.rglob("*.tmp"))
    assert not (tmp_path / "h").exists() or "convert" not in failed
    for words in commands.values():
        assert here(*words).exit_code == 0
    assert (out / "predictions.csv").read_bytes() == before["predictions.csv"]


def test_a_rerun_with_a_larger_budget_goes_on(graph, tmp_path, monkeypatch):
    fits, fit = [], Pipeline.fit
    monkeypatch.setattr(
        Pipeline, "fit", lambda self, *a, **o: fits.append(self.cutoff) or fit(self, *a, **o)
    )

    def run(out, **options):
        fits.clear()
        summary = ig.run(graph, tmp_path / out, **SMALL, **options)
        return replace(
            summary, cost=None, options=None, backtest=replace(summary.backtest, seconds=0.0)
        ), list(fits)

    whole, all_fits = run("whole")
    short, _ = run("out", budget=1e-9)
    written = json.loads((tmp_path / "out" / "summary.json").read_text())["backtest"]
    assert not written["finished"]
    assert {row["candidate"]: row["status"] for row in written["rows"]} == {
        "plain": "evaluated on all folds",
        "prior:plain": "not evaluated: out of time",
    }
    assert short != whole
    again, repeated = run("out", budget=1e-9)
    assert (again, repeated) == (short, [])  # nothing more may be tried, nothing is done twice
    longer, more = run("out", budget=600.0)
    assert longer == whole
    assert len(all_fits) - len(more) == 1  # plain on its fold was done before
    # everything is done, for any budget
    assert run("out") == run("out", budget=1e-9) == (whole, [])
    predictions = [(tmp_path / name / "predictions.csv").read_bytes() for name in ("out", "whole")]
    assert predictions[0] == predictions[1]


def test_a_budget_counts_what_was_spent_before_a_kill(graph, tmp_path, monkeypatch):
    now, fit = [0.0], Pipeline.fit

    def slow(self, *arguments, **options):
        now[0] += 100
        return fit(self, *arguments, **options)

    def killed(*_):
        if now[0]:
            raise KeyboardInterrupt

    monkeypatch.setattr(search, "clock", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(Pipeline, "fit", slow)
    options = {
        "candidates": ["prior:plain", "linear:plain"],
        "folds": 1,
        "budget": 250,
        "store": tmp_path,
    }
    with pytest.raises(KeyboardInterrupt):
        ig.backtest(graph, progress=killed, **options)
    now[0] = 10_000.0  # time between two runs does not count
    stopped = ig.backtest(graph, **options)
    assert (stopped.finished, stopped.seconds) == (False, 200.0)
    assert sorted(len(row.scores) for row in stopped.rows) == [0, 1, 1]


def test_a_budget_is_that_of_the_whole_command(graph, monkeypatch):
    """Time before the search counts, and time for the final fits is reserved."""
    now, fit = [0.0], Pipeline.fit

    def slow(self, *arguments, **options):
        now[0] += 10
        return fit(self, *arguments, **options)

    for module in (search, _progress):
        monkeypatch.setattr(module, "clock", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(Pipeline, "fit", slow)

    def spent(reading, **options):
        watcher = _progress.Watcher()
        now[0] += reading
        tested = ig.backtest(
            graph,
            candidates=["prior:plain", "linear:plain"],
            pipeline=Pipeline(hidden=4, epochs=2),
            folds=2,
            budget=100,
            progress=watcher,
            **options,
        )
        return watcher.seconds, tested.finished

    assert spent(0) == (70, True)  # six fits and one that measures accuracy by horizon
    assert spent(50) == (100, False)
    assert spent(0, refits=2) == (40, False)  # three candidates, twice: 60 more
    assert spent(95, refits=2) == (105, False)  # one fit always runs


def test_without_a_budget_the_clock_changes_nothing(graph, monkeypatch):
    monkeypatch.setitem(EFFORTS, "quick", Effort(1, 1, 1))
    pipeline = Pipeline("linear", epochs=2)
    fast = ig.backtest(graph, effort="quick", pipeline=pipeline)
    monkeypatch.setattr(
        search, "clock", SimpleNamespace(monotonic=itertools.count(0, 10**6).__next__)
    )
    slow = ig.backtest(graph, effort="quick", pipeline=pipeline)
    assert slow.seconds >= 10**6
    assert replace(slow, seconds=fast.seconds) == fast
    assert len(fast.rows) > 4  # a search, and not only plain


def arrays():
    rng = np.random.default_rng(0)
    triple = ("paper", "cites", "paper")
    return {
        "nodes": {
            "paper": {
                "time": [0, 0, 1, 2],
                "y": [0, 1, 0, -1],
                "x": rng.normal(size=(4, 2)),
                "ids": list("abcd"),
            }
        },
        "edges": {
            triple: {
                "edge_index": [[0, 1, 2], [2, 2, 3]],
                "time": [1, 1, 2],
                "weight": [1.0, 1.0, 2.0],
            }
        },
        "target": "paper",
        "label_names": ["x", "y"],
    }


def changed(*path, to):
    arguments = arrays()
    inner = arguments
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = to
    return arguments


EDGES = ("paper", "cites", "paper")
CHANGES = {
    "names of classes": changed("label_names", to=["x", "z"]),
    "ids": changed("nodes", "paper", "ids", to=list("abce")),
    "times": changed("nodes", "paper", "time", to=[0, 1, 1, 2]),
    "labels": changed("nodes", "paper", "y", to=[0, 1, 1, -1]),
    "features": changed("nodes", "paper", "x", to=np.ones((4, 2))),
    "edges": changed("edges", EDGES, "edge_index", to=[[0, 1, 1], [2, 2, 3]]),
    "times of edges": changed("edges", EDGES, "time", to=[1, 2, 2]),
    "weights": changed("edges", EDGES, "weight", to=[1.0, 1.0, 3.0]),
    "name of a relation": changed(
        "edges", to={("paper", "names", "paper"): arrays()["edges"][EDGES]}
    ),
}


def test_whatever_a_result_depends_on_is_in_the_digest_of_a_graph():
    plain = graph_digest(ig.TemporalGraph.hetero(**arrays()))
    assert plain == graph_digest(ig.TemporalGraph.hetero(**arrays()))
    changed_digests = {
        name: graph_digest(ig.TemporalGraph.hetero(**parts)) for name, parts in CHANGES.items()
    }
    assert len({plain, *changed_digests.values()}) == 1 + len(CHANGES), changed_digests
    table = {
        "id": [1, 2, 3],
        "time": ["2020-01-05", "2020-05-01", "2021-01-01"],
        "label": ["a", "b", None],
    }
    edges = {"source": [1, 2], "target": [2, 3]}

    def read(period="year", **columns):
        import pandas as pd

        return graph_digest(
            ig.from_tables(pd.DataFrame(table | columns), pd.DataFrame(edges), period=period)
        )

    digests = [
        read(f=[1.0, 2, 3]),
        read(g=[1.0, 2, 3]),
        read(f=["1", "2", "x"]),
        read("month", f=[1.0, 2, 3]),
    ]
    assert len(set(digests)) == len(digests)


def test_work_of_another_graph_or_release_is_refused(graph, tmp_path, monkeypatch):
    names = {"x": graph.x, "y": graph.y, "time": graph.time, "edge_index": graph.edge_index}
    ig.run(ig.TemporalGraph(**names, label_names=["a", "b"]), tmp_path / "out", **SMALL)
    with pytest.raises(ig.InputError, match="graph has changed"):
        ig.run(ig.TemporalGraph(**names, label_names=["a", "c"]), tmp_path / "out", **SMALL)
    monkeypatch.setattr("impact_gnn._store.__version__", "9.9")
    with pytest.raises(ig.InputError, match=r"impact_gnn was '.*' and is '9.9' now"):
        ig.run(ig.TemporalGraph(**names, label_names=["a", "b"]), tmp_path / "out", **SMALL)


def test_scratch_is_gone_after_success_and_after_a_refusal(graph, tmp_path, monkeypatch):
    graph.save(tmp_path / "g")
    out, scratch = tmp_path / "new" / "out", tmp_path / "new" / "out.scratch"
    command = ["run", tmp_path / "g", "--out", out, *QUICK]

    def stopped(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Ensemble, "save", stopped)
        assert here(*command, "--engine", "disk").exit_code == 130
    assert scratch.exists()  # so that computed hops are reused
    refused = here(*command, "--engine", "disk", "--seed", "3")
    assert refused.exit_code == 2
    assert scratch.exists()  # it is not the refused one's
    (scratch / "mine.txt").write_text("precious")
    assert here(*command).exit_code == 0
    assert [path.name for path in scratch.iterdir()] == ["mine.txt"]
    (scratch / "mine.txt").unlink()
    assert here(*command).exit_code == 0
    assert not scratch.exists()


def test_a_refused_command_leaves_nothing(graph, tmp_path):
    graph.save(tmp_path / "g")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    refused = [
        ["run", tmp_path / "g", "--out", tmp_path / "mine", "--engine", "disk"],
        [
            "run",
            tmp_path / "g",
            "--out",
            tmp_path / "a" / "b",
            "--engine",
            "disk",
            "--scratch",
            tmp_path / "mine" / "thesis.txt",
        ],
        [
            "run",
            tmp_path / "g",
            "--out",
            tmp_path / "a" / "b",
            "--engine",
            "disk",
            "--cutoff",
            "900",
        ],
        ["convert", tmp_path / "g", "--out", tmp_path / "mine"],
        ["convert", tmp_path / "nowhere", "--out", tmp_path / "a" / "b"],
        ["generate", "--out", tmp_path / "mine", "--nodes", "100"],
        ["predict", tmp_path / "g", tmp_path / "g", "--out", tmp_path / "a" / "p.csv"],
    ]
    before = sorted(tmp_path.rglob("*"))
    for words in refused:
        assert here(*words).exit_code == 2, words
        assert sorted(tmp_path.rglob("*")) == before, words


def test_a_directory_has_one_writer(graph, tmp_path):
    graph.save(tmp_path / "g")
    commands = [
        ["convert", tmp_path / "g", "--out", tmp_path / "out"],
        ["generate", "--out", tmp_path / "out", "--nodes", "100"],
    ]
    for words in commands:
        with (
            _files.exclusive_scratch(tmp_path / "out"),
            _files.temporary_place(tmp_path / "out", directory=True),
        ):
            done = here(*words)
            assert done.exit_code == 2, words
            assert (
                f"another process is writing {tmp_path / 'out'}; wait for it"
                in done.stderr.replace("\n", "")
            )
        assert [path.name for path in tmp_path.iterdir()] == ["g"]
    with _files.atomic_file(tmp_path / "t") as slow:  # a file may have several: the last one wins
        slow.write_text("slow")
        _files.write_json(tmp_path / "t", "quick")
    assert (tmp_path / "t").read_text() == "slow"
