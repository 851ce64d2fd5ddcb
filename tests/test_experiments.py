"""The synthetic study: the fast training is the plain one, hidden labels stay hidden, interrupted runs go on."""

import csv
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from impact_gnn.checks import InputError
from impact_gnn.experiments import batched, gamma, gcn, plots, published, real, runs, segments, sgc, table1, table3
from impact_gnn.experiments.columns import COLUMNS, alignment, chosen
from impact_gnn.experiments.sample import Sample, draw
from impact_gnn.experiments.setting import PROTOCOLS, Options, row
from impact_gnn.graph import TemporalGraph
from impact_gnn.nn import GCN, Propagation
from impact_gnn.propagation.hops import operator
from impact_gnn.propagation.labels import label_hops

NODES = 300
TINY = Options(num_nodes=NODES, epochs=3)
FEW = ("plain", "pmp", "pmp+jjnorm", "label-hop")


@pytest.fixture(autouse=True)
def one_thread():
    """Matrices are tiny; threads would only wait for each other."""
    with runs.one_thread():
        yield


def sample(protocol="released", model="sgc", seed=1):
    return draw(PROTOCOLS[protocol], row("fixed", 0.6), model, seed, NODES)


# The fast training is the plain one


def dense(one, weighting, *, self_loop):
    """Ω[t_v, t_u]·a_vu as a matrix [target, source], from the edge list."""
    table = operator(one.view, weighting=weighting).table
    out = np.zeros((NODES, NODES))
    for source, target in one.view.edge_index.T:
        out[target, source] += table[one.view.period[target], one.view.period[source]]
    return out + np.eye(NODES) * self_loop


@pytest.mark.parametrize("protocol", ["released", "theory"])
@pytest.mark.parametrize("weighting", ["plain", "mmp", "pmp"])
def test_sgc_reads_two_hops_of_the_normalised_matrix(protocol, weighting):
    one, made = sample(protocol), PROTOCOLS[protocol]
    matrix = dense(one, weighting, self_loop=made.self_loop)
    degree = matrix.sum(1)
    safe = np.where(degree > 0, degree, 1)
    matrix = matrix / np.sqrt(np.outer(safe, safe)) if protocol == "released" else matrix / safe[:, None]
    found = sgc.features(one, [COLUMNS[weighting]], made)[weighting]
    np.testing.assert_allclose(found, matrix @ matrix @ one.x, atol=1e-4)


def test_sgc_aligns_the_last_message_and_joins_the_label_hop():
    one, made = sample("theory"), PROTOCOLS["theory"]
    found = sgc.features(one, chosen(["center", "label-hop"]), made)
    means = [found["center"][one.view.time == t].mean(0) for t in one.view.times]
    np.testing.assert_allclose(means, np.tile(found["plain"].mean(0), (10, 1)), atol=1e-4)
    np.testing.assert_array_equal(found["label-hop"], np.hstack([found["plain"], label_hops(one.view)[0] * 10]))


@pytest.mark.parametrize("self_loop", [False, True])
@pytest.mark.parametrize("names", [("pmp",), ("plain", "mmp"), ("mmp", "genpmp", "pmp-definition")])
def test_segment_product_is_the_operator_forward_and_back(names, self_loop):
    view = sample().view
    operators = [operator(view, weighting=name, norm="mean", self_loop=self_loop) for name in names]
    product = segments.Product(segments.Segments.of(view), operators)
    h = torch.randn(len(names), NODES, 16, generator=torch.Generator().manual_seed(0), requires_grad=True)
    out = product(h)
    weight = torch.randn_like(out)
    (out * weight).sum().backward()
    for c, one in enumerate(operators):
        np.testing.assert_allclose(out[c].detach(), one.apply(h[c].detach().numpy()), atol=1e-5)
        np.testing.assert_allclose(h.grad[c], one.transpose_apply(weight[c].numpy()), atol=1e-5)


@pytest.mark.parametrize("sigmoid", [False, True])
def test_batched_classifiers_are_those_trained_one_by_one(sigmoid):
    rng = np.random.default_rng(0)
    sizes = [(30, 7), (41, 5), (30, 9)]
    train, test = ([rng.standard_normal((size[k], 4)).astype(np.float32) for size in sizes] for k in (0, 1))
    label = [rng.integers(0, 3, len(rows)) for rows in train]
    seeds = [5, 6, 5]
    options = Options(epochs=25)
    found = batched.classify(train, label, test, seeds, num_labels=3, options=options, sigmoid=sigmoid)
    for b in range(3):
        model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))
        parts = batched.initial(seeds[b], (4, 16, 3))
        model.load_state_dict(
            {"0.weight": parts[0], "0.bias": parts[1][:, 0], "2.weight": parts[2], "2.bias": parts[3][:, 0]}
        )
        adam = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
        for _ in range(options.epochs):
            logits = model(torch.from_numpy(train[b]))
            loss = cross_entropy(logits.sigmoid() if sigmoid else logits, torch.from_numpy(label[b]))
            adam.zero_grad()
            loss.backward()
            adam.step()
        np.testing.assert_allclose(found[b], model(torch.from_numpy(test[b])).detach(), atol=1e-4)


def test_gcn_columns_are_the_librarys_gcn_trained_one_by_one():
    protocol, options = PROTOCOLS["text"], Options(num_nodes=NODES, epochs=6)
    one = sample("text", "gcn")
    columns = [column for column in COLUMNS.values() if not column.label_hop]
    networks = gcn.Networks(one, columns, protocol)
    begun = {name: value.detach().clone() for name, value in networks.named_parameters()}
    found = gcn.train(networks, one, protocol, options)
    rows, x = torch.from_numpy(one.train), torch.tensor(one.x)
    for c, column in enumerate(columns):
        propagation = Propagation.of(one.view, weighting=column.weighting)
        model = GCN(5, 10, 16, dropout=0.0, align=alignment(column, one, propagation.table))
        model.linears.load_state_dict(
            {
                "0.weight": begun["first"][c].T, "0.bias": begun["first_bias"][c, 0],
                "1.weight": begun["second"][c], "1.bias": begun["second_bias"][c, :, 0],
            }
        )  # fmt: skip
        adam = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
        for _ in range(options.epochs):
            loss = cross_entropy(model(x, propagation)[rows], torch.from_numpy(one.known()))
            adam.zero_grad()
            loss.backward()
            adam.step()
        np.testing.assert_allclose(found[c].T, model(x, propagation).detach(), atol=2e-3, err_msg=column.name)


def test_label_hop_joins_the_gcns_last_layer_only_in_its_column():
    one, protocol = sample("text", "gcn"), PROTOCOLS["text"]
    networks = gcn.Networks(one, chosen(["label-hop"]), protocol)
    with torch.no_grad():
        networks.second.zero_()
        networks.second_bias.zero_()
        plain, joined = networks()
        weight = networks.label_weight["1"]
        np.testing.assert_allclose(joined, weight @ torch.from_numpy(label_hops(one.view)[0].T * 10), atol=1e-5)
    assert not plain.any()


def test_columns_begin_alike_and_dropout_leaves_out_the_same_units():
    one, protocol = sample(model="gcn"), PROTOCOLS["released"]
    networks = gcn.Networks(one, [COLUMNS["plain"]] * 2, protocol)
    logits = gcn.train(networks, one, protocol, TINY)
    torch.testing.assert_close(logits[0], logits[1], rtol=0, atol=0)


# Hidden labels stay hidden


@pytest.mark.parametrize("model", ["sgc", "gcn"])
def test_scrambled_target_labels_change_no_prediction(model):
    one = sample(model=model)
    late = one.view.targets()
    y = np.array(one.graph.y)
    y[late] = np.random.default_rng(9).permutation((y[late] + 1) % 10)
    part = one.graph
    scrambled = TemporalGraph(x=part.x, y=y, time=part.time, edge_index=part.edge_index, num_labels=10)
    honest = [column for column in COLUMNS.values() if not column.oracle]
    assert len(honest) == len(COLUMNS) - 1
    found = [
        runs.PREDICT[model]([each], honest, PROTOCOLS["released"], TINY)
        for each in (one, Sample(one.model, scrambled, one.seed))
    ]
    for column in honest:
        np.testing.assert_array_equal(found[0][column.name][0], found[1][column.name][0], err_msg=column.name)


def test_the_oracle_says_so_and_does_look():
    oracle = COLUMNS["pmp+pny-oracle"]
    assert oracle.oracle
    assert "oracle" in oracle.title
    one = sample()
    y = np.array(one.graph.y)
    late = one.view.targets()
    y[late] = (y[late] + 1) % 10
    part = one.graph
    other = TemporalGraph(x=part.x, y=y, time=part.time, edge_index=part.edge_index, num_labels=10)
    found = [
        sgc.features(each, [oracle], PROTOCOLS["released"])[oracle.name]
        for each in (one, Sample(one.model, other, one.seed))
    ]
    assert np.abs(found[0] - found[1]).max() > 1e-3


# Runs


def numbers(result):
    """Everything but the seconds."""
    text = json.dumps(result, default=str)
    return json.loads(text, object_hook=lambda d: {k: v for k, v in d.items() if k not in ("seconds", "time")})


def tiny_table(**changes):
    given = {
        "graphs": 3, "rows": ["fixed"], "columns": FEW, "options": TINY, "time_graphs": 0, "workers": 1, **changes
    }  # fmt: skip
    return table3.run(**given)


def test_table_is_deterministic_and_paired():
    first, second = tiny_table(models=["gcn"]), tiny_table(models=["gcn"])
    assert numbers(first) == numbers(second)
    found = first["rows"][0]
    for name, cell in found["columns"].items():
        accuracy, plain = (np.array(found["accuracy"][key]) for key in (name, "plain"))
        gain = accuracy - plain
        expected = (accuracy.mean(), accuracy.std(ddof=1) / 3**0.5, gain.mean(), gain.std(ddof=1) / 3**0.5)
        keys = ("mean", "se", "difference", "difference_se")
        np.testing.assert_allclose([cell[key] for key in keys], expected, atol=1e-12)
        assert cell["graphs"] == 3
        assert cell["seconds"] > 0


def test_interrupted_run_goes_on_with_the_same_numbers(tmp_path, monkeypatch):
    def stop(done, total, title):
        raise KeyboardInterrupt

    whole = tiny_table()
    with pytest.raises(KeyboardInterrupt):
        tiny_table(out=tmp_path, progress=stop)
    assert len(list((tmp_path / "parts").iterdir())) == 1
    ran = []
    real_run = runs.run_task
    monkeypatch.setattr(runs, "run_task", lambda task: ran.append(task.model) or real_run(task))
    assert numbers(tiny_table(out=tmp_path)) == numbers(whole)
    assert ran == ["gcn"]  # SGC was done
    again = tiny_table(out=tmp_path)
    assert ran == ["gcn"]
    assert again["seconds"] == tiny_table(out=tmp_path)["seconds"]
    # Other settings are another study, and leave this one alone.
    tiny_table(out=tmp_path, models=["sgc"], options=replace(TINY, epochs=2))
    assert ran == ["gcn", "sgc"]
    assert numbers(tiny_table(out=tmp_path)) == numbers(whole)


def test_a_part_of_another_study_is_refused(tmp_path):
    tiny_table(out=tmp_path, models=["sgc"])
    (part,) = (tmp_path / "parts").iterdir()
    content = json.loads(part.read_text())
    content["settings"]["options"]["epochs"] = 7
    part.write_text(json.dumps(content))
    with pytest.raises(InputError, match="belongs to another study; choose a new directory"):
        tiny_table(out=tmp_path, models=["sgc"])


def test_processes_give_what_one_process_gives():
    small = {"columns": ["plain"], "models": ["sgc"], "rows": ["fixed", "random"]}
    assert numbers(tiny_table(**small, workers=2)) == numbers(tiny_table(**small))


def test_files_are_written(tmp_path):
    result = tiny_table(time_graphs=1)
    files = table3.write(result, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(path.name for path in files)
    assert {path.suffix for path in files} == {".json", ".csv", ".md", ".png", ".svg"}
    saved = json.loads((tmp_path / "table3.json").read_text())
    assert [found["model"] for found in saved["rows"]] == ["sgc", "gcn"]
    assert set(saved["rows"][0]["columns"]["pmp"]) >= {
        "mean", "se", "difference", "difference_se", "graphs", "seconds"
    }  # fmt: skip
    assert saved["time"]["gcn"]["plain"]["ratio"] == 1
    assert saved["time"]["gcn"]["pmp+jjnorm"]["published_ratio"] == pytest.approx(582, abs=1)
    with (tmp_path / "table3.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 2 * len(FEW)
    with (tmp_path / "table3-graphs.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 2 * len(FEW) * 3
    page = (tmp_path / "table3.md").read_text()
    assert "| released | sgc | fixed | plain | 0.2243 |" in page
    assert "*ours:* label hop" in page


def test_no_plots_without_matplotlib(tmp_path, monkeypatch):
    monkeypatch.setattr(plots, "find_spec", lambda name: None)
    files = table3.write(tiny_table(models=["sgc"]), tmp_path)
    assert {path.suffix for path in files} == {".json", ".csv", ".md"}


def test_gamma_figure(tmp_path):
    result = gamma.run(2, gammas=[0.4, 0.8], models=["sgc"], columns=FEW, options=TINY, workers=1, out=tmp_path)
    assert [found["decay"] for found in result["rows"]] == [0.4, 0.8]
    assert [one["column"] for one in result["rows"][0]["contrasts"]] == ["pmp+jjnorm"]
    files = gamma.write(result, tmp_path / "out")
    assert (tmp_path / "out" / "figure-gamma.svg") in files
    assert gamma.GAMMAS[0] == 0.3
    assert gamma.GAMMAS[-1] == 0.85


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"graphs": 1}, "gives no standard error; take at least 2"),
        ({"protocols": ["printed"]}, "protocol='printed' is not known; choose one of 'released', 'text', 'theory'"),
        ({"rows": ["all"]}, "row='all' is not known"),
        ({"models": ["gat"]}, "model='gat' is not known; choose one of 'sgc', 'gcn'"),
        ({"columns": ["jj"]}, "column='jj' is not known; choose one of 'plain'"),
        ({"workers": 0}, "workers=0 must be at least 1"),
    ],
)
def test_table_refuses(change, sentence):
    with pytest.raises(InputError, match=sentence):
        tiny_table(**change)


def test_options_refuse():
    with pytest.raises(InputError, match="epochs=0 must be at least 1"):
        Options(epochs=0)
    with pytest.raises(InputError, match=r"gammas holds 1\.5; give numbers from 0 to 1"):
        gamma.run(2, gammas=[1.5])


# Beside the paper


def test_agreement_weighs_both_errors():
    # 2·√(.006² + .05²/200) = .01393.
    inside = published.agreement(0.20, 0.213, error=0.006, spread=0.05)
    outside = published.agreement(0.20, 0.215, error=0.006, spread=0.05)
    assert (inside.agrees, outside.agrees) == (True, False)
    assert inside.allowed == pytest.approx(0.013928, abs=1e-6)
    assert outside.sentence == ("published 0.2000, measured 0.2150: differs (+0.0150, 2 standard errors are 0.0139)")
    assert published.agreement(0.20, 0.215, error=0.006, spread=0.05, columns=2).agrees  # differences are noisier
    assert not published.agreement(0.20, 0.185, error=0.006, spread=0.05).agrees  # from either side
    assert not published.agreement(0.20, 0.215, error=0.0, spread=0.05).agrees


def test_every_published_number_of_a_row_has_its_sentence():
    found = tiny_table(columns=["mmp", "pmp", "pmp+jjnorm"], models=["sgc"], rows=["random-zero-diagonal"])["agreement"]
    assert {one["what"]: one["published"] for one in found} == {
        "plain": 0.1331, "MMP": 0.1063, "PMP": 0.1854, "PMP+JJnorm": 0.1862, "PMP+JJnorm over PMP": pytest.approx(8e-4)
    }  # fmt: skip
    assert all(one["sentence"].startswith("published 0.") for one in found)


# Table 1


def problem(nodes=400, seed=0):
    rng = np.random.default_rng(seed)
    time = np.sort(rng.integers(2000, 2010, nodes))
    y = rng.integers(-1, 3, nodes)
    edges = rng.integers(0, nodes, (2, 5 * nodes))
    x = rng.standard_normal((nodes, 6)).astype(np.float32)
    return real.of_graph(TemporalGraph(x=x, y=y, time=time, edge_index=edges), 2008)


@pytest.mark.parametrize("most", [10_000, 50])
def test_both_splits_train_on_equally_many_and_never_on_scored_nodes(most):
    one = problem()
    train, test = table1.rows_of(one, 3, most)
    assert (one.time[test] >= 2008).all()
    assert (one.time[train["chronological"]] < 2008).all()
    assert (one.time[train["random"]] >= 2008).any()
    assert len(train["chronological"]) == len(train["random"]) <= most
    for rows in train.values():
        assert len(np.unique(rows)) == len(rows)
        assert not np.isin(rows, test).any()
        assert (one.y[rows] >= 0).all()


def test_time_embedding_tells_times_apart():
    embedded = table1.time_embedding(np.arange(1950, 2020))
    assert embedded.shape == (70, 20)
    distance = np.abs(embedded[:, None] - embedded[None]).max(2)
    assert distance[~np.eye(70, dtype=bool)].min() > 0.01


def test_table1_runs_on_what_is_there_and_names_what_is_not(tmp_path):
    rng = np.random.default_rng(0)
    nodes = 120
    arrays = {
        "x": rng.standard_normal((nodes, 4)).astype(np.float16),
        "y": rng.integers(-1, 3, nodes).astype(np.int16),
        "time": rng.integers(2005, 2013, nodes).astype(np.int16),
        "edge_index": rng.integers(0, nodes, (2, 500)).astype(np.int32),
    }
    (tmp_path / "aan").mkdir()
    np.savez(tmp_path / "aan" / "aan.npz", **arrays)
    (tmp_path / "acl_hetero").mkdir()
    hetero = {
        "paper_x": arrays["x"],
        "paper_y": arrays["y"],
        "paper_time": arrays["time"] + 13,
        "author_writes_paper": np.stack([rng.integers(0, 30, 200), rng.integers(0, nodes, 200)]).astype(np.int32),
        "num_authors": np.int32(30),
    }
    np.savez(tmp_path / "acl_hetero" / "acl_hetero.npz", **hetero)
    steps = []
    result = table1.run(
        2, data=["tsbm", "aan", "acl_hetero", "scotus"], root=tmp_path, model=table1.Model(hidden=4, epochs=2),
        num_nodes=200, progress=lambda *step: steps.append(step),
    )  # fmt: skip
    assert [found["data"] for found in result["rows"][::4]] == ["tsbm", "aan", "acl_hetero"]
    assert result["skipped"] == [f"scotus was skipped: {tmp_path / 'scotus' / 'scotus.npz'} is not there."]
    assert steps[-1] == (6, 6, "acl_hetero, seed 1")
    for found in result["rows"]:
        assert found["mean"] == pytest.approx(np.mean(found["scores"]))
    cost = result["contrasts"][0]
    assert cost["what"] == "random − chronological"
    scores = {(f["split"], f["time_embedding"]): np.array(f["scores"]) for f in result["rows"][:4]}
    assert cost["difference"] == pytest.approx((scores["random", False] - scores["chronological", False]).mean())
    files = table1.write(result, tmp_path / "out")
    assert "scotus was skipped" in (tmp_path / "out" / "table1.md").read_text()
    assert len(files) == 5


def test_papers_of_common_authors_are_neighbours(tmp_path):
    (tmp_path / "acl_hetero").mkdir()
    hetero = {
        "paper_x": np.eye(3, dtype=np.float16),
        "paper_y": np.array([0, 1, 0], np.int16),
        "paper_time": np.array([2018, 2020, 2022], np.int16),
        "author_writes_paper": np.array([[0, 0, 1], [0, 1, 2]], np.int32),
        "num_authors": np.int32(2),
    }
    np.savez(tmp_path / "acl_hetero" / "acl_hetero.npz", **hetero)
    found = real.load("acl_hetero", tmp_path)
    expected = [[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0, 1]]
    for hop in found.hops(found.x):
        np.testing.assert_allclose(hop, expected)


def test_a_damaged_file_is_named(tmp_path):
    (tmp_path / "aan").mkdir()
    (tmp_path / "aan" / "aan.npz").write_bytes(b"no archive")
    with pytest.raises(InputError, match=r"aan\.npz cannot be read"):
        real.load("aan", tmp_path)
