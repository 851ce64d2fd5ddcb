"""The time row: what each method costs when it is trained alone, as a ratio to the plain model in the same run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from impact_gnn.experiments import published
from impact_gnn.experiments.columns import Column
from impact_gnn.experiments.runs import PREDICT, one_thread
from impact_gnn.experiments.sample import draw
from impact_gnn.experiments.setting import Options, Protocol, Row


def run(
    model: str, columns: Sequence[Column], protocol: Protocol, row: Row, options: Options, graphs: int
) -> dict[str, dict[str, float | None]]:
    """Seconds per graph and method in one thread, preparation included, and the ratio to plain's.

    The fastest graph counts. Methods take turns on every graph, so that a busy machine slows all of them.
    `published_ratio` is the paper's.
    """
    best: dict[str, float] = {}
    short = replace(options, epochs=1)
    with one_thread():
        for seed in range(-1, graphs):  # the first round compiles
            sample = draw(protocol, row, model, max(seed, 0), options.num_nodes)
            sample.view.csr()  # every method needs it, none should pay for it
            for column in columns:
                start = time.perf_counter()
                PREDICT[model]([sample], [column], protocol, options if seed >= 0 else short)
                seconds = time.perf_counter() - start
                if seed >= 0:
                    best[column.name] = min(seconds, best.get(column.name, seconds))
    paper = published.TIME[model]
    return {
        name: {
            "seconds": seconds,
            "ratio": seconds / best["plain"],
            "published_ratio": paper[name] / paper["plain"] if name in paper else None,
        }
        for name, seconds in best.items()
    }
