"""Runs over files: edges sorted within a cap, hops that survive whatever happens to the process or the disk."""

import errno
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from impact_gnn.checks import InputError
from impact_gnn.graph import TemporalGraph
from impact_gnn.propagation import external, manifest, paging
from impact_gnn.propagation.building import build_csr
from impact_gnn.propagation.disk import Disk
from impact_gnn.propagation.disk_operator import DiskOperator, open_saved
from impact_gnn.propagation.hops import operator
from impact_gnn.propagation.memory import Memory
from places import quick_directory

HERE = Path(__file__).parent


@pytest.fixture
def place():
    with quick_directory() as made:
        yield made


def graph_of(num_nodes=300, num_edges=3000, width=40, seed=0, weighted=False):
    rng = np.random.default_rng(seed)
    target = (num_nodes * rng.random(num_edges) ** 3).astype(int)
    return TemporalGraph(
        x=rng.normal(size=(num_nodes, width)).astype(np.float32),
        time=rng.integers(0, 4, num_nodes),
        edge_index=np.stack([rng.integers(0, num_nodes, num_edges), target]),
        edge_weight=rng.random(num_edges) if weighted else None,
    )


def same_edges(stored, csr):
    loaded = stored.load()
    assert loaded.indices.dtype == csr.indices.dtype
    np.testing.assert_array_equal(loaded.indptr, csr.indptr)
    np.testing.assert_array_equal(loaded.indices, csr.indices)
    assert (loaded.weight is None) == (csr.weight is None)
    if csr.weight is not None:
        np.testing.assert_array_equal(loaded.weight, csr.weight)
    assert stored.largest_row == np.diff(csr.indptr).max(initial=0)


def same_hops(got, wanted):
    for a, b in zip(got, wanted, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


# -- edges ---------------------------------------------------------------------------------------------------


@given(st.integers(0, 10**6), st.booleans(), st.booleans(), st.sampled_from([1, 40, 10**6]))
def test_external_sort_is_the_sort_in_memory(seed, weighted, undirected, most):
    """Whatever the size of buckets; with 1, nearly all are larger than memory and take the other way."""
    rng = np.random.default_rng(seed)
    nodes, edges = int(rng.integers(1, 50)), int(rng.integers(0, 400))
    ends = rng.integers(0, nodes, (2, edges), dtype=rng.choice([np.int32, np.int64, np.uint16]))
    weight = rng.random(edges).astype(rng.choice([np.float32, np.float64])) if weighted else None
    wanted = build_csr(*ends, nodes, nodes, weight, undirected=undirected)
    with pytest.MonkeyPatch.context() as patch, quick_directory() as where:
        patch.setattr(external, "LEAST", most)
        patch.setattr(external, "CHUNK", 64)
        patch.setattr("impact_gnn.propagation.edge_files.CHUNK", 64)
        patch.setattr(external, "BINS", 3)
        disk = Disk(where, memory=1)
        same_edges(disk.edges(ends, nodes, weight=weight, undirected=undirected), wanted)


def test_sources_and_targets_may_be_different_nodes(place):
    ends = np.array([[4, 0, 4, 2], [1, 0, 1, 2]])
    same_edges(Disk(place).edges(ends, 5, 3), build_csr(*ends, 5, 3))
    with pytest.raises(InputError, match="same nodes at both ends, but there are 5 sources and 3 targets"):
        Disk(place).edges(ends, 5, 3, undirected=True, name="other")


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_edges_from_tables(place, kind):
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    rng = np.random.default_rng(0)
    ends, weight = rng.integers(0, 100, (2, 5000)), rng.random(5000).astype(np.float32)
    write = {"csv": pa.csv.write_csv, "parquet": pa.parquet.write_table}[kind]
    for number, (a, b) in enumerate([(0, 1200), (1200, 5000)]):
        table = pa.table({"weight": weight[a:b], "target": ends[1, a:b], "other": ends[0, a:b], "source": ends[0, a:b]})
        write(table, place / f"{number}.{kind}")
    found = Disk(place / "work", memory="10kB").edges([place / f"0.{kind}", str(place / f"1.{kind}")], 100)
    same_edges(found, build_csr(*ends, 100, 100, weight))


def test_edges_from_npy_files(place):
    ends, weight = np.random.default_rng(0).integers(0, 9, (2, 50)), np.arange(50.0)
    np.save(place / "ends.npy", ends)
    np.save(place / "weight.npy", weight)
    found = Disk(place / "work").edges(place / "ends.npy", 9, weight=place / "weight.npy", undirected=True)
    same_edges(found, build_csr(*ends, 9, 9, weight, undirected=True))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("source,goal\n0,1\n", "has no column target; it has source, goal"),
        ("source,target\n0,1\n0,seven\n", "cannot be read .* whole-number columns"),
        ("source,target\n0,1\n0,9\n", "edge 1 runs from 0 to 9, but there are 3 sources and 3 targets"),
        ("source,target,weight\n0,1,1\n0,2,-1\n", r"weight is negative \(-1.0\) at edge 1"),
        ("source,target,weight\n0,1,1\n0,2,\n", "column 'weight' of .* has gaps"),
    ],
)
def test_bad_tables_are_refused(place, text, message):
    (place / "edges.csv").write_text(text)
    with pytest.raises(InputError, match=message):
        Disk(place / "work").edges(place / "edges.csv", 3)


def test_bad_edges_are_refused(place):
    disk = Disk(place / "work")
    (place / "a.csv").write_text("source,target\n0,1\n")
    (place / "b.csv").write_text("source,target,weight\n0,1,1\n")
    with pytest.raises(InputError, match=r"b.csv has a column 'weight', .*a.csv has none"):
        disk.edges([place / "a.csv", place / "b.csv"], 3)
    with pytest.raises(InputError, match=r"nothing.csv does not exist"):
        disk.edges(place / "nothing.csv", 3)
    with pytest.raises(InputError, match=r"edges are float64 of shape \(2, 2\)"):
        disk.edges(np.zeros((2, 2)), 3)
    with pytest.raises(InputError, match="belong into a column called 'weight'"):
        disk.edges(place / "a.csv", 3, weight=np.ones(1))


def test_sorted_edges_are_used_again_only_for_the_same_edges(place):
    ends = np.array([[0, 1, 2], [1, 2, 0]])
    first = Disk(place).edges(ends, 3)
    stamp = (first.directory / "indices.npy").stat().st_mtime_ns
    assert Disk(place).edges(ends.copy(), 3) == first
    assert (first.directory / "indices.npy").stat().st_mtime_ns == stamp
    with pytest.raises(InputError, match="holds other edges"):
        Disk(place).edges(ends[::-1], 3)
    with pytest.raises(InputError, match="holds other edges"):
        Disk(place).edges(ends, 3, undirected=True)


# -- hops ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"norm": "sym", "self_loop": True}, {"norm": "sum"}])
def test_operator_from_a_saved_graph_is_the_one_in_memory(place, options):
    graph = graph_of(weighted=True)
    graph.save(place / "graph")
    saved = open_saved(place / "graph")
    disk = Disk(place / "work", memory=300 * 4 * 16)
    step = disk.operator(place / "graph", weighting="genpmp", **options)
    wanted = operator(graph, weighting="genpmp", **options)
    assert isinstance(step, DiskOperator)
    np.testing.assert_array_equal(step.table, wanted.table)
    same_hops(disk.hops([step, step], saved.x), Memory().hops([wanted, wanted], graph.x))
    assert not saved._csr  # never made


def test_types_without_a_time_are_not_weighted(place):
    graph = TemporalGraph.hetero(
        nodes={"paper": {"x": np.eye(4, dtype=np.float32), "time": [0, 1, 1, 2]}, "author": {"num_nodes": 3}},
        edges={
            ("author", "writes", "paper"): [[0, 1, 2, 2], [0, 1, 2, 3]],
            ("paper", "by", "author"): [[0, 3], [1, 2]],
        },
        target="paper",
    )
    disk = Disk(place, memory=32)
    path = ("paper", "by", "author"), ("author", "writes", "paper")
    got = disk.hops([disk.operator(graph, triple, weighting="pmp") for triple in path], graph.x)
    same_hops(got, Memory().hops([operator(graph, triple, weighting="pmp") for triple in path], graph.x))
    with pytest.raises(InputError, match="step 2 takes 4 nodes, but 3 come out of the step before"):
        disk.hops([disk.operator(graph, path[0])] * 2, graph.x)


def test_hops_are_plain_npy_files_and_the_rest_is_gone(place):
    graph = graph_of()
    disk = Disk(place / "work", memory=300 * 4 * 16)
    got = disk.hops([disk.operator(graph)] * 2, graph.x)
    same_hops([np.load(place / "work" / f"hop-{k}.npy") for k in (1, 2)], got)
    assert sorted(p.name for p in (place / "work").iterdir()) == [
        "edges", "hop-1.npy", "hop-2.npy", "lock", "manifest.json", "operators",
    ]  # fmt: skip


def test_storage_in_float16(place):
    graph = graph_of()
    step = operator(graph, weighting="mmp")
    got = Disk(place, memory=300 * 2 * 16, storage="float16").hops([step, step], graph.x)
    same_hops(got, Memory().hops([step, step], graph.x.astype(np.float16)))


def test_a_complete_run_is_only_opened(place):
    graph = graph_of()
    disk = Disk(place)
    disk.hops([operator(graph)], graph.x)
    stamp = (place / "hop-1.npy").stat().st_mtime_ns
    said = []
    again = replace(disk, memory="1kB", progress=lambda *what: said.append(what))
    same_hops(again.hops([operator(graph)], graph.x), Memory().hops([operator(graph)], graph.x))
    assert (place / "hop-1.npy").stat().st_mtime_ns == stamp
    assert not said
    (place / "hop-1.npy").unlink()
    same_hops(disk.hops([operator(graph)], graph.x), Memory().hops([operator(graph)], graph.x))
    assert not (place / "slices").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda graph: {"x": graph.x + 1}, "begun with another x"),
        (lambda graph: {"x": graph.x[:, 1:]}, r"x shape 1: 40 then, 39 now"),
        (lambda graph: {"norm": "sum"}, "operators 0 norm: 'mean' then, 'sum' now"),
        (lambda graph: {"weighting": "mmp"}, "operators 0 table: its checksum differs"),
        (lambda graph: {"hops": 3}, r"path: \[0, 0\] then, \[0, 0, 0\] now"),
        (lambda graph: {"graph": graph_of(seed=1).with_features(graph.x)}, "operators 0 edges: its checksum differs"),
    ],
)
def test_a_directory_of_something_else_is_refused(place, change, message):
    graph = graph_of()

    def run(graph=graph, x=graph.x, hops=2, weighting="pmp", norm="mean"):
        return Disk(place).hops([operator(graph, weighting=weighting, norm=norm)] * hops, x)

    kept = [np.array(hop) for hop in run()]
    with pytest.raises(InputError, match=message):
        run(**change(graph))
    same_hops(run(), kept)


def test_foreign_files_are_left_alone(place):
    (place / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match=r"holds other files \(thesis.tex\)"):
        Disk(place).hops([operator(graph_of())], graph_of().x)
    with pytest.raises(InputError, match="is a file; choose a directory"):
        Disk(place / "thesis.tex").hops([operator(graph_of())], graph_of().x)


def test_two_processes_do_not_share_a_directory(place):
    with manifest.held(place), pytest.raises(InputError, match="another process is working in"):
        Disk(place).hops([operator(graph_of())], graph_of().x)


def test_bad_options_are_refused(place):
    graph = graph_of()
    with pytest.raises(InputError, match="'much' is not an amount of memory"):
        Disk(place, memory="much")
    with pytest.raises(InputError, match="storage='int8' is not known"):
        Disk(place, storage="int8")
    with pytest.raises(InputError, match="threads=0 must be"):
        Disk(place, threads=0)
    with pytest.raises(InputError, match=r"memory of 1.0 kB is too small: 300 nodes need at least 1.2 kB"):
        Disk(place, memory="1kB").hops([operator(graph)], graph.x)
    with pytest.raises(InputError, match="x is of type int64"):
        Disk(place).hops([operator(graph)], np.zeros((300, 2), int))
    with pytest.raises(InputError, match=r"x has shape \(300,\)"):
        Disk(place).hops([operator(graph)], np.zeros(300))


def test_needs_and_progress_are_told(place):
    graph = graph_of()
    said = []
    disk = Disk(place, memory=300 * 4 * 16, progress=lambda what, share: said.append((what, share)))
    steps = [operator(graph)] * 2
    needs = disk.needs(steps, graph.x)
    assert (needs.slices, needs.columns) == (3, 16)
    assert "3 slices of 16 columns" in str(needs)
    disk.hops(steps, graph.x)
    assert said[0][0].endswith("of disk needed")
    shares = [share for _, share in said]
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1)


def test_too_little_disk_is_known_before_anything_is_written(place, monkeypatch):
    graph = graph_of()
    free = shutil.disk_usage(place)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: free)
    with pytest.raises(InputError, match=r"needs .* more of disk, but 1.0 kB are free"):
        Disk(place / "a").hops([operator(graph)], graph.x)
    with pytest.raises(InputError, match=r"needs .* more of disk, but 1.0 kB are free"):
        Disk(place / "b").operator(graph)
    assert not list(place.glob("**/*.npy"))


@pytest.mark.parametrize("limit", [1, 5, 12, 20])
def test_a_full_disk_loses_nothing(place, monkeypatch, limit):
    graph = graph_of()
    wanted = Memory().hops([operator(graph, weighting="pmp")] * 3, graph.x)
    disk = Disk(place, memory=300 * 4 * 16)
    write, seen = paging.write_at, []

    def full(*arguments):
        seen.append(arguments)
        if len(seen) > limit:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(*arguments)

    monkeypatch.setattr(manifest, "INTERVAL", 0.0)
    monkeypatch.setattr(paging, "write_at", full)
    with pytest.raises(InputError, match=r"the disk of .* is full; what is complete is kept"):
        disk.hops([disk.operator(graph, weighting="pmp")] * 3, graph.x)
    monkeypatch.setattr(paging, "write_at", write)
    same_hops(disk.hops([disk.operator(graph, weighting="pmp")] * 3, graph.x), wanted)


def test_what_is_complete_is_not_done_again(place, monkeypatch):
    """A run that fails in its last slice goes on there."""
    from impact_gnn.propagation.steps import Step

    graph = graph_of()
    disk = Disk(place, memory=300 * 4 * 16)
    apply, seen = Step.apply, []

    def failing(self, *rest):
        seen.append(1)
        if len(seen) == 6:
            raise OSError(errno.EIO, "cable pulled")
        apply(self, *rest)

    monkeypatch.setattr(manifest, "INTERVAL", 0.0)
    monkeypatch.setattr(Step, "apply", failing)
    with pytest.raises(OSError, match="cable pulled"):
        disk.hops([operator(graph)] * 2, graph.x)
    got = disk.hops([operator(graph)] * 2, graph.x)
    assert len(seen) == 7  # three slices of two hops, one of them twice
    same_hops(got, Memory().hops([operator(graph)] * 2, graph.x))


def test_lost_slices_are_made_again_and_less_memory_is_refused(place, monkeypatch):
    from impact_gnn.propagation.job import Job

    graph = graph_of()
    disk = Disk(place, memory=300 * 4 * 16)
    wanted = Memory().hops([operator(graph)] * 2, graph.x)
    with monkeypatch.context() as patch:
        patch.setattr(Job, "_join", lambda *rest: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            disk.hops([operator(graph)] * 2, graph.x)
    (place / "slices" / "1" / "00001.npy").unlink()
    (place / "slices" / "2" / "00002.npy").write_bytes(b"damaged")
    with pytest.raises(InputError, match="was begun with more memory, in slices of 16 columns"):
        replace(disk, memory=300 * 4 * 5).hops([operator(graph)] * 2, graph.x)
    same_hops(disk.hops([operator(graph)] * 2, graph.x), wanted)


def test_killed_at_many_points_it_goes_on(place):
    done = subprocess.run(
        [sys.executable, HERE / "killed_run.py", place, "9"], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-1]) >= 8


def test_memory_stays_within_the_cap(place):
    """A fresh process: X is 76.8 MB, the cap 9.6 MB; edges and X come from files."""
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from impact_gnn.engines import Disk\n"
        "from impact_gnn.propagation.disk_operator import open_saved\n"
        "def peak():\n"
        "    lines = Path('/proc/self/status').read_text().splitlines()\n"
        "    return 1024 * int(next(line.split()[1] for line in lines if line.startswith('VmHWM')))\n"
        "def hop(graph, work, cap):\n"
        "    disk = Disk(work, memory=cap)\n"
        "    disk.hops([disk.operator(graph, weighting='pmp')], open_saved(graph).x)\n"
        "place = Path(sys.argv[1])\n"
        "hop(place / 'small', place / 'warm', 10**6)\n"
        "before = peak()\n"
        "hop(place / 'graph', place / 'work', 9_600_000)\n"
        "print(peak() - before)\n"
    )
    rng = np.random.default_rng(0)
    x = rng.random((300_000, 64), dtype=np.float32)
    ends = rng.integers(0, len(x), (2, 1_000_000))
    TemporalGraph(x=x, time=np.zeros(len(x), int), edge_index=ends).save(place / "graph")
    few = ends[:, :10_000] % 1000
    TemporalGraph(x=x[:1000, :16], time=np.arange(1000) % 10, edge_index=few).save(place / "small")
    call = [sys.executable, "-c", script, place]
    done = subprocess.run(call, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.split()[-1]) < 9.6e6 + 40e6
