"""`python benchmarks/layerwise.py [--setting small large] [--busy] [--json FILE]`: what layer-wise alignment costs."""

import argparse
import json
import os
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--setting", choices=["small", "large"], nargs="+", default=["small", "large"])
    parser.add_argument("--methods", nargs="+")
    parser.add_argument("--busy", action="store_true", help="one thread and its CPU time, on a machine in use")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    if given.busy:  # before the libraries that read it are loaded
        for name in ("OMP", "MKL", "OPENBLAS", "NUMBA"):
            os.environ[f"{name}_NUM_THREADS"] = "1"
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

    from impact_gnn.bench import layerwise

    settings = {"small": layerwise.SMALL, "large": layerwise.LARGE}
    methods = tuple(given.methods or layerwise.METHODS)
    results = [layerwise.run(settings[name], methods=methods, busy=given.busy) for name in given.setting]
    for result in results:
        layerwise.show(result)
    if given.json:
        given.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
