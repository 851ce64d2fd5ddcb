"""Claim: `jjnorm` on 1,000,000 x 128 float32, 10 periods and 40 labels, takes at most 3 times a copy of the array.

Through the public call, output allocated, medians of rounds in which copy and `jjnorm` take turns; with one thread
(as the copy has) and with all. First into fresh memory, where the system's page faults cost both much, then with freed
memory kept by the allocator, where a copy is at its fastest: the harder measure.
"""

import ctypes
import time

import numba
import numpy as np

from impact_gnn import alignment

NODES, WIDTH, PERIODS, LABELS, ROUNDS = 1_000_000, 128, 10, 40, 7


def medians(*works):
    took = []
    for _ in range(ROUNDS):
        took.append([])
        for work in works:
            begun = time.perf_counter()
            work()
            took[-1].append(time.perf_counter() - begun)
    return np.median(took, axis=0)


def keep_memory():
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):  # glibc
        libc.mallopt(-4, 0)  # no memory maps
        libc.mallopt(-1, 2**31 - 1)  # no trimming


def main():
    rng = np.random.default_rng(0)
    message = rng.standard_normal((NODES, WIDTH), dtype=np.float32)
    label, time_of = rng.integers(0, LABELS, NODES), rng.integers(0, PERIODS, NODES)
    target = time_of >= PERIODS - 2
    communities = alignment.Communities.of(label, time_of, target)
    works = (
        message.copy,
        lambda: alignment.jjnorm(message, label, time_of, target=target),
        lambda: alignment.jjnorm_by(message, communities),
    )
    works[1]()  # compile
    for memory in ("fresh", "kept"):
        if memory == "kept":
            keep_memory()
            medians(*works)
        for threads in sorted({1, numba.config.NUMBA_NUM_THREADS}):
            numba.set_num_threads(threads)
            copy, whole, grouped = medians(*works)
            print(
                f"{memory} memory, {threads} threads: copy {copy:.3f} s, jjnorm {whole:.3f} s = {whole / copy:.2f} x "
                f"(goal: at most 3), with the grouping made before (as in a layer) {grouped / copy:.2f} x"
            )


if __name__ == "__main__":
    main()
