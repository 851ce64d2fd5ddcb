"""Reading files: accepted formats, refusals and their sentences, and damaged files."""

import json
import mmap
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

import impact_gnn as ig
from commands import here
from impact_gnn.checks import DiskFull, InputError

NODES = "id,time,label,a,b\nn1,2019,cat,1,2\nn2,2020,dog,3,4\nn3,2021,,5,6\n"
EDGES = "source,target,weight\nn1,n2,1.5\nn3,n1,2\n"


def folder(path, nodes=NODES, edges=EDGES):
    (path / "nodes.csv").write_text(nodes)
    (path / "edges.csv").write_text(edges)
    return path


def small_graph(hetero=False):
    rng = np.random.default_rng(0)
    x, y, time = (
        rng.normal(size=(20, 3)).astype(np.float32),
        rng.integers(-1, 4, 20),
        rng.integers(5, 9, 20),
    )
    edges = rng.integers(0, 20, (2, 50))
    if not hetero:
        return ig.TemporalGraph(
            x=x, y=y, time=time, edge_index=edges, edge_weight=rng.random(50), num_labels=5
        )
    return ig.TemporalGraph.hetero(
        nodes={"paper": {"x": x, "y": y, "time": time}, "the author": {"num_nodes": 20}},
        edges={
            ("paper", "cites", "paper"): edges,
            ("the author", "writes/has", "paper"): (edges, rng.random(50)),
        },
        target="paper",
    )


def mapped(values):
    while values is not None and not isinstance(values, mmap.mmap):
        values = getattr(values, "base", None)
    return values is not None


def same(a, b):
    assert list(a.nodes) == list(b.nodes)
    assert list(a.relations) == list(b.relations)
    for kind in a.nodes:
        for name in ("x", "y", "time", "ids"):
            left, right = getattr(a.nodes[kind], name), getattr(b.nodes[kind], name)
            assert (left is None) == (right is None)
            assert left is None or np.array_equal(left, right)
            assert left is None or left.dtype == right.dtype
    for triple in a.relations:
        assert np.array_equal(a.relations[triple].edge_index, b.relations[triple].edge_index)
        weights = a.relations[triple].weight, b.relations[triple].weight
        assert weights[0] is weights[1] is None or np.array_equal(*weights)
    assert (a.target, a.num_labels, a.label_names, a.cutoff) == (
        b.target,
        b.num_labels,
        b.label_names,
        b.cutoff,
    )


def test_csv_folder(tmp_path):
    g = ig.load(folder(tmp_path))
    assert g.ids.tolist() == ["n1", "n2", "n3"]
    assert g.y.tolist() == [0, 1, -1]
    assert g.label_names == ("cat", "dog")
    assert g.time.tolist() == [2019, 2020, 2021]
    assert g.x.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert g.edge_index.tolist() == [[2, 0], [0, 1]]  # by target
    assert g.edge_weight.tolist() == [2, 1.5]


def test_edges_with_a_time(tmp_path):
    g = ig.load(folder(tmp_path, edges="source,target,time\nn1,n2,2022\nn3,n1,2021\n"))
    assert g.edge_time.tolist() == [2021, 2022]  # by target
    g.save(tmp_path / "saved")
    assert ig.load(tmp_path / "saved").upto(2021).edge_time.tolist() == [2021]
    with pytest.raises(
        InputError, match=r"column 'time' of edges.csv is empty in 1 rows, first in row 1"
    ):
        ig.load(folder(tmp_path, edges="source,target,time\nn1,n2,\nn3,n1,2021\n"))


def test_parquet_folder_equals_csv(tmp_path):
    (tmp_path / "csv").mkdir()
    (tmp_path / "parquet").mkdir()
    g = ig.load(folder(tmp_path / "csv"))
    for name in ("nodes", "edges"):
        options = pyarrow.csv.ConvertOptions(null_values=[""], strings_can_be_null=True)
        table = pyarrow.csv.read_csv(tmp_path / "csv" / f"{name}.csv", convert_options=options)
        pyarrow.parquet.write_table(table, tmp_path / "parquet" / f"{name}.parquet")
    same(g, ig.load(tmp_path / "parquet"))


def test_separate_feature_files_take_precedence(tmp_path):
    np.save(tmp_path / "features.npy", np.eye(3))
    assert (
        ig.load(folder(tmp_path, nodes=NODES.replace(",1,2", ",x,y"))).x.tolist()
        == np.eye(3).tolist()
    )


@pytest.mark.parametrize(
    ("labels", "y", "names"),
    [
        (["5", "", "7"], [0, -1, 1], (5, 7)),
        (["-1", "3", "3"], [0, 1, 1], (-1, 3)),
        (["true", "false", ""], [1, 0, -1], ("false", "true")),
        (["1.0", "2.0", ""], [0, 1, -1], (1, 2)),
        (["0.5", "2.0", ""], [0, 1, -1], (0.5, 2.0)),
        (["", "", ""], [-1, -1, -1], ()),
    ],
)
def test_labels_of_any_type(tmp_path, labels, y, names):
    rows = "".join(f"{i},{i},{label}\n" for i, label in enumerate(labels))
    g = ig.load(folder(tmp_path, nodes="id,time,label\n" + rows, edges="source,target\n0,1\n"))
    assert g.y.tolist() == y
    assert g.label_names == names


@pytest.mark.parametrize("hetero", [False, True])
def test_saved_graph_returns_unchanged_and_mapped(tmp_path, hetero):
    g = small_graph(hetero)
    g.save(tmp_path / "g")
    back = ig.load(tmp_path / "g", verify=True)
    same(g, back)
    assert mapped(back.x)
    assert mapped(back.relations[next(iter(back.relations))].edge_index)
    view = g.masked(8)
    view.save(tmp_path / "g")  # a saved graph may be replaced by another
    same(view, ig.load(tmp_path / "g"))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["g"]


def test_save_spares_what_is_not_a_graph(tmp_path):
    (tmp_path / "precious.txt").write_text("mine")
    with pytest.raises(
        InputError,
        match=r"contains other files \(.*\); move them away, or choose a new or an empty directory",
    ):
        small_graph().save(tmp_path)
    assert (tmp_path / "precious.txt").read_text() == "mine"


def test_a_failing_save_leaves_the_old_graph(tmp_path, monkeypatch):
    g = small_graph()
    g.save(tmp_path / "g")
    monkeypatch.setattr(
        "impact_gnn._files.write_json",
        lambda *_, **__: (_ for _ in ()).throw(OSError(28, "disk full")),
    )
    with pytest.raises(DiskFull, match=r"is full; completed work is stored: free some space"):
        g.upto(6).save(tmp_path / "g")
    monkeypatch.undo()
    same(g, ig.load(tmp_path / "g", verify=True))
    assert [p.name for p in tmp_path.iterdir()] == ["g"]


def test_archive(tmp_path):
    g = small_graph()
    np.savez(
        tmp_path / "g.npz", x=g.x, y=g.y, time=g.time, edge_index=g.edge_index, split=np.zeros(3)
    )
    back = ig.load(tmp_path / "g.npz")
    assert np.array_equal(back.edge_index, g.edge_index)
    assert np.array_equal(back.x, g.x)


@pytest.mark.parametrize(
    ("nodes", "edges", "sentence"),
    [
        (
            NODES.replace("n2", "n1"),
            EDGES,
            "column 'id' of nodes.csv has 1 duplicate ids, first n1 .2 times.",
        ),
        (
            NODES,
            EDGES.replace("n3", "n9"),
            "edges.csv has 1 edges whose source is not in nodes.csv, first 'n9' in row 2",
        ),
        (
            NODES.replace("2020", ""),
            EDGES,
            "column 'time' of nodes.csv is empty in 1 rows, first in row 2",
        ),
        (
            NODES.replace("2020", "2020-01-02"),
            EDGES,
            "column 'time' of nodes.csv has type string such as '2019'",
        ),
        (NODES, "source\nn1\n", "edges.csv has no columns source, target; it has source"),
        (
            NODES,
            EDGES.replace("source", "one"),
            "edges.csv has no columns source, target; it has one, target, weight",
        ),
        (NODES.replace("a,b", "a,a"), EDGES, "nodes.csv has duplicate column names a"),
        ("id,time,label\n", EDGES, "nodes.csv has no rows"),
        (
            NODES,
            "source,target\n1,2\n",
            "edges.csv has 2? ?.*not in nodes.csv|use the same ids",
        ),
        (
            NODES,
            EDGES.replace("1.5", "-1"),
            "negative .-1.* at edge 0; weights must be zero or more",
        ),
        (NODES + "n4,1\n", EDGES, "nodes.csv cannot be read"),
    ],
)
def test_bad_tables_get_one_sentence(tmp_path, nodes, edges, sentence):
    with pytest.raises(InputError, match=sentence) as caught:
        ig.load(folder(tmp_path, nodes, edges))
    assert "\n" not in str(caught.value)


def test_missing_paths(tmp_path):
    with pytest.raises(InputError, match="does not exist; pass a folder"):
        ig.load(tmp_path / "nothing")
    with pytest.raises(
        InputError, match=r"contains no table nodes .such as nodes\.csv or nodes\.parquet"
    ):
        ig.load(tmp_path)
    (tmp_path / "g.txt").write_text("hello")
    with pytest.raises(InputError, match="is not a readable graph"):
        ig.load(tmp_path / "g.txt")
    np.savez(tmp_path / "g.npz", x=np.eye(2))
    with pytest.raises(InputError, match="has no array time, edge_index"):
        ig.load(tmp_path / "g.npz")


class Trap:
    """Unpickling this would leave a file behind."""

    def __init__(self, where):
        self.where = where

    def __reduce__(self):
        return open, (str(self.where), "w")


def test_no_pickle_is_ever_loaded(tmp_path):
    sprung = tmp_path / "sprung"
    evil = np.array([Trap(sprung)], dtype=object)
    np.savez(tmp_path / "evil.npz", time=evil, edge_index=np.zeros((2, 0), int))
    small_graph().save(tmp_path / "g")
    file = next((tmp_path / "g").rglob("x.npy"))
    np.save(file, evil, allow_pickle=True)
    (tmp_path / "tables").mkdir()
    np.save(folder(tmp_path / "tables") / "features.npy", evil, allow_pickle=True)
    for path in ("evil.npz", "g", "tables"):
        with pytest.raises(InputError):
            ig.load(tmp_path / path)
    assert not sprung.exists()


def test_the_manifest_is_compared_with_the_files(tmp_path):
    small_graph().save(tmp_path / "g")
    file = next((tmp_path / "g").rglob("x.npy"))
    whole = file.read_bytes()
    file.write_bytes(whole[:-1] + b"\x01")
    ig.load(tmp_path / "g")
    with pytest.raises(InputError, match="has changed since it was saved"):
        ig.load(tmp_path / "g", verify=True)
    np.save(file, np.zeros((3, 3)))
    with pytest.raises(InputError, match="the manifest says"):
        ig.load(tmp_path / "g")
    manifest = tmp_path / "g" / "manifest.json"
    content = json.loads(manifest.read_text())["content"]
    manifest.write_text(json.dumps(content | {"version": 99}))
    with pytest.raises(InputError, match="format version 99, but this release reads 4;"):
        ig.load(tmp_path / "g")
    outside = {"../x.npy": next(iter(content["arrays"].values()))}
    manifest.write_text(json.dumps(content | {"arrays": outside}))
    with pytest.raises(InputError, match="refers to a path outside its directory"):
        ig.load(tmp_path / "g")


class Originals(dict):
    """Files by name, with a repr that does not fill the screen when hypothesis shows it."""

    def __repr__(self):
        return "originals"


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """One of each kind of graph on disk, as bytes by file name."""
    root = tmp_path_factory.mktemp("originals")
    small_graph().save(root / "saved")
    g = small_graph()
    (root / "archive").mkdir()
    np.savez(root / "archive" / "g.npz", x=g.x, y=g.y, time=g.time, edge_index=g.edge_index)
    (root / "csv").mkdir()
    folder(root / "csv")
    (root / "parquet").mkdir()
    for name, text in (("nodes", NODES), ("edges", EDGES)):
        table = pyarrow.csv.read_csv(pa.BufferReader(text.encode()))
        pyarrow.parquet.write_table(table, root / "parquet" / f"{name}.parquet")
    files = [p for p in sorted(root.rglob("*")) if p.is_file()]
    return Originals({p.relative_to(root): p.read_bytes() for p in files})


@given(data=st.data())
def test_damaged_files_raise_only_input_errors(originals, tmp_path_factory, data):
    victim = data.draw(st.sampled_from(sorted(originals)))
    content = bytearray(originals[victim])
    kind = data.draw(st.sampled_from(["cut", "flip", "insert", "empty"]))
    position = data.draw(st.integers(0, len(content) - 1))
    if kind == "cut":
        content = content[:position]
    elif kind == "flip":
        content[position] ^= data.draw(st.integers(1, 255))
    elif kind == "insert":
        content[position:position] = data.draw(st.binary(min_size=1, max_size=20))
    else:
        content = bytearray()
    root = tmp_path_factory.mktemp("damaged")
    for name, original in originals.items():
        if name.parts[0] == victim.parts[0]:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(bytes(content) if name == victim else original)
    path = root / victim.parts[0]
    try:
        ig.load(path / "g.npz" if victim.parts[0] == "archive" else path)
    except InputError as error:
        sentence = str(error)
    else:
        sentence = ""
    assert "\n" not in sentence


def test_killed_while_saving_leaves_nothing_half_written(tmp_path):
    code = (
        "import sys, os, numpy as np, impact_gnn as ig, impact_gnn._files as f\n"
        "f.checksum = f.rows_checksum = lambda *_: os.kill(os.getpid(), 9)\n"
        "ig.TemporalGraph(time=[0, 1], edge_index=[[0], [1]]).save(sys.argv[1])\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "g")], check=False)
    assert done.returncode == -9
    assert not (tmp_path / "g").exists()


def test_missing_values_as_databases_export_them(tmp_path):
    (tmp_path / "nodes.csv").write_text(
        "id,time,label,grid\n1,1,a,3\n2,1,b,\\N\n3,2,a,5\n4,3,\\N,7\n"
    )
    (tmp_path / "edges.csv").write_text("source,target\n1,2\n2,3\n3,4\n")
    graph = ig.load(tmp_path)
    assert graph.y.tolist() == [0, 1, 0, -1]
    assert graph.nodes["node"].columns.kinds == {"grid": "number"}


def test_an_edge_table_without_a_name_for_an_end_is_guessed(tmp_path):
    (tmp_path / "nodes.csv").write_text("id,time,label\n1,1,a\n2,1,b\n3,2,a\n4,3,\n")
    (tmp_path / "edges.csv").write_text("source,target\n1,2\n2,3\n3,4\n")
    (tmp_path / "graph.toml").write_text(
        'target = "node"\n[nodes.node]\nfile = "nodes.csv"\n'
        '[edges.to]\nfile = "edges.csv"\nsource = "source"\ntarget = ""\n'
    )
    assert ig.load(tmp_path).edge_index.shape == (2, 3)


NUMBERED = "id,time,label,v\n" + "".join(
    f"{k},{2015 + k // 4},{'ab'[k % 2]},{k}.5\n" for k in range(20)
)
NUMBERED_EDGES = "source,target\n" + "".join(f"{k},{k - 1}\n" for k in range(1, 20))


def csv_folder(folder, nodes=NUMBERED, edges=NUMBERED_EDGES, names=("nodes.csv", "edges.csv")):
    folder.mkdir()
    for name, text in zip(names, (nodes, edges), strict=True):
        (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


def test_whole_numbers_that_pandas_wrote_as_floats_are_ids(tmp_path):
    """Missing values make floats of them; versions such as 1.10 stay text."""
    plain = ig.load(csv_folder(tmp_path / "plain"))
    floats = (
        NUMBERED_EDGES.replace(",", ".0,")
        .replace("\n", ".0\n")
        .replace("source.0,target.0", "source,target")
    )
    graph = ig.load(csv_folder(tmp_path / "floats", edges=floats))
    assert np.array_equal(graph.edge_index, plain.edge_index)
    nodes = NUMBERED.replace("\n1,", "\n1.10,")
    edges = NUMBERED_EDGES.replace("\n1,", "\n1.10,").replace(",1\n", ",1.10\n")
    graph = ig.load(csv_folder(tmp_path / "versions", nodes, edges))
    assert "1.10" in graph.ids.tolist()


def test_a_byte_order_mark_and_short_rows(tmp_path):
    header = "\ufeff" + '"id","time","label","v","w"\n'
    folder = csv_folder(tmp_path / "data", header + NUMBERED.partition("\n")[2])
    graph = ig.load(folder)
    assert graph.ids.tolist() == list(range(20))
    assert list(graph.nodes["node"].columns.kinds) == ["v"]


def test_a_name_between_quotes_may_contain_any_delimiter(tmp_path):
    nodes = NUMBERED.replace("id,time,label,v", '"id","time","label","v; in m; or |"')
    graph = ig.load(csv_folder(tmp_path / "data", nodes))
    assert list(graph.nodes["node"].columns.kinds) == ["v; in m; or |"]


def test_endings_in_capitals_and_hidden_files(tmp_path):
    folder = csv_folder(tmp_path / "data", names=("nodes.CSV", "edges.Csv"))
    (folder / "._nodes.csv").write_bytes(b"\x00\x05\x16\x07")
    assert ig.load(folder).num_nodes == 20
    assert "._nodes" not in here("check", folder).stdout


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
@pytest.mark.parametrize("place", ["v", "b"])
def test_files_that_are_not_utf8(tmp_path, encoding, place):
    nodes = NUMBERED.replace(place, "\u00fc").encode(encoding)
    with pytest.raises(InputError, match=r"nodes\.csv is not UTF-8 text; save it as CSV in UTF-8"):
        ig.load(csv_folder(tmp_path / "data", nodes))


def test_spaces_after_delimiters(tmp_path):
    rows = []
    for k in range(20):
        truth = str(k % 3 == 0).lower()
        day = 1 + k % 5
        rows.append(f"{k}, {2015 + k // 4}-01-01, {'ab'[k % 2]}, {k}.5, {truth}, 2001-01-0{day} ")
    nodes = "\n".join(["id, date, label, v, ok, born", *rows]) + "\n"
    graph = ig.load(csv_folder(tmp_path / "data", nodes))
    kinds = {name.strip(): kind for name, kind in graph.nodes["node"].columns.kinds.items()}
    assert kinds == {"v": "number", "ok": "number", "born": "date"}
    assert graph.y.tolist() == [0, 1] * 10
