"""Pages agree with the code.

Snippets run, printed output matches, names and paths exist, examples finish.
"""

import ast
import contextlib
import importlib
import inspect
import io
import itertools
import re
import warnings
from pathlib import Path

import pytest

import impact_gnn
from impact_gnn.backtesting.effort import EFFORTS, Effort

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PROSE = [*PAGES, ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
SMALLER = {"compare_corrections.py": {"EPOCHS = 8, 4, 150": "EPOCHS = 8, 2, 15"}}
FENCE = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def name_of(path):
    return path.relative_to(ROOT).as_posix()


def blocks(path):
    """(line number, info string, content) of every fenced block."""
    text = path.read_text(encoding="utf-8")
    return [
        (text.count("\n", 0, m.start()) + 2, m.group(1).strip(), m.group(2))
        for m in FENCE.finditer(text)
    ]


WITH_CODE = [page for page in PAGES if any(info == "python" for _, info, _ in blocks(page))]


@pytest.mark.parametrize("page", WITH_CODE, ids=name_of)
def test_snippets_run_and_print_what_the_page_shows(page, tmp_path, monkeypatch):
    """All python blocks of a page in one namespace; a text block right after one is its output."""
    monkeypatch.chdir(tmp_path)
    # A quick search as the pages request it, with fewer candidates: no page shows its numbers.
    monkeypatch.setitem(EFFORTS, "quick", Effort(1, 1, 1))
    (tmp_path / "examples").symlink_to(ROOT / "examples")  # as in a checkout
    namespace = {"__name__": "page"}
    snippets = blocks(page)
    for i, (line, info, content) in enumerate(snippets):
        if info != "python":
            continue
        printed = io.StringIO()
        code = compile("\n" * (line - 1) + content, str(page), "exec")
        with contextlib.redirect_stdout(printed):
            exec(code, namespace)
        following = snippets[i + 1] if i + 1 < len(snippets) else (0, "", "")
        # one empty line between
        if following[1] == "text" and following[0] == line + content.count("\n") + 3:
            assert printed.getvalue().strip() == following[2].strip(), (
                f"{page.name}, line {following[0]}"
            )


def test_pages_with_code_exist():
    assert {"README.md", "docs/guide-start.md", "docs/guide-run.md"} <= {
        name_of(page) for page in WITH_CODE
    }


@pytest.mark.parametrize("page", PROSE, ids=name_of)
def test_links_into_the_repository_lead_somewhere(page):
    """Relative ones; there is no address of the repository to link to."""
    text = page.read_text(encoding="utf-8")
    assert "impact-gnn/impact-gnn" not in text
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_pictures_are_small_and_displayed():
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    for picture in sorted((ROOT / "docs" / "images").iterdir()):
        assert f"images/{picture.name})" in text, f"no page shows {picture.name}"
        assert picture.stat().st_size < 250_000, picture.name


@pytest.mark.parametrize("page", PROSE, ids=name_of)
def test_named_files_tests_and_objects_exist(page):
    text = re.sub(FENCE, "", page.read_text(encoding="utf-8"))
    for quoted in re.findall(r"`([^`\n]+)`", text):
        file = re.fullmatch(
            r"((?:src|tests|docs|examples|reproduction)/[\w./-]+)(?:::(\w+))?", quoted
        )
        if file:
            path = ROOT / file.group(1)
            assert path.exists(), f"{page.name} names {quoted}"
            if file.group(2):
                tree = ast.parse(path.read_text(encoding="utf-8"))
                assert file.group(2) in {getattr(node, "name", None) for node in ast.walk(tree)}, (
                    quoted
                )
        elif re.fullmatch(r"(?:ig|impact_gnn)(\.\w+)+", quoted):
            assert resolved(
                quoted.replace("ig.", "impact_gnn.", 1) if quoted.startswith("ig.") else quoted
            )


def resolved(dotted):
    """The object a dotted name leads to, whether by modules or by attributes."""
    first, *rest = dotted.split(".")
    target = importlib.import_module(first)
    for i, part in enumerate(rest):
        try:
            target = getattr(target, part)
        except AttributeError:
            target = importlib.import_module(".".join([first, *rest[: i + 1]]))
    return target


def test_public_face_has_api_pages():
    documented = {
        directive
        for page in (ROOT / "docs" / "api").glob("*.md")
        for directive in re.findall(
            r"^::: ([\w.]+)$", page.read_text(encoding="utf-8"), re.MULTILINE
        )
    }
    assert all(resolved(name).__doc__ for name in documented)
    for name in impact_gnn.__all__:
        home = getattr(resolved(f"impact_gnn.{name}"), "__module__", f"impact_gnn.{name}")
        assert any(page == home or page.startswith(f"{home}.") for page in documented), (
            f"{name} has no API page"
        )


def test_building_the_site_counts_warnings():
    """With --quiet they are neither logged nor counted, and --strict passes."""
    built = re.findall(r"mkdocs build(.*)", (ROOT / "Makefile").read_text(encoding="utf-8"))
    assert [line.split() for line in built] == [["--strict"]]


def test_navigation_names_every_page_once():
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    listed = re.findall(
        r"([\w/-]+\.md)\s*$", text.split("\nnav:", 1)[1].split("\n\n", 1)[0], re.MULTILINE
    )
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")]
    assert sorted(listed) == sorted(pages)


def test_the_site_shows_the_version():
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert f"site_name: impact-gnn {impact_gnn.__version__}" in text


@pytest.mark.parametrize("example", EXAMPLES, ids=name_of)
def test_example_is_short_and_runs(example, tmp_path, monkeypatch, capsys):
    """As a script, but in this process: a new one would import torch again."""
    source = example.read_text(encoding="utf-8")
    assert len(source.splitlines()) < 70
    for usual, smaller in SMALLER.get(example.name, {}).items():
        assert source.count(usual) == 1
        source = source.replace(usual, smaller)
    monkeypatch.chdir(tmp_path)
    exit_code = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            exec(compile(source, str(example), "exec"), {"__name__": "__main__"})
    except SystemExit as end:
        exit_code = end.code
    assert not exit_code
    assert capsys.readouterr().out.strip()


def test_there_are_examples():
    assert EXAMPLES


def directives():
    """Modules that the pages in the site's navigation draw the reference of."""
    pages = re.findall(r"\bapi/\w+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert {f"api/{page.name}" for page in (ROOT / "docs" / "api").iterdir()} == set(pages)
    names = [
        re.findall(r"^::: (\S+)$", (ROOT / "docs" / page).read_text("utf-8"), re.MULTILINE)
        for page in pages
    ]
    return set(itertools.chain(*names))


PACKAGES = sorted(
    f"impact_gnn.{path.parent.name}"
    for path in (ROOT / "src/impact_gnn").glob("[a-z]*/__init__.py")
)


@pytest.mark.parametrize("package", ["impact_gnn", *PACKAGES])
def test_every_public_name_has_a_place_in_the_reference(package):
    """Compared with the pages' text, so that no site builder is needed."""
    drawn, module, missing = directives(), importlib.import_module(package), []
    for name in getattr(module, "__all__", ()) if package != "impact_gnn.cli" else ():
        member = getattr(module, name)
        if inspect.ismodule(member):
            # names of a package are listed there
            is_documented = hasattr(member, "__path__") or member.__name__ in drawn
        elif inspect.isclass(member) or inspect.isfunction(member):
            is_documented = member.__module__ in drawn
        else:
            is_documented = any(
                re.search(rf"^{name}\b.* = ", source_of(one), re.MULTILINE) for one in drawn
            )
        missing += [] if is_documented else [name]
    assert missing == []


def source_of(module):
    return Path(importlib.import_module(module).__file__).read_text(encoding="utf-8")


def test_examples_of_docstrings_are_sections_that_the_reference_knows():
    """`Example:` would be drawn as a garbled quotation."""
    sources = (ROOT / "src").rglob("*.py")
    assert [
        name_of(path)
        for path in sources
        if re.search(r"^ *Example:$", path.read_text("utf-8"), re.MULTILINE)
    ] == []
