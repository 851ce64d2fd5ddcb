"""The leaderboard.

Competing methods receive no target label, cells are stored, the page is complete.
"""

from functools import partial

import numpy as np
import pytest

import impact_gnn as ig
from impact_gnn.checks import InputError
from impact_gnn.statistics import Estimate
from reproduction import __main__ as cli
from reproduction import baselines, data, leaderboard
from reproduction.hetero_tsbm import hetero_tsbm
from reproduction.results import Record
from reproduction.runner import one_thread

CUTOFF = 4


@pytest.fixture(autouse=True)
def _single_thread():
    with one_thread():
        yield


def one_type(seed=0):
    return ig.tsbm(
        num_nodes=150, num_times=5, num_labels=3, feature_std=1.0, mean_degree=6, seed=seed
    )


def several_types():
    return hetero_tsbm(
        num_papers=150,
        num_authors=60,
        num_fields=20,
        num_institutions=5,
        num_times=5,
        num_labels=3,
        num_features=4,
        citations=600,
        writes=300,
        topics=300,
        affiliations=60,
        feature_std=1.0,
    )


GRAPHS = {"one type": one_type, "several types": several_types}


def scrambled(graph):
    y = graph.y.copy()
    late = np.flatnonzero(graph.time >= CUTOFF)
    y[late] = np.random.default_rng(1).permutation(y[late])
    return graph.with_labels(y)


EVERY = baselines.BASELINES | baselines.COMPETING_METHODS


@pytest.mark.parametrize("kind", GRAPHS)
@pytest.mark.parametrize("name", [name for name in EVERY if name != "autogluon"])
def test_competing_methods_learn_from_the_past_alone(name, kind, monkeypatch):
    monkeypatch.setattr(ig, "Pipeline", partial(ig.Pipeline, epochs=40))
    if name.startswith("trees"):
        pytest.importorskip("lightgbm")
    graph = GRAPHS[kind]()
    results = [EVERY[name](each.masked(CUTOFF), 0) for each in (graph, scrambled(graph))]
    np.testing.assert_array_equal(*results)
    assert results[0].shape == ((graph.time >= CUTOFF).sum(), 3)
    np.testing.assert_allclose(results[0].sum(1), 1, atol=1e-5)
    assert (
        results[0].argmax(1) == graph.y[graph.time >= CUTOFF]
    ).mean() > 0.36  # chance is a third


@pytest.mark.parametrize("name", ["logistic", "gcn", "label-propagation"])
def test_competing_methods_work_without_features(name):
    graph = one_type()
    bare = ig.TemporalGraph(y=graph.y, time=graph.time, edge_index=graph.edge_index)
    assert baselines.BASELINES[name](bare.masked(CUTOFF), 0).shape == (30, 3)


def test_the_last_labelled_periods_are_the_validation_rows():
    y, time = np.arange(40) % 2, np.repeat([0, 1, 2, 3, 4], [10, 17, 2, 1, 10])
    view = ig.TemporalGraph(y=y, time=time, edge_index=np.zeros((2, 0), int)).masked(4)
    past, validation = baselines.hold_out(view)
    assert past.cutoff == 2  # time 3 alone has 1 of 30 labels
    assert validation.rows.tolist() == [27, 28, 29]
    assert (past.y[27:] == -1).all()
    with pytest.raises(InputError, match="use labels of at least two"):
        baselines.hold_out(view.masked(1))


def test_the_graph_between_targets_equals_the_loop():
    view = several_types().masked(CUTOFF)
    expected = np.zeros((view.num_nodes, view.num_nodes))
    for (source, _, target), part in view.relations.items():
        pairs = sorted(set(map(tuple, part.edge_index.T.tolist())))
        if source == target:
            own = np.zeros_like(expected)
            for a, b in pairs:
                own[a, b] = own[b, a] = 1
            expected += own
        elif "paper" in (source, target):
            groups: dict = {}
            for a, b in pairs:
                paper, other = (a, b) if source == "paper" else (b, a)
                groups.setdefault(other, []).append(paper)
            for papers in groups.values():
                for a in papers:
                    expected[a, papers] += (len(papers) <= baselines.MOST_DEGREE) / len(papers)
    np.fill_diagonal(expected, 0)
    np.testing.assert_allclose(baselines.own_graph(view).toarray(), expected, rtol=1e-5)


def test_a_cell_is_scored_after_the_method_has_predicted(tmp_path, monkeypatch):
    graph = one_type()
    graph.save(tmp_path / "small")

    def guess(view, seed):
        assert (view.y[view.time >= view.cutoff] == -1).all()
        return np.eye(3)[graph.y[view.targets()]]

    monkeypatch.setitem(baselines.BASELINES, "guess", guess)
    scores = {
        record.row: record.score
        for record in leaderboard.cell("small", tmp_path, "guess", 0, tmp_path)
    }
    assert [scores[row] for row in ("accuracy", "macro-F1", "calibration error")] == [1, 1, 0]
    assert scores["memory"] > 10


def no_memory(view, seed):
    raise InputError("it is too large.")


def test_a_rerun_continues_and_the_page_says_why_a_cell_is_empty(tmp_path, monkeypatch):
    one_type().save(tmp_path / "data" / "small")
    (tmp_path / "data" / "other").mkdir()
    np.savez(tmp_path / "data" / "other" / "table.npz", x=np.ones(3))
    calls = []

    def here(*arguments, **options):
        calls.append(arguments)
        return leaderboard.cell(*arguments, **options)

    monkeypatch.setattr(leaderboard, "apart", here)
    monkeypatch.setitem(baselines.BASELINES, "large", no_memory)
    for chosen, count in (
        (["logistic", "large"], 2),
        (["logistic", "large", "label-propagation"], 4),
    ):
        board = leaderboard.leaderboard(tmp_path / "out", root=tmp_path / "data", baselines=chosen)
        assert len(calls) == count  # cells that could not run are tried again
    page = board.markdown()
    assert [arguments[2] for arguments in calls] == [
        "logistic",
        "large",
        "large",
        "label-propagation",
    ]
    assert "| graph | logistic | label-propagation |" in page
    assert "large on small: not run: it is too large." in page
    assert "other/table.npz was left out: " in page


def test_the_page_compares_ours_with_every_competing_method():
    truth = np.tile([0, 1], 20)
    right, half = np.eye(2)[truth], np.eye(2)[np.zeros(40, int)]
    sets, candidates = np.ones((40, 2), bool), {"a": right, "b": half}
    by_method = {
        "ours-quick": leaderboard.MethodResult(
            right, Estimate(0.9, 0.01, 0.88, 0.92), sets, candidates
        ),
        "weak": leaderboard.MethodResult(half),
        "weaker": leaderboard.MethodResult(1 - right),
    }
    records = [
        record
        for graph in ("g", "h")
        for method, result in by_method.items()
        for record in leaderboard.records_of(
            result,
            np.arange(40),
            truth,
            Record(
                "leaderboard",
                section=graph,
                row="memory",
                column=method,
                seed=0,
                score=100.0,
                seconds=2.0,
            ),
        )
    ]
    page = leaderboard.Leaderboard("leaderboard", "Leaderboard", "About.", records).markdown()
    for line in (
        "| g | **1.0000** | 0.5000 | 0.0000 |",
        "| g | weak | **+0.5000** | [+0.3381, +0.6619] |",
        "| ours-quick | 1.00 |  |  | 2 |",
        "| weaker | 3.00 | **+1.0000** | [+1.0000, +1.0000] | 2 |",
        "| h | ours-quick | a | +0.0000 |",
        "| g | ours-quick | 1.000 | 0.000 | 1.000 | 0.000 | 1.000 | 2.000 | "
        "0.900 [0.880, 0.920] | 2 | 100 |",
    ):
        assert line in page


def test_the_page_of_competing_methods_compares_each_with_plain():
    truth = np.tile([0, 1], 20)
    by_method = {
        "plain": np.eye(2)[np.zeros(40, int)],
        "better": np.eye(2)[truth],
        "g-only": 1 - np.eye(2)[truth],
    }
    records = [
        record
        for graph in ("g", "h")
        for method, probabilities in by_method.items()
        if (graph, method) != ("h", "g-only")
        for record in leaderboard.records_of(
            leaderboard.MethodResult(probabilities),
            np.arange(40),
            truth,
            Record(
                "leaderboard",
                section=graph,
                row="memory",
                column=method,
                seed=0,
                score=99.6,
                seconds=2.0,
            ),
        )
    ]
    page = leaderboard.AgainstPlain(
        "competing-methods", "Competing methods", "About.", records, notes=["h has no g."]
    ).markdown()
    for line in (
        "| plain | 0.5000 | 0.5000 |  |",
        "| better | **+50.0** [+33.8, +66.2] | **+50.0** [+33.8, +66.2] | +50.0 (2) |",
        "| g-only | **-50.0** [-66.2, -33.8] | – | -50.0 (1) |",
        "| better | 2 s, 100 | 2 s, 100 |",
        "- h has no g.",
    ):
        assert line in page


def test_every_real_graph_has_a_cutoff(tmp_path):
    with pytest.raises(InputError, match="pass a folder of graphs"):
        leaderboard.leaderboard(tmp_path, root=tmp_path)
    one_type().save(tmp_path / "mine")
    assert data.available(tmp_path) == ["mine"]
    assert data.with_cutoff("mine", tmp_path)[1] == CUTOFF
    # A past window: its labels are scored, and nothing later exists.
    past, cutoff = data.with_cutoff("mine@2", tmp_path)
    assert (cutoff, past.times[-1]) == (CUTOFF - 2, CUTOFF - 2)
    with pytest.raises(InputError, match="@9 lies too far back: there are 3 past windows"):
        data.with_cutoff("mine@9", tmp_path)
    with pytest.raises(InputError, match="@1 is the newest"):
        data.with_cutoff("mine@0", tmp_path)
    with pytest.raises(InputError, match="baseline='none' is not valid"):
        leaderboard.leaderboard(tmp_path, root=tmp_path, baselines=["none"])


def test_the_command_gives_every_cell_a_process_of_its_own(tmp_path, capsys):
    one_type().save(tmp_path / "small")
    with pytest.raises(SystemExit) as stopped:
        cli.main(
            [
                "leaderboard",
                "--root",
                str(tmp_path),
                "--baselines",
                "label-propagation",
                "--efforts",
                "",
                "--out",
                str(tmp_path / "out"),
            ]
        )
    assert stopped.value.code == 0
    assert "## Accuracy" in capsys.readouterr().out
    with pytest.raises(SystemExit) as stopped:  # a cell that is there already, on another page
        cli.main(
            [
                "competing-methods",
                "--root",
                str(tmp_path),
                "--methods",
                "label-propagation",
                "--out",
                str(tmp_path / "out"),
            ]
        )
    assert stopped.value.code == 0
    assert "| label-propagation |" in capsys.readouterr().out


def test_ours_alone_runs_no_competing_method(tmp_path, monkeypatch):
    one_type().save(tmp_path / "data" / "small")
    asked = []
    record = Record(
        "leaderboard",
        section="small",
        row="accuracy",
        column="ours-quick",
        seed=0,
        score=0.5,
        seconds=1.0,
    )
    monkeypatch.setattr(
        leaderboard, "apart", lambda *arguments, **_: asked.append(arguments[2]) or [record]
    )
    leaderboard.leaderboard(
        tmp_path / "out", root=tmp_path / "data", baselines=[], efforts=["quick"]
    )
    assert asked == ["ours-quick"]
