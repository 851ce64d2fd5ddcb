"""`python benchmarks/layerwise.py [small|large]`: see `impact_gnn.bench.layerwise`."""

import json
import sys

from impact_gnn.bench import layerwise

if __name__ == "__main__":
    chosen = sys.argv[1:] or ["small", "large"]
    for name in chosen:
        print(json.dumps(layerwise.run({"small": layerwise.SMALL, "large": layerwise.LARGE}[name]), indent=2))
