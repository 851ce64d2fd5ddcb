"""Models against their former selves: the same graphs, method and seeds with the package of two checkouts.

Each fit has a process of its own, which imports the package from one of them; this file is all that the two share, so
it asks for nothing that only one of them has.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

import impact_gnn as ig
from impact_gnn import checks
from reproduction import data
from reproduction.results import Record, Table, packed
from reproduction.runner import Progress, Task, work_off

HERE = Path(__file__).resolve().parents[1]
GRAPHS = ("aan", "acl_hetero", "elife_hetero", "nvd_hetero", "arxiv_cs_hetero")
SEVERAL_TYPES = ("sehgnn", "rphgnn")
VERSIONS = ("former", "now")


def fitted(name: str, root: Path, model: str, method: str, seed: int) -> list[object]:
    """Accuracy on the rows that epochs are chosen by, hits of the scored rows, and seconds of CPU time."""
    graph, cutoff = data.with_cutoff(name, root)
    if name == "aan" and model in SEVERAL_TYPES:
        graph = data.aan_with_authors(name, root)
    view, truth = graph.masked(cutoff), graph.label
    start = time.process_time()
    pipeline = ig.Pipeline(model, method, cutoff, seed=seed).fit(view)
    guess = pipeline.predict_proba(view).argmax(1)
    seconds = time.process_time() - start
    rows = np.flatnonzero(view.targets())
    known = truth[rows] >= 0
    assert pipeline.fitted is not None
    return [pipeline.fitted.valid_score, packed((guess == truth[rows])[known]), seconds]


def run_fit(checkout: Path, version: str, name: str, root: Path, model: str, method: str, seed: int) -> list[Record]:
    """`fitted` with the package of a checkout."""
    given = [name, str(root.resolve()), model, method, str(seed)]
    one_thread = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    environment = os.environ | one_thread | {"PYTHONPATH": str(checkout.resolve() / "src")}
    call = [sys.executable, "-W", "ignore", "-m", "reproduction.former", *given]
    done = subprocess.run(call, cwd=HERE, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["nothing was said"])[-1]
        raise ig.InputError(f"{model} on {name} with the package in {checkout} ended badly: {said}")
    source, valid, hits, seconds = json.loads(done.stdout.splitlines()[-1])
    if not Path(source).is_relative_to(checkout.resolve()):
        raise ig.InputError(f"{checkout} holds no package of its own in src; name a checkout of this repository.")
    bits = np.unpackbits(np.frombuffer(bytes.fromhex(hits.split(":")[1]), np.uint8))
    accuracy = float(bits.sum() / int(hits.split(":")[0]))
    return [
        Record("former", model, f"{name}, validation", version, seed, valid, 0.0),
        Record("former", model, name, version, seed, accuracy, seconds, hits),
    ]


def former(
    checkout: Path, out: Path, *, root: Path, names: Sequence[str] | None = None, models: Sequence[str] = SEVERAL_TYPES,
    method: str = "labels", seeds: int = 5, progress: Progress | None = None,
) -> Table:  # fmt: skip
    """Fits every model on every graph with the package in `checkout` and with this one, seed by seed."""
    if checks.whole_number("seeds", seeds) < 2:
        raise ig.InputError(f"seeds={seeds} gives no standard error; take at least 2, better 5.")
    tasks = []
    for seed in range(seeds):
        for name in names or GRAPHS:
            for model in models:
                for version, place in zip(VERSIONS, (checkout, HERE), strict=True):
                    given = {"version": version, "name": name, "model": model, "method": method, "seed": seed}
                    call = partial(run_fit, place, root=root, **given)
                    tasks.append(Task(f"{model} on {name}, {version}, seed {seed}", {"study": "former", **given}, call))
    records = work_off(tasks, out / "parts", progress=progress)
    about = f"Method {method}, {seeds} seeds, all labels before the cutoff; validation is what epochs were chosen by."
    return Table("former", "Models now against their former selves", about, records)


if __name__ == "__main__":
    name, root, model, method, seed = sys.argv[1:]
    print(json.dumps([ig.__file__, *fitted(name, Path(root), model, method, int(seed))]))
