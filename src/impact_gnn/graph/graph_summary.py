"""`GraphSummary`: sizes, times and labels of a graph, for a person to check before a run."""

from __future__ import annotations

from dataclasses import dataclass, field

MOST_ROWS = 14
"""Periods that are all listed; of more, the first three and the last ten are."""


@dataclass(frozen=True)
class GraphSummary:
    """Sizes, times and labels of a graph; `print` it, or `asdict` it for a machine."""

    num_nodes: dict[str, int]
    num_edges: dict[str, int]
    num_features: int | None
    target: str
    times: list[int]
    names: list[str]  # of the times
    nodes_per_time: list[int]
    labelled_per_time: list[int]
    label_counts: list[int]
    cutoff: int | None
    since: str | None = None  # name of the cutoff
    cross_time_share: dict[str, float] = field(default_factory=dict)
    # first and last, where edges have times
    edge_times: dict[str, tuple[str, str]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)  # about how columns of tables were read

    @property
    def undated_edges(self) -> list[str]:
        """Relations whose edges have no times."""
        present = [name for name, count in self.num_edges.items() if count]
        return [name for name in present if name not in self.edge_times]

    def name(self, time: int) -> str:
        """Return the name of a time; empty if no node has that time and times have other names."""
        if time in self.times:
            return self.names[self.times.index(time)]
        return str(time) if self.names[0] == str(self.times[0]) else ""

    def __str__(self) -> str:
        nodes = ", ".join(f"{count:,} {kind}" for kind, count in self.num_nodes.items())
        lines = [f"nodes     {nodes}"]
        for name, count in self.num_edges.items():
            line = f"edges     {count:,} {name}"
            if name in self.cross_time_share:
                line += f", {self.cross_time_share[name]:.1%} between different periods"
            if name in self.edge_times:
                first, last = self.edge_times[name]
                line += f", dated {first} to {last}"
            elif count:
                line += ", without timestamps"
            lines.append(line)
        lines.append(f"features  {'none' if self.num_features is None else self.num_features}")
        present = sum(count > 0 for count in self.label_counts)
        lines.append(
            f"labels    {len(self.label_counts)} classes ({present} with labels), "
            f"{sum(self.labelled_per_time):,} of {sum(self.nodes_per_time):,} nodes"
        )
        lines.append(f"periods   {len(self.times)}, from {self.names[0]} to {self.names[-1]}")
        if self.cutoff is not None:
            lines.append(f"cutoff    {self.since} (labels from then on are masked)")
        return "\n".join(lines + self._period_table())

    def _period_table(self) -> list[str]:
        width = max(12, *map(len, self.names))
        rows = [
            f"{name:>{width}} {nodes:>10,} {labelled:>10,}"
            for name, nodes, labelled in zip(
                self.names, self.nodes_per_time, self.labelled_per_time, strict=True
            )
        ]
        if len(rows) > MOST_ROWS:
            rows[3:-10] = [f"{'...':>{width}}"]
        return [f"{'time':>{width}} {'nodes':>10} {'labelled':>10}", *rows]
