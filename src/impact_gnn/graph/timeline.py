"""`Timeline`: the sorted times of a graph, and how many nodes of every type there are at each."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
from numpy import ndarray


@dataclass(frozen=True, eq=False)
class Timeline:
    """The distinct times of all types that have one, and by type the number of nodes per time."""

    times: ndarray
    counts: Mapping[str, ndarray]

    @classmethod
    def of(cls, times: Mapping[str, ndarray | None]) -> Timeline:
        """Count the nodes of every type with a time."""
        distinct = {}
        for kind, time in times.items():
            if time is not None:
                distinct[kind] = np.unique(time, return_counts=True)
        all_times = [values for values, _ in distinct.values()]
        union = np.unique(np.concatenate(all_times))
        counts = {}
        for kind, (values, count) in distinct.items():
            counts[kind] = np.zeros(len(union), np.int64)
            counts[kind][np.searchsorted(union, values)] = count
        return cls(union, counts)

    def only(self, kinds: Collection[str], upto: int | None = None) -> Timeline:
        """Return the timeline of some types, and of the nodes up to a time."""
        counts = {kind: count for kind, count in self.counts.items() if kind in kinds}
        is_used = np.sum(list(counts.values()), axis=0) > 0
        if upto is not None:
            is_used &= self.times <= upto
        used = {kind: count[is_used] for kind, count in counts.items()}
        return Timeline(self.times[is_used], used)
