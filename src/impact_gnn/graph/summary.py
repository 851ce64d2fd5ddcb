"""`Summary`: what a person wants to know of a graph before anything is run."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Summary:
    """What a person wants to know before anything is run; `print` it, or `asdict` it for a machine."""

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
        """Relations with edges of which it is not known when they came."""
        return [
            name for name, count in self.num_edges.items() if count and name not in self.edge_times
        ]

    def name(self, time: int) -> str:
        """What a person calls a time; nothing where no node has it and times are not just numbers."""
        plain = self.names[0] == str(self.times[0])
        return dict(zip(self.times, self.names, strict=True)).get(time, str(time) if plain else "")

    def __str__(self) -> str:
        nodes = ", ".join(f"{count:,} {kind}" for kind, count in self.num_nodes.items())
        lines = [f"nodes     {nodes}"]
        for name, count in self.num_edges.items():
            share = self.cross_time_share.get(name)
            across = "" if share is None else f", {share:.1%} of them between different times"
            span = self.edge_times.get(name)
            came = (
                f", made from {span[0]} to {span[1]}"
                if span
                else ", without times of their own"
                if count
                else ""
            )
            lines.append(f"edges     {count:,} {name}{across}{came}")
        lines.append(f"features  {'none' if self.num_features is None else self.num_features}")
        labelled, total = sum(self.labelled_per_time), sum(self.nodes_per_time)
        present = sum(count > 0 for count in self.label_counts)
        lines.append(
            f"labels    {len(self.label_counts)} classes ({present} seen), {labelled:,} of {total:,} nodes"
        )
        lines.append(f"periods   {len(self.times)}, from {self.names[0]} to {self.names[-1]}")
        if self.cutoff is not None:
            lines.append(f"cutoff    {self.since} (labels at or after it are hidden)")
        width = max(12, *map(len, self.names))
        lines.append(f"{'time':>{width}} {'nodes':>10} {'labelled':>10}")
        rows = list(zip(self.names, self.nodes_per_time, self.labelled_per_time, strict=True))
        shown = rows if len(rows) <= 14 else [*rows[:3], None, *rows[-10:]]
        dots = " " * (width - 3) + "..."
        lines += [
            dots if row is None else f"{row[0]:>{width}} {row[1]:>10,} {row[2]:>10,}"
            for row in shown
        ]
        return "\n".join(lines)
