"""Limitations of a run: one sentence for every weakness that the evidence shows."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from impact_gnn._text import plain_template
from impact_gnn.report import sentences
from impact_gnn.report.figures import array
from impact_gnn.report.numbers import FILTERS
from impact_gnn.report.summary import RunSummary

FEW_LABELS = 20  # known labels of a period or a class, at least


def limitations(summary: RunSummary) -> list[str]:
    """All limitations, the most serious kind first; the last is that of every back-test.

    Without predictions, those of the model alone.
    """
    times = np.array(summary.graph.times)
    labelled = np.array(summary.graph.labelled_per_time)
    is_past = times < summary.cutoff
    known = np.flatnonzero(is_past & (labelled > 0))
    sparse = [k for k in known[-5:] if labelled[k] < FEW_LABELS]
    facts = {
        "num_ahead": int((~is_past).sum()),
        "gap": int(is_past.sum() - known[-1] - 1),  # periods without labels before the cutoff
        "sparse": [summary.graph.names[k] for k in sparse],
    }
    if summary.prediction_summary is not None:
        facts |= _differences_of_targets(summary)
    template = plain_template(
        Path(__file__).with_name("limitations.txt.j2"), finalize=_one_line, **FILTERS
    )
    text = template.render(
        summary=summary,
        sentences=sentences,
        few_labels=FEW_LABELS,
        **facts,
    )
    return [line for line in text.splitlines() if line]


def _one_line(value: object) -> str:
    """A value in a sentence: names of users may have several lines."""
    return re.sub(r"\s+", " ", str(value))


def _differences_of_targets(summary: RunSummary) -> dict[str, float]:
    """How far features and predicted classes of targets are from those of labelled periods."""
    drift = summary.diagnosis.feature_drift
    times = array(drift.all_times)
    distance = np.nan_to_num(array(drift.all_drift))
    is_target = times >= summary.cutoff
    is_labelled = ~is_target & (times >= min(drift.times, default=np.inf))
    counts = array(list(summary.prediction_summary.labels.values()))
    change = counts / counts.sum() - array(summary.diagnosis.label_mix.mix[-1])
    return {
        "past_drift": distance.max(initial=0.0, where=is_labelled),
        "target_drift": distance.max(initial=0.0, where=is_target),
        "mix_change": 0.5 * float(np.abs(change).sum()),
    }
