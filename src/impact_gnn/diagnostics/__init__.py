"""Diagnosis before training: assumption checks and the shift of messages.

`diagnose` reads a graph through a view without labels at or after the cutoff.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

from impact_gnn import checks
from impact_gnn._native import one_thread
from impact_gnn._progress import Counter, Progress, watched
from impact_gnn.data.convert import GraphLike, as_temporal_graph
from impact_gnn.diagnostics.assumption import AssumptionCheck, AssumptionStatus
from impact_gnn.diagnostics.connections import Decay, Separability, check_connections
from impact_gnn.diagnostics.feature_drift import FeatureDrift, feature_drift
from impact_gnn.diagnostics.label_mix import LabelMix, label_mix
from impact_gnn.diagnostics.message_shift import MessageShift, message_shift
from impact_gnn.diagnostics.view import View
from impact_gnn.engines import Engine

__all__ = [
    "AssumptionCheck",
    "AssumptionStatus",
    "Diagnosis",
    "MessageShift",
    "diagnose",
]

WIDTH = 78


@dataclass(frozen=True, repr=False)
class Diagnosis:
    """Diagnosis before training: checks of assumptions 1 to 4, and the shift of messages."""

    cutoff: int  # labels at or after it were not read
    label_mix: LabelMix
    feature_drift: FeatureDrift
    separability: Separability
    decay: Decay
    # of messages between labelled nodes and targets; None where there are none
    shift: MessageShift | None
    # checks 3 and 4 along other paths through entities than the first
    other_paths: tuple[tuple[Separability, Decay], ...] = ()
    notes: tuple[str, ...] = ()  # how the graph was read, in sentences

    @property
    def findings(self) -> tuple[AssumptionCheck, ...]:
        return self.label_mix, self.feature_drift, self.separability, self.decay

    @property
    def paths(self) -> tuple[tuple[Separability, Decay], ...]:
        """Checks 3 and 4 along every path through entities, or of direct edges."""
        return ((self.separability, self.decay), *self.other_paths)

    def __str__(self) -> str:
        lines = [f"{'assumption':26}{'status':13}{'statistic':>10}  95% CI"]
        for finding in self.findings:
            value = interval = ""
            if finding.statistic is not None:
                value = f"{finding.statistic:.3f}"
            if finding.interval is not None:
                low, high = finding.interval
                interval = f"{low:.3f} to {high:.3f}"
            head = f"{finding.assumption} {finding.name}"
            lines.append(f"{head:26}{finding.status!s:13}{value:>10}  {interval}".rstrip())
            lines += textwrap.wrap(
                finding.sentence, WIDTH, initial_indent="    ", subsequent_indent="    "
            )
        # Direct edges, or a single path, need no table of paths.
        if self.other_paths:
            width = 2 + max(len(connected.path) for connected, _ in self.paths)
            lines += ["", f"{'path':{width}}{'entities':>8}  {'separable':20}common decay"]
            for connected, common in self.paths:
                start = f"{connected.path:{width}}{connected.num_entities:>8,}"
                lines.append(f"{start}  {connected.short:20}{common.short}")
        if self.shift is not None:
            lines += [
                "",
                f"message shift from labelled nodes to targets ({self.shift.path})",
                str(self.shift),
            ]
        for note in self.notes:
            lines += textwrap.wrap(f"Note: {note}", WIDTH)
        return "\n".join(lines)


@one_thread
def diagnose(
    graph: GraphLike,
    cutoff: int | str | None = None,
    *,
    hops: int = 1,
    seed: int = 0,
    engine: Engine | None = None,
    progress: bool | Progress = False,
) -> Diagnosis:
    """Check assumptions 1 to 4 and measure the shift, from labels before the cutoff only.

    A check without data (one labelled period, no features, no edges) is "not testable".
    Large graphs are sampled; the same seed gives the same result.

    Args:
        graph: The graph, or PyG's `Data` or `HeteroData`; edges are taken in both directions.
        cutoff: Labels at or after it are hidden first; by default the graph's own, or
            `graph.infer_cutoff()`.
        hops: Hops of the messages whose shift is measured.
        seed: Seed of samples and bootstraps.
        engine: Where to propagate; in memory by default.
        progress: True for bars on the terminal, or a function called with stage, steps done, steps
            and a note.

    Examples:
        >>> from impact_gnn.data.tsbm import tsbm
        >>> graph = tsbm(num_nodes=1000, num_labels=4, feature_std=1, seed=0)
        >>> diagnosis = diagnose(graph, cutoff=8)
        >>> print(*(finding.status for finding in diagnosis.findings))
        holds holds holds holds
    """
    checks.at_least("hops", hops, 1)
    checks.seed(seed)
    graph = as_temporal_graph(graph)
    if cutoff is None:
        cutoff = graph.infer_cutoff() if graph.cutoff is None else graph.cutoff
    steps = Counter(watched(progress), "diagnosis", 5)
    view = View.of(graph.masked(cutoff), engine, seed=seed)
    steps.advance(note="features and labels")
    mix = label_mix(view)
    drift = feature_drift(view)
    steps.advance(note="connections")
    # The first path has most evidence and gives the findings; the others are listed.
    (separable, common), *other_paths = check_connections(view)
    steps.advance()
    steps.advance(note="messages")
    shift = message_shift(view, hops=hops)
    steps.advance()
    return Diagnosis(
        cutoff=view.cutoff,
        label_mix=mix,
        feature_drift=drift,
        separability=separable,
        decay=common,
        shift=shift,
        other_paths=tuple(other_paths),
        notes=view.notes,
    )
