"""The parts that come with the package, one row each."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy import ndarray

from impact_gnn.label_shift import ratio, reweighted, saerens, tempered
from impact_gnn.methods import aligned_hops
from impact_gnn.methods.method import PLAIN, Method
from impact_gnn.methods.part import (
    READS_HOPS,
    Kind,
    ModelKind,
    Needs,
    Part,
    PriorEvidence,
)
from impact_gnn.methods.registry import register
from impact_gnn.propagation.degrees import degree_columns, degree_names
from impact_gnn.propagation.history import (
    history_columns,
    history_names,
    recent_and_last_labels,
)

EDGES = frozenset({Needs.EDGES})
TIMED_EDGES = frozenset({Needs.EDGES, Needs.TIMED_EDGES})
LEARNS = frozenset(ModelKind) - {ModelKind.PRIOR}
READS_HOPS_OR_GRAPH = READS_HOPS | {ModelKind.GRAPH}
READS_PATHS = READS_HOPS - {ModelKind.SQUASHED}


def _recency(time: ndarray, label: ndarray, half_lives: float = 3.0) -> ndarray:
    """0.5^(age / half-life) of every row; age counts from the newest label.

    The labelled span has `half_lives` half-lives.
    """
    labelled = time[label >= 0]
    span = float(labelled.max() - np.quantile(labelled, 0.05))
    half_life = max(1.0, span / half_lives)
    age = (labelled.max() - time).clip(0)
    return 0.5 ** (age / half_life)


def _window(time: ndarray, label: ndarray) -> ndarray:
    """1 for rows of the last periods that hold a third of the labels, 0 for older ones."""
    labelled = time[label >= 0]
    return (time >= np.quantile(labelled, 2 / 3, method="higher")).astype(np.float64)


def _adjust_prior(probabilities: ndarray, unsmoothed: ndarray, evidence: PriorEvidence) -> ndarray:
    """Probabilities under the class prior of the targets, estimated by EM."""
    estimate = saerens(tempered(unsmoothed, evidence.temperature), evidence.prior)
    factor = ratio(estimate, evidence.prior)
    return reweighted(tempered(probabilities, evidence.temperature), factor).astype(np.float32)


def _check_features(method: Method) -> str | None:
    weighted = method.weighting != PLAIN and "smooth" not in method
    if method.of_kind(Kind.ALIGNMENT) or weighted:
        return "which uses no messages that could be corrected; drop it or the correction"
    return None


def _check_ends(method: Method) -> str | None:
    if method.weighting == PLAIN:
        return "which needs a weighting; add one such as 'pmp'"
    return None


def _check_last(method: Method) -> str | None:
    if set(method.names) - {"last", "smooth"}:
        return "which replaces all inputs and learns from no features; drop the other parts"
    return None


BUILTIN = [
    Part(
        PLAIN,
        Kind.WEIGHTING,
        "messages are unweighted means over neighbours of any time; nothing is corrected",
    ),
    Part(
        "mmp",
        Kind.WEIGHTING,
        "only neighbours that are not newer than the node itself are averaged",
        needs=TIMED_EDGES,
        search_rank=11,
        prior_score=-0.6,
    ),
    Part(
        "pmp",
        Kind.WEIGHTING,
        "neighbours are weighted by time so that all periods have the same mix of time distances",
        needs=TIMED_EDGES,
        search_rank=3,
    ),
    Part(
        "genpmp",
        Kind.WEIGHTING,
        "as pmp, with weights estimated from the number of nodes in every period",
        needs=TIMED_EDGES,
        search_rank=4,
    ),
    Part(
        "gsmp",
        Kind.WEIGHTING,
        "the periods among a node's neighbours are weighted equally, whatever their sizes",
        needs=frozenset({Needs.EDGES, Needs.TIMED_SOURCES}),
        conflicts=dict.fromkeys(("pny", "ends"), "it needs weights by two times"),
        models=LEARNS,
        search_rank=17,
        min_effort="normal",
    ),
    Part(
        "center",
        Kind.ALIGNMENT,
        "the mean message of every period is removed",
        needs=EDGES,
        conflicts={"standardize": "'standardize' includes 'center'"},
        models=READS_HOPS_OR_GRAPH,
        search_rank=7,
        align=aligned_hops.center,
        all_nodes=True,
    ),
    Part(
        "standardize",
        Kind.ALIGNMENT,
        "messages of every period are scaled to mean 0 and variance 1",
        needs=EDGES,
        models=READS_HOPS_OR_GRAPH,
        search_rank=8,
        align=aligned_hops.standardize,
        all_nodes=True,
    ),
    Part(
        "jjnorm",
        Kind.ALIGNMENT,
        "messages of every class and period are scaled to the variance of the target period",
        needs=EDGES,
        models=READS_HOPS_OR_GRAPH,
        search_rank=9,
        align=aligned_hops.jjnorm,
        labelled_only=True,
    ),
    Part(
        "pny",
        Kind.ALIGNMENT,
        "messages of every class and period are mapped to the covariance of the last period",
        needs=EDGES,
        conflicts={"ends": "pny uses weights by edge"},
        check_graph=aligned_hops.check_pny,
        models=READS_HOPS_OR_GRAPH,
        align=aligned_hops.pny,
        labelled_only=True,
    ),
    Part(
        "labels",
        Kind.INPUT,
        "known labels of neighbours are further features (never a node's own label)",
        needs=EDGES,
        models=READS_HOPS_OR_GRAPH,
        search_rank=2,
    ),
    Part(
        "snapshot",
        Kind.INPUT,
        "every labelled node is represented on the graph as it was at its own time",
        needs=EDGES,
        models=READS_HOPS,
        search_rank=5,
    ),
    Part(
        "ends",
        Kind.INPUT,
        "weights depend on the times of the two ends of a path through nodes without a time",
        needs=frozenset({Needs.EDGES, Needs.UNTIMED_NEIGHBOURS}),
        provides=frozenset({Needs.TIMED_EDGES}),
        check=_check_ends,
        models=READS_PATHS,
        search_rank=12,
    ),
    Part(
        "features",
        Kind.INPUT,
        "the model uses no edges",
        needs=frozenset({Needs.FEATURES}),
        conflicts=dict.fromkeys(
            ("labels", "snapshot", "ends"), "it corrects or adds messages, which are not used"
        ),
        check=_check_features,
        models=READS_HOPS | {ModelKind.PRIOR},
        search_rank=13,
    ),
    Part(
        "degrees",
        Kind.INPUT,
        "the number of a node's edges, and of those to labelled nodes, are further features",
        needs=EDGES,
        models=READS_HOPS,
        search_rank=10,
        inputs=degree_columns,
        steps=1,
        input_names=degree_names,
    ),
    Part(
        "history",
        Kind.INPUT,
        "earlier rows and known labels of the entities of a node are further features",
        needs=frozenset({Needs.HISTORY}),
        models=READS_HOPS,
        search_rank=0,
        prior_score=1.0,
        inputs=history_columns,
        input_names=history_names,
    ),
    Part(
        "last",
        Kind.INPUT,
        "recent class proportions are mixed with the last known labels of the entities of a node",
        needs=frozenset({Needs.HISTORY}),
        check=_check_last,
        models=frozenset({ModelKind.PRIOR}),
        proportions=recent_and_last_labels,
    ),
    Part(
        "recency",
        Kind.TRAINING,
        "recent labels have larger weights in training",
        search_rank=1,
        label_weight=_recency,
    ),
    Part(
        "recency-fast",
        Kind.TRAINING,
        "as recency, with a half-life of a tenth of the labelled span",
        conflicts={"recency": "both weight labels by their age"},
        search_rank=1,
        prior_score=-0.4,
        label_weight=partial(_recency, half_lives=10.0),
    ),
    Part(
        "window",
        Kind.TRAINING,
        "only labels of the last periods are trained on, a third of all",
        conflicts=dict.fromkeys(["recency", "recency-fast"], "both weight labels by their age"),
        cost=0.4,
        search_rank=1,
        prior_score=-0.5,
        label_weight=_window,
    ),
    Part(
        "stages",
        Kind.TRAINING,
        "the model is trained several times, later on its own confident predictions as well",
        needs=EDGES,
        models=LEARNS,
        cost=3.0,
        search_rank=14,
        min_effort="normal",
    ),
    Part(
        "smooth",
        Kind.PREDICTION,
        "predictions are corrected by the errors on known labels, then smoothed along the edges",
        needs=EDGES,
    ),
    Part(
        "shift",
        Kind.PREDICTION,
        "probabilities are adjusted to the class proportions estimated for the targets",
        models=LEARNS,
        search_rank=15,
        min_effort="normal",
        adjust=_adjust_prior,
    ),
]
for _part in BUILTIN:
    register(_part)
