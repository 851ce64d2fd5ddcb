"""The paper's studies.

Trained by the library, hidden labels stay hidden, runs resume, differences are paired.
"""

import csv
import json
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest
import torch

import impact_gnn as ig
from commands import words_of
from impact_gnn.checks import InputError
from impact_gnn.estimators import Method
from impact_gnn.nn import GCN, Propagation
from reproduction import __main__ as cli
from reproduction import data, networks, published, revgat_operator, risk, table1, table4
from reproduction.hetero_tsbm import hetero_tsbm
from reproduction.methods import FIGURES
from reproduction.recipes import Decoupled, Linear, Staged, standardized
from reproduction.results import Record, Table, difference, packed
from reproduction.runner import Task, one_thread, work_off
from reproduction.studies import STUDIES
from reproduction.synthetic import (
    COLUMNS,
    PROTOCOLS,
    Column,
    Options,
    Sample,
    alignment,
    chosen,
    draw,
    table3_rows,
)
from reproduction.table2 import Problem, ProblemResult, Study, rows_of, table2
from reproduction.table3 import SyntheticStudy, gain_figure, gamma_rows

NODES = 300
TINY = Options(num_nodes=NODES, epochs=3)
FEW = ("plain", "pmp", "pmp+jjnorm", "label-hop")
CUTOFF = 4


@pytest.fixture(autouse=True)
def _single_thread():
    """Matrices are tiny; threads would only wait for each other."""
    with one_thread():
        yield


def sample(protocol="released", model="sgc", seed=1, nodes=NODES):
    return draw(PROTOCOLS[protocol], table3_rows(["fixed"], 0.6)[0], model, seed, nodes)


# Training is the library's


@pytest.mark.parametrize("protocol", ["released", "theory"])
@pytest.mark.parametrize("weighting", ["plain", "mmp", "pmp"])
def test_sgc_reads_two_hops_of_the_normalised_matrix(protocol, weighting):
    one, how = sample(protocol), PROTOCOLS[protocol]
    table = ig.weighting.table(weighting, one.view.times, one.view.counts)
    matrix = np.eye(NODES) * how.self_loop
    for source, target in one.view.edge_index.T:
        matrix[target, source] += table[one.view.period[target], one.view.period[source]]
    degree = np.where(matrix.sum(1) > 0, matrix.sum(1), 1)
    matrix = (
        matrix / np.sqrt(np.outer(degree, degree))
        if protocol == "released"
        else matrix / degree[:, None]
    )
    features = networks.sgc_features(one, Column(weighting), how)
    np.testing.assert_allclose(features, matrix @ matrix @ one.graph.x, atol=1e-4)


def test_sgc_aligns_the_last_message_and_joins_the_label_hop():
    one, how = sample("theory"), PROTOCOLS["theory"]
    plain, center, joined = (
        networks.sgc_features(one, Column(n), how) for n in ("plain", "center", "label-hop")
    )
    means = [center.numpy()[one.view.time == t].mean(0) for t in one.view.times]
    np.testing.assert_allclose(means, np.tile(plain.mean(0), (10, 1)), atol=1e-4)
    labels = np.asarray(ig.label_hops(one.view)[0]) * 10
    np.testing.assert_array_equal(joined, np.hstack([plain, labels]))


@pytest.mark.parametrize("name", ["plain", "pmp+jjnorm", "pmp+center+jjnorm"])
def test_without_labels_and_mask_the_gcn_is_the_librarys(name):
    """At the published size."""
    one, column = sample("text", "gcn", nodes=2000), Column(name)
    propagation, x = Propagation.of(one.view, weighting=column.weighting), torch.tensor(one.graph.x)
    ours = networks.JoinedGCN(5, 10, 16, align=alignment(column, one))
    theirs = GCN(5, 10, 16, dropout=0.0, align=alignment(column, one))
    theirs.load_state_dict(ours.state_dict())
    message = ours.messages[0](x, propagation)
    torch.testing.assert_close(
        ours(message, propagation, torch.empty(2000, 0)), theirs(x, propagation)
    )


@pytest.mark.parametrize("model", ["sgc", "gcn"])
def test_columns_begin_alike_and_dropout_leaves_out_the_same_units(model):
    one, how = sample(model=model), PROTOCOLS["released"]
    torch.manual_seed(1)
    first = networks.logits(model, one, Column("plain"), how, TINY)
    torch.manual_seed(2)
    torch.testing.assert_close(
        networks.logits(model, one, Column("plain"), how, TINY), first, rtol=0, atol=0
    )
    other = Sample(one.block_model, one.graph, seed=one.seed + 1)
    assert not torch.equal(networks.logits(model, other, Column("plain"), how, TINY), first)


# Hidden labels stay hidden


@pytest.mark.parametrize("model", ["sgc", "gcn"])
def test_false_answers_change_no_logit_but_the_oracles(model):
    one = sample(model=model)
    false = one.graph.with_labels(np.where(one.view.targets(), (one.graph.y + 1) % 10, one.graph.y))
    changed = set()
    for name in COLUMNS:
        informed, blind = (
            networks.logits(model, each, Column(name), PROTOCOLS["released"], TINY)
            for each in (one, Sample(one.block_model, false, one.seed))
        )
        changed |= set() if torch.equal(informed, blind) else {name}
    assert changed == {"pmp+pny-oracle"}
    assert "oracle" in COLUMNS["pmp+pny-oracle"]


# Runs


def tiny(**changes):
    options = {
        "name": "table3",
        "graphs": 3,
        "rows": table3_rows(["fixed"]),
        "columns": FEW,
        "options": TINY,
        **changes,
    }
    return SyntheticStudy(**options)


def scores(table):
    return [replace(record, seconds=0.0) for record in table.records]


def test_table_is_deterministic_and_paired(tmp_path):
    first, second = (tiny(models=["gcn"]).run(tmp_path / name) for name in "ab")
    assert scores(first) == scores(second)
    section, row = "GCN, released", "fixed γ = 0.55"
    of = {name: np.array([r.score for r in first.by_place[section, row, name]]) for name in FEW}
    for name in FEW:
        cell = first.cells[section, row, name]
        assert (cell.count, cell.mean) == (3, pytest.approx(of[name].mean()))
        assert cell.error == pytest.approx(of[name].std(ddof=1) / 3**0.5)
        if name != "plain":
            gain = of[name] - of["plain"]
            assert cell.gain.value == pytest.approx(gain.mean())
            assert cell.gain.error == pytest.approx(gain.std(ddof=1) / 3**0.5)
    (contrast,) = first.compared
    assert contrast[:2] == ((section, row, "pmp+jjnorm"), "pmp")
    assert contrast[2].value == pytest.approx((of["pmp+jjnorm"] - of["pmp"]).mean())


def test_interrupted_run_goes_on_with_the_same_numbers(tmp_path):
    def stop(done, total, title):
        raise KeyboardInterrupt

    whole = tiny(models=["sgc"]).run(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        tiny(models=["sgc"]).run(tmp_path, progress=stop)
    (part,) = (tmp_path / "parts").iterdir()
    before = part.stat().st_mtime_ns
    steps = []
    assert scores(
        tiny(models=["sgc"]).run(tmp_path, progress=lambda *step: steps.append(step[:2]))
    ) == scores(whole)
    assert steps == [(2, 3), (3, 3)]
    assert part.stat().st_mtime_ns == before
    # Other settings are another study, and leave this one alone.
    tiny(models=["sgc"], options=replace(TINY, epochs=2)).run(tmp_path)
    assert len(list((tmp_path / "parts").iterdir())) == 6
    assert scores(tiny(models=["sgc"]).run(tmp_path)) == scores(whole)


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (
            lambda text: text.replace('"epochs": 3', '"epochs": 7'),
            "belongs to another study; choose a new directory",
        ),
        (lambda text: text[:40], "is damaged; remove it"),
    ],
)
def test_a_part_that_is_not_ours_is_refused(tmp_path, damage, sentence):
    tiny(models=["sgc"], graphs=2).run(tmp_path)
    part = next((tmp_path / "parts").iterdir())
    part.write_text(damage(part.read_text()))
    with pytest.raises(InputError, match=sentence):
        tiny(models=["sgc"], graphs=2).run(tmp_path)


def test_processes_give_what_one_process_gives(tmp_path):
    small = tiny(columns=["plain"], models=["sgc"], graphs=2)
    assert scores(small.run(tmp_path / "two", workers=2)) == scores(small.run(tmp_path / "one"))
    with pytest.raises(InputError, match="workers=0 must be at least 1"):
        small.run(tmp_path, workers=0)


def test_files_are_written(tmp_path):
    table = tiny(rows=table3_rows(["random-zero-diagonal"])).run(tmp_path / "parts")
    files = table.write(tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(
        path.name for path in files
    )
    assert {path.suffix for path in files} == {".csv", ".md"}
    with files[0].open() as file:
        assert len(list(csv.DictReader(file))) == 2 * len(FEW) * 3
    page = files[1].read_text()
    row = "random γ, zero diagonal (as released)"
    assert f"| SGC, released | {row} | plain | 0.1331 |" in page
    assert f"| SGC, released | {row} | pmp+jjnorm over pmp | 0.0008 |" in page
    assert "*ours:* label hop" in page
    ratios = {line[0]: line[2:] for line in table.extras[1].lines}
    assert ratios["plain"] == ["1.00", "1"]
    assert ratios["PMP+JJnorm"][1] == "582"


def test_gamma_figure(tmp_path):
    rows = gamma_rows([0.4, 0.8])
    table = tiny(name="figure-gamma", rows=rows, graphs=2, models=["sgc"]).run(tmp_path)
    assert table.names(1) == ["γ = 0.4", "γ = 0.8"]
    assert not table.published
    gains, over_pmp = gain_figure(table, rows).axes
    assert [line.get_label() for line in gains.containers] == [
        "PMP",
        "PMP+JJnorm",
        "ours: label hop",
    ]
    assert [list(line.lines[0].get_xdata()) for line in over_pmp.containers] == [[0.4, 0.8]]
    assert (gamma_rows()[0].decay, gamma_rows()[-1].decay) == (0.3, 0.85)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"graphs": 1}, "gives no standard error; use at least 2"),
        (
            {"protocols": ["printed"]},
            "protocol='printed' is not valid; choose one of 'released', 'text', 'theory'",
        ),
        ({"models": ["gat"]}, "model='gat' is not valid; choose one of 'sgc', 'gcn'"),
        ({"columns": ["jj"]}, "column='jj' is not valid; choose one of 'plain'"),
    ],
)
def test_table_refuses(tmp_path, change, sentence):
    with pytest.raises(InputError, match=sentence):
        tiny(**change).run(tmp_path)


def test_settings_refuse():
    with pytest.raises(InputError, match="epochs=0 must be at least 1"):
        Options(epochs=0)
    with pytest.raises(InputError, match=r"gammas contains 1\.5; use numbers from 0 to 1"):
        gamma_rows([1.5])
    with pytest.raises(InputError, match="row='all' is not valid"):
        table3_rows(["all"])
    assert chosen(["label-hop"]) == ("plain", "label-hop")


def test_agreement_weighs_both_errors():
    # 2·√(.006² + .05²/200) = .01393; differences of two columns are noisier.
    assert published.allowed_gap(0.006, 0.05) == pytest.approx(0.013928, abs=1e-6)
    assert published.allowed_gap(0.006, 0.05, columns=2) > 0.015
    assert published.allowed_gap(0.0, 0.05) < 0.015


# Differences


def records(column, hits, seeds=(0, 1)):
    return [
        Record(
            "s",
            section="M",
            row="test",
            column=column,
            seed=seed,
            score=float(hits.mean()),
            seconds=1.0,
            hits=packed(hits),
        )
        for seed in seeds
    ]


def test_where_seeds_share_nodes_their_error_is_added():
    rng = np.random.default_rng(0)
    ours, theirs = rng.random(77) < 0.7, rng.random(77) < 0.5
    nodes = ours.astype(float) - theirs
    # the seeds agree, so the nodes' error is all there is
    gap = difference(records("a", ours), records("b", theirs))
    assert gap.value == pytest.approx(nodes.mean())
    assert gap.error == pytest.approx(nodes.std(ddof=1) / 77**0.5)
    assert gap.high - gap.value == pytest.approx(1.96 * gap.error)
    fresh = [replace(record, hits="") for record in records("a", ours)]
    assert difference(fresh, records("b", theirs)).error == 0
    with pytest.raises(InputError, match="'a' and 'b' have different seeds"):
        difference(records("a", ours), records("b", theirs, seeds=(0, 2)))


def test_page_marks_what_leaves_out_zero():
    hits = np.arange(40) % 2 == 0
    table = Table(
        name="t",
        title="T",
        about="About.",
        records=records("plain", hits & False) + records("better", hits),
        titles={"better": "B"},
    )
    assert "| B | 0.5000 ± 0.0000 (**+0.5000** ± " in table.markdown()


# Table 1


def real_graph(nodes=400):
    rng = np.random.default_rng(0)
    return ig.TemporalGraph(
        x=rng.standard_normal((nodes, 6)).astype(np.float32),
        y=rng.integers(-1, 3, nodes),
        time=np.sort(rng.integers(2000, 2010, nodes)),
        edge_index=rng.integers(0, nodes, (2, 5 * nodes)),
    )


@pytest.mark.parametrize("most", [10_000, 50])
def test_both_splits_train_on_equally_many_and_never_on_scored_nodes(most):
    graph = real_graph()
    train, test = table1.rows_of(graph, 2008, 3, most)
    assert (graph.time[test] >= 2008).all()
    assert (graph.time[train["chronological"]] < 2008).all()
    assert (graph.time[train["random"]] >= 2008).any()
    assert len(train["chronological"]) == len(train["random"]) <= most
    for rows in train.values():
        assert len(np.unique(rows)) == len(rows)
        assert not np.isin(rows, test).any()
        assert (graph.y[rows] >= 0).all()


def test_time_embedding_tells_times_apart():
    embedded = table1.time_embedding(np.arange(1950, 2020))
    assert embedded.shape == (70, 20)
    distance = np.abs(embedded[:, None] - embedded[None]).max(2)
    assert distance[~np.eye(70, dtype=bool)].min() > 0.01


def save_archives(root, nodes=120):
    rng = np.random.default_rng(0)
    part = {
        "x": rng.standard_normal((nodes, 4)).astype(np.float16),
        "y": rng.integers(-1, 3, nodes).astype(np.int16),
        "time": rng.integers(2005, 2013, nodes).astype(np.int16),
    }
    ends = rng.integers(0, nodes, (2, 500)).astype(np.int32)
    writes = np.stack([rng.integers(0, 30, 200), rng.integers(0, nodes, 200)]).astype(np.int32)
    for name, arrays in (
        ("aan", {**part, "edge_index": ends, "author_writes": writes, "num_authors": np.int32(30)}),
        (
            "acl_hetero",
            {
                "paper_x": part["x"],
                "paper_y": part["y"],
                "paper_time": part["time"] + 13,
                "author_writes_paper": writes,
                "num_authors": np.int32(30),
            },
        ),
    ):
        (root / name).mkdir()
        np.savez(root / name / f"{name}.npz", **arrays)


def test_table1_runs_on_what_is_there_and_names_what_is_not(tmp_path):
    save_archives(tmp_path)
    model = table1.Model(hidden=4, epochs=2, num_nodes=200)
    table = table1.table1(
        2, tmp_path / "o", names=["tsbm", "aan", "acl_hetero", "scotus"], root=tmp_path, model=model
    )
    assert table.names(1) == ["tsbm", "aan", "acl_hetero"]
    assert table.names(2) == list(published.TABLE1)
    assert (
        f"scotus was skipped: it is not in the folder of real graphs ({tmp_path})."
        in table.markdown()
    )
    assert {column: against for (_, _, column), against, _ in table.compared}[
        "random"
    ] == "chronological"
    assert "0.5682" in table.markdown()
    with pytest.raises(InputError, match="seeds=1 gives no standard error"):
        table1.table1(1, tmp_path)
    with pytest.raises(InputError, match="data='cora' is not valid"):
        table1.table1(2, tmp_path, names=["cora"])
    with pytest.raises(InputError, match="none of twitch exists"):
        table1.table1(2, tmp_path, names=["twitch"])


def test_table1_asks_sehgnn_about_papers_and_authors(tmp_path):
    save_archives(tmp_path)
    model = table1.Model("sehgnn", hidden=4, epochs=2)
    table = table1.table1(
        2, tmp_path / "o", names=["aan", "acl_hetero"], root=tmp_path, model=model
    )
    assert (table.names(0), table.names(1)) == (["SeHGNN"], ["aan", "acl_hetero"])
    graph = data.aan_with_authors("aan", tmp_path).undirected()
    writes = np.zeros((graph.num_nodes, 30))
    np.add.at(writes, tuple(graph.relations["author", "writes", "paper"].edge_index[::-1]), 1)
    there, back = (
        matrix / np.maximum(matrix.sum(1, keepdims=True), 1) for matrix in (writes, writes.T)
    )
    hops = table1.metapaths_of(graph, np.asarray(graph.x))
    # by a common author
    assert any(np.allclose(hop, there @ back @ graph.x, atol=1e-5) for hop in hops)
    with pytest.raises(InputError, match="data='tsbm' is not valid; choose one of 'aan'"):
        table1.table1(2, tmp_path, names=["tsbm"], model=model)


def test_papers_of_common_authors_are_neighbours():
    writes = np.array([[0, 0, 1], [0, 1, 2]])
    graph = ig.TemporalGraph.hetero(
        nodes={
            "paper": {"x": np.eye(3), "y": [0, 1, 0], "time": [0, 1, 2]},
            "author": {"num_nodes": 2},
        },
        edges={("author", "writes", "paper"): writes},
        target="paper",
    ).undirected()
    for hop in table1.hops_of(graph, np.eye(3)):
        np.testing.assert_allclose(hop, [[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0, 1]])


def test_a_damaged_file_is_named(tmp_path):
    (tmp_path / "aan").mkdir()
    (tmp_path / "aan" / "aan.npz").write_bytes(b"no archive")
    with pytest.raises(InputError, match=r"aan\.npz"):
        data.load("aan", tmp_path)
    with pytest.raises(InputError, match=r"aan\.npz cannot be read"):
        data.aan_with_authors("aan", tmp_path)


# Table 2


def papers(seed=0):
    return hetero_tsbm(
        300,
        200,
        20,
        5,
        num_times=5,
        num_labels=3,
        num_features=8,
        citations=2000,
        writes=900,
        topics=600,
        affiliations=200,
        feature_std=1.0,
        seed=seed,
    )


def one_type(seed=0):
    return ig.tsbm(num_nodes=300, num_times=5, num_labels=3, mean_degree=10, decay=0.8, seed=seed)


def study(recipe, methods=("plain", "pmp"), *, graph=papers, fresh=False):
    rows = rows_of("M", recipe, methods)
    return Study(
        "small",
        title="A small one",
        load=lambda root, seed: (graph(seed), CUTOFF),
        rows=rows,
        seeds=2,
        notes=("A note.",),
        fresh=fresh,
    )


ASKED = []


@dataclass(frozen=True)
class Guess:
    """Predicts by the method's name, and records its calls."""

    width: int = 1

    def fit(self, problem, method, seed, place):
        ASKED.append((method, seed))
        assert (problem.view.y[problem.view.time >= CUTOFF] == -1).all()
        return ProblemResult(np.full(len(problem.rows), len(method) % 3), 0.5)


@pytest.mark.parametrize(
    ("graph", "recipe", "methods"),
    [
        (papers, Decoupled("sehgnn", hidden=8, epochs=15), ("pmp+jjnorm", "genpmp+ends")),
        (papers, Decoupled("sehgnn", hidden=8, epochs=15, extras=("labels", "stages")), ("pmp",)),
        (
            papers,
            Decoupled("rphgnn", hops=1, hidden=8, epochs=15, extras=("labels", "curriculum")),
            ("pmp",),
        ),
        (
            one_type,
            Linear(hidden=8, epochs=15, dropout=0.1, lr=0.02),
            ("genpmp", "pmp+center+jjnorm"),
        ),
        (
            one_type,
            Staged(
                hops=2,
                hidden=8,
                num_layers=2,
                stages=2,
                epochs=15,
                batch_size=100,
                lr=0.02,
                memory="1MB",
                threshold=0.5,
                storage=None,
            ),
            ("genpmp",),
        ),
    ],
)
def test_every_recipe_learns_and_cannot_see_the_answers(tmp_path, graph, recipe, methods):
    known = graph()
    truth = Problem.of(known, CUTOFF)
    false = Problem.of(
        known.with_labels(np.where(known.time >= CUTOFF, (known.y + 1) % 3, known.y)), CUTOFF
    )
    assert truth.hits(known.y[truth.rows]).all()
    assert not false.hits(known.y[truth.rows]).any()
    for method in methods:
        informed = recipe.fit(truth, method, 0, tmp_path / "a" / method)
        blind = recipe.fit(false, method, 0, tmp_path / "b" / method)
        assert np.array_equal(informed.predicted, blind.predicted)
        assert truth.hits(informed.predicted).mean() > 0.4
        assert 0 <= informed.valid <= 1


def test_a_stopped_study_goes_on(tmp_path):
    ASKED.clear()
    first = table2(study(Guess()), tmp_path)
    assert sorted(ASKED) == [("plain", 0), ("plain", 1), ("pmp", 0), ("pmp", 1)]
    next((tmp_path / "parts").glob("*pmp*seed_1*")).unlink()
    again = table2(study(Guess()), tmp_path)
    assert ASKED[4:] == [("pmp", 1)]
    assert scores(again) == scores(first)
    table2(study(Guess(width=2), ["plain"]), tmp_path)
    assert len(ASKED) == 7  # other hyper-parameters are another run
    table2(study(Guess(), ["plain"], graph=lambda seed: papers(9)), tmp_path)
    assert len(ASKED) == 9  # and so are other data


@pytest.mark.parametrize("fresh", [False, True])
def test_nodes_count_as_drawn_where_all_seeds_share_a_graph(tmp_path, fresh):
    table = table2(study(Guess(), fresh=fresh), tmp_path)
    gain = table.cells["M", "test", "pmp"].gain
    gaps = [
        a.score - b.score
        for a, b in zip(*(table.by_place["M", "test", m] for m in ("pmp", "plain")), strict=True)
    ]
    assert gain.value == pytest.approx(np.mean(gaps))
    if fresh:
        assert gain.error == pytest.approx(np.std(gaps, ddof=1) / 2**0.5)
    else:
        truth = papers().y[papers().time >= CUTOFF]
        nodes = (truth == len("pmp") % 3).astype(float) - (truth == len("plain") % 3)
        assert gain.error == pytest.approx(nodes.std(ddof=1) / len(nodes) ** 0.5)


def test_studies_compare_with_plain_and_say_what_cannot_be_compared(tmp_path, monkeypatch):
    for each in STUDIES.values():
        for model in {row.model for row in each.rows}:
            assert next(row for row in each.rows if row.model == model).method == "plain"
        for row in each.rows:
            Method.parse("+".join([row.method, *getattr(row.recipe, "extras", ())]))
    assert "cannot be compared" in STUDIES["mag"].notes[0]
    monkeypatch.setattr(published, "TABLE2", {("small", "M"): {"pmp": (0.9, 0.8)}})
    page = table2(study(Guess(), ["plain", "pmp", "genpmp+ends"]), tmp_path).markdown()
    assert "| M | test | pmp | 0.8000 |" in page
    assert "| genpmp+ends | " in page
    assert "A note." in page


def test_studies_read_the_real_graphs(tmp_path):
    save_archives(tmp_path)
    for name, types in (("aan", {"paper", "author"}), ("acl_hetero", {"paper", "author"})):
        graph, cutoff = STUDIES[name].load(tmp_path, 0)
        assert (set(graph.nodes), cutoff) == (types, data.CUTOFFS[name])


def test_table2_refuses(tmp_path):
    with pytest.raises(InputError, match="pass its folder with --root"):
        table2(STUDIES["mag"], tmp_path)
    with pytest.raises(InputError, match="seeds=1 gives no standard error"):
        table2(STUDIES["hetero-tsbm"], tmp_path, seeds=1)
    with pytest.raises(InputError, match="method='pny' is not valid"):
        table2(STUDIES["hetero-tsbm"], tmp_path, methods=["pny"])
    with pytest.raises(InputError, match="is more than a weighting"):
        Staged().fit(Problem.of(one_type(), CUTOFF), "pmp+jjnorm", 0, tmp_path)
    with pytest.raises(InputError, match="contains no ogbn-arxiv"):
        table2(STUDIES["arxiv"], tmp_path, root=tmp_path)
    with pytest.raises(InputError, match=r"pass a \.npy file with a row per node"):
        table2(study(Guess()), tmp_path, features=tmp_path / "none.npy")


def test_standardized():
    out = standardized([np.array([[1.0, 5], [3, 5], [100, 5]])], np.array([0, 1]))[0]
    assert out[:2].tolist() == [[-1, 0], [1, 0]]
    assert out[2].tolist() == [98, 0]


# R_te ≤ R_tr + W1


def test_risk_gaps_stay_below_their_bounds_and_answers_only_score(tmp_path, monkeypatch):
    monkeypatch.setattr(risk, "METHODS", ("plain", "center", "pmp+jjnorm"))
    graph = one_type()
    monkeypatch.setattr(risk, "_graph", lambda name, root, seed: (graph, CUTOFF))
    table = risk.risk(2, tmp_path, names=["tsbm"], most=20)
    assert (table.names(1), table.names(2)) == (list(risk.ROWS.values()), list(risk.METHODS))
    for method in risk.METHODS:
        of = {row: table.by_place["tsbm", title, method] for row, title in risk.ROWS.items()}
        for seed in (0, 1):
            assert of["gap"][seed].score <= of["bound"][seed].score
    view = graph.masked(CUTOFF).undirected()
    false = (
        graph.with_labels(np.where(graph.time >= CUTOFF, 0, graph.y)).masked(CUTOFF).undirected()
    )
    for method in risk.METHODS:
        np.testing.assert_array_equal(
            risk.messages_of(view, method), risk.messages_of(false, method)
        )
    assert risk.w1_of(
        np.zeros((4, 2)), np.full((9, 2), 3.0), 5, np.random.default_rng(0)
    ) == pytest.approx(18**0.5)
    with pytest.raises(InputError, match="none of aan exists"):
        risk.risk(2, tmp_path, names=["aan"])


# Table 4


def test_slopes_are_powers_and_formulas_have_the_papers():
    assert table4.slope([1, 2, 4, 8], [5, 20, 80, 320]) == pytest.approx(2)
    formula = {name: of for name, (_, of) in table4.FORMULAS.items()}
    powers = {"pmp, weights": (0, 1, 0, 0), "genpmp, message": (0, 1, 1, 0), "jjnorm": (1, 0, 1, 0)}
    for name, expected in powers.items():
        for axis, power in zip(table4.AXES, expected, strict=True):
            sizes = [axis.of(size) for size in axis.sizes]
            assert table4.slope(
                sizes, [formula[name](size) for size in axis.sizes]
            ) == pytest.approx(power, abs=1e-9)
    assert formula["pny, maps"](table4.Size(7, 0, 3, 2)) == 9 * (4 * 3 + 16 + 7)


def test_table4_times_every_formula_along_every_axis():
    small = table4.Size(nodes=400, edges=2000, columns=4, side=3)
    axes = [table4.Axis("N", [small, replace(small, nodes=800)], lambda size: size.nodes)]
    assert set(table4.calls_of(small)) == set(table4.FORMULAS)
    ticks = iter(range(1000))
    assert table4.medians(
        {"a": lambda: None, "b": lambda: next(ticks)}, 3, lambda: next(ticks)
    ) == {"a": 1, "b": 2}
    curves = table4.measured(1, axes)
    assert {len(times) for times in curves["N"].values()} == {2}
    assert [row[""] for row in table4.report(curves, axes).rows] == list(table4.FORMULAS)
    assert len(table4.picture(curves, axes).axes[0].lines) == 6


# Linear RevGAT by operator


@pytest.mark.parametrize("method", ["plain", "mmp", "genpmp", "genpmp-source"])
def test_operators_are_what_they_are_called(method):
    graph = real_graph(60).undirected()
    count = {
        t: {d: sum(abs(int(u) - t) == d for u in graph.time) for d in range(10)}
        for t in range(2000, 2010)
    }
    edges, weighted = np.zeros((2, 60, 60))
    for source, target in graph.edge_index.T:
        own, other = int(graph.time[target]), int(graph.time[source])
        since = own if method == "genpmp" else other
        ratio = (
            count[2009][abs(own - other)] / count[since][abs(own - other)]
            if "genpmp" in method
            else 1.0
        )
        edges[target, source] += 1
        weighted[target, source] += 0.0 if method == "mmp" and other > own else ratio
    edges, weighted = edges + np.eye(60), weighted + np.eye(60)
    degree, sums = edges.sum(1), weighted.sum(1)
    expected = {
        "released": degree[:, None] ** 0.5 * weighted / degree**0.5,
        "symmetric": weighted / np.sqrt(np.outer(sums, sums)),
        "mean": weighted / sums[:, None],
    }
    for operator, matrix in expected.items():
        result = revgat_operator.message_of(graph, operator, method)(torch.eye(60))
        np.testing.assert_allclose(result, matrix, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("root", [False, True])
def test_linear_revgat_learns_and_cannot_see_the_answers(root):
    known, options = one_type(), revgat_operator.Options(width=4, epochs=20, root=root)
    false = known.with_labels(np.where(known.time >= CUTOFF, (known.y + 1) % 3, known.y))
    problems = [Problem.of(graph, CUTOFF) for graph in (known, false)]
    informed, blind = (
        revgat_operator.fit(
            p, both=p.view.undirected(), operator="mean", method="pmp", seed=0, options=options
        )
        for p in problems
    )
    assert np.array_equal(informed[0], blind[0])
    assert informed[1] == blind[1]
    assert problems[0].hits(informed[0]).mean() > 0.4


def test_revgat_operator_is_a_table_and_refuses(tmp_path, monkeypatch):
    monkeypatch.setitem(data.CUTOFFS, "ogbn_arxiv", CUTOFF)
    graph, options = one_type(), revgat_operator.Options(width=2, epochs=2)
    (tmp_path / "ogbn_arxiv").mkdir()
    arrays = {"x": graph.x, "y": graph.y, "time": graph.time, "edge_index": graph.edge_index}
    np.savez(data.path_of("ogbn_arxiv", tmp_path), **arrays)
    page = revgat_operator.revgat_operator(
        tmp_path, 2, tmp_path / "o", methods=["genpmp"], options=options
    ).markdown()
    for operator in revgat_operator.OPERATORS.values():
        assert f"## {operator}\n" in page
    assert page.count("| GenPMP, target's time | ") == 3
    with pytest.raises(InputError, match="operator='none' is not valid"):
        revgat_operator.revgat_operator(tmp_path, 2, tmp_path, operators=["none"])
    with pytest.raises(
        InputError, match="does not exist; pass the folder of the real graphs with --root"
    ):
        revgat_operator.revgat_operator(tmp_path / "o", 2, tmp_path)


def test_work_off_keeps_the_order_of_tasks(tmp_path):
    calls = [partial(records, name, np.ones(3, bool), (seed,)) for seed, name in enumerate("abc")]
    tasks = [Task(f"task {k}", {"number": k}, call) for k, call in enumerate(calls)]
    work_off(tasks[1:2], tmp_path)
    assert [record.column for record in work_off(tasks, tmp_path)] == ["a", "b", "c"]


# Commands


def outcome(capsys, *arguments, **options):
    with pytest.raises(SystemExit) as stopped:
        cli.main(words_of(*arguments, **options))
    printed = capsys.readouterr()
    return stopped.value.code, printed.out + printed.err


def test_an_empty_text_names_nothing():
    """`--baselines ""` runs ours alone."""
    assert cli._split("") == []
    assert cli._split("plain,trees-hops") == ["plain", "trees-hops"]
    assert cli._split(None) is None


def test_commands(tmp_path, capsys, monkeypatch):
    code, text = outcome(
        capsys,
        "table3",
        graphs=2,
        models="sgc",
        rows="fixed",
        columns="pmp",
        nodes=200,
        epochs=2,
        workers=1,
        out=tmp_path,
    )
    assert code == 0
    assert "## SGC, released" in text
    assert (
        json.loads(next((tmp_path / "parts").iterdir()).read_text())["records"][0]["study"]
        == "table3"
    )
    monkeypatch.setattr("reproduction.studies.STUDIES", {"small": study(Guess())})
    code, text = outcome(capsys, "table2", dataset="small", methods="pmp", out=tmp_path)
    assert (code, "A small one" in text) == (0, True)
    assert (tmp_path / "table2-small.csv").is_file()


def test_pictures_of_the_methods_hold_their_tables(tmp_path, capsys):
    assert outcome(capsys, "methods", "--out", str(tmp_path))[0] == 0
    assert sorted(file.stem for file in tmp_path.iterdir()) == sorted(
        f"methods-{name}" for name in FIGURES
    )
    values = [[float(text.get_text()) for text in axis.texts] for axis in FIGURES["weights"]().axes]
    assert values[1] == ig.weighting.pmp(np.arange(10)).ravel().tolist()
    last, early = (FIGURES["distances"]().axes[2].lines[k].get_ydata() for k in (3, 0))
    np.testing.assert_allclose(early, last, atol=0.01)  # PMP's promise; plain's differ by up to .15


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["table2", "--dataset", "cora"], "dataset='cora' is not valid; choose one of 'mag'"),
        (["gamma", "--gammas", "few"], "'few' is not a list of numbers"),
        (
            ["leaderboard", "--root", "/no/such/folder"],
            "contains no graph; pass a folder of graphs with --root",
        ),
        (
            ["bench", "propagation", "--plot", "a.png"],
            "--plot draws the growth, but none is measured",
        ),
        (["bench", "layerwise", "--methods", "pny"], "must hold 'none'"),
    ],
)
def test_commands_refuse_with_one_sentence(capsys, arguments, sentence):
    code, text = outcome(capsys, *arguments)
    assert code == 2
    assert sentence in text
    assert "Traceback" not in text
