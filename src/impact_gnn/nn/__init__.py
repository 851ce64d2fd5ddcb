"""Layers, models and training for graphs in time.

Decoupled models (`SGC`, `SIGN`, `GAMLP`, `SeHGNN`, `RpHGNN`) read precomputed hops of any rows;
spatial ones (`GCN`, `SAGE`, `GAT`, `RevGAT`, `LinearRevGAT`) read features and a `Propagation`.
`fit` trains either kind.
"""

from impact_gnn.nn.alignment import (
    ALIGNMENTS,
    PNY,
    Align,
    JJNorm,
    Message,
    TimeCenter,
    TimeStandardize,
    align_layer,
)
from impact_gnn.nn.curriculum import Curriculum
from impact_gnn.nn.decoupled import GAMLP, SGC, SIGN, Linear
from impact_gnn.nn.editors import Editable
from impact_gnn.nn.hetero import RpHGNN, SeHGNN
from impact_gnn.nn.loss import (
    Consistency,
    CrossEntropy,
    Distillation,
    LogCrossEntropy,
    Loss,
    Schedule,
    Step,
    Term,
)
from impact_gnn.nn.revgat import LinearRevGAT, RevGAT
from impact_gnn.nn.shift import TERMS, terms_of
from impact_gnn.nn.sparse import Propagation
from impact_gnn.nn.spatial import GAT, GCN, SAGE
from impact_gnn.nn.stages import Lesson, Reliable, StageResult, fit_stages
from impact_gnn.nn.tasks import GraphTask, HopTask, Split, Task, split_rows
from impact_gnn.nn.training import Diverged, Epoch, Result, Training, fit, predict

__all__ = [
    "ALIGNMENTS",
    "GAMLP",
    "GAT",
    "GCN",
    "PNY",
    "SAGE",
    "SGC",
    "SIGN",
    "TERMS",
    "Align",
    "Consistency",
    "CrossEntropy",
    "Curriculum",
    "Distillation",
    "Diverged",
    "Editable",
    "Epoch",
    "GraphTask",
    "HopTask",
    "JJNorm",
    "Lesson",
    "Linear",
    "LinearRevGAT",
    "LogCrossEntropy",
    "Loss",
    "Message",
    "Propagation",
    "Reliable",
    "Result",
    "RevGAT",
    "RpHGNN",
    "Schedule",
    "SeHGNN",
    "Split",
    "StageResult",
    "Step",
    "Task",
    "Term",
    "TimeCenter",
    "TimeStandardize",
    "Training",
    "align_layer",
    "fit",
    "fit_stages",
    "predict",
    "split_rows",
    "terms_of",
]
