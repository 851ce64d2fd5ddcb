"""Claim: the metapaths of a graph of ogbn-mag's size fit into 12 GB of RAM, and into 2 GB with the Disk engine.

`python benchmarks/metapaths.py [--scale 1] [--cap 2GB] [--only memory,disk] [--json FILE]`

The graph is drawn and saved once, with the ways back. Then every contestant is a process of its own that opens it and
makes all metapaths to papers of up to two relations, 128 features in float32, PMP: in memory and on disk, Ω on the
edges or on the two ends; the label metapaths; and on disk in 16 bits, with the error that this makes. Peak
memory is what the kernel says (`VmHWM`), and CPU time is that of all threads, interpreter and imports included.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

GOALS = {"memory": 12e9, "disk": 2.3e9}
CUTOFF = 2019
CONTESTANTS = ("memory", "disk", "disk-float16", "memory-ends", "disk-ends", "memory-labels")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=0.1, help="Nodes and edges in units of ogbn-mag's.")
    parser.add_argument("--cap", default="2GB", help="Memory of the Disk engine.")
    parser.add_argument("--only", default=",".join(CONTESTANTS), help="Who takes part, separated by commas.")
    parser.add_argument("--place", type=Path, help="Where files go for the time of the run.")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        print(json.dumps(child(given.child[0], Path(given.child[1]), Path(given.child[2]), given.scale, given.cap)))
        return
    result = {"scale": given.scale, "cap": given.cap, "goals": GOALS, "runs": {}}
    with tempfile.TemporaryDirectory(dir=given.place) as place:
        for name in ("generate", *given.only.split(",")):
            call = [sys.executable, __file__, "--scale", str(given.scale), "--cap", given.cap]
            done = subprocess.run([*call, "--child", name, f"{place}/graph", f"{place}/{name}"], capture_output=True)
            if done.returncode:
                sys.exit(f"{name} failed:\n{done.stderr.decode()}")
            found = result["runs"][name] = json.loads(done.stdout.splitlines()[-1])
            rest = ", ".join(f"{key} {value}" for key, value in found.items() if key not in ("seconds", "cpu", "peak"))
            taken = f"{found['seconds']:7.1f} s  CPU {found['cpu']:7.1f} s  peak {found['peak'] / 1e9:5.2f} GB"
            print(f"{name:14} {taken}  {rest}", flush=True)
    if given.json:
        given.json.write_text(json.dumps(result, indent=1) + "\n")


def child(name: str, graph: Path, work: Path, scale: float, cap: str) -> dict[str, float]:
    import impact_gnn as ig
    from impact_gnn.data.hetero_tsbm import MAG, hetero_tsbm, scaled
    from impact_gnn.engines import Disk
    from impact_gnn.propagation.disk_operator import open_saved
    from impact_gnn.propagation.metapaths import metapath_hops, metapath_label_hops

    start = time.perf_counter()
    if name == "generate":
        made = hetero_tsbm(**scaled(MAG, scale), seed=0)
        drawn = time.perf_counter() - start
        made.undirected().save(graph)
        spent = time.process_time()
        return {
            "seconds": drawn,
            "cpu": spent,
            "peak": peak(),
            "edges": sum(r.num_edges for r in made.relations.values()),
        }
    weighting = "ends" if name.endswith("-ends") else "edges"
    if name == "memory-labels":
        found = metapath_label_hops(ig.load(graph).masked(CUTOFF), weighting="pmp")
    elif name.startswith("memory"):
        found = metapath_hops(ig.load(graph), weighting="pmp", metapath_weighting=weighting)
    else:
        engine = Disk(work, memory=cap, storage="float16" if name.endswith("float16") else None)
        found = metapath_hops(open_saved(graph), weighting="pmp", metapath_weighting=weighting, engine=engine)
    seconds = time.perf_counter() - start
    result = {"seconds": seconds, "cpu": time.process_time(), "peak": peak(), "paths": len(found)}
    if name == "disk-float16":
        result["relative error"] = error(found, work)
    return result


def error(found: dict[str, np.ndarray], work: Path) -> float:
    """‖float16 − float32‖ / ‖float32‖ of the worst path, from the files that the contestant "disk" left."""
    worst = 0.0
    for name, hop in found.items():
        exact = np.load(work.with_name(f"disk-{name}") / "hop-1.npy", mmap_mode="r")
        off = whole = 0.0
        for first in range(0, len(hop), 8192):
            rows = exact[first : first + 8192]
            off += float(((hop[first : first + 8192].astype(np.float32) - rows) ** 2).sum())
            whole += float((rows**2).sum())
        worst = max(worst, (off / whole) ** 0.5)
    return worst


def peak() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith("VmHWM")))


if __name__ == "__main__":
    main()
