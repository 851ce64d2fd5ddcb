"""Runs a study: every row with every seed, each kept in a file of its own when it is done."""

from __future__ import annotations

import hashlib
import json
import math
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from impact_gnn import __version__, _files, checks
from impact_gnn.checks import InputError
from impact_gnn.experiments.runs import Progress
from impact_gnn.experiments.table2 import aan, acl_hetero, arxiv, hetero_tsbm, mag, papers100m
from impact_gnn.experiments.table2.study import Kept, Problem, Row, Study
from impact_gnn.statistics import paired

STUDIES: Mapping[str, Study] = MappingProxyType(
    {
        study.name: study
        for study in (
            mag.STUDY, arxiv.STUDY, papers100m.STUDY, arxiv.STANDIN, aan.STUDY, acl_hetero.STUDY, hetero_tsbm.STUDY,
        )
    }
)  # fmt: skip
"""Studies by name."""

NORMAL = 1.96
"""Standard errors of a 95 % interval of many nodes."""

FORMAT = 1
"""Raised when results of earlier versions must not be taken up."""


def run(
    name: str,
    *,
    root: str | Path | None = None,
    seeds: int | None = None,
    models: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    features: str | Path | None = None,
    out: str | Path | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Runs a study and returns its table, ready for `write`.

    Args:
        name: A name of `STUDIES`.
        root: Folder of the data; not needed for generated graphs.
        seeds: Seeds per row, at least 2; by default the study's.
        models: Some of its models; by default all.
        methods: Some of its methods; "plain" is always among them.
        features: A `.npy` file whose rows replace the features.
        out: Directory in which runs are kept; the same call goes on where it stopped.
        progress: Called with runs done, runs in all, and a title.
    """
    return run_study(
        STUDIES[checks.choice("dataset", name, STUDIES)],
        root=root, seeds=seeds, models=models, methods=methods, features=features, out=out, progress=progress,
    )  # fmt: skip


def run_study(
    study: Study,
    *,
    root: str | Path | None = None,
    seeds: int | None = None,
    models: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    features: str | Path | None = None,
    out: str | Path | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """`run` for a study that need not have a name on the command line."""
    if out is None:
        with tempfile.TemporaryDirectory() as place:
            return run_study(
                study, root=root, seeds=seeds, models=models, methods=methods, features=features, out=place,
                progress=progress,
            )  # fmt: skip
    count = study.seeds if seeds is None else checks.whole_number("seeds", seeds)
    if count < 2:
        raise InputError(f"seeds={count} gives no standard error; take at least 2.")
    study = replace(study, rows=_picked(study, models, methods), seeds=count)
    parts = _parts(
        study, None if root is None else Path(root), None if features is None else Path(features), Path(out), progress
    )
    return {
        "experiment": "table2",
        "version": __version__,
        "dataset": study.name,
        "title": study.title,
        "notes": list(study.notes),
        "fresh": study.fresh,
        "rows": [_summary(row, study, parts) for row in study.rows],
        "seconds": sum(part["seconds"] for part in parts.values()),
    }


def _picked(study: Study, models: Sequence[str] | None, methods: Sequence[str] | None) -> tuple[Row, ...]:
    for what, wanted, there in (
        ("model", models, {row.model: None for row in study.rows}),
        ("method", methods, {row.method: None for row in study.rows}),
    ):
        for each in wanted or ():
            checks.choice(what, each, there)
    return tuple(
        row
        for row in study.rows
        if (models is None or row.model in models) and (methods is None or row.method in (*methods, "plain"))
    )


def _parts(
    study: Study, root: Path | None, features: Path | None, out: Path, progress: Progress | None
) -> dict[tuple[Row, int], dict[str, Any]]:
    seeds = range(study.seeds)
    # Where every seed has its own graph, all rows are run on it before the next is drawn; else row after row.
    order = [(row, seed) for seed in seeds for row in study.rows]
    if not study.fresh:
        order = [(row, seed) for row in study.rows for seed in seeds]
    found: dict[tuple[Row, int], dict[str, Any]] = {}
    problem: Problem | None = None
    of: object = None
    kept: Kept = {}
    before: Row | None = None
    for row, seed in order:
        graph = seed if study.fresh else 0
        if problem is None or of != graph:
            problem, of, kept = study.load(root, graph, features), graph, {}
        if not study.keep and row is not before:
            kept = {}
        before = row
        found[row, seed] = _one(study, row, seed, problem, kept, out)
        if progress is not None:
            progress(len(found), len(order), f"{row.model} {row.method}, seed {seed}")
    return found


def _one(study: Study, row: Row, seed: int, problem: Problem, kept: Kept, out: Path) -> dict[str, Any]:
    settings = {
        "format": FORMAT,
        "study": study.name,
        "model": row.model,
        "method": row.method,
        "recipe": [type(row.recipe).__name__, asdict(row.recipe)],  # type: ignore[call-overload]
        "seed": seed,
        "data": _identity(problem),
    }
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]
    path = out / "parts" / f"{study.name}-{row.model}-{row.method}-{seed:02d}-{digest}.json".replace(" ", "_")
    if path.is_file():
        return _files.read_json(path)
    start = time.perf_counter()
    outcome = row.recipe.fit(problem, row.method, seed, kept, out / "disk")
    hits = problem.hits(outcome.predicted)
    result = {
        "settings": settings,
        "test": float(hits.mean()),
        "valid": outcome.valid,
        "epochs": outcome.epochs,
        "scored": len(problem.rows),
        "seconds": time.perf_counter() - start,
        "hits": np.packbits(hits).tobytes().hex(),
    }
    _files.write_json(path, result)
    return result


def _identity(problem: Problem) -> str:
    """What tells one graph from another, so that a run is not taken for one on other data."""
    view = problem.view
    digest = hashlib.sha256(repr(view).encode())
    assert view.y is not None
    some = np.linspace(0, view.num_nodes - 1, min(view.num_nodes, 256)).astype(np.int64)
    for values in (view.time, view.y, view.x):
        if values is not None:
            digest.update(np.ascontiguousarray(values[some]).tobytes())
    return digest.hexdigest()[:16]


def _summary(row: Row, study: Study, parts: Mapping[tuple[Row, int], Mapping[str, Any]]) -> dict[str, Any]:
    mine = [parts[row, seed] for seed in range(study.seeds)]
    plain = next(each for each in study.rows if each.model == row.model and each.method == "plain")
    test = np.array([part["test"] for part in mine])
    others = [parts[plain, seed] for seed in range(study.seeds)]
    gap = paired(test, np.array([part["test"] for part in others]))
    # On one graph all seeds are scored on the same nodes, and other nodes would have given another difference.
    node = 0.0 if study.fresh else paired(_hit_rate(mine), _hit_rate(others)).error
    half = math.hypot(gap.high - gap.value, NORMAL * node)
    return {
        "model": row.model,
        "method": row.method,
        "recipe": [type(row.recipe).__name__, asdict(row.recipe)],  # type: ignore[call-overload]
        "test": float(test.mean()),
        "se": float(test.std(ddof=1) / math.sqrt(len(test))),
        "valid": float(np.mean([part["valid"] for part in mine])),
        "difference": gap.value,
        "seed_se": gap.error,
        "node_se": node,
        "low": gap.value - half,
        "high": gap.value + half,
        "seeds": len(test),
        "scored": mine[0]["scored"],
        "seconds": float(sum(part["seconds"] for part in mine)),
        "published": None if row.published is None else {"valid": row.published[0], "test": row.published[1]},
        "scores": test.tolist(),
    }


def _hit_rate(parts: Sequence[Mapping[str, Any]]) -> np.ndarray:
    """For every scored node the share of seeds that got it right."""
    hits = [np.unpackbits(np.frombuffer(bytes.fromhex(part["hits"]), np.uint8)) for part in parts]
    return np.mean(hits, axis=0)[: parts[0]["scored"]]
