"""Work that would not fit into memory is refused with an estimate; cheap cases are made to fit."""

import json
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

import impact_gnn as ig
from impact_gnn import _native, weighting
from impact_gnn.cli import app
from impact_gnn.cli.common import guarded
from impact_gnn.connectivity import relative_connectivity
from impact_gnn.estimators import HeadOptions, Shape, spec_of

MANY = np.arange(200_000)
LINE = np.stack([MANY[:-1], MANY[1:]])


@pytest.fixture
def little_memory(monkeypatch):
    monkeypatch.setattr(_native, "free_memory", lambda: 1 << 20)


@pytest.mark.parametrize("method", weighting.METHODS)
def test_tables_of_many_times(method):
    with pytest.raises(
        ig.InputError, match=r"200,000 x 200,000 times would need 596\.0 GiB .*--period"
    ):
        weighting.table(method, MANY, MANY)


def test_a_graph_of_many_times_says_what_tables_would_take():
    with pytest.raises(
        ig.InputError, match=r"298\.0 GiB\); use fewer periods, for example with --period"
    ):
        ig.TemporalGraph(time=MANY, edge_index=LINE)


def test_connectivity_of_many_times(little_memory):
    time = np.arange(500)
    with pytest.raises(ig.InputError, match="connectivity of 500 x 500 times would need"):
        relative_connectivity(LINE[:, :499], time % 2, time, num_labels=2, cutoff=400)


def test_many_classes(little_memory):
    time, y = np.arange(2000) // 200, np.arange(2000)
    g = ig.TemporalGraph(time=time, edge_index=LINE[:, :1999], y=y, num_labels=2000)
    with pytest.raises(
        ig.InputError, match="probabilities of 2,000 nodes and 1,800 classes would need"
    ):
        ig.Pipeline("prior", "features", cutoff=9).fit(g)
    with pytest.raises(ig.InputError, match="weights of 4,000 inputs and 2,000 classes would need"):
        spec_of("linear").make(Shape([2000], [2000], 2000, [2]), HeadOptions())


@pytest.mark.parametrize(
    "sizes", [["--labels", "1000000"], ["--times", "1000000"], ["--features", "10000000000000"]]
)
def test_generated_graphs(tmp_path, sizes):
    done = CliRunner().invoke(app, ["generate", "--out", str(tmp_path / "g"), *sizes])
    assert done.exit_code == 2
    assert "GiB of memory" in done.output


def test_hops_beyond_reason():
    g = ig.tsbm(num_nodes=100, num_times=4, num_labels=2, seed=0)
    with pytest.raises(ig.InputError, match="hops=1000000 is more than 100"):
        ig.Pipeline("linear", cutoff=3, hops=1_000_000).fit(g)


def with_codes():
    g = ig.tsbm(
        num_nodes=200,
        num_times=5,
        num_labels=3,
        num_features=2,
        feature_std=1,
        mean_degree=6,
        seed=0,
    )
    codes = np.array([7, 100_000, 1_234_567])
    return ig.TemporalGraph(
        x=g.x, y=np.where(g.time < 4, codes[g.y], -1), time=g.time, edge_index=g.edge_index
    )


@pytest.mark.usefixtures("without_page")
def test_labels_that_are_codes_are_numbered_anew_and_keep_their_names(tmp_path):
    g = with_codes()
    assert (g.num_labels, g.label_names) == (3, (7, 100_000, 1_234_567))
    assert set(g.y) == {-1, 0, 1, 2}
    ig.run(g, tmp_path / "run", candidates=["linear:plain"], effort="quick")
    lines = (tmp_path / "run" / "predictions.csv").read_text().splitlines()
    place = lines[0].split(",").index('"label"')
    assert {line.split(",")[place] for line in lines[1:]} <= {"7", "100000", "1234567"}
    assert json.loads((tmp_path / "run" / "summary.json").read_text())


def test_small_gaps_between_labels_are_classes_as_before():
    assert ig.TemporalGraph(y=[0, 5], time=[0, 1], edge_index=[[0], [1]]).num_labels == 6


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("Unable to allocate 298. GiB"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory"),
    ],
)
def test_memory_that_runs_out_ends_with_a_sentence(capsys, error):
    def work():
        raise error

    with pytest.raises(SystemExit) as end:
        guarded(work)
    assert end.value.code == 2
    stderr = capsys.readouterr().err
    assert stderr.startswith("error: memory ran out: ")
    assert stderr.count("\n") == 1


def test_other_errors_of_torch_are_not_hidden():
    def work():
        raise RuntimeError("something else")

    with pytest.raises(RuntimeError, match="something else"):
        guarded(work)


@pytest.mark.skipif(sys.platform != "linux", reason="address spaces are limited on Linux")
def test_free_memory_respects_the_limit_of_the_address_space():
    limit = 4_000_000_000
    code = (
        "import resource; from impact_gnn._native import free_memory; "
        f"resource.setrlimit(resource.RLIMIT_AS, ({limit}, {limit})); print(free_memory())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 0 < int(done.stdout) < limit


def test_the_disk_engine_announces_the_peak_of_the_whole_process(tmp_path):
    graph = ig.tsbm(num_nodes=200, num_times=4, num_labels=2, seed=0)
    sentence = ig.engines.choose(graph, "disk", memory="1GB", scratch=tmp_path).sentence
    assert sentence.endswith("the whole process peaks at about 1.7 GB")
