"""Archives of several node types: how names are read, and how bad ones are refused."""

import numpy as np
import pytest

import impact_gnn as ig
from impact_gnn.checks import InputError
from impact_gnn.data.archive import relation_of, types_of

PARTS = {
    "paper_x": np.ones((3, 4)),
    "paper_y": np.array([0, 1, -1]),
    "paper_time": np.array([2019, 2020, 2021]),
    "num_authors": np.array(2),
    "author_writes_paper": np.array([[0, 1, 1], [0, 1, 2]]),
}


def saved(path, **change):
    parts = {name: value for name, value in (PARTS | change).items() if value is not None}
    np.savez(path / "g.npz", **parts)
    return path / "g.npz"


def test_types_relations_and_target(tmp_path):
    g = ig.load(saved(tmp_path))
    assert {kind: part.num_nodes for kind, part in g.nodes.items()} == {"paper": 3, "author": 2}
    assert g.target == "paper"
    assert list(g.relations) == [("author", "writes", "paper")]
    assert g.relations["author", "writes", "paper"].edge_index.tolist() == [[0, 1, 1], [0, 1, 2]]
    assert g.y.tolist() == [0, 1, -1]
    assert g.nodes["author"].x is None


def test_everything_an_archive_may_hold(tmp_path):
    path = saved(
        tmp_path,
        paper_cites_paper=np.array([[0], [1]]),
        paper_cites_paper_weight=np.array([0.5]),
        paper_cites_paper_time=np.array([2022]),
        author_x=np.eye(2),
        num_authors=None,
        paper_ids=np.array(["a", "b", "c"]),
        label_names=np.array(["cat", "dog", "cow"]),
        num_labels=np.array(3),
        paper_year=np.zeros(7),
        note=np.array("ignored"),
    )
    g = ig.load(path)
    assert g.relations["paper", "cites", "paper"].weight.tolist() == [0.5]
    assert g.relations["paper", "cites", "paper"].time.tolist() == [2022]
    assert g.relations["author", "writes", "paper"].time is None
    assert list(g.nodes) == ["author", "paper"]
    assert g.nodes["author"].x.shape == (2, 2)
    assert g.ids.tolist() == ["a", "b", "c"]
    assert g.label_names == ("cat", "dog", "cow")
    assert g.num_labels == 3


def test_names_with_underscores():
    types = types_of(
        ["field_of_study_x", "paper_time", "num_institution", "paper_has_field_of_study"]
    )
    assert types == {"field_of_study": None, "paper": None, "institution": "num_institution"}
    assert relation_of("paper_has_topic_field_of_study", types) == (
        "paper",
        "has_topic",
        "field_of_study",
    )
    assert relation_of("paper_field_of_study", types) is None
    assert types_of(["bus_time", "num_bus"]) == {"bus": "num_bus"}


def test_an_archive_with_plain_names_has_one_type(tmp_path):
    other = {"author_writes": [[0], [1]], "num_authors": 1, "paper_time": [5]}
    np.savez(tmp_path / "g.npz", time=[0, 1], edge_index=[[0], [1]], edge_time=[3], **other)
    g = ig.load(tmp_path / "g.npz")
    assert list(g.nodes) == ["node"]
    assert g.edge_time.tolist() == [3]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"author_writes_paper": None},
            "contains no relation between its types .*; name arrays <type>_time",
        ),
        ({"num_authors": np.zeros(2)}, r"num_authors of .* has shape \(2,\); pass a single number"),
        ({"num_authors": np.array(1.5)}, "author.num_nodes"),
        ({"author_writes_paper": np.zeros((3, 2), int)}, "author-writes-paper"),
        ({"author_writes_paper": np.array([[2], [0]])}, "author-writes-paper"),
        (
            {"author_time": np.zeros(2), "author_y": np.zeros(2)},
            "could be classified, .*; keep an array _y for one of them",
        ),
        ({"label_names": np.zeros((2, 2))}, "label_names has shape"),
        (
            {"num_author_writess": np.array(3), "author_writes_x_paper": np.zeros((2, 1), int)},
            "can be read as",
        ),
    ],
)
def test_refused(tmp_path, change, sentence):
    with pytest.raises(InputError, match=sentence):
        ig.load(saved(tmp_path, **change))
