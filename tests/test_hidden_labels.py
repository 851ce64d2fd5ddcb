"""Labels of targets change no byte of any command's output, except measured costs."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

import impact_gnn as ig
from commands import here
from impact_gnn._codec import encode
from impact_gnn.audit import scrambled
from impact_gnn.estimators import MODELS, Pipeline, reads_graph
from reproduction.embedding import with_spectral_embedding
from reproduction.hetero_tsbm import hetero_tsbm

CUTOFF = 6
NAMES = ["m-early", "p-usual", "r-late"]
SIZES = {"num_times": 8, "num_labels": 2, "num_features": 3, "seed": 0}
LINKS = {"citations": 900, "writes": 500, "topics": 600, "affiliations": 130}


def graph_of(kind):
    """A small graph.

    Class 2 occurs in the last labelled period only, after the cutoff of every fold but the last.
    """
    if kind == "hetero":
        g = hetero_tsbm(
            num_papers=320, num_authors=120, num_fields=20, num_institutions=6, **LINKS, **SIZES
        )
    else:
        g = ig.tsbm(num_nodes=320, mean_degree=8, **SIZES)
    late = (g.time == CUTOFF - 1) & (np.arange(g.num_nodes) % 3 == 0)
    return with_labels(g, np.where(late, 2, g.y))


def with_labels(g, y):
    """The same graph with labels that may be of classes that it did not have."""
    nodes = {
        kind: replace(part, y=y) if kind == g.target else part for kind, part in g.nodes.items()
    }
    out = g.with_parts(nodes, dict(g.relations))
    out.__dict__.update(num_labels=int(y.max()) + 1)
    return out


def other_labels(g):
    """Targets carry other labels, some of them of a class without other nodes."""
    odd = (g.time >= CUTOFF) & (np.arange(g.num_nodes) % 4 == 0)
    return with_labels(g, np.where(odd, 3, scrambled(g, CUTOFF).y))


def as_tables(g, where, names=NAMES):
    where.mkdir()
    rows = [
        f"{i},{t},{names[g.y[i]]},{','.join(f'{v:.3f}' for v in g.x[i])}"
        for i, t in enumerate(g.time)
    ]
    (where / "nodes.csv").write_text("\n".join(["id,time,label,a,b,c", *rows]))
    (where / "edges.csv").write_text(
        "\n".join(["source,target", *(f"{a},{b}" for a, b in g.edge_index.T)])
    )


TRIED = ["--candidates", "plain,labels+smooth", "--model", "linear", "--folds", "2"]


def outputs(where, *commands):
    """All that commands print and write about the graph in `where`, by name.

    Costs are taken out.
    """
    graph, out, at = where / "graph", where / "out", ["--cutoff", CUTOFF]
    asked = {
        "run": ["run", graph, "--out", out, *at, *TRIED, "--seeds", "1"],
        "predict": ["predict", out / "model", graph, "--out", where / "later.csv"],
        "report": ["report", out],
        "diagnose": ["diagnose", graph, *at],
        "backtest": ["backtest", graph, *at, *TRIED],
        "check": ["check", graph, *at],
    }
    contents = {}
    for name in commands:
        done = here(*asked[name], *([] if name == "report" else ["--json", where / f"{name}.json"]))
        assert done.exit_code == 0, done.output
        contents[f"{name} printed"] = done.output.encode()
    files = [file for file in sorted(where.rglob("*")) if file.is_file()]
    files = [file for file in files if not {"work", "graph"} & set(file.relative_to(where).parts)]
    contents |= {str(file.relative_to(where)): file.read_bytes() for file in files}
    return {
        name: without_cost(content.replace(str(where).encode(), b""))
        for name, content in contents.items()
    }


def without_cost(content):
    content = re.sub(rb'"(seconds|peak_memory_bytes)": [0-9.e+]+', b"", content)
    return re.sub(rb"\b[0-9.]+ (s|kB|MB|GB)\b|\b[0-9]+ min [0-9]+ s\b", b"", content)


def assert_same(results):
    assert results[0].keys() == results[1].keys()
    assert [name for name in results[0] if results[0][name] != results[1][name]] == []


LEARNING = ("run", "predict", "report", "diagnose", "backtest")


@pytest.mark.parametrize(("kind", "commands"), [("one type", LEARNING), ("hetero", LEARNING[:2])])
def test_no_command_depends_on_labels_of_targets(kind, commands, tmp_path):
    g, results = graph_of(kind), []
    for name, each in {"0": g, "1": other_labels(g)}.items():
        each.save(tmp_path / name / "graph")
        results.append(outputs(tmp_path / name, *commands))
    assert {
        "out/predictions.csv",
        "out/summary.json",
        "out/report.html",
        "out/model/ensemble.json",
    } <= results[0].keys()
    assert_same(results)


def test_a_check_says_what_is_there_and_nothing_about_who_has_it(tmp_path):
    g, results = graph_of("one type"), []
    for name, each in {"0": g, "1": scrambled(g, CUTOFF)}.items():
        each.save(tmp_path / name / "graph")
        results.append(outputs(tmp_path / name, "check"))
    assert_same(results)


def test_names_of_hidden_classes_are_nowhere(tmp_path):
    """In tables classes are known by their names.

    New ones sort first, between the others and last.
    """
    g, results = graph_of("one type"), []
    new = np.flatnonzero(g.time >= CUTOFF)[::4]
    y = np.array(scrambled(g, CUTOFF).y)
    y[new] = 3 + np.arange(len(new)) % 3
    for name, each in {"0": g, "1": with_labels(g, y)}.items():
        (tmp_path / name).mkdir()
        as_tables(each, tmp_path / name / "graph", [*NAMES, "a-new", "n-new", "z-new"])
        results.append(outputs(tmp_path / name, "run", "predict"))
    assert_same(results)
    assert b"-new" not in b"".join(results[1].values())
    assert b"r-late" in results[1]["out/predictions.csv"]


PARTS = {
    "one type": [
        "mmp+center+labels",
        "pmp+jjnorm+recency",
        "genpmp+standardize+smooth",
        "pny+degrees+history",
        "pmp-definition+snapshot+labels",
        "features+curriculum",
        "gsmp+labels+kmm",
        "stamp+shift+smooth",
        "vrex+bbse",
    ],
    "hetero": [
        "pmp+ends+labels",
        "genpmp+center+smooth",
        "snapshot+recency+degrees+history",
        "window+labels",
        "stamp+labels+kmm",
        "bbse+gsmp",
    ],
}
FITS = [("one type", model, "plain") for model in MODELS]
FITS += [("hetero", model, "plain") for model in MODELS if not reads_graph(model)]
FITS += [(kind, "linear", method) for kind, methods in PARTS.items() for method in methods]
FITS += [
    ("one type", "sign", "cmd+vrex+kmm"),
    ("hetero", "sehgnn", "cmd+kmm"),
    ("one type", "trees", "kmm+shift"),
]
FITS += [("one type", "gcn", "eerm+gsmp"), ("one type", "sage", "eerm+cmd+vrex+kmm")]


@pytest.mark.parametrize(("kind", "model", "method"), FITS)
def test_no_fit_depends_on_labels_of_targets(kind, model, method, tmp_path):
    g, results = graph_of(kind), []
    for name, each in {"0": g, "1": other_labels(g)}.items():
        pipeline = Pipeline(model, method, cutoff=CUTOFF, hidden=4, epochs=2, device="cpu").fit(
            each
        )
        pipeline.save(tmp_path / name)
        files = {file.name: file.read_bytes() for file in (tmp_path / name).iterdir()}
        results.append((pipeline.predict_proba(each).tobytes(), files))
    assert results[0] == results[1]


def test_a_hidden_word_among_numbers_changes_no_order():
    """A column of numbers is text once a target has a word in it; classes stay in their order."""
    g, results = graph_of("one type"), []
    past = [["2", "10", "9"][k] for k in g.y]
    for hidden in ("2", "x"):
        label = [hidden if t >= CUTOFF else one for one, t in zip(past, g.time, strict=True)]
        label = label if hidden == "x" else [int(one) for one in label]
        nodes = {
            "id": range(g.num_nodes),
            "time": g.time,
            "label": label,
            "a": g.x[:, 0],
            "b": g.x[:, 1],
        }
        edges = {"source": g.edge_index[0], "target": g.edge_index[1]}
        pipeline = Pipeline("sign", "labels", cutoff=CUTOFF, hidden=4, epochs=2).fit(
            graph := ig.from_tables(nodes, edges)
        )
        results.append(
            (
                pipeline.predict_proba(graph).tolist(),
                [str(name) for name in pipeline.fitted.schema.label_names],
            )
        )
    assert results[0] == results[1]
    assert results[0][1] == ["2", "9", "10"]


def test_predictions_are_numbered_as_in_the_graph():
    """Only targets are of class "b".

    The fit knows "a" and "c", whose numbers in the graph stay 0 and 2.
    """
    g = ig.tsbm(num_nodes=200, num_times=6, num_labels=2, feature_std=0.1, seed=0)
    y = np.where((g.time == 5) & (np.arange(200) % 5 == 0), 1, 2 * g.y)
    g = ig.TemporalGraph(
        x=g.x, y=y, time=g.time, edge_index=g.edge_index, label_names=["a", "b", "c"]
    )
    p = Pipeline("linear", "features", cutoff=5, epochs=50).fit(g)
    predicted, truth = p.predict(g), y[g.time == 5]
    assert set(predicted) == {0, 2}
    with pytest.warns(UserWarning, match="they count as errors"):
        assert (predicted == truth).mean() == pytest.approx(p.score(g))
    assert (predicted == truth)[truth != 1].mean() > 0.9


# -- features, rows and types after a fold

FOLD = 4  # cutoff of an older fold
RNG = 7


def author_tables():
    """Papers with a column of every kind, and authors without a time.

    Every third author is new from FOLD on.
    """
    rng = np.random.default_rng(RNG)
    size, authors = 240, 60
    time = np.sort(rng.integers(0, 8, size))
    label = rng.integers(0, 2, size)
    papers = {
        "id": [f"p{i:03d}" for i in range(size)],
        "time": time,
        "label": [["x", "y"][k] for k in label],
        "pages": (rng.integers(5, 30, size) + 10 * label).tolist(),
        "venue": rng.choice(["A", "B", "C"], size).tolist(),
        "title": [" ".join(rng.choice(["graph", "time", "label", "tree", "sea"], 5)) for _ in time],
        "sent": [f"20{10 + t}-0{1 + k}-01" for t, k in zip(time, label, strict=True)],
        "vector": [row.tolist() for row in rng.normal(label[:, None], 1, (size, 2))],
    }
    old = np.arange(authors) % 3 > 0
    writer = np.where(
        time < FOLD, rng.choice(np.flatnonzero(old), size), rng.integers(0, authors, size)
    )
    people = {
        "id": [f"a{i:02d}" for i in range(authors)],
        "age": rng.integers(20, 80, authors).tolist(),
        "country": rng.choice(["de", "fr"], authors).tolist(),
    }
    writes = {"source": [people["id"][k] for k in writer], "target": papers["id"]}
    lives = {"source": people["id"], "target": [f"i{k % 9}" for k in range(authors)]}
    places = {"id": [f"i{k}" for k in range(9)], "size": list(range(9))}
    return {"paper": papers, "author": people, "institute": places}, writes, lives


def graph_of_tables(nodes, writes, lives, **options):
    edges = {
        ("author", "writes", "paper"): writes,
        ("author", "lives", "institute"): lives,
    }
    return ig.from_tables(nodes, edges, target="paper", quiet=True, **options)


def inputs_of_folds(g, model="linear"):
    """Predictions of a fit at an older cutoff for its own window, bit by bit."""
    then = g.upto(FOLD)
    p = Pipeline(model, "labels", cutoff=FOLD, hidden=4, epochs=3, device="cpu")
    return p.fit(then).predict_proba(then).tobytes()


def changed(values, where, new):
    return [new if here else value for value, here in zip(values, where, strict=True)]


def test_nodes_without_a_time_that_come_after_a_fold_do_not_change_it():
    nodes, writes, lives = author_tables()
    time = nodes["paper"]["time"]
    early = {a for a, t in zip(writes["source"], time, strict=True) if t <= FOLD}
    late = [name in set(writes["source"]) - early for name in nodes["author"]["id"]]
    assert 5 < sum(late) < 40
    people = nodes["author"] | {
        "age": changed(nodes["author"]["age"], late, 5000),
        "country": changed(nodes["author"]["country"], late, "uk"),
    }
    first = graph_of_tables(nodes, writes, lives, cutoff=6)
    other = graph_of_tables(nodes | {"author": people}, writes, lives, cutoff=6)
    assert inputs_of_folds(first) == inputs_of_folds(other)


def test_a_spectral_embedding_does_not_depend_on_nodes_that_come_after_the_cutoff():
    nodes, writes, lives = author_tables()
    nodes["author"] = {"id": nodes["author"]["id"]}
    time = nodes["paper"]["time"]
    early = {a for a, t in zip(writes["source"], time, strict=True) if t < FOLD}
    late = [name not in early for name in nodes["author"]["id"]]
    moved = lives | {"target": changed(lives["target"], late, "i0")}
    embedded = [
        with_spectral_embedding(graph_of_tables(nodes, writes, edges, cutoff=6), FOLD)
        for edges in (lives, moved)
    ]
    first, other = (graph.nodes["author"].x[~np.array(late)] for graph in embedded)
    assert first.tobytes() == other.tobytes()


def test_untimed_nodes_are_known_through_edges_that_exist_by_then():
    g = ig.TemporalGraph.hetero(
        nodes={
            "paper": {"time": [0, 1, 2], "y": [0, 1, -1], "x": np.eye(3)},
            "author": {"x": np.array([[1.0], [2.0], [300.0], [4.0]])},
            "institute": {"x": np.array([[1.0], [50.0], [7.0]])},
        },
        edges={
            ("author", "writes", "paper"): {"edge_index": [[0, 1, 2], [0, 1, 2]]},
            ("author", "lives", "institute"): {"edge_index": [[0, 2], [0, 1]]},
            ("author", "knows", "author"): {"edge_index": [[3, 3], [0, 1]], "time": [2, 1]},
        },
        target="paper",
    )
    known = {at: [g.known_before(kind, at) for kind in ("author", "institute")] for at in (1, 2, 3)}
    assert [mask.tolist() for mask in known[1]] == [[1, 0, 0, 0], [1, 0, 0]]
    assert [mask.tolist() for mask in known[2]] == [[1, 1, 0, 1], [1, 0, 0]]
    assert g.upto(1).relations["author", "lives", "institute"].edge_index.tolist() == [[0], [0]]
    assert known[3][0] is None  # all of them
    assert known[3][1].tolist() == [1, 1, 0]  # no edge names the last
    assert g.masked(2).nodes["author"].encoder.parts[0].high[0] < 300


def test_a_type_without_known_nodes_has_no_effect():
    nodes, writes, lives = author_tables()
    there = [a for a, t in zip(writes["source"], nodes["paper"]["time"], strict=True) if t >= 6]
    later = {"source": there, "target": writes["target"][-len(there) :]}
    g = graph_of_tables(nodes, later, lives, cutoff=6)
    view = g.masked(6)
    assert view.nodes["author"].x is None
    columns = g.nodes["author"].columns
    assert columns.kinds == {}
    ages = np.array(nodes["author"]["age"], float)[:, None]
    part = replace(view.nodes["author"], features=ages)
    assert np.array_equal(part.encoded(None).x, ages)  # of a matrix numbers stay as they are


TARGET_VALUES = {
    "pages": "a word",
    "venue": "a long text of many different words which is no category",
    "title": "7",
    "sent": "not yet",
    "vector": [1.0, 2.0, 3.0],
}


@pytest.mark.parametrize("column", TARGET_VALUES)
def test_what_targets_hold_in_a_column_changes_no_kind_and_no_fold(column):
    nodes, writes, lives = author_tables()
    papers = nodes["paper"]
    targets = papers["time"] >= 6
    values = papers[column]
    if not isinstance(TARGET_VALUES[column], list):  # a column of a CSV, which a word makes text
        values = [str(value) for value in values]
    other = papers | {column: changed(values, targets, TARGET_VALUES[column])}
    graphs = [
        graph_of_tables(nodes | {"paper": each}, writes, lives, cutoff=6)
        for each in (papers, other)
    ]
    kinds = [g.nodes["paper"].columns.kinds for g in graphs]
    assert kinds[0] == kinds[1]
    assert list(kinds[0]) == sorted(["pages", "venue", "title", "sent", "vector"])
    assert inputs_of_folds(graphs[0]) == inputs_of_folds(graphs[1])
    p = Pipeline("linear", cutoff=6, epochs=2).fit(graphs[1])
    assert np.isfinite(p.predict_proba(graphs[1])).all()


def test_a_check_says_how_many_later_rows_do_not_fit(tmp_path):
    rows = [f"p{i:02d},{i % 8},{'xy'[i % 2]},{i}" for i in range(80)]
    rows = [
        row + "x" if int(row.split(",")[1]) == 7 and i < 40 else row for i, row in enumerate(rows)
    ]
    (tmp_path / "nodes.csv").write_text("\n".join(["id,time,label,size", *rows]))
    (tmp_path / "edges.csv").write_text("source,target\np01,p02\n")
    done = here("check", tmp_path, "--cutoff", "7")
    assert done.exit_code == 0, done.output
    assert "size: number" in done.output
    output = " ".join(done.output.split())
    assert (
        "column 'size': 5 of 10 rows from 7 on are not numbers; they are read as missing" in output
    )


def with_target_labels(nodes, new):
    """The tables with `new(row)` as the labels of targets."""
    papers = nodes["paper"]
    rows = enumerate(zip(papers["label"], papers["time"], strict=True))
    label = [new(k) if t >= 6 else one for k, (one, t) in rows]
    return nodes | {"paper": papers | {"label": label}}


HIDDEN_LABELS = {
    "scrambled": lambda row: "xy"[row % 2],
    "deleted": lambda row: None,
    "half deleted": lambda row: "x" if row % 2 else None,
    "renamed": lambda row: "another" if row % 3 else "aaa",
}


def test_no_fold_of_several_types_depends_on_labels_of_targets():
    """Labels reach papers through authors without a time.

    The history of an author is that before a cutoff.
    """
    nodes, writes, lives = author_tables()
    results = set()
    for new in HIDDEN_LABELS.values():
        g = graph_of_tables(with_target_labels(nodes, new), writes, lives, cutoff=6)
        p = Pipeline("linear", "labels", cutoff=6, epochs=2, device="cpu")
        backtest = ig.backtest(g, candidates=["labels"], folds=2, pipeline=p, cutoff=6)
        stored = without_cost(json.dumps(encode(backtest)).encode())
        results.add((p.fit(g).predict_proba(g).tobytes(), stored))
    assert len(results) == 1
