"""User files are never deleted, replaced, written through or read."""

import importlib
import json
import os
import shutil
import socketserver
import sqlite3
import threading
from dataclasses import replace

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
import tomllib

import impact_gnn as ig
from commands import here
from impact_gnn import _files
from impact_gnn._store import Store
from impact_gnn._text import mask_passwords
from impact_gnn.checks import InputError
from impact_gnn.data.sources import database
from impact_gnn.engines import Disk
from impact_gnn.engines.dask import connected
from impact_gnn.graph import storage
from impact_gnn.job.evaluate import evaluate
from impact_gnn.report import read_summary, write_report, write_summary
from impact_gnn.report.export import read_table, write_table

QUICK = ["--model", "linear", "--candidates", "prior:plain", "--folds", "1", "--seeds", "1"]


def snapshot(root):
    """Every entry below a folder: its mode and its content; links are not followed."""
    contents = {}
    for path in sorted(root.rglob("*")):
        status, content = path.lstat(), None
        if path.is_symlink():
            content = os.readlink(path)
        elif path.is_file():
            content = path.read_bytes()
        contents[str(path.relative_to(root))] = (status.st_mode, content)
    return contents


@pytest.fixture(scope="module")
def graph():
    return ig.tsbm(num_nodes=90, num_times=5, num_labels=2, num_features=2, mean_degree=6, seed=0)


@pytest.fixture(scope="module")
def done(graph, tmp_path_factory):
    place = tmp_path_factory.mktemp("done")
    graph.save(place / "g")
    ig.run(graph, place / "out", model="linear", candidates=["prior:plain"], folds=1, seeds=1)
    return place


@pytest.fixture
def copied(done, tmp_path):
    shutil.copytree(done, tmp_path / "copy")
    return tmp_path / "copy"


# -- the report


@pytest.mark.parametrize("href", ["..", ".", "a.csv", "%2e%2e"])
def test_a_page_does_not_say_what_is_deleted(copied, href):
    page = copied / "out" / "report.html"
    page.write_text(f'<a href="figures/{href}">')
    before = snapshot(copied)
    assert here("report", copied / "out").exit_code == 0
    after = snapshot(copied)
    del before["out/report.html"], after["out/report.html"]
    assert after == before


@pytest.mark.usefixtures("without_page")
@pytest.mark.parametrize(
    "names", [{"..": ""}, {"../summary.json": ""}, {"/etc/passwd": ""}, [1], {"a.txt": ""}]
)
def test_a_forged_list_of_figures_is_refused(copied, names):
    _files.write_json(copied / "out" / "figures" / _files.SUMS, names, sealed=True)
    before = snapshot(copied)
    refused = here("report", copied / "out")
    assert refused.exit_code == 2
    assert "figures exists and contains other files" in refused.stderr
    assert snapshot(copied) == before


@pytest.mark.usefixtures("without_page")
def test_figures_behind_a_link_and_those_of_users_are_refused(copied):
    figures, elsewhere = copied / "out" / "figures", copied / "elsewhere"
    figures.rename(elsewhere)
    figures.symlink_to(elsewhere)
    before = snapshot(copied)
    refused = here("report", copied / "out")
    assert refused.exit_code == 2
    assert "figures is a symbolic link instead of a directory" in refused.stderr
    assert snapshot(copied) == before
    figures.unlink()
    figures.mkdir()
    (figures / "periods.svg").write_text("mine")
    refused = here("report", copied / "out")
    assert refused.exit_code == 2
    assert "figures exists and contains other files ('periods.svg')" in refused.stderr
    assert (figures / "periods.svg").read_text() == "mine"


@pytest.mark.usefixtures("without_page")
def test_a_figure_that_became_a_link_or_a_folder_stays(copied):
    figure = copied / "out" / "figures" / "periods.svg"
    for replace_figure in (lambda: figure.symlink_to(copied / "g"), figure.mkdir):
        figure.unlink()
        replace_figure()
        before = snapshot(copied)
        assert here("report", copied / "out").exit_code == 2
        assert snapshot(copied) == before
        _files.remove(figure)
        figure.write_text("")


@pytest.mark.usefixtures("without_page")
def test_a_figure_that_the_user_changed_is_neither_replaced_nor_deleted(copied):
    figure = copied / "out" / "figures" / "periods.svg"
    figure.write_text("mine")
    refused = here("report", copied / "out")
    assert refused.exit_code == 2
    assert "contains other files ('periods.svg')" in refused.stderr
    assert figure.read_text() == "mine"


def test_an_evaluation_of_the_user_is_not_replaced(copied, graph):
    notes = copied / "out" / "evaluation.json"
    notes.write_text('{"mine": 1}')
    with pytest.raises(InputError, match=r"evaluation\.json"):
        evaluate(copied / "out", graph)
    assert notes.read_text() == '{"mine": 1}'


@pytest.mark.parametrize("name", ["summary.json", "predictions.csv"])
def test_a_continued_run_refuses_to_replace_a_changed_file(copied, graph, name):
    (copied / "out" / name).write_text("mine")
    with pytest.raises(InputError, match=f"{name} was not written by this run or was modified"):
        ig.run(graph, copied / "out", model="linear", candidates=["prior:plain"], folds=1, seeds=1)
    assert (copied / "out" / name).read_text() == "mine"


def test_predict_without_a_name_does_not_replace_a_file(copied, monkeypatch):
    monkeypatch.chdir(copied)
    assert here("predict", "out/model", "g").exit_code == 0
    (copied / "predictions.csv").write_text("mine")
    refused = here("predict", "out/model", "g")
    assert refused.exit_code == 2
    assert "predictions.csv exists; choose another file with --out" in refused.stderr
    assert (copied / "predictions.csv").read_text() == "mine"
    assert here("predict", "out/model", "g", "--out", "predictions.csv").exit_code == 0


def test_an_array_of_a_saved_graph_that_the_user_replaced_stays(copied, graph):
    file = next((copied / "g").rglob("x.npy"))
    np.save(file, np.zeros(3))
    with pytest.raises(InputError, match="contains other files"):
        graph.save(copied / "g")
    assert np.load(file).tolist() == [0, 0, 0]


def test_a_file_that_appears_where_a_folder_is_written_stays(tmp_path):
    with (
        pytest.raises((InputError, OSError)),
        storage.writing(tmp_path / "g", target="node", num_labels=2),
    ):
        (tmp_path / "g").write_text("mine")
    assert (tmp_path / "g").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["g"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_an_error_between_two_renames_leaves_the_old_state(tmp_path, monkeypatch, error):
    def save(text):
        with _files.atomic_directory(tmp_path / "model", _files.sealed_files) as temporary:
            (temporary / "weights").write_text(text)
            _files.seal_folder(temporary)

    save("old")
    replace_file = os.replace
    failed = []

    def fail_once(source, goal):
        if goal == tmp_path / "model" and not failed:
            failed.append(goal)
            raise error
        replace_file(source, goal)

    monkeypatch.setattr(os, "replace", fail_once)
    with pytest.raises(error):
        save("new")
    assert (tmp_path / "model" / "weights").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    save("new")
    (tmp_path / "model" / "thesis.txt").write_text("mine")
    with pytest.raises(InputError, match="contains other files"):
        save("newer")
    assert (tmp_path / "model" / "thesis.txt").read_text() == "mine"


def test_files_have_the_mode_that_the_user_asks_for(tmp_path):
    before = os.umask(0o077)
    try:
        _files.write_json(tmp_path / "new.json", 1)
        (tmp_path / "mine.json").write_text("1")
    finally:
        os.umask(before)
    _files.write_json(tmp_path / "mine.json", 2)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}


def test_a_lock_that_was_removed_meanwhile_does_not_let_two_in(tmp_path, monkeypatch):
    lock = tmp_path / _files.LOCK
    flock = _files._flock
    removed = []

    def flock_after_removal(handle):
        if not removed:
            removed.append(lock.unlink())
        return flock(handle)

    monkeypatch.setattr(_files, "_flock", flock_after_removal)
    with (
        _files.locked(tmp_path),
        pytest.raises(InputError, match="another process is working"),
        _files.locked(tmp_path),
    ):
        pass


def test_forgetting_a_result_deletes_a_file_only(tmp_path):
    with Store.open(tmp_path / "work", {}) as store:
        (tmp_path / "work" / "fit.json").mkdir()
        (tmp_path / "work" / "fit.json" / "notes.txt").write_text("mine")
        with pytest.raises(OSError, match=r"fit\.json"):
            store.forget("fit")
    assert (tmp_path / "work" / "fit.json" / "notes.txt").read_text() == "mine"


def test_a_report_that_cannot_be_written_leaves_the_list_of_figures(copied):
    before = snapshot(copied / "out" / "figures")
    (copied / "out" / "report.html").unlink()
    (copied / "out" / "report.html").symlink_to(copied / "elsewhere.html")
    assert here("report", copied / "out").exit_code == 2
    assert snapshot(copied / "out" / "figures") == before


def test_a_graph_toml_that_is_saved_meanwhile_stays(tmp_path, monkeypatch):
    (tmp_path / "nodes.csv").write_text("id,time,label\n1,1,a\n2,2,b\n3,3,\n")
    (tmp_path / "edges.csv").write_text("source,target\n1,2\n2,3\n")
    from impact_gnn.data import files

    guess = files.first_toml

    def guess_slowly(folder):
        (tmp_path / "graph.toml").write_text("# mine")
        return guess(folder)

    monkeypatch.setattr(files, "first_toml", guess_slowly)
    assert here("init", tmp_path).exit_code == 2
    assert (tmp_path / "graph.toml").read_text() == "# mine"


# -- names and links that lead out of a folder


def test_models_and_graphs_are_not_read_through_links_or_pipes(copied):
    for folder, name, load in (
        (copied / "out" / "model", "*.safetensors", ig.Ensemble.load),
        (copied / "g", "x.npy", ig.load),
    ):
        file = next(folder.rglob(name))
        file.rename(copied / "elsewhere")
        file.symlink_to(copied / "elsewhere")
        with pytest.raises(InputError, match="is a symbolic link instead of a file"):
            load(folder)
        file.unlink()
        os.mkfifo(file)
        with pytest.raises(InputError, match="is a pipe instead of a file"):
            load(folder)


@pytest.mark.parametrize("name", ["..", "inner/.."])
def test_a_path_without_a_name_of_its_own_deletes_nothing(tmp_path, graph, monkeypatch, name):
    inside = tmp_path / "around" / "cwd"
    (inside / "inner").mkdir(parents=True)
    (inside / "thesis.txt").write_text("mine")
    monkeypatch.chdir(inside)
    before = snapshot(tmp_path)
    with pytest.raises(InputError, match="contains other files"):
        graph.save(name)
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize(
    "name", ["...impact-0123456789abcdef.tmp", ".scratch.impact-0123456789abcdef.tmp"]
)
def test_a_folder_that_only_looks_temporary_empties_nothing(tmp_path, name):
    (tmp_path / "work" / name).mkdir(parents=True)
    (tmp_path / "work" / name / ".impact-gnn-temporary-0123456789abcdef").touch()
    (tmp_path / "work" / "notes.txt").write_text("mine")
    (tmp_path / "work" / name / "notes.txt").write_text("mine")
    before = snapshot(tmp_path)
    _files.sweep(tmp_path / "work")
    assert snapshot(tmp_path) == before


def test_what_a_user_saves_while_we_write_is_not_deleted(tmp_path, graph):
    graph.save(tmp_path / "g")

    def save_while_a_user_writes():
        with _files.atomic_directory(tmp_path / "g", storage._own_files) as temporary:
            (temporary / "new").write_text("ours")
            (tmp_path / "g" / "mine.txt").write_text("mine")

    with pytest.raises(InputError, match="contains other files"):
        save_while_a_user_writes()
    assert (tmp_path / "g" / "mine.txt").read_text() == "mine"
    assert ig.load(tmp_path / "g").num_nodes == graph.num_nodes


def test_results_are_not_stored_through_a_link(tmp_path):
    (tmp_path / "outside").mkdir()
    with Store.open(tmp_path / "store", {"a": 1}) as store:
        (tmp_path / "store" / "fits").symlink_to(tmp_path / "outside")
        for put in (lambda: store.put("fits/x", 1), lambda: store.put_array("fits/x", np.ones(2))):
            with pytest.raises(InputError, match="fits is a symbolic link"):
                put()
    assert not list((tmp_path / "outside").iterdir())


def test_the_lock_is_not_created_behind_a_link(tmp_path):
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / _files.LOCK).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="is a symbolic link"), _files.locked(tmp_path / "store"):
        pass
    assert not (tmp_path / "elsewhere").exists()


def test_a_list_in_a_file_does_not_delete_what_we_cannot_have_written(tmp_path, graph):
    graph.save(tmp_path / "g")
    thesis, manifest = tmp_path / "g" / "thesis.docx", tmp_path / "g" / "manifest.json"
    thesis.write_text("mine")
    content = json.loads(manifest.read_text())["content"]
    content["arrays"]["thesis.docx"] = {}
    _files.write_json(manifest, content, sealed=True)
    with pytest.raises(InputError, match="contains other files"):
        graph.save(tmp_path / "g")
    _files.write_json(manifest, content | {"version": 2})  # an older form has no seal
    with pytest.raises(InputError, match="contains other files"):
        graph.save(tmp_path / "g")
    assert thesis.read_text() == "mine"


def test_a_file_of_a_model_that_the_user_changed_is_not_replaced(done, tmp_path):
    shutil.copytree(done / "out" / "model", tmp_path / "model")
    (tmp_path / "model" / "README.md").write_text("mine")
    with pytest.raises(InputError, match="contains other files"):
        ig.Ensemble.load(done / "out" / "model").save(tmp_path / "model")
    assert (tmp_path / "model" / "README.md").read_text() == "mine"


def test_a_pipe_instead_of_columns_does_not_hang(tmp_path):
    nodes = {"id": ["a", "b"], "time": [1, 2], "size": [1.5, 2.5], "label": ["x", "y"]}
    table = ig.from_tables(nodes, {"source": ["a"], "target": ["b"]}, quiet=True)
    table.save(tmp_path / "g")
    (columns,) = (tmp_path / "g").rglob("columns.arrow")
    columns.unlink()
    os.mkfifo(columns)
    with pytest.raises(InputError, match=r"columns\.arrow"):
        ig.load(tmp_path / "g", verify=True)


def test_clearing_a_scratch_removes_only_what_engines_wrote(tmp_path, graph):
    scratch, engine = tmp_path / "scratch", Disk(tmp_path / "scratch")
    ig.propagate(graph, weighting="pmp", hops=1, engine=engine)
    ig.propagate(graph, weighting="pmp", hops=1, engine=engine.child("fit"))
    (scratch / "graphs").mkdir(exist_ok=True)
    (scratch / "graphs" / "thesis.txt").write_text("mine")
    engine.clear()
    assert [path.name for path in scratch.rglob("*")] == ["graphs", "thesis.txt"]


def test_a_scratch_is_not_cleared_through_links_nor_while_another_works(tmp_path, graph):
    victim, engine = Disk(tmp_path / "victim"), Disk(tmp_path / "scratch")
    ig.propagate(graph, hops=1, engine=victim)
    ig.propagate(graph, hops=1, engine=engine)
    before = snapshot(tmp_path / "victim")
    (tmp_path / "scratch" / "children").mkdir(exist_ok=True)
    (tmp_path / "scratch" / "children" / "fit").symlink_to(tmp_path / "victim")
    with _files.locked(tmp_path / "scratch"):
        locked = snapshot(tmp_path / "scratch")
        Disk(tmp_path / "scratch").clear()
        assert snapshot(tmp_path / "scratch") == locked
    with pytest.raises(InputError, match="is a symbolic link"):
        ig.propagate(graph, hops=2, engine=engine.child("fit"))
    engine.clear()
    assert snapshot(tmp_path / "victim") == before


def test_hops_are_not_written_through_a_link(tmp_path, graph):
    engine = Disk(tmp_path / "scratch")
    ig.propagate(graph, hops=1, engine=engine)
    (tmp_path / "outside").mkdir()
    (tmp_path / "scratch" / "hops" / ("0" * 24)).symlink_to(tmp_path / "outside")
    with pytest.raises(InputError, match="is a symbolic link in a folder of the engine"):
        ig.propagate(graph, hops=2, engine=engine)


# -- temporary names


def test_siblings_with_names_like_ours_are_left_alone(copied, graph):
    token = "0123456789abcdef"
    mine = [
        f"{name}{end}" for name in ("fresh", "p.csv") for end in (".tmp-backup", ".tmp-mine-old")
    ]
    mine += [f"{name}.impact-{token}.tmp" for name in ("fresh", "p.csv")]
    mine += ["gr2.tmp-mine-old", f"gr2.impact-{token}.tmp"]
    for name in mine:
        (copied / name / "inner").mkdir(parents=True)
        (copied / name / "thesis.txt").write_text("years of work")
    (copied / "p.csv.tmp-copy").write_text("mine")
    before = snapshot(copied)
    graph.save(copied / "fresh")
    model = copied / "out" / "model"
    assert here("predict", model, copied / "g", "--out", copied / "p.csv").exit_code == 0
    assert here("check", copied / "gr2").exit_code == 2
    after = snapshot(copied)
    assert {name: after[name] for name in before} == before
    assert {name.split("/")[0] for name in after.keys() - before} == {"fresh", "p.csv"}


def test_what_a_killed_writer_left_is_removed_by_the_next(tmp_path, graph):
    for directory, name in ((True, "g"), (False, "t.json")):
        left = tmp_path / f"{name}.impact-{'a' * 16}.tmp"
        (left / name).mkdir(parents=True) if directory else left.mkdir()
        (left / f".impact-gnn-temporary-{'a' * 16}").touch()
        (tmp_path / f"{name}.impact-{'b' * 16}.tmp").mkdir()  # killed before it was marked
    graph.save(tmp_path / "g")
    _files.write_json(tmp_path / "t.json", 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["g", "t.json"]


def test_reading_a_replacement_that_was_cut_off_changes_nothing(tmp_path, graph):
    graph.save(tmp_path / "g")
    left = tmp_path / f"g.impact-{'a' * 16}.tmp"
    left.mkdir()
    (left / f".impact-gnn-temporary-{'a' * 16}").touch()
    (tmp_path / "g").rename(left / ".impact-gnn-replaced")
    before = snapshot(tmp_path)
    assert here("check", tmp_path / "g").exit_code == 0
    assert snapshot(tmp_path) == before
    with (
        pytest.raises(ZeroDivisionError),
        _files.atomic_directory(tmp_path / "g", lambda path: None),
    ):
        raise ZeroDivisionError  # a writer restores it in any case
    assert [path.name for path in tmp_path.iterdir()] == ["g"]
    assert ig.load(tmp_path / "g", verify=True).num_nodes == graph.num_nodes


# -- scratch, and what stands where a result should go


@pytest.mark.usefixtures("without_page")
def test_a_run_uses_a_folder_of_its_own_in_a_scratch_that_others_use(copied):
    scratch = copied / "mine"
    (scratch / "hops").mkdir(parents=True)
    (scratch / "hops" / "thesis.txt").write_text("years of work")
    before = snapshot(scratch)
    words = ["run", copied / "g", "--out", copied / "new", *QUICK, "--scratch", scratch]
    assert here(*words, "--engine", "disk").exit_code == 0
    assert snapshot(scratch) == before


@pytest.mark.usefixtures("without_page")
def test_folders_of_users_in_scratch_are_refused_and_stay(copied):
    scratch = copied / "new.scratch"
    for name in ("hops", "edges", "children"):
        (scratch / name).mkdir(parents=True)
        (scratch / name / "thesis.txt").write_text("years of work")
    before = snapshot(copied)
    words = ["run", copied / "g", "--out", copied / "new", *QUICK]
    refused = here(*words, "--engine", "disk")
    assert refused.exit_code == 2
    assert "contains other files (children, edges, hops)" in refused.stderr
    assert snapshot(copied) == before
    Disk(scratch).clear()
    Disk(scratch).child("fit").clear()
    assert snapshot(copied) == before
    assert here(*words).exit_code == 0  # an engine in memory needs no scratch
    after = snapshot(copied)
    assert {name: after[name] for name in before} == before


def odd_entries(place):
    """A link to a file, to a folder and to nothing, a pipe, a socket."""
    target = place / "target"
    target.mkdir()
    (target / "file").write_text("mine")
    for name, goal in (("link", target / "file"), ("folder", target), ("nothing", place / "no")):
        (place / name).symlink_to(goal)
        yield place / name
    os.mkfifo(place / "pipe")
    yield place / "pipe"
    with socketserver.UnixStreamServer(str(place / "socket"), socketserver.BaseRequestHandler):
        yield place / "socket"


def test_links_pipes_and_sockets_are_not_replaced(done, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # names of sockets are short
    monkeypatch.setattr("impact_gnn.cli.options.TableOptions.read", None)  # nothing is read before
    monkeypatch.setattr("impact_gnn.Ensemble.load", None)
    monkeypatch.setattr("impact_gnn.data.files.read", None)
    for odd in odd_entries(tmp_path):
        before = snapshot(tmp_path)
        for words in (
            ["check", done / "g", "--json", odd],
            ["predict", done / "out" / "model", done / "g", "--out", odd],
            ["convert", done / "g", "--out", odd],
            ["generate", "--out", odd, "--nodes", "100"],
        ):
            refused = here(*words)
            assert refused.exit_code == 2, (words, refused.stderr)
            assert "instead of a " in refused.stderr
            assert snapshot(tmp_path) == before
    assert here("check", done / "g", "--json", "/dev/null").exit_code == 2


def test_files_of_users_in_a_saved_folder_are_not_dropped(copied, graph):
    model = ig.Ensemble.load(copied / "out" / "model")
    for folder, save in ((copied / "g", graph.save), (copied / "out" / "model", model.save)):
        save(folder)  # over itself
        for mine in (folder / "notes.txt", folder / "nodes" / "mine"):
            mine.parent.mkdir(exist_ok=True)
            mine.write_text("mine")
            before = snapshot(copied)
            with pytest.raises(
                InputError, match=rf"contains other files \('(nodes/)?{mine.name}'\)|'nodes'"
            ):
                save(folder)
            assert snapshot(copied) == before
            mine.unlink()


# -- evaluate


@pytest.mark.usefixtures("without_page")
def test_ids_that_differ_in_white_space_are_different(copied):
    out = copied / "out"
    summary = read_summary(out / "summary.json")
    table = read_table(out / "predictions.csv").to_pandas()
    ids = [" n", "n\n", *(f"n{one}" for one in table["id"][2:])]
    write_table(table.assign(id=ids), out / "predictions.csv")
    classes = list(summary.prediction_summary.labels)
    rows = {"id": [ids[0], ids[1], *ids[2:4]], "label": [classes[0], classes[1], *classes[:2]]}
    pd.DataFrame(rows).to_csv(copied / "labels.csv", index=False)
    evaluation = evaluate(out, copied / "labels.csv")
    assert evaluation.count == 4
    predicted = table["label"].astype(str)[:4].tolist()
    right = [a == b for a, b in zip(predicted, rows["label"], strict=True)]
    assert evaluation.accuracy.value == pytest.approx(sum(right) / 4)


@pytest.mark.parametrize("text", ["", "\n", '"id"\n', "id,label\n", "\x00", '"id","time"\n1,2\n'])
def test_a_spoilt_table_of_predictions_is_one_sentence(copied, text):
    (copied / "out" / "predictions.csv").write_text(text)
    refused = here("evaluate", copied / "out", copied / "g")
    assert refused.exit_code == 2
    assert "predictions.csv" in refused.stderr


@pytest.mark.parametrize("name", ["../secret.csv", "/etc/passwd", "..", "", "a/b.csv", "p.txt"])
def test_a_summary_names_no_file_outside_its_folder(copied, name):
    summary = read_summary(copied / "out" / "summary.json")
    odd = replace(summary, prediction_summary=replace(summary.prediction_summary, file=name))
    write_summary(odd, copied / "out" / "summary.json")
    (copied / "secret.csv").write_text("id\n1\n")
    refused = here("evaluate", copied / "out", copied / "g")
    assert refused.exit_code == 2
    assert "which is not a plain file name" in refused.stderr


def test_a_table_of_predictions_behind_a_link_is_not_read(copied):
    table = copied / "out" / "predictions.csv"
    table.rename(copied / "elsewhere.csv")
    table.symlink_to(copied / "elsewhere.csv")
    refused = here("evaluate", copied / "out", copied / "g")
    assert refused.exit_code == 2
    assert "is a symbolic link" in refused.stderr


# -- databases


def test_views_of_a_duckdb_file_read_no_other_file(tmp_path):
    (tmp_path / "secret.csv").write_text("id,time,label\n1,2,3\n")
    path = tmp_path / "g.db"
    views = [
        f"read_csv('{tmp_path}/secret.csv')",
        f"glob('{tmp_path}/*')",
        f"'{tmp_path}/secret.csv'",
    ]
    with duckdb.connect(str(path)) as connection:
        connection.execute("create table edges as select 1 as source, 1 as target")
        for number, view in enumerate(views):
            connection.execute(f"create view nodes{number} as select * from {view}")
    before = snapshot(tmp_path)
    for address in (f"duckdb:{path}", f"duckdb:///{path}"):
        sources = database(address)
        for number in range(len(views)):
            with pytest.raises(InputError, match=r"nodes\d cannot be read \(Permission Error"):
                _ = sources[f"nodes{number}"].table
            with pytest.raises(InputError, match=r"nodes\d cannot be read \(Permission Error"):
                list(sources[f"nodes{number}"].batches())
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize(
    "form",
    [
        "sqlite:///{}",
        "sqlite+pysqlite:///{}",
        "sqlite:///file:{}?uri=true",
        "sqlite:///file:{}?mode=rwc&uri=true",
        "sqlite:///{}?timeout=3",
    ],
)
def test_addresses_of_sqlite_create_no_file(tmp_path, form, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for missing in ("no.db", f"{tmp_path}/no.db"):
        with pytest.raises(InputError, match=r"no\.db does not exist"):
            database(form.format(missing))
    for mode in ("delete", "wal"):
        with sqlite3.connect(tmp_path / f"{mode}.db") as connection:
            connection.execute(f"pragma journal_mode={mode}")
            connection.execute("create table nodes (id integer)")
            connection.execute("insert into nodes values (7)")
        connection.close()
        before = snapshot(tmp_path)
        for name in (f"{mode}.db", f"{tmp_path}/{mode}.db"):
            assert database(form.format(name))["nodes"].table.to_pydict() == {"id": [7]}
        assert snapshot(tmp_path) == before


@pytest.mark.parametrize("address", ["sqlite://", "sqlite:///:memory:", "sqlite:///"])
def test_an_address_of_sqlite_without_a_file_is_refused(tmp_path, address, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="does not exist; pass sqlite:///FILE"):
        database(address)
    assert not list(tmp_path.iterdir())


# -- what must not be printed


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://ann:s3cret@127.0.0.1:1/db",
        "postgresql+nodriver://ann:s3cret@host/db",
        "mysql://ann:p@s3cret/x@host/db",
        "nothing://ann:s3cret@h/db?password=s3cret2",
        "nothing://h/db?user=ann&password=s3cret",
        "postgresql://ann:s3cret a b@[::1/db",
        "sqlite://ann:s3cret@/nowhere.db",
    ],
)
def test_passwords_are_masked(tmp_path, address, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for words in (["check"], ["init"], ["run"], ["convert", "--out", tmp_path / "c"]):
        refused = here(words[0], address, *words[1:])
        assert refused.exit_code == 2, refused.stderr
        assert "s3cret" not in refused.stderr + refused.stdout
    assert "s3cret" not in mask_passwords(address, is_address=True)
    assert "s3cret" not in str(InputError(f"{address.replace(' a b', '')} is down."))


def test_the_password_of_a_run_is_in_none_of_its_files(graph, tmp_path):
    command = "impact run postgresql://ann:s3cret@host/db --out x"
    options = {"model": "linear", "candidates": ["prior:plain"], "folds": 1, "seeds": 1}
    summary = ig.run(graph, tmp_path / "out", command=command, **options)
    assert summary.command == "impact run postgresql://ann:***@host/db --out x"
    for file in (tmp_path / "out").rglob("*"):
        assert not file.is_file() or b"s3cret" not in file.read_bytes(), file


@pytest.mark.usefixtures("without_page")
def test_control_characters_in_names_do_not_reach_the_terminal(tmp_path):
    escape = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e"
    ids = [f"n{k}" for k in range(12)]
    nodes = {
        "id": ids,
        "time": [k // 3 for k in range(12)],
        "label": [f"{escape}{k % 2}" for k in range(12)],
    }
    table = pa.table(
        nodes | {f"col{escape}": [float(k) for k in range(12)], f"x{escape}": ["a"] * 12}
    )
    pa.parquet.write_table(table, tmp_path / "nodes.parquet")
    pd.DataFrame({"source": ids[1:], "target": ids[:-1]}).to_csv(
        tmp_path / "edges.csv", index=False
    )
    for words in (
        ["check", tmp_path],
        ["run", tmp_path, "--out", tmp_path / escape, *QUICK],
        ["check", tmp_path / escape],
        ["--verbose", "diagnose", tmp_path],
    ):
        done = here(*words)
        assert not {"\x1b", "\x07", "\x9b", "\u202e"} & {*done.stdout, *done.stderr}, words


def test_a_name_of_a_column_adds_nothing_to_a_toml(tmp_path):
    odd = 'a"]\n[nodes.evil]\nfile = "x"\r#\x00\x7f'
    struct = pa.array([{odd: 1}] * 9)
    columns = {"id": range(9), "time": [k // 3 for k in range(9)], "label": ["a", "b", "a"] * 3}
    table = pa.table({**{name: list(v) for name, v in columns.items()}, odd: struct})
    pa.parquet.write_table(table, tmp_path / "nodes.parquet")
    pd.DataFrame({"source": range(8), "target": range(1, 9)}).to_csv(
        tmp_path / "edges.csv", index=False
    )
    assert here("init", tmp_path).exit_code == 0
    content = tomllib.loads((tmp_path / "graph.toml").read_text())
    assert list(content["nodes"]) == ["node"]
    assert content["nodes"]["node"]["columns"] == {odd: "ignore"}


def test_text_that_a_spreadsheet_would_run_is_guarded_behind_white_space(tmp_path):
    odd = [
        "=1",
        "\n=1",
        " \t-x",
        "\u00a0@x",
        "\r+x",
        "\ufeff=1",
        "＝1",
        "'=1",
        "'\n=1",
        "\t",
        "-5",
        " a",
    ]
    write_table({"id": odd}, tmp_path / "t.csv")
    raw = pa.csv.read_csv(
        tmp_path / "t.csv", parse_options=pa.csv.ParseOptions(newlines_in_values=True)
    )["id"].to_pylist()
    assert raw == [*(f"'{one}" for one in odd[:-2]), *odd[-2:]]
    assert read_table(tmp_path / "t.csv")["id"].to_pylist() == odd


# -- a cluster that is none


def test_a_web_server_is_no_scheduler():
    class Silent(socketserver.BaseRequestHandler):
        def handle(self):
            self.server.answer(self.request)

    def hold(request):
        while request.recv(1000):
            pass

    for answer in (hold, lambda request: request.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")):
        with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Silent) as server:
            server.daemon_threads, server.answer = True, answer
            threading.Thread(target=server.serve_forever, daemon=True).start()
            with pytest.raises(InputError, match="no scheduler answers at tcp://127"):
                connected(f"tcp://127.0.0.1:{server.server_address[1]}", patience=2)
            server.shutdown()


def test_a_report_without_old_figures_is_drawn(copied):
    shutil.rmtree(copied / "out" / "figures")
    write_report(read_summary(copied / "out" / "summary.json"), copied / "out" / "report.html")
    names = {path.name for path in (copied / "out" / "figures").iterdir()}
    listed = json.loads((copied / "out" / "figures" / _files.SUMS).read_text())["content"]
    assert names == {*listed, _files.SUMS}


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://ann@corp:s3cret@host/db",
        "mssql+pyodbc:///?odbc_connect=Driver={ODBC Driver 18};UID=u;PWD=s3cret",
        "postgresql://host/db?user=u&password=my s3cret",
        "impala://host/?auth=s3cret&pw=s3cret",
        "sqlite://u:my s3cret@/a.db",
    ],
)
def test_passwords_with_spaces_and_signs_are_masked(address):
    assert "s3cret" not in mask_passwords(address, is_address=True)
    assert "s3cret" not in here("init", address).output


def test_changes_of_a_private_memory_map_are_not_lost(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((4, 2)))
    x = np.load(tmp_path / "x.npy", mmap_mode="c")
    x[:] = 7
    graph = ig.TemporalGraph(x=x, y=[0, 1, 0, -1], time=[0, 1, 2, 3], edge_index=[[0], [1]])
    graph.save(tmp_path / "g")
    assert (x == 7).all()
    assert (ig.load(tmp_path / "g").x == 7).all()


def test_clearing_a_child_does_not_follow_a_linked_folder(tmp_path):
    outside = tmp_path / "outside" / "fit"
    (outside / "edges" / ("a" * 24)).mkdir(parents=True)
    (outside / _files.LOCK).touch()
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / _files.LOCK).touch()
    (tmp_path / "a" / "children").symlink_to(tmp_path / "outside")
    before = snapshot(tmp_path)
    Disk(tmp_path / "a").child("fit").clear()
    assert snapshot(tmp_path) == before


def test_features_that_a_cluster_needed_are_cleared(tmp_path, graph):
    engine = Disk(tmp_path / "s")
    ig.propagate(graph, weighting="pmp", hops=1, engine=engine)
    (tmp_path / "s" / "arrays").mkdir()
    np.save(
        tmp_path / "s" / "arrays" / f"{'b' * 24}.npy", np.zeros(3)
    )  # as workers of Dask read it
    engine.clear()
    assert not list((tmp_path / "s").iterdir())


@pytest.mark.parametrize("linked", [False, True])
def test_sqlite_with_a_log_of_a_killed_writer_is_refused(tmp_path, linked):
    file = tmp_path / "real.db"
    writer = sqlite3.connect(file)
    writer.execute("pragma journal_mode=wal")
    writer.execute("create table t(a)")
    writer.execute("insert into t values (42)")
    writer.commit()
    (tmp_path / "copy.db").write_bytes(file.read_bytes())
    (tmp_path / "copy.db-wal").write_bytes((tmp_path / "real.db-wal").read_bytes())
    writer.close()
    name = tmp_path / "copy.db"
    if linked:
        (tmp_path / "links").mkdir()
        name = tmp_path / "links" / "link.db"
        name.symlink_to(tmp_path / "copy.db")
    before = snapshot(tmp_path)
    with pytest.raises(InputError, match="was not closed by its last writer"):
        database(f"sqlite:///{name}")
    assert snapshot(tmp_path) == before


def test_reading_duckdb_writes_nothing_next_to_the_file(tmp_path, monkeypatch):
    connection = duckdb.connect(str(tmp_path / "b.duckdb"))
    connection.execute("create table t as select random() a, range::varchar b from range(1000000)")
    connection.execute("create view v as select * from t order by a")
    connection.close()
    connect = duckdb.connect

    def with_little_memory(*args, config, **options):
        return connect(*args, config=config | {"memory_limit": "20MB", "threads": "1"}, **options)

    monkeypatch.setattr(duckdb, "connect", with_little_memory)
    batches = database(f"duckdb:{tmp_path / 'b.duckdb'}")["v"].batches()
    next(batches)
    assert [path.name for path in tmp_path.iterdir()] == ["b.duckdb"]


def test_a_table_that_is_saved_while_predictions_are_computed_stays(copied, graph, monkeypatch):
    job = importlib.import_module("impact_gnn.job.run")

    path = copied / "out" / "predictions.csv"
    write = job.write_predictions

    def write_slowly(*args, **options):
        path.write_text("mine")
        return write(*args, **options)

    monkeypatch.setattr(job, "write_predictions", write_slowly)
    with pytest.raises(InputError, match="was modified since; move it away"):
        ig.run(graph, copied / "out", model="linear", candidates=["prior:plain"], folds=1, seeds=1)
    assert path.read_text() == "mine"


def interrupted(*args, **options):
    raise KeyboardInterrupt


def test_an_interrupted_prediction_does_not_make_a_changed_table_ours(copied, graph, monkeypatch):
    job = importlib.import_module("impact_gnn.job.run")

    options = {"model": "linear", "candidates": ["prior:plain"], "folds": 1, "seeds": 1}
    with monkeypatch.context() as patch:
        patch.setattr(job, "write_predictions", interrupted)
        with pytest.raises(KeyboardInterrupt):
            ig.run(graph, copied / "out", **options)
    (copied / "out" / "predictions.csv").write_text("mine")
    with pytest.raises(InputError, match="was modified since; move it away"):
        ig.run(graph, copied / "out", **options)


def test_an_array_that_is_changed_while_we_write_stays(copied, graph):
    labels = next((copied / "g").rglob("y.npy"))
    with (
        pytest.raises(InputError, match="contains other files"),
        storage.writing(copied / "g", target="node", num_labels=2),
    ):
        np.save(labels, np.zeros(3))
    assert np.load(labels).tolist() == [0, 0, 0]


def test_what_appears_at_the_goal_between_two_renames_costs_nothing(tmp_path, monkeypatch):
    def save(text):
        with _files.atomic_directory(tmp_path / "model", _files.sealed_files) as temporary:
            (temporary / "weights").write_text(text)
            _files.seal_folder(temporary)

    save("old")
    rename = os.replace

    def rename_with_a_user(source, goal):
        rename(source, goal)
        if source == tmp_path / "model":
            source.mkdir()
            (source / "thesis.txt").write_text("mine")

    monkeypatch.setattr(os, "replace", rename_with_a_user)
    with pytest.raises(OSError, match="not empty"):
        save("new")
    monkeypatch.undo()
    assert (tmp_path / "model" / "thesis.txt").read_text() == "mine"
    assert [path.read_text() for path in tmp_path.rglob("weights")].count("old") == 1


def test_a_folder_that_only_the_owner_may_read_stays_so(copied, graph):
    (copied / "g").chmod(0o700)
    graph.save(copied / "g")
    assert (copied / "g").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("name", ["a.db-wal", "a.db-journal", "a.duckdb.wal"])
def test_pipes_next_to_a_database_are_refused(tmp_path, name):
    sqlite3.connect(tmp_path / "a.db").close()
    duckdb.connect(str(tmp_path / "a.duckdb")).close()
    os.mkfifo(tmp_path / name)
    address = {"a.db": f"sqlite:///{tmp_path}/a.db", "a.du": f"duckdb:{tmp_path}/a.duckdb"}
    with pytest.raises(InputError, match="is a pipe, a socket or a device"):
        database(address[name[:4]])


def test_every_option_of_an_address_is_masked():
    masked = mask_passwords("bigquery://p/d?credentials_base64=c2VjcmV0&sas=x", is_address=True)
    assert masked == "bigquery://p/d?credentials_base64=***&sas=***"
