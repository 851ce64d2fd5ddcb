"""`python benchmarks/real_graphs.py [names] [--root DATA] [--out DIR]`: `impact run` on real graphs, scored afterwards.

The run is given the graph with the labels from the cutoff on taken away. Only when it has chosen are those labels
looked at, to score its choice beside plain: the same seeds, paired by node. A rerun continues.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import numpy as np

import impact_gnn as ig
from impact_gnn._codec import encode
from impact_gnn.backtesting import Scores, Unit, varied
from impact_gnn.job.run import model_for
from impact_gnn.pipeline import Method

CUTOFFS = {"aan": 2011, "scotus": 1990, "twitch": 20, "acl_hetero": 2022, "ogbn_arxiv": 2019}


def load(name: str, root: Path) -> ig.TemporalGraph:
    graph = ig.load(root / name / f"{name}.npz")
    embedded = root / name / f"{name}_svd64.npz"
    return graph.with_features(np.load(embedded)["x_svd"]) if embedded.is_file() else graph


def one(name: str, root: Path, out: Path, budget: float, seeds: int) -> dict:
    graph, cutoff = load(name, root), CUTOFFS[name]
    folder = out / name
    summary = ig.run(graph.masked(cutoff), folder, cutoff=cutoff, budget=budget)
    chosen, best = summary.backtest.row(summary.choice), summary.backtest.rows[0]
    found = {
        "name": name, "choice": str(summary.choice), "why": str(summary.backtest.decision), **encode(summary.cost),
        "backtest": None if chosen is None else encode(chosen.difference), "best": encode(best),
        "target": score(graph, cutoff, summary.choice, seeds),
    }  # fmt: skip
    (folder / "scored.json").write_text(json.dumps(found, indent=1))
    return found


def score(graph: ig.TemporalGraph, cutoff: int, choice: Method, seeds: int) -> dict:
    scores, view, plain = Scores(), graph.masked(cutoff), Method()
    pipeline = ig.Pipeline(model_for(graph, "auto"), cutoff=cutoff)
    inputs = pipeline.inputs(view)
    for method in dict.fromkeys([plain, choice]):
        for seed in range(seeds):
            fitted = varied(pipeline, method, seed=seed, cutoff=cutoff).fit(view, inputs=inputs)
            rows = fitted.targets(graph)
            known = graph.y[rows] >= 0
            predicted = fitted.predict_proba(view, inputs=inputs).argmax(1)
            scores.put(Unit(method, cutoff, seed), predicted[known] == graph.y[rows][known])
    difference = None if choice == plain else encode(scores.difference(choice))
    return {"plain": scores.accuracy(plain), "choice": scores.accuracy(choice), "difference": difference}


def row(found: dict) -> str:
    def points(estimate: dict | None) -> str:
        if estimate is None:
            return "0, it is plain"
        return f"{100 * estimate['value']:+.1f} [{100 * estimate['low']:+.1f}, {100 * estimate['high']:+.1f}]"

    target = found["target"]
    cells = [
        f"`{found['name']}`", f"`{found['choice']}`", points(found["backtest"]), f"{target['plain']:.3f}",
        f"{target['choice']:.3f}", points(target["difference"]), f"{found['seconds'] / 60:.1f} min",
        f"{found['peak_memory_bytes'] / 1e9:.1f} GB",
    ]  # fmt: skip
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(CUTOFFS))
    parser.add_argument("--root", type=Path, default=Path("../shared/data"), help="folder of the real graphs")
    parser.add_argument("--out", type=Path, default=Path("out/real"))
    parser.add_argument("--budget", type=float, default=600.0, help="seconds for the back-test")
    parser.add_argument("--seeds", type=int, default=5, help="seeds of the score")
    given = parser.parse_args()
    if not given.root.is_dir():
        print(f"skipped: {given.root} is not there; give the folder of the real graphs with --root.")
        return
    if len(given.names) > 1:  # a process each, so that peak memory is that of one graph
        for name in given.names:
            rest = ["--root", given.root, "--out", given.out, "--budget", given.budget, "--seeds", given.seeds]
            subprocess.run([sys.executable, __file__, name, *map(str, rest)], check=True)
        return
    print(row(one(given.names[0], given.root, given.out, given.budget, given.seeds)), flush=True)


if __name__ == "__main__":
    main()
