"""ogbn-arxiv: linear RevGAT, plain and with GenPMP.

Hyper-parameters are those of RevGAT with GIANT features: 2 blocks, hidden 256, dropout .75, lr .002, 2,000 epochs,
labels as inputs. The features are OGB's unless GIANT's are given (`--features X.all.xrt-emb.npy`).
`arxiv-svd` is the same graph with other features, small enough for two cores.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from impact_gnn.experiments.table2 import sources
from impact_gnn.experiments.table2.recipes import Decoupled, Linear
from impact_gnn.experiments.table2.study import Problem, Study, rows_of
from impact_gnn.graph import TemporalGraph

PUBLISHED = {"plain": (0.7287, 0.7065), "genpmp": (0.7568, 0.7468)}
CUTOFF = 2019
METHODS = ("plain", "mmp", "pmp", "genpmp", "center", "pmp+center", "pmp+jjnorm")


def load_svd(root: Path | None, seed: int, features: Path | None) -> Problem:
    """The same nodes, edges, labels and years with a spectral embedding of the graph as features."""
    folder = sources.needed(root) / "ogbn_arxiv"
    data, more = sources.arrays(folder / "ogbn_arxiv.npz"), sources.arrays(folder / "ogbn_arxiv_svd64.npz")
    graph = TemporalGraph(
        x=more["x_svd"].astype(np.float32), y=data["y"], time=data["time"], edge_index=data["edge_index"]
    )
    return Problem.of(sources.with_features(graph, features), CUTOFF)


STUDY = Study(
    "arxiv",
    "ogbn-arxiv: 169,343 papers, official split (2019 and later scored)",
    sources.official("ogbn-arxiv"),  # papers of 2018 are chosen by
    rows=rows_of("Linear RevGAT", Linear(), ("plain", "genpmp"), PUBLISHED),
    seeds=10,
    notes=(
        "The published rows use GIANT features; give them by --features to compare.",
        "Messages are row means with self-loops in both rows; labels enter as the share among a node's neighbours, "
        "own label excluded, where RevGAT hides half of them at random.",
    ),
)

STANDIN = Study(
    "arxiv-svd",
    "ogbn-arxiv with 64 spectral features in place of OGB's; labels before 2019 known, 48,603 papers scored",
    load_svd,
    rows=(
        *rows_of("SIGN", Decoupled("sign", epochs=12), METHODS),
        *rows_of(
            "Linear RevGAT",
            Linear(hidden=64, dropout=0.25, epochs=30, patience=10, lr=0.01, labels=False),
            ("plain", "genpmp"),
        ),
    ),
    seeds=5,
    notes=("Other features than OGB's: nothing here can be compared with the leaderboard or the paper.",),
)
