"""The heterogeneous block model: papers, authors, fields and institutions drawn anew for every seed."""

from __future__ import annotations

from pathlib import Path

from impact_gnn.data.hetero_tsbm import hetero_tsbm
from impact_gnn.experiments.table2.aan import METHODS, PAPER
from impact_gnn.experiments.table2.recipes import Decoupled
from impact_gnn.experiments.table2.study import Problem, Study, rows_of

SIZES = {
    "num_papers": 4000, "num_authors": 6000, "num_fields": 400, "num_institutions": 100, "num_times": 10,
    "num_labels": 10, "num_features": 16, "citations": 28_000, "writes": 18_000, "topics": 24_000,
    "affiliations": 6_000,
}  # fmt: skip
DECAY = 0.6
CUTOFF = 8
"""As in the paper's synthetic study: times 8 and 9 of ten are predicted."""


def load(root: Path | None, seed: int, features: Path | None) -> Problem:
    """A new graph for every seed."""
    return Problem.of(hetero_tsbm(**SIZES, decay=DECAY, seed=seed), CUTOFF)


STUDY = Study(
    "hetero-tsbm",
    f"heterogeneous TSBM: {SIZES['num_papers']:,} papers, 10 labels, 10 times, decay {DECAY}; times 8 and 9 scored",
    load,
    rows=(
        *rows_of("SeHGNN", Decoupled("sehgnn"), METHODS),
        *rows_of("RpHGNN", Decoupled("rphgnn"), PAPER),
    ),
    seeds=5,
    fresh=True,
)
