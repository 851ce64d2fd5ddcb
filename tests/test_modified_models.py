"""A model with a modified and resealed schema is refused with one sentence, or predicts."""

import json
import subprocess

import numpy as np
import pandas as pd
import pytest

import impact_gnn as ig
from commands import here
from fuzzing import seeds
from impact_gnn import _files
from impact_gnn.estimators import Ensemble, Pipeline
from test_damaged_files import changed_json


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder of tables with columns of several kinds, and a model of them."""
    root, rng = tmp_path_factory.mktemp("resealed"), np.random.default_rng(0)
    (root / "g").mkdir()
    size = 60
    columns = {
        "id": [f"n{k}" for k in range(size)],
        "time": [f"{2010 + k // 12}-03-01" for k in range(size)],
        "label": [["ant", "bee"][k % 2] for k in range(size)],
        "number": rng.normal(size=size),
        "kind": rng.choice(["x", "y", "z"], size),
        "words": [f"some words about {k % 7} things" for k in range(size)],
        "day": [f"2009-01-{1 + k % 28:02d}" for k in range(size)],
    }
    pd.DataFrame(columns).to_csv(root / "g" / "nodes.csv", index=False)
    ends = {"source": columns["id"][1:], "target": columns["id"][:-1]}
    pd.DataFrame(ends).to_csv(root / "g" / "edges.csv", index=False)
    graph = ig.load(root / "g", period="year")
    Ensemble.of(Pipeline("linear", epochs=2).fit(graph)).save(root / "model")
    return root


def test_resealed_schemas(place, tmp_path):
    codes = set()
    for seed in seeds(40):
        rng, model = np.random.default_rng(seed), tmp_path / f"model-{seed}"
        subprocess.run(["cp", "-a", place / "model", model], check=True)
        content = json.loads((model / "schema.json").read_text())
        changed = changed_json(content, rng)
        (model / "schema.json").write_text(json.dumps(changed))
        (model / "sums.json").unlink()
        _files.seal_folder(model)
        try:
            done = here("predict", model, place / "g", "--out", tmp_path / "p.csv")
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error
        assert done.exit_code in (0, 2), f"seed {seed}: {done.stderr}"
        codes.add(done.exit_code)
        _files.remove(model)
    assert 2 in codes


@pytest.mark.parametrize(
    "change", [{"weights": []}, {"weights": [-1.0]}, {"prior": [1.0]}, {"prior": []}]
)
def test_an_ensemble_without_members_or_shares_is_refused(place, tmp_path, change):
    model = tmp_path / "model"
    subprocess.run(["cp", "-a", place / "model", model], check=True)
    content = json.loads((model / "ensemble.json").read_text())
    (model / "ensemble.json").write_text(json.dumps(content | change))
    (model / "sums.json").unlink()
    _files.seal_folder(model)
    refused = here("predict", model, place / "g", "--out", tmp_path / "p.csv")
    assert refused.exit_code == 2
    assert "has invalid weights or class proportions" in refused.stderr
