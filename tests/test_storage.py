"""The saved graph: whole or absent, equal when read again; every kind of damage is refused."""

import contextlib
import json
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphs import graph, hetero
from impact_gnn.checks import InputError
from impact_gnn.graph import TemporalGraph, storage

PAPER = {"time": [1, 2, 3]}


def reread(directory, **options):
    content = storage.read(directory, **options)
    return TemporalGraph.hetero(
        nodes=content["nodes"],
        edges=content["edges"],
        target=content["target"],
        num_labels=content["num_labels"],
        label_names=content["label_names"],
    )


def same(one, other):
    assert one.target == other.target
    assert one.num_labels == other.num_labels
    assert one.label_names == other.label_names
    assert list(one.nodes) == list(other.nodes)
    for kind in one.nodes:
        for name in ("num_nodes", "x", "y", "time", "ids"):
            np.testing.assert_array_equal(
                getattr(one.nodes[kind], name), getattr(other.nodes[kind], name)
            )
    assert list(one.relations) == list(other.relations)
    for triple, part in one.relations.items():
        np.testing.assert_array_equal(part.edge_index, other.relations[triple].edge_index)
        np.testing.assert_array_equal(part.weight, other.relations[triple].weight)
        np.testing.assert_array_equal(part.time, other.relations[triple].time)


def test_a_saved_graph_is_the_graph(tmp_path):
    for number, g in enumerate(
        [
            graph(edge_weight=np.ones(6), ids=list("abcdef"), label_names=["é", np.str_("b"), 3]),
            graph(x=None, y=None, edge_time=[1, 1, 2, 4, 4, 5]),
            TemporalGraph(time=[1], edge_index=[[], []]),
            hetero(),
            hetero(
                nodes={"paper": PAPER, "a/b c..": {"num_nodes": 2}},
                edges={("a/b c..", "", "paper"): [[0], [0]]},
            ),
        ]
    ):
        g.save(tmp_path / str(number))
        same(reread(tmp_path / str(number), verify=True), g)
    # nothing temporary is left
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "0",
        "1",
        "2",
        "3",
        "4",
    ]


def test_a_masked_view_is_saved_without_the_truth(tmp_path):
    graph(y=[0, 0, 0, 0, 77, 77]).masked(4).save(tmp_path / "g")
    content = storage.read(tmp_path / "g")
    assert content["cutoff"] == 4
    assert content["nodes"]["node"]["y"].tolist() == [0, 0, 0, 0, -1, -1]


def test_a_graph_may_be_saved_over_itself_but_not_over_other_files(tmp_path):
    g = graph()
    g.save(tmp_path / "g")
    mapped = reread(tmp_path / "g")
    mapped.upto(2).save(tmp_path / "g")
    assert reread(tmp_path / "g").num_nodes == 4
    assert mapped.x.sum() == g.x.sum()  # the old map is still whole
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(
        InputError,
        match=(
            r"mine exists and contains other files \('thesis.txt'\); move them away, or choose "
            r"a new or an empty directory"
        ),
    ):
        g.save(tmp_path / "mine")
    with pytest.raises(InputError, match=r"thesis.txt is a file instead of a directory"):
        g.save(tmp_path / "mine" / "thesis.txt")
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "years of work"


def test_a_failed_save_leaves_what_was_there(tmp_path, monkeypatch):
    graph().save(tmp_path / "g")

    def fail(*_, **options):
        raise OSError("disk full")

    monkeypatch.setattr(storage._files, "write_json", fail)
    with pytest.raises(OSError, match="disk full"):
        graph(x=None).save(tmp_path / "g")
    same(reread(tmp_path / "g"), graph())
    assert [p.name for p in tmp_path.iterdir()] == ["g"]


def damaged(tmp_path, change):
    directory = tmp_path / "g"
    graph().save(directory)
    manifest = json.loads((directory / "manifest.json").read_text())["content"]
    change(directory, manifest)
    if (directory / "manifest.json").exists():
        (directory / "manifest.json").write_text(json.dumps(manifest))
    return directory


X = "nodes/0-node/x.npy"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            lambda d, m: (d / "manifest.json").unlink(),
            r"contains no impact-gnn graph; pass the directory",
        ),
        (lambda d, m: m.clear(), r"contains no impact-gnn graph; pass the directory"),
        (
            lambda d, m: m.update(version=99),
            r"has format version 99, but this release reads 4; write",
        ),
        (
            lambda d, m: m.pop("nodes"),
            r"manifest.json is damaged \(KeyError\('nodes'\)\); save the graph again",
        ),
        (lambda d, m: m.update(nodes=[]), r"manifest.json is damaged"),
        (lambda d, m: m["relations"][0].update(triple=[[], 1, {}]), r"manifest.json is damaged"),
        (
            lambda d, m: m["relations"][0].update(folder="edges/9"),
            r"has no edges for relation node, to, node",
        ),
        (
            lambda d, m: m["arrays"].update({"../../x.npy": {}}),
            r"refers to a path outside its directory \('../../x.npy'\)",
        ),
        (
            lambda d, m: m["arrays"].update({"/etc/x.npy": {}}),
            r"refers to a path outside its directory",
        ),
        (
            lambda d, m: m["arrays"].update({"a\0b": {}}),
            r"refers to a path outside its directory",
        ),
        (lambda d, m: (d / X).unlink(), r"x.npy cannot be read \(No such file"),
        (lambda d, m: (d / X).write_bytes(b""), r"x.npy is not a usable .npy array"),
        (
            lambda d, m: (d / X).write_bytes((d / X).read_bytes()[:-8]),
            r"x.npy is not a usable .npy array",
        ),
        (lambda d, m: np.save(d / X, np.array([{}], object)), r"x.npy is not a usable .npy array"),
        (
            lambda d, m: np.savez((d / X).open("wb"), x=np.ones(2)),
            r"x.npy is not a usable .npy array \(it is an arch",
        ),
        (
            lambda d, m: np.save(d / X, np.ones((5, 2))),
            r"x.npy is <f8 \[5, 2\], but the manifest says <f8 \[6, 2\]",
        ),
        (
            lambda d, m: np.save(d / X, np.ones((6, 2))),
            r"x.npy has changed since it was saved \(its checksum differs",
        ),
    ],
)
def test_damaged_files_are_refused(tmp_path, change, sentence):
    directory = damaged(tmp_path, change)
    with pytest.raises(InputError, match=sentence):
        storage.read(directory, verify=True)


@pytest.mark.parametrize(
    "text", ["", "{", "[" * 100_000, "1" * 5000, "\ud800", "null", '"x"', "[]"]
)
def test_a_manifest_that_is_no_manifest_is_refused(tmp_path, text):
    (tmp_path / "manifest.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(
        InputError, match=r"manifest.json is not valid JSON|contains no impact-gnn graph"
    ):
        storage.read(tmp_path)


@settings(max_examples=60)
@given(st.data())
def test_flipped_bytes_never_escape_as_anything_else(tmp_path_factory, data):
    directory = tmp_path_factory.mktemp("flip") / "g"
    hetero().save(directory)
    files = sorted(p for p in directory.rglob("*") if p.is_file())
    file = data.draw(st.sampled_from(files))
    content = bytearray(file.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    file.write_bytes(
        content[: data.draw(st.integers(0, len(content)))] if data.draw(st.booleans()) else content
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with contextlib.suppress(InputError):
            assert reread(directory).num_nodes > 0
