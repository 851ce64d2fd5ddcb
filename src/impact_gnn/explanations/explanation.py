"""`NodeExplanation`: why a node received its label, in plain values and the user's own names.

Contributions count for the label against the runner-up. Those of the whole model are differences of
probability: an average node, the inputs, smoothing and calibration sum to the difference between
the two probabilities. Those of a member are differences of raw scores (log-odds).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

TERMINAL_WIDTH = 80
SMALLEST_COLUMN = 8
NUMBER_COLUMNS = ("value", "mean", "contribution", "hops", "weight", "without it")
OWN = "own features"


@dataclass(frozen=True)
class Part:
    """The contribution of one kind of input, or of one step after the model."""

    name: str
    contribution: float


@dataclass(frozen=True)
class Feature:
    """A column of an input, its value at the node, and its mean over the labelled nodes.

    The value is the one that the member with the largest weight reads.
    """

    part: str
    name: str
    value: float
    usual: float
    contribution: float


@dataclass(frozen=True)
class Neighbour:
    """A node whose features or label reach the explained node.

    `weight` is its weight in the first message that contains it, after `steps` edges.
    `plain_weight` is that weight without time weights (None where the method has none).
    `without` is the probability of the label if the neighbour had no edges; None if not computed.
    """

    id: str
    kind: str
    period: str | None
    label: str | None
    steps: int
    weight: float
    plain_weight: float | None
    contribution: float
    without: float | None


@dataclass(frozen=True)
class Voice:
    """The probabilities of a member of the ensemble before calibration, and their contributions.

    The log-odds of the label against the runner-up are `usual` (of an average node) plus `parts`.
    Networks leave out up to `error`, the error of the integral from the average node to this one.
    `smoothing` is what smoothing added to the difference of the two probabilities.
    """

    name: str
    share: float
    probability: float
    runner_up_probability: float
    log_odds: float
    usual: float
    parts: list[Part]
    error: float
    smoothing: float | None


@dataclass(frozen=True)
class NodeExplanation:
    """Why the model predicts `label` and not `runner_up` for the node `id`.

    `voices` are the members of the ensemble. `plain` is the probability with plain weights.
    """

    id: str
    kind: str
    period: str
    cutoff: str
    label: str
    probability: float
    runner_up: str
    runner_up_probability: float
    voices: list[Voice]
    parts: list[Part]
    features: list[Feature]
    neighbours: list[Neighbour]
    plain: float | None
    notes: list[str]

    def __str__(self) -> str:
        total = Part("total", self.probability - self.runner_up_probability)
        members = [("Member, before calibration", f"{self.label} / {self.runner_up}")]
        # A single member would only repeat the first line.
        if len(self.voices) > 1:
            members += [
                (
                    f"{voice.share:.0%} {voice.name}",
                    f"{voice.probability:.2f} / {voice.runner_up_probability:.2f}",
                )
                for voice in self.voices
            ]
        inputs = [(f"Input, for {self.label}", "contribution")]
        inputs += [(part.name, f"{part.contribution:+.3f}") for part in [*self.parts, total]]
        features = [("Feature", "input", "value", "mean", "contribution")]
        features += [
            (
                feature.name,
                feature.part,
                f"{feature.value:.4g}",
                f"{feature.usual:.4g}",
                f"{feature.contribution:+.3f}",
            )
            for feature in self.features
        ]
        neighbours: list[tuple[str, ...]] = [
            ("Neighbour", "period", "class", "hops", "weight", "contribution", "without it")
        ]
        neighbours += [self._neighbour_row(neighbour) for neighbour in self.neighbours]
        sections = [
            f"{self.id} ({self.period}): {self.label} {self.probability:.2f}, "
            f"runner-up {self.runner_up} {self.runner_up_probability:.2f}"
        ]
        tables: list[Sequence[tuple[str, ...]]] = [members, inputs, features, neighbours]
        sections += [_format_table(table) for table in tables if len(table) > 1]
        if self.plain is not None:
            sections.append(f"Without time weights: {self.probability:.2f} -> {self.plain:.2f}")
        return "\n\n".join(sections + self.notes)

    def _neighbour_row(self, neighbour: Neighbour) -> tuple[str, ...]:
        name = f"{neighbour.kind} {neighbour.id}"
        if neighbour.kind == self.kind:
            # The explained node reaches itself along loops and return paths.
            name = "(itself)" if neighbour.id == self.id else neighbour.id
        weight = f"{neighbour.weight:.3f}"
        if neighbour.plain_weight is not None:
            weight += f" ({neighbour.plain_weight:.3f})"
        return (
            name,
            neighbour.period or "",
            neighbour.label or "",
            str(neighbour.steps),
            weight,
            f"{neighbour.contribution:+.3f}",
            "" if neighbour.without is None else f"-> {neighbour.without:.2f}",
        )


def _format_table(rows: Sequence[tuple[str, ...]]) -> str:
    """Align columns, numbers to the right; the widest are cut until they fit into a terminal."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    # The widest column loses a letter at a time, so that long names give way first.
    while 2 * len(widths) + sum(widths) > TERMINAL_WIDTH and max(widths) > SMALLEST_COLUMN:
        widths[widths.index(max(widths))] -= 1
    lines = []
    for row in rows:
        line = ""
        # The header of a column decides its alignment.
        for text, width, header in zip(row, widths, rows[0], strict=True):
            cell = text if len(text) <= width else f"{text[: width - 1]}…"
            align = str.rjust if header in NUMBER_COLUMNS else str.ljust
            line += "  " + align(cell, width)
        lines.append(line.rstrip())
    return "\n".join(lines)
