"""Claim: relative connectivity of 10 M edges takes at most twice a bare np.bincount over precomputed keys.

The keys that bincount gets (state of target, state of source, as int64) are exactly what our pass has to make
from the edges; they are computed beforehand and not timed. Both sides are timed in turn, in one run; the ratio
of the medians is the claim. Beside it stand the ratio of the minima and that of the processor time summed over
threads: our pass runs on all cores and bincount on one, so on a machine busy with other work (the load is printed)
the elapsed ratio tends towards the processor's.

    python benchmarks/connectivity.py [edges] [nodes] [labels] [rounds]
"""

import os
import sys
from time import perf_counter, process_time

import numpy as np

from impact_gnn.connectivity import relative_connectivity

GOAL = 2.0


def main(num_edges=10_000_000, num_nodes=1_000_000, num_labels=10, rounds=15):
    num_times, cutoff = 10, 8
    rng = np.random.default_rng(0)
    edge_index = rng.integers(0, num_nodes, (2, num_edges))
    label = rng.integers(0, num_labels, num_nodes)
    time = rng.integers(0, num_times, num_nodes)
    state = label * num_times + time
    keys = state[edge_index[1]] * (num_labels * num_times) + state[edge_index[0]]

    def bare():
        np.bincount(keys, minlength=(num_labels * num_times) ** 2)

    def counted():
        relative_connectivity(edge_index, label, time, num_labels=num_labels, cutoff=cutoff)

    def everything():
        c = relative_connectivity(edge_index, label, time, num_labels=num_labels, cutoff=cutoff)
        c.label_mass(np.ones((num_times, num_times)))

    tasks = {"np.bincount over keys": bare, "relative_connectivity": counted, "... and label_mass": everything}
    seconds, processor = {name: [] for name in tasks}, {name: [] for name in tasks}
    for task in tasks.values():
        task()
    for _ in range(rounds):
        for name, task in tasks.items():
            start, used = perf_counter(), process_time()
            task()
            seconds[name].append(perf_counter() - start)
            processor[name].append(process_time() - used)
    print(f"{num_edges:,} edges, {num_nodes:,} nodes, {num_labels} labels x {num_times} times, {rounds} rounds")
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    base = "np.bincount over keys"
    for name in tasks:
        middle = np.median(seconds[name]) / np.median(seconds[base])
        least = min(seconds[name]) / min(seconds[base])
        work = np.median(processor[name]) / np.median(processor[base])
        spent = np.median(seconds[name]) * 1e3
        print(f"{name:24s} {spent:7.1f} ms   ratio {middle:5.2f}   minima {least:5.2f}   processor {work:5.2f}")
    ratio = np.median(seconds["relative_connectivity"]) / np.median(seconds[base])
    print(f"ratio {ratio:.2f}, goal {GOAL}: {'met' if ratio <= GOAL else 'missed'}")
    return ratio


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
