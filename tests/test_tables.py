"""Tables: every kind of frame, file and database, from the user's call to predictions, by name."""

import gzip
import sqlite3

import duckdb
import ibis
import networkx as nx
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.dataset
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

import impact_gnn as ig
from impact_gnn.checks import InputError
from impact_gnn.cli.main import app
from impact_gnn.data.files import convert_graph, read
from impact_gnn.data.ids import Ids, characters
from impact_gnn.data.tables import EDGES_AT_ONCE, sort_edges
from impact_gnn.data.values import TableColumn
from impact_gnn.estimators import Calibration, Ensemble, Pipeline
from impact_gnn.graph.temporal import graph_digest
from impact_gnn.job.predictions import write_predictions

SIZE = 240


def tables(seed=0, size=SIZE):
    """Papers with dates, text, categories, gaps; citations with dates."""
    rng = np.random.default_rng(seed)
    days = np.sort(rng.integers(0, 4 * 365, size))
    published = np.datetime64("2018-01-01", "D") + days
    topic = rng.integers(0, 3, size)
    words = [["graph", "node", "edge"], ["gene", "cell", "dna"], ["star", "orbit", "light"]]
    title = [" ".join([*rng.choice(words[k], 3), "we", "show"]) for k in topic]
    label = pa.array([["cs", "bio", "astro"][k] for k in topic], mask=days >= 3 * 365)
    papers = pa.table(
        {
            "paper_id": [f"p{i:03d}" for i in rng.permutation(size)],
            "published": published,
            "topic": label,
            "title": title,
            "pages": pa.array(rng.integers(4, 30, size), mask=rng.random(size) < 0.1),
            "venue": rng.choice(["A", "B", "C"], size),
            "open": rng.random(size) < 0.5,
        }
    )
    ends = rng.integers(0, size, (2, 5 * size))
    ids = np.array(papers["paper_id"].to_pylist())
    later = published[np.maximum(*ends)] + rng.integers(0, 100, 5 * size)
    citations = pa.table({"citing": ids[ends[0]], "cited": ids[ends[1]], "seen": later})
    return papers, citations


ROLES = {
    "id": "paper_id",
    "time": "published",
    "label": "topic",
    "edge_time": "seen",
    "period": "quarter",
    "quiet": True,
}


def predictions(graph, fitted=None):
    p = fitted or ig.Pipeline(epochs=3, hidden=8).fit(graph)
    return p, dict(
        zip(graph.ids[p.targets(graph)].tolist(), p.predict_proba(graph).tolist(), strict=True)
    )


FRAMES = {
    "pyarrow": lambda t: t,
    "pandas": lambda t: t.to_pandas(),
    "pandas with its own types": lambda t: t.to_pandas(types_mapper=pd.ArrowDtype),
    "polars": pl.from_arrow,
    "polars lazy": lambda t: pl.from_arrow(t).lazy(),
    "duckdb": duckdb.from_arrow,
    "ibis": ibis.memtable,
    "columns": lambda t: {name: t[name].to_pylist() for name in t.column_names},
}


@pytest.mark.parametrize("frame", FRAMES)
def test_every_kind_of_frame_gives_the_same_predictions(frame):
    nodes, edges = map(FRAMES[frame], tables())
    g = ig.from_tables(nodes, edges, **ROLES)
    assert repr(g).endswith("3 classes, times 2018-Q1..2021-Q4)")
    assert g.label_names == ("astro", "bio", "cs")
    assert (g.edge_time >= np.maximum(*g.time[g.edge_index])).all()
    assert g.nodes["node"].columns.kinds == {
        "title": "text",
        "pages": "number",
        "venue": "category",
        "open": "number",
    }
    expected = predictions(ig.from_tables(*tables(), **ROLES))[1]
    predicted = predictions(g)[1]
    assert predicted.keys() == expected.keys()
    assert len(predicted) == int((g.time >= g.when("2021-01-01")).sum()) > 20
    assert np.allclose(list(predicted.values()), list(expected.values()), atol=1e-6)


@pytest.mark.usefixtures("without_page")
def test_two_lines_from_a_polars_frame_to_predictions(tmp_path, capsys):
    nodes, edges = map(pl.from_arrow, tables())
    g = ig.from_tables(nodes.rename({"topic": "label"}), edges)
    output = capsys.readouterr().out
    assert "nodes: rows numbered" not in output
    for line in (
        "time from 'published'",
        "label from 'label'",
        "title: text",
        "venue: category",
        "source from 'citing'",
    ):
        assert line in output
    r = ig.run(g, tmp_path / "out", candidates=["plain", "labels"], folds=1, seeds=1)
    table = pd.read_csv(tmp_path / "out" / "predictions.csv")
    assert len(table) == r.prediction_summary.count == 59 or len(table) > 20
    assert set(table["label"]) <= {"astro", "bio", "cs"}
    assert table["time"].str.match(r"2021-Q\d|2021-\d\d").all()


def several(types=("paper", "author")):
    papers, citations = tables()
    rng = np.random.default_rng(5)
    authors = pa.table({"author_id": np.arange(100, 150), "country": rng.choice(["x", "y"], 50)})
    writes = pa.table(
        {
            "author_id": rng.integers(100, 150, 400),
            "paper_id": papers["paper_id"].take(rng.integers(0, SIZE, 400)),
        }
    )
    return papers.rename_columns({"topic": "label"}), authors, citations, writes


def test_several_tables():
    papers, authors, citations, writes = several()
    g = ig.from_tables(
        {"paper": papers, "author": authors},
        {("paper", "cites", "paper"): citations, ("author", "writes", "paper"): writes},
        target="paper",
        period="quarter",
        edge_time={("paper", "cites", "paper"): "seen"},
        quiet=True,
    )
    assert {kind: part.num_nodes for kind, part in g.nodes.items()} == {"paper": SIZE, "author": 50}
    assert g.relations[("paper", "cites", "paper")].time is not None
    assert g.relations[("author", "writes", "paper")].time is None
    assert g.nodes["author"].num_features == 2
    assert len(predictions(g)[1]) == g.targets("2021-01-01").sum()


def write(folder, nodes, edges, form):
    folder.mkdir()
    for name, table in (("nodes", nodes), ("edges", edges)):
        if form == "parquet":
            pa.parquet.write_table(table, folder / f"{name}.parquet")
        elif form == "partitioned":
            table = (
                table.append_column("part", pa.array(np.arange(len(table)) // 100))
                if name == "edges"
                else table
            )
            split = (
                {"partitioning": ["part"], "partitioning_flavor": "hive"} if name == "edges" else {}
            )
            pa.dataset.write_dataset(table, folder / name, format="parquet", **split)
        else:
            pa.csv.write_csv(table, folder / f"{name}.csv")
            text = (folder / f"{name}.csv").read_bytes()
            if form == "semicolon":
                (folder / f"{name}.csv").write_bytes(text.replace(b",", b";"))
            if form == "gz":
                (folder / f"{name}.csv").unlink()
                (folder / f"{name}.csv.gz").write_bytes(gzip.compress(text))
    return folder


def renamed():
    papers, citations = tables()
    nodes = papers.rename_columns({"paper_id": "id", "topic": "label"})
    return nodes, citations.rename_columns({"citing": "source", "cited": "target", "seen": "time"})


@pytest.mark.parametrize("form", ["csv", "gz", "semicolon", "parquet", "partitioned"])
def test_every_kind_of_file_gives_the_same_predictions(tmp_path, form):
    nodes, edges = renamed()
    g = ig.load(write(tmp_path / "g", nodes, edges, form), period="quarter")
    expected = predictions(ig.from_tables(nodes, edges, period="quarter", quiet=True))[1]
    predicted = predictions(g)[1]
    assert predicted.keys() == expected.keys()
    assert np.allclose(
        [predicted[k] for k in predicted], [expected[k] for k in predicted], atol=1e-5
    )


def test_databases(tmp_path):
    nodes, edges = renamed()
    expected = predictions(ig.from_tables(nodes, edges, period="quarter", quiet=True))[1]
    with duckdb.connect(str(tmp_path / "g.db")) as connection:
        connection.register("n", nodes)
        connection.register("e", edges)
        connection.execute(
            "create table nodes as select * from n; create table edges as select * from e"
        )
    with sqlite3.connect(tmp_path / "g.sqlite") as connection:
        nodes.to_pandas().to_sql("nodes", connection, index=False)
        edges.to_pandas().to_sql("edges", connection, index=False)
    for url in (f"duckdb:{tmp_path / 'g.db'}", f"sqlite:///{tmp_path / 'g.sqlite'}"):
        predicted = predictions(ig.load(url, period="quarter"))[1]
        assert predicted.keys() == expected.keys()
        assert np.allclose(
            [predicted[k] for k in predicted], [expected[k] for k in predicted], atol=1e-5
        )
    for url, sentence in (
        ("duckdb:nowhere.db", "nowhere.db does not exist"),
        ("sqlite:////nowhere/at/all.db", "/nowhere/at/all.db does not exist"),
        ("nosuch://x", "cannot be opened"),
    ):
        with pytest.raises(InputError, match=sentence):
            ig.load(url)


def test_networkx_has_all_parallel_edges():
    g = ig.TemporalGraph(
        time=[0, 1], edge_index=[[0, 0], [1, 1]], edge_weight=[2.0, 3.0], edge_time=[1, 2]
    )
    edges = ig.to_networkx(g).edges(data=True)
    assert sorted(edges, key=str) == [
        (0, 1, {"weight": 2.0, "time": 1}),
        (0, 1, {"weight": 3.0, "time": 2}),
    ]
    single = ig.TemporalGraph(time=[0, 1], edge_index=[[0, 1], [1, 0]])
    assert type(ig.to_networkx(single)) is nx.DiGraph


def test_networkx_there_and_back():
    rng = np.random.default_rng(0)
    source = nx.gnm_random_graph(60, 200, seed=0, directed=True)
    for node in source:
        source.nodes[node].update(
            year=2015 + node % 5,
            kind=["a", "b"][node % 2] if node % 5 < 4 else None,
            size=rng.random(),
        )
    for a, b in source.edges:
        source.edges[a, b].update(since=2015 + max(a % 5, b % 5), strength=1.0 + a)
    g = ig.from_networkx(
        source, time="year", label="kind", weight="strength", edge_time="since", quiet=True
    )
    assert g.num_nodes == 60
    assert len(predictions(g)[1]) == 12
    back = ig.to_networkx(g)
    assert set(back.edges) == set(source.edges)
    for a, b in source.edges:
        assert back.edges[a, b] == {"weight": 1.0 + a, "time": source.edges[a, b]["since"]}
    assert all(back.nodes[n]["time"] == source.nodes[n]["year"] for n in source)
    assert all(back.nodes[n].get("label") == source.nodes[n]["kind"] for n in source)
    papers, authors, _, writes = several()
    both = ig.to_networkx(
        ig.from_tables(
            {"paper": papers, "author": authors},
            {("author", "writes", "paper"): writes},
            target="paper",
            quiet=True,
        )
    )
    assert ("author", 100) in both
    assert both.number_of_edges() == 400


# -- by name


def shuffled(seed=1):
    """The same tables with rows and columns in another order."""
    rng = np.random.default_rng(seed)
    papers, citations = tables()
    papers = papers.take(rng.permutation(SIZE)).select(
        rng.permutation(papers.column_names).tolist()
    )
    return papers, citations.take(rng.permutation(len(citations)))


@pytest.mark.parametrize("model", ["sign", "trees"])
def test_columns_rows_and_classes_in_another_order_give_the_same_predictions(tmp_path, model):
    g = ig.from_tables(*tables(), **ROLES)
    p = ig.Pipeline(model, method="labels", epochs=3, hidden=8).fit(g)
    p.save(tmp_path / "model")
    p = ig.Pipeline.load(tmp_path / "model")
    _, expected = predictions(g, p)
    papers, citations = shuffled()
    again = ig.from_tables(papers, citations, **ROLES)
    _, predicted = predictions(again, p)
    assert predicted.keys() == expected.keys()
    assert np.allclose([predicted[k] for k in expected], list(expected.values()), atol=1e-5)
    # Classes in another order, one of which has no nodes yet, and further columns that are not
    # known.
    names = ["cs", "zoo", "bio", "astro"]
    coded = again.with_classes(names)
    assert not np.array_equal(coded.y, again.y)
    _, predicted = predictions(coded, p)
    assert np.allclose([predicted[k] for k in expected], list(expected.values()), atol=1e-5)
    more = papers.append_column("new", papers["pages"])
    _, predicted = predictions(ig.from_tables(more, citations, **ROLES), p)
    assert np.allclose([predicted[k] for k in expected], list(expected.values()), atol=1e-5)


def test_predict_notes_unknown_columns_and_refuses_missing_ones(tmp_path):
    g = ig.from_tables(*tables(), **ROLES)
    p = ig.Pipeline(method="labels", epochs=3, hidden=8).fit(g)
    papers, citations = tables()
    new = papers.append_column("new", papers["pages"])
    new = new.set_column(
        2,
        "topic",
        pc.if_else(pc.equal(papers["paper_id"], papers["paper_id"][0]), "law", papers["topic"]),
    )
    other = ig.from_tables(new, citations, **ROLES)
    first, second = p.fitted.schema.notes(other, p.fitted.cutoff)
    assert first == "columns that are not in the model are ignored: new."
    assert second.startswith(
        "classes that are not in the model count as unknown: law (1 nodes); retrain"
    )
    assert p.predict_proba(other).shape[1] == 3
    text = pa.array(["many"] * SIZE)
    for changed, sentence in (
        (
            papers.drop_columns(["title"]),
            "the feature columns title are missing, but the model needs them; the columns are "
            "open, pages, venue",
        ),
        (
            papers.set_column(4, "pages", text),
            "column 'pages' has type .*string such as 'many', not a number",
        ),
    ):
        with pytest.raises(InputError, match=sentence):
            p.predict_proba(ig.from_tables(changed, citations, **ROLES))
    with pytest.raises(
        InputError, match="the graph has periods of a month, but the model has periods of a quarter"
    ):
        p.predict_proba(ig.from_tables(papers, citations, **ROLES | {"period": "month"}))
    with pytest.raises(
        InputError, match=r"by column name .open, pages, title, venue.; pass tables"
    ):
        p.predict_proba(g.with_features(np.ones((SIZE, 4))))


@pytest.mark.usefixtures("without_page")
def test_the_command_line_from_init_to_next_months_predictions(tmp_path):
    run = CliRunner().invoke
    nodes, edges = renamed()
    nodes = nodes.rename_columns({"id": "paper", "label": "topic"})
    folder = write(tmp_path / "g", nodes, edges, "csv")
    (folder / "nodes.csv").rename(folder / "papers.csv")
    (folder / "edges.csv").rename(folder / "citations.csv")
    assert run(app, ["init", str(folder)]).exit_code == 0
    toml = folder / "graph.toml"
    text = toml.read_text()
    assert '"title" = "text"' in text
    assert 'label = "topic"' in text  # known up to a day and missing from then on
    toml.write_text(
        text.replace('"venue" = "category"', '"venue" = "ignore"').replace('"auto"', '"quarter"')
    )
    assert run(app, ["init", str(folder)]).exit_code == 2  # nothing is overwritten
    out = run(
        app,
        ["check", str(folder), "--cutoff", "2021-01-01", "--json", str(tmp_path / "check.json")],
    )
    assert out.exit_code == 0
    for line in (
        "papers.csv: id from 'paper'",
        "title: text",
        "venue: ignored, as declared",
        "a period is a quarter",
        "2020-Q4",
    ):
        assert line in out.stdout
    assert "nodes from 2021-Q1 on" in out.stdout
    quick = ["--candidates", "plain,labels", "--folds", "1", "--seeds", "1"]
    out = run(
        app, ["run", str(folder), "--out", str(tmp_path / "out"), "--cutoff", "2021-01-01", *quick]
    )
    assert out.exit_code == 0, out.output
    expected = pd.read_csv(tmp_path / "out" / "predictions.csv").set_index("id")
    assert set(expected["time"]) == {"2021-Q1", "2021-Q2", "2021-Q3", "2021-Q4"}
    # Next month: other order, one more column, dates as whole seconds.
    rng = np.random.default_rng(0)
    later = nodes.take(rng.permutation(SIZE)).append_column("extra", pa.array(range(SIZE)))
    pa.csv.write_csv(later.select(["extra", *later.column_names[:-1][::-1]]), folder / "papers.csv")
    out = run(
        app,
        ["predict", str(tmp_path / "out" / "model"), str(folder), "--out", str(tmp_path / "p.csv")],
    )
    assert out.exit_code == 0, out.output
    assert "columns that are not in the model are ignored: extra" in out.stdout
    predicted = pd.read_csv(tmp_path / "p.csv").set_index("id").loc[expected.index]
    assert (predicted["label"] == expected["label"]).all()
    assert np.allclose(predicted["probability"], expected["probability"], atol=1e-4)


# -- large


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_streaming_gives_the_same_graph(tmp_path, form, monkeypatch):
    monkeypatch.setattr("impact_gnn.data.tables.EDGES_AT_ONCE", 100)
    monkeypatch.setattr("impact_gnn.data.sources.ROWS", 50)
    nodes, edges = renamed()
    folder = write(tmp_path / "g", nodes, edges, form)
    whole = read(folder, period="quarter").graph
    converted = convert_graph(folder, tmp_path / "saved", memory=1, period="quarter")
    back = ig.load(tmp_path / "saved", verify=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["g", "saved"]
    for g in (converted.graph, back):
        assert np.array_equal(g.edge_index, whole.edge_index)
        assert np.array_equal(g.edge_time, whole.edge_time)
        assert np.array_equal(g.ids, whole.ids)
        assert np.array_equal(g.time, whole.time)
        assert np.array_equal(g.y, whole.y)
        assert np.allclose(g.masked("2021").x, whole.masked("2021").x, atol=1e-6)
        assert g.periods == whole.periods
        assert g.label_names == whole.label_names


@pytest.mark.parametrize("memory", [1, "2GB"])
def test_ids_keep_their_zeros(tmp_path, memory):
    (tmp_path / "nodes.csv").write_text(
        "id,time,zip\n" + "".join(f"{i:03d},{2010 + i},0123\n" for i in range(5))
    )
    (tmp_path / "edges.csv").write_text("source,target\n001,003\n")
    g = convert_graph(tmp_path, tmp_path / "saved", memory=memory).graph
    assert g.ids.tolist() == ["000", "001", "002", "003", "004"]
    assert g.edge_index.tolist() == [[1], [3]]


def test_types_of_a_csv_in_batches_suit_all_of_it(tmp_path):
    rows = "".join(
        f"{i},{i},{1 if i < 200_000 else 1.5},{'' if i < 250_000 else 'x'}\n"
        for i in range(300_000)
    )
    (tmp_path / "nodes.csv").write_text("id,time,a,b\n" + rows)
    (tmp_path / "edges.csv").write_text("source,target\n1,2\n")
    converted = convert_graph(tmp_path, tmp_path / "saved", memory=1, period=5)
    assert converted.graph.nodes["node"].columns.table.schema.types == [pa.float64(), pa.string()]
    assert converted.graph.num_nodes == 300_000


@pytest.mark.parametrize(
    "ids",
    [
        pa.array([7, 3, 5]),
        pa.array([0, 1, 2]),
        pa.array([2**64 - 1, 5, 7], pa.uint64()),
        pa.array([10**15, -(10**15), 4]),
        pa.array(["a", "ü", "日本"]),
        pa.array(["x" * 70, "", "y"]),
        pa.array(["b", "a", "c"]).dictionary_encode(),
    ],
)
def test_ids_of_any_kind_are_matched(ids):
    ids_read = Ids.of(TableColumn(pa.chunked_array([ids]), "id", "nodes"))
    plain = ids.to_pylist()
    absent = 99 if isinstance(plain[0], int) else "nobody"
    wanted = pa.array(
        [plain[2], plain[0], absent, plain[1]], pa.uint64() if ids.type == pa.uint64() else None
    )
    if ids.type == pa.uint64():  # too long for a number
        plain, wanted = [str(one) for one in plain], wanted.cast(pa.large_string())
    assert ids_read.names.tolist() == plain
    assert ids_read.find(wanted).tolist() == [2, 0, -1, 1]


def test_characters_of_a_slice():
    text = pa.array(["ab", "", "日本語", "x"] * 100_000)
    assert characters(text).tolist() == text.to_pylist()
    assert characters(text.slice(2, 2)).tolist() == ["日本語", "x"]


# -- refusals and notes


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"time": "nothing"}, "nodes has no column 'nothing'; it has paper_id, published"),
        ({"columns": ["title"]}, "columns=.'title'. should be a mapping"),
        ({"edge_weight": "seen"}, "column seen of edges has two roles"),
        ({"edge_source": "nothing"}, "edges has no column 'nothing'; it has citing, cited, seen"),
        (
            {"columns": {"title": "poem"}},
            "the kind of column 'title'='poem' is not valid; choose one of 'number'",
        ),
        ({"columns": {"nothing": "text"}}, "nodes has no column 'nothing'"),
        ({"period": "decade"}, "period='decade' is not valid"),
        ({"target": "author"}, "target='author' is not a node type; choose one of node"),
        ({"label": "seen"}, "nodes has no column 'seen'"),
        (
            {"label": "published", "time": "topic"},
            "column 'published' of nodes has type date32.*use numbers or text as labels",
        ),
        ({"time": "title"}, "column 'title' of nodes has type string such as '.*; use dates"),
        ({"dangling": "keep"}, "dangling='keep' is not valid"),
        ({"edge_target": "citing"}, "column 'citing' of edges cannot be both source and target"),
        (
            {"columns": {"topic": "category"}},
            "column topic of nodes has two roles, label and category .of columns.; use it once",
        ),
        (
            {"id": ""},
            "column 'citing' of edges has type .*string, but no column of nodes was read as ids; "
            "choose one with id=",
        ),
        (
            {"cutoff": "2021-02-03", "period": "quarter"},
            "cutoff='2021-02-03' is inside the period 2021-Q1; use the start of",
        ),
    ],
)
def test_roles_that_cannot_be(change, sentence):
    with pytest.raises(InputError, match=sentence):
        ig.from_tables(*tables(), **ROLES | change)


def test_roles_that_no_table_has_and_roles_that_are_switched_off():
    papers, authors, citations, writes = several()
    nodes, edges = {"paper": papers, "author": authors}, {("author", "writes", "paper"): writes}
    with pytest.raises(
        InputError, match="no table has a column 'publishd'; choose an existing one"
    ):
        ig.from_tables(nodes, edges, time="publishd", quiet=True)
    quiet = {"period": "year", "quiet": True}
    dated = citations.rename_columns({"seen": "time"})
    assert ig.from_tables(papers, dated, **quiet).edge_time is not None
    assert ig.from_tables(papers, dated, edge_time="", **quiet).edge_time is None


def test_a_date_declared_as_a_feature_is_no_time():
    papers, citations = tables()
    with pytest.raises(InputError, match="nodes has no time column; set it with time="):
        ig.from_tables(papers, citations, columns={"published": "date"}, quiet=True)
    born = papers.append_column("born", papers["published"])
    g = ig.from_tables(born, citations, columns={"born": "date"}, quiet=True)
    assert g.nodes["node"].columns.kinds["born"] == "date"


def test_edges_that_name_nobody_are_refused_or_dropped():
    papers, citations = tables()
    more = pa.concat_tables(
        [citations, citations.slice(0, 1).set_column(0, "citing", pa.array(["nobody"]))]
    )
    with pytest.raises(
        InputError,
        match="edges has 1 edges whose source is not in nodes, first 'nobody' in row 1201",
    ):
        ig.from_tables(papers, more, **ROLES)
    assert ig.from_tables(papers, more, **ROLES, dangling="drop").edge_index.shape == (2, 1200)


def test_a_label_that_names_nobody_twice_is_refused():
    size = 3000
    nodes = {
        "id": np.arange(size),
        "time": np.arange(size) % 5,
        "label": [f"name {i}" for i in range(size)],
    }
    with pytest.raises(
        InputError,
        match="column 'label' of nodes has 3,000 different values in 3,000 labelled rows",
    ):
        ig.from_tables(nodes, {"source": [0], "target": [1]}, quiet=True)


REST = "\n[edges.b]\nfile = 'edges.csv'"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("nodes = 3", r"graph.toml has no \[nodes.NAME\] table"),
        ("this is no toml", "graph.toml cannot be read"),
        (
            "[nodes.a]\nfile = 'nothing.csv'\n[edges.b]\nfile = 'edges.csv'",
            "refers to a missing file 'nothing.csv'",
        ),
        (
            "[nodes.a]\nfile = 'nodes.csv'\nlable = 'x'\n[edges.b]\nfile = 'edges.csv'",
            "has unknown entries lable; use file, id",
        ),
        (
            "target = 'z'\n[nodes.a]\nfile = 'nodes.csv'\n[edges.b]\nfile = 'edges.csv'",
            "target='z' is not a node type; use one of a",
        ),
        ("[nodes.a]\nfile = 3\n[edges.b]\nfile = 'edges.csv'", "file=3 should be text in quotes"),
    ],
)
def test_a_toml_that_cannot_be(tmp_path, text, sentence):
    folder = write(tmp_path / "g", *renamed(), "csv")
    (folder / "graph.toml").write_text(text)
    with pytest.raises(InputError, match=sentence):
        ig.load(folder)


# -- regressions: errors that were once silent


def small(nodes=None, edges=None, **options):
    nodes = {"id": ["a", "b", "c"], "time": [2019, 2020, 2021], "label": [0, 1, None]} | (
        nodes or {}
    )
    return ig.from_tables(
        nodes, {"source": ["a", "b"], "target": ["b", "c"]} | (edges or {}), quiet=True, **options
    )


def test_seconds_of_any_width_are_the_same_moments():
    seconds = np.array([1_500_000_000, 1_550_000_000, 1_600_000_000])
    for kind in (np.int32, np.uint32, np.int64, np.float64):
        g = small({"time": seconds.astype(kind)}, {"time": seconds[:2].astype(kind)}, period="year")
        assert [g.name_of(t) for t in g.time] == ["2017", "2019", "2020"]
        assert [g.name_of(t) for t in g.edge_time] == ["2017", "2019"]


@pytest.mark.parametrize(
    ("nodes", "edges"),
    [
        ([1_500_000_000, 1_550_000_000, 1_600_000_000], [1_500_000_000_000, 1_550_000_000_000]),
        ([20200101, 20210101, 20220101], [202001, 202101]),
        ([20200101, 20210101, 20220101], [20220231, 20210101]),
        ([2019, 2020, 2021], [1_500_000_000, 1_550_000_000]),
        ([2019, 2020, 2021], ["2019-01-01", "2020-01-01"]),
        (["2019-01-01", "2020-01-01", "2021-01-01"], [2019, 2020]),
    ],
)
def test_times_of_edges_in_another_unit_are_refused(nodes, edges):
    with pytest.raises(
        InputError, match=r"the times of edges (look like|are not all of the same kind)"
    ):
        small({"time": nodes}, {"time": edges}, period="whole" if nodes[0] == 2019 else "year")


def test_ids_that_became_floats():
    nodes, edges = {"id": [1.0, 2.0, 3.0]}, {"source": [1, 2], "target": [2, 3]}
    assert small(nodes, edges).edge_index.tolist() == [[0, 1], [1, 2]]
    with pytest.raises(
        InputError, match="column 'source' of edges has double values too large to be exact ids"
    ):
        small({"id": [2**53, 2**53 + 1, 5]}, {"source": [float(2**53 + 1), 5.0], "target": [5, 5]})
    with pytest.raises(
        InputError, match="column 'source' of edges has type double, but the ids of nodes are text"
    ):
        small({"id": ["1e3", "abc", "1000"]}, {"source": [1e3, 1e3], "target": ["abc", "abc"]})


def test_categories_of_polars_and_of_several_chunks(tmp_path):
    kinds = (
        pl.Series(["a", "b", "c"], dtype=pl.Categorical),
        pl.Series(["a", "b", "c"], dtype=pl.Enum(["a", "b", "c"])),
    )
    for column in kinds:
        nodes = pl.DataFrame(
            {"id": column, "time": [2019, 2020, 2021], "label": column, "kind": column}
        )
        edges = pl.DataFrame({"source": column[:2], "target": column[1:]})
        g = ig.from_tables(nodes, edges, quiet=True)
        assert g.edge_index.tolist() == [[0, 1], [1, 2]]
        assert g.label_names == ("a", "b", "c")
        assert g.nodes["node"].columns.kinds == {"kind": "category"}
    chunks = [pa.array(part * 10_000).dictionary_encode() for part in (["x", "y"], ["z", "x"])]
    size = 40_000
    nodes = pa.table(
        {"id": np.arange(size), "time": np.arange(size) % 3, "kind": pa.chunked_array(chunks)}
    )
    g = ig.from_tables(nodes, {"source": [0], "target": [1]}, quiet=True)
    g.save(tmp_path / "g")
    assert np.array_equal(ig.load(tmp_path / "g").x, g.x)
    assert g.nodes["node"].columns.encoder.outputs == ["kind = x", "kind = y", "kind = z"]


def test_an_index_that_says_something_is_a_column():
    frame = pd.DataFrame({"time": [2019, 2020, 2021], "size": [1.0, 5.0, 2.0]}, index=[7, 8, 9])
    edges = {"source": [7, 8], "target": [9, 9]}
    assert ig.from_tables(frame, edges, quiet=True).edge_index.tolist() == [[0, 1], [2, 2]]
    frame.index.name = "person"
    assert ig.from_tables(frame, edges, id="person", quiet=True).ids.tolist() == [7, 8, 9]


def test_the_ends_of_an_edge_follow_the_types_and_not_the_order_of_columns():
    nodes = {
        "paper": {"id": [0, 1, 2], "time": [1, 2, 3], "label": [0, 1, None]},
        "author": {"id": [0, 1]},
    }
    g = ig.from_tables(
        nodes, {("paper", "by", "author"): {"author": [0, 0], "paper": [1, 2]}}, quiet=True
    )
    assert g.relations[("paper", "by", "author")].edge_index.tolist() == [[1, 2], [0, 0]]


def test_durations_in_any_unit_and_columns_that_are_empty_next_time():
    rng = np.random.default_rng(0)
    size = 120
    nodes = {
        "id": np.arange(size),
        "time": np.arange(size) % 4,
        "label": rng.integers(0, 2, size),
        "wait": rng.integers(1, 900, size).astype("m8[s]"),
        "kind": rng.choice(["a", "b"], size),
    }
    edges = {"source": rng.integers(0, size, 300), "target": rng.integers(0, size, 300)}
    g = ig.from_tables(nodes, edges, quiet=True)
    p = ig.Pipeline(epochs=3, hidden=8).fit(g)
    other = ig.from_tables(nodes | {"wait": nodes["wait"].astype("m8[ms]")}, edges, quiet=True)
    assert np.array_equal(p.predict_proba(other), p.predict_proba(g))
    # dropped on reading, known to the model
    empty = ig.from_tables(nodes | {"kind": [None] * size}, edges, quiet=True)
    assert np.isfinite(p.predict_proba(empty)).all()
    assert p.fitted.schema.notes(empty, p.fitted.cutoff) == [
        "columns without any value from the training data: kind."
    ]
    new = ig.from_tables(nodes | {"kind": ["c"] * size, "wait": [None] * size}, edges, quiet=True)
    assert p.fitted.schema.notes(new, p.fitted.cutoff) == [
        "columns without any value from the training data: kind, wait."
    ]
    assert p.fitted.schema.notes(g, p.fitted.cutoff) == []


@pytest.mark.parametrize("model", ["sehgnn", "rphgnn", "trees"])
def test_relations_and_types_in_another_order_give_the_same_predictions(model, tmp_path):
    papers, authors, citations, writes = several()
    nodes = {"paper": papers, "author": authors}
    edges = {("paper", "cites", "paper"): citations, ("author", "writes", "paper"): writes}
    edges[("paper", "near", "paper")] = citations.slice(0, 300)
    options = {"target": "paper", "period": "quarter", "quiet": True}
    g = ig.from_tables(nodes, edges, **options)
    p = ig.Pipeline(model, method="labels", epochs=2, hidden=8).fit(g)
    p.save(tmp_path / "m")
    p, expected = ig.Pipeline.load(tmp_path / "m"), p.predict_proba(g)
    turned = ig.from_tables(dict(reversed(nodes.items())), dict(reversed(edges.items())), **options)
    assert np.allclose(p.predict_proba(turned), expected, atol=1e-5)
    more = ig.from_tables(nodes, edges | {("paper", "new", "paper"): citations}, **options)
    assert p.fitted.schema.notes(more, p.fitted.cutoff) == [
        "types and relations that are not in the model are ignored: paper-new-paper."
    ]
    assert np.allclose(p.predict_proba(more), expected, atol=1e-5)
    del edges[("paper", "near", "paper")]
    with pytest.raises(
        InputError, match="the graph has no paper-near-paper, which the model was fitted with"
    ):
        p.predict_proba(ig.from_tables(nodes, edges, **options))


def test_classes_are_matched_whatever_type_they_came_in():
    for names, other in (
        ([1.0, 2.5], [2.5, 1]),
        ([True, False], ["false", "true"]),
        ([1, 2], ["2", "1"]),
    ):
        g = ig.TemporalGraph(y=[0, 1], time=[0, 1], edge_index=[[], []], label_names=names)
        assert g.with_classes(other).y.tolist() == [1, 0]


def test_an_edge_table_without_rows_and_odd_columns_stream_too(tmp_path):
    (tmp_path / "nodes.csv").write_text(
        "id,time,label,n\na, 2019,x, 1\nb, 2020,y, 2\nc, 2021,, 3\n"
    )
    (tmp_path / "edges.csv").write_text("source,target\n")
    whole, streamed = read(tmp_path), convert_graph(tmp_path, tmp_path / "saved", memory=1)
    assert whole.notes == streamed.notes
    assert streamed.graph.time.tolist() == [2019, 2020, 2021]
    assert streamed.graph.edge_index.shape == (2, 0)


def test_a_category_is_the_same_from_text_and_from_numbers():
    base = {"id": np.arange(6), "time": [0, 0, 0, 1, 1, 1]}
    edges = {"source": [0], "target": [1]}
    for text, typed in (
        (["True", "False"], [True, False]),
        (["1.0", "2.0"], [1.0, 2.0]),
        (["1e1", "2e1"], [10.0, 20.0]),
        (["NA", "x"], [None, "x"]),
    ):
        ours, theirs = (
            ig.from_tables(base | {"c": values * 3}, edges, columns={"c": "category"}, quiet=True)
            for values in (text, typed)
        )
        encoder = ours.nodes["node"].columns.encoder
        assert np.array_equal(encoder.encode(theirs.nodes["node"].columns), ours.x)
        assert ours.x.sum(1).tolist() == [1] * 6


def test_parts_of_a_table_with_columns_of_their_own(tmp_path):
    (tmp_path / "nodes").mkdir()
    pa.parquet.write_table(
        pa.table({"id": [0, 1], "time": [0, 1]}), tmp_path / "nodes" / "0.parquet"
    )
    pa.parquet.write_table(
        pa.table({"id": [2], "time": [2], "extra": [1.0]}), tmp_path / "nodes" / "1.parquet"
    )
    pa.parquet.write_table(pa.table({"source": [0], "target": [2]}), tmp_path / "edges.parquet")
    assert ig.load(tmp_path).nodes["node"].columns.kinds == {"extra": "number"}


def test_a_folder_whose_columns_fit_several_types(tmp_path):
    (tmp_path / "papers.csv").write_text(
        "id,published,label\n" + "".join(f"{i},20{10 + i}-01-01,{i % 2}\n" for i in range(1, 9))
    )
    (tmp_path / "authors.csv").write_text("id,born\n1,1980-01-01\n2,1985-01-01\n")
    (tmp_path / "cites.csv").write_text("citing,cited\n7,1\n8,2\n")
    g = ig.load(tmp_path)
    # both ends fit papers, one fits authors too
    assert list(g.relations) == [("paper", "cites", "paper")]
    assert g.nodes["author"].time is None  # a date of birth is no time of the graph
    (tmp_path / "cites.csv").write_text("citing,cited\n1,2\n2,1\n")
    with pytest.raises(
        InputError,
        match=r"node types of the columns 'citing' and 'cited' of cites.csv are ambiguous",
    ):
        ig.load(tmp_path)


def test_an_index_that_is_a_column_too_or_repeats_its_values():
    ids = np.arange(100, 140)
    frame = pd.DataFrame({"id": ids, "year": 2010 + ids % 10, "label": ids % 2})
    graph = ig.from_tables(
        frame.set_index("id", drop=False), {"source": [100], "target": [139]}, quiet=True
    )
    assert graph.ids.tolist() == ids.tolist()
    events = frame.drop(columns="id").set_index(pd.Index(ids % 7, name="user_id"))
    assert ig.from_tables(events, quiet=True).nodes["user"].num_nodes == 7


def test_an_index_that_says_nothing_is_dropped():
    frame = pd.DataFrame({"id": [1, 2, 3], "time": [2019, 2020, 2021]})
    twice = pd.concat([frame.iloc[:2], frame.iloc[:2].assign(id=[8, 9])])
    assert (
        ig.from_tables(twice, pd.DataFrame({"a": [1], "b": [9]}, index=[5]), quiet=True).x is None
    )


def test_ids_that_look_like_dates_stay_as_they_are(tmp_path):
    (tmp_path / "nodes.csv").write_text("id,time\n2021-07-01,1\n2021-07-02,2\n")
    (tmp_path / "edges.csv").write_text("source,target\n2021-07-01,2021-07-02\n")
    for memory in (1, "2GB"):
        g = convert_graph(tmp_path, tmp_path / "saved", memory=memory).graph
        assert g.ids.tolist() == ["2021-07-01", "2021-07-02"]
        assert g.edge_index.tolist() == [[0], [1]]


@pytest.mark.parametrize("name", ["p.csv", "p.raw.csv", "p.parquet"])
def test_ids_and_classes_are_no_formulas_in_a_spreadsheet(tmp_path, name):
    """Spreadsheets run text of a CSV that begins like a formula.

    Other tables are read by programs of ours.
    """
    odd = [
        "=cmd|' /C calc'!A0",
        "@SUM(1)",
        "+1+cmd",
        "-2+3",
        "\t=1",
        "-5",
        "+49 30",
        "plain",
        "it's",
    ]
    ids = [odd[i] if i < len(odd) else f"n{i}" for i in range(40)]
    time = np.where(np.arange(40) < len(odd), 3, np.arange(40) % 3)
    label = np.where(np.arange(40) % 2, "=A1", "b").astype(object)
    nodes = pd.DataFrame({"id": ids, "time": time, "label": label, "x": np.arange(40.0)})
    edges = pd.DataFrame({"source": ids[:-1], "target": ids[1:]})
    g = ig.from_tables(nodes, edges)
    model = Ensemble([Pipeline("prior", cutoff=3).fit(g)], [1.0], Calibration(), np.full(2, 0.5))
    write_predictions(g, model, tmp_path / name)
    read = pd.read_parquet if name.endswith("parquet") else pd.read_csv
    table = read(tmp_path / name)
    changed = (
        {"=cmd|' /C calc'!A0", "@SUM(1)", "+1+cmd", "-2+3", "\t=1", "+49 30"}
        if name == "p.csv"
        else set()
    )
    wanted = [f"'{one}" if one in changed else one for one in odd]
    assert sorted(table["id"]) == sorted(wanted)
    assert set(table["label"]) | set(table["second_label"]) == {
        "b",
        "'=A1" if name == "p.csv" else "=A1",
    }


# -- order


def in_another_order(table, rng):
    names = list(rng.permutation(table.column_names))
    return table.take(pa.array(rng.permutation(table.num_rows))).select(names)


@pytest.mark.parametrize("streamed", [False, True])
def test_the_order_of_rows_and_columns_changes_nothing(streamed, tmp_path):
    papers, citations = tables()
    citations = citations.append_column("weight", pa.array(np.arange(len(citations)) % 3 + 1.0))
    rng = np.random.default_rng(0)
    digests = set()
    for number in range(3):
        folder = tmp_path / str(number)
        folder.mkdir()
        pyarrow.parquet.write_table(papers, folder / "nodes.parquet", row_group_size=50)
        pyarrow.parquet.write_table(citations, folder / "edges.parquet", row_group_size=90)
        reading = read(folder, period="quarter", spill=folder / "spill" if streamed else None)
        digests.add(graph_digest(reading.graph))
        papers, citations = (in_another_order(table, rng) for table in (papers, citations))
    assert len(digests) == 1


def test_edges_are_sorted_in_pieces_as_they_are_at_once(tmp_path):
    rng = np.random.default_rng(0)
    size = EDGES_AT_ONCE + 1000
    edges = np.empty(size, [("source", np.int32), ("target", np.int32), ("weight", np.float64)])
    edges["source"], edges["target"] = rng.integers(0, 50, (2, size))
    edges["weight"] = rng.integers(0, 3, size)
    whole, pieces = sort_edges(edges, None), sort_edges(edges, tmp_path)
    assert np.array_equal(whole["index"], pieces["index"])
    assert np.array_equal(whole["weight"], pieces["weight"])
    keys = np.stack([whole["weight"], *whole["index"]])
    assert np.array_equal(np.lexsort(keys), np.arange(size))


def test_features_of_a_file_follow_the_rows_of_the_table(tmp_path):
    (tmp_path / "nodes.csv").write_text("id,time,label\nb,1,x\nc,2,y\na,3,\n")
    (tmp_path / "edges.csv").write_text("source,target\na,b\n")
    x = np.array([[2.0], [3.0], [1.0]])
    assert read(tmp_path, features=x).graph.x.tolist() == [[1], [2], [3]]
    np.save(tmp_path / "features.npy", x)
    assert ig.load(tmp_path).x.tolist() == [[1], [2], [3]]
    with pytest.raises(InputError, match=r"has shape|rows"):
        read(tmp_path, features=np.ones((4, 1)))


def test_ids_are_sorted_as_numbers_where_they_are_some():
    ids = ["10", "9", "b", "a", "-1", "007"]
    g = ig.from_tables(
        {"id": ids, "time": [1] * 6, "label": list("xyxyxy")},
        {"source": ["a"], "target": ["b"]},
        quiet=True,
    )
    assert g.ids.tolist() == ["-1", "9", "10", "007", "a", "b"]


def test_a_column_is_no_table():
    with pytest.raises(InputError, match="nodes is a Series; pass a data frame"):
        ig.from_tables(pd.Series([1, 2]), {"source": [0], "target": [1]})


@pytest.mark.parametrize("memory", [10**9, 1])
@pytest.mark.parametrize("name", ["id", None])
@pytest.mark.parametrize("order", [1, -1])
def test_an_index_that_pandas_stored_in_a_parquet_file(tmp_path, memory, name, order):
    """Ids from 1 on are numbers in the metadata, others a column."""
    folder = tmp_path / "data"
    folder.mkdir()
    index = pd.RangeIndex(1, 41, name=name)[::order]
    if order < 0:
        index = pd.Index(np.append(index[1:], 99), name=name)
    frame = pd.DataFrame({"year": 2010 + np.arange(40) // 4, "label": np.arange(40) % 2}, index)
    frame.to_parquet(folder / "nodes.parquet")
    edges = {"source": index[:5], "target": index[5:10]}
    pd.DataFrame(edges).to_parquet(folder / "edges.parquet")
    graph = convert_graph(folder, tmp_path / "graph", memory=memory).graph
    assert sorted(graph.ids) == sorted(index)
    assert sorted(graph.ids[graph.edge_index[0]]) == sorted(index[:5])
    assert graph.x is None
