"""ACL Anthology 2000-2024: papers that share authors, 13 classes, no citations; features drift."""

from __future__ import annotations

from pathlib import Path

from impact_gnn.data.files import load as load_graph
from impact_gnn.experiments.table2 import sources
from impact_gnn.experiments.table2.recipes import Decoupled
from impact_gnn.experiments.table2.study import Problem, Study, rows_of

CUTOFF = 2022
METHODS = ("plain", "pmp", "center", "pmp+jjnorm", "mmp+ends", "pmp+ends", "genpmp+ends", "genpmp+center+ends")


def load(root: Path | None, seed: int, features: Path | None) -> Problem:
    """Papers and authors; the only relation is authorship."""
    graph = load_graph(sources.needed(root) / "acl_hetero" / "acl_hetero.npz")
    return Problem.of(sources.with_features(graph, features), CUTOFF)


STUDY = Study(
    "acl_hetero",
    "ACL Anthology: 86,381 papers (31,841 labelled), 88,576 authors; labels before 2022 known",
    load,
    rows=(
        *rows_of("SeHGNN", Decoupled("sehgnn", epochs=20), METHODS),
        *rows_of("RpHGNN", Decoupled("rphgnn", epochs=20), ("plain", "pmp+jjnorm")),
    ),
    seeds=5,
    notes=(
        "The only relation is authorship, and authors have no time: weights on edges (MMP, PMP, GenPMP) change "
        "nothing, so PMP equals plain exactly; only weights on the ends of paper-author-paper do.",
    ),
)
