"""A script for test_disk: runs on files are killed with SIGKILL at many points and run again.

Every run is a fork of this process; it dies at its n-th call that changes a file. The next run in the same directory
must complete it, with the same numbers as an undisturbed run and nothing left behind.
"""

import os
import signal
import sys
from pathlib import Path

import numpy as np

from impact_gnn.graph import TemporalGraph
from impact_gnn.propagation import manifest
from impact_gnn.propagation.disk import Disk

CALLS = ("pwrite", "replace", "fsync", "unlink")


def run(place, graph):
    disk = Disk(place, memory=16 * 4 * graph.num_nodes, threads=2)
    step = disk.operator(graph, weighting="pmp")
    return disk.hops([step, step], graph.x)


def counted(limit):
    """From now on calls that change files are counted, and the process dies before number `limit`."""
    seen = [0]
    for name in CALLS:
        plain = getattr(os, name)

        def call(*arguments, plain=plain, **options):
            seen[0] += 1
            if seen[0] == limit:
                os.kill(os.getpid(), signal.SIGKILL)
            return plain(*arguments, **options)

        setattr(os, name, call)
    return seen


def forked(work):
    child = os.fork()
    if child == 0:
        work()
        os._exit(0)
    return os.waitpid(child, 0)[1]


def main(place, step):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 40)).astype(np.float32)
    graph = TemporalGraph(x=x, time=rng.integers(0, 4, 300), edge_index=rng.integers(0, 300, (2, 3000)))
    manifest.INTERVAL = 0.0  # write down every slice at once: the most points at which to die
    wanted = [np.array(hop) for hop in run(place / "undisturbed", graph)]
    files = sorted(p.name for p in (place / "undisturbed").iterdir())
    killed = 0
    for limit in range(1, 10**6, step):
        where = place / str(limit)

        def dying(where=where, limit=limit):
            counted(limit)
            run(where, graph)

        if not os.WIFSIGNALED(forked(dying)):
            break  # it needs fewer calls than that
        killed += 1
        again = run(where, graph)
        assert all((a == b).all() for a, b in zip(wanted, again, strict=True)), limit
        assert sorted(p.name for p in where.iterdir()) == files, limit
    print("killed", killed)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
