"""`python benchmarks/propagation.py [--json FILE] [--edges N] ...`: the propagation kernel against its peers."""

import argparse
import json
from pathlib import Path

from impact_gnn.bench.propagation import run, show


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--edges", type=int, default=20_000_000)
    parser.add_argument("--widths", type=int, nargs="+", default=[16, 64, 128, 256])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--growth-to", type=int, default=0, help="also time graphs up to this many edges")
    parser.add_argument("--order", action="store_true", help="also measure what sorting nodes by time brings")
    parser.add_argument("--busy", action="store_true", help="one thread and its CPU time, on a machine in use")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    result = run(
        given.nodes,
        given.edges,
        given.widths,
        turns=given.turns,
        with_peers=not given.no_peers,
        busy=given.busy,
        growth_to=given.growth_to,
        order=given.order,
    )
    show(result)
    if given.json:
        given.json.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
