"""`Diagnosis`: all evidence about a graph in one value."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

from impact_gnn.diagnostics.connections import Decay, Separability
from impact_gnn.diagnostics.feature_drift import FeatureDrift
from impact_gnn.diagnostics.feature_map import FeatureMap
from impact_gnn.diagnostics.finding import Finding
from impact_gnn.diagnostics.label_mix import LabelMix
from impact_gnn.diagnostics.shift import MessageShift

WIDTH = 110


@dataclass(frozen=True, repr=False)
class Diagnosis:
    """What the evidence is before anything is trained: assumptions 1 to 4, and the shift of messages."""

    cutoff: int  # labels at or after it were not read
    label_mix: LabelMix
    feature_drift: FeatureDrift
    separability: Separability
    decay: Decay
    shift: MessageShift | None  # messages of the past against those of the targets; None where there are none
    feature_map: FeatureMap | None  # None without features
    notes: tuple[str, ...] = ()  # how the graph was looked at, in sentences

    @property
    def findings(self) -> tuple[Finding, ...]:
        return self.label_mix, self.feature_drift, self.separability, self.decay

    def __str__(self) -> str:
        lines = [f"{'assumption':26}{'verdict':13}{'statistic':>10}  95 % interval"]
        for finding in self.findings:
            value = "" if finding.statistic is None else f"{finding.statistic:.3f}"
            around = "" if finding.interval is None else f"{finding.interval[0]:.3f} to {finding.interval[1]:.3f}"
            head = f"{finding.assumption} {finding.name}"
            lines.append(f"{head:26}{finding.verdict!s:13}{value:>10}  {around}".rstrip())
            lines += textwrap.wrap(finding.sentence, WIDTH, initial_indent="    ", subsequent_indent="    ")
        if self.shift is not None:
            lines += ["", f"shift of the labelled past to the targets ({self.shift.path})", str(self.shift)]
        for note in self.notes:
            lines += textwrap.wrap(f"Note: {note}", WIDTH)
        return "\n".join(lines)
