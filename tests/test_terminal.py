"""The terminal: progress bars, lines, help, and a quick start."""

import io
import itertools
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from commands import here
from impact_gnn import _progress
from impact_gnn._progress import Terminal
from impact_gnn.cli import app
from impact_gnn.cli.common import SafeConsole

ROOT = Path(__file__).resolve().parents[1]
COMMANDS = get_command(app).commands


@pytest.fixture
def clock(monkeypatch):
    """Every look at the clock takes a second."""
    monkeypatch.setattr(_progress, "clock", SimpleNamespace(monotonic=itertools.count().__next__))


def console_on(file, environ=(), **options):
    return SafeConsole(file=file, width=100, _environ={"TERM": "xterm", **dict(environ)}, **options)


def test_bars_that_are_over_are_gone_and_lines_stand_above(clock):
    file = io.StringIO()

    def drawn_below():
        """Everything that is drawn below a line."""
        terminal._bars.refresh()  # which a thread does ten times a second
        file.seek(0)
        file.truncate()
        terminal.say("now")
        line, _, below = file.getvalue().partition("now")
        return below if line.count("\n") == 0 else pytest.fail(line)

    with Terminal(console_on(file, force_terminal=True)) as terminal:
        terminal("back-test", 1, 4, "first")
        terminal("propagating", 0, 0)
        terminal("propagating", 1, 0)
        assert "back-test" in drawn_below()
        assert "propagating" in drawn_below()
        terminal("back-test", 2, 4, "second")  # the inner stage failed without a last event
        below = drawn_below()
        assert "propagating" not in below
        assert "50%, 3 s left, second" in below
        terminal("back-test", 4, 4)
        assert drawn_below().strip() == ""
        terminal("fit", 0, 4)
    assert terminal._stages == {}
    # the line is clear, the cursor back
    assert file.getvalue().rstrip().endswith("\x1b[2K\x1b[?25h")


def test_long_lines_are_broken_at_words_and_aligned_on_a_terminal_only():
    line = "pmp  weighting  neighbours are weighted by time " + "and so on " * 12
    file, pipe = io.StringIO(), io.StringIO()
    console_on(file, force_terminal=True).print(line)
    console_on(pipe).print(line)
    first, second = file.getvalue().splitlines()
    assert first.startswith("pmp  weighting  neighbours")
    assert second.startswith(" " * len("pmp  weighting  ") + "and so on")
    assert pipe.getvalue().rstrip("\n") == line


@pytest.mark.parametrize(
    "options",
    [{}, {"force_terminal": True, "environ": {"TERM": "dumb"}}, {"environ": {"NO_COLOR": "1"}}],
)
def test_without_a_terminal_a_line_now_and_then_and_no_control_codes(clock, options):
    file = io.StringIO()
    with Terminal(console_on(file, **options)) as terminal:
        terminal.say("back-testing on the past")
        for done in range(61):
            terminal("back-test", done, 60, f"fit {done}")
    assert file.getvalue().splitlines() == [
        "back-testing on the past",
        "back-test: 33%, 40 s left, fit 20",
        "back-test: 67%, 20 s left, fit 40",
    ]


def test_no_colour_where_none_is_wanted():
    file = io.StringIO()
    with Terminal(console_on(file, force_terminal=True, environ={"NO_COLOR": "1"})) as terminal:
        terminal("fit", 1, 4)
        terminal.say("now")
    assert "fit" in file.getvalue()
    assert "\x1b[3" not in file.getvalue()


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["run", "--help"]])
def test_help_and_version_load_no_library(arguments):
    heavy = "{'numpy', 'scipy', 'numba', 'pyarrow', 'narwhals', 'pandas', 'torch'}"
    code = f"""
import sys
from impact_gnn.cli import app
from impact_gnn.cli.common import SafeConsole
try:
    app({arguments!r})
except SystemExit as end:
    assert not end.code
print(sorted({heavy} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_help_has_an_example_that_can_be_typed(name):
    output = CliRunner().invoke(app, [name, "--help"] if name else ["--help"]).stdout
    _, _, example = output.partition("Example: ")
    program, command, *arguments = shlex.split(example)
    assert (program, command) == ("impact", name or "run")
    # refuses unknown options
    with COMMANDS[command].make_context(command, list(arguments)) as context:
        assert context.params
    places = [one for one in arguments if one.startswith("examples/")]
    assert all((ROOT / place).exists() for place in places)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Tables without a graph.toml: everything must be guessed."""
    folder = tmp_path_factory.mktemp("tables") / "papers"
    folder.mkdir()
    rows = [
        f"p{i},{2010 + i // 30},{'ab'[i % 2] if i < 120 else ''},{i % 2 + i / 100}"
        for i in range(150)
    ]
    (folder / "nodes.csv").write_text("\n".join(["id,year,label,size", *rows]))
    edges = [f"p{i},p{(i * 7 + 3) % 150}" for i in range(150)]
    (folder / "edges.csv").write_text("\n".join(["source,target", *edges]))
    return folder


def impact(*arguments, **options):
    done = here(*arguments, **options)
    assert done.exit_code == 0, done.output
    return done


@pytest.mark.usefixtures("without_page")
def test_run_prints_its_guesses_and_how_to_change_them(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = impact("run", folder, candidates="linear:plain", folds=1, verbose=True)
    for words in (
        "time from 'year', label from 'label'",
        "these column roles are guessed; impact init writes them to a graph.toml",
        "cutoff 2014, the first period after the last label (--cutoff)",
        "metric accuracy (--metric), effort normal (--effort), output impact-run/papers (--out)",
        "  2013: linear:plain, loss ",
    ):
        assert words in done.stderr
    assert (tmp_path / "impact-run" / "papers" / "report.html").exists()
    expected = ["Selected", "Predictions", "Expected accuracy", "Do corrections", "Report"]
    expected.append("warning: 100.0% of the past labels were predicted")  # features tell all
    lines = [line for line in done.stdout.split("\n") if line]
    assert [line[: len(start)] for line, start in zip(lines, expected, strict=True)] == expected
    quiet = impact("--quiet", "run", folder, candidates="linear:plain", folds=1)
    assert (quiet.stdout, quiet.stderr) == (done.stdout, "")


def test_a_labelled_last_period_is_reported_as_masked(tmp_path):
    impact("generate", nodes=200, times=4, labels=2, mean_degree=5, out=tmp_path / "g")
    stderr = impact("diagnose", tmp_path / "g").stderr
    assert "cutoff 3, the last period, whose labels are masked (--cutoff)" in stderr
