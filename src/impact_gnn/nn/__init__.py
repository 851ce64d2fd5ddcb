"""Layers, models and training for graphs in time.

Decoupled models (`SGC`, `SIGN`, `GAMLP`, `SeHGNN`, `RpHGNN`) read precomputed hops of any rows;
spatial ones (`GCN`, `SAGE`, `GAT`) read features and a `Propagation`.
`fit` trains either kind.
"""

from impact_gnn.nn.align_layers import (
    ALIGNMENTS,
    PNY,
    Align,
    JJNorm,
    Message,
    TimeCenter,
    TimeStandardize,
    align_layer,
)
from impact_gnn.nn.decoupled import GAMLP, SGC, SIGN, Linear
from impact_gnn.nn.hetero import RpHGNN, SeHGNN
from impact_gnn.nn.loss import (
    CrossEntropy,
    Loss,
    Schedule,
    Step,
    Term,
)
from impact_gnn.nn.sparse import Propagation
from impact_gnn.nn.spatial import GAT, GCN, SAGE
from impact_gnn.nn.stages import Lesson, Reliable
from impact_gnn.nn.tasks import GraphTask, HopTask, Split, Task, split_rows
from impact_gnn.nn.training import (
    Diverged,
    Epoch,
    Result,
    Run,
    Training,
    fit,
    predict,
)

__all__ = [
    "ALIGNMENTS",
    "GAMLP",
    "GAT",
    "GCN",
    "PNY",
    "SAGE",
    "SGC",
    "SIGN",
    "Align",
    "CrossEntropy",
    "Diverged",
    "Epoch",
    "GraphTask",
    "HopTask",
    "JJNorm",
    "Lesson",
    "Linear",
    "Loss",
    "Message",
    "Propagation",
    "Reliable",
    "Result",
    "RpHGNN",
    "Run",
    "Schedule",
    "SeHGNN",
    "Split",
    "Step",
    "Task",
    "Term",
    "TimeCenter",
    "TimeStandardize",
    "Training",
    "align_layer",
    "fit",
    "predict",
    "split_rows",
]
