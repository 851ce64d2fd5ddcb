"""Updates of saved graphs: equal to the graph of all tables, in place, whole or not at all."""

import csv
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import impact_gnn as ig
from impact_gnn import _files
from impact_gnn.cli import app
from impact_gnn.data.files import convert_graph
from impact_gnn.data.ids import Ids
from impact_gnn.estimators import Pipeline
from impact_gnn.graph import graph_digest
from impact_gnn.graph.neighbourhood import positions_of

NUM_PAPERS, NUM_LINKS, NUM_OLD = 200, 500, 150


def write(folder, **tables):
    """Write tables (columns of one length) as CSV files."""
    folder.mkdir(exist_ok=True)
    for name, columns in tables.items():
        with (folder / f"{name}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows(zip(*columns.values(), strict=True))
    return folder


def papers(rng):
    """Papers of 2014 to 2020 in the order of their ids, and links with weights and times."""
    year = 2014 + np.arange(NUM_PAPERS) * 7 // NUM_PAPERS
    nodes = {
        "id": [f"p{k:03}" for k in range(NUM_PAPERS)],
        "date": [f"{one}-{rng.integers(1, 13):02}-07" for one in year],
        "label": rng.choice(["ant", "bee"], NUM_PAPERS),
        "pages": rng.integers(1, 50, NUM_PAPERS),
        "score": np.where(rng.random(NUM_PAPERS) < 0.2, "", rng.normal(size=NUM_PAPERS).round(3)),
        "venue": rng.choice(["x", "y", "z"], NUM_PAPERS),
    }
    ends = np.sort(rng.integers(0, NUM_PAPERS, (2, NUM_LINKS)), axis=0)
    edges = {
        "source": [f"p{k:03}" for k in ends[1]],
        "target": [f"p{k:03}" for k in ends[0]],
        "weight": rng.random(NUM_LINKS).round(3),
        "time": [nodes["date"][k] for k in ends[1]],
    }
    return nodes, edges


def rows(table, mask):
    places = np.flatnonzero(mask)
    return {name: [values[k] for k in places] for name, values in table.items()}


def split_tables(nodes, edges, borders):
    """The tables in parts: nodes by position, an edge with the later of its two ends."""
    number = {name: k for k, name in enumerate(nodes["id"])}
    last = np.array(
        [max(number[a], number[b]) for a, b in zip(edges["source"], edges["target"], strict=True)]
    )
    place = np.arange(len(nodes["id"]))
    for low, high in pairwise([0, *borders, len(place)]):
        yield (
            rows(nodes, (place >= low) & (place < high)),
            rows(edges, (last >= low) & (last < high)),
        )


@pytest.fixture
def tables():
    return papers(np.random.default_rng(0))


def saved_and_new(tmp_path, tables, borders=(NUM_OLD,), **options):
    """A saved graph of the first rows, folders of the later ones, and the graph of all."""
    whole = write(tmp_path / "all", nodes=tables[0], edges=tables[1])
    (nodes, edges), *later = split_tables(*tables, borders)
    first = write(tmp_path / "first", nodes=nodes, edges=edges)
    graph = tmp_path / "graph"
    convert_graph(first, graph, period="year", **options)
    folders = [
        write(tmp_path / f"new-{k}", nodes=part[0], edges=part[1]) for k, part in enumerate(later)
    ]
    return graph, folders, ig.load(whole, period="year", **options)


def edges_of(graph):
    """All edges by the ids of their ends, sorted."""
    out = []
    for (source, name, target), relation in graph.relations.items():
        u, v = relation.edge_index
        columns = [graph.nodes[source].ids[u], graph.nodes[target].ids[v]]
        columns += [values for values in (relation.weight, relation.time) if values is not None]
        out += [(name, *map(str, edge)) for edge in zip(*columns, strict=True)]
    return sorted(out)


def check_same(grown, whole):
    """The same nodes, edges, labels and columns, in any order."""
    assert grown.periods == whole.periods
    assert sorted(map(str, grown.label_names)) == sorted(map(str, whole.label_names))
    for kind, part in whole.nodes.items():
        place = positions_of(grown, part.ids, kind)
        assert grown.nodes[kind].num_nodes == part.num_nodes
        for name in ("time", "timestamp"):
            values = getattr(part, name)
            if values is not None:
                np.testing.assert_array_equal(getattr(grown.nodes[kind], name)[place], values)
        if part.columns is not None:
            ours, theirs = grown.nodes[kind].columns, part.columns
            assert ours.kinds == theirs.kinds
            if theirs.moment is not None:
                np.testing.assert_array_equal(ours.moment[place], theirs.moment)
            for name in theirs.table.column_names:
                column = ours.table.column(name).take(place).to_pylist()
                assert column == theirs.table.column(name).to_pylist()
    names = [np.array([*graph.label_names, None]) for graph in (grown, whole)]
    labels = [names[0][grown.y][positions_of(grown, whole.ids)], names[1][whole.y]]
    assert labels[0].tolist() == labels[1].tolist()
    assert edges_of(grown) == edges_of(whole)


def matches(rng):
    """Matches in the order of time; some teams play in later ones only."""
    teams = rng.integers(0, 6, (2, 90)) + np.arange(90) // 30
    return {
        "match_id": list(range(90)),
        "date": [f"{2018 + k // 30}-{1 + k % 12:02}-05" for k in range(90)],
        "home_team": [f"team {k}" for k in teams[0]],
        "away_team": [f"team {k}" for k in teams[1]],
        "visitors": rng.integers(0, 500, 90),
        "label": rng.choice(["lost", "won"], 90),
    }


@pytest.mark.parametrize("ids", [True, False])
def test_events_and_their_entities_are_appended(tmp_path, ids):
    table = matches(np.random.default_rng(0))
    if not ids:
        del table["match_id"]
    place = np.arange(90)
    convert_graph(
        write(tmp_path / "first", matches=rows(table, place < 50)),
        tmp_path / "graph",
        period="year",
    )
    for low, high in ((50, 70), (70, 90)):
        part = rows(table, (place >= low) & (place < high))
        grown = ig.update(tmp_path / "graph", write(tmp_path / f"new {low}", matches=part))
    check_same(grown, ig.load(write(tmp_path / "all", matches=table), period="year"))
    assert grown.nodes["team"].num_nodes == 8


def test_edges_with_columns_are_appended(tmp_path, tables):
    """An edge without a time comes with the later of its ends."""
    nodes, edges = tables
    edges = {"source": edges["source"], "target": edges["target"], "price": edges["weight"]}
    toml = "[nodes.paper]\nfile = 'nodes.csv'\n[edges.cites]\nfile = 'edges.csv'\n"
    roles = tmp_path / "graph.toml"
    roles.write_text(toml + "columns = {price = 'number'}\n")
    graph, (folder,), _ = saved_and_new(tmp_path, (nodes, edges), roles=roles)
    grown = ig.update(graph, folder)
    part = grown.nodes["cites_edge"]
    assert part.num_nodes == NUM_LINKS
    (_, *ends) = grown.relations.values()
    latest = np.zeros(NUM_LINKS, np.int64)
    for relation in ends:
        source, target = relation.edge_index
        np.maximum.at(latest, target, grown.time[source])
    assert np.array_equal(part.time, latest)
    assert len(part.columns.table) == NUM_LINKS


def test_events_with_the_date_of_a_parent_need_its_rows(tmp_path):
    table = matches(np.random.default_rng(0))
    days = {"day_id": [f"d{k}" for k in range(90)], "date": table.pop("date")}
    table["day_id"] = days["day_id"]
    old = np.arange(90) < 50
    first = write(tmp_path / "first", matches=rows(table, old), days=rows(days, old))
    convert_graph(first, tmp_path / "graph", period="year")
    later = write(tmp_path / "later", matches=rows(table, ~old))
    sentence = r"the times of matches\.csv are those of days\.csv, but some of its rows belong to"
    with pytest.raises(ig.InputError, match=sentence):
        ig.update(tmp_path / "graph", later)
    grown = ig.update(tmp_path / "graph", write(later, days=rows(days, ~old)))
    check_same(grown, ig.load(write(tmp_path / "all", matches=table, days=days), period="year"))


def test_rows_that_refer_to_rows_without_a_time(tmp_path):
    """A delivery of an item of an order from an old store comes with the order."""
    place = np.arange(90)
    old = place < 50
    tables = {
        "orders": {
            "order_id": place,
            "date": matches(np.random.default_rng(0))["date"],
            "label": np.where(place % 3, "fast", "slow"),
        },
        "items": {"item_id": place, "order_id": place, "price": place % 7},
        "deliveries": {"delivery_id": place, "item_id": place, "store_id": place % 4},
    }
    stores = {"store_id": range(4), "date": ["2018-01-01"] * 4}

    def part(name, mask, **others):
        chosen = {table: rows(columns, mask) for table, columns in tables.items()}
        return write(tmp_path / name, **chosen, **others)

    whole = ig.load(part("all", old | ~old, stores=stores), period="year")
    assert np.array_equal(whole.nodes["delivery"].time, whole.time)
    convert_graph(part("first", old, stores=stores), tmp_path / "graph", period="year")
    check_same(ig.update(tmp_path / "graph", part("new", ~old)), whole)


@pytest.mark.parametrize("borders", [(NUM_OLD,), (NUM_OLD, 151, 160, 199), (60, 100)])
def test_updates_give_the_graph_of_all_tables(tmp_path, tables, borders):
    graph, folders, whole = saved_and_new(tmp_path, tables, borders)
    for folder in folders:
        grown = ig.update(graph, folder)
    check_same(grown, whole)
    assert graph_digest(ig.load(graph, verify=True)) == graph_digest(grown)
    assert [entry.name for entry in tmp_path.glob("graph*")] == ["graph"]


@pytest.mark.parametrize(("model", "method"), [("linear", "pmp+labels"), ("trees", "center")])
def test_predictions_are_those_of_the_graph_of_all_tables(tmp_path, tables, model, method):
    graph, (folder,), whole = saved_and_new(tmp_path, tables)
    pipeline = Pipeline(model, method, cutoff="2019", epochs=5).fit(ig.load(graph))
    grown = ig.update(graph, folder)
    ids = whole.ids[whole.time >= 2019]
    expected = pipeline.predict_proba(whole, nodes=ids)
    np.testing.assert_allclose(pipeline.predict_proba(grown, nodes=ids), expected, atol=1e-5)
    everything = pipeline.predict_proba(grown)[
        np.searchsorted(pipeline.targets(grown), positions_of(grown, ids))
    ]
    np.testing.assert_allclose(everything, expected, atol=1e-5)


def test_large_arrays_are_not_written_again(tmp_path, tables):
    graph, folders, _ = saved_and_new(tmp_path, tables, (NUM_OLD, 190, 195))
    ig.update(graph, folders[0])
    before = {file: file.stat().st_ino for file in graph.rglob("*.npy")}
    mapped = ig.load(graph)
    digest = graph_digest(mapped)
    ig.update(graph, folders[1])
    assert {file: file.stat().st_ino for file in graph.rglob("*.npy")} == before
    assert graph_digest(mapped) == digest  # readers of the old graph are not affected
    assert (graph / "nodes" / "0-node" / "columns-2.arrow").is_file()


def test_edges_are_grouped_by_node_again_when_many_are_new(tmp_path, tables):
    graph, folders, _ = saved_and_new(tmp_path, tables, (NUM_OLD, 152, 190))
    counts = []
    for folder in folders:
        grown = ig.update(graph, folder)
        counts.append(grown.edges_at(next(iter(grown.relations)), 1).csr.num_edges)
        for end in (0, 1):
            edges = grown.edges_at(next(iter(grown.relations)), end)
            nodes = np.array([0, 3, grown.num_nodes - 1])
            expected = np.flatnonzero(np.isin(grown.edge_index[end], nodes))
            assert sorted(edges.at(nodes).tolist()) == expected.tolist()
    assert counts[0] < counts[1] == counts[2] < grown.edge_index.shape[1]
    names = {file.name for file in graph.rglob("source_*.npy")}
    assert names == {"source_borders-1.npy", "source_edges-1.npy"}


def test_a_graph_that_was_updated_can_be_replaced(tmp_path, tables):
    graph, folders, whole = saved_and_new(tmp_path, tables, (NUM_OLD, 152, 190))
    for folder in folders:
        ig.update(graph, folder)
    whole.save(graph)
    assert graph_digest(ig.load(graph)) == graph_digest(whole)


@pytest.mark.parametrize("step", ["append_rows", "flush", "write_json"])
@pytest.mark.parametrize("calls", [0, 1, 3])
def test_a_killed_update_leaves_the_old_graph(tmp_path, tables, monkeypatch, step, calls):
    graph, folders, whole = saved_and_new(tmp_path, tables, (NUM_OLD, 170))
    digest = graph_digest(ig.update(graph, folders[0]))
    work = getattr(_files, step)
    counter = iter(range(100))

    def killed(*arguments, **options):
        if next(counter) == calls:
            raise KeyboardInterrupt
        return work(*arguments, **options)

    monkeypatch.setattr(_files, step, killed)
    try:
        ig.update(graph, folders[1])
        was_killed = False
    except KeyboardInterrupt:
        was_killed = True
    monkeypatch.undo()
    assert was_killed or step != "append_rows"
    if was_killed:
        assert graph_digest(ig.load(graph, verify=True)) == digest
        check_same(ig.update(graph, folders[1]), whole)


def test_longer_ids_and_new_classes(tmp_path, tables):
    graph, _, _ = saved_and_new(tmp_path, tables)
    old = ig.load(graph)
    new = rows(tables[0], np.arange(NUM_PAPERS) == 180) | {"id": ["a longer id"], "label": ["cow"]}
    link = {"source": ["a longer id"], "target": ["p000"], "weight": [1], "time": ["2019-05-01"]}
    grown = ig.update(graph, write(tmp_path / "new", nodes=new, edges=link))
    assert grown.ids[-1] == "a longer id"
    assert grown.label_names == (*old.label_names, "cow")
    assert grown.y[-1] == 2
    assert grown.edge_index[:, -1].tolist() == [NUM_OLD, 0]
    ig.load(graph, verify=True)


def test_unlabelled_nodes_need_no_column_of_labels(tmp_path, tables):
    graph, (folder,), _ = saved_and_new(tmp_path, tables)
    nodes, edges = list(split_tables(*tables, (NUM_OLD,)))[1]
    del nodes["label"]
    grown = ig.update(graph, write(folder, nodes=nodes, edges=edges))
    assert (grown.y[NUM_OLD:] == -1).all()
    assert grown.num_nodes == NUM_PAPERS


def test_roles_are_those_of_the_first_tables(tmp_path):
    """Names that cannot be guessed, labels that mean unknown, and no label in the new table."""
    (tmp_path / "first").mkdir()
    names = {"id": "p", "date": "q", "label": "r", "score": "score"}
    nodes, edges = papers(np.random.default_rng(1))
    renamed = {new: nodes[old] for old, new in names.items()}
    renamed["r"] = [7, 7, *np.where(np.array(nodes["label"]) == "ant", 1, 2)[2:]]
    links = {"from_p": edges["source"], "to_p": edges["target"]}
    toml = """target = "paper"
[nodes.paper]
file = "stuff.csv"
id = "p"
time = "q"
label = "r"
unknown = [7]
[edges.cites]
file = "links.csv"
source = "from_p"
source_type = "paper"
target = "to_p"
target_type = "paper"
"""
    (tmp_path / "first" / "graph.toml").write_text(toml)
    write(tmp_path / "first", stuff=renamed, links=links)
    convert_graph(tmp_path / "first", tmp_path / "graph", period="year")
    late = {"p": ["z1"], "q": ["2020-12-31"], "score": [0.5]}
    grown = ig.update(tmp_path / "graph", write(tmp_path / "new", stuff=late))
    assert grown.ids[-1] == "z1"
    assert grown.y[[0, 1, -1]].tolist() == [-1, -1, -1]
    more = write(tmp_path / "more", links={"from_p": ["z1"], "to_p": ["p000"]})
    assert ig.update(tmp_path / "graph", more).edge_index[:, -1].tolist() == [NUM_PAPERS, 0]
    (tmp_path / "none").mkdir()
    with pytest.raises(ig.InputError, match=r"has none of the tables stuff.csv, links.csv; pass"):
        ig.update(tmp_path / "graph", tmp_path / "none")
    bad = write(tmp_path / "bad", links={"from_p": ["z1"], "towards": ["p000"]})
    with pytest.raises(ig.InputError, match=r"links.csv has no column 'to_p', the target of an"):
        ig.update(tmp_path / "graph", bad)


def test_edges_alone_and_nodes_alone(tmp_path, tables):
    graph, _, _ = saved_and_new(tmp_path, tables)
    nodes, edges = tables
    link = {"source": ["p009"], "target": ["p003"], "weight": [0.5], "time": ["2016-01-01"]}
    empty = write(tmp_path / "edges-only", nodes=dict.fromkeys(nodes, ()), edges=link)
    assert ig.update(graph, empty).edge_index[:, -1].tolist() == [9, 3]
    new = rows(nodes, np.arange(NUM_PAPERS) == 180)
    alone = write(tmp_path / "nodes-only", nodes=new, edges=dict.fromkeys(edges, ()))
    assert ig.update(graph, alone).num_nodes == NUM_OLD + 1


def test_several_types(tmp_path):
    rng = np.random.default_rng(0)
    papers_table = {
        "id": np.arange(100),
        "date": [f"{2014 + k * 7 // 100}-01-02" for k in range(100)],
        "label": rng.choice(["a", "b"], 100),
        "words": rng.normal(size=100).round(3),
    }
    authors = {"id": [f"a{k}" for k in range(30)], "age": rng.integers(20, 60, 30)}
    writes = {"author": [f"a{k}" for k in np.arange(100) * 30 // 100], "paper": np.arange(100)}

    def folder(name, low, high):
        place = np.arange(100)
        recent = np.arange(30)
        return write(
            tmp_path / name,
            papers=rows(papers_table, (place >= low) & (place < high)),
            authors=rows(authors, (recent >= low * 0.3) & (recent < high * 0.3)),
            writes=rows(writes, (place >= low) & (place < high)),
        )

    convert_graph(folder("first", 0, 80), tmp_path / "graph", period="year")
    grown = ig.update(tmp_path / "graph", folder("new", 80, 100))
    whole = ig.load(folder("all", 0, 100), period="year")
    assert edges_of(grown) == edges_of(whole)
    for kind in ("paper", "author"):
        assert sorted(grown.nodes[kind].ids) == sorted(whole.nodes[kind].ids)
    pipeline = Pipeline("linear", "labels", cutoff="2019", epochs=3).fit(whole)
    ids = whole.ids[whole.time >= 2019]
    np.testing.assert_allclose(
        pipeline.predict_proba(grown, nodes=ids), pipeline.predict_proba(whole), atol=1e-5
    )


def test_a_matrix_of_features(tmp_path):
    graph = ig.tsbm(num_nodes=100, num_times=5, num_labels=2, num_features=3, seed=0)
    graph.save(tmp_path / "graph")
    nodes = {"time": [4, 5], "label": [1, ""]}
    new = write(tmp_path / "new", nodes=nodes, edges={"source": [], "target": []})
    np.save(new / "features.npy", np.array([[1, 2, 3], [4, 5, 6]], np.float32))
    grown = ig.update(tmp_path / "graph", new)
    assert grown.x[-1].tolist() == [4, 5, 6]
    assert grown.x.dtype == graph.x.dtype
    assert grown.time[-2:].tolist() == [4, 5]
    assert grown.y[-2:].tolist() == [1, -1]
    # Row 0 may be the first of the saved nodes, or of the new ones.
    write(new, edges={"source": [0], "target": [1]})
    with pytest.raises(ig.InputError, match=r"edges\.csv numbers rows of type 'node', which"):
        ig.update(tmp_path / "graph", new)


def numbered(tmp_path, ids):
    """A saved graph whose nodes have these ids, and a function that updates it."""
    num_nodes = len(ids)
    ig.TemporalGraph(
        time=np.arange(num_nodes) * 3 // num_nodes, edge_index=[[0], [1]], ids=ids
    ).save(tmp_path / "graph")

    def update(new_ids, source, target):
        new = write(
            tmp_path / f"new-{source[0]}",
            nodes={"id": new_ids, "time": [3] * len(new_ids)},
            edges={"source": source, "target": target},
        )
        return ig.update(tmp_path / "graph", new)

    return update


@pytest.mark.parametrize(
    ("dtype", "ids"),
    [
        ("int8", np.arange(-100, 101)),
        ("uint8", np.arange(1, 256)),
        ("int16", [-30000, 0, 30000]),
        ("uint64", [2**63, 2**63 + 1]),
    ],
)
def test_narrow_ids_are_joined_to_their_own_nodes(tmp_path, dtype, ids):
    ids = np.array(ids, dtype)
    grown = numbered(tmp_path, ids)([70_000], [70_000] * len(ids), ids)
    assert grown.ids.tolist() == [*ids.tolist(), 70_000]
    assert grown.edge_index[:, 1:].tolist() == [[len(ids)] * len(ids), [*range(len(ids))]]
    ig.load(tmp_path / "graph", verify=True)


def test_a_type_without_nodes_has_no_ids():
    assert Ids(pa.array([], pa.int64())).find(pa.array([7])).tolist() == [-1]


@pytest.mark.parametrize(
    "ids",
    [
        np.array([1.0, 2.0]),
        np.array([True, False]),
        np.array(["2020-01-01", "2020-01-02"], "M8[D]"),
    ],
)
def test_ids_that_rows_cannot_name_are_refused(tmp_path, ids):
    with pytest.raises(ig.InputError, match=r"the saved ids of nodes\.csv are .*; save the"):
        numbered(tmp_path, ids)([], [1], [2])


def change(name, value):
    """A change of the new tables: a column of nodes or edges is replaced, or removed."""

    def changed(nodes, edges):
        table, column = name.split(".")
        part = {"nodes": nodes, "edges": edges}[table]
        part[column] = [value] * len(next(iter(part.values())))
        if value is None:
            del part[column]

    return changed


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        (
            change("nodes.venue", None),
            "nodes.csv lacks the columns venue; the features of the graph",
        ),
        (
            change("nodes.extra", 1),
            "nodes.csv has unknown columns extra; the features of the graph",
        ),
        (change("nodes.date", "soon"), "column 'date' of nodes.csv"),
        (change("nodes.date", 7), "the times are numbers, but the periods are of dates"),
        (change("nodes.id", "p190"), "column 'id' of nodes.csv has 49 duplicate ids, first p190"),
        (change("edges.weight", None), "edges.csv has no column 'weight', the weight of an edge"),
        (change("edges.time", None), "edges.csv has no column 'time', the time of an edge; add it"),
        (change("edges.target", "p999"), "whose target is not in nodes.csv, first 'p999'"),
        (
            lambda nodes, edges: nodes.update(id=["p003", *nodes["id"][1:]]),
            "1 ids of nodes.csv are in the graph already, such as 'p003'; pass new nodes only",
        ),
    ],
)
def test_tables_that_do_not_fit_are_refused(tmp_path, tables, changed, sentence):
    graph, _, _ = saved_and_new(tmp_path, tables)
    digest = graph_digest(ig.load(graph))
    nodes, edges = list(split_tables(*tables, (NUM_OLD,)))[1]
    changed(nodes, edges)
    folder = write(tmp_path / "bad", nodes=nodes, edges=edges)
    with pytest.raises(ig.InputError, match=sentence):
        ig.update(graph, folder)
    assert graph_digest(ig.load(graph, verify=True)) == digest


def set_first(name, value):
    """A change of the new tables: the first entry of a column of nodes is replaced."""
    return lambda nodes, _: nodes.update({name: [value, *nodes[name][1:]]})


def many_times(nodes, _):
    days = np.datetime64("2021-01-01") + np.arange(1100)
    nodes.update({name: [values[0]] * len(days) for name, values in nodes.items()})
    nodes.update(id=[f"q{k}" for k in range(len(days))], date=days)


@pytest.mark.parametrize(
    ("period", "changed", "sentence"),
    [
        ("year", set_first("id", "a\0longer id"), "node.ids contains text with a NUL"),
        ("year", set_first("label", "q\0w"), "label_names contains text with a NUL"),
        ("day", many_times, "node.time has 1,1.. distinct values for 1,250 nodes"),
        (
            "year",
            set_first("pages", 2.5),
            r"column 'pages' of nodes.csv has type double, but int64",
        ),
    ],
)
def test_a_refused_update_changes_nothing(tmp_path, tables, period, changed, sentence):
    (nodes, edges), (new_nodes, new_edges) = split_tables(*tables, (NUM_OLD,))
    nodes["pages"] = 2**53 + 1 + np.arange(NUM_OLD)
    changed(new_nodes, new_edges)
    convert_graph(
        write(tmp_path / "first", nodes=nodes, edges=edges), tmp_path / "graph", period=period
    )
    digest = graph_digest(ig.load(tmp_path / "graph"))
    files = {*tmp_path.glob("graph/**/*")}
    empty = write(tmp_path / "new", nodes=new_nodes, edges=dict.fromkeys(new_edges, ()))
    with pytest.raises(ig.InputError, match=sentence):
        ig.update(tmp_path / "graph", empty)
    assert {*tmp_path.glob("graph/**/*")} == files
    assert graph_digest(ig.load(tmp_path / "graph", verify=True)) == digest
    ig.load(tmp_path / "graph").save(tmp_path / "graph")


@pytest.mark.parametrize(
    ("features", "sentence"),
    [
        (np.zeros((3, 3)), "node.x has 103 rows for 102 nodes"),
        (np.full((2, 3), 1e300), "node.x contains 6 NaN or infinite values"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow")
def test_a_refused_matrix_changes_nothing(tmp_path, features, sentence):
    graph = ig.tsbm(num_nodes=100, num_times=5, num_labels=2, num_features=3, seed=0)
    graph.save(tmp_path / "graph")
    digest = graph_digest(ig.load(tmp_path / "graph"))
    new = write(tmp_path / "new", nodes={"time": [4, 5]}, edges={"source": [], "target": []})
    np.save(new / "features.npy", features)
    with pytest.raises(ig.InputError, match=sentence):
        ig.update(tmp_path / "graph", new)
    assert graph_digest(ig.load(tmp_path / "graph", verify=True)) == digest


def test_what_cannot_be_updated(tmp_path, tables):
    graph, (folder,), _ = saved_and_new(tmp_path, tables)
    with pytest.raises(ig.InputError, match="new-0 is not a saved graph; create one with impact"):
        ig.update(folder, folder)
    with pytest.raises(ig.InputError, match="is not a folder of tables; pass one with the new"):
        ig.update(graph, graph)
    ig.load(graph).masked("2017").save(tmp_path / "view")
    with pytest.raises(ig.InputError, match="is saved with labels masked from 2017 on"):
        ig.update(tmp_path / "view", folder)


def test_numbers_that_are_words_or_fractions(tmp_path, tables):
    """As in the tables of a graph: words in a column of numbers are missing values."""
    graph, _, _ = saved_and_new(tmp_path, tables)
    nodes, edges = list(split_tables(*tables, (NUM_OLD,)))[1]
    nodes["pages"] = [2.5, "many", *nodes["pages"][2:]]
    grown = ig.update(graph, write(tmp_path / "new", nodes=nodes, edges=edges))
    pages = grown.nodes["node"].columns.table.column("pages").to_pylist()
    assert pages[NUM_OLD : NUM_OLD + 2] == [2.5, None]
    assert pages[:3] == tables[0]["pages"][:3].tolist()


def update_column(tmp_path, saved, new, **options):
    """Save a graph whose nodes have a further column, update it, and return the column."""
    nodes = {
        "id": [*range(len(saved))],
        "time": np.arange(len(saved)) % 3 + 2015,
        "label": np.arange(len(saved)) // 3 % 2,
        "extra": saved,
    }
    edges = {"source": [0], "target": [1]}
    first = write(tmp_path / "first", nodes=nodes, edges=edges)
    (first / "graph.toml").write_text(
        '[nodes.node]\nfile = "nodes.csv"\nid = "id"\ntime = "time"\nlabel = "label"\n'
        f"[nodes.node.columns]\nextra = '{options['kind']}'\n"
        '[edges.to]\nfile = "edges.csv"\nsource = "source"\ntarget = "target"\n'
    )
    convert_graph(first, tmp_path / "graph")
    numbers = [1000 + k for k in range(len(new))]
    late = {"id": numbers, "time": [2018] * len(new), "extra": new}
    if options.get("parquet"):
        (tmp_path / "new").mkdir()
        pq.write_table(pa.table(late), tmp_path / "new" / "nodes.parquet")
    else:
        write(tmp_path / "new", nodes=late)
    grown = ig.update(tmp_path / "graph", tmp_path / "new")
    return grown.nodes["node"].columns.table.column("extra").to_pylist()[len(saved) :]


@pytest.mark.parametrize(
    "values",
    [
        ["2020-01-01", "2020-02-01"],
        ["2020-01-01 10:00:00", "2020-02-01 11:00:00"],
        ["1.50", "2.00"],
        ["True", "FALSE"],
        ["+1", "+2"],
        ["-0", "0"],
        ["007", "8"],
        ["1", "2"],
    ],
)
def test_categories_are_read_as_written(tmp_path, values):
    assert update_column(tmp_path, [*values, "unknown"] * 6, values, kind="category") == values
    # A table alone, as a model reads it, has the same values.
    alone = write(
        tmp_path / "alone",
        nodes={"id": [0, 1], "time": [2015, 2018], "label": [0, ""], "extra": values},
        edges={"source": [0], "target": [1]},
    )
    column = ig.load(alone, roles=tmp_path / "first" / "graph.toml").nodes["node"].columns.table
    assert list(map(str, column.column("extra").to_pylist())) == values


def test_dates_of_a_parquet_file_are_the_categories_of_a_csv(tmp_path):
    days = ["2020-01-01", "2020-02-01"]
    new = np.array(days, "M8[us]")
    assert update_column(tmp_path, [*days, "?"] * 6, new, kind="category", parquet=True) == days


def test_the_decimal_mark_is_not_guessed_from_new_rows(tmp_path):
    with pytest.raises(ig.InputError, match=r"'extra' of nodes\.csv has '1,234', which may be a"):
        update_column(tmp_path, [0.5, 1.5, "?"] * 6, ["1,234", "2,500"], kind="number")


def test_a_decimal_comma_that_cannot_be_another_mark(tmp_path):
    column = update_column(tmp_path, ["0,5", "1,5", "?"] * 6, ["1,234", "2,5"], kind="number")
    assert column == [1.234, 2.5]


def test_the_command(tmp_path, tables):
    graph, (folder,), _ = saved_and_new(tmp_path, tables)
    done = CliRunner().invoke(app, ["update", str(graph), str(folder)])
    assert done.exit_code == 0, done.output
    assert f"is now TemporalGraph({NUM_PAPERS} nodes, {NUM_LINKS} edges" in done.stdout
    again = CliRunner().invoke(app, ["update", str(graph), str(folder)])
    assert again.exit_code == 2
    assert "are in the graph already" in again.stderr
