"""Evidence before training: do the assumptions hold, how far do messages shift, what is worth a back-test?

`diagnose` looks at a graph through a view that does not hold labels at or after the cutoff. `advise` turns what it
found into an order of candidates.
"""

from __future__ import annotations

from collections.abc import Callable

from impact_gnn import checks
from impact_gnn.diagnostics.advice import Advice, Candidate, advise
from impact_gnn.diagnostics.decay import decay
from impact_gnn.diagnostics.diagnosis import Diagnosis
from impact_gnn.diagnostics.feature_drift import feature_drift
from impact_gnn.diagnostics.feature_map import EMBEDDINGS, feature_map
from impact_gnn.diagnostics.finding import VERDICTS, Finding
from impact_gnn.diagnostics.label_mix import label_mix
from impact_gnn.diagnostics.models import fit_models
from impact_gnn.diagnostics.pairs import PairCounts
from impact_gnn.diagnostics.separability import separability
from impact_gnn.diagnostics.shift import MessageShift, message_shift
from impact_gnn.diagnostics.view import View
from impact_gnn.graph import TemporalGraph

__all__ = [
    "EMBEDDINGS",
    "VERDICTS",
    "Advice",
    "Candidate",
    "Diagnosis",
    "Finding",
    "MessageShift",
    "advise",
    "diagnose",
]

STAGES = 6


def diagnose(
    graph: TemporalGraph,
    cutoff: int | None = None,
    *,
    embedding: str = "pca",
    hops: int = 1,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Diagnosis:
    """Evidence for assumptions 1 to 4 and the shift of messages, from labels before the cutoff only.

    What a graph does not show (one labelled period, no features, no edges) gives "cannot tell". Large graphs are
    sampled; the same seed gives the same result.

    Args:
        graph: The graph; edges are taken in both directions.
        cutoff: Labels at or after it are hidden first; by default the graph's own, or `graph.infer_cutoff()`.
        embedding: "pca" or "tsne" (needs scikit-learn), for the map of the features.
        hops: Hops of the messages whose shift is measured.
        seed: Seed of samples and bootstraps.
        progress: Called with stages done and stages in all.

    Example:
        >>> from impact_gnn.data.tsbm import tsbm
        >>> found = diagnose(tsbm(num_nodes=1000, num_labels=4, feature_std=1, seed=0), cutoff=8)
        >>> [finding.verdict for finding in found.findings]
        ['holds', 'holds', 'holds', 'holds']
    """
    checks.choice("embedding", embedding, EMBEDDINGS)
    if checks.whole_number("hops", hops) < 1:
        raise checks.InputError(f"hops={hops} must be at least 1.")
    if cutoff is None:
        cutoff = graph.infer_cutoff() if graph.cutoff is None else graph.cutoff
    tell = (lambda done: None) if progress is None else (lambda done: progress(done, STAGES))
    view = View.of(graph.masked(cutoff))
    tell(1)
    mix = label_mix(view, seed=seed)
    drift = feature_drift(view, seed=seed)
    tell(2)
    picture = feature_map(view, embedding=embedding, seed=seed)
    tell(3)
    pairs = PairCounts.of(view)
    fits = None if pairs is None or len(pairs.steps) < 3 else fit_models(pairs, seed=seed)
    tell(4)
    separable, common = separability(view, pairs, fits), decay(view, pairs, fits)
    tell(5)
    shift = message_shift(view, hops=hops, seed=seed)
    tell(6)
    return Diagnosis(view.cutoff, mix, drift, separable, common, shift, picture, view.notes)
