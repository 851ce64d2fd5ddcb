"""A study's table as files: JSON for machines, CSV for spreadsheets, Markdown for people."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from impact_gnn import _files
from impact_gnn.experiments.output import write_csv

NAMES = {
    "plain": "plain", "mmp": "MMP", "pmp": "PMP", "genpmp": "GenPMP", "center": "centring", "jjnorm": "JJnorm",
    "standardize": "standardising", "labels": "label hops", "ends": "ends",
}  # fmt: skip
COLUMNS = (
    "model", "method", "test", "se", "valid", "difference", "seed_se", "node_se", "low", "high", "seeds", "scored",
    "seconds",
)  # fmt: skip


def write(result: Mapping[str, Any], directory: str | Path) -> list[Path]:
    """Writes table2-<data set>.json, .csv and .md; returns the files."""
    files = [Path(directory) / f"table2-{result['dataset']}.{kind}" for kind in ("json", "csv", "md")]
    _files.write_json(files[0], result)
    lines = [
        [*(row[name] for name in COLUMNS), *((row["published"] or {}).get(part, "") for part in ("valid", "test"))]
        for row in result["rows"]
    ]
    write_csv(files[1], (*COLUMNS, "published_valid", "published_test"), lines)
    with _files.atomic_file(files[2]) as path:
        path.write_text(markdown(result), encoding="utf-8")
    return files


def markdown(result: Mapping[str, Any]) -> str:
    """The page of a study."""
    rows = result["rows"]
    seeds = sorted({row["seeds"] for row in rows})
    what = "graphs" if result["fresh"] else "seeds"
    over = what if result["fresh"] else "seeds and over scored nodes, both added up"
    lines = [
        f"## {result['title']}",
        "",
        f"{seeds[0]} {what}, {rows[0]['scored']:,} nodes scored. Accuracy ± standard error over {what}, and the paired "
        f"difference to plain of the same model, in points, with its 95 % interval (over {over}); **bold** where that "
        f"leaves out zero. Epochs were chosen on the last labelled period, whose accuracy is in the column valid.",
    ]
    lines += [f"\n{note}" for note in result["notes"]]
    paper = any(row["published"] for row in rows)
    for model in dict.fromkeys(row["model"] for row in rows):
        head = ["", "valid", "test", "difference to plain", *(["published valid", "published test"] if paper else [])]
        lines += ["", f"### {model}", "", "| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
        lines += [_line(row, paper) for row in rows if row["model"] == model]
    return "\n".join(lines) + "\n"


def title(method: str) -> str:
    """A method in words.

    Example:
        >>> title("pmp+jjnorm"), title("genpmp+ends")
        ('PMP + JJnorm', 'GenPMP on ends')
    """
    words = " + ".join(NAMES.get(part, part) for part in method.split("+") if part != "ends")
    return words + (" on ends" if "ends" in method.split("+") else "")


def _line(row: Mapping[str, Any], paper: bool) -> str:
    gap = ""
    if row["method"] != "plain":
        mark = "**" if row["low"] > 0 or row["high"] < 0 else ""
        gap = f"{mark}{_points(row['difference'])}{mark} [{_points(row['low'])}, {_points(row['high'])}]"
    cells = [title(row["method"]), f"{row['valid']:.4f}", f"{row['test']:.4f} ± {row['se']:.4f}", gap]
    if paper:
        theirs = row["published"] or {}
        cells += [f"{theirs[part]:.4f}" if part in theirs else "" for part in ("valid", "test")]
    return "| " + " | ".join(cells) + " |"


def _points(share: float) -> str:
    return f"{100 * share:+.2f}".replace("-", "−")
