"""A modified file of ours is refused with one sentence, or still has the same content."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import impact_gnn as ig
from fuzzing import seeds
from impact_gnn import _files
from impact_gnn.checks import InputError
from impact_gnn.engines import Disk
from impact_gnn.estimators import Calibration, Ensemble, Pipeline
from impact_gnn.job import run


@pytest.fixture(scope="module")
def graph():
    g = ig.tsbm(num_nodes=150, num_times=6, num_labels=3, seed=0)
    parts = {"time": g.time, "edge_index": g.edge_index, "label_names": ["ant", "bee", "cat"]}
    return ig.TemporalGraph(x=g.x, y=g.y, **parts)


def changed_bytes(data, rng):
    kind, at = rng.integers(0, 6), int(rng.integers(0, len(data) + 1))
    if kind == 0:
        return data[:at]
    if kind == 1:
        return (
            data[:at]
            + bytes(rng.integers(0, 256, int(rng.integers(1, 9))).astype(np.uint8))
            + data[at:]
        )
    if kind == 2:
        return data[:at] + data[at + 1 :]
    if kind == 3:
        return bytes(len(data))
    out = bytearray(data)
    for place in rng.integers(0, max(len(data), 1), int(rng.integers(1, 4)))[: len(data)]:
        out[place] ^= 1 << int(rng.integers(0, 8))
    return bytes(out)


def changed_json(value, rng):
    """The same tree with one leaf or branch that is something else."""
    odd = [None, True, -1, 0, 10**9, 1e308, "x", [], {}, [[[]]], "../..", float("nan")]
    if rng.random() < 0.3 or not isinstance(value, dict | list) or not value:
        return odd[rng.integers(0, len(odd))]
    if isinstance(value, list):
        at = int(rng.integers(0, len(value)))
        return (
            value[:at]
            if rng.random() < 0.2
            else [*value[:at], changed_json(value[at], rng), *value[at + 1 :]]
        )
    name = list(value)[rng.integers(0, len(value))]
    if rng.random() < 0.2:
        return {key: part for key, part in value.items() if key != name}
    return value | {name: changed_json(value[name], rng)}


def damage(folder, rng):
    """Changes one file of a folder."""
    files = sorted(
        file for file in folder.rglob("*") if file.is_file() and file.name != _files.LOCK
    )
    file = files[rng.integers(0, len(files))]
    kind = rng.integers(0, 10)
    if kind == 0:
        file.unlink()
    elif kind == 1:  # a reader that opens it waits for ever
        file.unlink()
        os.mkfifo(file)
    elif kind == 2:
        file.unlink()
        file.mkdir()
    elif kind == 3:
        shutil.copy(files[rng.integers(0, len(files))], folder / "other")
        (folder / "other").replace(file)
    elif kind < 7 and file.suffix == ".json":
        file.write_text(json.dumps(changed_json(json.loads(file.read_text()), rng)))
    else:
        file.write_bytes(changed_bytes(file.read_bytes(), rng))
    return file.relative_to(folder), kind


def hold(whole, tmp_path, read, same, count):
    """Damages copies of a folder; `read` refuses them in one line or passes the check `same`."""
    outcomes = []
    for seed in seeds(count):
        rng, copy = np.random.default_rng(seed), tmp_path / "copy"
        subprocess.run(["cp", "-a", whole, copy], check=True)
        what = damage(copy, rng)
        try:
            same(read(copy))
            outcomes.append("same")
        except InputError as error:
            outcomes.append("sentence" if "\n" not in str(error) else what)
        except AssertionError as error:
            raise AssertionError(
                f"seed {seed}: {what} was accepted and gives something else"
            ) from error
        except Exception as error:
            raise AssertionError(f"seed {seed}: {what} ends in {error!r}") from error
        shutil.rmtree(copy)
    assert count < 20 or "sentence" in outcomes  # otherwise nothing was damaged
    assert set(outcomes) <= {"sentence", "same"}


@pytest.mark.parametrize("kind", ["pipeline", "ensemble"])
def test_models(graph, tmp_path, kind):
    pipelines = [
        Pipeline(model, "labels", cutoff=5, epochs=2).fit(graph) for model in ("sign", "trees")
    ]
    model = (
        pipelines[0]
        if kind == "pipeline"
        else Ensemble(pipelines, [0.5, 0.5], Calibration(), np.full(3, 1 / 3))
    )
    model.save(tmp_path / "model")
    wanted = model.predict_proba(graph)

    def same(loaded):
        assert np.array_equal(loaded.predict_proba(graph), wanted)

    hold(tmp_path / "model", tmp_path, type(model).load, same, 150)


def test_hops_slices_and_sorted_edges(tmp_path):
    graph = ig.tsbm(num_nodes=300, num_times=4, num_labels=2, num_features=40, seed=0)
    place = tmp_path / "copy"

    def hops(place):
        engine = Disk(place, memory=300 * 65)
        both = engine.graph(graph, undirected=True)
        return [
            np.asarray(hop)
            for hop in ig.propagate(both, weighting="pmp", norm="sym", hops=2, engine=engine)
        ]

    wanted = hops(place)
    # stored work names its own path, so copies take the same one
    place.rename(tmp_path / "whole")

    def same(result):
        for a, b in zip(result, wanted, strict=True):
            np.testing.assert_array_equal(a, b)

    hold(tmp_path / "whole", tmp_path, hops, same, 100)


def test_saved_graphs(graph, tmp_path):
    graph.save(tmp_path / "graph")
    wanted = ig.graph.graph_digest(graph)

    def same(loaded):
        assert ig.graph.graph_digest(loaded) == wanted

    hold(tmp_path / "graph", tmp_path, lambda place: ig.load(place, verify=True), same, 150)


def test_archives(graph, tmp_path):
    (tmp_path / "whole").mkdir()
    np.savez(
        tmp_path / "whole" / "g.npz",
        x=graph.x,
        y=graph.y,
        time=graph.time,
        edge_index=graph.edge_index,
    )
    wanted = ig.graph.graph_digest(ig.load(tmp_path / "whole" / "g.npz"))

    def same(loaded):
        assert ig.graph.graph_digest(loaded) == wanted

    hold(tmp_path / "whole", tmp_path, lambda place: ig.load(place / "g.npz"), same, 150)


@pytest.mark.usefixtures("without_page")
def test_run_folders(graph, tmp_path):
    """Files in the folder of a run are reused only if they are unchanged."""
    options = {"cutoff": 5, "candidates": ["linear:plain", "prior:plain"], "folds": 1, "seeds": 1}
    place = tmp_path / "copy"
    run(graph, place, **options)
    wanted = (place / "predictions.csv").read_bytes()
    place.rename(tmp_path / "whole")

    def same(result):
        assert result == wanted

    def again(place: Path) -> bytes:
        run(graph, place, **options)
        return (place / "predictions.csv").read_bytes()

    hold(tmp_path / "whole", tmp_path, again, same, 4)
