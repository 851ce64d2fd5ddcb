"""The disk engine: edges sorted within a memory cap, hops that survive kills and full disks."""

import errno
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from impact_gnn import _files
from impact_gnn.checks import DiskFull, InputError
from impact_gnn.engines import Disk, Memory
from impact_gnn.engines.edges import EdgeList, ranges_of
from impact_gnn.graph import TemporalGraph, build_csr
from impact_gnn.graph.csr import merged
from places import quick_directory

SLICE = 300 * (4 * 16 + 1)
"""Memory for sixteen columns of `graph_of`."""


@pytest.fixture
def place():
    with quick_directory() as directory:
        yield directory


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
    assert stored.indices.dtype == csr.indices.dtype
    np.testing.assert_array_equal(stored.indptr, csr.indptr)
    np.testing.assert_array_equal(stored.indices, csr.indices)
    assert (stored.weight is None) == (csr.weight is None)
    if csr.weight is not None:
        np.testing.assert_array_equal(stored.weight, csr.weight)


def same_hops(hops, wanted):
    for a, b in zip(hops, wanted, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


# -- edges


def sorted_edges(disk, ends, num_sources, num_targets=None, weight=None):
    """The edges of a graph between two types, grouped by target in files."""
    targets = num_sources if num_targets is None else num_targets
    triple = ("source", "to", "target")
    relation = ends if weight is None else {"edge_index": ends, "weight": weight}
    graph = TemporalGraph.hetero(
        nodes={"source": {"num_nodes": num_sources}, "target": {"time": np.zeros(targets, int)}},
        edges={triple: relation},
        target="target",
    )
    return disk.csr(graph, triple)


@given(st.integers(0, 10**6), st.booleans(), st.sampled_from([1, 1000, 10**7]))
def test_external_sort_is_the_sort_in_memory(seed, weighted, memory):
    """For any number of ranges."""
    rng = np.random.default_rng(seed)
    nodes, edges = int(rng.integers(1, 50)), int(rng.integers(0, 400))
    ends = rng.integers(0, nodes, (2, edges), dtype=rng.choice([np.int32, np.int64, np.uint16]))
    weight = rng.random(edges).astype(rng.choice([np.float32, np.float64])) if weighted else None
    with quick_directory() as where:
        disk = Disk(where, memory=memory)
        expected = build_csr(*ends, nodes, nodes, weight)
        same_edges(sorted_edges(disk, ends, nodes, weight=weight), expected)
        both = disk.graph(
            TemporalGraph(time=np.zeros(nodes, int), edge_index=ends, edge_weight=weight),
            undirected=True,
        )
        loop = ends[0] == ends[1]
        twice = np.concatenate([ends, ends[::-1, ~loop]], 1)
        weights = None if weight is None else np.concatenate([weight, weight[~loop]])
        same_edges(both.csr(), merged(build_csr(*twice, nodes, nodes, weights)))


def edge_list(ends, nodes, place):
    _files.save_array(place / "ends.npy", ends)
    return EdgeList(place / "ends.npy", None, nodes, nodes)


def test_many_ranges_of_targets(place):
    edges = edge_list(np.random.default_rng(0).integers(0, 5000, (2, 40_000)), 5000, place)
    ranges = ranges_of(edges, memory=50_000)
    assert len(ranges) > 10
    assert [part.first for part in ranges[1:]] == [part.last for part in ranges[:-1]]
    assert ranges[-1].last == 5000
    assert sum(part.count for part in ranges) == 40_000


def test_sources_and_targets_may_be_different_nodes(place):
    ends = np.array([[4, 0, 4, 2], [1, 0, 1, 2]])
    same_edges(sorted_edges(Disk(place), ends, 5, 3), build_csr(*ends, 5, 3))


def test_edges_that_point_outside_are_refused(place):
    edges = edge_list(np.array([[0, 0], [1, 9]]), 3, place)
    message = "edge 1 runs from 0 to 9, but there are 3 sources and 3 targets"
    with pytest.raises(InputError, match=message):
        ranges_of(edges, memory=1000)


def test_sorted_edges_are_used_again_for_the_same_edges(place):
    ends = np.array([[0, 1, 2], [1, 2, 0]])
    first = sorted_edges(Disk(place), ends, 3)
    stamp = (first.directory / "indices.npy").stat().st_mtime_ns
    assert sorted_edges(Disk(place), ends.copy(), 3).directory == first.directory
    assert (first.directory / "indices.npy").stat().st_mtime_ns == stamp
    assert sorted_edges(Disk(place), ends[::-1], 3).directory != first.directory


# -- hops


@pytest.mark.parametrize("options", [{}, {"norm": "sym", "self_loop": True}, {"norm": "sum"}])
def test_a_saved_graph_is_never_loaded(place, options):
    graph = graph_of(weighted=True)
    graph.save(place / "graph")
    import impact_gnn as ig

    saved = ig.load(place / "graph")
    disk = Disk(place / "work", memory=SLICE)
    step = disk.operator(saved, weighting="genpmp", **options)
    assert isinstance(step.csr.indices, np.memmap)
    wanted = Memory().operator(graph, weighting="genpmp", **options)
    same_hops(disk.hops([step, step], saved.x), Memory().hops([wanted, wanted], graph.x))


def test_types_without_a_time_are_not_weighted(place):
    graph = TemporalGraph.hetero(
        nodes={
            "paper": {"x": np.eye(4, dtype=np.float32), "time": [0, 1, 1, 2]},
            "author": {"num_nodes": 3},
        },
        edges={
            ("author", "writes", "paper"): [[0, 1, 2, 2], [0, 1, 2, 3]],
            ("paper", "by", "author"): [[0, 3], [1, 2]],
        },
        target="paper",
    )
    path = ("paper", "by", "author"), ("author", "writes", "paper")
    hops = [
        engine.hops([engine.operator(graph, triple, weighting="pmp") for triple in path], graph.x)
        for engine in (Disk(place, memory=32), Memory())
    ]
    same_hops(*hops)


def test_features_without_columns(place):
    graph, disk = graph_of(width=0), Disk(place / "work")
    for _ in range(2):  # computed, then opened
        (hop,) = disk.hops([disk.operator(graph)], graph.x)
        assert hop.shape == np.asarray(hop).shape == (300, 0)


def test_storage_in_float16(place):
    graph = graph_of()
    step = Memory().operator(graph, weighting="mmp")
    hops = Disk(place, memory=SLICE, storage="float16").hops([step, step], graph.x)
    same_hops(hops, Memory().hops([step, step], graph.x.astype(np.float16)))


def test_existing_files_are_only_opened_and_lost_ones_are_written_again(place):
    graph, events = graph_of(), []
    disk = Disk(place, memory=SLICE, progress=lambda *event: events.append(event))
    step = Memory().operator(graph)
    wanted = Memory().hops([step, step], graph.x)
    same_hops(disk.hops([step, step], graph.x), wanted)
    assert [event[:3] for event in events] == [("propagating", k, 3) for k in (1, 2, 3)]
    files = sorted((place / "hops").rglob("*.npy"))
    stamps = [file.stat().st_mtime_ns for file in files]
    events.clear()
    same_hops(disk.hops([step, step], graph.x), wanted)
    # narrower slices than are there
    same_hops(Disk(place, memory=SLICE // 4).hops([step, step], graph.x), wanted)
    assert not events
    assert [file.stat().st_mtime_ns for file in files] == stamps
    for lost in (files[0], files[-1]):  # a slice of the first hop, and one of the last
        lost.unlink()
        events.clear()
        same_hops(disk.hops([step, step], graph.x), wanted)
        assert len(events) == 1


def test_other_inputs_do_not_meet_the_wrong_files(place):
    graph = graph_of()
    disk = Disk(place)
    for weighting, norm, x in [
        ("pmp", "mean", 0),
        ("mmp", "mean", 0),
        ("pmp", "sum", 0),
        ("pmp", "mean", 1),
    ]:
        step = Memory().operator(graph, weighting=weighting, norm=norm)
        same_hops(disk.hops([step], graph.x + x), Memory().hops([step], graph.x + x))
    other = graph_of(seed=1).with_features(graph.x)
    same_hops(
        disk.hops([disk.operator(other)], other.x),
        Memory().hops([Memory().operator(other)], other.x),
    )


def test_other_edge_times_do_not_meet_the_wrong_files(place):
    """Edges that differ in times only share their sorted files, not the times in them."""
    ends, disk = np.array([[0, 1, 1], [1, 0, 2]]), Disk(place / "work")
    for came in ([3, 2, 1], [1, 3, 3], None):
        graph = TemporalGraph(time=[0, 1, 1], edge_index=ends, edge_time=came)
        for options in ({"undirected": True}, {"upto": 2}, {"upto": 2, "undirected": True}):
            built, wanted = disk.graph(graph, **options), Memory().graph(graph, **options)
            np.testing.assert_array_equal(built.edge_index, wanted.edge_index)
            np.testing.assert_array_equal(built.edge_time, wanted.edge_time)


@pytest.mark.parametrize(
    "other",
    [
        (("author", "paper"), ("paper", "of", "author")),
        (("paper", "author"), ("author", "of", "paper")),
    ],
)
def test_other_names_of_types_do_not_meet_the_wrong_files(place, other):
    """Two graphs of the same arrays in the same order, under other names."""
    disk, ends = Disk(place / "work"), np.array([[0, 1, 2, 3], [1, 2, 3, 4]])
    for (first, second), triple in (
        (("paper", "author"), ("paper", "of", "author")),
        other,
    ):
        nodes = {
            first: {"x": np.zeros((5, 2)), "time": np.arange(5)},
            second: {"x": np.ones((5, 2)), "time": np.arange(5)[::-1]},
        }
        graph = TemporalGraph.hetero(nodes=nodes, edges={triple: ends}, target="paper")
        built, wanted = disk.graph(graph, upto=3), graph.upto(3)
        for kind, part in wanted.nodes.items():
            np.testing.assert_array_equal(built.nodes[kind].x, part.x)
        np.testing.assert_array_equal(
            built.relations[triple].edge_index, wanted.relations[triple].edge_index
        )


def test_no_file_can_lead_to_edges_outside(place):
    graph, other = graph_of(), graph_of(seed=1)
    disk, outside = Disk(place / "work"), Disk(place / "outside")
    step = disk.operator(graph)
    disk.hops([step], graph.x)
    elsewhere = str(outside.operator(other).csr.directory)
    (folder,) = (place / "work" / "operators").iterdir()
    meta = {"edges": elsewhere, "norm": "mean", "self_loop": False, "balanced": False}
    _files.write_json(folder / "operator.json", meta, sealed=True)
    shutil.rmtree(place / "work" / "hops")
    same_hops(disk.hops([step], graph.x), Memory().hops([Memory().operator(graph)], graph.x))


def test_children_have_a_place_of_their_own_and_can_be_cleared(place):
    graph = graph_of()
    disk = Disk(place / "work")
    child = disk.child("fold 2018/19")
    child.hops([child.operator(graph)], graph.x)
    assert child.root.is_relative_to(disk.root)
    disk.hops([disk.operator(graph)], graph.x)
    child.clear()
    assert not list(child.root.iterdir())
    assert list((disk.root / "hops").iterdir())
    disk.clear()
    assert not list(disk.root.iterdir())


def test_children_with_long_names_are_cleared(place):
    graph, disk = graph_of(), Disk(place / "work")
    disk.child("window " * 40).operator(graph)
    disk.clear()
    assert not list(disk.root.iterdir())


def test_a_directory_is_cleared_after_a_killed_run_and_can_be_used_again(place):
    """A writer that is killed while it sorts edges leaves a temporary folder in `edges`."""
    script = f"""
import os
from impact_gnn.engines import disk
from impact_gnn.graph import TemporalGraph
disk.sort_edges = lambda *_, **__: os._exit(9)
disk.Disk({str(place / "work")!r}).operator(TemporalGraph(time=[0, 1], edge_index=[[0], [1]]))
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 9
    disk, graph = Disk(place / "work"), graph_of()
    assert list((disk.root / "edges").iterdir())
    disk.clear()
    assert not list(disk.root.iterdir())
    disk.operator(graph)


def test_foreign_files_are_left_alone(place):
    graph = graph_of()
    (place / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match=r"contains other files \(thesis.tex\)"):
        Disk(place).operator(graph)
    with pytest.raises(InputError, match="is a file; choose a directory"):
        Disk(place / "thesis.tex").operator(graph)


def test_two_processes_do_not_share_a_directory(place):
    with _files.locked(place), pytest.raises(InputError, match="another process is working in"):
        Disk(place).operator(graph_of())


def test_bad_options_are_refused(place):
    graph = graph_of()
    step = Memory().operator(graph)
    with pytest.raises(InputError, match="'much' is not a memory size"):
        Disk(place, memory="much")
    with pytest.raises(InputError, match="storage='int8' is not valid"):
        Disk(place, storage="int8")
    with pytest.raises(InputError, match="threads=0 must be"):
        Disk(place, threads=0)
    with pytest.raises(
        InputError, match=r"memory limit is too small: 300 nodes need at least 1.2 kB"
    ):
        Disk(place, memory="1kB").hops([step], graph.x)
    with pytest.raises(InputError, match="x has dtype int64"):
        Disk(place).hops([step], np.zeros((300, 2), int))
    with pytest.raises(InputError, match=r"x has shape \(300,\)"):
        Disk(place).hops([step], np.zeros(300))


def test_too_little_disk_is_known_before_anything_is_written(place, monkeypatch):
    graph = graph_of()
    free = shutil.disk_usage(place)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: free)
    with pytest.raises(InputError, match=r"needs .* more disk space, but 1.0 kB are free"):
        Disk(place / "b").operator(graph)
    assert not list(place.glob("**/*.npy"))


@pytest.mark.parametrize("limit", [0, 1, 2, 3, 5, 8])
def test_a_full_disk_loses_nothing(place, monkeypatch, limit):
    graph = graph_of()
    wanted = Memory().hops([Memory().operator(graph, weighting="pmp")] * 3, graph.x)
    disk = Disk(place, memory=SLICE)
    allocate, calls = os.posix_fallocate, []

    def full(*arguments):
        calls.append(arguments)
        if len(calls) > limit:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        allocate(*arguments)

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(DiskFull, match=r"the disk of .* is full; completed work is stored"):
        disk.hops([disk.operator(graph, weighting="pmp")] * 3, graph.x)
    calls.clear()
    monkeypatch.setattr(
        os, "posix_fallocate", lambda *arguments: calls.append(arguments) or allocate(*arguments)
    )
    same_hops(disk.hops([disk.operator(graph, weighting="pmp")] * 3, graph.x), wanted)
    assert len(list(place.rglob("hops/*/*.npy"))) == 9
    assert not list(place.rglob("*.tmp"))


def test_memory_stays_within_the_cap(place):
    """A fresh process: X is 76.8 MB, the cap 9.6 MB; edges and X come from files."""
    script = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "import impact_gnn as ig\n"
        "def run(name, memory):\n"
        "    place = Path(sys.argv[1]) / name\n"
        "    engine = ig.engines.Disk(f'{place}-work', memory)\n"
        "    both = engine.graph(ig.load(place), undirected=True)\n"
        "    hops = engine.hops([engine.operator(both, weighting='pmp')] * 2, both.x)\n"
        "    hops[1].rows(range(0, both.num_nodes, 100))\n"
        "    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "before = run('small', 10**6)\n"
        "print(run('graph', 9_600_000) - before)\n"
    )
    rng = np.random.default_rng(0)
    for name, size, edges in (("small", 1000, 10_000), ("graph", 300_000, 1_000_000)):
        x = rng.random((size, 64), dtype=np.float32)
        ends = rng.integers(0, size, (2, edges))
        TemporalGraph(x=x, time=np.arange(size) % 5, edge_index=ends).save(place / name)
    call = [sys.executable, "-c", script, place]
    done = subprocess.run(call, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.split()[-1]) < 9.6e6 + 60e6
