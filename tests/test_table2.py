"""Table 2: what a study may see, that it resumes, that its differences are paired, and what the page says."""

import json
from dataclasses import dataclass, replace

import numpy as np
import pytest
from typer.testing import CliRunner

from impact_gnn.checks import InputError
from impact_gnn.cli import app
from impact_gnn.data.hetero_tsbm import hetero_tsbm
from impact_gnn.data.tsbm import tsbm
from impact_gnn.experiments.table2 import STUDIES, page, run, write
from impact_gnn.experiments.table2.recipes import Decoupled, Linear, Staged, standardized
from impact_gnn.experiments.table2.runner import run_study
from impact_gnn.experiments.table2.study import Outcome, Problem, Study, rows_of
from impact_gnn.pipeline import Method

CUTOFF = 4


def papers(seed=0):
    return hetero_tsbm(
        300, 200, 20, 5, num_times=5, num_labels=3, num_features=8, citations=2000, writes=900, topics=600,
        affiliations=200, feature_std=1.0, seed=seed,
    )  # fmt: skip


def one_type(seed=0):
    return tsbm(num_nodes=300, num_times=5, num_labels=3, mean_degree=10, decay=0.8, seed=seed)


def study(rows, *, graph=papers, fresh=False, keep=True):
    return Study(
        "small", "A small one", lambda root, seed, features: Problem.of(graph(seed), CUTOFF), rows, 2, ("A note.",),
        fresh=fresh, keep=keep,
    )  # fmt: skip


def guessing(asked):
    """A recipe whose guess depends on the method, and which writes down what it is asked."""

    @dataclass(frozen=True)
    class Recipe:
        width: int = 1

        def fit(self, problem, method, seed, kept, place):
            asked.append((method, seed))
            assert (problem.view.y[problem.view.time >= CUTOFF] == -1).all()
            return Outcome(np.full(len(problem.rows), len(method) % 3), 0.5, seed)

    return Recipe()


def test_a_problem_holds_no_label_to_predict():
    graph = papers()
    problem = Problem.of(graph, CUTOFF)
    assert (problem.view.y[problem.view.time >= CUTOFF] == -1).all()
    assert (graph.y[problem.rows] >= 0).all()
    assert problem.hits(graph.y[problem.rows]).all()
    assert not problem.hits(1 + graph.y[problem.rows]).any()


@pytest.mark.parametrize(
    ("graph", "recipe", "methods"),
    [
        (papers, Decoupled("sehgnn", hidden=8, epochs=15), ("pmp+jjnorm", "genpmp+ends")),
        (papers, Decoupled("rphgnn", hops=1, hidden=8, epochs=15, extras=("labels", "curriculum")), ("pmp",)),
        (one_type, Linear(hidden=8, epochs=15, dropout=0.1, lr=0.02), ("genpmp", "pmp+center+jjnorm")),
        (
            one_type,
            Staged(hops=2, hidden=8, num_layers=2, stages=2, epochs=15, batch_size=100, lr=0.02, memory="1MB",
                   threshold=0.5, storage=None),
            ("genpmp",),
        ),
    ],
)  # fmt: skip
def test_every_recipe_learns_and_cannot_see_the_answers(tmp_path, graph, recipe, methods):
    def other_answers(seed=0):
        made = graph(seed)
        return made.with_labels(np.where(made.time >= CUTOFF, (made.y + 1) % 3, made.y))

    truth = Problem.of(graph(), CUTOFF)
    false = Problem.of(other_answers(), CUTOFF)
    for method in methods:
        found = recipe.fit(truth, method, 0, {}, tmp_path / "a" / method)
        blind = recipe.fit(false, method, 0, {}, tmp_path / "b" / method)
        assert np.array_equal(found.predicted, blind.predicted)
        assert truth.hits(found.predicted).mean() > 0.4
        assert 0 <= found.valid <= 1


def test_a_stopped_study_goes_on(tmp_path):
    asked = []
    small = study(rows_of("M", guessing(asked), ("plain", "pmp")))
    first = run_study(small, out=tmp_path)
    assert sorted(asked) == [("plain", 0), ("plain", 1), ("pmp", 0), ("pmp", 1)]
    (tmp_path / "parts").glob("*pmp-01*").__next__().unlink()
    again = run_study(small, out=tmp_path)
    assert asked[4:] == [("pmp", 1)]
    assert [row["scores"] for row in again["rows"]] == [row["scores"] for row in first["rows"]]
    run_study(study(rows_of("M", replace(guessing(asked), width=2), ("plain",))), out=tmp_path)
    assert len(asked) == 7  # other hyper-parameters are another run
    run_study(study(rows_of("M", guessing(asked), ("plain",)), graph=lambda seed: papers(9)), out=tmp_path)
    assert len(asked) == 9  # and so are other data


@pytest.mark.parametrize("fresh", [False, True])
def test_differences_are_paired(fresh):
    small = study(rows_of("M", guessing([]), ("plain", "pmp")), fresh=fresh)
    result = run_study(small)
    plain, pmp = result["rows"]
    gaps = np.array(pmp["scores"]) - np.array(plain["scores"])
    assert pmp["difference"] == pytest.approx(gaps.mean())
    assert plain["difference"] == plain["seed_se"] == plain["node_se"] == 0
    if fresh:
        assert pmp["node_se"] == 0
        assert pmp["seed_se"] == pytest.approx(gaps.std(ddof=1) / np.sqrt(2))
    else:
        truth = papers().y[papers().time >= CUTOFF]
        nodes = (truth == len("pmp") % 3).astype(float) - (truth == len("plain") % 3)
        assert pmp["seed_se"] == 0  # a guess does not depend on the seed
        assert pmp["node_se"] == pytest.approx(nodes.std(ddof=1) / np.sqrt(len(nodes)))
        assert pmp["high"] - pmp["difference"] == pytest.approx(1.96 * pmp["node_se"])


def test_kept_hops_are_dropped_where_they_would_not_fit():
    seen = []

    @dataclass(frozen=True)
    class Keeping:
        def fit(self, problem, method, seed, kept, place):
            seen.append((method, seed, dict(kept)))
            kept[method] = seed
            return Outcome(np.zeros(len(problem.rows), int), 0.5, 1)

    run_study(study(rows_of("M", Keeping(), ("plain", "pmp")), keep=False))
    assert seen == [("plain", 0, {}), ("plain", 1, {"plain": 0}), ("pmp", 0, {}), ("pmp", 1, {"pmp": 0})]


def test_page(tmp_path):
    small = study(rows_of("M", guessing([]), ("plain", "pmp", "genpmp+ends"), {"pmp": (0.9, 0.8)}))
    files = write(run_study(small), tmp_path)
    text = files[2].read_text()
    assert "| PMP | 0.5000 |" in text
    assert "| 0.9000 | 0.8000 |" in text
    assert "GenPMP on ends" in text
    assert "A note." in text
    assert json.loads(files[0].read_text())["rows"][1]["published"] == {"valid": 0.9, "test": 0.8}
    assert files[1].read_text().splitlines()[0].startswith("model,method,test")
    assert page.title("pmp+center+jjnorm") == "PMP + centring + JJnorm"


def test_refused():
    with pytest.raises(InputError, match="dataset='cora' is not known; choose one of 'mag', 'arxiv', 'papers100M'"):
        run("cora")
    with pytest.raises(InputError, match="name the folder that holds it with --root"):
        run("mag")
    with pytest.raises(InputError, match="seeds=1 gives no standard error"):
        run("hetero-tsbm", seeds=1)
    with pytest.raises(InputError, match="method='pny' is not known"):
        run("hetero-tsbm", methods=["pny"])
    with pytest.raises(InputError, match="is more than a weighting"):
        Staged().fit(Problem.of(one_type(), CUTOFF), "pmp+jjnorm", 0, {}, None)
    with pytest.raises(InputError, match="holds no ogbn-arxiv"):
        run("arxiv", root="/nowhere")


def test_every_study_compares_with_plain_and_says_what_cannot_be_compared():
    for each in STUDIES.values():
        for model in {row.model for row in each.rows}:
            assert next(row for row in each.rows if row.model == model).method == "plain"
        for row in each.rows:
            Method.parse("+".join([row.method, *getattr(row.recipe, "extras", ())]))
    assert "cannot be compared" in STUDIES["mag"].notes[0]


def test_standardized():
    values = np.array([[1.0, 5], [3, 5], [100, 5]])
    out = standardized([values], np.array([0, 1]))[0]
    assert out[:2].tolist() == [[-1, 0], [1, 0]]
    assert out[2].tolist() == [98, 0]


def test_command(tmp_path, monkeypatch):
    small = study(rows_of("M", guessing([]), ("plain", "pmp")))
    monkeypatch.setattr("impact_gnn.experiments.table2.runner.STUDIES", {"small": small})
    command = ["reproduce", "table2", "--dataset", "small", "--methods", "pmp", "--out", str(tmp_path)]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert "A small one" in done.output
    assert (tmp_path / "table2-small.json").is_file()
    refused = CliRunner().invoke(app, ["reproduce", "table2", "--dataset", "mag", "--out", str(tmp_path)])
    assert refused.exit_code == 2
    assert "choose one of 'small'" in refused.output
