"""Models against their former selves.

The same graphs, method and seeds with the package of two checkouts.

Each fit has a process of its own, which imports the package from one of them; studies are this
checkout's, so this one asks the package for nothing that only one of the two has.
"""

import hashlib
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

import impact_gnn as ig
from impact_gnn import checks
from reproduction import data
from reproduction.bench import in_process
from reproduction.results import Record, Table, hit_rate, packed
from reproduction.runner import Progress, Task, one_thread, work_off
from reproduction.table2 import Problem

HERE = Path(__file__).resolve().parents[1]
GRAPHS = ("aan", "acl_hetero", "elife_hetero", "nvd_hetero", "arxiv_cs_hetero")
SEVERAL_TYPES = ("sehgnn", "rphgnn")
VERSIONS = ("former", "now")


def fitted(name: str, root: str, model: str, method: str, seed: int) -> list[object]:
    """Accuracy on the rows that select the epoch, hits of the scored rows, and CPU seconds."""
    graph, cutoff = data.with_cutoff(name, Path(root))
    if name == "aan" and model in SEVERAL_TYPES:
        graph = data.aan_with_authors(name, Path(root))
    problem, start = Problem.of(graph, cutoff), time.process_time()
    with one_thread():
        pipeline = ig.Pipeline(model, method, cutoff, seed=seed).fit(problem.view)
        guess = pipeline.predict_proba(problem.view).argmax(1)
    seconds = time.process_time() - start
    scored = np.searchsorted(np.flatnonzero(problem.view.targets()), problem.rows)
    assert pipeline.fitted is not None
    return [pipeline.fitted.valid_score, packed(problem.hits(guess[scored])), seconds]


def run_fit(
    checkout: Path, version: str, name: str, root: Path, model: str, method: str, seed: int
) -> list[Record]:
    """`fitted` with the package of a checkout."""
    path = [str(checkout.resolve() / "src"), str(HERE)]
    valid, hits, seconds = in_process(
        fitted,
        name,
        root=str(root.resolve()),
        model=model,
        method=method,
        seed=seed,
        path=path,
    )
    scored = Record(
        study="former",
        section=model,
        row=name,
        column=version,
        seed=seed,
        score=0.0,
        seconds=seconds,
        hits=hits,
    )
    return [
        Record(
            study="former",
            section=model,
            row=f"{name}, validation",
            column=version,
            seed=seed,
            score=valid,
            seconds=0.0,
        ),
        replace(scored, score=float(hit_rate([scored]).mean())),
    ]


def source(checkout: Path) -> str:
    """Identifies the package of a checkout, so that fits of two checkouts are not mixed up."""
    files = sorted((checkout / "src" / "impact_gnn").rglob("*.py"))
    if not files:
        raise ig.InputError(
            f"{checkout} contains no package in src; pass a checkout of this repository."
        )
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]


def former(
    checkout: Path,
    out: Path,
    *,
    root: Path,
    names: Sequence[str] | None = None,
    models: Sequence[str] = SEVERAL_TYPES,
    method: str = "labels",
    seeds: int = 5,
    progress: Progress | None = None,
) -> Table:
    """Fits every model on every graph, by the package in `checkout` and by this one."""
    if checks.whole_number("seeds", seeds) < 2:
        raise ig.InputError(f"seeds={seeds} gives no standard error; use at least 2, better 5.")
    sources, tasks = {place: source(place) for place in (checkout, HERE)}, []
    for seed in range(seeds):
        for name in names or GRAPHS:
            for model in models:
                for version, place in zip(VERSIONS, (checkout, HERE), strict=True):
                    arguments = {
                        "version": version,
                        "name": name,
                        "model": model,
                        "method": method,
                        "seed": seed,
                    }
                    call = partial(run_fit, place, root=root, **arguments)
                    settings = {"study": "former", "source": sources[place], **arguments}
                    tasks.append(Task(f"{model} on {name}, {version}, seed {seed}", settings, call))
    records = work_off(tasks, out / "parts", progress=progress)
    about = (
        f"Method {method}, {seeds} seeds, all labels before the cutoff; validation is what epochs "
        "were chosen by."
    )
    return Table(
        name="former", title="Models now against their former selves", about=about, records=records
    )
