"""The project as a whole: make targets, CI workflows, and strings that must not occur."""

import ast
import os
import re
import sys
from pathlib import Path

import pytest
import yaml

import impact_gnn

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
SOURCE = sorted(
    path for folder in ("src/impact_gnn", "reproduction") for path in (ROOT / folder).rglob("*.py")
)
UNKEPT = {".git", "build", "dist", "site", "out", "impact-run", "__pycache__"}
UNKEPT_STARTS = (
    ".venv",
    ".pytest",
    ".mypy",
    ".ruff",
    ".hypothesis",
    ".import_linter",
    ".benchmarks",
)


def name_of(path):
    return path.relative_to(ROOT).as_posix()


def tracked_files():
    """Files that belong to the project.

    All but environments, caches and built things (see .gitignore).
    """
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [
            f
            for f in folders
            if f not in UNKEPT and not f.startswith(UNKEPT_STARTS) and not f.endswith(".egg-info")
        ]
        yield from (Path(folder, file) for file in files)


def tracked_text():
    for path in tracked_files():
        try:
            yield path, path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue


def imported(tree):
    """Top-level names of all modules a file imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.split(".")[0]


def test_readme_opens_with_both_commands_and_the_default_call():
    first_screen = "\n".join((ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:40])
    assert re.search(r"^make run\b", first_screen, re.MULTILINE)
    assert re.search(r"^make test\b", first_screen, re.MULTILINE)
    assert "summary = ig.run(graph, " in first_screen
    assert "candidates=" not in first_screen


def test_make_knows_what_the_prose_promises():
    targets = set(
        re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    )
    prose = "\n".join(
        (ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "CONTRIBUTING.md")
    )
    promised = set(re.findall(r"(?:^|`)make ([a-z-]+)", prose, re.MULTILINE))
    assert {"run", "test"} <= promised <= targets


def test_ci_runs_the_test_command():
    script = ROOT / ".ci" / "run"
    lines = [line.strip() for line in script.read_text(encoding="utf-8").splitlines()]
    assert "make test" in lines
    assert os.access(script, os.X_OK)


def test_version_is_one():
    declared = re.search(
        r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert declared is not None
    assert declared.group(1) == impact_gnn.__version__
    assert impact_gnn.__version__ in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_papers_agree_with_the_package():
    about = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert (cited["title"], cited["version"], cited["license"]) == (
        about["name"],
        about["version"],
        about["license"],
    )
    assert cited["authors"] == about["authors"]
    assert "repository-code" not in cited  # there is no public repository to link to
    assert set(about["urls"]) == {"Paper"}
    assert all((ROOT / file).is_file() for file in about["license-files"])
    asked = {
        int(one.rsplit(".", 1)[1])
        for one in about["classifiers"]
        if re.search(r"Python :: 3\.\d+$", one)
    }
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))["jobs"]
    rows = jobs["test"]["strategy"]["matrix"]["include"]
    assert {int(row["python"].rsplit(".", 1)[1]) for row in rows} == asked
    assert f">=3.{min(asked)}" == about["requires-python"]


def test_workflows_run_make_targets_and_publish_only_on_request():
    targets = set(
        re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    )
    flows = {
        p.stem: yaml.safe_load(p.read_text("utf-8"))
        for p in (ROOT / ".github/workflows").glob("*.yml")
    }
    steps = [
        step for flow in flows.values() for job in flow["jobs"].values() for step in job["steps"]
    ]
    called = {m for step in steps for m in re.findall(r"\bmake ([\w-]+)", step.get("run", ""))}
    assert {"test", "package", "docs"} <= called <= targets
    assert flows["release"]["jobs"]["publish"]["if"] == "vars.PUBLISH == 'true'"
    forms = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"))
    assert [form.stem for form in forms] == ["bug", "data", "question"]
    for form in map(yaml.safe_load, (form.read_text(encoding="utf-8") for form in forms)):
        assert {"name", "description", "body"} <= form.keys()
        assert all(field["attributes"]["label"] for field in form["body"])


def test_no_registry_is_named():
    """The package index is a choice of the user."""
    hosts = [
        "pypi." + "org",
        "pythonhosted." + "org",
        "anaconda." + "org",
        "download.pytorch." + "org",
    ]
    matches = [
        (name_of(path), host) for path, text in tracked_text() for host in hosts if host in text
    ]
    assert matches == []


def test_no_path_of_a_single_machine():
    place = re.compile(r"(?<![\w.])/" + r"work\b")
    matches = [name_of(p) for p, text in tracked_text() if p.suffix == ".py" and place.search(text)]
    assert matches == []


@pytest.mark.parametrize("path", SOURCE, ids=name_of)
def test_module_says_what_it_is_and_reads_no_pickle(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree), "no docstring"
    assert not {"pickle", "dill", "cloudpickle", "shelve", "marshal"} & set(imported(tree))
    # joblib starts processes or sends their results to the parent; its files are pickles
    names = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        and "joblib" in (getattr(node, "module", None) or "joblib")
        for alias in node.names
        if isinstance(node, ast.ImportFrom) or alias.name.startswith("joblib")
    }
    processes = {"Parallel", "delayed", "cpu_count", "BrokenProcessPool", "dumps"}
    assert names <= processes
    allowed = [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.keyword)
        and node.arg == "allow_pickle"
        and not (isinstance(node.value, ast.Constant) and node.value.value is False)
    ]
    assert allowed == []
