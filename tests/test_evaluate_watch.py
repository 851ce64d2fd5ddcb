"""After a run: new labels (`evaluate`), new data (`watch`), summaries in a notebook."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import impact_gnn as ig
from commands import here
from impact_gnn._codec import decode, encode
from impact_gnn.backtesting import HorizonScore
from impact_gnn.backtesting.forecast import lost_per_period, trust_in_confidence
from impact_gnn.checks import InputError
from impact_gnn.job.evaluate import evaluate
from impact_gnn.job.outliers import OutlierScale
from impact_gnn.job.watch import watch
from impact_gnn.report import read_summary, write_report, write_summary
from impact_gnn.report.export import read_frame, write_table
from impact_gnn.report.sentences import describe_evaluation
from impact_gnn.report.summary import Evaluation

# a formula, the mark between names of a set, no mathematics
NAMES = [
    "=1+1",
    "bird|cat",
    "_$\\frac$",
]


def graph(seed=0, **changes):
    g = ig.tsbm(
        num_nodes=900, num_times=8, num_labels=3, num_features=6, feature_std=0.6, seed=seed
    )
    parts = {"x": g.x, "y": g.y, "time": g.time, "edge_index": g.edge_index, "label_names": NAMES}
    return ig.TemporalGraph(**parts | {"ids": [f"-n{k}" for k in range(900)]} | changes)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    out = tmp_path_factory.mktemp("after") / "out"
    return out, ig.run(
        graph(), out, cutoff=7, candidates=["labels"], folds=2, seeds=1, effort="quick"
    )


@pytest.fixture
def copied(done, tmp_path):
    shutil.copytree(done[0], tmp_path / "out")
    return tmp_path / "out"


def labels_of(g, cutoff=7):
    rows = g.targets(cutoff)
    return pd.DataFrame({"id": g.ids[rows], "label": [NAMES[k] for k in g.label[rows]]})


def test_evaluation_with_labels_from_a_table_follows_the_definition(copied, tmp_path):
    """Accuracy, sets and calibration by hand from predictions.csv, in which ids and names are
    guarded.
    """
    truth = labels_of(graph()).sample(frac=0.7, random_state=0)
    truth.to_csv(tmp_path / "labels.csv", index=False)
    evaluation = evaluate(copied, tmp_path / "labels.csv")
    predictions = pd.read_csv(copied / "predictions.csv").assign(
        id=lambda t: t["id"].str.lstrip("'")
    )
    both = predictions.merge(truth, on="id", suffixes=("", "_true"))
    right = both["label"].str.lstrip("'") == both["label_true"]
    assert evaluation.count == len(both) == len(truth)
    assert evaluation.accuracy.value == pytest.approx(right.mean())
    sets = (
        both["set"].str.lstrip("'").str.replace(r"\|", "/").str.replace(r"\\", "\\").str.split("|")
    )
    covered = [
        true.replace("|", "/") in labels
        for true, labels in zip(both["label_true"], sets, strict=True)
    ]
    assert (
        evaluation.coverage >= evaluation.accuracy.value
    )  # a set holds the label that was predicted
    assert evaluation.coverage == pytest.approx(np.mean(covered))
    assert evaluation.confidence == pytest.approx(both["probability"].mean())
    place = np.minimum((both["probability"] * 15).astype(int), 14)
    error = sum(abs((both["probability"] - right)[place == k].sum()) for k in range(15)) / len(both)
    assert evaluation.error == pytest.approx(error)
    assert sum(count for true, label, count in evaluation.confusion if true == label) == right.sum()
    assert evaluation.gain is None
    text = (copied / "report.html").read_text()
    assert "Evaluation with new labels" in text
    assert "Add --graph to compare with the" in text
    stored = json.loads((copied / "evaluation.json").read_text())["content"]
    assert decode(Evaluation, stored) == evaluation


def test_an_evaluation_belongs_to_its_predictions(copied):
    """A run that goes on with a larger budget predicts anew.

    An older evaluation does not belong to these predictions.
    """
    summary, stored = read_summary(copied / "summary.json"), copied / "evaluation.json"
    evaluate(copied, graph())
    write_report(summary, copied / "report.html")
    assert "Evaluation with new labels" in (copied / "report.html").read_text()
    assert (copied / "figures" / "evaluation-confusion.svg").exists()
    other = replace(
        summary, prediction_summary=replace(summary.prediction_summary, mean_probability=0.5)
    )
    write_report(other, copied / "report.html")
    assert "Evaluation with new labels" not in (copied / "report.html").read_text()
    assert not (copied / "figures" / "evaluation-confusion.svg").exists()
    stored.write_text(stored.read_text().replace('"count"', '"counts"'))
    with pytest.raises(
        InputError, match=r"evaluation.json cannot be read .*; remove it, or evaluate again\.$"
    ):
        write_report(summary, copied / "report.html")


def test_user_files_among_the_figures_are_not_deleted(copied, done):
    (copied / "figures" / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"contains other files \('notes\.txt'\); move them away"):
        write_report(done[1], copied / "report.html")
    assert (copied / "figures" / "notes.txt").read_text() == "mine"
    (copied / "figures" / "notes.txt").unlink()
    write_report(done[1], copied / "report.html")
    assert NAMES[2] in (copied / "figures" / "label-mix.svg").read_text()


@pytest.mark.usefixtures("without_page")
@pytest.mark.parametrize("names", [None, [0, 1], [False, True]])
def test_truth_values_are_the_classes_0_and_1(tmp_path, names):
    g = ig.tsbm(num_nodes=200, num_times=3, num_labels=2, num_features=4, seed=0)
    parts = {"x": g.x, "y": g.y, "time": g.time, "edge_index": g.edge_index}
    g = ig.TemporalGraph(**parts, label_names=names)
    out = tmp_path / "out"
    summary = ig.run(
        g,
        out,
        cutoff=2,
        candidates=["linear:features"],
        folds=1,
        seeds=1,
        effort="quick",
    )
    predicted = summary.predictions["label"]
    rows = g.targets(2)
    path = tmp_path / "labels.csv"
    for spelling in ([0, 1], [False, True]):
        truth = [spelling[k] for k in g.label[rows]]
        pd.DataFrame({"id": g.ids[rows], "label": truth}).to_csv(path, index=False)
        for graph_of_run in (None, g):
            evaluation = evaluate(out, path, graph=graph_of_run)
            right = (predicted.astype(int) == g.label[rows]).mean()
            assert evaluation.accuracy.value == pytest.approx(right)
            assert evaluation.unknown == 0
            assert (evaluation.gain is None) == (graph_of_run is None)
    pd.DataFrame({"id": g.ids[rows], "label": "yes"}).to_csv(path, index=False)
    with pytest.raises(InputError, match=r"its classes are 0, 1, false, true, the labels are yes"):
        evaluate(out, path)


@pytest.mark.usefixtures("without_page")
@pytest.mark.parametrize("names", [[False, True], [1.0, 2.5, 7.0]])
def test_numeric_labels_match_in_any_notation(tmp_path, names):
    """As a CSV of pandas has them where some are missing: 1.0, True; and ids as 7.0."""
    g = ig.tsbm(num_nodes=200, num_times=3, num_labels=len(names), num_features=4, seed=0)
    parts = {"x": g.x, "y": g.y, "time": g.time, "edge_index": g.edge_index}
    g = ig.TemporalGraph(**parts, label_names=names, ids=np.arange(200) + 7)
    summary = ig.run(
        g,
        tmp_path / "out",
        cutoff=2,
        candidates=["linear:features"],
        folds=1,
        seeds=1,
        effort="quick",
    )
    rows, predictions = g.targets(2), summary.predictions
    truth = [names[k] for k in g.label[rows]]
    table = pd.DataFrame({"id": g.ids[rows].astype(float), "y": truth})
    pd.concat([table, pd.DataFrame({"id": [None], "y": [None]})]).to_csv(
        tmp_path / "labels.csv", index=False
    )
    evaluation = evaluate(tmp_path / "out", tmp_path / "labels.csv")
    assert (evaluation.count, evaluation.unknown) == (rows.sum(), 0)
    assert predictions["id"].tolist() == g.ids[rows].tolist()
    assert evaluation.accuracy.value == pytest.approx((predictions["label"] == truth).mean())
    assert evaluation.coverage >= evaluation.accuracy.value


def test_labels_in_another_case_are_refused_with_the_reason(copied, tmp_path):
    truth = labels_of(graph())
    truth["label"] = truth["label"].str.upper()
    truth[truth["label"] == "BIRD|CAT"].to_csv(tmp_path / "labels.csv", index=False)
    with pytest.raises(
        InputError, match=r"'BIRD.CAT', which the run calls 'bird.cat'; they differ"
    ):
        evaluate(copied, tmp_path / "labels.csv")


@pytest.mark.usefixtures("without_page")
def test_with_the_graph_the_selection_is_compared_with_the_baseline(copied, done):
    evaluation, summary = evaluate(copied, graph()), done[1]
    assert evaluation.count == summary.prediction_summary.count
    plain = ig.Pipeline("sign", cutoff=7).fit(graph())
    truth = graph().label[graph().targets(7)]
    assert evaluation.plain_score == pytest.approx((plain.predict(graph()) == truth).mean())
    assert evaluation.score == pytest.approx(evaluation.accuracy.value)
    assert evaluation.gain.value == pytest.approx(evaluation.score - evaluation.plain_score)
    assert evaluation.gain.low <= evaluation.gain.value <= evaluation.gain.high
    sentences = " ".join(describe_evaluation(summary, evaluation))
    assert "the forecast of" in sentences
    assert "The selected model is" in sentences or "The baseline was selected" in sentences


@pytest.mark.usefixtures("without_page")
def test_nodes_after_the_run_are_not_model_inputs(copied):
    """The graph has grown by a period and edges to it.

    Both are evaluated on the graph of the run.
    """
    then, g = evaluate(copied, graph()), graph()
    rng = np.random.default_rng(0)
    grown = graph(
        x=np.vstack([g.x, 9 * np.ones((100, 6), np.float32)]),
        y=np.r_[g.y, np.zeros(100, int)],
        time=np.r_[g.time, np.full(100, 8)],
        ids=[*g.ids, *(f"new{k}" for k in range(100))],
        edge_index=np.hstack(
            [g.edge_index, np.stack([900 + rng.integers(0, 100, 5000), rng.integers(0, 900, 5000)])]
        ),
    )
    assert evaluate(copied, grown) == then


@pytest.mark.usefixtures("without_page")
def test_a_failed_forecast_and_unknown_classes_are_reported(copied, tmp_path):
    truth = labels_of(graph())
    path = tmp_path / "labels.parquet"
    truth["label"] = "dragon"
    truth.to_parquet(path)
    with pytest.raises(
        InputError,
        match=r"none of the labels in .*labels.parquet is a class of the run: its classes are "
        r"=1\+1, bird\|cat, .*, the labels are dragon; use its names",
    ):
        evaluate(copied, path)
    assert not (copied / "evaluation.json").exists()
    predicted = read_summary(copied / "summary.json").predictions["label"]
    truth.loc[0, "label"] = next(name for name in NAMES if name != predicted[0])
    truth.to_parquet(path)
    evaluation = evaluate(copied, path)
    assert (evaluation.accuracy.value, evaluation.unknown) == (0.0, len(truth) - 1)
    sentences = " ".join(describe_evaluation(read_summary(copied / "summary.json"), evaluation))
    assert "This is below the forecast of" in sentences
    assert "of these nodes are in classes that the model does not know" in sentences


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        (
            {"node": ["-n1"], "label": ["cat"]},
            "has the columns node, label; rename two of them to id and label.",
        ),
        ({"id": ["x", "y", "z"], "label": ["cat"] * 3}, "labels are known for 0 of the"),
        ({"id": ["-n1", "-n1"], "label": ["a", "b"]}, "has duplicate ids"),
    ],
)
def test_labels_that_do_not_fit_are_refused_and_files_stay(copied, tmp_path, table, sentence):
    pd.DataFrame(table).to_csv(tmp_path / "labels.csv", index=False)
    before = (copied / "report.html").read_bytes()
    with pytest.raises(InputError, match=sentence):
        evaluate(copied, tmp_path / "labels.csv")
    assert (copied / "report.html").read_bytes() == before
    assert not (copied / "evaluation.json").exists()


@pytest.mark.parametrize(("text", "other"), [("\\|", "|"), ('"bird|cat"', '"dog"')])
def test_a_changed_table_of_predictions_is_refused(copied, text, other):
    table = copied / "predictions.csv"
    table.write_text(table.read_text().replace(text, other))
    with pytest.raises(
        InputError,
        match="has predicted classes outside their own sets, so it was modified or comes from an",
    ):
        evaluate(copied, graph())


def test_pyg_graphs_are_accepted(done):
    """They have no class names, which these predictions need; the error says so."""
    for call in (watch, evaluate):
        with pytest.raises(
            InputError, match=r"the model's classes have names|labels are known for 0 of the"
        ):
            call(done[0], ig.to_pyg(graph()))
        with pytest.raises(InputError, match="graph is a DataFrame; pass a TemporalGraph"):
            call(done[0], pd.DataFrame())


def test_without_new_data_there_is_no_reason_to_retrain(done):
    """The graph as it was, its target labels unknown: with any labels, the result is the same."""
    hidden = graph(y=np.where(graph().time < 7, graph().y, -1))
    watched = watch(done[0], hidden)
    assert not watched.refit
    assert "No reason to retrain" in str(watched)
    assert [one.period for one in watched.periods] == ["7"]
    assert watched.periods[0].count == done[1].prediction_summary.count
    assert watched.periods[0].confidence == pytest.approx(
        done[1].prediction_summary.mean_probability
    )
    shuffled = graph(y=np.where(graph().time < 7, graph().y, np.roll(graph().y, 1)))
    assert watch(done[0], shuffled).periods == watched.periods


def test_new_labels_outliers_and_shifted_proportions_are_reasons(done):
    assert "new labels since the run, which trained on" in " ".join(watch(done[0], graph()).reasons)
    later, hidden = graph().time >= 7, np.where(graph().time < 7, graph().y, -1)
    away = graph(y=hidden, x=np.where(later[:, None], graph().x + 25, graph().x))
    reasons = " ".join(watch(done[0], away).reasons)
    assert "of the nodes are outliers; the maximum" in reasons
    assert "new labels since" not in reasons
    first = graph().x[(graph().y == 0) & ~later].mean(0)
    one_kind = graph(
        y=hidden,
        x=np.where(later[:, None], first + 0.1 * graph().x, graph().x),
        edge_index=np.zeros((2, 0), int),
    )
    assert "the predicted class proportions differ by" in " ".join(watch(done[0], one_kind).reasons)


def test_expected_accuracy_falls_with_the_horizon(copied):
    """A period after those of the run: the past loss of accuracy at that horizon is subtracted."""
    summary = read_summary(copied / "summary.json")
    lags = [HorizonScore(1, 0.9, 4000), HorizonScore(2, 0.8, 4000), HorizonScore(3, 0.7, 4000)]
    assert lost_per_period(lags).value == pytest.approx(0.1)
    write_summary(
        replace(summary, backtest=replace(summary.backtest, by_horizon=lags)),
        copied / "summary.json",
    )
    grown = graph(
        time=np.where(graph().time == 7, 7 + np.arange(900) % 3, graph().time),
        y=np.where(graph().time < 7, graph().y, -1),
    )
    watched = watch(copied, grown)
    trust = trust_in_confidence(summary.backtest.fold_checks)
    level = [one.expected - trust * one.confidence for one in watched.periods]
    assert np.diff(level) == pytest.approx(2 * [-0.1 * (1 - trust)])


def test_the_outlier_score_is_the_distance_from_the_own_class():
    view = graph().masked(7)
    scale, known = OutlierScale.fit(view), np.flatnonzero(view.label >= 0)
    scaled = (view.x - view.x[known].mean(0)) / view.x[known].std(0)
    means = np.stack([scaled[known][view.label[known] == k].mean(0) for k in range(3)])
    away = np.sqrt(((scaled[known] - means[view.label[known]]) ** 2).mean(1))
    assert scale.score(view.x, known, view.label) == pytest.approx(away / np.median(away), rel=1e-4)
    assert (
        OutlierScale.fit(
            ig.TemporalGraph(y=view.y, time=view.time, edge_index=view.edge_index).masked(7)
        )
        is None
    )


def test_a_summary_in_a_notebook(done):
    out, summary = done
    table = summary.leaderboard()
    assert list(table["candidate"]) == [str(row.candidate) for row in summary.backtest.rows]
    assert {"accuracy", "loss", "minus_plain", "low", "high", "weight", "status"} <= set(
        table.columns
    )
    assert len(summary.predictions) == summary.prediction_summary.count
    assert summary.report == out / "report.html"
    assert "iframe" in summary._repr_html_()
    assert read_summary(out / "summary.json").out == out
    lost = decode(type(summary), encode(summary))
    with pytest.raises(InputError, match="has no directory"):
        lost.predictions  # noqa: B018


def test_uncertain_and_outlying_nodes_are_listed(done):
    summary, table = done[1], done[1].predictions
    unsure = summary.prediction_summary.unsure
    assert [one.probability for one in unsure] == sorted(table["probability"])[:5]
    assert all(
        one.probability >= table["probability"].quantile(0.74)
        for one in summary.prediction_summary.unusual
    )
    distances = [one.distance for one in summary.prediction_summary.unusual]
    assert distances == sorted(distances, reverse=True)
    text = (done[0] / "report.html").read_text()
    assert all(one.id in text for one in [*unsure, *summary.prediction_summary.unusual])


def test_the_report_explains_two_nodes(done):
    """The least certain node and the confident one with the largest outlier score are explained.

    Parts sum to the difference.
    """
    out, summary = done
    assert [one.id for one in summary.explained] == [
        summary.prediction_summary.unsure[0].id,
        summary.prediction_summary.unusual[0].id,
    ]
    for one in summary.explained:
        gap = one.probability - one.runner_up_probability
        assert sum(part.contribution for part in one.parts) == pytest.approx(gap, abs=1e-6)
    text = (out / "report.html").read_text()
    assert "Explanations</h3>" in text
    assert f'aria-label="Neighbours of {summary.explained[0].id}"' in text


@pytest.mark.parametrize("ending", ["csv", "raw.csv", "parquet"])
def test_a_table_is_read_back_unchanged(tmp_path, ending):
    """Text stays text, also if it looks like a number; numbers stay numbers."""
    text = ["007", "=cmd", "'=cmd", "''+a", 'a, "b"', "two\nlines", "", "NA", "-5", "true"]
    columns = {
        "id": text,
        "label": ["1"] * 10,
        "number": list(range(10)),
        "probability": [0.5] * 10,
    }
    write_table(columns, tmp_path / f"t.{ending}")
    assert read_frame(tmp_path / f"t.{ending}").to_dict("list") == columns
    write_table({"id": [True, False]}, tmp_path / f"u.{ending}")
    assert read_frame(tmp_path / f"u.{ending}")["id"].tolist() == [True, False]


def test_a_graph_next_to_a_graph_with_labels_is_refused(copied):
    with pytest.raises(InputError, match="graph= would be ignored"):
        evaluate(copied, graph(), graph="/nowhere")


def test_the_command_does_not_ignore_a_second_graph(copied, tmp_path):
    graph().save(tmp_path / "graph")
    done = here("evaluate", copied, tmp_path / "graph", graph=tmp_path / "graph")
    assert done.exit_code == 2
    assert "graph= would be ignored" in done.stderr


@pytest.mark.parametrize("unit", ["D", "s", "ns"])
def test_dates_are_ids(tmp_path, unit):
    """Data frames have dates in nanoseconds."""
    ids = (np.datetime64("2001-01-01") + np.arange(900)).astype(f"datetime64[{unit}]")
    g = graph(ids=ids)
    ig.run(g, tmp_path / "out", cutoff=7, candidates=["plain"], folds=1, effort="quick")
    assert evaluate(tmp_path / "out", g).count == int(g.targets(7).sum())
