"""A script for test_disk: runs on files are killed with SIGKILL at many points and run again.

Every run is a fork of this process; it dies before its n-th system call that changes what a later run can see. The next
run in the same directory must complete it, with the same numbers as an undisturbed run and nothing left behind.
"""

import os
import signal
import sys
from pathlib import Path

import numpy as np

from impact_gnn.engines import Disk
from impact_gnn.graph import TemporalGraph

CALLS = ("replace", "fsync", "unlink", "mkdir", "rename", "rmdir", "posix_fallocate")


def run(place, graph):
    disk = Disk(place, memory=17 * 4 * graph.num_nodes, threads=1)
    both = disk.graph(graph, upto=2, undirected=True)
    return disk.hops([disk.operator(both, weighting="pmp")] * 2, both.x)


def dying_at(limit):
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


def forked(work):
    child = os.fork()
    if child == 0:
        work()
        os._exit(0)
    return os.waitpid(child, 0)[1]


def names(place):
    return sorted(str(p.relative_to(place)) for p in place.rglob("*"))


def main(place, step):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 40)).astype(np.float32)
    graph = TemporalGraph(x=x, time=rng.integers(0, 4, 300), edge_index=rng.integers(0, 300, (2, 3000)))
    wanted = [np.array(hop) for hop in run(place / "work", graph)]
    files = names(place / "work")
    (place / "work").rename(place / "undisturbed")
    killed = 0
    for limit in range(1, 10**6, step):

        def dying(limit=limit):
            dying_at(limit)
            run(place / "work", graph)

        if not os.WIFSIGNALED(forked(dying)):
            break  # it needs fewer calls than that
        killed += 1
        hops = run(place / "work", graph)
        assert all((a == np.asarray(b)).all() for a, b in zip(wanted, hops, strict=True)), limit
        assert names(place / "work") == files, limit
        (place / "work").rename(place / str(limit))
    print("killed", killed)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
