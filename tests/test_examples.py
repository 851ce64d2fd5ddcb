"""The shipped examples.

Tables equal their generators' output, the command line and the notebook run.
"""

import csv
import importlib.util
import shutil
from pathlib import Path

import nbclient
import nbformat
import pytest

import impact_gnn as ig
from commands import here

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
SMALL = 500_000  # bytes of a folder
RUN = ["--candidates", "plain,labels", "--model", "linear", "--folds", "1", "--seeds", "1"]
FAST = 'candidates=["labels"], model="linear", folds=1, seeds=1'


def impact(*arguments, **options):
    """The output of a command that succeeds."""
    done = here(*arguments, **options)
    assert done.exit_code == 0, done.output
    return done.stdout


def rows(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("name", ["articles", "transfers"])
def test_tables_are_small_and_what_the_generator_writes(name, tmp_path):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / name / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.HERE = tmp_path
    module.main()
    tables = sorted((EXAMPLES / name).glob("*.csv"))
    assert [path.name for path in tables] == sorted(path.name for path in tmp_path.iterdir())
    assert all(path.read_bytes() == (tmp_path / path.name).read_bytes() for path in tables)
    assert sum(path.stat().st_size for path in tables) < SMALL


def test_labels_of_the_examples_are_as_the_pages_say():
    articles, transfers = ig.load(EXAMPLES / "articles"), ig.load(EXAMPLES / "transfers")
    assert articles.name_of(articles.infer_cutoff()) == "2021-Q3"
    assert transfers.name_of(transfers.infer_cutoff()) == "2021-Q4"
    fraud = (transfers.y == transfers.label_names.index("yes")).sum() / (transfers.y >= 0).sum()
    assert 0.05 < fraud < 0.09


@pytest.mark.parametrize(
    ("name", "nodes", "periods", "options"),
    [
        ("articles", "articles.csv", {"2021-Q3", "2021-Q4"}, []),
        ("transfers", "accounts.csv", {"2021-Q4"}, ["--metric", "average-precision"]),
    ],
)
def test_an_example_runs_and_is_predicted_again(name, nodes, periods, options, tmp_path):
    out = tmp_path / "out"
    output = impact("run", EXAMPLES / name, *RUN, *options, out=out)
    assert "Predictions:" in output
    predicted = rows(out / "predictions.csv")
    unknown = [
        row
        for row in rows(EXAMPLES / name / nodes)
        if not (row.get("topic") or row.get("is_fraud"))
    ]
    assert {row["time"] for row in predicted} == periods
    assert {row["id"] for row in predicted} <= {row["id"] for row in unknown}
    assert (out / "report.html").stat().st_size > 10_000
    impact("predict", out / "model", EXAMPLES / name, "--out", tmp_path / "again.csv")
    assert rows(tmp_path / "again.csv") == predicted


def test_the_notebook_runs_and_ends_with_the_report(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))  # for the kernel
    notebook = nbformat.read(EXAMPLES / "articles.ipynb", as_version=4)
    nbformat.validate(notebook)
    assert (EXAMPLES / "articles.ipynb").stat().st_size < 1_500_000
    stored = notebook.cells[-1].outputs[0].data["text/html"]
    shutil.copytree(EXAMPLES / "articles", tmp_path / "examples" / "articles")
    slow = [cell for cell in notebook.cells if 'effort="quick"' in cell.source]
    assert len(slow) == 1
    slow[0].source = slow[0].source.replace('effort="quick"', FAST)
    client = nbclient.NotebookClient(
        notebook, timeout=300, resources={"metadata": {"path": str(tmp_path / "examples")}}
    )
    client.execute()
    displayed = notebook.cells[-1].outputs[0].data["text/html"]
    assert all(
        html.startswith('<iframe srcdoc="&lt;!doctype html&gt;') for html in (stored, displayed)
    )
    assert (tmp_path / "out" / "articles-notebook" / "report.html").exists()
