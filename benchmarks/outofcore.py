"""`python benchmarks/outofcore.py [--json FILE] [--nodes N] ...`: see `impact_gnn.bench.outofcore`."""

import argparse
import json
from pathlib import Path

from impact_gnn.bench.outofcore import run, show


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--edges", type=int, default=20_000_000)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--no-dask", action="store_true")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    result = run(given.nodes, given.edges, given.width, rounds=given.rounds, with_dask=not given.no_dask)
    show(result)
    if given.json:
        given.json.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
