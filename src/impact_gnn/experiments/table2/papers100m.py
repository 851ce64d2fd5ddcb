"""ogbn-papers100M: GAMLP with RLU, plain and with GenPMP, hops by the disk engine.

Hyper-parameters are those of GAMLP with GIANT features: 6 hops, hidden 1024, 6 layers, dropout .5, 4 stages of up to
150 epochs, steps of 5,000 rows, 3 runs. Hops of 111 million nodes are kept on disk in half precision, 170 GB per row of
the table, and label hops in single precision, 150 GB per stage; in memory are those of labelled papers, about 10 GB.
"""

from __future__ import annotations

from impact_gnn.experiments.table2 import sources
from impact_gnn.experiments.table2.recipes import Staged
from impact_gnn.experiments.table2.study import Study, rows_of

PUBLISHED = {"plain": (0.7305, 0.6967), "genpmp": (0.7330, 0.6976)}


STUDY = Study(
    "papers100M",
    "ogbn-papers100M: 111,059,956 papers, official split of the labelled ones (2019 scored)",
    sources.official("ogbn-papers100M"),  # papers without a label only pass messages on
    rows=rows_of("GAMLP+RLU", Staged(), ("plain", "genpmp"), PUBLISHED),
    seeds=3,
    keep=False,
    notes=(
        "The published rows use GIANT features; give them by --features to compare.",
        "Label hops reach 2 steps, up to where the own label can be left out exactly, instead of 9; a stage "
        "believes predictions from .85 on, where the published runs weight all of them.",
    ),
)
