"""Shared fixtures: the two array libraries, a finished run, one hypothesis profile."""

import os
import shutil
from pathlib import Path

# Some virtual machines announce AMX and end a process that uses it; torch looks for it at import.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import pytest
import torch
from hypothesis import HealthCheck, settings

import reproduction.competing  # noqa: F401 - the parts and models of studies obey the same laws
from libraries import Library

# Tests run side by side, and threads that wait for each other burn both cores.
torch.set_num_threads(1)
os.environ.setdefault("OMP_NUM_THREADS", "1")  # for the processes that tests start

# Temporary directories are in memory where it has space: tests call fsync ten thousand times, and
# each call waits for a disk.
IN_MEMORY, NEEDED_BYTES = Path("/dev/shm"), 2**31
if IN_MEMORY.is_dir() and shutil.disk_usage(IN_MEMORY).free > NEEDED_BYTES:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(IN_MEMORY))

collect_ignore = ["without_torch.py"]  # a script for an environment that has no torch

settings.register_profile(
    "tests",
    deadline=None,
    max_examples=40,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
settings.register_profile("deep", settings.get_profile("tests"), max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "tests"))


@pytest.fixture(params=["numpy", "torch"])
def xp(request):
    """numpy, then torch."""
    return Library(request.param)


@pytest.fixture
def without_page(monkeypatch):
    """A placeholder page: drawing takes two seconds, and these tests read other files."""
    monkeypatch.setattr("impact_gnn.report.page.render", lambda *_, **__: "page " * 1000)


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory):
    """A small run from beginning to end: its directory and its summary.

    Names of labels contain markup, quotes and mathematics.
    """
    import impact_gnn as ig

    g = ig.tsbm(
        num_nodes=640,
        num_times=8,
        num_labels=4,
        num_features=5,
        feature_std=1.0,
        mean_degree=15,
        seed=1,
        start=2001,
    )
    names = ["physics", "<script>alert(1)</script>", "history & art", '"quoted" $x_1$']
    g = ig.TemporalGraph(x=g.x, y=g.y, time=g.time, edge_index=g.edge_index, label_names=names)
    out = tmp_path_factory.mktemp("run") / "out"
    return out, ig.run(
        g, out, cutoff=2008, candidates=["labels", "pmp+center+labels", "mmp"], folds=2, seeds=1
    )
