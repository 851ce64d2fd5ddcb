"""Notes about tables: exact ids, doubtful labels, omitted rows."""

from itertools import pairwise

import numpy as np
import pytest

import impact_gnn as ig
from impact_gnn.data.files import read

LARGE = [str(2**64 - 1), str(2**64 - 2), str(2**63), "7", "8", "9"]


def tables(folder, ids, labels=("b", "a", "b", "a", "", ""), extra="f", link=""):
    rows = [
        f"{name},{k // 2},{label},{k % 3}"
        for k, (name, label) in enumerate(zip(ids, labels, strict=True))
    ]
    (folder / "nodes.csv").write_text("\n".join([f"id,time,label,{extra}", *rows]) + "\n")
    pairs = [f"{a},{b}{',x' if link else ''}" for a, b in pairwise(ids)]
    (folder / "edges.csv").write_text("\n".join([f"source,target{link}", *pairs]) + "\n")
    return folder


@pytest.mark.usefixtures("without_page")
def test_ids_come_out_as_they_went_in(tmp_path):
    ids = ["00042", "42", "042", str(2**63), str(2**64 - 2), str(2**64 - 1)]
    g = ig.load(tables(tmp_path, ids))
    assert sorted(g.ids.tolist()) == sorted(ids)
    ends = dict(g.ids[g.edge_index].T.tolist())
    assert ends == dict(pairwise(ids))
    ig.run(g, tmp_path / "run", cutoff=2, candidates=["prior:features"], effort="quick")
    lines = (tmp_path / "run" / "predictions.csv").read_text().splitlines()[1:]
    assert sorted(line.split(",")[0].strip('"') for line in lines) == sorted(ids[4:])


def test_large_ids_of_arrays_stay_exact():
    ids = np.array([2**64 - 1, 2**64 - 2, 2**63], np.uint64)
    assert (
        ig.TemporalGraph(time=[0, 1, 2], edge_index=[[0], [1]], ids=ids).ids.tolist()
        == ids.tolist()
    )


def test_labels_that_may_mean_nothing_are_named(tmp_path):
    reading = read(tables(tmp_path, LARGE, ("?", "Unknown", "a", "NA", "null", "-")))
    assert reading.graph.label_names == ("-", "?", "Unknown", "a")
    warnings = [note for note in reading.notes if "warning" in note]
    assert warnings == [
        "  warning: '-', '?', 'Unknown' are read as classes; if it means that the class is "
        "unknown, set unknown_label=['-', '?', 'Unknown'], or unknown = ['-', '?', 'Unknown'] in "
        "graph.toml"
    ]
    assert not [note for note in read(tables(tmp_path, LARGE)).notes if "warning" in note]


def test_omitted_rows_are_reported(tmp_path):
    np.save(tables(tmp_path, LARGE, extra="height", link=",created_by") / "features.npy", np.eye(6))
    notes = "\n".join(read(tmp_path).notes)
    assert "height: ignored, features.npy replaces them" in notes
    assert "created_by: ignored; to use them as features, declare columns = " in notes


def test_renamed_classes_and_moved_columns_change_nothing(tmp_path):
    """A saved model with label inputs finds classes and columns by name, in any order."""
    rng = np.random.default_rng(0)
    frame = {
        "id": np.arange(60),
        "time": np.arange(60) // 10,
        "f": rng.normal(size=60),
        "g": rng.normal(size=60),
    }
    frame["label"] = np.where(frame["time"] < 5, np.where(frame["f"] > 0, "apple", "bear"), None)
    edges = {"source": rng.integers(0, 60, 200), "target": rng.integers(0, 60, 200)}
    g = ig.from_tables(nodes=frame, edges=edges)
    pipeline = ig.Pipeline("linear", "labels", cutoff=5, epochs=5).fit(g)
    pipeline.save(tmp_path / "model")
    again, probabilities = ig.Pipeline.load(tmp_path / "model"), pipeline.predict_proba(g)
    moved = {name: frame[name] for name in ("g", "label", "id", "f", "time")}
    assert np.array_equal(
        again.predict_proba(ig.from_tables(nodes=moved, edges=edges)), probabilities
    )
    # sorted before the classes of the fit
    more = frame | {"label": np.r_[["aardvark"], frame["label"][1:]]}
    other = ig.from_tables(nodes=more, edges=edges)
    hidden = ig.from_tables(nodes=frame | {"label": np.r_[[None], frame["label"][1:]]}, edges=edges)
    assert np.array_equal(again.predict_proba(other), again.predict_proba(hidden))
    assert "aardvark" in " ".join(again.fitted.schema.notes(other, again.fitted.cutoff))
