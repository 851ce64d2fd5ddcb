"""Table 2: which correction helps on real graphs, and on a heterogeneous block model.

One file per data set says what is run: models, methods, hyper-parameters, seeds, and the paper's numbers where it has
them. `run(name, ...)` runs a study and goes on where it was stopped; `write` makes a page of the result.
"""

from impact_gnn.experiments.table2.page import write
from impact_gnn.experiments.table2.runner import STUDIES, run

__all__ = ["STUDIES", "run", "write"]
