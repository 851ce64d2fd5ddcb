"""The page: parts of the summary put into the template."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from impact_gnn import _files
from impact_gnn.report import figures, numbers, words
from impact_gnn.report.figures import Figure
from impact_gnn.report.worries import worries

TEMPLATE = "template.html.j2"
MOST_LABELS = 12
"""Labels whose counts are shown at once; the others are one click away."""

ASSUMPTIONS = {
    1: "Every period has the same mix of labels.",
    2: "The features of a class do not depend on time.",
    3: "How often labels connect depends on the distance in time only.",
    4: "Connections of all labels fade in the same way.",
}


def write_report(summary: Mapping[str, Any], path: Path) -> None:
    """Writes the report of a run: one HTML file that loads nothing from elsewhere.

    Parts that the summary does not have are left out or said to be unknown.

    Args:
        summary: What `job.run` returns and writes as `summary.json`.
        path: The file to write.
    """
    with _files.atomic_file(Path(path)) as temporary:
        temporary.write_text(render(summary), encoding="utf-8")


def render(summary: Mapping[str, Any]) -> str:
    """The report as text; the same summary gives the same bytes.

    Example:
        >>> "<h1>" in render({})
        True
    """
    filters = {name: getattr(numbers, name) for name in ("number", "whole", "percent", "points", "duration", "memory")}
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= filters
    return environment.get_template(TEMPLATE).render(page(summary))


def page(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Everything the template shows."""
    names = words.names_of(summary)
    order = figures.by_size((summary.get("graph") or {}).get("label_counts"))
    diagnosis = summary.get("diagnosis") or {}
    found = diagnosis.get("findings") or []
    tested = summary.get("backtest") or {}
    choice = summary.get("choice") or words.PLAIN
    return {
        "cutoff": summary.get("cutoff"),
        "count": (summary.get("predictions") or {}).get("count"),
        "headline": words.headline(summary),
        "choice": choice,
        "parts": words.parts(choice),
        "chosen": words.choice(summary),
        "backtest": _backtest(tested, choice),
        "facts": words.facts(summary),
        "periods": figures.periods(summary.get("graph") or {}, summary.get("cutoff")),
        "findings": [_finding(one, found, names, order, summary.get("cutoff")) for one in found],
        "notes": diagnosis.get("notes") or [],
        "shift": _shift(diagnosis.get("shift")),
        "feature_map": figures.feature_map(diagnosis.get("feature_map") or {}, names, order),
        "predictions": _predictions(summary.get("predictions") or {}),
        "worries": worries(summary),
        "advice": {key: (summary.get("advice") or {}).get(key) for key in ("candidates", "explanation")},
        "command": words.command(summary),
        "options": words.options_of(summary),
        "versions": sorted((summary.get("versions") or {}).items()),
        "cost": summary.get("cost") or {},
        "fit": summary.get("fit") or {},
    }


def _backtest(tested: Mapping[str, Any], choice: str) -> dict[str, Any]:
    rows, folds = list(tested.get("rows") or []), len(tested.get("folds") or ())
    full = words.full_rows(tested)
    # With nothing but plain tried in full, everything that was not dropped is shown at once.
    first = full if len(full) > 1 else [row for row in rows if not row.get("status")] or rows
    rest = [row for row in rows if row not in first]
    return {
        "forest": figures.forest(first, choice),
        "first": [_row(row, choice, folds) for row in first],
        "forest_rest": figures.forest(rest, choice),
        "rest": [_row(row, choice, folds) for row in rest],
        "folds": [str(fold) for fold in tested.get("folds") or []],
        "seconds": tested.get("seconds"),
        "finished": tested.get("finished"),
    }


def _row(row: Mapping[str, Any], choice: str, folds: int) -> dict[str, Any]:
    difference, by_fold = row.get("difference") or {}, row.get("by_fold") or {}
    known = [value for value in by_fold.values() if numbers.finite(value) is not None]
    method = row.get("method", numbers.NONE)
    tried = "tried in full" if len(by_fold) >= folds else f"tried on {len(by_fold)} of {folds} periods"
    return {
        "method": method,
        "chosen": method == choice,
        "plain": method == words.PLAIN,
        "accuracy": row.get("accuracy"),
        "value": difference.get("value"),
        "low": difference.get("low"),
        "high": difference.get("high"),
        "better": sum(value > 0 for value in known),
        "folds": len(known),
        "by_fold": by_fold,
        "fits": row.get("fits"),
        "status": row.get("status") or tried,
    }


def _finding(
    one: Mapping[str, Any], findings: list[Mapping[str, Any]], names: list[str], order: list[int], cutoff: Any
) -> dict[str, Any]:
    series = one.get("series") or {}
    assumption = one.get("assumption")
    drawn: list[Figure] = []
    panels: list[Figure] = []
    if assumption == 1:
        drawn = figures.label_mix(series, names, order)
    elif assumption == 2:
        drawn = figures.feature_drift(series, cutoff)
    elif assumption == 3:
        drawn, panels = figures.separability(series), figures.pair_curves(series, names)
    elif assumption == 4:
        connections = next((other.get("series") for other in findings if other.get("assumption") == 3), None)
        drawn = figures.decay(series, connections or {})
    interval = one.get("interval") or (None, None)
    return {
        "number": assumption,
        "name": one.get("name", ""),
        "supposes": ASSUMPTIONS.get(assumption, "") if isinstance(assumption, int) else "",
        "verdict": one.get("verdict") or "cannot tell",
        "sentence": one.get("sentence", ""),
        "measure": one.get("measure", ""),
        "statistic": one.get("statistic"),
        "low": interval[0],
        "high": interval[1],
        "figures": drawn,
        "panels": panels,
        "extra": _extra(assumption, series),
    }


def _extra(assumption: Any, series: Mapping[str, Any]) -> str:
    """Further numbers of a finding, for those who ask for them."""
    show = numbers.number
    if assumption == 1 and series.get("chi2") is not None:
        p = numbers.finite(series.get("p"))
        small = p is not None and p < 0.001
        chance = "p < 0.001" if small else f"p = {show(p)}"
        return (
            f"χ² = {show(series['chi2'], 1)} with {series.get('freedom')} degrees of freedom, {chance}; "
            f"Cramér's V = {show(series.get('cramers_v'))}."
        )
    if assumption == 2 and series.get("along_classes") is not None:
        return f"Only in the directions in which classes differ: {show(series['along_classes'])}."
    if assumption == 3 and series.get("symmetry"):
        text = f"Past and future alike: {_three(series['symmetry'])}"
        if series.get("per_node"):
            text += f"; explained when periods are weighed by their nodes (GenPMP): {_three(series['per_node'])}"
        return text + "."
    if assumption == 4 and series.get("of_all"):
        return f"Of the whole time pattern, one decay explains {_three(series['of_all'])}."
    return ""


def _three(values: Any) -> str:
    value, low, high = (numbers.percent(part, 0) for part in values)
    return f"{value} ({low} to {high})"


def _shift(found: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if not found or not found.get("methods"):
        return None
    count = figures.array(found.get("count"))
    rows = []
    for name, one in ((name, one or {}) for name, one in found["methods"].items()):
        classes = one.get("classes") or {}
        rows.append(
            {
                "method": name,
                "overall": one.get("overall"),
                "mean": _average(one.get("mean"), count),
                "second": _average(one.get("second"), count),
                "separation": one.get("separation"),
                **{key: classes.get(key) for key in ("measured", "mean_gap", "equal_means", "theorem_4_3", "trivial")},
            }
        )
    return {"sentences": words.shift(found), "panels": figures.shift(found), "rows": rows}


def _average(values: Any, count: Any) -> float | None:
    """Mean over periods, weighted by their nodes."""
    known = figures.array(values)
    usable = np.isfinite(known)
    if len(known) != len(count) or not usable.any() or not count[usable].sum() > 0:
        return None
    return float((known[usable] * count[usable]).sum() / count[usable].sum())


def _predictions(found: Mapping[str, Any]) -> dict[str, Any]:
    counts = found.get("labels") or {}
    labels = [(str(name), count) for name, count in counts.items() if numbers.finite(count) is not None]
    labels.sort(key=lambda pair: -pair[1])
    total = sum(count for _, count in labels)
    rows = [
        {"name": figures.named([name], 0), "count": count, "share": count / total if total else None}
        for name, count in labels
    ]
    return {
        "file": found.get("file"),
        "count": found.get("count"),
        "mean": found.get("mean_probability"),
        "rows": rows[:MOST_LABELS],
        "rest": rows[MOST_LABELS:],
        "histogram": figures.histogram(found.get("probability_histogram")),
    }
