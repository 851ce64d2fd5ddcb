"""`impact run` on real graphs, scored afterwards.

The command is given the graph with the labels from the cutoff on taken away. Only when it has chosen are those labels
looked at, to score its choice beside plain: the same seeds, paired by node. A rerun continues.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from impact_gnn import checks
from impact_gnn.checks import InputError
from reproduction import data
from reproduction.recipes import Decoupled
from reproduction.results import ExtraTable, Record, Table
from reproduction.runner import Progress
from reproduction.studies import real
from reproduction.table2 import Study, rows_of, table2


def choice_of(name: str, root: Path, out: Path, options: Sequence[str]) -> str:
    """The method that `impact run` chooses for a graph, in a process of its own."""
    graph, cutoff = data.load(name, root), data.CUTOFFS[name]
    graph.masked(cutoff).save(out / "graphs" / name)
    call = ["run", str(out / "graphs" / name), "--out", str(out / name), "--cutoff", str(cutoff), *options]
    done = subprocess.run([sys.executable, "-m", "impact_gnn", *call], check=False)
    if done.returncode:
        raise InputError(f"impact {' '.join(call)} ended with exit code {done.returncode}; see above.")
    return str(json.loads((out / name / "summary.json").read_text(encoding="utf-8"))["choice"])


def real_graphs(
    out: Path, *, root: Path, names: Sequence[str] | None = None, options: Sequence[str] = (), seeds: int = 5,
    progress: Progress | None = None,
) -> Table:  # fmt: skip
    """Runs the command on every graph of `names` that is there (by default of all); `options` are its further ones."""
    wanted = [checks.choice("graph", name, data.CUTOFFS) for name in names or data.CUTOFFS]
    there = [name for name in wanted if data.path_of(name, root).is_file()]
    if not there:
        raise InputError(f"{root} holds none of {', '.join(wanted)}; name the folder of the real graphs with --root.")
    records: list[Record] = []
    choices = []
    for name in there:
        choice = choice_of(name, root, out, options)
        choices.append([name, str(data.CUTOFFS[name]), choice])
        recipe = Decoupled("sehgnn" if name.endswith("_hetero") else "sign")
        rows = rows_of(name, recipe, tuple(dict.fromkeys(["plain", choice])))
        scored = table2(
            Study(name, name, partial(real, name, authors=False), rows, seeds), out, root=root, progress=progress
        )
        records += [
            replace(record, column=record.column if record.column == "plain" else "chosen") for record in scored.records
        ]
    return Table(
        "real-graphs", "Real graphs: impact run, scored afterwards",
        f"Accuracy on the labels from the cutoff on, which the run did not have; {seeds} seeds, paired by node.",
        records, extras=[ExtraTable("Choices", ("graph", "cutoff", "chosen"), choices)],
    )  # fmt: skip
