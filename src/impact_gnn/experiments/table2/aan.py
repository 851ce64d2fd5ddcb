"""AAN: citations and authorship of the ACL Anthology Network, 7 topics by venue; a small ogbn-mag."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from impact_gnn.experiments.table2 import sources
from impact_gnn.experiments.table2.recipes import Decoupled
from impact_gnn.experiments.table2.study import Problem, Study, rows_of
from impact_gnn.graph import TemporalGraph

CUTOFF = 2011
METHODS = ("plain", "mmp", "pmp", "genpmp", "center", "pmp+center", "pmp+jjnorm", "pmp+ends", "genpmp+ends")
PAPER = ("plain", "mmp", "pmp", "pmp+jjnorm")
"""The methods of the paper's table; squashing has no metapaths and therefore no ends."""


def load(root: Path | None, seed: int, features: Path | None) -> Problem:
    """Papers with citations and authors; authors have neither features nor time."""
    data = sources.arrays(sources.needed(root) / "aan" / "aan.npz")
    graph = TemporalGraph.hetero(
        nodes={
            "paper": {"x": data["x"].astype(np.float32), "y": data["y"], "time": data["time"]},
            "author": {"num_nodes": int(data["num_authors"])},
        },
        edges={("paper", "cites", "paper"): data["edge_index"], ("author", "writes", "paper"): data["author_writes"]},
        target="paper",
    )
    return Problem.of(sources.with_features(graph, features), CUTOFF)


STUDY = Study(
    "aan",
    "AAN: 16,414 papers (2,060 labelled), 12,552 authors; labels before 2011 known, 429 papers from 2011 on scored",
    load,
    rows=(
        *rows_of("SeHGNN", Decoupled("sehgnn"), METHODS),
        *rows_of("RpHGNN", Decoupled("rphgnn"), PAPER),
        *rows_of("RpHGNN+curriculum", Decoupled("rphgnn", extras=("curriculum",)), PAPER),
    ),
    seeds=5,
    notes=("429 papers are scored: one of them is .0023.",),
)
