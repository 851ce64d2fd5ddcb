"""Results as pages of Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from impact_gnn.experiments import published

ERRORS = "± is the standard error; in brackets the paired difference to plain on the same graphs, with its own."


def table3(result: Mapping[str, Any]) -> str:
    """The page of `table3`."""
    settings = result["settings"]
    lines = [
        "# Table 3: accuracy on graphs of the temporal stochastic block model",
        "",
        f"{settings['graphs']} graphs of {settings['num_nodes']} nodes per row, {settings['epochs']} epochs; trained "
        f'on times 0-7, scored on times 8 and 9. {ERRORS} "Oracle" columns are told true labels and probabilities. '
        f"All of it took {result['seconds']:.0f} seconds of one core.",
    ]
    for protocol, about in settings["protocols"].items():
        for model in dict.fromkeys(row["model"] for row in result["rows"]):
            rows = [row for row in result["rows"] if (row["protocol"], row["model"]) == (protocol, model)]
            lines += ["", f"## {model.upper()}, {protocol}: {about}", "", *_cells(rows, result["time"].get(model))]
    lines += ["", "## Second moment against first moment, paired", "", *_contrasts(result["rows"])]
    lines += ["", "## Beside the paper", "", *_agreement(result["agreement"])]
    return "\n".join(lines) + "\n"


def gamma(result: Mapping[str, Any]) -> str:
    """The page of `gamma`."""
    settings = result["settings"]
    lines = [
        "# Gains against γ",
        "",
        f"{settings['graphs']} graphs per γ, protocol {settings['protocol']} ({settings['about']}). {ERRORS}",
    ]
    for model in dict.fromkeys(row["model"] for row in result["rows"]):
        rows = [row for row in result["rows"] if row["model"] == model]
        lines += ["", f"## {model.upper()}", "", *_cells(rows, None)]
    lines += ["", "## Second moment against first moment, paired", "", *_contrasts(result["rows"])]
    return "\n".join(lines) + "\n"


def table1(result: Mapping[str, Any]) -> str:
    """The page of `table1`."""
    settings = result["settings"]
    theirs = published.TABLE1
    lines = [
        "# Table 1's question: what does a chronological split cost, and does telling the time help?",
        "",
        f"SIGN, {settings['seeds']} seeds. Both splits train on equally many nodes and are scored on the same late "
        f"nodes; chronological training sees earlier nodes only, random training nodes of any time. ± is the standard "
        f"error.",
        "",
        *_table(
            ("data", "chronological", "with time", "random", "with time"),
            [
                [name, *(_value(_find(result["rows"], name, split, told)) for split, told in theirs)]
                for name in dict.fromkeys(row["data"] for row in result["rows"])
            ]
            + [["paper: SeHGNN, ogbn-mag", *(f"{value:.4f}" for value in theirs.values())]],
        ),
        "",
        "## Paired differences",
        "",
        *_table(
            ("data", "difference", "value"),
            [
                [one["data"], one["what"], f"{one['difference']:+.4f} ± {one['difference_se']:.4f}"]
                for one in result["contrasts"]
            ],
        ),
    ]
    lines += [f"\n{sentence}" for sentence in result["skipped"]]
    return "\n".join(lines) + "\n"


PAGES: Mapping[str, Callable[[Mapping[str, Any]], str]] = MappingProxyType(
    {"table3": table3, "figure-gamma": gamma, "table1": table1}
)


def _cells(rows: Sequence[Mapping[str, Any]], time: Mapping[str, Any] | None) -> list[str]:
    """Methods down, rows of the table across: there are more methods than rows."""
    header = ["", *(row["title"] for row in rows), *(["time: ratio to plain (paper)"] if time else [])]
    lines = []
    for name, first in rows[0]["columns"].items():
        line = [("*ours:* " if first["ours"] else "") + first["title"]]
        for row in rows:
            cell = row["columns"][name]
            gain = "" if name == "plain" else f" ({cell['difference']:+.3f} ± {cell['difference_se']:.3f})"
            line.append(f"{cell['mean']:.3f} ± {cell['se']:.3f}{gain}")
        if time:
            paper = time[name]["published_ratio"]
            line.append(f"{time[name]['ratio']:.2f}" + ("" if paper is None else f" ({paper:.3g})"))
        lines.append(line)
    return _table(header, lines)


def _contrasts(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return _table(
        ("protocol", "model", "row", "method", "against", "difference"),
        [
            [
                row["protocol"], row["model"], row["title"], one["column"], one["against"],
                f"{one['difference']:+.4f} ± {one['difference_se']:.4f}",
            ]
            for row in rows for one in row["contrasts"]
        ],
    )  # fmt: skip


def _agreement(found: Sequence[Mapping[str, Any]]) -> list[str]:
    note = (
        f"The paper gives no standard errors: it is granted those of {published.GRAPHS} graphs with the spread "
        f"measured here, and unpaired columns. Both are said to agree within {published.ERRORS:g} standard errors "
        f"of their difference. It does not state the γ of its fixed row; its random row was run with decay 0 "
        f"within a label."
    )
    table = _table(
        ("protocol", "model", "row", "", "published", "measured", "allowed", "agrees"),
        [
            [
                one["protocol"], one["model"], one["row"], one["what"], f"{one['published']:.4f}",
                f"{one['measured']:.4f}", f"±{one['allowed']:.4f}", "yes" if one["agrees"] else "**no**",
            ]
            for one in found
        ],
    )  # fmt: skip
    return [note, "", *table]


def _find(rows: Sequence[Mapping[str, Any]], data: str, split: str, told: bool) -> Mapping[str, Any]:
    return next(row for row in rows if (row["data"], row["split"], row["time_embedding"]) == (data, split, told))


def _value(row: Mapping[str, Any]) -> str:
    return f"{row['mean']:.4f} ± {row['se']:.4f}"


def _table(header: Sequence[str], lines: Iterable[Sequence[str]]) -> list[str]:
    rule = "|" + "---|" * len(header)
    return ["| " + " | ".join(header) + " |", rule, *("| " + " | ".join(line) + " |" for line in lines)]
