"""OGB's file layout in small: reading, memory mapping and refusals."""

import gzip
import mmap
import zipfile

import numpy as np
import pytest

import impact_gnn as ig
from impact_gnn.checks import InputError
from impact_gnn.engines import Disk
from reproduction import ogb
from reproduction.ogb import load_ogb

N, E = 12, 30
YEAR = np.repeat([2016, 2017, 2018, 2019], 3)
SPLIT = {"train": np.arange(6), "valid": np.arange(6, 9), "test": np.arange(9, 12)}


def arrays(seed=0):
    rng = np.random.default_rng(seed)
    return {
        "node_feat": rng.normal(size=(N, 5)).astype(np.float32),
        "edge_index": rng.integers(0, N, (2, E)),
        "node_year": YEAR[:, None],
        "label": rng.integers(0, 3, N),
    }


def write(path, rows, header=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [] if header is None else [header]
    lines += [",".join(str(value) for value in np.atleast_1d(row)) for row in rows]
    with gzip.open(path, "wt") as file:
        file.write("\n".join(lines) + "\n")


def split(folder, parts=SPLIT):
    for name, rows in parts.items():
        write(folder / f"{name}.csv.gz", rows)


def arxiv(root):
    a, raw = arrays(), root / "ogbn_arxiv" / "raw"
    write(raw / "edge.csv.gz", a["edge_index"].T)
    write(raw / "node-feat.csv.gz", a["node_feat"])
    write(raw / "node-label.csv.gz", a["label"])
    write(raw / "node_year.csv.gz", YEAR)
    write(raw / "num-node-list.csv.gz", [N])
    write(raw / "num-edge-list.csv.gz", [E])
    split(root / "ogbn_arxiv" / "split" / "time")
    return a


def mag(root):
    a, raw = arrays(), root / "ogbn_mag" / "raw"
    sizes = {"author": 4, "field_of_study": 3, "institution": 2, "paper": N}
    rng = np.random.default_rng(1)
    edges = {}
    triples = [
        ("author", "affiliated_with", "institution"),
        ("author", "writes", "paper"),
        ("paper", "cites", "paper"),
        ("paper", "has_topic", "field_of_study"),
    ]
    for triple in triples:
        edges[triple] = np.stack(
            [rng.integers(0, sizes[triple[0]], 8), rng.integers(0, sizes[triple[2]], 8)]
        )
        place = raw / "relations" / "___".join(triple)
        write(place / "edge.csv.gz", edges[triple].T)
        write(place / "edge_reltype.csv.gz", np.zeros(8, int))
        write(place / "num-edge-list.csv.gz", [8])
    write(raw / "triplet-type-list.csv.gz", triples)
    write(raw / "num-node-dict.csv.gz", [list(sizes.values())], header=",".join(sizes))
    write(
        raw / "nodetype-has-label.csv.gz",
        [["False", "False", "False", "True"]],
        header=",".join(sizes),
    )
    write(raw / "node-feat" / "paper" / "node-feat.csv.gz", a["node_feat"])
    write(raw / "node-feat" / "paper" / "node_year.csv.gz", YEAR)
    write(raw / "node-label" / "paper" / "node-label.csv.gz", a["label"])
    folder = root / "ogbn_mag" / "split" / "time"
    write(
        folder / "nodetype-has-split.csv.gz",
        [["False", "False", "False", "True"]],
        header=",".join(sizes),
    )
    split(folder / "paper")
    return a, sizes, edges


def papers(root, *, save=np.savez):
    a, raw = arrays(), root / "ogbn_papers100M" / "raw"
    raw.mkdir(parents=True)
    label = a["label"].astype(np.float32)[:, None]
    label[[0, 1, 7]] = np.nan
    save(
        raw / "data.npz",
        edge_index=a["edge_index"],
        node_feat=a["node_feat"],
        node_year=a["node_year"],
        num_nodes_list=np.array([N]),
        num_edges_list=np.array([E]),
    )
    np.savez(raw / "node-label.npz", node_label=label)
    split(
        root / "ogbn_papers100M" / "split" / "time",
        {**SPLIT, "train": np.arange(2, 6), "valid": [6, 8]},
    )
    return a, np.where(np.isnan(label[:, 0]), -1, label[:, 0])


def is_mapped(values):
    while values is not None and not isinstance(values, mmap.mmap):
        values = getattr(values, "base", None)
    return values is not None


def test_arxiv(tmp_path):
    a = arxiv(tmp_path)
    loaded = load_ogb("ogbn-arxiv", tmp_path)
    g = loaded.graph
    assert np.allclose(g.x, a["node_feat"])
    assert g.x.dtype == np.float32
    assert g.y.tolist() == a["label"].tolist()
    assert g.time.tolist() == YEAR.tolist()
    assert g.edge_index.tolist() == a["edge_index"].tolist()
    assert loaded.train.tolist() == SPLIT["train"].tolist()
    assert loaded.valid.tolist() == SPLIT["valid"].tolist()
    assert loaded.test.tolist() == SPLIT["test"].tolist()
    assert loaded.cutoff == 2019
    assert (loaded.view().y[loaded.test] == -1).all()


def test_the_data_sets_own_folder_and_the_unzipped_one(tmp_path):
    arxiv(tmp_path)
    assert load_ogb("ogbn-arxiv", tmp_path / "ogbn_arxiv").cutoff == 2019
    (tmp_path / "ogbn_arxiv").rename(tmp_path / "arxiv")
    assert load_ogb("ogbn-arxiv", tmp_path).cutoff == 2019


def test_mag(tmp_path):
    a, sizes, edges = mag(tmp_path)
    loaded = load_ogb("ogbn-mag", tmp_path)
    g = loaded.graph
    assert {kind: part.num_nodes for kind, part in g.nodes.items()} == sizes
    assert g.target == "paper"
    assert set(g.relations) == set(edges)
    for triple, edge_index in edges.items():
        assert g.relations[triple].edge_index.tolist() == edge_index.tolist()
    assert np.allclose(g.x, a["node_feat"])
    assert g.y.tolist() == a["label"].tolist()
    assert g.nodes["author"].x is None
    assert g.nodes["author"].time is None
    assert loaded.test.tolist() == SPLIT["test"].tolist()
    assert loaded.cutoff == 2019


def test_papers_are_mapped_where_they_lie(tmp_path):
    a, label = papers(tmp_path)
    loaded = load_ogb("ogbn-papers100M", tmp_path)
    g = loaded.graph
    assert is_mapped(g.x)
    assert is_mapped(g.edge_index)
    assert np.array_equal(g.x, a["node_feat"])
    assert np.array_equal(g.edge_index, a["edge_index"])
    assert g.y.tolist() == label.tolist()
    assert g.time.tolist() == YEAR.tolist()
    assert loaded.cutoff == 2019


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_papers_through_the_disk_engine(tmp_path, save):
    a, _ = papers(tmp_path / "root", save=save)
    g = load_ogb("ogbn-papers100M", tmp_path / "root").graph
    assert is_mapped(g.x) == (save is np.savez)  # a small compressed array is simply read
    memory = ig.propagate(
        ig.TemporalGraph(x=a["node_feat"], y=a["label"], time=YEAR, edge_index=a["edge_index"]),
        weighting="genpmp",
    )
    disk = Disk(tmp_path / "hops", memory="2kB")
    for ours, theirs in zip(ig.propagate(g, weighting="genpmp", engine=disk), memory, strict=True):
        assert np.array_equal(ours, theirs)
    g.save(tmp_path / "saved")
    saved = ig.load(tmp_path / "saved")
    reloaded = ig.propagate(
        saved, weighting="genpmp", hops=1, engine=Disk(tmp_path / "again", memory="2kB")
    )
    assert np.array_equal(reloaded[0], memory[0])


def test_a_large_compressed_array_is_unpacked_once(tmp_path):
    values = np.arange(10.0)
    np.savez_compressed(tmp_path / "a.npz", v=values)
    assert not is_mapped(ogb.mapped(tmp_path / "a.npz", "v"))
    assert is_mapped(ogb.mapped(tmp_path / "a.npz", "v", small=0))
    before = [(file.name, file.stat().st_mtime_ns) for file in tmp_path.iterdir()]
    assert np.array_equal(ogb.mapped(tmp_path / "a.npz", "v", small=0), values)
    assert [(file.name, file.stat().st_mtime_ns) for file in tmp_path.iterdir()] == before
    np.savez_compressed(tmp_path / "a.npz", v=-values)
    assert np.array_equal(ogb.mapped(tmp_path / "a.npz", "v", small=0), -values)


def test_arrays_in_column_order_and_without_elements(tmp_path):
    values = {"f": np.asfortranarray(np.arange(6.0).reshape(2, 3)), "none": np.empty((0, 4))}
    np.savez(tmp_path / "a.npz", **values)
    for name, value in values.items():
        assert np.array_equal(ogb.mapped(tmp_path / "a.npz", name), value)


def test_objects_in_an_archive_are_never_loaded(tmp_path):
    np.savez(tmp_path / "a.npz", v=np.array([{}], dtype=object))
    with pytest.raises(InputError, match="contains Python objects"):
        ogb.mapped(tmp_path / "a.npz", "v")
    with pytest.raises(InputError, match="has no array w; it has v"):
        ogb.mapped(tmp_path / "a.npz", "w")


def test_blocks_of_text_are_put_together(tmp_path):
    period = np.random.default_rng(0).integers(100, 1000, (1000, 3))
    text = "".join(f"{a},{b},{c}\n" for a, b, c in period)
    repeats = ogb.BLOCK // len(text) + 2  # more than one block of text
    file, values = tmp_path / "v.csv.gz", np.tile(period, (repeats, 1))
    file.write_bytes(gzip.compress((text * repeats).encode(), 1))
    assert np.array_equal(ogb.matrix(file, np.int64, rows=len(values)), values)
    assert np.array_equal(ogb._rows(file, 1000), values[:, 0])
    assert np.array_equal(ogb.matrix(file, np.int64, rows=len(values), turned=True), values.T)
    for rows in (len(values) - 1, len(values) + 1):
        with pytest.raises(InputError, match=f"has {len(values)} rows instead of {rows}"):
            ogb.matrix(file, np.int64, rows=rows)


def test_a_missing_root_names_the_download(tmp_path):
    with pytest.raises(
        InputError, match=r"contains no ogbn-mag \(expected ogbn_mag/raw\); nothing is downloaded"
    ) as e:
        load_ogb("ogbn-mag", tmp_path)
    assert f"NodePropPredDataset('ogbn-mag', root='{tmp_path}')" in str(e.value)
    assert not list(tmp_path.iterdir())
    with pytest.raises(
        InputError, match="choose one of 'ogbn-arxiv', 'ogbn-mag', 'ogbn-papers100M'"
    ):
        load_ogb("ogbn-products", tmp_path)


def test_processed_files_are_not_opened(tmp_path):
    folder = tmp_path / "ogbn_arxiv" / "processed"
    folder.mkdir(parents=True)
    (folder / "geometric_data_processed.pt").write_bytes(b"a pickle")
    with pytest.raises(InputError, match=r"contains no ogbn-arxiv \(expected ogbn_arxiv/raw\)"):
        load_ogb("ogbn-arxiv", tmp_path)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            lambda f: write(f / "raw" / "num-node-list.csv.gz", [N + 1]),
            "has 12 rows instead of 13",
        ),
        (lambda f: (f / "raw" / "node_year.csv.gz").unlink(), r"node_year.csv.gz cannot be read"),
        (
            lambda f: (f / "raw" / "edge.csv.gz").write_bytes(b"no gzip"),
            r"edge.csv.gz cannot be read",
        ),
        (
            lambda f: write(f / "raw" / "edge.csv.gz", [["0", "a"]] * E),
            r"edge.csv.gz cannot be read",
        ),
        (lambda f: write(f / "raw" / "node_year.csv.gz", ["", *YEAR[1:]]), "rows instead of 12"),
        (
            lambda f: write(f / "split" / "time" / "test.csv.gz", [N]),
            "must contain positions of the 12 nodes",
        ),
        (
            lambda f: write(f / "split" / "time" / "test.csv.gz", [0]),
            "does not follow time: test begins at 2016",
        ),
        (lambda f: write(f / "split" / "time" / "valid.csv.gz", [0]), "does not follow time"),
    ],
)
def test_damaged_files(tmp_path, change, sentence):
    arxiv(tmp_path)
    change(tmp_path / "ogbn_arxiv")
    with pytest.raises(InputError, match=sentence):
        load_ogb("ogbn-arxiv", tmp_path)


def test_a_truncated_archive(tmp_path):
    papers(tmp_path)
    file = tmp_path / "ogbn_papers100M" / "raw" / "data.npz"
    assert zipfile.is_zipfile(file)
    file.write_bytes(file.read_bytes()[:400])
    with pytest.raises(InputError, match=r"data.npz cannot be read"):
        load_ogb("ogbn-papers100M", tmp_path)
