"""Predictions do not depend on the order of rows and columns or the number of threads."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
import torch
from threadpoolctl import threadpool_info
from typer.testing import CliRunner

import impact_gnn as ig
from impact_gnn._native import one_thread
from impact_gnn.cli import app

SIZE = 1200
# The page of the report is not drawn: it takes seconds, and this test reads the predictions.
COMMAND = """
from impact_gnn.cli import app
from impact_gnn.report import page
page.render = lambda *_, **__: "page"
app()
"""
TRIED = ["--candidates", "plain,pmp+center+labels,trees:labels", "--folds", "1", "--seeds", "1"]


def write_tables(folder, seed=None):
    """A graph with numbers, a category, text and edges with weights.

    A seed shuffles rows and columns.
    """
    g = ig.tsbm(num_nodes=SIZE, num_times=6, num_labels=3, num_features=24, mean_degree=6, seed=0)
    rng = np.random.default_rng(1)
    nodes = pd.DataFrame(g.x, columns=[f"x{k:02d}" for k in range(g.x.shape[1])])
    nodes["word"] = rng.choice(["red", "green", "blue"], SIZE)
    nodes["text"] = [" ".join(rng.choice([f"w{k}" for k in range(60)], 6)) for _ in range(SIZE)]
    nodes["id"] = [f"n{k}" for k in range(SIZE)]
    nodes["time"] = g.time
    nodes["label"] = [f"class {k}" if t < 5 else None for k, t in zip(g.y, g.time, strict=True)]
    source, target = g.edge_index
    names = nodes["id"].to_numpy()
    edges = pd.DataFrame({"source": names[source], "target": names[target]})
    edges["weight"] = rng.integers(1, 4, len(edges)) / 4
    folder.mkdir()
    for name, table in {"nodes": nodes, "edges": edges}.items():
        if seed is not None:
            table = table.sample(frac=1, random_state=seed)
            table = table[np.random.default_rng(seed).permutation(table.columns)]
        table.to_csv(folder / f"{name}.csv", index=False)


def predictions(where, threads):
    """The table that a run writes: with one thread in this process, with more in a new one."""
    arguments = ["run", str(where / "graph"), "--out", str(where / "out"), *TRIED]
    if threads == 1:
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 0, done.output
    else:
        names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
        counts = dict.fromkeys(names, str(threads))
        done = subprocess.run(
            [sys.executable, "-c", COMMAND, *arguments],
            # Tests run in parallel: threads that wait actively would take the core they wait for.
            env=os.environ | counts | {"OMP_WAIT_POLICY": "passive"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    return (where / "out" / "predictions.csv").read_bytes()


@pytest.mark.usefixtures("without_page")
def test_predictions_do_not_depend_on_order_or_threads(tmp_path):
    tables = []
    for threads, seed in ((1, None), (2, 3)):
        where = tmp_path / str(threads)
        where.mkdir()
        write_tables(where / "graph", seed)
        tables.append(predictions(where, threads))
    assert tables[0].count(b"\n") > 100
    assert tables[0] == tables[1]


def threads_now():
    return {torch.get_num_threads(), *(pool["num_threads"] for pool in threadpool_info())}


def test_threads_are_restored_by_the_last_to_leave():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        blas = [pool["num_threads"] for pool in threadpool_info()]
        with one_thread:
            with ThreadPoolExecutor(1) as pool:
                pool.submit(one_thread(lambda: None)).result()
            assert threads_now() == {1}
        assert torch.get_num_threads() == 2
        assert [pool["num_threads"] for pool in threadpool_info()] == blas
    finally:
        torch.set_num_threads(before)
