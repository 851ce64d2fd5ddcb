"""The command line: printed lines, written files, exit codes and refusals."""

import html
import json
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from typer.testing import CliRunner

import impact_gnn as ig
from commands import here
from impact_gnn._store import Store
from impact_gnn.checks import DiskFull, WorkerLost
from impact_gnn.cli import app
from impact_gnn.cli.options import seconds

QUICK = ["--candidates", "plain,center", "--folds", "2", "--seeds", "1", "--budget", "2m"]


def impact(*arguments):
    """The command in a process of its own."""
    command = [sys.executable, "-m", "impact_gnn", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    where = tmp_path_factory.mktemp("graphs") / "g"
    g = ig.tsbm(
        num_nodes=300, num_times=6, num_labels=2, num_features=3, mean_degree=10, seed=0, start=2010
    )
    names = ["<b>cat</b>", "dog"]
    ig.TemporalGraph(
        x=g.x,
        y=g.y,
        time=g.time,
        edge_index=g.edge_index,
        ids=[f"n{i}" for i in range(300)],
        label_names=names,
    ).save(where)
    return where


@pytest.fixture(scope="module")
def finished(saved, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "out"
    done = impact("run", saved, "--out", out, *QUICK)
    if done.returncode == 0:  # a second run writes its own
        (out.parent / "first.json").write_bytes((out / "summary.json").read_bytes())
    return out, done


def test_run_leaves_everything_and_five_lines(finished):
    out, done = finished
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    *last, warning = done.stdout.strip().splitlines()[-6:]
    # this graph is too easy
    assert warning.startswith("warning: 100.0% of the past labels were predicted out of fold.")
    assert last[0].startswith("Selected: ")
    assert last[1].startswith("Predictions: 50 nodes from 2015 on")
    assert last[2].startswith("Expected accuracy: ")
    assert last[3].startswith("Do corrections for time help? ")
    assert last[4].startswith("Report: ")
    summary = json.loads((out / "summary.json").read_text())
    assert summary["schema"] == 11
    chosen = {
        member["candidate"] for member in summary["backtest"]["selection"]["ensemble"]["members"]
    }
    assert chosen <= {"plain", "center"}
    assert {row["candidate"] for row in summary["backtest"]["rows"]} == {"plain", "center"}
    expected = summary["prediction_summary"]["accuracy"]
    assert 0 <= expected["low"] < expected["value"] < expected["high"] <= 1
    header, *rows = (out / "predictions.csv").read_text().splitlines()
    assert header.replace('"', "").split(",") == [
        "id",
        "time",
        "label",
        "probability",
        "second_label",
        "second_probability",
        "set",
    ]
    assert len(rows) == 50
    assert {row.replace('"', "").split(",")[2] for row in rows} <= {"<b>cat</b>", "dog"}
    assert "<b>cat</b>" not in (out / "report.html").read_text()
    assert all("cat" in row.split(",")[-1] or "dog" in row.split(",")[-1] for row in rows)
    assert ig.Ensemble.load(out / "model").fitted.cutoff == 2015
    with pytest.raises(ig.InputError, match="contains an ensemble; use Ensemble"):
        ig.Pipeline.load(out / "model")


def test_a_second_run_reads_what_is_finished(finished, saved):
    out, _ = finished
    before = (out / "work" / "backtest.json").stat().st_mtime_ns
    second = here("run", saved, "--out", out, *QUICK)
    assert second.exit_code == 0
    assert (out / "work" / "backtest.json").stat().st_mtime_ns == before


def test_another_run_is_refused(finished, saved):
    out, _ = finished
    done = here("run", saved, *QUICK, out=out, cutoff=2014)
    assert done.exit_code == 2
    assert "was started with other inputs" in done.stderr
    assert "cutoff was 2015 and is 2014 now" in done.stderr
    more = here("run", saved, *QUICK, out=out, folds=3)
    assert more.exit_code == 2
    assert "(folds was 2 and is 3 now)" in more.stderr


def test_the_report_is_drawn_once_more(finished):
    out, _ = finished
    before = (out / "report.html").read_bytes()
    (out / "report.html").unlink()
    done = here("report", out)
    assert done.exit_code == 0, done.stderr
    assert done.stdout.strip() == f"Report: {out / 'report.html'}"
    assert (out / "report.html").read_bytes() == before


def test_two_runs_do_not_share_a_directory(saved, tmp_path):
    with Store.open(tmp_path / "out" / "work", {}, within=tmp_path / "out"):
        done = here("run", saved, "--out", tmp_path / "out", *QUICK)
    assert done.exit_code == 2
    assert "another process is working in" in done.stderr


@pytest.mark.parametrize(
    "error", [DiskFull("no room is left; free some."), WorkerLost("a worker died; start it.")]
)
def test_what_the_machine_lacks_is_one_sentence(saved, monkeypatch, error):
    def load(path, **_):
        raise error

    monkeypatch.setattr("impact_gnn.data.files.read", load)
    done = here("check", saved)
    assert done.exit_code == (2 if isinstance(error, DiskFull) else 1)
    assert done.stderr.strip() == f"error: {error}"


def test_the_engine_is_selected_and_reported(saved, tmp_path):
    done = here("diagnose", saved, engine="memory", json=tmp_path / "d.json")
    assert done.exit_code == 0, done.stderr
    assert "engine memory: about" in done.stderr
    assert json.loads((tmp_path / "d.json").read_text())["diagnosis"]["cutoff"] == 2015


@pytest.mark.usefixtures("without_page")
@pytest.mark.parametrize("kind", ["disk", "auto"])
def test_the_whole_job_in_files_gives_the_same_predictions(saved, finished, tmp_path, kind):
    """The memory limit makes auto use files too; nothing is left behind."""
    out, _ = finished
    done = here("run", saved, *QUICK, out=tmp_path / "out", engine=kind, memory="40kB")
    assert done.exit_code == 0, done.stderr
    assert "engine disk, cap 40.0 kB" in done.stderr
    assert (tmp_path / "out" / "predictions.csv").read_bytes() == (
        out / "predictions.csv"
    ).read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out"]


def test_predict_when_the_graph_has_grown(finished, tmp_path):
    out, _ = finished
    g = ig.tsbm(
        num_nodes=350, num_times=7, num_labels=2, num_features=3, mean_degree=10, seed=0, start=2010
    )
    arrays = {"x": g.x, "y": g.y, "time": g.time, "edge_index": g.edge_index}
    ig.TemporalGraph(**arrays, label_names=["<b>cat</b>", "dog"]).save(tmp_path / "grown")
    done = here(
        "predict", out / "model", tmp_path / "grown", out=tmp_path / "p.parquet", cutoff=2016
    )
    assert done.exit_code == 0, done.stderr
    assert "1 period is newer than the fit, which ends at 2015: 2016" in done.stdout
    assert "50 predictions" in done.stdout
    assert (tmp_path / "p.parquet").exists()


def test_predict_some_nodes(saved, finished, tmp_path):
    out, _ = finished
    graph = ig.load(saved)
    last = graph.ids[graph.time == graph.times[-1]][[3, 0, 1]]
    (tmp_path / "lines.txt").write_text("\n".join([*last, last[0], "", ""]))
    (tmp_path / "lines.csv").write_text("\n".join(last))
    (tmp_path / "table.csv").write_text("\n".join(["kind,ID", *(f"a,{name}" for name in last)]))
    header, *rows = (out / "predictions.csv").read_text().splitlines()
    expected = {row.split(",")[0].strip('"'): row for row in rows}
    for name in ("lines.txt", "lines.csv", "table.csv"):
        place = tmp_path / f"predicted-{name}.csv"
        options = ["--nodes", tmp_path / name, "--out", place, "--json", tmp_path / "p.json"]
        done = here("predict", out / "model", saved, *options)
        assert done.exit_code == 0, done.stderr
        assert "3 predictions in" in done.stdout
        assert place.read_text().splitlines() == [header, *(expected[name] for name in last)]
        is_centered = "center" in (out / "model" / "member-0" / "pipeline.json").read_text()
        notes = json.loads((tmp_path / "p.json").read_text())["notes"]
        assert any("all nodes are computed" in note for note in notes) == is_centered


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("n299\nn300\n", "no node has the id 'n300'"),
        ("n0\n", "node n0 is in period 2010, but nodes from 2015 on are predicted"),
        ("\n", "nodes.csv cannot be read (CSV parse error: Empty CSV file"),
        ("a,b\n1,2\n", "has no id column, only a, b; rename the one with ids to 'id'"),
        (None, "nodes.csv"),
    ],
)
def test_predict_refuses_unknown_nodes(saved, finished, tmp_path, text, sentence):
    if text is not None:
        (tmp_path / "nodes.csv").write_text(text)
    place = ["--nodes", tmp_path / "nodes.csv", "--out", tmp_path / "p.csv"]
    done = here("predict", finished[0] / "model", saved, *place)
    assert done.exit_code == 2
    assert sentence in done.stderr
    assert not (tmp_path / "p.csv").exists()


def test_an_interrupted_run_retains_finished_work(saved, tmp_path):
    out = tmp_path / "out"
    long = ["--effort", "thorough", "--model", "linear", "--seeds", "200", "--budget", "1h"]
    # a background job ignores SIGINT
    setup = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    begin = f"{setup}; from impact_gnn.cli import app; app()"
    command = [sys.executable, "-c", begin, "run", str(saved), "--out", str(out), *long]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        limit = time.time() + 120
        # Past the first fits: a signal while numba compiles a kernel for the first time can end in
        # LLVM's abort.
        while (
            len(list(out.glob("work/fits/*.npy"))) < 4
            and process.poll() is None
            and time.time() < limit
        ):
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "stopped; finished work is stored; run the command again to continue." in stderr
    assert "Traceback" not in stderr
    assert (out / "work" / "diagnosis.json").exists()
    assert not (out / "summary.json").exists()


def test_a_graph_with_one_labelled_period_is_predicted_without_a_back_test(tmp_path):
    g = ig.tsbm(num_nodes=120, num_times=2, num_labels=2, num_features=3, mean_degree=8, seed=0)
    g.save(tmp_path / "g")
    done = here("run", tmp_path / "g", out=tmp_path / "out", cutoff=1, budget="1m")
    assert done.exit_code == 0, done.stderr
    assert "Selected: plain. The history is too short for a back-test" in done.stdout
    assert len((tmp_path / "out" / "predictions.csv").read_text().splitlines()) == 1 + int(
        (g.time == 1).sum()
    )


def test_a_graph_with_one_period_is_refused(tmp_path):
    g = ig.TemporalGraph(
        x=np.ones((4, 2)), y=[0, 1, 0, 1], time=[3, 3, 3, 3], edge_index=[[0, 1], [1, 2]]
    )
    g.save(tmp_path / "g")
    done = here("run", tmp_path / "g", "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert "period" in done.stderr or "cutoff" in done.stderr
    assert not (tmp_path / "out").exists()


def test_the_report_shows_the_command_as_it_was_typed(finished, saved):
    out, _ = finished
    assert (
        f"run {saved} --out {out}" in json.loads((out.parent / "first.json").read_text())["command"]
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["run", "GRAPH", "--out", "x", "--hops", "0"], "hops=0 is not valid"),
        (["check", "nowhere"], "nowhere does not exist; pass a folder"),
        (
            ["run", "GRAPH", "--out", "x", "--cutoff", "1900"],
            "no node before cutoff=1900 has a label",
        ),
        (["run", "GRAPH", "--out", "x", "--cutoff", "3000"], "so there is nothing to predict"),
        (
            ["run", "GRAPH", "--out", "x", "--model", "gtn"],
            "model='gtn' is not valid; choose one of",
        ),
        (["run", "GRAPH", "--out", "x", "--budget", "soon"], "'soon' is not a duration"),
        (["run", "GRAPH", "--out", "x", "--candidates", "pmq"], "unknown part 'pmq'"),
        (
            ["run", "GRAPH", "--out", "x", "--table", "xls"],
            "choose one of 'csv', 'raw.csv', 'parquet'",
        ),
        (
            ["run", "GRAPH", "--out", "x", "--engine", "tape"],
            "engine='tape' is not valid; choose one of 'auto'",
        ),
        (["report", "GRAPH"], "summary.json cannot be read"),
        (["run", "GRAPH", "--out", "FILE/x"], "cannot be "),
        (["predict", "GRAPH", "GRAPH"], "contains no impact-gnn pipeline"),
        (["audit", "GRAPH", "nothing:there"], "cannot be imported"),
        (["audit", "GRAPH", ".here:train"], "cannot be imported (TypeError"),
        (["audit", "GRAPH", "wrong_syntax:train"], "cannot be imported (SyntaxError"),
        (["generate", "--out", "x", "--decay", "fast"], "decay='fast'"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(
    saved, tmp_path, monkeypatch, arguments, sentence
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    (tmp_path / "wrong_syntax.py").write_text("def train(:")
    swap = {"GRAPH": str(saved), "FILE/x": str(tmp_path / "file" / "x")}
    done = here("--quiet", *(swap.get(a, a) for a in arguments))
    assert done.exit_code == 2, done.stdout + done.stderr
    assert sentence in done.stderr
    assert done.stderr.strip().count("\n") == 0
    assert not (tmp_path / "x").exists()


def test_check_convert_generate(tmp_path):
    generated = here("generate", out=tmp_path / "g", nodes=200, times=4, labels=2, mean_degree=5)
    assert generated.exit_code == 0, generated.stderr
    checked = here("check", tmp_path / "g", "--json", tmp_path / "c.json")
    assert "periods   4, from 0 to 3" in checked.stdout
    assert json.loads((tmp_path / "c.json").read_text())["inferred_cutoff"] == 3
    done = here("convert", tmp_path / "g", "--out", tmp_path / "h")
    assert done.exit_code == 0, done.stderr
    assert np.array_equal(ig.load(tmp_path / "g").edge_index, ig.load(tmp_path / "h").edge_index)


def test_audit_finds_a_leak(saved, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "leaky_trainer.py").write_text("def train(g):\n    return g.y[g.time >= 2015]\n")
    done = here("audit", saved, "leaky_trainer:train")
    assert done.exit_code == 1
    assert "Leak (p = 0.0" in done.stdout


def test_a_bug_is_not_hidden_behind_the_sentence(saved, monkeypatch):
    """Only errors that a user can fix become exit code 2; others have a traceback."""
    monkeypatch.setattr("impact_gnn.data.files.read", lambda path, **_: 1 / 0)
    assert isinstance(CliRunner().invoke(app, ["check", str(saved)]).exception, ZeroDivisionError)


@pytest.mark.parametrize(
    ("text", "expected"), [("10m", 600), ("90s", 90), ("2h", 7200), ("5", 5), (" 1.5m ", 90)]
)
def test_durations(text, expected):
    assert seconds(text) == expected


@pytest.mark.usefixtures("without_page")
def test_the_metric_and_the_class_weights_are_options(saved, tmp_path):
    asked = {"metric": "macro-f1", "class_weight": "balanced", "model": "linear"}
    done = here("run", saved, *QUICK, out=tmp_path / "out", **asked)
    assert done.exit_code == 0, done.output
    assert "Back-tested macro-F1: 0." in done.output
    options = json.loads((tmp_path / "out" / "summary.json").read_text())["options"]
    assert (options["metric"], options["class_weight"]) == ("macro-f1", "balanced")
    for wrong in (["--metric", "f1"], ["--class-weight", "even"]):
        for command in (["run", saved, "--out", tmp_path / "other"], ["backtest", saved]):
            done = here(*command, *wrong)
            assert done.exit_code == 2
            assert "is not valid; choose one of" in done.output


def test_a_column_that_was_probably_misread_is_named_at_the_end_and_in_the_report(tmp_path):
    g = ig.tsbm(num_nodes=120, num_times=4, num_labels=2, num_features=2, mean_degree=6, seed=0)
    words = ["oops" if k == 4 else f"{value:.3f}" for k, value in enumerate(g.x[:, 0])]
    rows = zip(range(120), g.time, g.y, words, g.x[:, 1], strict=True)
    nodes = "".join(f"{i},{t},{y},{a},{b}\n" for i, t, y, a, b in rows)
    (tmp_path / "nodes.csv").write_text(f"id,time,label,height,width\n{nodes}")
    edges = "".join(f"{a},{b}\n" for a, b in g.edge_index.T)
    (tmp_path / "edges.csv").write_text(f"source,target\n{edges}")
    out = tmp_path / "out"
    options = ["--candidates", "linear:plain", "--folds", "1", "--seeds", "1", "--effort", "quick"]
    done = here("run", tmp_path, "--out", out, *options)
    assert done.exit_code == 0, done.output
    warning = "column 'height' is mostly numbers, but row 5 is 'oops'"
    assert f"warning: nodes.csv: {warning}" in done.stdout.splitlines()[-1]
    page = html.unescape((out / "report.html").read_text(encoding="utf-8"))
    assert f"A column may have been misread. Nodes.csv: {warning}" in page
