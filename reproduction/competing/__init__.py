"""Competing methods and models of the studies, registered as parts and models of pipelines.

Importing this package adds them to the tables of the product, which does not contain them.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from impact_gnn import checks, nn, weighting
from impact_gnn.checks import InputError
from impact_gnn.estimators import ModelSpec, Network, register_model
from impact_gnn.label_shift import ratio, reweighted, tempered
from impact_gnn.methods import (
    NETWORKS,
    READS_HOPS,
    HopContext,
    Kind,
    ModelKind,
    Needs,
    Part,
    PriorEvidence,
    RowContext,
    register,
)
from impact_gnn.methods.aligned_hops import communities_of, jjnorm_jointly
from reproduction.competing.bbse import bbse
from reproduction.competing.consistency import Consistency, ConsistentHead
from reproduction.competing.curriculum import Curriculum, with_curriculum
from reproduction.competing.editors import EDITORS, Editable, RiskEditors
from reproduction.competing.matching import kernel_mean_matching
from reproduction.competing.originals import OriginalSeHGNN
from reproduction.competing.revgat import LinearRevGAT, RevGAT
from reproduction.competing.terms import MomentDiscrepancy, RiskVariance
from reproduction.losses import Schedule

EDGES = frozenset({Needs.EDGES})
LEARNS = frozenset(ModelKind) - {ModelKind.PRIOR}


def _pmp_definition(times: np.ndarray, counts: np.ndarray) -> np.ndarray:
    return weighting.pmp(times, same_time="double", border="upper")


def _jjnorm_jointly(hops: list[Any], context: HopContext) -> list[Any]:
    """JJnorm with one number per period for all hops of a relation."""
    communities, aligned = communities_of(context), []
    ends = np.cumsum(context.relation_sizes)
    for start, end in zip([0, *ends[:-1]], ends, strict=True):
        aligned += jjnorm_jointly(hops[start:end], communities)
    return aligned


def _matched_weight(context: RowContext) -> np.ndarray:
    """Weights under which the rows to train on look like the rows to predict."""
    columns = context.read(context.train[:1]).shape[1]
    size = 8 * (len(context.train) + len(context.reference)) * columns
    checks.fits("rows to match", size, "leave out 'kmm'")
    return kernel_mean_matching(
        context.read(context.train),
        context.read(context.reference),
        context.label[context.train],
        seed=context.seed,
    )


def _moment_term(context: RowContext) -> nn.Term | None:
    return MomentDiscrepancy(context.reference) if len(context.reference) else None


def _risk_term(context: RowContext) -> nn.Term:
    return RiskVariance(context.time.astype(np.int64))


def _editor_term(context: RowContext) -> nn.Term:
    task = context.task
    assert isinstance(task, nn.GraphTask)
    assert isinstance(task.propagation, Editable)
    return RiskEditors.of(task.propagation)


def _with_curriculum(training: nn.Training) -> nn.Training:
    return with_curriculum(training, Curriculum.within(training.epochs))


def _with_drop(training: nn.Training) -> nn.Training:
    return with_curriculum(training, Curriculum.within(training.epochs, pace="drop"))


def _adjust_by_confusion(
    probabilities: np.ndarray, unsmoothed: np.ndarray, evidence: PriorEvidence
) -> np.ndarray:
    if evidence.confusion is None:
        raise InputError(
            "'bbse' counts errors in a labelled period outside training, but there is "
            "only one labelled period; use 'shift'."
        )
    base = tempered(unsmoothed, evidence.temperature)
    factor = ratio(bbse(evidence.confusion, base.argmax(1)), evidence.prior)
    return reweighted(tempered(probabilities, evidence.temperature), factor).astype(np.float32)


PARTS = [
    Part(
        "pmp-definition",
        Kind.WEIGHTING,
        "as pmp, by the paper's Definition 4.1 instead of its algorithms",
        needs=EDGES | {Needs.TIMED_EDGES},
        edge_weights=_pmp_definition,
    ),
    Part(
        "stamp",
        Kind.WEIGHTING,
        "as gsmp, in the first hop only",
        needs=EDGES | {Needs.TIMED_SOURCES},
        conflicts=dict.fromkeys(("pny", "ends"), "it needs weights by two times"),
        models=READS_HOPS - {ModelKind.SQUASHED},
        edge_weights=weighting.FirstHop("gsmp"),
    ),
    Part(
        "jjnorm-joint",
        Kind.ALIGNMENT,
        "as jjnorm, with one number per period for all hops of a relation",
        needs=EDGES,
        conflicts={"jjnorm": "it includes 'jjnorm'"},
        models=READS_HOPS,
        align=_jjnorm_jointly,
    ),
    Part(
        "kmm",
        Kind.TRAINING,
        "labels have larger weights where their inputs look like those of the targets",
        cost=1.5,
        patient=True,
        row_weight=_matched_weight,
    ),
    Part(
        "curriculum",
        Kind.TRAINING,
        "training begins with the labels that are easy to learn",
        models=NETWORKS,
        training=_with_curriculum,
    ),
    Part(
        "drop",
        Kind.TRAINING,
        "labels whose loss falls fastest count as easy",
        requires=("curriculum",),
        models=NETWORKS,
        training=_with_drop,
    ),
    Part(
        "cmd",
        Kind.TRAINING,
        "hidden units of labelled nodes and of targets are pulled to the same moments",
        models=NETWORKS - {ModelKind.LINEAR},
        cost=3.0,
        patient=True,
        loss_term=_moment_term,
    ),
    Part(
        "vrex",
        Kind.TRAINING,
        "the variance of the loss between past periods is penalised",
        models=NETWORKS,
        cost=1.5,
        patient=True,
        loss_term=_risk_term,
    ),
    Part(
        "eerm",
        Kind.TRAINING,
        "the variance of the loss between adversarially edited graphs is penalised",
        needs=EDGES,
        conflicts={"labels": "edited graphs would contain the labels to learn"},
        models=frozenset({ModelKind.GRAPH}),
        cost=1.5 * (1 + EDITORS),
        patient=True,
        loss_term=_editor_term,
        propagation=Editable,
    ),
    Part(
        "bbse",
        Kind.PREDICTION,
        "as shift, with class proportions estimated from a confusion matrix",
        conflicts={"shift": "both estimate the class proportions"},
        models=LEARNS,
        adjust=_adjust_by_confusion,
    ),
]
for _part in PARTS:
    register(_part)

RPHGNN = Network(
    nn.RpHGNN,
    kind=ModelKind.SQUASHED,
    hidden=512,
    dropout=0.4,
    lr=0.003,
    training=nn.Training(schedule=Schedule(decay=0.99)),
)
MODELS = {
    "sehgnn-original": ModelSpec.of_network(
        "SeHGNN with the layers and width published for ogbn-mag",
        Network(
            OriginalSeHGNN,
            hidden=512,
            lr=0.001,
        ),
        cost=6.0,
        several_types=True,
    ),
    "rphgnn-original": ModelSpec(
        "RpHGNN with the width, schedule and consistency loss published for ogbn-mag",
        kind=ModelKind.SQUASHED,
        make=partial(ConsistentHead, RPHGNN),
        network=RPHGNN,
        cost=3.0,
        several_types=True,
    ),
    "revgat": ModelSpec.of_network(
        "RevGAT: a deep attention network of invertible blocks",
        Network(RevGAT, kind=ModelKind.GRAPH, lr=0.002),
    ),
    "revgat-linear": ModelSpec.of_network(
        "linear RevGAT: a wide network of invertible blocks without attention",
        Network(LinearRevGAT, kind=ModelKind.GRAPH, lr=0.002),
    ),
}
for _name, _spec in MODELS.items():
    register_model(_name, _spec)

__all__ = [
    "MODELS",
    "PARTS",
    "Consistency",
    "Curriculum",
    "Editable",
    "LinearRevGAT",
    "RevGAT",
]
