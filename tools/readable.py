#!/usr/bin/env python3
"""Prints readability figures of source folders, and fails where one is worse than its limit.

The limits are in `tools/readable.toml`, by folder. Comments and docstrings do not count as tokens;
a code line is a line that holds at least one token. Run: python tools/readable.py
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
LIMITS = ROOT / "tools" / "readable.toml"
DIALECT = frozenset(
    [
        "said",
        "told",
        "kept",
        "shown",
        "held",
        "found",
        "made",
        "seen",
        "given",
        "taught",
        "heard",
        "hears",
        "walked",
        "verdict",
        "worries",
        "beside",
        "mend",
        "earnest",
    ]
)
LAYOUT = frozenset(
    {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENCODING,
        tokenize.ENDMARKER,
    }
)
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
MAX_POSITIONAL = 5
MAX_COLUMNS = 100


def docstring_lines(tree: ast.Module) -> set[int]:
    """Numbers of the lines that belong to docstrings."""
    lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            docstring = node.body[0]
            lines |= set(range(docstring.lineno, (docstring.end_lineno or 0) + 1))
    return lines


def measure_tokens(source: str, documented: set[int], figures: Counter[str]) -> set[int]:
    """Counts tokens and dialect words; returns the code lines."""
    code_lines = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        figures["comments"] += token.type == tokenize.COMMENT
        if token.type in LAYOUT or token.start[0] in documented:
            continue
        figures["tokens"] += 1
        code_lines.add(token.start[0])
        if token.type == tokenize.NAME:
            words = token.string.lower().split("_")
            if words == ["given"]:  # the decorator of hypothesis
                continue
            figures["dialect words"] += sum(word in DIALECT for word in words)
    return code_lines


def measure_tree(tree: ast.Module, code_lines: set[int], figures: Counter[str]) -> None:
    """Counts conditional expressions, crowded calls, and the size of functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.IfExp):
            figures["conditional expressions"] += 1
            parts = (node.test, node.body, node.orelse)
            figures["nested conditional expressions"] += any(
                isinstance(part, ast.IfExp) for part in parts
            )
        elif isinstance(node, ast.Call):
            figures["crowded calls"] += len(node.args) > MAX_POSITIONAL
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            arguments = node.args
            parameters = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
            own_lines = set(range(node.lineno, (node.end_lineno or 0) + 1)) & code_lines
            figures["most parameters"] = max(figures["most parameters"], len(parameters))
            figures["longest function"] = max(figures["longest function"], len(own_lines))


def measure(folder: Path) -> dict[str, float]:
    """All figures of a folder."""
    figures: Counter[str] = Counter()
    for path in sorted(folder.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        tree = ast.parse(source)
        code_lines = measure_tokens(source, docstring_lines(tree), figures)
        measure_tree(tree, code_lines, figures)
        figures["code lines"] += len(code_lines)
        figures["fmt: skip"] += source.count("# fmt: " + "skip")
        figures["wide lines"] += sum(len(line) > MAX_COLUMNS for line in source.splitlines())
    lines = max(figures["code lines"], 1)
    return {
        **figures,
        "tokens a code line": round(figures["tokens"] / lines, 2),
        "comments per 100 code lines": round(100 * figures["comments"] / lines, 1),
    }


def main() -> int:
    """Prints the figures of every folder with limits; returns 1 where one is exceeded."""
    failed = False
    for name, limits in tomllib.loads(LIMITS.read_text(encoding="utf-8")).items():
        figures = measure(ROOT / name)
        print(f"{name}:")
        for key, value in sorted(figures.items()):
            limit = limits.get(key)
            is_worse = limit is not None and value > limit
            failed |= is_worse
            bound = "" if limit is None else f" (at most {limit:,})"
            mark = "  <- worse than its limit" if is_worse else ""
            print(f"  {key}: {value:,}{bound}{mark}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
